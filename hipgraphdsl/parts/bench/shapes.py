"""Graphs of a shape and a size, of one small kernel each."""

from __future__ import annotations

import random
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...arrays import DeviceArray
from ...graph import Graph
from ...kernels import Module

KERNELS: Final = Module.from_file(Path(__file__).with_name("kernels.hip"))
"""The kernels of these benchmarks."""


def vector(g: Graph, name: str, n: int = 256) -> DeviceArray:
    """Declare one of the vectors that `add_kernel` takes."""
    return g.device_array(name, shape=n, dtype="float32")


def add_kernel(g: Graph, what: str, x: DeviceArray, y: DeviceArray, **options: Any) -> None:
    """Add ``"empty"`` or ``"axpy"``, which reads x and writes y."""
    n = x.shape[0]
    g.kernel(KERNELS[what], -(-n // 256), 256, (x, y, n), **options)


def chain(nodes: int, what: str = "empty") -> Graph:
    """Return a chain: each node reads what the one before it wrote."""
    g = Graph(f"chain_{nodes}")
    x, y = vector(g, "a0"), vector(g, "a1")
    for _ in range(nodes):
        add_kernel(g, what, x, y)
        x, y = y, x
    return g


def parallel(nodes: int, width: int = 1 << 30, what: str = "empty", n: int = 256) -> Graph:
    """Return `width` chains side by side; as many as nodes by default, so that all are independent."""
    g = Graph(f"parallel_{nodes}")
    source = vector(g, "a0", n)
    targets = [vector(g, f"y{i}", n) for i in range(min(width, nodes))]
    for _, target in zip(range(nodes), cycle(targets)):
        add_kernel(g, what, source, target)
    return g


def fan_out(nodes: int, what: str = "empty") -> Graph:
    """Return a graph of one node whose result all other nodes read."""
    g = Graph(f"fan_out_{nodes}")
    x = vector(g, "x")
    add_kernel(g, what, vector(g, "root"), x)
    for i in range(nodes - 1):
        add_kernel(g, what, x, vector(g, f"y{i}"))
    return g


def fan_in(nodes: int, what: str = "empty") -> Graph:
    """Return a graph of independent nodes and one that depends on all of them."""
    g = parallel(nodes - 1, what=what)
    g.name = f"fan_in_{nodes}"
    out, x = vector(g, "out"), vector(g, "x")
    add_kernel(g, what, x, out, after=list(g.dag))
    return g


def diamonds(nodes: int, what: str = "empty") -> Graph:
    """Return a stack of diamonds: one node, two independent nodes, one, two, ..."""
    g = Graph(f"diamonds_{nodes}")
    a, b, c = (vector(g, f"a{i}") for i in range(3))
    for _, (x, y) in zip(range(nodes), cycle(((b, a), (a, b), (a, c)))):
        add_kernel(g, what, x, y)
    return g


def layers(nodes: int, width: int = 8, what: str = "empty") -> Graph:
    """Return layers of `width` nodes; each node reads two arrays of the layer before, so every node has several edges."""
    g = Graph(f"layers_{nodes}")
    arrays = [vector(g, f"a{i}") for i in range(2 * width)]
    here, there = arrays[:width], arrays[width:]
    for i in range(nodes):
        j = i % width
        add_kernel(g, what, here[j], there[(j + 1) % width])
        if j == width - 1:
            here, there = there, here
    return g


def random_layers(nodes: int, what: str = "empty") -> Graph:
    """Return layers of random width whose nodes read random arrays of the previous layer."""
    g = Graph(f"random_{nodes}")
    rng = random.Random(0)
    before = [vector(g, "x")]
    made = 0
    while made < nodes:
        width = min(rng.randint(1, 16), nodes - made)
        layer = [vector(g, f"y{i}") for i in range(made, made + width)]
        for y in layer:
            add_kernel(g, what, rng.choice(before), y)
        made += width
        before = layer
    return g


def wave(steps: int = 16, side: int = 256) -> Graph:
    """Return steps of the 2-D wave equation, whose fields rotate."""
    g = Graph(f"wave_{steps}")
    fields = g.device_array("u", shape=(5, side, side), dtype="float32")
    v = g.device_array("v", np.full((side, side), 0.16, dtype="float32"))
    grid = (-(-side // 64), -(-side // 4))
    for i in range(steps):
        u0, u1, u2 = (fields[(i + k) % 5] for k in range(3))
        g.kernel(KERNELS["wave"], grid, (64, 4), (u0, u1, u2, v, side))
    return g


def decode(layers: int = 40, width: int = 128) -> Graph:
    """Return the work for one token of a language model: 13 small kernels per layer, some of them independent."""
    g = Graph(f"decode_{layers}")
    k, n = KERNELS, width
    rng = np.random.default_rng(0)
    gain = g.device_array("gain", np.ones(n, "float32"))
    weights = [g.device_array(f"w{i}", rng.standard_normal((n, n)).astype("float32") / n) for i in range(7)]
    x, h, q, key, value, a, gated, up = (
        g.device_array(name, rng.standard_normal(n).astype("float32")) for name in ("x", "h", "q", "k", "v", "a", "gated", "up")
    )
    caches = g.device_array("cache", shape=(layers, 2, 16, n), dtype="float32")
    for layer in range(layers):
        keys, values = caches[layer, 0], caches[layer, 1]
        g.kernel(k["rms_norm"], 1, n, (x, gain, h, n))
        g.kernel(k["project"], 1, n, (h, weights[0], q, n))
        g.kernel(k["project"], 1, n, (h, weights[1], key, n))
        g.kernel(k["project"], 1, n, (h, weights[2], value, n))
        g.kernel(k["rotate"], 1, n, (q, key, n))
        g.kernel(k["store"], 1, n, (key, value, keys, values, n))
        g.kernel(k["attend"], 1, n, (q, keys, values, a, n))
        g.kernel(k["add_projected"], 1, n, (a, weights[3], x, n))
        g.kernel(k["rms_norm"], 1, n, (x, gain, h, n))
        g.kernel(k["project"], 1, n, (h, weights[4], gated, n))
        g.kernel(k["project"], 1, n, (h, weights[5], up, n))
        g.kernel(k["gate"], 1, n, (gated, up, n))
        g.kernel(k["add_projected"], 1, n, (up, weights[6], x, n))
    return g
