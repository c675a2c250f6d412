"""The JSON Schema of a workflow file, for editors and other programs."""

from __future__ import annotations

from typing import Any

from .document import VERSION

__all__ = ["schema"]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a workflow file."""

    def ref(name: str) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{name}"}

    def record(properties: dict[str, Any], required: str = "", **more: Any) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False, **more}
        if required:
            out["required"] = required.split()
        return out

    def list_of(item: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"type": "array", "items": item, **more}

    def node(kind: str, properties: dict[str, Any], required: str = "") -> dict[str, Any]:
        common = {
            "name": ref("name"),
            "kind": {"const": kind},
            "after": list_of(ref("name"), description="Nodes that must have finished first."),
            "ignore": {"type": "object", "additionalProperties": text, "description": "Diagnostic codes and reasons."},
        }
        return record(common | properties, f"name kind {required}".strip())

    text, count, flag = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
    device = {**count, "maximum": 2**16 - 1, "description": "Number of a device; without it, that of compile."}
    access = list_of(device, description="Other devices whose kernels may reach the memory.")
    shape = list_of({"type": "integer", "minimum": 1}, maxItems=32)
    user_code = {"fn": ref("callback"), "args": list_of(ref("value")), "access": list_of(ref("access"))}
    bind = {"type": "object", "additionalProperties": ref("value")}
    semaphore = {"semaphore": ref("name"), "value": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}
    event = {"event": {"oneOf": [ref("name"), record({"name": ref("name"), "shared": flag}, "name")]}}
    nodes = {
        "kernel": node(
            "kernel",
            {
                "kernel": {"type": "string", "pattern": "^[^:]+:.+$", "description": "module:kernel"},
                "grid": ref("dim3"),
                "block": ref("dim3"),
                "args": list_of(ref("value")),
                "shared_bytes": count,
                "cooperative": flag,
                "priority": {"type": "integer"},
                "cluster": ref("dim3"),
                "device": device,
            },
            "kernel grid block",
        ),
        "memcpy": node("memcpy", {"dst": ref("view"), "src": ref("view"), "device": device}, "dst src"),
        "memset": node("memset", {"dst": ref("view"), "value": ref("value"), "device": device}, "dst value"),
        "alloc": node(
            "alloc",
            {
                "array": record(
                    {"name": ref("name"), "dtype": ref("dtype"), "shape": shape, "device": device, "access": access},
                    "name dtype shape",
                )
            },
            "array",
        ),
        "free": node("free", {"array": ref("name")}, "array"),
        "host": node("host", user_code, "fn"),
        "record": node("record", event, "event"),
        "wait": node("wait", event, "event"),
        "empty": node("empty", {}),
        "child": node("child", {"workflow": ref("name"), "bind": bind}, "workflow"),
        "signal": node("signal", semaphore, "semaphore"),
        "wait_semaphore": node("wait_semaphore", semaphore, "semaphore"),
        "memory_ops": node(
            "memory_ops",
            {
                "ops": list_of(
                    record(
                        {
                            "op": {"enum": ["write", "wait"]},
                            "view": ref("view"),
                            "value": {"type": "integer"},
                            "condition": {"enum": ["eq", "geq", "and", "nor"]},
                        },
                        "op view value",
                    ),
                    minItems=1,
                    maxItems=256,
                )
            },
            "ops",
        ),
        "captured": node("captured", {**user_code, "device": device}, "fn"),
        "conditional": node(
            "conditional",
            {
                "mode": {"enum": ["if", "while", "switch"]},
                "condition": ref("view"),
                "bodies": list_of(ref("name"), minItems=1),
                "bind": bind,
            },
            "mode condition bodies",
        ),
    }
    tags = {
        "float": {"enum": ["nan", "inf", "-inf"]},
        "complex": list_of(ref("value"), minItems=2, maxItems=2),
        "str": text,
        "bytes": ref("base64"),
        "tuple": list_of(ref("value")),
        "dict": {"type": "object", "additionalProperties": ref("value")},
    }
    values = [record({tag: form}, tag) for tag, form in tags.items()]
    values += [
        record({"numpy": ref("dtype"), "value": ref("value")}, "numpy value"),
        record({"struct": ref("dtype"), "base64": ref("base64")}, "struct base64"),
        record(
            {"ndarray": ref("dtype"), "shape": list_of(count, maxItems=32), "base64": ref("base64")},
            "ndarray shape base64",
        ),
    ]
    body = {
        "infer": {**flag, "description": "Whether edges are inferred from what nodes read and write."},
        "arrays": list_of(ref("array")),
        "parameters": list_of(ref("parameter")),
        "nodes": list_of(ref("node")),
        "order": list_of(
            list_of(ref("name"), minItems=2, maxItems=2), description="Plain edges: earlier node, later node."
        ),
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
            "name": {"type": "string", "minLength": 1, "maxLength": 200},
            "base64": {"type": "string", "contentEncoding": "base64"},
            "callback": {"type": "string", "pattern": r"^[\w.]+:[\w.]+$", "description": "package.module:function"},
            "dtype": {
                "oneOf": [
                    text,
                    record({"base": ref("dtype"), "shape": shape}, "base shape"),
                    record(
                        {
                            "names": list_of(text),
                            "formats": list_of(ref("dtype")),
                            "offsets": list_of(count),
                            "itemsize": count,
                            "align": flag,
                        },
                        "names formats offsets itemsize",
                    ),
                ]
            },
            "view": {
                "oneOf": [
                    {"type": "string", "description": "x or x[3, 8:248, 0:10:2]"},
                    record({"param": text}, "param"),
                    record({"symbol": {"type": "string", "pattern": "^[^:]+:.+$"}}, "symbol"),
                ]
            },
            "access": {"oneOf": [record({mode: ref("view")}, mode) for mode in ("read", "write", "update")]},
            "axis": {
                "oneOf": [{"type": "integer", "minimum": 1, "maximum": 2**32 - 1}, record({"param": text}, "param")]
            },
            "dim3": {"oneOf": [ref("axis"), list_of(ref("axis"), minItems=1, maxItems=3)]},
            "value": {
                "oneOf": [
                    {"type": ["null", "boolean", "number"]},
                    ref("view"),
                    ref("access"),
                    list_of(ref("value")),
                    *values,
                ]
            },
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
                        "shape": shape,
                        "device": device,
                        "access": access,
                        "pinned": flag,
                        "location": {"enum": ["host", "device"]},
                        "writeable": flag,
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
                    "shape": shape,
                    "copy": {"type": "boolean"},
                    "default": ref("value"),
                },
                "name dtype",
            ),
            "node": {"oneOf": [{"$ref": f"#/$defs/node_{kind}"} for kind in nodes]},
            **{f"node_{kind}": form for kind, form in nodes.items()},
        },
    }
