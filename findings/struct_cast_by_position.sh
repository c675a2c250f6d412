#!/usr/bin/env bash
# NumPy calls a cast between structs with swapped field names safe, and moves the values by position.
#
# Versions: NumPy 2.4.6, CPython 3.11
# Guess: fields are matched by name; failing that, a cast from (x, y) to (y, x) is not 'safe', or is refused as
#   concatenation refuses it.
# What happens: can_cast(..., 'safe') is True, astype and assignment put x into y by position, while concatenate and ==
#   raise because the names differ. A cast to fields of one byte wraps 300 to 44 without a warning. Compare dtypes
#   before assigning, or assign field by field.
#
# Output seen, which this script compares with what it prints:
#> safe: True  x after the cast: 300.0
#> x after assignment: 300.0
#> narrow, same_kind: False  y after assignment: 44
#> concatenate DTypePromotionError
#> == TypeError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import numpy as np

warnings.simplefilter("error")
point = np.dtype([("x", "f4"), ("y", "f4")])
swapped = np.dtype([("y", "f4"), ("x", "f4")])
narrow = np.dtype([("x", "i1"), ("y", "i1")])
values = np.array([(1, 300)], point)
print("safe:", np.can_cast(point, swapped, "safe"), " x after the cast:", float(values.astype(swapped, casting="safe")["x"][0]))
filled = np.zeros(1, swapped)
filled[:] = values
print("x after assignment:", float(filled["x"][0]))
print("narrow, same_kind:", np.can_cast(point, narrow, "same_kind"), " y after assignment:", int(np.array(values[0], narrow)["y"]))
for label, use in {"concatenate": lambda: np.concatenate([values, filled]), "==": lambda: values == filled}.items():
    try:
        use()
        print(label, "accepts")
    except TypeError as error:
        print(label, type(error).__name__)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
