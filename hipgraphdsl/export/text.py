"""A workflow as a compact text table: the output of `print(graph)`, and the rows of ``hipgraphdsl show``."""

from __future__ import annotations

from ..nodes.workflow import Workflow
from ..printed import aligned, counted, short

HEADS = ("node", "kind", "what", "after")

_ROWS = 40
_AFTER = 6  # predecessors to list


def table(workflow: Workflow) -> str:
    """Return name, kind, description and predecessors of each node, one per line; the middle of long workflows is left out."""
    edges = sum(map(len, workflow.predecessors))
    counts = (counted(len(workflow.nodes), "node"), counted(edges, "edge"), counted(len(workflow.arrays), "array"))
    head = f"{workflow.name}: {', '.join(counts)}"
    if workflow.parameters:
        head += f", {counted(len(workflow.parameters), 'parameter')}"
    if not workflow.infer:
        head += ", declared edges only"
    n = len(workflow.nodes)
    rows = [row(workflow, i) for i in (range(n) if n <= _ROWS else range(_ROWS - 6))]
    if n > _ROWS:
        rows.append((f"... {n - _ROWS + 1} more ...", "", "", ""))
        rows += [row(workflow, i) for i in range(n - 5, n)]
    return "\n".join([head, *(f"  {line}" for line in aligned((HEADS, *rows)))])


def row(workflow: Workflow, index: int) -> tuple[str, str, str, str]:
    """Return name, kind, description and predecessors of one node."""
    node, sources = workflow.nodes[index], workflow.predecessors[index]
    what = node.describe()
    for (_, inner, _), title in zip(node.held, node.body_titles):
        what += "" if title else f", {counted(len(inner.nodes), 'node')}"
    after = ", ".join(workflow.nodes[source].name for source in sources[:_AFTER])
    more = f" and {len(sources) - _AFTER} more" if len(sources) > _AFTER else ""
    return node.name, node.kind, short(what, 60), after + more
