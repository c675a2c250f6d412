#!/usr/bin/env bash
# A code object of Triton for AMD has two more kernel arguments than the function, which look like the user's own.
#
# Versions: triton 3.9.0 (target gfx942, no GPU needed), NumPy 2.4.6, CPython 3.11
# Guess: the kernel takes the function's run-time arguments; what a compiler adds carries a `hidden_` value kind in the
#   metadata, as in HIP and OpenCL.
# What happens: two pointers (scratch memory, global and for profiling) follow as ordinary `global_buffer` arguments,
#   also where both sizes are 0 and nothing reads them. The argument segment has 40 bytes where the three arguments need
#   20, and no argument has a name, so a loader can tell them from the user's only by knowing Triton. A launcher passes
#   two null pointers at the end.
#
# Output seen, which this script compares with what it prints:
#> offset 0 global_buffer
#> offset 8 global_buffer
#> offset 16 by_value
#> offset 24 global_buffer
#> offset 32 global_buffer
#> named arguments 0  hidden 0
#> segment 40
#> sizes 0 0
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
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
source = ASTSource(fn=scale, signature=signature, constexprs={"BLOCK": 256})
kernel = triton.compile(source, target=GPUTarget("hip", "gfx942", 64))
text = kernel.asm["amdgcn"].partition(".amdgpu_metadata")[2]
for offset, kind in re.findall(r"\.offset: +(\d+).*?\.value_kind: +(\w+)", text, re.DOTALL):
    print("offset", offset, kind)
print("named arguments", len(re.findall(r"- \.name:", text)), " hidden", text.count("hidden_"))
print("segment", re.search(r"kernarg_segment_size: +(\d+)", text)[1])
print("sizes", kernel.metadata.global_scratch_size, kernel.metadata.profile_scratch_size)
PROGRAM
TRITON_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
