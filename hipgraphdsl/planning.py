"""Planning: edges reduced to those that are needed, a stable order, and lanes (= streams).

Data flow: `Workflow` -> entries (children with allocs inlined) -> reduced edges and lanes (`lanes`) -> steps -> steps as the
target's quirks need them (`suited`) -> `Plan`, which backends lower and which can be simulated, drawn and printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from .any_order import in_any_order
from .batches import Grouping, candidates, grouped, unpaid
from .chains import with_chains
from .deciding import host_decides, one_by_one
from .errors import DeclarationError
from .inlining import FlatNode, cycle_error, flattened
from .kernels import Kernel, Module
from .lanes import Cover, covered, gathers
from .nodes import EagerNode, EmptyNode, KernelNode
from .order import follower_counts, positions, topological_order
from .placement import device_of, devices_of
from .plan import Plan, Step
from .printed import counted
from .programmatic import with_programmatic_edges
from .suited import FAN_OUT, suited
from .target import Target
from .temporaries import Packing, pack_temporaries
from .workflow import AnyNode, ChildGraphNode, ConditionalNode, Level, Workflow

Lanes = int | None | Literal["auto", "measure"]
Batch = bool | Literal["auto"]

_FULL_DEVICE_LANES = 8  # kernels that fill the device gain nothing from more (measured on an H200)


def make_plan(
    workflow: Workflow,
    target: Target,
    *,
    lanes: Lanes = "auto",
    join: bool = True,
    inline: bool = False,
    pack: bool = False,
    batch: Batch = "auto",
    programmatic: bool = True,
    any_order: bool = False,
    device: int = 0,
) -> Plan:
    """Plan a workflow for a target.

    Parameters
    ----------
    lanes : "auto", int or None
        At most this many lanes on each device; None keeps the declared shape, ``"auto"`` gathers independent nodes where the
        target's costs say that it pays.
    join : bool
        Whether neighbouring copies may become one step, and few edges take the place of an empty node.
    inline : bool
        Put the nodes of every child graph in its place, as backends that issue on streams need it; else only those of
        children that allocate or hold conditional nodes.
    pack : bool
        Let arrays of alloc nodes share memory where the plan's order keeps their uses apart.
    batch : bool or "auto"
        Let launches of one kernel that wait for the same, and those of one block that follow each other, become one, where
        `lanes` is ``"auto"``: all that can, or with ``"auto"`` those that the target's costs say it pays for, where `join`
        allows it.
    programmatic : bool
        Let kernels be launched while those before them end, where the target can.
    any_order : bool
        Let kernels begin before those before them in their lane have ended, where no edge asks for that; nothing is batched then.
    device : int
        The device of all that names none.

    Raises
    ------
    DeclarationError
        If `lanes` is no lane count, `batch` none of its values, or the workflow has a cycle; the message names it node by node.
    """
    require_batch(batch)
    bound = _lane_bound(workflow, target, lanes)
    children: dict[tuple[int, bool], Plan] = {}
    automatic = not isinstance(lanes, int)
    if target.bypass_edges and (lanes is None or not join):
        target = replace(target, bypass_edges=0)
    if lanes != "auto" or any_order or (batch == "auto" and not join):
        batch = False
    devices = devices_of(workflow, device)
    plan = _plan(workflow, target, bound, children, inline, join, automatic, pack, device, devices, batch, any_order)
    if batch is True or (batch == "auto" and target.costs.batched_us):
        plan = with_chains(plan, target, automatic=batch == "auto")
    return with_programmatic_edges(plan) if programmatic and target.programmatic_launch else plan


def require_batch(batch: Any) -> None:
    """Refuse what is none of the values of `batch`.

    Raises
    ------
    DeclarationError
    """
    if not isinstance(batch, bool) and (not isinstance(batch, str) or batch != "auto"):
        raise DeclarationError(f"batch is 'auto', True or False (got {batch!r})")


def _entries(
    workflow: Workflow, target: Target, inline: bool, pack: bool, device: int, notes: list[str]
) -> tuple[list[FlatNode] | None, Packing | None]:
    """Return the nodes that become steps, and where packed arrays lie; None where they are the workflow's own."""
    pack = pack and _has_allocs(workflow)
    bypasses = target.bypass_edges and any(type(node) is EmptyNode for node in workflow.nodes)
    opens = len(workflow.documents) > 1 and any(
        isinstance(node, ChildGraphNode) and (inline or _is_no_child(node.workflow)) for node in workflow.nodes
    )
    if not (pack or bypasses or opens):
        return None, None
    entries = flattened(Level(workflow), lambda _, child: inline or _is_no_child(child.workflow))
    entries, packing = _packed(entries, device) if pack else (entries, None)
    if bypasses and (left := len(entries) - len(kept := _bypassed(entries, target))):
        notes.append(f"{counted(left, 'empty node')} left out: the few edges past {'it' if left == 1 else 'them'} cost less.")
        entries = kept
    return entries, packing


def _packed(entries: list[FlatNode], device: int) -> tuple[list[FlatNode], Packing | None]:
    """Leave out the alloc and free nodes of arrays that can share memory; what they had ordered stays ordered."""
    packing = pack_temporaries(entries, device)
    if packing is None:
        return entries, None
    gone = set(packing.nodes)
    return _without(entries, lambda entry, sources: entry.name in gone), packing


def _bypassed(entries: list[FlatNode], target: Target) -> list[FlatNode]:
    """Leave out the empty nodes whose place few edges can take."""
    followers = follower_counts(entry.deps for entry in entries)
    places = {id(entry): i for i, entry in enumerate(entries)}

    def is_bypassed(entry: FlatNode, sources: tuple[int, ...]) -> bool:
        return type(entry.node) is EmptyNode and len(sources) * followers[places[id(entry)]] <= target.bypass_edges

    return _without(entries, is_bypassed) or entries


def _without(entries: Iterable[FlatNode], leaves_out: Callable[[FlatNode, tuple[int, ...]], bool]) -> list[FlatNode]:
    """Return the entries that are kept, which wait for what those before them had waited for where these are left out.

    Parameters
    ----------
    leaves_out : callable
        Takes an entry and those that are kept and finish what it waits for.
    """
    kept: list[FlatNode] = []
    ends: list[tuple[int, ...]] = []  # for each entry those that are kept and finish it
    for entry in entries:
        deps = tuple(dict.fromkeys(end for source in entry.deps for end in ends[source]))
        if leaves_out(entry, deps):
            ends.append(deps)
        else:
            ends.append((len(kept),))
            kept.append(replace(entry, deps=deps))
    return kept


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
    batch: Batch = False,
    any_order: bool = False,
) -> Plan:
    notes: list[str] = []
    entries, packing = _entries(workflow, target, inline, pack, device, notes)
    deps: Sequence[tuple[int, ...]] = workflow.predecessors if entries is None else [entry.deps for entry in entries]
    order = workflow.order if entries is None else topological_order(deps)
    if not order and deps:
        raise cycle_error(workflow)
    placed: list[int | None] | None = None
    if len(devices) > 1 and entries is not None:
        placed = [device_of(entry.node, device, entry.level) for entry in entries]
    elif len(devices) > 1:
        placed = [device_of(node, device) for node in workflow.nodes]
    nodes = workflow.nodes if entries is None else [entry.node for entry in entries]
    limit = None if bound is None else bound * len(devices)
    declared = sum(map(len, deps))
    level_of = [Level(workflow)] * len(nodes) if entries is None else [entry.level for entry in entries]
    chained = one_by_one(nodes, order, deps, level_of, target)
    if chained:
        deps = [tuple(sorted((*sources, chained[i]))) if i in chained else sources for i, sources in enumerate(deps)]
    position = positions(order)
    cover = covered(order, position, deps, None if automatic else bound, placed, device)
    declared_lanes = len(cover.lanes)
    groups = _in_batches(nodes, order, cover, placed, target, limit, device, notes, batch) if batch else None
    if groups is not None:
        cover, grouping = groups
        order = tuple(grouping.order)
        position = positions(order)
        declared_lanes = len(cover.lanes)
    elif automatic and limit is not None and gathers(declared_lanes, limit, order, deps):
        cover = covered(order, position, deps, bound, placed, device)
    gathered, behind = cover.added, {i: (before,) for i, before in chained.items() if before in cover.reduced[i]}
    cover = cover._replace(added=gathered | {i: (*gathered.get(i, ()), *before) for i, before in behind.items()})
    steps = _steps(workflow.nodes, entries, order, position, cover, placed)
    if groups is not None:
        steps = [step.in_batch(grouping.batch_of[grouping.group_of[i]]) for step, i in zip(steps, order)]
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
        launches = sum(step.batch >= 0 and isinstance(step.node, KernelNode) for step in steps)
        made = "one launch" if len(batches) == 1 else f"{len(batches)} launches"
        notes.append(f"{launches} kernel nodes become {made}, each of nodes that no path orders and that wait for the same.")
    if any_order:
        steps = in_any_order(steps, [[position[d] for d in deps[i]] for i in order], notes)
    steps, lanes = suited(steps, lanes, target, join, notes, narrow=not batches)
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
        edges = counted(ordered, "ordering edge")
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
    declared: Cover,
    placed: Sequence[int | None] | None,
    target: Target,
    limit: int | None,
    device: int,
    notes: list[str],
    batch: Batch,
) -> tuple[Cover, Grouping] | None:
    """Return an order in which batches are neighbours in one lane each; None where there are none, or lanes must be gathered."""
    automatic = batch == "auto"
    among = candidates(nodes, declared.depths, target, automatic=automatic)
    if automatic and not target.costs.batched_us:
        if among:
            notes.append(f"Nothing is batched: that is not known to save time on {target.name} (batch=True does it).")
        return None
    while True:
        if not among:
            return None
        grouping = grouped(nodes, order, declared.reduced, declared.depths, placed, target, among, even=automatic)
        outer = _between(order, declared.reduced, grouping)
        count = len(outer)
        one_of = {grouping.group_of[i]: i for i in reversed(grouping.order)}
        devices = None if placed is None else [placed[one_of[group]] for group in range(count)]
        cover = covered(range(count), range(count), outer, None, devices, device)
        before = len(declared.lanes) if limit is None else min(limit, len(declared.lanes))
        losing = unpaid(grouping, target, before - len(cover.lanes)) if automatic else {}
        left: dict[Kernel | Module, str] = dict((*grouping.refused.items(), *losing.items()))
        notes += [_not_batched(what, why) for what, why in left.items()]
        if not losing:
            break
        among = [what for what in among if what not in left]
    if not grouping.batches:
        return None
    if limit is not None and gathers(len(cover.lanes), limit, range(count), outer):
        return None
    if "fan_out_4" in target.quirks and _fan_out(outer) > FAN_OUT:
        notes.append(f"Nothing is batched: {target.name} loses edges beyond {FAN_OUT} followers, and a launch would have more.")
        return None
    rows: list[list[int]] = [[] for _ in cover.lanes]
    lane_of = [cover.lane_of[group] for group in grouping.group_of]
    for i in grouping.order:
        rows[lane_of[i]].append(i)
    return Cover(declared.reduced, lane_of, rows, {}, cover.devices, declared.depths), grouping


def _not_batched(what: Kernel | Module, why: str) -> str:
    said = f"of kernel {what.name!r}" if isinstance(what, Kernel) else f"of different kernels of module {what.name!r}"
    return f"Launches {said} are not batched: {why}."


def _between(order: Sequence[int], deps: Sequence[tuple[int, ...]], grouping: Grouping) -> list[tuple[int, ...]]:
    """Return for each group those that it waits for."""
    found: list[set[int]] = [set() for _ in grouping.batch_of]
    group_of = grouping.group_of
    for i in order:
        found[group_of[i]].update([group_of[source] for source in deps[i]])
    return [tuple(sorted(sources - {group})) for group, sources in enumerate(found)]


def _fan_out(deps: Sequence[tuple[int, ...]]) -> int:
    """Return the most direct followers of a node, and of one before all that wait for nothing."""
    return max(sum(not sources for sources in deps), *follower_counts(deps).values(), 0)


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
