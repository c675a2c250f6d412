#!/usr/bin/env bash
# In CuTe's Python DSL `//` rounds down and `%` truncates, and an argument declared as Uint32 is an Int32.
#
# Versions: nvidia-cutlass-dsl 4.8.1 (host functions, which need no GPU), NumPy 2.4.6, CPython 3.11
# Guess: `//` and `%` belong together, as in Python or as in C, and yield for a constant what they yield for a value of run
#   time; the annotation of an argument is its type, and a Python integer is converted to it.
# What happens: of arguments -7 // 3 is -3 and -7 % 3 is -1, integers and floats alike, so that (a // b) * b + a % b is -10;
#   of Constexpr arguments the remainder is Python's 2. A function with an argument `a: cutlass.Uint32` that is called with
#   a Python integer has an Int32: 2**32 - 2 is -2, its half -1, and below 10. Uint8 and Uint64 become signed likewise, in
#   cute.compile too if it is given a Python integer. Pass cutlass.Uint32(value): what was compiled for one takes Python
#   integers well. Write (a % b + b) % b for an index that wraps around.
#
# Output seen, which this script compares with what it prints:
#> a // b, a % b, (a // b) * b + a % b of -7, 3: arguments -3 -1 -10
#>   of floats -7, 3: -3.0 -1.0 -10.0
#>   of Constexpr -7, 3: -3 2 -7
#> a // b, a % b, (a // b) * b + a % b of 7, -3: arguments -3 1 10
#>   of floats 7, -3: -3.0 1.0 10.0
#>   of Constexpr 7, -3: -3 -2 7
#> a, a // 2, a < 10 of Uint8 200: -56 -28 1
#>   of Uint32 2**32 - 2: -2 -1 1
#>   compiled for 1: -2 -1 1
#>   called with cutlass.Uint32: 4294967294 2147483647 0
#>   compiled for cutlass.Uint32(1): 4294967294 2147483647 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nvidia-cutlass-dsl==4.8.1 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import cutlass
import numpy as np
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

def results(function, count, dtype, *arguments):
    """Call the function with an array for its results, and return them."""
    out = np.zeros(count, dtype)
    function(from_dlpack(out), *arguments)
    return out.tolist()

@cute.jit
def integers(out: cute.Tensor, a: cutlass.Int32, b: cutlass.Int32):
    out[0], out[1], out[2] = a // b, a % b, (a // b) * b + a % b

@cute.jit
def floats(out: cute.Tensor, a: cutlass.Float32, b: cutlass.Float32):
    out[0], out[1], out[2] = a // b, a % b, (a // b) * b + a % b

@cute.jit
def constants(out: cute.Tensor, a: cutlass.Constexpr, b: cutlass.Constexpr):
    out[0], out[1], out[2] = a // b, a % b, (a // b) * b + a % b

for a, b in ((-7, 3), (7, -3)):
    print(f"a // b, a % b, (a // b) * b + a % b of {a}, {b}: arguments", *results(integers, 3, np.int32, a, b))
    print(f"  of floats {a}, {b}:", *results(floats, 3, np.float32, float(a), float(b)))
    print(f"  of Constexpr {a}, {b}:", *results(constants, 3, np.int32, a, b))

@cute.jit
def word(out: cute.Tensor, a: cutlass.Uint32):
    out[0], out[1], out[2] = cutlass.Int64(a), cutlass.Int64(a // 2), cutlass.Int64(a < 10)

@cute.jit
def byte(out: cute.Tensor, a: cutlass.Uint8):
    out[0], out[1], out[2] = cutlass.Int64(a), cutlass.Int64(a // 2), cutlass.Int64(a < 10)

large, out = 2**32 - 2, from_dlpack(np.zeros(3, np.int64))
print("a, a // 2, a < 10 of Uint8 200:", *results(byte, 3, np.int64, 200))
print("  of Uint32 2**32 - 2:", *results(word, 3, np.int64, large))
print("  compiled for 1:", *results(cute.compile(word, out, 1), 3, np.int64, large))
print("  called with cutlass.Uint32:", *results(word, 3, np.int64, cutlass.Uint32(large)))
print("  compiled for cutlass.Uint32(1):", *results(cute.compile(word, out, cutlass.Uint32(1)), 3, np.int64, large))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
