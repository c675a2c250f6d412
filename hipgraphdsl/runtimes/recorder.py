"""A runtime without a device: it writes down every call, checks handles, and fails where a test wants it to.

What it answers follows AMD's runtime (7.2): a capture with an unjoined fork ends with hipErrorStreamCaptureUnjoined
(904), and calls that a capture forbids are refused and spoil it (900, 906, then 901). Handles of destroyed things are
refused, where AMD's runtime may crash.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from ..errors import HipError
from ..order import find_cycle
from ..target import Target
from .base import (
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    CodeObject,
    ConditionalMode,
    Copy3D,
    Dim3,
    Fill2D,
    HostParams,
    KernelParams,
    MemcpyKind,
    MemOp,
    NodeType,
    Runtime,
)

__all__ = ["Call", "RecorderRuntime"]

_NAMES = {
    1: "hipErrorInvalidValue",
    2: "hipErrorOutOfMemory",
    400: "hipErrorInvalidHandle",
    401: "hipErrorIllegalState",
    500: "hipErrorNotFound",
    801: "hipErrorNotSupported",
    900: "hipErrorStreamCaptureUnsupported",
    901: "hipErrorStreamCaptureInvalidated",
    904: "hipErrorStreamCaptureUnjoined",
    906: "hipErrorStreamCaptureImplicit",
    908: "hipErrorStreamCaptureUnmatched",
    910: "hipErrorGraphExecUpdateFailure",
}


_NO_COPY = (NodeType.MEM_ALLOC, NodeType.CONDITIONAL)


class Call(NamedTuple):
    """One recorded call: HIP's name and the arguments in the protocol's order."""

    api: str
    args: tuple[Any, ...]


@dataclass
class _Node:
    handle: int
    kind: NodeType
    params: Any
    child: int = 0
    bodies: tuple[int, ...] = ()


@dataclass
class _Graph:
    handle: int
    nodes: dict[int, _Node] = field(default_factory=dict)
    edges: dict[tuple[int, int], None] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)  # in a clone: node of the original -> node

    def ancestors(self, nodes: Iterable[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += [source for source, target in self.edges if target == node]
        return found

    def has_cycle(self) -> bool:
        place = {node: i for i, node in enumerate(self.nodes)}
        sources: list[list[int]] = [[] for _ in place]
        for source, target in self.edges:
            sources[place[target]].append(place[source])
        return bool(find_cycle(sources))


@dataclass
class _Exec:
    graph: _Graph
    disabled: set[int] = field(default_factory=set)


@dataclass
class _Capture:
    number: int
    origin: int
    mode: CaptureMode
    graph: _Graph
    tails: dict[int, tuple[int, ...]]  # stream -> nodes that its next node waits for
    invalidated: bool = False


class RecorderRuntime(Runtime):
    """Record calls, give out handles and keep account of them.

    Device memory is an address range that nothing backs. Page-locked memory is real and zeroed, since initial values
    are written there; copies move nothing and kernels and host functions are not run.

    Parameters
    ----------
    device : int
        The device that is current at first.
    target : Target or str
        What `target` answers.
    devices : int
        How many devices there are.

    Attributes
    ----------
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
        self._numbers = itertools.count(1)
        self._captures_begun = itertools.count(1)
        self._next_address = 0x7000_0000_0000
        self._handles: dict[str, set[int]] = {}
        self._host_memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._graphs: dict[int, _Graph] = {}
        self._node_graph: dict[int, _Graph] = {}
        self._execs: dict[int, _Exec] = {}
        self._captures: dict[int, _Capture] = {}
        self._stream_devices: dict[int, int] = {}
        self._recorded: dict[int, tuple[_Capture, tuple[int, ...]] | None] = {}
        self._functions: dict[int, int] = {}
        self._failures: list[tuple[int, int, str | None]] = []

    # -- what tests ask and order --------------------------------------------------------------------------------------
    @property
    def live(self) -> dict[str, int]:
        """Return how many handles of each kind were created and not destroyed; kinds without any are left out."""
        return {kind: len(handles) for kind, handles in self._handles.items() if handles}

    def fail_at(self, n: int, code: int = 1, api: str | None = None) -> None:
        """Make one call fail: the `n`-th from now (counted from 1), or the `n`-th from now of `api`.

        A destroying call that is made to fail has destroyed: a caller cannot do it again.
        """
        self._failures.append((n, code, api))

    def clear(self) -> None:
        """Forget the calls recorded; handles, counts and ordered failures stay."""
        self.calls.clear()

    def apis(self) -> list[str]:
        """Return the names of the calls."""
        return [call.api for call in self.calls]

    # -- machinery -------------------------------------------------------------------------------------------------
    def _record(self, api: str, *args: Any) -> None:
        self.calls.append(Call(api, args))
        failing = 0
        left: list[tuple[int, int, str | None]] = []
        for n, code, only in self._failures:
            if only is not None and only != api:
                left.append((n, code, only))
            elif n > 1:
                left.append((n - 1, code, only))
            else:
                failing = code
        self._failures = left
        if failing:
            self._fail(api, failing, "made to fail")

    @staticmethod
    def _fail(api: str, code: int, text: str) -> NoReturn:
        raise HipError(api, code, _NAMES.get(code, f"hipError {code}"), text)

    def _make(self, kind: str, handle: int | None = None) -> int:
        handle = next(self._numbers) * 16 + 0x1000 if handle is None else handle
        self._handles.setdefault(kind, set()).add(handle)
        self.created[kind] += 1
        return handle

    def _need(self, api: str, kind: str, handle: int) -> None:
        if kind == "stream" and handle in (0, 1, 2):
            return
        if handle not in self._handles.get(kind, ()):
            self._fail(api, 400, f"{handle:#x} is no {kind} that exists")

    def _destroy(self, api: str, kind: str, handle: int) -> None:
        try:
            self._record(api, handle)
        finally:
            known = self._handles.get(kind, set())
            was_there = handle in known
            if was_there:
                known.remove(handle)
                self.destroyed[kind] += 1
        if not was_there:
            self._fail(api, 400, f"{handle:#x} is no {kind} that exists")

    def _address(self, nbytes: int) -> int:
        address = self._next_address
        self._next_address += -(-max(nbytes, 1) // 256) * 256
        return address

    def _forbidden_in_capture(self, api: str, code: int = 900, also_relaxed: bool = False) -> None:
        for capture in self._captures.values():
            if also_relaxed or capture.mode is not CaptureMode.RELAXED:
                capture.invalidated = True
                self._fail(api, code, "a stream is capturing")

    def _issue(self, api: str, stream: int, kind: NodeType, params: Any) -> None:
        """Add a node where the stream captures; else there is nothing to do."""
        self._need(api, "stream", stream)
        capture = self._captures.get(stream)
        if capture is None:
            return
        if capture.invalidated:
            self._fail(api, 901, "the capture was spoilt by an earlier call")
        node = self._node(capture.graph, capture.tails[stream], kind, params)
        capture.tails[stream] = (node,)

    def _node(self, graph: _Graph, deps: Sequence[int], kind: NodeType, params: Any, child: int = 0) -> int:
        handle = next(self._numbers) * 16 + 0x1000
        graph.nodes[handle] = _Node(handle, kind, params, child)
        graph.edges.update(dict.fromkeys((dep, handle) for dep in deps))
        self._node_graph[handle] = graph
        return handle

    def _add(self, api: str, graph: int, deps: Sequence[int], kind: NodeType, *params: Any, child: int = 0) -> int:
        self._record(api, graph, tuple(deps), *params)
        target = self._known_graph(api, graph)
        for dep in deps:
            if dep not in target.nodes:
                self._fail(api, 1, f"dependency {dep:#x} is no node of the graph")
        if len(set(deps)) != len(deps):
            self._fail(api, 1, "a dependency is given twice")
        return self._node(target, deps, kind, params[0] if len(params) == 1 else params, child)

    def _copy_of(self, graph: _Graph, handle: int) -> _Graph:
        copy = _Graph(handle)
        for node in graph.nodes.values():
            child = node.child
            if child:
                child = next(self._numbers) * 16 + 0x1000
                self._graphs[child] = self._copy_of(self._graphs[node.child], child)
            copy.origin[node.handle] = self._node(copy, (), node.kind, node.params, child)
        copy.edges = {(copy.origin[source], copy.origin[target]): None for source, target in graph.edges}
        return copy

    def _found(self, api: str, node: int) -> _Node:
        graph = self._node_graph.get(node)
        if graph is None or graph.handle not in self._graphs:
            self._fail(api, 1, f"{node:#x} is no node that exists")
        return graph.nodes[node]

    def _set(self, api: str, graph_exec: int, node: int, kind: NodeType, *params: Any) -> None:
        self._record(api, graph_exec, node, *params)
        self._need(api, "exec", graph_exec)
        found = self._execs[graph_exec].graph.nodes.get(node)
        if found is None or found.kind is not kind:
            self._fail(api, 1, f"{node:#x} is no {kind.name} node of the graph that was instantiated")
        found.params = params[0] if len(params) == 1 else params

    # -- device ----------------------------------------------------------------------------------------------------
    def runtime_get_version(self) -> tuple[int, ...]:
        self._record("hipRuntimeGetVersion")
        return self.target.version or (7, 2, 0)

    def get_device_count(self) -> int:
        self._record("hipGetDeviceCount")
        return self._devices

    def set_device(self, device: int) -> None:
        self._record("hipSetDevice", device)
        if not 0 <= device < self._devices:
            raise HipError("hipSetDevice", 101, "hipErrorInvalidDevice", f"there are {self._devices} devices")
        self.device = device

    def get_device(self) -> int:
        self._record("hipGetDevice")
        return self.device

    def get_device_name(self, device: int) -> str:
        self._record("hipDeviceGetName", device)
        return "recorder"

    def mem_get_info(self) -> tuple[int, int]:
        self._record("hipMemGetInfo")
        return 1 << 36, 1 << 36

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        self._record("hipDeviceCanAccessPeer", device, peer)
        return device != peer

    def device_enable_peer_access(self, peer: int) -> None:
        self._record("hipDeviceEnablePeerAccess", peer)

    def describe(self) -> dict[str, Any]:
        return {"runtime": self.name, "target": self.target.name, "calls": len(self.calls)}

    # -- memory ----------------------------------------------------------------------------------------------------
    def malloc(self, nbytes: int) -> int:
        self._record("hipMalloc", nbytes)
        self._forbidden_in_capture("hipMalloc")
        return self._make("memory", self._address(nbytes))

    def free(self, pointer: int) -> None:
        self._forbidden_in_capture("hipFree")
        self._destroy("hipFree", "memory", pointer)

    def host_malloc(self, nbytes: int) -> int:
        self._record("hipHostMalloc", nbytes)
        self._forbidden_in_capture("hipHostMalloc")
        memory = ctypes.create_string_buffer(max(nbytes, 1))
        address = ctypes.addressof(memory)
        self._host_memory[address] = memory
        return self._make("host memory", address)

    def host_free(self, pointer: int) -> None:
        self._forbidden_in_capture("hipHostFree")
        self._destroy("hipHostFree", "host memory", pointer)
        self._host_memory.pop(pointer, None)

    def memcpy(self, dst: int, src: int, nbytes: int, kind: MemcpyKind) -> None:
        self._record("hipMemcpy", dst, src, nbytes, kind)
        self._forbidden_in_capture("hipMemcpy", 906, also_relaxed=True)

    def memcpy_async(self, dst: int, src: int, nbytes: int, kind: MemcpyKind, stream: int) -> None:
        self._record("hipMemcpyAsync", dst, src, nbytes, kind, stream)
        self._issue("hipMemcpyAsync", stream, NodeType.MEMCPY, (dst, src, nbytes, kind))

    def memcpy_3d_async(self, copy: Copy3D, stream: int) -> None:
        self._record("hipMemcpy3DAsync", copy, stream)
        self._issue("hipMemcpy3DAsync", stream, NodeType.MEMCPY, copy)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        api = "hipMemset2DAsync" if fill.height > 1 else {1: "hipMemsetAsync", 2: "hipMemsetD16Async"}.get(
            fill.element_size, "hipMemsetD32Async"
        )  # fmt: skip
        self._record(api, fill, stream)
        self._issue(api, stream, NodeType.MEMSET, fill)

    def mem_pool_set_access(self, device: int, access: Sequence[int]) -> None:
        self._record("hipMemPoolSetAccess", device, tuple(access))

    def malloc_async(self, nbytes: int, stream: int) -> int:
        self._record("hipMallocAsync", nbytes, stream)
        pointer = self._address(nbytes)
        self._issue("hipMallocAsync", stream, NodeType.MEM_ALLOC, (pointer, nbytes))
        return pointer if stream in self._captures else self._make("memory", pointer)

    def free_async(self, pointer: int, stream: int) -> None:
        if stream in self._captures:
            self._record("hipFreeAsync", pointer, stream)
            self._issue("hipFreeAsync", stream, NodeType.MEM_FREE, pointer)
        else:
            self._destroy("hipFreeAsync", "memory", pointer)

    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None:
        self._record("hipStreamBatchMemOp", stream, tuple(ops))
        self._issue("hipStreamBatchMemOp", stream, NodeType.BATCH_MEM_OP, tuple(ops))

    # -- streams and events ------------------------------------------------------------------------------------------
    def stream_create(self, priority: int = 0) -> int:
        self._record("hipStreamCreateWithPriority", priority)
        stream = self._make("stream")
        self._stream_devices[stream] = self.device
        return stream

    def stream_destroy(self, stream: int) -> None:
        self._destroy("hipStreamDestroy", "stream", stream)
        self._captures.pop(stream, None)

    def stream_synchronize(self, stream: int) -> None:
        self._record("hipStreamSynchronize", stream)
        self._outside_capture("hipStreamSynchronize", stream)

    def stream_get_device(self, stream: int) -> int:
        self._record("hipStreamGetDevice", stream)
        return self._stream_devices.get(stream, self.device)

    def stream_query(self, stream: int) -> bool:
        self._record("hipStreamQuery", stream)
        self._outside_capture("hipStreamQuery", stream)
        return True

    def _outside_capture(self, api: str, stream: int) -> None:
        self._need(api, "stream", stream)
        capture = self._captures.get(stream)
        if capture is not None:
            capture.invalidated = True
            self._fail(api, 900, "the stream is capturing")

    def stream_wait_event(self, stream: int, event: int) -> None:
        self._record("hipStreamWaitEvent", stream, event)
        self._need("hipStreamWaitEvent", "stream", stream)
        self._need("hipStreamWaitEvent", "event", event)
        recorded = self._recorded.get(event)
        if recorded is None or recorded[0] not in self._captures.values():
            return
        capture, nodes = recorded
        own = self._captures.get(stream)
        if own is not None and own is not capture:
            capture.invalidated = own.invalidated = True
            raise HipError("hipStreamWaitEvent", 903, "hipErrorStreamCaptureMerge", "two captures would be joined")
        self._captures[stream] = capture
        capture.tails[stream] = tuple(dict.fromkeys((*capture.tails.get(stream, ()), *nodes)))

    def launch_host_func(self, stream: int, fn: int, user_data: int) -> None:
        self._record("hipLaunchHostFunc", stream, fn, user_data)
        self._issue("hipLaunchHostFunc", stream, NodeType.HOST, HostParams(fn, user_data))

    def event_create(self, timing: bool = True) -> int:
        self._record("hipEventCreateWithFlags", timing)
        return self._make("event")

    def event_destroy(self, event: int) -> None:
        self._destroy("hipEventDestroy", "event", event)
        self._recorded.pop(event, None)

    def event_record(self, event: int, stream: int) -> None:
        self._record("hipEventRecord", event, stream)
        self._need("hipEventRecord", "event", event)
        self._need("hipEventRecord", "stream", stream)
        capture = self._captures.get(stream)
        self._recorded[event] = None if capture is None else (capture, capture.tails[stream])

    def event_synchronize(self, event: int) -> None:
        self._record("hipEventSynchronize", event)
        self._outside_capture_event("hipEventSynchronize", event)

    def _outside_capture_event(self, api: str, event: int) -> None:
        self._need(api, "event", event)
        self._forbidden_in_capture(api)

    def event_elapsed_time(self, start: int, stop: int) -> float:
        self._record("hipEventElapsedTime", start, stop)
        for event in (start, stop):
            self._need("hipEventElapsedTime", "event", event)
            if event not in self._recorded:
                self._fail("hipEventElapsedTime", 400, f"event {event:#x} was not recorded")
        return 0.0

    # -- modules ---------------------------------------------------------------------------------------------------
    def rtc_compile(
        self,
        source: str,
        names: Sequence[str],
        symbols: Sequence[str] = (),
        options: Sequence[str] = (),
        *,
        name: str = "module",
    ) -> CodeObject:
        self._record("hiprtcCompileProgram", source, tuple(names), tuple(symbols), tuple(options))
        return CodeObject(b"recorded " + source.encode(), {asked: asked for asked in (*names, *symbols)})

    def module_load_data(self, image: bytes) -> int:
        self._record("hipModuleLoadData", image)
        self._forbidden_in_capture("hipModuleLoadData")
        return self._make("module")

    def module_unload(self, module: int) -> None:
        self._forbidden_in_capture("hipModuleUnload")
        self._destroy("hipModuleUnload", "module", module)
        self._functions = {function: owner for function, owner in self._functions.items() if owner != module}

    def module_get_function(self, module: int, name: str) -> int:
        self._record("hipModuleGetFunction", module, name)
        self._need("hipModuleGetFunction", "module", module)
        function = next(self._numbers) * 16 + 0x1000
        self._functions[function] = module
        return function

    def module_get_global(self, module: int, name: str) -> tuple[int, int]:
        self._record("hipModuleGetGlobal", module, name)
        self._need("hipModuleGetGlobal", "module", module)
        return self._address(65536), 65536

    def _need_function(self, api: str, function: int) -> None:
        if function not in self._functions:
            self._fail(api, 1, f"{function:#x} is no function of a loaded module")

    def module_launch_kernel(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        stream: int,
        args: int,
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> None:
        api = "hipModuleLaunchCooperativeKernel" if cooperative else "hipModuleLaunchKernel"
        self._record(api, function, grid, block, shared_bytes, stream, args, *(() if cluster is None else (cluster,)))
        self._need_function(api, function)
        self._issue(api, stream, NodeType.KERNEL, KernelParams(function, grid, block, shared_bytes, args))

    # -- capture ---------------------------------------------------------------------------------------------------
    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None:
        self._record("hipStreamBeginCapture", stream, mode)
        self._need("hipStreamBeginCapture", "stream", stream)
        if stream in (0, 1):
            self._fail("hipStreamBeginCapture", 900, "the null stream cannot capture")
        if stream in self._captures:
            self._fail("hipStreamBeginCapture", 401, "the stream is capturing already")
        handle = next(self._numbers) * 16 + 0x1000
        graph = self._graphs[handle] = _Graph(handle)
        self._captures[stream] = _Capture(next(self._captures_begun), stream, mode, graph, {stream: ()})

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

    def stream_get_capture_info(self, stream: int) -> CaptureInfo:
        self._record("hipStreamGetCaptureInfo_v2", stream)
        self._need("hipStreamGetCaptureInfo_v2", "stream", stream)
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

    # -- graphs ----------------------------------------------------------------------------------------------------
    def graph_create(self) -> int:
        self._record("hipGraphCreate")
        handle = self._make("graph")
        self._graphs[handle] = _Graph(handle)
        return handle

    def graph_destroy(self, graph: int) -> None:
        self._destroy("hipGraphDestroy", "graph", graph)
        del self._graphs[graph]

    def graph_add_kernel_node(
        self, graph: int, deps: Sequence[int], function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> int:
        params = KernelParams(function, grid, block, shared_bytes, args)
        node = self._add("hipGraphAddKernelNode", graph, deps, NodeType.KERNEL, params)
        self._need_function("hipGraphAddKernelNode", function)
        return node

    def graph_kernel_node_set_attributes(
        self, node: int, *, cooperative: bool = False, priority: int | None = None, cluster: Dim3 | None = None
    ) -> None:
        api = "hipGraphKernelNodeSetAttribute"
        for attribute, value in (("cooperative", cooperative or None), ("priority", priority), ("cluster", cluster)):
            if value is not None:
                self._record(api, node, attribute, value)
                self._found(api, node)

    def graph_add_memcpy_node_1d(
        self, graph: int, deps: Sequence[int], dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> int:
        return self._add("hipGraphAddMemcpyNode1D", graph, deps, NodeType.MEMCPY, dst, src, nbytes, kind)

    def graph_add_memcpy_node(self, graph: int, deps: Sequence[int], copy: Copy3D) -> int:
        return self._add("hipGraphAddMemcpyNode", graph, deps, NodeType.MEMCPY, copy)

    def graph_add_memset_node(self, graph: int, deps: Sequence[int], fill: Fill2D) -> int:
        return self._add("hipGraphAddMemsetNode", graph, deps, NodeType.MEMSET, fill)

    def graph_add_host_node(self, graph: int, deps: Sequence[int], fn: int, user_data: int) -> int:
        return self._add("hipGraphAddHostNode", graph, deps, NodeType.HOST, HostParams(fn, user_data))

    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        pointer = self._address(nbytes)
        node = self._add("hipGraphAddMemAllocNode", graph, deps, NodeType.MEM_ALLOC, (pointer, nbytes), device, tuple(access))
        return node, pointer

    def graph_add_mem_free_node(self, graph: int, deps: Sequence[int], pointer: int) -> int:
        return self._add("hipGraphAddMemFreeNode", graph, deps, NodeType.MEM_FREE, pointer)

    def graph_add_empty_node(self, graph: int, deps: Sequence[int]) -> int:
        return self._add("hipGraphAddEmptyNode", graph, deps, NodeType.EMPTY)

    def graph_add_child_graph_node(self, graph: int, deps: Sequence[int], child: int) -> int:
        if child not in self._graphs:
            self._fail("hipGraphAddChildGraphNode", 400, f"{child:#x} is no graph that exists")
        if any(node.kind in _NO_COPY for node in self._graphs[child].nodes.values()):
            self._fail("hipGraphAddChildGraphNode", 801, "a graph that allocates, or has conditional nodes, is no child graph")
        handle = next(self._numbers) * 16 + 0x1000
        node = self._add("hipGraphAddChildGraphNode", graph, deps, NodeType.GRAPH, child, child=handle)
        self._graphs[handle] = self._copy_of(self._graphs[child], handle)
        return node

    def graph_add_event_record_node(self, graph: int, deps: Sequence[int], event: int) -> int:
        node = self._add("hipGraphAddEventRecordNode", graph, deps, NodeType.EVENT_RECORD, event)
        self._need("hipGraphAddEventRecordNode", "event", event)
        self._recorded.setdefault(event, None)
        return node

    def graph_add_event_wait_node(self, graph: int, deps: Sequence[int], event: int) -> int:
        node = self._add("hipGraphAddEventWaitNode", graph, deps, NodeType.WAIT_EVENT, event)
        self._need("hipGraphAddEventWaitNode", "event", event)
        return node

    def graph_add_external_semaphores_signal_node(
        self, graph: int, deps: Sequence[int], semaphore: int, value: int
    ) -> int:
        api = "hipGraphAddExternalSemaphoresSignalNode"
        return self._add(api, graph, deps, NodeType.EXT_SEMAPHORE_SIGNAL, semaphore, value)

    def graph_add_external_semaphores_wait_node(
        self, graph: int, deps: Sequence[int], semaphore: int, value: int
    ) -> int:
        api = "hipGraphAddExternalSemaphoresWaitNode"
        return self._add(api, graph, deps, NodeType.EXT_SEMAPHORE_WAIT, semaphore, value)

    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[MemOp]) -> int:
        return self._add("hipGraphAddBatchMemOpNode", graph, deps, NodeType.BATCH_MEM_OP, tuple(ops))

    def graph_add_conditional_node(
        self, graph: int, deps: Sequence[int], mode: ConditionalMode, condition: int, fill: Sequence[Callable[[int], None]]
    ) -> int:
        api = "hipGraphAddConditionalNode"
        node = self._add(api, graph, deps, NodeType.CONDITIONAL, mode, condition, len(fill))
        most = {ConditionalMode.IF: 2, ConditionalMode.WHILE: 1}.get(mode, len(fill))
        if not 1 <= len(fill) <= most:
            self._fail(api, 1, f"{len(fill)} bodies for {mode.name}")
        bodies = tuple(next(self._numbers) * 16 + 0x1000 for _ in fill)
        self._found(api, node).bodies = bodies
        for body, add in zip(bodies, fill):
            self._graphs[body] = _Graph(body)
            add(body)
        return node

    def conditional_bodies(self, node: int) -> tuple[int, ...]:
        """Return the graphs inside a conditional node (not a HIP call)."""
        return self._found("conditional_bodies", node).bodies

    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        api = "hipGraphAddDependencies"
        self._record(api, graph, tuple(sources), tuple(targets))
        target_graph = self._known_graph(api, graph)
        for edge in zip(sources, targets, strict=True):
            if not target_graph.nodes.keys() >= set(edge) or edge[0] == edge[1] or edge in target_graph.edges:
                self._fail(api, 1, f"edge {edge[0]:#x} -> {edge[1]:#x} is there already or is none of this graph's")
            target_graph.edges[edge] = None

    def graph_get_nodes(self, graph: int) -> tuple[int, ...]:
        self._record("hipGraphGetNodes", graph)
        return tuple(self._known_graph("hipGraphGetNodes", graph).nodes)

    def graph_get_edges(self, graph: int) -> tuple[tuple[int, int], ...]:
        self._record("hipGraphGetEdges", graph)
        return tuple(self._known_graph("hipGraphGetEdges", graph).edges)

    def _known_graph(self, api: str, graph: int) -> _Graph:
        # Graphs inside child nodes and graphs that are being captured belong to no one who counts them, so not `_need`.
        found = self._graphs.get(graph)
        if found is None:
            self._fail(api, 400, f"{graph:#x} is no graph that exists")
        return found

    def graph_node_get_type(self, node: int) -> NodeType:
        self._record("hipGraphNodeGetType", node)
        return self._found("hipGraphNodeGetType", node).kind

    def graph_node_get_params(self, node: int) -> Any:
        """Return what the node was added with (not a HIP call): several arguments as a tuple, in their order."""
        return self._found("graph_node_get_params", node).params

    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        """Return what a kernel node would launch."""
        self._record("hipGraphKernelNodeGetParams", node)
        params = self._found("hipGraphKernelNodeGetParams", node).params
        if not isinstance(params, KernelParams):
            self._fail("hipGraphKernelNodeGetParams", 1, f"{node:#x} is no kernel node")
        return params

    def graph_child_graph_node_get_graph(self, node: int) -> int:
        self._record("hipGraphChildGraphNodeGetGraph", node)
        found = self._found("hipGraphChildGraphNodeGetGraph", node)
        if found.kind is not NodeType.GRAPH:
            self._fail("hipGraphChildGraphNodeGetGraph", 1, f"{node:#x} is no child graph node")
        return found.child

    # -- executables -------------------------------------------------------------------------------------------------
    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        api = "hipGraphInstantiateWithFlags"
        self._record(api, graph, flags)
        found = self._known_graph(api, graph)
        if flags not in (0, 1, 8):
            self._fail(api, 1, f"flags {flags}")
        if found.has_cycle():
            self._fail(api, 1, "the graph has a cycle")
        handle = self._make("exec")
        # The exec is addressed by the nodes of the graph that was instantiated, even after that graph is destroyed.
        nodes = {h: _Node(h, node.kind, node.params, node.child) for h, node in found.nodes.items()}
        self._execs[handle] = _Exec(_Graph(handle, nodes, dict(found.edges)))
        return handle

    def graph_exec_destroy(self, graph_exec: int) -> None:
        self._destroy("hipGraphExecDestroy", "exec", graph_exec)
        del self._execs[graph_exec]

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        self._record("hipGraphLaunch", graph_exec, stream)
        self._need("hipGraphLaunch", "exec", graph_exec)
        self._issue("hipGraphLaunch", stream, NodeType.GRAPH, graph_exec)

    def graph_exec_kernel_node_set_params(
        self, graph_exec: int, node: int, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> None:
        params = KernelParams(function, grid, block, shared_bytes, args)
        self._set("hipGraphExecKernelNodeSetParams", graph_exec, node, NodeType.KERNEL, params)

    def graph_exec_memcpy_node_set_params_1d(
        self, graph_exec: int, node: int, dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> None:
        self._set("hipGraphExecMemcpyNodeSetParams1D", graph_exec, node, NodeType.MEMCPY, dst, src, nbytes, kind)

    def graph_exec_memcpy_node_set_params(self, graph_exec: int, node: int, copy: Copy3D) -> None:
        self._set("hipGraphExecMemcpyNodeSetParams", graph_exec, node, NodeType.MEMCPY, copy)

    def graph_exec_memset_node_set_params(self, graph_exec: int, node: int, fill: Fill2D) -> None:
        self._set("hipGraphExecMemsetNodeSetParams", graph_exec, node, NodeType.MEMSET, fill)

    def graph_exec_host_node_set_params(self, graph_exec: int, node: int, fn: int, user_data: int) -> None:
        self._set("hipGraphExecHostNodeSetParams", graph_exec, node, NodeType.HOST, HostParams(fn, user_data))

    def graph_exec_child_graph_node_set_params(self, graph_exec: int, node: int, child: int) -> None:
        self._set("hipGraphExecChildGraphNodeSetParams", graph_exec, node, NodeType.GRAPH, child)

    def graph_exec_event_record_node_set_event(self, graph_exec: int, node: int, event: int) -> None:
        self._set("hipGraphExecEventRecordNodeSetEvent", graph_exec, node, NodeType.EVENT_RECORD, event)

    def graph_exec_event_wait_node_set_event(self, graph_exec: int, node: int, event: int) -> None:
        self._set("hipGraphExecEventWaitNodeSetEvent", graph_exec, node, NodeType.WAIT_EVENT, event)

    def graph_node_set_enabled(self, graph_exec: int, node: int, enabled: bool) -> None:
        api = "hipGraphNodeSetEnabled"
        self._record(api, graph_exec, node, enabled)
        self._need(api, "exec", graph_exec)
        graph_exec_object = self._execs[graph_exec]
        found = graph_exec_object.graph.nodes.get(node)
        if found is None or found.kind not in (NodeType.KERNEL, NodeType.MEMCPY, NodeType.MEMSET):
            self._fail(api, 1, "only kernel, memcpy and memset nodes can be enabled and disabled")
        (graph_exec_object.disabled.discard if enabled else graph_exec_object.disabled.add)(node)

    def signal_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        self._record("hipSignalExternalSemaphoresAsync", semaphore, value, stream)
        self._issue("hipSignalExternalSemaphoresAsync", stream, NodeType.EXT_SEMAPHORE_SIGNAL, (semaphore, value))

    def wait_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        self._record("hipWaitExternalSemaphoresAsync", semaphore, value, stream)
        self._issue("hipWaitExternalSemaphoresAsync", stream, NodeType.EXT_SEMAPHORE_WAIT, (semaphore, value))
