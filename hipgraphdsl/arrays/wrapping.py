"""The memory of an object of the user or of another library, found by the protocol that the object offers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

import numpy as np

from ..errors import DeclarationError
from .coercion import as_shape
from .dlpack import Described, described, exported, gpu_of, on_host, require_plain

_PLAIN: Final = re.compile("[<>=|]?(?:b1|[iu][1248]|f[248]|c(?:8|16))")  # a typestr of numbers


def memory_of(obj: Any, device: int | None, what: str, name: str) -> tuple[Any, Literal["host", "device"], int | None, Described]:
    """Return what keeps an object's memory alive, where it is, the device that owns it if that is known, and its description.

    A `device` that is given stays. `what` and `name` say in errors what the memory is for.

    Raises
    ------
    DeclarationError
        If the object offers neither `__cuda_array_interface__` nor DLPack nor the buffer protocol, or has masked elements.
    """
    interface = None if type(obj) is np.ndarray else _shared(obj, _interface)
    if isinstance(interface, dict):
        found = _device_memory(interface, obj)
        return obj, "device", gpu_of(obj) if device is None else device, found
    if (gpu := _shared(obj, gpu_of)) is not None:
        capsule = _shared(obj, exported)
        return (obj, capsule), "device", gpu if device is None else device, described(capsule, obj)
    host = _shared(obj, _on_host)
    if isinstance(host, np.ma.MaskedArray) and np.ma.is_masked(host):
        raise DeclarationError(
            f"{what} {name!r} has {np.ma.getmaskarray(host).sum()} masked elements, and a device knows no mask; give x.data, or"
            " x.filled(value), which copies",
            array=name,
        )
    found = Described(host.dtype, host.shape, host.strides, int(host.ctypes.data), bool(host.flags.writeable))
    return host, "host", device, found


def _interface(obj: Any) -> Any:
    """Return an object's `__cuda_array_interface__`; None if it has none, or one that fails where DLPack is offered too."""
    require_plain(obj)
    try:
        return getattr(obj, "__cuda_array_interface__", None)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:  # torch's, for types that it cannot describe
        if hasattr(obj, "__dlpack__"):
            return None
        raise TypeError(f"its __cuda_array_interface__ raises {type(error).__name__}: {error}") from None


def _device_memory(interface: dict[str, Any], obj: Any) -> Described:
    """Return the description of device memory by an object's `__cuda_array_interface__`."""
    try:
        given, shape, strides = interface["typestr"], as_shape(interface["shape"]), interface.get("strides")
        pointer, readonly = interface["data"]
        pointer = operator.index(pointer)
    except (KeyError, TypeError, ValueError) as error:
        raise DeclarationError(f"its __cuda_array_interface__ is wrong ({type(error).__name__}: {error})") from None
    if interface.get("mask") is not None:
        raise DeclarationError("its __cuda_array_interface__ has a mask, and a device knows none")
    if not 0 < pointer < 2**64:
        raise DeclarationError(f"its __cuda_array_interface__ has address {pointer:#x}, where no memory is")
    if isinstance(given, str) and not _PLAIN.fullmatch(given):
        given = _named_dtype(obj) or given
    return Described(given, shape, strides, pointer, not readonly)


def _named_dtype(obj: Any) -> np.dtype[Any] | None:
    """Return the dtype of an object whose typestr is raw bytes, as for structs, bfloat16 or float8; None if nothing names it."""
    own = getattr(obj, "dtype", None)
    if isinstance(own, np.dtype):
        return own
    with suppress(BufferError, TypeError, ValueError, AttributeError):
        return described(exported(obj), obj).dtype
    return None


def _shared(obj: Any, by: Callable[[Any], Any]) -> Any:
    """Return what `by` makes of an object's memory; raise DeclarationError if the object refuses."""
    try:
        return by(obj)
    except DeclarationError:
        raise
    except (TypeError, AttributeError, BufferError, RuntimeError, ValueError, KeyError) as error:
        raise DeclarationError(
            f"{type(obj).__name__} offers no memory that can be shared ({error}); give a NumPy array, or an object with"
            " __cuda_array_interface__, __dlpack__ or the buffer protocol"
        ) from None


def _on_host(obj: Any) -> np.ndarray[Any, Any]:
    """Return an array that shares an object's host memory."""
    if isinstance(obj, np.ndarray):
        return obj
    if hasattr(obj, "__array_interface__"):
        return np.asarray(obj)
    return on_host(obj) if hasattr(obj, "__dlpack__") else np.asarray(memoryview(obj))
