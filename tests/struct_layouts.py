"""HIP's structures with the offsets of their members, by name; tests compare them with AMD's header."""

from __future__ import annotations

import struct

from hipgraphdsl.runtimes.data import LAUNCH_ATTRIBUTES
from hipgraphdsl.runtimes.hip_calls import (
    BATCH_MEM_OP_NODE_PARAMS,
    HOST_NODE_PARAMS,
    KERNEL_NODE_PARAMS,
    MEM_ACCESS_DESC,
    MEM_ALLOC_NODE_PARAMS,
    MEMCPY_3D_PARMS,
    MEMSET_PARAMS,
    POINTER_ATTRIBUTES,
    SEMAPHORE_NODE_PARAMS,
    SEMAPHORE_PARAMS,
    STREAM_BATCH_MEM_OP_PARAMS,
)

STRUCT_LAYOUTS: dict[str, tuple[struct.Struct, dict[str, int]]] = {
    "hipKernelNodeParams": (
        KERNEL_NODE_PARAMS,
        {"blockDim": 0, "extra": 16, "func": 24, "gridDim": 32, "kernelParams": 48, "sharedMemBytes": 56},
    ),
    "hipMemsetParams": (
        MEMSET_PARAMS,
        {"dst": 0, "elementSize": 8, "height": 16, "pitch": 24, "value": 32, "width": 40},
    ),
    "hipHostNodeParams": (HOST_NODE_PARAMS, {"fn": 0, "userData": 8}),
    "hipMemcpy3DParms": (
        MEMCPY_3D_PARMS,
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
        MEM_ALLOC_NODE_PARAMS,
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
    "hipMemAccessDesc": (MEM_ACCESS_DESC, {"location": 0, "flags": 8}),
    "hipBatchMemOpNodeParams": (BATCH_MEM_OP_NODE_PARAMS, {"ctx": 0, "count": 8, "paramArray": 16, "flags": 24}),
    "hipStreamBatchMemOpParams": (
        STREAM_BATCH_MEM_OP_PARAMS,
        {"waitValue.address": 8, "waitValue.value64": 16, "waitValue.flags": 24, "waitValue.alias": 32},
    ),
    "hipExternalSemaphoreSignalNodeParams": (
        SEMAPHORE_NODE_PARAMS,
        {"extSemArray": 0, "paramsArray": 8, "numExtSems": 16},
    ),
    "hipExternalSemaphoreWaitNodeParams": (
        SEMAPHORE_NODE_PARAMS,
        {"extSemArray": 0, "paramsArray": 8, "numExtSems": 16},
    ),
    "hipExternalSemaphoreSignalParams": (SEMAPHORE_PARAMS, {"params.fence.value": 0, "flags": 72}),
    "hipExternalSemaphoreWaitParams": (SEMAPHORE_PARAMS, {"params.fence.value": 0, "flags": 72}),
    "hipPointerAttribute_t": (
        POINTER_ATTRIBUTES,
        {"type": 0, "device": 4, "devicePointer": 8, "hostPointer": 16, "isManaged": 24, "allocationFlags": 28},
    ),
    "hipLaunchAttributeValue": (LAUNCH_ATTRIBUTES["priority"].form, {"cooperative": 0, "priority": 0}),
}
