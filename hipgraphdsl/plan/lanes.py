"""Lanes: the edges that are needed, and as few sequences as cover all nodes, in one pass over a topological order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..order import levels, positions

_BRANCHES_THAT_COST = 8  # times as many lanes as the device runs at once

Clock = dict[int, int]
"""What precedes a node, as the place of the last such node in each lane, the node itself included. Lanes are totally ordered, so
that says it all, and it costs only as much as the graph is wide."""


class Cover(NamedTuple):
    """Edges and lanes."""

    reduced: list[tuple[int, ...]]  # for each node the predecessors that no other implies
    lane_of: list[int]  # for each node
    added: dict[int, tuple[int, ...]]  # edges to nodes that were put behind a lane that does not precede them
    devices: list[int]  # for each lane
    depths: list[int]  # for each node the nodes on the longest path that ends with it, along added edges too


def covered(
    order: Sequence[int],
    deps: Sequence[tuple[int, ...]],
    bound: int | None,
    placed: Sequence[int | None] | None = None,
    default: int = 0,
) -> Cover:
    """Reduce the edges and cover the nodes with lanes.

    An edge is left out when another predecessor implies it (transitive reduction). A node continues the lane of a direct
    predecessor that ends one (of these, the one with the fewest other successors left), else any lane whose end precedes
    it, else it opens a lane; beyond `bound` it is put behind the lane that ends earliest, with an added edge. A lane belongs to
    one device, and `bound` is that of each; nodes that are `placed` on none go into any lane.
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
        self.place = [0] * n  # of each node within its lane
        self.depths = self.found.depths
        self.clocks: dict[int, Clock] = {}  # dropped, or taken over, by the last successor; kept where lanes are bound
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """For each device a heap of its lanes, where they are bound: the depth of a node that once ended a lane, and the lane."""
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
            elif len(kept) == 1:  # what most nodes have, without calls
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
        """Return the predecessors that no other implies, and what precedes the node; latest first, one implies the earlier."""
        lane_of, place, left, clocks, bound = self.found.lane_of, self.place, self.left, self.clocks, self.bound
        kept = []
        clock: Clock = {}
        for source in sorted(sources, key=self.position.__getitem__, reverse=True):
            left[source] -= 1
            if clock.get(lane_of[source], -1) < place[source]:
                kept.append(source)
                if not clock:
                    clock = clocks[source].copy()
                else:
                    for lane, at in clocks[source].items():
                        if clock.get(lane, -1) < at:
                            clock[lane] = at
            if not left[source] and not bound:
                del clocks[source]
        kept.reverse()
        return tuple(kept), clock

    def _continued(self, kept: tuple[int, ...], device: int | None) -> int:
        """Return the lane that a direct predecessor ends, -1 if none does."""
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
        """Return the lane whose end precedes the node and is deepest, -1 if there is none."""
        lanes, devices = self.lanes, self.found.devices
        lane, most = -1, 0
        for mine, at in clock.items():
            line = lanes[mine]
            if len(line) == at + 1 and (device is None or devices[mine] == device):
                depth = self.depths[line[-1]]
                if depth > most:
                    lane, most = mine, depth
        return lane

    def _other(self, device: int | None, bound: int) -> tuple[int, int]:
        """Return a new lane and -1, or where there are as many as may be, the lane that ends earliest and its last node."""
        lanes, devices = self.lanes, self.found.devices
        owner = self.default if device is None else device
        ends = self.ends.setdefault(owner, [])
        if len(ends) < bound:
            heapq.heappush(ends, (0, len(lanes)))
            lanes.append([])
            devices.append(owner)
            return len(lanes) - 1, -1
        while True:  # lanes have only become deeper, so the first one whose depth holds is the one
            depth, lane = ends[0]
            tail = lanes[lane][-1]
            if depth == self.depths[tail]:
                return lane, tail
            heapq.heapreplace(ends, (self.depths[tail], lane))

    def _behind(self, i: int, tail: int, kept: tuple[int, ...], clock: Clock) -> tuple[int, ...]:
        """Add an edge to a node from the end of a lane; return the edges that are needed with it."""
        before = self.clocks[tail]
        for lane, at in before.items():
            if clock.get(lane, -1) < at:
                clock[lane] = at
        self.found.added[i] = (tail,)
        return (*(d for d in kept if before.get(self.found.lane_of[d], -1) < self.place[d]), tail)


def gathers(lanes: int, bound: int, order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> bool:
    """Return whether gathering so many lanes into `bound` pays.

    It does where more nodes could run at once than the device can. Where lanes are many only because many nodes have no
    follower, the added edges delay some (1.16 times as long with 451 lanes on an H200), until the branches cost more (0.32
    times with 3772).
    """
    return lanes > bound and (_width(order, deps) > bound or lanes > _BRANCHES_THAT_COST * bound)


def _width(order: Sequence[int], deps: Sequence[tuple[int, ...]]) -> int:
    """Return the most nodes of one depth, which is how many could run at once if all took the same time."""
    return max(Counter(levels(order, deps)).values(), default=0)
