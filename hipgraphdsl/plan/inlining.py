"""Child graphs replaced by their own nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import DeclarationError
from ..order import find_cycle
from ..workflow import AnyNode, ChildGraphNode, Level, Workflow


@dataclass(frozen=True, slots=True)
class FlatNode:
    """A node among those of all children that are replaced."""

    name: str  # the full one, ``"child/x"`` inside a child
    node: AnyNode
    deps: tuple[int, ...]  # positions of those that must have finished before it starts
    level: Level  # where its names are resolved
    path: tuple[ChildGraphNode, ...]  # the children that it stands in, outermost first


def flattened(level: Level, expands: Callable[[str, ChildGraphNode], bool]) -> list[FlatNode]:
    """Return the nodes of a level in topological order, with those of each child whose full name and node `expands` accepts."""
    flat: list[FlatNode] = []

    def visit(level: Level, path: tuple[ChildGraphNode, ...], before: tuple[int, ...]) -> tuple[int, ...]:
        """Append the nodes of one workflow; return those that nothing inside follows."""
        inner = level.workflow
        if inner.nodes and not inner.order:
            raise cycle_error(inner, level.prefix)
        ends: dict[int, tuple[int, ...]] = {}  # node -> positions that finish it
        followed: set[int] = set()
        for i in inner.order:
            node = inner.nodes[i]
            name = level.name(node)
            sources = tuple(dict.fromkeys(e for d in inner.predecessors[i] for e in ends[d])) or before
            if isinstance(node, ChildGraphNode) and expands(name, node):
                (child,) = level.inner(node)
                ends[i] = visit(child, (*path, node), sources)
            else:
                ends[i] = (len(flat),)
                flat.append(FlatNode(name, node, sources, level, path))
            followed.update(inner.predecessors[i])
        return tuple(e for i in inner.order if i not in followed for e in ends[i]) or before

    visit(level, (), ())
    return flat


def cycle_error(workflow: Workflow, prefix: str = "") -> DeclarationError:
    """Return the error for a workflow that has a cycle, with full names."""
    cycle = [prefix + workflow.nodes[i].name for i in find_cycle(workflow.predecessors)]
    return DeclarationError(
        f"graph {workflow.name!r} has a cycle: {' -> '.join([*cycle, cycle[0]])}; remove one of these edges", node=cycle[0]
    )
