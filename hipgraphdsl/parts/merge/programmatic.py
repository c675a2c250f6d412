"""Programmatic dependent launch: which kernels may be launched while their predecessors end.

The edges to a kernel node become programmatic if all of them come from kernel nodes of its device and the kernel begins with a
wait for its predecessors (`kernels.waiting`). The consumer decides: a kernel without that wait would read data that is not yet
written. Successors of such a kernel are safe, because it ends only after its wait. A chain hides launch overhead except the wait.

A graph with alloc or free nodes keeps plain edges, because CUDA removes no edge from it ("Dependencies cannot be removed from
graphs which contain allocation or free nodes", CUDA Driver API, cuGraphRemoveDependencies).

Only one follower of a kernel is launched early: the one in its lane, or its only follower. With all followers launched early,
diamonds of short kernels took 1.21 times as long as with plain edges (H200, driver 580.159; with one 0.95, and a chain 0.77).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ...order import follower_counts
from ...plan.steps import Plan, Step
from ...printed import counted
from .waiting import waits


def with_programmatic_edges(plan: Plan) -> Plan:
    """Return the plan with `programmatic` set, in its children and bodies too."""
    made = _with_edges(plan)
    count = _count(made)
    if not count:
        return plan
    said = "1 kernel is" if count == 1 else f"{counted(count, 'kernel')} are"
    waiting = "and waits by itself" if count == 1 else "and wait by themselves"
    return replace(made, notes=(*made.notes, f"{said} launched while what is before ends, {waiting} (programmatic edges)."))


def _with_edges(plan: Plan) -> Plan:
    steps = plan.steps
    nested = {
        step.index: step._replace(
            child=None if step.child is None else _with_edges(step.child),
            bodies=tuple(map(_with_edges, step.bodies)),
        )
        for step in steps
        if step.child is not None or step.bodies
    }
    found = () if plan.has_allocs else tuple(_early(steps, _launched_behind(plan)))
    return replace(plan.with_steps(nested), programmatic=found) if nested or found else plan


def _launched_behind(plan: Plan) -> dict[int, Collection[int]]:
    """Return the predecessors of each launch that has any; a launch is identified by its first step."""
    if not plan.batches:
        return {step.index: step.deps for step in plan.steps if step.deps}
    first = [run.start for run in plan.runs]
    found: dict[int, Collection[int]] = {}
    for step, own in zip(plan.steps, first):
        sources = {first[d] for d in step.deps} - {own}
        if sources:
            found[own] = sources.union(found.get(own, ()))
    return dict(sorted(found.items()))


def _early(steps: Sequence[Step], before: Mapping[int, Collection[int]]) -> Iterator[int]:
    """Yield the kernel launches that wait for their predecessors in the kernel and whose incoming edges may be programmatic."""
    followers = follower_counts(before.values())
    plain = [(launch := step.node.launched) is not None and launch.plain for step in steps]
    for own, sources in before.items():
        step = steps[own]
        if not plain[own]:
            continue
        for d in sources:
            source = steps[d]
            if not plain[d] or source.device != step.device or (source.lane != step.lane and followers[d] > 1):
                break
        else:
            if step.batch >= 0 or all(map(waits, step.node.kernels)):  # each entry point of a batch waits
                yield own


def _count(plan: Plan) -> int:
    inner = (part for step in plan.steps for part in (step.child, *step.bodies) if part is not None)
    return len(plan.programmatic) + sum(map(_count, inner))
