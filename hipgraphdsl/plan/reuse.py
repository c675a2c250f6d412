"""Plans taken over from a living plan of the same shape: the same steps, lanes, edges and batches with other nodes.

Two workflows have the same shape if all that planning reads of them is equal: names, edges, kinds, and of kernel launches kernel,
block, shared memory, attributes, which parameters they mention, and what merging reads of the grids; and of memory allocated in
the graph, which nodes use it. Arrays, numbers and other arguments may differ. Workflows over several devices, or with graphs
inside nodes, are planned afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from itertools import count
from operator import attrgetter, contains
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from ..arrays import AllocArray
from ..nodes import Node
from ..nodes.workflow import Workflow
from ..parts import ENABLED
from ..target import Target
from .options import Batch, PlanOptions
from .steps import Plan
from .suited import suits_copy_kernel

if TYPE_CHECKING:
    from ..nodes.facets import KernelLaunch

_planned: WeakValueDictionary[Hashable, Plan] = WeakValueDictionary()
"""The last plan for each target, options, device and number of nodes, as long as somebody has it."""

_launched: Final = attrgetter("launched")
_name: Final = attrgetter("name")
_FACTS = ("held", "branch")
"""What makes planning look into more than a shape has."""


def key_of(workflow: Workflow, target: Target, options: PlanOptions, device: int, devices: tuple[int, ...]) -> Hashable | None:
    """Return the key by which `note` keeps a plan; None if no plan of the workflow can be taken over."""
    if len(devices) > 1 or not workflow.nodes or (ENABLED and any(part.passes for part in ENABLED.values())):
        return None
    if not all(map(_comparable, workflow.kinds)):
        return None
    return target, options, device, len(workflow.nodes)


@cache
def _comparable(kind: type[Node]) -> bool:
    """Return whether a shape has all that planning reads of nodes of a class."""
    if kind.launched is Node.launched and kind.kernels is not Node.kernels:
        return False
    return all(getattr(kind, fact) is getattr(Node, fact) for fact in _FACTS)


def note(key: Hashable | None, plan: Plan) -> None:
    """Offer a plan to later workflows of its shape, as long as it lives."""
    if key is not None:
        _planned[key] = plan


def taken_over(key: Hashable | None, workflow: Workflow, shape: Callable[[Workflow], Any]) -> Plan | None:
    """Return the plan of a workflow, made from a living plan of a workflow of the same shape; None if there is none.

    A living plan of the workflow itself is returned as it is. One that was taken over carries its shape for the next one.
    """
    known = None if key is None else _planned.get(key)
    if known is None or known.workflow is workflow:
        return known
    mine, other = shape(workflow), known.shape or shape(known.workflow)
    if mine != other or (mine[-1] and known.packing is None):  # whether memory can be shared depends on sizes
        return None
    return known.with_nodes(workflow, mine)


def shape_of(workflow: Workflow, target: Target, batch: Batch, bound: Callable[[Workflow], int | None], *, packs: bool) -> Any:
    """Return what planning reads of a workflow, for `==` as long as the workflow lives; `bound` counts the most lanes."""
    nodes, predecessors = workflow.nodes, workflow.predecessors
    launches = [*map(_launched, nodes)]
    copying, making = _kinds_that(workflow.kinds)
    return (
        predecessors,
        [*map(type, nodes)],
        [*map(_name, nodes)],
        [None if launch is None else id(launch.kernel) for launch in launches],
        [suits_copy_kernel(node, target) for node in nodes if type(node) in copying] if copying else [],
        _merged(workflow, launches, target, batch, bound) if not target.on_host or batch is True else [],
        [*map(_names_of_allocs, nodes)] if packs and making else [],
    )


@cache
def _kinds_that(kinds: frozenset[type[Node]]) -> tuple[frozenset[type[Node]], frozenset[type[Node]]]:
    """Return the classes of nodes that copy, and those that allocate memory."""
    copying, making = (
        (kind for kind in kinds if kind.copied is not Node.copied),
        (kind for kind in kinds if kind.made is not Node.made),
    )
    return frozenset(copying), frozenset(making)


def _names_of_allocs(node: Node) -> list[str]:
    """Return the names of the arrays of alloc nodes that a node makes, frees or uses, in the order of its fields."""
    own = [node.made, node.freed, *[access.view.root for access in node.accesses], *[view.root for view in node.addresses]]
    return [root.name for root in own if type(root) is AllocArray]


def _merged(
    workflow: Workflow,
    launches: Iterable[KernelLaunch | None],
    target: Target,
    batch: Batch,
    bound: Callable[[Workflow], int | None],
) -> list[Any]:
    """Return what planning for a device, or with launches merged, reads besides.

    Merging compares grids where launches may run side by side, and asks of all whether they are of one block.
    """
    path = all(map(contains, workflow.predecessors[1:], count()))
    grids = batch is True or (batch == "auto" and target.costs.batched_us > 0)
    most = target.resident_threads
    read: list[Any] = [] if path else [bound(workflow)]
    for launch in launches:
        if launch is not None:
            read += launch.block, launch.shared_bytes, launch.plain
            if grids:
                alone = path or 0 < most < launch.least_threads  # beside no other, or on a device that it fills
                read.append(launch.grid == (1, 1, 1) if alone else launch.grid)
    if workflow.parameters:
        for node in workflow.nodes:
            read.append([*map(_name, node.parameters)])
    return read
