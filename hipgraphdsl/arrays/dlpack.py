"""DLPack of device memory, which NumPy neither imports nor exports: the structures of dlpack.h."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import DeclarationError
from .coercion import as_dtype

BFLOAT16: Final = 4
"""The code of a type that NumPy lacks, kDLBfloat."""
_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_GPUS: Final = (2, 10)  # kDLCUDA, kDLROCM
_NO_ORDER: Final = -1  # the value of `stream` with which the producer waits for nothing and lets nothing wait
_VERSION: Final = (1, 0)
_READ_ONLY, _COPIED = 1, 2  # of the flags

_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class Tensor(ctypes.Structure):
    """DLTensor; strides count elements, and are null in C order."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned; the older DLManagedTensor begins with its tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Described(NamedTuple):
    """Device memory as an object describes it; strides are in bytes, None in C order."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    pointer: int
    writeable: bool


def gpu_of(obj: Any) -> int | None:
    """Return the GPU number reported by an object's `__dlpack_device__`, or None."""
    tell = getattr(obj, "__dlpack_device__", None)
    kind, number = tell() if callable(tell) else (0, 0)
    return int(number) if int(kind) in _GPUS else None


def exported(obj: Any) -> Any:
    """Return a capsule of an object's device memory; the producer waits for no work that it has queued.

    The capsule is never marked as consumed, so its own destructor calls the deleter of its tensor, once.
    """
    options: tuple[dict[str, Any], ...] = ({"stream": _NO_ORDER, "max_version": _VERSION}, {"stream": _NO_ORDER})
    for known in options:
        with suppress(TypeError):  # older producers know no versions, and some no streams
            return obj.__dlpack__(**known)
    return obj.__dlpack__()


def tensor_of(capsule: Any) -> tuple[Tensor, int]:
    """Return the tensor in a capsule, valid as long as the capsule, and its flags.

    Raises
    ------
    DeclarationError
        If the object is no capsule with a tensor, or one of an unknown version.
    """
    if _is_capsule(capsule, b"dltensor"):
        return Tensor.from_address(_pointer_of(capsule, b"dltensor")), 0
    if not _is_capsule(capsule, b"dltensor_versioned"):
        raise DeclarationError(f"its __dlpack__ returns no tensor (got {capsule!r})")
    managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
    if managed.major != _VERSION[0]:
        raise DeclarationError(f"its __dlpack__ has version {managed.major}.{managed.minor}, and {_VERSION[0]} is known")
    return managed.tensor, managed.flags


def described(capsule: Any) -> Described:
    """Return the description of the device memory in a capsule.

    Raises
    ------
    DeclarationError
        As `tensor_of`, or if its elements have no dtype here, its address is 0, or it is a copy of the object's memory.
    """
    tensor, flags = tensor_of(capsule)
    if flags & _COPIED:
        raise DeclarationError("its __dlpack__ gives a copy, and not its memory")
    kind = _KINDS.get(tensor.code)
    if tensor.lanes != 1 or tensor.bits % 8 or (kind is None and (tensor.code, tensor.bits) != (BFLOAT16, 16)):
        kind = f"type code {tensor.code}, {tensor.bits} bits and {tensor.lanes} lanes"
        raise DeclarationError(f"its __dlpack__ has {kind}, and no dtype has")
    dtype = as_dtype("bfloat16" if kind is None else f"{kind}{tensor.bits // 8}")
    if not tensor.data:
        raise DeclarationError("its __dlpack__ has address 0, where no memory is")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(n * dtype.itemsize for n in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return Described(dtype, shape, strides, tensor.data + tensor.byte_offset, not flags & _READ_ONLY)
