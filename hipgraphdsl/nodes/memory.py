"""Nodes that copy, fill, allocate and free memory."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import ValidationInfo

from ..arrays import (
    WRITE,
    Access,
    AllocArray,
    Array,
    ArrayView,
    HostArray,
    MovingView,
    Need,
    NoValueError,
    Parameter,
    Viewable,
    as_element,
    converted,
    device_need,
    is_extra,
    kind_of,
    scalar_value,
)
from ..arrays.views import selector_text
from ..errors import DeclarationError, node_error, shown
from ..kernels import struct_error, struct_fields
from ..lazy import lazy
from ..printed import human_bytes
from .base import Node, check_name, parameters_of, require_met, set_state
from .fields import Device, Rule, Stored, Value, View, names_in, node_in
from .kinds import add_kind
from .values import MAX_NAME, MEMORY, SHAPE, is_stored, memory_data, record, ref

_MAX_FILL_BYTES = 64  # bytes per element, and below strided dimensions: the limits of the backends' fill kernel
_MAX_FILL_DIMS = 4


@dataclass(frozen=True, slots=True)
class CopyGeometry:
    """A copy as one pitched box: `depth` slices of `height` rows of `width_bytes` bytes.

    `*_pitch` is the distance between rows and `*_slice` the distance between slices, in bytes; a slice distance is a
    multiple of the pitch. A 1-D copy has height and depth 1.
    """

    width_bytes: int
    height: int
    depth: int
    dst_pitch: int
    dst_slice: int
    src_pitch: int
    src_slice: int

    @property
    def is_flat(self) -> bool:
        """Whether both sides are one contiguous run."""
        return self.height == 1 and self.depth == 1


def copy_geometry(dst: ArrayView, src: ArrayView) -> CopyGeometry | None:
    """Return the pitched box that copies `src` to `dst` element by element, or None if no single box can.

    Both must have the same number of elements and, unless both are contiguous, the same extents other than 1.
    """
    itemsize = dst.dtype.itemsize
    if dst.contiguous and src.contiguous:
        return CopyGeometry(dst.nbytes, 1, 1, dst.nbytes, dst.nbytes, dst.nbytes, dst.nbytes)
    width = itemsize
    dims: list[tuple[int, int, int]] = []  # (count, dst stride, src stride), innermost first
    dst_dims = [(n, s) for n, s in zip(reversed(dst.shape), reversed(dst.strides)) if n > 1]
    src_dims = [(n, s) for n, s in zip(reversed(src.shape), reversed(src.strides)) if n > 1]
    for (count, dst_stride), (src_count, src_stride) in zip(dst_dims, src_dims):
        if count != src_count:
            return None
        if not dims and dst_stride == width and src_stride == width:
            width *= count
        elif dims and dst_stride == dims[-1][0] * dims[-1][1] and src_stride == dims[-1][0] * dims[-1][2]:
            dims[-1] = (dims[-1][0] * count, dims[-1][1], dims[-1][2])
        else:
            dims.append((count, dst_stride, src_stride))
    if len(dims) > 2:
        return None
    height, dst_pitch, src_pitch = dims[0] if dims else (1, width, width)
    depth, dst_slice, src_slice = dims[1] if len(dims) > 1 else (1, height * dst_pitch, height * src_pitch)
    if depth > 1 and (dst_slice % dst_pitch or src_slice % src_pitch):
        return None
    return CopyGeometry(width, height, depth, dst_pitch, dst_slice, src_pitch, src_slice)


def copyable(dst: ArrayView, src: ArrayView) -> bool:
    """Return whether the shapes of two views correspond element by element.

    They are equal but for extents of 1, or both views are contiguous and one of them has a single axis, which holds the elements
    of the other in C order.
    """
    to, origin = ([extent for extent in view.shape if extent > 1] for view in (dst, src))
    return to == origin or (dst.size == src.size and min(len(to), len(origin)) <= 1 and dst.contiguous and src.contiguous)


@add_kind
class MemcpyNode(Node):
    """A copy of elements (hipGraphAddMemcpyNode1D, hipGraphAddMemcpyNode); the direction follows from the arrays.

    Attributes
    ----------
    dst, src : ArrayView
        Same dtype and same shape but for extents of 1, or both contiguous with the same number of elements, one of them with a
        single axis; one 3-D pitched copy must be able to express the copy.
    device : int or None
        The device that performs it; None: the destination's, else the source's.
    """

    kind: ClassVar[str] = "memcpy"
    work = "copy"
    reach = "copy"
    placed = "memory"
    in_body = True
    takes_moving = True
    copies = True

    dst: View
    src: View
    device: Device = None

    def model_post_init(self, _: Any) -> None:
        name, dst, src = self.name, self.dst, self.src
        if dst.dtype != src.dtype:
            raise node_error(name, f"a copy keeps the dtype; {src.name!r} is {src.dtype} and {dst.name!r} is {dst.dtype}")
        if any(isinstance(view, MovingView) and not view.has_fixed_shape for view in (dst, src)):
            pass  # whether they fit, each launch decides
        elif not copyable(dst, src):
            raise node_error(
                name,
                f"{src.name!r} has shape {src.shape} ({src.nbytes} bytes) and {dst.name!r} has shape {dst.shape} ({dst.nbytes}"
                " bytes); slice one of them to the other's shape",
            )
        elif copy_geometry(dst, src) is None:
            raise node_error(
                name,
                f"no single 3-D pitched copy takes {src.name!r} (strides {src.strides}) to {dst.name!r} (strides {dst.strides});"
                " split it, or copy a contiguous part",
            )
        require_met(name, dst, WRITE)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        return (Access(self.src, "read"), Access(self.dst, "write"))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of((self.dst, self.src))

    @property
    def duration_keys(self) -> tuple[str, ...]:
        return (self.direction, self.kind)

    @property
    def direction(self) -> str:
        """``"H2D"``, ``"D2H"``, ``"D2D"`` or ``"H2H"``."""
        return f"{_side(self.src)}2{_side(self.dst)}"

    @property
    def nbytes(self) -> int:
        """Bytes copied."""
        return self.dst.nbytes

    engine = direction

    @property
    def copied(self) -> tuple[tuple[ArrayView, ArrayView], ...]:
        return ((self.dst, self.src),)

    def describe(self) -> str:
        return f"{self.dst.name} <- {self.src.name}"

    def in_full(self) -> str:
        sides = [{"H": "host", "D": "device"}[side] for side in (_side(self.src), _side(self.dst))]
        return f"{self.describe()}, {self.nbytes} bytes, {' to '.join(sides)}"

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{_part(self.dst)} ← {_part(self.src)}", f"{self.direction} · {human_bytes(self.nbytes)}")


def _side(view: ArrayView) -> str:
    root = view.root
    return "H" if isinstance(root, Array) and root.on_host else "D"


def _part(view: ArrayView) -> str:
    """Return an array's name and its selection; whole dimensions are written as ``:`` and omitted at the end."""
    chosen = zip(view.selection, view.root.shape)
    said = [":" if selector == slice(0, extent, 1) else selector_text(selector) for selector, extent in chosen]
    while said and said[-1] == ":":
        said.pop()
    return f"{view.root.name}[{', '.join(said)}]" if said else view.root.name


def element_bytes(value: Any, dtype: np.dtype[Any], where: str) -> bytes:
    """Return the bytes of `value` as one element of `dtype`; raise DeclarationError if the dtype cannot hold it."""
    return _element(value, dtype, where).tobytes()


def element_value(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Convert a parameter's value to `dtype`; return a Python number, or for a struct a read-only numpy.void."""
    if dtype.kind != "V" or is_extra(dtype):
        try:
            return scalar_value(value, dtype)
        except NoValueError as error:
            raise _no_value(value, dtype, where, error) from None
    is_number = isinstance(value, (int, float, complex, np.number)) or (isinstance(value, np.ndarray) and not value.dtype.names)
    if dtype.names and is_number:  # NumPy would assign it to every field
        raise struct_error(dtype, value, where)
    element = _element(value, dtype, where)
    element.flags.writeable = False
    return element[()]


def kept_value(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Check a value for `dtype`, and return it as a declaration keeps it.

    Numbers of Python, NumPy's of types that files hold, and structs stay as they are given; all others become Python numbers.
    """
    found = element_value(value, dtype, where)
    if isinstance(value, np.ndarray):
        value = value[()]
    if kind_of(dtype) == "V":
        return deepcopy(value)
    is_plain = type(value) in (int, float, complex, bool) or (isinstance(value, np.generic) and is_stored(value.dtype))
    return value if is_plain else found


def _element(value: Any, dtype: np.dtype[Any], where: str) -> np.ndarray[Any, Any]:
    element = np.zeros((), dtype)
    try:
        if kind_of(dtype) != "V":
            number = scalar_value(value, dtype)
            # NumPy's own keeps what the conversion of a NaN loses.
            element[()] = value if getattr(value, "dtype", None) == dtype else np.array(number).astype(dtype)
        else:
            value = as_element(value)
            by_field = bool(dtype.names) and isinstance(value, (tuple, Mapping, np.void))
            element[()] = struct_fields(dtype, value, where) if by_field else converted(value, dtype)
    except DeclarationError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        if dtype.names:
            raise struct_error(dtype, value, where, why=str(error)) from None
        raise _no_value(value, dtype, where, error) from None
    return element


def _no_value(value: Any, dtype: np.dtype[Any], where: str, why: Exception) -> DeclarationError:
    return DeclarationError(f"{where}: {shown(value)} is no value of dtype {dtype}: {why}")


def _unfillable(dst: ArrayView) -> str:
    """Return why a memset cannot fill a view; empty if it can."""
    size, dims = dst.dtype.itemsize, len(dst.region.dims) + 1
    if size > _MAX_FILL_BYTES:
        most = f"a memset takes at most {_MAX_FILL_BYTES}"
        return f"elements of {dst.name!r} have {size} bytes, and {most}; copy the values from a host array"
    if dims > _MAX_FILL_DIMS:
        return f"{dst.name!r} has {dims} strided dimensions, and a memset takes at most {_MAX_FILL_DIMS}; set parts of it"
    return ""


def _reached_by_device(view: ArrayView) -> Need:
    return device_need(view.dtype.alignment)


@add_kind
class MemsetNode(Node):
    """Set every element of a view to one value (hipGraphAddMemsetNode, or a fill kernel if that API cannot).

    Attributes
    ----------
    dst : ArrayView
    value : number, numpy.void or Parameter
        In the array's dtype.
    device : int or None
        The device that performs it; None: the one that owns `dst`.
    """

    kind: ClassVar[str] = "memset"
    work = "memset"
    reach = "device"
    placed = "memory"
    in_body = True
    takes_moving = True

    dst: View
    value: Annotated[Value, Rule(always=True)] = 0
    device: Device = None

    def model_post_init(self, _: Any) -> None:
        name, dst, value = self.name, self.dst, self.value
        if isinstance(value, Parameter):
            if not (value.terms and dst.dtype.kind in "iu") and (value.shape or value.dtype != dst.dtype):
                what = "an expression, and fills of integers take these" if value.terms else repr(value)
                why = f"the value of {dst.name!r} has dtype {dst.dtype}; parameter {value.name!r} is {what}"
                raise node_error(name, why, array=value.name)
        else:
            self.__dict__["value"] = kept_value(value, dst.dtype, f"node {name!r}" + ": the value" * bool(dst.dtype.names))
        if refused := _unfillable(dst):
            raise node_error(name, refused, array=dst.root.name)
        for need in (_reached_by_device(dst), WRITE):
            require_met(name, dst, need)

    def _reached(self) -> tuple[tuple[ArrayView, Need], ...]:
        return ((self.dst, _reached_by_device(self.dst)),)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        return (self.dst.accessed("write"),)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of((self.dst, self.value))

    def describe(self) -> str:
        value = self.value.name if isinstance(self.value, Parameter) else self.value
        return f"{self.dst.name} = {value}"

    def in_full(self) -> str:
        return f"{self.describe()}, {self.dst.nbytes} bytes"

    @property
    def details(self) -> tuple[str, ...]:
        return (self.describe(), human_bytes(self.dst.nbytes))


def _new_array(value: Any, info: ValidationInfo) -> Any:
    names = names_in(info)
    if names is None:
        return value
    from .reading import Members, memory_of

    members = Members(value, "the array of an alloc node")
    name = check_name(members.take("name", str), "array")
    if name in names.arrays:
        raise DeclarationError(f"array {name!r} is declared twice")
    shape, dtype, where = memory_of(members)
    members.done("the array of an alloc node")
    return AllocArray(name, shape, dtype, **where)


def _allocated(value: Any, info: ValidationInfo) -> AllocArray:
    names = names_in(info)
    array = value if names is None else names.array(value)
    found = (
        array.made if isinstance(array, AllocNode) else array.root if isinstance(array, ArrayView) and array.is_whole else array
    )
    if not isinstance(found, AllocArray):
        what = f"{array.kind} array {array.name!r}" if isinstance(array, (Array, HostArray)) else repr(array)
        raise node_error(
            node_in(info),
            f"only what an alloc node made can be freed (got {what}); other arrays are returned when the Executable is closed",
            array=getattr(array, "name", None),
        )
    return found


class _GraphMemoryNode(Node):
    """Base of alloc and free nodes; both write the whole array, so that every use is ordered between them."""

    work = ""
    reach = ""
    placed = "memory"
    in_body = False
    in_child = False
    fixed = "memory that a graph allocates is fixed when it is built"

    array: AllocArray

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        return (self.array.as_view().accessed("write"),)

    def take(self, data: dict[str, Any], launches: Any = None) -> None:
        """Take what `Graph.alloc` and `Graph.free` give, mostly a name and an array, as they are."""
        name, array = data.get("name"), data.get("array")
        if type(self) is FreeNode and type(array) is AllocNode:
            array = array.array
        known = launches is not None and data.keys() == _DECLARED and type(array) is AllocArray
        if known and type(name) is str and name.isidentifier() and len(name) <= MAX_NAME:
            fields = {"name": name, "after": (), "ignore": None, "source": data["source"], "array": array}
            set_state(self, fields, _DECLARED)
        else:
            super().take(data)


_DECLARED: Final = {"array", "name", "source"}
"""The fields that `Graph.alloc` and `Graph.free` give without options."""
_MADE: Final = Stored(
    _new_array,
    lambda array, *_: {"name": array.name, **memory_data(array)},
    record({"name": ref("name"), "dtype": ref("dtype"), "shape": SHAPE, **MEMORY}, "name dtype shape"),
)
"""The array of an alloc node, which its file declares."""


@add_kind
class AllocNode(_GraphMemoryNode, Viewable):
    """Allocate an array inside the graph (hipGraphAddMemAllocNode). The node can be used wherever an array can.

    Attributes
    ----------
    array : AllocArray
    """

    kind: ClassVar[str] = "alloc"
    offered = (*Node.offered, "dtype", "nbytes", "shape")

    array: Annotated[AllocArray, _MADE]

    @property
    def made(self) -> AllocArray:
        return self.array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array."""
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.array.nbytes

    def as_view(self) -> ArrayView:
        """Return the whole array as a view."""
        return self.array.as_view()

    def __getitem__(self, key: Any) -> ArrayView:
        return self.array[key]

    def describe(self) -> str:
        return f"{self.array.name}: {self.array.dtype}{list(self.array.shape)}"

    @property
    def details(self) -> tuple[str, ...]:
        return (self.describe(), human_bytes(self.nbytes))


@add_kind
class FreeNode(_GraphMemoryNode):
    """Free the memory that an alloc node allocated (hipGraphAddMemFreeNode).

    Attributes
    ----------
    array : AllocArray
    """

    kind: ClassVar[str] = "free"

    array: Annotated[AllocArray, Stored(_allocated, lambda array, *_: array.name, ref("name"))]

    @property
    def freed(self) -> AllocArray:
        return self.array

    def describe(self) -> str:
        return self.array.name

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{self.array.name} · {human_bytes(self.array.nbytes)}",)
