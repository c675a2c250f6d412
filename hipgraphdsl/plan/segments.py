"""Segments: sets of steps that one graph can hold when the host runs other steps in between."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..order import between, positions, topological_order


def segments(deps: Sequence[tuple[int, ...]], on_host: Sequence[bool]) -> list[tuple[int, ...]]:
    """Return the fewest groups of steps such that no step waits for a host step that does not precede it.

    Parameters
    ----------
    deps : sequence of tuple of int
        For each step, in topological order, its predecessors.
    on_host : sequence of bool
        For each step whether the host runs it; such a step is a group of its own.

    Returns
    -------
    list of tuple of int
        The groups in launch order, which is topological: a graph that can be launched precedes host steps, and of several such
        graphs, the one that the earliest host step waits for comes first.

    Notes
    -----
    Two steps share a group if they have the same host steps among their ancestors and the same among their descendants. No step
    outside the group then lies on a path between two of its steps, and groups have no cycle, because along an edge the set of
    ancestors only grows and the set of descendants only shrinks.
    """
    count = len(deps)
    before, behind = [0] * count, [0] * count  # host steps before and after each step, as bit sets
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
    """Return the index of the lowest set bit; infinity if no bit is set."""
    return (bits & -bits).bit_length() - 1 if bits else math.inf
