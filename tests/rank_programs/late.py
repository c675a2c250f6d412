"""Rank 1 ends without having called `hg.ranks`."""

from __future__ import annotations

import os
import sys

import hipgraphdsl as hg

if os.environ["PMI_RANK"] == "1":
    sys.exit()
try:
    hg.ranks(timeout_s=1)
except hg.RankError as error:
    print(error, flush=True)
os._exit(0)  # MPI_Init waits still
