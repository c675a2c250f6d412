"""What a plan's launches do: one step each, or the steps of a batch or of a chain together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from ..kernels import Chaining
from .steps import Plan


class Launches(NamedTuple):
    """A plan whose steps are the launches of another.

    A step that does several is as their first, with all their names as `origin`, and waits for what any of them waits for.
    """

    plan: Plan
    members: tuple[tuple[int, ...], ...]  # for each of its steps the steps of the other plan that it does


def together(plan: Plan) -> list[tuple[int, ...]]:
    """Return the steps that are done by one launch each, two or more of them, as backends that build graphs make it."""
    return [tuple(run) for run in dict.fromkeys(plan.runs) if len(run) > 1] if plan.batches else []


def names_of(plan: Plan, run: Iterable[int]) -> tuple[str, ...]:
    """Return the names of steps."""
    return tuple(plan.steps[i].name for i in run)


def kind_of(plan: Plan, step: int) -> Literal["batch", "chain"]:
    """Return whether the launch that does a step does its members beside each other, or one behind the other."""
    return "chain" if isinstance(plan.batches[plan.steps[step].batch].batching, Chaining) else "batch"


def titled(kind: str, names: Sequence[str]) -> str:
    """Return what a launch that does several nodes is called: ``"batch of 8: fill_0 … fill_7"``."""
    return f"{kind} of {len(names)}: {names[0]}{', ' if len(names) == 2 else ' … '}{names[-1]}"


def launches(plan: Plan, runs: Iterable[Sequence[int]]) -> Launches:
    """Return a plan with one step for each of these runs, whose steps are neighbours, and one for each other step."""
    run_of = {i: tuple(run) for run in runs for i in run}
    members = tuple(dict.fromkeys(run_of.get(i, (i,)) for i in range(len(plan.steps))))
    place = {i: n for n, own in enumerate(members) for i in own}
    steps = []
    for n, own in enumerate(members):
        done = [plan.steps[i] for i in own]
        name = titled(kind_of(plan, own[0]), names_of(plan, own)) if len(own) > 1 else done[0].name
        several = zip(*((step.origin, step.deps, step.added) for step in done))
        origin, deps, added = (tuple(chain.from_iterable(parts)) for parts in several)
        steps.append(done[0]._replace(name=name, origin=origin, deps=deps, added=added).renumbered(n, place))
    return Launches(plan.renumbered(steps, place), members)
