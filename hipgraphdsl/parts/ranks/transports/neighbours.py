"""The processes of other ranks on this machine: which of them precede this one, and whether they still run."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_PLACE: Final = struct.Struct("<QQ")
"""What ranks send each other about themselves: a hash that identifies the machine, and the process ID."""
_EXITING: Final = 0x4
"""Linux's flag PF_EXITING, which a process has before its files and sockets are closed, and so before other ranks notice that."""


def own_place() -> bytes:
    """Return the packed `_PLACE` of this process, to be sent to the other ranks."""
    machine = socket.gethostname()
    with suppress(OSError):  # machines may share a name, and containers on one machine number processes separately
        machine += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return _PLACE.pack(zlib.crc32(machine.encode()), os.getpid())


class Neighbours:
    """The processes of other ranks on this machine; `places` has the `own_place` of each rank."""

    def __init__(self, rank: int, places: Sequence[bytes]) -> None:
        found = [_PLACE.unpack(place) for place in places]
        self._processes = {r: process for r, (where, process) in enumerate(found) if where == found[rank][0] and r != rank}
        self.before = tuple(r for r in self._processes if r < rank)
        """The ranks before this one on the machine."""

    def __contains__(self, rank: int) -> bool:
        return rank in self._processes

    def dead(self, within_s: float = 0) -> int | None:
        """Return a rank whose process has ended or ends within `within_s` seconds, else None."""
        end = time.monotonic() + within_s
        while (found := next((rank for rank, process in self._processes.items() if _has_ended(process)), None)) is None:
            if time.monotonic() >= end:
                break
            time.sleep(0.01)
        return found


def _has_ended(process: int) -> bool:
    """Return whether a process of this machine has ended or is exiting; its launcher may not have reaped it yet."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return os.path.exists("/proc/self/stat")
    state, *_, flags = stat.rpartition(")")[2].split()[:7]
    return state in "ZX" or bool(int(flags) & _EXITING)
