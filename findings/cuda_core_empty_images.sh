#!/usr/bin/env bash
# cuda.core compiles to an image of no bytes, without an error, if an option and the format that is asked for do not fit.
#
# Versions: cuda-core 1.2.2, cuda-bindings 13.5.0, nvidia-cuda-nvrtc and nvidia-nvjitlink 13.5.37 (no GPU), NumPy 2.4.6,
#   CPython 3.11
# Guess: compile("ltoir") asks NVRTC for LTO-IR, and compile("cubin") for a cubin; what cannot be had is an error, as an
#   unknown format is.
# What happens: the argument only tells which result to fetch. Without link_time_optimization the LTO-IR has 0 bytes, with it
#   the cubin has, and for a virtual architecture as well. gen_opt_lto alone changes nothing, and relocatable device code
#   has no LTO-IR either. The log stays empty, a program cache keeps the empty result, and only a linker refuses it, without
#   its name. Check len(image.code). In define_macro a tuple ("A", "B") is A=B, and a list of both is two macros.
#
# Output seen, which this script compares with what it prints:
#> cubin, sm_90: some bytes, log ''
#> ltoir, sm_90: 0 bytes, log ''
#> ltoir, sm_90, gen_opt_lto: 0 bytes, log ''
#> ltoir, sm_90, relocatable_device_code: 0 bytes, log ''
#> ltoir, sm_90, link_time_optimization: some bytes, log ''
#> cubin, sm_90, link_time_optimization: 0 bytes, log ''
#> cubin, compute_90: 0 bytes, log ''
#> cached: 1 entry, 0 bytes
#> linked LTO-IR: cubin
#> linked LTO-IR and an empty one: nvJitLinkError ERROR_INVALID_INPUT (3)
#> define_macro=('A', 'B'): --define-macro=A=B
#> define_macro=['A', 'B']: --define-macro=A --define-macro=B
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cuda-core==1.2.2 cuda-bindings==13.5.0 numpy==2.4.6 \
    nvidia-cuda-nvrtc==13.5.37 nvidia-nvjitlink==13.5.37
cat >"$folder/program.py" <<'PROGRAM'
import io
from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core import Linker, LinkerOptions, Program, ProgramOptions
from cuda.core.utils import InMemoryProgramCache

SOURCE = 'extern "C" __global__ void scale(float* x) { x[0] *= 2; }'

def compiled(kind, arch="sm_90", **options):
    log = io.StringIO()
    image = Program(SOURCE, "c++", ProgramOptions(arch=arch, **options)).compile(kind, logs=log)
    size = "some bytes" if len(image.code) else "0 bytes"
    print(f"{kind}, {', '.join([arch, *options])}: {size}, log {log.getvalue()!r}")
    return image

compiled("cubin")
empty = compiled("ltoir")
compiled("ltoir", gen_opt_lto=True)
compiled("ltoir", relocatable_device_code=True)
code = compiled("ltoir", link_time_optimization=True)
compiled("cubin", link_time_optimization=True)
compiled("cubin", arch="compute_90")

cache = InMemoryProgramCache()
for _ in range(2):
    image = Program(SOURCE, "c++", ProgramOptions(arch="sm_90")).compile("ltoir", cache=cache)
print(f"cached: {len(cache)} entry, {len(image.code)} bytes")

options = LinkerOptions(arch="sm_90", link_time_optimization=True)
for label, images in (("LTO-IR", [code]), ("LTO-IR and an empty one", [code, empty])):
    try:
        print(f"linked {label}:", Linker(*images, options=options).link("cubin").code_type)
    except nvJitLinkError as error:
        print(f"linked {label}: {type(error).__name__} {str(error).splitlines()[0]}")
for macros in (("A", "B"), ["A", "B"]):
    flags = ProgramOptions(arch="sm_90", define_macro=macros).as_bytes("nvrtc")
    print(f"define_macro={macros}:", *(flag.decode() for flag in flags[1:]))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
