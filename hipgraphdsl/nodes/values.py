"""Convert values, views and dtypes to plain data, as the fields of nodes in a file hold them, and back.

`Names` resolves the names in a file; the writer of documents uses it, and the reader extends it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays import (
    NAMES,
    Access,
    Array,
    ArrayView,
    Parameter,
    Viewable,
    as_dtype,
    as_shape,
    converted,
    dtype_named,
    kind_of,
    own_copy,
)
from ..errors import DeclarationError, listed, shown
from ..kernels import Kernel, Module, Symbol
from ..kernels.layouts import dtype_data

MAX_VALUES = 4096
"""Array values are stored up to this number of elements."""

MAX_DIGITS = 40
"""Maximum number of digits of an int in a file."""

MAX_NAME = 200
"""Maximum number of characters of the name of a node, an array or a graph."""

_MAX_ITEM = 2**20  # bytes of an element

Data = Any
"""What JSON holds: None, bool, int, float, str, list and dict with str keys."""


class Members:
    """The members of one JSON object; each is taken once, and `done` rejects members that were not taken."""

    def __init__(self, data: Data, what: str) -> None:
        if not isinstance(data, dict):
            raise DeclarationError(f"{what} is an object {{...}} (got {shown(data)})")
        self.data = dict(data)

    def take(self, key: str, *types: type, default: Any = ...) -> Any:
        """Remove and return a key's value; raise DeclarationError if it is missing without a default or of none of `types`."""
        if key not in self.data:
            if default is ...:
                raise DeclarationError(f"field {key!r} is missing")
            return default
        value = self.data.pop(key)
        if types and type(value) not in types:
            raise wrong_type(key, value, types)
        return value

    def done(self, what: str) -> None:
        """Raise DeclarationError if a member has not been taken."""
        if self.data:
            key = next(iter(self.data))
            raise DeclarationError(f"{what} has no field {key[:60]!r}")


def wrong_type(key: str, value: Data, types: Iterable[type]) -> DeclarationError:
    """Return the error that the value of a key has none of these types."""
    return DeclarationError(f"{key!r} is {' or '.join(_JSON_NAMES[t] for t in types)} (got {shown(value)})")


_JSON_NAMES: dict[type, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


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
        if kind is Parameter:
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
        if isinstance(value, np.void):
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
        if not isinstance(name, str):
            raise wrong_type("array", name, (str,))
        array = self.arrays.get(name)
        if array is None:
            raise DeclarationError(f"there is no array {name[:60]!r} above this line; arrays are {listed(self.arrays)}")
        return array

    def parameter(self, name: str) -> Parameter:
        """Return the parameter with this name."""
        parameter = self.parameters.get(name)
        if parameter is None:
            raise DeclarationError(f"there is no parameter {name[:60]!r}; parameters are {listed(self.parameters)}")
        return parameter

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
            found = _selected(data, self.array)
            return found if isinstance(found, ArrayView) else found.as_view()
        if kind is list:
            return [self.value(item) for item in data]
        if kind is not dict:
            return data
        tag = next(iter(data), None)
        read = _TAGS.get(tag) if tag is not None else None
        if read is None:
            raise DeclarationError(f"{shown(data)} is no value; an object has one of the tags {', '.join(_TAGS)}")
        return read(self, Members(data, "a value"))


def is_stored(dtype: np.dtype[Any]) -> bool:
    """Return whether a file can store values of a dtype: numbers up to 64 bits, complex numbers of these, and structs."""
    kind = kind_of(dtype)
    return (kind in "biuV" and not dtype.hasobject) or (kind in "fc" and dtype.itemsize <= (16 if kind == "c" else 8))


def _plain(value: np.generic) -> Any:
    """Return a NumPy scalar as a Python number of exactly the same value."""
    return value.item()


def base64_text(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def _selected(text: str, find: Callable[[str], Any]) -> Any:
    """Resolve ``name`` or ``name[selection]``; `find` resolves the name."""
    name, bracket, rest = text.partition("[")
    root = find(name)
    if not bracket:
        return root
    if not rest.endswith("]") or len(text) > 2000:
        raise DeclarationError(f"{text[:60]!r} is no view; write 'x[3, 8:248, 0:10:2]'")
    keys: list[int | slice] = []
    for part in rest[:-1].split(","):
        numbers = part.strip().split(":")
        if len(numbers) > 3 or not all(n.isascii() and n.isdigit() and len(n) <= 20 for n in numbers):
            raise DeclarationError(f"{text[:60]!r} is no view: {part[:40]!r} is neither an index nor a slice 'start:stop:step'")
        bounds = [int(n) for n in numbers]
        keys.append(bounds[0] if len(bounds) == 1 else slice(*bounds))
    return root[tuple(keys)]


def _tagged_param(names: Names, members: Members) -> Any:
    text = _only(members, "param", str)
    found = _selected(text, names.parameter)
    return found.as_view() if isinstance(found, Parameter) and found.shape else found


def _tagged_symbol(names: Names, members: Members) -> Any:
    module, rest = names.member(_only(members, "symbol", str))
    return _selected(rest, module.symbol).as_view()


def _tagged_access(mode: Any) -> Callable[[Names, Members], Any]:
    return lambda names, members: Access(names.view(_only(members, mode)), mode)


def _tagged_float(names: Names, members: Members) -> float:
    text = _only(members, "float", str)
    if text not in ("nan", "inf", "-inf"):
        raise DeclarationError(f"'float' is 'nan', 'inf' or '-inf' (got {text[:60]!r})")
    return float(text)


def _tagged_complex(names: Names, members: Members) -> complex:
    parts = [names.value(part) for part in _only(members, "complex", list)]
    if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
        raise DeclarationError("'complex' is [real, imaginary]")
    return complex(*parts)


def _tagged_numpy(names: Names, members: Members) -> Any:
    dtype = dtype_of(members.take("numpy"))
    value = names.value(members.take("value"))
    members.done("a NumPy value")
    if type(value) not in (bool, int, float, complex) or dtype.names is not None:
        raise DeclarationError(f"'value' of a NumPy value is a number (got {shown(value)})")
    return filled((value,), (1,), dtype)[0]


def _tagged_struct(names: Names, members: Members) -> Any:
    dtype = dtype_of(members.take("struct"))
    data = bytes_of(members.take("base64", str))
    members.done("a struct")
    if len(data) != dtype.itemsize:
        raise DeclarationError(f"a struct of {dtype.itemsize} bytes has {len(data)} bytes in 'base64'")
    return np.frombuffer(data, dtype)[0]


def _tagged_ndarray(names: Names, members: Members) -> Any:
    dtype = dtype_of(members.take("ndarray"))
    shape = members.take("shape", list)
    data = bytes_of(members.take("base64", str))
    members.done("an array value")
    sizes = all(type(n) is int and n >= 0 for n in shape)
    if len(shape) > 32 or not sizes or math.prod(filter(None, shape)) > 2**40:  # NumPy also limits shapes without elements
        raise DeclarationError(f"'shape' is a list of integers from 0, with at most 2**40 elements (got {shown(shape)})")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise DeclarationError(f"an array of shape {shape} and {dtype.itemsize} bytes each has {len(data)} bytes in 'base64'")
    return own_copy(np.frombuffer(data, dtype).reshape(shape))


def _tagged_dict(names: Names, members: Members) -> dict[str, Any]:
    return {key: names.value(value) for key, value in _only(members, "dict", dict).items()}


def _only(members: Members, tag: str, *types: type) -> Any:
    value = members.take(tag, *types)
    members.done(f"a value tagged {tag!r}")
    return value


_TAGS: dict[str, Callable[[Names, Members], Any]] = {
    "param": _tagged_param,
    "symbol": _tagged_symbol,
    "read": _tagged_access("read"),
    "write": _tagged_access("write"),
    "update": _tagged_access("update"),
    "float": _tagged_float,
    "complex": _tagged_complex,
    "str": lambda names, members: _only(members, "str", str),
    "bytes": lambda names, members: bytes_of(_only(members, "bytes", str)),
    "tuple": lambda names, members: tuple([names.value(item) for item in _only(members, "tuple", list)]),
    "dict": _tagged_dict,
    "numpy": _tagged_numpy,
    "struct": _tagged_struct,
    "ndarray": _tagged_ndarray,
}


def bytes_of(text: str) -> bytes:
    """Return the bytes of base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DeclarationError(f"base64 text is damaged: {error}") from None


# -- dtypes, shapes and devices -------------------------------------------------------------------------------------


def memory_data(array: Array) -> dict[str, Data]:
    """Return dtype, shape, device and access of an array as data."""
    out: dict[str, Data] = {"dtype": dtype_data(array.dtype), "shape": list(array.shape)}
    if array.device is not None:
        out["device"] = array.device
    if array.access:
        out["access"] = list(array.access)
    return out


def dtype_of(data: Data, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype that data represents; the inverse of `dtype_data`."""
    if type(data) is str:
        found = dtype_named(data)
        if found is None:
            raise DeclarationError(f"there is no dtype {data[:60]!r}; dtypes are {', '.join(NAMES)} and structs")
        if found.itemsize > _MAX_ITEM:
            raise DeclarationError(f"an element has at most {_MAX_ITEM} bytes")
        return found
    if depth > 16:
        raise DeclarationError("a struct is nested too deeply")
    fields = Members(data, "a dtype")
    if "base" in fields.data:
        base, shape = dtype_of(fields.take("base"), depth + 1), shape_of(fields.take("shape", list))
        fields.done("a dtype")
        if math.prod(shape) * base.itemsize > _MAX_ITEM:
            raise DeclarationError(f"a struct has at most {_MAX_ITEM} bytes")
        return np.dtype((base, shape))
    names, formats, offsets = fields.take("names", list), fields.take("formats", list), fields.take("offsets", list)
    itemsize, align = fields.take("itemsize", int), fields.take("align", bool, default=False)
    fields.done("a dtype")
    if not (len(names) == len(formats) == len(offsets) <= 1000 and all(type(n) is str and n for n in names)):
        raise DeclarationError("'names', 'formats' and 'offsets' of a struct are lists of one length, at most 1000")
    if not all(type(n) is int and 0 <= n <= _MAX_ITEM for n in (*offsets, itemsize)):
        raise DeclarationError(f"a struct has at most {_MAX_ITEM} bytes")
    parts = [dtype_of(part, depth + 1) for part in formats]
    try:
        spec: Any = {"names": names, "formats": parts, "offsets": offsets, "itemsize": itemsize}
        return np.dtype(spec, align=align)  # type: ignore[no-any-return]  # NumPy's stubs do not know a spec with align
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"a struct is wrong: {error}") from None


def shape_of(data: Data) -> tuple[int, ...]:
    """Return the shape that data represents."""
    if type(data) is not list or not all(type(n) is int for n in data):
        raise DeclarationError(f"'shape' is a list of integers (got {shown(data)})")
    return as_shape(tuple(data))


def memory_of(members: Members) -> tuple[tuple[int, ...], np.dtype[Any], dict[str, Any]]:
    """Return shape, dtype, and a dict of `device` (the owner) and `access` (other devices)."""
    dtype = as_dtype(dtype_of(members.take("dtype")))
    shape = shape_of(members.take("shape", list))
    access = [device_of_data(device, "access") for device in members.take("access", list, default=[])]
    return shape, dtype, {"device": device_of_data(members.take("device", int, default=None)), "access": tuple(access)}


def device_of_data(data: Data, field: str = "device") -> int | None:
    """Return the device number that data represents; None stays None for field `device`."""
    if data is None and field == "device":
        return None
    if type(data) is not int or not 0 <= data < 2**16:
        raise DeclarationError(f"{field!r} holds the number of a device (got {shown(data)})")
    return data


def filled(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return numbers as an array; raise DeclarationError for a value of a wrong type or range."""
    allowed: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "c": (int, float, complex)}.get(
        kind_of(dtype), (int, float)
    )
    for value in values:
        if type(value) not in allowed:
            raise DeclarationError(f"{shown(value)} is no value of dtype {dtype}")
    try:
        return own_copy(converted(values, dtype)).reshape(shape)
    except (OverflowError, ValueError, TypeError) as error:
        raise DeclarationError(f"values do not fit dtype {dtype}: {error}") from None
