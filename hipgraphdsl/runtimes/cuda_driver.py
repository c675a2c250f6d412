"""The CUDA driver's functions: under HIP's names where the signatures are equal, and those that only CUDA has."""

from __future__ import annotations

from typing import Any, Final

from .base import not_supported
from .hip_calls import PROTOTYPES, HipCalls, prototypes

_ALIKE: Final = """
    DeviceGetGraphMemAttribute DeviceSetGraphMemAttribute DeviceGraphMemTrim DeviceGetDefaultMemPool MemPoolSetAccess
    MemsetD16Async MemsetD32Async StreamCreateWithPriority StreamSynchronize StreamQuery StreamWaitEvent LaunchHostFunc
    EventRecord EventSynchronize EventQuery EventElapsedTime ModuleLoadData ModuleUnload ModuleGetFunction StreamIsCapturing
    StreamEndCapture
    StreamGetCaptureInfo_v2 StreamUpdateCaptureDependencies ThreadExchangeStreamCaptureMode GraphCreate GraphDestroy
    GraphKernelNodeSetAttribute GraphKernelNodeGetAttribute GraphAddHostNode GraphAddMemAllocNode GraphAddMemFreeNode
    GraphAddEmptyNode GraphAddChildGraphNode GraphAddEventRecordNode GraphAddEventWaitNode
    GraphAddExternalSemaphoresSignalNode GraphAddExternalSemaphoresWaitNode GraphAddBatchMemOpNode GraphAddDependencies
    GraphGetNodes GraphGetEdges GraphNodeGetType GraphMemcpyNodeGetParams GraphMemsetNodeGetParams GraphHostNodeGetParams
    GraphMemAllocNodeGetParams GraphMemFreeNodeGetParams GraphEventRecordNodeGetEvent GraphEventWaitNodeGetEvent
    GraphExternalSemaphoresSignalNodeGetParams GraphExternalSemaphoresWaitNodeGetParams GraphBatchMemOpNodeGetParams
    GraphChildGraphNodeGetGraph GraphInstantiateWithFlags GraphExecDestroy GraphLaunch GraphExecHostNodeSetParams
    GraphExecChildGraphNodeSetParams GraphExecEventRecordNodeSetEvent GraphExecEventWaitNodeSetEvent GraphNodeSetEnabled
"""
_SECOND: Final = """
    MemGetInfo Memcpy3DAsync StreamBatchMemOp StreamDestroy EventDestroy ModuleGetGlobal StreamBeginCapture
    GraphAddKernelNode GraphKernelNodeGetParams GraphExecKernelNodeSetParams
"""
NAMES: Final = {
    **{f"hip{name}": f"cu{name}" for name in _ALIKE.split()},
    **{f"hip{name}": f"cu{name}_v2" for name in _SECOND.split()},
    "hipGetDeviceCount": "cuDeviceGetCount",
    "hipDeviceSynchronize": "cuCtxSynchronize",
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
"""HIP's name -> the driver's, for functions with the same signature."""

# Functions of the driver that have no HIP call of the same signature.
DRIVER: Final = prototypes({
    "U": "cuInit",
    "P": "cuDriverGetVersion cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice",
    "IP": "cuGetErrorName cuGetErrorString",
    "PI": "cuDeviceGet cuDevicePrimaryCtxRetain",
    "PP": "cuStreamGetCtx cuFuncGetName cuKernelGetFunction",
    "PU": "cuCtxEnablePeerAccess",
    "PII": "cuDeviceGetName cuDeviceGetAttribute cuDeviceCanAccessPeer cuFuncSetAttribute",
    "PIP": "cuPointerGetAttribute",
    "PPZ": "cuMemcpy",
    "PBZP": "cuMemsetD8Async",
    "PPPP": "cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuLaunchKernelEx",
    "PPPZ": "cuGraphRemoveDependencies",
    "PPZP": "cuMemcpyAsync",
    "PZPP": "cuFuncGetParamInfo",
    "PPPPP": "cuGraphGetEdges_v2",
    "PPPPZ": "cuGraphAddDependencies_v2",
    "PPPUU": "cuGraphConditionalHandleCreate",
    "PPPPZP": "cuGraphAddNode_v2",
    "PPPZPP": "cuGraphAddMemcpyNode cuGraphAddMemsetNode",
    "PZBZZP": "cuMemsetD2D8Async",
    "PZHZZP": "cuMemsetD2D16Async",
    "PZUZZP": "cuMemsetD2D32Async",
})  # fmt: skip


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
