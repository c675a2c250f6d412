"""``hipgraphdsl check``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from ..parts import module_of
from .arguments import add_ranks, add_target, add_workflow, layout
from .files import put, require_place
from .status import FAULTY, GOOD, Misuse
from .tables import plain_console
from .workflows import file_of, load_graph

DESCRIPTION = "Look for faults in a workflow: races, lifetimes, arguments, limits. Nothing is compiled or run."
EXAMPLES = ("wave.py", "wave.json --target amd:gfx942@7.2", "wave.py --ranks 8 --devices-per-rank 4", "wave.py --format sarif")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    add_target(parser, "also check the limits and defects of a device: cpu, amd:gfx942, nvidia:sm_90, ...")
    add_ranks(parser, "also show which nodes each of N processes runs, and their messages")
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="(default: text)")
    parser.add_argument("--strict", action="store_true", help="end with status 1 for warnings too")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the terminal")


def run(options: argparse.Namespace) -> int:
    """Print the report, or write it."""
    require_place(options.output)
    shared = layout(options)
    if shared is not None and (options.format != "text" or options.output):
        raise Misuse("--ranks prints a table: leave --format and --output out")
    graph = load_graph(options.workflow)
    report = graph.check(options.target)
    if options.format == "text" and not options.output:
        plain_console().print(report)
    else:
        writers: dict[str, Callable[[], str]] = {
            "text": report.__str__, "json": report.to_json, "sarif": partial(report.to_sarif, file_of(options.workflow))
        }  # fmt: skip
        text = writers[options.format]()
        put(text.rstrip("\n") + "\n", options.output)
    if shared is not None and not report.errors:
        module_of("parts.ranks.tables").print_ranks(graph.workflow(), shared)
    return FAULTY if report.errors or (options.strict and report.warnings) else GOOD
