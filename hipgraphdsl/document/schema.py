"""JSON Schema of workflow files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import core_schema

from ..nodes.base import Node
from ..nodes.schema import DEFINITIONS, schema_of
from ..nodes.values import COUNT, FLAG, MEMORY, SHAPE, list_of, map_of, record, ref
from .writer import VERSION

_TEXT = {"type": "string"}

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
        {
            "name": ref("name"),
            "dtype": ref("dtype"),
            "shape": SHAPE,
            "copy": FLAG,
            "default": ref("value"),
            "min": {"type": "integer"},
            "max": {"type": "integer"},
        },
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
            **{f"node_{kind}": schema_of(model) for kind, model in kinds.items()},
        },
    }


def as_core_schema(schema: Mapping[str, Any]) -> core_schema.CoreSchema:
    """Return a Pydantic schema of any value, which a JSON Schema with definitions describes.

    The definitions are Pydantic's then, so that they stand among those of a model with such a field, in OpenAPI too.
    """

    def described(part: Any, handler: GetJsonSchemaHandler) -> Any:
        if isinstance(part, list):
            return [described(each, handler) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            reference = core_schema.definition_reference_schema(part["$ref"].replace("#/$defs/", _DEFINITION))
            return {**part, **handler(reference)}
        return {key: described(each, handler) for key, each in part.items()}

    def any_described_by(part: Any, **more: Any) -> core_schema.CoreSchema:
        return core_schema.any_schema(metadata={"pydantic_js_functions": [lambda _, handler: described(part, handler)]}, **more)

    top = {key: part for key, part in schema.items() if key not in ("$defs", "$schema")}
    definitions = [any_described_by(part, ref=_DEFINITION + name) for name, part in schema["$defs"].items()]
    return core_schema.definitions_schema(any_described_by(top), definitions)


_DEFINITION = "hipgraphdsl.workflow_"  # Pydantic names a definition by the part after the last dot
