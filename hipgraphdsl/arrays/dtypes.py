"""Types of elements: NumPy's own, and those that the package ml_dtypes adds, which NumPy calls untyped bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import DeclarationError


class Extra(NamedTuple):
    """A type of ml_dtypes: its kind in NumPy's letters, the bits of a value, and its type code in DLPack, if it has one."""

    kind: str
    bits: int
    code: int | None


EXTRAS: Final = {
    "bfloat16": Extra("f", 16, 4),
    "bcomplex32": Extra("c", 32, None),
    "complex32": Extra("c", 32, 5),
    "float4_e2m1fn": Extra("f", 4, 17),
    "float6_e2m3fn": Extra("f", 6, 15),
    "float6_e3m2fn": Extra("f", 6, 16),
    "float8_e3m4": Extra("f", 8, 7),
    "float8_e4m3": Extra("f", 8, 8),
    "float8_e4m3b11fnuz": Extra("f", 8, 9),
    "float8_e4m3fn": Extra("f", 8, 10),
    "float8_e4m3fnuz": Extra("f", 8, 11),
    "float8_e5m2": Extra("f", 8, 12),
    "float8_e5m2fnuz": Extra("f", 8, 13),
    "float8_e8m0fnu": Extra("f", 8, 14),
    **{f"{sign}int{bits}": Extra(sign or "i", bits, int(bool(sign))) for sign in ("", "u") for bits in (1, 2, 4)},
}
"""The types of ml_dtypes by name. An element takes whole bytes: int4 one, of which DLPack and torch may pack two into one."""

NAMES: Final = tuple(
    sorted(
        {"bool", "float16", "float32", "float64", "complex64", "complex128", *EXTRAS}
        | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    )
)
"""Names of all types of elements, structs and untyped bytes aside."""

CODES: Final = r"[<>=|]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|V[1-9]\d{0,5})|void[1-9]\d{0,6}"
"""NumPy's codes of types, and its name for untyped bytes, as a regular expression."""

_CODES: Final = re.compile(CODES)


def is_extra(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of ml_dtypes."""
    return dtype.type.__name__ in EXTRAS  # not dtype.name, which NumPy computes on each access


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the kind of a dtype's values, "b", "i", "u", "f" or "c", for types of ml_dtypes too; "V" for structs and bytes."""
    extra = EXTRAS.get(dtype.type.__name__)
    return dtype.kind if extra is None else extra.kind


def is_complex(value: Any) -> bool:
    """Return whether a scalar or an array of Python's, NumPy's or ml_dtypes is complex; its real part alone is another value."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, complex) or (isinstance(dtype, np.dtype) and kind_of(dtype) == "c")


def has_extras(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of ml_dtypes, or a struct with such a field."""
    if dtype.subdtype is not None:
        return has_extras(dtype.subdtype[0])
    return is_extra(dtype) or any(has_extras(dtype[name]) for name in dtype.names or ())


def part_of(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype of the real and imaginary parts of a complex dtype; None for others."""
    if kind_of(dtype) != "c":
        return None
    if is_extra(dtype):
        return dtype_named("bfloat16" if dtype.type.__name__ == "bcomplex32" else "float16")
    return np.dtype(f"f{dtype.itemsize // 2}")


def widened(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values of a type of ml_dtypes in a type of NumPy that holds each of them exactly; others unchanged."""
    if not is_extra(values.dtype):
        return values
    wide: np.ndarray[Any, Any] = values.astype({"i": "i1", "u": "u1", "f": "f4", "c": "c8"}[kind_of(values.dtype)])
    return wide


def int_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the largest value of an integer dtype."""
    extra = EXTRAS.get(dtype.type.__name__)
    bits = 8 * dtype.itemsize if extra is None else extra.bits
    return (0, 2**bits - 1) if kind_of(dtype) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unheld(given: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which float or complex values a conversion has changed by more than rounding.

    These are overflows, also those that saturate, and infinities and NaN where the dtype has none.
    """
    wide = widened(made)
    changed = (np.isfinite(given) != np.isfinite(wide)) | (np.isnan(given) != np.isnan(wide))
    extra = EXTRAS.get(made.dtype.type.__name__)
    if extra is not None and extra.bits < 8:  # these saturate
        _, largest, step = _float_limits(made.dtype)
        changed |= np.abs(given) > largest + step / 2
    return np.asarray(changed)


@lru_cache(maxsize=64)
def _float_limits(dtype: np.dtype[Any]) -> tuple[float, float, float]:
    """Return the least and the largest finite value of a float dtype of one byte, and the step to the largest."""
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    return float(finite[0]), float(finite[-1]), float(finite[-1] - finite[-2])


def float_overflow(dtype: np.dtype[Any]) -> str:
    """Return the message that a value is outside of the range of a float or complex dtype."""
    part = part_of(dtype) or dtype
    if part.itemsize == 1:
        least, largest, _ = _float_limits(part)
    else:
        unit = np.dtype(f"u{part.itemsize}").type(1)
        infinite = np.array(np.inf, part).view(unit.dtype)
        largest = float((infinite - unit).view(part))
        least = -largest
    special = np.array([np.inf, np.nan]).astype(part)
    lacks = [word for word, there in (("infinity", np.isinf(special[0])), ("NaN", np.isnan(special[1]))) if not there]
    reach = f"±{largest:.6g}" if least == -largest else f"{least:.6g} to {largest:.6g}"
    without = f", without {' and '.join(lacks)}" if lacks else ""
    return f"overflow: the range of {dtype} is {reach}{without}"


def dtype_named(name: str) -> np.dtype[Any] | None:
    """Return the dtype of a name that `dtype.name` gives or of a NumPy code such as ``"<f4"``; None for any other text.

    Raises
    ------
    DeclarationError
        If ml_dtypes has the type, and is not installed or is too old.
    """
    if name in EXTRAS:
        try:
            import ml_dtypes
        except ImportError:
            raise DeclarationError(f"dtype {name!r} needs the package ml_dtypes: pip install ml_dtypes") from None
        found = getattr(ml_dtypes, name, None)
        if found is None:
            raise DeclarationError(f"dtype {name!r} is not in this ml_dtypes {ml_dtypes.__version__}: pip install -U ml_dtypes")
        return np.dtype(found)  # type: ignore[no-any-return]  # ml_dtypes has no types
    if name in NAMES:
        return np.dtype(name)
    if not _CODES.fullmatch(name):
        return None
    if not name.startswith("void"):
        return np.dtype(name)
    nbytes = int(name[4:]) // 8  # NumPy's own name for untyped bytes, which np.dtype does not parse
    return np.dtype(f"V{nbytes}") if nbytes else None


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a name or type; DeclarationError if a GPU cannot hold it.

    The names of types of ml_dtypes, such as ``"bfloat16"``, need that package.
    """
    return _named(dtype) if type(dtype) is str and dtype not in EXTRAS else _as_dtype(dtype)


@lru_cache(maxsize=256)
def _named(name: str) -> np.dtype[Any]:
    return _as_dtype(name)


def _as_dtype(dtype: Any) -> np.dtype[Any]:
    result = dtype_named(dtype) if isinstance(dtype, str) and dtype in EXTRAS else None
    if result is not None:
        return result
    try:
        result = np.dtype("float64" if dtype is None else dtype)
    except (TypeError, ValueError, SyntaxError):
        result = None
    if result is None or dtype is None:  # NumPy treats None as float64, which the user did not ask for
        raise DeclarationError(f"{dtype!r} is not a dtype; give a NumPy dtype such as 'float32'")
    if result.subdtype is not None:
        raise DeclarationError(f"dtype {dtype!r} has a shape of its own; give {result.base} and put {result.shape} into shape=")
    _require_storable(result, result)
    if result.itemsize == 0:
        raise DeclarationError(f"dtype {dtype!r} has elements of 0 bytes; give its size")
    return result if result.kind == "V" or is_extra(result) else result.newbyteorder("=")


def _require_storable(dtype: np.dtype[Any], whole: np.dtype[Any], path: tuple[str, ...] = ()) -> None:
    """Raise DeclarationError for a dtype that no device or file holds, the whole one or that of the field at a path in it."""
    if dtype.subdtype is not None:
        _require_storable(dtype.subdtype[0], whole, path)
    elif dtype.names is not None:
        for name in dtype.names:
            _require_storable(dtype[name], whole, (*path, name))
    elif not is_extra(dtype) and (
        dtype.kind not in "biufcV" or (dtype.kind in "fc" and dtype.itemsize > 8 * (1 + (dtype.kind == "c")))
    ):
        what = f"dtype {whole}" + f": field {'.'.join(path)!r}, {dtype}," * bool(path)
        raise DeclarationError(
            f"{what} cannot live on a device; use bool, 8- to 64-bit integers, float16, bfloat16, float32, float64,"
            " complex, a type of ml_dtypes or structured dtypes of these"
        )
