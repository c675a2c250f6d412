"""Forms: how a node's field is represented in a file, in the JSON Schema and in Python text.

A node's model gives the form of each field in its annotation, ``dst: Annotated[ArrayView, View()]``. File reading and writing,
the published schema and export as Python text are derived from the model alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from ..arrays import Array, ArrayView, Parameter, as_device, as_int, as_view
from ..errors import node_error, shown
from ..kernels import Module
from .values import DEVICE, FLAG, Data, Fault, Names, device_of_data, list_of, map_of, ref

UNCHANGED = core_schema.to_string_ser_schema(when_used="json")
"""Pydantic serialization that leaves a value unchanged in Python mode; the models write JSON themselves."""

Axis = int | Parameter
Dim3 = tuple[Axis, Axis, Axis]


class Owner(Protocol):
    """The node whose field a form writes."""

    name: str

    @property
    def method(self) -> str:
        """The `Graph` method that adds such a node; empty if no method accepts all of its fields."""


class TextWriter(Protocol):
    """Writes a graph as Python text and assigns variable names."""

    def module(self, module: Module) -> str:
        """Return the variable that holds a module."""

    def child(self, workflow: Any) -> str:
        """Return a call that builds the graph of a child workflow."""

    def callback(self, fn: Any) -> str:
        """Return the expression for a callable."""

    def value(self, value: Any) -> str:
        """Return the expression for an array, a view, a parameter, an argument or a value."""

    def dtype(self, dtype: Any) -> str:
        """Return the expression for a dtype."""

    def place(self, array: Array) -> str:
        """Return the `device` and `access` arguments of an array; empty if both have their defaults."""


class Form:
    """How a field is written and read.

    Attributes
    ----------
    always : bool
        Whether a file stores it even if it has its default.
    keyword : bool
        Whether Python text passes it by keyword although it is required.
    fixed : str
        Why an Executable cannot update it in place; empty if it can.
    """

    schema: dict[str, Any] = {}  # noqa: RUF012  # never changed
    json_types: tuple[type, ...] = ()
    simple = True
    """Whether a value that is the default object is always omitted, without a call of `is_default`."""

    def __init__(self, *, always: bool = False, keyword: bool = False, fixed: str = "") -> None:
        self.always = always
        self.keyword = keyword
        self.fixed = fixed
        self.simple = self.simple and not always

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Keep the value unchanged in Python-mode `model_dump`, which would otherwise convert dataclasses to dicts."""
        return {**handler(source), "serialization": UNCHANGED}

    def normal(self, value: Any, field: str, node: str) -> Any:
        """Normalize a value from the user that is not the default; raise DeclarationError if it is invalid."""
        return value

    def dump(self, value: Any, names: Names, node: Owner) -> Data:
        """Return the value as JSON data."""
        return value

    def load(self, data: Data, names: Names, node: str) -> Any:
        """Return the value that JSON data represents; the data's type is one of `json_types` unless that is empty."""
        return data

    def text(self, value: Any, writer: TextWriter, node: Owner) -> str:
        """Return the value as Python text."""
        return writer.value(value)

    def argument(self, name: str, value: Any, writer: TextWriter, node: Owner) -> str:
        """Return the value as a keyword argument of the node's `method` or, if that is empty, of its class."""
        return f"{name}={self.text(value, writer, node)}"

    def is_default(self, value: Any, default: Any, node: Owner) -> bool:
        """Return whether a file omits the value."""
        return not self.always and (value is default or bool(value == default))


class Entry(NamedTuple):
    """A field of a model: its name, its form, its default, and whether it is required."""

    name: str
    form: Form
    default: Any
    required: bool

    def omitted(self, node: Owner) -> bool:
        """Return whether files and Python text omit the field of a node."""
        return not self.required and self.form.is_default(getattr(node, self.name), self.default, node)

    def argument(self, node: Owner, writer: TextWriter) -> str:
        """Return the field of a node as an argument in Python text."""
        value = getattr(node, self.name)
        if node.method and not self.form.keyword and (self.required or self.form.always):
            return self.form.text(value, writer, node)
        return self.form.argument(self.name, value, writer, node)


def quoted(text: str) -> str:
    """Return text as a Python literal, in double quotes unless they would need escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text and "'" not in text else literal


class Integer(Form):
    """An integer from `least` to `most`; `called` describes such a value in error messages."""

    json_types = (int,)

    def __init__(self, least: int, most: int, *, called: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.least = least
        self.most = most
        self.called = called or f"an integer from {least} to {most}"
        self.schema = {"type": "integer", "minimum": least, "maximum": most}

    def normal(self, value: Any, field: str, node: str) -> int:
        number = as_int(value)
        if number is None or not self.least <= number <= self.most:
            raise node_error(node, f"{field} is {self.called} (got {shown(value)})")
        return number


class Flag(Form):
    """True or false."""

    schema = FLAG
    json_types = (bool,)


class Device(Form):
    """A device number."""

    schema = DEVICE
    json_types = (int,)

    def __init__(self) -> None:
        super().__init__(fixed="the device of a node is fixed when it is added")

    def normal(self, value: Any, field: str, node: str) -> int | None:
        return as_device(value, f"node {node!r}")

    def load(self, data: Data, names: Names, node: str) -> int | None:
        return device_of_data(data)


class Choice(Form):
    """One of several words."""

    json_types = (str,)

    def __init__(self, *words: str, **more: Any) -> None:
        super().__init__(**more)
        self.words = words
        self.schema = {"enum": list(words)}

    def normal(self, value: Any, field: str, node: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            *others, last = map(repr, self.words)
            raise node_error(node, f"{field} is {', '.join(others)} or {last} (got {value!r})")
        return value


class View(Form):
    """A view of an array."""

    schema = ref("view")

    def normal(self, value: Any, field: str, node: str) -> ArrayView:
        return as_view(value, f"node {node!r}: {field}: an array")

    def dump(self, value: ArrayView, names: Names, node: Owner) -> Data:
        return names.view_data(value)

    def load(self, data: Data, names: Names, node: str) -> ArrayView:
        return names.view(data)


class Several(Form):
    """A list of items, each in the form `item`."""

    item: Form
    json_types = (list,)

    def dump(self, value: Sequence[Any], names: Names, node: Owner) -> Data:
        return [self.item.dump(each, names, node) for each in value]

    def load(self, data: Data, names: Names, node: str) -> tuple[Any, ...]:
        return tuple([self.item.load(each, names, node) for each in data])

    def text(self, value: Sequence[Any], writer: TextWriter, node: Owner) -> str:
        return f"[{', '.join([self.item.text(each, writer, node) for each in value])}]"


class Views(Several):
    """Views of arrays, at least one."""

    item = View()
    schema = list_of(item.schema, minItems=1)

    def normal(self, value: Any, field: str, node: str) -> tuple[ArrayView, ...]:
        given = value if isinstance(value, (list, tuple)) else (value,)
        return tuple(as_view(view, f"node {node!r}: {field}: an array") for view in given)


class Value(Form):
    """A value or a parameter."""

    schema = ref("value")

    def dump(self, value: Any, names: Names, node: Owner) -> Data:
        return names.value_data(value)

    def load(self, data: Data, names: Names, node: str) -> Any:
        return names.value(data)


class Values(Several):
    """Arguments: views, accesses, parameters and values."""

    item = Value()
    schema = list_of(item.schema)

    def dump(self, value: Sequence[Any], names: Names, node: Owner) -> Data:
        return [names.value_data(each) for each in value]  # arguments are most of a file: avoid a call of `item` for each

    def load(self, data: Data, names: Names, node: str) -> tuple[Any, ...]:
        return tuple([names.value(each) for each in data])

    def text(self, value: Sequence[Any], writer: TextWriter, node: Owner) -> str:
        return f"({', '.join(map(writer.value, value))}{',' * (len(value) == 1)})"


class Extents(Form):
    """One to three extents, each an integer or a parameter; trailing extents of 1 are omitted."""

    schema = ref("dim3")

    def normal(self, value: Any, field: str, node: str) -> Dim3:
        """Return extents as a triple; each is an int from 1 to 2**32 - 1 or a scalar integer parameter."""
        if type(value) is int and 0 < value < 2**32:
            return (value, 1, 1)
        axes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(axes) <= 3:
            raise node_error(node, f"{field} has one to three axes (got {len(axes)})")
        result: list[Axis] = []
        for i, axis in enumerate(axes):
            if isinstance(axis, Parameter):
                if axis.shape or axis.dtype.kind not in "iu":
                    raise node_error(node, f"{field}.{i} can be a scalar integer parameter; {axis.name!r} is {axis!r}")
                result.append(axis)
                continue
            extent = as_int(axis)
            if extent is None:
                raise node_error(node, f"{field}.{i} is an integer (got {axis!r})")
            if extent < 1:
                raise node_error(node, f"{field}.{i} must be at least 1 (got {extent})")
            if extent >= 2**32:
                raise node_error(node, f"{field}.{i} must be less than 2**32 (got {extent})")
            result.append(extent)
        return (*result, *(1,) * (3 - len(result)))  # type: ignore[return-value]  # padded to three axes

    def dump(self, value: tuple[Any, ...], names: Names, node: Owner) -> Data:
        axes = [{"param": axis.name} if isinstance(axis, Parameter) else axis for axis in without_ones(value)]
        return axes[0] if len(axes) == 1 else axes

    def load(self, data: Data, names: Names, node: str) -> Any:
        return tuple([_axis(axis, names) for axis in data]) if type(data) is list else _axis(data, names)

    def text(self, value: tuple[Any, ...], writer: TextWriter, node: Owner) -> str:
        axes = [writer.value(axis) for axis in without_ones(value)]
        return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"


def without_ones(axes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return extents without trailing 1s; at least one extent remains."""
    used = len(axes)
    while used > 1 and axes[used - 1] == 1:
        used -= 1
    return axes[:used]


def _axis(data: Data, names: Names) -> Any:
    if type(data) is int:
        return data
    value = names.value(data)
    if not isinstance(value, Parameter):
        raise Fault(f'an axis of grid or block is an integer or {{"param": name}} (got {shown(data)})')
    return value


class NodeNames(Form):
    """Names of other nodes."""

    schema = list_of(ref("name"), description="Nodes that must have finished first.")
    json_types = (list,)

    def dump(self, value: tuple[str, ...], names: Names, node: Owner) -> Data:
        return list(value)

    def load(self, data: Data, names: Names, node: str) -> tuple[str, ...]:
        if not all(type(entry) is str for entry in data):
            raise Fault(f"'after' is a list of node names (got {shown(data)})")
        return tuple(data)

    def text(self, value: tuple[str, ...], writer: TextWriter, node: Owner) -> str:
        return f"[{', '.join(map(quoted, value))}]"


class Reasons(Form):
    """Diagnostic codes, each with a reason."""

    schema = map_of({"type": "string"}, description="Diagnostic codes and reasons.")
    json_types = (dict,)

    def dump(self, value: dict[str, str], names: Names, node: Owner) -> Data:
        return dict(value)

    def load(self, data: Data, names: Names, node: str) -> dict[str, str]:
        if not all(type(reason) is str for reason in data.values()):
            raise Fault("'ignore' is an object of codes and reasons")
        return data  # type: ignore[no-any-return]

    def text(self, value: dict[str, str], writer: TextWriter, node: Owner) -> str:
        return repr(dict(value))

    def is_default(self, value: Any, default: Any, node: Owner) -> bool:
        return not value


class WorkflowKey(Form):
    """A workflow, stored as its key in the file."""

    schema = ref("name")
    json_types = (str,)

    def dump(self, value: Any, names: Names, node: Owner) -> Data:
        return names.key_of_workflow(value)

    def load(self, data: Data, names: Names, node: str) -> Any:
        return names.workflow(data)

    def text(self, value: Any, writer: TextWriter, node: Owner) -> str:
        return writer.child(value)


class WorkflowKeys(Several):
    """Workflows, stored as their keys in the file."""

    item = WorkflowKey()
    schema = list_of(item.schema, minItems=1)


class BoundValues(Form):
    """Values bound to the arrays and parameters of a held workflow, by the name inside it."""

    schema = map_of(ref("value"))
    json_types = (dict,)

    def dump(self, value: dict[str, Any], names: Names, node: Owner) -> Data:
        return {inner: names.value_data(outer) for inner, outer in value.items()}

    def load(self, data: Data, names: Names, node: str) -> dict[str, Any]:
        return {inner: names.value(outer) for inner, outer in data.items()}

    def text(self, value: dict[str, Any], writer: TextWriter, node: Owner) -> str:
        return f"{{{', '.join(f'{inner!r}: {writer.value(outer)}' for inner, outer in value.items())}}}"
