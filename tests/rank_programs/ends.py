"""Rank 1 ends its program while the others wait for it."""

from __future__ import annotations

import sys

import numpy as np

import hipgraphdsl as hg

ranks = hg.ranks(timeout_s=60)
g = hg.Graph("ends")
x, y = (g.device_array(name, np.zeros(4, np.int32), device=d) for d, name in enumerate("xy"))
g.memcpy(x, y, name="bring")
executable = g.compile("cpu", ranks=ranks)
executable.run()
if ranks.rank == 1:
    sys.exit()
for call in (executable.run, lambda: g.compile("cpu", ranks=ranks)) if ranks.rank == 0 else ():
    try:
        call()
    except hg.RankError as error:
        print(f"{error.rank}: {error}", flush=True)
