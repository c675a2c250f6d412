"""What may stand where: what nodes need of the memory that a name stands for, and what array parameters may stand for.

The same rules hold for memory that a node is given directly and for memory that stands for an array or a parameter: by its
default, by a launch, or because a parent binds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ..errors import DeclarationError
from .arrays import AllocArray, Array, ExternalArray
from .parameters import Parameter
from .views import ArrayView, Viewable, as_view


class Need(NamedTuple):
    """What a node needs of memory that it is given."""

    what: Literal["write", "host", "device", "collective"]
    """That it can be written; that code on the host, or on a device, can reach it; that it is an array of a device."""
    align: int = 1
    """Bytes of which its address is a multiple."""


WRITE = Need("write")
HOST = Need("host")
COLLECTIVE = Need("collective")


@lru_cache
def device_need(align: int) -> Need:
    """Return what code on a device needs of memory whose elements it takes to begin at multiples of `align` bytes."""
    return Need("device", align)


def lacking(view: ArrayView, need: Need) -> str:
    """Return why a view's memory does not meet a need, and what to do; empty if it does.

    A parameter meets all needs but "collective": what it stands for is judged in its place.
    """
    root = view.root
    what, align = need
    if what == "device" and root.on_device and not view.offset_bytes % align and not root.hazard_offset % align:
        return ""  # as nearly always
    if what == "write" and root.writeable and align == 1:
        return ""
    if what == "collective":
        able = isinstance(root, Array) and not isinstance(root, AllocArray) and not root.on_host
        return "" if able else f"a collective is about device arrays (got {root.kind} {root.name!r})"
    if isinstance(root, Parameter):
        return ""
    if what == "write" and not root.writeable:
        return f"{root.kind} array {root.name!r} is read-only"
    if what == "host" and not root.on_host:
        return f"a host callback cannot reach {root.kind} array {root.name!r}; copy it to a host array first"
    if what == "device" and not root.on_device:
        return f"{root.name!r} is pageable host memory, which the device cannot reach; declare it with pinned=True or copy it"
    if root.hazard_offset % align:
        return f"{root.name!r} begins at address {root.hazard_offset:#x}, not at a multiple of {align}"
    if view.offset_bytes % align:
        return f"{view.name!r} begins at byte {view.offset_bytes}, not at a multiple of {align}"
    return ""


def unlike(wanted: Array | Parameter, found: Array | ArrayView) -> str:
    """Return how an array or a view differs from one in whose place it is to stand; empty if dtype and shape are equal."""
    if found.dtype == wanted.dtype and found.shape == wanted.shape:
        return ""
    return f"takes {wanted.dtype}{list(wanted.shape)} (got {found.dtype}{list(found.shape)})"


def whole_array(name: str, value: Viewable) -> Array:
    """Return the array that an array parameter is given; raise DeclarationError for a part of one, or a parameter."""
    view = as_view(value)
    root = view.root
    if isinstance(root, Array) and view.is_whole and root.kind != "symbol":
        return root
    what = f"a view of {root.kind} {root.name!r}"
    if root.kind == "symbol":
        what = "a variable of a module, which has an address on each device"
    raise DeclarationError(
        f"parameter {name!r} takes a whole array of the graph, by its name, or an object with memory; got {view.name!r}, {what}",
        array=name,
    )


def require_fit(name: str, parameter: Parameter, array: Array) -> None:
    """Refuse an array that an array parameter cannot stand for: of another dtype or shape, or made by an alloc node."""
    if isinstance(array, AllocArray):
        raise DeclarationError(
            f"parameter {name!r} cannot stand for array {array.name!r}, which is made by an alloc node and lives only while the"
            " graph runs; give the alloc node to the nodes themselves, or copy it to a host or device array",
            array=name,
        )
    if fault := unlike(parameter, array):
        raise DeclarationError(f"parameter {name!r} {fault}", array=name)


def array_by_default(parameter: Parameter, arrays: Mapping[str, Array], name: str = "") -> Array | None:
    """Return what an array parameter stands for until a launch binds it: an array of the graph, or an object's memory.

    Returns None for a scalar, for a parameter with memory of its own or without a default, and if there is no array of the name.
    """
    default: Any = parameter.default
    if not parameter.shape or parameter.copy or default is None:
        return None
    if isinstance(default, str):
        return arrays.get(default)
    if isinstance(default, Viewable):
        root = whole_array(name or parameter.name, default)
        return arrays.get(root.name, root)
    return ExternalArray.wrap(name or parameter.name, default, what="parameter")
