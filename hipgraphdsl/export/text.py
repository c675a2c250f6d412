"""A workflow as a compact table of plain text: what `print(graph)` shows."""

from __future__ import annotations

from ..nodes import ChildGraphNode, Node
from ..workflow import Workflow

__all__ = ["table"]

_ROWS = 40


def table(workflow: Workflow) -> str:
    """Return name, kind, meaning and predecessors of each node, one a line; the middle of long workflows is left out."""
    edges = sum(map(len, workflow.predecessors))
    counts = (_count(len(workflow.nodes), "node"), _count(edges, "edge"), _count(len(workflow.arrays), "array"))
    head = f"{workflow.name}: {', '.join(counts)}"
    if workflow.parameters:
        head += f", {_count(len(workflow.parameters), 'parameter')}"
    if not workflow.infer:
        head += ", declared edges only"
    shown = list(range(len(workflow.nodes)))
    if len(shown) > _ROWS:
        shown = [*shown[: _ROWS - 6], -1, *shown[-5:]]
    rows = [("node", "kind", "what", "after")]
    for i in shown:
        if i < 0:
            rows.append((f"... {len(workflow.nodes) - _ROWS + 1} more ...", "", "", ""))
            continue
        node = workflow.nodes[i]
        after = ", ".join(workflow.nodes[p].name for p in workflow.predecessors[i])
        rows.append((node.name, node.kind, _short(_what(node), 60), _short(after, 60)))
    widths = [max(len(row[c]) for row in rows) for c in range(3)]
    lines = [head] + ["  " + "  ".join(f"{row[c]:<{widths[c]}}" for c in range(3)) + "  " + row[3] for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _what(node: Node) -> str:
    if isinstance(node, ChildGraphNode):
        return f"{node.describe()}, {_count(len(node.workflow.nodes), 'node')}"
    return node.describe()


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
