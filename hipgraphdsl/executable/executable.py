"""The Executable itself: its public methods, serialised by one lock."""

from __future__ import annotations

import _thread
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np

from ..arrays import Array, ExternalArray, as_handle
from ..backends import Program, Scope, SharedHandles, backend_named
from ..backends.callbacks import CapturedArray, HostCalls, refuse_inside, running
from ..backends.program import GraphProgram
from ..errors import CallbackError, DeclarationError, HipError, HipGraphError, UpdateError, WaitTimeout
from ..graph_memory import GraphMemory
from ..nodes import Node
from ..placement import devices_of
from ..plan import Lanes, Plan
from ..progress import no_progress
from ..runtimes.base import Runtime
from ..timeline import Timeline
from ..update import HasWorkflow
from ..watch import MODULE, WatchedPlan, planned
from ..workflow import AnyNode, Workflow
from .arrangement import Arrangement
from .built import Built
from .compiled import CompiledPath
from .devices import Home, grant_access
from .in_flight import InFlight, unfinished_text
from .known import Known
from .locking import Locking
from .memory import Block, Memory
from .parameters import Parameters
from .profiling import profile
from .scopes import fill, modules_of
from .stats import Stats

__all__ = ["Executable"]

_log = logging.getLogger(__name__)
_CLOSE_WARNING_S: Final = 10.0  # between two warnings of a close() that waits
_LEAVE_S: Final = 10.0  # how long a `with` block that an exception leaves waits for its launches
_INVALID_HANDLE: Final = 400  # the errors of hipEventElapsedTime for an event that was never recorded
_ABORT_S: Final = 2.0  # a node that runs when its launch is ended may take so long


class _LongWay:
    """The fallback of the compiled call path: a weak callback, so that it does not keep the Executable alive."""

    def __init__(self, executable: Executable) -> None:
        self._executable = weakref.ref(executable)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        executable = self._executable()
        if executable is not None:
            Executable.launch(executable, *args, **kwargs)

    def failed(self, code: int) -> None:
        """Raise the error for a return code of hipGraphLaunch."""
        executable = self._executable()
        if executable is not None:
            executable.runtime.launch_failed(code)

    def stand_aside(self, launch: Callable[..., None] | None) -> None:
        """Install this callable as `Executable.launch`, or restore the method."""
        executable = self._executable()
        if executable is not None:
            if launch is not None:
                executable.__dict__["launch"] = launch
            else:
                executable.__dict__.pop("launch", None)


class _Changing:
    """The critical section of the slow path: one thread changes, launches or closes an Executable, with its device current."""

    __slots__ = ("_executable", "_there")

    def __init__(self, executable: Executable, *, returning: bool = False) -> None:
        self._executable = executable
        home = executable._home
        self._there = home.returning() if returning else home.there() if home.switches else None

    def __enter__(self) -> None:
        executable = self._executable
        executable._lock.acquire()
        executable._depth += 1
        there, self._there = self._there, None
        try:
            if executable._depth == 1:
                if executable._compiled.pause():
                    executable._arrangement.take_back()
                if there is not None and not executable._closed and not executable._forked:
                    there.__enter__()
                    self._there = there
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        executable = self._executable
        try:
            if executable._depth == 1 and not executable._closed and not executable._forked:
                executable._arrangement.offer()
        finally:
            executable._depth -= 1
            executable._lock.release()
            if self._there is not None:
                self._there.__exit__(None, None, None)


_living: weakref.WeakSet[Executable] = weakref.WeakSet()
_left_running: list[Executable] = []
"""Executables that were left with work that did not end: what the device may still use stays until the process ends."""


def _after_fork() -> None:
    for executable in _living:
        executable._forked = True
        executable._compiled.refuse()


os.register_at_fork(after_in_child=_after_fork)


class Executable:
    """An instantiated workflow. Made by `Graph.compile`; a context manager.

    It owns the memory of its arrays and keeps everything that the graph refers to alive until it is closed and the device
    has finished. Launches are ordered on their stream.

    Attributes
    ----------
    workflow : Workflow
        The snapshot that it was compiled from, with the changes that `set` and `update` made.
    plan : Plan
    runtime : Runtime
    backend : str
    stats : Stats
    """

    def __init__(
        self,
        workflow: Workflow,
        plan: Plan,
        runtime: Runtime,
        backend: str,
        device: int,
        options: Mapping[str, Any],
        guard: int = 0,
    ) -> None:
        self._closed = True  # until everything is there
        self._forked = False
        self.runtime = runtime
        self.backend = backend
        self.device = device
        build = backend_named(backend)
        self._lock = threading.RLock()
        self._depth = 0
        """How often the thread that changes it has entered that section."""
        self._stats = stats = Stats(len(plan.steps), plan.edges, len(plan.lanes))
        self._home = home = Home(runtime, device)
        self._memory = Memory(workflow, home, guard, stats)
        self._parameters = Parameters(workflow.name, home, self._memory)
        self._compiled = compiled = CompiledPath(home, _LongWay(self))
        self._hosts = HostCalls(runtime, self._parameters.lend, compiled.launcher)
        self._shared = SharedHandles(runtime, device, plan.devices, self._hosts)
        self._scope = Scope(runtime, self._shared)
        self._in_flight = InFlight(workflow.name, home, compiled)
        self._built = Built(build, self._scope, home, self._memory, self._in_flight, compiled, stats)
        self._arrangement = Arrangement(
            workflow,
            plan,
            options,
            home,
            self._shared,
            self._parameters,
            Locking(home, self._memory, self._parameters),
            self._built,
            compiled,
            stats,
        )

    @staticmethod
    def build(
        workflow: Workflow,
        runtime: Runtime,
        backend: str,
        *,
        lanes: Lanes = "auto",
        join: bool = True,
        inline: bool = False,
        device: int = 0,
        pack: bool = False,
        guard: int = 0,
        note: str = "",
        watch: bool = False,
        report: Callable[[str], None] = no_progress,
    ) -> Executable:
        """Plan, allocate, load, lower and instantiate; on failure everything is returned.

        Each array that it allocates has `guard` bytes of zeros before it and behind it, a multiple of 256. The plan is given a
        note on how it came about. `report` is called with the name of each stage that begins.
        """
        backend_named(backend)
        refuse_inside("compile", workflow.name)
        started = time.perf_counter()
        asked = backend
        if "several_devices_crash" in runtime.target.quirks and len(devices_of(workflow, device)) > 1 and backend != "serial":
            backend = "streams"
        inline = inline or watch or backend != "explicit" or "child_order" in runtime.target.quirks
        # Launches of one graph never overlap, but launches issued on streams may: each then needs memory of its own.
        pack = pack and backend != "streams"
        options: dict[str, Any] = {"lanes": lanes, "join": join, "inline": inline, "pack": pack, "watch": watch}
        report("plan")
        plan = planned(workflow, runtime.target, **options, device=device)
        notes = [note] if note else []
        if backend != asked:
            why = f"{runtime.target.name} runs kernels of a graph over several devices on the wrong one"
            _log.warning("graph %r: backend %r is 'streams', because %s", workflow.name, asked, why)
            notes.insert(0, f'backend="{asked}" became "streams", because {why}.')
        if notes:
            plan = replace(plan, notes=(*plan.notes, *notes))
        after_plan = time.perf_counter()
        executable = Executable(workflow, plan, runtime, backend, device, options, guard)
        executable._closed = False
        try:
            with executable._home.there():
                executable._open(report)
        except BaseException:
            with suppress(HipError):  # the first error says more
                executable.close()
            raise
        executable.stats.plan_us = (after_plan - started) * 1e6
        _living.add(executable)
        _log.info(
            "graph %r: compiled for %s by backend %s in %.3f s: %r, %d bytes on the device",
            workflow.name, runtime.target.name, backend, time.perf_counter() - started, plan, executable.stats.device_bytes,
        )  # fmt: skip
        return executable

    def _open(self, report: Callable[[str], None]) -> None:
        workflow = self.workflow
        self._shared.peers = grant_access(workflow, self.runtime, self.device, self.plan.devices)
        self._in_flight.open()
        times = [time.perf_counter()]
        modules = modules_of(workflow)
        if isinstance(self.plan, WatchedPlan):
            modules[MODULE] = (list(MODULE.kernels), [])
        self._shared.load(modules, report)
        times.append(time.perf_counter())
        report("allocate")
        fill(self._scope, workflow, self._memory, self._parameters)
        times.append(time.perf_counter())
        report("lower and instantiate")
        self._arrangement.open()
        times.append(time.perf_counter())
        _log.debug(
            "graph %r: %d modules loaded in %.3f s, memory allocated in %.3f s, graph built in %.3f s",
            workflow.name, len(modules), *(stop - start for start, stop in pairwise(times)),
        )  # fmt: skip

    def _changing(self, action: str, *, returning: bool = False) -> _Changing:
        if running:  # before taking the lock, which a thread that waits for the callback may hold
            refuse_inside(action, self.workflow.name)
        # Created on each call: a kept one would make a reference cycle with the Executable.
        return _Changing(self, returning=returning)

    # -- running -------------------------------------------------------------------------------------------------------

    def launch(self, /, stream: Any = None, **params: Any) -> None:
        """Enqueue one run of the workflow on a stream and return at once.

        Parameters
        ----------
        stream : int or stream object, optional
            A raw handle, or an object of torch, cupy or another library that has one; by default the Executable's own.
        **params
            Values of parameters, by name (inside children ``**{"child/a": 1}``); a parameter that is not given keeps its last
            value. One with a shape takes the name of an array, a declared array, or an object with memory (NumPy, torch, ...) of
            its size and dtype. That memory is used in place, and kept alive, by this launch and those after it: change it only
            when they have finished. Of a parameter with ``copy=True`` the values are copied.

        Raises
        ------
        DeclarationError
            If a parameter is missing, unknown or of the wrong kind, if it is bound to read-only memory that a node writes, or to
            memory that other nodes touch without an order, one of them writing; the graph is then as before.
        HipGraphError
            After `close`, or in a forked process.
        """
        with self._changing("launch"):  # no launch with other values may come between, and streams take several calls
            if params or self._closed or self._forked or not self._built.sound:
                self._prepare(params)
            self._compiled.wanted = bool(params)
            handle = self._in_flight.stream if stream is None else _stream_handle(stream)
            try:
                self._built.launch(handle)
            finally:  # not earlier: a thread that waits meanwhile would see the launch as done
                self._in_flight.launched(handle)
            self._stats.launches += 1

    def run(self, /, **params: Any) -> None:
        """Launch on the own stream and wait."""
        self.launch(**params)
        self.synchronize()

    def _prepare(self, params: Mapping[str, Any]) -> None:
        self._require_open("launch")
        self._arrangement.prepare(params)

    def prepared(self, /, **params: Any) -> Program:
        """Bind parameters and build, as `launch` does, and return what would be launched; `verify` runs its steps one by one."""
        with self._changing("prepared"):
            self._prepare(params)
            return self._built.refreshed()

    def synchronize(self, timeout_s: float | None = None) -> None:
        """Wait until all launches have finished; Ctrl-C interrupts.

        Parameters
        ----------
        timeout_s : float, optional
            Give up after so many seconds; the work goes on.

        Raises
        ------
        WaitTimeout
            When `timeout_s` has passed; names the unfinished nodes.
        CallbackError
            If a host callback raised; also an instance of what it raised, with the node's name.
        HipError
            If the device failed.
        """
        self._require_open("synchronize")
        _require_seconds(timeout_s)
        try:
            self._wait(timeout_s)
        except HipError as error:
            failure = self._hosts.take_failure()
            if failure is None:
                raise error
            raise failure from failure.__cause__
        failure = self._hosts.take_failure()
        if failure is not None:
            raise failure from failure.__cause__
        self._hosts.forget_stale()

    def _wait(self, timeout_s: float | None) -> None:
        self._built.wait(timeout_s)
        if self._parameters.keeps_replaced:
            with self._lock:
                self._parameters.forget_replaced()

    def done(self) -> bool:
        """Return whether all launches have finished; errors are kept for `synchronize`.

        Inside a host callback, which must not ask the device: whether all of them have been waited for.
        """
        if self._closed or self._forked:
            self._refuse_closed("done")
        inside = running.get(threading.get_ident())
        if inside is not None:
            return inside[1] is not self._hosts and not self._in_flight.any
        return self._in_flight.done()

    # -- data ----------------------------------------------------------------------------------------------------------

    def read(self, name: str | Array) -> np.ndarray[Any, Any]:
        """Wait, and return a copy of an array's values.

        Parameters
        ----------
        name : str or array
            ``"x"``, ``"child/x"`` inside a child graph, or the declared array itself.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        block = self._find(name, "read")
        self.synchronize()
        return self._memory.read(block)

    def write(self, name: str | Array, values: Any) -> None:
        """Wait, and set an array's values.

        Parameters
        ----------
        name : str or array
            As for `read`.
        values : array_like
            Broadcast to the array's shape.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or the values have another shape or cannot be converted.
        """
        block = self._find(name, "write")
        source = self._memory.values_for(name if isinstance(name, str) else name.name, block.array, values)
        self.synchronize()
        self._memory.write(block, source)

    def array(self, name: str | Array) -> CapturedArray:
        """Return an array's memory itself, for other libraries: `ptr`, ``__cuda_array_interface__``, ``__dlpack__``, no copy.

        What this process can reach also has ``__array_interface__``. Nothing waits: synchronize before it is read, and do not use
        it after `close`.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        block = self._find(name, "array")
        return CapturedArray(block.pointer, block.array.as_view(), self._scope)

    def _find(self, name: str | Array, action: str) -> Block:
        self._require_open(action)
        if isinstance(name, str):
            return self._memory.find(name)
        if not isinstance(name, Array):
            raise DeclarationError(f"{action}: the name of an array is expected, or the declared array itself (got {name!r})")
        if self.workflow.arrays.get(name.name) is not name:
            raise DeclarationError(
                f"{action}: graph {self.workflow.name!r} does not declare this array {name.name!r}; what stands inside a child is"
                f" named, as {'child/' + name.name!r}",
                array=name.name,
            )
        return self._memory.find(name.name)

    def known(self) -> Known:
        """Return what the addresses and handles of this Executable stand for; `Graph.from_handle` asks it."""
        self._require_open("known")
        found = Known(functions=self._shared.kernels(), events=self._shared.events(), calls=self._hosts.names())
        found.note_memory(self._memory.arrays, self._scope, self)
        return found

    # -- changes -------------------------------------------------------------------------------------------------------

    def set(self, node: str | AnyNode, /, **fields: Any) -> None:
        """Give a node other fields, from the next launch on.

        Parameters
        ----------
        node : str or Node
        **fields
            Fields of its model: ``grid=``, ``args=``, ``src=``, ``value=``, ``fn=``, ... ``args={"a": 2.0}`` of a kernel sets
            single arguments by the kernel's parameter names, and so does ``a=2.0`` where no field has that name.

        Raises
        ------
        UpdateError
            If the node's new accesses are not ordered by the graph's edges, or the field cannot change.
        DeclarationError
            If a field is unknown or its value is impossible.
        """
        with self._changing("set"):
            self._require_open("set")
            self._arrangement.set(_name_of(node, "set"), fields)

    def enable(self, node: str | AnyNode) -> None:
        """Let a disabled node run again, from the next launch on."""
        with self._changing("enable"):
            self._require_open("enable")
            self._arrangement.enable(_name_of(node, "enable"), True)

    def disable(self, node: str | AnyNode) -> None:
        """Let a node do nothing, from the next launch on; what it orders stays ordered."""
        with self._changing("disable"):
            self._require_open("disable")
            self._arrangement.enable(_name_of(node, "disable"), False)

    def update(self, graph: HasWorkflow, *, rebuild: bool = False) -> None:
        """Take over what another graph of the same shape does.

        Parameters
        ----------
        graph : Graph or Workflow
            Matched by node names; arrays and parameters are matched by name, and keep their memory and values.
        rebuild : bool
            Where a change cannot be applied in place, build afresh instead of refusing.

        Raises
        ------
        UpdateError
            Names the first node and field that cannot change in place; nothing has changed then.
        """
        with self._changing("update"):
            self._require_open("update")
            if not callable(getattr(graph, "workflow", None)):
                raise DeclarationError(f"update takes a Graph or a Workflow (got {graph!r})")
            new = graph.workflow()
            try:
                self._arrangement.adopt(new)
                return
            except UpdateError:
                if not rebuild:
                    raise
            self._become(new)

    def _become(self, workflow: Workflow) -> None:
        """Replace the workflow and build again; arrays that keep name, shape and dtype keep their values."""
        self.synchronize()  # raise a callback's error before anything is changed
        other = self._twin(workflow)
        before, total = self.stats, other.stats
        self.close()
        _living.discard(other)
        # Threads wait for the lock of this one, and hold its compiled `launch`.
        other._compiled.take_over(self._compiled)
        own = {name: self.__dict__[name] for name in ("_lock", "_depth")}
        self.__dict__.update({**other.__dict__, **own})
        self._built.bind_compiled()
        total.instantiations += before.instantiations
        total.launches += before.launches
        total.updates += before.updates
        other._closed = True

    def clone(self) -> Executable:
        """Return a second Executable of the same workflow with its own memory, holding the same values."""
        self._require_open("clone")
        with self._changing("clone"):
            return self._twin(self.workflow)

    def _twin(self, workflow: Workflow) -> Executable:
        """Return an Executable of a workflow that has this one's values of arrays and parameters wherever names are alike."""
        twin = Executable.build(workflow, self.runtime, self.backend, device=self.device, **self._arrangement.options)
        try:
            if self._parameters.own:
                self.synchronize()
            for name, block in self._memory.arrays.items():
                other = twin._memory.arrays.get(name)
                if other is None or isinstance(block.array, ExternalArray) or isinstance(other.array, ExternalArray):
                    continue
                if other.array.shape == block.array.shape and other.array.dtype == block.array.dtype:
                    twin.write(name, self.read(name))
            twin._arrangement.follow(self._parameters.give_to(twin._parameters), self._arrangement.names_off())
        except BaseException:
            twin.close()
            raise
        return twin

    # -- looking -------------------------------------------------------------------------------------------------------

    def profile(self, /, **params: Any) -> Timeline:
        """Launch an instrumented copy once and return when each node ran.

        The plan is issued on one stream per lane with an event before and after each node, so that it works on every runtime
        and each span bears its node's name; the events cost some time themselves. Times are in microseconds; those of different
        devices are aligned to a few microseconds.
        """
        with self._changing("profile"):
            self._require_open("profile")
            self._prepare(params)
            self.synchronize()
            plan, disabled = self._arrangement.planned(inline=True, pack=False, watch=False)
            return profile(plan, self._scope, disabled, self._home, self.stream, self._finish)

    def _finish(self) -> None:
        self._in_flight.launched(self.stream)
        self.synchronize()

    def elapsed_us(self, start: Any, stop: Any) -> float:
        """Return microseconds between two events that the last launch recorded, given by name or as Event."""
        self._require_open("elapsed_us")
        self.synchronize()
        handles = []
        for event in (start, stop):
            name = getattr(event, "name", event)
            handle = self._shared.event_named(name) if isinstance(name, str) else None
            if handle is None:
                raise DeclarationError(f"graph {self.workflow.name!r} records no event {name!r}")
            handles.append(handle)
        try:
            with self._home.there():
                return self.runtime.event_elapsed_time(*handles) * 1e3
        except HipError as error:
            if error.code != _INVALID_HANDLE:
                raise
            raise HipGraphError(
                f"elapsed_us: graph {self.workflow.name!r} has not recorded both events yet; launch it first, with the nodes that"
                " record them enabled"
            ) from error

    @property
    def workflow(self) -> Workflow:
        """The snapshot that it was compiled from, with the changes that `set` and `update` made."""
        return self._arrangement.workflow

    @property
    def plan(self) -> Plan:
        """The workflow's steps in order, with the edges that they need and their lanes."""
        return self._arrangement.plan

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        launches, updates = self._compiled.counts()
        self._stats.launches += launches
        self._stats.updates += updates
        return self._stats

    @property
    def _program(self) -> Program | None:
        return self._built.program

    @property
    def handle(self) -> int:
        """The raw hipGraphExec_t; 0 for the streams and serial backends."""
        return self._program.handle if self._program is not None else 0

    @property
    def graph_handle(self) -> int:
        """The raw hipGraph_t that `handle` was instantiated from; 0 for the streams and serial backends.

        It belongs to the Executable, and a change that builds the graph again replaces it.
        """
        return self._program.graph if isinstance(self._program, GraphProgram) else 0

    @property
    def graph_memory(self) -> GraphMemory:
        """What all graphs of the device use and hold for alloc nodes."""
        return GraphMemory(self.runtime, self.device)

    @property
    def stream(self) -> int:
        """The raw handle of the Executable's own stream."""
        return self._in_flight.stream

    @property
    def parameters(self) -> dict[str, Any]:
        """Current values of the scalar parameters by launch keyword; None where none has been given."""
        with self._changing("parameters"):
            pass  # takes over what the compiled call path has set
        return self._parameters.scalars()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.stats.launches} launch{'es' * (self.stats.launches != 1)}"
        return (
            f"<Executable of {self.workflow.name!r}: {self.backend} on {self.runtime.name}, {self.stats.nodes} nodes,"
            f" {self.stats.lanes} lanes, {state}>"
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for the device and return everything; a second call does nothing.

        What a callback has raised since the last `synchronize` is raised when everything has been returned.

        Parameters
        ----------
        timeout_s : float, optional
            Give up waiting after so many seconds. Where the runtime can end a launch (graphs on the CPU), it is ended and
            everything returned; elsewhere the Executable stays open, because the device may still use its memory.

        Raises
        ------
        WaitTimeout
            When `timeout_s` has passed; says what was not finished, and what stays allocated.
        CallbackError
            If a host callback raised and nobody has waited for it.
        """
        _require_seconds(timeout_s)
        with self._changing("close", returning=True):
            if self._closed:
                return
            if self._forked:  # the handles belong to the parent
                self._closed = True
                return
            cut = self._wait_to_close(timeout_s)
            self._return_everything()
            failure = self._hosts.take_failure()
            if cut is not None:
                raise cut from failure
            if failure is not None:
                raise failure from failure.__cause__

    def _wait_to_close(self, timeout_s: float | None) -> WaitTimeout | None:
        """Wait until nothing runs, or end the work; return the wait's error then, and raise it if the work goes on."""
        began = time.monotonic()
        while True:
            slice_s = _CLOSE_WARNING_S if timeout_s is None else timeout_s
            try:
                self._wait(slice_s)
                return None
            except WaitTimeout as error:
                if timeout_s is None:
                    waited = time.monotonic() - began
                    said = unfinished_text(error.unfinished)
                    _log.warning("graph %r: close() has waited %.0f s for what it launched%s", self.workflow.name, waited, said)
                    continue
                if self._program is not None and self._program.abort():
                    with suppress(WaitTimeout, HipError):  # the error only says that this call ended the work
                        self._wait(_ABORT_S)
                    if not self._in_flight.any:
                        return WaitTimeout(f"{error}; it was ended, and everything has been returned", error.unfinished)
                raise WaitTimeout(
                    f"{error}; the Executable is still open, with {self.stats.device_bytes} bytes of device memory and"
                    f" {self.stats.host_bytes} of host memory: let the work end and close it again",
                    error.unfinished,
                ) from None
            except HipError:  # a failed launch has finished; its error was synchronize's to raise
                self._in_flight.forget()
                return None

    def _return_everything(self) -> None:
        self._closed = True
        program = self._built.take_out()
        with ExitStack() as returned:  # in reverse order; all of them, even if one call fails
            if self.stream:
                returned.callback(self.runtime.stream_destroy, self.stream)
            self._memory.return_into(returned)
            self._parameters.return_into(returned)
            returned.callback(self._shared.close)
            returned.callback(self._hosts.close)
            if program is not None:
                returned.callback(program.close)

    def _leave(self) -> None:
        """Close where nobody could interrupt an endless wait: leak work that does not end, with its memory and a warning."""
        try:
            self.close(timeout_s=_LEAVE_S)
        except CallbackError:
            raise
        except WaitTimeout as error:
            if not self._closed:
                self._closed = True
                _left_running.append(self)
            _log.warning("%s", error)

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # an exception is being raised, and the caller must receive it
            try:
                self._leave()
            except CallbackError as error:
                _log.warning("graph %r: nobody has waited for what a callback raised: %s", self.workflow.name, error)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed; use it as a context manager", ResourceWarning, stacklevel=2)
            if threading.get_ident() in running:  # where nothing can be waited for
                _thread.start_new_thread(self._leave, ())
            else:
                self._leave()  # Python reports its exceptions through sys.unraisablehook

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Executable holds device handles and cannot be pickled; pickle graph.to_json() and compile again")

    def _require_open(self, action: str) -> None:
        if running:
            refuse_inside(action, self.workflow.name)
        if self._closed or self._forked:
            self._refuse_closed(action)

    def _refuse_closed(self, action: str) -> NoReturn:
        if self._forked:
            raise HipGraphError(
                f"{action}: graph {self.workflow.name!r} was compiled before this process was forked, and device handles do not"
                " survive a fork; compile it here, or start processes by spawn"
            )
        raise HipGraphError(f"{action}: the Executable of graph {self.workflow.name!r} is closed; compile it again")


def _name_of(node: Any, action: str) -> str:
    if isinstance(node, Node):
        return node.name
    if not isinstance(node, str):
        raise DeclarationError(f"{action}: node is the name of a node, or the declared node itself (got {node!r})")
    return node


def _require_seconds(timeout_s: Any) -> None:
    if timeout_s is not None and not (isinstance(timeout_s, (int, float, np.number)) and timeout_s >= 0):
        raise DeclarationError(f"timeout_s is a number of seconds from 0, or None (got {timeout_s!r})")


def _stream_handle(stream: Any) -> int:
    """Return the raw handle of a stream object of any library."""
    if type(stream) is int and 0 <= stream < 2**64:
        return stream
    number = as_handle(stream)
    if number is None:
        raise DeclarationError(f"stream is a raw handle or a stream object (got {stream!r})")
    return number
