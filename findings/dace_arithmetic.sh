#!/usr/bin/env bash
# DaCe compiles NumPy's `//`, `%`, integer powers, sums and means to those of C++: -7 // 2 is -3, the mean of 200 and 100 is 22.
#
# Versions: dace 1.0.2, networkx 3.4.2, NumPy 1.26.4, CPython 3.11; needs CMake and g++
# Guess: `@dace.program` keeps what the same function yields when Python calls it: DaCe documents NumPy's functions, and its
#   symbolic sizes have a floor division.
# What happens: `//` and `%` of integers truncate, and 65537 ** 2 is -2**31. Sums and means of uint8 wrap at 256, a sum of
#   booleans is 1, int32 < uint32 compares as unsigned, and max drops NaN. The function that was decorated, `program.f`,
#   yields NumPy's values.
#
# Output seen, which this script compares with what it prints:
#> a, b: [-7, 7] [2, 65537]
#> quotient: [-3, 0], called from Python [-4, 0]
#> remainder: [-1, 7], called from Python [1, 7]
#> square: [4, -2147483648], called from Python [4, 131073]
#> less: [0, 0], called from Python [1, 0]
#> small, truth, x: [200, 100] [True, True] [nan, 1.0]
#> total: [44], called from Python [300]
#> mean: [22.0], called from Python [150.0]
#> count: [1], called from Python [2]
#> largest: [1.0], called from Python [nan]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dace==1.0.2 networkx==3.4.2 numpy==1.26.4
cat >"$folder/program.py" <<'PROGRAM'
import dace
import numpy as np

@dace.program
def integers(a: dace.int32[2], b: dace.int32[2], quotient: dace.int32[2], remainder: dace.int32[2], square: dace.int32[2]):
    quotient[:] = a // b
    remainder[:] = a % b
    square[:] = b**2

@dace.program
def mixed(a: dace.int32[2], u: dace.uint32[2], less: dace.int32[2]):
    less[:] = a < u

@dace.program
def reductions(
    small: dace.uint8[2], truth: dace.bool[2], x: dace.float32[2],
    total: dace.int64[1], mean: dace.float64[1], count: dace.int64[1], largest: dace.float32[1],
):
    total[0] = np.sum(small)
    mean[0] = np.mean(small)
    count[0] = np.sum(truth)
    largest[0] = np.max(x)

def show(program, inputs, results):
    results = {name: np.zeros(count, kind) for name, (count, kind) in results.items()}
    expected = {name: result.copy() for name, result in results.items()}
    program(**inputs, **results)
    program.f(**inputs, **expected)
    for name, result in results.items():
        print(f"{name}: {result.tolist()}, called from Python {expected[name].tolist()}")

a, b = np.array([-7, 7], np.int32), np.array([2, 65537], np.int32)
print("a, b:", a.tolist(), b.tolist())
show(integers, {"a": a, "b": b}, {"quotient": (2, "i4"), "remainder": (2, "i4"), "square": (2, "i4")})
show(mixed, {"a": a, "u": np.array([1, 1], np.uint32)}, {"less": (2, "i4")})
inputs = {"small": np.array([200, 100], np.uint8), "truth": np.array([True, True]), "x": np.array([np.nan, 1], np.float32)}
print("small, truth, x:", *(array.tolist() for array in inputs.values()))
show(reductions, inputs, {"total": (1, "i8"), "mean": (1, "f8"), "count": (1, "i8"), "largest": (1, "f4")})
PROGRAM
DACE_CONFIG="$folder/dace.conf" DACE_default_build_folder="$folder/cache" "$folder/venv/bin/python" -W ignore "$folder/program.py" |
    tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
