"""A layered layout without dependencies: for pages of thousands of nodes, and for use without Graphviz.

A node's row is its longest path from a start node. A few sweeps order each row by the positions of the neighbours, then each
node moves as close to its neighbours as its row allows. Everything but the sorting is linear in nodes and edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...order import levels, successors

GAP_X = 26.0  # between nodes of one row, in pixels
GAP_Y = 44.0  # between rows
_SWEEPS = 4


class Placement(NamedTuple):
    """Positions of nodes, in pixels."""

    width: float
    height: float
    places: list[tuple[float, float]]  # upper left corner of each node
    curves: dict[tuple[int, int], list[float]]
    """Control points x0, y0, x1, y1, ... of the edges (source, target) that are routed as curves."""


def arrange(sizes: Sequence[tuple[float, float]], predecessors: Sequence[Sequence[int]], order: Sequence[int]) -> Placement:
    """Return a layered layout of nodes of given (width, height); `order` is topological, or empty if there is a cycle."""
    if not sizes:
        return Placement(0.0, 0.0, [], {})
    followers = successors(predecessors)
    if not order:  # in a cyclic graph, ignore edges against the order of declaration
        order, predecessors = range(len(sizes)), [[p for p in sources if p < i] for i, sources in enumerate(predecessors)]
    rows = _rows(levels(order, predecessors), len(sizes))
    place = [0.0] * len(sizes)  # position within the row, 0 to 1; later the centre in pixels
    for row in rows:
        _number(row, place)
    for sweep in range(_SWEEPS):
        near = followers if sweep % 2 else predecessors
        for row in reversed(rows) if sweep % 2 else rows:
            wanted = {i: sum(place[j] for j in near[i]) / len(near[i]) if near[i] else place[i] for i in row}
            row.sort(key=wanted.__getitem__)
            _number(row, place)
    for row in rows:
        _spread(row, sizes, [0.0] * len(row), place)
    for near, turn in ((predecessors, rows), (followers, rows[::-1]), (predecessors, rows)):
        for row in turn:
            _spread(row, sizes, [sum(place[j] for j in near[i]) / len(near[i]) if near[i] else place[i] for i in row], place)
    left = min(x - w / 2 for x, (w, _) in zip(place, sizes))
    right = max(x + w / 2 for x, (w, _) in zip(place, sizes))
    places = [(0.0, 0.0)] * len(sizes)
    y = 0.0
    for row in rows:
        height = max(sizes[i][1] for i in row)
        for i in row:
            places[i] = (place[i] - sizes[i][0] / 2 - left, y + (height - sizes[i][1]) / 2)
        y += height + GAP_Y
    return Placement(right - left, y - GAP_Y, places, {})


def in_bands(
    sizes: Sequence[tuple[float, float]], placement: Placement, band_of: Sequence[int], inset: float
) -> tuple[Placement, dict[int, tuple[float, float]]]:
    """Return a layered layout with its nodes moved into columns; each node keeps its row.

    `band_of` holds each node's column number, from the left; a column has a margin of `inset` pixels on both sides. Returns
    the layout without curves, and the start and the width of each column.
    """
    rows: dict[tuple[int, int], list[int]] = {}
    for i in sorted(range(len(sizes)), key=lambda i: placement.places[i][0]):
        rows.setdefault((band_of[i], round(placement.places[i][1] + sizes[i][1] / 2)), []).append(i)
    widths = {row: sum(sizes[i][0] for i in members) + GAP_X * (len(members) - 1) for row, members in rows.items()}
    bands: dict[int, tuple[float, float]] = {}
    left = 0.0
    for band in sorted(set(band_of)):
        width = 2 * inset + max(widths[row] for row in rows if row[0] == band)
        bands[band] = (left, width)
        left += width + GAP_X
    places = list(placement.places)
    for row, members in rows.items():
        begin, width = bands[row[0]]
        x = begin + (width - widths[row]) / 2
        for i in members:
            places[i] = (x, placement.places[i][1])
            x += sizes[i][0] + GAP_X
    return Placement(max(left - GAP_X, 0.0), placement.height, places, {}), bands


def _rows(level: Sequence[int], n: int) -> list[list[int]]:
    """Return the nodes of each row; a very large level is split into several rows."""
    found: list[list[int]] = [[] for _ in range(max(level) + 1)]
    for i, at in enumerate(level):
        found[at].append(i)
    most = max(24, 2 * math.isqrt(n))
    return [row[k : k + most] for row in found for k in range(0, len(row), most)]


def _number(row: Sequence[int], place: list[float]) -> None:
    for k, i in enumerate(row):
        place[i] = (k + 0.5) / len(row)


def _spread(row: Sequence[int], sizes: Sequence[tuple[float, float]], wanted: Sequence[float], place: list[float]) -> None:
    """Place a row's centres as close to the wanted ones as its order and gaps allow (least squares)."""
    offset = 0.0
    offsets = []
    blocks: list[list[float]] = []  # [sum of the wanted positions, number of members]
    for i, want in zip(row, wanted):
        half = sizes[i][0] / 2
        offset += half
        offsets.append(offset)
        blocks.append([want - offset, 1.0])
        offset += half + GAP_X
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    k = 0
    for total, count in blocks:
        for _ in range(int(count)):
            place[row[k]] = total / count + offsets[k]
            k += 1
