#!/usr/bin/env bash
# jax on the CPU takes subnormal numbers for 0, so that 1e-40 == 0 is true; NumPy and CUDA's default do not.
#
# Versions: jax 0.10.2 (its CPU backend), NumPy 2.4.6, CPython 3.11
# Guess: on the CPU jax computes float32 as IEEE 754 says and as NumPy does; only GPUs flush, and only with -ftz=true.
# What happens: operands and results below the smallest normal number become 0, in float32, float64 and bfloat16; float16
#   keeps its own, since float32 holds them. Arrays keep the bits: what was stored comes back, while comparisons, products
#   and `sign` say 0, and a - b is 0 where a and b differ. NumPy in the same process is not affected.
#
# Output seen, which this script compares with what it prints:
#> float32: stored True, numpy x == 0 False, jax x == 0 True, x * 1 == 0 True, sign 0.0
#> float64: stored True, numpy x == 0 False, jax x == 0 True, x * 1 == 0 True, sign 0.0
#> bfloat16: stored True, numpy x == 0 False, jax x == 0 True, x * 1 == 0 True, sign 0.0
#> float16: stored True, numpy x == 0 False, jax x == 0 False, x * 1 == 0 False, sign 1.0
#> a != b: True, a - b: 0.0, numpy 1e-38
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

jax.config.update("jax_enable_x64", True)

def show(name, value):
    host = np.array([value], getattr(ml_dtypes, name, name))
    x = jnp.array(host)
    stored = np.asarray(x).tobytes() == host.tobytes()
    product = np.asarray(x * x.dtype.type(1))[0] == 0
    print(f"{name}: stored {stored}, numpy x == 0 {host[0] == 0}, jax x == 0 {(x == 0)[0]}, x * 1 == 0 {product}, sign {float(jnp.sign(x)[0])}")

show("float32", 1e-40)
show("float64", 1e-310)
show("bfloat16", 1e-40)
show("float16", 1e-6)
a, b = np.array([3e-38], "float32"), np.array([2e-38], "float32")
print(f"a != b: {(jnp.array(a) != jnp.array(b))[0]}, a - b: {float((jnp.array(a) - jnp.array(b))[0])}, numpy {(a - b)[0]:.0e}")
PROGRAM
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
