"""One of several ranks that meet by a store of files.

``by_store.py run|stay FOLDER RANK SIZE``: compare a ring with one process, or launch it until another rank fails.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from file_store import FileStore

import hipgraphdsl as hg
from rank_programs.left_alone import ring


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
            Path(folder, f"launched.{rank}").touch()
            end = time.monotonic() + 40
            while does == "stay" and time.monotonic() < end:
                exe.run()
    except hg.RankError as error:
        print(f"told: {error.rank} {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
