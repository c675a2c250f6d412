"""Programmatic dependent launch: which kernels may be launched while those before them end.

Edges to a kernel node become programmatic where all of them come from kernel nodes of its device and the kernel begins by waiting
for these itself (`kernels.waiting`). It is the consumer that decides: a kernel that does not wait would read what is not there
yet. What follows such a kernel is safe, since it ends only after its wait. A chain saves what a launch costs beyond the wait.

A graph with alloc or free nodes keeps plain edges, since CUDA removes none from it ("Dependencies cannot be removed from graphs
which contain allocation or free nodes", CUDA Driver API, cuGraphRemoveDependencies).

Of the followers of a kernel one is launched early, that in its lane or its only one: where all were, diamonds of short kernels
took 1.21 times as long as with plain edges (H200, driver 580.159; with one 0.95, and a chain 0.77).
"""

from __future__ import annotations

from dataclasses import replace

from .kernels import Kernel, waits
from .nodes import KernelNode
from .plan import Plan, counted
from .workflow import AnyNode


def with_programmatic_edges(plan: Plan) -> Plan:
    """Return the plan with what says which of its edges are programmatic, in its children and bodies too."""
    known: dict[Kernel, bool] = {}
    made = _with_edges(plan, known)
    count = _count(made)
    if not count:
        return plan
    said = "1 kernel is" if count == 1 else f"{counted(count, 'kernel')} are"
    waiting = "and waits by itself" if count == 1 else "and wait by themselves"
    return replace(made, notes=(*made.notes, f"{said} launched while what is before ends, {waiting} (programmatic edges)."))


def _with_edges(plan: Plan, known: dict[Kernel, bool]) -> Plan:
    steps = plan.steps
    nested = {
        step.index: step._replace(
            child=None if step.child is None else _with_edges(step.child, known),
            bodies=tuple(_with_edges(body, known) for body in step.bodies),
        )
        for step in steps
        if step.child is not None or step.bodies
    }
    first = list(range(len(steps)))  # of the steps of its batch, for each step
    for step in steps:
        if step.index and step.batch >= 0 and steps[step.index - 1].batch == step.batch:
            first[step.index] = first[step.index - 1]
    before: list[set[int]] = [set() for _ in steps]
    followers: list[set[int]] = [set() for _ in steps]
    for step in steps:
        own = first[step.index]
        before[own].update(first[d] for d in step.deps)
        before[own].discard(own)
    for own, sources in enumerate(before):
        for source in sources:
            followers[source].add(own)
    found = tuple(
        i
        for i, sources in enumerate(before)
        if sources
        and not plan.has_allocs
        and all(steps[d].lane == steps[i].lane or len(followers[d]) == 1 for d in sources)
        and all(_is_plain(steps[d].node) and steps[d].device == steps[i].device for d in (i, *sources))
        and (steps[i].batch >= 0 or _waits(steps[i].node, known))
    )
    return replace(plan.with_steps(nested), programmatic=found) if nested or found else plan


def _waits(node: AnyNode, known: dict[Kernel, bool]) -> bool:
    """Return whether a kernel node waits by itself, as each entry point of a batch does."""
    assert isinstance(node, KernelNode)
    if node.kernel not in known:
        known[node.kernel] = waits(node.kernel)
    return known[node.kernel]


def _is_plain(node: AnyNode) -> bool:
    """Return whether a node is a kernel launch without attributes."""
    return isinstance(node, KernelNode) and node.plain


def _count(plan: Plan) -> int:
    inner = (part for step in plan.steps for part in (step.child, *step.bodies) if part is not None)
    return len(plan.programmatic) + sum(map(_count, inner))
