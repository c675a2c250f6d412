#!/usr/bin/env bash
# `zeros` of the scale type float8_e8m0fnu is 2**-127 in NumPy and NaN in jax, and every sum of it is NaN.
#
# Versions: ml_dtypes 0.6.0, NumPy 2.4.6, jax 0.10.2 (CPU), CPython 3.11
# Guess: the type (powers of two from 2**-127 to 2**127 and NaN) has no zero, so a zero is either refused or rounded to
#   the smallest value, everywhere alike; five ones sum to 4.
# What happens: np.zeros writes zero bytes, which are 2**-127; np.full(0) and a cast of 0.0 give NaN (0xff); jnp.zeros
#   gives NaN. A sum begins with the identity 0, which is NaN, so it is NaN in both libraries. A negative number becomes
#   NaN as well. Initialize scales with ones, and sum in float32.
#
# Output seen, which this script compares with what it prints:
#> np.zeros 0x0 5.877471754111438e-39
#> np.full 0 0xff nan
#> cast of 0.0 0xff nan
#> cast of -2.0 0xff nan
#> jnp.zeros 0xff nan
#> np.ones 0x7f 1.0
#> sum of ones nan nan
#> one + one 2.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes==0.6.0 numpy==2.4.6 jax==0.10.2 jaxlib==0.10.2
cat >"$folder/program.py" <<'PROGRAM'
import jax.numpy as jnp
import ml_dtypes
import numpy as np

scale = ml_dtypes.float8_e8m0fnu
for label, array in {
    "np.zeros": np.zeros(1, scale),
    "np.full 0": np.full(1, 0, scale),
    "cast of 0.0": np.zeros(1).astype(scale),
    "cast of -2.0": np.array([-2.0]).astype(scale),
    "jnp.zeros": np.asarray(jnp.zeros(1, scale)),
    "np.ones": np.ones(1, scale),
}.items():
    print(label, hex(array.view(np.uint8)[0]), float(array[0]))
print("sum of ones", float(np.ones(5, scale).sum()), float(jnp.ones(5, scale).sum()))
print("one + one", float((np.ones(1, scale) + np.ones(1, scale))[0]))
PROGRAM
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
