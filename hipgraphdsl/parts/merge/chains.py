"""Chains: consecutive kernels of one block merged into one launch.

A link connects a step to the next step of its lane if the latter is the only successor of the former and has no other
predecessor. A chain therefore adds no waiting before or after it, and one block can run all its launches, with a barrier after
each (`kernels.switching`). The steps of the plan are reordered so that those of a chain are adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from ...kernels import Module
from ...nodes.facets import KernelLaunch
from ...nodes.workflow import Level
from ...order import chains
from ...plan.steps import Plan, Step
from ...printed import counted
from ...target import Target
from .batches import LAUNCHES, SHARED_BYTES, Batched, link_of, shared_bytes_of
from .switching import chaining

_FEWEST: Final = 2
_SHORT: Final = 32
_BYTES_OF_A_LAUNCH: Final = 4096
"""Table bytes that justify one more piece of a chain, so that a changed parameter rewrites less: on an H200 (driver 580) writing
8 KB costs the host 4 us, writing 24 KB 11 us, and one more launch after another costs the device 0.7 us."""


def with_chains(plan: Plan, target: Target, *, automatic: bool) -> Plan:
    """Return the plan with its chains added to its batches; if `automatic`, only chains that pay."""
    modules: dict[Module, list[list[int]]] = {}
    for chain in _chains(plan):
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
        if shared_bytes_of(kernels) > SHARED_BYTES:
            notes.append(f"Kernels of module {module.name!r} are not chained: together they have too much shared memory.")
            continue
        how = chaining(kernels, max([node.least_threads for node in nodes]))
        room = how.capacity(target.parameter_bytes)
        pieces = [piece for chain in found for piece in _pieces(plan, chain, how.row.nbytes)]
        for part in (piece[at : at + room] for piece in pieces for at in range(0, len(piece), max(1, room))):
            if len(part) >= _FEWEST and room >= _FEWEST:
                batch_of |= dict.fromkeys(part, len(batches))
                batches.append(Batched(how, _size(len(part), room)))
    if not batch_of:
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan
    made = len(batches) - len(plan.batches)
    said = "one launch" if made == 1 else f"{made} launches"
    notes.append(f"{counted(len(batch_of), 'kernel')} of one block become {said}, each of kernels that follow each other.")
    return replace(_in_order(plan, batch_of), batches=tuple(batches), notes=(*plan.notes, *notes))


def _pieces(plan: Plan, chain: Sequence[int], launch_bytes: int) -> list[list[int]]:
    """Split a chain where the set of parameters that its steps read changes, if the table size justifies that many pieces.

    A launch with a changed parameter rewrites the tables of all pieces that read it.
    """
    more = len(chain) * launch_bytes // _BYTES_OF_A_LAUNCH
    if not more:
        return [[*chain]]
    pieces = [[*piece] for _, piece in groupby(chain, lambda i: _parameters(plan, plan.steps[i]))]
    return pieces if len(pieces) <= 1 + more else [[*chain]]


def _parameters(plan: Plan, step: Step) -> frozenset[str]:
    """Return the full names of the parameters that a step reads, also of those that stand for arrays of its child graph."""
    level = Level(plan.workflow)
    for child in step.path:
        level = next(level.inner(child))
    return frozenset(owner.prefix + parameter.name for owner, parameter in level.parameters_of(step.node))


def _size(count: int, room: int) -> int:
    """Return the size of a table for `count` links.

    Each size must be compiled, so all short chains share one size. A launch with a changed parameter rewrites the whole table, so
    at most a quarter of a longer table is left unused.
    """
    step = max(_SHORT, 1 << max(0, count.bit_length() - 3))
    return min(room, -(-count // step) * step)


def _chains(plan: Plan) -> list[list[int]]:
    """Return the longest chains of steps, of two or more."""
    steps = plan.steps
    known: dict[int, bool] = {}
    links = [link_of(step.node, known) if step.batch < 0 else None for step in steps]

    def joins(source: int, i: int) -> bool:
        before, step = steps[source], steps[i]
        alike = links[i] is not None and links[source] == links[i]
        return alike and not step.added and before.lane == step.lane and before.device == step.device

    return chains(range(len(steps)), [step.deps for step in steps], joins)


def _launch(step: Step) -> KernelLaunch:
    assert step.node.launched is not None
    return step.node.launched


def _in_order(plan: Plan, batch_of: dict[int, int]) -> Plan:
    """Return the plan with the steps of each chain in its batch and adjacent, from the position of its first step on."""
    members: dict[int, list[int]] = {}
    for i, batch in batch_of.items():
        members.setdefault(batch, []).append(i)
    if all(inside[-1] - inside[0] < len(inside) for inside in members.values()):  # already adjacent
        return plan.with_steps({i: plan.steps[i].in_batch(batch) for i, batch in batch_of.items()})
    order: list[int] = []
    for i in range(len(plan.steps)):
        if i not in batch_of:
            order.append(i)
        elif members[batch_of[i]][0] == i:
            order += members[batch_of[i]]
    place = {i: n for n, i in enumerate(order)}
    ordered = ((n, plan.steps[i], batch_of.get(i)) for n, i in enumerate(order))
    steps = [step.renumbered(n, place).in_batch(step.batch if batch is None else batch) for n, step, batch in ordered]
    return plan.renumbered(steps, place)
