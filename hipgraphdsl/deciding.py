"""Who reads the condition of a conditional node: the device, as a node of a graph, or the host between graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from .arrays import HostArray
from .nodes import MemcpyNode
from .nodes.base import a_or_an
from .target import Target
from .workflow import AnyNode, ConditionalNode, Level

L = TypeVar("L", bound=Level)


def host_decides(node: ConditionalNode, level: Level, target: Target) -> bool:
    """Return whether the host reads the condition of a conditional node; unused for backends that build no graph."""
    if node.decide != "auto":
        return node.decide == "host"
    return not target.conditional_nodes or any(True for body in level.inner(node) for _ in refused_inside(body))


def one_by_one(
    nodes: Sequence[AnyNode],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    level_of: Sequence[Level],
    target: Target,
) -> dict[int, int]:
    """Return which node must precede each conditional node that the device decides, if the target's quirks require an order."""
    if "conditionals_in_order" not in target.quirks:
        return {}
    found = [i for i in order if isinstance(node := nodes[i], ConditionalNode) and not host_decides(node, level_of[i], target)]
    return {i: before for before, i in pairwise(found) if before not in deps[i]}


def refused_inside(body: L) -> Iterator[tuple[L, AnyNode, str]]:
    """Yield level, node and reason for each node of a body that a graph cannot run inside a conditional node (CUDA's rules)."""
    for node in body.workflow.nodes:
        if not node.in_body:
            yield body, node, f"is {a_or_an(node.kind)} node"
        elif isinstance(node, MemcpyNode) and any(_is_pageable(body.resolve(view.root)[1]) for view in (node.src, node.dst)):
            yield body, node, "copies from or to pageable memory"
        elif isinstance(node, ConditionalNode) and node.decide == "host":
            yield body, node, "is decided by the host"
        elif not (isinstance(node, ConditionalNode) and node.decide == "device"):  # that one is checked separately
            for inner in body.inner(node):
                yield from refused_inside(inner)


def _is_pageable(root: object) -> bool:
    return isinstance(root, HostArray) and not root.pinned
