#!/usr/bin/env bash
# Taichi's kernels write into read-only NumPy arrays and into `bytes`, and lose what they write to an array given twice.
#
# Versions: taichi 1.7.4 (its CPU backend), NumPy 2.4.6, CPython 3.11
# Guess: an array that NumPy marks as read-only is refused by a kernel that writes to it, as Numba and Cython's memoryviews
#   refuse it; a kernel that only reads takes it. A kernel that is given x.T and x works on one memory.
# What happens: of an array in C order the address is passed, whatever the flag says: a constant, a `bytes` object and what a
#   broadcast array repeats change without an error. An array in Fortran order is copied before and copied back after every
#   kernel: a read-only one is refused even if the kernel only reads it, and one that the kernel only reads overwrites what
#   the kernel wrote to the same memory through another argument.
#
# Output seen, which this script compares with what it prints:
#> bytes: 0000000000000000 0100000001000000
#> read-only array, increment: [[1, 1], [1, 1]]
#> row that np.broadcast_to made read-only, increment: [1, 1, 1]
#> read-only Fortran array, increment: ValueError
#> read-only Fortran array, total: ValueError
#> set_corner(x, x): [[0, 10], [0, 0]]
#> set_corner(x, x.T): [[0, 0], [10, 0]]
#> set_corner(x.T, x): [[0, 0], [0, 0]]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check taichi==1.7.4 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
import taichi as ti

ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)

@ti.kernel
def increment(x: ti.types.ndarray(dtype=ti.i32)):
    for index in ti.grouped(x):
        x[index] += 1

@ti.kernel
def total(x: ti.types.ndarray(dtype=ti.i32)) -> ti.i32:
    result = 0
    for index in ti.grouped(x):
        result += x[index]
    return result

@ti.kernel
def set_corner(x: ti.types.ndarray(dtype=ti.i32), y: ti.types.ndarray(dtype=ti.i32)):
    y[0, 1] = x[0, 0] + 10

data = bytes(8)
before = data.hex()
increment(np.frombuffer(data, np.int32))
print(f"bytes: {before} {data.hex()}")
frozen = np.zeros((2, 2), np.int32)
frozen.setflags(write=False)
increment(frozen)
print(f"read-only array, increment: {frozen.tolist()}")
row = np.zeros(3, np.int32)
increment(np.broadcast_to(row, (1, 3)))
print(f"row that np.broadcast_to made read-only, increment: {row.tolist()}")
fortran = np.zeros((2, 2), np.int32, order="F")
fortran.setflags(write=False)
for kernel in (increment, total):
    try:
        print(kernel.__name__, kernel(fortran))
    except ValueError as error:
        print(f"read-only Fortran array, {kernel.__name__}: {type(error).__name__}")
for text, pick in (("x, x", lambda x: (x, x)), ("x, x.T", lambda x: (x, x.T)), ("x.T, x", lambda x: (x.T, x))):
    x = np.zeros((2, 2), np.int32)
    set_corner(*pick(x))
    print(f"set_corner({text}): {x.tolist()}")
PROGRAM
ENABLE_TAICHI_HEADER_PRINT=0 "$folder/venv/bin/python" "$folder/program.py" | sed '/^\[Taichi\]/d' | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
