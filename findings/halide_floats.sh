#!/usr/bin/env bash
# In Halide exp(infinity) and exp(NaN) are 0, log(infinity) is 88.7, and the sum of 300 true values is false.
#
# Versions: halide 21.0.0 (its CPU targets, named in full so that the machine does not matter), NumPy 2.4.6, CPython 3.11
# Guess: exp and log are within a few last places of the C library's, and so are the ends of their range; what the default
#   gives up for speed around NaN, the feature `strict_float` gives back; `sum` of booleans counts them, or is refused.
# What happens: exp of float32 is infinity from 89 on and 0 again for 1e10, infinity and NaN; log of infinity and of NaN are
#   numbers below 90; pow(2, infinity), pow(2, NaN) and pow(0, -1) are 0. `strict_float` restores NaN != NaN and infinity
#   minus infinity, but none of these; float64 has them right. Without the feature f16c NaN cast to float16 is infinity.
#   `sum` adds in the type of its argument, and bool has one bit: it tells whether the count is odd. `maximum` drops NaN,
#   and `max` does unless NaN is its second argument. Mask infinity and NaN before exp and log, and cast before `sum`.
#
# Output seen, which this script compares with what it prints:
#> exp of 88 89 1e+09 1e+10 inf nan: 1.652e+38 inf inf 0 0 0
#> log of inf nan: 88.72 89.13
#> exp of 88 89 1e+09 1e+10 inf nan, strict_float: 1.652e+38 inf inf 0 0 0
#> log of inf nan, strict_float: 88.72 89.13
#> exp of 88 89 1e+09 1e+10 inf nan, float64: 1.652e+38 4.49e+38 inf inf inf nan
#> log of inf nan, float64: inf nan
#> pow of (inf, -1), (2, inf), (2, nan), (0, -1): 0 0 0 0
#> nan == nan: 1
#> inf - inf: 0.0
#> nan == nan, strict_float: 0
#> inf - inf, strict_float: nan
#> float16 of nan: inf
#> float16 of nan, f16c: nan
#> sum of 300 true: False
#> sum of 301 true: True
#> sum of 300 uint8 ones: 44
#> maximum of 1 nan 0: 0.0
#> max of (nan, 1), (1, nan), strict_float: 1 nan
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check halide==21.0.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import halide as hl
import numpy as np

x = hl.Var("x")
inf, nan = float("inf"), float("nan")
PLAIN = "x86-64-linux-jit-sse41"
STRICT = PLAIN + "-strict_float"

def computed(target, function, *arrays):
    result = hl.Func("result")
    result[x] = function(*(hl.Buffer(array)[x] for array in arrays))
    return np.array(result.realize([len(arrays[0])], hl.Target(target)))

def reduced(function, array):
    elements, result = hl.RDom([(0, len(array))]), hl.Func("result")
    result[()] = function(hl.Buffer(array)[elements.x])
    return np.array(result.realize([], hl.Target(PLAIN))).item()

def shown(array):
    return " ".join(f"{value:.4g}" for value in array)

values = np.array([88, 89, 1e9, 1e10, inf, nan], np.float32)
for name, target, dtype in (("", PLAIN, "f4"), (", strict_float", STRICT, "f4"), (", float64", PLAIN, "f8")):
    print(f"exp of {shown(values)}{name}:", shown(computed(target, hl.exp, values.astype(dtype))))
    print(f"log of inf nan{name}:", shown(computed(target, hl.log, values[4:].astype(dtype))))
base, exponent = np.array([inf, 2, 2, 0], np.float32), np.array([-1, inf, nan, -1], np.float32)
print("pow of (inf, -1), (2, inf), (2, nan), (0, -1):", shown(computed(STRICT, hl.pow, base, exponent)))
for name, target in (("", PLAIN), (", strict_float", STRICT)):
    print(f"nan == nan{name}:", computed(target, lambda value: hl.u8(value == value), values[5:]).item())
    print(f"inf - inf{name}:", computed(target, lambda value: value - value, values[4:5]).item())
half = lambda value: hl.cast(hl.Float(16), value)
print("float16 of nan:", computed(STRICT, half, values[5:]).item())
print("float16 of nan, f16c:", computed(STRICT + "-avx-f16c", half, values[5:]).item())
for count in (300, 301):
    print(f"sum of {count} true:", reduced(hl.sum, np.ones(count, np.bool_)))
print("sum of 300 uint8 ones:", reduced(hl.sum, np.ones(300, np.uint8)))
print("maximum of 1 nan 0:", reduced(hl.maximum, np.array([1, nan, 0], np.float32)))
one, other = np.array([nan, 1], np.float32), np.array([1, nan], np.float32)
print("max of (nan, 1), (1, nan), strict_float:", shown(computed(STRICT, hl.max, one, other)))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | sed "/^Warning: .* emulated/d" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
