"""``hipgraphdsl bench segments``: graphs that the host cuts, against C++ that launches the same graphs one after another.

Four questions: what a launch of several segments costs, what an empty eager step adds, what a look at a loop's condition costs
the host and the device, and whether an eager step in one lane holds up the others.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, Literal

import numpy as np

from ..errors import HipGraphError
from ..executable import Executable
from ..graph import Graph
from ..runtimes import open_runtime
from ..runtimes.base import Runtime
from .arguments import add_device_arguments, add_output_arguments, positive
from .lanes import iterations_for
from .measure import Column, Sheet, clock_us, finish, launch_times_us, machine, number, percentile, reporting, without_gc
from .peers import Skipped, address_of, peer_library
from .shapes import KERNELS

_SEGMENTS: Final = (1, 2, 4, 8, 16)
_KERNELS: Final = (1, 20)
_ROUNDS: Final = 10
_LANES: Final = 4

Launches = Callable[[int], tuple[list[float], list[float]]]
"""Launches and waits so many times; returns the microseconds to submit and until done."""

_COLUMNS: Final = (
    Column("what", "what"),
    Column("segments", "segments", "graphs that are launched"),
    Column("kernels", "kernels\neach", "kernels of each of them"),
    Column("us", "us", "hipgraphdsl, median, microseconds"),
    Column("against", "against"),
    Column("base_us", "its us", "what it is compared with, median, microseconds"),
    Column("ratio", "ratio", "the first relative to the second"),
    Column("beyond_us", "beyond\nus", "the first beyond the second, microseconds"),
    Column("limit", "aim", "at most this ratio, or this many microseconds beyond", lambda row: _aim(row)),
)


def _aim(row: Any) -> str:
    value = row["beyond_us"] if row["unit"] == "us" else row["ratio"]
    return f"<= {number(row['limit'])} {row['unit']}{'' if value <= row['limit'] else ', missed'}"


# -- workflows ---------------------------------------------------------------------------------------------------------


def nothing(stream: Any) -> None:
    """Do what the empty eager steps do."""


def in_turn(segments: int, kernels: int) -> Graph:
    """Return so many segments of a chain of empty kernels each, with an empty eager step between two of them."""
    g = Graph(f"segments_{segments}")
    x, y = (g.device_array(name, shape=256, dtype="float32") for name in "xy")
    after: list[Any] = []
    for segment in range(segments):
        if segment:
            after = [g.eager(nothing, name=f"step_{segment}", after=after)]
        for _ in range(kernels):
            after = [g.kernel(KERNELS["empty"], 1, 64, (x, y, 256), after=after)]
            x, y = y, x
    return g


def counting(passes: int, decide: Literal["device", "host"], check_every: int) -> Graph:
    """Return a loop that runs a kernel so many times."""
    body = Graph("body")
    body.kernel(KERNELS["count_down"], 1, 32, (body.device_array("left", shape=1, dtype="int32"),))
    g = Graph("counting")
    left = g.device_array("left", shape=1, dtype="int32")
    g.memset(left, passes)
    g.conditional("while", left, body, {"left": left}, decide=decide, check_every=check_every)
    return g


def beside(kernels: int, steps: int, eager: bool) -> Graph:
    """Return chains of kernels side by side, with or without an empty eager step in the middle of the first.

    Parameters
    ----------
    steps : int
        Of the arithmetic of each kernel.
    """
    g = Graph("beside")
    for lane in range(_LANES):
        x, y = (g.device_array(f"{name}{lane}", np.zeros(32, "float32")) for name in "xy")
        after: list[Any] = []
        for k in range(kernels // _LANES):
            if eager and lane == 0 and k == kernels // _LANES // 2:
                after = [g.eager(nothing, after=after)]
            after = [g.kernel(KERNELS["spin"], 1, 32, (x, y, steps), after=after)]
            x, y = y, x
    return g


# -- measuring ---------------------------------------------------------------------------------------------------------


def _ours(exe: Executable) -> Launches:
    return functools.partial(launch_times_us, exe.launch, exe.synchronize, clock_costs_us=clock_us())


def _native(exe: Executable) -> Launches:
    """Return what launches an Executable's graphs one after another from C++.

    Raises
    ------
    Skipped
        If there is no compiler, or the runtime has no C functions.
    """
    library, handles = peer_library(), exe.handles
    launch, wait = address_of(exe.runtime, "hipGraphLaunch"), address_of(exe.runtime, "hipStreamSynchronize")
    graphs = (ctypes.c_void_p * len(handles))(*handles)
    clock_costs_us = library.peer_clock_us()

    def run(repeats: int) -> tuple[list[float], list[float]]:
        submit, total = np.zeros(repeats), np.zeros(repeats)
        code = library.peer_launch_all(
            launch,
            wait,
            graphs,
            ctypes.c_size_t(len(handles)),
            ctypes.c_void_p(exe.stream),
            ctypes.c_size_t(repeats),
            submit.ctypes.data_as(ctypes.c_void_p),
            total.ctypes.data_as(ctypes.c_void_p),
        )
        if code:
            raise HipGraphError(f"launching graphs from C++ ended with error {code}")
        times: list[list[float]] = [np.maximum(0.0, t - clock_costs_us).tolist() for t in (submit, total)]
        return times[0], times[1]

    return run


def _race(contestants: Sequence[Launches], repeats: int) -> list[tuple[float, float]]:
    """Let the contestants launch in turns; return the medians of each until submitted and until done."""
    for run in contestants:
        run(3)
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in contestants]
    rounds = min(_ROUNDS, repeats)
    for _ in range(rounds):
        for kept, run in zip(times, contestants):
            for all_of, some in zip(kept, run(repeats // rounds)):
                all_of += some
    return [(percentile(submit, 50), percentile(total, 50)) for submit, total in times]


def _add(
    sheet: Sheet, what: str, us: float, against: str, base_us: float | None, limit: float | None, unit: str, **more: Any
) -> None:
    row = {"what": what, **more, "us": us}
    if base_us is not None:
        row |= {"against": against, "base_us": base_us, "ratio": us / base_us if base_us else None, "beyond_us": us - base_us,
                "limit": limit, "unit": unit}  # fmt: skip
    sheet.rows.append(row)


def _measure_segments(sheet: Sheet, runtime: Runtime, counts: Sequence[int], kernels: int, repeats: int) -> None:
    submits: list[tuple[int, float, float | None]] = []
    for count in counts:
        with in_turn(count, kernels).compile(runtime=runtime, check=False) as exe:
            contestants = [_ours(exe)]
            try:
                contestants.append(_native(exe))
            except Skipped as error:
                note = f"left out C++: {error}"
                sheet.notes += [note] if note not in sheet.notes else []
            (submit_us, total_us), *native = _race(contestants, repeats)
        base = native[0] if native else (None, None)
        submits.append((count, submit_us, base[0]))
        size = {"segments": count, "kernels": kernels, "group": f"{kernels} kernels"}
        _add(sheet, "launch until done", total_us, "C++, one after another", base[1], 1.2, "x", **size)
        _add(sheet, "launch until it returns", submit_us, "C++, one after another", base[0], None, "x", **size)
    (few, first_us, first_base), (many, last_us, last_base) = submits[0], submits[-1]
    if many > few:
        base_us = None if first_base is None or last_base is None else (last_base - first_base) / (many - few)
        what, against = "each further segment, with an empty eager step before it", "each further segment in C++"
        size = {"kernels": kernels, "group": f"{kernels} kernels"}
        _add(sheet, what, (last_us - first_us) / (many - few), against, base_us, 3.0, "us", **size)


def _measure_loops(sheet: Sheet, runtime: Runtime, passes: int, repeats: int) -> None:
    limited = runtime.target.platform == "nvidia"
    deciding: list[tuple[Literal["device", "host"], float]] = [("device", 3.0), ("host", 15.0)]
    for decide, limit in deciding:
        if decide == "device" and not runtime.target.conditional_nodes:
            sheet.notes.append(f"left out the loop by the device: {runtime.target.name} has no conditional nodes")
            continue
        with ExitStack() as returned:
            opened = [
                returned.enter_context(counting(passes, decide, every).compile(runtime=runtime, check=False))
                for every in (1, passes)
            ]
            (_, each_us), (_, once_us) = _race([_ours(exe) for exe in opened], repeats)
        what = f"a pass of a loop of {passes}, by the {decide}"
        aim = limit if limited else None
        _add(sheet, what, each_us / passes, "a pass that nobody looks at", once_us / passes, aim, "us", group="loops")


def _measure_lanes(sheet: Sheet, runtime: Runtime, kernels: int, repeats: int) -> None:
    (steps,) = iterations_for(runtime, (20.0,))
    with ExitStack() as returned:
        opened = [
            returned.enter_context(beside(kernels, steps, eager).compile(runtime=runtime, lanes=None, check=False))
            for eager in (True, False)
        ]
        (_, with_us), (_, without_us) = _race([_ours(exe) for exe in opened], repeats)
        segments = len(opened[0].handles)
    what = f"{kernels} kernels in {_LANES} lanes, an eager step in one of them, until done"
    _add(sheet, what, with_us, "without the step", without_us, 1.1, "x", segments=segments, group="lanes")


def run(
    runtime: Runtime,
    counts: Sequence[int] = _SEGMENTS,
    passes: int = 1000,
    repeats: int = 200,
    report: Callable[[str], None] = lambda what: None,
) -> Sheet:
    """Measure all four.

    Parameters
    ----------
    counts : sequence of int
        Numbers of segments, in ascending order.
    passes : int
        Of the loops, at most 4096.
    """
    sheet = Sheet("segments", _COLUMNS, machine=machine(runtime))
    with without_gc():
        for kernels in _KERNELS:
            report(f"segments of {kernels} kernels")
            _measure_segments(sheet, runtime, counts, kernels, repeats)
        report("loops")
        _measure_loops(sheet, runtime, passes, max(1, repeats // 20))
        report("lanes")
        _measure_lanes(sheet, runtime, 100, max(1, repeats // 4))
    return sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_device_arguments(parser)
    parser.add_argument(
        "--segments",
        type=positive,
        action="append",
        metavar="N",
        help="so many segments (default: 1, 2, 4, 8 and 16); repeatable",
    )
    parser.add_argument("--passes", type=positive, default=1000, metavar="N", help="passes of the loops (default: 1000)")
    parser.add_argument("--repeats", type=positive, default=200, metavar="N", help="launches of each (default: 200)")
    parser.add_argument("--quick", action="store_true", help="20 launches of each, loops of 100 passes")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    runtime = open_runtime(args.runtime, args.device)
    repeats, passes = (min(args.repeats, 20), min(args.passes, 100)) if args.quick else (args.repeats, args.passes)
    with reporting("segments", len(_KERNELS) + 2) as report:
        sheet = run(runtime, sorted(args.segments or _SEGMENTS), passes, repeats, report)
    finish(sheet, args)
    return 0
