"""Accesses in order of declaration -> the edges that keep their meaning.

For each address space a `HazardTracker` holds records: a region, the node that wrote it last and the nodes that have read it
since. A new access depends on every record that it meets (RAW, WAR, WAW). A write that covers a record replaces it; of a
contiguous record that it covers in part, the rest stays. Edges that the tracker leaves out are implied by those it gives.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from .arrays import Access, Region

__all__ = ["HazardTracker"]


class _Record:
    __slots__ = ("readers", "region", "start", "writer")

    def __init__(self, region: Region, writer: str | None, readers: list[str]) -> None:
        self.region = region
        self.start = region.start
        self.writer = writer
        self.readers = readers


_start = attrgetter("start")


class _Space:
    """The records of one address space.

    Records are kept by size class (the power of two above their extent), each class sorted by start, so that a look-up
    touches only neighbours.
    """

    __slots__ = ("classes", "name", "raw", "single", "war", "waw")

    def __init__(self, name: str) -> None:
        self.name = name
        self.classes: dict[int, list[_Record]] = {}
        self.single: _Record | None = None  # the only record, which is all that most arrays ever have
        self.raw = f"RAW {name}"
        self.war = f"WAR {name}"
        self.waw = f"WAW {name}"

    def meeting(self, region: Region) -> Iterable[_Record]:
        single = self.single
        if single is not None:
            known = single.region
            if known is region or known == region or known.overlaps(region):
                return (single,)
            return ()
        return self._search(region) if self.classes else ()

    def _search(self, region: Region) -> list[_Record]:
        found = []
        start, stop = region.start, region.stop
        for size, records in self.classes.items():
            i = bisect_left(records, start - (1 << size) + 1, key=_start)
            while i < len(records) and records[i].start < stop:
                if records[i].region.overlaps(region):
                    found.append(records[i])
                i += 1
        return found

    def add(self, record: _Record) -> None:
        if self.single is None and not self.classes:
            self.single = record
            return
        if self.single is not None:
            first, self.single = self.single, None
            self._insert(first)
        self._insert(record)

    def _insert(self, record: _Record) -> None:
        size = (record.region.stop - record.region.start - 1).bit_length()
        records = self.classes.setdefault(size, [])
        if records and records[-1].start > record.start:
            insort(records, record, key=_start)
        else:
            records.append(record)

    def remove(self, record: _Record) -> None:
        if self.single is record:
            self.single = None
            return
        size = (record.region.stop - record.region.start - 1).bit_length()
        records = self.classes[size]
        i = bisect_left(records, record.start, key=_start)
        while records[i] is not record:
            i += 1
        del records[i]
        if not records:
            del self.classes[size]

    def __iter__(self) -> Iterator[_Record]:
        if self.single is not None:
            yield self.single
        for records in self.classes.values():
            yield from records


class HazardTracker:
    """Turns accesses, node by node, into the edges that they need."""

    def __init__(self) -> None:
        self._spaces: dict[Any, _Space] = {}

    def edges(self, accesses: tuple[Access, ...]) -> dict[str, str]:
        """Return the nodes that a node with these accesses must wait for, each with the reason, and record nothing."""
        found: dict[str, str] = {}
        spaces = self._spaces
        for access in accesses:
            key, region = access.view.hazard if access.region is None else access.hazard
            space = spaces.get(key)
            if space is None:
                continue
            mode = access.mode
            raw, war, waw = space.raw, space.war, space.waw
            if space.name is not access.view.root.name:  # external arrays share one space
                name = access.view.root.name
                raw, war, waw = f"RAW {name}", f"WAR {name}", f"WAW {name}"
            for record in space.meeting(region):
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
        return found

    def record(self, node: str, accesses: tuple[Access, ...]) -> None:
        """Take the node's accesses into account for those that come later."""
        for access in accesses:
            if access.mode == "read":
                self._read(node, access)
        for access in accesses:
            if access.mode != "read":
                self._write(node, access)

    def _space(self, access: Access) -> tuple[_Space, Region]:
        key, region = access.view.hazard if access.region is None else access.hazard
        space = self._spaces.get(key)
        if space is None:
            space = self._spaces[key] = _Space(access.view.root.name)
        return space, region

    def _read(self, node: str, access: Access) -> None:
        space, region = self._space(access)
        for record in space.meeting(region):
            if record.region is region or record.region == region:
                if not record.readers or record.readers[-1] != node:
                    record.readers.append(node)
                return
        space.add(_Record(region, None, [node]))

    def _write(self, node: str, access: Access) -> None:
        space, region = self._space(access)
        single = space.single
        if single is not None and (single.region is region or single.region == region):
            single.writer = node
            if single.readers:
                single.readers = []
            return
        for record in tuple(space.meeting(region)):
            known = record.region
            if region.contains(known):
                space.remove(record)
            elif not region.dims and not known.dims:
                space.remove(record)
                if known.start < region.start:
                    rest = Region(known.start, region.start, region.start - known.start)
                    space.add(_Record(rest, record.writer, list(record.readers)))
                if region.stop < known.stop:
                    rest = Region(region.stop, known.stop, known.stop - region.stop)
                    space.add(_Record(rest, record.writer, list(record.readers)))
        space.add(_Record(region, node, []))
