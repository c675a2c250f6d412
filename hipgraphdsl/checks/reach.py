"""Reachability between nodes without a full matrix.

A topological order is cut wherever all nodes before the cut precede all nodes after it (a chain is cut between all
of its nodes, fully connected layers between layers). Unordered pairs then lie inside one segment, and sets of ancestors are
needed for one segment at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np

from ..nodes.workflow import Workflow
from ..order import ancestors, positions


class Reach:
    """Reachability queries on a workflow without a cycle."""

    def __init__(self, workflow: Workflow) -> None:
        self.order = workflow.order
        self.predecessors = workflow.predecessors
        self.position = positions(self.order)

    @cached_property
    def segments(self) -> list[tuple[int, int]]:
        """The segments in order, as (first position, position past the last).

        A cut before position b is valid if each source of the part from b on directly follows each sink of the part before b:
        the number of edges between them is then the product of their counts. All three numbers are sums over intervals.
        """
        n = len(self.order)
        if n == 0:
            return []
        counts = np.fromiter((len(self.predecessors[i]) for i in self.order), np.int64, n)
        total = int(counts.sum())
        position = np.asarray(self.position, np.int64)
        sources = position[np.fromiter(chain.from_iterable(self.predecessors[i] for i in self.order), np.int64, total)]
        targets = np.repeat(np.arange(n, dtype=np.int64), counts)
        edges = targets * n + sources
        edges.sort()  # np.unique may hash, which takes longer
        edges = edges[np.diff(edges, prepend=-1) != 0]
        targets, sources = edges // n, edges % n
        first_successor = np.full(n, n, np.int64)
        np.minimum.at(first_successor, sources, targets)
        last_predecessor = np.full(n, -1, np.int64)
        np.maximum.at(last_predecessor, targets, sources)
        at = np.arange(n, dtype=np.int64)
        sinks = _cover(n, at + 1, first_successor)
        heads = _cover(n, last_predecessor + 1, at)
        joined = _cover(n, last_predecessor[targets] + 1, first_successor[sources])
        cuts = np.flatnonzero(joined[1:n] == sinks[1:n] * heads[1:n]) + 1
        return list(pairwise([0, *cuts.tolist(), n]))

    @cached_property
    def segment_start(self) -> list[int]:
        """For each position, the first position of its segment."""
        return [start for start, stop in self.segments for _ in range(start, stop)]

    def walk(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield (node, ancestors) for one segment in order; bit k of an ancestor set is position start + k.

        The sets omit ancestors before the segment: all earlier positions are ancestors.
        """
        return ancestors(self.order, self.predecessors, self.position, start, stop)

    def preceding(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the given pairs of nodes that a path orders, each as (earlier, later)."""
        position, predecessors = self.position, self.predecessors
        found: set[tuple[int, int]] = set()
        asked: dict[int, dict[int, list[int]]] = {}  # segment -> v -> u
        direct: dict[int, frozenset[int]] = {}
        for u, v in pairs:
            p, q = position[u], position[v]
            if p > q:
                u, v, p, q = v, u, q, p
            sources = direct.get(v)
            if sources is None:
                sources = direct[v] = frozenset(predecessors[v])
            if u in sources:
                found.add((u, v))
                continue
            start = self.segment_start[q]
            if p < start:
                found.add((u, v))
            else:
                asked.setdefault(start, {}).setdefault(v, []).append(u)
        stops = dict(self.segments) if asked else {}
        for start, wanted in asked.items():
            for v, before in self.walk(start, stops[start]):
                found.update((u, v) for u in wanted.get(v, ()) if before >> (position[u] - start) & 1)
        return found


def _cover(n: int, first: np.ndarray[Any, Any], last: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each of 0..n the number of closed intervals that contain it."""
    keep = first <= last
    steps = np.bincount(first[keep], minlength=n + 2) - np.bincount(last[keep] + 1, minlength=n + 2)
    return np.cumsum(steps)[: n + 1]
