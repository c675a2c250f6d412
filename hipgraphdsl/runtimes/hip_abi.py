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
import struct
import threading
from collections.abc import Callable, Sequence
from ctypes import (
    byref,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
    c_ulonglong,
    c_void_p,
)
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from ..errors import HipError
from .base import (
    ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    Copy3D,
    Dim3,
    Fill2D,
    GraphMemAttribute,
    HostParams,
    KernelAdder,
    KernelParams,
    MemcpyKind,
    MemOp,
    MemoryRange,
    NodeType,
    Runtime,
)
from .native import native

__all__ = [
    "ERROR_NOT_READY",
    "ERROR_NOT_SUPPORTED",
    "ERROR_NO_DEVICE",
    "PROTOTYPES",
    "STRUCT_LAYOUTS",
    "HipAbiRuntime",
    "HipCalls",
    "address_of",
]

ERROR_NO_DEVICE = 100
ERROR_NOT_READY = 600
_FUNCTION = ctypes.CFUNCTYPE(None).__mro__[1]  # what every function of a library is
ERROR_PEER_ACCESS_ALREADY_ENABLED = 704
ERROR_NOT_SUPPORTED = 801

_STREAM_NON_BLOCKING = 1
_HOST_REGISTER_MAPPED = 1 | 2  # for every device
_EVENT_DISABLE_TIMING = 2
_LOCATION_DEVICE = 1
_ALLOCATION_PINNED = 1
_ACCESS_READ_WRITE = 3
_ATTRIBUTE_COOPERATIVE = 2
_ATTRIBUTE_PRIORITY = 8
_MEMORY_UNREGISTERED = 0  # hipMemoryType
_MEMORY_HOST = 1

_NO_CLUSTERS = "HIP has no thread block clusters"

# Structures, in `struct` notation. `STRUCT_LAYOUTS` names them for the test that compiles AMD's header.
KERNEL_NODE_LAYOUT = struct.Struct("=QIIIIIIQ")
"""Address of the call, bytes of its parameters, offsets of function, grid, block, shared bytes, arguments; most shared bytes."""
_KERNEL_NODE_PARAMS = struct.Struct("=3I4xQQ3I4xQI4x")  # blockDim, extra, func, gridDim, kernelParams, sharedMemBytes
_MEMSET_PARAMS = struct.Struct("=QI4xQQI4xQ")  # dst, elementSize, height, pitch, value, width
_HOST_NODE_PARAMS = struct.Struct("=QQ")  # fn, userData
_MEMCPY_3D_PARMS = struct.Struct("=Q3Q4QQ3Q4Q3Qi4x")  # src array, pos, ptr; dst array, pos, ptr; extent, kind
# allocType, handleTypes, location type and id, win32, maxSize, reserved; accessDescs, accessDescCount, bytesize, dptr
_MEM_ALLOC_NODE_PARAMS = struct.Struct("=iiiiQQ56xQQQQ")
_MEM_ACCESS_DESC = struct.Struct("=iii")  # location type and id, flags
BATCH_MEM_OP_NODE_PARAMS = struct.Struct("=QI4xQI4x")  # ctx, count, paramArray, flags
_STREAM_BATCH_MEM_OP_PARAMS = struct.Struct("=i4xQQI4xQ8x")  # operation, address, value, flags, alias
_SEMAPHORE_NODE_PARAMS = struct.Struct("=QQI4x")  # extSemArray, paramsArray, numExtSems
_SEMAPHORE_PARAMS = struct.Struct("=Q64xI68x")  # params.fence.value, flags
_LAUNCH_ATTRIBUTE_VALUE = struct.Struct("=i60x")
_POINTER_ATTRIBUTES = struct.Struct("=iiQQiI")  # type, device, devicePointer, hostPointer, isManaged, allocationFlags

STRUCT_LAYOUTS: dict[str, tuple[struct.Struct, dict[str, int]]] = {
    "hipKernelNodeParams": (
        _KERNEL_NODE_PARAMS,
        {"blockDim": 0, "extra": 16, "func": 24, "gridDim": 32, "kernelParams": 48, "sharedMemBytes": 56},
    ),
    "hipMemsetParams": (
        _MEMSET_PARAMS,
        {"dst": 0, "elementSize": 8, "height": 16, "pitch": 24, "value": 32, "width": 40},
    ),
    "hipHostNodeParams": (_HOST_NODE_PARAMS, {"fn": 0, "userData": 8}),
    "hipMemcpy3DParms": (
        _MEMCPY_3D_PARMS,
        {
            "srcArray": 0,
            "srcPos": 8,
            "srcPtr": 32,
            "dstArray": 64,
            "dstPos": 72,
            "dstPtr": 96,
            "extent": 128,
            "kind": 152,
        },
    ),
    "hipMemAllocNodeParams": (
        _MEM_ALLOC_NODE_PARAMS,
        {
            "poolProps": 0,
            "poolProps.location": 8,
            "poolProps.maxSize": 24,
            "accessDescs": 88,
            "accessDescCount": 96,
            "bytesize": 104,
            "dptr": 112,
        },
    ),
    "hipMemAccessDesc": (_MEM_ACCESS_DESC, {"location": 0, "flags": 8}),
    "hipBatchMemOpNodeParams": (BATCH_MEM_OP_NODE_PARAMS, {"ctx": 0, "count": 8, "paramArray": 16, "flags": 24}),
    "hipStreamBatchMemOpParams": (
        _STREAM_BATCH_MEM_OP_PARAMS,
        {"waitValue.address": 8, "waitValue.value64": 16, "waitValue.flags": 24, "waitValue.alias": 32},
    ),
    "hipExternalSemaphoreSignalNodeParams": (
        _SEMAPHORE_NODE_PARAMS,
        {"extSemArray": 0, "paramsArray": 8, "numExtSems": 16},
    ),
    "hipExternalSemaphoreWaitNodeParams": (
        _SEMAPHORE_NODE_PARAMS,
        {"extSemArray": 0, "paramsArray": 8, "numExtSems": 16},
    ),
    "hipExternalSemaphoreSignalParams": (_SEMAPHORE_PARAMS, {"params.fence.value": 0, "flags": 72}),
    "hipExternalSemaphoreWaitParams": (_SEMAPHORE_PARAMS, {"params.fence.value": 0, "flags": 72}),
    "hipPointerAttribute_t": (
        _POINTER_ATTRIBUTES,
        {"type": 0, "device": 4, "devicePointer": 8, "hostPointer": 16, "isManaged": 24, "allocationFlags": 28},
    ),
    "hipLaunchAttributeValue": (_LAUNCH_ATTRIBUTE_VALUE, {"cooperative": 0, "priority": 0}),
}

# hipStreamBatchMemOpParams.operation by (op, bytes), and the flags of a wait.
_MEM_OPERATIONS = {("wait", 4): 1, ("write", 4): 2, ("wait", 8): 4, ("write", 8): 5}
MEM_CONDITIONS = {"geq": 0, "eq": 1, "and": 2, "nor": 3}

_P, _U, _Z, _I = c_void_p, c_uint, c_size_t, c_int
_NODE = (_P, _P, _P, _Z)  # address of the new handle, graph, dependencies, their number

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "hipInit": (_U,),
    "hipRuntimeGetVersion": (_P,),
    "hipGetLastError": (),
    "hipGetDeviceCount": (_P,),
    "hipSetDevice": (_I,),
    "hipGetDevice": (_P,),
    "hipDeviceGetName": (_P, _I, _I),
    "hipDeviceGetAttribute": (_P, _I, _I),
    "hipGetDevicePropertiesR0600": (_P, _I),
    "hipDeviceCanAccessPeer": (_P, _I, _I),
    "hipDeviceEnablePeerAccess": (_I, _U),
    "hipDevicePrimaryCtxRetain": (_P, _I),
    "hipDevicePrimaryCtxRelease": (_I,),
    "hipMemGetInfo": (_P, _P),
    "hipMalloc": (_P, _Z),
    "hipFree": (_P,),
    "hipHostMalloc": (_P, _Z, _U),
    "hipHostFree": (_P,),
    "hipHostRegister": (_P, _Z, _U),
    "hipHostUnregister": (_P,),
    "hipMemcpy": (_P, _P, _Z, _I),
    "hipMemcpyAsync": (_P, _P, _Z, _I, _P),
    "hipMemcpy3DAsync": (_P, _P),
    "hipMemsetAsync": (_P, _I, _Z, _P),
    "hipMemsetD16Async": (_P, c_uint16, _Z, _P),
    "hipMemsetD32Async": (_P, _I, _Z, _P),
    "hipMemset2DAsync": (_P, _Z, _I, _Z, _Z, _P),
    "hipDeviceGetGraphMemAttribute": (_I, _I, _P),
    "hipDeviceSetGraphMemAttribute": (_I, _I, _P),
    "hipDeviceGraphMemTrim": (_I,),
    "hipMemGetAddressRange": (_P, _P, _P),
    "hipPointerGetAttributes": (_P, _P),
    "hipDeviceGetDefaultMemPool": (_P, _I),
    "hipMemPoolSetAccess": (_P, _P, _Z),
    "hipMallocAsync": (_P, _Z, _P),
    "hipFreeAsync": (_P, _P),
    "hipStreamBatchMemOp": (_P, _U, _P, _U),
    "hipStreamWriteValue32": (_P, _P, c_uint32, _U),
    "hipStreamWriteValue64": (_P, _P, c_uint64, _U),
    "hipStreamWaitValue32": (_P, _P, c_uint32, _U, c_uint32),
    "hipStreamWaitValue64": (_P, _P, c_uint64, _U, c_uint64),
    "hipSignalExternalSemaphoresAsync": (_P, _P, _U, _P),
    "hipWaitExternalSemaphoresAsync": (_P, _P, _U, _P),
    "hipStreamCreateWithPriority": (_P, _U, _I),
    "hipStreamDestroy": (_P,),
    "hipStreamSynchronize": (_P,),
    "hipStreamQuery": (_P,),
    "hipStreamGetDevice": (_P, _P),
    "hipStreamWaitEvent": (_P, _P, _U),
    "hipLaunchHostFunc": (_P, _P, _P),
    "hipEventCreateWithFlags": (_P, _U),
    "hipEventDestroy": (_P,),
    "hipEventRecord": (_P, _P),
    "hipEventSynchronize": (_P,),
    "hipEventElapsedTime": (_P, _P, _P),
    "hipModuleLoadData": (_P, _P),
    "hipModuleUnload": (_P,),
    "hipModuleGetFunction": (_P, _P, c_char_p),
    "hipGetFuncBySymbol": (_P, _P),
    "hipModuleGetGlobal": (_P, _P, _P, c_char_p),
    "hipModuleLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "hipModuleLaunchCooperativeKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P),
    "hipStreamBeginCapture": (_P, _I),
    "hipStreamEndCapture": (_P, _P),
    "hipStreamGetCaptureInfo_v2": (_P, _P, _P, _P, _P, _P),
    "hipStreamUpdateCaptureDependencies": (_P, _P, _Z, _U),
    "hipThreadExchangeStreamCaptureMode": (_P,),
    "hipGraphCreate": (_P, _U),
    "hipGraphDestroy": (_P,),
    "hipGraphAddKernelNode": (*_NODE, _P),
    "hipGraphKernelNodeSetAttribute": (_P, _I, _P),
    "hipGraphKernelNodeGetAttribute": (_P, _I, _P),
    "hipGraphAddMemcpyNode1D": (*_NODE, _P, _P, _Z, _I),
    "hipGraphAddMemcpyNode": (*_NODE, _P),
    "hipGraphAddMemsetNode": (*_NODE, _P),
    "hipGraphAddHostNode": (*_NODE, _P),
    "hipGraphAddMemAllocNode": (*_NODE, _P),
    "hipGraphAddMemFreeNode": (*_NODE, _P),
    "hipGraphAddEmptyNode": _NODE,
    "hipGraphAddChildGraphNode": (*_NODE, _P),
    "hipGraphAddEventRecordNode": (*_NODE, _P),
    "hipGraphAddEventWaitNode": (*_NODE, _P),
    "hipGraphAddExternalSemaphoresSignalNode": (*_NODE, _P),
    "hipGraphAddExternalSemaphoresWaitNode": (*_NODE, _P),
    "hipGraphAddBatchMemOpNode": (*_NODE, _P),
    "hipGraphAddDependencies": (_P, _P, _P, _Z),
    "hipGraphGetNodes": (_P, _P, _P),
    "hipGraphGetEdges": (_P, _P, _P, _P),
    "hipGraphNodeGetType": (_P, _P),
    "hipGraphKernelNodeGetParams": (_P, _P),
    "hipGraphMemcpyNodeGetParams": (_P, _P),
    "hipGraphMemsetNodeGetParams": (_P, _P),
    "hipGraphHostNodeGetParams": (_P, _P),
    "hipGraphMemAllocNodeGetParams": (_P, _P),
    "hipGraphMemFreeNodeGetParams": (_P, _P),
    "hipGraphEventRecordNodeGetEvent": (_P, _P),
    "hipGraphEventWaitNodeGetEvent": (_P, _P),
    "hipGraphExternalSemaphoresSignalNodeGetParams": (_P, _P),
    "hipGraphExternalSemaphoresWaitNodeGetParams": (_P, _P),
    "hipGraphBatchMemOpNodeGetParams": (_P, _P),
    "hipGraphChildGraphNodeGetGraph": (_P, _P),
    "hipGraphInstantiateWithFlags": (_P, _P, c_ulonglong),
    "hipGraphExecDestroy": (_P,),
    "hipGraphLaunch": (_P, _P),
    "hipGraphExecKernelNodeSetParams": (_P, _P, _P),
    "hipGraphExecMemcpyNodeSetParams1D": (_P, _P, _P, _P, _Z, _I),
    "hipGraphExecMemcpyNodeSetParams": (_P, _P, _P),
    "hipGraphExecMemsetNodeSetParams": (_P, _P, _P),
    "hipGraphExecHostNodeSetParams": (_P, _P, _P),
    "hipGraphExecChildGraphNodeSetParams": (_P, _P, _P),
    "hipGraphExecEventRecordNodeSetEvent": (_P, _P, _P),
    "hipGraphExecEventWaitNodeSetEvent": (_P, _P, _P),
    "hipGraphNodeSetEnabled": (_P, _P, _U),
}

_Call = Callable[..., int]


class HipCalls:
    """The library's functions as attributes, each bound with its prototype at first use.

    Reading one that the library does not export raises `HipError` (hipErrorNotSupported), so an old runtime is refused
    only where the missing call is needed.
    """

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        self._library = library
        self._label = label

    def __getattr__(self, api: str) -> _Call:
        prototype = PROTOTYPES.get(api)
        if prototype is None:
            raise AttributeError(api)
        try:
            function = getattr(self._library, api)
        except AttributeError:
            raise HipError(
                api, ERROR_NOT_SUPPORTED, "hipErrorNotSupported", f"{self._label} does not export it"
            ) from None
        function.argtypes = prototype
        function.restype = c_int
        setattr(self, api, function)
        return cast(_Call, function)

    def exports(self, api: str) -> bool:
        """Return whether the library has this function."""
        return hasattr(self._library, api)


def address_of(call: _Call) -> int:
    """Return where a function of a library, or a callback, begins."""
    return ctypes.cast(cast(Any, call), c_void_p).value or 0
@dataclass(slots=True)
class _Registered:
    """A piece of foreign memory that this process has page-locked: where it ends, and how many calls asked for it."""

    stop: int
    users: int = 1


_registrations: dict[type, dict[int, _Registered]] = {}
"""By platform and first byte: runtimes of several devices, and Executables whose arrays overlap, share them."""
_registering = threading.Lock()


class _Packers(dict[int, Callable[..., bytes]]):
    """For n handles, the function that packs them into bytes."""

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = struct.Struct(f"={count}Q").pack
        if count <= 256:
            self[count] = pack
        return pack


_PACK_HANDLES = _Packers()
_PACK_KERNEL = _KERNEL_NODE_PARAMS.pack


def _handles(handles: Sequence[int]) -> bytes | None:
    # HIP refuses an address with a count of 0 for some node types, hence None.
    count = len(handles)
    return _PACK_HANDLES[count](*handles) if count else None


def _pack_copy(copy: Copy3D) -> bytes:
    # xsize, the extent of the allocation, is 0: HIP only checks by it, and would refuse a box whose last row ends before a
    # whole pitch of the allocation is left.
    return _MEMCPY_3D_PARMS.pack(
        0,
        *copy.src_pos,
        copy.src,
        copy.src_pitch_bytes,
        0,
        copy.src_rows,
        0,
        *copy.dst_pos,
        copy.dst,
        copy.dst_pitch_bytes,
        0,
        copy.dst_rows,
        copy.width_bytes,
        copy.height,
        copy.depth,
        copy.kind,
    )


def _pack_fill(fill: Fill2D) -> bytes:
    # AMD checks the pitch of one row too.
    pitch_bytes = fill.pitch_bytes or fill.width * fill.element_size
    return _MEMSET_PARAMS.pack(fill.dst, fill.element_size, fill.height, pitch_bytes, fill.value, fill.width)


def pack_mem_ops(ops: Sequence[MemOp]) -> bytes:
    return b"".join(
        _STREAM_BATCH_MEM_OP_PARAMS.pack(
            _MEM_OPERATIONS[op.op, op.size],
            op.address,
            op.value,
            MEM_CONDITIONS[op.condition] if op.op == "wait" else 0,
            0,
        )
        for op in ops
    )


def _access_descs(devices: Sequence[int]) -> ctypes.Array[ctypes.c_char]:
    """Return the descriptors (hipMemAccessDesc) that let devices read and write."""
    packed = b"".join(_MEM_ACCESS_DESC.pack(_LOCATION_DEVICE, device, _ACCESS_READ_WRITE) for device in devices)
    return ctypes.create_string_buffer(packed, max(len(packed), 1))


class HipAbiRuntime(Runtime):
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
        self._hip = HipCalls(library, label)
        self._images: dict[int, bytes] = {}
        self._registered = _registrations.setdefault(type(self), {})
        self._mem_op_arrays: dict[bytes, ctypes.Array[ctypes.c_char]] = {}
        self._error_name = self._text_function(library, "hipGetErrorName")
        self._error_string = self._text_function(library, "hipGetErrorString")
        self._clears_last_error = self._hip.exports("hipGetLastError")
        self._query: tuple[Any, int] | None = None
        """hipStreamQuery and its address."""

    @staticmethod
    def _text_function(library: ctypes.CDLL, api: str) -> Callable[[int], bytes | None] | None:
        function = getattr(library, api, None)
        if function is None:
            return None
        function.argtypes = (c_int,)
        function.restype = c_char_p
        return cast("Callable[[int], bytes | None]", function)

    # -- the compiled call path ----------------------------------------------------------------------------------------
    def launcher(self, slow: Any) -> Any:
        module = native()
        return None if module is None else module.Launcher(slow)

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
        return KERNEL_NODE_LAYOUT.pack(add, _KERNEL_NODE_PARAMS.size, 24, 32, 0, 56, 48, 2**32 - 1)

    def launch_addresses(self) -> tuple[int, int]:
        return address_of(self._hip.hipGraphLaunch), address_of(self._hip.hipGraphExecKernelNodeSetParams)

    def current_addresses(self, device: int) -> tuple[int, int, int]:
        if self.get_device_count() < 2:
            return (0, 0, 0)
        return address_of(self._hip.hipGetDevice), address_of(self._hip.hipSetDevice), device

    def kernel_params(self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int) -> bytes:
        return _PACK_KERNEL(*block, 0, function, *grid, args, shared_bytes)

    def add_failed(self, code: int) -> NoReturn:
        self._fail("hipGraphAddKernelNode", code)

    def launch_failed(self, code: int) -> NoReturn:
        """Raise for a code that hipGraphLaunch returned to the compiled call path."""
        self._fail("hipGraphLaunch", code)

    # -- errors ----------------------------------------------------------------------------------------------------
    def _check(self, api: str, code: int, detail: str = "") -> None:
        """Raise the `HipError` of a code other than hipSuccess."""
        if code:
            self._fail(api, code, detail)

    def _fail(self, api: str, code: int, detail: str = "") -> NoReturn:
        name = self._error_name(code) if self._error_name else None
        text = self._error_string(code) if self._error_string else None
        self._clear_last_error()
        said = text.decode(errors="replace") if text else ""
        raise HipError(
            api,
            code,
            name.decode(errors="replace") if name else f"hipError {code}",
            f"{said}; {detail}" if said and detail else said or detail,
        )

    def _clear_last_error(self) -> None:
        # The error is reported by exception: another library of this thread must not find it in hipGetLastError.
        if self._clears_last_error:
            self._hip.hipGetLastError()

    def _call(self, api: str, *args: Any) -> None:
        code = getattr(self._hip, api)(*args)
        if code:
            self._fail(api, code)

    def _new(self, api: str, *args: Any) -> int:
        """Call a function whose first argument is the address of the handle that it makes."""
        out = c_void_p()
        code = getattr(self._hip, api)(byref(out), *args)
        if code:
            self._fail(api, code)
        return out.value or 0

    def _new_last(self, api: str, *args: Any) -> int:
        """Call a function whose last argument is the address of the handle that it answers."""
        out = c_void_p()
        code = getattr(self._hip, api)(*args, byref(out))
        if code:
            self._fail(api, code)
        return out.value or 0

    def _integer(self, api: str, *args: Any) -> int:
        """Call a function whose first argument is the address of the int that it answers."""
        out = c_int()
        code = getattr(self._hip, api)(byref(out), *args)
        if code:
            self._fail(api, code)
        return out.value

    def _two_calls(self, api: str, handle: int, arrays: int = 1) -> tuple[tuple[int, ...], ...]:
        """Ask for the number first and then for the handles; `arrays` of them in parallel."""
        call = getattr(self._hip, api)
        count = c_size_t()
        code = call(handle, *[None] * arrays, byref(count))
        if code:
            self._fail(api, code)
        if not count.value:
            return ((),) * arrays
        asked = [(c_void_p * count.value)() for _ in range(arrays)]
        code = call(handle, *asked, byref(count))
        if code:
            self._fail(api, code)
        return tuple(tuple(value or 0 for value in array[: count.value]) for array in asked)

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
    def malloc(self, nbytes: int) -> int:
        return self._new("hipMalloc", nbytes)

    def free(self, pointer: int) -> None:
        self._call("hipFree", pointer)

    def host_malloc(self, nbytes: int) -> int:
        # Flags 0 is what AMD maps into every device's address space and keeps coherent.
        return self._new("hipHostMalloc", nbytes, 0)

    def host_free(self, pointer: int) -> None:
        self._call("hipHostFree", pointer)

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
                        "hipHostRegister", ERROR_HOST_MEMORY_ALREADY_REGISTERED, "hipErrorHostMemoryAlreadyRegistered",
                        "a part of it is page-locked already, and no copy reaches across the end of that part",
                    )
            # AMD registers its own page-locked memory anew, and then cannot free it.
            if self.mem_get_address_range(pointer) is not None:
                return 0
            code = self._hip.hipHostRegister(pointer, nbytes, _HOST_REGISTER_MAPPED)
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
        code = self._hip.hipMemcpy3DAsync(_pack_copy(copy), stream)
        if code:
            self._fail("hipMemcpy3DAsync", code)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        size, value = fill.element_size, fill.value
        if fill.height > 1:
            bytes_of_value = value.to_bytes(size, "little")
            if len(set(bytes_of_value)) == 1:
                self._call(
                    "hipMemset2DAsync", fill.dst, fill.pitch_bytes, value & 0xFF, fill.width * size, fill.height, stream
                )
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

    def device_graph_mem_trim(self, device: int) -> None:
        self._call("hipDeviceGraphMemTrim", device)

    def mem_get_address_range(self, pointer: int) -> MemoryRange | None:
        attributes = ctypes.create_string_buffer(_POINTER_ATTRIBUTES.size)
        base, nbytes = c_void_p(), c_size_t()
        if not (self._hip.exports("hipPointerGetAttributes") and self._hip.exports("hipMemGetAddressRange")):
            return None
        if self._hip.hipPointerGetAttributes(attributes, pointer):
            self._clear_last_error()
            return None
        kind = _POINTER_ATTRIBUTES.unpack(attributes)[0]
        if kind == _MEMORY_UNREGISTERED or self._hip.hipMemGetAddressRange(byref(base), byref(nbytes), pointer):
            self._clear_last_error()
            return None
        return MemoryRange(base.value or 0, nbytes.value, kind == _MEMORY_HOST)

    def mem_pool_set_access(self, device: int, access: Sequence[int]) -> None:
        pool = self._new("hipDeviceGetDefaultMemPool", device)
        self._call("hipMemPoolSetAccess", pool, _access_descs(access), len(access))

    def malloc_async(self, nbytes: int, stream: int) -> int:
        return self._new("hipMallocAsync", nbytes, stream)

    def free_async(self, pointer: int, stream: int) -> None:
        self._call("hipFreeAsync", pointer, stream)

    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None:
        self._call("hipStreamBatchMemOp", stream, len(ops), pack_mem_ops(ops), 0)

    # -- streams and events ------------------------------------------------------------------------------------------
    def stream_create(self, priority: int = 0) -> int:
        return self._new("hipStreamCreateWithPriority", _STREAM_NON_BLOCKING, priority)

    def stream_destroy(self, stream: int) -> None:
        self._call("hipStreamDestroy", stream)

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
        if module is None or not isinstance(query, _FUNCTION) or "stream_query" in vars(self):
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

    def launch_host_func(self, stream: int, fn: int, user_data: int) -> None:
        self._call("hipLaunchHostFunc", stream, fn, user_data)

    def event_create(self, timing: bool = True) -> int:
        return self._new("hipEventCreateWithFlags", 0 if timing else _EVENT_DISABLE_TIMING)

    def event_destroy(self, event: int) -> None:
        self._call("hipEventDestroy", event)

    def event_record(self, event: int, stream: int) -> None:
        code = self._hip.hipEventRecord(event, stream)
        if code:
            self._fail("hipEventRecord", code)

    def event_synchronize(self, event: int) -> None:
        self._call("hipEventSynchronize", event)

    def event_elapsed_time(self, start: int, stop: int) -> float:
        milliseconds = c_float()
        self._call("hipEventElapsedTime", byref(milliseconds), start, stop)
        return milliseconds.value

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
        cluster: Dim3 | None = None,
    ) -> None:
        if cluster is not None:
            raise HipError("hipModuleLaunchKernel", ERROR_NOT_SUPPORTED, "hipErrorNotSupported", _NO_CLUSTERS)
        if cooperative:
            self._call("hipModuleLaunchCooperativeKernel", function, *grid, *block, shared_bytes, stream, args)
            return
        code = self._hip.hipModuleLaunchKernel(function, *grid, *block, shared_bytes, stream, args, None)
        if code:
            self._fail("hipModuleLaunchKernel", code)

    # -- capture ---------------------------------------------------------------------------------------------------
    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None:
        self._call("hipStreamBeginCapture", stream, mode)

    def stream_end_capture(self, stream: int) -> int:
        return self._new_last("hipStreamEndCapture", stream)

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
        self._call("hipStreamUpdateCaptureDependencies", stream, _handles(nodes), len(nodes), int(replace))

    # -- graphs ----------------------------------------------------------------------------------------------------
    def _add(self, api: str, graph: int, deps: Sequence[int], *params: Any) -> int:
        out = c_void_p()
        count = len(deps)
        code = getattr(self._hip, api)(
            byref(out), graph, _PACK_HANDLES[count](*deps) if count else None, count, *params
        )
        if code:
            self._fail(api, code)
        return out.value or 0

    def graph_create(self) -> int:
        return self._new("hipGraphCreate", 0)

    def graph_destroy(self, graph: int) -> None:
        self._call("hipGraphDestroy", graph)

    def graph_add_kernel_node(
        self, graph: int, deps: Sequence[int], function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> int:
        # Named extents: unpacking them in the call would build a list and a tuple first (0.1 us).
        block_x, block_y, block_z = block
        grid_x, grid_y, grid_z = grid
        out = c_void_p()
        count = len(deps)
        code = self._hip.hipGraphAddKernelNode(
            byref(out),
            graph,
            _PACK_HANDLES[count](*deps) if count else None,
            count,
            _PACK_KERNEL(block_x, block_y, block_z, 0, function, grid_x, grid_y, grid_z, args, shared_bytes),
        )
        if code:
            self._fail("hipGraphAddKernelNode", code)
        return out.value or 0

    def graph_kernel_node_set_attributes(
        self, node: int, *, cooperative: bool = False, priority: int | None = None, cluster: Dim3 | None = None
    ) -> None:
        api = "hipGraphKernelNodeSetAttribute"
        if cluster is not None:
            raise HipError(api, ERROR_NOT_SUPPORTED, "hipErrorNotSupported", _NO_CLUSTERS)
        if cooperative:
            self._call(api, node, _ATTRIBUTE_COOPERATIVE, _LAUNCH_ATTRIBUTE_VALUE.pack(1))
        if priority is not None:
            self._call(api, node, _ATTRIBUTE_PRIORITY, _LAUNCH_ATTRIBUTE_VALUE.pack(priority))

    def graph_add_memcpy_node_1d(
        self, graph: int, deps: Sequence[int], dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> int:
        return self._add("hipGraphAddMemcpyNode1D", graph, deps, dst, src, nbytes, kind)

    def graph_add_memcpy_node(self, graph: int, deps: Sequence[int], copy: Copy3D) -> int:
        return self._add("hipGraphAddMemcpyNode", graph, deps, _pack_copy(copy))

    def graph_add_memset_node(self, graph: int, deps: Sequence[int], fill: Fill2D) -> int:
        return self._add("hipGraphAddMemsetNode", graph, deps, _pack_fill(fill))

    def graph_add_host_node(self, graph: int, deps: Sequence[int], fn: int, user_data: int) -> int:
        return self._add("hipGraphAddHostNode", graph, deps, _HOST_NODE_PARAMS.pack(fn, user_data))

    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        # HIP writes the pointer into the structure, so it cannot be `bytes`.
        params = ctypes.create_string_buffer(_MEM_ALLOC_NODE_PARAMS.size)
        descs = _access_descs(access)
        address = ctypes.addressof(descs) if access else 0
        _MEM_ALLOC_NODE_PARAMS.pack_into(
            params, 0, _ALLOCATION_PINNED, 0, _LOCATION_DEVICE, device, 0, 0, address, len(access), nbytes, 0
        )
        node = self._add("hipGraphAddMemAllocNode", graph, deps, params)
        return node, int(_MEM_ALLOC_NODE_PARAMS.unpack(params)[-1])

    def graph_add_mem_free_node(self, graph: int, deps: Sequence[int], pointer: int) -> int:
        return self._add("hipGraphAddMemFreeNode", graph, deps, pointer)

    def graph_add_empty_node(self, graph: int, deps: Sequence[int]) -> int:
        return self._add("hipGraphAddEmptyNode", graph, deps)

    def graph_add_child_graph_node(self, graph: int, deps: Sequence[int], child: int) -> int:
        return self._add("hipGraphAddChildGraphNode", graph, deps, child)

    def graph_add_event_record_node(self, graph: int, deps: Sequence[int], event: int) -> int:
        return self._add("hipGraphAddEventRecordNode", graph, deps, event)

    def graph_add_event_wait_node(self, graph: int, deps: Sequence[int], event: int) -> int:
        return self._add("hipGraphAddEventWaitNode", graph, deps, event)

    def graph_add_external_semaphores_signal_node(
        self, graph: int, deps: Sequence[int], semaphore: int, value: int
    ) -> int:
        return self._add_semaphore("hipGraphAddExternalSemaphoresSignalNode", graph, deps, semaphore, value)

    def graph_add_external_semaphores_wait_node(
        self, graph: int, deps: Sequence[int], semaphore: int, value: int
    ) -> int:
        return self._add_semaphore("hipGraphAddExternalSemaphoresWaitNode", graph, deps, semaphore, value)

    def _add_semaphore(self, api: str, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int:
        handle = c_void_p(semaphore)
        params = ctypes.create_string_buffer(_SEMAPHORE_PARAMS.pack(value, 0), _SEMAPHORE_PARAMS.size)
        return self._add(
            api,
            graph,
            deps,
            _SEMAPHORE_NODE_PARAMS.pack(ctypes.addressof(handle), ctypes.addressof(params), 1),
        )

    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[MemOp]) -> int:
        # AMD's node keeps the address of the array, not a copy, and so does every executable that is made of it. Arrays
        # of equal content are shared, so that they can be kept for good.
        packed = pack_mem_ops(ops)
        array = self._mem_op_arrays.setdefault(packed, ctypes.create_string_buffer(packed, len(packed)))
        # AMD refuses a null context. The primary one lives as long as the process, so it is released at once.
        device = self.get_device()
        context = self._new("hipDevicePrimaryCtxRetain", device)
        self._call("hipDevicePrimaryCtxRelease", device)
        params = BATCH_MEM_OP_NODE_PARAMS.pack(context, len(ops), ctypes.addressof(array), 0)
        return self._add("hipGraphAddBatchMemOpNode", graph, deps, params)

    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._call("hipGraphAddDependencies", graph, _handles(sources), _handles(targets), len(sources))

    # -- what a graph holds ------------------------------------------------------------------------------------------
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
            raise HipError(
                "hipGraphNodeGetType",
                ERROR_NOT_SUPPORTED,
                "hipErrorNotSupported",
                f"node type {out.value} is not known here",
            ) from None

    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        """Return what a kernel node would launch; `args` stays valid until the node is changed or destroyed."""
        params = ctypes.create_string_buffer(_KERNEL_NODE_PARAMS.size)
        self._call("hipGraphKernelNodeGetParams", node, params)
        bx, by, bz, extra, function, gx, gy, gz, args, shared_bytes = _KERNEL_NODE_PARAMS.unpack(params)
        return KernelParams(function, (gx, gy, gz), (bx, by, bz), shared_bytes, args, extra)

    def graph_memcpy_node_get_params(self, node: int) -> Copy3D:
        """Return the copy of a memcpy node; one added as 1-D may be refused (hipErrorInvalidValue) by AMD."""
        params = ctypes.create_string_buffer(_MEMCPY_3D_PARMS.size)
        self._call("hipGraphMemcpyNodeGetParams", node, params)
        value = _MEMCPY_3D_PARMS.unpack(params)
        src_pos, (src, src_pitch_bytes, _, src_rows) = value[1:4], value[4:8]
        dst_pos, (dst, dst_pitch_bytes, _, dst_rows) = value[9:12], value[12:16]
        width_bytes, height, depth = value[16:19]
        return Copy3D(
            dst, dst_pitch_bytes, dst_rows, src, src_pitch_bytes, src_rows, width_bytes, height, depth,
            MemcpyKind(value[19]), dst_pos, src_pos,
        )  # fmt: skip

    def graph_memset_node_get_params(self, node: int) -> Fill2D:
        """Return the fill of a memset node."""
        params = ctypes.create_string_buffer(_MEMSET_PARAMS.size)
        self._call("hipGraphMemsetNodeGetParams", node, params)
        dst, element_size, height, pitch_bytes, value, width = _MEMSET_PARAMS.unpack(params)
        return Fill2D(dst, element_size, value, width, height, pitch_bytes)

    def graph_host_node_get_params(self, node: int) -> HostParams:
        """Return the function and argument of a host node."""
        params = ctypes.create_string_buffer(_HOST_NODE_PARAMS.size)
        self._call("hipGraphHostNodeGetParams", node, params)
        return HostParams(*_HOST_NODE_PARAMS.unpack(params))

    def graph_mem_alloc_node_get_params(self, node: int) -> tuple[int, int]:
        """Return (pointer, bytes) of an alloc node."""
        params = ctypes.create_string_buffer(_MEM_ALLOC_NODE_PARAMS.size)
        self._call("hipGraphMemAllocNodeGetParams", node, params)
        nbytes, pointer = _MEM_ALLOC_NODE_PARAMS.unpack(params)[-2:]
        return pointer, nbytes

    def graph_mem_free_node_get_params(self, node: int) -> int:
        """Return the pointer that a free node frees."""
        return self._new_last("hipGraphMemFreeNodeGetParams", node)

    def graph_event_record_node_get_event(self, node: int) -> int:
        """Return the event of a record node."""
        return self._new_last("hipGraphEventRecordNodeGetEvent", node)

    def graph_event_wait_node_get_event(self, node: int) -> int:
        """Return the event of a wait node."""
        return self._new_last("hipGraphEventWaitNodeGetEvent", node)

    def graph_kernel_node_get_attributes(self, node: int) -> tuple[bool, int | None, Dim3 | None]:
        def ask(attribute: int) -> int:
            value = ctypes.create_string_buffer(_LAUNCH_ATTRIBUTE_VALUE.size)
            if self._hip.hipGraphKernelNodeGetAttribute(node, attribute, value):  # AMD knows only what has been set
                self._clear_last_error()
                return 0
            return int(_LAUNCH_ATTRIBUTE_VALUE.unpack(value)[0])

        return bool(ask(_ATTRIBUTE_COOPERATIVE)), ask(_ATTRIBUTE_PRIORITY) or None, None

    def graph_external_semaphores_signal_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        return self._semaphores("hipGraphExternalSemaphoresSignalNodeGetParams", node)

    def graph_external_semaphores_wait_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        return self._semaphores("hipGraphExternalSemaphoresWaitNodeGetParams", node)

    def _semaphores(self, api: str, node: int) -> tuple[tuple[int, int], ...]:
        params = ctypes.create_string_buffer(_SEMAPHORE_NODE_PARAMS.size)
        self._call(api, node, params)
        semaphores, fences, count = _SEMAPHORE_NODE_PARAMS.unpack(params)
        handles = (c_uint64 * count).from_address(semaphores)
        size = _SEMAPHORE_PARAMS.size
        values = _SEMAPHORE_PARAMS.iter_unpack(ctypes.string_at(fences, count * size))
        return tuple((handle, value) for handle, (value, _) in zip(handles, values, strict=True))

    def graph_batch_mem_op_node_get_params(self, node: int) -> tuple[MemOp, ...]:
        params = ctypes.create_string_buffer(BATCH_MEM_OP_NODE_PARAMS.size)
        self._call("hipGraphBatchMemOpNodeGetParams", node, params)
        _, count, array, _ = BATCH_MEM_OP_NODE_PARAMS.unpack(params)
        operations = {number: key for key, number in _MEM_OPERATIONS.items()}
        conditions = {number: name for name, number in MEM_CONDITIONS.items()}
        found = []
        packed = ctypes.string_at(array, count * _STREAM_BATCH_MEM_OP_PARAMS.size)
        for operation, address, value, flags, _ in _STREAM_BATCH_MEM_OP_PARAMS.iter_unpack(packed):
            if operation not in operations:
                raise HipError(
                    "hipGraphBatchMemOpNodeGetParams", ERROR_NOT_SUPPORTED, "hipErrorNotSupported",
                    f"memory operation {operation} is not known here",
                )  # fmt: skip
            op, size = operations[operation]
            condition = conditions[flags & 3] if op == "wait" else "eq"
            found.append(MemOp(op, address, value if size == 8 else value & 0xFFFFFFFF, size, condition))
        return tuple(found)

    def graph_child_graph_node_get_graph(self, node: int) -> int:
        return self._new_last("hipGraphChildGraphNodeGetGraph", node)

    # -- executables -------------------------------------------------------------------------------------------------
    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        return self._new("hipGraphInstantiateWithFlags", graph, flags)

    def graph_exec_destroy(self, graph_exec: int) -> None:
        self._call("hipGraphExecDestroy", graph_exec)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        code = self._hip.hipGraphLaunch(graph_exec, stream)
        if code:
            self._fail("hipGraphLaunch", code)

    def graph_exec_kernel_node_set_params(
        self, graph_exec: int, node: int, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> None:
        block_x, block_y, block_z = block
        grid_x, grid_y, grid_z = grid
        code = self._hip.hipGraphExecKernelNodeSetParams(
            graph_exec,
            node,
            _PACK_KERNEL(block_x, block_y, block_z, 0, function, grid_x, grid_y, grid_z, args, shared_bytes),
        )
        if code:
            self._fail("hipGraphExecKernelNodeSetParams", code)

    def graph_exec_memcpy_node_set_params_1d(
        self, graph_exec: int, node: int, dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> None:
        code = self._hip.hipGraphExecMemcpyNodeSetParams1D(graph_exec, node, dst, src, nbytes, kind)
        if code:
            self._fail("hipGraphExecMemcpyNodeSetParams1D", code)

    def graph_exec_memcpy_node_set_params(self, graph_exec: int, node: int, copy: Copy3D) -> None:
        self._call("hipGraphExecMemcpyNodeSetParams", graph_exec, node, _pack_copy(copy))

    def graph_exec_memset_node_set_params(self, graph_exec: int, node: int, fill: Fill2D) -> None:
        self._call("hipGraphExecMemsetNodeSetParams", graph_exec, node, _pack_fill(fill))

    def graph_exec_host_node_set_params(self, graph_exec: int, node: int, fn: int, user_data: int) -> None:
        self._call("hipGraphExecHostNodeSetParams", graph_exec, node, _HOST_NODE_PARAMS.pack(fn, user_data))

    def graph_exec_child_graph_node_set_params(self, graph_exec: int, node: int, child: int) -> None:
        self._call("hipGraphExecChildGraphNodeSetParams", graph_exec, node, child)

    def graph_exec_event_record_node_set_event(self, graph_exec: int, node: int, event: int) -> None:
        self._call("hipGraphExecEventRecordNodeSetEvent", graph_exec, node, event)

    def graph_exec_event_wait_node_set_event(self, graph_exec: int, node: int, event: int) -> None:
        self._call("hipGraphExecEventWaitNodeSetEvent", graph_exec, node, event)

    def graph_node_set_enabled(self, graph_exec: int, node: int, enabled: bool) -> None:
        code = self._hip.hipGraphNodeSetEnabled(graph_exec, node, enabled)
        if code:
            self._fail("hipGraphNodeSetEnabled", code)

    def signal_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        params = ctypes.create_string_buffer(_SEMAPHORE_PARAMS.pack(value, 0), _SEMAPHORE_PARAMS.size)
        self._call("hipSignalExternalSemaphoresAsync", byref(c_void_p(semaphore)), params, 1, stream)

    def wait_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        params = ctypes.create_string_buffer(_SEMAPHORE_PARAMS.pack(value, 0), _SEMAPHORE_PARAMS.size)
        self._call("hipWaitExternalSemaphoresAsync", byref(c_void_p(semaphore)), params, 1, stream)
