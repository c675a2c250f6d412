#!/usr/bin/env bash
# From sm_90 on, a cubin's own figure for static shared memory has 1024 bytes more than the kernel declares.
#
# Versions: nvidia-cuda-nvrtc, nvidia-cuda-cuobjdump 13.5.37, cuda-bindings 13.5.0, pyelftools 0.33, CPython 3.11
# Guess: the section .nv.shared.<kernel> has the bytes of the kernel's `__shared__` variables, on each architecture, and
#   `cuobjdump -res-usage` prints what `ptxas -v` prints. The 1 KB per block that the system reserves from compute
#   capability 8.0 on is counted by neither.
# What happens: so it is on sm_80. On sm_90, sm_100 and sm_120 the section and cuobjdump say 1280 for 256 declared bytes,
#   and 1024 for a kernel with dynamic shared memory alone, while ptxas says 256 and 0. A kernel without any has no
#   section and 0. A tool that adds the reserved kilobyte to the figure in the file counts it twice.
#
# Output seen, which this script compares with what it prints:
#> sm_80 static: ptxas 256, cuobjdump 256, section 256
#> sm_80 dynamic: ptxas 0, cuobjdump 0, section 0
#> sm_80 none: ptxas 0, cuobjdump 0, section None
#> sm_90 static: ptxas 256, cuobjdump 1280, section 1280
#> sm_90 dynamic: ptxas 0, cuobjdump 1024, section 1024
#> sm_90 none: ptxas 0, cuobjdump 0, section None
#> sm_120 static: ptxas 256, cuobjdump 1280, section 1280
#> sm_120 dynamic: ptxas 0, cuobjdump 1024, section 1024
#> sm_120 none: ptxas 0, cuobjdump 0, section None
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37 \
    nvidia-cuda-cuobjdump==13.5.37 pyelftools==0.33
cat >"$folder/program.py" <<'PROGRAM'
import io
import re
import subprocess
import sys
import sysconfig
from cuda.bindings import nvrtc
from elftools.elf.elffile import ELFFile

BODY = "s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];"
KERNELS = {
    "static": "__shared__ float s[64]; " + BODY,
    "dynamic": "extern __shared__ float s[]; " + BODY,
    "none": "x[threadIdx.x] *= 2;",
}
cuobjdump = sysconfig.get_path("purelib") + "/nvidia/cu13/bin/cuobjdump"
for architecture in ("sm_80", "sm_90", "sm_120"):
    for name, body in KERNELS.items():
        source = f'extern "C" __global__ void turn(float* x) {{ {body} }}'.encode()
        program = nvrtc.nvrtcCreateProgram(source, b"turn.cu", 0, [], [])[1]
        options = [f"--gpu-architecture={architecture}".encode(), b"--ptxas-options=-v"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        image = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
        nvrtc.nvrtcGetCUBIN(program, image)
        log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
        nvrtc.nvrtcGetProgramLog(program, log)
        path = f"{sys.argv[1]}/turn.cubin"
        with open(path, "wb") as file:
            file.write(image)
        usage = subprocess.run([cuobjdump, "-res-usage", path], check=True, capture_output=True, text=True).stdout
        section = ELFFile(io.BytesIO(image)).get_section_by_name(".nv.shared.turn")
        said = re.search(r"(\d+) bytes smem", log.decode())
        print(
            f"{architecture} {name}: ptxas {said[1] if said else 0}, cuobjdump {re.search(r'SHARED:([0-9]+)', usage)[1]},",
            f"section {section and section['sh_size']}",
        )
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
