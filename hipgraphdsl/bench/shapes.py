"""Graphs of a shape and a size, of one small kernel each."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Graph
from ..kernels import Kernel, Module

__all__ = ["SHAPES", "chain", "decode", "kernel", "layers", "parallel", "wave"]

_MODULE = Module(
    r"""
extern "C" __global__ void empty(const float* x, float* y, int n) {}
extern "C" __global__ void axpy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = y[i] * 0.5f + x[i];
}
""",
    name="shapes",
)

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

# One token through a transformer: vectors of n elements, one block of n threads each.
_DECODE = Module(
    r"""
extern "C" __global__ void rms_norm(const float* x, const float* gain, float* y, int n) {
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += x[k] * x[k];
  int i = threadIdx.x;
  if (i < n) y[i] = x[i] * gain[i] / sqrtf(sum / n + 1e-5f);
}
extern "C" __global__ void project(const float* x, const float* W, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += W[k * n + i] * x[k];
  y[i] = sum;
}
extern "C" __global__ void add_projected(const float* x, const float* W, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += W[k * n + i] * x[k];
  y[i] += sum;
}
extern "C" __global__ void rotate(float* q, float* k, int n) {
  int i = 2 * threadIdx.x;
  if (i + 1 >= n) return;
  float c = cosf(i * 0.01f), s = sinf(i * 0.01f), q0 = q[i], q1 = q[i + 1], k0 = k[i], k1 = k[i + 1];
  q[i] = c * q0 - s * q1; q[i + 1] = s * q0 + c * q1;
  k[i] = c * k0 - s * k1; k[i + 1] = s * k0 + c * k1;
}
extern "C" __global__ void store(const float* k, const float* v, float* keys, float* values, int n) {
  int i = threadIdx.x;
  if (i < n) { keys[i] = k[i]; values[i] = v[i]; }
}
extern "C" __global__ void attend(const float* q, const float* keys, const float* values, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f, weights = 0.0f;
  for (int t = 0; t < 16; ++t) {
    float score = 0.0f;
    for (int k = 0; k < 16; ++k) score += q[k] * keys[t * n + k];
    float weight = expf(fminf(score, 20.0f));
    weights += weight;
    sum += weight * values[t * n + i];
  }
  y[i] = sum / weights;
}
extern "C" __global__ void gate(const float* g, float* u, int n) {
  int i = threadIdx.x;
  if (i < n) u[i] *= g[i] / (1.0f + expf(-g[i]));
}
""",
    name="decode",
)


def kernel(name: str = "empty") -> Kernel:
    """Return ``"empty"`` or ``"axpy"``."""
    return _MODULE[name]


def _arrays(g: Graph, count: int, n: int) -> list[Any]:
    return [g.device_array(f"a{i}", shape=n, dtype="float32") for i in range(count)]


def chain(nodes: int, what: str = "empty", n: int = 256) -> Graph:
    """Return a chain: each node reads what the one before it wrote."""
    g = Graph(f"chain_{nodes}")
    x, y = _arrays(g, 2, n)
    k = kernel(what)
    for _ in range(nodes):
        g.kernel(k, -(-n // 256), 256, (x, y, n))
        x, y = y, x
    return g


def layers(nodes: int, width: int = 8, what: str = "empty", n: int = 256) -> Graph:
    """Return layers of `width` nodes; each node reads two arrays of the layer before, so every node has several edges."""
    g = Graph(f"layers_{nodes}")
    here, there = _arrays(g, 2 * width, n)[:width], None
    there = [g.arrays[f"a{i}"] for i in range(width, 2 * width)]
    k = kernel(what)
    for i in range(nodes):
        j = i % width
        g.kernel(k, -(-n // 256), 256, (here[j], there[(j + 1) % width], n))
        if j == width - 1:
            here, there = there, here
    return g


def parallel(nodes: int, width: int = 1 << 30, what: str = "empty", n: int = 256) -> Graph:
    """Return `width` chains side by side; as many as nodes by default, so that all are independent."""
    g = Graph(f"parallel_{nodes}")
    width = min(width, nodes)
    sources, targets = _arrays(g, 1, n), [g.device_array(f"y{i}", shape=n, dtype="float32") for i in range(width)]
    k = kernel(what)
    for i in range(nodes):
        g.kernel(k, -(-n // 256), 256, (sources[0], targets[i % width], n))
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
    a, b, c = _arrays(g, 3, n)
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


def decode(layers: int = 40, width: int = 128) -> Graph:
    """Return what one token of a language model asks for: 13 small kernels a layer, some of them independent."""
    g = Graph(f"decode_{layers}")
    k, n = _DECODE, width
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
