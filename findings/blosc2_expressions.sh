#!/usr/bin/env bash
# In Blosc2 (x / y).compute() of integers 7 and 2 is 3.0 and (x / y)[:2] is 3.5; `%` and uint64 differ between the two as well.
#
# Versions: blosc2 4.14.1 (numexpr 2.14.2), NumPy 2.4.6, CPython 3.11
# Guess: an expression of blosc2 arrays has NumPy's dtype and values, whether it is computed or sliced.
# What happens: computed, `/` of two arrays of integers divides them as integers and returns floats, `%` has the sign of the
#   dividend where `//` rounds down, and int64 powers are rounded to double. Sliced, those are right, but comparisons and
#   remainders of uint64 are those of int64, and integers that meet float32 go to float32, though the result is float64. In
#   both `//` of uint64 is that of int64, int32 powers saturate, and a number out of an array's range wraps. `argmax` with
#   NaN is 0; `mean` of float16 sums in float16.
#
# Output seen, which this script compares with what it prints:
#> x / y of int32 [7, -7], [2, 2]: float32 [3.0, -3.0], sliced [3.5, -3.5], NumPy float64 [3.5, -3.5]
#> x / y of int64 [7, -7], [2, 2]: float64 [3.0, -3.0], sliced [3.5, -3.5], NumPy float64 [3.5, -3.5]
#> x / y of uint8 [7, 9], [2, 4]: float64 [3.0, 2.0], sliced [3.5, 2.25], NumPy float64 [3.5, 2.25]
#> x / 2 of int32 [7, -7]: float64 [3.5, -3.5], sliced [3.5, -3.5], NumPy float64 [3.5, -3.5]
#> x // y of int32 [7, -7], [2, 2]: int32 [3, -4], sliced [3, -4], NumPy int32 [3, -4]
#> x % y of int32 [7, -7], [2, 2]: int32 [1, -1], sliced [1, 1], NumPy int32 [1, 1]
#> x % y of float32 [7, -7], [2, 2]: float32 [1.0, -1.0], sliced [1.0, 1.0], NumPy float32 [1.0, 1.0]
#> x > y of uint64 [9223372036854775808, 5], [1, 1]: bool [True, True], sliced [False, True], NumPy bool [True, True]
#> x // y of uint64 [9223372036854775808, 5], [3, 3]: uint64 [15372286728091293013, 1], sliced [15372286728091293013, 1], NumPy uint64 [3074457345618258602, 1]
#> x % y of uint64 [9223372036854775808, 5], [7, 7]: uint64 [1, 5], sliced [6, 5], NumPy uint64 [1, 5]
#> x + y of int32 and float32 [16777217, 5], [0, 0]: float64 [16777217.0, 5.0], sliced [16777216.0, 5.0], NumPy float64 [16777217.0, 5.0]
#> x * y of int64 and float32 [16777217, 5], [1, 1]: float64 [16777217.0, 5.0], sliced [16777216.0, 5.0], NumPy float64 [16777217.0, 5.0]
#> x ** y of int32 [3, 2], [20, 3]: int32 [-2147483648, 8], sliced [-2147483648, 8], NumPy int32 [-808182895, 8]
#> x ** y of int64 [3, 2], [39, 3]: int64 [4052555153018976256, 8], sliced [4052555153018976267, 8], NumPy int64 [4052555153018976267, 8]
#> x + 300 of uint8 [1, 2]: uint8 [45, 46], sliced [45, 46], NumPy OverflowError: Python integer 300 out of bounds for uint8
#> x + 2**31 of int32 [1, 2]: int32 [-2147483647, -2147483646], sliced [-2147483647, -2147483646], NumPy OverflowError: Python integer 2147483648 out of bounds for int32
#> argmax of float32 [1.0, nan, 2.0]: 0, NumPy 1
#> mean of 5000 float16 100: inf, NumPy 100.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check blosc2==4.14.1 numexpr==2.14.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import blosc2
import numpy as np

warnings.simplefilter("ignore")  # overflow in float16

def show(text, function, *operands):
    arrays = [np.array(values, kind) for kind, values in operands]
    expression = function(*map(blosc2.asarray, arrays))
    computed, sliced = expression.compute()[:2], expression[:2]
    try:
        result = function(*arrays)
        expected = f"{result.dtype} {result.tolist()}"
    except OverflowError as error:
        expected = f"OverflowError: {error}"
    kinds = " and ".join(dict.fromkeys(kind for kind, _ in operands))
    values = ", ".join(str(values) for _, values in operands)
    print(f"{text} of {kinds} {values}: {computed.dtype} {computed.tolist()}, sliced {sliced.tolist()}, NumPy {expected}")

divide, remainder = (lambda x, y: x / y), (lambda x, y: x % y)
for kind in "int32", "int64":
    show("x / y", divide, (kind, [7, -7]), (kind, [2, 2]))
show("x / y", divide, ("uint8", [7, 9]), ("uint8", [2, 4]))
show("x / 2", lambda x: x / 2, ("int32", [7, -7]))
show("x // y", lambda x, y: x // y, ("int32", [7, -7]), ("int32", [2, 2]))
for kind in "int32", "float32":
    show("x % y", remainder, (kind, [7, -7]), (kind, [2, 2]))
show("x > y", lambda x, y: x > y, ("uint64", [2**63, 5]), ("uint64", [1, 1]))
show("x // y", lambda x, y: x // y, ("uint64", [2**63, 5]), ("uint64", [3, 3]))
show("x % y", remainder, ("uint64", [2**63, 5]), ("uint64", [7, 7]))
show("x + y", lambda x, y: x + y, ("int32", [2**24 + 1, 5]), ("float32", [0, 0]))
show("x * y", lambda x, y: x * y, ("int64", [2**24 + 1, 5]), ("float32", [1, 1]))
show("x ** y", lambda x, y: x**y, ("int32", [3, 2]), ("int32", [20, 3]))
show("x ** y", lambda x, y: x**y, ("int64", [3, 2]), ("int64", [39, 3]))
show("x + 300", lambda x: x + 300, ("uint8", [1, 2]))
show("x + 2**31", lambda x: x + 2**31, ("int32", [1, 2]))
x = np.array([1, np.nan, 2], np.float32)
print(f"argmax of float32 {x.tolist()}: {blosc2.asarray(x).argmax()}, NumPy {x.argmax()}")
x = np.full(5000, 100, np.float16)
print(f"mean of 5000 float16 100: {blosc2.asarray(x).mean()}, NumPy {x.mean()}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
