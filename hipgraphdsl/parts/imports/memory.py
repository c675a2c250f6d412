"""Addresses -> arrays: the memory that the nodes of an imported graph access, and views of exactly these bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Final, Literal

import numpy as np

from ...arrays import AllocArray, Array, ArrayView, ExternalArray, Region
from ...nodes.values import unique
from ...runtimes.base import Runtime
from ...runtimes.data import Copy3D, Fill2D, MemcpyKind, MemOp, NodeType
from .known import Known
from .raw import RawGraph, RawKernel, RawNode

BYTE: Final = np.dtype("u1")
_MOST_NAME: Final = 120


@dataclass(frozen=True)
class Span:
    """Bytes that start at a pointer: `run` contiguous bytes, repeated by `dims`, (count, stride) outermost first."""

    pointer: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @property
    def stop(self) -> int:
        """The address after the last byte."""
        return self.pointer + self.run + sum((count - 1) * stride for count, stride in self.dims)

    def region(self, base: int) -> Region:
        """Return the same bytes relative to an address, in normal form."""
        counts, strides = [count for count, _ in self.dims], [stride for _, stride in self.dims]
        return Region.strided(self.pointer - base, (*counts, self.run), (*strides, 1), 1)


def sides(copy: Copy3D) -> tuple[Span, Span]:
    """Return the bytes that a copy writes and reads."""

    def side(pointer: int, pitch: int, rows: int, pos: tuple[int, int, int]) -> Span:
        first = pointer + pos[0] + pitch * (pos[1] + rows * pos[2])
        dims = ((copy.depth, pitch * rows), (copy.height, pitch))
        return Span(first, copy.width_bytes, tuple((count, stride) for count, stride in dims if count > 1))

    return (
        side(copy.dst, copy.dst_pitch_bytes, copy.dst_rows, copy.dst_pos),
        side(copy.src, copy.src_pitch_bytes, copy.src_rows, copy.src_pos),
    )


def filled(fill: Fill2D) -> Span:
    """Return the bytes that a fill writes."""
    dims = ((fill.height, fill.pitch_bytes),) if fill.height > 1 else ()
    return Span(fill.dst, fill.width * fill.element_size, dims)


def _view_of(array: Array, base: int, span: Span) -> ArrayView | None:
    """Return the view of an array at `base` that covers exactly the bytes of a span, in the span's order; None if none does."""
    itemsize, shape = array.dtype.itemsize, array.shape
    if span.run % itemsize or not base <= span.pointer or span.stop > base + array.nbytes:
        return None
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    starts, rest = [], span.pointer - base
    for stride in strides:
        start, rest = divmod(rest, stride)
        starts.append(start)
    if rest:
        return None
    counts, steps = [1] * len(shape), [1] * len(shape)
    free = len(shape)  # axes before this one have no extent yet
    for count, stride in ((span.run // itemsize, itemsize), *reversed(span.dims)):
        axis = free - 1
        while count > 1 and axis >= 0:
            if stride % strides[axis] == 0:
                step = stride // strides[axis]
                room = (shape[axis] - starts[axis] - 1) // step + 1
                if count <= room:
                    counts[axis], steps[axis], free, count = count, step, axis, 1
                elif not starts[axis] and shape[axis] % step == 0 and count % room == 0:
                    # Take all of this axis, and the remaining count from the next outer axis.
                    counts[axis], steps[axis], free = room, step, axis
                    count, stride = count // room, strides[axis] * shape[axis]
            axis -= 1
        if count > 1:
            return None
    view = ArrayView(array, tuple(slice(a, a + (n - 1) * s + 1, s if n > 1 else 1) for a, n, s in zip(starts, counts, steps)))
    return view if view.region == span.region(base) else None


def _from(array: Array, offset: int) -> ArrayView | None:
    """Return the longest contiguous view that begins at a byte offset of an array; None if that is inside an element."""
    view = array.as_view()
    if not offset:
        return view
    stride = array.nbytes
    selection: list[int | slice] = []
    for extent in array.shape:
        stride //= extent
        start, offset = divmod(offset, stride)
        if not offset:
            return view[(*selection, slice(start, None))]
        selection.append(start)
    return None


class Memory:
    """Map from addresses to arrays: those that the caller knows, the graph's allocations, and other memory that nodes use."""

    def __init__(self, runtime: Runtime, known: Known, raw: RawGraph) -> None:
        self._runtime = runtime
        self._owner = known.kept or runtime
        self._taken: set[str] = set()
        self._places: list[tuple[int, Array]] = []
        self._aliases: dict[tuple[int, tuple[int, ...], Any], ExternalArray] = {}
        for name, array in known.arrays.items():
            if isinstance(array, ExternalArray):
                name = self.unused(plain(name))
                self._places.append((array.pointer, array if array.name == name else replace(array, name=name)))
        nodes = list(raw.everywhere())
        self.allocs = self._find_allocs(nodes, known)
        self._places = [*((pointer, array) for pointer, array in self.allocs.items()), *self._places]
        self._find_others(nodes)

    def unused(self, name: str) -> str:
        """Return a name that no array has."""
        found = unique(name, self._taken)
        self._taken.add(found)
        return found

    def _find_allocs(self, nodes: Sequence[RawNode], known: Known) -> dict[int, AllocArray]:
        """Choose for each allocation a shape and dtype such that views can represent its copies and fills."""
        made = {node.params[0]: node.params[1] for node in nodes if node.type is NodeType.MEM_ALLOC}
        spans: dict[int, list[tuple[Span, int]]] = {pointer: [] for pointer in made}
        for node in nodes if made else ():
            for span, itemsize in _touched(node):
                for pointer, nbytes in made.items():
                    if pointer <= span.pointer < pointer + nbytes:
                        spans[pointer].append((span, itemsize))
        found = {}
        for n, (pointer, nbytes) in enumerate(made.items(), 1):
            array = known.allocs.get(pointer)
            name = self.unused(array.name if array is not None else f"alloc_{n}")
            if array is not None and array.nbytes == nbytes:
                found[pointer] = AllocArray(name, array.shape, array.dtype, device=array.device)
                continue
            found[pointer] = next(
                (a for a in _shapes(name, nbytes, spans[pointer]) if all(_sayable(a, pointer, *span) for span in spans[pointer])),
                AllocArray(name, (nbytes,), BYTE),
            )
        return found

    def _find_others(self, nodes: Sequence[RawNode]) -> None:
        """Declare an external array for each other memory range that nodes refer to."""
        unknown: list[tuple[int, int, bool]] = []
        first: dict[int, int] = {}
        ranges: set[int] = set()
        for node in nodes:
            for pointer, stop, on_host in _pointers(node):
                if self.at(pointer) is not None:
                    continue
                found = self._runtime.mem_get_address_range(pointer)
                if found is not None:
                    if found.pointer not in ranges:
                        ranges.add(found.pointer)
                        self._declare(found.pointer, found.nbytes, found.on_host)
                elif stop:
                    first.setdefault(pointer, len(unknown))
                    unknown.append((pointer, stop, on_host))
        merged: list[list[Any]] = []
        for pointer, stop, on_host in sorted(unknown):
            if merged and pointer < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], stop)
                merged[-1][3] = min(merged[-1][3], first[pointer])
            else:
                merged.append([pointer, stop, on_host, first[pointer]])
        for pointer, stop, on_host, _ in sorted(merged, key=lambda piece: piece[3]):  # in order of first use by a node
            self._declare(pointer, stop - pointer, on_host)

    def _declare(self, pointer: int, nbytes: int, on_host: bool) -> None:
        name = self.unused("host_memory" if on_host else "memory")
        location: Literal["host", "device"] = "host" if on_host else "device"
        array = ExternalArray(name, (nbytes,), BYTE, self._owner, pointer, location, lock=False)
        self._places.append((pointer, array))

    def at(self, pointer: int) -> tuple[int, Array] | None:
        """Return address and array of the smallest array that contains a pointer, or None."""
        found: tuple[int, Array] | None = None
        for base, array in self._places:
            if base <= pointer < base + array.nbytes and (found is None or array.nbytes < found[1].nbytes):
                found = (base, array)
        return found

    def view(self, span: Span) -> ArrayView | None:
        """Return the view of a declared array with exactly these bytes."""
        found = self.at(span.pointer)
        return None if found is None else _view_of(found[1], found[0], span)

    def alias(self, span: Span, dtype: np.dtype[Any]) -> ArrayView | None:
        """Return a view of these bytes in a dtype, of a new array over the same memory; None if impossible or graph memory."""
        found = self.at(span.pointer)
        if found is None or not isinstance(found[1], ExternalArray):
            return None
        root, itemsize = found[1], dtype.itemsize
        inner = span.dims[-1][1] if span.dims else span.run
        if span.run % itemsize or inner % itemsize:
            return None
        shape: tuple[int, ...] = (inner // itemsize,)
        if span.dims:
            shape = (span.dims[-1][0], *shape)
        if len(span.dims) > 1:
            count, stride = span.dims[0]
            if stride % inner or stride < inner * span.dims[-1][0]:
                return None
            shape = (count, stride // inner, inner // itemsize)
        key = (span.pointer, shape, dtype)
        array = self._aliases.get(key)
        if array is None:
            name = self.unused(f"{root.name}_{dtype.name}")
            array = replace(root, name=name, shape=shape, dtype=dtype, access=(), pointer=span.pointer, lock=False)
            self._aliases[key] = array
        return _view_of(array, span.pointer, span)

    def rest(self, pointer: int, dtype: np.dtype[Any] | None = None) -> ArrayView | None:
        """Return a contiguous view that begins at a pointer, in a dtype if one is given; None if there is no such view."""
        found = self.at(pointer)
        if found is None:
            return None
        base, array = found
        view = _from(array, pointer - base)
        if view is None or (dtype is not None and view.dtype != dtype):
            nbytes = base + array.nbytes - pointer
            wanted = dtype or BYTE
            return self.alias(Span(pointer, nbytes - nbytes % wanted.itemsize), wanted) if nbytes >= wanted.itemsize else None
        return view


def plain(name: str) -> str:
    """Return a valid name: dots replace forbidden characters, and long names are truncated."""
    text = "".join(c if c.isprintable() and c not in "[/" else "." for c in name).strip()
    return text[:_MOST_NAME] or "x"


def _touched(node: RawNode) -> Iterator[tuple[Span, int]]:
    """Yield the bytes that a node is known to access, each with the element size that its view must have (0: any)."""
    match node.params:
        case Copy3D() as copy:
            for span in sides(copy):
                yield span, 0
        case Fill2D() as fill:
            yield filled(fill), fill.element_size
        case (MemOp(), *_) as ops:
            for op in ops:
                yield Span(op.address, op.size), op.size


def _pointers(node: RawNode) -> Iterator[tuple[int, int, bool]]:
    """Yield (pointer, stop, on host) of all memory that a node refers to; stop is 0 for a value that may be a pointer."""
    if isinstance(node.params, Copy3D):
        kind = node.params.kind
        dst, src = sides(node.params)
        host = (MemcpyKind.HOST_TO_HOST, MemcpyKind.DEFAULT)  # memory unknown to the runtime is host memory
        yield dst.pointer, dst.stop, kind in (*host, MemcpyKind.DEVICE_TO_HOST)
        yield src.pointer, src.stop, kind in (*host, MemcpyKind.HOST_TO_DEVICE)
        return
    for span, _ in _touched(node):
        yield span.pointer, span.stop, False
    if isinstance(node.params, RawKernel):
        for argument in node.params.arguments or ():
            if len(argument) == 8 and (value := int.from_bytes(argument, "little")):
                yield value, 0, False


def _shapes(name: str, nbytes: int, spans: Sequence[tuple[Span, int]]) -> Iterator[AllocArray]:
    """Yield candidate arrays for an allocation whose views might represent its uses, simple shapes first."""
    sizes = sorted({size for _, size in spans if size} | {1}, reverse=True)
    sizes.sort(key=lambda size: all(span.run % size for span, _ in spans))
    pitches = sorted({stride for span, _ in spans for _, stride in span.dims})
    for size in sizes:
        for strides in ((), *((pitch,) for pitch in pitches), *((outer, inner) for inner, outer in combinations(pitches, 2))):
            pairs = list(pairwise((nbytes, *strides, size)))
            if all(outer % inner == 0 for outer, inner in pairs):
                yield AllocArray(name, tuple(outer // inner for outer, inner in pairs), np.dtype(f"u{size}"))


def _sayable(array: AllocArray, base: int, span: Span, size: int) -> bool:
    return (not size or array.dtype.itemsize == size) and _view_of(array, base, span) is not None
