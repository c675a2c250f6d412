"""Which launches of one kernel become one: nodes that no path orders and that wait for the same.

Nodes are put into groups in topological order: two are in one group if they launch the same kernel with blocks of the same shape
and the groups that they wait for are the same. So no path leads from one node of a group to another, the groups wait for each
other in no cycle, and a group can begin when each of its nodes could, were the groups before it done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .kernels import Batching, Kernel, batching
from .nodes import KernelNode
from .target import Target
from .workflow import AnyNode

_FEWEST: Final = 4
"""Launches that are worth an entry point of their own, which must be compiled."""


class Batched(NamedTuple):
    """A batch of launches.

    Attributes
    ----------
    batching : Batching
    capacity : int
        How many launches the table of its entry point holds.
    """

    batching: Batching
    capacity: int


class Grouping(NamedTuple):
    """Nodes in a topological order in which those of a batch are neighbours.

    Attributes
    ----------
    order : list of int
    group_of : list of int
        For each node the number of its group, ascending in `order`.
    batches : tuple of Batched
    batch_of : list of int
        For each group its batch; -1 for a node by itself.
    refused : dict of Kernel to str
        Why launches of a kernel cannot be batched.
    """

    order: list[int]
    group_of: list[int]
    batches: tuple[Batched, ...]
    batch_of: list[int]
    refused: dict[Kernel, str]


def grouped(
    nodes: Sequence[AnyNode],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    placed: Sequence[int | None] | None,
    target: Target,
) -> Grouping:
    """Return how nodes are batched, if any are."""
    known: dict[Kernel, Batching | str] = {}
    ids: dict[Any, int] = {}
    room = target.parameter_bytes
    group_of, levels, members = [0] * len(nodes), [0] * len(nodes), list[list[int]]()
    for i in order:
        before = frozenset([group_of[source] for source in deps[i]])
        alike = _alike(nodes[i], known, room, target.resident_threads)
        key = (i,) if alike is None else (alike, None if placed is None else placed[i], before)
        group = ids.setdefault(key, len(members))
        if group == len(members):
            members.append([])
            levels[group] = max([levels[source] + 1 for source in before], default=0)
        group_of[i] = group
        members[group].append(i)
    made: list[tuple[int, int, list[int], Batched | None]] = []
    for group, inside in enumerate(members):
        node = nodes[inside[0]]
        if len(inside) >= _FEWEST:
            assert isinstance(node, KernelNode)
            how = known[node.kernel]
            assert isinstance(how, Batching)
            most = how.capacity(room)
            parts = [inside[k : k + most] for k in range(0, len(inside), most)]
            made += [(levels[group], group, part, Batched(how, _size(len(part), most))) for part in parts]
        else:
            made += [(levels[group], group, [i], None) for i in inside]
    made.sort(key=lambda entry: entry[:2])
    found = Grouping([], group_of, (), [], {kernel: why for kernel, why in known.items() if isinstance(why, str)})
    batches: list[Batched] = []
    for number, (_, _, part, batch) in enumerate(made):
        found.order.extend(part)
        found.batch_of.append(-1 if batch is None else len(batches))
        if batch is not None:
            batches.append(batch)
        for i in part:
            group_of[i] = number
    return found._replace(batches=tuple(batches))


def _size(count: int, most: int) -> int:
    """Return the size of a table: few sizes serve all batches of a kernel, since each must be compiled."""
    return min(most, 1 << (count - 1).bit_length())


def _alike(node: AnyNode, known: dict[Kernel, Batching | str], room: int, resident_threads: int) -> tuple[Any, ...] | None:
    """Return what launches of one batch have in common; None for a node that is in none."""
    if not isinstance(node, KernelNode) or not node.plain:
        return None
    if not all(isinstance(axis, int) for axis in node.block):
        return None
    how = known.get(node.kernel)
    if how is None:
        how = known[node.kernel] = batching(node.kernel)
    if isinstance(how, str) or how.capacity(room) < _FEWEST or _fills(node, resident_threads):
        return None
    return node.kernel, node.block, node.shared_bytes


def _fills(node: KernelNode, resident_threads: int) -> bool:
    """Return whether a launch fills the device by itself, so that batching gains nothing."""
    x, y, z = node.block
    threads = x * y * z
    for axis in node.grid:
        threads *= axis if isinstance(axis, int) else 1
    return bool(0 < resident_threads <= threads)
