#!/usr/bin/env bash
# A pointer read from a structure of cuda.bindings changes when the field is written, so that a swap copies.
#
# Versions: cuda-bindings 13.5.0 (no GPU needed), CPython 3.11
# Guess: a field that holds a pointer or a handle is read as a value, as integers are; a list written to a field sets the
#   count beside it; objects of one address are equal; a null handle is false.
# What happens: CUdeviceptr and handles read from a structure are views of the field, while enumerations and integers are
#   values and lists are copies. Exchanging source and destination leaves one pointer in both, and a saved
#   function is the new one after the update. `attrs` and `accessDescs` leave their counts at 0, so that the driver
#   sees no attribute. Two CUdeviceptr of one address differ, two CUstream do not, and CUstream(0) is true.
#
# Output seen, which this script compares with what it prints:
#> swap of pointers 1 and 2: 2 2
#> swap of pitches 1 and 2: 2 1
#> function saved as 7, after the field became 9: 9
#> attrs: 1, numAttrs: 0
#> accessDescs: 1, accessDescCount: 0
#> after attrs.append: 1
#> CUdeviceptr(5) == CUdeviceptr(5): False
#> CUstream(5) == CUstream(5): True
#> bool(CUstream(0)): True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cuda-bindings==13.5.0
cat >"$folder/program.py" <<'PROGRAM'
from cuda.bindings import driver

copy = driver.CUDA_MEMCPY3D()
copy.srcDevice, copy.dstDevice = 1, 2
copy.srcDevice, copy.dstDevice = copy.dstDevice, copy.srcDevice
print("swap of pointers 1 and 2:", int(copy.srcDevice), int(copy.dstDevice))
copy.srcPitch, copy.dstPitch = 1, 2
copy.srcPitch, copy.dstPitch = copy.dstPitch, copy.srcPitch
print("swap of pitches 1 and 2:", copy.srcPitch, copy.dstPitch)

kernel = driver.CUDA_KERNEL_NODE_PARAMS()
kernel.func = driver.CUfunction(7)
saved = kernel.func
kernel.func = driver.CUfunction(9)
print("function saved as 7, after the field became 9:", int(saved))

launch = driver.CUlaunchConfig()
attribute = driver.CUlaunchAttribute()
attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
attribute.value.cooperative = 1
launch.attrs = [attribute]
print(f"attrs: {len(launch.attrs)}, numAttrs: {launch.numAttrs}")
memory = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
memory.accessDescs = [driver.CUmemAccessDesc()]
print(f"accessDescs: {len(memory.accessDescs)}, accessDescCount: {memory.accessDescCount}")
launch.attrs.append(attribute)
print("after attrs.append:", len(launch.attrs))

print("CUdeviceptr(5) == CUdeviceptr(5):", driver.CUdeviceptr(5) == driver.CUdeviceptr(5))
print("CUstream(5) == CUstream(5):", driver.CUstream(5) == driver.CUstream(5))
print("bool(CUstream(0)):", bool(driver.CUstream(0)))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
