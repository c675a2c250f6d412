"""Races: two nodes that no path orders, that touch overlapping bytes, and of which at least one writes (HG2xx)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ..arrays import Access, Region
from ..hazards import ByRegion, Held
from ..nodes import Node
from .levels import CheckedLevel

Touch = tuple[str, Any, Region]
"""How a node touches memory: mode, address space, bytes."""

_MOST_PAIRS = 5000  # reported per address space; the rest is counted


class _Entry(Held):
    """One region of an address space, its readers and its writers, as bit sets relative to the first position that touches it."""

    __slots__ = ("base", "readers", "writers")

    def __init__(self, region: Region, base: int) -> None:
        super().__init__(region)
        self.base = base
        self.readers = 0
        self.writers = 0


def racing_pairs(
    scope: CheckedLevel, touched: Mapping[int, Sequence[Touch]] | None = None
) -> tuple[list[tuple[int, int]], dict[Any, int]]:
    """Return all racing pairs of nodes in topological order, and the number of unlisted conflicts by address space.

    Beyond 5000 pairs in one address space, conflicts are only counted. Alloc and free nodes are skipped: `check_lifetimes`
    checks their order. `touched`, if given, replaces the accesses of the nodes: it has by node index what each touches, and
    nodes without an entry touch nothing.
    """
    nodes = scope.workflow.nodes
    reach = scope.reach
    within = None if touched is None else Counter(reach.segment_start[reach.position[i]] for i in touched)
    pairs: dict[tuple[int, int], None] = {}
    left_out: Counter[Any] = Counter()
    for start, stop in reach.segments:
        if stop - start < 2 or (within is not None and within[start] < 2):
            continue
        spaces: defaultdict[Any, ByRegion[_Entry]] = defaultdict(ByRegion)
        entries: dict[tuple[Any, Region], _Entry] = {}
        listed, more = Counter[Any](), Counter[Any]()  # racing pairs of each space
        for position, (i, ancestors) in enumerate(reach.walk(start, stop)):
            node = nodes[i]
            if node.made is not None or node.freed is not None:
                continue
            own = ((access.mode, *scope.placed(access)) for access in node.accesses)
            placed = [*own] if touched is None else touched.get(i, ())
            for mode, key, region in placed:
                for entry in spaces[key].meeting(region):
                    conflicting = entry.writers | entry.readers if mode != "read" else entry.writers
                    ordered = conflicting & (ancestors >> entry.base)
                    if ordered == conflicting:
                        continue
                    racing = conflicting ^ ordered
                    while racing and listed[key] < _MOST_PAIRS:
                        low = racing & -racing
                        racing ^= low
                        pair = (reach.order[start + entry.base + low.bit_length() - 1], i)
                        if pair not in pairs:
                            pairs[pair] = None
                            listed[key] += 1
                    more[key] += racing.bit_count()
            for mode, key, region in placed:
                known = entries.get((key, region))
                entry = known or _Entry(region, position)
                if known is None:
                    entries[key, region] = entry
                    spaces[key].add(entry)
                bit = 1 << (position - entry.base)
                if mode == "read":
                    entry.readers |= bit
                else:
                    entry.writers |= bit
        left_out.update({key: more[key] for key in spaces if more[key]})
    return list(pairs), left_out


def check_races(scope: CheckedLevel) -> None:
    """Report each racing pair once, with all arrays that it races for."""
    nodes = scope.workflow.nodes
    pairs, left_out = racing_pairs(scope)
    for i, j in pairs:
        first, second = sorted((i, j))
        _report(scope, nodes[first], nodes[second])
    for key, count in left_out.items():
        name = _space_name(scope, key)
        scope.found(
            "HG202",
            f"{count} more conflicts over {name!r} are not ordered; {_MOST_PAIRS} of them are listed",
            arrays=[name],
            hint="order the nodes, or let edges be inferred: Graph(name, infer=True)",
        )


def _report(scope: CheckedLevel, first: Node, second: Node) -> None:
    conflicts = []
    for a in first.accesses:
        key, region = scope.placed(a)
        for b in second.accesses:
            if a.mode == "read" and b.mode == "read":
                continue
            other_key, other = scope.placed(b)
            if key == other_key and region.overlaps(other):
                conflicts.append((a, b, key, region, other))
    a, b, key, region, other = conflicts[0]
    one, two = _who(scope, first, a, key, other), _who(scope, second, b, key, region)
    aliased = a.view.root is not b.view.root
    common = _common(region, other)
    if aliased:
        code = "HG203"
        mine, theirs = _relative(scope, a, common), _relative(scope, b, common)
        what = (
            f"{one[0]!r} {_verb(a)} {a.view.root.name!r} {mine} and {two[0]!r} {_verb(b)} {b.view.root.name!r} {theirs},"
            " which are the same memory"
        )
    elif a.mode != "read" and b.mode != "read":
        code = "HG202"
        what = f"{one[0]!r} and {two[0]!r} both write {a.view.root.name!r} {_relative(scope, a, common)}"
    else:
        code = "HG201"
        what = f"{one[0]!r} {_verb(a)} and {two[0]!r} {_verb(b)} {a.view.root.name!r} {_relative(scope, a, common)}"
    arrays = [c.view.root.name for conflict in conflicts for c in conflict[:2]]
    others = sorted(set(arrays) - {a.view.root.name, b.view.root.name})
    if others:
        what += f" (and {', '.join(map(repr, others))})"
    scope.found(
        code,
        f"{what}, and no path orders them",
        *tuple(dict.fromkeys((one[1], two[1], first, second))),
        names=(one[0], two[0]),
        arrays=arrays,
        hint=f"add after=[{first.name!r}] to {second.name!r}",
    )


def _verb(access: Access) -> str:
    return "reads" if access.mode == "read" else "writes"


def _who(scope: CheckedLevel, node: Node, access: Access, key: Any, other: Region) -> tuple[str, Node]:
    """Return the full name and the node that makes an access; for a child graph, the conflicting node inside it."""
    if not node.derives and node.held:
        for inner, leaf, own in scope.leaves(node):
            leaf_key, region = inner.placed(own)
            if (own.mode == "read") == (access.mode == "read") and leaf_key == key and region.overlaps(other):
                return inner.name(leaf), leaf
    return scope.name(node), node


def _common(a: Region, b: Region) -> Region:
    if a == b:
        return a
    start, stop = max(a.start, b.start), min(a.stop, b.stop)
    return Region(start, stop, stop - start)


def _relative(scope: CheckedLevel, access: Access, common: Region) -> str:
    """Return bytes of an address space as offsets into the access's own array."""
    _, offset = scope.place(access.view.root)
    return str(common.shifted(-offset))


def _space_name(scope: CheckedLevel, key: Any) -> str:
    for root in (*scope.workflow.arrays.values(), *scope.workflow.parameters.values()):
        if scope.place(root)[0] == key:
            return root.name
    return str(getattr(key, "name", key))
