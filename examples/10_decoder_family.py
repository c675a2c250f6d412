"""A decoder that serves several texts at once: their number and their length change from step to step.

The step of example 08, for a batch of texts. A graph has fixed sizes, so a server keeps one for each size of the batch.
Here they are a family: `build` is called for a size when it is first needed, a launch runs the smallest member that holds
the batch, the weights and the cache of keys and values exist once, and the temporaries of all members lie in the same
memory, which is as large as the largest member needs.

The place in the text is a parameter with bounds. `keys[pos]` is a view that each launch moves, and the batch of a launch,
which may be anything from zero to the member's size, is a parameter too: grids and copies follow it.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
// y = x W for each row; with `bend`, tanh of it.
extern "C" __global__ void project(const float* w, const float* x, float* y, int rows, int width, int bend) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / width, column = i % width;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < width; ++k) sum += x[row * width + k] * w[k * width + column];
    y[i] = bend ? tanhf(sum) : sum;
}
// For each text and each element: the values of all places so far, weighted by the softmax of their scores.
extern "C" __global__ void attend(const float* q, const float* keys, const float* values, float* y,
                                  int rows, int width, int pos, int most) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / width, column = i % width;
    if (row >= rows) return;
    float top = -3e38f, sum = 0.0f, out = 0.0f;
    for (int t = 0; t <= pos; ++t) {
        float score = 0.0f;
        for (int k = 0; k < width; ++k) score += q[row * width + k] * keys[(t * most + row) * width + k];
        score /= sqrtf(width);
        const float larger = fmaxf(top, score), keep = expf(top - larger), weight = expf(score - larger);
        sum = sum * keep + weight;
        out = out * keep + weight * values[(t * most + row) * width + column];
        top = larger;
    }
    y[i] = out / sum;
}
"""
MODULE = hg.Module(SOURCE)
WIDTH, MOST, LENGTH, THREADS = 32, 8, 16, 64
SIZES = (1, 2, 4, 8)
BATCHES = (8, 8, 7, 5, 5, 3, 3, 2, 1, 1, 0, 0, 4, 8, 6, 2)
"""How many texts each step goes on with: those at the end of the batch have been finished, or wait."""


def weights() -> dict[str, np.ndarray]:
    """Return the weights of a layer that has learned nothing."""
    random = np.random.default_rng(10)
    names = ("query", "key", "value", "out")
    return {name: (random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype("float32") for name in names}


def first() -> np.ndarray:
    """Return what each text begins with."""
    return np.random.default_rng(11).standard_normal((MOST, WIDTH)).astype("float32")


def build(batch: int = MOST) -> hg.Graph:
    """Declare one step for up to `batch` texts.

    Parameters
    ----------
    batch : int
        What the temporaries have room for; each launch says how many texts there are, from zero.
    """
    g = hg.Graph(f"step_of_{batch}")
    rows = g.param("batch", "int32", default=batch, min=0, max=batch)
    pos = g.param("pos", "int32", default=0, min=0, max=LENGTH - 1)
    w = {name: g.device_array(name, values) for name, values in weights().items()}
    x = g.device_array("x", first())
    keys, values = (g.device_array(name, shape=(LENGTH, MOST, WIDTH), dtype="float32") for name in ("keys", "values"))
    q, k, v, y = (g.alloc(name, (batch, WIDTH), "float32") for name in "qkvy")

    for name, target in (("query", q), ("key", k), ("value", v)):
        args = (w[name], x, hg.writes(target[:rows]), rows, WIDTH, 0)
        g.kernel(MODULE["project"], over=rows * WIDTH, block=THREADS, args=args, name=f"make_{name}")
    g.memcpy(keys[pos, :rows], k[:rows], name="keep_key")
    g.memcpy(values[pos, :rows], v[:rows], name="keep_value")
    args = (q, keys, values, hg.writes(y[:rows]), rows, WIDTH, pos, MOST)
    g.kernel(MODULE["attend"], over=rows * WIDTH, block=THREADS, args=args, name="attend")
    args = (w["out"], y, hg.writes(x[:rows]), rows, WIDTH, 1)
    g.kernel(MODULE["project"], over=rows * WIDTH, block=THREADS, args=args, name="next")
    for temporary in (q, k, v, y):
        g.free(temporary)
    return g


def reference() -> np.ndarray:
    """Return the last state of each text by NumPy."""
    w, x = weights(), first()
    keys, values = (np.zeros((LENGTH, MOST, WIDTH), "float32") for _ in range(2))
    for pos, batch in enumerate(BATCHES):
        q, keys[pos, :batch], values[pos, :batch] = (x[:batch] @ w[name] for name in ("query", "key", "value"))
        for row in range(batch):
            scores = keys[: pos + 1, row] @ q[row] / np.float32(WIDTH**0.5)
            weight = np.exp(scores - scores.max())
            x[row] = np.tanh(weight @ values[: pos + 1, row] / weight.sum() @ w["out"])
    return x


def main(argv: list[str] | None = None) -> int:
    """Let every backend write the texts, and compare them with NumPy's."""
    parser = argparse.ArgumentParser(description="A decoder's step for batches that change, as a family of graphs.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    options = parser.parse_args(argv)

    exact, right = reference(), True
    for backend in ("serial", "streams", "capture", "explicit"):
        with hg.Family(build, batch=SIZES, runtime=options.runtime, backend=backend) as family:
            for pos, batch in enumerate(BATCHES):
                family.launch(batch=batch, pos=pos)
            error = float(np.abs(family.read("x") - exact).max())
            right &= error < 1e-4
            print(f"{backend:<8}  {len(BATCHES)} steps differ from NumPy's by {error:.1e}")
            members = family.members
    print()
    for size, member in members.items():
        print(f"batch {size}: {member.launches} launches, compiled in {1e3 * member.seconds:.0f} ms")
    plans = [build(size).plan(target="cpu", options=hg.PlanOptions(pack="all")) for size in SIZES]
    apart = [plan.memory.temporaries for plan in plans]
    print(f"Temporaries of all: {max(apart)} bytes, where apart they take {sum(apart)}.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
