// The sanitizer: what kernels that were compiled for it (instrumented.h) do to memory, looked at before it happens.
//
// Of each eight bytes (of each four or each byte, where somebody touches less at a time) it keeps the last write and the last
// two reads: by which thread of which block, when, and where in the code. Two accesses of one launch race if one of them writes,
// not both are atomic, and nothing orders them: a barrier, a warp operation that both threads took part in, or a fence behind
// the first together with an atomic operation before the second. Where a write only repeats what is there, nobody can see it,
// so a write that races is judged when the next access tells what it has left.
//
// One sanitized kernel runs at a time, its blocks in order on one worker (those of a cooperative launch beside each other).
#pragma once
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#ifdef __linux__
#include <elf.h>
#endif

#include "block.h"
#include "memory.h"

// ---- what lies where ------------------------------------------------------------------------------------------------------
struct Extent {
  uintptr_t start, end;
  const char* name;  // null: memory of graphs or pools that nobody has named
  Block* block;      // whose unwritten bytes are known
  bool variable;     // of the kernel library
  bool reached;      // an argument of the kernel leads to it, or a pointer in memory that one leads to
};

// A library of instrumented kernels: its variables, by the symbol table.
struct Instrumented {
  struct Variable {
    uint64_t start, bytes;
    const char* name;
    bool guard, own;  // between shared variables; the runtime's own
  };
  void* file = nullptr;
  size_t file_bytes = 0;
  uintptr_t base = 0, data = UINTPTR_MAX, end = 0;  // its first address, that of its variables, and the one behind it
  uint64_t tls_bytes = 0, tls_anchor = 0;
  void* (*anchor)() = nullptr;
  hgcpu_watch** watched = nullptr;
  char path[256];
  Vec<Variable> shared, globals;
};
inline int by_start(const void* a, const void* b) {
  uint64_t x = *static_cast<const uint64_t*>(a), y = *static_cast<const uint64_t*>(b);  // `start` comes first
  return x < y ? -1 : x > y;
}

inline void instrumented_free(Instrumented* m) {
  if (m->file) munmap(m->file, m->file_bytes);
  discard(m);
}
// Null if the library is not instrumented.
#ifndef __linux__
inline Instrumented* instrumented_open(void*) { return nullptr; }
#else
inline Instrumented* instrumented_open(void* library) {
  auto anchor = reinterpret_cast<void* (*)()>(dlsym(library, "hgcpu_anchor"));
  Dl_info about;
  auto watched = static_cast<hgcpu_watch**>(dlsym(library, "hgcpu_watched"));
  if (!anchor || !watched || !dladdr(reinterpret_cast<void*>(anchor), &about)) return nullptr;
  Instrumented* m = create<Instrumented>();
  m->watched = watched;
  m->anchor = anchor;
  m->base = reinterpret_cast<uintptr_t>(about.dli_fbase);
  snprintf(m->path, sizeof m->path, "%s", about.dli_fname);
  int file = open(m->path, O_RDONLY | O_CLOEXEC);
  struct stat size;
  if (file >= 0 && !fstat(file, &size)) {
    m->file_bytes = size_t(size.st_size);
    m->file = mmap(nullptr, m->file_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (m->file == MAP_FAILED) m->file = nullptr;
  }
  if (file >= 0) close(file);
  if (!m->file) {
    instrumented_free(m);
    return nullptr;
  }
  const char* image = static_cast<const char*>(m->file);
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(image);
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(image + head->e_phoff);
  for (int i = 0; i < head->e_phnum; ++i) {
    const Elf64_Phdr& p = segments[i];
    const uintptr_t start = m->base + p.p_vaddr, end = start + p.p_memsz;
    if (p.p_type == PT_TLS) m->tls_bytes = p.p_memsz;
    if (p.p_type == PT_LOAD && end > m->end) m->end = end;
    if (p.p_type == PT_LOAD && p.p_flags & PF_W) m->data = start;  // the last of them
    if (p.p_type == PT_GNU_RELRO && end > m->data) m->data = end;  // it changes only while the library is loaded
  }
  if (m->data > m->end) m->data = m->end;
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + head->e_shoff);
  for (int i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = image + sections[sections[i].sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
    for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      const Elf64_Sym& s = symbols[k];
      const char* name = names + s.st_name;
      const int type = s.st_info & 15;
      if (!s.st_shndx || !s.st_size || (type != STT_TLS && type != STT_OBJECT)) continue;
      const bool guard = strstr(name, "hgcpu_guard_");
      bool own = !strcmp(name, "_ZL9threadIdx") || !strcmp(name, "_ZL8blockIdx") || !strcmp(name, "_ZL8blockDim") ||
                 !strcmp(name, "_ZL7gridDim") || !strncmp(name, "completed.", 10) || (strstr(name, "hgcpu_") && (type == STT_OBJECT || !strncmp(name, "_ZL", 3)) && !guard);
      if (type == STT_TLS && !strcmp(name, "_ZL10hgcpu_mine")) m->tls_anchor = s.st_value;
      (type == STT_TLS ? m->shared : m->globals).push({s.st_value, s.st_size, name, guard, own});
    }
  }
  if (m->shared.count) qsort(m->shared.items, m->shared.count, sizeof(Instrumented::Variable), by_start);
  uint32_t kept = 0;  // those of the runtime that lie side by side become one
  for (const auto& v : m->shared) {
    Instrumented::Variable* last = kept ? &m->shared[kept - 1] : nullptr;
    if (last && last->own && v.own) last->bytes = v.start + v.bytes - last->start;
    else m->shared[kept++] = v;
  }
  m->shared.count = kept;
  if (m->globals.count) qsort(m->globals.items, m->globals.count, sizeof(Instrumented::Variable), by_start);
  return m;
}
#endif

// ---- who touched what -----------------------------------------------------------------------------------------------------
struct Access {  // of a whole cell
  static constexpr uint32_t kPlaceBits = 22;
  uint64_t bits;  // from above: 30 of the stamp, 10 of the thread, whether it was atomic, whether it is hollow, the place
  static Access at(uint32_t stamp, uint32_t thread, bool atomic, uint32_t place) {
    return {uint64_t(stamp) << 34 | uint64_t(thread) << 24 | uint64_t(atomic) << 23 | (place < 1u << kPlaceBits ? place : 0)};
  }
  uint32_t stamp() const { return uint32_t(bits >> 34); }  // counted in events of its worker that may order something; 0: nobody
  uint32_t thread() const { return uint32_t(bits >> 24) & 1023; }
  bool atomic() const { return bits >> 23 & 1; }
  bool hollow() const { return bits >> kPlaceBits & 1; }  // a write of what was unwritten
  uint32_t place() const { return uint32_t(bits) & ((1u << kPlaceBits) - 1); }
};
struct Cell {
  Access write, read[2];
};
constexpr uint32_t kLastStamp = (1u << 30) - 1;  // races are not looked for behind it
constexpr uint32_t kShadowBytes = 1024;  // of memory that a page tells of
constexpr size_t kMostShadow = size_t(384) << 20;  // bytes of a launch's pages; beyond, races are not looked for
struct ShadowPage {
  uint32_t shift;  // bytes of a cell: 1 << shift, which is 8, 4 or 1
  Cell cells[];
};
inline size_t page_bytes(uint32_t shift) { return sizeof(ShadowPage) + sizeof(Cell) * (kShadowBytes >> shift); }

struct Where {
  const Extent* extent;                    // one of these two
  const Instrumented::Variable* variable;
  uintptr_t start, end;                    // of it
};
struct Pending {  // a write that races unless it changes nothing
  Access before;
  uint32_t pc, thread, how;  // of the write
  bool after_read;
  Where where;
  uintptr_t address;
  uint32_t bytes;  // 0: none
  char old[16];
};

// Some bytes that are judged alike: what the last accesses were in is looked for there first.
constexpr uint32_t kLineBytes = 256, kLines = 1024;
struct Line {
  uintptr_t key;        // address / kLineBytes
  Cell* cells;          // from the first byte of the line on
  const Block* block;   // whose unwritten bytes are known
  uint16_t first, end;  // the bytes of it
  uint8_t shift;
  bool shared;
};

struct SanitizedLaunch;
struct Watch : hgcpu_watch {  // of one worker
  SanitizedLaunch* launch;
  uint64_t block;
  uint32_t stamp, begin, barrier;  // stamps: now, of the block's begin, of the last barrier
  struct {
    const char* type;  // null: none
    int64_t index;
    uint32_t pc, thread;
  } beyond;                        // the block's first index beyond an array
  bool acquired;                   // an atomic operation was done by this block
  char* tls;
  Map shared;  // pages of shared memory
  uint32_t last_extent, last_variable, numbering;
  Pending pending;
  uint32_t line[kFibers];      // of the barrier that a thread waits at, 0 if it waits at none
  uint32_t site[kFibers];      // and where that is in the code
  uint32_t fenced[kFibers], synced[kFibers];  // stamps of a thread's last fence, and of its last atomic operation
  uint32_t clock[kFibers][64];  // by thread and lane of its warp: accesses of that lane before this stamp come before
  Line lines[kLines];
};
struct BlockTimes {
  uint32_t begin, fenced;  // stamps: of its begin, of its last fence
};
struct SanitizedLaunch {
  const Instrumented* library;
  const hgcpu_launch* how;
  bool cooperative;  // several workers run its blocks
  const void *arguments, *arguments_end;
  uint64_t blocks;
  uint32_t first;     // stamp
  BlockTimes* times;  // null where there are too many blocks
  Atomic<int> failed;  // the error of the block that failed first: the others end where they are
  Vec<Extent> extents;
  Map pages;  // of memory that blocks share
  size_t shadow;
  Map sites;  // of a cooperative launch: numbers of places in the code
  SpinLock lock;
};
struct Sanitizer {
  Mutex one;  // kernel at a time
  uint32_t stamp = 1;      // no access has it yet
  uint32_t numbering = 1;  // stamps of another one mean nothing
  Mutex lock;              // of what follows
  Vec<ShadowPage*> spare[4];  // pages, by shift
};
inline Sanitizer& sanitizer() {
  static Sanitizer* made = create<Sanitizer>();
  return *made;
}
inline SanitizedLaunch* g_sanitized = nullptr;  // the launch that runs

// ---- saying it ------------------------------------------------------------------------------------------------------------
// Python replaces what stands between the marks by file and line.
constexpr char kPlaceBegins = '\1', kPlaceEnds = '\2';
struct Text {
  char* to;
  size_t left;
  __attribute__((format(printf, 2, 3))) void add(const char* form, ...) {
    va_list args;
    va_start(args, form);
    int n = vsnprintf(to, left, form, args);
    va_end(args);
    if (n < 0) return;
    size_t used = size_t(n) < left ? size_t(n) : left - 1;
    to += used;
    left -= used;
  }
  void place(const SanitizedLaunch* l, uint32_t pc, uint32_t line = 0) {  // the line where it is known better
    add("%c%s+0x%x:%u%c", kPlaceBegins, l->library->path, pc, line, kPlaceEnds);
  }
  void thread(const SanitizedLaunch* l, uint32_t n) {
    const uint32_t* b = l->how->block;
    add("thread (%u, %u, %u)", n % b[0], n / b[0] % b[1], n / b[0] / b[1]);
  }
  void block(const SanitizedLaunch* l, uint64_t n) {
    const uint32_t* g = l->how->grid;
    add("block (%u, %u, %u)", uint32_t(n % g[0]), uint32_t(n / g[0] % g[1]), uint32_t(n / g[0] / g[1]));
  }
};
inline Text watch_text(BlockWorker* w, const char* what, uint32_t pc, uint32_t thread, uint32_t line = 0) {
  Text t{w->report, sizeof w->report};
  const Watch* s = w->watch;
  t.add("%s at ", what);
  t.place(s->launch, pc, line);
  t.add(": ");
  t.thread(s->launch, thread);
  t.add(" of ");
  t.block(s->launch, s->block);
  t.add(" ");
  return t;
}
[[noreturn]] inline void watch_stop(BlockWorker* w, int status) {
  Watch* s = w->watch;
  s->pending.bytes = 0;
  if (s->launch->cooperative) s->launch->lock.unlock();
  w->status = status;
  void* gone;
  hgcpu_switch(&gone, w->main_stack_pointer);
  __builtin_unreachable();
}
inline const char* doing(uint32_t how) {
  return how & hgcpu_atomic ? (how & hgcpu_writes ? "changes atomically" : "reads atomically") : how & hgcpu_writes ? "writes" : "reads";
}

// ---- where an address leads -----------------------------------------------------------------------------------------------
inline void name_of(Text* t, const Where& at) {
  if (at.variable) {
    bool dynamic = !strcmp(at.variable->name, "hgcpu_dynamic");
    t->add(dynamic ? "dynamic shared memory" : "shared '%s'", at.variable->name);
  } else if (at.extent->name) {
    t->add(at.extent->variable ? "variable '%s'" : "array '%s'", at.extent->name);
  } else {
    t->add("allocated memory of %zu bytes", size_t(at.extent->end - at.extent->start));
  }
}

inline uint64_t variable_bytes(const Watch* s, const Instrumented::Variable& v) {
  return strcmp(v.name, "hgcpu_dynamic") ? v.bytes : s->launch->how->shared_bytes;
}
// The last of sorted ranges that begins at or before an address; -1 if there is none.
template <class Range>
inline int64_t last_before(const Vec<Range>& ranges, uintptr_t address) {
  uint32_t low = 0, high = ranges.count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (ranges[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  return int64_t(low) - 1;
}
// Whether memory that the kernel reaches holds a pointer into an extent.
inline bool leads_to(const SanitizedLaunch* l, const Extent& target) {
  for (const Extent& e : l->extents) {
    if (!e.reached) continue;
    for (uintptr_t at = (e.start + 7) & ~uintptr_t(7); at + 8 <= e.end; at += 8) {
      uintptr_t word;
      memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
      if (word >= target.start && word < target.end) return true;
    }
  }
  return false;
}
[[noreturn]] inline void out_of_bounds(BlockWorker* w, uintptr_t address, uint64_t bytes, uint32_t how, uint32_t pc, uint32_t thread) {
  Watch* s = w->watch;
  const SanitizedLaunch* l = s->launch;
  Text t = watch_text(w, "out of bounds", pc, thread);
  t.add("%s %llu bytes ", doing(how), (unsigned long long)bytes);
  if (address - reinterpret_cast<uintptr_t>(w->stacks) < w->stride * kFibers) {
    t.add("where local variables of another thread are");
    watch_stop(w, hipErrorIllegalAddress);
  }
  const uintptr_t tls = reinterpret_cast<uintptr_t>(s->tls);
  uint64_t nearest = ~0ull;
  Where best{};
  auto consider = [&](uintptr_t start, uint64_t size, const Extent* e, const Instrumented::Variable* v) {
    uint64_t distance = address < start ? start - address : address < start + size ? 0 : address - start - size;
    if (distance < nearest) {
      nearest = distance;
      best = {e, v, start};
    }
  };
  const Extent* other = nullptr;
  for (const Extent& e : l->extents) {
    if (e.reached) consider(e.start, e.end - e.start, &e, nullptr);
    else if (address >= e.start && address < e.end) other = &e;
  }
  if (address - tls < l->library->tls_bytes + 65536 || tls - address < 65536) {
    for (const auto& v : l->library->shared) {
      if (!v.guard && !v.own) consider(tls + v.start, variable_bytes(s, v), nullptr, &v);
    }
  }
  if (nearest < (1ull << 40)) {
    uint64_t size = best.variable ? variable_bytes(s, *best.variable) : best.extent->end - best.extent->start;
    t.add("at offset %lld of ", (long long)(address - best.start));
    name_of(&t, best);
    t.add(", which has %llu bytes", (unsigned long long)size);
  } else {
    t.add("at address 0x%llx, where no array is", (unsigned long long)address);
  }
  if (other) {
    t.add(": that is in ");
    name_of(&t, {other, nullptr, 0, 0});
    t.add(", which no argument leads to");
  }
  watch_stop(w, hipErrorIllegalAddress);
}

inline ShadowPage* page_new(uint32_t shift) {
  Sanitizer& all = sanitizer();
  Guard<Mutex> g(all.lock);
  auto& list = all.spare[shift];
  ShadowPage* p = list.count ? list.pop() : static_cast<ShadowPage*>(calloc(1, page_bytes(shift)));
  if (!p) abort();
  p->shift = shift;
  return p;
}
// Stamps of earlier launches mean nothing; what may get a page in the same launch gets an empty one.
inline void page_drop(ShadowPage* p, bool launch_goes_on) {
  if (launch_goes_on) memset(p->cells, 0, page_bytes(p->shift) - sizeof *p);
  Sanitizer& all = sanitizer();
  Guard<Mutex> g(all.lock);
  all.spare[p->shift].push(p);
}
inline void pages_drop(Map& pages, bool launch_goes_on) {
  for (uint32_t i = 0; i < pages.room; ++i) {
    if (pages.entries[i].key) page_drop(reinterpret_cast<ShadowPage*>(pages.entries[i].value), launch_goes_on);
  }
  pages.clear();
}
inline Line& line_of(Watch* s, uintptr_t key) { return s->lines[key * 0x9e3779b97f4a7c15ull >> 54]; }
// The page of some memory, with cells of `shift` or smaller ones from then on; null where there are too many.
inline ShadowPage* page_of(Watch* s, Map& pages, uintptr_t key, uint32_t shift) {
  SanitizedLaunch* l = s->launch;
  if (s->stamp == kLastStamp) return nullptr;
  uint64_t* found = pages.find(key);
  ShadowPage* old = found ? reinterpret_cast<ShadowPage*>(*found) : nullptr;
  if (old && old->shift <= shift) return old;
  if (!old && &pages != &s->shared) {
    if (l->shadow >= kMostShadow) return nullptr;
    l->shadow += page_bytes(shift);
  }
  ShadowPage* p = page_new(shift);
  if (old) {
    for (uint32_t i = 0; i < kShadowBytes >> shift; ++i) p->cells[i] = old->cells[i >> (old->shift - shift)];
    for (uint32_t i = 0; i < kShadowBytes / kLineBytes; ++i) {
      Line& n = line_of(s, key * (kShadowBytes / kLineBytes) + i);
      if (n.key == key * (kShadowBytes / kLineBytes) + i) n = {};
    }
    page_drop(old, true);
  }
  pages.put(key, uint64_t(p));
  return p;
}

// ---- judging an access ----------------------------------------------------------------------------------------------------
// Stamps go on; at the last one they stay, and nothing is judged any more but bounds.
inline uint32_t next_stamp(Watch* s) {
  if (s->stamp < kLastStamp && ++s->stamp == kLastStamp) memset(s->lines, 0, sizeof s->lines);
  return s->stamp;
}
// Where an access of this launch was. Blocks of a cooperative launch run beside each other: there the place holds the block.
constexpr uint32_t kSiteBits = Access::kPlaceBits - 8;
inline uint64_t block_of(const Watch* s, const Access& a) {
  const SanitizedLaunch* l = s->launch;
  if (l->cooperative) return a.place() >> kSiteBits;
  if (a.stamp() >= s->begin) return s->block;
  if (!l->times) return ~0ull;
  uint64_t low = 0, high = s->block;
  while (low + 1 < high) {
    uint64_t middle = (low + high) / 2;
    if (l->times[middle].begin <= a.stamp()) low = middle;
    else high = middle;
  }
  return low;
}
inline uint32_t place_of(const Watch* s, uint32_t pc) {
  SanitizedLaunch* l = s->launch;
  if (!l->cooperative) return pc;
  uint64_t* known = l->sites.find(pc);
  if (!known && l->sites.used + 1 < 1u << kSiteBits) {
    l->sites.put(pc, l->sites.used + 1);
    known = l->sites.find(pc);
  }
  return uint32_t(s->block) << kSiteBits | (known ? uint32_t(*known) : 0);
}
inline uint32_t pc_of_place(const SanitizedLaunch* l, uint32_t place) {
  if (!l->cooperative) return place;
  for (uint32_t i = 0; i < l->sites.room; ++i) {
    if (l->sites.entries[i].key && l->sites.entries[i].value == (place & ((1u << kSiteBits) - 1))) return uint32_t(l->sites.entries[i].key);
  }
  return 0;
}
inline bool ordered(const BlockWorker* w, const Access& before, uint32_t thread, bool shared) {
  const Watch* s = w->watch;
  const SanitizedLaunch* l = s->launch;
  if (before.stamp() < l->first) return true;
  const uint64_t other = block_of(s, before);
  if (other != s->block) return shared || !l->times || (s->acquired && l->times[other].fenced > before.stamp());
  const uint32_t first = before.thread(), lanes = w->warp_size;
  if (first == thread || before.stamp() < s->barrier) return true;
  if (first / lanes == thread / lanes && before.stamp() < s->clock[thread][first % lanes]) return true;
  return s->fenced[first] > before.stamp() && s->synced[thread] > before.stamp();
}
inline void race_text(BlockWorker* w, const Pending& p) {
  const Watch* s = w->watch;
  const SanitizedLaunch* l = s->launch;
  const uint64_t other = block_of(s, p.before);
  Text t = watch_text(w, "race", p.pc, p.thread);
  t.add("%s %u bytes at offset %lld of ", doing(p.how), p.bytes, (long long)(p.address - p.where.start));
  name_of(&t, p.where);
  t.add(", which ");
  t.thread(l, p.before.thread());
  if (other != s->block) {
    t.add(" of ");
    t.block(l, other);
  }
  t.add(" %s at ", doing((p.after_read ? hgcpu_reads : hgcpu_writes) | (p.before.atomic() ? hgcpu_atomic : 0)));
  t.place(l, pc_of_place(l, p.before.place()));
  t.add(other == s->block ? ", and no barrier is between" : ", in any order");
}
// Whether the last write that races has changed what was there.
inline bool pending_races(BlockWorker* w) {
  Pending& p = w->watch->pending;
  const uint32_t bytes = p.bytes;
  if (!bytes) return false;
  if (!memcmp(p.old, reinterpret_cast<const void*>(p.address), bytes)) {
    p.bytes = 0;
    return false;
  }
  race_text(w, p);
  p.bytes = 0;
  return true;
}
inline void watch_enter(BlockWorker* w) {
  Watch* s = w->watch;
  if (s->launch->cooperative) s->launch->lock.lock();
  if (int code = s->launch->failed.relaxed()) watch_stop(w, code);  // they may wait for the block that failed
  if (pending_races(w)) watch_stop(w, hipErrorLaunchFailure);
}
inline void watch_leave(const Watch* s) {
  if (s->launch->cooperative) s->launch->lock.unlock();
}

// Where memory that a kernel touches belongs; false for what is the runtime's or the library's own.
inline bool find_where(BlockWorker* w, uintptr_t address, uint64_t bytes, uint32_t how, uint32_t pc, uint32_t thread, Where* out) {
  Watch* s = w->watch;
  SanitizedLaunch* l = s->launch;
  const uintptr_t tls = reinterpret_cast<uintptr_t>(s->tls), offset = address - tls;
  if (offset < l->library->tls_bytes) {
    const auto& all = l->library->shared;
    int64_t at = s->last_variable;
    if (at >= all.count || offset - all[at].start >= all[at].bytes) at = last_before(all, offset);
    const Instrumented::Variable* v = at >= 0 ? &all[at] : nullptr;
    if (v && v->own && offset < v->start + v->bytes) return false;
    if (!v || v->guard || v->own || offset + bytes > v->start + variable_bytes(s, *v)) {
      out_of_bounds(w, address, bytes, how, pc, thread);
    }
    s->last_variable = uint32_t(at);
    *out = {nullptr, v, tls + v->start, tls + v->start + variable_bytes(s, *v)};
    return true;
  }
  auto within = [&](const void* start, size_t size) { return address - reinterpret_cast<uintptr_t>(start) < size; };
  auto holds = [&](const Extent& e) { return address >= e.start && address < e.end; };
  Extent* e = s->last_extent < l->extents.count ? &l->extents[s->last_extent] : nullptr;
  if (!e || !holds(*e)) {
    if (within(w, sizeof *w) || within(w->self->path, w->self->room * sizeof(uint64_t)) || within(w->job, 64) || within(&kBlockCalls, sizeof kBlockCalls) ||
        within(l->arguments, size_t(static_cast<const char*>(l->arguments_end) - static_cast<const char*>(l->arguments)))) {
      return false;
    }
    int64_t found = last_before(l->extents, address);
    e = found < 0 ? nullptr : &l->extents[uint32_t(found)];
    if (!e || !holds(*e)) {
      // Constants that the compiler makes have no name.
      bool own = address >= l->library->base && address < l->library->data;
      for (const auto& v : l->library->globals) own = own || (v.own && within(reinterpret_cast<void*>(l->library->base + v.start), v.bytes));
      if (own && !(how & hgcpu_writes)) return false;
      out_of_bounds(w, address, bytes, how, pc, thread);
    }
    s->last_extent = uint32_t(found);
  }
  if (!e->reached && !(e->reached = leads_to(l, *e))) out_of_bounds(w, address, bytes, how, pc, thread);
  if (address + bytes > e->end) out_of_bounds(w, address, bytes, how, pc, thread);
  *out = {e, nullptr, e->start, e->end};
  return true;
}

// Calls f(cell) for each cell of some memory.
template <class F>
inline void each_cell(Watch* s, const Where& at, uintptr_t address, uint64_t bytes, F f) {
  const uint32_t shift = (address | bytes) & 3 ? 0 : (address | bytes) & 7 ? 2 : 3;
  Map& pages = at.variable ? s->shared : s->launch->pages;
  for (uintptr_t a = address, end = a + bytes; a < end;) {
    const uintptr_t stop = (a / kShadowBytes + 1) * kShadowBytes, until = end < stop ? end : stop;
    ShadowPage* page = page_of(s, pages, a / kShadowBytes, shift);
    if (!page) a = until;
    for (; a < until; a += uintptr_t(1) << page->shift) f(page->cells[(a % kShadowBytes) >> page->shift]);
  }
}
// Bits of `unwritten` are set for bytes of a block that nobody has written.
inline bool block_written(const Block* b, uintptr_t address) {
  const size_t at = address - reinterpret_cast<uintptr_t>(b->pointer);
  return !(b->unwritten[at / 8] >> at % 8 & 1);
}
inline bool cell_written(const Watch* s, const Cell& c) { return c.write.stamp() >= s->begin && !c.write.hollow(); }
// How many of these bytes were written: none, some or all.
enum class Written { none, some, all };
inline Written written(Watch* s, const Where& at, uintptr_t address, uint64_t bytes) {
  bool any = false, all = true;
  auto count = [&](bool one) { any = any || one, all = all && one; };
  if (at.variable) {
    if (s->stamp == kLastStamp) return Written::all;
    each_cell(s, at, address, bytes, [&](Cell& c) { count(cell_written(s, c)); });
  } else {
    const Block* b = at.extent->block;
    if (!b || !b->unwritten) return Written::all;
    for (uint64_t i = 0; i < bytes; ++i) count(block_written(b, address + i));
  }
  return all ? Written::all : any ? Written::some : Written::none;
}
// What a write leaves written, or a copy unwritten.
inline void set_written(Watch* s, const Where& at, uintptr_t address, uint64_t bytes, bool written) {
  if (at.variable) {
    if (!written) each_cell(s, at, address, bytes, [&](Cell& c) { c.write.bits |= 1ull << Access::kPlaceBits; });
  } else if (Block* b = at.extent->block) {
    for (uint64_t i = 0; b->unwritten && i < bytes; ++i) {
      const size_t n = address + i - reinterpret_cast<uintptr_t>(b->pointer);
      if (written) b->unwritten[n / 8] = uint8_t(b->unwritten[n / 8] & ~(1u << n % 8));
      else b->unwritten[n / 8] = uint8_t(b->unwritten[n / 8] | 1u << n % 8);
    }
  }
}

// Of the last two threads that read: the bits of `who` say which, for accesses since a stamp.
constexpr uint64_t kThreadBits = 1023ull << 24, kBlockBits = 255ull << kSiteBits;
inline __attribute__((always_inline)) void note_read(Cell& c, Access now, uint32_t since, uint64_t who) {
  auto mine = [&](Access before) { return before.stamp() >= since && !((before.bits ^ now.bits) & who); };
  const bool first = mine(c.read[0]);
  if (!first && mine(c.read[1])) {
    c.read[1] = now;
    return;
  }
  if (!first) c.read[1] = c.read[0];
  c.read[0] = now;
}
inline void judge(BlockWorker* w, const Where& at, uintptr_t address, uint64_t bytes, uint32_t how, uint32_t pc, uint32_t thread) {
  Watch* s = w->watch;
  const Access now = Access::at(s->stamp, thread, how & hgcpu_atomic, place_of(s, pc));
  each_cell(s, at, address, bytes, [&](Cell& c) {
    auto clashes = [&](const Access& before) {
      return before.stamp() && !(before.atomic() && (how & hgcpu_atomic)) && !ordered(w, before, thread, at.variable);
    };
    const Access* before = clashes(c.write) ? &c.write : nullptr;
    if (how & hgcpu_writes) {
      for (const Access& read : c.read) before = !before && clashes(read) ? &read : before;
    }
    if (before && !s->pending.bytes) {
      s->pending = {*before, pc, thread, how, before != &c.write, at, address, uint32_t(bytes), {}};
      if (bytes > sizeof s->pending.old || how != hgcpu_writes) {
        race_text(w, s->pending);
        watch_stop(w, hipErrorLaunchFailure);
      }
      memcpy(s->pending.old, reinterpret_cast<const void*>(address), bytes);
    }
    if (how & hgcpu_writes) c.write = now;
    else if (s->launch->cooperative) note_read(c, now, s->launch->first, kThreadBits | kBlockBits);
    else note_read(c, now, s->begin, kThreadBits);
  });
}

inline bool on_own_stack(const BlockWorker* w, uintptr_t address) {
  return address - reinterpret_cast<uintptr_t>(w->stacks) - size_t(w->self - w->fiber) * w->stride < w->stride;
}
inline uint32_t pc_of(const Watch* s, const void* returns) {
  return uint32_t(reinterpret_cast<uintptr_t>(returns) - 1 - s->launch->library->base);
}
// Remember what an address leads to.
inline void line_fill(Watch* s, const Where& at, uintptr_t address) {
  if (s->launch->cooperative || s->stamp == kLastStamp) return;  // there other workers may split pages
  const uintptr_t key = address / kLineBytes, start = key * kLineBytes;
  uint64_t* found = (at.variable ? s->shared : s->launch->pages).find(address / kShadowBytes);
  if (!found) return;
  auto clipped = [&](uintptr_t a) { return uint16_t(a < start ? 0 : a - start > kLineBytes ? kLineBytes : a - start); };
  ShadowPage* p = reinterpret_cast<ShadowPage*>(*found);
  line_of(s, key) = {key, p->cells + ((start % kShadowBytes) >> p->shift), at.extent ? at.extent->block : nullptr,
                     clipped(at.start), clipped(at.end), uint8_t(p->shift), at.variable != nullptr};
}
inline void watch_access(hgcpu_worker* worker, const void* pointer, uint64_t bytes, uint32_t how, const void* returns) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (!s || !w->self || !bytes || on_own_stack(w, address)) return;
  const uint32_t pc = pc_of(s, returns), thread = w->self->thread;
  watch_enter(w);
  Where at;
  if (find_where(w, address, bytes, how, pc, thread, &at)) {
    // Of blocks, memory that is volatile is what flags are made of; in shared memory it needs a barrier as other memory does.
    if (how & (hgcpu_atomic | hgcpu_volatile)) {
      s->synced[thread] = next_stamp(s);
      s->acquired = true;
      if (!at.variable) how |= hgcpu_atomic;
    }
    how &= ~uint32_t(hgcpu_volatile);
    if ((how & hgcpu_reads) && written(s, at, address, bytes) == Written::none) {
      Text t = watch_text(w, "unwritten memory", pc, thread);
      t.add("%s %llu bytes at offset %lld of ", doing(how & ~uint32_t(hgcpu_writes)), (unsigned long long)bytes,
            (long long)(address - at.start));
      name_of(&t, at);
      t.add(at.variable ? ", which no thread of the block has written" : ", which nothing has written");
      watch_stop(w, hipErrorLaunchFailure);
    }
    judge(w, at, address, bytes, how, pc, thread);
    if (how & hgcpu_writes) set_written(s, at, address, bytes, true);
    line_fill(s, at, address);
  }
  watch_leave(s);
}
// The same for most accesses: in memory that was touched before, of whole cells, by a thread that nobody can race with.
template <uint32_t shift, bool writes>
inline void watch_quick(hgcpu_watch* watch, const void* pointer, const void* returns) {
  Watch* s = static_cast<Watch*>(watch);
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  constexpr uint32_t bytes = 1u << shift;
  const Line& n = line_of(s, address / kLineBytes);
  const uint32_t at = uint32_t(address % kLineBytes);
  auto judged = [&]() __attribute__((always_inline)) {
    if (n.key != address / kLineBytes || at < n.first || at + bytes > n.end || s->pending.bytes) return false;
    const uint32_t size = 1u << n.shift;
    if (n.shift > shift || at % size) return false;
    Cell *const from = n.cells + (at >> n.shift), *const to = from + (bytes >> n.shift);
    const uint32_t thread = s->worker->self->thread, begin = s->begin;
    auto quiet = [&](Access before) __attribute__((always_inline)) {
      const uint32_t stamp = before.stamp();
      if (stamp < (n.shared ? s->barrier : s->launch->first)) return true;
      return stamp >= begin && (stamp < s->barrier || before.thread() == thread);
    };
    for (const Cell* c = from; c < to; ++c) {
      if (!quiet(c->write) || (writes && (!quiet(c->read[0]) || !quiet(c->read[1])))) return false;
      if (!writes && n.shared && !cell_written(s, *c)) return false;
    }
    if (uint8_t* unwritten = n.block ? n.block->unwritten : nullptr) {
      const uintptr_t of = address - reinterpret_cast<uintptr_t>(n.block->pointer);
      if (of % bytes) return false;
      constexpr uint32_t mask = (1u << (bytes < 8 ? bytes : 8)) - 1;
      for (uint8_t* u = unwritten + of / 8; u < unwritten + of / 8 + (bytes + 7) / 8; ++u) {
        if (!writes && (*u >> of % 8 & mask) == mask) return false;
        if (writes) *u = uint8_t(*u & ~(mask << of % 8));
      }
    }
    const Access now = Access::at(s->stamp, thread, false, pc_of(s, returns));
    for (Cell* c = from; c < to; ++c) {
      if (writes) c->write = now;
      else note_read(*c, now, begin, kThreadBits);
    }
    return true;
  };
  if (!judged()) watch_access(s->worker, pointer, bytes, writes ? hgcpu_writes : hgcpu_reads, returns);
}
// A copy hands on what is unwritten: padding, and what nobody will look at.
inline void watch_copy(hgcpu_worker* worker, void* to, const void* from, uint64_t bytes, const void* returns) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s || !bytes) return;
  const uintptr_t target = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
  const uint32_t pc = pc_of(s, returns), thread = w->self->thread;
  watch_enter(w);
  Where in{}, out{};
  const bool reads = !on_own_stack(w, source) && find_where(w, source, bytes, hgcpu_reads, pc, thread, &in);
  if (reads) judge(w, in, source, bytes, hgcpu_reads, pc, thread);
  const bool writes = !on_own_stack(w, target) && find_where(w, target, bytes, hgcpu_writes, pc, thread, &out);
  if (writes) {
    judge(w, out, target, bytes, hgcpu_writes, pc, thread);
    set_written(s, out, target, bytes, true);
    const bool hollow = reads && written(s, in, source, bytes) != Written::all;
    for (uint64_t i = 0; hollow && i < bytes; ++i) {
      if (written(s, in, source + i, 1) == Written::none) set_written(s, out, target + i, 1, false);
    }
  }
  watch_leave(s);
}
inline void watch_fence(hgcpu_worker* worker) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s) return;
  watch_enter(w);
  s->fenced[w->self->thread] = next_stamp(s);
  if (s->launch->times) s->launch->times[s->block].fenced = s->stamp;
  watch_leave(s);
}
inline void watch_divided(hgcpu_worker* worker, const void* returns) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s) return;
  watch_enter(w);
  Text t = watch_text(w, "division by zero", pc_of(s, returns), w->self->thread);
  t.add("divides an integer by zero");
  watch_stop(w, hipErrorLaunchFailure);
}
// An index beyond an array may still lead into a larger one, as in t[0][k]. Other memory is judged by the address of the access;
// local variables, whose accesses compilers do not tell of, when the function returns: then this says where it was.
inline void watch_index(hgcpu_worker* worker, const char* type, int64_t index, const void* returns) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s || (s->beyond.type && s->beyond.thread == w->self->thread)) return;
  s->beyond = {type, index, pc_of(s, returns), w->self->thread};
}
inline bool beyond_text(BlockWorker* w) {
  const Watch* s = w->watch;
  if (!s->beyond.type || s->beyond.thread != w->self->thread) return false;
  Text t = watch_text(w, "out of bounds", s->beyond.pc, s->beyond.thread);
  t.add("uses index %lld of a local variable of type %s", (long long)s->beyond.index, s->beyond.type);
  return true;
}
inline void watch_overrun(hgcpu_worker* worker, const void* returns) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s) return;
  watch_enter(w);
  if (!beyond_text(w)) {
    Text t = watch_text(w, "out of bounds", pc_of(s, returns), w->self->thread);
    t.add("has written behind a local variable");
  }
  watch_stop(w, hipErrorIllegalAddress);
}
// A signal: `fault` says what it means.
inline void watch_fault(BlockWorker* w, uintptr_t pc) {
  const Watch* s = w->watch;
  if (beyond_text(w)) return;
  Text t = watch_text(w, w->fault, uint32_t(pc - s->launch->library->base), w->self->thread);
  t.add("did it");
}
// A thread comes to a barrier, which is known by its line: the compiler may have made several of one.
inline void watch_barrier(hgcpu_worker* worker, uint32_t line) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  Watch* s = w->watch;
  if (!s) return;
  watch_enter(w);
  s->line[w->self->thread] = line;
  s->site[w->self->thread] = pc_of(s, __builtin_return_address(0));
  watch_leave(s);
}
// All threads that have not ended wait at barriers.
inline void watch_barrier_passed(BlockWorker* w) {
  Watch* s = w->watch;
  watch_enter(w);
  uint32_t first = 0, other = 0;
  while (!s->line[first]) ++first;
  while (other < w->threads && s->line[other] == s->line[first]) ++other;
  if (other < w->threads) {
    Text t = watch_text(w, "divergent barrier", s->site[first], first, s->line[first]);
    t.add("waits there, and ");
    t.thread(s->launch, other);
    if (s->line[other]) {
      t.add(" waits at ");
      t.place(s->launch, s->site[other], s->line[other]);
    } else {
      t.add(" has ended");
    }
    watch_stop(w, hipErrorLaunchFailure);
  }
  memset(s->line, 0, w->threads * sizeof *s->line);
  s->barrier = next_stamp(s);
  watch_leave(s);
}
// Lanes of the current warp go on together: what each has done and has seen, all have seen.
inline void watch_warp_passed(BlockWorker* w, uint64_t group) {
  Watch* s = w->watch;
  watch_enter(w);
  const uint32_t first = w->current * w->warp_size;
  uint32_t seen[64] = {};
  next_stamp(s);
  for (uint64_t left = group; left; left &= left - 1) {
    const uint32_t* of = s->clock[first + uint32_t(__builtin_ctzll(left))];
    for (uint32_t i = 0; i < w->warp_size; ++i) seen[i] = of[i] > seen[i] ? of[i] : seen[i];
  }
  for (uint64_t left = group; left; left &= left - 1) seen[__builtin_ctzll(left)] = s->stamp;
  for (uint64_t left = group; left; left &= left - 1) memcpy(s->clock[first + uint32_t(__builtin_ctzll(left))], seen, sizeof seen);
  watch_leave(s);
}

// ---- launches -------------------------------------------------------------------------------------------------------------
inline void sanitized_open(SanitizedLaunch* l, const hgcpu_param_info* params, void* const* args, uint32_t count) {
  Sanitizer& all = sanitizer();
  if (all.stamp > kLastStamp / 2) {
    all.stamp = 1;
    ++all.numbering;
    for (auto& list : all.spare) {
      while (list.count) free(list.pop());
    }
  }
  l->first = all.stamp;
  if (l->blocks <= 1u << 24) l->times = static_cast<BlockTimes*>(calloc(l->blocks, sizeof(BlockTimes)));
  Vec<Extent> blocks;
  {
    Memory& m = memory();
    Guard<Mutex> g(m.lock);
    auto add = [&](Block* b) {
      uintptr_t start = reinterpret_cast<uintptr_t>(b->pointer);
      blocks.push({start, start + b->bytes, nullptr, b, false, false});
    };
    for (uint32_t i = 0; i < m.blocks.room; ++i) {
      if (m.blocks.entries[i].key) add(reinterpret_cast<Block*>(m.blocks.entries[i].value));
    }
    for (Block* b : m.leaving) add(b);
  }
  if (blocks.count) qsort(blocks.items, blocks.count, sizeof(Extent), by_start);
  {
    NamedArrays& arrays = named_arrays();
    Guard<Mutex> g(arrays.lock);
    for (const NamedArray& a : arrays.list) {
      int64_t n = last_before(blocks, a.start);
      Extent* around = n >= 0 && a.start < blocks[uint32_t(n)].end ? &blocks[uint32_t(n)] : nullptr;
      Block* b = around ? around->block : nullptr;
      if (b && b->origin == Origin::graph && !b->live.get()) continue;
      if (around) around->reached = true;  // the rest of it belongs to nobody
      l->extents.push({a.start, a.start + a.bytes, a.name, b, false, false});
    }
  }
  for (Extent& e : blocks) {
    if (!e.reached && (e.block->origin != Origin::graph || e.block->live.get())) l->extents.push(e);
  }
  for (const auto& v : l->library->globals) {
    uintptr_t start = l->library->base + v.start;
    if (!v.own) l->extents.push({start, start + v.bytes, v.name, nullptr, true, true});
  }
  if (l->extents.count) qsort(l->extents.items, l->extents.count, sizeof(Extent), by_start);
  uint32_t apart = 0;
  for (const Extent& e : l->extents) {  // arrays that overlap are judged as one
    Extent* last = apart ? &l->extents[apart - 1] : nullptr;
    if (!last || e.start >= last->end) l->extents[apart++] = e;
    else if (e.end > last->end) last->end = e.end;
  }
  l->extents.count = apart;
  for (uint32_t i = 0; i < count; ++i) {
    const char* at = static_cast<const char*>(args[i]);
    for (uint32_t k = 0; k + sizeof(uintptr_t) <= params[i].bytes; k += sizeof(uintptr_t)) {
      uintptr_t word;
      memcpy(&word, at + k, sizeof word);
      int64_t n = last_before(l->extents, word);
      if (n >= 0 && word < l->extents[uint32_t(n)].end) l->extents[uint32_t(n)].reached = true;
    }
    l->arguments_end = at + params[i].bytes;
  }
}
inline void sanitized_close(SanitizedLaunch* l) {
  pages_drop(l->pages, false);
  free(l->times);
}
inline void watch_free(Watch* s) {
  if (s) discard(s);
}
// Runs blocks on this thread, one by one.
inline int sanitized_blocks(SanitizedLaunch* l, hgcpu_entry entry, void* const* args, uint64_t first, uint64_t last) {
  BlockWorker* w = static_cast<BlockWorker*>(block_worker());
  if (!w) return hipErrorOutOfMemory;
  if (!w->kept_watch) w->kept_watch = create<Watch>();
  Watch* s = w->kept_watch;
  Sanitizer& all = sanitizer();
  s->tls = static_cast<char*>(l->library->anchor()) - l->library->tls_anchor;
  Instrumented::Variable own{};
  for (const auto& v : l->library->shared) own = v.own && v.bytes > own.bytes ? v : own;
  *static_cast<hgcpu_watch*>(s) = {
      w,
      s->tls + own.start,
      own.bytes,
      {{watch_quick<0, false>, watch_quick<1, false>, watch_quick<2, false>, watch_quick<3, false>, watch_quick<4, false>},
       {watch_quick<0, true>, watch_quick<1, true>, watch_quick<2, true>, watch_quick<3, true>, watch_quick<4, true>}}};
  s->launch = l;
  s->last_extent = s->last_variable = ~0u;
  s->stamp = l->first;
  if (s->numbering != all.numbering) {
    memset(s->fenced, 0, sizeof s->fenced);
    memset(s->synced, 0, sizeof s->synced);
    memset(s->clock, 0, sizeof s->clock);
    s->numbering = all.numbering;
  }
  memset(s->lines, 0, sizeof s->lines);
  int code = 0;
  w->watch = s;
  if (!l->cooperative) *l->library->watched = s;
  for (uint64_t block = first; block < last && !code; ++block) {
    s->block = block;
    s->begin = s->barrier = next_stamp(s);
    if (l->times) l->times[block].begin = s->begin;
    s->acquired = false;
    s->beyond.type = nullptr;
    s->pending.bytes = 0;
    memset(s->line, 0, sizeof s->line);
    code = entry(l->how, args, block, block + 1);
    if (!code && pending_races(w)) code = hipErrorLaunchFailure;
  }
  *l->library->watched = nullptr;
  w->watch = nullptr;
  pages_drop(s->shared, l->cooperative);
  Guard<Mutex> g(all.lock);
  if (all.stamp <= s->stamp) all.stamp = s->stamp + 1;
  return code;
}
