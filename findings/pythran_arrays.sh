#!/usr/bin/env bash
# Pythran's functions write into read-only arrays and `bytes`, and take `>i4` for `int32`: 1 is read as 16777216.
#
# Versions: pythran 0.19.0, NumPy 2.4.6, CPython 3.11; needs g++
# Guess: an exported `int32[]` takes what its error message names, arrays of that type, order and stride: a read-only array that
#   is written, or one of the other byte order, is refused, as slices with gaps and int64 are.
# What happens: neither the flag nor the byte order is looked at. A constant and a `bytes` object change. Sums of `>i4` are of
#   swapped values, and an increment adds to the highest byte: 1 becomes 16777217.
#
# Output seen, which this script compares with what it prints:
#> read-only [1, 2], increment: [2, 2]
#> bytes, increment: 0000000000000000 0100000000000000
#> <i4 of stride 8, total: TypeError
#> <i8 of stride 8, total: TypeError
#> >i4 of stride 4, total: 50331648
#> >i4 [1, 2], increment: [16777217, 2]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pythran==0.19.0 numpy==2.4.6
cat >"$folder/functions.py" <<'MODULE'
import numpy as np

#pythran export increment(int32[])
def increment(x):
    x[0] += 1

#pythran export total(int32[])
def total(x):
    return np.sum(x)
MODULE
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from compiled import increment, total

frozen = np.array([1, 2], np.int32)
frozen.setflags(write=False)
increment(frozen)
print("read-only [1, 2], increment:", frozen.tolist())
data = bytes(8)
before = data.hex()
increment(np.frombuffer(data, np.int32))
print("bytes, increment:", before, data.hex())
for array in (np.arange(4, dtype=np.int32)[::2], np.array([1, 2], np.int64), np.array([1, 2], ">i4")):
    try:
        print(f"{array.dtype.str} of stride {array.strides[0]}, total: {total(array)}")
    except TypeError as error:
        print(f"{array.dtype.str} of stride {array.strides[0]}, total: {type(error).__name__}")
swapped = np.array([1, 2], ">i4")
increment(swapped)
print(">i4 [1, 2], increment:", swapped.tolist())
PROGRAM
"$folder/venv/bin/pythran" "$folder/functions.py" -o "$folder/compiled.so"
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
