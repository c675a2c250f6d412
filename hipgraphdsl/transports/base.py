"""What the rest of the package asks of a transport."""

from __future__ import annotations

import atexit
import math
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from ..errors import RankError
from .absences import ASK_S, Absences, Calls
from .neighbours import Neighbours, own_place

WORLDS: Final = 64
"""So many `Ranks` of one transport have tags of their own; those of later ones repeat."""
ITSELF: Final = -1
"""Stands for the rank that fails."""
LOOK_S: Final = 0.05
"""How often a wait looks at the other ranks."""
_PAUSE_S: Final = 0.0002
LOST: Final = threading.Event()
"""Set when the launcher of the ranks tells that one has died."""
_NOTE: Final = struct.Struct("<ii")
"""What stands before why a rank gives up: its number, and that of the rank at fault, below 0 where nobody knows."""


def listed(names: Sequence[str]) -> str:
    """Return names for a message, the first four of them."""
    return ", ".join(map(repr, names[:4])) + ", ..." * (len(names) > 4)


class Transfer(NamedTuple):
    """One message as a rank sends or receives it."""

    name: str  # for errors: the node's
    rank: int  # the other one
    sends: bool
    tag: int  # distinguishes it from others between the same ranks; the same at both: `Ranks.tag`
    address: int  # of memory of this process
    nbytes: int  # 0 for a message that only orders
    memory: Any = None  # keeps it, where something does


class Transport(ABC):
    """The calls of one library.

    No wait is unbounded: each ends with a `RankError` when its time is up, when another rank says that it has failed, when one
    that it waits for has come to its end, and as soon as the library tells that one has died. After an error the transport is
    `broken`, and every later call raises it again.
    """

    name: str
    rank: int
    size: int
    before_here: tuple[int, ...] = ()
    """The ranks before this one whose processes are on the same machine."""
    worlds: int = 0
    """How many `Ranks` have been made of it; each is a world of its own, whose messages have tags of their own."""
    still_writes: bool = False
    """Whether messages that were given up may still be written into the memory of theirs, which must then be kept."""

    _why: str = ""
    _culprit: int | None = None
    """The rank at fault."""
    _neighbours: Neighbours | None = None
    _looked = 0.0
    """When it has looked last at the other ranks; infinite while it cannot."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._meetings: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        """For each world, as two threads of one world can not meet others at once."""
        self.absences = Absences()
        """Calls that some ranks make and others do not, and who waits for whom."""
        self._answered = -math.inf

    @property
    def broken(self) -> str:
        """Why nothing can be sent any more; empty while it can."""
        return self._why

    def _raise(self, why: str, rank: int | None) -> NoReturn:
        """Tell the others why this rank gives up and which is at fault, and raise it here."""
        self.fail(why, rank)
        raise RankError(why, rank=rank)

    @abstractmethod
    def all_gather(self, data: bytes, what: str, timeout_s: float, world: int = 0) -> list[bytes]:
        """Return what each rank gives; all give as many bytes. Threads may do so at once for different worlds, below `WORLDS`."""

    @abstractmethod
    def exchange(self, transfers: Sequence[Transfer], timeout_s: float) -> None:
        """Send and receive, all at once, and wait until it is done; host memory only."""

    def _raise_broken(self) -> None:
        if self._why:
            raise RankError(self._why, rank=self._culprit)

    def _require_whole(self, what: str) -> None:
        """Raise where nothing can be sent any more."""
        if self._why:
            raise RankError(f"{what}: the ranks have come apart: {self._why}; start the program again", rank=self._culprit)
        self.listen(f", and is needed for {what}")

    def _meet(self, timeout_s: float) -> None:
        """Meet the other ranks for the first time, and find those on this machine; whoever ends waits for all."""
        self._neighbours = Neighbours(self.rank, self.all_gather(own_place(), "hg.ranks()", timeout_s))
        self.before_here = self._neighbours.before
        atexit.register(self.close)

    def listen(self, why: str = "") -> None:
        """Raise if another rank has failed or died; asked again and again by who waits. `why` stands behind who has died."""
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
        """Raise if this rank has made a launch that another one does not make."""
        missed = self.absences.missed()
        if missed is not None:
            self._raise(*missed)

    def _failure(self) -> bytes:
        """Return the note of a rank that has failed, or nothing."""
        return b""

    def _take_down(self, note: bytes) -> None:
        """Be broken for what another rank has said."""
        writer, culprit = _NOTE.unpack_from(note)
        said = note[_NOTE.size :].decode(errors="replace")
        self._culprit = None if culprit < 0 else culprit
        self._why = f"rank {writer} has stopped: {said}" if culprit == writer else f"{said} (as rank {writer} says)"

    def wait_until(
        self, is_done: Callable[[], bool], late: Callable[[], dict[int, str]], what: str, timeout_s: float, most_s: float
    ) -> None:
        """Wait for other ranks; `late` returns those that it waits for, each with what it does not do.

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
                        if rank in ended:  # what it has sent before its end may come late, but not by so much
                            self._raise(f"rank {rank} has come to the end of its program, and {missing[rank]}", rank)
                        ended.add(rank)
                time.sleep(pause_s)
                pause_s = min(most_s, 1.5 * pause_s)
        finally:
            self.absences.wait_for({})

    def _has_ended(self, rank: int) -> bool:
        """Return whether a rank says that it sends and receives no more."""
        return False

    def fail(self, why: str, rank: int | None = ITSELF) -> None:
        """Tell all others, as far as that goes, that this rank gives up, why, and which is at fault; None if nobody knows."""
        with self._lock:
            if not self._why:
                self._why, self._culprit = why, self.rank if rank == ITSELF else rank
                self._tell(_NOTE.pack(self.rank, -1 if self._culprit is None else self._culprit) + why.encode())

    def _tell(self, note: bytes) -> None:  # noqa: B027 - one rank alone has nobody to tell
        """Tell all others that this rank has failed."""

    def refuse(self, calls: Calls, why: str) -> None:
        """Tell all others that this rank has refused a launch and goes on: an error for those that have made the same one."""
        with self._lock:
            calls.refuse(why)
            if not self._why:
                self._tell_absences(self.absences.told())

    def blame(self, late: Mapping[int, str], timeout_s: float) -> tuple[int | None, str]:
        """Return who keeps this rank waiting for so long, and what is to be said of it; None for who if every rank waits.

        `late` has the ranks that it waits for, each with what it does not do; the others are asked whom they wait for.
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
        """Give up a wait for ranks, each with what it does not do."""
        rank, said = self.blame(late, timeout_s)
        rank = next(iter(late)) if rank is None else rank
        self._raise(f"rank {rank} {said}", rank)

    def _hear_absences_of(self, rank: int, said: bytes) -> None:
        """Note what another rank has told, and answer if it asks."""
        now = time.monotonic()
        if self.absences.hear(rank, said) and now - self._answered > ASK_S / 4:  # many may ask at once
            self._answered = now
            self._tell_absences(self.absences.told())

    def _tell_absences(self, told: bytes) -> None:  # noqa: B027 - one rank alone has nobody to tell
        """Tell all others of launches that this rank does not make."""

    def _hear_absences(self) -> None:  # noqa: B027 - likewise
        """Note what others have told of launches that they do not make."""

    _closers: tuple[Callable[[], None], ...] = ()

    def at_end(self, close: Callable[[], None]) -> None:
        """Let something be closed when all ranks have come to their end, or one has failed."""
        self._closers = (*self._closers, close)

    def _come_to_end(self) -> None:
        """Wait until all ranks have come to their end, or one has failed, and close what `at_end` was given."""
        raised = getattr(sys, "last_value", None)
        if raised is not None:
            self.fail(f"{type(raised).__name__}: {raised}")
        with suppress(RankError):
            if self.absences.partners and not self._why:
                self._tell_absences(self.absences.told(ended=True))
            self._meet_at_end()
        closers, self._closers = self._closers, ()
        for close in closers:
            close()

    def _meet_at_end(self) -> None:
        """Tell all others that this rank sends and receives no more, and wait until all say so, or one has failed."""
        self.all_gather(b"", "the end", math.inf)

    @abstractmethod
    def close(self) -> None:
        """Return what it holds."""
