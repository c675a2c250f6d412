"""A stream and the memory of an array, in the forms that other libraries take: what the user's functions are given."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..arrays import ArrayView, KnownMemory, is_extra
from ..arrays.dlpack import capsule_of
from ..runtimes.base import Runtime
from .environment import Environment
from .lent import Lent, memory_view


class CapturedStream:
    """The stream that a captured function issues its work on.

    Attributes
    ----------
    runtime : Runtime
        The HIP calls of the runtime.
    """

    def __init__(self, handle: int, runtime: Runtime) -> None:
        self._handle = handle
        self.runtime = runtime

    def __int__(self) -> int:
        return self._handle

    def __index__(self) -> int:
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


class CapturedArray(KnownMemory):
    """An array's memory: what a captured or eager function is given, and `Executable.array` returns.

    What `Executable.array` returns keeps the memory alive, also after `close`, and so does whatever wraps it: NumPy, DLPack,
    `Graph.external_array`, an array parameter. What a function is given is valid until the function returns.

    Attributes
    ----------
    ptr : int
        Address of the first element.
    shape, dtype, strides, nbytes
        As in NumPy; strides in bytes.
    on_host : bool
        Whether it is host memory.
    device : int
        The device that owns it.
    access : tuple of int
        Other devices that may reach it from their kernels.
    writeable : bool
    """

    def __init__(self, ptr: int, view: ArrayView, scope: Environment, lent: Lent | None) -> None:
        self.ptr = ptr
        self.shape = view.shape
        self.dtype = view.dtype
        self.strides = view.strides
        self.nbytes = view.nbytes
        self.on_host = scope.is_host(view, lent)
        self.device = scope.owner(view) if lent is None else lent.device
        self.access = tuple(getattr(view.root, "access", ())) if lent is None else lent.access
        self.writeable = view.root.writeable if lent is None else lent.writeable
        self._span = view.region.stop - view.region.start
        self._runtime = scope.runtime
        self._keep = None if lent is None else lent.buffer

    def __int__(self) -> int:
        return self.ptr

    def __reduce__(self) -> NoReturn:
        raise TypeError("memory of an Executable belongs to this process and cannot be pickled; read its values and pickle those")

    def __deepcopy__(self, memo: object) -> CapturedArray:
        return self  # as NumPy and Graph do with memory from outside: the copy uses the same

    def __repr__(self) -> str:
        where = "host memory" if self.on_host else f"memory of device {self.device}"
        return f"<{where} at {self.ptr:#x}: {self.dtype}{list(self.shape)}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # A type of ml_dtypes has no typestr; it is given as raw bytes, and DLPack names it.
        typestr = f"|V{self.dtype.itemsize}" if is_extra(self.dtype) else self.dtype.str
        data = (self.ptr, not self.writeable)
        return {"version": 3, "shape": self.shape, "strides": self.strides, "typestr": typestr, "data": data}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self._reachable:
            raise AttributeError("__array_interface__: this is device memory, which NumPy cannot reach")
        if self.dtype.kind not in "biufc" or is_extra(self.dtype):
            raise AttributeError(f"__array_interface__: it has no name for dtype {self.dtype}; __array__ gives the array")
        return {**self.__cuda_array_interface__}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if not self._reachable:
            raise TypeError("this is device memory, which NumPy cannot reach; copy it, as by Executable.read")
        memory = memory_view(self.ptr, self._span, self.shape, self.dtype, self.strides)
        return memory.copy() if copy else memory

    @property
    def _reachable(self) -> bool:
        return self.on_host or self._runtime.target.dlpack_device == 1

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._reachable:
            return (1, 0)
        return (self._runtime.target.dlpack_device, self.device)

    def __dlpack__(self, **options: Any) -> Any:
        return capsule_of(self._viewed(self.dtype), self.__dlpack_device__(), options)

    def _viewed(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        array = memory_view(self.ptr, self._span, self.shape, dtype, self.strides, self._keep)
        array.flags.writeable = self.writeable
        return array
