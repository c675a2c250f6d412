"""Who reads the condition of a conditional node: the device, as a node of a graph, or the host between graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from .arrays import HostArray
from .nodes.base import Node, a_or_an
from .nodes.workflow import Level
from .target import Target

L = TypeVar("L", bound=Level)


def host_decides(node: Node, level: Level, target: Target) -> bool:
    """Return whether a node branches and the host reads its condition; unused for backends that build no graph."""
    branch = node.branch
    if branch is None:
        return False
    if branch.decide != "auto":
        return branch.decide == "host"
    return not target.conditional_nodes or any(True for body in level.inner(node) for _ in refused_inside(body))


def one_by_one(
    nodes: Sequence[Node],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    level_of: Sequence[Level],
    target: Target,
) -> dict[int, int]:
    """Return which node must precede each conditional node that the device decides, if the target's quirks require an order."""
    if "conditionals_in_order" not in target.quirks:
        return {}
    found = [i for i in order if nodes[i].branch is not None and not host_decides(nodes[i], level_of[i], target)]
    return {i: before for before, i in pairwise(found) if before not in deps[i]}


def refused_inside(body: L) -> Iterator[tuple[L, Node, str]]:
    """Yield level, node and reason for each node of a body that a graph cannot run inside a conditional node (CUDA's rules)."""
    for node in body.workflow.nodes:
        decide = "" if node.branch is None else node.branch.decide
        if not node.in_body:
            yield body, node, f"is {a_or_an(node.kind)} node"
        elif any(_is_pageable(body.resolve(view.root)[1]) for pair in node.copied for view in pair):
            yield body, node, "copies from or to pageable memory"
        elif decide == "host":
            yield body, node, "is decided by the host"
        elif decide != "device":  # that one is checked separately
            for inner in body.inner(node):
                yield from refused_inside(inner)


def _is_pageable(root: object) -> bool:
    return isinstance(root, HostArray) and not root.pinned
