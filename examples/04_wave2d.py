"""A wave in a box: every step goes to the host while later steps are computed.

The source is "Optimising compute with concurrent IO in HIP" by Toby Potter of Pelagos Consulting and Education,
written for the Pawsey Supercomputing Centre. A Ricker wavelet lets off a firework in the middle of a square of air,
and the scalar wave equation carries the sound to the walls and back:

    U2 = 2 U1 - U0 + dt^2 V^2 (d^2 U1 / dx0^2 + d^2 U1 / dx1^2) + f(t)

with fourth-order differences in space. Five wavefields take turns, so a field is copied out while the kernel works on
three others. The document builds this from six streams and five events, waits where it must, and shows that the
result stays the same. Here the steps are declared in order, and which copy runs beside which kernel follows from the
arrays that they touch.

A graph of all steps is one way to say it. The other is a graph of five steps, after which the fields have the same
parts again: its forcing terms are parameters, and a loop launches it with those of the next five steps.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import hipgraphdsl as hg

# U0, U1 and V are only read, so they are pointers to const: nodes that read the same field need no order.
SOURCE = r"""
extern "C" __global__ void wave2d_4o(
    const float* U0, const float* U1, float* U2, const float* V, int N0, int N1,
    float dt2, float inv_dx02, float inv_dx12, int P0, int P1, float pi2fm2t2)
{
    const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 < 2 || i0 >= N0 - 2 || i1 < 2 || i1 >= N1 - 2) return;
    const int at = i0 * N1 + i1;

    const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
    const float along0 = far * (U1[at - 2 * N1] + U1[at + 2 * N1]) + near * (U1[at - N1] + U1[at + N1]) + here * U1[at];
    const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];

    float next = 2.0f * U1[at] - U0[at] + dt2 * V[at] * V[at] * (along0 * inv_dx02 + along1 * inv_dx12);
    if (i0 == P0 && i1 == P1) next += (1.0f - 2.0f * pi2fm2t2) * expf(-pi2fm2t2);
    U2[at] = next;
}
"""
SIDE = 256  # cells along each side of the box
STEPS = 640
FIELDS = 5  # wavefields that take turns
VELOCITY = 343.0  # m/s, sound in air
DX = 1.0  # m between cells
DT = 0.4 * DX / VELOCITY  # s; the document prints 0.00116618
FREQUENCY = VELOCITY / (10.0 * DX)  # Hz, ten cells to a wavelength; the document prints 34.3
DELAY = 2.0 / FREQUENCY  # s until the wavelet's peak, long enough for it to begin at nothing
BLOCK = (64, 4)
TICK = 16  # steps between two reports of progress


def forcing(n: int) -> float:
    """Return (pi f t)^2 at step n, from which the kernel computes the Ricker wavelet."""
    t = n * DT - DELAY
    return (math.pi * FREQUENCY * t) ** 2


def build(steps: int = STEPS, side: int = SIDE, report: Callable[[int], None] | None = None) -> hg.Graph:
    """Declare all steps.

    Parameters
    ----------
    steps : int
        Time steps, each of `DT` seconds.
    side : int
        Cells along each side of the box.
    report : callable, optional
        Called by the graph with the number of steps done, every `TICK` steps.
    """
    g = hg.Graph("wave2d")
    out = g.host_array("out", shape=(steps, side, side), dtype="float32")
    u = fields(g, side)
    g.memset(u, 0, name="silence")  # each launch begins anew
    for n in range(steps):
        step = add_step(g, u, out, n, forcing(n))
        if report is not None and (n + 1) % TICK == 0:
            g.host(report, args=(n + 1,), name=f"report_{n}", after=[step])
    return g


def build_five(side: int = SIDE, keep: Callable[..., None] = print) -> hg.Graph:
    """Declare `FIELDS` steps with forcing terms that each launch gives anew: parameters ``f0``, ``f1``, ...

    Parameters
    ----------
    side : int
        Cells along each side of the box.
    keep : callable
        Called at the end of each launch with its wavefields.
    """
    g = hg.Graph("wave2d_five")
    out = g.host_array("out", shape=(FIELDS, side, side), dtype="float32")
    u = fields(g, side)
    for n in range(FIELDS):
        add_step(g, u, out, n, g.param(f"f{n}", "float32"))
    g.host(keep, args=(out,), reads=[out], name="keep")
    return g


def fields(g: hg.Graph, side: int) -> hg.DeviceArray:
    """Declare the wavefields that take turns, and the velocities."""
    g.device_array("v", np.full((side, side), VELOCITY, dtype="float32"))
    return g.device_array("u", shape=(FIELDS, side, side), dtype="float32")


def add_step(g: hg.Graph, u: hg.DeviceArray, out: hg.HostArray, n: int, force: float | hg.Parameter) -> hg.Node:
    """Declare step n and the copy of the field that it leaves behind."""
    side = u.shape[1]
    u0, u1, u2 = (u[(n + k) % FIELDS] for k in range(3))
    step = g.kernel(
        hg.Module(SOURCE)["wave2d_4o"], (-(-side // BLOCK[0]), -(-side // BLOCK[1])), BLOCK, name=f"step_{n}",
        args=(u0, u1, u2, g.arrays["v"], side, side, DT * DT, 1 / DX**2, 1 / DX**2, side // 2, side // 2, force),
    )  # fmt: skip
    g.memcpy(out[n], u0, name=f"out_{n}")
    return step


def relaunch(steps: int, side: int, runtime: str = "auto", backend: str = "explicit") -> tuple[np.ndarray, float]:
    """Return the wavefields of a loop that launches five steps at a time, and its time in milliseconds."""
    found = np.empty((steps, side, side), dtype="float32")
    beginnings = range(0, steps, FIELDS)
    kept = itertools.cycle(beginnings)

    def keep(out: np.ndarray) -> None:
        first = next(kept)
        found[first : first + FIELDS] = out[: steps - first]

    with build_five(side, keep).compile(runtime=runtime, backend=backend) as exe:
        for _ in range(2):  # the first loop warms up
            exe.write("u", 0)
            start = time.perf_counter()
            for first in beginnings:
                exe.launch(**{f"f{k}": forcing(first + k) for k in range(FIELDS)})
            exe.synchronize()
            elapsed_ms = (time.perf_counter() - start) * 1e3
    return found, elapsed_ms


def reference(steps: int, side: int) -> np.ndarray:
    """Return the same wavefields by NumPy, from the same formula."""
    fields = np.zeros((steps + 2, side, side), dtype="float32")
    inner = slice(2, side - 2)
    centre = (side // 2, side // 2)
    scale = np.float32(DT * DT * VELOCITY**2 / DX**2)
    far, near = np.float32(-1 / 12), np.float32(4 / 3)
    for n in range(steps):
        u0, u1, u2 = fields[n : n + 3]
        laplacian = (
            far * (u1[:-4, inner] + u1[4:, inner] + u1[inner, :-4] + u1[inner, 4:])
            + near * (u1[1:-3, inner] + u1[3:-1, inner] + u1[inner, 1:-3] + u1[inner, 3:-1])
            - np.float32(5.0) * u1[inner, inner]
        )
        u2[inner, inner] = 2 * u1[inner, inner] - u0[inner, inner] + scale * laplacian
        x = forcing(n)
        u2[centre] += (1 - 2 * x) * math.exp(-x)
    return fields[:steps]


def draw(fields: np.ndarray, path: Path) -> None:
    """Write a picture of the wavefield at eight times."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, side = len(fields), fields.shape[1]
    chosen = [min(steps - 1, round(steps * part)) for part in (0.11, 0.2, 0.32, 0.44, 0.56, 0.7, 0.85, 1.0)]
    peak = float(np.percentile(np.abs(fields[chosen]), 99.7)) or 1.0
    extent = (-side * DX / 2, side * DX / 2) * 2

    figure, axes = plt.subplots(2, 4, figsize=(13.5, 7.2), sharex=True, sharey=True, layout="constrained")
    for axis, n in zip(axes.flat, chosen):
        image = axis.imshow(
            fields[n], cmap="RdBu_r", vmin=-peak, vmax=peak, extent=extent, origin="lower", interpolation="bilinear"
        )
        axis.set_title(f"{n * DT * 1e3:.0f} ms", fontsize=12)
        axis.tick_params(labelsize=9)
    figure.supxlabel("metres")
    figure.supylabel("metres")
    figure.suptitle(f"Sound in a box of {side * DX:g} m: the scalar wave equation, {steps} steps", fontsize=14)
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.015, extend="both")
    bar.set_label("amplitude")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def animate(fields: np.ndarray, path: Path) -> None:
    """Write an animation, as GIF or as one HTML page; every fifth step is a frame."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation

    frames = range(0, len(fields), 5)
    peak = float(np.percentile(np.abs(fields), 99.7)) or 1.0
    figure, axis = plt.subplots(figsize=(4.4, 4.6), layout="constrained")
    axis.set_axis_off()
    image = axis.imshow(fields[0], cmap="RdBu_r", vmin=-peak, vmax=peak, origin="lower")
    title = axis.set_title("")

    def show(n: int) -> tuple[object, ...]:
        image.set_data(fields[n])
        title.set_text(f"{n * DT * 1e3:.0f} ms")
        return image, title

    movie = FuncAnimation(figure, show, frames=frames, interval=40)
    if path.suffix == ".html":
        path.write_text(movie.to_jshtml(fps=25), encoding="utf-8")
    else:
        movie.save(path, writer="pillow", fps=25, dpi=90)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Run the wave serially, on streams and as a graph; compare them; write the picture."""
    parser = argparse.ArgumentParser(description="The 2-D wave equation, each step copied out beside the next ones.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="(default: %(default)s)")
    parser.add_argument("--side", type=int, default=SIDE, help="cells along a side (default: %(default)s)")
    parser.add_argument("--picture", type=Path, default=Path("wave2d.png"), metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--animate", type=Path, metavar="FILE", help="also write an animation: .gif or .html")
    options = parser.parse_args(argv)

    right = True
    serial = np.empty(0)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
    )
    lines = []
    with Progress(*columns) as progress:
        for backend in ("serial", "streams", "explicit", "capture"):
            task = progress.add_task(f"{backend:<8}", total=options.steps)

            def report(done: int, task: object = task) -> None:
                progress.update(task, completed=done)  # type: ignore[arg-type]

            g = build(options.steps, options.side, report)
            with g.compile(runtime=options.runtime, backend=backend) as exe:
                exe.run()  # the first launch also warms up
                start = time.perf_counter()
                exe.run()
                elapsed_ms = (time.perf_counter() - start) * 1e3
                wave = exe.read("out")
                device = exe.runtime.get_device_name(0)
            progress.update(task, completed=options.steps)
            if backend == "serial":
                serial = wave
            residual = float(np.max(np.abs(wave - serial)))
            right &= residual == 0.0
            lines.append(f"{backend:<8} {elapsed_ms:8.1f} ms, residual to serial {residual}")
    again, elapsed_ms = relaunch(options.steps, options.side, options.runtime)
    residual = float(np.max(np.abs(again - serial)))
    right &= residual == 0.0
    lines.append(f"five steps launched {-(-options.steps // FIELDS)} times {elapsed_ms:8.1f} ms, residual to serial {residual}")
    print(f"{options.steps} steps of {options.side} x {options.side} cells on {device}, each copied to the host:")
    print("\n".join(lines))

    exact = reference(options.steps, options.side)
    largest = float(np.max(np.abs(exact)))
    error = float(np.max(np.abs(wave - exact))) / largest if largest else 0.0
    right &= error < 1e-4
    print(f"The same formula in NumPy differs by {error:.1e} of the largest amplitude.")

    if not right:
        print("The numbers are wrong.", file=sys.stderr)
        return 1
    try:
        draw(wave, options.picture)
        print(f"Wavefields: {options.picture}")
        if options.animate:
            animate(wave, options.animate)
            print(f"Animation: {options.animate}")
    except ModuleNotFoundError as missing:
        print(f"No picture, because {missing.name} is not installed: pip install matplotlib pygraphviz", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
