"""Nodes of two workflows, paired by name: what `diff` reports, and what `update` judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .workflow import AnyNode, Workflow


class Pair(NamedTuple):
    """A node of two workflows.

    Attributes
    ----------
    name : str
    old, new : Node or None
        None where only the other workflow has it.
    lost, come : mapping of str to str
        Of a node that both have: nodes that it no longer waits for and those that it waits for now, with the reasons.
    """

    name: str
    old: AnyNode | None
    new: AnyNode | None
    lost: Mapping[str, str] = {}  # never changed
    come: Mapping[str, str] = {}  # never changed


def paired(old: Workflow, new: Workflow) -> Iterator[Pair]:
    """Yield the nodes in the order of the new workflow, then those that only the old one has."""
    for i, node in enumerate(new.nodes):
        at = old.index.get(node.name)
        if at is None:
            yield Pair(node.name, None, node)
            continue
        before, after = _waits(old, at), _waits(new, i)
        lost = {source: reason for source, reason in before.items() if source not in after}
        come = {source: reason for source, reason in after.items() if source not in before}
        yield Pair(node.name, old.nodes[at], node, lost, come)
    for node in old.nodes:
        if node.name not in new.index:
            yield Pair(node.name, node, None)


def _waits(workflow: Workflow, node: int) -> dict[str, str]:
    """Return the nodes that a node waits for, with the reasons."""
    nodes = workflow.nodes
    return {nodes[source].name: why for source, why in zip(workflow.predecessors[node], workflow.reasons[node])}
