"""Ranks that declare different graphs, and what each is told."""

from __future__ import annotations

import numpy as np

import hipgraphdsl as hg

ranks = hg.ranks(timeout_s=20)
g = hg.Graph("differs")
x = g.device_array("x", np.zeros(4, np.int32))
g.memset(x, ranks.rank, name="fill")
try:
    g.compile("cpu", ranks=ranks)
except hg.DeclarationError as error:
    print(f"rank {ranks.rank}: {error}", flush=True)
