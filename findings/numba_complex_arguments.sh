#!/usr/bin/env bash
# Numba passes a complex argument as two floats, with abi="c" too: linked to C++, the function reads other registers.
#
# Versions: numba-cuda 0.30.4, numba 0.68.1, nvidia-nvvm, nvidia-cuda-nvrtc, nvidia-nvjitlink and
#   nvidia-cuda-nvdisasm 13.5.37, cuda-bindings 13.5.0, NumPy 2.4.6, CPython 3.11; no GPU needed
# Guess: a kernel has one parameter for a complex64, 8 bytes as a cuFloatComplex; a device function compiled with abi="c"
#   has the prototype that C++ gives `float2 pick(int, float2)`, and a linker refuses one that differs.
# What happens: both have two .f32 parameters, so that a launcher with one pointer for each argument of the function
#   passes too few. The result of the device function is one object of 8 bytes, its arguments are not. As PTX,
#   nvJitLink complains of the prototype on standard error, reports success and an empty log: C++ passes the pair in
#   R6 and R7, where it is aligned, and Numba's function reads R5 and R6. As LTO-IR the parameters are mapped, and it is right.
#
# Output seen, which this script compares with what it prints:
#> kernel scale(int32, complex64): u32 f32 f32
#> device pick(int32, complex64): b32 b32 b32
#> C++ pick(int, float2): b32 align 8 b8[8]
#> PTX linked, log '': caller loads R6, function reads R5 R6
#> LTO-IR linked, log '': function reads R5 R6, caller moves to R5 R6
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numba-cuda==0.30.4 numba==0.68.1 numpy==2.4.6 cuda-bindings==13.5.0 \
    nvidia-nvvm==13.5.37 nvidia-cuda-nvrtc==13.5.37 nvidia-nvjitlink==13.5.37 nvidia-cuda-nvdisasm==13.5.37
cat >"$folder/program.py" <<'PROGRAM'
import re
import subprocess
import sys
import sysconfig
import warnings
from cuda.bindings import nvjitlink, nvrtc

warnings.simplefilter("ignore")
from numba import cuda, types

def scale(n, x):
    pass

def pick(n, x):
    return x

SIGNATURE = (types.int32, types.complex64)
SOURCE = b"""extern "C" __device__ float2 pick(int, float2);
extern "C" __global__ void caller(float2* p) { p[0] = pick(7, p[1]); }"""

def numba_pick(output):
    code, _ = cuda.compile(pick, SIGNATURE, cc=(9, 0), abi="c", abi_info={"abi_name": "pick"}, output=output)
    return code if isinstance(code, bytes) else code.encode()

def cxx_caller(kind, *options):
    program = nvrtc.nvrtcCreateProgram(SOURCE, b"caller.cu", 0, [], [])[1]
    options = [b"--gpu-architecture=sm_90", b"-rdc=true", *options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    code = b" " * getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1]
    getattr(nvrtc, f"nvrtcGet{kind}")(program, code)
    return code

def parameters(declaration):
    found = re.findall(r"\.param \.(align \d+ \.b8|\w+) \w*param_\d+(\[\d+\])?", declaration)
    return " ".join(kind.replace(" .", " ") + size for kind, size in found)

def linked(kind, options, *codes):
    linker = nvjitlink.create(len(options), list(options))
    for code in codes:
        nvjitlink.add_data(linker, getattr(nvjitlink.InputType, kind), code, len(code), "input")
    nvjitlink.complete(linker)
    log = bytearray(nvjitlink.get_error_log_size(linker))
    nvjitlink.get_error_log(linker, log)
    image = bytearray(nvjitlink.get_linked_cubin_size(linker))
    nvjitlink.get_linked_cubin(linker, image)
    path = sys.argv[1] + "/image.cubin"
    with open(path, "wb") as file:
        file.write(image)
    nvdisasm = sysconfig.get_path("purelib") + "/nvidia/cu13/bin/nvdisasm"
    text = subprocess.run([nvdisasm, "-c", path], check=True, capture_output=True, text=True).stdout
    return text, log.decode().strip("\0")

def read_by_pick(text):
    body = re.search(r"pick:\n(.*?)RET", text, re.DOTALL)[1]
    return " ".join(re.findall(r"MOV R\d+, (R\d+)", body))

kernel, _ = cuda.compile(scale, SIGNATURE, cc=(9, 0), device=False, abi="numba", output="ptx")
print("kernel scale(int32, complex64):", parameters(re.search(r"\.entry.*?\)", kernel, re.DOTALL)[0]))
device = numba_pick("ptx")
print("device pick(int32, complex64):", parameters(re.search(r"\.visible \.func.*?\{", device.decode(), re.DOTALL)[0]))
caller = cxx_caller("PTX")
print("C++ pick(int, float2):", parameters(re.search(r"\.extern \.func.*?;", caller.decode(), re.DOTALL)[0]))

text, log = linked("PTX", ["-arch=sm_90"], device, caller)
loaded = re.search(r"LDG\.E\.64 (R\d+)", text)[1]
print(f"PTX linked, log {log!r}: caller loads {loaded}, function reads {read_by_pick(text)}")
text, log = linked("LTOIR", ["-arch=sm_90", "-lto"], numba_pick("ltoir"), cxx_caller("LTOIR", b"-dlto"))
moved = " ".join(sorted(re.findall(r"MOV\S* (R[56]),", text.partition("CALL")[0])))
print(f"LTO-IR linked, log {log!r}: function reads {read_by_pick(text)}, caller moves to {moved}")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
