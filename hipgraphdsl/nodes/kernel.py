"""KernelNode."""

from __future__ import annotations

import marshal
import math
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, ValidationInfo

from ..arrays import Access, AllocArray, ArrayView, DeviceArray, Mode, MovingView, Need, Parameter, Viewable
from ..errors import DeclarationError, listed, node_error, shown, suggested
from ..kernels import Kernel, KernelParameter, Signature
from ..lazy import lazy
from .arguments import BOUNDS, fitting_argument, reached_by, signature_of
from .base import Node, argument_text, check_name, parameters_of, set_state, views_of
from .comparing import same
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
from .kinds import add_kind
from .memory import AllocNode

if TYPE_CHECKING:
    from typing_extensions import Self

    from .values import Names

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
        signature = signature_of(kernel.name, args, name)
    parameters = signature.parameters
    if len(args) != len(parameters):
        wanted = ", ".join(f"{p.ctype} {p.name}" for p in parameters)
        raise node_error(name, f"kernel {kernel.name!r} takes {len(parameters)} arguments ({wanted}), got {len(args)}")
    known = signature is kernel.signature
    pairs = zip(parameters, args)
    return tuple([fitting_argument(p, a, name, kernel.name) if known or p.pointer else deepcopy(a) for p, a in pairs])


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


@add_kind
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
    takes_moving = True

    kernel: Annotated[Kernel, KERNEL]
    grid: Annotated[Any, EXTENTS, Rule(keyword=True)]
    block: Annotated[Any, replace(EXTENTS, read=_block), Rule(keyword=True)]
    args: Annotated[tuple[Any, ...], ARGUMENTS] = Field(default=(), validate_default=True)
    shared_bytes: Annotated[int, Integer(0, 2**31 - 1, called="a number of bytes from 0 to 2147483647")] = 0
    cooperative: Annotated[bool, Rule(fixed=_ATTRIBUTE)] = False
    priority: Annotated[Annotated[int, Integer(-(2**31), 2**31 - 1)] | None, Rule(fixed=_ATTRIBUTE)] = None
    cluster: Annotated[tuple[int, int, int] | None, replace(EXTENTS, read=_cluster), Rule(fixed=_ATTRIBUTE)] = None
    device: Device = None

    def take(self, data: dict[str, Any], launches: Launches | None = None) -> None:
        if launches is None or type(self) is not KernelNode or not launches.make(self, data):
            super().take(data)

    def _fill(self, data: dict[str, Any], names: Names | None = None) -> None:
        launches = names.launches if names is not None and type(self) is KernelNode else None
        if launches is not None and launches.read_again(self, data):
            return
        given = data if names is None else _of_file(data, names)
        shared = _known(given) if type(self) is KernelNode else None
        try:
            if shared is not None and shared.may_complete(given) and shared.complete(self, given, names):
                if launches is not None:
                    launches.read(self)
                return
        except DeclarationError:
            pass  # validation raises it with its field
        super()._fill(data, names)
        if shared is None and type(self) is KernelNode:
            _keep(given, self, tuple(data))

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
        return self.kernel.signature or signature_of(self.kernel.name, self.args, self.name)

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """One access for each pointer argument; `const T*` is read, `T*` is updated, unless the argument is an Access.

        A foreign kernel's pointer arguments count only if they are given as Access. Module variables that the kernel uses follow.
        """
        found = []
        signature = self.kernel.signature or self.signature
        known = self.kernel.module.handle is None
        for parameter, arg in zip(signature.parameters, self.args):
            if isinstance(arg, ArrayView) and known:
                found.append(arg.accessed("read" if parameter.const else "update"))
            elif type(arg) is Access:
                found.append(arg)
        for symbol, constant in self.kernel.symbols:
            found.append(Access(symbol.as_view(), "read" if constant else "update"))
        return tuple(found)

    def changed(self, **fields: Any) -> Self:
        """Like `Node.changed`; `args` may be a dict by kernel parameter name, and other keywords name single arguments."""
        known, args = type(self).model_fields, fields.get("args", {})
        others = {} if fields.keys() <= known.keys() else {name: fields.pop(name) for name in [*fields] if name not in known}
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
        if named := {**args, **others}:
            values = {**dict(zip(names, self.args)), **named}
            fields["args"] = _in_order(values, self.kernel, self.signature, self.name)
        return super().changed(**fields)

    @lazy
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of((*self.args, *self.grid, *self.block))

    def _reached(self) -> list[tuple[ArrayView, Need]]:
        signature = self.kernel.signature or self.signature
        pairs = ((p, arg.view if type(arg) is Access else arg) for p, arg in zip(signature.parameters, self.args))
        return [(view, reached_by(parameter, view)) for parameter, view in pairs if isinstance(view, ArrayView)]

    @property
    def launched(self) -> Self:
        return self

    @lazy
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


_shares = itemgetter("grid", "block", "shared_bytes", "cooperative", "priority", "device", "cluster")
"""The fields that launches of a kernel may share."""
_SHARED_BY_DEFAULT: Final = {field.name: field.default for field in KernelNode.fields if field.default is not ...}


def _share(data: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return what a launch may share, as it was given; None if it lacks a field."""
    try:
        found: tuple[Any, ...] = _shares(data)
    except KeyError:
        if "grid" not in data or "block" not in data:
            return None
        found = _shares({**_SHARED_BY_DEFAULT, **data})
    return found


def _known(data: dict[str, Any]) -> _Shared | None:
    """Return what launches of the same kernel that were given the same share with a launch, if there was one.

    Equal values are of equal types: True and 1.0 equal 1, and are not taken for it.
    """
    kernel, key = data.get("kernel"), _share(data)
    if type(kernel) is not Kernel or key is None:
        return None
    try:
        found: _Shared | None = kernel.launches.get(key)
    except TypeError:  # such as a list, which cannot be a key
        return None
    if found is None or [*map(type, key)] != found.types:
        return None
    return found if found.flat or (_plain_extents(key[0]) and _plain_extents(key[1])) else None


def _plain_extents(extents: Any) -> bool:
    """Return whether extents are an integer or a tuple of integers, which nobody changes."""
    return type(extents) is int or (type(extents) is tuple and {*map(type, extents)} == {int})


def _keep(data: dict[str, Any], node: KernelNode, order: tuple[str, ...]) -> None:
    """Keep what a node shares with later ones, unless its signature follows from its arguments, or others rarely share it."""
    key = _share(data)
    if key is None or node.kernel.signature is None or not (_plain_extents(key[0]) and _plain_extents(key[1])):
        return
    _, _, shared_bytes, cooperative, priority, device, cluster = key
    if (
        type(shared_bytes) is int
        and type(cooperative) is bool
        and (priority is None or type(priority) is int)
        and (device is None or type(device) is int)
        and cluster is None
    ):
        launches = node.kernel.launches
        if len(launches) >= _MOST_SHARED:
            launches.clear()
        launches[key] = _Shared(node, key, order)


class _Shared:
    """What nodes share that launch a kernel with the same grid, block and attributes: fields that are validated once.

    `complete` gives a node these fields and its own, with what follows from them, and leaves it as validation would.
    """

    __slots__ = ("_block", "_count", "_given", "_grid", "_kernel", "_known", "_order", "_pointers", "_symbols", "_values",
        "flat", "number", "state", "types")  # fmt: skip

    _numbers = count()

    def __init__(self, node: KernelNode, key: tuple[Any, ...], order: tuple[str, ...]) -> None:
        self.number = next(self._numbers)
        self._kernel = kernel = node.kernel
        self._known = kernel.module.handle is None  # else nobody knows how it accesses its arguments
        follows = {name: getattr(node, name) for name in _FOLLOWS}
        self.state = {name: node.__dict__[name] for name in KernelNode.model_fields} | follows | {
            "args": (),  # the kernel may outlive the memory of the first node's
            "accesses": (),
            "addresses": (),
            "parameters": (),
            "after": (),
            "ignore": None,
            "source": None,
        }  # fmt: skip
        self.types = [*map(type, key)]
        self.flat = tuple not in self.types
        self._grid, self._block = node.grid, node.block
        self._order, self._given = order, node.model_fields_set
        self._symbols = [symbol.as_view().accessed("read" if constant else "update") for symbol, constant in kernel.symbols]
        parameters = node.signature.parameters
        self._count = len(parameters)
        self._pointers = [(at, each) for at, each in enumerate(parameters) if each.pointer]
        values = [(at, each) for at, each in enumerate(parameters) if not each.pointer]
        self._values = [(at, *BOUNDS.get(each.dtype, (1, 0)), each) for at, each in values]  # with the range of an int

    def may_complete(self, data: dict[str, Any]) -> bool:
        """Return whether a node has no more of its own than name, source, edges and arguments, and these are of their types."""
        name, source, after = data.get("name"), data.get("source"), data.get("after", ())
        return (
            (tuple(data) == self._order or data.keys() <= KernelNode.model_fields.keys())
            and type(name) is str
            and (
                source is None
                or (type(source) is tuple and len(source) == 2 and type(source[0]) is str and type(source[1]) is int)
            )
            and type(after) is tuple
            and (not after or all(type(name) is str for name in after))
            and data.get("ignore") is None
        )

    def complete(self, node: KernelNode, data: dict[str, Any], names: Names | None = None) -> bool:
        """Give a node its fields; leave it, and return False, if its arguments are no list of the right length.

        `names` resolves the arguments of a file.

        Raises
        ------
        DeclarationError
            If the name or an argument is invalid; it does not name the field.
        """
        args = data.get("args")
        if (type(args) is not tuple and type(args) is not list) or len(args) != self._count:
            if args is not None or "args" in data or self._count:
                return False
            args = ()
        fields = self.state.copy()
        fields.update(data)
        name = check_name(fields["name"], "node")
        fields["grid"], fields["block"] = self._grid, self._block
        bound: list[Any] = [*args] if names is None else [names.value(arg) for arg in args]
        accesses: list[Access] = []
        views: list[ArrayView] = []
        mentions = False
        for at, parameter in self._pointers:
            bound[at], view, access = self._fit(parameter, bound[at], name)
            if view is None:
                continue
            views.append(view)
            if access is not None:
                accesses.append(access)
            if type(view.root) is Parameter or type(view) is MovingView:
                mentions = True
        for at, least, most, parameter in self._values:
            arg = bound[at]
            if type(arg) is not int or not least <= arg <= most:
                bound[at] = fitting_argument(parameter, arg, name, self._kernel.name)
                mentions = mentions or isinstance(arg, Parameter)
        if self._symbols:
            accesses += self._symbols
        fields["args"], fields["accesses"], fields["addresses"] = tuple(bound), tuple(accesses), tuple(views)
        if mentions:
            fields["parameters"] = parameters_of(bound)
        set_state(node, fields, self._given if tuple(data) == self._order else {*data})
        return True

    def _fit(self, parameter: KernelParameter, arg: Any, node: str) -> tuple[Any, ArrayView | None, Access | None]:
        """Return a pointer's argument, view and access; raise DeclarationError if it does not fit."""
        given = arg.as_view() if type(arg) is DeviceArray or type(arg) is AllocNode else arg
        mode: Mode = "read" if parameter.const else "update"
        plain = (  # as nearly always; else `fitting_argument` looks closer
            type(given) is ArrayView
            and type(given.root) in _OF_DEVICES
            and given.contiguous
            and parameter.lanes == 1
            and parameter.dtype is not None
            and given.dtype == parameter.dtype
        )
        if not plain:
            given = fitting_argument(parameter, arg, node, self._kernel.name)
            if not isinstance(given, ArrayView):
                return given, None if given is None else given.view, given
        return given, given, given.accessed(mode) if self._known else None


_DECLARED: Final = {"kernel", "grid", "block", "args", "name", "source", "shared_bytes", "cooperative", "priority", "cluster",
    "device"}  # fmt: skip
"""The fields that `Graph.kernel` gives without options."""
_STORED: Final = {"name", "kernel", "grid", "block", "args"}
"""The fields that a file stores of most launches."""
_FOLLOWS: Final = ("plain", "alike", "least_threads", "signature", "kernels")
"""What follows from the fields that launches share."""
_OF_LAUNCH: Final = KernelNode.model_fields.keys() | {"accesses", "addresses", "parameters", *_FOLLOWS}
"""What `_Shared.complete` sets of a node."""
_OF_DEVICES: Final = frozenset({DeviceArray, AllocArray})
"""The classes of arrays that a kernel can access in every way, at any multiple of their elements' size."""
_CHANGEABLE: Final = frozenset({np.void, np.ndarray, list, dict})
"""Types of values that each node has for itself."""
_MOST_REPEATED = 4096  # launches of one draft that are looked at for those that a node may repeat


class Repeated:
    """A launch that later ones of a draft repeat.

    Attributes
    ----------
    fields : dict
        What its nodes are made of, but for name and source.
    args : tuple
        Its arguments as they were given, kept as long as their identities stand for them.
    touched : object or None
        What its accesses touch, for the draft's hazards, which sets it.
    """

    __slots__ = ("args", "fields", "touched")

    def __init__(self, fields: dict[str, Any], args: tuple[Any, ...]) -> None:
        self.fields, self.args = fields, args
        self.touched: Any = None


class Launches:
    """The launches of a draft, by what they share with others and the identities of their arguments, or by their text in a file.

    A node that repeats a launch, under another name, takes its arguments, accesses and all other fields.

    Attributes
    ----------
    made : tuple of (KernelNode or None, Repeated or None)
        The node made last, with the launch that it repeats.
    """

    __slots__ = ("_key", "_known", "made")

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], KernelNode | Repeated] = {}
        self._key: tuple[Any, ...] = ()  # that of the node made last
        self.made: tuple[Any, Repeated | None] = None, None

    def make(self, node: KernelNode, data: dict[str, Any]) -> bool:
        """Give a node that `Graph.kernel` declares its fields; leave it, and return False, if validation must do so."""
        self.made = None, None
        args = data["args"]
        shared = _known(data) if len(data) == len(_DECLARED) and (type(args) is tuple or type(args) is list) else None
        if shared is None:
            return False
        self._key = key = (shared.number, *map(id, args))
        known = self._repeats(key, args)
        try:
            if known is None:
                done = shared.complete(node, data)
            else:
                fields = known.fields.copy()
                fields["name"], fields["source"] = check_name(data["name"], "node"), data["source"]
                set_state(node, fields, _DECLARED)
                done = True
        except DeclarationError:
            done = False  # validation raises it with its field
        if done:
            self.made = node, known
        return done

    def read_again(self, node: KernelNode, data: dict[str, Any]) -> bool:
        """Give a node of a file its fields, if it is stored like an earlier one but for its name; else return False."""
        self.made, self._key = (None, None), ()
        if data.keys() != _STORED:
            return False
        # As bytes, equal values are of equal types; version 2 of the format does not depend on which objects are the same.
        self._key = key = data["kernel"], marshal.dumps((data["grid"], data["block"], data["args"]), 2)
        try:
            known = self._repeats(key)
            if known is None:
                return False
            fields = known.fields.copy()
            fields["name"] = check_name(data["name"], "node")
        except (DeclarationError, TypeError):  # validation raises it with its field
            return False
        set_state(node, fields, _STORED)
        self.made = node, known
        return True

    def _repeats(self, key: tuple[Any, ...], args: Sequence[Any] | None = None) -> Repeated | None:
        """Return the launch that a node with this key repeats, which was given these arguments, by default those that it has."""
        known = self._known.get(key)
        if isinstance(known, KernelNode):
            known = _repeated(known, known.args if args is None else tuple(args))
            if known is not None:
                self._known[key] = known
        return known

    def read(self, node: KernelNode) -> None:
        """Take a node of a file, which `read_again` has left, as one that later ones may repeat."""
        self.made = (node, None) if self._key and not _CHANGEABLE.intersection(map(type, node.args)) else (None, None)

    def keep(self, node: Any) -> None:
        """Keep the launch of a node that the draft has accepted, if the node was made last and another one can repeat it."""
        if self.made[0] is node and not node.parameters:
            if len(self._known) >= _MOST_REPEATED:
                self._known.clear()
            self._known[self._key] = node


def _repeated(node: KernelNode, args: tuple[Any, ...]) -> Repeated | None:
    """Return the launch of a node for others with these arguments; None if they are not those of the node, or may change."""
    for value, arg in zip(node.args, args):
        plain = value is arg or (type(arg) is float and same(value, arg))
        if not plain and (type(value) is not ArrayView or value.root not in (arg, getattr(arg, "made", None))):
            return None
    return Repeated(node.__dict__.copy(), args) if node.__dict__.keys() == _OF_LAUNCH else None  # without what else is computed


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
