"""The elements of a workflow file -> a Graph: replays the declarations, and judges every field."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, DeviceArray, ExternalArray, HostArray, UnboundValues, as_dict, as_dtype, converted
from ..errors import DeclarationError
from ..kernels import Module
from ..nodes import KINDS
from ..nodes.base import check_name
from ..nodes.values import Data, Fault, Members, Names, bytes_of, dtype_of, filled, memory_of, shape_of, shown
from ..source import Budget
from ..workflow import Workflow
from .document import MAX_CHILD_DEPTH, VERSION, sha256_of
from .json_text import MAX_NODES, Item, Section

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["Builder"]

_log = logging.getLogger("hipgraphdsl")


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
            root.item.refuse("this is no hipgraphdsl workflow: it has no field 'hipgraphdsl' with the version of the format")
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
                raise DeclarationError(f"callbacks has {name!r}, which no node of the file uses; its callbacks are {shown}")

    def callback(self, path: str, node: str, prefix: str) -> Any:
        """Return the callable that was supplied for a node, or None."""
        self.known_callbacks[path] = None
        found: Any = None
        for key in (prefix + node, node, path, path.rpartition(":")[2]):
            if key in self.callbacks:
                self.used_callbacks.add(key)
                found = found or self.callbacks[key]
        return found


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


class _Workflow(Names):
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
        super().__init__(self.graph.arrays, self.graph.parameters, builder.modules, builder.children)
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
        fields = Members(data, "an array")
        name = check_name(fields.take("name", str), "array")
        kind = fields.take("kind", str)
        if name in self.graph.arrays:
            raise Fault(f"array {name!r} is declared twice")
        shape, dtype, where = memory_of(fields)
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
        fields = Members(data, "a parameter")
        name = fields.take("name", str)
        dtype = as_dtype(dtype_of(fields.take("dtype")))
        shape = shape_of(fields.take("shape", list, default=[]))
        default = self.value(fields.take("default", default=None))
        copy = fields.take("copy", bool, default=False)
        fields.done(f"parameter {name[:60]!r}")
        self.graph.param(name, dtype, default, shape, copy=copy)

    # -- nodes

    def _node(self, item: Item) -> None:
        members = Members(item.value, "a node")
        kind = members.take("kind", str)
        if kind not in KINDS:
            raise Fault(f"there is no kind {kind[:60]!r}; kinds are {', '.join(KINDS)}", "kind")
        self._count(1)
        self.graph.add(KINDS[kind].from_data(members, self, ("<workflow file>", item.line)))

    # -- what names stand for

    def callback(self, path: str, node: str) -> Any:
        return self.builder.callback(path, node, self.prefix)

    def workflow(self, key: Data) -> Workflow:
        workflow: Workflow = super().workflow(key)
        depths = self.builder.depths
        depth = depths.get(key, 0) + 1
        if depth > MAX_CHILD_DEPTH:
            raise Fault(f"child graphs are nested deeper than {MAX_CHILD_DEPTH}")
        depths[self.key] = max(depths.get(self.key, 0), depth)
        self._count(self.builder.sizes.get(key, 0))
        return workflow

    def _no_workflow(self, key: str) -> str:
        if key in self.builder.root.children:
            return f"workflow {key[:60]!r} stands after this one; inner workflows come first"
        return super()._no_workflow(key)

    def _count(self, nodes: int) -> None:
        sizes = self.builder.sizes
        sizes[self.key] = sizes.get(self.key, 0) + nodes
        if sizes[self.key] > MAX_NODES:
            raise Fault(f"a workflow holds at most {MAX_NODES} nodes, those of child graphs counted as often as they are used")


def _initial(fields: Members, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
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
            raise Fault(f"array {name!r} of shape {list(shape)} has {size} elements, 'values' holds {len(values)}", "values")
        found = filled(values, shape, dtype)
    else:
        data = bytes_of(fields.take("base64", str))
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
        _log.warning("array %r: the values supplied are not those that the file was written with (SHA-256 differs)", name)
    found.flags.writeable = False
    return found


def _module(data: Data, key: str, budget: Budget) -> Module:
    if not key or ":" in key or len(key) > 200 or not key.isprintable():
        raise Fault(f"{key[:60]!r} cannot name a module: a name has 1 to 200 printable characters, and no ':'")
    fields = Members(data, "a module")
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
