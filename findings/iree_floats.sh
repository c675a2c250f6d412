#!/usr/bin/env bash
# IREE's CPU backend gives NaN for (-2)**3 and 0**0, -1.3e20 for cos(1e10), and computes float64 in float32 by default.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, NumPy 2.4.6, ml_dtypes 0.6.0, CPython 3.11, a CPU with AVX2
# Guess: StableHLO's operators are those of IEEE 754 and C: (-2)**3 is -8, x**0 is 1, and a cosine is within -1 and 1, if not exact.
#   A program that converts int32 to float64 and back keeps its values; each bfloat16 operation rounds.
# What happens: `power` of a negative base is NaN, and so is 0**0, unless the exponent is a constant of one value. Sines and
#   cosines lose digits from 1e5 on; with fused operations cos(1e10) is -1.3e20. cbrt and atan2 of infinities are NaN.
#   Subnormal numbers are 0. float64 inside a program becomes float32 in silence (of a parameter there is a warning), unless
#   `--iree-input-demote-f64-to-f32=false`. bfloat16 is computed in float32 and rounded at the end, so that (1 + y) - 1 is y.
#
# Output seen, which this script compares with what it prints:
#> power of float32 [-2.0, -2.0, 0.0, 1.0, -8.0], [3.0, 2.0, 0.0, nan, 1.0]: [nan, nan, nan, nan, nan], NumPy [-8.0, 4.0, 1.0, 1.0, -8.0]
#> power of float32 [-2.0, 2.0, 0.0] and a constant 3: [-8.0, 8.0, 0.0]
#> power of int32 [-2], [3]: [-8], NumPy [-8]
#> cosine of float32 [100.0, 100000.0, 1000000.0]: [0.8623, -0.9992, 0.9274], NumPy [0.8623, -0.9994, 0.9368]
#> cosine of float32 [10000000.0, 10000000000.0]: [-0.8415, 1.0], NumPy [-0.9073, 0.8731]
#> for AVX2, cosine of float32 [10000000000.0]: [-1.3338387542392491e+20]
#> cbrt of float32 [inf, -8.0]: [nan, -2.000000238418579], NumPy [inf, -2.0]
#> atan2 of float32 [inf], [inf]: [nan], NumPy [0.7853981852531433]
#> add of float32 [1e-40, 1.0], [1e-40, 1.0]: [0.0, 2.0]
#> int32 by float64 to int32 of [16777217]: [16777216]
#> int64 by float64 to int64 of [16777217]: [16777216]
#> --iree-input-demote-f64-to-f32=false, int64 by float64 to int64 of [16777217]: [16777217]
#> (x + y) - x of bfloat16 [1, 256], [0.00195312, 1]: [0.00195312, 1], ml_dtypes [0, 0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check iree-base-compiler==3.13.0 iree-base-runtime==3.13.0 \
    numpy==2.4.6 ml_dtypes==0.6.0
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import iree.compiler.tools
import iree.runtime
import ml_dtypes
import numpy as np

warnings.simplefilter("ignore")  # NumPy's view of the largest float32 and of overflow
TYPES = {"float32": "f32", "int32": "i32", "int64": "i64", "bfloat16": "bf16"}

def run(body, *arrays, cpu="generic", options=()):
    kind = f"tensor<{arrays[0].size}x{TYPES[arrays[0].dtype.name]}>"
    parameters = ", ".join(f"{name}: {kind}" for name, _ in zip(("%x", "%y"), arrays))
    source = f"func.func @f({parameters}) -> {kind} {{\n{body.replace('T', kind)}\nreturn %r : {kind}\n}}"
    options = [f"--iree-llvmcpu-target-cpu={cpu}", *options]
    image = iree.compiler.tools.compile_str(source, target_backends=["llvm-cpu"], extra_args=options)
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, image))
    return context.modules.module.f(*arrays).to_host()

def show(operator, kind, *values, numpy=None, digits=None):
    arrays = [np.array(value, kind) for value in values]
    operands = ", ".join(("%x", "%y")[: len(arrays)])
    result = run(f"%r = stablehlo.{operator} {operands} : T", *arrays)
    text = lambda array: (array if digits is None else array.astype(float).round(digits)).tolist()
    expected = f", NumPy {text(numpy(*arrays))}" if numpy else ""
    print(f"{operator} of {kind} {', '.join(map(str, values))}: {text(result)}{expected}")

show("power", "float32", [-2.0, -2.0, 0.0, 1.0, -8.0], [3.0, 2.0, 0.0, np.nan, 1.0], numpy=np.power)
x = np.array([-2, 2, 0], np.float32)
cubes = run("%c = stablehlo.constant dense<3.0> : T\n%r = stablehlo.power %x, %c : T", x)
print(f"power of float32 {x.tolist()} and a constant 3: {cubes.tolist()}")
show("power", "int32", [-2], [3], numpy=np.power)
show("cosine", "float32", [1e2, 1e5, 1e6], numpy=np.cos, digits=4)
show("cosine", "float32", [1e7, 1e10], numpy=np.cos, digits=4)
cosine = run("%r = stablehlo.cosine %x : T", np.array([1e10], np.float32), cpu="haswell")
print(f"for AVX2, cosine of float32 [10000000000.0]: {cosine.tolist()}")
show("cbrt", "float32", [np.inf, -8.0], numpy=np.cbrt)
show("atan2", "float32", [np.inf], [np.inf], numpy=np.arctan2)
show("add", "float32", [1e-40, 1.0], [1e-40, 1.0])
by_double = """%d = stablehlo.convert %x : (T) -> tensor<1xf64>
%r = stablehlo.convert %d : (tensor<1xf64>) -> T"""
for kind, options in ("int32", []), ("int64", []), ("int64", ["--iree-input-demote-f64-to-f32=false"]):
    x = np.array([2**24 + 1], kind)
    text = "".join(f"{option}, " for option in options)
    print(f"{text}{kind} by float64 to {kind} of {x.tolist()}: {run(by_double, x, options=options).tolist()}")
x, y = (np.array(values, ml_dtypes.bfloat16) for values in ([1, 256], [2**-9, 1]))
rest = run("%s = stablehlo.add %x, %y : T\n%r = stablehlo.subtract %s, %x : T", x, y)
text = lambda array: np.array2string(array.astype(np.float32), separator=", ", formatter={"all": "{:g}".format})
print(f"(x + y) - x of bfloat16 {text(x)}, {text(y)}: {text(rest)}, ml_dtypes {text(x + y - x)}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
