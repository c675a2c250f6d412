"""Convert plain data, as the fields of nodes in a file hold it, to values, dtypes and shapes; `values` does the inverse."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ..arrays import (
    NAMES,
    Access,
    ArrayView,
    Parameter,
    as_dtype,
    as_shape,
    converted,
    dtype_named,
    kind_of,
    own_copy,
    read_expression,
)
from ..errors import DeclarationError, shown
from ..kernels import Module

_MAX_ITEM = 2**20  # bytes of an element


class _Names(Protocol):
    """What tagged values need of `values.Names`."""

    def member(self, reference: str, /) -> tuple[Module, str]: ...
    def parameter(self, name: str, /) -> Parameter: ...
    def selected(self, text: str, find: Callable[[str], Any], /) -> Any: ...
    def view(self, data: Any, /) -> ArrayView: ...
    def value(self, data: Any, /) -> Any: ...


class Members:
    """The members of one JSON object; each is taken once, and `done` rejects members that were not taken.

    As a context, it names in a DeclarationError that is raised inside the member that was taken last.
    """

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise DeclarationError(f"{what} is an object {{...}} (got {shown(data)})")
        self.data = dict(data)
        self._last: str | None = None

    def __enter__(self) -> Members:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, DeclarationError):
            error.field = error.field or self._last

    def take(self, key: str, *types: type, default: Any = ...) -> Any:
        """Remove and return a key's value; raise DeclarationError if it is missing without a default or of none of `types`."""
        self._last = key
        if key not in self.data:
            if default is ...:
                raise DeclarationError(f"field {key!r} is missing")
            return default
        value = self.data.pop(key)
        if types and type(value) not in types:
            raise wrong_type(key, value, types)
        return value

    def done(self, what: str) -> None:
        """Raise DeclarationError if a member has not been taken."""
        if self.data:
            key = self._last = next(iter(self.data))
            raise DeclarationError(f"{what} has no field {key[:60]!r}")


def wrong_type(key: str, value: Any, types: Iterable[type], *, field: str | None = None) -> DeclarationError:
    """Return the error that the value of a key, which may be a `field` of a node, has none of these types."""
    return DeclarationError(f"{key!r} is {' or '.join(_JSON_NAMES[t] for t in types)} (got {shown(value)})", field=field)


_JSON_NAMES: dict[type, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def tagged(data: dict[str, Any], names: _Names) -> Any:
    """Return the value that an object represents by its first key."""
    tag = next(iter(data), None)
    read = _TAGS.get(tag) if tag is not None else None
    if read is None:
        raise DeclarationError(f"{shown(data)} is no value; an object has one of the tags {', '.join(_TAGS)}")
    return read(names, Members(data, "a value"))


def _tagged_param(names: _Names, members: Members) -> Any:
    text = _only(members, "param", str)
    if "[" not in text and not text.isidentifier():
        return read_expression(text, names.parameter)
    found = names.selected(text, names.parameter)
    return found.as_view() if isinstance(found, Parameter) and found.shape else found


def _tagged_symbol(names: _Names, members: Members) -> Any:
    module, rest = names.member(_only(members, "symbol", str))
    return names.selected(rest, module.symbol).as_view()


def _tagged_access(mode: Any) -> Callable[[_Names, Members], Any]:
    return lambda names, members: Access(names.view(_only(members, mode)), mode)


def _tagged_float(names: _Names, members: Members) -> float:
    text = _only(members, "float", str)
    if text not in ("nan", "inf", "-inf"):
        raise DeclarationError(f"'float' is 'nan', 'inf' or '-inf' (got {text[:60]!r})")
    return float(text)


def _tagged_complex(names: _Names, members: Members) -> complex:
    parts = [names.value(part) for part in _only(members, "complex", list)]
    if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
        raise DeclarationError("'complex' is [real, imaginary]")
    return complex(*parts)


def _tagged_numpy(names: _Names, members: Members) -> Any:
    dtype = dtype_of(members.take("numpy"))
    value = names.value(members.take("value"))
    members.done("a NumPy value")
    if type(value) not in (bool, int, float, complex) or dtype.names is not None:
        raise DeclarationError(f"'value' of a NumPy value is a number (got {shown(value)})")
    return filled((value,), (1,), dtype)[0]


def _tagged_struct(names: _Names, members: Members) -> Any:
    dtype = dtype_of(members.take("struct"))
    data = bytes_of(members.take("base64", str))
    members.done("a struct")
    if len(data) != dtype.itemsize:
        raise DeclarationError(f"a struct of {dtype.itemsize} bytes has {len(data)} bytes in 'base64'")
    return np.frombuffer(data, dtype)[0]


def _tagged_ndarray(names: _Names, members: Members) -> Any:
    dtype = dtype_of(members.take("ndarray"))
    shape = members.take("shape", list)
    data = bytes_of(members.take("base64", str))
    members.done("an array value")
    sizes = all(type(n) is int and n >= 0 for n in shape)
    if len(shape) > 32 or not sizes or math.prod(filter(None, shape)) > 2**40:  # NumPy also limits shapes without elements
        raise DeclarationError(f"'shape' is a list of integers from 0, with at most 2**40 elements (got {shown(shape)})")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise DeclarationError(f"an array of shape {shape} and {dtype.itemsize} bytes each has {len(data)} bytes in 'base64'")
    return own_copy(np.frombuffer(data, dtype).reshape(shape))


def _tagged_dict(names: _Names, members: Members) -> dict[str, Any]:
    return {key: names.value(value) for key, value in _only(members, "dict", dict).items()}


def _only(members: Members, tag: str, *types: type) -> Any:
    value = members.take(tag, *types)
    members.done(f"a value tagged {tag!r}")
    return value


_TAGS: dict[str, Callable[[_Names, Members], Any]] = {
    "param": _tagged_param,
    "symbol": _tagged_symbol,
    "read": _tagged_access("read"),
    "write": _tagged_access("write"),
    "update": _tagged_access("update"),
    "float": _tagged_float,
    "complex": _tagged_complex,
    "str": lambda names, members: _only(members, "str", str),
    "bytes": lambda names, members: bytes_of(_only(members, "bytes", str)),
    "tuple": lambda names, members: tuple([names.value(item) for item in _only(members, "tuple", list)]),
    "dict": _tagged_dict,
    "numpy": _tagged_numpy,
    "struct": _tagged_struct,
    "ndarray": _tagged_ndarray,
}


def bytes_of(text: str) -> bytes:
    """Return the bytes of base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DeclarationError(f"base64 text is damaged: {error}") from None


def dtype_of(data: Any, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype that data represents; the inverse of `dtype_data`."""
    if type(data) is str:
        found = dtype_named(data)
        if found is None:
            raise DeclarationError(f"there is no dtype {data[:60]!r}; dtypes are {', '.join(NAMES)} and structs")
        if found.itemsize > _MAX_ITEM:
            raise DeclarationError(f"an element has at most {_MAX_ITEM} bytes")
        return found
    if depth > 16:
        raise DeclarationError("a struct is nested too deeply")
    fields = Members(data, "a dtype")
    if "base" in fields.data:
        base, shape = dtype_of(fields.take("base"), depth + 1), shape_of(fields.take("shape", list))
        fields.done("a dtype")
        if math.prod(shape) * base.itemsize > _MAX_ITEM:
            raise DeclarationError(f"a struct has at most {_MAX_ITEM} bytes")
        return np.dtype((base, shape))
    names, formats, offsets = fields.take("names", list), fields.take("formats", list), fields.take("offsets", list)
    itemsize, align = fields.take("itemsize", int), fields.take("align", bool, default=False)
    fields.done("a dtype")
    if not (len(names) == len(formats) == len(offsets) <= 1000 and all(type(n) is str and n for n in names)):
        raise DeclarationError("'names', 'formats' and 'offsets' of a struct are lists of one length, at most 1000")
    if not all(type(n) is int and 0 <= n <= _MAX_ITEM for n in (*offsets, itemsize)):
        raise DeclarationError(f"a struct has at most {_MAX_ITEM} bytes")
    parts = [dtype_of(part, depth + 1) for part in formats]
    try:
        spec: Any = {"names": names, "formats": parts, "offsets": offsets, "itemsize": itemsize}
        return np.dtype(spec, align=align)  # type: ignore[no-any-return]  # NumPy's stubs do not know a spec with align
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"a struct is wrong: {error}") from None


def shape_of(data: Any) -> tuple[int, ...]:
    """Return the shape that data represents."""
    if type(data) is not list or not all(type(n) is int for n in data):
        raise DeclarationError(f"'shape' is a list of integers (got {shown(data)})")
    return as_shape(tuple(data))


def memory_of(members: Members) -> tuple[tuple[int, ...], np.dtype[Any], dict[str, Any]]:
    """Return shape, dtype, and a dict of `device` (the owner) and `access` (other devices)."""
    named = members.take("dtype")
    dtype = _named(named) if type(named) is str else as_dtype(dtype_of(named))
    shape = shape_of(members.take("shape", list))
    access = [device_of_data(device, "access") for device in members.take("access", list, default=[])]
    return shape, dtype, {"device": device_of_data(members.take("device", int, default=None)), "access": tuple(access)}


@lru_cache
def _named(name: str) -> np.dtype[Any]:
    """Return the dtype of this name that arrays can have; the arrays of a graph have few."""
    return as_dtype(dtype_of(name))


def device_of_data(data: Any, field: str = "device") -> int | None:
    """Return the device number that data represents; None stays None for field `device`."""
    if data is None and field == "device":
        return None
    if type(data) is not int or not 0 <= data < 2**16:
        raise DeclarationError(f"{field!r} holds the number of a device (got {shown(data)})")
    return data


def filled(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return numbers as an array; raise DeclarationError for a value of a wrong type or range."""
    allowed: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "c": (int, float, complex)}.get(
        kind_of(dtype), (int, float)
    )
    for value in values:
        if type(value) not in allowed:
            raise DeclarationError(f"{shown(value)} is no value of dtype {dtype}")
    try:
        return own_copy(converted(values, dtype)).reshape(shape)
    except (OverflowError, ValueError, TypeError) as error:
        raise DeclarationError(f"values do not fit dtype {dtype}: {error}") from None
