"""A workflow as versioned JSON; the form is described in `document`."""

from __future__ import annotations

from ..workflow import Workflow


def render(workflow: Workflow) -> str:
    """Return the workflow as JSON; the form that `export` asks for."""
    return workflow.model_dump_json()
