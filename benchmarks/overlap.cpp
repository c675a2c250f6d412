// The loop that graphs and streams are compared with, in C++. The calls come as addresses, so one library serves all platforms.
#include <stddef.h>
#include <stdint.h>
#include <time.h>

namespace {

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

using LaunchKernel = int (*)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, void* stream, void** args, void** extra);
using CopyHip = int (*)(void* dst, const void* src, size_t bytes, int kind, void* stream);
using CopyCuda = int (*)(uintptr_t dst, uintptr_t src, size_t bytes, void* stream);
using Wait = int (*)(void* stream);

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// A kernel, then a copy to the host, then a wait, `count` times: the loop that graphs and streams are compared with.
EXPORT int synchronous_loop(LaunchKernel launch, void* copy, int is_hip, Wait wait, void* stream, size_t count,
                                 void* const* functions, const unsigned* shapes, void*** args, void* const* dst,
                                 void* const* src, const size_t* bytes, double* total_us) {
  double start = now_us();
  for (size_t i = 0; i < count; ++i) {
    const unsigned* s = shapes + 6 * i;
    if (int code = launch(functions[i], s[0], s[1], s[2], s[3], s[4], s[5], 0, stream, args[i], nullptr)) return code;
    int code = is_hip ? reinterpret_cast<CopyHip>(copy)(dst[i], src[i], bytes[i], 2, stream)
                      : reinterpret_cast<CopyCuda>(copy)(reinterpret_cast<uintptr_t>(dst[i]),
                                                         reinterpret_cast<uintptr_t>(src[i]), bytes[i], stream);
    if (code) return code;
    if ((code = wait(stream))) return code;
  }
  *total_us = now_us() - start;
  return 0;
}
