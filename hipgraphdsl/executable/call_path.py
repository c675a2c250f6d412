"""The way that calls of an Executable take: its Python methods, or compiled code where the part `fast` replaces some of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..arrays import Parameter
from ..backends import Environment, Program
from ..backends.operations import Operation
from ..parts import find
from .devices import Home

_NONE: Final[frozenset[int]] = frozenset()


SERVED: Final = ("launch", "synchronize", "run")
"""The methods of an Executable that a compiled launcher may serve."""


def serve(executable: Any, launcher: Any) -> None:
    """Let a launcher serve calls of the methods `SERVED`; None restores the Executable's own.

    Its methods stand in the instance's dictionary, where Python finds them first: a method that passes calls on would double the
    time of a launch.
    """
    for name in SERVED:
        if launcher is not None:
            executable.__dict__[name] = getattr(launcher, name)
        else:
            executable.__dict__.pop(name, None)


class CallPath:
    """The Python methods alone. The part `fast` overrides this to bind a compiled launcher to the program of an Executable."""

    launcher: Any = None
    """The compiled launcher, which counts its launches and updates, or None."""
    bound: bool = False
    """Whether the launcher can launch the current program."""
    wanted: bool = False
    """Whether launches give parameter values, so that compiled code should be told which it may set."""
    blocked: bool = False
    """Whether every launch must take the Python methods, because a transport between ranks must act before it."""

    def take_over(self, other: CallPath) -> None:
        """Take over the call path of a closed Executable; the caller must call `bind` next."""

    def bind(self, program: Program | None, stream: int) -> None:
        """Make the launcher launch this program in place of the Python method; None unbinds it."""

    def bind_calls(self, program: Program, stream: int) -> bool:
        """Bind to a program that is not a graph, if it is recorded calls without functions; the next change unbinds it."""
        return False

    def block(self) -> None:
        """Send all launches to the Python methods, without waiting for calls in progress."""
        self.blocked = True

    def unblock(self) -> None:
        """Allow compiled launches again; the caller ensures that no change is in progress."""
        self.blocked = False

    def disable(self) -> None:
        """Disable compiled calls, without waiting for calls in progress."""

    def pause(self) -> bool:
        """Disable compiled calls and wait for those in progress; return whether one may have launched or set something."""
        return False

    @property
    def can_wait(self) -> bool:
        """Whether `synchronize` waits by compiled code if the launches are compiled code's."""
        return True

    def allow_wait(self, *, allowed: bool) -> None:
        """Set whether `synchronize` only has to wait for the own stream, so that compiled code may wait until the next change."""

    def drain(self) -> None:
        """Wait for compiled calls in progress."""

    def counts(self) -> tuple[int, int]:
        """Return how many launches and node updates compiled code has made since the last call of this method."""
        return 0, 0

    def values(self) -> dict[str, Any]:
        """Return the parameter values that compiled code has set."""
        return {}

    def steps_of(self, name: str) -> frozenset[int]:
        """Return the steps that compiled code sets when it gives a parameter a value."""
        return _NONE

    def resume(
        self, program: Callable[[], Program], users: Callable[[], Mapping[str, tuple[Environment, Parameter, list[int]]]]
    ) -> None:
        """Enable compiled calls of the bound program again; these callables tell what they may set."""

    def invalidate(self) -> None:
        """Mark what compiled code was told that it may set as outdated."""

    def refused(self) -> None:
        """Mark it as outdated because compiled code could not set a value."""

    def note_step(self, index: int, operation: Operation) -> None:
        """Tell compiled code that a step has changed."""


def call_path_of(executable: weakref.ref[Any], graph: str, home: Home) -> CallPath:
    """Return the call path of an Executable; the part `fast` has one by compiled code."""
    fast = find("fast")
    path: CallPath = CallPath() if fast is None else fast.CompiledPath(home, fast.SlowPath(executable, graph))
    return path
