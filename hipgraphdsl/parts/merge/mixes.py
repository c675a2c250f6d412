"""Mixed batches: launches of different kernels merged into one launch, if they have the same predecessors and successors.

This delays nothing: a successor of one of them is a successor of all of them. The search starts with sets of groups of launches
(`batches`) that have equal depth, module and block, and splits a set as long as its groups differ in the sets that they wait for
or that wait for them (the coarsest stable partition; Paige and Tarjan, "Three partition refinement algorithms", 1987). That also
finds groups whose nodes each wait for some nodes of another set, as the components of two fields do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def mixable(
    kinds: Iterable[Hashable], members: Sequence[Sequence[int]], group_of: Sequence[int], deps: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Return sets of two or more groups whose launches could be one.

    `kinds` has for each group a key that all groups of a set share, `members` its nodes (empty if merged into another group);
    `group_of` has for each node its group, `deps` its predecessors.
    """
    before: list[set[int]] = [set() for _ in members]
    behind: list[set[int]] = [set() for _ in members]
    for own, sources in zip(group_of, deps):
        for source in sources:
            before[own].add(group_of[source])
            behind[group_of[source]].add(own)
    label, count = _numbers(kinds), 0
    while count < (found := len({*label})):
        count = found
        label = _numbers(
            (own, frozenset([label[i] for i in sources]), frozenset([label[i] for i in followers]))
            for own, sources, followers in zip(label, before, behind)
        )
    sets: dict[int, list[int]] = {}
    for group, number in enumerate(label):
        if members[group]:
            sets.setdefault(number, []).append(group)
    return [groups for groups in sets.values() if len(groups) > 1]


def _numbers(keys: Iterable[Hashable]) -> list[int]:
    """Return a number for each key; equal keys have equal numbers."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
