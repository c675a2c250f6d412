#!/usr/bin/env bash
# In jax a negative index of int8 finds another element, astype saturates where asarray wraps, and 7 // 0 is -2.
#
# Versions: jax 0.10.2, jaxlib 0.10.2 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: an index of any integer type counts from the end if it is negative; a Python integer that a type cannot hold is an
#   error, as in NumPy and as 2**40 is for int32; casts of floats wrap or saturate by one rule; an integer divided by zero
#   is 0, as in NumPy, or -1, as in XLA.
# What happens: the length is added to the index in the index's own type: element -1 of 200 is the first if -1 is int8, and
#   that of 300 the one at 43, where an array of such indices raises. 300 added to int8 is 44, without an error. Of 300 and
#   -1, astype("uint8") makes 255 and 0, and asarray(array, "uint8") of a NumPy array 44 and 255. 7 // 0 is -2. `sum` and
#   `cumulative_sum` of uint8 are uint32, `cumsum` is uint8. Make indices int32.
#
# Output seen, which this script compares with what it prints:
#> arange(200)[-1], int8: 0
#> arange(300)[-1], int8: 43
#> take(arange(300), -1), int8: 43
#> dynamic_slice of 300 at -2, 2 elements, int8: [42, 43]
#> arange(200)[-1], int32: 199
#> arange(300)[-1], int32: 299
#> take(arange(300), -1), int32: 299
#> dynamic_slice of 300 at -2, 2 elements, int32: [298, 299]
#> arange(300)[[-1]], int8: OverflowError
#> arange(300)[-1], int8, NumPy: 299
#> int8 0 + 300: [44]
#> int8 0 + 300, NumPy: OverflowError
#> int32 0 + 2**40: OverflowError
#> 300 and -1 to uint8 by astype: [255, 0]
#> 300 and -1 to uint8 by asarray: [44, 255]
#> 7, -7, 0 // 0: [-2, -2, -1]
#> 7, -7, 0 % 0: [0, 0, 0]
#> sum of three 100, uint8: 300 uint32
#> cumulative_sum of three 100, uint8: [100, 200, 300] uint32
#> cumsum of three 100, uint8: [100, 200, 44] uint8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import jax
import jax.numpy as jnp
import numpy as np

def shown(label, function):
    try:
        print(f"{label}: {np.asarray(function()).tolist()}")
    except OverflowError as error:
        print(f"{label}: {type(error).__name__}")

for dtype in ("int8", "int32"):
    last = jnp.asarray(-1, dtype)
    shown(f"arange(200)[-1], {dtype}", lambda: jnp.arange(200)[last])
    shown(f"arange(300)[-1], {dtype}", lambda: jnp.arange(300)[last])
    shown(f"take(arange(300), -1), {dtype}", lambda: jnp.take(jnp.arange(300), last))
    shown(f"dynamic_slice of 300 at -2, 2 elements, {dtype}", lambda: jax.lax.dynamic_slice(jnp.arange(300), (2 * last,), (2,)))
shown("arange(300)[[-1]], int8", lambda: jnp.arange(300)[jnp.array([-1], "int8")])
shown("arange(300)[-1], int8, NumPy", lambda: np.arange(300)[np.int8(-1)])
shown("int8 0 + 300", lambda: jnp.zeros(1, jnp.int8) + 300)
shown("int8 0 + 300, NumPy", lambda: np.zeros(1, np.int8) + 300)
shown("int32 0 + 2**40", lambda: jnp.zeros(1, jnp.int32) + 2**40)
floats = np.array([300, -1], np.float32)
shown("300 and -1 to uint8 by astype", lambda: jnp.asarray(floats).astype("uint8"))
shown("300 and -1 to uint8 by asarray", lambda: jnp.asarray(floats, "uint8"))
shown("7, -7, 0 // 0", lambda: jnp.array([7, -7, 0]) // 0)
shown("7, -7, 0 % 0", lambda: jnp.array([7, -7, 0]) % 0)
for name in ("sum", "cumulative_sum", "cumsum"):
    result = getattr(jnp, name)(jnp.full(3, 100, jnp.uint8))
    print(f"{name} of three 100, uint8:", result.tolist(), result.dtype)
PROGRAM
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
