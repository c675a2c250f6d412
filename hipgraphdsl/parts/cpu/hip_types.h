// What HIP's header declares and this library answers with: error codes, enums and structure layouts, by HIP's own names.
// Also the ABI between this library and the libraries that hold compiled kernels.
#pragma once
#include <stdint.h>

#include "hip_structs.h"

// The errors that this library answers with: HIP's name, number and text.
#define HIP_ERRORS(X)                                                                                                         \
  X(hipSuccess, 0, "no error")                                                                                                \
  X(hipErrorInvalidValue, 1, "invalid argument")                                                                              \
  X(hipErrorOutOfMemory, 2, "out of memory")                                                                                  \
  X(hipErrorNotInitialized, 3,                                                                                                \
    "the runtime does not survive fork: start processes with the spawn method, or open it in the child only")                 \
  X(hipErrorInvalidConfiguration, 9, "invalid configuration argument")                                                        \
  X(hipErrorInvalidPitchValue, 12, "invalid pitch argument")                                                                  \
  X(hipErrorNoDevice, 100, "no ROCm-capable device is detected")                                                              \
  X(hipErrorInvalidDevice, 101, "invalid device ordinal")                                                                     \
  X(hipErrorInvalidImage, 200, "device kernel image is invalid")                                                              \
  X(hipErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")                             \
  X(hipErrorInvalidHandle, 400, "invalid resource handle")                                                                    \
  X(hipErrorIllegalState, 401, "the operation cannot be performed in the present state")                                      \
  X(hipErrorNotFound, 500, "named symbol not found")                                                                          \
  X(hipErrorNotReady, 600, "device not ready")                                                                                \
  X(hipErrorIllegalAddress, 700, "an illegal memory access was encountered")                                                  \
  X(hipErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                                                  \
  X(hipErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                                                    \
  X(hipErrorAssert, 710, "device-side assert triggered")                                                                      \
  X(hipErrorLaunchFailure, 719, "unspecified launch failure")                                                                 \
  X(hipErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")                                          \
  X(hipErrorNotPermitted, 800, "a host function must not wait for the device")                                                \
  X(hipErrorNotSupported, 801, "operation not supported")                                                                     \
  X(hipErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                                \
  X(hipErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")                         \
  X(hipErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")                       \
  X(hipErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")                              \
  X(hipErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                                 \
  X(hipErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")                           \
  X(hipErrorStreamCaptureImplicit, 906, "operation would make the legacy stream depend on a capturing blocking stream")       \
  X(hipErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream")                    \
  X(hipErrorStreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture sequence from another thread")        \
  X(hipErrorGraphExecUpdateFailure, 910,                                                                                      \
    "the graph update was not performed because it included changes which violated constraints specific to instantiated "     \
    "graph update")                                                                                                           \
  X(hipErrorUnknown, 999, "unknown error")
enum hipError_t : int {
#define HIP_ERROR(name, number, text) name = number,
  HIP_ERRORS(HIP_ERROR)
#undef HIP_ERROR
};

enum hipGraphNodeType : int {
  hipGraphNodeTypeKernel = 0,
  hipGraphNodeTypeMemcpy = 1,
  hipGraphNodeTypeMemset = 2,
  hipGraphNodeTypeHost = 3,
  hipGraphNodeTypeGraph = 4,
  hipGraphNodeTypeEmpty = 5,
  hipGraphNodeTypeWaitEvent = 6,
  hipGraphNodeTypeEventRecord = 7,
  hipGraphNodeTypeExtSemaphoreSignal = 8,
  hipGraphNodeTypeExtSemaphoreWait = 9,
  hipGraphNodeTypeMemAlloc = 10,
  hipGraphNodeTypeMemFree = 11,
  hipGraphNodeTypeBatchMemOp = 14,
  hgcpuGraphNodeTypeConditional = 0x1000,  // HIP has none
};

// Handles are table entries, not addresses: a stale one is recognised instead of followed.
using Handle = uint64_t;

struct dim3 {
  uint32_t x, y, z;
};
struct hipKernelNodeParams {
  dim3 blockDim;
  void** extra;
  Handle func;
  dim3 gridDim;
  void** kernelParams;
  unsigned sharedMemBytes;
};
struct hipMemAccessDesc {
  hipMemLocation location;
  int flags;  // hipMemAccessFlagsProtNone 0, ReadWrite 3
};
struct hipPointerAttribute_t {
  int type, device;  // hipMemoryTypeHost 1, hipMemoryTypeDevice 2
  void *devicePointer, *hostPointer;
  int isManaged;
  unsigned allocationFlags;
};
struct hipStreamBatchMemOpParams {
  int operation;
  uint64_t* address;
  uint64_t value;
  unsigned flags;
  void* alias;
  uint64_t pad;
};
struct hipBatchMemOpNodeParams {
  void* ctx;
  unsigned count;
  hipStreamBatchMemOpParams* paramArray;
  unsigned flags;
};
struct hipExternalSemaphoreParams {  // signal and wait have the same fields here
  uint64_t fenceValue;
  uint64_t other[8];
  unsigned flags, reserved[16];
};
struct hipExternalSemaphoreNodeParams {
  Handle* extSemArray;
  const hipExternalSemaphoreParams* paramsArray;
  unsigned numExtSems;
};
union hipLaunchAttributeValue {
  char pad[64];
  int cooperative, priority;
};

static_assert(sizeof(hipKernelNodeParams) == 64 && offsetof(hipKernelNodeParams, kernelParams) == 48, "layout");
static_assert(sizeof(hipMemsetParams) == 48 && sizeof(hipMemcpy3DParms) == 160, "layout");
static_assert(sizeof(hipMemAllocNodeParams) == 120 && offsetof(hipMemAllocNodeParams, dptr) == 112, "layout");
static_assert(sizeof(hipPointerAttribute_t) == 32 && offsetof(hipPointerAttribute_t, isManaged) == 24, "layout");
static_assert(sizeof(hipStreamBatchMemOpParams) == 48 && sizeof(hipBatchMemOpNodeParams) == 32, "layout");
static_assert(sizeof(hipExternalSemaphoreParams) == 144 && sizeof(hipExternalSemaphoreNodeParams) == 24, "layout");
