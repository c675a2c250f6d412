"""What the names of a held workflow are bound to: the rules for it, and what is behind a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from .arrays import AllocArray, Array, ArrayView, MovingView, Need, Parameter, as_view, unlike
from .errors import node_error
from .nodes import Node
from .nodes.memory import element_value


def bound(root: Any, workflow: Any, bind: Mapping[str, Any]) -> Any:
    """Return what an array or parameter of a held workflow is bound to, or None; roots of other workflows are not bound."""
    name = root.name
    if name not in bind:
        return None
    own = workflow.arrays.get(name, workflow.parameters.get(name))
    return bind[name] if own is root else None


def needs_behind(workflow: Any, bind: Mapping[str, Any]) -> Iterator[tuple[Any, ArrayView, Need, str]]:
    """Yield what the nodes of a held workflow need of the views that it is bound to: array or parameter, view, need, node.

    A parameter that is not bound stands for its default array, which may be bound.
    """
    if not any(isinstance(value, ArrayView) for value in bind.values()):
        return
    for root, needs in workflow.needs.items():
        outer = bound(root, workflow, bind)
        if outer is None and isinstance(root, Parameter) and (default := workflow.default_view(root)) is not None:
            outer = bound(default.root, workflow, bind)
        if outer is not None:
            for need, who in needs.items():
                yield root, outer, need, who


def needs_inside(node: Node) -> tuple[tuple[ArrayView, Need, str], ...]:
    """Return what the workflows that a node holds need of the memory that they are bound to."""
    return tuple(
        (outer, need, f"{key}/{who}") for key, document, bind in node.held for _, outer, need, who in needs_behind(document, bind)
    )


def bound_array(inner: Array | Parameter, value: Any, node: str) -> ArrayView:
    """Validate and return the view bound to an array or an array parameter of a child."""
    outer = as_view(value, f"node {node!r}: an array for {inner.name!r} of the child")
    if isinstance(outer, MovingView):
        raise node_error(
            node, f"{inner.name!r} of the child is bound to {outer.name!r}, and where that lies, a launch decides; bind the array"
            " and give the child the index as a parameter", array=outer.root.name,
        )  # fmt: skip
    if isinstance(inner, AllocArray):
        raise node_error(node, f"{inner.name!r} is made by an alloc node of the child and cannot be bound")
    wanted = found = ""
    if unlike(inner, outer) or not outer.contiguous:
        wanted = f"{inner.dtype}{list(inner.shape)} and takes a contiguous array of the same dtype and shape"
        found = f"{outer.dtype}{list(outer.shape)}" + ("" if outer.contiguous else " and not contiguous")
    elif isinstance(inner, Parameter):
        pass  # what its nodes need decides
    elif inner.on_host and not outer.root.on_host:
        wanted, found = "a host array", f"{outer.root.kind} memory"
    elif inner.on_device and not outer.root.on_device:
        wanted, found = "reached by the device", "pageable host memory"
    if wanted:
        raise node_error(node, f"{inner.name!r} of the child is {wanted}; {outer.name!r} is {found}", array=outer.root.name)
    return outer


def bound_value(inner: Parameter, value: Any, node: str) -> Any:
    """Validate and return the value or parameter bound to a scalar parameter of a child."""
    if not isinstance(value, Parameter):
        number = element_value(value, inner.dtype, f"node {node!r}: parameter {inner.name!r}")
        if inner.limits:
            _require_within(inner, number, number, f"it is bound to {value}", node)
        return deepcopy(value)
    if not value.shape and value.dtype.kind in "iub":
        low, high = value.bounds
        _require_within(inner, low, high, f"{value.name} can be {low} to {high}", node)
    if value.terms and inner.dtype.kind in "iu":
        return value
    if value.dtype != inner.dtype or value.shape:
        raise node_error(node, f"parameter {inner.name!r} of the child is {inner.dtype}; {value!r} is not")
    return value


def _require_within(inner: Parameter, low: int, high: int, given: str, node: str) -> None:
    """Refuse values from `low` to `high` that can be beyond the bounds of the scalar parameter that they are bound to."""
    if (inner.min is not None and low < inner.min) or (inner.max is not None and high > inner.max):
        least, most = inner.bounds
        raise node_error(node, f"parameter {inner.name!r} of the child is from {least} to {most}, and {given}", array=inner.name)
