"""Arrays that the members of a family have together, by name."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np

from ...arrays import Array, ExternalArray, UnboundValues
from ...errors import DeclarationError
from ...executable.devices import Home
from ...executable.memory import Block, alike


class CommonArrays:
    """Device and host arrays, by full name, each allocated and initialised by the first Executable that has it.

    An array that is of another kind, shape or dtype in a later Executable is that one's own.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, Block] = {}
        self._home: Home | None = None
        self._lock = threading.Lock()

    def find(self, name: str, array: Array, device: int) -> Block | None:
        """Return the memory of an array for one more holder; None if it has to be allocated."""
        with self._lock:
            known = self._blocks.get(name)
            if known is None or known.device != device or not alike(known.array, array):
                return None
            if not _begin_alike(known.array, array):
                raise DeclarationError(
                    f"array {name!r} begins with other values than in the member of the family that has initialised it, and all"
                    " members share it; let build give the same values for every size, or name the arrays apart",
                    array=name,
                )
            return known.shared()

    def offer(self, name: str, block: Block, home: Home) -> None:
        """Keep the memory of an array, until `close`, for Executables to come."""
        with self._lock:
            if name not in self._blocks and not isinstance(block.array, ExternalArray):
                self._home = home
                self._blocks[name] = block.shared()

    def shares(self, block: Block) -> bool:
        """Return whether several Executables have the memory."""
        return block.holders > 2 and block in self.blocks

    def drop_unused(self) -> None:
        """Give back the arrays that no Executable has any more."""
        with self._lock:
            unused = [self._blocks.pop(name) for name, block in tuple(self._blocks.items()) if block.holders == 1]
        self._give_back(unused)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All memory that it has."""
        with self._lock:
            return tuple(self._blocks.values())

    def close(self) -> None:
        """Give all memory back; no Executable may use it any more."""
        with self._lock:
            blocks, self._blocks = self._blocks, {}
        self._give_back(blocks.values())

    def _give_back(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            assert self._home is not None
            block.give_back(self._home)


def _begin_alike(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same initial values."""
    values, others = getattr(one, "initial", None), getattr(other, "initial", None)
    if values is others:
        return True
    if isinstance(values, UnboundValues) or isinstance(others, UnboundValues):
        return False
    zeros = np.zeros(0, np.uint8)
    first, second = (zeros if given is None else given.reshape(-1).view(np.uint8) for given in (values, others))
    return np.array_equal(first, second) if first.size == second.size else not (first.any() or second.any())
