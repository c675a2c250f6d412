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

// Runs blocks of a kernel. The parameters' types are those of the function itself. `calm` kernels never wait (weave.py); `split`
// runs a whole block and does not either (split.py). Blocks of these are one loop on one stack.
template <auto kernel, bool calm, auto split = nullptr, class F = decltype(kernel)>
struct hgcpu_kernel;
template <auto kernel, bool calm, auto split, class... A>
struct hgcpu_kernel<kernel, calm, split, void (*)(A...)> {
  static constexpr uint32_t count = sizeof...(A);
  static constexpr uint32_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  static constexpr bool quick = calm || split != nullptr;
  template <unsigned N>
  using type = typename hgcpu_nth<N, hgcpu_list<A...>>::type;
  struct job {
    void* const* args;
    uint64_t first, last;
  };

  static inline HGCPU_OURS __attribute__((always_inline)) void next_block() {
    if (++blockIdx.x == gridDim.x) {
      blockIdx.x = 0;
      if (++blockIdx.y == gridDim.y) {
        blockIdx.y = 0;
        blockIdx.z++;
      }
    }
  }
  // Blocks whose threads do not wait, where blockIdx.x * blockDim.x + threadIdx.x stays below 2^31: its consecutive values are
  // consecutive addresses, and vector code needs no check for that.
  static inline HGCPU_OURS __attribute__((always_inline)) void blocks(uint64_t first, uint64_t last, A... values) {
    const dim3 block = blockDim;
    if (block.x > 1024) __builtin_unreachable();
    for (; first < last; ++first) {
      if (blockIdx.x * block.x > 0x7fffffffu - 1024u) __builtin_unreachable();
      if constexpr (split != nullptr) {
        split(values...);
      } else {
        for (uint32_t z = 0; z < block.z; ++z) {
          for (uint32_t y = 0; y < block.y; ++y) {
            threadIdx.y = y;
            threadIdx.z = z;
            HGCPU_ROW
            for (uint32_t x = 0; x < block.x; ++x) {
              threadIdx.x = x;
              HGCPU_TELL((z * block.y + y) * block.x + x);
              kernel(values...);
            }
          }
        }
      }
      next_block();
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
  static inline HGCPU_OURS __attribute__((always_inline)) void with(const job* todo, hgcpu_indices<N...>) {
    if constexpr (quick) {
      if (todo->first < todo->last) return blocks(todo->first, todo->last, *(const type<N>*)todo->args[N]...);
    }
    threads(*(const type<N>*)todo->args[N]...);
  }
  static HGCPU_OURS void body(void* todo) { with((const job*)todo, hgcpu_make_indices<sizeof...(A)>()); }
  static HGCPU_OURS int entry(const hgcpu_launch* launch, void* const* args, uint64_t first, uint64_t last) {
    hgcpu_mine = launch->worker();
    if (!hgcpu_mine) return 2;  // hipErrorOutOfMemory
#if HGCPU_DYNAMIC
    if (launch->shared_bytes > HGCPU_DYNAMIC) return 1;  // hipErrorInvalidValue
#endif
    gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
    blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
    const uint32_t end = blockDim.x * blockDim.y * blockDim.z;
    int status = 0;
    blockIdx = dim3(0, 0, 0);
    if (first) {
      blockIdx.x = uint32_t(first % gridDim.x);
      blockIdx.y = uint32_t(first / gridDim.x % gridDim.y);
      blockIdx.z = uint32_t(first / gridDim.x / gridDim.y);
    }
    if (quick && (uint64_t)gridDim.x * blockDim.x <= 0x7fffffffu - 1024u) {
      job todo = {args, first, last};
      if (first < last) status = hgcpu_mine->calls->run(hgcpu_mine, end, warpSize, body, &todo);
    } else {
      for (job todo = {args, 0, 0}; first < last && !status; ++first) {
        status = hgcpu_mine->calls->run(hgcpu_mine, end, warpSize, body, &todo);
        next_block();
      }
    }
#if HGCPU_PRINTS
    hgcpu_mine->calls->flush();
#endif
    return status;
  }
};
#if HGCPU_SANITIZE
#include "instrumented.h"
#endif
