#!/usr/bin/env bash
# Awkward Array drops NaN in reductions along an axis and keeps it in those without; sorted, NaN is first, in NumPy last.
#
# Versions: awkward 2.14.0 (awkward-cpp 57), NumPy 2.4.6, CPython 3.11
# Guess: `max`, `min`, `argmax` and `sort` treat NaN as NumPy's do, and `max(x)` is the largest of `max(x, axis=1)`; softmax
#   subtracts the maximum, as usual; sums of float32 are as exact along an axis as without.
# What happens: `ak.max(x)` is NaN and `ak.max(x, axis=1)` has none: of a list of NaN alone it is -inf. `argmax` skips NaN except
#   the first element, so that `x[argmax(x)]` is not `max(x)`, whichever axis. softmax of 1000 is NaN. Along an inner axis
#   float32 is added in one running sum, which stops at 2**24.
#
# Output seen, which this script compares with what it prints:
#> lists: [[1.0, nan, 2.0], [nan, 1.0, 2.0], [nan, nan, nan]]
#> max along axis 1: [2.0, 2.0, -inf], NumPy [nan, nan, nan]
#> max of the first: nan, along axis 0: nan, NumPy nan
#> min along axis 1: [1.0, 1.0, inf], NumPy [nan, nan, nan]
#> min of the first: nan, along axis 0: nan, NumPy nan
#> argmax along axis 1: [2, 0, 0], NumPy [1, 0, 0]
#> argmax of the first: 2, along axis 0: 2, NumPy 1
#> argmin along axis 1: [0, 0, 0], NumPy [1, 0, 0]
#> argmin of the first: 0, along axis 0: 0, NumPy 1
#> max of all: nan, largest of max along axis 1 of two lists: 2.0
#> sort of the first: [nan, 1.0, 2.0], NumPy [1.0, 2.0, nan]
#> argsort of the first: [1, 0, 2], NumPy [0, 2, 1]
#> softmax of [1000, 1001]: [nan, nan]
#> sum of 2**24 + 10 float32 ones: 16777226, along axis 1: 16777216, NumPy 16777226
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check awkward==2.14.0 awkward-cpp==57 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import awkward as ak
import numpy as np

warnings.simplefilter("ignore")  # overflow in exp
nan = np.nan
array = np.array([[1, nan, 2], [nan, 1, 2], [nan, nan, nan]])
lists = ak.Array(array.tolist())
print("lists:", array.tolist())
for name in "max", "min", "argmax", "argmin":
    awkward, numpy = getattr(ak, name), getattr(np, name)
    print(f"{name} along axis 1: {awkward(lists, axis=1).to_list()}, NumPy {numpy(array, axis=1).tolist()}")
    print(f"{name} of the first: {awkward(lists[0], axis=None)}, along axis 0: {awkward(lists[0], axis=0)}, NumPy {numpy(array[0])}")
print(f"max of all: {ak.max(lists)}, largest of max along axis 1 of two lists: {ak.max(ak.max(lists[:2], axis=1))}")
print(f"sort of the first: {ak.sort(lists[0]).to_list()}, NumPy {np.sort(array[0]).tolist()}")
print(f"argsort of the first: {ak.argsort(lists[0]).to_list()}, NumPy {np.argsort(array[0]).tolist()}")
print(f"softmax of [1000, 1001]: {ak.softmax(ak.Array([1000.0, 1001.0])).to_list()}")
ones = np.ones((1, 2**24 + 10), np.float32)
lists = ak.from_numpy(ones)
print(f"sum of 2**24 + 10 float32 ones: {ak.sum(lists):.0f}, along axis 1: {ak.sum(lists, axis=1)[0]:.0f}, NumPy {ones.sum(1)[0]:.0f}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
