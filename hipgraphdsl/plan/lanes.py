"""Lanes: transitive reduction of the edges, and few sequences that cover all nodes, in one pass over a topological order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..order import levels, positions

_BRANCHES_THAT_COST = 8  # gathering pays in any case above this multiple of `bound`

Clock = dict[int, int]
"""The ancestors of a node and the node itself, as the position of the last of them in each lane (a vector clock). Lanes are
totally ordered, so this is complete, and it has at most one entry per lane."""


class Cover(NamedTuple):
    """Edges and lanes."""

    reduced: list[tuple[int, ...]]  # for each node the predecessors that no other predecessor implies
    lane_of: list[int]  # for each node
    added: dict[int, tuple[int, ...]]  # edges to nodes that were appended to a lane whose end did not precede them
    devices: list[int]  # for each lane
    depths: list[int]  # for each node the number of nodes on the longest path that ends with it, including added edges


def covered(
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    bound: int | None,
    placed: Sequence[int | None] | None = None,
    default: int = 0,
) -> Cover:
    """Reduce the edges and cover the nodes with lanes.

    An edge is left out if another predecessor implies it (transitive reduction). A node continues the lane of a direct
    predecessor that is the end of its lane (the one with the fewest other successors left), else the deepest lane whose end
    precedes it, else it opens a lane; beyond `bound` it is appended to the lane with the smallest depth, with an added edge. A
    lane belongs to one device, and `bound` applies to each device; a node that is `placed` on no device goes into any lane.
    """
    return _Covering(order, deps, bound, placed, default).run()


@dataclass
class _Covering:
    """The state of one pass."""

    order: Sequence[int]
    deps: Sequence[tuple[int, ...]]
    bound: int | None
    placed: Sequence[int | None] | None
    default: int

    def __post_init__(self) -> None:
        n = len(self.order)
        self.position = positions(self.order)
        self.found = Cover([()] * n, [0] * n, {}, [], [0] * n)
        self.lanes: list[list[int]] = []  # the nodes of each, in order
        self.place = [0] * n  # position of each node within its lane
        self.depths = self.found.depths
        self.clocks: dict[int, Clock] = {}  # removed or reused at the last successor; kept if there is a `bound`
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """With a `bound`, for each device a heap of (depth, lane) over its lanes; a depth may be stale, that is too small."""
        self.done: list[int] = []  # for each lane the number of first nodes known to have no unvisited successors
        self.left = [0] * n  # successors that have not been visited
        for sources in self.deps:
            for source in sources:
                self.left[source] += 1

    def run(self) -> Cover:
        deps, placed, bound, left, clocks = self.deps, self.placed, self.bound, self.left, self.clocks
        depths, place = self.depths, self.place
        reduced, lane_of, _, devices, _ = self.found
        lanes = self.lanes
        for i in self.order:
            kept = deps[i]
            device = None if placed is None else placed[i]
            lane, depth = -1, 0
            if not kept:
                clock: Clock = {}
            elif len(kept) == 1:  # the most frequent case
                source = kept[0]
                left[source] -= 1
                clock = clocks[source].copy() if left[source] or bound else clocks.pop(source)
                depth = depths[source]
                lane = lane_of[source]
                if lanes[lane][-1] != source or (device is not None and devices[lane] != device):
                    lane = -1
            else:
                kept, clock = self._reduced(kept)
                depth = max([depths[source] for source in kept])
                lane = self._continued(kept, device)
            if lane < 0 and clock:
                lane = self._ended_before(clock, device)
            if lane < 0 and bound is None:
                lane = len(lanes)
                lanes.append([])
                self.done.append(0)
                devices.append(self.default if device is None else device)
            elif lane < 0:
                assert bound is not None
                lane, tail = self._other(device, bound)
                if tail >= 0:
                    kept = self._behind(i, tail, kept, clock)
                    depth = max(depth, depths[tail])
            line = lanes[lane]
            place[i] = clock[lane] = len(line)
            line.append(i)
            lane_of[i] = lane
            reduced[i] = kept
            depths[i] = depth + 1
            if left[i] or bound:
                clocks[i] = clock
        return self.found

    def _reduced(self, sources: tuple[int, ...]) -> tuple[tuple[int, ...], Clock]:
        """Return the predecessors that no other implies, and the node's clock; visit the latest first: it may imply others."""
        lane_of, place, left, clocks, bound = self.found.lane_of, self.place, self.left, self.clocks, self.bound
        latest, *others = sorted(sources, key=self.position.__getitem__, reverse=True)
        left[latest] -= 1
        clock = clocks[latest].copy() if left[latest] or bound else clocks.pop(latest)
        kept = [latest]
        for source in others:
            left[source] -= 1
            if clock.get(lane_of[source], -1) < place[source]:
                kept.append(source)
                for lane, at in clocks[source].items():
                    if clock.get(lane, -1) < at:
                        clock[lane] = at
            if not left[source] and not bound:
                del clocks[source]
        kept.reverse()
        return tuple(kept), clock

    def _continued(self, kept: tuple[int, ...], device: int | None) -> int:
        """Return a lane whose end is a direct predecessor, the one with the fewest successors left; -1 if there is none."""
        lane_of, lanes, devices = self.found.lane_of, self.lanes, self.found.devices
        lane, fewest = -1, 0
        for source in kept:
            mine = lane_of[source]
            if lanes[mine][-1] == source and (device is None or devices[mine] == device):
                others = self.left[source]
                if lane < 0 or others < fewest:
                    lane, fewest = mine, others
        return lane

    def _ended_before(self, clock: Clock, device: int | None) -> int:
        """Return the lane with the deepest end of those whose end precedes the node; -1 if there is none.

        Entries that no later node can use are removed from the clock: their lanes have gone on, and all successors of the nodes
        that they stand for are visited. Clocks would otherwise grow with each lane that a path has seen.
        """
        lanes, devices, left, done = self.lanes, self.found.devices, self.left, self.done
        lane, most = -1, 0
        useless = []
        for mine, at in clock.items():
            line = lanes[mine]
            if len(line) == at + 1:
                if device is None or devices[mine] == device:
                    depth = self.depths[line[-1]]
                    if depth > most:
                        lane, most = mine, depth
                continue
            ended = done[mine]
            while ended <= at and not left[line[ended]]:
                ended += 1
            done[mine] = ended
            if ended > at:
                useless.append(mine)
        for mine in useless:
            del clock[mine]
        return lane

    def _other(self, device: int | None, bound: int) -> tuple[int, int]:
        """Return a new lane and -1; if the device has `bound` lanes already, the lane of smallest depth and its last node."""
        lanes, devices = self.lanes, self.found.devices
        owner = self.default if device is None else device
        ends = self.ends.setdefault(owner, [])
        if len(ends) < bound:
            heapq.heappush(ends, (0, len(lanes)))
            lanes.append([])
            self.done.append(0)
            devices.append(owner)
            return len(lanes) - 1, -1
        while True:  # depths only grow, so the first entry that is not stale is the minimum
            depth, lane = ends[0]
            tail = lanes[lane][-1]
            if depth == self.depths[tail]:
                return lane, tail
            heapq.heapreplace(ends, (self.depths[tail], lane))

    def _behind(self, i: int, tail: int, kept: tuple[int, ...], clock: Clock) -> tuple[int, ...]:
        """Add an edge to a node from the end of a lane, and merge the clocks; return the reduced edges with it."""
        before = self.clocks[tail]
        for lane, at in before.items():
            if clock.get(lane, -1) < at:
                clock[lane] = at
        self.found.added[i] = (tail,)
        return (*(d for d in kept if before.get(self.found.lane_of[d], -1) < self.place[d]), tail)


def gathers(lanes: int, bound: int, order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> bool:
    """Return whether gathering `lanes` lanes into `bound` lanes pays.

    It pays if more nodes could run at once than the device can run. If there are many lanes only because many nodes have no
    follower, the added edges delay some nodes (1.16 times as long with 451 lanes on an H200), until the branches cost more
    (0.32 times with 3772 lanes).
    """
    return lanes > bound and (_width(order, deps) > bound or lanes > _BRANCHES_THAT_COST * bound)


def _width(order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> int:
    """Return the maximum number of nodes of one depth: those that could run at once if all nodes took the same time."""
    return max(Counter(levels(order, deps)).values(), default=0)
