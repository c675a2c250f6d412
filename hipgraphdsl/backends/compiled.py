"""The compiled call path of one Executable: what `Executable.launch` is where a compiled launcher can be had.

A launch without arguments, or with new values of parameters that only kernel arguments use, runs without a Python frame. Every
other call goes to the Python method, which first takes back what the short way has done (`take_back`) and afterwards says what
may be set by it (`offer`).
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
from .operations import Launch
from .program import GraphProgram, Program

__all__ = ["CompiledPath"]

_KINDS: Final = "?bBhHiIqQfd"  # struct codes of arguments that the launcher can write
_MOST_USES: Final = 8192  # nodes whose argument memory is kept for it


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
        self._slots: dict[str, str] = {}  # name -> struct code
        self._steps: frozenset[int] = frozenset()  # whose argument memory the launcher writes

    def bind(self, program: Optional[Program], stream: int) -> None:
        """Launch this program from now on, or nothing if it is no graph."""
        self.launcher.ready = False
        self._slots = {}
        self._steps = frozenset()
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
        """Return the values that parameters have been given on the short way."""
        return {name: struct.unpack("=" + kind, self.launcher.value(name))[0] for name, kind in self._slots.items()}

    def offer(self, program: Program, users: Mapping[str, tuple[Parameter, Any, list[int]]]) -> None:
        """Let the launcher set parameters.

        Parameters
        ----------
        program : Program
            The bound one.
        users : mapping
            For each parameter by launch keyword: the parameter, its value, and the indices of all steps that depend on it.
        """
        assert isinstance(program, GraphProgram)
        slots = []
        kept: dict[int, tuple[ArgumentPacker, bytes]] = {}
        names: dict[str, str] = {}
        for name, (parameter, value, indices) in users.items():
            found = self._uses(program, parameter, indices, kept) if len(kept) + len(indices) <= _MOST_USES else None
            if found is not None and value is not None:
                kind, uses = found
                slots.append((name, kind, struct.calcsize("=" + kind), struct.pack("=" + kind, value), uses))
                names[name] = kind
        self.launcher.slots(slots, list(kept.values()))
        self._slots, self._steps = names, frozenset(kept)
        self.stale = False

    def forget(self) -> None:
        """Let the launcher set no parameters until the next offer."""
        if self._slots:
            self.launcher.slots([], [])
        self._slots, self._steps = {}, frozenset()

    def note_value(self, name: str) -> None:
        """Say that a parameter has another value than the launcher knows of."""
        self.stale |= name in self._slots

    def note_step(self, index: int) -> None:
        """Say that a step does something else than the launcher knows of."""
        self.stale |= index in self._steps

    def _uses(
        self, program: GraphProgram, parameter: Parameter, indices: list[int], kept: dict[int, tuple[ArgumentPacker, bytes]]
    ) -> Optional[tuple[str, list[tuple[int, int, int]]]]:
        """Return the struct code and the uses of a parameter, or None if a step needs more than its arguments written."""
        kind = ""
        uses = []
        for i in indices:
            node, operation = program.steps[i].node, program.operations[i]
            if not isinstance(node, KernelNode) or not isinstance(operation, Launch) or not program.nodes[i]:
                return None
            if parameter in node.grid or parameter in node.block or operation.cooperative or i in program.disabled:
                return None
            places = [k for k, arg in enumerate(node.args) if arg is parameter]
            if not places:
                return None
            if i not in kept:
                packer = ArgumentPacker(operation.packer.signature)
                table = packer.place(operation.packed)
                kept[i] = packer, self._runtime.kernel_params(
                    operation.function, operation.grid, operation.block, operation.shared_bytes, table
                )
            packer, params = kept[i]
            for k in places:
                code = packer.signature.parameters[k].format
                if code not in _KINDS or (kind and code != kind):
                    return None
                kind = code
                address = ctypes.c_void_p.from_address(packer.address + 8 * k).value or 0
                uses.append((address, program.nodes[i], _address_of(params)))
        return (kind, uses) if kind else None


def _address_of(data: bytes) -> int:
    """Return where the bytes stand; they must be kept."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
