"""What may be bound to the arrays and parameters of a child."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ..arrays import AllocArray, Array, ArrayView, HostArray, Parameter, as_view
from ..errors import node_error
from .memory import element_value


def bound_array(inner: Array | Parameter, value: Any, node: str) -> ArrayView:
    """Return the view that is bound to an array of a child, or to a parameter that stands for one."""
    outer = as_view(value, f"node {node!r}: an array for {inner.name!r} of the child")
    if isinstance(inner, AllocArray):
        raise node_error(node, f"{inner.name!r} is made by an alloc node of the child and cannot be bound")
    wanted = found = ""
    if outer.dtype != inner.dtype or outer.nbytes != inner.nbytes or not outer.contiguous:
        wanted = f"{inner.dtype}{list(inner.shape)} and takes a contiguous array of the same dtype and size"
        found = f"{outer.dtype}{list(outer.shape)}" + ("" if outer.contiguous else " and not contiguous")
    elif isinstance(inner, HostArray) and not outer.root.on_host:
        wanted, found = "a host array", f"{outer.root.kind} memory"
    elif inner.on_device and not outer.root.on_device:
        wanted, found = "reached by the device", "pageable host memory"
    if wanted:
        raise node_error(node, f"{inner.name!r} of the child is {wanted}; {outer.name!r} is {found}", array=outer.root.name)
    return outer


def bound_value(inner: Parameter, value: Any, node: str) -> Any:
    """Return the value or parameter that is bound to a scalar parameter of a child."""
    if isinstance(value, Parameter):
        if value.dtype != inner.dtype or value.shape:
            raise node_error(node, f"parameter {inner.name!r} of the child is {inner.dtype}; {value!r} is not")
        return value
    element_value(value, inner.dtype, f"node {node!r}: parameter {inner.name!r}")
    return deepcopy(value)
