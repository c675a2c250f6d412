"""HG409: accesses beyond arrays that `check` finds in the source of kernels, and what it says nothing of."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.checks import Diagnostic

pytestmark = pytest.mark.needs("bounds")

N = 100
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def found(source: str, *args: Any, grid: Any = 1, block: Any = 128, **options: Any) -> list[Diagnostic]:
    """Check one launch of the kernel `k`, whose arrays `x` and `y` have 100 elements."""
    g = hg.Graph("demo")
    x, y = (g.device_array(name, np.ones(N, "int32")) for name in "xy")
    given = {"x": x, "y": y}
    module = hg.Module(source, options=options.pop("compiler", ()), structs=options.pop("structs", None))
    kernel = module[options.pop("name", "k")]
    g.kernel(kernel, grid, block, [given.get(a, a) if isinstance(a, str) else a for a in args], **options)
    return [d for d in g.check().diagnostics if d.code == "HG409"]


def kernel(parameters: str, body: str) -> str:
    return f'extern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'


RIGHT = {
    "guarded": ("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;", ("x", N), {}),
    "returned": ("int* x, int n", f"{INDEX} if (i >= n) return; x[i] = 1;", ("x", N), {}),
    "and": ("int* x, int n", f"{INDEX} if (i < n && x[i] > 0) x[i] = 1;", ("x", N), {}),
    "or": ("int* x, int n", f"{INDEX} if (i >= n || x[i] > 0) return; x[i] = 1;", ("x", N), {}),
    "chosen": ("int* x, const int* y, int n", f"{INDEX} int v = i < n ? y[i] : 0; if (v) x[i] = v;", ("x", "y", N), {}),
    "wrapped": ("int* x, unsigned n", "unsigned i = threadIdx.x - 1; if (i < n) x[i] = 1;", ("x", N), {}),
    "clamped": ("int* x, int n", f"{INDEX} x[min(i, n - 1)] = 1;", ("x", N), {}),
    "strided": ("int* x, int n", f"for ({INDEX[:-1]}; i < n; i += gridDim.x * blockDim.x) x[i] = 1;", ("x", N), {"grid": 7}),
    "counted": ("int* x, int n", "for (int i = 0; i < n; ++i) x[i] = 1;", ("x", N), {"block": 1}),
    "counted down": ("int* x, int n", "for (int i = n - 1; i >= 0; i--) x[i] = 1;", ("x", N), {"block": 1}),
    "pointers": ("int* x, int n", f"{INDEX} int* p = x + i; if (i < n) *p = 1;", ("x", N), {}),
    "address": ("int* x, int n", f"{INDEX} int* p = &x[i]; if (i < n) *p = 1;", ("x", N), {}),
    "left early": ("int* x, int n", "for (int i = 0; i < 1000; ++i) { if (i == n) break; x[i] = 1; }", ("x", N), {"block": 1}),
    "read index": ("int* x, const int* y", f"{INDEX} if (i < 100) x[y[i]] = 1;", ("x", "y"), {}),
    "read guard": ("int* x, const int* y", f"{INDEX} if (i < y[0]) x[i] = 1;", ("x", "y"), {}),
    "read return": ("int* x, const int* y", f"{INDEX} if (i >= y[0]) return; x[i] = 1;", ("x", "y"), {}),
    "read bound": ("int* x, const int* y", "int i = 0; while (i < y[0]) ++i; x[i + 98] = 1;", ("x", "y"), {}),
    "not understood": ("int* x, int n", f"{INDEX} switch (i < n) {{ case 0: return; }} x[i] = 1;", ("x", N), {}),
    "jump": ("int* x, int n", f"{INDEX} if (i >= n) goto end; x[i] = 1; end: ;", ("x", N), {}),
    "unbraced": ("int* x, int n", f"{INDEX} if (i > 0) goto end; i = i - 1; end: if (i > 0) x[500] = 1;", ("x", N), {}),
    "lambda": ("int* x, int n", f"{INDEX} auto f = [&](int j) {{ i = j; }}; f(0); x[i] = 1;", ("x", N), {}),
    "reference": ("int* x, int n", f"{INDEX} int& j = i; j = 0; x[i] = 1;", ("x", N), {}),
    "address taken": ("int* x, int n", f"{INDEX} int* p = &i; *p = 0; x[i] = 1;", ("x", N), {}),
    "signed overflow": ("int* x, int n", "int i = n * n; x[i / 100000000] = 1;", ("x", 100_000), {}),
    "division by zero": ("int* x, int n", "x[500 / n] = 1;", ("x", 0), {}),
    "dead branch": ("int* x, int n", f"{INDEX} if (n == 5) x[i + 1000] = 1;", ("x", 4), {}),
    "nothing read": ("int* x, int n", f"{INDEX} (void)sizeof(x[i]);", ("x", 4), {}),
    "assertion": ("int* x, int n", f"{INDEX} assert(i < n); x[i] = 1;", ("x", N), {}),
    "shadowed": ("int* x, int n", f"{INDEX} {{ int n = 1000; if (n > 999) i = 0; }} if (i < n) x[i] = 1;", ("x", N), {}),
    "own vector part": ("int* x", "int2* p = (int2*)(x + 99); p->x = 1;", ("x",), {}),
    "part of an element": ("int* x, int n", "int2* p = (int2*)(x + 99); p[0].x = n + p[0].x; atomicAdd(&p->x, n);", ("x", 1), {}),
    "method": ("int* x", "Odd* p = (Odd*)(x + 96); p[0].size(); p->two[1] = 1; p->in.y = 1;", ("x",), {}),
    "address behind": ("int* x", "int4* p = (int4*)(x + 98); int* q = &p[0].x; q[1] = 1;", ("x",), {}),
}

# What C++ can do behind the back of a reader: the source before the kernel, its parameters, its body, its second argument.
TRAPS = {
    "ptr ref param": (
        "__device__ void adv(int*& p) { p = p - 100; }\n",
        "int* x, int unused", f"{INDEX} x += 100; adv(x); x[i % 100] = 1;", 0,
    ),
    "macro same name as var": ("#define n 50\n", "int* x, int k", "int i = threadIdx.x; if (i < n) x[i + 50] = 1;", 3),
    "shadow param": ("", "int* x, int n", "for (int n = 0; n < 3; ++n) { if (n < 100) x[n] = 1; } ", 1000),
    "inner decl shadows": ("", "int* x, int n", f"{INDEX} {{ int* x0 = x; {{ int i = 5; x0[i] = 1; }} }}", 1000),
    "comma": ("", "int* x, int n", f"{INDEX} int a = 0, b = 500; a = (b = 3, b + 1); x[a] = 1; x[b] = 2;", 1000),
    "do while(0) break": ("", "int* x, int n", f"{INDEX} do {{ if (i >= n) break; x[i] = 1; }} while (0);", 100),
    "nested return": (
        "",
        "int* x, int n", f"{INDEX} for (int k = 0; k < 5; ++k) {{ if (i + k >= n) return; x[i + k] = 1; }}", 100,
    ),
    "postinc index": ("", "int* x, int n", "int i = 0; while (i < n) x[i++] = 1;", 40),
    "postinc ptr": ("", "int* x, int n", "int* p = x + 99; *p-- = 1; p[0] = 2;", 40),
    "unsigned wrap guard": ("", "int* x, unsigned n", "unsigned i = threadIdx.x - 5u; if (i < n) x[i] = 1;", 100),
    "int vs unsigned": ("", "int* x, int n", "int i = (int)threadIdx.x - 5; if (i < blockDim.x && i < n) x[i] = 1;", 100),
    "bool arith": ("", "int* x, int n", f"{INDEX} x[(i < n) * i * (i < 100)] = 1;", 100),
    "char wrap": ("", "int* x, int n", "unsigned char c = 250; c += 10; x[c] = 1;", 100),
    "short": ("", "int* x, int n", "short s = 40000; x[s] = 1;", 100),
    "ternary lvalue": ("", "int* x, int n", f"{INDEX} int a = 900, b = 900; (n > 5 ? a : b) = 3; x[a] = 1;", 100),
    "struct var": (
        "struct P { int v; __device__ P(int& i) { i = 0; } };\n",
        "int* x, int n", f"{INDEX} i = 900; P p(i); x[i] = 1;", 100,
    ),
    "struct brace": (
        "struct P { int v; __device__ P(int& i) { i = 0; } };\n",
        "int* x, int n", f"{INDEX} i = 900; P p{{i}}; x[i] = 1;", 100,
    ),
    "functor": (
        "struct P { __device__ void operator()(int& i) { i = 0; } };\n",
        "int* x, int n", f"{INDEX} i = 900; P p; p(i); x[i] = 1;", 100,
    ),
    "method": (
        "struct P { __device__ void f(int& i) { i = 0; } };\n",
        "int* x, int n", f"{INDEX} i = 900; P p; p.f(i); x[i] = 1;", 100,
    ),
    "temp functor": (
        "struct P { __device__ void operator()(int& i) { i = 0; } };\n",
        "int* x, int n", f"{INDEX} i = 900; P()(i); x[i] = 1;", 100,
    ),
    "template fn": (
        "template <typename T> __device__ void z(T&& i) { i = 0; }\n",
        "int* x, int n", f"{INDEX} i = 900; z(i); x[i] = 1;", 100,
    ),
    "ns fn": (
        "namespace q { __device__ void z(int& i) { i = 0; } }\n",
        "int* x, int n", f"{INDEX} i = 900; q::z(i); x[i] = 1;", 100,
    ),
    "using ns fn": (
        "namespace q { __device__ void z(int& i) { i = 0; } }\nusing namespace q;\n",
        "int* x, int n", f"{INDEX} i = 900; z(i); x[i] = 1;", 100,
    ),
    "hip_ref swap": (
        "template <class T> __device__ void swap(T& a, T& b) { T t = a; a = b; b = t; }\n",
        "int* x, int n", f"{INDEX} int a = 900, b = 3; swap(a, b); x[a] = 1;", 100,
    ),
    "op=": (
        "struct R { int& r; __device__ void operator=(int v) { r = v; } };\n",
        "int* x, int n", f"{INDEX} i = 900; R r{{i}}; r = 3; x[i] = 1;", 100,
    ),
    "agg": ("struct R { int* r; };\n", "int* x, int n", f"{INDEX} i = 900; R r = {{&i}}; *r.r = 3; x[i] = 1;", 100),
    "local const": ("const int N = 1000;\n", "int* x, int n", f"{INDEX} const int N = 50; if (i < N) x[i] = 1;", 100),
    "if constexpr": ("", "int* x, int n", f"{INDEX} if constexpr (sizeof(int) == 8) x[i + 1000] = 1;", 100),
    "cond in init": ("", "int* x, int n", f"{INDEX} int j = i; if (int i = 0) {{ x[1000] = 1; }} if (j < n) x[j] = 1;", 100),
    "attr": ("", "int* x, int n", f"[[maybe_unused]] {INDEX} if (i < n) [[likely]] x[i] = 1;", 100),
    "cast fp": ("", "int* x, int n", f"{INDEX} float (*row)[4] = (float (*)[4])x; if (i < 25) row[i][3] = 1;", 100),
    "neg mod": ("", "int* x, int n", "int i = (int)threadIdx.x - 5; x[((i % n) + n) % n] = 1;", 100),
    "shift": ("", "int* x, int n", "unsigned i = 0xFFFFFFFFu >> 28; x[i << 2] = 1; x[(~0u) & 63] = 2;", 100),
    "printf n": ("", "int* x, int n", f'{INDEX} if (i >= n) {{ printf("%d", i); return; }} x[i] = 1;', 100),
    "typedef": (
        "typedef struct { int a, b; } pair;\n",
        "int* x, int n", f"{INDEX} pair* p = (pair*)x; if (i < 50) p[i].b = 1;", 100,
    ),
    "alias template": (
        "template <class T> using ptr = T*;\n",
        "int* x, int n", f"{INDEX} ptr<int> p = x; if (i < n) p[i] = 1;", 100,
    ),
    "member of a template": (
        "constexpr int N = 1000;\ntemplate <int M> struct S { enum { N = M }; };\n",
        "int* x, int n", "x[S<3>::N] = 1;", 100,
    ),
    "half index": ("", "int* x, int n", f"{INDEX} short* p = (short*)x; if (i < 128) p[i + 72] = 1;", 100),
}  # fmt: skip

WRONG: dict[str, tuple[Any, ...]] = {
    "unguarded": ("int* x", f"{INDEX}\nx[i] = 1;", ("x",), {}, ("writes x[127]", "line 3", "thread 127 of block 0")),
    "one more": ("int* x, int n", f"{INDEX} if (i <= n) x[i] = 1;", ("x", N), {}, ("x[100]", "thread 100 of block 0")),
    "n too large": ("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;", ("x", 110), {}, ("x[109]",)),
    "before": ("int* x, int n", f"{INDEX} if (i < n) x[i - 1] = 1;", ("x", N), {}, ("x[-1]", "bytes -4..0 of 'x'")),
    "read": ("int* x, const int* y, int n", f"{INDEX} if (i < n) x[i] = y[i + 1];", ("x", "y", N), {}, ("reads y[100]",)),
    "grid": ("int* x", f"{INDEX} x[i] = 1;", ("x",), {"grid": 2, "block": 100}, ("x[199]", "block 1")),
    "two axes": (
        "int* x, int w, int h",
        "int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;"
        "if (c < w && r < h) x[r * w + c] = 1;",
        ("x", 10, 11), {"grid": (2, 2), "block": (8, 8)}, ("x[109]", "thread (1, 2, 0) of block (1, 1, 0)"),
    ),
    "strided": ("int* x, int n", f"for ({INDEX[:-1]}; i < n; i += blockDim.x) x[i] = 1;", ("x", 5000), {}, ("[4999]",)),
    "counted": ("int* x, int n", "for (int k = 0; k < n; k++) x[threadIdx.x * n + k] = 1;", ("x", 26), {"block": 4}, ("x[103]",)),
    "halved": ("int* x", "for (int s = 64; s > 0; s /= 2) if (threadIdx.x < s) x[threadIdx.x + s] = 1;", ("x",), {}, ("x[127]",)),
    "pointer": ("int* x", f"{INDEX} int* p = x; p += i; *p = 1;", ("x",), {}, ("x[127]",)),
    "vector": ("int* x", "((int4*)x)[threadIdx.x] = make_int4(0, 0, 0, 0);", ("x",), {"block": 26}, ("x[25]", "400..416")),
    "atomic": ("int* x", f"{INDEX} atomicAdd(&x[i], 1);", ("x",), {}, ("writes x[127]",)),
    "first of many": ("int* x, const int* y", f"{INDEX} x[i] = 1; switch (y[0]) {{}}", ("x", "y"), {}, ("x[127]",)),
    "huge grid": ("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;", ("x", 300_000), {"grid": 100_000}, ("x[299999]",)),
    "wide": ("int* x", "size_t i = (size_t)blockIdx.x << 32; x[i] = 1;", ("x",), {"grid": 3}, ("x[8589934592]",)),
    "shared": (
        "int* x", "__shared__ int t[16][8]; t[threadIdx.x / 8][threadIdx.x % 8 + 1] = 1;",
        ("x",), {}, ("shared array 't'", "512..516"),
    ),
    "dynamic": (
        "int* x", "extern __shared__ int t[]; t[threadIdx.x] = 1;",
        ("x",), {"shared_bytes": 256}, ("dynamic shared", "508..512 of 256"),
    ),
    "local": ("int* x", "int t[4]; for (int k = 0; k <= 4; ++k) t[k] = k;", ("x",), {}, ("local array 't'", "16..20 of 16")),
    "warp": ("int* x", f"{INDEX} int v = __shfl_down(x[i], 1); if (v) x[0] = 1;", ("x",), {}, ("reads x[127]",)),
}  # fmt: skip


STRUCTS = "struct In { char x; int y; };\nstruct Odd { int two[2]; In in; int last; };\n"
IN = np.dtype([("x", "i1"), ("y", "i4")], align=True)
LAYOUTS = {"In": IN, "Odd": np.dtype([("two", "i4", 2), ("in", IN), ("last", "i4")])}


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_are_not_blamed(name: str) -> None:
    parameters, body, args, launch = RIGHT[name]
    assert not found(kernel(parameters, body), *args, **launch)
    assert not found(STRUCTS + kernel(parameters, body), *args, **launch, structs=LAYOUTS)


@pytest.mark.parametrize("name", TRAPS)
def test_traps_of_the_language_raise_no_false_alarm(name: str) -> None:
    before, parameters, body, n = TRAPS[name]
    assert not found(before + kernel(parameters, body), "x", n)


# Accesses that leave `x`, 400 bytes, in part.
PARTLY = {
    "read": ("int4 a = ((const int4*)(x + 97))[threadIdx.x];", "reads x[24] (kernel 'k', line 4): bytes 388..404 of"),
    "written": ("*(double*)(x + 99) = 1.0;", "bytes 396..404 of"),
    "written at the begin": ("*(double*)(x - 1) = 1.0;", "bytes -4..4 of"),
    "wider than the last": ("x[99] = 1; *(int4*)(x + 98) = make_int4(0, 0, 0, 0);", "bytes 392..408 of"),
    "member": ("((int2*)(x + 99))->y = 1;", "bytes 400..404 of"),
    "member of an element": ("int a = ((int4*)(x + 2))[24].w; x[a] = 1;", "reads x[25] (kernel 'k', line 4): bytes 404..408 of"),
    "complex": ("float a = ((hipFloatComplex*)x)[50].y;", "bytes 404..408 of"),
    "struct": ("Odd* p = (Odd*)x; p[20].two[1] = 2;", "bytes 404..408 of"),
    "nested": ("Odd* p = (Odd*)(x + 96); p->in.y = 2; p->last = 0;", "bytes 400..404 of"),
    "address of a member": ("int* q = &((int4*)(x + 97))->z; q[1] = 1;", "bytes 400..404 of"),
}


@pytest.mark.parametrize("name", PARTLY)
def test_accesses_that_leave_an_array_in_part_are_named(name: str) -> None:
    body, said = PARTLY[name]
    (finding,) = found(STRUCTS + kernel("int* x", body), "x", block=1, structs=LAYOUTS)
    assert said in finding.message


@pytest.mark.parametrize("name", WRONG)
def test_wrong_access_is_named_with_its_thread(name: str) -> None:
    parameters, body, args, launch, said = WRONG[name]
    (finding,) = found(kernel(parameters, body), *args, **launch)
    for text in said:
        assert text in finding.message
    assert finding.severity == "error"


def test_message_says_who_where_and_what() -> None:
    (finding,) = found(kernel("int* x", f"{INDEX}\n  // a comment\n  x[i] = 1;"), "x")
    assert finding.message == (
        "'k': thread 127 of block 0 writes x[127] (kernel 'k', line 4): bytes 508..512 of 'x', which has 400 (100 elements)"
    )
    assert (finding.nodes, finding.arrays) == (("k",), ("x",))


def test_lines_count_behind_conditionals_of_the_preprocessor() -> None:
    source = kernel("int* x", f"{INDEX}\n#if 0\n  nothing\n#else\n  // here\n#endif\n  x[i] = 1;")
    (finding,) = found(source, "x")
    assert "line 8" in finding.message


@pytest.mark.parametrize(
    "before",
    [
        "__device__ int min(int a, int b) { return 0; }",  # not the min that is known
        "__device__ void fail() { __trap(); }",
        '#include "not_here.h"\n',
        "#ifdef __HIP_PLATFORM_AMD__\n#define W 1\n#endif\n",
        "namespace a { const int M = 500; }\nnamespace b { const int M = 50; }",
        "struct S { static constexpr int M = 5; };\n__device__ void set(int& i);",
    ],
)
def test_what_the_source_leaves_open_is_not_judged(before: str) -> None:
    body = f"{INDEX} int j = min(i, 1000); if (i == 127) fail(); set(i); if (j < M || i < M) x[j + i] = 1; "
    assert not found(before + "\n" + kernel("int* x", body), "x")


def test_macros_that_change_inside_a_body_are_not_guessed() -> None:
    assert not found(kernel("int* x", "#define AT 0\nx[AT] = 1;\n#undef AT\n#define AT 500\n"), "x")


def test_template_arguments_and_constants_are_known() -> None:
    source = f"const int M = 4;\ntemplate <typename T, int R> __global__ void k(T* x) {{ {INDEX} x[i * R + M] = 1; }}"
    assert not found(source, "x", name="k<int, 3>", block=32)
    (finding,) = found(source, "x", name="k<int, 3>", block=33)
    assert "x[100]" in finding.message
    (finding,) = found(source.replace("M = 4", "M = SIZE"), "x", name="k<int, 1>", block=96, compiler=["-DSIZE=5"])
    assert "x[100]" in finding.message


def test_functions_that_take_values_change_no_index() -> None:
    helper = "__device__ int at(int i, int n) { return i * n; }\n"
    (finding,) = found(helper + kernel("int* x", f"{INDEX} x[at(i, 2)] = 1; x[i] = 1;"), "x")
    assert "x[127]" in finding.message


def test_variable_of_a_module_has_bounds() -> None:
    (finding,) = found("__constant__ int table[4];\n" + kernel("int* x", f"{INDEX} if (i < 5) x[i] = table[i];"), "x")
    assert "reads variable 'table'" in finding.message
    assert finding.arrays == ("table",)


@pytest.mark.parametrize(("variable", "read"), [("int4 table[4]", "table[i].x"), ("int4 table[2][2]", "(table[1] + i - 2)->w")])
def test_vector_variable_of_a_module_has_bounds(variable: str, read: str) -> None:
    for stop, findings in ((4, 0), (5, 1)):
        source = f"__device__ {variable};\n" + kernel("int* x", f"{INDEX} if (i < {stop}) x[i] = {read};")
        assert [d.arrays for d in found(source, "x")] == [("table",)] * findings


def test_view_ends_where_its_array_does() -> None:
    module = hg.Module(kernel("int* x", f"{INDEX} x[i] = 1;"))
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros((4, N), "int32"))
    for row in range(4):
        g.kernel(module["k"], 1, N + 20, (x[row],), name=f"row_{row}")
    assert [d.nodes for d in g.check().errors if d.code == "HG409"] == [("row_3",)]


def test_defaults_are_judged_because_the_first_launch_has_them() -> None:
    module = hg.Module(kernel("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;"))
    g = hg.Graph("demo")
    right, wrong = g.param("right", "int32", N), g.param("wrong", "int32", 100_000)
    blocks = g.param("blocks", "int32", 4)
    x = g.device_array("x", shape=N, dtype="int32")
    whole, p = g.device_array("whole", shape=N, dtype="int32"), g.param("p", "int32", shape=N, default="whole")
    g.kernel(module["k"], 1, 128, (x, right), name="good")
    g.kernel(module["k"], 1, 128, (p, right), name="inside of the default's array")
    g.kernel(module["k"], 1, 128, (x, wrong), name="value")
    g.kernel(module["k"], blocks, 32, (x, 1000), name="extent")
    g.kernel(module["k"], 1, 128, (p, wrong), name="array")
    assert whole.size == N
    found = {d.nodes[0]: d for d in g.check().errors}
    assert found.keys() == {"value", "extent", "array"}
    assert found["value"].message.endswith("; with the default wrong = 100000")
    assert found["extent"].message.endswith("; with the default blocks = 4")
    assert found["array"].arrays == ("whole",)


def test_values_of_a_launch_and_memory_of_others_are_not_judged() -> None:
    module = hg.Module(kernel("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;"))
    g = hg.Graph("demo")
    n, p = g.param("n", "int32"), g.param("p", "int32", shape=4)
    x, e = g.device_array("x", shape=4, dtype="int32"), g.external_array("e", np.zeros(4, "int32"))
    blocks, none = g.param("blocks", "int32"), g.param("none", "int32", 0)
    g.kernel(module["k"], none, 128, (x, 128), name="no blocks")
    g.kernel(module["k"], 1, none, (x, 128), name="no threads")
    g.kernel(module["k"], 1, 128, (x, n), name="n")
    g.kernel(module["k"], 1, 128, (e, 128), name="external")
    g.kernel(module["k"], 1, 128, (p, 128), name="parameter")
    g.kernel(module["k"], blocks, 128, (x, 128), name="grid")
    assert not g.check().errors


def test_child_graphs_are_judged_in_the_memory_that_they_are_bound_to() -> None:
    module = hg.Module(kernel("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;"))
    child = hg.Graph("child")
    v, n = child.device_array("v", shape=N, dtype="int32"), child.param("n", "int32", 0)
    child.kernel(module["k"], 1, 128, (v, n), name="k")
    g = hg.Graph("demo")
    x = g.device_array("x", shape=(3, N), dtype="int32")
    for row in range(3):
        g.child(child, bind={"v": x[row], "n": N + 1}, name=f"row_{row}")
    g.child(child, bind={"v": x[2], "n": N}, name="right")
    assert [d.nodes for d in g.check().errors if d.code == "HG409"] == [("row_2/k",)]


def test_ignored_with_a_reason() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.ones(N, "int32"))
    module = hg.Module(kernel("int* x", f"{INDEX} x[i] = 1;"))
    g.kernel(module["k"], 1, 128, (x,), ignore={"HG409": "on purpose"})
    report = g.check()
    assert not report.errors
    assert [reason for _, reason in report.ignored] == ["on purpose"]


def test_different_launches_are_looked_at_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipgraphdsl.parts.bounds.bounds._MOST_STEPS", 200)
    module = hg.Module(kernel("int* x, int n", f"{INDEX} if (i < n) x[i] = 1;"))
    g = hg.Graph("demo")
    x = g.device_array("x", shape=N, dtype="int32")
    for n in range(N + 1, N + 50):
        g.kernel(module["k"], 2, 128, (x, n))
    assert 10 < len(g.check().errors) < 49


def test_bodies_of_files_are_read_in_little_time() -> None:
    for body in ("a<" * 90_000, "x[0] = " + "(" * 50_000, "{" * 50_000, "x[0] = 0" + "+ 1" * 60_000 + ";", "if (1) " * 25_000):
        closing = "}" * body.count("{") if "{" in body else ")" * body.count("(") if "((" in body else ""
        begun = time.process_time()  # which other processes do not lengthen
        assert not found(kernel("int* x", body + closing), "x")
        assert time.process_time() - begun < 30


def test_deep_expressions_are_passed_over() -> None:
    long = "x[0] = 0" + " + 1" * 2000 + "; x[500] = 1;"
    assert len(found(kernel("int* x", long), "x")) <= 1


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y[i] = x[i];", True),
        ("y[i] = x ? x[i] : 0;", False),
        ("if (x == nullptr) { return; } y[i] = x[i];", False),
        ("bool given = x; if (given) y[i] = x[i];", False),
        ("const float* p = x + i; if (x) y[i] = *p;", False),
    ],
)
def test_a_null_pointer_has_no_element_unless_a_condition_guards_the_access(body: str, found: bool) -> None:
    module = hg.Module(f"__global__ void k(const float* x, float* y) {{ int i = threadIdx.x; {body} }}")
    g = hg.Graph("null")
    g.kernel(module["k"], 1, 64, (None, g.device_array("y", np.zeros(64, "float32"))), name="k")
    errors = g.check().errors
    assert [error.code for error in errors] == ["HG409"] * found
    assert not found or "thread 0 of block 0 reads x[0] (kernel 'k', line 1): 'x' is None" in errors[0].message
