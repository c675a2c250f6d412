// What a C++ program does with HIP's and CUDA's graph calls, which have the same signatures: build, launch, set parameters.
// The calls come as addresses and the parameters of nodes as the platform's own structures, so one library serves all.
// C's headers alone: a compiler may come without C++'s library.
#include <stddef.h>
#include <time.h>

namespace {

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

using Create = int (*)(void** graph, unsigned flags);
using AddKernel = int (*)(void** node, void* graph, void* const* deps, size_t count, const void* params);
using Instantiate = int (*)(void** exec, void* graph, unsigned long long flags);
using Launch = int (*)(void* exec, void* stream);
using Wait = int (*)(void* stream);
using SetKernel = int (*)(void* exec, void* node, const void* params);

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// What reading the clock costs, in microseconds.
EXPORT double peer_clock_us() {
  double least = 1e9;
  for (int i = 0; i < 1000; ++i) {
    double from = now_us();
    double cost = now_us() - from;
    if (cost < least) least = cost;
  }
  return least;
}

/// Add `count` kernel nodes; node i waits for deps[first[i] .. first[i + 1]). Returns the first code that is no success.
EXPORT int peer_build(Create create, AddKernel add, Instantiate instantiate, size_t count, const char* params, size_t stride,
                      const size_t* first, const size_t* deps, void** graph, void** exec, void** nodes, void** scratch,
                      double* add_us, double* instantiate_us) {
  double start = now_us();
  if (int code = create(graph, 0)) return code;
  for (size_t i = 0; i < count; ++i) {
    size_t found = 0;
    for (size_t k = first[i]; k < first[i + 1]; ++k) scratch[found++] = nodes[deps[k]];
    if (int code = add(&nodes[i], *graph, scratch, found, params + i * stride)) return code;
  }
  double built = now_us();
  if (int code = instantiate(exec, *graph, 0)) return code;
  *add_us = built - start;
  *instantiate_us = now_us() - built;
  return 0;
}

/// Launch `count` graphs one after another, then wait, `repeats` times; nodes `begin` to `end` of the first graph get their other
/// parameters before each launch.
EXPORT int peer_launch(Launch launch, Wait wait, SetKernel set, void* const* execs, size_t count, void* stream,
                       void* const* nodes, size_t begin, size_t end, const char* params, const char* others, size_t stride,
                       size_t repeats, double* submit_us, double* total_us) {
  for (size_t k = 0; k < repeats; ++k) {
    const char* from = k % 2 ? params : others;
    double start = now_us();
    for (size_t i = begin; i < end; ++i)
      if (int code = set(execs[0], nodes[i], from + i * stride)) return code;
    for (size_t i = 0; i < count; ++i)
      if (int code = launch(execs[i], stream)) return code;
    double returned = now_us();
    if (int code = wait(stream)) return code;
    submit_us[k] = returned - start;
    total_us[k] = now_us() - start;
  }
  return 0;
}
