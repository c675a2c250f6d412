"""Views: elements of one array or parameter, and how a node accesses them.

An array may own the user's memory, which must be released with the last reference to it, not when the collector of cycles runs.
So references are strong in one direction: access -> view -> the view that it was selected from -> array. In the other direction
they are caches, and weak: what is made a second time while the first one is in use is the same object.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import DeclarationError, shown
from ..lazy import lazy
from .coercion import as_int
from .regions import Region

Mode = Literal["read", "write", "update"]
Selector = int | slice
Selection = tuple[Selector, ...]

_MOST_PARTS = 1 << 14  # views of one view that are kept for those who ask for them again


class Viewable:
    """Base of everything usable as an array: arrays, views, alloc nodes, parameters with a shape.

    Not an abstract base class: `isinstance` of one costs more than the rest of declaring a node.
    """

    __slots__ = ()

    def as_view(self) -> ArrayView:
        """Return the view of all elements."""
        raise TypeError(f"{type(self).__name__} is no array")


def as_view(obj: Any, what: str = "an array") -> ArrayView:
    """Return an array, a view, an alloc node or a parameter with a shape as a view; raise DeclarationError otherwise."""
    if isinstance(obj, ArrayView):
        return obj
    if isinstance(obj, Viewable):
        return obj.as_view()
    raise DeclarationError(
        f"{what} is expected (a declared array, a view of one, an alloc node, or a parameter with a shape); {no_array(obj)}"
    )


def no_array(obj: Any) -> str:
    """Return a message part: what was given instead of a declared array, and how to declare it."""
    kind = type(obj).__name__
    if isinstance(obj, str):
        return f"got str {shown(obj)}; a graph has its arrays by name in g.arrays"
    if hasattr(obj, "shape") and hasattr(obj, "dtype"):
        return (
            f"got {kind} of shape {tuple(obj.shape)} and dtype {obj.dtype}; declare it: g.device_array(name, values) and"
            " g.host_array(name, values) copy the values, g.external_array(name, values) uses them in place"
        )
    return f"got {kind} {shown(obj)}"


class Sliceable(Viewable):
    """Base with slicing and sizes for everything with a name, a shape and a dtype."""

    __slots__ = ()

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> ArrayView:
        return self.as_view()[key]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name!r} has no dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[ArrayView]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return True

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        # Without this method, NumPy would build an array of one view per element.
        raise DeclarationError(
            f"{self.name!r} is declared and holds no values, so NumPy cannot take it; an Executable has them:"
            f" exe.read({self.name!r}), and a host callback gets them as an argument",
            array=self.name,
        )


class Root(Sliceable):
    """Base of what a view can select from: an array, or a parameter that is bound to memory at launch.

    Attributes
    ----------
    kind : str
        The kind of array or parameter, as written in files and messages.
    device : int or None
        The device that owns the memory; None is the device that the graph is compiled for.
    writeable : bool
        Whether nodes may write it.
    """

    kind: ClassVar[str]
    device: int | None
    writeable: bool = True

    @property
    def on_host(self) -> bool:
        """Whether host callbacks may take it."""
        return False

    @property
    def on_device(self) -> bool:
        """Whether kernels may take it."""
        return True

    @staticmethod
    def _all() -> ArrayView | None:
        """Return None; a weak reference to the view of all elements takes this method's place."""
        return None

    def as_view(self) -> ArrayView:
        """Return the view of all elements."""
        found = self._all()
        if found is None:
            found = ArrayView._of_all(self)
            self.__dict__["_all"] = weakref.ref(found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_all"}  # without what is cached

    def __copy__(self) -> Root:
        return self  # graphs compare arrays and parameters by identity, and frozen objects need no copy

    def __deepcopy__(self, memo: Any) -> Root:
        return self

    @property
    def hazard_key(self) -> Any:
        """The key of the address space; roots with equal keys share one, each at its `hazard_offset`."""
        return self

    @property
    def hazard_offset(self) -> int:
        """Byte offset of this root in the address space of `hazard_key`."""
        return 0


@dataclass(frozen=True, eq=False, init=False)
class ArrayView(Sliceable):
    """Elements of one array, selected by basic slices with positive steps.

    Attributes
    ----------
    root : Array or Parameter
        The array or parameter whose elements it selects.
    selection : tuple of int or slice
        One selector for each dimension of the root: an index drops the dimension, a slice is ``start:stop:step`` with all
        three given.
    """

    root: Root
    selection: Selection

    def __init__(self, root: Root, selection: Selection) -> None:  # the generated one takes twice as long
        dtype = root.dtype
        step_bytes = dtype.itemsize
        offset = 0
        shape: list[int] = []
        strides: list[int] = []
        for extent, selector in zip(root.shape[::-1], selection[::-1]):
            if type(selector) is slice:
                start, step = selector.start, selector.step
                offset += start * step_bytes
                shape.append(-((start - selector.stop) // step))
                strides.append(step * step_bytes)
            else:
                offset += selector * step_bytes
            step_bytes *= extent
        values = self.__dict__
        values["root"] = root
        values["selection"] = selection
        values["offset_bytes"] = offset
        values["shape"] = mine = tuple(shape[::-1])
        values["strides"] = steps = tuple(strides[::-1])
        values["dtype"] = dtype
        values["region"] = region = Region.strided(offset, mine, steps, dtype.itemsize)
        values["contiguous"] = not region.dims

    @staticmethod
    def _of_all(root: Root) -> ArrayView:
        """Return the view of all elements, in C order, as `ArrayView` with whole slices."""
        selection, strides, region = _whole(root.shape, root.dtype.itemsize)
        made = object.__new__(ArrayView)
        made.__dict__.update(
            root=root, selection=selection, offset_bytes=0, shape=root.shape, strides=strides, dtype=root.dtype, region=region,
            contiguous=True,
        )  # fmt: skip
        return made

    offset_bytes: int = field(init=False, repr=False)
    shape: tuple[int, ...] = field(init=False)
    strides: tuple[int, ...] = field(init=False, repr=False)
    dtype: np.dtype[Any] = field(init=False)
    region: Region = field(init=False, repr=False)
    contiguous: bool = field(init=False, repr=False)

    def as_view(self) -> ArrayView:
        """Return itself."""
        return self

    def on(self, root: Root) -> ArrayView:
        """Return the same selection of another root, which must have this root's shape and dtype; itself for its own root."""
        if root is self.root:
            return self
        made = object.__new__(ArrayView)  # avoids recomputing the fields that depend on shape and dtype
        made.__dict__.update({name: self.__dict__[name] for name in _FIELDS}, root=root)
        return made

    _by_expressions: ClassVar[Callable[[ArrayView, Any, Any], ArrayView]]
    """Selects by parameters and expressions; `moving`, which knows these, sets it."""

    @lazy
    def hazard(self) -> tuple[Any, Region]:
        """The address space and the exact bytes in it, by which accesses are compared."""
        root = self.root
        offset = root.hazard_offset
        return root.hazard_key, self.region.shifted(offset) if offset else self.region

    @lazy
    def _parts(self) -> dict[Any, weakref.ref[ArrayView]]:
        """Views that were selected from this one, by key: algorithms name the same tiles again and again; a cache."""
        return {}

    def accessed(self, mode: Mode) -> Access:
        """Return the access of the view in a mode; cached, so the same object as long as somebody has it."""
        values, name = self.__dict__, _CACHED[mode]
        known = values.get(name)
        access: Access | None = None if known is None else known()
        if access is None:
            access = Access(self, mode)
            values[name] = weakref.ref(access)
        return access

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in _FIELDS}  # without what is cached

    @lazy
    def name(self) -> str:  # an attribute in the base class, here computed from the selection
        """The root's name with the selection: ``"u"``, ``"u[3, 8:248]"``."""
        if self.is_whole:
            return self.root.name
        return f"{self.root.name}[{', '.join(selector_text(s) for s in self.selection)}]"

    @property
    def is_whole(self) -> bool:
        """Whether it holds every element of its root, with all dimensions."""
        return self.shape == self.root.shape

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayView):
            return NotImplemented
        return self.root is other.root and self.selection == other.selection

    def __hash__(self) -> int:
        return hash((id(self.root), self.offset_bytes, self.shape))

    def __repr__(self) -> str:
        return f"ArrayView({self.name}, shape={self.shape}, dtype={self.dtype})"

    def __getitem__(self, key: Any) -> ArrayView:
        known = key if type(key) is int else _as_key(key)
        part = None if known is None else self._parts.get(known)
        found = None if part is None else part()
        if found is None:
            found = self._selected(key)
            if known is not None:
                if len(self._parts) >= _MOST_PARTS:
                    self._parts.clear()
                self._parts[known] = weakref.ref(found)
                found.__dict__["_of"] = self  # which finds the part as long as that is in use
        return found

    def _selected(self, key: Any) -> ArrayView:
        keys = key if isinstance(key, tuple) else (key,)
        shape = self.shape
        for at, wanted in enumerate(keys):
            if wanted is Ellipsis:
                missing = len(shape) - (len(keys) - 1)
                keys = (*keys[:at], *(slice(None),) * max(missing, 0), *keys[at + 1 :])
                break
        if len(keys) > len(shape):
            raise self._refuse(key, f"it has {len(shape)} dimension{'s' * (len(shape) != 1)}")
        selection: list[Selector] = []
        at = 0  # index among the dimensions of this view
        for selector in self.selection:
            if type(selector) is not slice or at == len(keys):
                selection.append(selector)
                continue
            wanted, extent = keys[at], shape[at]
            at += 1
            if type(wanted) is not int and _is_moving(wanted):
                return self._by_expressions(self.selection, key)
            if isinstance(wanted, slice):
                start, stop, step = self._slice(key, wanted, extent)
                first = selector.start + start * selector.step
                count = -((start - stop) // step)
                stride = step * selector.step
                selection.append(slice(first, first + (count - 1) * stride + 1, stride if count > 1 else 1))
            else:
                index = wanted if type(wanted) is int else self._index(key, wanted)
                if not -extent <= index < extent:
                    raise self._refuse(key, f"index {index} is out of range for an extent of {extent}")
                selection.append(selector.start + (index % extent) * selector.step)
        return ArrayView(self.root, tuple(selection))

    def _index(self, key: Any, wanted: Any) -> int:
        # For an int, the caller skips this: isinstance of a protocol costs more than the rest of slicing.
        if (index := as_int(wanted)) is not None and not isinstance(wanted, np.ndarray):
            return index
        raise self._refuse(key, f"{wanted!r} is neither an index nor a slice")

    def _slice(self, key: Any, wanted: slice, extent: int) -> tuple[int, int, int]:
        bounds = (wanted.start, wanted.stop, wanted.step)
        try:
            start, stop, step = [n if n is None or type(n) is int else n.__index__() for n in bounds]
        except (AttributeError, TypeError):
            raise self._refuse(key, "the bounds of a slice are integers") from None
        if step is not None and step < 1:
            raise self._refuse(key, f"steps are positive (got {step})")
        for bound in (start, stop):
            if bound is not None and not -extent <= bound <= extent:
                raise self._refuse(key, f"{bound} is out of range for an extent of {extent}")
        first = 0 if start is None else start + extent * (start < 0)
        last = extent if stop is None else stop + extent * (stop < 0)
        if first >= last:
            raise self._refuse(key, "it selects no element")
        return first, last, step or 1

    def _refuse(self, key: Any, why: str) -> DeclarationError:
        keys = key if isinstance(key, tuple) else (key,)
        text = ", ".join(selector_text(k) for k in keys)
        return DeclarationError(
            f"{self.name}[{text}]: {why}; {self.root.name!r} has shape {self.root.shape}", array=self.root.name
        )


@lru_cache
def _whole(shape: tuple[int, ...], itemsize: int) -> tuple[Selection, tuple[int, ...], Region]:
    """Return what views of whole arrays of one shape share: selection, strides and region."""
    strides = tuple([itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))])
    nbytes = itemsize * math.prod(shape)
    return tuple([slice(0, extent, 1) for extent in shape]), strides, Region(0, nbytes, nbytes)


def selector_text(selector: Any) -> str:
    """Return an index or a slice as Python text."""
    if not isinstance(selector, slice):
        return "..." if selector is Ellipsis else _bound_text(selector)
    start = "" if selector.start is None else _bound_text(selector.start)
    stop = "" if selector.stop is None else _bound_text(selector.stop)
    colon = " : " if " " in f"{start}{stop}" else ":"
    return f"{start}{colon}{stop}" + (f"{colon}{selector.step}" if selector.step not in (None, 1) else "")


def _is_moving(key: Any) -> bool:
    """Whether an index or a bound of a slice is a parameter, or an expression of them."""
    return any(isinstance(bound, Root) for bound in ((key.start, key.stop, key.step) if type(key) is slice else (key,)))


def _bound_text(bound: Any) -> str:
    return bound.name if isinstance(bound, Root) else str(bound)


_BOUND_TYPES = frozenset({int, type(None)})


def _as_key(key: Any) -> Any:
    """Return a hashable equivalent of a key of integers and slices of these; None for others, such as a bool, which equals 1."""
    if type(key) is slice:
        bounds = (key.start, key.stop, key.step)
        return bounds if _BOUND_TYPES.issuperset(map(type, bounds)) else None
    if type(key) is not tuple:
        return None
    parts = []
    for part in key:
        known = part if type(part) is int else None if type(part) is tuple else _as_key(part)
        if known is None:
            return None
        parts.append(known)
    return ("tuple", *parts)  # differs from a slice


_FIELDS = tuple(each.name for each in fields(ArrayView))
_CACHED: dict[Mode, str] = {"read": "_read", "write": "_write", "update": "_update"}


class _Referable(Viewable):
    """Base with a slot for weak references, which a dataclass with slots adds only from Python 3.11 on."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class Access(_Referable):
    """How a node touches memory.

    Attributes
    ----------
    view : ArrayView
        The accessed elements, as the user named them.
    mode : {"read", "write", "update"}
        ``"update"`` reads and writes.
    region : Region or None
        The exact bytes relative to the root, if they differ from the view's (an access inside a child graph).
    """

    view: ArrayView
    mode: Mode
    region: Region | None = None

    def as_view(self) -> ArrayView:
        """Return the view."""
        return self.view

    @property
    def bytes(self) -> Region:
        """The exact bytes, relative to the root."""
        return self.view.region if self.region is None else self.region

    @property
    def hazard(self) -> tuple[Any, Region]:
        """The address space and the exact bytes in it, by which accesses are compared."""
        if self.region is None:
            return self.view.hazard
        root = self.view.root
        return root.hazard_key, self.region.shifted(root.hazard_offset)

    @property
    def is_read(self) -> bool:
        """Whether it reads the earlier values."""
        return self.mode != "write"

    @property
    def is_write(self) -> bool:
        """Whether it changes values."""
        return self.mode != "read"

    def __repr__(self) -> str:
        return f"{self.mode}s({self.view.name})"


def reads(array: Any) -> Access:
    """Declare that a node only reads this argument, whatever its signature says."""
    return as_view(array, "hg.reads: an array").accessed("read")


def writes(array: Any) -> Access:
    """Declare that a node overwrites all of this argument and does not read it."""
    return as_view(array, "hg.writes: an array").accessed("write")


def updates(array: Any) -> Access:
    """Declare that a node reads and writes this argument."""
    return as_view(array, "hg.updates: an array").accessed("update")
