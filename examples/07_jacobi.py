"""The temperature of a plate, by a loop that ends when it has converged.

The upper edge of a square plate is hot, the others are cold. Jacobi's method replaces every inner cell by the mean of
its four neighbours, again and again, until no cell changes by more than a tolerance. How many sweeps that takes is not
known beforehand: a kernel on the device compares the largest change with the tolerance, and the integer that it writes
is the condition of the loop.

Who reads the condition depends on the platform: a conditional node on the device, where graphs have such nodes, or the
host, between two launches of the loop's body. The description is the same, and so is the number of sweeps: the largest
of the changes does not depend on the order in which they are compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void sweep(const float* old, float* next, int* change, int side) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < 1 || row >= side - 1 || column < 1 || column >= side - 1) return;
    const int at = row * side + column;
    next[at] = 0.25f * ((old[at - side] + old[at + side]) + (old[at - 1] + old[at + 1]));
    atomicMax(change, __float_as_int(fabsf(next[at] - old[at])));  // floats from 0 on are ordered as their bits are
}
extern "C" __global__ void judge(const int* change, int* passes, int* again, float tolerance, int most) {
    passes[0] += 1;
    again[0] = __int_as_float(change[0]) > tolerance && passes[0] < most;
}
"""
SIDE = 64  # cells along each side of the plate
HOT = 100.0  # degrees
TOLERANCE = 1e-3  # degrees
MOST = 100_000  # passes of the loop at most
BLOCK = (32, 4)

Decide = Literal["auto", "device", "host"]


def plate(side: int) -> np.ndarray:
    """Return the plate at the beginning: hot at its upper edge."""
    cells = np.zeros((side, side), dtype="float32")
    cells[0] = HOT
    return cells


def build(side: int = SIDE, decide: Decide = "auto", check_every: int = 1) -> hg.Graph:
    """Declare the loop and what surrounds it.

    Parameters
    ----------
    side : int
        Cells along each side of the plate.
    decide : {"auto", "device", "host"}
        Who reads the condition; "auto" is the device where it can.
    check_every : int
        Passes between two looks at the condition: each look of the host waits for the device.
    """
    g = hg.Graph("jacobi")
    start = g.host_array("start", plate(side))
    result = g.host_array("result", shape=(side, side), dtype="float32")
    u, v = (g.device_array(name, shape=(side, side), dtype="float32") for name in ("u", "v"))
    passes, again = (g.device_array(name, shape=1, dtype="int32") for name in ("passes", "again"))
    tolerance = g.param("tolerance", "float32", TOLERANCE)
    g.memcpy(u, start, name="u_in")
    g.memcpy(v, start, name="v_in")
    g.memset(passes, 0, name="no_passes")
    g.memset(again, 1, name="begin")  # a loop looks before its first pass
    bind = {"u": u, "v": v, "passes": passes, "again": again, "tolerance": tolerance}
    g.conditional("while", again, two_sweeps(side), bind, decide=decide, check_every=check_every, name="converge")
    g.memcpy(result, u, name="out")
    return g


def two_sweeps(side: int) -> hg.Graph:
    """Declare a pass of the loop: a sweep from u to v, one back, and the verdict on the second."""
    module = hg.Module(SOURCE)
    grid = (-(-side // BLOCK[0]), -(-side // BLOCK[1]))

    body = hg.Graph("two_sweeps")
    u, v = (body.device_array(name, shape=(side, side), dtype="float32") for name in ("u", "v"))
    change, passes, again = (body.device_array(name, shape=1, dtype="int32") for name in ("change", "passes", "again"))
    tolerance = body.param("tolerance", "float32")
    body.kernel(module["sweep"], grid, BLOCK, args=(u, v, change, side), name="there")
    body.memset(change, 0, name="forget")
    body.kernel(module["sweep"], grid, BLOCK, args=(v, u, change, side), name="back")
    body.kernel(module["judge"], 1, 1, args=(change, passes, again, tolerance, MOST))
    return body


def reference(side: int, tolerance: float, check_every: int) -> tuple[np.ndarray, int]:
    """Return the plate and the number of passes by NumPy, which adds in the same order."""
    u = plate(side)
    v = u.copy()
    passes, again = 0, True
    while again:
        for _ in range(check_every):
            for old, new in ((u, v), (v, u)):
                new[1:-1, 1:-1] = np.float32(0.25) * ((old[:-2, 1:-1] + old[2:, 1:-1]) + (old[1:-1, :-2] + old[1:-1, 2:]))
            passes += 1
        again = bool(np.abs(u - v).max() > np.float32(tolerance)) and passes < MOST
    return u, passes


def draw(cells: np.ndarray, path: Path) -> None:
    """Write a picture of the plate."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
    image = axis.imshow(cells, cmap="inferno", vmin=0, vmax=HOT, interpolation="bilinear")
    axis.contour(cells, levels=range(10, int(HOT), 10), colors="white", linewidths=0.6)
    axis.set_title(f"A plate of {len(cells)} x {len(cells)} cells, hot at its upper edge")
    axis.set_axis_off()
    figure.colorbar(image, label="degrees")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Let every backend iterate until it has converged, and compare plates and numbers of sweeps with NumPy's."""
    parser = argparse.ArgumentParser(description="Jacobi's method, until it has converged.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--side", type=int, default=SIDE, help="cells along a side (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="degrees (default: %(default)s)")
    parser.add_argument("--decide", choices=("auto", "device", "host"), help="who ends the loop (default: auto, then host)")
    parser.add_argument("--check-every", type=int, default=1, help="passes between two looks (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw the plate: .png or .svg")
    options = parser.parse_args(argv)

    exact, wanted = reference(options.side, options.tolerance, options.check_every)
    print(f"NumPy              {2 * wanted:6d} sweeps")
    right = True
    for decide in (options.decide,) if options.decide else ("auto", "host"):
        g = build(options.side, decide, options.check_every)
        for backend in ("serial", "streams", "capture", "explicit"):
            with g.compile(runtime=options.runtime, backend=backend) as exe:
                exe.run(tolerance=options.tolerance)  # the first launch also warms up
                start = time.perf_counter()
                exe.run()
                elapsed_ms = (time.perf_counter() - start) * 1e3
                cells, passes = exe.read("result"), int(exe.read("passes")[0])
            good = passes == wanted and np.array_equal(cells, exact)
            right &= good
            verdict = "the same plate, to the bit" if good else f"differs by {np.abs(cells - exact).max():g} degrees"
            print(f"{backend:<8}  {decide:<7}  {2 * passes:6d} sweeps, {elapsed_ms:7.1f} ms, {verdict}")

    if not right:
        print("The numbers are wrong.", file=sys.stderr)
        return 1
    if options.picture:
        try:
            draw(cells, options.picture)
        except ModuleNotFoundError as missing:
            print(f"No picture, because {missing.name} is not installed: pip install matplotlib", file=sys.stderr)
            return 1
        print(f"The plate is drawn in {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
