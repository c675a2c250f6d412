"""Write a workflow as the data and as the text of a workflow file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from json import encoder
from typing import Any

import numpy as np

from ..arrays import AllocArray, Array, ExternalArray, HostArray, Parameter, UnboundValues, is_extra
from ..errors import DeclarationError
from ..kernels import Module
from ..kernels.layouts import dtype_data
from ..nodes.values import MAX_VALUES, Data, Names, base64_text, memory_data

VERSION = 1
"""Version of the file format; a file of a newer version is rejected."""

LISTS = {
    "arrays": "an array is an object {...}",
    "parameters": "a parameter is an object {...}",
    "nodes": "a node is an object {...}",
    "order": "an edge is a pair [earlier node, later node]",
}
"""What each list of a workflow consists of, by its key."""


def data_of(workflow: Any, *, strict: bool = True, values: bool = True) -> tuple[dict[str, Data], dict[str, Any]]:
    """Return what `Workflow.document` returns, with its parameters and errors, and a dict of the children by their keys in it."""
    names = Names(strict=strict, values=values)
    bodies: dict[str, dict[str, Data]] = {}
    body = _with_bodies(workflow, names, bodies, set())
    out: dict[str, Data] = {"hipgraphdsl": VERSION, "name": workflow.name, "infer": body.pop("infer")}
    out["modules"] = {key: module_data(module, key, strict=strict) for key, module in names.modules.items()}
    out.update(body)
    if bodies:
        out["workflows"] = bodies
    return out, dict(names.workflows)


def _with_bodies(workflow: Any, names: Names, bodies: dict[str, dict[str, Data]], done: set[Any]) -> dict[str, Data]:
    """Return the data of one workflow, after what its nodes hold has been added to `bodies`, unless it is `done`."""
    plain = len(workflow.documents) == 1
    for module in workflow.modules if plain else ():  # in order of first use
        names.key_of_module(module)
    for node in () if plain else workflow.nodes:
        for module in node.modules:
            names.key_of_module(module)
        for _, inner, _ in () if node.derives else node.held:
            if inner not in done:
                done.add(inner)
                data = _with_bodies(inner, names, bodies, done)
                key = names.key_of_workflow(inner)
                bodies[key] = ({} if key == inner.name else {"name": inner.name}) | data
    return _body(workflow, names)


def _body(workflow: Any, names: Names) -> dict[str, Data]:
    """Return the data of one workflow alone; `names` collects modules and children."""
    return {
        "infer": workflow.infer,
        "arrays": [array_data(a, values=names.values) for a in workflow.arrays.values() if not isinstance(a, AllocArray)],
        "parameters": [parameter_data(parameter, names) for parameter in workflow.parameters.values()],
        "nodes": [node.to_data(names) for node in workflow.nodes],
        "order": [list(pair) for pair in workflow.plain_edges],
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
        out["sha256"] = sha256_of(initial)
    elif initial is not None:
        numbers = _numbers(initial)
        out |= {"base64": base64_text(initial.tobytes())} if numbers is None else {"values": numbers}
    return out


def sha256_of(values: np.ndarray[Any, Any]) -> str:
    """Return the SHA-256 of the bytes in C order, in hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view("u1").data).hexdigest()


def _numbers(values: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return the elements in C order as numbers that load to the same bytes, or None if no such numbers exist."""
    kind = values.dtype.kind
    if kind not in "biuf" or is_extra(values.dtype) or not np.isfinite(values).all():
        return None
    short = kind == "f" and values.dtype.itemsize < 8
    return [float(str(value)) for value in values.reshape(-1)] if short else values.reshape(-1).tolist()


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
    out |= parameter.limits
    return out


def module_data(module: Module, key: str, *, strict: bool = True) -> dict[str, Data]:
    """Return a module as data under a key of the file; a foreign module cannot be stored, only displayed if not `strict`."""
    if module.handle is not None and not strict:
        return {"foreign": module.handle.owner.name}
    out = module.to_dict()
    if out["name"] == key:
        del out["name"]
    if "source" in out:
        out["source"] = out["source"].split("\n")
    return out


# -- text


def written(data: Mapping[str, Data]) -> str:
    """Return a document as JSON, with one array, parameter, node or source line per line."""
    return f"{_block('{}', _members(data, ' '), '')}\n"


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_encode_ascii = json.JSONEncoder(allow_nan=False).encode
_text = encoder.encode_basestring


def _line(value: Data) -> str:
    text = _encode(value)
    # A lone surrogate, which only an argument can contain, has no UTF-8 encoding.
    return text if text.isascii() or not _SURROGATE.search(text) else _encode_ascii(value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _members(data: Mapping[str, Data], pad: str) -> Iterator[str]:
    """Yield the members of one workflow as text; continuation lines are indented by `pad`."""
    inner = f"{pad} "
    for key, value in data.items():
        if key in LISTS and value:
            text = _block("[]", map(_line, value), pad)
        elif key == "modules" and value:
            text = _block("{}", (f"{_line(name)}: {_module(module, inner)}" for name, module in value.items()), pad)
        elif key == "workflows":
            children = ((name, _block("{}", _members(child, f"{inner} "), inner)) for name, child in value.items())
            text = _block("{}", (f"{_line(name)}: {child}" for name, child in children), pad)
        else:
            text = _line(value)
        yield f"{_text(key)}: {text}"


def _module(module: Mapping[str, Data], pad: str) -> str:
    members = [f"{_text(key)}: {_line(value)}" for key, value in module.items() if key != "source"]
    if "source" in module:
        members.append(f'"source": {_block("[]", map(_line, module["source"]), pad)}')
    return f"{{{', '.join(members)}}}"


def _block(brackets: str, lines: Iterable[str], pad: str) -> str:
    """Return `lines` in brackets, comma-separated, each on its own line."""
    return f"{brackets[0]}\n{pad} " + f",\n{pad} ".join(lines) + f"\n{pad}{brackets[1]}"
