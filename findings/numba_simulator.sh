#!/usr/bin/env bash
# Numba's CUDA simulator computes integers and float32 constants in other types than the compiled kernel.
#
# Versions: numba-cuda 0.30.4, numba 0.68.1, NumPy 2.4.6, nvidia-cuda-nvrtc and nvidia-nvvm 13.5.37, CPython 3.11
# Guess: the simulator is slow and lacks some functions, but a kernel without races that it runs gives what a GPU gives.
# What happens: it runs the Python function on NumPy's scalars, by NumPy's rules; the compiler types by Numba's rules. The
#   sum of two uint8 is uint8 there and int64 on a GPU, so that 200 + 200 is 144 or 400, and int32 likewise. A float32
#   times 0.1 is a float32 product there, and a product of doubles, rounded at the store, on a GPU. Cast in the kernel, as
#   in np.int64(x[i]) and np.float32(0.1), and both agree.
#
# Output seen, which this script compares with what it prints:
#> simulator: uint8 144, int32 -2, float32 0x1.99999a0000000p-4
#> simulator, cast: uint8 400, int32 4294967294
#> compiled for sm_90, uint8: mul.wide.u32 st.global.u64
#> compiled for sm_90, int32: mul.wide.s32 st.global.u64
#> compiled for sm_90, float32: cvt.f64.f32 mul.f64 cvt.rn.f32.f64 st.global.f32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numba-cuda==0.30.4 numba==0.68.1 numpy==2.4.6 \
    cuda-bindings==13.5.0 cuda-core==1.2.2 nvidia-cuda-nvrtc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-runtime==13.5.37 \
    nvidia-cuda-crt==13.5.37 nvidia-nvjitlink==13.5.37
cat >"$folder/program.py" <<'PROGRAM'
import os
import re
import warnings
import numpy as np
from numba import cuda, types

warnings.simplefilter("ignore")

def twice(total, x):
    total[0] = x[0] + x[0]

def twice_cast(total, x):
    total[0] = np.int64(x[0]) + np.int64(x[0])

def tenth(total, x):
    total[0] = x[0] * 0.1

if os.environ.get("NUMBA_ENABLE_CUDASIM"):
    def run(function, value, dtype="int64"):
        total = np.zeros(1, dtype)
        cuda.jit(function)[1, 1](total, np.array([value]))
        return total[0]

    values = np.uint8(200), np.int32(2**31 - 1)
    sums = [run(twice, value) for value in values]
    print(f"simulator: uint8 {sums[0]}, int32 {sums[1]}, float32 {float(run(tenth, np.float32(1), 'float32')).hex()}")
    sums = [run(twice_cast, value) for value in values]
    print(f"simulator, cast: uint8 {sums[0]}, int32 {sums[1]}")
else:
    for name, function, total, x in (
        ("uint8", twice, types.int64, types.uint8),
        ("int32", twice, types.int64, types.int32),
        ("float32", tenth, types.float32, types.float32),
    ):
        signature = types.void(total[::1], x[::1])
        ptx, _ = cuda.compile(function, signature, cc=(9, 0), device=False, abi="numba", output="ptx")
        print(f"compiled for sm_90, {name}:", *re.findall(r"\b(?:mul|add|cvt|st\.global)\.[\w.]+", ptx))
PROGRAM
{
    NUMBA_ENABLE_CUDASIM=1 "$folder/venv/bin/python" "$folder/program.py"
    "$folder/venv/bin/python" "$folder/program.py"
} | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
