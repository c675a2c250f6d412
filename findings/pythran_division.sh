#!/usr/bin/env bash
# Pythran's `//` by a negative integer is wrong: 8 // -2 is -5 and 0 // -3 is -1; `%` has other signs and divmod truncates.
#
# Versions: pythran 0.19.0, NumPy 2.4.6, CPython 3.11; needs g++
# Guess: integers are divided as in Python, or truncated as in C++; (a // b) * b + a % b is a, and divmod(a, b) is the pair of both.
# What happens: by a negative divisor the integer quotients of 0 and of positive numbers are one too low, in arrays, of numbers and
#   by constants; of floats they are right. `%` adds the divisor to C++'s remainder if the dividend is negative: -7 % -4 is -7,
#   outside the range of both languages, and 7 % -4 is 3. divmod is C++'s. By a positive divisor `//` and `%` are Python's.
#
# Output seen, which this script compares with what it prints:
#> -7 // 2 is -4, -7 % 2 is 1, divmod (-3, -1), Python (-4, 1)
#> 8 // -2 is -5, 8 % -2 is 0, divmod (-4, 0), Python (-4, 0)
#> 7 // -2 is -5, 7 % -2 is 1, divmod (-3, 1), Python (-4, -1)
#> -7 // -2 is 3, -7 % -2 is -3, divmod (3, -1), Python (3, -1)
#> 6 // -3 is -3, 6 % -3 is 0, divmod (-2, 0), Python (-2, 0)
#> 0 // -3 is -1, 0 % -3 is 0, divmod (0, 0), Python (0, 0)
#> 7 // -4 is -3, 7 % -4 is 3, divmod (-1, 3), Python (-2, -1)
#> -7 // -4 is 1, -7 % -4 is -7, divmod (1, -3), Python (1, -3)
#> int64 [8, 7, 0, -7] by [-2, -4, -3, -4]: // [-5, -3, -1, 1], NumPy [-4, -2, 0, 1]
#>   % [0, 3, 0, -7], NumPy [0, -1, 0, -3]
#> float64 [8, 7, 0, -7] by [-2, -4, -3, -4]: // [-4.0, -2.0, -0.0, 1.0], NumPy [-4.0, -2.0, -0.0, 1.0]
#>   % [0.0, 3.0, 0.0, -7.0], NumPy [-0.0, -1.0, -0.0, -3.0]
#> by the constant -4, 8 and -7: (-3, 0) (1, -7)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pythran==0.19.0 numpy==2.4.6
cat >"$folder/division.py" <<'MODULE'
#pythran export of_arrays(int64[], int64[])
#pythran export of_arrays(float64[], float64[])
def of_arrays(a, b):
    return a // b, a % b

#pythran export of_numbers(int, int)
def of_numbers(a, b):
    return a // b, a % b, divmod(a, b)

#pythran export by_constant(int)
def by_constant(a):
    return a // -4, a % -4
MODULE
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from compiled import by_constant, of_arrays, of_numbers

for a, b in ((-7, 2), (8, -2), (7, -2), (-7, -2), (6, -3), (0, -3), (7, -4), (-7, -4)):
    quotient, remainder, both = of_numbers(a, b)
    both = tuple(map(int, both))
    print(f"{a} // {b} is {quotient}, {a} % {b} is {remainder}, divmod {both}, Python {divmod(a, b)}")
a, b = np.array([8, 7, 0, -7]), np.array([-2, -4, -3, -4])
for kind in ("int64", "float64"):
    quotient, remainder = of_arrays(a.astype(kind), b.astype(kind))
    expected = np.divmod(a.astype(kind), b.astype(kind))
    print(f"{kind} {a.tolist()} by {b.tolist()}: // {quotient.tolist()}, NumPy {expected[0].tolist()}")
    print(f"  % {remainder.tolist()}, NumPy {expected[1].tolist()}")
print("by the constant -4, 8 and -7:", by_constant(8), by_constant(-7))
PROGRAM
"$folder/venv/bin/pythran" "$folder/division.py" -o "$folder/compiled.so"
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
