"""Batches through a pipeline: while one batch is computed, the next comes in and the last goes out.

The source is the exercise "Overlapping Compute & Transfer" of the course "CUDA Programming: Streams & Async". Each
batch is copied to the device, processed by a kernel and copied back. A GPU has one engine for each direction of
copies and one for kernels, and the three work at the same time: four batches of three stages take 6 units of time,
not 12.

The graph is declared stage by stage and batch by batch. That batches are independent follows from the parts of the
arrays that their nodes touch. `simulate` then says when each node would run on such a machine, and `profile` when it
did run on this one.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void process(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = sqrtf(in[i]);
}
"""
BATCHES = 4
BATCH_SIZE = 1024
THREADS = 256


def build(batches: int = BATCHES, batch_size: int = BATCH_SIZE) -> hg.Graph:
    """Declare three stages for each batch; each batch has its own part of the arrays."""
    process = hg.Module(SOURCE)["process"]
    size = batches * batch_size

    g = hg.Graph("pipeline")
    h_in = g.host_array("h_in", np.arange(1, size + 1, dtype="float32"))
    h_out = g.host_array("h_out", shape=size, dtype="float32")
    d_in = g.device_array("d_in", shape=size, dtype="float32")
    d_out = g.device_array("d_out", shape=size, dtype="float32")
    for i in range(batches):
        part = slice(i * batch_size, (i + 1) * batch_size)
        g.memcpy(d_in[part], h_in[part], name=f"H2D{i}")
        g.kernel(
            process, grid=-(-batch_size // THREADS), block=THREADS, name=f"K{i}",
            args=(d_in[part], hg.writes(d_out[part]), batch_size),
        )  # fmt: skip
        g.memcpy(h_out[part], d_out[part], name=f"D2H{i}")
    return g


def main(argv: list[str] | None = None) -> int:
    """Print the timeline that the exercise asks for, then measure the same graph."""
    parser = argparse.ArgumentParser(description="Batches whose copies and kernels overlap: predicted and measured.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--backend", default="explicit", help="explicit, capture, streams or serial (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=BATCHES, help="(default: %(default)s)")
    parser.add_argument(
        "--batch-size", type=int, default=1 << 20,
        help=f"elements of a batch when it is measured (default: %(default)s; the exercise has {BATCH_SIZE})",
    )  # fmt: skip
    options = parser.parse_args(argv)

    predicted = build(options.batches).simulate({"H2D": 1, "kernel": 1, "D2H": 1}, {"H2D": 1, "kernel": 1, "D2H": 1})
    print(predicted.render("Overlapping Compute & Transfer Pipeline"))
    stages = 3
    right = (
        predicted.sequential == options.batches * stages  # nothing overlaps
        and predicted.makespan == options.batches + stages - 1  # the pipeline's formula
    )

    g = build(options.batches, options.batch_size)
    with g.compile(runtime=options.runtime, backend=options.backend) as exe:
        exe.run()
        result = exe.read("h_out")
        measured = exe.profile()
        device = exe.runtime.get_device_name(0)
    roots = np.sqrt(np.arange(1, result.size + 1, dtype="float32"))
    right &= bool(np.allclose(result, roots, rtol=1e-6))

    print(f"\nMeasured, {options.batches} batches of {options.batch_size} elements on {device}:")
    print(measured)
    if not right:
        print("The numbers are wrong.", file=sys.stderr)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
