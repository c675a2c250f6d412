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
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from ..kernels import Batching, Kernel, Mixing, Module, Switching, batching, mixing, unchained, unswitched
from ..nodes import EmptyNode, KernelNode
from ..order import chains
from ..target import Target
from ..workflow import AnyNode
from .lanes import Cover
from .mixes import mixable

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
    """A batch of launches."""

    batching: Batching | Switching  # of launches beside each other, or one behind the other
    capacity: int  # how many launches the table of its entry point holds


class Grouping(NamedTuple):
    """Nodes in a topological order in which those of a batch are neighbours."""

    order: list[int]
    group_of: list[int]  # for each node the number of its group, ascending in `order`
    batches: tuple[Batched, ...]
    batch_of: list[int]  # for each group its batch; -1 for a node by itself
    refused: dict[Kernel, str]  # why launches of a kernel cannot be batched


@dataclass(frozen=True)
class Batcher:
    """Finds batches."""

    nodes: Sequence[AnyNode]
    order: Sequence[int]  # a topological one
    cover: Cover  # the edges that are needed, and depths along them
    places: Sequence[tuple[int | None, int]]  # the device and the segment of each node, which the launches of a batch share
    target: Target
    automatic: bool
    """Whether only what pays is batched, and what follows a node waits no longer than for that node, as far as grids tell."""

    def candidates(self) -> list[Kernel | Module]:
        """Return the kernels of which there may be batches, and the modules whose kernels may be mixed.

        That is as far as depths tell: all nodes of a batch have the same depth, because those that they wait for do.
        """
        beside = Counter([(node.kernel, at) for node, at in zip(self.nodes, self.cover.depths) if isinstance(node, KernelNode)])
        spared: Counter[Kernel | Module] = Counter()
        kinds: dict[tuple[Module, int], list[int]] = {}
        for (kernel, depth), launches in beside.items():
            if launches >= _FEWEST_APART:
                spared[kernel] += launches - 1
            kinds.setdefault((kernel.module, depth), []).append(launches)
        for (module, _), counts in kinds.items():
            if len(counts) > 1:
                spared[module] += sum(counts) - 1
        costs = self.target.costs
        worth = costs.entry_us / LAUNCHES / max(1e-9, costs.batched_us + costs.branch_us) if self.automatic else 0
        return [what for what, launches in spared.items() if launches >= worth]

    def unpaid(self, grouping: Grouping, branches: int) -> dict[Kernel | Module, str]:
        """Return the kernels and modules whose batches save less than entry points cost, and why.

        With all of the batches there are `branches` fewer lanes.
        """
        saved: Counter[Kernel | Module] = Counter()
        for group, size in Counter(group for group in grouping.group_of if grouping.batch_of[group] >= 0).items():
            how = grouping.batches[grouping.batch_of[group]].batching
            saved[how.module if isinstance(how, Switching) else how.kernel] += size - 1
        costs = self.target.costs
        each = costs.batched_us + costs.branch_us * max(0, branches) / max(1, saved.total())
        cost = f"compiling it takes about {costs.entry_us / 1000:g} ms once"
        return {
            what: f"that would save {count * each:.2g} us a launch, and {cost}"
            for what, count in saved.items()
            if count * each * LAUNCHES < costs.entry_us
        }

    def grouped(self, among: Collection[Kernel | Module]) -> Grouping:
        """Return how launches of some kernels, and those of different kernels of some modules, are batched, if any are."""
        known = {kernel: _batching(kernel, self.target) for kernel in among if isinstance(kernel, Kernel)}
        members, group_of, refused = self._groups(known)
        if self.automatic:
            self._join_ends(members, group_of, known)
        modules = {module for module in among if isinstance(module, Module)}
        sets = mixable(self._kinds(members, modules), members, group_of, self.cover.reduced) if modules else []
        runs = self._runs() if sets or any(len(inside) >= _FEWEST_APART for inside in members) else {}
        mixed = self._mixed(members, sets, runs)
        return self._numbered(members, known, refused, mixed, runs)

    def _groups(self, known: Mapping[Kernel, Batching | str]) -> tuple[list[list[int]], list[int], dict[Kernel, str]]:
        """Return groups, the group of each node, and the kernels of which none became large enough only because they cannot."""
        nodes, deps, places, even = self.nodes, self.cover.reduced, self.places, self.automatic
        nbytes, resident = self.target.parameter_bytes, self.target.resident_threads
        kinds = {  # for each kernel its number, which is compared sooner, and how many launches a batch of it holds
            kernel: (n, 0 if isinstance(how, str) else how.capacity(nbytes)) for n, (kernel, how) in enumerate(known.items())
        }
        open_groups: dict[Any, int] = {}
        others: Counter[Any] = Counter()  # launches that could be one, were it not for their kernel
        group_of, members, room = [0] * len(nodes), list[list[int]](), dict[int, int]()
        nothing = frozenset[int]()
        for i in self.order:
            node, group = nodes[i], -1
            kind = kinds.get(node.kernel) if isinstance(node, KernelNode) else None
            if kind is not None and (alike := self._alike(node)) is not None:
                assert isinstance(node, KernelNode)
                before = frozenset([group_of[source] for source in deps[i]]) if deps[i] else nothing
                key = (kind, alike[1:], node.grid if even else None, places[i], before)
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
        many = {key[0] for key, count in others.items() if count >= _FEWEST}
        return members, group_of, {kernel: str(how) for kernel, how in known.items() if kinds[kernel] in many}

    def _join_ends(self, members: list[list[int]], group_of: Sequence[int], known: Mapping[Kernel, Batching | str]) -> None:
        """Join groups that nothing follows, whatever their grids are and however long they last."""
        deps = self.cover.reduced
        followed = {group_of[source] for sources in deps for source in sources}
        first: dict[Any, list[int]] = {}
        for group, inside in enumerate(members):
            node = self.nodes[inside[0]]
            how = known.get(node.kernel) if isinstance(node, KernelNode) else None
            if group in followed or not isinstance(how, Batching) or (alike := self._alike(node)) is None:
                continue
            before = frozenset([group_of[source] for source in deps[inside[0]]])
            key = (alike, self.places[inside[0]], before)
            into = first.setdefault(key, inside)
            if into is inside:
                continue
            if len(into) + len(inside) <= how.capacity(self.target.parameter_bytes):
                into += inside
                inside.clear()
            else:
                first[key] = inside

    def _kinds(self, members: Sequence[Sequence[int]], modules: Collection[Module]) -> list[Hashable]:
        """Return for each group what those of a mixed batch have in common; of one that is in none its own number."""
        kinds: list[Hashable] = []
        for group, inside in enumerate(members):
            node = self.nodes[inside[0]] if inside else None
            if isinstance(node, KernelNode) and node.alike and node.kernel.module in modules and not unswitched(node.kernel):
                kinds.append((self.cover.depths[inside[0]], node.kernel.module, node.alike[1:], self.places[inside[0]]))
            else:
                kinds.append(group)
        return kinds

    def _runs(self) -> dict[int, int]:
        """Return the nodes that follow one node, or precede one, with nothing between, and how many links their chain has."""
        known: dict[int, bool] = {}
        counts: dict[int, int] = {}
        for chain in chains(self.order, self.cover.reduced):
            counts |= dict.fromkeys(chain, 1)
            for link, run in groupby(chain, lambda i: link_of(self.nodes[i], known)):
                inside = [*run]
                if link is not None:
                    counts |= dict.fromkeys(inside, len(inside))
        return counts

    def _mixed(self, members: list[list[int]], sets: Iterable[Sequence[int]], runs: Mapping[int, int]) -> dict[int, Mixing]:
        """Put the groups of each set into the first of them, where that pays; return for its first node how they become one."""
        found: dict[Module, list[Sequence[int]]] = {}
        for groups in sets:
            inside = [i for group in groups for i in members[group]]
            if (self._leaves_free(inside) or not self.automatic) and _pays(inside, runs, free=True):
                found.setdefault(self._launch(inside[0]).kernel.module, []).append(groups)
        mixed: dict[int, Mixing] = {}
        for joined in found.values():
            launches = [self._launch(members[group][0]) for groups in joined for group in groups]
            kernels = list(dict.fromkeys(node.kernel for node in launches))
            if shared_bytes_of(kernels) > SHARED_BYTES:
                continue
            how = mixing(kernels, max(math.prod(node.block) for node in launches))
            for groups in joined:
                inside = [i for group in groups for i in members[group]]
                if len(inside) <= how.capacity(self.target.parameter_bytes):
                    mixed[inside[0]] = how
                    for group in groups:
                        members[group] = []
                    members[groups[0]] = inside
        return mixed

    def _numbered(
        self,
        members: Iterable[list[int]],
        known: Mapping[Kernel, Batching | str],
        refused: dict[Kernel, str],
        mixed: Mapping[int, Mixing],
        runs: Mapping[int, int],
    ) -> Grouping:
        """Return groups in an order in which each waits for earlier ones; those that are too small fall apart.

        An empty node that waits for one batch alone is put into it: what follows waits for the batch then.
        """
        nodes, places, nbytes = self.nodes, self.places, self.target.parameter_bytes
        deps, depths = self.cover.reduced, self.cover.depths
        group_of = [0] * len(nodes)
        parts: list[list[int]] = []
        ways: dict[int, Batching | Mixing] = {}
        threads: dict[Kernel, int] = {}  # most of a block, as long as all batches of a kernel leave multiprocessors free; else 0
        for inside in sorted(filter(None, members), key=lambda inside: depths[inside[0]]):
            node = nodes[inside[0]]
            how: Batching | Mixing | str | None = mixed.get(inside[0])
            if how is None and isinstance(node, KernelNode) and len(inside) >= _FEWEST_APART:
                free = self._leaves_free(inside)
                if _pays(inside, runs, free=free):
                    how = known[node.kernel]
                    most = threads.get(node.kernel, 1)
                    threads[node.kernel] = max(most, math.prod(node.block)) if free and most else 0
            assert not isinstance(how, str)
            before = {group_of[source] for source in deps[inside[0]]} if isinstance(node, EmptyNode) else ()
            if (
                len(before) == 1
                and (group := before.pop()) in ways
                and len(parts[group]) < ways[group].capacity(nbytes)
                and places[inside[0]][1] == places[parts[group][0]][1]
            ):
                parts[group] += inside
                group_of[inside[0]] = group
                continue
            for part in [inside] if how is not None else [[i] for i in inside]:
                for i in part:
                    group_of[i] = len(parts)
                if how is not None:
                    ways[len(parts)] = how
                parts.append(part)
        made = {
            kernel: replace(how, threads=threads.get(kernel, 0)) for kernel, how in known.items() if isinstance(how, Batching)
        }
        batches = [
            Batched(made[how.kernel] if isinstance(how, Batching) else how, _size(len(parts[group]), how.capacity(nbytes)))
            for group, how in ways.items()
        ]
        number = {group: n for n, group in enumerate(ways)}
        order = [i for part in parts for i in part]
        return Grouping(order, group_of, tuple(batches), [number.get(group, -1) for group in range(len(parts))], refused)

    def _launch(self, i: int) -> KernelNode:
        node = self.nodes[i]
        assert isinstance(node, KernelNode)
        return node

    def _leaves_free(self, inside: Sequence[int]) -> bool:
        """Return whether launches of equal blocks have fewer of them than the device has multiprocessors, or as many."""
        block: int = math.prod(self._launch(inside[0]).block)
        threads = [self.nodes[i].threads or math.inf for i in inside]  # those that a parameter decides may be any number
        return sum(threads) <= self.target.multiprocessors * block

    def _alike(self, node: AnyNode) -> tuple[Any, ...] | None:
        """Return what launches of one batch have in common; None for a node that is in none."""
        if not isinstance(node, KernelNode) or 0 < self.target.resident_threads <= node.least_threads:
            return None  # what fills the device by itself gains nothing
        return node.alike


def _pays(inside: Sequence[int], runs: Mapping[int, int], *, free: bool) -> bool:
    """Return whether launches, which may leave multiprocessors free, are better one than in chains, or by themselves."""
    longest = max([runs.get(i, 0) for i in inside])
    return longest < len(inside) if len(inside) >= _FEWEST else free and longest == 0


def shared_bytes_of(kernels: Iterable[Kernel]) -> int:
    """Return the bytes of shared memory that an entry point of these kernels has."""
    return sum(kernel.static_shared_bytes or 0 for kernel in kernels)


def link_of(node: AnyNode, known: dict[int, bool]) -> tuple[Module, Any] | None:
    """Return what launches that one block may do, one behind the other, have in common; None for a node that is in no chain.

    `known` says for kernels, by their `id`, whether they can be in a chain, and is filled here.
    """
    if not isinstance(node, KernelNode) or node.grid != (1, 1, 1) or node.shared_bytes or node.alike is None:
        return None
    kernel = node.kernel
    chained = known.get(id(kernel))
    if chained is None:
        chained = known[id(kernel)] = not unchained(kernel)
    return (kernel.module, node.block) if chained else None


def _size(count: int, most: int) -> int:
    """Return the size of a table for so many launches."""
    while most // _SIZES >= count:
        most //= _SIZES
    return most


def _batching(kernel: Kernel, target: Target) -> Batching | str:
    """Return how launches of a kernel are batched on a target, or why they are not."""
    how = batching(kernel)
    if not isinstance(how, str) and how.capacity(target.parameter_bytes) < _FEWEST:
        return "its arguments are too large for a table of several launches"
    return how
