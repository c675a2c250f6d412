"""Struct layouts: NumPy dtypes, as users pass them and as JSON stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import as_dtype, dtype_named
from ..errors import DeclarationError


def struct_layouts(structs: Mapping[str, Any] | None, module: str) -> dict[str, np.dtype[Any]]:
    """Return struct layouts as dtypes in native byte order; refuse any other byte order."""
    found = {key: as_dtype(value) for key, value in (structs or {}).items()}
    for key, dtype in found.items():
        swapped = _swapped_field(dtype)
        if swapped:
            raise DeclarationError(
                f"module {module!r}: struct {key!r}: field {swapped} has the byte order of another machine, which no device"
                f" reads; give structs={{{key!r}: dtype.newbyteorder('=')}}",
                array=key,
            )
    return found


def _swapped_field(dtype: np.dtype[Any], name: str = "") -> str:
    if dtype.subdtype is not None:
        return _swapped_field(dtype.subdtype[0], name)
    if dtype.names is not None:
        assert dtype.fields is not None
        fields = dtype.fields
        inner = (_swapped_field(fields[key][0], f"{name}.{key}" if name else key) for key in dtype.names)
        return next(filter(None, inner), "")
    return "" if dtype.isnative else repr(name)


def dtype_data(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON data: its name, or for a struct its fields."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": dtype_data(base), "shape": list(shape)}
    if dtype.names is None:
        return dtype.name if dtype.isnative else dtype.str
    assert dtype.fields is not None
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [dtype_data(entry[0]) for entry in fields],
        "offsets": [int(entry[1]) for entry in fields],
        "itemsize": dtype.itemsize,
        "align": bool(dtype.isalignedstruct),
    }


def dtype_from_json(data: Any, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype that `dtype_data` wrote; raises ValueError, KeyError or TypeError."""
    if depth > 16:
        raise ValueError("a struct is nested too deeply")
    if isinstance(data, str):
        found = dtype_named(data)
        if found is None:
            raise ValueError(f"there is no dtype {data[:60]!r}")
        return found
    if "base" in data:
        return np.dtype((dtype_from_json(data["base"], depth + 1), tuple(int(n) for n in data["shape"])))
    fields: Any = {
        "names": [str(name) for name in data["names"]],
        "formats": [dtype_from_json(part, depth + 1) for part in data["formats"]],
        "offsets": [int(n) for n in data["offsets"]],
        "itemsize": int(data["itemsize"]),
    }
    return np.dtype(fields, align=bool(data.get("align", False)))  # type: ignore[no-any-return]
