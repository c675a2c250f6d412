// Fibers for kernels with barriers and warp operations. Compiled into each kernel library that needs it.
#include "fibers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace {

constexpr uint32_t kFibers = 1024;
constexpr size_t kStackBytes = 128 * 1024;
// Not a power of two: stacks that lie alike would share cache sets.
constexpr size_t kStackStride = kStackBytes + 4096 + 192;
constexpr uint64_t kCanary = 0x68676370757374adull;
constexpr int kLaunchFailure = 719;  // hipErrorLaunchFailure
constexpr int kAssert = 710;         // hipErrorAssert

}  // namespace

#if defined(__APPLE__)
#define HGCPU_SYMBOL(name) "_" #name
#else
#define HGCPU_SYMBOL(name) #name
#endif

extern "C" {
// Save the callee-saved registers and the stack pointer, take the other stack.
void hgcpu_switch(void** save, void* load) __asm__(HGCPU_SYMBOL(hgcpu_switch));
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
    "  popq %rcx\n  jmpq *%rcx\n"
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_trampoline) "\n" HGCPU_HIDE(hgcpu_trampoline)
    HGCPU_SYMBOL(hgcpu_trampoline) ":\n"
    "  movq %r12, %rdi\n  callq *%r13\n  ud2\n");

static void* hgcpu_prepare(char* top, hgcpu_fiber* fiber, void (*main)(hgcpu_fiber*)) {
  void** sp = (void**)((uintptr_t)top & ~(uintptr_t)63);
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
__asm__(
    ".text\n.p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_switch) "\n" HGCPU_HIDE(hgcpu_switch)
    HGCPU_SYMBOL(hgcpu_switch) ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n"
    ".p2align 4\n.globl " HGCPU_SYMBOL(hgcpu_trampoline) "\n" HGCPU_HIDE(hgcpu_trampoline)
    HGCPU_SYMBOL(hgcpu_trampoline) ":\n"
    "  mov x0, x19\n  blr x20\n  brk #1\n");

static void* hgcpu_prepare(char* top, hgcpu_fiber* fiber, void (*main)(hgcpu_fiber*)) {
  void** sp = (void**)((uintptr_t)top & ~(uintptr_t)63) - 20;
  memset(sp, 0, 160);
  sp[0] = fiber;                        // x19
  sp[1] = (void*)main;                  // x20
  sp[11] = (void*)hgcpu_trampoline;     // x30
  return sp;
}
#else
#include <ucontext.h>
// Elsewhere: the C library's contexts, which cost a system call each time. A saved stack pointer is a context's address.
extern "C" void hgcpu_switch(void** save, void* load) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, (ucontext_t*)load);
}
extern "C" void hgcpu_trampoline(void) {}
static void hgcpu_enter(unsigned high, unsigned low, unsigned main_high, unsigned main_low) {
  hgcpu_fiber* fiber = (hgcpu_fiber*)(((uintptr_t)high << 16 << 16) | low);
  ((void (*)(hgcpu_fiber*))(((uintptr_t)main_high << 16 << 16) | main_low))(fiber);
}
static void* hgcpu_prepare(char* top, hgcpu_fiber* fiber, void (*main)(hgcpu_fiber*)) {
  ucontext_t* context = (ucontext_t*)((uintptr_t)(top - sizeof(ucontext_t)) & ~(uintptr_t)63);
  getcontext(context);
  context->uc_stack.ss_sp = top - kStackBytes;
  context->uc_stack.ss_size = (size_t)((char*)context - (top - kStackBytes));
  context->uc_link = nullptr;
  uintptr_t f = (uintptr_t)fiber, m = (uintptr_t)main;
  makecontext(context, (void (*)())hgcpu_enter, 4, (unsigned)(f >> 16 >> 16), (unsigned)f, (unsigned)(m >> 16 >> 16),
              (unsigned)m);
  return context;
}
#endif

// -- workers ----------------------------------------------------------------------------------------------------------

static pthread_mutex_t hgcpu_lock = PTHREAD_MUTEX_INITIALIZER;
static hgcpu_worker* hgcpu_workers;
static pthread_key_t hgcpu_key;
static bool hgcpu_key_made;
static thread_local hgcpu_worker* hgcpu_mine;

static void hgcpu_return_memory(hgcpu_worker* worker) {
  if (worker->stacks) munmap(worker->stacks, kStackStride * kFibers);
  free(worker->dynamic);
  free(worker);
}

// A thread ends before the library is unloaded.
static void hgcpu_thread_ends(void* pointer) {
  hgcpu_worker* worker = (hgcpu_worker*)pointer;
  pthread_mutex_lock(&hgcpu_lock);
  *worker->previous = worker->next;
  if (worker->next) worker->next->previous = worker->previous;
  pthread_mutex_unlock(&hgcpu_lock);
  hgcpu_return_memory(worker);
}

// The library is unloaded before its threads end: they must not call into it then.
__attribute__((destructor)) static void hgcpu_library_ends() {
  pthread_mutex_lock(&hgcpu_lock);
  if (hgcpu_key_made) pthread_key_delete(hgcpu_key);
  hgcpu_key_made = false;
  hgcpu_worker* worker = hgcpu_workers;
  hgcpu_workers = nullptr;
  pthread_mutex_unlock(&hgcpu_lock);
  while (worker) {
    hgcpu_worker* next = worker->next;
    hgcpu_return_memory(worker);
    worker = next;
  }
}

hgcpu_worker* hgcpu_this_worker(size_t dynamic_bytes) {
  hgcpu_worker* worker = hgcpu_mine;
  if (!worker) {
    if (posix_memalign((void**)&worker, 64, sizeof(hgcpu_worker))) return nullptr;
    memset((void*)worker, 0, sizeof(hgcpu_worker));
    pthread_mutex_lock(&hgcpu_lock);
    if (!hgcpu_key_made) hgcpu_key_made = pthread_key_create(&hgcpu_key, hgcpu_thread_ends) == 0;
    worker->next = hgcpu_workers;
    worker->previous = &hgcpu_workers;
    if (hgcpu_workers) hgcpu_workers->previous = &worker->next;
    hgcpu_workers = worker;
    if (hgcpu_key_made) pthread_setspecific(hgcpu_key, worker);
    pthread_mutex_unlock(&hgcpu_lock);
    hgcpu_mine = worker;
  }
  if (worker->dynamic_bytes < dynamic_bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, dynamic_bytes)) return nullptr;
    memset(memory, 0, dynamic_bytes);
    free(worker->dynamic);
    worker->dynamic = (char*)memory;
    worker->dynamic_bytes = dynamic_bytes;
  }
  return worker;
}

// -- switching --------------------------------------------------------------------------------------------------------

// Let go the lanes of a warp that wait at one place. Where lanes wait at several, those earliest in the source go first,
// so that lanes still in a loop come out of it before the others pass on: what a GPU does by reconvergence.
static void hgcpu_release_warp(hgcpu_warp* warp) {
  uint32_t site = UINT32_MAX;
  for (uint64_t left = warp->at_warp; left; left &= left - 1) {
    uint32_t other = warp->sites[__builtin_ctzll(left)];
    if (other < site) site = other;
  }
  uint64_t group = 0;
  for (uint64_t left = warp->at_warp; left; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctzll(left);
    if (warp->sites[lane] == site) group |= 1ull << lane;
  }
  warp->active = group;
  warp->active_votes = warp->votes & group;
  memcpy(warp->active_values, warp->values, sizeof warp->values);
  warp->votes &= ~group;
  warp->at_warp &= ~group;
  warp->ready = group;
}

static hgcpu_fiber* hgcpu_pick(hgcpu_worker* worker) {
  for (;;) {
    hgcpu_warp* warp = &worker->warp[worker->current];
    if (warp->ready) {
      uint32_t lane = (uint32_t)__builtin_ctzll(warp->ready);
      warp->ready &= warp->ready - 1;
      return &worker->fiber[worker->current * 64 + lane];
    }
    if (warp->at_warp) {
      hgcpu_release_warp(warp);
      continue;
    }
    if (worker->current + 1 < worker->warps) {
      // Warps before this one wait at the barrier or are done.
      worker->current++;
      continue;
    }
    if (!worker->alive) return nullptr;
    for (uint32_t n = 0; n < worker->warps; n++) {
      worker->warp[n].ready = worker->warp[n].at_block;
      worker->warp[n].at_block = 0;
    }
    worker->last_arrivals = worker->arrivals;
    worker->last_sum = worker->sum;
    worker->arrivals = worker->sum = 0;
    worker->current = 0;
  }
}

static void hgcpu_fiber_main(hgcpu_fiber* self) {
  hgcpu_worker* worker = self->worker;
  for (;;) {
    worker->body(worker->job, self);
    worker->alive--;
    hgcpu_fiber* other = hgcpu_pick(worker);
    // Comes back here for the next block.
    hgcpu_switch(&self->stack_pointer, other ? other->stack_pointer : worker->main_stack_pointer);
  }
}

static char* hgcpu_stack(hgcpu_worker* worker, uint32_t n) { return worker->stacks + n * kStackStride; }

static void hgcpu_prepare_fiber(hgcpu_worker* worker, uint32_t n) {
  hgcpu_fiber* fiber = &worker->fiber[n];
  char* stack = hgcpu_stack(worker, n);
  fiber->worker = worker;
  fiber->thread = n;
  memcpy(stack, &kCanary, sizeof kCanary);
  fiber->stack_pointer = hgcpu_prepare(stack + kStackBytes, fiber, hgcpu_fiber_main);
}

int hgcpu_run_block(hgcpu_worker* worker, uint32_t threads, hgcpu_body body, void* job) {
  if (threads == 0 || threads > kFibers) return 9;  // hipErrorInvalidConfiguration
  if (!worker->stacks) {
    void* memory = mmap(nullptr, kStackStride * kFibers, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 2;  // hipErrorOutOfMemory
    worker->stacks = (char*)memory;
  }
  worker->body = body;
  worker->job = job;
  worker->threads = threads;
  worker->warps = (threads + 63) / 64;
  worker->alive = threads;
  worker->current = 0;
  worker->status = 0;
  worker->arrivals = worker->sum = 0;
  for (uint32_t n = 0; n < worker->warps; n++) {
    uint32_t lanes = threads - n * 64 < 64 ? threads - n * 64 : 64;
    hgcpu_warp* warp = &worker->warp[n];
    warp->ready = lanes == 64 ? ~0ull : (1ull << lanes) - 1;
    warp->at_warp = warp->at_block = warp->votes = 0;
  }
  for (uint32_t n = threads; n-- && !worker->fiber[n].stack_pointer;) hgcpu_prepare_fiber(worker, n);
  hgcpu_switch(&worker->main_stack_pointer, hgcpu_pick(worker)->stack_pointer);
  if (worker->status) {
    // Its fibers stand somewhere inside the kernel: the next block begins them anew.
    for (uint32_t n = 0; n < kFibers; n++) worker->fiber[n].stack_pointer = nullptr;
    return worker->status;
  }
  for (uint32_t n = 0; n < threads; n++) {
    if (memcmp(hgcpu_stack(worker, n), &kCanary, sizeof kCanary)) {
      fprintf(stderr, "hipgraphdsl: a kernel with barriers needs more than %zu bytes of stack a thread\n", kStackBytes);
      for (uint32_t m = 0; m < kFibers; m++) worker->fiber[m].stack_pointer = nullptr;
      return kLaunchFailure;
    }
  }
  return 0;
}

static void hgcpu_leave(hgcpu_fiber* self) {
  hgcpu_fiber* other = hgcpu_pick(self->worker);
  if (other != self) hgcpu_switch(&self->stack_pointer, other->stack_pointer);
}

void hgcpu_wait_block(hgcpu_fiber* self, uint32_t count) {
  hgcpu_worker* worker = self->worker;
  worker->arrivals++;
  worker->sum += count;
  worker->warp[self->thread / 64].at_block |= 1ull << (self->thread % 64);
  hgcpu_leave(self);
}

hgcpu_warp* hgcpu_wait_warp(hgcpu_fiber* self, uint32_t site, uint64_t value, bool vote) {
  uint32_t lane = self->thread % 64;
  hgcpu_warp* warp = &self->worker->warp[self->thread / 64];
  warp->values[lane] = value;
  warp->sites[lane] = site;
  if (vote) warp->votes |= 1ull << lane;
  warp->at_warp |= 1ull << lane;
  hgcpu_leave(self);
  return warp;
}

void hgcpu_stop(hgcpu_fiber* self, int status) {
  self->worker->status = status;
  void* gone;
  hgcpu_switch(&gone, self->worker->main_stack_pointer);
  __builtin_unreachable();
}

void hgcpu_assert_failed(hgcpu_fiber* self, const char* text, const char* file, int line, const uint32_t* at) {
  fprintf(stderr, "%s:%d: block [%u,%u,%u], thread [%u,%u,%u]: assertion `%s` failed\n", file, line, at[0], at[1], at[2],
          at[3], at[4], at[5], text);
  hgcpu_stop(self, kAssert);
}

void hgcpu_flush() { fflush(stdout); }
