#!/usr/bin/env bash
# Xarray's weighted mean of uint8 200 and 100 is 22, its mean of float16 is infinity unless skipna=False, and integrals wrap.
#
# Versions: xarray 2026.9.0 (pandas 3.1.1), NumPy 2.4.6, CPython 3.11
# Guess: `mean`, `sum` and `weighted(...)` of small integers are computed in a wider type, as in NumPy's mean and average; `skipna`
#   has no effect on values without NaN; the integral over coordinates that fall does not depend on their type.
# What happens: `weighted` multiplies and adds in the type of the values and the weights, and adds the weights in theirs, so that
#   sums, means and variances wrap; bool weights do not change the type. `mean` of float16 adds in float16, unless
#   `skipna=False`. `integrate` adds neighbours in uint8, and subtracts coordinates in uint8, where `differentiate` does not.
#
# Output seen, which this script compares with what it prints:
#> uint8 [200, 100] with uint8 weights [1, 1]:
#>   sum uint8 44, weights float32 2.0, mean float32 22.0, var float32 18884.0
#>   NumPy's average 150.0, sum uint64 300, mean float64 150.0
#> uint8 [200, 100] with int64 weights [1, 1]:
#>   sum int64 300, weights float64 2.0, mean float64 150.0, var float64 2500.0
#>   NumPy's average 150.0, sum uint64 300, mean float64 150.0
#> int32 [1000, 1001, 1002] with uint8 weights [200, 200, 200]:
#>   sum int32 600600, weights float32 88.0, mean float64 6825.0, var float64 231265750.0
#>   NumPy's average 1001.0, sum int64 3003, mean float64 1001.0
#> uint8 [200, 100] with bool weights [True, True]:
#>   sum uint8 44, weights float64 2.0, mean float64 22.0, var float64 18884.0
#>   NumPy's average 150.0, sum uint64 300, mean float64 150.0
#> mean of 5000 float16 100: float16 inf, skipna=False: float16 100.0, NumPy float16 100.0
#> integral of uint8 [200, 100] over 0, 1: 22.0
#> [3, 1, 0] over int64 3, 2, 0: integral -3.0, derivatives [2.0, 1.5, 0.5]
#> [3, 1, 0] over uint8 3, 2, 0: integral 637.0, derivatives [2.0, 1.5, 0.5]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 pandas==3.1.1 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import numpy as np
import xarray

warnings.simplefilter("ignore")  # overflow in float16

def array(values, kind, coordinates=None):
    return xarray.DataArray(np.array(values, kind), dims="x", coords={} if coordinates is None else {"x": coordinates})

def text(result):
    return f"{result.dtype} {result.item()}"

def show(values, kind, weights, weights_kind):
    x, w = array(values, kind), array(weights, weights_kind)
    weighted = x.weighted(w)
    print(f"{kind} {values} with {weights_kind} weights {weights}:")
    total = weighted.sum_of_weights()
    print(f"  sum {text(weighted.sum())}, weights {text(total)}, mean {text(weighted.mean())}, var {text(weighted.var())}")
    print(f"  NumPy's average {np.average(x.values, weights=w.values.astype(float))}, sum {text(x.sum())}, mean {text(x.mean())}")

show([200, 100], "uint8", [1, 1], "uint8")
show([200, 100], "uint8", [1, 1], "int64")
show([1000, 1001, 1002], "int32", [200, 200, 200], "uint8")
show([200, 100], "uint8", [True, True], "bool")
x = array([100] * 5000, "float16")
print(f"mean of 5000 float16 100: {text(x.mean())}, skipna=False: {text(x.mean(skipna=False))}, NumPy {text(x.values.mean())}")
print(f"integral of uint8 [200, 100] over 0, 1: {array([200, 100], 'uint8', [0, 1]).integrate('x').item()}")
for kind in "int64", "uint8":
    x = array([3.0, 1, 0], "float64", np.array([3, 2, 0], kind))
    print(f"[3, 1, 0] over {kind} 3, 2, 0: integral {x.integrate('x').item()}, derivatives {x.differentiate('x').values.tolist()}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
