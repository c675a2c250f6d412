"""A workflow as versioned JSON.

One array, parameter or node a line, in order of declaration, so that a changed number is a one-line diff.

::

    {
     "hipgraphdsl": 1,                                            the version comes first
     "name": "demo",
     "infer": true,
     "modules": {
      "kernels_1f2e3d4c": {"source": [                            a line of source a line
       "__global__ void scale(float* x, float a) {",
       ...
     "arrays": [
      {"name": "x", "kind": "device", "dtype": "float32", "shape": [1024]},
     "parameters": [
      {"name": "a", "dtype": "float32", "default": 2.0}
     "nodes": [
      {"name": "scale", "kind": "kernel", "kernel": "kernels_1f2e3d4c:scale", "grid": 4, "block": 64, ...},
     "order": [["copy_in", "scale"]],                             what `order` added
     "workflows": {"child": {...}}                                children, each once, inner ones first

References are text: ``"x[3, 8:248, 0:10:2]"`` is a view, ``{"param": "a"}`` a parameter (or a view of one),
``{"symbol": "module:table[0:4]"}`` a variable of a module, ``{"read": view}``, ``{"write": view}`` and ``{"update":
view}`` say how an argument is used. Values that JSON lacks are tagged: ``{"float": "nan"}``, ``{"complex": [re,
im]}``, ``{"bytes": base64}``, ``{"str": text}``, ``{"tuple": [...]}``, ``{"dict": {...}}``, ``{"numpy": dtype,
"value": v}``, ``{"struct": dtype, "base64": b}``, ``{"ndarray": dtype, "shape": [...], "base64": b}``.

Inferred edges are not stored: loading replays the declarations through `Graph`, which infers them again. References of
kernels (NumPy functions for `verify`), handles of semaphores and the places of declaration are not stored. Loading
runs, compiles and imports nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json import encoder
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from ..nodes.values import Data
from ..workflow import Workflow
from .declare import Builder
from .document import VERSION, document
from .json_text import Reader, guard

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["VERSION", "dumps", "from_document", "loads", "render"]


def render(workflow: Workflow) -> str:
    """Return the workflow as JSON; the form that `export` asks for."""
    return dumps(workflow)


def dumps(workflow: Workflow) -> str:
    """Return a workflow as JSON.

    Raises
    ------
    DeclarationError
        If it holds what cannot be stored: a lambda, a closure or a bound method (the node is named), or an argument of
        a type without a form in JSON.
    """
    data = document(workflow)
    out = ["{", f' "hipgraphdsl": {data.pop("hipgraphdsl")},']
    _write(data, 1, out)
    out.append("}\n")
    return "\n".join(out)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_encode_ascii = json.JSONEncoder(allow_nan=False).encode
_text = encoder.encode_basestring


def _line(value: Data) -> str:
    text = _encode(value)
    # A lone surrogate, which only an argument can hold, has no UTF-8.
    return text if text.isascii() or not _SURROGATE.search(text) else _encode_ascii(value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _write(data: Mapping[str, Data], depth: int, out: list[str]) -> None:
    """Append the members of one workflow, a line for each array, parameter, node and line of source."""
    pad = " " * depth
    members = list(data.items())
    for at, (key, value) in enumerate(members):
        comma = "," if at + 1 < len(members) else ""
        if key in ("arrays", "parameters", "nodes", "order") and value:
            out.append(f"{pad}{_text(key)}: [")
            lines = [f"{pad} {_line(item)}," for item in value]
            lines[-1] = lines[-1][:-1]
            out += lines
            out.append(f"{pad}]{comma}")
        elif key == "modules" and value:
            out.append(f"{pad}{_text(key)}: {{")
            _write_modules(value, depth + 1, out)
            out.append(f"{pad}}}{comma}")
        elif key == "workflows":
            out.append(f"{pad}{_text(key)}: {{")
            children = list(value.items())
            for n, (name, child) in enumerate(children):
                out.append(f"{pad} {_line(name)}: {{")
                _write(child, depth + 2, out)
                out.append(f"{pad} }}{',' if n + 1 < len(children) else ''}")
            out.append(f"{pad}}}{comma}")
        else:
            out.append(f"{pad}{_text(key)}: {_line(value)}{comma}")


def _write_modules(modules: Mapping[str, Data], depth: int, out: list[str]) -> None:
    pad = " " * depth
    for at, (name, module) in enumerate(modules.items()):
        comma = "," if at + 1 < len(modules) else ""
        head = [f"{_text(key)}: {_line(value)}" for key, value in module.items() if key != "source"]
        if "source" in module:
            out.append(f'{pad}{_line(name)}: {{{"".join(part + ", " for part in head)}"source": [')
            lines = [f"{pad} {_line(line)}," for line in module["source"]]
            lines[-1] = lines[-1][:-1]
            out += lines
            out.append(f"{pad}]}}{comma}")
        else:
            out.append(f"{pad}{_line(name)}: {{{', '.join(head)}}}{comma}")


def loads(
    text: str,
    graph_type: type[Graph],
    arrays: Mapping[str, Any] | None = None,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
) -> Graph:
    """Return the graph that a file describes; nothing is run, compiled or imported.

    Parameters
    ----------
    text : str
        What `dumps` returned.
    graph_type : type
        `Graph`.
    arrays : mapping
        By array name (of a child ``<workflow>/<array>``): values for arrays, which may differ from those that the file
        was written with (where the file holds a hash, a warning is logged), and objects for external arrays.
    callbacks : mapping
        Callables by import path, by function name or by node name. Without one a node holds an `UnboundCallback`, which
        compile refuses by name.

    Raises
    ------
    DeclarationError
        If the text is no workflow, of a newer version, truncated or beyond the limits; line and field are named.
    """
    if not isinstance(text, str):
        raise DeclarationError(f"a workflow file is text (got {type(text).__name__})")
    text = text.removeprefix("\ufeff")
    guard(text)
    if not text.strip():
        raise DeclarationError("the workflow file is empty")
    return Builder(Reader(text).document(), graph_type, arrays, callbacks).graph()


def from_document(
    data: Data,
    graph_type: type[Graph],
    arrays: Mapping[str, Any] | None = None,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
) -> Graph:
    """Return the graph that plain data describes, as `document` gives it; parameters and errors as for `loads`."""
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DeclarationError(f"this is no workflow: {error}") from None
    guard(text)
    return Builder(Reader(text, numbered=False).document(), graph_type, arrays, callbacks).graph()
