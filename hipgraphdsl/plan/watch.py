"""Watched plans: after each node, a kernel of one thread sets a word in page-locked memory to mark the node as finished.

The first step of a plan, and of each body of a conditional node, sets the words of its own nodes to 0 and those of nested bodies
to 1; after a node, its word is set to 1. A word of 0 therefore marks a node that the current launch, or loop iteration, has not
finished. Words of bodies that are not running are 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ..arrays import HostArray
from ..kernels import Module
from ..nodes import Node, node_of
from ..nodes.values import unused
from ..target import Target
from .steps import Plan, Step, Watch
from .suited import narrowed

MODULE: Final = Module(
    r"""
extern "C" __global__ void hipgraphdsl_mark(unsigned int* words, unsigned int count, unsigned int begun) {
  for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) words[i] = i < begun ? 0 : 1;
  __threadfence_system();
}
""",
    name="watch",
)
_CLEAR_THREADS: Final = 256


def watched(plan: Plan, target: Target) -> Plan:
    """Return a plan with a mark after each step that represents a node, in bodies too."""
    if not plan.steps:
        return plan
    words = HostArray("watch", (_count(plan),), np.dtype("u4"))
    names: list[tuple[str, ...]] = []
    made = _marked(plan, target, words, names, "")
    note = "A kernel of one thread behind each node says that it has finished (DebugOptions.watch)."
    outer, marks = sum(bool(step.origin) for step in plan.steps), (len(made.steps) - len(plan.steps), made.edges - plan.edges)
    return replace(made, notes=(*made.notes, note), watch=Watch(words, tuple(names), outer, marks))


def _count(plan: Plan) -> int:
    """Return the number of words of a plan, including its bodies."""
    return sum(bool(step.origin) + sum(map(_count, step.bodies)) for step in plan.steps)


def _marked(
    plan: Plan, target: Target, words: HostArray, names: list[tuple[str, ...]], prefix: str, device: int | None = None
) -> Plan:
    """Add marks to one plan; its words are contiguous, those of its bodies follow. A body's marks run on its node's device."""
    if not plan.steps:
        return plan
    word = len(names)
    taken = {step.name for step in plan.steps}
    own = sum(bool(step.origin) for step in plan.steps)
    names += [tuple(prefix + name for name in step.origin) for step in plan.steps if step.origin]
    lane = plan.steps[0].lane
    places = plan.lane_devices if len(plan.devices) > 1 else (device,) * len(plan.lanes)
    begin = Step(0, unused("~watch", taken), _mark(words, word, _count(plan), own), (), (), lane, device=places[lane])
    taken.add(begin.name)
    steps = [begin]
    place: dict[int, int] = {}  # old index of a step -> new index of its mark, or of the step if it has none
    for step in plan.steps:
        index = len(steps)
        bodies = tuple(
            _marked(body, target, words, names, f"{prefix}{step.name}/{n}/", step.device) for n, body in enumerate(step.bodies)
        )
        moved = step.renumbered(index, place)
        steps.append(moved._replace(deps=moved.deps or (0,), bodies=bodies))
        if step.origin:
            mark = _mark(words, word, 1, 0)
            name = unused(f"{step.name}~", taken)
            taken.add(name)
            steps.append(Step(index + 1, name, mark, (), (index,), step.lane, device=places[step.lane]))
            word += 1
        place[step.index] = len(steps) - 1
    if "fan_out_4" in target.quirks:
        steps, moved_to = narrowed(steps)
        place = {old: moved_to[i] for old, i in place.items()}
    return plan.renumbered(steps, place)


def _mark(words: HostArray, first: int, count: int, begun: int) -> Node:
    """Return a kernel node that sets `count` words from `first`: the first `begun` to 0, the others to 1."""
    block = _CLEAR_THREADS if count > 1 else 1
    kernel = MODULE["hipgraphdsl_mark"]
    return node_of("kernel", name="watch", kernel=kernel, grid=1, block=block, args=(words[first : first + count], count, begun))
