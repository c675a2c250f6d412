"""Memory that the graph allocates: its lifetime (HG3xx) and its contents (HG401 to HG403)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

from ..arrays import Access, AllocArray, Region
from ..nodes import Node
from .data import exposed
from .levels import CheckedLevel

_MOST = 20  # maximum number of findings of one code about one array; the rest is counted


@dataclass
class _Life:
    """The nodes that allocate, use and free one array, in order of declaration, and the number of findings per code."""

    scope: CheckedLevel
    array: AllocArray
    allocs: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of nodes whose order matters."""
        yield from product(self.allocs[:1], self.frees)
        yield from product(self.uses, (*self.allocs[:1], *self.frees))
        if len(self.uses) <= 8:
            yield from combinations(self.uses, 2)

    def who(self, i: int) -> str:
        return repr(self.scope.name(self.scope.workflow.nodes[i]))

    def say(self, code: str, message: str, *involved: int, hint: str) -> None:
        """Report a finding; beyond `_MOST` of its code only count it."""
        self.counts[code] += 1
        if self.counts[code] <= _MOST:
            nodes = [self.scope.workflow.nodes[i] for i in involved]
            self.scope.found(code, message, *nodes, arrays=[self.array.name], hint=hint)

    def check(self, before: set[tuple[int, int]]) -> None:
        who, say, name = self.who, self.say, self.array.name
        if not self.allocs:
            none = f"{name!r}, and no node of graph {self.scope.workflow.name!r} allocates it"
            for i in self.uses:
                say("HG301", f"{who(i)} uses {none}", i, hint="declare it with alloc() in this graph, or use a device_array")
            for i in self.frees:
                say("HG305", f"{who(i)} frees {none}", i, hint="free memory in the graph that allocates it")
            return
        alloc, *again = self.allocs
        for i in again:
            say("HG307", f"{who(alloc)} and {who(i)} both allocate {name!r}", alloc, i, hint="remove one of them")
        for i in self.uses:
            self.check_use(i, alloc, before)
        for free in self.frees:
            self.check_free(free, alloc, before)
        for i in self.frees[1:]:
            first = self.frees[0]
            say("HG304", f"{who(first)} and {who(i)} both free {name!r}", first, i, hint="remove one of them")
        if not self.frees:
            say(
                "HG306",
                f"{name!r} ({self.array.nbytes} bytes) is never freed: it stays allocated after a launch, until the next"
                " launch allocates it again or the executable is closed",
                alloc,
                hint=f"free({name}) after its last use",
            )
        for code, count in self.counts.items():
            if count > _MOST:
                message = f"{count - _MOST} more findings of this kind about {name!r}"
                self.scope.found(code, message, self.scope.workflow.nodes[alloc], arrays=[name])

    def check_use(self, i: int, alloc: int, before: set[tuple[int, int]]) -> None:
        """Report a use that does not follow the alloc."""
        who, nodes, name = self.who, self.scope.workflow.nodes, self.array.name
        if (i, alloc) in before:
            hint = f"make {who(alloc)} the first of the two, and remove the path from {who(i)} to it"
            self.say("HG301", f"{who(i)} uses {name!r} before {who(alloc)} allocates it", i, alloc, hint=hint)
        elif (alloc, i) not in before:
            message = f"{who(i)} uses {name!r}, and no path leads to it from {who(alloc)}, which allocates it"
            self.say("HG301", message, i, alloc, hint=f"add after=[{nodes[alloc].name!r}] to {nodes[i].name!r}")

    def check_free(self, free: int, alloc: int, before: set[tuple[int, int]]) -> None:
        """Report a free that does not follow the alloc, and uses that do not precede it."""
        who, nodes, name = self.who, self.scope.workflow.nodes, self.array.name
        if (alloc, free) not in before:
            last = [nodes[i].name for i in self.uses if not any((i, j) in before for j in self.uses)] or [nodes[alloc].name]
            message = f"{who(free)} frees {name!r}, and no path leads to it from {who(alloc)}, which allocates it"
            self.say("HG305", message, free, alloc, hint=f"add after=[{', '.join(map(repr, last))}] to {nodes[free].name!r}")
            return
        for i in self.uses:
            if (free, i) in before:
                message = f"{who(i)} uses {name!r} after {who(free)} has freed it"
                self.say("HG302", message, i, free, hint=f"declare {who(free)} after the last use")
            elif (i, free) not in before:
                message = f"{who(free)} frees {name!r} and {who(i)} uses it, and no path orders them"
                self.say("HG303", message, free, i, hint=f"add after=[{nodes[i].name!r}] to {nodes[free].name!r}")


def check_lifetimes(scope: CheckedLevel) -> None:
    """Report uses that are not between alloc and free, and allocs and frees that do not pair."""
    workflow = scope.workflow
    lives = {array: _Life(scope, array) for array in workflow.arrays.values() if isinstance(array, AllocArray)}

    def life(array: AllocArray) -> _Life:
        return lives.setdefault(array, _Life(scope, array))

    for i, node in enumerate(workflow.nodes):
        if node.made is not None:
            life(node.made).allocs.append(i)
        elif node.freed is not None:
            life(node.freed).frees.append(i)
        else:
            for root in dict.fromkeys(access.view.root for access in node.accesses):
                if isinstance(root, AllocArray):
                    life(root).uses.append(i)
    before = scope.reach.preceding(pair for each in lives.values() for pair in each.pairs())
    for each in lives.values():
        each.check(before)


# -- contents of memory ------------------------------------------------------------------------------------------------


class _Coverage:
    """The bytes of one array that have been written, as sorted disjoint intervals.

    A strided write counts as its whole extent, so that bytes reported as unwritten are definitely unwritten.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []

    def add(self, start: int, stop: int) -> None:
        first = bisect_right(self.stops, start - 1)
        last = bisect_right(self.starts, stop)
        if first < last:
            start, stop = min(start, self.starts[first]), max(stop, self.stops[last - 1])
        self.starts[first:last] = [start]
        self.stops[first:last] = [stop]

    def missing(self, region: Region) -> tuple[int, int]:
        """Return the first gap that the region overlaps, or (0, 0)."""
        at = region.start
        first = bisect_right(self.stops, region.start)
        for start, stop in (*zip(self.starts[first:], self.stops[first:]), (region.stop, region.stop)):
            gap = Region(at, min(start, region.stop), min(start, region.stop) - at)
            if gap.run > 0 and gap.overlaps(region):
                return gap.start, gap.stop
            at = max(at, stop)
            if at >= region.stop:
                break
        return 0, 0


@dataclass
class _Contents:
    """The state of one array: bytes written since its alloc, all writers, whether it was read, whether HG401 was reported."""

    written: _Coverage | None = None
    writers: list[Node] = field(default_factory=list)
    read: bool = False
    told: bool = False


def check_contents(scope: CheckedLevel) -> None:
    """Report reads of allocated memory that nothing has written, and writes that nothing reads."""
    nodes = scope.workflow.nodes
    makers: dict[AllocArray, Node] = {}
    contents: defaultdict[AllocArray, _Contents] = defaultdict(_Contents)
    for i in scope.workflow.order:
        node = nodes[i]
        if node.freed is not None:
            continue
        if node.made is not None:
            makers[node.made] = node
            contents[node.made].written = _Coverage()
            continue
        writes: list[tuple[_Contents, Region]] = []
        for access in node.accesses:
            root = access.view.root
            if type(root) is AllocArray:
                if access.mode != "write":
                    _check_read(scope, node, access, contents[root])
                if access.mode != "read":
                    contents[root].writers.append(node)
                    writes.append((contents[root], access.bytes))
        for held, region in writes:  # record them only after all reads of the node are checked
            if held.written is not None:
                held.written.add(region.start, region.stop)
    for array, maker in makers.items():
        writers = contents[array].writers
        if not writers and not contents[array].read:
            scope.found(
                "HG403",
                f"{scope.name(maker)!r} allocates {array.name!r} ({array.nbytes} bytes) and no node uses it",
                maker,
                arrays=[array.name],
                hint="remove the alloc",
            )
        elif not contents[array].read:
            names = ", ".join(repr(scope.name(node)) for node in writers[:3])
            scope.found(
                "HG402",
                f"{names}{' and others' if len(writers) > 3 else ''} write{'s' if len(writers) == 1 else ''} {array.name!r},"
                " and nothing reads it before it is gone",
                maker,
                *writers[:3],
                arrays=[array.name],
                hint="remove the writes, or copy the result to an array outside the graph",
            )


def _check_read(scope: CheckedLevel, node: Node, access: Access, held: _Contents) -> None:
    """Report the first read of bytes that nothing has written since the array was allocated."""
    held.read = True
    if held.written is None or held.told or not exposed(node, access):
        return
    start, stop = held.written.missing(access.bytes)
    if stop:
        held.told = True
        name = access.view.root.name
        what = f"bytes {start}..{stop} of {name!r}" if held.written.starts else repr(name)
        scope.found(
            "HG401",
            f"{scope.name(node)!r} reads {what}, which nothing has written since it was allocated",
            node,
            arrays=[name],
            hint=f"write it before, for example memset({name}, 0)",
        )
