"""One description, four ways to run it: serial, on a stream, on streams with events, and as one graph.

The source is the page "Asynchronous concurrent execution" of AMD's HIP documentation, whose example is a program in
several versions: sequential, on streams, and on streams with events. Fifty times over, two arrays are copied to the
device, kernel A adds 1 to the first, kernel B adds the first and 3 to the second, and both are copied back. At the
end A is 50, and B is 2 + 3 * 50 + 50 * 51 / 2 = 1427.

Here the fifty iterations are declared once, and the argument `backend` of `compile` is the whole difference.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void kernelA(double* a, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += 1.0;
}
extern "C" __global__ void kernelB(const double* a, double* b, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] += a[i] + 3.0;
}
"""
SIZE = 1 << 20
FULL_SIZE = 1 << 25
ITERATIONS = 50
THREADS = 1024
INITIAL_A = 0.0
INITIAL_B = 2.0

WAYS = (
    ("serial", "serial", 1, "the host waits after every call"),
    ("stream", "streams", 1, "all calls on one stream"),
    ("streams and events", "streams", 2, "two streams, ordered by events"),
    ("graph", "explicit", "auto", "one HIP graph, one call"),
)


def build(size: int = SIZE, iterations: int = ITERATIONS) -> hg.Graph:
    """Declare all iterations; nodes of different arrays are independent, and the graph knows it."""
    module = hg.Module(SOURCE)
    blocks = -(-size // THREADS)

    g = hg.Graph("iterations")
    host_a = g.host_array("host_a", np.full(size, INITIAL_A))
    host_b = g.host_array("host_b", np.full(size, INITIAL_B))
    a = g.device_array("a", shape=size, dtype="float64")
    b = g.device_array("b", shape=size, dtype="float64")
    for i in range(iterations):
        g.memcpy(a, host_a, name=f"copy_a_in_{i}")
        g.memcpy(b, host_b, name=f"copy_b_in_{i}")
        g.kernel(module["kernelA"], grid=blocks, block=THREADS, args=(a, size), name=f"kernelA_{i}")
        g.kernel(module["kernelB"], grid=blocks, block=THREADS, args=(a, b, size), name=f"kernelB_{i}")
        g.memcpy(host_a, a, name=f"copy_a_out_{i}")
        g.memcpy(host_b, b, name=f"copy_b_out_{i}")
    return g


def expected(iterations: int) -> tuple[float, float]:
    """Return what the document's formulas say of A and B."""
    a = INITIAL_A + iterations
    b = INITIAL_B + 3.0 * iterations + a * (a + 1.0) / 2.0
    return a, b


def main(argv: list[str] | None = None) -> int:
    """Run the four ways, check A and B, and print their times side by side."""
    parser = argparse.ArgumentParser(description="Serial, on a stream, on streams with events, and as one graph.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--size", type=int, default=SIZE, help="elements of each array (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help=f"the document's size, {FULL_SIZE} elements: 1 GB of memory")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="(default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts (default: %(default)s)")
    options = parser.parse_args(argv)
    size = FULL_SIZE if options.full else options.size

    g = build(size, options.iterations)
    wanted_a, wanted_b = expected(options.iterations)
    right = True
    table = Table(title=f"{options.iterations} iterations over 2 x {size} float64", title_justify="left")
    for column in ("", "ms", "A", "B", "how"):
        table.add_column(column, justify="right" if column in ("ms", "A", "B") else "left")
    for way, backend, lanes, how in WAYS:
        with g.compile(runtime=options.runtime, backend=backend, lanes=lanes) as exe:
            device = exe.runtime.get_device_name(0)
            fastest = float("inf")
            for _ in range(options.repeat):
                exe.write("host_a", np.full(size, INITIAL_A))
                exe.write("host_b", np.full(size, INITIAL_B))
                start = time.perf_counter()
                exe.run()
                fastest = min(fastest, time.perf_counter() - start)
            host_a, host_b = exe.read("host_a"), exe.read("host_b")
        good = bool(np.all(host_a == wanted_a) and np.all(host_b == wanted_b))
        right &= good
        table.add_row(way, f"{fastest * 1e3:.1f}", f"{host_a[0]:g}", f"{host_b[0]:g}", how if good else "[red]wrong")
    console = Console()
    console.print(table)
    console.print(f"Fastest of {options.repeat} runs on {device}; A must be {wanted_a:g} and B {wanted_b:g}.", highlight=False)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
