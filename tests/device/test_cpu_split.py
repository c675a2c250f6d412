"""Kernels that are split at their barriers do what their threads do one by one, and those that are not understood stay."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from device.test_cpu_kernels import Library, compiler_of, i32

from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.parts.cpu import rtc
from hipgraphdsl.parts.cpu.split import split as original
from hipgraphdsl.parts.cpu.warps import Flat

MODES: tuple[Literal["fast", "base"], ...] = ("fast", "base")

# Each kernel takes 256 integers, and a number. Threads are 64, or 16 x 8, or 5 x 4 x 3.
HEAD = r"""
#include <hip/hip_runtime.h>
#define T (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
#define N (blockDim.x * blockDim.y * blockDim.z)
struct Pair { int a, b; };
static const int LIMIT = 3;
enum Kind { SMALL, LARGE = 5 };
namespace other { __device__ int twice(int v) { return 2 * v; } }
__device__ void add(int& to, int v) { to += v; }
__device__ int through(const int* p) { return p[0] + p[1]; }
__device__ int me() { return threadIdx.x + threadIdx.y * 7 + threadIdx.z * 31; }
"""
SPLIT = r"""
__global__ void rotated(int* x, int n) {
  __shared__ int s[256]; int t = T; s[t] = x[t]; __syncthreads(); x[t] = s[(t + n) % N];
}
__global__ void worded(int* x, int n) {
  __shared__ int s[256]; const size_t t = T; const uint32_t half = 0b10; s[t] = x[t]; __syncthreads();
  if (n > 1 and not (n == 3)) { s[t] += static_cast<int>(half); __syncthreads(); } x[t] += s[(t + half) % N];
}
__global__ void returned(int* x, int n) {
  __shared__ int s[256]; const int t = T; s[t] = 1; if (t >= n) return; s[t] = x[t] * 3; __syncthreads();
  for (int k = 0; k < 3; ++k) { x[t] += s[(t + k) % N]; __syncthreads(); if (t == 3 * k) return; s[t] += k; __syncthreads(); }
  x[t] += 1000;
}
__global__ void all_return(int* x, int n) {
  __shared__ int s[256]; int t = T; if (n < 4) return; int part = 64 / (n - 3); s[t] = part; __syncthreads();
  for (int k = n; k != 0; k /= 2) { s[t] += x[t] / k; __syncthreads(); } x[t] = s[t];
}
__global__ void halving(int* x, int n) {
  extern __shared__ int s[]; unsigned t = T; s[t] = x[t]; __syncthreads();
  unsigned c = 1; while (c < N) c *= 2;
  for (unsigned k = 128; k > 0; k >>= 1) { if (t < k && t + k < N) s[t] += s[t + k]; __syncthreads(); }
  x[t] = s[0] + n + c;
}
__global__ void shadowed(int* x, int n) {
  __shared__ int s[256]; int t = T, v = x[t]; s[t] = v;
  { int v = s[t] + 1; __syncthreads(); { int v = 5; s[t] += v; } s[t] += v; __syncthreads(); x[t] += v; }
  for (int v = 0; v < n; ++v) { int t = v; __syncthreads(); s[T] += t; }
  __syncthreads(); x[t] += v + s[N - 1 - t];
}
__global__ void hidden_later(int* x, int n) {
  int t = T, v = x[t] / warpSize; x[t] = t + n; __syncthreads();
  { x[t] += v + n * LIMIT; const int LIMIT = n, warpSize = n - 1; __syncthreads(); x[t] += LIMIT + warpSize; }
  { x[t] += 3; int n = 100; __syncthreads(); x[t] += n; }
  x[t] += 7; const int warpSize = n - 1; __syncthreads(); x[t] += warpSize; }
__device__ int overloaded(long long v) { return (int)v + 1; }
__device__ int calls(int v) { return overloaded(v); }
__device__ int overloaded(int v) { return v * 3; }
__global__ void calls_what_is_overloaded(int* x, int n) {
  int v = x[T]; __syncthreads(); x[T] = calls(v) + overloaded(v) + overloaded(short(n)); }
__device__ int overloaded(short v) { return v * 7; }
__global__ void again_shadowed(int* x, int n) {
  int k = n + 1, i = T * k, j = T * LIMIT; __syncthreads();
  { int LIMIT = 100; __syncthreads(); x[T] += j + LIMIT; }
  { int k = 100; x[T] += i + k; __syncthreads(); x[T] += i - k; }
  for (int k = 0; k < 2; ++k) { __syncthreads(); x[T] += i * k; }
}
__global__ void arrays(int* x, int n) {
  int kept[4] = {1, 2}, plain[3]; int t = T; kept[t % 4] += x[t]; __syncthreads();
  for (int k = 0; k < 4; ++k) kept[k] += kept[(k + 1) % 4] * n;
  plain[0] = kept[3]; plain[1] = plain[0] + 1; x[t] = plain[1]; __syncthreads();
  x[t] += kept[t % 4] + sizeof(kept) + sizeof kept[0];
}
__global__ void addresses(int* x, int n) {
  int t = T, v = x[t], w[2] = {v, n}; int* p = &v; __syncthreads(); *p += n; add(w[0], 3); __syncthreads(); x[t] = v + through(w);
}
__global__ void uniform_if(int* x, int n) {
  __shared__ int s[256]; int t = T; s[t] = x[t];
  if (n > LIMIT) { __syncthreads(); x[t] = s[(t + 1) % N]; } else if (n == SMALL) x[t] = -1; else { x[t] *= 2; __syncthreads(); }
  if (n & 1) __syncthreads(); else x[t] += LARGE;
  __shared__ int r[256]; r[t] = x[t]; __syncthreads(); x[t] += r[N - 1 - t];
}
__global__ void loops(int* x, int n) {
  __shared__ int s[256]; int t = T, turns = n % 4, i, j; s[t] = 0;
  do { s[t] += x[t]; __syncthreads(); x[t] += s[(t + turns) % N]; turns--; __syncthreads(); } while (turns > 0);
  while (turns < 3) { turns += 2; __syncthreads(); s[t] += turns; }
  j = n; for (i = 0; i < j; i += 2) { j--; __syncthreads(); }
  __syncthreads(); x[t] = s[(t + i) % N] + j;
}
__global__ void changing(int* x, int n) {
  __shared__ int s[256]; int k = n; int i = T + k; k += 2; s[T] = x[T]; __syncthreads(); x[T] += i + k + s[(i + k) % N];
  k = 3; __syncthreads(); x[T] += i * k;
}
__global__ void parameter(int* x, int n) {
  __shared__ int s[256]; x += blockIdx.x * N; n = n * 2; s[T] = x[T]; __syncthreads(); x[T] = s[(T + n) % N];
}
__global__ void jumps(int* x, int n) {
  __shared__ int s[256]; int t = T; s[t] = 0;
  for (int k = 0; k < 9; ++k) { if (k == t % 5) continue; if (k > t) break; s[t] += k; }
  __syncthreads();
  switch (x[t] % 3) { case 0: x[t] = s[(t + 1) % N]; break; case 1: return; default: x[t] = n; }
  __syncthreads(); x[t] += 7;
}
__global__ void structures(int* x, int n) {
  Pair p = {x[T], n}; float4 f = make_float4(1, 2, 3, x[T]); const Pair* q = &p; __syncthreads();
  p.a += 2; f.y += p.a; f = f * 2.0f;
  __syncthreads(); x[T] = q->a + q->b + (int)f.y + (int)f.w;
}
__global__ void calls(int* x, int n) {
  int t = me(); __shared__ int s[256]; s[T] = other::twice(t); __syncthreads(); x[T] = s[(T + 1) % N] + me() + other::twice(t);
  atomicAdd(&s[0], 1); __syncthreads(); x[T] += s[0];
}
__global__ void types(int* x, int n) {
  typedef long big; constexpr int two = 2; static const int table[3] = {5, 6, 7};
  const unsigned char small = x[T] * 77; big large = (big)x[T] << 33; const bool odd = small & 1; float f = small / 3.0f;
  double d = f; auto* at = x + T; const auto v = *at; short many[two] = {short(small), 2}; __syncthreads();
  *at = small + (int)(large >> 32) + odd + (int)(f * 100) + (int)d + v + many[1] + table[n % 3]; __syncthreads(); x[T] += many[0];
}
__global__ void in_one_statement(int* x, int n) {
  int a = x[T], b = a + n, c = b * a, m = n / 2; __syncthreads(); x[T] = a + b + c;
  for (; m > 0; --m) { __syncthreads(); x[T] += m; }
}
extern "C" { __global__ void in_c(int* x, int n) {
  __shared__ int s[256]; s[T] = x[T]; __syncthreads(); x[T] = s[N - 1 - T] + n; } }
namespace inner { struct Pair { int c; }; __global__ void in_space(int* x, int n) {
  Pair p{x[T]}; __shared__ int s[256]; s[T] = p.c; __syncthreads(); x[T] = s[N - 1 - T] + p.c + n; } }
__global__ void divides(int* x, int n) {
  int t = T; if (t >= n) return; int q = 100 / (n - t); __syncthreads(); x[t] += q; __syncthreads(); x[t] += 200 / (n - t) + q;
}
__global__ void none_left(int* x, int n) {
  if (n < 101) return; for (int k = 5; k != 7; k = 1 / (n - 100)) { __syncthreads(); x[T] = k; } }
__device__ int shared_name(int v) { return v + 1; }
__global__ void shared_name(int* x, int n) { __shared__ int s[256]; s[T] = x[T]; __syncthreads(); x[T] = s[N - 1 - T] + n; }
__global__ void pragmas(int* x, int n) {
  int sum = 0; __syncthreads();
#pragma unroll
  for (int k = 0; k < 4; ++k) sum += x[(T + k) % N];
  __syncthreads(); x[T] = sum + __LINE__;
}
__global__ void conditional(int* x, int n) {
  int t = T; int v = x[t], w; (t % 2 ? v : w) = 9; w = t + 1; __syncthreads();
  ++(v); (w = v, v) += n; __syncthreads(); x[t] = v + w;
}
"""
WARPS = r"""
__device__ float warp_sum(float v) { for (int o = warpSize / 2; o > 0; o /= 2) v += __shfl_down(v, o); return v; }
__device__ int butterfly(int v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor(v, o);
  return v; }
__device__ int scan(int v, int lane) {
  for (int d = 1; d < warpSize; d *= 2) { int y = __shfl_up(v, d); if (lane >= d) v += y; } return v; }
__device__ int whole_block(int* s, int v) {
  int lane = T % warpSize, warp = T / warpSize; v = butterfly(v);
  if (lane == 0) s[warp] = v; __syncthreads(); return s[0] + s[(N - 1) / warpSize]; }
__device__ void pass() { __syncthreads(); }
__global__ void within(int* x, int n) { pass(); x[T] += n; __syncthreads(); x[T]++; }
__global__ void sums(int* x, int n) { int v = x[T], w = n; w = __shfl_xor(n, 1); __syncthreads(); x[T] = v + w; }
__global__ void block_sums(int* x, int n) {
  __shared__ float s[64]; const int lane = T % warpSize, warp = T / warpSize; float v = warp_sum(x[T] * 0.1f * n);
  if (lane == 0) s[warp] = v; __syncthreads(); v = T < (N + warpSize - 1) / warpSize ? s[lane] : 0.0f;
  if (warp == 0) v = warp_sum(v); x[T] = __float_as_int(v); }
__global__ void masked_sums(int* x, int n) {
  int v = x[T];
  for (int i = T; i < 200; i += N) v += i;
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(~0ull, v, o); x[T] = v; __syncthreads();
  for (int o = 8; o; o /= 2) v += __shfl_xor_sync(~0ull, v, o, 16); x[T] += v;
  x[T] ^= (int)__ballot_sync(~0ull, v & 1); }
__global__ void butterflies(int* x, int n) {
  short s = x[T]; x[T] = butterfly(x[T]) - n; s = butterfly(s); double d = butterfly(0.5 * s); x[T] += s + (int)d; }
__global__ void scans(int* x, int n) { int v = x[T], lane = T % warpSize; v = scan(v, lane); x[T] = v; __syncwarp(); x[T] += n; }
__global__ void votes(int* x, int n) {
  int lane = T % warpSize, u; unsigned long long odd = __ballot(x[T] & 1);
  unsigned long long below = odd & ((1ull << lane) - 1); int v = x[T];
  x[T] = __popcll(below) + 100 * lane; u = 100 * __any(v > 40 + n); x[T] += u; u = 1000 * (__all(lane < 40) != 0);
  x[T] += u; x[T] += 10000 * __popcll(__activemask()); }
__global__ void branches(int* x, int n) {
  int t = T, v = x[t];
  if (t & 1) v = __popcll(__ballot(v & 2)); if (t % 3 == 0) { v = __shfl_down(v, 1); v += 1000; } if (t % 3) x[t] = 7;
  if (t % 5 < n) { if (v & 1) v += 100 * __popcll(__activemask()); if (v & 2) { v += __shfl(v, t % 7); } v ^= __any(v > 3); }
  x[t] += v; }
__global__ void partly(int* x, int n) {
  int t = T, a = n, b = 7; if (t & 1) { a = n + 5; x[t] += __popcll(__activemask()); x[t] += a; } x[t] += 100 * a;
  if (t & 4) { for (int k = 0; k < 2; ++k) { b += k + n; x[t] = __shfl(x[t], k); } } x[t] += 1000 * b; }
__global__ void gone(int* x, int n) {
  int t = T; if (t % 7 == n) return; int v = __shfl_down(x[t], 3); if (v > 30) { x[t] = v; return; }
  x[t] += v + __popcll(__activemask()); if (x[t] & 1) x[t] = __shfl(v, 0); }
__global__ void varying(int* x, int n) {
  int t = T; x[t] += __shfl(x[t], x[t]) * 3; x[t] -= __shfl_up(n, t % 5); x[t] ^= __shfl_down(t, x[t] % 9, 1 << (n % 7 % 6)); }
__device__ int extent(int w) { char few[2]; w = __shfl(w, 2); return w + sizeof few; }
__global__ void by_extent(int* x, int n) { const int K = 3; x[T] = extent(x[T]); x[T] += K; }
__global__ void in_functions(int* x, int n) {
  __shared__ int s[64]; x[T] += whole_block(s, x[T]); x[T] = (int)warp_sum((float)x[T]) * n; }
__global__ void asked(int* x, int n) { int v = x[T]; if (__any(v == 3)) v += __popcll(__ballot(v & 4)); x[T] = v; }
__global__ void conditions(int* x, int n) {
  int t = T; if (n > 3) x[t] = __shfl_xor(x[t], 4);
  else if (n) { int v = x[t]; for (int k = 0; k < n; ++k) v -= __shfl_up(v, k); x[t] = v; }
  if (t < 10) { int q = 100 / (n < 9 ? 3 : n); x[t] += q + __popcll(__ballot(x[t] & 1)); } }
__global__ void own_arrays(int* x, int n) {
  int t = T, h = x[t], w = 0; w = __shfl_xor(h, 1); int z[4] = {h, w ^ 5, n, t}; z[(t * 7 + h) & 3] -= t; w = z[(h >> 2) & 3];
  h = __shfl(w, t ^ 2); int a = h, b = n, c = t; int* p = h % 3 == 0 ? &a : h % 3 == 1 ? &b : &c; *p += 7; w = a + 3 * b + 5 * c;
  x[t] = __shfl(w, 3) + w; }
__global__ void behind_and_beyond(int* x, int n) {
  int v = __shfl(x[T], 1) + LIMIT; const int twice = 2 * n, LIMIT = twice + 1; v += __shfl_xor(v, 2); if (T == n) x[T] = v;
  __syncthreads(); v = x[(T + 1) % N] + twice; __syncthreads(); v += __shfl_up(v, 3); if (T < 5) x[T] = v + LIMIT; }
__global__ void typed(int* x, int n) {
  double d = x[T] * 0.5; d += __shfl_down(d, 4); long long l = (long long)x[T] << 33; l ^= __shfl_xor(l, 8);
  unsigned char c = x[T]; c += __shfl_up(c, 16); bool b = x[T] & 1; b = __shfl_xor(b, 1);
  float f = d; f -= __shfl_down(f, 32, 64); x[T] = d + (int)(l >> 33) + c + b + f; }
__global__ void narrow(int* x, int n) {
  int v = x[T]; for (int o = 16; o > 0; o >>= 1) v += __shfl_down(v, o, 32);
  for (int o = 1; o < 16; o *= 2) v ^= __shfl_xor(v, o, 16); v -= __shfl_up(v, 2, 32); x[T] = v + __shfl(v, 5, 8); }
__global__ void inside_masks(int* x, int n) {
  int v = x[T], w = v; if (v & 1) { int u = __shfl_xor(v, 2); v += u; if (T > 9) { w -= __shfl_down(v, 8); u++; } w += u; }
  if (T / 64 == 0) { for (int o = 32; o > 0; o /= 2) w += __shfl_down(w, o); } x[T] = w - v; }
__global__ void divides_where_it_runs(int* x, int n) {
  int v = x[T]; const int odd = T % 2;
  if (T % 2) { v += __shfl_xor(v, 4); if (T / (T % 2) > 20) v++; v -= __shfl_up(v, 1); } x[T] = v + odd; }
__global__ void leaves_before(int* x, int n) {
  int t = T, v = x[t]; if (t >= 40 + n) return; v += __shfl_down(v, 4); if (v & 2) { v -= __shfl_xor(v, 1); } x[t] = v;
  for (int k = n; k > 0; k /= 2) { v += __shfl_up(v, k); if (t == 3 * k) return; x[t] += v; } x[t] += 1000; }
__global__ void own_warp_size(int* x, int n) { const int warpSize = 16; int v = x[T]; x[T] = __shfl(v, 20) + warpSize; }
"""
STAYS = r"""
__global__ void loads_before(int* x, int n) {
  __shared__ int s[256]; int t = T; s[t] = x[t]; __syncthreads();
  int r = s[t / warpSize * warpSize] + __shfl(t, 1) * n; s[t] = 7; x[t] = r; }
__global__ void beside(int* x, int n) { int a = x[T], b = __shfl_xor(a, 2) + a, c = a + b; x[T] = a + b * c; }
__global__ void nested(int* x, int n) { int v = __shfl(__shfl_xor(x[T], 1) + n, x[T] & 7); x[T] = v; }
__global__ void turns(int* x, int n) {
  int lane = T % warpSize, v = 0; for (int i = 0; i < lane % 4; ++i) v += __popcll(__ballot(1));
  do { v += 10000 * __popcll(__ballot(v & 1)); } while (--lane % 3 > 0);
  while (lane > 0) { lane -= 7; v = __shfl_xor(v, 1) + v / 2; }
  x[T] += v; }
__global__ void otherwise(int* x, int n) {
  int v = x[T]; if (T & 1) v = __popcll(__ballot(v & 2)); else if (T % 3 == 0) v = __shfl_down(v, 1); x[T] = v; }
__global__ void masks_may_not_fit(int* x, int n) {
  int v = x[T]; if (threadIdx.x < n) v = __shfl_sync(~0ull, v, 1); x[T] = v; if (threadIdx.x < 3) v = __shfl_sync(~0ull, v, 2);
  x[T] += v; }
__device__ void scan_into(int& v, int d) { int y = __shfl_up(v, d); if (T % warpSize >= d) v += y; }
__global__ void by_reference(int* x, int n) { int v = x[T]; scan_into(v, 2); x[T] = v; }
__device__ int letters(int v) { return 'v' + __shfl(v, 1); }
__global__ void spelled(int* x, int n) { x[T] = letters(x[T]); }
template <class V, int FIRST> __device__ V pattern_sum(V v) {
#pragma unroll
  for (int o = FIRST; o > 0; o >>= 1) v += __shfl_xor(v, o);
  return v; }
__global__ void by_pattern(int* x, int n) {
  short s = x[T]; x[T] = pattern_sum<int, 16>(x[T]) - n; s = pattern_sum<short, 4>(s);
  double d = pattern_sum<double, 32>(0.5 * s); x[T] += s + (int)d; }
template <int K> __device__ int pattern_extent(int w) { char few[K]; w = __shfl(w, K); return w + sizeof few; }
__global__ void by_pattern_extent(int* x, int n) { const int K = 3; x[T] = pattern_extent<2>(x[T]); x[T] += K; }
__device__ int shares(int v) {
  __shared__ int s[64]; int lane = T % warpSize, warp = T / warpSize; v += __shfl_xor(v, 16);
  if (lane == 0) s[warp] = v; __syncthreads(); return s[0] + s[(N - 1) / warpSize]; }
__global__ void shares_in_a_function(int* x, int n) { x[T] += shares(x[T]); x[T] += n; }
template <int K> __device__ int lettered(int w) { w = __shfl(w, K); return w + 'K'; }
__global__ void letter(int* x, int n) { x[T] = lettered<2>(x[T]); }
__device__ int hgcpu_w1(int v) { return v + 3; }
__global__ void our_names(int* x, int n) { int v = hgcpu_w1(x[T]), hgcpu_t = n; v += __shfl(v, 1); x[T] = v + hgcpu_t; }
__global__ void our_names_too(int* x, int n) { int v = x[T]; __syncthreads(); { int hgcpu_t = n; v += hgcpu_t; } x[T] = v; }
__global__ void in_order(int* x, int n) { unsigned v = x[T]; x[T] = v << __shfl(++v & 3, 1); }
__global__ void switched(int* x, int n) {
  int v = x[T]; switch (T & 1) { case 0: v = __shfl(v, 1); break; case 1: v = __shfl(v, 2); } x[T] = v; }
__device__ void inner_step(int& b) { int v = 3 + T; b += __shfl(v, 1); }
__device__ void outer_step(int& a) { inner_step(a); a += __popcll(__activemask()); }
__global__ void captured(int* x, int n) { int v = x[T]; outer_step(v); x[T] = v; }
template <class V, int K> __device__ V named_by(const V& p) { return __shfl(p, 1); }
__global__ void hidden_by_template(int* x, int n) { const int K = x[T]; x[T] = named_by<int, 3>(K); }
template <template <class> class W> __device__ int of_template(int v) { return __shfl(v, 1); }
template <class V> struct Wrapped { V v; };
__global__ void of_templates(int* x, int n) { x[T] = of_template<Wrapped>(x[T]); }
__device__ int bump(int* s, int v) { return s[0] += v; }
__global__ void in_braces(int* x, int n) {
  int t = T; int a[2] = {bump(x + t, __shfl(t, 1)), __shfl(x[t], 2)}; x[t] = a[0] + 100 * a[1]; }
__global__ void in_shift(int* x, int n) { int t = T; x[t] = ((x[t] = __shfl(t, 1)) << (__shfl(x[t], 2) & 7)); }
__global__ void divides_by(int* x, int n) {
  int v = x[T]; if (N > 64) { if (T / 64 % (blockDim.x / 128 * 2) == 0) v += __shfl_sync(~0ull, v, 1); } x[T] = v; }
__global__ void load_left_out(int* x, int n) {
  const int *p = n ? x : nullptr; int t = T, v = (__any(n > 0) ? p[t] : 3) + __shfl(t, 1); x[t] = v; }
__global__ void deep(int* x, int n) { int v = x[T]; x[T] = __shfl(v, 1)DEEP; }
__global__ void two_orders(int* x, int n) { x[T] = __shfl(x[T], 1) + atomicAdd(&x[T], 1) * 0; }
__global__ void left_out(int* x, int n) { int l = T; x[T] = l < 20 ? __any(l == n) : n; }
__global__ void changed_mask(int* x, int n) { x[T] += __shfl_sync(x[T] & 1 ? 0x55555555ull : ~0ull, x[T], 0); }
__global__ void meet_elsewhere(int* x, int n) {
  int l = T, v; if (x[l] & 1) v = __shfl_sync(~0ull, l, 0); else v = __shfl_sync(~0ull, l, 1); x[l] = v; }
__device__ int widened(long long v) { return (int)v + 1; }
__device__ int calls_widened(int v) { return widened(__shfl(v, 1)); }
__device__ int widened(int v) { return v * 3; }
__global__ void overloaded_later(int* x, int n) { x[T] = calls_widened(x[T]) + widened(n); }
__device__ int early(int v) { if (v & 1) return __shfl(v, 0); return v; }
__global__ void returns_early(int* x, int n) { x[T] = early(x[T]); }
__device__ int hidden(int v) { return __shfl(v, LIMIT); }
__global__ void hides(int* x, int n) { const int LIMIT = n % 2; x[T] = hidden(x[T]) + LIMIT; }
__device__ int again(int v, int n) { v += __shfl(v, n); if (n > 0) v = again(v, n - 1); return v; }
__global__ void recursive(int* x, int n) { x[T] = again(x[T], n % 3); }
__global__ void leaves_a_loop(int* x, int n) { for (int k = 0; k < 9; ++k) { x[T] += __shfl(x[T], k); if (x[T] > 60) break; } }
__global__ void returns_inside(int* x, int n) { if (T & 1) { x[T] = __shfl(x[T], 3); if (x[T] > 20) return; x[T]++; } x[T] += 2; }
__global__ void differs(int* x, int n) {
  for (int k = 0; k < T % 3; ++k) x[T] += k; for (int k = 0; k < x[255]; ++k) __syncthreads(); }
__global__ void through_memory(int* x, int n) {
  __shared__ int k; k = 3; __syncthreads(); while (k > 0) { __syncthreads(); k = 0; __syncthreads(); } x[T] = k; }
__global__ void counted(int* x, int n) { __syncthreads(); x[T] += __syncthreads_count(T & 1); }
__global__ void broken(int* x, int n) { for (int k = 0; k < 4; ++k) { __syncthreads(); x[T] += k; if (k == n) break; } }
__global__ void two_at_once(int* x, int n) { int i, j; for (i = 0, j = n; i < j; i += 1, j--) __syncthreads(); x[T] += i + j; }
__global__ void lambda(int* x, int n) { int v = x[T]; auto f = [&](int a) { v += a; }; __syncthreads(); f(n); x[T] = v; }
__global__ void referred(int* x, int n) { int& r = x[T]; r += 1; __syncthreads(); r += n; }
__global__ void by_type(int* x, int n) { int v = x[T]; __syncthreads(); decltype(v) w = 5; x[T] = v + w; }
__global__ void goes(int* x, int n) { if (n == 1) goto end; x[T] += 1; end: __syncthreads(); x[T] += 2; }
__global__ void odd_step(int* x, int n) { for (int k = 0; k < 4; k += T - T + 1) { __syncthreads(); x[T] += k; } }
__global__ void loud(int* x, int n) { volatile int v = x[T]; __syncthreads(); x[T] = v + n; }
__global__ void own_address(int* x, int n) { int v = 3, *p = &v; __syncthreads(); *p += n; x[T] = v; }
struct Ends { int* at; __device__ ~Ends() { *at += 1; } };
__device__ int hgcpu_t = 7;
__global__ void taken(int* x, int n) { int v = x[T] + hgcpu_t; __syncthreads(); x[T] = v + hgcpu_t + n; }
template <class V> __global__ void pattern(V* x, V n) { V v = x[T]; __syncthreads(); x[T] = v + n; }
"""
STAYS = STAYS.replace("DEEP", " + n" * 1500)
# Those of SPLIT that reading.py does not read, as they have structures, enumerators, switches, typedefs or overloaded functions.
UNREAD = frozenset(
    {"uniform_if", "jumps", "structures", "types", "in_space", "conditional", "calls_what_is_overloaded", "inner::in_space"}
)
# Functions that wait and are called without being named.
HIDDEN = r"""
__device__ int both(int v) { __shared__ int s[256]; s[T] = v; __syncthreads(); return s[N - 1 - T]; }
__device__ int (*const table[1])(int) = {both};
__device__ int by_table(int v) { return table[0](v); }
__global__ void pointed(int* x, int n) { x[T] = by_table(x[T]) + n; __syncthreads(); x[T] += 1; }
__global__ void only_pointed(int* x, int n) { x[T] = by_table(x[T]) + n; }
"""
OBJECTS = r"""
struct Swap { __device__ int operator()(int v) const { __shared__ int s[256]; s[T] = v; __syncthreads(); return s[N - 1 - T]; } };
template <class F> __device__ int apply(F f, int v) { return f(v); }
__device__ int swapped(int v) { return apply(Swap(), v); }
__global__ void functor(int* x, int n) { x[T] = swapped(x[T]) + n; __syncthreads(); x[T] += 1; }
__global__ void only_functor(int* x, int n) { x[T] = swapped(x[T]) + n; }
"""
NAMED = r"""
template <class F> __device__ int apply(F f, int v) { return f(v); }
__device__ int swapped(int v) {
  __shared__ int s[256]; return apply([](int w) { s[T] = w; __syncthreads(); return s[N - 1 - T]; }, v); }
__device__ int more(int v) { return swapped(v) + 1; }
__global__ void indirect(int* x, int n) { x[T] = more(x[T]) + n; }
__global__ void calm(int* x, int n) { x[T] += n; }
"""
# The compiler refuses what becomes of the kernels whose structure would end with its part.
ENDS = r"""
struct Ends { int* at; __device__ ~Ends() { *at += 1; } };
#define ENDED(name) __global__ void name(int* x, int n) { Ends e{x + T}; x[T] += n; __syncthreads(); x[T] *= 2; }
ENDED(ended_before)
__global__ void between(int* x, int n) { x[T] += n; __syncthreads(); x[T] *= 2; }
ENDED(ended_behind)
__global__ void by_warps(int* x, int n) { int v = x[T] + n; v += __shfl_xor(v, 1); x[T] = v; }
"""


def names(source: str) -> list[str]:
    found = [line.split("__global__ void ")[1].split("(")[0] for line in source.splitlines() if "__global__ void " in line]
    return [{"in_space": "inner::in_space", "pattern": "pattern<int>"}.get(name, name) for name in found]


@functools.cache
def libraries(source: str, kind: str, *options: str) -> tuple[Library, Library, frozenset[str]]:
    """Return the kernels as they are fast, and one by one, and which of them were split."""
    compiler = compiler_of(kind)
    split: set[str] = set()

    def noticed(*args: Any) -> tuple[str, dict[str, str]]:
        text, functions = original(*args)
        split.update(name.replace("hgcpu_own_", "") for name in functions)  # as weave.py may have renamed it
        return text, functions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{rtc.__name__}.split", noticed)
        fast, base = (
            Library(
                rtc.compile_kernels(
                    HEAD + source + salt(), names(source), options=options, name="split.hip", compiler=compiler, mode=mode
                ).image
            )
            for mode in MODES
        )
    return fast, base, frozenset(split)


def salt() -> str:
    """Return what makes a source new, so that it is compiled here."""
    return f"// {np.random.default_rng().integers(2**60)}\n"


def same(source: str, kind: str, name: str, n: int, block: int | Sequence[int], *options: str) -> None:
    same_of(*libraries(source, kind, *options)[:2], name, n, block)


def same_of(fast: Library, base: Library, name: str, n: int, block: int | Sequence[int]) -> None:
    given = np.random.default_rng(n).integers(0, 50, 256).astype(i32)
    given[255] = n
    results = []
    for library in (fast, base):
        x = given.copy()
        library.run(name, 1, block, x, i32(n), shared_bytes=1024)
        results.append(x.tolist())
    assert results[0] == results[1]


@pytest.fixture(params=["clang", "gcc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("block", [64, (16, 8), (5, 4, 3), 1])
@pytest.mark.parametrize("name", names(SPLIT))
def test_split_kernels_do_what_their_threads_do_one_by_one(name: str, block: int | Sequence[int], kind: str) -> None:
    assert (name in libraries(SPLIT, kind)[2]) == (kind == "clang" or name not in UNREAD)
    for n in (0, 1, 3, 4, 5, 8, 64, 100):
        same(SPLIT, kind, name, n, block)


@pytest.mark.parametrize("options", [(), ("-mno-wavefrontsize64",)])
@pytest.mark.parametrize("name", names(WARPS))
def test_kernels_split_at_warp_operations_do_what_their_lanes_do_one_by_one(
    name: str, options: tuple[str, ...], kind: str
) -> None:
    assert name in libraries(WARPS, kind, *options)[2]
    for block in (64, 256, 200, (32, 8), (16, 8), (5, 4, 3), 1):
        for n in (0, 1, 3, 5, 8, 100):
            same(WARPS, kind, name, n, block, *options)


# What a kernel does between `int t = T, v = x[t];` and `x[t] = v;`; how many regions that are, and how many variables go from one
# into another.
REGIONS = {
    "v += __shfl_down(v, 4); v ^= __shfl_xor(v, 1);": (1, 0),
    "v += __shfl_down(v, 4); __syncthreads(); v = x[t / 2]; v += __shfl_up(v, 1);": (2, 0),
    "v += __shfl_down(v, 4); __syncthreads(); v = v + x[t / 2]; v += __shfl_up(v, 1);": (2, 1),
    "v += __shfl_down(v, 4); __syncthreads(); if (t < 9) v = 3; v += __shfl_up(v, 1);": (2, 1),
    "int w = __shfl(v, 3); __syncthreads(); { w = x[t / 2]; v = w - __shfl(w, 1); }": (2, 2),
    "int w; w = __shfl(v, 3); __syncthreads(); w = x[t / 2]; (v = w); v -= __shfl(w, 1);": (2, 0),
    "if (t > n) return; v += __shfl_down(v, 4);": (2, 1),
    "for (int k = 0; k < n; ++k) { v += __shfl_up(v, k); __syncthreads(); x[t] = v; }": (4, 1),
    "for (int k = 0; k < n; ++k) { int w = x[t] + k; w += __shfl_up(w, k); x[t] += w; }": (1, 0),
    "int k = n; v += __shfl_up(v, k); k = k * 2; v += __shfl_up(v, k);": (2, 1),
    "v += LIMIT; v += __shfl_up(v, 1); const int LIMIT = n; __syncthreads(); v += __shfl_up(v, LIMIT);": (2, 1),
    "v += __shfl_up(v, 1); const int most = n; __syncthreads(); v += __shfl_up(v, most);": (2, 1),
}


@pytest.mark.parametrize(("body", "wanted"), REGIONS.items())
def test_regions_end_where_others_wait_and_variables_stay_in_them(
    body: str, wanted: tuple[int, int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def noticed(*args: Any) -> tuple[str, dict[str, str]]:
        written.append(original(*args))
        return "", {}

    compiler = compiler_of(kind)
    monkeypatch.setattr(f"{rtc.__name__}.split", noticed)
    with pytest.raises(DeclarationError):  # nothing is left to compile
        rtc.compile_kernels(
            f"{HEAD}__global__ void f(int* x, int n) {{ int t = T, v = x[t]; {body} x[t] = v; }} {salt()}",
            ["f"],
            compiler=compiler,
        )
    text = written[0][0].partition("void hgcpu_split_0")[2]
    arrays = set(re.findall(r"hgcpu_kept_\d+\[\d+\];", text))
    assert (text.count("hgcpu_warps("), len(arrays)) == wanted


@pytest.mark.parametrize("name", names(STAYS))
def test_kernels_that_are_not_understood_stay_as_they_are(name: str, kind: str) -> None:
    assert name not in libraries(STAYS, kind)[2]
    for n in (0, 1, 5):
        same(STAYS, kind, name, n, 64)


@pytest.mark.parametrize("source", [HIDDEN, OBJECTS, NAMED])
def test_functions_that_wait_are_known_however_they_are_called(source: str, kind: str) -> None:
    for name in names(source):
        assert name not in libraries(source, kind)[2]
        for n in (0, 5):
            same(source, kind, name, n, 64)


class Writer:
    """Writes random kernels without races: between two barriers either each thread writes its own of `s`, or all may read all.

    A variable is known by its name and kind: a thread's own, the same for the block, a constant, or an array of three.
    """

    def __init__(self, seed: int, warps: bool = False) -> None:
        self.random = random.Random(seed)
        self.warps = warps
        self.count = 0
        self.reads = False

    def kernel(self, name: str) -> str:
        self.reads = False
        body = f"s[T] = x[T]; {self.level({}, 2, set())} __syncthreads(); x[T] += s[T];"
        return f"__global__ void {name}(int* x, int n) {{ __shared__ int s[256]; {body} }}"

    def name(self) -> str:
        self.count += 1
        return self.random.choice(["a", "b", "c"]) if self.random.random() < 0.3 else f"v{self.count}"

    def uniform(self, known: dict[str, str], depth: int = 2) -> str:
        pick = self.random
        if depth == 0 or pick.random() < 0.4:
            return pick.choice(
                ["n", str(pick.randint(0, 9)), "(int)N", "LIMIT", *(v for v, k in known.items() if k == "uniform")]
            )
        return f"({self.uniform(known, depth - 1)} {pick.choice('+-*&|^')} {self.uniform(known, depth - 1)})"

    def value(self, known: dict[str, str], depth: int = 3) -> str:
        pick = self.random
        if depth == 0 or pick.random() < 0.3:
            named = [v for v, k in known.items() if k in ("own", "uniform", "constant")] * 3
            named += [f"{v}[{pick.randint(0, 2)}]" for v, k in known.items() if k == "array"]
            shared = [f"s[(T + {pick.randint(0, 70)}) % N]"] * 3 if self.reads else []
            return pick.choice(["(int)T", "n", str(pick.randint(-9, 99)), "me()", "x[T]", *named, *shared])
        one, two, three = (self.value(known, depth - 1) for _ in range(3))
        forms = [f"other::twice({one})", f"({one} % 7 > 2 ? {two} : {three})", f"(short)({one})"]
        return pick.choice([*forms, *(f"({one} {op} {two})" for op in "+-*^&<|")])

    def statement(self, known: dict[str, str], depth: int = 2) -> str:
        """Return a statement of a thread, without barriers."""
        pick = self.random
        own = [v for v, k in known.items() if k == "own"]
        arrays = [v for v, k in known.items() if k == "array"]
        forms = [f"x[T] {pick.choice(['=', '+=', '^='])} {self.value(known)};"]
        if depth:
            self.count += 1
            turn = f"i{self.count}"
            forms += [
                f"if ({self.value(known, 1)} % 11 == 3) return;",
                f"if ({self.value(known, 2)} % 3 == 0) {self.block(known, depth - 1)} else {self.block(known, depth - 1)}",
                f"for (int {turn} = {pick.randint(1, 4)}; {turn}; --{turn}) {self.block({**known, turn: 'constant'}, depth - 1)}",
            ]
        forms += [f"{v}[{pick.choice(['0', '2', 'T % 3'])}] += {self.value(known)};" for v in arrays]
        forms += [] if self.reads else [f"s[T] += {self.value(known)};"]
        if own:
            v, value = pick.choice(own), self.value(known, 2)
            changes = [f"{v} -= {value};", f"{v}++;", f"({v} = {value}, {v} ^= 3);", f"{{ int* p = &{v}; *p += {value}; }}"]
            forms += [*changes, f"add({v}, {value});"]
        return pick.choice(forms)

    def block(self, known: dict[str, str], depth: int) -> str:
        known, name = dict(known), self.name()
        first = f"int {name} = {self.value({v: k for v, k in known.items() if v != name})};"
        known[name] = "own"
        return f"{{ {first} {' '.join(self.statement(known, depth) for _ in range(self.random.randint(1, 2)))} }}"

    def declaration(self, known: dict[str, str], here: set[str]) -> str:
        name = self.name()
        before = {v: k for v, k in known.items() if v != name}
        if name in here:
            return ""
        here.add(name)
        forms = [
            ("uniform", f"int {name} = {self.uniform(before)};"),
            ("constant", f"const unsigned {name} = T * {self.random.randint(1, 5)} + {self.uniform(before, 1)};"),
            ("array", f"int {name}[3] = {{(int)({self.value(before, 1)}), (int)({self.value(before, 1)})}};"),
            ("own", f"int {name} = {self.value(before)}, w{self.count} = {name} + {self.uniform(before, 1)};"),
        ]
        known[name], text = self.random.choice(forms)
        return text

    def exchange(self, known: dict[str, str], depth: int = 2) -> str:
        """Return a warp operation on a thread's own variables, alone, in a loop or where only some lanes come."""
        pick = self.random
        own = [v for v, k in known.items() if k == "own"]
        if not own:
            return ""
        v, w = pick.choice(own), pick.choice(own)
        which = pick.choice(["1", "2", "8", "16", "3", "n", f"({self.value(known, 1)} & 31)"])
        width = pick.choice(["", "", ", 32", ", 16", ", warpSize"])
        move = pick.choice(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"])
        forms = [f"{v} {pick.choice(['=', '+=', '^='])} {move}({w}, {which}{width});"] * 3
        forms.append(f"{v} += __popcll(__ballot({self.value(known, 1)} & 1)) + (int)n;")
        self.count += 1
        step = f"o{self.count}"
        loops = [
            f"{step} = warpSize / 2; {step} > 0; {step} /= 2",
            f"{step} = 1; {step} < 16; {step} <<= 1",
            f"{step} = n; {step}; {step} -= 1",
        ]
        forms += [f"for (int {loop}) {{ {v} += {move}({w}, {step}); }}" for loop in loops[: 2 + (depth > 1)]]
        if depth:
            inside = [self.exchange(known, depth - 1), self.statement(known, 0), self.exchange(known, depth - 1)]
            condition = pick.choice(
                [f"{self.value(known, 1)} & 1", "T / warpSize == 0", "T > 20", f"{self.uniform(known, 1)} > 3"]
            )
            forms += [f"if ({condition}) {{ int {step} = {v}; {' '.join(inside)} {v} -= {step}; }}"] * 2
        return pick.choice(forms)

    def level(self, known: dict[str, str], depth: int, here: set[str]) -> str:
        """Return statements of which some are barriers, or hold them."""
        pick, out = self.random, []
        for _ in range(pick.randint(2, 6)):
            form = pick.random()
            if form < 0.35:
                out.append(self.declaration(known, here))
            elif form < 0.5:
                out.append("__syncthreads();")
                self.reads = not self.reads
            elif form < 0.62 and depth:
                reads, turn = self.reads, self.name()
                inside = self.level({**known, turn: "constant"}, depth - 1, {turn})
                inside += " __syncthreads();" * (1 + (self.reads != reads))
                self.reads = reads
                loop = f"for (int {turn} = {pick.randint(1, 8)}; {turn} > 0; {turn} {pick.choice(['>>= 1', '/= 2', '-= 2'])})"
                branch = f"if ({self.uniform(known, 1)} {pick.choice(['>', '<', '=='])} {pick.randint(0, 9)})"
                declared = f"int {turn} = 1;"
                out.append(
                    pick.choice(
                        [f"{loop} {{ __syncthreads(); {inside} }}", f"{branch} {{ {declared} __syncthreads(); {inside} }}"]
                    )
                )
            else:
                out.append(self.exchange(known) if self.warps and form < 0.88 else self.statement(known))
        return " ".join(out)


@pytest.mark.parametrize("seed", range(2))
def test_random_kernels_do_the_same_when_they_are_split(seed: int, kind: str) -> None:
    writer = Writer(seed)
    source = "\n".join(writer.kernel(f"f{k}") for k in range(16)) + "\n"
    assert len(libraries(source, kind)[2]) > 8
    for name in names(source):
        for n, block in ((0, 64), (3, (5, 4, 3)), (8, (16, 8))):
            same(source, kind, name, n, block)


@pytest.mark.parametrize("options", [(), ("-mno-wavefrontsize64",)])
@pytest.mark.parametrize("seed", range(2))
def test_random_kernels_with_warp_operations_do_the_same_when_they_are_split(
    seed: int, options: tuple[str, ...], kind: str
) -> None:
    writer = Writer(seed, warps=True)
    source = "\n".join(writer.kernel(f"f{k}") for k in range(8)) + "\n"
    assert len(libraries(source, kind, *options)[2]) > 2
    for name in names(source):
        for n, block in ((0, 64), (3, (5, 4, 3)), (8, (16, 8)), (5, 256), (1, (64, 2))):
            same(source, kind, name, n, block, *options)


def test_split_that_does_not_compile_is_left_out_alone() -> None:
    more = [f"also_ended_{k}" for k in range(24)]  # more errors than the compiler prints at once
    source = ENDS + "".join(f"ENDED({name})\n" for name in more)
    compiler = compiler_of("clang")
    made: list[set[str]] = []

    def noticed(*args: Any) -> tuple[str, dict[str, str]]:
        text, functions = original(*args)
        made.append(set(functions))
        return text, functions

    asked = ["ended_before", "between", "ended_behind", "by_warps", *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{rtc.__name__}.split", noticed)
        text = HEAD + source + salt()
        fast, base = (Library(rtc.compile_kernels(text, asked, name="e.hip", compiler=compiler, mode=m).image) for m in MODES)
        tried = len(made)
        assert Library(rtc.compile_kernels(text, asked, name="e.hip", compiler=compiler).image).path == fast.path
    assert made[0] == set(asked)
    assert made[-1] == {"between", "by_warps"}
    assert len(made) == tried  # found in the cache, not compiled again
    for name in asked:
        same_of(fast, base, name, 5, 64)


def test_rewritten_kernel_that_does_not_compile_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Flat.kernel

    def broken(self: Flat, node: Any) -> Any:
        text, calls = kernel(self, node)
        return (text.replace("x", "no_such_name") if "broken" in text else text), calls

    monkeypatch.setattr(Flat, "kernel", broken)
    one = "__global__ void {}(int* x, int n) {{ int v = x[T] + n; v += __shfl_xor(v, 1); x[T] = v; }}\n"
    every = [f"sound{k}" for k in range(4)] + ["broken_one"] + [f"sound{k}" for k in range(4, 9)]
    source = "".join(map(one.format, every))
    _, _, split = libraries(source, "clang")
    assert split == set(every) - {"broken_one"}
    for name in every:
        same(source, "clang", name, 5, 64)


def test_expressions_deeper_than_python_goes_leave_other_kernels_split(kind: str) -> None:
    deep = "__global__ void deep(int* x, int n) { __syncthreads(); x[T] = 1DEEP; }\n".replace("DEEP", " + n" * 1500)
    source = deep + "__global__ void plain(int* x, int n) { x[T] += n; __syncthreads(); x[T] *= 2; }\n"
    assert libraries(source, kind)[2] == {"plain"}
    for name in names(source):
        same(source, kind, name, 5, 64)


def test_warnings_are_about_the_kernel_alone() -> None:
    source = HEAD + "__global__ void k(int* x) {\n  __syncthreads();\n  x[T] = 1 << 40; }\n" + salt()
    made = rtc.compile_kernels(source, ["k"], name="m.hip", compiler=compiler_of("clang"))
    assert made.log.count("warning:") == 1
    assert f"m.hip:{HEAD.count(chr(10)) + 3}:" in made.log


def test_messages_of_a_split_source_name_the_users_lines() -> None:
    source = HEAD + "__global__ void k(int* x) { __syncthreads();\n\n x[0] = 1; }\n__global__ void l(int* x) { int y = x; }\n"
    with pytest.raises(DeclarationError) as caught:
        rtc.compile_kernels(source, ["k", "l"], name="m.hip", compiler=compiler_of("clang"))
    assert f"m.hip:{source.count(chr(10))}:" in str(caught.value)
