"""The time between two events of an Executable."""

from __future__ import annotations

from typing import Any

from ..backends import SharedHandles
from ..errors import DeclarationError, HipError, HipGraphError
from ..runtimes.data import ERROR_INVALID_HANDLE
from .devices import Home


def elapsed_us(graph: str, shared: SharedHandles, home: Home, start: Any, stop: Any) -> float:
    """Return microseconds between two recorded events of a graph, given by name or as Event."""
    handles = []
    for event in (start, stop):
        name = getattr(event, "name", event)
        handle = shared.event_named(name) if isinstance(name, str) else None
        if handle is None:
            raise DeclarationError(f"graph {graph!r} records no event {name!r}")
        handles.append(handle)
    try:
        with home.there():
            return home.runtime.event_elapsed_time(*handles) * 1e3
    except HipError as error:
        if error.code != ERROR_INVALID_HANDLE:  # the code of an event that was never recorded
            raise
        raise HipGraphError(
            f"elapsed_us: graph {graph!r} has not recorded both events yet; launch it first, with the nodes that record them"
            " enabled"
        ) from error
