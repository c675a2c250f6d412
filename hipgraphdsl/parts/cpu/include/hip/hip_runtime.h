// HIP's own names for C++ programs that run on the embedded CPU runtime: what it has of the host's side.
// `hipgraphdsl build` compiles a program with this header; the kernels are compiled apart, and found by their names.
#ifndef HIP_CPU_RUNTIME_H
#define HIP_CPU_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../hip_structs.h"

typedef int hipError_t;
enum { hipSuccess = 0, hipErrorInvalidValue = 1 };

typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphNode* hipGraphNode_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef void* hipDeviceptr_t;
typedef void* hipCtx_t;

struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum { hipStreamAddCaptureDependencies = 0, hipStreamSetCaptureDependencies = 1 };
enum { hipStreamDefault = 0, hipStreamNonBlocking = 1 };
enum { hipEventDefault = 0, hipEventDisableTiming = 2 };
enum { hipHostMallocDefault = 0 };
enum { hipGraphInstantiateFlagAutoFreeOnLaunch = 1 };
enum { hipMemAllocationTypePinned = 1 };
enum { hipMemLocationTypeDevice = 1 };
enum hipKernelNodeAttrID { hipKernelNodeAttributeCooperative = 2, hipKernelNodeAttributePriority = 8 };
enum hipStreamBatchMemOpType {
  hipStreamMemOpWaitValue32 = 1,
  hipStreamMemOpWriteValue32 = 2,
  hipStreamMemOpWaitValue64 = 4,
  hipStreamMemOpWriteValue64 = 5,
};

struct hipKernelNodeParams {
  dim3 blockDim;
  void** extra;
  void* func;
  dim3 gridDim;
  void** kernelParams;
  unsigned sharedMemBytes;
};
static inline hipPitchedPtr make_hipPitchedPtr(void* data, size_t pitch, size_t xsize, size_t ysize) {
  return {data, pitch, xsize, ysize};
}
static inline hipExtent make_hipExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
union hipKernelNodeAttrValue {
  char pad[64];
  int cooperative, priority;
};
union hipStreamBatchMemOpParams {
  hipStreamBatchMemOpType operation;
  struct Value {
    hipStreamBatchMemOpType operation;
    hipDeviceptr_t address;
    union {
      uint32_t value;
      uint64_t value64;
    };
    unsigned flags;
    hipDeviceptr_t alias;
  } waitValue, writeValue;
  uint64_t pad[6];
};
struct hipBatchMemOpNodeParams {
  hipCtx_t ctx;
  unsigned count;
  hipStreamBatchMemOpParams* paramArray;
  unsigned flags;
};

extern "C" {
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* context, int device);
hipError_t hipMalloc(void** data, size_t bytes);
hipError_t hipFree(void* data);
hipError_t hipHostMalloc(void** data, size_t bytes, unsigned flags);
hipError_t hipHostFree(void* data);
hipError_t hipMallocAsync(void** data, size_t bytes, hipStream_t stream);
hipError_t hipFreeAsync(void* data, hipStream_t stream);
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* params, hipStream_t stream);
hipError_t hipMemset(void* data, int value, size_t bytes);
hipError_t hipMemsetAsync(void* data, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemset2DAsync(void* data, size_t pitch, int value, size_t width, size_t height, hipStream_t stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t fn, void* user_data);
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id,
                                      hipGraph_t* graph, const hipGraphNode_t** nodes, size_t* count);
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t* nodes, size_t count, unsigned flags);
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleGetGlobal(hipDeviceptr_t* data, size_t* bytes, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream, void** arguments, void** extra);
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                            unsigned by, unsigned bz, unsigned shared, hipStream_t stream, void** arguments);
hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long flags);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count);
hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t node, hipKernelNodeAttrID attribute,
                                          const hipKernelNodeAttrValue* value);
hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                 const hipKernelNodeParams* params);
hipError_t hipGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                 const hipMemcpy3DParms* params);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, void* to,
                                   const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                 const hipMemsetParams* params);
hipError_t hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                               const hipHostNodeParams* params);
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                     hipGraph_t child);
hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                      hipEvent_t event);
hipError_t hipGraphAddEventWaitNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                    hipEvent_t event);
hipError_t hipGraphAddMemAllocNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                   hipMemAllocNodeParams* params);
hipError_t hipGraphAddMemFreeNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, void* data);
hipError_t hipGraphAddBatchMemOpNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
                                     const hipBatchMemOpNodeParams* params);
}

static inline hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                         hipStream_t stream) {
  return hipModuleLaunchKernel((hipFunction_t)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
                               arguments, nullptr);
}
static inline hipError_t hipLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, unsigned shared,
                                                    hipStream_t stream) {
  return hipModuleLaunchCooperativeKernel((hipFunction_t)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                                          stream, arguments);
}

#if defined(HIP_CPU_KERNELS)
// The library that the kernels of this program were compiled to. It is loaded at once, because a capture forbids it later.
static inline hipModule_t hip_cpu_load() {
  hipModule_t module = nullptr;
  if (hipModuleLoadData(&module, "HGCPU:" HIP_CPU_KERNELS)) {
    fprintf(stderr, "%s, which holds the kernels, cannot be loaded; build the program again\n", HIP_CPU_KERNELS);
    exit(1);
  }
  return module;
}
static const hipModule_t hip_cpu_module = hip_cpu_load();
static inline hipFunction_t hip_cpu_kernel(const char* name) {
  hipFunction_t function = nullptr;
  if (hipModuleGetFunction(&function, hip_cpu_module, name)) {
    fprintf(stderr, "kernel %s was not compiled with this program; build it again\n", name);
    exit(1);
  }
  return function;
}
static inline void hip_cpu_symbol(const char* name, void** pointer) {
  size_t bytes = 0;
  if (hipModuleGetGlobal(pointer, &bytes, hip_cpu_module, name)) {
    fprintf(stderr, "variable %s was not compiled with this program; build it again\n", name);
    exit(1);
  }
}
#endif
#endif
