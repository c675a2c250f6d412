"""Which launches of different kernels become one: those whose launches before them and behind them are the same.

Nothing is then done later than it would be: what follows one of them follows all of them. Groups of launches (`batches`) of one
depth, module and block are taken for one, and fall apart as long as some of them wait for others, or are waited for by others,
than the rest (the coarsest stable partition; Paige and Tarjan, "Three partition refinement algorithms", 1987). That
finds groups whose nodes wait for some of the other's each, as the components of two fields do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def mixable(
    kinds: Iterable[Hashable], members: Sequence[Sequence[int]], group_of: Sequence[int], deps: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Return sets of groups, two or more, whose launches could be one.

    `kinds` has for each group what those of a set have in common, `members` its nodes (none where another group has them);
    `group_of` has for each node its group, `deps` those that it waits for.
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
    """Return a number for each key, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
