"""Build a workflow from the data of a workflow file: replay the declarations and validate every field."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from ..arrays import (
    Array,
    DeviceArray,
    ExternalArray,
    HostArray,
    UnboundValues,
    as_dict,
    as_dtype,
    as_rank,
    converted,
    from_file,
    own_copy,
)
from ..arrays.coercion import as_path
from ..draft import Draft
from ..errors import DeclarationError, listed, shown
from ..kernels import Module
from ..nodes.base import Node, a_or_an, check_name
from ..nodes.reading import Members, bytes_of, dtype_of, filled, memory_of, shape_of, wrong_type
from ..nodes.values import Data, Names
from ..source import Budget
from .text import MAX_NODES, Document, LineOf, Place
from .writer import LISTS, VERSION, sha256_of

_log = logging.getLogger("hipgraphdsl")

W = TypeVar("W")

_TOP = ("hipgraphdsl", "modules", "workflows")  # what only the outermost workflow has


class Loader(Generic[W]):
    """Loads one document, children first.

    Parameters
    ----------
    kinds : mapping of str to type
        Classes of nodes by kind.
    make : callable
        Turns a Draft into a workflow.
    arrays : mapping
        By array name (in a child ``<workflow>/<array>``): values for arrays, which may differ from those that the file was
        written with (a warning is logged if the file holds a different hash), and objects for external arrays.
    callbacks : mapping
        Callables by import path, by function name or by node name. A node without one holds an `UnboundCallback`, for which
        compile raises an error that names it.
    file : str or path
        Name of the file, for the places of nodes; it is not opened.
    """

    def __init__(
        self,
        kinds: Mapping[str, type[Node]],
        make: Callable[[Draft], W],
        arrays: Mapping[str, Any] | None,
        callbacks: Mapping[str, Callable[..., Any]] | None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kinds = kinds
        self.make = make
        self.file = "<workflow file>" if file is None else str(as_path(file, "file"))
        self.arrays = as_dict(arrays, "arrays")
        self.callbacks = as_dict(callbacks, "callbacks")
        self.used: set[str] = set()
        """Keys of `callbacks` that a node uses."""
        self.known_arrays: dict[str, None] = {}
        self.known_callbacks: dict[str, None] = {}
        self.modules: dict[str, Module] = {}
        self.children: dict[str, W] = {}
        self.declared: Mapping[str, Data] = {}
        self.document: Document
        self.sizes: dict[str, int] = {}
        """Number of nodes of each workflow; a child's nodes count once per use."""
        for name, fn in self.callbacks.items():
            if not callable(fn):
                raise DeclarationError(f"callbacks[{name!r}] is a callable (got {shown(fn)})")

    def text(self, text: Any) -> W:
        """Return the workflow that a text describes; errors name line and field. Does not run, compile or import anything."""
        if not isinstance(text, str):
            raise DeclarationError(f"a workflow file is text (got {type(text).__name__})")
        text = text.removeprefix("\ufeff")
        return self._loaded(Document(text))

    def data(self, data: Data, line_of: LineOf | None = None) -> W:
        """Return the workflow that plain data describes; errors as for `text`, with lines only by `line_of`."""
        if not isinstance(data, dict):
            if isinstance(data, (str, bytes)):
                raise DeclarationError(
                    f"the document of a workflow is a dict (got text: {shown(data)}); Graph.from_json and"
                    " Workflow.model_validate_json read text"
                )
            raise DeclarationError(f"a workflow file begins with '{{', and its document is a dict (got {shown(data)})")
        try:
            text = json.dumps(data, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DeclarationError(f"this is no workflow: {error}") from None
        return self._loaded(Document(text, numbered=False, line_of=line_of))

    def _loaded(self, document: Document) -> W:
        self.document = document
        data = document.data
        if "hipgraphdsl" not in data:
            document.refuse((), "this is no hipgraphdsl workflow: it has no field 'hipgraphdsl' with the version of the format")
        version = data["hipgraphdsl"]
        if type(version) is not int or version < 1:
            document.refuse(("hipgraphdsl",), f"the version is an integer from 1 (got {shown(version)})")
        if version > VERSION:
            document.refuse(
                ("hipgraphdsl",),
                f"the file has version {version} of the format, and this hipgraphdsl reads up to {VERSION}; install a newer"
                " hipgraphdsl",
            )
        budget = Budget()  # shared by all modules, so that many small ones cost no more than a large one
        for key, module in self.members(data, "modules"):
            with self.at("modules", key):
                if not isinstance(module, dict) or not module:
                    raise DeclarationError("a module is an object {...} with its source or its file")
                self.modules[key] = module_of(module, key, budget)
        self.declared = dict(self.members(data, "workflows"))
        for key, child in self.declared.items():
            with self.at("workflows", key):
                check_name(key, "workflow")
                if not isinstance(child, dict):
                    raise DeclarationError(f"a workflow begins with '{{' (got {shown(child)})")
            self.children[key] = self.make(_Section(self, child, key).draft())
        workflow = self.make(_Section(self, data, "").draft())
        if self.arrays or self.callbacks:
            self._refuse_unused()
        return workflow

    def members(self, data: dict[str, Data], key: str) -> Iterator[tuple[str, Data]]:
        """Return the members of a member of the document."""
        found = data.get(key, {})
        if not isinstance(found, dict):
            self.document.refuse((key,), f"{key} begins with '{{' (got {shown(found)})")
        return iter(found.items())

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Add the place of an element to errors raised inside."""
        try:
            yield
        except (DeclarationError, RecursionError) as error:
            self.refuse(place, error)

    def refuse(self, place: Place, error: Exception) -> NoReturn:
        """Raise the error of an element with its place."""
        message = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        node, array, field = (getattr(error, what, None) for what in ("node", "array", "field"))
        self.document.refuse((*place, field) if field else place, message, node=node, array=array)

    def _refuse_unused(self) -> None:
        for name in self.arrays:
            if name not in self.known_arrays:
                why = f"which the file does not declare; its arrays are {listed(self.known_arrays)}"
                raise DeclarationError(f"arrays has {name!r}, {why}", array=name)
        for name in self.callbacks:
            if name not in self.used:
                why = f"which no node of the file uses; its callbacks are {listed(self.known_callbacks)}"
                raise DeclarationError(f"callbacks has {name!r}, {why}")

    def array(self, name: str) -> Any:
        """Return the value supplied for an array, or None."""
        self.known_arrays[name] = None
        return self.arrays.get(name)

    def callback(self, path: str, node: str, prefix: str) -> Any:
        """Return the callable supplied for a node, or None."""
        self.known_callbacks[path] = None
        found: Any = None
        for key in (prefix + node, node, path, path.rpartition(":")[2]):
            if key in self.callbacks:
                self.used.add(key)
                found = found or self.callbacks[key]
        return found


class _Section(Names):
    """Reads one workflow of a document."""

    def __init__(self, loader: Loader[Any], data: dict[str, Data], key: str) -> None:
        self.loader = loader
        self.key = key
        self.place: Place = ("workflows", key) if key else ()
        self.prefix = f"{key}/" if key else ""
        self.data = data
        with loader.at(*self.place):
            for field in data:
                if field not in ("name", "infer", *LISTS, *(() if key else _TOP)):
                    where = ", and modules stand at the top of the file" * (field == "modules")
                    raise DeclarationError(f"a workflow has no field {field[:60]!r}{where}")
            if "name" not in data and not key:
                raise DeclarationError("field 'name' is missing")
            infer = data.get("infer", True)
            if type(infer) is not bool:
                raise DeclarationError(f"'infer' is true or false (got {shown(infer)})", field="infer")
        with loader.at(*self.place, "name"):
            self.made = Draft(data.get("name", key), infer)
        super().__init__(self.made.arrays, self.made.parameters, loader.modules, loader.children)
        self.launches = self.made.launches

    def draft(self) -> Draft:
        """Return the draft that the section declares."""
        lines = self.loader.document.lines.get(self.place, ())
        self._replay("arrays", lambda data: self.made.add_array(array_of(data, self.arrays, self.prefix, self.loader.array)))
        self._replay("parameters", lambda data: self.made.add_parameter(*parameter_of(data, self)))
        self._replay("nodes", self._node, lines)
        self._replay("order", self._edge)
        return self.made

    def _replay(self, key: str, declare: Callable[..., object], lines: Iterable[int] = ()) -> None:
        """Declare each element of a list, and release its data, so that data and workflow are not in memory at the same time."""
        elements = self.data.get(key, [])
        if not isinstance(elements, list):
            self.loader.document.refuse((*self.place, key), f"{key} begins with '[' (got {shown(elements)})")
        wanted = list if key == "order" else dict
        for index, (data, line) in enumerate(zip(elements, chain(lines, repeat(0)))):
            try:
                if type(data) is not wanted or not data:
                    raise DeclarationError(f"{LISTS[key]} (got {shown(data) if data else 'an empty one'})")
                declare(data, line) if key == "nodes" else declare(data)
            except (DeclarationError, RecursionError) as error:
                name = data.get("name") if key == "nodes" and type(data) is dict else None
                if isinstance(error, DeclarationError) and type(name) is str:
                    error.node = error.node or name
                self.loader.refuse((*self.place, key, index), error)
            elements[index] = None

    def _node(self, data: dict[str, Data], line: int) -> None:
        if "kind" not in data:
            raise DeclarationError("field 'kind' is missing")
        kind = data.pop("kind")
        if type(kind) is not str:
            raise wrong_type("kind", kind, (str,), field="kind")
        model = self.loader.kinds.get(kind)
        if model is None:
            from ..extensions import who_knows

            who = who_knows(kind[:60]) or f"kinds are {', '.join(self.loader.kinds)}"
            raise DeclarationError(f"there is no kind {kind[:60]!r}; {who}", field="kind")
        self._count(1)
        if "source" in data:
            raise DeclarationError(f"{a_or_an(kind)} node has no field 'source'")
        self.made.add(model.from_data(data, self, (self.loader.file, line)))

    def _edge(self, data: list[Data]) -> None:
        if len(data) != 2 or not all(type(name) is str for name in data):
            raise DeclarationError(f"an edge is [earlier node, later node] (got {shown(data)})")
        self.made.order(*self.made.names_of(data))

    # -- resolving names

    def callback(self, path: str, node: str) -> Any:
        return self.loader.callback(path, node, self.prefix)

    def workflow(self, key: Data) -> Any:
        if type(key) is str and key in self.loader.declared and key not in self.workflows:
            raise DeclarationError(f"workflow {key[:60]!r} stands after this one; inner workflows come first")
        workflow = super().workflow(key)
        self._count(self.loader.sizes.get(key, 0))
        return workflow

    def _count(self, nodes: int) -> None:
        sizes = self.loader.sizes
        sizes[self.key] = sizes.get(self.key, 0) + nodes
        if sizes[self.key] > MAX_NODES:
            raise DeclarationError(
                f"a workflow holds at most {MAX_NODES} nodes, those of child graphs counted as often as they are used"
            )


# -- arrays, parameters and modules


def array_of(data: Data, taken: Container[str], prefix: str, supply: Callable[[str], Any]) -> Array:
    """Return the array that data represents; `supply` returns the caller's value for ``prefix + name``, or None."""
    fields = Members(data, "an array")
    name = check_name(fields.take("name", str), "array")
    kind = fields.take("kind", str)
    if name in taken:
        raise DeclarationError(f"array {name!r} is declared twice")
    shape, dtype, where = memory_of(fields)
    full = prefix + name
    supplied = supply(full)
    array: Array
    if kind == "external":
        location, writeable = fields.take("location", str, default="host"), fields.take("writeable", bool, default=True)
        if location not in ("host", "device"):
            raise DeclarationError(f"'location' is 'host' or 'device' (got {location[:60]!r})")
        array = ExternalArray(name, shape, dtype, location=location, writeable=writeable, **where)
        if supplied is not None:
            array = ExternalArray.wrap(name, supplied, device=array.device)
            _require_same(name, array.shape, array.dtype, shape, dtype)
            if array.location != location:
                raise DeclarationError(f"array {name!r} is {location} memory; arrays[{full!r}] is {array.location} memory")
            if writeable and not array.writeable:
                raise DeclarationError(f"array {name!r} is written; arrays[{full!r}] is read-only")
            array = replace(array, writeable=writeable, access=where["access"])
    elif kind in ("host", "device"):
        if kind == "host":
            where["pinned"] = fields.take("pinned", bool, default=True)
            where["rank"] = as_rank(fields.take("rank", int, str, default=0), "host array")
        initial = _initial(fields, name, shape, dtype)
        if supplied is not None:
            initial = _supplied(name, supplied, initial, shape, dtype)
        array = (HostArray if kind == "host" else DeviceArray)(name, shape, dtype, initial=initial, **where)
    else:
        raise DeclarationError(f"'kind' of an array is 'host', 'device' or 'external' (got {kind[:60]!r})", field="kind")
    if array.access and array.on_host:
        raise DeclarationError(f"array {name!r} is host memory, and 'access' is for memory of a device")
    fields.done(f"{kind} array {name!r}")
    return array


def _initial(fields: Members, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    given = [*filter(fields.data.__contains__, ("values", "base64", "sha256"))]
    if len(given) > 1:
        raise DeclarationError(f"array {name!r} has both {given[0]!r} and {given[1]!r}; give one")
    if not given:
        return None
    size = math.prod(shape)
    if given == ["sha256"]:
        digest = fields.take("sha256", str)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise DeclarationError(f"'sha256' is 64 hexadecimal digits (got {digest[:60]!r})")
        return UnboundValues(digest)
    if given == ["values"]:
        values = fields.take("values", list)
        if len(values) != size:
            raise DeclarationError(f"array {name!r} of shape {list(shape)} has {size} elements, 'values' holds {len(values)}")
        found = filled(values, shape, dtype)
    else:
        data = bytes_of(fields.take("base64", str))
        if len(data) != size * dtype.itemsize:
            raise DeclarationError(f"array {name!r} has {size * dtype.itemsize} bytes, 'base64' holds {len(data)}")
        found = own_copy(np.frombuffer(data, dtype).reshape(shape))
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
        if isinstance(value, np.ndarray):
            value = from_file(value, dtype)
        # A list has no dtype, so it is converted; an ndarray must have the array's dtype.
        found = own_copy(value if isinstance(value, np.ndarray) else converted(value, dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(f"array {name!r}: what arrays supplies cannot be taken: {error}", array=name) from None
    _require_same(name, found.shape, found.dtype, shape, dtype)
    if isinstance(stored, UnboundValues) and sha256_of(found) != stored.sha256:
        _log.warning("array %r: the values supplied are not those that the file was written with (SHA-256 differs)", name)
    found.flags.writeable = False
    return found


def parameter_of(data: Data, names: Names) -> tuple[str, np.dtype[Any], Any, tuple[int, ...], bool, int | None, int | None]:
    """Return name, dtype, default, shape, `copy`, `min` and `max` of the parameter that data represents."""
    with Members(data, "a parameter") as fields:
        name = fields.take("name", str)
        dtype = as_dtype(dtype_of(fields.take("dtype")))
        shape = shape_of(fields.take("shape", list, default=[]))
        default = names.value(fields.take("default", default=None))
        copy = fields.take("copy", bool, default=False)
        least, most = (fields.take(key, int, default=None) for key in ("min", "max"))
        fields.done(f"parameter {name[:60]!r}")
    return name, dtype, default, shape, copy, least, most


def module_of(data: Data, key: str, budget: Budget) -> Module:
    """Return the module that data under a key of the file represents; `budget` limits how much of its source is parsed."""
    if not key or ":" in key or len(key) > 200 or not key.isprintable():
        raise DeclarationError(f"{key[:60]!r} cannot name a module: a name has 1 to 200 printable characters, and no ':'")
    fields = Members(data, "a module")
    name = fields.take("name", str, default=key)
    structs = fields.take("structs", dict, default={})
    layouts = {struct: dtype_of(value) for struct, value in structs.items()}
    if "source" in fields.data:
        source = fields.take("source", list, str)
        lines = source if isinstance(source, list) else [source]
        options = fields.take("options", list, default=[])
        headers = fields.take("headers", dict, default={})
        if {*map(type, lines), *map(type, options)} - {str}:
            raise DeclarationError("'source' and 'options' are lists of text")
        if {*map(type, headers.values())} - {str}:
            raise DeclarationError("'headers' is an object of texts")
        fields.done("a module")
        return Module.stored("\n".join(lines), name, options, layouts, headers, budget)
    file, digest = fields.take("file", str), fields.take("sha256", str)
    signatures = fields.take("signatures", dict, default={})
    if {*map(type, signatures.values())} - {str}:
        raise DeclarationError("'signatures' is an object of parameter lists")
    fields.done("a module")
    return Module.from_dict({"name": name, "file": file, "sha256": digest, "signatures": signatures, "structs": structs})
