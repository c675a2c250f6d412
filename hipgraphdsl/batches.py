"""Which launches of one kernel become one: nodes that no path orders and that wait for the same.

Nodes are put into groups in topological order: two are in one group if they launch the same kernel with blocks of the same shape
and the groups that they wait for are the same. So no path leads from one node of a group to another, the groups wait for each
other in no cycle, and a group can begin when each of its nodes could, were the groups before it done.

What follows one node of a batch waits for all of them. Where the plan chooses by itself, nodes that others follow are in one
batch only if their grids are the same, so that they are taken to last equally long, and the device can hold all their blocks at
once: none is then done later than it would be by itself. It makes batches of a kernel where that saves more, in the launches that
a graph is taken to have, than the compilation of an entry point costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from .kernels import Batching, Chaining, Kernel, batching
from .nodes import KernelNode
from .order import follower_counts
from .target import Target
from .workflow import AnyNode

_FEWEST: Final = 4
"""Launches beside each other that cost about as much as a batch, whose blocks look up what they do: on an H200 a level of two
launches takes 1.03 us, one of eight 1.7 us, and one of a batch 1.25 us."""

_FEWEST_APART: Final = 2
"""As `_FEWEST` of launches that no chain could take and that leave multiprocessors free: on an H200 1024 empty kernels in a stack
of diamonds, every third by itself, take 300 us so and 388 us one by one (`bench lanes`)."""

LAUNCHES: Final = 10_000
"""How often a graph is taken to be launched: what is compiled once for it costs each launch so much less."""

_SIZES: Final = 4
"""Each table of a kernel holds so many times the launches of the next smaller one: few sizes, as each must be compiled."""


class Batched(NamedTuple):
    """A batch of launches.

    Attributes
    ----------
    batching : Batching or Chaining
        Of launches beside each other, or one behind the other.
    capacity : int
        How many launches the table of its entry point holds.
    """

    batching: Batching | Chaining
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


def candidates(nodes: Sequence[AnyNode], depths: Sequence[int], target: Target, *, automatic: bool) -> list[Kernel]:
    """Return the kernels of which there may be batches, as far as depths tell; those that may pay, if it is automatic.

    All nodes of a batch have the same depth, because those that they wait for do.
    """
    beside = Counter([(node.kernel, depth) for node, depth in zip(nodes, depths) if isinstance(node, KernelNode)])
    spared: Counter[Kernel] = Counter()
    for (kernel, _), launches in beside.items():
        if launches >= _FEWEST_APART:
            spared[kernel] += _spared(launches)
    costs = target.costs
    worth = costs.entry_us / LAUNCHES / max(1e-9, costs.batched_us + costs.branch_us) if automatic else 0
    return [kernel for kernel, launches in spared.items() if launches >= worth]


def unpaid(grouping: Grouping, target: Target, branches: int) -> dict[Kernel, str]:
    """Return the kernels whose batches save less than entry points cost, and why; there are `branches` fewer lanes with them."""
    saved: Counter[Kernel] = Counter()
    sizes = Counter(group for group in grouping.group_of if grouping.batch_of[group] >= 0)
    for group, size in sizes.items():
        saved[grouping.batches[grouping.batch_of[group]].batching.kernels[0]] += _spared(size)
    costs = target.costs
    each = costs.batched_us + costs.branch_us * max(0, branches) / max(1, saved.total())
    return {
        kernel: f"that would save {count * each:.2g} us a launch, and compiling it takes about {costs.entry_us / 1000:g} ms once"
        for kernel, count in saved.items()
        if count * each * LAUNCHES < costs.entry_us
    }


def _spared(launches: int) -> int:
    """Return how many launches a batch of so many spares, by what it costs itself."""
    return max(1, launches - _FEWEST)


def grouped(
    nodes: Sequence[AnyNode],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    depths: Sequence[int],
    placed: Sequence[int | None] | None,
    target: Target,
    kernels: Collection[Kernel],
    *,
    even: bool,
) -> Grouping:
    """Return how launches of some kernels are batched, if any are.

    With `even`, what follows a node waits no longer than for that node, as far as grids tell: see above.
    """
    known = {kernel: _batching(kernel, target) for kernel in kernels}
    nbytes = target.parameter_bytes
    kinds = {  # for each kernel its number, which is compared sooner, and how many launches a batch of it holds
        kernel: (n, 0 if isinstance(how, str) else how.capacity(nbytes)) for n, (kernel, how) in enumerate(known.items())
    }
    open_groups: dict[Any, int] = {}
    others: Counter[Any] = Counter()  # launches that could be one, were it not for their kernel
    group_of, members, room = [0] * len(nodes), list[list[int]](), dict[int, int]()
    resident, nothing = target.resident_threads, frozenset[int]()
    for i in order:
        node, group = nodes[i], -1
        kind = kinds.get(node.kernel) if isinstance(node, KernelNode) else None
        if kind is not None and (alike := _alike(node, target)) is not None:
            assert isinstance(node, KernelNode)
            before = frozenset([group_of[source] for source in deps[i]]) if deps[i] else nothing
            key = (kind, alike[1:], node.grid if even else None, None if placed is None else placed[i], before)
            capacity = kind[1]
            if not capacity:
                others[key] += 1
            else:
                group = open_groups.get(key, -1)
                threads = node.least_threads if even and resident else 0
                if group < 0 or len(members[group]) == capacity or room[group] < threads:
                    group = open_groups[key] = len(members)
                    members.append([])
                    room[group] = resident
                room[group] -= threads
        if group < 0:
            group = len(members)
            members.append([])
        group_of[i] = group
        members[group].append(i)
    if even:
        _join_ends(nodes, deps, group_of, members, placed, known, target)
    refused = {key[0] for key, count in others.items() if count >= _FEWEST}
    why = {kernel: str(how) for kernel, how in known.items() if kinds[kernel] in refused}
    return _numbered(nodes, deps, members, depths, known, target, why)


def _join_ends(
    nodes: Sequence[AnyNode],
    deps: Sequence[tuple[int, ...]],
    group_of: Sequence[int],
    members: list[list[int]],
    placed: Sequence[int | None] | None,
    known: Mapping[Kernel, Batching | str],
    target: Target,
) -> None:
    """Join groups that nothing follows, whatever their grids are and however long they last."""
    followed = {group_of[source] for sources in deps for source in sources}
    first: dict[Any, int] = {}
    for group, inside in enumerate(members):
        node = nodes[inside[0]]
        how = known.get(node.kernel) if isinstance(node, KernelNode) else None
        alike = _alike(node, target) if isinstance(how, Batching) else None
        if group in followed or alike is None:
            continue
        assert isinstance(how, Batching)
        before = frozenset([group_of[source] for source in deps[inside[0]]])
        key = (alike, None if placed is None else placed[inside[0]], before)
        into = members[first.setdefault(key, group)]
        if into is not inside and len(into) + len(inside) <= how.capacity(target.parameter_bytes):
            into += inside
            inside.clear()
        elif into is not inside:
            first[key] = group


def _numbered(
    nodes: Sequence[AnyNode],
    deps: Sequence[tuple[int, ...]],
    members: Sequence[Sequence[int]],
    depths: Sequence[int],
    known: Mapping[Kernel, Batching | str],
    target: Target,
    refused: dict[Kernel, str],
) -> Grouping:
    """Return groups in an order in which each waits for earlier ones; those that are too small fall apart."""
    found, batches = Grouping([], [0] * len(nodes), (), [], refused), list[Batched]()
    linked = _linked(deps) if any(_FEWEST_APART <= len(inside) < _FEWEST for inside in members) else set()
    threads: dict[Kernel, int] = {}  # most of a block, as long as all batches of a kernel leave multiprocessors free; else 0
    for inside in sorted(filter(None, members), key=lambda inside: depths[inside[0]]):
        node = nodes[inside[0]]
        batched = free = False
        if isinstance(node, KernelNode) and len(inside) >= _FEWEST_APART:
            free = _leaves_free(nodes, inside, node.block, target)
            batched = len(inside) >= _FEWEST or (free and linked.isdisjoint(inside))
        for part in [inside] if batched else [[i] for i in inside]:
            for i in part:
                found.group_of[i] = len(found.batch_of)
            found.order.extend(part)
            found.batch_of.append(len(batches) if batched else -1)
        if batched:
            assert isinstance(node, KernelNode)
            how = known[node.kernel]
            assert isinstance(how, Batching)
            batches.append(Batched(how, size_of(len(inside), how.capacity(target.parameter_bytes))))
            before = threads.get(node.kernel, 1)
            threads[node.kernel] = max(before, math.prod(node.block)) if free and before else 0
    made = {kernel: replace(how, threads=threads.get(kernel, 0)) for kernel, how in known.items() if isinstance(how, Batching)}
    return found._replace(batches=tuple(batch._replace(batching=made[batch.batching.kernels[0]]) for batch in batches))


def _linked(deps: Sequence[tuple[int, ...]]) -> set[int]:
    """Return the nodes that might be links of a chain: each follows one node that nothing else follows, or is so followed."""
    followers = follower_counts(deps)
    links = [(i, sources[0]) for i, sources in enumerate(deps) if len(sources) == 1 and followers[sources[0]] == 1]
    return {i for link in links for i in link}


def _leaves_free(nodes: Sequence[AnyNode], inside: Sequence[int], block: Sequence[int], target: Target) -> bool:
    """Return whether launches of equal blocks have fewer of them than the device has multiprocessors, or as many."""
    threads = [nodes[i].threads or math.inf for i in inside]  # those that a parameter decides may be any number
    return sum(threads) <= target.multiprocessors * math.prod(block)


def size_of(count: int, most: int) -> int:
    """Return the size of a table for so many launches."""
    while most // _SIZES >= count:
        most //= _SIZES
    return most


def _alike(node: AnyNode, target: Target) -> tuple[Any, ...] | None:
    """Return what launches of one batch have in common; None for a node that is in none."""
    if not isinstance(node, KernelNode) or 0 < target.resident_threads <= node.least_threads:
        return None  # what fills the device by itself gains nothing
    return node.alike


def _batching(kernel: Kernel, target: Target) -> Batching | str:
    """Return how launches of a kernel are batched on a target, or why they are not."""
    how = batching(kernel)
    if not isinstance(how, str) and how.capacity(target.parameter_bytes) < _FEWEST:
        return "its arguments are too large for a table of several launches"
    return how
