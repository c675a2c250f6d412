"""Public idioms of kernels: `check` reads them whole, blames none, and sees where an array is too short for them."""

from __future__ import annotations

from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.bounds.programs import program_of
from hipgraphdsl.source import trees

SOURCE = r"""
#include <hip/hip_runtime.h>
#define TILE 16
#define BLOCK 256
#define CEIL(a,b) (((a) + (b) - 1) / (b))
#define IDX(i,j,n) ((i) * (n) + (j))
enum { RADIUS = 3 };
constexpr int MASK = 2 * RADIUS + 1;
__constant__ float coefficients[MASK];
__device__ __forceinline__ float clampf(float a, float lo, float hi) { return fminf(fmaxf(a, lo), hi); }
__device__ int wrap(int i, int n) { return (i + n) % n; }
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float a[TILE][TILE], b[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.f;
  for (int t = 0; t < CEIL(n, TILE); ++t) {
    a[threadIdx.y][threadIdx.x] = row < n && t * TILE + threadIdx.x < n ? A[row * n + t * TILE + threadIdx.x] : 0.f;
    b[threadIdx.y][threadIdx.x] = (col < n && t * TILE + threadIdx.y < n) ? B[(t * TILE + threadIdx.y) * n + col] : 0.f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && col < n) C[IDX(row, col, n)] = sum;
}
extern "C" __global__ void convolve(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float tile[BLOCK + 2 * RADIUS];
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  int l = threadIdx.x + RADIUS;
  tile[l] = g < n ? x[g] : 0;
  if (threadIdx.x < RADIUS) {
    tile[l - RADIUS] = g >= RADIUS ? x[g - RADIUS] : 0;
    tile[l + BLOCK] = (g + BLOCK < n) ? x[g + BLOCK] : 0;
  }
  __syncthreads();
  if (g >= n) return;
  float r = 0;
  for (int o = -RADIUS; o <= RADIUS; o++) r += tile[l + o] * coefficients[o + RADIUS];
  y[g] = r;
}
extern "C" __global__ void reduce(const float* x, float* out, unsigned int n) {
  extern __shared__ float s[];
  unsigned int tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
  float v = (i < n) ? x[i] : 0;
  if (i + blockDim.x < n) v += x[i + blockDim.x];
  s[tid] = v;
  __syncthreads();
  for (unsigned int k = blockDim.x / 2; k > 0; k >>= 1) { if (tid < k) s[tid] += s[tid + k]; __syncthreads(); }
  if (tid == 0) out[blockIdx.x] = s[0];
}
extern "C" __global__ void transpose(const float* in, float* out, int w, int h) {
  __shared__ float t[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < w && y + j < h) t[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < h && y + j < w) out[(y + j) * h + x] = t[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void stencil(const float* u, float* v, int nx, int ny) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i <= 0 || j <= 0 || i >= nx - 1 || j >= ny - 1) return;
  const float* row = u + (size_t)j * nx;
  v[(size_t)j * nx + i] = 0.25f * (row[i - 1] + row[i + 1] + row[i - nx] + row[i + nx]);
}
extern "C" __global__ void periodic(const float* u, float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int l = i == 0 ? n - 1 : i - 1, r = (i + 1) % n;
  v[i] = u[l] + u[r] + u[wrap(i - 1, n)];
}
extern "C" __global__ void vec4(const float4* x, float4* y, int n4) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n4; i += (size_t)gridDim.x * blockDim.x) {
    float4 v = x[i]; v.x *= 2; y[i] = v;
  }
}
extern "C" __global__ void tail(float* x, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) { *reinterpret_cast<float4*>(x + i) = make_float4(0, 0, 0, 0); }
  else for (; i < n; ++i) x[i] = 0;
}
extern "C" __global__ void scan(float* x, int n) {
  extern __shared__ float temp[];
  int t = threadIdx.x, pout = 0, pin = 1;
  temp[pout * n + t] = t > 0 ? x[t - 1] : 0;
  __syncthreads();
  for (int o = 1; o < n; o *= 2) {
    pout = 1 - pout; pin = 1 - pout;
    if (t >= o) temp[pout * n + t] = temp[pin * n + t] + temp[pin * n + t - o];
    else temp[pout * n + t] = temp[pin * n + t];
    __syncthreads();
  }
  x[t] = temp[pout * n + t];
}
extern "C" __global__ void bitonic(float* x, int j, int k) {
  unsigned int i = threadIdx.x + blockDim.x * blockIdx.x, ixj = i ^ j;
  if (ixj > i) {
    if ((i & k) == 0) { if (x[i] > x[ixj]) { float t = x[i]; x[i] = x[ixj]; x[ixj] = t; } }
  }
}
extern "C" __global__ void histogram(const unsigned char* x, unsigned int* h, int n) {
  __shared__ unsigned int s[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) s[b] = 0;
  __syncthreads();
  int i = threadIdx.x + blockIdx.x * blockDim.x, stride = blockDim.x * gridDim.x;
  while (i < n) { atomicAdd(&s[x[i]], 1u); i += stride; }
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&h[b], s[b]);
}
extern "C" __global__ void csr(const int* ptr, const int* col, const float* val, const float* x, float* y, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) { float d = 0; for (int k = ptr[r]; k < ptr[r + 1]; k++) d += val[k] * x[col[k]]; y[r] = d; }
}
template <int N, typename T> __global__ void unrolled(T* x, int n) {
  T r[N]; int base = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  #pragma unroll
  for (int k = 0; k < N; ++k) if (base + k < n) r[k] = x[base + k];
  #pragma unroll
  for (int k = N - 1; k >= 0; --k) if (base + k < n) x[base + k] = r[N - 1 - k];
}
extern "C" __global__ void reverse(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int a = i, b = n - 1 - i; a < b; a += gridDim.x * blockDim.x, b -= gridDim.x * blockDim.x) {
    float t = x[a]; x[a] = x[b]; x[b] = t;
  }
}
extern "C" __global__ void warp_sum(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  __shared__ float part[32];
  float v = i < n ? x[i] : 0.f;
  for (int o = 16; o; o >>= 1) v += __shfl_down(v, o);
  if (!lane) part[w] = v;
  __syncthreads();
  if (threadIdx.x < blockDim.x / 32) y[blockIdx.x * (blockDim.x >> 5) + threadIdx.x] = part[threadIdx.x];
}
extern "C" __global__ void down(float* x, int n) { for (unsigned i = n; i-- > 0;) x[i] = 1; }
extern "C" __global__ void pointer_walk(const float* x, float* y, int n) {
  const float* e = x + n; float* o = y; while (x < e) *o++ = *x++;
}
"""

N = 1000
F, S, U = "float32", "int32", "uint32"
# Kernel, grid, block, dynamic shared memory, arguments: an array is its length and its type.
LAUNCHES: list[tuple[str, Any, Any, int, tuple[Any, ...]]] = [
    ("matmul", (3, 3), (16, 16), 0, ((1600, F), (1600, F), (1600, F), 40)),
    ("convolve", 4, 256, 0, ((N, F), (N, F), N)),
    ("reduce", 2, 256, 1024, ((N, F), (2, F), N)),
    ("transpose", (3, 2), (32, 8), 0, ((3500, F), (3500, F), 70, 50)),
    ("stencil", (3, 3), (16, 16), 0, ((1599, F), (1559, F), 40, 40)),  # no corner is read, and no border written
    ("periodic", 4, 256, 0, ((N, F), (N, F), N)),
    ("vec4", 2, 64, 0, ((N, F), (N, F), 250)),
    ("tail", 1, 256, 0, ((1003, F), 1003)),
    ("scan", 1, 128, 1024, ((128, F), 128)),
    ("bitonic", 1, 64, 0, ((64, F), 32, 64)),
    ("histogram", 3, 64, 0, ((5000, "uint8"), (256, U), 5000)),
    ("csr", 1, 64, 0, ((41, S), (99, S), (99, F), (N, F), (40, F), 40)),
    ("unrolled<4, float>", 1, 256, 0, ((N, F), N)),
    ("reverse", 1, 64, 0, ((N, F), N)),
    ("warp_sum", 4, 256, 0, ((N, F), (32, F), N)),
    ("down", 1, 1, 0, ((60, F), 60)),
    ("pointer_walk", 1, 1, 0, ((N, F), (N, F), N)),
]
# What depends on what memory holds, or on more than is followed.
UNSEEN = {"csr": {1, 2, 3}, "pointer_walk": {0, 1}}


@pytest.fixture(scope="module")
def module() -> hg.Module:
    return hg.Module(SOURCE, name="idioms")


def blamed(module: hg.Module, launch: tuple[str, Any, Any, int, tuple[Any, ...]], short: int = -1) -> bool:
    """Check a launch, one of whose arrays may be too short by as much as its elements allow."""
    name, grid, block, shared, given = launch
    g = hg.Graph("demo")
    args = []
    for n, arg in enumerate(given):
        if isinstance(arg, tuple):
            lanes = 4 if name == "vec4" else 1
            arg = g.device_array(f"a{n}", shape=arg[0] - lanes * (n == short), dtype=arg[1])
        args.append(arg)
    g.kernel(module[name], grid, block, args, shared_bytes=shared)
    return "HG409" in g.check().codes


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch[0])
def test_idioms_are_read_whole_and_not_blamed(module: hg.Module, launch: tuple[str, Any, Any, int, tuple[Any, ...]]) -> None:
    program = program_of(module[launch[0]])
    assert program is not None
    assert not [part for part in trees.walk(program.body) if isinstance(part, trees.Unread)]
    assert not blamed(module, launch)


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch[0])
def test_arrays_that_are_too_short_for_idioms_are_found(
    module: hg.Module, launch: tuple[str, Any, Any, int, tuple[Any, ...]]
) -> None:
    arrays = {n for n, arg in enumerate(launch[4]) if isinstance(arg, tuple)}
    found = {n for n in arrays if blamed(module, launch, n)}
    assert found == arrays - UNSEEN.get(launch[0], set())
