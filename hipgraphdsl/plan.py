"""Plan: what is lowered. Edges reduced to those that are needed, a stable order, and lanes (= streams).

Data flow: `Workflow` -> entries (children with allocs inlined) -> reduced edges and lanes in one pass over the topological
order -> `Plan`, plain frozen data that backends lower and that can be simulated, drawn and printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Optional, Union

from .arrays import HostArray
from .errors import DeclarationError
from .inlining import FlatNode, cycle_error, flattened
from .nodes import AllocNode, ChildGraphNode, ConditionalNode, EmptyNode, FreeNode, KernelNode, MemcpyNode, Node
from .order import levels, positions, topological_order
from .placement import device_of, devices_of
from .target import Target
from .temporaries import Packing, pack_temporaries
from .workflow import Workflow

__all__ = ["Lanes", "Plan", "Step", "make_plan", "narrowed", "suits_copy_kernel"]

Lanes = Union[int, None, Literal["auto", "measure"]]

_FULL_DEVICE_LANES = 8  # kernels that fill the device gain nothing from more (measured on an H200)
_BRANCHES_THAT_COST = 8  # times as many lanes as the device runs at once
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
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a step
    name: str
    node: Node
    origin: tuple[str, ...]
    deps: tuple[int, ...]
    lane: int
    added: tuple[int, ...] = ()
    path: tuple[ChildGraphNode, ...] = ()
    child: Optional[Plan] = None
    bodies: tuple[Plan, ...] = ()
    by_kernel: bool = False
    device: Optional[int] = None


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
    """

    workflow: Workflow
    steps: tuple[Step, ...]
    lanes: tuple[tuple[int, ...], ...]
    declared_edges: int
    notes: tuple[str, ...] = field(default=())
    packing: Optional[Packing] = None
    device: int = 0
    devices: tuple[int, ...] = (0,)
    lane_devices: tuple[int, ...] = ()

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
    def depth(self) -> int:
        """Steps on the longest path."""
        return max(levels(range(len(self.steps)), [step.deps for step in self.steps]), default=-1) + 1

    @cached_property
    def has_allocs(self) -> bool:
        """Whether a step allocates or frees memory."""
        return any(isinstance(step.node, (AllocNode, FreeNode)) for step in self.steps)

    def explain(self) -> str:
        """Return what the plan did and what it expects, in sentences."""
        return "\n".join(self.notes)

    def __str__(self) -> str:
        lines = [
            f"plan of {self.workflow.name!r}: {_count(len(self.steps), 'step')}, {_count(self.edges, 'edge')} of"
            f" {self.declared_edges} declared, {_count(len(self.lanes), 'lane')}, depth {self.depth}"
            + (f", devices {', '.join(map(str, self.devices))}" if len(self.devices) > 1 else "")
        ]
        shown = self.steps if len(self.steps) <= 40 else (*self.steps[:30], None, *self.steps[-5:])
        width = max((len(s.name) for s in shown if s), default=0)
        kinds = max([8, *(len(s.node.kind) for s in shown if s)])
        for step in shown:
            if step is None:
                lines.append(f"  ... {len(self.steps) - 35} more steps ...")
                continue
            after = ", ".join(self.steps[d].name + ("*" if d in step.added else "") for d in step.deps)
            lines.append(
                f"  {step.index:>4}  lane {step.lane:<3} {step.name:<{width}}  {step.node.kind:<{kinds}}"
                + (f"  device {step.device}" if len(self.devices) > 1 and step.device is not None else "")
                + (f" after {after}" if after else "")
            )
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"<{str(self).partition(chr(10))[0]}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def make_plan(
    workflow: Workflow, target: Target, *, lanes: Lanes = "auto", join: bool = True, inline: bool = False, pack: bool = False,
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
    return _plan(workflow, target, bound, children, inline, join, automatic, pack, device, devices_of(workflow, device))


def _packed(entries: list[FlatNode], device: int) -> tuple[list[FlatNode], Optional[Packing]]:
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
    workflow: Workflow, target: Target, bound: Optional[int], children: dict[tuple[int, bool], Plan], inline: bool, join: bool,
    automatic: bool, pack: bool = False, device: int = 0, devices: tuple[int, ...] = (0,),
) -> Plan:
    pack = pack and _has_allocs(workflow)
    packing = None
    if pack or any(isinstance(node, ChildGraphNode) and (inline or _is_no_child(node.workflow)) for node in workflow.nodes):
        entries = flattened(workflow, lambda _, child: inline or _is_no_child(child.workflow))
        if pack:
            entries, packing = _packed(entries, device)
        deps: Sequence[tuple[int, ...]] = [entry.deps for entry in entries]
        order = topological_order(deps)
    else:
        entries = None
        deps = workflow.predecessors
        order = workflow.order
    if not order and deps:
        raise cycle_error(workflow)
    placed: Optional[list[Optional[int]]] = None
    if len(devices) > 1:
        if entries:
            placed = [device_of(entry.node, device, entry.level) for entry in entries]
        else:
            placed = [device_of(node, device) for node in workflow.nodes]
    found = _reduce_and_lanes(order, deps, None if automatic else bound, placed, device)
    declared_lanes = len(found[2])
    if automatic and bound is not None and _gathers(declared_lanes, bound * len(devices), order, deps):
        found = _reduce_and_lanes(order, deps, bound, placed, device)
    reduced, lane_of, lane_steps, added, lane_devices = found
    position = positions(order)
    straight = isinstance(position, range)
    nodes = workflow.nodes
    steps = []
    for index, i in enumerate(order):
        node = entries[i].node if entries else nodes[i]
        name = entries[i].name if entries else node.name
        sources = reduced[i] if straight else tuple(sorted(position[d] for d in reduced[i]))
        extra = added.get(i, ())
        kind = type(node)
        if kind is ChildGraphNode or kind is ConditionalNode:
            child = _child_plan(node.workflow, target, children, device, False) if isinstance(node, ChildGraphNode) else None
            inner = node.bodies if isinstance(node, ConditionalNode) else ()
            bodies = tuple(_child_plan(body, target, children, device, inline) for body in inner)
            steps.append(
                Step(
                    index,
                    name,
                    node,
                    (name,),
                    sources,
                    lane_of[i],
                    tuple(position[d] for d in extra),
                    entries[i].path if entries else (),
                    child,
                    bodies,
                )
            )
        elif entries:
            steps.append(
                Step(index, name, node, (name,), sources, lane_of[i], tuple(position[d] for d in extra), entries[i].path)
            )
        else:
            steps.append(
                Step(index, name, node, (name,), sources, lane_of[i], tuple([position[d] for d in extra]) if extra else ())
            )
    if placed is not None:
        steps = [step._replace(device=placed[i]) for step, i in zip(steps, order)]
    lanes = tuple(tuple(lane) if straight else tuple(position[i] for i in lane) for lane in lane_steps)
    declared = sum(map(len, deps))
    notes = []
    if packing is not None:
        notes.append(str(packing))
    removed = declared - sum(len(s.deps) - len(s.added) for s in steps)
    if removed:
        notes.append(f"{removed} of {declared} edges are implied by others and were left out.")
    if added:
        notes.append(
            f"{sum(map(len, added.values()))} ordering edges (marked *) gather independent nodes into {len(lanes)} lanes"
            + (_expected(target, declared_lanes, len(lanes)) if automatic else ".")
        )
    if join and target.copy_kernel_bytes:
        steps, copies = _copies_by_kernel(steps, target)
        if copies:
            notes.append(
                f"{copies} small device-to-host copies are done by a kernel that writes page-locked memory: a copy node costs"
                f" {target.costs.copy_us:g} us beyond its bytes on {target.name}."
            )
    if "parallel_roots" in target.quirks and sum(not step.deps for step in steps) > 1:
        steps, lanes = _with_one_root(steps, lanes)
        notes.append(f"An empty node goes first, because on {target.name} only one root would wait for what precedes the launch.")
    if "fan_out_4" in target.quirks:
        steps, lanes, inserted = narrowed(steps, lanes)
        if inserted:
            notes.append(
                f"{inserted} empty nodes keep every node at {_FAN_OUT} direct followers or fewer, because {target.name} loses"
                " edges beyond that."
            )
    return Plan(workflow, tuple(steps), lanes, declared, tuple(notes), packing, device, devices, lane_devices)


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


def suits_copy_kernel(node: Node, target: Target) -> bool:
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


def _child_plan(
    workflow: Workflow, target: Target, children: dict[tuple[int, bool], Plan], device: int, inline: bool
) -> Plan:
    """Return the plan of a child or body, made once however often it is used; which devices it uses, its binding says."""
    key = (id(workflow), inline)
    plan = children.get(key)
    if plan is None:
        plan = children[key] = _plan(workflow, target, None, children, inline, False, False, device=device)
    return plan


def _has_allocs(workflow: Workflow) -> bool:
    return any(isinstance(node, (AllocNode, FreeNode)) for document in workflow.documents for node in document.nodes)


def _is_no_child(workflow: Workflow) -> bool:
    """Return whether no child graph node may hold a workflow: one that allocates, or decides (CUDA's rule)."""
    refused = (AllocNode, FreeNode, ConditionalNode)
    return any(isinstance(node, refused) for document in workflow.documents for node in document.nodes)


def _lane_bound(workflow: Workflow, target: Target, lanes: Lanes) -> Optional[int]:
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
    threads = min((n for n in map(_threads, workflow.nodes) if n), default=1)
    at_once = target.resident_threads // threads if target.resident_threads else target.concurrent_kernels
    return max(min(at_once, target.concurrent_kernels), min(_FULL_DEVICE_LANES, target.concurrent_kernels))


def _gathers(lanes: int, bound: int, order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> bool:
    """Return whether gathering so many lanes into `bound` pays.

    It does where more nodes could run at once than the device can. Where lanes are many only because many nodes have no
    follower, the added edges delay some (1.16 times as long with 451 lanes on an H200), until the branches cost more (0.32
    times with 3772).
    """
    return lanes > bound and (_width(order, deps) > bound or lanes > _BRANCHES_THAT_COST * bound)


def _expected(target: Target, before: int, after: int) -> str:
    """Say what fewer lanes should save."""
    costs = target.costs
    then, now = (costs.launch_us + costs.branch_us * (lanes - 1) for lanes in (before, after))
    return (
        f": a launch should cost the host about {now:.0f} us instead of {then:.0f} us, at {costs.branch_us:g} us for each"
        f" parallel branch on {target.name}."
    )


def _width(order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> int:
    """Return the most nodes of one depth, which is how many could run at once if all took the same time."""
    return max(Counter(levels(order, deps)).values(), default=0)


def _threads(node: Node) -> Optional[int]:
    return node.threads if isinstance(node, KernelNode) else None


def _reduce_and_lanes(
    order: Sequence[int], deps: Sequence[tuple[int, ...]], bound: Optional[int],
    placed: Optional[Sequence[Optional[int]]] = None, default: int = 0,
) -> tuple[list[tuple[int, ...]], list[int], list[list[int]], dict[int, tuple[int, ...]], tuple[int, ...]]:
    """Reduce the edges and cover the nodes with lanes, in one pass over the topological order.

    An edge is left out when another predecessor implies it (transitive reduction). A node continues the lane of a direct
    predecessor that ends one (of these, the one with the fewest other successors left), else any lane whose end precedes
    it, else it opens a lane; beyond `bound` it is put behind the lane that ends earliest, with an added edge. A lane belongs to
    one device, and `bound` is that of each; nodes that are `placed` on none go into any lane.

    Returns
    -------
    reduced, lane of each node, nodes of each lane, added edges by node, device of each lane
    """
    n = len(order)
    reduced: list[tuple[int, ...]] = [()] * n
    lane_of = [0] * n
    place = [0] * n  # of each node within its lane
    lanes: list[list[int]] = []
    owners: list[int] = []  # device of each lane
    added: dict[int, tuple[int, ...]] = {}
    position = positions(order)
    left = [0] * n  # successors that have not been visited
    for sources in deps:
        for source in sources:
            left[source] += 1
    depths = [0] * n
    # What precedes a node, as the place of the last such node in each lane: lanes are totally ordered, so that says it all,
    # and it costs only as much as the graph is wide. The node itself is included; a clock is dropped, or taken over, by the
    # last successor.
    clocks: dict[int, dict[int, int]] = {}
    for i in order:
        sources = deps[i]
        level = 0
        if not sources:
            kept: tuple[int, ...] = ()
            clock: dict[int, int] = {}
        elif len(sources) == 1:
            kept = sources
            source = sources[0]
            level = depths[source]
            left[source] -= 1
            clock = clocks[source] if left[source] or bound else clocks.pop(source)
            if left[source] or bound:
                clock = clock.copy()
        else:
            keep = []
            clock = {}
            for source in sorted(sources, key=position.__getitem__, reverse=True):
                left[source] -= 1
                if clock.get(lane_of[source], -1) < place[source]:
                    keep.append(source)
                    level = max(level, depths[source])
                    for lane, at in clocks[source].items():
                        if clock.get(lane, -1) < at:
                            clock[lane] = at
                if not left[source] and not bound:
                    del clocks[source]
            keep.reverse()
            kept = tuple(keep)
        lane = -1
        fewest = 0
        device = None if placed is None else placed[i]
        for source in kept:
            mine = lane_of[source]
            if device is not None and owners[mine] != device:
                continue
            if lanes[mine][-1] == source and (lane < 0 or left[source] < fewest):
                lane, fewest = mine, left[source]
        if lane < 0:
            for mine, at in clock.items():
                if device is not None and owners[mine] != device:
                    continue
                if len(lanes[mine]) == at + 1 and (lane < 0 or depths[lanes[mine][-1]] > depths[lanes[lane][-1]]):
                    lane = mine
        if lane < 0:
            owner = default if device is None else device
            if bound is None or (len(lanes) if placed is None else owners.count(owner)) < bound:
                lane = len(lanes)
                lanes.append([])
                owners.append(owner)
            else:
                mine_only = [k for k in range(len(lanes)) if owners[k] == owner]
                lane = min(mine_only, key=lambda k: (depths[lanes[k][-1]], k))
                tail = lanes[lane][-1]
                added[i] = (tail,)
                level = max(level, depths[tail])
                for other, at in clocks[tail].items():
                    if clock.get(other, -1) < at:
                        clock[other] = at
                kept = (*(d for d in kept if clocks[tail].get(lane_of[d], -1) < place[d]), tail)
        line = lanes[lane]
        place[i] = clock[lane] = len(line)
        line.append(i)
        lane_of[i] = lane
        reduced[i] = kept
        depths[i] = level + 1
        if left[i] or bound:
            clocks[i] = clock
    return reduced, lane_of, lanes, added, tuple(owners)
