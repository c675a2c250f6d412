"""Which lanes take part in a warp operation on the CPU runtime: expected values follow HIP's own headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device.test_cpu_kernels import compiler, i32, library  # noqa: F401

from hipgraphdsl.compiler import Compiler
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.parts.cpu.rtc import compile_kernels

WARPS = r"""
#include <hip/hip_runtime.h>
__device__ int warpSum(int v) {
  for (int o = warpSize / 2; o > 0; o >>= 1) v += __shfl_xor(v, o);
  return v;
}
__device__ int aggInc(int* ctr) {
  unsigned long long mask = __activemask();
  int lane = threadIdx.x % warpSize, leader = __ffsll(mask) - 1, res = 0;
  if (lane == leader) res = atomicAdd(ctr, __popcll(mask));
  res = __shfl(res, leader);
  return res + __popcll(mask & ((1ull << lane) - 1));
}
__device__ int present() { return __popcll(__ballot(1)); }
template <int One = 1 < 2> __device__ int side(int lane) {
  if (lane & 1) return __popcll(__ballot(One));
  return 100 + __popcll(__ballot(One));
}
template <class F> __device__ int twice(F f, int lane) { if (lane & 1) return f(1); return 100 + f(1); }
struct Votes { __device__ int operator()(int p) const { return __popcll(__ballot(p)); } };

__global__ void counters(int* out, int* counts) {
  int i = threadIdx.x;
  if (i >= 20) out[aggInc(&counts[0])] = i; else out[63 - aggInc(&counts[1])] = i;
}
__global__ void waterfall(int* out, const int* key) {
  int lane = threadIdx.x, mine = key[lane], count = 0;
  while (true) {
    int first = __shfl(mine, __ffsll(__activemask()) - 1);
    if (first == mine) { count = __popcll(__ballot(1)); break; }
  }
  out[lane] = count;
}
__global__ void branches(int* out) { int l = threadIdx.x; if (l & 1) out[l] = present(); else out[l] = 100 + present(); }
__global__ void of_a_template(int* out) { int l = threadIdx.x; out[l] = side(l); out[l] += 1000 * __popcll(__ballot(1)); }
__global__ void after_a_loop(int* out) {
  int lane = threadIdx.x, n = lane % 5, c = 0;
  while (n-- > 0) c += __popcll(__ballot(1));
  out[lane] = warpSum(lane) + 10000 * c;
}
__global__ void one_line(int* out) { int l = threadIdx.x; out[l] = __popcll(l < 20 ? __ballot(1) : __ballot(1)); }
__global__ void short_circuit(int* out) { int l = threadIdx.x; out[l] = (l < 20 && __any(l == 3)) + 2 * __popcll(__ballot(1)); }
__global__ void lambdas(int* out) {
  int l = threadIdx.x;
  auto vote = [&](int p) { return __popcll(__ballot(p)); };
  if (l < 16) out[l] = vote(l & 1); else out[l] = vote(1);
}
__global__ void passed_on(int* out) { int l = threadIdx.x; out[l] = twice([](int p) { return __popcll(__ballot(p)); }, l); }
__global__ void functor(int* out) { int l = threadIdx.x; out[l] = twice(Votes{}, l); }
__global__ void loops(int* out) {
  int l = threadIdx.x, c = 0;
  for (int i = 0; i < l % 4; ++i)
    for (int k = 0; k <= i; ++k)
      if ((l + k) & 1) c += present(); else c += 64 * present();
  do { c += 10000 * __popcll(__ballot(1)); } while (--l % 3 > 0);
  out[threadIdx.x] = c;
}
__global__ void switches(int* out) {
  int l = threadIdx.x, c = 0;
  switch (l % 4) {
    case 0: c = present();
    case 1: c += 100 * present(); break;
    case 2: c = 7; break;
    default: c = __popcll(__ballot(l < 32));
  }
  out[l] = c * 1000 + present();
}
__device__ int early(int l) { for (int i = 0; i < 8; ++i) { if (i == l % 8) return present(); } return 0; }
__global__ void returns(int* out) { int l = threadIdx.x; if (l >= 40) return; out[l] = early(l) * 100 + present(); }
__global__ void tiles(int* out, const int* x) {
  int lane = threadIdx.x; unsigned long long mask = 0xffull << (lane & ~7);
  out[lane] = (__any_sync(mask, x[lane]) != 0) + 10 * (__all_sync(mask, !x[lane]) != 0) + 100 * __popcll(__ballot_sync(mask, 1))
      + 10000 * __popcll(__match_any_sync(mask, lane & 1));
}
__global__ void reductions(int* out, const int* x, unsigned* bits) {
  int lane = threadIdx.x; unsigned long long first = 1ull << (lane & ~7), mask = 0xff * first;
  int least = __reduce_min_sync(mask, 0.5 * x[lane]);
  out[lane] = __reduce_add_sync(mask, x[lane]) + 1000 * __reduce_max_sync(mask, -x[lane]) + 100000 * least;
  __syncthreads();
  unsigned u = x[lane];
  if (lane & 1) bits[lane] = __reduce_and_sync(0xaa * first, u | 1) + 100 * __reduce_or_sync(0xaa * first, u);
  else bits[lane] = __reduce_xor_sync(0x55 * first, u);
}
__global__ void lane_masks(int* out) {
  int l = threadIdx.x;
  if (l % 3 == 0) out[l] = __popcll(__lanemask_lt()) + 100 * __popcll(__lanemask_gt()) + 10000 * (__ffsll(__lanemask_eq()) - 1);
}
__global__ void masks_meet(int* out) {
  int l = threadIdx.x, v;
  if (l & 1) v = __shfl_sync(~0ull, l, 0); else v = __shfl_sync(~0ull, l, 1);
  out[l] = v;
}
__global__ void through_pointers(int* out) {
  int l = threadIdx.x;
  int (*fp)() = present;
  int (*const table[2])() = {present, present};
  if (l & 1) out[l] = (*fp)(); else out[l] = 100 + (*fp)();
  for (int i = 0; i < l % 3; ++i) out[l] += 1000 * table[i]();
}
template <class T> __device__ int kinds(T v) { T d = v; return d > 2 ? int(T(v)) : int(T(1)) + present(); }
struct Tile { static __device__ int size() { return present(); } };
__global__ void types_called(int* out) {
  int l = threadIdx.x; auto d = [&](int p) { return present() + p; };
  out[l] = l < 9 ? Tile::size() : 3;
  out[l] += 100 * kinds(l) + 10000 * d(0);
}
__global__ void pragma_behind_else(int* out) {
  int l = threadIdx.x, c = 0;
  if (l < 10) c = 7;
  else
#pragma unroll
    for (int i = 0; i < 2; ++i) c += present();
  out[l] = c;
}
__global__ void after_returns(int* out) {
  int t = threadIdx.x; if (t % warpSize >= 5) return;
  int c; if (t & 1) c = present(); else c = 10 * present();
  out[t] = c + 100 * present();
}
__global__ void size(int* out) { out[threadIdx.x] = warpSize; out[threadIdx.x] += 1000 * present(); }
"""
NAMES = [line.split("__global__ void ")[1].split("(")[0] for line in WARPS.splitlines() if "__global__ void " in line]


def run(compiler: Compiler, name: str, *more: Any, options: tuple[str, ...] = (), block: int = 64) -> list[int]:  # noqa: F811
    out = np.zeros(64, i32)
    library(compiler, WARPS, "; ".join(NAMES), "", options).run(name, 1, block, out, *more)
    return out.tolist()


def count(rule: Any) -> int:
    return int(np.count_nonzero([rule(lane) for lane in range(64)]))


def turns(lane: int) -> int:
    return (lane - 1) % 3 + 1 if lane else 1


def loops(lane: int) -> int:
    total = sum(10000 * count(lambda other, turn=turn: turns(other) > turn) for turn in range(turns(lane)))
    for i in range(lane % 4):
        for k in range(i + 1):
            odd = (lane + k) & 1
            same = count(lambda other, i=i, k=k, odd=odd: other % 4 > i and (other + k) & 1 == odd)
            total += same if odd else 64 * same
    return total


KEY = np.array([i % 7 if i % 3 else 1 for i in range(64)], i32)
EXPECTED: dict[str, list[int]] = {
    "branches": [132, 32] * 32,
    "of_a_template": [64132, 64032] * 32,
    "after_a_loop": [2016 + 10000 * sum(count(lambda other, n=n: other % 5 > n) for n in range(lane % 5)) for lane in range(64)],
    "one_line": [20] * 20 + [44] * 44,
    "short_circuit": [129] * 20 + [128] * 44,
    "lambdas": [8] * 16 + [48] * 48,
    "passed_on": [132, 32] * 32,
    "functor": [132, 32] * 32,
    "loops": [loops(lane) for lane in range(64)],
    "switches": [1000 * [16 + 3200, 3200, 7, 8][lane % 4] + 64 for lane in range(64)],
    "returns": [540] * 40 + [0] * 24,
    "masks_meet": [1, 0] * 32,
    "lane_masks": [lane // 3 + 100 * (21 - lane // 3) + 10000 * lane if lane % 3 == 0 else 0 for lane in range(64)],
    "pragma_behind_else": [7] * 10 + [108] * 54,
    "through_pointers": [
        (32 if lane & 1 else 132) + 1000 * sum(count(lambda other, i=i: other % 3 > i) for i in range(lane % 3))
        for lane in range(64)
    ],
    "types_called": [(9 if lane < 9 else 3) + 100 * (lane if lane > 2 else 4) + 640000 for lane in range(64)],
    "size": [64064] * 64,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_lanes_that_stand_in_the_same_place_take_part(compiler: Compiler, name: str) -> None:  # noqa: F811
    assert run(compiler, name) == EXPECTED[name]


def test_aggregated_counters_count_the_lanes_of_their_branch(compiler: Compiler) -> None:  # noqa: F811
    counts = np.zeros(2, i32)
    assert run(compiler, "counters", counts) == [*range(20, 64), *range(19, -1, -1)]
    assert counts.tolist() == [44, 20]


def test_waterfall_loop_sees_each_key_once(compiler: Compiler) -> None:  # noqa: F811
    assert run(compiler, "waterfall", KEY) == np.bincount(KEY)[KEY].tolist()


def test_threads_that_begin_where_others_have_returned_stand_with_their_warp(compiler: Compiler) -> None:  # noqa: F811
    out = np.zeros(256, i32)
    library(compiler, WARPS, "; ".join(NAMES)).run("after_returns", 1, 256, out)
    assert out.reshape(4, 64)[:, :6].tolist() == [[530, 502, 530, 502, 530, 0]] * 4


def test_votes_with_masks_honour_them(compiler: Compiler) -> None:  # noqa: F811
    x = np.zeros(64, i32)
    x[[5, 40]] = 1
    hit = [lane // 8 in (0, 5) for lane in range(64)]
    assert run(compiler, "tiles", x) == [h + 10 * (not h) + 800 + 40000 for h in hit]


def test_reductions_take_the_lanes_of_their_mask(compiler: Compiler) -> None:  # noqa: F811
    x, bits = (np.arange(64, dtype=i32) * 11 + 3) % 64, np.zeros(64, i32)
    tiles = x.reshape(8, 8)
    wanted = tiles.sum(1) - 1000 * tiles.min(1) + 100000 * (tiles.min(1) // 2)
    assert run(compiler, "reductions", x, bits) == np.repeat(wanted, 8).tolist()
    odd = np.bitwise_and.reduce(tiles[:, 1::2] | 1, 1) + 100 * np.bitwise_or.reduce(tiles[:, 1::2], 1)
    even = np.bitwise_xor.reduce(tiles[:, ::2], 1)
    assert bits.reshape(8, 8).tolist() == [[e, o] * 4 for e, o in zip(even, odd)]


def test_warps_of_32_lanes_by_option(compiler: Compiler) -> None:  # noqa: F811
    options = ("-mno-wavefrontsize64",)
    assert run(compiler, "size", options=options) == [32032] * 64
    assert run(compiler, "branches", options=options) == [116, 16] * 32


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("again: x[0] += __ballot(1); if (x[0] < 9) goto again;", "goto backwards"),
        ("x[0] = x[1] ? sum(1) : sum(2);", "statements of their own"),
    ],
)
def test_unknown_structure_is_refused_by_line(compiler: Compiler, body: str, said: str) -> None:  # noqa: F811
    source = "__device__ int sum(int v) { return v + __shfl_xor(v, 1); }\n\n__global__ void k(int* x) {\n" + body + "\n}\n"
    with pytest.raises(DeclarationError, match=said) as caught:
        compile_kernels(source, ["k"], name="m.hip", compiler=compiler)
    assert "m.hip:4:" in str(caught.value)


WAVE_SIZES = r"""
__global__ void sizes(int* out) {
#if defined(__GFX8__) || defined(__GFX9__)
  out[0] = 64;
#else
  out[0] = 32;
#endif
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
  out[1] = 32;
#else
  out[1] = 64;
#endif
  out[2] = __AMDGCN_WAVEFRONT_SIZE__;
  out[3] = __AMDGCN_WAVEFRONT_SIZE;
  out[4] = warpSize;
  out[5] = __popcll(__ballot(1));
}
"""


@pytest.mark.parametrize(("options", "lanes"), [((), 64), (("-mwavefrontsize64",), 64), (("-mno-wavefrontsize64",), 32)])
def test_macros_of_the_wave_size_agree_with_the_lanes(compiler: Compiler, options: tuple[str, ...], lanes: int) -> None:  # noqa: F811
    out = np.zeros(6, i32)
    library(compiler, WAVE_SIZES, "sizes", options=options).run("sizes", 1, 64, out)
    assert out.tolist() == [lanes] * 6
