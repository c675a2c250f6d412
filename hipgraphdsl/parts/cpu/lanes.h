// Warp operations of all warps of a block at once, for kernels that are split at them (split.py): what the threads bring and get
// are arrays over the threads, or one value where it is the same for all. Threads of `off`, if that is given, do not take part.

template <class T>
struct hgcpu_each {
  static constexpr bool is = false;
};
template <class T>
struct hgcpu_each<T*> {
  static constexpr bool is = true;
};
template <class T>
HGCPU_INLINE T hgcpu_of(T one, uint32_t) {
  return one;
}
template <class T>
HGCPU_INLINE T hgcpu_of(T* each, uint32_t thread) {
  return each[thread];
}
// The warps in which some thread is not left out and, 32 bits above, those in which none is left out.
HGCPU_INLINE uint64_t hgcpu_some(const bool* off, const dim3& block) {
  uint64_t some = 0;
  const uint32_t threads = block.x * block.y * block.z;
  for (uint32_t first = 0; first < threads; first += HGCPU_WARP_SIZE) {
    const uint32_t lanes = threads - first < HGCPU_WARP_SIZE ? threads - first : HGCPU_WARP_SIZE;
    uint32_t left_out = 0;
    if (lanes == HGCPU_WARP_SIZE) {  // a constant number of them becomes vector code
      for (uint32_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) left_out += off[first + lane];
    } else {
      for (uint32_t lane = 0; lane < lanes; ++lane) left_out += off[first + lane];
    }
    some |= (uint64_t)(left_out < lanes) << first / HGCPU_WARP_SIZE;
#if !defined(__clang__)  // with clang the second loop gained nothing
    some |= (uint64_t)!left_out << 32 << first / HGCPU_WARP_SIZE;
#endif
  }
  return some;
}
// The threads that leave out a branch because they leave out what is around it.
HGCPU_INLINE void hgcpu_leave_out(bool* off, const bool* around, const dim3& block) {
  __builtin_memcpy(off, around, block.x * block.y * block.z);
}

// Lanes [begin, end) of a whole warp read from the lane that is `by` behind theirs, the others their own. The arrays have room for
// a warp on both sides, so that all lanes may load.
static constexpr struct hgcpu_numbers {
  uint32_t of[HGCPU_WARP_SIZE] = {};
  constexpr hgcpu_numbers() {
    for (uint32_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) of[lane] = lane;
  }
} hgcpu_ids;
template <class T>
HGCPU_INLINE void hgcpu_shift(T* to, const T* values, const bool* off, uint32_t begin, uint32_t end, ptrdiff_t by) {
  HGCPU_LANES
  for (size_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) {
    const T own = values[lane], other = values[(ptrdiff_t)lane + by];
    to[lane] = (hgcpu_ids.of[lane] - begin >= end - begin) | (off && off[(ptrdiff_t)lane + by]) ? own : other;
  }
}
// An operation is what one warp does, whose threads begin at `first`; `checks` is false where none of them is in `off`.
enum hgcpu_shuffles { hgcpu_any_lane, hgcpu_lane_above, hgcpu_lane_below };
template <hgcpu_shuffles kind, class F, class T, class V, class W, class D>
HGCPU_INLINE auto hgcpu_shuffle(F from, T* to, V values, W which, D width, const bool* left_out) {
  return [=](size_t first, uint32_t lanes, const bool checks) __attribute__((always_inline)) {
    const bool* const off = checks ? left_out : nullptr;
    if constexpr (kind != hgcpu_any_lane && hgcpu_each<V>::is && !hgcpu_each<W>::is && !hgcpu_each<D>::is) {
      if (lanes == HGCPU_WARP_SIZE && width == HGCPU_WARP_SIZE && which < HGCPU_WARP_SIZE) {
        const uint32_t begin = kind == hgcpu_lane_below ? which : 0, end = HGCPU_WARP_SIZE - (kind == hgcpu_lane_above ? which : 0);
        const ptrdiff_t by = kind == hgcpu_lane_above ? (ptrdiff_t)which : -(ptrdiff_t)which;
        return hgcpu_shift(to + first, values + first, off ? off + first : off, begin, end, by);
      }
    }
    HGCPU_ROW
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const uint32_t other = from(lane, hgcpu_of(which, first + lane), hgcpu_of(width, first + lane));
      const bool there = other < lanes && !(off && off[first + other]);
      to[first + lane] = hgcpu_of(values, first + (there ? other : lane));
    }
  };
}
template <class F, class T, class P>
HGCPU_INLINE auto hgcpu_vote(F result, T* to, P predicate, const bool* off) {
  return [=](size_t first, uint32_t lanes, bool) __attribute__((always_inline)) {
    uint64_t active = 0, votes = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      active |= (uint64_t)!(off && off[first + lane]) << lane;
      votes |= (uint64_t)(hgcpu_of(predicate, first + lane) != 0) << lane;
    }
    const T one = (T)result(votes & active, active);
    for (uint32_t lane = 0; lane < lanes; ++lane) to[first + lane] = one;
  };
}
template <class F>
HGCPU_INLINE void hgcpu_operate(const dim3& n, uint64_t on, const F& operation) {
  const size_t threads = (size_t)n.x * n.y * n.z;
  for (size_t first = 0; first < threads; first += HGCPU_WARP_SIZE) {
    const uint32_t lanes = threads - first < HGCPU_WARP_SIZE ? threads - first : HGCPU_WARP_SIZE;
    const int64_t here = (int64_t)on >> first / HGCPU_WARP_SIZE;
    if (here >> 32 & 1) {
      operation(first, lanes, false);
    } else if (here & 1) {
      operation(first, lanes, true);
    }
  }
}

// `hgcpu_op...` is what the syntax tree has in place of an operation (warps.py).
#define HGCPU_OPERATION(name, kind, type)                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name(T& to, A... more);                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name##_sync(T& to, A... more);                                                                        \
  template <class T, class V, class W, class D>                                                                        \
  HGCPU_INLINE auto hgcpu_lanes##name(T* to, V values, W which, D width, const bool* off) {         \
    const auto from = [](unsigned self, type which, int width) { return hgcpu##name##_from(self, which, width); };     \
    return hgcpu_shuffle<kind>(from, to, values, which, width, off);                                                   \
  }                                                                                                                    \
  template <class T, class V, class W, class D>                                                                        \
  HGCPU_INLINE auto hgcpu_lanes##name##_sync(T* to, uint64_t, V values, W which, D width, const bool* off) { \
    return hgcpu_lanes##name(to, values, which, width, off);                                                           \
  }
HGCPU_OPERATION(__shfl, hgcpu_any_lane, int)
HGCPU_OPERATION(__shfl_up, hgcpu_lane_below, unsigned)
HGCPU_OPERATION(__shfl_down, hgcpu_lane_above, unsigned)
HGCPU_OPERATION(__shfl_xor, hgcpu_any_lane, int)
#undef HGCPU_OPERATION
#define HGCPU_OPERATION(name, result, result_sync)                                                                      \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name(T& to, A... more);                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name##_sync(T& to, A... more);                                                                        \
  template <class T, class P>                                                                                          \
  HGCPU_INLINE auto hgcpu_lanes##name(T* to, P predicate, const bool* off) {                        \
    return hgcpu_vote([](uint64_t votes, uint64_t active) { return (void)active, result; }, to, predicate, off);       \
  }                                                                                                                    \
  template <class T, class P>                                                                                          \
  HGCPU_INLINE auto hgcpu_lanes##name##_sync(T* to, uint64_t mask, P predicate, const bool* off) {  \
    return hgcpu_vote([=](uint64_t votes, uint64_t) { return result_sync; }, to, predicate, off);                      \
  }
HGCPU_OPERATION(__ballot, votes, votes & mask)
HGCPU_OPERATION(__any, votes != 0, (votes & mask) != 0)
HGCPU_OPERATION(__all, votes == active, (votes & mask) == (mask & hgcpu_all_lanes))
#undef HGCPU_OPERATION
template <class T>
void hgcpu_op__activemask(T& to);
template <class T>
HGCPU_INLINE auto hgcpu_lanes__activemask(T* to, const bool* off) {
  return hgcpu_vote([](uint64_t, uint64_t active) { return active; }, to, 0, off);
}
void hgcpu_op__syncwarp(uint64_t mask);
HGCPU_INLINE auto hgcpu_lanes__syncwarp(uint64_t, const bool*) {
  return [](size_t, uint32_t, bool) {};
}
