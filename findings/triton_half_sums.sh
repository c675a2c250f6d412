#!/usr/bin/env bash
# Triton's tl.sum and tl.cumsum of float16 and bfloat16 add in that type; of int8 they add in int32.
#
# Versions: triton 3.9.0 (targets sm_90 and gfx942, no GPU needed), NumPy 2.4.6, CPython 3.11
# Guess: sums of narrow types are accumulated in 32 bits, as int8 in int32, as tl.dot, torch.sum and NumPy's sum of
#   float16 do, and as tl.max widens bfloat16; the type of the result is a matter of the end.
# What happens: only integers are widened. Each step of the tree rounds to float16 or bfloat16 (`add.bf16` on sm_90), a sum
#   of squares overflows at 65504, and a running sum of ones in bfloat16 has no 257. A pointer to float32 for the result
#   widens after the sum. `tl.sum(x, dtype=tl.float32)` widens before.
#
# Output seen, which this script compares with what it prints:
#> sum int8: addi i32
#> sum float16: addf f16, cuda add.f16, hip v_add_f16
#> sum bfloat16: addf bf16, cuda add.bf16
#> cumsum float16: addf f16, cuda add.f16, hip v_add_f16
#> max bfloat16: maxnumf f32
#> sum float16, dtype=float32: addf f32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps triton==3.9.0 numpy==2.4.6
cat >"$folder/program.py" <<'PROGRAM'
import os
import re

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # 3.9 warns if it is not set

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def total(x, y):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, 256)), axis=0))

@triton.jit
def total_float32(x, y):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, 256)), axis=0, dtype=tl.float32))

@triton.jit
def running(x, y):
    tl.store(y + tl.arange(0, 256), tl.cumsum(tl.load(x + tl.arange(0, 256)), axis=0))

@triton.jit
def largest(x, y):
    tl.store(y, tl.max(tl.load(x + tl.arange(0, 256)), axis=0))

def show(name, function, kind):
    found = []
    for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        source = ASTSource(fn=function, signature={"x": "*" + kind, "y": "*fp32"})
        asm = triton.compile(source, target=target).asm
        if not found:
            found.append(" ".join(re.search(r"arith\.(\w+) %arg\d, %arg\d : (\w+)", asm["ttir"]).groups()))
        pattern = r"\badd\.b?f16\b" if target.backend == "cuda" else r"\bv_add_f16\b|\bv_add_f16(?=_)"
        machine = set(re.findall(pattern, asm["ptx" if target.backend == "cuda" else "amdgcn"]))
        found += [f"{target.backend} {instruction}" for instruction in sorted(machine)]
    print(f"{name}: {', '.join(found)}")

show("sum int8", total, "i8")
show("sum float16", total, "fp16")
show("sum bfloat16", total, "bf16")
show("cumsum float16", running, "fp16")
show("max bfloat16", largest, "bf16")
show("sum float16, dtype=float32", total_float32, "fp16")
PROGRAM
TRITON_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
