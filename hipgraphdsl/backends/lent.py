"""Memory that code of the user may use, as NumPy arrays and as buffers that keep it alive."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np


def memory_view(
    address: int,
    nbytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None = None,
    owner: Any = None,
) -> np.ndarray[Any, Any]:
    """Return host memory as a NumPy array, without a copy; it keeps `owner` alive, and without one the caller the memory."""
    buffer: Any = (ctypes.c_char * nbytes).from_address(address)
    buffer.owner = owner
    return np.ndarray(shape, dtype, buffer, 0, strides)


def bytes_at(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return host memory as bytes, without a copy; the caller keeps the memory alive."""
    return memory_view(address, nbytes, (nbytes,), np.dtype(np.uint8))


class Lent(NamedTuple):
    """The memory of one array, lent to code of the user."""

    buffer: Any
    """The memory lives as long as a reference to this object exists, also after the Executable has been closed."""
    start: int
    on_host: bool
    device: int
    access: tuple[int, ...]
    writeable: bool
