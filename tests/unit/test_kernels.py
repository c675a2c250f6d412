"""Signatures, arguments, modules: what is read from HIP C++ source without compiling it."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hipgraphdsl.document.reader import module_of
from hipgraphdsl.document.writer import module_data
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.kernels import ArgumentPacker, Kernel, KernelParameter, Module, Signature, check_argument
from hipgraphdsl.source import Budget, Scope, tokenize

SCALE = 'extern "C" __global__ void scale(float* x, float a, size_t n) { x[0] = a; }\n'


def signature_of(parameters: str, before: str = "", **options: Any) -> Signature:
    found = Module(f"{before}\n__global__ void k({parameters}) {{}}", **options)["k"].signature
    assert found is not None
    return found


def parameter_of(text: str, before: str = "", **options: Any) -> KernelParameter:
    (only,) = signature_of(text, before, **options).parameters
    return only


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "ctype", "pointer", "const", "dtype", "lanes"),
    [
        ("float* x", "x", "float*", True, False, "f4", 1),
        ("const float* x", "x", "const float*", True, True, "f4", 1),
        ("float const *x", "x", "const float*", True, True, "f4", 1),
        ("float* const x", "x", "float*", True, False, "f4", 1),
        ("const float* __restrict__ const x", "x", "const float*", True, True, "f4", 1),
        ("volatile int *__restrict x", "x", "int*", True, False, "i4", 1),
        ("double x[]", "x", "double*", True, False, "f8", 1),
        ("const double x[16]", "x", "const double*", True, True, "f8", 1),
        ("float (*x)[4]", "x", "float*", True, False, "f4", 1),
        ("int x", "x", "int", False, False, "i4", 1),
        ("const int x = 3", "x", "const int", False, False, "i4", 1),
        ("unsigned x", "x", "unsigned", False, False, "u4", 1),
        ("unsigned long long x", "x", "unsigned long long", False, False, "u8", 1),
        ("long long unsigned int x", "x", "long long unsigned int", False, False, "u8", 1),
        ("long int x", "x", "long int", False, False, "i8", 1),
        ("short x", "x", "short", False, False, "i2", 1),
        ("unsigned char* x", "x", "unsigned char*", True, False, "u1", 1),
        ("char x", "x", "char", False, False, "i1", 1),
        ("bool x", "x", "bool", False, False, "?", 1),
        ("size_t x", "x", "size_t", False, False, "u8", 1),
        ("std::size_t x", "x", "std::size_t", False, False, "u8", 1),
        ("::std::uint32_t const x", "x", "const ::std::uint32_t", False, False, "u4", 1),
        ("std::int64_t* x", "x", "std::int64_t*", True, False, "i8", 1),
        ("uint8_t* x", "x", "uint8_t*", True, False, "u1", 1),
        ("__half* x", "x", "__half*", True, False, "f2", 1),
        ("_Float16 x", "x", "_Float16", False, False, "f2", 1),
        ("float2 x", "x", "float2", False, False, "f4", 2),
        ("const float4* x", "x", "const float4*", True, True, "f4", 4),
        ("uchar4 x", "x", "uchar4", False, False, "u1", 4),
        ("dim3 x", "x", "dim3", False, False, "u4", 3),
        ("hipFloatComplex* x", "x", "hipFloatComplex*", True, False, "c8", 1),
        ("std::complex<double> x", "x", "std::complex<double>", False, False, "c16", 1),
        ("struct Point* x", "x", "Point*", True, False, None, 1),
        ("const void* x", "x", "const void*", True, True, None, 1),
        ("float*", "arg0", "float*", True, False, "f4", 1),
        ("[[maybe_unused]] float* x", "x", "float*", True, False, "f4", 1),
        ("float __attribute__((aligned(16)))* x", "x", "float*", True, False, "f4", 1),
    ],
)
def test_parameter_is_read(text: str, name: str, ctype: str, pointer: bool, const: bool, dtype: str | None, lanes: int) -> None:
    found = parameter_of(text)
    wanted = None if dtype is None else np.dtype(dtype)
    assert (found.name, found.ctype, found.pointer, found.const, found.dtype, found.lanes) == (
        name, ctype, pointer, const, wanted, lanes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ctype", "size", "align"),
    [("float*", 8, 8), ("float3", 12, 4), ("float4", 16, 16), ("float2", 8, 8), ("double2", 16, 16), ("uchar4", 4, 4),
     ("bool", 1, 1), ("__half", 2, 2), ("hipFloatComplex", 8, 8), ("long", 8, 8), ("dim3", 12, 4)],
)  # fmt: skip
def test_parameter_has_natural_layout(ctype: str, size: int, align: int) -> None:
    found = parameter_of(f"{ctype} x")
    assert (found.size, found.align) == (size, align)


@pytest.mark.parametrize(
    "before",
    [
        "typedef float real;",
        "typedef float *address, real, other;",
        "typedef float real, vector[4];",
        "typedef float vector[4], real;",
        "float typedef real;",
        "template<class T> using same = T; using real = same<same<float>>;",
        "namespace types { template<class T, int N = 4> using same = T; }\nusing real = types::same<float, 3>;",
        "using real = float;",
        "#define real float",
        "#define REAL float\ntypedef REAL real;",
        "namespace types { using real = float; }\nusing namespace types;",
        "#if 0\n#define real double\n#else\n#define real float\n#endif",
        "#ifdef __HIP_PLATFORM_AMD__\nusing real = float;\n#else\nusing real = double;\n#endif",
        "#if defined(WIDE) && WIDE > 1\ntypedef double real;\n#elif !defined WIDE\ntypedef float real;\n#endif",
    ],
)
def test_aliases_are_followed(before: str) -> None:
    found = parameter_of("const real* x", before)
    assert found.dtype == np.dtype("f4")
    assert found.const


@pytest.mark.parametrize("before", ["typedef const float* input;", "typedef const float value, *input;"])
def test_alias_of_a_pointer_keeps_its_const(before: str) -> None:
    found = parameter_of("input x", before)
    assert found.pointer
    assert found.const


@pytest.mark.parametrize(
    ("before", "said", "const"),
    [
        ("template<class T> using P = T*;", "P<float>", False),
        ("template<class T> using P = const T*;", "P<float>", True),
        ("template<class T> using P = T*;", "P<const float>", True),
        ("namespace a { template<class T = float> using P = T*; }\nusing namespace a;", "P<>", False),
    ],
)
def test_alias_templates_are_followed(before: str, said: str, const: bool) -> None:
    found = parameter_of(f"{said} x", before)
    assert found.pointer
    assert (found.const, found.dtype) == (const, np.dtype("f4"))
    assert str(Module(f"{before}\n__global__ void k({said} x) {{}}")["k"]).startswith(f"<Kernel k({'const ' * const}float* x)")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("template<class T> using P = P<T>*;", "type 'P<float>' stands for itself"),
        (
            "namespace a { template<class T> using P = T*; } namespace b { template<class T> using P = const T*; }",
            "'P' may be 'a::P' or 'b::P'; write it with its namespace",
        ),
        ("template<class T, class U> using P = T*;", "type 'P<float>' has no argument for .class U."),
        ("#ifdef __CUDACC__\ntemplate<class T> using P = T*;\n#endif", "which only the compiler knows"),
    ],
)
def test_alias_templates_that_have_no_meaning_are_refused(before: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        parameter_of("P<float> x", before)


@pytest.mark.parametrize("before", ["typedef struct { int a; } S, *P;", "typedef struct S { int a; } *P;"])
def test_typedef_of_a_struct_names_pointers_to_it(before: str) -> None:
    assert parameter_of("P x", before).ctype == "S*"


def test_each_name_of_a_declaration_has_its_own_pointers() -> None:
    kernel = Module("typedef float* P;\n__global__ void k() { __shared__ P a, b; __shared__ float *c, d; }")["k"]
    assert kernel.static_shared_bytes == 8 + 8 + 8 + 4
    assert Module("typedef float* P;\n__global__ void k() { __shared__ P a, b; }")["k"].static_shared_bytes == 16


def test_constants_that_need_too_many_others_are_refused() -> None:
    constants = "".join(f"const int n{k + 1} = n{k} + 1;\n" for k in range(1000))
    module = Module(f"const int n0 = 1;\n{constants}__device__ int near[n9], far[n999];")
    assert module.symbol("near").shape == (10,)
    with pytest.raises(DeclarationError, match=r"variable 'far' of .*: it is nested too deeply"):
        module.symbol("far")


def test_default_of_a_template_may_compare() -> None:
    source = "template<int B = 1 < 2, class T = float> __global__ void k(T* x) { __shared__ float s[B + 1]; }"
    assert Module(source)["k<>"].static_shared_bytes == 8
    source = "template<int A, bool B = A < 2, class T = float> __global__ void k(T* x) { __shared__ float s[B ? 2 : 4]; }"
    assert [Module(source)[f"k<{a}>"].static_shared_bytes for a in (1, 2)] == [8, 16]
    source = "template<template<class> class C, class V = C<int>> struct S {};\n__global__ void k(float* x) {}"
    assert list(Module(source)) == ["k"]


def test_variables_are_initialised_in_parentheses() -> None:
    module = Module("const int n(2 + 1); __device__ float a(-3.5f), b[n]; __device__ int c(n); __device__ int f(int);")
    assert set(module.symbols) == {"a", "b", "c"}
    assert [module.symbol(name).shape for name in module.symbols] == [(), (3,), ()]


NAMESPACES = """
constexpr int N = 2;
namespace a { using P = float*; typedef P Q; constexpr int N = 4, M = N; __device__ float v[N];
__global__ void k(P p, Q q) { __shared__ int s[N + M]; } }
namespace b { using P = const float*; typedef P Q; constexpr int N = 8; namespace c { __device__ float v[N]; }
__global__ void k(P p, Q q) { __shared__ int s[N]; }
__global__ void other(a::P p, ::a::Q q) { __shared__ int s[a::N]; } }
__device__ float v[N], w[a::N][b::N];
__global__ void far(b::P p, a::P q) { __shared__ int s[N]; }
"""


@pytest.mark.parametrize(
    ("kernel", "const", "nbytes"),
    [("a::k", [False, False], 32), ("b::k", [True, True], 32), ("b::other", [False, False], 16), ("far", [True, False], 8)],
)
def test_names_of_namespaces_mean_what_they_mean_in_cpp(kernel: str, const: list[bool], nbytes: int) -> None:
    found = Module(NAMESPACES)[kernel]
    assert found.signature is not None
    assert [parameter.const for parameter in found.signature.parameters] == const
    assert found.static_shared_bytes == nbytes


@pytest.mark.parametrize(("name", "shape"), [("a::v", (4,)), ("b::c::v", (8,)), ("v", (2,)), ("w", (4, 8))])
def test_constants_of_namespaces_mean_what_they_mean_in_cpp(name: str, shape: tuple[int, ...]) -> None:
    assert Module(NAMESPACES).symbol(name).shape == shape


def test_name_of_several_namespaces_asks_for_one() -> None:
    module = Module(
        "namespace a { using P = float*; } namespace b { using P = const float*; } using namespace a;\n__global__ void k(P p) { }"
    )
    with pytest.raises(DeclarationError, match="parameter 'p': 'P' may be 'a::P' or 'b::P'; write it with its namespace"):
        module["k"]


@pytest.mark.parametrize(
    "before",
    [
        "namespace a { inline namespace v1 { using P = const float*; } } namespace b { using P = const float*; }",
        "namespace a { namespace b { using P = const float*; } } using a::b::P;",
    ],
)
def test_name_of_a_namespace_is_found_where_using_brings_it(before: str) -> None:
    signature = Module(f"{before}\n__global__ void k(P p) {{ }}")["k"].signature
    assert signature is not None
    assert signature.parameters[0].const


@pytest.mark.parametrize("name", ["S::N", "R::N", "unknown::N", "S::T::N"])
def test_constant_of_a_struct_is_no_constant_of_a_namespace(name: str) -> None:
    structs = "struct S { static constexpr int N = 8; struct T { enum { N = 9 }; }; }; using R = S;"
    module = Module(f"constexpr int N = 4; {structs}\n__device__ float v[{name}];")
    with pytest.raises(DeclarationError, match=f"'{name}' has no known value"):
        module.symbol("v")


def test_template_parameter_hides_names_of_the_source() -> None:
    source = "using T = const float; using Q = T; constexpr int N = 4;\n"
    source += "template <class T, int N, class U = const T> __global__ void k(T* p, Q* q, U* u) { __shared__ int s[N]; }"
    found = Module(source)["k<int, 2>"]
    assert found.signature is not None
    assert [parameter.const for parameter in found.signature.parameters] == [False, True, True]
    assert found.static_shared_bytes == 8
    assert "k<T, 2>(const T* p, " in repr(Module(source)["k<T, 2>"])
    assert Module(source)["k<int, unknown>"].static_shared_bytes is None


def test_options_define_macros() -> None:
    source = "#ifdef WIDE\nusing real = double;\n#else\nusing real = float;\n#endif"
    assert parameter_of("real x", source, options=["-DWIDE"]).dtype == np.dtype("f8")
    assert parameter_of("real x", options=["-Dreal=short"]).dtype == np.dtype("i2")


def test_bfloat16_needs_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert parameter_of("__hip_bfloat16* x").dtype == np.dtype(ml_dtypes.bfloat16)
    pair = parameter_of("__hip_bfloat162 x")
    assert (pair.dtype, pair.lanes, pair.size, pair.align) == (np.dtype(ml_dtypes.bfloat16), 2, 4, 4)
    assert check_argument(pair, (1.5, -2), "node 'k'") == np.array([1.5, -2], ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("float& x", "reference"),
        ("float**& x", "float**& is a reference"),
        ("Unknown x", "type 'Unknown' is not known"),
        ("Unknown* x", "type 'Unknown' is not known"),
        ("Point x", "struct Point is passed by value"),
        ("Mode x", "enum Mode"),
        ("void (*x)(int)", "pointers to functions"),
        ("long double x", "long double"),
        ("float float x y", "'y' is not understood"),
    ],
)
def test_parameter_that_is_refused_names_kernel_and_parameter(text: str, said: str) -> None:
    module = Module(f"struct Point {{ float x; }}; enum Mode {{ A }};\n__global__ void k({text}) {{}}")
    with pytest.raises(DeclarationError) as caught:
        module["k"]
    message = str(caught.value)
    assert said in message
    assert "kernel 'k'" in message
    assert "x" in message
    assert caught.value.array == "k"


def test_struct_by_value_takes_its_layout() -> None:
    dtype = np.dtype([("a", "f4"), ("n", "i8")], align=True)
    found = parameter_of("Params p", "struct Params { float a; long n; };", structs={"Params": dtype})
    assert (found.dtype, found.size, found.align) == (dtype, 16, 8)
    pointer = parameter_of("const Params* p", structs={"Params": dtype})
    assert (pointer.dtype, pointer.pointer, pointer.const) == (dtype, True, True)


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        'extern "C" __global__ void scale(float* x, float a, size_t n) { }',
        'extern "C" {\n__global__ void scale(float* x, float a, size_t n) { }\n}',
        "static __global__ void scale(float* x, float a, size_t n) { }",
        "void __global__ scale(float* x, float a, size_t n) { }",
        "__global__ __launch_bounds__(256, 2) void scale(float* x, float a, size_t n) { }",
        "__global__ void __launch_bounds__(256) scale(float* x, float a, size_t n) { }",
        "__global__ __cluster_dims__(2, 1, 1) void scale(float* x, float a, size_t n) { }",
        "__global__ void __block_size__((256, 1, 1)) scale(float* x, float a, size_t n) { }",
        "__global__ void __launch_bounds__(256) __maxnreg__(32) scale(float* x, float a, size_t n) { }",
        "__global__ FROM_A_HEADER(256) void scale(float* x, float a, size_t n) { }",
        "__global__ void FROM_A_HEADER(256) scale(float* x, float a, size_t n) { }",
        "__global__ void scale(float* x, float a, size_t n) FROM_A_HEADER { }",
        "__global__ void scale(float* x, float a, size_t n) FROM_A_HEADER(256) { }",
        "__device__ int early(int i) FROM_A_HEADER;\n" + SCALE,
        "__attribute__((noinline)) __global__ void scale(float* x, float a, size_t n) { }",
        "[[nodiscard]] __global__ void scale(float* x, float a, size_t n) { }",
        "__global__ void scale(float* x, float a, size_t n);\n__global__ void scale(float* y, float b, size_t m) { }",
        "__global__\nvoid\nscale(\n  float* x, // first\n  float a, /* second,\n more */\n  size_t n)\n{ }",
        "__global__ void sc\\\nale(float* x, float a, size_t n) { }".replace("sc\\\nale", "scale \\\n"),
        "#define KERNEL(name, T) __global__ void name(T* x, T a, size_t n) { }\nKERNEL(scale, float)",
        '_Pragma("clang diagnostic ignored \\"-Wall\\"")\n' + SCALE,
        "#define K(name) name##ale\n__global__ void K(sc)(float* x, float a, size_t n) { }",
        "int helper(int (*f)(int)) { return f(1); }\n__global__ void scale(float* x, float a, size_t n) { }",
        'const char* text = "__global__ void no(int)"; // __global__ void neither(int);\n' + SCALE,
        "template <typename T> struct Box { T value; __device__ T get() { return value; } };\n" + SCALE,
        "template <typename T> __device__ T twice(T x) { return x + x; }\n" + SCALE,
        "struct { int a; } const table[2] = {{1}, {2}};\n" + SCALE,
        "__device__ float4 operator+(float4 a, float4 b) { return a; }\n" + SCALE,
        'enum class Kind : int { A = 1, B };\nstatic_assert(sizeof(int) == 4, "int");\n' + SCALE,
    ],
)
def test_kernel_is_found(source: str) -> None:
    module = Module(source)
    assert module.kernels == ("scale",)
    kernel = module["scale"]
    assert kernel.signature is not None
    assert [p.ctype for p in kernel.signature.parameters] == ["float*", "float", "size_t"]


def test_kernels_stand_in_order_of_the_source() -> None:
    module = Module("__global__ void b() {}\n__global__ void a(void) {}\nnamespace n { __global__ void c(int) {} }")
    assert module.kernels == ("b", "a", "n::c")
    assert module["a"].signature == Signature("a", ())
    assert module["c"].name == "n::c"
    assert list(module) == ["b", "a", "n::c"]
    assert "a" in module


def test_unknown_kernel_names_those_that_exist() -> None:
    with pytest.raises(DeclarationError, match=r"has no kernel 'scal'; its kernels are 'scale'"):
        Module(SCALE, name="m")["scal"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("int x;", "no __global__ function"),
        ("__global__ void k(float* x) { if (x) {", "line 1: '{' is not closed"),
        ("\n\n/* open", "line 3: unterminated comment"),
        ('\nconst char* s = "open;\n', "line 2: unterminated string"),
    ],
)
def test_source_that_cannot_be_read_names_the_line(source: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Module(source)
    assert said in str(caught.value)


def test_one_kernel_that_is_not_understood_leaves_the_others() -> None:
    module = Module("__global__ int bad() { return 0; }\n" + SCALE)
    assert module["scale"].name == "scale"
    with pytest.raises(DeclarationError, match="a kernel returns void"):
        module["bad"]


@pytest.mark.parametrize("declared", ["", "__global__ void k(real* x);"])
@pytest.mark.parametrize(
    ("opened", "closed", "defined"),
    [
        ("namespace a { typedef double real;", "}", "__global__ void a::k(real* x) {}"),
        ("namespace a { typedef double real;", "}", "__global__ void ::a::k(real* x) {}"),
        ("namespace a { namespace b { typedef double real;", "} }", "namespace a { __global__ void b::k(real* x) {} }"),
        ("namespace a { typedef double real;", "}", "template <class T> __global__ void a::k(T* y, real* x) {}"),
    ],
)
def test_kernel_that_is_defined_by_its_qualified_name_is_found(opened: str, declared: str, closed: str, defined: str) -> None:
    module = Module(f"typedef float real;\n{opened} {'' if 'template' in defined else declared} {closed}\n{defined}")
    (name,) = module.kernels
    kernel = module[f"{name}<int>" if "template" in defined else name]
    assert name == ("a::b::k" if "b::k" in defined else "a::k")
    assert kernel.signature is not None
    assert kernel.signature.parameters[-1].dtype == np.float64  # its names mean what they do in that namespace


OVERLOADS = """
namespace a {
struct V { int x; };
typedef float real;
__global__ void k(int* x) {}
__global__ void k(const real* y, V* v) {}
template <class T> __global__ void k(T* x, T n) {}
}
__global__ void t(Tensor<float, 1> x) {}
__global__ void t(Tensor<float, 1> x, outer::Tensor<const int*> y) {}
__global__ void k(unsigned x, int n);
__global__ void k(unsigned int y, int m) {}
"""


def test_overloads_are_asked_for_by_their_parameters() -> None:
    with pytest.raises(
        DeclarationError, match=r"3 kernels 'a::k'; .*: 'a::k\(int\*\)', 'a::k\(const a::real\*, a::V\*\)', 'a::k<T>\(T\*, T\)'"
    ):
        Module(OVERLOADS)["a::k"]
    with pytest.raises(DeclarationError, match=r"no kernel 'a::k\(double\*\)'; ask for one by its whole name: 'a::k\(int\*\)'"):
        Module(OVERLOADS)["a::k(double*)"]


def test_overloads_of_types_that_are_not_known_are_told_apart() -> None:
    module = Module(OVERLOADS)
    for name in ("t(Tensor<float, 1>)", "t(Tensor<float, 1>, outer::Tensor<const int*>)"):
        with pytest.raises(DeclarationError, match="parameter 'x': type 'Tensor<float, 1>' is not known"):
            module[name]


@pytest.mark.parametrize(
    ("asked", "name", "parameters"),
    [
        ("a::k(int*)", "a::k(int*)", ["int* x"]),
        ("a::k( int * )", "a::k(int*)", ["int* x"]),
        ("a::k(real const*, V*)", "a::k(const a::real*, a::V*)", ["const real* y", "V* v"]),
        ("a::k(const float*, a::V*)", "a::k(const a::real*, a::V*)", ["const real* y", "V* v"]),
        ("a::k<int>", "a::k<int>(int*, int)", ["T* x", "T n"]),
        ("a::k<double>(double*, double)", "a::k<double>(double*, double)", ["T* x", "T n"]),
        ("::k", "k", ["unsigned int y", "int m"]),  # declared twice, and no overload
    ],
)
def test_overload_is_found_however_its_types_are_spelled(asked: str, name: str, parameters: list[str]) -> None:
    module = Module(OVERLOADS)
    kernel = module[asked]
    assert kernel.name == name
    assert module[name] is kernel
    assert kernel.signature is not None
    assert [str(parameter) for parameter in kernel.signature.parameters] == parameters
    assert str(kernel.signature) == f"{name.partition('(')[0]}({', '.join(parameters)})"


CLASSES = """
struct R {
    typedef double num;
    enum { N = 4 };
    friend __global__ void free_one(int* x);
private:
    int size() { static int calls; return ++calls; }
public:
    __global__ static void k(num* x) { __shared__ float b[N]; b[0] = 1; }
    __global__ void member(int* x) {}
};
template <class T, int M = 2> class S {
public:
    static __global__ void k(T* x) { __shared__ T b[M]; }
    template <class U> static __global__ void j(T* x, U u) {}
};
__global__ void free_one(int* x) {}
"""


@pytest.mark.parametrize(
    ("asked", "name", "dtypes", "shared"),
    [
        ("R::k", "R::k", ["f8"], 16),
        ("S<short>::k", "S<short>::k", ["i2"], 4),
        ("S<short, 3>::k", "S<short, 3>::k", ["i2"], 6),
        ("S<short>::j<double>", "S<short>::j<double>", ["i2", "f8"], 0),
        ("free_one", "free_one", ["i4"], 0),
    ],
)
def test_static_kernels_of_classes_are_found(asked: str, name: str, dtypes: list[str], shared: int) -> None:
    module = Module(CLASSES)
    assert module.kernels == ("R::k", "R::member", "S::k", "S::j", "free_one")
    kernel = module[asked]
    assert (kernel.name, kernel.static_shared_bytes) == (name, shared)
    assert kernel.signature is not None
    assert [parameter.dtype for parameter in kernel.signature.parameters] == [np.dtype(dtype) for dtype in dtypes]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("R::member", "it is a member function that is not static"),
        ("S::k", r"is a template of \(class T, int M\); ask for module\['S<T, M>::k'\]"),
        ("R<int>::k", "is no template; ask for module\\['R::k'\\]"),
        ("S<int>::k<int>", "is no template|only behind"),
        ("R::k(", "'\\(' is not closed"),
    ],
)
def test_static_kernels_of_classes_are_asked_for_as_in_cpp(asked: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Module(CLASSES)[asked]


@pytest.mark.parametrize(
    ("text", "ctype", "const"),
    [
        ("float** x", "float**", False),
        ("float* x[]", "float**", False),
        ("const float** x", "const float**", False),
        ("const float* const* x", "const float* const*", True),
        ("float* const* const x", "float* const*", True),
        ("const Pointer* x", "float* const*", True),
        ("Pointer* x", "float**", False),
        ("float* const* const* x", "float* const* const*", True),
        ("float* const** x", "float* const**", False),
    ],
)
def test_pointer_to_pointers_takes_a_table_of_addresses(text: str, ctype: str, const: bool) -> None:
    found = parameter_of(text, "typedef float* Pointer;")
    assert (found.ctype, found.pointer, found.const, found.dtype) == (ctype, True, const, np.dtype("u8"))


@pytest.mark.parametrize(("tuples", "bounds"), [("(8, 4, 2)", 64), ("256", 256)])
def test_block_size_bounds_the_threads_and_is_refused_with_a_cluster(tuples: str, bounds: int) -> None:
    assert Module(f"__global__ void __block_size__({tuples}) k(int* x) {{}}")["k"].launch_bounds == bounds
    with pytest.raises(DeclarationError, match=r"__block_size__\(.*\) makes its grid count clusters"):
        Module(f"__global__ void __block_size__({tuples}, (2, 1, 1)) k(int* x) {{}}")["k"]


def test_launch_bounds_and_shared_bytes_are_read() -> None:
    module = Module(
        """
        #define TILE 16
        constexpr int PAD = 1;
        __global__ __launch_bounds__(TILE * TILE) void k(float* x) {
            const int extra = PAD + 1;
            __shared__ float a[TILE][TILE + PAD], b;
            __shared__ double c[extra];
            extern __shared__ char rest[];
        }
        __global__ void plain(float* x) {}
        __global__ void odd(float* x) { __shared__ Unknown u; }
        """
    )
    assert module["k"].launch_bounds == 256
    # 16 * 17 floats and one more, 4 bytes of padding, 2 doubles
    assert module["k"].static_shared_bytes == 16 * 17 * 4 + 4 + 4 + 16
    assert module["plain"].launch_bounds is None
    assert module["plain"].static_shared_bytes == 0
    assert module["odd"].static_shared_bytes is None


# -- templates ---------------------------------------------------------------------------------------------------------

TEMPLATE = """
template <typename T, int N = 4>
__global__ void scale(T* x, const T (&no)[N]) {}
template <class T, unsigned N = 2 * 4> __global__ __launch_bounds__(N * 32)
void fill(T* x, T value) { __shared__ T s[N]; }
template <> __global__ void fill<bool>(bool* x, bool value) {}
template <typename... Ts> __global__ void many(Ts... values) {}
"""


def test_template_is_instantiated() -> None:
    module = Module(TEMPLATE)
    kernel = module["fill<unsigned  char,2>"]
    assert kernel.name == "fill<unsigned char, 2>"
    assert kernel.signature is not None
    assert [p.dtype for p in kernel.signature.parameters] == [np.dtype("u1"), np.dtype("u1")]
    assert (kernel.launch_bounds, kernel.static_shared_bytes) == (64, 2)
    assert module["fill<float>"].launch_bounds == 256
    assert module["fill<unsigned char, 2>"] is kernel


def test_template_specialisation_is_found() -> None:
    assert Module(TEMPLATE)["fill<bool>"].name == "fill<bool>"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fill", r"is a template of \(class T, unsigned N\); ask for module\['fill<...>'\]"),
        ("fill<float, 1, 2>", "got 3 arguments"),
        ("fill<Unknown>", "type 'Unknown' is not known"),
        ("fill<float", "'<' is not closed"),
        ("many<int>", "parameter pack"),
        ("scale<float>", "reference"),
    ],
)
def test_template_that_is_refused_says_why(name: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Module(TEMPLATE)[name]


def test_plain_kernel_takes_no_template_arguments() -> None:
    with pytest.raises(DeclarationError, match="is no template"):
        Module(SCALE)["scale<float>"]


# -- variables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name", "dtype", "shape", "constant"),
    [
        ("__constant__ float table[16];", "table", "f4", (16,), True),
        ("static __device__ int counter = 0;", "counter", "i4", (), False),
        ("const int N = 3;\n__device__ double m[N][2 * N];", "m", "f8", (3, 6), False),
        ("__constant__ short t[] = {1, 2, 3};", "t", "i2", (3,), True),
        ("__device__ float4 v[2];", "v", "f4", (2, 4), False),
        ("__device__ int a, b[4];", "b", "i4", (4,), False),
        ("enum { A, B, COUNT };\n__managed__ long c[COUNT];", "c", "i8", (2,), False),
        ("namespace n { __constant__ const unsigned u[1 << 4] = {}; }", "n::u", "u4", (16,), True),
        ("__device__ float* where;", "where", "u8", (), False),
        ("__device__ float halo[(4 + 1) * 2];", "halo", "f4", (10,), False),
    ],
)
def test_variable_is_read(source: str, name: str, dtype: str, shape: tuple[int, ...], constant: bool) -> None:
    module = Module(source)
    symbol = module.symbol(name)
    assert name in module.symbols
    assert (symbol.dtype, symbol.shape, symbol.constant) == (np.dtype(dtype), shape, constant)
    assert symbol.nbytes == np.dtype(dtype).itemsize * int(np.prod(shape))
    assert symbol.module is module
    assert symbol == module.symbol(name)


def test_unknown_variable_names_those_that_exist() -> None:
    with pytest.raises(DeclarationError, match="no variable 'tabel'; its variables are 'table'"):
        Module("__constant__ float table[16];").symbol("tabel")


def test_variable_without_layout_says_how_to_give_it() -> None:
    source = "struct P { float x; };\n__constant__ P points[4];"
    with pytest.raises(DeclarationError, match="structs="):
        Module(source).symbol("points")
    dtype = np.dtype([("x", "f4")])
    assert Module(source, structs={"P": dtype}).symbol("points").nbytes == 16
    with pytest.raises(DeclarationError, match=r"line 1: it is of an unnamed struct, .* give the struct a name in the source"):
        Module("__constant__ struct { int a; } points;").symbol("points")


# -- layout and packing ------------------------------------------------------------------------------------------------


def test_layout_is_that_of_c() -> None:
    found = signature_of("float* x, bool b, float a, char c, double d, short s, float4 v, char e, float3 w")

    class Layout(ctypes.Structure):
        _fields_ = [
            ("x", ctypes.c_void_p), ("b", ctypes.c_bool), ("a", ctypes.c_float), ("c", ctypes.c_char),
            ("d", ctypes.c_double), ("s", ctypes.c_short),
        ]  # fmt: skip

    wanted = tuple(getattr(Layout, name).offset for name, _ in Layout._fields_)  # type: ignore[misc]
    assert found.offsets[:6] == wanted
    assert found.offsets[6:] == (48, 64, 68)
    assert found.nbytes == 80
    assert struct.calcsize(found.format) == 80


def test_packed_arguments_are_what_the_table_points_at() -> None:
    found = signature_of("float* x, float a, int n, __half h, float4 v, bool b, hipDoubleComplex z")
    packer = ArgumentPacker(found)
    given: list[Any] = [2.5, -3, 0.5, (1, 2, 3, 4), True, 1 + 2j]
    checked = [check_argument(parameter, value, "node 'k'") for parameter, value in zip(found.parameters[1:], given, strict=True)]
    packed = packer.pack([0xDEADBEEF, *checked])
    assert packer.unpack(packed) == (0xDEADBEEF, *checked)
    address = packer.place(packed)
    assert address == packer.address
    table = (ctypes.c_void_p * 7).from_address(address)

    def value_of(n: int, dtype: str, count: int = 1) -> Any:
        return np.frombuffer(ctypes.string_at(table[n] or 0, np.dtype(dtype).itemsize * count), dtype)

    assert value_of(0, "u8") == 0xDEADBEEF
    assert value_of(1, "f4") == 2.5
    assert value_of(2, "i4") == -3
    assert value_of(3, "f2") == 0.5
    assert value_of(4, "f4", 4).tolist() == [1, 2, 3, 4]
    assert value_of(5, "?")
    assert value_of(6, "c16") == 1 + 2j
    assert all((table[n] or 0) % parameter.align == 0 for n, parameter in enumerate(found.parameters))


def test_packing_again_writes_the_same_memory() -> None:
    packer = ArgumentPacker(signature_of("int n"))
    first = packer.place(packer.pack([1]))
    assert packer.place(packer.pack([2])) == first
    assert ctypes.c_int.from_address((ctypes.c_void_p * 1).from_address(first)[0] or 0).value == 2


def test_kernel_without_parameters_packs_nothing() -> None:
    packer = ArgumentPacker(signature_of(""))
    assert packer.pack([]) == b""
    assert packer.place(b"") != 0


@pytest.mark.parametrize(
    ("ctype", "value", "wanted"),
    [
        ("int", 3, 3),
        ("int", np.int64(-5), -5),
        ("unsigned char", 255, 255),
        ("int", np.array(4), 4),
        ("float", 0.5, 0.5),
        ("float", 2, 2.0),
        ("float", 0.1, float(np.float32(0.1))),
        ("double", np.float32(0.5), 0.5),
        ("float", float("inf"), float("inf")),
        ("bool", np.True_, True),
        ("float*", None, 0),
        ("hipFloatComplex", 1 + 2j, np.complex64(1 + 2j).tobytes()),
        ("int2", [1, 2], np.array([1, 2], "i4").tobytes()),
        ("float3", np.array([1, 2, 3]), np.array([1, 2, 3], "f4").tobytes()),
    ],
)
def test_value_is_taken(ctype: str, value: object, wanted: object) -> None:
    found = check_argument(parameter_of(f"{ctype} x"), value, "node 'k'")
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("ctype", "value", "said"),
    [
        ("int", 0.5, "takes an int (got 0.5 of type float); convert it with int()"),
        ("int", True, "takes an int (got True of type bool); convert it with int()"),
        ("int", 2**31, "an int from -2147483648 to 2147483647 (got 2147483648"),
        ("size_t", -1, "an int from 0 to 18446744073709551615"),
        ("int", "3", "takes an int"),
        ("float", 1e300, "a number that float32 can hold"),
        ("double", 10**400, "a number that float64 can hold"),
        ("float", 1j, "takes a float"),
        ("float", True, "takes a float"),
        ("bool", 2, "True or False"),
        ("float*", 12345, "takes an array"),
        ("float4", (1, 2, 3), "takes 4 numbers"),
        ("int2", (1, 2.5), "takes an int"),
        ("hipComplex", "1", "a complex number"),
    ],
)
def test_value_of_another_kind_or_range_is_refused(ctype: str, value: object, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_argument(parameter_of(f"{ctype} x"), value, "node 'k'")
    assert said in str(caught.value)
    assert str(caught.value).startswith("node 'k': parameter")
    assert caught.value.array == "x"


def test_struct_values_are_taken_in_three_forms() -> None:
    dtype = np.dtype([("a", "f4"), ("n", "i8")], align=True)
    parameter = parameter_of("Params p", structs={"Params": dtype})
    wanted = np.array((0.5, 7), dtype)
    for value in (wanted[()], wanted, (0.5, 7), {"n": 7, "a": 0.5}):
        assert np.frombuffer(bytes(check_argument(parameter, value, "node 'k'")), dtype)[0] == wanted  # type: ignore[arg-type]
    for wrong in ((1,), 3, {"a": 1.0}, ("x", 1)):
        with pytest.raises(DeclarationError, match="Params p"):
            check_argument(parameter, wrong, "node 'k'")


def test_bfloat16_value_is_packed() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value = check_argument(parameter_of("__hip_bfloat16 x"), 1.5, "node 'k'")
    assert value == np.array(1.5, ml_dtypes.bfloat16).tobytes()


# -- modules -----------------------------------------------------------------------------------------------------------


def test_modules_of_the_same_source_are_equal() -> None:
    one, two, other = Module(SCALE), Module(SCALE, name="other"), Module(SCALE, options=["-DX"])
    assert one == two
    assert one.digest == two.digest
    assert one != other
    assert len({one["scale"], two["scale"], other["scale"]}) == 2
    assert one["scale"] is one["scale"]


def test_reference_is_carried_and_does_not_count() -> None:
    kernel = Module(SCALE)["scale"]

    def reference(x: Any, a: float, n: int) -> None:
        x[:] *= a

    with_reference = kernel.with_reference(reference)
    assert with_reference.reference is reference
    assert kernel.reference is None
    assert with_reference == kernel
    with pytest.raises(DeclarationError, match="a reference is a function"):
        kernel.with_reference(3)  # type: ignore[arg-type]


def test_module_survives_json() -> None:
    dtype = np.dtype([("a", "f4"), ("n", "i8"), ("v", "f4", (3,))], align=True)
    source = "struct P { float a; long n; float v[3]; };\n__global__ void k(P p) {}"
    module = Module(source, name="m", options=["-DX=1"], structs={"P": dtype})
    again = Module.from_dict(json.loads(json.dumps(module.to_dict())))
    assert again == module
    assert (again.name, again.options, again.structs) == ("m", ("-DX=1",), {"P": dtype})
    assert again["k"].signature == module["k"].signature


@pytest.mark.parametrize("data", [{}, {"name": "m"}, {"name": "m", "source": 3}, {"name": "m", "file": "x", "sha256": "y"},
                                  {"name": "m", "source": SCALE, "structs": {"P": {"names": ["a"]}}}])  # fmt: skip
def test_stored_module_that_is_damaged_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Module.from_dict(data)


def test_code_object_has_the_signatures_given(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"\x7fELF code")
    signatures = {"scale": "float*, float, size_t", "add": ["const float* x", "float*"]}
    module = Module.from_file(path, signatures=signatures)
    assert module.kernels == ("scale", "add")
    assert module.image == b"\x7fELF code"
    signature = module["add"].signature
    assert signature is not None
    assert [(p.name, p.const) for p in signature.parameters] == [("x", True), ("arg1", False)]
    assert module["other"].signature is None
    with pytest.raises(DeclarationError, match="does not tell the types of its variables"):
        module.symbol("table")
    again = Module.from_dict(json.loads(json.dumps(module.to_dict())))
    assert again == module
    assert again.image == module.image
    path.write_bytes(b"other")
    with pytest.raises(DeclarationError, match="is not the file"):
        _ = Module.from_dict(module.to_dict()).image


def test_code_object_in_a_file_keeps_structs_with_opaque_fields(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"\x7fELF code")
    layout = np.dtype([("handle", "V24"), ("n", "i8"), ("h", "f2", (3,)), ("c", "c16")], align=True)
    module = Module.from_file(path, signatures={"k": "P p"}, structs={"P": layout})
    again = module_of(json.loads(json.dumps(module_data(module, "k"))), "k", Budget())
    assert again == module
    assert again.structs == {"P": layout}


def test_signature_of_values_counts_pointers_as_updated() -> None:
    made = Signature.of_values("k", [None, np.dtype("f4"), np.dtype("i8")])
    assert [(p.pointer, p.const) for p in made.parameters] == [(True, False), (False, False), (False, False)]
    assert made.offsets == (0, 8, 16)


def test_source_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kernels.hip"
    path.write_text(SCALE)
    assert Module.from_file(path).kernels == ("scale",)
    with pytest.raises(DeclarationError, match="give none"):
        Module.from_file(path, signatures={"scale": "float*"})
    with pytest.raises(DeclarationError, match="cannot be read"):
        Module.from_file(tmp_path / "missing.hip")
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(DeclarationError, match="ending that is not known"):
        Module.from_file(tmp_path / "x.txt")


@pytest.mark.parametrize("ending", ["hsaco", "co", "ptx", "cubin", "fatbin", "so"])
def test_an_empty_code_object_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scale.{ending}"
    path.write_bytes(b"")
    with pytest.raises(DeclarationError, match=f"scale.{ending}' has 0 bytes"):
        Module.from_file(path, {"scale": "float*"})
    path.write_bytes(b"code")
    assert Module.from_file(path, {"scale": "float*"}).kernels == ("scale",)


@pytest.mark.parametrize("what", ["device", "pipe", "folder", "huge", "nul", "surrogate"])
def test_a_code_object_that_is_no_regular_file_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / what
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "huge":
        with path.open("wb") as file:
            file.truncate(2**30 + 1)
    place = {"device": "/dev/zero", "nul": "bad\0path", "surrogate": "bad\ud800"}.get(what, str(path))
    said = {"huge": "1073741825 bytes", "nul": "null", "surrogate": "surrogates"}.get(what, "it is no regular file")
    module = Module.from_dict({"name": "m", "file": place, "sha256": "0" * 64, "signatures": {"k": "float*"}})
    with pytest.raises(DeclarationError, match=f"cannot be read: .*{said}"):
        _ = module.image
    with pytest.raises(DeclarationError, match="cannot be read"):
        Module.from_file(place)


def test_repr_shows_the_signature() -> None:
    kernel: Kernel = Module(SCALE, name="m")["scale"]
    assert repr(kernel) == "<Kernel scale(float* x, float a, size_t n) of 'm'>"
    assert repr(kernel.module) == "<Module 'm': scale>"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("1 << 4 >> 2", 4), ("5 / 2 - -1", 3), ("1 ? 2 : 3", 2), ("0x1F & 0b11", 3),
     ("!0 && 2 > 1", 1), ("sizeof(float) * 4", 16), ("(int)3u + 010", 11), ("1'000ull % 7", 6)],
)  # fmt: skip
def test_constant_expression_is_evaluated(text: str, value: int) -> None:
    assert Scope({}).evaluate(tokenize(text)) == value


def test_macros_that_multiply_without_end_are_refused() -> None:
    doubled = "".join(f"#define A{n + 1} A{n} + A{n}\n" for n in range(40))
    with pytest.raises(DeclarationError, match=r"macro 'A.*' becomes more than 100000 tokens"):
        Module(f"#define A0 1\n{doubled}int x = A40; __global__ void k() {{}}")
    with pytest.raises(DeclarationError, match="becomes more than 100000 tokens"):
        Module(f"#define A0 1\n{doubled}#if A40\n#endif\n__global__ void k() {{}}")
    # In a body nobody needs what it becomes.
    assert list(Module(f"#define A0 1\n{doubled}__global__ void k(int* x) {{ x[0] = A40; }}")) == ["k"]


def test_branch_inside_of_one_that_is_not_read_is_not_read() -> None:
    module = Module("#if 0\n#if 1\n__global__ void a() {}\n#else\n__global__ void b() {}\n#endif\n#elif 1\n#if 0\n#else\n"
                    "__global__ void c() {}\n#endif\n#else\n#if 1\n__global__ void d() {}\n#endif\n#endif\n")  # fmt: skip
    assert list(module.kernels) == ["c"]


def test_files_and_texts_that_begin_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("\ufefftypedef float real;\n", encoding="utf-8")
    path = tmp_path / "k.hip"
    path.write_text('\ufeff#include "mine.h"\n__global__ void k(real* x) {}\n', encoding="utf-8")
    for module in (Module.from_file(path, options=[f"-I{tmp_path}"]), Module(path.read_text("utf-8"), options=[f"-I{tmp_path}"])):
        signature = module["k"].signature
        assert signature is not None
        assert signature.parameters[0].dtype == np.dtype("f4")
        assert module.source.startswith("#include")
