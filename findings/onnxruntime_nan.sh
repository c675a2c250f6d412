#!/usr/bin/env bash
# onnxruntime's ReduceMax and ArgMax see NaN only in the first place, and Unique of values that begin with NaN is [NaN].
#
# Versions: onnxruntime 1.32.0 (CPU), onnx 1.23.2 (its reference evaluator), NumPy 2.4.6, CPython 3.11
# Guess: the largest of values with NaN is NaN, as onnxruntime's Max, onnx's reference evaluator, NumPy and torch say; or NaN
#   is always dropped. Unique yields every value once.
# What happens: ReduceMax, ReduceMin, ArgMax and ArgMin begin with the first value and keep it if no comparison is true: NaN in
#   front is the result, elsewhere it is dropped. Unique drops every NaN and counts it as another value; with NaN in front
#   it drops everything else. GlobalMaxPool drops NaN always, and pools of -infinity are -3.4e38.
#
# Output seen, which this script compares with what it prints:
#> of [nan, 2.0, 1.0, 3.0]
#>   ReduceMax: [nan], reference [nan]
#>   ReduceMin: [nan], reference [nan]
#>   ArgMax: [0], reference [0]
#>   Max: [nan, 2.0, 1.0, 3.0], reference [nan, 2.0, 1.0, 3.0]
#>   Unique: [nan], reference [1.0, 2.0, 3.0, nan]
#>   GlobalMaxPool: [3.0], reference [nan]
#> of [2.0, 1.0, nan, 3.0]
#>   ReduceMax: [3.0], reference [nan]
#>   ReduceMin: [1.0], reference [nan]
#>   ArgMax: [3], reference [2]
#>   Max: [2.0, 1.0, nan, 3.0], reference [2.0, 1.0, nan, 3.0]
#>   Unique: [1.0, 2.0, 3.0], reference [1.0, 2.0, 3.0, nan]
#>   GlobalMaxPool: [3.0], reference [nan]
#> of [2.0, nan, 1.0, nan, 2.0], counts
#>   Unique: [2, 3], reference [1, 2, 2]
#> of [-inf, -inf, -inf, -inf]
#>   ReduceMax: [-inf], reference [-inf]
#>   GlobalMaxPool: [-3.4028234663852886e+38], reference [-inf]
#>   MaxPool: [-3.4028234663852886e+38, -3.4028234663852886e+38, -3.4028234663852886e+38], reference [-inf, -inf, -inf]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

def run(name, x, kind=TensorProto.FLOAT, outputs=("y",), **attributes):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    node = helper.make_node(name, ["x", "x"] if name == "Max" else ["x"], outputs, **attributes)
    graph = helper.make_graph([node], "graph", [value], [helper.make_tensor_value_info("y", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    reference = ReferenceEvaluator(model)
    found = [evaluator.run(None, {"x": x})[0].ravel().tolist() for evaluator in (session, reference)]
    print(f"  {name}: {found[0]}, reference {found[1]}")

for values in ([np.nan, 2, 1, 3], [2, 1, np.nan, 3]):
    x = np.array(values, np.float32)
    print(f"of {x.tolist()}")
    run("ReduceMax", x)
    run("ReduceMin", x)
    run("ArgMax", x, TensorProto.INT64)
    run("Max", x)
    run("Unique", x)
    run("GlobalMaxPool", x.reshape(1, 1, 4))
x = np.array([2, np.nan, 1, np.nan, 2], np.float32)
print(f"of {x.tolist()}, counts")
run("Unique", x, TensorProto.INT64, ("values", "first", "inverse", "y"))
x = np.full((1, 1, 4), -np.inf, np.float32)
print(f"of {x.ravel().tolist()}")
run("ReduceMax", x)
run("GlobalMaxPool", x)
run("MaxPool", x, kernel_shape=[2])
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
