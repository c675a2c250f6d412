"""One frozen Pydantic model for each kind of node; those that hold workflows stand beside `Workflow`."""

from __future__ import annotations

from .base import Node, same
from .fields import Dim3
from .host import CapturedNode, EagerNode, ForeignFunction, HostNode, UnboundCallback, callable_name
from .kernel import KernelNode, require_clusters
from .memory import AllocNode, FreeNode, MemcpyNode, MemsetNode, copy_geometry, element_bytes, element_value
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
    "AllocNode",
    "CapturedNode",
    "Dim3",
    "EagerNode",
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
    "callable_name",
    "copy_geometry",
    "element_bytes",
    "element_value",
    "require_clusters",
    "same",
    "wait_value",
    "write_value",
]
