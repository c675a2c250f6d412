"""Steps as a target's costs and quirks need them: copies by a kernel, one root, few followers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .arrays import HostArray
from .nodes import EmptyNode, MemcpyNode
from .nodes.values import unused
from .order import successors
from .plan import Plan, Step
from .target import Target
from .workflow import AnyNode

FAN_OUT: Final = 4
"""Direct followers that AMD's classic executor can be trusted with."""
_MANY_COPIES: Final = 16  # from so many on, doing small copies by a kernel pays


def suited(
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
                f"{inserted} empty nodes keep every node at {FAN_OUT} direct followers or fewer, because {target.name} loses"
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
    name = unused("~start", {step.name for step in steps})
    first = Step(0, name, EmptyNode(name=name), (), (), 0)
    moved = [
        step._replace(index=step.index + 1, deps=tuple(d + 1 for d in step.deps) or (0,), added=tuple(d + 1 for d in step.added))
        for step in steps
    ]
    rows = [[i + 1 for i in lane] for lane in lanes]
    return [first, *moved], ((0, *rows[0]), *map(tuple, rows[1:]))


def narrowed(steps: list[Step], lanes: tuple[tuple[int, ...], ...]) -> tuple[list[Step], tuple[tuple[int, ...], ...], int]:
    """Put empty nodes behind steps that more than `FAN_OUT` others wait for, as a tree."""
    followers = successors([step.deps for step in steps])
    if all(len(f) <= FAN_OUT for f in followers):
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
        if len(waiting) <= FAN_OUT:
            continue
        ends = [index]
        while len(ends) * FAN_OUT < len(waiting):
            below = []
            for end in ends:
                for _ in range(FAN_OUT):
                    name = unused(f"{step.name}~{len(made) - index}", names)
                    names.add(name)
                    made.append(Step(len(made), name, EmptyNode(name=name), (), (end,), step.lane))
                    below.append(len(made) - 1)
                    if len(below) * FAN_OUT >= len(waiting):
                        break
                if len(below) * FAN_OUT >= len(waiting):
                    break
            ends = below
        for i, follower in enumerate(waiting):
            stand_in[step.index, follower] = ends[i // FAN_OUT]
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
