#!/usr/bin/env bash
# An `int` field of Pydantic rounds NumPy's integers above 2**53.
#
# Versions: pydantic 2.14.4, NumPy 2.4.6, CPython 3.11
# Guess: a NumPy integer has `__index__`, so an `int` field in lax mode either takes its exact value or refuses the
#   type; in `int | float` it is an int.
# What happens: the value goes through a double, so 2**53 + 1 becomes 2**53 without an error, in lists and tuples too;
#   `int | float` yields a float, in either order of the union. Strict mode refuses. `operator.index(value)` first is
#   exact.
#
# Output seen, which this script compares with what it prints:
#> int 0
#> int64 1
#> uint64 1
#> int 0
#> tuple False
#> int | float 2.0
#> strict int_type
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pydantic==2.14.4 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import operator
import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

class Copy(BaseModel):
    nbytes: int

odd = 2**53 + 1
for value in (odd, np.int64(odd), np.uint64(odd), operator.index(np.int64(odd))):
    print(type(value).__name__, odd - Copy(nbytes=value).nbytes)
print("tuple", TypeAdapter(tuple[int, ...]).validate_python((np.int64(odd),)) == (odd,))
print("int | float", repr(TypeAdapter(int | float).validate_python(np.int64(2))))
try:
    TypeAdapter(int).validate_python(np.int64(2), strict=True)
except ValidationError as error:
    print("strict", error.errors()[0]["type"])
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
