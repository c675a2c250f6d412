"""A workflow as versioned JSON; the format is described in `document`."""

from __future__ import annotations

from ..nodes.workflow import Workflow


def render(workflow: Workflow) -> str:
    """Return the workflow as JSON, in the form that `export` requests."""
    return workflow.model_dump_json()
