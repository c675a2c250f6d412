"""``hipgraphdsl verify``."""

from __future__ import annotations

import argparse
import sys

from ...cli.arguments import add_device, add_param, add_runtime, add_workflow, count_from, from_zero, positive
from ...cli.status import FAULTY, GOOD, Misuse
from ...cli.supplies import add_supplies, parameter_values, supplied_graph
from ...cli.tables import plain_console

DESCRIPTION = "Run a workflow in several ways and compare the results. This compiles and runs native code."
EXAMPLES = ("examples/04_wave2d.py", "wave.json --runtime cpu")

_BACKENDS = ("explicit", "capture", "streams")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workflow(parser)
    add_supplies(parser)
    add_runtime(parser, "also compare the backends of this runtime with the CPU's results (default: auto)")
    parser.add_argument(
        "--backend",
        action="append",
        choices=_BACKENDS,
        help="compare this one with the serial run; may be repeated (default: all)",
    )
    add_device(parser, "runtime's ")
    add_param(parser, "")
    parser.add_argument("--orders", type=count_from(0), default=20, metavar="N", help="orders that are tried (default: 20)")
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="launches of each backend (default: 5)")
    parser.add_argument("--tolerance", type=from_zero, metavar="X", help="difference that counts as equal (default: none)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the orders (default: 0)")
    parser.add_argument("--no-audit", action="store_true", help="leave out the access audit, which runs each node alone")
    parser.add_argument("--no-sanitize", action="store_true", help="leave out the first run, under the sanitizer")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Verify the workflow and print the report."""
    from . import verify

    graph, given = supplied_graph(options)
    if given:
        raise Misuse("--array is for workflow files; a Python file gives its own initial values")
    report = verify(
        graph,
        options.runtime,
        options.backend or _BACKENDS,
        orders=options.orders,
        repeats=options.repeats,
        tolerance=options.tolerance,
        params=parameter_values(graph, options.param),
        seed=options.seed,
        audit=not options.no_audit,
        sanitize=not options.no_sanitize,
        device=options.device,
        progress=sys.stderr.isatty() and not options.json,
    )
    if options.json:
        sys.stdout.write(report.to_json().rstrip("\n") + "\n")
    else:
        plain_console().print(report)
    return GOOD if report.ok else FAULTY
