"""The elements of a workflow file -> a Graph: replays the declarations, and judges every field."""

from __future__ import annotations

import base64
import binascii
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
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
    as_dict,
    as_dtype,
    as_shape,
    converted,
)
from ..errors import DeclarationError
from ..kernels import Kernel, Module
from ..nodes import KINDS, Event, Semaphore, UnboundCallback, wait_value, write_value
from ..nodes.base import check_name
from ..source import Budget
from ..workflow import Workflow
from .document import MAX_CHILD_DEPTH, VERSION, Data, sha256_of, shown
from .json_text import MAX_NODES, Fault, Item, Section

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["Builder"]

_log = logging.getLogger("hipgraphdsl")


class _Fields:
    """The members of one element; each is asked for once and what is left is refused."""

    def __init__(self, data: Data, what: str) -> None:
        if not isinstance(data, dict):
            raise Fault(f"{what} is an object {{...}} (got {shown(data)})")
        self.data = dict(data)

    def take(self, key: str, *types: type, default: Any = ...) -> Any:
        if key not in self.data:
            if default is ...:
                raise Fault(f"field {key!r} is missing", key)
            return default
        value = self.data.pop(key)
        if types and type(value) not in types:
            wanted = " or ".join(_JSON_NAMES[t] for t in types)
            raise Fault(f"{key!r} is {wanted} (got {shown(value)})", key)
        return value

    def done(self, what: str) -> None:
        if self.data:
            key = next(iter(self.data))
            raise Fault(f"{what} has no field {key[:60]!r}", key)


_JSON_NAMES: dict[type, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Builder:
    """Builds the graph of a whole document, children first.

    Parameters
    ----------
    root : Section
        The document.
    graph_type : type
        `Graph`.
    arrays, callbacks : mapping
        What the caller supplies; as for `json.loads`.
    """

    def __init__(
        self,
        root: Section,
        graph_type: type[Graph],
        arrays: Mapping[str, Any] | None,
        callbacks: Mapping[str, Callable[..., Any]] | None,
    ) -> None:
        self.root = root
        self.graph_type = graph_type
        self.supplied = arrays = as_dict(arrays, "arrays")
        self.callbacks = callbacks = as_dict(callbacks, "callbacks")
        self.used_arrays: set[str] = set()
        self.used_callbacks: set[str] = set()
        self.known_arrays: list[str] = []
        self.known_callbacks: dict[str, None] = {}
        self.modules: dict[str, Module] = {}
        self.children: dict[str, Workflow] = {}
        self.depths: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        """Nodes of each workflow, those of its children counted as often as they are used."""
        for name, fn in callbacks.items():
            if not callable(fn):
                raise DeclarationError(f"callbacks[{name!r}] is a callable (got {shown(fn)})")

    def graph(self) -> Graph:
        """Return the graph; every fault is a DeclarationError with line and field."""
        root = self.root
        version = root.scalars.get("hipgraphdsl")
        if version is None:
            root.item.refuse(
                "this is no hipgraphdsl workflow: it has no field 'hipgraphdsl' with the version of the format"
            )
        if type(version.value) is not int or version.value < 1:
            version.refuse(f"the version is an integer from 1 (got {shown(version.value)})")
        if version.value > VERSION:
            version.refuse(
                f"the file has version {version.value} of the format, and this hipgraphdsl reads up to {VERSION};"
                " install a newer"
                " hipgraphdsl"
            )
        del root.scalars["hipgraphdsl"]
        budget = Budget()  # of all modules together, so that many small ones cost no more than one
        for key, item in root.maps.get("modules", {}).items():
            with _Where(item):
                self.modules[key] = _module(item.value, key, budget)
        for key, section in root.children.items():
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
                raise DeclarationError(
                    f"arrays has {name!r}, which the file does not declare; its arrays are {shown}", array=name
                )
        for name in self.callbacks:
            if name not in self.used_callbacks:
                shown = ", ".join(map(repr, list(self.known_callbacks)[:20])) or "none"
                raise DeclarationError(
                    f"callbacks has {name!r}, which no node of the file uses; its callbacks are {shown}"
                )

    def callback(self, path: str, node: str, prefix: str) -> Any:
        """Return the callable that was supplied for a node, or an `UnboundCallback`."""
        self.known_callbacks[path] = None
        found: Any = None
        for key in (prefix + node, node, path, path.rpartition(":")[2]):
            if key in self.callbacks:
                self.used_callbacks.add(key)
                found = found or self.callbacks[key]
        return found or UnboundCallback(path)


class _Where:
    """Adds the place of an element to what is raised inside."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Fault):
            self.item.refuse(str(error))
        if isinstance(error, DeclarationError):
            self.item.refuse(str(error), node=error.node, array=error.array)
        if isinstance(error, RecursionError):
            self.item.refuse("it is nested too deeply")


def _taken(lists: dict[str, list[Item]], key: str) -> Iterator[Item]:
    """Yield the elements of a list and let go of each: the text's data and the graph need not exist beside each other."""
    items = lists.pop(key, [])
    items.reverse()
    while items:
        yield items.pop()


class _Workflow:
    """Builds one graph of a document."""

    def __init__(self, builder: Builder, section: Section, key: str, prefix: str) -> None:
        self.builder = builder
        self.section = section
        self.prefix = prefix
        scalars = section.scalars
        name = scalars.pop("name", None)
        if name is None and not key:
            section.item.refuse("field 'name' is missing")
        infer = scalars.pop("infer", None)
        if infer is not None and type(infer.value) is not bool:
            infer.refuse(f"'infer' is true or false (got {shown(infer.value)})")
        for unknown, item in scalars.items():
            item.refuse(f"a workflow has no field {unknown[:60]!r}")
        with _Where(name or section.item):
            title = check_name(name.value if name else key, "graph")
        self.graph: Graph = builder.graph_type(title, infer=infer.value if infer else True)
        self.kernels: dict[str, Kernel] = {}
        self.key = key

    def build(self) -> Graph:
        lists = self.section.lists
        for item in _taken(lists, "arrays"):
            with _Where(item):
                self._array(item.value)
        for item in _taken(lists, "parameters"):
            with _Where(item):
                self._parameter(item.value)
        for item in _taken(lists, "nodes"):
            with _Where(item):
                self._node(item)
        for item in _taken(lists, "order"):
            with _Where(item):
                pair = item.value
                if not (isinstance(pair, list) and len(pair) == 2 and all(type(name) is str for name in pair)):
                    raise Fault(f"an edge is [earlier node, later node] (got {shown(pair)})")
                self.graph.order(*pair)
        return self.graph

    # -- arrays and parameters -----------------------------------------------------------------------------------------

    def _array(self, data: Data) -> None:
        fields = _Fields(data, "an array")
        name = check_name(fields.take("name", str), "array")
        kind = fields.take("kind", str)
        if name in self.graph.arrays:
            raise Fault(f"array {name!r} is declared twice")
        shape, dtype, where = _memory(fields)
        full = self.prefix + name
        self.builder.known_arrays.append(full)
        supplied = None
        if full in self.builder.supplied:
            self.builder.used_arrays.add(full)
            supplied = self.builder.supplied[full]
        array: Array
        if kind == "external":
            location, writeable = (
                fields.take("location", str, default="host"),
                fields.take("writeable", bool, default=True),
            )
            if location not in ("host", "device"):
                raise Fault(f"'location' is 'host' or 'device' (got {location[:60]!r})")
            array = ExternalArray(name, shape, dtype, location=location, writeable=writeable, **where)
            if supplied is not None:
                array = ExternalArray.wrap(name, supplied, **where)
                _require_same(name, array.shape, array.dtype, shape, dtype)
                if array.location != location:
                    raise Fault(f"array {name!r} is {location} memory; arrays[{full!r}] is {array.location} memory")
                if writeable and not array.writeable:
                    raise Fault(f"array {name!r} is written; arrays[{full!r}] is read-only")
        elif kind in ("host", "device"):
            pinned = fields.take("pinned", bool, default=True) if kind == "host" else True
            initial = _initial(fields, name, shape, dtype)
            if supplied is not None:
                initial = _supplied(name, supplied, initial, shape, dtype)
            array = (
                HostArray(name, shape, dtype, pinned, initial, **where)
                if kind == "host"
                else DeviceArray(name, shape, dtype, initial, **where)
            )
        else:
            raise Fault(f"'kind' of an array is 'host', 'device' or 'external' (got {kind[:60]!r})")
        fields.done(f"{kind} array {name!r}")
        self.graph.arrays[name] = array

    def _parameter(self, data: Data) -> None:
        fields = _Fields(data, "a parameter")
        name = fields.take("name", str)
        dtype = as_dtype(dtype_of(fields.take("dtype")))
        shape = _shape(fields.take("shape", list, default=[]))
        default = self._value(fields.take("default", default=None))
        copy = fields.take("copy", bool, default=False)
        fields.done(f"parameter {name[:60]!r}")
        self.graph.param(name, dtype, default, shape, copy=copy)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, item: Item) -> None:
        fields = _Fields(item.value, "a node")
        name, kind = fields.take("name", str), fields.take("kind", str)
        if kind not in KINDS:
            raise Fault(f"there is no kind {kind[:60]!r}; kinds are {', '.join(KINDS)}", "kind")
        data: dict[str, Any] = {"name": name, "source": ("<workflow file>", item.line)}
        after = fields.take("after", list, default=[])
        if not all(type(entry) is str for entry in after):
            raise Fault(f"'after' is a list of node names (got {shown(after)})", "after")
        if after:
            data["after"] = tuple(after)
        ignore = fields.take("ignore", dict, default=None)
        if ignore is not None:
            if not all(type(reason) is str for reason in ignore.values()):
                raise Fault("'ignore' is an object of codes and reasons", "ignore")
            data["ignore"] = ignore
        self._count(1)
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
        cluster = fields.take("cluster", default=None)
        data["cluster"] = None if cluster is None else self._dim3(cluster)
        data["device"] = _device(fields.take("device", int, default=None))

    def _memcpy(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["dst"], data["src"] = self._view(fields.take("dst")), self._view(fields.take("src"))
        data["device"] = _device(fields.take("device", int, default=None))

    def _memset(self, fields: _Fields, data: dict[str, Any]) -> None:
        data["dst"], data["value"] = self._view(fields.take("dst")), self._value(fields.take("value"))
        data["device"] = _device(fields.take("device", int, default=None))

    def _alloc(self, fields: _Fields, data: dict[str, Any]) -> None:
        inner = _Fields(fields.take("array"), "the array of an alloc node")
        name = check_name(inner.take("name", str), "array")
        if name in self.graph.arrays:
            raise Fault(f"array {name!r} is declared twice", "array")
        shape, dtype, where = _memory(inner)
        inner.done("the array of an alloc node")
        data["array"] = AllocArray(name, shape, dtype, **where)

    def _free(self, fields: _Fields, data: dict[str, Any]) -> None:
        name = fields.take("array", str)
        data["array"] = self._root(name)

    def _host(self, fields: _Fields, data: dict[str, Any]) -> None:
        path = fields.take("fn", str)
        if not re.fullmatch(r"[\w.]{1,400}:[\w.]{1,400}", path):
            raise Fault(f"'fn' is an import path such as 'package.module:function' (got {path[:60]!r})", "fn")
        data["fn"] = self.builder.callback(path, data["name"], self.prefix)
        data["args"] = tuple([self._value(arg) for arg in fields.take("args", list, default=[])])
        access = fields.take("access", list, default=None)
        if access is not None:
            found = tuple([self._value(entry) for entry in access])
            if not all(isinstance(entry, Access) for entry in found):
                raise Fault('\'access\' is a list of {"read": view}, {"write": view} and {"update": view}', "access")
            data["access"] = found

    def _captured(self, fields: _Fields, data: dict[str, Any]) -> None:
        self._host(fields, data)
        data["device"] = _device(fields.take("device", int, default=None))

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
                raise Fault(f"'op' is 'write' or 'wait' (got {op[:60]!r})", "ops")
            inner.done("a memory operation")
        data["ops"] = tuple(ops)

    # -- references ----------------------------------------------------------------------------------------------------

    def _module_of(self, reference: str) -> tuple[Module, str]:
        key, colon, name = reference.partition(":")
        module = self.builder.modules.get(key)
        if not colon or not name:
            raise Fault(f"{reference[:60]!r} is no reference to a module's member; write 'module:name'")
        if module is None:
            shown = ", ".join(map(repr, self.builder.modules)) or "none"
            raise Fault(f"there is no module {key[:60]!r}; the file's modules are {shown}")
        return module, name

    def _child_workflow(self, key: Data) -> Workflow:
        if type(key) is not str:
            raise Fault(f"a child is named by its key in 'workflows' (got {shown(key)})")
        workflow = self.builder.children.get(key)
        if workflow is None:
            later = key in self.builder.root.children
            raise Fault(
                f"workflow {key[:60]!r} stands after this one; inner workflows come first"
                if later
                else f"there is no workflow {key[:60]!r} in 'workflows'"
            )
        depths = self.builder.depths
        depth = depths.get(key, 0) + 1
        if depth > MAX_CHILD_DEPTH:
            raise Fault(f"child graphs are nested deeper than {MAX_CHILD_DEPTH}")
        depths[self.key] = max(depths.get(self.key, 0), depth)
        self._count(self.builder.sizes.get(key, 0))
        return workflow

    def _count(self, nodes: int) -> None:
        sizes = self.builder.sizes
        sizes[self.key] = sizes.get(self.key, 0) + nodes
        if sizes[self.key] > MAX_NODES:
            raise Fault(f"a workflow holds at most {MAX_NODES} nodes, those of child graphs counted as often as they are used")

    def _bind(self, fields: _Fields) -> dict[str, Any]:
        return {inner: self._value(value) for inner, value in fields.take("bind", dict, default={}).items()}

    def _dim3(self, data: Data) -> Any:
        return tuple(map(self._axis, data)) if type(data) is list else self._axis(data)

    def _axis(self, data: Data) -> Any:
        if type(data) is int:
            return data
        value = self._value(data)
        if not isinstance(value, Parameter):
            raise Fault(f'an axis of grid or block is an integer or {{"param": name}} (got {shown(data)})')
        return value

    def _root(self, name: str) -> Array:
        array = self.graph.arrays.get(name)
        if array is None:
            names = list(self.graph.arrays)
            shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
            raise Fault(f"there is no array {name[:60]!r} above this line; arrays are {shown or 'none'}")
        return array

    def _view(self, data: Data) -> ArrayView:
        value = self._value(data)
        if not isinstance(value, ArrayView):
            raise Fault(f"an array or a view such as 'x[0:4]' is expected (got {shown(data)})")
        return value

    def _selected(self, text: str, find: Callable[[str], Any]) -> Any:
        """Return ``name`` or ``name[selection]``."""
        name, bracket, rest = text.partition("[")
        root = find(name)
        if not bracket:
            return root
        if not rest.endswith("]") or len(text) > 2000:
            raise Fault(f"{text[:60]!r} is no view; write 'x[3, 8:248, 0:10:2]'")
        keys: list[int | slice] = []
        for part in rest[:-1].split(","):
            numbers = part.strip().split(":")
            if len(numbers) > 3 or not all(n.isascii() and n.isdigit() and len(n) <= 20 for n in numbers):
                raise Fault(
                    f"{text[:60]!r} is no view: {part[:40]!r} is neither an index nor a slice 'start:stop:step'"
                )
            bounds = [int(n) for n in numbers]
            keys.append(bounds[0] if len(bounds) == 1 else slice(*bounds))
        return root[tuple(keys)]

    def _parameter_named(self, name: str) -> Parameter:
        parameter = self.graph.parameters.get(name)
        if parameter is None:
            shown = ", ".join(map(repr, list(self.graph.parameters)[:10])) or "none"
            raise Fault(f"there is no parameter {name[:60]!r}; parameters are {shown}")
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
            raise Fault(f"{shown(data)} is no value; an object has one of the tags {', '.join(_TAGS)}")
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
        raise Fault(f"'float' is 'nan', 'inf' or '-inf' (got {text[:60]!r})")
    return float(text)


def _tagged_complex(where: _Workflow, fields: _Fields) -> complex:
    parts = [where._value(part) for part in _only(fields, "complex", list)]
    if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
        raise Fault("'complex' is [real, imaginary]")
    return complex(*parts)


def _tagged_numpy(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("numpy"))
    value = where._value(fields.take("value"))
    fields.done("a NumPy value")
    if type(value) not in (bool, int, float, complex) or dtype.names is not None:
        raise Fault(f"'value' of a NumPy value is a number (got {shown(value)})")
    return _filled((value,), (1,), dtype)[0]


def _tagged_struct(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("struct"))
    data = _bytes(fields.take("base64", str))
    fields.done("a struct")
    if len(data) != dtype.itemsize:
        raise Fault(f"a struct of {dtype.itemsize} bytes has {len(data)} bytes in 'base64'")
    return np.frombuffer(data, dtype)[0]


def _tagged_ndarray(where: _Workflow, fields: _Fields) -> Any:
    dtype = dtype_of(fields.take("ndarray"))
    shape = fields.take("shape", list)
    data = _bytes(fields.take("base64", str))
    fields.done("an array value")
    sizes = all(type(n) is int and n >= 0 for n in shape)
    if len(shape) > 32 or not sizes or math.prod(filter(None, shape)) > 2**40:  # NumPy counts each extent
        raise Fault(f"'shape' is a list of integers from 0, with at most 2**40 elements (got {shown(shape)})")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise Fault(f"an array of shape {shape} and {dtype.itemsize} bytes each has {len(data)} bytes in 'base64'")
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
        raise Fault(f"base64 text is damaged: {error}") from None


_SIMPLE = re.compile(r"[<>=|]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|V[1-9]\d{0,5})")
_NAMED = {"bool", "bfloat16"} | {
    f"{kind}{bits}"
    for kind, sizes in (
        ("int", (8, 16, 32, 64)),
        ("uint", (8, 16, 32, 64)),
        ("float", (16, 32, 64)),
        ("complex", (64, 128)),
    )
    for bits in sizes
}
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
        raise Fault("a struct is nested too deeply")
    fields = _Fields(data, "a dtype")
    if "base" in fields.data:
        base, shape = dtype_of(fields.take("base"), depth + 1), _shape(fields.take("shape", list))
        fields.done("a dtype")
        if math.prod(shape) * base.itemsize > _MAX_ITEM:
            raise Fault(f"a struct has at most {_MAX_ITEM} bytes")
        return np.dtype((base, shape))
    names, formats, offsets = fields.take("names", list), fields.take("formats", list), fields.take("offsets", list)
    itemsize, align = fields.take("itemsize", int), fields.take("align", bool, default=False)
    fields.done("a dtype")
    if not (len(names) == len(formats) == len(offsets) <= 1000 and all(type(n) is str and n for n in names)):
        raise Fault("'names', 'formats' and 'offsets' of a struct are lists of one length, at most 1000")
    if not all(type(n) is int and 0 <= n <= _MAX_ITEM for n in (*offsets, itemsize)):
        raise Fault(f"a struct has at most {_MAX_ITEM} bytes")
    parts = [dtype_of(part, depth + 1) for part in formats]
    try:
        spec: Any = {"names": names, "formats": parts, "offsets": offsets, "itemsize": itemsize}
        return np.dtype(spec, align=align)  # type: ignore[no-any-return]  # NumPy's stubs do not know a spec with align
    except (TypeError, ValueError) as error:
        raise Fault(f"a struct is wrong: {error}") from None


def _checked_size(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.itemsize > _MAX_ITEM:
        raise Fault(f"an element has at most {_MAX_ITEM} bytes")
    return dtype


def _no_dtype(data: str) -> NoReturn:
    raise Fault(f"there is no dtype {data[:60]!r}; dtypes are {', '.join(sorted(_NAMED))} and structs", "dtype")


def _shape(data: Data) -> tuple[int, ...]:
    if type(data) is not list or not all(type(n) is int for n in data):
        raise Fault(f"'shape' is a list of integers (got {shown(data)})", "shape")
    return as_shape(tuple(data))


def _memory(fields: _Fields) -> tuple[tuple[int, ...], np.dtype[Any], dict[str, Any]]:
    """Return shape, dtype, and where the memory is: its device, and those that have access."""
    dtype = as_dtype(dtype_of(fields.take("dtype")))
    shape = _shape(fields.take("shape", list))
    access = [_device(device, "access") for device in fields.take("access", list, default=[])]
    return shape, dtype, {"device": _device(fields.take("device", int, default=None)), "access": tuple(access)}


def _device(data: Data, field: str = "device") -> int | None:
    if data is None and field == "device":
        return None
    if type(data) is not int or not 0 <= data < 2**16:
        raise Fault(f"{field!r} holds the number of a device (got {shown(data)})", field)
    return data


def _filled(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return numbers as an array, each judged."""
    allowed: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "c": (int, float, complex)}.get(
        dtype.kind, (int, float)
    )
    for value in values:
        if type(value) not in allowed:
            raise Fault(f"{shown(value)} is no value of dtype {dtype}")
    try:
        with np.errstate(over="raise"):
            found = np.array(values, dtype).reshape(shape)
    except (OverflowError, ValueError, TypeError, FloatingPointError) as error:
        raise Fault(f"values do not fit dtype {dtype}: {error}") from None
    return found


def _initial(fields: _Fields, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    given = [key for key in ("values", "base64", "sha256") if key in fields.data]
    if len(given) > 1:
        raise Fault(f"array {name!r} has both {given[0]!r} and {given[1]!r}; give one")
    if not given:
        return None
    size = math.prod(shape)
    if given == ["sha256"]:
        digest = fields.take("sha256", str)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise Fault(f"'sha256' is 64 hexadecimal digits (got {digest[:60]!r})", "sha256")
        return UnboundValues(digest)
    if given == ["values"]:
        values = fields.take("values", list)
        if len(values) != size:
            raise Fault(
                f"array {name!r} of shape {list(shape)} has {size} elements, 'values' holds {len(values)}", "values"
            )
        found = _filled(values, shape, dtype)
    else:
        data = _bytes(fields.take("base64", str))
        if len(data) != size * dtype.itemsize:
            raise Fault(f"array {name!r} has {size * dtype.itemsize} bytes, 'base64' holds {len(data)}", "base64")
        found = np.frombuffer(data, dtype).reshape(shape).copy()
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
        # A list has no dtype of its own.
        found = np.array(value if isinstance(value, np.ndarray) else converted(value, dtype), order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(f"array {name!r}: what arrays supplies cannot be taken: {error}", array=name) from None
    _require_same(name, found.shape, found.dtype, shape, dtype)
    if isinstance(stored, UnboundValues) and sha256_of(found) != stored.sha256:
        _log.warning(
            "array %r: the values supplied are not those that the file was written with (SHA-256 differs)", name
        )
    found.flags.writeable = False
    return found


def _module(data: Data, key: str, budget: Budget) -> Module:
    if not key or ":" in key or len(key) > 200 or not key.isprintable():
        raise Fault(f"{key[:60]!r} cannot name a module: a name has 1 to 200 printable characters, and no ':'")
    fields = _Fields(data, "a module")
    spec: dict[str, Any] = {"name": fields.take("name", str, default=key)}
    if not spec["name"].isprintable() or len(spec["name"]) > 1000:
        raise Fault("a module's name has at most 1000 printable characters", "name")
    structs = fields.take("structs", dict, default={})
    layouts = {name: dtype_of(value) for name, value in structs.items()}
    if "source" in fields.data:
        source = fields.take("source", list, str)
        lines = source if isinstance(source, list) else [source]
        options = fields.take("options", list, default=[])
        headers = fields.take("headers", dict, default={})
        if not all(type(line) is str for line in (*lines, *options)):
            raise Fault("'source' and 'options' are lists of text", "source")
        if not all(type(text) is str for text in headers.values()):
            raise Fault("'headers' is an object of texts", "headers")
        fields.done("a module")
        return Module.stored("\n".join(lines), spec["name"], options, layouts, headers, budget)
    spec["file"], spec["sha256"] = fields.take("file", str), fields.take("sha256", str)
    signatures = fields.take("signatures", dict, default={})
    if not all(type(text) is str for text in signatures.values()):
        raise Fault("'signatures' is an object of parameter lists", "signatures")
    spec["signatures"] = signatures
    spec["structs"] = structs
    fields.done("a module")
    return Module.from_dict(spec)
