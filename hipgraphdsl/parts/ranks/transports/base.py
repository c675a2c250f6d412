"""The interface of all transports."""

from __future__ import annotations

import atexit
import math
import os
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from ....errors import RankError
from .absences import ASK_S, Absences, Calls
from .neighbours import Neighbours, own_place

WORLDS: Final = 64
"""Number of `Ranks` of one transport with distinct tags; the tags of later ones wrap around."""
ITSELF: Final = -1
"""Denotes the failing rank itself."""
LOOK_S: Final = 0.05
"""Interval at which a wait checks the other ranks."""
_PAUSE_S: Final = 0.0002
LOST: Final = threading.Event()
"""Set when the launcher of the ranks reports that one has died."""
_NOTE: Final = struct.Struct("<ii")
"""Header of a failure note, before the reason: the rank that fails, and the rank at fault, negative if unknown."""


def listed(names: Sequence[str]) -> str:
    """Return names for a message, the first four of them."""
    return ", ".join(map(repr, names[:4])) + ", ..." * (len(names) > 4)


class Transfer(NamedTuple):
    """One message as a rank sends or receives it."""

    name: str  # for errors: the node's
    rank: int  # the other rank
    sends: bool
    tag: int  # distinguishes it from others between the same ranks; the same at both: `Ranks.tag`
    address: int  # of memory of this process
    nbytes: int  # 0 for a message that only orders
    memory: Any = None  # keeps the memory alive, if not None


class Transport(ABC):
    """The calls of one communication library.

    No wait is unbounded: each ends with a `RankError` when it times out, when another rank reports that it has failed, when a
    rank that it waits for has ended, and as soon as the library reports that a rank has died. After an error the transport is
    `broken`, and every later call raises the error again.
    """

    name: str
    rank: int
    size: int
    before_here: tuple[int, ...] = ()
    """The lower-numbered ranks whose processes are on the same machine."""
    worlds: int = 0
    """Number of `Ranks` made of it; each is a separate world, whose messages have tags of their own."""
    still_writes: bool = False
    """Whether abandoned messages may still write to their memory, which must then be kept alive."""

    _why: str = ""
    _culprit: int | None = None
    """The rank at fault."""
    _neighbours: Neighbours | None = None
    _looked = 0.0
    """Time of the last check of the other ranks; infinite while no check is possible."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._meetings: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        """A lock per world, because only one thread of a world may be in `all_gather` at a time."""
        self.absences = Absences()
        """Calls that some ranks make and others do not, and which ranks wait for which."""
        self._answered = -math.inf
        self._process = os.getpid()

    def new_world(self) -> int:
        """Return the number of a new world, below `WORLDS`."""
        with self._lock:
            self.worlds += 1
            return (self.worlds - 1) % WORLDS

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the rank: it has neither the rank's connections nor its threads, and says nothing."""
        return os.getpid() != self._process

    @property
    def broken(self) -> str:
        """Reason why the transport can no longer be used; empty while it works."""
        return self._why

    def _raise(self, why: str, rank: int | None) -> NoReturn:
        """Report to the other ranks why this one fails and which rank is at fault, and raise the error here."""
        self.fail(why, rank)
        raise RankError(why, rank=rank)

    @abstractmethod
    def all_gather(self, data: bytes, what: str, timeout_s: float, world: int = 0) -> list[bytes]:
        """Return the `data` of every rank, all of one length; threads may call it at once for different worlds below `WORLDS`."""

    @abstractmethod
    def exchange(self, transfers: Sequence[Transfer], timeout_s: float) -> None:
        """Send and receive all messages, and wait for their completion; host memory only."""

    def _raise_broken(self) -> None:
        if self._why:
            raise RankError(self._why, rank=self._culprit)

    def _require_whole(self, what: str) -> None:
        """Raise if the transport is broken, if another rank has failed or died, or in a fork of this one."""
        if self.forked:
            raise RankError(
                f"{what}: process {os.getpid()} is a fork of rank {self.rank}, process {self._process}, and cannot act for it;"
                " start workers by multiprocessing's 'spawn' method",
                rank=self.rank,
            )
        if self._why:
            raise RankError(f"{what}: the ranks have come apart: {self._why}; start the program again", rank=self._culprit)
        self.listen(f", and is needed for {what}")

    def _meet(self, timeout_s: float) -> None:
        """Meet the other ranks for the first time, find those on this machine, and let process exit wait for all ranks."""
        self._neighbours = Neighbours(self.rank, self.all_gather(own_place(), "hg.ranks()", timeout_s))
        self.before_here = self._neighbours.before
        atexit.register(self.close)

    def listen(self, why: str = "") -> None:
        """Raise if another rank has failed or died; waits call it repeatedly. `why` is appended to the error of a death."""
        with self._lock:
            now = time.monotonic()
            if not self._why and now - self._looked > LOOK_S:
                self._looked = now
                if note := self._failure():
                    self._take_down(note)
                    self._raise_broken()
                dead = None if self._neighbours is None else self._neighbours.dead()
                if dead is not None or LOST.is_set():
                    self._raise(f"{'a rank' if dead is None else f'rank {dead}'} has died{why}", dead)
                self._hear_absences()
                self._require_present()
        self._raise_broken()

    def _require_present(self) -> None:
        """Raise if this rank has made a launch that another rank does not make."""
        missed = self.absences.missed()
        if missed is not None:
            self._raise(*missed)

    def _failure(self) -> bytes:
        """Return the note of a rank that has failed, empty if there is none."""
        return b""

    def _take_down(self, note: bytes) -> None:
        """Mark the transport as broken, for the reason in another rank's note."""
        writer, culprit = _NOTE.unpack_from(note)
        said = note[_NOTE.size :].decode(errors="replace")
        self._culprit = None if culprit < 0 else culprit
        self._why = f"rank {writer} has stopped: {said}" if culprit == writer else f"{said} (as rank {writer} says)"

    def wait_until(
        self, is_done: Callable[[], bool], late: Callable[[], dict[int, str]], what: str, timeout_s: float, most_s: float
    ) -> None:
        """Wait for other ranks until `is_done()`; `late` returns those still waited for, each as ``{rank: "does not send 'x'"}``.

        `most_s` is the longest pause before `is_done` is called again.
        """
        began = looked = time.monotonic()
        pause_s = _PAUSE_S
        ended: set[int] = set()
        try:
            while not is_done():
                self.listen(f", and is needed for {what}")
                now = time.monotonic()
                if now - began > timeout_s and (missing := late()):
                    self._raise_late(missing, timeout_s)
                if now - looked > LOOK_S:
                    looked, missing = now, late()
                    self.absences.wait_for(missing)
                    for rank in filter(self._has_ended, missing):
                        if rank in ended:  # messages sent before its end may arrive later, but not this late
                            self._raise(f"rank {rank} has come to the end of its program, and {missing[rank]}", rank)
                        ended.add(rank)
                time.sleep(pause_s)
                pause_s = min(most_s, 1.5 * pause_s)
        except RankError:
            raise
        except BaseException as error:  # Ctrl-C, say: the others would take this rank's next message for this one
            self.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.absences.wait_for({})

    def _has_ended(self, rank: int) -> bool:
        """Return whether a rank has reported that it sends and receives no more."""
        return False

    def fail(self, why: str, rank: int | None = ITSELF) -> None:
        """Report to all others, as far as possible, that this rank fails, why, and which rank is at fault (None if unknown)."""
        if self.forked:
            return
        with self._lock:
            if not self._why:
                self._why, self._culprit = why, self.rank if rank == ITSELF else rank
                self._tell(_NOTE.pack(self.rank, -1 if self._culprit is None else self._culprit) + why.encode())

    def _tell(self, note: bytes) -> None:  # noqa: B027 - one rank alone has nobody to tell
        """Send a failure note to all others."""

    def refuse(self, calls: Calls, why: str) -> None:
        """Report that this rank has refused a launch and continues: an error for ranks that have made the same launch."""
        if self.forked:
            return
        with self._lock:
            calls.refuse(why)
            if not self._why:
                self._tell_absences(self.absences.told())
                self._hear_absences()  # the others may refuse it too, and their reports must not pile up

    def blame(self, late: Mapping[int, str], timeout_s: float) -> tuple[int | None, str]:
        """Return the rank that keeps this one waiting, None if every rank waits for another, and the text of the error about it.

        `late` maps the ranks that this one waits for to their missing actions; all others are asked which ranks they wait for.
        """
        when = f", after {timeout_s:.3g} s"
        if self.size > 2:
            with self._lock:
                self.absences.asks = True
                self._tell_absences(self.absences.told())
            end = time.monotonic() + min(ASK_S, timeout_s)
            while time.monotonic() < end and self.absences.at_fault(late, self.rank) is not None:
                self.listen()
                time.sleep(0.005)
        found = self.absences.at_fault(late, self.rank)
        if found is None:
            return None, next(iter(late.values()), "does not come") + when
        rank, doing = found
        others = [str(other) for other in late if rank in late and other != rank and not self.absences.waiting(other)]
        return rank, doing + (f" (nor ranks {', '.join(others)})" if others else "") + when

    def _raise_late(self, late: Mapping[int, str], timeout_s: float) -> NoReturn:
        """Raise the error of a wait that has timed out; `late` maps the ranks waited for to their missing actions."""
        rank, said = self.blame(late, timeout_s)
        rank = next(iter(late)) if rank is None else rank
        self._raise(f"rank {rank} {said}", rank)

    def _hear_absences_of(self, rank: int, said: bytes) -> None:
        """Store the report of another rank, and answer if it asks."""
        now = time.monotonic()
        if self.absences.hear(rank, said) and now - self._answered > ASK_S / 4:  # many may ask at once
            self._answered = now
            self._tell_absences(self.absences.told())

    def _tell_absences(self, told: bytes) -> None:  # noqa: B027 - one rank alone has nobody to tell
        """Send this rank's report of missing launches and waits to all others."""

    def _hear_absences(self) -> None:  # noqa: B027 - likewise
        """Store new reports of the others."""

    _closers: tuple[Callable[[], None], ...] = ()

    def at_end(self, close: Callable[[], None]) -> None:
        """Register `close`, which is called when all ranks have ended or one has failed."""
        self._closers = (*self._closers, close)

    def _come_to_end(self) -> None:
        """Wait until all ranks have ended or one has failed, then call what `at_end` has registered."""
        raised = getattr(sys, "last_value", None)
        if raised is not None:
            self.fail(f"{type(raised).__name__}: {raised}")
        with suppress(RankError):
            with self._lock:
                if self.absences.partners and not self._why:
                    self._tell_absences(self.absences.told(ended=True))
            self._meet_at_end()
        closers, self._closers = self._closers, ()
        for close in closers:
            close()

    def _meet_at_end(self) -> None:
        """Report that this rank sends and receives no more, and wait until all ranks have reported so, or one has failed."""
        self.all_gather(b"", "the end", math.inf)

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""
