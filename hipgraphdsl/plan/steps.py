"""Plan: frozen data that backends lower: steps in topological order, with reduced edges, in lanes (= streams).

`planning` makes a plan from a workflow; a plan in which the host runs steps can be cut into segments, each held by one graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import count, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..lazy import Entries
from ..nodes import Node, node_of
from ..nodes.workflow import Workflow
from ..order import between, levels, successors
from ..printed import counted
from .lanes import covered

if TYPE_CHECKING:
    from ..arrays import HostArray
    from .memory import MemoryUse
    from .merged import Merged
    from .temporaries import Packing


class Step(NamedTuple):
    """One node of the graph that will be lowered.

    Attributes
    ----------
    index : int
        Its position in `Plan.steps`, a topological order.
    name : str
        The node's name; inside an inlined child ``<child>/<node>``.
    node : Node
    origin : tuple of str
        Names of the declared nodes that it represents.
    deps : tuple of int
        Steps that must finish before it starts; none of them is implied by the others.
    lane : int
        The lane that it belongs to.
    added : tuple of int
        Members of `deps` that were not declared: they gather nodes into fewer lanes, or make conditional nodes run one by one.
    path : tuple of Node
        The inlined children that contain it, outermost first.
    child : Plan or None
        The plan of a child graph.
    bodies : tuple of Plan
        The plans of a conditional's bodies.
    by_kernel : bool
        Whether a kernel that writes page-locked memory does this copy, instead of a copy engine.
    device : int or None
        The device that it runs on; None if it needs none (host code, order, child graphs).
    by_host : bool
        Whether the launching thread runs it, between graphs: an eager node, or a conditional node whose condition the host reads.
    batch : int
        Index in `Plan.batches` of the launch that runs it together with adjacent steps of the same index; -1 for none.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is never used on a step
    name: str
    node: Node
    origin: tuple[str, ...]
    deps: tuple[int, ...]
    lane: int
    added: tuple[int, ...] = ()
    path: tuple[Node, ...] = ()
    child: Plan | None = None
    bodies: tuple[Plan, ...] = ()
    by_kernel: bool = False
    device: int | None = None
    by_host: bool = False
    batch: int = -1

    def in_batch(self, number: int) -> Step:
        """Return the step with another `batch`; planning calls this for most steps, and `_replace` takes three times as long."""
        return Step._make((*self[:_BATCH], number, *self[_BATCH + 1 :]))

    def renumbered(self, index: int, place: Mapping[int, int]) -> Step:
        """Return the step with a new index and renumbered dependencies.

        `place` maps old step indices to the new ones of their replacements; dependencies without an entry are dropped.
        """
        deps, added = (tuple(sorted({place[d] for d in old if d in place} - {index})) for old in (self.deps, self.added))
        return self._replace(index=index, deps=deps, added=added)


_BATCH: Final = Step._fields.index("batch")
_NODE: Final = Step._fields.index("node")


class Cut(NamedTuple):
    """A plan whose steps are segments of another plan, each of which one graph can hold, and the host steps between them.

    A segment is an empty node with the segment's plan as `child`; a host step keeps its node from the plan that was cut.
    """

    plan: Plan
    members: tuple[tuple[int, ...], ...]  # for each step of `plan` the steps of the plan that was cut, in the order of `child`

    @property
    def segment_of(self) -> dict[int, int]:
        """The number of each step's segment, from 1 in launch order; host steps have no entry."""
        graphs = [members for step, members in zip(self.plan.steps, self.members) if step.child is not None]
        return {i: number for number, members in enumerate(graphs, 1) for i in members}

    def __str__(self) -> str:
        hosts = [step for step in self.plan.steps if step.by_host]
        said = [f"calls {s.name!r}" if s.node.branch is None else f"reads the condition of {s.name!r}" for s in hosts[:4]]
        more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
        return (
            f"A backend that builds graphs makes {counted(len(self.plan.steps) - len(hosts), 'segment')} of it, each one graph;"
            f" between them the host {', '.join(said)}{more}."
        )


@dataclass(frozen=True)
class Watch:
    """The marks of a watched plan: words in page-locked memory, of which each is 0 until its step has finished."""

    words: HostArray  # one unsigned 32-bit word for each watched step
    names: tuple[tuple[str, ...], ...]  # for each word the nodes that its step represents
    outer: int  # number of words, from the first, whose steps are in no body
    marks: tuple[int, int]  # numbers of steps and edges added for the marks

    def unfinished(self, words: Sequence[int]) -> tuple[str, ...]:
        """Return the nodes whose words are 0: not finished by the current launch or iteration."""
        return tuple(name for names, word in zip(self.names, words) if not word for name in names)

    def all(self) -> tuple[str, ...]:
        """Return the nodes that every launch runs."""
        return tuple(name for names in self.names[: self.outer] for name in names)


_OF_THE_SHAPE: Final = frozenset({"lanes", "index", "successors", "edges", "depth", "has_allocs"})
"""The cached properties of a plan that depend on lanes, edges, names and kinds alone."""
_OF_NO_NODE: Final = frozenset({"runs", "has_hosts", "outline"})
"""Those that depend on nothing of the nodes but their kinds, but on what else a step has."""


@dataclass(frozen=True)
class Plan:
    """Steps in topological order, with reduced edges, in lanes.

    Attributes
    ----------
    workflow : Workflow
        The workflow that it was made from.
    steps : tuple of Step
    declared_edges : int
        Edges before the reduction.
    notes : tuple of str
        What the plan did and why, in sentences.
    packing : Packing or None
        Arrays of alloc nodes that share memory, and their offsets in it; their alloc and free nodes have no steps.
    device : int
        The device that it was made for: the device of nodes and arrays that name none.
    devices : tuple of int
        All devices that it uses, in ascending order.
    lane_devices : tuple of int
        For each lane the device of its steps.
    batches : tuple of Merged
        Batches and chains: launches that backends which build graphs merge into one.
    programmatic : tuple of int
        Kernel launches that wait in the kernel for their predecessors: the edges to them may be programmatic.
    watch : Watch or None
        The marks that tell which nodes have finished (``DebugOptions.watch``).
    node_bytes : int
        Device memory that a node of the instantiated graph takes; 0 if that has not been measured.
    shape : object
        What planning has read of the workflow, if the plan was taken over from that of another one; else None.
    """

    workflow: Workflow
    steps: tuple[Step, ...]
    declared_edges: int
    notes: tuple[str, ...] = field(default=())
    packing: Packing | None = None
    device: int = 0
    devices: tuple[int, ...] = (0,)
    lane_devices: tuple[int, ...] = ()
    batches: tuple[Merged, ...] = ()
    programmatic: tuple[int, ...] = ()
    watch: Watch | None = None
    node_bytes: int = 0
    shape: Any = field(default=None, repr=False, compare=False)

    def with_steps(self, steps: Mapping[int, Step]) -> Plan:
        """Return the plan with some of its steps replaced; their lanes and edges must not change."""
        made: Plan = _STEPS.replaced(self, steps) if steps else self
        return made

    def step(self, index: int) -> Step:
        """Return a step, without a copy of all steps in a plan that `with_steps` has made."""
        return self.steps[index] if "steps" in self.__dict__ else _STEPS.at(self, index)

    def with_nodes(self, workflow: Workflow, shape: Any) -> Plan | None:
        """Return the plan for a workflow of the same shape: its nodes in place of those of the same positions.

        Return None if other arrays of alloc nodes would share memory, because of their sizes.
        """
        nodes, packing, notes = workflow.nodes, self.packing, self.notes
        if packing is not None:
            packing = packing.of(workflow.arrays)
            if packing is None:
                return None
            notes = tuple([str(packing) if note == str(self.packing) else note for note in notes])
        if self.nodes != self.workflow.nodes:
            taken = dict(zip(map(id, self.workflow.nodes), nodes))
            nodes = tuple(map(taken.get, map(id, self.nodes), self.nodes))
        plan: Plan = _STEPS.over(self, _Filled(self.outline, nodes), {})
        plan.__dict__.update({name: self.__dict__[name] for name in _OF_NO_NODE & self.__dict__.keys()})
        plan.__dict__.update(workflow=workflow, shape=shape, nodes=nodes, packing=packing, notes=notes)
        return plan

    @property
    def memory(self) -> MemoryUse:
        """The memory that compiling it takes, in bytes; nothing has to be built for that."""
        from .memory import memory_of

        marks = 0 if self.watch is None else self.watch.words.nbytes
        return memory_of(self.workflow, self.packing, marks, self.node_bytes * len(self.nodes))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The node of each step."""
        return tuple(map(itemgetter(_NODE), self.steps))

    @cached_property
    def outline(self) -> tuple[Step, ...]:
        """The steps without their nodes: what plans of one shape share."""
        columns: list[Iterable[Any]] = list(zip(*self.steps))
        columns[_NODE] = repeat(None)
        return tuple(map(tuple.__new__, repeat(Step), zip(*columns)))

    @property
    def places(self) -> tuple[Step, ...]:
        """The steps, to be read without their nodes, which `nodes` has: a plan that was taken over need not make them then."""
        known: tuple[Step, ...] | None = self.__dict__.get("outline")
        return self.steps if known is None else known

    def renumbered(self, steps: Iterable[Step], place: Mapping[int, int]) -> Plan:
        """Return the plan with other steps in the same lanes; they must already have their new indices (`Step.renumbered`).

        `place` maps each old step index to the index of the step that replaces it.
        """
        return replace(self, steps=tuple(steps), programmatic=tuple(sorted({place[i] for i in self.programmatic})))

    @cached_property
    def lanes(self) -> tuple[tuple[int, ...], ...]:
        """For each lane its steps, in order; each step is in exactly one lane."""
        rows: list[list[int]] = [[] for _ in self.lane_devices]
        for step in self.steps:
            rows[step.lane].append(step.index)
        return tuple(map(tuple, rows))

    @cached_property
    def index(self) -> dict[str, int]:
        """Step indices by the names in `origin`."""
        return {name: step.index for step in self.steps for name in step.origin}

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps that wait for it."""
        return tuple(map(tuple, successors([step.deps for step in self.steps])))

    @cached_property
    def runs(self) -> tuple[range, ...]:
        """For each step the range of steps that share its launch in a graph: itself alone, or all adjacent steps of its batch."""
        found: list[range] = []
        for _, same in groupby(self.steps, lambda step: step.batch if step.batch >= 0 else ~step.index):
            run = range(len(found), len(found) + sum(1 for _ in same))
            found += [run] * len(run)
        return tuple(found)

    @cached_property
    def edges(self) -> int:
        """Number of edges."""
        return sum([len(step.deps) for step in self.steps])

    @cached_property
    def cut(self) -> Cut | None:
        """The plan cut into segments if the host runs any step; None if one graph can hold the plan."""
        return _cut(self) if self.has_hosts else None

    @cached_property
    def has_hosts(self) -> bool:
        """Whether the host runs a step."""
        return True in [step.by_host for step in self.steps]

    @cached_property
    def depth(self) -> int:
        """Number of steps on the longest path."""
        return max(levels(range(len(self.steps)), [step.deps for step in self.steps]), default=-1) + 1

    @cached_property
    def has_allocs(self) -> bool:
        """Whether a step allocates or frees memory."""
        kinds = {type(node) for node in self.nodes}
        return any(kind.made is not Node.made or kind.freed is not Node.freed for kind in kinds)

    def explain(self) -> str:
        """Return the plan's notes: what it did and what it expects, in sentences."""
        return "\n".join(self.notes if self.cut is None else (*self.notes, str(self.cut)))

    def __str__(self) -> str:
        lines = [
            f"plan of {self.workflow.name!r}: {counted(len(self.steps), 'step')}, {counted(self.edges, 'edge')} of"
            f" {self.declared_edges} declared, {counted(len(self.lanes), 'lane')}, depth {self.depth}"
            + (f", devices {', '.join(map(str, self.devices))}" if len(self.devices) > 1 else "")
        ]
        shown = self.steps if len(self.steps) <= 40 else (*self.steps[:30], None, *self.steps[-5:])
        width = max((len(s.name) for s in shown if s), default=0)
        segment_of = {} if self.cut is None else self.cut.segment_of
        kinds = max([8, *(len(s.node.kind) for s in shown if s)])
        for step in shown:
            if step is None:
                lines.append(f"  ... {len(self.steps) - 35} more steps ...")
                continue
            after = ", ".join(self.steps[d].name + ("*" if d in step.added else "") for d in step.deps)
            lines.append(
                f"  {step.index:>4}  lane {step.lane:<3} {step.name:<{width}}  {step.node.kind:<{kinds}}"
                + (f"  {f'segment {segment_of[step.index]}' if step.index in segment_of else 'host':<11}" if segment_of else "")
                + (f"  device {step.device}" if len(self.devices) > 1 and step.device is not None else "")
                + (f" after {after}" if after else "")
            )
        lines += [f"  {note}" for note in self.explain().splitlines()]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"<{str(self).partition(chr(10))[0]}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}


class _Filled:
    """Steps of an outline with nodes, made when they are read."""

    def __init__(self, outline: tuple[Step, ...], nodes: tuple[Node, ...]) -> None:
        self._outline, self._nodes = outline, nodes

    def __getitem__(self, index: int) -> Step:
        return self._outline[index]._replace(node=self._nodes[index])

    def __iter__(self) -> Iterator[Step]:
        columns: list[Iterable[Any]] = list(zip(*self._outline))
        columns[_NODE] = self._nodes
        return map(tuple.__new__, repeat(Step), zip(*columns))


_STEPS: Final = Entries(Plan, "steps", _OF_THE_SHAPE | {each.name for each in fields(Plan)} - {"steps"})


def _cut(plan: Plan) -> Cut:
    """Return the segments and host steps of a plan as a `Cut`, with lanes computed for them."""
    from .segments import segments

    steps = plan.steps
    groups = segments([step.deps for step in steps], [step.by_host for step in steps])
    group_of = {i: number for number, group in enumerate(groups) for i in group}
    deps = between([step.deps for step in steps], group_of, len(groups))
    hosts = [steps[group[0]] if steps[group[0]].by_host else None for group in groups]
    placed = [None if host is None else host.device for host in hosts]
    owners = [plan.device if device is None else device for device in placed] if len(plan.devices) > 1 else None
    cover = covered(range(len(groups)), deps, None, owners, plan.device)
    made = []
    graphs = count(1)
    for number, (group, host, sources, lane) in enumerate(zip(groups, hosts, cover.reduced, cover.lane_of)):
        if host is not None:
            made.append(host._replace(index=number, deps=sources, lane=lane, added=()))
        else:
            name = f"segment {next(graphs)}"
            names = tuple(origin for i in group for origin in steps[i].origin)
            made.append(Step(number, name, node_of("empty", name=name), names, sources, lane, child=_part(plan, group)))
    outer = replace(plan, steps=tuple(made), notes=(), packing=None, lane_devices=tuple(cover.devices), programmatic=())
    return Cut(outer, tuple(groups))


def _part(plan: Plan, members: Sequence[int]) -> Plan:
    """Return some steps of a plan as a plan of their own."""
    place = {i: k for k, i in enumerate(members)}
    own = [plan.steps[i] for i in members]
    lane_of = {lane: number for number, lane in enumerate(sorted({step.lane for step in own}))}
    steps = tuple(step.renumbered(k, place)._replace(lane=lane_of[step.lane]) for k, step in enumerate(own))
    owners = tuple(plan.lane_devices[lane] for lane in lane_of)
    devices = tuple(sorted({plan.device, *owners}))
    edges = sum(len(step.deps) for step in steps)
    early = tuple(place[i] for i in plan.programmatic if i in place and place.keys() >= set(plan.steps[i].deps))
    return Plan(plan.workflow, steps, edges, (), None, plan.device, devices, owners, plan.batches, early)
