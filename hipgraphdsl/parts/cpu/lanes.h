// Warps of a block, one after the other, for kernels that are split at warp operations (split.py). What the lanes bring and get are
// arrays over the lanes, or one value where it is the same for all. Lanes of `off`, if that is given, do not take part.

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
HGCPU_INLINE T hgcpu_of(T* each, uint32_t lane) {
  return each[lane];
}
template <bool is>
struct hgcpu_fact {
  static constexpr bool value = is;
  constexpr operator bool() const { return is; }
};

// A warp whose threads begin at `first`, at (x, y, z). If it is `whole`, all its lanes exist and are in one row.
template <bool is_whole>
struct hgcpu_crew {
  static constexpr bool whole = is_whole;
  const dim3& block;
  size_t first;
  uint32_t x, y, z, count;
  HGCPU_INLINE uint32_t lanes() const { return whole ? HGCPU_WARP_SIZE : count; }
};
// Runs what stands between two barriers, for each warp: the compiler sees all of it for one warp, whose variables are arrays of constant
// length. It is compiled once more for blocks whose rows are not whole warps.
template <class F>
HGCPU_INLINE void hgcpu_warps(const dim3& n, const F& region) {
  const uint32_t threads = n.x * n.y * n.z;
  uint32_t warp = 0, y = 0, z = 0;  // its place in its row, and the row
  if (n.x % HGCPU_WARP_SIZE == 0) {
    for (uint32_t first = 0; first < threads; first += HGCPU_WARP_SIZE) {
      if (warp >= 1024 / HGCPU_WARP_SIZE) __builtin_unreachable();
      region(hgcpu_crew<true>{n, first, warp * HGCPU_WARP_SIZE, y, z, HGCPU_WARP_SIZE});
      if (++warp == n.x / HGCPU_WARP_SIZE) {
        warp = 0;
        if (++y == n.y) y = 0, ++z;
      }
    }
  } else {
    for (uint32_t first = 0; first < threads; first += HGCPU_WARP_SIZE) {
      const uint32_t lanes = threads - first < HGCPU_WARP_SIZE ? threads - first : HGCPU_WARP_SIZE;
      region(hgcpu_crew<false>{n, first, first % n.x, first / n.x % n.y, first / n.x / n.y, lanes});
    }
  }
}
// What stands between warp operations, for each lane. Where a thread has no arrays or structures of its own there (`apart`), the lanes'
// accesses do not depend on each other: see docs/cpu_kernels.md.
template <bool apart, bool whole, class F>
HGCPU_INLINE void hgcpu_lanes(const hgcpu_crew<whole>& warp, const F& part) {
  threadIdx.y = warp.y;
  threadIdx.z = warp.z;
  if constexpr (whole) {
    const auto thread = [&](size_t lane) __attribute__((always_inline)) {
      threadIdx.x = warp.x + (uint32_t)lane;
#if defined(__clang__)  // addresses are consecutive, see launch.h: only if it is said here does no other loop stand beside the vector code
      __builtin_assume((int)(blockIdx.x * blockDim.x + threadIdx.x) < 0x7fffffff);
#endif
      part(warp.first + lane, (uint32_t)lane);
    };
    if constexpr (apart) {
      HGCPU_APART
      for (size_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) thread(lane);
    } else {
      HGCPU_LANES
      for (size_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) thread(lane);
    }
  } else {
    uint32_t x = warp.x;
    for (uint32_t begin = 0; begin < warp.count;) {
      const uint32_t row = warp.block.x - x, left = warp.count - begin, end = begin + (row < left ? row : left);
      HGCPU_ROW
      for (uint32_t lane = begin; lane < end; ++lane) {
        threadIdx.x = x + (lane - begin);
        part(warp.first + lane, lane);
      }
      begin = end;
      x = 0;
      if (++threadIdx.y == warp.block.y) threadIdx.y = 0, ++threadIdx.z;
    }
  }
}
// Whether some lane comes to a statement that depends on its index alone.
template <bool whole, class F>
HGCPU_INLINE bool hgcpu_some(const hgcpu_crew<whole>& warp, const F& condition) {
  uint32_t some = 0;
  hgcpu_lanes<true>(warp, [&](size_t thread, uint32_t lane) __attribute__((always_inline)) { some |= condition(thread, lane); });
  return some;
}
// Runs a branch for the lanes that do not leave it out, without checks where none does. `around`: whether lanes may leave out what is
// around the branch.
template <bool whole, class A, class F>
HGCPU_INLINE void hgcpu_branch(const hgcpu_crew<whole>& warp, A, const bool* off, const F& branch) {
  uint32_t left_out = 0;
  for (uint32_t lane = 0; lane < warp.lanes(); ++lane) left_out += off[lane];
  if constexpr (whole && !A::value) {
    if (!left_out) return branch(hgcpu_fact<false>());
  }
  if (left_out < warp.lanes()) branch(hgcpu_fact<true>());
}
// What a branch works with in place of an array around it. Where lanes leave out the branch it is a copy: the array itself is then only
// copied as a whole, and stays in registers.
template <bool checks, class T>
struct hgcpu_inside {
  typedef T hgcpu_lanes_of[HGCPU_WARP_SIZE];
  hgcpu_lanes_of lanes;
  HGCPU_INLINE hgcpu_lanes_of& of(const hgcpu_lanes_of& outer) {
    __builtin_memcpy(lanes, outer, sizeof lanes);
    return lanes;
  }
  HGCPU_INLINE void back(hgcpu_lanes_of& outer) { __builtin_memcpy(outer, lanes, sizeof lanes); }
};
template <class T>
struct hgcpu_inside<false, T> {
  typedef T hgcpu_lanes_of[HGCPU_WARP_SIZE];
  HGCPU_INLINE hgcpu_lanes_of& of(hgcpu_lanes_of& outer) { return outer; }
  HGCPU_INLINE void back(hgcpu_lanes_of&) {}
};
// The lanes that leave out a branch because they leave out what is around it.
template <bool whole>
HGCPU_INLINE void hgcpu_leave_out(const hgcpu_crew<whole>& warp, bool* off, const bool* around) {
  if (around) __builtin_memcpy(off, around, warp.lanes());
}

// Lanes [begin, end) of a whole warp read from the lane that is `by` behind theirs, the others their own. All lanes load, from copies
// with room for a warp on both sides.
static constexpr struct hgcpu_numbers {
  uint32_t of[HGCPU_WARP_SIZE] = {};
  constexpr hgcpu_numbers() {
    for (uint32_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) of[lane] = lane;
  }
} hgcpu_ids;
template <class T>
HGCPU_INLINE void hgcpu_shift(T* to, const T* values, const bool* off, uint32_t begin, uint32_t end, ptrdiff_t by) {
  T room[3 * HGCPU_WARP_SIZE];
  bool left_out[3 * HGCPU_WARP_SIZE];
  __builtin_memcpy(room + HGCPU_WARP_SIZE, values, HGCPU_WARP_SIZE * sizeof(T));
  if (off) __builtin_memcpy(left_out + HGCPU_WARP_SIZE, off, HGCPU_WARP_SIZE);
  HGCPU_LANES
  for (size_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) {
    const ptrdiff_t from = HGCPU_WARP_SIZE + (ptrdiff_t)lane + by;
    const T own = values[lane], other = room[from];
    to[lane] = (hgcpu_ids.of[lane] - begin >= end - begin) | (off && left_out[from]) ? own : other;
  }
}
// The same by a constant distance, also exclusive or: a permutation of a vector, which leaves the lanes in registers. With g++, which
// takes apart vectors wider than the processor's, the copies above are faster.
#if defined(__clang__)
template <class S, int width, uint32_t which, class T, uint32_t... lane>
HGCPU_INLINE void hgcpu_permute(T* to, const T* values, hgcpu_indices<lane...>) {
  typedef T hgcpu_vector __attribute__((vector_size(sizeof(T) * HGCPU_WARP_SIZE)));
  hgcpu_vector vector;
  __builtin_memcpy(&vector, values, sizeof vector);
  vector = __builtin_shufflevector(vector, vector, (int)S::from(lane, which, width)...);
  __builtin_memcpy(to, &vector, sizeof vector);
}
template <class S, int width, uint32_t which, class T>
HGCPU_INLINE bool hgcpu_permuted(T* to, const T* values, const bool* off) {
  if constexpr (which < width) {
    const auto lanes = hgcpu_make_indices<HGCPU_WARP_SIZE>();
    hgcpu_permute<S, width, which>(to, values, lanes);
    if (off) {
      unsigned char left_out[HGCPU_WARP_SIZE];
      hgcpu_permute<S, width, which>(left_out, (const unsigned char*)off, lanes);
      HGCPU_LANES
      for (uint32_t lane = 0; lane < HGCPU_WARP_SIZE; ++lane) {
        const T own = values[lane], other = to[lane];
        to[lane] = left_out[lane] ? own : other;
      }
    }
  }
  return which < width;
}
#endif
template <class S, int width, class T>
HGCPU_INLINE bool hgcpu_permuted(T* to, const T* values, uint32_t which, const bool* off) {
#if defined(__clang__)
  if constexpr (hgcpu_number<T> && !hgcpu_among<T, bool>) {
    switch (which) {
      case 1: return hgcpu_permuted<S, width, 1>(to, values, off);
      case 2: return hgcpu_permuted<S, width, 2>(to, values, off);
      case 4: return hgcpu_permuted<S, width, 4>(to, values, off);
      case 8: return hgcpu_permuted<S, width, 8>(to, values, off);
      case 16: return hgcpu_permuted<S, width, 16>(to, values, off);
      case 32: return hgcpu_permuted<S, width, 32>(to, values, off);
    }
  }
#endif
  return false;
}
enum hgcpu_shuffles { hgcpu_any_lane, hgcpu_lane_above, hgcpu_lane_below, hgcpu_lane_across };
template <class S, bool whole, class T, class V, class W, class D>
HGCPU_INLINE void hgcpu_shuffle(const hgcpu_crew<whole>& warp, T* to, V values, W which, D width, const bool* off) {
  if constexpr (whole && S::kind != hgcpu_any_lane && hgcpu_each<V>::is && !hgcpu_each<W>::is && !hgcpu_each<D>::is) {
    if (width == HGCPU_WARP_SIZE && hgcpu_permuted<S, HGCPU_WARP_SIZE>(to, values, which, off)) return;
    if (width == 32 && hgcpu_permuted<S, 32>(to, values, which, off)) return;
    if (S::kind != hgcpu_lane_across && width == HGCPU_WARP_SIZE && which < HGCPU_WARP_SIZE) {
      const uint32_t begin = S::kind == hgcpu_lane_below ? which : 0, end = HGCPU_WARP_SIZE - (S::kind == hgcpu_lane_above ? which : 0);
      const ptrdiff_t by = S::kind == hgcpu_lane_above ? (ptrdiff_t)which : -(ptrdiff_t)which;
      return hgcpu_shift(to, values, off, begin, end, by);
    }
  }
  HGCPU_ROW
  for (uint32_t lane = 0; lane < warp.lanes(); ++lane) {
    const uint32_t other = S::from(lane, hgcpu_of(which, lane), hgcpu_of(width, lane));
    const bool there = other < warp.lanes() && !(off && off[other]);
    to[lane] = hgcpu_of(values, there ? other : lane);
  }
}
template <bool whole, class F, class T, class P>
HGCPU_INLINE void hgcpu_vote(const hgcpu_crew<whole>& warp, F result, T* to, P predicate, const bool* off) {
  uint64_t active = 0, votes = 0;
  for (uint32_t lane = 0; lane < warp.lanes(); ++lane) {
    active |= (uint64_t)!(off && off[lane]) << lane;
    votes |= (uint64_t)(hgcpu_of(predicate, lane) != 0) << lane;
  }
  const T one = (T)result(votes & active, active);
  for (uint32_t lane = 0; lane < warp.lanes(); ++lane) to[lane] = one;
}

// `hgcpu_op...` is what the syntax tree has in place of an operation (warps.py).
#define HGCPU_OPERATION(name, how, type)                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name(T& to, A... more);                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name##_sync(T& to, A... more);                                                                        \
  struct hgcpu_lane_of##name {                                                                                         \
    static constexpr hgcpu_shuffles kind = how;                                                                        \
    static constexpr unsigned from(unsigned self, type which, int width) { return hgcpu##name##_from(self, which, width); } \
  };                                                                                                                   \
  template <bool whole, class T, class V, class W, class D>                                                            \
  HGCPU_INLINE void hgcpu_lanes##name(const hgcpu_crew<whole>& warp, T* to, V values, W which, D width, const bool* off) { \
    hgcpu_shuffle<hgcpu_lane_of##name>(warp, to, values, which, width, off);                                           \
  }                                                                                                                    \
  template <bool whole, class T, class V, class W, class D>                                                            \
  HGCPU_INLINE void hgcpu_lanes##name##_sync(const hgcpu_crew<whole>& warp, T* to, uint64_t, V values, W which, D width, \
                                             const bool* off) {                                                        \
    hgcpu_shuffle<hgcpu_lane_of##name>(warp, to, values, which, width, off);                                           \
  }
HGCPU_OPERATION(__shfl, hgcpu_any_lane, int)
HGCPU_OPERATION(__shfl_up, hgcpu_lane_below, unsigned)
HGCPU_OPERATION(__shfl_down, hgcpu_lane_above, unsigned)
HGCPU_OPERATION(__shfl_xor, hgcpu_lane_across, int)
#undef HGCPU_OPERATION
#define HGCPU_OPERATION(name, result, result_sync)                                                                      \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name(T& to, A... more);                                                                               \
  template <class T, class... A>                                                                                       \
  void hgcpu_op##name##_sync(T& to, A... more);                                                                        \
  template <bool whole, class T, class P>                                                                              \
  HGCPU_INLINE void hgcpu_lanes##name(const hgcpu_crew<whole>& warp, T* to, P predicate, const bool* off) {            \
    hgcpu_vote(warp, [](uint64_t votes, uint64_t active) { return (void)active, result; }, to, predicate, off);        \
  }                                                                                                                    \
  template <bool whole, class T, class P>                                                                              \
  HGCPU_INLINE void hgcpu_lanes##name##_sync(const hgcpu_crew<whole>& warp, T* to, uint64_t mask, P predicate, const bool* off) { \
    hgcpu_vote(warp, [=](uint64_t votes, uint64_t) { return result_sync; }, to, predicate, off);                       \
  }
HGCPU_OPERATION(__ballot, votes, votes & mask)
HGCPU_OPERATION(__any, votes != 0, (votes & mask) != 0)
HGCPU_OPERATION(__all, votes == active, (votes & mask) == (mask & hgcpu_all_lanes))
#undef HGCPU_OPERATION
template <class T>
void hgcpu_op__activemask(T& to);
template <bool whole, class T>
HGCPU_INLINE void hgcpu_lanes__activemask(const hgcpu_crew<whole>& warp, T* to, const bool* off) {
  hgcpu_vote(warp, [](uint64_t, uint64_t active) { return active; }, to, 0, off);
}
void hgcpu_op__syncwarp(uint64_t mask);
template <bool whole>
HGCPU_INLINE void hgcpu_lanes__syncwarp(const hgcpu_crew<whole>&, uint64_t, const bool*) {}
