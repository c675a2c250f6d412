"""One frozen Pydantic model for each kind of node.

Programs of kernels, copies and fills import the kinds that they have: `host` has those that call the user's code, `sync` those
that order and signal, `children` and `collective` those that hold workflows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import Node
from .comparing import same
from .functions import ForeignFunction, UnboundCallback
from .kernel import KernelNode, require_clusters
from .kinds import KINDS, add_kind, all_kinds, is_node, node_of
from .memory import AllocNode, FreeNode, MemcpyNode, MemsetNode, copy_geometry, copyable, element_bytes, element_value

if TYPE_CHECKING:
    from .host import CapturedNode, EagerNode, HostNode, callable_name
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

_LATER = {
    **dict.fromkeys(("CapturedNode", "EagerNode", "HostNode", "callable_name"), "host"),
    **dict.fromkeys(("EmptyNode", "Event", "EventRecordNode", "EventWaitNode", "MemoryOp", "MemoryOpsNode"), "sync"),
    **dict.fromkeys(("Semaphore", "SemaphoreSignalNode", "SemaphoreWaitNode", "wait_value", "write_value"), "sync"),
}
"""Names that most programs do not need, each with its module, which is imported at first access."""

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


if not TYPE_CHECKING:  # with it, a type checker would accept any name as an attribute

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        return value
