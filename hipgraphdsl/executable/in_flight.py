"""Launches of one Executable that nothing has waited for yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..arrays import as_handle
from ..errors import DeclarationError, HipError, WaitTimeout
from ..runtimes.data import ERROR_INVALID_HANDLE, CaptureStatus
from ..waiting import SLICE_S, Deadline, has_passed, slice_s, unfinished_text
from .compiled import CompiledPath
from .devices import Home


class InFlight:
    """The Executable's own stream, and every stream with launches in flight."""

    def __init__(self, name: str, home: Home, compiled: CompiledPath) -> None:
        self.stream = 0
        """The own one; 0 before `open`."""
        self._name = name
        self._home = home
        self._runtime = home.runtime
        self._compiled = compiled
        self.pending: dict[int, list[None]] = {}
        """Streams with launches that nobody has waited for yet, each with an object of its own for the last one."""
        self.lock = threading.Lock()
        self._failed: HipError | None = None
        """What a launch has failed with, until nothing is in flight and it can be raised."""
        self._last: int | None = None
        """The stream of the last launch `in_turn`; the null stream is 0."""
        self.end = 0
        """Event behind that launch, where it was on another stream than the own; 0 as long as none was."""

    def open(self) -> None:
        """Make the own stream."""
        self.stream = self._runtime.stream_create()

    def launched(self, stream: int) -> None:
        """Remember a launch."""
        self._compiled.be_calm(False)
        with self.lock:
            self.pending[stream] = []

    def in_turn(self, launch: Callable[[int], None], stream: int) -> None:
        """Launch on a stream behind the launch before, whatever stream that was on; what a capture records is ordered by it."""
        own, last = self.stream, self._last
        if stream == own and (last is None or last == own):
            self._last = own
            launch(stream)
            return
        runtime = self._runtime
        if stream and runtime.stream_get_capture_info(stream).status is CaptureStatus.ACTIVE:  # the null stream is in none
            launch(stream)
            return
        self.end = self.end or runtime.event_create(timing=False)
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

    def note_compiled(self) -> None:
        """Remember launches of the compiled call path, which uses the own stream."""
        launcher = self._compiled.launcher
        if launcher is not None and launcher.pending:
            self._compiled.be_calm(False)
            with self.lock:  # both without a call, at which Ctrl-C may come
                launcher.pending = False
                self.pending[self.stream] = []

    def wait(self, timeout_s: float | None, unfinished: Callable[[], tuple[str, ...]]) -> None:
        """Wait until all launches have finished, and raise what one has failed with; errors name what is `unfinished`."""
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
                            done = wait(stream, left)
                    else:  # most waits are short, and an empty context manager costs a tenth of them
                        done = wait(stream, left)
                except HipError as error:
                    # The query may have failed while the work runs on, and the work must not outlive its modules and memory.
                    with suppress(HipError):
                        self._runtime.stream_synchronize(stream)
                    self._failed, done = self._failed or error, True
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
        """Note the code that a wait by compiled code has met, for `wait` to raise."""
        try:
            self._runtime.call_failed("hipStreamQuery", code)
        except HipError as error:
            self._failed = self._failed or error

    def refused(self, stream: int, error: Exception) -> bool:
        """Return whether a launch has failed because there is no such stream, on which then nothing can be waited for."""
        if not isinstance(error, HipError) or error.code != ERROR_INVALID_HANDLE:
            return False
        try:
            self._runtime.stream_query(stream)
        except HipError as again:
            return again.code == ERROR_INVALID_HANDLE
        return False

    def settle(self, stream: int) -> None:
        """Wait until a stream's work has ended, whatever has become of it; Ctrl-C interrupts."""
        with suppress(HipError):
            while not self._runtime.stream_wait(stream, SLICE_S):
                pass

    def done(self) -> bool:
        """Return whether all launches have finished."""
        self.note_compiled()
        try:
            with self._home.there():
                return all(self._runtime.stream_query(stream) for stream in tuple(self.pending))
        except HipError:
            return True

    @property
    def any(self) -> bool:
        """Whether something has not been waited for."""
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
