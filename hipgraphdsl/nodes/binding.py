"""What may be bound to the arrays and parameters of a child."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..arrays import AllocArray, Array, ArrayView, HostArray, Parameter, as_view
from ..errors import DeclarationError
from .memory import element_value


def bound_array(inner: Array | Parameter, value: Any, node: str) -> ArrayView:
    """Return the view that is bound to an array of a child, or to a parameter that stands for one."""
    outer = as_view(value, f"node {node!r}: an array for {inner.name!r} of the child")
    if isinstance(inner, AllocArray):
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} is made by an alloc node of the child and cannot be bound", node=node
        )
    if outer.dtype != inner.dtype or outer.nbytes != inner.nbytes or not outer.contiguous:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is {inner.dtype}{list(inner.shape)} and takes a contiguous array of the"
            f" same dtype and size; {outer.name!r} is {outer.dtype}{list(outer.shape)}"
            + ("" if outer.contiguous else " and not contiguous"),
            node=node,
            array=outer.root.name,
        )
    if isinstance(inner, HostArray) and not outer.root.on_host:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is a host array; {outer.name!r} is {outer.root.kind} memory",
            node=node,
            array=outer.root.name,
        )
    if inner.on_device and not outer.root.on_device:
        raise DeclarationError(
            f"node {node!r}: {inner.name!r} of the child is reached by the device; {outer.name!r} is pageable host memory",
            node=node,
            array=outer.root.name,
        )
    return outer


def bound_value(inner: Parameter, value: Any, node: str) -> Any:
    """Return the value or parameter that is bound to a scalar parameter of a child."""
    if isinstance(value, Parameter):
        if value.dtype != inner.dtype or value.shape:
            raise DeclarationError(
                f"node {node!r}: parameter {inner.name!r} of the child is {inner.dtype}; {value!r} is not", node=node
            )
        return value
    element_value(value, inner.dtype, f"node {node!r}: parameter {inner.name!r}")
    return value


def parameters_of(values: Iterable[Any]) -> tuple[Parameter, ...]:
    """Return the parameters among values, and those that views among them are of, without repeats."""
    roots = (value.root if isinstance(value, ArrayView) else value for value in values)
    return tuple(dict.fromkeys(root for root in roots if isinstance(root, Parameter)))
