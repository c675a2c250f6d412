// What HIP C++ kernels see when they are compiled for a CPU: HIP's own names with HIP's meaning.
//
// Kernels and device functions are compiled as the user wrote them. threadIdx and its kin are thread-local variables of the
// library: each worker runs one thread of a block at a time. Nobody takes their addresses, so the compiler keeps them in
// registers where a kernel is inlined into the loop over the threads of a block.
#ifndef HGCPU_DEVICE_H
#define HGCPU_DEVICE_H

// Warnings are about the user's source.
#pragma GCC system_header

#include <stddef.h>
#include <stdint.h>

#if HGCPU_STD
// The source includes C++ standard headers: their functions, and ours only where they have none.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#endif
#include "fibers.h"

// -- words ------------------------------------------------------------------------------------------------------------

// __global__, __shared__ and __noinline__ are left to weave.py, which reads what the preprocessor made.
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_SYMBOL(x) x
#define HIP_DYNAMIC_SHARED(type, variable) extern __shared__ type variable[];
#define HGCPU_CPU 1
// AMD's meaning of HIP, as `PREDEFINED` of source.py says.
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIPCC_RTC__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_CPU_RT__ 1

#define HGCPU_INLINE inline __attribute__((always_inline))

template <class T>
struct hgcpu_same {
  typedef T type;
};
template <class T>
struct hgcpu_plain {
  typedef T type;
};
template <class T>
struct hgcpu_plain<T&> : hgcpu_plain<T> {};
template <class T>
struct hgcpu_plain<T&&> : hgcpu_plain<T> {};
template <class T>
struct hgcpu_plain<const T> : hgcpu_plain<T> {};
template <class T>
struct hgcpu_plain<volatile T> : hgcpu_plain<T> {};
template <class T>
struct hgcpu_plain<const volatile T> : hgcpu_plain<T> {};
template <unsigned... N>
struct hgcpu_indices {};
template <unsigned count, unsigned... N>
struct hgcpu_count : hgcpu_count<count - 1, count - 1, N...> {};
template <unsigned... N>
struct hgcpu_count<0, N...> {
  typedef hgcpu_indices<N...> type;
};
template <unsigned count>
using hgcpu_make_indices = typename hgcpu_count<count>::type;
template <bool, class T = void>
struct hgcpu_if {};
template <class T>
struct hgcpu_if<true, T> {
  typedef T type;
};
template <class T, class... U>
constexpr bool hgcpu_among = (__is_same(T, U) || ...);
template <class T>
constexpr bool hgcpu_floating = hgcpu_among<T, float, double>;
template <class T>
constexpr bool hgcpu_integral =
    hgcpu_among<T, bool, char, signed char, unsigned char, short, unsigned short, int, unsigned int, long, unsigned long,
                long long, unsigned long long>;
template <class T>
constexpr bool hgcpu_number = hgcpu_floating<T> || hgcpu_integral<T>;

template <class To, class From>
HGCPU_INLINE To hgcpu_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// -- vector types -----------------------------------------------------------------------------------------------------

template <class T, unsigned N>
struct HIP_vector_type;

template <class T>
struct alignas(T) HIP_vector_type<T, 1> {
  T x;
  HIP_vector_type() = default;
  template <class A>
  constexpr HIP_vector_type(A a) : x(T(a)) {}
};
template <class T>
struct alignas(2 * sizeof(T)) HIP_vector_type<T, 2> {
  T x, y;
  HIP_vector_type() = default;
  template <class A, class = typename hgcpu_if<hgcpu_number<A>>::type>
  explicit constexpr HIP_vector_type(A a) : x(T(a)), y(T(a)) {}
  template <class A, class B>
  constexpr HIP_vector_type(A a, B b) : x(T(a)), y(T(b)) {}
};
template <class T>
struct alignas(T) HIP_vector_type<T, 3> {
  T x, y, z;
  HIP_vector_type() = default;
  template <class A, class = typename hgcpu_if<hgcpu_number<A>>::type>
  explicit constexpr HIP_vector_type(A a) : x(T(a)), y(T(a)), z(T(a)) {}
  template <class A, class B, class C>
  constexpr HIP_vector_type(A a, B b, C c) : x(T(a)), y(T(b)), z(T(c)) {}
};
template <class T>
struct alignas(4 * sizeof(T)) HIP_vector_type<T, 4> {
  T x, y, z, w;
  HIP_vector_type() = default;
  template <class A, class = typename hgcpu_if<hgcpu_number<A>>::type>
  explicit constexpr HIP_vector_type(A a) : x(T(a)), y(T(a)), z(T(a)), w(T(a)) {}
  template <class A, class B, class C, class D>
  constexpr HIP_vector_type(A a, B b, C c, D d) : x(T(a)), y(T(b)), z(T(c)), w(T(d)) {}
};

#define HGCPU_VECTOR(T, name)                                                                                     \
  typedef HIP_vector_type<T, 1> name##1;                                                                          \
  typedef HIP_vector_type<T, 2> name##2;                                                                          \
  typedef HIP_vector_type<T, 3> name##3;                                                                          \
  typedef HIP_vector_type<T, 4> name##4;                                                                          \
  HGCPU_INLINE constexpr name##1 make_##name##1(T x) { return name##1(x); }                                       \
  HGCPU_INLINE constexpr name##2 make_##name##2(T x, T y) { return name##2(x, y); }                               \
  HGCPU_INLINE constexpr name##3 make_##name##3(T x, T y, T z) { return name##3(x, y, z); }                       \
  HGCPU_INLINE constexpr name##4 make_##name##4(T x, T y, T z, T w) { return name##4(x, y, z, w); }
HGCPU_VECTOR(signed char, char)
HGCPU_VECTOR(unsigned char, uchar)
HGCPU_VECTOR(short, short)
HGCPU_VECTOR(unsigned short, ushort)
HGCPU_VECTOR(int, int)
HGCPU_VECTOR(unsigned int, uint)
HGCPU_VECTOR(long, long)
HGCPU_VECTOR(unsigned long, ulong)
HGCPU_VECTOR(long long, longlong)
HGCPU_VECTOR(unsigned long long, ulonglong)
HGCPU_VECTOR(float, float)
HGCPU_VECTOR(double, double)
#undef HGCPU_VECTOR

template <class T, unsigned N, class F>
HGCPU_INLINE constexpr HIP_vector_type<T, N> hgcpu_map(const HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b, F f) {
  if constexpr (N == 1) return HIP_vector_type<T, N>(f(a.x, b.x));
  if constexpr (N == 2) return HIP_vector_type<T, N>(f(a.x, b.x), f(a.y, b.y));
  if constexpr (N == 3) return HIP_vector_type<T, N>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z));
  if constexpr (N == 4) return HIP_vector_type<T, N>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w));
}
#define HGCPU_OPERATOR(op)                                                                                        \
  template <class T, unsigned N>                                                                                  \
  HGCPU_INLINE constexpr HIP_vector_type<T, N> operator op(const HIP_vector_type<T, N>& a,                        \
                                                           const HIP_vector_type<T, N>& b) {                      \
    return hgcpu_map(a, b, [](T p, T q) { return T(p op q); });                                                   \
  }                                                                                                               \
  template <class T, unsigned N, class S, class = typename hgcpu_if<hgcpu_number<S>>::type>                       \
  HGCPU_INLINE constexpr HIP_vector_type<T, N> operator op(const HIP_vector_type<T, N>& a, S b) {                 \
    return hgcpu_map(a, HIP_vector_type<T, N>(b), [](T p, T q) { return T(p op q); });                            \
  }                                                                                                               \
  template <class T, unsigned N, class S, class = typename hgcpu_if<hgcpu_number<S>>::type>                       \
  HGCPU_INLINE constexpr HIP_vector_type<T, N> operator op(S a, const HIP_vector_type<T, N>& b) {                 \
    return hgcpu_map(HIP_vector_type<T, N>(a), b, [](T p, T q) { return T(p op q); });                            \
  }                                                                                                               \
  template <class T, unsigned N, class S>                                                                         \
  HGCPU_INLINE constexpr HIP_vector_type<T, N>& operator op##=(HIP_vector_type<T, N>& a, const S& b) {            \
    return a = a op b;                                                                                            \
  }
HGCPU_OPERATOR(+)
HGCPU_OPERATOR(-)
HGCPU_OPERATOR(*)
HGCPU_OPERATOR(/)
HGCPU_OPERATOR(%)
HGCPU_OPERATOR(&)
HGCPU_OPERATOR(|)
HGCPU_OPERATOR(^)
HGCPU_OPERATOR(<<)
HGCPU_OPERATOR(>>)
#undef HGCPU_OPERATOR
template <class T, unsigned N>
HGCPU_INLINE constexpr HIP_vector_type<T, N> operator-(const HIP_vector_type<T, N>& a) {
  return hgcpu_map(a, a, [](T p, T) { return T(-p); });
}
template <class T, unsigned N>
HGCPU_INLINE constexpr HIP_vector_type<T, N> operator~(const HIP_vector_type<T, N>& a) {
  return hgcpu_map(a, a, [](T p, T) { return T(~p); });
}
template <class T, unsigned N>
HGCPU_INLINE constexpr HIP_vector_type<T, N>& operator++(HIP_vector_type<T, N>& a) {
  return a = a + T(1);
}
template <class T, unsigned N>
HGCPU_INLINE constexpr HIP_vector_type<T, N>& operator--(HIP_vector_type<T, N>& a) {
  return a = a - T(1);
}
template <class T, unsigned N>
HGCPU_INLINE constexpr bool operator==(const HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b) {
  if constexpr (N == 1) return a.x == b.x;
  if constexpr (N == 2) return a.x == b.x && a.y == b.y;
  if constexpr (N == 3) return a.x == b.x && a.y == b.y && a.z == b.z;
  if constexpr (N == 4) return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}
template <class T, unsigned N>
HGCPU_INLINE constexpr bool operator!=(const HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b) {
  return !(a == b);
}

struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(const uint3& v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3(x, y, z); }
};

// -- mathematics ------------------------------------------------------------------------------------------------------

// Under a C++ name of their own these would hide the compiler's knowledge of them; so each is one call of a builtin.
#define HGCPU_F1(name) \
  HGCPU_INLINE float name##f(float x) { return __builtin_##name##f(x); }
#define HGCPU_D1(name)                                                    \
  HGCPU_INLINE double name(double x) { return __builtin_##name(x); }      \
  HGCPU_INLINE float name(float x) { return __builtin_##name##f(x); }     \
  template <class T>                                                      \
  HGCPU_INLINE typename hgcpu_if<hgcpu_integral<T>, double>::type name(T x) { \
    return __builtin_##name((double)x);                                   \
  }
#define HGCPU_F2(name) \
  HGCPU_INLINE float name##f(float x, float y) { return __builtin_##name##f(x, y); }
#define HGCPU_D2(name)                                                                                            \
  HGCPU_INLINE double name(double x, double y) { return __builtin_##name(x, y); }                                 \
  HGCPU_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }                                 \
  template <class A, class B>                                                                                     \
  HGCPU_INLINE typename hgcpu_if<hgcpu_number<A> && hgcpu_number<B>, double>::type name(A x, B y) {               \
    return __builtin_##name((double)x, (double)y);                                                                \
  }
#define HGCPU_EACH_1(X)                                                                                           \
  X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(exp) X(exp2)  \
  X(expm1) X(log) X(log2) X(log10) X(log1p) X(logb) X(sqrt) X(cbrt) X(ceil) X(floor) X(trunc) X(round) X(rint)    \
  X(nearbyint) X(fabs) X(erf) X(erfc) X(tgamma) X(lgamma)
#define HGCPU_EACH_2(X) X(pow) X(atan2) X(fmod) X(hypot) X(fmax) X(fmin) X(fdim) X(copysign) X(remainder) X(nextafter)

#if !HGCPU_STD
HGCPU_EACH_1(HGCPU_F1)
HGCPU_EACH_1(HGCPU_D1)
HGCPU_EACH_2(HGCPU_F2)
HGCPU_EACH_2(HGCPU_D2)
#if defined(__APPLE__)
#define HGCPU_C(name) __asm__("_" name)
#else
#define HGCPU_C(name) __asm__(name)
#endif
#define HGCPU_BESSEL(name)                                                \
  extern "C" double hgcpu_##name(double) HGCPU_C(#name);                  \
  HGCPU_INLINE double name(double x) { return hgcpu_##name(x); }          \
  HGCPU_INLINE float name##f(float x) { return (float)hgcpu_##name(x); }
HGCPU_BESSEL(j0)
HGCPU_BESSEL(j1)
HGCPU_BESSEL(y0)
HGCPU_BESSEL(y1)
HGCPU_INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
HGCPU_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
HGCPU_INLINE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
HGCPU_INLINE double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
HGCPU_INLINE float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
HGCPU_INLINE float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
HGCPU_INLINE double scalbn(double x, int n) { return __builtin_ldexp(x, n); }
HGCPU_INLINE float scalbnf(float x, int n) { return __builtin_ldexpf(x, n); }
HGCPU_INLINE double frexp(double x, int* n) { return __builtin_frexp(x, n); }
HGCPU_INLINE float frexpf(float x, int* n) { return __builtin_frexpf(x, n); }
HGCPU_INLINE double modf(double x, double* n) { return __builtin_modf(x, n); }
HGCPU_INLINE float modff(float x, float* n) { return __builtin_modff(x, n); }
HGCPU_INLINE int ilogb(double x) { return __builtin_ilogb(x); }
HGCPU_INLINE int ilogbf(float x) { return __builtin_ilogbf(x); }
HGCPU_INLINE long lround(double x) { return __builtin_lround(x); }
HGCPU_INLINE long lroundf(float x) { return __builtin_lroundf(x); }
HGCPU_INLINE long lrint(double x) { return __builtin_lrint(x); }
HGCPU_INLINE long lrintf(float x) { return __builtin_lrintf(x); }
HGCPU_INLINE long long llround(double x) { return __builtin_llround(x); }
HGCPU_INLINE long long llrint(double x) { return __builtin_llrint(x); }
template <class T>
HGCPU_INLINE constexpr bool isnan(T x) {
  return __builtin_isnan(x);
}
template <class T>
HGCPU_INLINE constexpr bool isinf(T x) {
  return __builtin_isinf(x);
}
template <class T>
HGCPU_INLINE constexpr bool isfinite(T x) {
  return __builtin_isfinite(x);
}
template <class T>
HGCPU_INLINE bool signbit(T x) {
  return __builtin_signbit(x) != 0;
}
HGCPU_INLINE float nanf(const char*) { return __builtin_nanf(""); }
HGCPU_INLINE double nan(const char*) { return __builtin_nan(""); }
// Of integers narrower than int the promoted one, as in C++.
template <class T, class P = decltype(+T())>
HGCPU_INLINE constexpr typename hgcpu_if<hgcpu_number<T>, P>::type abs(T x) {
  if constexpr (hgcpu_floating<T>)
    return x < 0 ? -x : x == 0 ? T(0) : x;
  else
    return x < 0 ? P(-P(x)) : P(x);
}
HGCPU_INLINE long labs(long x) { return x < 0 ? -x : x; }
HGCPU_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }
extern "C" int printf(const char*, ...);
extern "C" void* malloc(size_t);
extern "C" void free(void*);
HGCPU_INLINE void* memcpy(void* to, const void* from, size_t n) { return __builtin_memcpy(to, from, n); }
HGCPU_INLINE void* memmove(void* to, const void* from, size_t n) { return __builtin_memmove(to, from, n); }
HGCPU_INLINE void* memset(void* to, int value, size_t n) { return __builtin_memset(to, value, n); }
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_huge_val()
#define HUGE_VALF __builtin_huge_valf()
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define DBL_MAX __DBL_MAX__
#define DBL_MIN __DBL_MIN__
#define DBL_EPSILON __DBL_EPSILON__
#define CHAR_BIT __CHAR_BIT__
#define SCHAR_MAX __SCHAR_MAX__
#define SCHAR_MIN (-__SCHAR_MAX__ - 1)
#define UCHAR_MAX (__SCHAR_MAX__ * 2 + 1)
#define SHRT_MAX __SHRT_MAX__
#define SHRT_MIN (-__SHRT_MAX__ - 1)
#define USHRT_MAX (__SHRT_MAX__ * 2 + 1)
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (__INT_MAX__ * 2u + 1u)
#define LONG_MAX __LONG_MAX__
#define LONG_MIN (-__LONG_MAX__ - 1L)
#define ULONG_MAX (__LONG_MAX__ * 2ul + 1ul)
#define LLONG_MAX __LONG_LONG_MAX__
#define LLONG_MIN (-__LONG_LONG_MAX__ - 1LL)
#define ULLONG_MAX (__LONG_LONG_MAX__ * 2ull + 1ull)
#endif

template <class A, class B>
HGCPU_INLINE constexpr auto min(A a, B b) ->
    typename hgcpu_if<hgcpu_number<A> && hgcpu_number<B>, hgcpu_plain<decltype(a < b ? a : b)>>::type::type {
  typedef typename hgcpu_plain<decltype(a < b ? a : b)>::type C;
  if constexpr (hgcpu_floating<C>)
    return sizeof(C) == 4 ? C(__builtin_fminf(float(a), float(b))) : C(__builtin_fmin(double(a), double(b)));
  else
    return C(a) < C(b) ? C(a) : C(b);
}
template <class A, class B>
HGCPU_INLINE constexpr auto max(A a, B b) ->
    typename hgcpu_if<hgcpu_number<A> && hgcpu_number<B>, hgcpu_plain<decltype(a < b ? a : b)>>::type::type {
  typedef typename hgcpu_plain<decltype(a < b ? a : b)>::type C;
  if constexpr (hgcpu_floating<C>)
    return sizeof(C) == 4 ? C(__builtin_fmaxf(float(a), float(b))) : C(__builtin_fmax(double(a), double(b)));
  else
    return C(a) < C(b) ? C(b) : C(a);
}

#define HGCPU_BOTH(name, text)                            \
  HGCPU_INLINE double name(double x) {                    \
    typedef double T;                                     \
    return text;                                          \
  }                                                       \
  HGCPU_INLINE float name(float x) {                      \
    typedef float T;                                      \
    return text;                                          \
  }                                                       \
  HGCPU_INLINE float name##f(float x) {                   \
    typedef float T;                                      \
    return text;                                          \
  }
HGCPU_BOTH(rsqrt, T(1) / sqrt(x))
HGCPU_BOTH(rcbrt, T(1) / cbrt(x))
HGCPU_BOTH(exp10, pow(T(10), x))
// The rounding of x / sqrt(2) would be magnified by x^2: erfc is corrected to first order by what was lost.
HGCPU_INLINE double hgcpu_normcdf(double x) {
  const double high = -x * 0.70710678118654752440;
  if (!(high > 1.0) || high > 28.0) return 0.5 * __builtin_erfc(high);
  const double low = __builtin_fma(-x, 0.70710678118654752440, -high) - x * -4.8336466567264567e-17;
  const double value = __builtin_erfc(high);
  return 0.5 * (value - low * 1.1283791670955125739 * __builtin_exp(-high * high));
}
HGCPU_BOTH(normcdf, T(hgcpu_normcdf(x)))
// exp(x^2) erfc(x): the product where neither factor leaves the range, else the continued fraction of Laplace,
// 1 / (sqrt(pi) (x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...))))), which 60 terms give to the last digit from 2 on. x^2 is taken
// in two parts, because its rounding error would be magnified by x^2.
HGCPU_INLINE double hgcpu_erfcx(double x) {
  if (x < -27.0) return __builtin_inf();
  if (x < 2.0) {
    const double square = x * x;
    const double rest = __builtin_fma(x, x, -square);
    return __builtin_exp(square) * (1.0 + rest) * __builtin_erfc(x);
  }
  if (x > 1e8) return 0.56418958354775628695 / x;
  double below = x;
  for (int n = 60; n > 0; n--) below = x + 0.5 * n / below;
  return 0.56418958354775628695 / below;
}
HGCPU_BOTH(erfcx, T(hgcpu_erfcx(x)))
// Reduced first, so that whole and half numbers give exact results and small ones keep their digits.
template <class T>
HGCPU_INLINE T hgcpu_sinpi(T x) {
  T r = fmod(x, T(2));  // exact, with the sign of x
  const T a = fabs(r);
  if (a == T(1) || a == T(0)) return copysign(T(0), x);
  if (a > T(1.5)) r = r - copysign(T(2), r);
  else if (a > T(0.5)) r = copysign(T(1), r) - r;
  return T(__builtin_sin(3.14159265358979323846 * (double)r));
}
template <class T>
HGCPU_INLINE T hgcpu_cospi(T x) {
  const T r = fmod(fabs(x), T(2));
  if (r == T(0.5) || r == T(1.5)) return T(0);
  const T s = r > T(1) ? T(2) - r : r;  // cos(pi r) is even around 1
  if (s > T(0.25) && s < T(0.75)) return T(__builtin_sin(3.14159265358979323846 * (double)(T(0.5) - s)));
  return T(__builtin_cos(3.14159265358979323846 * (double)s));
}
HGCPU_BOTH(sinpi, hgcpu_sinpi(x))
HGCPU_BOTH(cospi, hgcpu_cospi(x))
#undef HGCPU_BOTH
HGCPU_INLINE void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
HGCPU_INLINE void sincos(double x, double* s, double* c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
HGCPU_INLINE void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
HGCPU_INLINE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
HGCPU_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
HGCPU_INLINE float fdividef(float x, float y) { return x / y; }
HGCPU_INLINE float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
HGCPU_INLINE double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
// Without overflow or underflow of the squares.
HGCPU_INLINE double norm3d(double x, double y, double z) { return __builtin_hypot(__builtin_hypot(x, y), z); }
HGCPU_INLINE double norm4d(double x, double y, double z, double w) { return __builtin_hypot(__builtin_hypot(x, y), __builtin_hypot(z, w)); }
HGCPU_INLINE double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
HGCPU_INLINE double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
HGCPU_INLINE float norm3df(float x, float y, float z) { return (float)__builtin_sqrt((double)x * x + (double)y * y + (double)z * z); }
HGCPU_INLINE float norm4df(float x, float y, float z, float w) {
  return (float)__builtin_sqrt((double)x * x + (double)y * y + (double)z * z + (double)w * w);
}
HGCPU_INLINE float rnorm3df(float x, float y, float z) { return (float)(1.0 / __builtin_sqrt((double)x * x + (double)y * y + (double)z * z)); }
HGCPU_INLINE float rnorm4df(float x, float y, float z, float w) {
  return (float)(1.0 / __builtin_sqrt((double)x * x + (double)y * y + (double)z * z + (double)w * w));
}
HGCPU_INLINE float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }

// The fast forms are the accurate ones here.
#define HGCPU_FAST(name, call) \
  HGCPU_INLINE float name(float x) { return call(x); }
HGCPU_FAST(__sinf, __builtin_sinf)
HGCPU_FAST(__cosf, __builtin_cosf)
HGCPU_FAST(__tanf, __builtin_tanf)
HGCPU_FAST(__expf, __builtin_expf)
HGCPU_FAST(__exp10f, exp10f)
HGCPU_FAST(__logf, __builtin_logf)
HGCPU_FAST(__log2f, __builtin_log2f)
HGCPU_FAST(__log10f, __builtin_log10f)
HGCPU_FAST(__fsqrt_rn, __builtin_sqrtf)
HGCPU_FAST(__frsqrt_rn, rsqrtf)
#undef HGCPU_FAST
HGCPU_INLINE float __powf(float x, float y) { return __builtin_powf(x, y); }
HGCPU_INLINE void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
HGCPU_INLINE float __fdividef(float x, float y) { return x / y; }
HGCPU_INLINE float __frcp_rn(float x) { return 1.0f / x; }
HGCPU_INLINE float __fadd_rn(float x, float y) { return x + y; }
HGCPU_INLINE float __fsub_rn(float x, float y) { return x - y; }
HGCPU_INLINE float __fmul_rn(float x, float y) { return x * y; }
HGCPU_INLINE float __fdiv_rn(float x, float y) { return x / y; }
HGCPU_INLINE float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
HGCPU_INLINE double __dadd_rn(double x, double y) { return x + y; }
HGCPU_INLINE double __dsub_rn(double x, double y) { return x - y; }
HGCPU_INLINE double __dmul_rn(double x, double y) { return x * y; }
HGCPU_INLINE double __ddiv_rn(double x, double y) { return x / y; }
HGCPU_INLINE double __drcp_rn(double x) { return 1.0 / x; }
HGCPU_INLINE double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
HGCPU_INLINE double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }

HGCPU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
HGCPU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HGCPU_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
HGCPU_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
HGCPU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
HGCPU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
HGCPU_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
HGCPU_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
HGCPU_INLINE int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
HGCPU_INLINE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
HGCPU_INLINE int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
HGCPU_INLINE unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
HGCPU_INLINE long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
HGCPU_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
HGCPU_INLINE unsigned __sad(int x, int y, unsigned z) { return (x > y ? (unsigned)x - (unsigned)y : (unsigned)y - (unsigned)x) + z; }
HGCPU_INLINE unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
HGCPU_INLINE int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
HGCPU_INLINE unsigned __uhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y) >> 1); }
HGCPU_INLINE int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
HGCPU_INLINE unsigned __urhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y + 1) >> 1); }
HGCPU_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned out = 0;
  for (int n = 0; n < 4; n++) out |= (unsigned)(both >> (s >> (4 * n) & 7) * 8 & 255) << 8 * n;
  return out;
}
HGCPU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
HGCPU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}

HGCPU_INLINE int __float_as_int(float x) { return hgcpu_bits<int>(x); }
HGCPU_INLINE unsigned __float_as_uint(float x) { return hgcpu_bits<unsigned>(x); }
HGCPU_INLINE float __int_as_float(int x) { return hgcpu_bits<float>(x); }
HGCPU_INLINE float __uint_as_float(unsigned x) { return hgcpu_bits<float>(x); }
HGCPU_INLINE long long __double_as_longlong(double x) { return hgcpu_bits<long long>(x); }
HGCPU_INLINE double __longlong_as_double(long long x) { return hgcpu_bits<double>(x); }
HGCPU_INLINE int __double2hiint(double x) { return (int)(hgcpu_bits<long long>(x) >> 32); }
HGCPU_INLINE int __double2loint(double x) { return (int)hgcpu_bits<long long>(x); }
HGCPU_INLINE double __hiloint2double(int high, int low) {
  return hgcpu_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
// Conversions take what is beyond the range to its end, and NaN to 0.
template <class To, class From>
HGCPU_INLINE To hgcpu_saturated(From x) {
  constexpr To low = To(-1) < To(0) ? To((unsigned long long)1 << (sizeof(To) * 8 - 1)) : To(0), high = To(~low);
  constexpr From above = From(high / 2 + 1) * From(2);  // one more than the highest, which is a power of two
  return x != x ? To(0) : x >= above ? high : x <= From(low) ? low : To(x);
}
#define HGCPU_ROUNDED(from, name, suffix, to)                                                            \
  HGCPU_INLINE to name##_rn(from x) { return hgcpu_saturated<to>(__builtin_rint##suffix(x)); }           \
  HGCPU_INLINE to name##_rz(from x) { return hgcpu_saturated<to>(x); }                                   \
  HGCPU_INLINE to name##_ru(from x) { return hgcpu_saturated<to>(__builtin_ceil##suffix(x)); }           \
  HGCPU_INLINE to name##_rd(from x) { return hgcpu_saturated<to>(__builtin_floor##suffix(x)); }
HGCPU_ROUNDED(float, __float2int, f, int)
HGCPU_ROUNDED(float, __float2uint, f, unsigned)
HGCPU_ROUNDED(float, __float2ll, f, long long)
HGCPU_ROUNDED(float, __float2ull, f, unsigned long long)
HGCPU_ROUNDED(double, __double2int, , int)
HGCPU_ROUNDED(double, __double2uint, , unsigned)
HGCPU_ROUNDED(double, __double2ll, , long long)
HGCPU_ROUNDED(double, __double2ull, , unsigned long long)
#undef HGCPU_ROUNDED
HGCPU_INLINE float __int2float_rn(int x) { return (float)x; }
HGCPU_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
HGCPU_INLINE float __ll2float_rn(long long x) { return (float)x; }
HGCPU_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
HGCPU_INLINE double __int2double_rn(int x) { return x; }
HGCPU_INLINE double __uint2double_rn(unsigned x) { return x; }
HGCPU_INLINE double __ll2double_rn(long long x) { return (double)x; }
HGCPU_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
HGCPU_INLINE float __double2float_rn(double x) { return (float)x; }

#if !HGCPU_STD
namespace std {
using ::size_t, ::ptrdiff_t, ::intptr_t, ::uintptr_t, ::int8_t, ::int16_t, ::int32_t, ::int64_t;
using ::uint8_t, ::uint16_t, ::uint32_t, ::uint64_t;
using ::abs, ::fma, ::isfinite, ::isinf, ::isnan, ::ldexp, ::max, ::min, ::printf, ::signbit;
#define HGCPU_USING(name) using ::name;
HGCPU_EACH_1(HGCPU_USING)
HGCPU_EACH_2(HGCPU_USING)
#undef HGCPU_USING
template <class T>
HGCPU_INLINE void swap(T& a, T& b) {
  T c = a;
  a = b;
  b = c;
}
template <bool B, class T, class F>
struct conditional {
  typedef T type;
};
template <class T, class F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;
template <bool B, class T = void>
using enable_if = hgcpu_if<B, T>;
template <bool B, class T = void>
using enable_if_t = typename hgcpu_if<B, T>::type;
template <class A, class B>
struct is_same {
  static constexpr bool value = false;
};
template <class A>
struct is_same<A, A> {
  static constexpr bool value = true;
};
template <class A, class B>
inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T>
inline constexpr bool is_floating_point_v = hgcpu_floating<T>;
template <class T>
inline constexpr bool is_integral_v = hgcpu_integral<T>;
template <class T>
struct is_floating_point {
  static constexpr bool value = hgcpu_floating<T>;
};
template <class T>
struct is_integral {
  static constexpr bool value = hgcpu_integral<T>;
};
template <class T>
struct remove_reference {
  typedef T type;
};
template <class T>
struct remove_reference<T&> {
  typedef T type;
};
template <class T>
struct remove_reference<T&&> {
  typedef T type;
};
template <class T>
constexpr typename remove_reference<T>::type&& move(T&& x) {
  return static_cast<typename remove_reference<T>::type&&>(x);
}
template <class T>
HGCPU_INLINE constexpr T clamp(T x, typename hgcpu_same<T>::type low, typename hgcpu_same<T>::type high) {
  return x < low ? low : high < x ? high : x;
}
template <class T>
struct numeric_limits {
  static_assert(hgcpu_integral<T>, "numeric_limits is known for built-in numbers");
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr int digits = int(sizeof(T) * 8) - is_signed;
  static constexpr T max() { return T((1ull << (digits - 1)) - 1 + (1ull << (digits - 1))); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr float max() { return __FLT_MAX__; }
  static constexpr float min() { return __FLT_MIN__; }
  static constexpr float lowest() { return -__FLT_MAX__; }
  static constexpr float epsilon() { return __FLT_EPSILON__; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<double> {
  static constexpr double max() { return __DBL_MAX__; }
  static constexpr double min() { return __DBL_MIN__; }
  static constexpr double lowest() { return -__DBL_MAX__; }
  static constexpr double epsilon() { return __DBL_EPSILON__; }
  static constexpr double infinity() { return __builtin_inf(); }
  static constexpr double quiet_NaN() { return __builtin_nan(""); }
};
}  // namespace std
#endif

// -- half, bfloat16, complex --------------------------------------------------------------------------------------------

struct __half {
  _Float16 hgcpu_value;
  __half() = default;
  HGCPU_INLINE __half(_Float16 x) : hgcpu_value(x) {}
  template <class T, class = typename hgcpu_if<hgcpu_number<T>>::type>
  HGCPU_INLINE __half(T x) : hgcpu_value((_Float16)x) {}
  HGCPU_INLINE operator float() const { return (float)hgcpu_value; }
  HGCPU_INLINE __half operator-() const { return __half(-(float)hgcpu_value); }
};
// A float of x, the one with an odd last bit where x lies between two floats: a second rounding to fewer bits then yields what
// a single one of x does, as HIP's and CUDA's conversions do.
template <class T>
HGCPU_INLINE float hgcpu_odd_float(T x) {
  if constexpr (sizeof(T) < 4 || (hgcpu_floating<T> && sizeof(T) == 4)) {
    return (float)x;
  } else if constexpr (hgcpu_integral<T> && sizeof(T) == 8) {
    const T exact = (T)1 << 53;  // up to here a double holds every integer; above it, 53 bits and one for the rest
    if ((x > exact || (x < 0 && x < (T)0 - exact)) && (x & (T)2047)) x = (x & ~(T)2047) | (T)2048;
    return hgcpu_odd_float((double)x);
  } else {
    const double exact = (double)x;
    const float nearest = (float)exact;
    if (nearest == exact || exact != exact) return nearest;
    const bool above = __builtin_fabs((double)nearest) > __builtin_fabs(exact);
    return hgcpu_bits<float>((hgcpu_bits<uint32_t>(nearest) - above) | 1u);
  }
}
struct __hip_bfloat16 {
  uint16_t hgcpu_value;
  __hip_bfloat16() = default;
  template <class T, class = typename hgcpu_if<hgcpu_number<T>>::type>
  HGCPU_INLINE __hip_bfloat16(T x) {
    uint32_t bits = hgcpu_bits<uint32_t>(hgcpu_odd_float(x));
    // To nearest, ties to even; a NaN stays one.
    if ((bits & 0x7fffffffu) > 0x7f800000u)
      hgcpu_value = (uint16_t)(bits >> 16 | 0x40);
    else
      hgcpu_value = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  }
  HGCPU_INLINE operator float() const { return hgcpu_bits<float>((uint32_t)hgcpu_value << 16); }
};
#ifndef HGCPU_OWN_HALF
typedef __half half;
#endif
typedef __hip_bfloat16 hip_bfloat16;
typedef __hip_bfloat16 __nv_bfloat16;
#define HGCPU_NARROW(type)                                                                                        \
  HGCPU_INLINE type operator+(type a, type b) { return type((float)a + (float)b); }                               \
  HGCPU_INLINE type operator-(type a, type b) { return type((float)a - (float)b); }                               \
  HGCPU_INLINE type operator*(type a, type b) { return type((float)a * (float)b); }                               \
  HGCPU_INLINE type operator/(type a, type b) { return type((float)a / (float)b); }                               \
  HGCPU_INLINE type& operator+=(type& a, type b) { return a = a + b; }                                            \
  HGCPU_INLINE type& operator-=(type& a, type b) { return a = a - b; }                                            \
  HGCPU_INLINE type& operator*=(type& a, type b) { return a = a * b; }                                            \
  HGCPU_INLINE type& operator/=(type& a, type b) { return a = a / b; }                                            \
  HGCPU_INLINE type __hadd(type a, type b) { return a + b; }                                                      \
  HGCPU_INLINE type __hsub(type a, type b) { return a - b; }                                                      \
  HGCPU_INLINE type __hmul(type a, type b) { return a * b; }                                                      \
  HGCPU_INLINE type __hdiv(type a, type b) { return a / b; }                                                      \
  HGCPU_INLINE type __hneg(type a) { return type(-(float)a); }                                                    \
  HGCPU_INLINE type __habs(type a) { return type(__builtin_fabsf(a)); }                                           \
  HGCPU_INLINE type __hmax(type a, type b) { return type(__builtin_fmaxf(a, b)); }                                \
  HGCPU_INLINE type __hmin(type a, type b) { return type(__builtin_fminf(a, b)); }                                \
  HGCPU_INLINE bool __heq(type a, type b) { return (float)a == (float)b; }                                        \
  HGCPU_INLINE bool __hne(type a, type b) { return (float)a != (float)b; }                                        \
  HGCPU_INLINE bool __hlt(type a, type b) { return (float)a < (float)b; }                                         \
  HGCPU_INLINE bool __hle(type a, type b) { return (float)a <= (float)b; }                                        \
  HGCPU_INLINE bool __hgt(type a, type b) { return (float)a > (float)b; }                                         \
  HGCPU_INLINE bool __hge(type a, type b) { return (float)a >= (float)b; }                                        \
  HGCPU_INLINE bool __hisnan(type a) { return __builtin_isnan((float)a); }                                        \
  HGCPU_INLINE type hsqrt(type a) { return type(__builtin_sqrtf(a)); }                                            \
  HGCPU_INLINE type hexp(type a) { return type(__builtin_expf(a)); }                                              \
  HGCPU_INLINE type hlog(type a) { return type(__builtin_logf(a)); }                                              \
  HGCPU_INLINE type hsin(type a) { return type(__builtin_sinf(a)); }                                              \
  HGCPU_INLINE type hcos(type a) { return type(__builtin_cosf(a)); }                                              \
  HGCPU_INLINE type hrsqrt(type a) { return type(1.0f / __builtin_sqrtf(a)); }                                    \
  HGCPU_INLINE type hrcp(type a) { return type(1.0f / (float)a); }
HGCPU_NARROW(__half)
HGCPU_NARROW(__hip_bfloat16)
#undef HGCPU_NARROW
// Rounded once: the sum of a product of halves and a half is exact in double where it is near the middle of two halves.
HGCPU_INLINE __half __hfma(__half a, __half b, __half c) {
  return __half((_Float16)__builtin_fma((double)(float)a, (double)(float)b, (double)(float)c));
}
HGCPU_INLINE __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
  return __hip_bfloat16(__builtin_fmaf(a, b, c));  // as HIP's own header has it
}
HGCPU_INLINE __half __float2half(float x) { return __half(x); }
HGCPU_INLINE __half __float2half_rn(float x) { return __half(x); }
HGCPU_INLINE __half __double2half(double x) { return __half(x); }
HGCPU_INLINE __half __int2half_rn(int x) { return __half(x); }
HGCPU_INLINE float __half2float(__half x) { return (float)x; }
HGCPU_INLINE int __half2int_rn(__half x) { return hgcpu_saturated<int>(__builtin_rintf(x)); }
HGCPU_INLINE unsigned short __half_as_ushort(__half x) { return hgcpu_bits<unsigned short>(x); }
HGCPU_INLINE __half __ushort_as_half(unsigned short x) { return __half(hgcpu_bits<_Float16>(x)); }
HGCPU_INLINE __hip_bfloat16 __float2bfloat16(float x) { return __hip_bfloat16(x); }
HGCPU_INLINE __hip_bfloat16 __double2bfloat16(double x) { return __hip_bfloat16(x); }
HGCPU_INLINE __hip_bfloat16 __int2bfloat16_rn(int x) { return __hip_bfloat16(x); }
HGCPU_INLINE float __bfloat162float(__hip_bfloat16 x) { return (float)x; }
struct alignas(4) __half2 {
  __half x, y;
};
typedef __half2 half2;
struct alignas(4) __hip_bfloat162 {
  __hip_bfloat16 x, y;
};
typedef __hip_bfloat162 __nv_bfloat162;
#define HGCPU_PAIR_BINARY(pair, symbol, name)                                                         \
  HGCPU_INLINE pair operator symbol(pair a, pair b) { return pair{a.x symbol b.x, a.y symbol b.y}; }  \
  HGCPU_INLINE pair& operator symbol##=(pair& a, pair b) { return a = a symbol b; }                   \
  HGCPU_INLINE pair name(pair a, pair b) { return a symbol b; }
#define HGCPU_PAIR_BOTH(pair, name, each) \
  HGCPU_INLINE pair name(pair a, pair b) { return pair{each(a.x, b.x), each(a.y, b.y)}; }
#define HGCPU_PAIR_EACH(pair, name, each) \
  HGCPU_INLINE pair name(pair a) { return pair{each(a.x), each(a.y)}; }
// A comparison gives 1 and 0, and one whose name has a "b" whether it holds for both.
#define HGCPU_PAIR_COMPARE(pair, part, relation)                                                                  \
  HGCPU_INLINE pair __h##relation##2(pair a, pair b) {                                                            \
    return pair{part((float)__h##relation(a.x, b.x)), part((float)__h##relation(a.y, b.y))};                      \
  }                                                                                                               \
  HGCPU_INLINE bool __hb##relation##2(pair a, pair b) { return __h##relation(a.x, b.x) && __h##relation(a.y, b.y); }
#define HGCPU_PAIR(pair, part)                                                                                    \
  HGCPU_PAIR_BINARY(pair, +, __hadd2)                                                                             \
  HGCPU_PAIR_BINARY(pair, -, __hsub2)                                                                             \
  HGCPU_PAIR_BINARY(pair, *, __hmul2)                                                                             \
  HGCPU_PAIR_BINARY(pair, /, __h2div)                                                                             \
  HGCPU_PAIR_BOTH(pair, __hmax2, __hmax)                                                                          \
  HGCPU_PAIR_BOTH(pair, __hmin2, __hmin)                                                                          \
  HGCPU_PAIR_EACH(pair, operator-, __hneg)                                                                        \
  HGCPU_PAIR_EACH(pair, __hneg2, __hneg)                                                                          \
  HGCPU_PAIR_EACH(pair, __habs2, __habs)                                                                          \
  HGCPU_PAIR_EACH(pair, h2sqrt, hsqrt)                                                                            \
  HGCPU_PAIR_EACH(pair, h2rsqrt, hrsqrt)                                                                          \
  HGCPU_PAIR_EACH(pair, h2rcp, hrcp)                                                                              \
  HGCPU_PAIR_EACH(pair, h2exp, hexp)                                                                              \
  HGCPU_PAIR_EACH(pair, h2log, hlog)                                                                              \
  HGCPU_PAIR_EACH(pair, h2sin, hsin)                                                                              \
  HGCPU_PAIR_EACH(pair, h2cos, hcos)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, eq)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, ne)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, lt)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, le)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, gt)                                                                              \
  HGCPU_PAIR_COMPARE(pair, part, ge)                                                                              \
  HGCPU_INLINE pair __hfma2(pair a, pair b, pair c) { return pair{__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  HGCPU_INLINE float __low2float(pair a) { return a.x; }                                                          \
  HGCPU_INLINE float __high2float(pair a) { return a.y; }                                                         \
  HGCPU_INLINE pair __lowhigh2highlow(pair a) { return pair{a.y, a.x}; }
HGCPU_PAIR(__half2, __half)
HGCPU_PAIR(__hip_bfloat162, __hip_bfloat16)
#undef HGCPU_PAIR
#undef HGCPU_PAIR_COMPARE
#undef HGCPU_PAIR_EACH
#undef HGCPU_PAIR_BOTH
#undef HGCPU_PAIR_BINARY
HGCPU_INLINE __half2 __halves2half2(__half a, __half b) { return __half2{a, b}; }
HGCPU_INLINE __half2 make_half2(__half a, __half b) { return __half2{a, b}; }
HGCPU_INLINE __half2 __half2half2(__half a) { return __half2{a, a}; }
HGCPU_INLINE __half2 __float2half2_rn(float a) { return __half2{__half(a), __half(a)}; }
HGCPU_INLINE __half2 __floats2half2_rn(float a, float b) { return __half2{__half(a), __half(b)}; }
HGCPU_INLINE __half2 __float22half2_rn(float2 a) { return __half2{__half(a.x), __half(a.y)}; }
HGCPU_INLINE __half __low2half(__half2 a) { return a.x; }
HGCPU_INLINE __half __high2half(__half2 a) { return a.y; }
HGCPU_INLINE __half2 __low2half2(__half2 a) { return __half2{a.x, a.x}; }
HGCPU_INLINE __half2 __high2half2(__half2 a) { return __half2{a.y, a.y}; }
HGCPU_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return __half2{a.x, b.x}; }
HGCPU_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return __half2{a.y, b.y}; }
HGCPU_INLINE float2 __half22float2(__half2 a) { return float2((float)a.x, (float)a.y); }
HGCPU_INLINE __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return __hip_bfloat162{a, b}; }
HGCPU_INLINE __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 a) { return __hip_bfloat162{a, a}; }
HGCPU_INLINE __hip_bfloat162 __float2bfloat162_rn(float a) { return __bfloat162bfloat162(__hip_bfloat16(a)); }
HGCPU_INLINE __hip_bfloat162 __float22bfloat162_rn(float2 a) {
  return __hip_bfloat162{__hip_bfloat16(a.x), __hip_bfloat16(a.y)};
}
HGCPU_INLINE __hip_bfloat16 __low2bfloat16(__hip_bfloat162 a) { return a.x; }
HGCPU_INLINE __hip_bfloat16 __high2bfloat16(__hip_bfloat162 a) { return a.y; }
HGCPU_INLINE float2 __bfloat1622float2(__hip_bfloat162 a) { return float2((float)a.x, (float)a.y); }

typedef float2 hipFloatComplex;
typedef float2 hipComplex;
typedef double2 hipDoubleComplex;
#define HGCPU_COMPLEX(type, part, suffix, real)                                                                   \
  HGCPU_INLINE type make_##type(part re, part im) { return type(re, im); }                                        \
  HGCPU_INLINE part hipCreal##suffix(type z) { return z.x; }                                                      \
  HGCPU_INLINE part hipCimag##suffix(type z) { return z.y; }                                                      \
  HGCPU_INLINE type hipConj##suffix(type z) { return type(z.x, -z.y); }                                           \
  HGCPU_INLINE type hipCadd##suffix(type p, type q) { return type(p.x + q.x, p.y + q.y); }                        \
  HGCPU_INLINE type hipCsub##suffix(type p, type q) { return type(p.x - q.x, p.y - q.y); }                        \
  HGCPU_INLINE type hipCmul##suffix(type p, type q) { return type(p.x * q.x - p.y * q.y, p.y * q.x + p.x * q.y); } \
  HGCPU_INLINE type hipCdiv##suffix(type p, type q) {                                                             \
    part d = q.x * q.x + q.y * q.y;                                                                               \
    return type((p.x * q.x + p.y * q.y) / d, (p.y * q.x - p.x * q.y) / d);                                        \
  }                                                                                                               \
  HGCPU_INLINE part hipCabs##suffix(type z) { return hypot(z.x, z.y); }                                           \
  HGCPU_INLINE part hipCsqabs##suffix(type z) { return z.x * z.x + z.y * z.y; }                                   \
  HGCPU_INLINE type hipCfma##suffix(type p, type q, type r) { return hipCadd##suffix(hipCmul##suffix(p, q), r); }
HGCPU_COMPLEX(hipFloatComplex, float, f, float)
HGCPU_COMPLEX(hipDoubleComplex, double, , double)
#undef HGCPU_COMPLEX
HGCPU_INLINE hipComplex make_hipComplex(float re, float im) { return hipComplex(re, im); }

// -- memory order and atomics -------------------------------------------------------------------------------------------

HGCPU_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HGCPU_INLINE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HGCPU_INLINE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <size_t N>
struct hgcpu_word;
template <>
struct hgcpu_word<2> {
  typedef uint16_t type;
};
template <>
struct hgcpu_word<4> {
  typedef uint32_t type;
};
template <>
struct hgcpu_word<8> {
  typedef uint64_t type;
};
// Apply f until no other thread came between; return what was there before.
template <class T, class F>
HGCPU_INLINE T hgcpu_update(T* address, F f) {
  typedef typename hgcpu_word<sizeof(T)>::type W;
  W* word = reinterpret_cast<W*>(address);
  W before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &before, hgcpu_bits<W>(T(f(hgcpu_bits<T>(before)))), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return hgcpu_bits<T>(before);
}
#define HGCPU_ATOMIC(name, builtin, text)                                             \
  template <class T>                                                                  \
  HGCPU_INLINE T name(T* address, typename hgcpu_same<T>::type value) {               \
    if constexpr (hgcpu_integral<T>)                                                  \
      return builtin;                                                                 \
    else                                                                              \
      return hgcpu_update(address, [value](T old) { return text; });                  \
  }                                                                                   \
  template <class T>                                                                  \
  HGCPU_INLINE T name##_system(T* address, typename hgcpu_same<T>::type value) {      \
    return name(address, value);                                                      \
  }                                                                                   \
  template <class T>                                                                  \
  HGCPU_INLINE T name##_block(T* address, typename hgcpu_same<T>::type value) {       \
    return name(address, value);                                                      \
  }
HGCPU_ATOMIC(atomicAdd, __atomic_fetch_add(address, value, __ATOMIC_RELAXED), T(old + value))
HGCPU_ATOMIC(atomicSub, __atomic_fetch_sub(address, value, __ATOMIC_RELAXED), T(old - value))
HGCPU_ATOMIC(atomicAnd, __atomic_fetch_and(address, value, __ATOMIC_RELAXED), old)
HGCPU_ATOMIC(atomicOr, __atomic_fetch_or(address, value, __ATOMIC_RELAXED), old)
HGCPU_ATOMIC(atomicXor, __atomic_fetch_xor(address, value, __ATOMIC_RELAXED), old)
HGCPU_ATOMIC(atomicExch, __atomic_exchange_n(address, value, __ATOMIC_RELAXED), value)
HGCPU_ATOMIC(atomicMin, hgcpu_update(address, [value](T old) { return old < value ? old : value; }), min(old, value))
HGCPU_ATOMIC(atomicMax, hgcpu_update(address, [value](T old) { return old < value ? value : old; }), max(old, value))
#undef HGCPU_ATOMIC
template <class T>
HGCPU_INLINE T unsafeAtomicAdd(T* address, typename hgcpu_same<T>::type value) {
  return atomicAdd(address, value);
}
template <class T>
HGCPU_INLINE T safeAtomicAdd(T* address, typename hgcpu_same<T>::type value) {
  return atomicAdd(address, value);
}
template <class T>
HGCPU_INLINE void atomicAddNoRet(T* address, typename hgcpu_same<T>::type value) {
  atomicAdd(address, value);
}
template <class T>
HGCPU_INLINE T atomicCAS(T* address, typename hgcpu_same<T>::type expected, typename hgcpu_same<T>::type value) {
  typedef typename hgcpu_word<sizeof(T)>::type W;
  W before = hgcpu_bits<W>(expected);
  __atomic_compare_exchange_n(reinterpret_cast<W*>(address), &before, hgcpu_bits<W>(value), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return hgcpu_bits<T>(before);
}
template <class T>
HGCPU_INLINE T atomicCAS_system(T* address, typename hgcpu_same<T>::type expected, typename hgcpu_same<T>::type value) {
  return atomicCAS(address, expected, value);
}
template <class T>
HGCPU_INLINE T atomicCAS_block(T* address, typename hgcpu_same<T>::type expected, typename hgcpu_same<T>::type value) {
  return atomicCAS(address, expected, value);
}
HGCPU_INLINE unsigned atomicInc(unsigned* address, unsigned limit) {
  return hgcpu_update(address, [limit](unsigned old) { return old >= limit ? 0u : old + 1u; });
}
HGCPU_INLINE unsigned atomicDec(unsigned* address, unsigned limit) {
  return hgcpu_update(address, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1u; });
}
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
// A vectoriser that takes threads for unordered drops the order of atomic loads too; it leaves code alone that it does not know.
HGCPU_INLINE void hgcpu_ordered(int order) {
  if (order != __ATOMIC_RELAXED) __asm__ volatile("" ::: "memory");
}
#define __atomic_load_n(p, order) (hgcpu_ordered(order), __atomic_load_n(p, order))
#define __hip_atomic_load(p, order, scope) __atomic_load_n(p, order)
#define __hip_atomic_store(p, v, order, scope) __atomic_store_n(p, v, order)
#define __hip_atomic_exchange(p, v, order, scope) __atomic_exchange_n(p, v, order)
#define __hip_atomic_fetch_add(p, v, order, scope) atomicAdd(p, v)
#define __hip_atomic_fetch_min(p, v, order, scope) atomicMin(p, v)
#define __hip_atomic_fetch_max(p, v, order, scope) atomicMax(p, v)
#define __hip_atomic_fetch_and(p, v, order, scope) __atomic_fetch_and(p, v, order)
#define __hip_atomic_fetch_or(p, v, order, scope) __atomic_fetch_or(p, v, order)
#define __hip_atomic_fetch_xor(p, v, order, scope) __atomic_fetch_xor(p, v, order)
#define __hip_atomic_compare_exchange_strong(p, e, v, success, failure, scope) \
  __atomic_compare_exchange_n(p, e, v, false, success, failure)
#define __hip_atomic_compare_exchange_weak(p, e, v, success, failure, scope) \
  __atomic_compare_exchange_n(p, e, v, true, success, failure)

template <class T>
HGCPU_INLINE T __ldg(const T* p) {
  return *p;
}
template <class T>
HGCPU_INLINE T __ldcg(const T* p) {
  return *p;
}
template <class T>
HGCPU_INLINE T __ldcs(const T* p) {
  return *p;
}
template <class T>
HGCPU_INLINE void __stcg(T* p, T v) {
  *p = v;
}

// -- time -------------------------------------------------------------------------------------------------------------

HGCPU_INLINE long long hgcpu_ticks() {
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  long long now;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return 0;
#endif
}
HGCPU_INLINE long long clock64() { return hgcpu_ticks(); }
HGCPU_INLINE long long __clock64() { return hgcpu_ticks(); }
HGCPU_INLINE long long wall_clock64() { return hgcpu_ticks(); }
#if !HGCPU_STD
HGCPU_INLINE long long clock() { return hgcpu_ticks(); }
#endif
HGCPU_INLINE long long __clock() { return hgcpu_ticks(); }

// -- a thread -----------------------------------------------------------------------------------------------------------

#if !defined(HGCPU_WARP_SIZE)
#define HGCPU_WARP_SIZE 64
#endif
static constexpr int warpSize = HGCPU_WARP_SIZE;
static thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
static thread_local hgcpu_worker* hgcpu_mine;
static hgcpu_worker* (*volatile hgcpu_find_worker)(void);  // the same for every launch
// Whether the thread that runs has waited since it began: then others may have begun meanwhile.
static thread_local bool hgcpu_waited;

#define hipThreadIdx_x (threadIdx.x)
#define hipThreadIdx_y (threadIdx.y)
#define hipThreadIdx_z (threadIdx.z)
#define hipBlockIdx_x (blockIdx.x)
#define hipBlockIdx_y (blockIdx.y)
#define hipBlockIdx_z (blockIdx.z)
#define hipBlockDim_x (blockDim.x)
#define hipBlockDim_y (blockDim.y)
#define hipBlockDim_z (blockDim.z)
#define hipGridDim_x (gridDim.x)
#define hipGridDim_y (gridDim.y)
#define hipGridDim_z (gridDim.z)

HGCPU_INLINE unsigned hgcpu_linear() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
HGCPU_INLINE unsigned __lane_id() { return hgcpu_linear() % HGCPU_WARP_SIZE; }
// As on AMD, of the lanes that are active. Macros, because weave.py has to see the warp operation.
#define __lanemask_lt() (__activemask() & ((1ull << __lane_id()) - 1))
#define __lanemask_gt() (__activemask() & (~1ull << __lane_id()))
#define __lanemask_eq() (1ull << __lane_id())

// The sanitizer knows a barrier by its line: the compiler may make several of one.
#if HGCPU_SANITIZE
#define HGCPU_LINE(...) __VA_ARGS__ int hgcpu_line = __builtin_LINE()
#define HGCPU_AT_LINE(...) __VA_ARGS__ hgcpu_line
#else
#define HGCPU_LINE(...)
#define HGCPU_AT_LINE(...)
#endif
HGCPU_INLINE void hgcpu_wait_block(uint32_t count HGCPU_LINE(, )) {
  const dim3 here = threadIdx;
#if HGCPU_SANITIZE
  hgcpu_mine->calls->barrier(hgcpu_mine, (uint32_t)hgcpu_line);
#endif
  hgcpu_mine->calls->wait_block(hgcpu_mine, hgcpu_linear(), count);
  threadIdx = here;
  hgcpu_waited = true;
}
HGCPU_INLINE void __syncthreads(HGCPU_LINE()) { hgcpu_wait_block(0 HGCPU_AT_LINE(, )); }
HGCPU_INLINE int __syncthreads_count(int predicate HGCPU_LINE(, )) {
  hgcpu_wait_block(predicate != 0 HGCPU_AT_LINE(, ));
  return (int)hgcpu_mine->last_sum;
}
HGCPU_INLINE int __syncthreads_or(int predicate HGCPU_LINE(, )) { return __syncthreads_count(predicate HGCPU_AT_LINE(, )) != 0; }
HGCPU_INLINE int __syncthreads_and(int predicate HGCPU_LINE(, )) {
  hgcpu_wait_block(predicate != 0 HGCPU_AT_LINE(, ));
  return hgcpu_mine->last_sum == hgcpu_mine->last_arrivals;
}

// -- kernels split at their barriers: see split.py ---------------------------------------------------------------------

template <class T>
HGCPU_INLINE void hgcpu_keep(T& to, const T& from) {
  static_assert(__is_trivially_copyable(T), "its destructor would run too early");
  __builtin_memcpy(&to, &from, sizeof to);
}
// What stands between barriers, for each thread.
template <class F>
HGCPU_INLINE void hgcpu_threads(const dim3& n, const F& part) {
  for (uint32_t z = 0; z < n.z; ++z) {
    for (uint32_t y = 0; y < n.y; ++y) {
      threadIdx.y = y;
      threadIdx.z = z;
      const size_t row = ((size_t)z * n.y + y) * n.x;
      HGCPU_ROW
      for (uint32_t x = 0; x < n.x; ++x) {
        threadIdx.x = x;
        part(row + x);
      }
    }
  }
}
HGCPU_INLINE bool hgcpu_all(const bool* gone, uint32_t threads) {
  bool all = true;
  for (uint32_t i = 0; i < threads; ++i) all &= gone[i];
  return all;
}

// -- warp operations: see docs/cpu_kernels.md for which lanes take part ---------------------------------------------------

enum hgcpu_kind : uint32_t { hgcpu_exchanges = 1, hgcpu_votes, hgcpu_matches, hgcpu_meets, hgcpu_reduces };
static constexpr uint64_t hgcpu_all_lanes = HGCPU_WARP_SIZE == 64 ? ~0ull : 0xffffffffull;

// Wait with the other lanes. `site` tells apart the operations of one statement that lanes may leave out (weave.py).
template <uint32_t site>
HGCPU_INLINE const hgcpu_warp* hgcpu_meet(hgcpu_kind kind, uint64_t mask, uint64_t value, bool vote) {
  hgcpu_fiber* self = hgcpu_mine->self;
  self->place = site ? (self->leaf & ~0xffffffffull) | 0x80000000u | site : self->leaf++;
  self->kind = kind;
  self->mask = mask & hgcpu_all_lanes;
  self->value = value;
  self->vote = vote;
  const dim3 here = threadIdx;
  const hgcpu_warp* warp = hgcpu_mine->calls->wait_warp(hgcpu_mine, hgcpu_linear());
  threadIdx = here;
  hgcpu_waited = true;
  return warp;
}
// What lane `from` brought; a lane that does not take part gives back the caller's own value.
template <uint32_t site, class T>
HGCPU_INLINE T hgcpu_exchange(uint64_t mask, T value, unsigned from) {
  static_assert(sizeof(T) <= 8, "a warp shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  const hgcpu_warp* warp = hgcpu_meet<site>(hgcpu_exchanges, mask, bits, false);
  if (from < HGCPU_WARP_SIZE && (warp->active >> from & 1)) __builtin_memcpy(&value, &warp->values[from], sizeof value);
  return value;
}
// The lane that a lane reads from.
HGCPU_INLINE constexpr unsigned hgcpu__shfl_from(unsigned self, int lane, int width) {
  return (self & ~(unsigned)(width - 1)) | ((unsigned)lane & (unsigned)(width - 1));
}
HGCPU_INLINE constexpr unsigned hgcpu__shfl_up_from(unsigned self, unsigned delta, int width) {
  const unsigned first = self & ~(unsigned)(width - 1);
  return self - first < delta ? self : self - delta;
}
HGCPU_INLINE constexpr unsigned hgcpu__shfl_down_from(unsigned self, unsigned delta, int width) {
  const unsigned within = self & (unsigned)(width - 1);
  return within + delta >= (unsigned)width ? self : self + delta;
}
HGCPU_INLINE constexpr unsigned hgcpu__shfl_xor_from(unsigned self, int mask, int width) {
  const unsigned other = self ^ (unsigned)mask;
  return other >= ((self + (unsigned)width) & ~(unsigned)(width - 1)) ? self : other;
}
template <uint32_t site>
struct hgcpu_at_site {
#define HGCPU_SHUFFLE(name, argument)                                                                             \
  template <class T>                                                                                              \
  static HGCPU_INLINE T name(T value, argument which, int width = warpSize) {                                     \
    return hgcpu_exchange<site>(0, value, hgcpu##name##_from(__lane_id(), which, width));                         \
  }                                                                                                               \
  template <class T>                                                                                              \
  static HGCPU_INLINE T name##_sync(uint64_t mask, T value, argument which, int width = warpSize) {               \
    return hgcpu_exchange<site>(mask, value, hgcpu##name##_from(__lane_id(), which, width));                      \
  }
  HGCPU_SHUFFLE(__shfl, int)
  HGCPU_SHUFFLE(__shfl_up, unsigned)
  HGCPU_SHUFFLE(__shfl_down, unsigned)
  HGCPU_SHUFFLE(__shfl_xor, int)
#undef HGCPU_SHUFFLE
  static HGCPU_INLINE unsigned long long __ballot(int p) { return hgcpu_meet<site>(hgcpu_votes, 0, 0, p != 0)->votes; }
  static HGCPU_INLINE int __any(int p) { return __ballot(p) != 0; }
  static HGCPU_INLINE int __all(int p) {
    const hgcpu_warp* warp = hgcpu_meet<site>(hgcpu_votes, 0, 0, p != 0);
    return warp->votes == warp->active;
  }
  static HGCPU_INLINE unsigned long long __activemask() { return hgcpu_meet<site>(hgcpu_meets, 0, 0, false)->active; }
  static HGCPU_INLINE unsigned long long __ballot_sync(uint64_t mask, int p) {
    return hgcpu_meet<site>(hgcpu_votes, mask, 0, p != 0)->votes & mask;
  }
  static HGCPU_INLINE int __any_sync(uint64_t mask, int p) { return __ballot_sync(mask, p) != 0; }
  static HGCPU_INLINE int __all_sync(uint64_t mask, int p) { return __ballot_sync(mask, p) == (mask & hgcpu_all_lanes); }
  static HGCPU_INLINE void __syncwarp(uint64_t mask = ~0ull) { hgcpu_meet<site>(hgcpu_meets, mask, 0, false); }
  template <class T>
  static HGCPU_INLINE unsigned long long hgcpu_match(uint64_t mask, T value) {
    static_assert(sizeof(T) <= 8, "a warp match compares at most 8 bytes");
    uint64_t bits = 0, same = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    const hgcpu_warp* warp = hgcpu_meet<site>(hgcpu_matches, mask, bits, false);
    for (unsigned lane = 0; lane < HGCPU_WARP_SIZE; lane++) same |= (uint64_t)(warp->values[lane] == bits) << lane;
    return same & warp->active;
  }
  template <class T>
  static HGCPU_INLINE unsigned long long __match_any(T value) {
    return hgcpu_match(0, value);
  }
  template <class T>
  static HGCPU_INLINE unsigned long long __match_any_sync(uint64_t mask, T value) {
    return hgcpu_match(mask, value) & mask;
  }
#define HGCPU_REDUCTION(name, text)                                                                               \
  template <class T>                                                                                              \
  static HGCPU_INLINE T name(uint64_t mask, T value) {                                                            \
    static_assert(sizeof(T) <= 8, "a warp reduction takes at most 8 bytes");                                      \
    uint64_t bits = 0;                                                                                            \
    __builtin_memcpy(&bits, &value, sizeof value);                                                                \
    const hgcpu_warp* warp = hgcpu_meet<site>(hgcpu_reduces, mask, bits, false);                                  \
    uint64_t lanes = warp->active & mask;                                                                         \
    T all = value, other;                                                                                         \
    for (bool first = true; lanes; lanes &= lanes - 1, first = false) {                                           \
      __builtin_memcpy(&other, &warp->values[__builtin_ctzll(lanes)], sizeof other);                              \
      all = first ? other : T(text);                                                                              \
    }                                                                                                             \
    return all;                                                                                                   \
  }
#define HGCPU_REDUCTIONS(X)                                                                                       \
  X(__reduce_add_sync, all + other)                                                                               \
  X(__reduce_min_sync, other < all ? other : all)                                                                 \
  X(__reduce_max_sync, all < other ? other : all)                                                                 \
  X(__reduce_and_sync, all & other)                                                                               \
  X(__reduce_or_sync, all | other)                                                                                \
  X(__reduce_xor_sync, all ^ other)
  HGCPU_REDUCTIONS(HGCPU_REDUCTION)
#undef HGCPU_REDUCTION
};
#define HGCPU_REDUCTION(name, text)                \
  template <class T>                               \
  HGCPU_INLINE T name(uint64_t mask, T value) {    \
    return hgcpu_at_site<0>::name(mask, value);    \
  }
HGCPU_REDUCTIONS(HGCPU_REDUCTION)
#undef HGCPU_REDUCTION
#undef HGCPU_REDUCTIONS
#define HGCPU_SHUFFLE(name, argument)                                                                             \
  template <class T>                                                                                              \
  HGCPU_INLINE T name(T value, argument which, int width = warpSize) {                                            \
    return hgcpu_at_site<0>::name(value, which, width);                                                           \
  }                                                                                                               \
  template <class T>                                                                                              \
  HGCPU_INLINE T name##_sync(uint64_t mask, T value, argument which, int width = warpSize) {                      \
    return hgcpu_at_site<0>::name##_sync(mask, value, which, width);                                              \
  }
HGCPU_SHUFFLE(__shfl, int)
HGCPU_SHUFFLE(__shfl_up, unsigned)
HGCPU_SHUFFLE(__shfl_down, unsigned)
HGCPU_SHUFFLE(__shfl_xor, int)
#undef HGCPU_SHUFFLE
HGCPU_INLINE unsigned long long __ballot(int p) { return hgcpu_at_site<0>::__ballot(p); }
HGCPU_INLINE int __any(int p) { return hgcpu_at_site<0>::__any(p); }
HGCPU_INLINE int __all(int p) { return hgcpu_at_site<0>::__all(p); }
HGCPU_INLINE unsigned long long __activemask() { return hgcpu_at_site<0>::__activemask(); }
HGCPU_INLINE unsigned long long __ballot_sync(uint64_t mask, int p) { return hgcpu_at_site<0>::__ballot_sync(mask, p); }
HGCPU_INLINE int __any_sync(uint64_t mask, int p) { return hgcpu_at_site<0>::__any_sync(mask, p); }
HGCPU_INLINE int __all_sync(uint64_t mask, int p) { return hgcpu_at_site<0>::__all_sync(mask, p); }
HGCPU_INLINE void __syncwarp(uint64_t mask = ~0ull) { hgcpu_at_site<0>::__syncwarp(mask); }
template <class T>
HGCPU_INLINE unsigned long long __match_any(T value) {
  return hgcpu_at_site<0>::__match_any(value);
}
template <class T>
HGCPU_INLINE unsigned long long __match_any_sync(uint64_t mask, T value) {
  return hgcpu_at_site<0>::__match_any_sync(mask, value);
}

#include "lanes.h"

// Where a thread stands (hgcpu_fiber::path), kept by what weave.py inserts: a function, a statement, a loop, a turn of it.
HGCPU_INLINE uint32_t hgcpu_enter(hgcpu_fiber* self, uint64_t place) {
  if (self->depth == self->room) hgcpu_mine->calls->grow(self);
  self->path[self->depth] = place;
  return self->depth++;
}
struct hgcpu_frame {
  hgcpu_fiber* self;
  uint32_t depth;
  // A kernel begins at 0, whatever threads have run on this fiber before.
  HGCPU_INLINE hgcpu_frame() : self(hgcpu_mine->self), depth(hgcpu_enter(self, self->depth ? self->leaf : 0)) { self->leaf = 0; }
  HGCPU_INLINE ~hgcpu_frame() {
    self->depth = depth;
    self->leaf = self->path[depth] + 1;
  }
};
HGCPU_INLINE void hgcpu_at(uint64_t statement) { hgcpu_mine->self->leaf = statement << 32; }
struct hgcpu_loop {
  hgcpu_fiber* self;
  uint32_t depth;
  uint64_t place;
  HGCPU_INLINE hgcpu_loop(uint64_t statement)
      : self(hgcpu_mine->self), depth(hgcpu_enter(self, statement << 32)), place(statement << 32) {
    self->leaf = place;
  }
  HGCPU_INLINE void turn() {
    self->depth = depth + 1;
    self->path[depth]++;
    self->leaf = place;
  }
  HGCPU_INLINE ~hgcpu_loop() {
    self->depth = depth;
    self->leaf = place;
  }
};
struct hgcpu_turn {
  hgcpu_loop& loop;
  HGCPU_INLINE hgcpu_turn(hgcpu_loop& in) : loop(in) { loop.turn(); }
  HGCPU_INLINE ~hgcpu_turn() { loop.turn(); }
};

// -- failing --------------------------------------------------------------------------------------------------------------

[[noreturn]] HGCPU_INLINE void hgcpu_stop(int status) {
  hgcpu_worker* worker = hgcpu_find_worker();
  worker->calls->stop(worker, status);
  __builtin_unreachable();
}
[[noreturn]] inline __attribute__((noinline)) void hgcpu_assert_failed(const char* text, const char* file, int line) {
  hgcpu_find_worker()->calls->failed(text, file, line, &blockIdx.x, &threadIdx.x);
  hgcpu_stop(710);  // hipErrorAssert
}
[[noreturn]] HGCPU_INLINE void __trap() { hgcpu_stop(719); }  // hipErrorLaunchFailure
#if !HGCPU_STD
[[noreturn]] HGCPU_INLINE void abort() { hgcpu_stop(719); }
#endif

#undef assert
#if defined(NDEBUG)
#define assert(...) ((void)0)
#else
#define assert(...) ((__VA_ARGS__) ? (void)0 : hgcpu_assert_failed(#__VA_ARGS__, __FILE__, __LINE__))
#endif

// The block's dynamic shared memory; a library has it if it declares some.
extern "C" __attribute__((visibility("hidden"))) __thread char hgcpu_dynamic[];

#endif
