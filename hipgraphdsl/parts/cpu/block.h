// Threads of a block that wait for each other, as fibers (see fibers.h): stacks, switching, and who goes on when.
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "base.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

constexpr uint32_t kFibers = 1024;
// Address space, of which only touched pages cost memory; where it is scarce, a smaller size is tried.
constexpr size_t kStackBytes[] = {1024 * 1024, 256 * 1024, 64 * 1024};

#if defined(__APPLE__)
#define HGCPU_SYMBOL(name) "_" #name
#else
#define HGCPU_SYMBOL(name) #name
#endif

extern "C" {
// Save the callee-saved registers and the stack pointer, take the other stack. It returns, not jumps: the processor predicts
// returns from the calls before, and a jump would make all that follow wrong.
void hgcpu_switch(void** save, void* load) __asm__(HGCPU_SYMBOL(hgcpu_switch));
// Save the same, and call a function on the stack that ends at `top`. Returns when it does, or where somebody takes `save`.
void hgcpu_call_on(void** save, void* top, void (*main)(void*), void* object) __asm__(HGCPU_SYMBOL(hgcpu_call_on));
void hgcpu_trampoline(void) __asm__(HGCPU_SYMBOL(hgcpu_trampoline));
}

#if defined(__APPLE__)
#define HGCPU_HIDE(name) ".private_extern " HGCPU_SYMBOL(name) "\n"
#else
#define HGCPU_HIDE(name) ".hidden " HGCPU_SYMBOL(name) "\n"
#endif

#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_switch) "\n" HGCPU_HIDE(hgcpu_switch)
    HGCPU_SYMBOL(hgcpu_switch) ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_call_on) "\n" HGCPU_HIDE(hgcpu_call_on)
    HGCPU_SYMBOL(hgcpu_call_on) ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsp, %rbx\n  movq %rsi, %rsp\n  movq %rcx, %rdi\n  callq *%rdx\n  movq %rbx, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_trampoline) "\n" HGCPU_HIDE(hgcpu_trampoline)
    HGCPU_SYMBOL(hgcpu_trampoline) ":\n"
    "  movq %r12, %rdi\n  callq *%r13\n  ud2\n");

static void* hgcpu_prepare(void* top, void* fiber, void (*main)(void*)) {
  void** sp = (void**)top;
  *--sp = nullptr;  // where a caller's return address would be: the stack is 16 bytes aligned at the call
  *--sp = nullptr;
  *--sp = (void*)hgcpu_trampoline;
  *--sp = nullptr;         // rbp
  *--sp = nullptr;         // rbx
  *--sp = fiber;           // r12
  *--sp = (void*)main;     // r13
  *--sp = nullptr;         // r14
  *--sp = nullptr;         // r15
  return sp;
}
#elif defined(__aarch64__)
#define HGCPU_SAVE_REGISTERS \
  "  sub sp, sp, #160\n" \
  "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n" \
  "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n" \
  "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
#define HGCPU_LOAD_REGISTERS \
  "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n" \
  "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n" \
  "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n" \
  "  add sp, sp, #160\n  ret\n"
__asm__(
    ".text\n.p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_switch) "\n" HGCPU_HIDE(hgcpu_switch)
    HGCPU_SYMBOL(hgcpu_switch) ":\n"
    HGCPU_SAVE_REGISTERS
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    HGCPU_LOAD_REGISTERS
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_call_on) "\n" HGCPU_HIDE(hgcpu_call_on)
    HGCPU_SYMBOL(hgcpu_call_on) ":\n"
    HGCPU_SAVE_REGISTERS
    "  mov x9, sp\n  str x9, [x0]\n  mov x19, x9\n  mov sp, x1\n  mov x0, x3\n  blr x2\n  mov sp, x19\n"
    HGCPU_LOAD_REGISTERS
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_trampoline) "\n" HGCPU_HIDE(hgcpu_trampoline)
    HGCPU_SYMBOL(hgcpu_trampoline) ":\n"
    "  mov x0, x19\n  blr x20\n  brk #1\n");

static void* hgcpu_prepare(void* top, void* fiber, void (*main)(void*)) {
  void** sp = (void**)top - 20;
  memset(sp, 0, 160);
  sp[0] = fiber;                        // x19
  sp[1] = (void*)main;                  // x20
  sp[11] = (void*)hgcpu_trampoline;     // x30
  return sp;
}
#else
#error "the CPU runtime runs on x86-64 and 64-bit ARM"
#endif


// ---- workers ------------------------------------------------------------------------------------------------------------
// What runs blocks on one thread of the operating system, for all kernel libraries.
struct Watch;  // what the sanitizer knows (sanitizer.h)
struct BlockWorker : hgcpu_worker {
  const hgcpu_kernel_info* kernel;  // that runs, or ran last
  void (*body)(void* job);
  void* job;
  uint32_t threads, warps, warp_size, warp_shift;
  uint32_t current;  // warp whose lanes run
  uint32_t made;     // fibers that have a stack
  bool waited;       // whether a thread of the block has
  int status;
  const char* fault;       // what ended the launch, if a signal did
  char report[1024];       // or what the sanitizer has found
  Watch *watch, *kept_watch;  // the first is null unless a sanitized block runs
  uint32_t arrivals, sum;  // at the barrier now filling
  void* main_stack_pointer;
  char* stacks;
  size_t stack_bytes, stride;
  void* signal_stack;  // of its thread; null where the thread had one before
  hgcpu_fiber* idle;  // fibers that run no thread
  hgcpu_fiber* of[kFibers];  // the fiber of each thread that has waited
  hgcpu_warp warp[kFibers / 32];
  hgcpu_fiber fiber[kFibers + 1];  // the last is no thread of a block: see block_guard
};

// The sanitizer's.
inline void watch_barrier_passed(BlockWorker* w);
inline void watch_warp_passed(BlockWorker* w, uint64_t group);
inline void watch_fault(BlockWorker* w, uintptr_t pc);
inline void watch_free(Watch* s);
inline void watch_access(hgcpu_worker* worker, const void* pointer, uint64_t bytes, uint32_t how, const void* returns);
inline void watch_copy(hgcpu_worker* worker, void* to, const void* from, uint64_t bytes, const void* returns);
inline void watch_fence(hgcpu_worker* worker);
inline void watch_divided(hgcpu_worker* worker, const void* returns);
inline void watch_index(hgcpu_worker* worker, const char* type, int64_t index, const void* returns);
inline void watch_overrun(hgcpu_worker* worker, const void* returns);
inline void watch_barrier(hgcpu_worker* worker, uint32_t line);

inline pthread_key_t g_block_key;
inline thread_local BlockWorker* t_block_worker = nullptr;

inline void block_worker_free(void* pointer) {
  BlockWorker* w = static_cast<BlockWorker*>(pointer);
  if (w->stacks) munmap(w->stacks, w->stride * (kFibers + 1));
  watch_free(w->kept_watch);
  for (hgcpu_fiber& f : w->fiber) free(f.path);
  if (w->signal_stack) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    free(w->signal_stack);
  }
  free(w);
}

// Let go lanes of a warp that wait at warp operations. No lane of the warp can run on, so those that do not wait have ended.
// A mask says who waits for whom; without one those go on together that stand in the same place, first the earliest in
// program order, so that lanes still inside of a loop or a call come out of it before the others pass on.
inline int compare_places(const hgcpu_fiber* a, const hgcpu_fiber* b) {
  uint32_t common = a->depth < b->depth ? a->depth : b->depth;
  for (uint32_t i = 0; i < common; ++i) {
    if (a->path[i] != b->path[i]) return a->path[i] < b->path[i] ? -1 : 1;
  }
  uint64_t left = a->depth > common ? a->path[common] : a->place, right = b->depth > common ? b->path[common] : b->place;
  if (left != right) return left < right ? -1 : 1;
  return a->depth == b->depth ? 0 : a->depth < b->depth ? -1 : 1;
}
inline void release_warp(BlockWorker* w, hgcpu_warp* warp) {
  hgcpu_fiber* const* of = w->of + w->current * w->warp_size;
  auto each = [](uint64_t lanes, auto f) {
    for (; lanes; lanes &= lanes - 1) f(uint32_t(__builtin_ctzll(lanes)));
  };
  const uint64_t present = warp->at_warp | warp->at_block;
  uint64_t group = 0;
  for (uint64_t left = warp->at_warp; left && !group;) {
    const hgcpu_fiber* first = of[__builtin_ctzll(left)];
    uint64_t same = 0;
    each(left, [&](uint32_t lane) {
      if (of[lane]->kind == first->kind && of[lane]->mask == first->mask) same |= 1ull << lane;
    });
    if (first->mask && !(first->mask & present & ~same)) group = same;
    left &= ~same;
  }
  if (!group) {
    const hgcpu_fiber* earliest = nullptr;
    for (int masked = 0; masked < 2 && !earliest; ++masked) {
      each(warp->at_warp, [&](uint32_t lane) {
        if (!of[lane]->mask == !masked && (!earliest || compare_places(of[lane], earliest) < 0)) earliest = of[lane];
      });
    }
    each(warp->at_warp, [&](uint32_t lane) {
      if (of[lane]->mask == earliest->mask && of[lane]->kind == earliest->kind && !compare_places(of[lane], earliest)) group |= 1ull << lane;
    });
  }
  warp->active = group;
  warp->votes = 0;
  each(group, [&](uint32_t lane) {
    warp->values[lane] = of[lane]->value;
    if (of[lane]->vote) warp->votes |= 1ull << lane;
  });
  warp->at_warp &= ~group;
  warp->ready = group;
  if (w->watch) watch_warp_passed(w, group);
}

inline void fiber_main(void* fiber);

// Stacks whose tops lie alike would share sets of the caches.
inline void* stack_top(const BlockWorker* w, const hgcpu_fiber* f) {
  const size_t n = size_t(f - w->fiber);
  return w->stacks + (n + 1) * w->stride - (n * 192 & 4095);
}
inline void stack_guard(const BlockWorker* w, const hgcpu_fiber* f) {
  mprotect(w->stacks + size_t(f - w->fiber) * w->stride, size_t(w->stride - w->stack_bytes) / 2, PROT_NONE);
}
inline hgcpu_fiber* idle_fiber(BlockWorker* w) {
  if (hgcpu_fiber* f = w->idle) {
    w->idle = f->next;
    return f;
  }
  hgcpu_fiber* f = &w->fiber[w->made++];
  stack_guard(w, f);
  f->stack_pointer = hgcpu_prepare(stack_top(w, f), f, fiber_main);
  return f;
}

// The fiber to run next; null where the block has ended.
inline hgcpu_fiber* pick_fiber(BlockWorker* w) {
  for (;;) {
    hgcpu_warp* warp = &w->warp[w->current];
    if (warp->ready) {
      uint32_t lane = uint32_t(__builtin_ctzll(warp->ready));
      warp->ready &= warp->ready - 1;
      return w->of[w->current * w->warp_size + lane];
    }
    // The threads of one warp come before those of the next: fewer stacks are in use at a time.
    uint32_t end = (w->current + 1) * w->warp_size;
    if (w->started < (end < w->threads ? end : w->threads)) return idle_fiber(w);
    if (warp->at_warp) {
      release_warp(w, warp);
      continue;
    }
    if (w->current + 1 < w->warps) {
      w->current++;
      continue;
    }
    bool waiting = false;
    for (uint32_t n = 0; n < w->warps; ++n) {
      waiting = waiting || w->warp[n].at_block;
      w->warp[n].ready = w->warp[n].at_block;
      w->warp[n].at_block = 0;
    }
    if (!waiting) return nullptr;
    if (w->watch) watch_barrier_passed(w);
    w->last_arrivals = w->arrivals;
    w->last_sum = w->sum;
    w->arrivals = w->sum = 0;
    w->current = 0;
  }
}

inline void switch_from(BlockWorker* w, hgcpu_fiber* self) {
  hgcpu_fiber* other = pick_fiber(w);
  if (other == self) return;
  w->self = other;
  hgcpu_switch(&self->stack_pointer, other ? other->stack_pointer : w->main_stack_pointer);
}

inline void fiber_main(void* fiber) {
  BlockWorker* w = t_block_worker;
  hgcpu_fiber* self = static_cast<hgcpu_fiber*>(fiber);
  for (;;) {
    self->depth = 0;
    self->leaf = 0;
    w->body(w->job);
    if (!w->waited) return;  // to block_run: no other fiber has begun
    self->next = w->idle;
    w->idle = self;
    switch_from(w, self);  // picks itself where more threads are to begin
  }
}

// Call `main` on a stack of its own, where kernels may run that never wait: what ends a kernel ends this call. One guarded call may
// run many kernels; blocks whose threads wait begin fibers from within it. Returns 0 or a hipError_t.
inline int block_guard(BlockWorker* w, void (*main)(void*), void* object) {
  hgcpu_fiber* f = w->self = &w->fiber[kFibers];
  w->status = 0;
  hgcpu_call_on(&w->main_stack_pointer, stack_top(w, f), main, object);
  w->self = nullptr;
  return w->status;
}

inline int block_run(hgcpu_worker* worker, uint32_t threads, uint32_t warp_size, void (*body)(void*), void* job) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  if (!threads || threads > kFibers) return hipErrorInvalidConfiguration;
  w->body = body;
  w->job = job;
  w->threads = threads;
  w->warp_size = warp_size;
  w->warp_shift = uint32_t(__builtin_ctz(warp_size));
  w->warps = (threads + warp_size - 1) / warp_size;
  w->started = w->current = 0;
  w->arrivals = w->sum = 0;
  w->status = 0;
  w->waited = false;
  hgcpu_fiber* const outer = w->self;  // of block_guard
  void* const outer_stack_pointer = w->main_stack_pointer;
  // A call, not a switch, and the same fiber for block after block: most blocks never wait, and their returns are predicted.
  hgcpu_fiber* first = w->self = idle_fiber(w);
  hgcpu_call_on(&w->main_stack_pointer, stack_top(w, first), fiber_main, first);
  w->self = outer;
  w->main_stack_pointer = outer_stack_pointer;
  if (w->status) {
    // Its fibers stand somewhere inside the kernel: the next block begins them anew.
    w->made = 0;
    w->idle = nullptr;
    for (hgcpu_warp& warp : w->warp) warp.ready = warp.at_warp = warp.at_block = 0;
  } else if (!w->waited) {
    first->stack_pointer = hgcpu_prepare(stack_top(w, first), first, fiber_main);
    first->next = w->idle;
    w->idle = first;
  }
  const int status = w->status;
  w->status = 0;
  return status;
}

inline void block_wait(hgcpu_worker* worker, uint32_t thread, uint32_t count) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  w->waited = true;
  if (w->started <= thread) w->started = thread + 1;
  w->arrivals++;
  w->sum += count;
  w->of[thread] = w->self;
  w->warp[thread >> w->warp_shift].at_block |= 1ull << (thread & (w->warp_size - 1));
  switch_from(w, w->self);
}

inline hgcpu_warp* block_wait_warp(hgcpu_worker* worker, uint32_t thread) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  hgcpu_warp* warp = &w->warp[thread >> w->warp_shift];
  w->waited = true;
  if (w->started <= thread) w->started = thread + 1;
  w->of[thread] = w->self;
  warp->at_warp |= 1ull << (thread & (w->warp_size - 1));
  switch_from(w, w->self);
  return warp;
}

inline void block_stop(hgcpu_worker* worker, int status) {
  BlockWorker* w = static_cast<BlockWorker*>(worker);
  w->status = status;
  void* gone;
  hgcpu_switch(&gone, w->main_stack_pointer);
}

// ---- faults -------------------------------------------------------------------------------------------------------------
// A signal that a kernel's own code raises ends the launch with an error, as on a GPU; the process goes on. So does one raised by the C
// library, of which compilers call memset and memcpy, at an address beyond an array. Any other library that the kernel called may
// hold locks: its signal is named, and left to whoever was asked before.
inline struct sigaction g_before[NSIG];
constexpr size_t kSignalStackBytes = 64 * 1024;
constexpr const char* kNotThere = "memory is accessed that is not there,";
inline const void* g_c_library = nullptr;  // one of its functions
inline thread_local const void* t_fault_address = nullptr;
inline thread_local jmp_buf* t_shield = nullptr;  // where a copy or fill of the runtime goes when memory is not there
inline bool memory_beyond(const void* address, char* text, size_t bytes);
inline bool memory_guards(const void* address);

// Notes why a kernel, or with null a copy or fill, has failed in this thread.
inline void fault_note(const char* kernel) {
  BlockWorker* w = t_block_worker;
  const char* said = !kernel ? kNotThere : w && w->report[0] ? w->report : w && w->fault ? w->fault : "";
  char beyond[256];
  if (said == kNotThere && memory_beyond(t_fault_address, beyond, sizeof beyond)) said = beyond;
  Guard<Mutex> g(g_fault.lock);
  const char* joined = kernel && w && w->report[0] ? ", in " : *said ? " in " : "";
  snprintf(g_fault.text, sizeof g_fault.text, kernel ? "%s%skernel '%s'" : "%s%sa copy or fill", said, joined, kernel);
  if (w) w->fault = nullptr, w->report[0] = 0;
}

inline void fault_leave() { block_stop(t_block_worker, t_block_worker->status); }

// Whether two addresses are in one library.
inline bool same_library(const void* one, const void* other) {
  Dl_info a, b;
  return dladdr(one, &a) && dladdr(other, &b) && a.dli_fbase == b.dli_fbase;
}

inline void fault_signal(int number, siginfo_t* info, void* context) {
  const bool memory_fault = number == SIGSEGV || number == SIGBUS;
  t_fault_address = info->si_addr;
  if (t_shield && memory_fault && info->si_code > 0) _longjmp(*t_shield, 1);
  BlockWorker* w = t_block_worker;
  hgcpu_fiber* self = w ? w->self : nullptr;
  if (self && info->si_code > 0) {
    ucontext_t* at = static_cast<ucontext_t*>(context);
#if defined(__x86_64__) && defined(__linux__)
    auto& pc = at->uc_mcontext.gregs[REG_RIP];
    auto& sp = at->uc_mcontext.gregs[REG_RSP];
#elif defined(__x86_64__)
    auto& pc = at->uc_mcontext->__ss.__rip;
    auto& sp = at->uc_mcontext->__ss.__rsp;
#elif defined(__linux__)
    auto& pc = at->uc_mcontext.pc;
    auto& sp = at->uc_mcontext.sp;
#else
    auto& pc = at->uc_mcontext->__ss.__pc;
    auto& sp = at->uc_mcontext->__ss.__sp;
#endif
    char* stack = w->stacks + size_t(self - w->fiber) * w->stride;
    char* address = static_cast<char*>(info->si_addr);
    const bool overflow = number != SIGFPE && address >= stack && address < stack + (w->stride - w->stack_bytes) / 2;
    const void* code = self == &w->fiber[kFibers] ? reinterpret_cast<void*>(w->kernel->entry) : reinterpret_cast<void*>(w->body);
    const void* here = reinterpret_cast<void*>(pc);
    const bool own = same_library(here, code);
    if (overflow || own || (memory_fault && same_library(here, g_c_library) && memory_guards(address))) {
      w->fault = overflow           ? "a thread needs more stack than there is (1 MiB),"
                 : number == SIGFPE ? "an integer is divided by zero, or the least one by -1,"
                 : number == SIGILL ? "a trap is reached"
                                    : kNotThere;
      w->status = overflow || number == SIGFPE || number == SIGILL ? hipErrorLaunchFailure : hipErrorIllegalAddress;
      if (w->watch && own) watch_fault(w, uintptr_t(pc));
      pc = reinterpret_cast<uintptr_t>(fault_leave);
      sp = reinterpret_cast<uintptr_t>(stack + w->stride - 4096) - 8;  // what its stack holds is not needed any more
      return;
    }
    char said[256];
    int n = snprintf(said, sizeof said, "hipgraphdsl: signal %d in a function that kernel '%s' called\n", number,
                     w->kernel ? w->kernel->name : "?");
    if (n > 0 && write(2, said, size_t(n)) < 0) n = 0;
  }
  sigaction(number, &g_before[number], nullptr);  // and the instruction raises it again
}

inline void fault_install() {
  g_c_library = dlsym(RTLD_DEFAULT, "memcpy");
  struct sigaction how;
  memset(&how, 0, sizeof how);
  how.sa_sigaction = fault_signal;
  how.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&how.sa_mask);
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (int number : numbers) sigaction(number, &how, &g_before[number]);
}
inline void fault_ready() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fault_install);
}
// A fiber whose stack is full cannot take a signal. Returns the stack that signals of this thread have from now on; null where it
// has one.
inline void* signal_stack_new() {
  stack_t there;
  if (sigaltstack(nullptr, &there) || !(there.ss_flags & SS_DISABLE)) return nullptr;
  memset(&there, 0, sizeof there);
  there.ss_size = kSignalStackBytes;
  there.ss_sp = must_alloc(kSignalStackBytes);
  sigaltstack(&there, nullptr);
  return there.ss_sp;
}

inline void block_grow(hgcpu_fiber* f) {
  f->room = f->room ? 2 * f->room : 32;
  f->path = static_cast<uint64_t*>(realloc(f->path, f->room * sizeof(uint64_t)));
  if (!f->path) abort();
}

inline void block_failed(const char* text, const char* file, int line, const uint32_t* block, const uint32_t* thread) {
  fprintf(stderr, "%s:%d: block [%u,%u,%u], thread [%u,%u,%u]: assertion `%s` failed\n", file, line, block[0], block[1],
          block[2], thread[0], thread[1], thread[2], text);
}
inline void block_flush() { fflush(stdout); }

inline const hgcpu_calls kBlockCalls = {block_run, block_wait, block_wait_warp, block_stop, block_grow, block_failed, block_flush,
                                        watch_access, watch_copy, watch_fence, watch_divided, watch_index, watch_overrun,
                                        watch_barrier};

// The calling thread's worker, made on first use; null if there is no memory.
inline hgcpu_worker* block_worker() {
  if (t_block_worker) return t_block_worker;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_key_create(&g_block_key, block_worker_free); });
  fault_ready();
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(BlockWorker))) return nullptr;
  memset(memory, 0, sizeof(BlockWorker));
  BlockWorker* w = static_cast<BlockWorker*>(memory);
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  for (size_t bytes : kStackBytes) {
    w->stack_bytes = bytes;
    w->stride = bytes + 2 * page;  // one below as a guard, one above for tops that lie apart
    void* stacks = mmap(nullptr, w->stride * (kFibers + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) continue;
    w->stacks = static_cast<char*>(stacks);
    break;
  }
  if (!w->stacks) {
    free(w);
    return nullptr;
  }
  stack_guard(w, &w->fiber[kFibers]);
  w->calls = &kBlockCalls;
  w->signal_stack = signal_stack_new();
  pthread_setspecific(g_block_key, w);
  return t_block_worker = w;
}
