"""Conjugate gradients on several devices, with sums over all of them.

Solves the Poisson equation on a square, discretised by five points, with zero on its rim. Each device owns a band of rows. An
iteration exchanges the rows at the borders of the bands, multiplies, and twice needs a sum over all devices: `all_reduce`
adds what they have, in the order of the devices on each of them, so all go on with the same bits.

Started as several processes, ``mpiexec -n 4 python 09_conjugate_gradient.py --ranks``, each has one device. The residuals are
those of one process to the bit, because the bands and the order of adding are.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np

import hipgraphdsl as hg

# Bands of p have one more row on either side: the neighbours' or, at the rim, zeros.
SOURCE = r"""
#define EACH(i) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * n; i += gridDim.x * blockDim.x)

extern "C" __global__ void begin(double* x, double* r, double* p, int rows, int n, int first) {
    EACH(i) {
        const int row = first + i / n, column = i % n;
        x[i] = 0.0;
        r[i] = ((row * 131 + column * 71) % 101 - 50) / 50.0;
        p[i + n] = r[i];
    }
}

extern "C" __global__ void multiply(double* q, const double* p, int rows, int n) {
    EACH(i) {
        const int at = i + n, column = i % n;
        const double left = column > 0 ? p[at - 1] : 0.0, right = column < n - 1 ? p[at + 1] : 0.0;
        q[i] = 4.0 * p[at] - left - right - p[at - n] - p[at + n];
    }
}

// One block: each thread adds its own elements, then halves of threads add to each other.
extern "C" __global__ void dot(double* sum, const double* a, const double* b, int count) {
    __shared__ double held[256];
    double mine = 0.0;
    for (int i = threadIdx.x; i < count; i += 256) mine += a[i] * b[i];
    held[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *sum = held[0];
}

extern "C" __global__ void step(double* x, double* r, const double* p, const double* q, const double* rr, const double* pq,
                                int rows, int n) {
    const double alpha = *rr / *pq;
    EACH(i) {
        x[i] += alpha * p[i + n];
        r[i] -= alpha * q[i];
    }
}

extern "C" __global__ void turn(double* p, const double* r, const double* after, const double* before, int rows, int n) {
    const double beta = *after / *before;
    EACH(i) p[i + n] = r[i] + beta * p[i + n];
}
"""
SIZE = 128  # points along each side
ITERATIONS = 60
GRID, BLOCK = 64, 256


def build(devices: int = 2, iterations: int = ITERATIONS, size: int = SIZE, *, spread: bool = True) -> hg.Graph:
    """Declare all iterations on all bands.

    Parameters
    ----------
    devices : int
        How many bands there are.
    iterations : int
    size : int
        Points along each side of the square.
    spread : bool
        Put each band on a device of its own, from 0 on; False puts all on the device that is compiled for.
    """
    module = hg.Module(SOURCE, name="conjugate_gradient")
    cuts = [size * d // devices for d in range(devices + 1)]
    g = hg.Graph(f"conjugate_gradient_on_{devices}")
    rows = [stop - first for first, stop in pairwise(cuts)]

    def arrays(name: str, shapes: list[tuple[int, ...]]) -> list[hg.DeviceArray]:
        return [
            g.device_array(f"{name}{d}", shape=shape, dtype="float64", device=d if spread else None)
            for d, shape in enumerate(shapes)
        ]

    x, r, q = (arrays(name, [(h, size) for h in rows]) for name in "xrq")
    p = arrays("p", [(h + 2, size) for h in rows])
    before, after, pq = (arrays(name, [(1,)] * devices) for name in ("before", "after", "pq"))
    residuals = g.host_array("residuals", shape=iterations + 1, dtype="float64")

    def sums(to: list[hg.DeviceArray], a: list[hg.ArrayView], b: list[hg.ArrayView], name: str) -> None:
        for d in range(devices):
            g.kernel(module["dot"], 1, 256, (hg.writes(to[d]), a[d], b[d], rows[d] * size), name=f"{name}_{d}")
        g.all_reduce(to, "sum", exact=True, name=f"{name}_of_all")  # the same bits also where NCCL would add in another order

    inner = [p[d][1:-1] for d in range(devices)]
    whole = [r[d][:] for d in range(devices)]
    for d in range(devices):
        g.memset(p[d], 0, name=f"rim_{d}")
        g.kernel(
            module["begin"], GRID, BLOCK, (hg.writes(x[d]), hg.writes(r[d]), p[d], rows[d], size, cuts[d]), name=f"begin_{d}"
        )
    sums(before, whole, whole, "norm")
    g.memcpy(residuals[0:1], before[0], name="residual_0")
    for k in range(1, iterations + 1):
        for d in range(devices - 1):
            g.memcpy(p[d + 1][0], p[d][-2], name=f"down_{d}_{k}")
            g.memcpy(p[d][-1], p[d + 1][1], name=f"up_{d}_{k}")
        for d in range(devices):
            g.kernel(module["multiply"], GRID, BLOCK, (hg.writes(q[d]), p[d], rows[d], size), name=f"multiply_{d}_{k}")
        sums(pq, inner, [q[d][:] for d in range(devices)], f"curvature_{k}")
        for d in range(devices):
            args = (x[d], r[d], p[d], q[d], before[d], pq[d], rows[d], size)
            g.kernel(module["step"], GRID, BLOCK, args, name=f"step_{d}_{k}")
        sums(after, whole, whole, f"norm_{k}")
        for d in range(devices):
            g.kernel(module["turn"], GRID, BLOCK, (p[d], r[d], after[d], before[d], rows[d], size), name=f"turn_{d}_{k}")
            g.memcpy(before[d], after[d], name=f"keep_{d}_{k}")
        g.memcpy(residuals[k : k + 1], after[0], name=f"residual_{k}")
    return g


def main(argv: list[str] | None = None) -> int:
    """Solve on several devices, and on one device; compare the residuals bit by bit."""
    parser = argparse.ArgumentParser(description="Conjugate gradients over several devices, with sums over all of them.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--backend", default="explicit", help="explicit, capture or streams (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=0, metavar="N", help="how many (default: all; with --ranks one for each)")
    parser.add_argument("--ranks", action="store_true", help="share them among the processes that mpiexec or srun has started")
    parser.add_argument("--captured", action="store_true", help="with --ranks: make messages by NCCL or RCCL nodes of the graph")
    parser.add_argument("--size", type=int, default=SIZE, help="points along each side (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="(default: %(default)s)")
    options = parser.parse_args(argv)

    ranks = hg.ranks(devices_per_rank=options.devices or 1) if options.ranks else None
    count = sum(ranks.counts) if ranks else options.devices or hg.open_runtime(options.runtime).get_device_count()
    found = []
    for spread in (True, False):
        if not spread and ranks is not None and ranks.rank:
            return 0  # one process is enough to do it on one device
        g = build(count, options.iterations, options.size, spread=spread)
        shared: dict[str, Any] = (
            {"ranks": ranks, "plan": hg.PlanOptions(capture_collectives=options.captured)} if ranks and spread else {}
        )
        with g.compile(runtime=options.runtime, backend=options.backend, **shared) as exe:
            exe.run()  # the first launch also warms up
            ms = float("inf")
            for _ in range(3):  # the fastest: in the first, other processes may still be warming up
                start = time.perf_counter()
                exe.run()
                ms = min(ms, (time.perf_counter() - start) * 1e3)
            gathered = exe.gather("residuals")
        if gathered is not None:
            found.append(np.sqrt(gathered[0]))
            where = f"{count} x {exe.runtime.get_device_name(0)}" if spread else "one device"
            print(f"{where}: residual {found[-1][0]:.4g}, after {options.iterations} iterations {found[-1][-1]:.4g}, {ms:.1f} ms")
    if found[0].tobytes() != found[1].tobytes() or not found[0][-1] < found[0][0]:
        print(f"The residuals differ from iteration {int(np.argmax(found[0] != found[1]))} on.", file=sys.stderr)
        return 1
    whose = f"{count} devices of {ranks.size} processes" if ranks else f"{count} device{'s' * (count != 1)}"
    print(f"The same residuals from {whose} as from one, to the bit.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
