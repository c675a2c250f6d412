#!/usr/bin/env bash
# np.save writes files of float8_e5m2 that np.load refuses; the other small types load as raw bytes.
#
# Versions: ml_dtypes 0.6.0, NumPy 2.4.6, CPython 3.11
# Guess: as for bfloat16, which np.load returns as raw bytes (dtype V2) to be viewed; all the float8 types behave alike.
# What happens: float8_e5m2 alone is of kind 'f', so that its typestr is '<f1', which NumPy does not read. np.save and
#   np.savez write it into the header without an error, alone or as a field of a struct, and np.load raises ValueError.
#   The bytes are in the file, after the header. For the same reason promote_types with float16 is float32, where the
#   other float8 types and bfloat16 raise. Save `array.view(np.uint8)`.
#
# Output seen, which this script compares with what it prints:
#> bfloat16: kind V <V2, loads as V2, with float16 DTypePromotionError
#> float8_e4m3fn: kind V <V1, loads as V1, with float16 DTypePromotionError
#> float8_e5m2: kind f <f1, ValueError descr is not a valid dtype descriptor: '<f1', with float16 float32
#> float8_e5m2fnuz: kind V <V1, loads as V1, with float16 DTypePromotionError
#> int4: kind V <V1, loads as V1, with float16 float16
#> bytes are there True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import io
import ml_dtypes
import numpy as np

def loaded(array):
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    try:
        return f"loads as {np.load(file).dtype.str.lstrip('|')}"
    except ValueError as error:
        return f"ValueError {error}"

def promoted(dtype):
    try:
        return np.promote_types(dtype, np.float16).name
    except TypeError as error:
        return type(error).__name__

for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "int4"):
    dtype = np.dtype(getattr(ml_dtypes, name))
    print(f"{name}: kind {dtype.kind} {dtype.str}, {loaded(np.ones(3, dtype))}, with float16 {promoted(dtype)}")
array = np.array([1, -2, 0.5]).astype(ml_dtypes.float8_e5m2)
file = io.BytesIO()
np.save(file, array)
print("bytes are there", file.getvalue().endswith(array.tobytes()))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
