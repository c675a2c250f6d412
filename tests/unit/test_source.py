"""The reader of HIP C++: conditions, macros, headers, what a conditional leaves open, and what large sources cost."""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.errors import CheckError, DeclarationError, HipError
from hipgraphdsl.source import Budget, Macro, Scope, expand_macros, macros, tokenize
from hipgraphdsl.source.constants import evaluate_condition

KERNEL = "__global__ void k(float* x) {}\n"


def sizes(source: str, kernel: str = "k", **options: Any) -> list[int]:
    signature = hg.Module(source, **options)[kernel].signature
    assert signature is not None
    return [parameter.size for parameter in signature.parameters]


# -- constant expressions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993 % 2", 1), ("-9007199254740993 / 2", -4503599627370496), ("0xFFFFFFFF + 1", 0),
        ("0xFFFFFFFFu + 1ull", 2**32), ("1 ? 2 : 3 / 0", 2), ("0 && 1 / 0", 0), ("1 || 1 / 0", 1), ("-7 / 2", -3), ("-7 % 2", -1),
        ("-1 < 0u", 0), ("-1 < 0l", 1), ("-1l < 0u", 1), ("(unsigned char)300", 44), ("(signed char)200", -56), ("'\\n'", 10),
        ("'\\xff'", -1), ("(bool)4 + 1", 2), ("static_cast<unsigned>(-1) >> 28", 15), ("int(3) + sizeof(int)", 7),
        ("~0u >> 31", 1), ("3000000000 > 0", 1), ("-1 >> 1", -1), ("not 0 and 2 bitor 4", 1),
        ("(2) bitor 1", 3), ("1 ? 2 : unknown(3)", 2), ("+".join(["1"] * 2000), 2000),
    ],
)  # fmt: skip
def test_constant_expression_has_the_types_of_cpp(text: str, value: int) -> None:
    assert Scope({}).evaluate(tokenize(text)) == value


@pytest.mark.parametrize(
    "text",
    ["1 / 0", "2147483647 + 1", "1 << 32", "nothing + 1", "1.5", "99999999999999999999", "(" * 400 + "1" + ")" * 400],
)
def test_constant_expression_that_cpp_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Scope({}).evaluate(tokenize(text))


def test_constant_keeps_the_type_of_its_declaration() -> None:
    module = hg.Module(
        """
        const unsigned int big = 0; constexpr unsigned char small = 257; typedef unsigned long long wide;
        constexpr wide all = -1; enum { first = 3, second, third = second * 2, fourth };
        __device__ int a[big - 1 > 0 ? 2 : 3]; __device__ int b[small]; __device__ int c[all > 5]; __device__ int d[fourth];
        """
    )
    assert [module.symbol(name).shape for name in "abcd"] == [(2,), (1,), (1,), (9,)]


_LITERALS = """
0 1 2 3 7 0x10 017 0b101 5u 0u 18446744073709551615u 9223372036854775807 0xFFFFFFFFFFFFFFFF 9007199254740993 'a' '\\n' '\\x41'
'\\377' '\\0' true false NAME 1'000 3ull 0x7fffffffL
"""
_OPERATORS = "+ - * / % << >> < <= > >= == != & | ^ && || and or"


def _condition(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.15:
        return rng.choice(_LITERALS.split())
    if kind < 0.25:
        return f"{rng.choice('-+!~')} {_condition(rng, depth - 1)}"
    if kind < 0.35:
        return f"{_condition(rng, depth - 1)} ? {_condition(rng, depth - 1)} : {_condition(rng, depth - 1)}"
    if kind < 0.5:
        return f"({_condition(rng, depth - 1)})"
    operator = rng.choice(_OPERATORS.split())
    return f"{_condition(rng, depth - 1)} {operator} {_condition(rng, depth - 1)}"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_conditions_are_those_of_the_compiler() -> None:
    rng = random.Random(11)
    conditions = [_condition(rng, rng.randint(1, 4)) for _ in range(1500)]
    text = "".join(f"#if {condition}\nyes{n}\n#else\nno{n}\n#endif\n" for n, condition in enumerate(conditions))
    command = ["g++", "-E", "-P", "-std=c++17", "-w", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    holds = set(re.findall(r"yes(\d+)", done.stdout))
    refused = {(int(line) - 1) // 5 for line in re.findall(r"<stdin>:(\d+):\d+: error", done.stderr)}
    undecided = 0
    for n, condition in enumerate(conditions):
        try:
            ours: bool | None = evaluate_condition(tokenize(condition), lambda _: 0)
        except ValueError:
            ours = None  # a line that is refused
            undecided += n not in refused
        assert n not in refused or ours is None, condition
        assert ours is None or ours == (str(n) in holds), condition
    assert undecided < 120  # shifts by more bits than there are, which are not defined


@pytest.mark.parametrize(
    ("defines", "use", "wanted"),
    [
        ({"CAT": (("a", "b"), "a ## b")}, "CAT(x, 1) CAT(, y) CAT(z,)", "x1 y z"),
        ({"LOG": (("f", "__VA_ARGS__"), "p(f, ## __VA_ARGS__)")}, "LOG(1) LOG(1, 2)", "p ( 1 ) p ( 1 , 2 )"),
        ({"F": (None, "F + 1")}, "F", "F + 1"),
        ({"J": (("a", "b", "c"), "a b ## c")}, "J(1, , 3)", "1 3"),
        ({"S": (("x",), "#x")}, "S(a  >> 1) S(a>>1) S( ->b )", '"a >> 1" "a>>1" "->b"'),
    ],
)
def test_macros_become_what_the_compiler_makes_of_them(defines: dict[str, Any], use: str, wanted: str) -> None:
    macros = {name: Macro(text, names, bool(names) and names[-1] == "__VA_ARGS__") for name, (names, text) in defines.items()}
    assert " ".join(t.text for t in expand_macros(tokenize(use), macros.get, Budget())) == wanted


def test_a_shift_to_the_right_goes_through_macros() -> None:
    macros = {"M": Macro("(x)", ("x",)), "N": Macro("M(M(x) >> 1)", ("x",)), "SHIFT": Macro("32 >> 2")}
    tokens = expand_macros(tokenize("M(8 >> 1) == 4 && N(64>>1) == 16 && M(SHIFT) == 8 && SHIFT == 8"), macros.get, Budget())
    assert evaluate_condition(tokens, lambda _: 0)
    with pytest.raises(ValueError):
        evaluate_condition(expand_macros(tokenize("M(8 > > 1)"), macros.get, Budget()), lambda _: 0)


@pytest.mark.parametrize("before", ["  ", "\t/* of the kernel */ ", "// the kernel\n "])
def test_a_source_may_begin_with_a_preprocessor_line(before: str) -> None:
    assert sizes(f"{before}#define T double\n__global__ void k(T x) {{ }}") == [8]


# -- conditionals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("__has_builtin(__builtin_popcount) && __CHAR_BIT__ == 8", "'__has_builtin'"),
        ("__CUDA_ARCH__ >= 700", "'__CUDA_ARCH__'"),
        ("defined(__clang__)", "__clang__"),
        ("1 << 64", "a shift by 64"),
        ("FOO +", "what is not understood"),
        ("INT_MAX > 5", "'INT_MAX'"),
    ],
)
@pytest.mark.parametrize("what", ["typedef {} index_t;", "using index_t = {};", "#define index_t {}"])
def test_signature_behind_a_condition_that_is_not_decided_is_refused(condition: str, said: str, what: str) -> None:
    source = f"\n#if {condition}\n{what.format('long long')}\n#else\n{what.format('int')}\n#endif\n"
    module = hg.Module(source + "__global__ void k(index_t a, float* x) {}\n" + "__global__ void other(float* x) {}")
    assert module["other"].signature is not None
    with pytest.raises(DeclarationError, match=r"line 2: '#if .*' depends on") as caught:
        module["k"]
    assert said in str(caught.value)
    assert "-D" in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "#if __has_builtin(f)\n__device__ float g() { return 1; }\n#else\n__device__ float g() { return 2; }\n#endif\n" + KERNEL,
        "__global__ void k(float* x) {\n#if __CUDA_ARCH__ >= 700\n x[0] = 1;\n#else\n x[0] = 2;\n#endif\n}",
        "#ifdef __CUDACC__\n#define HD __host__ __device__\n#else\n#define HD\n#endif\nHD float g() { return 1; }\n" + KERNEL,
        "#ifdef __GNUC__\n#define R __restrict__\n#else\n#define R\n#endif\n__global__ void k(float* R x) {}",
        "#ifdef __CUDACC__\ntypedef float real;\n#else\ntypedef float real;\n#endif\n#ifdef __CUDACC__\n" + KERNEL + "#endif\n",
        "#ifndef __MY_HEADER__\n#define __MY_HEADER__\n#define N 3\ntypedef float real;\n__global__ void k(real* x) {}\n#endif",
        "#if __CUDA_ARCH__ > 1\n#define W 32\n#else\n#define W 32 // the same\n#endif\n__global__ void k(float (*x)[W]) {}",
    ],
)
def test_condition_that_is_not_decided_does_not_matter_where_nothing_depends_on_it(source: str) -> None:
    assert sizes(source) == [8]


def test_conditions_are_decided_by_types_limits_and_lines() -> None:
    for condition in ("0xFFFFFFFFFFFFFFFFu + 1 == 0", "-1 > 0u", "'\\n' == 10", "__LINE__ == 2", "__CHAR_BIT__ == 8",
                      "INT_MAX == 2147483647 && LONG_MAX > INT_MAX && UINT_MAX > -1 == 0", "1 || __has_builtin(f)",
                      "!(0 && __CUDA_ARCH__)"):  # fmt: skip
        source = f"#include <limits.h>\n#if {condition}\ntypedef long long t;\n#else\ntypedef int t;\n#endif\n"
        assert sizes(source + "__global__ void k(t a) {}") == [8], condition


UNDECIDED = "#if __CUDA_ARCH__ > 1\n"


@pytest.mark.parametrize(
    "body",
    [
        UNDECIDED + "if (x) {\n#endif\nv = 1;\n" + UNDECIDED + "}\n#endif\n",
        UNDECIDED + "if (x) {\n#else\nif (!x) {\n#endif\nv = 1; }\n",
        UNDECIDED + "if (x) {\n#elif __CUDA_ARCH__ > 0\nfor (;;) {\n#else\nif (!x) { if (x) {\n#endif\nv = 1; }\n",
        "#ifdef __FOO\n#ifdef __BAR\n{ {\n#else\n{\n#endif\n#else\n{\n#endif\nv = 1; } }\n",
        UNDECIDED + "v = 1;\n#else\nif (x) { for (;;) { v = 1; } }\n#endif\n",
        "#define BEGIN if (x) {\n#define END }\nv = 1;\n" + UNDECIDED + "{\n#else\n{\n#endif\n}\n",  # macros that no one uses
    ],
)
def test_branches_of_one_condition_open_and_close_braces_in_a_body(body: str) -> None:
    source = "__device__ int v, w;\n__global__ void k(int* x) {\n__shared__ float b[3];\n" + body + "}\n"
    module = hg.Module(source + "__global__ void j(int* x) { w = 1; }\n")
    assert module.kernels == ("k", "j")
    assert [[symbol.name for symbol, _ in module[name].symbols] for name in module] == [["v"], ["w"]]
    assert module["k"].static_shared_bytes == 12


def test_macros_of_braces_are_read_where_they_are_used() -> None:
    source = "#define BEGIN {\n#define END }\n#define FIRST BEGIN\n__global__ void k(int* x) { if (x) FIRST x[0] = 1; END }\n"
    assert hg.Module(source + KERNEL.replace("k(", "j(") + "\n__global__ void i() BEGIN }").kernels == ("k", "j", "i")


def test_the_hint_of_a_condition_that_is_not_decided_is_given_once() -> None:
    source = "#ifdef __FOO\n#define N 1\n#endif\n#ifdef N\n#define T int\n#endif\n__global__ void k(T* x) {}"
    with pytest.raises(DeclarationError, match="may say what holds") as caught:
        hg.Module(source)["k"]
    assert str(caught.value).count("may say what holds") == 1


def test_branches_that_leave_braces_open_are_refused_by_line() -> None:
    with pytest.raises(DeclarationError, match=r"line 4: line 2: '#if __CUDA_ARCH__ > 1' .* does not close the braces"):
        hg.Module("__global__ void k(int* x) {\n" + UNDECIDED + "if (x) {\n#endif\n}\n")
    with pytest.raises(DeclarationError, match=r"line 4: line 2: '#if __CUDA_ARCH__ > 1' .* does not close the braces"):
        hg.Module("\n#if __CUDA_ARCH__ > 1\n__global__ void k(int* x) {\n#else\n__global__ void k(float* x) {\n#endif\n}")


def test_kernel_with_two_bodies_reaches_the_variables_of_both() -> None:
    module = hg.Module(
        "__device__ int a, b;\n#if __CUDA_ARCH__ > 1\n__global__ void k() { a = 1; }\n#else\n"
        "__global__ void k() { b = 1; }\n#endif"
    )
    assert [symbol.name for symbol, _ in module["k"].symbols] == ["a", "b"]


@pytest.mark.needs("cpu")
def test_condition_that_only_a_compiler_decides_is_decided_by_the_cpu_runtimes() -> None:
    module = hg.Module("\n#if __has_builtin(__builtin_popcount)\n#define N 1\n#else\n#define N 2\n#endif\n"
                       '__global__ void k(int* x) { x[0] = N; }')  # fmt: skip
    g = hg.Graph("t")
    g.kernel(module["k"], 1, 1, (g.device_array("x", np.zeros(1, "i4")),))
    with g.compile("cpu") as exe:
        exe.run()
        assert exe.read("x").tolist() == [1]


# -- variables of a module ---------------------------------------------------------------------------------------------


def edge(before: str, write: str, read: str, **options: Any) -> tuple[list[str], hg.Graph]:
    """Return the reasons of the edges between a kernel that writes a variable and one that reads it."""
    source = f"{before}\n__global__ void wr(int a) {{ {write} }}\n__global__ void rd(int* o) {{ {read} }}\n"
    module = hg.Module(source, **options)
    g = hg.Graph("t")
    o = g.device_array("o", np.zeros(1, "i4"))
    g.kernel(module["wr"], 1, 1, (3,), name="write")
    g.kernel(module["rd"], 1, 1, (hg.writes(o),), name="read")
    return [data["reason"] for _, _, data in g.dag.edges(data=True)], g


@pytest.mark.parametrize(
    ("before", "write", "read", "reason"),
    [
        ("__device__ int v;\n#define V v\n__device__ int* p() { return &V; }", "*p() = a;", "o[0] = *p();", "RAW v"),
        ("__device__ int c(int d) { static int q = 0; q += d; return q; }", "c(a);", "o[0] = c(0);", "RAW static q"),
        ("__device__ struct { int q; } v;", "v.q = a;", "o[0] = v.q;", "RAW v"),
        ("template<int N> __device__ int v;", "v<3> = a;", "o[0] = v<3>;", "RAW v"),
        ("__attribute__((device)) int v;", "v = a;", "o[0] = v;", "RAW v"),
        ("__device__ int v;", "v = a; <% %>", "o<:0:> = v;", "RAW v"),
        ("__device__ int vari\\\nable;", "variable = a;", "o[0] = vari\\\nable;", "RAW variable"),
        ("__device__ int v;\n#define V(x) x ## ariable\n__device__ int variable;", "V(v) = a;", "o[0] = V(v);", "RAW variable"),
        ("__device__ int v[(4 + 1) * 2];", "v[0] = a;", "o[0] = v[0];", "RAW v"),
        ("__device__ int v[sizeof(int)];", "v[0] = a;", "o[0] = v[0];", "RAW v"),
        ("__device__ int v(3);", "v = a;", "o[0] = v;", "RAW v"),
        ("enum { N = 3 }; __device__ int v(N);", "v = a;", "o[0] = v;", "RAW v"),
        ("__device__ int (*v)[4];", "(*v)[0] = a;", "o[0] = (*v)[0];", "RAW v"),
        ("__device__ int (*v)(int) = nullptr;", "v = nullptr;", "o[0] = v(1);", "RAW v"),
        ("__device__ decltype(1 + 2) v;", "v = a;", "o[0] = v;", "RAW v"),
        ("struct S { static inline __device__ int n = 0; };", "S::n = a;", "o[0] = S::n;", "RAW static n"),
    ],
)
def test_variable_of_a_module_is_seen(before: str, write: str, read: str, reason: str) -> None:
    reasons, g = edge(before, write, read)
    assert reasons == [reason]
    assert g.check().ok


@pytest.mark.parametrize(
    ("declaration", "keeps"),
    [
        ("static int c;", True),
        ("int static c;", True),
        ("KEPT c;", True),
        ("static const int* c = nullptr;", True),
        ("static int* const c = nullptr;", False),
        ("static struct { int a; } c;", True),
        ("static int c[(2 + 3)];", True),
        ("static int (*c)[4];", True),
        ("static int c(3);", True),
        ("int a, b; static int c(a);", True),
        ("int a, b; static int2 c(a, b + 1);", True),
        ("[[maybe_unused]] static __attribute__((aligned(16))) int c;", True),
        ("constexpr static int c = 3;", False),
        ("const static int c = 3;", False),
        ("__shared__ static int c;", False),
        ("struct S { static int c(int a) { return a; } };", False),
        ("struct S { static int c(float4); };", False),
        ('static_assert(1, "c"); int c = static_cast<int>(1); // static int d;', False),
    ],
)
def test_launches_of_a_kernel_that_keeps_a_static_variable_are_ordered(declaration: str, keeps: bool) -> None:
    kernel = hg.Module(f"#define KEPT static int\n__global__ void k() {{\n{declaration}\n}}")["k"]
    assert [symbol.name for symbol, _ in kernel.symbols] == ["static c of k"] * keeps


def test_kernel_touches_the_variable_that_is_its_template_argument() -> None:
    module = hg.Module("__device__ int v, w;\ntemplate <int* P, int* Q = &w> __global__ void k() { *P = *Q; }")
    assert [symbol.name for symbol, _ in module["k<&v>"].symbols] == ["v", "w"]


@pytest.mark.parametrize(
    "before",
    [
        "__device__ int f() { static const int table[] = {1, 2}; return table[0]; }",
        "struct S { static constexpr int n = 2; static __device__ int twice(int x) { return 2 * x; } };",
        "__device__ int (*chosen(int n))(int); struct P { int a; } pair(int b);",
        "__device__ int v; // wr and rd do not use v\n",
        '#include <hip/hip_runtime.h>\n#include <vector>\n#include "hip/hip_fp16.h"',
    ],
)
def test_kernels_that_share_no_variable_are_not_ordered(before: str) -> None:
    reasons, g = edge(before, "a += 1; /* v */", 'o[0] = 1; printf("v");')
    assert reasons == []
    assert "HG605" not in g.check().codes


def test_header_of_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "inc.h").write_text('#pragma once\n#include "sub/types.h"\n__device__ real v;\n')
    (tmp_path / "sub" / "types.h").write_text("typedef double real;\n__global__ void of_header(real* x) {}\n")
    options = [f"-I{tmp_path}"]
    reasons, g = edge('#include "inc.h"\n#include "inc.h"', "v = a;", "o[0] = v;", options=options)
    assert reasons == ["RAW v"]
    source = '#include "inc.h"\n__global__ void k(real a) {}'
    module = hg.Module(source, options=options)
    assert sizes(source, options=options) == [8]
    assert list(module) == ["of_header", "k"]
    g.kernel(module["k"], 1, 1, (1.0,))
    text = g.to_json()
    (tmp_path / "inc.h").unlink()
    again = hg.Graph.from_json(text)  # which looks at no file
    assert again.to_json() == text
    (tmp_path / "inc.h").write_text("typedef float real;")
    assert hg.Module(source, options=options) != module


def test_header_that_is_not_found_orders_the_kernels_of_its_module() -> None:
    reasons, g = edge('#include "away.h"', "touch(a);", "o[0] = touched();")
    assert reasons == ["RAW variables of away.h"]
    (found,) = [d for d in g.check().diagnostics if d.code == "HG605"]
    assert "'away.h' is in no folder of -I" in found.message
    assert found.nodes == ("write", "read")


# -- dynamic shared memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "body", "uses"),
    [
        ("", "extern __shared__ float s[]; s[0] = x[0];", True),
        ("", "HIP_DYNAMIC_SHARED(float, s) s[0] = x[0];", True),
        ("extern __shared__ float s[];", "s[0] = x[0];", True),
        ("extern __shared__ float s[];\n#define S s", "S[0] = x[0];", True),
        ("extern __shared__ float s[];", "x[0] = 1;", False),
        ("", "extern __shared__ float s[]; x[0] = 1;", False),
        ("", "__shared__ float s[4]; s[0] = x[0];", False),
        ("", "\n#if __CUDA_ARCH__ > 1\nextern __shared__ float s[]; s[0] = x[0];\n#endif\n", False),
    ],
)
def test_dynamic_shared_memory_of_no_bytes_is_an_error(before: str, body: str, uses: bool) -> None:
    module = hg.Module(f'{before}\nextern "C" __global__ void k(float* x) {{ {body} }}')
    g = hg.Graph("t")
    x = g.device_array("x", np.zeros(4, "f4"))
    g.kernel(module["k"], 1, 1, (x,), name="a")
    g.kernel(module["k"], 1, 1, (x,), name="b", shared_bytes=16)
    assert [d.nodes for d in g.check().errors if d.code == "HG510"] == [("a",)] * uses


@pytest.mark.needs("cpu")
def test_launch_without_dynamic_shared_memory_is_refused_unchecked_too() -> None:
    module = hg.Module('extern "C" __global__ void k(float* x) { extern __shared__ float s[]; s[0] = x[0]; x[1] = s[0]; }')
    g = hg.Graph("t")
    g.kernel(module["k"], 1, 1, (g.device_array("x", np.ones(4, "f4")),), name="a")
    with pytest.raises(CheckError, match="HG510"):
        g.compile("cpu")
    with pytest.raises(HipError, match="shared_bytes") as caught, g.compile("cpu", check=False) as exe:
        exe.run()
    assert caught.value.node == "a"


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [[("a", ">i4"), ("b", "<f4")], [("a", "<i4"), ("b", [("c", ">f8", (2,))])]])
def test_struct_layout_of_another_byte_order_is_refused(swapped: list[Any]) -> None:
    with pytest.raises(DeclarationError, match=r"struct 'S': field '(a|b\.c)' has the byte order of another machine"):
        hg.Module("struct S;\n__global__ void k(S* v) {}", structs={"S": np.dtype(swapped)})


@pytest.mark.parametrize(
    ("ctype", "dtype", "start", "valid"),
    [
        ("float4", "f4", 2, False), ("double2", "f8", 1, False), ("int4", "i4", 6, False), ("uchar4", "u1", 4, True),
        ("uchar4", "u1", 2, False), ("float3", "f4", 3, True), ("short2", "i2", 2, True), ("char2", "i1", 2, True),
        ("float4", "f4", 4, True),
    ],
)  # fmt: skip
def test_vector_pointer_takes_its_own_alignment(ctype: str, dtype: str, start: int, valid: bool) -> None:
    module = hg.Module(f"__global__ void k(const {ctype}* a) {{}}")
    g = hg.Graph("t")
    view = g.device_array("x", shape=192, dtype=dtype)[start : start + 12 * int(ctype[-1])]
    if valid:
        g.kernel(module["k"], 1, 1, (view,))
    else:
        with pytest.raises(DeclarationError, match=f"begins at byte {view.offset_bytes}, not at a multiple of"):
            g.kernel(module["k"], 1, 1, (view,))


@pytest.mark.needs("cpu")
@pytest.mark.parametrize(
    ("ctype", "value", "wanted"),
    [("hipFloatComplex", 1.5, "1.5f"), ("hipFloatComplex", 2, "2.0f"), ("__hip_bfloat16", 1.5, ""), ("__hip_bfloat16", 2, "")],
)
def test_plain_number_is_taken_for_complex_and_bfloat16(ctype: str, value: float, wanted: str) -> None:
    if "bfloat16" in ctype:
        pytest.importorskip("ml_dtypes")
    g = hg.Graph("t")
    x = g.device_array("x", np.zeros(1, "f4"))
    test = f"v.x == {wanted} && v.y == 0" if wanted else f"(float)v == {float(value)}f"
    headers = "#include <hip/hip_complex.h>\n#include <hip/hip_bf16.h>\n"
    module = hg.Module(f"{headers}__global__ void k({ctype} v, float* x) {{ x[0] = {test}; }}")
    g.kernel(module["k"], 1, 1, (value, x))
    with g.compile("cpu") as exe:
        exe.run()
        assert exe.read("x").tolist() == [1.0]
    with pytest.raises(DeclarationError, match="takes a"):
        g.kernel(module["k"], 1, 1, ("1", x))


def test_struct_that_is_a_template_argument_is_named_by_its_own_name() -> None:
    module = hg.Module("struct Scale { float f; };\ntemplate <typename F> __global__ void apply(F f, float* x) {}")
    with pytest.raises(DeclarationError, match=r"structs=\{'Scale': numpy.dtype"):
        module["apply<Scale>"]
    again = hg.Module(module.source, structs={"Scale": np.dtype([("f", "f4")])})
    assert again["apply<Scale>"].signature is not None


# -- size --------------------------------------------------------------------------------------------------------------

CONDITIONS = "#if 1" + "+1" * 30_000 + "\n#endif\n"
CHOICES = "#ifdef __FOO\n#define A " + "1+" * 100_000 + "\n#else\n#define A " + "1-" * 100_000 + "\n#endif\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("namespace a {" * 300_000 + KERNEL + "}" * 300_000, "nested more than 256 deep"),
        (";" * 4_000_000 + KERNEL, "more than 250000 tokens"),
        ("".join(f"#define A{n} {n}\n" for n in range(60_000)) + KERNEL, "more than 50000 preprocessor lines"),
        ("int f(" + "(" * 2_000_000 + ")" * 2_000_000 + ");" + KERNEL, "more than 250000 tokens"),
        ("__device__ int x = " + "a<" * 2_000_000 + ";" + KERNEL, "more than 250000 tokens"),
        ("#if " + "1 " * 2_000_000 + "\n#endif\n" + KERNEL, "line 1: a condition has 3999999 characters"),
        (CONDITIONS + KERNEL, ""),
        pytest.param(CONDITIONS * 50 + KERNEL, "more than 1000000 tokens", marks=pytest.mark.slow),
        ("#define A " + "1 " * 2_000_000 + "\nA\n" + KERNEL, "a macro that is used has 3999999 characters"),
        pytest.param(CHOICES * 20 + KERNEL, "more than 1000000 tokens", marks=pytest.mark.slow),
    ],
)
def test_source_beyond_the_limits_is_refused_at_once(source: str, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(DeclarationError, match=said) if said else nullcontext():
        hg.Module(source)
    assert time.process_time() - begun < 40  # at most 7 s on an idle machine


@pytest.mark.parametrize("source", [CONDITIONS * 2, CHOICES], ids=["conditions", "choices"])
def test_tokens_of_conditions_and_of_macros_by_condition_count_as_read(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macros, "_MOST_READ", 100_000)
    with pytest.raises(DeclarationError, match="more than 100000 tokens outside"):
        hg.Module(source + KERNEL)


@pytest.mark.parametrize("declared", ["(*volatile v)(int) = f", "(*v)(int) = &f", "(*v[2])(int) = {f}", "(*(*v)(int))(int) = 0"])
def test_pointer_to_a_function_is_a_variable_by_its_own_name(declared: str) -> None:
    module = hg.Module(f"__device__ int f(int i) {{ return i; }}\n__device__ int {declared};\n{KERNEL}")
    assert module.symbols == ("v",)
    with pytest.raises(DeclarationError, match=r"variable 'v' .* pointers to functions can be neither"):
        module.symbol("v")


def test_large_source_is_read_in_bounded_time_and_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    module = hg.Module("__device__ int v;\n__global__ void k(float* x) {" + "a+" * 2_000_000 + "v;}")
    assert [symbol.name for symbol, _ in module["k"].symbols] == ["v"]
    assert time.process_time() - begun < 6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("most", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_from_json_modules_share_the_tokens_that_macros_may_become(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = "#define A0 1\n" + "".join(f"#define A{n + 1} A{n} + A{n}\n" for n in range(13)) + "int x = A13;\n" + KERNEL
    hg.Module(bomb)
    modules = {f"m{n}": {"source": [bomb]} for n in range(50)}
    text = {"hipgraphdsl": 1, "name": "x", "modules": modules, "arrays": [], "parameters": [], "nodes": [], "order": []}
    with pytest.raises(DeclarationError, match="modules of the file, become more than 1000000 tokens"):
        hg.Graph.from_json(json.dumps(text))
    many = "".join(f"int x{n} = A13;\n" for n in range(3))  # each use is counted by itself
    hg.Module(bomb + many)
    with pytest.raises(DeclarationError, match="become more than 1000000 tokens"):
        hg.Module(bomb + many * 10)
    declarations = "int f(int a, int b, int c, int d);\n" * (most * 14 // 1000) + KERNEL
    monkeypatch.setattr(macros, "_MOST_READ", most)
    text["modules"] = {f"m{n}": {"source": [declarations]} for n in range(5)}
    with pytest.raises(DeclarationError, match=f"modules of the file, has more than {most} tokens"):
        hg.Graph.from_json(json.dumps(text))
