#!/usr/bin/env bash
# pyopencl.array adds x and x.T by memory order, and sums and counts in the type of the elements.
#
# Versions: pyopencl 2026.1.4, pocl-binary-distribution 3.0 (a CPU device), Mako 1.4.3, NumPy 2.4.6, CPython 3.11
# Guess: arrays behave as NumPy's, or operations that need more than contiguous memory raise, as assignments, slices and
#   broadcasts do (`NotImplementedError: cannot assign between arrays of differing strides`).
# What happens: elementwise operations, comparisons, selections and dot products of two arrays with the same shape and
#   other strides pair the elements by their place in memory, in silence: x.T == x is true everywhere. The transposed
#   array itself has the right strides and `get` returns it right. A comparison is int8, and a sum has the type of the
#   elements: 300 true elements are counted as 44.
#
# Output seen, which this script compares with what it prints:
#> x: [[0.0, 1.0], [2.0, 3.0]] and x.T: [[0.0, 2.0], [1.0, 3.0]]
#> x.T + x: [[0.0, 4.0], [2.0, 6.0]]
#> x + x.T: [[0.0, 2.0], [4.0, 6.0]]
#> x.T == x: [[1, 1], [1, 1]]
#> dot(x, x.T): 14.0
#> y[...] = x.T: NotImplementedError cannot assign between arrays of differing strides
#> sum of 300 times (0 == 0): 44 int8
#> sum of uint8 [200, 100]: 44 uint8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyopencl==2026.1.4 pocl-binary-distribution==3.0 mako==1.4.3 \
    numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
import pyopencl
import pyopencl.array as cla

queue = pyopencl.CommandQueue(pyopencl.create_some_context(interactive=False))

def device(values, dtype):
    return cla.to_device(queue, np.array(values, dtype))

x = device([[0, 1], [2, 3]], "float64")
print("x:", x.get().tolist(), "and x.T:", x.T.get().tolist())
print("x.T + x:", (x.T + x).get().tolist())
print("x + x.T:", (x + x.T).get().tolist())
print("x.T == x:", (x.T == x).get().tolist())
print("dot(x, x.T):", cla.dot(x, x.T).get())
y = x.copy()
try:
    y[...] = x.T
except NotImplementedError as error:
    print("y[...] = x.T: NotImplementedError", error)
for text, array in (
    ("300 times (0 == 0)", device([0] * 300, "int32") == 0),
    ("uint8 [200, 100]", device([200, 100], "uint8")),
):
    total = cla.sum(array).get()
    print(f"sum of {text}:", total, total.dtype)
PROGRAM
PYOPENCL_NO_CACHE=1 POCL_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
