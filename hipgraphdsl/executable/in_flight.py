"""Launches of one Executable that nothing has waited for yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..arrays import as_handle
from ..backends import into_captures
from ..errors import DeclarationError, HipError, WaitTimeout
from ..plan.steps import Plan
from ..runtimes.data import ERROR_INVALID_HANDLE
from ..waiting import SLICE_S, Deadline, has_passed, note, slice_s, unfinished_text
from .call_path import CallPath
from .devices import Home

if TYPE_CHECKING:
    from .arena import Arena


class InFlight:
    """The Executable's own stream, which waits for the launches on every other one.

    A user's stream may be destroyed while a launch on it is in flight, so nothing asks it later.
    """

    def __init__(self, name: str, home: Home, compiled: CallPath, arena: Arena | None = None) -> None:
        self.stream = 0
        """The Executable's own stream; 0 before `open`."""
        self._lent = False
        """Whether others know the own stream."""
        self._shared = False
        """Whether a launch that nothing has waited for is on a stream of others, who may be told of its failure instead."""
        self._name = name
        self._home = home
        self._runtime = home.runtime
        self._compiled = compiled
        self._arena = arena
        self.pending: dict[int, object] = {}
        """Streams with launches that nothing has waited for yet, each with a new object that identifies its last launch.

        `take_over` leaves none but the own stream.
        """
        self.objects: dict[int, Any] = {}
        """The stream objects that these launches were given, which may own their streams, by handle."""
        self.lock = threading.Lock()
        self._failed: HipError | None = None
        """The error of a failed launch, kept until nothing is in flight and `wait` raises it."""
        self._last: int | None = None
        """The stream of the last launch `in_turn`; the null stream is 0."""
        self.fences: dict[int, int] = {}
        """Events by which streams wait for each other, by device of the stream that is waited for."""
        self._behind: tuple[object, int] = (None, 0)
        """The object in `pending` of the launch that the own stream waits for, and the event of its end."""

    def open(self) -> None:
        """Create the own stream, or take that of the arena, which others know."""
        if self._arena is None:
            self.stream = self._runtime.stream_create()
        else:
            self.stream = self._arena.enter(self._home)
            self.lend()

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of the own stream and of the events with an exit stack."""
        if self.stream:
            returned = partial(self._runtime.stream_destroy, self.stream) if self._arena is None else self._arena.leave
            stack.callback(returned)
        for event in self.fences.values():
            stack.callback(self._runtime.event_destroy, event)

    def keep(self, handle: int, stream: Any) -> None:
        """Keep the object of a user's stream, which may own it, until its launches have been waited for."""
        if stream is not None and stream is not handle:
            self.objects[handle] = stream

    def launched(self, stream: int) -> None:
        """Note a launch on a stream as in flight."""
        self._compiled.allow_wait(allowed=False)
        with self.lock:
            self.pending[stream] = object()

    def in_turn(self, launch: Callable[[int], None], stream: int) -> None:
        """Launch on a stream, after the previous launch on any stream; on a capturing stream the capture defines the order."""
        own = self.stream
        if stream != own and not self.captures(stream):
            self.note_compiled()
            if stream != self._last and own in self.pending and not self.captures(own):
                self.follow(stream, own, self._home.device)
            self._last = stream
        elif stream == own:  # it waits for the launches on all others
            self._last = own
        launch(stream)

    def on_home(self, launch: Callable[[int], None], stream: int) -> None:
        """Launch on a stream; for a stream of another device, on the own stream, with events that order both streams."""
        home, own = self._home.device, self.stream
        where = home if stream == own else self._runtime.stream_get_device(stream)
        if where == home:
            launch(stream)
            return
        self.follow(own, stream, where)
        try:
            launch(own)
        except BaseException:
            with suppress(HipError):
                self.follow(stream, own, home)
            raise
        self.follow(stream, own, home)

    def take_over(self, stream: int, *, captured: bool) -> None:
        """Let the own stream wait for a launch that has been noted on another one, also if it has failed.

        One that was `captured` does not run, and its stream may be gone when somebody waits.
        """
        if stream == self.stream or (not captured and self.captures(self.stream)):
            return  # a capture of the own stream must not wait for what it does not contain
        gone, event = False, 0
        self._shared = self._shared or not captured
        try:
            if not captured:
                with self._home.there():  # the backend may have made another device current
                    device = self._runtime.stream_get_device(stream) if self._home.several else self._home.device
                    event = self.follow(self.stream, stream, device)
        except HipError as error:
            if error.code != ERROR_INVALID_HANDLE:
                return  # whoever waits for the stream is told what has failed
            gone = True  # so that nothing was launched on it
        with self.lock:
            last = self.pending.get(stream)
            if not gone and last is not None:
                self._behind = last, event
                self.pending[self.stream] = last  # first: Ctrl-C in between leaves both
            self.pending.pop(stream, None)

    def follow(self, later: int, earlier: int, device: int) -> int:
        """Let a stream wait for work on another, which belongs to a device; return the event of its end."""
        event = self.fences.get(device, 0)
        if not event:
            with self._runtime.using_device(device):
                event = self.fences[device] = self._runtime.event_create(timing=False)
        self._runtime.event_record(event, earlier)
        self._runtime.stream_wait_event(later, event)
        return event

    def lend(self) -> int:
        """Return the own stream for others, who may capture on it: from now on each launch asks, compiled ones too."""
        self._lent = True
        if self._compiled.launcher is not None:
            self._compiled.launcher.capturing = self._runtime.capture_address()
        return self.stream

    def captures(self, stream: int) -> bool:
        """Return whether a launch on a stream would go to a capture, or end one; nobody captures the own stream before `lend`."""
        return (self._lent or stream != self.stream) and self._runtime.stream_is_capturing(stream)

    def require_recorded(self, stream: int, backend: str, plan: Plan) -> bool:
        """Return whether a stream captures; refuse a launch of a plan on it then, unless the capture records its calls.

        The null stream cannot capture itself.
        """
        try:
            captured = self.captures(stream)
        except HipError as error:
            if error.is_fault:  # of earlier work
                raise
            hint = f"launch of graph {self._name!r}: no stream has the handle of stream={stream:#x}, or it has been destroyed"
            raise error.hinted(hint) from error.__cause__
        if captured and self._arena is not None:
            raise DeclarationError(
                f"launch: stream {stream:#x} captures, and graph {self._name!r} shares memory with other graphs, which nobody can"
                " order with the replays of what it captures; compile it without memory= to launch it there"
            )
        if captured and (stream in (0, 1) or not into_captures(backend, plan)):
            raise DeclarationError(
                f"launch: stream {stream:#x} captures, or must wait for a stream that does, and a launch of graph {self._name!r}"
                f" by backend {backend!r} cannot be recorded there; launch it when the capture has ended, or compile a graph"
                " without alloc, eager and conditional nodes with backend='streams'"
            )
        return captured

    def _captures(self, stream: int) -> bool:
        """Return whether a stream captures, so that a query would end the capture."""
        return stream != 0 and self.captures(stream)  # the null stream cannot capture

    def note_compiled(self) -> None:
        """Note launches of the compiled call path as in flight on the own stream, which it uses."""
        launcher = self._compiled.launcher
        if launcher is not None and launcher.pending:
            self._compiled.allow_wait(allowed=False)
            noted = object()
            with self.lock:  # all without a call of any function, which Ctrl-C could interrupt
                launcher.pending = False
                self.pending[self.stream] = noted
                self._last = self.stream

    def wait(self, timeout_s: float | None, unfinished: Callable[[], tuple[str, ...]]) -> None:
        """Wait until all launches have finished, and raise the error of a failed one; errors name the `unfinished` nodes."""
        deadline = None if timeout_s is None else Deadline.after(timeout_s, unfinished)
        outer = None
        wait = self._runtime.stream_wait
        self.note_compiled()
        try:
            if deadline is not None:
                outer = note(deadline)
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
                    self._failed, done = self._failed or error, True
                    self._ended(stream)
                if done:
                    with self.lock:
                        if self.pending.get(stream) is last:  # else another thread has launched meanwhile
                            del self.pending[stream]
                    self._let_go()
                elif has_passed(deadline):
                    names = unfinished()
                    raise WaitTimeout(
                        f"graph {self._name!r} has not finished after {timeout_s:g} s" + unfinished_text(names), names
                    )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"while waiting for graph {self._name!r}" + unfinished_text(unfinished())) from None
        finally:
            if deadline is not None:
                note(outer)
        failed, self._failed = self._failed, None
        if failed is not None:
            names = unfinished()
            raise failed.hinted(unfinished_text(names)[2:]) if names else failed

    def _let_go(self) -> None:
        """Let go of the objects of streams if nothing is in flight."""
        left: dict[int, Any] = {}
        with self.lock:  # they die outside of it
            if not self.pending:
                left, self.objects = self.objects, left

    def keep_failed(self, error: HipError) -> None:
        """Keep the error of a launch for the next wait, which raises it."""
        self._failed = self._failed or error

    def failed(self, code: int) -> None:
        """Keep the error for a return code of a compiled wait, so that `wait` raises it."""
        try:
            self._runtime.call_failed("hipStreamQuery", code)
        except HipError as error:
            self._failed = self._failed or error

    def _ended(self, stream: int) -> None:
        """Wait for the work of a stream whose query has failed: it may run on, and must not outlive its modules and memory."""
        with suppress(HipError):
            self._runtime.stream_synchronize(stream)

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

    def was_shared(self) -> bool:
        """Return whether what has been waited for was on a stream of others, who may have been told of its failure instead."""
        shared = self._shared or self._lent
        self._shared = self._shared and bool(self.pending)
        return shared

    def done(self) -> bool:
        """Return whether all launches have finished; those on a stream that has failed count as finished."""
        self.note_compiled()
        with self._home.there():
            return all(self._finished(*each) for each in tuple(self.pending.items()))

    def _finished(self, stream: int, last: object) -> bool:
        behind, event = self._behind
        try:
            if self._captures(stream):
                return True
            # The own stream ends its wait a little after the launch that it waits for.
            return self._runtime.event_query(event) if event and behind is last else self._runtime.stream_query(stream)
        except HipError as error:  # which a query tells once
            self._failed = self._failed or error
            return True

    @property
    def any(self) -> bool:
        """Whether there are launches that nothing has waited for yet."""
        self.note_compiled()
        return bool(self.pending)

    def forget(self) -> None:
        """Forget all launches."""
        self.pending.clear()
        self.objects.clear()
        self._failed = None


def stream_handle(stream: Any) -> int:
    """Return the raw handle of a stream object of any library."""
    if type(stream) is int and 0 <= stream < 2**64:
        return stream
    number = as_handle(stream)
    if number is None:
        raise DeclarationError(f"stream is a raw handle or a stream object (got {stream!r})")
    return number
