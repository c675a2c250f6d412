"""HIP's C ABI through ctypes: one layer for AMD's libamdhip64 and for the embedded CPU library.

Both export the same names, structure layouts, enum values and error codes, so that a call is written once.
hip-python's own wrappers cannot serve here: those of 7.2 take the dependencies of a node as an output and hold the GIL
while they wait, and the graph queries of 7.2 and 10.0 let HIP write beyond the memory that they pass.

Speed: structures that HIP only reads are packed into `bytes` and passed by address. That costs less than a ctypes
structure, needs no storage that threads could share, and is freed when the call returns. `ctypes.CDLL` releases the GIL
around each call, which a host node's Python callback needs in order to run while another thread waits.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from ..errors import HipError
from .base import KernelAdder
from .compiled_calls import CompiledCalls
from .data import (
    ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    Copy3D,
    Dim3,
    Fill2D,
    GraphMemAttribute,
    LaunchCall,
    MemcpyKind,
    MemOp,
    MemoryRange,
)
from .hip_calls import (
    ERROR_NO_DEVICE,
    ERROR_NOT_READY,
    ERROR_NOT_SUPPORTED,
    ERROR_PEER_ACCESS_ALREADY_ENABLED,
    EVENT_DISABLE_TIMING,
    EXT_ANY_ORDER_LAUNCH,
    FUNCTION,
    HOST_REGISTER_MAPPED,
    KERNEL_NODE_LAYOUT,
    KERNEL_NODE_PARAMS,
    MEMORY_HOST,
    MEMORY_UNREGISTERED,
    PACK_KERNEL,
    POINTER_ATTRIBUTES,
    SEMAPHORE_PARAMS,
    STREAM_NON_BLOCKING,
    access_descs,
    address_of,
    does,
    handles,
    makes,
    no_attribute,
    pack_copy,
    pack_mem_ops,
    tells,
)
from .hip_graphs import HipGraphs
from .native import native

_LAUNCH_CALLS: Final = {
    "graph_launch": ("hipGraphLaunch", 0),
    "event_record": ("hipEventRecord", 0),
    "stream_wait_event": ("hipStreamWaitEvent", 1),
}
"""What `launch_calls` makes by compiled code: HIP's name, and the kind by which calls.h knows how it is called."""


@dataclass(slots=True)
class _Registered:
    """A piece of foreign memory that this process has page-locked: where it ends, and how many calls asked for it."""

    stop: int
    users: int = 1


_registrations: dict[type, dict[int, _Registered]] = {}
"""By platform and first byte: runtimes of several devices, and Executables whose arrays overlap, share them."""
_registering = threading.Lock()


class HipAbiRuntime(HipGraphs):
    """The protocol over a shared library with HIP's C ABI.

    Every method may be called from any thread; HIP's own rules (one thread at a time builds a graph, the current device
    belongs to the thread) stay. Out values of a call that failed are never read: HIP leaves garbage in them.

    Parameters
    ----------
    library : ctypes.CDLL
        The loaded library. A `ctypes.PyDLL` would deadlock with host callbacks.
    label : str
        What messages call the library, e.g. ``"libamdhip64 7.2"``.
    """

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        super().__init__(library, label)
        self._images: dict[int, bytes] = {}
        self._registered = _registrations.setdefault(type(self), {})
        self._query: tuple[Any, int] | None = None
        """hipStreamQuery and its address."""

    # -- the compiled call path ----------------------------------------------------------------------------------------
    def launcher(self, slow: Any) -> Any:
        module = native()
        return None if module is None else module.Launcher(slow)

    def launch_calls(self, calls: Sequence[LaunchCall], failures: list[Any]) -> CompiledCalls | None:
        module = native()
        for what in {call.what for call in calls if isinstance(call.what, str)}:
            # A method that somebody replaced, to see its calls or to let them fail, is not passed over.
            if what not in _LAUNCH_CALLS or getattr(getattr(self, what), "__func__", None) is not getattr(HipAbiRuntime, what):
                return None
        if module is None:
            return None
        known = {what: (address_of(getattr(self._hip, api)), kind) for what, (api, kind) in _LAUNCH_CALLS.items()}
        return CompiledCalls(module, calls, failures, known, lambda what, code: self._fail(_LAUNCH_CALLS[what][0], code))

    def kernel_adder(self, graph: int, *rest: Any) -> KernelAdder | None:
        module = native()
        # A method that somebody replaced, to see its calls or to let them fail, is not passed over.
        if module is None or getattr(self.graph_add_kernel_node, "__func__", None) is not self._adds_kernel_nodes():
            return None
        return cast("KernelAdder", module.KernelAdder(self._kernel_node_layout(), graph, *rest))

    @classmethod
    def _adds_kernel_nodes(cls) -> Any:
        """Return the method that the compiled adder does the work of."""
        return HipAbiRuntime.graph_add_kernel_node

    def _kernel_node_layout(self) -> bytes:
        add = address_of(self._hip.hipGraphAddKernelNode)
        return KERNEL_NODE_LAYOUT.pack(add, KERNEL_NODE_PARAMS.size, 24, 32, 0, 56, 48, 2**32 - 1)

    def launch_addresses(self) -> tuple[int, int]:
        return address_of(self._hip.hipGraphLaunch), address_of(self._hip.hipGraphExecKernelNodeSetParams)

    def current_addresses(self, device: int) -> tuple[int, int, int]:
        if self.get_device_count() < 2:
            return (0, 0, 0)
        return address_of(self._hip.hipGetDevice), address_of(self._hip.hipSetDevice), device

    def kernel_params(self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int) -> bytes:
        return PACK_KERNEL(*block, 0, function, *grid, args, shared_bytes)

    def add_failed(self, code: int) -> NoReturn:
        self._fail("hipGraphAddKernelNode", code)

    def launch_failed(self, code: int) -> NoReturn:
        """Raise for a code that hipGraphLaunch returned to the compiled call path."""
        self._fail("hipGraphLaunch", code)

    # -- device ----------------------------------------------------------------------------------------------------
    def runtime_get_version(self) -> tuple[int, ...]:
        number = self._integer("hipRuntimeGetVersion")
        return (number // 10_000_000, number // 100_000 % 100, number % 100_000)

    def get_device_count(self) -> int:
        out = c_int()
        code = self._hip.hipGetDeviceCount(byref(out))
        if code == ERROR_NO_DEVICE:
            self._clear_last_error()
            return 0
        self._check("hipGetDeviceCount", code)
        return out.value

    def set_device(self, device: int) -> None:
        code = self._hip.hipSetDevice(device)
        if code:
            self._fail("hipSetDevice", code)

    def get_device(self) -> int:
        return self._integer("hipGetDevice")

    def get_device_name(self, device: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._call("hipDeviceGetName", buffer, len(buffer), device)
        return buffer.value.decode(errors="replace")

    def device_get_attribute(self, attribute: int, device: int) -> int:
        """Return an integer attribute of a device; `attribute` is a value of hipDeviceAttribute_t."""
        return self._integer("hipDeviceGetAttribute", attribute, device)

    def mem_get_info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self._call("hipMemGetInfo", byref(free), byref(total))
        return free.value, total.value

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return bool(self._integer("hipDeviceCanAccessPeer", device, peer))

    def device_enable_peer_access(self, peer: int) -> None:
        code = self._hip.hipDeviceEnablePeerAccess(peer, 0)
        if code == ERROR_PEER_ACCESS_ALREADY_ENABLED:
            self._clear_last_error()
            return
        self._check("hipDeviceEnablePeerAccess", code)

    # -- memory ----------------------------------------------------------------------------------------------------
    malloc = makes("hipMalloc")
    free = does("hipFree")
    host_free = does("hipHostFree")
    device_graph_mem_trim = does("hipDeviceGraphMemTrim")
    malloc_async = makes("hipMallocAsync")
    free_async = does("hipFreeAsync")

    def host_malloc(self, nbytes: int) -> int:
        # Flags 0 is what AMD maps into every device's address space and keeps coherent.
        return self._new("hipHostMalloc", nbytes, 0)

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
            # AMD registers its own page-locked memory anew, and then cannot free it.
            if self.mem_get_address_range(pointer) is not None:
                return 0
            code = self._hip.hipHostRegister(pointer, nbytes, HOST_REGISTER_MAPPED)
            if code == ERROR_HOST_MEMORY_ALREADY_REGISTERED:  # by somebody else, who will also undo it
                self._clear_last_error()
                return 0
            self._check("hipHostRegister", code)
            known[pointer] = _Registered(stop)
        return pointer

    def host_unregister(self, registered: int) -> None:
        with _registering:
            piece = self._registered[registered]
            piece.users -= 1
            if not piece.users:
                del self._registered[registered]
                self._call("hipHostUnregister", registered)

    def memcpy(self, dst: int, src: int, nbytes: int, kind: MemcpyKind) -> None:
        # With host memory on one side, of whatever kind, AMD's call waits until the bytes are there (clr, ihipMemcpy), so that
        # streams that do not wait for the null stream see them. Only a copy within one device may return before it has ended.
        code = self._hip.hipMemcpy(dst, src, nbytes, kind)
        if code:
            self._fail("hipMemcpy", code)

    def memcpy_async(self, dst: int, src: int, nbytes: int, kind: MemcpyKind, stream: int) -> None:
        code = self._hip.hipMemcpyAsync(dst, src, nbytes, kind, stream)
        if code:
            self._fail("hipMemcpyAsync", code)

    def memcpy_3d_async(self, copy: Copy3D, stream: int) -> None:
        code = self._hip.hipMemcpy3DAsync(pack_copy(copy), stream)
        if code:
            self._fail("hipMemcpy3DAsync", code)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        size, value = fill.element_size, fill.value
        if fill.height > 1:
            bytes_of_value = value.to_bytes(size, "little")
            if len(set(bytes_of_value)) == 1:
                self._call("hipMemset2DAsync", fill.dst, fill.pitch_bytes, value & 0xFF, fill.width * size, fill.height, stream)
                return
            # HIP has no asynchronous 2-D fill of 2- or 4-byte values.
            for row in range(fill.height):
                self._fill_row(fill.dst + row * fill.pitch_bytes, size, value, fill.width, stream)
            return
        self._fill_row(fill.dst, size, value, fill.width, stream)

    def _fill_row(self, dst: int, size: int, value: int, width: int, stream: int) -> None:
        if size == 1:
            self._call("hipMemsetAsync", dst, value, width, stream)
        elif size == 2:
            self._call("hipMemsetD16Async", dst, value, width, stream)
        else:
            self._call("hipMemsetD32Async", dst, value, width, stream)

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
        if kind == MEMORY_UNREGISTERED or self._hip.hipMemGetAddressRange(byref(base), byref(nbytes), pointer):
            self._clear_last_error()
            return None
        return MemoryRange(base.value or 0, nbytes.value, kind == MEMORY_HOST)

    def mem_pool_set_access(self, device: int, access: Sequence[int]) -> None:
        pool = self._new("hipDeviceGetDefaultMemPool", device)
        self._call("hipMemPoolSetAccess", pool, access_descs(access), len(access))

    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None:
        self._call("hipStreamBatchMemOp", stream, len(ops), pack_mem_ops(ops), 0)

    # -- streams and events ------------------------------------------------------------------------------------------
    stream_destroy = does("hipStreamDestroy")
    launch_host_func = does("hipLaunchHostFunc")
    event_destroy = does("hipEventDestroy")
    event_synchronize = does("hipEventSynchronize")

    def stream_create(self, priority: int = 0) -> int:
        return self._new("hipStreamCreateWithPriority", STREAM_NON_BLOCKING, priority)

    def stream_synchronize(self, stream: int) -> None:
        code = self._hip.hipStreamSynchronize(stream)
        if code:
            self._fail("hipStreamSynchronize", code)

    def stream_get_device(self, stream: int) -> int:
        device = c_int()
        self._call("hipStreamGetDevice", stream, byref(device))
        return device.value

    def stream_query(self, stream: int) -> bool:
        code = self._hip.hipStreamQuery(stream)
        if code == ERROR_NOT_READY:
            self._clear_last_error()
            return False
        if code:
            self._fail("hipStreamQuery", code)
        return True

    def stream_wait(self, stream: int, timeout_s: float) -> bool:
        module, query = native(), self._hip.hipStreamQuery
        # A call that somebody replaced, to see it or to let it fail, is not passed over.
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
        return self._new("hipEventCreateWithFlags", 0 if timing else EVENT_DISABLE_TIMING)

    def event_record(self, event: int, stream: int) -> None:
        code = self._hip.hipEventRecord(event, stream)
        if code:
            self._fail("hipEventRecord", code)

    def event_elapsed_time(self, start: int, stop: int) -> float:
        milliseconds = c_float()
        self._call("hipEventElapsedTime", byref(milliseconds), start, stop)
        return milliseconds.value

    def signal_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        params = ctypes.create_string_buffer(SEMAPHORE_PARAMS.pack(value, 0), SEMAPHORE_PARAMS.size)
        self._call("hipSignalExternalSemaphoresAsync", byref(c_void_p(semaphore)), params, 1, stream)

    def wait_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        params = ctypes.create_string_buffer(SEMAPHORE_PARAMS.pack(value, 0), SEMAPHORE_PARAMS.size)
        self._call("hipWaitExternalSemaphoresAsync", byref(c_void_p(semaphore)), params, 1, stream)

    # -- modules ---------------------------------------------------------------------------------------------------
    def module_load_data(self, image: bytes) -> int:
        module = self._new("hipModuleLoadData", image)
        # AMD's runtime does not copy the image.
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
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        stream: int,
        args: int,
        cooperative: bool = False,
        **attributes: Any,
    ) -> None:
        if attributes.pop("any_order", False):
            threads = (blocks * own for blocks, own in zip(grid, block))
            how = (None, None, None, EXT_ANY_ORDER_LAUNCH)  # no packed arguments, no events of its start and stop
            self._call("hipExtModuleLaunchKernel", function, *threads, *block, shared_bytes, stream, args, *how)
            return
        if attributes:
            raise HipError("hipModuleLaunchKernel", ERROR_NOT_SUPPORTED, "hipErrorNotSupported", no_attribute(*attributes))
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
        # `nodes` points into the stream: it is copied before another call can change it.
        dependencies = tuple(node or 0 for node in nodes[: count.value])
        return CaptureInfo(CaptureStatus.ACTIVE, number.value, graph.value or 0, dependencies)

    def stream_update_capture_dependencies(self, stream: int, nodes: Sequence[int], replace: bool) -> None:
        self._call("hipStreamUpdateCaptureDependencies", stream, handles(nodes), len(nodes), int(replace))
