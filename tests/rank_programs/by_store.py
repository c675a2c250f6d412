"""One of several ranks that meet by a store of files.

``by_store.py run|stay|fork FOLDER RANK SIZE``: compare a ring with one process, or launch it until another rank fails, or while
a fork of rank 1 begins and ends.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from file_store import FileStore

import hipgraphdsl as hg
from rank_programs.left_alone import ring


def fork(exe: Any, ranks: hg.Ranks) -> None:
    """Let a fork of rank 1 try to act for it, and end as programs do; then go on."""
    if ranks.rank == 1:
        if (process := os.fork()) == 0:
            for call in (exe.run, lambda: exe.gather("x0"), lambda: ring(2).compile("cpu", ranks=ranks)):
                try:
                    call()
                except hg.HipGraphError as error:
                    print(f"fork: {type(error).__name__}: {error}", flush=True)
            ranks.transport.fail("its fork has failed")
            sys.exit()
        os.waitpid(process, 0)
    time.sleep(0.2)  # a rank that has ended is noticed after two looks
    for _ in range(3):
        exe.run()
    print("goes on", flush=True)


def main(does: str, folder: str, rank: str, size: str) -> None:
    """Be one rank."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s", force=True)
    ranks = hg.ranks(rank=int(rank), size=int(size), store=FileStore(Path(folder) / "store"), timeout_s=20)
    try:
        with ring(ranks.size).compile("cpu", ranks=ranks) as exe:
            for _ in range(3):
                exe.run()
            found = exe.gather("x0")
            if found is not None and does == "run":
                assert (found[0] == 3 * ranks.size).all(), found
                print(f"the same bits from {ranks.size} ranks")
            if does == "fork":
                fork(exe, ranks)
            Path(folder, f"launched.{rank}").touch()
            end = time.monotonic() + 40
            while does == "stay" and time.monotonic() < end:
                exe.run()
    except hg.RankError as error:
        print(f"told: {error.rank} {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
