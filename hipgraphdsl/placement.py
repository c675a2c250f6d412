"""Which device a node runs on, and the memory of which devices it accesses from there.

A node's own `device` decides; if it has none, the arrays that it accesses do. Arrays without a device belong to the device
that a graph is compiled for (`default` below), so a workflow that names no device can be compiled for any.

An array parameter has no device and does not affect placement: the memory bound to it must be accessible from the devices of
the nodes that use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .arrays import Array, Parameter, array_by_default
from .kernels import Symbol
from .nodes import Node
from .nodes.bindings import Binding
from .nodes.workflow import Level, Workflow


class Memory(NamedTuple):
    """Device memory that a node touches."""

    root: Array
    owner: int  # the device whose memory it is
    access: tuple[int, ...]  # other devices that may reach it from kernels


def _memory(root: Any, default: int, names: Binding | None) -> Memory | None:
    found = root if names is None else names.resolve(root)[1]
    if not isinstance(found, Array) or isinstance(found, Symbol) or found.on_host:
        return None
    return Memory(found, default if found.device is None else found.device, found.access)


def _roots(node: Node) -> Iterator[Any]:
    for access in node.accesses:
        yield access.view.root
    if not node.held:  # of a node with bodies, only accesses count
        for view in node.addresses:  # a foreign kernel's arguments are not accesses
            yield view.root


def memories(node: Node, default: int, names: Binding | None = None) -> list[Memory]:
    """Return the device memory that a node touches, in the order of its accesses, without repeats."""
    found = {}
    for root in dict.fromkeys(_roots(node)):
        memory = _memory(root, default, names)
        if memory is not None:
            found[memory.root] = memory
    return list(found.values())


def defaults(node: Node, default: int, level: Level) -> Iterator[tuple[Parameter, Memory]]:
    """Yield the array parameters that a node touches, each with the device memory that it resolves to if no launch binds it."""
    for root in dict.fromkeys(_roots(node)):
        at, found, _ = level.resolve(root)
        view = at.workflow.default_view(found) if isinstance(found, Parameter) else None
        memory = None if view is None else _memory(view.root, default, at)
        if memory is not None:
            yield found, memory


def is_host(root: Any, level: Level) -> bool:
    """Return whether a name stands for host memory, for a parameter until a launch gives it other memory."""
    at, found, _ = level.resolve(root)
    if not isinstance(found, Parameter):
        return isinstance(found, Array) and found.on_host
    standing = array_by_default(found, at.workflow.arrays)
    return found.copy or (standing is not None and is_host(standing, at))


def reaching(workflow: Workflow, default: int) -> dict[str, dict[int, str]]:
    """Return for each array parameter, by full name, the devices that access it, each with the first node that does so there.

    Copies do not count: the driver can access both sides. A conditional node accesses its condition.
    """
    found: dict[str, dict[int, str]] = {}
    for level, node in workflow.walk():
        device = device_of(node, default, level) if runs_code(node) or node.held else None
        roots = [access.view.root for access in node.own_accesses] if node.held else _roots(node)
        for root in dict.fromkeys(roots):
            at, parameter, _ = level.resolve(root)
            if device is not None and isinstance(parameter, Parameter):
                found.setdefault(at.prefix + parameter.name, {}).setdefault(device, level.name(node))
    return found


def candidates(touched: list[Memory]) -> list[int]:
    """Return the owners of some memory that can access all of it, in order of first occurrence."""
    devices = dict.fromkeys([memory.owner for memory in touched])
    return [device for device in devices if all(device == m.owner or device in m.access for m in touched)]


def runs_code(node: Node) -> bool:
    """Return whether a node accesses memory by code on its device, not by a copy."""
    return node.reach == "device"


def device_of(node: Node, default: int, names: Binding | None = None) -> int | None:
    """Return the device that a node runs on, or None if it needs none (host code, order, child graphs).

    Names inside children and bodies are resolved by `names`, the binding at the node's level; without it they are not resolved.
    A kernel whose arrays belong to several devices runs on the first owner that can access all of them.
    """
    own: int | None = getattr(node, "device", None)
    if own is not None:
        return own
    if node.placed != "memory":
        return default if node.placed else None
    if node.reach == "copy":  # the driver accesses both sides; the destination's device copies
        sides = (_memory(view.root, default, names) for view in (*node.writes, *node.reads))
        return next((memory.owner for memory in sides if memory is not None), default)
    touched = memories(node, default, names)
    if not touched:
        return default
    able = candidates(touched)
    return able[0] if able else touched[0].owner


def rewritten(workflow: Workflow) -> set[Array]:
    """Return the arrays that some node copies and some node may write; a parameter may resolve to any array."""
    copied: set[Any] = set()
    written: set[Any] = set()
    for level, node in workflow.walk():
        for access in node.own_accesses:
            root = level.resolve(access.view.root)[1]
            if access.mode != "write" and node.copies:
                copied.add(root)
            if access.mode != "read":
                written.add(root)
    either = copied | written
    copied, written = (either if any(isinstance(root, Parameter) for root in roots) else roots for roots in (copied, written))
    return copied & written
