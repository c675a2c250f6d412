"""Segments: which steps one graph can hold, where the host must do others between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush


def segments(deps: Sequence[tuple[int, ...]], on_host: Sequence[bool]) -> list[tuple[int, ...]]:
    """Return the fewest groups of steps that make no step wait for one that the host does and that does not precede it.

    Parameters
    ----------
    deps : sequence of tuple of int
        For each step, in topological order, those that it waits for.
    on_host : sequence of bool
        Which of them the host does; each of these is a group of its own.

    Returns
    -------
    list of tuple of int
        In the order in which they are launched: a topological one, in which the host does nothing while a graph can be launched,
        and of several graphs the one goes first that the host waits for soonest.

    Notes
    -----
    Two steps share a group if they follow the same steps of the host and are followed by the same. Between two steps of a group
    there is then none outside of it, and groups do not wait for each other in a circle, because along an edge the former set only
    grows and the latter only shrinks.
    """
    count = len(deps)
    before, behind = [0] * count, [0] * count  # the host's steps, as bits
    bit = dict(zip((i for i in range(count) if on_host[i]), range(count)))
    for i, sources in enumerate(deps):
        for source in sources:
            before[i] |= before[source] | (1 << bit[source] if source in bit else 0)
    for i in range(count - 1, -1, -1):
        mine = behind[i] | (1 << bit[i] if i in bit else 0)
        for source in deps[i]:
            behind[source] |= mine
    group_of: list[int] = []
    groups: list[list[int]] = []
    known: dict[tuple[int, int], int] = {}
    for i in range(count):
        group = len(groups) if on_host[i] else known.setdefault((before[i], behind[i]), len(groups))
        if group == len(groups):
            groups.append([])
        groups[group].append(i)
        group_of.append(group)
    turns = [
        (on_host[group[0]], _lowest(behind[group[0]]) if not on_host[group[0]] else 0, number)
        for number, group in enumerate(groups)
    ]
    return [tuple(groups[group]) for group in _launch_order(deps, turns, groups, group_of)]


def _lowest(bits: int) -> float:
    """Return the number of the lowest bit, infinity where there is none."""
    return (bits & -bits).bit_length() - 1 if bits else math.inf


def _launch_order(
    deps: Sequence[tuple[int, ...]],
    turns: Sequence[tuple[bool, float, int]],
    groups: Sequence[Sequence[int]],
    group_of: Sequence[int],
) -> list[int]:
    """Return the groups in topological order, next the one whose turn is least; a turn ends with the number of its group."""
    sources = [{group_of[d] for i in group for d in deps[i]} - {own} for own, group in enumerate(groups)]
    followers: list[list[int]] = [[] for _ in groups]
    left = [len(found) for found in sources]
    ready: list[tuple[bool, float, int]] = []
    for group, found in enumerate(sources):
        for source in found:
            followers[source].append(group)
        if not found:
            heappush(ready, turns[group])
    order = []
    while ready:
        group = heappop(ready)[-1]
        order.append(group)
        for follower in followers[group]:
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, turns[follower])
    return order
