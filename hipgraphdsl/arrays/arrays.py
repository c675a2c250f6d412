"""Arrays and parameters: frozen descriptions of memory and of values bound at launch. Only an Executable has memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..errors import DeclarationError
from .coercion import as_shape, naming
from .dtypes import as_dtype
from .regions import Region
from .views import Root


@dataclass(frozen=True, eq=False)
class Array(Root):
    """Base of all arrays: a named block of memory in C order.

    Attributes
    ----------
    name : str
        Unique among the arrays of its graph.
    shape : tuple of int
    dtype : numpy.dtype
    device : int or None
        The device that owns the memory; None is the device that the graph is compiled for.
    access : tuple of int
        Other devices that may reach the memory from their kernels (peer access).
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int | None = field(default=None, kw_only=True)
    access: tuple[int, ...] = field(default=(), kw_only=True)

    kind = "array"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, slots=True)
class UnboundValues:
    """Initial values of which a file holds only the hash, not yet supplied; compile raises an error that names the array.

    Attributes
    ----------
    sha256 : str
        Hash of the bytes, C order, in hexadecimal.
    """

    sha256: str


@dataclass(frozen=True, eq=False, repr=False)
class DeviceArray(Array):
    """Device memory that lives as long as the Executable.

    Attributes
    ----------
    initial : numpy.ndarray, UnboundValues or None
        Values written when the graph is compiled; read-only.
    """

    initial: np.ndarray[Any, Any] | UnboundValues | None = None

    kind = "device"


@dataclass(frozen=True, eq=False, repr=False)
class HostArray(Array):
    """Host memory that lives as long as the Executable.

    Attributes
    ----------
    pinned : bool
        Page-locked: copies are asynchronous and kernels can reach it. Otherwise pageable.
    initial : numpy.ndarray, UnboundValues or None
        Values written when the graph is compiled; read-only.
    rank : int or "all"
        The process that owns it if several processes share the graph's devices; with ``"all"`` each has its own copy.
    """

    pinned: bool = True
    initial: np.ndarray[Any, Any] | UnboundValues | None = None
    rank: int | Literal["all"] = 0

    kind = "host"

    @property
    def on_host(self) -> bool:
        return True

    @property
    def on_device(self) -> bool:
        return self.pinned


@dataclass(frozen=True, eq=False, repr=False)
class AllocArray(Array):
    """Device memory that an alloc node allocates and a free node frees."""

    kind = "alloc"


class KnownMemory:
    """Memory that an Executable has handed out; `ExternalArray.wrap` takes from it what no protocol of other libraries says.

    Attributes
    ----------
    ptr : int
        Address of the first element.
    shape : tuple of int
    dtype : numpy.dtype
    strides : tuple of int
        In bytes.
    on_host : bool
        Whether it is host memory.
    device : int
        The device that owns it.
    access : tuple of int
        Other devices that may reach it from their kernels.
    writeable : bool
    """

    ptr: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    on_host: bool
    device: int
    access: tuple[int, ...]
    writeable: bool


@dataclass(frozen=True, eq=False, repr=False)
class ExternalArray(Array):
    """Memory of the user or of another library, used in place.

    Attributes
    ----------
    obj : object or None
        The owner of the memory, kept alive by this array; None if loaded from a file and not bound yet.
    pointer : int
        Address of the first element.
    location : {"host", "device"}
        Where the memory is.
    writeable : bool
        Whether nodes may write it.
    lock : bool
        Whether an Executable page-locks host memory while in use, if the device cannot access it otherwise.
    """

    obj: Any = None
    pointer: int = 0
    location: Literal["host", "device"] = "host"
    writeable: bool = True
    lock: bool = True

    kind = "external"

    @property
    def on_host(self) -> bool:
        return self.location == "host"

    @property
    def hazard_key(self) -> Any:
        return "memory" if self.pointer else self

    @property
    def hazard_offset(self) -> int:
        return self.pointer

    def __reduce__(self) -> Any:
        raise TypeError(
            f"external array {self.name!r} is memory of this process and cannot be pickled; pickle graph.to_json(), and give the"
            " memory to Graph.from_json(..., arrays=...)"
        )

    @staticmethod
    def wrap(
        name: str, obj: Any, *, device: int | None = None, access: tuple[int, ...] = (), what: str = "external array"
    ) -> ExternalArray:
        """Wrap `__cuda_array_interface__`, DLPack or the buffer protocol, without a copy; `what` names its role in errors.

        Raises
        ------
        DeclarationError
            If the object offers none of them, is not C-contiguous, has masked elements, or a dtype that a device cannot hold, or
            if `access` is given for host memory.
        """
        strides: tuple[int, ...] | None
        with naming(what, name):
            if isinstance(obj, KnownMemory):
                given, shape, strides, pointer, writeable = obj.dtype, obj.shape, obj.strides, obj.ptr, obj.writeable
                location: Literal["host", "device"] = "host" if obj.on_host else "device"
                if not obj.on_host:
                    device, access = _placed(obj, device), access or obj.access
            else:
                from .wrapping import memory_of

                obj, location, device, found = memory_of(obj, device, what, name)
                given, shape, strides, pointer, writeable = found
            if access and location == "host":
                raise DeclarationError(
                    "access lists devices that may reach another device's memory, and this is host memory; leave it out"
                )
            dtype = as_dtype(given)
            if dtype != np.dtype(given):
                raise DeclarationError(f"it has foreign byte order {given}")
            shape = as_shape(shape)
            if strides is not None and Region.strided(0, shape, strides, dtype.itemsize).dims:
                raise DeclarationError(
                    f"it has shape {shape} and strides {strides}, and only C-contiguous memory can be wrapped; give a contiguous"
                    " copy, or wrap its base and take a view"
                )
            return ExternalArray(name, shape, dtype, obj, pointer, location, writeable, device=device, access=access)


def _placed(memory: KnownMemory, device: int | None) -> int:
    """Return the device of known memory; refuse another one."""
    if device not in (None, memory.device):
        raise DeclarationError(f"it is memory of device {memory.device} (got device={device}); leave device out")
    return memory.device
