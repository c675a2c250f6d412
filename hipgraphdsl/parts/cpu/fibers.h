// What a kernel library and the runtime agree on: launches, the table of a library, and threads of a block that wait.
//
// A thread of a block runs on a fiber: a stack of its own on the operating system's thread (the worker) that runs the block.
// A fiber goes on to the next thread of the block for as long as threads end without waiting, so a kernel without barriers is
// one loop on one stack. Fibers of a block never change their worker: thread-local addresses stay valid across a wait.
#ifndef HGCPU_FIBERS_H
#define HGCPU_FIBERS_H

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct hgcpu_worker;

struct hgcpu_fiber {
  void* stack_pointer;
  hgcpu_fiber* next;  // in the list of those that run no thread
  // Where the thread stands: `path` holds what encloses it, from outside inwards, as numbers that grow in program order (calls
  // as statement << 32 | calls before it in the statement, loops as statement << 32 | half turns), `leaf` the place inside.
  uint64_t leaf;
  uint64_t* path;
  uint32_t depth, room;
  // The warp operation that the thread waits in. `mask` is 0 for one without a mask.
  uint64_t place, mask, value;
  uint32_t kind, vote;
  uint32_t thread;  // that it runs, where the library tells (instrumented.h)
};

// Lanes of a warp as bit masks. A lane that runs, or has ended, is in none of `ready`, `at_warp` and `at_block`.
struct hgcpu_warp {
  uint64_t ready, at_warp, at_block;
  // What the lanes that were let go together read.
  uint64_t active, votes;
  uint64_t values[64];
};

struct hgcpu_calls {
  // Run one block; `body` runs threads from `started` on until one of them has waited. Returns 0 or a hipError_t.
  int (*run)(hgcpu_worker* worker, uint32_t threads, uint32_t warp_size, void (*body)(void* job), void* job);
  // __syncthreads and its kin: wait until every thread of the block that has not ended has come here.
  void (*wait_block)(hgcpu_worker* worker, uint32_t thread, uint32_t count);
  // A warp operation; the fiber's place, mask, value, kind and vote are set.
  hgcpu_warp* (*wait_warp)(hgcpu_worker* worker, uint32_t thread);
  // End the launch with an error; does not return.
  void (*stop)(hgcpu_worker* worker, int status);
  void (*grow)(hgcpu_fiber* fiber);  // make room in `path`
  // Say which assertion of which block and thread failed.
  void (*failed)(const char* text, const char* file, int line, const uint32_t* block, const uint32_t* thread);
  void (*flush)(void);               // what printf wrote
  // What libraries that are compiled for the sanitizer tell before they do it; `returns` is where the code goes on.
  void (*access)(hgcpu_worker* worker, const void* address, uint64_t bytes, uint32_t how, const void* returns);
  void (*copy)(hgcpu_worker* worker, void* to, const void* from, uint64_t bytes, const void* returns);
  void (*fence)(hgcpu_worker* worker);
  void (*divided)(hgcpu_worker* worker, const void* returns);  // by zero
  void (*index)(hgcpu_worker* worker, const char* type, int64_t index, const void* returns);  // beyond an array of this type
  void (*overrun)(hgcpu_worker* worker, const void* returns);  // the memory behind local variables was written
  void (*barrier)(hgcpu_worker* worker, uint32_t line);
};
// How a library tells of most loads and stores, where the blocks of a launch run one by one.
struct hgcpu_watch {
  hgcpu_worker* worker;
  const char* own;  // variables that nobody has to judge: threadIdx and the like
  uint64_t own_bytes;
  void (*quick[2][5])(hgcpu_watch* watch, const void* address, const void* returns);  // by whether it writes, and log2 of its bytes
};
enum hgcpu_how : uint32_t { hgcpu_reads = 1, hgcpu_writes = 2, hgcpu_atomic = 4, hgcpu_volatile = 8 };

struct hgcpu_worker {
  const struct hgcpu_calls* calls;
  hgcpu_fiber* self;                 // the fiber that runs
  uint32_t started;                  // threads of the block that have begun, as far as a wait has told
  uint32_t last_arrivals, last_sum;  // at the barrier passed last
};

struct hgcpu_launch {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  uint32_t cooperative;
  hgcpu_worker* (*worker)(void);  // the calling thread's; null if there is no memory
};
// Whether gridDim.x * blockDim.x leaves room for a block below 2^31.
static inline bool hgcpu_small(const hgcpu_launch* launch) {
  return (uint64_t)launch->grid[0] * launch->block[0] <= 0x7fffffffu - 1024u;
}
// Runs blocks [first, last) in linear order, x fastest; returns 0 or a hipError_t.
typedef int (*hgcpu_entry)(const hgcpu_launch* launch, void* const* args, uint64_t first_block, uint64_t last_block);

// Version of what follows; ABI_VERSION of compiler.py is the same.
enum : uint32_t { hgcpu_abi = 4 };

// Where a parameter stands in a buffer of packed arguments, which is laid out like a struct with the parameters as members.
struct hgcpu_param_info {
  uint32_t offset, bytes;
};
struct hgcpu_kernel_info {
  const char* name;
  hgcpu_entry entry;
  uint32_t n_params;
  uint32_t alignment;  // of that struct
  const hgcpu_param_info* params;
  // Null where threads may wait. Does the same for a small grid, on the caller's stack, which a failing kernel leaves without
  // returning.
  hgcpu_entry direct;
};
struct hgcpu_symbol_info {
  const char* name;
  void* address;
  uint64_t bytes;
};
struct hgcpu_module_info {
  uint32_t abi;
  uint32_t n_kernels;
  const hgcpu_kernel_info* kernels;
  uint32_t n_symbols;
  const hgcpu_symbol_info* symbols;
};

}  // extern "C"

#endif
