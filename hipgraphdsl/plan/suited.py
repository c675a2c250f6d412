"""Adapt steps to a target's costs and quirks: copies by a kernel, a single root, few followers per node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..arrays import HostArray
from ..nodes import Node, node_of
from ..nodes.values import unused
from ..order import successors
from ..target import Target
from .steps import Plan, Step

FAN_OUT: Final = 4
"""Maximum number of direct followers that AMD's classic executor handles correctly."""
_MANY_COPIES: Final = 16  # from this number on, a kernel for small copies pays


def suited(steps: list[Step], target: Target, join: bool, notes: list[str], *, narrow: bool) -> list[Step]:
    """Return the steps adapted to the target's costs and quirks, and append to `notes` what changed."""
    if join and target.copy_kernel_bytes:
        small = {step.index for step in steps if not step.path and suits_copy_kernel(step.node, target)}
        if len(small) >= _MANY_COPIES:
            steps = [step._replace(by_kernel=True) if step.index in small else step for step in steps]
            notes.append(
                f"{len(small)} small device-to-host copies are done by a kernel that writes page-locked memory: a copy node costs"
                f" {target.costs.copy_us:g} us beyond its bytes on {target.name}."
            )
    if _needs_one_root(steps, target) and not any(step.by_host for step in steps):
        steps, _ = _with_one_root(steps)
        notes.append(f"An empty node goes first, because on {target.name} only one root would wait for what precedes the launch.")
    if narrow and "fan_out_4" in target.quirks:
        made, _ = narrowed(steps)
        if len(made) > len(steps):
            notes.append(
                f"{len(made) - len(steps)} empty nodes keep every node at {FAN_OUT} direct followers or fewer, because"
                f" {target.name} loses edges beyond that."
            )
        steps = made
    return steps


def with_one_root(plan: Plan, target: Target) -> Plan:
    """Insert an empty node before all roots if the target needs a single root, and more empty nodes if it has many followers.

    The inserted steps come first; the others keep their order.
    """
    if not _needs_one_root(plan.steps, target):
        return plan
    steps, place = _with_one_root(plan.steps)
    if "fan_out_4" in target.quirks:
        steps, moved = narrowed(steps, [steps[0]])
        place = {old: moved[i] for old, i in place.items()}
    return plan.renumbered(steps, place)


def _needs_one_root(steps: Sequence[Step], target: Target) -> bool:
    return "parallel_roots" in target.quirks and sum(not step.deps for step in steps) > 1


def _with_one_root(steps: Sequence[Step]) -> tuple[list[Step], dict[int, int]]:
    """Insert an empty node before all steps without predecessors; also return the new index of each step."""
    name = unused("~start", {step.name for step in steps})
    first = Step(0, name, node_of("empty", name=name), (), (), 0)
    place = {i: i + 1 for i in range(len(steps))}
    moved = [step.renumbered(step.index + 1, place) for step in steps]
    return [first, *[step if step.deps else step._replace(deps=(0,)) for step in moved]], place


def narrowed(steps: Sequence[Step], wide: Iterable[Step] | None = None) -> tuple[list[Step], dict[int, int]]:
    """Insert a tree of empty nodes after each step with more than `FAN_OUT` followers; also return the new index of each step.

    `wide` are the steps that may get such a tree, by default all.
    """
    followers = successors([step.deps for step in steps])
    crowded = {step.index for step in (steps if wide is None else wide) if len(followers[step.index]) > FAN_OUT}
    if not crowded:
        return list(steps), {step.index: step.index for step in steps}
    between = node_of("empty", name="between")  # of all of them: their names may be too long for a node, or name one of a child
    names = {step.name for step in steps}
    made: list[Step] = []
    place: dict[int, int] = {}
    stand_in: dict[tuple[int, int], int] = {}  # (old source, old follower) -> new step that it waits for instead
    for step in steps:
        index = place[step.index] = len(made)
        made.append(step.renumbered(index, {d: stand_in.get((d, step.index), place[d]) for d in step.deps}))
        if step.index not in crowded:
            continue
        waiting = followers[step.index]
        ends = [index]
        while len(ends) * FAN_OUT < len(waiting):
            count = min(len(ends) * FAN_OUT, -(-len(waiting) // FAN_OUT))
            below = range(len(made), len(made) + count)
            for n, number in enumerate(below):
                name = unused(f"{step.name}~{number - index}", names)
                names.add(name)
                made.append(Step(number, name, between, (), (ends[n // FAN_OUT],), step.lane))
            ends = [*below]
        for i, follower in enumerate(waiting):
            stand_in[step.index, follower] = ends[i // FAN_OUT]
    return made, place


def suits_copy_kernel(node: Node, target: Target) -> bool:
    """Return whether a node is a small device-to-host copy to page-locked memory that a kernel can do."""
    if type(node).copied is Node.copied or len(node.copied) != 1 or node.engine != "D2H":
        return False
    dst, src = node.copied[0]
    return (
        dst.nbytes <= target.copy_kernel_bytes
        and isinstance(dst.root, HostArray)
        and dst.root.pinned
        and dst.contiguous
        and src.contiguous
    )
