"""Planning: transitive reduction of the edges, a stable topological order, and lanes (= streams).

Data flow: `Workflow` -> entries (children with allocs inlined) -> reduced edges and lanes (`lanes`) -> steps -> steps adapted to
the target's quirks (`suited`) -> `Plan`, which backends lower and which can be simulated, drawn and printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..arrays import as_int
from ..collecting import collector_paused
from ..deciding import host_decides, one_by_one
from ..errors import HipGraphError
from ..nodes import Node
from ..nodes.workflow import Level, Workflow
from ..order import follower_counts, positions
from ..parts import ENABLED, find, load
from ..printed import counted
from ..target import Target
from . import reuse
from .lanes import Cover, covered, gathers
from .options import DEFAULT_PLAN, Batch, Lanes, PlanOptions
from .steps import Plan, Step
from .suited import suited

if TYPE_CHECKING:
    from .inlining import FlatNode
    from .merged import Grouping, Merged
    from .temporaries import Packing

_FULL_DEVICE_LANES = 8  # kernels that fill the device gain nothing from more (measured on an H200)


@collector_paused()
def make_plan(
    workflow: Workflow,
    target: Target,
    options: PlanOptions = DEFAULT_PLAN,
    *,
    device: int = 0,
) -> Plan:
    """Plan a workflow for a target; `device` is the device of nodes and arrays that name none.

    A living plan of a workflow of the same shape is taken over (`reuse`).

    Raises
    ------
    DeclarationError
        If the workflow has a cycle; the message names its nodes.
    """
    devices = workflow.devices_with(device)
    lanes, join, batch = options.lanes, options.join, options.batch
    if lanes != "auto" or (batch == "auto" and not join):
        batch = False
    bound = partial(_lane_bound, target=target, lanes=lanes)
    key = reuse.key_of(workflow, target, options, device, devices)
    shape = partial(reuse.shape_of, target=target, batch=batch, bound=bound, packs=bool(options.pack))
    plan = reuse.taken_over(key, workflow, shape)
    if plan is None:
        plan = _made(workflow, target, options, device, devices, bound(workflow), batch=batch)
    reuse.note(key, plan)  # one that was taken over may outlive the plan that it was made from
    return plan


def _made(
    workflow: Workflow,
    target: Target,
    options: PlanOptions,
    device: int,
    devices: tuple[int, ...],
    bound: int | None,
    *,
    batch: Batch,
) -> Plan:
    """Make a plan afresh, with at most `bound` lanes on each device."""
    lanes, join = options.lanes, options.join
    if target.bypass_edges and (lanes is None or not join):
        target = replace(target, bypass_edges=0)
    automatic = lanes is None or isinstance(lanes, str)
    planner = _Planner(
        target, device, devices, options.inline, bound, automatic=automatic, join=join, pack=options.pack, batch=batch
    )
    plan = planner.plan(workflow)
    for change in _passes(target, batch=batch, programmatic=options.programmatic):
        plan = change(plan)
    return plan


def _passes(target: Target, *, batch: Batch, programmatic: bool) -> Iterator[Callable[[Plan], Plan]]:
    """Yield what changes a plan after its steps have their lanes, in order; each takes a plan and returns a plan."""
    if batch is True or (batch == "auto" and target.costs.batched_us):
        merge = _merging(batch)
        if merge is not None:
            yield partial(merge.with_chains, target=target, automatic=batch == "auto")
    if programmatic and target.programmatic_launch:
        merge = find("merge")
        if merge is not None:
            yield merge.with_programmatic_edges
    for part, own in ENABLED.items():
        for name, change in own.passes.items():
            yield partial(_changed_by, part, name, change, target)


def _changed_by(part: str, name: str, change: Callable[[Plan, Target], Plan], target: Target, plan: Plan) -> Plan:
    """Return a plan after a pass of another package."""
    changed = change(plan, target)
    if not isinstance(changed, Plan):
        raise HipGraphError(f"pass {name!r} of part {part!r} returns a Plan (got {type(changed).__name__})")
    return changed


def _merging(batch: Batch) -> Any:
    """Return the part that merges launches; None if it is not there and `batch` leaves it to the plan."""
    return load("merge") if batch is True else find("merge")


class _Nodes(NamedTuple):
    """The nodes that become steps."""

    nodes: Sequence[Node]
    deps: Sequence[tuple[int, ...]]  # including the edges that `chained` adds
    order: Sequence[int]  # topological
    entries: Sequence[FlatNode] | None  # the flattened nodes; None if the nodes are the workflow's own
    declared: int  # number of declared edges
    placed: Sequence[int | None] | None  # the device of each node; None if there is only one device
    chained: Mapping[int, int]  # conditional node -> its predecessor, for those that must run one at a time
    by_host: Set[int]  # nodes that the host runs

    @property
    def places(self) -> Sequence[tuple[int | None, int]]:
        """The device and the segment of each node."""
        if not self.by_host and self.placed is None:
            return [(None, 0)] * len(self.nodes)
        from .segments import segments

        position = positions(self.order)
        deps = [tuple([position[source] for source in self.deps[i]]) for i in self.order]
        groups = segments(deps, [i in self.by_host for i in self.order])
        segment_of = {self.order[k]: number for number, group in enumerate(groups) for k in group}
        return [(None if self.placed is None else self.placed[i], segment_of[i]) for i in range(len(self.nodes))]


@dataclass(frozen=True)
class _Planner:
    """Plan workflows with some of the arguments of `make_plan`; each child or body is planned once, however often it is used."""

    target: Target
    device: int
    devices: tuple[int, ...]
    inline: bool
    bound: int | None  # maximum number of lanes on each device
    automatic: bool  # whether `bound` applies only where that pays
    join: bool
    pack: bool | Literal["all"]
    batch: Batch
    children: dict[tuple[int, bool], Plan] = field(default_factory=dict)  # key: the workflow's `id`, and `inline`

    def plan(self, workflow: Workflow) -> Plan:
        notes: list[str] = []
        entries, packing = self._entries(workflow, notes)
        found = self._nodes(workflow, entries)
        cover, grouping, before = self._in_lanes(found, notes)
        order = found.order if grouping is None else tuple(grouping.order)
        position = positions(order)
        behind = {i: (source,) for i, source in found.chained.items() if source in cover.reduced[i]}
        gathered = cover.added
        notes += _edge_notes(found, cover, len(behind), self.target, before if self.automatic else 0)
        cover = cover._replace(added=gathered | {i: (*gathered.get(i, ()), *sources) for i, sources in behind.items()})
        steps = _steps(found, order, position, cover)
        batches: tuple[Merged, ...] = ()
        if grouping is not None:
            batches = grouping.batches
            steps = [step.in_batch(grouping.batch_of[grouping.group_of[i]]) for step, i in zip(steps, order)]
            launches = sum(step.batch >= 0 and step.node.launched is not None for step in steps)
            made = "one launch" if len(batches) == 1 else f"{len(batches)} launches"
            notes.append(f"{launches} kernel nodes become {made}, each of nodes that no path orders and that wait for the same.")
        if len(workflow.documents) > 1:
            for step in [step for step in steps if step.node.held]:
                steps[step.index] = self._with_plans(step)
        steps = suited(steps, self.target, self.join, notes, narrow=not batches)
        owners = tuple(cover.devices)
        nbytes = round(self.target.costs.node_bytes)
        places = self.device, self.devices, owners
        return Plan(workflow, tuple(steps), found.declared, tuple(notes), packing, *places, batches, node_bytes=nbytes)

    def _entries(self, workflow: Workflow, notes: list[str]) -> tuple[list[FlatNode] | None, Packing | None]:
        """Return the flattened nodes (None if the workflow's own nodes become steps) and the packing of arrays (None if none)."""
        most = self.target.bypass_edges
        packs = self.pack and _any_kind(workflow, lambda node: node.made is not None or node.freed is not None)
        bypasses = most and any(node.idle for node in workflow.nodes)
        opens = len(workflow.documents) > 1 and any(
            node.is_child and (self.inline or _is_no_child(node.held[0][1])) for node in workflow.nodes
        )
        if not (packs or bypasses or opens):
            return None, None
        from .inlining import flattened

        entries = flattened(Level(workflow), lambda _, child: self.inline or _is_no_child(child.held[0][1]))
        packing = None
        if packs:
            from .temporaries import pack_temporaries

            packing = pack_temporaries(entries, self.device, every=self.pack == "all")
        if packing is not None:
            notes.append(str(packing))
            gone = set(packing.nodes)
            entries = _without(entries, lambda i, sources: entries[i].name in gone)
        if bypasses:
            count = len(entries)
            followers = follower_counts(entry.deps for entry in entries)
            entries = (
                _without(entries, lambda i, sources: entries[i].node.idle and len(sources) * followers[i] <= most) or entries
            )
            if left := count - len(entries):
                past = "it" if left == 1 else "them"
                notes.append(f"{counted(left, 'empty node')} left out: the few edges past {past} cost less.")
        return entries, packing

    def _nodes(self, workflow: Workflow, entries: Sequence[FlatNode] | None) -> _Nodes:
        """Return the nodes that become steps: the workflow's own, or those of `entries`."""
        target, device = self.target, self.device
        nodes: Sequence[Node]
        deps: Sequence[tuple[int, ...]]
        if entries is None:
            nodes, deps, order, levels = workflow.nodes, workflow.predecessors, workflow.order, [Level(workflow)]
            levels *= len(nodes)
            if nodes and not order:
                from .inlining import cycle_error

                raise cycle_error(workflow)
        else:
            nodes, deps, levels = ([getattr(entry, name) for entry in entries] for name in ("node", "deps", "level"))
            order = tuple(range(len(entries)))
        placed = None
        if len(self.devices) > 1:
            from ..placement import device_of

            placed = [device_of(node, device, level) for node, level in zip(nodes, levels)]
        declared = sum(map(len, deps))
        chained = one_by_one(nodes, order, deps, levels, target)
        if chained:
            deps = [tuple(sorted((*sources, chained[i]))) if i in chained else sources for i, sources in enumerate(deps)]
        may = {kind for kind in {type(node) for node in nodes} if kind.calls == "between" or kind.branch is not Node.branch}
        by_host = {
            i
            for i, node in (enumerate(nodes) if may else ())
            if type(node) in may and (node.calls == "between" or host_decides(node, levels[i], target))
        }
        return _Nodes(nodes, deps, order, entries, declared, placed, chained, by_host)

    def _in_lanes(self, found: _Nodes, notes: list[str]) -> tuple[Cover, Grouping | None, int]:
        """Return the reduced edges and lanes, the batches if any, and the number of lanes before gathering."""
        order, deps = found.order, found.deps
        limit = None if self.bound is None else self.bound * len(self.devices)
        grouping = None
        cover = covered(order, deps, None if self.automatic else self.bound, found.placed, self.device)
        launching = (True for node in found.nodes if node.kernels)
        several = next(launching, False) and next(launching, False)  # else there is nothing to merge
        merge = _merging(self.batch) if self.batch and several else None
        if merge is not None:
            cover, grouping = merge.in_batches(found, cover, limit, self.batch == "auto", self.target, self.device, notes)
        lanes = len(cover.devices)
        if grouping is None and self.automatic and limit is not None and gathers(lanes, limit, order, deps):
            cover = covered(order, deps, self.bound, found.placed, self.device)
        return cover, grouping, lanes

    def _with_plans(self, step: Step) -> Step:
        """Return a step with the plans of its node's child graph or bodies."""
        held = [workflow for _, workflow, _ in step.node.held]
        if step.node.is_child:
            return step._replace(child=self._child_plan(held[0], inline=False))
        return step._replace(bodies=tuple(self._child_plan(body, inline=self.inline) for body in held))

    def _child_plan(self, workflow: Workflow, *, inline: bool) -> Plan:
        """Return the plan of a child or body; its `devices` are not resolved, because they depend on the binding."""
        plan = self.children.get((id(workflow), inline))
        if plan is None:
            inner = replace(self, devices=(0,), inline=inline, bound=None, automatic=False, join=False, pack=False, batch=False)
            plan = self.children[id(workflow), inline] = inner.plan(workflow)
        return plan


def _without(entries: Sequence[FlatNode], leaves_out: Callable[[int, tuple[int, ...]], bool]) -> list[FlatNode]:
    """Remove entries; a kept entry inherits the predecessors of the removed entries that it waited for.

    `leaves_out` decides by the index of an entry and the positions of the kept entries that it waits for.
    """
    kept: list[FlatNode] = []
    ends: list[tuple[int, ...]] = []  # for each entry the kept entries that a successor must wait for
    for i, entry in enumerate(entries):
        deps = tuple(dict.fromkeys(end for source in entry.deps for end in ends[source]))
        if leaves_out(i, deps):
            ends.append(deps)
        else:
            ends.append((len(kept),))
            kept.append(replace(entry, deps=deps))
    return kept


def _edge_notes(found: _Nodes, cover: Cover, ordered: int, target: Target, before: int) -> list[str]:
    """Return notes on removed and added edges; `before` is the number of lanes before gathering, 0 if the caller set `lanes`."""
    notes = []
    declared, gathered = found.declared, sum(map(len, cover.added.values()))
    removed = declared + ordered + gathered - sum(map(len, cover.reduced))
    if removed:
        notes.append(f"{removed} of {declared} edges are implied by others and were left out.")
    if ordered:
        edges = counted(ordered, "ordering edge")
        notes.append(f"{edges} (marked *) for conditional nodes to run one by one: else a launch on {target.name} may never end.")
    if gathered:
        lanes = len(cover.devices)
        notes.append(
            f"{gathered} ordering edges (marked *) gather independent nodes into {lanes} lanes"
            + (_expected(target, before, lanes) if before else ".")
        )
    return notes


def _steps(found: _Nodes, order: Sequence[int], position: Sequence[int], cover: Cover) -> list[Step]:
    """Return the nodes as steps in the given order, with dependencies as positions in it."""
    nodes, entries, placed = found.nodes, found.entries, found.placed
    reduced, lane_of, added = cover.reduced, cover.lane_of, cover.added
    straight = isinstance(position, range)
    steps = []
    path: tuple[Node, ...] = ()
    for index, i in enumerate(order):
        node, sources = nodes[i], reduced[i]
        if not straight:
            sources = tuple(sorted([position[source] for source in sources]))
        extra = tuple([position[source] for source in added[i]]) if i in added else ()
        if entries is None:
            name = node.name
        else:
            name, path = entries[i].name, entries[i].path
        steps.append(Step(index, name, node, (name,), sources, lane_of[i], extra, path))
    for i in found.by_host:
        steps[position[i]] = steps[position[i]]._replace(by_host=True)
    return steps if placed is None else [step._replace(device=placed[i]) for step, i in zip(steps, order)]


def _any_kind(workflow: Workflow, holds: Callable[[Node], bool]) -> bool:
    """Return whether `holds` is true for any node of a workflow or its children; it must depend only on the node's type."""
    return any(holds(node) for document in workflow.documents for node in {type(n): n for n in document.nodes}.values())


def _is_no_child(workflow: Workflow) -> bool:
    """Return whether a workflow cannot be a child graph node, because it allocates or has conditional nodes (CUDA's rule)."""
    return _any_kind(workflow, lambda node: not node.in_child)


def _lane_bound(workflow: Workflow, target: Target, lanes: Lanes) -> int | None:
    if lanes is None:
        return None
    if not isinstance(lanes, str):
        return as_int(lanes)
    if target.on_host:
        return None  # branches cost nothing there, so gathering saves nothing
    # Each parallel branch costs the host a fixed time per launch (0.7 us on an H200), so branches beyond those that the device
    # can run at once only add cost. The smallest kernel sets that number: fewer lanes could delay long kernels.
    threads = min(filter(None, {node.threads for node in workflow.nodes}), default=1)
    at_once = target.resident_threads // threads if target.resident_threads else target.concurrent_kernels
    return max(min(at_once, target.concurrent_kernels), min(_FULL_DEVICE_LANES, target.concurrent_kernels))


def _expected(target: Target, before: int, after: int) -> str:
    """Return a note on the launch time that fewer lanes should save."""
    costs = target.costs
    then, now = (costs.launch_us + costs.branch_us * (lanes - 1) for lanes in (before, after))
    return (
        f": a launch should cost the host about {now:.0f} us instead of {then:.0f} us, at {costs.branch_us:g} us for each"
        f" parallel branch on {target.name}."
    )
