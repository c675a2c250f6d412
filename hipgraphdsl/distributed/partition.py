"""Partition: the part of a workflow that one rank does, when its devices belong to several processes.

Data flow: `Sharing`, who does what and what crosses -> `Part`, which holds a workflow of this rank's nodes alone. Every rank
computes the same messages in the same order, from the same workflow. Once there is a `Sharing`, the part of a rank costs what
the rank's own nodes and messages cost.

Memory belongs to one rank, so whatever two nodes of different ranks do to each other goes through a message: that of a copy
whose sides belong to two ranks, or an empty one for an edge that somebody declared. A rank does its messages in the order that
all ranks compute alike, those together that it may do at once. Take the first message of that order that is not done: both of
its ranks have done all before it, so both are at it. Hence no rank can wait for another in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from ..arrays import Access, Array, ArrayView, DeviceArray, ExternalArray, HostArray, Parameter, reads, writes
from ..collectives import CollectiveNode
from ..nodes import CapturedNode, EagerNode, MemcpyNode
from ..nodes.values import unused
from ..workflow import AnyNode, ChildGraphNode, ConditionalNode, Workflow
from .sharing import ALL, DATA, Layout, Message, Sharing
from .spread import bindings, word_name


@dataclass(frozen=True)
class Part:
    """What one rank does: a workflow of its nodes, with an eager node for each group of messages that go together."""

    workflow: Workflow
    rank: int
    layout: Layout
    messages: tuple[Message, ...]  # of all ranks, in order
    owners: Mapping[str, int]  # as in `Sharing`
    inlined: Set[str] = frozenset()  # likewise
    fixed: Set[str] = frozenset()  # likewise

    def inside(self, name: str) -> str:
        """Return the name that ``child/x`` has here: ``child: x``, where the child's nodes stand in its place."""
        found, *rest = name.split("/")
        for part in rest:
            found += f": {part}" if found in self.inlined else f"/{part}"
        return found


Exchange = Callable[[tuple[Message, ...], bool], Callable[..., None]]
"""Makes the function of a node, from messages and whether they go between devices: it gets a stream, and for each message with
bytes the array that it sends or receives, for a collective the arrays that it writes and reads, as far as there are two."""


def partition(sharing: Sharing, rank: int, exchange: Exchange, *, through_host: bool = False) -> Part:
    """Return what a rank does; with `through_host` it sends from page-locked host memory and receives into it."""
    return _Builder(sharing, rank, exchange, through_host).part()


class _Builder:
    """Builds the workflow of one rank."""

    def __init__(self, sharing: Sharing, rank: int, exchange: Exchange, through_host: bool) -> None:
        self._workflow = workflow = sharing.workflow
        self._layout = sharing.layout
        self._rank = rank
        self._sharing = sharing
        self._exchange = exchange
        self._through_host = through_host
        self._between = sharing.between
        first = sharing.layout.firsts[rank]
        self._mine = range(first, first + sharing.layout.counts[rank])
        """The devices of this rank, by the numbers that the whole workflow has for them."""
        self._arrays = {array.name: self._here(array) for array in sharing.arrays_of(rank)}
        same = all(array is workflow.arrays[name] for name, array in self._arrays.items())
        self._others = None if same else dict(self._arrays)
        """The arrays, where some are not those of the whole workflow."""
        self._held: dict[Workflow, Workflow] = {}
        """What nodes hold, with this rank's arrays."""
        self._names: set[str] = set()
        """Those that are not of the whole workflow."""
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
        for i in sharing.nodes_of(self._rank):
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
            if not here and i not in sharing.messages and sharing.touches_shared(workflow.nodes[i]):
                self._ends[i] = tuple(self._before(i))  # what orders others by memory that each rank has orders them here too
            if here and not any(message.moves for message in sharing.messages.get(i, ())):
                before = {**self._before(i), **told}
                self._close()
                if i in sharing.bodies:  # its messages have their place in the order of all
                    before = {**dict.fromkeys(self._last, "message"), **before}
                    self._ends[i] = self._last = (self._add(self._conditional(i), before),)
                else:
                    node = self._node_here(workflow.nodes[i], self._others, workflow.parameters)
                    self._ends[i] = (self._add(node, before),)
        self._close()
        size = self._layout.size
        made = Workflow(
            workflow.name if size == 1 else f"{workflow.name} (rank {self._rank} of {size})",
            self._arrays,
            self._parameters(),
            tuple(self._nodes),
            tuple(tuple(edges) for edges in self._edges),
            tuple(tuple(edges.values()) for edges in self._edges),
            workflow.infer,
        )
        return Part(made, self._rank, self._layout, sharing.all_messages, sharing.owners, sharing.inlined, sharing.fixed)

    def _parameters(self) -> dict[str, Parameter]:
        """Return the parameters, of a body those arrays alone that its nodes use; unused ones do not stand for others' arrays."""
        used = {parameter for node in self._nodes for parameter in node.parameters}
        found: dict[str, Parameter] = {}
        for name, parameter in self._workflow.parameters.items():
            default = parameter.default.name if isinstance(parameter.default, Array) else parameter.default
            if not parameter.shape or parameter in used:
                found[name] = parameter
            elif not self._sharing.prefix:
                elsewhere = isinstance(default, str) and default not in self._arrays
                found[name] = replace(parameter, default=None) if elsewhere else parameter
        return found

    # -- devices by the numbers that they have in this process

    def _local(self, device: int) -> int:
        return self._layout.local(device, self._rank)

    def _here(self, array: Array) -> Array:
        """Return an array with its device in this process."""
        if array.on_host or isinstance(array, ExternalArray):
            return array
        access = tuple(self._local(device) for device in array.access if device in self._mine)
        device = array.device or 0
        device = self._local(device if device in self._mine else self._mine.start)  # else it is bound
        if device == array.device and access == array.access:
            return array
        return replace(array, device=device, access=access)

    def _node_here(self, node: AnyNode, arrays: Mapping[str, Array] | None, parameters: Mapping[str, Any]) -> AnyNode:
        """Return a node with these arrays (None: its own), on its device in this process; edges alone tell who waits for whom."""
        fields: dict[str, Any] = {"after": ()} if node.after else {}
        device = getattr(node, "device", None)
        if device is not None and self._local(device) != device:
            fields["device"] = self._local(device)
        if isinstance(node, ChildGraphNode) and not isinstance(node, CollectiveNode):  # whose inside follows from its arrays
            fields["workflow"] = self._held_here(node.workflow)
        elif isinstance(node, ConditionalNode):
            fields["bodies"] = tuple(map(self._held_here, node.bodies))
        if arrays is None:
            return node.changed(**fields) if fields else node
        return node.translated(arrays, parameters).changed(**fields) if node.derives else node.moved(arrays, parameters, **fields)

    def _held_here(self, workflow: Workflow) -> Workflow:
        made = self._held.get(workflow)
        if made is None:
            arrays = {name: self._here(array) for name, array in workflow.arrays.items()}
            others = arrays if any(array is not workflow.arrays[name] for name, array in arrays.items()) else None
            nodes = tuple(self._node_here(node, others, workflow.parameters) for node in workflow.nodes)
            made = self._held[workflow] = replace(workflow, arrays=arrays, nodes=nodes)
        return made

    # -- nodes

    def _conditional(self, i: int) -> ConditionalNode:
        """Return this rank's part of a conditional node that all ranks take part in."""
        node = self._workflow.nodes[i]
        assert isinstance(node, ConditionalNode)
        bodies = tuple(
            _Builder(body, self._rank, self._exchange, self._through_host).part().workflow for body in self._sharing.bodies[i]
        )
        word = self._arrays.get(word_name(node.name, self._rank))
        condition = self._view(node.condition) if word is None else word.as_view()
        return node.changed(condition=condition, bodies=bodies, bind=bindings(node, bodies, self._arrays))

    def _add(self, node: Any, before: Mapping[int, str]) -> int:
        self._nodes.append(node)
        self._edges.append(dict(sorted(before.items())))
        return len(self._nodes) - 1

    def _before(self, i: int) -> dict[int, str]:
        """Return what a node waits for on this rank."""
        predecessors = self._workflow.predecessors[i]
        sources: Iterable[tuple[int, str]] = zip(predecessors, self._workflow.reasons[i])
        if len(predecessors) > len(self._ends) + len(self._open):  # a collective's are nodes of all ranks
            known = self._sharing.reasons_of(i)
            mine = dict.fromkeys((*self._ends, *(index for _, _, index in self._open)))
            sources = [(source, known[source]) for source in mine if source in known]
        return {at: reason for source, reason in sources for at in self._ended(source)}

    def _told(self, i: int) -> dict[int, str]:
        """Return what must be done before this rank may tell another that a node may begin."""
        return {at: reason for at, reason in self._before(i).items() if not reason.startswith(DATA)}

    def _ended(self, source: int) -> tuple[int, ...]:
        if self._open and any(index == source for _, _, index in self._open):
            self._close()
        return self._ends.get(source, ())

    def _name(self, wanted: str) -> str:
        name = unused(wanted, self._names, self._workflow.index)
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
        accesses: list[Access] = []
        behind: list[tuple[ArrayView, ArrayView, str]] = []
        direct = self._direct(together[0][0])
        hosted = self._through_host and not direct
        for message, waits, _ in together:
            sends = message.source == self._rank
            if message.together is not None:
                target, source = message.together.views_of(self._rank)
                has_values = message.together.does == "broadcast" and source is not None
                accesses += [(reads if has_values else writes)(self._view(target))] if target is not None else []
                accesses += [reads(self._view(source))] if source is not None else []
            elif (view := message.src if sends else message.dst) is not None:
                view = self._view(view)
                if not view.contiguous or (hosted and not view.root.on_host):
                    packed = self._packed(view, message.name, hosted)
                    if sends:
                        copy = MemcpyNode(name=self._name(f"{message.name} (pack)"), dst=packed, src=view)
                        waits[self._add(copy, waits)] = f"RAW {packed.root.name}"
                    else:
                        behind.append((view, packed, message.name))
                    view = packed
                accesses.append(reads(view) if sends else writes(view))
            before.update(waits)
        messages = tuple(message for message, _, _ in together)
        first, more = messages[0], len(messages) - 1
        wanted = f"{first.name} and {more} more" if more else first.name
        kind = CapturedNode if direct and self._between is not None and self._between.captured else EagerNode
        node = kind(
            name=wanted if first.moves and not more else self._name(wanted),
            fn=self._exchange(messages, direct),
            args=tuple(access.view for access in accesses),
            access=tuple(accesses),
            device=self._local(self._mine.start),
        )
        at = self._add(node, before)
        self._last = (at,)
        ends = {}
        for view, packed, name in behind:
            copy = MemcpyNode(name=self._name(f"{name} (unpack)"), dst=view, src=packed)
            ends[name] = (self._add(copy, {at: f"RAW {packed.name}"}),)
        for message, _, index in together:
            if message.moves:
                self._ends[index] = ends.get(message.name, (at,))

    def _packed(self, view: ArrayView, name: str, on_host: bool) -> ArrayView:
        """Return contiguous memory to send from or to receive into."""
        named = unused(f"{name} (packed)", self._arrays)
        if on_host or view.root.on_host:
            array: Array = HostArray(named, view.shape, view.dtype)
        else:
            array = DeviceArray(named, view.shape, view.dtype, device=view.root.device)
        self._arrays[array.name] = array
        return array.as_view()

    def _view(self, view: ArrayView) -> ArrayView:
        return view.on(self._arrays.get(view.root.name, view.root))
