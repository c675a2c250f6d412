"""``hipgraphdsl bench lanes``: independent kernels as declared, in a few lanes, and as the plan chooses, in batches or not.

First 1024 independent kernels of one block that take about 1, 10 and 100 us, and kernels that fill the device; then the shapes of
the other benchmarks as declared against ``lanes="auto"``, which should never be more than 3 % slower; and last, passes of a short
graph as so many launches, and as one launch of the graph that repeats it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Literal

from benchmarks.figures import compiled
from benchmarks.shapes import KERNELS, SHAPES, cholesky, yee
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench.arguments import add_device_arguments, add_output_arguments, add_repeats, repeats_of
from hipgraphdsl.parts.bench.measure import Column, Run, Sheet, finish, launches_of, machine, race, repeat_us, without_gc
from hipgraphdsl.parts.bench.peers import Cpp, Skipped, Work, open_peer
from hipgraphdsl.parts.bench.shapes import decode, wave
from hipgraphdsl.plan.options import Lanes
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

_THREADS: Final = 64
_Asked = Lanes | Literal["lanes", "batch"]
_WAYS: Final[dict[_Asked, dict[str, Any]]] = {"lanes": {"batch": False}, "auto": {}, "batch": {"batch": True}}
"""What compile is given: lanes as the plan chooses and no batches, batches too where the plan chooses, all batches."""
_LANES: Final[tuple[_Asked, ...]] = (None, 1, 4, 8, 16, 32, 64, 128, *_WAYS)
_WORST: Final = 1.03
_PASSES: Final = 100

_COLUMNS: Final = (
    Column("work", "work"),
    Column("nodes", "nodes"),
    Column("asked", "lanes=", "what compile was asked for"),
    Column("lanes", "lanes", "lanes of the plan"),
    Column("added", "added\nedges", "ordering edges that the plan added"),
    Column("instantiate_us", "build\nus/node", "lowering and instantiating, microseconds a node"),
    Column("submit_us", "submit\nus", "until the call returns, median, microseconds"),
    Column("total_us", "done\nus", "until the device has finished, median, microseconds"),
    Column("ratio", "done / as\ndeclared", "until done relative to lanes=None"),
    Column("native_ratio", "done / as\ndeclared, C++", "until done relative to the declared shape launched from C++"),
    Column("aim", "aim", "of the ratio"),
    Column("reached", "", "whether the aim is reached"),
)


def independent(nodes: int, steps: int, blocks: int = 1, threads: int = _THREADS) -> Graph:
    """Return kernels that nothing orders, each `steps` dependent operations long."""
    g = Graph(f"independent_{nodes}")
    x = g.device_array("x", shape=threads, dtype="float32")
    kernel = KERNELS["spin"]
    for i in range(nodes):
        g.kernel(kernel, blocks, threads, (x, g.device_array(f"y{i}", shape=threads, dtype="float32"), steps))
    return g


def layers(count: int, width: int) -> Graph:
    """Return layers of kernels, each layer behind all of the one before."""
    g = Graph(f"layers_{count}")
    x = g.device_array("x", shape=_THREADS, dtype="float32")
    own = [g.device_array(f"y{i}", shape=_THREADS, dtype="float32") for i in range(width)]
    gates: list[Any] = []
    for layer in range(count):
        row = [g.kernel(KERNELS["spin"], 1, _THREADS, (x, y, 0), after=gates) for y in own]
        gates = [g.empty(name=f"gate_{layer}", after=row)]
    return g


def _chain(kernels: int, blocks: int = 1, steps: int = 0) -> Graph:
    """Return kernels behind each other, each `steps` dependent operations long."""
    g = Graph(f"chain_{kernels}")
    x, y = (g.device_array(name, shape=_THREADS, dtype="float32") for name in "xy")
    for _ in range(kernels):
        g.kernel(KERNELS["spin"], blocks, _THREADS, (x, y, steps))
    return g


def iterations_for(runtime: Runtime, microseconds: Sequence[float]) -> list[int]:
    """Return for each time how many steps of `spin` take so long on this device."""
    few, many = 1 << 12, 1 << 16

    def chain_us(steps: int) -> float:
        with _chain(8, steps=steps).compile(runtime=runtime, check=False) as exe:
            exe.run()
            return min(repeat_us(exe.run, 5)) / 8

    step_us = max(1e-6, (chain_us(many) - chain_us(few)) / (many - few))
    return [max(1, round(us / step_us)) for us in microseconds]


_Rows = dict[str, dict[str, Any]]


def _row(what: str, part: str, asked: str, nodes: int, lanes: int, built_us: float, added: int = 0) -> dict[str, Any]:
    made = {"nodes": nodes, "asked": asked, "lanes": lanes, "added": added, "instantiate_us": built_us / nodes}
    return {"part": part, "group": what, "work": what, **made}


def _race(runs: Mapping[str, Run | Executable], rows: _Rows, base: str, repeats: int) -> None:
    """Let all launch in turns, and note the medians, also relative to one of them."""
    medians = {name: times.medians for name, times in race(runs, repeats).items()}
    for name, (submit_us, total_us) in medians.items():
        rows[name] |= {"submit_us": submit_us, "total_us": total_us, "ratio": total_us / medians[base][1]}


def _compare(
    sheet: Sheet,
    runtime: Runtime,
    what: str,
    graph: Graph,
    choices: Sequence[_Asked],
    repeats: int,
    backend: str,
    native: bool,
    aim: float,
    part: str = "",
) -> None:
    """Measure one graph with every choice, and as declared from C++."""
    nodes, part = len(graph), part or what
    rows: _Rows = {}
    ways = {
        "as declared" if lanes is None else str(lanes): (graph, {"backend": backend, **_WAYS.get(lanes, {"lanes": lanes})})
        for lanes in choices
    }
    with without_gc(), compiled(runtime, ways) as opened, ExitStack() as returned:
        for name, exe in opened.items():
            added = sum(len(step.added) for step in exe.plan.steps)
            rows[name] = _row(what, part, name, nodes, len(exe.plan.lanes), exe.stats.build_us, added)
        runs: dict[str, Run | Executable] = {**opened}
        if native:
            try:
                work = Work.of(next(iter(opened.values())))
                returned.callback(work.close)
                peer = open_peer(Cpp, work)
            except Skipped as error:
                sheet.note(f"left out C++: {error}")
            else:
                returned.callback(peer.close)
                runs["C++"] = peer.run
                rows["C++"] = _row(what, part, "C++, as declared", nodes, work.lanes, peer.lower_us + peer.instantiate_us)
        _race(runs, rows, "as declared", repeats)
    if "C++" in rows:
        for row in rows.values():
            row["native_ratio"] = row["total_us"] / rows["C++"]["total_us"]
    if "auto" in rows and (aim >= 1 or runtime.target.platform == "nvidia"):
        row = rows["auto"]
        compared = row["native_ratio"] if aim < 1 and "C++" in rows else row["ratio"]
        row |= {"aim": f"<= {aim:g}", "reached": "ok" if compared <= aim else "missed"}
    sheet.rows.extend(rows.values())


def _compare_passes(sheet: Sheet, runtime: Runtime, what: str, graph: Graph, repeats: int, backend: str) -> None:
    """Measure `_PASSES` launches of a graph against one of the graph that repeats it."""
    many = f"{_PASSES} launches"
    graphs = {many: graph, f"repeat({_PASSES})": graph.repeat(_PASSES)}
    with without_gc(), compiled(runtime, {name: (one, {"backend": backend}) for name, one in graphs.items()}) as opened:
        rows = {
            name: _row(what, "passes", name, len(graphs[name]), len(exe.plan.lanes), exe.stats.build_us)
            for name, exe in opened.items()
        }
        runs = {name: launches_of(exe, _PASSES if name == many else 1) for name, exe in opened.items()}
        _race(runs, rows, many, repeats)
    sheet.rows.extend(rows.values())


def run(
    runtime: Runtime,
    nodes: int = 1024,
    repeats: int = 200,
    choices: Sequence[_Asked] = _LANES,
    backend: str = "explicit",
    native: bool = True,
    shapes: bool = True,
    report: Callable[[str], None] = no_progress,
) -> Sheet:
    """Measure independent kernels with every choice of lanes, then the shapes as declared and with the plan's choice."""
    sheet = Sheet("lanes", _COLUMNS, section="part", machine=machine(runtime))
    short, medium, long = iterations_for(runtime, (1.0, 10.0, 100.0))
    full = max(8, runtime.target.multiprocessors)
    works: list[tuple[str, Callable[[], Graph], float]] = [
        ("empty, 1 block", lambda: independent(nodes, 0), _WORST),
        ("empty, 4 blocks", lambda: independent(nodes, 0, 4), _WORST),
        ("empty, 64 blocks", lambda: independent(nodes, 0, 64), _WORST),
        ("empty, 8 layers", lambda: layers(8, nodes // 8), _WORST),
        ("short (1 us), 1 block", lambda: independent(nodes, short), 0.30),
        ("medium (10 us), 1 block", lambda: independent(nodes, medium), _WORST),
        ("long (100 us), 1 block", lambda: independent(nodes, long), _WORST),
        (f"medium (10 us), {full} blocks of 1024", lambda: independent(max(1, nodes // 4), medium, full, 1024), _WORST),
    ]
    for what, build, aim in works:
        report(what)
        _compare(sheet, runtime, what, build(), choices, repeats, backend, native, aim)
    if shapes:
        more: dict[str, Callable[[], Graph]] = {
            f"{name}, {kind}": (lambda build=build, kind=kind: build(nodes, what=kind))  # type: ignore[misc]
            for name, build in SHAPES.items()
            for kind in ("empty", "axpy")
        }
        alone = partial(cholesky, path_only=True)
        more |= {"wave2d": wave, "yee": yee, "decode": decode, "cholesky": cholesky, "cholesky, a longest path alone": alone}
        for what, build in more.items():
            report(what)
            compared = native and build in (yee, decode, cholesky)
            _compare(sheet, runtime, what, build(), (None, *_WAYS), repeats, backend, compared, _WORST, "shapes")
    for kernels, blocks in ((1, 1), (4, 1), (16, 1), (4, 64)):
        what = f"{_PASSES} passes, {kernels} x {blocks} block{'s' * (blocks > 1)}"
        report(what)
        _compare_passes(sheet, runtime, what, _chain(kernels, blocks), repeats, backend)
    return sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_device_arguments(parser)
    parser.add_argument("--backend", default="explicit", choices=("explicit", "capture", "streams"), help="(default: explicit)")
    parser.add_argument("--nodes", type=positive, default=1024, metavar="N", help="kernels of each graph (default: 1024)")
    add_repeats(parser, 200, 20, "each choice", ", and graphs of 128 kernels")
    parser.add_argument("--no-peers", action="store_true", help="leave C++ out")
    parser.add_argument("--no-shapes", action="store_true", help="independent kernels only")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    runtime = open_runtime(args.runtime, args.device)
    with progress_bar("bench lanes", None, 12 + (0 if args.no_shapes else 2 * len(SHAPES) + 5)) as report:
        sheet = run(
            runtime,
            min(args.nodes, 128) if args.quick else args.nodes,
            repeats_of(args),
            _LANES,
            args.backend,
            not args.no_peers,
            not args.no_shapes,
            report,
        )
    finish(sheet, args)
    return 0
