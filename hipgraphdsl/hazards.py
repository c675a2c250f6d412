"""Accesses in order of declaration -> the edges that keep their meaning.

For each address space a `HazardTracker` holds records: a region, the node that wrote it last and the nodes that have read it
since. A new access depends on every record that it meets (RAW, WAR, WAW). A write that covers a record replaces it; of a
contiguous record that it covers in part, the rest stays. A read replaces reads of the same region that its node follows. Edges
that the tracker leaves out are implied by those it gives.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from .arrays import Access, Mode, Region

_start = attrgetter("start")


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


def near_before(predecessors: Sequence[Sequence[int]], at: int) -> set[int]:
    """Return the nodes that the node `at` waits for, and those that they wait for, unless these are many."""
    near = set(predecessors[at])
    for before in predecessors[at]:
        near.update(predecessors[before])
        if len(near) > _NEAR:
            break
    return near


class Held:
    """Base class of the entries of a region index."""

    __slots__ = ("region", "start")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.start = region.start


H = TypeVar("H", bound=Held)
N = TypeVar("N")  # a node, by name or number


class ByRegion(Generic[H]):
    """Index of entries by their regions of one address space; finds entries by overlap.

    Entries are kept by size class (the smallest power of two that is at least their extent), each class sorted by start, so that
    a look-up visits only neighbours.
    """

    __slots__ = ("_exact", "classes", "single")

    def __init__(self) -> None:
        self.classes: dict[int, list[H]] = {}
        self._exact: dict[Region, H] = {}  # the entry last added for each region, if there are several entries
        self.single: H | None = None  # the only entry; most arrays never have more

    def at(self, region: Region) -> H | None:
        """Return the entry of exactly this region that was added last."""
        single = self.single
        if single is not None:
            return single if single.region is region or single.region == region else None
        return self._exact.get(region)

    def meeting(self, region: Region) -> Sequence[H]:
        """Return the entries whose bytes overlap a region."""
        single = self.single
        if single is not None:
            known = single.region
            return (single,) if known is region or known == region or known.overlaps(region) else ()
        found = []
        start, stop, _, dims = region
        for size, held in self.classes.items():
            count = len(held)
            i = bisect_left(held, start - (1 << size) + 1, key=_start)
            while i < count:
                item = held[i]
                if item.start >= stop:
                    break
                known = item.region
                if known.stop > start and (not (dims or known.dims) or known.overlaps(region)):
                    found.append(item)
                i += 1
        return found

    def add(self, item: H) -> None:
        """Add an entry."""
        if self.single is None and not self.classes:
            self.single = item
            return
        if self.single is not None:
            first, self.single = self.single, None
            self._insert(first)
        self._insert(item)

    def _insert(self, item: H) -> None:
        self._exact[item.region] = item
        held = self.classes.setdefault(_size_class(item), [])
        if held and held[-1].start > item.start:
            insort(held, item, key=_start)
        else:
            held.append(item)

    def remove(self, item: H) -> None:
        """Remove an entry, which must be present."""
        if self.single is item:
            self.single = None
            return
        if self._exact.get(item.region) is item:
            del self._exact[item.region]
        size = _size_class(item)
        held = self.classes[size]
        i = bisect_left(held, item.start, key=_start)
        while held[i] is not item:
            i += 1
        del held[i]
        if not held:
            del self.classes[size]


def _size_class(item: Held) -> int:
    return (item.region.stop - item.start - 1).bit_length()


class Record(Held, Generic[N]):
    """The node that wrote a region last, and those that have read it since."""

    __slots__ = ("many", "readers", "writer")

    def __init__(self, region: Region, writer: N | None, readers: list[N]) -> None:
        super().__init__(region)
        self.writer = writer
        self.readers = readers
        # From so many readers on it is asked which of them the next one follows. Those of a contiguous region go with the next
        # write, but a strided region that writes cover in parts stays.
        self.many = 1 if region.dims else 8

    def add_reader(self, node: N, unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Add a reader; `unfollowed` returns those of the readers so far that it does not follow, which stay."""
        if len(self.readers) >= self.many:
            self.readers = unfollowed(self.readers)
            self.many = max(self.many, 2 * len(self.readers))  # so that each is asked about a few times in all
        self.readers.append(node)


def _reasons(name: str) -> tuple[Reason, Reason, Reason]:
    return Reason("RAW", name), Reason("WAR", name), Reason("WAW", name)


class _Space(ByRegion[Record[N]]):
    """The records of one address space."""

    __slots__ = ("name", "reasons")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.reasons: tuple[Reason, Reason, Reason] | None = None  # made when the first edge is

    def made_reasons(self) -> tuple[Reason, Reason, Reason]:
        """Return the reasons of edges, made once."""
        self.reasons = found = _reasons(self.name)
        return found

    def read(self, node: N, region: Region, unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Record that a node reads a region."""
        record = self.at(region)
        if record is None:
            self.add(Record(region, None, [node]))
        elif not record.readers or record.readers[-1] != node:
            record.add_reader(node, unfollowed)

    def write(self, node: N, region: Region) -> None:
        """Record that a node writes a region."""
        single = self.single
        if single is not None and (single.region is region or single.region == region):
            single.writer = node
            if single.readers:
                single.readers = []
            return
        for record in tuple(self.meeting(region)):
            known = record.region
            if region.contains(known):
                self.remove(record)
            elif not region.dims and not known.dims:
                self.remove(record)
                for start, stop in ((known.start, region.start), (region.stop, known.stop)):
                    if start < stop:
                        self.add(Record(Region(start, stop, stop - start), record.writer, list(record.readers)))
        self.add(Record(region, node, []))


Touched = list[tuple[_Space[N], Region, Mode]]
"""What `HazardTracker.edges` finds of a node's accesses, for `HazardTracker.record`."""


class HazardTracker(Generic[N]):
    """Turns accesses, node by node, into the edges that they need."""

    def __init__(self) -> None:
        self._spaces: dict[Any, _Space[N]] = {}

    def edges(self, accesses: tuple[Access, ...]) -> tuple[dict[N, Reason], Touched[N]]:
        """Return the nodes that a node with these accesses must wait for, each with the reason, and what `record` takes."""
        found: dict[N, Reason] = {}
        touched: Touched[N] = []
        spaces = self._spaces
        for access in accesses:
            view, mode = access.view, access.mode
            key, region = view.hazard if access.region is None else access.hazard
            space = spaces.get(key)
            if space is None:
                space = spaces[key] = _Space(view.root.name)
                touched.append((space, region, mode))
                continue
            touched.append((space, region, mode))
            name = view.root.name
            if space.name is not name:  # external arrays share one space
                raw, war, waw = _reasons(name)
            else:
                raw, war, waw = space.reasons or space.made_reasons()
            single = space.single
            for record in (single,) if single is not None and single.region is region else space.meeting(region):
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
        return found, touched

    def record(self, node: N, touched: Touched[N], unfollowed: Callable[[list[N]], list[N]]) -> None:
        """Record the node's accesses, for the edges of later nodes; `unfollowed` is as for `Record.add_reader`."""
        for space, region, mode in touched:
            if mode == "read":
                space.read(node, region, unfollowed)
        for space, region, mode in touched:
            if mode != "read":
                space.write(node, region)
