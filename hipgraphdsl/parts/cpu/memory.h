// Device memory is host memory: what hipMalloc, hipHostMalloc, hipMallocAsync and alloc nodes give, and who frees it when.
#pragma once
#include "block.h"
#include "pool.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef __linux__
#include <stdio.h>
#endif

constexpr size_t kAlign = 256;
constexpr size_t kPoolKeeps = size_t(256) << 20;  // bytes of freed memory that stay for reuse if it is stream-ordered
constexpr size_t kKeeps = size_t(64) << 20;       // and if it is not
constexpr size_t kMapped = size_t(1) << 20;  // bytes from which stream-ordered memory leaves the process when a stream is destroyed
constexpr size_t kLeaves = size_t(32) << 20;      // bytes from which memory that is not stream-ordered leaves the process at once
// An array ends before pages that cannot be accessed, and such pages precede it, so that a kernel that runs on past its end is ended
// by a signal before it reaches other memory. They take address space alone, and two of the process's memory maps for each array.
constexpr size_t kGuard = size_t(8) << 20;
constexpr size_t kMostGuarded = 8192;  // arrays; fewer where they would take more than a quarter of the maps

// ---- devices: the same threads and memory under several numbers, with HIP's rules of what belongs to which ----------------
constexpr int kMaxDevices = 16;
struct Devices {
  Atomic<int> count;
  Atomic<uint32_t> peers[kMaxDevices];  // bit p of [d]: d's kernels may reach what hipMalloc gave on p
  Atomic<uint32_t> pools[kMaxDevices];  // bit p of [d]: p's kernels may reach what d's pool gives
};
inline Devices g_devices;
inline thread_local int t_device = 0;

inline int device_count() {
  int n = g_devices.count.relaxed();
  if (n) return n;
  const char* text = getenv("HIPGRAPHDSL_CPU_DEVICES");
  n = text ? atoi(text) : 1;
  n = n < 1 ? 1 : n > kMaxDevices ? kMaxDevices : n;
  g_devices.count.set(n);
  return n;
}
inline bool is_device(int device) { return device >= 0 && device < device_count(); }
inline int this_device() { return t_device < device_count() ? t_device : 0; }

enum class Origin : uint8_t { device, host, pool, graph };
inline bool is_ordered(Origin origin) { return origin == Origin::pool || origin == Origin::graph; }

struct Block {
  void* pointer;
  size_t bytes, room;
  char* mapping;  // of its own, with `guard` bytes before and after the room; null: from malloc
  size_t guard;
  Origin origin;
  int device;
  uint32_t access;    // pool and graph: bit p: device p may reach it too
  Atomic<int> refs;   // graph: one for each node that holds it
  Atomic<int> live;   // graph: allocated by a launch and not freed since, as far as launches have come
  Atomic<int> left;   // graph: some submitted launch leaves it allocated, and nothing that was submitted since frees it
  Atomic<int> execs;  // graph: executables that allocate it; more than one would share the memory
  uint8_t* unwritten;  // for the sanitizer: a bit for each byte that nothing has written; null where all count as written
};
inline Atomic<int> g_sanitized_modules;  // while there are none, nobody asks what is written
inline void block_set_fresh(Block* b) {
  free(b->unwritten);
  b->unwritten = nullptr;
  if (!g_sanitized_modules.relaxed()) return;
  b->unwritten = static_cast<uint8_t*>(must_alloc(b->bytes / 8 + 1));
  memset(b->unwritten, 0xff, b->bytes / 8 + 1);
}

// ---- what the sanitizer knows of memory ------------------------------------------------------------------------------------
// Arrays by name, as whoever owns them has told; they may overlap.
struct NamedArray {
  uintptr_t start, bytes;
  char* name;      // the last that was told
  uint32_t times;  // how often one was, and not taken back
};
struct NamedArrays {
  Mutex lock;
  Vec<NamedArray> list;
};
inline NamedArrays& named_arrays() {
  static NamedArrays* made = create<NamedArrays>();
  return *made;
}
inline void names_remove(NamedArrays& arrays, uint32_t i) {
  free(arrays.list[i].name);
  arrays.list[i] = arrays.list.back();
  arrays.list.pop();
}
// Names memory; a null name takes back one that this memory was given.
inline void name_array(const void* pointer, size_t bytes, const char* name) {
  NamedArrays& arrays = named_arrays();
  Guard<Mutex> g(arrays.lock);
  const uintptr_t start = reinterpret_cast<uintptr_t>(pointer);
  for (uint32_t i = 0; i < arrays.list.count; ++i) {
    NamedArray& old = arrays.list[i];
    if (old.start != start || old.bytes != bytes) continue;
    if (name) {
      free(old.name);
      old.name = strdup(name);
      ++old.times;
    } else if (!--old.times) {
      names_remove(arrays, i);
    }
    return;
  }
  if (name) arrays.list.push({start, bytes, strdup(name), 1});
}
// Forgets all names of memory that is given back.
inline void forget_names(const void* pointer, size_t bytes) {
  NamedArrays& arrays = named_arrays();
  if (!arrays.list.count) return;
  Guard<Mutex> g(arrays.lock);
  const uintptr_t start = reinterpret_cast<uintptr_t>(pointer), end = start + bytes;
  for (uint32_t i = arrays.list.count; i-- > 0;) {
    const NamedArray& old = arrays.list[i];
    if (old.start < end && start < old.start + old.bytes) names_remove(arrays, i);
  }
}

struct Memory {
  Mutex lock;
  Map blocks;  // pointer -> Block*
  Vec<Block*> leaving;  // freed in the order of a stream, which has not come there; kept for the sanitizer
  size_t total = 0, page = 0;
  size_t taken = 0;  // by blocks in use
  size_t guard = kGuard, most_guarded = kMostGuarded;
  Map guarded;  // where the mappings of blocks with guards begin -> Block*, also of those that are freed and not yet given back
  // Freed memory by size class, without guards and with them: four classes for each power of two.
  Vec<Block*> cached[2][256];
  size_t cached_bytes = 0;
  struct {
    uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  } graphs[kMaxDevices];
};

inline Memory& memory() {
  static Memory* made = nullptr;
  static Mutex once;
  if (Memory* m = __atomic_load_n(&made, __ATOMIC_ACQUIRE)) return *m;
  Guard<Mutex> g(once);
  if (!made) {
    Memory* m = create<Memory>();
    m->page = size_t(sysconf(_SC_PAGESIZE));
    m->total = size_t(sysconf(_SC_PHYS_PAGES)) * m->page;
    rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY) m->guard = m->page;
#ifdef __linux__
    if (FILE* f = fopen("/proc/sys/vm/max_map_count", "re")) {
      unsigned long maps;
      if (fscanf(f, "%lu", &maps) == 1 && maps / 8 < kMostGuarded) m->most_guarded = maps / 8;
      fclose(f);
    }
    if (FILE* f = fopen("/sys/fs/cgroup/memory.max", "re")) {  // a container's own limit
      unsigned long long limit;
      if (fscanf(f, "%llu", &limit) == 1 && limit < m->total) m->total = size_t(limit);
      fclose(f);
    }
#endif
    __atomic_store_n(&made, m, __ATOMIC_RELEASE);
  }
  return *made;
}

// The class of a size in units of `unit` bytes, and the bytes that all of this class have.
inline uint32_t size_class(size_t bytes, size_t unit, size_t* room) {
  size_t n = bytes < unit ? 1 : (bytes - 1) / unit + 1;
  if (n < 4) {
    *room = n * unit;
    return uint32_t(n);
  }
  uint32_t log = 63u - uint32_t(__builtin_clzll(n));
  size_t quarter = size_t(1) << (log - 2);
  uint32_t part = uint32_t((n - (size_t(1) << log) + quarter - 1) / quarter);
  *room = ((size_t(1) << log) + part * quarter) * unit;
  return log * 4 + part;
}
// What a block in use counts for.
inline size_t block_charge(const Block* b) { return is_ordered(b->origin) ? b->room : b->bytes; }
// The class of memory that may be reused; none where it leaves the process when it is freed.
constexpr uint32_t kNoClass = ~0u;
inline uint32_t reuse_class(const Memory& m, size_t bytes, Origin origin, bool guarded, size_t* room) {
  if (is_ordered(origin) || (guarded && bytes < kLeaves)) return size_class(bytes, guarded ? m.page : kAlign, room);
  const size_t unit = guarded ? m.page : kAlign;
  *room = (bytes + unit - 1) / unit * unit;
  return kNoClass;
}

inline void memory_drop_locked(Memory& m, Block* b) {
  if (b->guard) m.guarded.erase(uint64_t(b->mapping));
  free(b->unwritten);
  if (b->mapping) munmap(b->mapping, b->room + 2 * b->guard);
  else free(b->pointer);
  discard(b);
}
// Gives back what is kept for reuse; `ordered`: only large blocks of stream-ordered memory.
inline void memory_trim_locked(Memory& m, bool ordered) {
  for (auto& kept : m.cached) {
    for (auto& list : kept) {
      for (uint32_t i = list.count; i-- > 0;) {
        Block* b = list[i];
        if (ordered && !(is_ordered(b->origin) && b->room >= kMapped)) continue;
        list.remove_at(i);
        m.cached_bytes -= b->room;
        memory_drop_locked(m, b);
      }
    }
  }
}
inline void memory_trim(bool ordered = false) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  memory_trim_locked(m, ordered);
}

// Fresh memory; null where there is none.
inline Block* block_new(size_t room, size_t guard, bool mapped) {
  void* p = nullptr;
  char* mapping = nullptr;
  if (mapped) {
    p = mmap(nullptr, room + 2 * guard, guard ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    mapping = static_cast<char*>(p);
    if (guard && mprotect(mapping + guard, room, PROT_READ | PROT_WRITE)) {
      munmap(p, room + 2 * guard);
      return nullptr;
    }
  } else if (posix_memalign(&p, kAlign, room)) {
    return nullptr;
  }
  Block* b = create<Block>();
  b->pointer = p;
  b->room = room;
  b->mapping = mapping;
  b->guard = guard;
  return b;
}
// Memory that was kept, or fresh memory; null where there is none, or no further guards.
inline Block* block_take(Memory& m, size_t bytes, Origin origin, bool guarded) {
  size_t room;
  const uint32_t cls = reuse_class(m, bytes, origin, guarded, &room);
  if (cls != kNoClass && m.cached[guarded][cls].count) {
    Block* b = m.cached[guarded][cls].pop();
    m.cached_bytes -= b->room;
    return b;
  }
  if (guarded && m.guarded.used >= m.most_guarded && m.cached_bytes) memory_trim_locked(m, false);
  if (m.taken + m.cached_bytes + room > m.total || (guarded && m.guarded.used >= m.most_guarded)) return nullptr;
  Block* b = block_new(room, guarded ? m.guard : 0, guarded || (cls != kNoClass && room >= kMapped));
  if (!b) return nullptr;
  if (guarded) m.guarded.put(uint64_t(b->mapping), uint64_t(b));
  return b;
}

inline Block* memory_try(size_t bytes, Origin origin, int device, uint32_t access) {
  Memory& m = memory();
  if (bytes > m.total) return nullptr;
  Guard<Mutex> g(m.lock);
  Block* b = block_take(m, bytes, origin, true);
  if (!b) b = block_take(m, bytes, origin, false);
  if (!b) return nullptr;
  if (b->guard) b->pointer = b->mapping + b->guard + b->room - (bytes + kAlign - 1) / kAlign * kAlign;
  b->bytes = bytes;
  b->origin = origin;
  b->device = device;
  b->access = access;
  m.taken += block_charge(b);
  b->live.set(0);
  b->left.set(0);
  b->execs.set(0);
  block_set_fresh(b);
  if (!is_ordered(origin)) free(b->unwritten), b->unwritten = nullptr;
  m.blocks.put(uint64_t(b->pointer), uint64_t(b));
  forget_names(b->pointer, b->bytes);
  if (origin == Origin::graph) {
    auto& g = m.graphs[device];
    g.reserved += b->room;
    if (g.reserved > g.reserved_high) g.reserved_high = g.reserved;
  }
  return b;
}

// Gives back a block that is no longer in the table of blocks.
inline void memory_give_back(Block* b) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  if (m.leaving.remove(b)) forget_names(b->pointer, b->bytes);
  m.taken -= block_charge(b);
  size_t room;
  const uint32_t cls = reuse_class(m, b->room, b->origin, b->guard, &room);
  if (cls != kNoClass && m.cached_bytes + b->room <= (is_ordered(b->origin) ? kPoolKeeps : kKeeps)) {
    m.cached[b->guard != 0][cls].push(b);
    m.cached_bytes += b->room;
  } else {
    memory_drop_locked(m, b);
  }
}
// A block; null where there is no memory left, even of what was kept for reuse.
inline Block* memory_take(size_t bytes, Origin origin, int device, uint32_t access = 0) {
  Block* b = memory_try(bytes, origin, device, access);
  if (b) return b;
  memory_trim();
  return memory_try(bytes, origin, device, access);
}

inline Block* memory_find(const void* pointer) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  uint64_t* found = m.blocks.find(uint64_t(pointer));
  return found ? reinterpret_cast<Block*>(*found) : nullptr;
}
// A copy of the block that a pointer leads into, as it is now; false if there is none.
inline bool memory_around(const void* pointer, Block* found) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  for (uint32_t i = 0; i < m.blocks.room; ++i) {
    if (!m.blocks.entries[i].key) continue;
    const Block* b = reinterpret_cast<Block*>(m.blocks.entries[i].value);
    if (uint64_t(pointer) - uint64_t(b->pointer) >= b->bytes) continue;
    found->pointer = b->pointer;
    found->bytes = b->bytes;
    found->origin = b->origin;
    found->device = b->device;
    found->access = b->access;
    return true;
  }
  return false;
}
// The block before or after which an address lies in its guard; null if there is none.
inline const Block* memory_guarding(const Memory& m, const char* at) {
  for (uint32_t i = 0; i < m.guarded.room; ++i) {
    if (!m.guarded.entries[i].key) continue;
    const Block* b = reinterpret_cast<Block*>(m.guarded.entries[i].value);
    const size_t into = size_t(at - b->mapping);
    if (into < b->guard || into - b->guard - b->room < b->guard) return b;
  }
  return nullptr;
}
// Describes an address in a guard; false where it is in none.
inline bool memory_beyond(const void* address, char* text, size_t bytes) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  const char* at = static_cast<const char*>(address);
  const Block* b = memory_guarding(m, at);
  if (!b) return false;
  const char *start = static_cast<const char*>(b->pointer), *end = start + b->bytes;
  const bool behind = at >= end;
  snprintf(text, bytes, "memory is accessed %zu bytes %s an array of %zu bytes,", size_t(behind ? at - end : start - at),
           behind ? "behind the end of" : "before", b->bytes);
  return true;
}
// The same without waiting for long: a signal's handler asks, and who was interrupted may hold the lock.
inline bool memory_guards(const void* address) {
  Memory& m = memory();
  for (int tries = 0; tries < 10000; ++tries, sched_yield()) {
    if (pthread_mutex_trylock(&m.lock.m)) continue;
    const bool found = memory_guarding(m, static_cast<const char*>(address));
    m.lock.unlock();
    return found;
  }
  return false;
}
// Whether code that runs on a device may touch what a pointer leads to; what the runtime does not know, it may.
inline bool may_touch(int device, const void* pointer) {
  if (device_count() == 1) return true;
  Block b;
  if (!memory_around(pointer, &b) || b.origin == Origin::host || b.device == device) return true;
  uint32_t reached = b.origin == Origin::device ? g_devices.peers[device].get() >> b.device : b.access >> device;
  return reached & 1;
}
// Takes the block at `pointer` out of the table if its origin is one of the two.
inline Block* memory_unlist(const void* pointer, Origin one, Origin other) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  uint64_t* found = m.blocks.find(uint64_t(pointer));
  if (!found) return nullptr;
  Block* b = reinterpret_cast<Block*>(*found);
  if (b->origin != one && b->origin != other) return nullptr;
  m.blocks.erase(uint64_t(pointer));
  if (b->origin == Origin::pool && g_sanitized_modules.relaxed()) m.leaving.push(b);
  else forget_names(b->pointer, b->bytes);
  return b;
}

// Who writes memory other than by a sanitized kernel says so; null: whatever the block. `whole`: all of the block.
inline void memory_wrote(const void* pointer, size_t bytes, bool whole = false) {
  if (!g_sanitized_modules.relaxed()) return;
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  auto wrote = [&](Block* b) {
    if (!b->unwritten) return;
    const size_t at = size_t(uint64_t(pointer) - uint64_t(b->pointer));
    if (!pointer || (whole && at < b->bytes)) {
      free(b->unwritten);
      b->unwritten = nullptr;
      return;
    }
    for (size_t n = at; at < b->bytes && n < at + bytes && n < b->bytes; ++n) {
      b->unwritten[n / 8] = uint8_t(b->unwritten[n / 8] & ~(1u << n % 8));
    }
  };
  for (uint32_t i = 0; i < m.blocks.room; ++i) {
    if (m.blocks.entries[i].key) wrote(reinterpret_cast<Block*>(m.blocks.entries[i].value));
  }
  for (Block* b : m.leaving) wrote(b);
}

inline void graph_block_hold(Block* b) { b->refs.add(1); }
inline void graph_block_release(Block* b) {
  if (b->refs.sub(1) != 1) return;
  Memory& m = memory();
  {
    Guard<Mutex> g(m.lock);
    m.blocks.erase(uint64_t(b->pointer));
    forget_names(b->pointer, b->bytes);
    m.graphs[b->device].reserved -= b->room;
    if (b->live.get()) m.graphs[b->device].used -= b->bytes;
  }
  memory_give_back(b);
}
inline void graph_block_set_live(Block* b, bool live) {
  if (b->live.swap(live) == int(live)) return;
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  auto& of = m.graphs[b->device];
  of.used = live ? of.used + b->bytes : of.used - b->bytes;
  block_set_fresh(b);
  if (of.used > of.used_high) of.used_high = of.used;
}

// ---- copies and fills, as a stream or a node runs them ----------------------------------------------------------------
// Runs part of a copy or fill on any thread; where it reaches memory that is not there, it ends with an error.
template <BlockFn fn>
int shielded(void* context, uint64_t first, uint64_t last) {
  fault_ready();
  jmp_buf back;
  if (_setjmp(back)) {
    t_shield = nullptr;
    fault_note(nullptr);
    return hipErrorIllegalAddress;
  }
  t_shield = &back;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);  // the handler reads it, which a compiler cannot know
  const int code = fn(context, first, last);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  t_shield = nullptr;
  return code;
}
struct Copy {
  char* dst;
  const char* src;
  size_t dst_pitch, src_pitch, dst_slice, src_slice, width, height, depth;
};
struct Fill {
  char* dst;
  size_t pitch, width, height;  // width in elements
  uint32_t value, element;
};

inline int copy_rows(void* context, uint64_t first, uint64_t last) {
  const Copy& c = *static_cast<const Copy*>(context);
  for (uint64_t i = first; i < last; ++i) {
    uint64_t z = i / c.height, y = i % c.height;
    memmove(c.dst + z * c.dst_slice + y * c.dst_pitch, c.src + z * c.src_slice + y * c.src_pitch, c.width);
  }
  return 0;
}
constexpr size_t kPiece = size_t(1) << 18;
inline int copy_pieces(void* context, uint64_t first, uint64_t last) {
  const Copy& c = *static_cast<const Copy*>(context);
  size_t from = first * kPiece, to = last * kPiece < c.width ? last * kPiece : c.width;
  memcpy(c.dst + from, c.src + from, to - from);
  return 0;
}
inline void fill_row(char* dst, uint32_t element, uint32_t value, size_t width) {
  if (element == 1) {
    memset(dst, int(value & 255), width);
  } else if (element == 2) {
    for (size_t i = 0; i < width; ++i) reinterpret_cast<uint16_t*>(dst)[i] = uint16_t(value);
  } else {
    for (size_t i = 0; i < width; ++i) reinterpret_cast<uint32_t*>(dst)[i] = value;
  }
}
inline int fill_rows(void* context, uint64_t first, uint64_t last) {
  const Fill& f = *static_cast<const Fill*>(context);
  for (uint64_t y = first; y < last; ++y) fill_row(f.dst + y * f.pitch, f.element, f.value, f.width);
  return 0;
}
inline int fill_pieces(void* context, uint64_t first, uint64_t last) {
  const Fill& f = *static_cast<const Fill*>(context);
  size_t each = kPiece / f.element, from = first * each, to = last * each < f.width ? last * each : f.width;
  fill_row(f.dst + from * f.element, f.element, f.value, to - from);
  return 0;
}

inline Progress copy_run(Copy* c, const Task& done, bool alone, int* error) {
  if (!c->width || !c->height || !c->depth) return kDone;
  for (uint64_t i = 0; g_sanitized_modules.relaxed() && i < c->height * c->depth; ++i) {
    memory_wrote(c->dst + i / c->height * c->dst_slice + i % c->height * c->dst_pitch, c->width);
  }
  const uint64_t rows = c->height * c->depth;
  const bool apart = c->dst + c->width <= c->src || c->src + c->width <= c->dst;
  if (alone || c->width * rows < 4 * kPiece || (rows == 1 && !apart)) {
    *error = shielded<copy_rows>(c, 0, rows);
    return kDone;
  }
  if (rows == 1) return run_blocks(shielded<copy_pieces>, c, (c->width + kPiece - 1) / kPiece, done, error);
  return run_blocks(shielded<copy_rows>, c, rows, done, error);
}
inline Progress fill_run(Fill* f, const Task& done, bool alone, int* error) {
  if (!f->width || !f->height) return kDone;
  for (uint64_t y = 0; g_sanitized_modules.relaxed() && y < f->height; ++y) memory_wrote(f->dst + y * f->pitch, f->width * f->element);
  if (alone || f->width * f->element * f->height < 4 * kPiece) {
    *error = shielded<fill_rows>(f, 0, f->height);
    return kDone;
  }
  if (f->height == 1) return run_blocks(shielded<fill_pieces>, f, (f->width * f->element + kPiece - 1) / kPiece, done, error);
  return run_blocks(shielded<fill_rows>, f, f->height, done, error);
}
