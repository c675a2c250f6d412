#!/usr/bin/env bash
# numcodecs' BitRound makes -0.0 of the NaN that NVIDIA's GPUs compute, and its Delta filter turns booleans into others.
#
# Versions: numcodecs 0.16.6, NumPy 2.4.6, CPython 3.11
# Guess: BitRound rounds the mantissa and leaves NaN and infinity. Delta restores the values of its type, as it does for uint8,
#   whose differences wrap.
# What happens: rounding adds to the bits, so that a NaN whose mantissa is all ones carries into the sign: 0x7fffffff, PTX's
#   canonical NaN, becomes -0.0, and 0xffffffff 0.0. NumPy's NaN, 0x7fc00000, stays. The largest float32 becomes infinity. Delta
#   of float32 loses what is small beside its neighbour, and Delta of booleans restores True after the first True.
#
# Output seen, which this script compares with what it prints:
#> BitRound(3) of 0x7fc00000 [nan]: [nan]
#> BitRound(10) of 0x7fc00000 [nan]: [nan]
#> BitRound(3) of 0x7fffffff [nan]: [-0.0]
#> BitRound(10) of 0x7fffffff [nan]: [-0.0]
#> BitRound(3) of 0xffffffff [nan]: [0.0]
#> BitRound(10) of 0xffffffff [nan]: [0.0]
#> BitRound(10) of float64 with all bits [nan]: [-0.0]
#> BitRound(3) of float16 with all bits [nan]: [-0.0]
#> BitRound(10) of float32 [inf, 3.4028234663852886e+38]: [inf, inf]
#> Delta of uint8 [200, 100, 3]: [200, 100, 3]
#> Delta of float32 [100000000.0, 1.0, 2.0]: [100000000.0, 0.0, 1.0]
#> Delta of bool [True, False, True, False]: [True, True, True, True]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numcodecs==0.16.6 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
from numcodecs import BitRound, Delta

def show(text, codec, array):
    again = codec.decode(codec.encode(array)).view(array.dtype)
    print(f"{text} {array.tolist()}: {again.tolist()}")

for bits in (0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF):
    for keep in (3, 10):
        show(f"BitRound({keep}) of 0x{bits:x}", BitRound(keep), np.array([bits], np.uint32).view(np.float32))
show("BitRound(10) of float64 with all bits", BitRound(10), np.array([2**63 - 1]).view(np.float64))
show("BitRound(3) of float16 with all bits", BitRound(3), np.array([2**15 - 1], np.int16).view(np.float16))
show("BitRound(10) of float32", BitRound(10), np.array([np.inf, np.finfo(np.float32).max], np.float32))
show("Delta of uint8", Delta("u1"), np.array([200, 100, 3], np.uint8))
show("Delta of float32", Delta("f4"), np.array([1e8, 1, 2], np.float32))
show("Delta of bool", Delta("?"), np.array([True, False, True, False]))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
