"""Memory made in the graph: when it exists (HG3xx) and what is in it (HG4xx)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from ..arrays import Access, AllocArray, DeviceArray, Region
from ..nodes import KernelNode, MemcpyNode
from ..workflow import AnyNode
from .reach import Reach
from .scope import Scope

_MOST = 20  # findings of one code about one array; the rest is counted


@dataclass
class _Life:
    """Nodes that make, use and return one array, in order of declaration."""

    array: AllocArray
    allocs: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)


def _lives(scope: Scope) -> list[_Life]:
    workflow = scope.workflow
    if not any(type(a) is AllocArray for a in workflow.arrays.values()) and not any(n.freed is not None for n in workflow.nodes):
        return []
    lives: dict[AllocArray, _Life] = {a: _Life(a) for a in workflow.arrays.values() if isinstance(a, AllocArray)}
    for i, node in enumerate(workflow.nodes):
        if node.made is not None:
            lives.setdefault(node.made, _Life(node.made)).allocs.append(i)
            continue
        if node.freed is not None:
            lives.setdefault(node.freed, _Life(node.freed)).frees.append(i)
            continue
        for access in node.accesses:
            root = access.view.root
            if isinstance(root, AllocArray):
                uses = lives.setdefault(root, _Life(root)).uses
                if not uses or uses[-1] != i:
                    uses.append(i)
    return list(lives.values())


def check_lifetimes(scope: Scope, reach: Reach) -> None:
    """Report uses outside of the time between alloc and free, and allocs and frees that do not pair."""
    lives = _lives(scope)
    if not lives:
        return
    wanted = []
    for life in lives:
        alloc = life.allocs[:1]
        wanted += [(a, u) for a in alloc for u in (*life.uses, *life.frees)]
        wanted += [(u, a) for a in alloc for u in (*life.uses, *life.frees)]
        for free in life.frees:
            wanted += [(u, free) for u in life.uses]
            wanted += [(free, u) for u in life.uses]
            wanted += [(u, v) for u in life.uses for v in life.uses if u != v] if len(life.uses) <= 8 else []
    before = reach.preceding(wanted)
    for life in lives:
        _check_life(scope, life, before)


class _Told:
    """The findings about one array; of each code `_MOST` are listed, and the rest is counted."""

    def __init__(self, scope: Scope, life: _Life) -> None:
        self.scope = scope
        self.nodes = scope.workflow.nodes
        self.name = life.array.name
        self.counts: Counter[str] = Counter()

    def who(self, i: int) -> str:
        return repr(self.scope.name(self.nodes[i]))

    def say(self, code: str, message: str, *involved: int, hint: str) -> None:
        self.counts[code] += 1
        if self.counts[code] <= _MOST:
            nodes = [self.nodes[i] for i in involved]
            self.scope.found(code, message, *nodes, arrays=[self.name], hint=hint)

    def say_rest(self, node: int) -> None:
        for code, count in self.counts.items():
            if count > _MOST:
                message = f"{count - _MOST} more findings of this kind about {self.name!r}"
                self.scope.found(code, message, self.nodes[node], arrays=[self.name])


def _check_life(scope: Scope, life: _Life, before: set[tuple[int, int]]) -> None:
    told = _Told(scope, life)
    who, say, name = told.who, told.say, told.name
    if not life.allocs:
        none = f"{name!r}, and no node of graph {scope.workflow.name!r} allocates it"
        for i in life.uses:
            say("HG301", f"{who(i)} uses {none}", i, hint="declare it with alloc() in this graph, or use a device_array")
        for i in life.frees:
            say("HG305", f"{who(i)} frees {none}", i, hint="free memory in the graph that allocates it")
        return
    alloc, *again = life.allocs
    for i in again:
        say("HG307", f"{who(alloc)} and {who(i)} both allocate {name!r}", alloc, i, hint="remove one of them")
    for i in life.uses:
        _check_use(told, i, alloc, before)
    for free in life.frees:
        _check_free(told, life, free, alloc, before)
    first, *more = life.frees or [-1]
    for i in more:
        say("HG304", f"{who(first)} and {who(i)} both free {name!r}", first, i, hint="remove one of them")
    if not life.frees:
        say(
            "HG306",
            f"{name!r} ({life.array.nbytes} bytes) is never freed: it stays allocated after a launch, until the next"
            " launch makes it anew or the executable is closed",
            alloc,
            hint=f"free({name}) after its last use",
        )
    told.say_rest(alloc)


def _check_use(told: _Told, i: int, alloc: int, before: set[tuple[int, int]]) -> None:
    """Report a use that does not follow the alloc."""
    who, nodes = told.who, told.nodes
    if (i, alloc) in before:
        message = f"{who(i)} uses {told.name!r} before {who(alloc)} allocates it"
        told.say(
            "HG301", message, i, alloc, hint=f"make {who(alloc)} the first of the two, and remove the path from {who(i)} to it"
        )
    elif (alloc, i) not in before:
        message = f"{who(i)} uses {told.name!r}, and no path leads to it from {who(alloc)}, which allocates it"
        told.say("HG301", message, i, alloc, hint=f"add after=[{nodes[alloc].name!r}] to {nodes[i].name!r}")


def _check_free(told: _Told, life: _Life, free: int, alloc: int, before: set[tuple[int, int]]) -> None:
    """Report a free that does not follow the alloc, and uses that do not precede it."""
    who, nodes, name = told.who, told.nodes, told.name
    if (alloc, free) not in before:
        last = [nodes[i].name for i in life.uses if not any((i, j) in before for j in life.uses)] or [nodes[alloc].name]
        message = f"{who(free)} frees {name!r}, and no path leads to it from {who(alloc)}, which allocates it"
        told.say("HG305", message, free, alloc, hint=f"add after=[{', '.join(map(repr, last))}] to {nodes[free].name!r}")
        return
    for i in life.uses:
        if (free, i) in before:
            message = f"{who(i)} uses {name!r} after {who(free)} has freed it"
            told.say("HG302", message, i, free, hint=f"declare {who(free)} after the last use")
        elif (i, free) not in before:
            message = f"{who(free)} frees {name!r} and {who(i)} uses it, and no path orders them"
            told.say("HG303", message, free, i, hint=f"add after=[{nodes[i].name!r}] to {nodes[free].name!r}")


# -- what is in the memory ---------------------------------------------------------------------------------------------


class _Coverage:
    """The bytes of one array that something has written, as sorted disjoint intervals.

    A strided write counts with its whole extent, so that what is reported as unwritten surely is.
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
        """Return the first gap that the region reaches into, or (0, 0)."""
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


def check_data(scope: Scope) -> None:
    """Report reads of memory that nothing has written, and writes that nothing reads."""
    workflow = scope.workflow
    seen: set[object] = set()
    allocs = any(type(a) is AllocArray for a in workflow.arrays.values())
    written: dict[AllocArray, _Coverage] = {}
    makers: dict[AllocArray, AnyNode] = {}
    writers: dict[AllocArray, list[AnyNode]] = {}
    read: set[AllocArray] = set()
    told: set[AllocArray] = set()
    nodes = workflow.nodes
    for i in workflow.order:
        node = nodes[i]
        accesses = node.accesses
        if allocs and node.freed is not None:
            continue
        if allocs and node.made is not None:
            makers[node.made] = node
            written[node.made] = _Coverage()
            continue
        for access in accesses:
            root = access.view.root
            if root in seen:
                continue
            if type(root) is AllocArray:
                _follow(scope, node, access, root, written, read, told)
                if access.mode != "read":
                    writers.setdefault(root, []).append(node)
                continue
            seen.add(root)
            if access.mode == "read" and type(root) is DeviceArray and root.initial is None and _exposed(node, access):
                bound = root.name in scope.bind
                if not bound:
                    scope.found(
                        "HG404",
                        f"{scope.name(node)!r} reads {root.name!r}, which has no initial values and is not written before",
                        node,
                        arrays=[root.name],
                        hint=f"it is zero at the first launch; write({root.name!r}, values) before it, or give initial values",
                    )
        if allocs:
            # Writes count once all reads of the same node are judged.
            for access in accesses:
                root = access.view.root
                if type(root) is AllocArray and access.mode != "read" and root in written:
                    written[root].add(access.bytes.start, access.bytes.stop)
    for array, maker in makers.items():
        if array not in writers and array not in read:
            scope.found(
                "HG403",
                f"{scope.name(maker)!r} allocates {array.name!r} ({array.nbytes} bytes) and no node uses it",
                maker,
                arrays=[array.name],
                hint="remove the alloc",
            )
        elif array not in read:
            names = [scope.name(n) for n in writers[array]]
            scope.found(
                "HG402",
                f"{', '.join(map(repr, names[:3]))}{' and others' if len(names) > 3 else ''} write"
                f"{'s' if len(names) == 1 else ''} {array.name!r}, and nothing reads it before it is gone",
                maker,
                *writers[array][:3],
                arrays=[array.name],
                hint="remove the writes, or copy the result to an array outside the graph",
            )


def _follow(
    scope: Scope, node: AnyNode, access: Access, root: AllocArray, written: dict[AllocArray, _Coverage], read:
    set[AllocArray], told: set[AllocArray],
) -> None:  # fmt: skip
    if access.mode == "write":
        return
    read.add(root)
    coverage = written.get(root)
    if coverage is None or root in told or not _exposed(node, access):
        return
    start, stop = coverage.missing(access.bytes)
    if stop:
        told.add(root)
        what = f"bytes {start}..{stop} of {root.name!r}" if coverage.starts else f"{root.name!r}"
        scope.found(
            "HG401",
            f"{scope.name(node)!r} reads {what}, which nothing has written since it was allocated",
            node,
            arrays=[root.name],
            hint=f"write it before, for example memset({root.name}, 0)",
        )


def _exposed(node: AnyNode, access: Access) -> bool:
    """Whether the node surely uses values from before it.

    An update that is only inferred (`T*` of a kernel, an array in `args` of a callback) may be a plain write, and a
    child graph may write before it reads.
    """
    if node.derives or node.held:
        return access.mode == "read" and not any(a.mode != "read" and a.view.root is access.view.root for a in node.accesses)
    if access.mode == "read":
        return True
    return isinstance(node, KernelNode) and any(arg is access for arg in node.args)


def check_copies(scope: Scope) -> None:
    """Report copies whose source and destination overlap."""
    for node in scope.workflow.nodes:
        if type(node) is not MemcpyNode:
            continue
        dst, src = node.dst, node.src
        if dst.root is not src.root and scope.place(dst.root)[0] != scope.place(src.root)[0]:
            continue
        (to_key, to), (from_key, origin) = (scope.placed(a) for a in reversed(node.accesses))
        if to_key == from_key and to.overlaps(origin):
            _, offset = scope.place(dst.root)
            start, stop = max(to.start, origin.start), min(to.stop, origin.stop)
            common = Region(start, stop, stop - start).shifted(-offset)
            scope.found(
                "HG405",
                f"{scope.name(node)!r} copies {src.name!r} to {dst.name!r}, and both hold {dst.root.name!r} {common}",
                node,
                arrays=[dst.root.name, src.root.name],
                hint="copy through another array, or let a kernel move the values",
            )
