"""Values of nodes' fields in two graphs: the same value with the other graph's arrays, and whether two values are the same."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..arrays import Access, Array, ArrayView, Expression, MovingView, Parameter
from ..errors import node_error
from ..kernels import Kernel

_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, Kernel})
"""Types of values that hold no array and no parameter."""


def translated(value: Any, arrays: Mapping[str, Any], parameters: Mapping[str, Any], node: str) -> Any:
    """Replace the arrays and parameters in a field's value by those of the same names; DeclarationError if one does not match."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, MovingView):
        root = translated(value.root, arrays, parameters, node)
        return value.replaced(root, lambda parameter: translated(parameter, arrays, parameters, node))
    if isinstance(value, ArrayView):
        root = translated(value.root, arrays, parameters, node)
        if isinstance(root, ArrayView):
            return root[value.selection] if root.shape else root
        return value.on(root)
    if isinstance(value, Access):
        return Access(translated(value.view, arrays, parameters, node), value.mode, value.region)
    if isinstance(value, Expression):
        return value.replaced(lambda parameter: translated(parameter, arrays, parameters, node))
    if isinstance(value, (Array, Parameter)):
        if value.kind == "symbol":
            return value
        found = (parameters if isinstance(value, Parameter) else arrays).get(value.name)
        if found is not None and isinstance(value, Parameter) and not isinstance(found, (Parameter, ArrayView)):
            return found  # a value bound to the parameter
        if found is None or found.shape != value.shape or found.dtype != value.dtype:
            raise node_error(
                node,
                f"there is no {value.kind} {value.name!r} of {value.dtype}{list(value.shape)} to take its place",
                array=value.name,
            )
        return found
    if isinstance(value, (tuple, list)):
        entries = [v if type(v) in _PLAIN else translated(v, arrays, parameters, node) for v in value]
        if all(map(operator.is_, entries, value)):
            return value
        return value._make(entries) if hasattr(value, "_make") else type(value)(entries)
    if isinstance(value, dict):
        return {k: translated(v, arrays, parameters, node) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and hasattr(value, "view"):
        return dataclasses.replace(value, view=translated(value.view, arrays, parameters, node))  # type: ignore[type-var]
    return value


def same(a: Any, b: Any, same_root: Callable[[Any, Any], bool] = operator.is_) -> bool:
    """Return whether two field values are identical: arrays and parameters by `same_root`, numbers by type and bits."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is int or kind is str or kind is Kernel:
        return bool(a == b)
    if kind is ArrayView:
        return a.selection == b.selection and same_root(a.root, b.root)
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)  # distinguishes 0.0 from -0.0, and NaN equals NaN
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            return False
        for x, y in zip(a, b):  # noqa: SIM110  # `all` of a generator takes twice the time
            if x is not y and not same(x, y, same_root):
                return False
        return True
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key], same_root) for key, value in a.items())
    if isinstance(a, (np.ndarray, np.generic)):
        return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())
    if isinstance(a, MovingView):
        return a.same_as(b, same_root)
    if isinstance(a, Expression):
        return a.name == b.name and all(map(same_root, a.terms, b.terms))
    if isinstance(a, (Array, Parameter)):
        return same_root(a, b)
    if dataclasses.is_dataclass(a) and hasattr(a, "view"):
        return all(same(getattr(a, item.name), getattr(b, item.name), same_root) for item in dataclasses.fields(a))
    try:
        return a is b or bool(a == b)
    except Exception:  # such as arrays of other libraries, which compare element by element
        return False
