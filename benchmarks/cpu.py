"""``hipgraphdsl bench cpu``: relaunch, kernels against hand-written loops, and the cost of building, on the CPU runtime."""

from __future__ import annotations

import argparse
import ctypes
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from benchmarks.figures import Result
from benchmarks.shapes import KERNELS
from benchmarks.turns import in_turns
from hipgraphdsl.compiler import BuildFailed, Compiler, build, find_compiler
from hipgraphdsl.errors import RuntimeUnavailable
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import finish, launches_of, machine, percentile, repeat_us, without_gc
from hipgraphdsl.parts.bench.peers import cpp_library
from hipgraphdsl.parts.bench.shapes import chain, layers
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime

__all__ = ["add_arguments", "main", "run"]

_WAVE_BY_HAND: Final = r"""
#include <math.h>
extern "C" __attribute__((visibility("default"))) void wave2d_by_hand(
    const float* __restrict__ U0, const float* __restrict__ U1, float* __restrict__ U2, const float* __restrict__ V,
    int N0, int N1, float dt2, float inv_dx02, float inv_dx12, int P0, int P1, float pi2fm2t2)
{
    const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
    for (int i0 = 2; i0 < N0 - 2; ++i0)
        for (int i1 = 2; i1 < N1 - 2; ++i1) {
            const int at = i0 * N1 + i1;
            const float along0 = far * (U1[at - 2 * N1] + U1[at + 2 * N1]) + near * (U1[at - N1] + U1[at + N1]) + here * U1[at];
            const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];
            U2[at] = 2.0f * U1[at] - U0[at] + dt2 * V[at] * V[at] * (along0 * inv_dx02 + along1 * inv_dx12);
        }
    U2[P0 * N1 + P1] += (1.0f - 2.0f * pi2fm2t2) * expf(-pi2fm2t2);
}
"""
_MATMUL: Final = r"""
#define TILE 16
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; ++t) {
        a[threadIdx.y][threadIdx.x] = A[row * n + t * TILE + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = B[(t * TILE + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    C[row * n + col] = sum;
}
"""
_MATMUL_BY_HAND: Final = r"""
#define TILE 16
extern "C" __attribute__((visibility("default"))) void matmul_by_hand(
    const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int n)
{
    for (int by = 0; by < n / TILE; ++by)
        for (int bx = 0; bx < n / TILE; ++bx) {
            float a[TILE][TILE], b[TILE][TILE], sum[TILE][TILE] = {};
            for (int t = 0; t < n / TILE; ++t) {
                for (int y = 0; y < TILE; ++y)
                    for (int x = 0; x < TILE; ++x) {
                        a[y][x] = A[(by * TILE + y) * n + t * TILE + x];
                        b[y][x] = B[(t * TILE + y) * n + bx * TILE + x];
                    }
                for (int y = 0; y < TILE; ++y)
                    for (int k = 0; k < TILE; ++k)
                        for (int x = 0; x < TILE; ++x) sum[y][x] += a[y][k] * b[k][x];
            }
            for (int y = 0; y < TILE; ++y)
                for (int x = 0; x < TILE; ++x) C[(by * TILE + y) * n + bx * TILE + x] = sum[y][x];
        }
}
"""

_SUM: Final = r"""
__device__ float warp_sum(float v)
{
    for (int o = warpSize / 2; o > 0; o /= 2) v += __shfl_down(v, o);
    return v;
}
extern "C" __global__ void block_sum(const float* x, float* sums, int n)
{
    __shared__ float s[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    float v = warp_sum(i < n ? x[i] : 0.0f);
    if (lane == 0) s[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / warpSize ? s[lane] : 0.0f;
    if (warp == 0) v = warp_sum(v);
    if (threadIdx.x == 0) sums[blockIdx.x] = v;
}
"""
_SUM_BY_HAND: Final = r"""
extern "C" __attribute__((visibility("default"))) void block_sum_by_hand(
    const float* __restrict__ x, float* __restrict__ sums, int n, int blocks, int block)
{
    for (int b = 0; b < blocks; ++b) {
        float s[16] = {};
        for (int w = 0; w < block / 64; ++w) {
            float v[64];
            #pragma omp simd
            for (int l = 0; l < 64; ++l) { const int i = b * block + w * 64 + l; v[l] = i < n ? x[i] : 0.0f; }
            for (int o = 32; o > 0; o /= 2)
                #pragma omp simd
                for (int l = 0; l < o; ++l) v[l] += v[l + o];
            s[w] = v[0];
        }
        for (int o = 8; o > 0; o /= 2)
            for (int l = 0; l < o; ++l) s[l] += s[l + o];
        sums[b] = s[0];
    }
}
"""
_STEP: Final = r"""
extern "C" __global__ void advance_row(float* x) { const int i = threadIdx.x; x[i] = x[i] * 1.0001f + 0.5f; }
"""
_STEPS_BY_TASKS: Final = r"""
static __attribute__((noinline)) void step(float* x) { for (int i = 0; i < 64; ++i) x[i] = x[i] * 1.0001f + 0.5f; }
extern "C" __attribute__((visibility("default"))) void steps_by_tasks(float* x, int n)
{
    #pragma omp parallel num_threads(1)
    #pragma omp single
    for (int k = 0; k < n; ++k) {
        #pragma omp task firstprivate(k)
        step(x + 64 * k);
    }
}
"""
_RATIOS: Final = 11  # times that kernels and their peer are measured in turn; the median counts

_BUILDS: Final = 3  # times that a graph is built, of which the fastest counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and graphs of 10 000 nodes at most")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    with progress_bar("bench cpu", None) as report:
        result = run(quick=args.quick, report=report)
    finish(result, args)
    return 0


def run(quick: bool = False, report: Callable[[str], None] = no_progress) -> Result:
    """Measure and return all figures."""
    result = Result("cpu", machine=machine(open_runtime("cpu")))
    report("relaunching 1000 empty kernels")
    _relaunch(result, 200 if quick else 1000)
    report("wave2d and matmul against hand-written loops")
    _kernels(result, 40 if quick else 200)
    report("1024 short independent kernels against OpenMP tasks")
    _short(result, 40 if quick else 400)
    for size in (10_000,) if quick else (10_000, 100_000):
        for name, shape in (("chain", chain), ("layers of 8", layers)):
            report(f"building {name}, {size} nodes")
            _building(result, name, shape, size)
    if not quick:
        for name in ("chain", "layers of 8"):
            small, large = (
                next(r["value"] for r in result.rows if r["what"] == f"build {name}, {size} nodes: in all") * size
                for size in (10_000, 100_000)
            )
            result.add(f"build {name}: 100 000 nodes against 10 000", large / small, "x", 12)
    report("memory of 10 000 nodes")
    for name, shape in (("chain", chain), ("layers of 8", layers)):
        _memory(result, name, shape)
    return result


def _relaunch(result: Result, repeats: int) -> None:
    with chain(1000).compile(runtime="cpu", check=False) as exe:
        exe.run()
        submits, totals = launches_of(exe)(repeats)
        result.add(
            "relaunch a chain of 1000 empty kernels, until done",
            percentile(totals, 50) / 1000,
            "us/node",
            2,
            f"p99 {percentile(totals, 99) / 1000:.3f}",
        )
        result.add("... submit", percentile(submits, 50), "us", 20, f"p99 {percentile(submits, 99):.1f}")


def _by_hand(source: str, name: str) -> Any:

    # The options that kernels are compiled with; a barrier-free loop nest needs no others.
    options = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd")
    return getattr(cpp_library(source, name, name, options), name)


def _kernels(result: Result, repeats: int) -> None:
    n = 256
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((n, n)).astype("f4") for _ in range(2)]
    g = Graph("wave")
    u0, u1 = (g.device_array(f"u{i}", values) for i, values in enumerate(start))
    u2 = g.device_array("u2", np.zeros((n, n), "f4"))
    v = g.device_array("v", np.full((n, n), 0.3, "f4"))
    scalars = (n, n, 0.1, 1.0, 1.0, n // 2, n // 2, 0.25)
    g.kernel(KERNELS["wave2d_4o"], (n // 64, n // 4), (64, 4), (u0, u1, u2, v, *scalars))
    hand = _by_hand(_WAVE_BY_HAND, "wave2d_by_hand")
    hand.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 2 + [ctypes.c_float] * 3 + [ctypes.c_int] * 2 + [ctypes.c_float]
    out = np.zeros((n, n), "f4")
    speed = np.full((n, n), 0.3, "f4")
    pointers = [a.ctypes.data for a in (*start, out, speed)]
    with g.compile(runtime="cpu", backend="serial") as exe:
        exe.run()
        assert np.allclose(exe.read("u2"), (hand(*pointers, *scalars), out)[1], rtol=1e-5, atol=1e-5), "wave2d differs"
    _against(result, "wave2d 256 x 256", g, lambda: hand(*pointers, *scalars), repeats, 1.3)

    a, b = (rng.standard_normal((n, n)).astype("f4") for _ in range(2))
    g = Graph("matmul")
    x, y = g.device_array("x", a), g.device_array("y", b)
    z = g.device_array("z", shape=(n, n), dtype="float32")
    g.kernel(Module(_MATMUL, name="matmul")["matmul"], (n // 16, n // 16), (16, 16), (x, y, z, n))
    hand_matmul = _by_hand(_MATMUL_BY_HAND, "matmul_by_hand")
    hand_matmul.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int]
    with g.compile(runtime="cpu", backend="serial") as exe:
        exe.run()
        hand_matmul(a.ctypes.data, b.ctypes.data, out.ctypes.data, n)
        assert np.allclose(exe.read("z"), out, rtol=1e-4, atol=1e-3), "matmul differs"
    _against(
        result, "tiled matmul with barriers", g, lambda: hand_matmul(a.ctypes.data, b.ctypes.data, out.ctypes.data, n), repeats, 3
    )

    blocks, block = n * n // 256, 256
    g = Graph("sums")
    z = g.device_array("z", shape=(blocks,), dtype="float32")
    g.kernel(Module(_SUM, name="sums")["block_sum"], blocks, block, (g.device_array("x", a), z, n * n))
    hand_sum = _by_hand(_SUM_BY_HAND, "block_sum_by_hand")
    hand_sum.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 3
    sums = np.zeros(blocks, "f4")
    given, made = a.ctypes.data, sums.ctypes.data  # asking an array for its address takes as long as a fifth of the sums
    with g.compile(runtime="cpu", backend="serial") as exe:
        exe.run()
        hand_sum(given, made, n * n, blocks, block)
        assert np.allclose(exe.read("z"), sums, rtol=1e-4, atol=1e-3), "sums differ"
    _against(
        result,
        "block sums by warp shuffles",
        g,
        lambda: hand_sum(given, made, n * n, blocks, block),
        max(repeats // 4, 5),
        2,
    )


def _against(result: Result, what: str, g: Graph, hand: Callable[[], Any], repeats: int, limit: float) -> None:
    """Time one kernel on one thread against the hand-written loop, in turn.

    One launch runs on all workers; blocks are called directly here, so that one thread is compared with one thread.
    """
    node = next(iter(g.nodes))
    with g.compile(runtime="cpu", backend="explicit") as exe:
        exe.run()
        blocks = _Blocks(exe, node)
        runs = [in_turns({"blocks": blocks, "hand": hand}, max(repeats // _RATIOS, 3)) for _ in range(_RATIOS)]
    ours, theirs = ([percentile(times[name], 20) for times in runs] for name in ("blocks", "hand"))
    ratios = [a / b for a, b in zip(ours, theirs)]
    result.add(
        f"{what}: kernel against the same loops by hand, one thread",
        percentile(ratios, 50),
        "x",
        limit,
        f"{min(ratios):.2f} to {max(ratios):.2f}; {percentile(ours, 50):.1f} us against {percentile(theirs, 50):.1f} us",
    )


def _with_openmp(source: str, name: str) -> tuple[ctypes.CDLL | None, str]:
    """Return a library with OpenMP, and its compiler's name: that of the kernels, or g++ where that has no OpenMP library."""
    for compiler in (find_compiler(), Compiler(("g++",), "gcc", "g++")):
        with suppress(BuildFailed, RuntimeUnavailable, OSError):
            return ctypes.CDLL(str(build(compiler, source, ("-O3", "-fopenmp"), stem=name, what="OpenMP tasks"))), compiler.name
    return None, ""


def _short(result: Result, repeats: int) -> None:
    """Time one launch of short independent kernels until done, against as many OpenMP tasks on one thread, in turn."""
    count, size = 1024, 64
    g = Graph("short")
    x = g.device_array("x", np.zeros((count, size), "f4"))
    step = Module(_STEP, name="step")["advance_row"]
    for k in range(count):
        g.kernel(step, 1, size, (x[k],))
    values = np.zeros((count, size), "f4")
    what = f"{count} short independent kernels: median of a launch until done against OpenMP tasks"
    library, compiler = _with_openmp(_STEPS_BY_TASKS, "steps_by_tasks")
    if library is None:
        result.note(f"{what}: left out, as neither {find_compiler()} nor g++ has an OpenMP library")
        return
    tasks = library.steps_by_tasks
    tasks.argtypes = [ctypes.c_void_p, ctypes.c_int]
    with g.compile(runtime="cpu", check=False) as exe:
        exe.run()
        ours, theirs, ratios = [], [], []
        for _ in range(_RATIOS):
            with without_gc():
                ours.append(percentile(launches_of(exe)(repeats).total, 50) * 1000 / count)
                theirs.append(percentile(repeat_us(lambda: tasks(values.ctypes.data, count), repeats), 50) * 1000 / count)
            ratios.append(ours[-1] / theirs[-1])
    note = (
        f"{min(ratios):.2f} to {max(ratios):.2f}; {percentile(ours, 50):.1f} ns a node ({find_compiler().name}) against "
        f"{percentile(theirs, 50):.1f} ({compiler})"
    )
    result.add(what, percentile(ratios, 50), "x", 1.0, note)


class _Blocks:
    """Calls all blocks of a kernel node on this thread, past the runtime."""

    class _Launch(ctypes.Structure):
        _fields_ = (
            ("grid", ctypes.c_uint32 * 3),
            ("block", ctypes.c_uint32 * 3),
            ("shared", ctypes.c_uint32),
            ("cooperative", ctypes.c_uint32),
            ("worker", ctypes.c_void_p),
        )

    class _Kernel(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("entry", ctypes.c_void_p))

    class _Info(ctypes.Structure):
        _fields_ = (("abi", ctypes.c_uint32), ("count", ctypes.c_uint32), ("kernels", ctypes.c_void_p))

    def __init__(self, exe: Executable, node: Any) -> None:
        from hipgraphdsl.parts.cpu.runtime import runtime_library

        runtime = open_runtime("cpu")
        code = runtime.rtc_compile(node.kernel.module.source, [node.kernel.name], name=node.kernel.module.name)
        library = ctypes.CDLL(code.image.partition(b":")[2].rstrip(b"\0").decode())
        library.hgcpu_module.restype = ctypes.POINTER(self._Info)
        info = library.hgcpu_module().contents
        kernels = ctypes.cast(info.kernels, ctypes.POINTER(self._Kernel))
        entry = kernels[0].entry
        program: Any = exe._program
        operation = program.operations[0]
        worker = ctypes.CDLL(str(runtime_library())).hgcpuBlockWorker
        worker.restype = ctypes.c_void_p
        extents = ((ctypes.c_uint32 * 3)(*extent) for extent in (operation.grid, operation.block))
        self._launch = self._Launch(*extents, operation.shared_bytes, 0, worker())
        self._args = operation.packer.place(operation.packed)
        self._packer = operation.packer
        self._count = operation.grid[0] * operation.grid[1] * operation.grid[2]
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        self._entry = kind(entry)
        self._library = library
        self._address = ctypes.addressof(self._launch)

    def __call__(self) -> None:
        code = self._entry(self._address, self._args, 0, self._count)
        if code:
            raise RuntimeError(f"the kernel returned {code}")


def _building(result: Result, name: str, shape: Callable[[int], Graph], nodes: int) -> None:
    shape(100).compile(runtime="cpu").close()  # the kernel is compiled and the runtime is open
    in_all, declared, checked, plan_us, build_us = min(_built(shape, nodes) for _ in range(_BUILDS))
    for what, us in (
        ("declare and infer", declared), ("check", checked), ("plan", plan_us), ("lower and instantiate", build_us)
    ):  # fmt: skip
        result.add(f"build {name}, {nodes} nodes: {what}", us / nodes, "us/node")
    limit = 50 if nodes == 10_000 else None
    result.add(f"build {name}, {nodes} nodes: in all", in_all / nodes, "us/node", limit, f"fastest of {_BUILDS}")


def _built(shape: Callable[[int], Graph], nodes: int) -> tuple[float, float, float, float, float]:
    """Return microseconds in all, of declaring, of checking, of planning and of lowering, of one graph."""
    clock = time.perf_counter
    with without_gc():
        t0 = clock()
        g = shape(nodes)
        t1 = clock()
        g.check("cpu")
        t2 = clock()
        with g.compile(runtime="cpu", check=False) as exe:
            t3 = clock()
            return (t3 - t0) * 1e6, (t1 - t0) * 1e6, (t2 - t1) * 1e6, exe.stats.plan_us, exe.stats.build_us


def _memory(result: Result, name: str, shape: Callable[[int], Graph]) -> None:
    nodes = 10_000
    shape(100).compile(runtime="cpu").close()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        g = shape(nodes)
        g.check("cpu")
        exe = g.compile(runtime="cpu", check=False)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    exe.close()
    result.add(f"memory of {name}: graph, plan and executable", used / nodes, "bytes/node", 5000, "Python's own, by tracemalloc")
