"""Waits for the device that Ctrl-C and a time limit can end, and the text of their errors."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .errors import DeclarationError, WaitTimeout, listed

SLICE_S: Final = 0.05
"""Seconds that a wait stays inside one C call, which delays Ctrl-C by as much."""


class Deadline(NamedTuple):
    """The time at which a wait gives up."""

    at: float  # by `time.monotonic`
    unfinished: Callable[[], tuple[str, ...]]  # returns the names of the nodes that have not finished, for the error

    @classmethod
    def after(cls, timeout_s: float, unfinished: Callable[[], tuple[str, ...]]) -> Deadline:
        """Return the deadline `timeout_s` seconds from now."""
        return cls(time.monotonic() + timeout_s, unfinished)

    def left(self) -> float:
        """Return the seconds that are left, as locks take them."""
        return min(max(0.0, self.at - time.monotonic()), threading.TIMEOUT_MAX)


_noted: Final[dict[int, Deadline]] = {}
"""By thread ID, the time limit of the call that a thread is in."""


def note(deadline: Deadline | None) -> Deadline | None:
    """Note the time limit of the call that this thread begins; return that of the call around it, to be noted at the end."""
    thread = threading.get_ident()
    before = _noted.pop(thread, None)
    if deadline is not None:
        _noted[thread] = deadline
    return before


def let_calls_end() -> None:
    """Wait until all calls with a time limit that other threads are in now have ended, or their time is up.

    HIP frees memory when the device is idle, and AMD's library may keep other threads out of its calls until then: such a call
    would last until all work is done.
    """
    for thread, deadline in tuple(_noted.items()):
        pause = 1e-4
        while _noted.get(thread) is deadline and not has_passed(deadline):
            time.sleep(pause)
            pause = min(2 * pause, SLICE_S)


def slice_s(deadline: Deadline | None) -> float:
    """Return how long the next call may wait, in seconds."""
    return SLICE_S if deadline is None else min(SLICE_S, deadline.left())


def has_passed(deadline: Deadline | None) -> bool:
    """Return whether there is a deadline and it has passed."""
    return deadline is not None and time.monotonic() >= deadline.at


def require_room(wait_for_room: Callable[[float], bool], deadline: Deadline | None, said: str) -> None:
    """Wait by `wait_for_room` until streams take more work; a WaitTimeout begins with `said`: how far the launch came."""
    left = math.inf if deadline is None else deadline.left()
    if not wait_for_room(left) and deadline is not None:
        names = deadline.unfinished()
        raise WaitTimeout(f"{said}: too much work is in flight on its streams{unfinished_text(names)}", names)


def unfinished_text(names: tuple[str, ...]) -> str:
    """Return the end of a message that names nodes which have not finished."""
    if not names:
        return ""
    return f"; not finished: {listed(names)}"


def require_seconds(timeout_s: Any) -> None:
    """Refuse an invalid timeout."""
    if timeout_s is not None and not (isinstance(timeout_s, (int, float, np.number)) and timeout_s >= 0):
        raise DeclarationError(f"timeout_s is a number of seconds from 0, or None (got {timeout_s!r})")
