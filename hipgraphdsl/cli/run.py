"""``hipgraphdsl run``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.text import Text

from ..arrays import AllocArray, kind_of, widened
from ..errors import listed
from ..export.files import npy_file
from ..graph import Graph
from ..nodes.workflow import Workflow
from ..parts import load, module_of
from ..printed import counted, short
from ..progress import progress_bar
from .arguments import (
    add_batch,
    add_device,
    add_lanes,
    add_param,
    add_repeated,
    add_runtime,
    add_workflow,
    from_zero,
    pairs,
    positive,
)
from .files import require_place
from .status import GOOD, Misuse
from .supplies import add_supplies, parameter_values, supplied_graph
from .tables import columns, plain_console, print_part, table

if TYPE_CHECKING:
    from .. import Timeline
    from ..executable import Executable

DESCRIPTION = "Compile a workflow, launch it and print what it left in its host arrays. This compiles and runs native code."
EXAMPLES = (
    "examples/04_wave2d.py --runtime cpu",
    "examples/04_wave2d.py --runtime cpu --sanitize",
    "wave.json --param a=3.0 --repeat 1000 --backend capture",
    "wave.json --array initial=field.npy --save result=out.npy",
    "wave.py --dry-run --runtime amd",
    "wave.py --ranks",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    add_runtime(parser)
    parser.add_argument(
        "--backend", default="explicit", choices=("explicit", "capture", "streams", "serial"), help="(default: explicit)"
    )
    add_lanes(parser)
    add_device(parser)
    add_param(parser)
    add_supplies(parser)
    parser.add_argument(
        "--watch", action="store_true", help="let a timeout, Ctrl-C or a fault name the nodes that had not finished"
    )
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="on the CPU: stop at accesses out of bounds, unwritten memory, races, divergent barriers and divisions by zero",
    )
    add_batch(parser)
    parser.add_argument(
        "--no-programmatic",
        dest="programmatic",
        action="store_false",
        help="on NVIDIA: launch no kernel before those before it have ended (default: programmatic dependent launch)",
    )
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="launch N times (default: 1)")
    add_repeated(parser, "--read", "NAME", "print this array (default: host arrays that nodes write)")
    add_repeated(parser, "--save", "NAME=FILE.npy", "write an array to a file afterwards")
    parser.add_argument("--timeout", type=from_zero, metavar="SECONDS", help="give up waiting after this time")
    parser.add_argument("--ranks", action="store_true", help="share the devices among the processes of mpiexec, srun or torchrun")
    parser.add_argument("--profile", action="store_true", help="also measure one launch node by node")
    parser.add_argument("--dry-run", action="store_true", help="print the calls that would be made; nothing is compiled or run")
    parser.add_argument("--no-check", action="store_true", help="run even if check finds errors")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Launch the workflow, save arrays, and print what was measured and read."""
    saves = pairs(options.save, "--save")
    require_place(*saves.values())
    graph, given = supplied_graph(options)
    params = parameter_values(graph, options.param)
    if options.dry_run:
        for option in ("read", "save", "profile", "ranks"):
            if getattr(options, option):
                raise Misuse(f"--{option} belongs to a launch, and --dry-run runs nothing: leave one of the two out")
        return _dry_run(graph, params, options)
    names = list(dict.fromkeys((*options.read, *saves))) or _results(graph.workflow())
    for name in (*options.read, *saves):
        if name not in graph.arrays and "/" not in name:
            known = (own for own, array in graph.arrays.items() if not isinstance(array, AllocArray))
            raise Misuse(f"graph {graph.name!r} has no array {name!r}; its arrays are {listed(known)}")
    done = _launched(graph, given, params, names, options)
    if done is None:
        return GOOD
    for name, path in saves.items():
        try:
            with open(path, "wb") as file:
                file.write(npy_file(done.arrays[name]))
        except OSError as error:
            raise Misuse(f"{path!r} cannot be written: {error.strerror}") from None
    summaries = [_summary(name, values) for name, values in done.arrays.items()]
    if options.json:
        facts = {**done.facts, "arrays": summaries}
        if done.profile is not None:
            facts["profile"] = json.loads(done.profile.to_json())
        print(json.dumps(facts, indent=1, allow_nan=False))
    else:
        _print(done, summaries)
    return GOOD


class _Done(NamedTuple):
    """Results of the launches: measurements by name, arrays that were read, and the profile."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]
    profile: Timeline | None
    memory: str


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that `Graph.compile` takes, without the runtime."""
    from ..plan.options import DebugOptions, PlanOptions

    return {
        "backend": options.backend,
        "device": options.device,
        "check": not options.no_check,
        "plan": PlanOptions(lanes=options.lanes, batch=options.batch, programmatic=options.programmatic),
        "debug": DebugOptions(watch=options.watch, sanitize=options.sanitize),
    }


def _launched(
    graph: Graph, given: Mapping[str, Any], params: Mapping[str, Any], names: list[str], options: argparse.Namespace
) -> _Done | None:
    """Compile, launch as often as requested, and read arrays; None on ranks other than 0."""
    start = time.perf_counter()
    shared = None
    if options.ranks:
        shared = module_of("parts.ranks.world").ranks()
    with graph.compile(runtime=options.runtime, ranks=shared, **_choices(options)) as exe:
        for name, values in given.items():
            exe.write(name, values)
        built = time.perf_counter()
        exe.launch(**params)
        exe.synchronize(options.timeout)
        first = time.perf_counter()
        _relaunch(exe, options.repeat - 1, options.timeout, first - built, options.json)
        end = time.perf_counter()
        profile = exe.profile() if options.profile else None
        marks, of_marks = (0, 0) if exe.plan.watch is None else exe.plan.watch.marks
        facts: dict[str, Any] = {
            "graph": graph.name,
            "runtime": exe.runtime.name,
            "target": exe.runtime.target.name,
            "backend": options.backend,
            "nodes": len(exe.plan.steps) - marks,
            "edges": exe.plan.edges - of_marks,
            "lanes": len(exe.plan.lanes),
            "launches": options.repeat,
            "compile_ms": (built - start) * 1e3,
            "first_launch_us": (first - built) * 1e6,
            "memory": exe.memory.to_dict(),
        }
        if options.repeat > 1:
            facts["launch_us"] = (end - first) * 1e6 / (options.repeat - 1)
        found = exe.gather(*names)
        return None if found is None else _Done(facts, dict(zip(names, found)), profile, str(exe.memory))


def _print(done: _Done, summaries: list[dict[str, Any]]) -> None:
    facts = done.facts
    counts = ", ".join(counted(facts[f"{what}s"], what) for what in ("node", "edge", "lane"))
    console = plain_console()
    console.print(Text(f"{facts['graph']}: {counts} on {facts['target']}, backend {facts['backend']}", style="bold"))
    repeats = facts["launches"]
    again = f", then {facts['launch_us']:.1f} us each" if repeats > 1 else ""
    console.print(
        f"compiled in {facts['compile_ms']:.1f} ms; {repeats} launch{'es' * (repeats != 1)}:"
        f" the first took {facts['first_launch_us']:.1f} us{again}"
    )
    console.print(done.memory)
    if summaries:
        heads = ("array", "dtype", "shape", "min", "max", "mean")
        rows = [
            (s["name"], s["dtype"], " x ".join(map(str, s["shape"])), *(_number(s.get(key)) for key in ("min", "max", "mean")))
            for s in summaries
        ]
        print_part(table(heads, rows, sys.maxsize, right=(3, 4, 5)))
    if done.profile is not None:
        console.print(Text(f"\n{done.profile.text(columns())}"))


def _results(workflow: Workflow) -> list[str]:
    """Return the host arrays that nodes write; if there is none, the device arrays that nodes write."""
    written = {access.view.root for access in workflow.accesses if access.is_write}
    arrays = [array for array in workflow.arrays.values() if array in written and not isinstance(array, AllocArray)]
    hosts = [array.name for array in arrays if array.on_host]
    return hosts or [array.name for array in arrays]


def _relaunch(exe: Executable, count: int, timeout: float | None, expected_s: float, quiet: bool) -> None:
    """Relaunch `count` times, with a progress bar on a terminal if that takes more than a second."""
    shown = not quiet and sys.stderr.isatty() and expected_s * count >= 1.0
    part = max(1, -(-count // 100) if shown else count)  # a hundred waits are negligible compared with a second of launches
    with progress_bar("run", shown, -(-count // part)) as advance:
        for done in range(0, count, part):
            advance(f"{done} of {count} launches")
            for _ in range(min(part, count - done)):
                exe.launch()
            exe.synchronize(timeout)


def _summary(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "dtype": str(values.dtype), "shape": list(values.shape)}
    kind = kind_of(values.dtype)
    if kind in "biuf":
        numbers = values.astype("f8")
        finite = numbers[np.isfinite(numbers)]
        out["finite"] = int(finite.size)
        if finite.size:
            out["min"], out["max"], out["mean"] = float(finite.min()), float(finite.max()), float(finite.mean())
        if finite.size < numbers.size:
            out["not_finite"] = int(numbers.size - finite.size)
    elif kind == "c":
        magnitude = np.abs(widened(values))
        out["min"], out["max"], out["mean"] = (float(f(magnitude)) for f in (np.min, np.max, np.mean))
        out["of"] = "magnitude"
    return {key: value for key, value in out.items() if not (isinstance(value, float) and not np.isfinite(value))}


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}"


def _dry_run(graph: Graph, params: Mapping[str, Any], options: argparse.Namespace) -> int:
    """Print the calls that compiling and launching make, recorded by a runtime without a device."""
    target = {"amd": "amd:gfx942", "nvidia": "nvidia:sm_90", "cpu": "cpu", "auto": "amd:gfx942"}[options.runtime]
    runtime = load("recorder").RecorderRuntime(options.device, target=target)
    sections: list[tuple[str, list[Any]]] = []
    with graph.compile(runtime=runtime, **_choices(options)) as exe:
        sections.append(("compile", list(runtime.calls)))
        runtime.calls.clear()
        for _ in range(options.repeat):
            exe.launch(**params)
        exe.synchronize()
        sections.append(("launch", list(runtime.calls)))
        runtime.calls.clear()
    sections.append(("close", list(runtime.calls)))
    if options.json:
        data = {
            title: [{"api": call.api, "args": [_call_argument(a) for a in call.args]} for call in calls]
            for title, calls in sections
        }
        print(json.dumps({"graph": graph.name, "target": target, "backend": options.backend, **data}, indent=1))
        return GOOD
    for title, calls in sections:
        print(f"# {title}: {counted(len(calls), 'call')}")
        for call in calls:
            print(f"{call.api}({', '.join(_call_argument(a) for a in call.args)})")
    return GOOD


def _call_argument(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return hex(value) if value >= 2**16 else str(int(value))
    return short(value, 100).replace("\n", "\\n")
