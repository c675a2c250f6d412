// Threads of a block that wait for each other: one fiber each, all on the operating system's thread that runs the block.
// device.h (what a kernel sees) and fibers.cpp (which runs them) agree on what stands here.
#ifndef HGCPU_FIBERS_H
#define HGCPU_FIBERS_H

#include <stddef.h>
#include <stdint.h>

struct hgcpu_worker;

struct hgcpu_fiber {
  void* stack_pointer;
  hgcpu_worker* worker;
  uint32_t thread;  // linear index in the block; lane = thread % 64, warp = thread / 64
};

// Lanes of a warp as bit masks. A lane that runs is in none of `ready`, `at_warp` and `at_block`.
struct hgcpu_warp {
  uint64_t ready;
  uint64_t at_warp;
  uint64_t at_block;
  // What lanes brought to the warp operation that they wait in.
  uint64_t votes;
  uint64_t values[64];
  uint32_t sites[64];
  // What the lanes that were let go together read: a copy, because the first of them may be at its next operation before
  // the last has read this one.
  uint64_t active;
  uint64_t active_votes;
  uint64_t active_values[64];
};

typedef void (*hgcpu_body)(void* job, hgcpu_fiber* self);

struct hgcpu_worker {
  hgcpu_body body;
  void* job;
  uint32_t threads;
  uint32_t warps;
  uint32_t current;  // warp whose lanes run
  uint32_t alive;
  int status;
  uint32_t arrivals, sum;                // at the barrier now filling
  uint32_t last_arrivals, last_sum;      // at the barrier passed last
  void* main_stack_pointer;
  char* dynamic;  // dynamic shared memory
  size_t dynamic_bytes;
  char* stacks;
  hgcpu_worker* next;
  hgcpu_worker** previous;
  hgcpu_warp warp[16];
  hgcpu_fiber fiber[1024];
};

// The calling thread's worker, made on first use; null if there is no memory.
hgcpu_worker* hgcpu_this_worker(size_t dynamic_bytes);
// Run one block of `threads` threads; return 0, or the error that stopped it.
int hgcpu_run_block(hgcpu_worker* worker, uint32_t threads, hgcpu_body body, void* job);
// __syncthreads and its kin: wait until every thread of the block that has not returned has come here.
void hgcpu_wait_block(hgcpu_fiber* self, uint32_t count);
// A warp operation: wait until no lane of the warp can run on, then go on with those that wait at the same place.
hgcpu_warp* hgcpu_wait_warp(hgcpu_fiber* self, uint32_t site, uint64_t value, bool vote);
// End the launch with an error; does not return. `self` is null outside of fibers.
[[noreturn]] void hgcpu_stop(hgcpu_fiber* self, int status);
[[noreturn]] void hgcpu_assert_failed(hgcpu_fiber* self, const char* text, const char* file, int line, const uint32_t* at);
void hgcpu_flush();

#endif
