"""Child graphs replaced by their own nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import DeclarationError
from ..nodes import Node
from ..nodes.workflow import Level, Workflow
from ..order import find_cycle


@dataclass(frozen=True, slots=True)
class FlatNode:
    """A node after inlining: of the workflow itself, or of a child graph that is replaced by its nodes."""

    name: str  # full name, ``"child/x"`` inside a child
    node: Node
    deps: tuple[int, ...]  # positions of the nodes that must finish before it starts
    level: Level  # resolves its names
    path: tuple[Node, ...]  # the children that contain it, outermost first


def flattened(level: Level, expands: Callable[[str, Node], bool]) -> list[FlatNode]:
    """Return the nodes of a level in topological order; a child whose full name and node `expands` accepts becomes its nodes."""
    flat: list[FlatNode] = []
    _flatten(level, expands, flat, (), ())
    return flat


def _flatten(
    level: Level, expands: Callable[[str, Node], bool], flat: list[FlatNode], path: tuple[Node, ...], before: tuple[int, ...]
) -> tuple[int, ...]:
    """Append the nodes of one workflow; return the positions of those without successors inside it."""
    inner = level.workflow
    if inner.nodes and not inner.order:
        raise cycle_error(inner, level.prefix)
    ends: dict[int, tuple[int, ...]] = {}  # node -> positions of the nodes that end it
    followed: set[int] = set()
    for i in inner.order:
        node = inner.nodes[i]
        name = level.name(node)
        sources = tuple(dict.fromkeys(e for d in inner.predecessors[i] for e in ends[d])) or before
        if node.is_child and expands(name, node):
            (child,) = level.inner(node)
            ends[i] = _flatten(child, expands, flat, (*path, node), sources)
        else:
            ends[i] = (len(flat),)
            flat.append(FlatNode(name, node, sources, level, path))
        followed.update(inner.predecessors[i])
    return tuple(e for i in inner.order if i not in followed for e in ends[i]) or before


def cycle_error(workflow: Workflow, prefix: str = "") -> DeclarationError:
    """Return the error for a workflow that has a cycle, with full names."""
    cycle = [prefix + workflow.nodes[i].name for i in find_cycle(workflow.predecessors)]
    return DeclarationError(
        f"graph {workflow.name!r} has a cycle: {' -> '.join([*cycle, cycle[0]])}; remove one of these edges", node=cycle[0]
    )
