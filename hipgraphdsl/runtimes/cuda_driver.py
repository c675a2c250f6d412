"""The CUDA driver's functions under HIP's names, where both have one signature, and those that only CUDA has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from typing import Any, Final

from ..errors import HipError
from .hip_calls import PROTOTYPES

# HIP's name -> the driver's, for functions of one signature.
NAMES: Final = {
    "hipGetDeviceCount": "cuDeviceGetCount",
    "hipMemGetInfo": "cuMemGetInfo_v2",
    "hipMalloc": "cuMemAlloc_v2",
    "hipFree": "cuMemFree_v2",
    "hipHostMalloc": "cuMemHostAlloc",
    "hipHostFree": "cuMemFreeHost",
    "hipHostRegister": "cuMemHostRegister_v2",
    "hipHostUnregister": "cuMemHostUnregister",
    "hipDeviceGetGraphMemAttribute": "cuDeviceGetGraphMemAttribute",
    "hipDeviceSetGraphMemAttribute": "cuDeviceSetGraphMemAttribute",
    "hipDeviceGraphMemTrim": "cuDeviceGraphMemTrim",
    "hipDeviceGetDefaultMemPool": "cuDeviceGetDefaultMemPool",
    "hipMemPoolSetAccess": "cuMemPoolSetAccess",
    "hipMallocAsync": "cuMemAllocAsync",
    "hipFreeAsync": "cuMemFreeAsync",
    "hipMemcpy3DAsync": "cuMemcpy3DAsync_v2",
    "hipMemsetD16Async": "cuMemsetD16Async",
    "hipMemsetD32Async": "cuMemsetD32Async",
    "hipStreamBatchMemOp": "cuStreamBatchMemOp_v2",
    "hipStreamCreateWithPriority": "cuStreamCreateWithPriority",
    "hipStreamDestroy": "cuStreamDestroy_v2",
    "hipStreamSynchronize": "cuStreamSynchronize",
    "hipStreamQuery": "cuStreamQuery",
    "hipStreamWaitEvent": "cuStreamWaitEvent",
    "hipLaunchHostFunc": "cuLaunchHostFunc",
    "hipEventCreateWithFlags": "cuEventCreate",
    "hipEventDestroy": "cuEventDestroy_v2",
    "hipEventRecord": "cuEventRecord",
    "hipEventSynchronize": "cuEventSynchronize",
    "hipEventElapsedTime": "cuEventElapsedTime",
    "hipModuleLoadData": "cuModuleLoadData",
    "hipModuleUnload": "cuModuleUnload",
    "hipModuleGetFunction": "cuModuleGetFunction",
    "hipModuleGetGlobal": "cuModuleGetGlobal_v2",
    "hipModuleLaunchKernel": "cuLaunchKernel",
    "hipModuleLaunchCooperativeKernel": "cuLaunchCooperativeKernel",
    "hipStreamBeginCapture": "cuStreamBeginCapture_v2",
    "hipStreamEndCapture": "cuStreamEndCapture",
    "hipStreamGetCaptureInfo_v2": "cuStreamGetCaptureInfo_v2",
    "hipStreamUpdateCaptureDependencies": "cuStreamUpdateCaptureDependencies",
    "hipThreadExchangeStreamCaptureMode": "cuThreadExchangeStreamCaptureMode",
    "hipGraphCreate": "cuGraphCreate",
    "hipGraphDestroy": "cuGraphDestroy",
    "hipGraphAddKernelNode": "cuGraphAddKernelNode_v2",
    "hipGraphKernelNodeSetAttribute": "cuGraphKernelNodeSetAttribute",
    "hipGraphKernelNodeGetAttribute": "cuGraphKernelNodeGetAttribute",
    "hipGraphAddHostNode": "cuGraphAddHostNode",
    "hipGraphAddMemAllocNode": "cuGraphAddMemAllocNode",
    "hipGraphAddMemFreeNode": "cuGraphAddMemFreeNode",
    "hipGraphAddEmptyNode": "cuGraphAddEmptyNode",
    "hipGraphAddChildGraphNode": "cuGraphAddChildGraphNode",
    "hipGraphAddEventRecordNode": "cuGraphAddEventRecordNode",
    "hipGraphAddEventWaitNode": "cuGraphAddEventWaitNode",
    "hipGraphAddExternalSemaphoresSignalNode": "cuGraphAddExternalSemaphoresSignalNode",
    "hipGraphAddExternalSemaphoresWaitNode": "cuGraphAddExternalSemaphoresWaitNode",
    "hipGraphAddBatchMemOpNode": "cuGraphAddBatchMemOpNode",
    "hipGraphAddDependencies": "cuGraphAddDependencies",
    "hipGraphGetNodes": "cuGraphGetNodes",
    "hipGraphGetEdges": "cuGraphGetEdges",
    "hipGraphNodeGetType": "cuGraphNodeGetType",
    "hipGraphKernelNodeGetParams": "cuGraphKernelNodeGetParams_v2",
    "hipGraphMemcpyNodeGetParams": "cuGraphMemcpyNodeGetParams",
    "hipGraphMemsetNodeGetParams": "cuGraphMemsetNodeGetParams",
    "hipGraphHostNodeGetParams": "cuGraphHostNodeGetParams",
    "hipGraphMemAllocNodeGetParams": "cuGraphMemAllocNodeGetParams",
    "hipGraphMemFreeNodeGetParams": "cuGraphMemFreeNodeGetParams",
    "hipGraphEventRecordNodeGetEvent": "cuGraphEventRecordNodeGetEvent",
    "hipGraphEventWaitNodeGetEvent": "cuGraphEventWaitNodeGetEvent",
    "hipGraphExternalSemaphoresSignalNodeGetParams": "cuGraphExternalSemaphoresSignalNodeGetParams",
    "hipGraphExternalSemaphoresWaitNodeGetParams": "cuGraphExternalSemaphoresWaitNodeGetParams",
    "hipGraphBatchMemOpNodeGetParams": "cuGraphBatchMemOpNodeGetParams",
    "hipGraphChildGraphNodeGetGraph": "cuGraphChildGraphNodeGetGraph",
    "hipGraphInstantiateWithFlags": "cuGraphInstantiateWithFlags",
    "hipGraphExecDestroy": "cuGraphExecDestroy",
    "hipGraphLaunch": "cuGraphLaunch",
    "hipGraphExecKernelNodeSetParams": "cuGraphExecKernelNodeSetParams_v2",
    "hipGraphExecHostNodeSetParams": "cuGraphExecHostNodeSetParams",
    "hipGraphExecChildGraphNodeSetParams": "cuGraphExecChildGraphNodeSetParams",
    "hipGraphExecEventRecordNodeSetEvent": "cuGraphExecEventRecordNodeSetEvent",
    "hipGraphExecEventWaitNodeSetEvent": "cuGraphExecEventWaitNodeSetEvent",
    "hipGraphNodeSetEnabled": "cuGraphNodeSetEnabled",
}

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


class Driver:
    """The driver's functions, under HIP's names where the signatures are the same, bound at first use."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, api: str) -> Callable[..., int]:
        if api in NAMES:
            name, prototype = NAMES[api], PROTOTYPES[api]
        elif api in DRIVER:
            name, prototype = api, DRIVER[api]
        elif api in PROTOTYPES:
            raise HipError(api, 801, "hipErrorNotSupported", "CUDA has no such call")
        else:
            raise AttributeError(api)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise HipError(api, 801, "hipErrorNotSupported", f"this driver does not export {name}") from None
        function.argtypes = prototype
        function.restype = c_int
        setattr(self, api, function)
        return function  # type: ignore[no-any-return]  # ctypes says Any

    def exports(self, api: str) -> bool:
        """Return whether the driver has this function."""
        return api != "hipGetLastError" and hasattr(self._library, NAMES.get(api, api))
