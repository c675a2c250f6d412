"""HIP's C ABI through ctypes: one layer for AMD's libamdhip64 and for the embedded CPU library.

Both export the same names, structure layouts, enum values and error codes, so that each call is written once.
hip-python's own wrappers are unusable here: those of 7.2 treat the dependencies of a node as an output and hold the GIL
while they wait, and the graph queries of 7.2 and 10.0 let HIP write beyond the memory that they pass.

Speed: structures that HIP only reads are packed into `bytes` and passed by address. That costs less than a ctypes
structure, needs no storage that threads could share, and is freed when the call returns. `ctypes.CDLL` releases the GIL
around each call, which a host node's Python callback needs in order to run while another thread waits.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, NoReturn

from ..errors import HipError
from ..parts import find, load
from .base import GraphSteps, KernelAdder, Replay, not_supported
from .data import (
    ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    ERROR_NOT_READY,
    ERROR_STREAM_CAPTURE_IMPLICIT,
    LAUNCH_ATTRIBUTES,
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    Copy3D,
    Dim3,
    Fill2D,
    GraphMemAttribute,
    HostParams,
    KernelParams,
    LaunchCall,
    MemcpyKind,
    MemOp,
    MemoryRange,
    NodeType,
)
from .hip_calls import (
    BATCH_MEM_OP_NODE_PARAMS,
    FUNCTION,
    HOST_NODE_PARAMS,
    KERNEL_NODE_LAYOUT,
    KERNEL_NODE_PARAMS,
    LOCATION_DEVICE,
    MEM_ALLOC_NODE_PARAMS,
    MEM_CONDITIONS,
    MEM_OPERATIONS,
    MEMCPY_3D_PARMS,
    MEMSET_PARAMS,
    PACK_KERNEL,
    POINTER_ATTRIBUTES,
    SEMAPHORE_NODE_PARAMS,
    SEMAPHORE_PARAMS,
    STREAM_BATCH_MEM_OP_PARAMS,
    HipCore,
    access_descs,
    address_of,
    adds,
    does,
    does_at_once,
    handles,
    makes,
    pack_copy,
    pack_fill,
    pack_mem_ops,
    tells,
)

_ERROR_NO_DEVICE: Final = 100
_ERROR_PEER_ACCESS_ALREADY_ENABLED: Final = 704
_STREAM_NON_BLOCKING: Final = 1
_HOST_REGISTER_MAPPED: Final = 1 | 2  # portable to every device, and mapped
_EVENT_DISABLE_TIMING: Final = 2
_ALLOCATION_PINNED: Final = 1
_MEMORY_UNREGISTERED, _MEMORY_HOST = 0, 1  # hipMemoryType

_LAUNCH_CALLS: Final = {
    "graph_launch": ("hipGraphLaunch", 0),
    "event_record": ("hipEventRecord", 0),
    "stream_wait_event": ("hipStreamWaitEvent", 1),
}
"""Methods that `launch_calls` can make by compiled code -> HIP's name, and the call kind in calls.h."""


@dataclass(slots=True)
class _Registered:
    """A region of foreign memory that this process has page-locked: its end address and its reference count."""

    stop: int
    users: int = 1


_registrations: dict[type, dict[int, _Registered]] = {}
"""Keyed by platform and start address; runtimes of several devices, and Executables whose arrays overlap, share them."""
_registering = threading.Lock()


def _no_attribute(*names: str) -> str:
    return f"HIP launches no kernel with {' and '.join(names)}"


def _semaphore_params(value: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(SEMAPHORE_PARAMS.pack(value, 0), SEMAPHORE_PARAMS.size)


def _on_semaphore(api: str) -> Callable[..., None]:
    """Return a method that makes a call with one timeline semaphore."""

    def method(self: HipCore, semaphore: int, value: int, stream: int) -> None:
        self._call(api, byref(c_void_p(semaphore)), _semaphore_params(value), 1, stream)

    return method


def _adds_semaphore(api: str) -> Callable[..., int]:
    """Return a method that adds a node with one timeline semaphore."""

    def method(self: HipCore, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int:
        handle, params = c_void_p(semaphore), _semaphore_params(value)
        return self._add(api, graph, deps, SEMAPHORE_NODE_PARAMS.pack(ctypes.addressof(handle), ctypes.addressof(params), 1))

    return method


def _tells_semaphores(api: str) -> Callable[..., tuple[tuple[int, int], ...]]:
    """Return a method that returns (semaphore, value) of each semaphore of a node."""

    def method(self: HipCore, node: int) -> tuple[tuple[int, int], ...]:
        semaphores, fences, count = self._structure(api, node, SEMAPHORE_NODE_PARAMS)
        handles = (c_uint64 * count).from_address(semaphores)
        values = SEMAPHORE_PARAMS.iter_unpack(ctypes.string_at(fences, count * SEMAPHORE_PARAMS.size))
        return tuple((handle, value) for handle, (value, _) in zip(handles, values, strict=True))

    return method


@functools.cache  # each wait asks
def native() -> ModuleType | None:
    """Return the extension module of the part `fast`, or None if it cannot be built or loaded, or is disabled."""
    fast = find("fast")
    module: ModuleType | None = None if fast is None else fast.native()
    return module


class HipAbiRuntime(HipCore):
    """The protocol over a shared library with HIP's C ABI.

    Every method may be called from any thread; HIP's own rules (one thread at a time builds a graph, the current device
    belongs to the thread) still apply. Out values of a call that failed are never read: HIP leaves garbage in them.
    The library is a `ctypes.CDLL`: a `ctypes.PyDLL` would deadlock with host callbacks. Error messages name it by `label`.
    """

    pack_copy: Callable[[Copy3D], bytes] = staticmethod(pack_copy)

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        super().__init__(library, label)
        self._images: dict[int, bytes] = {}
        self._mem_op_arrays: dict[bytes, ctypes.Array[ctypes.c_char]] = {}
        self._registered = _registrations.setdefault(type(self), {})
        self._query: tuple[Any, int] | None = None
        """hipStreamQuery and its address."""

    # -- the compiled call path ----------------------------------------------------------------------------------------
    def launcher(self, slow: Any) -> Any:
        module = native()
        return None if module is None else module.Launcher(slow)

    def launch_calls(self, calls: Sequence[LaunchCall]) -> Replay | None:
        module = native()
        for what in {call.what for call in calls if isinstance(call.what, str)}:
            # A method that was replaced, to observe its calls or make them fail, must not be bypassed.
            if what not in _LAUNCH_CALLS or getattr(getattr(self, what), "__func__", None) is not getattr(HipAbiRuntime, what):
                return None
        if module is None:
            return None
        known = {what: (address_of(getattr(self._hip, api)), kind) for what, (api, kind) in _LAUNCH_CALLS.items()}
        made: Replay = load("fast").CompiledCalls(
            module, calls, known, lambda what, code: self.call_failed(_LAUNCH_CALLS[what][0], code)
        )
        return made

    def kernel_adder(self, steps: GraphSteps) -> KernelAdder | None:
        module = native()
        # A method that was replaced, to observe its calls or make them fail, must not be bypassed.
        if module is None or getattr(self.graph_add_kernel_node, "__func__", None) is not HipAbiRuntime.graph_add_kernel_node:
            return None
        made: KernelAdder = load("fast").CompiledAdder(module, self._kernel_node_layout(), steps, self.call_failed)
        return made

    def _kernel_node_layout(self) -> bytes:
        add = address_of(self._hip.hipGraphAddKernelNode)
        return KERNEL_NODE_LAYOUT.pack(add, KERNEL_NODE_PARAMS.size, 24, 32, 0, 56, 48, 2**32 - 1)

    def launch_addresses(self) -> tuple[int, int]:
        return address_of(self._hip.hipGraphLaunch), address_of(self._hip.hipGraphExecKernelNodeSetParams)

    def current_addresses(self, device: int) -> tuple[int, int, int]:
        if self.get_device_count() < 2:
            return (0, 0, 0)
        return address_of(self._hip.hipGetDevice), address_of(self._hip.hipSetDevice), device

    def wait_addresses(self) -> tuple[int, int]:
        query = self._hip.hipStreamQuery
        # A call that was replaced, to observe it or make it fail, must not be bypassed.
        if not isinstance(query, FUNCTION) or vars(self).keys() & {"stream_query", "stream_wait"}:
            return (0, 0)
        return address_of(query), address_of(self._hip.hipGetLastError) if self._clears_last_error else 0

    def capture_address(self) -> int:
        return address_of(self._hip.hipStreamIsCapturing)

    def kernel_params(self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int) -> bytes:
        return PACK_KERNEL(*block, 0, function, *grid, args, shared_bytes)

    def kernel_extents(self) -> tuple[int, int]:
        _, _, _, grid, block, *_ = KERNEL_NODE_LAYOUT.unpack(self._kernel_node_layout())
        return grid, block

    def call_failed(self, api: str, code: int) -> NoReturn:
        self._fail(api, code)

    # -- device ----------------------------------------------------------------------------------------------------
    def runtime_get_version(self) -> tuple[int, ...]:
        number = self._integer("hipRuntimeGetVersion")
        return (number // 10_000_000, number // 100_000 % 100, number % 100_000)

    set_device = does_at_once("hipSetDevice")

    def get_device_count(self) -> int:
        out = c_int()
        return out.value if self._succeeds("hipGetDeviceCount", byref(out), unless=_ERROR_NO_DEVICE) else 0

    def get_device(self) -> int:
        return self._integer("hipGetDevice")

    def device_get_attribute(self, attribute: int, device: int) -> int:
        """Return an integer attribute of a device; `attribute` is a value of hipDeviceAttribute_t."""
        return self._integer("hipDeviceGetAttribute", attribute, device)

    def get_device_name(self, device: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._call("hipDeviceGetName", buffer, len(buffer), device)
        return buffer.value.decode(errors="replace")

    def mem_get_info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self._call("hipMemGetInfo", byref(free), byref(total))
        return free.value, total.value

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return bool(self._integer("hipDeviceCanAccessPeer", device, peer))

    def device_enable_peer_access(self, peer: int) -> None:
        self._succeeds("hipDeviceEnablePeerAccess", peer, 0, unless=_ERROR_PEER_ACCESS_ALREADY_ENABLED)

    # -- memory ----------------------------------------------------------------------------------------------------
    malloc = makes("hipMalloc")
    free = does("hipFree")
    host_free = does("hipHostFree")
    host_malloc = makes("hipHostMalloc", 0)  # with flags 0, AMD maps it into every device's address space and keeps it coherent
    device_graph_mem_trim = does("hipDeviceGraphMemTrim")
    malloc_async = makes("hipMallocAsync")
    free_async = does("hipFreeAsync")
    # With host memory of any kind on one side, AMD's call waits until the copy is complete (clr, ihipMemcpy), so that streams
    # that do not wait for the null stream see the bytes. Only a copy within one device may return before it is complete.
    memcpy = does_at_once("hipMemcpy")

    def host_register(self, pointer: int, nbytes: int) -> int:
        if not self._hip.exports("hipHostRegister"):
            return 0
        stop = pointer + nbytes
        with _registering:
            known = self._registered
            for start, piece in known.items():
                if start <= pointer and stop <= piece.stop:
                    piece.users += 1
                    return start
                if start < stop and pointer < piece.stop:
                    raise HipError(
                        "hipHostRegister",
                        ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                        "hipErrorHostMemoryAlreadyRegistered",
                        "a part of it is page-locked already, and no copy reaches across the end of that part",
                    )
            # AMD registers its own page-locked memory a second time, and then cannot free it.
            if self.mem_get_address_range(pointer) is not None:
                return 0
            if not self._succeeds(
                "hipHostRegister", pointer, nbytes, _HOST_REGISTER_MAPPED, unless=ERROR_HOST_MEMORY_ALREADY_REGISTERED
            ):  # others have registered it and will unregister it
                return 0
            known[pointer] = _Registered(stop)
        return pointer

    def host_unregister(self, registered: int) -> None:
        with _registering:
            piece = self._registered[registered]
            piece.users -= 1
            if not piece.users:
                del self._registered[registered]
                self._call("hipHostUnregister", registered)

    def memcpy_async(self, dst: int, src: int, nbytes: int, kind: MemcpyKind, stream: int) -> None:
        code = self._hip.hipMemcpyAsync(dst, src, nbytes, kind, stream)
        if code:
            self._fail("hipMemcpyAsync", code)

    def memcpy_3d_async(self, copy: Copy3D, stream: int) -> None:
        code = self._hip.hipMemcpy3DAsync(self.pack_copy(copy), stream)
        if code:
            self._fail("hipMemcpy3DAsync", code)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        size, value = fill.element_size, fill.value
        if fill.height > 1 and len(set(value.to_bytes(size, "little"))) == 1:
            self._call("hipMemset2DAsync", fill.dst, fill.pitch_bytes, value & 0xFF, fill.width * size, fill.height, stream)
            return
        api = {1: "hipMemsetAsync", 2: "hipMemsetD16Async", 4: "hipMemsetD32Async"}[size]
        for row in range(max(fill.height, 1)):  # HIP has no asynchronous 2-D fill of 2- or 4-byte values
            self._call(api, fill.dst + row * fill.pitch_bytes, value, fill.width, stream)

    def device_get_graph_mem_attribute(self, device: int, attribute: GraphMemAttribute) -> int:
        value = c_uint64()
        self._call("hipDeviceGetGraphMemAttribute", device, attribute, byref(value))
        return value.value

    def device_set_graph_mem_attribute(self, device: int, attribute: GraphMemAttribute, value: int = 0) -> None:
        self._call("hipDeviceSetGraphMemAttribute", device, attribute, byref(c_uint64(value)))

    def mem_get_address_range(self, pointer: int) -> MemoryRange | None:
        attributes = ctypes.create_string_buffer(POINTER_ATTRIBUTES.size)
        base, nbytes = c_void_p(), c_size_t()
        if not (self._hip.exports("hipPointerGetAttributes") and self._hip.exports("hipMemGetAddressRange")):
            return None
        if self._hip.hipPointerGetAttributes(attributes, pointer):
            self._clear_last_error()
            return None
        kind = POINTER_ATTRIBUTES.unpack(attributes)[0]
        if kind == _MEMORY_UNREGISTERED or self._hip.hipMemGetAddressRange(byref(base), byref(nbytes), pointer):
            self._clear_last_error()
            return None
        return MemoryRange(base.value or 0, nbytes.value, kind == _MEMORY_HOST)

    def mem_pool_set_access(self, device: int, access: Sequence[int]) -> None:
        pool = self._new("hipDeviceGetDefaultMemPool", device)
        self._call("hipMemPoolSetAccess", pool, access_descs(access), len(access))

    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None:
        self._call("hipStreamBatchMemOp", stream, len(ops), pack_mem_ops(ops), 0)

    # -- streams and events ------------------------------------------------------------------------------------------
    stream_destroy = does("hipStreamDestroy")
    stream_synchronize = does_at_once("hipStreamSynchronize")
    device_synchronize = does("hipDeviceSynchronize")
    launch_host_func = does("hipLaunchHostFunc")
    event_destroy = does("hipEventDestroy")
    event_synchronize = does("hipEventSynchronize")
    signal_external_semaphore_async = _on_semaphore("hipSignalExternalSemaphoresAsync")
    wait_external_semaphore_async = _on_semaphore("hipWaitExternalSemaphoresAsync")

    def stream_create(self, priority: int = 0) -> int:
        return self._new("hipStreamCreateWithPriority", _STREAM_NON_BLOCKING, priority)

    def stream_get_device(self, stream: int) -> int:
        device = c_int()
        self._call("hipStreamGetDevice", stream, byref(device))
        return device.value

    def stream_query(self, stream: int) -> bool:
        return self._finished("hipStreamQuery", self._hip.hipStreamQuery(stream))

    def event_query(self, event: int) -> bool:
        return self._finished("hipEventQuery", self._hip.hipEventQuery(event))

    def _finished(self, api: str, code: int) -> bool:
        """Return whether a query found all work done, by its return code."""
        if code == ERROR_NOT_READY:
            self._clear_last_error()
            return False
        if code:
            self._fail(api, code)
        return True

    def stream_wait(self, stream: int, timeout_s: float) -> bool:
        module, query = native(), self._hip.hipStreamQuery
        # A call that was replaced, to observe it or make it fail, must not be bypassed.
        if module is None or not isinstance(query, FUNCTION) or "stream_query" in vars(self):
            return super().stream_wait(stream, timeout_s)
        if self._query is None or self._query[0] is not query:
            self._query = query, address_of(query)
        code = module.wait(self._query[1], ERROR_NOT_READY, stream, timeout_s)
        self._clear_last_error()
        if code not in (0, ERROR_NOT_READY):
            self._fail("hipStreamQuery", code)
        return bool(code == 0)

    def stream_wait_event(self, stream: int, event: int) -> None:
        code = self._hip.hipStreamWaitEvent(stream, event, 0)
        if code:
            self._fail("hipStreamWaitEvent", code)

    def event_create(self, timing: bool = True) -> int:
        return self._new("hipEventCreateWithFlags", 0 if timing else _EVENT_DISABLE_TIMING)

    def event_record(self, event: int, stream: int) -> None:
        code = self._hip.hipEventRecord(event, stream)
        if code:
            self._fail("hipEventRecord", code)

    def event_elapsed_time(self, start: int, stop: int) -> float:
        milliseconds = c_float()
        self._call("hipEventElapsedTime", byref(milliseconds), start, stop)
        return milliseconds.value

    # -- modules ---------------------------------------------------------------------------------------------------
    def module_load_data(self, image: bytes) -> int:
        module = self._new("hipModuleLoadData", image)
        # AMD's runtime does not copy the image, so keep it alive until the module is unloaded.
        self._images[module] = image
        return module

    def module_unload(self, module: int) -> None:
        self._call("hipModuleUnload", module)
        self._images.pop(module, None)

    def module_get_function(self, module: int, name: str) -> int:
        return self._new("hipModuleGetFunction", module, name.encode())

    def module_get_global(self, module: int, name: str) -> tuple[int, int]:
        pointer, nbytes = c_void_p(), c_size_t()
        self._call("hipModuleGetGlobal", byref(pointer), byref(nbytes), module, name.encode())
        return pointer.value or 0, nbytes.value

    def module_launch_kernel(
        self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        cooperative = False
        if attributes:
            cooperative = attributes.pop("cooperative", False)
            if attributes:
                raise not_supported("hipModuleLaunchKernel", _no_attribute(*attributes))
        if cooperative:
            self._call("hipModuleLaunchCooperativeKernel", function, *grid, *block, shared_bytes, stream, args)
            return
        code = self._hip.hipModuleLaunchKernel(function, *grid, *block, shared_bytes, stream, args, None)
        if code:
            self._fail("hipModuleLaunchKernel", code)

    # -- capture ---------------------------------------------------------------------------------------------------
    stream_end_capture = tells("hipStreamEndCapture")

    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None:
        self._call("hipStreamBeginCapture", stream, mode)

    def stream_is_capturing(self, stream: int) -> bool:
        status = c_int()
        asked = self._succeeds("hipStreamIsCapturing", stream, byref(status), unless=ERROR_STREAM_CAPTURE_IMPLICIT)
        return not asked or status.value != CaptureStatus.NONE

    def stream_get_capture_info(self, stream: int) -> CaptureInfo:
        status, number, graph, count = c_int(), c_ulonglong(), c_void_p(), c_size_t()
        nodes = ctypes.POINTER(c_void_p)()
        code = self._hip.hipStreamGetCaptureInfo_v2(
            stream, byref(status), byref(number), byref(graph), byref(nodes), byref(count)
        )
        if code:
            self._fail("hipStreamGetCaptureInfo_v2", code)
        if status.value != CaptureStatus.ACTIVE:
            # The other out values are uninitialised then.
            return CaptureInfo(CaptureStatus(status.value), 0, 0, ())
        # `nodes` points into the stream's state: copy it before another call can change it.
        dependencies = tuple(node or 0 for node in nodes[: count.value])
        return CaptureInfo(CaptureStatus.ACTIVE, number.value, graph.value or 0, dependencies)

    def stream_update_capture_dependencies(self, stream: int, nodes: Sequence[int], replace: bool) -> None:
        self._call("hipStreamUpdateCaptureDependencies", stream, handles(nodes), len(nodes), int(replace))

    def thread_exchange_stream_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        exchanged = c_int(mode)
        self._call("hipThreadExchangeStreamCaptureMode", byref(exchanged))
        return CaptureMode(exchanged.value)

    # -- graphs ----------------------------------------------------------------------------------------------------
    graph_create = makes("hipGraphCreate", 0)
    graph_destroy = does("hipGraphDestroy")
    graph_add_memcpy_node_1d = adds("hipGraphAddMemcpyNode1D")
    graph_add_mem_free_node = adds("hipGraphAddMemFreeNode")
    graph_add_empty_node = adds("hipGraphAddEmptyNode")
    graph_add_child_graph_node = adds("hipGraphAddChildGraphNode")
    graph_add_event_record_node = adds("hipGraphAddEventRecordNode")
    graph_add_event_wait_node = adds("hipGraphAddEventWaitNode")
    graph_add_external_semaphores_signal_node = _adds_semaphore("hipGraphAddExternalSemaphoresSignalNode")
    graph_add_external_semaphores_wait_node = _adds_semaphore("hipGraphAddExternalSemaphoresWaitNode")

    def graph_add_kernel_node(
        self, graph: int, deps: Sequence[int], function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> int:
        return self._add("hipGraphAddKernelNode", graph, deps, self.kernel_params(function, grid, block, shared_bytes, args))

    def graph_kernel_node_set_attributes(self, node: int, **attributes: Any) -> None:
        api = "hipGraphKernelNodeSetAttribute"
        for name, value in attributes.items():
            if name not in self.launch_attributes:
                raise not_supported(api, _no_attribute(name))
            attribute = LAUNCH_ATTRIBUTES[name]
            self._call(api, node, attribute.number, attribute.packed(value))

    def graph_add_memcpy_node(self, graph: int, deps: Sequence[int], copy: Copy3D) -> int:
        return self._add("hipGraphAddMemcpyNode", graph, deps, pack_copy(copy))

    def graph_add_memset_node(self, graph: int, deps: Sequence[int], fill: Fill2D) -> int:
        return self._add("hipGraphAddMemsetNode", graph, deps, pack_fill(fill))

    def graph_add_host_node(self, graph: int, deps: Sequence[int], fn: int, user_data: int) -> int:
        return self._add("hipGraphAddHostNode", graph, deps, HOST_NODE_PARAMS.pack(fn, user_data))

    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        # HIP writes the pointer into the structure, so it cannot be `bytes`.
        params = ctypes.create_string_buffer(MEM_ALLOC_NODE_PARAMS.size)
        descs = access_descs(access)
        address = ctypes.addressof(descs) if access else 0
        MEM_ALLOC_NODE_PARAMS.pack_into(
            params, 0, _ALLOCATION_PINNED, 0, LOCATION_DEVICE, device, 0, 0, address, len(access), nbytes, 0
        )
        node = self._add("hipGraphAddMemAllocNode", graph, deps, params)
        return node, int(MEM_ALLOC_NODE_PARAMS.unpack(params)[-1])

    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[MemOp]) -> int:
        # AMD's node, and every executable instantiated from it, keep the address of the array, not a copy. Arrays are
        # therefore never freed, and those with equal content are shared.
        packed = pack_mem_ops(ops)
        array = self._mem_op_arrays.setdefault(packed, ctypes.create_string_buffer(packed, len(packed)))
        # AMD refuses a null context. The primary one lives as long as the process, so it is released at once.
        device = self.get_device()
        context = self._new("hipDevicePrimaryCtxRetain", device)
        self._call("hipDevicePrimaryCtxRelease", device)
        params = BATCH_MEM_OP_NODE_PARAMS.pack(context, len(ops), ctypes.addressof(array), 0)
        return self._add("hipGraphAddBatchMemOpNode", graph, deps, params)

    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._call("hipGraphAddDependencies", graph, handles(sources), handles(targets), len(sources))

    # -- graph queries -----------------------------------------------------------------------------------------------
    graph_mem_free_node_get_params = tells("hipGraphMemFreeNodeGetParams")
    graph_event_record_node_get_event = tells("hipGraphEventRecordNodeGetEvent")
    graph_event_wait_node_get_event = tells("hipGraphEventWaitNodeGetEvent")
    graph_child_graph_node_get_graph = tells("hipGraphChildGraphNodeGetGraph")
    graph_external_semaphores_signal_node_get_params = _tells_semaphores("hipGraphExternalSemaphoresSignalNodeGetParams")
    graph_external_semaphores_wait_node_get_params = _tells_semaphores("hipGraphExternalSemaphoresWaitNodeGetParams")

    def graph_get_nodes(self, graph: int) -> tuple[int, ...]:
        return self._two_calls("hipGraphGetNodes", graph)[0]

    def graph_get_edges(self, graph: int) -> tuple[tuple[int, int], ...]:
        sources, targets = self._two_calls("hipGraphGetEdges", graph, arrays=2)
        return tuple(zip(sources, targets, strict=True))

    def graph_node_get_type(self, node: int) -> NodeType:
        out = c_int()
        self._call("hipGraphNodeGetType", node, byref(out))
        try:
            return NodeType(out.value)
        except ValueError:
            raise not_supported("hipGraphNodeGetType", f"node type {out.value} is not known here") from None

    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        """Return the launch parameters of a kernel node; `args` stays valid until the node is changed or destroyed."""
        bx, by, bz, extra, function, gx, gy, gz, args, shared_bytes = self._structure(
            "hipGraphKernelNodeGetParams", node, KERNEL_NODE_PARAMS
        )
        return KernelParams(function, (gx, gy, gz), (bx, by, bz), shared_bytes, args, extra)

    def graph_memcpy_node_get_params(self, node: int) -> Copy3D:
        """Return the copy of a memcpy node; AMD may refuse one that was added as 1-D (hipErrorInvalidValue)."""
        value = self._structure("hipGraphMemcpyNodeGetParams", node, MEMCPY_3D_PARMS)
        src_pos, (src, src_pitch_bytes, _, src_rows) = value[1:4], value[4:8]
        dst_pos, (dst, dst_pitch_bytes, _, dst_rows) = value[9:12], value[12:16]
        width_bytes, height, depth = value[16:19]
        return Copy3D(
            dst, dst_pitch_bytes, dst_rows, src, src_pitch_bytes, src_rows, width_bytes, height, depth,
            MemcpyKind(value[19]), dst_pos, src_pos,
        )  # fmt: skip

    def graph_memset_node_get_params(self, node: int) -> Fill2D:
        dst, element_size, height, pitch_bytes, value, width = self._structure("hipGraphMemsetNodeGetParams", node, MEMSET_PARAMS)
        return Fill2D(dst, element_size, value, width, height, pitch_bytes)

    def graph_host_node_get_params(self, node: int) -> HostParams:
        return HostParams(*self._structure("hipGraphHostNodeGetParams", node, HOST_NODE_PARAMS))

    def graph_mem_alloc_node_get_params(self, node: int) -> tuple[int, int]:
        nbytes, pointer = self._structure("hipGraphMemAllocNodeGetParams", node, MEM_ALLOC_NODE_PARAMS)[-2:]
        return pointer, nbytes

    def graph_kernel_node_get_attributes(self, node: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.launch_attributes:
            number, form, _ = LAUNCH_ATTRIBUTES[name]
            packed = ctypes.create_string_buffer(form.size)
            if self._hip.hipGraphKernelNodeGetAttribute(node, number, packed):  # AMD fails for attributes that were not set
                self._clear_last_error()
            elif any(value := form.unpack(packed)):
                found[name] = value if len(value) > 1 else value[0]
        return found

    def graph_batch_mem_op_node_get_params(self, node: int) -> tuple[MemOp, ...]:
        _, count, array, _ = self._structure("hipGraphBatchMemOpNodeGetParams", node, BATCH_MEM_OP_NODE_PARAMS)
        operations = {number: key for key, number in MEM_OPERATIONS.items()}
        conditions = {number: name for name, number in MEM_CONDITIONS.items()}
        found = []
        packed = ctypes.string_at(array, count * STREAM_BATCH_MEM_OP_PARAMS.size)
        for operation, address, value, flags, _ in STREAM_BATCH_MEM_OP_PARAMS.iter_unpack(packed):
            if operation not in operations:
                raise not_supported("hipGraphBatchMemOpNodeGetParams", f"memory operation {operation} is not known here")
            op, size = operations[operation]
            condition = conditions[flags & 3] if op == "wait" else "eq"
            found.append(MemOp(op, address, value if size == 8 else value & 0xFFFFFFFF, size, condition))
        return tuple(found)

    # -- executables -------------------------------------------------------------------------------------------------
    graph_exec_destroy = does("hipGraphExecDestroy")
    graph_node_set_enabled = does_at_once("hipGraphNodeSetEnabled")
    graph_exec_memcpy_node_set_params_1d = does_at_once("hipGraphExecMemcpyNodeSetParams1D")
    graph_exec_child_graph_node_set_params = does("hipGraphExecChildGraphNodeSetParams")
    graph_exec_event_record_node_set_event = does("hipGraphExecEventRecordNodeSetEvent")
    graph_exec_event_wait_node_set_event = does("hipGraphExecEventWaitNodeSetEvent")

    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        return self._new("hipGraphInstantiateWithFlags", graph, flags)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        code = self._hip.hipGraphLaunch(graph_exec, stream)
        if code:
            self._fail("hipGraphLaunch", code)

    def graph_exec_kernel_node_set_params(
        self, graph_exec: int, node: int, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> None:
        params = self.kernel_params(function, grid, block, shared_bytes, args)
        self._call("hipGraphExecKernelNodeSetParams", graph_exec, node, params)

    def graph_exec_memcpy_node_set_params(self, graph_exec: int, node: int, copy: Copy3D) -> None:
        self._call("hipGraphExecMemcpyNodeSetParams", graph_exec, node, pack_copy(copy))

    def graph_exec_memset_node_set_params(self, graph_exec: int, node: int, fill: Fill2D) -> None:
        self._call("hipGraphExecMemsetNodeSetParams", graph_exec, node, pack_fill(fill))

    def graph_exec_host_node_set_params(self, graph_exec: int, node: int, fn: int, user_data: int) -> None:
        self._call("hipGraphExecHostNodeSetParams", graph_exec, node, HOST_NODE_PARAMS.pack(fn, user_data))
