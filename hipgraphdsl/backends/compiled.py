"""The compiled call path of one Executable: what `Executable.launch` is where a compiled launcher can be had.

A launch without arguments, or with new values of parameters that only kernel arguments use, runs without a Python frame. Every
other call goes to the Python method, which first takes back what the short way has done (`take_back`), lets it set new
values in kernel arguments (`launcher.set`), and afterwards says what may be set by it (`offer`).
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Mapping
from typing import Any, Final, Optional

from ..arrays import Parameter
from ..kernels import ArgumentPacker
from ..nodes import KernelNode
from ..runtimes.base import Runtime
from .operations import Launch, Operation
from .program import GraphProgram, Program

__all__ = ["CompiledPath"]

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


class CompiledPath:
    """A compiled launcher bound to a program.

    Parameters
    ----------
    runtime : Runtime
    slow : callable
        Gets every call that the launcher does not take; ``slow.failed(code)`` raises for a code of hipGraphLaunch.
    """

    def __init__(self, runtime: Runtime, slow: Any) -> None:
        self._runtime = runtime
        self.launcher: Any = runtime.launcher(slow)
        self.bound = False
        self.stale = True
        """Whether what was offered no longer holds."""
        self._kinds: dict[str, str] = {}
        """Struct codes of the parameters that the launcher may set by itself, because only kernel arguments use them."""
        self._steps: dict[str, frozenset[int]] = {}
        """The steps whose arguments it sets, of each parameter that it knows."""
        self._kept: dict[int, _Arguments] = {}
        """By step."""

    def bind(self, program: Optional[Program], stream: int) -> None:
        """Launch this program from now on, or nothing if it is no graph."""
        self.launcher.ready = False
        self._clear()
        self.stale = True
        self.bound = isinstance(program, GraphProgram) and bool(program.handle)
        if program is not None and self.bound:
            self.launcher.bind(*self._runtime.launch_addresses(), program.handle, stream)

    def pause(self) -> None:
        """Send every call to the slow path, and wait for those that are on the short one."""
        self.launcher.ready = False
        while self.launcher.inside:
            time.sleep(0)

    def take_back(self) -> dict[str, Any]:
        """Return the values that the launcher has given parameters."""
        if self.stale:  # a change that failed has been undone without the launcher
            return {}
        return {name: struct.unpack("=" + kind, self.launcher.value(name))[0] for name, kind in self._kinds.items()}

    def steps_of(self, name: str) -> frozenset[int]:
        """Return the steps that the launcher sets when it gives a parameter a value."""
        return _NONE if self.stale else self._steps.get(name, _NONE)

    def offer(self, program: Program, users: Mapping[str, tuple[Parameter, Any, list[int]]]) -> None:
        """Let the launcher set parameters.

        Parameters
        ----------
        program : Program
            The bound one, whose operations are what its nodes do.
        users : mapping
            For each parameter by launch keyword: the parameter, its value, and all enabled steps that depend on it.
        """
        assert isinstance(program, GraphProgram)
        slots = []
        self._clear()
        for name, (parameter, value, indices) in users.items():
            if value is None or len(self._kept) + len(indices) > _MOST_USES:
                continue
            kind, uses = "", []
            steps = set()
            for i in indices:
                code, addresses = self._places(program, parameter, i)
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
        self.stale = False

    def forget(self) -> None:
        """Let the launcher set no parameters until the next offer."""
        if self._steps:
            self.launcher.slots([], [])
        self._clear()

    def _clear(self) -> None:
        self._kinds, self._steps, self._kept = {}, {}, {}

    def note_value(self, name: str) -> None:
        """Say that a parameter has another value than the launcher knows of."""
        self.stale |= name in self._steps

    def note_step(self, index: int, operation: Operation) -> None:
        """Say that a step does something else, with other values in the same places, than the launcher knows of."""
        kept = self._kept.get(index)
        if kept is not None and not self.stale:
            self.stale = not kept.follow(operation)

    def _places(self, program: GraphProgram, parameter: Parameter, index: int) -> tuple[str, list[tuple[int, int, int]]]:
        """Return the struct code and the uses of a parameter in a step; none if more than its arguments must be written."""
        node, operation = program.steps[index].node, program.operations[index]
        if not isinstance(node, KernelNode) or not isinstance(operation, Launch) or not program.nodes[index]:
            return "", []
        if parameter in node.grid or parameter in node.block or operation.cooperative or index in program.disabled:
            return "", []
        places = [k for k, arg in enumerate(node.args) if arg is parameter]
        codes = {operation.packer.signature.parameters[k].format for k in places}
        if len(codes) != 1 or not codes <= set(_KINDS):
            return "", []
        kept = self._kept.get(index)
        if kept is None:
            kept = self._kept[index] = _Arguments(operation, self._runtime)
        values = [ctypes.c_void_p.from_address(kept.packer.address + 8 * k).value or 0 for k in places]
        return codes.pop(), [(value, program.nodes[index], kept.address) for value in values]
