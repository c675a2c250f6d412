"""A workflow as plain data: what JSON and YAML hold. The forms are described in `json.py`."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import sys
from types import ModuleType
from typing import Any

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
)
from ..errors import DeclarationError
from ..kernels import ForeignModule, Module, Symbol
from ..nodes import (
    AllocNode,
    CapturedNode,
    ChildGraphNode,
    ConditionalNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    Node,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    UnboundCallback,
    callable_name,
)
from ..nodes.base import as_accesses
from ..workflow import Workflow

__all__ = [
    "MAX_CHILD_DEPTH",
    "MAX_VALUES",
    "VERSION",
    "Data",
    "callback_path",
    "document",
    "documents",
    "dtype_data",
    "ordered_edges",
    "sha256_of",
    "shown",
]

VERSION = 1
"""Version of the format; a file of a newer one is refused."""

MAX_VALUES = 4096
"""Arrays of at most this many elements are stored with their values."""

MAX_CHILD_DEPTH = 16
"""Child graphs inside child graphs."""

MAX_DIGITS = 40
"""Digits of an int."""

Data = Any
"""What JSON holds: None, bool, int, float, str, list and dict with str keys."""


def document(workflow: Workflow, *, strict: bool = True) -> dict[str, Data]:
    """Return a workflow as plain data, in the order in which `dumps` writes it.

    Parameters
    ----------
    strict : bool
        False puts ``{"python": text}`` where something has no form in a file; such data is for people and does not
        load.

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


class _Writer:
    """Turns one workflow, with its children and modules, into plain data."""

    def __init__(self, workflow: Workflow, strict: bool) -> None:
        self.root = workflow
        self.strict = strict
        self.modules: dict[Module, str] = {}
        self.children: dict[int, tuple[str, Workflow, dict[str, Data]]] = {}

    def _module_data(self, module: Module, key: str) -> Data:
        if isinstance(module, ForeignModule) and not self.strict:
            return {"foreign": module.owner.name}
        return _module_data(module, key)

    def document(self) -> dict[str, Data]:
        for module in self.root.modules:
            self._module_key(module)
        body = self._workflow(self.root)
        out: dict[str, Data] = {"hipgraphdsl": VERSION, "name": self.root.name}
        out["infer"] = body["infer"]
        out["modules"] = {
            key: self._module_data(module, key) for module, key in self.modules.items()
        }
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
                raise DeclarationError(
                    f"node {node.name!r} cannot be stored in a file: {fault}", node=node.name
                ) from None
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
        if parameter.copy:
            out["copy"] = True
        if parameter.default is not None:
            try:
                out["default"] = self._value(parameter.default)
            except _Unstorable as fault:
                raise DeclarationError(
                    f"the default of parameter {parameter.name!r} cannot be stored in a file: {fault}",
                    array=parameter.name,
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
                if node.cluster is not None:
                    out["cluster"] = self._dim3(node.cluster)
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
        device = getattr(node, "device", None)
        if device is not None:
            out["device"] = device
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
            if abs(value) >= 10**MAX_DIGITS:
                raise _Unstorable(f"an int of more than {MAX_DIGITS} digits is too long")
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
            return {"python": shown(value)}

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
                raise _Unstorable(f"a dict whose keys are not all strings ({shown(value)})")
            return {"dict": {key: self._value(item) for key, item in value.items()}}
        if isinstance(value, np.void):
            return {"struct": dtype_data(value.dtype), "base64": _base64(value.tobytes())}
        if isinstance(value, np.generic) and value.dtype.kind in "biufcV":
            return {"numpy": dtype_data(value.dtype), "value": self._value(_plain(value))}
        if kind is np.ndarray:
            if value.size > MAX_VALUES:
                raise _Unstorable(
                    f"an argument of {value.size} elements; at most {MAX_VALUES} are stored, declare it as"
                    " host_array instead"
                )
            if value.dtype.hasobject or value.dtype.kind not in "biufcV":
                raise _Unstorable(f"an array of dtype {value.dtype}")
            return {"ndarray": dtype_data(value.dtype), "shape": list(value.shape), "base64": _base64(value.tobytes())}
        if isinstance(value, Viewable):
            return self._view(value.as_view())
        raise _Unstorable(f"{shown(value)} of type {kind.__module__}.{kind.__qualname__} has no form in JSON")


class _Unstorable(Exception):
    """What a node holds has no form in a file; caught where the node's name is known."""


def _plain(value: np.generic) -> Any:
    """Return a NumPy scalar as the Python number that is exactly it."""
    return value.item() if value.dtype.kind in "biufc" else float(value)  # bfloat16 is a V that converts


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
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
            if not reason.startswith(("RAW ", "WAR ", "WAW ", "event ")[3 * (not workflow.infer) :]):
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
        If it has none: a lambda, a closure, a bound method, an object that is called, or a function of an interactive
        session.
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
    if array.device is not None:
        out["device"] = array.device
    if array.access:
        out["access"] = list(array.access)
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
            out["sha256"] = sha256_of(initial)
        else:
            values = _numbers(initial)
            if values is None:
                out["base64"] = _base64(initial.tobytes())
            else:
                out["values"] = values
    return out


def sha256_of(values: np.ndarray[Any, Any]) -> str:
    """Return the hash of the bytes, C order, in hexadecimal."""
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
