"""Locking of an Executable's methods: one thread at a time changes it, several may read, write and wait; none may in a fork.

Each section is a plain `with` on a standard-library lock, because Ctrl-C may come between any two bytecodes: a Python
`__enter__` could be interrupted after it has taken the lock, which would then never be released.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from ..backends.callbacks import running
from ..errors import WaitTimeout
from ..waiting import require_seconds, unfinished_text

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], T]
"""A method of an Executable."""

_ASK_S: Final = 1e-4  # seconds between two polls for threads that are still inside


def changing(action: str, *, when_closed: bool = False, limited: int | None = None) -> Callable[[Method[P, T]], Method[P, T]]:
    """Run a method in the slow path's critical section: one thread changes, launches or closes, with the home device current.

    With `when_closed` the method also runs on a closed or forked Executable, and must handle that case itself. `limited` is the
    position of the method's argument `timeout_s`, which limits the wait for other threads too.
    """

    def section(method: Method[P, T]) -> Method[P, T]:
        @wraps(method)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if running or self._own.hosts.inside:  # before taking a lock whose owner may wait for the calling function
                self._own.hosts.refuse_inside(action, self.workflow.name)
            if limited is not None:
                given: Any = args[limited] if len(args) > limited else kwargs.get("timeout_s")
                if given is not None and type(given) is not _Left:
                    again = cast("Callable[..., T]", call)
                    return _in_time(self, action, given, partial(again, self, *args[:limited], **kwargs))
            with self._lock:
                if (self._closed or self._forked) and not when_closed:
                    self._refuse_closed(action)
                if self._closed or self._forked or self._outermost.locked():
                    return method(self, *args, **kwargs)
                home = self._own.home
                with self._outermost, home.returning() if action == "close" else home.there():
                    if self._own.compiled.pause():
                        self._own.read_compiled()
                    try:
                        return method(self, *args, **kwargs)
                    finally:
                        if not (self._closed or self._forked):
                            self._own.resume_compiled()

        return call

    return section


class _Left(float):
    """What is left of a time limit when the lock has been taken."""


def _in_time(executable: Any, action: str, timeout_s: Any, call: Callable[..., T]) -> T:
    """Take the lock within a time limit, and call with what is left of it."""
    require_seconds(timeout_s)
    before, held = time.monotonic(), list[bool]()
    try:
        # Atomic: Ctrl-C cannot come between taking the lock and noting it.
        held += map(executable._lock.acquire, (True,), (min(timeout_s, threading.TIMEOUT_MAX),))
        if False in held:
            raise _busy(executable, action, timeout_s)
        return call(timeout_s=_Left(max(0.0, timeout_s - round(time.monotonic() - before, 3))))
    finally:
        if True in held:
            executable._lock.release()


def _busy(executable: Any, action: str, timeout_s: float) -> WaitTimeout:
    names = executable._own.unfinished()
    said = f"{action}: another thread, which launches or changes graph {executable.workflow.name!r}, has not returned"
    return WaitTimeout(f"{said} after {timeout_s:g} s; the Executable is still open{unfinished_text(names)}", names)


def using(action: str) -> Callable[[Method[P, T]], Method[P, T]]:
    """Run a method that reads, writes or waits without the lock; the Executable stays open until the method returns."""

    def section(method: Method[P, T]) -> Method[P, T]:
        @wraps(method)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if running or self._own.hosts.inside:  # before taking a lock whose owner may wait for the calling function
                self._own.hosts.refuse_inside(action, self.workflow.name)
            mine = self._users.mine()
            if mine.locked():  # by an outer call in this thread
                return method(self, *args, **kwargs)
            while True:
                with mine:
                    if not (self._closed or self._forked):
                        return method(self, *args, **kwargs)
                with self._lock:  # an update that rebuilds closes it temporarily
                    if self._closed or self._forked:
                        self._refuse_closed(action)

        return call

    return section


class Users:
    """Threads that read, write or wait without the lock; nothing that they use is freed before they have left."""

    def __init__(self) -> None:
        self._inside: dict[int, threading.Lock] = {}
        """A lock for each thread identifier, held while that thread is inside; no other thread acquires it."""

    def mine(self) -> threading.Lock:
        """Return the lock that the calling thread holds while it is inside."""
        thread = threading.get_ident()
        return self._inside.get(thread) or self._inside.setdefault(thread, threading.Lock())

    def wait_for_others(self) -> None:
        """Wait until no other thread is inside; Ctrl-C interrupts."""
        thread = threading.get_ident()
        while any(lock.locked() for other, lock in tuple(self._inside.items()) if other != thread):
            time.sleep(_ASK_S)


living: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Open Executables, which refuse calls in a fork."""
left_running: Final[list[Any]] = []
"""Executables with unfinished work, kept alive until the process ends because the device may still use their memory."""


def _after_fork() -> None:
    for executable in living:
        executable._forked = True
        executable._own.compiled.disable()
        if executable._lock.acquire(blocking=False):
            executable._lock.release()
        else:  # the owner is a thread that does not exist in this process
            executable._lock, executable._outermost = threading.RLock(), threading.Lock()
        executable._users = Users()


os.register_at_fork(after_in_child=_after_fork)
