"""Further formats of workflows: GraphML and networkx graphs, YAML, Python programs; and the difference of two workflows."""

from __future__ import annotations

from typing import Any

from ...workflow import Workflow

__all__ = ["from_networkx"]


def from_networkx(dag: Any, **options: Any) -> Workflow:
    """Return a workflow with the nodes and edges of a networkx graph; see `Graph.from_networkx`."""
    from . import graphml

    return graphml.from_networkx(dag, **options)
