"""Plan: what is lowered, plain frozen data: steps in a topological order, with the edges that are needed, in lanes (= streams).

`planning` makes it of a workflow; a plan in whose midst the host has something to do can be cut into segments that graphs hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, groupby
from typing import NamedTuple

from ..nodes import EagerNode, EmptyNode
from ..order import between, levels, successors
from ..printed import counted
from ..workflow import AnyNode, ChildGraphNode, Workflow
from .batches import Batched
from .lanes import covered
from .segments import segments
from .temporaries import Packing


class Step(NamedTuple):
    """One node of the graph that will be lowered.

    Attributes
    ----------
    index : int
        Its place in `Plan.steps`, a topological order.
    name : str
        The node's name; inside an inlined child ``<child>/<node>``.
    node : Node
    origin : tuple of str
        Names of the declared nodes that it carries.
    deps : tuple of int
        Steps that must have finished before it starts; none of them is implied by the others.
    lane : int
        The sequence that it belongs to.
    added : tuple of int
        Those of `deps` that nobody declared: they only gather independent nodes into fewer lanes.
    path : tuple of ChildGraphNode
        The inlined children that it stands in, outermost first.
    child : Plan or None
        The plan of a child graph.
    bodies : tuple of Plan
        The plans of a conditional's bodies.
    by_kernel : bool
        A copy that is done by a kernel which writes page-locked memory, not by a copy engine.
    device : int or None
        The device that it runs on; None for what needs none (host code, order, child graphs).
    by_host : bool
        Done by the thread that launches, between graphs: an eager node, or a conditional node whose condition the host reads.
    any_order : bool
        A kernel launch that does not wait for those before it in its lane.
    batch : int
        The batch in `Plan.batches` that does it together with its neighbours of the same number; -1 for none.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a step
    name: str
    node: AnyNode
    origin: tuple[str, ...]
    deps: tuple[int, ...]
    lane: int
    added: tuple[int, ...] = ()
    path: tuple[ChildGraphNode, ...] = ()
    child: Plan | None = None
    bodies: tuple[Plan, ...] = ()
    by_kernel: bool = False
    device: int | None = None
    by_host: bool = False
    any_order: bool = False
    batch: int = -1

    def in_batch(self, number: int) -> Step:
        """Return the step as one of a batch; planning does it for most steps, and `_replace` takes three times as long."""
        return Step._make((*self[:-1], number))

    def renumbered(self, index: int, place: Mapping[int, int]) -> Step:
        """Return the step as number `index` of other steps, behind what stands there for those that it waits for.

        `place` has the numbers of what stands for steps, by their old numbers; those without an entry are waited for no more.
        """
        deps, added = (tuple(sorted({place[d] for d in old if d in place} - {index})) for old in (self.deps, self.added))
        return self._replace(index=index, deps=deps, added=added)


class Cut(NamedTuple):
    """A plan whose steps are segments of another, which graphs can hold, and what the host does between them.

    A segment is an empty node with the segment's plan as `child`; a step of the host is as in the plan that was cut.
    """

    plan: Plan
    members: tuple[tuple[int, ...], ...]  # for each of its steps the steps of the plan that was cut, in the order of `child`

    @property
    def segment_of(self) -> dict[int, int]:
        """The number of each step's segment, from 1, in the order of launches; the host's steps have none."""
        graphs = [members for step, members in zip(self.plan.steps, self.members) if step.child is not None]
        return {i: number for number, members in enumerate(graphs, 1) for i in members}

    def __str__(self) -> str:
        hosts = [step for step in self.plan.steps if step.by_host]
        said = [f"calls {s.name!r}" if isinstance(s.node, EagerNode) else f"reads the condition of {s.name!r}" for s in hosts[:4]]
        more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
        return (
            f"A backend that builds graphs makes {counted(len(self.plan.steps) - len(hosts), 'segment')} of it, each one graph;"
            f" between them the host {', '.join(said)}{more}."
        )


@dataclass(frozen=True)
class Plan:
    """Steps in topological order, with the edges that are needed, in lanes.

    Attributes
    ----------
    workflow : Workflow
        What it was made from.
    steps : tuple of Step
    declared_edges : int
        Edges before the reduction.
    notes : tuple of str
        What the plan did and why, in sentences.
    packing : Packing or None
        Arrays of alloc nodes that share memory, and where they lie in it; their alloc and free nodes are no steps.
    device : int
        The device that it was made for: that of all that names none.
    devices : tuple of int
        All devices that it uses, in ascending order.
    lane_devices : tuple of int
        For each lane the device of its steps.
    batches : tuple of Batched
        Launches of one kernel that backends which build graphs do as one.
    programmatic : tuple of int
        Kernel launches that wait by themselves for those before them: the edges to them may be programmatic.
    """

    workflow: Workflow
    steps: tuple[Step, ...]
    declared_edges: int
    notes: tuple[str, ...] = field(default=())
    packing: Packing | None = None
    device: int = 0
    devices: tuple[int, ...] = (0,)
    lane_devices: tuple[int, ...] = ()
    batches: tuple[Batched, ...] = ()
    programmatic: tuple[int, ...] = ()

    def with_steps(self, steps: Mapping[int, Step]) -> Plan:
        """Return the plan with other nodes in some of its steps."""
        if not steps:
            return self
        made = list(self.steps)
        for i, step in steps.items():
            made[i] = step
        plan = object.__new__(type(self))
        # With the properties that are known, which no node changes; the same `lanes` tell that the plan was not made again.
        plan.__dict__.update(self.__dict__, lanes=self.lanes, steps=tuple(made))
        plan.__dict__.pop("cut", None)
        plan.__dict__.pop("runs", None)
        return plan

    def renumbered(self, steps: Iterable[Step], place: Mapping[int, int]) -> Plan:
        """Return the plan with other steps in the same lanes, which have their new numbers (`Step.renumbered`).

        `place` has the number of the step that does now what a step did, by its old number.
        """
        return replace(self, steps=tuple(steps), programmatic=tuple(sorted({place[i] for i in self.programmatic})))

    @cached_property
    def lanes(self) -> tuple[tuple[int, ...], ...]:
        """For each lane its steps, in order; each step stands in exactly one lane."""
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
        """For each step all that one launch of a graph that holds the plan does with it: itself, or neighbours of its batch."""
        found: list[range] = []
        for _, same in groupby(self.steps, lambda step: step.batch if step.batch >= 0 else ~step.index):
            run = range(len(found), len(found) + sum(1 for _ in same))
            found += [run] * len(run)
        return tuple(found)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(len(step.deps) for step in self.steps)

    @cached_property
    def cut(self) -> Cut | None:
        """The segments that graphs can hold, where the host has something to do; None where one graph holds the plan."""
        return _cut(self) if any(step.by_host for step in self.steps) else None

    @cached_property
    def depth(self) -> int:
        """Steps on the longest path."""
        return max(levels(range(len(self.steps)), [step.deps for step in self.steps]), default=-1) + 1

    @cached_property
    def has_allocs(self) -> bool:
        """Whether a step allocates or frees memory."""
        kinds = {type(step.node): step.node for step in self.steps}  # of which all nodes answer alike
        return any(node.made is not None or node.freed is not None for node in kinds.values())

    def explain(self) -> str:
        """Return what the plan did and what it expects, in sentences."""
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


def _cut(plan: Plan) -> Cut:
    """Return the segments of a plan, and between them what the host does, in lanes of their own."""
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
            made.append(Step(number, name, EmptyNode(name=name), names, sources, lane, child=_part(plan, group)))
    outer = replace(plan, steps=tuple(made), notes=(), packing=None, lane_devices=tuple(cover.devices))
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
