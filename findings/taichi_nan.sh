#!/usr/bin/env bash
# In Taichi's kernels NaN is equal to itself and NaN * 0 is 0 by default; with fast_math=False `x != x` is false for NaN too.
#
# Versions: taichi 1.7.4 (its CPU backend), NumPy 2.4.6, CPython 3.11
# Guess: `x != x` is true for NaN, as in Python, C and CUDA; NaN passes through products. If the default is not so,
#   `fast_math=False` is.
# What happens: by default x * 0 and x - x are 0, x / x is 1 and x == x is true, and quotients differ from the nearest float32,
#   but `ti.math.isnan` finds NaN. With `fast_math=False` `!=` is an ordered comparison: of NaN both `==` and `!=`
#   are false. In both modes `ti.max` and `ti.atomic_max` drop NaN, and subnormal numbers are taken for 0.
#
# Output seen, which this script compares with what it prints:
#> default, x of nan, inf, 1e-40, 2.0:
#> x * 0: [0.0, 0.0, 0.0, 0.0]
#> x - x: [0.0, 0.0, 0.0, 0.0]
#> x / x: [1.0, 1.0, 1.0, 1.0]
#> x == x: [1.0, 1.0, 1.0, 1.0]
#> x != x: [0.0, 0.0, 0.0, 0.0]
#> isnan(x): [1.0, 0.0, 0.0, 0.0]
#> max(x, 1): [1.0, inf, 1.0, 2.0]
#> x == 0: [0.0, 0.0, 1.0, 0.0]
#> atomic_max of 1, nan, 2: 2.0
#> exact quotients k / 49 of float32, k = 1..199: 146
#> fast_math=False, x of nan, inf, 1e-40, 2.0:
#> x * 0: [nan, nan, 0.0, 0.0]
#> x - x: [nan, nan, 0.0, 0.0]
#> x / x: [nan, nan, nan, 1.0]
#> x == x: [0.0, 1.0, 1.0, 1.0]
#> x != x: [0.0, 0.0, 0.0, 0.0]
#> isnan(x): [1.0, 0.0, 0.0, 0.0]
#> max(x, 1): [1.0, inf, 1.0, 2.0]
#> x == 0: [0.0, 0.0, 1.0, 0.0]
#> atomic_max of 1, nan, 2: 2.0
#> exact quotients k / 49 of float32, k = 1..199: 199
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check taichi==1.7.4 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import sys
import numpy as np
import taichi as ti

options = {"fast_math=False": {"fast_math": False}, "default": {}}[sys.argv[1]]
ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False, **options)
FLOATS = ti.types.ndarray(dtype=ti.f32, ndim=1)

@ti.kernel
def compute(x: FLOATS, results: ti.types.ndarray(dtype=ti.f32, ndim=2)):
    for i in x:
        a = x[i]
        results[0, i] = a * 0
        results[1, i] = a - a
        results[2, i] = a / a
        results[3, i] = 1.0 if a == a else 0.0
        results[4, i] = 1.0 if a != a else 0.0
        results[5, i] = 1.0 if ti.math.isnan(a) else 0.0
        results[6, i] = ti.max(a, 1.0)
        results[7, i] = 1.0 if a == 0 else 0.0

@ti.kernel
def largest(x: FLOATS) -> ti.f32:
    result = x[0]
    for i in x:
        ti.atomic_max(result, x[i])
    return result

@ti.kernel
def divide(x: FLOATS, results: FLOATS):
    for i in x:
        results[i] = x[i] / 49.0

print(f"{sys.argv[1]}, x of nan, inf, 1e-40, 2.0:")
x = np.array([np.nan, np.inf, 1e-40, 2], np.float32)
results = np.zeros((8, 4), np.float32)
compute(x, results)
for name, row in zip(("x * 0", "x - x", "x / x", "x == x", "x != x", "isnan(x)", "max(x, 1)", "x == 0"), results):
    print(f"{name}: {row.tolist()}")
print("atomic_max of 1, nan, 2:", largest(np.array([1, np.nan, 2], np.float32)))
k = np.arange(1, 200).astype(np.float32)
quotients = np.zeros_like(k)
divide(k, quotients)
print("exact quotients k / 49 of float32, k = 1..199:", (quotients == k / np.float32(49)).sum())
PROGRAM
for options in default fast_math=False; do
    ENABLE_TAICHI_HEADER_PRINT=0 "$folder/venv/bin/python" "$folder/program.py" "$options"
done | sed '/^\[Taichi\]/d' | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
