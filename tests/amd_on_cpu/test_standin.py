"""What the stand-in claims: kernels do on the host what they would do on the device, and none is passed over."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from raw_runtime import Raw, raw

from hipgraphdsl.runtimes.amd import AmdRuntime
from hipgraphdsl.runtimes.code_object import read_code_object
from hipgraphdsl.runtimes.data import MemcpyKind

pytestmark = pytest.mark.skipif(
    "AMD_ON_CPU_HOME" not in os.environ, reason="not on the stand-in: start pytest by tests/amd_on_cpu/run"
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runtime() -> AmdRuntime:
    return AmdRuntime()


@pytest.fixture
def device(runtime: AmdRuntime) -> Iterator[Raw]:
    with raw(runtime) as made:
        yield made


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with a runtime `r` and the `Raw` made of it, `d`."""
    begin = "import ctypes, os\nimport numpy as np\nfrom raw_runtime import Raw\n"
    begin += "from hipgraphdsl.runtimes.amd import AmdRuntime\nfrom hipgraphdsl.runtimes.data import *\n"
    begin += "r = AmdRuntime(); d = Raw(r)\n"
    paths = os.pathsep.join(path for path in (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")) if path)
    return subprocess.run(
        [sys.executable, "-c", begin + code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_threads_wait_for_each_other_at_a_barrier(device: Raw) -> None:
    source = """
    extern "C" __global__ void reverse(int* x) {
      __shared__ int tile[256];
      tile[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
    }"""
    values = np.arange(256, dtype="i4")
    x = device.upload(values)
    device.launch(device.kernel(source, "reverse"), 1, 256, x)
    assert device.download(x, values).tolist() == values[::-1].tolist()


def test_a_tree_of_barriers_in_dynamic_shared_memory_sums_each_block(device: Raw) -> None:
    source = """
    extern "C" __global__ void sum(const int* x, int* out) {
      extern __shared__ int part[];
      part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
      for (unsigned half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      }
      if (threadIdx.x == 0) out[blockIdx.x] = part[0];
    }"""
    values = np.arange(512, dtype="i4")
    x, out = device.upload(values), device.upload(np.zeros(4, "i4"))
    device.launch(device.kernel(source, "sum"), 4, 128, x, out, shared_bytes=512)
    assert device.download(out, np.zeros(4, "i4")).tolist() == values.reshape(4, 128).sum(1).tolist()


def test_threads_that_have_returned_hold_no_barrier_up(device: Raw) -> None:
    source = """
    extern "C" __global__ void early(int* x) {
      if (threadIdx.x >= 10) return;
      __syncthreads();
      x[threadIdx.x] = 1;
    }"""
    x = device.upload(np.zeros(64, "i4"))
    device.launch(device.kernel(source, "early"), 1, 64, x)
    assert device.download(x, np.zeros(64, "i4")).sum() == 10


def test_a_wave_of_64_lanes_exchanges_values(device: Raw) -> None:
    source = """
    extern "C" __global__ void waves(int* x) {
      int v = x[threadIdx.x];
      int sum = v;
      for (int by = warpSize / 2; by; by /= 2) sum += __shfl_down(sum, by);
      int neighbour = __shfl_xor(v, 1), first = __shfl(v, 0), before = __shfl_up(v, 1);
      unsigned long long odd = __ballot(v & 1);
      if (threadIdx.x % warpSize == 0) {
        x[256 + threadIdx.x / warpSize] = sum;
        x[260] = __popcll(odd);
        x[261] = warpSize;
      }
      x[threadIdx.x] = neighbour * 1000000 + first * 1000 + before;
    }"""
    values = np.arange(256, dtype="i4")
    x = device.upload(np.concatenate([values, np.zeros(6, "i4")]))
    device.launch(device.kernel(source, "waves"), 1, 256, x)
    got = device.download(x, np.zeros(262, "i4"))
    assert got[261] == 64
    assert got[260] == 32
    assert got[256:260].tolist() == values.reshape(4, 64).sum(1).tolist()
    before = np.where(values % 64 == 0, values, values - 1)
    assert got[:256].tolist() == ((values ^ 1) * 1000000 + values // 64 * 64 * 1000 + before).tolist()


def test_lanes_in_another_branch_take_no_part_in_an_exchange(device: Raw) -> None:
    source = """
    extern "C" __global__ void branch(unsigned long long* x) {
      if (threadIdx.x % 2) x[threadIdx.x] = __ballot(1);
      else x[threadIdx.x] = 0;
    }"""
    x = device.upload(np.zeros(64, "u8"))
    device.launch(device.kernel(source, "branch"), 1, 64, x)
    assert device.download(x, np.zeros(64, "u8"))[1] == 0xAAAAAAAAAAAAAAAA


def test_device_and_constant_variables_are_in_device_memory(device: Raw) -> None:
    source = """
    __constant__ float table[4]; __device__ int counter; namespace deep { __device__ int value = 7; }
    extern "C" __global__ void use(float* x) {
      x[threadIdx.x] = table[threadIdx.x % 4] + deep::value;
      atomicAdd(&counter, 1);
    }
    """
    runtime = device.runtime
    module = device.compile(source, "use", symbols=("table", "counter", "deep::value"))
    function = runtime.module_get_function(module, "use")
    table = np.array([1, 2, 3, 4], "f4")
    pointer, nbytes = runtime.module_get_global(module, "table")
    assert nbytes == 16
    runtime.memcpy(pointer, table.ctypes.data, 16, MemcpyKind.HOST_TO_DEVICE)
    x = device.upload(np.zeros(8, "f4"))
    for _ in range(2):
        device.launch(function, 1, 8, x)
    assert device.download(x, np.zeros(8, "f4")).tolist() == [8, 9, 10, 11, 8, 9, 10, 11]
    counter, _ = runtime.module_get_global(module, "counter")
    assert device.download(counter, np.zeros(1, "i4"))[0] == 16


def test_a_kernel_leaves_a_variable_alone_that_a_copy_writes_meanwhile(device: Raw) -> None:
    source = """
    __device__ int value = 1;
    extern "C" __global__ void hold(volatile int* stage) { *stage = 1; while (*stage != 2); }"""
    runtime = device.runtime
    module = device.compile(source, "hold", symbols=("value",))
    value, _ = runtime.module_get_global(module, "value")
    stage, new = device.host(np.zeros(1, "i4")), device.host(np.array([7], "i4"))
    hold = runtime.module_get_function(module, "hold")
    runtime.module_launch_kernel(hold, (1, 1, 1), (1, 1, 1), 0, device.stream, device.args(stage.ctypes.data))
    while stage[0] != 1:
        time.sleep(0.001)
    other = runtime.stream_create()
    runtime.memcpy_async(value, new.ctypes.data, 4, MemcpyKind.HOST_TO_DEVICE, other)
    runtime.stream_synchronize(other)
    stage[0] = 2
    runtime.stream_synchronize(device.stream)
    runtime.stream_destroy(other)
    assert device.download(value, new)[0] == 7


def test_kernels_whose_host_builds_are_apart_share_their_variables(device: Raw) -> None:
    # Because of the third kernel, whose argument has no default, the three cannot be built together.
    source = """
    __device__ int value;
    struct Number { int x; __device__ Number(int x_) : x(x_) {} };
    extern "C" __global__ void once() { value += 1; }
    extern "C" __global__ void tenfold() { value *= 10; }
    extern "C" __global__ void put(Number n) { value = n.x; }"""
    runtime = device.runtime
    module = device.compile(source, "once", "tenfold", "put", symbols=("value",))
    for name in ("once", "tenfold", "once", "tenfold"):
        device.launch(runtime.module_get_function(module, name), 1, 1)
    value, _ = runtime.module_get_global(module, "value")
    assert device.download(value, np.zeros(1, "i4"))[0] == 110


def test_templates_overloads_and_options_reach_the_host_build(device: Raw) -> None:
    source = """
    template <class T> __global__ void fill(T* x, T v) { x[threadIdx.x] = v + STEP; }
    namespace n { __global__ void set(int* x) { *x = 1; } __global__ void set(float* x) { *x = 2; } }
    """
    fill = device.kernel(source, "fill<double>", options=("-DSTEP=3",))
    x = device.upload(np.zeros(4))
    device.launch(fill, 1, 4, x, ctypes.c_double(1.5))
    assert device.download(x, np.zeros(4)).tolist() == [4.5] * 4


def test_arguments_of_all_sizes_arrive(device: Raw) -> None:
    source = """
    struct Pair { char tag; double value; };
    extern "C" __global__ void take(
        double* out, char c, short s, int i, long long l, float f, Pair p, unsigned char u) {
      out[0] = c; out[1] = s; out[2] = i; out[3] = l; out[4] = f; out[5] = p.tag; out[6] = p.value; out[7] = u;
    }"""

    class Pair(ctypes.Structure):
        _fields_ = [("tag", ctypes.c_char), ("value", ctypes.c_double)]

    out = device.upload(np.zeros(8))
    device.launch(
        device.kernel(source, "take"), 1, 1, out, ctypes.c_char(b"A"), ctypes.c_short(-2), ctypes.c_int(3),
        ctypes.c_longlong(1 << 40), ctypes.c_float(0.5), Pair(b"B", 1.25), ctypes.c_ubyte(255),
    )  # fmt: skip
    assert device.download(out, np.zeros(8)).tolist() == [65, -2, 3, float(1 << 40), 0.5, 66, 1.25, 255]


def test_half_precision_rounds_as_the_device_does(device: Raw) -> None:
    source = """
    #include <hip/hip_fp16.h>
    extern "C" __global__ void add(__half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], __float2half(0.1f)); }"""
    values = np.arange(8, dtype="f2")
    x = device.upload(values)
    device.launch(device.kernel(source, "add"), 1, 8, x)
    assert device.download(x, values).tolist() == (values + np.float16(0.1)).tolist()


def test_a_kernel_prints_to_standard_output() -> None:
    code = """
f = d.kernel('extern "C" __global__ void say(int v) { printf("value %d of thread %u\\\\n", v, threadIdx.x); }', "say")
d.launch(f, 1, 2, ctypes.c_int(7))
"""
    ran = python(code)
    assert ran.stdout == "value 7 of thread 0\nvalue 7 of thread 1\n", ran.stderr


def test_copies_that_a_stream_orders_stay_in_order_whatever_the_timing() -> None:
    code = """
a = d.host(np.zeros(1024, "i4")); p, q = d.upload(a), d.upload(a)
for round in range(20):
    a[:] = round
    r.memcpy_async(p, a.ctypes.data, 4096, MemcpyKind.HOST_TO_DEVICE, d.stream)
    r.memcpy_async(q, p, 4096, MemcpyKind.DEVICE_TO_DEVICE, d.stream)
    r.memset_async(Fill2D(p, 4, 99, 1024), d.stream)
    r.memcpy_async(a.ctypes.data, q, 4096, MemcpyKind.DEVICE_TO_HOST, d.stream)
    r.stream_synchronize(d.stream)
    assert (a == round).all(), (round, a)
print("in order")
"""
    ran = python(code, AMD_ON_CPU_JITTER_US="500")
    assert ran.stdout == "in order\n", ran.stderr


def test_two_devices_have_memory_of_their_own_and_reach_each_other() -> None:
    code = """
assert r.get_device_count() == 2 and r.device_can_access_peer(0, 1)
other = AmdRuntime(1)
assert other.get_device() == 1
r.device_enable_peer_access(0); r.device_enable_peer_access(0)
x = np.arange(16, dtype="f4"); e = Raw(other)
there = e.upload(x); r.set_device(0); here = d.upload(np.zeros(16, "f4"))
r.memcpy(here, there, 64, MemcpyKind.DEVICE_TO_DEVICE)
assert (d.download(here, x) == x).all()
print("both")
"""
    ran = python(code, AMD_ON_CPU_DEVICES="2")
    assert ran.stdout == "both\n", ran.stderr


OVER_TWO_DEVICES = """
graph, after, devices = r.graph_create(), [], [d]
other = AmdRuntime(1); devices.append(Raw(other))
for device in (0, 1):
    r.set_device(device); made = devices[device]; x = made.upload(np.zeros(1, "i4"))
    f = made.kernel('extern "C" __global__ void put(int* x) { *x = 1; }', "put")
    after = [r.graph_add_kernel_node(graph, after, f, (1, 1, 1), (1, 1, 1), 0, made.args(x))]
r.set_device(0)
launched = r.graph_instantiate(graph)
r.graph_launch(launched, devices[%d].stream); r.stream_synchronize(devices[%d].stream)
os._exit(0)
"""


def test_amd_s_graph_over_two_devices_runs_a_kernel_on_the_wrong_one(tmp_path: Path) -> None:
    listed = tmp_path / "skipped"
    ran = python(OVER_TWO_DEVICES % (0, 0), AMD_ON_CPU_DEVICES="2", AMD_ON_CPU_SKIPPED=str(listed))
    assert ran.returncode == 0, ran.stderr
    assert listed.read_text() == "put: it was dispatched to a device that it is not loaded on\n"


def test_amd_s_graph_crashes_on_a_stream_of_another_device_than_it_was_instantiated_on() -> None:
    assert python(OVER_TWO_DEVICES % (1, 1), AMD_ON_CPU_DEVICES="2").returncode == -signal.SIGSEGV


BY_BUILTIN = 'extern "C" __global__ void odd(int* x) { x[0] = __builtin_amdgcn_workitem_id_x(); }'


def test_a_kernel_without_a_host_build_stops_the_process() -> None:
    code = f"f = d.kernel({BY_BUILTIN!r}, 'odd'); d.launch(f, 1, 1, d.upload(np.zeros(1, 'i4')))"
    environment = {"AMD_ON_CPU_SKIPPED": ""}
    ran = python(code, **environment)
    assert ran.returncode != 0
    assert "kernel odd was not run" in ran.stderr


def test_a_kernel_without_a_host_build_is_listed_for_the_end_of_the_run(tmp_path: Path) -> None:
    listed = tmp_path / "skipped"
    code = f"f = d.kernel({BY_BUILTIN!r}, 'odd'); d.launch(f, 1, 1, d.upload(np.zeros(1, 'i4')))"
    ran = python(code, AMD_ON_CPU_SKIPPED=str(listed))
    assert ran.returncode == 0, ran.stderr
    assert listed.read_text() == "odd: its host build fails:\n"


def test_a_code_object_from_a_file_carries_its_source(device: Raw, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void twice(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }'
    path = tmp_path / "twice.hsaco"
    path.write_bytes(device.runtime.rtc_compile(source, ["twice"]).image)
    image = path.read_bytes()
    assert [nbytes for _, nbytes in read_code_object(image)["twice"]] == [8, 4]
    module = device.runtime.module_load_data(image)
    x = device.upload(np.arange(4, dtype="i4"))
    device.launch(device.runtime.module_get_function(module, "twice"), 1, 4, x, ctypes.c_int(4))
    device.runtime.module_unload(module)
    assert device.download(x, np.zeros(4, "i4")).tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx1100", "gfx1201"])
def test_the_device_takes_other_architectures(architecture: str) -> None:
    code = """
f = d.kernel('extern "C" __global__ void put(int* x) { x[threadIdx.x] = warpSize; }', "put")
x = d.upload(np.zeros(2, "i4")); d.launch(f, 1, 2, x)
print(r.target.architecture, r.target.warp_size, d.download(x, np.zeros(2, "i4"))[1])
"""
    ran = python(code, AMD_ON_CPU_ARCHITECTURE=architecture)
    wave = 64 if architecture.startswith("gfx9") else 32
    assert ran.stdout == f"{architecture} {wave} {wave}\n", ran.stderr


def test_without_a_device_the_runtime_says_so() -> None:
    ran = python("", AMD_ON_CPU_DEVICES="0")
    assert "RuntimeUnavailable" in ran.stderr
    assert "no device" in ran.stderr
