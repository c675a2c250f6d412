"""Convert arrays, parameters and modules to plain data, as a workflow file holds them, and back."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import (
    Array,
    DeviceArray,
    ExternalArray,
    HostArray,
    Parameter,
    UnboundValues,
    as_dtype,
    as_rank,
    converted,
    is_extra,
    own_copy,
)
from ..errors import DeclarationError
from ..kernels import ForeignModule, Module
from ..kernels.layouts import dtype_data
from ..nodes.base import Node, check_name
from ..nodes.values import (
    COUNT,
    DEFINITIONS,
    FLAG,
    MAX_VALUES,
    MEMORY,
    SHAPE,
    Data,
    Members,
    Names,
    base64_text,
    bytes_of,
    dtype_of,
    filled,
    list_of,
    map_of,
    memory_data,
    memory_of,
    record,
    ref,
    shape_of,
)
from ..source import Budget

_log = logging.getLogger("hipgraphdsl")
_TEXT = {"type": "string"}

VERSION = 1
"""Version of the file format; a file of a newer version is rejected."""

PARTS: dict[str, Any] = {
    "module": {
        "oneOf": [
            record(
                {
                    "name": _TEXT,
                    "source": list_of(_TEXT, description="HIP C++, a line each."),
                    "options": list_of(_TEXT),
                    "headers": map_of(_TEXT, description="Headers of the project's own that the source includes: path to text."),
                    "structs": map_of(ref("dtype")),
                },
                "source",
            ),
            record(
                {
                    "name": _TEXT,
                    "file": _TEXT,
                    "sha256": ref("sha256"),
                    "signatures": map_of(_TEXT),
                    "structs": map_of(ref("dtype")),
                },
                "file sha256",
            ),
        ]
    },
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "array": record(
        {
            "name": ref("name"),
            "kind": {"enum": ["host", "device", "external"]},
            "dtype": ref("dtype"),
            "shape": SHAPE,
            **MEMORY,
            "pinned": FLAG,
            "rank": {"oneOf": [COUNT, {"const": "all"}]},
            "location": {"enum": ["host", "device"]},
            "writeable": FLAG,
            "values": list_of({"type": ["number", "boolean"]}, description="All elements, C order."),
            "base64": {**ref("base64"), "description": "All elements, C order, little-endian."},
            "sha256": {**ref("sha256"), "description": "Hash of values that are supplied when it is loaded."},
        },
        "name kind dtype shape",
    ),
    "parameter": record(
        {"name": ref("name"), "dtype": ref("dtype"), "shape": SHAPE, "copy": FLAG, "default": ref("value")},
        "name dtype",
    ),
}
"""JSON Schema of the parts, by name."""


def document_schema(kinds: Mapping[str, type[Node]]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a workflow file with nodes of these kinds."""
    body = {
        "infer": {**FLAG, "description": "Whether edges are inferred from what nodes read and write."},
        "arrays": list_of(ref("array")),
        "parameters": list_of(ref("parameter")),
        "nodes": list_of(ref("node")),
        "order": list_of(list_of(ref("name"), minItems=2, maxItems=2), description="Plain edges: earlier node, later node."),
    }
    properties = {
        "hipgraphdsl": {"const": VERSION, "description": "Version of the format."},
        "name": ref("name"),
        "modules": map_of(ref("module")),
        **body,
        "workflows": map_of(record({"name": ref("name"), **body}), description="Child graphs, each once; inner ones first."),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hipgraphdsl workflow",
        **record(properties, "hipgraphdsl name"),
        "$defs": {
            **DEFINITIONS,
            **PARTS,
            "node": {"oneOf": [ref(f"node_{kind}") for kind in kinds]},
            **{f"node_{kind}": model.data_schema() for kind, model in kinds.items()},
        },
    }


def array_data(array: Array, *, values: bool = True) -> dict[str, Data]:
    """Return an array as data, with or without its values."""
    out: dict[str, Data] = {"name": array.name, "kind": array.kind, **memory_data(array)}
    if isinstance(array, HostArray) and not array.pinned:
        out["pinned"] = False
    if isinstance(array, HostArray) and array.rank != 0:
        out["rank"] = array.rank
    if isinstance(array, ExternalArray):
        out["location"] = array.location
        if not array.writeable:
            out["writeable"] = False
    initial = getattr(array, "initial", None) if values else None
    if isinstance(initial, UnboundValues):
        out["sha256"] = initial.sha256
    elif initial is not None and initial.size > MAX_VALUES:
        out["sha256"] = _sha256_of(initial)
    elif initial is not None:
        numbers = _numbers(initial)
        out |= {"base64": base64_text(initial.tobytes())} if numbers is None else {"values": numbers}
    return out


def _sha256_of(values: np.ndarray[Any, Any]) -> str:
    """Return the SHA-256 of the bytes in C order, in hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view("u1").data).hexdigest()


def _numbers(values: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return the elements in C order as numbers that load to the same bytes, or None if no such numbers exist."""
    kind = values.dtype.kind
    if kind not in "biuf" or is_extra(values.dtype) or not np.isfinite(values).all():
        return None
    short = kind == "f" and values.dtype.itemsize < 8
    return [float(str(value)) for value in values.reshape(-1)] if short else values.reshape(-1).tolist()


def array_of(data: Data, taken: Container[str], prefix: str, supply: Callable[[str], Any]) -> Array:
    """Return the array that data represents; `supply` returns the caller's value for ``prefix + name``, or None."""
    fields = Members(data, "an array")
    name = check_name(fields.take("name", str), "array")
    kind = fields.take("kind", str)
    if name in taken:
        raise DeclarationError(f"array {name!r} is declared twice")
    shape, dtype, where = memory_of(fields)
    full = prefix + name
    supplied = supply(full)
    array: Array
    if kind == "external":
        location, writeable = fields.take("location", str, default="host"), fields.take("writeable", bool, default=True)
        if location not in ("host", "device"):
            raise DeclarationError(f"'location' is 'host' or 'device' (got {location[:60]!r})")
        array = ExternalArray(name, shape, dtype, location=location, writeable=writeable, **where)
        if supplied is not None:
            array = ExternalArray.wrap(name, supplied, device=array.device)
            _require_same(name, array.shape, array.dtype, shape, dtype)
            if array.location != location:
                raise DeclarationError(f"array {name!r} is {location} memory; arrays[{full!r}] is {array.location} memory")
            if writeable and not array.writeable:
                raise DeclarationError(f"array {name!r} is written; arrays[{full!r}] is read-only")
            array = replace(array, writeable=writeable, access=where["access"])
    elif kind in ("host", "device"):
        if kind == "host":
            where["pinned"] = fields.take("pinned", bool, default=True)
            where["rank"] = as_rank(fields.take("rank", int, str, default=0), "host array")
        initial = _initial(fields, name, shape, dtype)
        if supplied is not None:
            initial = _supplied(name, supplied, initial, shape, dtype)
        array = (HostArray if kind == "host" else DeviceArray)(name, shape, dtype, initial=initial, **where)
    else:
        raise DeclarationError(f"'kind' of an array is 'host', 'device' or 'external' (got {kind[:60]!r})")
    if array.on_host and array.access:
        raise DeclarationError(f"array {name!r} is host memory, and 'access' is for memory of a device")
    fields.done(f"{kind} array {name!r}")
    return array


def _initial(fields: Members, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    given = [key for key in ("values", "base64", "sha256") if key in fields.data]
    if len(given) > 1:
        raise DeclarationError(f"array {name!r} has both {given[0]!r} and {given[1]!r}; give one")
    if not given:
        return None
    size = math.prod(shape)
    if given == ["sha256"]:
        digest = fields.take("sha256", str)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise DeclarationError(f"'sha256' is 64 hexadecimal digits (got {digest[:60]!r})")
        return UnboundValues(digest)
    if given == ["values"]:
        values = fields.take("values", list)
        if len(values) != size:
            raise DeclarationError(f"array {name!r} of shape {list(shape)} has {size} elements, 'values' holds {len(values)}")
        found = filled(values, shape, dtype)
    else:
        data = bytes_of(fields.take("base64", str))
        if len(data) != size * dtype.itemsize:
            raise DeclarationError(f"array {name!r} has {size * dtype.itemsize} bytes, 'base64' holds {len(data)}")
        found = own_copy(np.frombuffer(data, dtype).reshape(shape))
    found.flags.writeable = False
    return found


def _require_same(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], wanted_shape: tuple[int, ...], wanted_dtype: np.dtype[Any]
) -> None:
    if shape != wanted_shape or dtype != wanted_dtype:
        raise DeclarationError(
            f"array {name!r} is {wanted_dtype}{list(wanted_shape)}; what arrays supplies is {dtype}{list(shape)}",
            array=name,
        )


def _supplied(name: str, value: Any, stored: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        if isinstance(value, np.ndarray) and value.dtype == np.dtype(f"V{dtype.itemsize}"):
            value = value.view(dtype)  # a .npy file has raw bytes for types that it cannot describe
        # A list has no dtype, so it is converted; an ndarray must have the array's dtype.
        found = own_copy(value if isinstance(value, np.ndarray) else converted(value, dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(f"array {name!r}: what arrays supplies cannot be taken: {error}", array=name) from None
    _require_same(name, found.shape, found.dtype, shape, dtype)
    if isinstance(stored, UnboundValues) and _sha256_of(found) != stored.sha256:
        _log.warning("array %r: the values supplied are not those that the file was written with (SHA-256 differs)", name)
    found.flags.writeable = False
    return found


def parameter_data(parameter: Parameter, names: Names) -> dict[str, Data]:
    """Return a parameter as data."""
    out: dict[str, Data] = {"name": parameter.name, "dtype": dtype_data(parameter.dtype)}
    if parameter.shape:
        out["shape"] = list(parameter.shape)
    if parameter.copy:
        out["copy"] = True
    if parameter.default is not None:
        try:
            out["default"] = names.value_data(parameter.default)
        except DeclarationError as fault:
            raise DeclarationError(
                f"the default of parameter {parameter.name!r} cannot be stored in a file: {fault}", array=parameter.name
            ) from None
    return out


def parameter_of(data: Data, names: Names) -> tuple[str, np.dtype[Any], Any, tuple[int, ...], bool]:
    """Return name, dtype, default, shape and `copy` of the parameter that data represents."""
    fields = Members(data, "a parameter")
    name = fields.take("name", str)
    dtype = as_dtype(dtype_of(fields.take("dtype")))
    shape = shape_of(fields.take("shape", list, default=[]))
    default = names.value(fields.take("default", default=None))
    copy = fields.take("copy", bool, default=False)
    fields.done(f"parameter {name[:60]!r}")
    return name, dtype, default, shape, copy


def module_data(module: Module, key: str, *, strict: bool = True) -> dict[str, Data]:
    """Return a module as data under a key of the file; a foreign module cannot be stored, only displayed if not `strict`."""
    if isinstance(module, ForeignModule) and not strict:
        return {"foreign": module.owner.name}
    out = module.to_dict()
    if out["name"] == key:
        del out["name"]
    if "source" in out:
        out["source"] = out["source"].split("\n")
    return out


def module_of(data: Data, key: str, budget: Budget) -> Module:
    """Return the module that data under a key of the file represents; `budget` limits how much of its source is parsed."""
    if not key or ":" in key or len(key) > 200 or not key.isprintable():
        raise DeclarationError(f"{key[:60]!r} cannot name a module: a name has 1 to 200 printable characters, and no ':'")
    fields = Members(data, "a module")
    name = fields.take("name", str, default=key)
    structs = fields.take("structs", dict, default={})
    layouts = {struct: dtype_of(value) for struct, value in structs.items()}
    if "source" in fields.data:
        source = fields.take("source", list, str)
        lines = source if isinstance(source, list) else [source]
        options = fields.take("options", list, default=[])
        headers = fields.take("headers", dict, default={})
        if not all(type(line) is str for line in (*lines, *options)):
            raise DeclarationError("'source' and 'options' are lists of text")
        if not all(type(text) is str for text in headers.values()):
            raise DeclarationError("'headers' is an object of texts")
        fields.done("a module")
        return Module.stored("\n".join(lines), name, options, layouts, headers, budget)
    file, digest = fields.take("file", str), fields.take("sha256", str)
    signatures = fields.take("signatures", dict, default={})
    if not all(type(text) is str for text in signatures.values()):
        raise DeclarationError("'signatures' is an object of parameter lists")
    fields.done("a module")
    return Module.from_dict({"name": name, "file": file, "sha256": digest, "signatures": signatures, "structs": structs})
