"""Convert values and views to plain data, as the fields of nodes in a file hold them.

`Names` resolves the names in a file; the writer of documents uses it, and the reader extends it. `reading` reads what only files
hold.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays import Access, Array, ArrayView, Expression, Parameter, Viewable, kind_of, own_copy, read_expression
from ..errors import DeclarationError, listed, shown
from ..kernels import Kernel, Module, Symbol
from ..kernels.layouts import dtype_data

MAX_VALUES = 4096
"""Array values are stored up to this number of elements."""

MAX_DIGITS = 40
"""Maximum number of digits of an int in a file."""

MAX_NAME = 200
"""Maximum number of characters of the name of a node, an array or a graph."""

Data = Any
"""What JSON holds: None, bool, int, float, str, list and dict with str keys."""


def unique(name: str, taken: Container[str]) -> str:
    """Return `name`, with a number appended if it is taken; a long name is truncated to make room for the number."""
    found, n = name, 1
    while found in taken:
        n += 1
        found = f"{name[:180].rstrip()}_{n}"
    return found


def fitting(name: str) -> str:
    """Return a name made of others; if it is too long for a name, a digest replaces its end, so that it stays unique."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:180].rstrip()}... {hashlib.blake2b(name.encode(), digest_size=5).hexdigest()}"


def unused(name: str, *taken: Container[str]) -> str:
    """Return `name`, with tildes appended while it is taken; for nodes and arrays that the user did not declare."""
    while any(name in names for names in taken):
        name += "~"
    return name


# -- JSON Schema -------------------------------------------------------------------------------------------------------


def ref(name: str) -> dict[str, Any]:
    """Return a JSON Schema reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def record(properties: dict[str, Any], required: str = "", **more: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    out: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    if required:
        out["required"] = required.split()
    return out


def list_of(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item, **more}


def map_of(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an object with arbitrary keys."""
    return {"type": "object", "additionalProperties": item, **more}


COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
FLAG: dict[str, Any] = {"type": "boolean"}
DEVICE = {**COUNT, "maximum": 2**16 - 1, "description": "Number of a device; without it, that of compile."}
MEMORY = {"device": DEVICE, "access": list_of(DEVICE, description="Other devices whose kernels may reach the memory.")}
SHAPE = list_of({"type": "integer", "minimum": 1}, maxItems=32)


# -- names -------------------------------------------------------------------------------------------------------------


def _selectors(text: str) -> Iterator[str]:
    """Yield the parts of a selection between its commas, except those of functions."""
    depth, part = 0, ""
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            yield part
            part = ""
        else:
            part += c
    yield part


class Names:
    """The arrays, parameters, modules and workflows that names in a file refer to; context for writing and reading nodes.

    Parameters
    ----------
    arrays, parameters : mapping
        The graph's arrays and parameters, by name.
    modules, workflows : mapping, optional
        Modules of kernels and child workflows, by their keys in the file. Writing adds those that are missing.
    strict : bool
        False writes ``{"python": text}`` for what cannot be stored in a file; such data is for display and does not load.
    values : bool
        Whether arrays are written with their values.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array] = MappingProxyType({}),
        parameters: Mapping[str, Parameter] = MappingProxyType({}),
        modules: MutableMapping[str, Module] | None = None,
        workflows: MutableMapping[str, Any] | None = None,
        *,
        strict: bool = True,
        values: bool = True,
    ) -> None:
        self.arrays = arrays
        self.parameters = parameters
        self.modules: MutableMapping[str, Module] = {} if modules is None else modules
        self.workflows: MutableMapping[str, Any] = {} if workflows is None else workflows
        self.strict = strict
        self.values = values
        self._module_keys = {module: key for key, module in self.modules.items()}
        self._workflow_keys = {id(workflow): key for key, workflow in self.workflows.items()}
        self._kernels: dict[str, Kernel] = {}
        self.launches: Any = None  # `nodes.kernel.Launches` of the draft that a file is read into

    # -- writing

    def key_of_module(self, module: Module) -> str:
        """Return the key of a module in the file; a new module is added."""
        key = self._module_keys.get(module)
        if key is None:
            key = self._module_keys[module] = unique(module.name.replace(":", "_")[:200], self.modules)
            self.modules[key] = module
        return key

    def key_of_workflow(self, workflow: Any) -> str:
        """Return the key of a child workflow in the file; a new workflow is added."""
        key = self._workflow_keys.get(id(workflow))
        if key is None:
            key = self._workflow_keys[id(workflow)] = unique(workflow.name, self.workflows)
            self.workflows[key] = workflow
        return key

    def view_data(self, view: ArrayView) -> Data:
        """Return a view as data: ``"x[0:4]"``, or an object tagged as a view of a parameter or a symbol."""
        root = view.root
        if isinstance(root, Symbol):
            return {"symbol": f"{self.key_of_module(root.module)}:{view.name}"}
        if isinstance(root, Parameter):
            return {"param": view.name}
        return view.name

    def value_data(self, value: Any) -> Data:
        """Return an argument as data; raise DeclarationError if JSON cannot represent it and `strict` is set."""
        kind = type(value)
        if kind is ArrayView:
            return self.view_data(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if abs(value) >= 10**MAX_DIGITS:
                raise DeclarationError(f"an int of more than {MAX_DIGITS} digits is too long")
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is Parameter or kind is Expression:
            return {"param": value.name}
        if kind is Access:
            return {value.mode: self.view_data(value.view)}
        try:
            return self._rare_value_data(value)
        except DeclarationError:
            if self.strict:
                raise
            return {"python": shown(value)}

    def _rare_value_data(self, value: Any) -> Data:
        kind = type(value)
        if kind is complex:
            return {"complex": [self.value_data(value.real), self.value_data(value.imag)]}
        if kind is str:
            return {"str": value}
        if kind is bytes:
            return {"bytes": base64_text(value)}
        if kind is tuple:
            return {"tuple": [self.value_data(item) for item in value]}
        if kind is list:
            return [self.value_data(item) for item in value]
        if kind is dict:
            if not all(type(key) is str for key in value):
                raise DeclarationError(f"a dict whose keys are not all strings ({shown(value)})")
            return {"dict": {key: self.value_data(item) for key, item in value.items()}}
        if isinstance(value, np.void) or (isinstance(value, np.generic) and _has_payload(value)):
            return {"struct": dtype_data(value.dtype), "base64": base64_text(value.tobytes())}
        if isinstance(value, np.generic) and is_stored(value.dtype):
            return {"numpy": dtype_data(value.dtype), "value": self.value_data(_plain(value))}
        if kind is np.ndarray:
            if value.size > MAX_VALUES:
                raise DeclarationError(
                    f"a value of {value.size} elements, and at most {MAX_VALUES} are stored; declare a host_array of these"
                    " values and give that"
                )
            if not is_stored(value.dtype):
                raise DeclarationError(f"an array of dtype {value.dtype}")
            text = base64_text(own_copy(value).tobytes())
            return {"ndarray": dtype_data(value.dtype), "shape": list(value.shape), "base64": text}
        if isinstance(value, Viewable):
            return self.view_data(value.as_view())
        raise DeclarationError(f"{shown(value)} of type {kind.__module__}.{kind.__qualname__} has no form in JSON")

    # -- reading

    def member(self, reference: str) -> tuple[Module, str]:
        """Resolve ``"module:name"`` to the module and the name."""
        if type(reference) is not str:
            raise DeclarationError(f"a module's member is 'module:name' (got {shown(reference)})")
        key, colon, name = reference.partition(":")
        module = self.modules.get(key)
        if not colon or not name:
            raise DeclarationError(f"{reference[:60]!r} is no reference to a module's member; write 'module:name'")
        if module is None:
            raise DeclarationError(f"there is no module {key[:60]!r}; the file's modules are {listed(self.modules)}")
        return module, name

    def kernel(self, reference: str) -> Kernel:
        """Resolve ``"module:name"`` to a kernel."""
        kernel = self._kernels.get(reference) if type(reference) is str else None
        if kernel is None:
            module, name = self.member(reference)
            kernel = self._kernels[reference] = module[name]
        return kernel

    def workflow(self, key: Data) -> Any:
        """Return the child workflow with this key."""
        if type(key) is not str:
            raise DeclarationError(f"a child is named by its key in 'workflows' (got {shown(key)})")
        workflow = self.workflows.get(key)
        if workflow is None:
            raise DeclarationError(f"there is no workflow {key[:60]!r} in 'workflows'")
        return workflow

    def callback(self, path: str, node: str) -> Any:
        """Return the callable supplied for an import path or a node, or None."""
        return None

    def array(self, name: str) -> Array:
        """Return the array with this name."""
        array = self.arrays.get(name) if isinstance(name, str) else None  # of a file
        if array is None:
            raise DeclarationError(f"there is no array {shown(name)} above this line; arrays are {listed(self.arrays)}")
        return array

    def parameter(self, name: str) -> Parameter:
        """Return the parameter with this name."""
        parameter = self.parameters.get(name)
        if parameter is None:
            raise DeclarationError(f"there is no parameter {name[:60]!r}; parameters are {listed(self.parameters)}")
        return parameter

    def selected(self, text: str, find: Callable[[str], Any]) -> Any:
        """Resolve ``name`` or ``name[selection]``; `find` resolves the name."""
        name, bracket, rest = text.partition("[")
        root = find(name)
        if not bracket:
            return root
        if not rest.endswith("]") or len(text) > 2000:
            raise DeclarationError(f"{text[:60]!r} is no view; write 'x[3, 8:248, 0:10:2]'")
        keys: list[Any] = []
        for part in _selectors(rest[:-1]):
            try:
                bounds = [self._bound(n.strip()) for n in part.split(":")]
            except DeclarationError as error:
                raise DeclarationError(f"{text[:60]!r} is no view: {error}") from None
            if len(bounds) > 3:
                raise DeclarationError(f"{text[:60]!r} is no view: {part[:40]!r} is no slice 'start:stop:step'")
            keys.append(bounds[0] if len(bounds) == 1 else slice(*bounds))
        return root[tuple(keys)]

    def _bound(self, text: str) -> Any:
        """Return an index or a bound of a slice."""
        if text.isascii() and text.isdigit() and len(text) <= 20:
            return int(text)
        found = read_expression(text, self.parameter)
        if not isinstance(found, Parameter):
            raise DeclarationError(f"{text[:40]!r} is neither an index from 0 up nor an expression of parameters")
        return found

    def view(self, data: Data) -> ArrayView:
        """Return the view that data represents."""
        value = self.value(data)
        if not isinstance(value, ArrayView):
            raise DeclarationError(f"an array or a view such as 'x[0:4]' is expected (got {shown(data)})")
        return value

    def value(self, data: Data) -> Any:
        """Return the value that data represents."""
        kind = type(data)
        if kind is str:
            whole = self.arrays.get(data)
            if whole is not None:
                return whole.as_view()
            found = self.selected(data, self.array)
            return found if isinstance(found, ArrayView) else found.as_view()
        if kind is list:
            return [self.value(item) for item in data]
        if kind is not dict:
            return data
        from .reading import tagged

        return tagged(data, self)


def is_stored(dtype: np.dtype[Any]) -> bool:
    """Return whether a file can store values of a dtype: numbers up to 64 bits, complex numbers of these, and structs."""
    kind = kind_of(dtype)
    return (kind in "biuV" and not dtype.hasobject) or (kind in "fc" and dtype.itemsize <= (16 if kind == "c" else 8))


def _has_payload(value: np.generic) -> bool:
    """Return whether a NumPy scalar is a NaN whose bits are not those that ``{"float": "nan"}`` stands for."""
    is_nan = kind_of(value.dtype) == "f" and bool(value != value)
    return is_nan and is_stored(value.dtype) and np.array(math.nan).astype(value.dtype).tobytes() != value.tobytes()


def _plain(value: np.generic) -> Any:
    """Return a NumPy scalar as a Python number of exactly the same value."""
    return value.item()


def base64_text(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def memory_data(array: Array) -> dict[str, Data]:
    """Return dtype, shape, device and access of an array as data."""
    out: dict[str, Data] = {"dtype": dtype_data(array.dtype), "shape": list(array.shape)}
    if array.device is not None:
        out["device"] = array.device
    if array.access:
        out["access"] = list(array.access)
    return out
