"""Partition: the part of a workflow that one rank does, when its devices belong to several processes.

Data flow: `Workflow` and `Layout` -> who does what, and messages where memory crosses between ranks -> `Part`, which holds a
workflow of this rank's nodes alone. Every rank computes the same messages in the same order, from the same workflow.

Memory belongs to one rank, so whatever two nodes of different ranks do to each other goes through a message: that of a copy
whose sides belong to two ranks, or an empty one for an edge that somebody declared. A rank does its messages in the order that
all ranks compute alike, those together that it may do at once. Take the first message of that order that is not done: both of
its ranks have done all before it, so both are at it. Hence no rank can wait for another in a circle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

from .arrays import Access, Array, ArrayView, DeviceArray, ExternalArray, HostArray
from .collectives import CollectiveNode, dtype_name, unfolded
from .errors import DeclarationError
from .kernels import Symbol
from .nodes import CapturedNode, EagerNode, HostNode, MemcpyNode, SemaphoreSignalNode, SemaphoreWaitNode
from .placement import device_of
from .workflow import AnyNode, ChildGraphNode, ConditionalNode, Level, Workflow

ALL: Final = -1
"""Stands for every rank."""

Ranks = int | tuple[int, int]
"""Who does a node: one rank, `ALL`, or the sender and the receiver of a copy that crosses between two."""

_DATA: Final = ("RAW ", "WAR ", "WAW ")


@lru_cache(maxsize=8)
def _borders(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return for each rank the number of its first device, and the number of all devices."""
    return (0, *accumulate(counts))


class Layout(NamedTuple):
    """Which rank each device belongs to.

    Attributes
    ----------
    counts : tuple of int
        Devices of each rank; devices are numbered through the ranks in order.
    first_local : int
        The number that this rank's first device has in its own process.
    """

    counts: tuple[int, ...]
    first_local: int = 0

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.counts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """For each rank the number of its first device."""
        return _borders(self.counts)[:-1]

    def rank_of(self, device: int, what: str) -> int:
        """Return the rank that a device belongs to; refuse one that no rank has."""
        borders = _borders(self.counts)
        total = borders[-1]
        if device < total:
            return bisect_right(borders, device) - 1
        raise DeclarationError(
            f"{what} is on device {device}, and the ranks have {total} device{'s' * (total != 1)} together; start more, or give"
            " each more devices: hg.ranks(devices_per_rank=...)"
        )

    def local(self, device: int, rank: int) -> int:
        """Return the number that a device of a rank has in its own process."""
        return device - self.firsts[rank] + self.first_local


class Together(NamedTuple):
    """What all ranks do together by one call of a library, each with one device: a collective.

    Attributes
    ----------
    does, op, root
        As in `CollectiveNode`.
    targets, sources : tuple of ArrayView
        Those of rank k are at k; ``"reduce"`` has one target and ``"broadcast"`` one source, of rank `root`.
    """

    does: str
    op: str
    root: int
    targets: tuple[ArrayView, ...]
    sources: tuple[ArrayView, ...]

    @property
    def part_bytes(self) -> int:
        """Bytes that one rank gives; of a reduce_scatter that it gets, of an all_to_all that it gives to each."""
        if self.does == "all_to_all":
            return self.sources[0].nbytes // len(self.sources)
        return (self.targets if self.does == "reduce_scatter" else self.sources)[0].nbytes

    def of(self, rank: int) -> tuple[ArrayView | None, ArrayView | None]:
        """Return what a rank writes and what it reads."""
        found = []
        for views, one in ((self.targets, self.does == "reduce"), (self.sources, self.does == "broadcast")):
            found.append((views[0] if rank == self.root else None) if one else views[rank])
        return found[0], found[1]


class Between(NamedTuple):
    """What carries messages between the devices of ranks without the host.

    Attributes
    ----------
    does : callable
        Tells of a collective's name and its dtype whether one call does it.
    captured : bool
        Whether messages are nodes of the graph; else the host puts them on streams between graphs.
    """

    does: Callable[[str, str], bool]
    captured: bool = False


class Message(NamedTuple):
    """What crosses from one rank to another, or what all do together.

    Attributes
    ----------
    number : int
        Its place in the order that all ranks share.
    name : str
        The node's name; of a message for an edge, both nodes'.
    source, target : int
        Ranks; `ALL` of a collective.
    src, dst : ArrayView or None
        What is sent, and where it goes; None for a message without bytes.
    together : Together or None
        The collective.
    """

    number: int
    name: str
    source: int
    target: int
    src: ArrayView | None = None
    dst: ArrayView | None = None
    together: Together | None = None

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


@dataclass(frozen=True)
class Part:
    """What one rank does.

    Attributes
    ----------
    workflow : Workflow
        Its nodes; an eager node for each group of messages that it sends or receives together.
    rank : int
    layout : Layout
    messages : tuple of Message
        Of all ranks, in order.
    owners : mapping of str to int
        For each array of the whole workflow the rank that has it; `ALL` where each has its own.
    """

    workflow: Workflow
    rank: int
    layout: Layout
    messages: tuple[Message, ...]
    owners: Mapping[str, int]


Exchange = Callable[[tuple[Message, ...], bool], Callable[..., None]]
"""Makes the function of a node, from messages and whether they go between devices: it gets a stream, and for each message with
bytes the array that it sends or receives, for a collective the arrays that it writes and reads, as far as there are two."""


class Sharing:
    """Who does which node of a workflow, and what crosses between ranks.

    Parameters
    ----------
    workflow : Workflow
    layout : Layout
    between : Between, optional

    Attributes
    ----------
    ranks : list
        For each node the rank that does it, `ALL`, or the ranks (sender, receiver) that a copy crosses between.
    messages : dict of int to list of Message
        By the node that they belong to: its own bytes last, and before them what it waits for.
    stages : dict of int to int
        For each message how many others must have been done before it; those of one stage do not depend on each other.
    owners : dict of str to int
        As in `Part`.
    workflow : Workflow
        The same, with the nodes of collectives in the place of those that several ranks take part in by copies.
    """

    def __init__(self, workflow: Workflow, layout: Layout, between: Between | None = None) -> None:
        self._layout = layout
        self.workflow = workflow = _across(workflow, layout, between)
        self.owners = {name: self._owner(array) for name, array in workflow.arrays.items()}
        self.ranks: list[Ranks] = [ALL] * len(workflow.nodes)
        self.messages: dict[int, list[Message]] = {}
        self.stages: dict[int, int] = {}
        self._level = Level(workflow)
        self._share()

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """What crosses in one launch, in the order that all ranks share."""
        return tuple(message for made in self.messages.values() for message in made)

    def _owner(self, array: Array) -> int:
        if isinstance(array, ExternalArray):
            return ALL  # each rank gives its own
        if not isinstance(array, HostArray):
            return self._layout.rank_of(array.device or 0, f"array {array.name!r}")
        if array.rank == "all":
            return ALL
        if array.rank >= self._layout.size:
            there = f"{self._layout.size} rank{'s' * (self._layout.size != 1)}"
            raise DeclarationError(f"array {array.name!r} belongs to rank {array.rank}, and there are {there}", array=array.name)
        return array.rank

    def _share(self) -> None:
        workflow, order = self.workflow, self.workflow.order
        reached = [0] * len(workflow.nodes)  # how many messages the longest path to the end of each node goes through
        count = 0
        for i in order:
            node, sources = workflow.nodes[i], workflow.predecessors[i]
            mine = self.ranks[i] = self._ranks_of(node, i)
            stage = max((reached[source] for source in sources), default=0)
            made: list[Message] = []
            waits: dict[tuple[int, int], str] = {}
            for source, reason in zip(sources, workflow.reasons[i]):
                for ends in () if reason.startswith(_DATA) else self._signals(self.ranks[source], mine):
                    waits.setdefault(ends, workflow.nodes[source].name)
            for (begin, end), name in waits.items():
                made.append(Message(count + len(made), f"{name} -> {node.name}", begin, end))
                self.stages[made[-1].number] = stage
            stage += bool(waits)
            if isinstance(mine, tuple):
                assert isinstance(node, MemcpyNode)
                made.append(Message(count + len(made), node.name, *mine, node.src, node.dst))
                self.stages[made[-1].number] = stage
                stage += 1
            elif isinstance(node, CollectiveNode) and _crosses(node, self._layout):
                whole = Together(node.does, node.op, node.root, node.targets, node.sources)
                made.append(Message(count + len(made), node.name, ALL, ALL, together=whole))
                self.stages[made[-1].number] = stage
                stage += 1
            elif node.held:
                self._own_inside(node, self._level, _last(mine))
            reached[i] = stage
            if made:
                self.messages[i] = made
                count += len(made)

    def _ranks_of(self, node: AnyNode, index: int) -> Ranks:
        if isinstance(node, CollectiveNode) and _crosses(node, self._layout):
            return ALL
        if isinstance(node, MemcpyNode):
            target, source = self._of_view(node.dst, self._level), self._of_view(node.src, self._level)
            if ALL in (source, target) or source == target:
                return max(source, target)
            return source, target
        if isinstance(node, (SemaphoreSignalNode, SemaphoreWaitNode)):
            raise DeclarationError(
                f"node {node.name!r}: an external semaphore belongs to one process, and this graph's devices to"
                f" {self._layout.size}; let a message order the ranks: g.order(a, b)",
                node=node.name,
            )
        touched = set(self._inside(node, self._level))
        found = touched - {ALL}
        if len(found) > 1:
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
        found = [self._of_view(view, level) for view in (*(a.view for a in node.own_accesses), *node.addresses)]
        found += [self._owner(array) for array in (node.made, node.freed) if array is not None]
        if node.placed:
            device = device_of(node, 0, level)
            if device is not None and (getattr(node, "device", None) is not None or not found):
                found.append(self._layout.rank_of(device, f"node {level.name(node)!r}"))
        for inner in level.inner(node):
            for array in inner.workflow.arrays.values():
                if array.name not in inner.bind:
                    found.append(self._owner(array))
            for member in inner.workflow.nodes:
                found += self._inside(member, inner)
        return found

    def _of_view(self, view: ArrayView, level: Level) -> int:
        if level is self._level and view.root is self.workflow.arrays.get(view.root.name):
            return self.owners[view.root.name]
        root = level.resolve(view.root)[1]
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
            return [(ends[-1], rank) for rank in range(self._layout.size) if rank not in ends]
        begins = behind if isinstance(behind, tuple) else (behind,)
        return [] if set(ends) & set(begins) else [(ends[-1], begins[0])]

    def _apart(self, node: AnyNode, ranks: list[int]) -> str:
        if node.held:
            return (
                f"node {node.name!r} ({node.kind}) does work of ranks {', '.join(map(str, ranks))}, and belongs to one; let it"
                " touch the arrays of one rank, or declare its nodes in the graph itself"
            )
        arrays = {a.view.root.name: self.owners.get(a.view.root.name, ALL) for a in node.accesses}
        where = ", ".join(f"{name!r} (rank {rank})" for name, rank in arrays.items() if rank != ALL)
        return (
            f"node {node.name!r} touches {where or f'memory of ranks {ranks}'}, and no code reaches the memory of another rank;"
            " copy what it needs to an array of its own rank"
        )


def _last(ranks: Ranks) -> int:
    """Return the rank that knows when a node has ended."""
    return ranks[1] if isinstance(ranks, tuple) else ranks


def partition(
    workflow: Workflow,
    layout: Layout,
    rank: int,
    exchange: Exchange,
    *,
    through_host: bool = False,
    between: Between | None = None,
) -> Part:
    """Return what a rank does.

    Parameters
    ----------
    workflow : Workflow
        Whose devices are numbered through all ranks.
    layout : Layout
    rank : int
    exchange : callable
        Makes the functions that send and receive.
    through_host : bool
        Send from page-locked host memory and receive into it, for transports that reach no other.
    between : Between, optional
        What carries messages whose bytes come from devices and go to devices.

    Raises
    ------
    DeclarationError
        If a node would reach memory of two ranks by anything but a copy, or a device belongs to no rank.
    """
    return _Builder(layout, rank, Sharing(workflow, layout, between), exchange, through_host, between).part()


def _ranks_in(views: Sequence[ArrayView], layout: Layout, node: CollectiveNode) -> list[int]:
    return [layout.rank_of(view.root.device or 0, f"node {node.name!r}") for view in views]


def _crosses(node: CollectiveNode, layout: Layout) -> bool:
    """Return whether several ranks take part in a collective."""
    return len(set(_ranks_in((*node.targets, *node.sources), layout, node))) > 1


def _across(workflow: Workflow, layout: Layout, between: Between | None) -> Workflow:
    """Return a workflow with the nodes of collectives in the place of those that several ranks take part in by copies."""
    which = set()
    for i, node in enumerate(workflow.nodes):
        if isinstance(node, CollectiveNode) and _crosses(node, layout):
            all_ranks = list(range(layout.size))
            whole = Together(node.does, node.op, node.root, node.targets, node.sources)
            many = node.sources if node.does == "reduce" else node.targets
            fits = _ranks_in(many, layout, node) == all_ranks and all(
                _ranks_in([view], layout, node) == [rank] for rank in all_ranks for view in whole.of(rank) if view is not None
            )
            if between is None or node.exact or not fits or not between.does(node.does, dtype_name(many[0].dtype)):
                which.add(i)
    return unfolded(workflow, which) if which else workflow


class _Numbers:
    """Devices by the numbers that they have in the process of their rank."""

    def __init__(self, layout: Layout, rank: int) -> None:
        self._layout = layout
        self._rank = rank
        first = layout.firsts[rank]
        self._mine = range(first, first + layout.counts[rank])
        self._made: dict[Workflow, Workflow] = {}

    def array(self, array: Array) -> Array:
        """Return an array with its device in this process."""
        if array.on_host or isinstance(array, ExternalArray):
            return array
        access = tuple(self._layout.local(device, self._rank) for device in array.access if device in self._mine)
        device = self._layout.local(array.device or 0, self._rank)
        if device == array.device and access == array.access:
            return array
        return replace(array, device=device, access=access)

    def node(self, node: AnyNode, arrays: Mapping[str, Array] | None, parameters: Mapping[str, Any]) -> AnyNode:
        """Return a node with these arrays, on its device in this process; who waits for whom is told by edges alone.

        Parameters
        ----------
        arrays : mapping, optional
            None where all are those that it has.
        """
        made: Any = node if arrays is None else node.translated(arrays, parameters)
        fields: dict[str, Any] = {"after": ()} if node.after else {}
        device = getattr(node, "device", None)
        if device is not None and self._layout.local(device, self._rank) != device:
            fields["device"] = self._layout.local(device, self._rank)
        if isinstance(node, ChildGraphNode) and not isinstance(node, CollectiveNode):  # whose inside follows from its arrays
            fields["workflow"] = self._workflow(node.workflow)
        elif isinstance(node, ConditionalNode):
            fields["bodies"] = tuple(map(self._workflow, node.bodies))
        return made.changed(**fields) if fields else made  # type: ignore[no-any-return]

    def _workflow(self, workflow: Workflow) -> Workflow:
        made = self._made.get(workflow)
        if made is None:
            arrays = {name: self.array(array) for name, array in workflow.arrays.items()}
            others = arrays if any(array is not workflow.arrays[name] for name, array in arrays.items()) else None
            nodes = tuple(self.node(node, others, workflow.parameters) for node in workflow.nodes)
            made = self._made[workflow] = replace(workflow, arrays=arrays, nodes=nodes)
        return made


class _Builder:
    """Builds the workflow of one rank."""

    def __init__(
        self, layout: Layout, rank: int, sharing: Sharing, exchange: Exchange, through_host: bool, between: Between | None
    ) -> None:
        self._workflow = workflow = sharing.workflow
        self._layout = layout
        self._rank = rank
        self._sharing = sharing
        self._exchange = exchange
        self._through_host = through_host
        self._between = between
        self._numbers = _Numbers(layout, rank)
        mine = (array for name, array in workflow.arrays.items() if sharing.owners[name] in (rank, ALL))
        self._arrays = {array.name: self._numbers.array(array) for array in mine}
        same = all(array is workflow.arrays[name] for name, array in self._arrays.items())
        self._others = None if same else dict(self._arrays)
        """The arrays, where some are not those of the whole workflow."""
        self._names = {node.name for node in workflow.nodes}
        self._nodes: list[Any] = []
        self._edges: list[dict[int, str]] = []
        """For each node those that it waits for, with reasons."""
        self._ends: dict[int, tuple[int, ...]] = {}
        """For each node of the whole workflow that this rank knows, what it must have done here."""
        self._last: tuple[int, ...] = ()
        """The last exchange."""
        self._open: list[tuple[Message, dict[int, str], int]] = []
        """Messages that will go together: each with what it waits for, and the node that it belongs to."""

    def part(self) -> Part:
        """Return what the rank does."""
        workflow, sharing = self._workflow, self._sharing
        for i in workflow.order:
            ranks = sharing.ranks[i]
            here = self._rank in ranks if isinstance(ranks, tuple) else ranks in (self._rank, ALL)
            told: dict[int, str] = {}
            for message in sharing.messages.get(i, ()):
                if message.together is not None or self._rank in (message.source, message.target):
                    before = self._before(i) if message.moves or message.source != self._rank else self._told(i)
                    self._put(message, {**before, **told}, i)
                    if not message.moves and message.target == self._rank:
                        self._close()
                        told = dict.fromkeys(self._last, "message")
            if not here and i not in sharing.messages and self._shared(workflow.nodes[i]):
                self._ends[i] = tuple(self._before(i))  # what orders others by memory that each rank has orders them here too
            if here and not any(message.moves for message in sharing.messages.get(i, ())):
                before = {**self._before(i), **told}
                self._close()
                self._ends[i] = (self._add(self._numbers.node(workflow.nodes[i], self._others, workflow.parameters), before),)
        self._close()
        size = self._layout.size
        made = Workflow(
            workflow.name if size == 1 else f"{workflow.name} (rank {self._rank} of {size})",
            self._arrays,
            workflow.parameters,
            tuple(self._nodes),
            tuple(tuple(edges) for edges in self._edges),
            tuple(tuple(edges.values()) for edges in self._edges),
            workflow.infer,
        )
        return Part(made, self._rank, self._layout, sharing.all_messages, sharing.owners)

    # -- nodes

    def _shared(self, node: AnyNode) -> bool:
        """Return whether a node touches arrays that each rank has for itself."""
        owners = self._sharing.owners
        return any(owners.get(access.view.root.name) == ALL for access in node.accesses)

    def _add(self, node: Any, before: Mapping[int, str]) -> int:
        self._nodes.append(node)
        self._edges.append(dict(sorted(before.items())))
        return len(self._nodes) - 1

    def _before(self, i: int) -> dict[int, str]:
        """Return what a node waits for on this rank."""
        sources = zip(self._workflow.predecessors[i], self._workflow.reasons[i])
        return {at: reason for source, reason in sources for at in self._ended(source)}

    def _told(self, i: int) -> dict[int, str]:
        """Return what must be done before this rank may tell another that a node may begin."""
        return {at: reason for at, reason in self._before(i).items() if not reason.startswith(_DATA)}

    def _ended(self, source: int) -> tuple[int, ...]:
        if any(index == source for _, _, index in self._open):
            self._close()
        return self._ends.get(source, ())

    def _name(self, wanted: str) -> str:
        name = wanted
        while name in self._names:
            name += "~"
        self._names.add(name)
        return name

    # -- messages

    def _put(self, message: Message, before: dict[int, str], index: int) -> None:
        """Add a message to those that go together, or begin with it anew."""
        if self._open and self._kind(self._open[-1][0]) != self._kind(message):
            self._close()
        self._open.append((message, before, index))

    def _direct(self, message: Message) -> bool:
        """Return whether a message goes between devices without the host."""
        return self._between is not None and message.on_devices

    def _kind(self, message: Message) -> tuple[Any, ...]:
        """Return what messages that go together have in common; a collective goes alone."""
        return self._sharing.stages[message.number], self._direct(message), message.together and message.number

    def _close(self) -> None:
        """Make one node of the messages that go together."""
        together, self._open = self._open, []
        if not together:
            return
        before: dict[int, str] = dict.fromkeys(self._last, "message")
        views: list[tuple[ArrayView, bool]] = []
        behind: list[tuple[ArrayView, ArrayView, str]] = []
        direct = self._direct(together[0][0])
        for message, waits, _ in together:
            if message.together is not None:
                target, source = message.together.of(self._rank)
                views += [(self._view(view), sends) for view, sends in ((target, False), (source, True)) if view is not None]
                before.update(waits)
                continue
            sends = message.source == self._rank
            view = message.src if sends else message.dst
            if view is not None:
                view = self._view(view)
                if not view.contiguous or (self._through_host and not direct and not view.root.on_host):
                    view = self._staged(view, message.name, sends, waits, behind, on_host=self._through_host and not direct)
                views.append((view, sends))
            before.update(waits)
        messages = tuple(message for message, _, _ in together)
        first, more = messages[0], len(messages) - 1
        wanted = f"{first.name} and {more} more" if more else first.name
        kind = CapturedNode if direct and self._between is not None and self._between.captured else EagerNode
        node = kind(
            name=wanted if first.moves and not more else self._name(wanted),
            fn=self._exchange(messages, direct),
            args=tuple(view for view, _ in views),
            access=tuple(Access(view, "read" if sends else "write") for view, sends in views),
            device=self._layout.first_local,
        )
        at = self._add(node, before)
        self._last = (at,)
        ends = {}
        for view, staging, name in behind:
            copy = MemcpyNode(name=self._name(f"{name} (unpack)"), dst=view, src=staging)
            ends[name] = (self._add(copy, {at: f"RAW {staging.name}"}),)
        for message, _, index in together:
            if message.moves:
                self._ends[index] = ends.get(message.name, (at,))

    def _staged(
        self,
        view: ArrayView,
        name: str,
        sends: bool,
        before: dict[int, str],
        behind: list[tuple[ArrayView, ArrayView, str]],
        *,
        on_host: bool,
    ) -> ArrayView:
        """Return contiguous memory to send from or to receive into, with a copy from it or into it."""
        named = self._name(f"{name} (packed)")
        if on_host or view.root.on_host:
            array: Array = HostArray(named, view.shape, view.dtype)
        else:
            array = DeviceArray(named, view.shape, view.dtype, device=view.root.device)
        self._arrays[array.name] = array
        staging = array.as_view()
        if sends:
            copy = MemcpyNode(name=self._name(f"{name} (pack)"), dst=staging, src=view)
            at = self._add(copy, before)
            before[at] = f"RAW {array.name}"
        else:
            behind.append((view, staging, name))
        return staging

    def _view(self, view: ArrayView) -> ArrayView:
        root = self._arrays.get(view.root.name, view.root)
        return view if root is view.root else ArrayView(root, view.selection)


def crossing(messages: Sequence[Message]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each pair of ranks (sender, receiver) how many messages cross and how many bytes, without collectives."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for message in messages:
        if message.together is not None:
            continue
        count, nbytes = found.get((message.source, message.target), (0, 0))
        found[message.source, message.target] = count + 1, nbytes + message.nbytes
    return found
