"""Ranks as threads of one process: what programs over several ranks do, without processes and without MPI.

A send is done when it has been received, as large messages of MPI are: an order of messages that could hang does hang, and fails.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hipgraphdsl as hg
from hipgraphdsl.parts.ranks.transports import Transfer, Transport


class Meeting:
    """What the threads have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.sent: dict[tuple[int, int, int], deque[list[bytes]]] = {}
        """Messages by sender, receiver and tag; each a list that is emptied when it is received."""
        self.why = ""
        self.given: list[bytes | None] = [None] * size
        self.taken = 0
        self.count = 0
        """Messages that have been received."""
        self.told: dict[int, bytes] = {}
        """What ranks have told of launches that they do not make."""
        self.overdue: list[str] = []
        """Waits that their time-out has ended."""


class ThreadTransport(Transport):
    """The transport of one thread."""

    name = "threads"

    def __init__(self, meeting: Meeting, rank: int) -> None:
        super().__init__()
        self.meeting = meeting
        self.rank = rank
        self.size = meeting.size

    @property
    def broken(self) -> str:
        return self.meeting.why

    def all_gather(self, data: bytes, what: str, timeout_s: float, world: int = 0) -> list[bytes]:
        meeting = self.meeting
        with meeting.changed:
            self._wait(lambda: meeting.given[self.rank] is None, what, timeout_s)
            meeting.given[self.rank] = data
            meeting.changed.notify_all()
            self._wait(lambda: None not in meeting.given, what, timeout_s)
            found = [entry for entry in meeting.given if entry is not None]
            meeting.taken += 1
            if meeting.taken == meeting.size:
                meeting.given, meeting.taken = [None] * meeting.size, 0
                meeting.changed.notify_all()
            return found

    def exchange(self, transfers: Sequence[Transfer], timeout_s: float) -> None:
        meeting = self.meeting
        names = ", ".join(repr(transfer.name) for transfer in transfers)
        with meeting.changed:
            sends: list[list[bytes]] = []
            receives = []
            for transfer in transfers:
                if transfer.sends:
                    sends.append([ctypes.string_at(transfer.address, transfer.nbytes)])
                    meeting.sent.setdefault((self.rank, transfer.rank, transfer.tag), deque()).append(sends[-1])
                else:
                    receives.append(transfer)
            meeting.changed.notify_all()
            for transfer in receives:
                box = meeting.sent.setdefault((transfer.rank, self.rank, transfer.tag), deque())
                self._wait(lambda box=box: bool(box), names, timeout_s)  # type: ignore[misc]
                found = box.popleft().pop()
                assert len(found) == transfer.nbytes
                ctypes.memmove(transfer.address, found, transfer.nbytes)
                meeting.count += 1
                meeting.changed.notify_all()
            self._wait(lambda: not any(sends), names, timeout_s)

    def _wait(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not done():
            self.listen()
            if not self.meeting.changed.wait(max(0.0, end - time.monotonic())) and not done():
                self.meeting.overdue.append(f"rank {self.rank} waits in {what}")
                self.fail(self.meeting.overdue[-1])
                raise hg.RankError(self.meeting.why)

    def listen(self, why: str = "") -> None:
        if self.meeting.why:
            raise hg.RankError(self.meeting.why)
        for rank, told in self.meeting.told.items():
            if rank != self.rank:
                self.absences.hear(rank, told)
        self._require_present()

    def _tell_absences(self, told: bytes) -> None:
        with self.meeting.changed:
            self.meeting.told[self.rank] = told
            self.meeting.changed.notify_all()

    def fail(self, why: str, rank: int | None = None) -> None:
        with self.meeting.changed:
            self.meeting.why = self.meeting.why or why
            self.meeting.changed.notify_all()

    def close(self) -> None:
        pass


def on_ranks(
    count: int,
    do: Callable[[hg.Ranks], Any],
    *,
    devices_per_rank: Sequence[int] = (),
    timeout_s: float = 20,
    in_time: bool = False,
) -> list[Any]:
    """Return what a function returns for each rank; the first error is raised when all have ended.

    With `in_time` no wait may have been ended by its time-out: each has been told what happened.
    """
    meeting = Meeting(count)

    def one(rank: int) -> Any:
        ranks = hg.Ranks(ThreadTransport(meeting, rank), tuple(devices_per_rank) or (1,) * count, timeout_s)
        try:
            return do(ranks)
        except BaseException as error:
            ranks.transport.fail(f"rank {rank}: {error}")
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(one, rank) for rank in range(count)]
    assert not (in_time and meeting.overdue), meeting.overdue
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, hg.RankError)), errors[0])
    return [future.result() for future in futures]
