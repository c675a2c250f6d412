"""Nodes of a file in JSON Schema, and what their fields refer to."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import TypeAdapter

from ..arrays import CODES, NAMES
from .fields import Stored
from .values import COUNT, FLAG, SHAPE, list_of, map_of, record, ref

DEFINITIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "minLength": 1, "maxLength": 200},
    "base64": {"type": "string", "contentEncoding": "base64"},
    "callback": {"type": "string", "pattern": r"^[\w.]+:[\w.]+$", "description": "package.module:function"},
    "dtype": {
        "oneOf": [
            {"enum": list(NAMES), "description": "A type of numbers, NumPy's or one of the package ml_dtypes."},
            {"type": "string", "pattern": f"^(?:{CODES})$", "description": "A code of NumPy's, such as <f4; raw bytes."},
            record({"base": ref("dtype"), "shape": SHAPE}, "base shape"),
            record(
                {
                    "names": list_of({"type": "string"}),
                    "formats": list_of(ref("dtype")),
                    "offsets": list_of(COUNT),
                    "itemsize": COUNT,
                    "align": FLAG,
                },
                "names formats offsets itemsize",
            ),
        ]
    },
    "view": {
        "oneOf": [
            {"type": "string", "description": "x or x[3, 8:248, 0:10:2]"},
            record({"param": {"type": "string"}}, "param"),
            record({"symbol": {"type": "string", "pattern": "^[^:]+:.+$"}}, "symbol"),
        ]
    },
    "access": {"oneOf": [record({mode: ref("view")}, mode) for mode in ("read", "write", "update")]},
    "axis": {"oneOf": [{"type": "integer", "minimum": 1, "maximum": 2**32 - 1}, record({"param": {"type": "string"}}, "param")]},
    "dim3": {"oneOf": [ref("axis"), list_of(ref("axis"), minItems=1, maxItems=3)]},
    "value": {
        "oneOf": [
            {"type": ["null", "boolean", "number"]},
            ref("view"),
            ref("access"),
            list_of(ref("value")),
            record({"float": {"enum": ["nan", "inf", "-inf"]}}, "float"),
            record({"complex": list_of(ref("value"), minItems=2, maxItems=2)}, "complex"),
            record({"str": {"type": "string"}}, "str"),
            record({"bytes": ref("base64")}, "bytes"),
            record({"tuple": list_of(ref("value"))}, "tuple"),
            record({"dict": map_of(ref("value"))}, "dict"),
            record({"numpy": ref("dtype"), "value": ref("value")}, "numpy value"),
            record({"struct": ref("dtype"), "base64": ref("base64")}, "struct base64"),
            record(
                {"ndarray": ref("dtype"), "shape": list_of(COUNT, maxItems=32), "base64": ref("base64")}, "ndarray shape base64"
            ),
        ]
    },
}
"""JSON Schema definitions that fields refer to, by name."""


def used_by(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema refers to, and those that they refer to in turn."""
    used: set[str] = set()
    pending = [schema]
    while pending:
        for name in set(re.findall(r"#/\$defs/(\w+)", json.dumps(pending.pop()))) - used:
            used.add(name)
            pending.append(DEFINITIONS[name])
    return {name: DEFINITIONS[name] for name in DEFINITIONS if name in used}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a node of a kind, given by its class, in a file; its references resolve to `DEFINITIONS`."""
    properties = {"name": ref("name"), "kind": {"const": kind.kind}}
    for field in kind.fields:
        info = kind.model_fields[field.name]
        stored = next((item for item in info.metadata if isinstance(item, Stored)), None)
        if stored is None:
            described = TypeAdapter(Annotated.__class_getitem__((info.annotation, *info.metadata, None)))  # type: ignore[attr-defined]
        schema = described.json_schema() if stored is None else stored.schema
        nullable = stored is not None and field.default is None
        properties[field.name] = {"anyOf": [schema, {"type": "null"}]} if nullable else schema
    return record(properties, " ".join(["name", "kind", *(field.name for field in kind.fields if field.default is ...)]))
