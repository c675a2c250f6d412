"""Plans taken over from a living plan of the same shape: the same steps, lanes, edges and batches with other nodes.

Two workflows have the same shape if all that planning reads of them is equal: names, edges, kinds, and of kernel launches kernel,
block, shared memory, attributes, which parameters they mention, and on devices the grid. Arrays, numbers and other arguments may
differ. Workflows over several devices, with memory allocated in the graph, or with graphs inside nodes are planned afresh.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from weakref import WeakValueDictionary

from ..nodes import Node
from ..nodes.facets import KernelLaunch
from ..nodes.workflow import Workflow
from ..parts import ENABLED, find
from ..target import Target
from .options import PlanOptions
from .steps import Plan
from .suited import suits_copy_kernel

_planned: WeakValueDictionary[Hashable, Plan] = WeakValueDictionary()
"""The last plan for each target, options, device and number of nodes, as long as somebody has it."""

_FACTS = ("made", "freed", "held", "branch")
"""What makes planning look into more than `_same_shape` compares."""


def key_of(workflow: Workflow, target: Target, options: PlanOptions, device: int, devices: tuple[int, ...]) -> Hashable | None:
    """Return the key by which `note` keeps a plan; None if no plan of the workflow can be taken over."""
    if len(devices) > 1 or not workflow.nodes or any(part.passes for part in ENABLED.values()):
        return None
    if not all(map(_comparable, workflow.kinds)):
        return None
    return target, options, device, len(workflow.nodes), find("merge") is None


@cache
def _comparable(kind: type[Node]) -> bool:
    """Return whether `_same_shape` compares all that planning reads of nodes of a class."""
    if kind.launched is Node.launched and kind.kernels is not Node.kernels:
        return False
    return all(getattr(kind, fact) is getattr(Node, fact) for fact in _FACTS)


def note(key: Hashable | None, plan: Plan) -> None:
    """Offer a plan to later workflows of its shape, as long as it lives."""
    if key is not None:
        _planned[key] = plan


def taken_over(key: Hashable | None, workflow: Workflow, target: Target, options: PlanOptions) -> Plan | None:
    """Return the plan of a workflow made from a living plan of a workflow of the same shape; None if there is none."""
    known = None if key is None else _planned.get(key)
    if known is None or not _same_shape(known.workflow, workflow, target, options):
        return None
    return known.with_nodes(workflow)


def _same_shape(old: Workflow, new: Workflow, target: Target, options: PlanOptions) -> bool:
    """Return whether planning reads the same of two workflows with the same number of nodes."""
    if old.predecessors != new.predecessors:
        return False
    merges = not target.on_host or options.batch is True  # else planning reads only the kernels of launches
    mention = merges and bool(old.parameters or new.parameters)
    for a, b in zip(old.nodes, new.nodes):
        if a is b:
            continue
        if type(a) is not type(b) or a.name != b.name:
            return False
        one, two = a.launched, b.launched
        if one is None or two is None:
            alike = one is two and (not a.copied or suits_copy_kernel(a, target) == suits_copy_kernel(b, target))
        else:
            alike = one.kernel is two.kernel and (not merges or _same_launch(one, two))
        if not alike:
            return False
        if mention and (a.parameters or b.parameters) and _mentioned(a) != _mentioned(b):
            return False
    return True


def _same_launch(a: KernelLaunch, b: KernelLaunch) -> bool:
    return a.block == b.block and a.grid == b.grid and a.shared_bytes == b.shared_bytes and a.plain == b.plain


def _mentioned(node: Node) -> list[str]:
    return [parameter.name for parameter in node.parameters]
