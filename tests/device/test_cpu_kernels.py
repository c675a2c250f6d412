"""Kernels compiled for the CPU do what HIP says: each language feature against NumPy, by loading the library itself."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from hipgraphdsl.compiler import ABI_VERSION, Compiler, find_compiler, forget_compiler
from hipgraphdsl.errors import DeclarationError, RuntimeUnavailable
from hipgraphdsl.parts.cpu.rtc import IMAGE_PREFIX, compile_kernels
from hipgraphdsl.parts.cpu.runtime import runtime_library

# -- loading a library -------------------------------------------------------------------------------------------------


class Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32), ("cooperative", ctypes.c_uint32), ("worker", ctypes.c_void_p),
    ]  # fmt: skip


ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch), ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)


class KernelInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("entry", ENTRY), ("n_params", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32), ("params", ctypes.POINTER(ctypes.c_uint32 * 2)), ("direct", ctypes.c_void_p),
    ]  # fmt: skip


class SymbolInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class ModuleInfo(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32), ("n_kernels", ctypes.c_uint32), ("kernels", ctypes.POINTER(KernelInfo)),
        ("n_symbols", ctypes.c_uint32), ("symbols", ctypes.POINTER(SymbolInfo)),
    ]  # fmt: skip


def triple(value: int | Sequence[int]) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else tuple(value)
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z


@functools.cache
def worker_function() -> int:
    runtime = ctypes.CDLL(str(runtime_library()))
    runtime.hgcpuBlockWorker.restype = ctypes.c_void_p
    return int(runtime.hgcpuBlockWorker())


class Library:
    """A compiled module, called through its own table."""

    def __init__(self, image: bytes) -> None:
        assert image.startswith(IMAGE_PREFIX)
        assert image.endswith(b"\0")
        self.path = Path(image[len(IMAGE_PREFIX) : -1].decode())
        self.handle = ctypes.CDLL(str(self.path))
        self.handle.hgcpu_module.restype = ctypes.POINTER(ModuleInfo)
        info = self.handle.hgcpu_module().contents
        assert info.abi == ABI_VERSION
        self.kernels = {info.kernels[n].name.decode(): info.kernels[n] for n in range(info.n_kernels)}
        self.symbols = {info.symbols[n].name.decode(): info.symbols[n] for n in range(info.n_symbols)}

    def start(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared_bytes: int = 0,
        blocks: tuple[int, int] | None = None,
    ) -> int:
        """Run the blocks in the range, all by default; return the status. Arguments are arrays and NumPy scalars."""
        kernel = self.kernels[name]
        assert kernel.n_params == len(args)
        packed = [np.array(a.ctypes.data, "u8") if isinstance(a, np.ndarray) and a.ndim else np.array(a) for a in args]
        assert [a.nbytes for a in packed] == [kernel.params[n][1] for n in range(len(args))]
        table = (ctypes.c_void_p * max(1, len(args)))(*(a.ctypes.data for a in packed))
        extents = ((ctypes.c_uint32 * 3)(*triple(value)) for value in (grid, block))
        launch = Launch(*extents, shared_bytes, 0, worker_function())
        first, last = blocks or (0, math.prod(triple(grid)))
        status: int = kernel.entry(ctypes.byref(launch), ctypes.addressof(table), first, last)
        return status

    def run(self, name: str, grid: int | Sequence[int], block: int | Sequence[int], *args: Any, **more: Any) -> None:
        assert self.start(name, grid, block, *args, **more) == 0

    def symbol(self, name: str, dtype: str) -> np.ndarray[Any, Any]:
        found = self.symbols[name]
        return np.frombuffer((ctypes.c_char * found.bytes).from_address(found.address), dtype)


def compiler_of(kind: str) -> Compiler:
    """Return g++, or a clang: that of HIPGRAPHDSL_CXX if it is one, else clang++; ziglang has to be chosen where g++ is."""
    found = _compiler_or_lack(kind, os.environ.get("HIPGRAPHDSL_CXX"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _compiler_or_lack(kind: str, named: str | None) -> Compiler | str:
    with pytest.MonkeyPatch.context() as patch:
        for chosen in ("g++",) if kind == "gcc" else (named, None):
            if chosen is None:
                patch.delenv("HIPGRAPHDSL_CXX", raising=False)
            else:
                patch.setenv("HIPGRAPHDSL_CXX", chosen)
            forget_compiler()
            try:
                found = find_compiler()
            except RuntimeUnavailable as error:
                return str(error)
            finally:
                forget_compiler()
            if found.kind == "zig" and chosen is None and named:
                return "`make test-slow` compiles with ziglang's clang"
            if (found.kind == "gcc") == (kind == "gcc"):
                return found
    return f"no {kind} on this machine"


@pytest.fixture(params=["clang", "gcc"], scope="session")
def compiler(request: pytest.FixtureRequest) -> Compiler:
    return compiler_of(str(request.param))


@functools.cache
def library(
    compiler: Compiler, source: str, names: str, symbols: str = "", options: tuple[str, ...] = (), improve: bool = True
) -> Library:
    asked = [n.strip() for n in names.split(";")]
    mode: Literal["fast", "base"] = "fast" if improve else "base"
    made = compile_kernels(source, asked, symbols.split(), options, name="test.hip", compiler=compiler, mode=mode)
    return Library(made.image)


i32, u32, i64, u64, f32, f64 = np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64


def numbers(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(n).astype("f4")


# -- threads without barriers ------------------------------------------------------------------------------------------

PLAIN = r"""
#include <hip/hip_runtime.h>
#include <stdint.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define DOUBLER(name, T) __global__ void name(T* x, int n) { int i = INDEX; if (i < n) x[i] = T(2) * x[i]; }
namespace shapes { constexpr int sides = 3; __device__ int corners() { return sides; } }
typedef float real;
struct Pair { float a; int b; __device__ float sum() const { return a + b; } };

extern "C" __global__ void scale(float* x, float a, size_t n) {
  size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  x[i] = a * x[i];
}
extern "C" { __global__ void linear(int* out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
} }
__global__ void old_names(int* out) { out[hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x] = hipGridDim_x; }
__device__ __forceinline__ int mine() { return blockIdx.x * blockDim.x + threadIdx.x; }
__host__ __device__ inline real square(real x) { return x * x; }
__global__ __launch_bounds__(256) void helpers(real* out, const real* __restrict__ x, int n) {
  if (mine() < n) out[mine()] = square(x[mine()]) + shapes::corners();
}
DOUBLER(twice_float, float)
DOUBLER(twice_long, long)
template <typename T, int N> __device__ T power(T x) { T y = 1; for (int k = 0; k < N; k++) y *= x; return y; }
template <typename T, int N> __global__ void tpower(T* x) { x[INDEX] = power<T, N>(x[INDEX]); }
template <> __global__ void tpower<char, 1>(char* x) { x[INDEX] = 42; }
namespace inner { __global__ void in_space(int* out) { out[INDEX] = shapes::sides; } }
__global__ void clamped(float* out, const float* x, int n) {
  int i = INDEX;
  i = min(i, n - 2);
  i = max(1, i);
  out[i] = x[i - 1] + x[i + 1];
}
__global__ void halo(float* out, const float* x, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) - 2;
  int left = max(i - 1, 0), right = min(i + 1, n - 1);
  if (i >= 0 && i < n) out[i] = x[left] + x[right];
}
__global__ void strided(float* out, const float* x, int n) {
  for (int i = INDEX; i < n; i += blockDim.x * gridDim.x) out[i] = x[i] + 1.0f;
}
__global__ void flat(float* out, const float* x, int w, int h) {
  const int i = (blockIdx.y * blockDim.y + threadIdx.y) * w + blockIdx.x * blockDim.x + threadIdx.x;
  const int after = min(i + 1, w * h - 1);
  if (i < w * h) out[i] = x[i] + x[after];
}
template <typename T> __global__ void strided_rows(T* out, const T* x, unsigned n, unsigned more) {
  const unsigned stride = gridDim.x * blockDim.x + more;
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i <= n - 1; i += stride) {
    if (x[i] < 0) continue;
    for (unsigned k = 0; k < 3; ++k) { if (k == 2) break; out[threadIdx.y * n + i] += x[i] + threadIdx.y; }
  }
}
__global__ void private_array(float* out, const float* x, const int* which) {
  float kept[5] = {1, 2, 3, 4, 5};
  kept[which[INDEX]] = x[INDEX];
  float sum = 0;
  for (int k = 0; k < 5; k++) sum += kept[k] * (k + 1);
  out[INDEX] = sum + kept[(which[INDEX] + 1) % 5];
}
__global__ void lambdas(float* x) {
  auto add = [=](float v) { return v + threadIdx.x; };
  x[INDEX] = add(x[INDEX]);
}
__global__ void structs(Pair* p, Pair q) { p[INDEX].a = p[INDEX].sum() + q.a; p[INDEX].b = q.b; }
__global__ void branches(int* x) {
  int i = INDEX;
  switch (i % 4) { case 0: x[i] = 10; break; case 1: x[i] = 20; default: x[i] += 1; }
  if (i % 3 == 0) { x[i] *= 2; return; } else { x[i] *= 3; }
  while (x[i] > 30) { x[i] -= 7; }
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursive(int* x) { x[INDEX] = fibonacci(INDEX); }
#ifdef __HIP_PLATFORM_AMD__
__global__ void chosen(int* x) { x[INDEX] = warpSize; }
#else
#error not here
#endif
__global__ void blockwise(int* out) {
  int base = blockIdx.x * blockDim.x, t = threadIdx.x;
  int i = base + t;
  out[i] = i * 10 + t;
}
"""
PLAIN_NAMES = (
    "scale; linear; old_names; helpers; twice_float; twice_long; tpower<float, 3>; tpower<int,2>; tpower<char,1>; "
    "inner::in_space; clamped; halo; strided; strided_rows<int>; "
    "flat; private_array; lambdas; structs; branches; recursive; chosen; blockwise"
)


@pytest.fixture
def plain(compiler: Compiler) -> Library:
    return library(compiler, PLAIN, PLAIN_NAMES)


@pytest.mark.parametrize(("grid", "block"), [(4, 256), (1, 1), (1000, 1), (7, 150), (16, (64, 1, 1))])
def test_early_return_leaves_the_rest(plain: Library, grid: int, block: Any) -> None:
    n = min(1000, grid * math.prod(triple(block)))
    x = numbers(1024)
    wanted = x.copy()
    wanted[:n] *= f32(3)
    plain.run("scale", grid, block, x, f32(3), u64(n))
    assert np.array_equal(x, wanted)


def test_threads_and_blocks_are_numbered_in_three_dimensions(plain: Library) -> None:
    out = np.full(3 * 2 * 2 * 24, -1, i32)
    plain.run("linear", (3, 2, 2), (4, 3, 2), out)
    assert np.array_equal(out, (np.arange(12)[:, None] * 1000 + np.arange(24)).ravel())


def test_range_of_blocks_runs_those_blocks_only(plain: Library) -> None:
    out = np.full(12 * 24, -1, i32)
    plain.run("linear", (3, 2, 2), (4, 3, 2), out, blocks=(2, 7))
    blocks = out.reshape(12, 24)[:, 0]
    assert [b // 1000 if b >= 0 else -1 for b in blocks] == [-1, -1, 2, 3, 4, 5, 6, -1, -1, -1, -1, -1]


def test_old_names_of_the_indices_work(plain: Library) -> None:
    out = np.zeros(12, i32)
    plain.run("old_names", 3, 4, out)
    assert out.tolist() == [3] * 12


def test_device_functions_see_the_thread(plain: Library) -> None:
    x, out = numbers(1000), np.zeros(1000, "f4")
    plain.run("helpers", 4, 256, out, x, i32(1000))
    assert np.array_equal(out, x * x + f32(3))


def test_macros_can_make_kernels(plain: Library) -> None:
    x, y = numbers(100), np.arange(100)
    plain.run("twice_float", 1, 128, x, i32(100))
    plain.run("twice_long", 1, 128, y, i32(100))
    assert np.array_equal(x, numbers(100) * 2)
    assert np.array_equal(y, np.arange(100) * 2)


def test_templates_are_instantiated_and_specialised(plain: Library) -> None:
    x, y, z = numbers(64), np.arange(64, dtype=i32), np.zeros(64, "i1")
    plain.run("tpower<float, 3>", 1, 64, x)
    plain.run("tpower<int,2>", 1, 64, y)
    plain.run("tpower<char,1>", 1, 64, z)
    assert np.allclose(x, numbers(64) ** 3, rtol=1e-6)
    assert np.array_equal(y, np.arange(64) ** 2)
    assert z.tolist() == [42] * 64


def test_kernel_in_a_namespace_is_found(plain: Library) -> None:
    out = np.zeros(8, i32)
    plain.run("inner::in_space", 1, 8, out)
    assert out.tolist() == [3] * 8


@pytest.mark.parametrize(("grid", "block"), [(4, 64), (16, 16), (1, 256), (2, 192), (256, 1), (9, 31)])
@pytest.mark.parametrize("n", [3, 10, 100, 200, 255, 256, 279])
def test_clamped_indices_give_what_they_give_one_by_one(plain: Library, grid: int, block: int, n: int) -> None:
    x, out = numbers(300), np.zeros(300, "f4")
    plain.run("clamped", grid, block, out, x, i32(n))
    i = np.maximum(1, np.minimum(np.arange(grid * block), n - 2))
    wanted = np.zeros(300, "f4")
    wanted[i] = x[i - 1] + x[i + 1]
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("blocks", [(0, 5), (0, 3), (2, 5), (3, 4)])
def test_indices_that_begin_below_zero_are_lines_too(plain: Library, blocks: tuple[int, int]) -> None:
    x, out = numbers(300), np.zeros(300, "f4")
    plain.run("halo", 5, 64, out, x, i32(300), blocks=blocks)
    i = np.arange(blocks[0] * 64, blocks[1] * 64) - 2
    i = i[(i >= 0) & (i < 300)]
    wanted = np.zeros(300, "f4")
    wanted[i] = x[np.maximum(i - 1, 0)] + x[np.minimum(i + 1, 299)]
    assert np.array_equal(out, wanted)


def test_grid_stride_loop_reaches_every_element(plain: Library) -> None:
    x, out = numbers(1000), np.zeros(1000, "f4")
    plain.run("strided", 2, 64, out, x, i32(1000))
    assert np.array_equal(out, x + f32(1))


@pytest.mark.parametrize("block", [(16, 16), (64, 2), (32, 1), (8, 8, 2)])
def test_index_through_rows_and_columns_is_right(plain: Library, block: tuple[int, ...]) -> None:
    w, h = 192, 48
    x, out = numbers(w * h), np.zeros(w * h, "f4")
    plain.run("flat", (w // block[0], h // block[1]), block, out, x, i32(w), i32(h))
    assert np.array_equal(out, x + np.append(x[1:], x[-1]))


@pytest.mark.parametrize("n", [1, 5, 100, 1000])
def test_grid_stride_loop_runs_in_every_row_of_a_block(plain: Library, n: int) -> None:
    x = np.random.default_rng(0).integers(-5, 10, 1000).astype(i32)
    out = np.zeros((3, n), i32)
    plain.run("strided_rows<int>", 2, (16, 3), out, x, u32(n), u32(4))
    row = np.zeros((3, n), i32)
    reached = np.arange(n) % 36 < 32
    chosen = reached & (x[:n] >= 0)
    row[:, chosen] = 2 * (x[:n][chosen] + np.arange(3)[:, None])
    assert np.array_equal(out, row)


def test_private_arrays_are_private(plain: Library) -> None:
    n = 512
    x, out = numbers(n), np.zeros(n, "f4")
    which = np.random.default_rng(1).integers(0, 5, n).astype(i32)
    plain.run("private_array", 2, 256, out, x, which)
    kept = np.tile(np.arange(1, 6, dtype="f4"), (n, 1))
    kept[np.arange(n), which] = x
    wanted = (kept * np.arange(1, 6)).sum(1) + kept[np.arange(n), (which + 1) % 5]
    assert np.allclose(out, wanted, rtol=1e-5, atol=1e-5)


OWN_ARRAYS = {
    "read": "int z[4] = {h, h ^ 5, n, t}; x[t] = h + z[(h >> 2) & 3];",
    "written": "long long z[4] = {h, h ^ 5, n}; z[(t * 7 + h) & 3] = -t; x[t] = h + (int)z[(h >> 2) & 3];",
    "filled": "int z[8]; for (int k = 0; k < 8; ++k) z[k] = h * k; z[(t * 7 + h) & 7] = -t; x[t] = h + z[(h >> 2) & 7];",
    "picked": "int a = h, b = n, c = t; int* p = h % 3 == 0 ? &a : h % 3 == 1 ? &b : &c; *p += 7; x[t] = a + 3 * b + 5 * c;",
    "in_between": "__shared__ int s[128]; s[t] = h; __syncthreads(); int z[4] = {h, s[127 - t], n, t}; x[t] = z[(h >> 2) & 3];",
}


@pytest.mark.parametrize("name", OWN_ARRAYS)
def test_arrays_that_are_indexed_by_what_a_thread_computes_are_its_own(compiler: Compiler, name: str) -> None:
    source = "".join(
        f"__global__ void {key}(int* x, int n) {{ int t = threadIdx.x, h = x[t]; {body} }}\n" for key, body in OWN_ARRAYS.items()
    )
    found = []
    for improve in (True, False):
        x = np.random.default_rng(1).integers(0, 1000, 128).astype(i32)
        library(compiler, source, ";".join(OWN_ARRAYS), improve=improve).run(name, 1, 128, x, i32(5))
        found.append(x.tolist())
    assert found[0] == found[1]


def test_lambdas_see_the_thread(plain: Library) -> None:
    x = np.zeros(64, "f4")
    plain.run("lambdas", 1, 64, x)
    assert np.array_equal(x, np.arange(64))


def test_structs_go_by_pointer_and_by_value(plain: Library) -> None:
    pair = np.dtype([("a", "f4"), ("b", "i4")])
    p = np.zeros(32, pair)
    p["a"], p["b"] = 0.5, np.arange(32)
    plain.run("structs", 1, 32, p, np.array((10.0, 7), pair))
    assert np.array_equal(p["a"], np.arange(32) + f32(10.5))
    assert (p["b"] == 7).all()


def test_control_flow_is_kept(plain: Library) -> None:
    def wanted(i: int) -> int:
        x = {0: 10, 1: 21}.get(i % 4, i + 1)
        if i % 3 == 0:
            return x * 2
        x *= 3
        while x > 30:
            x -= 7
        return x

    x = np.arange(256, dtype=i32)
    plain.run("branches", 1, 256, x)
    assert x.tolist() == [wanted(i) for i in range(256)]


def test_recursion_and_platform_choice_work(plain: Library) -> None:
    x, y = np.zeros(16, i32), np.zeros(16, i32)
    plain.run("recursive", 1, 16, x)
    plain.run("chosen", 1, 16, y)
    assert x.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]
    assert y.tolist() == [64] * 16


SUBTLE = r"""
#include <hip/hip_runtime.h>
__global__ void carried(int* y, const int* x, int n) {
  int last = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { y[i] = last; last = x[i]; }
}
__global__ void moved(int* y, const int* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = *x++;
}
__global__ void beside(int* y, const int* x, int n) {
  unsigned clamped = min(blockIdx.x * blockDim.x + threadIdx.x - 3u, 10u);
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[clamped] + n;
}
__device__ void raise(int& a, int by) { a += by; }
#define AFTER __syncthreads(); y[blockIdx.x * blockDim.x + threadIdx.x] =
__global__ void parameter(int* y, int n) { if (threadIdx.x & 1) n = n * 2; AFTER n; }
__global__ void reference(int* y, int n) { int v = 3; int& r = v; r += threadIdx.x; AFTER v; }
__global__ void each(int* y, int n) { int v[2] = {1, 2}; for (int& r : v) r += threadIdx.x; AFTER v[0] * 100 + v[1]; }
__global__ void bracketed(int* y, int n) { int v = 3; (v) += threadIdx.x; if (threadIdx.x & 1) (v)++; AFTER v; }
__global__ void chosen(int* y, int n) { int a = 1, b = 2; (threadIdx.x & 1 ? a : b) = 9; AFTER a * 10 + b; }
__global__ void called(int* y, int n) { int v = 3; raise(v, threadIdx.x); AFTER v; }
__global__ void lambda(int* y, int n) { int v = 3; auto f = [](int& a, int by) { a += by; }; f(v, threadIdx.x); AFTER v; }
__global__ void hidden(int* y, int n) {
  int b = threadIdx.x, o = blockIdx.x * blockDim.x + threadIdx.x;
  y[o] = 1;
  __syncthreads();
  { y[o] += b; int b = 3; y[o] *= b; __syncthreads(); y[o] += b; }
}
"""
SUBTLE_ANSWERS: dict[str, Callable[[int, int], int]] = {
    "parameter": lambda t, n: n * 2 if t & 1 else n,
    "reference": lambda t, n: 3 + t,
    "each": lambda t, n: (1 + t) * 100 + 2 + t,
    "bracketed": lambda t, n: 3 + t + (t & 1),
    "chosen": lambda t, n: 92 if t & 1 else 19,
    "called": lambda t, n: 3 + t,
    "lambda": lambda t, n: 3 + t,
    "hidden": lambda t, n: (1 + t) * 3 + 3,
}


@pytest.fixture(params=["improved", "as it stands"])
def subtle(compiler: Compiler, request: pytest.FixtureRequest) -> Library:
    names = "; ".join(("carried", "moved", "beside", *SUBTLE_ANSWERS))
    return library(compiler, SUBTLE, names, improve=request.param == "improved")


@pytest.mark.parametrize("name", SUBTLE_ANSWERS)
def test_variable_that_a_thread_changes_in_any_way_is_its_own(subtle: Library, name: str) -> None:
    y = np.zeros(16, i32)
    subtle.run(name, 2, 8, y, i32(5))
    assert y.tolist() == [SUBTLE_ANSWERS[name](t, 5) for t in range(8)] * 2


def test_loop_with_a_stride_keeps_what_a_thread_carries_from_round_to_round(subtle: Library) -> None:
    y, x = np.zeros(60, i32), np.arange(60, dtype=i32) * 3 + 1
    subtle.run("carried", 2, 8, y, x, i32(60))
    assert y.tolist() == [0] * 16 + x[:-16].tolist()
    subtle.run("moved", 2, 8, y, x, i32(60))
    assert y.tolist() == [x[i // 16] for i in range(60)]


# Each body changes the thread's own v, or what it stands for, in a way that only the source as a whole tells.
HOLDERS = r"""
#include <hip/hip_runtime.h>
struct Pair { int a, b; };
struct Many { int m[3]; __device__ int* first() { return &m[0]; } };
struct Sum {
  int total;
  __device__ Sum& operator<<(int k) { total += k; return *this; }
  __device__ void operator()(int k) { total += k; }
};
struct Other { int k; };
__device__ void operator|(Other& o, int k) { o.k += k; }
struct Reference { int& to; };
struct Pointer { int* to; };
typedef int* address;
__device__ void bump(int& v, int by) { v += by; }
#define KERNEL(name) __global__ void name(int* y, const int* x, int n)
"""
HOLDER_BODIES = {
    "cast": "int2 v = make_int2(t, 1); __syncthreads(); ((int*)&v)[1] = x[t]; __syncthreads(); y[t] = v.x + v.y;",
    "named_cast": "int v = t; __syncthreads(); *(address)&v += x[t]; __syncthreads(); y[t] = v;",
    "reference_cast": "int v = 1; __syncthreads(); reinterpret_cast<unsigned&>(v) = x[t]; __syncthreads(); y[t] = v + t;",
    "old_reference_cast": "int v = 1; __syncthreads(); (unsigned&)v = x[t]; __syncthreads(); y[t] = v + t;",
    "copied": "int v = n; memcpy((void*)&v, &x[t], 4); __syncthreads(); y[t] = v + t;",
    "unpacked": "Pair v = {t, 2}; __syncthreads(); { auto& [a, b] = v; b = x[t]; } __syncthreads(); y[t] = v.a + v.b;",
    "member_operator": "Sum v = {t}; __syncthreads(); v << x[t]; __syncthreads(); y[t] = v.total;",
    "call_operator": "Sum v = {t}; __syncthreads(); v(x[t]); __syncthreads(); y[t] = v.total;",
    "free_operator": "Other v = {t}; __syncthreads(); v | x[t]; __syncthreads(); y[t] = v.k;",
    "array_member": "Many v = {{t, 1, 2}}; __syncthreads(); { int* q = v.m; q[0] += x[t]; } __syncthreads(); y[t] = v.m[0];",
    "kept_array_member": "Many v = {{t, 1, 2}}; int* q = v.m; __syncthreads(); q[0] += x[t]; __syncthreads(); y[t] = v.m[0];",
    "member_address": "Many v = {{t, 1, 2}}; int* q = v.first(); __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v.m[0];",
    "member_reference": "int v = t; { Reference r{v}; r.to += x[t]; } __syncthreads(); y[t] = v;",
    "member_pointer": "int v = t; Pointer p = {&v}; __syncthreads(); *p.to += x[t]; __syncthreads(); y[t] = v;",
    "automatic": "int v = t; auto q = &v; __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v;",
    "typedef_name": "int v = t; address q = &v; __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v;",
    "braces": "int v = t; int* q{&v}; __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v;",
    "one_of_two": "int v = t, w = t; int* q = t & 1 ? &v : &w; __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v + w - t;",
    "cast_and_kept": "int v = t; int* q = (int*)&v; __syncthreads(); *q += x[t]; __syncthreads(); y[t] = v;",
    "chosen_argument": "int v = t, w = t; bump(t & 1 ? v : w, x[t]); __syncthreads(); y[t] = v + w - t;",
    "bracketed_argument": "int v = t; __syncthreads(); bump((v), x[t]); __syncthreads(); y[t] = v;",
    "all_leave": "int v = 0; while (true) { if (v == x[t] + t) return; y[t] = ++v; __syncthreads(); }",
    "nobody_divides": "y[t] = x[t] + t; if (t < n) return; __syncthreads(); int q = 100 / (n - 64); y[t] += q;",
    "none_left_divides": "y[t] = x[t] + t; if (t < n) return; int q = 100 / (n - 64); __syncthreads(); y[t] += q;",
    "no_semicolon": "HIP_DYNAMIC_SHARED(int, s) int v = t; s[t] = x[t]; __syncthreads(); y[t] = s[t] + v;",
    "macro_first": "s[t] = x[t]; int v = t; __syncthreads(); y[t] = s[t] + v;",
}


@pytest.mark.parametrize("improve", [True, False])
@pytest.mark.parametrize("name", HOLDER_BODIES)
def test_what_a_thread_reaches_in_a_roundabout_way_is_right_across_barriers(compiler: Compiler, name: str, improve: bool) -> None:
    kernels = []
    for kernel, body in HOLDER_BODIES.items():
        ahead = "HIP_DYNAMIC_SHARED(int, s)\n" if kernel == "macro_first" else ""
        kernels.append(f"KERNEL({kernel}) {{ {ahead}int t = threadIdx.x;\n{body} }}\n")
    made = library(compiler, HOLDERS + "".join(kernels), "; ".join(HOLDER_BODIES), improve=improve)
    y, x = np.zeros(64, i32), np.arange(64, dtype=i32) * 7 % 23 + 1
    made.run(name, 1, 64, y, x, i32(64), shared_bytes=256)
    assert y.tolist() == (x + np.arange(64)).tolist()


ROUND = r"""
#include <hip/hip_runtime.h>
__global__ void masked(int* z, const int* x, int n) {
  unsigned i = threadIdx.x;
  int sum = 0;
  for (int k = 0; k < 4; ++k) sum += x[i + k];
  z[i % 8u] = sum;
}
__global__ void narrow(int* z, const int* x, int n) {
  unsigned i = threadIdx.x;
  unsigned char low = i * 32;
  z[low / 32] = x[i] + x[i + 1] + x[i + 2] + x[i + 3];
}
__global__ void split(int* z, const int* x, int n) {
  __shared__ int s[256];
  unsigned i = threadIdx.x;
  s[i] = x[i] + x[i + 1] + x[i + 2] + x[i + 3];
  __syncthreads();
  z[i % 8u] = x[i] + x[i + 3] + 0 * s[i];
}
__global__ void own_loop(int* z, const int* x, int n) {
  for (unsigned q = 0; q < (unsigned)n; ++q) z[q & 7] += x[q] + x[q + 1] + x[q + 2] + x[q + 3];
}
__global__ void own_loop_beside_a_barrier(int* z, const int* x, int n) {
  __shared__ int s[1];
  s[0] = 1;
  __syncthreads();
  for (unsigned q = 0; q < (unsigned)n; ++q) z[q & 7] = s[0] * q + x[q] + x[q + 1] + x[q + 2] + x[q + 3];
}
__device__ __noinline__ void fill(int* z, const int* x, int n) {
  for (unsigned q = 0; q < (unsigned)n; ++q) z[q & 7] = x[q] + x[q + 1] + x[q + 2] + x[q + 3];
}
__global__ void own_loop_in_a_function(int* z, const int* x, int n) { fill(z, x, n); }
__global__ void own_loop_with_atomics(int* z, const int* x, int n) {
  for (unsigned q = 0; q < (unsigned)n; ++q) z[q & 7] = x[q] + x[q + 1] + x[q + 2] + x[q + 3];
  atomicAdd(&z[0], 1);
}
"""
ROUND_PRAGMA = ROUND.replace("  for (unsigned", "#pragma clang loop vectorize(enable)\n  for (unsigned")
ROUND_NAMES = "masked; narrow; split; own_loop; own_loop_beside_a_barrier; own_loop_in_a_function; own_loop_with_atomics"


@pytest.mark.parametrize("name", ["masked", "narrow", "split"])
@pytest.mark.parametrize("improve", [True, False])
def test_index_that_goes_round_writes_nothing_behind_the_end(compiler: Compiler, name: str, improve: bool) -> None:
    memory, x = np.zeros(1024, i32), np.ones(260, i32)
    for block in (8, 32, 64, 256):
        library(compiler, ROUND, ROUND_NAMES, improve=improve).run(name, 1, block, memory[256:264], x, i32(0))
        assert np.count_nonzero(memory[256:264]) == 8
        assert np.count_nonzero(memory) == 8


@pytest.mark.parametrize("source", [ROUND, ROUND_PRAGMA], ids=["plain", "pragma"])
@pytest.mark.parametrize("name", ["", "_beside_a_barrier", "_in_a_function", "_with_atomics"])
def test_own_loop_with_an_index_that_goes_round_is_right(compiler: Compiler, name: str, source: str) -> None:
    x = np.arange(1100, dtype=i32)
    made = library(compiler, source, ROUND_NAMES)
    for n in (8, 64, 100, 1000):
        memory, q = np.zeros(3000, i32), np.arange(n)
        made.run("own_loop" + name, 1, 1, memory[1000:1008], x, i32(n))
        values = 4 * q + 6 + (q if name == "_beside_a_barrier" else 0)
        wanted = [values[k::8].sum() if not name else values[k::8][-1] for k in range(8)]
        wanted[0] += name == "_with_atomics"
        assert memory[1000:1008].tolist() == wanted
        assert not memory[:1000].any()
        assert not memory[1008:].any()


def test_thread_number_beside_a_clamped_index_is_that_of_the_block(subtle: Library) -> None:
    y, x = np.zeros(32, i32), np.arange(32, dtype=i32) * 3 + 1
    subtle.run("beside", 4, 8, y, x, i32(100))
    assert y.tolist() == [x[min((i - 3) % 2**32, 10)] + 100 for i in range(32)]


def test_thread_number_beside_the_index_is_that_of_the_block(plain: Library) -> None:
    out = np.zeros(256, i32)
    plain.run("blockwise", 4, 64, out)
    assert np.array_equal(out, np.arange(256) * 10 + np.arange(256) % 64)


# -- barriers and shared memory ----------------------------------------------------------------------------------------

BARRIERS = r"""
#include <hip/hip_runtime.h>
#define TILE 16
#define SYNC __syncthreads()
__global__ void reverse(int* x) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();
  x[blockIdx.x * blockDim.x + t] = s[blockDim.x - 1 - t];
}
__global__ void reverse_dynamic(int* x) {
  extern __shared__ int dynamic[];
  int t = threadIdx.x;
  dynamic[t] = x[blockIdx.x * blockDim.x + t];
  SYNC;
  x[blockIdx.x * blockDim.x + t] = dynamic[blockDim.x - 1 - t];
}
extern __shared__ __align__(16) char outside[];
__global__ void reverse_outside(int* x) {
  int* s = (int*)outside;
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void reverse_macro(int* x) {
  HIP_DYNAMIC_SHARED(int, s);
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void matmul(float* C, const float* A, const float* B, int N) {
  __shared__ float As[TILE][TILE], Bs[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float acc = 0.0f;
  for (int t = 0; t < (N + TILE - 1) / TILE; ++t) {
    As[ty][tx] = row < N && t * TILE + tx < N ? A[row * N + t * TILE + tx] : 0.0f;
    Bs[ty][tx] = col < N && t * TILE + ty < N ? B[(t * TILE + ty) * N + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) acc += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
  if (row < N && col < N) C[row * N + col] = acc;
}
__global__ void block_sum(float* out, const float* x, int n) {
  extern __shared__ float partial[];
  unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  partial[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
    if (t < s) partial[t] += partial[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = partial[0];
}
__global__ void scan(int* out, const int* x) {
  __shared__ int buffer[2][256];
  int t = threadIdx.x, in = 0;
  buffer[0][t] = x[t];
  __syncthreads();
  for (int offset = 1; offset < blockDim.x; offset *= 2) {
    int next = 1 - in;
    buffer[next][t] = buffer[in][t] + (t >= offset ? buffer[in][t - offset] : 0);
    in = next;
    __syncthreads();
  }
  out[t] = buffer[in][t];
}
__global__ void early(int* x, int n) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = 0;
  if (t >= n) return;
  s[t] = t;
  __syncthreads();
  x[t] = s[(t + 1) % n];
}
__global__ void divergent(int* out, int rounds) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x % 2) { atomicAdd(&count, 1); __syncthreads(); } else { __syncthreads(); }
    if (count > 1000000) break;
    __syncthreads();
  }
  out[threadIdx.x] = count;
}
__device__ int add_up(int* s, int v) {
  s[threadIdx.x] = v;
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < blockDim.x; ++k) sum += s[k];
  __syncthreads();
  return sum;
}
__global__ void in_function(int* out) {
  __shared__ int s[128];
  int first = add_up(s, threadIdx.x);
  out[threadIdx.x] = add_up(s, first + threadIdx.x);
}
__global__ void counts(int* out) {
  int t = threadIdx.x;
  out[t * 3] = __syncthreads_count(t % 3 == 0);
  out[t * 3 + 1] = __syncthreads_or(t == 5);
  out[t * 3 + 2] = __syncthreads_and(t < 64);
}
template <typename T, int N> __global__ void rotate(T* x, int by) {
  __shared__ T s[N];
  const int t = threadIdx.x;
  const T v = x[t];
  s[t] = v;
  __syncthreads();
  const T w = s[(t + by) % N];
  __syncthreads();
  s[t] = w + v;
  __syncthreads();
  x[t] = s[(t + 1) % N];
}
__global__ void shadows(int* x, int n) {
  __shared__ int s[64];
  int t = threadIdx.x, v = x[t];
  s[t] = v;
  for (int k = 0; k < n; ++k) {
    int v = s[(t + k) % 64];
    __syncthreads();
    { int v = 1; s[t] += v; }
    __syncthreads();
    x[t] += v;
  }
  __syncthreads();
  x[t] += v + s[63 - t];
}
__global__ void uniform_if(int* x, int mode) {
  __shared__ int s[64];
  int t = threadIdx.x;
  int v = x[t];
  if (mode > 1) {
    s[t] = v * 2;
    __syncthreads();
    v = s[63 - t];
  } else {
    s[t] = v + 1;
    __syncthreads();
    v = s[(t + 1) % 64];
  }
  while (mode > 0) { __syncthreads(); s[t] = v; __syncthreads(); v += s[(t + 7) % 64]; --mode; }
  x[t] = v;
}
__global__ void arrays(float* out, const float* x) {
  __shared__ float s[32];
  float mine[4], total = 0;
  for (int k = 0; k < 4; ++k) mine[k] = x[threadIdx.x * 4 + k];
  s[threadIdx.x] = mine[0] + mine[1] + mine[2] + mine[3];
  __syncthreads();
  float4 v = make_float4(mine[0], mine[1], mine[2], mine[3]);
  total = s[31 - threadIdx.x];
  __syncthreads();
  auto twice = total * 2.0f;
  s[threadIdx.x] = twice;
  __syncthreads();
  out[threadIdx.x] = total + mine[threadIdx.x % 4] + v.w + s[(threadIdx.x + 1) % 32] + twice;
}
struct Sum { float total; int count; __device__ void add(float v) { total += v; ++count; } };
__device__ void bump(int& v, int by) { v += by; }
__global__ void changing(int* out, int* x, int n) {
  __shared__ int s[64];
  int t = threadIdx.x;
  x += blockIdx.x * 64;
  out += t;
  int a = (x[t]) + (1), b, c = (t + 1) * (2);
  if (t % 2) b = a; else b = -a;
  s[t] = a;
  __syncthreads();
  Sum sum = {0.0f, 0};
  sum.add(s[(t + 1) % 64]);
  bump(a, 5);
  int k = 0;
  for (; k < n; k += 2) {
    __syncthreads();
    s[t] += k + c;
    x += 1;
    __syncthreads();
    sum.add(s[63 - t]);
    b += x[0] + s[(t + k) % 64];
    n -= 1;
  }
  __syncthreads();
  n += 1;
  out[blockIdx.x * 64] = a + b + c + k + (int)sum.total + sum.count + s[(t + 3) % 64] + n;
}
__global__ void pointers(float* out, const float* x, int n) {
  __shared__ float s[2][64];
  const float* row = x + blockIdx.x * 64;
  float* mine = &s[0][threadIdx.x];
  float& other = s[1][threadIdx.x];
  const unsigned t = threadIdx.x, last = blockDim.x - 1;
  *mine = row[t];
  other = row[last - t];
  __syncthreads();
  float lowest = mine[0];
#pragma unroll
  for (int k = 0; k < 4; ++k) lowest = fminf(lowest, s[0][(t + k) & 63]);
  __syncthreads();
  other += lowest;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[1][last - t] + *mine + n;
}
__global__ void leaves(int* x, int n, int rounds) {
  __shared__ int s[64];
  if (n < 0) return;
  int t = threadIdx.x, v = x[t];
  for (int r = 0; r < rounds; ++r) {
    if (r == 3) break;
    if (r == 1) continue;
    if (t >= n) { x[t] = -r; return; }
    s[t] = v + r;
    __syncthreads();
    v += s[(t + 1) % n];
    if (v % 5 == 0 && r == 2) return;
    __syncthreads();
  }
  x[t] = v;
}
__global__ void shared_only_first(int* out) {
  __shared__ int value;
  if (threadIdx.x == 0) value = blockIdx.x * 3;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
"""
BARRIER_NAMES = (
    "reverse; reverse_dynamic; reverse_outside; reverse_macro; matmul; block_sum; scan; early; divergent; in_function; "
    "counts; rotate<long, 64>; shadows; uniform_if; arrays; changing; pointers; leaves; "
    "shared_only_first"
)


@pytest.fixture(params=["split", "fibers"])
def barriers(compiler: Compiler, request: pytest.FixtureRequest) -> Library:
    return library(compiler, BARRIERS, BARRIER_NAMES, improve=request.param == "split")


@pytest.mark.parametrize("block", [1, 2, 63, 64, 65, 256])
def test_shared_memory_is_seen_by_the_block(barriers: Library, block: int) -> None:
    x = np.arange(4 * block, dtype=i32)
    wanted = x.reshape(4, block)[:, ::-1].ravel()
    for name, shared_bytes in (("reverse", 0), ("reverse_dynamic", 4 * block)):
        y = x.copy()
        barriers.run(name, 4, block, y, shared_bytes=shared_bytes)
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("name", ["reverse_outside", "reverse_macro"])
def test_dynamic_shared_memory_can_be_declared_in_other_ways(barriers: Library, name: str) -> None:
    x = np.arange(100, dtype=i32)
    barriers.run(name, 1, 100, x, shared_bytes=400)
    assert np.array_equal(x, np.arange(100)[::-1])


@pytest.mark.parametrize("n", [16, 48, 50])
def test_tiled_matmul_is_right(barriers: Library, n: int) -> None:
    a, b, c = numbers(n * n), numbers(n * n, 1), np.zeros(n * n, "f4")
    tiles = -(-n // 16)
    barriers.run("matmul", (tiles, tiles), (16, 16), c, a, b, i32(n))
    assert np.allclose(c.reshape(n, n), a.reshape(n, n) @ b.reshape(n, n), atol=1e-4)


@pytest.mark.parametrize("block", [1, 32, 128, 1024])
def test_reduction_in_shared_memory_is_right(barriers: Library, block: int) -> None:
    n = 3000
    x = np.random.default_rng(0).integers(-100, 100, n).astype("f4")
    grid = -(-n // block)
    out = np.zeros(grid, "f4")
    barriers.run("block_sum", grid, block, out, x, i32(n), shared_bytes=4 * block)
    padded = np.concatenate([x, np.zeros(grid * block - n, "f4")])
    assert np.array_equal(out, padded.reshape(grid, block).sum(1))


def test_scan_is_right(barriers: Library) -> None:
    x, out = np.arange(200, dtype=i32) % 17, np.zeros(200, i32)
    barriers.run("scan", 1, 200, out, x)
    assert np.array_equal(out, np.cumsum(x))


def test_thread_that_returned_counts_as_arrived(barriers: Library) -> None:
    x = np.full(64, -1, i32)
    barriers.run("early", 1, 64, x, i32(40))
    assert x[:40].tolist() == [(t + 1) % 40 for t in range(40)]
    assert (x[40:] == -1).all()


def test_barriers_in_both_branches_meet(barriers: Library) -> None:
    out = np.zeros(64, i32)
    barriers.run("divergent", 1, 64, out, i32(5))
    assert out.tolist() == [32 * 5] * 64


def test_barrier_inside_a_device_function_works(barriers: Library) -> None:
    out = np.zeros(100, i32)
    barriers.run("in_function", 1, 100, out)
    total = sum(range(100))
    assert out.tolist() == [100 * total + total] * 100


def test_barriers_that_count_tell_every_thread(barriers: Library) -> None:
    out = np.zeros(70 * 3, i32)
    barriers.run("counts", 1, 70, out)
    assert (out.reshape(70, 3) == [24, 1, 0]).all()


def test_template_with_barriers_keeps_constants_across_them(barriers: Library) -> None:
    x = np.arange(64, dtype=i64) ** 2
    wanted = np.roll(np.roll(x, -5) + x, -1)
    barriers.run("rotate<long, 64>", 1, 64, x, i32(5))
    assert np.array_equal(x, wanted)


def test_shadowed_names_stay_apart_across_barriers(barriers: Library) -> None:
    x = np.arange(64, dtype=i32)
    s, out = x.copy(), x.copy()
    for k in range(3):
        v = np.roll(s, -k)
        s = s + 1
        out = out + v
    wanted = out + np.arange(64) + s[::-1]
    barriers.run("shadows", 1, 64, x, i32(3))
    assert np.array_equal(x, wanted)


@pytest.mark.parametrize("mode", [0, 1, 2, 4])
def test_barriers_under_a_uniform_condition_work(barriers: Library, mode: int) -> None:
    x = np.arange(64, dtype=i32)
    v = (x * 2)[::-1] if mode > 1 else np.roll(x + 1, -1)
    for _ in range(mode):
        v = v + np.roll(v, -7)
    barriers.run("uniform_if", 1, 64, x, i32(mode))
    assert np.array_equal(x, v)


def test_private_arrays_and_vectors_live_across_barriers(barriers: Library) -> None:
    x, out = numbers(128), np.zeros(32, "f4")
    barriers.run("arrays", 1, 32, out, x)
    mine = x.reshape(32, 4)
    sums = ((mine[:, 0] + mine[:, 1]) + mine[:, 2]) + mine[:, 3]
    total = sums[::-1]
    wanted = total + mine[np.arange(32), np.arange(32) % 4] + mine[:, 3] + np.roll(total * 2, -1) + total * 2
    assert np.allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5, 6])
def test_variables_changed_between_barriers_keep_their_values(barriers: Library, n: int) -> None:
    x, out = np.random.default_rng(n).integers(0, 50, 2 * 64 + 8).astype(i32), np.zeros(128, i32)
    barriers.run("changing", 2, 64, out, x, i32(n))
    for block in range(2):
        start, left, k, t = block * 64, n, 0, np.arange(64)
        a, c = x[start : start + 64] + 1, (t + 1) * 2
        s, b = a.copy(), np.where(t % 2, a, -a)
        total, count, a = s[(t + 1) % 64], 1, a + 5
        while k < left:
            s = s + k + c
            start += 1
            total, count = total + s[::-1], count + 1
            b = b + x[start] + s[(t + k) % 64]
            left -= 1
            k += 2
        wanted = a + b + c + k + total + count + s[(t + 3) % 64] + left + 1
        assert np.array_equal(out[block * 64 : block * 64 + 64], wanted)


def test_pointers_and_references_into_shared_memory_live_across_barriers(barriers: Library) -> None:
    x, out = numbers(128), np.zeros(128, "f4")
    barriers.run("pointers", 2, 64, out, x, i32(3))
    for block, row in enumerate(x.reshape(2, 64)):
        lowest = np.min([np.roll(row, -k) for k in range(4)], axis=0)
        other = row[::-1] + lowest
        assert np.allclose(out[block * 64 : block * 64 + 64], other[::-1] + row + 3, atol=1e-6)


@pytest.mark.parametrize(("n", "rounds"), [(64, 2), (64, 5), (40, 5), (0, 5), (-1, 5), (64, 0)])
def test_threads_that_leave_between_barriers_stay_away(barriers: Library, n: int, rounds: int) -> None:
    x = np.arange(100, 164, dtype=i32)
    wanted = x.copy()
    if n >= 0:
        v, gone, s = x.copy(), np.zeros(64, bool), np.zeros(64, i32)
        t = np.arange(64)
        for r in range(rounds):
            if r == 3:
                break
            if r == 1:
                continue
            wanted[~gone & (t >= n)] = -r
            gone |= t >= n
            s[~gone] = v[~gone] + r
            v[~gone] += s[(t[~gone] + 1) % max(n, 1)]
            gone |= ~gone & (v % 5 == 0) & (r == 2)
        wanted[~gone] = v[~gone]
    barriers.run("leaves", 1, 64, x, i32(n), i32(rounds))
    assert np.array_equal(x, wanted)


def test_blocks_have_shared_memory_of_their_own_on_every_thread(barriers: Library) -> None:
    out = np.full(64 * 50, -1, i32)
    with ThreadPoolExecutor(4) as pool:
        ranges = [(k * 8, k * 8 + 8) for k in range(8)]
        done = pool.map(lambda r: barriers.start("shared_only_first", 64, 50, out, blocks=r), ranges)
        assert list(done) == [0] * 8
    assert np.array_equal(out, np.repeat(np.arange(64) * 3, 50))


# -- warps -------------------------------------------------------------------------------------------------------------

WARPS = r"""
__global__ void shuffles(int* out) {
  int t = threadIdx.x, n = blockDim.x;
  out[t] = __shfl(t * 10, 3);
  out[n + t] = __shfl_up(t * 10, 2);
  out[2 * n + t] = __shfl_down(t * 10, 2);
  out[3 * n + t] = __shfl_xor(t * 10, 5);
  out[4 * n + t] = __shfl(t * 10, t + 1, 16);
  out[5 * n + t] = __shfl_down(t * 10, 1, 8);
}
__device__ float warp_sum(float v) {
  for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_down(v, d);
  return v;
}
__global__ void block_sum(float* out, const float* x, int n) {
  __shared__ float partial[16];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
  v = warp_sum(v);
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < blockDim.x / warpSize ? partial[lane] : 0.0f;
    v = warp_sum(v);
    if (lane == 0) atomicAdd(out, v);
  }
}
__global__ void votes(unsigned long long* out) {
  int t = threadIdx.x;
  out[t * 5] = __ballot(t % 3 == 0);
  out[t * 5 + 1] = __any(t == 70);
  out[t * 5 + 2] = __all(t < 64);
  if (t % 2) { out[t * 5 + 3] = __activemask(); out[t * 5 + 4] = __ballot(1); }
  else { out[t * 5 + 3] = __popcll(__ballot(t < 10)); out[t * 5 + 4] = 0; }
}
__global__ void uneven(int* out) {
  int t = threadIdx.x, sum = 0;
  for (int k = 0; k <= t % 4; ++k) sum += __popcll(__ballot(true));
  out[t] = sum * 1000 + __popcll(__ballot(true));
}
__global__ void doubles(double* x, long long* y) {
  x[threadIdx.x] = __shfl_xor(x[threadIdx.x], 1);
  y[threadIdx.x] = __shfl_sync(~0ull, y[threadIdx.x], 2);
  __syncwarp();
}
__global__ void matches(unsigned long long* out) { out[threadIdx.x] = __match_any((int)threadIdx.x % 5); }
"""


@pytest.fixture
def warps(compiler: Compiler) -> Library:
    return library(compiler, WARPS, "shuffles; block_sum; votes; uneven; doubles; matches")


@pytest.mark.parametrize("n", [64, 40, 128])
def test_shuffles_read_other_lanes(warps: Library, n: int) -> None:
    out = np.zeros(6 * n, i32)
    warps.run("shuffles", 1, n, out)
    t = np.arange(n)
    lane, first = t % 64, t - t % 64
    there = np.minimum(n - first, 64)  # lanes of the warp

    def read(source: np.ndarray[Any, Any], inside: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(inside & (source < there), (first + source) * 10, t * 10)

    rows = out.reshape(6, n)
    assert np.array_equal(rows[0], read(np.full(n, 3), t >= 0))
    assert np.array_equal(rows[1], read(lane - 2, lane >= 2))
    assert np.array_equal(rows[2], read(lane + 2, lane + 2 < 64))
    assert np.array_equal(rows[3], read(lane ^ 5, t >= 0))
    assert np.array_equal(rows[4], read(lane // 16 * 16 + (t + 1) % 16, t >= 0))
    assert np.array_equal(rows[5], read(lane + 1, lane % 8 < 7))


@pytest.mark.parametrize("block", [64, 256, 1024])
def test_reduction_by_shuffles_is_right(warps: Library, block: int) -> None:
    x = np.random.default_rng(0).integers(-100, 100, 5000).astype("f4")
    out = np.zeros(1, "f4")
    warps.run("block_sum", 3, block, out, x, i32(5000))
    assert out[0] == x.sum()


def test_votes_count_the_lanes_that_take_part(warps: Library) -> None:
    out = np.zeros(128 * 5, u64)
    warps.run("votes", 1, 128, out)
    rows = out.reshape(128, 5)
    for t in range(128):
        first = t - t % 64
        lanes = range(first, first + 64)
        assert rows[t, 0] == sum(1 << (u - first) for u in lanes if u % 3 == 0)
        assert rows[t, 1] == (first == 64)
        assert rows[t, 2] == (first == 0)
        if t % 2:
            odd = sum(1 << (u - first) for u in lanes if u % 2)
            assert rows[t, 3] == odd
            assert rows[t, 4] == odd
        else:
            assert rows[t, 3] == (5 if first == 0 else 0)


def test_lanes_meet_again_after_an_uneven_loop(warps: Library) -> None:
    out = np.zeros(64, i32)
    warps.run("uneven", 1, 64, out)
    sums = [64, 64 + 48, 64 + 48 + 32, 64 + 48 + 32 + 16]
    assert out.tolist() == [sums[t % 4] * 1000 + 64 for t in range(64)]


def test_eight_byte_values_are_shuffled(warps: Library) -> None:
    x, y = np.arange(64) * 0.5, np.arange(64) << 40
    warps.run("doubles", 1, 64, x, y)
    assert np.array_equal(x, (np.arange(64) ^ 1) * 0.5)
    assert (y == 2 << 40).all()


def test_matching_lanes_are_found(warps: Library) -> None:
    out = np.zeros(64, u64)
    warps.run("matches", 1, 64, out)
    assert [int(v) for v in out] == [sum(1 << u for u in range(64) if u % 5 == t % 5) for t in range(64)]


# -- memory ------------------------------------------------------------------------------------------------------------

MEMORY = r"""
#include <hip/hip_runtime.h>
__constant__ float table[4] = {1, 2, 3, 4};
__constant__ int grid2[2][3];
__device__ int counter = 5;
static __device__ double unset;
const float* const unused = nullptr;
namespace n { __device__ unsigned inside[2]; }
__global__ void look_up(float* x) { int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = table[i % 4] * grid2[i % 2][i % 3]; }
__global__ void count() { atomicAdd(&counter, 1); if (threadIdx.x == 0) { unset = 2.5; n::inside[1] = 9; } }
__global__ void ints(int* x, unsigned* u, long long* l, unsigned long long* ul, const int* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, w = v[i];
  atomicAdd(&x[0], w); atomicSub(&x[1], w); atomicMin(&x[2], w); atomicMax(&x[3], w);
  atomicAnd(&x[4], w); atomicOr(&x[5], w); atomicXor(&x[6], w);
  atomicInc(&u[0], 9); atomicDec(&u[1], 9); atomicMax(&u[2], (unsigned)i); atomicAdd(&u[3], 2);
  atomicMin(&l[0], (long long)w - 1); atomicMax(&l[1], (long long)w << 20); atomicAdd(&ul[0], 1ull);
  int old = x[7], seen;
  do { seen = old; old = atomicCAS(&x[7], seen, seen + 3); } while (old != seen);
  if (i == 3) x[8] = atomicExch(&x[9], 77);
}
__global__ void floats(float* f, double* d, const float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&f[0], v[i]); atomicMin(&f[1], v[i]); atomicMax(&f[2], v[i]);
  atomicAdd(&d[0], (double)v[i]); unsafeAtomicAdd(&d[1], 1.0); atomicMin(&d[2], (double)v[i]);
}
__global__ void histogram(int* bins, const unsigned char* x, int n) {
  __shared__ int mine[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) mine[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[x[i]], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) if (mine[b]) atomicAdd(&bins[b], mine[b]);
}
__global__ void order(int* out) { int at = atomicAdd(&out[0], 1); out[1 + at] = blockIdx.x; __threadfence(); }
__global__ void says(int n) { if (threadIdx.x < n) printf("thread %d of %s: %.2f\n", (int)threadIdx.x, "block", 0.5); }
__global__ void ticks(long long* out) { long long a = clock64(); long long b = wall_clock64(); out[0] = b - a; }
__global__ void checked(int* x, int n) { assert(n > 0); if (n > 5) __trap(); x[threadIdx.x] = n; }
"""


@pytest.fixture
def memory(compiler: Compiler) -> Library:
    names = "look_up; count; ints; floats; histogram; order; says; ticks; checked"
    return library(compiler, MEMORY, names, "table grid2 counter unset n::inside")


def test_symbols_can_be_read_and_written(memory: Library) -> None:
    memory.symbol("grid2", "i4")[:] = range(10, 16)
    table = memory.symbol("table", "f4")
    assert table.tolist() == [1, 2, 3, 4]
    x = np.zeros(12, "f4")
    memory.run("look_up", 3, 4, x)
    i = np.arange(12)
    assert np.array_equal(x, table[i % 4] * np.arange(10, 16).reshape(2, 3)[i % 2, i % 3])


def test_device_variables_keep_their_values(memory: Library) -> None:
    memory.symbol("counter", "i4")[:] = 5
    memory.run("count", 2, 10)
    memory.run("count", 1, 10)
    assert memory.symbol("counter", "i4")[0] == 35
    assert memory.symbol("unset", "f8")[0] == 2.5
    assert memory.symbol("n::inside", "u4")[1] == 9


def test_integer_atomics_are_right_from_several_threads(memory: Library) -> None:
    n = 4096
    v = np.random.default_rng(0).integers(-1000, 1000, n).astype(i32)
    x = np.array([0, 0, 10**6, -(10**6), -1, 0, 0, 0, 0, 5], i32)
    u, w, ul = np.zeros(4, u32), np.zeros(2, i64), np.zeros(1, u64)
    with ThreadPoolExecutor(4) as pool:
        ranges = [(k * 4, k * 4 + 4) for k in range(4)]
        assert list(pool.map(lambda r: memory.start("ints", 16, 256, x, u, w, ul, v, blocks=r), ranges)) == [0] * 4
    assert x[:4].tolist() == [v.sum(), -v.sum(), v.min(), v.max()]
    assert x[4:7].tolist() == [np.bitwise_and.reduce(v), np.bitwise_or.reduce(v), np.bitwise_xor.reduce(v)]
    assert x[7:].tolist() == [3 * n, 5, 77]
    assert u[0] == n % 10
    assert u[1] == -n % 10
    assert u[2:].tolist() == [n - 1, 2 * n]
    assert w.tolist() == [v.min() - 1, max(0, int(v.max()) << 20)]
    assert ul[0] == n


def test_float_atomics_are_right_from_several_threads(memory: Library) -> None:
    n = 2048
    v = np.random.default_rng(0).integers(-1000, 1000, n).astype("f4")
    f, d = np.zeros(3, "f4"), np.zeros(3)
    with ThreadPoolExecutor(4) as pool:
        ranges = [(k * 2, k * 2 + 2) for k in range(4)]
        assert list(pool.map(lambda r: memory.start("floats", 8, 256, f, d, v, blocks=r), ranges)) == [0] * 4
    assert f.tolist() == [v.sum(), v.min(), v.max()]
    assert d.tolist() == [v.sum(), n, v.min()]


def test_histogram_is_right(memory: Library) -> None:
    x = np.random.default_rng(0).integers(0, 256, 10000).astype("u1")
    bins = np.zeros(256, i32)
    memory.run("histogram", 4, 128, bins, x, i32(10000))
    assert np.array_equal(bins, np.bincount(x, minlength=256))


def test_blocks_run_in_linear_order(memory: Library) -> None:
    out = np.zeros(11, i32)
    memory.run("order", 10, 1, out)
    assert out.tolist() == [10, *range(10)]


def test_printf_prints(memory: Library, capfd: pytest.CaptureFixture[str]) -> None:
    memory.run("says", 1, 64, i32(2))
    assert capfd.readouterr().out == "thread 0 of block: 0.50\nthread 1 of block: 0.50\n"


def test_clock_goes_forward(memory: Library) -> None:
    out = np.full(1, -1)
    memory.run("ticks", 1, 1, out)
    assert out[0] >= 0


def test_failed_assertion_ends_the_launch_with_an_error(memory: Library, capfd: pytest.CaptureFixture[str]) -> None:
    x = np.zeros(64, i32)
    assert memory.start("checked", 2, 64, x, i32(0)) == 710
    assert "test.hip:37: block [0,0,0], thread [0,0,0]: assertion `n > 0` failed" in capfd.readouterr().err
    assert memory.start("checked", 2, 64, x, i32(6)) == 719
    memory.run("checked", 1, 64, x, i32(3))
    assert (x == 3).all()


# -- arithmetic --------------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Any], Any]] = {
    "sinf": np.sin, "cosf": np.cos, "tanf": np.tan, "expf": np.exp, "exp2f": np.exp2, "expm1f": np.expm1,
    "sqrtf": np.sqrt, "cbrtf": np.cbrt, "floorf": np.floor, "ceilf": np.ceil, "truncf": np.trunc, "rintf": np.rint,
    "fabsf": np.abs, "tanhf": np.tanh, "atanf": np.arctan, "logf": np.log, "log2f": np.log2, "log10f": np.log10,
    "log1pf": np.log1p, "asinhf": np.arcsinh, "__expf": np.exp, "__sinf": np.sin, "__logf": np.log,
    "rsqrtf": lambda x: 1 / np.sqrt(x), "exp10f": lambda x: 10.0**x, "sinpif": lambda x: np.sin(np.pi * x),
    "erff": np.vectorize(math.erf), "tgammaf": np.vectorize(math.gamma), "__frcp_rn": lambda x: 1 / x,
    "std::sqrt": np.sqrt, "std::abs": np.abs, "exp": np.exp, "abs": np.abs,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "powf": np.power, "atan2f": np.arctan2, "fmodf": np.fmod, "fmaxf": np.maximum, "fminf": np.minimum, "max": np.maximum,
    "min": np.minimum, "hypotf": np.hypot, "__fdividef": np.divide, "copysignf": np.copysign, "__fmul_rn": np.multiply,
    "std::max": np.maximum, "pow": np.power, "fdimf": lambda x, y: np.maximum(x - y, 0),
}  # fmt: skip
MATH = (
    "#include <cmath>\n__global__ void one(float* out, const float* x, int n) { int i = threadIdx.x; float v = x[i];\n"
    + "".join(f"  out[{k} * n + i] = {name}(v);\n" for k, name in enumerate(UNARY))
    + "}\n__global__ void two(float* out, const float* x, const float* y, int n) { int i = threadIdx.x;\n"
    + "".join(f"  out[{k} * n + i] = {name}(x[i], y[i]);\n" for k, name in enumerate(BINARY))
    + r"""}
__global__ void integers(long long* out, const unsigned* x, int n) {
  int i = threadIdx.x; unsigned v = x[i]; int s = (int)v; unsigned long long w = (unsigned long long)v * v;
  out[0 * n + i] = __popc(v);      out[1 * n + i] = __clz(s);        out[2 * n + i] = __ffs(s);
  out[3 * n + i] = __brev(v);      out[4 * n + i] = __mulhi(s, 12345678); out[5 * n + i] = __umulhi(v, v);
  out[6 * n + i] = __popcll(w);    out[7 * n + i] = __clzll(w);      out[8 * n + i] = __float_as_int((float)s);
  out[9 * n + i] = max(s, 7);      out[10 * n + i] = min(v, 7u);     out[11 * n + i] = abs(s);
  out[12 * n + i] = __float2int_rn((float)(s % 1000) / 2); out[13 * n + i] = __byte_perm(v, ~v, 0x7531);
  out[14 * n + i] = __mul24(s, 3); out[15 * n + i] = max((size_t)v, (size_t)9);
}
__global__ void fused(float* out, float a, float b, float c) {
  out[0] = fmaf(a, b, c); out[1] = a * b + c; out[2] = fma(a, b, c);
}
__global__ void specials(int* out, float x) {
  out[0] = isnan(x / x - x / x); out[1] = isinf(1.0f / (x - x)); out[2] = isfinite(x); out[3] = std::isnan(NAN);
  out[4] = INFINITY > FLT_MAX; out[5] = signbit(-x) != 0; out[6] = INT_MAX == 2147483647; out[7] = fmaxf(NAN, x) == x;
  float s, c; sincosf(x, &s, &c); out[8] = s == sinf(x) && c == cosf(x); out[9] = min(NAN, x) == x;
}
"""
)


@pytest.fixture
def maths(compiler: Compiler) -> Library:
    return library(compiler, MATH, "one; two; integers; fused; specials")


def test_mathematical_functions_agree_with_numpy(maths: Library) -> None:
    x = np.linspace(0.1, 3.0, 64).astype("f4")
    out = np.zeros((len(UNARY), 64), "f4")
    maths.run("one", 1, 64, out, x, i32(64))
    for (name, function), row in zip(UNARY.items(), out, strict=True):
        assert np.allclose(row, function(x.astype("f8")), rtol=3e-6, atol=3e-6), name
    y = np.linspace(2.0, -1.0, 64).astype("f4") + f32(0.01)
    out = np.zeros((len(BINARY), 64), "f4")
    maths.run("two", 1, 64, out, x, y, i32(64))
    for (name, pair), row in zip(BINARY.items(), out, strict=True):
        assert np.allclose(row, pair(x.astype("f8"), y.astype("f8")), rtol=3e-6, atol=3e-6), name


def test_integer_functions_are_exact(maths: Library) -> None:
    x = np.random.default_rng(0).integers(0, 2**32, 64).astype(u32)
    x[:3] = [0, 1, 2**31 + 1]
    out = np.zeros((16, 64), i64)
    maths.run("integers", 1, 64, out, x, i32(64))
    for v, row in zip(x.tolist(), out.T.tolist(), strict=True):
        s = v - 2**32 if v >= 2**31 else v
        w = v * v
        other = ~v & 0xFFFFFFFF
        both = other << 32 | v
        low = (s & 0xFFFFFF) - (1 << 24 if s & 0x800000 else 0)
        wanted = [
            v.bit_count(), 32 - v.bit_length(), (v & -v).bit_length(), int(f"{v:032b}"[::-1], 2), s * 12345678 >> 32,
            v * v >> 32, w.bit_count(), 64 - w.bit_length(), int(np.float32(s).view("i4")), max(s, 7), min(v, 7),
            abs(s), round(math.fmod(s, 1000) / 2),
            int(np.uint32(sum((both >> 8 * k & 255) << 8 * n for n, k in enumerate((1, 3, 5, 7))))), low * 3, max(v, 9),
        ]  # fmt: skip
        assert row == [int(np.int64(u)) for u in wanted], v


def test_products_and_sums_are_not_contracted(maths: Library) -> None:
    a, b, c = f32(1 + 2**-12), f32(1 + 2**-12), f32(-1 - 2**-11)
    out = np.zeros(3, "f4")
    maths.run("fused", 1, 1, out, a, b, c)
    assert out.tolist() == [2.0**-24, 0.0, 2.0**-24]


def test_special_values_behave(maths: Library) -> None:
    out = np.zeros(10, i32)
    maths.run("specials", 1, 1, out, f32(1.5))
    assert out.tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]


TYPES = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_complex.h>
__global__ void vectors(float4* x, const float4* y, float3* z, int2* w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = x[i] + y[i] * 2.0f;
  a.w += 1; a *= make_float4(1, 2, 3, 4); a = -a;
  x[i] = a;
  float3 b = {1, 2, (float)i};
  z[i] = b - make_float3(0.5f, 0.5f, 0.5f);
  int2 c = make_int2(i, 2 * i); c += int2(1, 1); c.x = (c == make_int2(i + 1, 2 * i + 1));
  w[i] = c;
}
__global__ void by_value(float* out, float4 v, double2 d, uchar4 c, dim3 e) {
  out[0] = v.x + v.y + v.z + v.w; out[1] = d.x - d.y; out[2] = c.x * c.w; out[3] = e.x * e.y * e.z;
}
__global__ void halves(__half* x, const half* y, float* f) {
  int i = threadIdx.x;
  f[i] = __half2float(x[i]) * (float)y[i];
  x[i] = __hadd(x[i], y[i]) * __float2half(2.0f) + half(1);
}
__global__ void halves2(half2* x) { x[threadIdx.x] = __hadd2(x[threadIdx.x], __float2half2_rn(1.0f)); }
__global__ void native_half(_Float16* x) { x[threadIdx.x] = x[threadIdx.x] * (_Float16)2; }
__global__ void narrow(hip_bfloat16* x, float* f) { int i = threadIdx.x; f[i] = (float)x[i]; x[i] = hip_bfloat16(f[i] * 1.01f); }
__global__ void complexes(hipFloatComplex* x, hipDoubleComplex* y) {
  int i = threadIdx.x;
  x[i] = hipCmulf(x[i], make_hipFloatComplex(0, 1)); y[i] = hipCadd(y[i], hipConj(y[i]));
}
__global__ void bools(bool* b, const signed char* c, unsigned char* u) {
  int i = threadIdx.x; b[i] = !b[i] && c[i] < 0; char k = -1; u[i] = k < 0 ? 1 : 2;
}
__global__ void sizes(int* s) {
  int k = 0;
  s[k++] = sizeof(float3); s[k++] = alignof(float4); s[k++] = sizeof(double4); s[k++] = sizeof(long); s[k++] = sizeof(half2);
  s[k++] = sizeof(uchar4); s[k++] = alignof(uchar4); s[k++] = sizeof(dim3); s[k++] = alignof(float3); s[k++] = sizeof(char1);
}
"""


@pytest.fixture
def types(compiler: Compiler) -> Library:
    names = "vectors; by_value; halves; halves2; native_half; narrow; complexes; bools; sizes"
    return library(compiler, TYPES, names)


def test_vector_types_have_their_operators(types: Library) -> None:
    n = 64
    x, y = numbers(4 * n).reshape(n, 4), numbers(4 * n, 1).reshape(n, 4)
    z, w = np.zeros((n, 3), "f4"), np.zeros((n, 2), i32)
    a = x + y * f32(2)
    a[:, 3] += 1
    wanted = -(a * np.array([1, 2, 3, 4], "f4"))
    types.run("vectors", 2, 32, x, y, z, w)
    i = np.arange(n)
    assert np.array_equal(x, wanted)
    assert np.array_equal(z, np.stack([i * 0 + 0.5, i * 0 + 1.5, i - 0.5], 1))
    assert np.array_equal(w, np.stack([i * 0 + 1, 2 * i + 1], 1))


def test_vectors_go_by_value(types: Library) -> None:
    vector = np.dtype([("v", "f4", 4)]), np.dtype([("v", "f8", 2)]), np.dtype([("v", "u1", 4)]), np.dtype([("v", "u4", 3)])
    values = ([1, 2, 3, 4],), ([5, 0.5],), ([3, 0, 0, 7],), ([2, 3, 4],)
    out = np.zeros(4, "f4")
    types.run("by_value", 1, 1, out, *(np.array(value, kind) for value, kind in zip(values, vector, strict=True)))
    assert out.tolist() == [10, 4.5, 21, 24]


def test_half_precision_rounds_as_numpy_does(types: Library) -> None:
    x, y = numbers(64).astype("f2"), numbers(64, 1).astype("f2")
    f, z = np.zeros(64, "f4"), x.copy()
    types.run("halves", 1, 64, z, y, f)
    assert np.array_equal(f, x.astype("f4") * y.astype("f4"))
    assert np.array_equal(z, (x + y) * np.float16(2) + np.float16(1))
    pairs = x.copy()
    types.run("halves2", 1, 32, pairs)
    assert np.array_equal(pairs, x + np.float16(1))
    types.run("native_half", 1, 64, y)
    assert np.array_equal(y, numbers(64, 1).astype("f2") * np.float16(2))


def test_bfloat16_rounds_to_nearest_even(types: Library) -> None:
    bits = np.random.default_rng(0).integers(0x3000, 0x4800, 64).astype("u2")
    x, f = bits.copy(), np.zeros(64, "f4")
    types.run("narrow", 1, 64, x, f)
    exact = (bits.astype("u4") << 16).view("f4")
    assert np.array_equal(f, exact)
    wide = (exact * f32(1.01)).view("u4").astype("u8")
    assert np.array_equal(x, ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype("u2"))


PAIRS = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
template <class P> __device__ void all(const P* x, const P* y, P* out, bool* both) {
  int i = threadIdx.x;
  P a = x[i], b = y[i], c = a;
  c += b; c *= a; c -= b; c /= b;
  P results[] = {
    a + b, a - b, a * b, a / b, -a, c, __hadd2(a, b), __hsub2(a, b), __hmul2(a, b), __h2div(a, b), __hneg2(a), __habs2(a),
    __hmax2(a, b), __hmin2(a, b), __heq2(a, b), __hne2(a, b), __hlt2(a, b), __hle2(a, b), __hgt2(a, b), __hge2(a, b),
    h2sqrt(__habs2(a)), h2rsqrt(__habs2(a)), h2rcp(a), h2exp(a), h2log(__habs2(a)), h2sin(a), h2cos(a), __hfma2(a, b, a),
    __lowhigh2highlow(a),
  };
  bool holds[] = {__hbeq2(a, b), __hbne2(a, b), __hblt2(a, b), __hble2(a, b), __hbgt2(a, b), __hbge2(a, b)};
  for (int k = 0; k < 29; ++k) out[k * blockDim.x + i] = results[k];
  for (int k = 0; k < 6; ++k) both[k * blockDim.x + i] = holds[k];
}
__global__ void halves(const half2* x, const half2* y, half2* out, bool* both) { all(x, y, out, both); }
typedef __hip_bfloat162 bfloat2;
__global__ void bfloats(const bfloat2* x, const bfloat2* y, bfloat2* out, bool* both) { all(x, y, out, both); }
__global__ void parts(half2* x, __hip_bfloat162* y) {
  half2 a = x[0], b = x[1];
  x[2] = __half2half2(__high2half(a)); x[3] = __low2half2(b); x[4] = __high2half2(b); x[5] = __lows2half2(a, b);
  x[6] = __highs2half2(a, b); x[7] = __float22half2_rn(make_float2(__low2float(a), __high2float(b)));
  __hip_bfloat162 c = y[0];
  y[1] = __halves2bfloat162(__high2bfloat16(c), __low2bfloat16(c)); y[2] = __bfloat162bfloat162(c.y);
  y[3] = __float2bfloat162_rn(__high2float(c)); y[4] = __float22bfloat162_rn(__bfloat1622float2(c));
}
"""


@pytest.mark.parametrize("name", ["halves", "bfloats"])
def test_pairs_are_computed_part_by_part(compiler: Compiler, name: str) -> None:
    n, dtype = 32, np.dtype("f2") if name == "halves" else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    x, y = numbers(2 * n).astype(dtype), numbers(2 * n, 1).astype(dtype)
    y[::3] = x[::3]
    out, both = np.zeros((29, 2 * n), dtype), np.zeros((6, n), bool)
    library(compiler, PAIRS, "halves; bfloats; parts").run(name, 1, n, x, y, out, both)
    a, b = x.astype("f4"), y.astype("f4")
    compared = [a == b, a != b, a < b, a <= b, a > b, a >= b]
    arithmetic = [a + b, a - b, a * b, a / b]
    steps = (((x + y) * x - y) / y).astype("f4")
    functions = [np.sqrt(abs(a)), 1 / np.sqrt(abs(a)), 1 / a, np.exp(a), np.log(abs(a)), np.sin(a), np.cos(a), a * b + a]
    wanted = [*arithmetic, -a, steps, *arithmetic, -a, abs(a), np.maximum(a, b), np.minimum(a, b), *compared, *functions]
    assert np.allclose(out[:-1].astype("f4"), wanted, rtol=0.01, atol=1e-3)
    assert np.array_equal(out[-1], x.reshape(n, 2)[:, ::-1].ravel())
    assert np.array_equal(both, [holds.reshape(n, 2).all(1) for holds in compared])


def test_pairs_are_made_of_parts(compiler: Compiler) -> None:
    x, y = np.arange(16, dtype="f2"), np.zeros(10, pytest.importorskip("ml_dtypes").bfloat16)
    y[:2] = 5, 6
    library(compiler, PAIRS, "halves; bfloats; parts").run("parts", 1, 1, x, y)
    assert x.tolist() == [0, 1, 2, 3, 1, 1, 2, 2, 3, 3, 0, 2, 1, 3, 0, 3]
    assert y.astype("f4").tolist() == [5, 6, 6, 5, 6, 6, 6, 6, 5, 6]


def test_complex_numbers_multiply(types: Library) -> None:
    x = (numbers(32) + 1j * numbers(32, 1)).astype("c8")
    y = (numbers(32) + 1j * numbers(32, 1)).astype("c16")
    wanted_x, wanted_y = x * np.complex64(1j), y + y.conj()
    types.run("complexes", 1, 32, x, y)
    assert np.allclose(x, wanted_x, atol=1e-7)
    assert np.allclose(y, wanted_y)


def test_char_is_signed_and_bool_is_a_byte(types: Library) -> None:
    b, c, u = np.array([0, 0, 1, 1], "?"), np.array([1, -1, 1, -1], "i1"), np.zeros(4, "u1")
    types.run("bools", 1, 4, b, c, u)
    assert b.tolist() == [False, True, False, False]
    assert u.tolist() == [1] * 4


def test_sizes_are_those_of_hip(types: Library) -> None:
    s = np.zeros(10, i32)
    types.run("sizes", 1, 1, s)
    assert s.tolist() == [12, 16, 32, 8, 4, 4, 4, 12, 4, 1]


# -- compiling ---------------------------------------------------------------------------------------------------------


def test_compiler_errors_name_the_users_line(compiler: Compiler) -> None:
    source = "#include <hip/hip_runtime.h>\n\n__global__ void k(float* x) {\n  int i = threadIdx.x;\n  x[i] = nothing;\n}\n"
    with pytest.raises(DeclarationError) as caught:
        compile_kernels(source, ["k"], name="wave.hip", compiler=compiler)
    message = str(caught.value)
    assert "wave.hip:5:" in message
    assert message.count("5 |   x[i] = nothing;") == 1
    assert "nothing" in message
    assert "hgcpu" not in message


def test_warnings_are_kept_with_the_users_lines(compiler: Compiler) -> None:
    source = "__global__ void k(int* x) {\n#warning look here\n  x[0] = 1;\n}\n"
    assert "test.hip:2:" in compile_kernels(source, ["k"], name="test.hip", compiler=compiler).log


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('__global__ void k(int* x) { asm("s_nop 0"); }', "inline assembly of a GPU (asm)"),
        ("#include <hip/hip_cooperative_groups.h>\n__global__ void k(int* x) {}", "line 1: runtime 'cpu' does not support"),
        ("__global__ void k(int* x) { x[0] = __builtin_amdgcn_workitem_id_x(); }", "builtins of one GPU"),
        ("__global__ void j() {}\n__global__ void k(int* x) { j<<<1, 1>>>(); }", "m.hip:2: runtime 'cpu' does not support"),
        ("__global__ void k(int* x) {}\nvoid h() { k<<<1, 1>>>(0); }", "launches of kernels in kernel source, by the host or by"),
        ("__global__ void k(int* x) {}\nhipError_t h();", "HIP's host calls in kernel source (hipError_t)"),
        ("__global__ void k(float* x) { x[0] = tex1Dfetch<float>(0, 0); }", "textures"),
        (
            "__global__ void k(int* x) {}\nint main() { int* x; hipMalloc(&x, 4); }",
            "(hipMalloc); put code of the host into another file, or behind #if !defined(__HIPCC_RTC__)",
        ),
        ('#include "absent.h"\n__global__ void k(int* x) {}', '#include "absent.h" is found in none'),
        ("__global__ void k(int* x);", "has no kernel 'k'; its kernels are none"),
        ("__global__ void other(int* x) {}", "has no kernel 'k'; its kernels are 'other'"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused_by_name(source: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        compile_kernels(source, ["k"], name="m.hip", compiler=compiler_of("clang"))
    assert said in str(caught.value)


def test_code_of_the_host_stands_behind_a_macro(compiler: Compiler) -> None:
    source = r"""
    #if !defined(__HIPCC_RTC__)
    #include <hip/hip_runtime.h>
    #include <iostream>
    #include <vector>
    #endif
    __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
    #if !defined(__HIPCC_RTC__)
    int main() {
        std::vector<float> values(64, 1.0f);
        float* x;
        hipMalloc(&x, 256);
        twice<<<1, 64>>>(x);
        std::cout << values[0];
    }
    #endif
    """
    x = np.arange(64, dtype="f4")
    library(compiler, source, "twice").run("twice", 1, 64, x)
    assert np.array_equal(x, 2 * np.arange(64))


def test_unknown_symbol_is_refused() -> None:
    with pytest.raises(DeclarationError, match="has no variable 'tabel'"):
        compile_kernels("__constant__ int table[4];", [], ["tabel"], compiler=compiler_of("clang"))


def test_headers_of_the_user_and_of_the_library_are_included(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#pragma once\n#define LIMIT 3\n__device__ int id() { return threadIdx.x; }\n")
    source = (
        '#include <algorithm>\n#include <limits>\n#include "mine.h"\n#include "mine.h"\n'
        "__global__ void k(int* x) { x[id()] = std::min(id(), LIMIT) + (std::numeric_limits<int>::max() == 2147483647); }\n"
    )
    built = Library(compile_kernels(source, ["k"], options=[f"-I{tmp_path}", "-DUNUSED"], name="m.hip", compiler=compiler).image)
    x = np.zeros(8, i32)
    built.run("k", 1, 8, x)
    assert x.tolist() == [1, 2, 3, 4, 4, 4, 4, 4]


KINDS_OF_NAMES = """
namespace a {
struct V { int x; };
__device__ int two() { return 2; }
__global__ void k(int* x) { x[threadIdx.x] = two(); }
__global__ void k(const float* y, V* v) { v[threadIdx.x].x = 10 * y[threadIdx.x]; }
template <class T> __global__ void k(T* x, T n) { x[threadIdx.x] = n; }
__global__ void q(int* x);
}
struct R {
    static constexpr int N = 4;
    static __device__ int last(int i) { return N - 1 - i; }
    static __global__ void k(int* x) {
        __shared__ int b[N];
        b[threadIdx.x] = threadIdx.x;
        __syncthreads();
        x[threadIdx.x] = b[last(threadIdx.x)];
    }
};
template <class T, int M = 2> class S {
public:
    static __global__ void k(T* x) { x[threadIdx.x] = M; }
    template <class U> static __global__ void j(T* x, U u) { x[threadIdx.x] = u + M; }
};
__global__ void a::q(int* x) {
    __shared__ int b[4];
    b[threadIdx.x] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = b[3 - threadIdx.x] + 1;
}
"""


@pytest.mark.parametrize("improve", [True, False])
def test_kernels_are_found_by_every_kind_of_name(compiler: Compiler, improve: bool) -> None:
    wanted: dict[str, list[int]] = {
        "a::k(int*)": [2, 2, 2, 2],
        "a::k<int>(int*, int)": [7, 7, 7, 7],
        "a::q": [4, 3, 2, 1],
        "R::k": [3, 2, 1, 0],
        "S<int>::k": [2, 2, 2, 2],
        "S<int, 5>::k": [5, 5, 5, 5],
        "S<int, 5>::j<short>": [12, 12, 12, 12],
    }
    many = "a::k(const float*, a::V*)"
    built = library(compiler, KINDS_OF_NAMES, ";".join([*wanted, many]), improve=improve)
    for name, values in wanted.items():
        x = np.zeros(4, i32)
        more = [np.int32(7)] if "<int>(" in name else [np.int16(7)] if "short" in name else []
        built.run(name, 1, 4, x, *more)
        assert x.tolist() == values, name
    x = np.zeros(4, i32)
    built.run(many, 1, 4, np.arange(4, dtype=f32), x)
    assert x.tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize("header", ["iostream", "array", "ctime", "vector"])
def test_headers_of_the_library_are_included_by_those_of_the_user(header: str, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text(f"#pragma once\n#include <{header}>\n#define THREE 3\n")
    source = '#include "mine.h"\n__global__ void k(int* x) { x[threadIdx.x] = THREE; }\n'
    built = Library(compile_kernels(source, ["k"], options=[f"-I{tmp_path}"], compiler=compiler_of("gcc")).image)
    x = np.zeros(4, i32)
    built.run("k", 1, 4, x)
    assert x.tolist() == [3] * 4


@pytest.mark.parametrize(
    "first", ["", "#define TWO 2\n", "#pragma STDC FP_CONTRACT OFF\n", "#include <cstdint>\n", "#include <ctime>\n"]
)
def test_short_names_of_types_are_types(compiler: Compiler, first: str) -> None:
    source = (
        f"{first}__global__ void k(uint* a, ushort* b, uchar* c, ulong* d, clock_t* e)"
        " { a[0] = -1; b[0] = -1; c[0] = -1; d[0] = -1; e[0] = clock64(); time_t t = -2; e[1] = t; }"
    )
    arrays = [np.zeros(2, dtype) for dtype in ("u4", "u2", "u1", "u8", "i8")]
    library(compiler, source, "k").run("k", 1, 1, *arrays)
    assert [int(array[0]) for array in arrays[:4]] == [2**bits - 1 for bits in (32, 16, 8, 64)]
    assert arrays[4][0] > 0
    assert arrays[4][1] == -2


@pytest.mark.parametrize(
    "attribute", ["__launch_bounds__(8)", "__cluster_dims__(2, 1, 1)", "__block_size__((8, 1, 1))", "__maxnreg__(32)"]
)
def test_attributes_of_kernels_are_taken(compiler: Compiler, attribute: str) -> None:
    x = np.zeros(16, i32)
    source = f"__global__ {attribute} void k(int* x) {{ x[blockIdx.x * 8 + threadIdx.x] = 1 + threadIdx.x; }}"
    library(compiler, source, "k").run("k", 2, 8, x)
    assert x.tolist() == [*range(1, 9)] * 2


@pytest.mark.parametrize("mode", ["fast", "sanitize"])
def test_compile_kernels_links_the_cpp_library_only_where_it_is_needed(mode: Literal["fast", "sanitize"]) -> None:
    plain = "__global__ void k(size_t* x) { x[0] = 1; }"
    calls = 'extern "C" void __cxa_pure_virtual();\n__global__ void k(size_t* x) { x[0] = (size_t)&__cxa_pure_virtual; }'
    one, other = (Library(compile_kernels(text, ["k"], compiler=compiler_of("gcc"), mode=mode).image) for text in (plain, calls))
    assert b"libstdc++.so" not in one.path.read_bytes()
    assert b"libstdc++.so" in other.path.read_bytes()
    x = np.zeros(1, u64)
    other.run("k", 1, 1, x)
    assert x[0] != 0


def test_library_with_more_kernels_serves_for_those_that_are_asked_for(compiler: Compiler, tmp_path: Path) -> None:
    source = "__device__ int value = 3;\n__global__ void a(int* x) { x[0] = value; }\n__global__ void b(int* x) { x[0] = 2; }"

    def path_of(names: str, symbols: str = "", *options: str, text: str = source) -> Path:
        return Library(compile_kernels(text, names.split(), symbols.split(), options, compiler=compiler).image).path

    both = path_of("b a", "value")
    assert path_of("a b", "value") == path_of("a") == path_of("b", "value") == both
    assert path_of("a", "", "-DMORE") != both
    both.unlink()
    assert path_of("a").exists()
    header = tmp_path / "value.h"
    found = set()
    folders = [f"-I{tmp_path}"], ["-iquote", str(tmp_path)]
    for value, options in enumerate((folders[0], folders[0], folders[1], folders[1])):
        header.write_text(f"#define VALUE {value}\n")  # files may change
        found.add(path_of("a", "", *options, text='#include "value.h"\n__global__ void a(int* x) { x[0] = VALUE; }'))
    assert len(found) == 4


def test_options_reach_the_compiler_and_those_of_a_gpu_do_not(compiler: Compiler) -> None:
    options = ["-DVALUE=7", "--offload-arch=gfx942", "-munsafe-fp-atomics", "-std=c++14", "-O2"]
    built = library(compiler, "__global__ void k(int* x) { x[0] = VALUE; }", "k", "", tuple(options))
    x = np.zeros(1, i32)
    built.run("k", 1, 1, x)
    assert x[0] == 7


def test_options_define_macros_of_any_name(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "given.h").write_text("#define GIVEN (N + 100)\n")
    source = """
    #if defined(S) || !defined(R) || !defined(NDEBUG)
    #error "these are not the options"
    #endif
    __global__ void k(int* x) { x[0] = N; x[1] = T(5); x[2] = GIVEN; x[3] = R; assert(false); }"""
    included = ["-include", str(tmp_path / "given.h")]
    options = ["-DN=4", "-D", "T(k)=k * 2", *included, "-D", "S", "-US", "-DR", "-DNDEBUG", "-Dp=q\n#error"]
    built = library(compiler, source, "k", "", tuple(options))
    x = np.zeros(4, i32)
    built.run("k", 1, 1, x)
    assert x.tolist() == [4, 10, 104, 1]


def test_two_modules_with_the_same_names_do_not_meet(compiler: Compiler) -> None:
    template = (
        "__device__ int value = {0}; __device__ int get() {{ return value + {0}; }}\n"
        "__global__ void k(int* x) {{ x[threadIdx.x] = get(); value += 1; }}"
    )
    one = library(compiler, template.format(10), "k", "value")
    two = library(compiler, template.format(20), "k", "value")
    x, y = np.zeros(1, i32), np.zeros(1, i32)
    one.run("k", 1, 1, x)
    two.run("k", 1, 1, y)
    assert (x[0], y[0]) == (20, 40)
    assert (one.symbol("value", "i4")[0], two.symbol("value", "i4")[0]) == (11, 21)


def test_same_source_is_compiled_once(compiler: Compiler) -> None:
    source = "__global__ void k(int* x) { x[0] = 1; }"
    first = compile_kernels(source, ["k"], compiler=compiler)
    assert compile_kernels(source, ["k"], compiler=compiler).image == first.image
    assert first.lowered == {"k": "k"}


UNORDERED = r"""
#include <hip/hip_runtime.h>
__global__ void far(unsigned* seen) { seen[threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x; }
__device__ void sort3(int* v) {
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 2 - a; ++b)
      if (v[b] > v[b + 1]) { int t = v[b]; v[b] = v[b + 1]; v[b + 1] = t; }
}
__global__ void own_arrays(int* z, const int* x) {
  int i = threadIdx.x, v[4] = {x[i], x[i] * 3 % 7, x[i] * 5 % 11, i};
  sort3(v);
  z[i] = v[x[i] & 3] + 100 * v[1];
}
__global__ void acquires(int* z, const int* flags, const int* x) {
  int i = threadIdx.x;
  if (__hip_atomic_load(&flags[i], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) z[i] = x[i];
  if (__atomic_load_n(&flags[i], __ATOMIC_RELAXED) > 1) z[i] += 1;
}
__global__ void y0(int* z) { z[threadIdx.x] = 7; }
"""


@pytest.mark.parametrize("improve", [True, False])
def test_threads_in_no_order_keep_their_own_arrays_and_indices(compiler: Compiler, improve: bool) -> None:
    made = library(compiler, UNORDERED, "far; own_arrays; acquires; y0", improve=improve)
    seen = np.zeros(64, u32)
    for block in (0, 2**25 - 17, 2**25 - 1, 2**25):
        made.run("far", 2**25 + 1, 64, seen, blocks=(block, block + 1))
        assert seen.tolist() == list(range(64 * block, 64 * block + 64))
    x, z = np.arange(64, dtype=i32) * 29 % 31, np.zeros(64, i32)
    made.run("own_arrays", 1, 64, z, x)
    for i, value in enumerate(x.tolist()):
        v = [*sorted([value, value * 3 % 7, value * 5 % 11]), i]
        assert z[i] == v[value & 3] + 100 * v[1]
    z[:], flags = 0, np.arange(64, dtype=i32) % 3
    made.run("acquires", 1, 64, z, flags, x)
    assert z.tolist() == [(flag > 0) * value + (flag > 1) for flag, value in zip(flags.tolist(), x.tolist())]


def test_kernel_may_have_the_name_of_a_function_of_c(compiler: Compiler) -> None:
    z = np.zeros(4, i32)
    library(compiler, UNORDERED, "far; own_arrays; acquires; y0").run("y0", 1, 4, z)
    assert z.tolist() == [7] * 4
