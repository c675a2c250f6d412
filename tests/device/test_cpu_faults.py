"""Kernels that fail on the CPU runtime raise an error with the node's name, and the process goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.graph import Backend
from hipgraphdsl.runtimes.data import Fill2D, MemcpyKind, MemoryRange

DIVIDE = "__global__ void k(const int* a, const int* d, int* o) { int i = threadIdx.x; o[i] = a[i] / d[i]; }"


def graph(source: str, extra: int = 0, n: int = 64, **more: Any) -> hg.Graph:
    g = hg.Graph("faults")
    x = g.device_array("x", np.arange(n, dtype=np.int32))
    g.kernel(hg.Module(source)["k"], 1, 64, (x, extra), name="worker", **more)
    return g


def test_division_of_integers_by_zero_names_the_node() -> None:
    g = hg.Graph("division")
    a, o = g.device_array("a", np.array([4, -(2**31)], np.int32)), g.device_array("o", np.zeros(2, np.int32))
    d = g.device_array("d", np.array([2, 1], np.int32))
    g.kernel(hg.Module(DIVIDE)["k"], 1, 2, (a, d, o), name="quotient")
    with g.compile("cpu") as exe:
        for divisors in ([0, 1], [2, -1]):
            exe.write("d", np.array(divisors, np.int32))
            with pytest.raises(hg.HipError, match="divided by zero") as caught:
                exe.run()
            assert caught.value.node == "quotient"
        exe.write("d", np.array([2, 1], np.int32))
        exe.run()
        assert exe.read("o").tolist() == [2, -(2**31)]


def test_stack_overflow_names_the_node() -> None:
    source = """
__device__ int deep(int n, int* p) {
  int a[8]; for (int i = 0; i < 8; ++i) a[i] = p[i] + n;
  if (n == 0) return a[3]; return deep(n - 1, p) + a[n & 7];
}
__global__ void k(int* o, int n) { __syncthreads(); int s = deep(n, o); __syncthreads(); o[threadIdx.x] = s; }"""
    with graph(source, 100_000_000).compile("cpu") as exe, pytest.raises(hg.HipError, match="stack") as caught:
        exe.run()
    assert caught.value.node == "worker"
    with graph(source, 1000).compile("cpu") as exe:
        exe.run()


def test_large_arrays_of_a_thread_fit_beside_barriers() -> None:
    source = """__global__ void k(int* o, int n) { int buf[40000]; for (int i = 0; i < 40000; ++i) buf[i] = i ^ threadIdx.x;
    __syncthreads(); o[threadIdx.x] = buf[o[threadIdx.x] * 600]; }"""
    with graph(source).compile("cpu") as exe:
        exe.run()
        assert exe.read("x").tolist() == [(i * 600) ^ i for i in range(64)]


def test_wild_pointer_names_the_node() -> None:
    source = "__global__ void k(int* o, int n) { *(volatile int*)(8 + (size_t)n) = o[threadIdx.x]; }"
    with graph(source).compile("cpu") as exe, pytest.raises(hg.HipError, match="hipErrorIllegalAddress") as caught:
        exe.run()
    assert caught.value.node == "worker"
    assert "peer" not in str(caught.value)


BEYOND = r"""
extern "C" __global__ void strided(int* x, const int* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = y[0];
}
extern "C" __global__ void zeroed(int* x, const int* y, int n) { for (int i = 0; i < n; ++i) x[i] = 0; }
extern "C" __global__ void copied(int* x, const int* y, int n) { memcpy(x, y, n * sizeof(int)); }
extern "C" __global__ void read(int* x, const int* y, int n) { int sum = 0; for (int i = 0; i < n; ++i) sum += x[i]; x[0] = sum; }
extern "C" __global__ void before(int* x, const int* y, int n) { x[n > 100 ? -100000 - n : 0] = y[0]; }
extern "C" __global__ void waiting(int* x, const int* y, int n) {
  __shared__ int s;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { if (threadIdx.x == 0) s = i; __syncthreads(); x[i] = s; __syncthreads(); }
}
"""
REACHED = {
    "device": lambda g: g.device_array("x", shape=100, dtype="int32"),
    "page-locked": lambda g: g.host_array("x", shape=100, dtype="int32"),
    "alloc": lambda g: g.alloc("x", shape=100, dtype="int32"),
    "parameter": lambda g: g.param("x", "int32", shape=100, default=g.device_array("given", shape=100, dtype="int32")),
}


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize("body", ["strided", "zeroed", "copied", "read", "before", "waiting"])
def test_overrun_that_a_launch_gives_is_an_error(body: str, reached: str, backend: Backend) -> None:
    g = hg.Graph("beyond")
    x, n = REACHED[reached](g), g.param("n", "int32", default=100)
    wide = body in ("strided", "waiting")
    y = g.device_array("y", np.zeros(1 << 20, "int32"))
    g.kernel(hg.Module(BEYOND)[body], 16 if wide else 1, 20 if wide else 1, (hg.updates(x), hg.reads(y), n), name="worker")
    if reached == "alloc":
        g.free(x)
    with g.compile("cpu", backend=backend, check=False) as exe:
        for values in (180, 1000, 1_000_000):
            exe.run(n=100)
            with pytest.raises(hg.HipError, match=rf"IllegalAddress.*an array of 400 bytes, in kernel '{body}'") as caught:
                exe.run(n=values)
            assert caught.value.node == "worker"
        exe.run(n=100)


@pytest.mark.parametrize("call", ["memcpy_async", "memset_async"])
@pytest.mark.parametrize("nbytes", [1000, 6 << 20])  # one piece, and several that run at once
def test_copy_and_fill_beyond_an_array_name_the_node(call: str, nbytes: int) -> None:
    def issue(stream: Any, x: Any, y: Any) -> None:
        if call == "memcpy_async":
            stream.runtime.memcpy_async(x.ptr, y.ptr, nbytes, MemcpyKind.DEVICE_TO_DEVICE, int(stream))
        else:
            stream.runtime.memset_async(Fill2D(x.ptr, 1, 0, nbytes, 1, nbytes), int(stream))

    g = hg.Graph("wild")
    x, y = g.device_array("x", shape=100, dtype="int32"), g.device_array("y", shape=8 << 20, dtype="uint8")
    g.captured(issue, (x, y), name="worker")
    with g.compile("cpu") as exe:
        for _ in range(2):
            with pytest.raises(hg.HipError, match=r"bytes behind the end of an array of 400 bytes, in a copy or fill") as caught:
                exe.run()
            assert caught.value.node == "worker"
        values = np.zeros(nbytes, "uint8")
        with pytest.raises(hg.HipError, match="array of 400 bytes"):
            exe.runtime.memcpy(exe.array("x").ptr, values.ctypes.data, nbytes, MemcpyKind.HOST_TO_DEVICE)
        assert exe.read("x").shape == (100,)


def test_arrays_beyond_the_limit_of_guards_are_made_too() -> None:
    runtime = hg.open_runtime("cpu")
    pointers = [runtime.malloc(40) for _ in range(10_000)]
    try:
        assert len(set(pointers)) == len(pointers)
        assert not any(pointer % 256 for pointer in pointers)
        for pointer in (pointers[0], pointers[-1]):
            assert runtime.mem_get_address_range(pointer) == MemoryRange(pointer, 40, False)
    finally:
        for pointer in pointers:
            runtime.free(pointer)
    exe = graph("__global__ void k(int* o, int n) { o[n] = 1; }", 128).compile("cpu", check=False)
    with exe, pytest.raises(hg.HipError, match="behind the end of an array of 256 bytes"):  # guards are free again
        exe.run()


GRID = """__device__ unsigned bar = 0;
__global__ void k(int* a, int* b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; a[i] = i; __threadfence();
  __syncthreads(); if (threadIdx.x == 0) { atomicAdd(&bar, 1u); while (atomicAdd(&bar, 0u) < gridDim.x) {} }
  __syncthreads(); b[i] = a[n - 1 - i]; }"""


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_blocks_of_a_cooperative_launch_meet(backend: Backend) -> None:
    g = hg.Graph("grid")
    a, b = g.device_array("a", np.zeros(512, np.int32)), g.device_array("b", np.zeros(512, np.int32))
    g.kernel(hg.Module(GRID)["k"], 8, 64, (a, b, 512), cooperative=True)
    with g.compile("cpu", backend=backend) as exe:
        exe.run()
        assert exe.read("b").tolist() == list(range(511, -1, -1))


def test_too_many_cooperative_blocks_are_refused() -> None:
    g = hg.Graph("grid")
    a, b = g.device_array("a", np.zeros(512, np.int32)), g.device_array("b", np.zeros(512, np.int32))
    g.kernel(hg.Module(GRID)["k"], 512, 1, (a, b, 512), cooperative=True)
    assert [d.code for d in g.check("cpu").errors] == ["HG506"]


def test_blocks_run_after_one_that_failed_before_or_behind_a_barrier() -> None:
    source = """__global__ void k(int* o, const int* how, int zero) {
      int n = *how; if (n & 1) n /= zero; __syncthreads(); if (n & 2) n /= zero; __syncthreads(); o[threadIdx.x] = n; }"""
    g = hg.Graph("faults")
    x, how = g.device_array("x", np.zeros(64, np.int32)), g.device_array("how", np.zeros(1, np.int32))
    g.kernel(hg.Module(source)["k"], 1, 64, (x, how, 0), name="worker")
    with g.compile("cpu") as exe:
        for n in (4, 1, 8, 2, 2, 1, 12):
            exe.write("how", np.array([n], np.int32))
            if n in (1, 2):
                with pytest.raises(hg.HipError, match="divided by zero"):
                    exe.run()
            else:
                exe.run()
                assert exe.read("x").tolist() == [n] * 64


# Volatile, and handed down: a compiler may neither leave the calls out nor make a loop of them.
STEP = """__device__ int deep(int n, volatile int* p) { volatile int a[64]; for (int i = 0; i < 64; ++i) a[i] = p[0] + n;
  if (n == 0) return a[3]; return deep(n - 1, a) + a[n & 63]; }
__global__ void k(int* x, int divisor, int depth) { x[threadIdx.x] += 6 / divisor + 0 * deep(depth, x); }"""


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("bad", [{"divisor": 0}, {"depth": 100_000_000}])
def test_a_kernel_without_barriers_that_fails_ends_its_chain(chains: int, bad: dict[str, int]) -> None:
    g = hg.Graph("chains")
    divisor, depth = g.param("divisor", "int32", default=1), g.param("depth", "int32", default=1)
    step = hg.Module(STEP)["k"]
    for c in range(chains):
        x = g.device_array(f"x{c}", np.zeros(4, np.int32))
        for k in range(100):
            chosen = (divisor, depth) if (c, k) == (0, 70) else (1, 1)
            g.kernel(step, 1, 4, (x, *chosen), name=f"step_{c}_{k}")
    with g.compile("cpu", plan=hg.PlanOptions(join=False), lanes=None) as exe:
        exe.run()
        assert all(exe.read(f"x{c}").tolist() == [600] * 4 for c in range(chains))
        for _ in range(14):  # each way of running a launch is tried
            exe.write("x0", np.zeros(4, np.int32))
            with pytest.raises(hg.HipError) as caught:
                exe.run(**{"divisor": 1, "depth": 1, **bad})
            assert caught.value.node == "step_0_70"
            assert exe.read("x0").tolist() == [420] * 4
        exe.write("x0", np.zeros(4, np.int32))
        exe.run(divisor=1, depth=1)
        assert exe.read("x0").tolist() == [600] * 4


def test_callback_that_raises_says_nothing_of_a_kernel_that_failed_before() -> None:
    source = "__global__ void k(int* x, int n) { int* nowhere = nullptr; if (n) nowhere[n] = 1; else x[0] = 1; }"
    with (
        graph(source, 1).compile("cpu", debug=hg.DebugOptions(sanitize=True)) as exe,
        pytest.raises(hg.HipError, match="kernel 'k'"),
    ):
        exe.run()

    def fail(h: Any) -> None:
        raise ValueError("no")

    g = hg.Graph("fails")
    g.host(fail, (g.host_array("h", np.zeros(1, "i4")),), name="fail")
    with g.compile("cpu") as exe:
        exe.launch()
        with pytest.raises(hg.HipError) as caught:
            exe.runtime.stream_synchronize(exe.stream)
        assert "kernel" not in str(caught.value)
        with pytest.raises(ValueError, match="no"):
            exe.synchronize()


FAULTS = """
extern "C" __global__ void may_trap(int* x, int bad) { if (bad) __trap(); x[0] += 1; }
extern "C" __global__ void add(int* x) { x[0] += 1; }
"""


def faulty(lanes: int, where: str) -> hg.Graph:
    """Return a graph of unordered kernels that trap if parameter `bad` is 1."""
    g = hg.Graph("faulty")
    bad = g.param("bad", "int32", 0)
    for lane in range(lanes):
        g.kernel(hg.Module(FAULTS)["may_trap"], 1, 1, (g.device_array(f"x{lane}", np.zeros(4, "i4")), bad), name=f"k{lane}")
    if where == "top":
        return g
    outer = hg.Graph("outer")
    inner = outer.param("bad", "int32", 0)
    flag = outer.host_array("flag", np.ones(1, "int32"))
    arrays = {f"x{lane}": outer.device_array(f"x{lane}", np.zeros(4, "i4")) for lane in range(lanes)}
    outer.conditional("if", flag, g, bind={"bad": inner, **arrays}, name="c", decide="host")
    return outer


def innocent() -> hg.Graph:
    g = hg.Graph("innocent")
    g.kernel(hg.Module(FAULTS)["add"], 1, 1, (g.device_array("y", np.zeros(4, "i4")),))
    return g


def wait_for_the_device(exe: hg.Executable) -> None:
    """Launch on a stream that is destroyed then, so that the Executable waits for all work of the device."""
    stream = exe.runtime.stream_create()
    exe.launch(stream=stream)
    exe.runtime.stream_destroy(stream)
    exe.synchronize()


@pytest.mark.parametrize("own_stream", [True, False])
@pytest.mark.parametrize("where", ["top", "body"])
@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_several_faults_of_one_launch_are_its_own(backend: Backend, lanes: int, where: str, own_stream: bool) -> None:
    with faulty(lanes, where).compile("cpu", backend) as guilty, innocent().compile("cpu") as other:
        stream = None if own_stream else other.runtime.stream_create()
        for good in range(1, 3):

            def launch_and_wait() -> None:
                guilty.launch(stream=stream, bad=1)  # called at once
                guilty.synchronize()

            with pytest.raises(hg.HipError, match="trap"):
                launch_and_wait()
            wait_for_the_device(other)
            guilty.launch(stream=stream, bad=0)
            guilty.synchronize()
            values = [int(guilty.read(f"x{lane}")[0]) for lane in range(lanes)]
            assert all(value >= good for value in values)
        assert other.read("y")[0] == 2
        if stream is not None:
            other.runtime.stream_destroy(stream)


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_fault_that_nobody_has_waited_for_stays_with_its_executable(backend: Backend) -> None:
    with faulty(2, "top").compile("cpu", backend) as guilty, innocent().compile("cpu") as other:
        guilty.launch(bad=1)
        wait_for_the_device(other)
        with pytest.raises(hg.HipError, match="may_trap"):
            guilty.synchronize()
        wait_for_the_device(other)
        guilty.run(bad=0)
        assert other.read("y")[0] == 2
