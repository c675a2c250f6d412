"""Exact sets of bytes inside one allocation, and whether two of them overlap."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


class Region(NamedTuple):
    """An exact set of bytes inside one allocation.

    ``{start + sum(i_k * stride_k) + b}`` for ``0 <= i_k < count_k`` and ``0 <= b < run``.

    Attributes
    ----------
    start, stop : int
        Byte offsets of the first byte and of the byte after the last.
    run : int
        Bytes of each contiguous run.
    dims : tuple of (count, stride in bytes)
        Outer dimensions, outermost first; empty for a contiguous region.
    """

    start: int
    stop: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def strided(start: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Region:
        """Return a strided region in normal form: extents of 1 are dropped and mergeable dimensions are merged."""
        run = itemsize
        dims: list[tuple[int, int]] = []
        last = start
        for count, stride in zip(shape[::-1], strides[::-1]):
            if count == 1:
                continue
            if not dims and stride == run:
                run *= count
                continue
            last += (count - 1) * stride
            if dims and stride == dims[0][0] * dims[0][1]:
                dims[0] = (dims[0][0] * count, dims[0][1])
            else:
                dims.insert(0, (count, stride))
        return Region(start, last + run, run, tuple(dims))

    @property
    def nbytes(self) -> int:
        """Bytes that the region holds."""
        return self.run * math.prod(count for count, _ in self.dims)

    def shifted(self, offset: int) -> Region:
        """Return the region shifted by `offset` bytes."""
        if not offset:
            return self
        return Region(self.start + offset, self.stop + offset, self.run, self.dims)

    def overlaps(self, other: Region) -> bool:
        """Return whether the two share a byte; exact."""
        if self.start >= other.stop or other.start >= self.stop:
            return False
        if not self.dims and not other.dims:
            return True
        if len(self.dims) < 2 and len(other.dims) < 2:
            rows, pitch = self.dims[0] if self.dims else (1, 0)
            other_rows, other_pitch = other.dims[0] if other.dims else (1, 0)
            if pitch == other_pitch or not pitch or not other_pitch:
                # Row i of self and row i + m of other exist for some i if -rows < m < other_rows; they overlap if
                # -other.run < ahead + m * pitch < run.
                pitch, ahead = pitch or other_pitch, other.start - self.start
                least = max((-other.run - ahead) // pitch + 1, 1 - rows)
                return least < other_rows and ahead + least * pitch < self.run
        return _strided_overlap(self, other)

    def contains(self, other: Region) -> bool:
        """Return whether the region contains every byte of `other`; may be False for strided regions of different structure."""
        if not self.dims:
            return self.start <= other.start and other.stop <= self.stop
        if self == other:
            return True
        if self.run == other.run and len(self.dims) == len(other.dims):
            offset = other.start - self.start
            for (count, stride), (other_count, other_stride) in zip(self.dims, other.dims):
                if stride != other_stride and other_count > 1:
                    return False
                index, offset = divmod(offset, stride)
                if index < 0 or index + other_count > count:
                    return False
            return offset == 0
        return False

    def __str__(self) -> str:
        text = f"bytes {self.start}..{self.stop}"
        if self.dims:
            text += " (" + " x ".join(f"{count} every {stride}" for count, stride in self.dims) + f" of {self.run})"
        return text


# NumPy decides whether two strided sets of addresses overlap (a bounded Diophantine problem) without accessing memory. Beyond
# this amount of work they count as overlapping, which can only add an edge or a diagnostic.
_OVERLAP_WORK = 1_000_000


def _strided_overlap(a: Region, b: Region) -> bool:
    base = min(a.start, b.start)
    try:
        return np.shares_memory(
            _addresses(a, base),
            _addresses(b, base),
            max_work=_OVERLAP_WORK,  # type: ignore[arg-type]  # NumPy's stub knows only the two limits that have names
        )
    except (np.exceptions.TooHardError, ValueError):  # ValueError: more bytes than NumPy can address
        return True


def _addresses(region: Region, base: int) -> np.ndarray[Any, Any]:
    """Return an array over the addresses of a region; its memory is never accessed."""
    interface = {
        "version": 3,
        "typestr": "|u1",
        "shape": (*(count for count, _ in region.dims), region.run),
        "strides": (*(stride for _, stride in region.dims), 1),
        "data": (region.start - base + 4096, True),
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))
