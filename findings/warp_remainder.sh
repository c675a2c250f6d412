#!/usr/bin/env bash
# In Warp's kernels `//` rounds down and `%` has the sign of the dividend; the same function called from Python differs.
#
# Versions: warp-lang 1.19.0 (its CPU device), NumPy 2.4.6, CPython 3.11
# Guess: `//` and `%` belong together, as in Python or as in C: (a // b) * b + a % b is a. A `wp.func` called from Python
#   yields what it yields in a kernel, as Warp's own functions do (`wp.round(2.5)` is 3.0 in both).
# What happens: in a kernel -7 // 3 is -3 and -7 % 3 is -1, which give -10, for integers and floats: an index that wraps
#   around below 0 stays negative. Called from Python the function is Python's: `%` gives 2, `/` of integers does not
#   truncate, `and` yields an operand, `wp.uint8(300.0)` stays 300, and products of `int` do not wrap at 32 bits.
#
# Output seen, which this script compares with what it prints:
#> a // b of (-7, 3): kernel -3, Python -3
#> a % b of (-7, 3): kernel -1, Python 2
#> (a // b) * b + a % b of (-7, 3): kernel -10, Python -7
#> a % b of (-7.0, 3.0): kernel -1.0, Python 2.0
#> a / b of (7, 2): kernel 3, Python 3.5
#> int(a and b) of (4, 2): kernel 1, Python 2
#> a * b of (65536, 65537): kernel 65536, Python 4295032832
#> float(wp.uint8(a)) of (300.0, 0.0): kernel 44.0, Python 300.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check warp-lang==1.19.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import sys
import warp as wp

wp.config.log_level = wp.LOG_ERROR
wp.config.kernel_cache_dir = sys.argv[1] + "/cache"

@wp.func
def quotient(a: int, b: int):
    return a // b

@wp.func
def remainder(a: int, b: int):
    return a % b

@wp.func
def both(a: int, b: int):
    return (a // b) * b + a % b

@wp.func
def float_remainder(a: float, b: float):
    return a % b

@wp.func
def ratio(a: int, b: int):
    return a / b

@wp.func
def conjunction(a: int, b: int):
    return int(a and b)

@wp.func
def product(a: int, b: int):
    return a * b

@wp.func
def narrowed(a: float, b: float):
    return float(wp.uint8(a))

def show(text, function, a, b):
    kind = type(a)

    @wp.kernel(module="unique")
    def kernel(result: wp.array(dtype=kind), a: kind, b: kind):
        result[0] = function(a, b)

    result = wp.zeros(1, dtype=kind, device="cpu")
    wp.launch(kernel, dim=1, inputs=[result, a, b], device="cpu")
    print(f"{text} of {(a, b)}: kernel {result.numpy()[0]}, Python {function(a, b)}")

show("a // b", quotient, -7, 3)
show("a % b", remainder, -7, 3)
show("(a // b) * b + a % b", both, -7, 3)
show("a % b", float_remainder, -7.0, 3.0)
show("a / b", ratio, 7, 2)
show("int(a and b)", conjunction, 4, 2)
show("a * b", product, 65536, 65537)
show("float(wp.uint8(a))", narrowed, 300.0, 0.0)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
