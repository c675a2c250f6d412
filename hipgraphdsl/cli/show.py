"""``hipgraphdsl show``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.text import Text

from ..arrays import Array, ExternalArray, HostArray
from ..export import export_graph, formats, is_known
from ..export.text import HEADS, row
from ..extensions import others
from ..nodes.workflow import Workflow
from ..printed import counted, human_bytes, short
from .arguments import add_lanes, add_options, add_target, add_workflow, count_from, option_value, pairs
from .files import require_place, say_written, unknown_format
from .status import GOOD, Misuse
from .tables import print_part, table
from .workflows import load_graph

DESCRIPTION = "Show a workflow as text, or write it as a file"
EXAMPLES = (
    "wave.py",
    "wave.py --plan --target cpu",
    "wave.json -o wave.svg --option lanes=true",
    "wave.py -o wave.hip --backend capture",
    "wave.py -o wave.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments, and the formats to its description."""
    parser.description = f"{DESCRIPTION}: {' '.join(formats())}."
    add_workflow(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write a file; its extension names the format")
    add_options(parser, "direction=LR")
    parser.add_argument(
        "--backend", choices=("explicit", "capture"), help="of a .hip program: whether it builds the graph or records it"
    )
    parser.add_argument("--plan", action="store_true", help="show the plan: reduced edges, order and lanes")
    add_target(
        parser, "target of the plan, or of what the file shows (default: the device that run takes; of a .hip program amd:gfx942)"
    )
    add_lanes(parser, "lanes of the plan, or of what the file shows: auto, declared or a number (default: auto)")
    parser.add_argument(
        "--rows", type=count_from(0), default=200, metavar="N", help="at most so many rows of a table (default: 200; 0: all)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the workflow or its plan, or write a file."""
    if options.output and not is_known(options.output):
        raise unknown_format(options.output, formats(), others("formats"))
    require_place(options.output)
    graph = load_graph(options.workflow)
    if options.output:
        given = pairs(options.option, "--option", option_value)
        if options.plan:
            raise Misuse("--plan prints the plan: leave -o FILE out")
        given |= {name: getattr(options, name) for name in ("backend", "target") if getattr(options, name)}
        given |= {"lanes": options.lanes} if options.lanes != "auto" else {}
        export_graph(graph.workflow(), options.output, **given)
        say_written(options.output)
        return GOOD
    if options.option or options.backend:
        raise Misuse(f"--{'option' if options.option else 'backend'} belongs to -o FILE")
    if options.plan:
        plan = graph.plan(target=options.target, lanes=options.lanes)
        print(plan)
        print(f"  compiling it takes {plan.memory}")
        return GOOD
    for part in _pictured(graph.workflow(), options.rows or sys.maxsize):
        print_part(part)
    return GOOD


def _pictured(workflow: Workflow, rows: int) -> Iterator[Any]:
    """Yield the parts of the text form: a heading, arrays, parameters, nodes."""
    edges = sum(map(len, workflow.predecessors))
    infer = "" if workflow.infer else ", declared edges only"
    total = sum(array.nbytes for array in workflow.arrays.values())
    yield Text(
        f"{workflow.name}: {counted(len(workflow.nodes), 'node')}, {counted(edges, 'edge')}{infer},"
        f" {counted(len(workflow.arrays), 'array')} of {human_bytes(total)}",
        style="bold",
    )
    if workflow.arrays:
        lines = [
            (a.name, _array_kind(a), str(a.dtype), " x ".join(map(str, a.shape)), human_bytes(a.nbytes), _initial_text(a))
            for a in workflow.arrays.values()
        ]
        yield table(("array", "kind", "dtype", "shape", "size", "initial"), lines, rows, right=(4,))
    if workflow.parameters:
        values = [
            (
                p.name,
                str(p.dtype),
                " x ".join(map(str, p.shape)) or "scalar",
                "must be given" if p.default is None else short(p.default),
            )
            for p in workflow.parameters.values()
        ]
        yield table(("parameter", "dtype", "shape", "default"), values, rows)
    if workflow.nodes:
        yield table(HEADS, _node_rows(workflow), rows)


def _array_kind(array: Array) -> str:
    if isinstance(array, HostArray):
        return "host" if array.pinned else "host, pageable"
    if isinstance(array, ExternalArray):
        return f"external, {array.location}"
    return array.kind


def _initial_text(array: Array) -> str:
    values = getattr(array, "initial", None)
    if isinstance(array, ExternalArray):
        return "" if array.obj is not None else "not supplied"
    if values is None:
        return ""
    return "given" if isinstance(values, np.ndarray) else "not supplied"


def _node_rows(workflow: Workflow, indent: str = "") -> list[tuple[str, ...]]:
    """Return a row for each node; the nodes of a child graph follow it, once for each workflow."""
    rows: list[tuple[str, ...]] = []
    seen: set[int] = set()
    for index, node in enumerate(workflow.nodes):
        name, *others = row(workflow, index)
        rows.append((indent + name, *others))
        for _, inner, _ in node.held:
            if id(inner) not in seen:
                seen.add(id(inner))
                rows += _node_rows(inner, indent + "  ")
    return rows
