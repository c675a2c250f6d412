"""Executable: a compiled workflow with its own memory, launched again and again by one cheap call."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NoReturn, Optional, SupportsIndex, Union

import numpy as np

from .arrays import AllocArray, Array, ArrayView, DeviceArray, ExternalArray, HostArray, Parameter, UnboundValues
from .backends import Program, Scope, SharedHandles, backend_named
from .backends.callbacks import CapturedArray, HostCalls, captured_call, memory_view
from .backends.compiled import CompiledPath
from .backends.operations import CallHost, Launch, Operation, RunChild, RunConditional, bind_external
from .backends.program import GraphProgram
from .backends.streams import EagerProgram, LaneStreams
from .checks import check_workflow
from .errors import DeclarationError, HipError, HipGraphError, UpdateError, WaitTimeout
from .graph_memory import GraphMemory
from .kernels import Kernel, Module, Symbol
from .nodes import AllocNode, ChildGraphNode, ConditionalNode, Event, KernelNode, Node, element_bytes, held
from .placement import Memory, bound_root, device_of, devices_of, memories, runs_code
from .plan import Lanes, Plan, Step, make_plan, suits_copy_kernel
from .runtimes.base import MemcpyKind, Runtime
from .temporaries import alloc_roots
from .timeline import Span, Timeline, engine_of, engine_on
from .update import HasWorkflow, explain_update
from .workflow import Workflow

__all__ = ["UPDATES_BEFORE_AFRESH", "Executable", "Known", "Stats"]

_log = logging.getLogger(__name__)
_CLOSE_WARNING_S: Final = 10.0  # between two warnings of a close() that waits
_LEAVE_S: Final = 10.0  # how long a block that is left by an exception waits for what it has launched
_ABORT_S: Final = 2.0  # a node that runs when its launch is ended may take so long
_WAIT_SLICE_S: Final = 0.05  # how long a wait stays out of Python's reach, so how late Ctrl-C may come
UPDATES_BEFORE_AFRESH: Final = 4096
"""Node updates after which a runtime whose updates keep memory gets a new instance (about 24 MiB at 6 KiB an update)."""


@dataclass(slots=True)
class Stats:
    """Counts and times of one Executable.

    Attributes
    ----------
    nodes, edges, lanes : int
        Of the plan.
    launches : int
        Launches so far.
    instantiations : int
        How often the graph has been instantiated; more than 1 after changes that no update could make.
    updates : int
        Nodes whose parameters were set in place.
    plan_us, build_us : float
        Time of planning, and of building and instantiating, the last time, in microseconds.
    device_bytes, host_bytes : int
        Memory that the Executable owns.
    """

    nodes: int = 0
    edges: int = 0
    lanes: int = 0
    launches: int = 0
    instantiations: int = 0
    updates: int = 0
    plan_us: float = 0.0
    build_us: float = 0.0
    device_bytes: int = 0
    host_bytes: int = 0


@dataclass(slots=True)
class _Memory:
    """What stands behind an array name."""

    array: Array
    pointer: int
    release: Optional[Callable[[int], None]] = None
    keep: Any = None
    device: int = 0
    guard: int = 0
    """Bytes of the allocation before `pointer`, and as many behind the array."""


class _Slow:
    """What the compiled call path calls when it cannot do a launch itself; holds no reference, so that nothing is kept alive."""

    def __init__(self, executable: Executable) -> None:
        self._executable = weakref.ref(executable)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        executable = self._executable()
        if executable is not None:
            Executable.launch(executable, *args, **kwargs)

    def failed(self, code: int) -> None:
        """Raise for a code of hipGraphLaunch."""
        executable = self._executable()
        if executable is not None:
            executable.runtime.launch_failed(code)


class _Changing:
    """The section in which one thread changes or launches an Executable the long way."""

    __slots__ = ("_executable",)

    def __init__(self, executable: Executable) -> None:
        self._executable = executable

    def __enter__(self) -> None:
        executable = self._executable
        executable._lock.acquire()
        executable._depth += 1
        if executable._depth == 1 and executable._compiled is not None:
            executable._compiled.pause()
            executable._take_back()

    def __exit__(self, *_: object) -> None:
        executable = self._executable
        try:
            if executable._depth == 1:
                executable._offer_compiled()
        finally:
            executable._depth -= 1
            executable._lock.release()


@dataclass(slots=True)
class Known:
    """What addresses and handles stand for, for whoever reads a graph back.

    Attributes
    ----------
    arrays : dict of str to ExternalArray
        Memory that lasts, by name (``"child/x"`` inside children); each keeps its owner alive.
    allocs : dict of int to AllocArray
        What alloc nodes have made, by address.
    functions : dict of int to Kernel
    events : dict of int to Event
    calls : dict of int to str
        Nodes by the argument of the host function that calls them.
    """

    arrays: dict[str, ExternalArray] = field(default_factory=dict)
    allocs: dict[int, AllocArray] = field(default_factory=dict)
    functions: dict[int, Kernel] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    calls: dict[int, str] = field(default_factory=dict)


_living: weakref.WeakSet[Executable] = weakref.WeakSet()
_left_running: list[Executable] = []
"""Executables that were left with work that did not end: what the device may still use stays until the process ends."""


def _after_fork() -> None:
    for executable in _living:
        executable._forked = True
        executable._attention = True
        if executable._compiled is not None:
            executable._compiled.launcher.ready = False


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
        self, workflow: Workflow, plan: Plan, runtime: Runtime, backend: str, device: int, options: Mapping[str, Any],
        guard: int = 0,
    ) -> None:
        self._closed = True  # until everything is there
        self._forked = False
        self.workflow = workflow
        self.plan = plan
        self.runtime = runtime
        self.backend = backend
        self.device = device
        self._options = dict(options)
        self._guard = guard
        self._build = backend_named(backend)
        self._lock = threading.RLock()
        self._memory: dict[str, _Memory] = {}
        self._parameters: dict[str, tuple[Scope, Parameter]] = {}
        self._missing: set[str] = set()
        self._users: dict[tuple[int, Parameter], list[int]] = {}
        self._pending: dict[int, int] = {}
        """Streams with launches that nobody has waited for yet, each with the number of the last one."""
        self._pending_lock = threading.Lock()
        self._tickets = itertools.count(1)
        self._kept: dict[str, dict[int, _Memory]] = {}
        """Owners of the memory that array parameters are or were bound to, by address, while a launch may use it."""
        self._program: Optional[Program] = None
        self._disabled: set[int] = set()
        self._steps: list[Step] = list(plan.steps)
        self._blocks: dict[int, _Memory] = {}
        """Where arrays of alloc nodes lie that share memory, by device."""
        self._since_instantiation = 0
        self._several_devices = runtime.get_device_count() > 1
        """Whether the thread's current device may be another one."""
        self._stream = 0
        self._stats = Stats(len(plan.steps), plan.edges, len(plan.lanes))
        self._shared = SharedHandles(runtime, device, plan.devices, _peers(workflow, device, plan.devices))
        self._hosts = HostCalls(runtime)
        self._shared.register_host = self._hosts.register
        self._shared.register_captured = captured_call
        self._shared.host_failed = self._hosts.has_failed
        self._attention = True
        self._torn = False
        """Whether the graph may hold neither the old nor the new values, because a change and its undoing have failed."""
        self._launch: Callable[[int], None] = self._not_built
        self._offering = False
        """Whether the compiled call path is worth being told how to set parameters."""
        self._depth = 0
        """How often the thread that changes it has entered that section."""
        compiled = CompiledPath(runtime, _Slow(self))
        self._compiled = compiled if compiled.launcher is not None else None

    @staticmethod
    def build(
        workflow: Workflow, runtime: Runtime, backend: str, *, lanes: Lanes = "auto", join: bool = True, inline: bool = False,
        device: int = 0, pack: bool = False, guard: int = 0,
    ) -> Executable:
        """Plan, allocate, load, lower and instantiate; on failure everything is returned.

        Each array that it allocates has `guard` bytes of zeros before it and behind it, a multiple of 256.
        """
        backend_named(backend)
        started = time.perf_counter()
        asked = backend
        if "several_devices_crash" in runtime.target.quirks and len(devices_of(workflow, device)) > 1 and backend != "serial":
            backend = "streams"
        inline = inline or backend != "explicit" or "child_order" in runtime.target.quirks
        # A graph never runs beside itself, but what is issued on streams may: each launch then needs memory of its own.
        pack = pack and backend != "streams"
        options: dict[str, Any] = {"lanes": lanes, "join": join, "inline": inline, "pack": pack}
        plan = make_plan(workflow, runtime.target, **options, device=device)
        if backend != asked:
            why = f"{runtime.target.name} runs kernels of a graph over several devices on the wrong one"
            _log.warning("graph %r: backend %r is 'streams', because %s", workflow.name, asked, why)
            plan = replace(plan, notes=(*plan.notes, f'backend="{asked}" became "streams", because {why}.'))
        planned = time.perf_counter()
        executable = Executable(workflow, plan, runtime, backend, device, options, guard)
        executable._closed = False
        try:
            with executable._there():
                runtime.set_device(device)
                executable._open()
        except BaseException:
            with suppress(HipError):  # what went wrong first says more
                executable.close()
            raise
        executable.stats.plan_us = (planned - started) * 1e6
        _living.add(executable)
        return executable

    @property
    def _changing(self) -> _Changing:
        # Made anew each time: kept, it would hold the Executable in a cycle, or nothing when that is collected.
        return _Changing(self)

    # -- building ------------------------------------------------------------------------------------------------------

    def _there(self, device: Optional[int] = None) -> AbstractContextManager[None]:
        """Make a device (by default the Executable's) the thread's current one for a while, where there are several."""
        if self._several_devices:
            return self.runtime.using_device(self.device if device is None else device)
        return nullcontext()

    def _returning(self, device: Optional[int] = None) -> AbstractContextManager[None]:
        """Do the same for what returns handles, which it does even where the device cannot be made current."""
        if self._several_devices:
            return self.runtime.returning_on(self.device if device is None else device)
        return nullcontext()

    def _open(self) -> None:
        self._require_devices()
        self._stream = self.runtime.stream_create()
        self._shared.load(_modules(self.workflow))
        self._scope = self._make_scope(self.workflow, "", None, {})
        for step in self._steps:
            self._note_users(step)
        if not self._missing:
            self._rebuild()

    def _require_devices(self) -> None:
        """Refuse devices that are not there, and let devices reach each other's memory where nodes need it."""
        runtime, count = self.runtime, self.runtime.get_device_count()
        missing = [device for device in self.plan.devices if device >= count]
        if missing:
            raise DeclarationError(
                f"graph {self.workflow.name!r} uses device {missing[0]}; runtime {runtime.name!r} has"
                f" {count} device{'s' * (count != 1)}, from 0" + _more_devices(runtime)
            )
        granted: dict[int, list[int]] = {}
        pools = _alloc_devices(self.workflow, self.device) if self._shared.peers else set()
        for owner, others in self._shared.peers.items():
            for device in others:
                if runtime.device_can_access_peer(device, owner):
                    with runtime.using_device(device):
                        runtime.device_enable_peer_access(owner)
                    granted.setdefault(owner, []).append(device)
                    continue
                found = _code_that_reaches(self.workflow, device, owner, self.device)
                if found is not None:
                    name, array = found
                    raise DeclarationError(
                        f"node {name!r} on device {device} reaches {array!r} on device {owner}, and between these two devices"
                        " there is no peer access; copy what it needs to its own device by memcpy, which works between all",
                        node=name, array=array,
                    )
            if owner in pools and owner in granted:
                runtime.mem_pool_set_access(owner, granted[owner])
        self._shared.peers = granted

    def _make_scope(
        self, workflow: Workflow, prefix: str, parent: Optional[Scope], bind: Mapping[str, Any]
    ) -> Scope:
        scope = Scope(self.runtime, self._shared, prefix, parent)
        for name, array in workflow.arrays.items():
            if name in bind:
                scope.bound_from[array] = bind[name]
            elif not isinstance(array, AllocArray):
                scope.addresses[array] = self._allocate(prefix + name, array, prefix)
        for name, parameter in workflow.parameters.items():
            if name in bind:
                scope.bound_from[parameter] = bind[name]
                continue
            self._parameters[prefix + name] = (scope, parameter)
            if parameter.shape and parameter.default is not None:
                default = parameter.default
                wanted = default.name if isinstance(default, Array) else default
                named = workflow.arrays.get(wanted) if isinstance(wanted, str) else None
                if named is None:
                    scope.addresses[parameter] = self._array_argument(prefix + name, parameter, default)
                else:  # of this very workflow, which may be a child with the array bound
                    _require_alike(prefix + name, parameter, named)
                    scope.addresses[parameter] = scope.address(named.as_view())
            elif parameter.default is None:
                self._missing.add(prefix + name)
            else:
                scope.values[parameter] = parameter.default
        for node in workflow.nodes:
            for inner, document, bound in held(node):
                scope.children[inner] = self._make_scope(document, f"{prefix}{inner}/", scope, bound)
        return scope

    def _allocate(self, name: str, array: Array, prefix: str) -> int:
        """Make the memory of an array on its device and return its address."""
        device = self.device if array.device is None else array.device
        with nullcontext() if device == self.device else self.runtime.using_device(device):
            memory = self._memory[name] = self._allocate_here(name, array, prefix)
            memory.device = device
        return memory.pointer

    def _allocate_here(self, name: str, array: Array, prefix: str) -> _Memory:
        runtime, guard = self.runtime, self._guard
        nbytes = array.nbytes + 2 * guard
        match array:
            case DeviceArray():
                values = _guarded(_initial(name, array), guard)
                block = runtime.malloc(nbytes)
                memory = _Memory(array, block + guard, runtime.free, guard=guard)
                self.stats.device_bytes += nbytes
                try:
                    runtime.memcpy(block, values.ctypes.data, nbytes, MemcpyKind.HOST_TO_DEVICE)
                except BaseException:
                    runtime.free(block)
                    raise
            case HostArray():
                values = _guarded(_initial(name, array), guard)
                if array.pinned:
                    block = runtime.host_malloc(nbytes)
                    memory = _Memory(array, block + guard, runtime.host_free, guard=guard)
                else:
                    pages = np.empty(nbytes + 64, np.uint8)
                    block = -(-pages.ctypes.data // 64) * 64
                    memory = _Memory(array, block + guard, None, pages, guard=guard)
                self.stats.host_bytes += nbytes
                memory_view(block, nbytes, values.shape, values.dtype)[...] = values
            case ExternalArray():
                pointer = bind_external(array, prefix)
                registered = array.location == "host" and array.lock and runtime.host_register(pointer, array.nbytes)
                memory = _Memory(array, pointer, runtime.host_unregister if registered else None, array.obj)
            case _:
                raise DeclarationError(f"array {name!r} is of an unknown kind {array.kind!r}", array=name)
        return memory

    def _note_users(self, step: Step) -> None:
        """Remember which parameters a step depends on, wherever they are declared."""
        scope = self._scope_of(step)
        for parameter in step.node.parameters:
            self._note_user(scope, parameter, step.index)
        self._note_held(step.node, scope, step.index)

    def _note_held(self, node: Node, scope: Scope, index: int) -> None:
        """Remember what the workflows that a node holds depend on."""
        for inner, document, _ in held(node):
            self._note_inner(scope.children[inner], document, index)

    def _note_inner(self, scope: Scope, workflow: Workflow, index: int) -> None:
        for node in workflow.nodes:
            for parameter in node.parameters:
                self._note_user(scope, parameter, index)
            self._note_held(node, scope, index)

    def _note_user(self, scope: Scope, parameter: Parameter, index: int) -> None:
        owner, root = scope.root(parameter)
        if isinstance(root, Parameter):
            users = self._users.setdefault((id(owner), root), [])
            if index not in users[-1:]:
                users.append(index)

    def _scopes(self) -> Iterator[Scope]:
        waiting = [self._scope]
        for scope in waiting:
            waiting += scope.children.values()
            yield scope

    def _scope_of(self, step: Step) -> Scope:
        scope = self._scope
        for child in step.path:
            scope = scope.children[child.name]
        return scope

    def _rebuild(self) -> None:
        """Build and instantiate from the current steps, and only then return what was there before."""
        with self._there():
            self.runtime.set_device(self.device)  # the thread may be new to the runtime
            self._rebuild_here()

    def _rebuild_here(self) -> None:
        started = time.perf_counter()
        if self._program is not None:
            self._wait(None)
        changed = any(a is not b for a, b in zip(self._steps, self.plan.steps))
        plan = replace(self.plan, steps=tuple(self._steps)) if changed else self.plan
        allocates = plan.has_allocs or plan.packing is not None
        made = [(scope, dict(scope.addresses)) for scope in self._scopes()] if allocates else []
        blocks = self._blocks_for(plan)
        try:
            self._place_packed(plan, blocks)
            program = self._build(plan, self._scope, self.runtime, frozenset(self._disabled))
        except BaseException:
            for scope, addresses in made:  # where the program that stays has its memory
                scope.addresses = addresses
            for device, block in blocks.items():
                if block is not self._blocks.get(device):
                    self._free_block(block)
            raise
        before, self._program = self._program, program
        self.plan = plan
        self._steps = list(plan.steps)
        self.stats.instantiations += 1
        self.stats.build_us = (time.perf_counter() - started) * 1e6
        self._since_instantiation = 0
        self._torn = False
        there = self._several_devices and (not program.handle or "other_device_crash" in self.runtime.target.quirks)
        self._launch = self._launch_there if there else program.launch
        self._attention = bool(self._missing) or self._forked
        self._bind_compiled()
        if before is not None:
            before.close()
        self._place_packed(plan, blocks)  # the program before has put back what it had found
        old, self._blocks = self._blocks, blocks
        for device in {*old, *blocks}:
            before_it, now = old.get(device), blocks.get(device)
            if before_it is not now:
                self.stats.device_bytes += (now.array.nbytes if now else 0) - (before_it.array.nbytes if before_it else 0)
                if before_it is not None:
                    self._free_block(before_it)

    def _blocks_for(self, plan: Plan) -> dict[int, _Memory]:
        """Return the blocks that the packed arrays of a plan lie in: those that are there, if they are large enough."""
        found: dict[int, _Memory] = {}
        if plan.packing is None:
            return found
        try:
            for device, nbytes in plan.packing.blocks:
                known = self._blocks.get(device)
                if known is not None and known.array.nbytes >= nbytes:
                    found[device] = known
                    continue
                array = DeviceArray("packed", (nbytes,), np.dtype("u1"), device=device)
                with self._there(device):
                    found[device] = _Memory(array, self.runtime.malloc(nbytes), device=device)
        except BaseException:
            for device, block in found.items():
                if block is not self._blocks.get(device):
                    self._free_block(block)
            raise
        return found

    def _free_block(self, block: _Memory) -> None:
        with self._returning(block.device):
            self.runtime.free(block.pointer)

    def _place_packed(self, plan: Plan, blocks: Mapping[int, _Memory]) -> None:
        """Say where the packed arrays of a plan lie."""
        if plan.packing is None:
            return
        for packed in plan.packing.arrays:
            scope = self._scope
            for child in packed.path:
                scope = scope.children[child.name]
            scope.addresses[packed.array] = blocks[packed.device].pointer + packed.offset

    def _bind_compiled(self) -> None:
        """Let the compiled call path, where there is one, stand for `launch`."""
        compiled = self._compiled
        if compiled is None:
            return
        compiled.bind(self._program, self._stream)
        if compiled.bound:
            self.__dict__["launch"] = compiled.launcher.launch
        else:
            self.__dict__.pop("launch", None)

    def _take_back(self) -> None:
        """Note what the compiled call path has done since it was last looked at."""
        compiled = self._compiled
        assert compiled is not None
        self._note_launches()
        if compiled.launcher.torn:
            compiled.launcher.torn = False
            self._torn = self._attention = True
        if compiled.launcher.left >= 0:
            self._since_instantiation = UPDATES_BEFORE_AFRESH - compiled.launcher.left
        for name, value in compiled.take_back().items():
            scope, parameter = self._parameters[name]
            if not _same(scope.values.get(parameter), value):
                scope.values[parameter] = value
                program = self._program
                assert program is not None
                for i in self._users[id(scope), parameter]:
                    program.operations[i] = program.resolve(self._steps[i])

    def _offer_compiled(self) -> None:
        """Say what the compiled call path may do from now on."""
        compiled = self._compiled
        if compiled is None:
            return
        quirks = self.runtime.target.quirks
        if "update_leaks" in quirks:
            compiled.launcher.left = max(0, UPDATES_BEFORE_AFRESH - self._since_instantiation)
        if not compiled.bound or self._closed or self._attention or self._program is None:
            return
        if not compiled.stale:
            compiled.launcher.ready = True
            return
        if not self._offering:  # what is changed again before the next launch with values need not be looked through now
            compiled.forget()
            compiled.launcher.ready = True
            return
        self._offering = False
        users = {}
        if not (self._several_devices and "update_device" in quirks):
            for name, (scope, parameter) in self._parameters.items():
                indices = self._users.get((id(scope), parameter), [])
                if not parameter.shape and indices and not self._disabled.intersection(indices):
                    users[name] = (parameter, scope.values.get(parameter), indices)
        compiled.offer(self._program, users)
        compiled.launcher.ready = True

    def _launch_there(self, stream: int) -> None:
        """Launch where the device must be the thread's current one, or that of the stream."""
        assert self._program is not None
        runtime = self.runtime
        where = self.device
        if stream != self._stream and "other_device_crash" in runtime.target.quirks:
            where = runtime.stream_get_device(stream)
        if where != self.device:
            self._follow(self._stream, stream, where)
        with runtime.using_device(self.device):
            self._program.launch(stream if where == self.device else self._stream)
        if where != self.device:
            self._follow(stream, self._stream, self.device)

    def _follow(self, stream: int, other: int, device: int) -> None:
        """Let a stream wait for what is on a stream of another device."""
        with self.runtime.using_device(device):
            event = self.runtime.event_create(timing=False)
        try:
            self.runtime.event_record(event, other)
            self.runtime.stream_wait_event(stream, event)
        finally:
            self.runtime.event_destroy(event)

    def _not_built(self, stream: int) -> None:
        raise AssertionError("launched before it was built")

    # -- running -------------------------------------------------------------------------------------------------------

    def launch(self, /, stream: Any = None, **params: Any) -> None:
        """Put one run of the workflow on a stream and return at once.

        Parameters
        ----------
        stream : int or stream object, optional
            A raw handle, or an object of torch, cupy or another library that has one; by default the Executable's own.
        **params
            Values of parameters, by name (inside children ``**{"child/a": 1}``); a parameter that is not given keeps its last
            value.

        Raises
        ------
        DeclarationError
            If a parameter is missing, unknown or of the wrong kind; the graph is then as before.
        HipGraphError
            After `close`, or in a forked process.
        """
        with self._changing:  # a launch with other values must not come between, and issuing on streams is no single call
            if params or self._attention:
                self._prepare(params)
            self._offering = bool(params)
            handle = self._stream if stream is None else _stream_handle(stream)
            try:
                self._launch(handle)
            finally:  # not before, or a thread that waits meanwhile would take it for done
                self._is_pending(handle)
            self.stats.launches += 1

    def _note_launches(self) -> None:
        """Remember that the compiled call path has launched on the own stream."""
        if self._compiled is not None and self._compiled.launcher.pending:
            self._compiled.launcher.pending = False
            self._is_pending(self._stream)

    def _is_pending(self, stream: int) -> None:
        with self._pending_lock:
            self._pending[stream] = next(self._tickets)

    def run(self, /, **params: Any) -> None:
        """Launch on the own stream and wait."""
        self.launch(**params)
        self.synchronize()

    def synchronize(self, timeout_s: Optional[float] = None) -> None:
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

    def _wait(self, timeout_s: Optional[float]) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        wait = self.runtime.stream_wait
        failed: Optional[HipError] = None
        self._note_launches()
        try:
            while waiting := tuple(self._pending.items()):
                stream, ticket = waiting[0]
                left = _WAIT_SLICE_S if deadline is None else min(_WAIT_SLICE_S, max(0.0, deadline - time.monotonic()))
                try:
                    done = wait(stream, left)
                except HipError as error:
                    # The question may have failed and not the work, which must not outlive its modules and memory.
                    with suppress(HipError):
                        self.runtime.stream_synchronize(stream)
                    failed, done = failed or error, True
                if done:
                    with self._pending_lock:
                        if self._pending.get(stream) == ticket:  # else another thread has launched meanwhile
                            del self._pending[stream]
                elif deadline is not None and time.monotonic() >= deadline:
                    names = self._program.unfinished() if self._program else ()
                    raise WaitTimeout(
                        f"graph {self.workflow.name!r} has not finished after {timeout_s:g} s" + _unfinished_text(names), names
                    )
        except KeyboardInterrupt:
            names = self._program.unfinished() if self._program else ()
            raise KeyboardInterrupt(f"while waiting for graph {self.workflow.name!r}" + _unfinished_text(names)) from None
        if failed is not None:
            raise failed
        self._forget_replaced()

    def _forget_replaced(self) -> None:
        """Let go of what array parameters were bound to before; no launch is in flight."""
        for name, kept in self._kept.items():
            if len(kept) > 1:
                with self._lock:
                    current = self._current(name)
                    self._kept[name] = {pointer: memory for pointer, memory in kept.items() if pointer == current}
                    for pointer, memory in kept.items():
                        if pointer != current and memory.release is not None:
                            memory.release(pointer)

    def done(self) -> bool:
        """Return whether all launches have finished; errors are kept for `synchronize`."""
        self._require_open("done")
        self._note_launches()
        try:
            return all(self.runtime.stream_query(stream) for stream in tuple(self._pending))
        except HipError:
            return True

    # -- data ----------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Wait, and return a copy of an array's values.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        memory = self._find_memory(name, "read")
        self.synchronize()
        array = memory.array
        if array.on_host:
            return memory_view(memory.pointer, array.nbytes, array.shape, array.dtype).copy()
        values = np.empty(array.shape, array.dtype)
        with self._there(memory.device):
            self.runtime.memcpy(values.ctypes.data, memory.pointer, array.nbytes, MemcpyKind.DEVICE_TO_HOST)
        return values

    def write(self, name: str, values: Any) -> None:
        """Wait, and set an array's values.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or the values have another shape or cannot be converted.
        """
        memory = self._find_memory(name, "write")
        array = memory.array
        if isinstance(array, ExternalArray) and not array.writeable:
            raise DeclarationError(f"external array {name!r} is read-only", array=name)
        try:
            source = np.ascontiguousarray(np.broadcast_to(_converted(values, array.dtype), array.shape))
        except (TypeError, ValueError, OverflowError) as error:
            raise DeclarationError(
                f"array {name!r} takes values of shape {array.shape} and dtype {array.dtype} (got"
                f" {getattr(values, 'shape', type(values).__name__)}): {str(error).partition(' with remapped')[0]}", array=name
            ) from None
        self.synchronize()
        if array.on_host:
            memory_view(memory.pointer, array.nbytes, array.shape, array.dtype)[...] = source
        else:
            with self._there(memory.device):
                self.runtime.memcpy(memory.pointer, source.ctypes.data, array.nbytes, MemcpyKind.HOST_TO_DEVICE)

    def array(self, name: str) -> CapturedArray:
        """Return an array's memory itself, for other libraries: `ptr`, ``__cuda_array_interface__``, ``__dlpack__``, no copy.

        What this process can reach also has ``__array_interface__``. Nothing waits: synchronize before it is read, and do not use
        it after `close`.

        Raises
        ------
        DeclarationError
            If there is no array of that name, or it lives only while the graph runs.
        """
        memory = self._find_memory(name, "array")
        return CapturedArray(memory.pointer, memory.array.as_view(), self._scope)

    def known(self) -> Known:
        """Return what the addresses and handles of this Executable stand for; `Graph.from_handle` asks it."""
        self._require_open("known")
        found = Known(functions=self._shared.kernels(), events=self._shared.events(), calls=self._hosts.names())
        several = len(self.plan.devices) > 1
        for name, memory in self._memory.items():
            array = memory.array
            location: Literal["host", "device"] = "host" if array.on_host else "device"
            found.arrays[name] = ExternalArray(
                name, array.shape, array.dtype, device=memory.device if several else array.device, obj=self,
                pointer=memory.pointer, location=location,
                writeable=getattr(array, "writeable", True), lock=False,
            )
        for scope in self._scopes():
            for root, pointer in scope.addresses.items():
                if isinstance(root, AllocArray):
                    found.allocs[pointer] = root
        return found

    def _find_memory(self, name: str, action: str) -> _Memory:
        self._require_open(action)
        memory = self._memory.get(name)
        if memory is None:
            if isinstance(_array_at(self.workflow, name), AllocArray):
                raise DeclarationError(
                    f"array {name!r} is made by an alloc node and lives only while the graph runs; copy it to a host or"
                    " device array",
                    array=name,
                )
            names = ", ".join(map(repr, list(self._memory)[:20])) or "none"
            raise DeclarationError(f"graph {self.workflow.name!r} has no array {name!r}; its arrays are {names}", array=name)
        return memory

    # -- changes -------------------------------------------------------------------------------------------------------

    def _prepare(self, params: Mapping[str, Any]) -> None:
        """Bind parameters and build or mend what a launch needs; all or nothing."""
        with self._changing:
            self._require_open("launch")
            values = {name: self._parameter_value(name, value) for name, value in params.items()}
            missing = self._missing - values.keys()
            if missing:
                names = ", ".join(map(repr, sorted(missing)))
                raise DeclarationError(
                    f"graph {self.workflow.name!r}: the first launch must give {names}, which"
                    f" {'have' if len(missing) > 1 else 'has'} no default",
                    array=min(missing),
                )
            before = {name: self._current(name) for name in values}
            changed = [name for name, value in values.items() if not _same(before[name], value)]
            for name in changed:
                self._bind(name, values[name])
            first = self._program is None
            try:
                if first:
                    self._missing, still = set(), self._missing
                    try:
                        self._rebuild()
                    except BaseException:
                        self._missing = still
                        raise
                elif self._torn:
                    self._rebuild()
                elif changed:
                    self._apply(changed)
            except BaseException:
                for name in changed:
                    self._bind(name, before[name])
                if first:  # what was built holds values that are taken back
                    built, self._program = self._program, None
                    self._launch, self._attention = self._not_built, True
                    self._bind_compiled()
                    if built is not None:
                        built.close()
                else:
                    self._restore(lambda: self._apply(changed))
                raise
            self._attention = self._forked

    def prepared(self, /, **params: Any) -> Program:
        """Bind parameters and build, as `launch` does, and return what would be launched; `verify` runs its steps one by one."""
        with self._changing:
            self._prepare(params)
            assert self._program is not None
            return self._program

    def _parameter_value(self, name: str, value: Any) -> Any:
        found = self._parameters.get(name)
        if found is None:
            names = ", ".join(map(repr, self._parameters)) or "none"
            raise DeclarationError(
                f"graph {self.workflow.name!r} has no parameter {name!r}; its parameters are {names}", array=name
            )
        _, parameter = found
        if parameter.shape:
            return self._array_argument(name, parameter, value)
        element_bytes(value, parameter.dtype, f"parameter {name!r}")
        if isinstance(value, np.generic) and not isinstance(value, np.void):
            return value.item()
        return value

    def _array_argument(self, name: str, parameter: Parameter, value: Any) -> int:
        """Return the address of what an array parameter is bound to; the object is kept alive until it is replaced."""
        if isinstance(value, Array) and not isinstance(value, ExternalArray):
            value = value.name
        if isinstance(value, str):
            memory = self._find_memory(value, "launch")
            array, pointer = memory.array, memory.pointer
        else:
            array = value if isinstance(value, ExternalArray) else ExternalArray.wrap(name, value)
            pointer = bind_external(array, "")
        _require_alike(name, parameter, array)
        if not array.on_host and array.device not in (None, self.device) and self.device not in array.access:
            raise DeclarationError(
                f"parameter {name!r} stands for memory of device {self.device}; array {array.name!r} is on device {array.device},"
                f" without access=[{self.device}]",
                array=name,
            )
        if isinstance(array, ExternalArray):
            kept = self._kept.setdefault(name, {})
            if pointer not in kept:
                registered = array.location == "host" and self.runtime.host_register(pointer, array.nbytes)
                kept[pointer] = _Memory(array, pointer, self.runtime.host_unregister if registered else None)
        return pointer

    def _current(self, name: str) -> Any:
        scope, parameter = self._parameters[name]
        return scope.addresses.get(parameter) if parameter.shape else scope.values.get(parameter)

    def _bind(self, name: str, value: Any) -> None:
        if self._compiled is not None:
            self._compiled.note_value(name)
        scope, parameter = self._parameters[name]
        table: dict[Any, Any] = scope.addresses if parameter.shape else scope.values
        if value is None:
            table.pop(parameter, None)
        else:
            table[parameter] = value

    def _affected(self, names: list[str]) -> list[int]:
        found: dict[int, None] = {}
        for name in names:
            scope, parameter = self._parameters[name]
            found.update(dict.fromkeys(self._users.get((id(scope), parameter), ())))
        return list(found)

    def _apply(self, names: list[str]) -> None:
        """Set the nodes that depend on changed parameters."""
        program = self._program
        assert program is not None
        indices = [i for i in self._affected(names) if i not in self._disabled]
        operations = [(i, program.resolve(self._steps[i])) for i in indices]  # all of them before any is set
        for i, operation in operations:
            if not self._change(i, operation):
                self._rebuild()
                return

    def _restore(self, undo: Optional[Callable[[], None]] = None) -> None:
        """Undo a change that has failed, by building afresh where nothing else can; if that fails too, the next launch builds."""
        for attempt in filter(None, (None if self._torn else undo, self._rebuild)):
            try:
                attempt()
                return
            except HipError:  # what went wrong first is raised
                self._torn = self._attention = True

    def _withdraw(self) -> None:
        """Say that what the compiled call path was offered no longer holds."""
        if self._compiled is not None:
            self._compiled.stale = True

    def _change(self, index: int, operation: Operation) -> bool:
        assert self._program is not None
        if _equal(self._program.operations[index], operation):
            return True
        if self._since_instantiation >= UPDATES_BEFORE_AFRESH and "update_leaks" in self.runtime.target.quirks:
            return False
        self._let_host_calls_finish(operation)
        with self._there() if self._several_devices else nullcontext():
            if not self._program.change(index, operation):
                return False
        if self._compiled is not None:
            self._compiled.note_step(index)
        self.stats.updates += 1
        self._since_instantiation += 1
        return True

    def _let_host_calls_finish(self, operation: Operation) -> None:
        """Wait for launches in flight where they would make a host node's new call instead of the one that it had."""
        if isinstance(operation, (CallHost, RunChild)) and "host_update_in_flight" in self.runtime.target.quirks:
            self._wait(None)

    def set(self, node: Union[str, Node], **fields: Any) -> None:
        """Give a node other fields, from the next launch on.

        Parameters
        ----------
        node : str or Node
        **fields
            Fields of its model: ``grid=``, ``args=``, ``src=``, ``value=``, ``fn=``, ...

        Raises
        ------
        UpdateError
            If the node's new accesses are not ordered by the graph's edges, or the field cannot change.
        DeclarationError
            If a field is unknown or its value is impossible.
        """
        with self._changing:
            self._require_open("set")
            name = node if isinstance(node, str) else node.name
            indices = self._step_indices(name, "set")
            for field in ("name", "after", "workflow", "device"):
                if field in fields:
                    raise UpdateError(f"node {name!r}: {field} is fixed when the graph is compiled", node=name, field=field)
            known = _node_at(self.workflow, name)
            fixed = [field for field in ("mode", "bodies", "bind") if field in fields and isinstance(known, ConditionalNode)]
            if fixed:
                raise UpdateError(
                    f"node {name!r}: {fixed[0]} of a conditional node is fixed when the graph is compiled", node=name,
                    field=fixed[0],
                )
            if isinstance(known, ChildGraphNode):
                if "/" in name:
                    raise UpdateError(f"node {name!r}: how a child inside a child is bound is fixed", node=name, field="bind")
                child = known.changed(**fields)
                assert isinstance(child, ChildGraphNode)
                if child.bind.keys() != known.bind.keys():
                    raise UpdateError(
                        f"node {name!r}: which of the child's names are bound is fixed when the graph is compiled; they are"
                        f" {', '.join(map(repr, known.bind)) or 'none'}",
                        node=name, field="bind",
                    )
                self._require_same_devices({}, [child])
                if child.accesses != known.accesses:
                    self._require_ordered(child, "bind")
                self._replace_steps({}, [child])
                return
            step = self._steps[indices[0]]
            new = step.node.changed(**fields)
            self._require_same_devices({step.index: step._replace(node=new)}, [])
            if new.accesses != step.node.accesses:
                if step.path:
                    raise UpdateError(
                        f"node {name!r}: what a node inside a child accesses is fixed; set it in the child and compile again",
                        node=name, field=next(iter(fields)),
                    )
                self._require_ordered(new, next(iter(fields)))
            self._replace_steps({step.index: step._replace(node=new)})

    def _require_ordered(self, new: Node, field: str) -> None:
        """Refuse accesses that the existing edges do not order."""
        workflow, name = self.workflow, new.name
        for access in new.accesses:
            root = access.view.root
            known = workflow.parameters if isinstance(root, Parameter) else workflow.arrays
            if not isinstance(root, Symbol) and known.get(root.name) is not root:
                raise UpdateError(
                    f"node {name!r}: array {root.name!r} is not of the graph that was compiled", node=name, field=field
                )
        nodes = list(workflow.nodes)
        nodes[workflow.index[name]] = new
        report = check_workflow(replace(workflow, nodes=tuple(nodes), infer=False), device=self.device)
        faults = [d for d in report.errors if any(f"{known}/".startswith(f"{name}/") for known in d.nodes)]
        if faults:
            raise UpdateError(
                f"node {name!r}: with {field}= it would access memory that the graph's edges do not order: {faults[0].message};"
                " declare it in the graph and compile again",
                node=name, field=field,
            )

    def _replace_steps(self, changes: Mapping[int, Step], children: Sequence[ChildGraphNode] = ()) -> None:
        """Put other steps in place and bind children otherwise, or leave everything as it was."""
        self._require_same_devices(changes, children)
        self._withdraw()
        steps, workflow, users = list(self._steps), self.workflow, self._users
        uses_others = any(set(steps[i].node.parameters) != set(step.node.parameters) for i, step in changes.items())
        scopes = [(self._scope.children[child.name], child) for child in children]
        bound = [scope.bound_from for scope, _ in scopes]
        names = {child.name: child for child in children}
        begun = False
        try:
            for i, step in changes.items():
                by_kernel = step.by_kernel and suits_copy_kernel(step.node, self.runtime.target)
                self._steps[i] = step if by_kernel == step.by_kernel else step._replace(by_kernel=by_kernel)
            for scope, child in scopes:
                known = {**child.workflow.arrays, **child.workflow.parameters}
                scope.bound_from = {known[inner]: value for inner, value in child.bind.items()}
            affected = {i: self._steps[i] for i in changes}
            for i, step in enumerate(self._steps):
                if not step.path and step.node.name in names:
                    affected[i] = self._steps[i] = step._replace(node=names[step.node.name])
                elif step.path and step.path[0].name in names:
                    affected[i] = step
            if uses_others or children:
                self._users = {}
                for step in self._steps:
                    self._note_users(step)
            found = {child.name: child for child in children}
            self.workflow = _with_nodes(workflow, {**found, **{step.name: step.node for step in changes.values()}})
            program = self._program
            if program is not None:
                self._load_kernels([step.node for step in changes.values()])
            if self._packs_otherwise(steps, changes, children):
                self._replan()
                return
            if program is None:
                return
            operations = [(i, program.resolve(step)) for i, step in affected.items() if i not in self._disabled]
            begun = True
            for i, step in affected.items():
                program.steps[i] = step
            if not all(self._change(i, made) for i, made in operations):
                self._rebuild()
        except BaseException:
            self._steps, self.workflow, self._users = steps, workflow, users
            for (scope, _), outer in zip(scopes, bound):
                scope.bound_from = outer
            if begun:
                self._restore()
            raise

    def _require_same_devices(self, changes: Mapping[int, Step], children: Sequence[ChildGraphNode]) -> None:
        """Refuse nodes that would run on another device than before, where lanes and functions are others."""
        if len(self.plan.devices) == 1:
            return
        moved = []
        for i, step in changes.items():
            scope = self._scope_of(step)
            moved.append((step.name, "", scope.device_of(self._steps[i].node), scope.device_of(step.node)))
        for child in children:
            known = self._scope.children[child.name].bound_from
            outer = {root.name: view for root, view in known.items()}
            for inner, view in child.bind.items():
                if isinstance(view, ArrayView):
                    moved.append((child.name, f" for {inner!r}", self._scope.owner(outer[inner]), self._scope.owner(view)))
        for name, what, before, after in moved:
            if before != after:
                raise UpdateError(
                    f"node {name!r}: what it is given{what} would move it from device {before} to device {after}; the device of a"
                    " node is fixed when the graph is compiled",
                    node=name,
                )

    def _packs_otherwise(self, before: list[Step], changes: Mapping[int, Step], children: Sequence[ChildGraphNode]) -> bool:
        """Return whether other steps than before use arrays of alloc nodes, which may share memory by their uses."""
        if not self._options["pack"] or not (self.plan.has_allocs or self.plan.packing is not None):
            return False
        return bool(children) or any(alloc_roots(step.node) != alloc_roots(before[i].node) for i, step in changes.items())

    def _load_kernels(self, nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, KernelNode):
                self._shared.load({node.kernel.module: ([node.kernel.name], list(node.kernel.module.symbols))})

    def enable(self, node: Union[str, Node]) -> None:
        """Let a disabled node run again, from the next launch on."""
        self._enable(node, True)

    def disable(self, node: Union[str, Node]) -> None:
        """Let a node do nothing, from the next launch on; what it orders stays ordered."""
        self._enable(node, False)

    def _enable(self, node: Union[str, Node], enabled: bool) -> None:
        with self._changing:
            action = "enable" if enabled else "disable"
            self._require_open(action)
            indices = self._step_indices(node if isinstance(node, str) else node.name, action)
            for step in (self._steps[i] for i in indices):
                if step.node.kind in ("alloc", "free"):
                    raise UpdateError(
                        f"node {step.name!r}: nodes of kind {step.node.kind} cannot be disabled, because others use the memory",
                        node=step.name,
                    )
            self._withdraw()
            indices = [i for i in indices if (i in self._disabled) == enabled]
            before = self._disabled
            self._disabled = before.difference(indices) if enabled else before.union(indices)
            program = self._program
            if program is None:
                return
            done: list[int] = []
            try:
                for i in indices:
                    self._let_host_calls_finish(program.operations[i])
                    in_place = program.enable(i, enabled)
                    if in_place:
                        done.append(i)
                    # A node that is enabled again may have been set meanwhile.
                    if not in_place or (enabled and not self._change(i, program.resolve(self._steps[i]))):
                        self._rebuild()
                        break
            except BaseException:
                self._disabled = before
                self._restore(lambda: self._enable_again(done, not enabled))
                raise

    def _enable_again(self, indices: list[int], enabled: bool) -> None:
        assert self._program is not None
        for i in indices:
            self._program.enable(i, enabled)

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
        with self._changing:
            self._require_open("update")
            new = graph.workflow()
            explained = explain_update(self.workflow, new)
            blocking = [change for change in explained.changes if not change.in_place]
            if blocking:
                if rebuild:
                    self._become(new)
                    return
                first = blocking[0]
                raise UpdateError(
                    f"graph {self.workflow.name!r} cannot take {new.name!r} in place: {str(first).split('  ', 1)[1].strip()};"
                    " call update(graph, rebuild=True) to build it afresh",
                    node=first.node, field=first.field,
                )
            changes = {}
            children = {}
            for change in explained.changes:
                assert change.node is not None
                node = self._adopted(new.nodes[new.index[change.node]])
                if isinstance(node, ChildGraphNode):
                    known = self.workflow.nodes[self.workflow.index[node.name]]
                    children[node.name] = known.changed(bind=node.bind)
                else:
                    index = self.plan.index[change.node]
                    changes[index] = self._steps[index]._replace(node=node)
            try:
                if explained.changes:
                    self._replace_steps(changes, [child for child in children.values() if isinstance(child, ChildGraphNode)])
            except UpdateError:
                if not rebuild:
                    raise
                self._become(new)

    def _adopted(self, node: Node) -> Node:
        """Return a node of another graph with its arrays and parameters replaced by this one's of the same names."""
        return node.translated(self.workflow.arrays, self.workflow.parameters)

    def _become(self, workflow: Workflow) -> None:
        """Take over another workflow wholly; values of arrays that keep name, shape and dtype are kept."""
        other = Executable.build(workflow, self.runtime, self.backend, device=self.device, **self._options)
        try:
            self._hand_over(other)
        except BaseException:
            other.close()
            raise
        instantiations, launches, updates = self.stats.instantiations, self.stats.launches, self.stats.updates
        self.close()
        own = {name: self.__dict__[name] for name in ("_lock", "_depth", "_compiled")}
        _living.discard(other)
        self.__dict__.update(other.__dict__)
        self.__dict__.update(own)
        self._bind_compiled()
        self.stats.instantiations += instantiations
        self.stats.launches += launches
        self.stats.updates += updates
        other._closed = True

    def clone(self) -> Executable:
        """Return a second Executable of the same workflow with its own memory, holding the same values."""
        self._require_open("clone")
        with self._changing:
            twin = Executable.build(self.workflow, self.runtime, self.backend, device=self.device, **self._options)
            try:
                self._hand_over(twin)
            except BaseException:
                twin.close()
                raise
            return twin

    def _hand_over(self, other: Executable) -> None:
        """Give another Executable the values of arrays and parameters, and what is disabled, wherever names are alike."""
        for name, memory in self._memory.items():
            twin = other._memory.get(name)
            if twin is None or isinstance(memory.array, ExternalArray) or isinstance(twin.array, ExternalArray):
                continue
            if twin.array.shape == memory.array.shape and twin.array.dtype == memory.array.dtype:
                other.write(name, self.read(name))
        owners = {memory.pointer: name for name, memory in self._memory.items()}
        bound: list[str] = []
        for name, (_, parameter) in self._parameters.items():
            value = self._current(name)
            _, twin_parameter = other._parameters.get(name, (None, None))
            if value is None or twin_parameter is None:
                continue
            if (twin_parameter.shape, twin_parameter.dtype) != (parameter.shape, parameter.dtype):
                continue
            if parameter.shape and value in owners:
                if owners[value] not in other._memory:
                    continue
                value = other._memory[owners[value]].pointer
            elif parameter.shape:
                memory = self._kept[name][value]
                other._array_argument(name, twin_parameter, memory.array)
            other._bind(name, value)
            other._missing.discard(name)
            bound.append(name)
        names = {self._steps[i].name for i in self._disabled}
        other._disabled = {step.index for step in other._steps if step.name in names}
        if other._program is None:
            if not other._missing:
                other._rebuild()
        elif other._disabled:
            other._rebuild()
        else:
            other._apply(bound)

    # -- looking -------------------------------------------------------------------------------------------------------

    def profile(self, /, **params: Any) -> Timeline:
        """Launch an instrumented copy once and return when each node ran.

        The plan is issued on one stream per lane with an event before and after each node, so that it works on every runtime
        and each span bears its node's name; the events cost some time themselves. Times are in microseconds; those of different
        devices are aligned to a few microseconds.
        """
        with self._changing:
            self._require_open("profile")
            self._prepare(params)
            self.synchronize()
            with self._there():
                self.runtime.set_device(self.device)
                return self._profile()

    def _profile(self) -> Timeline:
        runtime = self.runtime
        plan = make_plan(self.workflow, runtime.target, **{**self._options, "inline": True, "pack": False}, device=self.device)
        off = [self._steps[i].name for i in self._disabled]
        disabled = frozenset(step.index for step in plan.steps if _is_in(step.name, off))
        with ExitStack() as returned:
            program = EagerProgram.of(plan, self._scope, runtime, disabled)
            returned.callback(program.close)
            events: list[int] = []
            returned.callback(_destroy_all, runtime.event_destroy, events)
            lanes = LaneStreams(plan, runtime)
            returned.callback(lanes.close)
            # Times are asked of two events of one device, so each device has a zero of its own; all are idle now.
            streams = {self.device: self._stream}
            zeros: dict[int, int] = {}
            for device in plan.devices:
                with self._there(device):
                    if device not in streams:
                        streams[device] = runtime.stream_create()
                        returned.callback(runtime.stream_destroy, streams[device])
                    events.append(runtime.event_create(timing=True))
                    zeros[device] = events[-1]
            for device, zero in zeros.items():
                with self._there(device):
                    runtime.event_record(zero, streams[device])
            for zero in zeros.values():
                runtime.event_synchronize(zero)
            marks: list[tuple[int, int]] = []

            def issue(step: Step, stream: int) -> None:
                for _ in range(2):
                    events.append(runtime.event_create(timing=True))  # the next may fail
                before, after = events[-2:]
                runtime.event_record(before, stream)
                program.issue(step, stream)
                runtime.event_record(after, stream)
                marks.append((before, after))

            try:
                lanes.run(self._stream, issue)
            except BaseException:
                lanes.join(self._stream)
                raise
            finally:
                self._is_pending(self._stream)
                self.synchronize()
            spans = []
            for step, (before, after) in zip(plan.steps, marks):
                device = plan.lane_devices[step.lane]
                start = runtime.event_elapsed_time(zeros[device], before) * 1e3
                stop = start + runtime.event_elapsed_time(before, after) * 1e3
                nbytes = getattr(step.node, "nbytes", 0) if step.node.kind in ("memcpy", "alloc") else 0
                engine = engine_on(engine_of(step.node), step.device, plan.devices)
                spans.append(Span(step.name, start, stop, engine, step.lane, step.node.kind, nbytes))
            return Timeline(self.workflow.name, "us", tuple(spans), tuple(step.deps for step in plan.steps))

    def elapsed_us(self, start: Any, stop: Any) -> float:
        """Return microseconds between two events that the last launch recorded, given by name or as Event."""
        self._require_open("elapsed_us")
        self.synchronize()
        handles = []
        for event in (start, stop):
            name = getattr(event, "name", event)
            handle = self._shared.event_named(name)
            if handle is None:
                raise DeclarationError(f"graph {self.workflow.name!r} records no event {name!r}")
            handles.append(handle)
        return self.runtime.event_elapsed_time(*handles) * 1e3

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        if self._compiled is not None:
            launcher = self._compiled.launcher
            launches, launcher.launches = launcher.launches, 0
            updates, launcher.updates = launcher.updates, 0
            self._stats.launches += launches
            self._stats.updates += updates
        return self._stats

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
        return self._stream

    @property
    def parameters(self) -> dict[str, Any]:
        """Current values of the scalar parameters by launch keyword; None where none has been given."""
        with self._changing:
            pass  # takes over what the compiled call path has set
        return {name: scope.values.get(p) for name, (scope, p) in self._parameters.items() if not p.shape}

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.stats.launches} launch{'es' * (self.stats.launches != 1)}"
        return (
            f"<Executable of {self.workflow.name!r}: {self.backend} on {self.runtime.name}, {self.stats.nodes} nodes,"
            f" {self.stats.lanes} lanes, {state}>"
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: Optional[float] = None) -> None:
        """Wait for the device and return everything; a second call does nothing.

        Parameters
        ----------
        timeout_s : float, optional
            Give up waiting after so many seconds. Where the runtime can end a launch (graphs on the CPU), it is ended and
            everything returned; elsewhere the Executable stays open, because the device may still use its memory.

        Raises
        ------
        WaitTimeout
            When `timeout_s` has passed; says what was not finished, and what stays allocated.
        """
        with self._changing:
            if self._closed:
                return
            if self._forked:  # the handles belong to the parent
                self._closed = True
                return
            cut = self._wait_to_close(timeout_s)
            self._return_everything()
            if cut is not None:
                raise cut

    def _wait_to_close(self, timeout_s: Optional[float]) -> Optional[WaitTimeout]:
        """Wait until nothing runs; return the error of a wait after which the work was ended, and raise it if it could not be."""
        began = time.monotonic()
        while True:
            slice_s = _CLOSE_WARNING_S if timeout_s is None else timeout_s
            try:
                self._wait(slice_s)
                return None
            except WaitTimeout as error:
                if timeout_s is None:
                    waited = time.monotonic() - began
                    said = _unfinished_text(error.unfinished)
                    _log.warning("graph %r: close() has waited %.0f s for what it launched%s", self.workflow.name, waited, said)
                    continue
                if self._program is not None and self._program.abort():
                    with suppress(WaitTimeout, HipError):  # that it was ended is no news
                        self._wait(_ABORT_S)
                    if not self._pending:
                        return WaitTimeout(f"{error}; it was ended, and everything has been returned", error.unfinished)
                raise WaitTimeout(
                    f"{error}; the Executable is still open, with {self.stats.device_bytes} bytes of device memory and"
                    f" {self.stats.host_bytes} of host memory: let the work end and close it again",
                    error.unfinished,
                ) from None
            except HipError:  # a launch that failed has finished; what it says was for synchronize
                self._pending.clear()
                return None

    def _return_everything(self) -> None:
        self._closed = True
        self._attention = True
        self._launch = self._not_built
        program, self._program = self._program, None
        for device, block in self._blocks.items():
            self._memory[f"/packed/{device}"] = replace(block, release=self.runtime.free)
        self._blocks = {}
        memories = [*self._memory.values(), *(memory for kept in self._kept.values() for memory in kept.values())]
        self._memory, self._kept = {}, {}
        with self._returning(), ExitStack() as returned:  # in reverse, and all of them, even if one call fails
            if self._stream:
                returned.callback(self.runtime.stream_destroy, self._stream)
            for memory in memories:
                if memory.release is not None:
                    returned.callback(self._release, memory)
            returned.callback(self._shared.close)
            returned.callback(self._hosts.close)
            if program is not None:
                returned.callback(program.close)

    def _leave(self) -> None:
        """Close where nobody could end an endless wait: what does not end is kept with all that it uses, and a warning logged."""
        try:
            self.close(timeout_s=_LEAVE_S)
        except WaitTimeout as error:
            if not self._closed:
                self._closed = True
                _left_running.append(self)
            _log.warning("%s", error)

    def _release(self, memory: _Memory) -> None:
        assert memory.release is not None
        with nullcontext() if memory.device == self.device else self._returning(memory.device):
            memory.release(memory.pointer - memory.guard)

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            self.close()
        else:  # an exception is on its way, and whoever waits for it must get it
            self._leave()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed; use it as a context manager", ResourceWarning, stacklevel=2)
            self._leave()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Executable holds device handles and cannot be pickled; pickle graph.to_json() and compile again")

    def _require_open(self, action: str) -> None:
        if self._closed or self._forked:
            self._refuse_closed(action)

    def _refuse_closed(self, action: str) -> NoReturn:
        if self._forked:
            raise HipGraphError(
                f"{action}: graph {self.workflow.name!r} was compiled before this process was forked, and device handles do not"
                " survive a fork; compile it here, or start processes by spawn"
            )
        raise HipGraphError(f"{action}: the Executable of graph {self.workflow.name!r} is closed; compile it again")

    def _step_indices(self, name: str, action: str) -> list[int]:
        """Return the steps that a name stands for: one, or those of a child that was put in its place."""
        index = self.plan.index.get(name)
        if index is not None:
            return [index]
        if _node_at(self.workflow, name) is None:
            outer = _conditional_around(self.workflow, name)
            if outer:
                raise UpdateError(
                    f"{action}: node {name!r} stands in a body of conditional node {outer!r}, whose nodes are fixed when the"
                    " graph is compiled; give it a parameter, or let it read the value from memory",
                    node=name,
                )
            names = ", ".join(map(repr, list(self.plan.index)[:20])) or "none"
            raise UpdateError(f"{action}: graph {self.workflow.name!r} has no node {name!r}; its nodes are {names}", node=name)
        planned = () if self.plan.packing is None else self.plan.packing.nodes
        inside = [known for known in planned if f"{known}/".startswith(f"{name}/")]
        if inside and (inside[0] == name or action != "set"):
            raise UpdateError(
                f"{action}: node {inside[0]!r} makes or returns memory that others use, which is fixed when the graph is"
                " compiled",
                node=inside[0],
            )
        if "/" in name and not self._options["inline"]:
            self._replan(inline=True)
            return self._step_indices(name, action)
        return [i for known, i in self.plan.index.items() if known.startswith(f"{name}/")]

    def _replan(self, **options: Any) -> None:
        """Plan and build again: with the nodes of every child in its place (``inline=True``), or with other uses of memory."""
        before = (self.plan, self._steps, self._disabled, self._users, self._options)
        known = {step.name: step.node for step in self._steps}
        off = [self._steps[i].name for i in self._disabled]
        self._options = {**self._options, **options}
        self.plan = make_plan(self.workflow, self.runtime.target, **self._options, device=self.device)
        self._steps = [
            step._replace(node=known[step.name]) if known.get(step.name, step.node) is not step.node else step
            for step in self.plan.steps
        ]
        self._disabled = {step.index for step in self.plan.steps if _is_in(step.name, off)}
        self._users = {}
        for step in self._steps:
            self._note_users(step)
        try:
            if self._program is not None:
                self._rebuild()
        except BaseException:
            self.plan, self._steps, self._disabled, self._users, self._options = before
            raise
        self.stats.nodes, self.stats.edges, self.stats.lanes = len(self.plan.steps), self.plan.edges, len(self.plan.lanes)


def _destroy_all(destroy: Callable[[int], None], handles: Sequence[int]) -> None:
    with ExitStack() as returned:  # all of them, even if one call fails
        for handle in handles:
            returned.callback(destroy, handle)


def _walk(workflow: Workflow, path: tuple[ChildGraphNode, ...] = ()) -> Iterator[tuple[Node, tuple[ChildGraphNode, ...]]]:
    """Yield every node with the children that it stands in, outermost first."""
    for node in workflow.nodes:
        if isinstance(node, ChildGraphNode):
            yield from _walk(node.workflow, (*path, node))
        else:
            yield node, path


def _reaching(workflow: Workflow, default: int) -> Iterator[tuple[str, Node, int, Memory]]:
    """Yield each node with its device and memory of another device that it touches."""
    for node, path in _walk(workflow):

        def resolve(root: Any, path: tuple[ChildGraphNode, ...] = path) -> Any:
            return bound_root(root, path)

        device = device_of(node, resolve, default)
        if device is not None:
            for memory in memories(node, resolve, default):
                if memory.owner != device:
                    yield "/".join([*(child.name for child in path), node.name]), node, device, memory


def _peers(workflow: Workflow, default: int, devices: tuple[int, ...]) -> dict[int, list[int]]:
    """Return for each device the others that reach its memory: by code, where its arrays say so, and by copies.

    Copies need no access between devices, but are direct with it.
    """
    found: dict[int, set[int]] = {}
    if len(devices) > 1:
        for _, node, device, memory in _reaching(workflow, default):
            if device in memory.access or not runs_code(node):
                found.setdefault(memory.owner, set()).add(device)
    return {owner: sorted(others) for owner, others in sorted(found.items())}


def _alloc_devices(workflow: Workflow, default: int) -> set[int]:
    """Return the devices on which alloc nodes make memory."""
    arrays = (node.array for node, _ in _walk(workflow) if isinstance(node, AllocNode))
    return {default if array.device is None else array.device for array in arrays}


def _code_that_reaches(workflow: Workflow, device: int, owner: int, default: int) -> Optional[tuple[str, str]]:
    """Return a node of one device, and the array of the other, that needs peer access between them; copies do not."""
    for name, node, here, memory in _reaching(workflow, default):
        if (here, memory.owner) == (device, owner) and runs_code(node):
            return name, memory.root.name
    return None


def _more_devices(runtime: Runtime) -> str:
    return "; HIPGRAPHDSL_CPU_DEVICES says how many it has" if runtime.name == "cpu" else ""


def _initial(name: str, array: Union[DeviceArray, HostArray]) -> np.ndarray[Any, Any]:
    if isinstance(array.initial, UnboundValues):
        raise DeclarationError(
            f"array {name!r} has no initial values: the file holds only their hash; supply them by"
            f" from_json(text, arrays={{{array.name!r}: values}})",
            array=array.name,
        )
    # Pages of zeros that nobody has touched take no memory.
    return np.zeros(array.shape, array.dtype) if array.initial is None else array.initial


def _guarded(values: np.ndarray[Any, Any], guard: int) -> np.ndarray[Any, Any]:
    """Return values with so many bytes of zeros before them and behind them."""
    if not guard:
        return values
    zeros = np.zeros(guard, np.uint8)
    return np.concatenate([zeros, np.ascontiguousarray(values).reshape(-1).view(np.uint8), zeros])


def _require_alike(name: str, parameter: Parameter, array: Array) -> None:
    if array.dtype != parameter.dtype or array.nbytes != parameter.nbytes:
        raise DeclarationError(
            f"parameter {name!r} takes {parameter.dtype}{list(parameter.shape)} (got {array.dtype}{list(array.shape)})",
            array=name,
        )


def _array_at(workflow: Workflow, name: str) -> Optional[Array]:
    """Return the array of a name such as ``"child/x"``, or ``"loop/0/x"`` in a body of a conditional node."""
    head, _, rest = name.partition("/")
    if name in workflow.arrays or not rest:
        return workflow.arrays.get(name)
    child = workflow.nodes[workflow.index[head]] if head in workflow.index else None
    if isinstance(child, ConditionalNode):
        number, _, rest = rest.partition("/")
        inside = number.isdecimal() and int(number) < len(child.bodies) and rest
        return _array_at(child.bodies[int(number)], rest) if inside else None
    return _array_at(child.workflow, rest) if isinstance(child, ChildGraphNode) else None


def _node_at(workflow: Workflow, name: str) -> Optional[Node]:
    """Return the node of a name such as ``"child/x"``."""
    head, _, rest = name.partition("/")
    node = workflow.nodes[workflow.index[head]] if head in workflow.index else None
    if not rest:
        return node
    return _node_at(node.workflow, rest) if isinstance(node, ChildGraphNode) else None


def _is_in(name: str, nodes: Sequence[str]) -> bool:
    """Return whether a node is one of those named, or inside one."""
    return any(f"{name}/".startswith(f"{node}/") for node in nodes)


def _conditional_around(workflow: Workflow, name: str) -> str:
    """Return the conditional node that a name such as ``"loop/0/x"`` lies in, or nothing."""
    head, _, rest = name.partition("/")
    node = workflow.nodes[workflow.index[head]] if head in workflow.index else None
    if isinstance(node, ConditionalNode) and rest:
        return head
    inner = _conditional_around(node.workflow, rest) if isinstance(node, ChildGraphNode) and rest else ""
    return f"{head}/{inner}" if inner else ""


def _modules(workflow: Workflow) -> dict[Module, tuple[list[str], list[str]]]:
    """Return the kernels and symbols that the workflow needs of each module."""
    found: dict[Module, tuple[list[str], list[str]]] = {}

    def visit(inner: Workflow) -> None:
        for node in inner.nodes:
            if isinstance(node, KernelNode):
                names, _ = found.setdefault(node.kernel.module, ([], []))
                if node.kernel.name not in names:
                    names.append(node.kernel.name)
            elif isinstance(node, ChildGraphNode):
                visit(node.workflow)
                continue
            elif isinstance(node, ConditionalNode):
                for body in node.bodies:
                    visit(body)
            for access in node.accesses:
                root = access.view.root
                if isinstance(root, Symbol):
                    _, symbols = found.setdefault(root.module, ([], []))
                    if root.name not in symbols:
                        symbols.append(root.name)

    visit(workflow)
    return found


def _with_nodes(workflow: Workflow, nodes: Mapping[str, Node]) -> Workflow:
    """Return the workflow with nodes replaced; ``"child/x"`` is a node inside a child."""
    if not nodes:
        return workflow
    replaced = list(workflow.nodes)
    inside: dict[str, dict[str, Node]] = {}
    for name, node in nodes.items():
        head, _, rest = name.partition("/")
        if rest:
            inside.setdefault(head, {})[rest] = node
        else:
            replaced[workflow.index[name]] = node
    for name, changed in inside.items():
        child = replaced[workflow.index[name]]
        assert isinstance(child, ChildGraphNode)
        replaced[workflow.index[name]] = child.changed(workflow=_with_nodes(child.workflow, changed))
    return replace(workflow, nodes=tuple(replaced))


def _converted(values: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return values in a dtype; integers are taken if they fit, other kinds as NumPy's casting "same_kind" allows."""
    given = np.asarray(values)
    if dtype.kind in "iu" and given.dtype.kind in "iu" and given.size:
        info = np.iinfo(dtype)
        for extreme in (given.min(), given.max()):
            if not info.min <= int(extreme) <= info.max:
                raise OverflowError(f"{extreme} is out of the range {info.min}..{info.max}")
        return given.astype(dtype)
    return given.astype(dtype, casting="same_kind")


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.all(a == b))


def _equal(a: Operation, b: Operation) -> bool:
    """Return whether two operations are the same call."""
    if isinstance(a, Launch) and isinstance(b, Launch):
        return a._replace(packer=b.packer) == b
    if type(a) is not type(b) or isinstance(a, (RunChild, RunConditional)):
        return False
    return a == b


def _stream_handle(stream: Any) -> int:
    """Return the raw handle of a stream of whatever library."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch, cupy, others
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    if isinstance(stream, SupportsIndex):
        return stream.__index__()
    raise DeclarationError(f"stream is a raw handle or a stream object (got {stream!r})")


def _unfinished_text(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"; not finished: {shown}"
