"""Which of the planted faults NVIDIA's compute-sanitizer finds, tool by tool: ``python tests/device/compute_sanitizer.py``.

It takes nvcc, compute-sanitizer and a device, and prints a table. With ``--build`` it only compiles.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from planted import FAULTS, Fault

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
FOUND = 99  # the exit status that stands for a finding

HEAD = """#include <cstdio>
#include <cstring>
#include <vector>
"""
MAIN = """
static int run(void (*k)(int*, int*, int), dim3 grid, dim3 block, int n, int shared, bool fresh) {
  std::vector<int> values(n);
  for (int i = 0; i < n; ++i) values[i] = i;
  int *a, *b;
  cudaMalloc(&a, n * sizeof(int));
  cudaMalloc(&b, n * sizeof(int));
  cudaMemcpy(a, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  if (!fresh) cudaMemcpy(b, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  k<<<grid, block, shared>>>(a, b, n);
  const cudaError_t error = cudaDeviceSynchronize();
  printf("%s\\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
"""


def program() -> str:
    """Return one program that runs the kernel whose name it is given."""
    kernels = "".join(f"namespace fault_{fault.name} {{\n{fault.source}}}\n" for fault in FAULTS)
    rows = "".join(
        f'  if (!strcmp(argv[1], "{fault.name}")) return run(fault_{fault.name}::k, dim3{_extents(fault.grid)}, '
        f"dim3{_extents(fault.block)}, {fault.n}, {fault.shared_bytes}, {str(fault.fresh).lower()});\n"
        for fault in FAULTS
    )
    return f"{HEAD}{kernels}{MAIN}int main(int, char** argv) {{\n{rows}  return 2;\n}}\n"


def _extents(extents: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, extents))})"


def found(binary: Path, fault: Fault, tool: str) -> str:
    """Return ``yes``, ``no``, or why it cannot be told."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), str(binary), fault.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    reported = done.returncode == FOUND or re.search(r"SUMMARY: [1-9]\d* (errors?|hazards?)", done.stdout)
    return "yes" if reported else "no"


def main() -> int:
    """Compile, run each fault under each tool, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "faults.cu"), Path(folder, "faults")
        source.write_text(program())
        subprocess.run(["nvcc", "-w", "-O1", "-lineinfo", "-o", str(binary), str(source)], check=True)
        if "--build" in sys.argv:
            print(f"compiled {len(FAULTS)} kernels")
            return 0
        print(f"{'fault':28} {'kind':18} " + " ".join(f"{tool:10}" for tool in TOOLS))
        count = 0
        for fault in FAULTS:
            results = [found(binary, fault, tool) for tool in TOOLS]
            count += "yes" in results
            print(f"{fault.name:28} {fault.kind:18} " + " ".join(f"{result:10}" for result in results), flush=True)
        print(f"compute-sanitizer finds {count} of {len(FAULTS)}; the CPU runtime's sanitizer must find all of these")
    return 0


if __name__ == "__main__":
    sys.exit(main())
