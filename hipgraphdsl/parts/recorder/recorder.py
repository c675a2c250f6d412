"""A runtime without a device: it records every call, checks handles, and fails where a test requests it.

Its results follow AMD's runtime (7.2): a capture with an unjoined fork ends with hipErrorStreamCaptureUnjoined
(904), and calls that a capture forbids fail and invalidate it (900, 906, then 901), in the threads that the modes of
the capture and of the thread say. Handles of destroyed objects are rejected, where AMD's runtime may crash.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, cast

from ...errors import HipError
from ...runtimes.base import Runtime
from ...runtimes.data import (
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    CodeObject,
    ConditionalMode,
    Dim3,
    Fill2D,
    HostParams,
    KernelParams,
    NodeType,
)
from ...target import Target
from .graphs import Capture, Graph, Node

_NAMES = {
    1: "hipErrorInvalidValue",
    2: "hipErrorOutOfMemory",
    101: "hipErrorInvalidDevice",
    400: "hipErrorInvalidHandle",
    401: "hipErrorIllegalState",
    500: "hipErrorNotFound",
    801: "hipErrorNotSupported",
    900: "hipErrorStreamCaptureUnsupported",
    901: "hipErrorStreamCaptureInvalidated",
    903: "hipErrorStreamCaptureMerge",
    904: "hipErrorStreamCaptureUnjoined",
    906: "hipErrorStreamCaptureImplicit",
    908: "hipErrorStreamCaptureUnmatched",
}

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NO_COPY = (NodeType.MEM_ALLOC, NodeType.CONDITIONAL)


class Call(NamedTuple):
    """One recorded call: HIP's name and the arguments in the protocol's order."""

    api: str
    args: tuple[Any, ...]


@dataclass
class _Failure:
    n: int  # calls left, including the one that fails
    code: int
    api: str | None


class _Thread(threading.local):
    mode = CaptureMode.GLOBAL


# Name of an argument -> the kind of its handle.
_HANDLES = {"stream": "stream", "event": "event", "start": "event", "stop": "event", "module": "module",
            "function": "function", "graph_exec": "exec"}  # fmt: skip
_OWNERS = ("graph", "deps", "graph_exec", "node", "stream")  # arguments that are not parameters of a node


@dataclass(eq=False)
class _Recorded:
    """One call of the protocol: its effects beyond recording the call and checking its handles. A method takes its place."""

    api: str  # HIP's name
    makes: str = ""  # the kind of handle that it returns
    destroys: str = ""  # the kind of handle that it takes and destroys
    adds: NodeType | None = None  # the kind of node that it adds to a graph
    issues: NodeType | None = None  # the kind of node that it adds if its stream is capturing
    sets: NodeType | None = None  # the kind of node that it changes in an executable
    packs: Callable[..., Any] | None = None  # packs the node's parameters into one value
    refused: int = 0  # the error code while a stream is capturing, 0 if capture permits the call
    during: Literal["strict", "any", "own"] = "strict"
    """Which captures forbid the call: those that the modes say, any, or that of the call's own stream."""
    answers: Callable[..., Any] | None = None  # computes the result; called with the runtime and the arguments by name

    def __set_name__(self, owner: type, name: str) -> None:
        signature = inspect.signature(getattr(Runtime, name))
        parameters = list(signature.parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        defaults = [parameter.default for parameter in parameters]
        required = defaults.count(inspect.Parameter.empty)
        sequences = [parameter.name for parameter in parameters if parameter.annotation.startswith("Sequence[")]
        handles = [(name, _HANDLES[name]) for name in names if name in _HANDLES]
        owners = [name for name in names if name in _OWNERS]
        rest = [name for name in names if name not in _OWNERS]
        api, packs = self.api, self.packs
        packed = packs is not None and self.issues is None  # recorded with its parameters as one value
        of_graph = "graph" in names and self.adds is None  # `_add` looks for the graph
        of_node = "node" in names and not {"graph", "graph_exec"} & {*names}

        def call(runtime: RecorderRuntime, *args: Any, **named: Any) -> Any:
            given = (*args, *defaults[len(args) :])
            # `bind` is slower; it handles keyword arguments, and raises the error for wrong ones.
            if named or not required <= len(args) <= len(names):
                bound = signature.bind(runtime, *args, **named)
                bound.apply_defaults()
                given = tuple(bound.arguments.values())[1:]
            values = dict(zip(names, given))
            for name in sequences:
                values[name] = tuple(values[name])
            if self.destroys:
                if self.refused and runtime._captures:
                    runtime._refuse(self, values)
                return runtime._destroy(api, self.destroys, *values.values())
            params: Any = tuple(map(values.__getitem__, rest))
            params = packs(*params) if packs is not None else params[0] if len(params) == 1 else params
            told = (*map(values.__getitem__, owners), params) if packed else tuple(values.values())
            runtime.calls.append(Call(api, told))
            if runtime._failures:
                runtime._fail_if_due(api)
            for name, kind in handles:
                if values[name] not in runtime._handles.get(kind, ()):
                    runtime._need(api, kind, values[name])
            if of_graph:
                runtime._known_graph(api, values["graph"])
            elif of_node:
                runtime._found(api, values["node"])
            if self.refused and runtime._captures:
                runtime._refuse(self, values)
            if self.adds is not None:
                return runtime._add(api, values["graph"], values["deps"], self.adds, params)
            if self.issues is not None and runtime._captures:
                runtime._issue(api, values["stream"], self.issues, params)
            if self.sets is not None:
                runtime._set(api, values["graph_exec"], values["node"], self.sets, params)
            if self.makes:
                return runtime._make(self.makes, **values)
            return None if self.answers is None else self.answers(runtime, **values)

        call.__name__, call.__qualname__ = name, f"{owner.__qualname__}.{name}"
        call.__doc__ = f"Record a call of `{self.api}`."
        setattr(owner, name, call)


def _call(api: str, **effects: Any) -> Callable[..., Any]:
    return cast("Callable[..., Any]", _Recorded(api, **effects))


def _answers(api: str) -> Callable[[_Method], _Method]:
    """Turn a method that computes a result into a recorded call."""

    def made(method: _Method) -> _Method:
        return cast(_Method, _call(api, answers=method))

    return made


class RecorderRuntime(Runtime):
    """Records calls, issues handles and tracks which are live.

    Device memory is an address range without storage. Page-locked memory is real and zeroed, since initial values
    are written there; copies move no data, and kernels and host functions are not run.

    Attributes
    ----------
    device : int
        The current device.
    calls : list of Call
        All calls since the last `clear`, failed ones included.
    created, destroyed : Counter
        Handles by kind: ``"stream"``, ``"event"``, ``"module"``, ``"graph"``, ``"exec"``, ``"memory"`` and
        ``"host memory"``.
    """

    name = "recorder"

    def __init__(self, device: int = 0, target: Target | str = "amd:gfx942", devices: int = 2) -> None:
        self.target = Target.named(target)
        self.device = device
        self.calls: list[Call] = []
        self.created: Counter[str] = Counter()
        self.destroyed: Counter[str] = Counter()
        self._devices = devices
        self._numbers = itertools.count(0x1010, 16)
        self._captures_begun = itertools.count(1)
        self._next_address = 0x7000_0000_0000
        self._handles: dict[str, set[int]] = {}
        self._host_memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._graphs: dict[int, Graph] = {}
        self._node_graph: dict[int, Graph] = {}
        self._execs: dict[int, Graph] = {}
        self._captures: dict[int, Capture] = {}
        self._thread = _Thread()
        self._stream_devices: dict[int, int] = {}
        self._recorded: dict[int, tuple[Capture, tuple[int, ...]] | None] = {}
        self._functions: dict[int, int] = {}
        self._failures: list[_Failure] = []

    # -- for tests -----------------------------------------------------------------------------------------------------
    @property
    def live(self) -> dict[str, int]:
        """Return how many handles of each kind were created and not destroyed; kinds without any are left out."""
        return {kind: len(handles) for kind, handles in self._handles.items() if handles}

    def fail_at(self, n: int, code: int = 1, api: str | None = None) -> None:
        """Make one call fail: the `n`-th from now (counted from 1), or the `n`-th from now of `api`.

        A destroying call that is made to fail still destroys the handle: a caller cannot repeat it.
        """
        self._failures.append(_Failure(n, code, api))

    def clear(self) -> None:
        """Delete the recorded calls; handles, counts and requested failures stay."""
        self.calls.clear()

    def apis(self) -> list[str]:
        """Return HIP's names of the recorded calls."""
        return [call.api for call in self.calls]

    # -- common to all calls -------------------------------------------------------------------------------------------
    def _record(self, api: str, *args: Any) -> None:
        self.calls.append(Call(api, args))
        if self._failures:
            self._fail_if_due(api)

    def _fail_if_due(self, api: str) -> None:
        """Count a call for the failures that were requested, and raise the one that it is to fail with."""
        for failure in self._failures:
            failure.n -= failure.api in (None, api)
        due = [failure for failure in self._failures if failure.n <= 0]
        self._failures = [failure for failure in self._failures if failure.n > 0]
        if due:
            self._fail(api, due[-1].code, "made to fail")

    @staticmethod
    def _fail(api: str, code: int, text: str) -> NoReturn:
        raise HipError(api, code, _NAMES.get(code, f"hipError {code}"), text)

    def _make(self, kind: str, handle: int = 0, **values: Any) -> int:
        if kind == "memory":
            handle = handle or self._address(values["nbytes"])
        elif kind == "host memory":
            memory = ctypes.create_string_buffer(max(values["nbytes"], 1))
            handle = ctypes.addressof(memory)
            self._host_memory[handle] = memory
        handle = handle or next(self._numbers)
        if kind == "stream":
            self._stream_devices[handle] = self.device
        elif kind == "graph":
            self._graphs.setdefault(handle, Graph(handle))
        elif kind == "function":  # it is destroyed with its module
            self._functions[handle] = values["module"]
            return handle
        self._handles.setdefault(kind, set()).add(handle)
        self.created[kind] += 1
        return handle

    def _need(self, api: str, kind: str, handle: int) -> None:
        if kind == "stream" and handle in (0, 1, 2):
            return
        known = self._functions if kind == "function" else self._handles.get(kind, ())
        if handle not in known:
            self._fail(api, 1 if kind == "function" else 400, f"{handle:#x} is no {kind} that exists")

    def _destroy(self, api: str, kind: str, handle: int, *rest: Any) -> None:
        try:
            self._record(api, handle, *rest)
        finally:
            known = self._handles.get(kind, set())
            was_there = handle in known
            if was_there:
                known.remove(handle)
                self.destroyed[kind] += 1
                for owned in (self._captures, self._recorded, self._graphs, self._execs, self._host_memory):
                    cast("dict[int, Any]", owned).pop(handle, None)
                self._functions = {function: owner for function, owner in self._functions.items() if owner != handle}
        if not was_there:
            self._fail(api, 400, f"{handle:#x} is no {kind} that exists")

    def _address(self, nbytes: int) -> int:
        address = self._next_address
        self._next_address += -(-max(nbytes, 1) // 256) * 256
        return address

    def _refuse(self, call: _Recorded, values: dict[str, Any]) -> None:
        for stream, capture in self._captures.items():
            if call.during == "own" and stream != values["stream"]:
                continue
            if call.during != "strict" or self._forbids(capture):
                capture.invalidated = True
                self._fail(call.api, call.refused, "a stream is capturing")

    def _forbids(self, capture: Capture) -> bool:
        """Return whether a capture forbids the calling thread unsafe calls."""
        mode = self._thread.mode
        if capture.thread == threading.get_ident():
            return CaptureMode.RELAXED not in (mode, capture.mode)
        return mode is capture.mode is CaptureMode.GLOBAL

    def _issue(self, api: str, stream: int, kind: NodeType, params: Any) -> None:
        """Add a node if the stream is capturing; otherwise do nothing."""
        capture = self._captures.get(stream)
        if capture is None:
            return
        if capture.invalidated:
            self._fail(api, 901, "the capture was spoilt by an earlier call")
        node = self._node(capture.graph, capture.tails[stream], kind, params)
        capture.tails[stream] = (node,)

    def _node(self, graph: Graph, deps: Sequence[int], kind: NodeType, params: Any, *graphs: int) -> int:
        handle = next(self._numbers)
        graph.nodes[handle] = Node(handle, kind, params, graphs)
        for dep in deps:
            graph.edges[dep, handle] = None
        self._node_graph[handle] = graph
        return handle

    def _add(self, api: str, graph: int, deps: Sequence[int], kind: NodeType, params: Any, *graphs: int) -> int:
        target = self._known_graph(api, graph)
        for dep in deps:
            if dep not in target.nodes:
                self._fail(api, 1, f"dependency {dep:#x} is no node of the graph")
        if len(set(deps)) != len(deps):
            self._fail(api, 1, "a dependency is given twice")
        if kind is NodeType.EVENT_RECORD:
            self._recorded.setdefault(params, None)
        return self._node(target, deps, kind, params, *graphs)

    def _set(self, api: str, graph_exec: int, node: int, kind: NodeType, params: Any) -> None:
        found = self._execs[graph_exec].nodes.get(node)
        if found is None or found.kind is not kind:
            self._fail(api, 1, f"{node:#x} is no {kind.name} node of the graph that was instantiated")
        found.params = params

    def _copy_of(self, graph: Graph) -> int:
        copy = Graph(next(self._numbers))
        self._graphs[copy.handle] = copy
        made: dict[int, int] = {}
        for node in graph.nodes.values():
            inner = [self._copy_of(self._graphs[graph]) for graph in node.graphs]
            made[node.handle] = self._node(copy, (), node.kind, node.params, *inner)
        copy.edges = {(made[source], made[target]): None for source, target in graph.edges}
        copy.joined = graph.joined
        return copy.handle

    def _found(self, api: str, node: int) -> Node:
        graph = self._node_graph.get(node)
        if graph is None or graph.handle not in self._graphs:
            self._fail(api, 1, f"{node:#x} is no node that exists")
        return graph.nodes[node]

    def _known_graph(self, api: str, graph: int) -> Graph:
        # Graphs inside child nodes and graphs being captured are not counted as live handles, so `_need` would reject them.
        found = self._graphs.get(graph)
        if found is None:
            self._fail(api, 400, f"{graph:#x} is no graph that exists")
        return found

    # -- device ----------------------------------------------------------------------------------------------------
    runtime_get_version = _call("hipRuntimeGetVersion", answers=lambda self: self.target.version or (7, 2, 0))
    get_device_count = _call("hipGetDeviceCount", answers=lambda self: self._devices)
    get_device = _call("hipGetDevice", answers=lambda self: self.device)
    get_device_name = _call("hipDeviceGetName", answers=lambda self, device: "recorder")
    mem_get_info = _call("hipMemGetInfo", answers=lambda self: (1 << 36, 1 << 36))
    device_can_access_peer = _call("hipDeviceCanAccessPeer", answers=lambda self, device, peer: device != peer)
    device_enable_peer_access = _call("hipDeviceEnablePeerAccess")

    @_answers("hipSetDevice")
    def set_device(self, device: int) -> None:
        if not 0 <= device < self._devices:
            self._fail("hipSetDevice", 101, f"there are {self._devices} devices")
        self.device = device

    def describe(self) -> dict[str, Any]:
        return {"runtime": self.name, "target": self.target.name, "calls": len(self.calls)}

    # -- memory ----------------------------------------------------------------------------------------------------
    malloc = _call("hipMalloc", makes="memory", refused=900)
    host_malloc = _call("hipHostMalloc", makes="host memory", refused=900)
    free = _call("hipFree", destroys="memory", refused=900)
    host_free = _call("hipHostFree", destroys="host memory", refused=900)
    memcpy = _call("hipMemcpy", refused=906, during="any")
    memcpy_async = _call("hipMemcpyAsync", issues=NodeType.MEMCPY)
    memcpy_3d_async = _call("hipMemcpy3DAsync", issues=NodeType.MEMCPY)
    mem_pool_set_access = _call("hipMemPoolSetAccess")
    stream_batch_mem_op = _call("hipStreamBatchMemOp", issues=NodeType.BATCH_MEM_OP)
    signal_external_semaphore_async = _call("hipSignalExternalSemaphoresAsync", issues=NodeType.EXT_SEMAPHORE_SIGNAL)
    wait_external_semaphore_async = _call("hipWaitExternalSemaphoresAsync", issues=NodeType.EXT_SEMAPHORE_WAIT)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        api = "hipMemset2DAsync" if fill.height > 1 else {1: "hipMemsetAsync", 2: "hipMemsetD16Async"}.get(
            fill.element_size, "hipMemsetD32Async"
        )  # fmt: skip
        self._record(api, fill, stream)
        self._need(api, "stream", stream)
        self._issue(api, stream, NodeType.MEMSET, fill)

    @_answers("hipMallocAsync")
    def malloc_async(self, nbytes: int, stream: int) -> int:
        pointer = self._address(nbytes)
        self._issue("hipMallocAsync", stream, NodeType.MEM_ALLOC, (pointer, nbytes))
        return pointer if stream in self._captures else self._make("memory", pointer)

    def free_async(self, pointer: int, stream: int) -> None:
        if stream in self._captures:
            self._record("hipFreeAsync", pointer, stream)
            self._issue("hipFreeAsync", stream, NodeType.MEM_FREE, pointer)
        else:
            self._destroy("hipFreeAsync", "memory", pointer)

    # -- streams and events ------------------------------------------------------------------------------------------
    stream_create = _call("hipStreamCreateWithPriority", makes="stream")
    stream_destroy = _call("hipStreamDestroy", destroys="stream")
    stream_synchronize = _call("hipStreamSynchronize", refused=900, during="own")
    device_synchronize = _call("hipDeviceSynchronize", refused=900)
    stream_query = _call("hipStreamQuery", refused=900, during="own", answers=lambda self, stream: True)
    launch_host_func = _call("hipLaunchHostFunc", issues=NodeType.HOST, packs=HostParams)
    event_create = _call("hipEventCreateWithFlags", makes="event")
    event_destroy = _call("hipEventDestroy", destroys="event")
    event_synchronize = _call("hipEventSynchronize", refused=900)
    event_query = _call("hipEventQuery", refused=900, answers=lambda self, event: True)
    stream_get_device = _call("hipStreamGetDevice", answers=lambda self, stream: self._stream_devices.get(stream, self.device))

    @_answers("hipStreamWaitEvent")
    def stream_wait_event(self, stream: int, event: int) -> None:
        recorded = self._recorded.get(event)
        if recorded is None or recorded[0] not in self._captures.values():
            return
        capture, nodes = recorded
        own = self._captures.get(stream)
        if own is not None and own is not capture:
            capture.invalidated = own.invalidated = True
            self._fail("hipStreamWaitEvent", 903, "two captures would be joined")
        self._captures[stream] = capture
        capture.tails[stream] = tuple(dict.fromkeys((*capture.tails.get(stream, ()), *nodes)))

    @_answers("hipEventRecord")
    def event_record(self, event: int, stream: int) -> None:
        capture = self._captures.get(stream)
        self._recorded[event] = None if capture is None else (capture, capture.tails[stream])

    @_answers("hipEventElapsedTime")
    def event_elapsed_time(self, start: int, stop: int) -> float:
        if not self._recorded.keys() >= {start, stop}:
            self._fail("hipEventElapsedTime", 400, "an event was not recorded")
        return 0.0

    # -- modules ---------------------------------------------------------------------------------------------------
    module_load_data = _call("hipModuleLoadData", makes="module", refused=900)
    module_unload = _call("hipModuleUnload", destroys="module", refused=900)
    module_get_function = _call("hipModuleGetFunction", makes="function")
    module_get_global = _call("hipModuleGetGlobal", answers=lambda self, module, name: (self._address(65536), 65536))

    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        self._record("hiprtcCompileProgram", source, tuple(names), tuple(symbols), tuple(options))
        return CodeObject(b"recorded " + source.encode(), {asked: asked for asked in (*names, *symbols)})

    def module_launch_kernel(
        self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        api = f"hipModuleLaunch{'Cooperative' * attributes.pop('cooperative', False)}Kernel"
        self._record(api, function, grid, block, shared_bytes, stream, args, *attributes.values())
        self._need(api, "function", function)
        self._need(api, "stream", stream)
        self._issue(api, stream, NodeType.KERNEL, KernelParams(function, grid, block, shared_bytes, args))

    # -- capture ---------------------------------------------------------------------------------------------------
    @_answers("hipStreamBeginCapture")
    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None:
        if stream in (0, 1):
            self._fail("hipStreamBeginCapture", 900, "the null stream cannot capture")
        if stream in self._captures:
            self._fail("hipStreamBeginCapture", 401, "the stream is capturing already")
        handle = next(self._numbers)
        graph = self._graphs[handle] = Graph(handle)
        self._captures[stream] = Capture(next(self._captures_begun), stream, mode, graph, {stream: ()})

    def stream_end_capture(self, stream: int) -> int:
        api = "hipStreamEndCapture"
        capture = self._captures.get(stream)
        try:
            self._record(api, stream)
            if capture is None:
                self._fail(api, 401, "the stream is not capturing")
            if capture.origin != stream:
                capture.invalidated = True
                self._fail(api, 908, "the capture began on another stream")
            if capture.invalidated:
                self._fail(api, 901, "the capture was spoilt by an earlier call")
            joined = capture.graph.ancestors(capture.tails[stream])
            loose = [s for s, tails in capture.tails.items() if s != stream and not joined.issuperset(tails)]
            if loose:
                self._fail(api, 904, f"{len(loose)} forked streams were not joined")
        except HipError:
            if capture is not None:
                self._graphs.pop(capture.graph.handle, None)
            raise
        finally:
            self._captures = {s: c for s, c in self._captures.items() if c is not capture}
        return self._make("graph", capture.graph.handle)

    @_answers("hipStreamIsCapturing")
    def stream_is_capturing(self, stream: int) -> bool:
        return stream in self._captures

    @_answers("hipStreamGetCaptureInfo_v2")
    def stream_get_capture_info(self, stream: int) -> CaptureInfo:
        capture = self._captures.get(stream)
        if capture is None:
            return CaptureInfo(CaptureStatus.NONE, 0, 0, ())
        if capture.invalidated:
            return CaptureInfo(CaptureStatus.INVALIDATED, 0, 0, ())
        return CaptureInfo(CaptureStatus.ACTIVE, capture.number, capture.graph.handle, capture.tails[stream])

    def stream_update_capture_dependencies(self, stream: int, nodes: Sequence[int], replace: bool) -> None:
        api = "hipStreamUpdateCaptureDependencies"
        self._record(api, stream, tuple(nodes), replace)
        capture = self._captures.get(stream)
        if capture is None:
            self._fail(api, 401, "the stream is not capturing")
        if not capture.graph.nodes.keys() >= set(nodes):
            self._fail(api, 1, "a node is not of the graph that is captured")
        capture.tails[stream] = tuple(dict.fromkeys(nodes if replace else (*capture.tails[stream], *nodes)))

    @_answers("hipThreadExchangeStreamCaptureMode")
    def thread_exchange_stream_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        before, self._thread.mode = self._thread.mode, mode
        return before

    # -- graphs ----------------------------------------------------------------------------------------------------
    graph_create = _call("hipGraphCreate", makes="graph")
    graph_destroy = _call("hipGraphDestroy", destroys="graph")
    graph_add_kernel_node = _call("hipGraphAddKernelNode", adds=NodeType.KERNEL, packs=KernelParams)
    graph_add_memcpy_node_1d = _call("hipGraphAddMemcpyNode1D", adds=NodeType.MEMCPY)
    graph_add_memcpy_node = _call("hipGraphAddMemcpyNode", adds=NodeType.MEMCPY)
    graph_add_memset_node = _call("hipGraphAddMemsetNode", adds=NodeType.MEMSET)
    graph_add_host_node = _call("hipGraphAddHostNode", adds=NodeType.HOST, packs=HostParams)
    graph_add_mem_free_node = _call("hipGraphAddMemFreeNode", adds=NodeType.MEM_FREE)
    graph_add_empty_node = _call("hipGraphAddEmptyNode", adds=NodeType.EMPTY)
    graph_add_event_record_node = _call("hipGraphAddEventRecordNode", adds=NodeType.EVENT_RECORD)
    graph_add_event_wait_node = _call("hipGraphAddEventWaitNode", adds=NodeType.WAIT_EVENT)
    graph_add_external_semaphores_signal_node = _call(
        "hipGraphAddExternalSemaphoresSignalNode", adds=NodeType.EXT_SEMAPHORE_SIGNAL
    )
    graph_add_external_semaphores_wait_node = _call("hipGraphAddExternalSemaphoresWaitNode", adds=NodeType.EXT_SEMAPHORE_WAIT)
    graph_add_batch_mem_op_node = _call("hipGraphAddBatchMemOpNode", adds=NodeType.BATCH_MEM_OP)

    def graph_kernel_node_set_attributes(self, node: int, **attributes: Any) -> None:
        for attribute, value in attributes.items():
            self._record("hipGraphKernelNodeSetAttribute", node, attribute, value)
            self._found("hipGraphKernelNodeSetAttribute", node)

    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        api, pointer = "hipGraphAddMemAllocNode", self._address(nbytes)
        self._record(api, graph, tuple(deps), (pointer, nbytes), device, tuple(access))
        return self._add(api, graph, deps, NodeType.MEM_ALLOC, (pointer, nbytes)), pointer

    def graph_add_child_graph_node(self, graph: int, deps: Sequence[int], child: int) -> int:
        api = "hipGraphAddChildGraphNode"
        self._record(api, graph, tuple(deps), child)
        if any(node.kind in _NO_COPY for node in self._known_graph(api, child).nodes.values()):
            self._fail(api, 801, "a graph that allocates, or has conditional nodes, is no child graph")
        return self._add(api, graph, deps, NodeType.GRAPH, child, self._copy_of(self._graphs[child]))

    def graph_add_conditional_node(
        self, graph: int, deps: Sequence[int], mode: ConditionalMode, condition: int, fill: Sequence[Callable[[int], None]]
    ) -> int:
        api = "hipGraphAddConditionalNode"
        self._record(api, graph, tuple(deps), mode, condition, len(fill))
        most = {ConditionalMode.IF: 2, ConditionalMode.WHILE: 1}.get(mode, len(fill))
        if not 1 <= len(fill) <= most:
            self._fail(api, 1, f"{len(fill)} bodies for {mode.name}")
        bodies = [next(self._numbers) for _ in fill]
        node = self._add(api, graph, deps, NodeType.CONDITIONAL, (mode, condition, len(fill)), *bodies)
        for body, add in zip(bodies, fill):
            self._graphs[body] = Graph(body)
            add(body)
        return node

    @_answers("hipGraphAddDependencies")
    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        found = self._graphs[graph]
        for edge in zip(sources, targets, strict=True):
            if not found.nodes.keys() >= set(edge) or edge[0] == edge[1] or edge in found.edges:
                self._fail("hipGraphAddDependencies", 1, f"edge {edge[0]:#x} -> {edge[1]:#x} is there or none of this graph's")
            found.edges[edge], found.joined = None, True

    @_answers("cuGraphAddDependencies_v2")
    def graph_make_programmatic(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> bool:
        if not self._graphs[graph].edges.keys() >= set(zip(sources, targets, strict=True)):
            self._fail("cuGraphRemoveDependencies", 1, "an edge is none of this graph's")
        return {NodeType.MEM_ALLOC, NodeType.MEM_FREE}.isdisjoint(node.kind for node in self._graphs[graph].nodes.values())

    @_answers("hipGraphChildGraphNodeGetGraph")
    def graph_child_graph_node_get_graph(self, node: int) -> int:
        return self._of_kind("hipGraphChildGraphNodeGetGraph", node, NodeType.GRAPH).graphs[0]

    def _of_kind(self, api: str, node: int, kind: NodeType) -> Node:
        found = self._found(api, node)
        if found.kind is not kind:
            self._fail(api, 1, f"{node:#x} is no {kind.name} node")
        return found

    graph_get_nodes = _call("hipGraphGetNodes", answers=lambda self, graph: tuple(self._graphs[graph].nodes))
    graph_get_edges = _call("hipGraphGetEdges", answers=lambda self, graph: tuple(self._graphs[graph].edges))
    graph_node_get_type = _call("hipGraphNodeGetType", answers=lambda self, node: self._found("", node).kind)

    @_answers("hipGraphKernelNodeGetParams")
    def graph_kernel_node_get_params(self, node: int) -> Any:
        return self._of_kind("hipGraphKernelNodeGetParams", node, NodeType.KERNEL).params

    def graph_node_get_params(self, node: int) -> Any:
        """Return the arguments that the node was added with (not a HIP call); several are a tuple, in their order."""
        return self._found("graph_node_get_params", node).params

    # -- executables -------------------------------------------------------------------------------------------------
    graph_exec_destroy = _call("hipGraphExecDestroy", destroys="exec")
    graph_launch = _call("hipGraphLaunch", issues=NodeType.GRAPH)
    graph_exec_kernel_node_set_params = _call("hipGraphExecKernelNodeSetParams", sets=NodeType.KERNEL, packs=KernelParams)
    graph_exec_memcpy_node_set_params_1d = _call("hipGraphExecMemcpyNodeSetParams1D", sets=NodeType.MEMCPY)
    graph_exec_memcpy_node_set_params = _call("hipGraphExecMemcpyNodeSetParams", sets=NodeType.MEMCPY)
    graph_exec_memset_node_set_params = _call("hipGraphExecMemsetNodeSetParams", sets=NodeType.MEMSET)
    graph_exec_host_node_set_params = _call("hipGraphExecHostNodeSetParams", sets=NodeType.HOST, packs=HostParams)
    graph_exec_child_graph_node_set_params = _call("hipGraphExecChildGraphNodeSetParams", sets=NodeType.GRAPH)
    graph_exec_event_record_node_set_event = _call("hipGraphExecEventRecordNodeSetEvent", sets=NodeType.EVENT_RECORD)
    graph_exec_event_wait_node_set_event = _call("hipGraphExecEventWaitNodeSetEvent", sets=NodeType.WAIT_EVENT)

    @_answers("hipGraphInstantiateWithFlags")
    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        api, found = "hipGraphInstantiateWithFlags", self._graphs[graph]
        if flags not in (0, 1, 8):
            self._fail(api, 1, f"flags {flags}")
        if found.joined and found.has_cycle():
            self._fail(api, 1, "the graph has a cycle")
        # Nodes of the exec are addressed by the handles of the instantiated graph's nodes, even after that graph is destroyed.
        nodes = {handle: replace(node) for handle, node in found.nodes.items()}
        handle = self._make("exec")
        self._execs[handle] = Graph(handle, nodes)
        return handle

    @_answers("hipGraphNodeSetEnabled")
    def graph_node_set_enabled(self, graph_exec: int, node: int, enabled: bool) -> None:
        found = self._execs[graph_exec].nodes.get(node)
        if found is None or found.kind not in (NodeType.KERNEL, NodeType.MEMCPY, NodeType.MEMSET):
            self._fail("hipGraphNodeSetEnabled", 1, "only kernel, memcpy and memset nodes can be enabled and disabled")
