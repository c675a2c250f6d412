"""Shapes of graphs for these benchmarks alone, beside those of the package: layers, and two algorithms as users declare them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from hipgraphdsl.arrays import reads, writes
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.parts.bench.shapes import KERNELS as SMALL_KERNELS
from hipgraphdsl.parts.bench.shapes import chain, diamonds, fan_in, fan_out, layers, parallel, random_layers

KERNELS: Final = Module.from_file(Path(__file__).with_name("kernels.hip"))
"""The kernels of these benchmarks alone."""


def halos(nodes: int, blocks: int = 100, rows: int = 4, columns: int = 64) -> Graph:
    """Return sweeps over blocks of rows: each node reads its block and a row on either side, and writes it in the other array."""
    g = Graph(f"halos_{nodes}")
    here, there = (g.device_array(name, shape=(blocks * rows, columns), dtype="float32") for name in "uv")
    for i in range(nodes):
        first = i % blocks * rows
        read, written = here[max(0, first - 1) : min(blocks * rows, first + rows + 1)], there[first : first + rows]
        g.kernel(SMALL_KERNELS["axpy"], rows, columns, (reads(read), writes(written), rows * columns))
        if i % blocks == blocks - 1:
            here, there = there, here
    return g


def yee(steps: int = 100, side: int = 16) -> Graph:
    """Return steps of Maxwell's equations on Yee's grid: three components of one field, then three of the other.

    Each component has a kernel of its own. Arrays ``ex`` to ``hz`` have shape (side, side, side) of float32.
    """
    g = Graph(f"yee_{steps}")
    rng = np.random.default_rng(0)
    fields = {
        name: g.device_array(name, rng.standard_normal((side, side, side)).astype("f4"))
        for name in ("ex", "ey", "ez", "hx", "hy", "hz")
    }
    blocks = -(-(side**3) // 256)
    for _ in range(steps):
        for own, other in ("eh", "he"):
            for i, c in enumerate("xyz"):
                following = [fields[other + "xyz"[(i + k) % 3]] for k in (1, 2)]
                g.kernel(KERNELS[f"update_{own}{c}"], blocks, 256, (fields[own + c], *following, 0.5, side))
    return g


def cholesky(tiles: int = 24, side: int = 32, *, path_only: bool = False) -> Graph:
    """Return the factorisation A = L L^T of a matrix in tiles: as tiled algorithms declare it, a kernel for each tile and update.

    Array ``a`` holds the lower tiles, shape (tiles, tiles, 32, 32) of float32. With `path_only` there are the kernels of a
    longest path alone: no way of launching the others can take less time.
    """
    g = Graph(f"cholesky_{tiles}")
    draw = np.random.default_rng(0).standard_normal((tiles * side, tiles * side)).astype("f4")
    whole = draw @ draw.T / (tiles * side) + 4 * np.eye(tiles * side, dtype="f4")
    a = g.device_array("a", np.ascontiguousarray(whole.reshape(tiles, side, tiles, side).swapaxes(1, 2)))
    for k in range(tiles):
        rows = range(k + 1, min(tiles, k + 2) if path_only else tiles)
        g.kernel(KERNELS["potrf"], 1, 256, (a[k, k],))
        for i in rows:
            g.kernel(KERNELS["trsm"], 1, 256, (a[k, k], a[i, k]))
        for i in rows:
            for j in range(k + 1, i + 1):
                g.kernel(KERNELS["gemm"], 1, 256, (a[i, k], a[j, k], a[i, j]))
    return g


SHAPES: Final[dict[str, Callable[..., Graph]]] = {
    "chain": chain,
    "layers": layers,
    "parallel": parallel,
    "fan_out": fan_out,
    "fan_in": fan_in,
    "diamonds": diamonds,
    "random": random_layers,
}
"""Builders by name: ``shape(nodes, what="empty")``."""
