"""The critical section in which an Executable is changed, and that of threads which only look at it or wait for it."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

_ASK_S: Final = 1e-4  # between two looks at whether other threads have left


class Changing:
    """The critical section of the slow path: one thread changes, launches or closes an Executable, with its device current."""

    __slots__ = ("_action", "_executable", "_there")

    def __init__(self, executable: Any, action: str, *, returning: bool = False) -> None:
        self._executable = executable
        self._action = action
        home = executable._own.home
        self._there = home.returning() if returning else home.there() if home.switches else None

    def __enter__(self) -> None:
        executable = self._executable
        executable._lock.acquire()
        executable._depth += 1
        there, self._there = self._there, None
        try:
            if executable._closed or executable._forked:
                if self._action not in ("close", "parameters"):
                    executable._refuse_closed(self._action)
            elif executable._depth == 1:
                if executable._own.compiled.pause():
                    executable._own.take_back()
                if there is not None:
                    there.__enter__()
                    self._there = there
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        executable = self._executable
        try:
            if executable._depth == 1 and not executable._closed and not executable._forked:
                executable._own.offer()
        finally:
            executable._depth -= 1
            executable._lock.release()
            if self._there is not None:
                self._there.__exit__(None, None, None)


class Users:
    """The threads that read, write or wait without the lock: what they use is not returned before they have left.

    A thread may enter again what it is in.
    """

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        """How often each thread is inside; a thread changes only its own entry."""

    def enter(self) -> int:
        """Let the calling thread in; return how often it is inside now."""
        thread = threading.get_ident()
        depth = self._depths[thread] = self._depths.get(thread, 0) + 1
        return depth

    def leave(self) -> None:
        """End what `enter` began."""
        thread = threading.get_ident()
        self._depths[thread] -= 1
        if not self._depths[thread]:
            del self._depths[thread]

    def wait_for_others(self) -> None:
        """Wait until no other thread is inside; Ctrl-C interrupts."""
        thread = threading.get_ident()
        while any(other != thread for other in tuple(self._depths)):
            time.sleep(_ASK_S)


class Using:
    """The section of a thread that reads, writes or waits: the Executable is open, and stays so until the section ends."""

    __slots__ = ("_action", "_executable")

    def __init__(self, executable: Any, action: str) -> None:
        self._executable = executable
        self._action = action

    def __enter__(self) -> None:
        executable = self._executable
        if executable._users.enter() > 1 or not (executable._closed or executable._forked):
            return
        executable._users.leave()
        with executable._lock:  # an update that rebuilds closes it for a while
            if executable._closed or executable._forked:
                executable._refuse_closed(self._action)
            executable._users.enter()

    def __exit__(self, *_: object) -> None:
        self._executable._users.leave()
