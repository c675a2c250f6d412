"""Device memory as a DLPack capsule (dlpack.h, version 0.8: DLManagedTensor)."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from ..errors import DeclarationError


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER)]

_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_alive: Final[dict[int, Any]] = {}


@_DELETER  # type: ignore[untyped-decorator]  # ctypes
def _delete(managed: Any) -> None:
    _alive.pop(ctypes.addressof(managed.contents), None)


def capsule(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any], device: tuple[int, int]) -> Any:
    """Return a ``"dltensor"`` capsule over memory that the caller keeps alive.

    Raises
    ------
    DeclarationError
        If DLPack has no code for the dtype.
    """
    code = 4 if dtype.name == "bfloat16" else _CODES.get(dtype.kind)
    if code is None:
        raise DeclarationError(f"DLPack has no code for dtype {dtype}")
    ndim = len(shape)
    extents = (ctypes.c_int64 * max(ndim, 1))(*shape)
    steps = (ctypes.c_int64 * max(ndim, 1))(*(s // dtype.itemsize for s in strides))
    managed = _Managed()
    managed.tensor = _Tensor(pointer, _Device(*device), ndim, _DataType(code, 8 * dtype.itemsize, 1), extents, steps, 0)
    managed.deleter = _delete
    _alive[ctypes.addressof(managed)] = (managed, extents, steps)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor", None)
