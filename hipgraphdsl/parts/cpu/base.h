// Ground for the rest: atomics, locks, a vector, a hash map, time, and the table of handles.
// Only the C library is used, so that no C++ runtime library is needed beside this one.
#pragma once
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#include "fibers.h"
#include "hip_types.h"

struct Place {};
inline void* operator new(size_t, Place, void* where) noexcept { return where; }

inline void* must_alloc(size_t bytes) {
  void* p = malloc(bytes ? bytes : 1);
  if (!p) abort();  // only bookkeeping comes this way; what users ask for is refused with an error code
  return p;
}
template <class T>
T* create() {
  return new (Place{}, must_alloc(sizeof(T))) T();
}
template <class T>
void discard(T* object) {
  object->~T();
  free(object);
}

// Orders are in the method names; `sequential` is for the places where two threads each write and then read the other's.
template <class T>
struct Atomic {
  T value{};
  T relaxed() const { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
  T get() const { return __atomic_load_n(&value, __ATOMIC_ACQUIRE); }
  T get_sequential() const { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
  void set_relaxed(T v) { __atomic_store_n(&value, v, __ATOMIC_RELAXED); }
  void set(T v) { __atomic_store_n(&value, v, __ATOMIC_RELEASE); }
  void set_sequential(T v) { __atomic_store_n(&value, v, __ATOMIC_SEQ_CST); }
  T swap(T v) { return __atomic_exchange_n(&value, v, __ATOMIC_SEQ_CST); }
  T add(T v) { return __atomic_fetch_add(&value, v, __ATOMIC_SEQ_CST); }  // these two return the value before
  T sub(T v) { return __atomic_fetch_sub(&value, v, __ATOMIC_SEQ_CST); }
  bool replace(T from, T to) {
    return __atomic_compare_exchange_n(&value, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
};

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

struct SpinLock {
  Atomic<int> held;
  void lock() {
    for (int spins = 0; __atomic_exchange_n(&held.value, 1, __ATOMIC_ACQUIRE);) {
      while (held.relaxed()) {
        if (++spins < 100) {
          pause_cpu();
        } else {
          sched_yield();  // the holder was taken off its core
        }
      }
    }
  }
  void unlock() { held.set(0); }
};

struct Mutex {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  void lock() { pthread_mutex_lock(&m); }
  void unlock() { pthread_mutex_unlock(&m); }
};

template <class L>
struct Guard {
  L& lock;
  explicit Guard(L& l) : lock(l) { lock.lock(); }
  ~Guard() { lock.unlock(); }
  Guard(const Guard&) = delete;
};

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

struct Condition {
  pthread_cond_t c;
  Condition() {
#ifdef __linux__
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&c, &how);
    pthread_condattr_destroy(&how);
#else
    pthread_cond_init(&c, nullptr);
#endif
  }
  ~Condition() { pthread_cond_destroy(&c); }
  void wait(Mutex& m) { pthread_cond_wait(&c, &m.m); }
  // Waits until `deadline` (of now_ns) at the latest.
  void wait_until(Mutex& m, uint64_t deadline) {
#ifdef __linux__
    timespec t{time_t(deadline / 1000000000u), long(deadline % 1000000000u)};
    pthread_cond_timedwait(&c, &m.m, &t);
#else
    uint64_t now = now_ns(), left = deadline > now ? deadline - now : 0;
    timespec t{time_t(left / 1000000000u), long(left % 1000000000u)};
    pthread_cond_timedwait_relative_np(&c, &m.m, &t);
#endif
  }
  void signal() { pthread_cond_signal(&c); }
  void broadcast() { pthread_cond_broadcast(&c); }
};

// A growing array of plain values.
template <class T>
struct Vec {
  static_assert(__is_trivially_copyable(T), "moved with realloc");
  T* items = nullptr;
  uint32_t count = 0, room = 0;
  Vec() = default;
  Vec(const Vec&) = delete;
  Vec& operator=(const Vec&) = delete;
  ~Vec() { free(items); }
  T& operator[](uint32_t i) { return items[i]; }
  const T& operator[](uint32_t i) const { return items[i]; }
  T* begin() const { return items; }
  T* end() const { return items + count; }
  T& back() { return items[count - 1]; }
  void reserve(uint32_t n) {
    if (n <= room) return;
    uint32_t grown = room * 2 > n ? room * 2 : n;
    items = static_cast<T*>(realloc(static_cast<void*>(items), size_t(grown) * sizeof(T)));
    if (!items) abort();
    room = grown;
  }
  void push(const T& v) {
    T kept = v;
    if (count == room) reserve(count < 2 ? 4 : count + 1);
    items[count++] = kept;
  }
  T pop() { return items[--count]; }
  void resize_zeroed(uint32_t n) {
    reserve(n);
    if (n > count) memset(static_cast<void*>(items + count), 0, size_t(n - count) * sizeof(T));
    count = n;
  }
  void assign(const T* from, uint32_t n) {
    count = 0;
    reserve(n);
    if (n) memcpy(static_cast<void*>(items), from, size_t(n) * sizeof(T));
    count = n;
  }
  void remove_at(uint32_t i) {
    memmove(static_cast<void*>(items + i), items + i + 1, size_t(count - i - 1) * sizeof(T));
    --count;
  }
  bool remove(const T& v) {
    for (uint32_t i = 0; i < count; ++i) {
      if (items[i] == v) {
        remove_at(i);
        return true;
      }
    }
    return false;
  }
  bool contains(const T& v) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (items[i] == v) return true;
    }
    return false;
  }
  void clear() { count = 0; }
};

// Open addressing, keys other than 0.
struct Map {
  struct Entry {
    uint64_t key, value;
  };
  Entry* entries = nullptr;
  uint32_t room = 0, used = 0;
  Map() = default;
  Map(const Map&) = delete;
  ~Map() { free(entries); }
  static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    return x ^ (x >> 29);
  }
  uint64_t* find(uint64_t key) const {
    if (!used) return nullptr;
    for (uint32_t i = uint32_t(mix(key)) & (room - 1);; i = (i + 1) & (room - 1)) {
      if (entries[i].key == key) return &entries[i].value;
      if (!entries[i].key) return nullptr;
    }
  }
  void put(uint64_t key, uint64_t value) {
    if (uint64_t* old = find(key)) {
      *old = value;
      return;
    }
    if ((used + 1) * 4 > room * 3) {
      Entry* old = entries;
      uint32_t n = room;
      room = room ? room * 2 : 64;
      entries = static_cast<Entry*>(calloc(room, sizeof(Entry)));
      if (!entries) abort();
      for (uint32_t i = 0; i < n; ++i) {
        if (old[i].key) place(old[i]);
      }
      free(old);
    }
    place({key, value});
    ++used;
  }
  void clear() {
    if (used) memset(entries, 0, room * sizeof(Entry));
    used = 0;
  }
  bool erase(uint64_t key) {
    uint64_t* value = find(key);
    if (!value) return false;
    uint32_t hole = uint32_t(reinterpret_cast<Entry*>(reinterpret_cast<char*>(value) - offsetof(Entry, value)) - entries);
    // Entries behind the hole move up when their own place is not between the hole and them.
    for (uint32_t i = (hole + 1) & (room - 1); entries[i].key; i = (i + 1) & (room - 1)) {
      uint32_t home = uint32_t(mix(entries[i].key)) & (room - 1);
      if (((i - home) & (room - 1)) >= ((i - hole) & (room - 1))) {
        entries[hole] = entries[i];
        hole = i;
      }
    }
    entries[hole].key = 0;
    --used;
    return true;
  }

 private:
  void place(Entry e) {
    uint32_t i = uint32_t(mix(e.key)) & (room - 1);
    while (entries[i].key) i = (i + 1) & (room - 1);
    entries[i] = e;
  }
};

// splitmix64: small, seedable, good enough to shuffle.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return uint32_t((next() >> 32) * n >> 32); }
};

// ---- handles --------------------------------------------------------------------------------------------------------
// generation << 32 | slot << 4 | kind. A slot's generation grows when its object dies, so an old handle finds nothing.
enum Kind : uint32_t { kStream = 1, kEvent, kModule, kFunction, kGraph, kNode, kExec, kSemaphore };

struct HandleTable {
  static constexpr uint32_t kChunkBits = 12, kChunk = 1u << kChunkBits, kChunks = 1u << 14;
  struct Slot {
    Atomic<uint64_t> handle;
    void* object;
    uint32_t generation, next_free;
  };
  Atomic<Slot*> chunks[kChunks];
  SpinLock lock;
  uint32_t made = 1, free_head = 0;  // slot 0 is never used: it ends the free list

  Slot* slot(uint32_t i) {
    Slot* chunk = chunks[i >> kChunkBits].get();
    return chunk ? &chunk[i & (kChunk - 1)] : nullptr;
  }
  Handle add(Kind kind, void* object) {
    Guard<SpinLock> g(lock);
    uint32_t i = free_head;
    if (i) {
      free_head = slot(i)->next_free;
    } else {
      i = made++;
      if (i >= kChunk * kChunks) abort();
      if (!slot(i)) {
        auto* chunk = static_cast<Slot*>(calloc(kChunk, sizeof(Slot)));
        if (!chunk) abort();
        chunks[i >> kChunkBits].set(chunk);
      }
    }
    Slot* s = slot(i);
    s->generation = (s->generation + 1) & 0x7fffffff;
    s->generation += !s->generation;
    s->object = object;
    Handle h = uint64_t(s->generation) << 32 | uint64_t(i) << 4 | kind;
    s->handle.set(h);
    return h;
  }
  void* find(Kind kind, Handle h) {
    if ((h & 15) != kind) return nullptr;
    uint32_t i = uint32_t(h) >> 4;
    if (i >= kChunk * kChunks) return nullptr;
    Slot* s = slot(i);
    return s && s->handle.get() == h ? s->object : nullptr;
  }
  void remove(Handle h) {
    if (!h) return;
    Guard<SpinLock> g(lock);
    uint32_t i = uint32_t(h) >> 4;
    Slot* s = slot(i);
    s->handle.set(0);
    s->next_free = free_head;
    free_head = i;
  }
};
inline HandleTable g_handles;

template <class T>
T* find(Handle h) {
  return static_cast<T*>(g_handles.find(T::kKind, h));
}

// ---- faults ------------------------------------------------------------------------------------------------------------
// Why a kernel failed last, for the message of an error; empty where something else has failed since.
struct Fault {
  Mutex lock;
  char text[1280];
};
inline Fault g_fault;

inline void forget_fault() {
  Guard<Mutex> g(g_fault.lock);
  g_fault.text[0] = 0;
}

// ---- errors, entry -----------------------------------------------------------------------------------------------------
#define API extern "C" __attribute__((visibility("default")))

inline bool g_forked = false;
inline thread_local int t_last_error = 0;

inline int fail(int code) {
  if (code && code != hipErrorNotReady) t_last_error = code;
  return code;
}
// The threads of a process do not survive fork, so nothing can be answered in the child.
#define ENTER() \
  if (g_forked) return fail(hipErrorNotInitialized)
#define REQUIRE(condition, code) \
  if (!(condition)) return fail(code)
// The object that a handle stands for.
#define HELD(Type, name, handle)   \
  Type* name = find<Type>(handle); \
  REQUIRE(name, hipErrorInvalidHandle)
