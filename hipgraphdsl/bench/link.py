"""The link between host and device: what it carries, measured by large copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from ..runtimes.base import MemcpyKind, Runtime
from .measure import repeat_us

__all__ = ["Link", "link_limit"]


@dataclass(frozen=True)
class Link:
    """What the link between host and device carries, in 10^9 bytes a second."""

    host_to_device: float
    device_to_host: float
    both_ways: float

    def least_us(self, to_device: int, to_host: int) -> float:
        """Return the least time, in microseconds, for so many bytes each way at once."""
        alone = max(to_device / self.host_to_device, to_host / self.device_to_host)
        return max(alone, (to_device + to_host) / self.both_ways if to_device and to_host else 0.0) / 1e3


def link_limit(runtime: Runtime, nbytes: int, repeats: int = 5) -> Link:
    """Measure the link by copies of one large run of bytes, each way alone and both at once; the fastest of each counts."""
    device, host = [runtime.malloc(nbytes) for _ in range(2)], [runtime.host_malloc(nbytes) for _ in range(2)]
    streams = [runtime.stream_create() for _ in range(2)]

    def into() -> None:
        runtime.memcpy_async(device[0], host[0], nbytes, MemcpyKind.HOST_TO_DEVICE, streams[0])

    def out() -> None:
        runtime.memcpy_async(host[1], device[1], nbytes, MemcpyKind.DEVICE_TO_HOST, streams[1])

    def timed(*calls: Callable[[], None]) -> float:
        def once() -> None:
            for call in calls:
                call()
            for stream in streams:
                runtime.stream_synchronize(stream)

        once()
        return len(calls) * nbytes / (min(repeat_us(once, repeats)) * 1e3)

    try:
        for pointer in host:
            ctypes.memset(pointer, 1, nbytes)
        return Link(timed(into), timed(out), timed(into, out))
    finally:
        for stream in streams:
            runtime.stream_destroy(stream)
        for pointer in device:
            runtime.free(pointer)
        for pointer in host:
            runtime.host_free(pointer)
