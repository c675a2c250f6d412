#!/usr/bin/env bash
# safetensors.numpy saves a transposed or sliced array with wrong values, and bfloat16 that it does not load.
#
# Versions: safetensors 0.8.0, NumPy 2.4.6, ml_dtypes 0.6.0, CPython 3.11
# Guess: `save` writes elements in C order, as `tobytes` does, or refuses an array that is not contiguous; what it saves,
#   `load` of the same module returns.
# What happens: `save` takes as many bytes as the array has from the address of its first element, whatever the strides:
#   the transpose of [[0, 1, 2], [3, 4, 5]] comes back as [[0, 1], [2, 3], [4, 5]], every other element as the first half.
#   No error and no warning. bfloat16 and the float8 types of ml_dtypes are saved, and `load` raises KeyError. Pass
#   np.ascontiguousarray(array), and view small floats as integers.
#
# Output seen, which this script compares with what it prints:
#> transposed [[0, 3], [1, 4], [2, 5]] -> [[0, 1], [2, 3], [4, 5]]
#> every other [0, 2, 4] -> [0, 1, 2]
#> column [[1], [4]] -> [[1], [2]]
#> contiguous copy [[0, 3], [1, 4], [2, 5]] -> [[0, 3], [1, 4], [2, 5]]
#> bfloat16 KeyError 'BF16'
#> float8_e4m3fn KeyError 'F8_E4M3'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0
cat >"$folder/program.py" <<'PROGRAM'
import ml_dtypes
import numpy as np
from safetensors.numpy import load, save

grid = np.arange(6).reshape(2, 3)
for name, array in {
    "transposed": grid.T,
    "every other": np.arange(6)[::2],
    "column": grid[:, 1:2],
    "contiguous copy": np.ascontiguousarray(grid.T),
}.items():
    print(name, array.tolist(), "->", load(save({"array": array}))["array"].tolist())
for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
    data = save({"array": np.ones(4, dtype)})
    try:
        print(load(data))
    except KeyError as error:
        print(np.dtype(dtype).name, "KeyError", error)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
