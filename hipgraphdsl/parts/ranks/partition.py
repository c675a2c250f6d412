"""Partition: the part of a workflow that one rank executes, when its devices belong to several processes.

Data flow: `Sharing` (node assignment and messages) -> `Part`, which holds a workflow of this rank's nodes only. Every rank
computes the same messages in the same order from the same workflow. Given a `Sharing`, the cost of building a rank's part is
proportional to the rank's own nodes and messages.

Memory belongs to one rank, so nodes of different ranks depend on each other only through messages: that of a copy between two
ranks or of a collective, or an empty one for a declared edge. A rank executes its messages in the order that all ranks share,
grouping those that may run at the same time. No deadlock is possible: consider the first message of that order that is not
done. All of its ranks have done all messages before it, so all have reached it. Ranks cannot wait for each other in a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from ...arrays import Access, Array, ArrayView, DeviceArray, ExternalArray, HostArray, Parameter, reads, writes
from ...hazards import Reason
from ...nodes import Node, node_of
from ...nodes.values import fitting, unused
from ...nodes.workflow import Workflow
from .sharing import ALL, Layout, Message, Sharing
from .spread import bindings, word_name

_MESSAGE = Reason("message")


@dataclass(frozen=True)
class Part:
    """The part of one rank: a workflow of its nodes, with one eager or captured node for each group of messages."""

    workflow: Workflow
    rank: int
    layout: Layout
    messages: tuple[Message, ...]  # of all ranks, in order
    owners: Mapping[str, int]  # as in `Sharing`
    inlined: Set[str] = frozenset()  # as in `Sharing`
    fixed: Set[str] = frozenset()  # as in `Sharing`

    def inside(self, name: str) -> str:
        """Return the name of ``child/x`` in this part: ``child: x`` if the child is inlined."""
        found, *rest = name.split("/")
        for part in rest:
            found = fitting(f"{found}: {part}") if found in self.inlined else f"{found}/{part}"
        return found


Exchange = Callable[[tuple[Message, ...], bool], Callable[..., None]]
"""Makes a node's function from messages and whether they go directly between devices. The function takes a stream and, for each
message with bytes, the array to send or receive; for a collective, the arrays that this rank writes and reads, if any."""


def partition(sharing: Sharing, rank: int, exchange: Exchange, *, through_host: bool = False) -> Part:
    """Return a rank's part; with `through_host`, messages are sent from and received into page-locked host memory."""
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
        """The devices of this rank, by their numbers in the whole workflow."""
        self._arrays = {array.name: self._here(array) for array in sharing.arrays_of(rank)}
        same = all(array is workflow.arrays[name] for name, array in self._arrays.items())
        self._others = None if same else dict(self._arrays)
        """The arrays if any differs from the whole workflow's array, else None."""
        self._held: dict[Workflow, Workflow] = {}
        """Nested workflows of nodes -> the same with this rank's device numbers."""
        self._names: set[str] = set()
        """Node names that the whole workflow does not have."""
        self._nodes: list[Any] = []
        self._edges: list[dict[int, Reason]] = []
        """For each node its predecessors, with reasons."""
        self._ends: dict[int, tuple[int, ...]] = {}
        """For each node of the whole workflow that this rank knows, the nodes here after which it counts as finished."""
        self._last: tuple[int, ...] = ()
        """The last node that exchanges messages."""
        self._open: list[tuple[Message, dict[int, Reason], int]] = []
        """The group being collected: each message with its predecessors here, and the workflow node that it belongs to."""

    def part(self) -> Part:
        """Return the rank's part."""
        workflow, sharing = self._workflow, self._sharing
        for i in sharing.nodes_of(self._rank):
            ranks = sharing.ranks[i]
            here = self._rank in ranks if isinstance(ranks, tuple) else ranks in (self._rank, ALL)
            told: dict[int, Reason] = {}
            for message in sharing.messages.get(i, ()):
                if message.together is not None or self._rank in (message.source, message.target):
                    before = self._before(i) if message.moves or message.source != self._rank else self._told(i)
                    self._put(message, {**before, **told}, i)
                    if not message.moves and message.target == self._rank:
                        self._close()
                        told = dict.fromkeys(self._last, _MESSAGE)
            if not here and i not in sharing.messages and sharing.touches_shared(workflow.nodes[i]):
                self._ends[i] = tuple(self._before(i))  # its accesses to per-rank memory order other nodes, also on this rank
            if here and not any(message.moves for message in sharing.messages.get(i, ())):
                before = {**self._before(i), **told}
                self._close()
                if i in sharing.bodies:  # its messages are part of the common message order
                    before = {**dict.fromkeys(self._last, _MESSAGE), **before}
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
        """Return the parameters; a body keeps only used array parameters, and unused ones lose a default of another rank."""
        used = {parameter for node in self._nodes for parameter in node.parameters}
        found: dict[str, Parameter] = {}
        for name, parameter in self._workflow.parameters.items():
            default = self._workflow.default_array(parameter)
            if not parameter.shape or parameter in used:
                found[name] = parameter
            elif not self._sharing.prefix:
                elsewhere = default is not None and default.name not in self._arrays
                found[name] = replace(parameter, default=None) if elsewhere else parameter
        return found

    # -- local device numbers

    def _local(self, device: int) -> int:
        return self._layout.local(device, self._rank)

    def _here(self, array: Array) -> Array:
        """Return an array with its local device number."""
        if array.on_host or isinstance(array, ExternalArray):
            return array
        access = tuple(self._local(device) for device in array.access if device in self._mine)
        device = array.device or 0
        device = self._local(device if device in self._mine else self._mine.start)  # a bound array's own device is unused
        if device == array.device and access == array.access:
            return array
        return replace(array, device=device, access=access)

    def _node_here(self, node: Node, arrays: Mapping[str, Array] | None, parameters: Mapping[str, Any]) -> Node:
        """Return a node with these arrays (None: its own) and its local device number, without `after`: edges hold the order."""
        fields: dict[str, Any] = {"after": ()} if node.after else {}
        device = getattr(node, "device", None)
        if device is not None and self._local(device) != device:
            fields["device"] = self._local(device)
        if node.held and not node.derives:
            fields |= node.holding([self._held_here(workflow) for _, workflow, _ in node.held])
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

    def _conditional(self, i: int) -> Node:
        """Return this rank's part of a conditional node that all ranks take part in."""
        node = self._workflow.nodes[i]
        branch = node.branch
        assert branch is not None
        bodies = [
            _Builder(body, self._rank, self._exchange, self._through_host).part().workflow for body in self._sharing.bodies[i]
        ]
        word = self._arrays.get(word_name(node.name, self._rank))
        condition = self._view(branch.condition) if word is None else word.as_view()
        return node.changed(condition=condition, **node.holding(bodies), bind=bindings(branch, bodies, self._arrays))

    def _add(self, node: Any, before: Mapping[int, Reason]) -> int:
        self._nodes.append(node)
        self._edges.append(dict(sorted(before.items())))
        return len(self._nodes) - 1

    def _before(self, i: int) -> dict[int, Reason]:
        """Return a node's predecessors on this rank, with reasons."""
        predecessors = self._workflow.predecessors[i]
        sources: Iterable[tuple[int, Reason]] = zip(predecessors, self._workflow.reasons[i])
        if len(predecessors) > len(self._ends) + len(self._open):  # a collective, say, has predecessors on all ranks
            known = self._sharing.reasons_of(i)
            mine = dict.fromkeys((*self._ends, *(index for _, _, index in self._open)))
            sources = [(source, known[source]) for source in mine if source in known]
        return {at: reason for source, reason in sources for at in self._ended(source)}

    def _told(self, i: int) -> dict[int, Reason]:
        """Return the nodes that must finish before this rank signals another rank that a node may begin, with reasons."""
        return {at: reason for at, reason in self._before(i).items() if not reason.inferred}

    def _ended(self, source: int) -> tuple[int, ...]:
        if self._open and any(index == source for _, _, index in self._open):
            self._close()
        return self._ends.get(source, ())

    def _name(self, wanted: str) -> str:
        name = unused(fitting(wanted), self._names, self._workflow.index)
        self._names.add(name)
        return name

    # -- messages

    def _put(self, message: Message, before: dict[int, Reason], index: int) -> None:
        """Add a message to the open group, or close that group and start a new one if its kind differs."""
        if self._open and self._kind(self._open[-1][0]) != self._kind(message):
            self._close()
        self._open.append((message, before, index))

    def _direct(self, message: Message) -> bool:
        """Return whether a message goes directly between devices, without the host."""
        return self._between is not None and message.on_devices

    def _kind(self, message: Message) -> tuple[Any, ...]:
        """Return the key that messages of one group share; a collective forms a group of its own."""
        return self._sharing.stages[message.number], self._direct(message), message.together and message.number

    def _close(self) -> None:
        """Add one node for the open group of messages, with the copies that pack and unpack them."""
        together, self._open = self._open, []
        if not together:
            return
        before: dict[int, Reason] = dict.fromkeys(self._last, _MESSAGE)
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
                        copy = node_of("memcpy", name=self._name(f"{message.name} (pack)"), dst=packed, src=view)
                        waits[self._add(copy, waits)] = Reason("RAW", packed.root.name)
                    else:
                        behind.append((view, packed, message.name))
                    view = packed
                accesses.append(reads(view) if sends else writes(view))
            before.update(waits)
        messages = tuple(message for message, _, _ in together)
        first, more = messages[0], len(messages) - 1
        wanted = f"{first.name} and {more} more" if more else first.name
        node = node_of(
            "captured" if direct and self._between is not None and self._between.captured else "eager",
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
            copy = node_of("memcpy", name=self._name(f"{name} (unpack)"), dst=view, src=packed)
            ends[name] = (self._add(copy, {at: Reason("RAW", packed.name)}),)
        for message, _, index in together:
            if message.moves:
                self._ends[index] = ends.get(message.name, (at,))

    def _packed(self, view: ArrayView, name: str, on_host: bool) -> ArrayView:
        """Return a new contiguous array to send from or receive into."""
        named = unused(fitting(f"{name} (packed)"), self._arrays)
        if on_host or view.root.on_host:
            array: Array = HostArray(named, view.shape, view.dtype)
        else:
            array = DeviceArray(named, view.shape, view.dtype, device=view.root.device)
        self._arrays[array.name] = array
        return array.as_view()

    def _view(self, view: ArrayView) -> ArrayView:
        return view.on(self._arrays.get(view.root.name, view.root))
