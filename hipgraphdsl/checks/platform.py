"""Known defects of platforms by version (HG8xx), that a graph runs into; `defects` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays import Array, HostArray
from ..defects import Defect, defects_for
from ..nodes import CapturedNode, HostNode, KernelNode, MemcpyNode, MemoryOpsNode, Node
from ..placement import device_of
from ..target import Target
from ..workflow import AnyNode, ChildGraphNode, Workflow
from .catalogue import CATALOGUE, Severity
from .scope import Scope

Met = Callable[[Workflow], list[AnyNode]]


def check_defects(scope: Scope, target: Target | None) -> None:
    """Report each defect of the target that the graph meets, with the nodes that meet it.

    Without a version only what all versions have is known, and it is information.
    """
    if target is None:
        return
    for defect in defects_for(target):
        rule = _RULES.get(defect.id)
        if rule is None:
            continue
        code, met = rule
        nodes = met(scope.workflow)
        if not nodes:
            continue
        names = [repr(scope.name(node)) for node in nodes[:3]]
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        scope.found(
            code,
            f"{target.name}: {defect.title}; here {', '.join(names)}{more} ({defect.source})",
            *nodes[:3],
            severity=_severity(code, target, defect),
            hint=defect.handling,
        )


def _severity(code: str, target: Target, defect: Defect) -> Severity:
    return CATALOGUE[code].severity if target.version else "info"


def _of(*kinds: type[Node]) -> Met:
    return lambda workflow: [node for node in workflow.nodes if isinstance(node, kinds)]


def _with_edges(workflow: Workflow) -> list[AnyNode]:
    """Nodes that can be disabled and have predecessors and successors."""
    used = {s for sources in workflow.predecessors for s in sources}
    return [
        node
        for i, node in enumerate(workflow.nodes)
        if (node.kernels or node.reach == "copy") and i in used and workflow.predecessors[i]
    ]


def _fans_out(workflow: Workflow) -> list[AnyNode]:
    return [node for node, successors in zip(workflow.nodes, workflow.successors) if len(successors) > 4]


def _forked_children(workflow: Workflow) -> list[AnyNode]:
    """Child graphs with parallel branches and something after them."""
    return [
        node
        for node, successors in zip(workflow.nodes, workflow.successors)
        if isinstance(node, ChildGraphNode) and successors and any(map(_has_branches, node.workflow.documents))
    ]


def _has_branches(workflow: Workflow) -> bool:
    last = sum(not successors for successors in workflow.successors)
    return last > 1 or any(len(successors) > 1 for successors in workflow.successors)


def _alloc_and_free(workflow: Workflow) -> list[AnyNode]:
    return [node for node in workflow.nodes if node.freed is not None]


def _unfreed(workflow: Workflow) -> list[AnyNode]:
    freed = {node.freed for node in workflow.nodes}
    return [node for node in workflow.nodes if node.made is not None and node.made not in freed]


def _interior(workflow: Workflow) -> list[AnyNode]:
    """Return copies to or from page-locked memory that do not begin at its first byte."""
    return [
        node
        for node in workflow.nodes
        if isinstance(node, MemcpyNode) and any(_pinned(v.root) and v.offset_bytes for v in (node.dst, node.src))
    ]


def _pinned(root: Any) -> bool:
    return isinstance(root, HostArray) and root.pinned


def _host_copies(workflow: Workflow) -> list[AnyNode]:
    return [
        node
        for node in workflow.nodes
        if isinstance(node, MemcpyNode) and all(isinstance(v.root, Array) and v.root.on_host for v in (node.dst, node.src))
    ]


def _cooperative(workflow: Workflow) -> list[AnyNode]:
    return [node for node in workflow.nodes if isinstance(node, KernelNode) and node.cooperative]


def _parametrised(workflow: Workflow) -> list[AnyNode]:
    """Kernels that a launch with another parameter value updates."""
    return [node for node in workflow.nodes if isinstance(node, KernelNode) and node.parameters]


def _prioritised(workflow: Workflow) -> list[AnyNode]:
    return [node for node in workflow.nodes if isinstance(node, KernelNode) and node.priority is not None]


def _reads_copies(workflow: Workflow) -> list[AnyNode]:
    """Host nodes that follow a copy directly."""
    return [
        node
        for i, node in enumerate(workflow.nodes)
        if node.reach == "host" and any(workflow.nodes[s].reach == "copy" for s in workflow.predecessors[i])
    ]


def _large(workflow: Workflow) -> list[AnyNode]:
    return list(workflow.nodes[-1:]) if len(workflow.nodes) > 200 else []


def _elsewhere(workflow: Workflow) -> list[AnyNode]:
    """Nodes on other devices than the first that is named."""
    places = {node.name: device_of(node, 0) for node in workflow.nodes}
    first = next((place for place in places.values() if place is not None), None)
    return [node for node in workflow.nodes if places[node.name] not in (None, first)]


_RULES: dict[str, tuple[str, Met]] = {
    "disabled-drops-edges": ("HG801", _with_edges),
    "fan-out-over-4": ("HG802", _fans_out),
    "captured-alloc-unregistered": ("HG803", _alloc_and_free),
    "captured-alloc-leaks": ("HG803", _unfreed),
    "child-order": ("HG804", _forked_children),
    "capture-silent": ("HG805", _of(CapturedNode)),
    "update-leaks": ("HG806", _parametrised),
    "interior-host-pointer": ("HG807", _interior),
    "capture-host-func": ("HG808", _of(HostNode)),
    "capture-mem-ops": ("HG808", _of(MemoryOpsNode)),
    "host-stale-memory": ("HG808", _reads_copies),
    "host-copy-blocks": ("HG808", _host_copies),
    "priority-refused": ("HG808", _prioritised),
    "cooperative-ignored": ("HG808", _cooperative),
    "stale-pointers-200": ("HG808", _large),
    "child-update-lost": ("HG808", _of(ChildGraphNode)),
    "several-devices-crash": ("HG808", _elsewhere),
}
