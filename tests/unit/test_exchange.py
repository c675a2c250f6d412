"""HG207: exchange through shared memory without a barrier, which the sanitizer stops too, and what is none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernel_programs.running import graph_of, make_kernels
from places import runtime_or_skip

import hipgraphdsl as hg

HEAD = r"""
__device__ void half_wave(volatile int* s, int t) { s[t] += s[t + 16]; s[t] += s[t + 8]; }
template <class T> __device__ void half_of_any(volatile T* s, int t) { s[t] += s[t + 16]; s[t] += s[t + 8]; }
template <unsigned N> __device__ void by_size(volatile int* s, int t) {
  if (N >= 64) s[t] += s[t + 16]; if (N >= 32) s[t] += s[t + 8]; }
__device__ void outer(int* s, int t) { if (t < 32) half_wave(s, t); }
__device__ void ordered(int* s, int t) { __syncthreads(); if (t < 16) s[t] += s[t + 16]; __syncthreads(); }
"""
FILL = "__shared__ int s[64]; int t = threadIdx.x; s[t] = x[t]; __syncthreads(); "

FAULTY = {
    "unrolled": FILL + "volatile int* v = s; if (t < 32) { v[t] += v[t + 32]; v[t] += v[t + 16]; } x[t] = v[t];",
    "loop": FILL + "for (int o = 32; o > 0; o >>= 1) if (t < o) s[t] += s[t + o]; x[t] = s[t];",
    "neighbour": "__shared__ int s[64]; int t = threadIdx.x; s[t] = x[t]; x[t] = s[t ^ 1];",
    "dynamic": "extern __shared__ int d[]; int t = threadIdx.x; d[t] = x[t]; x[t] = d[63 - t];",
    "rows": "__shared__ int s[8][8]; int t = threadIdx.x; s[t / 8][t % 8] = x[t]; x[t] = s[t % 8][t / 8];",
    "scan in place": FILL + "if (t >= 1) s[t] += s[t - 1]; __syncthreads(); x[t] = s[t];",
    "one reads": "__shared__ int s; int t = threadIdx.x; volatile __shared__ int w[2]; if (t == 0) w[0] = x[0]; x[t] = w[0];",
    "fence": FILL + "volatile int* v = s; v[t] += t; __threadfence_block(); x[t] = v[63 - t];",
    "function": FILL + "if (t < 32) half_wave(s, t); x[t] = s[t];",
    "template": FILL + "if (t < 32) half_of_any<int>(s, t); x[t] = s[t];",
    "template of a number": FILL + "if (t < 32) by_size<64>(s, t); x[t] = s[t];",
    "function in a function": FILL + "outer(s, t); x[t] = s[t];",
}
"""Bodies of kernels of 64 threads."""

RIGHT = {
    "own element": "__shared__ int s[64]; int t = threadIdx.x; s[t] = x[t]; s[t] += 1; x[t] = s[t];",
    "barriers": FILL + "for (int o = 32; o > 0; o >>= 1) { if (t < o) s[t] += s[t + o]; __syncthreads(); } x[t] = s[0];",
    "wave barrier": FILL
    + "for (int o = 16; o > 0; o >>= 1) { int v = s[(t + o) % 64]; __syncwarp(); s[t] += v; __syncwarp(); } x[t] = s[t];",
    "shuffle between": FILL + "s[t] += 1; int v = __shfl_down(t, 1); x[t] = s[t ^ 1] + v;",
    "two buffers": FILL + "__shared__ int r[64]; r[t] = s[63 - t]; __syncthreads(); x[t] = r[63 - t];",
    "halves": "__shared__ int s[128]; int t = threadIdx.x; s[t + 64] = 1; __syncthreads(); s[t] = x[t]; x[t] = s[t + 64];",
    "all write the same": "__shared__ int s[1]; int t = threadIdx.x; s[0] = 5; x[t] = s[0];",
    "atomic": "__shared__ int s[1]; int t = threadIdx.x; "
    "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], t); if (t == 0) x[0] = 1;",
    "function with barriers": FILL + "ordered(s, t); x[t] = s[t ^ 1];",
    "template whose steps are left out": FILL + "if (t < 32) by_size<16>(s, t); x[t] = s[t];",
    "unknown function": FILL + "s[t] += t; elsewhere(s); x[t] = s[63 - t];",
    "unknown condition": FILL + "if (x[t] > 0) s[t] = 1; if (x[t] > 1) x[t] = s[63 - t];",
    "waits for a flag": "volatile __shared__ int s[2]; int t = threadIdx.x; "
    "if (t == 0) s[0] = x[0]; while (s[0] == 0) {} x[t] = t;",
}


def graph(body: str) -> hg.Graph:
    module = hg.Module(
        f'__device__ void elsewhere(int* s);{HEAD}extern "C" __global__ void k(int* x) {{\n{body}\n}}', name="k.hip"
    )
    g = hg.Graph("g")
    g.kernel(module["k"], 1, 64, (g.device_array("x", np.ones(64, "int32")),), shared_bytes=256, name="k")
    return g


@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
def test_exchange_without_a_barrier_is_found_with_its_lines(body: str) -> None:
    (found,) = [d for d in graph(body).check().warnings if d.code == "HG207"]
    inside = any(word in body for word in ("half_", "outer", "by_size"))
    lines = re.findall(r"k\.hip:(\d+)\), and thread \d+ of its wave reads it \(line (\d+)\)", found.message)
    assert lines, found.message
    assert {int(line) for line in lines[0]} <= ({2, 3, 5} if inside else {9}), found.message


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_is_ordered_or_not_known_is_no_exchange(body: str) -> None:
    assert "HG207" not in graph(body).check().codes


@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
def test_the_sanitizer_stops_it_too(body: str) -> None:
    runtime_or_skip("cpu")
    g = graph(body)
    with (
        g.compile("cpu", debug=hg.DebugOptions(sanitize=True)) as exe,
        pytest.raises(hg.HipError, match=r"race|unwritten memory"),
    ):
        exe.run()


def test_threads_of_different_waves_are_told_apart() -> None:
    body = "__shared__ int s[128]; int t = threadIdx.x; s[t] = x[t]; x[t] = s[(t + 64) % 128];"
    g = hg.Graph("g")
    kernel = hg.Module(f'extern "C" __global__ void k(int* x) {{ {body} }}')["k"]
    x = g.device_array("x", np.ones(128, "int32"))
    for n in range(3):
        g.kernel(kernel, 1, 128, (x,), name=f"k{n}")
    (found,) = [d for d in g.check().warnings if d.code == "HG207"]
    assert found.nodes == ("k0",)
    assert "and 2 more nodes" in found.message
    assert "of its wave" not in found.message


@pytest.mark.parametrize("first", [0, 50, 100])
def test_nothing_is_found_in_generated_kernels(first: int) -> None:
    """Nothing in them is undefined, and they exchange data through shared memory."""
    report = graph_of(make_kernels(range(first, first + 50)), ()).check()
    assert not [str(d) for d in report.diagnostics if d.code == "HG207"]
