#!/usr/bin/env bash
# NumPy with ml_dtypes, torch and jax round float64 and int64 to bfloat16 twice; CUDA's conversion rounds once.
#
# Versions: ml_dtypes 0.6.0, NumPy 2.4.6, torch 2.13.0, jax 0.10.2, nvidia-cuda-nvrtc 13.5.37, cuda-bindings 13.5.0,
#   CPython 3.11
# Guess: a conversion yields the value nearest to its operand (IEEE 754), so a reference computed in double and cast to
#   the type of a kernel's output is what the kernel's own conversion yields.
# What happens: the value goes through float32. 1 + 2**-8 + 2**-40 lies above the middle of 1 and 1.0078125, but float32
#   rounds it to the middle, and bfloat16 then to the even 1.0. NumPy converts to its own float16 exactly; torch and jax
#   round twice there too. ml_dtypes and torch also reach float8 through float32, jax does not. int64 as float64.
#   `__nv_bfloat16(double)` becomes `cvt.rn.bf16.f64` on sm_90. Results differ by one unit in the last place.
#
# Output seen, which this script compares with what it prints:
#> 1 + 2**-8 + 2**-40 to bfloat16: nearest 1.0078125, ml_dtypes 1.0, torch 1.0, jax 1.0
#> 1 + 2**-11 + 2**-40 to float16: nearest 1.0009765625, numpy 1.0009765625, torch 1.0, jax 1.0
#> 1 + 2**-4 + 2**-40 to float8_e4m3fn: nearest 1.125, ml_dtypes 1.0, torch 1.0, jax 1.125
#> 2**40 + 2**32 + 1 to bfloat16: nearest 2**40 + 2**33, ml_dtypes 2**40 + 0, torch 2**40 + 0, jax 2**40 + 0
#> CUDA, sm_90: cvt.rn.bf16.f64 cvt.rn.bf16.s64
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes==0.6.0 numpy==2.4.6 torch==2.13.0 jax==0.10.2 \
    cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37 nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37
cat >"$folder/program.py" <<'PROGRAM'
import re
import sysconfig
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from cuda.bindings import nvrtc

jax.config.update("jax_enable_x64", True)

def numpy_cast(value, name):
    return float(np.array([value]).astype(getattr(ml_dtypes, name, None) or name)[0])

def torch_cast(value, name):
    return float(torch.tensor([value], dtype=torch.int64 if isinstance(value, int) else torch.float64).to(getattr(torch, name)))

def jax_cast(value, name):
    return float(jnp.array([value]).astype(name)[0])

for text, name, nearest in (
    ("1 + 2**-8 + 2**-40", "bfloat16", 1 + 2**-7),
    ("1 + 2**-11 + 2**-40", "float16", 1 + 2**-10),
    ("1 + 2**-4 + 2**-40", "float8_e4m3fn", 1 + 2**-3),
):
    library = "numpy" if name == "float16" else "ml_dtypes"
    value = eval(text)
    print(f"{text} to {name}: nearest {nearest}, {library} {numpy_cast(value, name)}, torch {torch_cast(value, name)}, jax {jax_cast(value, name)}")
value = 2**40 + 2**32 + 1
found = [int(cast(value, "bfloat16")) - 2**40 for cast in (numpy_cast, torch_cast, jax_cast)]
print("2**40 + 2**32 + 1 to bfloat16: nearest 2**40 + 2**33, ml_dtypes 2**40 + {}, torch 2**40 + {}, jax 2**40 + {}".format(*found))

source = b"""#include <cuda_bf16.h>
__global__ void narrow(__nv_bfloat16* y, double x, long long n) { y[0] = __nv_bfloat16(x); y[1] = __nv_bfloat16(n); }"""
program = nvrtc.nvrtcCreateProgram(source, b"narrow.cu", 0, [], [])[1]
include = f"--include-path={sysconfig.get_path('purelib')}/nvidia/cu13/include".encode()
(status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=sm_90", include])
ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
nvrtc.nvrtcGetPTX(program, ptx)
print("CUDA, sm_90:", *sorted(re.findall(r"cvt\.rn\.bf16\.\w+", ptx.decode())))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
