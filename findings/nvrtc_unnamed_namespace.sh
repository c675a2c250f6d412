#!/usr/bin/env bash
# NVRTC puts the process's id and the time into names of an unnamed namespace, so the same source gives other names each run.
#
# Versions: nvidia-cuda-nvrtc 13.5.37, cuda-bindings 13.5.0, CPython 3.11
# Guess: compilation is a function of source, options and compiler: lowered names and images are equal in every process
#   and on every rank, as they are of gcc and clang (_ZN12_GLOBAL__N_1...).
# What happens: the unnamed namespace is named _GLOBAL__N_, a length, the file and two numbers; the last is the process's
#   id, the other changes with the time. The name of a kernel in it, and of a template whose argument is a type in it,
#   differs in each process, and so do PTX and cubin; without such a namespace both are equal. A name from one process is
#   not found in the image of another: take the lowered name that was stored with the image, or name the namespace.
#
# Output seen, which this script compares with what it prints:
#> named namespace: names equal True images equal True
#> unnamed namespace: names equal False images equal False
#> type of an unnamed namespace: names equal False images equal False
#> static kernel: names equal True images equal True
#> the name ends in the process's id True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37
cat >"$folder/compile.py" <<'PROGRAM'
import hashlib
import os
import sys
from cuda.bindings import nvrtc

source, kernel = (text.encode() for text in sys.argv[1:])
program = nvrtc.nvrtcCreateProgram(source, b"waves.cu", 0, [], [])[1]
nvrtc.nvrtcAddNameExpression(program, kernel)
(status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
image = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
nvrtc.nvrtcGetCUBIN(program, image)
name = nvrtc.nvrtcGetLoweredName(program, kernel)[1].decode()
print(name, hashlib.sha256(image).hexdigest(), f"_{os.getpid()}" in name)
PROGRAM
cat >"$folder/program.py" <<'PROGRAM'
import subprocess
import sys

def compiled(source, kernel):
    command = [sys.executable, sys.argv[1], source, kernel]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

for name, source, kernel in (
    ("named namespace", "namespace waves { __global__ void scale(float* x) { *x *= 2; } }", "waves::scale"),
    ("unnamed namespace", "namespace { __global__ void scale(float* x) { *x *= 2; } }", "scale"),
    (
        "type of an unnamed namespace",
        "namespace { struct Twice {}; } template <class T> __global__ void scale(float* x) { *x *= 2; }",
        "scale<Twice>",
    ),
    ("static kernel", "static __global__ void scale(float* x) { *x *= 2; }", "scale"),
):
    first, second = compiled(source, kernel), compiled(source, kernel)
    print(f"{name}: names equal {first[0] == second[0]} images equal {first[1] == second[1]}")
    if name == "unnamed namespace":
        ends = first[2] == second[2] == "True"
print("the name ends in the process's id", ends)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder/compile.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
