"""The time between two events of an Executable, and which of its nodes the last launch ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..backends import SharedHandles
from ..errors import DeclarationError, HipError, HipGraphError
from ..runtimes.base import Runtime
from ..runtimes.data import ERROR_INVALID_HANDLE, ERROR_NOT_READY
from .state import State, within


class Switched:
    """Which nodes were enabled or disabled, and after how many launches: the last launch may have had another state than now."""

    def __init__(self) -> None:
        self._after: dict[str, int] = {}
        """By the name of a node or child: the number of launches when it was last switched, unless it was switched back since."""

    def note(self, before: Iterable[str], after: Iterable[str], launches: int) -> None:
        """Note a change of the names of the disabled nodes."""
        for name in set(before) ^ set(after):
            if self._after.get(name) == launches:
                del self._after[name]
            else:
                self._after[name] = launches

    def ran(self, name: str, off: Iterable[str], launches: int) -> bool:
        """Return whether a node was enabled in the last launch; `off` are the names of the disabled nodes."""
        switched = max((count for other, count in self._after.items() if within(name, other)), default=-1)
        return switched == launches if any(within(name, other) for other in off) else switched < launches


def elapsed_us(
    state: State, switched: Switched, launches: int, shared: SharedHandles, runtime: Runtime, start: Any, stop: Any
) -> float:
    """Return microseconds between two events that the last of the launches recorded, given by name or as Event.

    Nothing is in flight, and the graph's device is current.
    """
    graph, handles = state.workflow.name, []
    for event in (start, stop):
        name = getattr(event, "name", event)
        handle = shared.event_named(name) if isinstance(name, str) else None
        if handle is None:
            raise DeclarationError(f"graph {graph!r} records no event {name!r}")
        handles.append(handle)
        by = [
            level.name(node) for level, node in state.workflow.walk() if node.recorded is not None and node.recorded.name == name
        ]
        if by and not any(switched.ran(node, state.names_off, launches) for node in by):
            raise HipGraphError(
                f"elapsed_us: the last launch of graph {graph!r} did not record event {name!r}, because {by[0]!r} was disabled;"
                " enable it and launch again"
            )
    try:
        return runtime.event_elapsed_time(*handles) * 1e3
    except HipError as error:
        if error.code == ERROR_NOT_READY:
            raise HipGraphError(
                f"elapsed_us: a launch of another graph records an event that graph {graph!r} shares, and has not finished; wait"
                " for it first"
            ) from error
        if error.code != ERROR_INVALID_HANDLE:  # the code of an event that was never recorded
            raise
        raise HipGraphError(
            f"elapsed_us: graph {graph!r} has not recorded both events yet; launch it first, with the nodes that record them"
            " enabled"
        ) from error
