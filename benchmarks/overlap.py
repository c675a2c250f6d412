"""``hipgraphdsl bench overlap``: copies beside kernels, against running them in turn and against the link's own limit.

Three workloads: iterations over two arrays, batches through a pipeline (copy in, compute, copy out), and a wave whose every step
is copied to the host. What the link can do is measured in the same run, by one large copy from and into page-locked memory.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Result, compiled
from benchmarks.shapes import KERNELS
from hipgraphdsl.arrays import writes
from hipgraphdsl.backends.operations import Copy1D, Launch
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.errors import HipGraphError
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench.arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from hipgraphdsl.parts.bench.calibrate import link_gb_s
from hipgraphdsl.parts.bench.measure import Run, Times, finish, machine, race, without_gc
from hipgraphdsl.parts.bench.peers import Arguments, Skipped, Task, address_of, cpp_library, operations_of, require_good
from hipgraphdsl.plan.options import PlanOptions
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

# -- workloads ---------------------------------------------------------------------------------------------------------


def wave_to_host(steps: int = 640, side: int = 256) -> Graph:
    """Return steps of the 2-D wave equation; five fields take turns, and each state goes to page-locked memory."""
    velocity, dx = 343.0, 1.0
    dt = 0.4 * dx / velocity
    frequency = velocity / (10.0 * dx)
    g = Graph("wave2d")
    u = g.device_array("u", shape=(5, side, side), dtype="float32")
    v = g.device_array("v", np.full((side, side), velocity, dtype="float32"))
    out = g.host_array("out", shape=(steps, side, side), dtype="float32")
    grid = (-(-side // 64), -(-side // 4))
    for i in range(steps):
        u0, u1, u2 = (u[(i + k) % 5] for k in range(3))
        forcing = (np.pi * frequency * (i * dt - 2.0 / frequency)) ** 2
        g.kernel(
            KERNELS["wave2d_4o"],
            grid,
            (64, 4),
            (u0, u1, u2, v, side, side, dt * dt, 1 / dx**2, 1 / dx**2, side // 2, side // 2, float(forcing)),
        )
        g.memcpy(out[i], u2)
    return g


def batches(count: int = 8, nbytes: int = 64 << 20, buffers: int = 0) -> Graph:
    """Return batches that are copied in, computed and copied out, `buffers` of them (or all) at the same time."""
    n = nbytes // 4
    buffers = buffers or count
    g = Graph("batches")
    source = g.host_array("source", np.ones((count, n), dtype="float32"))
    result = g.host_array("result", shape=(count, n), dtype="float32")
    inside = [g.device_array(f"in{k}", shape=n, dtype="float32") for k in range(buffers)]
    outside = [g.device_array(f"out{k}", shape=n, dtype="float32") for k in range(buffers)]
    for i in range(count):
        k = i % buffers
        g.memcpy(inside[k], source[i])
        g.kernel(KERNELS["process"], -(-n // 256), 256, (inside[k], writes(outside[k]), n))
        g.memcpy(result[i], outside[k])
    return g


def iterations(count: int = 50, n: int = 1 << 20) -> Graph:
    """Return iterations in which two arrays go to the device, are added to by two kernels, and come back."""
    g = Graph("iterations")
    host_a, host_b = (g.host_array(f"host_{x}", np.zeros(n, dtype="float32")) for x in "ab")
    a, b = (g.device_array(x, shape=n, dtype="float32") for x in "ab")
    blocks = -(-n // 256)
    for _ in range(count):
        g.memcpy(a, host_a)
        g.memcpy(b, host_b)
        g.kernel(KERNELS["first"], blocks, 256, (a, n))
        g.kernel(KERNELS["second"], blocks, 256, (a, b, n))
        g.memcpy(host_a, a)
        g.memcpy(host_b, b)
    return g


# -- the link and the synchronous loop ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """What the link between host and device carries, in 10^9 bytes a second."""

    host_to_device: float
    device_to_host: float
    both_ways: float

    def least_us(self, to_device: int, to_host: int) -> float:
        """Return the least time, in microseconds, for so many bytes each way at once."""
        alone = max(to_device / self.host_to_device, to_host / self.device_to_host)
        return max(alone, (to_device + to_host) / self.both_ways if to_device and to_host else 0.0) / 1e3


@functools.cache
def _loop_in_cpp() -> Any:
    """Return the C++ function, built on first use."""
    source = Path(__file__).with_name("overlap.cpp").read_text(encoding="utf-8")
    found = cpp_library(source, "overlap", "the synchronous loop in C++").synchronous_loop
    at, size = ctypes.c_void_p, ctypes.c_size_t
    found.argtypes = [at, at, ctypes.c_int, at, at, size, *[at] * 7]
    return found


def synchronous_loop(exe: Executable) -> Run:
    """Return what issues an Executable's kernels and copies, which take turns, from C++, and waits after each copy."""
    runtime, by_name = exe.runtime, operations_of(exe)
    operations = [by_name[name] for name in exe.workflow.index]
    launches = [o for o in operations if isinstance(o, Launch)]
    copies = [o for o in operations if isinstance(o, Copy1D)]
    if len(launches) != len(copies) or len(launches) + len(copies) != len(operations):
        raise Skipped("the loop takes a kernel and a copy in turn")
    loop, count = _loop_in_cpp(), len(launches)
    arguments = Arguments([Task.of(o) for o in launches])
    pointers = ctypes.c_void_p * count
    functions, tables = pointers(*(o.function for o in launches)), pointers(*arguments.tables)
    dst, src = pointers(*(o.dst for o in copies)), pointers(*(o.src for o in copies))
    shapes = np.array([(*o.grid, *o.block) for o in launches], dtype=np.uint32)
    nbytes = np.array([o.nbytes for o in copies], dtype=np.uintp)
    is_hip = runtime.target.platform != "nvidia"
    copy = address_of(runtime, "hipMemcpyAsync" if is_hip else "cuMemcpyAsync")
    launch, wait = address_of(runtime, "hipModuleLaunchKernel"), address_of(runtime, "hipStreamSynchronize")
    calls = launch, copy, int(is_hip), wait, exe.stream
    work = count, functions, shapes.ctypes.data, tables, dst, src, nbytes.ctypes.data

    def once() -> float:
        total = ctypes.c_double()
        require_good(loop(*calls, *work, ctypes.byref(total)))
        return total.value

    def run(repeats: int) -> Times:
        times = [once() for _ in range(repeats)]
        return Times(times, times)

    run.kept = arguments, shapes, nbytes  # type: ignore[attr-defined]  # they live as long as the function
    return run


# -- measuring ---------------------------------------------------------------------------------------------------------


def _medians(contestants: Mapping[str, Run | Executable], repeats: int) -> dict[str, float]:
    """Let all run in turns; return the median microseconds of each until done."""
    return {name: times.medians[1] for name, times in race(contestants, repeats, math.inf).items()}


def _backends(graph: Graph) -> dict[str, tuple[Graph, dict[str, Any]]]:
    return {name: (graph, {"backend": name}) for name in ("serial", "streams", "capture", "explicit")}


def _add_times(result: Result, what: str, limit_us: float, medians: dict[str, float], note: str = "") -> None:
    result.add(f"{what}: the link's limit", limit_us / 1e3, "ms", None, note)
    for name, us in medians.items():
        result.add(f"{what}: {name}", us / 1e3, "ms")


def _measure_wave(result: Result, runtime: Runtime, link: Link, steps: int, side: int, repeats: int) -> None:
    graph = wave_to_host(steps, side)
    nbytes = steps * side * side * 4
    apart = "explicit, join=False"
    with compiled(runtime, {**_backends(graph), apart: (graph, {"plan": PlanOptions(join=False)})}) as opened:
        runs: dict[str, Run | Executable] = {**opened}
        loop = "synchronous loop in C++"
        try:
            runs[loop] = synchronous_loop(opened[apart])
        except Skipped as error:
            result.add(f"wave2d: {loop} left out, the backend serial stands for it", 0.0, "ms", None, str(error))
            loop = "serial"
        expected = _final(opened["serial"])
        for name, exe in opened.items():
            if not np.array_equal(expected, _final(exe)):
                raise HipGraphError(f"wave2d by {name} gives other numbers than serial")
        medians = _medians(runs, repeats)
    aimed = runtime.target.platform == "nvidia"
    what, least = f"wave2d {side} x {side}, {steps} steps", link.least_us(0, nbytes)
    _add_times(result, what, least, medians, f"{nbytes / 1e6:.1f} MB to the host")
    for name in opened:
        if name != "serial":
            is_default = name == "explicit" and aimed
            result.add(f"{what}: {name} / the link's limit", medians[name] / least, "x", 1.15 if is_default else None)
            result.add(f"{what}: {name} / {loop}", medians[name] / medians[loop], "x", 0.26 if is_default else None)


def _final(exe: Executable) -> np.ndarray[Any, Any]:
    """Run from silence and return every step."""
    exe.write("u", 0.0)
    exe.run()
    return exe.read("out")


def _measure_batches(result: Result, runtime: Runtime, link: Link, count: int, nbytes: int, repeats: int) -> None:
    for buffers in (count, 3):
        with compiled(runtime, _backends(batches(count, nbytes, buffers))) as opened:
            for name, exe in opened.items():
                exe.run()
                if not np.all(exe.read("result") == 1.0):
                    raise HipGraphError(f"batches by {name} give wrong numbers")
            medians = _medians(opened, repeats)
        least = link.least_us(count * nbytes, count * nbytes)
        what = f"{count} batches of {nbytes / 1e6:.0f} MB, {buffers} buffers"
        _add_times(result, what, least, medians, "both directions at once")
        for name in ("streams", "capture", "explicit"):
            limit = 0.62 if name == "explicit" and buffers == count and runtime.target.platform == "nvidia" else None
            result.add(f"{what}: {name} / serial", medians[name] / medians["serial"], "x", limit)
        result.add(f"{what}: explicit / the link's limit", medians["explicit"] / least, "x")


def _measure_iterations(result: Result, runtime: Runtime, link: Link, count: int, n: int, repeats: int) -> None:
    with compiled(runtime, _backends(iterations(count, n))) as opened:
        medians = _medians(opened, repeats)
    what = f"{count} iterations over 2 x {n} float32"
    # Each array comes back before it goes in again, yet one can go in while the other comes out.
    _add_times(result, what, link.least_us(2 * count * n * 4, 2 * count * n * 4), medians)
    for name in ("streams", "capture", "explicit"):
        result.add(f"{what}: {name} / serial", medians[name] / medians["serial"], "x")


def run(
    runtime: Runtime,
    steps: int = 640,
    side: int = 256,
    batch_bytes: int = 64 << 20,
    size: int = 1 << 20,
    count: int = 50,
    large_bytes: int = 256 << 20,
    repeats: int = 20,
    report: Callable[[str], None] = no_progress,
) -> Result:
    """Measure the link by one large copy, and all three workloads: the wave, 8 batches, and iterations over `size` elements."""
    result = Result("overlap", machine=machine(runtime))
    report("the link's limit")
    with without_gc():
        link = Link(*(link_gb_s(runtime, large_bytes, *ways) for ways in (("in",), ("out",), ("in", "out"))))
        large = f"one copy of {large_bytes / 1e6:.0f} MB, page-locked"
        result.add("link, host to device", link.host_to_device, "GB/s", None, large)
        result.add("link, device to host", link.device_to_host, "GB/s", None, large)
        result.add("link, both at once", link.both_ways, "GB/s", None, "sum of both directions")
        report(f"wave2d, {steps} steps of {side} x {side}")
        _measure_wave(result, runtime, link, steps, side, repeats)
        report(f"8 batches of {batch_bytes / 1e6:.0f} MB")
        _measure_batches(result, runtime, link, 8, batch_bytes, max(2, repeats // 2))
        report(f"{count} iterations")
        _measure_iterations(result, runtime, link, count, size, max(2, repeats // 4))
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_device_arguments(parser)
    parser.add_argument("--steps", type=positive, default=640, metavar="N", help="steps of the wave (default: 640)")
    parser.add_argument("--side", type=positive, default=256, metavar="N", help="cells along a side of the wave (default: 256)")
    parser.add_argument("--megabytes", type=positive, metavar="N", help="MiB of each batch (default: 64; on the CPU 4)")
    add_repeats(parser, 20, 5, "each way", what="runs")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    runtime = open_runtime(args.runtime, args.device)
    on_cpu = runtime.target.platform == "cpu"
    megabytes = args.megabytes or (4 if on_cpu else 64)
    with progress_bar("bench overlap", None, 4) as report:
        result = run(
            runtime,
            args.steps,
            args.side,
            megabytes << 20,
            1 << (16 if on_cpu else 22),
            50,
            (16 if on_cpu else 256) << 20,
            repeats_of(args),
            report,
        )
    finish(result, args)
    return 0
