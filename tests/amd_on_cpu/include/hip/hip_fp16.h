// Half precision for kernels that run on the host.
#pragma once

struct __half {
  _Float16 value;
  __half() = default;
  __half(float x) : value(_Float16(x)) {}
  __half(double x) : value(_Float16(x)) {}
  __half(int x) : value(_Float16(x)) {}
  operator float() const { return float(value); }
  __half& operator+=(__half other) { return *this = __half(float(value) + float(other.value)); }
  __half& operator-=(__half other) { return *this = __half(float(value) - float(other.value)); }
  __half& operator*=(__half other) { return *this = __half(float(value) * float(other.value)); }
};
using half = __half;

struct __half2 {
  __half x, y;
};
using half2 = __half2;

inline __half operator+(__half a, __half b) { return float(a) + float(b); }
inline __half operator-(__half a, __half b) { return float(a) - float(b); }
inline __half operator*(__half a, __half b) { return float(a) * float(b); }
inline __half operator/(__half a, __half b) { return float(a) / float(b); }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __half2float(__half x) { return x; }
inline __half __hadd(__half a, __half b) { return a + b; }
inline __half __hsub(__half a, __half b) { return a - b; }
inline __half __hmul(__half a, __half b) { return a * b; }
inline __half __hfma(__half a, __half b, __half c) { return float(a) * float(b) + float(c); }
inline bool __hlt(__half a, __half b) { return float(a) < float(b); }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
