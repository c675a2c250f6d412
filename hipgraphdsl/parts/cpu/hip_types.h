// What HIP's header declares and this library answers with: error codes, enums and structure layouts, by HIP's own names.
// Also the ABI between this library and the libraries that hold compiled kernels.
#pragma once
#include <stdint.h>

#include "hip_structs.h"

enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorInvalidConfiguration = 9,
  hipErrorInvalidPitchValue = 12,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidImage = 200,
  hipErrorInvalidHandle = 400,
  hipErrorIllegalState = 401,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorPeerAccessUnsupported = 217,
  hipErrorIllegalAddress = 700,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorPeerAccessNotEnabled = 705,
  hipErrorAssert = 710,
  hipErrorLaunchFailure = 719,
  hipErrorCooperativeLaunchTooLarge = 720,
  hipErrorNotPermitted = 800,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorStreamCaptureInvalidated = 901,
  hipErrorStreamCaptureMerge = 902,
  hipErrorStreamCaptureUnmatched = 903,
  hipErrorStreamCaptureUnjoined = 904,
  hipErrorStreamCaptureIsolation = 905,
  hipErrorStreamCaptureImplicit = 906,
  hipErrorCapturedEvent = 907,
  hipErrorStreamCaptureWrongThread = 908,
  hipErrorGraphExecUpdateFailure = 910,
  hipErrorUnknown = 999,
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
