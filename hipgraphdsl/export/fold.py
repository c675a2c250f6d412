"""Find repetitions: stretches of nodes that are declared several times in a row with the same structure.

A stretch repeats with period p if node i and node i + p do the same (kind, kernel, launch, array shapes) and their edges
correspond: each comes from the same distance back, or from the same node before the stretch. Arrays may differ in name, so
that swapped or rotated buffers do not hide a repetition. The search compares the sequence with itself shifted by every period
up to a limit; each comparison is one pass over an array of hashes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..nodes import Node
from ..order import follower_counts
from ..placement import device_of

_MAX_PERIOD = 2000
_LEAST_COUNT = 3  # minimum number of repetitions
_HUB = 4  # a node with at least this many successors counts as feeding a stretch from outside


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeating stretch of nodes."""

    start: int  # index of its first node, in order of declaration
    period: int  # nodes per repetition
    count: int  # repetitions

    @property
    def stop(self) -> int:
        """Index past its last node."""
        return self.start + self.period * self.count


def signature(node: Node) -> Hashable:
    """Return what a node does and where, without its name and the names of its arrays."""
    return (device_of(node, 0), *node.likeness)


def find_repeats(
    tokens: Sequence[Hashable], predecessors: Sequence[Sequence[int]], *, least_saving: int = 6
) -> tuple[Repeat, ...]:
    """Return the repeating stretches, disjoint and in order.

    Nodes with equal `tokens` are interchangeable. Folding a stretch must save at least `least_saving` nodes.
    """
    n = len(tokens)
    if n < _LEAST_COUNT + least_saving - 1:
        return ()
    coded: dict[Hashable, int] = {}
    token = np.array([coded.setdefault(t, len(coded)) for t in tokens], dtype=np.int64)
    relative, mixed = _edge_hashes(predecessors)
    candidates: list[Repeat] = []  # maximal stretches
    for period in range(1, min(n // _LEAST_COUNT, _MAX_PERIOD) + 1):
        same = token[:-period] == token[period:]
        if not same.any():
            continue
        same &= (relative[:-period] == relative[period:]) | (mixed[:-period] == mixed[period:])
        starts, stops = _runs(same)
        counts = (stops - starts) // period + 1
        found = np.flatnonzero((counts >= _LEAST_COUNT) & ((counts - 1) * period >= least_saving))
        candidates += [Repeat(int(starts[k]), period, int(counts[k])) for k in found]
    candidates.sort(key=lambda stretch: (stretch.start - stretch.stop, stretch.start))  # longest first
    chosen: list[Repeat] = []
    taken = np.zeros(n, dtype=bool)
    for wanted in candidates:
        stretch = _free_part(wanted, taken, predecessors)
        if stretch is None or stretch.count < _LEAST_COUNT or stretch.period * (stretch.count - 1) < least_saving:
            continue
        taken[stretch.start : stretch.stop] = True
        chosen.append(stretch)
    return tuple(sorted(chosen, key=lambda r: r.start))


def _runs(mask: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the start and stop indices of the runs of true elements."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.view(np.int8), [0]))))
    return edges[::2], edges[1::2]


def _edge_hashes(predecessors: Sequence[Sequence[int]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two hashes of each node's incoming edges: by distance, and by identity for sources with many successors."""
    n = len(predecessors)
    uses = follower_counts(predecessors)
    relative, mixed = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for i, sources in enumerate(predecessors):
        if sources:
            relative[i] = hash(tuple(sorted([i - s for s in sources])))
            mixed[i] = hash(tuple(sorted([(1, s) if uses[s] >= _HUB else (0, i - s) for s in sources])))
    return relative, mixed


def _free_part(wanted: Repeat, taken: np.ndarray[Any, Any], predecessors: Sequence[Sequence[int]]) -> Repeat | None:
    """Return the longest part of a stretch that is not taken and whose shared sources come before it."""
    start, stop, period = wanted.start, wanted.stop, wanted.period
    used = taken[start:stop]
    if used.any():
        starts, stops = _runs(~used)
        if not len(starts):
            return None
        k = int(np.argmax(stops - starts))
        start, stop = start + int(starts[k]), start + int(stops[k])
    # A source that repetitions share must not be a member: its box would represent one node of each repetition.
    for i in range(start, stop - period):
        fixed = set(predecessors[i]).intersection(predecessors[i + period])
        if fixed and max(fixed) >= start:
            start = max(start, max(fixed) + 1)
    return Repeat(start, period, (stop - start) // period) if stop - start >= period else None
