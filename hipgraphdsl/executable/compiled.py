"""The compiled call path of one Executable: what `Executable.launch` is where a compiled launcher can be had.

A launch without arguments, or with new values of parameters that only kernel arguments use, runs without a Python frame. Every
other call goes to the Python method, which first takes back what the short way has done (`take_back`), lets it set new
values in kernel arguments (`launcher.set`), and afterwards says what may be set by it (`offer`).
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Optional, Protocol

from ..arrays import Parameter
from ..backends import Program, Scope
from ..backends.operations import Launch, Operation
from ..backends.program import GraphProgram
from ..kernels import ArgumentPacker
from ..nodes import KernelNode
from ..runtimes.base import Runtime
from .devices import Home

__all__ = ["CompiledPath", "LongWay"]

_KINDS: Final = "?bBhHiIqQfd"  # struct codes of arguments that the launcher can write
_MOST_USES: Final = 8192  # nodes whose argument memory is kept for it
_NONE: Final[frozenset[int]] = frozenset()


class _Arguments:
    """The parameters of one kernel node in memory that stays, where the launcher writes values."""

    def __init__(self, operation: Launch, runtime: Runtime) -> None:
        self.packer = ArgumentPacker(operation.packer.signature)
        self._runtime = runtime
        self._params = ctypes.create_string_buffer(self._written(operation))

    @property
    def address(self) -> int:
        return ctypes.addressof(self._params)

    def follow(self, operation: Operation) -> bool:
        """Hold what the node does now; False if it is no call with arguments of the same types."""
        if not isinstance(operation, Launch) or operation.packer.signature is not self.packer.signature or operation.cooperative:
            return False
        params = self._written(operation)
        ctypes.memmove(self._params, params, len(params))
        return True

    def _written(self, operation: Launch) -> bytes:
        table = self.packer.place(operation.packed)
        return self._runtime.kernel_params(operation.function, operation.grid, operation.block, operation.shared_bytes, table)


class LongWay(Protocol):
    """The Python method that takes every launch that the compiled call path does not."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

    def failed(self, code: int) -> None:
        """Raise for a code of hipGraphLaunch."""

    def stand_aside(self, launch: Optional[Callable[..., None]]) -> None:
        """Let this be called instead, or nothing any more."""


class CompiledPath:
    """A compiled launcher bound to a program, or the absence of one.

    Attributes
    ----------
    launcher : Launcher or None
        The compiled part, which counts what it does.
    bound : bool
        Whether it can launch what is there.
    wanted : bool
        Whether launches give values, so that being told how to set parameters is worth its time.
    """

    def __init__(self, home: Home, long_way: LongWay) -> None:
        self._home = home
        self._runtime = home.runtime
        self._long_way = long_way
        self.launcher: Any = home.runtime.launcher(long_way)
        self.bound = False
        self.wanted = False
        self._stale = True
        """Whether what was offered no longer holds."""
        self._kinds: dict[str, str] = {}
        """Struct codes of the parameters that the launcher may set by itself, because only kernel arguments use them."""
        self._steps: dict[str, frozenset[int]] = {}
        """The steps whose arguments it sets, of each parameter that it knows."""
        self._kept: dict[int, _Arguments] = {}
        """By step."""

    def take_over(self, other: CompiledPath) -> None:
        """Become what another Executable's is, which is not used any more; bind it then."""
        self._long_way, self.launcher = other._long_way, other.launcher

    def bind(self, program: Optional[Program], stream: int) -> None:
        """Launch this program from now on in place of the method, or nothing if it is no graph."""
        if self.launcher is None:
            return
        self.launcher.ready = False
        self._clear()
        self._stale = True
        self.bound = isinstance(program, GraphProgram) and bool(program.handle)
        if program is not None and self.bound:
            runtime = self._runtime
            current = runtime.current_addresses(self._home.device)
            self.launcher.bind(*runtime.launch_addresses(), program.handle, stream, *current)
        self._long_way.stand_aside(self.launcher.launch if self.bound else None)

    def refuse(self) -> None:
        """Send every call the long way for good, without waiting for any."""
        if self.launcher is not None:
            self.launcher.ready = False

    def pause(self) -> bool:
        """Send every call the long way and wait for those under way; return whether there may be something to take back."""
        if not self.bound:
            return False
        self.launcher.ready = False
        while self.launcher.inside:
            time.sleep(0)
        return True

    def has_launched(self) -> bool:
        """Return whether it has launched since this was last asked."""
        if self.launcher is None or not self.launcher.pending:
            return False
        self.launcher.pending = False
        return True

    def counts(self) -> tuple[int, int]:
        """Return how many launches and node updates it has made since this was last asked."""
        launcher = self.launcher
        if launcher is None:
            return 0, 0
        launches, launcher.launches = launcher.launches, 0
        updates, launcher.updates = launcher.updates, 0
        return launches, updates

    def take_back(self) -> dict[str, Any]:
        """Return the values that the launcher has given parameters by itself."""
        if self._stale:  # a change that failed has been undone without the launcher
            return {}
        return {name: struct.unpack("=" + kind, self.launcher.value(name))[0] for name, kind in self._kinds.items()}

    def steps_of(self, name: str) -> frozenset[int]:
        """Return the steps that the launcher sets when it gives a parameter a value."""
        return _NONE if self._stale else self._steps.get(name, _NONE)

    def resume(
        self, program: Callable[[], Program], users: Callable[[], Mapping[str, tuple[Scope, Parameter, list[int]]]]
    ) -> None:
        """Let it take calls again; if it is wanted, offer it what these return."""
        if not self.bound:
            return
        if self._stale and self.wanted:
            self.wanted = False
            self.offer(program(), users())
        elif self._stale:  # what is changed again before the next launch with values need not be looked through now
            self._forget()
        self.launcher.ready = True

    def offer(self, program: Program, users: Mapping[str, tuple[Scope, Parameter, list[int]]]) -> None:
        """Let the launcher set parameters.

        Parameters
        ----------
        program : Program
            The bound one, whose operations are what its nodes do.
        users : mapping
            For each parameter by launch keyword: the scope that declares it, the parameter, and all enabled steps that depend
            on it.
        """
        assert isinstance(program, GraphProgram)
        slots = []
        self._clear()
        for name, (scope, parameter, indices) in users.items():
            value = scope.values.get(parameter)
            if value is None or len(self._kept) + len(indices) > _MOST_USES:
                continue
            kind, uses = "", []
            steps = set()
            for i in indices:
                code, addresses = self._places(program, scope, parameter, i)
                if code and code == (kind or code):
                    kind = code
                    uses += addresses
                    steps.add(i)
            if kind:
                whole = len(steps) == len(indices)
                slots.append((name, kind, struct.calcsize("=" + kind), struct.pack("=" + kind, value), uses, whole))
                self._steps[name] = frozenset(steps)
                if whole:
                    self._kinds[name] = kind
        self.launcher.slots(slots, list(self._kept.values()))
        self._stale = False

    def _forget(self) -> None:
        """Let the launcher set no parameters until the next offer."""
        if self._steps:
            self.launcher.slots([], [])
        self._clear()

    def _clear(self) -> None:
        self._kinds, self._steps, self._kept = {}, {}, {}

    def withdraw(self) -> None:
        """Say that what was offered no longer holds."""
        self._stale = True

    def note_value(self, name: str) -> None:
        """Say that a parameter has another value than the launcher knows of."""
        self._stale |= name in self._steps

    def note_step(self, index: int, operation: Operation) -> None:
        """Say that a step does something else, with other values in the same places, than the launcher knows of."""
        kept = self._kept.get(index)
        if kept is not None and not self._stale:
            self._stale = not kept.follow(operation)

    def _places(
        self, program: GraphProgram, scope: Scope, parameter: Parameter, index: int
    ) -> tuple[str, list[tuple[int, int, int]]]:
        """Return the struct code and the uses of a parameter in a step; none if more than its arguments must be written."""
        step, operation = program.steps[index], program.operations[index]
        node = step.node
        if not isinstance(node, KernelNode) or not isinstance(operation, Launch) or not program.nodes[index]:
            return "", []
        if operation.cooperative or index in program.disabled:
            return "", []
        inner = program.scope_of(step)

        def is_it(value: object) -> bool:
            """Whether a value is the parameter, which may have another name inside a child."""
            return isinstance(value, Parameter) and inner.resolve(value)[:2] == (scope, parameter)

        if any(map(is_it, (*node.grid, *node.block))):
            return "", []
        places = [k for k, arg in enumerate(node.args) if is_it(arg)]
        codes = {operation.packer.signature.parameters[k].format for k in places}
        if len(codes) != 1 or not codes <= set(_KINDS):
            return "", []
        kept = self._kept.get(index)
        if kept is None:
            kept = self._kept[index] = _Arguments(operation, self._runtime)
        values = [ctypes.c_void_p.from_address(kept.packer.address + 8 * k).value or 0 for k in places]
        return codes.pop(), [(value, program.nodes[index], kept.address) for value in values]
