"""The library's functions with their prototypes and structures, and the helpers by which `HipAbiRuntime` calls them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint16, c_uint64, c_void_p
from typing import Any, ClassVar, NoReturn, cast

from ..errors import HipError
from .base import Runtime, not_supported
from .data import Copy3D, Fill2D, MemOp

FUNCTION = ctypes.CFUNCTYPE(None).__mro__[1]  # base class of every function of a ctypes library
LOCATION_DEVICE = 1
_ACCESS_READ_WRITE = 3

# Structures, in `struct` notation; tests/struct_layouts.py compares them with AMD's header.
KERNEL_NODE_LAYOUT = struct.Struct("=QIIIIIIQ")
"""Call address, parameter size; offsets of function, grid, block, shared bytes, arguments; most shared bytes without opt-in."""
KERNEL_NODE_PARAMS = struct.Struct("=3I4xQQ3I4xQI4x")  # blockDim, extra, func, gridDim, kernelParams, sharedMemBytes
MEMSET_PARAMS = struct.Struct("=QI4xQQI4xQ")  # dst, elementSize, height, pitch, value, width
HOST_NODE_PARAMS = struct.Struct("=QQ")  # fn, userData
MEMCPY_3D_PARMS = struct.Struct("=Q3Q4QQ3Q4Q3Qi4x")  # src array, pos, ptr; dst array, pos, ptr; extent, kind
# allocType, handleTypes, location type and id, win32, maxSize, reserved; accessDescs, accessDescCount, bytesize, dptr
MEM_ALLOC_NODE_PARAMS = struct.Struct("=iiiiQQ56xQQQQ")
MEM_ACCESS_DESC = struct.Struct("=iii")  # location type and id, flags
BATCH_MEM_OP_NODE_PARAMS = struct.Struct("=QI4xQI4x")  # ctx, count, paramArray, flags
STREAM_BATCH_MEM_OP_PARAMS = struct.Struct("=i4xQQI4xQ8x")  # operation, address, value, flags, alias
SEMAPHORE_NODE_PARAMS = struct.Struct("=QQI4x")  # extSemArray, paramsArray, numExtSems
SEMAPHORE_PARAMS = struct.Struct("=Q64xI68x")  # params.fence.value, flags
POINTER_ATTRIBUTES = struct.Struct("=iiQQiI")  # type, device, devicePointer, hostPointer, isManaged, allocationFlags

# hipStreamBatchMemOpParams.operation by (op, bytes), and the flags of a wait.
MEM_OPERATIONS = {("wait", 4): 1, ("write", 4): 2, ("wait", 8): 4, ("write", 8): 5}
MEM_CONDITIONS = {"geq": 0, "eq": 1, "and": 2, "nor": 3}

_TYPES = {
    "P": c_void_p, "S": c_char_p, "B": c_ubyte, "H": c_uint16, "U": c_uint, "I": c_int, "Z": c_size_t, "Q": c_uint64,
}  # fmt: skip


def prototypes(table: Mapping[str, str]) -> dict[str, tuple[Any, ...]]:
    """Return the argument types of each function; `table` maps the letters of these types to function names."""
    return {api: tuple(_TYPES[letter] for letter in letters) for letters, apis in table.items() for api in apis.split()}


# A function that adds a node begins with PPPZ: address of the new handle, graph, dependencies, their number.
PROTOTYPES = prototypes({
    "": "hipGetLastError hipDeviceSynchronize",
    "I": "hipSetDevice hipDevicePrimaryCtxRelease hipDeviceGraphMemTrim",
    "U": "hipInit",
    "P": """
        hipRuntimeGetVersion hipGetDeviceCount hipGetDevice hipFree hipHostFree hipHostUnregister hipStreamDestroy
        hipStreamSynchronize hipStreamQuery hipEventDestroy hipEventSynchronize hipEventQuery hipModuleUnload
        hipThreadExchangeStreamCaptureMode hipGraphDestroy hipGraphExecDestroy""",
    "IU": "hipDeviceEnablePeerAccess",
    "PI": """
        hipGetDevicePropertiesR0600 hipDevicePrimaryCtxRetain hipDeviceGetDefaultMemPool hipStreamBeginCapture""",
    "PU": "hipEventCreateWithFlags hipGraphCreate",
    "PZ": "hipMalloc",
    "PP": """
        hipMemGetInfo hipMemcpy3DAsync hipPointerGetAttributes hipFreeAsync hipStreamGetDevice hipEventRecord hipModuleLoadData
        hipGetFuncBySymbol hipStreamEndCapture hipGraphNodeGetType hipGraphKernelNodeGetParams hipGraphMemcpyNodeGetParams
        hipGraphMemsetNodeGetParams hipGraphHostNodeGetParams hipGraphMemAllocNodeGetParams hipGraphMemFreeNodeGetParams
        hipGraphEventRecordNodeGetEvent hipGraphEventWaitNodeGetEvent hipGraphExternalSemaphoresSignalNodeGetParams
        hipGraphExternalSemaphoresWaitNodeGetParams hipGraphBatchMemOpNodeGetParams hipGraphChildGraphNodeGetGraph
        hipGraphLaunch hipStreamIsCapturing""",
    "IIP": "hipDeviceGetGraphMemAttribute hipDeviceSetGraphMemAttribute",
    "PII": "hipDeviceGetName hipDeviceGetAttribute hipDeviceCanAccessPeer",
    "PIP": "hipGraphKernelNodeSetAttribute hipGraphKernelNodeGetAttribute",
    "PPQ": "hipGraphInstantiateWithFlags",
    "PPS": "hipModuleGetFunction",
    "PPU": "hipStreamWaitEvent hipGraphNodeSetEnabled",
    "PPZ": "hipMemPoolSetAccess",
    "PUI": "hipStreamCreateWithPriority",
    "PZP": "hipMallocAsync",
    "PZU": "hipHostMalloc hipHostRegister",
    "PPP": """
        hipMemGetAddressRange hipLaunchHostFunc hipEventElapsedTime hipGraphGetNodes hipGraphExecKernelNodeSetParams
        hipGraphExecMemcpyNodeSetParams hipGraphExecMemsetNodeSetParams hipGraphExecHostNodeSetParams
        hipGraphExecChildGraphNodeSetParams hipGraphExecEventRecordNodeSetEvent hipGraphExecEventWaitNodeSetEvent""",
    "PHZP": "hipMemsetD16Async",
    "PIZP": "hipMemsetAsync hipMemsetD32Async",
    "PPPP": "hipGraphGetEdges",
    "PPPS": "hipModuleGetGlobal",
    "PPPZ": "hipGraphAddEmptyNode hipGraphAddDependencies",
    "PPQU": "hipStreamWriteValue64",
    "PPUP": "hipSignalExternalSemaphoresAsync hipWaitExternalSemaphoresAsync",
    "PPUU": "hipStreamWriteValue32",
    "PPZI": "hipMemcpy",
    "PPZU": "hipStreamUpdateCaptureDependencies",
    "PUPU": "hipStreamBatchMemOp",
    "PPPZP": """
        hipGraphAddKernelNode hipGraphAddMemcpyNode hipGraphAddMemsetNode hipGraphAddHostNode hipGraphAddMemAllocNode
        hipGraphAddMemFreeNode hipGraphAddChildGraphNode hipGraphAddEventRecordNode hipGraphAddEventWaitNode
        hipGraphAddExternalSemaphoresSignalNode hipGraphAddExternalSemaphoresWaitNode hipGraphAddBatchMemOpNode""",
    "PPQUQ": "hipStreamWaitValue64",
    "PPUUU": "hipStreamWaitValue32",
    "PPZIP": "hipMemcpyAsync",
    "PPPPPP": "hipStreamGetCaptureInfo_v2",
    "PPPPZI": "hipGraphExecMemcpyNodeSetParams1D",
    "PZIZZP": "hipMemset2DAsync",
    "PPPZPPZI": "hipGraphAddMemcpyNode1D",
    "PUUUUUUUPP": "hipModuleLaunchCooperativeKernel",
    "PUUUUUUUPPP": "hipModuleLaunchKernel",
})  # fmt: skip

_Call = Callable[..., int]


class HipCalls:
    """The library's functions as attributes, each bound with its prototype at first use.

    Reading one that the library does not export raises `HipError` (hipErrorNotSupported), so an old runtime is refused
    only where the missing call is needed.
    """

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        self._library = library
        self._label = label

    def _described(self, api: str) -> tuple[str, tuple[Any, ...], str]:
        """Return the exported name of a function, its prototype, and the error text if the library lacks it."""
        if api not in PROTOTYPES:
            raise AttributeError(api)
        return api, PROTOTYPES[api], f"{self._label} does not export it"

    def __getattr__(self, api: str) -> _Call:
        name, prototype, lacking = self._described(api)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise not_supported(api, lacking) from None
        function.argtypes = prototype
        function.restype = c_int
        setattr(self, api, function)
        return cast(_Call, function)

    def exports(self, api: str) -> bool:
        """Return whether the library has this function."""
        return hasattr(self._library, api)


def address_of(call: _Call) -> int:
    """Return the address of a library function or a callback."""
    return ctypes.cast(cast(Any, call), c_void_p).value or 0


class _Packers(dict[int, Callable[..., bytes]]):
    """Number of handles -> the function that packs them into bytes."""

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = struct.Struct(f"={count}Q").pack
        if count <= 256:
            self[count] = pack
        return pack


PACK_HANDLES = _Packers()
PACK_KERNEL = KERNEL_NODE_PARAMS.pack


def handles(given: Sequence[int]) -> bytes | None:
    """Pack handles into an array; return None if there are none."""
    # HIP refuses an address with a count of 0 for some node types, hence None.
    count = len(given)
    return PACK_HANDLES[count](*given) if count else None


def pack_copy(copy: Copy3D) -> bytes:
    """Pack a copy as hipMemcpy3DParms."""
    # xsize, the extent of the allocation, is 0: HIP uses it only for a check, which would reject a box in an allocation that
    # ends before the full pitch of the box's last row.
    return MEMCPY_3D_PARMS.pack(
        0, *copy.src_pos, copy.src, copy.src_pitch_bytes, 0, copy.src_rows,
        0, *copy.dst_pos, copy.dst, copy.dst_pitch_bytes, 0, copy.dst_rows,
        copy.width_bytes, copy.height, copy.depth, copy.kind,
    )  # fmt: skip


def pack_fill(fill: Fill2D) -> bytes:
    """Pack a fill as hipMemsetParams."""
    # AMD checks the pitch even of a single row.
    pitch_bytes = fill.pitch_bytes or fill.width * fill.element_size
    return MEMSET_PARAMS.pack(fill.dst, fill.element_size, fill.height, pitch_bytes, fill.value, fill.width)


def pack_mem_ops(ops: Sequence[MemOp]) -> bytes:
    """Pack operations as an array of hipStreamBatchMemOpParams."""
    return b"".join(
        STREAM_BATCH_MEM_OP_PARAMS.pack(
            MEM_OPERATIONS[op.op, op.size],
            op.address,
            op.value,
            MEM_CONDITIONS[op.condition] if op.op == "wait" else 0,
            0,
        )
        for op in ops
    )


def access_descs(devices: Sequence[int]) -> ctypes.Array[ctypes.c_char]:
    """Return the descriptors (hipMemAccessDesc) that let devices read and write."""
    packed = b"".join(MEM_ACCESS_DESC.pack(LOCATION_DEVICE, device, _ACCESS_READ_WRITE) for device in devices)
    return ctypes.create_string_buffer(packed, max(len(packed), 1))


# Factories of methods that pass their arguments on to a call, which may have more at the end; methods of hot paths are written
# out instead, which saves up to a quarter of the time that Python takes.
def does(api: str) -> Callable[..., None]:
    """Return a method that makes a call."""
    return lambda self, *args: self._call(api, *args)


def does_at_once(api: str) -> Callable[..., None]:
    """Return the same without `_call`, to which nvidia's runtime adds a retry."""

    def method(self: HipCore, *args: Any) -> None:
        code = getattr(self._hip, api)(*args)
        if code:
            self._fail(api, code)

    return method


def makes(api: str, *last: int) -> Callable[..., int]:
    """Return a method that returns the handle that a call stores through its first argument."""
    return lambda self, *args: self._new(api, *args, *last)


def tells(api: str) -> Callable[..., int]:
    """Return a method that returns the handle that a call stores through its last argument."""
    return lambda self, *args: self._new_last(api, *args)


def adds(api: str) -> Callable[..., int]:
    """Return a method that adds a node to a graph and returns it."""
    return lambda self, graph, deps, *params: self._add(api, graph, deps, *params)


class HipCore(Runtime):
    """The library's functions, error handling, and helpers for the common forms of calls."""

    calls: ClassVar[type[HipCalls]] = HipCalls

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        self._hip = self.calls(library, label)
        self._error_name = self._text_function(library, "hipGetErrorName")
        self._error_string = self._text_function(library, "hipGetErrorString")
        self._clears_last_error = self._hip.exports("hipGetLastError")

    @staticmethod
    def _text_function(library: ctypes.CDLL, api: str, of: Any = c_int) -> Callable[[int], bytes | None] | None:
        function = getattr(library, api, None)
        if function is not None:
            function.argtypes, function.restype = (of,), c_char_p
        return cast("Callable[[int], bytes | None] | None", function)

    # -- errors ----------------------------------------------------------------------------------------------------
    def _fail(self, api: str, code: int, detail: str = "") -> NoReturn:
        name = self._error_name(code) if self._error_name else None
        text = self._error_string(code) if self._error_string else None
        self._clear_last_error()
        said = "; ".join(filter(None, (text.decode(errors="replace") if text else "", detail)))
        raise HipError(api, code, name.decode(errors="replace") if name else f"hipError {code}", said)

    def _clear_last_error(self) -> None:
        # The error is reported by exception: another library of this thread must not find it in hipGetLastError.
        if self._clears_last_error:
            self._hip.hipGetLastError()

    def _call(self, api: str, *args: Any) -> None:
        code = getattr(self._hip, api)(*args)
        if code:
            self._fail(api, code)

    def _succeeds(self, api: str, *args: Any, unless: int) -> bool:
        """Make a call and return True, or False if it returns the code `unless`, which is not treated as an error."""
        code = getattr(self._hip, api)(*args)
        if code and code != unless:
            self._fail(api, code)
        if code:
            self._clear_last_error()
        return not code

    def _new(self, api: str, *args: Any) -> int:
        """Call a function whose first argument is the address of the handle that it creates; return the handle."""
        out = c_void_p()
        self._call(api, byref(out), *args)
        return out.value or 0

    def _new_last(self, api: str, *args: Any) -> int:
        """Call a function whose last argument is the address of the handle that it stores; return the handle."""
        out = c_void_p()
        self._call(api, *args, byref(out))
        return out.value or 0

    def _integer(self, api: str, *args: Any) -> int:
        """Call a function whose first argument is the address of the int that it stores; return the int."""
        out = c_int()
        self._call(api, byref(out), *args)
        return out.value

    def _structure(self, api: str, node: int, layout: struct.Struct) -> tuple[Any, ...]:
        """Call a function whose last argument is the address of the structure that it fills; return the fields."""
        params = ctypes.create_string_buffer(layout.size)
        self._call(api, node, params)
        return layout.unpack(params)

    def _two_calls(self, api: str, handle: int, arrays: int = 1) -> tuple[tuple[int, ...], ...]:
        """Call once for the count and once more for the handles; return them as `arrays` parallel tuples."""
        count = c_size_t()
        self._call(api, handle, *[None] * arrays, byref(count))
        if not count.value:
            return ((),) * arrays
        asked = [(c_void_p * count.value)() for _ in range(arrays)]
        self._call(api, handle, *asked, byref(count))
        return tuple(tuple(value or 0 for value in array[: count.value]) for array in asked)

    def _add(self, api: str, graph: int, deps: Sequence[int], *params: Any) -> int:
        out = c_void_p()
        count = len(deps)
        code = getattr(self._hip, api)(byref(out), graph, PACK_HANDLES[count](*deps) if count else None, count, *params)
        if code:
            self._fail(api, code)
        return out.value or 0
