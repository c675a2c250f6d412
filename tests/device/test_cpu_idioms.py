"""Idioms of public HIP and CUDA code, written anew, compute on the CPU what NumPy or a plain loop does.

Each says in which kind of public source it is common. The kernels of one section are one module, so the compiler is started once
for each.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device.test_cpu_kernels import compiler, f32, f64, i32, i64, library, u32, u64  # noqa: F401

from hipgraphdsl.compiler import Compiler

Array = np.ndarray[Any, Any]
u8, u16, f16 = np.uint8, np.uint16, np.float16


class Run:
    """Launches kernels of a module; plain numbers are int and float."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, name: str, grid: Any, block: Any, *args: Any, shared_bytes: int = 0) -> None:
        given = [i32(a) if type(a) is int else f32(a) if type(a) is float else a for a in args]
        self.module.run(name, grid, block, *given, shared_bytes=shared_bytes)


IDIOMS: dict[str, tuple[str, Callable[[Run], None]]] = {}


def idiom(source: str, where: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Name a test after its idiom; `where` is the kind of source that it is common in."""
    assert where

    def add(test: Callable[[Run], None]) -> Callable[[Run], None]:
        IDIOMS[test.__name__] = source, test
        return test

    return add


@functools.cache
def kernels_of(source: str) -> str:
    plain = re.findall(
        r"^(?!.*template)\s*(?:extern \"C\" )?__global__ (?:__launch_bounds__\(\d+\) )?void (\w+)\(", source, re.MULTILINE
    )
    return "; ".join([*plain, *re.findall(r"^// instance (.+)$", source, re.MULTILINE)])


def ints(n: int, seed: int = 0, low: int = -50, high: int = 50) -> Array:
    return np.random.default_rng(seed).integers(low, high, n).astype(i32)


def reals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def zeros(n: int, dtype: Any = i32) -> Array:
    return np.zeros(n, dtype)


def same(got: Array, wanted: Any) -> None:
    np.testing.assert_array_equal(got, np.asarray(wanted).reshape(got.shape))


def near(got: Array, wanted: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, np.asarray(wanted).reshape(got.shape), rtol, atol)


# -- reductions ------------------------------------------------------------------------------------------------------------

REDUCTIONS = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#define WARP_FULL 0xffffffffffffffffull
#define DIVUP(a, b) (((a) + (b) - 1) / (b))
__global__ void interleaved(int* out, const int* x, int n) {
  extern __shared__ int sdata[];
  unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
  sdata[tid] = i < n ? x[i] : 0;
  __syncthreads();
  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    if (tid % (2 * s) == 0) sdata[tid] += sdata[tid + s];
    __syncthreads();
  }
  if (tid == 0) out[blockIdx.x] = sdata[0];
}
template <unsigned int blockSize> __global__ void unrolled(int* out, const int* x, unsigned n) {
  __shared__ int sdata[blockSize];
  unsigned tid = threadIdx.x, i = blockIdx.x * (blockSize * 2) + tid, gridSize = blockSize * 2 * gridDim.x;
  int mine = 0;
  while (i < n) { mine += x[i]; if (i + blockSize < n) mine += x[i + blockSize]; i += gridSize; }
  sdata[tid] = mine;
  __syncthreads();
  if (blockSize >= 512) { if (tid < 256) sdata[tid] = mine = mine + sdata[tid + 256]; __syncthreads(); }
  if (blockSize >= 256) { if (tid < 128) sdata[tid] = mine = mine + sdata[tid + 128]; __syncthreads(); }
  if (blockSize >= 128) { if (tid < 64) sdata[tid] = mine = mine + sdata[tid + 64]; __syncthreads(); }
  if (tid < 32) {
    if (blockSize >= 64) mine += sdata[tid + 32];
    for (int o = 16; o > 0; o /= 2) mine += __shfl_down(mine, o, 32);
  }
  if (tid == 0) atomicAdd(out, mine);
}
// instance unrolled<256>
// instance unrolled<512>
template <class T> __device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
  for (int mask = warpSize / 2; mask > 0; mask >>= 1) v += __shfl_xor(v, mask);
  return v;
}
template <class T> __device__ T block_sum(T v) {
  static __shared__ T part[32];
  int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
  v = warp_sum(v);
  if (lane == 0) part[wid] = v;
  __syncthreads();
  v = threadIdx.x < DIVUP(blockDim.x, warpSize) ? part[lane] : T(0);
  if (wid == 0) v = warp_sum(v);
  return v;
}
__global__ void by_warps(double* out, const float* x, int n) {
  double sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += x[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__device__ unsigned int retired = 0;
__global__ void last_block(float* out, float* part, const float* x, int n) {
  __shared__ bool last;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sum;
    __threadfence();
    unsigned ticket = atomicInc(&retired, gridDim.x);
    last = ticket == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    float all = threadIdx.x < gridDim.x ? part[threadIdx.x] : 0.0f;
    all = block_sum(all);
    if (threadIdx.x == 0) { *out = all; retired = 0; }
  }
}
struct Max { static __device__ int unit() { return INT_MIN; } __device__ int operator()(int a, int b) const
    { return a > b ? a : b; } };
struct Min { static __device__ int unit() { return INT_MAX; } __device__ int operator()(int a, int b) const
    { return a < b ? a : b; } };
template <int BLOCK, typename Op> __global__ void extreme(int* out, const int* x, int n, Op) {
  __shared__ int s[BLOCK];
  Op op;
  int v = Op::unit();
  for (int i = threadIdx.x; i < n; i += BLOCK) v = op(v, x[i]);
  s[threadIdx.x] = v;
  for (int half = BLOCK / 2; half; half >>= 1) {
    __syncthreads();
    if (threadIdx.x < half) s[threadIdx.x] = op(s[threadIdx.x], s[threadIdx.x + half]);
  }
  if (!threadIdx.x) *out = s[0];
}
// instance extreme<128, Max>
// instance extreme<64, Min>
struct Best { float value; int at; };
__device__ Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a; }
__global__ void arg_max(int* out, const float* x, int n) {
  __shared__ Best warps[16];
  Best mine = {-INFINITY, INT_MAX};
  for (int i = threadIdx.x; i < n; i += blockDim.x) mine = better(mine, Best{x[i], i});
  for (int o = warpSize / 2; o > 0; o >>= 1) {
    Best other;
    other.value = __shfl_down(mine.value, o);
    other.at = __shfl_down(mine.at, o);
    mine = better(mine, other);
  }
  if (threadIdx.x % warpSize == 0) warps[threadIdx.x / warpSize] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < blockDim.x / warpSize; ++w) mine = better(mine, warps[w]);
    *out = mine.at;
  }
}
struct Welford { float n, mean, m2; };
__device__ Welford merged(const Welford& a, const Welford& b) {
  float n = a.n + b.n;
  if (n == 0) return a;
  float d = b.mean - a.mean;
  return {n, a.mean + d * b.n / n, a.m2 + b.m2 + d * d * a.n * b.n / n};
}
__global__ void welford(float2* out, const float* x, int n) {
  __shared__ Welford s[128];
  Welford w = {0, 0, 0};
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    w.n += 1;
    float d = x[i] - w.mean;
    w.mean += d / w.n;
    w.m2 += d * (x[i] - w.mean);
  }
  s[threadIdx.x] = w;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) {
    if (threadIdx.x < h) s[threadIdx.x] = merged(s[threadIdx.x], s[threadIdx.x + h]);
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = make_float2(s[0].mean, s[0].m2 / s[0].n);
}
__global__ void dot4(float* out, const float4* a, const float4* b, int n4) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
    float4 p = a[i], q = b[i];
    sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}
__device__ double add_by_cas(double* address, double value) {
  unsigned long long* word = (unsigned long long*)address;
  unsigned long long old = *word, assumed;
  do { assumed = old; old = atomicCAS(word, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
      } while (assumed != old);
  return __longlong_as_double(old);
}
__global__ void cas_sum(double* out, const double* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)
    add_by_cas(out, x[i]); }
__global__ void votes(int* out, const int* x) {
  int v = x[blockIdx.x * blockDim.x + threadIdx.x];
  int all = __syncthreads_and(v > -40), any = __syncthreads_or(v == 7), count = __syncthreads_count(v & 1);
  if (threadIdx.x == 0) { out[3 * blockIdx.x] = all != 0; out[3 * blockIdx.x + 1] = any != 0; out[3 * blockIdx.x + 2] = count; }
}
__global__ void by_key(int* sums, int* counts, const int* keys, const int* values, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(sums + keys[i], values[i]);
  atomicAdd(&counts[keys[i]], 1);
}
__global__ void tiles16(int* out, const int* x) {
  int tile = threadIdx.x / 16, v = x[threadIdx.x];
  for (int o = 8; o; o >>= 1) v += __shfl_down(v, o, 16);
  if (threadIdx.x % 16 == 0) out[tile] = v;
}
__global__ void norm2(float* out, const float* x, int n) {
  __shared__ float s[64];
  float v = 0;
  for (int i = threadIdx.x; i < n; i += 64) v = fmaf(x[i], x[i], v);
  s[threadIdx.x] = v; __syncthreads();
  for (int o = 32; o; o /= 2) { if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x ^ o]; __syncthreads(); }
  if (threadIdx.x == 0) out[0] = sqrtf(s[0]);
}
__global__ void kahan(float* out, const float* x, int n) {
  float sum = 0, c = 0;
  for (int i = 0; i < n; ++i) { float y = x[i] - c, t = sum + y; c = (t - sum) - y; sum = t; }
  *out = sum;
}
"""


@idiom(REDUCTIONS, "parallel reduction tutorials")
def interleaved_addressing(run: Run) -> None:
    x, out = ints(1000), zeros(4)
    run("interleaved", 4, 256, out, x, 1000, shared_bytes=1024)
    same(out, np.add.reduceat(x, [0, 256, 512, 768]))


@idiom(REDUCTIONS, "parallel reduction tutorials, templates on the block size")
def unrolled_templates(run: Run) -> None:
    x = ints(5000)
    for block in (256, 512):
        out = zeros(1)
        run(f"unrolled<{block}>", 3, block, out, x, u32(5000))
        same(out, x.sum())


@idiom(REDUCTIONS, "PyTorch, ggml: warp sums, then one warp")
def block_of_warps(run: Run) -> None:
    x, out = reals(3000), zeros(3, f64)
    run("by_warps", 3, 320, out, x, 3000)
    near(np.array(out.sum()), x.astype(f64).sum())


@idiom(REDUCTIONS, "threadFenceReduction samples")
def last_block_done(run: Run) -> None:
    x, out, part = reals(4000), zeros(1, f32), zeros(8, f32)
    for _ in range(2):
        run("last_block", 8, 128, out, part, x, 4000)
        near(out, x.sum(dtype=f64), 1e-4, 1e-3)


@idiom(REDUCTIONS, "thrust-like functors as template arguments")
def functors_for_extremes(run: Run) -> None:
    x, out = ints(777, 3), zeros(1)
    run("extreme<128, Max>", 1, 128, out, x, 777, np.uint8(0))
    same(out, x.max())
    run("extreme<64, Min>", 1, 64, out, x, 777, np.uint8(0))
    same(out, x.min())


@idiom(REDUCTIONS, "argmax of samplers, a struct by two shuffles")
def argmax_of_pairs(run: Run) -> None:
    x, out = np.round(reals(2000), 1), zeros(1)
    run("arg_max", 1, 256, out, x, 2000)
    same(out, x.argmax())


@idiom(REDUCTIONS, "batch normalisation: Welford's merge")
def variance_by_merging(run: Run) -> None:
    x, out = reals(1500) + 100, zeros(2, f32)
    run("welford", 1, 128, out, x, 1500)
    near(out, [x.mean(dtype=f64), x.var(dtype=f64)], 1e-3)


@idiom(REDUCTIONS, "BLAS-like dot products with float4 loads")
def dot_of_vectors(run: Run) -> None:
    a, b, out = reals(4096), reals(4096, seed=1), zeros(1, f32)
    run("dot4", 2, 256, out, a, b, 1024)
    near(out, a.astype(f64) @ b, 1e-3, 1e-3)


@idiom(REDUCTIONS, "programming guides: atomicAdd of doubles by atomicCAS")
def double_by_compare_and_swap(run: Run) -> None:
    x, out = reals(500).astype(f64), zeros(1, f64)
    run("cas_sum", 2, 256, out, x, 500)
    near(out, x.sum())


@idiom(REDUCTIONS, "convergence tests with __syncthreads_and, _or and _count")
def votes_of_a_block(run: Run) -> None:
    x, out = ints(384, 5), zeros(9)
    run("votes", 3, 128, out, x)
    same(out, [[(b > -40).all(), (b == 7).any(), (b & 1).sum()] for b in x.reshape(3, 128)])


@idiom(REDUCTIONS, "data frames: sums by key")
def sums_by_key(run: Run) -> None:
    keys, values, sums, counts = ints(900, 1, 0, 10), ints(900, 2), zeros(10), zeros(10)
    run("by_key", 4, 256, sums, counts, keys, values, 900)
    same(sums, np.bincount(keys, values, 10).astype(int))
    same(counts, np.bincount(keys, minlength=10))


@idiom(REDUCTIONS, "cooperative tiles of 16, as shuffles with a width")
def tiles_by_width(run: Run) -> None:
    x, out = ints(128), zeros(8)
    run("tiles16", 1, 128, out, x)
    same(out, x.reshape(8, 16).sum(1))


@idiom(REDUCTIONS, "solvers: norms with partners by xor")
def norm_of_a_vector(run: Run) -> None:
    x, out = reals(333), zeros(1, f32)
    run("norm2", 1, 64, out, x, 333)
    near(out, np.linalg.norm(x.astype(f64)))


@idiom(REDUCTIONS, "compensated sums")
def kahan_summation(run: Run) -> None:
    x, out = (reals(3000) * 1000 + 12345).astype(f32), zeros(1, f32)
    run("kahan", 1, 1, out, x, 3000)
    near(out, x.sum(dtype=f64), 1e-7)


# -- scans and compaction --------------------------------------------------------------------------------------------------

SCANS = r"""
#include <hip/hip_runtime.h>
__global__ void hillis_steele(int* out, const int* x, int n) {
  extern __shared__ int temp[];
  int t = threadIdx.x, pout = 0, pin = 1;
  temp[pout * n + t] = t > 0 ? x[t - 1] : 0;
  __syncthreads();
  for (int offset = 1; offset < n; offset *= 2) {
    pout = 1 - pout; pin = 1 - pout;
    if (t >= offset) temp[pout * n + t] = temp[pin * n + t] + temp[pin * n + t - offset];
    else temp[pout * n + t] = temp[pin * n + t];
    __syncthreads();
  }
  out[t] = temp[pout * n + t];
}
#define LOG_BANKS 5
#define CONFLICT_FREE(n) ((n) >> LOG_BANKS)
__global__ void blelloch(int* out, const int* x, int n) {
  extern __shared__ int s[];
  int t = threadIdx.x, offset = 1, ai = t, bi = t + n / 2;
  s[ai + CONFLICT_FREE(ai)] = x[ai];
  s[bi + CONFLICT_FREE(bi)] = x[bi];
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) {
      int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
      a += CONFLICT_FREE(a); b += CONFLICT_FREE(b);
      s[b] += s[a];
    }
    offset *= 2;
  }
  if (t == 0) s[n - 1 + CONFLICT_FREE(n - 1)] = 0;
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
      a += CONFLICT_FREE(a); b += CONFLICT_FREE(b);
      int old = s[a]; s[a] = s[b]; s[b] += old;
    }
  }
  __syncthreads();
  out[ai] = s[ai + CONFLICT_FREE(ai)];
  out[bi] = s[bi + CONFLICT_FREE(bi)];
}
__device__ __forceinline__ int warp_scan(int v) {
  const int lane = threadIdx.x & (warpSize - 1);
#pragma unroll
  for (int d = 1; d < warpSize; d <<= 1) { int up = __shfl_up(v, d); if (lane >= d) v += up; }
  return v;
}
__global__ void scan_by_warps(int* out, int* sums, const int* x, int n) {
  __shared__ int warps[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
  int v = warp_scan(i < n ? x[i] : 0);
  if (lane == warpSize - 1) warps[wid] = v;
  __syncthreads();
  if (wid == 0) { int w = lane < blockDim.x / warpSize ? warps[lane] : 0; w = warp_scan(w); if (lane < 32) warps[lane] = w; }
  __syncthreads();
  if (wid > 0) v += warps[wid - 1];
  if (i < n) out[i] = v;
  if (sums && threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = v;
}
__global__ void add_sums(int* out, const int* sums, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x > 0 && i < n) out[i] += sums[blockIdx.x - 1];
}
__global__ void segmented(int* out, const int* x, const int* heads) {
  __shared__ int v[128], f[128];
  int t = threadIdx.x;
  v[t] = x[t]; f[t] = heads[t];
  for (int d = 1; d < 128; d *= 2) {
    __syncthreads();
    int left = 0, flag = 0;
    if (t >= d) { left = v[t - d]; flag = f[t - d]; }
    __syncthreads();
    if (t >= d) { if (!f[t]) v[t] += left; f[t] |= flag; }
  }
  out[t] = v[t];
}
__global__ void compact_by_ballot(int* out, int* count, const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
  bool keep = i < n && x[i] > 0;
  unsigned long long kept = __ballot(keep);
  int base = 0;
  if (lane == 0 && kept) base = atomicAdd(count, __popcll(kept));
  base = __shfl(base, 0);
  if (keep) out[base + __popcll(kept & ((1ull << lane) - 1))] = x[i];
}
__device__ int aggregated(int* counter) {
  unsigned long long active = __activemask();
  int lane = __lane_id(), leader = __ffsll(active) - 1, rank = __popcll(active & ((1ull << lane) - 1)), base;
  if (rank == 0) base = atomicAdd(counter, __popcll(active));
  return __shfl(base, leader) + rank;
}
__global__ void filter_aggregated(int* out, int* count, const int* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    if (x[i] % 3 == 0) out[aggregated(count)] = x[i];
}
__global__ void compact_in_shared(int* out, int* total, const int* x, int n) {
  __shared__ int count, base;
  __shared__ int kept[256];
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && (x[i] & 1)) kept[atomicAdd(&count, 1)] = x[i];
  __syncthreads();
  if (threadIdx.x == 0) base = atomicAdd(total, count);
  __syncthreads();
  for (int k = threadIdx.x; k < count; k += blockDim.x) out[base + k] = kept[k];
}
__global__ void split_by_bit(unsigned* out, const unsigned* x, int bit) {
  __shared__ int zeros[256];
  int t = threadIdx.x, n = blockDim.x;
  unsigned v = x[t];
  int is_zero = !(v >> bit & 1);
  zeros[t] = is_zero;
  for (int d = 1; d < n; d <<= 1) {
    __syncthreads();
    int add = t >= d ? zeros[t - d] : 0;
    __syncthreads();
    zeros[t] += add;
  }
  __syncthreads();
  int before = zeros[t] - is_zero, all = zeros[n - 1];
  out[is_zero ? before : all + t - before] = v;
}
__global__ void run_heads(int* heads, const int* x, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) heads[i] = i == 0 || x[i] != x[i - 1];
}
__global__ void run_lengths(int* values, int* starts, const int* x, const int* heads, const int* places, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n && heads[i]) { values[places[i] - 1] = x[i]; starts[places[i] - 1] = i; }
}
__global__ void moving_sum(int* out, const int* sums, int n, int width) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i + width <= n) out[i] = sums[i + width - 1] - (i ? sums[i - 1] : 0);
}
__global__ void bits_before(unsigned long long* out, const unsigned char* flags) {
  unsigned long long mine = __ballot(flags[threadIdx.x]);
  out[threadIdx.x] = __popcll(mine << (63 - threadIdx.x % 64));
}
__global__ void max_scan(int* out, const int* x) {
  int v = x[threadIdx.x];
  for (int d = 1; d < 32; d *= 2) { int o = __shfl_up(v, d, 32); if ((threadIdx.x & 31) >= d) v = max(v, o); }
  out[threadIdx.x] = v;
}
"""


@idiom(SCANS, "scan samples: double buffer in shared memory")
def naive_scan(run: Run) -> None:
    x, out = ints(128), zeros(128)
    run("hillis_steele", 1, 128, out, x, 128, shared_bytes=1024)
    same(out, np.cumsum(x) - x)


@idiom(SCANS, "GPU Gems: work-efficient scan without bank conflicts")
def work_efficient_scan(run: Run) -> None:
    x, out = ints(256), zeros(256)
    run("blelloch", 1, 128, out, x, 256, shared_bytes=2048)
    same(out, np.cumsum(x) - x)


@idiom(SCANS, "scan of scans, added by a second kernel")
def scan_in_two_levels(run: Run) -> None:
    x, out, sums, total = ints(1000), zeros(1000), zeros(4), zeros(4)
    run("scan_by_warps", 4, 256, out, sums, x, 1000)
    run("scan_by_warps", 1, 64, total, u64(0), sums, 4)
    run("add_sums", 4, 256, out, total, 1000)
    same(out, np.cumsum(x))


@idiom(SCANS, "segmented scans of sparse kernels")
def segmented_scan(run: Run) -> None:
    x, heads, out = ints(128), (ints(128, 1) > 30).astype(i32), zeros(128)
    run("segmented", 1, 128, out, x, heads)
    wanted, value = [], 0
    for v, head in zip(x.tolist(), heads.tolist()):
        value = v if head else value + v
        wanted.append(value)
    same(out, wanted)


@idiom(SCANS, "stream compaction by ballot and popcount")
def compaction_by_ballot(run: Run) -> None:
    x, out, count = ints(500), zeros(500), zeros(1)
    run("compact_by_ballot", 2, 256, out, count, x, 500)
    same(count, (x > 0).sum())
    same(np.sort(out[: count[0]]), np.sort(x[x > 0]))


@idiom(SCANS, "warp-aggregated atomics in a grid-stride loop")
def filter_by_aggregation(run: Run) -> None:
    x, out, count = ints(700), zeros(700), zeros(1)
    run("filter_aggregated", 2, 128, out, count, x, 700)
    same(count, (x % 3 == 0).sum())
    same(np.sort(out[: count[0]]), np.sort(x[x % 3 == 0]))


@idiom(SCANS, "particle filters: compaction through shared memory")
def compaction_in_shared_memory(run: Run) -> None:
    x, out, count = ints(600), zeros(600), zeros(1)
    run("compact_in_shared", 3, 256, out, count, x, 600)
    same(np.sort(out[: count[0]]), np.sort(x[x & 1 == 1]))


@idiom(SCANS, "radix sort, one bit a pass")
def radix_sort_by_bits(run: Run) -> None:
    x = np.random.default_rng(1).integers(0, 256, 200).astype(u32)
    a, b = x.copy(), np.zeros_like(x)
    for bit in range(8):
        run("split_by_bit", 1, 200, b, a, bit)
        a, b = b, a
    same(a, np.sort(x))


@idiom(SCANS, "run-length encoding by heads and a scan")
def run_length_encoding(run: Run) -> None:
    x = np.repeat(ints(60, 2, 0, 4), np.random.default_rng(0).integers(1, 6, 60))[:180].astype(i32)
    n = len(x)
    heads, places, values, starts = zeros(n), zeros(n), zeros(n), zeros(n)
    run("run_heads", 1, 256, heads, x, n)
    run("scan_by_warps", 1, 256, places, u64(0), heads, n)
    run("run_lengths", 1, 256, values, starts, x, heads, places, n)
    wanted = np.flatnonzero(np.diff(x, prepend=x[0] - 1))
    same(starts[: len(wanted)], wanted)
    same(values[: len(wanted)], x[wanted])


@idiom(SCANS, "moving sums from prefix sums")
def moving_sums(run: Run) -> None:
    x, out = ints(100), zeros(94)
    run("moving_sum", 1, 128, out, np.cumsum(x).astype(i32), 100, 7)
    same(out, np.convolve(x, np.ones(7, int), "valid"))


@idiom(SCANS, "ranks of set bits in a warp")
def ranks_by_popcount(run: Run) -> None:
    flags, out = (ints(128) > 0).astype(u8), zeros(128, u64)
    run("bits_before", 1, 128, out, flags)
    same(out, np.cumsum(flags.reshape(2, 64), axis=1))


@idiom(SCANS, "prefix maximum by shuffles")
def maximum_scan(run: Run) -> None:
    x, out = ints(96), zeros(96)
    run("max_scan", 1, 96, out, x)
    same(out, np.maximum.accumulate(x.reshape(3, 32), axis=1))


# -- atomics, histograms, graphs -------------------------------------------------------------------------------------------

ATOMICS = r"""
#include <hip/hip_runtime.h>
#define BINS 64
__global__ void histogram(unsigned* bins, const unsigned char* x, int n) {
  __shared__ unsigned local[BINS];
  for (int b = threadIdx.x; b < BINS; b += blockDim.x) local[b] = 0;
  __syncthreads();
  int stride = blockDim.x * gridDim.x;
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += stride) atomicAdd(&local[x[i] % BINS], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < BINS; b += blockDim.x) if (local[b]) atomicAdd(&bins[b], local[b]);
}
__global__ void histogram_of_warps(unsigned* bins, const uchar4* x, int n4) {
  __shared__ unsigned local[4][BINS];
  unsigned* mine = local[threadIdx.x / 32];
  for (int b = threadIdx.x % 32; b < BINS; b += 32) mine[b] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    uchar4 v = x[i];
    atomicAdd(mine + v.x % BINS, 1u); atomicAdd(mine + v.y % BINS, 1u); atomicAdd(mine + v.z % BINS, 1u);
        atomicAdd(mine + v.w % BINS, 1u);
  }
  __syncthreads();
  if (threadIdx.x < BINS) { unsigned sum = 0; for (auto& row : local) sum += row[threadIdx.x]; bins[threadIdx.x] = sum; }
}
__device__ __forceinline__ float atomicMaxFloat(float* address, float value) {
  return value >= 0 ? __int_as_float(atomicMax((int*)address, __float_as_int(value)))
                    : __uint_as_float(atomicMin((unsigned*)address, __float_as_uint(value)));
}
__global__ void float_max(float* out, const float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)
    atomicMaxFloat(out, x[i]); }
__device__ unsigned ordered(float f) { unsigned u = __float_as_uint(f); return u & 0x80000000u ? ~u : u | 0x80000000u; }
__global__ void packed_min(unsigned long long* best, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMin(best, (unsigned long long)ordered(x[i]) << 32 | (unsigned)i);
}
__global__ void linked_lists(int* heads, int* next, const int* key, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) next[i] = atomicExch(&heads[key[i]], i);
}
__device__ unsigned hash(unsigned x) { x ^= x >> 16; x *= 0x85ebca6bu; x ^= x >> 13; x *= 0xc2b2ae35u; x ^= x >> 16; return x; }
#define EMPTY 0xffffffffu
__global__ void table_insert(unsigned* keys, unsigned* values, const unsigned* k, int n, unsigned capacity) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned slot = hash(k[i]) & (capacity - 1);
  while (true) {
    unsigned before = atomicCAS(&keys[slot], EMPTY, k[i]);
    if (before == EMPTY || before == k[i]) { atomicAdd(&values[slot], 1u); return; }
    slot = (slot + 1) & (capacity - 1);
  }
}
__global__ void table_find(unsigned* out, const unsigned* keys, const unsigned* values, const unsigned* k, int n,
    unsigned capacity) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned slot = hash(k[i]) & (capacity - 1);
  for (;; slot = (slot + 1) & (capacity - 1)) {
    if (keys[slot] == k[i]) { out[i] = values[slot]; break; }
    if (keys[slot] == EMPTY) { out[i] = 0; break; }
  }
}
__device__ int find_root(const int* parent, int i) { while (parent[i] != i) i = parent[i]; return i; }
__global__ void hook(int* parent, const int2* edges, int n, int* changed) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= n) return;
  int a = find_root(parent, edges[e].x), b = find_root(parent, edges[e].y);
  while (a != b) {
    if (a < b) { int t = a; a = b; b = t; }
    int old = atomicMin(&parent[a], b);
    if (old == a) break;
    a = find_root(parent, old); b = find_root(parent, b);
    *changed = 1;
  }
}
__global__ void flatten(int* parent, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)
    parent[i] = find_root(parent, i); }
__global__ void bfs(int* level, int* next, int* next_count, const int* front, int count, const int* offsets,
    const int* columns, int depth) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int u = front[i];
  for (int e = offsets[u]; e < offsets[u + 1]; ++e)
    if (atomicCAS(&level[columns[e]], -1, depth) == -1) next[atomicAdd(next_count, 1)] = columns[e];
}
__global__ void degrees(int* degree, const int2* edges, int n) { int e = blockIdx.x * blockDim.x + threadIdx.x; if (e < n)
    atomicAdd(&degree[edges[e].x], 1); }
__global__ void ring(unsigned* slots, unsigned* head, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&slots[atomicInc(head, 6u)], 1u);
}
__global__ void bit_set(unsigned* words, const int* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicOr(&words[x[i] >> 5], 1u << (x[i] & 31));
}
__global__ void relax(int* distance, const int* from, const int* to, const int* weight, int n, int* changed) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < n && distance[from[e]] != INT_MAX) {
    int d = distance[from[e]] + weight[e];
    if (d < atomicMin(&distance[to[e]], d)) atomicExch(changed, 1);
  }
}
__global__ void pagerank(float* out, const float* rank, const int* offsets, const int* columns, const int* degree, int n,
    float damping) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  float sum = 0;
  for (int e = offsets[v]; e < offsets[v + 1]; e++) sum += rank[columns[e]] / degree[columns[e]];
  out[v] = (1 - damping) / n + damping * sum;
}
__global__ void triangles(unsigned long long* count, const int* offsets, const int* columns, int n) {
  int u = blockIdx.x;
  unsigned mine = 0;
  for (int e = offsets[u] + threadIdx.x; e < offsets[u + 1]; e += blockDim.x) {
    int v = columns[e], a = offsets[u], b = offsets[v];
    if (v <= u) continue;
    while (a < offsets[u + 1] && b < offsets[v + 1]) {
      int p = columns[a], q = columns[b];
      if (p == q && p > v) mine++;
      if (p <= q) a++;
      if (q <= p) b++;
    }
  }
  atomicAdd(count, (unsigned long long)mine);
}
__device__ int lock = 0;
__global__ void critical(int* sum, int* most) {
  if (threadIdx.x == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    __threadfence();
    *sum += blockIdx.x; *most = max(*most, (int)blockIdx.x);
    __threadfence();
    atomicExch(&lock, 0);
  }
}
"""


def graph_of(n: int, edges: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return a matrix of neighbours, and offsets and columns of its rows."""
    chance = np.random.default_rng(seed)
    near_ = np.zeros((n, n), bool)
    near_[chance.integers(0, n, edges), chance.integers(0, n, edges)] = True
    near_ |= near_.T
    np.fill_diagonal(near_, False)
    return near_, np.concatenate([[0], np.cumsum(near_.sum(1))]).astype(i32), np.nonzero(near_)[1].astype(i32)


@idiom(ATOMICS, "histogram samples: bins in shared memory")
def histogram_in_shared_memory(run: Run) -> None:
    x, bins = ints(2000, 0, 0, 256).astype(u8), zeros(64, u32)
    run("histogram", 3, 128, bins, x, 2000)
    same(bins, np.bincount(x % 64, minlength=64))


@idiom(ATOMICS, "histogram256: bins for each warp, uchar4 loads")
def histogram_for_each_warp(run: Run) -> None:
    x, bins = ints(2000, 1, 0, 256).astype(u8), zeros(64, u32)
    run("histogram_of_warps", 1, 128, bins, x, 500)
    same(bins, np.bincount(x % 64, minlength=64))


@idiom(ATOMICS, "maximum of floats by integer atomics")
def maximum_of_floats(run: Run) -> None:
    for shift in (0.0, -100.0):
        x, out = reals(300) + f32(shift), np.full(1, -np.inf, f32)
        run("float_max", 2, 256, out, x, 300)
        same(out, x.max())


@idiom(ATOMICS, "ray casting: nearest hit and its index packed into 64 bits")
def packed_argmin(run: Run) -> None:
    x, best = reals(300), np.full(1, np.iinfo(u64).max, u64)
    run("packed_min", 2, 256, best, x, 300)
    assert int(best[0]) & 0xFFFFFFFF == int(x.argmin())


@idiom(ATOMICS, "linked lists of a cell, by atomicExch")
def linked_lists_by_exchange(run: Run) -> None:
    key, heads, following = ints(200, 0, 0, 9), np.full(9, -1, i32), zeros(200)
    run("linked_lists", 1, 256, heads, following, key, 200)
    for k in range(9):
        found, at = [], heads[k]
        while at >= 0:
            found.append(int(at))
            at = following[at]
        assert sorted(found) == np.flatnonzero(key == k).tolist()


@idiom(ATOMICS, "hash tables with linear probing")
def hash_table(run: Run) -> None:
    k = ints(300, 0, 0, 150).astype(u32)
    keys, values, out = np.full(256, 0xFFFFFFFF, u32), zeros(256, u32), zeros(200, u32)
    run("table_insert", 2, 256, keys, values, k, 300, u32(256))
    run("table_find", 1, 256, out, keys, values, np.arange(200, dtype=u32), 200, u32(256))
    same(out, np.bincount(k, minlength=200))


@idiom(ATOMICS, "connected components: union-find with atomicMin")
def union_find(run: Run) -> None:
    edges = ints(160, 3, 0, 100).reshape(80, 2)
    parent, changed = np.arange(100, dtype=i32), zeros(1)
    run("hook", 1, 128, parent, np.ascontiguousarray(edges).reshape(-1), 80, changed)
    run("flatten", 1, 128, parent, 100)
    wanted = np.arange(100)
    for _ in range(100):
        for a, b in edges:
            wanted[[a, b]] = min(wanted[a], wanted[b])
    same(parent, wanted)


@idiom(ATOMICS, "Rodinia bfs, with queues of frontiers")
def breadth_first_search(run: Run) -> None:
    near_, offsets, columns = graph_of(80, 120)
    level, front, count = np.full(80, -1, i32), np.zeros(80, i32), 1
    level[0] = 0
    depth = 0
    while count:
        following, total, depth = zeros(80), zeros(1), depth + 1
        run("bfs", 1, 128, level, following, total, front, count, offsets, columns, depth)
        front, count = following, int(total[0])
    wanted, reached, now, d = np.full(80, -1), np.eye(80, dtype=bool)[0], np.eye(80, dtype=bool)[0], 0
    while now.any():
        wanted[now] = d
        d, now = d + 1, near_[now].any(0) & ~reached
        reached |= now
    same(level, wanted)


@idiom(ATOMICS, "building CSR: degrees of an edge list")
def degrees_of_edges(run: Run) -> None:
    edges, degree = ints(400, 2, 0, 20), zeros(20)
    run("degrees", 1, 256, degree, edges, 200)
    same(degree, np.bincount(edges[::2], minlength=20))


@idiom(ATOMICS, "ring buffers: atomicInc that wraps around")
def ring_by_atomic_inc(run: Run) -> None:
    slots, head = zeros(7, u32), zeros(1, u32)
    run("ring", 2, 64, slots, head, 100)
    same(slots, [15, 15, 14, 14, 14, 14, 14])
    same(head, 100 % 7)


@idiom(ATOMICS, "bit sets by atomicOr")
def bit_set_by_or(run: Run) -> None:
    x, words = ints(100, 4, 0, 256), zeros(8, u32)
    run("bit_set", 1, 64, words, x, 100)
    bits = np.unpackbits(words.view(u8), bitorder="little")
    same(np.flatnonzero(bits), np.unique(x))


@idiom(ATOMICS, "Bellman-Ford relaxations")
def shortest_paths(run: Run) -> None:
    a, b, w = ints(300, 1, 0, 60), ints(300, 2, 0, 60), ints(300, 3, 1, 20)
    distance, changed = np.full(60, np.iinfo(i32).max, i32), np.ones(1, i32)
    distance[0] = 0
    while changed[0]:
        changed[0] = 0
        run("relax", 2, 256, distance, a, b, w, 300, changed)
    wanted = np.full(60, np.inf)
    wanted[0] = 0
    for _ in range(60):
        np.minimum.at(wanted, b, wanted[a] + w)
    same(np.where(distance == np.iinfo(i32).max, np.inf, distance), wanted)


@idiom(ATOMICS, "PageRank by pulling (also: CCCL's stf pagerank)")
def pagerank_step(run: Run) -> None:
    near_, offsets, columns = graph_of(50, 120, 1)
    degree = np.maximum(near_.sum(1), 1).astype(i32)
    rank, out = np.full(50, 0.02, f32), zeros(50, f32)
    run("pagerank", 1, 64, out, rank, offsets, columns, degree, 50, 0.85)
    near(out, 0.15 / 50 + 0.85 * near_ @ (rank / degree))


@idiom(ATOMICS, "triangle counting by merging neighbours")
def triangle_count(run: Run) -> None:
    near_, offsets, columns = graph_of(40, 200, 2)
    count = zeros(1, u64)
    run("triangles", 40, 32, count, offsets, columns, 40)
    same(count, np.trace(np.linalg.matrix_power(near_.astype(i64), 3)) // 6)


@idiom(ATOMICS, "a lock of blocks, taken by one thread of each")
def critical_section(run: Run) -> None:
    total, most = zeros(1), zeros(1)
    run("critical", 20, 64, total, most)
    same(total, 190)
    same(most, 19)


# -- matrices ----------------------------------------------------------------------------------------------------------------

MATRICES = r"""
#include <hip/hip_runtime.h>
#define TILE 16
__global__ void naive(float* c, const float* a, const float* b, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && col < n) { float sum = 0; for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
      c[row * n + col] = sum; }
}
__global__ void tiled(float* c, const float* a, const float* b, int m, int n, int k) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE + 1];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float sum = 0.f;
  for (int t = 0; t < (k + TILE - 1) / TILE; ++t) {
    as[ty][tx] = row < m && t * TILE + tx < k ? a[row * k + t * TILE + tx] : 0.f;
    bs[ty][tx] = col < n && t * TILE + ty < k ? b[(t * TILE + ty) * n + col] : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
template <int TM, int TN> __global__ void blocked(float* c, const float* a, const float* b, int n) {
  float acc[TM][TN] = {};
  int row = (blockIdx.y * blockDim.y + threadIdx.y) * TM, col = (blockIdx.x * blockDim.x + threadIdx.x) * TN;
  for (int k = 0; k < n; ++k) {
    float ra[TM], rb[TN];
    for (int i = 0; i < TM; ++i) ra[i] = a[(row + i) * n + k];
    for (int j = 0; j < TN; ++j) rb[j] = b[k * n + col + j];
    for (int i = 0; i < TM; ++i) for (int j = 0; j < TN; ++j) acc[i][j] += ra[i] * rb[j];
  }
  for (int i = 0; i < TM; ++i) for (int j = 0; j < TN; ++j) c[(row + i) * n + col + j] = acc[i][j];
}
// instance blocked<2, 4>
#define TILE_DIM 32
#define BLOCK_ROWS 8
__global__ void transpose(float* out, const float* in, int width, int height) {
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];
  int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) if (x < width && y + j < height)
      tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * TILE_DIM + threadIdx.x;
  y = blockIdx.x * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) if (x < height && y + j < width) out[(y + j)
      * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void mat_vec(float* y, const float* a, const float* x, int rows, int cols) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x & (warpSize - 1);
  if (warp >= rows) return;
  float sum = 0;
  for (int c = lane; c < cols; c += warpSize) sum += a[warp * cols + c] * x[c];
  for (int o = warpSize >> 1; o; o >>= 1) sum += __shfl_down(sum, o);
  if (lane == 0) y[warp] = sum;
}
__global__ void csr_scalar(float* y, const int* offsets, const int* columns, const float* values, const float* x, int n) {
  int row = blockDim.x * blockIdx.x + threadIdx.x;
  if (row < n) { float dot = 0; for (int j = offsets[row]; j < offsets[row + 1]; ++j) dot += values[j] * x[columns[j]];
      y[row] += dot; }
}
template <unsigned LANES> __global__ void csr_vector(float* y, const int* offsets, const int* columns, const float* values,
    const float* x, int n) {
  unsigned thread = blockDim.x * blockIdx.x + threadIdx.x, row = thread / LANES, lane = thread % LANES;
  float dot = 0;
  if (row < n) for (int j = offsets[row] + lane; j < offsets[row + 1]; j += LANES) dot = fmaf(values[j], x[columns[j]], dot);
  for (unsigned o = LANES / 2; o; o /= 2) dot += __shfl_down(dot, o, LANES);
  if (row < n && lane == 0) y[row] = dot;
}
// instance csr_vector<8>
__global__ void ell(float* y, const int* columns, const float* values, const float* x, int n, int width) {
  int row = blockDim.x * blockIdx.x + threadIdx.x;
  if (row >= n) return;
  float dot = 0;
  for (int k = 0; k < width; ++k) { int c = columns[k * n + row]; if (c >= 0) dot += values[k * n + row] * x[c]; }
  y[row] = dot;
}
__global__ void invert3(double* out, const double* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double(&m)[3][3] = *(const double(*)[3][3])(in + 9 * i);
  double(*r)[3] = (double(*)[3])(out + 9 * i);
  double det = m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
      + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
  for (int a = 0; a < 3; ++a) for (int b = 0; b < 3; ++b) {
    int p = (b + 1) % 3, q = (b + 2) % 3, s = (a + 1) % 3, t = (a + 2) % 3;
    r[a][b] = (m[p][s] * m[q][t] - m[p][t] * m[q][s]) / det;
  }
}
__global__ void cholesky(double* a, int n) {
  extern __shared__ double tile[];
  int r = threadIdx.y, c = threadIdx.x;
  tile[r * n + c] = a[r * n + c];
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    if (r == k && c == k) tile[k * n + k] = sqrt(tile[k * n + k]);
    __syncthreads();
    if (c == k && r > k) tile[r * n + k] /= tile[k * n + k];
    __syncthreads();
    if (r > k && c > k && c <= r) tile[r * n + c] -= tile[r * n + k] * tile[c * n + k];
    __syncthreads();
  }
  a[r * n + c] = c <= r ? tile[r * n + c] : 0;
}
__global__ void eliminate(float* m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y + k + 1, col = blockIdx.x * blockDim.x + threadIdx.x + k + 1;
  if (row < n && col < n) m[row * n + col] -= m[row * n + k] / m[k * n + k] * m[k * n + col];
}
__global__ void im2col(float* out, const float* in, int h, int w, int k) {
  int ow = w - k + 1, oh = h - k + 1;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < oh * ow; i += blockDim.x * gridDim.x)
    for (int dy = 0; dy < k; dy++) for (int dx = 0; dx < k; dx++) out[(dy * k + dx) * oh * ow + i] = in[(i / ow + dy)
        * w + i % ow + dx];
}
__global__ void saxpy4(float4* __restrict__ y, const float4* __restrict__ x, float a, size_t n4) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) { float4 v = y[i]; v.x += a * x[i].x; v.y += a * x[i].y; v.z += a * x[i].z; v.w += a * x[i].w; y[i] = v; }
}
__global__ void tridiagonal(float* x, const float* a, const float* b, const float* c, const float* d) {
  __shared__ float sa[64], sb[64], sc[64], sd[64];
  int t = threadIdx.x, n = blockDim.x;
  sa[t] = a[t]; sb[t] = b[t]; sc[t] = c[t]; sd[t] = d[t];
  __syncthreads();
  for (int s = 1; s < n; s *= 2) {
    float na = 0, nc = 0, nb = sb[t], nd = sd[t];
    if (t >= s) { float k = sa[t] / sb[t - s]; na = -k * sa[t - s]; nb -= k * sc[t - s]; nd -= k * sd[t - s]; }
    if (t + s < n) { float k = sc[t] / sb[t + s]; nc = -k * sc[t + s]; nb -= k * sa[t + s]; nd -= k * sd[t + s]; }
    __syncthreads();
    sa[t] = na; sb[t] = nb; sc[t] = nc; sd[t] = nd;
    __syncthreads();
  }
  x[t] = sd[t] / sb[t];
}
"""


@idiom(MATRICES, "matrix product samples")
def matrix_products(run: Run) -> None:
    a, b = reals(20, 33), reals(33, 27, seed=1)
    for name in ("naive", "tiled"):
        c = zeros(540, f32)
        run(name, (2, 2), (16, 16), c, a, b, 20, 27, 33)
        near(c, a @ b, 1e-4, 1e-4)


@idiom(MATRICES, "SGEMM tutorials: several results in registers")
def register_blocked_product(run: Run) -> None:
    a, b, c = reals(32, 32), reals(32, 32, seed=1), zeros(1024, f32)
    run("blocked<2, 4>", (2, 2), (4, 8), c, a, b, 32)
    near(c, a @ b, 1e-4, 1e-4)


@idiom(MATRICES, "transpose samples: padded tiles, several rows a thread")
def padded_transpose(run: Run) -> None:
    x, out = reals(45, 70), zeros(45 * 70, f32)
    run("transpose", (3, 2), (32, 8), out, x, 70, 45)
    same(out, x.T)


@idiom(MATRICES, "matrix-vector products, a warp for each row")
def matrix_times_vector(run: Run) -> None:
    a, x, y = reals(11, 200), reals(200, seed=1), zeros(11, f32)
    run("mat_vec", 3, 256, y, a, x, 11, 200)
    near(y, a @ x, 1e-4, 1e-4)


@idiom(MATRICES, "sparse matrices: CSR by threads and by groups of lanes, ELL")
def sparse_products(run: Run) -> None:
    dense = reals(50, 50) * (np.random.default_rng(0).random((50, 50)) < 0.1)
    dense = dense.astype(f32)
    offsets = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(i32)
    columns, values, x = np.nonzero(dense)[1].astype(i32), dense[dense != 0], reals(50, seed=2)
    y = zeros(50, f32)
    run("csr_scalar", 1, 64, y, offsets, columns, values, x, 50)
    near(y, dense @ x)
    run("csr_vector<8>", 4, 128, y, offsets, columns, values, x, 50)
    near(y, dense @ x)
    width = int(np.diff(offsets).max())
    wide, padded = np.full((width, 50), -1, i32), np.zeros((width, 50), f32)
    for r in range(50):
        for k, at in enumerate(range(offsets[r], offsets[r + 1])):
            wide[k, r], padded[k, r] = columns[at], values[at]
    run("ell", 1, 64, y, wide, padded, x, 50, width)
    near(y, dense @ x)


@idiom(MATRICES, "batched small inverses, through references to arrays")
def batched_inverse(run: Run) -> None:
    m, out = reals(20, 3, 3).astype(f64) + 3 * np.eye(3), zeros(180, f64)
    run("invert3", 1, 32, out, m, 20)
    near(out, np.linalg.inv(m))


@idiom(MATRICES, "tile Cholesky (CCCL's stf 07-cholesky): potrf of one tile")
def cholesky_of_a_tile(run: Run) -> None:
    m = reals(12, 12).astype(f64)
    a = m @ m.T + 12 * np.eye(12)
    wanted = np.linalg.cholesky(a)
    run("cholesky", 1, (12, 12), a, 12, shared_bytes=12 * 12 * 8)
    near(a, wanted)


@idiom(MATRICES, "Rodinia gaussian: a step of elimination")
def gaussian_elimination(run: Run) -> None:
    m = reals(20, 20) + 10 * np.eye(20, dtype=f32)
    wanted = m.astype(f64)
    for k in range(19):
        run("eliminate", (2, 2), (16, 16), m, 20, k)
        wanted[k + 1 :, k + 1 :] -= np.outer(wanted[k + 1 :, k] / wanted[k, k], wanted[k, k + 1 :])
    near(np.triu(m), np.triu(wanted), 1e-3, 1e-3)


@idiom(MATRICES, "convolutions as products: im2col")
def image_to_columns(run: Run) -> None:
    x, out = reals(9, 11), zeros(9 * 63, f32)
    run("im2col", 1, 32, out, x, 9, 11, 3)
    same(out, [x[dy : dy + 7, dx : dx + 9] for dy in range(3) for dx in range(3)])


@idiom(MATRICES, "BLAS axpy with float4 and size_t")
def axpy_of_vectors(run: Run) -> None:
    x, y = reals(400), reals(400, seed=1)
    wanted = y + f32(2.5) * x
    run("saxpy4", 2, 64, y, x, 2.5, u64(100))
    near(y, wanted)


@idiom(MATRICES, "parallel cyclic reduction")
def tridiagonal_systems(run: Run) -> None:
    a, b, c, d = reals(64), reals(64, seed=1) + 6, reals(64, seed=2), reals(64, seed=3)
    a[0] = c[-1] = 0
    x = zeros(64, f32)
    run("tridiagonal", 1, 64, x, a, b, c, d)
    near(x, np.linalg.solve(np.diag(b) + np.diag(a[1:], -1) + np.diag(c[:-1], 1), d), 1e-4, 1e-4)


# -- stencils and images -----------------------------------------------------------------------------------------------------

STENCILS = r"""
#include <hip/hip_runtime.h>
#define RADIUS 3
#define BLOCK 64
__constant__ float mask[2 * RADIUS + 1] = {0.1f, 0.15f, 0.2f, 0.1f, 0.2f, 0.15f, 0.1f};
__global__ void stencil_1d(int* out, const int* in, int n) {
  __shared__ int temp[BLOCK + 2 * RADIUS];
  int g = threadIdx.x + blockIdx.x * blockDim.x, l = threadIdx.x + RADIUS;
  temp[l] = g < n ? in[g] : 0;
  if (threadIdx.x < RADIUS) {
    temp[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0;
    temp[l + BLOCK] = g + BLOCK < n ? in[g + BLOCK] : 0;
  }
  __syncthreads();
  int result = 0;
  for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[l + offset];
  if (g < n) out[g] = result;
}
__global__ void convolve(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = -RADIUS; k <= RADIUS; ++k) { int j = i + k; j = j < 0 ? -j : j; j = j >= n ? 2 * n - 2 - j : j;
      sum += mask[k + RADIUS] * in[j]; }
  out[i] = sum;
}
__device__ __host__ inline int at(int x, int y, int w) { return y * w + x; }
template <typename T> __global__ void heat(T* out, const T* in, int w, int h, T c) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  if (x == 0 || y == 0 || x == w - 1 || y == h - 1) { out[at(x, y, w)] = in[at(x, y, w)]; return; }
  T here = in[at(x, y, w)];
  out[at(x, y, w)] = here + c * (in[at(x - 1, y, w)] + in[at(x + 1, y, w)] + in[at(x, y - 1, w)] + in[at(x, y + 1,
      w)] - 4 * here);
}
// instance heat<float>
// instance heat<double>
__global__ void heat_tiled(float* out, const float* in, int w, int h, float c) {
  __shared__ float s[10][18];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  for (int n = threadIdx.y * 16 + threadIdx.x; n < 180; n += 128) {
    int gx = min(max((int)blockIdx.x * 16 + n % 18 - 1, 0), w - 1), gy = min(max((int)blockIdx.y * 8 + n / 18 - 1, 0), h - 1);
    s[n / 18][n % 18] = in[gy * w + gx];
  }
  __syncthreads();
  if (x < w && y < h) {
    const int i = threadIdx.x + 1, j = threadIdx.y + 1;
    out[y * w + x] = s[j][i] + c * (s[j][i - 1] + s[j][i + 1] + s[j - 1][i] + s[j + 1][i] - 4.f * s[j][i]);
  }
}
__global__ void seven_points(float* out, const float* in, int3 n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= n.x - 1 || y >= n.y - 1) return;
  const int plane = n.x * n.y;
  float below = in[y * n.x + x], here = in[plane + y * n.x + x];
  for (int z = 1; z < n.z - 1; ++z) {
    int i = z * plane + y * n.x + x;
    float above = in[i + plane];
    out[i] = below + above + in[i - 1] + in[i + 1] + in[i - n.x] + in[i + n.x] - 6 * here;
    below = here; here = above;
  }
}
__global__ void sobel(unsigned char* out, const unsigned char* in, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x == 0 || y == 0 || x >= w - 1 || y >= h - 1) return;
#define P(dx, dy) ((int)in[(y + (dy)) * w + x + (dx)])
  int gx = P(1, -1) + 2 * P(1, 0) + P(1, 1) - P(-1, -1) - 2 * P(-1, 0) - P(-1, 1);
  int gy = P(-1, 1) + 2 * P(0, 1) + P(1, 1) - P(-1, -1) - 2 * P(0, -1) - P(1, -1);
#undef P
  out[y * w + x] = (unsigned char)min(abs(gx) + abs(gy), 255);
}
__global__ void gray(unsigned char* out, const uchar3* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { uchar3 p = in[i]; out[i] = (unsigned char)((p.x * 77 + p.y * 150 + p.z * 29) >> 8); }
}
__global__ void life(unsigned char* out, const unsigned char* in, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int around = 0;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
      if (!dx && !dy) continue;
      around += in[(y + dy + h) % h * w + (x + dx + w) % w];
    }
  out[y * w + x] = around == 3 || (around == 2 && in[y * w + x]);
}
__global__ void resize(float* out, const float* in, int w, int h, int ow, int oh) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= ow || y >= oh) return;
  float fx = (x + 0.5f) * w / ow - 0.5f, fy = (y + 0.5f) * h / oh - 0.5f;
  fx = fminf(fmaxf(fx, 0.f), w - 1.f); fy = fminf(fmaxf(fy, 0.f), h - 1.f);
  int x0 = (int)floorf(fx), y0 = (int)floorf(fy), x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, h - 1);
  float u = fx - x0, v = fy - y0;
  out[y * ow + x] = (1 - v) * ((1 - u) * in[y0 * w + x0] + u * in[y0 * w + x1]) + v * ((1 - u)
      * in[y1 * w + x0] + u * in[y1 * w + x1]);
}
__device__ void order(unsigned char& a, unsigned char& b) { if (a > b) { unsigned char t = a; a = b; b = t; } }
__global__ void median3(unsigned char* out, const unsigned char* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1 || i >= n - 1) return;
  unsigned char a = in[i - 1], b = in[i], c = in[i + 1];
  order(a, b); order(b, c); order(a, b);
  out[i] = b;
}
__global__ void wave(float* next, const float* now, const float* before, int n, float c2) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0 || i >= n - 1) return;
  next[i] = 2.0f * now[i] - before[i] + c2 * (now[i - 1] - 2.0f * now[i] + now[i + 1]);
}
struct Yee { float ez, hx, hy; };
__global__ void yee(Yee* f, int w, int h, int step) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * w + x;
  if (x >= w - 1 || y >= h - 1) return;
  if (step == 0) { f[i].hx -= 0.5f * (f[i + w].ez - f[i].ez); f[i].hy += 0.5f * (f[i + 1].ez - f[i].ez); }
  else if (x > 0 && y > 0) f[i].ez += 0.5f * ((f[i].hy - f[i - 1].hy) - (f[i].hx - f[i - w].hx));
}
__global__ void jacobi(float* next, float* error, const float* now, int n) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  float mine = 0;
  if (col >= 1 && col < n - 1 && row >= 1 && row < n - 1) {
    float v = 0.25f * (now[row * n + col - 1] + now[row * n + col + 1] + now[(row - 1) * n + col] + now[(row + 1) * n + col]);
    next[row * n + col] = v;
    mine = fabsf(v - now[row * n + col]);
  }
  for (int o = 16; o > 0; o >>= 1) mine = fmaxf(mine, __shfl_xor(mine, o, 32));
  if (((threadIdx.y * blockDim.x + threadIdx.x) & 31) == 0) atomicMax((int*)error, __float_as_int(mine));
}
__global__ void back_project(float* volume, const float* row, int n, float angle) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  float s, c;
  sincosf(angle, &s, &c);
  float p = (x - n / 2) * c + (y - n / 2) * s + n / 2;
  int i = __float2int_rd(p);
  if (i >= 0 && i + 1 < n) { float f = p - i; volume[y * n + x] += row[i] + f * (row[i + 1] - row[i]); }
}
"""


@idiom(STENCILS, "first stencil of every course, halo in shared memory")
def stencil_with_halo(run: Run) -> None:
    x, out = ints(200), zeros(200)
    run("stencil_1d", 4, 64, out, x, 200)
    same(out, np.convolve(x, np.ones(7, int), "same"))


@idiom(STENCILS, "convolutions with a constant mask and mirrored ends")
def convolution_with_constant_mask(run: Run) -> None:
    x, out = reals(100), zeros(100, f32)
    run("convolve", 2, 64, out, x, 100)
    near(out, np.convolve(np.pad(x, 3, "reflect"), [0.1, 0.15, 0.2, 0.1, 0.2, 0.15, 0.1], "valid"))


@idiom(STENCILS, "heat equation, templates of its type (also CCCL's stf heat)")
def heat_equation(run: Run) -> None:
    for name, kind in (("float", f32), ("double", f64)):
        a = reals(20, 30).astype(kind)
        b, wanted = a.copy().reshape(-1), a.astype(f64)
        now = a.reshape(-1).copy()
        for _ in range(4):
            run(f"heat<{name}>", (4, 3), (8, 8), b, now, 30, 20, kind(0.1))
            now, b = b, now
            w = wanted
            inner = w[1:-1, 1:-1] + 0.1 * (w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:] - 4 * w[1:-1, 1:-1])
            wanted = w.copy()
            wanted[1:-1, 1:-1] = inner
        near(now, wanted)


@idiom(STENCILS, "Rodinia hotspot: tiles with halos, clamped")
def tiled_stencil(run: Run) -> None:
    a, out = reals(21, 35), zeros(21 * 35, f32)
    run("heat_tiled", (3, 3), (16, 8), out, a, 35, 21, 0.1)
    p = np.pad(a, 1, "edge")
    near(out, a + 0.1 * (p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * a))


@idiom(STENCILS, "3-D Laplacian that marches along z")
def seven_point_stencil(run: Run) -> None:
    a, out = reals(6, 9, 10), zeros(540, f32)
    run("seven_points", (2, 2), (8, 8), out, a, np.array([(10, 9, 6)], "i4,i4,i4")[0])
    c = a[1:-1, 1:-1, 1:-1]
    wanted = np.zeros_like(a)
    wanted[1:-1, 1:-1, 1:-1] = (
        a[2:, 1:-1, 1:-1]
        + a[:-2, 1:-1, 1:-1]
        + a[1:-1, 2:, 1:-1]
        + a[1:-1, :-2, 1:-1]
        + a[1:-1, 1:-1, 2:]
        + a[1:-1, 1:-1, :-2]
        - 6 * c
    )
    near(out, wanted)


@idiom(STENCILS, "image filters: Sobel with a local macro")
def sobel_filter(run: Run) -> None:
    a = ints(600, 0, 0, 256).astype(u8).reshape(20, 30)
    out = zeros(600, u8)
    run("sobel", (4, 3), (8, 8), out, a, 30, 20)
    p = a.astype(int)
    gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2])
    gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:])
    wanted = np.zeros_like(p)
    wanted[1:-1, 1:-1] = np.minimum(abs(gx) + abs(gy), 255)
    same(out, wanted)


@idiom(STENCILS, "colour to grey, uchar3")
def grey_pixels(run: Run) -> None:
    p, out = ints(300, 1, 0, 256).astype(u8), zeros(100, u8)
    run("gray", 1, 128, out, p, 100)
    same(out, (p.reshape(100, 3).astype(int) @ [77, 150, 29]) >> 8)


@idiom(STENCILS, "game of life on a torus")
def game_of_life(run: Run) -> None:
    a, out = (ints(280) > 10).astype(u8), zeros(280, u8)
    run("life", (3, 2), (8, 8), out, a, 20, 14)
    b = a.reshape(14, 20)
    around = sum(np.roll(b, (dy, dx), (0, 1)).astype(int) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - b
    same(out, (around == 3) | ((around == 2) & (b == 1)))


@idiom(STENCILS, "bilinear resizing")
def bilinear_resize(run: Run) -> None:
    a, out = reals(7, 9), zeros(13 * 20, f32)
    run("resize", (3, 2), (8, 8), out, a, 9, 7, 20, 13)
    fx = np.clip((np.arange(20) + 0.5) * 9 / 20 - 0.5, 0, 8)
    fy = np.clip((np.arange(13) + 0.5) * 7 / 13 - 0.5, 0, 6)
    rows = np.array([np.interp(fx, np.arange(9), row) for row in a])
    near(out, np.array([np.interp(fy, np.arange(7), col) for col in rows.T]).T, 1e-4, 1e-4)


@idiom(STENCILS, "sorting networks through references: a median filter")
def median_of_three(run: Run) -> None:
    a, out = ints(100, 0, 0, 256).astype(u8), zeros(100, u8)
    run("median3", 1, 128, out, a, 100)
    same(out[1:-1], np.median([a[:-2], a[1:-1], a[2:]], axis=0))


@idiom(STENCILS, "leapfrog of the wave equation")
def wave_equation(run: Run) -> None:
    a, b, out = reals(100), reals(100, seed=1), zeros(100, f32)
    run("wave", 1, 128, out, a, b, 100, 0.3)
    near(out[1:-1], 2 * a[1:-1] - b[1:-1] + 0.3 * (a[:-2] - 2 * a[1:-1] + a[2:]))


@idiom(STENCILS, "FDTD (CCCL's stf fdtd): an array of structs")
def fdtd_of_yee(run: Run) -> None:
    f = np.zeros((12, 12, 3), f32)
    f[6, 6, 0] = 1
    e, hx, hy = (f[..., n].astype(f64) for n in range(3))
    for _ in range(5):
        run("yee", (2, 2), (8, 8), f, 12, 12, 0)
        run("yee", (2, 2), (8, 8), f, 12, 12, 1)
        hx[:-1, :-1] -= 0.5 * (e[1:, :-1] - e[:-1, :-1])
        hy[:-1, :-1] += 0.5 * (e[:-1, 1:] - e[:-1, :-1])
        e[1:-1, 1:-1] += 0.5 * ((hy[1:-1, 1:-1] - hy[1:-1, :-2]) - (hx[1:-1, 1:-1] - hx[:-2, 1:-1]))
    near(f[..., 0], e)


@idiom(STENCILS, "jacobiCudaGraphs, multi-GPU jacobi: the error as the maximum of a warp")
def jacobi_iteration(run: Run) -> None:
    a = reals(30, 30)
    b, error = a.copy(), zeros(1, f32)
    run("jacobi", (2, 2), (16, 16), b, error, a, 30)
    wanted = a.copy()
    wanted[1:-1, 1:-1] = 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
    near(b, wanted)
    near(error, abs(wanted - a).max())


@idiom(STENCILS, "graph_api tutorial: back projection of computed tomography")
def back_projection(run: Run) -> None:
    row, volume = reals(24), zeros(576, f32)
    run("back_project", (3, 3), (8, 8), volume, row, 24, 0.7)
    y, x = np.mgrid[:24, :24] - 12
    p = x * math.cos(0.7) + y * math.sin(0.7) + 12
    near(volume, np.where((p >= 0) & (p < 23), np.interp(p, np.arange(24), row), 0), 1e-3, 1e-3)


# -- neural networks -----------------------------------------------------------------------------------------------------------

NETWORKS = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
#include <stdint.h>
enum { SUM, MAX };
template <int OP, int SIZE> static __device__ float reduce_row(float v) {
  __shared__ float s[SIZE];
  __syncthreads();
  s[threadIdx.x] = v;
  __syncthreads();
  for (int o = SIZE / 2; o > 0; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] = OP == SUM ? s[threadIdx.x] + s[threadIdx.x + o] : fmaxf(s[threadIdx.x],
        s[threadIdx.x + o]);
    __syncthreads();
  }
  return s[0];
}
__global__ void softmax(float* y, const float* x, int n) {
  x += blockIdx.x * n; y += blockIdx.x * n;
  float most = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, x[i]);
  most = reduce_row<MAX, 64>(most);
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += y[i] = expf(x[i] - most);
  sum = reduce_row<SUM, 64>(sum);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] /= sum;
}
__global__ void online_softmax(float* y, const float* x, int n) {
  const float* row = x + (size_t)blockIdx.x * n;
  float m = -INFINITY, d = 0;
  for (int i = threadIdx.x; i < n; i += warpSize) { float v = row[i], now = fmaxf(m, v); d = d * __expf(m - now)
      + __expf(v - now); m = now; }
  for (int o = warpSize / 2; o; o >>= 1) {
    float om = __shfl_xor(m, o), od = __shfl_xor(d, o), now = fmaxf(m, om);
    d = (m == -INFINITY ? 0.f : d * __expf(m - now)) + (om == -INFINITY ? 0.f : od * __expf(om - now));
    m = now;
  }
  for (int i = threadIdx.x; i < n; i += warpSize) y[(size_t)blockIdx.x * n + i] = __expf(row[i] - m) / d;
}
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int n, float eps) {
  x += blockIdx.x * n; y += blockIdx.x * n;
  float sum = 0, square = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { sum += x[i]; square += x[i] * x[i]; }
  const float mean = reduce_row<SUM, 64>(sum) / n, var = reduce_row<SUM, 64>(square) / n - mean * mean, inv = rsqrtf(var + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = (x[i] - mean) * inv * gamma[i] + beta[i];
}
__global__ void rms_norm(__half* y, const __half* x, const float* weight, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { float v = __half2float(x[i]); sum += v * v; }
  float scale = rsqrtf(reduce_row<SUM, 64>(sum) / n + 1e-5f);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = __float2half(weight[i] * (scale * __half2float(x[i])));
}
#define SQRT_2_OVER_PI 0.79788456080286535587989211986876f
__device__ float gelu(float x) { return 0.5f * x * (1.0f + tanhf(SQRT_2_OVER_PI * x * (1.0f + 0.044715f * x * x))); }
__device__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ float relu(float x) { return x > 0 ? x : 0; }
template <float (*OP)(float)> __global__ void unary(float* y, const float* x, int n)
    { int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) y[i] = OP(x[i]); }
// instance unary<gelu>
// instance unary<silu>
// instance unary<relu>
__global__ void rope(float2* x, int pairs, int position) {
  int i = threadIdx.x, head = blockIdx.x;
  if (i >= pairs) return;
  float theta = position * powf(10000.0f, -(float)i / pairs), s, c;
  __sincosf(theta, &s, &c);
  float2 v = x[head * pairs + i];
  x[head * pairs + i] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
template <int D> __global__ void attention(float* out, const float* q, const float* k, const float* v, int n) {
  __shared__ float scores[128];
  float mine[D];
  for (int d = 0; d < D; ++d) mine[d] = q[blockIdx.x * D + d];
  float most = -INFINITY;
  if (threadIdx.x <= blockIdx.x) {
    float dot = 0;
    for (int d = 0; d < D; ++d) dot += mine[d] * k[threadIdx.x * D + d];
    most = dot * rsqrtf((float)D);
  }
  scores[threadIdx.x] = most;
  __syncthreads();
  for (int i = 0; i <= blockIdx.x; ++i) most = fmaxf(most, scores[i]);
  float sum = 0;
  for (int i = 0; i <= blockIdx.x; ++i) sum += expf(scores[i] - most);
  if (threadIdx.x < D) {
    float acc = 0;
    for (int i = 0; i <= blockIdx.x; ++i) acc += expf(scores[i] - most) / sum * v[i * D + threadIdx.x];
    out[blockIdx.x * D + threadIdx.x] = acc;
  }
}
// instance attention<16>
template <typename index_t> __global__ void embedding(float* out, const float* table, const index_t* ids, int width) {
  for (int i = threadIdx.x; i < width; i += blockDim.x) out[blockIdx.x * width + i] = table[ids[blockIdx.x] * width + i];
}
// instance embedding<long long>
__global__ void cross_entropy(float* loss, const float* x, const int* target, int n) {
  const float* row = x + blockIdx.x * n;
  float sum = 0, most = row[0];
  for (int i = 1; i < n; ++i) most = max(most, row[i]);
  for (int i = 0; i < n; ++i) sum += exp(row[i] - most);
  loss[blockIdx.x] = logf(sum) + most - row[target[blockIdx.x]];
}
template <int K> __global__ void top_k(int* out, const float* x, int n) {
  float best[K]; int at[K];
#pragma unroll
  for (int k = 0; k < K; ++k) { best[k] = -FLT_MAX; at[k] = -1; }
  for (int i = 0; i < n; ++i) {
    float v = x[blockIdx.x * n + i];
    if (v <= best[K - 1]) continue;
    int k = K - 1;
    while (k > 0 && best[k - 1] < v) { best[k] = best[k - 1]; at[k] = at[k - 1]; --k; }
    best[k] = v; at[k] = i;
  }
  for (int k = 0; k < K; ++k) out[blockIdx.x * K + k] = at[k];
}
// instance top_k<4>
__global__ void adam(float* w, float* m, float* v, const float* g, int n, float lr, int step) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  constexpr float b1 = 0.9f, b2 = 0.999f;
  m[i] = b1 * m[i] + (1 - b1) * g[i];
  v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
  w[i] -= lr * (m[i] / (1 - powf(b1, step))) / (sqrtf(v[i] / (1 - powf(b2, step))) + 1e-8f);
}
#define QK8_0 32
typedef struct { half d; int8_t qs[QK8_0]; } block_q8_0;
static_assert(sizeof(block_q8_0) == sizeof(half) + QK8_0, "wrong q8_0 block size/padding");
__global__ void quantize_q8_0(void* __restrict__ vy, const float* __restrict__ x, int n) {
  const int ix = blockDim.x * blockIdx.x + threadIdx.x;
  if (ix >= n) return;
  block_q8_0* y = (block_q8_0*)vy;
  const int ib = ix / QK8_0, iqs = ix % QK8_0;
  const float xi = x[ix];
  float amax = fabsf(xi);
  for (int mask = 16; mask > 0; mask >>= 1) amax = fmaxf(amax, __shfl_xor(amax, mask, 32));
  const float d = amax / 127;
  y[ib].qs[iqs] = amax == 0.0f ? 0 : roundf(xi / d);
  if (iqs > 0) return;
  reinterpret_cast<half&>(y[ib].d) = __float2half(d);
}
__global__ void dequantize_q8_0(float* y, const block_q8_0* x)
    { y[blockIdx.x * QK8_0 + threadIdx.x] = __half2float(x[blockIdx.x].d) * x[blockIdx.x].qs[threadIdx.x]; }
typedef struct { __half d; uint8_t qs[16]; } block_q4_0;
static __device__ __forceinline__ void dequantize_q4_0(const void* vx, int ib, int iqs, float2& v) {
  const block_q4_0* x = (const block_q4_0*)vx;
  const float d = x[ib].d;
  const int vui = x[ib].qs[iqs];
  v.x = vui & 0xF; v.y = vui >> 4;
  v.x = (v.x - 8.0f) * d; v.y = (v.y - 8.0f) * d;
}
typedef void (*dequantize_t)(const void*, int, int, float2&);
template <int qk, dequantize_t dequantize> __global__ void dequantize_block(float* y, const void* vx, int k) {
  const int i = 2 * (blockDim.x * blockIdx.x + threadIdx.x);
  if (i >= k) return;
  const int ib = i / qk, iqs = i % qk / 2, start = i - i % qk;
  float2 v;
  dequantize(vx, ib, iqs, v);
  y[start + iqs] = v.x; y[start + iqs + qk / 2] = v.y;
}
// instance dequantize_block<32, dequantize_q4_0>
static __device__ __forceinline__ int dp4a(int a, int b, int c) {
  const int8_t* a8 = (const int8_t*)&a; const int8_t* b8 = (const int8_t*)&b;
  return c + a8[0] * b8[0] + a8[1] * b8[1] + a8[2] * b8[2] + a8[3] * b8[3];
}
__global__ void int8_dot(int* out, const int* a, const int* b, int n4) {
  int sum = 0;
  for (int i = threadIdx.x; i < n4; i += blockDim.x) sum = dp4a(a[i], b[i], sum);
  for (int o = warpSize / 2; o; o /= 2) sum += __shfl_xor(sum, o);
  if (threadIdx.x == 0) *out = sum;
}
__global__ void to_bfloat16(uint16_t* bits, float* back, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint32_t u; memcpy(&u, &x[i], 4);
  bits[i] = (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  back[i] = __bfloat162float(__float2bfloat16(x[i]));
}
__global__ void half2_fma(half2* y, const half2* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hadd2(__hmul2(__float2half2_rn(a), x[i]), y[i]);
}
__global__ void max_pool(float* out, const float* x, int h, int w) {
  int c = blockIdx.z, ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y;
  if (ox >= w / 2 || oy >= h / 2) return;
  float v = -FLT_MAX;
  for (int k = 0; k < 4; ++k) v = fmaxf(v, x[(c * h + 2 * oy + (k >> 1)) * w + 2 * ox + (k & 1)]);
  out[(c * (h / 2) + oy) * (w / 2) + ox] = v;
}
__global__ void layer(float* y, const float* w, const float* x, const float* b, int n, int m) {
  __shared__ float cache[64];
  float sum = 0;
  for (int base = 0; base < m; base += blockDim.x) {
    __syncthreads();
    if (base + threadIdx.x < m) cache[threadIdx.x] = x[base + threadIdx.x];
    __syncthreads();
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < n) for (int k = 0; k < min(m - base, (int)blockDim.x); ++k) sum += w[o * m + base + k] * cache[k];
  }
  if (int o = blockIdx.x * blockDim.x + threadIdx.x; o < n) y[o] = relu(sum + b[o]);
}
"""


def soft(x: Array) -> Array:
    e = np.exp(x.astype(f64) - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@idiom(NETWORKS, "softmax of rows: maximum, sum, division")
def softmax_of_rows(run: Run) -> None:
    x, y = reals(5, 100) * 4, zeros(500, f32)
    run("softmax", 5, 64, y, x, 100)
    near(y, soft(x))


@idiom(NETWORKS, "online softmax, one warp for a row")
def softmax_in_one_pass(run: Run) -> None:
    x, y = reals(4, 90) * 4, zeros(360, f32)
    run("online_softmax", 4, 64, y, x, 90)
    near(y, soft(x))


@idiom(NETWORKS, "layer normalisation of transformers")
def layer_normalisation(run: Run) -> None:
    x, g, b, y = reals(6, 100), reals(100, seed=1), reals(100, seed=2), zeros(600, f32)
    run("layer_norm", 6, 64, y, x, g, b, 100, 1e-5)
    near(y, (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b, 1e-4, 1e-4)


@idiom(NETWORKS, "llama2.cu, llama.cpp: RMS norm in half precision")
def rms_normalisation(run: Run) -> None:
    x, w = reals(96).astype(f16), reals(96, seed=1)
    y = np.zeros(96, f16)
    run("rms_norm", 1, 64, y, x, w, 96)
    wide = x.astype(f32)
    near(y.astype(f32), w * wide / np.sqrt((wide**2).mean() + 1e-5), 2e-3, 1e-3)


@idiom(NETWORKS, "activations as function pointers in template arguments")
def activations(run: Run) -> None:
    x, y = reals(100) * 3, zeros(100, f32)
    d = x.astype(f64)
    wanted = {
        "gelu": 0.5 * d * (1 + np.tanh(np.sqrt(2 / np.pi) * d * (1 + 0.044715 * d * d))), "silu": d / (1 + np.exp(-d)),
        "relu": np.maximum(d, 0),
    }  # fmt: skip
    for name, values in wanted.items():
        run(f"unary<{name}>", 1, 128, y, x, 100)
        near(y, values)


@idiom(NETWORKS, "rotary positions with float2 as complex numbers")
def rotary_positions(run: Run) -> None:
    x = reals(3, 16, 2)
    z = x[..., 0] + 1j * x[..., 1]
    run("rope", 3, 32, x, 16, 7)
    wanted = z * np.exp(1j * 7 * 10000.0 ** (-np.arange(16) / 16))
    near(x[..., 0], wanted.real, 1e-4, 1e-4)
    near(x[..., 1], wanted.imag, 1e-4, 1e-4)


@idiom(NETWORKS, "causal attention, scores in shared memory")
def causal_attention(run: Run) -> None:
    q, k, v, out = reals(20, 16), reals(20, 16, seed=1), reals(20, 16, seed=2), zeros(320, f32)
    run("attention<16>", 20, 20, out, q, k, v, 20)
    near(out, soft(np.where(np.tri(20) > 0, q @ k.T / 4, -np.inf)) @ v, 1e-4, 1e-4)


@idiom(NETWORKS, "embedding tables, gathered by 64-bit indices")
def embedding_lookup(run: Run) -> None:
    table, ids, out = reals(30, 50), ints(8, 0, 0, 30).astype(i64), zeros(400, f32)
    run("embedding<long long>", 8, 32, out, table, ids, 50)
    same(out, table[ids])


@idiom(NETWORKS, "cross entropy by log-sum-exp")
def cross_entropy_loss(run: Run) -> None:
    x, target, loss = reals(10, 12), ints(10, 0, 0, 12), zeros(10, f32)
    run("cross_entropy", 10, 1, loss, x, target, 12)
    near(loss, -np.log(soft(x)[np.arange(10), target]))


@idiom(NETWORKS, "sampling: the best four by insertion in registers")
def best_four(run: Run) -> None:
    x, out = reals(5, 60), zeros(20)
    run("top_k<4>", 5, 1, out, x, 60)
    same(out, np.argsort(-x, axis=1)[:, :4])


@idiom(NETWORKS, "optimisers: a fused Adam step")
def adam_step(run: Run) -> None:
    w, m, v, g = reals(50), reals(50, seed=1), abs(reals(50, seed=2)), reals(50, seed=3)
    m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    wanted = w - 0.01 * (m1 / (1 - 0.9**3)) / (np.sqrt(v1 / (1 - 0.999**3)) + 1e-8)
    run("adam", 1, 64, w, m, v, g, 50, 0.01, 3)
    near(w, wanted, 1e-4, 1e-5)


@idiom(NETWORKS, "ggml: blocks of q8_0, quantised by groups of 32 lanes")
def quantised_blocks_of_8_bits(run: Run) -> None:
    x, y = reals(128), np.zeros(4, [("d", "f2"), ("qs", "i1", 32)])
    run("quantize_q8_0", 1, 128, y, x, 128)
    rows = x.reshape(4, 32)
    d = abs(rows).max(1) / f32(127)
    same(y["d"], d.astype(f16))
    same(y["qs"], np.floor(abs(rows / d[:, None]) + f32(0.5)) * np.sign(rows))
    back = zeros(128, f32)
    run("dequantize_q8_0", 4, 32, back, y)
    same(back, y["d"].astype(f32)[:, None] * y["qs"])


@idiom(NETWORKS, "ggml: blocks of q4_0, a function pointer as template argument")
def quantised_blocks_of_4_bits(run: Run) -> None:
    x = np.zeros(3, [("d", "f2"), ("qs", "u1", 16)])
    x["d"], x["qs"] = [0.5, 0.25, 2], ints(48, 0, 0, 256).reshape(3, 16)
    out = zeros(96, f32)
    run("dequantize_block<32, dequantize_q4_0>", 1, 64, out, x, 96)
    low, high = (x["qs"] & 15).astype(f32) - 8, (x["qs"] >> 4).astype(f32) - 8
    same(out, np.concatenate([low, high], axis=1) * x["d"].astype(f32)[:, None])


@idiom(NETWORKS, "int8 products: dp4a by bytes of an int")
def dot_of_bytes(run: Run) -> None:
    a, b, out = (ints(256, n, -128, 128).astype("i1") for n in (0, 1, 2))
    total = zeros(1)
    run("int8_dot", 1, 64, total, a, b, 64)
    same(total, a.astype(int) @ b.astype(int))
    assert out.size


@idiom(NETWORKS, "bfloat16 by rounding bits, and by HIP's functions")
def bfloat16_rounding(run: Run) -> None:
    x, bits, back = reals(200) * 1000, zeros(200, u16), zeros(200, f32)
    run("to_bfloat16", 1, 256, bits, back, x, 200)
    same(back.view(u32) >> 16, bits)
    near(back, x, 1 / 256)


@idiom(NETWORKS, "half2 arithmetic")
def pairs_of_halves(run: Run) -> None:
    x, y = reals(100).astype(f16), reals(100, seed=1).astype(f16)
    wanted = (f16(1.5) * x + y).astype(f16)
    run("half2_fma", 1, 64, y, x, 1.5, 50)
    same(y, wanted)


@idiom(NETWORKS, "pooling over channels in z")
def max_pooling(run: Run) -> None:
    x, out = reals(3, 8, 10), zeros(60, f32)
    run("max_pool", (2, 1, 3), (4, 4), out, x, 8, 10)
    same(out, x.reshape(3, 4, 2, 5, 2).max((2, 4)))


@idiom(NETWORKS, "Rodinia backprop, PyTorch's whole-network step: a layer with inputs in shared memory")
def fully_connected_layer(run: Run) -> None:
    w, x, b, y = reals(70, 100), reals(100, seed=1), reals(70, seed=2), zeros(70, f32)
    run("layer", 2, 64, y, w, x, b, 70, 100)
    near(y, np.maximum(w @ x + b, 0), 1e-4, 1e-4)


# -- bits, random numbers, integers ----------------------------------------------------------------------------------------------

BITS = r"""
#include <hip/hip_runtime.h>
#include <stdint.h>
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
__device__ __host__ constexpr uint32_t spread2(uint32_t v) {
  v = (v | v << 8) & 0x00ff00ffu; v = (v | v << 4) & 0x0f0f0f0fu; v = (v | v << 2) & 0x33333333u; return (v | v << 1)
      & 0x55555555u;
}
static_assert(spread2(3) == 5, "");
__global__ void morton(uint32_t* out, const uint16_t* x, const uint16_t* y) { out[ID] = spread2(x[ID]) | spread2(y[ID]) << 1; }
__device__ uint32_t gather3(uint32_t v) {
  v &= 0x09249249u; v = (v ^ v >> 2) & 0x030c30c3u; v = (v ^ v >> 4) & 0x0300f00fu; v = (v ^ v >> 8) & 0xff0000ffu;
      return (v ^ v >> 16) & 0x3ffu;
}
__global__ void morton3(uint3* out, const uint32_t* code) { auto& o = out[ID]; o.x = gather3(code[ID]);
    o.y = gather3(code[ID] >> 1); o.z = gather3(code[ID] >> 2); }
__global__ void counts(int4* out, const unsigned* x) { unsigned v = x[ID]; out[ID] = make_int4(__popc(v), __clz(v), __ffs(v),
    __brev(v) >> 16); }
__global__ void counts64(int4* out, const unsigned long long* x) { auto v = x[ID]; out[ID] = {__popcll(v), __clzll(v),
    __ffsll(v), (int)(__brevll(v) >> 40)}; }
__global__ void gray_code(unsigned* out) { unsigned i = ID, g = i ^ (i >> 1), b = g; for (unsigned s = 16; s; s >>= 1)
    b ^= b >> s; out[2 * i] = g; out[2 * i + 1] = b; }
__global__ void swap_bytes(unsigned* out, const unsigned* x) { out[ID] = __byte_perm(x[ID], 0, 0x0123); }
__global__ void rotate(unsigned* out, const unsigned* x) { int r = threadIdx.x & 31; out[ID] = (x[ID] << r)
    | (x[ID] >> ((32 - r) & 31)); }
__device__ unsigned xorshift(unsigned& s) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return s; }
__global__ void random_walk(int* out, int steps) {
  unsigned state = ID + 1; int at = 0;
  for (int i = 0; i < steps; ++i) at += xorshift(state) & 1 ? 1 : -1;
  out[ID] = at;
}
struct Lcg { uint64_t s; __device__ explicit Lcg(uint64_t seed) : s(seed) {} __device__ uint32_t operator()()
    { s = s * 6364136223846793005ull + 1442695040888963407ull; return s >> 33; } };
__global__ void lcg(uint32_t* out) { Lcg next(ID); uint32_t v = 0; for (int i = 0; i < 5; ++i) v ^= next(); out[ID] = v; }
struct Philox {
  uint4 ctr; uint2 key;
  __device__ static uint4 round(uint4 c, uint2 k) {
    unsigned hi0 = __umulhi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x, hi1 = __umulhi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
    return make_uint4(hi1 ^ c.y ^ k.x, lo1, hi0 ^ c.w ^ k.y, lo0);
  }
  __device__ uint4 operator()() const {
    uint4 c = ctr; uint2 k = key;
#pragma unroll
    for (int r = 0; r < 10; ++r) { c = round(c, k); k.x += 0x9E3779B9u; k.y += 0xBB67AE85u; }
    return c;
  }
};
__global__ void philox(uint4* out, unsigned seed) { out[ID] = Philox{make_uint4(ID, 0, 0, 0), make_uint2(seed, 0)}(); }
__device__ uint32_t pcg(uint32_t v) { uint32_t s = v * 747796405u + 2891336453u, w = ((s >> ((s >> 28u) + 4u)) ^ s)
    * 277803737u; return (w >> 22u) ^ w; }
__global__ void hashes(uint32_t* out) { out[ID] = pcg(ID); }
typedef int32_t q16_16;
__device__ q16_16 q_mul(q16_16 a, q16_16 b) { return (q16_16)(((int64_t)a * b) >> 16); }
__global__ void fixed_point(q16_16* y, const q16_16* x) { q16_16 v = x[ID], p = 1 << 16; for (int i = 0; i < 3; ++i)
    p = q_mul(p, v); y[ID] = p; }
__global__ void mod_power(unsigned long long* out, const unsigned* x, unsigned long long m) {
  unsigned long long b = x[ID] % m, r = 1;
  for (unsigned e = 65537; e; e >>= 1) { if (e & 1) r = r * b % m; b = b * b % m; }
  out[ID] = r;
}
__global__ void collatz(int* out) { unsigned long long n = ID + 1; int steps = 0; while (n != 1)
    { n = n & 1 ? 3 * n + 1 : n / 2; ++steps; } out[ID] = steps; }
__global__ void mandelbrot(int* out, int w, int h, int most) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= w || py >= h) return;
  double cx = -2.0 + 3.0 * px / w, cy = -1.0 + 2.0 * py / h, x = 0, y = 0;
  int n = 0;
  for (; n < most && x * x + y * y <= 4; ++n) { double t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; }
  out[py * w + px] = n;
}
__constant__ unsigned crc_table[256];
__global__ void crc32(unsigned* out, const unsigned char* data, int n) {
  unsigned c = ~0u;
  for (int i = 0; i < n; ++i) c = crc_table[(c ^ data[ID * n + i]) & 0xff] ^ (c >> 8);
  out[ID] = ~c;
}
__global__ void fnv(unsigned long long* out, const char* text, const int* starts) {
  unsigned long long h = 14695981039346656037ull;
  for (const char* p = text + starts[ID]; p < text + starts[ID + 1]; ++p) { h ^= (unsigned char)*p; h *= 1099511628211ull; }
  out[ID] = h;
}
union Bits { float f; unsigned u; struct { unsigned mantissa : 23, exponent : 8, sign : 1; }; };
__global__ void float_parts(int* out, const float* x) { Bits b; b.f = x[ID]; out[3 * ID] = b.sign;
    out[3 * ID + 1] = b.exponent; out[3 * ID + 2] = b.mantissa; }
__global__ void fast_inverse_root(float* y, const float* x) {
  float half = 0.5f * x[ID], v = x[ID];
  int i = __float_as_int(v);
  i = 0x5f3759df - (i >> 1);
  v = __int_as_float(i);
  y[ID] = v * (1.5f - half * v * v);
}
__global__ void gcd(unsigned* out, const unsigned* a, const unsigned* b) { unsigned p = a[ID], q = b[ID]; while (q)
    { unsigned t = p % q; p = q; q = t; } out[ID] = p; }
__global__ void int_root(unsigned* out, const unsigned* x) {
  unsigned v = x[ID], r = 0, bit = 1u << 30;
  while (bit > v) bit >>= 2;
  while (bit) { if (v >= r + bit) { v -= r + bit; r = (r >> 1) + bit; } else r >>= 1; bit >>= 2; }
  out[ID] = r;
}
__global__ void sieve(unsigned char* composite, int n) { int p = ID + 2; if (p * p < n) for (int k = p * p; k < n; k += p)
    composite[k] = 1; }
__device__ int place_queens(int n, unsigned columns, unsigned left, unsigned right) {
  if (columns == (1u << n) - 1) return 1;
  int count = 0;
  for (unsigned free = ~(columns | left | right) & ((1u << n) - 1); free;) {
    unsigned bit = free & (0u - free);
    free ^= bit;
    count += place_queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1);
  }
  return count;
}
__global__ void queens(int* out, int n) { unsigned bit = 1u << threadIdx.x; atomicAdd(out, place_queens(n, bit, bit << 1,
    bit >> 1)); }
__global__ void base64(char* out, const unsigned char* in) {
  static const char table[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  unsigned v = in[3 * ID] << 16 | in[3 * ID + 1] << 8 | in[3 * ID + 2];
  for (int i = 3; i >= 0; --i, v >>= 6) out[4 * ID + i] = table[v & 63];
}
__global__ void saturating(signed char* out, const int* x) { int v = x[ID]; v = v > 127 ? 127 : v < -128 ? -128 : v;
    out[ID] = v; }
__global__ void utf8_length(int* out, const unsigned char* s, int n) { if (ID < n && (s[ID] & 0xC0) != 0x80) atomicAdd(out, 1); }
__global__ void warp_xor_share(unsigned* out, const unsigned* x) {
  unsigned v = x[ID];
  for (int bit = 0; bit < 5; ++bit) { unsigned o = __shfl_xor(v, 1 << bit, 32); v = (threadIdx.x >> bit & 1) ? v ^ o : v + o; }
  out[ID] = v;
}
"""


def numbers_of(n: int, seed: int = 0, high: int = 1 << 32) -> Array:
    return np.random.default_rng(seed).integers(0, high, n, dtype=u64)


@idiom(BITS, "Morton codes of two and three dimensions")
def morton_codes(run: Run) -> None:
    x, y = numbers_of(64, 0, 65536).astype(u16), numbers_of(64, 1, 65536).astype(u16)
    out = zeros(64, u32)
    run("morton", 1, 64, out, x, y)

    def spread(v: int, by: int) -> int:
        return sum((v >> n & 1) << (by * n) for n in range(16))

    same(out, [spread(int(a), 2) | spread(int(b), 2) << 1 for a, b in zip(x, y)])
    points = numbers_of(192, 2, 1024).astype(u32).reshape(64, 3)
    code = np.array([sum(spread(int(v), 3) << n for n, v in enumerate(p)) for p in points], u32)
    back = zeros(192, u32)
    run("morton3", 1, 64, back, code)
    same(back, points)


@idiom(BITS, "bit counting intrinsics of 32 and 64 bits")
def bit_counts(run: Run) -> None:
    x, out = numbers_of(32).astype(u32), zeros(128)
    x[:2] = 0, 0xFFFFFFFF
    run("counts", 1, 32, out, x)
    rows = [(f"{v:032b}", int(v)) for v in x]
    same(out, [[b.count("1"), 32 - v.bit_length(), (v & -v).bit_length(), int(b[::-1], 2) >> 16] for b, v in rows])
    wide = numbers_of(32, 1, 1 << 63)
    wide[0] = 0
    run("counts64", 1, 32, out, wide)
    rows = [(f"{v:064b}", int(v)) for v in wide]
    same(out, [[b.count("1"), 64 - v.bit_length(), (v & -v).bit_length(), int(b[::-1], 2) >> 40] for b, v in rows])


@idiom(BITS, "Gray codes there and back")
def gray_codes(run: Run) -> None:
    out = zeros(256, u32)
    run("gray_code", 2, 64, out)
    n = np.arange(128)
    same(out, np.stack([n ^ (n >> 1), n], 1))


@idiom(BITS, "byte order by __byte_perm, rotations")
def bytes_and_rotations(run: Run) -> None:
    x, out = numbers_of(64).astype(u32), zeros(64, u32)
    run("swap_bytes", 1, 64, out, x)
    same(out, x.byteswap())
    run("rotate", 1, 64, out, x)
    same(out, [((int(v) << n % 32) | (int(v) >> (32 - n % 32))) & 0xFFFFFFFF for n, v in enumerate(x)])


@idiom(BITS, "random numbers: xorshift by reference, LCG as a functor, PCG hashes")
def small_generators(run: Run) -> None:
    walk, wanted = zeros(64), []
    run("random_walk", 1, 64, walk, 50)
    for seed in range(1, 65):
        s, at = seed, 0
        for _ in range(50):
            s ^= s << 13 & 0xFFFFFFFF
            s ^= s >> 17
            s ^= s << 5 & 0xFFFFFFFF
            at += 1 if s & 1 else -1
        wanted.append(at)
    same(walk, wanted)
    out, wanted = zeros(64, u32), []
    run("lcg", 1, 64, out)
    for s in range(64):
        v = 0
        for _ in range(5):
            s = (s * 6364136223846793005 + 1442695040888963407) % 2**64
            v ^= s >> 33
        wanted.append(v)
    same(out, wanted)
    run("hashes", 1, 64, out)
    wanted = []
    for n in range(64):
        s = (n * 747796405 + 2891336453) % 2**32
        w = ((s >> ((s >> 28) + 4)) ^ s) * 277803737 % 2**32
        wanted.append(w >> 22 ^ w)
    same(out, wanted)


@idiom(BITS, "Philox4x32-10 of rocRAND and PyTorch")
def philox_generator(run: Run) -> None:
    out = zeros(256, u32)
    run("philox", 1, 64, out, u32(42))
    wanted = []
    for n in range(64):
        c, k = [n, 0, 0, 0], [42, 0]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        wanted.append(c)
    same(out, wanted)


@idiom(BITS, "fixed point, Q16.16")
def fixed_point_cubes(run: Run) -> None:
    x, y = ints(64, 0, -300000, 300000), zeros(64)
    run("fixed_point", 1, 64, y, x)
    v = x.astype(i64)
    wanted = (((v << 16) >> 16) * v >> 16) * v >> 16
    same(y, wanted)


@idiom(BITS, "modular powers, greatest common divisors, integer roots")
def number_theory(run: Run) -> None:
    a, b = numbers_of(64).astype(u32), numbers_of(64, 1).astype(u32)
    power, out = zeros(64, u64), zeros(64, u32)
    run("mod_power", 1, 64, power, a, u64(4294967291))
    same(power, np.array([pow(int(v), 65537, 4294967291) for v in a], u64))
    run("gcd", 1, 64, out, a, b)
    same(out, np.gcd(a, b))
    run("int_root", 1, 64, out, a)
    same(out, [math.isqrt(int(v)) for v in a])


@idiom(BITS, "loops of uneven length: Collatz, Mandelbrot")
def uneven_loops(run: Run) -> None:
    out = zeros(128)
    run("collatz", 2, 64, out)

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = 3 * n + 1 if n & 1 else n // 2, count + 1
        return count

    same(out, [steps(n) for n in range(1, 129)])
    image = zeros(30 * 20)
    run("mandelbrot", (4, 3), (8, 8), image, 30, 20, 60)
    c = (-2.0 + 3.0 * np.arange(30) / 30)[None] + 1j * (-1.0 + 2.0 * np.arange(20) / 20)[:, None]
    z, wanted = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(60):
        inside = abs(z) <= 2
        wanted += inside
        z = np.where(inside, z * z + c, z)
    assert (image.reshape(20, 30) == wanted).mean() > 0.99


@idiom(BITS, "checksums: CRC-32 with a table in constant memory, FNV-1a, base64")
def checksums(run: Run) -> None:
    import base64
    import zlib

    table = run.module.symbol("crc_table", "u4")
    for n in range(256):
        c = n
        for _ in range(8):
            c = c >> 1 ^ (0xEDB88320 if c & 1 else 0)
        table[n] = c
    data, out = ints(32 * 9, 0, 0, 256).astype(u8), zeros(32, u32)
    run("crc32", 1, 32, out, data, 9)
    same(out, [zlib.crc32(row.tobytes()) for row in data.reshape(32, 9)])
    text = zeros(32 * 9 // 3 * 4, u8)
    run("base64", 3, 32, text, data)
    assert text.tobytes() == base64.b64encode(data.tobytes())
    words = [b"hip", b"", b"graph", b"\xff\x00"]
    h = zeros(4, u64)
    run("fnv", 1, 4, h, np.frombuffer(b"".join(words), u8), np.cumsum([0, *map(len, words)]).astype(i32))
    wanted = []
    for word in words:
        v = 14695981039346656037
        for byte in word:
            v = (v ^ byte) * 1099511628211 % 2**64
        wanted.append(v)
    same(h, np.array(wanted, u64))


@idiom(BITS, "unions and bit fields of a float, the fast inverse square root")
def parts_of_floats(run: Run) -> None:
    x, out = reals(64), zeros(192)
    run("float_parts", 1, 64, out, x)
    u = x.view(u32).astype(i64)
    same(out, np.stack([u >> 31, u >> 23 & 255, u & 0x7FFFFF], 1))
    y = zeros(64, f32)
    run("fast_inverse_root", 1, 64, y, abs(x))
    near(y, 1 / np.sqrt(abs(x)), 2e-3)


@idiom(BITS, "sieve of Eratosthenes, whose threads write the same value")
def sieve_of_primes(run: Run) -> None:
    composite = zeros(500, u8)
    run("sieve", 1, 32, composite, 500)
    same(composite[2:] == 0, [all(n % p for p in range(2, math.isqrt(n) + 1)) for n in range(2, 500)])


@idiom(BITS, "recursion in a device function: queens")
def recursive_queens(run: Run) -> None:
    out = zeros(1)
    run("queens", 1, 7, out, 7)
    same(out, 40)


@idiom(BITS, "saturating casts, counting characters of UTF-8, exchanges by xor")
def small_integer_kernels(run: Run) -> None:
    x, out = ints(64, 0, -500, 500), zeros(64, np.int8)
    run("saturating", 1, 64, out, x)
    same(out, np.clip(x, -128, 127))
    text, count = np.frombuffer("häßliche Straße €".encode(), u8), zeros(1)
    run("utf8_length", 1, 64, count, text, len(text))
    same(count, 17)
    a, shared = numbers_of(64).astype(u32), zeros(64, u32)
    run("warp_xor_share", 1, 64, shared, a)
    v, t = a.copy(), np.arange(64)
    for bit in range(5):
        other = v[t ^ (1 << bit)]
        v = np.where(t >> bit & 1, v ^ other, v + other)
    same(shared, v)


# -- sorting, transforms, physics, kernels of programs -----------------------------------------------------------------------

PROGRAMS = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_complex.h>
#define PI 3.14159265358979323846
__global__ void bitonic(int* data) {
  __shared__ int s[256];
  unsigned t = threadIdx.x;
  s[t] = data[t];
  __syncthreads();
  for (unsigned k = 2; k <= blockDim.x; k <<= 1)
    for (unsigned j = k >> 1; j > 0; j >>= 1) {
      unsigned partner = t ^ j;
      if (partner > t) {
        bool up = (t & k) == 0;
        if ((s[t] > s[partner]) == up) { int tmp = s[t]; s[t] = s[partner]; s[partner] = tmp; }
      }
      __syncthreads();
    }
  data[t] = s[t];
}
__global__ void odd_even(int* x, int n, int phase) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + phase;
  if (i + 1 < n && x[i] > x[i + 1]) { int t = x[i]; x[i] = x[i + 1]; x[i + 1] = t; }
}
__global__ void warp_sort(int* x) {
  int v = x[threadIdx.x], lane = threadIdx.x % 32;
  for (int k = 2; k <= 32; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int other = __shfl_xor(v, j, 32);
      bool low = (lane & j) == 0, up = (lane & k) == 0;
      v = low == up ? min(v, other) : max(v, other);
    }
  x[threadIdx.x] = v;
}
__global__ void merge_ranks(int* out, const int* a, const int* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int lo = 0, hi = n;
  while (lo < hi) { int mid = (lo + hi) >> 1; if (b[mid] < a[i]) lo = mid + 1; else hi = mid; }
  out[i + lo] = a[i];
  lo = 0; hi = n;
  while (lo < hi) { int mid = (lo + hi) >> 1; if (a[mid] <= b[i]) lo = mid + 1; else hi = mid; }
  out[i + lo] = b[i];
}
__global__ void fft(float2* data, int n, int bits) {
  extern __shared__ float2 s[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[__brev(i) >> (32 - bits)] = data[i];
  for (int len = 2; len <= n; len *= 2) {
    __syncthreads();
    for (int k = threadIdx.x; k < n / 2; k += blockDim.x) {
      int half = len / 2, j = k % half, at = k / half * len + j;
      float sn, cs;
      sincospif(-2.0f * j / len, &sn, &cs);
      float2 u = s[at], v = s[at + half], w = {v.x * cs - v.y * sn, v.x * sn + v.y * cs};
      s[at] = {u.x + w.x, u.y + w.y};
      s[at + half] = {u.x - w.x, u.y - w.y};
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = s[i];
}
__global__ void dft(hipDoubleComplex* out, const hipDoubleComplex* in, int n) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= n) return;
  hipDoubleComplex sum = make_hipDoubleComplex(0, 0);
  for (int j = 0; j < n; ++j) {
    double a = -2 * PI * j * k / n;
    sum = hipCadd(sum, hipCmul(in[j], make_hipDoubleComplex(cos(a), sin(a))));
  }
  out[k] = sum;
}
__global__ void walsh(int* x) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  for (int h = 1; h < 128; h <<= 1) {
    __syncthreads();
    int a = s[t], b = s[t ^ h];
    __syncthreads();
    s[t] = t & h ? b - a : a + b;
  }
  x[t] = s[t];
}
__global__ void dct8(float* out, const float* in) {
  __shared__ float s[8][9];
  int x = threadIdx.x, y = threadIdx.y;
  in += blockIdx.x * 64; out += blockIdx.x * 64;
  auto basis = [](int k, int n) { return (k ? 0.5f : 0.35355339f) * cospif((2 * n + 1) * k / 16.0f); };
  float sum = 0;
  for (int n = 0; n < 8; ++n) sum += basis(x, n) * in[y * 8 + n];
  s[y][x] = sum;
  __syncthreads();
  sum = 0;
  for (int n = 0; n < 8; ++n) sum += basis(y, n) * s[n][x];
  out[y * 8 + x] = sum;
}
__device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ float3 interact(float4 a, float4 b, float3 f) {
  float3 r = {b.x - a.x, b.y - a.y, b.z - a.z};
  float d2 = r.x * r.x + r.y * r.y + r.z * r.z + 0.01f, inv = rsqrtf(d2), s = b.w * inv * inv * inv;
  return f + make_float3(r.x * s, r.y * s, r.z * s);
}
template <int P> __global__ void bodies(float3* force, const float4* bodies_, int n) {
  __shared__ float4 tile[P];
  int i = blockIdx.x * P + threadIdx.x;
  float4 mine = bodies_[min(i, n - 1)];
  float3 f = {0.f, 0.f, 0.f};
  for (int base = 0; base < n; base += P) {
    tile[threadIdx.x] = base + threadIdx.x < n ? bodies_[base + threadIdx.x] : make_float4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < P; ++k) f = interact(mine, tile[k], f);
    __syncthreads();
  }
  if (i < n) force[i] = f;
}
// instance bodies<32>
__global__ void lennard_jones(float* force, float* energy, const float* x, int n, float cutoff) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float e = 0;
  for (int j = 0; j < n; ++j) {
    if (j == i) continue;
    float d[3], r2 = 0;
    for (int a = 0; a < 3; ++a) { d[a] = x[3 * i + a] - x[3 * j + a]; r2 += d[a] * d[a]; }
    if (r2 > cutoff * cutoff) continue;
    float s6 = 1 / (r2 * r2 * r2), f = 24 * s6 * (2 * s6 - 1) / r2;
    e += 2 * s6 * (s6 - 1);
    for (int a = 0; a < 3; ++a) atomicAdd(&force[3 * i + a], f * d[a]);
  }
  atomicAdd(energy, e);
}
__device__ double normal(double d) { return 0.5 * erfc(-d * M_SQRT1_2); }
__global__ void black_scholes(double* call, const double* s, const double* k, const double* t, double r, double v, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    double root = sqrt(t[i]), d1 = (log(s[i] / k[i]) + (r + 0.5 * v * v) * t[i]) / (v * root), d2 = d1 - v * root;
    call[i] = s[i] * normal(d1) - k[i] * exp(-r * t[i]) * normal(d2);
  }
}
__global__ void binomial(float* out, float s, float k, float up, float p, float discount) {
  __shared__ float v[65];
  int t = threadIdx.x;
  v[t] = fmaxf(s * powf(up, 2.0f * t - 64) - k, 0.f);
  if (t == 0) v[64] = fmaxf(s * powf(up, 64.0f) - k, 0.f);
  for (int step = 64; step > 0; --step) {
    __syncthreads();
    float now = t < step ? discount * (p * v[t + 1] + (1 - p) * v[t]) : 0;
    __syncthreads();
    if (t < step) v[t] = now;
  }
  if (t == 0) *out = v[0];
}
__global__ void monte_carlo_pi(unsigned* inside, int tries) {
  unsigned s = 1234567u + 7919u * (blockIdx.x * blockDim.x + threadIdx.x), count = 0;
  for (int i = 0; i < tries; ++i) {
    s = s * 1664525u + 1013904223u; float x = (s >> 8) * (1.0f / 16777216.0f);
    s = s * 1664525u + 1013904223u; float y = (s >> 8) * (1.0f / 16777216.0f);
    count += x * x + y * y < 1.0f;
  }
  for (int o = warpSize / 2; o > 0; o >>= 1) count += __shfl_down(count, o);
  if (threadIdx.x % warpSize == 0) atomicAdd(inside, count);
}
__global__ void assign_clusters(int* membership, float* sums, int* counts, const float2* points, const float2* centers,
    int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int best = 0;
  float least = FLT_MAX;
  for (int c = 0; c < k; c++) {
    float dx = points[i].x - centers[c].x, dy = points[i].y - centers[c].y, d = dx * dx + dy * dy;
    if (d < least) { least = d; best = c; }
  }
  membership[i] = best;
  atomicAdd(&sums[2 * best], points[i].x); atomicAdd(&sums[2 * best + 1], points[i].y); atomicAdd(&counts[best], 1);
}
__global__ void floyd_warshall(int* d, int n, int k) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j < n && d[i * n + k] + d[k * n + j] < d[i * n + j]) d[i * n + j] = d[i * n + k] + d[k * n + j];
}
__global__ void edit_distance(int* out, const char* a, const char* b, int n) {
  __shared__ int diagonals[3][65];
  int t = threadIdx.x;
  for (int d = 0; d <= 2 * n; ++d) {
    int i = t, j = d - t;
    int *now = diagonals[d % 3], *last = diagonals[(d + 2) % 3], *before = diagonals[(d + 1) % 3];
    if (i <= n && j >= 0 && j <= n) {
      if (i == 0) now[i] = j;
      else if (j == 0) now[i] = i;
      else now[i] = min(min(last[i - 1], last[i]) + 1, before[i - 1] + (a[i - 1] != b[j - 1]));
    }
    __syncthreads();
  }
  if (t == n) *out = diagonals[2 * n % 3][n];
}
__global__ void pathfinder(int* out, const int* wall, int rows, int cols) {
  __shared__ int prev[64], result[64];
  int t = threadIdx.x;
  prev[t] = wall[t];
  __syncthreads();
  for (int r = 1; r < rows; ++r) {
    int left = t ? prev[t - 1] : INT_MAX, right = t + 1 < cols ? prev[t + 1] : INT_MAX;
    result[t] = min(prev[t], min(left, right)) + wall[r * cols + t];
    __syncthreads();
    prev[t] = result[t];
    __syncthreads();
  }
  out[t] = prev[t];
}
__global__ void nearest(float* d, const float2* places, int n, float lat, float lng) {
  int i = blockDim.x * (gridDim.x * blockIdx.y + blockIdx.x) + threadIdx.x;
  if (i < n) d[i] = (float)sqrt((lat - places[i].x) * (lat - places[i].x) + (lng - places[i].y) * (lng - places[i].y));
}
__device__ float fade(float t) { return t * t * t * (t * (t * 6 - 15) + 10); }
__device__ float gradient(unsigned ix, unsigned iy, float x, float y) {
  unsigned h = ix * 374761393u + iy * 668265263u;
  h = (h ^ (h >> 13)) * 1274126177u;
  return ((h & 1) ? -x : x) + ((h & 2) ? -y : y);
}
__global__ void fbm(float* out, int w, int octaves) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0, amp = 1, fx = px * 0.13f, fy = py * 0.17f;
  for (int o = 0; o < octaves; ++o, amp *= 0.5f, fx *= 2, fy *= 2) {
    float x0 = floorf(fx), y0 = floorf(fy), x = fx - x0, y = fy - y0, u = fade(x), v = fade(y);
    unsigned ix = (unsigned)(int)x0, iy = (unsigned)(int)y0;
    float a = gradient(ix, iy, x, y), b = gradient(ix + 1, iy, x - 1, y), c = gradient(ix, iy + 1, x, y - 1),
        d = gradient(ix + 1, iy + 1, x - 1, y - 1);
    sum += amp * ((1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * c + u * d));
  }
  out[py * w + px] = sum;
}
enum class Gate : int { And, Or, Xor, Nand };
__global__ void gates(unsigned* out, const unsigned* a, const unsigned* b, const Gate* gate) {
  int i = threadIdx.x;
  switch (gate[i]) {
    case Gate::And: out[i] = a[i] & b[i]; break;
    case Gate::Or: out[i] = a[i] | b[i]; break;
    case Gate::Xor: out[i] = a[i] ^ b[i]; break;
    default: out[i] = ~(a[i] & b[i]);
  }
}
struct Scale { float factor; __device__ float operator()(float v) const { return v * factor; } };
struct Offset { float by; __device__ float operator()(float v) const { return v + by; } };
template <class F> __global__ void apply(float* x, int n, F f) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)
    x[i] = f(x[i]); }
// instance apply<Scale>
// instance apply<Offset>
__global__ void while_body(int* x, unsigned* go, int limit) { if (threadIdx.x == 0) { *x *= 2; *go = *x < limit; } }
__global__ void conjugate_step(float* x, float* r, const float* p, const float* ap, const float* rr, const float* pap, int n) {
  const float alpha = *rr / *pap;
  for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { x[i] += alpha * p[i];
      r[i] -= alpha * ap[i]; }
}
"""


@idiom(PROGRAMS, "sorting networks: bitonic in shared memory and in a warp, odd-even")
def sorting_networks(run: Run) -> None:
    x = ints(256)
    wanted = np.sort(x)
    run("bitonic", 1, 256, x)
    same(x, wanted)
    y = ints(75, 1)
    wanted = np.sort(y)
    for phase in range(75):
        run("odd_even", 1, 64, y, 75, phase % 2)
    same(y, wanted)
    z = ints(64, 2)
    wanted = np.sort(z.reshape(2, 32), axis=1)
    run("warp_sort", 1, 64, z)
    same(np.sort(z.reshape(2, 32), axis=1), wanted)
    same(z[:32], wanted[0])


@idiom(PROGRAMS, "merging by ranks from binary searches")
def merge_by_ranks(run: Run) -> None:
    a, b, out = np.sort(ints(90)), np.sort(ints(90, 1)), zeros(180)
    run("merge_ranks", 1, 128, out, a, b, 90)
    same(out, np.sort(np.concatenate([a, b])))


@idiom(PROGRAMS, "FFT butterflies with float2, DFT with hipDoubleComplex")
def fourier_transforms(run: Run) -> None:
    z = (reals(128) + 1j * reals(128, seed=1)).astype(np.complex64)
    wanted = np.fft.fft(z)
    run("fft", 1, 32, z, 128, 7, shared_bytes=1024)
    near(z.view(f32), wanted.astype(np.complex64).view(f32), 1e-3, 1e-3)
    d = (reals(50) + 1j * reals(50, seed=1)).astype(np.complex128)
    out = np.zeros_like(d)
    run("dft", 1, 64, out, d, 50)
    near(out.view(f64), np.fft.fft(d).view(f64))


@idiom(PROGRAMS, "Walsh-Hadamard transform, 8x8 cosine transform of JPEG")
def other_transforms(run: Run) -> None:
    x = ints(128)
    h = np.array([[1]])
    for _ in range(7):
        h = np.block([[h, h], [h, -h]])
    wanted = h @ x
    run("walsh", 1, 128, x)
    same(x, wanted)
    a, out = reals(2, 8, 8), zeros(128, f32)
    run("dct8", 2, (8, 8), out, a)
    k, n = np.mgrid[:8, :8]
    c = np.where(k == 0, np.sqrt(1 / 8), 0.5) * np.cos((2 * n + 1) * k * np.pi / 16)
    near(out, c @ a @ c.T)


@idiom(PROGRAMS, "n-body with tiles of bodies and an operator of float3")
def bodies_by_tiles(run: Run) -> None:
    b, force = reals(50, 4), zeros(150, f32)
    b[:, 3] = abs(b[:, 3])
    run("bodies<32>", 2, 32, force, b, 50)
    d = b[None, :, :3].astype(f64) - b[:, None, :3]
    near(force, (d * (b[:, 3] * ((d**2).sum(-1) + 0.01) ** -1.5)[..., None]).sum(1), 1e-3, 1e-3)


@idiom(PROGRAMS, "molecular dynamics (GROMACS' shape): Lennard-Jones with a cutoff")
def lennard_jones_forces(run: Run) -> None:
    x = (np.mgrid[:3, :3, :3].reshape(3, 27).T * 1.2).astype(f32) + 0.05 * reals(27, 3)
    x = x.astype(f32)
    force, energy = zeros(81, f32), zeros(1, f32)
    run("lennard_jones", 1, 32, force, energy, x, 27, 2.0)
    d = x[:, None].astype(f64) - x[None]
    r2 = (d**2).sum(-1)
    close = (r2 > 0) & (r2 <= 4)
    s6 = np.where(close, 1 / np.where(close, r2, 1) ** 3, 0)
    near(force, (d * (24 * s6 * (2 * s6 - 1) / np.where(close, r2, 1))[..., None]).sum(1), 1e-3, 1e-2)
    near(energy, (2 * s6 * (s6 - 1)).sum(), 1e-3, 1e-2)


@idiom(PROGRAMS, "finance: Black-Scholes, a binomial tree")
def option_prices(run: Run) -> None:
    s, k, t = abs(reals(60)).astype(f64) + 1, abs(reals(60, seed=1)).astype(f64) + 1, abs(reals(60, seed=2)).astype(f64) + 0.1
    call = zeros(60, f64)
    run("black_scholes", 1, 32, call, s, k, t, f64(0.02), f64(0.3), 60)
    d1 = (np.log(s / k) + (0.02 + 0.045) * t) / (0.3 * np.sqrt(t))
    cdf = np.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))
    near(call, s * cdf(d1) - k * np.exp(-0.02 * t) * cdf(d1 - 0.3 * np.sqrt(t)))
    out = zeros(1, f32)
    up, p, discount = 1.02, 0.52, 0.999
    run("binomial", 1, 64, out, 100.0, 95.0, up, p, discount)
    v = np.maximum(100 * up ** (2.0 * np.arange(65) - 64) - 95, 0)
    while len(v) > 1:
        v = discount * (p * v[1:] + (1 - p) * v[:-1])
    near(out, v, 1e-4)


@idiom(PROGRAMS, "Monte Carlo estimates")
def estimate_of_pi(run: Run) -> None:
    inside = zeros(1, u32)
    run("monte_carlo_pi", 4, 128, inside, 40)
    s, count = np.uint32(1234567) + np.uint32(7919) * np.arange(512, dtype=u32), 0
    for _ in range(40):
        xy = []
        for _ in range(2):
            s = s * u32(1664525) + u32(1013904223)
            xy.append((s >> 8).astype(f32) * f32(1 / 16777216))
        count += int((xy[0] * xy[0] + xy[1] * xy[1] < 1).sum())
    same(inside, count)


@idiom(PROGRAMS, "Rodinia kmeans: the nearest centre, sums by atomics")
def clusters(run: Run) -> None:
    points, centers = reals(200, 2), reals(5, 2, seed=1)
    member, sums, counts = zeros(200), zeros(10, f32), zeros(5)
    run("assign_clusters", 2, 128, member, sums, counts, points, centers, 200, 5)
    wanted = ((points[:, None] - centers) ** 2).sum(-1).argmin(1)
    same(member, wanted)
    same(counts, np.bincount(wanted, minlength=5))
    near(sums, [points[wanted == c].sum(0) for c in range(5)], 1e-4, 1e-4)


@idiom(PROGRAMS, "rocm-examples floyd_warshall")
def all_shortest_paths(run: Run) -> None:
    d = ints(400, 0, 1, 100).reshape(20, 20)
    np.fill_diagonal(d, 0)
    wanted = d.copy()
    for k in range(20):
        run("floyd_warshall", (1, 20), 32, d, 20, k)
        wanted = np.minimum(wanted, wanted[:, k : k + 1] + wanted[k])
    same(d, wanted)


@idiom(PROGRAMS, "Rodinia nw and pathfinder: dynamic programming along diagonals and rows")
def dynamic_programming(run: Run) -> None:
    a, b = ints(40, 0, 0, 4).astype("i1"), ints(40, 1, 0, 4).astype("i1")
    out = zeros(1)
    run("edit_distance", 1, 64, out, a, b, 40)
    row = list(range(41))
    for i in range(1, 41):
        following = [i]
        for j in range(1, 41):
            following.append(min(row[j] + 1, following[-1] + 1, row[j - 1] + int(a[i - 1] != b[j - 1])))
        row = following
    same(out, row[-1])
    wall, best = ints(640, 2, 0, 10).reshape(10, 64), zeros(64)
    run("pathfinder", 1, 64, best, wall, 10, 64)
    now = wall[0].astype(i64)
    for r in range(1, 10):
        p = np.pad(now, 1, constant_values=10**6)
        now = np.minimum(np.minimum(p[:-2], p[2:]), now) + wall[r]
    same(best, now)


@idiom(PROGRAMS, "Rodinia nn: distances over a 2-D grid of blocks")
def nearest_neighbours(run: Run) -> None:
    places, d = reals(150, 2), zeros(150, f32)
    run("nearest", (2, 2), 64, d, places, 150, 0.5, -0.25)
    near(d, np.hypot(0.5 - places[:, 0], -0.25 - places[:, 1]))


@idiom(PROGRAMS, "warp's example_graph_capture: octaves of gradient noise")
def fractal_noise(run: Run) -> None:
    out = zeros(256, f32)
    run("fbm", (2, 2), (8, 8), out, 16, 4)
    total = np.zeros((16, 16))
    py, px = np.mgrid[:16, :16].astype(f32)
    fx, fy, amp = px * f32(0.13), py * f32(0.17), 1.0

    def gradient(ix: Array, iy: Array, x: Array, y: Array) -> Array:
        h = ix.astype(u32) * u32(374761393) + iy.astype(u32) * u32(668265263)
        h = (h ^ (h >> 13)) * u32(1274126177)
        return np.asarray(np.where(h & 1, -x, x) + np.where(h & 2, -y, y))

    for _ in range(4):
        ix, iy = np.floor(fx).astype(i64), np.floor(fy).astype(i64)
        x, y = fx - ix, fy - iy
        u, v = (t * t * t * (t * (t * 6 - 15) + 10) for t in (x, y))
        low = (1 - u) * gradient(ix, iy, x, y) + u * gradient(ix + 1, iy, x - 1, y)
        high = (1 - u) * gradient(ix, iy + 1, x, y - 1) + u * gradient(ix + 1, iy + 1, x - 1, y - 1)
        total += amp * ((1 - v) * low + v * high)
        fx, fy, amp = fx * 2, fy * 2, amp / 2
    near(out, total, 1e-4, 1e-4)


@idiom(PROGRAMS, "binary_fhe's gates, Kokkos' and warp's functors, bodies of while nodes, conjugate gradients")
def kernels_of_graph_programs(run: Run) -> None:
    a, b, gate, out = numbers_of(8).astype(u32), numbers_of(8, 1).astype(u32), np.arange(8, dtype=i32) % 4, zeros(8, u32)
    run("gates", 1, 8, out, a, b, gate)
    same(out, np.choose(gate, [a & b, a | b, a ^ b, ~(a & b)]))
    x = reals(30)
    wanted = x * f32(3) + f32(0.5)
    run("apply<Scale>", 1, 32, x, 30, 3.0)
    run("apply<Offset>", 1, 32, x, 30, 0.5)
    near(x, wanted)
    value, go = np.ones(1, i32), np.ones(1, u32)
    while go[0]:
        run("while_body", 1, 32, value, go, 100)
    same(value, 128)
    m = reals(20, 20).astype(f64)
    m = m @ m.T + 20 * np.eye(20)
    solution, rhs = zeros(20, f32), reals(20, seed=1)
    r, p = rhs.copy(), rhs.copy()
    for _ in range(20):
        ap = (m @ p).astype(f32)
        rr, pap = np.array([r @ r], f32), np.array([p @ ap], f32)
        run("conjugate_step", 2, 8, solution, r, p, ap, rr, pap, 20)
        if r @ r < 1e-10:
            break
        p = (r + (r @ r) / rr[0] * p).astype(f32)
    near(solution, np.linalg.solve(m, rhs), 1e-3, 1e-4)


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(compiler: Compiler, name: str) -> None:  # noqa: F811
    source, test = IDIOMS[name]
    symbols = "crc_table" if source is BITS else ""
    test(Run(library(compiler, source, kernels_of(source), symbols)))
