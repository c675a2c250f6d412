"""Segments: which steps one graph can hold, where the host must do others between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..order import between, positions, topological_order


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
    ranked = sorted(range(len(groups)), key=turns.__getitem__)
    place = positions(ranked)
    waits = between(deps, [place[group] for group in group_of], len(groups))
    return [tuple(groups[ranked[turn]]) for turn in topological_order(waits)]


def _lowest(bits: int) -> float:
    """Return the number of the lowest bit, infinity where there is none."""
    return (bits & -bits).bit_length() - 1 if bits else math.inf
