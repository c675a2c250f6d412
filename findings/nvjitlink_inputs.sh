#!/usr/bin/env bash
# nvJitLink drops the kernels of a cubin that was not compiled with -rdc, and fuses what was compiled with -fmad=false.
#
# Versions: nvidia-nvjitlink, nvidia-cuda-nvrtc and nvidia-cuda-nvdisasm 13.5.37, cuda-bindings 13.5.0, pyelftools 0.33,
#   CPython 3.11
# Guess: a cubin that cannot be linked is an error, as one for another architecture is; options of the compilation are part
#   of its LTO-IR, as -use_fast_math is.
# What happens: a whole-program cubin, NVRTC's default, links with success and empty logs into an image without its
#   kernels, also beside others, whose kernels remain, and one for sm_90 under -arch=sm_80. The same program as PTX links. In
#   LTO-IR compiled with -fmad=false a product and a sum become one FFMA, unless the linker gets -fma=0 too; the cubin of
#   the same source has FMUL and FADD, so that results differ. A division by -use_fast_math stays approximate.
#
# Output seen, which this script compares with what it prints:
#> whole-program cubin: kernels none, log ''
#> whole-program cubin, -arch=sm_80: kernels none, log ''
#> beside a relocatable one: kernels second, log ''
#> relocatable cubin: kernels first, log ''
#> relocatable cubin, -arch=sm_80: ERROR_INVALID_INPUT
#> whole-program PTX: kernels first, log ''
#> -fmad=false, cubin: FADD FMUL
#> -fmad=false, linked: FFMA
#> -fmad=false, linked with -fma=0: FADD FMUL
#> -use_fast_math, cubin and linked alike: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37 \
    nvidia-nvjitlink==13.5.37 nvidia-cuda-nvdisasm==13.5.37 pyelftools==0.33
cat >"$folder/program.py" <<'PROGRAM'
import io
import re
import subprocess
import sys
import sysconfig
from cuda.bindings import nvjitlink, nvrtc
from elftools.elf.elffile import ELFFile

def compiled(source, kind, *options):
    program = nvrtc.nvrtcCreateProgram(source.encode(), b"first.cu", 0, [], [])[1]
    options = [option.encode() for option in ("--gpu-architecture=sm_90", *options)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    image = b" " * getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1]
    getattr(nvrtc, f"nvrtcGet{kind}")(program, image)
    return image

def linked(kind, *images, options=("-arch=sm_90",)):
    linker = nvjitlink.create(len(options), list(options))
    for image in images:
        nvjitlink.add_data(linker, getattr(nvjitlink.InputType, kind), image, len(image), "input")
    nvjitlink.complete(linker)
    log = bytearray(nvjitlink.get_error_log_size(linker)), bytearray(nvjitlink.get_info_log_size(linker))
    nvjitlink.get_error_log(linker, log[0])
    nvjitlink.get_info_log(linker, log[1])
    result = bytearray(nvjitlink.get_linked_cubin_size(linker))
    nvjitlink.get_linked_cubin(linker, result)
    return bytes(result), b"".join(log).decode().strip("\0")

def kernels(name, *arguments, **more):
    try:
        image, log = linked(*arguments, **more)
    except nvjitlink.nvJitLinkError as error:
        print(f"{name}: {re.match(r'ERROR_[A-Z_]+', str(error))[0]}")
        return
    symbols = ELFFile(io.BytesIO(image)).get_section_by_name(".symtab").iter_symbols()
    found = [symbol.name for symbol in symbols if symbol["st_info"]["type"] == "STT_FUNC"]
    print(f"{name}: kernels {' '.join(found) or 'none'}, log {log!r}")

def instructions(image):
    path = sys.argv[1] + "/image.cubin"
    with open(path, "wb") as file:
        file.write(image)
    nvdisasm = sysconfig.get_path("purelib") + "/nvidia/cu13/bin/nvdisasm"
    text = subprocess.run([nvdisasm, "-c", path], check=True, capture_output=True, text=True).stdout
    return " ".join(sorted(set(re.findall(r"\b(?:FFMA|FMUL|FADD|MUFU\.\w+)\b", text))))

SOURCE = 'extern "C" __global__ void %s(float* x) { %s }'
double = SOURCE % ("first", "x[0] *= 2;")
whole, relocatable = compiled(double, "CUBIN"), compiled(double, "CUBIN", "-rdc=true")
second = compiled(SOURCE % ("second", "x[0] *= 3;"), "CUBIN", "-rdc=true")
kernels("whole-program cubin", "CUBIN", whole)
kernels("whole-program cubin, -arch=sm_80", "CUBIN", whole, options=("-arch=sm_80",))
kernels("beside a relocatable one", "CUBIN", whole, second)
kernels("relocatable cubin", "CUBIN", relocatable)
kernels("relocatable cubin, -arch=sm_80", "CUBIN", relocatable, options=("-arch=sm_80",))
kernels("whole-program PTX", "PTX", compiled(double, "PTX"))

lto = ("-arch=sm_90", "-lto")
axpy = SOURCE % ("axpy", "x[0] = x[1] * x[2] + x[3];")
print("-fmad=false, cubin:", instructions(compiled(axpy, "CUBIN", "-fmad=false")))
code = compiled(axpy, "LTOIR", "-fmad=false", "-dlto")
print("-fmad=false, linked:", instructions(linked("LTOIR", code, options=lto)[0]))
print("-fmad=false, linked with -fma=0:", instructions(linked("LTOIR", code, options=(*lto, "-fma=0"))[0]))
ratio = SOURCE % ("ratio", "x[0] = x[1] / x[2];")
code = compiled(ratio, "LTOIR", "-use_fast_math", "-dlto")
alike = instructions(compiled(ratio, "CUBIN", "-use_fast_math")) == instructions(linked("LTOIR", code, options=lto)[0])
print("-use_fast_math, cubin and linked alike:", alike)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
