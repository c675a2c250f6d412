#!/usr/bin/env bash
# NumPy's functions for NaN do nothing on bfloat16, and sort leaves an array with NaN unsorted.
#
# Versions: ml_dtypes 0.6.0, NumPy 2.4.6, CPython 3.11
# Guess: ml_dtypes registers comparison and isnan, so a bfloat16 array behaves like a float16 one: NaN sorts last,
#   nanmean skips it.
# What happens: NumPy asks `issubdtype(dtype, inexact)`, which is False: nanmean and nansum give NaN, nan_to_num changes
#   neither NaN nor infinity, and assert_array_equal holds NaN unequal to NaN (while array_equal(equal_nan=True) is
#   True). The registered comparison puts NaN nowhere, so sort and median depend on where it stands. The float8 types
#   sort alike. Convert to float32 first.
#
# Output seen, which this script compares with what it prints:
#> float16
#>   sort [1.0, 2.0, 3.0, 4.0, 5.0, nan]
#>   median nan
#>   nanmean, nansum 2.0 4.0
#>   nan_to_num [0.0, 9.0, 1.0]
#>   array_equal True
#>   assert_array_equal passes
#> bfloat16
#>   sort [4.0, 5.0, nan, 1.0, 2.0, 3.0]
#>   median 1.0
#>   nanmean, nansum nan nan
#>   nan_to_num [nan, inf, 1.0]
#>   array_equal True
#>   assert_array_equal fails
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import ml_dtypes
import numpy as np

np.seterr(all="ignore")
for dtype in (np.float16, ml_dtypes.bfloat16):
    holed = np.array([np.nan, 1, 3], dtype)
    print(np.dtype(dtype).name)
    print("  sort", np.sort(np.array([5, 4, np.nan, 1, 3, 2], dtype)).tolist())
    print("  median", float(np.median(np.array([np.nan, 2, 1], dtype))))
    print("  nanmean, nansum", float(np.nanmean(holed)), float(np.nansum(holed)))
    print("  nan_to_num", np.nan_to_num(np.array([np.nan, np.inf, 1], dtype), posinf=9).tolist())
    print("  array_equal", np.array_equal(holed, holed.copy(), equal_nan=True))
    try:
        np.testing.assert_array_equal(holed, holed.copy())
        print("  assert_array_equal passes")
    except AssertionError:
        print("  assert_array_equal fails")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
