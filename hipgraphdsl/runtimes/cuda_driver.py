"""The CUDA driver's functions under HIP's names, where both have one signature, and those that only CUDA has."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_void_p
from typing import Any, Final

from .base import not_supported
from .hip_calls import PROTOTYPES, HipCalls

_ALIKE: Final = (
    "DeviceGetGraphMemAttribute", "DeviceSetGraphMemAttribute", "DeviceGraphMemTrim", "DeviceGetDefaultMemPool",
    "MemPoolSetAccess", "MemsetD16Async", "MemsetD32Async", "StreamCreateWithPriority", "StreamSynchronize", "StreamQuery",
    "StreamWaitEvent", "LaunchHostFunc", "EventRecord", "EventSynchronize", "EventElapsedTime", "ModuleLoadData",
    "ModuleUnload", "ModuleGetFunction", "StreamEndCapture", "StreamGetCaptureInfo_v2", "StreamUpdateCaptureDependencies",
    "ThreadExchangeStreamCaptureMode", "GraphCreate", "GraphDestroy", "GraphKernelNodeSetAttribute",
    "GraphKernelNodeGetAttribute", "GraphAddHostNode", "GraphAddMemAllocNode", "GraphAddMemFreeNode", "GraphAddEmptyNode",
    "GraphAddChildGraphNode", "GraphAddEventRecordNode", "GraphAddEventWaitNode", "GraphAddExternalSemaphoresSignalNode",
    "GraphAddExternalSemaphoresWaitNode", "GraphAddBatchMemOpNode", "GraphAddDependencies", "GraphGetNodes", "GraphGetEdges",
    "GraphNodeGetType", "GraphMemcpyNodeGetParams", "GraphMemsetNodeGetParams", "GraphHostNodeGetParams",
    "GraphMemAllocNodeGetParams", "GraphMemFreeNodeGetParams", "GraphEventRecordNodeGetEvent", "GraphEventWaitNodeGetEvent",
    "GraphExternalSemaphoresSignalNodeGetParams", "GraphExternalSemaphoresWaitNodeGetParams", "GraphBatchMemOpNodeGetParams",
    "GraphChildGraphNodeGetGraph", "GraphInstantiateWithFlags", "GraphExecDestroy", "GraphLaunch",
    "GraphExecHostNodeSetParams", "GraphExecChildGraphNodeSetParams", "GraphExecEventRecordNodeSetEvent",
    "GraphExecEventWaitNodeSetEvent", "GraphNodeSetEnabled",
)  # fmt: skip
_SECOND: Final = (
    "MemGetInfo", "Memcpy3DAsync", "StreamBatchMemOp", "StreamDestroy", "EventDestroy", "ModuleGetGlobal",
    "StreamBeginCapture", "GraphAddKernelNode", "GraphKernelNodeGetParams", "GraphExecKernelNodeSetParams",
)  # fmt: skip
NAMES: Final = {
    **{f"hip{name}": f"cu{name}" for name in _ALIKE},
    **{f"hip{name}": f"cu{name}_v2" for name in _SECOND},
    "hipGetDeviceCount": "cuDeviceGetCount",
    "hipMalloc": "cuMemAlloc_v2",
    "hipFree": "cuMemFree_v2",
    "hipHostMalloc": "cuMemHostAlloc",
    "hipHostFree": "cuMemFreeHost",
    "hipHostRegister": "cuMemHostRegister_v2",
    "hipHostUnregister": "cuMemHostUnregister",
    "hipMallocAsync": "cuMemAllocAsync",
    "hipFreeAsync": "cuMemFreeAsync",
    "hipEventCreateWithFlags": "cuEventCreate",
    "hipModuleLaunchKernel": "cuLaunchKernel",
    "hipModuleLaunchCooperativeKernel": "cuLaunchCooperativeKernel",
}
"""HIP's name -> the driver's, for functions of one signature."""

_P, _I, _Z = c_void_p, c_int, c_size_t
# Functions of the driver that have no HIP call of the same signature.
DRIVER: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_P,),
    "cuGetErrorName": (_I, _P),
    "cuGetErrorString": (_I, _P),
    "cuDeviceGet": (_P, _I),
    "cuDeviceGetName": (_P, _I, _I),
    "cuDeviceGetAttribute": (_P, _I, _I),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuDeviceCanAccessPeer": (_P, _I, _I),
    "cuCtxSetCurrent": (_P,),
    "cuCtxGetCurrent": (_P,),
    "cuCtxGetDevice": (_P,),
    "cuCtxEnablePeerAccess": (_P, ctypes.c_uint),
    "cuStreamGetCtx": (_P, _P),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuFuncGetName": (_P, _P),
    "cuFuncGetParamInfo": (_P, _Z, _P, _P),
    "cuKernelGetFunction": (_P, _P),
    "cuPointerGetAttribute": (_P, _I, _P),
    "cuMemcpy": (_P, _P, _Z),
    "cuMemcpyAsync": (_P, _P, _Z, _P),
    "cuMemsetD8Async": (_P, ctypes.c_ubyte, _Z, _P),
    "cuMemsetD2D8Async": (_P, _Z, ctypes.c_ubyte, _Z, _Z, _P),
    "cuMemsetD2D16Async": (_P, _Z, ctypes.c_ushort, _Z, _Z, _P),
    "cuMemsetD2D32Async": (_P, _Z, ctypes.c_uint, _Z, _Z, _P),
    "cuGraphAddMemcpyNode": (_P, _P, _P, _Z, _P, _P),
    "cuGraphAddMemsetNode": (_P, _P, _P, _Z, _P, _P),
    "cuGraphExecMemcpyNodeSetParams": (_P, _P, _P, _P),
    "cuGraphExecMemsetNodeSetParams": (_P, _P, _P, _P),
    "cuGraphConditionalHandleCreate": (_P, _P, _P, ctypes.c_uint, ctypes.c_uint),
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuGraphAddNode_v2": (_P, _P, _P, _P, _Z, _P),
    "cuGraphAddDependencies_v2": (_P, _P, _P, _P, _Z),
    "cuGraphRemoveDependencies": (_P, _P, _P, _Z),
    "cuGraphGetEdges_v2": (_P, _P, _P, _P, _P),
}


class Driver(HipCalls):
    """The driver's functions, under HIP's names where the signatures are the same."""

    def _described(self, api: str) -> tuple[str, tuple[Any, ...], str]:
        if api in NAMES:
            name, prototype = NAMES[api], PROTOTYPES[api]
        elif api in DRIVER:
            name, prototype = api, DRIVER[api]
        else:
            super()._described(api)
            raise not_supported(api, "CUDA has no such call")
        return name, prototype, f"{self._label} does not export {name}"

    def exports(self, api: str) -> bool:
        """Return whether the driver has this function."""
        return api != "hipGetLastError" and hasattr(self._library, NAMES.get(api, api))
