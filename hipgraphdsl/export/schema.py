"""The JSON Schema of a workflow file, for editors and other programs."""

from __future__ import annotations

from typing import Any

from ..nodes import KINDS
from ..nodes.values import DEFINITIONS, FLAG, MEMORY, SHAPE, list_of, record, ref
from .document import VERSION

__all__ = ["schema"]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a workflow file."""
    text = {"type": "string"}
    body = {
        "infer": {**FLAG, "description": "Whether edges are inferred from what nodes read and write."},
        "arrays": list_of(ref("array")),
        "parameters": list_of(ref("parameter")),
        "nodes": list_of(ref("node")),
        "order": list_of(list_of(ref("name"), minItems=2, maxItems=2), description="Plain edges: earlier node, later node."),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hipgraphdsl workflow",
        **record(
            {
                "hipgraphdsl": {"const": VERSION, "description": "Version of the format."},
                "name": ref("name"),
                "modules": {"type": "object", "additionalProperties": ref("module")},
                **body,
                "workflows": {
                    "type": "object",
                    "additionalProperties": record({"name": ref("name"), **body}),
                    "description": "Child graphs, each once; inner ones first.",
                },
            },
            "hipgraphdsl name",
        ),
        "$defs": {
            **DEFINITIONS,
            "module": {
                "oneOf": [
                    record(
                        {
                            "name": text,
                            "source": list_of(text, description="HIP C++, a line each."),
                            "options": list_of(text),
                            "headers": {
                                "type": "object",
                                "additionalProperties": text,
                                "description": "Headers of the project's own that the source includes: path to text.",
                            },
                            "structs": {"type": "object", "additionalProperties": ref("dtype")},
                        },
                        "source",
                    ),
                    record(
                        {
                            "name": text,
                            "file": text,
                            "sha256": ref("sha256"),
                            "signatures": {"type": "object", "additionalProperties": text},
                            "structs": {"type": "object", "additionalProperties": ref("dtype")},
                        },
                        "file sha256",
                    ),
                ]
            },
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "array": {
                **record(
                    {
                        "name": ref("name"),
                        "kind": {"enum": ["host", "device", "external"]},
                        "dtype": ref("dtype"),
                        "shape": SHAPE,
                        **MEMORY,
                        "pinned": FLAG,
                        "location": {"enum": ["host", "device"]},
                        "writeable": FLAG,
                        "values": list_of({"type": ["number", "boolean"]}, description="All elements, C order."),
                        "base64": {**ref("base64"), "description": "All elements, C order, little-endian."},
                        "sha256": {
                            **ref("sha256"),
                            "description": "Hash of values that are supplied when it is loaded.",
                        },
                    },
                    "name kind dtype shape",
                )
            },
            "parameter": record(
                {
                    "name": ref("name"),
                    "dtype": ref("dtype"),
                    "shape": SHAPE,
                    "copy": {"type": "boolean"},
                    "default": ref("value"),
                },
                "name dtype",
            ),
            "node": {"oneOf": [ref(f"node_{kind}") for kind in KINDS]},
            **{f"node_{kind}": model.data_schema() for kind, model in KINDS.items()},
        },
    }
