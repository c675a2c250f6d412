#!/usr/bin/env bash
# onnxruntime and pyarrow's tensors take an array of the other byte order as if it had the machine's.
#
# Versions: onnxruntime 1.32.0, onnx 1.23.2, pyarrow 26.0.1, SciPy 1.17.1, NumPy 2.4.6, CPython 3.11
# Guess: an array of `>f4` or `>i4`, as NetCDF and FITS files give, is converted or refused: NumPy's DLPack, `pyarrow.array`
#   and onnx raise.
# What happens: an onnxruntime session, `OrtValue`, `pyarrow.Tensor` and its sparse tensors read the bytes in the machine's
#   order: 1 becomes 16777216, and 1.0 becomes 4.6e-41, without an error. A session checks that the type of its input is
#   float, and `>f4` is. SciPy's reader of NetCDF yields such arrays. `array.astype(array.dtype.newbyteorder("="))` mends it.
#
# Output seen, which this script compares with what it prints:
#> scipy.io.netcdf_file: >f4 [1.0, 2.0]
#> onnxruntime session, x + x: [9.2e-41, 1.79e-43]
#> OrtValue: [4.6e-41, 8.97e-44]
#> OrtValue of >i4 [1]: [16777216]
#> pyarrow.Tensor: [4.6e-41, 8.97e-44]
#> pyarrow.SparseCOOTensor: [4.6e-41, 8.97e-44]
#> pyarrow.array: ArrowNotImplementedError
#> onnx.numpy_helper.from_array: ValueError
#> DLPack of NumPy: BufferError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 pyarrow==26.0.1 scipy==1.17.1 \
    numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import sys
import numpy as np
import onnx
import onnxruntime
import pyarrow
import scipy.io

path = sys.argv[1] + "/file.nc"
with scipy.io.netcdf_file(path, "w") as file:
    file.createDimension("n", 2)
    file.createVariable("x", "f4", ("n",))[:] = [1, 2]
with scipy.io.netcdf_file(path, mmap=False) as file:
    x = file.variables["x"][:]
print("scipy.io.netcdf_file:", x.dtype.str, x.tolist())

def show(name, read):
    try:
        print(f"{name}: {[float(f'{value:.3g}') if isinstance(value, float) else value for value in read().ravel().tolist()]}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}")

def session():
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "add", value[:1], value[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]

show("onnxruntime session, x + x", session)
show("OrtValue", lambda: onnxruntime.OrtValue.ortvalue_from_numpy(x).numpy())
show("OrtValue of >i4 [1]", lambda: onnxruntime.OrtValue.ortvalue_from_numpy(np.array([1], ">i4")).numpy())
show("pyarrow.Tensor", lambda: pyarrow.Tensor.from_numpy(x).to_numpy())
show("pyarrow.SparseCOOTensor", lambda: pyarrow.SparseCOOTensor.from_dense_numpy(x).to_tensor().to_numpy())
show("pyarrow.array", lambda: pyarrow.array(x).to_numpy())
show("onnx.numpy_helper.from_array", lambda: onnx.numpy_helper.to_array(onnx.numpy_helper.from_array(x)))
show("DLPack of NumPy", lambda: np.from_dlpack(x))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
