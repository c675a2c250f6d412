"""CPU kernels mean what the host's C++ compiler says: scopes, macros, conditionals, headers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from device.test_cpu_kernels import Library, compiler, i32, library, u32  # noqa: F401

from hipgraphdsl.compiler import Compiler
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.parts.cpu.rtc import compile_kernels

SUBTLE = r"""
#include <hip/hip_runtime.h>
namespace ns { __device__ int counter = 5; }
#define STEP 1
#define size_of(x) size_of(x)
__device__ int (size_of)(int x) { return x + 7; }
__global__ void shadowed(int* out, const int* x) {
  int i = blockIdx.x * blockDim.x; int idx = i + threadIdx.x;
  for (int i = 0; i < 3; ++i) { __syncthreads(); out[idx] += x[idx] + i; }
}
__global__ void behind_colons(int* out) {
  int n = ns::counter + threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) ns::counter += 100;
  __syncthreads();
  out[threadIdx.x] = n;
  if (threadIdx.x == 0) ns::counter = 5;
}
__global__ void mixed_signs(int* out) { int i = (int)threadIdx.x - 2; out[threadIdx.x] = (int)max((unsigned)i, 1u); }
__global__ void unsigned_bound(int* out, unsigned n) {
  for (int i = (int)threadIdx.x - 3; i < n; i += blockDim.x) out[i] = i + 1;
}
__global__ void redefined(int* out) {
  int v = STEP;
#undef STEP
#define STEP 10
  __syncthreads();
  out[threadIdx.x] = v + STEP + size_of(1);
}
#if -1 > 0u && __has_builtin(__builtin_popcount) && __CHAR_BIT__ == 8
__global__ void chosen(int* out) { out[threadIdx.x] = 1; }
#else
__global__ void chosen(int* out) { out[threadIdx.x] = 2; }
#endif
"""
NAMES = "shadowed; behind_colons; mixed_signs; unsigned_bound; redefined; chosen"


def test_names_numbers_and_macros_mean_what_they_mean_in_cpp(compiler: Compiler) -> None:  # noqa: F811
    made = library(compiler, SUBTLE, NAMES)
    t = np.arange(64, dtype=i32)

    def run(name: str, *more: object) -> list[int]:
        out = np.zeros(64, i32)
        made.run(name, 1, 64, out, *more)
        return out.tolist()

    assert run("shadowed", t) == [3 * k + 3 for k in range(64)]
    assert run("behind_colons") == [5 + k for k in range(64)]
    assert run("mixed_signs") == [-2, -1, 1, 1, *range(2, 62)]
    assert run("redefined") == [19] * 64
    assert run("chosen") == [1] * 64
    out = np.zeros(1003, i32)
    made.run("unsigned_bound", 1, 64, out[3:], u32(1000))
    assert out[:3].tolist() == [0, 0, 0]
    k = np.arange(1000)
    assert (out[3:] == np.where(k % 64 < 61, k + 1, 0)).all()  # threads 0 to 2 begin beyond the bound


VALID = {
    "vector": "#include <vector>\n__global__ void k(int* o) { o[0] = 1; }",
    "complex": "#include <complex>\n__global__ void k(int* o) { std::complex<float> z(0, 1); o[0] = (int)-(z * z).real(); }",
    "functional": "#include <functional>\n__global__ void k(int* o) { o[0] = std::plus<int>()(0, 1); }",
    "random": "#include <random>\n__global__ void k(int* o) { o[0] = 1; }",
    "no variable arguments": '#define LOG(f, ...) printf(f, ##__VA_ARGS__)\n__global__ void k(int* o) { LOG(""); o[0] = 1; }',
    "defined after its caller": "__device__ int h(int);\n__global__ void k(int* o) { o[threadIdx.x] = h(1); }\n"
    "__device__ int h(int v) { return v + threadIdx.x; }",
    "own saturate": "__device__ float saturate(float x) { return x; }\n__global__ void k(int* o) { o[0] = saturate(1); }",
    "own ulong": "typedef unsigned long long ulong;\n__global__ void k(int* o) { o[0] = sizeof(ulong) / 8; }",
    "attribute": 'extern "C" __global__ [[gnu::noinline]] void k(int* o) { o[0] = 1; }',
    "static member": "struct S { static __device__ int left; };\nint S::left = 1;\n__global__ void k(int* o) { o[0] = S::left; }",
    "member function": "struct S { int* o; __device__ void f() { o[threadIdx.x] = 1; } };\n"
    "__global__ void k(int* o) { S s{o}; s.f(); }",
    "noinline": "__device__ __noinline__ int f() { return 1; }\n__global__ void k(int* o) { o[0] = f(); }",
    "shared in a macro": "#define TILE(T, n) __shared__ T n[8]\n"
    "__global__ void k(int* o) { TILE(int, s); s[0] = 1; o[0] = s[0]; }",
    "digraphs": "namespace n <% struct B <% int v; %>; %> template <class T> struct A <% T t; %>;\n"
    "__global__ void k(int* o) <% __shared__ int s<:8:>; A<::n::B> a; a.t.v = 1; s<:0:> = a.t.v; o<:0:> = s<:0:>; %>",
    "digraphs and a barrier": "__global__ void k(int* o) <% __shared__ int s<:8:>;\n"
    "s<:0:> = 1; __syncthreads(); o<:0:> = s<:0:>; %>",
    "default that compares": "template <class T> using P = T*;\ntypedef int I, V[4];\n"
    "template <int A, bool B = A < 2> __device__ int f() { return B ? A : 7; }\n"
    "__global__ void k(I* o) { __shared__ V s; P<I> p = s; p[0] = f<1>(); __syncthreads(); o[0] = s[0]; }",
    "attribute of a statement": "__global__ void k(int* o) { int one = 1; [[maybe_unused]] int v = __shfl(one, 0); o[0] = v; }",
}
DYNAMIC = {
    "attribute before the type": "extern __shared__ __align__(16) int s[];",
    "attribute with brackets": "extern __shared__ __attribute__((aligned(sizeof(double) * (1 + 1)))) int s[];",
    "attribute behind": "extern __shared__ int s[] __attribute__((aligned(16)));",
    "extern behind": "__shared__ extern int s[];",
    "type between": "extern unsigned __shared__ int s[];",
    "volatile": "extern volatile __shared__ int s[];",
}


@pytest.mark.parametrize("what", VALID)
def test_valid_sources_run(compiler: Compiler, what: str) -> None:  # noqa: F811
    made = Library(compile_kernels(VALID[what], ["k"], name="m.hip", compiler=compiler).image)
    out = np.zeros(8, i32)
    made.run("k", 1, 1, out)
    assert out[0] == 1


@pytest.mark.parametrize("what", DYNAMIC)
@pytest.mark.parametrize("outside", [False, True])
def test_dynamic_shared_memory_may_be_declared_in_any_order(compiler: Compiler, what: str, outside: bool) -> None:  # noqa: F811
    before, inside = (DYNAMIC[what], "") if outside else ("", DYNAMIC[what])
    source = f"{before}\n__global__ void k(int* o) {{ {inside} s[threadIdx.x] = o[threadIdx.x]; __syncthreads();\n"
    source += "o[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }"
    made = Library(compile_kernels(source, ["k"], name="m.hip", compiler=compiler).image)
    out = np.arange(8, dtype=i32)
    made.run("k", 1, 8, out, shared_bytes=32)
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_several_arrays_in_one_declaration_of_dynamic_shared_memory_are_refused(compiler: Compiler) -> None:  # noqa: F811
    source = "__global__ void k(int* o) {\nextern __shared__ int s[], t[]; s[0] = o[0]; }"
    with pytest.raises(DeclarationError, match=r"m\.hip:2: .* one array from a declaration of dynamic shared memory"):
        compile_kernels(source, ["k"], name="m.hip", compiler=compiler)


@pytest.mark.parametrize("operator", ["==", "<=", "[]", "+"])
def test_warp_operation_in_an_operator_is_refused(compiler: Compiler, operator: str) -> None:  # noqa: F811
    source = f"struct S {{ int a; __device__ bool operator{operator}(int b) {{ return __any(a == b); }} }};\n"
    with pytest.raises(DeclarationError, match=f"m.hip:1: .* when 'operator{re.escape(operator)}' is called"):
        compile_kernels(f"{source}__global__ void k(int* o) {{ o[0] = 1; }}", ["k"], name="m.hip", compiler=compiler)


def test_a_kernel_may_be_called_like_a_function(compiler: Compiler) -> None:  # noqa: F811
    source = """#include <hip/hip_runtime.h>
    template <class T> __device__ T twice(T x) { return x + x; }
    __global__ void sin(float* y);
    __global__ void sin(float* y) { y[threadIdx.x] = sin(y[threadIdx.x]) + cos(0); }
    extern "C" __global__ [[gnu::noinline]] void max(float* y) { y[threadIdx.x] = max(y[threadIdx.x], 0.5f); }
    __global__ __launch_bounds__(64) void abs(float* y) { y[threadIdx.x] = abs(y[threadIdx.x]); }
    __global__ void twice(float* y) { y[threadIdx.x] = twice(y[threadIdx.x]); }
    template <class T> __global__ void scaled(T* y) { y[threadIdx.x] *= T(3); }
    __global__ void scaled(float* y) { y[threadIdx.x] *= 2; }
    namespace deep { namespace er { __global__ void min(float* y); } }
    __global__ void deep::er::min(float* y) { y[threadIdx.x] = ::min(y[threadIdx.x], 0.5f); }
    """
    made = library(compiler, source, "sin; max; abs; twice; scaled; scaled<float>; deep::er::min; er::min")
    x = np.linspace(-1, 1, 8, dtype="f4")
    wanted = {
        "sin": np.sin(x) + 1, "max": np.maximum(x, 0.5), "abs": np.abs(x), "twice": x + x, "scaled": 2 * x,
        "scaled<float>": 3 * x, "deep::er::min": np.minimum(x, 0.5), "er::min": np.minimum(x, 0.5),
    }  # fmt: skip
    for name, values in wanted.items():
        y = x.copy()
        made.run(name, 1, 8, y)
        np.testing.assert_allclose(y, values, rtol=1e-6, err_msg=name)
