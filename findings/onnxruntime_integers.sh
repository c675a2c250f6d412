#!/usr/bin/env bash
# onnxruntime sums and multiplies integers as if in double: a sum of int64 loses its last bits, one of int32 does not wrap.
#
# Versions: onnxruntime 1.32.0 (CPU), onnx 1.23.2 (its reference evaluator), NumPy 2.4.6, CPython 3.11
# Guess: int64 operators are exact and wrap as in NumPy, since Add, Mul, MatMul and CumSum are; casts of floats to integers
#   round toward zero, to int4 as to int8.
# What happens: ReduceSum, ReduceProd, Pow and Einsum of int64 round above 2**53, even a sum of one element or of one identifier
#   selected by a mask; of int32 they stop at 2**31 - 1. A cast of float32 to int4 and uint4 rounds to the nearest, halves away
#   from zero, and then wraps: 7.6 becomes -8. onnx's reference evaluator and onnxruntime's other operators do as guessed.
#
# Output seen, which this script compares with what it prints:
#> ReduceSum of int64 [2**53 + 1]: 9007199254740992, reference 9007199254740993
#> ReduceSum of int64 x * mask: 9007199254740992, reference 9007199254740993
#> ReduceProd of int64 [2**53 + 1]: 9007199254740992, reference 9007199254740993
#> Einsum i-> of int64 [2**53 + 1, 0]: 9007199254740992, reference 9007199254740993
#> Pow of int64 (2**53 + 1) ** 1: 9007199254740992, reference 9007199254740993
#> Mul of int64 (2**53 + 1) * 1: 9007199254740993, reference 9007199254740993
#> MatMul of int64: [[9007199254740993]], reference [[9007199254740993]]
#> ReduceSum of int32 [2**31 - 1, 1]: 2147483647, reference -2147483648
#> Add of int32 2**31 - 1 and 1: -2147483648, reference -2147483648
#> Pow of int32 65537 ** 2: -2147483648, reference 131073
#> float32 [0.5, 1.5, 2.5, -1.5, 7.6] to INT8 and back: [0.0, 1.0, 2.0, -1.0, 7.0], reference [0.0, 1.0, 2.0, -1.0, 7.0]
#> float32 [0.5, 1.5, 2.5, -1.5, 7.6] to INT4 and back: [1.0, 2.0, 3.0, -2.0, -8.0], reference [0.0, 1.0, 2.0, -1.0, 7.0]
#> float32 [0.5, 1.5, 2.5, -1.5, 7.6] to UINT4 and back: [1.0, 2.0, 3.0, 14.0, 8.0], reference [0.0, 1.0, 2.0, 15.0, 7.0]
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

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

def show(text, nodes, *inputs):
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    feed = dict(zip("xz", inputs))
    values = [helper.make_tensor_value_info(name, kind, array.shape) for (name, array), kind in zip(feed.items(), kinds)]
    result = helper.make_tensor_value_info("y", kinds[0], None)
    graph = helper.make_graph(nodes, "graph", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    reference = ReferenceEvaluator(model).run(None, feed)[0]
    print(f"{text}: {session.run(None, feed)[0].tolist()}, reference {reference.tolist()}")

def node(name, inputs="x", **attributes):
    return [helper.make_node(name, list(inputs), ["y"], **attributes)]

big = 2**53 + 1
x, mask = np.array([[big, 5], [7, big + 2]]), np.array([[1, 0], [0, 1]])
select = [helper.make_node("Mul", ["x", "z"], ["c"]), helper.make_node("ReduceSum", ["c"], ["y"], keepdims=0)]
show("ReduceSum of int64 [2**53 + 1]", node("ReduceSum", keepdims=0), np.array([big]))
show("ReduceSum of int64 x * mask", select, x[:1], mask[:1])
show("ReduceProd of int64 [2**53 + 1]", node("ReduceProd", keepdims=0), np.array([big]))
show("Einsum i-> of int64 [2**53 + 1, 0]", node("Einsum", equation="i->"), np.array([big, 0]))
show("Pow of int64 (2**53 + 1) ** 1", node("Pow", "xz"), np.array(big), np.array(1))
show("Mul of int64 (2**53 + 1) * 1", node("Mul", "xz"), np.array(big), np.array(1))
show("MatMul of int64", node("MatMul", "xz"), x[:1], mask[:, :1])
show("ReduceSum of int32 [2**31 - 1, 1]", node("ReduceSum", keepdims=0), np.array([2**31 - 1, 1], "i4"))
show("Add of int32 2**31 - 1 and 1", node("Add", "xz"), np.array(2**31 - 1, "i4"), np.array(1, "i4"))
show("Pow of int32 65537 ** 2", node("Pow", "xz"), np.array(65537, "i4"), np.array(2, "i4"))
for kind in ("INT8", "INT4", "UINT4"):
    cast = [helper.make_node("Cast", ["x"], ["c"], to=getattr(TensorProto, kind))]
    cast.append(helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT))
    show(f"float32 [0.5, 1.5, 2.5, -1.5, 7.6] to {kind} and back", cast, np.array([0.5, 1.5, 2.5, -1.5, 7.6], "f4"))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
