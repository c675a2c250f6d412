"""Numbers of CPU kernels where GPUs define more than C++ does: conversions, and functions within HIP's bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from device.test_cpu_kernels import compiler, i32, library, u32  # noqa: F401

from hipgraphdsl.compiler import Compiler

NUMBERS = r"""
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
__global__ void conversions(const float* f, int* o, unsigned* u, long long* l, unsigned long long* w) {
  int i = threadIdx.x;
  o[i] = __float2int_rz(f[i]); u[i] = __float2uint_rz(f[i]); l[i] = __double2ll_rn(f[i]); w[i] = __float2ull_rd(f[i]);
}
__global__ void functions(float* f, double* d, int* o) {
  f[0] = sinpif(-1e-6f); f[1] = sinpif(-1e-8f); f[2] = erfcxf(10.f); f[3] = norm3df(1e30f, 1e30f, 1e30f);
  d[0] = sinpi(-1e-15); d[1] = sinpi(-1e-20); d[2] = erfcx(27.0); d[3] = erfcx(30.0); d[4] = norm3d(1e200, 1e200, 1e200);
  d[5] = normcdf(-26.0); d[6] = erfcx(-1.0); d[7] = cospi(0.5); d[8] = sinpi(1e300);
  short s = -32768; signed char c = -128; o[0] = abs(s); o[1] = abs(c);
}
__global__ void fused(__half* x) { x[3] = __hfma(x[0], x[1], x[2]); }
template <class T> __global__ void narrow(const T* x, float* f, int n) {
  int i = threadIdx.x;
  if (i < n) { f[2 * i] = __hip_bfloat16(x[i]); f[2 * i + 1] = __half((double)x[i]); }
}
"""
NARROWED = {"double": "f8", "float": "f4", "int": "i4", "long long": "i8", "unsigned long long": "u8"}
NAMES = "; ".join(["conversions", "functions", "fused", *(f"narrow<{name}>" for name in NARROWED)])


def test_conversions_saturate(compiler: Compiler) -> None:  # noqa: F811
    f = np.array([1e20, -1e20, np.nan, -5.5, 3e9, 2.0**31, -(2.0**31), 0.5], "f4")
    o, u, wide, w = np.zeros(8, i32), np.zeros(8, u32), np.zeros(8, "i8"), np.zeros(8, "u8")
    library(compiler, NUMBERS, NAMES).run("conversions", 1, 8, f, o, u, wide, w)
    assert o.tolist() == [2**31 - 1, -(2**31), 0, -5, 2**31 - 1, 2**31 - 1, -(2**31), 0]
    assert u.tolist() == [2**32 - 1, 0, 0, 0, 3_000_000_000, 2**31, 0, 0]
    assert wide.tolist() == [2**63 - 1, -(2**63), 0, -6, 3_000_000_000, 2**31, -(2**31), 0]
    assert w.tolist() == [2**64 - 1, 0, 0, 0, 3_000_000_000, 2**31, 0, 0]


def test_functions_keep_their_digits_at_the_ends_of_their_ranges(compiler: Compiler) -> None:  # noqa: F811
    f, d, o = np.zeros(4, "f4"), np.zeros(9), np.zeros(2, i32)
    library(compiler, NUMBERS, NAMES).run("functions", 1, 1, f, d, o)
    assert np.allclose(f, [-3.1415927e-6, -3.1415927e-8, 0.056140993, 1.7320508e30], rtol=2e-7, atol=0)
    wanted = [
        -3.141592653589793e-15, -3.141592653589793e-20, 0.02088160799042094, 0.01879588886141675, 1.7320508075688774e200,
        2.476063315503389e-149, 5.008980080762283, 0.0, 0.0,
    ]  # fmt: skip
    assert np.allclose(d, wanted, rtol=1e-15, atol=0)
    assert o.tolist() == [32768, 128]


def test_fused_half_rounds_once(compiler: Compiler) -> None:  # noqa: F811
    # (1 + 2^-10)^2 = 1 + 2^-9 + 2^-20 with -2^-20 is exact; through a product of halves it is not.
    x = np.array([1 + 2**-10, 1 + 2**-10, -(1 + 2**-9), 0], "f2")
    library(compiler, NUMBERS, NAMES).run("fused", 1, 1, x)
    assert float(x[3]) == 2.0**-20


def nearest(value: Fraction, digits: int, smallest: int, largest: int) -> float:
    """The nearest number with so many binary digits, ties to even; exponents of its last digit and of its first, at most."""
    unit = Fraction(2) ** max(abs(value).__floor__().bit_length() - digits, smallest)
    while abs(value) < unit * 2 ** (digits - 1) and unit > Fraction(2) ** smallest:
        unit /= 2
    rounded = round(value / unit) * unit  # Python rounds ties to even
    return float(rounded) if abs(rounded) < 2 ** (largest + 1) else float("inf") if rounded > 0 else -float("inf")


@pytest.mark.parametrize("name", NARROWED)
def test_narrow_floats_are_rounded_once(compiler: Compiler, name: str) -> None:  # noqa: F811
    """Through float32, a value just above the middle of two bfloat16 becomes the middle, and then the even one."""
    dtype = np.dtype(NARROWED[name])
    if dtype.kind == "f":
        near = [1 + sign * 2.0**-at for at in (8, 9, 11, 12) for sign in (1, -1)]
        exact = [n * (1 + sign * 2.0**-40) for n in near for sign in (0, 1, -1)]
        exact += [n * scale for n in exact for scale in (2.0**-14, 2.0**-24, 2.0**-126, 2.0**-133, 65536, 2.0**127, -2)]
        exact += [0.0, 1e-300, 3.4e38, 65519.999999, 65520.0]
    else:
        most = np.iinfo(dtype).max
        exact = [2**at + 2 ** (at - 8) + more for at in range(8, most.bit_length()) for more in (-1, 0, 1)]
        exact += [3 * 2 ** (at - 1) + 2 ** (at - 8) + more for at in range(8, most.bit_length()) for more in (-1, 0, 1)]
        exact += [most, most - 2047, *(-n for n in exact if dtype.kind == "i")]
    x = np.array(exact, dtype)
    f = np.zeros(2 * x.size, "f4")
    library(compiler, NUMBERS, NAMES).run(f"narrow<{name}>", 1, x.size, x, f, i32(x.size))
    values = [Fraction(value) for value in x.tolist()]
    assert f[::2].tolist() == [nearest(value, 8, -133, 127) for value in values]
    if dtype != np.uint64 and dtype != np.int64:  # a cast to double would round those first
        assert f[1::2].tolist() == [nearest(value, 11, -24, 15) for value in values]


def test_integers_of_128_bits_divide(compiler: Compiler) -> None:  # noqa: F811
    # No processor has it: the compiler's own library does it, which is linked only where it is needed.
    source = """__global__ void k(unsigned long long* x) {
      unsigned __int128 wide = ((unsigned __int128)x[0] << 64) | x[1]; x[2] = (unsigned long long)(wide / x[3]); }"""
    x = np.array([3, 5, 0, 1000], "u8")
    library(compiler, source, "k").run("k", 1, 1, x)
    assert int(x[2]) == (3 * 2**64 + 5) // 1000
