"""Batches: launches of one kernel merged into one launch, if no path orders the nodes and they have the same predecessors.

Nodes are grouped in topological order: two nodes are in one group if they launch the same kernel with blocks of the same shape
and wait for the same groups. Therefore no path connects two nodes of a group, the dependencies between groups have no cycle, and
once its preceding groups have ended, a group can begin as early as each of its nodes could.

A successor of one node of a batch waits for the whole batch. In automatic mode, nodes with successors share a batch only if their
grids are equal, so that their durations are assumed equal, and if the device can hold all their blocks at once: no node then ends
later than it would alone. A kernel is batched only if this saves more, over the assumed number of launches of a graph, than
compiling an entry point costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, Literal

from ...kernels import Kernel, Module
from ...nodes import Node
from ...nodes.facets import KernelLaunch
from ...order import chains
from ...plan.lanes import Cover
from ...plan.merged import Grouping, Merged, MergedLaunch
from ...plan.steps import Step
from ...target import Target
from .batching import Batching, batching
from .mixes import mixable
from .switching import Chaining, Mixing, Switching, mixing, unchained, unswitched

_FEWEST: Final = 4
"""Number of parallel launches from which a batch may pay on a full device too: on an H200 a level of two launches, each of which
waits for both launches of the previous level, takes 1.0 us, a level of four 1.7 us, and a level that is one batch 0.8 us."""

_FEWEST_APART: Final = 2
"""Like `_FEWEST`, for launches in no chain with at most one block per multiprocessor: on an H200, 1024 empty kernels in a stack
of diamonds, every third of them alone in its level, take 325 us with batches and 387 us without (`bench lanes`)."""

LAUNCHES: Final = 100_000
"""Assumed number of launches of a graph, in this process and in other processes that reuse its cached entry points."""

SHARED_BYTES: Final = 48 << 10
"""Limit of the static shared memory of all kernels of an entry point: the compiler allocates their variables without overlap."""

_SIZES: Final = 4
"""Ratio of consecutive table sizes of a kernel: there are few sizes, because each must be compiled."""


@dataclass(frozen=True)
class Batched(Merged):
    """A batch or a chain of launches."""

    batching: Batching | Switching
    """How the launches run: in parallel, or one after another."""
    capacity: int
    """How many launches the table of its entry point holds."""

    @property
    def kind(self) -> Literal["batch", "chain"]:
        return "chain" if isinstance(self.batching, Chaining) else "batch"

    def prepare(self, others: Sequence[Merged], shared: Any, device: int) -> int:
        how = self.batching

        def capacities() -> list[int]:
            return sorted({other.capacity for other in others if isinstance(other, Batched) and other.batching == how})

        entry: int = shared.entry(how, self.capacity, capacities, device)
        return entry

    def resolve(
        self, others: Sequence[Merged], steps: Sequence[Step], operations: Sequence[Any], shared: Any, device: int
    ) -> MergedLaunch | None:
        from .operations import batch_of

        entry = partial(self.prepare, others, shared, device)
        return batch_of(self.batching, self.capacity, steps, operations, shared, device, entry)


@dataclass(frozen=True)
class Batcher:
    """Find batches among the nodes of a workflow."""

    nodes: Sequence[Node]
    order: Sequence[int]  # topological
    cover: Cover  # the reduced edges, and depths along them
    places: Sequence[tuple[int | None, int]]  # device and segment of each node; all nodes of a batch share both
    target: Target
    automatic: bool
    """Whether to batch only where that pays and, judging by the grids, does not delay a successor of any single node."""

    def candidates(self) -> list[Kernel | Module]:
        """Return the kernels that may have batches, and the modules whose kernels may be mixed.

        This considers only depths: all nodes of a batch have the same depth, because their predecessors do.
        """
        depths = self.cover.depths
        shared = {depth for depth, count in Counter(depths).items() if count > 1}
        if not shared:
            return []
        beside = Counter([(kernel, at) for node, at in zip(self.nodes, depths) if at in shared for kernel in node.kernels])
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
        """Return the kernels and modules whose batches save less than compiling their entry point costs, each with the reason.

        `branches` is the number of lanes that all batches together save.
        """
        saved: Counter[Kernel | Module] = Counter()
        for group, size in Counter(group for group in grouping.group_of if grouping.batch_of[group] >= 0).items():
            batch = grouping.batches[grouping.batch_of[group]]
            assert isinstance(batch, Batched)
            how = batch.batching
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
        """Return the grouping of the nodes: batches of the given kernels, and mixed batches of kernels of the given modules."""
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
        """Return groups, the group of each node, and kernels that would have large groups but cannot be batched, with reasons."""
        nodes, deps, places, even = self.nodes, self.cover.reduced, self.places, self.automatic
        nbytes, resident = self.target.parameter_bytes, self.target.resident_threads
        kinds = {  # for each kernel its number, which is faster to compare, and the most launches a batch of it holds
            kernel: (n, 0 if isinstance(how, str) else how.capacity(nbytes)) for n, (kernel, how) in enumerate(known.items())
        }
        open_groups: dict[Any, int] = {}
        others: Counter[Any] = Counter()  # numbers of launches that could be one batch if their kernel allowed it
        group_of, members, room = [0] * len(nodes), list[list[int]](), dict[int, int]()
        nothing = frozenset[int]()
        for i in self.order:
            node, group = nodes[i].launched, -1
            kind = kinds.get(node.kernel) if node is not None else None
            if node is not None and kind is not None and (alike := self._alike(node)) is not None:
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
        """Join groups without successors, regardless of their grids and durations."""
        deps = self.cover.reduced
        followed = {group_of[source] for sources in deps for source in sources}
        first: dict[Any, list[int]] = {}
        for group, inside in enumerate(members):
            node = self.nodes[inside[0]].launched
            how = known.get(node.kernel) if node is not None else None
            if node is None or group in followed or not isinstance(how, Batching) or (alike := self._alike(node)) is None:
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
        """Return a key for each group: groups of one mixed batch have equal keys; a group that fits none has its own number."""
        kinds: list[Hashable] = []
        for group, inside in enumerate(members):
            node = self.nodes[inside[0]].launched if inside else None
            if node is not None and node.alike and node.kernel.module in modules and not unswitched(node.kernel):
                kinds.append((self.cover.depths[inside[0]], node.kernel.module, node.alike[1:], self.places[inside[0]]))
            else:
                kinds.append(group)
        return kinds

    def _runs(self) -> dict[int, int]:
        """Return the nodes that are in a linear chain, each with the number of nodes that one launch could run with it."""
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
        """Merge the groups of each set into its first group where that pays; return the `Mixing` by the first node of the set."""
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
        """Return the groups in topological order; split groups that are too small into single nodes.

        An empty node that waits only for one batch is added to it: its successors then wait for the batch.
        """
        nodes, places, nbytes = self.nodes, self.places, self.target.parameter_bytes
        deps, depths = self.cover.reduced, self.cover.depths
        group_of = [0] * len(nodes)
        parts: list[list[int]] = []
        ways: dict[int, Batching | Mixing] = {}
        threads: dict[Kernel, int] = {}  # of the largest block if each batch of the kernel passes `_leaves_free`; else 0
        for inside in sorted(filter(None, members), key=lambda inside: depths[inside[0]]):
            node = nodes[inside[0]].launched
            how: Batching | Mixing | str | None = mixed.get(inside[0])
            if how is None and node is not None and len(inside) >= _FEWEST_APART:
                free = self._leaves_free(inside)
                if _pays(inside, runs, free=free):
                    how = known[node.kernel]
                    most = threads.get(node.kernel, 1)
                    threads[node.kernel] = max(most, math.prod(node.block)) if free and most else 0
            assert not isinstance(how, str)
            before = {group_of[source] for source in deps[inside[0]]} if nodes[inside[0]].idle else ()
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

    def _launch(self, i: int) -> KernelLaunch:
        launch = self.nodes[i].launched
        assert launch is not None
        return launch

    def _leaves_free(self, inside: Sequence[int]) -> bool:
        """Return whether launches with blocks of one size together have at most one block per multiprocessor of the device."""
        block: int = math.prod(self._launch(inside[0]).block)
        threads = [self.nodes[i].threads or math.inf for i in inside]  # unknown if a parameter sets the grid
        return sum(threads) <= self.target.multiprocessors * block

    def _alike(self, node: KernelLaunch) -> tuple[Any, ...] | None:
        """Return the key that launches of one batch share; None for one that cannot be batched."""
        if 0 < self.target.resident_threads <= node.least_threads:
            return None  # a launch that fills the device alone gains nothing
        return node.alike


def _pays(inside: Sequence[int], runs: Mapping[int, int], *, free: bool) -> bool:
    """Return whether one batch beats chains or single launches; `free` says that the launches leave multiprocessors free."""
    longest = max([runs.get(i, 0) for i in inside])
    return longest < len(inside) if len(inside) >= _FEWEST else free and longest == 0


def shared_bytes_of(kernels: Iterable[Kernel]) -> int:
    """Return the bytes of static shared memory of an entry point for these kernels."""
    return sum(kernel.static_shared_bytes or 0 for kernel in kernels)


def link_of(node: Node, known: dict[int, bool]) -> tuple[Module, Any] | None:
    """Return the key shared by launches that one block can run one after another; None for a node that cannot be chained.

    `known` caches by the `id` of a kernel whether it can be chained.
    """
    launch = node.launched
    if launch is None or launch.grid != (1, 1, 1) or launch.shared_bytes or launch.alike is None:
        return None
    kernel = launch.kernel
    chained = known.get(id(kernel))
    if chained is None:
        chained = known[id(kernel)] = not unchained(kernel)
    return (kernel.module, launch.block) if chained else None


def _size(count: int, most: int) -> int:
    """Return the size of a table for `count` launches."""
    while most // _SIZES >= count:
        most //= _SIZES
    return most


def _batching(kernel: Kernel, target: Target) -> Batching | str:
    """Return how to batch launches of a kernel on a target, or the reason why that is impossible."""
    how = batching(kernel)
    if not isinstance(how, str) and how.capacity(target.parameter_bytes) < _FEWEST:
        return "its arguments are too large for a table of several launches"
    return how
