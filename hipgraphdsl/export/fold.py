"""Find what repeats: stretches of nodes that are declared again and again with the same structure.

A stretch repeats with period p when node i and node i + p do the same (kind, kernel, launch, array shapes) and their edges
correspond: each comes from the same distance back, or from the same node before the stretch. Arrays may differ by name, so
that buffers that swap or rotate do not hide a repetition. The search compares the sequence with itself shifted by every period
up to a limit; each comparison is one pass over an array of hashes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..order import follower_counts
from ..placement import device_of
from ..workflow import AnyNode

_MAX_PERIOD = 2000
_LEAST_COUNT = 3  # repetitions that a stretch must have
_HUB = 4  # successors from which on a node counts as feeding a stretch from outside


@dataclass(frozen=True, slots=True)
class Repeat:
    """A stretch of nodes that repeats."""

    start: int  # index of its first node, in order of declaration
    period: int  # nodes of one repetition
    count: int  # repetitions

    @property
    def stop(self) -> int:
        """Index past its last node."""
        return self.start + self.period * self.count


def signature(node: AnyNode) -> Hashable:
    """Return what a node does and where, apart from its name and the names of its arrays."""
    return (device_of(node, 0), *node.likeness)


def find_repeats(
    tokens: Sequence[Hashable], predecessors: Sequence[Sequence[int]], *, least_saving: int = 6
) -> tuple[Repeat, ...]:
    """Return stretches that repeat, disjoint and in order.

    Nodes with equal `tokens` may stand for each other. Folding a stretch must save `least_saving` nodes.
    """
    n = len(tokens)
    if n < _LEAST_COUNT + least_saving - 1:
        return ()
    coded: dict[Hashable, int] = {}
    token = np.array([coded.setdefault(t, len(coded)) for t in tokens], dtype=np.int64)
    relative, mixed = _edge_hashes(predecessors)
    candidates: list[Repeat] = []  # stretches at their longest
    for period in range(1, min(n // _LEAST_COUNT, _MAX_PERIOD) + 1):
        same = token[:-period] == token[period:]
        if not same.any():
            continue
        same &= (relative[:-period] == relative[period:]) | (mixed[:-period] == mixed[period:])
        starts, stops = _runs(same)
        counts = (stops - starts) // period + 1
        found = np.flatnonzero((counts >= _LEAST_COUNT) & ((counts - 1) * period >= least_saving))
        candidates += [Repeat(int(starts[k]), period, int(counts[k])) for k in found]
    candidates.sort(key=lambda stretch: (stretch.start - stretch.stop, stretch.start))  # the longest first
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
    """Return where the stretches of true elements begin, and where they end."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.view(np.int8), [0]))))
    return edges[::2], edges[1::2]


def _edge_hashes(predecessors: Sequence[Sequence[int]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two hashes of each node's incoming edges: by distance, and with much used sources by identity."""
    n = len(predecessors)
    uses = follower_counts(predecessors)
    relative, mixed = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for i, sources in enumerate(predecessors):
        if sources:
            relative[i] = hash(tuple(sorted([i - s for s in sources])))
            mixed[i] = hash(tuple(sorted([(1, s) if uses[s] >= _HUB else (0, i - s) for s in sources])))
    return relative, mixed


def _free_part(wanted: Repeat, taken: np.ndarray[Any, Any], predecessors: Sequence[Sequence[int]]) -> Repeat | None:
    """Return the longest part of a stretch that no other has taken and whose fixed sources lie before it."""
    start, stop, period = wanted.start, wanted.stop, wanted.period
    used = taken[start:stop]
    if used.any():
        starts, stops = _runs(~used)
        if not len(starts):
            return None
        k = int(np.argmax(stops - starts))
        start, stop = start + int(starts[k]), start + int(stops[k])
    # A source that repetitions share must not be a member: it would be drawn as one node and stand for many.
    for i in range(start, stop - period):
        fixed = set(predecessors[i]).intersection(predecessors[i + period])
        if fixed and max(fixed) >= start:
            start = max(start, max(fixed) + 1)
    return Repeat(start, period, (stop - start) // period) if stop - start >= period else None
