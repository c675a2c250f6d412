"""Nodes that run the user's own code: on the host, on a stream while it is captured, or between graphs."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import Field, ValidationInfo, model_validator

from ..arrays import HOST, WRITE, Access, ArrayView, Need, Parameter, Viewable
from ..errors import DeclarationError, node_error, shown
from ..lazy import lazy
from .base import Field as NodeField
from .base import Node, argument_text, as_accesses, parameters_of, require_met, views_of
from .fields import VALUES, Device, Stored, names_in, node_in, values, values_data
from .functions import UnboundCallback
from .kinds import add_kind
from .values import Data, Names, list_of, ref

if TYPE_CHECKING:
    from typing_extensions import Self


def callable_name(fn: Any) -> str:
    """Return a short name for a callback: its `__name__`, or the name of its class."""
    return getattr(fn, "__name__", None) or type(fn).__name__


def _callback(value: Any, info: ValidationInfo) -> Any:
    names, name = names_in(info), node_in(info)
    if names is not None:
        if not isinstance(value, str) or not re.fullmatch(r"[\w.]{1,400}:[\w.]{1,400}", value):
            raise DeclarationError(f"'fn' is an import path such as 'package.module:function' (got {shown(value)})")
        return names.callback(value, name) or UnboundCallback(value)
    if not isinstance(value, (Callable, UnboundCallback)):  # type: ignore[arg-type]  # collections.abc.Callable is a class
        raise node_error(name, f"fn is a Python callable (got {value!r})")
    if kind := _suspended(value):
        raise node_error(
            name,
            f"fn is {kind} function, and calling it runs nothing of its body (got {value!r}); give a plain function that runs"
            " it to its end",
        )
    return value


def _callback_data(fn: Any, names: Names, node: Any) -> Data:
    try:
        return _import_path(fn)
    except DeclarationError:
        if names.strict:
            raise
        return {"python": callable_name(fn)}


CALLBACK = Stored(_callback, _callback_data, ref("callback"))
"""A callable, stored as its import path, ``"package.module:function"``."""


def _arguments(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
    args = values(value, info)
    if not isinstance(args, (tuple, list)):
        raise node_error(node_in(info), f"args is a tuple (got {args!r}); write args=(...,)")
    return tuple(
        a if isinstance(a, Access) or (isinstance(a, Parameter) and not a.shape) or not isinstance(a, Viewable) else a.as_view()
        for a in args
    )


class _Lists(NamedTuple):
    """Accesses as `reads` and `writes` give them."""

    reads: Any = None
    writes: Any = None


def _accesses(value: Any, info: ValidationInfo) -> tuple[Access, ...]:
    if isinstance(value, _Lists):
        return as_accesses(*value, info.data.get("args", ()), node_in(info))
    found = values(value, info)
    if not isinstance(found, (list, tuple)) or not all(isinstance(entry, Access) for entry in found):
        if names_in(info) is not None:
            raise DeclarationError('\'access\' is a list of {"read": view}, {"write": view} and {"update": view}')
        wanted = "a list of hg.reads(view), hg.writes(view) and hg.updates(view)"
        raise node_error(node_in(info), f"{info.field_name} is {wanted} (got {shown(value)})")
    return tuple(found)


class _UserCode(Node):
    """Base of host, captured and eager nodes."""

    takes_moving = True
    apart = True

    fn: Annotated[Any, CALLBACK]
    args: Annotated[tuple[Any, ...], replace(VALUES, read=_arguments)] = ()
    access: Annotated[tuple[Access, ...], Stored(_accesses, values_data, list_of(ref("access")))] = Field(
        default=_Lists(), validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _take_lists(cls, data: Any) -> Any:
        """Take `reads` and `writes` as `access`."""
        if not isinstance(data, dict) or not ("reads" in data or "writes" in data):
            return data
        others = {name: value for name, value in data.items() if name not in ("reads", "writes")}
        if "access" in data:
            raise node_error(data.get("name", ""), "give access, or reads and writes, not both")
        return others | {"access": _Lists(data.get("reads"), data.get("writes"))}

    def model_post_init(self, _: Any) -> None:
        for access in self.access:
            self._check_access(access, self.name)

    def stored(self) -> list[NodeField]:
        return [field for field in super().stored() if field.name != "access" or not self._inferred]

    @property
    def _inferred(self) -> bool:
        """Whether the accesses are those that follow from the arguments."""
        return self.access == as_accesses(None, None, self.args, self.name)

    def _given(self) -> dict[str, Any]:
        """Return the fields without those that have their defaults; accesses inferred from `args` are inferred again."""
        given = super()._given()
        if self._inferred:
            del given["access"]
        return given

    def changed(self, **fields: Any) -> Self:
        """Return a copy with these fields replaced; accesses inferred from `args` are inferred again from the new ones."""
        if "access" not in fields and ("reads" in fields or "writes" in fields):
            return type(self)(**{name: value for name, value in self._given().items() if name != "access"} | fields)
        return super().changed(**fields)

    @property
    def called(self) -> Self:
        return self

    @property
    def addresses(self) -> tuple[ArrayView, ...]:
        return views_of(self.args)

    @property
    def lists(self) -> tuple[list[ArrayView], list[ArrayView]]:
        """The views that are read and those that are written, as arguments for `reads` and `writes`."""
        return [a.view for a in self.access if a.is_read], [a.view for a in self.access if a.is_write]

    @property
    def method(self) -> str:
        derived = as_accesses(None, None, self.args, self.name), as_accesses(*self.lists, self.args, self.name)
        return self.kind if self.access in derived else ""

    @classmethod
    def _check_access(cls, access: Access, node: str) -> None:
        if access.is_write:
            require_met(node, access.view, WRITE, "; list it in reads=[...]")

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """The accesses given by `reads` and `writes`; without them, an update of every array in `args`."""
        return self.access

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of(self.args)

    def describe(self) -> str:
        return f"{callable_name(self.fn)}({', '.join(argument_text(a) for a in self.args)})"

    @property
    def likeness(self) -> tuple[Hashable, ...]:
        return (*super().likeness, callable_name(self.fn))


_SUSPENDED: Final = (
    (inspect.iscoroutinefunction, "a coroutine"),
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
)


def _suspended(fn: Any) -> str:
    """Return the kind of function if a call only creates an object without running the body (such as a coroutine), else ""."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    codes = (fn, getattr(type(fn), "__call__", None))  # noqa: B004  # inspects the method itself; not a test for callability
    return next((kind for code in codes for is_kind, kind in _SUSPENDED if is_kind(code)), "")


def callback_path(fn: Any) -> str:
    """Return the import path of a function, ``"package.module:function"``; raise DeclarationError if it has none."""
    try:
        return _import_path(fn)
    except DeclarationError as fault:
        raise DeclarationError(f"a file holds callbacks by import path, and this one has none: {fault}") from None


def _import_path(fn: Any) -> str:
    if isinstance(fn, UnboundCallback):
        return fn.path
    advice = "; use a function at the top level of a module"
    name = getattr(fn, "__qualname__", None)
    owner = getattr(fn, "__self__", None)
    if not isinstance(name, str):
        raise DeclarationError(f"its callback is an object of type {type(fn).__name__}{advice}")
    if "<lambda>" in name:
        raise DeclarationError(f"its callback is a lambda{advice}")
    if "<locals>" in name:
        raise DeclarationError(f"its callback {fn.__name__!r} is a function inside a function{advice}")
    if owner is not None and not isinstance(owner, ModuleType):
        raise DeclarationError(f"its callback {name!r} is a bound method{advice}")
    module = getattr(fn, "__module__", None) or ""
    home: Any = sys.modules.get(module)
    if module == "__main__":
        module = _main_name(home)
        if not module:
            raise DeclarationError(f"its callback {name!r} stands in no file{advice}")
    found = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not fn:
        raise DeclarationError(f"its callback is not what {module}:{name} names{advice}")
    return f"{module}:{name}"


def _main_name(main: Any) -> str:
    """Return the name under which the main program's file can be imported, or an empty string."""
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None) or ""
    stem = re.split(r"[/\\]", file)[-1].removesuffix(".py")
    return stem if re.fullmatch(r"\w+", stem) else ""


@add_kind
class HostNode(_UserCode):
    """A Python callable that the runtime calls on the host (hipGraphAddHostNode).

    It is called with one NumPy view for each array or view in `args`, the current value of each parameter, and all other
    arguments unchanged; its return value is ignored. Views that the node only reads are not writeable. A view that the callable
    keeps stays valid: page-locked memory is freed when its last view is gone, at the earliest when the Executable is closed.

    Attributes
    ----------
    fn : callable
    args : tuple
    access : tuple of Access
        From ``reads=[...]`` and ``writes=[...]``; without them every array in `args` is updated.
    """

    kind: ClassVar[str] = "host"
    calls = "host"
    work = "host"
    reach = "host"
    placed = ""
    in_body = False

    @classmethod
    def _check_access(cls, access: Access, node: str) -> None:
        super()._check_access(access, node)
        require_met(node, access.view, HOST)

    def model_post_init(self, _: Any) -> None:
        super().model_post_init(_)
        for view in views_of(self.args):
            self._check_access(Access(view, "read"), self.name)

    def _reached(self) -> tuple[tuple[ArrayView, Need], ...]:
        return tuple((view, HOST) for view in (*self.addresses, *(access.view for access in self.access)))


class _OnStream(_UserCode):
    """Base of captured and eager nodes, whose functions are called with a stream."""

    placed = "memory"
    copies = True
    untried = "reaches outside of the graph's arrays"

    device: Device = None


@add_kind
class CapturedNode(_OnStream):
    """The work that a function issues on a stream, captured into the graph.

    The backends explicit and capture call ``fn(stream, *args)`` during capture, when the graph is compiled; the backends
    streams and serial call it at each launch. `int(stream)` is the raw handle, `stream.runtime` the Runtime protocol; an array
    in `args` is passed as an object with `ptr`, `__cuda_array_interface__` and `__dlpack__`.

    Attributes
    ----------
    fn : callable
    args : tuple
    access : tuple of Access
        From ``reads=[...]`` and ``writes=[...]``; without them every array in `args` is updated.
    device : int or None
        The device of the stream, current while `fn` is called; None: the one that owns its arrays.
    """

    kind: ClassVar[str] = "captured"
    calls = "capture"
    work = "kernel"
    reach = "device"
    in_body = True
    fixed = "nodes of kind captured are recorded once"


@add_kind
class EagerNode(_OnStream):
    """A function that the launching thread calls at each launch, between graphs, with a stream to issue work on.

    ``fn(stream, *args)`` may do what is forbidden in captures and host callbacks: allocate, synchronize the stream, call other
    libraries and communicate. Work that it issues on the stream runs after the node's predecessors and before its successors.
    `stream` and arrays are passed as in a captured node, but host arrays as NumPy views; if `args` holds a host array, the
    thread waits until the predecessors have finished. Otherwise `fn` is called as soon as they have been launched.

    Attributes
    ----------
    fn : callable
    args : tuple
    access : tuple of Access
        From ``reads=[...]`` and ``writes=[...]``; without them every array in `args` is updated.
    device : int or None
        The device of the stream, current while `fn` is called; None: the one that owns its arrays.
    """

    kind: ClassVar[str] = "eager"
    calls = "between"
    work = "host"
    reach = "host"
    in_body = False
    in_child = False
