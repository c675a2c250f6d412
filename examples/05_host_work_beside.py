"""The host works while a launched graph runs.

The source is a lesson on asynchrony with HIP streams, whose point is this: a GPU should not be driven as a
synchronous device. A host that waits after each request leaves it idle; a host that hands in its requests and goes on
working makes

    total time = max(host work, device work) + synchronisation

Its case study is a program that writes its log while the device waits. Here the device adds vectors in a graph, and
the host writes the log of the batch before. Both are timed alone, one after the other, and side by side.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void vector_add(const float* x, const float* y, float* out, int n, int rounds) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = x[i];
    for (int k = 0; k < rounds; ++k) sum += y[i] / rounds;  // the sum in small steps, so that there is something to do
    out[i] = sum;
}
"""
SIZE = 1 << 16
THREADS = 256
ROUNDS = 2048


def build(size: int = SIZE, rounds: int = ROUNDS) -> hg.Graph:
    """Declare a vector addition with its copies."""
    add = hg.Module(SOURCE)["vector_add"]

    g = hg.Graph("vector_add")
    hx = g.host_array("hx", np.arange(size, dtype="float32") % 64)
    hy = g.host_array("hy", np.full(size, 2.0, dtype="float32"))
    total = g.host_array("total", shape=size, dtype="float32")
    x = g.device_array("x", shape=size, dtype="float32")
    y = g.device_array("y", shape=size, dtype="float32")
    out = g.device_array("out", shape=size, dtype="float32")
    g.memcpy(x, hx, name="x_in")
    g.memcpy(y, hy, name="y_in")
    g.kernel(add, grid=-(-size // THREADS), block=THREADS, args=(x, y, hg.writes(out), size, rounds))
    g.memcpy(total, out, name="total_out")
    return g


def write_log(values: np.ndarray) -> str:
    """Return the log of one batch, a line for each value: plain Python, and plenty of it."""
    return "\n".join(f"{i:08d} {value:12.4f} {float(value).hex()}" for i, value in enumerate(values))


def fastest_ms(action: Callable[[], object], repeat: int) -> float:
    """Return the shortest of several runs, in milliseconds."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main(argv: list[str] | None = None) -> int:
    """Time the host's work and the graph alone, in sequence and side by side."""
    parser = argparse.ArgumentParser(description="Host work beside a running graph.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--backend", default="explicit", help="explicit, capture, streams or serial (default: %(default)s)")
    parser.add_argument("--size", type=int, default=SIZE, help="elements (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the fastest counts (default: %(default)s)")
    options = parser.parse_args(argv)

    with build(options.size).compile(runtime=options.runtime, backend=options.backend) as exe:
        exe.run()
        before = exe.read("total")  # the batch whose log is written while the next one is computed
        device = exe.runtime.get_device_name(0)
        graph = fastest_ms(exe.run, options.repeat)
        # As many lines of log as take about as long as the graph: that is where working side by side gains most.
        few = min(256, before.size)
        lines = min(before.size, max(few, int(few * graph / fastest_ms(lambda: write_log(before[:few]), options.repeat))))
        before = before[:lines]

        def stop_and_wait() -> None:
            exe.launch()
            exe.synchronize()
            write_log(before)

        def side_by_side() -> None:
            exe.launch()  # returns at once
            write_log(before)
            exe.synchronize()

        host = fastest_ms(lambda: write_log(before), options.repeat)
        synchronisation = fastest_ms(exe.synchronize, options.repeat)  # of a graph that has already finished
        waiting = fastest_ms(stop_and_wait, options.repeat)
        beside = fastest_ms(side_by_side, options.repeat)
        after = exe.read("total")

    expected = np.arange(options.size, dtype="float32") % 64 + 2.0
    right = bool(np.allclose(after, expected, rtol=1e-5)) and write_log(after[:lines]) == write_log(before)

    bound = max(host, graph) + synchronisation
    print(f"{options.size} elements on {device} and {lines} lines of log, fastest of {options.repeat} runs, milliseconds:")
    print(f"  host work alone              {host:8.2f}")
    print(f"  graph alone                  {graph:8.2f}")
    print(f"  synchronising when it is done{synchronisation:8.2f}")
    print(f"  one after the other          {waiting:8.2f}")
    print(f"  side by side                 {beside:8.2f}")
    print(f"  max(host, graph) + sync      {bound:8.2f}   side by side is {beside / bound:.2f} times this")
    if exe.runtime.target.platform == "cpu":
        print("On the CPU the graph's kernels and the host's work share the cores, so they slow each other down.")
    if not right:
        print("The numbers are wrong.", file=sys.stderr)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
