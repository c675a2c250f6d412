"""``hipgraphdsl bench segments``: graphs that the host cuts, against C++ that launches the same graphs one after another.

Four questions: what a launch of several segments costs, what an empty eager step adds, what a look at a loop's condition costs
the host and the device, and whether an eager step in one lane holds up the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from benchmarks.figures import compiled
from benchmarks.lanes import iterations_for
from benchmarks.shapes import KERNELS
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench import shapes
from hipgraphdsl.parts.bench.arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from hipgraphdsl.parts.bench.measure import Column, Run, Sheet, finish, machine, number, race, without_gc
from hipgraphdsl.parts.bench.peers import CppLaunches, Skipped
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

_SEGMENTS: Final = (1, 2, 4, 8, 16)
_KERNELS: Final = (1, 20)
_LANES: Final = 4

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
            after = [g.kernel(shapes.KERNELS["empty"], 1, 64, (x, y, 256), after=after)]
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
    """Return chains of kernels side by side, with or without an empty eager step in the middle of the first."""
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
    size = {"kernels": kernels, "group": f"{kernels} kernels"}
    for count in counts:
        with in_turn(count, kernels).compile(runtime=runtime, check=False) as exe:
            runs: dict[str, Run | Executable] = {"ours": exe}
            try:
                runs["C++"] = CppLaunches(runtime, exe.handles, exe.stream).run
            except Skipped as error:
                sheet.note(f"left out C++: {error}")
            found = race(runs, repeats)
        submit_us, total_us = found["ours"].medians
        base_submit_us, base_total_us = found["C++"].medians if "C++" in found else (None, None)
        submits.append((count, submit_us, base_submit_us))
        against = "C++, one after another"
        _add(sheet, "launch until done", total_us, against, base_total_us, 1.2, "x", segments=count, **size)
        _add(sheet, "launch until it returns", submit_us, against, base_submit_us, None, "x", segments=count, **size)
    (few, first_us, first_base), (many, last_us, last_base) = submits[0], submits[-1]
    if many > few:
        base_us = None if first_base is None or last_base is None else (last_base - first_base) / (many - few)
        what, against = "each further segment, with an empty eager step before it", "each further segment in C++"
        _add(sheet, what, (last_us - first_us) / (many - few), against, base_us, 3.0, "us", **size)


def _measure_loops(sheet: Sheet, runtime: Runtime, passes: int, repeats: int) -> None:
    limited = runtime.target.platform == "nvidia"
    deciding: list[tuple[Literal["device", "host"], float]] = [("device", 3.0), ("host", 15.0)]
    for decide, limit in deciding:
        if decide == "device" and not runtime.target.conditional_nodes:
            sheet.notes.append(f"left out the loop by the device: {runtime.target.name} has no conditional nodes")
            continue
        with compiled(runtime, {str(every): (counting(passes, decide, every), {}) for every in (1, passes)}) as opened:
            found = race(opened, repeats)
        each_us, once_us = (found[str(every)].medians[1] / passes for every in (1, passes))
        what = f"a pass of a loop of {passes}, by the {decide}"
        _add(sheet, what, each_us, "a pass that nobody looks at", once_us, limit if limited else None, "us", group="loops")


def _measure_lanes(sheet: Sheet, runtime: Runtime, kernels: int, repeats: int) -> None:
    (steps,) = iterations_for(runtime, (20.0,))
    ways = {name: (beside(kernels, steps, eager), {"lanes": None}) for name, eager in (("with", True), ("without", False))}
    with compiled(runtime, ways) as opened:
        found = race(opened, repeats)
        segments = len(opened["with"].handles)
    what = f"{kernels} kernels in {_LANES} lanes, an eager step in one of them, until done"
    with_us, without_us = (found[name].medians[1] for name in ways)
    _add(sheet, what, with_us, "without the step", without_us, 1.1, "x", segments=segments, group="lanes")


def run(
    runtime: Runtime,
    counts: Sequence[int] = _SEGMENTS,
    passes: int = 1000,
    repeats: int = 200,
    report: Callable[[str], None] = no_progress,
) -> Sheet:
    """Measure all four, with these numbers of segments, in ascending order, and loops of at most 4096 passes."""
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
    add_repeats(parser, 200, 20, "each", ", loops of 100 passes")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    runtime = open_runtime(args.runtime, args.device)
    passes = min(args.passes, 100) if args.quick else args.passes
    with progress_bar("bench segments", None, len(_KERNELS) + 2) as report:
        sheet = run(runtime, sorted(args.segments or _SEGMENTS), passes, repeats_of(args), report)
    finish(sheet, args)
    return 0
