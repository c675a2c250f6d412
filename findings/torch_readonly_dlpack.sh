#!/usr/bin/env bash
# torch.from_dlpack ignores the read-only flag of DLPack, which its own `from_numpy` warns about.
#
# Versions: torch 2.13.0 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: the versioned capsule of DLPack 1.0 has a flag for read-only memory, and NumPy exports a read-only array with
#   it, or not at all; a consumer without read-only tensors refuses, copies or warns.
# What happens: torch asks for the versioned capsule, gets one with the flag set, and returns a writable tensor over the
#   memory with no warning; a write changes the read-only array. torch.from_numpy on the same array warns. NumPy's own
#   from_dlpack keeps it read-only.
#
# Output seen, which this script compares with what it prints:
#> capsule without version: refused by NumPy
#> np.from_dlpack writable: False
#> torch.from_dlpack: [] [99.0, 1.0, 2.0, 3.0]
#> torch.from_numpy: ['UserWarning']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import warnings
import numpy as np
import torch

def warned(convert, array):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return convert(array), [item.category.__name__ for item in caught]

array = np.arange(4.0)
array.flags.writeable = False
try:
    array.__dlpack__()
except BufferError:
    print("capsule without version: refused by NumPy")
print("np.from_dlpack writable:", np.from_dlpack(array).flags.writeable)
tensor, caught = warned(torch.from_dlpack, array)
tensor[0] = 99
print("torch.from_dlpack:", caught, array.tolist())
print("torch.from_numpy:", warned(torch.from_numpy, array)[1])
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
