"""Who may be in the methods of an Executable at a time: one thread that changes it, or several that read, write and wait.

Each is a plain `with` on a lock of the standard library, because Ctrl-C may come between any two bytecodes: a section with an
`__enter__` of its own could be interrupted inside of it and be held for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ..backends.callbacks import running

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], T]
"""A method of an Executable."""

_ASK_S: Final = 1e-4  # between two looks at whether other threads have left


def changing(action: str, *, when_closed: bool = False) -> Callable[[Method[P, T]], Method[P, T]]:
    """Run a method in the critical section of the slow path: one thread changes, launches or closes, with its device current.

    A method that may be called `when_closed` looks after that itself.
    """

    def section(method: Method[P, T]) -> Method[P, T]:
        @wraps(method)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            _require_outside(self, action)
            with self._lock:
                if (self._closed or self._forked) and not when_closed:
                    self._refuse_closed(action)
                if self._closed or self._forked or self._outermost.locked():
                    return method(self, *args, **kwargs)
                home = self._own.home
                with self._outermost, home.returning() if action == "close" else home.there():
                    if self._own.compiled.pause():
                        self._own.take_back()
                    try:
                        return method(self, *args, **kwargs)
                    finally:
                        if not (self._closed or self._forked):
                            self._own.offer()

        return call

    return section


def using(action: str) -> Callable[[Method[P, T]], Method[P, T]]:
    """Run a method that reads, writes or waits without the lock: the Executable is open, and stays so until it returns."""

    def section(method: Method[P, T]) -> Method[P, T]:
        @wraps(method)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            _require_outside(self, action)
            mine = self._users.mine()
            if mine.locked():  # by an outer call in this thread
                return method(self, *args, **kwargs)
            while True:
                with mine:
                    if not (self._closed or self._forked):
                        return method(self, *args, **kwargs)
                with self._lock:  # an update that rebuilds closes it for a while
                    if self._closed or self._forked:
                        self._refuse_closed(action)

        return call

    return section


def _require_outside(executable: Any, action: str) -> None:
    """Refuse calls of functions that a launch calls; before a lock is taken, whose owner may wait for that function."""
    hosts = executable._own.hosts
    if running or hosts.inside:
        hosts.refuse_inside(action, executable.workflow.name)


class Users:
    """The threads that read, write or wait without the lock: what they use is not returned before they have left."""

    def __init__(self) -> None:
        self._inside: dict[int, threading.Lock] = {}
        """By thread: held while it is inside. No other thread takes it."""

    def mine(self) -> threading.Lock:
        """Return the lock that the calling thread holds while it is inside."""
        thread = threading.get_ident()
        return self._inside.get(thread) or self._inside.setdefault(thread, threading.Lock())

    def wait_for_others(self) -> None:
        """Wait until no other thread is inside; Ctrl-C interrupts."""
        thread = threading.get_ident()
        while any(lock.locked() for other, lock in tuple(self._inside.items()) if other != thread):
            time.sleep(_ASK_S)
