"""DLPack of memory that NumPy neither imports nor exports, of devices and of types that it lacks: the structures of dlpack.h."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import DeclarationError
from .dtypes import EXTRAS, as_dtype, dtype_named, is_extra

_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_EXTRAS: Final = {(extra.code, extra.bits): name for name, extra in EXTRAS.items() if extra.code is not None}
_GPUS: Final = (2, 10)  # kDLCUDA, kDLROCM
_HOSTS: Final = (1, 3, 11, 13)  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged, as NumPy takes them
_NO_ORDER: Final = -1  # the value of `stream` with which the producer waits for nothing and lets nothing wait
_VERSION: Final = (1, 0)
_READ_ONLY, _COPIED, _PADDED = 1, 2, 4  # of the flags; padded: an element of less than 8 bits has a byte of its own
_JAX: Final = ("jax", "jaxlib")  # nobody may write jax's arrays, whose capsules cannot say so; its `stream` is a handle alone
_LAZY: Final = (
    ("requires_grad", "it requires a gradient, which nodes of a graph do not record", "detach"),
    ("is_conj", "its memory holds the conjugates of its values", "resolve_conj"),
    ("is_neg", "its memory holds the negatives of its values", "resolve_neg"),
)
"""Attributes or methods of torch's tensors that tell of values which are not those in memory, and what makes a plain tensor."""

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


def require_plain(obj: Any) -> None:
    """Raise TypeError for a tensor whose values are more than its memory: one that requires a gradient, a lazy conjugate."""
    for name, what, method in _LAZY:
        found = getattr(obj, name, False)
        if hasattr(obj, method) and (found() if callable(found) else found):
            raise TypeError(f"{what}; give x.{method}()")


def is_on_host(obj: Any) -> bool:
    """Return whether an object offers host memory by DLPack."""
    tell = getattr(obj, "__dlpack_device__", None)
    return callable(tell) and hasattr(obj, "__dlpack__") and int(tell()[0]) in _HOSTS


def _is_of_jax(obj: Any) -> bool:
    return type(obj).__module__.partition(".")[0] in _JAX


def exported(obj: Any) -> Any:
    """Return a capsule of an object's memory; the producer waits for no work that it has queued.

    The capsule is never marked as consumed, so its own destructor calls the deleter of its tensor, once.
    """
    require_plain(obj)
    order: dict[str, Any] = {} if is_on_host(obj) or _is_of_jax(obj) else {"stream": _NO_ORDER}
    for known in ({**order, "max_version": _VERSION}, order):
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


def described(capsule: Any, owner: Any = None) -> Described:
    """Return the description of the memory in a capsule that `owner` has made.

    Raises
    ------
    DeclarationError
        As `tensor_of`, or if its elements have no dtype here, its address is 0, or it is a copy of the object's memory.
    """
    tensor, flags = tensor_of(capsule)
    if flags & _COPIED:
        raise DeclarationError("its __dlpack__ gives a copy, and not its memory")
    dtype = _dtype_of(tensor, flags)
    shape = tuple(tensor.shape[: tensor.ndim])
    if not tensor.data and 0 not in shape:
        raise DeclarationError("its __dlpack__ has address 0, where no memory is")
    strides = tuple(n * dtype.itemsize for n in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return Described(
        dtype, shape, strides, (tensor.data or 0) + tensor.byte_offset, not (flags & _READ_ONLY or _is_of_jax(owner))
    )


def _dtype_of(tensor: Tensor, flags: int) -> np.dtype[Any]:
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    name = _EXTRAS.get((code, bits))
    if name is not None and bits < 8 and not (lanes == 1 and flags & _PADDED):
        raise DeclarationError(
            f"its __dlpack__ has elements of {bits} bits, which share bytes, and an element of {name} has its own; give the"
            " bytes, as torch's x.view(torch.uint8)"
        )
    if lanes == 1 and name is not None:
        return as_dtype(name)
    found = None if lanes != 1 or bits % 8 or code not in _KINDS else dtype_named(f"{_KINDS[code]}{bits // 8}")
    if found is None:
        raise DeclarationError(f"its __dlpack__ has type code {code}, {bits} bits and {lanes} lanes, and no dtype has")
    return found


def on_host(obj: Any) -> np.ndarray[Any, Any]:
    """Return an array that shares the host memory which an object offers by DLPack, and keeps the object alive.

    Memory whose capsule has no flags is read-only, as in NumPy.

    Raises
    ------
    DeclarationError
        As `described`.
    """
    if not is_on_host(obj):
        raise BufferError(f"its __dlpack_device__ is {obj.__dlpack_device__()}, neither the host nor a GPU")
    capsule = exported(obj)
    told = described(capsule, obj)
    writeable = told.writeable and _is_capsule(capsule, b"dltensor_versioned")
    memory = _Memory(
        {
            "version": 3,
            "shape": told.shape,
            "strides": told.strides,
            "typestr": f"|V{told.dtype.itemsize}",
            "data": (told.pointer, not writeable),
        },
        (obj, capsule),
    )
    return np.asarray(memory).view(told.dtype)


class _Memory:
    """Host memory as NumPy imports it; the array refers to this object, which keeps the owner alive."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def capsule_of(memory: np.ndarray[Any, Any], device: tuple[int, int], options: dict[str, Any]) -> Any:
    """Return a capsule of memory at a DLPack device; NumPy makes it, without reading the memory.

    Raises
    ------
    BufferError
        If DLPack has no code for the dtype, or the consumer asks for a copy or for another device.
    """
    dtype = memory.dtype
    extra = EXTRAS.get(dtype.type.__name__)
    if extra is None and dtype.kind not in "biufc":
        raise BufferError(f"DLPack has no code for dtype {dtype}")
    if extra is not None and (extra.code is None or extra.bits < 8):
        raise BufferError(f"DLPack has no code for dtype {dtype} with a byte for each element; give its bytes")
    if options.get("copy"):
        raise BufferError("copy=True: this memory is lent, not copied; copy what the other library makes of it")
    asked = options.get("dl_device")
    if asked is not None and tuple(map(int, asked)) != device:
        raise BufferError(f"dl_device={tuple(map(int, asked))}: this memory is on device {device}")
    like = np.dtype(f"u{dtype.itemsize}") if is_extra(dtype) else dtype
    known: dict[str, Any] = {"max_version": _VERSION} if options.get("max_version") and _has_versions() else {}
    made = memory.view(like).__dlpack__(**known)
    tensor, _ = tensor_of(made)
    tensor.device_type, tensor.device_id = device
    if extra is not None:
        assert extra.code is not None
        tensor.code = extra.code
    return made


@lru_cache(maxsize=1)
def _has_versions() -> bool:
    """Return whether this NumPy makes versioned capsules."""
    try:
        np.zeros(1).__dlpack__(max_version=_VERSION)
    except TypeError:
        return False
    return True
