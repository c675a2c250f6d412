"""Convert user input to the package's own types: device numbers, handles, dtypes, shapes, values."""

from __future__ import annotations

import ctypes
import math
import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Number
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ..errors import DeclarationError, shown
from .dtypes import float_overflow, has_extras, int_range, is_complex, is_extra, kind_of, unheld, widened

_MAX_DIMS = 32
_MAX_DEVICES = 2**16


class naming:  # noqa: N801  # used in a with statement, where a function of contextlib takes three times as long
    """Prefix a DeclarationError that is raised inside and names no array with ``what 'name'``, such as ``array 'x'``."""

    __slots__ = ("name", "what")

    def __init__(self, what: str, name: str) -> None:
        self.what = what
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, DeclarationError) and error.array is None:
            raise DeclarationError(f"{self.what} {self.name!r}: {error}", array=self.name) from None


def as_device(device: Any, what: str) -> int | None:
    """Return a device number as an int; None stays None, the device that a graph is compiled for."""
    if device is None:
        return None
    number = as_int(device)
    if number is None or not 0 <= number < _MAX_DEVICES:
        raise DeclarationError(f"{what}: device is the number of a device, from 0, or None for that of compile (got {device!r})")
    return number


def as_devices(devices: Any, what: str) -> tuple[int, ...]:
    """Return device numbers, sorted and without repeats."""
    if type(devices) is tuple and not devices:
        return ()
    given = tuple(devices) if isinstance(devices, (tuple, list, set, frozenset, range)) else (devices,)
    numbers = [as_device(device, f"{what}: access") for device in given]
    if None in numbers:
        raise DeclarationError(f"{what}: access lists the numbers of devices (got {devices!r})")
    return tuple(sorted({number for number in numbers if number is not None}))


def as_rank(rank: Any, what: str) -> int | Literal["all"]:
    """Return a rank as an int; ``"all"`` is returned unchanged."""
    if isinstance(rank, str) and rank == "all":
        return "all"
    return int_from(0, rank, f"{what}: rank is the number of a rank, from 0, or 'all'")


def as_int(value: Any) -> int | None:
    """Return an integer of any type as an int; None for anything else, including a bool and a masked integer."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)) or _is_masked(value):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of floats also has `__index__`
        return None


def as_number(value: Any) -> Any:
    """Return one number as a scalar of Python's, of NumPy's or of another library; of an array without dimensions, its element.

    Raises
    ------
    ValueError
        If it is none: text, a date, a struct, None, masked, or several numbers.
    """
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, (list, tuple)) or bool(getattr(value, "ndim", 0)):
        raise ValueError("it holds several, and one is wanted")
    if isinstance(value, np.ndarray):
        return as_number(as_element(value))
    if value is None or isinstance(value, (str, bytes, Mapping)):
        raise ValueError("it is no number")
    if isinstance(value, np.generic) and kind_of(value.dtype) not in "biufc":  # NumPy takes a date for a number
        raise ValueError("it is no number")
    return value


class NoValueError(ValueError):
    """Why a value is none of a dtype.

    Attributes
    ----------
    wanted : str
        What the dtype takes, as in ``"an int from 0 to 255"``.
    hint : str
        The rest of a message that says `wanted` and the value.
    """

    def __init__(self, why: str, wanted: str, hint: str = "") -> None:
        super().__init__(why)
        self.wanted, self.hint = wanted, hint


_WANTED: Final = {"b": "True or False", "i": "an int", "u": "an int", "f": "a float", "c": "a complex number"}


def scalar_value(value: Any, dtype: np.dtype[Any]) -> int | float | complex:
    """Return one number as Python's, rounded to a dtype of numbers.

    The rule of every scalar: arguments, fills, parameters and their values, fields of structs. An integer dtype takes integers of
    any type, and neither a bool nor a float, not even a whole one; a float dtype takes integers and floats; a complex one complex
    numbers too; bool takes a bool, 0 and 1. Only rounding of floats changes a value.

    Raises
    ------
    NoValueError
        If the value is none of the dtype.
    """
    if type(value) is float and dtype.char in "fd":  # most values; what does not fit is refused below
        plain = value if dtype.char == "d" else ctypes.c_float(value).value
        if math.isfinite(plain):
            return plain
    elif type(value) is int and dtype.kind in "iu":
        least, most = int_range(dtype)
        if least <= value <= most:
            return value
    kind = kind_of(dtype)
    wanted = _WANTED[kind]
    try:
        number = as_number(value)
    except ValueError as error:
        raise NoValueError(str(error), wanted) from None
    if kind != "c" and is_complex(number):
        raise NoValueError("it is complex", wanted)
    is_bool = isinstance(number, (bool, np.bool_))
    if kind in "fc":
        if is_bool:
            raise NoValueError("it is no number", wanted)
        return _rounded(number, dtype, wanted)
    # Integers of ml_dtypes have no `__index__`.
    whole = int(number) if is_bool or _is_numpy(number, "iu") else as_int(number)
    if kind == "b":
        if whole not in (0, 1):
            raise NoValueError("it is neither true nor false", wanted)
        return bool(whole)
    if whole is None or is_bool:
        hint = "; convert it with int()" * (is_bool or isinstance(number, float) or _is_numpy(number, "f"))
        raise NoValueError(f"it is no integer{hint}", wanted, hint)
    least, most = int_range(dtype)
    if not least <= whole <= most:
        raise NoValueError(f"the range is {least}..{most}", f"an int from {least} to {most}")
    return whole


def _is_numpy(number: Any, kinds: str) -> bool:
    return isinstance(number, np.generic) and kind_of(number.dtype) in kinds


def _rounded(number: Any, dtype: np.dtype[Any], wanted: str) -> float | complex:
    """Return a number as a float or complex dtype takes it."""
    is_part = kind_of(dtype) == "f"
    try:
        plain: Any = float(number) if is_part else complex(number)
    except OverflowError:
        raise _too_large(dtype) from None
    except (TypeError, ValueError, RuntimeError):  # as torch's tensors raise
        raise NoValueError("it is no number", wanted) from None
    made: float | complex
    if dtype.itemsize == (8 if is_part else 16):
        made = plain
    elif is_part and dtype.itemsize == 4:
        made = ctypes.c_float(plain).value  # much faster than NumPy's conversion
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            held = np.array(plain).astype(dtype)
        if (dtype.itemsize == 1 or not is_part) and unheld(np.array(plain), held).any():
            raise _too_large(dtype)
        made = float(held) if is_part else complex(held)
    if isinstance(made, float) and math.isinf(made) and number != made:  # also of a decimal, which overflows without an error
        raise _too_large(dtype)
    return made


def _too_large(dtype: np.dtype[Any]) -> NoValueError:
    why = float_overflow(dtype)
    return NoValueError(why, f"a number that {dtype.name} can hold", f"; {why}")


def as_element(value: Any) -> Any:
    """Return the element of an array without dimensions, and any other value unchanged; raise ValueError if it is masked."""
    if _is_masked(value):
        raise ValueError(_MASKED)
    return np.asarray(value)[()] if isinstance(value, np.ndarray) and not value.ndim else value


_NUMBERS: Final = frozenset({int, float, complex, bool})
_MASKED: Final = "values are masked; fill them first, as with values.filled(0)"


def _is_masked(values: Any) -> bool:
    """Return whether an array is masked somewhere, or one in a list or tuple, whose mask NumPy would drop."""
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.any(np.ma.flatten_mask(np.ma.getmaskarray(values))))
    if not isinstance(values, (list, tuple)):
        return False
    kinds = {*map(type, values)} - _NUMBERS
    return bool(kinds) and any(_is_masked(value) for value in values if isinstance(value, (list, tuple, np.ndarray)))


def int_from(least: int, value: Any, what: str) -> int:
    """Return an integer of any type as an int; raise DeclarationError with text `what` if it is none or below `least`."""
    number = as_int(value)
    if number is None or number < least:
        raise DeclarationError(f"{what} (got {value!r})")
    return number


def as_path(path: Any, what: str = "path") -> Path:
    """Return the path of a file, which messages call `what`; refuse a value that is neither a str nor a path."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise DeclarationError(f"{what} is a str or a pathlib.Path (got {path!r})")
    return Path(path)


def require_flags(**flags: Any) -> None:
    """Raise DeclarationError for a keyword argument that is neither True nor False."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise DeclarationError(f"{name} is True or False (got {value!r})")


_HANDLE_ATTRIBUTES = ("cuda_stream", "cuda_event", "ptr", "handle")  # torch, torch, cupy, others
_HANDLE_METHODS = ("as_c_void_p", "getPtr")  # of handle types of hip-python and cuda-bindings; int() gives the handle


def as_handle(value: Any) -> int | None:
    """Return the raw handle (stream, event, graph, semaphore) of an object of any supported library; None for anything else.

    Accepts integers, ctypes pointers, `__cuda_stream__`, the attributes of torch and cupy objects, and the handle types of
    hip-python and cuda-bindings. The handle is borrowed: the owner keeps the object alive as long as the handle is used.
    """
    if hasattr(value, "__cuda_stream__"):
        value = value.__cuda_stream__()[1]
    elif isinstance(value, ctypes.c_void_p):
        value = value.value or 0
    elif any(hasattr(type(value), name) for name in _HANDLE_METHODS):
        value = int(value)
    else:
        named = (getattr(value, name, None) for name in _HANDLE_ATTRIBUTES)
        value = next((handle for handle in named if isinstance(handle, int)), value)
    number = as_int(value)
    return number if number is not None and 0 <= number < 2**64 else None


def as_dict(value: Any, what: str, of: str = "") -> dict[Any, Any]:
    """Return a mapping as a dict; None gives an empty dict."""
    if value is not None and not isinstance(value, Mapping):
        raise DeclarationError(f"{what} is a dict{of} (got {value!r})")
    return dict(value or {})


def converted(values: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Convert values to a dtype, for declared and for written arrays; only rounding of floats may change a value.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If the dtype cannot represent a value: out of range, not a whole number, complex, neither true nor false, masked, or a
        struct with other fields.
    """
    if _is_masked(values):
        raise ValueError(_MASKED)
    if dtype.names is not None:
        return _structs(values, dtype)
    kind = kind_of(dtype)
    given = ndarray_of(values)
    if kind == "V":  # untyped bytes
        if given.itemsize > dtype.itemsize:
            raise ValueError(f"{given.itemsize} bytes do not fit an element of {dtype.itemsize}")
        return np.asarray(given, dtype)
    if given.dtype == dtype:
        return given.view(dtype)  # NumPy has two 64-bit integer types with equal dtypes
    given = _from_objects(given, dtype) if given.dtype.kind == "O" else widened(given)
    if given.dtype.kind not in "biufc":
        raise TypeError(f"{given.reshape(-1)[:1].tolist()} of dtype {given.dtype} are no numbers")
    if given.dtype.kind == "c" and kind != "c":
        raise TypeError(_no_complex(dtype))
    if kind == "b" and not np.isin(given, (0, 1)).all():
        raise ValueError("they are neither true nor false")
    if kind in "iu" and given.size:
        if given.dtype.kind not in "biu" and not (np.isfinite(given) & (np.trunc(given) == given)).all():
            raise ValueError(_not_whole(dtype))
        least, most = int_range(dtype)
        for extreme in (given.min(), given.max()):
            if not least <= int(extreme) <= most:
                raise OverflowError(f"{extreme} is out of the range {least}..{most} of {dtype}")
    with np.errstate(over="ignore"):
        result: np.ndarray[Any, Any] = given.astype(dtype)
    if kind in "fc" and unheld(given, result).any():
        raise OverflowError(float_overflow(dtype))
    return result


def _from_objects(given: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array of objects, such as integers beyond 64 bits, as numbers of a type from which `dtype` follows."""
    kind = kind_of(dtype)
    try:
        numbers = [as_number(value) for value in given.flat]
    except ValueError:
        return given
    if not all(isinstance(value, Number) or is_extra(np.asarray(value).dtype) for value in numbers):
        return given
    if kind != "c" and any(map(is_complex, numbers)):
        raise TypeError(_no_complex(dtype))
    if kind in "iu" and any(value != int(value) for value in numbers):
        raise ValueError(_not_whole(dtype))
    whole = np.empty(given.shape, object)
    whole.flat[:] = numbers
    return whole.astype(dtype if dtype.kind in "iu" else "c16" if kind == "c" else "f8")


def _no_complex(dtype: np.dtype[Any]) -> str:
    return f"they are complex, and the dtype is {dtype}; give their real parts"


def _not_whole(dtype: np.dtype[Any]) -> str:
    return f"they are no whole numbers, and the dtype is {dtype}; round them first"


def _structs(values: Any, dtype: np.dtype[Any], *, numbers: bool = True) -> np.ndarray[Any, Any]:
    """Convert to structs, field by field: structs with fields of these names, in any order, and tuples in the order of the dtype.

    With `numbers`, a number is taken for all fields. NumPy would match the fields of two structs by position, unchecked.
    """
    names = dtype.names or ()
    if not isinstance(values, (list, tuple, Mapping)):
        values = ndarray_of(values)
        if values.dtype == dtype:
            return values  # type: ignore[no-any-return]
    by_name = isinstance(values, np.ndarray) and values.dtype.names is not None
    if by_name:
        _require_fields(values.dtype.names, names)
    else:
        values = np.asarray(_in_order(values, names, numbers), [(name, "O") for name in names])
    made = np.zeros(values.shape, dtype)
    for name in names:
        field, given = dtype[name].base, values[name] if by_name else values[name].tolist()
        try:
            part = _structs(given, field, numbers=False) if field.names else converted(given, field)
            made[name][...] = part[(..., *[None] * (made[name].ndim - part.ndim))]  # one number for all of a field with a shape
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"field {name!r}: {error}") from None
    return made


def _in_order(values: Any, names: tuple[str, ...], numbers: bool) -> Any:
    """Return lists with tuples in the order of `names` in place of NumPy's structs and of mappings."""
    if isinstance(values, np.ndarray) and (values.dtype.names is not None or not numbers):
        values = [*values] if values.ndim else values[()]
    if isinstance(values, list):
        return [_in_order(value, names, numbers) for value in values]
    given = values.dtype.names if isinstance(values, np.void) else values if isinstance(values, Mapping) else None
    if given is not None:
        _require_fields(given, names)
        return tuple(values[name] for name in names)
    if not numbers and not isinstance(values, tuple):
        raise TypeError(f"it is a struct ({', '.join(names)}), which {shown(values)} is not")
    return values


def _require_fields(given: Iterable[str], names: tuple[str, ...]) -> None:
    """Raise TypeError unless the names of fields are these, in any order."""
    if {*given} != {*names}:
        said = " and ".join(", ".join(map(repr, fields)) for fields in (given, names))
        raise TypeError(
            f"their fields and those of the dtype differ: {said}; name them alike, or give tuples in the dtype's order"
        )


def from_file(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the values of a .npy file in a dtype that it cannot describe, of raw bytes or a uint8 view; others unchanged."""
    if values.dtype == np.dtype(f"V{dtype.itemsize}"):
        return values.view(dtype)
    if has_extras(dtype) and values.dtype == np.uint8 and values.ndim and values.shape[-1] % dtype.itemsize == 0:
        return np.ascontiguousarray(values).view(dtype)
    return values


def own_copy(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a contiguous copy of values, with zeros in the padding of structs.

    NumPy's copy leaves padding uninitialized, so that equal values would differ in files and comparisons.
    """
    if values.dtype.kind != "V":
        return np.array(values, order="C")
    copy = np.zeros(values.shape, values.dtype)
    copy[...] = values  # field by field
    return copy


def array_values(what: str, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """Return values with a dtype and broadcast to a shape; errors say that `what`, called `name`, takes them."""
    try:
        found = np.broadcast_to(converted(values, dtype), shape)
        return own_copy(found) if dtype.names else np.ascontiguousarray(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(
            f"{what} takes values of shape {shape} and dtype {dtype} (got {getattr(values, 'shape', type(values).__name__)}):"
            f" {str(error).partition(' with remapped')[0]}",
            array=name,
        ) from None


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of positive ints."""
    if type(shape) is int and 0 < shape <= 2**62:
        return (shape,)
    try:
        extents = tuple(shape) if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    except TypeError:  # an array without dimensions
        extents = (None,)
    result = extents
    if not {int}.issuperset(map(type, extents)):
        result = tuple(extent for extent in map(as_int, extents) if extent is not None)
    if len(result) < len(extents):
        raise DeclarationError(f"a shape is an integer or a tuple of integers (got {shape!r})")
    if len(result) > _MAX_DIMS:
        raise DeclarationError(f"a shape has at most {_MAX_DIMS} dimensions (got {len(result)})")
    for extent in result:
        if extent < 1:
            raise DeclarationError(f"each extent of a shape is at least 1 (got {extent} in {result})")
    if math.prod(result) > 2**62:
        raise DeclarationError(f"an array of shape {result} has more elements than an address space")
    return result


def as_time(value: Any, where: str, node: str = "") -> float:
    """Return a duration as a float; raise a DeclarationError unless it is a finite number from 0."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (bool, np.bool_, str, bytes)) or not 0 <= number < math.inf:
        raise DeclarationError(f"{where} is a time, a finite number from 0 (got {value!r})", node=node)
    return number


def ndarray_of(values: Any) -> np.ndarray[Any, Any]:
    """Return values as an array, also those of a type that NumPy takes only from ml_dtypes; TypeError if none can be."""
    if isinstance(values, np.ndarray) or type(values) in (int, float, complex, bool, list, tuple):
        return np.asarray(values)
    from .dlpack import is_on_host, on_host, require_plain

    require_plain(values)
    try:
        return np.asarray(values)
    except (TypeError, RuntimeError, BufferError):
        if not is_on_host(values):
            raise
        return on_host(values)
