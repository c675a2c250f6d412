"""``hipgraphdsl bench advise WORKFLOW``: from how many launches on a graph pays for this workflow, measured on this device."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any, Final

from ...graph import Graph
from ...progress import no_progress, progress_bar
from ...runtimes import open_runtime
from ...runtimes.base import Runtime
from .arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from .measure import Column, Sheet, affordable, finish, launches_of, machine, number, without_gc
from .shapes import decode

_EAGER: Final = ("serial", "streams")
_GRAPHS: Final = ("capture", "explicit")
_BUDGET_S: Final = 1.0  # time limit of the repeated launches of one backend, in each of two turns

_COLUMNS: Final = (
    Column("backend", "backend"),
    Column("build_us", "plan and build\nus", "planning, building and instantiating, microseconds"),
    Column("first_us", "first launch\nus", "first launch until done, microseconds"),
    Column("submit_us", "submit\nus", "repeated launch until the call returns, median, microseconds"),
    Column("total_us", "until done\nus", "repeated launch until the device has finished, median, microseconds"),
    Column("pays_from", "pays from", "launches from which it takes less time in all than the best of serial and streams"),
    Column("pays_from_host", "pays from\n(host time)", "the same for the time that the host spends, without waiting"),
)


def pays_from(setup_us: float, each_us: float, other_setup_us: float, other_each_us: float) -> int | None:
    """Return the number of launches from which `setup + launches * each` is less than the other's; None if never."""
    saved, ahead = other_each_us - each_us, setup_us - other_setup_us
    if saved <= 0:
        return None
    return max(1, math.floor(ahead / saved) + 1)


def _measured(graph: Graph, runtime: Runtime, backend: Any, repeats: int, lanes: Any) -> dict[str, float]:
    with without_gc(), graph.compile(runtime=runtime, backend=backend, lanes=lanes) as exe:
        started = time.perf_counter()
        exe.run()
        first_us = (time.perf_counter() - started) * 1e6
        submit_us, total_us = launches_of(exe)(max(3, affordable(_BUDGET_S, first_us, repeats))).medians
        build_us = exe.stats.plan_us + exe.stats.build_us
        return {"build_us": build_us, "first_us": first_us, "submit_us": submit_us, "total_us": total_us}


def run(
    graph: Graph, runtime: Runtime, repeats: int = 100, report: Callable[[str], None] = no_progress, lanes: Any = "auto"
) -> Sheet:
    """Measure every backend on a workflow that can run."""
    sheet = Sheet(f"advise {graph.name}", _COLUMNS, machine=machine(runtime))
    rows: dict[str, dict[str, Any]] = {}
    for turn in range(2):  # one at a time, because memory may be short; twice, because of outliers
        for backend in (*_EAGER, *_GRAPHS):
            report(f"{graph.name}: {backend}, {turn + 1} of 2")
            found = _measured(graph, runtime, backend, repeats, lanes)
            known = rows.get(backend, found)
            rows[backend] = {"backend": backend, **{key: min(found[key], known[key]) for key in found}}
    for backend in _GRAPHS:
        row = rows[backend]
        for key, each in (("pays_from", "total_us"), ("pays_from_host", "submit_us")):
            launches = [pays_from(row["build_us"], row[each], rows[e]["build_us"], rows[e][each]) for e in _EAGER]
            row[key] = "never" if None in launches else str(max(n for n in launches if n is not None))
    sheet.rows.extend(rows.values())
    sheet.notes.extend(advice(rows))
    return sheet


def advice(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the advice in sentences, from the rows of every backend."""
    eager = min(_EAGER, key=lambda name: rows[name]["total_us"])
    graph = min(_GRAPHS, key=lambda name: rows[name]["total_us"])
    each, other = rows[graph]["total_us"], rows[eager]["total_us"]
    lines = []
    payers = {name: rows[name]["pays_from"] for name in _GRAPHS if rows[name]["pays_from"] != "never"}
    if payers:
        best = min(payers, key=lambda name: (int(payers[name]), rows[name]["total_us"]))
        lines.append(
            f"A graph pays from {_launches(payers[best])} on (backend {best}); {graph} then takes {number(each)} us a launch"
            f" where {eager} takes {number(other)}."
        )
    else:
        lines.append(
            f"A graph never pays here: the better one ({graph}) takes {number(each)} us a launch, {eager} {number(other)}, and"
            ' building it costs more. Use backend="' + eager + '".'
        )
        hosts = {name: rows[name]["pays_from_host"] for name in _GRAPHS if rows[name]["pays_from_host"] != "never"}
        if hosts:
            best = min(hosts, key=lambda name: int(hosts[name]))
            lines.append(f"If what counts is the host's own time, backend {best} pays from {_launches(hosts[best])} on.")
    return lines


def _launches(count: str) -> str:
    return "the first launch" if count == "1" else f"{count} launches"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument(
        "workflow", nargs="?", metavar="WORKFLOW", help="as for `run` (default: the decode step of a language model)"
    )
    add_device_arguments(parser)
    add_repeats(parser, 100, 10, "each backend")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    graph = args.load_graph(args.workflow) if args.workflow else decode()
    runtime = open_runtime(args.runtime, args.device)
    with progress_bar("bench advise", None) as report:
        sheet = run(graph, runtime, repeats_of(args), report)
    finish(sheet, args)
    return 0
