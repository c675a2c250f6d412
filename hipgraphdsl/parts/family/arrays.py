"""Arrays that the members of a family have together, by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain

import numpy as np

from ...arrays import Array, ExternalArray, UnboundValues
from ...errors import DeclarationError
from ...executable.devices import Home
from ...executable.memory import Block, alike


class CommonArrays:
    """Device and host arrays, by full name, each allocated and initialised by the first Executable that has it.

    Those of one name that differ in kind, shape, dtype or device are several.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, list[Block]] = {}
        self._home: Home | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    def find(self, name: str, array: Array, device: int) -> Block | None:
        """Return the memory of an array for one more holder; None if it has to be allocated."""
        with self._lock:
            known = next((block for block in self._blocks.get(name, ()) if _same_place(block, array, device)), None)
            if known is None:
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
            blocks = self._blocks.setdefault(name, [])
            if not isinstance(block.array, ExternalArray) and not any(
                _same_place(known, block.array, block.device) for known in blocks
            ):
                self._home = home
                blocks.append(block.shared())

    def shares(self, block: Block) -> bool:
        """Return whether several Executables have the memory."""
        return block.holders > 2 and block in self.blocks

    def drop_unused(self) -> None:
        """Give back the arrays that no Executable has any more."""
        with self._lock:
            unused = [block for block in chain.from_iterable(self._blocks.values()) if block.holders == 1]
            for name, blocks in self._blocks.items():
                self._blocks[name] = [block for block in blocks if block not in unused]
        self._give_back(unused)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All memory that it has."""
        with self._lock:
            return tuple(chain.from_iterable(self._blocks.values()))

    def close(self) -> None:
        """Give all memory back; no Executable may use it any more."""
        with self._lock:
            blocks, self._blocks = self._blocks, {}
        self._give_back(chain.from_iterable(blocks.values()))

    def __del__(self) -> None:
        self.close()  # all Executables, which refer to it, are gone

    def _give_back(self, blocks: Iterable[Block]) -> None:
        if os.getpid() != self._process:  # after a fork the memory belongs to the parent process
            return
        with ExitStack() as stack:  # calls all, even if one fails
            for block in blocks:
                assert self._home is not None
                stack.callback(block.give_back, self._home)


def _same_place(block: Block, array: Array, device: int) -> bool:
    """Return whether an array may have the memory of a block."""
    return block.device == device and alike(block.array, array)


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
