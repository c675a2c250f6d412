// Signals, queues that a thread drains, and copies.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "standin.h"

namespace {

using standin::holds;
using standin::now_ns;
using standin::value_of;

// Detached threads wait on these until the process is gone, so nothing that they use is ever destroyed: the destructor of a
// condition variable waits for its waiters, and the process would not end.
template <class T>
T& lasting() {
  return *new T;
}

// Everything that waits here waits for a signal or an index to change, and all changes are announced in one place.
std::mutex& change_mutex = lasting<std::mutex>();
std::condition_variable& change = lasting<std::condition_variable>();
std::atomic<uint64_t> changes{0};

void announce() {
  changes.fetch_add(1);
  // The empty section keeps a waiter from missing the change between its look and its sleep.
  { std::lock_guard lock(change_mutex); }
  change.notify_all();
}

template <class Condition>
void wait_until(Condition condition) {
  for (int round = 0; round < 20; ++round) {
    if (condition()) return;
    std::this_thread::yield();
  }
  for (;;) {
    const uint64_t seen = changes.load();
    if (condition()) return;
    std::unique_lock lock(change_mutex);
    // The runtime may also write to a signal's value itself, hence the limit.
    change.wait_for(lock, std::chrono::milliseconds(1), [&] { return changes.load() != seen; });
  }
}

void complete(hsa_signal_t signal, uint64_t started_ns) {
  if (!signal.handle) return;
  auto* memory = reinterpret_cast<amd_signal_t*>(signal.handle);
  memory->start_ts = started_ns;
  memory->end_ts = now_ns() + 1;
  value_of(signal).fetch_sub(1);
  announce();
}

// ---- handlers that are called when a signal's value meets a condition ------------------------------------------------
struct Handler {
  hsa_signal_t signal;
  hsa_signal_condition_t condition;
  int64_t compared;
  hsa_amd_signal_handler function;
  void* data;
};

std::mutex& handlers_mutex = lasting<std::mutex>();
std::list<Handler>& handlers = lasting<std::list<Handler>>();

void call_handlers() {
  for (;;) {
    std::vector<Handler> met;
    {
      std::lock_guard lock(handlers_mutex);
      for (auto handler = handlers.begin(); handler != handlers.end();) {
        if (holds(handler->condition, value_of(handler->signal).load(), handler->compared)) {
          met.push_back(*handler);
          handler = handlers.erase(handler);
        } else {
          ++handler;
        }
      }
    }
    for (const Handler& handler : met) {
      if (handler.function(value_of(handler.signal).load(), handler.data)) {
        std::lock_guard lock(handlers_mutex);
        handlers.push_back(handler);
      }
    }
    if (met.empty()) {
      const uint64_t seen = changes.load();
      std::unique_lock lock(change_mutex);
      change.wait_for(lock, std::chrono::milliseconds(1), [&] { return changes.load() != seen; });
    }
  }
}

// ---- queues --------------------------------------------------------------------------------------------------------
struct Queue {
  amd_queue_t shared;  // first, for its address is the handle
  hsa_agent_t agent;
  std::unique_ptr<hsa_kernel_dispatch_packet_t[]> packets;
  std::atomic<bool> stop;
  std::thread worker;
};

Queue* queue_of(const hsa_queue_t* queue) { return reinterpret_cast<Queue*>(const_cast<hsa_queue_t*>(queue)); }

std::atomic<uint64_t>& read_index(Queue& queue) { return standin::atomic_view(queue.shared.read_dispatch_id); }
std::atomic<uint64_t>& write_index(Queue& queue) { return standin::atomic_view(queue.shared.write_dispatch_id); }

void wait_for_all(Queue& queue, const hsa_signal_t (&signals)[5]) {
  for (hsa_signal_t signal : signals) {
    if (signal.handle) wait_until([&] { return value_of(signal).load() == 0 || queue.stop; });
  }
}

void wait_for_any(Queue& queue, const hsa_signal_t (&signals)[5]) {
  wait_until([&] {
    bool none = true;
    for (hsa_signal_t signal : signals) {
      if (!signal.handle) continue;
      none = false;
      if (value_of(signal).load() == 0) return true;
    }
    return none || queue.stop;
  });
}

// Which packet waits for what: by this one sees whether the runtime or the library forgot a dependency.
void log_packet(const Queue& queue, const hsa_kernel_dispatch_packet_t& packet, int type) {
  const auto id = static_cast<unsigned long long>(queue.shared.hsa_queue.id);
  const auto& barrier = reinterpret_cast<const hsa_barrier_and_packet_t&>(packet);
  if (type == HSA_PACKET_TYPE_BARRIER_AND || type == HSA_PACKET_TYPE_BARRIER_OR) {
    STANDIN_LOG(2, "queue %llu: barrier %s of %llx %llx %llx %llx %llx, completes %llx", id,
        type == HSA_PACKET_TYPE_BARRIER_AND ? "all" : "any", (unsigned long long)barrier.dep_signal[0].handle,
        (unsigned long long)barrier.dep_signal[1].handle, (unsigned long long)barrier.dep_signal[2].handle,
        (unsigned long long)barrier.dep_signal[3].handle, (unsigned long long)barrier.dep_signal[4].handle,
        (unsigned long long)barrier.completion_signal.handle);
  } else {
    STANDIN_LOG(2, "queue %llu: packet type %d%s, completes %llx", id, type,
        packet.header >> HSA_PACKET_HEADER_BARRIER & 1 ? "" : " without barrier bit",
        (unsigned long long)packet.completion_signal.handle);
  }
}

uint16_t header_of(const hsa_kernel_dispatch_packet_t& packet) { return __atomic_load_n(&packet.header, __ATOMIC_ACQUIRE); }

void process(Queue& queue, hsa_kernel_dispatch_packet_t& packet, int type) {
  log_packet(queue, packet, type);
  const uint64_t started = now_ns();
  hsa_signal_t completion = packet.completion_signal;
  switch (type) {
    case HSA_PACKET_TYPE_KERNEL_DISPATCH:
      standin::run_kernel(packet, queue.agent);
      break;
    case HSA_PACKET_TYPE_BARRIER_AND:
    case HSA_PACKET_TYPE_BARRIER_OR: {
      const auto& barrier = reinterpret_cast<hsa_barrier_and_packet_t&>(packet);
      if (type == HSA_PACKET_TYPE_BARRIER_AND) {
        wait_for_all(queue, barrier.dep_signal);
      } else {
        wait_for_any(queue, barrier.dep_signal);
      }
      completion = barrier.completion_signal;
      break;
    }
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC: {
      const auto& barrier = reinterpret_cast<hsa_amd_barrier_value_packet_t&>(packet);
      if (barrier.header.AmdFormat != HSA_AMD_PACKET_TYPE_BARRIER_VALUE) {
        STANDIN_LOG(1, "vendor packet %u is not known", barrier.header.AmdFormat);
        break;
      }
      if (barrier.signal.handle) {
        const auto condition = hsa_signal_condition_t(barrier.cond);
        wait_until([&] {
          return holds(condition, value_of(barrier.signal).load() & barrier.mask, barrier.value) || queue.stop;
        });
      }
      completion = barrier.completion_signal;
      break;
    }
    default:
      STANDIN_LOG(1, "packet type %d is not known", type);
  }
  __atomic_store_n(&packet.header, uint16_t(HSA_PACKET_TYPE_INVALID), __ATOMIC_RELEASE);
  complete(completion, started);
}

// The packet at a place of a queue, once it has been submitted.
hsa_kernel_dispatch_packet_t* submitted(Queue& queue, uint64_t place) {
  const auto doorbell = value_of(queue.shared.hsa_queue.doorbell_signal).load();
  if (doorbell < int64_t(place) || place >= write_index(queue).load()) return nullptr;
  auto& packet = queue.packets[place % queue.shared.hsa_queue.size];
  return header_of(packet) % 256 == HSA_PACKET_TYPE_INVALID ? nullptr : &packet;
}

// Launches without a barrier bit run before those that they need not wait for, the last one first, so that it shows what they read.
void drain(Queue& queue) {
  constexpr uint32_t launch = HSA_PACKET_TYPE_KERNEL_DISPATCH;
  while (!queue.stop) {
    const uint64_t next = read_index(queue).load();
    hsa_kernel_dispatch_packet_t* packet = nullptr;
    wait_until([&] { return queue.stop || (packet = submitted(queue, next)); });
    if (queue.stop) return;
    standin::jitter();
    std::vector<hsa_kernel_dispatch_packet_t*> together = {packet};
    while (header_of(*packet) % 256 == launch && (packet = submitted(queue, next + together.size())) &&
        header_of(*packet) % 256 == launch && !(header_of(*packet) >> HSA_PACKET_HEADER_BARRIER & 1)) {
      together.push_back(packet);
    }
    for (auto last = together.rbegin(); last != together.rend(); ++last) process(queue, **last, header_of(**last) % 256);
    read_index(queue).fetch_add(together.size());
    announce();
  }
}

// ---- copies --------------------------------------------------------------------------------------------------------
struct Copy {
  std::function<void()> move;
  std::vector<hsa_signal_t> dependencies;
  hsa_signal_t completion;
};

std::mutex& copies_mutex = lasting<std::mutex>();
std::list<Copy>& copies = lasting<std::list<Copy>>();

// One engine: it takes the first copy whose dependencies are met, so that copies which nothing orders overtake one another.
void run_copies() {
  for (;;) {
    std::list<Copy> ready;
    wait_until([&] {
      std::lock_guard lock(copies_mutex);
      const auto zero = [](hsa_signal_t signal) { return value_of(signal).load() == 0; };
      const auto first = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) {
        return std::all_of(copy.dependencies.begin(), copy.dependencies.end(), zero);
      });
      if (first == copies.end()) return false;
      ready.splice(ready.end(), copies, first);
      return true;
    });
    const Copy& copy = ready.front();
    standin::jitter();
    const uint64_t started = now_ns();
    copy.move();
    complete(copy.completion, started);
  }
}

// ---- destroyed signals -----------------------------------------------------------------------------------------------
constexpr size_t kDestroyedKept = 8192;
std::mutex& destroyed_mutex = lasting<std::mutex>();
std::deque<amd_signal_t*>& destroyed = lasting<std::deque<amd_signal_t*>>();

// Never waits: what a dependency waits for may be what the caller submits next.
hsa_status_t copy_later(
    std::function<void()> move, uint32_t count, const hsa_signal_t* dependencies, hsa_signal_t completion) {
  static std::once_flag started;
  std::call_once(started, [] { std::thread(run_copies).detach(); });
  {
    std::lock_guard lock(copies_mutex);
    copies.push_back({std::move(move), {dependencies, dependencies + count}, completion});
  }
  announce();
  return HSA_STATUS_SUCCESS;
}

}  // namespace

namespace standin {

hsa_status_t make_signal(int64_t value, hsa_signal_t* signal) {
  constexpr size_t kBytes = (sizeof(amd_signal_t) + 63) / 64 * 64;
  amd_signal_t* memory = nullptr;
  {
    std::lock_guard lock(destroyed_mutex);
    if (destroyed.size() > kDestroyedKept) {
      memory = destroyed.front();
      destroyed.pop_front();
    }
  }
  if (!memory) memory = static_cast<amd_signal_t*>(std::aligned_alloc(64, kBytes));
  std::memset(memory, 0, kBytes);
  memory->kind = AMD_SIGNAL_KIND_USER;
  memory->value = value;
  signal->handle = uint64_t(memory);
  return HSA_STATUS_SUCCESS;
}

bool holds(hsa_signal_condition_t condition, int64_t value, int64_t compared) {
  switch (condition) {
    case HSA_SIGNAL_CONDITION_EQ: return value == compared;
    case HSA_SIGNAL_CONDITION_NE: return value != compared;
    case HSA_SIGNAL_CONDITION_LT: return value < compared;
    default: return value >= compared;
  }
}

}  // namespace standin

// ---- signals -------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t, const hsa_agent_t*, hsa_signal_t* signal) {
  return standin::make_signal(value, signal);
}
HSA_EXPORT hsa_status_t hsa_amd_signal_create(
    hsa_signal_value_t value, uint32_t, const hsa_agent_t*, uint64_t, hsa_signal_t* signal) {
  return standin::make_signal(value, signal);
}
// A handler, a queue or a copy may still read it: the memory serves again only after many others have been destroyed.
HSA_EXPORT hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  std::lock_guard lock(destroyed_mutex);
  destroyed.push_back(reinterpret_cast<amd_signal_t*>(signal.handle));
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t** pointer) {
  *pointer = reinterpret_cast<volatile hsa_signal_value_t*>(&value_of(signal));
  return HSA_STATUS_SUCCESS;
}
HSA_EXPORT hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) { return value_of(signal).load(); }
HSA_EXPORT void hsa_signal_silent_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  value_of(signal).store(value);
}
HSA_EXPORT void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  value_of(signal).store(value);
  announce();
}
HSA_EXPORT void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
  value_of(signal).store(value);
  announce();
}
HSA_EXPORT void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  value_of(signal).fetch_add(value);
  announce();
}
HSA_EXPORT void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
  value_of(signal).fetch_sub(value);
  announce();
}

HSA_EXPORT hsa_signal_value_t hsa_signal_wait_scacquire(
    hsa_signal_t signal, hsa_signal_condition_t condition, hsa_signal_value_t compared, uint64_t timeout_ns, hsa_wait_state_t) {
  const uint64_t begin = now_ns();
  int64_t value = 0;
  wait_until([&] {
    value = value_of(signal).load();
    return holds(condition, value, compared) || (timeout_ns != UINT64_MAX && now_ns() - begin > timeout_ns);
  });
  return value;
}

HSA_EXPORT hsa_status_t hsa_amd_signal_async_handler(
    hsa_signal_t signal, hsa_signal_condition_t condition, hsa_signal_value_t compared, hsa_amd_signal_handler function, void* data) {
  static std::once_flag started;
  std::call_once(started, [] { std::thread(call_handlers).detach(); });
  std::lock_guard lock(handlers_mutex);
  handlers.push_back({signal, condition, compared, function, data});
  return HSA_STATUS_SUCCESS;
}

// ---- queues --------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_queue_create(
    hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type, void (*)(hsa_status_t, hsa_queue_t*, void*), void*, uint32_t, uint32_t, hsa_queue_t** handle) {
  static std::atomic<uint64_t> next_id{1};
  auto* queue = new Queue{};
  queue->agent = agent;
  queue->packets.reset(new (std::align_val_t(64)) hsa_kernel_dispatch_packet_t[size]());
  for (uint32_t i = 0; i < size; ++i) queue->packets[i].header = HSA_PACKET_TYPE_INVALID;
  hsa_queue_t& shown = queue->shared.hsa_queue;
  shown.type = type;
  shown.features = HSA_QUEUE_FEATURE_KERNEL_DISPATCH;
  shown.size = size;
  shown.id = next_id++;
  shown.base_address = queue->packets.get();
  standin::make_signal(-1, &shown.doorbell_signal);
  queue->worker = std::thread(drain, std::ref(*queue));
  *handle = &shown;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_queue_destroy(hsa_queue_t* handle) {
  Queue* queue = queue_of(handle);
  queue->stop = true;
  announce();
  queue->worker.join();
  ::operator delete[](queue->packets.release(), std::align_val_t(64));
  delete queue;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t* queue, uint64_t count) {
  return write_index(*queue_of(queue)).fetch_add(count);
}
HSA_EXPORT uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t* queue) {
  return read_index(*queue_of(queue)).load();
}
HSA_EXPORT uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t* queue) {
  return read_index(*queue_of(queue)).load();
}
HSA_EXPORT uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t* queue) {
  return write_index(*queue_of(queue)).load();
}
HSA_EXPORT hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t*, hsa_amd_queue_priority_t) { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_amd_queue_cu_set_mask(const hsa_queue_t*, uint32_t, const uint32_t*) {
  return HSA_STATUS_SUCCESS;
}

// ---- times ---------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t*, int) { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_amd_profiling_async_copy_enable(bool) { return HSA_STATUS_SUCCESS; }

HSA_EXPORT hsa_status_t hsa_amd_profiling_get_dispatch_time(
    hsa_agent_t, hsa_signal_t signal, hsa_amd_profiling_dispatch_time_t* time) {
  const auto* memory = reinterpret_cast<amd_signal_t*>(signal.handle);
  time->start = memory->start_ts;
  time->end = memory->end_ts;
  return HSA_STATUS_SUCCESS;
}
HSA_EXPORT hsa_status_t hsa_amd_profiling_get_async_copy_time(
    hsa_signal_t signal, hsa_amd_profiling_async_copy_time_t* time) {
  const auto* memory = reinterpret_cast<amd_signal_t*>(signal.handle);
  time->start = memory->start_ts;
  time->end = memory->end_ts;
  return HSA_STATUS_SUCCESS;
}

// ---- copies --------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_amd_memory_async_copy(
    void* dst, hsa_agent_t, const void* src, hsa_agent_t, size_t bytes, uint32_t count, const hsa_signal_t* dependencies, hsa_signal_t completion) {
  return copy_later([=] { std::memmove(dst, src, bytes); }, count, dependencies, completion);
}

HSA_EXPORT hsa_status_t hsa_amd_memory_async_copy_on_engine(
    void* dst, hsa_agent_t, const void* src, hsa_agent_t, size_t bytes, uint32_t count, const hsa_signal_t* dependencies, hsa_signal_t completion, hsa_amd_sdma_engine_id_t, bool) {
  return copy_later([=] { std::memmove(dst, src, bytes); }, count, dependencies, completion);
}

HSA_EXPORT hsa_status_t hsa_amd_memory_async_copy_rect(
    const hsa_pitched_ptr_t* dst, const hsa_dim3_t* dst_offset, const hsa_pitched_ptr_t* src, const hsa_dim3_t* src_offset,
    const hsa_dim3_t* range, hsa_agent_t, hsa_amd_copy_direction_t, uint32_t count, const hsa_signal_t* dependencies,
    hsa_signal_t completion) {
  const auto at = [](const hsa_pitched_ptr_t& area, const hsa_dim3_t& offset, uint32_t y, uint32_t z) {
    return static_cast<char*>(area.base) + (z + offset.z) * area.slice + (y + offset.y) * area.pitch + offset.x;
  };
  // By value: the caller's descriptions need not outlive this call.
  auto move = [at, to = *dst, to_offset = *dst_offset, from = *src, from_offset = *src_offset, size = *range] {
    for (uint32_t z = 0; z < size.z; ++z) {
      for (uint32_t y = 0; y < size.y; ++y) std::memcpy(at(to, to_offset, y, z), at(from, from_offset, y, z), size.x);
    }
  };
  return copy_later(std::move(move), count, dependencies, completion);
}

HSA_EXPORT hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t, hsa_agent_t, uint32_t* engines) {
  *engines = 3;
  return HSA_STATUS_SUCCESS;
}
HSA_EXPORT hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t, hsa_agent_t, uint32_t* engines) {
  *engines = 3;
  return HSA_STATUS_SUCCESS;
}
