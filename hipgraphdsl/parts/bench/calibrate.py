"""``hipgraphdsl bench calibrate``: the plan's few cost constants, measured on this device and kept for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from ...graph import Graph
from ...plan.options import PlanOptions
from ...progress import no_progress, progress_bar
from ...runtimes import open_runtime
from ...runtimes.base import Runtime
from ...target import CostModel, calibrated, costs_path, store_costs
from .. import load
from .arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from .measure import Column, Sheet, finish, launches_of, machine, number, repeat_us, without_gc
from .shapes import KERNELS, chain, parallel

_CHAIN, _BRANCHES, _COPIES, _BATCHED = 1000, 64, 128, 1024
_COPY_BYTES = 256 << 10
_LARGE_BYTES = 64 << 20

_COLUMNS: Final = (
    Column("what", "what"),
    Column("value", "measured", text=lambda row: f"{number(row['value'])} {row['unit']}"),
    Column("note", "note"),
)


def link_gb_s(runtime: Runtime, nbytes: int, *ways: str) -> float:
    """Return the 10^9 bytes per second of one large copy each way, ``"in"``, ``"out"`` or both at once; the best of five."""
    g = Graph("link")
    for way in ways:
        device = g.device_array(f"device_{way}", shape=nbytes, dtype="uint8")
        host = g.host_array(f"host_{way}", np.ones(nbytes, "uint8"))
        g.memcpy(*((device, host) if way == "in" else (host, device)))
    with g.compile(runtime=runtime, backend="streams", lanes=None, check=False) as exe:
        exe.run()
        return len(ways) * nbytes / (min(repeat_us(exe.run, 5)) * 1e3)


def _times_us(graph: Graph, runtime: Runtime, repeats: int, **options: Any) -> tuple[float, float]:
    """Return the median microseconds of repeated launches, until submitted and until done."""
    with graph.compile(runtime=runtime, check=False, **options) as exe:
        exe.run()
        return launches_of(exe)(repeats).medians


def _copies(count: int) -> Graph:
    g = Graph(f"copies_{count}")
    n = _COPY_BYTES // 4
    source = g.device_array("source", shape=n, dtype="float32")
    out = g.host_array("out", shape=(count, n), dtype="float32")
    for i in range(count):
        g.memcpy(out[i], source)
    return g


def _entry_us(runtime: Runtime) -> float:
    """Return the microseconds of compiling a batch entry point that is in no cache."""
    how = load("merge").entry_of(KERNELS["empty"])
    source = f"{how.source([_BATCHED])}// {time.time_ns()}\n"
    started = time.perf_counter()
    runtime.rtc_compile(source, [how.name(_BATCHED)])
    return (time.perf_counter() - started) * 1e6


def measure_costs(runtime: Runtime, repeats: int = 200, report: Callable[[str], None] = no_progress) -> CostModel:
    """Measure the cost constants of this device."""
    with without_gc():
        report("the link")
        to_device, to_host = (link_gb_s(runtime, _LARGE_BYTES, way) for way in ("in", "out"))
        report("one node and a chain")
        single_submit, single_total = _times_us(chain(1), runtime, repeats)
        _, chain_total = _times_us(chain(_CHAIN), runtime, max(3, repeats // 4))
        report("branches")
        branched_submit, _ = _times_us(parallel(_BRANCHES), runtime, repeats, lanes=None)
        report("copies")
        few, many = (
            _times_us(_copies(k), runtime, max(3, repeats // 4), plan=PlanOptions(lanes=1, join=False))[1] for k in (1, _COPIES)
        )
        report("batches")
        beside = parallel(_BATCHED)
        apart, together = (_times_us(beside, runtime, max(3, repeats // 4), batch=batch)[1] for batch in (False, True))
        entry_us = _entry_us(runtime)
        report("launches on a stream")
        eager_submit, _ = _times_us(chain(_CHAIN), runtime, max(3, repeats // 10), backend="streams")
    return CostModel(
        launch_us=single_submit,
        branch_us=max(0.0, (branched_submit - single_submit) / (_BRANCHES - 1)),
        node_us=max(0.0, (chain_total - single_total) / (_CHAIN - 1)),
        copy_us=max(0.0, (many - few) / (_COPIES - 1) - _COPY_BYTES / (to_host * 1e3)),
        stream_launch_us=eager_submit / _CHAIN,
        link_gb_s=min(to_device, to_host),
        batched_us=max(0.0, (apart - together) / (_BATCHED - 1)),
        entry_us=entry_us,
        node_bytes=runtime.target.costs.node_bytes,
    )


_MEANINGS = {
    "launch_us": ("one launch, host time", "us"),
    "branch_us": ("each parallel branch of a launch, host time", "us"),
    "node_us": ("each node of a chain beyond its work, device time", "us"),
    "copy_us": ("each small copy beyond its bytes", "us"),
    "stream_launch_us": ("launching one kernel on a stream, host time", "us"),
    "link_gb_s": ("the link, one direction, the slower one", "GB/s"),
    "batched_us": ("each kernel node that is in a large batch saves, until done", "us"),
    "entry_us": ("compiling the entry point of batches of a kernel", "us"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_device_arguments(parser)
    add_repeats(parser, 200, 20, "each graph")
    parser.add_argument("--no-store", action="store_true", help="print the constants, and keep nothing")
    parser.add_argument("--forget", action="store_true", help="delete what was kept for this device, and measure nothing")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Measure, print and keep the constants."""
    runtime = open_runtime(args.runtime, args.device)
    path = costs_path(runtime.target)
    if args.forget:
        path.unlink(missing_ok=True)
        print(f"nothing is kept for {runtime.target.name} any more")
        return 0
    with progress_bar("bench calibrate", None) as report:
        costs = measure_costs(runtime, repeats_of(args), report)
    before = asdict(runtime.target.costs)
    rows = [
        {"what": f"{name}: {meaning}", "value": getattr(costs, name), "unit": unit, "note": f"was {before[name]:.3g}"}
        for name, (meaning, unit) in _MEANINGS.items()
    ]
    finish(Sheet("calibrate", _COLUMNS, rows, machine=machine(runtime)), args)
    if not args.no_store:
        print(f"kept in {store_costs(runtime.target, costs)}")
        runtime.target = calibrated(runtime.target)
    return 0
