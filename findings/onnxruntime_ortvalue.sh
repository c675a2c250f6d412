#!/usr/bin/env bash
# onnxruntime's OrtValue.update_inplace copies bytes: float64 1.0 given to a float32 value becomes 0 and 1.875 in turn.
#
# Versions: onnxruntime 1.32.0 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: `update_inplace`, the way to give new inputs to a session with a CUDA graph, converts an array of another type or refuses
#   it, as `run` does, and checks the shape. `ortvalue_from_numpy` copies "only if the device is NOT cpu", as documented.
# What happens: neither type nor shape is looked at: float64 and int32 are taken for the bits of float32, and a (3, 2) fills a
#   (2, 3), without an error. On the CPU a value of a contiguous array shares its memory, also of a read-only one, which
#   update_inplace then changes; one of a slice with gaps or of a transposed array is a copy.
#
# Output seen, which this script compares with what it prints:
#> float32 (2, 3), updated by float32 ones: [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
#> float32 (2, 3), updated by float64 ones: [[0.0, 1.875, 0.0], [1.875, 0.0, 1.875]]
#> float32 (2, 3), updated by int32 ones: [[1.401e-45, 1.401e-45, 1.401e-45], [1.401e-45, 1.401e-45, 1.401e-45]]
#> float32 (2, 3), updated by float32 [[1, 2], [3, 4], [5, 6]]: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
#> memory of an array, after its value was updated: [[1.0, 1.0], [1.0, 1.0]]
#> memory of a read-only array, after its value was updated: [[1.0, 1.0], [1.0, 1.0]]
#> memory of x[:, :1], after its value was updated: [[0.0, 0.0], [0.0, 0.0]]
#> memory of x[:1], after its value was updated: [[1.0, 1.0], [0.0, 0.0]]
#> memory of x.T, after its value was updated: [[0.0, 0.0], [0.0, 0.0]]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from onnxruntime import OrtValue

def update(text, array):
    value = OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    value.update_inplace(array)
    print(f"float32 (2, 3), updated by {text}: {[[float(f'{x:.4g}') for x in row] for row in value.numpy().tolist()]}")

ones = np.ones((2, 3), np.float32)
update("float32 ones", ones)
update("float64 ones", ones.astype("float64"))
update("int32 ones", ones.astype("int32"))
update("float32 [[1, 2], [3, 4], [5, 6]]", np.arange(1, 7, dtype=np.float32).reshape(3, 2))

def shares(text, base, pick):
    value = OrtValue.ortvalue_from_numpy(pick(base))
    value.update_inplace(np.ones_like(pick(base)))
    print(f"memory of {text}, after its value was updated: {base.tolist()}")

frozen = np.zeros((2, 2), np.float32)
frozen.setflags(write=False)
shares("an array", np.zeros((2, 2), np.float32), lambda x: x)
shares("a read-only array", frozen, lambda x: x)
shares("x[:, :1]", np.zeros((2, 2), np.float32), lambda x: x[:, :1])
shares("x[:1]", np.zeros((2, 2), np.float32), lambda x: x[:1])
shares("x.T", np.zeros((2, 2), np.float32), lambda x: x.T)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
