"""Runs with other topological orders and other values in fresh memory, one node at a time; names nodes whose order matters."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress

from ...errors import HipGraphError
from ...order import successors
from ...printed import counted
from .laboratory import POISONS, Found, Laboratory, State


def try_fresh_memory(laboratory: Laboratory, found: Found) -> None:
    """Run with other values in fresh graph memory; results must not depend on them."""
    if not any(step.node.made is not None for step in laboratory.steps):
        return
    laboratory.poison = POISONS[1]
    try:
        ours = laboratory.run()
        names = found.differing(laboratory.cells, ours, laboratory.reference)
        if names:
            node = _first_difference(laboratory, found)
            found.add(
                "uninitialised",
                f"{node!r} uses graph memory that nothing has written: "
                + found.described(laboratory.cells[names[0]], ours[names[0]], laboratory.reference[names[0]]),
                (node,),
                tuple(names),
                hint="write the memory before it is read",
            )
    finally:
        laboratory.poison = POISONS[0]
    found.done.append("the serial order with two fillings of fresh graph memory")


def _first_difference(laboratory: Laboratory, found: Found) -> str:
    """Return the first step after which memory differs between the two fillings of fresh memory, else the last."""
    traces: list[list[State]] = []
    for poison in POISONS:
        laboratory.poison = poison
        laboratory.begin()
        trace = []
        for step in laboratory.steps:
            laboratory.do(laboratory.program, step)
            trace.append(laboratory.state())
        laboratory.end()
        traces.append(trace)
    differing = (step for step, one, other in zip(laboratory.steps, *traces) if found.differing(laboratory.cells, one, other))
    return next(differing, laboratory.steps[-1]).name


def topological_order(deps: Sequence[Sequence[int]], seed: int) -> tuple[int, ...]:
    """Return the topological order of a seed.

    Seed 0 always takes the ready node that was declared last, which reverses most unordered pairs of nodes at once. Other even
    seeds draw among the ready nodes; odd seeds give each node a random priority, so that a node may be delayed for long.
    """
    draw = random.Random(seed)
    n = len(deps)
    missing = [len(sources) for sources in deps]
    followers = successors(deps)
    rank = list(range(n)) if seed == 0 else draw.sample(range(n), n)
    ranked = seed == 0 or seed % 2 == 1
    ready = [i for i in range(n) if not missing[i]]
    order = []
    while ready:
        at = max(range(len(ready)), key=lambda k: rank[ready[k]]) if ranked else draw.randrange(len(ready))
        node = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        order.append(node)
        for target in followers[node]:
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return tuple(order)


def try_orders(laboratory: Laboratory, count: int, seed: int, found: Found) -> None:
    """Run other topological orders, one node at a time; report each pair of nodes whose order matters once."""
    deps: list[list[int]] = [list(step.deps) for step in laboratory.steps]
    if len(deps) < 2 or count < 1:
        return
    waiting = next((step for step in laboratory.steps if step.node.waits), None)
    if waiting is not None:
        found.left_out.append(f"other orders: {waiting.name!r} waits for what another node does, so one node at a time may stop")
        return
    tried = 0
    for k in range(seed, seed + count):
        found.advance(f"order {k - seed + 1} of {count}")
        # Keep a reported pair in order from then on, so that it does not hide others.
        while True:
            order = topological_order(deps, k)
            tried += 1
            outcome = _outcome(laboratory, order, found)
            if outcome is None:
                break
            pair = _blame(laboratory, order, found)
            if pair is None or pair[0] in deps[pair[1]] or found.has_many("order"):
                found.add("order", f"in the topological order of seed {k} {outcome[0]}", (), outcome[1], seed=k)
                return
            first, second = (laboratory.steps[i].name for i in pair)
            found.add(
                "order",
                f"{first!r} and {second!r} are not ordered, and with {second!r} first {outcome[0]}",
                (first, second),
                outcome[1],
                seed=k,
                hint=f"add after=[{first!r}] to {second!r}",
            )
            deps[pair[1]].append(pair[0])
    seeds = f"seed {seed}" if count == 1 else f"seeds {seed} to {seed + count - 1}"
    found.done.append(f"{counted(tried, 'topological order')}, one node at a time, {seeds}")


def _outcome(laboratory: Laboratory, order: Sequence[int], found: Found) -> tuple[str, tuple[str, ...]] | None:
    """Return how a run in this order differs from the reference, as text and array names; None if it does not."""
    try:
        ours = laboratory.run(order)
    except HipGraphError as error:
        with suppress(HipGraphError):
            laboratory.end()
        return f"the run fails: {error}", ()
    reference = laboratory.reference
    names = found.differing(laboratory.cells, ours, reference)
    if not names:
        return None
    return found.described(laboratory.cells[names[0]], ours[names[0]], reference[names[0]]), tuple(names)


def _blame(laboratory: Laboratory, order: Sequence[int], found: Found) -> tuple[int, int] | None:
    """Return two steps, in serial order, whose exchange in the failing order changes results.

    An order that takes the first k steps of the failing order and continues in serial order is topological too. Bisection
    finds a k at which the result becomes wrong, so the k-th step was moved ahead of a step that must precede it. A second
    bisection, over the places between its serial place and the new one, finds that step.
    """
    n = len(order)

    def mixed(k: int) -> list[int]:
        taken = set(order[:k])
        return [*order[:k], *(i for i in range(n) if i not in taken)]

    def wrong(candidate: Sequence[int]) -> bool:
        return _outcome(laboratory, candidate, found) is not None

    bad = bisect_left(range(n), x=True, lo=1, key=lambda k: wrong(mixed(k)))
    moved, before = order[bad - 1], mixed(bad - 1)
    # The result is right with `moved` at its old place, and wrong with it at place bad - 1.
    places = range(before.index(moved) - 1, bad - 2, -1)

    def wrong_at(place: int) -> bool:
        return wrong([*before[:place], moved, *(i for i in before[place:] if i != moved)])

    if not places:
        return None
    return before[places[bisect_left(places, x=True, lo=0, hi=len(places) - 1, key=wrong_at)]], moved
