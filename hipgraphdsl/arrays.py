"""What a node reads and writes: arrays, views of them, and parameters.

An array is a frozen description: a name, a shape, a dtype and where it lives. Memory exists only in an `Executable`.
An `ArrayView` selects elements of one array by basic slices with positive steps; its `Region`, an exact set of bytes, is
the unit of dependency.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .errors import DeclarationError

__all__ = [
    "Access",
    "AllocArray",
    "Array",
    "ArrayView",
    "DeviceArray",
    "ExternalArray",
    "HostArray",
    "Parameter",
    "Region",
    "UnboundValues",
    "Viewable",
    "array_values",
    "as_device",
    "as_devices",
    "as_dtype",
    "as_shape",
    "as_view",
    "converted",
    "no_array",
    "reads",
    "updates",
    "writes",
]

Mode = Literal["read", "write", "update"]
Selector = int | slice
Selection = tuple[Selector, ...]

_MAX_DIMS = 32
_MAX_DEVICES = 2**16


def as_device(device: Any, what: str) -> int | None:
    """Return the number of a device as an int; None stays None, the device that a graph is compiled for.

    Raises
    ------
    DeclarationError
        If it is no number of a device.
    """
    if device is None:
        return None
    number = as_int(device)
    if number is None:
        raise DeclarationError(f"{what}: device is the number of a device, or None for that of compile (got {device!r})")
    if not 0 <= number < _MAX_DEVICES:
        raise DeclarationError(f"{what}: device is the number of a device, from 0 (got {number})")
    return number


def as_devices(devices: Any, what: str) -> tuple[int, ...]:
    """Return numbers of devices in their order, without repeats.

    Raises
    ------
    DeclarationError
        If it is no list of devices.
    """
    given = tuple(devices) if isinstance(devices, (tuple, list, set, frozenset, range)) else (devices,)
    numbers = [as_device(device, f"{what}: access") for device in given]
    if None in numbers:
        raise DeclarationError(f"{what}: access lists the numbers of devices (got {devices!r})")
    return tuple(sorted({number for number in numbers if number is not None}))


def as_int(value: Any) -> int | None:
    """Return an integer of any type as an int, and None for anything else; a bool is none."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of floats has an `__index__` too
        return None


_HANDLE_ATTRIBUTES = ("cuda_stream", "cuda_event", "ptr", "handle")  # torch, torch, cupy, others
_HANDLE_METHODS = ("as_c_void_p", "getPtr")  # what marks a handle of hip-python and of cuda-bindings, whose int() is its value


def as_handle(value: Any) -> int | None:
    """Return the raw handle (stream, event, graph, semaphore) of an object of whatever library, and None for anything else.

    Taken are integers, ctypes pointers, `__cuda_stream__`, the attributes that torch and cupy have, and the handle types of
    hip-python and cuda-bindings. The object stays its owner's, who keeps it for as long as the handle is used.
    """
    if hasattr(value, "__cuda_stream__"):
        value = value.__cuda_stream__()[1]
    elif isinstance(value, ctypes.c_void_p):
        value = value.value or 0
    elif any(hasattr(type(value), name) for name in _HANDLE_METHODS):
        value = int(value)
    else:
        named = (getattr(value, name, None) for name in _HANDLE_ATTRIBUTES)
        value = next((handle for handle in named if isinstance(handle, int)), value)
    number = as_int(value)
    return number if number is not None and 0 <= number < 2**64 else None


def as_dict(value: Any, what: str, of: str = "") -> dict[Any, Any]:
    """Return a mapping as a dict; None is an empty one.

    Raises
    ------
    DeclarationError
        If it is no mapping.
    """
    if value is not None and not isinstance(value, Mapping):
        raise DeclarationError(f"{what} is a dict{of} (got {value!r})")
    return dict(value or {})


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a name or type; ``"bfloat16"`` needs the package ml_dtypes.

    Raises
    ------
    DeclarationError
        If it is no dtype, or one that a GPU cannot hold (objects, strings, dates, long double).
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise DeclarationError("dtype 'bfloat16' needs the package ml_dtypes: pip install ml_dtypes") from None
        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]  # ml_dtypes has no types
    try:
        result = np.dtype("float64" if dtype is None else dtype)
    except (TypeError, ValueError, SyntaxError):
        result = None
    if result is None or dtype is None:  # NumPy takes None for float64, which nobody has asked for
        raise DeclarationError(f"{dtype!r} is not a dtype; give a NumPy dtype such as 'float32'")
    if result.subdtype is not None:
        raise DeclarationError(f"dtype {dtype!r} has a shape of its own; give {result.base} and put {result.shape} into shape=")
    if result.hasobject or result.kind in "OSUMm" or (result.kind in "fc" and result.itemsize > 8 * (1 + (result.kind == "c"))):
        raise DeclarationError(
            f"dtype {result} cannot live on a device; use bool, 8- to 64-bit integers, float16, bfloat16, float32, float64,"
            " complex or structured dtypes of these"
        )
    if result.itemsize == 0:
        raise DeclarationError(f"dtype {dtype!r} has elements of 0 bytes; give its size")
    return result.newbyteorder("=") if result.kind != "V" else result


def converted(values: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return values in a dtype, for arrays that are declared and written alike; rounding of floats is all that may change them.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If the dtype cannot hold a value: out of range, no whole number, complex, neither true nor false, masked.
    """
    if np.ma.is_masked(values):
        raise ValueError("some are masked; fill them first, as with values.filled(0)")
    if dtype.kind == "V" and dtype.name != "bfloat16":  # structs, and bytes whose meaning is not known
        return np.asarray(values, dtype)
    given = np.asarray(values)
    if given.dtype == dtype:
        return given
    if given.dtype.kind == "O":  # such as integers beyond 64 bits
        return np.asarray(values, dtype)
    if given.dtype.kind not in "biufc" and given.dtype.name != "bfloat16":
        raise TypeError(f"{given.reshape(-1)[:1].tolist()} of dtype {given.dtype} are no numbers")
    if given.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"they are complex, and the dtype is {dtype}; give their real parts")
    if dtype.kind == "b" and not np.isin(given, (0, 1)).all():
        raise ValueError("they are neither true nor false")
    if dtype.kind in "iu" and given.size:
        if given.dtype.kind not in "biu" and not (np.isfinite(given) & (np.trunc(given) == given)).all():
            raise ValueError(f"they are no whole numbers, and the dtype is {dtype}; round them first")
        info = np.iinfo(dtype)
        for extreme in (given.min(), given.max()):
            if not info.min <= int(extreme) <= info.max:
                raise OverflowError(f"{extreme} is out of the range {info.min}..{info.max} of {dtype}")
    with np.errstate(over="ignore"):
        result = given.astype(dtype)
    if dtype.kind not in "biu" and (np.isfinite(given) & ~np.isfinite(result)).any():
        raise OverflowError(f"overflow: {dtype} cannot hold values so large")
    return result


def array_values(what: str, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """Return values as an array of a dtype and a shape has them; `what` takes them, called `name`.

    Raises
    ------
    DeclarationError
        If they have another shape or cannot be converted.
    """
    try:
        return np.ascontiguousarray(np.broadcast_to(converted(values, dtype), shape))
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(
            f"{what} takes values of shape {shape} and dtype {dtype} (got {getattr(values, 'shape', type(values).__name__)}):"
            f" {str(error).partition(' with remapped')[0]}",
            array=name,
        ) from None


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of positive ints.

    Raises
    ------
    DeclarationError
        If an extent is not an integer or is less than 1.
    """
    try:
        extents = tuple(shape) if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
        result = tuple(e.__index__() for e in extents)
    except (AttributeError, TypeError):
        raise DeclarationError(f"a shape is an integer or a tuple of integers (got {shape!r})") from None
    if any(isinstance(e, (bool, np.bool_)) for e in extents):
        raise DeclarationError(f"a shape is an integer or a tuple of integers (got {shape!r})")
    if len(result) > _MAX_DIMS:
        raise DeclarationError(f"a shape has at most {_MAX_DIMS} dimensions (got {len(result)})")
    for extent in result:
        if extent < 1:
            raise DeclarationError(f"each extent of a shape is at least 1 (got {extent} in {result})")
    if math.prod(result) > 2**62:
        raise DeclarationError(f"an array of shape {result} has more elements than an address space")
    return result


@dataclass(frozen=True, slots=True)
class Region:
    """An exact set of bytes inside one allocation.

    ``{start + sum(i_k * stride_k) + b}`` for ``0 <= i_k < count_k`` and ``0 <= b < run``.

    Attributes
    ----------
    start, stop : int
        Byte offsets of the first byte and past the last byte.
    run : int
        Bytes of each contiguous run.
    dims : tuple of (count, stride in bytes)
        Outer dimensions, outermost first; empty for a contiguous region.
    """

    start: int
    stop: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def strided(start: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Region:
        """Return the normal form of a strided region: unit and mergeable dimensions are joined."""
        run = itemsize
        dims: list[tuple[int, int]] = []
        for count, stride in zip(reversed(shape), reversed(strides)):
            if count == 1:
                continue
            if not dims and stride == run:
                run *= count
            elif dims and stride == dims[0][0] * dims[0][1]:
                dims[0] = (dims[0][0] * count, dims[0][1])
            else:
                dims.insert(0, (count, stride))
        last = start + sum((count - 1) * stride for count, stride in dims)
        return Region(start, last + run, run, tuple(dims))

    @property
    def nbytes(self) -> int:
        """Bytes that the region holds."""
        return self.run * math.prod(count for count, _ in self.dims)

    def shifted(self, offset: int) -> Region:
        """Return the same region `offset` bytes further on."""
        if not offset:
            return self
        return Region(self.start + offset, self.stop + offset, self.run, self.dims)

    def overlaps(self, other: Region) -> bool:
        """Return whether the two share a byte; exact."""
        if self.start >= other.stop or other.start >= self.stop:
            return False
        if not self.dims and not other.dims:
            return True
        if len(self.dims) < 2 and len(other.dims) < 2:
            rows, pitch = self.dims[0] if self.dims else (1, 0)
            other_rows, other_pitch = other.dims[0] if other.dims else (1, 0)
            if pitch == other_pitch or not pitch or not other_pitch:
                # Rows i here and i + m there, of which one is -rows < m < other_rows, meet where
                # -other.run < ahead + m * pitch < run.
                pitch, ahead = pitch or other_pitch, other.start - self.start
                least = max((-other.run - ahead) // pitch + 1, 1 - rows)
                return least < other_rows and ahead + least * pitch < self.run
        return _strided_overlap(self, other)

    def contains(self, other: Region) -> bool:
        """Return whether every byte of `other` is here; may say False for strided regions of unlike form."""
        if not self.dims:
            return self.start <= other.start and other.stop <= self.stop
        if self == other:
            return True
        if self.run == other.run and len(self.dims) == len(other.dims):
            offset = other.start - self.start
            for (count, stride), (other_count, other_stride) in zip(self.dims, other.dims):
                if stride != other_stride and other_count > 1:
                    return False
                index, offset = divmod(offset, stride)
                if index < 0 or index + other_count > count:
                    return False
            return offset == 0
        return False

    def __str__(self) -> str:
        text = f"bytes {self.start}..{self.stop}"
        if self.dims:
            text += " (" + " x ".join(f"{count} every {stride}" for count, stride in self.dims) + f" of {self.run})"
        return text


# NumPy decides whether two strided sets of addresses meet (a bounded Diophantine problem) without touching memory. Beyond
# this much work the answer is "they do", which can only add an edge or a report.
_OVERLAP_WORK = 1_000_000


class _Addresses:
    """Strided addresses as NumPy sees them; never dereferenced."""

    def __init__(self, region: Region, base: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (*(count for count, _ in region.dims), region.run),
            "strides": (*(stride for _, stride in region.dims), 1),
            "data": (region.start - base + 4096, True),
        }


def _strided_overlap(a: Region, b: Region) -> bool:
    base = min(a.start, b.start)
    try:
        return np.shares_memory(
            np.asarray(_Addresses(a, base)),
            np.asarray(_Addresses(b, base)),
            max_work=_OVERLAP_WORK,  # type: ignore[arg-type]  # NumPy's stub knows only the two limits that have names
        )
    except np.exceptions.TooHardError:
        return True


class Viewable:
    """Whatever may stand where an array may: arrays, views, alloc nodes, parameters with a shape.

    A plain base class, because `isinstance` of an abstract one costs more than the rest of declaring a node.
    """

    __slots__ = ()

    def as_view(self) -> ArrayView:
        """Return all of it as a view."""
        raise TypeError(f"{type(self).__name__} is no array")


def as_view(obj: Any, what: str = "an array") -> ArrayView:
    """Return `obj` as a view.

    Raises
    ------
    DeclarationError
        If `obj` is neither an array, a view, an alloc node nor a parameter with a shape.
    """
    if isinstance(obj, ArrayView):
        return obj
    if isinstance(obj, Viewable):
        return obj.as_view()
    raise DeclarationError(
        f"{what} is expected (a declared array, a view of one, an alloc node, or a parameter with a shape); {no_array(obj)}"
    )


def no_array(obj: Any) -> str:
    """Return, for a message, what came instead of a declared array, and how it becomes one."""
    kind = type(obj).__name__
    if isinstance(obj, str):
        return f"got str {_short(obj)}; a graph has its arrays by name in g.arrays"
    if hasattr(obj, "shape") and hasattr(obj, "dtype"):
        return (
            f"got {kind} of shape {tuple(obj.shape)} and dtype {obj.dtype}; declare it: g.device_array(name, values) and"
            " g.host_array(name, values) copy the values, g.external_array(name, values) uses them in place"
        )
    return f"got {kind} {_short(obj)}"


def _short(obj: Any) -> str:
    text = repr(obj)
    return text if len(text) <= 60 else text[:57] + "..."


class _Sliceable(Viewable):
    """Slicing and sizes shared by everything with a name, a shape and a dtype."""

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
        # Without this NumPy would make an array of a view for each element.
        raise DeclarationError(
            f"{self.name!r} is declared and holds no values, so NumPy cannot take it; an Executable has them:"
            f" exe.read({self.name!r}), and a host callback gets them as an argument",
            array=self.name,
        )


@dataclass(frozen=True, eq=False)
class Array(_Sliceable):
    """Base of all arrays: a named block of memory, C order.

    Attributes
    ----------
    name : str
        Unique among the arrays of its graph.
    shape : tuple of int
    dtype : numpy.dtype
    device : int or None
        The device that owns the memory; None is the device that the graph is compiled for.
    access : tuple of int
        Other devices that may reach the memory from their kernels (peer access).
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int | None = field(default=None, kw_only=True)
    access: tuple[int, ...] = field(default=(), kw_only=True)

    kind = "array"
    on_host = False
    """Whether host callbacks may take it."""
    on_device = True
    """Whether kernels may take it."""

    @cached_property
    def _whole(self) -> ArrayView:
        return ArrayView(self, tuple(slice(0, extent, 1) for extent in self.shape))

    def as_view(self) -> ArrayView:
        """Return the view of all elements."""
        return self._whole

    @property
    def hazard_key(self) -> Any:
        """Arrays with one key share one address space; regions are offset by `hazard_offset`."""
        return self

    @property
    def hazard_offset(self) -> int:
        """Byte offset of this array in the address space of its key."""
        return 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, slots=True)
class UnboundValues:
    """Initial values that a file names by their hash and nobody has supplied yet; compile refuses them by name.

    Attributes
    ----------
    sha256 : str
        Hash of the bytes, C order, in hexadecimal.
    """

    sha256: str


@dataclass(frozen=True, eq=False, repr=False)
class DeviceArray(Array):
    """Device memory that lives as long as the Executable.

    Attributes
    ----------
    initial : numpy.ndarray, UnboundValues or None
        Values written when the graph is compiled; read-only.
    """

    initial: np.ndarray[Any, Any] | UnboundValues | None = None

    kind = "device"


@dataclass(frozen=True, eq=False, repr=False)
class HostArray(Array):
    """Host memory that lives as long as the Executable.

    Attributes
    ----------
    pinned : bool
        Page-locked: copies are asynchronous and kernels can reach it. Otherwise pageable.
    initial : numpy.ndarray, UnboundValues or None
        Values written when the graph is compiled; read-only.
    """

    pinned: bool = True
    initial: np.ndarray[Any, Any] | UnboundValues | None = None

    kind = "host"
    on_host = True

    @property
    def on_device(self) -> bool:  # type: ignore[override]  # a class constant elsewhere, here it depends on the memory
        return self.pinned


@dataclass(frozen=True, eq=False, repr=False)
class AllocArray(Array):
    """Device memory that an alloc node makes and a free node returns."""

    kind = "alloc"


@dataclass(frozen=True, eq=False, repr=False)
class ExternalArray(Array):
    """Somebody else's memory, used in place.

    Attributes
    ----------
    obj : object or None
        The owner, kept alive by whatever holds this array; None when it was loaded from a file and is not bound yet.
    pointer : int
        Address of the first element.
    location : {"host", "device"}
        Where the memory is.
    writeable : bool
        Whether nodes may write it.
    lock : bool
        Whether host memory is page-locked while an Executable uses it, where the device could not reach it otherwise.
    """

    obj: Any = None
    pointer: int = 0
    location: Literal["host", "device"] = "host"
    writeable: bool = True
    lock: bool = True

    kind = "external"

    @property
    def on_host(self) -> bool:  # type: ignore[override]  # a class constant elsewhere, here it depends on the memory
        return self.location == "host"

    @property
    def hazard_key(self) -> Any:
        return "memory" if self.pointer else self

    @property
    def hazard_offset(self) -> int:
        return self.pointer

    @staticmethod
    def wrap(name: str, obj: Any, *, device: int | None = None, access: tuple[int, ...] = ()) -> ExternalArray:
        """Wrap `__cuda_array_interface__`, DLPack or the buffer protocol, without a copy.

        Raises
        ------
        DeclarationError
            If the object offers none of them, is not C-contiguous, has masked elements, or a dtype that a device cannot hold.
        """
        interface = getattr(obj, "__cuda_array_interface__", None)
        if isinstance(interface, dict):
            dtype = as_dtype(interface["typestr"])
            shape = tuple(int(n) for n in interface["shape"])
            pointer, readonly = interface["data"]
            if device is None:
                device = _owner(obj)
            _require_contiguous(name, shape, interface.get("strides"), dtype.itemsize)
            return ExternalArray(
                name,
                as_shape(shape),
                dtype,
                device=device,
                access=access,
                obj=obj,
                pointer=int(pointer),
                location="device",
                writeable=not readonly,
            )
        try:
            if isinstance(obj, np.ndarray):
                host = obj
            elif hasattr(obj, "__array_interface__"):
                host = np.asarray(obj)
            elif hasattr(obj, "__dlpack__"):
                host = np.from_dlpack(obj)
            else:
                host = np.asarray(memoryview(obj))
        except (TypeError, BufferError, RuntimeError, ValueError) as error:
            raise DeclarationError(
                f"external array {name!r}: {type(obj).__name__} offers no memory that can be shared ({error}); give a NumPy"
                " array, or an object with __cuda_array_interface__, __dlpack__ or the buffer protocol",
                array=name,
            ) from None
        if isinstance(host, np.ma.MaskedArray) and np.ma.is_masked(host):
            raise DeclarationError(
                f"external array {name!r} has {np.ma.getmaskarray(host).sum()} masked elements, and a device knows no mask; give"
                " x.data, or x.filled(value), which copies",
                array=name,
            )
        dtype = as_dtype(host.dtype)
        _require_contiguous(name, host.shape, host.strides, dtype.itemsize)
        if host.dtype != dtype:
            raise DeclarationError(f"external array {name!r} has foreign byte order {host.dtype}", array=name)
        return ExternalArray(
            name,
            as_shape(host.shape),
            dtype,
            device=device,
            obj=host,
            pointer=int(host.ctypes.data),
            location="host",
            writeable=bool(host.flags.writeable),
        )


_DLPACK_GPUS = (2, 10)  # kDLCUDA, kDLROCM


def _owner(obj: Any) -> int | None:
    """Return the device that an object of another library says that its memory is on."""
    tell = getattr(obj, "__dlpack_device__", None)
    kind, number = tell() if callable(tell) else (0, 0)
    return int(number) if int(kind) in _DLPACK_GPUS else None


def _require_contiguous(name: str, shape: tuple[int, ...], strides: Any, itemsize: int) -> None:
    if strides is None:
        return
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(tuple(strides))):
        if extent > 1 and stride != expected:
            raise DeclarationError(
                f"external array {name!r} has shape {shape} and strides {tuple(strides)}; only C-contiguous memory can be"
                " wrapped, so give a contiguous copy, or wrap its base and take a view",
                array=name,
            )
        expected *= extent


@dataclass(frozen=True, eq=False)
class Parameter(_Sliceable):
    """A value bound at launch: a scalar or, with a shape, something that stands where an array may.

    Attributes
    ----------
    name : str
        The launch keyword.
    dtype : numpy.dtype
    default : object
        The value of the first launch; None where it must be given then.
    shape : tuple of int
        Empty for a scalar.
    copy : bool
        Whether a launch copies values into page-locked memory of the Executable's own, instead of using memory in place.
    """

    name: str
    dtype: np.dtype[Any]
    default: Any = None
    shape: tuple[int, ...] = ()
    copy: bool = False

    kind = "parameter"
    device = None
    on_device = True

    @property
    def on_host(self) -> bool:
        """Whether host callbacks may take it; what it is bound to is judged at launch."""
        return bool(self.shape)

    @cached_property
    def _whole(self) -> ArrayView:
        return ArrayView(self, tuple(slice(0, extent, 1) for extent in self.shape))

    def as_view(self) -> ArrayView:
        """Return the view of all elements of what it is bound to."""
        if not self.shape:
            raise DeclarationError(
                f"parameter {self.name!r} is a scalar and cannot stand where an array may; give it a shape", array=self.name
            )
        return self._whole

    @property
    def hazard_key(self) -> Any:
        """Itself: what it is bound to is known only at launch."""
        return self

    @property
    def hazard_offset(self) -> int:
        """Always 0; see `Array.hazard_offset`."""
        return 0

    def __repr__(self) -> str:
        shape = f", shape={self.shape}" if self.shape else ""
        default = f", default={self.default!r}" if self.default is not None else ""
        return f"Parameter({self.name!r}, {self.dtype}{default}{shape}{', copy=True' * self.copy})"


Root = Array | Parameter


@dataclass(frozen=True, eq=False)
class ArrayView(_Sliceable):
    """Elements of one array, chosen by basic slices with positive steps.

    Attributes
    ----------
    root : Array or Parameter
        What it views.
    selection : tuple of int or slice
        One selector for each dimension of the root: an index drops the dimension, a slice is ``start:stop:step`` with all
        three given.
    """

    root: Root
    selection: Selection

    def __post_init__(self) -> None:
        root = self.root
        itemsize = root.dtype.itemsize
        offset = 0
        step_bytes = itemsize
        shape: list[int] = []
        strides: list[int] = []
        for extent, selector in zip(reversed(root.shape), reversed(self.selection)):
            if isinstance(selector, int):
                offset += selector * step_bytes
            else:
                offset += selector.start * step_bytes
                shape.append(-(-(selector.stop - selector.start) // selector.step))
                strides.append(selector.step * step_bytes)
            step_bytes *= extent
        values = self.__dict__
        values["offset_bytes"] = offset
        values["shape"] = tuple(reversed(shape))
        values["strides"] = tuple(reversed(strides))
        values["dtype"] = root.dtype
        values["region"] = Region.strided(offset, self.shape, self.strides, itemsize)
        values["contiguous"] = not self.region.dims

    offset_bytes: int = field(init=False, repr=False)
    shape: tuple[int, ...] = field(init=False)
    strides: tuple[int, ...] = field(init=False, repr=False)
    dtype: np.dtype[Any] = field(init=False)
    region: Region = field(init=False, repr=False)
    contiguous: bool = field(init=False, repr=False)

    def as_view(self) -> ArrayView:
        """Return itself."""
        return self

    @cached_property
    def hazard(self) -> tuple[Any, Region]:
        """The address space and the exact bytes in it, by which accesses are compared."""
        offset = self.root.hazard_offset
        return self.root.hazard_key, self.region.shifted(offset)

    def accessed(self, mode: Mode) -> Access:
        """Return the access of the view in a mode; the same object each time."""
        known: dict[Mode, Access] = self.__dict__.setdefault("_accesses", {})
        access = known.get(mode)
        if access is None:
            access = known[mode] = Access(self, mode)
        return access

    @cached_property
    def name(self) -> str:  # type: ignore[override]  # an attribute elsewhere, here it is made from the selection
        """The root's name with the selection: ``"u"``, ``"u[3, 8:248]"``."""
        if self.is_whole:
            return self.root.name
        return f"{self.root.name}[{', '.join(_selector_text(s) for s in self.selection)}]"

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
        keys = key if isinstance(key, tuple) else (key,)
        if any(k is Ellipsis for k in keys):
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            missing = len(self.shape) - (len(keys) - 1)
            keys = (*keys[:at], *(slice(None),) * max(missing, 0), *keys[at + 1 :])
        if len(keys) > len(self.shape):
            raise self._refuse(key, f"it has {len(self.shape)} dimension{'s' * (len(self.shape) != 1)}")
        keys = (*keys, *(slice(None),) * (len(self.shape) - len(keys)))
        remaining = iter(zip(keys, self.shape))
        selection: list[Selector] = []
        for selector in self.selection:
            if isinstance(selector, int):
                selection.append(selector)
                continue
            wanted, extent = next(remaining)
            if isinstance(wanted, slice):
                start, stop, step = self._slice(key, wanted, extent)
                first = selector.start + start * selector.step
                count = -(-(stop - start) // step)
                stride = step * selector.step
                selection.append(slice(first, first + (count - 1) * stride + 1, stride if count > 1 else 1))
            else:
                index = wanted if type(wanted) is int else self._index(key, wanted)
                if not -extent <= index < extent:
                    raise self._refuse(key, f"index {index} is out of range for an extent of {extent}")
                selection.append(selector.start + (index % extent) * selector.step)
        return ArrayView(self.root, tuple(selection))

    def _index(self, key: Any, wanted: Any) -> int:
        # Asked of an int too, isinstance of a protocol would cost more than the rest of taking a view.
        if (index := as_int(wanted)) is not None and not isinstance(wanted, np.ndarray):
            return index
        raise self._refuse(key, f"{wanted!r} is neither an index nor a slice")

    def _slice(self, key: Any, wanted: slice, extent: int) -> tuple[int, int, int]:
        try:
            start, stop, step = (None if v is None else v.__index__() for v in (wanted.start, wanted.stop, wanted.step))
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
        text = ", ".join(_selector_text(k) for k in keys)
        return DeclarationError(
            f"{self.name}[{text}]: {why}; {self.root.name!r} has shape {self.root.shape}", array=self.root.name
        )


def _selector_text(selector: Any) -> str:
    if not isinstance(selector, slice):
        return "..." if selector is Ellipsis else str(selector)
    start = "" if selector.start is None else selector.start
    stop = "" if selector.stop is None else selector.stop
    return f"{start}:{stop}" + (f":{selector.step}" if selector.step not in (None, 1) else "")


@dataclass(frozen=True, slots=True)
class Access(Viewable):
    """How a node touches memory.

    Attributes
    ----------
    view : ArrayView
        What is touched, as the user named it.
    mode : {"read", "write", "update"}
        ``"update"`` reads and writes.
    region : Region or None
        The exact bytes in the root's address space, where they are not the view's own (inside a child graph).
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
        """Whether earlier values matter."""
        return self.mode != "write"

    @property
    def is_write(self) -> bool:
        """Whether values change."""
        return self.mode != "read"

    def __repr__(self) -> str:
        return f"{self.mode}s({self.view.name})"


def reads(array: Any) -> Access:
    """Say that a node only reads this argument, whatever its signature says."""
    return Access(as_view(array, "hg.reads: an array"), "read")


def writes(array: Any) -> Access:
    """Say that a node overwrites this argument wholly and does not read it."""
    return Access(as_view(array, "hg.writes: an array"), "write")


def updates(array: Any) -> Access:
    """Say that a node reads and writes this argument."""
    return Access(as_view(array, "hg.updates: an array"), "update")
