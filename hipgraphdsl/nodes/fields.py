"""Types of the nodes' fields: how Pydantic takes their values from users and files, and how a file holds and describes them.

A field is an annotated type, ``dst: View``. Reading and writing files, the published schema and export as Python text follow from
the model alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import core_schema

from ..arrays import ArrayView, Parameter, as_device, as_dict, as_int, as_view
from ..errors import DeclarationError, node_error, shown
from .values import DEVICE, Data, Names, list_of, map_of, ref

UNCHANGED = core_schema.to_string_ser_schema(when_used="json")
"""Pydantic serialization that leaves a value unchanged in Python mode; the models write JSON themselves."""

Axis = int | Parameter
Dim3 = tuple[Axis, Axis, Axis]


def names_in(info: ValidationInfo) -> Names | None:
    """Return what names in a file refer to; None if the value is not of a file."""
    context = info.context
    return context if isinstance(context, Names) else None


def node_in(info: ValidationInfo) -> str:
    """Return the name of the node whose field is validated."""
    return info.data.get("name", "")  # type: ignore[no-any-return]  # a str, or refused


def _same(value: Any, *_: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Stored:
    """Annotation of a field whose values a file refers to by names, or writes in a form of its own.

    Attributes
    ----------
    read : callable
        Takes a value that is not None and Pydantic's information; returns what the field's type validates. The context is `Names`
        if the value is JSON data of a file.
    write : callable
        Takes a value, `Names` and the node; returns JSON data.
    schema : dict
        JSON Schema of that data.
    spelled : callable
        Takes a value and the node; returns it as a user would write it, for Python text.
    """

    read: Callable[[Any, ValidationInfo], Any]
    write: Callable[[Any, Names, Any], Data]
    schema: dict[str, Any]
    spelled: Callable[[Any, Any], Any] = _same

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validate before the type itself; keep values in Python-mode `model_dump`, which would make dicts of dataclasses."""
        inner: Any = handler(source)
        optional = inner["type"] == "nullable"
        schema: Any = core_schema.with_info_before_validator_function(self.read, inner["schema"] if optional else inner)
        return {**(core_schema.nullable_schema(schema) if optional else schema), "serialization": UNCHANGED}

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema


@dataclass(frozen=True, slots=True)
class Rule:
    """Annotation of a field: what files, Python text and Executables do with it.

    Attributes
    ----------
    always : bool
        Whether a file stores it even if it has its default.
    keyword : bool
        Whether Python text passes it by keyword although it is required.
    fixed : str
        Why an Executable cannot update it in place; empty if it can.
    """

    always: bool = False
    keyword: bool = False
    fixed: str = ""


def quoted(text: str) -> str:
    """Return text as a Python literal, in double quotes unless they would need escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text and "'" not in text else literal


@dataclass(frozen=True, slots=True)
class Integer:
    """Annotation of an integer from `least` to `most`; `called` describes such a value in error messages."""

    least: int
    most: int
    called: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_before_validator_function(self._read, core_schema.int_schema(ge=self.least, le=self.most))

    def _read(self, value: Any, info: ValidationInfo) -> int:
        number = value if type(value) is int else as_int(value)
        if number is None or not self.least <= number <= self.most:
            called = self.called or f"an integer from {self.least} to {self.most}"
            raise node_error(node_in(info), f"{info.field_name} is {called} (got {shown(value)})")
        return number


def _device(value: Any, info: ValidationInfo) -> int | None:
    if names_in(info) is None:
        return as_device(value, f"node {node_in(info)!r}")
    from .reading import device_of_data

    return device_of_data(value)


Device = Annotated[int | None, Stored(_device, _same, DEVICE), Rule(fixed="the device of a node is fixed when it is added")]
"""A device number."""


def _view(value: Any, info: ValidationInfo) -> ArrayView:
    if type(value) is ArrayView:
        return value
    names = names_in(info)
    return as_view(value, f"node {node_in(info)!r}: {info.field_name}: an array") if names is None else names.view(value)


View = Annotated[ArrayView, Stored(_view, lambda view, names, _: names.view_data(view), ref("view"))]
"""A view of an array."""


def items(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
    """Return the items of a list; a user may give one item alone."""
    if isinstance(value, (list, tuple)):
        return tuple(value)
    if names_in(info):
        raise DeclarationError(f"{info.field_name!r} is a list (got {shown(value)})")
    return (value,)


def _listed(value: Sequence[Any], node: Any) -> list[Any]:
    return list(value)


Views = Annotated[
    tuple[ArrayView, ...],
    Stored(
        lambda value, info: tuple([_view(view, info) for view in items(value, info)]),
        lambda views, names, _: [names.view_data(view) for view in views],
        list_of(ref("view"), minItems=1),
        _listed,
    ),
]
"""Views of arrays, at least one."""


def _value(value: Any, info: ValidationInfo) -> Any:
    names = names_in(info)
    return value if names is None else names.value(value)


Value = Annotated[Any, Stored(_value, lambda value, names, _: names.value_data(value), ref("value"))]
"""A value or a parameter."""


def values(value: Any, info: ValidationInfo) -> Any:
    """Return arguments of a file; those of a user stay as they are."""
    names = names_in(info)
    return value if names is None else tuple([names.value(each) for each in items(value, info)])


def values_data(value: Sequence[Any], names: Names, node: Any) -> Data:
    """Return arguments as JSON data."""
    return [names.value_data(each) for each in value]


VALUES = Stored(values, values_data, list_of(ref("value")))
"""Arguments: views, accesses, parameters and values."""


def extents(value: Any, info: ValidationInfo) -> Dim3:
    """Return extents as a triple; each is an int from 1 to 2**32 - 1 or a scalar integer parameter."""
    if type(value) is int and 0 < value < 2**32:
        return (value, 1, 1)
    names, field, node = names_in(info), info.field_name, node_in(info)
    axes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(axes) <= 3:
        raise node_error(node, f"{field} has one to three axes (got {len(axes)})")
    result: list[Axis] = []
    for i, given in enumerate(axes):
        axis = given if names is None else _axis(given, names)
        if isinstance(axis, Parameter):
            if axis.shape or axis.dtype.kind not in "iu":
                raise node_error(node, f"{field}.{i} can be a scalar integer parameter; {axis.name!r} is {axis!r}")
            result.append(axis)
            continue
        extent = as_int(axis)
        if value is None:
            raise node_error(node, f"{field} is missing; give grid= and block=, or over= and block=")
        if extent is None:
            raise node_error(node, f"{field}.{i} is an integer (got {axis!r})")
        if extent < 1:
            raise node_error(node, f"{field}.{i} must be at least 1 (got {extent})")
        if extent >= 2**32:
            raise node_error(node, f"{field}.{i} must be less than 2**32 (got {extent})")
        result.append(extent)
    return (*result, *(1,) * (3 - len(result)))  # type: ignore[return-value]  # padded to three axes


def _axis(data: Data, names: Names) -> Any:
    if type(data) is int:
        return data
    value = names.value(data)
    if not isinstance(value, Parameter):
        raise DeclarationError(f'an axis of grid or block is an integer or {{"param": name}} (got {shown(data)})')
    return value


def _extents_data(value: tuple[Any, ...], names: Names, node: Any) -> Data:
    axes = [{"param": axis.name} if isinstance(axis, Parameter) else axis for axis in without_ones(value)]
    return axes[0] if len(axes) == 1 else axes


def _extents_spelled(value: tuple[Any, ...], node: Any) -> Any:
    axes = without_ones(value)
    return axes[0] if len(axes) == 1 else axes


def without_ones(axes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return extents without trailing 1s; at least one extent remains."""
    used = len(axes)
    while used > 1 and axes[used - 1] == 1:
        used -= 1
    return axes[:used]


EXTENTS = Stored(extents, _extents_data, ref("dim3"), _extents_spelled)
"""One to three extents, each an integer or a parameter; trailing extents of 1 are omitted."""


def _node_names(value: Any, info: ValidationInfo) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise DeclarationError(f"{info.field_name!r} is a list of node names (got {shown(value)})")
    return tuple(value)


NodeNames = Annotated[
    tuple[str, ...],
    Stored(
        _node_names,
        lambda names, *_: list(names),
        list_of(ref("name"), description="Nodes that must have finished first."),
        _listed,
    ),
]
"""Names of other nodes."""

Reasons = Annotated[dict[str, str] | None, AfterValidator(lambda reasons: reasons or None)]
"""Diagnostic codes, each with a reason."""


def _bound(value: Any, info: ValidationInfo) -> dict[str, Any]:
    names = names_in(info)
    if names is None:
        return as_dict(value, f"node {node_in(info)!r}: {info.field_name}", " from the child's names")
    if not isinstance(value, dict):
        raise DeclarationError(f"{info.field_name!r} is an object (got {shown(value)})")
    return {inner: names.value(outer) for inner, outer in value.items()}


BoundValues = Annotated[
    dict[str, Any],
    Stored(
        _bound,
        lambda bound, names, _: {inner: names.value_data(outer) for inner, outer in bound.items()},
        map_of(ref("value")),
    ),
]
"""Values bound to the arrays and parameters of a held workflow, by the name inside it."""
