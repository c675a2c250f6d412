"""A wave in a box that is split over several devices: halo exchange by peer copies.

The equation and its kernel are those of example 04, after "Optimising compute with concurrent IO in HIP" by Toby Potter
of Pelagos Consulting and Education. Each device owns a band of rows and keeps two more rows on either side, the halo,
which its neighbours own. A step computes the two rows along each neighbour first; they cross to the neighbour while
the rest of the band is computed. Nothing here says so: which node waits for which follows from the rows that it
touches, and which device runs it from the arrays.

Every cell is computed by the same arithmetic wherever it lies, so any number of devices gives the same bits.

Started as several processes, `mpiexec -n 4 python 06_wave2d_devices.py --ranks`, each has one device, and the copies
between them become messages: `compile(ranks=...)` is all that differs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np

import hipgraphdsl as hg

# U1 begins two rows before the rows of the other fields: the reach of the fourth-order differences.
SOURCE = r"""
extern "C" __global__ void wave2d_rows(
    const float* U0, const float* U1, float* U2, const float* V, int rows, int N1,
    float dt2, float inv_dx02, float inv_dx12, int P0, int P1, float pi2fm2t2)
{
    const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= rows || i1 < 2 || i1 >= N1 - 2) return;
    const size_t own = (size_t)i0 * N1 + i1;
    const size_t at = own + 2 * (size_t)N1;

    const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
    const float along0 = far * (U1[at - 2 * N1] + U1[at + 2 * N1]) + near * (U1[at - N1] + U1[at + N1]) + here * U1[at];
    const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];

    float next = 2.0f * U1[at] - U0[own] + dt2 * V[own] * V[own] * (along0 * inv_dx02 + along1 * inv_dx12);
    if (i0 == P0 && i1 == P1) next += (1.0f - 2.0f * pi2fm2t2) * expf(-pi2fm2t2);
    U2[own] = next;
}
"""
REACH = 2  # rows that a cell needs on either side, so rows of a halo
SIZE = 512  # cells along each side of the box
STEPS = 240
FIELDS = 3  # wavefields that take turns
VELOCITY = 343.0  # m/s, sound in air
DX = 1.0  # m between cells
DT = 0.4 * DX / VELOCITY  # s
FREQUENCY = VELOCITY / (10.0 * DX)  # Hz, ten cells to a wavelength
DELAY = 2.0 / FREQUENCY  # s until the wavelet's peak
BLOCK = (64, 4)


def forcing(n: int) -> float:
    """Return (pi f t)^2 at step n, from which the kernel computes the Ricker wavelet."""
    t = n * DT - DELAY
    return (math.pi * FREQUENCY * t) ** 2


def bands(rows: int, devices: int) -> list[tuple[int, int]]:
    """Return for each device its first row and the row past its last; rows at the walls never change and need none."""
    inner = rows - 2 * REACH
    if inner < 2 * REACH * devices:
        raise ValueError(f"{rows} rows are too few for {devices} devices: each takes at least {2 * REACH}")
    cuts = [REACH + inner * d // devices for d in range(devices + 1)]
    return list(pairwise(cuts))


def build(devices: int = 2, steps: int = STEPS, size: int | tuple[int, int] = SIZE, *, output: bool = True) -> hg.Graph:
    """Declare all steps on all devices.

    Parameters
    ----------
    devices : int
        How many share the box, from device 0 on.
    steps : int
        Time steps, each of `DT` seconds.
    size : int or (int, int)
        Cells along the sides of the box: rows, which are shared out, and columns.
    output : bool
        Copy the last wavefield to the host array ``out``.
    """
    rows, columns = (size, size) if isinstance(size, int) else size
    kernel = hg.Module(SOURCE)["wave2d_rows"]
    owned = bands(rows, devices)

    g = hg.Graph(f"wave2d_on_{devices}")
    u, v = [], []
    for d, (first, stop) in enumerate(owned):
        shape = (stop - first + 2 * REACH, columns)
        u.append(g.device_array(f"u{d}", shape=(FIELDS, *shape), dtype="float32", device=d))
        v.append(g.device_array(f"v{d}", shape=(stop - first, columns), dtype="float32", device=d))
        g.memset(u[d], 0, name=f"silence_{d}")  # each launch begins anew
        g.memset(v[d], VELOCITY, name=f"air_{d}")

    def compute(n: int, d: int, begin: int, end: int, name: str) -> None:
        """Compute rows `begin` to `end` of a device's band at step n."""
        first, _ = owned[d]
        u0, u1, u2 = (u[d][(n + k) % FIELDS] for k in range(3))
        rows_of = slice(REACH + begin, REACH + end)
        g.kernel(
            kernel, (-(-columns // BLOCK[0]), -(-(end - begin) // BLOCK[1])), BLOCK, name=f"{name}_{d}_{n}",
            args=(
                u0[rows_of], u1[begin : end + 2 * REACH], hg.writes(u2[rows_of]), v[d][begin:end], end - begin, columns,
                DT * DT, 1 / DX**2, 1 / DX**2, rows // 2 - first - begin, columns // 2, forcing(n),
            ),
        )  # fmt: skip

    for n in range(steps):
        for d, (first, stop) in enumerate(owned):  # what the neighbours wait for goes first
            height = stop - first
            if d > 0:
                compute(n, d, 0, REACH, "upper")
            if d < devices - 1:
                compute(n, d, height - REACH, height, "lower")
        for d in range(devices - 1):
            height = owned[d][1] - owned[d][0]
            mine, theirs = u[d][(n + 2) % FIELDS], u[d + 1][(n + 2) % FIELDS]
            g.memcpy(theirs[:REACH], mine[height : height + REACH], name=f"down_{d}_{n}")
            g.memcpy(mine[height + REACH :], theirs[REACH : 2 * REACH], name=f"up_{d}_{n}")
        for d, (first, stop) in enumerate(owned):
            compute(n, d, REACH if d > 0 else 0, stop - first - (REACH if d < devices - 1 else 0), "inner")
    if output:
        out = g.host_array("out", shape=(rows, columns), dtype="float32")
        for d, (first, stop) in enumerate(owned):
            g.memcpy(out[first:stop], u[d][(steps + 1) % FIELDS][REACH:-REACH], name=f"out_{d}")
    return g


def main(argv: list[str] | None = None) -> int:
    """Run the wave on one device and on several; compare the bits and the times."""
    parser = argparse.ArgumentParser(description="The 2-D wave equation over several devices, with halo exchange.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--backend", default="explicit", help="explicit, capture or streams (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=0, metavar="N", help="how many (default: all; with --ranks one for each)")
    parser.add_argument("--ranks", action="store_true", help="share them among the processes that mpiexec or srun has started")
    parser.add_argument("--captured", action="store_true", help="with --ranks: make messages by NCCL or RCCL nodes of the graph")
    parser.add_argument("--size", type=int, default=SIZE, help="cells along each side (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="(default: %(default)s)")
    options = parser.parse_args(argv)

    ranks = hg.ranks(devices_per_rank=options.devices or 1) if options.ranks else None
    count = sum(ranks.counts) if ranks else options.devices or hg.open_runtime(options.runtime).get_device_count()
    first = ranks is None or ranks.rank == 0
    fields, times_ms = {}, {}
    for devices in sorted({1, count}):
        if devices < count and not first:
            continue  # one process is enough to do it on one device
        g = build(devices, options.steps, options.size)
        shared: dict[str, Any] = (
            {"ranks": ranks, "plan": hg.PlanOptions(capture_collectives=options.captured)} if ranks and devices == count else {}
        )
        with g.compile(runtime=options.runtime, backend=options.backend, **shared) as exe:
            exe.run()  # the first launch also warms up
            times_ms[devices] = float("inf")
            for _ in range(3):  # the fastest: in the first, other processes may still be warming up
                start = time.perf_counter()
                exe.run()
                times_ms[devices] = min(times_ms[devices], (time.perf_counter() - start) * 1e3)
            if first:
                fields[devices] = exe.read("out")
            name = exe.runtime.get_device_name(0)
        if first:
            did = f"{options.steps} steps of {options.size} x {options.size} cells in {times_ms[devices]:.1f} ms"
            print(f"{devices} x {name}: {did}")
    if not first:
        return 0

    alike = fields[count].tobytes() == fields[1].tobytes()
    loud = float(np.max(np.abs(fields[1])))
    if not alike or not loud:
        different = np.argwhere(fields[count] != fields[1])
        print(f"{len(different)} cells differ, the first at {different[:1].tolist()}.", file=sys.stderr)
        return 1
    if count > 1:
        whose = f"{count} devices of {ranks.size} processes" if ranks else f"{count} devices"
        print(f"The same bits from {whose} as from one, {times_ms[1] / times_ms[count]:.2f} times as fast.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
