"""``hipgraphdsl schema``."""

from __future__ import annotations

import argparse
import json

from .status import GOOD

DESCRIPTION = "Print the JSON schema of a workflow file."
EXAMPLES = ("", "> workflow.schema.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def run(_: argparse.Namespace) -> int:
    """Print the schema."""
    from ..nodes.workflow import Workflow

    print(json.dumps(Workflow.model_json_schema(), indent=1))
    return GOOD
