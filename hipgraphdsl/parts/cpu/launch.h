// How the blocks of a kernel run: included after the user's source.
#pragma GCC system_header

#if HGCPU_DYNAMIC
extern "C" {
__attribute__((visibility("hidden"), aligned(128))) __thread char hgcpu_dynamic[HGCPU_DYNAMIC];
}
#endif

// For the sanitizer; the compiler may keep threadIdx in registers.
#if HGCPU_SANITIZE
#define HGCPU_TELL(n) (*(volatile uint32_t*)&hgcpu_mine->self->thread = (n))
#if defined(__clang__)
#define HGCPU_OURS __attribute__((disable_sanitizer_instrumentation))
#else
#define HGCPU_OURS __attribute__((no_sanitize("thread")))
#endif
#else
#define HGCPU_TELL(n) ((void)0)
#define HGCPU_OURS
#endif

template <class... Types>
struct hgcpu_list;
template <unsigned N, class List>
struct hgcpu_nth;
template <unsigned N, class First, class... Rest>
struct hgcpu_nth<N, hgcpu_list<First, Rest...>> : hgcpu_nth<N - 1, hgcpu_list<Rest...>> {};
template <class First, class... Rest>
struct hgcpu_nth<0, hgcpu_list<First, Rest...>> : hgcpu_plain<First> {};

template <class... A>
static HGCPU_OURS __attribute__((noinline)) void hgcpu_alone(void (*kernel)(A...), A... values) {
  kernel(values...);
}
// A kernel among functions of its name: the one that returns nothing.
template <class... A>
constexpr auto hgcpu_pick(void (*kernel)(A...)) {
  return kernel;
}

// How arguments are packed: like a struct with the parameters as members.
template <class... A>
struct hgcpu_packing {
  hgcpu_param_info params[sizeof...(A) + 1] = {};
  uint32_t alignment = 1;
  constexpr hgcpu_packing() {
    uint32_t n = 0, end = 0;
    (add(n++, end, sizeof(A), alignof(A)), ...);
  }
  constexpr void add(uint32_t n, uint32_t& end, uint32_t bytes, uint32_t align) {
    if (alignment < align) alignment = align;
    params[n] = {(end + align - 1) / align * align, bytes};
    end = params[n].offset + bytes;
  }
};

// Runs blocks of a kernel. The parameters' types are those of the function itself. `calm` kernels never wait (weave.py);
// `split` runs a whole block and does not wait either (split.py). Blocks of these are one loop.
template <auto kernel, bool calm, auto split = nullptr, class F = decltype(kernel)>
struct hgcpu_kernel;
template <auto kernel, bool calm, auto split, class... A>
struct hgcpu_kernel<kernel, calm, split, void (*)(A...)> {
  static constexpr uint32_t count = sizeof...(A);
  static constexpr hgcpu_packing<A...> packed = {};
  static constexpr bool quick = calm || split != nullptr;
  template <unsigned N>
  using type = typename hgcpu_nth<N, hgcpu_list<A...>>::type;
  struct job {
    const hgcpu_launch* launch;
    void* const* args;
    uint64_t first, last;
  };

  static inline HGCPU_OURS __attribute__((always_inline)) void next_block(dim3& at, const dim3& grid) {
    if (++at.x == grid.x) {
      at.x = 0;
      if (++at.y == grid.y) {
        at.y = 0;
        at.z++;
      }
    }
  }
  static inline HGCPU_OURS __attribute__((always_inline)) dim3 block_at(const hgcpu_launch* launch, uint64_t n) {
    if (!n) return dim3(0, 0, 0);
    const uint32_t x = launch->grid[0], y = launch->grid[1];
    return dim3(uint32_t(n % x), uint32_t(n / x % y), uint32_t(n / x / y));
  }
  static inline HGCPU_OURS __attribute__((always_inline)) void place(const dim3& grid, const dim3& block, const dim3& at) {
    gridDim = grid;
    blockDim = block;
    blockIdx = at;
  }
  // Blocks whose threads do not wait, where blockIdx.x * blockDim.x + threadIdx.x stays below 2^31: its consecutive values are
  // consecutive addresses, and vector code needs no check for that.
  static inline HGCPU_OURS __attribute__((always_inline)) void blocks(const job& todo, A... values) {
    const dim3 grid(todo.launch->grid[0], todo.launch->grid[1], todo.launch->grid[2]);
    const dim3 block(todo.launch->block[0], todo.launch->block[1], todo.launch->block[2]);
    if (block.x > 1024) __builtin_unreachable();
    dim3 at = block_at(todo.launch, todo.first);
    for (uint64_t n = todo.first; n < todo.last; ++n, next_block(at, grid)) {
      place(grid, block, at);
      if constexpr (split != nullptr) {
        split(values...);
      } else {
        for (uint32_t z = 0; z < block.z; ++z) {
          for (uint32_t y = 0; y < block.y; ++y) {
            threadIdx.y = y;
            threadIdx.z = z;
#if defined(__clang__)  // g++ makes no use of it, and keeps all stores of what it reads
            if (blockIdx.x * blockDim.x > 0x7fffffffu - 1024u) __builtin_unreachable();
#endif
            HGCPU_ROW
            for (uint32_t x = 0; x < block.x; ++x) {
              threadIdx.x = x;
              HGCPU_TELL((z * block.y + y) * block.x + x);
              kernel(values...);
            }
          }
        }
      }
      // Nobody reads what the last thread had, so the compiler need not store it.
      threadIdx = dim3(0, 0, 0);
      place(dim3(0, 0, 0), dim3(0, 0, 0), dim3(0, 0, 0));
    }
  }
  // Threads of a block from the first that has not begun on, until one of them has waited.
  static inline HGCPU_OURS __attribute__((always_inline)) void threads(A... values) {
    const dim3 block = blockDim;
    const uint32_t from = hgcpu_mine->started, end = block.x * block.y * block.z;
    uint32_t x = 0, y = 0, z = 0;
    if (from) x = from % block.x, y = from / block.x % block.y, z = from / block.x / block.y;
    hgcpu_waited = false;
    for (; z < block.z; ++z, y = 0) {
      for (; y < block.y; ++y, x = 0) {
        threadIdx.y = y;
        threadIdx.z = z;
        for (; x < block.x; ++x) {
          threadIdx.x = x;
          HGCPU_TELL((z * block.y + y) * block.x + x);
          if constexpr (quick) {
            hgcpu_alone(kernel, values...);
          } else {
            kernel(values...);
          }
          if (hgcpu_waited) return;
        }
      }
    }
    hgcpu_mine->started = end;
  }
  template <unsigned... N>
  static inline HGCPU_OURS __attribute__((always_inline)) void with_blocks(const job& todo, hgcpu_indices<N...>) {
    blocks(todo, *(const type<N>*)todo.args[N]...);
  }
  template <unsigned... N>
  static inline HGCPU_OURS __attribute__((always_inline)) void with_threads(const job& todo, hgcpu_indices<N...>) {
    threads(*(const type<N>*)todo.args[N]...);
  }
  // For the runtime, which calls it where a kernel may be left: inside of block_guard, and for small grids only. Not inline, so that
  // a kernel is compiled once for it and run_direct.
  static HGCPU_OURS __attribute__((noinline)) int direct(const hgcpu_launch* launch, void* const* args, uint64_t first, uint64_t last) {
#if HGCPU_DYNAMIC
    if (launch->shared_bytes > HGCPU_DYNAMIC) return 1;  // hipErrorInvalidValue
#endif
    if (hgcpu_find_worker != launch->worker) hgcpu_find_worker = launch->worker;
    with_blocks({launch, args, first, last}, hgcpu_make_indices<sizeof...(A)>());
#if HGCPU_PRINTS
    launch->worker()->calls->flush();
#endif
    return 0;
  }
  static constexpr hgcpu_entry direct_entry() {
    if constexpr (quick) return direct;
    return nullptr;
  }
  static HGCPU_OURS void run_direct(void* object) {
    const job* todo = (const job*)object;
    direct(todo->launch, todo->args, todo->first, todo->last);
  }
  static HGCPU_OURS void run_threads(void* object) { with_threads(*(const job*)object, hgcpu_make_indices<sizeof...(A)>()); }
  static HGCPU_OURS int entry(const hgcpu_launch* launch, void* const* args, uint64_t first, uint64_t last) {
    hgcpu_worker* const worker = hgcpu_mine = launch->worker();
    hgcpu_find_worker = launch->worker;
    if (!worker) return 2;  // hipErrorOutOfMemory
#if HGCPU_DYNAMIC
    if (launch->shared_bytes > HGCPU_DYNAMIC) return 1;  // hipErrorInvalidValue
#endif
    const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    job todo = {launch, args, first, last};
    if constexpr (quick) {
      if (hgcpu_small(launch)) return worker->calls->run(worker, threads, warpSize, run_direct, &todo);
    }
    int status = 0;
    const dim3 grid(launch->grid[0], launch->grid[1], launch->grid[2]);
    dim3 at = block_at(launch, first);
    for (; first < last && !status; ++first) {
      place(grid, dim3(launch->block[0], launch->block[1], launch->block[2]), at);
      status = worker->calls->run(worker, threads, warpSize, run_threads, &todo);
      next_block(at, grid);
    }
#if HGCPU_PRINTS
    worker->calls->flush();
#endif
    return status;
  }
};
#if HGCPU_SANITIZE
#include "instrumented.h"
#endif
