// Device memory is host memory: what hipMalloc, hipHostMalloc, hipMallocAsync and alloc nodes give, and who frees it when.
#pragma once
#include "pool.h"

#include <sys/mman.h>
#ifdef __linux__
#include <stdio.h>
#endif

constexpr size_t kAlign = 256;
constexpr size_t kPoolKeeps = size_t(256) << 20;  // bytes of freed stream-ordered memory that stay for reuse
constexpr size_t kMapped = size_t(1) << 20;  // bytes from which such memory is mapped by itself

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

struct Block {
  void* pointer;
  size_t bytes, room;
  Origin origin;
  bool mapped;  // by itself, so that what is given back leaves the process; malloc keeps it
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
  size_t total = 0, taken = 0;
  // Freed stream-ordered memory by size class: four classes for each power of two.
  Vec<Block*> cached[256];
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
    size_t pages = size_t(sysconf(_SC_PHYS_PAGES)), page = size_t(sysconf(_SC_PAGESIZE));
    m->total = pages * page;
#ifdef __linux__
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

inline uint32_t size_class(size_t bytes, size_t* room) {
  size_t n = bytes < kAlign ? kAlign : bytes;
  uint32_t log = 63u - uint32_t(__builtin_clzll(n));
  size_t quarter = size_t(1) << (log - 2);
  uint32_t part = uint32_t((n - (size_t(1) << log) + quarter - 1) / quarter);
  *room = (size_t(1) << log) + part * quarter;
  return log * 4 + part;
}

inline Block* memory_try(size_t bytes, Origin origin, int device, uint32_t access) {
  Memory& m = memory();
  size_t room = bytes;
  uint32_t cls = 0;
  bool pooled = origin == Origin::pool || origin == Origin::graph;
  if (bytes > m.total) return nullptr;
  if (pooled) cls = size_class(bytes, &room);
  Guard<Mutex> g(m.lock);
  Block* b = nullptr;
  if (pooled && m.cached[cls].count) {
    b = m.cached[cls].pop();
    m.cached_bytes -= b->room;
  } else {
    if (m.taken + room > m.total) return nullptr;
    void* p = nullptr;
    bool mapped = pooled && room >= kMapped;
    if (mapped) {
      p = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) return nullptr;
    } else if (posix_memalign(&p, kAlign, (room + kAlign - 1) / kAlign * kAlign)) {
      return nullptr;
    }
    b = create<Block>();
    b->pointer = p;
    b->room = room;
    b->mapped = mapped;
    m.taken += room;
  }
  b->bytes = bytes;
  b->origin = origin;
  b->device = device;
  b->access = access;
  b->live.set(0);
  b->left.set(0);
  b->execs.set(0);
  block_set_fresh(b);
  if (!pooled) free(b->unwritten), b->unwritten = nullptr;
  m.blocks.put(uint64_t(b->pointer), uint64_t(b));
  forget_names(b->pointer, b->bytes);
  if (origin == Origin::graph) {
    auto& g = m.graphs[device];
    g.reserved += b->room;
    if (g.reserved > g.reserved_high) g.reserved_high = g.reserved;
  }
  return b;
}

inline void memory_drop_locked(Memory& m, Block* b) {
  m.taken -= b->room;
  free(b->unwritten);
  if (b->mapped) munmap(b->pointer, b->room);
  else free(b->pointer);
  discard(b);
}
// Gives back a block that is no longer in the table of blocks.
inline void memory_give_back(Block* b) {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  if (m.leaving.remove(b)) forget_names(b->pointer, b->bytes);
  bool pooled = b->origin == Origin::pool || b->origin == Origin::graph;
  if (pooled && m.cached_bytes + b->room <= kPoolKeeps) {
    size_t room;
    m.cached[size_class(b->room, &room)].push(b);
    m.cached_bytes += b->room;
  } else {
    memory_drop_locked(m, b);
  }
}
inline void memory_trim() {
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  for (auto& list : m.cached) {
    while (list.count) memory_drop_locked(m, list.pop());
  }
  m.cached_bytes = 0;
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
  uint64_t rows = c->height * c->depth;
  if (rows == 1) {
    bool apart = c->dst + c->width <= c->src || c->src + c->width <= c->dst;
    if (!apart || alone || c->width < 4 * kPiece) {
      memmove(c->dst, c->src, c->width);
      return kDone;
    }
    return run_blocks(copy_pieces, c, (c->width + kPiece - 1) / kPiece, done, error);
  }
  if (alone || c->width * rows < 4 * kPiece) {
    copy_rows(c, 0, rows);
    return kDone;
  }
  return run_blocks(copy_rows, c, rows, done, error);
}
inline Progress fill_run(Fill* f, const Task& done, bool alone, int* error) {
  if (!f->width || !f->height) return kDone;
  for (uint64_t y = 0; g_sanitized_modules.relaxed() && y < f->height; ++y) memory_wrote(f->dst + y * f->pitch, f->width * f->element);
  if (alone || f->width * f->element * f->height < 4 * kPiece) {
    fill_rows(f, 0, f->height);
    return kDone;
  }
  if (f->height == 1) return run_blocks(fill_pieces, f, (f->width * f->element + kPiece - 1) / kPiece, done, error);
  return run_blocks(fill_rows, f, f->height, done, error);
}
