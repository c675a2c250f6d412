"""Graph.repeat: names, edges between passes, arrays of children, memory of alloc nodes, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg

MODULE = hg.Module(
    r"""
extern "C" __global__ void add(int* y, int by) { y[threadIdx.x] += by; }
extern "C" __global__ void pass(int* y, const int* x) { y[threadIdx.x] += x[threadIdx.x]; }
""",
    name="repeating",
)
ADD, PASS = MODULE["add"], MODULE["pass"]


def edges(graph: hg.Graph) -> set[tuple[str, str]]:
    return set(graph.dag.edges)


@pytest.mark.needs("cpu")
def test_passes_wait_for_what_accesses_tell() -> None:
    g = hg.Graph("step")
    x, y = (g.device_array(name, np.zeros(4, "i4")) for name in "xy")
    g.kernel(ADD, 1, 4, (x, 1), name="first")
    g.kernel(ADD, 1, 4, (y, 2), name="second")
    twice = g.repeat(2)
    assert twice.name == "step x 2"
    assert [node.name for node in twice.nodes] == ["first.0", "second.0", "first.1", "second.1"]
    assert edges(twice) == {("first.0", "first.1"), ("second.0", "second.1")}
    assert edges(g) == set()
    with twice.compile(runtime="cpu") as exe:
        exe.run()
        assert exe.read("y").tolist() == [4] * 4


def test_declared_order_is_that_of_each_pass() -> None:
    g = hg.Graph("step", infer=False)
    x, y = (g.device_array(name, np.zeros(4, "i4")) for name in "xy")
    first = g.kernel(ADD, 1, 4, (x, 1), name="first")
    g.kernel(PASS, 1, 4, (y, x), name="second", after=first)
    g.memset(g.device_array("z", shape=4, dtype="i4"), 1, name="third")
    g.order("first", "third")
    inside = {("first.0", "second.0"), ("first.0", "third.0"), ("first.1", "second.1"), ("first.1", "third.1")}
    assert edges(g.repeat(2, name="twice")) == inside | {
        ("second.0", "end of pass 0"), ("third.0", "end of pass 0"), ("end of pass 0", "first.1"),
    }  # fmt: skip


def test_edges_between_passes_are_none_that_others_imply() -> None:
    g = hg.Graph("calls")
    h, x = g.host_array("h", np.zeros(4, "i4")), g.device_array("x", np.zeros(4, "i4"))
    g.memcpy(h, x, name="get")
    g.host(print, (h,), name="show", after="get")
    g.record("shown", after="show", name="mark")
    g.wait("shown", name="wait")
    for graph in (g, g.repeat(3)):
        assert "HG701" not in {found.code for found in graph.check().diagnostics}


@pytest.mark.needs("cpu")
def test_numbers_of_numpy_count_passes_and_lanes() -> None:
    g = hg.Graph("calls")
    for name in "ab":
        g.empty(name=name)
    one: Any = np.int64(1)
    assert [step.name for step in g.repeat(2 * one).plan(lanes=one).steps] == ["a.0", "b.0", "a.1", "b.1"]


@pytest.mark.needs("cpu")
def test_user_code_runs_pass_by_pass() -> None:
    g, seen = hg.Graph("calls"), list[str]()
    for name in "abc":
        g.host(seen.append, (name,), name=name)
    with g.repeat(20).compile(runtime="cpu") as exe:
        exe.run()
    assert [sorted(seen[at : at + 3]) for at in range(0, 60, 3)] == [["a", "b", "c"]] * 20


def test_a_single_call_waits_for_the_one_before() -> None:
    g = hg.Graph("calls")
    g.empty(name="nothing")
    g.host(print, name="call")
    assert edges(g.repeat(3)) == {("call.0", "call.1"), ("call.1", "call.2")}


def inner(start: int, more: hg.Graph | None = None) -> hg.Graph:
    """Return a graph that keeps a sum from launch to launch."""
    g = hg.Graph("inner")
    total, x = g.device_array("total", np.full(4, start, "i4")), g.device_array("x", shape=4, dtype="i4")
    g.kernel(ADD, 1, 4, (total, 1), name="count")
    g.kernel(PASS, 1, 4, (x, total), name="give")
    if more is not None:
        g.child(more, bind={"x": x}, name="deeper")
    return g


def repeated_and_launched(g: hg.Graph, name: str, count: int = 3) -> tuple[list[int], list[int]]:
    """Return an array after one launch of the passes, and after as many launches."""
    found = []
    for graph, launches in ((g.repeat(count), 1), (g, count)):
        with graph.compile(runtime="cpu") as exe:
            for _ in range(launches):
                exe.launch()
            exe.synchronize()
            found.append(exe.read(name).tolist())
    return found[0], found[1]


@pytest.mark.needs("cpu")
def test_children_keep_what_they_have_from_pass_to_pass() -> None:
    g = hg.Graph("outer")
    x = g.device_array("x", np.zeros(4, "i4"))
    g.child(inner(10, inner(100)), bind={"x": x}, name="one")
    g.child(inner(1000), bind={"x": x}, name="other")
    assert {"one: total", "one: deeper: total", "other: total"} <= g.repeat(2).arrays.keys()
    once, several = repeated_and_launched(g, "x")
    assert once == several


@pytest.mark.needs("cpu")
def test_bodies_with_arrays_of_one_name_keep_them_apart() -> None:
    g = hg.Graph("outer")
    x, n = g.device_array("x", np.zeros(4, "i4")), g.device_array("n", np.ones(1, "i4"))
    g.kernel(ADD, 1, 1, (n, 1), name="turn")
    g.conditional("switch", n, (inner(0), inner(10), inner(100), inner(1000)), bind={"x": x}, name="choose")
    assert {"choose: 0: total", "choose: 3: total"} <= g.repeat(2).arrays.keys()
    once, several = repeated_and_launched(g, "x")
    assert once == several


@pytest.mark.needs("cpu")
def test_a_default_that_names_an_array_of_a_body_stays_that_array() -> None:
    body = hg.Graph("body")
    own = body.device_array("own", np.full(4, 5, "i4"))
    x, given = body.device_array("x", shape=4, dtype="i4"), body.param("given", "i4", "own", shape=4)
    body.kernel(ADD, 1, 4, (own, 1), name="count")
    body.kernel(PASS, 1, 4, (x, given), name="give", after="count")
    g = hg.Graph("outer")
    x = g.device_array("x", np.zeros(4, "i4"))
    g.conditional("if", g.device_array("n", np.ones(1, "i4")), body, bind={"x": x}, name="maybe")
    once, several = repeated_and_launched(g, "x")
    assert once == several == [6 + 7 + 8] * 4


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("infer", [True, False])
@pytest.mark.parametrize("freed", [True, False])
def test_memory_of_alloc_nodes_is_that_of_each_pass(freed: bool, infer: bool) -> None:
    g = hg.Graph("temporary", infer=infer)
    x, t = g.device_array("x", np.zeros(4, "i4")), g.alloc("t", 4, "i4")
    g.memset(t, 3, name="fill", after="alloc_t")
    g.kernel(PASS, 1, 4, (x, t), name="give", after="fill")
    if freed:
        g.free(t, name="free", after="give")
    repeated = g.repeat(3)
    assert repeated.check("cpu").ok
    allocs = [node.name for node in repeated.nodes if isinstance(node, hg.AllocNode)]
    frees = [node.array.name for node in repeated.nodes if isinstance(node, hg.FreeNode)]
    assert allocs == ["alloc_t.0", "alloc_t.1", "alloc_t.2"]
    assert frees == (["t.0", "t.1", "t.2"] if freed else ["t.0", "t.1"])
    with repeated.compile(runtime="cpu") as exe:
        for launch in (1, 2):
            exe.run()
            assert exe.read("x").tolist() == [9 * launch] * 4


def test_names_that_are_taken_are_left_alone() -> None:
    g = hg.Graph("names")
    g.host(print, name="end of pass 0")
    g.host(print, name="x")
    g.host(print, name="x.1")
    assert len(g.repeat(2)) == 7


@pytest.mark.needs("cpu")
def test_arrays_of_passes_leave_names_that_are_taken_alone() -> None:
    g = hg.Graph("names")
    x = g.device_array("t.0", np.zeros(4, "i4"))
    t = g.alloc("t", 4, "i4")
    g.memset(t, 3, name="fill")
    g.kernel(PASS, 1, 4, (x, t), name="give")
    assert list(g.repeat(2).arrays) == ["t.0", "t.0~", "t.1"]
    once, several = repeated_and_launched(g, "t.0")
    assert once == several == [9] * 4


@pytest.mark.needs("cpu")
def test_memory_under_two_names_is_used_pass_by_pass() -> None:
    g = hg.Graph("two names")
    x, y = (g.device_array(name, np.zeros(4, "i4")) for name in "xy")
    g.kernel(PASS, 1, 4, (y, g.param("p", "i4", "x", shape=4)), name="by parameter")
    g.kernel(ADD, 1, 4, (x, 1), name="by name", after="by parameter")
    g.kernel(ADD, 1, 4, (g.device_array("z", np.zeros(4, "i4")), 1), name="apart")
    assert edges(g.repeat(2)) == {
        ("by parameter.0", "by name.0"), ("by parameter.1", "by name.1"), ("by parameter.0", "by parameter.1"),
        ("by name.0", "by name.1"), ("by name.0", "by parameter.1"), ("apart.0", "apart.1"),
    }  # fmt: skip
    once, several = repeated_and_launched(g, "y")
    assert once == several == [0 + 1 + 2] * 4


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "2", None])
def test_no_count_is_refused(count: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="repeat: how many launches one launch does is an int from 1"):
        hg.Graph("g").repeat(count)


def test_too_many_nodes_are_refused() -> None:
    g = hg.Graph("g")
    g.empty(name="one")
    with pytest.raises(hg.DeclarationError, match="more than 1,000,000 nodes"):
        g.repeat(1_000_001)
