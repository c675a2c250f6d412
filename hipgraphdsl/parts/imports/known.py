"""Names for the addresses and handles of one Executable, used by `Graph.from_handle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...arrays import AllocArray, ExternalArray
from ...backends import Environment
from ...executable.memory import Block
from ...kernels import Kernel
from ...nodes import Event


@dataclass(slots=True)
class Known:
    """Names for addresses and handles."""

    arrays: dict[str, ExternalArray] = field(default_factory=dict)
    """Persistent memory by name (``"child/x"`` inside children); each array keeps its owner alive."""
    allocs: dict[int, AllocArray] = field(default_factory=dict)
    """Arrays of alloc nodes, by address."""
    functions: dict[int, Kernel] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    calls: dict[int, str] = field(default_factory=dict)
    """Names of nodes with callbacks, by the user-data argument of their host function."""
    kept: Any = None
    """What must live as long as the nodes and arrays that are read."""

    def note_memory(self, arrays: Mapping[str, Block], scope: Environment, owner: Any) -> None:
        """Add arrays, which keep their memory and `owner` alive, and the arrays of alloc nodes."""
        several = len(scope.shared.devices) > 1
        for name, block in arrays.items():
            array = block.array
            location: Literal["host", "device"] = "host" if array.on_host else "device"
            device, writeable = block.device if several else array.device, getattr(array, "writeable", True)
            keep = (owner, block.lend().buffer)
            self.arrays[name] = ExternalArray(
                name, array.shape, array.dtype, keep, block.pointer, location, writeable, device=device, lock=False
            )
        for inner in scope.all_inside():
            for root, pointer in inner.addresses.items():
                if isinstance(root, AllocArray):
                    self.allocs[pointer] = root


def known_of(executable: Any, own: Any) -> Known:
    """Return the names of the addresses and handles of an Executable, whose resources are `own`."""
    found = Known(functions=own.shared.kernels(), events=own.shared.events(), calls=own.hosts.names())
    found.note_memory(own.memory.arrays, own.scope, executable)
    return found
