"""Other libraries on an NVIDIA GPU: their calls in our graphs, their memory in our nodes, ours in theirs, their streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from places import other_library, runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

pytestmark = pytest.mark.gpu

N = 1024
SOURCE = r"""
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
BACKENDS = ("explicit", "capture", "streams", "serial")


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return runtime_or_skip("nvidia")


@pytest.fixture(scope="module")
def torch(runtime: Runtime) -> Any:
    found = other_library("torch")
    if not found.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return found


@pytest.fixture(scope="module")
def cupy(runtime: Runtime) -> Any:
    return other_library("cupy")


@pytest.fixture
def foreign_stream(torch: Any) -> Iterator[Any]:
    stream = torch.cuda.Stream()
    yield stream
    stream.synchronize()


def kernel() -> hg.Kernel:
    return hg.Module(SOURCE, name="interop")["axpy"]


def torch_stream(torch: Any, stream: Any) -> Any:
    return torch.cuda.stream(torch.cuda.ExternalStream(int(stream)))


def cupy_stream(cupy: Any, stream: Any) -> Any:
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(int(stream))


def test_torch_is_imported_after_kernels_were_compiled(torch: Any) -> None:
    """Libraries that are loaded later find the interpreter and NVRTC as they would be without us."""
    code = f"""
import numpy as np, hipgraphdsl as hg
g = hg.Graph("first")
x = g.device_array("x", np.ones({N}, "f4"))
g.kernel(hg.Module({SOURCE!r})["axpy"], {N} // 256, 256, (x, x, 1.0, {N}))
exe = g.compile("nvidia")
exe.run()
import torch
assert torch.as_tensor(exe.array("x"), device="cuda").sum().item() == 2 * {N}
exe.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


# -- captured ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_calls_are_one_node(torch: Any, runtime: Runtime, backend: Any) -> None:
    g = hg.Graph("torch")
    x = g.device_array("x", np.arange(N, dtype="f4"))
    y = g.device_array("y", np.ones(N, "f4"))
    g.kernel(kernel(), 4, 256, (x, y, 1.0, N), name="before")  # x += 1

    def work(stream: Any, x: Any, y: Any) -> None:
        with torch_stream(torch, stream):
            a, b = torch.as_tensor(x, device="cuda"), torch.as_tensor(y, device="cuda")
            torch.mul(a, 3.0, out=b)
            b.add_(0.5)

    g.captured(work, args=(hg.reads(x), hg.writes(y)), name="work")
    g.kernel(kernel(), 4, 256, (x, y, 10.0, N), name="after")  # x += 10 y
    assert list(g.dag.edges) == [("before", "work"), ("before", "after"), ("work", "after")]
    values = np.arange(N, dtype="f4")
    with g.compile(runtime, backend) as exe:
        first = np.ones(N, "f4")
        for _ in range(3):
            exe.run()
            values = values + first
            first = values * np.float32(3) + np.float32(0.5)
            values = values + np.float32(10) * first
        assert exe.read("y").tolist() == first.tolist()
        np.testing.assert_allclose(exe.read("x"), values, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_cupy_calls_are_one_node(cupy: Any, runtime: Runtime, backend: Any) -> None:
    g = hg.Graph("cupy")
    x, y = g.device_array("x", np.arange(N, dtype="f4")), g.device_array("y", shape=N, dtype="f4")

    def work(stream: Any, x: Any, y: Any) -> None:
        with cupy_stream(cupy, stream):
            cupy.multiply(cupy.asarray(x), cupy.float32(2), out=cupy.asarray(y))

    # cupy compiles its kernel at the first call, which a capture would refuse
    work(cupy.cuda.Stream(), cupy.arange(4, dtype="f4"), cupy.zeros(4, "f4"))
    g.captured(work, args=(hg.reads(x), hg.writes(y)))
    g.kernel(kernel(), 4, 256, (x, y, 1.0, N))
    with g.compile(runtime, backend) as exe:
        exe.run()
        exe.run()
        assert exe.read("x").tolist() == (9 * np.arange(N, dtype="f4")).tolist()


def test_from_capture_of_torch_reads_its_kernels(torch: Any, runtime: Runtime) -> None:
    a, b = torch.arange(N, dtype=torch.float32, device="cuda"), torch.zeros(N, device="cuda")
    c = torch.zeros(N, device="cuda")  # page-locked memory of torch's would ask for the stream when it is freed
    torch.mul(a, 2.0, out=b)
    b.add_(1.0)
    torch.cuda.synchronize()

    def work(stream: Any) -> None:
        with torch_stream(torch, stream):
            torch.mul(a, 2.0, out=b)
            b.add_(1.0)
            c.copy_(b)
            b.zero_()

    g = hg.Graph.from_capture(work, runtime, arrays={"a": a, "b": b})
    assert [node.kind for node in g.nodes[:3]] == ["kernel", "kernel", "memcpy"]
    multiply, add, copy = g.nodes[:3]
    assert "elementwise" in multiply.kernel.name  # type: ignore[attr-defined]  # a kernel node
    assert isinstance(copy, hg.MemcpyNode)
    assert (copy.src.name, copy.dst.root.kind) == ("b", "external")
    assert list(g.dag.edges)[:2] == [(multiply.name, add.name), (add.name, copy.name)]
    with g.compile(runtime) as exe:
        a.add_(1)
        torch.cuda.synchronize()
        exe.run()
        assert c.tolist() == (2 * (np.arange(N) + 1) + 1).tolist()
        assert b.abs().sum().item() == 0
        spans = exe.profile().spans
        assert [span.name for span in spans] == [node.name for node in g.nodes]


def test_from_handle_reads_a_graph_that_torch_has_captured(torch: Any, runtime: Runtime) -> None:
    x = torch.ones(N, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.mul_(2)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x.mul_(2)
        x.add_(1)
    g = hg.Graph.from_handle(graph.raw_cuda_graph(), runtime, arrays={"x": x})
    assert [node.kind for node in g.nodes] == ["kernel", "kernel"]
    before = x.cpu()
    with g.compile(runtime) as exe:
        exe.run()
    assert x.cpu().tolist() == (before * 2 + 1).tolist()


# -- memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_are_used_in_place(torch: Any, cupy: Any, runtime: Runtime, backend: Any) -> None:
    t, c = torch.arange(N, dtype=torch.float32, device="cuda"), cupy.ones(N, dtype="f4")
    g = hg.Graph("external")
    x, y = g.external_array("x", t), g.external_array("y", c)
    assert (x.pointer, y.pointer) == (t.data_ptr(), c.data.ptr)
    g.kernel(kernel(), 4, 256, (x, y, 2.0, N))
    g.memcpy(y[: N // 2], x[N // 2 :])
    with g.compile(runtime, backend) as exe:
        torch.cuda.synchronize()
        cupy.cuda.Device().synchronize()
        exe.run()
        assert t.tolist() == (np.arange(N) + 2).tolist()
        assert cupy.asnumpy(c)[: N // 2].tolist() == (np.arange(N // 2, N) + 2).tolist()
        assert exe.read("x").tolist() == t.tolist()


def test_parameter_is_bound_to_a_tensor(torch: Any, runtime: Runtime) -> None:
    g = hg.Graph("parameter")
    p = g.param("p", "f4", shape=N)
    one = g.device_array("one", np.ones(N, "f4"))
    g.kernel(kernel(), 4, 256, (p, one, 1.0, N))
    tensors = [torch.full((N,), float(i), device="cuda") for i in range(3)]
    torch.cuda.synchronize()
    with g.compile(runtime) as exe:
        for tensor in tensors:
            exe.run(p=tensor)
    assert [t.unique().tolist() for t in tensors] == [[1.0], [2.0], [3.0]]


def test_our_arrays_go_out_without_a_copy(torch: Any, cupy: Any, runtime: Runtime) -> None:
    g = hg.Graph("out")
    x = g.device_array("x", np.arange(N, dtype="f4").reshape(32, 32))
    g.memset(x[0], 7.0)
    with g.compile(runtime) as exe:
        shared = exe.array("x")
        by_dlpack, by_interface = torch.from_dlpack(shared), torch.as_tensor(shared, device="cuda")
        cupys = (cupy.from_dlpack(shared), cupy.asarray(shared))
        assert {by_dlpack.data_ptr(), by_interface.data_ptr(), *(int(c.data.ptr) for c in cupys)} == {shared.ptr}
        assert by_dlpack.shape == by_interface.shape == cupys[0].shape == (32, 32)
        exe.run()
        assert by_dlpack[0].tolist() == [7.0] * 32
        by_dlpack[1] = 5.0
        torch.cuda.synchronize()
        assert exe.read("x")[1].tolist() == [5.0] * 32
        assert cupys[1][1].tolist() == [5.0] * 32


def test_memory_that_offers_dlpack_alone_is_used_in_place(torch: Any, runtime: Runtime) -> None:
    class Alone:
        def __init__(self, tensor: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__

    tensor = torch.arange(N, dtype=torch.float32, device="cuda")
    half = torch.zeros(8, dtype=torch.bfloat16, device="cuda")
    torch.cuda.synchronize()
    g = hg.Graph("dlpack")
    t, one = g.external_array("t", Alone(tensor)), g.device_array("one", np.ones(N, "f4"))
    assert (t.location, t.pointer, t.device) == ("device", tensor.data_ptr(), tensor.device.index)
    b = g.external_array("b", Alone(half))
    p = g.param("p", "f4", shape=N)
    g.kernel(kernel(), 4, 256, (t, one, 1.0, N))
    g.kernel(kernel(), 4, 256, (p, one, 2.0, N))
    g.memset(b, 1.5)
    other = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with g.compile(runtime) as exe:
        exe.run(p=Alone(other))
    assert tensor.tolist() == (np.arange(N) + 1).tolist()
    assert other.unique().tolist() == [2.0]
    assert half.tolist() == [1.5] * 8


# -- streams -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_launch_goes_into_a_torch_stream(torch: Any, runtime: Runtime, foreign_stream: Any, backend: Any) -> None:
    t = torch.zeros(N, device="cuda")
    g = hg.Graph("stream")
    x = g.external_array("x", t)
    one = g.device_array("one", np.ones(N, "f4"))
    g.kernel(kernel(), 4, 256, (x, one, 1.0, N))
    torch.cuda.synchronize()
    with g.compile(runtime, backend) as exe, torch.cuda.stream(foreign_stream):
        for _ in range(5):  # x = 2 (x + 1), all in the order of the stream and without a wait between
            exe.launch(stream=foreign_stream)
            t.mul_(2)
        foreign_stream.synchronize()
        assert t.unique().tolist() == [62.0]
        exe.launch(stream=foreign_stream.cuda_stream)
        exe.synchronize()
        assert t.unique().tolist() == [63.0]


def test_launch_goes_into_a_cupy_stream(cupy: Any, runtime: Runtime) -> None:
    c = cupy.zeros(N, dtype="f4")
    g = hg.Graph("stream")
    x = g.external_array("x", c)
    one = g.device_array("one", np.ones(N, "f4"))
    g.kernel(kernel(), 4, 256, (x, one, 1.0, N))
    cupy.cuda.Device().synchronize()
    with g.compile(runtime) as exe, cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(5):
            exe.launch(stream=stream)
            c *= 2
        stream.synchronize()
        assert cupy.unique(c).tolist() == [62.0]


def test_event_of_a_graph_orders_a_torch_stream(torch: Any, runtime: Runtime, foreign_stream: Any) -> None:
    """A shared event is an ordinary one: torch's stream can wait for it."""
    t = torch.zeros(1 << 22, device="cuda")
    g = hg.Graph("event")
    x = g.external_array("x", t)
    g.memset(x, 3.0)
    event = hg.Event("torch waits", shared=True)
    g.record(event, after=[g.nodes[-1]])
    torch.cuda.synchronize()
    with g.compile(runtime) as exe:
        exe.launch()
        (handle,) = exe.known().events
        runtime.stream_wait_event(foreign_stream.cuda_stream, handle)
        with torch.cuda.stream(foreign_stream):
            total = t.sum()
        foreign_stream.synchronize()
        assert total.item() == 3.0 * (1 << 22)
        exe.synchronize()
