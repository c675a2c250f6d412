"""Stream capture that is always ended, even if the captured function fails, and what keeps alive what it has recorded."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ..errors import HipError
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureMode, CaptureStatus

Kept = dict[int, Any]
"""Objects by their identity, kept alive for a captured graph."""


@dataclass(eq=False, slots=True)
class _Recording:
    """A function of the user's that issues work on a stream, which may capture."""

    runtime: Runtime
    stream: int
    kept: Kept


recordings: Final[list[_Recording]] = []
"""Those that are running; without any, no launch has to ask."""


def recording(runtime: Runtime, stream: int, kept: Kept, call: Callable[[], object]) -> None:
    """Call a function that issues work on a stream; what it records of Executables is added to `kept`."""
    mine = _Recording(runtime, stream, kept)
    try:
        recordings.append(mine)
        call()
    finally:
        if mine in recordings:  # else Ctrl-C came before it was added
            recordings.remove(mine)


def keep_recorded(runtime: Runtime, stream: int, used: Callable[[], object]) -> None:
    """Let the functions whose captures record a launch on a stream keep alive what it uses, the result of `used`.

    Captures that other libraries have begun are not known here.
    """
    if stream in (0, 1):  # the null stream cannot capture
        return
    capture = runtime.stream_get_capture_info(stream)
    if capture.status is not CaptureStatus.ACTIVE:
        return
    for each in tuple(recordings):
        if each.runtime.name == runtime.name and each.runtime.stream_get_capture_info(each.stream).id == capture.id:
            found = used()
            each.kept[id(found)] = found


def captured(runtime: Runtime, stream: int, issue: Callable[[], object], join: Callable[[], None] | None = None) -> int:
    """Capture what a function issues on `stream` and return the new graph.

    Garbage collection is disabled meanwhile: a finaliser that unloads a module or frees memory invalidates a capture. If the
    function fails, `join` is called to join forked streams (on AMD's runtime an unjoined fork leaves streams that no call can
    recover), the capture is ended and its graph destroyed.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        runtime.stream_begin_capture(stream, CaptureMode.THREAD_LOCAL)
        try:
            issue()
        except BaseException:
            _abandon(runtime, stream, join)
            raise
        return runtime.stream_end_capture(stream)
    finally:
        if collecting:
            gc.enable()


def _abandon(runtime: Runtime, stream: int, join: Callable[[], None] | None) -> None:
    # Suppress failures to end the capture: the exception of the function tells more.
    with suppress(HipError):
        if runtime.stream_get_capture_info(stream).status is CaptureStatus.ACTIVE and join is not None:
            join()
    with suppress(HipError):
        runtime.graph_destroy(runtime.stream_end_capture(stream))
