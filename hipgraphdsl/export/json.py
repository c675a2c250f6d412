"""A workflow as versioned JSON; the form is described in `document`."""

from __future__ import annotations

from ..workflow import Workflow


def render(workflow: Workflow) -> str:
    """Return the workflow as JSON; the form that `export` asks for.

    Raises
    ------
    DeclarationError
        If it holds what cannot be stored: a lambda, a closure or a bound method (the node is named), or an argument of
        a type without a form in JSON.
    """
    return workflow.model_dump_json()
