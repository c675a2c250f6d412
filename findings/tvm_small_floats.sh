#!/usr/bin/env bash
# TVM stores infinity in float8 as 1 and 500 as -0, does not round to bfloat16 between stages, and keeps doubles in constants.
#
# Versions: apache-tvm 0.27.0.post1 (target llvm), ml_dtypes 0.6.0, NumPy 2.4.6, CPython 3.11
# Guess: a cast to bfloat16 or float8 rounds, as one to float16 does and as ml_dtypes and torch do; values out of range of float8
#   become NaN, infinity or the largest number.
# What happens: a value that is stored to a tensor is rounded, but infinity in float8 becomes 1, and 500 in e4m3fn -0. A stage
#   of bfloat16 or float8 that another one reads, and a product of casts, are computed in float32 without rounding. A cast of a
#   constant, of whatever float type, yields the double. (x * 2) // 2 of uint32 is x, as if the product did not wrap.
#
# Output seen, which this script compares with what it prints:
#> x: [1.0099999904632568, 300.70001220703125, 500.0, inf]
#> float16
#>   NumPy and ml_dtypes: [1.009765625, 300.75, 500.0, inf]
#>   stored: [1.009765625, 300.75, 500.0, inf]
#>   a stage, read by another: [1.009765625, 300.75, 500.0, inf]
#>   product of casts: [1.01953125, inf, inf, inf]
#> bfloat16
#>   NumPy and ml_dtypes: [1.0078125, 300.0, 500.0, inf]
#>   stored: [1.0078125, 300.0, 500.0, inf]
#>   a stage, read by another: [1.0099999904632568, 300.70001220703125, 500.0, inf]
#>   product of casts: [1.0200999975204468, 90420.5, 250000.0, inf]
#> float8_e4m3fn
#>   NumPy and ml_dtypes: [1.0, 288.0, nan, nan]
#>   stored: [1.0, 288.0, -0.0, 1.0]
#>   a stage, read by another: [1.0099999904632568, 300.70001220703125, 500.0, inf]
#>   product of casts: [1.0200999975204468, 90420.5, 250000.0, inf]
#> float8_e5m2
#>   NumPy and ml_dtypes: [1.0, 320.0, 512.0, inf]
#>   stored: [1.0, 320.0, 512.0, 1.0]
#>   a stage, read by another: [1.0099999904632568, 300.70001220703125, 500.0, inf]
#>   product of casts: [1.0200999975204468, 90420.5, 250000.0, inf]
#> 0.1 of float16 as float64: [0.1]
#> 0.1 of bfloat16 as float64: [0.1]
#> 0.1 of float32 as float64: [0.1]
#> (2147483648 * 2) // 2 of uint32: [2147483648]
#> (200 * 2) // 2 of uint8: [72]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apache-tvm==0.27.0.post1 ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import ml_dtypes  # names its types for NumPy
import numpy as np
import tvm
from tvm import te
from tvm import tirx as tir

def run(array, *stages):
    first = previous = te.placeholder(array.shape, str(array.dtype), name="x")
    for number, stage in enumerate(stages):
        source = previous
        previous = te.compute(array.shape, lambda i: stage(source[i]), name=f"stage{number}")
    library = tvm.compile(te.create_prim_func([first, previous]), target="llvm")
    result = tvm.runtime.tensor(np.zeros(array.shape, str(previous.dtype)))
    library(tvm.runtime.tensor(array), result)
    return result.numpy()

def cast(kind):
    return lambda value: tir.Cast(kind, value)

x = np.array([1.01, 300.7, 500, np.inf], np.float32)
print("x:", x.tolist())
for kind in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
    narrow = cast(kind)
    print(kind)
    print("  NumPy and ml_dtypes:", x.astype(kind).astype("float32").tolist())
    print("  stored:", run(x, narrow).astype("float32").tolist())
    print("  a stage, read by another:", run(x, narrow, cast("float32")).tolist())
    print("  product of casts:", run(x, lambda value: tir.Cast("float32", narrow(value) * narrow(value))).tolist())
for kind in ("float16", "bfloat16", "float32"):
    zero = np.zeros(1)
    print(f"0.1 of {kind} as float64:", run(zero, lambda value: value + tir.Cast("float64", tir.const(0.1, kind))).tolist())
for kind, value in (("uint32", 2**31), ("uint8", 200)):
    two = tir.const(2, kind)
    print(f"({value} * 2) // 2 of {kind}:", run(np.array([value], kind), lambda value: value * two // two).tolist())
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" 2>"$folder/warnings" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
