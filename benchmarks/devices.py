"""``hipgraphdsl bench devices``: one wave over 1, 2, 4, ... devices, by halo exchange.

Each device owns a band of rows. A step computes the rows next to the neighbours, sends them there by peer copies, and
computes the rest of the band meanwhile. The same bits must come out of any number of devices.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from benchmarks.shapes import KERNELS
from hipgraphdsl.arrays import writes
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.errors import HipGraphError
from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import Column, Sheet, finish, machine, percentile, repeat_us, without_gc
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

_REACH: Final = 2  # rows that a cell needs on either side
_FIELDS: Final = 3  # wavefields that take turns
_BLOCK: Final = (64, 4)
_BYTES_A_CELL: Final = 16  # three fields are read and one is written
_ROUNDS: Final = 5

_COLUMNS: Final = (
    Column("grid", "grid", "rows x columns"),
    Column("backend", "backend"),
    Column("devices", "devices"),
    Column("nodes", "nodes", "of the graph"),
    Column("build_ms", "build\nms", "lowering and instantiating, milliseconds"),
    Column("step_us", "step\nus", "one time step of the whole grid, median, microseconds"),
    Column("rate", "GB/s", "bytes that the kernels read and write, all devices together"),
    Column("speedup", "speed-up", "against one device with the same backend"),
    Column("share", "of ideal\n%", "speed-up by the number of devices"),
    Column("bits", "bits", "whether the last field is that of one device, bit for bit"),
)

Backend = Literal["explicit", "capture", "streams"]


def bands(rows: int, devices: int) -> list[tuple[int, int]]:
    """Return for each device its first row and the row past its last; rows at the walls never change."""
    inner = rows - 2 * _REACH
    cuts = [_REACH + inner * d // devices for d in range(devices + 1)]
    return list(pairwise(cuts))


def wave(devices: int, steps: int, rows: int, columns: int) -> Graph:
    """Return `steps` time steps of a wave, its rows shared out over devices 0 to `devices` - 1."""
    owned = bands(rows, devices)
    kernel = KERNELS["wave2d_rows"]
    g = Graph(f"wave_on_{devices}")
    u, v = [], []
    for d, (first, stop) in enumerate(owned):
        height = stop - first
        u.append(g.device_array(f"u{d}", shape=(_FIELDS, height + 2 * _REACH, columns), dtype="float32", device=d))
        v.append(g.device_array(f"v{d}", shape=(height, columns), dtype="float32", device=d))
        g.memset(u[d], 0)
        g.memset(v[d], 0.5)

    def compute(n: int, d: int, begin: int, end: int) -> None:
        u0, u1, u2 = (u[d][(n + k) % _FIELDS] for k in range(3))
        own = slice(_REACH + begin, _REACH + end)
        grid = (-(-columns // _BLOCK[0]), -(-(end - begin) // _BLOCK[1]))
        place = (rows // 2 - owned[d][0] - begin, columns // 2)
        args = (u0[own], u1[begin : end + 2 * _REACH], writes(u2[own]), v[d][begin:end], end - begin, columns, 1.0, *place)
        g.kernel(kernel, grid, _BLOCK, (*args, 1.0 / (1 + n)))

    for n in range(steps):
        heights = [stop - first for first, stop in owned]
        for d, height in enumerate(heights):
            if d > 0:
                compute(n, d, 0, _REACH)
            if d < devices - 1:
                compute(n, d, height - _REACH, height)
        for d, height in enumerate(heights[:-1]):
            mine, theirs = u[d][(n + 2) % _FIELDS], u[d + 1][(n + 2) % _FIELDS]
            g.memcpy(theirs[:_REACH], mine[height : height + _REACH])
            g.memcpy(mine[height + _REACH :], theirs[_REACH : 2 * _REACH])
        for d, height in enumerate(heights):
            compute(n, d, _REACH if d > 0 else 0, height - (_REACH if d < devices - 1 else 0))
    return g


def _digest(exe: Executable, devices: int, steps: int) -> str:
    """Return the hash of the last field, whose rows are distributed over all devices."""
    found = hashlib.sha256()
    for d in range(devices):
        found.update(exe.read(f"u{d}")[(steps + 1) % _FIELDS, _REACH:-_REACH].data)
    return found.hexdigest()


def run(
    runtime: Runtime,
    counts: Sequence[int],
    grids: Sequence[tuple[int, int]],
    steps: int = 300,
    backends: Sequence[Backend] = ("explicit", "streams"),
    rounds: int = _ROUNDS,
    report: Callable[[str], None] = no_progress,
) -> Sheet:
    """Measure each grid of rows and columns with each number of devices, 1 among them, and each backend."""
    sheet = Sheet("devices", _COLUMNS, section="grid", machine=machine(runtime))
    for rows, columns in grids:
        alone_us: dict[str, float] = {}
        bits = ""
        for devices in sorted(counts):
            graph = wave(devices, steps, rows, columns)
            for backend in backends:
                report(f"{rows} x {columns}, {devices} devices, {backend}")
                row: dict[str, Any] = {"grid": f"{rows} x {columns}", "backend": backend, "devices": devices}
                row["nodes"] = len(graph)
                try:
                    with graph.compile(runtime=runtime, backend=backend, check=False) as exe, without_gc():
                        exe.run()
                        step_us = percentile(repeat_us(exe.run, rounds), 50) / steps
                        digest = _digest(exe, devices, steps)
                        row["build_ms"] = exe.stats.build_us / 1e3
                except HipGraphError as error:  # one way may be refused by a driver, and the others still count
                    sheet.notes.append(f"{rows} x {columns}, {devices} devices, {backend}: {error}")
                    continue
                alone_us.setdefault(backend, step_us)
                bits = bits or digest
                row["step_us"] = step_us
                row["rate"] = rows * columns * _BYTES_A_CELL / step_us / 1e3
                row["speedup"] = alone_us[backend] / step_us
                row["share"] = 100 * row["speedup"] / devices
                row["bits"] = "same" if digest == bits else "differ"
                sheet.rows.append(row)
    return sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: auto)")
    parser.add_argument("--devices", type=positive, nargs="+", metavar="N", help="how many devices (default: 1, 2, 4, ... all)")
    backends = ("explicit", "capture", "streams")
    parser.add_argument(
        "--backends", nargs="+", choices=backends, default=["explicit", "streams"], help="(default: explicit streams)"
    )
    parser.add_argument("--rows", type=positive, nargs="+", metavar="N", help="rows of each grid (default: 8192 16384; CPU: 512)")
    parser.add_argument("--columns", type=positive, metavar="N", help="columns (default: 8192; CPU: 512)")
    parser.add_argument("--steps", type=positive, default=300, metavar="N", help="time steps of a launch (default: 300)")
    parser.add_argument("--quick", action="store_true", help="two launches of 60 steps")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    runtime = open_runtime(args.runtime)
    there = runtime.get_device_count()
    counts = sorted({1, *(args.devices or [n for n in (2, 4, 8, there) if n <= there])})
    on_cpu = runtime.target.platform == "cpu"
    columns = args.columns or (512 if on_cpu else 8192)
    grids = [(rows, columns) for rows in (args.rows or ((512,) if on_cpu else (8192, 16384)))]
    with progress_bar("bench devices", None, len(counts) * len(grids) * len(args.backends)) as report:
        sheet = run(runtime, counts, grids, 60 if args.quick else args.steps, args.backends, 2 if args.quick else _ROUNDS, report)
    finish(sheet, args)
    return int(any(row["bits"] != "same" for row in sheet.rows))
