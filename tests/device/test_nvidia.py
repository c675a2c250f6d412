"""What CUDA's driver alone promises: conditional nodes, clusters, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import ConditionalMode, NodeType

pytestmark = pytest.mark.gpu

SOURCE = r"""
extern "C" __global__ void add(int* x, int value) { if (threadIdx.x == 0) x[0] += value; }
extern "C" __global__ void cluster_size(unsigned int* size) {
  unsigned int n = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
#endif
  size[blockIdx.x] = n;
}
"""


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return runtime_or_skip("nvidia")


def counting(times: int) -> hg.Graph:
    """A loop that adds 3 to `x` so often."""
    add = hg.Module(SOURCE, name="nvidia")["add"]
    body = hg.Graph("body")
    x, n = (body.device_array(name, shape=1, dtype="int32") for name in "xn")
    step = body.param("step", "int32", 3)
    body.kernel(add, 1, 32, (x, step), name="add")
    body.kernel(add, 1, 32, (n, -1), name="count")
    g = hg.Graph("counting")
    total, left = g.device_array("total", np.zeros(1, "i4")), g.device_array("left", np.zeros(1, "i4"))
    g.memset(left, times, name="times")
    g.conditional("while", left, body, bind={"x": total, "n": left, "step": g.param("by", "int32", 3)}, name="loop")
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_a_loop_runs_until_its_condition_is_zero(runtime: Runtime, backend: Any) -> None:
    with counting(1000).compile(runtime, backend) as exe:
        exe.run()
        exe.run(by=5)
        assert exe.read("total").tolist() == [8000]
        assert exe.read("left").tolist() == [0]


def test_a_loop_is_one_node_behind_the_kernel_that_reads_its_condition(runtime: Runtime) -> None:
    with counting(2).compile(runtime) as exe:
        kinds = [runtime.graph_node_get_type(node) for node in runtime.graph_get_nodes(exe.graph_handle)]
        assert sorted(kinds) == sorted([NodeType.MEMSET, NodeType.KERNEL, NodeType.CONDITIONAL])


def test_an_executable_with_a_loop_outlives_changes_that_build_it_again(runtime: Runtime) -> None:
    with counting(3).compile(runtime) as exe:
        for by in range(20):
            exe.run(by=by)
        exe.disable("times")
        exe.run()
        exe.enable("times")
        exe.disable("loop")
        exe.run()
        assert exe.read("left").tolist() == [3]
        with exe.clone() as twin:
            twin.enable("loop")
            twin.run(by=1)
            assert twin.read("total").tolist() == [3 * sum(range(20)) + 3]
        assert exe.read("total").tolist() == [3 * sum(range(20))]


def test_a_body_that_holds_what_cuda_forbids_is_refused_by_the_driver_too(runtime: Runtime) -> None:
    """What diagnostic HG508 says is the driver's own rule."""
    g, word = hg.Graph("g"), np.zeros(1, "i4")
    body = hg.Graph("body")
    body.host(print, args=(), name="shout")
    condition = g.host_array("word", word)
    g.conditional("if", condition, body, decide="device", name="maybe")
    with pytest.raises(hg.CheckError, match="HG508"):
        g.compile(runtime)
    with pytest.raises(hg.HipError):
        g.compile(runtime, check=False)


def test_bodies_are_filled_one_after_the_other_and_empty_ones_run(runtime: Runtime) -> None:
    with hg.Graph("g").compile(runtime) as exe:
        word = runtime.malloc(4)
        filled: list[int] = []
        graph = runtime.graph_create()
        node = runtime.graph_add_conditional_node(graph, (), ConditionalMode.SWITCH, word, [filled.append] * 3)
        assert len(set(filled)) == 3
        assert runtime.graph_node_get_type(node) is NodeType.CONDITIONAL
        handle = runtime.graph_instantiate(graph)
        runtime.graph_launch(handle, exe.stream)
        runtime.stream_synchronize(exe.stream)
        runtime.graph_exec_destroy(handle)
        runtime.graph_destroy(graph)
        runtime.free(word)


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("cluster", [None, 2, 4, 8])
def test_blocks_run_in_clusters_of_the_size_that_was_given(runtime: Runtime, backend: Any, cluster: int | None) -> None:
    if not runtime.target.clusters:
        pytest.skip(f"{runtime.target.name} has no clusters")
    g = hg.Graph("clusters")
    sizes = g.device_array("sizes", shape=16, dtype="uint32")
    g.kernel(hg.Module(SOURCE, name="nvidia")["cluster_size"], 16, 32, (hg.writes(sizes),), cluster=cluster, name="ask")
    with g.compile(runtime, backend) as exe:
        exe.run()
        assert exe.read("sizes").tolist() == [cluster or 1] * 16
        exe.set("ask", cluster=2)
        exe.run()
        assert exe.read("sizes").tolist() == [2] * 16
        exe.set("ask", block=64)
        exe.run()
        assert exe.read("sizes").tolist() == [2] * 16


def test_from_handle_reads_clusters(runtime: Runtime) -> None:
    if not runtime.target.clusters:
        pytest.skip(f"{runtime.target.name} has no clusters")
    g = hg.Graph("clusters")
    sizes = g.device_array("sizes", shape=8, dtype="uint32")
    g.kernel(hg.Module(SOURCE, name="nvidia")["cluster_size"], (4, 2), 32, (hg.writes(sizes),), cluster=(2, 2), name="ask")
    with g.compile(runtime) as exe:
        (node,) = hg.Graph.from_handle(exe.graph_handle, runtime, arrays=exe).nodes
        assert isinstance(node, hg.KernelNode)
        assert node.cluster == (2, 2, 1)


UNEVEN = r"""
typedef unsigned int word;
extern "C" __global__ void move(const word* __restrict__ from, word* __restrict__ to, word n, word k) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x == k * 7 % gridDim.x)
    for (const long long begin = clock64(); clock64() - begin < 20000;) {}
  to[i] = from[(i + 37 * blockDim.x) % n] + 1;
}
extern "C" __global__ void less(word* left) { if (threadIdx.x == 0) *left -= 1; }
"""
BLOCKS, THREADS, LENGTH = 96, 64, 40


def moves(g: hg.Graph, where: str = "") -> None:
    """A chain whose kernels read what other blocks of the one before wrote, of which one takes long."""
    kernel = hg.Module(UNEVEN, name="uneven")["move"]
    n = BLOCKS * THREADS
    a, b = (g.device_array(name, shape=n, dtype="uint32") for name in "ab")
    for k in range(LENGTH):
        g.kernel(kernel, BLOCKS, THREADS, (a, b, n, k) if k % 2 == 0 else (b, a, n, k), name=f"{where}{k}")


def moved(place: str) -> hg.Graph:
    """`moves` in a graph itself, in a child, or in the body of a loop of three iterations."""
    g = hg.Graph(place)
    if place == "graph":
        moves(g)
        return g
    inner = hg.Graph("inner")
    moves(inner)
    n = BLOCKS * THREADS
    a, b = (g.device_array(name, shape=n, dtype="uint32") for name in "ab")
    if place == "child":
        g.child(inner, bind={"a": a, "b": b}, name="child")
        return g
    left = g.device_array("left", shape=1, dtype="uint32")
    word = inner.device_array("left", shape=1, dtype="uint32")
    inner.kernel(hg.Module(UNEVEN, name="uneven")["less"], 1, 32, (hg.updates(word),), name="less")
    g.memset(left, 3, name="times")
    g.conditional("while", left, inner, bind={"a": a, "b": b, "left": left}, name="loop")
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("place", ["graph", "child", "loop"])
def test_kernels_behind_programmatic_edges_read_what_was_written(runtime: Runtime, backend: Any, place: str) -> None:
    if not runtime.target.programmatic_launch:
        pytest.skip("programmatic dependent launch needs sm_90 and CUDA 12.3")
    with moved(place).compile(runtime, backend) as exe:
        assert "programmatic edges" in exe.plan.explain()
        each = LENGTH * (3 if place == "loop" else 1)
        for number in range(1, 51):
            exe.run()
            assert (exe.read("a") == number * each).all()


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_disabled_nodes_keep_the_order_of_programmatic_edges(runtime: Runtime, backend: Any) -> None:
    with moved("graph").compile(runtime, backend) as exe:
        wanted = 0
        for first in (0, 10, 11, 38, None):
            off = [] if first is None else [str(first), str(first + 1)]
            for name in off:
                exe.disable(name)
            for _ in range(20):
                exe.run()
                wanted += LENGTH - len(off)
                assert (exe.read("a") == wanted).all()
            for name in off:
                exe.enable(name)


def test_graphs_with_programmatic_edges_tell_their_edges(runtime: Runtime) -> None:
    with moved("graph").compile(runtime) as exe:
        assert len(runtime.graph_get_edges(exe.graph_handle)) == LENGTH - 1
        assert len(hg.Graph.from_handle(exe.graph_handle, runtime=runtime).workflow().nodes) == LENGTH


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_edges_of_a_graph_with_alloc_nodes_stay_plain(runtime: Runtime, backend: Any) -> None:
    """The driver removes none from it, and says so: a function may record alloc nodes, of which no plan knows."""
    g = hg.Graph("allocating")
    x, t = g.device_array("x", np.ones(4, "i4")), g.alloc("t", 4, "int32")
    g.memcpy(t, x)
    for name in "ab":
        g.kernel(hg.Module(SOURCE, name="nvidia")["add"], 1, 32, (hg.updates(t), 2), name=name)
    g.memcpy(x, t, name="back")
    g.free(t)
    with g.compile(runtime, backend, batch=False) as exe:
        assert exe.plan.programmatic == ()
        for wanted in (5, 9):
            exe.run()
            assert exe.read("x").tolist() == [wanted, 1, 1, 1]
        source, target = runtime.graph_get_edges(exe.graph_handle)[0]
        assert not runtime.graph_make_programmatic(exe.graph_handle, [source], [target])
