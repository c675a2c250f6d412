"""Kernel arguments passed by value: checked, and packed into the memory that a launch reads."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import NoValueError, Viewable, as_element, is_extra, kind_of, own_copy, scalar_value
from ..errors import DeclarationError, shown
from .signature import KernelParameter, Signature

PackedValue = int | float | bytes
"""What `ArgumentPacker.pack` writes: an int, a float, or bytes prepared by `check_argument`."""


def check_argument(param: KernelParameter, value: object, where: str) -> PackedValue:
    """Check a value against a parameter and return it ready for `ArgumentPacker.pack`.

    Parameters
    ----------
    param : KernelParameter
        The parameter; a pointer accepts only None (a null pointer).
    value : object
        A Python or NumPy scalar; for a struct a `numpy.void`, a 0-dimensional structured array, or a tuple or dict of its
        fields; for a vector type a sequence of `lanes` numbers, or a struct of x, y, z and w.
    where : str
        The caller, for messages: ``"node 'scale'"``.

    Raises
    ------
    DeclarationError
        If the value has the wrong type or is out of range; the message gives the range.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if param.pointer:
        if value is None:
            return 0
        raise DeclarationError(
            f"{where}: parameter '{param}' takes an array (got {said(value)}); make one with device_array, "
            "host_array, alloc or external_array",
            array=param.name,
        )
    dtype = param.dtype
    assert dtype is not None
    if param.lanes > 1:
        whole = param.value_dtype
        assert whole is not None
        if isinstance(value, np.void) and value.dtype == whole:
            return value.tobytes()
        if isinstance(value, (Mapping, np.void)):
            value = struct_fields(whole, value, f"{where}: parameter '{param}'")
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)) or len(value) != param.lanes:
            raise DeclarationError(
                f"{where}: parameter '{param}' takes {param.lanes} numbers, e.g. a tuple (got {said(value)})",
                array=param.name,
            )
        return np.array([_number(dtype, part, param, where) for part in value], dtype).tobytes()
    if dtype.names is not None:
        return _struct_bytes(dtype, value, param, where)
    if dtype.kind == "V" and isinstance(value, np.void) and value.dtype == dtype:  # untyped bytes
        return value.tobytes()
    number = _number(dtype, value, param, where)
    if dtype.kind == "c" or is_extra(dtype):
        return np.array(number, dtype).tobytes()
    assert not isinstance(number, complex)
    return number


def said(value: object) -> str:
    """Return a value and its type, for a message."""
    return f"{shown(value)} of type {type(value).__name__}"


def _number(dtype: np.dtype[Any], value: object, taker: KernelParameter | str, where: str) -> int | float | complex:
    """Return a value as a number of `dtype`, or refuse it; `taker` is a parameter or a struct's field."""
    try:
        return scalar_value(value, dtype)
    except NoValueError as error:
        what, array = (f"field {taker!r}", "") if isinstance(taker, str) else (f"parameter '{taker}'", taker.name)
        raise DeclarationError(f"{where}: {what} takes {error.wanted} (got {said(value)}){error.hint}", array=array) from None


def struct_error(dtype: np.dtype[Any], value: object, where: str, array: str | None = None, why: str = "") -> DeclarationError:
    """Return the error for a value that does not match a struct dtype; it names a missing or unknown field, or says `why`."""
    names = dtype.names or ()
    given = value if isinstance(value, Mapping) else names
    faults = [f"field {name!r} is missing" for name in names if name not in given]
    faults += [f"there is no field {name!r}" for name in given if name not in names]
    faults += [why] * bool(why)
    return DeclarationError(
        f"{where} is a struct ({', '.join(names)}): give a tuple or dict of its fields, or a numpy.void with these fields"
        f" (got {shown(value)})" + "".join(f"; {fault}" for fault in faults[:1]),
        array=array,
    )


def struct_fields(dtype: np.dtype[Any], value: object, where: str, field: str = "") -> object:
    """Convert a struct given as a mapping, or as NumPy's with other fields, to a tuple in field order; return others unchanged.

    Arrays as fields are refused, and so are numbers out of a field's range, which NumPy would truncate, and numbers for whole
    structs, which it would assign to each field. `field` is the path of the field that takes the value, as in ``"inner.x"``.
    """
    if field and isinstance(value, Viewable):
        raise DeclarationError(
            f"{where}: field {field!r} is an array, and a struct with pointers takes none: no edge would follow from it; pass"
            " the array as an argument of its own"
        )
    try:
        value = as_element(value)
    except ValueError as error:
        raise DeclarationError(f"{where}: {shown(value)}: {error}") from None
    if isinstance(value, np.ndarray):
        value = value[()] if dtype.subdtype is None else value.tolist()
    if dtype.subdtype is not None:
        if isinstance(value, list) or (isinstance(value, tuple) and not dtype.base.names):
            return [struct_fields(dtype, part, where, field) for part in value]
        dtype = dtype.base
    names = dtype.names or ()
    if names and isinstance(value, np.void):
        if value.dtype == dtype:
            return value
        value = {name: value[name] for name in value.dtype.names or ()}
    if isinstance(value, Mapping) and names:
        if set(value) != set(names):
            raise struct_error(dtype, value, f"{where}: field {field!r}" if field else where)
        value = tuple(value[name] for name in names)
    if isinstance(value, tuple) and len(value) == len(names):
        inner = (f"{field}.{name}" if field else name for name in names)
        return tuple(struct_fields(dtype[name], part, where, own) for name, part, own in zip(names, value, inner))
    if field and names:
        raise struct_error(dtype, value, f"{where}: field {field!r}")
    return _number(dtype, value, field, where) if field and kind_of(dtype) in "biufc" else value


def _struct_bytes(dtype: np.dtype[Any], value: object, param: KernelParameter, where: str) -> bytes:
    if isinstance(value, np.void) and value.dtype == dtype:
        return value.tobytes()
    value = struct_fields(dtype, value, f"{where}: parameter '{param}'")
    if isinstance(value, tuple) and len(value) == len(dtype.names or ()):
        try:
            return own_copy(np.array(value, dtype)).tobytes()
        except (TypeError, ValueError, OverflowError) as error:
            raise DeclarationError(f"{where}: parameter '{param}': {error}", array=param.name) from None
    raise struct_error(dtype, value, f"{where}: parameter '{param}'", param.name)


class ArgumentPacker:
    """Argument memory of one kernel signature, allocated once and overwritten before each launch.

    `pack` converts the arguments to bytes; `place` writes these and returns the address of the table of pointers to them,
    which HIP takes as ``kernelParams`` and copies before the call returns. The memory lives as long as the packer. A packer is
    not thread-safe: the caller must hold a lock around `place` and the call that reads the table.

    Attributes
    ----------
    signature : Signature
    address : int
        Address of the table of pointers.
    memory : int
        Address of the arguments.
    """

    __slots__ = ("_buffer", "_keep", "_struct", "_view", "address", "memory", "signature")

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        # Vector types of 32 bytes may be read with aligned instructions.
        buffer = bytearray(signature.nbytes + 64)
        self._buffer = ctypes.c_char.from_buffer(buffer)
        base = ctypes.addressof(self._buffer)
        offset = -base % 64
        self.memory = base + offset
        self._view = memoryview(buffer)[offset : offset + signature.nbytes]
        table = (ctypes.c_void_p * max(1, len(signature.parameters)))(*map(self.memory.__add__, signature.offsets))
        self._keep = table
        self._struct = struct.Struct(signature.format)
        self.address = ctypes.addressof(table)

    def pack(self, values: Sequence[PackedValue]) -> bytes:
        """Return the bytes of the arguments, each a result of `check_argument` or an address."""
        return self._struct.pack(*values)

    def unpack(self, packed: bytes) -> tuple[Any, ...]:
        """Return the packed values; types that `struct` lacks stay bytes."""
        return self._struct.unpack(packed)

    def place(self, packed: bytes) -> int:
        """Copy packed arguments to the argument memory, and return the address of the pointer table."""
        self._view[:] = packed
        return self.address
