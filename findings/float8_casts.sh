#!/usr/bin/env bash
# PyTorch and ml_dtypes cast to the same 8-bit floats differently: infinity, overflow and the sign.
#
# Versions: torch 2.13.0 (CPU), ml_dtypes 0.6.0, NumPy 2.4.6, CPython 3.11
# Guess: formats of the OCP documents with equal rounding; both libraries overflow to the same value, and an unsigned
#   type cannot hold -2.
# What happens: torch's cast to float8_e4m3fn saturates, of infinity too (448), where ml_dtypes gives NaN; torch's cast
#   to float8_e5m2 does not saturate, so one library has both rules. To float8_e8m0fnu, torch drops the sign (-2 becomes
#   2) and takes 0 as 2**-127, where ml_dtypes gives NaN for both. ml_dtypes casts NaN to float4_e2m1fn as -0 and
#   infinity as 6. Clip before the cast, and make code that compares libraries expect it.
#
# Output seen, which this script compares with what it prints:
#> float8_e4m3fn of [448.0, 464.0, 465.0, 1000000000.0, inf, nan]
#>   torch     [448.0, 448.0, 448.0, 448.0, 448.0, nan]
#>   ml_dtypes [448.0, 448.0, nan, nan, nan, nan]
#> float8_e5m2 of [57344.0, 61440.0, 1000000000.0, inf, nan]
#>   torch     [57344.0, inf, inf, inf, nan]
#>   ml_dtypes [57344.0, inf, inf, inf, nan]
#> float8_e8m0fnu of [-2.0, 0.0, 3.0, 6.0, inf, nan]
#>   torch     [2.0, 5.877471754111438e-39, 4.0, 8.0, nan, nan]
#>   ml_dtypes [nan, nan, 4.0, 8.0, nan, nan]
#> float4_e2m1fn of NaN, infinity: [-0.0, 6.0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import ml_dtypes
import numpy as np
import torch

np.seterr(all="ignore")
values = {
    "float8_e4m3fn": [448, 464, 465, 1e9, float("inf"), float("nan")],
    "float8_e5m2": [57344, 61440, 1e9, float("inf"), float("nan")],
    "float8_e8m0fnu": [-2, 0, 3, 6, float("inf"), float("nan")],
}
for name, row in values.items():
    print(name, "of", [float(value) for value in row])
    print("  torch    ", torch.tensor(row, dtype=torch.float32).to(getattr(torch, name)).float().tolist())
    print("  ml_dtypes", np.array(row, np.float32).astype(getattr(ml_dtypes, name)).astype(np.float32).tolist())
print("float4_e2m1fn of NaN, infinity:", np.array([np.nan, np.inf]).astype(ml_dtypes.float4_e2m1fn).astype(float).tolist())
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
