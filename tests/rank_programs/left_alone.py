"""One of several ranks that launch a ring again and again; one of them kills itself, and the others write what they are told.

``left_alone.py FOLDER VICTIM SECONDS``
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import hipgraphdsl as hg

SOURCE = """extern "C" __global__ void add(int* x, int k) { x[threadIdx.x] += k; }"""


def ring(size: int) -> hg.Graph:
    """Every device adds one and hands the values on."""
    g = hg.Graph("ring")
    x = [g.device_array(f"x{d}", np.zeros(64, np.int32), device=d) for d in range(size)]
    for d in range(size):
        g.kernel(hg.Module(SOURCE)["add"], 1, 64, (x[d], 1), name=f"add_{d}")
        g.memcpy(x[(d + 1) % size], x[d], name=f"hand_{d}")
    return g


def main(folder: str, victim: str, seconds: str) -> None:
    """Be one rank."""
    ranks = hg.ranks(timeout_s=20)
    if ranks.rank == int(victim):
        threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()
    end = time.monotonic() + 60
    said = "nothing"
    try:
        with ring(ranks.size).compile("cpu", ranks=ranks) as exe:
            while time.monotonic() < end:
                exe.run()
    except hg.RankError as error:
        said = f"{error.rank} {error}"
    except BaseException as error:
        said = f"{type(error).__name__} {error}"
    Path(folder, f"said.{ranks.rank}").write_text(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
