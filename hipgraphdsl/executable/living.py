"""The Executables of this process: those that are open, and those that were left with work that had not ended."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

from .changing import Users

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
