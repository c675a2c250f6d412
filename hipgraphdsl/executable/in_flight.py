"""Launches of one Executable that nothing has waited for yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ..arrays import as_handle
from ..errors import DeclarationError, HipError, WaitTimeout
from ..runtimes.data import ERROR_INVALID_HANDLE
from ..waiting import SLICE_S, Deadline, has_passed, slice_s, unfinished_text
from .call_path import CallPath
from .devices import Home


class InFlight:
    """The Executable's own stream, and every stream with launches in flight."""

    def __init__(self, name: str, home: Home, compiled: CallPath) -> None:
        self.stream = 0
        """The Executable's own stream; 0 before `open`."""
        self._lent = False
        """Whether others know the own stream."""
        self._name = name
        self._home = home
        self._runtime = home.runtime
        self._compiled = compiled
        self.pending: dict[int, list[Any]] = {}
        """Streams with launches that nothing has waited for yet, each with a new list that identifies its last launch.

        The list has the stream objects that the launches were given, which may own the stream.
        """
        self.lock = threading.Lock()
        self._failed: HipError | None = None
        """The error of a failed launch, kept until nothing is in flight and `wait` raises it."""
        self._last: int | None = None
        """The stream of the last launch `in_turn`; the null stream is 0."""
        self.end = 0
        """Event recorded after that launch if it was on a stream other than the own; 0 before the first such launch."""

        self.fence = 0
        """Event by which the own stream waits for launches on the user's streams; 0 before the first."""

    def open(self) -> None:
        """Create the own stream."""
        self.stream = self._runtime.stream_create()

    def held(self, handle: int, stream: Any) -> list[Any]:
        """Return the entry of `pending` for a launch on a stream that the user gave; it keeps the stream's object alive."""
        return [stream] if stream is not handle else [*self.pending.get(handle, ())]

    def launched(self, stream: int) -> None:
        """Note a launch on a stream as in flight."""
        self._compiled.allow_wait(allowed=False)
        with self.lock:
            self.pending[stream] = []

    def in_turn(self, launch: Callable[[int], None], stream: int) -> None:
        """Launch on a stream, after the previous launch on any stream; on a capturing stream the capture defines the order."""
        own, last = self.stream, self._last
        if stream == own and (last is None or last == own):
            self._last = own
            launch(stream)
            return
        runtime = self._runtime
        if self.captures(stream):
            launch(stream)
            return
        self.end = self.end or runtime.event_create(timing=False)
        self.note_compiled()
        if last is None and own in self.pending:  # launched by compiled code alone
            last = own
        if last not in (None, stream):
            if last == own:
                runtime.event_record(self.end, own)
            runtime.stream_wait_event(stream, self.end)
        self._last = stream
        try:
            launch(stream)
        finally:
            if stream != own:
                runtime.event_record(self.end, stream)

    def take_over(self, stream: int) -> None:
        """Let the own stream wait for a launch on a stream of the user's, who may destroy it, also one that has failed.

        Where a call with a destroyed stream only fails, launches in flight stay on the user's stream itself.
        """
        if stream in (self.stream, 0, 1, 2):
            return
        # Whoever waits for the stream is told what has failed. The backend may have made another device current.
        with suppress(HipError), self._home.there():
            # While it captures nothing runs, and it may be gone when somebody waits.
            if not self.captures(stream):
                if not self._runtime.target.gone_streams_crash:
                    return
                self._follow(stream)
            with self.lock:
                self.pending[self.stream] = self.pending.pop(stream, [])

    def _follow(self, stream: int) -> None:
        """Let the own stream wait for work on another stream of its device; a launch for another device was made on it."""
        runtime = self._runtime
        if not self._home.several or runtime.stream_get_device(stream) == self._home.device:
            self.fence = self.fence or runtime.event_create(timing=False)
            runtime.event_record(self.fence, stream)
            runtime.stream_wait_event(self.stream, self.fence)

    def lend(self) -> int:
        """Return the own stream for others, who may capture on it: from now on each launch asks, compiled ones too."""
        self._lent = True
        if self._compiled.launcher is not None:
            self._compiled.launcher.capturing = self._runtime.capture_address()
        return self.stream

    def captures(self, stream: int) -> bool:
        """Return whether a launch on a stream would go to a capture, or end one; nobody captures the own stream before `lend`."""
        return (self._lent or stream != self.stream) and self._runtime.stream_is_capturing(stream)

    def require_recorded(self, stream: int, backend: str, recorded: bool) -> None:
        """Refuse a launch on a stream that captures, unless its calls are `recorded`; the null stream cannot capture itself."""
        if not (recorded and stream not in (0, 1)) and self.captures(stream):
            raise DeclarationError(
                f"launch: stream {stream:#x} captures, or must wait for a stream that does, and a launch of graph {self._name!r}"
                f" by backend {backend!r} cannot be recorded there; launch it when the capture has ended, or compile a graph"
                " without alloc, eager and conditional nodes with backend='streams'"
            )

    def _captures(self, stream: int) -> bool:
        """Return whether a stream captures, so that a query would end the capture."""
        return stream != 0 and self.captures(stream)  # the null stream cannot capture

    @property
    def is_elsewhere(self) -> bool:
        """Whether the last launch `in_turn` was on another stream, which compiled launches on the own stream do not wait for."""
        return self._last not in (None, self.stream)

    def note_compiled(self) -> None:
        """Note launches of the compiled call path as in flight on the own stream, which it uses."""
        launcher = self._compiled.launcher
        if launcher is not None and launcher.pending:
            self._compiled.allow_wait(allowed=False)
            with self.lock:  # both without a function call, which Ctrl-C could interrupt
                launcher.pending = False
                self.pending[self.stream] = []

    def wait(self, timeout_s: float | None, unfinished: Callable[[], tuple[str, ...]]) -> None:
        """Wait until all launches have finished, and raise the error of a failed one; errors name the `unfinished` nodes."""
        deadline = Deadline.after(timeout_s, unfinished)
        wait = self._runtime.stream_wait
        self.note_compiled()
        try:
            while waiting := tuple(self.pending.items()):
                stream, last = waiting[0]
                left = slice_s(deadline)
                try:
                    if self._home.switches:
                        with self._home.there():
                            done = self._captures(stream) or wait(stream, left)
                    else:  # most waits are short, and an empty context manager takes a tenth of their time
                        done = self._captures(stream) or wait(stream, left)
                except HipError as error:
                    self._failed, done = self._failed or self._ended(stream, error), True
                if done:
                    with self.lock:
                        if self.pending.get(stream) is last:  # else another thread has launched meanwhile
                            del self.pending[stream]
                elif has_passed(deadline):
                    names = unfinished()
                    raise WaitTimeout(
                        f"graph {self._name!r} has not finished after {timeout_s:g} s" + unfinished_text(names), names
                    )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"while waiting for graph {self._name!r}" + unfinished_text(unfinished())) from None
        failed, self._failed = self._failed, None
        if failed is not None:
            names = unfinished()
            raise failed.hinted(unfinished_text(names)[2:]) if names else failed

    def failed(self, code: int) -> None:
        """Keep the error for a return code of a compiled wait, so that `wait` raises it."""
        try:
            self._runtime.call_failed("hipStreamQuery", code)
        except HipError as error:
            self._failed = self._failed or error

    def _ended(self, stream: int, error: HipError) -> HipError | None:
        """Wait for the work of a stream whose query has failed; return the error to raise, None if only the stream is gone.

        The work may run on, and must not outlive its modules and memory.
        """
        try:
            if self.is_gone(stream, error):
                with self._home.there():
                    self._runtime.device_wait()
                return None
            self._runtime.stream_synchronize(stream)
        except HipError as failed:
            return failed if error.code == ERROR_INVALID_HANDLE else error
        return error

    def is_gone(self, stream: int, error: Exception) -> bool:
        """Return whether a call failed because its stream does not exist any more."""
        if not isinstance(error, HipError) or error.code != ERROR_INVALID_HANDLE:
            return False
        try:
            self._runtime.stream_query(stream)
        except HipError as again:
            return again.code == ERROR_INVALID_HANDLE
        return False

    def drain(self, stream: int) -> None:
        """Wait until a stream's work has ended, and ignore its errors; Ctrl-C interrupts."""
        with suppress(HipError):
            while not self._runtime.stream_wait(stream, SLICE_S):
                pass

    def drop_failures(self, streams: Iterable[int]) -> None:
        """Drop the errors of streams that a failed launch has used, whose first was reported; not while others are in flight."""
        if not self.any:
            with self._home.there():
                for stream in streams:  # they were joined, so they are done, or will be at once
                    with suppress(HipError):
                        self._runtime.stream_wait(stream, SLICE_S)

    def done(self) -> bool:
        """Return whether all launches have finished; those on a stream that is gone, or that has failed, count as finished."""
        self.note_compiled()
        with self._home.there():
            return all(map(self._finished, tuple(self.pending)))

    def _finished(self, stream: int) -> bool:
        try:
            return self._captures(stream) or self._runtime.stream_query(stream)
        except HipError:
            return True

    @property
    def any(self) -> bool:
        """Whether there are launches that nothing has waited for yet."""
        self.note_compiled()
        return bool(self.pending)

    def forget(self) -> None:
        """Forget all launches."""
        self.pending.clear()
        self._failed = None


def stream_handle(stream: Any) -> int:
    """Return the raw handle of a stream object of any library."""
    if type(stream) is int and 0 <= stream < 2**64:
        return stream
    number = as_handle(stream)
    if number is None:
        raise DeclarationError(f"stream is a raw handle or a stream object (got {stream!r})")
    return number
