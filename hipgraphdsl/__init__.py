"""Describe a GPU workflow once, check it, see it, and run it as a HIP graph on AMD, NVIDIA or any CPU."""

from __future__ import annotations

from .arrays import ArrayView, DeviceArray, ExternalArray, HostArray, Parameter, reads, updates, writes
from .checks import Diagnostic, Report
from .collectives import CollectiveNode
from .errors import (
    CallbackError,
    CheckError,
    DeclarationError,
    HipError,
    HipGraphError,
    RankError,
    RuntimeUnavailable,
    UpdateError,
    WaitTimeout,
)
from .executable import Executable
from .graph import Graph
from .graph_memory import GraphMemory
from .kernels import Kernel, Module, Symbol
from .nodes import (
    AllocNode,
    CapturedNode,
    EagerNode,
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    Node,
    Semaphore,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    wait_value,
    write_value,
)
from .plan import Plan, Step
from .ranked import RankExecutable
from .runtimes import graph_memory, open_runtime
from .target import Target
from .timeline import Timeline
from .update import explain_update
from .verify import verify
from .workflow import ChildGraphNode, ConditionalNode, Workflow
from .world import Ranks, ranks

__version__ = "0.1.0"

__all__ = [
    "AllocNode",
    "ArrayView",
    "CallbackError",
    "CapturedNode",
    "CheckError",
    "ChildGraphNode",
    "CollectiveNode",
    "ConditionalNode",
    "DeclarationError",
    "DeviceArray",
    "Diagnostic",
    "EagerNode",
    "EmptyNode",
    "Event",
    "EventRecordNode",
    "EventWaitNode",
    "Executable",
    "ExternalArray",
    "FreeNode",
    "Graph",
    "GraphMemory",
    "HipError",
    "HipGraphError",
    "HostArray",
    "HostNode",
    "Kernel",
    "KernelNode",
    "MemcpyNode",
    "MemoryOpsNode",
    "MemsetNode",
    "Module",
    "Node",
    "Parameter",
    "Plan",
    "RankError",
    "RankExecutable",
    "Ranks",
    "Report",
    "RuntimeUnavailable",
    "Semaphore",
    "SemaphoreSignalNode",
    "SemaphoreWaitNode",
    "Step",
    "Symbol",
    "Target",
    "Timeline",
    "UpdateError",
    "WaitTimeout",
    "Workflow",
    "__version__",
    "explain_update",
    "graph_memory",
    "open_runtime",
    "ranks",
    "reads",
    "updates",
    "verify",
    "wait_value",
    "write_value",
    "writes",
]


def __dir__() -> list[str]:
    return __all__  # not the modules
