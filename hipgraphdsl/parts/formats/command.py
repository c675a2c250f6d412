"""``hipgraphdsl diff``."""

from __future__ import annotations

import argparse
import sys

from ...cli.arguments import add_enable
from ...cli.status import FAULTY, GOOD
from ...cli.tables import plain_console
from ...cli.workflows import WORKFLOW_HELP, load_graph

DESCRIPTION = "List what differs between two workflows, by the names of nodes and arrays."
EXAMPLES = ("old.json new.json", "wave.py:build wave.py:build_fused --json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("old", metavar="A", help=WORKFLOW_HELP)
    parser.add_argument("new", metavar="B", help="likewise")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_enable(parser)
    parser.add_argument("--exit-code", action="store_true", help="end with status 1 if they differ")


def run(options: argparse.Namespace) -> int:
    """Print the difference."""
    from .diff import compare

    found = compare(load_graph(options.old), load_graph(options.new))
    if options.json:
        sys.stdout.write(found.to_json())
    else:
        plain_console().print(found)
    return FAULTY if options.exit_code and not found.same else GOOD
