"""Keep a GPU busy until standard input ends: another process, whose kernels of milliseconds stand between those of the tests.

What is right only on an idle GPU is wrong. ``pytest --load`` starts this beside the tests.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void spin(unsigned* x, int turns) {
  unsigned value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int i = 0; i < turns; ++i) value = value * 1664525u + 1013904223u;
  x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}"""
THREADS = 256
TURNS = 1 << 20  # some milliseconds


def main() -> int:
    for name in ("nvidia", "amd"):
        try:
            runtime = hg.open_runtime(name)
            break
        except hg.RuntimeUnavailable as error:
            missing = error
    else:
        print(f"none, because no GPU answers: {missing}", flush=True)
        return 0
    blocks = 4 * runtime.target.multiprocessors
    g = hg.Graph("load")
    x = g.device_array("x", np.arange(blocks * THREADS, dtype="u4"))
    g.kernel(hg.Module(SOURCE, name="load")["spin"], blocks, THREADS, (x, TURNS))
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with g.compile(runtime=runtime) as exe:
        exe.run()
        print(f"another process keeps {runtime.target.name} busy", flush=True)
        while not ended.is_set():
            for _ in range(8):
                exe.launch()
            exe.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
