"""A capture that never stays open, whatever fails in between."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import HipError
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureMode, CaptureStatus


class Capture:
    """The outcome of `capturing`: `graph` is set when the block has ended well."""

    graph: int = 0


@contextmanager
def capturing(
    runtime: Runtime, stream: int, join: Callable[[], None], mode: CaptureMode = CaptureMode.THREAD_LOCAL
) -> Iterator[Capture]:
    """Capture what the block issues on `stream`.

    Garbage collection is held off, because a finaliser that unloads a module or frees memory invalidates a capture. If the
    block fails, `join` is called to join forked streams (on AMD's runtime an unjoined fork leaves streams that no call can
    recover), the capture is ended and its graph thrown away.
    """
    capture = Capture()
    collecting = gc.isenabled()
    gc.disable()
    try:
        runtime.stream_begin_capture(stream, mode)
        try:
            yield capture
        except BaseException:
            _abandon(runtime, stream, join)
            raise
        capture.graph = runtime.stream_end_capture(stream)
    finally:
        if collecting:
            gc.enable()


def _abandon(runtime: Runtime, stream: int, join: Callable[[], None]) -> None:
    # What the block raised says more than that the capture could not be ended well.
    with suppress(HipError):
        if runtime.stream_get_capture_info(stream).status is CaptureStatus.ACTIVE:
            join()
    with suppress(HipError):
        runtime.graph_destroy(runtime.stream_end_capture(stream))
