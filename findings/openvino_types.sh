#!/usr/bin/env bash
# OpenVINO's CPU plugin computes int64 in int32, float64 in float32 and int32 comparisons in float32, and says the declared types.
#
# Versions: openvino 2026.4.1 (CPU, precision hint f32), NumPy 2.4.6, CPython 3.11, a CPU with AVX2
# Guess: a model whose inputs and output are int64 or float64 is computed in that type or refused; the precision hint, f32 here,
#   is about floats. int32 is exact, uint8 wraps as in NumPy and onnxruntime, and a conversion to float16 rounds.
# What happens: the upper bits of int64 are dropped at the input, also by an operator that only moves data, so that 2**40 is
#   below 5, and the results are int64 again. float64 becomes float32: 1e300 is 3.4e38. uint32 compares as signed. int32
#   operands of Equal, and those of MatMul and ReduceSum, are rounded to float32. uint8 saturates, but wraps in a conversion.
#   Conversions to float16 and int4 keep float32's value and that of int8. The largest of NaN and 1 depends on their order.
#
# Output seen, which this script compares with what it prints:
#> Add of int64 [1099511627777], [1]: int64 [2]
#> Reshape of int64 [1099511627777, 2]: int64 [[1, 2]]
#> Less of int64 [1099511627776], [5]: bool [True]
#> Less of uint32 [2147483648], [1]: bool [True]
#> Add of float64 [0.1, 1e+300], [0.2, 1]: float64 [0.30000001192092896, 3.4028234663852886e+38]
#> Add of int32 [16777217], [0]: int32 [16777217]
#> Equal of int32 [16777217], [16777216]: bool [True]
#> MatMul of int32 [[16777217]], [[1]]: int32 [[16777216]]
#> ReduceSum of int32 [16777216, 1]: int32 16777216
#> CumSum of int32 [16777216, 1]: int32 [16777216, 16777217]
#> Add of uint8 [200], [100]: uint8 [255]
#> Subtract of uint8 [1], [2]: uint8 [0]
#> Convert to uint8 of int32 [300, -1]: uint8 [44, 255]
#> Convert to float16 and float32 of float32 [300.7, 10000000000.0]: float32 [300.70001220703125, 10000000000.0]
#> Convert to bfloat16 and float32 of float32 [300.7, 10000000000.0]: float32 [300.0, 9999220736.0]
#> Convert to int4 and float32 of float32 [7.6, 100]: float32 [7.0, 100.0]
#> Maximum of float32 [nan, 1], [1, nan]: float32 [1.0, nan]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
import openvino
from openvino import opset13 as op

core = openvino.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
axis = np.array([0])

def show(text, function, kind, *values):
    inputs = [np.array(value, kind) for value in values]
    parameters = [op.parameter(list(array.shape), array.dtype) for array in inputs]
    model = openvino.Model([function(*parameters)], parameters)
    result = core.compile_model(model, "CPU")(inputs)[0]
    print(f"{text} of {np.dtype(kind)} {', '.join(map(str, values))}: {result.dtype} {result.tolist()}")

big = 2**24 + 1
show("Add", op.add, "i8", [2**40 + 1], [1])
show("Reshape", lambda x: op.reshape(x, np.array([1, 2]), False), "i8", [2**40 + 1, 2])
show("Less", op.less, "i8", [2**40], [5])
show("Less", op.less, "u4", [2**31], [1])
show("Add", op.add, "f8", [0.1, 1e300], [0.2, 1])
show("Add", op.add, "i4", [big], [0])
show("Equal", op.equal, "i4", [big], [big - 1])
show("MatMul", lambda x, y: op.matmul(x, y, False, False), "i4", [[big]], [[1]])
show("ReduceSum", lambda x: op.reduce_sum(x, axis), "i4", [big - 1, 1])
show("CumSum", lambda x: op.cum_sum(x, np.array(0)), "i4", [big - 1, 1])
show("Add", op.add, "u1", [200], [100])
show("Subtract", op.subtract, "u1", [1], [2])
show("Convert to uint8", lambda x: op.convert(x, "u8"), "i4", [300, -1])
show("Convert to float16 and float32", lambda x: op.convert(op.convert(x, "f16"), "f32"), "f4", [300.7, 1e10])
show("Convert to bfloat16 and float32", lambda x: op.convert(op.convert(x, "bf16"), "f32"), "f4", [300.7, 1e10])
show("Convert to int4 and float32", lambda x: op.convert(op.convert(x, "i4"), "f32"), "f4", [7.6, 100])
show("Maximum", op.maximum, "f4", [np.nan, 1], [1, np.nan])
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
