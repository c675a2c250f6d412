"""Launches of a plan: each runs one step, or all steps of a batch or a chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from .steps import Plan


class Launches(NamedTuple):
    """A plan whose steps are the launches of another plan.

    A step that runs several steps copies the first one, lists all their names in `origin`, and has all their predecessors.
    """

    plan: Plan
    members: tuple[tuple[int, ...], ...]  # for each step of `plan` the steps of the other plan that it runs


def together(plan: Plan) -> list[tuple[int, ...]]:
    """Return the sets of two or more steps that backends which build graphs run as one launch."""
    return [tuple(run) for run in dict.fromkeys(plan.runs) if len(run) > 1] if plan.batches else []


def names_of(plan: Plan, run: Iterable[int]) -> tuple[str, ...]:
    """Return the names of steps."""
    return tuple(plan.steps[i].name for i in run)


def kind_of(plan: Plan, step: int) -> Literal["batch", "chain"]:
    """Return whether the launch that runs a step runs its members in parallel (batch) or one after another (chain)."""
    return plan.batches[plan.steps[step].batch].kind


def titled(kind: str, names: Sequence[str]) -> str:
    """Return the title of a launch that runs several nodes: ``"batch of 8: fill_0 … fill_7"``."""
    return f"{kind} of {len(names)}: {names[0]}{', ' if len(names) == 2 else ' … '}{names[-1]}"


def launches(plan: Plan, runs: Iterable[Sequence[int]]) -> Launches:
    """Return a plan with one step for each run of adjacent steps in `runs`, and one for each other step."""
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
