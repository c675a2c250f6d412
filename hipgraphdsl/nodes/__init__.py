"""One frozen Pydantic model for each HIP node type."""

from __future__ import annotations

from .base import Dim3, Node
from .child import ChildGraphNode, ConditionalNode, bound, held
from .host import CapturedNode, ForeignFunction, HostNode, UnboundCallback, callable_name
from .kernel import KernelNode, require_clusters
from .memory import AllocNode, FreeNode, MemcpyNode, MemsetNode, copy_geometry, element_bytes
from .sync import (
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    MemoryOp,
    MemoryOpsNode,
    Semaphore,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    wait_value,
    write_value,
)
from .values import Names

__all__ = [
    "KINDS",
    "AllocNode",
    "AnyNode",
    "CapturedNode",
    "ChildGraphNode",
    "ConditionalNode",
    "Dim3",
    "EmptyNode",
    "Event",
    "EventRecordNode",
    "EventWaitNode",
    "ForeignFunction",
    "FreeNode",
    "HostNode",
    "KernelNode",
    "MemcpyNode",
    "MemoryOp",
    "MemoryOpsNode",
    "MemsetNode",
    "Names",
    "Node",
    "Semaphore",
    "SemaphoreSignalNode",
    "SemaphoreWaitNode",
    "UnboundCallback",
    "bound",
    "callable_name",
    "copy_geometry",
    "element_bytes",
    "held",
    "require_clusters",
    "wait_value",
    "write_value",
]

AnyNode = (
    KernelNode
    | MemcpyNode
    | MemsetNode
    | AllocNode
    | FreeNode
    | HostNode
    | EventRecordNode
    | EventWaitNode
    | EmptyNode
    | ChildGraphNode
    | SemaphoreSignalNode
    | SemaphoreWaitNode
    | MemoryOpsNode
    | CapturedNode
    | ConditionalNode
)
"""Every node; a `match` over it ends with `assert_never`."""

KINDS: dict[str, type[Node]] = {
    cls.kind: cls
    for cls in (
        KernelNode,
        MemcpyNode,
        MemsetNode,
        AllocNode,
        FreeNode,
        HostNode,
        EventRecordNode,
        EventWaitNode,
        EmptyNode,
        ChildGraphNode,
        SemaphoreSignalNode,
        SemaphoreWaitNode,
        MemoryOpsNode,
        CapturedNode,
        ConditionalNode,
    )
}
"""Node classes by kind."""
