"""The user's Python code inside a graph: host callbacks and functions that are captured."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays import Access, ArrayView, Parameter, Region
from ..errors import CallbackError, HipError, HipGraphError, node_error
from ..nodes import ForeignFunction, UnboundCallback, same
from ..runtimes.base import Runtime
from .capturing import Kept, recording
from .environment import Environment
from .handles import EagerCall
from .lent import Lent

if TYPE_CHECKING:
    from ..nodes.facets import UserCall

# One C function serves all callbacks: the runtime passes it a token, which `_table` maps to a Python function. The table keeps
# alive what a launch may still call; the C function lives as long as the process.
_table: Final[dict[int, Callable[[], None]]] = {}
_tokens = itertools.count(1)

running: Final[dict[int, tuple[str, HostCalls]]] = {}
"""By thread ID, the host node whose callback is running, and its `HostCalls`."""


class Stopped(HipGraphError):
    """A host callback has raised, so that its launch starts nothing more; the next `synchronize` raises the callback's error."""


def refuse_inside(action: str, graph: str) -> None:
    """Raise if this thread runs a host callback, in which HIP forbids API calls and waiting for the device."""
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


Lend = Callable[[Environment, ArrayView], Lent | None]
"""Lends the memory that a view lies in; None for memory that lives only while the graph runs, and variables of modules."""


@dataclass(slots=True, eq=False)
class _Call:
    """The user's function of one node, with its resolved arguments."""

    given: tuple[Any, ...]
    """The node, its parameter values and its addresses, which determine `args`."""
    args: list[Any]
    """Cleared when the call is removed, because a traceback may still reference the call."""
    run: Callable[..., None]
    """Calls the function; takes a stream for an eager node."""
    token: int = field(default_factory=partial(next, _tokens))
    """Argument of the C function, for a host node."""


class HostCalls:
    """The functions of the host and eager nodes of one Executable, and the exceptions that its host callbacks raised.

    The launcher is notified when a thread runs a callback: there `launch` forwards every call to the Python method, which raises.
    """

    def __init__(self, runtime: Runtime, lend: Lend, launcher: Any) -> None:
        self._runtime = runtime
        self._launcher = launcher
        self._lend = lend
        self._calls: dict[str, _Call] = {}
        """By the node's full name."""
        self.replaced: list[_Call] = []
        """Calls that only launches issued before the replacement can make."""
        self._before: dict[str, _Call | None] = {}
        """Calls that the current change has replaced, by the node's full name; None for a node that had none."""
        self.failures: list[tuple[str, BaseException]] = []
        """Node name and exception of each failed host callback, oldest first; cleared by `take_failure`."""
        self.taken: CallbackError | None = None
        """What `take_failure` has returned last; None after a wait while nothing was launched."""
        self.inside: dict[int, str] = {}
        """Names of the eager nodes whose functions are running, by thread ID."""
        self._recorded: Kept = {}
        """What the captured functions have recorded of other Executables; until the close, because graphs may be copied."""

    def register(self, name: str, node: UserCall, scope: Environment) -> tuple[int, int]:
        """Return the C function and its argument that call a host node with its current arguments."""
        _require_bound(name, node.fn)
        if isinstance(node.fn, ForeignFunction):
            return node.fn.address, node.fn.argument
        call = self._call_of(name, node, scope, self._on_host)
        _table[call.token] = call.run
        return _TRAMPOLINE, call.token

    def eager(self, name: str, node: UserCall, scope: Environment) -> EagerCall:
        """Return a function that calls an eager node's user code with a stream, whether it waits, and its `prepared` or None.

        It waits for earlier work if the code takes host memory or has a true attribute `waits`. The code's method `prepared`, if
        any, returns equivalent calls of other libraries.
        """
        _require_bound(name, node.fn)
        call = self._call_of(name, node, scope, self._between)
        waits = getattr(node.fn, "waits", False) or any(isinstance(arg, np.ndarray) for arg in call.args)
        prepared = getattr(node.fn, "prepared", None)
        return call.run, waits, None if prepared is None else partial(prepared, *call.args)

    def _call_of(
        self, name: str, node: UserCall, scope: Environment, make: Callable[[str, Any, list[Any]], Callable[..., None]]
    ) -> _Call:
        """Return the call of a node with its current arguments; create it by `make` unless it is known."""
        values = tuple(scope.value(arg) if isinstance(arg, Parameter) else None for arg in node.args)
        views = [scope.here(_view(arg)) if isinstance(arg, (ArrayView, Access)) else None for arg in node.args]
        addresses = tuple(0 if view is None else (scope.address(view), view.shape) for view in views)
        known = self._calls.get(name)
        if known is not None and known.given[0] is node and known.given[2] == addresses and same(known.given[1], values):
            return known
        args = [self._argument(arg, node, scope) for arg in node.args]
        call = _Call((node, values, addresses), args, make(name, node.fn, args))
        if name not in self._before:
            self._before[name] = known
        elif known is not None:
            self.replaced.append(known)
        self._calls[name] = call
        return call

    def _on_host(self, name: str, fn: Callable[..., Any], args: list[Any]) -> Callable[[], None]:
        failures, runtime, launcher = self.failures, self._runtime, self._launcher

        def call() -> None:
            if failures:  # on a GPU the graph continues after a failure, but no more user code runs
                return
            thread = threading.get_ident()
            running[thread] = (name, self)
            if launcher is not None:
                launcher.callback(True)  # noqa: FBT003  # compiled code, which takes no keywords
            try:
                fn(*args)
            except BaseException as error:  # an exception must not reach C: it is kept, and the next synchronize raises it
                failures.append((name, error))
                runtime.host_func_failed()
            finally:
                if launcher is not None:
                    launcher.callback(False)  # noqa: FBT003  # compiled code, which takes no keywords
                del running[thread]

        return call

    def _between(self, name: str, fn: Callable[..., Any], args: list[Any]) -> Callable[[int], None]:
        from .interop import CapturedStream

        inside, runtime = self.inside, self._runtime
        given, handle, failures = CapturedStream(0, runtime), 0, self.failures

        def call(stream: int) -> None:
            nonlocal given, handle
            if failures:
                raise Stopped
            if stream != handle:
                given, handle = CapturedStream(stream, runtime), stream
            thread = threading.get_ident()
            try:
                inside[thread] = name
                fn(given, *args)
            except HipError as error:
                raise error.met_by(name) from (error if error.node else error.__cause__)
            except Exception as error:
                raise CallbackError.of(name, error, "eager") from error
            finally:
                inside.pop(thread, None)

        return call

    def refuse_inside(self, action: str, graph: str) -> None:
        """Raise if a host callback of any Executable, or the function of an eager node of this one, makes the call."""
        refuse_inside(action, graph)
        name = self.inside.get(threading.get_ident())
        if name is not None:
            raise HipGraphError(
                f"{action}: the function of eager node {name!r} calls it for graph {graph!r}, which is being launched; use the"
                f" arguments that it is given, and call {action} when launch has returned"
            )

    def _argument(self, arg: Any, node: UserCall, scope: Environment) -> Any:
        """Return an argument of a node's function: a value, host memory as a NumPy array, or memory as a `CapturedArray`."""
        if not isinstance(arg, (ArrayView, Access)):
            return scope.value(arg) if isinstance(arg, Parameter) else arg
        view = scope.here(_view(arg))
        lent = self._lend(scope, view)
        if node.calls == "capture" or (node.calls == "between" and not scope.is_host(view, lent)):
            from .interop import CapturedArray

            borrowed = None if lent is None else lent._replace(buffer=None)  # a traceback would keep the memory with the argument
            return CapturedArray(scope.address(view), view, scope, borrowed)
        if lent is None or not lent.on_host:
            raise node_error(
                node.name,
                f"{view.name!r} stands for device memory here, and a host function takes host memory; copy it to a host_array",
                array=view.root.name,
            )
        array: Any = np.ndarray(view.shape, view.dtype, lent.buffer, scope.address(view) - lent.start, view.strides)
        array.flags.writeable = any(
            a.is_write and a.view.root is view.root and (not view.size or _bytes_of(a, scope).overlaps(view.region))
            for a in node.access
        )
        return array

    def captured(self, name: str, node: UserCall, scope: Environment) -> Callable[[int], None]:
        """Return a function that calls the user's code of a captured node with a stream to issue work on."""
        from .interop import CapturedStream

        _require_bound(name, node.fn)
        args, recorded = [self._argument(arg, node, scope) for arg in node.args], self._recorded

        def call(stream: int) -> None:
            try:
                recording(scope.runtime, stream, recorded, lambda: node.fn(CapturedStream(stream, scope.runtime), *args))
            except HipError as error:
                raise error.met_by(name) from (error if error.node else error.__cause__)
            except Exception as error:
                raise CallbackError.of(name, error, "captured") from error

        return call

    def names(self) -> dict[int, str]:
        """Return the names of host nodes by token, the argument of the C function."""
        return {call.token: name for name, call in self._calls.items() if call.token in _table}

    def take_failure(self) -> CallbackError | None:
        """Return the error to raise for the first failure, or None, and clear all failures."""
        if not self.failures:
            return None
        name, error = self.failures[0]
        self.failures.clear()
        self.taken = CallbackError.of(name, error)
        return self.taken

    def raise_failure(self) -> None:
        """Raise the error that `take_failure` returns, if any."""
        failure = self.take_failure()
        if failure is not None:
            raise failure from failure.__cause__

    def keep(self) -> None:
        """Commit a change: the calls that it replaced become stale."""
        if not self._before:
            return
        self.replaced += filter(None, self._before.values())
        self._before.clear()

    def undo(self) -> None:
        """Roll back a change: restore the calls that it replaced."""
        for name, known in self._before.items():
            self.replaced.append(self._calls.pop(name))
            if known is not None:
                self._calls[name] = known
        self._before.clear()

    def current(self) -> tuple[_Call, ...]:
        """Return the calls that a launch now makes."""
        return tuple(self._calls.values())

    def forget(self, stale: Iterable[_Call]) -> None:
        """Remove calls that were `replaced`; all launches issued before then must have finished."""
        gone = set(stale)
        for call in gone:
            _table.pop(call.token, None)
            call.args.clear()
        self.replaced = [call for call in self.replaced if call not in gone]

    def close(self) -> None:
        """Remove all callbacks; no launch may be in flight."""
        self.keep()
        self.forget((*self.replaced, *self._calls.values()))
        self._calls.clear()
        self._recorded.clear()
        self.taken = None


def _require_bound(name: str, fn: Any) -> None:
    if isinstance(fn, UnboundCallback):
        why = f"callback {fn.path!r} is not bound; supply it by from_json(text, callbacks={{{fn.path!r}: function}})"
        raise node_error(name, why)


def _bytes_of(access: Access, scope: Environment) -> Region:
    """Return the bytes that an access touches now."""
    here = scope.here(access.view)
    return access.bytes if here is access.view else here.region


def _view(arg: Any) -> ArrayView:
    return arg.view if isinstance(arg, Access) else arg
