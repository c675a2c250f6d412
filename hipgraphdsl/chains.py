"""Which kernels of one block become one launch: those that follow each other, with nothing between.

A link leads from a step to the next in its lane, where it is the only one that waits for the first, and waits for nothing else.
So whatever comes before or behind a chain waits as it would without, and one block may do all of it, with a barrier behind
each launch (`kernels.chaining`). A plan's steps are put into an order in which those of a chain are neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .batches import LAUNCHES, Batched, size_of, threads_of
from .kernels import Kernel, Module, chaining, unchained
from .nodes import KernelNode
from .plan import Plan, Step, counted
from .target import Target

_FEWEST: Final = 2
_SHARED_BYTES: Final = 48 << 10
"""Of all kernels of a chain together, whose variables the compiler puts beside each other."""


def with_chains(plan: Plan, target: Target, *, automatic: bool) -> Plan:
    """Return the plan with chains among its batches, where it has any; if it is automatic, where they pay."""
    chains = _chains(plan)
    modules: dict[Module, list[list[int]]] = {}
    for chain in chains:
        modules.setdefault(_launch(plan.steps[chain[0]]).kernel.module, []).append(chain)
    notes = []
    batches, batch_of = list(plan.batches), dict[int, int]()
    for module, found in modules.items():
        links = sum(map(len, found)) - len(found)
        costs = target.costs
        if automatic and links * costs.batched_us * LAUNCHES < costs.entry_us:
            continue
        nodes = [_launch(plan.steps[i]) for chain in found for i in chain]
        kernels = list(dict.fromkeys(node.kernel for node in nodes))
        if sum(kernel.static_shared_bytes or 0 for kernel in kernels) > _SHARED_BYTES:
            notes.append(f"Kernels of module {module.name!r} are not chained: together they have too much shared memory.")
            continue
        how = chaining(kernels, max(map(threads_of, nodes)))
        room = how.capacity(target.parameter_bytes)
        for part in (chain[at : at + room] for chain in found for at in range(0, len(chain), max(1, room))):
            if len(part) >= _FEWEST and room >= _FEWEST:
                batch_of |= dict.fromkeys(part, len(batches))
                batches.append(Batched(how, size_of(len(part), room)))
    if not batch_of:
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan
    made = len(batches) - len(plan.batches)
    said = "one launch" if made == 1 else f"{made} launches"
    notes.append(f"{counted(len(batch_of), 'kernel')} of one block become {said}, each of kernels that follow each other.")
    return replace(_in_order(plan, batch_of), batches=tuple(batches), notes=(*plan.notes, *notes))


def _chains(plan: Plan) -> list[list[int]]:
    """Return the longest chains of steps, of two or more."""
    known: dict[Kernel, bool] = {}
    before: dict[int, int] = {}
    for step in plan.steps:
        if len(step.deps) == 1 and not step.added:
            (source,) = step.deps
            if _are_linked(plan.steps[source], step, known) and len(plan.successors[source]) == 1:
                before[step.index] = source
    chains: dict[int, list[int]] = {}  # by their last step
    for i, source in before.items():
        chains[i] = [*chains.pop(source, [source]), i]
    return list(chains.values())


def _are_linked(source: Step, step: Step, known: dict[Kernel, bool]) -> bool:
    """Return whether one block may do two steps, one behind the other."""
    if source.lane != step.lane or source.device != step.device or not (_fits(source, known) and _fits(step, known)):
        return False
    one, other = _launch(source), _launch(step)
    return one.block == other.block and one.kernel.module == other.kernel.module


def _fits(step: Step, known: dict[Kernel, bool]) -> bool:
    node = step.node
    if not isinstance(node, KernelNode) or step.batch >= 0 or step.bodies or not node.plain or node.shared_bytes != 0:
        return False
    if node.grid != (1, 1, 1) or not all(isinstance(axis, int) for axis in node.block):
        return False
    found = known.get(node.kernel)
    if found is None:
        found = known[node.kernel] = not unchained(node.kernel)
    return found


def _launch(step: Step) -> KernelNode:
    assert isinstance(step.node, KernelNode)
    return step.node


def _in_order(plan: Plan, batch_of: dict[int, int]) -> Plan:
    """Return the plan with the steps of each chain in its batch and behind each other, where the first of them stands."""
    members: dict[int, list[int]] = {}
    for i, batch in batch_of.items():
        members.setdefault(batch, []).append(i)
    order: list[int] = []
    for i in range(len(plan.steps)):
        if i not in batch_of:
            order.append(i)
        elif members[batch_of[i]][0] == i:
            order += members[batch_of[i]]
    place = dict(zip(order, range(len(order))))
    steps = tuple(
        plan.steps[i]._replace(
            index=n,
            deps=tuple(sorted(place[d] for d in plan.steps[i].deps)),
            added=tuple(sorted(place[d] for d in plan.steps[i].added)),
            batch=batch_of.get(i, plan.steps[i].batch),
        )
        for n, i in enumerate(order)
    )
    lanes = tuple(tuple(sorted(place[i] for i in lane)) for lane in plan.lanes)
    return replace(plan, steps=steps, lanes=lanes)
