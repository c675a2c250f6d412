"""What stands for a function that a node calls: one that a file names, and one of C."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, repr=False)
class UnboundCallback:
    """A callback that a file names and that is not supplied yet; compile raises an error that names it.

    Attributes
    ----------
    path : str
        Import path, ``"package.module:function"``.
    """

    path: str

    @property
    def __name__(self) -> str:  # shown where a function's own name would be
        return self.path.rpartition(":")[2]

    def __repr__(self) -> str:
        return f"UnboundCallback({self.path!r})"


@dataclass(frozen=True, repr=False)
class ForeignFunction:
    """A C function and its argument, called by a host node of a graph read back from the runtime.

    Attributes
    ----------
    address : int
        Address of a function ``void (*)(void*)``.
    argument : int
        The pointer passed to it.
    label : str
        Its name in messages.
    keep : object
        Kept alive as long as this object.
    """

    address: int
    argument: int
    label: str = field(default="", compare=False)
    keep: Any = field(default=None, compare=False)

    @property
    def __name__(self) -> str:  # shown where a function's own name would be
        return self.label or "c_function"

    def __call__(self, *_: Any) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)(self.argument)

    def __repr__(self) -> str:
        return f"ForeignFunction({self.address:#x}, {self.argument:#x})"
