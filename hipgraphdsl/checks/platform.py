"""Known defects of platform versions that affect a graph (HG8xx); `defects` lists them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from ..arrays import Array, ArrayView, HostArray
from ..defects import defects_for
from ..errors import listed
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..placement import device_of
from ..target import Target
from .catalogue import CATALOGUE
from .levels import CheckedLevel

Met = Callable[[CheckedLevel], list[Node]]


def check_defects(scope: CheckedLevel, target: Target) -> None:
    """Report each defect of the target that affects the graph, with the affected nodes.

    For a target without a version, only defects of all versions are known, and they are reported as infos.
    """
    for defect in defects_for(target):
        rule = _RULES.get(defect.id)
        if rule is None:
            continue
        code, met = rule
        nodes = met(scope)
        if not nodes:
            continue
        scope.found(
            code,
            f"{target.name}: {defect.title}; here {listed(map(scope.name, nodes), 3)} ({defect.source})",
            *nodes[:3],
            severity=CATALOGUE[code].severity if target.version else "info",
            hint=defect.handling,
        )


Holds = Callable[[Workflow, int, Any], object]
"""Predicate (workflow, index of a node, node): whether a defect affects the node."""


def _each(holds: Holds) -> Met:
    return lambda scope: [n for i, n in enumerate(scope.workflow.nodes) if holds(scope.workflow, i, n)]


def _has_branches(workflow: Workflow) -> bool:
    last = sum(not successors for successors in workflow.successors)
    return last > 1 or any(len(successors) > 1 for successors in workflow.successors)


def _unfreed(scope: CheckedLevel) -> list[Node]:
    freed = {node.freed for node in scope.workflow.nodes}
    return [node for node in scope.workflow.nodes if node.made is not None and node.made not in freed]


def _is_inside_pinned(view: ArrayView) -> bool:
    return isinstance(view.root, HostArray) and view.root.pinned and view.offset_bytes > 0


def _is_on_host(view: ArrayView) -> bool:
    return isinstance(view.root, Array) and view.root.on_host


def _updated(scope: CheckedLevel) -> list[Node]:
    """Return the kernel nodes that are updated when a launch changes a parameter."""
    return [node for node in scope.workflow.nodes if node.launched and scope.parameters_of(node)]


def _elsewhere(scope: CheckedLevel) -> list[Node]:
    """Return the nodes on other devices than the first node that has a device."""
    if len(scope.workflow.devices_with(0)) == 1:
        return []
    places = {node.name: device_of(node, 0) for node in scope.workflow.nodes}
    first = next((place for place in places.values() if place is not None), None)
    return [node for node in scope.workflow.nodes if places[node.name] not in (None, first)]


_RULES: dict[str, tuple[str, Met]] = {
    "disabled-drops-edges": (
        "HG801",
        _each(lambda w, i, n: (n.kernels or n.reach == "copy") and w.predecessors[i] and w.successors[i]),
    ),
    "fan-out-over-4": ("HG802", _each(lambda w, i, n: len(w.successors[i]) > 4)),
    "captured-alloc-unregistered": ("HG803", _each(lambda w, i, n: n.freed is not None)),
    "captured-alloc-leaks": ("HG803", _unfreed),
    # Child graphs with parallel branches and at least one successor.
    "child-order": (
        "HG804",
        _each(lambda w, i, n: n.is_child and w.successors[i] and (n.derives or any(map(_has_branches, n.held[0][1].documents)))),
    ),
    "capture-silent": ("HG805", _each(lambda w, i, n: n.calls == "capture")),
    "update-leaks": ("HG806", _updated),
    "interior-host-pointer": ("HG807", _each(lambda w, i, n: any(map(_is_inside_pinned, chain(*n.copied))))),
    "capture-host-func": ("HG808", _each(lambda w, i, n: n.calls == "host")),
    "capture-mem-ops": ("HG808", _each(lambda w, i, n: n.memory_operations)),
    # Host nodes that follow a copy directly.
    "host-stale-memory": (
        "HG808",
        _each(lambda w, i, n: n.reach == "host" and any(w.nodes[s].reach == "copy" for s in w.predecessors[i])),
    ),
    "host-copy-blocks": ("HG808", _each(lambda w, i, n: any(_is_on_host(dst) and _is_on_host(src) for dst, src in n.copied))),
    "priority-refused": ("HG808", _each(lambda w, i, n: n.launched and n.launched.priority is not None)),
    "cooperative-ignored": ("HG808", _each(lambda w, i, n: n.launched and n.launched.cooperative)),
    "stale-pointers-200": ("HG808", lambda s: list(s.workflow.nodes[-1:]) if len(s.workflow.nodes) > 200 else []),
    "child-update-lost": ("HG808", _each(lambda w, i, n: n.is_child)),
    "several-devices-crash": ("HG808", _elsewhere),
}
