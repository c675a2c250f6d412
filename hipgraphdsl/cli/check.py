"""``hipgraphdsl check``."""

from __future__ import annotations

import argparse

from ..target import Target
from .arguments import add_workflow, target_name
from .files import put, require_place
from .status import FAULTY, GOOD
from .tables import plain_console
from .workflows import load_graph

DESCRIPTION = "Look for faults in a workflow: races, lifetimes, arguments, limits. Nothing is compiled or run."
EXAMPLES = ("wave.py", "wave.json --target amd:gfx942@7.2", "wave.py --format sarif -o wave.sarif")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    parser.add_argument(
        "--target",
        type=target_name,
        metavar="NAME",
        help="also check the limits and defects of a device: cpu, amd:gfx942, nvidia:sm_90, ...",
    )
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="(default: text)")
    parser.add_argument("--strict", action="store_true", help="end with status 1 for warnings too")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the terminal")


def run(options: argparse.Namespace) -> int:
    """Print the report, or write it."""
    require_place(options.output)
    report = load_graph(options.workflow).check(Target.named(options.target) if options.target else None)
    if options.format == "text" and not options.output:
        plain_console().print(report)
    else:
        text = {"text": report.__str__, "json": report.to_json, "sarif": report.to_sarif}[options.format]()
        put(text.rstrip("\n") + "\n", options.output)
    return FAULTY if report.errors or (options.strict and report.warnings) else GOOD
