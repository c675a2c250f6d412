"""Accesses in order of declaration -> the edges that keep their meaning.

For each address space a `HazardTracker` holds records: a region, the node that wrote it last and the nodes that have read it
since. A new access depends on every record that it meets (RAW, WAR, WAW). A write that covers a record replaces it; of a
contiguous record that it covers in part, the rest stays. A read replaces reads of the same region that its node follows. Edges
that the tracker leaves out are implied by those it gives.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from .arrays import Access, Mode, Region
from .nodes import Node


class Reason(NamedTuple):
    """Why a node waits for another; `str` gives the text that `Graph.dag` and files show, such as ``"RAW x"``.

    Attributes
    ----------
    kind : str
        ``"RAW"``, ``"WAR"`` or ``"WAW"``, which follow from accesses; ``"event"``; ``"after"``, for a declared edge;
        ``"message"``, for one between ranks; ``""`` for an edge that a user put into `Graph.dag` with a text of its own.
    what : str
        Name of the array or of the event, or the user's text; empty for the others.
    """

    kind: Literal["RAW", "WAR", "WAW", "event", "after", "message", ""]
    what: str = ""

    @property
    def inferred(self) -> bool:
        """Whether the edge follows from accesses."""
        return self.kind in ("RAW", "WAR", "WAW")

    def __str__(self) -> str:
        return " ".join(self) if self.kind and self.what else self.kind or self.what


AFTER = Reason("after")
_NEAR = 64  # nodes that are looked at for those that one node follows
_MANY = 8  # readers of a contiguous record before they are looked at


def near_before(predecessors: Sequence[Sequence[int]], at: int) -> set[int]:
    """Return the nodes that the node `at` waits for, and those that they wait for, unless these are many."""
    near = set(predecessors[at])
    for before in predecessors[at]:
        near.update(predecessors[before])
        if len(near) > _NEAR:
            break
    return near


class Held:
    """Base class of the entries of a region index, which sets `size` to the class in which it keeps an entry."""

    __slots__ = ("region", "size", "start", "stop")

    size: int

    def __init__(self, region: Region) -> None:
        self.region = region
        self.start = region.start
        self.stop = region.stop


H = TypeVar("H", bound=Held)
N = TypeVar("N")  # a node, by name or number


class ByRegion(Generic[H]):
    """Index of entries by their regions of one address space; finds entries by overlap.

    Entries are kept by size class (the smallest power of two that is at least their extent), each class sorted by start, so that
    a look-up visits only neighbours.
    """

    __slots__ = ("classes", "single")

    def __init__(self) -> None:
        self.classes: dict[int, tuple[list[int], list[H]]] = {}  # the starts of the entries, and the entries
        self.single: H | None = None  # the only entry; most arrays never have more

    def meeting(self, region: Region) -> Sequence[H]:
        """Return the entries whose bytes overlap a region; of those with equal regions, in the order in which they were added."""
        single = self.single
        if single is not None:
            known = single.region
            return (single,) if known is region or known == region or known.overlaps(region) else ()
        found = []
        start, stop, dims = region.start, region.stop, region.dims
        for size, (starts, held) in self.classes.items():
            at = bisect_left(starts, start - (1 << size) + 1)
            for item in held[at : bisect_left(starts, stop, at)]:
                if item.stop > start and (not (dims or item.region.dims) or item.region.overlaps(region)):
                    found.append(item)
        return found

    def add(self, item: H) -> None:
        """Add an entry."""
        single = self.single
        if single is not None:
            self.single = None
            self._insert(single)
        elif not self.classes:
            self.single = item
            return
        self._insert(item)

    def _insert(self, item: H) -> None:
        start = item.start
        size = item.size = (item.stop - start - 1).bit_length()
        known = self.classes.get(size)
        if known is None:
            self.classes[size] = [start], [item]
            return
        starts, held = known
        if starts[-1] > start:
            at = bisect_right(starts, start)
            starts.insert(at, start)
            held.insert(at, item)
        else:
            starts.append(start)
            held.append(item)

    def remove(self, item: H) -> None:
        """Remove an entry, which must be present."""
        if self.single is item:
            self.single = None
            return
        starts, held = self.classes[item.size]
        at = bisect_left(starts, item.start)
        while held[at] is not item:
            at += 1
        del starts[at], held[at]
        if not held:
            del self.classes[item.size]


class Record(Held, Generic[N]):
    """The node that wrote a region last, and those that have read it since."""

    __slots__ = ("many", "readers", "writer")

    def __init__(self, region: Region, writer: N | None, readers: list[N]) -> None:
        self.region = region
        self.start = region.start
        self.stop = region.stop
        self.writer = writer
        self.readers = readers
        # From so many readers on it is asked which of them the next one follows. Those of a contiguous region go with the next
        # write, but a strided region that writes cover in parts stays.
        self.many = 1 if region.dims else _MANY

    def cut(self, start: int, stop: int) -> Record[N]:
        """Make the record, which is contiguous and in no index, that of a part of its bytes."""
        self.region = Region(start, stop, stop - start)
        self.start, self.stop = start, stop
        self.many = _MANY
        return self

    def add_reader(self, node: N, unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Add a reader; `unfollowed` returns those of the readers so far that it does not follow, which stay."""
        if len(self.readers) >= self.many:
            self.readers = unfollowed(self.readers)
            self.many = max(self.many, 2 * len(self.readers))  # so that each is asked about a few times in all
        self.readers.append(node)


@lru_cache(1 << 14)
def _reasons(name: str) -> tuple[Reason, Reason, Reason]:
    """Return the reasons of edges by an array; graphs that are alike share them."""
    return Reason("RAW", name), Reason("WAR", name), Reason("WAW", name)


class _Space(ByRegion[Record[N]]):
    """The records of one address space."""

    __slots__ = ("met", "name", "reasons")

    def __init__(self, name: str) -> None:
        self.classes = {}
        self.single = None
        self.name: str | None = name  # that of its only array
        self.reasons: tuple[Reason, Reason, Reason] | None = None  # those of edges by its only array, made with the first edge
        self.met: tuple[Region, Sequence[Record[N]]] | None = None  # the last region looked up, while no record is added since

    def reasons_for(self, name: str) -> tuple[Reason, Reason, Reason]:
        """Return the reasons of edges that accesses of an array make, and keep them unless other arrays share the space."""
        found = _reasons(name)
        if self.name is name:
            self.reasons = found
        return found

    def met_by(self, region: Region) -> Sequence[Record[N]]:
        """Return `meeting`, which is looked up once for each access."""
        met = self.met
        if met is None or met[0] is not region:
            self.met = met = region, self.meeting(region)
        return met[1]

    def read(self, node: N, region: Region, unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Record that a node reads a region."""
        for record in reversed(self.met_by(region)):
            if record.region == region:
                if not record.readers or record.readers[-1] != node:
                    record.add_reader(node, unfollowed)
                return
        self.met = None
        self.add(Record(region, None, [node]))

    def write(self, node: N, region: Region) -> None:
        """Record that a node writes a region."""
        single = self.single
        if single is not None and (single.region is region or single.region == region):
            single.writer, single.readers = node, []
            return
        records = self.met_by(region)
        self.met = None
        start, stop, dims = region.start, region.stop, region.dims
        for record in records:
            known = record.region
            if dims or known.dims:
                if region.contains(known):
                    self.remove(record)
                continue
            first, last = record.start, record.stop
            self.remove(record)
            if first < start:
                self.add(record.cut(first, start))
                if stop < last:
                    self.add(Record(Region(stop, last, last - stop), record.writer, [*record.readers]))
            elif stop < last:
                self.add(record.cut(stop, last))
        self.add(Record(region, node, []))


Touched = list[tuple[_Space[N], Region, Mode, str]]
"""What accesses touch, as `HazardTracker` takes it: for each its space, region and mode, and the array's name."""
Pending = tuple[Sequence[Record[N]], Sequence[Record[N]], Sequence[tuple[_Space[N], Region, Mode, str]]]
"""The records that a node reads and those that it writes, if each has its address space alone; else all that it touches."""


class HazardTracker(Generic[N]):
    """Turns accesses, node by node, into the edges that they need.

    The record of an access that is the only one of its address space is found without a look-up by region.
    """

    def __init__(self) -> None:
        self._spaces: dict[Any, _Space[N]] = {}

    def touched(self, accesses: tuple[Access, ...]) -> Touched[N]:
        """Return what accesses touch: the same for all nodes with them."""
        found: Touched[N] = []
        spaces = self._spaces
        for access in accesses:
            view = access.view
            key, region = view.hazard if access.region is None else access.hazard
            name = view.root.name
            space = spaces.get(key)
            if space is None:
                space = spaces[key] = _Space(name)
            elif space.name is not name:  # external arrays share one space
                space.name = space.reasons = None
            found.append((space, region, access.mode, name))
        return found

    def edges(self, touched: Touched[N]) -> tuple[dict[N, Reason], Pending[N]]:
        """Return the nodes that a node which touches this must wait for, each with the reason, and what `record` takes."""
        found: dict[N, Reason] = {}
        read: list[Record[N]] = []
        written: list[Record[N]] = []
        new: list[_Space[N]] = []
        alone = True
        for space, region, mode, name in touched:
            single = space.single
            if single is None and not space.classes:
                space.single = single = Record(region, None, [])
                new.append(space)
            if single is None or (single.region is not region and single.region != region):
                alone = False
                records = space.met_by(region)
            elif mode == "read":
                read.append(single)
                writer = single.writer
                if writer is not None:
                    found[writer] = (space.reasons or space.reasons_for(name))[0]
                continue
            else:
                written.append(single)
                if single.writer is None and not single.readers:
                    continue
                records = (single,)
            raw, war, waw = space.reasons or space.reasons_for(name)
            for record in records:
                writer = record.writer
                if writer is not None:
                    if mode != "write":
                        found[writer] = raw
                    elif writer not in found:
                        found[writer] = waw
                if mode != "read":
                    for reader in record.readers:
                        if reader not in found:
                            found[reader] = war
        if alone:
            return found, (read, written, ())
        for space in new:
            space.single = space.met = None
        return found, ((), (), touched)

    def record(self, node: N, pending: Pending[N], unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Record what a node touches, for the edges of later nodes; `unfollowed` is as for `Record.add_reader`."""
        read, written, touched = pending
        for record in read:
            readers = record.readers
            if not readers or readers[-1] != node:
                if len(readers) < record.many:
                    readers.append(node)
                else:
                    record.add_reader(node, unfollowed)
        for record in written:
            record.writer = node
            if record.readers:
                record.readers = []
        for space, region, mode, _ in touched:
            if mode == "read":
                space.read(node, region, unfollowed)
        for space, region, mode, _ in touched:
            if mode != "read":
                space.write(node, region)


def edges_cover(nodes: Sequence[Node], predecessors: Sequence[Sequence[int]]) -> bool:
    """Return whether edges that accesses imply order each conflict of nodes in a topological order.

    So it is in a graph whose edges were inferred. This is cheaper than a search for races, and sufficient: an edge for each
    dependency on the last writer and the readers since orders all conflicting pairs.
    """
    covered = _parts_covered(nodes, predecessors)
    if covered is not None:
        return covered
    tracker: HazardTracker[int] = HazardTracker()
    for i, (node, sources) in enumerate(zip(nodes, predecessors)):
        accesses = node.accesses
        if accesses:
            edges, pending = tracker.edges(tracker.touched(accesses))
            if not edges.keys() <= {*sources}:
                return False
            near = near_before(predecessors, i)
            tracker.record(i, pending, lambda readers: [reader for reader in readers if reader not in near])  # noqa: B023
    return True


def _parts_covered(nodes: Sequence[Node], predecessors: Sequence[Sequence[int]]) -> bool | None:
    """Fast path of `edges_cover`, in half the time, if regions of one array are equal or disjoint; None otherwise."""
    arrays: dict[Any, tuple[dict[Region, Record[int]], ByRegion[Record[int]]]] = {}
    for i, node in enumerate(nodes):
        accesses = node.accesses
        if not accesses:
            continue
        sources = predecessors[i]
        written: list[Record[int]] = []
        before = sources if len(sources) < 16 else frozenset(sources)
        for access in accesses:
            view = access.view
            root, region = view.root, access.region or view.region
            parts = arrays.get(root)
            if parts is None:
                if root.hazard_key is not root:
                    return None  # it may share memory with another array
                parts = arrays[root] = {}, ByRegion()
            exact, index = parts
            part = exact.get(region)
            if part is None:
                if region.dims or (exact and index.meeting(region)):
                    return None
                part = exact[region] = Record(region, None, [])
                index.add(part)
            writer = part.writer
            if writer is not None and writer != i and writer not in before:
                return False
            if access.mode == "read":
                if len(part.readers) < part.many:
                    part.readers.append(i)
                else:
                    part.add_reader(i, lambda readers: [*{*readers} - near_before(predecessors, i)])  # noqa: B023
            elif part.readers and any(reader != i and reader not in before for reader in part.readers):
                return False
            else:
                written.append(part)
        for part in written:
            part.writer, part.readers = i, []
    return True
