"""Sharing: assignment of a workflow's nodes to ranks, and the messages between ranks.

Data flow: `Workflow` and `Layout` -> the rank of each node, and messages where data crosses between ranks. All ranks compute
the same result from the same workflow; `partition` extracts one rank's part, `simulation` predicts its timing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ...arrays import Array, ArrayView, ExternalArray, HostArray, MovingView, Parameter, as_int
from ...draft import Draft
from ...errors import DeclarationError, node_error
from ...hazards import AFTER, Reason
from ...kernels import Symbol
from ...nodes import Node, node_of
from ...nodes.collective import dtype_name
from ...nodes.facets import Collective
from ...nodes.values import fitting
from ...nodes.workflow import Level, Workflow
from ...placement import device_of
from ...plan.inlining import cycle_error
from .links import per_link
from .spread import put_child, put_conditional, replaced

ALL: Final = -1
"""Rank number that represents all ranks."""

Ranks = int | tuple[int, int]
"""The ranks that execute a node: one rank, `ALL`, or the sender and receiver of a copy between two ranks."""

MOST_RANKS: Final = 1 << 20
"""Maximum number of simulated ranks."""


@dataclass(frozen=True)
class Layout:
    """Which rank each device belongs to; devices are numbered consecutively over the ranks in order."""

    counts: tuple[int, ...]  # number of devices of each rank
    first_local: int = 0  # number of this rank's first device in its own process
    imagined: bool = False  # whether the ranks are only simulated; devices then keep their numbers

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.counts)

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Number of each rank's first device."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    def rank_of(self, device: int, what: str) -> int:
        """Return the rank that a device belongs to; raise DeclarationError if no rank has it."""
        total = self.firsts[-1] + self.counts[-1]
        if device < total:
            return bisect_right(self.firsts, device) - 1
        raise DeclarationError(
            f"{what} is on device {device}, and the ranks have {total} device{'s' * (total != 1)} together; start more, or give"
            " each more devices: hg.ranks(devices_per_rank=...)"
        )

    def shown(self, rank: int) -> str:
        """Return the numbers of a rank's devices as text: ``"3"``, or ``"4 to 7"``."""
        first, count = self.firsts[rank], self.counts[rank]
        return f"{first} to {first + count - 1}" if count > 1 else str(first)

    def local(self, device: int, rank: int) -> int:
        """Return the number of a rank's device in the rank's own process."""
        return device if self.imagined else device - self.firsts[rank] + self.first_local


def as_layout(ranks: Any) -> Layout:
    """Return a simulated layout from a number of ranks with one device each, a list of device counts, or a `Ranks`."""
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
    """Return the number of devices of each rank; empty if `given` is not a list or tuple of positive integers."""
    counts = tuple(as_int(entry) or 0 for entry in given) if isinstance(given, (list, tuple)) else ()
    return counts if all(count > 0 for count in counts) else ()


class Between(NamedTuple):
    """Capabilities of the library that sends messages between the devices of ranks without the host."""

    does: Callable[[str, str], bool]  # whether a single library call does a collective, given its name and dtype
    captured: bool = False  # whether messages are captured as graph nodes; else the host issues them on streams between graphs


class Message(NamedTuple):
    """A message from one rank to another, or a collective of all ranks."""

    number: int  # position in the message order that all ranks share
    name: str  # name of the node, or for an edge the names of both nodes
    source: int  # sending rank; `ALL` for a collective
    target: int  # receiving rank; `ALL` for a collective
    src: ArrayView | None = None  # the data to send; None for a collective or a message without bytes
    dst: ArrayView | None = None  # the view to receive into; None for a collective or a message without bytes
    together: Collective | None = None  # the collective

    @property
    def moves(self) -> bool:
        """Whether it carries a node's data; otherwise it only orders nodes."""
        return self.dst is not None or self.together is not None

    @property
    def on_devices(self) -> bool:
        """Whether its bytes are in device memory on both sides."""
        views = () if self.src is None or self.dst is None else (self.src, self.dst)
        return self.together is not None or (bool(views) and not any(view.root.on_host for view in views))

    @property
    def nbytes(self) -> int:
        """Bytes that are sent; 0 for a collective."""
        return 0 if self.src is None else self.src.nbytes

    @property
    def content(self) -> tuple[Any, ...]:
        """What is sent, by the names of arrays: equal for the same messages of two equal workflows."""
        whole = self.together
        views = (self.src, self.dst) if whole is None else (*whole.targets, *whole.sources)
        sides = ((view.root.name, view.selection) for view in views if view is not None)
        return (*self[:4], *((whole.does, whole.op, whole.root) if whole is not None else ()), *sides)


class Sharing:
    """Assignment of a workflow's nodes to ranks, and the messages between ranks.

    Raises
    ------
    DeclarationError
        If a node other than a copy or collective accesses memory of two ranks, or a device belongs to no rank.
    """

    def __init__(
        self, workflow: Workflow, layout: Layout, between: Between | None = None, *, level: Level | None = None, first: int = 0
    ) -> None:
        self.layout = layout
        self.between = between
        self.inlined: set[str] = set()
        """Full names of child graph nodes of several ranks that are replaced by their nodes: ``child: x`` for ``child/x``."""
        self.fixed: set[str] = set()
        """Names of nodes whose data crosses between ranks, including collectives that are done by copies."""
        self.owners: dict[str, int] = {}
        """Owner rank of each array; `ALL` if each rank has its own instance."""
        self.workflow = workflow
        """The workflow after expansion: nodes replace collectives that are done by copies and children of several ranks, and
        copies send conditions to the ranks that do not own them."""
        self._level = Level(workflow) if level is None else level
        self._find_owners(workflow)
        self._find_owners(self._with_declared_edges(self._level))
        self._open_up()
        apart = {i for i, node in enumerate(self.workflow.nodes) if self._unfolds(node)}
        self.fixed.update(self.workflow.nodes[i].name for i in apart)
        self._find_owners(replaced(self.workflow, apart, _unfold) if apart else self.workflow)
        self.ranks: list[Ranks] = [ALL] * len(self.workflow.nodes)
        """The ranks of each node."""
        self.messages: dict[int, list[Message]] = {}
        """By node: the messages that it waits for, then the message with its own data."""
        self.stages: dict[int, int] = {}
        """By message number: how many messages the longest path before it has. Messages of one stage are independent."""
        self.bodies: dict[int, tuple[Sharing, ...]] = {}
        """By conditional node of all ranks: the sharing of each of its bodies."""
        self._reasons: dict[int, dict[int, Reason]] = {}
        self._share(first)

    @cached_property
    def all_messages(self) -> tuple[Message, ...]:
        """Messages of one launch in the common order; those in bodies of conditional nodes are sent each time the body runs."""
        inside = (message for bodies in self.bodies.values() for body in bodies for message in body.all_messages)
        return tuple(sorted((*self.outer_messages, *inside), key=lambda message: message.number))

    @property
    def outer_messages(self) -> tuple[Message, ...]:
        """Messages of one launch, excluding those in bodies of conditional nodes."""
        return tuple(message for made in self.messages.values() for message in made)

    @property
    def prefix(self) -> str:
        """Prefix of the full names of its nodes."""
        return self._level.prefix

    def arrays_of(self, rank: int) -> Iterator[Array]:
        """Yield the arrays that a rank has, in order of declaration."""
        arrays = self.workflow.arrays
        return (arrays[name] for _, name in sorted(self._arrays.get(rank, []) + self._arrays.get(ALL, [])))

    def nodes_of(self, rank: int) -> list[int]:
        """Return in topological order the nodes that a rank executes, exchanges messages for, or needs to order other nodes."""
        mine, common = self._nodes.get(rank, []), self._nodes.get(ALL, [])
        order = self.workflow.order
        return [order[at] for at in (sorted(mine + common) if common else mine)]

    def reasons_of(self, i: int) -> Mapping[int, Reason]:
        """Return a node's predecessors, each with the reason of its edge."""
        if i not in self._reasons:
            self._reasons[i] = dict(zip(self.workflow.predecessors[i], self.workflow.reasons[i]))
        return self._reasons[i]

    def touches_shared(self, node: Node) -> bool:
        """Return whether a node accesses an array of which each rank has its own instance."""
        return ALL in self._arrays and any(self.owners.get(access.view.root.name) == ALL for access in node.accesses)

    @cached_property
    def _arrays(self) -> dict[int, list[tuple[int, str]]]:
        """Number and name of the arrays of each rank, and of `ALL`."""
        found: dict[int, list[tuple[int, str]]] = {}
        for number, name in enumerate(self.workflow.arrays):
            found.setdefault(self.owners[name], []).append((number, name))
        return found

    @cached_property
    def _nodes(self) -> dict[int, list[int]]:
        """Positions in topological order of the nodes that concern each rank; under `ALL` the nodes that concern every rank."""
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
        """Replace the workflow, and compute the owners of its arrays."""
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
        """Return a level's workflow where declared edges have reason "after" unless memory of a single rank implies them.

        If both nodes of a declared edge access the same memory, the edge has that memory as its reason. But memory of which each
        rank has its own instance imposes no order between ranks.
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
                AFTER if t and r.inferred and r.what not in of_one else r for t, r in zip(told, workflow.reasons[i])
            )
        return workflow if tuple(reasons) == workflow.reasons else replace(workflow, reasons=tuple(reasons))

    def _open_up(self) -> None:
        """Inline children that span several ranks, and extend conditional nodes that span several ranks to all ranks."""
        opened: set[str] = set()
        while which := {i for i, node in enumerate(self.workflow.nodes) if node.name not in opened and self._is_spread(node)}:

            def put(node: Node, draft: Draft) -> None:
                branch = node.branch
                if branch is not None:
                    opened.add(node.name)
                    owner = self._of_root(branch.condition.root, self._level)
                    if owner == ALL:
                        raise node_error(
                            node.name,
                            "its bodies do work of several ranks, which must decide alike, and each has"
                            f" {branch.condition.name!r} for itself; let the condition be memory of one rank",
                        )
                    put_conditional(node, self._level, owner, self.layout.firsts, draft)
                else:
                    self.inlined.add(self.prefix + node.name)
                    inner = next(self._level.inner(node))
                    put_child(inner, self._with_declared_edges(inner).reasons, draft)

            self._find_owners(replaced(self.workflow, which, put))

    def _is_spread(self, node: Node) -> bool:
        """Return whether a node other than a collective contains work of several ranks."""
        return node.collective is None and bool(node.held) and len({*self._inside(node, self._level)} - {ALL}) > 1

    def _unfolds(self, node: Node) -> bool:
        """Return whether simple copies do what a node does: several copies, or a collective that no single library call does."""
        if node.collective is not None:
            return _by_copies(node.collective, self.layout, self.between)
        return node.reach == "copy" and len(node.copied) > 1 and len({*self._inside(node, self._level)} - {ALL}) > 1

    def _owner(self, array: Array) -> int:
        if isinstance(array, ExternalArray):
            return ALL  # each rank supplies its own memory
        if not isinstance(array, HostArray):
            return self.layout.rank_of(array.device or 0, f"array {array.name!r}")
        if array.rank == "all":
            return ALL
        if array.rank >= self.layout.size:
            there = f"there are {self.layout.size} ranks" if self.layout.size > 1 else "there is one rank"
            raise DeclarationError(f"array {array.name!r} belongs to rank {array.rank}, and {there}", array=array.name)
        return array.rank

    def _share(self, first: int) -> None:
        workflow, order = self.workflow, self.workflow.order
        reached = [0] * len(workflow.nodes)  # number of messages on the longest path that ends with each node
        count = first
        defaults = self._defaults()
        for i in order:
            node, sources = workflow.nodes[i], workflow.predecessors[i]
            mine = self.ranks[i] = self._ranks_of(node, i)
            if defaults:
                self._require_own_defaults(node, mine, defaults)
            stage = max((reached[source] for source in sources), default=0)
            made: list[Message] = []
            waits: dict[tuple[int, int], str] = {}
            for source, reason in zip(sources, workflow.reasons[i]):
                for ends in () if reason.inferred else self._signals(self.ranks[source], mine):
                    waits.setdefault(ends, workflow.nodes[source].name)
            for number, ((begin, end), name) in enumerate(waits.items(), count):
                made.append(Message(number, f"{name} -> {node.name}", begin, end))
                self.stages[number] = stage
            stage += bool(waits)
            count += len(waits)
            if isinstance(mine, tuple):
                ((dst, src),) = node.copied
                made.append(Message(count, node.name, *mine, src, dst))
            elif node.collective is not None and _crosses(node.collective, self.layout):
                made.append(Message(count, node.name, ALL, ALL, together=node.collective))
            elif self._is_spread(node):
                count = self._share_bodies(i, node, count)
            elif node.held:
                self._own_inside(node, self._level, _last(mine))
            if len(made) > len(waits):  # the node has a message of its own
                self.fixed.add(node.name)
                self.stages[count] = stage
                stage += 1
                count += 1
            reached[i] = stage
            if made:
                self.messages[i] = made

    def _defaults(self) -> dict[Parameter, str]:
        """Return the parameters that stand by default for an array of a single rank, each with the array's name."""
        if self.prefix or self.layout.size == 1:
            return {}
        standing = ((parameter, self.workflow.default_array(parameter)) for parameter in self.workflow.parameters.values())
        return {p: array.name for p, array in standing if array is not None and self.owners.get(array.name, ALL) != ALL}

    def _require_own_defaults(self, node: Node, ranks: Ranks, defaults: Mapping[Parameter, str]) -> None:
        """Raise if a node's parameter stands by default for an array of another rank."""
        for parameter in node.parameters:
            name = defaults.get(parameter)
            if name is not None and ranks != self.owners[name]:
                whose = "each rank" if ranks == ALL else f"rank {ranks}"
                raise node_error(
                    node.name,
                    f"it belongs to {whose}, and its parameter {parameter.name!r} stands for array {name!r} of rank"
                    f" {self.owners[name]} by default; leave the default out, and let launches give memory of the node's rank",
                    array=parameter.name,
                )

    def _share_bodies(self, i: int, node: Node, count: int) -> int:
        """Assign the nodes in the bodies of a conditional node of all ranks; return the number of the next message."""
        made: list[Sharing] = []
        for inner in self._level.inner(node):
            body = Sharing(inner.workflow, self.layout, self.between, level=inner, first=count)
            count += len(body.all_messages)
            self.inlined |= body.inlined
            made.append(body)
            self.owners.update((f"{inner.key}/{name}", owner) for name, owner in body.owners.items() if name not in inner.bind)
        self.bodies[i] = tuple(made)
        return count

    def _ranks_of(self, node: Node, index: int) -> Ranks:
        if node.collective is not None and _crosses(node.collective, self.layout):
            return ALL
        if node.reach == "copy" and len(node.copied) == 1:
            target, source = (self._of_root(view.root, self._level) for view in node.copied[0])
            if ALL in (source, target) or source == target:
                return max(source, target)
            for view in node.copied[0]:
                if isinstance(view, MovingView):
                    raise node_error(
                        node.name,
                        f"it copies between ranks {source} and {target}, which agree on their messages when they compile, and"
                        f" where {view.name!r} lies, a launch decides; copy all that it can be",
                        array=view.root.name,
                    )
            return source, target
        if node.semaphore_used is not None:
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
        if node.calls == "host":
            return 0
        # A node that touches no memory runs on the rank of its first predecessor that belongs to one rank.
        return next((rank for p in self.workflow.predecessors[index] if (rank := _last(self.ranks[p])) != ALL), 0)

    def _inside(self, node: Node, level: Level) -> list[int]:
        """Return the ranks of the memory and devices that a node and all nodes inside it use."""
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
        """Return the rank of an array, or of the array that it resolves to through bindings."""
        name = root.name
        if level is self._level and self.workflow.arrays.get(name) is root:
            return self.owners[name]
        root = level.resolve(root)[1]
        if not isinstance(root, Array) or isinstance(root, Symbol):
            return ALL  # each rank supplies a parameter's memory at launch; a module's variable exists on each device
        return self._owner(root)

    def _own_inside(self, node: Node, level: Level, rank: int) -> None:
        """Record `rank` as the owner of all arrays inside a node."""
        for inner in level.inner(node):
            self.owners.update((name, rank) for name, _ in inner.own_arrays())
            for member in inner.workflow.nodes:
                self._own_inside(member, inner, rank)

    def _signals(self, before: Ranks, behind: Ranks) -> list[tuple[int, int]]:
        """Return the (sender, receiver) pairs that signal an edge to ranks that do not take part in the node before it."""
        if before == ALL:
            return []
        ends = before if isinstance(before, tuple) else (before,)
        if behind == ALL:
            return [(ends[-1], rank) for rank in range(self.layout.size) if rank not in ends]
        begins = behind if isinstance(behind, tuple) else (behind,)
        return [] if set(ends) & set(begins) else [(ends[-1], begins[0])]

    def _apart(self, node: Node, ranks: list[int]) -> str:
        arrays = {a.view.root.name: self.owners.get(a.view.root.name, ALL) for a in node.accesses}
        where = ", ".join(f"{name!r} (rank {rank})" for name, rank in arrays.items() if rank != ALL)
        return (
            f"node {node.name!r} touches {where or f'memory of ranks {ranks}'}, and no code reaches the memory of another rank;"
            " copy what it needs to an array of its own rank"
        )


def _last(ranks: Ranks) -> int:
    """Return the rank on which a node ends: for a copy between two ranks, the receiver."""
    return ranks[1] if isinstance(ranks, tuple) else ranks


def _ranks_in(views: Sequence[ArrayView], layout: Layout, node: Collective) -> list[int]:
    return [layout.rank_of(view.root.device or 0, f"node {node.name!r}") for view in views]


def _crosses(node: Collective, layout: Layout) -> bool:
    """Return whether several ranks take part in a collective."""
    return len(set(_ranks_in((*node.targets, *node.sources), layout, node))) > 1


def _by_copies(node: Collective, layout: Layout, between: Between | None) -> bool:
    """Return whether a collective of several ranks is done by copies, because no single library call does it."""
    if not _crosses(node, layout):
        return False
    all_ranks = list(range(layout.size))
    many = node.sources if node.does == "reduce" else node.targets
    fits = _ranks_in(many, layout, node) == all_ranks and all(
        _ranks_in([view], layout, node) == [rank] for rank in all_ranks for view in node.views_of(rank) if view is not None
    )
    return between is None or node.exact or not fits or not between.does(node.does, dtype_name(many[0].dtype))


def _unfold(node: Node, draft: Draft) -> None:
    """Add the nodes that do what a collective or a node of several copies does."""
    if node.collective is not None:
        node.collective.unfold(draft)
    for number, (dst, src) in enumerate(node.copied):
        name, device = fitting(f"{node.name}: {number}"), getattr(node, "device", None)
        draft.add(node_of("memcpy", name=name, dst=dst, src=src, device=device))


def crossing(messages: Sequence[Message]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the number of messages and total bytes per (sender, receiver), excluding collectives."""
    return per_link(((message.source, message.target), message.nbytes) for message in messages if message.together is None)
