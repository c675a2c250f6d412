#!/usr/bin/env bash
# MLX adds integers in an integer type before it divides, so that their means and variances wrap.
#
# Versions: mlx 0.32.4 and mlx-cpu 0.32.4 (the CPU device), NumPy 2.4.6, CPython 3.11
# Guess: `mean` of integers yields float32, so it adds in float32 and loses digits at worst; `cumsum` widens where
#   `sum` does; uint64 with int64 is an integer, or float64 as in NumPy; the sign of NaN is NaN.
# What happens: the sum is int32, uint32, int64 or uint64 and wraps, and only the quotient is float32: the mean of two
#   2**30 is -2**30, the mean of 2**25 uint8 values 128 is 0, and equal values have a variance of 1e18. float16 is added
#   in float16, so that the mean of two 60000 is infinity. `sum` of uint8 is uint32 and its `cumsum` uint8. uint64 with
#   int64 is float32, which rounds above 2**24. The sign of NaN is 0, but not of a complex one. Cast to float32 before
#   `mean` and `var`.
#
# Output seen, which this script compares with what it prints:
#> mean of two 2**30, int32: mlx -1073741824.0, NumPy 1073741824.0
#> mean of two 2**62, int64: mlx -4.611686018427388e+18, NumPy 4.611686018427388e+18
#> mean of 2**25 128, uint8: mlx 0.0, NumPy 128.0
#> mean of 2**25 -100, int8: mlx 28.0, NumPy -100.0
#> variance of four 2**30, int32: mlx 1.152921504606847e+18, NumPy 0.0
#> mean of two 60000, float16: mlx inf, NumPy 60000.0
#> mean of two 2**30, cast to float32: 1073741824.0
#> sum of three 100, uint8: 300 uint32
#> cumsum of three 100, uint8: 44 uint8
#> 2**24 + 1, uint64, plus 0, int64: 16777216.0 float32
#> sign of NaN, float32: 0.0
#> sign of NaN, complex64: (nan+nanj)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

def both(label, function, array):
    with np.errstate(over="ignore"):
        print(f"{label}: mlx {getattr(mx, function)(mx.array(array)).item()}, NumPy {float(getattr(np, function)(array))}")

def typed(label, array):
    print(f"{label}: {array.item()} {str(array.dtype).removeprefix('mlx.core.')}")

both("mean of two 2**30, int32", "mean", np.full(2, 2**30, np.int32))
both("mean of two 2**62, int64", "mean", np.full(2, 2**62, np.int64))
both("mean of 2**25 128, uint8", "mean", np.full(2**25, 128, np.uint8))
both("mean of 2**25 -100, int8", "mean", np.full(2**25, -100, np.int8))
both("variance of four 2**30, int32", "var", np.full(4, 2**30, np.int32))
both("mean of two 60000, float16", "mean", np.full(2, 60000, np.float16))
print("mean of two 2**30, cast to float32:", mx.mean(mx.full(2, 2**30, mx.int32).astype(mx.float32)).item())
hundreds = mx.full(3, 100, mx.uint8)
typed("sum of three 100, uint8", mx.sum(hundreds))
typed("cumsum of three 100, uint8", mx.cumsum(hundreds)[-1])
typed("2**24 + 1, uint64, plus 0, int64", mx.array(2**24 + 1, mx.uint64) + mx.array(0, mx.int64))
print("sign of NaN, float32:", mx.sign(mx.array(float("nan"))).item())
print("sign of NaN, complex64:", mx.sign(mx.array(complex("nan"))).item())
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
