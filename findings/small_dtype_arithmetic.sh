#!/usr/bin/env bash
# Small dtypes of ml_dtypes reduce in their own type, and int4 plus 1 is int8.
#
# Versions: ml_dtypes 0.6.0, NumPy 2.4.6, CPython 3.11
# Guess: as for NumPy's own: sum of integers in 64 bits, mean of 16-bit floats in float32, a Python number does not
#   change the array's dtype (NEP 50).
# What happens: sum and mean keep int4 and bfloat16: twenty int4 ones sum to 4, the mean of twenty threes is 0, the mean
#   of 5000 bfloat16 ones is 0.0513, where float16 gives 1. int4 + 1 is int8 (bfloat16 + 1 stays), uint4 + 1 is int8
#   too, and any of them times 2.0 leaves the type: float16 from int4, float32 from bfloat16. promote_types(bfloat16,
#   float16) raises, though adding such arrays gives float32. Give `dtype=` to reductions and casts to results.
#
# Output seen, which this script compares with what it prints:
#> sum and mean of int8 20 3.0
#> sum and mean of int4 4 0
#> sum and mean of float16 5000.0 1.0
#> sum and mean of bfloat16 256.0 0.0513
#> int8 + 1: int8   * 2.0: float64
#> int4 + 1: int8   * 2.0: float16
#> uint4 + 1: int8   * 2.0: float16
#> float16 + 1: float16   * 2.0: float16
#> bfloat16 + 1: bfloat16   * 2.0: float32
#> bfloat16 + float16: float32
#> promote_types: DTypePromotionError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import ml_dtypes
import numpy as np

int4, uint4, bfloat16 = ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.bfloat16
for dtype in (np.int8, int4):
    print("sum and mean of", np.dtype(dtype).name, np.ones(20, dtype).sum(), np.full(20, 3, dtype).mean())
for dtype in (np.float16, bfloat16):
    print("sum and mean of", np.dtype(dtype).name, float(np.ones(5000, dtype).sum()), round(float(np.ones(5000, dtype).mean()), 4))
for dtype in (np.int8, int4, uint4, np.float16, bfloat16):
    ones = np.ones(2, dtype)
    print(np.dtype(dtype).name, "+ 1:", (ones + 1).dtype.name, "  * 2.0:", (ones * 2.0).dtype.name)
print("bfloat16 + float16:", (np.ones(2, bfloat16) + np.ones(2, np.float16)).dtype.name)
try:
    print(np.promote_types(bfloat16, np.float16))
except TypeError as error:
    print("promote_types:", type(error).__name__)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
