#!/usr/bin/env bash
# DaCe reads an array in Fortran order as if it were in C order, writes to read-only arrays, and takes arrays of other shapes.
#
# Versions: dace 1.0.2, networkx 3.4.2, NumPy 1.26.4, CPython 3.11; needs CMake and g++
# Guess: a program whose argument is declared as `dace.float32[2, 3]` gets arrays of that type, shape and order: others are
#   refused, as views are, converted as Numba's and JAX's are, or at least warned of, as another dtype is.
# What happens: only the address is passed. `np.asfortranarray(x)`, `x.T * 1` and `np.array(x.T)`, which own their memory and are
#   no views for DaCe, are read in the order of memory, without an error or a warning; so are arrays of shape (3, 2). An array
#   with `writeable=False` is written. A function without declared types compiles for the strides that it gets.
#
# Output seen, which this script compares with what it prints:
#> C order: [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
#> a view, tall.T: TypeError
#> np.asfortranarray(x): [[0.0, 6.0, 2.0], [8.0, 4.0, 10.0]]
#> np.array(tall.T): [[0.0, 6.0, 2.0], [8.0, 4.0, 10.0]]
#> tall.T * 1: [[0.0, 6.0, 2.0], [8.0, 4.0, 10.0]]
#> result in Fortran order: [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]
#> np.asfortranarray(x), undeclared: [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
#> shape (3, 2): [[0.0, 6.0, 2.0], [8.0, 4.0, 10.0]]
#> read-only result: [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dace==1.0.2 networkx==3.4.2 numpy==1.26.4
cat >"$folder/program.py" <<'PROGRAM'
import dace
import numpy as np

@dace.program
def double(x: dace.float32[2, 3], y: dace.float32[2, 3]):
    y[:] = x * 2

@dace.program
def double_undeclared(x, y):
    y[:] = x * 2

def show(text, x, y=None, program=double):
    y = np.zeros((2, 3), np.float32) if y is None else y
    try:
        program(x, y)
        print(f"{text}: {y.tolist()}")
    except TypeError as error:
        print(f"{text}: {type(error).__name__}")

x = np.array([[0, 1, 2], [3, 4, 5]], np.float32)
tall = np.array([[0, 3], [1, 4], [2, 5]], np.float32)
frozen = np.zeros((2, 3), np.float32)
frozen.setflags(write=False)
show("C order", x)
show("a view, tall.T", tall.T)
show("np.asfortranarray(x)", np.asfortranarray(x))
show("np.array(tall.T)", np.array(tall.T))
show("tall.T * 1", tall.T * 1)
show("result in Fortran order", x, np.zeros((2, 3), np.float32, order="F"))
show("np.asfortranarray(x), undeclared", np.asfortranarray(x), program=double_undeclared)
show("shape (3, 2)", tall)
show("read-only result", x, frozen)
PROGRAM
DACE_CONFIG="$folder/dace.conf" DACE_default_build_folder="$folder/cache" PATH="$folder/venv/bin:$PATH" \
    "$folder/venv/bin/python" -W ignore "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
