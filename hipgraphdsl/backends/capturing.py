"""Stream capture that is always ended, even if the captured function fails."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

from ..errors import HipError
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureMode, CaptureStatus


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
