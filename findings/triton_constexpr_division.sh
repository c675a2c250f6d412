#!/usr/bin/env bash
# Triton's `//` and `%` round down for constants and toward zero for run-time values: the type of an argument decides.
#
# Versions: triton 3.9.0 (targets sm_90 and gfx942, no GPU needed), NumPy 2.4.6, CPython 3.11
# Guess: an argument that becomes `tl.constexpr` makes code faster and keeps its results, so that a // 3 and a % 3 are the
#   same for a = -7, whichever rule they follow.
# What happens: between constants Python computes, -3 and 2; else arith.divsi and arith.remsi do, which give -2 and -1.
#   Literals in the kernel's text are constants too. An index that wraps around in tests with constexpr arguments is
#   negative with run-time ones.
#
# Output seen, which this script compares with what it prints:
#> cuda, a = -7 constexpr: stores [-3, 2], arith none
#> cuda, a run-time: stores [], arith divsi remsi
#> hip, a = -7 constexpr: stores [-3, 2], arith none
#> hip, a run-time: stores [], arith divsi remsi
#> divsi of (-7, 3) toward zero, folded by the compiler: [-2, -1]
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
def divide(x, a):
    tl.store(x, a // 3)
    tl.store(x + 1, a % 3)

@triton.jit
def divide_tensor(x):
    a = tl.full((), -7, tl.int32)  # a value of run time, which the compiler then folds
    tl.store(x, a // 3)
    tl.store(x + 1, a % 3)

def compiled(target, function=divide, constant=None):
    signature = {"x": "*i32", "a": "i32" if constant is None else "constexpr"}
    if function is divide_tensor:
        del signature["a"]
    constants = {} if constant is None else {"a": constant}
    return triton.compile(ASTSource(fn=function, signature=signature, constexprs=constants), target=target).asm

def stored(text):
    constants = dict(re.findall(r"(%\S+) = arith.constant (-?\d+) : i32", text))
    return [int(constants[name]) for name in re.findall(r"tt.store %\w+, (%\S+) :", text) if name in constants]

for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
    for name, constant in (("a = -7 constexpr", -7), ("a run-time", None)):
        text = compiled(target, constant=constant)["ttir"]
        operations = " ".join(re.findall(r"arith\.(div\w+|rem\w+)", text)) or "none"
        print(f"{target.backend}, {name}: stores {stored(text)}, arith {operations}")
ir = compiled(GPUTarget("hip", "gfx942", 64), divide_tensor)["ttir"]
print("divsi of (-7, 3) toward zero, folded by the compiler:", stored(ir))
PROGRAM
TRITON_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
