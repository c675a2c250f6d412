"""MPI, through mpi4py: between processes that mpiexec or srun has started.

All calls are non-blocking and polled: MPI has no time-outs, and a blocking call would wait forever for a rank that has died. So
no collective is called after the start, except MPI_Finalize when all ranks have ended.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from ....errors import RankError, RuntimeUnavailable
from .base import LOST, WORLDS, Transfer, Transport, listed

_CONTROL: Final = 0
"""The tag of failure notes; the tags of graph messages follow, then those of the end, of reports and of `all_gather`."""
_NOTE_BYTES: Final = 512
_SPIN_S: Final = 0.003  # how long a wait polls without sleeping
_SLEEP_S: Final = 0.0002
_TELL_S: Final = 0.5  # how long a failing rank tries to report that
_PART: Final = 1 << 30  # bytes of one MPI message; larger ones are sent in parts
_UNKNOWN: Final = -1
"""The rank of a request in which all ranks take part."""


class _Pending(NamedTuple):
    """A request, the rank it waits for, that rank's missing action while it is incomplete, and what keeps its memory alive."""

    request: Any
    rank: int
    doing: str
    memory: Any = None


class MpiTransport(Transport):
    """MPI of this process; `started` is how many processes the launcher says that it has started: ``"PMI_SIZE=4"``.

    Raises
    ------
    RuntimeUnavailable
        If mpi4py or the MPI library is absent, or if the launcher belongs to another MPI.
    RankError
        If the ranks do not meet in time.
    """

    name = "mpi"

    def __init__(self, timeout_s: float, started: str) -> None:
        super().__init__()
        self._mpi = _library(timeout_s)
        world = self._mpi.COMM_WORLD
        if world.size == 1:
            library = self._mpi.Get_library_version().strip("\0\n").splitlines()[0].strip()
            raise RuntimeUnavailable(
                f"the launcher has started several processes ({started}), and mpi4py's MPI ({library}) knows only this one: the"
                " launcher belongs to another MPI; start the program with mpi4py's, install mpi4py for the launcher's, or unset"
                f" {started.partition('=')[0]} for one rank alone",
                runtime="mpi",
                missing="library",
            )
        world.Set_errhandler(self._mpi.ERRORS_RETURN)  # mpi4py raises exceptions for them
        self.rank, self.size = world.rank, world.size
        self._kept: list[tuple[list[Any], Any]] = []
        """Requests that may be incomplete, each list with its memory, which must be kept alive."""
        self._note = bytearray(_NOTE_BYTES)
        self._noted: Any = None
        self._looked = math.inf
        self._comm, made = world.Idup()
        self._poll([_Pending(made, _UNKNOWN, "does not come to")], "hg.ranks()", timeout_s)
        self._noted = self._comm.Irecv([self._note, self._mpi.BYTE], self._mpi.ANY_SOURCE, _CONTROL)
        self._most = (self._comm.Get_attr(self._mpi.TAG_UB) - 2 - WORLDS) // WORLDS * WORLDS  # so worlds' tags never collide
        self._ends, self._absent, self._gathers = self._most + 1, self._most + 2, self._most + 3
        self._looked = 0.0
        self._meet(timeout_s)  # connects all pairs of ranks

    def all_gather(self, data: bytes, what: str, timeout_s: float, world: int = 0) -> list[bytes]:
        return self._gather(data, what, timeout_s, self._gathers + world)

    def _meet_at_end(self) -> None:
        self._gather(b"", "the end", math.inf, self._ends)

    def _gather(self, data: bytes, what: str, timeout_s: float, tag: int) -> list[bytes]:
        with self._meetings[tag]:
            self._require_whole(what)
            found = [bytearray(len(data)) for _ in range(self.size)]
            found[self.rank][:] = data
            requests: list[_Pending] = []
            for other in range(self.size):
                if other != self.rank:
                    received = self._comm.Irecv([found[other], self._mpi.BYTE], other, tag)
                    sent = self._comm.Isend([data, self._mpi.BYTE], other, tag)
                    requests += [_Pending(request, other, "does not come to") for request in (received, sent)]
            self._poll(requests, what, timeout_s)
            return [bytes(entry) for entry in found]

    def exchange(self, transfers: Sequence[Transfer], timeout_s: float) -> None:
        comm, mpi = self._comm, self._mpi
        requests: list[_Pending] = []
        names = listed([transfer.name for transfer in transfers])
        self._require_whole(names)
        for transfer in sorted(transfers, key=lambda transfer: transfer.sends):  # post receives before sends
            tag = 1 + transfer.tag % self._most
            call, doing = (comm.Isend, "does not take") if transfer.sends else (comm.Irecv, "does not send")
            for at in range(0, max(transfer.nbytes, 1), _PART):
                nbytes = min(_PART, transfer.nbytes - at)
                buffer = mpi.buffer.fromaddress(transfer.address + at, nbytes) if nbytes else bytearray()
                requests.append(_Pending(call([buffer, mpi.BYTE], transfer.rank, tag), transfer.rank, doing, transfer.memory))
        self._poll(requests, names, timeout_s)

    def _poll(self, requests: list[_Pending], what: str, timeout_s: float) -> None:
        """Wait for requests."""
        test = self._mpi.Request.Testall
        waiting = [pending.request for pending in requests]
        spins = time.monotonic() + _SPIN_S
        try:
            while not (done := test(waiting)) and time.monotonic() < spins:
                time.sleep(0)  # the other rank may need this core
            if not done:
                self.wait_until(lambda: test(waiting), lambda: self._late(requests, what), what, timeout_s, _SLEEP_S)
        except BaseException as error:
            self._abandon(requests)
            if isinstance(error, RankError):
                raise
            self.fail(f"{type(error).__name__}: {error}")
            if isinstance(error, self._mpi.Exception):
                raise RankError(f"{what}: {error}") from error
            raise

    def _failure(self) -> bytes:
        if self._noted is None or not self._noted.Test(status := self._mpi.Status()):
            return b""
        self._noted = None
        return bytes(self._note[: status.Get_count(self._mpi.BYTE)])

    def _has_ended(self, rank: int) -> bool:
        return rank != _UNKNOWN and bool(self._comm.Iprobe(rank, self._ends))

    def _raise_late(self, late: Mapping[int, str], timeout_s: float) -> NoReturn:
        if _UNKNOWN in late:
            self._raise(f"a rank {late[_UNKNOWN]}, after {timeout_s:.3g} s", None)
        super()._raise_late(late, timeout_s)

    def _late(self, requests: list[_Pending], what: str) -> dict[int, str]:
        """Return the ranks that incomplete requests wait for, each with its missing action."""
        return {rank: f"{doing} {what}" for request, rank, doing, _ in reversed(requests) if not request.Test()}

    def _abandon(self, requests: list[_Pending]) -> None:
        """Cancel requests; keep those that cannot be cancelled, with their memory, because MPI may still write to it."""
        for pending in requests:
            done = False
            with suppress(Exception):
                if not (done := pending.request.Test()):
                    pending.request.Cancel()
                    done = pending.request.Test()
            if not done:
                self._kept.append(([pending.request], pending.memory))
                self.still_writes = True

    def _tell(self, note: bytes) -> None:
        note = note[:_NOTE_BYTES]
        sent = [self._comm.Isend([note, self._mpi.BYTE], other, _CONTROL) for other in range(self.size) if other != self.rank]
        end = time.monotonic() + _TELL_S
        while not self._mpi.Request.Testall(sent) and time.monotonic() < end:
            time.sleep(_SLEEP_S)
        self._kept.append((sent, note))

    def _tell_absences(self, told: bytes) -> None:
        others = (other for other in range(self.size) if other != self.rank)
        sent = [self._comm.Isend([told, self._mpi.BYTE], other, self._absent) for other in others]
        self._kept = [kept for kept in self._kept if not self._mpi.Request.Testall(kept[0])] + [(sent, told)]

    def _hear_absences(self) -> None:
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, self._absent, status := self._mpi.Status()):
            said = bytearray(status.Get_count(self._mpi.BYTE))
            self._comm.Recv([said, self._mpi.BYTE], status.source, self._absent)
            self._hear_absences_of(status.source, bytes(said))

    def close(self) -> None:
        atexit.unregister(self.close)
        mpi = self._mpi
        if self.forked or mpi.Is_finalized():
            return
        self._come_to_end()
        if self._noted is not None:
            with suppress(Exception):
                self._noted.Cancel()
            self._noted = None
        if not self._why:
            mpi.Finalize()
        elif _finalizes_by_itself:  # it would wait for ranks that have died
            sys.stdout.flush()
            sys.stderr.flush()
            mpi.COMM_WORLD.Abort(1)


_finalizes_by_itself = False


def _library(timeout_s: float) -> Any:
    """Return mpi4py's module, set up so that a dead rank does not end the others and process exit waits for no rank."""
    global _finalizes_by_itself  # global to the process, as MPI is
    _finalizes_by_itself = "mpi4py.MPI" in sys.modules
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: LOST.set())  # MPICH's launcher sends it when a rank has died
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        said = str(error).splitlines()[0]
        raise RuntimeUnavailable(
            f"this program was started as several ranks, and mpi4py cannot be used: {said}; pip install 'hipgraphdsl[mpi]', which"
            " brings MPICH, or mpi4py for the MPI of this machine",
            runtime="mpi",
            missing="library" if isinstance(error, RuntimeError) else "binding",
        ) from error
    if not MPI.Is_initialized():
        # MPI_Init_thread waits, in C, even for ranks that never call it; unlike mpi4py, ctypes lets other threads run meanwhile.
        begin = ctypes.CDLL(MPI.__file__).MPI_Init_thread
        level = ctypes.c_int()
        call = threading.Thread(target=begin, args=(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(level)), daemon=True)
        call.start()
        call.join(timeout_s)
        if call.is_alive():
            raise RankError(f"other ranks have not called hg.ranks(), after {timeout_s:.3g} s: MPI_Init waits for them")
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise RuntimeUnavailable(
            "this MPI was begun without MPI_THREAD_MULTIPLE, which launches from several threads need; call hg.ranks() before"
            " anything else begins it",
            runtime="mpi",
            missing="library",
        )
    return MPI
