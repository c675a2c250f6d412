"""Events: waits without a record before them, and records that nothing orders (HG204 to HG206)."""

from __future__ import annotations

from .levels import CheckedLevel


def check_events(scope: CheckedLevel) -> None:
    """Report waits for events that no node records before them, and records without predecessors and successors."""
    workflow = scope.workflow
    records: dict[str, list[int]] = {}
    waits = []
    for i, node in scope.having("recorded", "awaited"):
        if node.recorded is not None:
            records.setdefault(node.recorded.name, []).append(i)
        elif node.awaited is not None and not node.awaited.shared:
            waits.append((i, node))
    followed = {p for predecessors in workflow.predecessors for p in predecessors} if records else set()
    for i in (i for recorded in records.values() for i in recorded if len(workflow.nodes) > 1):
        if not workflow.predecessors[i] and i not in followed:
            node = workflow.nodes[i]
            scope.found(
                "HG206",
                f"{scope.name(node)!r} is ordered before or after no other node, so it records its event at any time",
                node,
                hint="give the record after=[...] what it marks the end of, or the first node that it times after=[the record]",
            )
    position = {i: p for p, i in enumerate(workflow.order)} if waits else {}
    for i, node in waits:
        event = node.awaited.name
        recorded = records.get(event)
        if recorded is None:
            scope.found(
                "HG204",
                f"{scope.name(node)!r} waits for event {event!r}, which no node of graph {workflow.name!r} records",
                node,
                arrays=[event],
                hint=f"record({event!r}) before it, or use hg.Event({event!r}, shared=True) for one that another graph records",
            )
        elif min(recorded) > i and not any(position[r] < position[i] for r in recorded):
            later = workflow.nodes[min(recorded)]
            scope.found(
                "HG205",
                f"{scope.name(node)!r} waits for event {event!r}, which {scope.name(later)!r} records only after it",
                node,
                later,
                arrays=[event],
                hint="declare the record before the wait",
            )
