"""Plan: what is lowered. Edges reduced to those that are needed, a stable order, and lanes (= streams).

Data flow: `Workflow` -> entries (children with allocs inlined) -> reduced edges and lanes (`lanes`) -> steps -> steps as the
target's quirks need them -> `Plan`, plain frozen data that backends lower and that can be simulated, drawn and printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from .arrays import HostArray
from .batches import Batched, Grouping, grouped
from .deciding import host_decides, one_by_one
from .errors import DeclarationError
from .inlining import FlatNode, cycle_error, flattened
from .lanes import Cover, covered, gathers
from .nodes import EagerNode, EmptyNode, MemcpyNode
from .order import levels, positions, topological_order
from .placement import device_of, devices_of
from .segments import segments
from .target import Target
from .temporaries import Packing, pack_temporaries
from .workflow import AnyNode, ChildGraphNode, ConditionalNode, Level, Workflow

Lanes = int | None | Literal["auto", "measure"]

_FULL_DEVICE_LANES = 8  # kernels that fill the device gain nothing from more (measured on an H200)
_FAN_OUT = 4  # direct followers that AMD's classic executor can be trusted with
_MANY_COPIES = 16  # from so many on, doing small copies by a kernel pays


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
    batch: int = -1


class Cut(NamedTuple):
    """A plan whose steps are segments of another, which graphs can hold, and what the host does between them.

    Attributes
    ----------
    plan : Plan
        A segment is an empty node with the segment's plan as `child`; a step of the host is as in the plan that was cut.
    members : tuple of tuple of int
        For each of its steps the steps of the plan that was cut, in the order of `child`.
    """

    plan: Plan
    members: tuple[tuple[int, ...], ...]

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
            f"A backend that builds graphs makes {_count(len(self.plan.steps) - len(hosts), 'segment')} of it, each one graph;"
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
    lanes : tuple of tuple of int
        For each lane its steps, in order; each step stands in exactly one lane.
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
    """

    workflow: Workflow
    steps: tuple[Step, ...]
    lanes: tuple[tuple[int, ...], ...]
    declared_edges: int
    notes: tuple[str, ...] = field(default=())
    packing: Packing | None = None
    device: int = 0
    devices: tuple[int, ...] = (0,)
    lane_devices: tuple[int, ...] = ()
    batches: tuple[Batched, ...] = ()

    def with_steps(self, steps: Mapping[int, Step]) -> Plan:
        """Return the plan with other nodes in some of its steps."""
        if not steps:
            return self
        made = list(self.steps)
        for i, step in steps.items():
            made[i] = step
        plan = object.__new__(type(self))
        plan.__dict__.update(self.__dict__, steps=tuple(made))  # with the properties that are known: no node changes them
        plan.__dict__.pop("cut", None)
        return plan

    @cached_property
    def index(self) -> dict[str, int]:
        """Step indices by the names in `origin`."""
        return {name: step.index for step in self.steps for name in step.origin}

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps that wait for it."""
        found: list[list[int]] = [[] for _ in self.steps]
        for step in self.steps:
            for source in step.deps:
                found[source].append(step.index)
        return tuple(map(tuple, found))

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
        return any(map(_is_of_memory, (step.node for step in self.steps)))

    def explain(self) -> str:
        """Return what the plan did and what it expects, in sentences."""
        return "\n".join(self.notes if self.cut is None else (*self.notes, str(self.cut)))

    def __str__(self) -> str:
        lines = [
            f"plan of {self.workflow.name!r}: {_count(len(self.steps), 'step')}, {_count(self.edges, 'edge')} of"
            f" {self.declared_edges} declared, {_count(len(self.lanes), 'lane')}, depth {self.depth}"
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


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def make_plan(
    workflow: Workflow,
    target: Target,
    *,
    lanes: Lanes = "auto",
    join: bool = True,
    inline: bool = False,
    pack: bool = False,
    batch: bool = False,
    device: int = 0,
) -> Plan:
    """Plan a workflow for a target.

    Parameters
    ----------
    lanes : "auto", int or None
        At most this many lanes on each device; None keeps the declared shape, ``"auto"`` gathers independent nodes where the
        target's costs say that it pays.
    join : bool
        Whether neighbouring copies may become one step.
    inline : bool
        Put the nodes of every child graph in its place, as backends that issue on streams need it; else only those of
        children that allocate or hold conditional nodes.
    pack : bool
        Let arrays of alloc nodes share memory where the plan's order keeps their uses apart.
    batch : bool
        Let launches of one kernel that wait for the same become one.
    device : int
        The device of all that names none.

    Raises
    ------
    DeclarationError
        If `lanes` is no lane count, or the workflow has a cycle; the message names it node by node.
    """
    bound = _lane_bound(workflow, target, lanes)
    children: dict[tuple[int, bool], Plan] = {}
    automatic = not isinstance(lanes, int)
    batch = batch and lanes == "auto"
    return _plan(workflow, target, bound, children, inline, join, automatic, pack, device, devices_of(workflow, device), batch)


def _packed(entries: list[FlatNode], device: int) -> tuple[list[FlatNode], Packing | None]:
    """Leave out the alloc and free nodes of arrays that can share memory; what they had ordered stays ordered."""
    packing = pack_temporaries(entries, device)
    if packing is None:
        return entries, None
    kept: list[FlatNode] = []
    ends: list[tuple[int, ...]] = []  # for each entry those that are kept and finish it
    gone = set(packing.nodes)
    for entry in entries:
        deps = tuple(dict.fromkeys(end for source in entry.deps for end in ends[source]))
        if entry.name in gone:
            ends.append(deps)
        else:
            ends.append((len(kept),))
            kept.append(replace(entry, deps=deps))
    return kept, packing


def _plan(
    workflow: Workflow,
    target: Target,
    bound: int | None,
    children: dict[tuple[int, bool], Plan],
    inline: bool,
    join: bool,
    automatic: bool,
    pack: bool = False,
    device: int = 0,
    devices: tuple[int, ...] = (0,),
    batch: bool = False,
) -> Plan:
    pack = pack and _has_allocs(workflow)
    packing = None
    entries: list[FlatNode] | None = None
    if pack or (
        len(workflow.documents) > 1
        and any(isinstance(node, ChildGraphNode) and (inline or _is_no_child(node.workflow)) for node in workflow.nodes)
    ):
        entries = flattened(workflow, lambda _, child: inline or _is_no_child(child.workflow))
        if pack:
            entries, packing = _packed(entries, device)
        deps: Sequence[tuple[int, ...]] = [entry.deps for entry in entries]
        order = topological_order(deps)
    else:
        deps = workflow.predecessors
        order = workflow.order
    if not order and deps:
        raise cycle_error(workflow)
    placed: list[int | None] | None = None
    if len(devices) > 1 and entries is not None:
        placed = [device_of(entry.node, device, entry.level) for entry in entries]
    elif len(devices) > 1:
        placed = [device_of(node, device) for node in workflow.nodes]
    nodes = workflow.nodes if entries is None else [entry.node for entry in entries]
    limit = None if bound is None else bound * len(devices)
    notes: list[str] = []
    declared = sum(map(len, deps))
    level_of = [Level(workflow)] * len(nodes) if entries is None else [entry.level for entry in entries]
    chained = one_by_one(nodes, order, deps, level_of, target)
    if chained:
        deps = [tuple(sorted((*sources, chained[i]))) if i in chained else sources for i, sources in enumerate(deps)]
    groups = _in_batches(nodes, order, deps, placed, target, limit, device, notes) if batch else None
    if groups is not None:
        cover, grouping = groups
        order = tuple(grouping.order)
        position = positions(order)
        declared_lanes = len(cover.lanes)
    else:
        position = positions(order)
        cover = covered(order, position, deps, None if automatic else bound, placed, device)
        declared_lanes = len(cover.lanes)
        if automatic and limit is not None and gathers(declared_lanes, limit, order, deps):
            cover = covered(order, position, deps, bound, placed, device)
    gathered, behind = cover.added, {i: (before,) for i, before in chained.items() if before in cover.reduced[i]}
    cover = cover._replace(added=gathered | {i: (*gathered.get(i, ()), *before) for i, before in behind.items()})
    steps = _steps(workflow.nodes, entries, order, position, cover, placed)
    if groups is not None:
        steps = [step._replace(batch=grouping.batch_of[grouping.group_of[i]]) for step, i in zip(steps, order)]
    if len(workflow.documents) > 1:
        for step in [step for step in steps if step.node.held]:
            steps[step.index] = _with_plans(step, level_of[order[step.index]], target, children, device, inline)
    if EagerNode in {type(step.node) for step in steps}:
        steps = [step._replace(by_host=True) if isinstance(step.node, EagerNode) else step for step in steps]
    lanes = tuple([tuple(map(position.__getitem__, lane)) for lane in cover.lanes])
    notes[:0] = [] if packing is None else [str(packing)]
    notes += _edge_notes(declared, cover, gathered, len(behind), target, declared_lanes if automatic else 0)
    batches = () if groups is None else grouping.batches
    if batches:
        launches = sum(step.batch >= 0 for step in steps)
        made = "one launch" if len(batches) == 1 else f"{len(batches)} launches"
        notes.append(f"{launches} kernel nodes become {made}, each of nodes that launch one kernel and wait for the same.")
    steps, lanes = _suited(steps, lanes, target, join, notes, narrow=not batches)
    return Plan(workflow, tuple(steps), lanes, declared, tuple(notes), packing, device, devices, tuple(cover.devices), batches)


def _edge_notes(
    declared: int, cover: Cover, gathered: Mapping[int, Sequence[int]], ordered: int, target: Target, before: int
) -> list[str]:
    """Say which edges were left out, and which were added; `before` is the number of lanes before, 0 where it was given."""
    notes = []
    removed = declared - sum(map(len, cover.reduced)) + sum(map(len, cover.added.values()))
    if removed:
        notes.append(f"{removed} of {declared} edges are implied by others and were left out.")
    if ordered:
        edges = _count(ordered, "ordering edge")
        notes.append(f"{edges} (marked *) for conditional nodes to run one by one: else a launch on {target.name} may never end.")
    if gathered:
        lanes = len(cover.lanes)
        notes.append(
            f"{sum(map(len, gathered.values()))} ordering edges (marked *) gather independent nodes into {lanes} lanes"
            + (_expected(target, before, lanes) if before else ".")
        )
    return notes


def _in_batches(
    nodes: Sequence[AnyNode],
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    placed: Sequence[int | None] | None,
    target: Target,
    limit: int | None,
    device: int,
    notes: list[str],
) -> tuple[Cover, Grouping] | None:
    """Return an order in which batches are neighbours in one lane each; None where there are none, or lanes must be gathered."""
    grouping = grouped(nodes, order, deps, placed, target)
    notes += [f"Launches of kernel {kernel.name!r} are not batched: {why}." for kernel, why in grouping.refused.items()]
    if not grouping.batches:
        return None
    order, group_of = grouping.order, grouping.group_of
    count = len(grouping.batch_of)
    reduced = covered(order, positions(order), deps, None, placed, device).reduced
    between: list[set[int]] = [set() for _ in range(count)]
    for i in order:
        between[group_of[i]].update(group_of[source] for source in reduced[i])
    outer = [tuple(sorted(sources)) for sources in between]
    one_of = dict(zip(group_of, range(len(group_of))))
    devices = None if placed is None else [placed[one_of[group]] for group in range(count)]
    cover = covered(range(count), range(count), outer, None, devices, device)
    if limit is not None and gathers(len(cover.lanes), limit, range(count), outer):
        return None
    if "fan_out_4" in target.quirks and _fan_out(outer) > _FAN_OUT:
        notes.append(f"Nothing is batched: {target.name} loses edges beyond {_FAN_OUT} followers, and a launch would have more.")
        return None
    rows: list[list[int]] = [[] for _ in cover.lanes]
    lane_of = [cover.lane_of[group] for group in group_of]
    for i in order:
        rows[lane_of[i]].append(i)
    return Cover(reduced, lane_of, rows, {}, cover.devices), grouping


def _fan_out(deps: Sequence[tuple[int, ...]]) -> int:
    """Return the most direct followers of a node, and of one before all that wait for nothing."""
    followers = Counter(source for sources in deps for source in sources)
    return max(sum(not sources for sources in deps), *followers.values(), 0)


def _cut(plan: Plan) -> Cut:
    """Return the segments of a plan, and between them what the host does, in lanes of their own."""
    steps = plan.steps
    groups = segments([step.deps for step in steps], [step.by_host for step in steps])
    group_of = {i: number for number, group in enumerate(groups) for i in group}
    deps = [tuple(sorted({group_of[d] for i in group for d in steps[i].deps} - {own})) for own, group in enumerate(groups)]
    hosts = [steps[group[0]] if steps[group[0]].by_host else None for group in groups]
    placed = [None if host is None else host.device for host in hosts]
    owners = [plan.device if device is None else device for device in placed] if len(plan.devices) > 1 else None
    order = range(len(groups))
    cover = covered(order, order, deps, None, owners, plan.device)
    made = []
    for number, (group, host, sources, lane) in enumerate(zip(groups, hosts, cover.reduced, cover.lane_of)):
        if host is not None:
            made.append(host._replace(index=number, deps=sources, lane=lane, added=()))
        else:
            name = f"segment {sum(step.child is not None for step in made) + 1}"
            names = tuple(origin for i in group for origin in steps[i].origin)
            made.append(Step(number, name, EmptyNode(name=name), names, sources, lane, child=_part(plan, group)))
    lanes = tuple(map(tuple, cover.lanes))
    outer = replace(plan, steps=tuple(made), lanes=lanes, notes=(), packing=None, lane_devices=tuple(cover.devices))
    return Cut(outer, tuple(groups))


def _part(plan: Plan, members: Sequence[int]) -> Plan:
    """Return some steps of a plan as a plan of their own."""
    place = {i: k for k, i in enumerate(members)}
    rows: dict[int, list[int]] = {}
    for i in members:
        rows.setdefault(plan.steps[i].lane, []).append(place[i])
    lane_of = {lane: number for number, lane in enumerate(sorted(rows))}
    steps = tuple(
        step._replace(
            index=k,
            deps=tuple(place[d] for d in step.deps if d in place),
            lane=lane_of[step.lane],
            added=tuple(place[d] for d in step.added if d in place),
        )
        for k, step in enumerate(map(plan.steps.__getitem__, members))
    )
    owners = tuple(plan.lane_devices[lane] for lane in lane_of)
    devices = tuple(sorted({plan.device, *owners}))
    lanes = tuple(tuple(rows[lane]) for lane in lane_of)
    edges = sum(len(step.deps) for step in steps)
    return Plan(plan.workflow, steps, lanes, edges, (), None, plan.device, devices, owners, plan.batches)


def _steps(
    nodes: Sequence[AnyNode],
    entries: Sequence[FlatNode] | None,
    order: Sequence[int],
    position: Sequence[int],
    cover: Cover,
    placed: Sequence[int | None] | None,
) -> list[Step]:
    """Return the nodes, or what they were flattened to, as steps in order; positions take the place of indices."""
    reduced, lane_of, added = cover.reduced, cover.lane_of, cover.added
    straight = isinstance(position, range)
    steps = []
    for index, i in enumerate(order):
        sources = reduced[i]
        if not straight:
            sources = tuple(sorted([position[source] for source in sources]))
        extra = tuple([position[source] for source in added[i]]) if i in added else ()
        if entries is None:
            node = nodes[i]
            name = node.name
            steps.append(Step(index, name, node, (name,), sources, lane_of[i], extra))
        else:
            entry = entries[i]
            steps.append(Step(index, entry.name, entry.node, (entry.name,), sources, lane_of[i], extra, entry.path))
    return steps if placed is None else [step._replace(device=placed[i]) for step, i in zip(steps, order)]


def _with_plans(
    step: Step, level: Level, target: Target, children: dict[tuple[int, bool], Plan], device: int, inline: bool
) -> Step:
    """Return a step with the plans of the workflows that its node, one of a level, holds."""
    node = step.node
    if isinstance(node, ChildGraphNode):
        return step._replace(child=_child_plan(node.workflow, target, children, device, False))
    assert isinstance(node, ConditionalNode)
    bodies = tuple(_child_plan(body, target, children, device, inline) for body in node.bodies)
    return step._replace(bodies=bodies, by_host=host_decides(node, level, target))


def _suited(
    steps: list[Step], lanes: tuple[tuple[int, ...], ...], target: Target, join: bool, notes: list[str], *, narrow: bool
) -> tuple[list[Step], tuple[tuple[int, ...], ...]]:
    """Return the steps and lanes as the target's costs and quirks need them, and note what was done."""
    if join and target.copy_kernel_bytes:
        steps, copies = _copies_by_kernel(steps, target)
        if copies:
            notes.append(
                f"{copies} small device-to-host copies are done by a kernel that writes page-locked memory: a copy node costs"
                f" {target.costs.copy_us:g} us beyond its bytes on {target.name}."
            )
    if _needs_one_root(steps, target) and not any(step.by_host for step in steps):
        steps, lanes = _with_one_root(steps, lanes)
        notes.append(f"An empty node goes first, because on {target.name} only one root would wait for what precedes the launch.")
    if narrow and "fan_out_4" in target.quirks:
        steps, lanes, inserted = narrowed(steps, lanes)
        if inserted:
            notes.append(
                f"{inserted} empty nodes keep every node at {_FAN_OUT} direct followers or fewer, because {target.name} loses"
                " edges beyond that."
            )
    return steps, lanes


def with_one_root(plan: Plan, target: Target) -> Plan:
    """Put an empty node before all that wait for nothing, where the target needs that; it is then the first step."""
    if not _needs_one_root(plan.steps, target):
        return plan
    steps, lanes = _with_one_root(list(plan.steps), plan.lanes)
    return replace(plan, steps=tuple(steps), lanes=lanes)


def _needs_one_root(steps: Sequence[Step], target: Target) -> bool:
    return "parallel_roots" in target.quirks and sum(not step.deps for step in steps) > 1


def _with_one_root(steps: list[Step], lanes: tuple[tuple[int, ...], ...]) -> tuple[list[Step], tuple[tuple[int, ...], ...]]:
    """Put an empty node before all that wait for nothing."""
    name = _unused_name("~start", steps)
    first = Step(0, name, EmptyNode(name=name), (), (), 0)
    moved = [
        step._replace(index=step.index + 1, deps=tuple(d + 1 for d in step.deps) or (0,), added=tuple(d + 1 for d in step.added))
        for step in steps
    ]
    rows = [[i + 1 for i in lane] for lane in lanes]
    return [first, *moved], ((0, *rows[0]), *map(tuple, rows[1:]))


def _unused_name(name: str, steps: Sequence[Step]) -> str:
    while any(step.name == name for step in steps):
        name += "~"
    return name


def narrowed(steps: list[Step], lanes: tuple[tuple[int, ...], ...]) -> tuple[list[Step], tuple[tuple[int, ...], ...], int]:
    """Put empty nodes behind steps that more than `_FAN_OUT` others wait for, as a tree."""
    followers: list[list[int]] = [[] for _ in steps]
    for step in steps:
        for source in step.deps:
            followers[source].append(step.index)
    if all(len(f) <= _FAN_OUT for f in followers):
        return steps, lanes, 0
    names = {step.name for step in steps}
    made: list[Step] = []
    place: list[int] = []  # of each old step
    stand_in: dict[tuple[int, int], int] = {}  # (old source, old follower) -> new step that it waits for instead
    for step in steps:
        deps = tuple(dict.fromkeys(stand_in.get((d, step.index), place[d]) for d in step.deps))
        index = len(made)
        place.append(index)
        added = tuple(place[d] for d in step.added if place[d] in deps)
        made.append(step._replace(index=index, deps=deps, added=added))
        waiting = followers[step.index]
        if len(waiting) <= _FAN_OUT:
            continue
        ends = [index]
        while len(ends) * _FAN_OUT < len(waiting):
            below = []
            for end in ends:
                for _ in range(_FAN_OUT):
                    name = f"{step.name}~{len(made) - index}"
                    while name in names:
                        name += "~"
                    names.add(name)
                    made.append(Step(len(made), name, EmptyNode(name=name), (), (end,), step.lane))
                    below.append(len(made) - 1)
                    if len(below) * _FAN_OUT >= len(waiting):
                        break
                if len(below) * _FAN_OUT >= len(waiting):
                    break
            ends = below
        for i, follower in enumerate(waiting):
            stand_in[step.index, follower] = ends[i // _FAN_OUT]
    rows: list[list[int]] = [[] for _ in lanes]
    for step in made:
        rows[step.lane].append(step.index)
    return made, tuple(map(tuple, rows)), len(made) - len(steps)


def _copies_by_kernel(steps: list[Step], target: Target) -> tuple[list[Step], int]:
    """Mark the small copies to page-locked memory, if there are many."""
    small = [step.index for step in steps if not step.path and suits_copy_kernel(step.node, target)]
    if len(small) < _MANY_COPIES:
        return steps, 0
    marked = set(small)
    return [step._replace(by_kernel=True) if step.index in marked else step for step in steps], len(small)


def suits_copy_kernel(node: AnyNode, target: Target) -> bool:
    """Return whether a node is a small copy to page-locked memory, which a kernel may do."""
    return (
        type(node) is MemcpyNode
        and node.nbytes <= target.copy_kernel_bytes
        and node.direction == "D2H"
        and isinstance(node.dst.root, HostArray)
        and node.dst.root.pinned
        and node.dst.contiguous
        and node.src.contiguous
    )


def _child_plan(workflow: Workflow, target: Target, children: dict[tuple[int, bool], Plan], device: int, inline: bool) -> Plan:
    """Return the plan of a child or body, made once however often it is used; which devices it uses, its binding says."""
    key = (id(workflow), inline)
    plan = children.get(key)
    if plan is None:
        plan = children[key] = _plan(workflow, target, None, children, inline, False, False, device=device)
    return plan


def _has_allocs(workflow: Workflow) -> bool:
    return any(any(map(_is_of_memory, _kinds(document))) for document in workflow.documents)


def _kinds(workflow: Workflow) -> Iterable[AnyNode]:
    """Return one node of each kind that a workflow has, for questions that all nodes of a kind answer alike."""
    return {type(node): node for node in workflow.nodes}.values()


def _is_of_memory(node: AnyNode) -> bool:
    return node.made is not None or node.freed is not None


def _is_no_child(workflow: Workflow) -> bool:
    """Return whether no child graph node may hold a workflow: one that allocates, or decides (CUDA's rule)."""
    return any(not node.in_child for document in workflow.documents for node in _kinds(document))


def _lane_bound(workflow: Workflow, target: Target, lanes: Lanes) -> int | None:
    if lanes is None:
        return None
    if isinstance(lanes, int) and not isinstance(lanes, bool):
        if lanes < 1:
            raise DeclarationError(f"lanes is at least 1 (got {lanes})")
        return lanes
    if not isinstance(lanes, str) or lanes not in ("auto", "measure"):
        raise DeclarationError(f"lanes is 'auto', 'measure', a number or None (got {lanes!r})")
    if target.on_host:
        return None  # a branch costs nothing there that gathering would save
    # Each parallel branch costs the host a fixed time a launch (0.7 us on an H200), so more branches than the device can run
    # at once only cost. How many that is, the smallest kernel says: fewer lanes could keep long kernels waiting.
    threads = min((n for n in (node.threads for node in workflow.nodes) if n), default=1)
    at_once = target.resident_threads // threads if target.resident_threads else target.concurrent_kernels
    return max(min(at_once, target.concurrent_kernels), min(_FULL_DEVICE_LANES, target.concurrent_kernels))


def _expected(target: Target, before: int, after: int) -> str:
    """Say what fewer lanes should save."""
    costs = target.costs
    then, now = (costs.launch_us + costs.branch_us * (lanes - 1) for lanes in (before, after))
    return (
        f": a launch should cost the host about {now:.0f} us instead of {then:.0f} us, at {costs.branch_us:g} us for each"
        f" parallel branch on {target.name}."
    )
