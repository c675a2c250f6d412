// Compiles HIP kernels for the host: what their source expects of the device, and the loop over blocks and threads.
//
// Threads of a block that meet at barriers or exchange values within a wave are fibers, resumed in turn. Sources without
// either run as plain loops (STANDIN_FIBERS is 0). One kernel runs at a time, so the indices are plain variables.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define STANDIN_VARIABLE __attribute__((visibility("hidden"))) inline

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

STANDIN_VARIABLE dim3 threadIdx, blockIdx, blockDim, gridDim;
STANDIN_VARIABLE int warpSize;

// ---- vector types --------------------------------------------------------------------------------------------------
#define STANDIN_VECTORS(element, name)                                                                               \
  using name##_t_ = element;                                                                                         \
  struct name##1 { name##_t_ x; };                                                                                   \
  struct alignas(2 * sizeof(element)) name##2 { name##_t_ x, y; };                                                   \
  struct name##3 { name##_t_ x, y, z; };                                                                             \
  struct alignas(4 * sizeof(element)) name##4 { name##_t_ x, y, z, w; };                                             \
  inline name##1 make_##name##1(element x) { return {x}; }                                                           \
  inline name##2 make_##name##2(element x, element y) { return {x, y}; }                                             \
  inline name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; }                               \
  inline name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }                 \
  inline name##2 operator+(name##2 a, name##2 b) { return {name##_t_(a.x + b.x), name##_t_(a.y + b.y)}; }            \
  inline name##2 operator-(name##2 a, name##2 b) { return {name##_t_(a.x - b.x), name##_t_(a.y - b.y)}; }            \
  inline name##2 operator*(name##2 a, name##2 b) { return {name##_t_(a.x * b.x), name##_t_(a.y * b.y)}; }            \
  inline name##4 operator+(name##4 a, name##4 b) {                                                                   \
    return {name##_t_(a.x + b.x), name##_t_(a.y + b.y), name##_t_(a.z + b.z), name##_t_(a.w + b.w)};                 \
  }                                                                                                                  \
  inline name##4 operator*(name##4 a, name##4 b) {                                                                   \
    return {name##_t_(a.x * b.x), name##_t_(a.y * b.y), name##_t_(a.z * b.z), name##_t_(a.w * b.w)};                 \
  }
STANDIN_VECTORS(signed char, char)
STANDIN_VECTORS(unsigned char, uchar)
STANDIN_VECTORS(short, short)
STANDIN_VECTORS(unsigned short, ushort)
STANDIN_VECTORS(int, int)
STANDIN_VECTORS(unsigned, uint)
STANDIN_VECTORS(long, long)
STANDIN_VECTORS(unsigned long, ulong)
STANDIN_VECTORS(long long, longlong)
STANDIN_VECTORS(unsigned long long, ulonglong)
STANDIN_VECTORS(float, float)
STANDIN_VECTORS(double, double)

// ---- arithmetic ----------------------------------------------------------------------------------------------------
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) { return b < a ? b : a; }
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return std::clamp(x, 0.0f, 1.0f); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __int_as_float(int x) { float y; std::memcpy(&y, &x, 4); return y; }
inline int __float_as_int(float x) { int y; std::memcpy(&y, &x, 4); return y; }
inline unsigned __float_as_uint(float x) { return unsigned(__float_as_int(x)); }
inline float __uint_as_float(unsigned x) { return __int_as_float(int(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __mul24(int x, int y) { return x * y; }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
inline long long clock64() { return __builtin_ia32_rdtsc(); }
inline long long wall_clock64() { return __builtin_ia32_rdtsc(); }

// ---- memory order and atomics: one kernel runs at a time, but the host looks on --------------------------------------
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

namespace standin {
template <class T, class F>
T exchange_with(T* address, F change) {
  const T old = *address;
  *address = change(old);
  return old;
}
}  // namespace standin

#define STANDIN_ATOMIC(name, expression)                                               \
  template <class T>                                                                   \
  T name(T* address, std::type_identity_t<T> value) {                                  \
    return standin::exchange_with(address, [&](T old) { return T(expression); });      \
  }                                                                                    \
  template <class T>                                                                   \
  T name##_system(T* address, std::type_identity_t<T> value) { return name(address, value); }
STANDIN_ATOMIC(atomicAdd, old + value)
STANDIN_ATOMIC(atomicSub, old - value)
STANDIN_ATOMIC(atomicMin, value < old ? value : old)
STANDIN_ATOMIC(atomicMax, old < value ? value : old)
STANDIN_ATOMIC(atomicAnd, old & value)
STANDIN_ATOMIC(atomicOr, old | value)
STANDIN_ATOMIC(atomicXor, old ^ value)
STANDIN_ATOMIC(atomicExch, value)
STANDIN_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
STANDIN_ATOMIC(atomicDec, (old == 0 || old > value) ? value : T(old - 1))
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compared, std::type_identity_t<T> value) {
  return standin::exchange_with(address, [&](T old) { return old == compared ? value : old; });
}

// ---- launching -----------------------------------------------------------------------------------------------------
namespace standin {

struct Launch {
  unsigned blocks[3];
  unsigned threads[3];
  unsigned wave_size;
};

constexpr size_t kDynamicSharedBytes = 65536;
alignas(64) STANDIN_VARIABLE char dynamic_shared[kDynamicSharedBytes];

struct Barrier {
  unsigned waiting = 0;
  unsigned generation = 0;
};

struct Wave {
  Barrier barrier;
  unsigned live = 0;
  uint64_t present = 0;  // lanes that take part in the exchange under way
  alignas(16) char slots[64][16];
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  dim3 index;
  Wave* wave = nullptr;
  unsigned lane = 0;
  bool finished = false;
};

constexpr size_t kStackBytes = 64 << 10;

STANDIN_VARIABLE ucontext_t scheduler;
STANDIN_VARIABLE Fiber* current;
STANDIN_VARIABLE std::function<void()>* body;
STANDIN_VARIABLE Barrier block_barrier;
STANDIN_VARIABLE unsigned block_live, steps;

inline void yield() { swapcontext(&current->context, &scheduler); }

inline void release(Barrier& barrier) {
  barrier.waiting = 0;
  ++barrier.generation;
  ++steps;
}

inline void meet(Barrier& barrier, const unsigned& live) {
  const unsigned generation = barrier.generation;
  if (++barrier.waiting == live) {
    release(barrier);
  } else {
    while (barrier.generation == generation) yield();
  }
}

inline void leave() {
  // Threads that have returned hold nobody up.
  if (--block_live && block_barrier.waiting == block_live) release(block_barrier);
  Wave& wave = *current->wave;
  if (--wave.live && wave.barrier.waiting == wave.live) release(wave.barrier);
  current->finished = true;
  ++steps;
}

inline void enter() {
  (*body)();
  leave();
  swapcontext(&current->context, &scheduler);
}

inline void run_block(std::vector<Fiber>& fibers, std::vector<Wave>& waves) {
  for (Wave& wave : waves) wave = Wave{};
  block_barrier = {};
  block_live = unsigned(fibers.size());
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
    fiber.finished = false;
    fiber.index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    fiber.wave = &waves[i / unsigned(warpSize)];
    fiber.lane = unsigned(i % unsigned(warpSize));
    ++fiber.wave->live;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  while (block_live) {
    const unsigned before = steps;
    for (Fiber& fiber : fibers) {
      if (fiber.finished) continue;
      current = &fiber;
      threadIdx = fiber.index;
      swapcontext(&scheduler, &fiber.context);
    }
    if (steps != before) continue;
    // Nobody moved: the lanes that are not in the exchange took another branch, so it happens without them.
    bool released = false;
    for (Wave& wave : waves) {
      if (wave.barrier.waiting) {
        release(wave.barrier);
        released = true;
      }
    }
    if (!released) {
      std::fprintf(stderr, "[stand-in] a kernel's barrier is never reached by all threads of a block\n");
      std::abort();
    }
  }
}

template <class T>
T exchange(T value, unsigned from) {
  static_assert(sizeof(T) <= 16, "only values of up to 16 bytes are exchanged within a wave");
  Wave& wave = *current->wave;
  const unsigned lane = current->lane;
  std::memcpy(wave.slots[lane], &value, sizeof value);
  wave.present |= uint64_t(1) << lane;
  meet(wave.barrier, wave.live);
  if (from < 64 && wave.present >> from & 1) std::memcpy(&value, wave.slots[from], sizeof value);
  meet(wave.barrier, wave.live);
  wave.present &= ~(uint64_t(1) << lane);
  return value;
}

inline uint64_t vote(bool yes) {
  Wave& wave = *current->wave;
  const unsigned lane = current->lane;
  wave.slots[lane][0] = char(yes);
  wave.present |= uint64_t(1) << lane;
  meet(wave.barrier, wave.live);
  uint64_t votes = 0;
  for (unsigned i = 0; i < 64; ++i) {
    if (wave.present >> i & 1 && wave.slots[i][0]) votes |= uint64_t(1) << i;
  }
  meet(wave.barrier, wave.live);
  wave.present &= ~(uint64_t(1) << lane);
  return votes;
}


// Reads an argument from where the device's calling convention puts it.
template <class T>
T argument(const uint8_t* arguments, size_t& offset) {
  offset = (offset + alignof(T) - 1) / alignof(T) * alignof(T);
  T value;
  std::memcpy(&value, arguments + offset, sizeof value);
  offset += sizeof value;
  return value;
}

template <class... Arguments>
void run(void (*kernel)(Arguments...), const uint8_t* arguments, const Launch& launch) {
  size_t offset = 0;
  // Braces: the arguments are read from left to right.
  std::tuple<std::remove_cv_t<Arguments>...> values{argument<std::remove_cv_t<Arguments>>(arguments, offset)...};
  const auto call = [&] { std::apply(kernel, values); };
  blockDim = dim3(launch.threads[0], launch.threads[1], launch.threads[2]);
  gridDim = dim3(launch.blocks[0], launch.blocks[1], launch.blocks[2]);
  warpSize = int(launch.wave_size);
#if STANDIN_FIBERS
  const size_t threads = size_t(blockDim.x) * blockDim.y * blockDim.z;
  static std::vector<Fiber> fibers;
  fibers = std::vector<Fiber>(threads);
  std::vector<Wave> waves((threads + launch.wave_size - 1) / launch.wave_size);
  std::function<void()> function = call;
  body = &function;
#endif
  for (unsigned z = 0; z < gridDim.z; ++z) {
    for (unsigned y = 0; y < gridDim.y; ++y) {
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = dim3(x, y, z);
#if STANDIN_FIBERS
        run_block(fibers, waves);
#else
        for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z) {
          for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y) {
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) call();
          }
        }
#endif
      }
    }
  }
}

}  // namespace standin

// ---- barriers and exchange within a wave -----------------------------------------------------------------------------
inline void __syncthreads() { standin::meet(standin::block_barrier, standin::block_live); }
inline unsigned __lane_id() { return standin::current->lane; }
template <class T>
T __shfl(T value, int from, int width = warpSize) {
  const unsigned group = standin::current->lane & ~unsigned(width - 1);
  return standin::exchange(value, group + (unsigned(from) & unsigned(width - 1)));
}
template <class T>
T __shfl_up(T value, unsigned by, int width = warpSize) {
  const unsigned lane = standin::current->lane, within = lane & unsigned(width - 1);
  return standin::exchange(value, within < by ? lane : lane - by);
}
template <class T>
T __shfl_down(T value, unsigned by, int width = warpSize) {
  const unsigned lane = standin::current->lane, within = lane & unsigned(width - 1);
  return standin::exchange(value, within + by >= unsigned(width) ? lane : lane + by);
}
template <class T>
T __shfl_xor(T value, int mask, int width = warpSize) {
  const unsigned lane = standin::current->lane, from = lane ^ unsigned(mask);
  return standin::exchange(value, (from & ~unsigned(width - 1)) == (lane & ~unsigned(width - 1)) ? from : lane);
}
inline unsigned long long __ballot(int yes) { return standin::vote(yes != 0); }
inline int __any(int yes) { return standin::vote(yes != 0) != 0; }
inline int __all(int yes) {
  const uint64_t here = standin::vote(true);
  return standin::vote(yes != 0) == here;
}
inline unsigned long long __activemask() { return standin::vote(true); }

// Calls `kernel` as the runtime's dispatch asks; `name` is what the stand-in looks up.
#define STANDIN_KERNEL(name, kernel)                                                                                  \
  extern "C" __attribute__((visibility("default"))) void name(const uint8_t* arguments, const standin::Launch* launch) { \
    standin::run(kernel, arguments, *launch);                                                                         \
  }
