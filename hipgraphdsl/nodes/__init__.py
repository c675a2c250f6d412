"""One frozen Pydantic model for each kind of node.

Those in `children.py` and `collective.py` hold workflows; they are imported when a program has one.
"""

from __future__ import annotations

from .base import Node
from .comparing import same
from .host import CapturedNode, EagerNode, ForeignFunction, HostNode, UnboundCallback, callable_name
from .kernel import KernelNode, require_clusters
from .kinds import KINDS, add_kind, all_kinds, is_node, node_of
from .memory import AllocNode, FreeNode, MemcpyNode, MemsetNode, copy_geometry, copyable, element_bytes, element_value
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

for _cls in (
    KernelNode,
    MemcpyNode,
    MemsetNode,
    AllocNode,
    FreeNode,
    HostNode,
    EventRecordNode,
    EventWaitNode,
    EmptyNode,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    MemoryOpsNode,
    CapturedNode,
    EagerNode,
):  # in the order of the file format's schema
    add_kind(_cls)

__all__ = [
    "KINDS",
    "AllocNode",
    "CapturedNode",
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
    "Node",
    "Semaphore",
    "SemaphoreSignalNode",
    "SemaphoreWaitNode",
    "UnboundCallback",
    "add_kind",
    "all_kinds",
    "callable_name",
    "copy_geometry",
    "copyable",
    "element_bytes",
    "element_value",
    "is_node",
    "node_of",
    "require_clusters",
    "same",
    "wait_value",
    "write_value",
]
