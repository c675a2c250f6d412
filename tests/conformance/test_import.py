"""Graphs read back from a runtime: every row of the tables comes back as it was planned, and does the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from conformance.spec import NEEDS, NODE_KINDS, SHAPES, Case
from places import runtime_or_skip
from raw_runtime import Raw, raw

import hipgraphdsl as hg
from hipgraphdsl.backends.operations import CallCaptured, Launch, Nothing
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import Copy3D, Fill2D, MemcpyKind, MemOp, NodeType

ROWS: dict[str, Any] = {
    **{f"shape_{name}": partial(lambda build, g, _: build(g), build) for name, build in SHAPES.items()},
    **{name: build for name, build in NODE_KINDS.items() if not name.startswith(("conditional", "eager"))},
}
KINDS = {Launch: "kernel", Nothing: "empty", CallCaptured: "child"}  # where a step does not become a node of its own kind
AXPY = r"""
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture(params=["cpu", "amd", "nvidia"])
def device(request: pytest.FixtureRequest) -> Runtime:
    return runtime_or_skip(request.param)


@pytest.fixture
def d(device: Runtime) -> Iterator[Raw]:
    with raw(device) as made:
        yield made


def built(name: str, runtime: Runtime) -> Case:
    if NEEDS.get(name) and not hasattr(runtime, NEEDS[name]):
        pytest.skip(f"runtime {runtime.name!r} has no {NEEDS[name]}")
    return ROWS[name](hg.Graph(name), runtime)  # type: ignore[no-any-return]  # rows are functions that build cases


def lowered(exe: hg.Executable) -> nx.DiGraph[int]:
    """Return the plan with the kind of node that each step became."""
    program = exe._program
    assert program is not None
    dag: nx.DiGraph[int] = nx.DiGraph()
    for step, operation in zip(exe.plan.steps, program.operations):
        dag.add_node(step.index, kind=KINDS.get(type(operation), step.node.kind))
        dag.add_edges_from((source, step.index) for source in step.deps)
    return dag


def read(graph: hg.Graph) -> nx.DiGraph[str]:
    """Return the graph's nodes with their kinds."""
    dag: nx.DiGraph[str] = nx.DiGraph(graph.dag.edges)
    for node in graph.nodes:
        dag.add_node(node.name, kind=node.kind)
    return dag


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_from_handle_reads_the_plans_nodes_and_edges_and_does_the_same(name: str, backend: Any, device: Runtime) -> None:
    case = built(name, device)
    values = case.initial()
    first = dict(case.launches[0]) if case.launches else {}
    parameters = {**case.defaults, **first}
    with case.graph.compile(device, backend, batch=False) as exe:  # a node for each step
        exe.run(**first)
        case.apply(values, parameters)
        back = hg.Graph.from_handle(exe.graph_handle, device, arrays=exe)
        again = hg.Graph.from_handle(exe.graph_handle, device, arrays=exe)
        assert str(back) == str(again), "names follow from the graph alone"
        if backend not in case.expands:
            assert len(back) == len(exe.plan.steps)
            assert not len(back) or nx.vf2pp_is_isomorphic(lowered(exe), read(back), node_label="kind")
        assert not back.check(device.target).errors
        with back.compile(device) as twin:
            twin.run()
        case.apply(values, parameters)
        for array, wanted in values.items():
            if array not in case.hidden:
                assert exe.read(array).tobytes() == wanted.tobytes(), array
    case.finish()


def test_from_capture_reads_kernel_names_arguments_and_arrays(d: Raw) -> None:
    runtime = d.runtime
    function = d.kernel(AXPY, "axpy")
    x, y = d.upload(np.arange(32, dtype="f4")), d.upload(np.zeros(32, "f4"))
    out = d.host(np.zeros(32, "f4"))

    def fn(stream: Any) -> None:
        runtime.memset_async(Fill2D(y, 4, 0x3F800000, 32), int(stream))
        args = d.args(y, x, ctypes.c_float(2.0), ctypes.c_int(32))
        runtime.module_launch_kernel(function, (1, 1, 1), (32, 1, 1), 0, int(stream), args)
        runtime.memcpy_async(out.ctypes.data, y, 128, MemcpyKind.DEVICE_TO_HOST, int(stream))

    g = hg.Graph.from_capture(fn, runtime, name="library", arrays={"out": out})
    fill, kernel, copy = g.nodes
    assert (fill.kind, kernel.kind, copy.kind) == ("memset", "kernel", "memcpy")
    assert isinstance(kernel, hg.KernelNode)
    assert kernel.name == kernel.kernel.name == "axpy"
    assert (kernel.grid, kernel.block) == ((1, 1, 1), (32, 1, 1))
    assert [getattr(arg, "root", None) is not None for arg in kernel.args] == [True, True, False, False]
    assert np.uint32(kernel.args[2]).view("f4") == 2.0
    assert kernel.args[3] == 32
    assert isinstance(copy, hg.MemcpyNode)
    assert copy.dst.root.name == "out"
    assert list(g.dag.edges) == [(fill.name, "axpy"), ("axpy", copy.name)]
    assert "HG604" in g.check().codes
    with g.compile(runtime) as exe:
        exe.run()
        assert out.tolist() == (1 + 2 * np.arange(32)).tolist()
        exe.set("axpy", args=(*kernel.args[:2], np.float32(3), np.int32(32)))
        exe.run()
        assert out.tolist() == (1 + 3 * np.arange(32)).tolist()
        assert {span.name for span in exe.profile().spans} == {fill.name, "axpy", copy.name}


def test_files_refuse_a_foreign_kernel_by_its_name(d: Raw, tmp_path: Any) -> None:
    function = d.kernel(AXPY, "axpy")
    y = d.upload(np.zeros(4, "f4"))

    def fn(stream: Any) -> None:
        args = d.args(y, y, ctypes.c_float(2.0), ctypes.c_int(4))
        d.runtime.module_launch_kernel(function, (1, 1, 1), (4, 1, 1), 0, int(stream), args)

    g = hg.Graph.from_capture(fn, d.runtime)
    with pytest.raises(hg.DeclarationError, match="kernel 'axpy' was read from a graph of runtime"):
        g.to_json()
    for ending in ("json", "py", "graphml"):
        with pytest.raises(hg.DeclarationError, match="axpy"):
            g.export(tmp_path / f"g.{ending}")
    g.export(tmp_path / "g.dot")
    assert "axpy" in (tmp_path / "g.dot").read_text()
    assert not hg.explain_update(g, hg.Graph.from_capture(fn, d.runtime))


def test_from_capture_compiles_a_foreign_kernel_for_no_other_runtime(d: Raw) -> None:
    function = d.kernel(AXPY, "axpy")
    y = d.upload(np.zeros(4, "f4"))

    def fn(stream: Any) -> None:
        args = d.args(y, y, ctypes.c_float(2.0), ctypes.c_int(4))
        d.runtime.module_launch_kernel(function, (1, 1, 1), (4, 1, 1), 0, int(stream), args)

    g = hg.Graph.from_capture(fn, d.runtime)
    with pytest.raises(hg.DeclarationError, match=f"is loaded in runtime {d.runtime.name!r} and in no other"):
        g.compile("recorder")
    outer = hg.Graph("outer")
    outer.child(g, name="child")
    with pytest.raises(hg.DeclarationError, match="node 'child/axpy': kernel 'axpy' is loaded in runtime"):
        outer.compile("recorder")
    with g.compile(d.runtime) as exe, pytest.raises(hg.DeclarationError, match="bytes of each argument"):
        exe.set("axpy", args=(*g.nodes[0].args[:2], np.float64(3), np.int32(4)))  # type: ignore[attr-defined]


def test_from_capture_that_fails_leaves_no_stream_capturing(device: Runtime) -> None:
    def fn(stream: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        hg.Graph.from_capture(fn, device)
    assert len(hg.Graph.from_capture(lambda stream: None, device)) == 0


def test_from_handle_reads_every_type_of_node(d: Raw) -> None:
    """What no row of the tables makes: pitched copies from a corner, foreign host functions, events, nested children."""
    runtime = d.runtime
    called: list[int] = []
    box = np.arange(4 * 6 * 8, dtype="u1").reshape(4, 6, 8)
    src, dst = d.upload(box), d.upload(np.zeros_like(box))
    event = runtime.event_create()
    inner, outer, graph = (runtime.graph_create() for _ in range(3))
    copy = Copy3D(dst, 8, 6, src, 8, 6, 3, 2, 2, MemcpyKind.DEVICE_TO_DEVICE, (1, 2, 1), (4, 1, 2))
    runtime.graph_add_memcpy_node(inner, (), copy)
    runtime.graph_add_child_graph_node(outer, (), inner)
    child = runtime.graph_add_child_graph_node(graph, (), outer)
    node, memory = runtime.graph_add_mem_alloc_node(graph, (), 64, 0)
    fill = runtime.graph_add_memset_node(graph, (node,), Fill2D(memory + 8, 2, 0x1234, 4))
    out = runtime.graph_add_memcpy_node_1d(graph, (fill, child), dst, memory + 8, 8, MemcpyKind.DEVICE_TO_DEVICE)
    record = runtime.graph_add_event_record_node(graph, (out,), event)
    wait = runtime.graph_add_event_wait_node(graph, (record,), event)
    host = runtime.graph_add_host_node(graph, (wait,), d.callback(lambda value: called.append(value or 0)), 7)
    free = runtime.graph_add_mem_free_node(graph, (host,), memory)
    runtime.graph_add_empty_node(graph, (free,))
    g = hg.Graph.from_handle(graph, runtime)
    runtime.graph_destroy(graph)
    runtime.graph_destroy(outer)
    runtime.graph_destroy(inner)
    assert sorted(node.kind for node in g.nodes) == sorted(
        ["child", "alloc", "memset", "memcpy", "record", "wait", "host", "free", "empty"]
    )
    assert not g.check(runtime.target).errors
    for backend in ("explicit", "capture", "streams", "serial"):
        d.runtime.memcpy(dst, np.zeros_like(box).ctypes.data, box.nbytes, MemcpyKind.HOST_TO_DEVICE)
        called.clear()
        with g.compile(runtime, backend) as exe:
            exe.run()
        wanted = np.zeros_like(box)
        wanted[1:3, 2:4, 1:4] = box[2:4, 1:3, 4:7]
        wanted.reshape(-1)[:8] = np.full(4, 0x1234, "u2").view("u1")
        assert d.download(dst, box).tolist() == wanted.tolist(), backend
        assert called == [7], backend
    runtime.event_destroy(event)


def test_from_handle_reads_memory_ops_and_semaphores() -> None:
    runtime: Any = open_runtime("cpu")
    with raw(runtime) as d:
        word = d.upload(np.zeros(2, "u8"))
        semaphore = runtime.semaphore_create(0)
        graph = runtime.graph_create()
        ops = (MemOp("write", word, 5, 8), MemOp("wait", word + 8, 0, 4, "eq"))
        first = runtime.graph_add_batch_mem_op_node(graph, (), ops)
        runtime.graph_add_external_semaphores_signal_node(graph, (first,), semaphore, 3)
        runtime.graph_add_external_semaphores_wait_node(graph, (first,), semaphore, 3)
        g = hg.Graph.from_handle(graph, runtime)
        runtime.graph_destroy(graph)
        assert [node.describe().split(" ")[-1] for node in g.nodes] == ["0", "3", "3"]
        with g.compile(runtime) as exe:
            exe.run()
            assert runtime.semaphore_value(semaphore) == 3
        assert d.download(word, np.zeros(2, "u8")).tolist() == [5, 0]
        runtime.semaphore_destroy(semaphore)


def test_from_handle_names_an_unreadable_type(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = open_runtime("cpu")
    with hg.Graph("g").compile(runtime) as exe:
        graph = exe.graph_handle
        runtime.graph_add_empty_node(graph, [runtime.graph_add_empty_node(graph, ())])
        kinds = iter([NodeType.EMPTY, NodeType.MEMCPY_TO_SYMBOL])
        monkeypatch.setattr(runtime, "graph_node_get_type", lambda node: next(kinds))
        with pytest.raises(hg.DeclarationError, match=r"node 1 \(memcpy_to_symbol\) cannot be read back.*which variable"):
            hg.Graph.from_handle(graph, runtime)


def test_from_handle_names_conditional_nodes_as_unreadable(device: Runtime) -> None:
    if device.target.platform == "amd":
        pytest.skip("HIP has no conditional nodes")
    case = NODE_KINDS["conditional_while"](hg.Graph("loops"), device)
    refused = pytest.raises(hg.DeclarationError, match=r"node \d+ \(conditional\) cannot be read back")
    with case.graph.compile(device) as exe, refused:
        hg.Graph.from_handle(exe.graph_handle, device, arrays=exe)


def test_from_handle_finds_an_array_of_an_executable_by_its_name() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", np.arange(12, dtype="i4").reshape(3, 4))
    g.memset(x[1, 1:3], 9)
    with g.compile("cpu") as exe:
        back = hg.Graph.from_handle(exe.graph_handle, "cpu", arrays={"x": exe})
        (node,) = back.nodes
        assert isinstance(node, hg.MemsetNode)
        assert (node.dst.name, node.value) == ("x[1:2, 1:3]", 9)
        with pytest.raises(hg.DeclarationError, match="has no array 'y'; it has 'x'"):
            hg.Graph.from_handle(exe.graph_handle, "cpu", arrays={"y": exe})


def test_from_handle_reads_a_vector_argument_whose_array_ends_within_a_vector() -> None:
    source = 'extern "C" __global__ void fill(float4* y, int n) { for (int i = 0; i < n; ++i) y[i].x = 1; }'
    g = hg.Graph("g")
    y = g.device_array("y", np.zeros(10, "f4"))
    g.kernel(hg.Module(source)["fill"], 1, 1, (y[:8], 2))
    with g.compile("cpu") as exe:
        back = hg.Graph.from_handle(exe.graph_handle, "cpu", arrays=exe)  # an address tells no end
        with back.compile("cpu") as twin:
            twin.run()
        assert exe.read("y").tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_shared_memory_goes_out_without_a_copy() -> None:
    g = hg.Graph("g")
    g.device_array("x", np.arange(6, dtype="f4").reshape(2, 3))
    g.host_array("h", np.arange(4, dtype="i2"))
    with g.compile("cpu") as exe:
        for name in ("x", "h"):
            shared = np.from_dlpack(exe.array(name))
            assert shared.tolist() == np.asarray(exe.array(name)).tolist() == exe.read(name).tolist()
            shared[...] = 5
            assert (exe.read(name) == 5).all()
        assert exe.array("x").__cuda_array_interface__["data"][0] == exe.array("x").ptr
