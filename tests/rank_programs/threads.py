"""Two threads of each rank, with `hg.ranks()` of their own, launch graphs whose messages have equal names and sizes.

Then a graph is launched with a parameter that it does not have, which each rank reports to the other many times.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

import hipgraphdsl as hg


def declared(name: str, value: int) -> hg.Graph:
    """Return a graph that hands values from rank 0 to rank 1."""
    g = hg.Graph(name)
    x, y = (g.device_array(name, np.full(64, value, np.int32), device=d) for d, name in enumerate("xy"))
    g.memcpy(y, x, name="hand")
    g.memset(x, value + 1, name="next")
    return g


ranks = [hg.ranks(timeout_s=20) for _ in range(2)]
executables = [declared(f"of thread {k}", 100 * k).compile("cpu", ranks=mine) for k, mine in enumerate(ranks)]
wrong: list[tuple[int, int]] = []


def work(k: int) -> None:
    """Launch, at another pace on each rank and in each thread."""
    for i in range(60):
        executables[k].run()
        if ranks[k].rank == 1 and (found := int(executables[k].read("y")[0])) != 100 * k + (i > 0):
            wrong.append((k, found))
        time.sleep(0.0005 * ((i + k + ranks[k].rank) % 3))


threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"rank {ranks[0].rank}: {len(wrong)} wrong {wrong[:4]}", flush=True)
for refused in (40, 1):
    for _ in range(refused):
        with suppress(hg.DeclarationError):
            executables[0].launch(nothing=1)
    executables[0].run()
    time.sleep(0.2)
transport: Any = ranks[0].transport
print(f"rank {transport.rank}: {len(transport._kept)} reports are kept", flush=True)
for executable in executables:
    executable.close()
