"""The critical section in which an Executable is changed."""

from __future__ import annotations

from typing import Any


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
