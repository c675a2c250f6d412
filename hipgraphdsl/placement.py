"""Which device a node runs on, and which devices' memory it reaches there.

A node's own `device` decides; without one the arrays that it touches do. Arrays without a device stand for the device that a
graph is compiled for (`default` below), so a workflow that names no device moves as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

from .arrays import Access, AllocArray, Array, ArrayView, Parameter
from .kernels import Symbol
from .nodes import (
    AllocNode,
    CapturedNode,
    ChildGraphNode,
    ConditionalNode,
    EventRecordNode,
    FreeNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    Node,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
)
from .workflow import Workflow

__all__ = [
    "Memory",
    "Resolve",
    "bound_root",
    "candidates",
    "device_of",
    "devices_of",
    "memories",
    "rewritten",
    "runs_code",
    "walk",
]

Resolve = Callable[[Any], Any]
"""What a name inside a child finally stands for."""


class Memory(NamedTuple):
    """Device memory that a node touches.

    Attributes
    ----------
    root : Array
    owner : int
        The device whose memory it is.
    access : tuple of int
        Other devices that may reach it from kernels.
    """

    root: Array
    owner: int
    access: tuple[int, ...]


def bound_root(root: Any, path: tuple[ChildGraphNode, ...]) -> Any:
    """Return the array that a name inside children finally stands for; `path` holds them, outermost first."""
    for child in reversed(path):
        if isinstance(root, (Symbol, AllocArray)):
            break
        mine = child.workflow.arrays.get(root.name, child.workflow.parameters.get(root.name))
        outer = child.bind.get(root.name) if mine is root else None
        if not isinstance(outer, ArrayView):
            break
        root = outer.root
    return root


def _memory(root: Any, resolve: Resolve, default: int) -> Optional[Memory]:
    found = resolve(root)
    if not isinstance(found, Array) or isinstance(found, Symbol) or found.on_host:
        return None
    return Memory(found, default if found.device is None else found.device, found.access)


def _roots(node: Node) -> Iterator[Any]:
    for access in node.accesses:
        yield access.view.root
    if isinstance(node, (KernelNode, CapturedNode)):  # a foreign kernel's arguments are no accesses
        for arg in node.args:
            if isinstance(arg, (ArrayView, Access)):
                yield arg.as_view().root


def memories(node: Node, resolve: Resolve, default: int) -> list[Memory]:
    """Return the device memory that a node touches, in the order of its accesses, without repeats."""
    found = {}
    for root in dict.fromkeys(_roots(node)):
        memory = _memory(root, resolve, default)
        if memory is not None:
            found[memory.root] = memory
    return list(found.values())


def candidates(touched: list[Memory]) -> list[int]:
    """Return the devices that may reach all of some memory, its owners first."""
    devices = dict.fromkeys([memory.owner for memory in touched])
    return [device for device in devices if all(device == m.owner or device in m.access for m in touched)]


def runs_code(node: Node) -> bool:
    """Return whether a node reaches memory by code on its device, and not by a copy."""
    return node.reach == "device"


def device_of(node: Node, resolve: Resolve, default: int) -> Optional[int]:
    """Return the device that a node runs on, or None if it needs none (host code, order, child graphs).

    A kernel whose arrays belong to several devices runs on the first owner that may reach all of them.
    """
    own: Optional[int] = getattr(node, "device", None)
    if own is not None:
        return own
    match node:
        case KernelNode() | MemsetNode() | CapturedNode() | MemoryOpsNode() | ConditionalNode():
            touched = memories(node, resolve, default)
            if not touched:
                return default
            able = candidates(touched)
            return able[0] if able else touched[0].owner
        case MemcpyNode():
            for view in (node.dst, node.src):
                memory = _memory(view.root, resolve, default)
                if memory is not None:
                    return memory.owner
            return default
        case AllocNode() | FreeNode():
            return default if node.array.device is None else node.array.device
        case EventRecordNode() | SemaphoreSignalNode() | SemaphoreWaitNode():
            # All events belong to one device: a time between events of two devices cannot be asked for.
            return default
    return None


def devices_of(workflow: Workflow, default: int) -> tuple[int, ...]:
    """Return the devices that a workflow and its children name, and `default`, in ascending order."""
    found = {default}
    seen: set[int] = set()

    def visit(inner: Workflow) -> None:
        if id(inner) in seen:
            return
        seen.add(id(inner))
        for array in inner.arrays.values():
            if array.device is not None:
                found.add(array.device)
        for node in inner.nodes:
            own = getattr(node, "device", None)
            if own is not None:
                found.add(own)
            if isinstance(node, ChildGraphNode):
                visit(node.workflow)
            elif isinstance(node, ConditionalNode):
                for body in node.bodies:
                    visit(body)

    visit(workflow)
    return tuple(sorted(found))


def walk(workflow: Workflow, path: tuple[ChildGraphNode, ...] = ()) -> Iterator[tuple[Node, tuple[ChildGraphNode, ...]]]:
    """Yield every node with the children, and bodies of conditional nodes, that it stands in, outermost first."""
    for node in workflow.nodes:
        if isinstance(node, ChildGraphNode):
            yield from walk(node.workflow, (*path, node))
        else:
            yield node, path
            if isinstance(node, ConditionalNode):
                for body in node.children:
                    yield from walk(body.workflow, (*path, body))


def rewritten(workflow: Workflow) -> set[Array]:
    """Return the arrays that one node copies and one may write; a parameter may stand for any array."""
    copied: set[Any] = set()
    written: set[Any] = set()
    for node, path in walk(workflow):
        for access in node.accesses:
            root = bound_root(access.view.root, path)
            if access.mode != "write" and isinstance(node, (MemcpyNode, CapturedNode)):
                copied.add(root)
            if access.mode != "read":
                written.add(root)
    either = copied | written
    copied, written = (either if any(isinstance(root, Parameter) for root in roots) else roots for roots in (copied, written))
    return copied & written
