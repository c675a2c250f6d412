#!/usr/bin/env bash
# NumExpr computes float32 * int64 in float32, sums float32 one by one and int32 in int32, and its max drops NaN.
#
# Versions: numexpr 2.14.2, NumPy 2.4.6, CPython 3.11
# Guess: NumExpr follows NumPy's casting rules but for the exceptions that its manual lists: small integers become int32, uint32
#   becomes int64, and a scalar counts as an array. A reduction yields what NumPy's does, up to the order of a sum.
# What happens: the manual's list leaves out that an integer array does not widen float32, so that 2**40 + 1 loses its last
#   bits; that uint64 is read as int64; that sums keep their type, so that int32 wraps; and that max and min drop NaN.
#   20 million float32 ones sum to 16777216, in one running sum.
#
# Output seen, which this script compares with what it prints:
#> a * b (a float32, b int64): float32 [1099511627776.0], NumPy float64 [1099511627777.0]
#> a * b (a float32, b int32): float32 [16777216.0], NumPy float64 [16777217.0]
#> a + 1 (a uint64): int64 [0], NumPy uint64 [0]
#> a / b (a uint64, b uint64): float64 [-4.611686018427388e+18], NumPy float64 [4.611686018427388e+18]
#> a > b (a uint64, b uint64): bool [False], NumPy bool [True]
#> sum(a) (a int32): int32 -2147483648, NumPy int64 2147483648
#> prod(a) (a int32): int32 0, NumPy int64 4294967296
#> sum(a) (a float32): float32 16777216.0, NumPy float32 20000000.0
#> max(a) (a float32): float32 2.0, NumPy float32 nan
#> min(a) (a float32): float32 1.0, NumPy float32 nan
#> a ** b (a int32, b int32): int32 [8], NumPy int32 [8]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numexpr==2.14.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numexpr
import numpy as np

def show(text, **arrays):
    found = numexpr.evaluate(text, local_dict=arrays)
    functions = {name: getattr(np, name) for name in ("sum", "prod", "max", "min")}
    expected = eval(text, functions, arrays)
    kinds = ", ".join(f"{name} {array.dtype}" for name, array in arrays.items())
    print(f"{text} ({kinds}): {found.dtype} {found.tolist()}, NumPy {expected.dtype} {expected.tolist()}")

show("a * b", a=np.float32([1]), b=np.int64([2**40 + 1]))
show("a * b", a=np.float32([1]), b=np.int32([2**24 + 1]))
show("a + 1", a=np.uint64([2**64 - 1]))
show("a / b", a=np.uint64([2**63]), b=np.uint64([2]))
show("a > b", a=np.uint64([2**63]), b=np.uint64([1]))
show("sum(a)", a=np.int32([2**31 - 1, 1]))
show("prod(a)", a=np.int32([2**16, 2**16]))
show("sum(a)", a=np.ones(20_000_000, np.float32))
show("max(a)", a=np.float32([1, np.nan, 2]))
show("min(a)", a=np.float32([np.nan, 1, 2]))
show("a ** b", a=np.int32([2]), b=np.int32([3]))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
