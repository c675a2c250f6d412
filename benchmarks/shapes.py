"""More graphs of a shape and a size, of one small kernel each."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from hipgraphdsl.bench.shapes import arrays, chain, kernel, parallel
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module

__all__ = ["SHAPES", "diamonds", "fan_in", "fan_out", "layers", "random_layers", "wave"]

_WAVE = Module(
    r"""
extern "C" __global__ void wave(const float* U0, const float* U1, float* U2, const float* V, int n) {
  const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
  const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
  if (i0 < 2 || i0 >= n - 2 || i1 < 2 || i1 >= n - 2) return;
  const int at = i0 * n + i1;
  const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
  const float along0 = far * (U1[at - 2 * n] + U1[at + 2 * n]) + near * (U1[at - n] + U1[at + n]) + here * U1[at];
  const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];
  float next = 2.0f * U1[at] - U0[at] + V[at] * (along0 + along1);
  if (i0 == n / 2 && i1 == n / 2) next += 1.0f;
  U2[at] = next;
}
""",
    name="wave",
)


def layers(nodes: int, width: int = 8, what: str = "empty", n: int = 256) -> Graph:
    """Return layers of `width` nodes; each node reads two arrays of the layer before, so every node has several edges."""
    g = Graph(f"layers_{nodes}")
    here, there = arrays(g, 2 * width, n)[:width], None
    there = [g.arrays[f"a{i}"] for i in range(width, 2 * width)]
    k = kernel(what)
    for i in range(nodes):
        j = i % width
        g.kernel(k, -(-n // 256), 256, (here[j], there[(j + 1) % width], n))
        if j == width - 1:
            here, there = there, here
    return g


def fan_out(nodes: int, what: str = "empty", n: int = 256) -> Graph:
    """Return one node whose result all others read."""
    g = Graph(f"fan_out_{nodes}")
    x = g.device_array("x", shape=n, dtype="float32")
    k = kernel(what)
    root = g.device_array("root", shape=n, dtype="float32")
    g.kernel(k, -(-n // 256), 256, (root, x, n))
    for i in range(nodes - 1):
        g.kernel(k, -(-n // 256), 256, (x, g.device_array(f"y{i}", shape=n, dtype="float32"), n))
    return g


def fan_in(nodes: int, what: str = "empty", n: int = 256) -> Graph:
    """Return independent nodes and one that follows all of them."""
    g = parallel(nodes - 1, what=what, n=n) if nodes > 1 else Graph("fan_in_1")
    g.name = f"fan_in_{nodes}"
    out = g.device_array("out", shape=n, dtype="float32")
    x = g.device_array("x", shape=n, dtype="float32")
    g.kernel(kernel(what), -(-n // 256), 256, (x, out, n), after=list(g.dag))
    return g


def diamonds(nodes: int, what: str = "empty", n: int = 256) -> Graph:
    """Return a stack of diamonds: one node, two beside each other, one, two, ..."""
    g = Graph(f"diamonds_{nodes}")
    a, b, c = arrays(g, 3, n)
    k = kernel(what)
    for i in range(nodes):
        x, y = ((a, b), (a, c))[i % 3 - 1] if i % 3 else (b, a)
        g.kernel(k, -(-n // 256), 256, (x, y, n))
    return g


def random_layers(nodes: int, what: str = "empty", n: int = 256, seed: int = 0) -> Graph:
    """Return layers of random width whose nodes read random arrays of the layer before."""
    g = Graph(f"random_{nodes}")
    rng = random.Random(seed)
    k = kernel(what)
    before = [g.device_array("x", shape=n, dtype="float32")]
    made = 0
    while made < nodes:
        width = min(rng.randint(1, 16), nodes - made)
        layer = []
        for _ in range(width):
            y = g.device_array(f"y{made}", shape=n, dtype="float32")
            g.kernel(k, -(-n // 256), 256, (rng.choice(before), y, n))
            layer.append(y)
            made += 1
        before = layer
    return g


def wave(steps: int = 16, side: int = 256) -> Graph:
    """Return steps of the 2-D wave equation, whose fields take turns."""
    g = Graph(f"wave_{steps}")
    fields = g.device_array("u", shape=(5, side, side), dtype="float32")
    v = g.device_array("v", np.full((side, side), 0.16, dtype="float32"))
    grid = (-(-side // 64), -(-side // 4))
    for i in range(steps):
        u0, u1, u2 = (fields[(i + k) % 5] for k in range(3))
        g.kernel(_WAVE["wave"], grid, (64, 4), (u0, u1, u2, v, side))
    return g


SHAPES: dict[str, Callable[..., Graph]] = {
    "chain": chain,
    "layers": layers,
    "parallel": parallel,
    "fan_out": fan_out,
    "fan_in": fan_in,
    "diamonds": diamonds,
    "random": random_layers,
}
"""Builders by name: ``shape(nodes, what="empty")``."""
