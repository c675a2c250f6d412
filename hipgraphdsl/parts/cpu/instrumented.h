// What the compiler calls where kernels are compiled for the sanitizer: included at the end of a kernel library.
//
// With -fsanitize=thread a compiler puts a call in front of each load and store. The names are those of its own runtime library,
// which is not linked: here they ask the CPU runtime (sanitizer.h). Atomic operations are made here as well.
#pragma GCC system_header

#if defined(__APPLE__)
#define HGCPU_HOOK(name) __asm__("_" name)
#else
#define HGCPU_HOOK(name) __asm__(name)  // the compiler knows the functions by their names, with types of its own
#endif
#if defined(__clang__)
#define HGCPU_UNWATCHED __attribute__((disable_sanitizer_instrumentation, noinline))  // no_sanitize leaves atomic operations in
#else
#define HGCPU_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#endif
#undef __atomic_load_n

// The address of `hgcpu_mine`, from which the runtime knows where the other thread-local variables are.
extern "C" HGCPU_UNWATCHED __attribute__((visibility("default"))) void* hgcpu_anchor(void) { return &hgcpu_mine; }

extern "C" {
__attribute__((visibility("default"))) hgcpu_watch* hgcpu_watched;  // set while a launch runs
static HGCPU_UNWATCHED void hgcpu_told(const volatile void* address, uint64_t bytes, uint32_t how, const void* returns) {
  hgcpu_worker* w = hgcpu_mine;
  if (!w || !w->self) return;
  w->calls->access(w, const_cast<const void*>(address), bytes, how, returns);
}
static HGCPU_UNWATCHED void hgcpu_copied(void* to, const void* from, uint64_t bytes, const void* returns) {
  hgcpu_worker* w = hgcpu_mine;
  if (!w || !w->self) return;
  w->calls->copy(w, to, from, bytes, returns);
}
static HGCPU_UNWATCHED void hgcpu_fenced(int order) {
  hgcpu_worker* w = hgcpu_mine;
  if (!w || !w->self || order == __ATOMIC_RELAXED || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQUIRE) return;
  w->calls->fence(w);
}
#define HGCPU_HERE __builtin_return_address(0)
#define HGCPU_QUICK(name, log, writes)                                                                    \
  HGCPU_UNWATCHED void hgcpu_##name(const void* address) HGCPU_HOOK("__tsan_" #name);                     \
  HGCPU_UNWATCHED void hgcpu_##name(const void* address) {                                                \
    if (hgcpu_watch* watch = hgcpu_watched) {                                                             \
      if ((uintptr_t)address - (uintptr_t)watch->own < watch->own_bytes) return;                          \
      return watch->quick[writes][log](watch, address, HGCPU_HERE);                                       \
    }                                                                                                     \
    hgcpu_told(address, 1 << log, writes ? hgcpu_writes : hgcpu_reads, HGCPU_HERE);                       \
  }
#define HGCPU_ACCESSES(bytes, log)           \
  HGCPU_QUICK(read##bytes, log, 0)           \
  HGCPU_QUICK(write##bytes, log, 1)          \
  HGCPU_QUICK(unaligned_read##bytes, log, 0) \
  HGCPU_QUICK(unaligned_write##bytes, log, 1)
HGCPU_ACCESSES(1, 0)
HGCPU_ACCESSES(2, 1)
HGCPU_ACCESSES(4, 2)
HGCPU_ACCESSES(8, 3)
HGCPU_ACCESSES(16, 4)
#undef HGCPU_ACCESSES
#undef HGCPU_QUICK

// Few kernels call any of the rest, and the runtime behind them takes longer by far: unoptimized, they save a seventh of the time
// that g++ takes for a small kernel.
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O0")
#endif
#define HGCPU_ACCESS(name, bytes, how)                                    \
  HGCPU_UNWATCHED void hgcpu_##name(void* address) HGCPU_HOOK("__tsan_" #name); \
  HGCPU_UNWATCHED void hgcpu_##name(void* address) { hgcpu_told(address, bytes, how, HGCPU_HERE); }
#define HGCPU_ACCESSES(bytes)                                                       \
  HGCPU_ACCESS(read_write##bytes, bytes, hgcpu_reads | hgcpu_writes)                \
  HGCPU_ACCESS(volatile_read##bytes, bytes, hgcpu_reads | hgcpu_volatile)           \
  HGCPU_ACCESS(volatile_write##bytes, bytes, hgcpu_writes | hgcpu_volatile)         \
  HGCPU_ACCESS(unaligned_read_write##bytes, bytes, hgcpu_reads | hgcpu_writes)      \
  HGCPU_ACCESS(unaligned_volatile_read##bytes, bytes, hgcpu_reads | hgcpu_volatile) \
  HGCPU_ACCESS(unaligned_volatile_write##bytes, bytes, hgcpu_writes | hgcpu_volatile)
HGCPU_ACCESSES(1)
HGCPU_ACCESSES(2)
HGCPU_ACCESSES(4)
HGCPU_ACCESSES(8)
HGCPU_ACCESSES(16)
HGCPU_ACCESS(vptr_read, 8, hgcpu_reads)
#undef HGCPU_ACCESSES
#undef HGCPU_ACCESS
// By name, signature and body.
#define HGCPU_CALL(type, name, parameters, ...)                                 \
  HGCPU_UNWATCHED type hgcpu_tsan_##name parameters HGCPU_HOOK("__tsan_" #name); \
  HGCPU_UNWATCHED type hgcpu_tsan_##name parameters { __VA_ARGS__ }
HGCPU_CALL(void, init, (void), )
HGCPU_CALL(void, func_entry, (void*), )
HGCPU_CALL(void, func_exit, (void), )
HGCPU_CALL(void, ignore_thread_begin, (void), )
HGCPU_CALL(void, ignore_thread_end, (void), )
HGCPU_CALL(void, vptr_update, (void** address, void*), hgcpu_told(address, 8, hgcpu_writes, HGCPU_HERE);)
HGCPU_CALL(void, read_range, (void* address, uint64_t bytes), hgcpu_told(address, bytes, hgcpu_reads, HGCPU_HERE);)
HGCPU_CALL(void, write_range, (void* address, uint64_t bytes), hgcpu_told(address, bytes, hgcpu_writes, HGCPU_HERE);)
HGCPU_CALL(void*, memcpy, (void* to, const void* from, uint64_t bytes), hgcpu_copied(to, from, bytes, HGCPU_HERE);
           return __builtin_memmove(to, from, bytes);)
HGCPU_CALL(void*, memmove, (void* to, const void* from, uint64_t bytes), hgcpu_copied(to, from, bytes, HGCPU_HERE);
           return __builtin_memmove(to, from, bytes);)
HGCPU_CALL(void*, memset, (void* to, int value, uint64_t bytes), hgcpu_told(to, bytes, hgcpu_writes, HGCPU_HERE);
           return __builtin_memset(to, value, bytes);)
#if !defined(__clang__)
// g++ leaves these to the C library; the linker brings them here (--wrap).
void* hgcpu_real_memcpy(void*, const void*, size_t) HGCPU_HOOK("__real_memcpy");
void* hgcpu_real_memmove(void*, const void*, size_t) HGCPU_HOOK("__real_memmove");
void* hgcpu_real_memset(void*, int, size_t) HGCPU_HOOK("__real_memset");
HGCPU_UNWATCHED void* hgcpu_memcpy(void* to, const void* from, size_t bytes) HGCPU_HOOK("__wrap_memcpy");
HGCPU_UNWATCHED void* hgcpu_memcpy(void* to, const void* from, size_t bytes) {
  hgcpu_copied(to, from, bytes, HGCPU_HERE);
  return hgcpu_real_memcpy(to, from, bytes);
}
HGCPU_UNWATCHED void* hgcpu_memmove(void* to, const void* from, size_t bytes) HGCPU_HOOK("__wrap_memmove");
HGCPU_UNWATCHED void* hgcpu_memmove(void* to, const void* from, size_t bytes) {
  hgcpu_copied(to, from, bytes, HGCPU_HERE);
  return hgcpu_real_memmove(to, from, bytes);
}
HGCPU_UNWATCHED void* hgcpu_memset(void* to, int value, size_t bytes) HGCPU_HOOK("__wrap_memset");
HGCPU_UNWATCHED void* hgcpu_memset(void* to, int value, size_t bytes) {
  hgcpu_told(to, bytes, hgcpu_writes, HGCPU_HERE);
  return hgcpu_real_memset(to, value, bytes);
}
#endif

#define HGCPU_FETCH(bits, operation, builtin)                                                                     \
  HGCPU_CALL(uint##bits##_t, atomic##bits##_##operation, (volatile uint##bits##_t * p, uint##bits##_t v, int order), \
             hgcpu_fenced(order);                                                                                 \
             hgcpu_told(p, bits / 8, hgcpu_reads | hgcpu_writes | hgcpu_atomic, HGCPU_HERE);                      \
             return builtin(p, v, __ATOMIC_SEQ_CST);)
#define HGCPU_COMPARE(bits, strength)                                                                             \
  HGCPU_CALL(int, atomic##bits##_compare_exchange_##strength,                                                     \
             (volatile uint##bits##_t * p, uint##bits##_t * expected, uint##bits##_t desired, int order, int),    \
             hgcpu_fenced(order);                                                                                 \
             hgcpu_told(p, bits / 8, hgcpu_reads | hgcpu_writes | hgcpu_atomic, HGCPU_HERE);                      \
             return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);)
#define HGCPU_ATOMICS(bits)                                                                                       \
  HGCPU_CALL(uint##bits##_t, atomic##bits##_load, (const volatile uint##bits##_t* p, int),                        \
             hgcpu_told(p, bits / 8, hgcpu_reads | hgcpu_atomic, HGCPU_HERE);                                     \
             return __atomic_load_n(p, __ATOMIC_SEQ_CST);)                                                        \
  HGCPU_CALL(void, atomic##bits##_store, (volatile uint##bits##_t * p, uint##bits##_t v, int order),              \
             hgcpu_fenced(order); hgcpu_told(p, bits / 8, hgcpu_writes | hgcpu_atomic, HGCPU_HERE);               \
             __atomic_store_n(p, v, __ATOMIC_SEQ_CST);)                                                           \
  HGCPU_CALL(uint##bits##_t, atomic##bits##_exchange, (volatile uint##bits##_t * p, uint##bits##_t v, int order), \
             hgcpu_fenced(order); hgcpu_told(p, bits / 8, hgcpu_writes | hgcpu_atomic, HGCPU_HERE);               \
             return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);)                                                 \
  HGCPU_FETCH(bits, fetch_add, __atomic_fetch_add)                                                                \
  HGCPU_FETCH(bits, fetch_sub, __atomic_fetch_sub)                                                                \
  HGCPU_FETCH(bits, fetch_and, __atomic_fetch_and)                                                                \
  HGCPU_FETCH(bits, fetch_or, __atomic_fetch_or)                                                                  \
  HGCPU_FETCH(bits, fetch_xor, __atomic_fetch_xor)                                                                \
  HGCPU_FETCH(bits, fetch_nand, __atomic_fetch_nand)                                                              \
  HGCPU_COMPARE(bits, strong)                                                                                     \
  HGCPU_COMPARE(bits, weak)                                                                                       \
  HGCPU_CALL(uint##bits##_t, atomic##bits##_compare_exchange_val,                                                 \
             (volatile uint##bits##_t * p, uint##bits##_t expected, uint##bits##_t desired, int order, int),      \
             hgcpu_fenced(order);                                                                                 \
             hgcpu_told(p, bits / 8, hgcpu_reads | hgcpu_writes | hgcpu_atomic, HGCPU_HERE);                      \
             __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
             return expected;)
HGCPU_ATOMICS(8)
HGCPU_ATOMICS(16)
HGCPU_ATOMICS(32)
HGCPU_ATOMICS(64)
HGCPU_CALL(void, atomic_thread_fence, (int order), hgcpu_fenced(order); __atomic_thread_fence(__ATOMIC_SEQ_CST);)
HGCPU_CALL(void, atomic_signal_fence, (int), )
#undef HGCPU_ATOMICS
#undef HGCPU_COMPARE
#undef HGCPU_FETCH
#undef HGCPU_CALL
#if !defined(__clang__)
#pragma GCC pop_options
#endif

// With -fsanitize=integer-divide-by-zero.
static HGCPU_UNWATCHED void hgcpu_divided(const void* returns) {
  hgcpu_worker* w = hgcpu_mine;
  if (!w || !w->self) return;
  w->calls->divided(w, returns);
}
HGCPU_UNWATCHED void hgcpu_division(void*, uintptr_t, uintptr_t) HGCPU_HOOK("__ubsan_handle_divrem_overflow");
HGCPU_UNWATCHED void hgcpu_division(void*, uintptr_t, uintptr_t) { hgcpu_divided(HGCPU_HERE); }
HGCPU_UNWATCHED void hgcpu_last_division(void*, uintptr_t, uintptr_t) HGCPU_HOOK("__ubsan_handle_divrem_overflow_abort");
HGCPU_UNWATCHED void hgcpu_last_division(void*, uintptr_t, uintptr_t) { hgcpu_divided(HGCPU_HERE); }

// With -fsanitize=bounds: what the compiler tells of the array and of its index.
struct hgcpu_described {
  uint16_t kind, info;  // of an integer: whether it is signed, and from bit 1 on log2 of its bits
  char name[];
};
struct hgcpu_indexed {
  const char* file;
  uint32_t line, column;
  const hgcpu_described *array, *index;
};
static HGCPU_UNWATCHED void hgcpu_beyond(const hgcpu_indexed* what, uintptr_t index, const void* returns) {
  hgcpu_worker* w = hgcpu_mine;
  if (!w || !w->self) return;
  const uint32_t unused = 64 - (1u << (what->index->info >> 1 & 7));
  const bool narrow = what->index->info & 1 && unused < 64;
  w->calls->index(w, what->array->name, narrow ? int64_t(uint64_t(index) << unused) >> unused : int64_t(index), returns);
}
HGCPU_UNWATCHED void hgcpu_index(const hgcpu_indexed* what, uintptr_t index) HGCPU_HOOK("__ubsan_handle_out_of_bounds");
HGCPU_UNWATCHED void hgcpu_index(const hgcpu_indexed* what, uintptr_t index) { hgcpu_beyond(what, index, HGCPU_HERE); }
HGCPU_UNWATCHED void hgcpu_last_index(const hgcpu_indexed* what, uintptr_t index) HGCPU_HOOK("__ubsan_handle_out_of_bounds_abort");
HGCPU_UNWATCHED void hgcpu_last_index(const hgcpu_indexed* what, uintptr_t index) { hgcpu_beyond(what, index, HGCPU_HERE); }

// With -fstack-protector-strong. Hidden, so that it is not the C library's, which ends the process.
__attribute__((visibility("hidden"))) HGCPU_UNWATCHED void __stack_chk_fail(void) {
  hgcpu_worker* w = hgcpu_mine;
  if (w && w->self) w->calls->overrun(w, HGCPU_HERE);
  __builtin_trap();
}
}  // extern "C"
