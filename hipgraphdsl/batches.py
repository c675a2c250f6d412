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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from .kernels import Batching, Kernel, Mixing, Module, Switching, batching, mixing, unchained
from .mixes import mixable
from .nodes import EmptyNode, KernelNode
from .order import follower_counts
from .target import Target
from .workflow import AnyNode

_FEWEST: Final = 4
"""Launches beside each other that a batch is worth wherever they are: on an H200 a level of two launches, each behind both of the
level before, takes 1.0 us, one of four 1.7 us, and one of a batch 0.8 us."""

_FEWEST_APART: Final = 2
"""As `_FEWEST` of launches that no chain could take and that leave multiprocessors free: on an H200 1024 empty kernels in a stack
of diamonds, every third by itself, take 325 us so and 387 us one by one (`bench lanes`)."""

LAUNCHES: Final = 100_000
"""How often a graph is taken to be launched, in this process and in those that find its entry points in the cache."""

SHARED_BYTES: Final = 48 << 10
"""Of all kernels of an entry point together, whose variables the compiler puts beside each other."""

_SIZES: Final = 4
"""Each table of a kernel holds so many times the launches of the next smaller one: few sizes, as each must be compiled."""


class Batched(NamedTuple):
    """A batch of launches.

    Attributes
    ----------
    batching : Batching or Switching
        Of launches beside each other, or one behind the other.
    capacity : int
        How many launches the table of its entry point holds.
    """

    batching: Batching | Switching
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


def candidates(nodes: Sequence[AnyNode], depths: Sequence[int], target: Target, *, automatic: bool) -> list[Kernel | Module]:
    """Return the kernels of which there may be batches, and the modules whose kernels may be mixed.

    That is as far as depths tell: all nodes of a batch have the same depth, because those that they wait for do. If it is
    automatic, they are those that may pay.
    """
    beside = Counter([(node.kernel, depth) for node, depth in zip(nodes, depths) if isinstance(node, KernelNode)])
    spared: Counter[Kernel | Module] = Counter()
    kinds: dict[tuple[Module, int], list[int]] = {}
    for (kernel, depth), launches in beside.items():
        if launches >= _FEWEST_APART:
            spared[kernel] += _spared(launches)
        kinds.setdefault((kernel.module, depth), []).append(launches)
    for (module, _), counts in kinds.items():
        if len(counts) > 1:
            spared[module] += _spared(sum(counts))
    costs = target.costs
    worth = costs.entry_us / LAUNCHES / max(1e-9, costs.batched_us + costs.branch_us) if automatic else 0
    return [what for what, launches in spared.items() if launches >= worth]


def unpaid(grouping: Grouping, target: Target, branches: int) -> dict[Kernel | Module, str]:
    """Return the kernels and modules whose batches save less than entry points cost, and why.

    With all of the batches there are `branches` fewer lanes.
    """
    saved: Counter[Kernel | Module] = Counter()
    sizes = Counter(group for group in grouping.group_of if grouping.batch_of[group] >= 0)
    for group, size in sizes.items():
        how = grouping.batches[grouping.batch_of[group]].batching
        saved[how.module if isinstance(how, Switching) else how.kernel] += _spared(size)
    costs = target.costs
    each = costs.batched_us + costs.branch_us * max(0, branches) / max(1, saved.total())
    return {
        what: f"that would save {count * each:.2g} us a launch, and compiling it takes about {costs.entry_us / 1000:g} ms once"
        for what, count in saved.items()
        if count * each * LAUNCHES < costs.entry_us
    }


def _spared(launches: int) -> int:
    """Return how many launches a batch of so many spares."""
    return launches - 1


def grouped(
    nodes: Sequence[AnyNode],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    depths: Sequence[int],
    placed: Sequence[int | None] | None,
    target: Target,
    among: Collection[Kernel | Module],
    *,
    even: bool,
) -> Grouping:
    """Return how launches of some kernels, and those of different kernels of some modules, are batched, if any are.

    With `even`, what follows a node waits no longer than for that node, as far as grids tell: see above.
    """
    known = {kernel: _batching(kernel, target) for kernel in among if isinstance(kernel, Kernel)}
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
    modules = {module for module in among if isinstance(module, Module)}
    sets = mixable(nodes, deps, depths, members, group_of, placed, modules) if modules else []
    return _numbered(nodes, order, deps, members, depths, known, target, why, sets, even=even)


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
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    members: list[list[int]],
    depths: Sequence[int],
    known: Mapping[Kernel, Batching | str],
    target: Target,
    refused: dict[Kernel, str],
    sets: Sequence[Sequence[int]],
    *,
    even: bool,
) -> Grouping:
    """Return groups in an order in which each waits for earlier ones; those that are too small fall apart.

    An empty node that waits for one batch alone is put into it: what follows waits for the batch then.
    """
    found, nbytes = Grouping([], [0] * len(nodes), (), [], refused), target.parameter_bytes
    parts: list[list[int]] = []
    ways: dict[int, Batching | Mixing] = {}
    runs = _runs(nodes, order, deps) if sets or any(len(inside) >= _FEWEST_APART for inside in members) else {}

    def pays(inside: Sequence[int], free: bool) -> bool:
        """Return whether launches are better one than in chains, or by themselves."""
        longest = max([runs.get(i, 0) for i in inside])
        return longest < len(inside) if len(inside) >= _FEWEST else free and not longest

    mixed = _mixed(nodes, members, sets, target, pays, even=even)
    threads: dict[Kernel, int] = {}  # most of a block, as long as all batches of a kernel leave multiprocessors free; else 0
    for inside in sorted(filter(None, members), key=lambda inside: depths[inside[0]]):
        node = nodes[inside[0]]
        how: Batching | Mixing | str | None = mixed.get(inside[0])
        if how is None and isinstance(node, KernelNode) and len(inside) >= _FEWEST_APART:
            free = _leaves_free(nodes, inside, node.block, target)
            if pays(inside, free):
                how = known[node.kernel]
                most = threads.get(node.kernel, 1)
                threads[node.kernel] = max(most, math.prod(node.block)) if free and most else 0
        assert not isinstance(how, str)
        before = {found.group_of[source] for source in deps[inside[0]]} if isinstance(node, EmptyNode) else ()
        if len(before) == 1 and (group := before.pop()) in ways and len(parts[group]) < ways[group].capacity(nbytes):
            parts[group] = [*parts[group], *inside]
            found.group_of[inside[0]] = group
            continue
        for part in [inside] if how is not None else [[i] for i in inside]:
            for i in part:
                found.group_of[i] = len(parts)
            if how is not None:
                ways[len(parts)] = how
            parts.append(part)
    made = {kernel: replace(how, threads=threads.get(kernel, 0)) for kernel, how in known.items() if isinstance(how, Batching)}
    batches = [
        Batched(made[how.kernel] if isinstance(how, Batching) else how, size_of(len(parts[group]), how.capacity(nbytes)))
        for group, how in ways.items()
    ]
    number = {group: n for n, group in enumerate(ways)}
    return found._replace(
        order=[i for part in parts for i in part],
        batches=tuple(batches),
        batch_of=[number.get(group, -1) for group in range(len(parts))],
    )


def _mixed(
    nodes: Sequence[AnyNode],
    members: list[list[int]],
    sets: Iterable[Sequence[int]],
    target: Target,
    pays: Callable[[Sequence[int], bool], bool],
    *,
    even: bool,
) -> dict[int, Mixing]:
    """Put the groups of each set into the first of them, where that pays; return for its first node how they become one."""
    found: dict[Module, list[list[int]]] = {}
    for groups in sets:
        inside = [i for group in groups for i in members[group]]
        node = nodes[inside[0]]
        assert isinstance(node, KernelNode)
        free = _leaves_free(nodes, inside, node.block, target) or not even
        if free and pays(inside, free):
            found.setdefault(node.kernel.module, []).append([*groups])
    mixed: dict[int, Mixing] = {}
    for joined in found.values():
        inner = [
            [node for group in groups for i in members[group] if isinstance(node := nodes[i], KernelNode)] for groups in joined
        ]
        kernels = list(dict.fromkeys(node.kernel for launches in inner for node in launches))
        how = mixing(kernels, max(math.prod(launches[0].block) for launches in inner))
        if sum(kernel.static_shared_bytes or 0 for kernel in kernels) > SHARED_BYTES:
            continue
        for groups in joined:
            inside = [i for group in groups for i in members[group]]
            if len(inside) <= how.capacity(target.parameter_bytes):
                mixed[inside[0]] = how
                members[groups[0]] = inside
                for group in groups[1:]:
                    members[group] = []
    return mixed


def link_of(node: AnyNode, known: dict[int, bool]) -> tuple[Module, Any] | None:
    """Return what launches that one block may do, one behind the other, have in common; None for a node that is in no chain.

    Parameters
    ----------
    known : dict of int to bool
        For kernels, by their `id`, whether they can be in a chain; filled here.
    """
    if not isinstance(node, KernelNode) or node.grid != (1, 1, 1) or node.shared_bytes or node.alike is None:
        return None
    kernel = node.kernel
    chained = known.get(id(kernel))
    if chained is None:
        chained = known[id(kernel)] = not unchained(kernel)
    return (kernel.module, node.block) if chained else None


def _runs(nodes: Sequence[AnyNode], order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Return the nodes that follow one node, or precede one, with nothing between, and how many links their chain has."""
    followers = follower_counts(deps)
    known: dict[int, bool] = {}
    first: dict[int, int] = {}
    links: dict[int, Any] = {}
    for i in order:
        if len(deps[i]) == 1 and followers[deps[i][0]] == 1:
            (source,) = deps[i]
            if source not in first:
                first[source], links[source] = source, link_of(nodes[source], known)
            link = links[i] = link_of(nodes[i], known)
            first[i] = first[source] if link is not None and link == links[source] else i
    counts = Counter(first.values())
    return {i: counts[start] for i, start in first.items()}


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
