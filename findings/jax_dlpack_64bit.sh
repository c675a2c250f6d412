#!/usr/bin/env bash
# jax.numpy.from_dlpack narrows 64-bit arrays to 32 bits in silence: 2**40 becomes 0.
#
# Versions: jax 0.10.2, jaxlib 0.10.2 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: DLPack exchanges memory without a copy, so the dtype stays, or the import is refused while 64-bit types are off
#   (the default).
# What happens: from_dlpack converts to int32 or float32 with no warning: integers keep their low 32 bits, 1e300 is
#   infinity. A Python integer of the same size raises OverflowError. With jax_enable_x64 the values are right. Narrow
#   the array yourself, or enable 64-bit types.
#
# Output seen, which this script compares with what it prints:
#> int64 -> int32 [0, 5, -1]
#> float64 -> float32 [inf, 0.5]
#> jnp.array(2**40): OverflowError
#> x64: [1099511627776]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import jax
import jax.numpy as jnp
import numpy as np

warnings.simplefilter("error")
for array in (np.array([2**40, 2**40 + 5, -1]), np.array([1e300, 0.5])):
    taken = jnp.from_dlpack(array)
    print(array.dtype, "->", taken.dtype, np.asarray(taken).tolist())
try:
    jnp.array(2**40)
except OverflowError as error:
    print("jnp.array(2**40):", type(error).__name__)
jax.config.update("jax_enable_x64", True)
print("x64:", np.asarray(jnp.from_dlpack(np.array([2**40]))).tolist())
PROGRAM
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
