// What the parts of the stand-in share.
#pragma once
#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define HSA_EXPORT extern "C" __attribute__((visibility("default")))

namespace standin {

// AMD_ON_CPU_LOG: 1 dispatches and unknown questions, 2 also memory and symbols.
inline int log_level() {
  static const int level = std::getenv("AMD_ON_CPU_LOG") ? std::atoi(std::getenv("AMD_ON_CPU_LOG")) : 0;
  return level;
}

#define STANDIN_LOG(level, ...)                                        \
  do {                                                                 \
    if (standin::log_level() >= (level)) {                             \
      std::fprintf(stderr, "[stand-in] " __VA_ARGS__);                 \
      std::fputc('\n', stderr);                                        \
    }                                                                  \
  } while (0)

// Most HSA questions are answered through an untyped pointer.
template <class T>
hsa_status_t answer(void* where, T value) {
  std::memcpy(where, &value, sizeof value);
  return HSA_STATUS_SUCCESS;
}

unsigned wave_size();
uint64_t now_ns();
// Sleeps up to AMD_ON_CPU_JITTER_US microseconds, so that work which nothing orders does not happen to come in order.
void jitter();

void* allocate_device_memory(size_t bytes);
void free_memory(void* address);

// AMD's structures declare what several threads touch as volatile.
template <class T>
std::atomic<T>& atomic_view(volatile T& value) {
  return reinterpret_cast<std::atomic<T>&>(const_cast<T&>(value));
}

inline std::atomic<int64_t>& value_of(hsa_signal_t signal) {
  return atomic_view(reinterpret_cast<amd_signal_t*>(signal.handle)->value);
}
hsa_status_t make_signal(int64_t value, hsa_signal_t* signal);
bool holds(hsa_signal_condition_t condition, int64_t value, int64_t compared);

// Runs a dispatch to a device's queue to its end on the calling thread.
void run_kernel(const hsa_kernel_dispatch_packet_t& packet, hsa_agent_t agent);

}  // namespace standin
