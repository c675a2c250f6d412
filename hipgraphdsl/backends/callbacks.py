"""The user's Python code inside a graph: host callbacks and functions that are captured."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from ..arrays import Access, ArrayView, Parameter
from ..errors import CallbackError, DeclarationError, HipError, HipGraphError, node_error
from ..nodes import CapturedNode, EagerNode, ForeignFunction, HostNode, UnboundCallback, same
from ..runtimes.base import Runtime
from .handles import EagerCall
from .scope import Scope

# One C function for all callbacks: the runtime hands back a number, and a table says what it stands for. The table keeps
# what a launch may still call alive; the function itself lives as long as the process.
_table: Final[dict[int, Callable[[], None]]] = {}
_tokens = itertools.count(1)

running: Final[dict[int, tuple[str, HostCalls]]] = {}
"""The host nodes whose callbacks run now, by thread."""


def refuse_inside(action: str, graph: str) -> None:
    """Refuse what waits for the device, or calls it, in a thread that runs a host callback: HIP forbids both there."""
    found = running.get(threading.get_ident())
    if found is not None:
        raise HipGraphError(
            f"{action}: the callback of host node {found[0]!r} calls it for graph {graph!r}, and a callback may use only stats,"
            f" plan and done of an Executable; let the callback return, and call {action} in a thread that launches"
        )


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]  # ctypes
def _trampoline(token: int | None) -> None:
    call = _table.get(token or 0)
    if call is not None:
        call()


_TRAMPOLINE: Final = ctypes.cast(_trampoline, ctypes.c_void_p).value or 0

NO_CALL: Final = (_TRAMPOLINE, 0)
"""A host function that does nothing."""

_DEVICE_AT, _TYPE_AT, _BFLOAT16 = 8, 20, 4  # of dlpack.h: where DLTensor has device and dtype.code, and a code
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def memory_view(
    address: int, nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None
) -> np.ndarray[Any, Any]:
    """Return host memory as a NumPy array, without a copy; the caller keeps the memory alive."""
    buffer: Any = (ctypes.c_char * nbytes).from_address(address)
    return np.ndarray(shape, dtype, buffer, 0, strides)


def bytes_at(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return host memory as bytes, without a copy; the caller keeps the memory alive."""
    return memory_view(address, nbytes, (nbytes,), np.dtype(np.uint8))


Lend = Callable[[Scope, ArrayView], tuple[Any, int]]
"""Returns the memory that a view leads to as a buffer, which lives for as long as a function keeps it, and its address."""


@dataclass(slots=True, eq=False)
class _Call:
    """The user's function of one node, with the arguments that its names stand for."""

    given: tuple[Any, ...]
    """The node, values of parameters, and addresses: what `args` follow from."""
    args: list[Any]
    """Emptied in the end, when a traceback may still hold the call."""
    run: Callable[..., None]
    """Calls it, with a stream for an eager node."""
    token: int = field(default_factory=partial(next, _tokens))
    """What the C function is called with, for a host node."""


class HostCalls:
    """The callbacks of one Executable, of host and eager nodes, and what those of host nodes raised.

    The launcher is told when a thread runs a callback: there its `launch` leaves every call to the Python method, which refuses.
    """

    def __init__(self, runtime: Runtime, lend: Lend, launcher: Any) -> None:
        self._runtime = runtime
        self._launcher = launcher
        self._lend = lend
        self._calls: dict[str, _Call] = {}
        """By the node's full name."""
        self._stale: list[_Call] = []
        """Those that launches in flight may still call."""
        self._before: dict[str, _Call | None] = {}
        """What names stood for when the change that is being made began."""
        self.failures: list[tuple[str, BaseException]] = []
        """In the order in which they happened, by node; taken by `take_failure`."""
        self.inside: dict[int, str] = {}
        """The eager nodes whose functions run now, by thread."""

    def register(self, name: str, node: HostNode, scope: Scope) -> tuple[int, int]:
        """Return the C function and its argument that call a host node with its current arguments."""
        _require_bound(name, node.fn)
        if isinstance(node.fn, ForeignFunction):
            return node.fn.address, node.fn.argument
        call = self._call_of(name, node, scope, self._on_host)
        _table[call.token] = call.run
        return _TRAMPOLINE, call.token

    def eager(self, name: str, node: EagerNode, scope: Scope) -> EagerCall:
        """Return a function that calls the user's code of an eager node with a stream, and whether it waits for what is before.

        Code that is given host memory does, and code that says so by an attribute `waits`. Code with a method `prepared` can tell
        other libraries' calls that do the same; that comes third.
        """
        _require_bound(name, node.fn)
        call = self._call_of(name, node, scope, self._between)
        waits = getattr(node.fn, "waits", False) or any(isinstance(arg, np.ndarray) for arg in call.args)
        prepared = getattr(node.fn, "prepared", None)
        return call.run, waits, None if prepared is None else partial(prepared, *call.args)

    def _call_of(
        self, name: str, node: HostNode | EagerNode, scope: Scope, make: Callable[[str, Any, list[Any]], Callable[..., None]]
    ) -> _Call:
        """Return the call of a node with its current arguments; one that is not known is what `make` returns."""
        values = tuple(scope.value(arg) if isinstance(arg, Parameter) else None for arg in node.args)
        addresses = tuple(scope.address(_view(arg)) if isinstance(arg, (ArrayView, Access)) else 0 for arg in node.args)
        known = self._calls.get(name)
        if known is not None and known.given[0] is node and known.given[2] == addresses and same(known.given[1], values):
            return known
        args = [self._argument(arg, node, scope) for arg in node.args]
        call = _Call((node, values, addresses), args, make(name, node.fn, args))
        if name not in self._before:
            self._before[name] = known
        elif known is not None:
            self._stale.append(known)
        self._calls[name] = call
        return call

    def _on_host(self, name: str, fn: Callable[..., Any], args: list[Any]) -> Callable[[], None]:
        failures, runtime, launcher = self.failures, self._runtime, self._launcher

        def call() -> None:
            if failures:  # on a GPU the graph goes on after a failure; nothing more of the user's runs
                return
            thread = threading.get_ident()
            running[thread] = (name, self)
            if launcher is not None:
                launcher.callback(True)
            try:
                fn(*args)
            except BaseException as error:  # an exception must not reach C: it is kept, and the next synchronize raises it
                failures.append((name, error))
                runtime.host_func_failed()
            finally:
                if launcher is not None:
                    launcher.callback(False)
                del running[thread]

        return call

    def _between(self, name: str, fn: Callable[..., Any], args: list[Any]) -> Callable[[int], None]:
        inside, runtime = self.inside, self._runtime
        given, handle = CapturedStream(0, runtime), 0

        def call(stream: int) -> None:
            nonlocal given, handle
            if stream != handle:
                given, handle = CapturedStream(stream, runtime), stream
            thread = threading.get_ident()
            try:
                inside[thread] = name
                fn(given, *args)
            except HipError as error:
                raise error.at(name) from error.__cause__
            except Exception as error:
                raise CallbackError.of(name, error, "eager") from error
            finally:
                inside.pop(thread, None)

        return call

    def refuse_inside(self, action: str, graph: str) -> None:
        """Refuse what a host callback asks of any Executable, and an eager node's function of the one that calls it."""
        refuse_inside(action, graph)
        name = self.inside.get(threading.get_ident())
        if name is not None:
            raise HipGraphError(
                f"{action}: the function of eager node {name!r} calls it for graph {graph!r}, which is being launched; use the"
                f" arguments that it is given, and call {action} when launch has returned"
            )

    def _argument(self, arg: Any, node: HostNode | EagerNode | CapturedNode, scope: Scope) -> Any:
        """Return what a node's function is given: a value, host memory as a NumPy array, or other memory with its address."""
        if not isinstance(arg, (ArrayView, Access)):
            return scope.value(arg) if isinstance(arg, Parameter) else arg
        view = _view(arg)
        if isinstance(node, CapturedNode) or (isinstance(node, EagerNode) and not scope.is_host(view)):
            return CapturedArray(scope.address(view), view, scope)
        buffer, start = self._lend(scope, view)
        array: Any = np.ndarray(view.shape, view.dtype, buffer, scope.address(view) - start, view.strides)
        array.flags.writeable = any(
            a.is_write and a.view.root is view.root and a.bytes.overlaps(view.region) for a in node.access
        )
        return array

    def captured(self, name: str, node: CapturedNode, scope: Scope) -> Callable[[int], None]:
        """Return a function that calls the user's code of a captured node with a stream to issue work on."""
        _require_bound(name, node.fn)
        args = [self._argument(arg, node, scope) for arg in node.args]

        def call(stream: int) -> None:
            try:
                node.fn(CapturedStream(stream, scope.runtime), *args)
            except HipError:  # gets the node's name where every call of HIP does
                raise
            except Exception as error:
                raise CallbackError.of(name, error, "captured") from error

        return call

    def names(self) -> dict[int, str]:
        """Return the names of the nodes by the argument that the C function is called with."""
        return {call.token: name for name, call in self._calls.items() if call.token in _table}

    def take_failure(self) -> CallbackError | None:
        """Return the error to raise for the first failure, and forget all of them."""
        if not self.failures:
            return None
        name, error = self.failures[0]
        self.failures.clear()
        return CallbackError.of(name, error)

    def raise_failure(self) -> None:
        """Raise what `take_failure` returns, if there is one."""
        failure = self.take_failure()
        if failure is not None:
            raise failure from failure.__cause__

    def keep(self) -> None:
        """End a change that has succeeded: what names stood for before is stale."""
        if not self._before:
            return
        self._stale += filter(None, self._before.values())
        self._before.clear()

    def undo(self) -> None:
        """End a change that has failed: names stand for what they stood for before."""
        for name, known in self._before.items():
            self._stale.append(self._calls.pop(name))
            if known is not None:
                self._calls[name] = known
        self._before.clear()

    def stale(self) -> tuple[_Call, ...]:
        """Return the calls that only launches make which have been issued before."""
        return tuple(self._stale)

    def forget(self, stale: Iterable[_Call]) -> None:
        """Forget calls that were stale when launches began to be waited for, which have all finished."""
        gone = set(stale)
        for call in gone:
            _table.pop(call.token, None)
            call.args.clear()
        self._stale = [call for call in self._stale if call not in gone]

    def close(self) -> None:
        """Forget all callbacks; no launch may be in flight."""
        self.keep()
        self.forget((*self._stale, *self._calls.values()))
        self._calls.clear()


def _require_bound(name: str, fn: Any) -> None:
    if isinstance(fn, UnboundCallback):
        why = f"callback {fn.path!r} is not bound; supply it by from_json(text, callbacks={{{fn.path!r}: function}})"
        raise node_error(name, why)


def _view(arg: Any) -> ArrayView:
    return arg.view if isinstance(arg, Access) else arg


class CapturedStream:
    """The stream that a captured function issues its work on.

    Attributes
    ----------
    runtime : Runtime
        The protocol's calls.
    """

    def __init__(self, handle: int, runtime: Runtime) -> None:
        self._handle = handle
        self.runtime = runtime

    def __int__(self) -> int:
        return self._handle

    def __index__(self) -> int:
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


class CapturedArray:
    """An array inside a captured function.

    Attributes
    ----------
    ptr : int
        Address of the first element.
    shape, dtype, strides, nbytes
        As NumPy has them; strides in bytes.
    """

    def __init__(self, ptr: int, view: ArrayView, scope: Scope) -> None:
        self.ptr = ptr
        self.shape = view.shape
        self.dtype = view.dtype
        self.strides = view.strides
        self.nbytes = view.nbytes
        self._on_host = scope.is_host(view)
        self._span = view.region.stop - view.region.start
        self._runtime = scope.runtime
        self._device = scope.owner(view)

    def __int__(self) -> int:
        return self.ptr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "data": (self.ptr, False)}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self._reachable:
            raise AttributeError("__array_interface__: this is device memory, which NumPy cannot reach")
        return {**self.__cuda_array_interface__}

    @property
    def _reachable(self) -> bool:
        return self._on_host or self._runtime.target.dlpack_device == 1

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._reachable:
            return (1, 0)
        return (self._runtime.target.dlpack_device, self._device)

    def __dlpack__(self, **options: Any) -> Any:
        if self._reachable:
            return memory_view(self.ptr, self._span, self.shape, self.dtype, self.strides).__dlpack__(**options)
        bfloat16 = self.dtype.name == "bfloat16"
        if not bfloat16 and self.dtype.kind not in "biufc":
            raise DeclarationError(f"DLPack has no code for dtype {self.dtype}")
        # NumPy makes the capsule, without reading the memory; the device, and a type that NumPy does not have, are put in here.
        like = np.dtype(np.uint16) if bfloat16 else self.dtype
        made = memory_view(self.ptr, self._span, self.shape, like, self.strides).__dlpack__()
        tensor = _pointer_of(made, b"dltensor")
        (ctypes.c_int32 * 2).from_address(tensor + _DEVICE_AT)[:] = list(self.__dlpack_device__())
        if bfloat16:
            ctypes.c_uint8.from_address(tensor + _TYPE_AT).value = _BFLOAT16
        return made
