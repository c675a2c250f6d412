"""Describe a GPU workflow once, check it, see it, and run it as a HIP graph on AMD, NVIDIA or any CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arrays import (
    ArrayView,
    DeviceArray,
    Expression,
    ExternalArray,
    HostArray,
    Parameter,
    ceil_div,
    maximum,
    minimum,
    reads,
    updates,
    writes,
)
from .errors import (
    CallbackError,
    CheckError,
    DeclarationError,
    HipError,
    HipGraphError,
    PartMissing,
    PartRefused,
    RankError,
    RuntimeUnavailable,
    UpdateError,
    WaitTimeout,
)
from .graph import Graph
from .kernels import Kernel, Module, Symbol
from .nodes import AllocNode, FreeNode, KernelNode, MemcpyNode, MemsetNode, Node
from .nodes.workflow import Workflow
from .parts import Absent, module_of
from .target import Target

if TYPE_CHECKING:
    from .checks import Diagnostic, Report
    from .enabling import enable
    from .executable import Executable
    from .executable.arena import Arena
    from .extensions import Part
    from .graph_pool import GraphMemory
    from .nodes import (
        CapturedNode,
        EagerNode,
        EmptyNode,
        Event,
        EventRecordNode,
        EventWaitNode,
        HostNode,
        MemoryOpsNode,
        Semaphore,
        SemaphoreSignalNode,
        SemaphoreWaitNode,
        wait_value,
        write_value,
    )
    from .nodes.children import ChildGraphNode, ConditionalNode
    from .nodes.collective import CollectiveNode
    from .parts.family.families import Family
    from .parts.ranks.links import Link
    from .parts.ranks.ranked import RankExecutable
    from .parts.ranks.world import Ranks, ranks
    from .parts.timeline.timeline import Timeline
    from .parts.verify import verify
    from .plan.options import DebugOptions, PlanOptions
    from .plan.steps import Plan, Step
    from .runtimes import graph_memory, open_runtime
    from .update import explain_update

_LATER = {
    "Arena": "executable.arena",
    **dict.fromkeys(("Diagnostic", "Report"), "checks"),
    **dict.fromkeys(("ChildGraphNode", "ConditionalNode"), "nodes.children"),
    "CollectiveNode": "nodes.collective",
    **dict.fromkeys(("CapturedNode", "EagerNode", "HostNode", "EmptyNode", "Event", "EventRecordNode"), "nodes"),
    **dict.fromkeys(("EventWaitNode", "MemoryOpsNode", "Semaphore", "SemaphoreSignalNode"), "nodes"),
    **dict.fromkeys(("SemaphoreWaitNode", "wait_value", "write_value"), "nodes"),
    "enable": "enabling",
    "Executable": "executable",
    "Family": "parts.family.families",
    "GraphMemory": "graph_pool",
    "Link": "parts.ranks.links",
    "Part": "extensions",
    **dict.fromkeys(("Plan", "Step"), "plan.steps"),
    **dict.fromkeys(("DebugOptions", "PlanOptions"), "plan.options"),
    "RankExecutable": "parts.ranks.ranked",
    **dict.fromkeys(("graph_memory", "open_runtime"), "runtimes"),
    "Timeline": "parts.timeline.timeline",
    "explain_update": "update",
    **dict.fromkeys(("Ranks", "ranks"), "parts.ranks.world"),
    "verify": "parts.verify",
}
"""Names that most programs which only declare do not need, each with its module, which is imported at first access."""

__version__ = "0.1.0"

__all__ = [
    "AllocNode",
    "Arena",
    "ArrayView",
    "CallbackError",
    "CapturedNode",
    "CheckError",
    "ChildGraphNode",
    "CollectiveNode",
    "ConditionalNode",
    "DebugOptions",
    "DeclarationError",
    "DeviceArray",
    "Diagnostic",
    "EagerNode",
    "EmptyNode",
    "Event",
    "EventRecordNode",
    "EventWaitNode",
    "Executable",
    "Expression",
    "ExternalArray",
    "Family",
    "FreeNode",
    "Graph",
    "GraphMemory",
    "HipError",
    "HipGraphError",
    "HostArray",
    "HostNode",
    "Kernel",
    "KernelNode",
    "Link",
    "MemcpyNode",
    "MemoryOpsNode",
    "MemsetNode",
    "Module",
    "Node",
    "Parameter",
    "Part",
    "PartMissing",
    "PartRefused",
    "Plan",
    "PlanOptions",
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
    "ceil_div",
    "enable",
    "explain_update",
    "graph_memory",
    "maximum",
    "minimum",
    "open_runtime",
    "ranks",
    "reads",
    "updates",
    "verify",
    "wait_value",
    "write_value",
    "writes",
]


if not TYPE_CHECKING:  # with it, a type checker would accept any name as an attribute

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value = globals()[name] = getattr(module_of(_LATER[name]), name)
        except PartMissing as error:  # raised at its use: tools ask for all names of a module
            return Absent(name, error.part)
        return value


def __dir__() -> list[str]:
    return __all__  # without the submodules
