"""``hipgraphdsl bench launch``: what graphs of many shapes and sizes cost to build, launch and update, beside other libraries.

Every contestant of one shape and size runs the same kernels in one process; their launches take turns, so that ratios hold
however the machine's speed wanders. Times of Python calls are without what reading the clock costs.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, Final

from ...cli.arguments import as_lanes, positive
from ...errors import HipGraphError
from ...executable import Executable
from ...graph import Graph
from ...nodes import Node
from ...plan.options import PlanOptions
from ...progress import no_progress, progress_bar
from ...runtimes import open_runtime
from ...runtimes.base import Runtime
from .advise import pays_from
from .arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from .measure import (
    Column,
    Run,
    Sheet,
    finish,
    launch_times_us,
    launches_of,
    machine,
    percentile,
    race,
    resident_bytes,
    without_gc,
)
from .peers import PEERS, Peer, Skipped, Work, load_torch_first, open_peer
from .shapes import chain, decode, diamonds, fan_in, fan_out, layers, parallel, random_layers, wave

BACKENDS: Final = ("serial", "streams", "capture", "explicit")
_BUILT: Final = ("capture", "explicit")
_SIZES: Final = (1, 10, 100, 1000, 8192)
_QUICK_SIZES: Final = (1, 100, 1000)
_UPDATE_BUDGET_S: Final = 0.5
_MOST_BRANCHES_OF_STREAMS: Final = 512  # the eager backend opens a stream for each lane


LAUNCH_SHAPES: Final[dict[str, Callable[..., Graph]]] = {
    "single": lambda: chain(1),
    "chain": chain,
    "fan_out": fan_out,
    "fan_in": fan_in,
    "diamonds": diamonds,
    "chains_8": lambda nodes: parallel(nodes, width=8),
    "parallel": parallel,
    "layers": lambda nodes: layers(nodes, width=100),
    "random": random_layers,
    "wave2d": wave,
    "decode": decode,
}
UNSIZED: Final = frozenset({"single", "wave2d", "decode"})
"""Shapes that take no number of nodes and run once."""

_COLUMNS: Final = (
    Column("shape", "shape"),
    Column("nodes", "nodes"),
    Column("who", "who", "backend of hipgraphdsl, or peer"),
    Column("lanes", "lanes", "chains that run beside each other"),
    Column("declare_us", "declare\nus/node", "declaring the nodes and inferring the edges, microseconds a node"),
    Column("plan_us", "plan\nus/node", "reducing edges and choosing lanes, microseconds a node"),
    Column("lower_us", "lower\nus/node", "adding or issuing the nodes, microseconds a node"),
    Column("instantiate_us", "instant.\nus/node", "instantiating, microseconds a node"),
    Column(
        "built_us",
        "built\nus/node",
        "first declaration to instantiated graph, checked, microseconds a node",
    ),
    Column("built_ratio", "/ torch", "built relative to the torch peer's capture and instantiation"),
    Column("first_us", "first\nus", "first launch until done, microseconds"),
    Column("submit_us", "submit\nus", "repeated launch until the call returns, median, microseconds"),
    Column("submit_p99_us", "p99", "the same, 99th percentile"),
    Column("submit_ratio", "/ C++", "submit relative to the C++ peer's"),
    Column("total_us", "done\nus", "repeated launch until the device has finished, median, microseconds"),
    Column("total_p99_us", "p99", "the same, 99th percentile"),
    Column("total_ratio", "/ C++", "until done relative to the C++ peer's"),
    Column("update_one_us", "set 1\nus", "one kernel's argument changed and the graph submitted, median, microseconds"),
    Column("update_one_ratio", "/ C++", "the same relative to the C++ peer's"),
    Column("update_all_us", "set all\nus", "every kernel's argument changed and the graph submitted, median, microseconds"),
    Column("resident_mb", "RAM\nMB", "growth of the resident memory while it was built, 10^6 bytes"),
    Column("device_mb", "device\nMB", "growth of the used device memory while it was built, 10^6 bytes"),
    Column("pays_from", "pays\nfrom", "launches from which plan, build and launches take less in all than serial and streams do"),
)


def with_parameters(graph: Graph) -> Graph:
    """Make the last argument of every kernel a parameter: `one` for the node in the middle, `rest` for all others."""
    workflow = graph.workflow()
    kernels = [node for node in workflow.nodes if node.launched is not None]
    value = int(_arguments(kernels[0])[-1])
    one, rest = graph.param("one", "int32", default=value), graph.param("rest", "int32", default=value)
    middle = kernels[len(kernels) // 2]
    nodes = tuple(
        node.changed(args=(*_arguments(node)[:-1], one if node is middle else rest)) if node.launched is not None else node
        for node in workflow.nodes
    )
    return Graph.from_workflow(replace(graph.workflow(), nodes=nodes))


def _arguments(node: Node) -> tuple[Any, ...]:
    return () if node.launched is None else node.launched.args


class _Ours:
    """One backend of hipgraphdsl, with the cost of building it."""

    def __init__(self, graph: Graph, runtime: Runtime, backend: str, lanes: Any) -> None:
        with _instantiation_timed(runtime) as spent_us:
            self.exe: Executable = graph.compile(runtime=runtime, backend=backend, lanes=lanes, check=False)  # type: ignore[arg-type]
        stats = self.exe.stats
        self.plan_us, self.instantiate_us = stats.plan_us, sum(spent_us)
        self.lower_us = stats.build_us - self.instantiate_us
        self.lanes = stats.lanes
        self.run = launches_of(self.exe)
        value = int(graph.parameters["one"].default)
        self._values = cycle((value - 1, value))

    def updating(self, chosen: range) -> Run:
        """Return a run that changes an argument of one or all nodes before each launch."""
        exe, values = self.exe, self._values

        def set_one() -> None:
            exe.launch(one=next(values))

        def set_all() -> None:
            value = next(values)
            exe.launch(one=value, rest=value)

        return lambda repeats: launch_times_us(set_one if len(chosen) == 1 else set_all, self.exe.synchronize, repeats)

    def close(self) -> None:
        """Free everything."""
        self.exe.close()


_Contestant = _Ours | Peer


@contextmanager
def _instantiation_timed(runtime: Runtime) -> Iterator[list[float]]:
    """Collect the microseconds that the runtime's instantiations take."""
    spent_us: list[float] = []
    original = runtime.graph_instantiate

    def timed(graph: int, flags: int = 0) -> int:
        started = time.perf_counter()
        handle = original(graph, flags)
        spent_us.append((time.perf_counter() - started) * 1e6)
        return handle

    runtime.graph_instantiate = timed  # type: ignore[method-assign]  # restored after one compile
    try:
        yield spent_us
    finally:
        del runtime.graph_instantiate


def run(
    runtime: Runtime,
    shapes: Sequence[str] = tuple(LAUNCH_SHAPES),
    sizes: Sequence[int] = _SIZES,
    backends: Sequence[str] = BACKENDS,
    repeats: int = 500,
    peers: bool = True,
    lanes: Any = "auto",
    report: Callable[[str], None] = no_progress,
) -> Sheet:
    """Measure every shape and size, with a row per contestant; slow contestants launch less often than `repeats`."""
    sheet = Sheet("launch", _COLUMNS, section="shape", machine=machine(runtime))
    skipped: dict[str, list[str]] = {}
    cells = 0
    for shape in shapes:
        for size in (None,) if shape in UNSIZED else sizes:
            what = shape if size is None else f"{shape} of {size}"
            report(what)
            cells += 1
            with without_gc():
                for reason in _compete(sheet, runtime, shape, size, backends, repeats, peers, lanes):
                    skipped.setdefault(reason, []).append(what)
    for reason, places in skipped.items():
        shown = ", ".join(places) if len(places) <= 6 else f"{len(places)} of {cells} cases"
        sheet.notes.append(f"left out {reason} ({shown})")
    return sheet


def _compete(
    sheet: Sheet,
    runtime: Runtime,
    shape: str,
    size: int | None,
    backends: Sequence[str],
    repeats: int,
    peers: bool,
    lanes: Any,
) -> list[str]:
    """Measure all contestants on one graph; return which were left out, and why."""
    build = LAUNCH_SHAPES[shape]
    args = () if size is None else (size,)
    build(*args).compile(runtime=runtime).close()  # kernels are read, compiled and cached
    started = time.perf_counter()
    graph = build(*args)
    graph.workflow()
    declare_us = (time.perf_counter() - started) * 1e6
    built_us = {backend: _built_us(partial(build, *args), runtime, backend, lanes) for backend in backends if backend in _BUILT}
    graph = with_parameters(build(*args))
    nodes = len(graph)
    rows: dict[str, dict[str, Any]] = {}
    contestants: dict[str, _Contestant] = {}
    skipped: list[str] = []
    with ExitStack() as returned:
        width = len(graph.plan(target=runtime.target, lanes=lanes).lanes)

        def enter(name: str, make: Callable[[], _Contestant]) -> None:
            """Build a contestant, and record the build time and the growth of memory."""
            gc.collect()
            resident, free = resident_bytes(), runtime.mem_get_info()[0]
            try:
                made = contestants[name] = make()
            except (Skipped, HipGraphError) as error:
                skipped.append(f"{name}: {error}")
                return
            returned.callback(made.close)
            rows[name] = {
                "group": f"{shape} {size}",
                "shape": shape,
                "nodes": nodes,
                "who": name,
                "resident_mb": max(0, resident_bytes() - resident) / 1e6,
                "device_mb": max(0, free - runtime.mem_get_info()[0]) / 1e6,
                "lower_us": made.lower_us / nodes,
                "instantiate_us": made.instantiate_us / nodes if made.instantiate_us else None,
            }

        for backend in backends:
            if backend == "streams" and width > _MOST_BRANCHES_OF_STREAMS:
                skipped.append(f"streams: more than {_MOST_BRANCHES_OF_STREAMS} lanes would each need a stream")
                continue
            enter(backend, partial(_Ours, graph, runtime, backend, lanes))
        if peers:
            try:
                declared = returned.enter_context(
                    graph.compile(runtime=runtime, plan=PlanOptions(lanes=None, join=False), check=False)
                )
                work = Work.of(declared)
            except Skipped as error:
                skipped.append(f"peers: {error}")
            else:
                returned.callback(work.close)
                for kind in PEERS:
                    enter(kind.name, partial(open_peer, kind, work))
        for name, contestant in contestants.items():
            if isinstance(contestant, _Ours):
                made = {"declare_us": declare_us / nodes, "plan_us": contestant.plan_us / nodes}
                if name in built_us:
                    made["built_us"] = built_us[name] / nodes
                rows[name] |= {**made, "lanes": contestant.lanes, "first_us": contestant.run(1).total[0]}
            else:
                rows[name]["lanes"] = work.lanes
                rows[name]["built_us"] = rows[name]["lower_us"] + rows[name]["instantiate_us"]
        _race(contestants, rows, nodes, repeats)
    _compare(rows)
    sheet.rows.extend(rows.values())
    return skipped


def _built_us(build: Callable[[], Graph], runtime: Runtime, backend: str, lanes: Any) -> float:
    """Return how long a graph takes from its first declaration to the instantiated graph, once kernels are compiled."""
    started = time.perf_counter()
    with build().compile(runtime=runtime, backend=backend, lanes=lanes):  # type: ignore[arg-type]
        return (time.perf_counter() - started) * 1e6


def _race(contestants: dict[str, _Contestant], rows: dict[str, dict[str, Any]], nodes: int, repeats: int) -> None:
    """Launch the contestants in turns, then update them in turns, and record medians and 99th percentiles."""
    for name, times in race({name: contestant.run for name, contestant in contestants.items()}, repeats).items():
        row = rows[name]
        row["launches"] = len(times.submit)
        for key, some in (("submit", times.submit), ("total", times.total)):
            row[f"{key}_us"], row[f"{key}_p99_us"] = percentile(some, 50), percentile(some, 99)
    for key, chosen in (("update_one_us", range(nodes // 2, nodes // 2 + 1)), ("update_all_us", range(nodes))):
        updating = {name: run for name, contestant in contestants.items() if (run := contestant.updating(chosen)) is not None}
        for name, times in race(updating, repeats, _UPDATE_BUDGET_S).items():
            rows[name][key] = percentile(times.submit, 50)


def _compare(rows: dict[str, dict[str, Any]]) -> None:
    """Add ratios to the C++ peer, and the number of launches from which a graph pays."""
    native = rows.get("C++")
    if native:
        for row in rows.values():
            for key in ("submit", "total", "update_one"):
                if row.get(f"{key}_us") is not None and native[f"{key}_us"]:
                    row[f"{key}_ratio"] = row[f"{key}_us"] / native[f"{key}_us"]
    captured = rows.get("torch")
    if captured:
        for row in rows.values():
            if row.get("built_us") is not None:
                row["built_ratio"] = row["built_us"] / captured["built_us"]
    eager = [row for name, row in rows.items() if name in ("serial", "streams")]
    for name, row in rows.items():
        if name in ("capture", "explicit") and eager:
            found = [pays_from(_setup_us(row), row["total_us"], _setup_us(other), other["total_us"]) for other in eager]
            row["pays_from"] = "never" if None in found else str(max(n for n in found if n is not None))


def _setup_us(row: dict[str, Any]) -> float:
    return float((row["plan_us"] + row["lower_us"] + (row["instantiate_us"] or 0.0)) * row["nodes"])


# -- command line ------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    sizes, quick_sizes = (" ".join(map(str, each)) for each in (_SIZES, _QUICK_SIZES))
    add_device_arguments(parser)
    parser.add_argument("--shape", action="append", choices=tuple(LAUNCH_SHAPES), help="only this one; may be repeated")
    parser.add_argument("--size", action="append", type=positive, metavar="N", help=f"nodes; may be repeated (default: {sizes})")
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; may be repeated")
    parser.add_argument("--lanes", type=as_lanes, default="auto", help="auto, declared or a number (default: auto)")
    add_repeats(parser, 500, 50, "each contestant", f", sizes {quick_sizes}")
    parser.add_argument("--no-peers", action="store_true", help="measure hipgraphdsl alone")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    if not args.no_peers and args.runtime in ("auto", "nvidia"):
        load_torch_first()
    runtime = open_runtime(args.runtime, args.device)
    shapes = args.shape or list(LAUNCH_SHAPES)
    sizes = args.size or (_QUICK_SIZES if args.quick else _SIZES)
    cases = sum(1 if shape in UNSIZED else len(sizes) for shape in shapes)
    with progress_bar("bench launch", None, cases, lines=True) as report:
        sheet = run(runtime, shapes, sizes, args.backend or BACKENDS, repeats_of(args), not args.no_peers, args.lanes, report)
    finish(sheet, args)
    return 0
