#!/usr/bin/env bash
# PyTorch says uint1 to uint7 and int1 to int7 are 8-bit integers in DLPack.
#
# Versions: torch 2.13.0 (CPU), NumPy 2.4.6, CPython 3.11
# Guess: DLPack's dtype has a number of bits, with a layout for fewer than 8, so torch.uint4 is exported as 4 bits or,
#   like torch.bits8, refused.
# What happens: the capsule says 8 bits, so a reader gets uint8 and the width is lost; so a uint1 tensor may hold 255 in
#   the reader's eyes, and int4 arrives as int8. float4_e2m1fn_x2, two values a byte, is exported with 4 bits and 2
#   lanes.
#
# Output seen, which this script compares with what it prints:
#> uint1 code 1 bits 8 lanes 1
#> uint4 code 1 bits 8 lanes 1
#> uint7 code 1 bits 8 lanes 1
#> int4 code 0 bits 8 lanes 1
#> uint8 code 1 bits 8 lanes 1
#> bits8 BufferError
#> float4_e2m1fn_x2 code 17 bits 4 lanes 2
#> read as [255 255]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import ctypes
import numpy as np
import torch

pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
for name in ("uint1", "uint4", "uint7", "int4", "uint8", "bits8", "float4_e2m1fn_x2"):
    tensor = torch.full((2,), 255, dtype=torch.uint8).view(getattr(torch, name))
    try:
        capsule = tensor.__dlpack__()
    except (BufferError, RuntimeError) as error:
        print(name, type(error).__name__)
        continue
    # DLTensor: data, device (two int32), ndim (int32), then the dtype: code, bits, lanes.
    code, bits, lanes = ctypes.c_uint8 * 1, ctypes.c_uint8, ctypes.c_uint16
    at = pointer(capsule, b"dltensor") + 20
    print(name, "code", code.from_address(at)[0], "bits", bits.from_address(at + 1).value, "lanes", lanes.from_address(at + 2).value)
print("read as", np.from_dlpack(torch.full((2,), 255, dtype=torch.uint8).view(torch.uint1)))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
