"""Performance advice (HG7xx): the graph is correct but could be faster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ..arrays import AllocArray, DeviceArray, HostArray
from ..hazards import AFTER, Reason
from ..order import levels, positions, reduced
from ..printed import counted
from ..target import Target
from .levels import CheckedLevel

_MOST = 20
_LOOK = 64  # maximum number of nodes that a search for another path visits
_TRIES = 8  # maximum number of edges of one array that are examined


def check_redundant_edges(scope: CheckedLevel) -> None:
    """Report declared edges that other edges imply."""
    workflow = scope.workflow
    nodes, predecessors = workflow.nodes, workflow.predecessors
    declared = {
        i: [s for s, reason in zip(sources, reasons) if reason.kind == "after"]
        for i, (sources, reasons) in enumerate(zip(predecessors, workflow.reasons))
        if len(sources) > 1 and AFTER in reasons
    }
    if not declared:
        return
    needed = reduced(workflow.order, predecessors)
    redundant = {i: left for i, sources in declared.items() if (left := sorted({*sources}.difference(needed[i])))}
    for i, sources in [*redundant.items()][:_MOST]:
        names = ", ".join(repr(scope.name(nodes[s])) for s in sources)
        scope.found(
            "HG701",
            f"{scope.name(nodes[i])!r} need not be declared after {names}: other edges imply it",
            nodes[i],
            *(nodes[s] for s in sources),
            hint="leave the edge out; the plan leaves it out in any case",
        )
    if len(redundant) > _MOST:
        scope.found("HG701", f"{len(redundant) - _MOST} more nodes have redundant edges")


def check_reuse(scope: CheckedLevel) -> None:
    """Report buffers whose reuse is the only reason for an edge between two nodes."""
    workflow = scope.workflow
    if not workflow.infer:
        return
    nodes, predecessors, position = workflow.nodes, workflow.predecessors, positions(workflow.order)
    edges: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, reasons in enumerate(workflow.reasons):
        for source, reason in zip(predecessors[i], reasons):
            if reason.kind == "WAR":  # WAW: the first write is useless, which is a different finding
                edges[reason.what].append((source, i))
    for name, pairs in edges.items():
        array = workflow.arrays.get(name)
        if not isinstance(array, (AllocArray, DeviceArray, HostArray)) or getattr(array, "initial", None) is not None:
            continue
        for source, i in pairs[:_TRIES]:
            first, second = nodes[source], nodes[i]
            fresh = any(a.view.root is array and a.mode == "write" and a.view.is_whole for a in second.accesses)
            carried = any(Reason("RAW", name) in workflow.reasons[t] for t in workflow.successors[i])
            if fresh and carried and first.work and second.work and not _another_path(predecessors, position, source, i):
                scope.found(
                    "HG702",
                    f"{scope.name(second)!r} waits for {scope.name(first)!r} only because both use the buffer {name!r}",
                    second,
                    first,
                    arrays=[name],
                    hint=f"with a second buffer beside {name!r}, used in turn, they could run at the same time",
                )
                break


def _another_path(predecessors: Sequence[Sequence[int]], position: Sequence[int], source: int, node: int) -> bool:
    """Return whether a path other than the edge leads from source to node; also True if the search exceeds `_LOOK` nodes."""
    start = position[source]
    waiting = [p for p in predecessors[node] if position[p] > start]
    seen = set(waiting)
    while waiting:
        for p in predecessors[waiting.pop()]:
            if p == source:
                return True
            if position[p] > start and p not in seen:
                seen.add(p)
                waiting.append(p)
        if len(seen) > _LOOK:
            return True
    return False


def check_shape(scope: CheckedLevel, target: Target | None) -> None:
    """Report graphs whose launch costs more than separate launches, or that are wider than the device's hardware queues."""
    workflow = scope.workflow
    if target is None or scope.parent is not None or not workflow.nodes:
        return
    nodes = workflow.nodes
    work = len([node for node in nodes if node.work])
    depths = levels(workflow.order, workflow.predecessors)
    widths = Counter([depth for node, depth in zip(nodes, depths) if node.work not in ("", "host")])
    width = max(widths.values(), default=0)
    costs = target.costs
    graph_us = costs.launch_us + costs.branch_us * max(width - 1, 0)
    stream_us = costs.stream_launch_us * work
    if graph_us >= stream_us and not any(node.derives or node.held for node in nodes):
        scope.found(
            "HG703",
            f"launching graph {workflow.name!r} costs about {graph_us:.1f} us on {target.name}, launching its"
            f" {counted(work, 'node')} one by one about {stream_us:.1f} us",
            hint="put more work into one graph, for example several iterations, or use backend='streams'",
        )
    if width > target.hardware_queues:
        scope.found(
            "HG704",
            f"at least {width} nodes may run at once, and {target.name} has {target.hardware_queues} hardware queues;"
            f" each branch costs about {costs.branch_us} us a launch",
            hint=f"lanes={target.hardware_queues} gathers them, and lanes='auto' decides by cost",
        )
