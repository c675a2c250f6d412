// What HIP's header declares alike for programs (include/hip/hip_runtime.h) and for this library (hip_types.h).
#pragma once
#include <stddef.h>

enum hipMemcpyKind : int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
};
enum hipStreamCaptureMode : int {
  hipStreamCaptureModeGlobal = 0,
  hipStreamCaptureModeThreadLocal = 1,
  hipStreamCaptureModeRelaxed = 2,
};

enum hipStreamCaptureStatus : int {
  hipStreamCaptureStatusNone = 0,
  hipStreamCaptureStatusActive = 1,
  hipStreamCaptureStatusInvalidated = 2,
};

struct hipMemsetParams {
  void* dst;
  unsigned elementSize;
  size_t height, pitch;
  unsigned value;
  size_t width;
};
using hipHostFn_t = void (*)(void*);
struct hipHostNodeParams {
  hipHostFn_t fn;
  void* userData;
};
struct hipPos {
  size_t x, y, z;
};
struct hipExtent {
  size_t width, height, depth;
};
struct hipPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct hipMemcpy3DParms {
  void* srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  void* dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  hipExtent extent;
  hipMemcpyKind kind;
};
struct hipMemLocation {
  int type, id;
};
struct hipMemPoolProps {
  int allocType, handleTypes;
  hipMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned char reserved[56];
};
struct hipMemAllocNodeParams {
  hipMemPoolProps poolProps;
  const void* accessDescs;
  size_t accessDescCount, bytesize;
  void* dptr;
};
