"""Sharing: who of several processes does which node of a workflow, and what crosses between them.

Data flow: `Workflow` and `Layout` -> the rank of each node, and messages where memory crosses between ranks. All ranks compute
the same from the same workflow; `partition` takes what one rank does from it, `simulation` says when it would be done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ..arrays import Array, ArrayView, ExternalArray, HostArray, as_int
from ..collectives import CollectiveNode, dtype_name, replaced
from ..draft import Draft
from ..errors import DeclarationError, node_error
from ..kernels import Symbol
from ..nodes import HostNode, MemcpyNode, SemaphoreSignalNode, SemaphoreWaitNode
from ..placement import device_of
from ..plan.inlining import cycle_error
from ..workflow import AnyNode, ConditionalNode, Level, Workflow
from .links import per_link
from .spread import put_child, put_conditional

ALL: Final = -1
"""Stands for every rank."""

Ranks = int | tuple[int, int]
"""Who does a node: one rank, `ALL`, or the sender and the receiver of a copy that crosses between two."""

MOST_RANKS: Final = 1 << 20
"""So many ranks may be imagined."""

DATA: Final = ("RAW ", "WAR ", "WAW ")
"""What the reasons of edges begin with that memory orders."""


@dataclass(frozen=True)
class Layout:
    """Which rank each device belongs to; devices are numbered through the ranks in order."""

    counts: tuple[int, ...]  # devices of each rank
    first_local: int = 0  # the number that this rank's first device has in its own process
    imagined: bool = False  # whether there are no processes, so that devices keep their numbers

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.counts)

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """For each rank the number of its first device."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    def rank_of(self, device: int, what: str) -> int:
        """Return the rank that a device belongs to; refuse one that no rank has."""
        total = self.firsts[-1] + self.counts[-1]
        if device < total:
            return bisect_right(self.firsts, device) - 1
        raise DeclarationError(
            f"{what} is on device {device}, and the ranks have {total} device{'s' * (total != 1)} together; start more, or give"
            " each more devices: hg.ranks(devices_per_rank=...)"
        )

    def shown(self, rank: int) -> str:
        """Return the numbers of a rank's devices as people read them: ``"3"``, or ``"4 to 7"``."""
        first, count = self.firsts[rank], self.counts[rank]
        return f"{first} to {first + count - 1}" if count > 1 else str(first)

    def local(self, device: int, rank: int) -> int:
        """Return the number that a device of a rank has in its own process."""
        return device if self.imagined else device - self.firsts[rank] + self.first_local


def as_layout(ranks: Any) -> Layout:
    """Return the layout of ranks that need not be there: how many, with a device each, the devices of each, or a `Ranks`."""
    given = getattr(ranks, "counts", ranks)
    number = as_int(given)
    if number is not None:
        given = [1] * number if number <= MOST_RANKS else []
    counts = device_counts(given)
    if not counts:
        raise DeclarationError(
            f"ranks is how many processes there are, with a device each, from 1 to {MOST_RANKS}, or a list of how many devices"
            f" each has, from 1 (got {ranks!r})"
        )
    return Layout(counts, imagined=True)


def device_counts(given: Any) -> tuple[int, ...]:
    """Return how many devices each rank has; nothing if a list of such numbers was not given."""
    counts = tuple(as_int(entry) or 0 for entry in given) if isinstance(given, (list, tuple)) else ()
    return counts if all(count > 0 for count in counts) else ()


class Between(NamedTuple):
    """What carries messages between the devices of ranks without the host."""

    does: Callable[[str, str], bool]  # tells of a collective's name and its dtype whether one call does it
    captured: bool = False  # whether messages are nodes of the graph; else the host puts them on streams between graphs


class Message(NamedTuple):
    """What crosses from one rank to another, or what all do together."""

    number: int  # its place in the order that all ranks share
    name: str  # the node's; of a message for an edge, both nodes'
    source: int  # a rank; `ALL` of a collective
    target: int  # likewise
    src: ArrayView | None = None  # what is sent; None for a message without bytes
    dst: ArrayView | None = None  # where it goes
    together: CollectiveNode | None = None  # the collective

    @property
    def moves(self) -> bool:
        """Whether it is a node's own bytes, not an order between nodes."""
        return self.dst is not None or self.together is not None

    @property
    def on_devices(self) -> bool:
        """Whether its bytes come from the memory of devices and go there."""
        views = () if self.src is None or self.dst is None else (self.src, self.dst)
        return self.together is not None or (bool(views) and not any(view.root.on_host for view in views))

    @property
    def nbytes(self) -> int:
        """Bytes that cross."""
        return 0 if self.src is None else self.src.nbytes


class Sharing:
    """Who does which node of a workflow, and what crosses between ranks.

    Raises
    ------
    DeclarationError
        If a node would reach memory of two ranks by anything but a copy, or a device belongs to no rank.
    """

    def __init__(
        self, workflow: Workflow, layout: Layout, between: Between | None = None, *, level: Level | None = None, first: int = 0
    ) -> None:
        self.layout = layout
        self.between = between
        self.inlined: set[str] = set()
        """Full names of children that several ranks do, whose nodes stand in their place: ``child: x`` for ``child/x``."""
        self.fixed: set[str] = set()
        """The nodes whose own bytes cross between ranks; collectives that go by copies among them."""
        self.owners: dict[str, int] = {}
        """For each array the rank that has it; `ALL` where each has its own."""
        self.workflow = workflow
        """The same, with nodes in the place of collectives that go by copies and of children that several ranks do, and with what
        tells ranks the conditions of nodes."""
        self._level = Level(workflow) if level is None else level
        self._find_owners(workflow)
        self._find_owners(self._with_declared_edges(self._level))
        self._open_up()
        copied = {i for i, node in enumerate(self.workflow.nodes) if _by_copies(node, layout, between)}
        self.fixed.update(self.workflow.nodes[i].name for i in copied)
        self._find_owners(replaced(self.workflow, copied, CollectiveNode.unfold) if copied else self.workflow)
        self.ranks: list[Ranks] = [ALL] * len(self.workflow.nodes)
        """Who does each node."""
        self.messages: dict[int, list[Message]] = {}
        """By the node that they belong to: its own bytes last, and before them what it waits for."""
        self.stages: dict[int, int] = {}
        """For each message how many others must have been done before it; those of one stage do not depend on each other."""
        self.bodies: dict[int, tuple[Sharing, ...]] = {}
        """The bodies of each conditional node that all ranks take part in."""
        self._reasons: dict[int, dict[int, str]] = {}
        self._share(first)

    @cached_property
    def all_messages(self) -> tuple[Message, ...]:
        """What crosses in one launch, in the order that all ranks share; in bodies of conditional nodes each time they run."""
        inside = (message for bodies in self.bodies.values() for body in bodies for message in body.all_messages)
        return tuple(sorted((*self.outer_messages, *inside), key=lambda message: message.number))

    @property
    def outer_messages(self) -> tuple[Message, ...]:
        """What crosses in one launch, without what crosses in bodies of conditional nodes."""
        return tuple(message for made in self.messages.values() for message in made)

    @property
    def prefix(self) -> str:
        """What full names of its nodes begin with."""
        return self._level.prefix

    def arrays_of(self, rank: int) -> Iterator[Array]:
        """Yield the arrays that a rank has, in order of declaration."""
        arrays = self.workflow.arrays
        return (arrays[name] for _, name in sorted(self._arrays.get(rank, []) + self._arrays.get(ALL, [])))

    def nodes_of(self, rank: int) -> list[int]:
        """Return the nodes that a rank does, sends or receives for, or must know the order of, in topological order."""
        mine, common = self._nodes.get(rank, []), self._nodes.get(ALL, [])
        order = self.workflow.order
        return [order[at] for at in (sorted(mine + common) if common else mine)]

    def reasons_of(self, i: int) -> Mapping[int, str]:
        """Return what a node waits for, each with the reason."""
        if i not in self._reasons:
            self._reasons[i] = dict(zip(self.workflow.predecessors[i], self.workflow.reasons[i]))
        return self._reasons[i]

    def touches_shared(self, node: AnyNode) -> bool:
        """Return whether a node touches arrays that each rank has for itself."""
        return ALL in self._arrays and any(self.owners.get(access.view.root.name) == ALL for access in node.accesses)

    @cached_property
    def _arrays(self) -> dict[int, list[tuple[int, str]]]:
        """For each rank, and for `ALL`, its arrays by number and name."""
        found: dict[int, list[tuple[int, str]]] = {}
        for number, name in enumerate(self.workflow.arrays):
            found.setdefault(self.owners[name], []).append((number, name))
        return found

    @cached_property
    def _nodes(self) -> dict[int, list[int]]:
        """For each rank the places in the order of the nodes that it has to do with; for `ALL` those that every rank has."""
        found: dict[int, list[int]] = {}
        for at, i in enumerate(self.workflow.order):
            ranks = self.ranks[i]
            who = set(ranks) if isinstance(ranks, tuple) else {ranks}
            for message in self.messages.get(i, ()):
                who |= {message.source, message.target}
            if ALL in who or self.touches_shared(self.workflow.nodes[i]):
                who = {ALL}
            for rank in who:
                found.setdefault(rank, []).append(at)
        return found

    def _find_owners(self, workflow: Workflow) -> None:
        """Take a workflow in the place of the one before."""
        level = self._level
        if self.owners and workflow is self.workflow:
            return
        if level.workflow is not workflow:
            self._level = level = Level(workflow, level.parent, level.node, level.key, level.bind)
        if workflow.nodes and not workflow.order:
            raise cycle_error(workflow, level.prefix)
        self.workflow = workflow
        owners = {name: level.resolve(array)[1] if name in level.bind else array for name, array in workflow.arrays.items()}
        self.owners = {name: self._owner(array) if isinstance(array, Array) else ALL for name, array in owners.items()}

    def _with_declared_edges(self, level: Level) -> Workflow:
        """Return a level's workflow with "after" as the reason of each declared edge that no memory of one rank orders.

        Such an edge bears the memory as its reason where both nodes touch it, and what one rank does to memory that each rank has
        for itself orders no other rank.
        """
        workflow = level.workflow
        declared = {node.name: {*node.after} for node in workflow.nodes if node.after}
        for before, behind in workflow.ordered:
            declared.setdefault(behind, set()).add(before)
        if not declared:
            return workflow
        roots = (*workflow.arrays.values(), *(parameter for parameter in workflow.parameters.values() if parameter.shape))
        of_one = {root.name for root in roots if self._of_root(root, level) != ALL}
        reasons = list(workflow.reasons)
        for name, sources in declared.items():
            i = workflow.index[name]
            told = (workflow.nodes[source].name in sources for source in workflow.predecessors[i])
            reasons[i] = tuple(
                "after" if t and r.startswith(DATA) and r[4:] not in of_one else r for t, r in zip(told, workflow.reasons[i])
            )
        return workflow if tuple(reasons) == workflow.reasons else replace(workflow, reasons=tuple(reasons))

    def _open_up(self) -> None:
        """Replace children that several ranks do by their nodes, and let all ranks take part in such conditional nodes."""
        opened: set[str] = set()
        while which := {i for i, node in enumerate(self.workflow.nodes) if node.name not in opened and self._is_spread(node)}:

            def put(node: AnyNode, draft: Draft) -> None:
                if isinstance(node, ConditionalNode):
                    opened.add(node.name)
                    owner = self._of_root(node.condition.root, self._level)
                    if owner == ALL:
                        raise node_error(
                            node.name,
                            "its bodies do work of several ranks, which must decide alike, and each has"
                            f" {node.condition.name!r} for itself; let the condition be memory of one rank",
                        )
                    put_conditional(node, self._level, owner, self.layout.firsts, draft)
                else:
                    self.inlined.add(self.prefix + node.name)
                    inner = next(self._level.inner(node))
                    put_child(inner, self._with_declared_edges(inner).reasons, draft)

            self._find_owners(replaced(self.workflow, which, put))

    def _is_spread(self, node: AnyNode) -> bool:
        """Return whether a node holds work of several ranks."""
        return not isinstance(node, CollectiveNode) and bool(node.held) and len({*self._inside(node, self._level)} - {ALL}) > 1

    def _owner(self, array: Array) -> int:
        if isinstance(array, ExternalArray):
            return ALL  # each rank gives its own
        if not isinstance(array, HostArray):
            return self.layout.rank_of(array.device or 0, f"array {array.name!r}")
        if array.rank == "all":
            return ALL
        if array.rank >= self.layout.size:
            there = f"{self.layout.size} rank{'s' * (self.layout.size != 1)}"
            raise DeclarationError(f"array {array.name!r} belongs to rank {array.rank}, and there are {there}", array=array.name)
        return array.rank

    def _share(self, first: int) -> None:
        workflow, order = self.workflow, self.workflow.order
        reached = [0] * len(workflow.nodes)  # how many messages the longest path to the end of each node goes through
        count = first
        for i in order:
            node, sources = workflow.nodes[i], workflow.predecessors[i]
            mine = self.ranks[i] = self._ranks_of(node, i)
            stage = max((reached[source] for source in sources), default=0)
            made: list[Message] = []
            waits: dict[tuple[int, int], str] = {}
            for source, reason in zip(sources, workflow.reasons[i]):
                for ends in () if reason.startswith(DATA) else self._signals(self.ranks[source], mine):
                    waits.setdefault(ends, workflow.nodes[source].name)
            for number, ((begin, end), name) in enumerate(waits.items(), count):
                made.append(Message(number, f"{name} -> {node.name}", begin, end))
                self.stages[number] = stage
            stage += bool(waits)
            count += len(waits)
            if isinstance(mine, tuple):
                assert isinstance(node, MemcpyNode)
                made.append(Message(count, node.name, *mine, node.src, node.dst))
            elif isinstance(node, CollectiveNode) and _crosses(node, self.layout):
                made.append(Message(count, node.name, ALL, ALL, together=node))
            elif self._is_spread(node):
                count = self._share_bodies(i, node, count)
            elif node.held:
                self._own_inside(node, self._level, _last(mine))
            if len(made) > len(waits):  # its own
                self.fixed.add(node.name)
                self.stages[count] = stage
                stage += 1
                count += 1
            reached[i] = stage
            if made:
                self.messages[i] = made

    def _share_bodies(self, i: int, node: AnyNode, count: int) -> int:
        """Share out the bodies of a conditional node that all ranks take part in; return the number of the next message."""
        made: list[Sharing] = []
        for inner in self._level.inner(node):
            body = Sharing(inner.workflow, self.layout, self.between, level=inner, first=count)
            count += len(body.all_messages)
            self.inlined |= body.inlined
            made.append(body)
            self.owners.update((f"{inner.key}/{name}", owner) for name, owner in body.owners.items() if name not in inner.bind)
        self.bodies[i] = tuple(made)
        return count

    def _ranks_of(self, node: AnyNode, index: int) -> Ranks:
        if isinstance(node, CollectiveNode) and _crosses(node, self.layout):
            return ALL
        if isinstance(node, MemcpyNode):
            target, source = self._of_root(node.dst.root, self._level), self._of_root(node.src.root, self._level)
            if ALL in (source, target) or source == target:
                return max(source, target)
            return source, target
        if isinstance(node, (SemaphoreSignalNode, SemaphoreWaitNode)):
            raise node_error(
                node.name,
                f"an external semaphore belongs to one process, and this graph's devices to {self.layout.size}; let a message"
                " order the ranks: g.order(a, b)",
            )
        touched = set(self._inside(node, self._level))
        found = touched - {ALL}
        if len(found) > 1:
            if node.held:
                return ALL
            raise DeclarationError(self._apart(node, sorted(found)), node=node.name)
        if found:
            return found.pop()
        if touched:
            return ALL
        if isinstance(node, HostNode):
            return 0
        # What only orders others is done where the first of them is.
        return next((rank for p in self.workflow.predecessors[index] if (rank := _last(self.ranks[p])) != ALL), 0)

    def _inside(self, node: AnyNode, level: Level) -> list[int]:
        """Return the ranks of what a node and those inside it touch."""
        roots = dict.fromkeys([access.view.root for access in node.own_accesses])
        roots.update(dict.fromkeys([view.root for view in node.addresses]))
        found = [self._of_root(root, level) for root in roots]
        found += [self._owner(array) for array in (node.made, node.freed) if array is not None]
        if node.placed and (getattr(node, "device", None) is not None or not found):
            device = device_of(node, 0, level)
            if device is not None:
                found.append(self.layout.rank_of(device, f"node {level.name(node)!r}"))
        for inner in level.inner(node):
            for array in inner.workflow.arrays.values():
                if array.name not in inner.bind:
                    found.append(self._owner(array))
            for member in inner.workflow.nodes:
                found += self._inside(member, inner)
        return found

    def _of_root(self, root: Any, level: Level) -> int:
        """Return the rank of an array, or of what it finally stands for."""
        name = root.name
        if level is self._level and self.workflow.arrays.get(name) is root:
            return self.owners[name]
        root = level.resolve(root)[1]
        if not isinstance(root, Array) or isinstance(root, Symbol):
            return ALL  # a parameter stands for memory of whoever launches; a module's variable is on each device
        return self._owner(root)

    def _own_inside(self, node: AnyNode, level: Level, rank: int) -> None:
        """Note that what a node holds belongs to its rank, with its arrays."""
        for inner in level.inner(node):
            self.owners.update((name, rank) for name, _ in inner.own_arrays())
            for member in inner.workflow.nodes:
                self._own_inside(member, inner, rank)

    def _signals(self, before: Ranks, behind: Ranks) -> list[tuple[int, int]]:
        """Return from which rank to which others an edge must be told: to those that do not take part in what comes before."""
        if before == ALL:
            return []
        ends = before if isinstance(before, tuple) else (before,)
        if behind == ALL:
            return [(ends[-1], rank) for rank in range(self.layout.size) if rank not in ends]
        begins = behind if isinstance(behind, tuple) else (behind,)
        return [] if set(ends) & set(begins) else [(ends[-1], begins[0])]

    def _apart(self, node: AnyNode, ranks: list[int]) -> str:
        arrays = {a.view.root.name: self.owners.get(a.view.root.name, ALL) for a in node.accesses}
        where = ", ".join(f"{name!r} (rank {rank})" for name, rank in arrays.items() if rank != ALL)
        return (
            f"node {node.name!r} touches {where or f'memory of ranks {ranks}'}, and no code reaches the memory of another rank;"
            " copy what it needs to an array of its own rank"
        )


def _last(ranks: Ranks) -> int:
    """Return the rank that knows when a node has ended."""
    return ranks[1] if isinstance(ranks, tuple) else ranks


def _ranks_in(views: Sequence[ArrayView], layout: Layout, node: CollectiveNode) -> list[int]:
    return [layout.rank_of(view.root.device or 0, f"node {node.name!r}") for view in views]


def _crosses(node: CollectiveNode, layout: Layout) -> bool:
    """Return whether several ranks take part in a collective."""
    return len(set(_ranks_in((*node.targets, *node.sources), layout, node))) > 1


def _by_copies(node: AnyNode, layout: Layout, between: Between | None) -> bool:
    """Return whether a node is a collective that several ranks take part in, and not one that a single call does."""
    if not isinstance(node, CollectiveNode) or not _crosses(node, layout):
        return False
    all_ranks = list(range(layout.size))
    many = node.sources if node.does == "reduce" else node.targets
    fits = _ranks_in(many, layout, node) == all_ranks and all(
        _ranks_in([view], layout, node) == [rank] for rank in all_ranks for view in node.views_of(rank) if view is not None
    )
    return between is None or node.exact or not fits or not between.does(node.does, dtype_name(many[0].dtype))


def crossing(messages: Sequence[Message]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each pair of ranks (sender, receiver) how many messages cross and how many bytes, without collectives."""
    return per_link(((message.source, message.target), message.nbytes) for message in messages if message.together is None)
