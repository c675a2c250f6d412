"""Algorithms on directed graphs: sort, cycle, chains, ancestors, transitive reduction, levels, longest path.

A graph is given as the predecessors of each node, nodes being 0, 1, 2, ...; an order is a topological order. Sets of nodes are
integers whose bit `k` represents the node at position `k` of the order. networkx has these algorithms for its own graphs, which
take longer to build than a plan.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Edges = Sequence[Sequence[int]]


def successors(predecessors: Edges) -> list[list[int]]:
    """Return for each node the nodes that wait for it."""
    found: list[list[int]] = [[] for _ in predecessors]
    for target, sources in enumerate(predecessors):
        for source in sources:
            found[source].append(target)
    return found


def between(predecessors: Edges, group_of: Sequence[int] | Mapping[int, int], count: int) -> list[tuple[int, ...]]:
    """Return for each of `count` groups of nodes the other groups that it waits for, in ascending order."""
    found: list[set[int]] = [set() for _ in range(count)]
    for i, sources in enumerate(predecessors):
        found[group_of[i]].update([group_of[source] for source in sources])
    return [tuple(sorted(sources - {own})) for own, sources in enumerate(found)]


def follower_counts(predecessors: Iterable[Iterable[int]]) -> Counter[int]:
    """Return the number of successors of each node that has any."""
    return Counter([source for sources in predecessors for source in sources])


def chains(order: Iterable[int], predecessors: Edges, joins: Callable[[int, int], bool] | None = None) -> list[list[int]]:
    """Return the maximal chains of at least two nodes, ordered by their last nodes.

    In a chain, each node but the first has the previous one as its only predecessor and is the only successor of that one;
    `joins`, if given, returns true for the two.
    """
    followers = follower_counts(predecessors)
    found: dict[int, list[int]] = {}  # by the last node
    for i in order:
        if len(predecessors[i]) == 1:
            source = predecessors[i][0]
            if followers[source] == 1 and (joins is None or joins(source, i)):
                chain = found.pop(source, None) or [source]
                chain.append(i)
                found[i] = chain
    return list(found.values())


def topological_order(predecessors: Edges) -> tuple[int, ...]:
    """Return a topological order that stays as near to 0, 1, 2, ... as edges allow; empty if there is a cycle."""
    for target, sources in enumerate(predecessors):
        if sources and max(sources) >= target:
            break
    else:
        return tuple(range(len(predecessors)))
    order = _sorted(predecessors)
    return tuple(order) if len(order) == len(predecessors) else ()


def _sorted(predecessors: Edges) -> list[int]:
    """Return the nodes that are neither in nor after a cycle, sorted, smallest first wherever edges allow (Kahn's algorithm)."""
    missing = [len(sources) for sources in predecessors]
    waiting = successors(predecessors)
    ready = [i for i, count in enumerate(missing) if not count]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for target in waiting[i]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, target)
    return order


def find_cycle(predecessors: Edges) -> tuple[int, ...]:
    """Return the nodes of one cycle in the direction of its edges; empty if there is none."""
    left = set(range(len(predecessors))).difference(_sorted(predecessors))
    if not left:
        return ()
    path: dict[int, None] = {}
    at = min(left)
    while at not in path:  # every node that is left has a predecessor that is left
        path[at] = None
        at = next(p for p in predecessors[at] if p in left)
    cycle = list(path)[list(path).index(at) :]
    cycle.reverse()
    first = cycle.index(min(cycle))
    return tuple(cycle[first:] + cycle[:first])


def positions(order: Sequence[int]) -> Sequence[int]:
    """Return the position of each node in an order."""
    straight = range(len(order))
    if tuple(order) == tuple(straight):
        return straight
    found = [0] * len(order)
    for position, i in enumerate(order):
        found[i] = position
    return found


def ancestors(
    order: Sequence[int], predecessors: Edges, position: Sequence[int], start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (node, set of its ancestors) for the positions from `start` to `stop`.

    Only nodes of these positions are in the sets: bit `k` represents position ``start + k``. A set is dropped as soon as all
    successors of its node have been visited, so memory follows the width of the graph.
    """
    part = order[start:stop]
    uses = [0] * len(part)
    for i in part:
        for source in predecessors[i]:
            p = position[source] - start
            if p >= 0:
                uses[p] += 1
    sets: dict[int, int] = {}
    for k, i in enumerate(part):
        found = 0
        for source in predecessors[i]:
            p = position[source] - start
            if p >= 0:
                found |= sets[p]
                uses[p] -= 1
                if not uses[p]:
                    del sets[p]
        if uses[k]:
            sets[k] = found | 1 << k
        yield i, found


def reduced(order: Sequence[int], predecessors: Edges) -> list[tuple[int, ...]]:
    """Return for each node the predecessors that no other predecessor implies (transitive reduction), in the order given."""
    position = positions(order)
    wanted = {source for sources in predecessors if len(sources) > 1 for source in sources}
    kept = [tuple(sources) for sources in predecessors]
    uses = [0] * len(order)
    for sources in predecessors:
        if len(sources) > 1:
            for source in sources:
                uses[source] += 1
    before: dict[int, int] = {}
    for i, found in ancestors(order, predecessors, position):
        if i in wanted:
            before[i] = found
        sources = predecessors[i]
        if len(sources) > 1:
            implied = 0
            for source in sources:
                implied |= before[source]
            kept[i] = tuple(source for source in dict.fromkeys(sources) if not implied >> position[source] & 1)
            for source in sources:
                uses[source] -= 1
                if not uses[source]:
                    del before[source]
    return kept


def levels(order: Sequence[int], predecessors: Edges) -> list[int]:
    """Return the number of edges on the longest path to each node."""
    found = [0] * len(predecessors)
    for i in order:
        sources = predecessors[i]
        if sources:
            found[i] = 1 + (found[sources[0]] if len(sources) == 1 else max([found[p] for p in sources]))
    return found


def longest_path(order: Sequence[int], predecessors: Edges, weights: Sequence[float]) -> list[int]:
    """Return the nodes of the path with the largest sum of weights, first to last; among equal paths, the first by position."""
    best = [0.0] * len(predecessors)
    via = [-1] * len(predecessors)
    for i in order:
        for source in predecessors[i]:
            if via[i] < 0 or best[source] > best[i]:
                best[i], via[i] = best[source], source
        best[i] += weights[i]
    at = max(order, key=best.__getitem__, default=-1)
    path = []
    while at >= 0:
        path.append(at)
        at = via[at]
    return path[::-1]
