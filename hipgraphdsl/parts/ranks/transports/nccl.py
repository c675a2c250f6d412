"""NCCL, and RCCL by the same ABI: messages between the devices of ranks, on streams, without waits on the host.

The runtime names the library and its files (`Runtime.between_devices`). It is loaded by ctypes: a dozen calls, the
same on both platforms, which release the GIL, because another thread must be able to abort a call that waits. Communicators are
blocking, because each call on a non-blocking one starts a thread (ncclGroupEnd); the first calls, which wait for other ranks,
are made in a separate thread and watched.

NCCL never ends a wait for a rank that has died. While work is in flight, a watcher thread checks the library's asynchronous
errors, the reports of the other ranks, and the time-out; after a failure it aborts the communicator, so that streams continue.

Once ranks are connected, no call waits for another rank. A launch is then one call of compiled code, which notifies nobody: only
one graph at a time may launch this way, and the watcher checks every 20 ms whether it has.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....errors import DeclarationError, HipError, RankError, RuntimeUnavailable
from ....runtimes.base import Runtime
from ....runtimes.data import ForeignCall, LaunchCall
from ....settings import setting
from .base import Transport
from .neighbours import own_place

if TYPE_CHECKING:
    from ....executable.call_path import CallPath

LIBRARY: Final = "HIPGRAPHDSL_NCCL"
"""The environment variable that names the library's file."""
CAPTURES: Final = 22800
"""The first version whose work is captured in graphs."""

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_STATUS: Final = 256  # bytes of the status that each rank sends of its library
_LOOK_S: Final = 0.02
_NAMED_S: Final = 1.0
"""How long after the library's error ranks may report who has died, and after such a report a group may still fail by itself."""
_BYTE: Final = 0  # ncclInt8
_TYPES: Final = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9,
}  # fmt: skip
_OPS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3}

_P, _Z, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: Final = {
    "ncclSend": (_P, _Z, _I, _I, _P, _P),
    "ncclRecv": (_P, _Z, _I, _I, _P, _P),
    "ncclAllReduce": (_P, _P, _Z, _I, _I, _P, _P),
    "ncclReduce": (_P, _P, _Z, _I, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _Z, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _Z, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _Z, _I, _I, _P, _P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclCommAbort": (_P,),
    "ncclCommDestroy": (_P,),
    "ncclCommGetAsyncError": (_P, _P),
    "ncclGetVersion": (_P,),
    "ncclGetUniqueId": (_P,),
}


class _Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


class Call(NamedTuple):
    """One call of the library on this rank, without its communicator and stream arguments."""

    name: str
    args: tuple[int, ...]  # addresses, counts and codes, in the function's order


Prepared = tuple[Callable[..., int], tuple[Any, ...]]
AllGather = Callable[[bytes, str], list[bytes]]
"""Returns the data of all ranks; takes this rank's data, and its purpose for errors: `Ranks.all_gather`."""


def send(address: int, nbytes: int, rank: int) -> Call:
    """Return the call that sends bytes to a rank."""
    return Call("ncclSend", (address, nbytes, _BYTE, rank))


def receive(address: int, nbytes: int, rank: int) -> Call:
    """Return the call that receives bytes from a rank."""
    return Call("ncclRecv", (address, nbytes, _BYTE, rank))


def does(name: str, dtype: str) -> bool:
    """Return whether the library has a collective for elements of a type."""
    return dtype in _TYPES or name in ("broadcast", "all_gather", "all_to_all")


def collective(
    name: str, op: str, root: int, dtype: str, target: int, source: int, nbytes: int, itemsize: int, size: int
) -> tuple[Call, ...]:
    """Return the calls that one rank of `size` makes for its part of a collective.

    `target` and `source` are addresses, 0 where the rank has none. `nbytes` is what one rank sends; for ``reduce_scatter``, what
    it receives; for ``all_to_all``, what it sends to each rank.
    """
    count, code = nbytes // itemsize, _TYPES.get(dtype, _BYTE)
    match name:
        case "all_reduce":
            return (Call("ncclAllReduce", (source, target, count, code, _OPS[op])),)
        case "reduce":
            return (Call("ncclReduce", (source, target, count, code, _OPS[op], root)),)
        case "broadcast":
            return (Call("ncclBroadcast", (source, target, nbytes, _BYTE, root)),)
        case "all_gather":
            return (Call("ncclAllGather", (source, target, nbytes, _BYTE)),)
        case "reduce_scatter":
            return (Call("ncclReduceScatter", (source, target, count, code, _OPS[op])),)
    sends = (send(source + rank * nbytes, nbytes, rank) for rank in range(size))
    return (*sends, *(receive(target + rank * nbytes, nbytes, rank) for rank in range(size)))


def opened_library(runtime: Runtime) -> ctypes.CDLL:
    """Return the library for a runtime, or raise RuntimeUnavailable."""
    named = setting(LIBRARY)
    tried = (named,) if named else runtime.between_devices()[1]
    said = f"runtime {runtime.name!r} has none; {LIBRARY} may name one"
    for name in tried:
        try:
            library = ctypes.CDLL(name)
            for function, types in _SIGNATURES.items():
                getattr(library, function).argtypes = types
            for function in ("ncclGetErrorString", "ncclGetLastError"):
                getattr(library, function).restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            said = str(error).splitlines()[0]
            continue
        return library
    raise RuntimeUnavailable(f"no library for messages between devices: {said}", runtime="nccl", missing="library")


def found_by_all(all_gather: AllGather, runtime: Runtime, device: int, why_not: str) -> tuple[Any, str]:
    """Return the library, or why not every rank can use it; all ranks call this, and all get the same answer.

    `device` is the device of this rank, `why_not` a reason against the library on this rank, or empty.
    """
    library, version = None, ctypes.c_int()
    try:
        library = opened_library(runtime)
        library.ncclGetVersion(ctypes.byref(version))
    except RuntimeUnavailable as error:
        why_not = why_not or str(error)
    place = own_place()
    if runtime.target.dlpack_device != 1:  # each process has its own CPU devices
        place = place[:8] + " ".join(f"{name}={os.environ.get(name)}" for name in _VISIBLE).encode()
    status = b"|".join((place.hex().encode(), str(device).encode(), str(version.value).encode(), why_not.encode()))
    told = [text.rstrip(b"\0").split(b"|", 3) for text in
            all_gather(status[:_STATUS].ljust(_STATUS, b"\0"), "the choice of NCCL")]  # fmt: skip
    for rank, entry in enumerate(told):
        if len(entry) < 4 or entry[3]:
            said = entry[3].decode(errors="replace") if len(entry) > 3 else "its place is too long to tell"
            return None, f"rank {rank}: {said}"
    if len(versions := {entry[2].decode() for entry in told}) > 1:
        return None, f"ranks have different versions of the library: {', '.join(sorted(versions))}"
    if len({(entry[0], entry[1]) for entry in told}) < len(told):
        return None, "several ranks use one device"
    return library, ""


class Nccl:
    """A communicator of all ranks, each with one device; the ranks have already met through the transport.

    Raises
    ------
    RankError
        If the ranks do not meet within `timeout_s`, which also limits each later wait.
    """

    def __init__(
        self, library: Any, transport: Transport, all_gather: AllGather, runtime: Runtime, device: int, timeout_s: float
    ) -> None:
        self._library = library
        self._transport = transport
        self._runtime = runtime
        self._device = device
        self._timeout_s = timeout_s
        number = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(number))
        self.name = runtime.between_devices()[0]
        """Name of the library: NCCL or RCCL."""
        self.version = number.value
        """22803 for 2.28.3; RCCL reports the NCCL version that it corresponds to."""
        self.broken = ""
        """Reason why it can no longer be used; empty while it works."""
        self._culprit: int | None = None
        self._handle = ctypes.c_void_p()
        self._start, self._finish = library.ncclGroupStart, library.ncclGroupEnd
        self._connected: set[Any] = set()
        self._closers: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._calling = threading.Lock()
        """Held while Python issues a group: the library's abort frees what a group still uses that fails at the same time."""
        self._work = threading.Event()
        """Set while there is work to watch."""
        self._busy: list[tuple[int, str]] = []
        """ID of the launching thread and what it launches; one more entry for each build inside a launch."""
        self._launches = 0
        """Number of launches issued on streams."""
        self._progress = 0.0
        self._what = "hg.ranks()"
        self._others = frozenset(range(transport.size)) - {transport.rank}
        self._partners = self._others
        """The ranks that this one waits for in its current work."""
        self._end = 0
        """Event after a launch, recorded only if another stream or the watcher waits for it."""
        self._last = 0
        """The stream of the last launch; 0 if it may no longer exist."""
        self._holder: CallPath | None = None
        """The call path that may launch by compiled code, which is that of the last launch; else None."""
        self._stop = ctypes.c_int32()
        """Nonzero when compiled code must no longer call the library."""
        self._closed = False
        self._meet(all_gather)
        with runtime.using_device(device):
            self._end = runtime.event_create(timing=False)
            self._stream = runtime.stream_create()
        self._watcher = threading.Thread(target=self._watch_there, name="hipgraphdsl nccl", daemon=True)
        self._watcher.start()
        transport.at_end(self.close)

    def _meet(self, all_gather: AllGather) -> None:
        unique = _Id()
        if self._transport.rank == 0:
            self._require(self._library.ncclGetUniqueId(ctypes.byref(unique)), "ncclGetUniqueId")
        told = all_gather(bytes(unique), "the start of NCCL")
        unique = _Id.from_buffer_copy(told[0])
        init, rank, size = self._library.ncclCommInitRank, self._transport.rank, self._transport.size
        init.argtypes = (_P, _I, _Id, _I)
        handle = ctypes.c_void_p()
        self._aside(lambda: init(ctypes.byref(handle), size, unique, rank), "ncclCommInitRank", "the start of NCCL")
        self._handle = handle  # only now: when the call fails, it leaves the address of memory that it has freed

    # -- calls

    def _require(self, code: int, api: str) -> None:
        """Raise the error for a code of the library, or that of a rank's failure or death, if one is reported soon."""
        if not code:
            return
        self.raise_broken()
        text = self._library.ncclGetErrorString(code)
        last = self._library.ncclGetLastError(self._handle) or b""
        said = b": ".join(filter(None, (text, last.strip()))).decode(errors="replace")
        end = time.monotonic() + _NAMED_S
        while time.monotonic() < end:
            self._transport.listen()
            time.sleep(_LOOK_S)
        raise RankError(f"{api} failed: {said} ({code})")

    def _aside(self, call: Callable[[], int], api: str, what: str) -> None:
        """Make a call that waits for other ranks in a separate thread, and check meanwhile that they are alive."""
        found: list[int | BaseException] = []

        def work() -> None:
            try:
                with self._runtime.using_device(self._device):
                    found.append(call())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=work, name=f"hipgraphdsl {api}", daemon=True)
        thread.start()
        thread.join(0.001)
        try:
            self._transport.wait_until(
                lambda: not thread.is_alive(), lambda: self._waits(what), what, self._timeout_s, most_s=_LOOK_S
            )
            if isinstance(found[0], BaseException):
                raise found[0]
            self._require(found[0], api)
        except RankError as error:
            self._give_up(error)
            raise

    def prepared(self, calls: Sequence[Call]) -> tuple[Prepared, ...]:
        """Return calls as functions and their arguments, without the stream."""
        return tuple((getattr(self._library, call.name), (*call.args, self._handle)) for call in calls)

    def unconnected(self, keys: Iterable[Any]) -> frozenset[Any]:
        """Return the keys of connections that are not established yet."""
        return frozenset(keys) - self._connected

    def issue(self, calls: Sequence[Prepared], stream: int, keys: frozenset[Any], what: str) -> None:
        """Issue calls on a stream as one group; wait for other ranks if a connection of `keys` is not established yet."""
        if self.broken:
            raise RankError(f"{what}: {self.broken}", rank=self._culprit)
        self._what, self._progress = what, time.monotonic()
        if keys <= self._connected:
            self._group(calls, stream)
        else:
            self._aside(lambda: self._group(calls, stream), "ncclGroupEnd", what)
            self._connected |= keys

    def group(self, calls: Sequence[Call], stream: int) -> list[LaunchCall]:
        """Return calls as one group for compiled code; the ranks must be connected."""
        handle, library = self._handle.value or 0, self._library
        made: list[tuple[str, tuple[int, ...], int, bool]] = [("ncclGroupStart", (), ctypes.addressof(self._stop), False)]
        made += [(call.name, (*call.args, handle, stream), 0, True) for call in calls]
        made += [("ncclGroupEnd", (), 0, False)]
        return [
            LaunchCall(ForeignCall(getattr(library, name), partial(self._failed, name, inside), stop), args)
            for name, args, stop, inside in made
        ]

    def _failed(self, api: str, inside: bool, code: int) -> None:
        """Raise the error for a code that compiled code got from a call, inside a group or at one of its ends."""
        if inside:  # first: a group that stays open would hold back the calls of other communicators of this thread
            self._finish()
        self.raise_broken()
        try:
            self._require(code, api)
        except RankError as error:
            self._give_up(error)
            raise

    def _group(self, calls: Sequence[Prepared], stream: int) -> int:
        code, api = 0, "ncclGroupEnd"
        with self._calling:
            self.raise_broken()
            self._start()
            for function, args in calls:
                code = function(*args, stream)
                if code:
                    api = function.__name__
                    break
            ended = self._finish()
        self._require(code or ended, api)
        return 0

    # -- launches

    def begin(self, what: str, stream: int = 0, *, own: bool = True, partners: frozenset[int] | None = None) -> None:
        """Begin a launch on a stream, ordered after earlier launches, up to `end`; without a stream, watch the work up to `end`.

        `own` tells whether the stream is known to exist until `forget`, `partners` which ranks it waits for, by default all.

        Raises
        ------
        DeclarationError
            If another thread is launching: the order of launches could differ between ranks.
        """
        me = threading.get_ident()
        with self._lock:
            if self._busy and self._busy[0][0] != me:
                raise DeclarationError(
                    f"launch: {self._busy[0][1]} is being launched by another thread, and uses the same communicator; let one"
                    " thread launch, or give each thread ranks of its own: hg.ranks()"
                )
            self._busy.append((me, what))
            holder = self._seize()
        if holder is not None:
            holder.drain()
        self._what, self._progress = what, time.monotonic()
        self._partners = self._others if partners is None else partners
        if not self._work.is_set():
            self._work.set()
        if stream and stream != self._last:
            self._follow(stream, own=own)

    def _follow(self, stream: int, *, own: bool) -> None:
        """Make a stream wait for the last launch, which was on another stream."""
        runtime = self._runtime
        with runtime.using_device(self._device), self._lock:
            if self._last:
                runtime.event_record(self._end, self._last)
            if self._launches:
                runtime.stream_wait_event(stream, self._end)
            self._last = stream if own else 0

    def end(self, stream: int = 0) -> None:
        """End the launch that `begin` has begun."""
        self._progress = time.monotonic()
        if stream and stream != self._last:  # it may not exist any more at the next launch
            with self._runtime.using_device(self._device):
                self._runtime.event_record(self._end, stream)
        with self._lock:
            self._launches += bool(stream)
            self._busy.pop()
        self._work.set()

    def hold(self, compiled: CallPath, stream: int) -> None:
        """Allow the last launched graph to launch by compiled code on the same stream, until another launch begins."""
        with self._lock:
            if self.broken or self._busy or self._last != stream:
                return
            self._holder = compiled
            compiled.unblock()
        self._work.set()

    def _seize(self) -> CallPath | None:
        """Revoke the permission of `hold` and return its holder, without waiting for calls in progress."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.block()
            self._launches += 1
        return holder

    def release(self, compiled: CallPath) -> None:
        """Revoke the permission that `hold` gave to `compiled`, if any, and wait for calls in progress."""
        with self._lock:
            holder = self._seize() if self._holder is compiled else None
        if holder is not None:
            holder.drain()

    def _made(self) -> tuple[int, int]:
        """Return a value that changes with each launch, and differs while compiled code makes one."""
        holder = self._holder
        launcher = None if holder is None else holder.launcher
        return self._launches, 0 if launcher is None else 2 * launcher.launches + launcher.inside

    def forget(self, stream: int) -> None:
        """Stop using a stream that is about to be destroyed."""
        with self._lock:
            if self._last == stream:
                self._last = 0
                with suppress(HipError), self._runtime.using_device(self._device):
                    self._runtime.event_record(self._end, stream)

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Watch the work inside the context."""
        self.begin(what)
        try:
            yield
        finally:
            self.end()

    def raise_broken(self) -> None:
        """Raise the error that broke the communicator, if any."""
        if self.broken:
            raise RankError(self.broken, rank=self._culprit)

    def _watch_there(self) -> None:
        with self._runtime.using_device(self._device):
            self._watch()

    def _watch(self) -> None:
        """Watch work in flight, until `close` or a failure."""
        runtime, seen, noted, in_flight = self._runtime, (0, 0), (0, 0), False
        while not self._closed:
            try:
                made = self._made()
                if made != noted:
                    noted, self._progress = made, time.monotonic()
                with suppress(HipError):  # another thread captures, or the device has failed, which its own waits report
                    if not in_flight and made != seen:
                        with self._lock:
                            if self._last:
                                runtime.event_record(self._end, self._last)
                            seen, in_flight = made, True
                            runtime.stream_wait_event(self._stream, self._end)
                    if in_flight and runtime.stream_query(self._stream):
                        in_flight = False
                        continue
                if not in_flight and not self._busy and made == seen:
                    if self._transport.broken:  # perhaps the work has ended because this rank has failed
                        self._transport.listen()
                    self._transport.absences.wait_for({})
                    self._work.clear()
                    if not self._busy and self._made() == seen and not self._closed:
                        self._work.wait(None if self._holder is None else _LOOK_S)
                    continue
                self._transport.absences.wait_for(self._waits(self._in_flight))
                self._look()
            except RankError as error:
                self._give_up(error)
                return
            time.sleep(_LOOK_S)

    def _look(self) -> None:
        """Raise if a rank or the library has failed, or if work takes too long."""
        self._transport.listen()
        error = ctypes.c_int()
        self._library.ncclCommGetAsyncError(self._handle, ctypes.byref(error))
        self._require(error.value, f"work of {self._what}")
        if time.monotonic() - self._progress > self._timeout_s:
            rank, said = self._transport.blame(self._waits(self._in_flight), self._timeout_s)
            raise RankError(f"{'another rank' if rank is None else f'rank {rank}'} {said}", rank=rank)

    @property
    def _in_flight(self) -> str:
        return f"{self._what}, or to what is before"

    def _waits(self, what: str) -> dict[int, str]:
        return dict.fromkeys(sorted(self._partners), f"does not come to {what}")

    def _give_up(self, error: RankError) -> None:
        """Report the error to the others and abort work in flight, so that streams continue."""
        with self._lock:
            if self.broken:
                return
            self.broken, self._culprit, self._stop.value = str(error), error.rank, 1
            self._seize()
        self._transport.fail(self.broken, error.rank)
        if self._handle.value:
            ended = self._calling.acquire(timeout=_NAMED_S)  # a group that does not end, because a rank is late, is aborted
            with self._runtime.using_device(self._device):
                self._library.ncclCommAbort(self._handle)
            if ended:
                self._calling.release()

    # -- the end

    def before_close(self, close: Callable[[], None]) -> None:
        """Register `close`, called before the communicator is destroyed: graphs that contain its work must be destroyed first."""
        self._closers.append(close)

    def close(self) -> None:
        """Release everything."""
        if self._closed:
            return
        for close in self._closers:
            with suppress(Exception):
                close()
        self._closed = True
        self._work.set()
        self._watcher.join()
        with suppress(HipError), self._runtime.using_device(self._device):
            self._runtime.stream_destroy(self._stream)
            self._runtime.event_destroy(self._end)
        if not self.broken:  # destroying waits for other ranks, and may wait for ever
            thread = threading.Thread(target=self._library.ncclCommDestroy, args=(self._handle,), daemon=True)
            thread.start()
            thread.join(min(self._timeout_s, 10.0))
