"""What of an Executable the compiled call path does, where there is one; see `backends.compiled`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional, Protocol

from ..arrays import Parameter
from ..backends import Program
from ..backends.compiled import CompiledPath
from ..backends.operations import Operation
from ..runtimes.base import Runtime

__all__ = ["LongWay", "ShortWay"]


class LongWay(Protocol):
    """The Python method that takes every launch that the compiled call path does not."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

    def failed(self, code: int) -> None:
        """Raise for a code of hipGraphLaunch."""

    def stand_aside(self, launch: Optional[Callable[..., None]]) -> None:
        """Let this be called instead, or nothing any more."""


class ShortWay:
    """The compiled call path of one Executable, or its absence.

    Attributes
    ----------
    compiled : CompiledPath or None
    launcher : Launcher or None
        Its compiled part, which counts what it does.
    wanted : bool
        Whether launches give values, so that being told how to set parameters is worth its time.
    """

    def __init__(self, runtime: Runtime, long_way: LongWay) -> None:
        self._long_way = long_way
        compiled = CompiledPath(runtime, long_way)
        self.compiled = compiled if compiled.launcher is not None else None
        self.launcher: Any = compiled.launcher
        self.wanted = False

    def take_over(self, other: ShortWay) -> None:
        """Become what another Executable's is, which is not used any more; bind it then."""
        self._long_way, self.compiled, self.launcher = other._long_way, other.compiled, other.launcher

    def bind(self, program: Optional[Program], stream: int) -> None:
        """Let it, where it can launch the program, stand for `launch`."""
        if self.compiled is not None:
            self.compiled.bind(program, stream)
            self._long_way.stand_aside(self.launcher.launch if self.compiled.bound else None)

    def close(self) -> None:
        """Send every call the long way for good, without waiting for any."""
        if self.launcher is not None:
            self.launcher.ready = False

    def has_launched(self) -> bool:
        """Return whether it has launched since this was last asked."""
        launcher = self.launcher
        if launcher is None or not launcher.pending:
            return False
        launcher.pending = False
        return True

    def counts(self) -> tuple[int, int]:
        """Return how many launches and node updates it has made since this was last asked."""
        launcher = self.launcher
        if launcher is None:
            return 0, 0
        launches, launcher.launches = launcher.launches, 0
        updates, launcher.updates = launcher.updates, 0
        return launches, updates

    def pause(self) -> Optional[CompiledPath]:
        """Send every call the long way and wait for those under way; return what may be asked what it has done, if anything."""
        if self.compiled is None or not self.compiled.bound:
            return None
        self.compiled.pause()
        return self.compiled

    def offer(
        self, program: Callable[[], Program], users: Callable[[], Mapping[str, tuple[Parameter, Any, list[int]]]]
    ) -> None:
        """Let it take calls again; if it is wanted, it is told of the program and the parameters, as by `CompiledPath.offer`."""
        compiled = self.compiled
        if compiled is None or not compiled.bound:
            return
        if compiled.stale and self.wanted:
            self.wanted = False
            compiled.offer(program(), users())
        elif compiled.stale:  # what is changed again before the next launch with values need not be looked through now
            compiled.forget()
        self.launcher.ready = True

    def withdraw(self) -> None:
        """Say that what it was offered no longer holds."""
        if self.compiled is not None:
            self.compiled.stale = True

    def note_value(self, name: str) -> None:
        """Say that a parameter has another value than it knows of."""
        if self.compiled is not None:
            self.compiled.note_value(name)

    def note_step(self, index: int, operation: Operation) -> None:
        """Say that a step does something else than it knows of."""
        if self.compiled is not None:
            self.compiled.note_step(index, operation)
