"""A workflow as versioned JSON: one array, parameter or node a line, in order of declaration, so that a changed number is a
one-line diff.

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
      {"name": "scale", "kind": "kernel", "kernel": "kernels_1f2e3d4c:scale", "grid": 4, "block": 256, "args": ["x", {"param": "a"}]},
     "order": [["copy_in", "scale"]],                             what `order` added
     "workflows": {"child": {...}}                                children, each once, inner ones first

References are text: ``"x[3, 8:248, 0:10:2]"`` is a view, ``{"param": "a"}`` a parameter (or a view of one),
``{"symbol": "module:table[0:4]"}`` a variable of a module, ``{"read": view}``, ``{"write": view}`` and ``{"update": view}`` say how
an argument is used. Values that JSON lacks are tagged: ``{"float": "nan"}``, ``{"complex": [re, im]}``, ``{"bytes": base64}``,
``{"str": text}``, ``{"tuple": [...]}``, ``{"dict": {...}}``, ``{"numpy": dtype, "value": v}``, ``{"struct": dtype, "base64": b}``,
``{"ndarray": dtype, "shape": [...], "base64": b}``.

Inferred edges are not stored: loading replays the declarations through `Graph`, which infers them again. References of kernels
(NumPy functions for `verify`), handles of semaphores and the places of declaration are not stored.
Loading runs, compiles and imports nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from json import encoder
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..arrays import (
    Access,
    AllocArray,
    Array,
    ArrayView,
    DeviceArray,
    ExternalArray,
    HostArray,
    Parameter,
    UnboundValues,
    Viewable,
    as_dtype,
    as_shape,
)
from ..errors import DeclarationError
from ..kernels import Kernel, Module, Symbol
from ..nodes import (
    KINDS,
    AllocNode,
    CapturedNode,
    ChildGraphNode,
    ConditionalNode,
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    Node,
    Semaphore,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    UnboundCallback,
    callable_name,
    wait_value,
    write_value,
)
from ..nodes.base import as_accesses, check_name
from ..workflow import Workflow

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["VERSION", "callback_path", "document", "documents", "dumps", "from_document", "loads", "ordered_edges", "render"]

VERSION = 1
"""Version of the format; a file of a newer one is refused."""

MAX_VALUES = 4096
"""Arrays of at most this many elements are stored with their values."""

MAX_BYTES = 64 * 2**20
MAX_NODES = 1_000_000
MAX_CHILD_DEPTH = 16
MAX_NESTING = 64
_MAX_DIGITS = 40
_MAX_BRACKETS = 8_000_000  # each becomes a Python object of some 60 bytes or more before it is judged

_log = logging.getLogger("hipgraphdsl")

Data = Any
"""What JSON holds: None, bool, int, float, str, list and dict with str keys."""


# -- writing -----------------------------------------------------------------------------------------------------------


def render(workflow: Workflow) -> str:
    """Return the workflow as JSON; the form that `export` asks for."""
    return dumps(workflow)


def dumps(workflow: Workflow) -> str:
    """Return a workflow as JSON.

    Raises
    ------
    DeclarationError
        If it holds what cannot be stored: a lambda, a closure or a bound method (the node is named), or an argument of a
        type without a form in JSON.
    """
    data = document(workflow)
    out = ["{", f' "hipgraphdsl": {data.pop("hipgraphdsl")},']
    _write(data, 1, out)
    out.append("}\n")
    return "\n".join(out)


def document(workflow: Workflow, *, strict: bool = True) -> dict[str, Data]:
    """Return a workflow as plain data, in the order in which `dumps` writes it.

    Parameters
    ----------
    strict : bool
        False puts ``{"python": text}`` where something has no form in a file; such data is for people and does not load.

    Raises
    ------
    DeclarationError
        As `dumps`.
    """
    return _Writer(workflow, strict).document()


def documents(workflow: Workflow) -> tuple[dict[str, Data], dict[str, Workflow]]:
    """Return `document`, not strict, and the child workflows by their key in it."""
    writer = _Writer(workflow, strict=False)
    data = writer.document()
    return data, {key: child for key, child, _ in writer.children.values()}


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
            out.append(f"{pad}{_line(name)}: {{{''.join(part + ', ' for part in head)}\"source\": [")
            lines = [f"{pad} {_line(line)}," for line in module["source"]]
            lines[-1] = lines[-1][:-1]
            out += lines
            out.append(f"{pad}]}}{comma}")
        else:
            out.append(f"{pad}{_line(name)}: {{{', '.join(head)}}}{comma}")


class _Writer:
    """Turns one workflow, with its children and modules, into plain data."""

    def __init__(self, workflow: Workflow, strict: bool) -> None:
        self.root = workflow
        self.strict = strict
        self.modules: dict[Module, str] = {}
        self.children: dict[int, tuple[str, Workflow, dict[str, Data]]] = {}

    def document(self) -> dict[str, Data]:
        for module in self.root.modules:
            self._module_key(module)
        body = self._workflow(self.root)
        out: dict[str, Data] = {"hipgraphdsl": VERSION, "name": self.root.name}
        out["infer"] = body["infer"]
        out["modules"] = {key: _module_data(module, key) for module, key in self.modules.items()}
        out.update((key, value) for key, value in body.items() if key != "infer")
        if self.children:
            out["workflows"] = {key: child for key, _, child in self.children.values()}
        return out

    def _workflow(self, workflow: Workflow, depth: int = 0) -> dict[str, Data]:
        if depth > MAX_CHILD_DEPTH:
            raise DeclarationError(f"graph {self.root.name!r} has child graphs nested deeper than {MAX_CHILD_DEPTH}")
        out: dict[str, Data] = {"infer": workflow.infer}
        out["arrays"] = [_array_data(array) for array in workflow.arrays.values() if not isinstance(array, AllocArray)]
        out["parameters"] = [self._parameter(parameter) for parameter in workflow.parameters.values()]
        nodes = []
        for node in workflow.nodes:
            try:
                nodes.append(self._node(node, depth))
            except _Unstorable as fault:
                raise DeclarationError(f"node {node.name!r} cannot be stored in a file: {fault}", node=node.name) from None
        out["nodes"] = nodes
        out["order"] = [list(pair) for pair in ordered_edges(workflow)]
        return out

    def _module_key(self, module: Module) -> str:
        key = self.modules.get(module)
        if key is None:
            key = self.modules[module] = _unique(module.name.replace(":", "_"), self.modules.values())
        return key

    def _child(self, workflow: Workflow, depth: int) -> str:
        known = self.children.get(id(workflow))
        if known is None:
            body = self._workflow(workflow, depth + 1)  # its own children come first
            key = _unique(workflow.name, [entry[0] for entry in self.children.values()])
            head: dict[str, Data] = {} if key == workflow.name else {"name": workflow.name}
            known = self.children[id(workflow)] = (key, workflow, head | body)
        return known[0]

    def _parameter(self, parameter: Parameter) -> dict[str, Data]:
        out: dict[str, Data] = {"name": parameter.name, "dtype": dtype_data(parameter.dtype)}
        if parameter.shape:
            out["shape"] = list(parameter.shape)
        if parameter.default is not None:
            try:
                out["default"] = self._value(parameter.default)
            except _Unstorable as fault:
                raise DeclarationError(
                    f"the default of parameter {parameter.name!r} cannot be stored in a file: {fault}", array=parameter.name
                ) from None
        return out

    def _node(self, node: Node, depth: int) -> dict[str, Data]:
        out: dict[str, Data] = {"name": node.name, "kind": node.kind}
        match node:
            case KernelNode():
                out["kernel"] = f"{self._module_key(node.kernel.module)}:{node.kernel.name}"
                out["grid"], out["block"] = self._dim3(node.grid), self._dim3(node.block)
                if node.args:
                    # Without a signature the arguments' own types are the signature, so they are kept as they are.
                    known = node.kernel.signature
                    if known is None:
                        out["args"] = [self._value(arg) for arg in node.args]
                    else:
                        out["args"] = [
                            self._value(_shortest(arg, parameter.dtype) if type(arg) is float else arg)
                            for arg, parameter in zip(node.args, known.parameters)
                        ]
                if node.shared_bytes:
                    out["shared_bytes"] = node.shared_bytes
                if node.cooperative:
                    out["cooperative"] = True
                if node.priority is not None:
                    out["priority"] = node.priority
            case MemcpyNode():
                out["dst"], out["src"] = self._view(node.dst), self._view(node.src)
            case MemsetNode():
                out["dst"], out["value"] = self._view(node.dst), self._value(node.value)
            case AllocNode():
                out["array"] = {"name": node.array.name, **_memory_data(node.array)}
            case FreeNode():
                out["array"] = node.array.name
            case HostNode() | CapturedNode():
                out["fn"] = self._callback(node.fn)
                if node.args:
                    out["args"] = [self._value(arg) for arg in node.args]
                if node.access != as_accesses(None, None, node.args, node.name):
                    out["access"] = [self._access(access) for access in node.access]
            case EventRecordNode() | EventWaitNode():
                event = node.event
                out["event"] = {"name": event.name, "shared": True} if event.shared else event.name
            case EmptyNode():
                pass
            case ChildGraphNode():
                out["workflow"] = self._child(node.workflow, depth)
                if node.bind:
                    out["bind"] = {inner: self._value(value) for inner, value in node.bind.items()}
            case SemaphoreSignalNode() | SemaphoreWaitNode():
                out["semaphore"], out["value"] = node.semaphore.name, int(node.value)
            case MemoryOpsNode():
                out["ops"] = [
                    {"op": op.op, "view": self._view(op.view), "value": op.value}
                    | ({"condition": op.condition} if op.op == "wait" else {})
                    for op in node.ops
                ]
            case ConditionalNode():
                out["mode"], out["condition"] = node.mode, self._view(node.condition)
                out["bodies"] = [self._child(body, depth) for body in node.bodies]
                if node.bind:
                    out["bind"] = {inner: self._value(value) for inner, value in node.bind.items()}
            case _:
                raise _Unstorable(f"kind {node.kind!r} has no form in a file")
        if node.after:
            out["after"] = list(node.after)
        if node.ignore:
            out["ignore"] = dict(node.ignore)
        return out

    def _dim3(self, dim: tuple[Any, ...]) -> Data:
        axes = [{"param": axis.name} if isinstance(axis, Parameter) else axis for axis in dim]
        while len(axes) > 1 and axes[-1] == 1:
            axes.pop()
        return axes[0] if len(axes) == 1 else axes

    def _view(self, view: ArrayView) -> Data:
        root = view.root
        if isinstance(root, Symbol):
            return {"symbol": f"{self._module_key(root.module)}:{view.name}"}
        if isinstance(root, Parameter):
            return {"param": view.name}
        return view.name

    def _access(self, access: Access) -> Data:
        return {access.mode: self._view(access.view)}

    def _callback(self, fn: Any) -> Data:
        try:
            return _callback_path(fn)
        except _Unstorable:
            if self.strict:
                raise
            return {"python": callable_name(fn)}

    def _value(self, value: Any) -> Data:
        kind = type(value)
        if kind is ArrayView:
            return self._view(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if abs(value) >= 10**_MAX_DIGITS:
                raise _Unstorable(f"an int of more than {_MAX_DIGITS} digits is too long")
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is Parameter:
            return {"param": value.name}
        if kind is Access:
            return self._access(value)
        try:
            return self._rare_value(value)
        except _Unstorable:
            if self.strict:
                raise
            return {"python": _shown(value)}

    def _rare_value(self, value: Any) -> Data:
        kind = type(value)
        if kind is complex:
            return {"complex": [self._value(value.real), self._value(value.imag)]}
        if kind is str:
            return {"str": value}
        if kind is bytes:
            return {"bytes": _base64(value)}
        if kind is tuple:
            return {"tuple": [self._value(item) for item in value]}
        if kind is list:
            return [self._value(item) for item in value]
        if kind is dict:
            if not all(type(key) is str for key in value):
                raise _Unstorable(f"a dict whose keys are not all strings ({_shown(value)})")
            return {"dict": {key: self._value(item) for key, item in value.items()}}
        if isinstance(value, np.void):
            return {"struct": dtype_data(value.dtype), "base64": _base64(value.tobytes())}
        if isinstance(value, np.generic) and value.dtype.kind in "biufcV":
            return {"numpy": dtype_data(value.dtype), "value": self._value(_plain(value))}
        if kind is np.ndarray:
            if value.size > MAX_VALUES:
                raise _Unstorable(
                    f"an argument of {value.size} elements; at most {MAX_VALUES} are stored, declare it as host_array instead"
                )
            if value.dtype.hasobject or value.dtype.kind not in "biufcV":
                raise _Unstorable(f"an array of dtype {value.dtype}")
            return {"ndarray": dtype_data(value.dtype), "shape": list(value.shape), "base64": _base64(value.tobytes())}
        if isinstance(value, Viewable):
            return self._view(value.as_view())
        raise _Unstorable(f"{_shown(value)} of type {kind.__module__}.{kind.__qualname__} has no form in JSON")


class _Unstorable(Exception):
    """What a node holds has no form in a file; caught where the node's name is known."""


def _plain(value: np.generic) -> Any:
    """Return a NumPy scalar as the Python number that is exactly it."""
    return value.item() if value.dtype.kind in "biufc" else float(value)  # type: ignore[arg-type]  # bfloat16 is a V that converts


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unique(name: str, taken: Any) -> str:
    taken = set(taken)
    found, n = name, 1
    while found in taken:
        n += 1
        found = f"{name}_{n}"
    return found


def ordered_edges(workflow: Workflow) -> list[tuple[str, str]]:
    """Return the plain edges: those of `order`, and those that were put into the DAG by hand."""
    found = dict.fromkeys(workflow.ordered)
    for node, sources, reasons in zip(workflow.nodes, workflow.predecessors, workflow.reasons):
        for source, reason in zip(sources, reasons):
            if not reason.startswith(("RAW ", "WAR ", "WAW ", "event ")):
                name = workflow.nodes[source].name
                if name not in node.after:
                    found[(name, node.name)] = None
    return list(found)


def _shortest(value: float, dtype: Any) -> float:
    """Return the shortest float that a 2- or 4-byte type rounds to `value`."""
    if dtype.kind == "f" and dtype.itemsize < 8 and math.isfinite(value):
        return float(str(dtype.type(value)))
    return value


def callback_path(fn: Any) -> str:
    """Return the import path of a function, ``"package.module:function"``.

    Raises
    ------
    DeclarationError
        If it has none: a lambda, a closure, a bound method, an object that is called, or a function of an interactive session.
    """
    try:
        return _callback_path(fn)
    except _Unstorable as fault:
        raise DeclarationError(f"a file holds callbacks by import path, and this one has none: {fault}") from None


def _callback_path(fn: Any) -> str:
    if isinstance(fn, UnboundCallback):
        return fn.path
    advice = "; use a function at the top level of a module"
    name = getattr(fn, "__qualname__", None)
    owner = getattr(fn, "__self__", None)
    if not isinstance(name, str):
        raise _Unstorable(f"its callback is an object of type {type(fn).__name__}{advice}")
    if "<lambda>" in name:
        raise _Unstorable(f"its callback is a lambda{advice}")
    if "<locals>" in name:
        raise _Unstorable(f"its callback {fn.__name__!r} is a function inside a function{advice}")
    if owner is not None and not isinstance(owner, ModuleType):
        raise _Unstorable(f"its callback {name!r} is a bound method{advice}")
    module = getattr(fn, "__module__", None) or ""
    home: Any = sys.modules.get(module)
    if module == "__main__":
        module = _main_name(home)
        if not module:
            raise _Unstorable(f"its callback {name!r} stands in no file{advice}")
    found = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not fn:
        raise _Unstorable(f"its callback is not what {module}:{name} names{advice}")
    return f"{module}:{name}"


def _main_name(main: Any) -> str:
    """Return the name under which the program's own file could be imported."""
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None) or ""
    stem = re.split(r"[/\\]", file)[-1].removesuffix(".py")
    return stem if re.fullmatch(r"\w+", stem) else ""


# -- arrays, dtypes, modules -------------------------------------------------------------------------------------------


def dtype_data(dtype: np.dtype[Any]) -> Data:
    """Return a dtype as JSON: its name, or for a struct its fields."""
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


def _memory_data(array: Array) -> dict[str, Data]:
    out: dict[str, Data] = {"dtype": dtype_data(array.dtype), "shape": list(array.shape)}
    if array.device:
        out["device"] = array.device
    return out


def _array_data(array: Array) -> dict[str, Data]:
    out: dict[str, Data] = {"name": array.name, "kind": array.kind, **_memory_data(array)}
    if isinstance(array, HostArray) and not array.pinned:
        out["pinned"] = False
    if isinstance(array, ExternalArray):
        out["location"] = array.location
        if not array.writeable:
            out["writeable"] = False
    if isinstance(array, (HostArray, DeviceArray)) and array.initial is not None:
        initial = array.initial
        if isinstance(initial, UnboundValues):
            out["sha256"] = initial.sha256
        elif initial.size > MAX_VALUES:
            out["sha256"] = _sha256(initial)
        else:
            values = _numbers(initial)
            if values is None:
                out["base64"] = _base64(initial.tobytes())
            else:
                out["values"] = values
    return out


def _sha256(values: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view("u1").data).hexdigest()


def _numbers(values: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return the elements, C order, as numbers that load to the same bytes, or None where there are none."""
    kind = values.dtype.kind
    if kind in "biu":
        return values.reshape(-1).tolist()
    if kind == "f" and bool(np.isfinite(values).all()):
        if values.dtype.itemsize == 8:
            return values.reshape(-1).tolist()
        return [float(str(value)) for value in values.reshape(-1)]
    return None


def _module_data(module: Module, key: str) -> dict[str, Data]:
    out = module.to_dict()
    if out["name"] == key:
        del out["name"]
    if "source" in out:
        out["source"] = out["source"].split("\n")
    if "structs" in out:
        out["structs"] = {name: dtype_data(dtype) for name, dtype in module.structs.items()}
    return out


# -- reading text ------------------------------------------------------------------------------------------------------


class _Fault(Exception):
    """Something in the data is wrong; caught where line and element are known."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class _Item:
    """One element of a document with its place."""

    __slots__ = ("line", "place", "value")

    def __init__(self, value: Data, place: str, line: int = 0) -> None:
        self.value = value
        self.place = place
        self.line = line

    def refuse(self, message: str, *, node: str | None = None, array: str | None = None) -> NoReturn:
        where = f"line {self.line}, {self.place}" if self.line else self.place
        raise DeclarationError(f"workflow file, {where}: {message}", node=node, array=array)


class _Section:
    """One workflow of a document: elements by section."""

    def __init__(self, place: str, line: int = 0) -> None:
        self.item = _Item(None, place, line)
        self.scalars: dict[str, _Item] = {}
        self.lists: dict[str, list[_Item]] = {}
        self.maps: dict[str, dict[str, _Item]] = {}
        self.children: dict[str, _Section] = {}


_LISTS = ("arrays", "parameters", "nodes", "order")
_SPACE = re.compile(r"[ \t\r\n]*")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Fault(f"key {key[:60]!r} stands twice")
            seen.add(key)
    return found


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS + 1:
        raise _Fault(f"an integer of {len(text)} digits is too long")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Fault(f"{text[:40]} is too large for a float")
    return value


def _parse_constant(text: str) -> NoReturn:
    raise _Fault(f'{text} is no JSON; write {{"float": "{text.replace("Infinity", "inf").lower()}"}}')


_decoder = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_constant
)


class _Reader:
    """Reads a document element by element, so that each keeps its line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._line = 1
        self._counted = 0
        self.nodes = 0

    @property
    def line(self) -> int:
        """Line of the next element; the position only moves forward."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def refuse(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        if at >= len(self.text.rstrip()):
            message = f"the text ends too early ({message}); is the file truncated?"
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        raise DeclarationError(f"workflow file, line {line}, column {column}: {message}")

    def peek(self) -> str:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def expect(self, character: str, what: str) -> None:
        if self.peek() != character:
            self.refuse(f"{what} begins with {character!r} (got {self.text[self.at : self.at + 20]!r})")
        self.at += 1

    def value(self) -> Data:
        self.peek()
        try:
            value, self.at = _decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.refuse(error.msg.lower(), error.pos)
        except _Fault as fault:
            self.refuse(str(fault))
        except (RecursionError, ValueError) as error:
            self.refuse(str(error))
        return value

    def members(self, what: str) -> Iterator[str]:
        """Yield the keys of an object; the caller reads the value of each."""
        self.expect("{", what)
        seen: set[str] = set()
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            if self.peek() != '"':
                self.refuse(f"{what} holds names in quotes (got {self.text[self.at : self.at + 20]!r})")
            key = self.value()
            if key in seen:
                self.refuse(f"key {key[:60]!r} stands twice in {what}")
            seen.add(key)
            if self.peek() != ":":
                self.refuse(f"':' is expected after {key[:60]!r}")
            self.at += 1
            yield key
            end = self.peek()
            if end not in (",", "}"):
                self.refuse(f"',' or '}}' is expected in {what} (got {self.text[self.at : self.at + 20]!r})")
            self.at += 1
            if end == "}":
                return

    def elements(self, what: str) -> Iterator[int]:
        """Yield the indices of an array; the caller reads each element."""
        self.expect("[", what)
        if self.peek() == "]":
            self.at += 1
            return
        index = 0
        while True:
            yield index
            index += 1
            end = self.peek()
            if end not in (",", "]"):
                self.refuse(f"',' or ']' is expected in {what} (got {self.text[self.at : self.at + 20]!r})")
            self.at += 1
            if end == "]":
                return

    def document(self) -> _Section:
        section = self.section("the file", "", "document")
        if self.peek():
            self.refuse(f"something follows the end of the workflow ({self.text[self.at : self.at + 20]!r})")
        return section

    def section(self, place: str, prefix: str, what: str) -> _Section:
        self.peek()
        section = _Section(place, self.line)
        for key in self.members(what):
            self.peek()
            if key in _LISTS:
                found = section.lists[key] = []
                for index in self.elements(f"{prefix}{key}"):
                    self.peek()
                    line = self.line
                    found.append(_Item(self.value(), f"{prefix}{key}[{index}]", line))
                    if key == "nodes":
                        self.nodes += 1
                        if self.nodes > MAX_NODES:
                            self.refuse(f"a file holds at most {MAX_NODES} nodes")
            elif key == "modules":
                modules = section.maps[key] = {}
                for name in self.members(f"{prefix}modules"):
                    self.peek()
                    line = self.line
                    modules[name] = _Item(self.value(), f"{prefix}modules[{name[:60]!r}]", line)
            elif key == "workflows" and not prefix:
                for name in self.members("workflows"):
                    where = f"workflows[{name[:60]!r}]"
                    section.children[name] = self.section(where, f"{where}.", where)
            else:
                line = self.line
                section.scalars[key] = _Item(self.value(), f"{prefix}{key[:60]}", line)
        return section


def _guard(text: str) -> None:
    """Refuse what is too large or nested too deeply, before anything is parsed."""
    size = len(text)
    if size <= MAX_BYTES:
        data = text.encode("utf-8", "surrogatepass")
        size = len(data)
    if size > MAX_BYTES:
        raise DeclarationError(f"a workflow file has at most {MAX_BYTES // 2**20} MB (got {size / 2**20:.1f} MB)")
    if b"\\" in data:
        data = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    at, level, inside, brackets = 0, 0, 0, 0
    while at < len(data):
        chunk = np.frombuffer(data, np.uint8, min(2**22, len(data) - at), at)
        quotes = np.cumsum(chunk == ord('"'), dtype=np.uint8)  # only its parity is used, so it may wrap
        outside = ((quotes + np.uint8(inside)) & 1) == 0
        opened = ((chunk == ord("[")) | (chunk == ord("{"))) & outside
        closed = ((chunk == ord("]")) | (chunk == ord("}"))) & outside
        levels = np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int64)
        if len(levels) and level + int(levels.max()) > MAX_NESTING:
            where = at + int(np.argmax(levels > MAX_NESTING - level))
            line = data.count(b"\n", 0, where) + 1
            raise DeclarationError(f"workflow file, line {line}: brackets are nested deeper than {MAX_NESTING}")
        level += int(levels[-1])
        brackets += int(np.count_nonzero(opened))
        if brackets > _MAX_BRACKETS:
            raise DeclarationError(f"a workflow file has at most {_MAX_BRACKETS} lists and objects")
        inside = (inside + int(quotes[-1])) & 1
        at += len(chunk)


# -- building a graph --------------------------------------------------------------------------------------------------


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
        By array name (of a child ``<workflow>/<array>``): values for arrays, which may differ from those that the file was
        written with (where the file holds a hash, a warning is logged), and objects for external arrays.
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
    _guard(text)
    reader = _Reader(text)
    if not text.strip():
        raise DeclarationError("the workflow file is empty")
    return _Builder(reader.document(), graph_type, arrays or {}, callbacks or {}).graph()


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
    return loads(text, graph_type, arrays, callbacks)


class _Fields:
    """The members of one element; each is asked for once and what is left is refused."""

    def __init__(self, data: Data, what: str) -> None:
        if not isinstance(data, dict):
            raise _Fault(f"{what} is an object {{...}} (got {_shown(data)})")
        self.data = dict(data)

    def take(self, key: str, *types: type, default: Any = ...) -> Any:
        if key not in self.data:
            if default is ...:
                raise _Fault(f"field {key!r} is missing", key)
            return default
        value = self.data.pop(key)
        if types and type(value) not in types:
            wanted = " or ".join(_JSON_NAMES[t] for t in types)
            raise _Fault(f"{key!r} is {wanted} (got {_shown(value)})", key)
        return value

    def done(self, what: str) -> None:
        if self.data:
            key = next(iter(self.data))
            raise _Fault(f"{what} has no field {key[:60]!r}", key)


_JSON_NAMES: dict[type, str] = {str: "text", int: "an integer", float: "a number", bool: "true or false", list: "a list", dict: "an object"}


class _Builder:
    def __init__(
        self, root: _Section, graph_type: type[Graph], arrays: Mapping[str, Any], callbacks: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.root = root
        self.graph_type = graph_type
        self.supplied = arrays
        self.callbacks = callbacks
        self.used_arrays: set[str] = set()
        self.used_callbacks: set[str] = set()
        self.known_arrays: list[str] = []
        self.known_callbacks: dict[str, None] = {}
        self.modules: dict[str, Module] = {}
        self.children: dict[str, Workflow] = {}
        self.depths: dict[str, int] = {}
        for name, fn in callbacks.items():
            if not callable(fn):
                raise DeclarationError(f"callbacks[{name!r}] is a callable (got {_shown(fn)})")

    def graph(self) -> Graph:
        root = self.root
        version = root.scalars.get("hipgraphdsl")
        if version is None:
            root.item.refuse("this is no hipgraphdsl workflow: it has no field 'hipgraphdsl' with the version of the format")
        if type(version.value) is not int or version.value < 1:
            version.refuse(f"the version is an integer from 1 (got {_shown(version.value)})")
        if version.value > VERSION:
            version.refuse(
                f"the file has version {version.value} of the format, and this hipgraphdsl reads up to {VERSION}; install a newer"
                " hipgraphdsl"
            )
        del root.scalars["hipgraphdsl"]
        for key, item in root.maps.get("modules", {}).items():
            with _Where(item):
                self.modules[key] = _module(item.value, key)
        for key, section in root.children.items():
            if section.maps:
                next(iter(section.maps["modules"].values()), section.item).refuse("modules stand at the top of the file")
            with _Where(section.item):
                check_name(key, "workflow")
            self.children[key] = _Workflow(self, section, key, f"{key}/").build().workflow()
        graph = _Workflow(self, root, "", "").build()
        self._refuse_unused()
        return graph

    def _refuse_unused(self) -> None:
        for name in self.supplied:
            if name not in self.used_arrays:
                shown = ", ".join(map(repr, self.known_arrays[:20])) or "none"
                raise DeclarationError(f"arrays has {name!r}, which the file does not declare; its arrays are {shown}", array=name)
        for name in self.callbacks:
            if name not in self.used_callbacks:
                shown = ", ".join(map(repr, list(self.known_callbacks)[:20])) or "none"
                raise DeclarationError(f"callbacks has {name!r}, which no node of the file uses; its callbacks are {shown}")

    def callback(self, path: str, node: str, prefix: str) -> Any:
        self.known_callbacks[path] = None
        found: Any = None
        for key in (prefix + node, node, path, path.rpartition(":")[2]):
            if key in self.callbacks:
                self.used_callbacks.add(key)
                found = found or self.callbacks[key]
        return found or UnboundCallback(path)


class _Where:
    """Adds the place of an element to what is raised inside."""

    def __init__(self, item: _Item) -> None:
        self.item = item

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, _Fault):
            self.item.refuse(str(error))
        if isinstance(error, DeclarationError):
            self.item.refuse(str(error), node=error.node, array=error.array)
        if isinstance(error, RecursionError):
            self.item.refuse("it is nested too deeply")


class _Workflow:
    """Builds one graph of a document."""

    def __init__(self, builder: _Builder, section: _Section, key: str, prefix: str) -> None:
        self.builder = builder
        self.section = section
        self.prefix = prefix
        scalars = section.scalars
        name = scalars.pop("name", None)
        if name is None and not key:
            section.item.refuse("field 'name' is missing")
        infer = scalars.pop("infer", None)
        if infer is not None and type(infer.value) is not bool:
            infer.refuse(f"'infer' is true or false (got {_shown(infer.value)})")
        for unknown, item in scalars.items():
            item.refuse(f"a workflow has no field {unknown[:60]!r}")
        with _Where(name or section.item):
            title = check_name(name.value if name else key, "graph")
        self.graph: Graph = builder.graph_type(title, infer=infer.value if infer else True)
        self.kernels: dict[str, Kernel] = {}
        self.key = key

    def build(self) -> Graph:
        lists = self.section.lists
        for item in lists.get("arrays", ()):
            with _Where(item):
                self._array(item.value)
        for item in lists.get("parameters", ()):
            with _Where(item):
                self._parameter(item.value)
        for item in lists.get("nodes", ()):
            name = item.value.get("name") if isinstance(item.value, dict) else None
            if isinstance(name, str):
                item.place += f" ({name[:60]!r})"
            with _Where(item):
                self._node(item)
        for item in lists.get("order", ()):
            with _Where(item):
                pair = item.value
                if not (isinstance(pair, list) and len(pair) == 2 and all(type(name) is str for name in pair)):
                    raise _Fault(f"an edge is [earlier node, later node] (got {_shown(pair)})")
                self.graph.order(*pair)
        return self.graph

    # -- arrays and parameters -----------------------------------------------------------------------------------------

    def _array(self, data: Data) -> None:
        fields = _Fields(data, "an array")
        name = check_name(fields.take("name", str), "array")
        kind = fields.take("kind", str)
        if name in self.graph.arrays:
            raise _Fault(f"array {name!r} is declared twice")
        shape, dtype, device = _memory(fields)
        full = self.prefix + name
        self.builder.known_arrays.append(full)
        supplied = None
        if full in self.builder.supplied:
            self.builder.used_arrays.add(full)
            supplied = self.builder.supplied[full]
        array: Array
        if kind == "external":
            location, writeable = fields.take("location", str, default="host"), fields.take("writeable", bool, default=True)
            if location not in ("host", "device"):
                raise _Fault(f"'location' is 'host' or 'device' (got {location[:60]!r})")
            array = ExternalArray(name, shape, dtype, location=location, writeable=writeable, device=device)
            if supplied is not None:
                array = ExternalArray.wrap(name, supplied, device=device)
                _require_same(name, array.shape, array.dtype, shape, dtype)
                if array.location != location:
                    raise _Fault(f"array {name!r} is {location} memory; arrays[{full!r}] is {array.location} memory")
                if writeable and not array.writeable:
                    raise _Fault(f"array {name!r} is written; arrays[{full!r}] is read-only")
        elif kind in ("host", "device"):
            pinned = fields.take("pinned", bool, default=True) if kind == "host" else True
            initial = _initial(fields, name, shape, dtype)
            if supplied is not None:
                initial = _supplied(name, supplied, initial, shape, dtype)
            array = (
                HostArray(name, shape, dtype, pinned, initial, device=device)
                if kind == "host"
                else DeviceArray(name, shape, dtype, initial, device=device)
            )
        else:
            raise _Fault(f"'kind' of an array is 'host', 'device' or 'external' (got {kind[:60]!r})")
        fields.done(f"{kind} array {name!r}")
        self.graph.arrays[name] = array

    def _parameter(self, data: Data) -> None:
        fields = _Fields(data, "a parameter")
        name = fields.take("name", str)
        dtype = as_dtype(dtype_of(fields.take("dtype")))
        shape = _shape(fields.take("shape", list, default=[]))
        default = self._value(fields.take("default", default=None))
        fields.done(f"parameter {name[:60]!r}")
        self.graph.param(name, dtype, default, shape)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, item: _Item) -> None:
        fields = _Fields(item.value, "a node")
        name, kind = fields.take("name", str), fields.take("kind", str)
        if kind not in KINDS:
            raise _Fault(f"there is no kind {kind[:60]!r}; kinds are {', '.join(KINDS)}", "kind")
        data: dict[str, Any] = {"name": name, "source": ("<workflow file>", item.line)}
        after = fields.take("after", list, default=[])
        if not all(type(entry) is str for entry in after):
            raise _Fault(f"'after' is a list of node names (got {_shown(after)})", "after")
        if after:
            data["after"] = tuple(after)
        ignore = fields.take("ignore", dict, default=None)
        if ignore is not None:
            if not all(type(reason) is str for reason in ignore.values()):
                raise _Fault("'ignore' is an object of codes and reasons", "ignore")
            data["ignore"] = ignore
        getattr(self, f"_{kind}")(fields, data)
        fields.done(f"a {kind} node")
        self.graph.add(KINDS[kind](**data))

    def _kernel(self, fields: _Fields, data: dict[str, Any]) -> None:
        reference = fields.take("kernel", str)
        kernel = self.kernels.get(reference)
        if kernel is None:
            module, name = self._module_of(reference)
            kernel = self.kernels[reference] = module[name]
        data["kernel"] = kernel
        data["grid"], data["block"] = self._dim3(fields.take("grid")), self._dim3(fields.take("block"))
        data["args"] = tuple([self._value(arg) for arg in fields.take("args", list, default=[])])
        data["shared_bytes"] = fields.take("shared_bytes", int, default=0)
        data["cooperative"] = fields.take("cooperative", bool, default=False)
        data["priority"] = fields.take("priority", int, default=None)

    def _memcpy(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["dst"], data["src"] = self._view(fields.take("dst")), self._view(fields.take("src"))

    def _memset(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["dst"], data["value"] = self._view(fields.take("dst")), self._value(fields.take("value"))

    def _alloc(self, fields: _Fields, data: dict[str, Any]) -> None:
        inner = _Fields(fields.take("array"), "the array of an alloc node")
        name = check_name(inner.take("name", str), "array")
        if name in self.graph.arrays:
            raise _Fault(f"array {name!r} is declared twice", "array")
        shape, dtype, device = _memory(inner)
        inner.done("the array of an alloc node")
        data["array"] = AllocArray(name, shape, dtype, device=device)

    def _free(self, fields: _Fields, data: dict[str, Any]) -> None:
        name = fields.take("array", str)
        data["array"] = self._root(name)

    def _host(self, fields: _Fields, data: dict[str, Any]) -> None:
        path = fields.take("fn", str)
        if not re.fullmatch(r"[\w.]{1,400}:[\w.]{1,400}", path):
            raise _Fault(f"'fn' is an import path such as 'package.module:function' (got {path[:60]!r})", "fn")
        data["fn"] = self.builder.callback(path, data["name"], self.prefix)
        data["args"] = tuple([self._value(arg) for arg in fields.take("args", list, default=[])])
        access = fields.take("access", list, default=None)
        if access is not None:
            found = tuple([self._value(entry) for entry in access])
            if not all(isinstance(entry, Access) for entry in found):
                raise _Fault("'access' is a list of {\"read\": view}, {\"write\": view} and {\"update\": view}", "access")
            data["access"] = found

    _captured = _host

    def _record(self, fields: _Fields, data: dict[str, Any]) -> None:
        event = fields.take("event", str, dict)
        if isinstance(event, dict):
            inner = _Fields(event, "an event")
            event = Event(check_name(inner.take("name", str), "event"), inner.take("shared", bool, default=False))
            inner.done("an event")
        data["event"] = event

    _wait = _record

    def _empty(self, fields: _Fields, data: dict[str, Any]) -> None:
        pass

    def _child(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["workflow"] = self._child_workflow(fields.take("workflow", str))
        data["bind"] = self._bind(fields)

    def _conditional(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["mode"], data["condition"] = fields.take("mode", str), self._view(fields.take("condition"))
        data["bodies"] = tuple([self._child_workflow(key) for key in fields.take("bodies", list)])
        data["bind"] = self._bind(fields)

    def _signal(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["semaphore"] = Semaphore(check_name(fields.take("semaphore", str), "semaphore"))
        data["value"] = fields.take("value", int, default=1)

    _wait_semaphore = _signal

    def _memory_ops(self, fields: _Fields, data: dict[str, Any]) -> None:
        ops = []
        for entry in fields.take("ops", list):
            inner = _Fields(entry, "a memory operation")
            op, view, value = inner.take("op", str), self._view(inner.take("view")), inner.take("value", int)
            if op == "write":
                ops.append(write_value(view, value))
            elif op == "wait":
                ops.append(wait_value(view, value, inner.take("condition", str, default="eq")))
            else:
                raise _Fault(f"'op' is 'write' or 'wait' (got {op[:60]!r})", "ops")
            inner.done("a memory operation")
        data["ops"] = tuple(ops)

    # -- references ----------------------------------------------------------------------------------------------------

    def _module_of(self, reference: str) -> tuple[Module, str]:
        key, colon, name = reference.partition(":")
        module = self.builder.modules.get(key)
        if not colon or not name:
            raise _Fault(f"{reference[:60]!r} is no reference to a module's member; write 'module:name'")
        if module is None:
            shown = ", ".join(map(repr, self.builder.modules)) or "none"
            raise _Fault(f"there is no module {key[:60]!r}; the file's modules are {shown}")
        return module, name

    def _child_workflow(self, key: Data) -> Workflow:
        if type(key) is not str:
            raise _Fault(f"a child is named by its key in 'workflows' (got {_shown(key)})")
        workflow = self.builder.children.get(key)
        if workflow is None:
            later = key in self.builder.root.children
            raise _Fault(
                f"workflow {key[:60]!r} stands after this one; inner workflows come first"
                if later
                else f"there is no workflow {key[:60]!r} in 'workflows'"
            )
        depths = self.builder.depths
        depth = depths.get(key, 0) + 1
        if depth > MAX_CHILD_DEPTH:
            raise _Fault(f"child graphs are nested deeper than {MAX_CHILD_DEPTH}")
        depths[self.key] = max(depths.get(self.key, 0), depth)
        return workflow

    def _bind(self, fields: _Fields) -> dict[str, Any]:
        return {inner: self._value(value) for inner, value in fields.take("bind", dict, default={}).items()}

    def _dim3(self, data: Data) -> Any:
        return tuple(map(self._axis, data)) if type(data) is list else self._axis(data)

    def _axis(self, data: Data) -> Any:
        if type(data) is int:
            return data
        value = self._value(data)
        if not isinstance(value, Parameter):
            raise _Fault(f"an axis of grid or block is an integer or {{\"param\": name}} (got {_shown(data)})")
        return value

    def _root(self, name: str) -> Array:
        array = self.graph.arrays.get(name)
        if array is None:
            names = list(self.graph.arrays)
            shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
            raise _Fault(f"there is no array {name[:60]!r} above this line; arrays are {shown or 'none'}")
        return array

    def _view(self, data: Data) -> ArrayView:
        value = self._value(data)
        if not isinstance(value, ArrayView):
            raise _Fault(f"an array or a view such as 'x[0:4]' is expected (got {_shown(data)})")
        return value

    def _selected(self, text: str, find: Callable[[str], Any]) -> Any:
        """Return ``name`` or ``name[selection]``."""
        name, bracket, rest = text.partition("[")
        root = find(name)
        if not bracket:
            return root
        if not rest.endswith("]") or len(text) > 2000:
            raise _Fault(f"{text[:60]!r} is no view; write 'x[3, 8:248, 0:10:2]'")
        keys: list[int | slice] = []
        for part in rest[:-1].split(","):
            numbers = part.strip().split(":")
            if len(numbers) > 3 or not all(n.isascii() and n.isdigit() and len(n) <= 20 for n in numbers):
                raise _Fault(f"{text[:60]!r} is no view: {part[:40]!r} is neither an index nor a slice 'start:stop:step'")
            bounds = [int(n) for n in numbers]
            keys.append(bounds[0] if len(bounds) == 1 else slice(*bounds))
        return root[tuple(keys)]

    def _parameter_named(self, name: str) -> Parameter:
        parameter = self.graph.parameters.get(name)
        if parameter is None:
            shown = ", ".join(map(repr, list(self.graph.parameters)[:10])) or "none"
            raise _Fault(f"there is no parameter {name[:60]!r}; parameters are {shown}")
        return parameter

    def _value(self, data: Data) -> Any:
        kind = type(data)
        if kind is str:
            found = self._selected(data, self._root)
            return found if isinstance(found, ArrayView) else found.as_view()
        if kind is list:
            return [self._value(item) for item in data]
        if kind is not dict:
            return data
        tag = next(iter(data), None)
        read = _TAGS.get(tag) if tag is not None else None
        if read is None:
            raise _Fault(f"{_shown(data)} is no value; an object has one of the tags {', '.join(_TAGS)}")
        return read(self, _Fields(data, "a value"))


def _tagged_param(where: _Workflow, fields: _Fields) -> Any:
    text = _only(fields, "param", str)
    found = where._selected(text, where._parameter_named)
    return found.as_view() if isinstance(found, Parameter) and found.shape else found


def _tagged_symbol(where: _Workflow, fields: _Fields) -> Any:
    module, rest = where._module_of(_only(fields, "symbol", str))
    return where._selected(rest, module.symbol).as_view()


def _tagged_access(mode: Any) -> Callable[[_Workflow, _Fields], Any]:
    return lambda where, fields: Access(where._view(_only(fields, mode)), mode)


def _tagged_float(where: _Workflow, fields: _Fields) -> float:
    text = _only(fields, "float", str)
    if text not in ("nan", "inf", "-inf"):
        raise _Fault(f"'float' is 'nan', 'inf' or '-inf' (got {text[:60]!r})")
    return float(text)


def _tagged_complex(where: _Workflow, fields: _Fields) -> complex:
    parts = [where._value(part) for part in _only(fields, "complex", list)]
    if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
        raise _Fault("'complex' is [real, imaginary]")
    return complex(*parts)


def _tagged_numpy(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("numpy"))
    value = where._value(fields.take("value"))
    fields.done("a NumPy value")
    if type(value) not in (bool, int, float, complex) or dtype.names is not None:
        raise _Fault(f"'value' of a NumPy value is a number (got {_shown(value)})")
    return _filled((value,), (1,), dtype)[0]


def _tagged_struct(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("struct"))
    data = _bytes(fields.take("base64", str))
    fields.done("a struct")
    if len(data) != dtype.itemsize:
        raise _Fault(f"a struct of {dtype.itemsize} bytes has {len(data)} bytes in 'base64'")
    return np.frombuffer(data, dtype)[0]


def _tagged_ndarray(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("ndarray"))
    shape = fields.take("shape", list)
    data = _bytes(fields.take("base64", str))
    fields.done("an array value")
    if len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise _Fault(f"'shape' is a list of integers from 0 (got {_shown(shape)})")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise _Fault(f"an array of shape {shape} and {dtype.itemsize} bytes each has {len(data)} bytes in 'base64'")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _tagged_dict(where: _Workflow, fields: _Fields) -> dict[str, Any]:
    return {key: where._value(value) for key, value in _only(fields, "dict", dict).items()}


def _only(fields: _Fields, tag: str, *types: type) -> Any:
    value = fields.take(tag, *types)
    fields.done(f"a value tagged {tag!r}")
    return value


_TAGS: dict[str, Callable[[_Workflow, _Fields], Any]] = {
    "param": _tagged_param,
    "symbol": _tagged_symbol,
    "read": _tagged_access("read"),
    "write": _tagged_access("write"),
    "update": _tagged_access("update"),
    "float": _tagged_float,
    "complex": _tagged_complex,
    "str": lambda where, fields: _only(fields, "str", str),
    "bytes": lambda where, fields: _bytes(_only(fields, "bytes", str)),
    "tuple": lambda where, fields: tuple([where._value(item) for item in _only(fields, "tuple", list)]),
    "dict": _tagged_dict,
    "numpy": _tagged_numpy,
    "struct": _tagged_struct,
    "ndarray": _tagged_ndarray,
}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Fault(f"base64 text is damaged: {error}") from None


_SIMPLE = re.compile(r"[<>=|]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|V[1-9]\d{0,5})")
_NAMED = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128".split()
)
_MAX_ITEM = 2**20


def dtype_of(data: Data, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype that `dtype_data` described.

    Raises
    ------
    DeclarationError
        If bfloat16 is asked for and ml_dtypes is not there.
    """
    if type(data) is str:
        if data in _NAMED:
            return as_dtype(data)
        if _SIMPLE.fullmatch(data):
            return np.dtype(data)
        if re.fullmatch(r"void[1-9]\d{0,8}", data):
            return _checked_size(np.dtype(f"V{int(data[4:]) // 8}")) if int(data[4:]) >= 8 else _no_dtype(data)
        return _no_dtype(data)
    if depth > 16:
        raise _Fault("a struct is nested too deeply")
    fields = _Fields(data, "a dtype")
    if "base" in fields.data:
        base, shape = dtype_of(fields.take("base"), depth + 1), _shape(fields.take("shape", list))
        fields.done("a dtype")
        if math.prod(shape) * base.itemsize > _MAX_ITEM:
            raise _Fault(f"a struct has at most {_MAX_ITEM} bytes")
        return np.dtype((base, shape))
    names, formats, offsets = fields.take("names", list), fields.take("formats", list), fields.take("offsets", list)
    itemsize, align = fields.take("itemsize", int), fields.take("align", bool, default=False)
    fields.done("a dtype")
    if not (len(names) == len(formats) == len(offsets) <= 1000 and all(type(n) is str and n for n in names)):
        raise _Fault("'names', 'formats' and 'offsets' of a struct are lists of one length, at most 1000")
    if not all(type(n) is int and 0 <= n <= _MAX_ITEM for n in (*offsets, itemsize)):
        raise _Fault(f"a struct has at most {_MAX_ITEM} bytes")
    parts = [dtype_of(part, depth + 1) for part in formats]
    try:
        spec: Any = {"names": names, "formats": parts, "offsets": offsets, "itemsize": itemsize}
        return np.dtype(spec, align=align)  # type: ignore[no-any-return]  # NumPy's stubs do not know a spec with align
    except (TypeError, ValueError) as error:
        raise _Fault(f"a struct is wrong: {error}") from None


def _checked_size(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.itemsize > _MAX_ITEM:
        raise _Fault(f"an element has at most {_MAX_ITEM} bytes")
    return dtype


def _no_dtype(data: str) -> NoReturn:
    raise _Fault(f"there is no dtype {data[:60]!r}; dtypes are {', '.join(sorted(_NAMED))} and structs", "dtype")


def _shape(data: Data) -> tuple[int, ...]:
    if type(data) is not list or not all(type(n) is int for n in data):
        raise _Fault(f"'shape' is a list of integers (got {_shown(data)})", "shape")
    return as_shape(tuple(data))


def _memory(fields: _Fields) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    dtype = as_dtype(dtype_of(fields.take("dtype")))
    shape = _shape(fields.take("shape", list))
    device = fields.take("device", int, default=0)
    if not 0 <= device < 2**16:
        raise _Fault(f"'device' is the number of a device (got {device})", "device")
    return shape, dtype, device


def _filled(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return numbers as an array, each judged."""
    allowed: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "c": (int, float, complex)}.get(dtype.kind, (int, float))
    for value in values:
        if type(value) not in allowed:
            raise _Fault(f"{_shown(value)} is no value of dtype {dtype}")
    try:
        with np.errstate(over="raise"):
            found = np.array(values, dtype).reshape(shape)
    except (OverflowError, ValueError, TypeError, FloatingPointError) as error:
        raise _Fault(f"values do not fit dtype {dtype}: {error}") from None
    return found


def _initial(fields: _Fields, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    given = [key for key in ("values", "base64", "sha256") if key in fields.data]
    if len(given) > 1:
        raise _Fault(f"array {name!r} has both {given[0]!r} and {given[1]!r}; give one")
    if not given:
        return None
    size = math.prod(shape)
    if given == ["sha256"]:
        digest = fields.take("sha256", str)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise _Fault(f"'sha256' is 64 hexadecimal digits (got {digest[:60]!r})", "sha256")
        return UnboundValues(digest)
    if given == ["values"]:
        values = fields.take("values", list)
        if len(values) != size:
            raise _Fault(f"array {name!r} of shape {list(shape)} has {size} elements, 'values' holds {len(values)}", "values")
        found = _filled(values, shape, dtype)
    else:
        data = _bytes(fields.take("base64", str))
        if len(data) != size * dtype.itemsize:
            raise _Fault(f"array {name!r} has {size * dtype.itemsize} bytes, 'base64' holds {len(data)}", "base64")
        found = np.frombuffer(data, dtype).reshape(shape).copy()
    found.flags.writeable = False
    return found


def _require_same(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], wanted_shape: tuple[int, ...], wanted_dtype: np.dtype[Any]
) -> None:
    if shape != wanted_shape or dtype != wanted_dtype:
        raise DeclarationError(
            f"array {name!r} is {wanted_dtype}{list(wanted_shape)}; what arrays supplies is {dtype}{list(shape)}", array=name
        )


def _supplied(name: str, value: Any, stored: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        found = np.array(value, order="C")
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"array {name!r}: what arrays supplies is no array: {error}", array=name) from None
    if not isinstance(value, np.ndarray) and found.dtype != dtype and np.can_cast(found.dtype, dtype, "same_kind"):
        found = found.astype(dtype)  # a list has no dtype of its own
    _require_same(name, found.shape, found.dtype, shape, dtype)
    if isinstance(stored, UnboundValues) and _sha256(found) != stored.sha256:
        _log.warning("array %r: the values supplied are not those that the file was written with (SHA-256 differs)", name)
    found.flags.writeable = False
    return found


def _module(data: Data, key: str) -> Module:
    if not key or ":" in key or len(key) > 200 or not key.isprintable():
        raise _Fault(f"{key[:60]!r} cannot name a module: a name has 1 to 200 printable characters, and no ':'")
    fields = _Fields(data, "a module")
    spec: dict[str, Any] = {"name": fields.take("name", str, default=key)}
    if not spec["name"].isprintable() or len(spec["name"]) > 1000:
        raise _Fault("a module's name has at most 1000 printable characters", "name")
    structs = fields.take("structs", dict, default={})
    layouts = {name: dtype_of(value) for name, value in structs.items()}
    if "source" in fields.data:
        source = fields.take("source", list, str)
        lines = source if isinstance(source, list) else [source]
        options = fields.take("options", list, default=[])
        if not all(type(line) is str for line in (*lines, *options)):
            raise _Fault("'source' and 'options' are lists of text", "source")
        fields.done("a module")
        return Module("\n".join(lines), name=spec["name"], options=options, structs=layouts)
    spec["file"], spec["sha256"] = fields.take("file", str), fields.take("sha256", str)
    signatures = fields.take("signatures", dict, default={})
    if not all(type(text) is str for text in signatures.values()):
        raise _Fault("'signatures' is an object of parameter lists", "signatures")
    spec["signatures"] = signatures
    spec["structs"] = structs
    fields.done("a module")
    return Module.from_dict(spec)
