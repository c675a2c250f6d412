"""KernelNode."""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, ValidationInfo

from ..arrays import (
    WRITE,
    Access,
    ArrayView,
    Need,
    Parameter,
    Sliceable,
    Viewable,
    device_need,
    kind_of,
    lacking,
    no_array,
    part_of,
)
from ..errors import DeclarationError, listed, node_error, shown, suggested
from ..kernels import Kernel, KernelParameter, Signature, check_argument
from ..lazy import lazy
from .base import Node, argument_text, check_name, parameters_of, set_state, views_of
from .fields import (
    EXTENTS,
    VALUES,
    Device,
    Dim3,
    Integer,
    Rule,
    Stored,
    extents,
    names_in,
    node_in,
    values,
    values_data,
    without_ones,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from .values import Names

_BOUNDS: dict[object, tuple[int, int]] = {
    np.dtype(f"{kind}{size}"): (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) if kind == "i" else (0, 2 ** (8 * size) - 1)
    for kind in "iu"
    for size in (1, 2, 4, 8)
}

_MAX_THREADS = 1024  # of a block, on every device that HIP runs on
_MAX_CLUSTER = 8  # blocks, on every device that has clusters


_ATTRIBUTE = "attributes are fixed when a node is added"


def _kernel(value: Any, info: ValidationInfo) -> Kernel:
    if isinstance(value, Kernel):
        return value
    if (names := names_in(info)) is not None:
        return names.kernel(value)
    why = f"kernel is a hipgraphdsl.Kernel such as module['scale'] (got {type(value).__name__})"
    raise node_error(node_in(info), why)


KERNEL = Stored(
    _kernel,
    lambda kernel, names, _: f"{names.key_of_module(kernel.module)}:{kernel.name}",
    {"type": "string", "pattern": "^[^:]+:.+$", "description": "module:kernel"},
)
"""A kernel, stored as ``"module:kernel"``."""


def _block(value: Any, info: ValidationInfo) -> Dim3:
    if type(value) is int and 0 < value <= _MAX_THREADS:
        return (value, 1, 1)
    block = extents(value, info)
    threads = 1
    for axis in block:
        if not isinstance(axis, Parameter):
            threads *= axis
    if threads > _MAX_THREADS:
        given = f"{' x '.join(map(str, block))} = {threads}"
        raise node_error(node_in(info), f"a block has at most {_MAX_THREADS} threads (got {given})")
    return block


def _cluster(value: Any, info: ValidationInfo) -> Dim3:
    cluster, node = extents(value, info), node_in(info)
    x, y, z = cluster
    if isinstance(x, Parameter) or isinstance(y, Parameter) or isinstance(z, Parameter):
        raise node_error(node, "cluster is one to three numbers of blocks, and no parameter")
    if x * y * z > _MAX_CLUSTER:
        raise node_error(node, f"a cluster has at most {_MAX_CLUSTER} blocks (got {cluster})")
    if "grid" in info.data:
        require_clusters(info.data["grid"], (x, y, z), node)
    return cluster


def _arguments(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
    """Return arguments as the kernel's signature takes them."""
    given = info.data
    name, kernel = given.get("name"), given.get("kernel")
    args = value if info.context is None else values(value, info)
    if name is None or kernel is None:  # refused
        return ()
    signature = kernel.signature
    if isinstance(args, Mapping):
        args = _in_order(args, kernel, signature, name)
    elif not isinstance(args, (tuple, list)):
        args = (args,)
    if signature is None:
        args = tuple([a.as_view() if isinstance(a, Viewable) and not isinstance(a, Access) else a for a in args])
        signature = _signature_of(kernel.name, args, name)
    parameters = signature.parameters
    if len(args) != len(parameters):
        wanted = ", ".join(f"{p.ctype} {p.name}" for p in parameters)
        raise node_error(name, f"kernel {kernel.name!r} takes {len(parameters)} arguments ({wanted}), got {len(args)}")
    known = signature is kernel.signature
    pairs = zip(parameters, args)
    return tuple([_argument(p, a, name, kernel.name) if known or p.pointer else deepcopy(a) for p, a in pairs])


def _shortest(args: Sequence[Any], node: KernelNode) -> Sequence[Any]:
    """Return arguments with each float of a 2- or 4-byte type replaced by the shortest one that rounds to the same value."""
    known = node.kernel.signature
    if known is None:  # the arguments' types define the signature: keep them
        return args
    return tuple([_short(arg, parameter.dtype) if type(arg) is float else arg for arg, parameter in zip(args, known.parameters)])


ARGUMENTS = Stored(
    _arguments,
    lambda args, names, node: values_data(_shortest(args, node), names, node),
    VALUES.schema,
    _shortest,
)
"""Arguments of a kernel; floats are written as short as the signature's types permit."""


def _short(value: float, dtype: Any) -> float:
    if value and dtype is not None and dtype.kind == "f" and dtype.itemsize < 8 and math.isfinite(value):
        return _rounded(value, dtype)
    return value  # also 0.0 and -0.0, which are equal as cache keys


@lru_cache(1024)
def _rounded(value: float, dtype: Any) -> float:
    """Return the shortest float that a type rounds to the same value."""
    return float(str(dtype.type(value)))


def _in_order(named: Mapping[Any, Any], kernel: Kernel, signature: Signature | None, node: str) -> list[Any]:
    """Return arguments that are given by parameter name in the order of the parameters."""
    if signature is None:
        why = f"args by name need a signature, and kernel {kernel.name!r} has none"
        raise node_error(node, f"{why}; pass a tuple (got {shown(named)})")
    names = [parameter.name for parameter in signature.parameters]
    for name in named:
        if name not in names:
            asked = suggested(str(name), names)
            raise node_error(
                node, f"kernel {kernel.name!r} has no parameter {name!r}{asked}; its parameters are {listed(names, 20)}"
            )
    if missing := [name for name in names if name not in named]:
        raise node_error(node, f"args of kernel {kernel.name!r} lacks {listed(missing, 20)}; all its parameters need an argument")
    return [named[name] for name in names]


class KernelNode(Node):
    """A kernel launch (hipGraphAddKernelNode).

    Attributes
    ----------
    kernel : Kernel
    grid : tuple of 3 int or Parameter
        Blocks along x, y, z.
    block : tuple of 3 int or Parameter
        Threads of a block along x, y, z; at most 1024 in all.
    args : tuple
        One entry for each parameter of the kernel: a view for a pointer (or `hg.reads`, `hg.writes`, `hg.updates` of one), None
        for a null pointer, a value or a parameter for a value. A view that is not contiguous needs `hg.reads`, `hg.writes` or
        `hg.updates`: the kernel gets the address of its first element and must access only the view's elements.
    shared_bytes : int
        Dynamic shared memory of a block, in bytes.
    cooperative : bool
        All blocks are resident at once and may synchronise with each other.
    priority : int or None
        Launch priority, if the platform supports it; a lower number runs first.
    cluster : tuple of 3 int or None
        Blocks of a thread block cluster along x, y, z (NVIDIA from sm_90): at most 8 in all, and divisors of the grid's.
        Blocks of one cluster run at the same time and can access each other's shared memory. Other targets ignore it (HG509).
    device : int or None
        The device that runs it; None: the one that owns its arrays.
    """

    kind: ClassVar[str] = "kernel"
    offered = (*Node.offered, "signature", "threads")
    work = "kernel"
    reach = "device"
    placed = "memory"
    in_body = True

    kernel: Annotated[Kernel, KERNEL]
    grid: Annotated[Any, EXTENTS, Rule(keyword=True)]
    block: Annotated[Any, replace(EXTENTS, read=_block), Rule(keyword=True)]
    args: Annotated[tuple[Any, ...], ARGUMENTS] = Field(default=(), validate_default=True)
    shared_bytes: Annotated[int, Integer(0, 2**31 - 1, called="a number of bytes from 0 to 2147483647")] = 0
    cooperative: Annotated[bool, Rule(fixed=_ATTRIBUTE)] = False
    priority: Annotated[Annotated[int, Integer(-(2**31), 2**31 - 1)] | None, Rule(fixed=_ATTRIBUTE)] = None
    cluster: Annotated[tuple[int, int, int] | None, replace(EXTENTS, read=_cluster), Rule(fixed=_ATTRIBUTE)] = None
    device: Device = None

    def _fill(self, data: dict[str, Any], names: Names | None = None) -> None:
        given = data if names is None else _of_file(data, names)
        key = _shared_key(given) if type(self) is KernelNode else None
        shared: _Shared | None = None if key is None else given["kernel"].launches.get(key)
        try:
            if shared is not None and shared.complete(self, given, names):
                return
        except DeclarationError:
            pass  # validation raises it with its field
        super()._fill(data, names)
        if key is not None and shared is None:
            _keep(key, self, tuple(data))

    @lazy
    def plain(self) -> bool:
        """Whether it is launched without launch attributes: all fields that set one have their defaults."""
        return bool(_attributes_of(self.__dict__) == _NO_ATTRIBUTES)

    @lazy
    def alike(self) -> tuple[Any, ...] | None:
        """The key (kernel, block, shared memory) of launches that can be merged into one; None if this one cannot be merged.

        A launch with attributes cannot be merged, nor one whose block is bound at launch.
        """
        if not self.plain or any(isinstance(axis, Parameter) for axis in self.block):
            return None
        return self.kernel, self.block, self.shared_bytes

    @lazy
    def signature(self) -> Signature:
        """The kernel's signature; for a code object without one, a signature derived from the argument types."""
        return self.kernel.signature or _signature_of(self.kernel.name, self.args, self.name)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """One access for each pointer argument; `const T*` is read, `T*` is updated, unless the argument is an Access.

        A foreign kernel's pointer arguments count only if they are given as Access. Module variables that the kernel uses follow.
        """
        found = []
        signature = self.kernel.signature or self.signature
        known = self.kernel.module.handle is None
        for parameter, arg in zip(signature.parameters, self.args):
            if type(arg) is ArrayView and known:
                found.append(arg.accessed("read" if parameter.const else "update"))
            elif type(arg) is Access:
                found.append(arg)
        for symbol, constant in self.kernel.symbols:
            found.append(Access(symbol.as_view(), "read" if constant else "update"))
        return tuple(found)

    def changed(self, **fields: Any) -> Self:
        """Like `Node.changed`; `args` may be a dict by kernel parameter name, and other keywords name single arguments."""
        known = type(self).model_fields
        args = fields.get("args", {})
        others = {name: fields.pop(name) for name in [*fields] if name not in known}
        names = self.argument_names if others or "args" in fields else ()
        for name in others:
            if name not in names:
                raise node_error(
                    self.name,
                    f"there is no field {name!r} and no argument of that name{suggested(name, [*known, *names])}; its fields are"
                    f" {', '.join(known)}, and the arguments of kernel {self.kernel.name!r} are {', '.join(names) or 'none'}",
                )
        if not isinstance(args, Mapping):
            if others:
                raise node_error(self.name, f"args= gives all arguments, so {next(iter(others))}= cannot be given too")
            return super().changed(**fields)
        named = {**args, **others}
        if named:
            values = {**dict(zip(names, self.args)), **named}
            fields["args"] = _in_order(values, self.kernel, self.signature, self.name)
        return super().changed(**fields)

    @lazy
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of((*self.args, *self.grid, *self.block))

    def _reached(self) -> list[tuple[ArrayView, Need]]:
        signature = self.kernel.signature or self.signature
        pairs = ((p, arg.view if type(arg) is Access else arg) for p, arg in zip(signature.parameters, self.args))
        return [(view, _reached(parameter, view)) for parameter, view in pairs if type(view) is ArrayView]

    @property
    def launched(self) -> Self:
        return self

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    @lazy
    def addresses(self) -> tuple[ArrayView, ...]:
        return views_of(self.args)

    @lazy
    def least_threads(self) -> int:
        """Threads of the whole launch; an extent that is bound at launch counts as 1."""
        return math.prod([axis for axis in (*self.grid, *self.block) if not isinstance(axis, Parameter)])

    @property
    def threads(self) -> int | None:
        return None if Parameter in map(type, (*self.grid, *self.block)) else self.least_threads

    def describe(self) -> str:
        return f"{self.kernel.name}<<<{_dim_text(self.grid)}, {_dim_text(self.block)}>>>"

    def in_full(self) -> str:
        args = []
        for parameter, arg in zip(self.signature.parameters, self.args):
            text = argument_text(arg)
            args.append(text if isinstance(arg, (ArrayView, Access, Parameter)) else f"{parameter.name}={text}")
        return f"{self.describe()}({', '.join(args)})"

    @property
    def details(self) -> tuple[str, ...]:
        launch = f"{_dim_text(self.grid, '×')} × {_dim_text(self.block, '×')} threads"
        return (launch,) if self.kernel.name == self.name else (self.kernel.name, launch)

    @property
    def argument_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.signature.parameters)

    @property
    def likeness(self) -> tuple[Hashable, ...]:
        extents = (axis.name if isinstance(axis, Parameter) else axis for axis in (*self.grid, *self.block))
        return (self.kind, self.kernel.name, *extents, *map(_alike, self.args))


# -- what launches share -----------------------------------------------------------------------------------------------


_MOST_SHARED = 1024  # launches of one kernel in different ways that are kept


def _of_file(data: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return the data of a launch in a file with its kernel, extents and edges as a user gives them."""
    lists = {name: tuple(data[name]) for name in ("grid", "block", "after") if type(data.get(name)) is list}
    try:
        return {**data, **lists, "kernel": names.kernel(data.get("kernel", ""))}
    except DeclarationError:
        return data


def _shared_key(data: dict[str, Any]) -> Any:
    """Return a key of all that a launch may share with others, as it was given; None for what others rarely share.

    Equal keys stand for equal values of equal types: True and 1.0 equal 1, and are not taken for it.
    """
    grid, block = data.get("grid"), data.get("block")
    for axes in (grid, block):
        if type(axes) is not int:
            if type(axes) is not tuple:
                return None
            for axis in axes:
                if type(axis) is not int:
                    return None
    shared_bytes, priority, device = data.get("shared_bytes", 0), data.get("priority"), data.get("device")
    cooperative = data.get("cooperative", False)
    if (
        type(data.get("kernel")) is not Kernel
        or data.get("cluster") is not None
        or type(shared_bytes) is not int
        or not (cooperative is False or cooperative is True)
        or not (priority is None or type(priority) is int)
        or not (device is None or type(device) is int)
    ):
        return None
    return grid, block, shared_bytes, cooperative, priority, device


def _keep(key: Any, node: KernelNode, order: tuple[str, ...]) -> None:
    """Keep what a node shares with later ones, unless its signature follows from its arguments."""
    launches = node.kernel.launches
    if node.kernel.signature is None:
        return
    if len(launches) >= _MOST_SHARED:
        launches.clear()
    launches[key] = _Shared(node, order)


class _Shared:
    """What nodes share that launch a kernel with the same grid, block and attributes: fields that are validated once.

    `complete` gives a node these fields and its own, with what follows from them, and leaves it as validation would.
    """

    __slots__ = ("_block", "_checks", "_given", "_grid", "_kernel", "_order", "_state", "_symbols")

    def __init__(self, node: KernelNode, order: tuple[str, ...]) -> None:
        self._kernel = kernel = node.kernel
        follows = {"plain": node.plain, "alike": node.alike, "least_threads": node.least_threads, "signature": node.signature}
        self._state = {name: node.__dict__[name] for name in KernelNode.model_fields} | follows | {
            "args": (),  # the kernel may outlive the memory of the first node's
            "accesses": (),
            "addresses": (),
            "parameters": (),
            "after": (),
            "ignore": None,
            "source": None,
        }  # fmt: skip
        self._grid, self._block = node.grid, node.block
        self._order, self._given = order, node.model_fields_set
        self._symbols = [symbol.as_view().accessed("read" if constant else "update") for symbol, constant in kernel.symbols]
        self._checks = [_check_of(parameter) for parameter in node.signature.parameters]

    def complete(self, node: KernelNode, data: dict[str, Any], names: Names | None) -> bool:
        """Give a node its fields; leave it, and return False, if it has more of its own than name, source, edges and arguments.

        `names` resolves the arguments of a file.

        Raises
        ------
        DeclarationError
            If the name or an argument is invalid; it does not name the field.
        """
        given = self._given if tuple(data) == self._order else {*data}
        fields = self._state.copy()
        fields.update(data)
        name, args, source, after = fields["name"], fields["args"], fields["source"], fields["after"]
        if (
            not (given is self._given or given <= KernelNode.model_fields.keys())
            or "name" not in data
            or type(name) is not str
            or ("args" not in data and self._checks)
            or not (type(args) is tuple or type(args) is list)
            or len(args) != len(self._checks)
            or not (
                source is None
                or (type(source) is tuple and len(source) == 2 and type(source[0]) is str and type(source[1]) is int)
            )
            or not (type(after) is tuple and (not after or all(type(name) is str for name in after)))
            or fields["ignore"] is not None
        ):
            return False
        check_name(name, "node")
        if names is not None:
            args = [names.value(arg) for arg in args]
        fields["grid"], fields["block"] = self._grid, self._block
        bound, accesses, views, mentions = [], [], [], False
        for (parameter, key, pointer, least, most), arg in zip(self._checks, args):
            kind = type(arg)
            if pointer:
                if kind is Access:
                    fit = arg.view.fits.get((key, arg.mode))
                else:
                    fit = arg.fits.get(key) if issubclass(kind, Sliceable) else None
                access = fit[1]() if fit is not None and fit[0] is parameter else None
                if access is None:
                    value, view, access = self._fit(parameter, arg, name)
                else:
                    view = access.view
                    value = access if kind is Access else view
                bound.append(value)
                if view is not None:
                    views.append(view)
                    mentions = mentions or type(view.root) is Parameter
                    if access is not None:
                        accesses.append(access)
            elif kind is int and least <= arg <= most:
                bound.append(arg)
            else:
                bound.append(_argument(parameter, arg, name, self._kernel.name))
                mentions = mentions or kind is Parameter
        if self._symbols:
            accesses += self._symbols
        fields["args"], fields["accesses"], fields["addresses"] = tuple(bound), tuple(accesses), tuple(views)
        if mentions:
            fields["parameters"] = parameters_of(bound)
        set_state(node, fields, given)
        return True

    def _fit(self, parameter: KernelParameter, arg: Any, node: str) -> tuple[Any, ArrayView | None, Access | None]:
        """Return a pointer's argument, view and access; raise DeclarationError if it does not fit."""
        if type(arg) is ArrayView:
            known = arg.root.fits.get(id(parameter))  # a view of a whole array, as an earlier node has it
            access = known[1]() if known is not None and known[0] is parameter else None
            if known is not None and access is not None and access.view is arg:
                arg.fits[id(parameter)] = known
                return arg, arg, access
        given = _argument(parameter, arg, node, self._kernel.name)
        if given is None:
            return None, None, None
        if isinstance(given, Access):
            given.view.fits[id(parameter), given.mode] = parameter, weakref.ref(given)
            return given, given.view, given
        if self._kernel.module.handle is not None:  # nobody knows how it accesses its arguments
            return given, given, None
        access = given.accessed("read" if parameter.const else "update")
        if isinstance(arg, Sliceable):
            arg.fits[id(parameter)] = parameter, weakref.ref(access)
        return given, given, access


def _check_of(parameter: KernelParameter) -> tuple[KernelParameter, int, bool, int, int]:
    """Return what checks an argument: its parameter with a key in `fits`, whether it is a pointer, the range of an int."""
    return parameter, id(parameter), parameter.pointer, *_BOUNDS.get(parameter.dtype, (1, 0))


_ATTRIBUTES: Final = {field.name: field.default for field in KernelNode.fields if field.rule.fixed == _ATTRIBUTE}
"""The fields that set launch attributes, with their defaults."""
_attributes_of: Final = itemgetter(*_ATTRIBUTES)
_NO_ATTRIBUTES: Final = tuple(_ATTRIBUTES.values())


def _alike(arg: Any) -> Hashable:
    """Return an argument's part of `likeness`, without names and scalar values, which often differ between repetitions."""
    if isinstance(arg, Access):
        return (arg.mode, arg.view.shape)
    if isinstance(arg, ArrayView):
        return arg.shape
    return arg.name if isinstance(arg, Parameter) else None


def require_clusters(grid: Dim3, cluster: tuple[int, int, int], node: str) -> None:
    """Raise DeclarationError if the grid is not a multiple of the cluster; extents that are parameters are checked at launch."""
    if any(not isinstance(blocks, Parameter) and blocks % each for blocks, each in zip(grid, cluster)):
        raise node_error(
            node,
            f"the grid is a multiple of the cluster along each axis (got grid {_dim_text(grid)}, cluster {_dim_text(cluster)})",
        )


def _dim_text(dim: Dim3, between: str = ", ") -> str:
    axes = [a.name if isinstance(a, Parameter) else str(a) for a in without_ones(dim)]
    return axes[0] if len(axes) == 1 else f"({between.join(axes)})"


def _argument(parameter: KernelParameter, arg: Any, node: str, kernel: str) -> Any:
    """Normalize one argument to an ArrayView, an Access, a Parameter, None for a null pointer, or a checked value."""
    if (
        type(arg) is int
        and (bounds := _BOUNDS.get(parameter.dtype)) is not None
        and not parameter.pointer
        and bounds[0] <= arg <= bounds[1]
    ):
        return arg
    given: Any = arg
    fault, array = "", None
    if parameter.pointer:
        if isinstance(arg, Viewable):
            view = arg.as_view()
            given = arg if isinstance(arg, Access) else view
            fault, array = pointer_fault(parameter, view, given), view.root.name
        elif arg is not None:
            fault = f" is {parameter.ctype}: give an array, a view of one, or None for a null pointer; {no_array(arg)}"
    elif isinstance(arg, Parameter):
        array = arg.name
        dtype = parameter.value_dtype
        if arg.shape or dtype != arg.dtype:
            struct = parameter.dtype is not None and parameter.dtype.names
            whole = str(dtype) if parameter.lanes > 1 else repr(str(dtype))
            wanted = f"module.structs[{parameter.ctype!r}]" if struct else whole
            fault = (
                f" is {parameter.ctype}, parameter {arg.name!r} is {arg.dtype}{list(arg.shape) if arg.shape else ''}; declare it"
                f" with dtype={wanted}"
            )
    elif isinstance(arg, Viewable):
        fault = f" is {parameter.ctype}, a value; got the array {arg.as_view().name!r}"
    else:
        try:
            value = check_argument(parameter, arg, f"node {node!r}: kernel {kernel!r}")
        except DeclarationError as error:
            raise DeclarationError(str(error), node=node, array=error.array) from None
        if isinstance(value, bytes) and isinstance(arg, (int, float)):  # bfloat16 or complex passed by value
            return complex(arg) if parameter.dtype is not None and kind_of(parameter.dtype) == "c" else np.float32(arg)
        return deepcopy(arg) if isinstance(value, bytes) else value  # copied: the caller may change a dict or a record later
    if fault:
        raise node_error(node, f"argument {parameter.name!r} of kernel {kernel!r}{fault}", array=array)
    return given


def _signature_of(kernel: str, args: tuple[Any, ...], node: str) -> Signature:
    dtypes: list[Any] = []
    for i, arg in enumerate(args):
        if isinstance(arg, (ArrayView, Access)):
            dtypes.append(None)
        elif isinstance(arg, (Parameter, np.generic, np.ndarray)):
            dtypes.append(arg.dtype)
        else:
            raise node_error(
                node,
                f"the signature of kernel {kernel!r} is not known, so argument {i} needs a NumPy type such as"
                f" numpy.int32({arg!r}); or give signatures= to Module.from_file",
            )
    return Signature.of_values(kernel, dtypes)


def pointer_fault(parameter: KernelParameter, view: ArrayView, given: Any) -> str:
    """Return why a view cannot be passed to a pointer, worded to follow the argument's name; empty if it can."""
    wanted = parameter.dtype
    # A float2 holds a complex64, a half2 a complex32. NumPy treats None as float64, so None is not compared.
    part = part_of(view.dtype) if parameter.lanes == 2 else None
    is_complex = part is not None and wanted is not None and wanted == part
    if wanted is not None and wanted != view.dtype and not is_complex:
        return f" is {parameter.ctype}, which takes dtype {wanted}; {view.name!r} has dtype {view.dtype}"
    if not view.contiguous and not isinstance(given, Access):
        return (
            f": the view {view.name!r} is not contiguous, and a kernel gets only the address of its first element; pass the array"
            f" and its strides, copy the view, or say what the kernel does with it: hg.reads({view.name}), hg.writes or"
            " hg.updates"
        )
    if parameter.lanes > 1 and not is_complex:
        elements = view.region.run // view.dtype.itemsize
        if elements % parameter.lanes:
            held = f"has {elements} elements{' in a row' * (not view.contiguous)}, not a multiple of {parameter.lanes}"
            return f" is {parameter.ctype}: {view.name!r} {held}"
    mode = given.mode if isinstance(given, Access) else "read" if parameter.const else "update"
    if mode != "read" and parameter.const:
        return f" is {parameter.ctype} and cannot be written"
    fault = lacking(view, _reached(parameter, view)) or (lacking(view, WRITE) if mode != "read" else "")
    return f": {fault}" if fault else ""


def _reached(parameter: KernelParameter, view: ArrayView) -> Need:
    """Return what a kernel needs of memory whose address it is given: elements of a vector type are aligned as a whole."""
    return device_need(max(view.dtype.alignment, parameter.target_align))
