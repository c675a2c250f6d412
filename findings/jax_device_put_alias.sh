#!/usr/bin/env bash
# jax.device_put may share NumPy's memory while jnp.asarray copies it, by the address's last six bits.
#
# Versions: jax 0.10.2, jaxlib 0.10.2 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: asarray avoids a copy where it can, as in NumPy, and device_put moves to a device, so it copies. jax arrays are
#   immutable.
# What happens: the other way round: jnp.asarray copies; device_put takes the memory itself if it begins at a multiple
#   of 64 bytes, so a later write to the NumPy array changes the immutable jax array, and copies at any other address.
#   from_dlpack follows the same rule. NumPy promises no such alignment, so the same program may share on one run and
#   copy on another. `may_alias=False` does not forbid it here.
#
# Output seen, which this script compares with what it prints:
#> device_put: aligned to 64 shared, 16 past it copied
#> device_put, may_alias=False: aligned to 64 shared, 16 past it copied
#> from_dlpack: aligned to 64 shared, 16 past it copied
#> asarray: aligned to 64 copied, 16 past it copied
#> array: aligned to 64 copied, 16 past it copied
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import jax
import jax.numpy as jnp
import numpy as np

def at(offset):
    """Return 1024 zeros that begin offset bytes past a multiple of 64."""
    block = np.zeros(4096 + 128, np.uint8)
    start = -block.ctypes.data % 64 + offset
    return block[start : start + 4096].view(np.float32)

ways = {
    "device_put": jax.device_put,
    "device_put, may_alias=False": lambda array: jax.device_put(array, may_alias=False),
    "from_dlpack": jnp.from_dlpack,
    "asarray": jnp.asarray,
    "array": jnp.array,
}
for label, take in ways.items():
    seen = []
    for offset in (0, 16):
        array = at(offset)
        taken = jax.block_until_ready(take(array))
        array[0] = 99
        seen.append("shared" if float(taken[0]) == 99 else "copied")
    print(f"{label}: aligned to 64 {seen[0]}, 16 past it {seen[1]}")
PROGRAM
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
