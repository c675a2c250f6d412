"""Checks: what they find, how they say it, and that they leave correct graphs alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from code_objects import code_object, kernel
from hypothesis import given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.checks import CATALOGUE, Diagnostic, Report, check_workflow
from hipgraphdsl.checks.levels import CheckedLevel
from hipgraphdsl.checks.platform import _RULES
from hipgraphdsl.checks.races import racing_pairs
from hipgraphdsl.checks.reach import Reach
from hipgraphdsl.defects import DEFECTS
from hipgraphdsl.hazards import AFTER, Reason, edges_cover
from hipgraphdsl.nodes import collective
from hipgraphdsl.nodes.workflow import Workflow

MODULE = hg.Module(
    r"""
extern "C" __global__ void scale(float* x, float a) { x[blockIdx.x * blockDim.x + threadIdx.x] *= a; }
extern "C" __global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
extern "C" __global__ void __launch_bounds__(128) narrow(float* x) { x[threadIdx.x] = 0; }
extern "C" __global__ void tiled(float* x) { __shared__ float t[4096]; t[threadIdx.x] = 1; x[threadIdx.x] = t[0]; }
"""
)


def codes(report: Report) -> list[str]:
    return [d.code for d in report.diagnostics]


def report_values(*_: Any) -> None:
    """A callback that does nothing."""


def pairs(report: Report) -> set[frozenset[str]]:
    return {frozenset(d.nodes) for d in report.diagnostics if d.code in ("HG201", "HG202", "HG203") and d.nodes}


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1 + 2j])
def test_any_value_may_be_bound_to_a_childs_parameter(value: complex) -> None:
    child, g = hg.Graph("child"), hg.Graph("g")
    dtype = "complex64" if isinstance(value, complex) else "float32"
    x = child.device_array("x", shape=4, dtype=dtype)
    child.memset(x, child.param("p", dtype, 0))
    p = g.param("p", dtype, value)
    g.child(child, bind={"p": value}, name="of_a_value")
    g.child(child, bind={"p": p}, name="of_a_parameter")
    assert not g.check().errors


@pytest.mark.parametrize("form", ["name", "array", "view"])
def test_parameter_is_the_memory_of_its_default(form: str) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="float32")
    q = g.param("q", "float32", {"name": "x", "array": x, "view": x[:4]}[form], shape=4)
    g.kernel(MODULE["scale"], 1, 4, (x, 2.0), name="first")
    g.kernel(MODULE["scale"], 1, 4, (q, 3.0), name="second")
    assert codes(g.check()).count("HG203") == 1


@pytest.mark.parametrize("form", ["name", "array", "view"])
def test_child_touches_what_its_parameters_stand_for(form: str) -> None:
    child, g = hg.Graph("child"), hg.Graph("g")
    a = child.device_array("a", shape=4, dtype="float32")
    outside = child.external_array("outside", np.zeros(4, "f4"))
    q = child.param("q", "float32", {"name": "a", "array": a, "view": a[:]}[form], shape=4)
    child.kernel(MODULE["scale"], 1, 3, (q[1:] if form == "view" else q, 2.0))
    child.kernel(MODULE["scale"], 1, 4, (child.param("r", "float32", outside, shape=4)[2:], 2.0))
    x = g.device_array("x", shape=8, dtype="float32")
    y = g.external_array("y", outside.obj)
    g.memset(x[4:5], 1, name="low")
    g.memset(x[5:], 1, name="high")
    g.memset(y[3:], 1, name="y")
    g.memset(y[:2], 1, name="elsewhere")
    g.child(child, bind={"a": x[4:], "outside": y}, name="child")
    waits = set(g.dag.predecessors("child"))
    assert waits == {"high", "y"} | ({"low"} if form != "view" else set())


# -- structure ---------------------------------------------------------------------------------------------------------


def test_what_a_notebook_leaves_out_is_counted_there() -> None:
    g = hg.Graph("wide")
    for n in range(300):
        g.device_array(f"x{n}", shape=1, dtype="f4")
    report = g.check()
    left_out = str(report).splitlines()[-1].strip()
    assert left_out.startswith("... ")
    assert left_out in report._repr_mimebundle_()["text/html"]


def test_what_a_conditional_binds_is_used() -> None:
    body = hg.Graph("body")
    body.kernel(MODULE["scale"], 1, 4, (body.device_array("x", shape=4, dtype="f4"), body.param("a", "f4")))
    body.device_array("beside", shape=4, dtype="f4")
    body.memset(body.device_array("go_on", shape=1, dtype="i4"), 0)
    g = hg.Graph("outer")
    x, beside = (g.device_array(name, np.zeros(4, "f4")) for name in ("x", "beside"))
    go_on, a = g.device_array("go_on", np.zeros(1, "i4")), g.param("a", "f4", 2.0)
    node = g.conditional("while", go_on, body, {"x": x, "a": a, "beside": beside, "go_on": go_on})
    assert node.parameters == (a,)
    assert [d.arrays for d in g.check().diagnostics if not d.nodes] == [("beside",)]  # the body's own


@pytest.mark.parametrize("form", ["name", "array"])
def test_unused_array_is_no_default_of_a_parameter(form: str) -> None:
    g = hg.Graph("demo")
    x, _ = g.device_array("x", shape=4, dtype="i4"), g.device_array("y", shape=4, dtype="i4")
    g.memset(g.param("p", "i4", default="x" if form == "name" else x, shape=4), 0)
    (found,) = (d for d in g.check().diagnostics if d.code == "HG105")
    assert found.arrays == ("y",)
    assert "unless launches bind a parameter to it, or set and update give it to a node" in found.hint


def test_check_names_the_cycle_node_by_node() -> None:
    g = hg.Graph("wave")
    x, out = g.device_array("x", np.zeros(4, "float32")), g.host_array("out", shape=4, dtype="float32")
    scale = g.memset(x, 1, name="scale")
    copy = g.memcpy(out, x, name="copy_in")
    g.order(copy, scale)
    (error,) = g.check().errors
    assert str(error) == "HG101 error: graph 'wave' has a cycle: scale -> copy_in -> scale; remove one of these edges"
    assert error.nodes == ("scale", "copy_in")


def test_cycle_inside_a_child_is_found() -> None:
    child = hg.Graph("child")
    a, b = child.empty(name="a"), child.empty(name="b", after=["a"])
    child.order(b, a)
    g = hg.Graph("demo")
    g.child(child, name="step")
    (error,) = g.check().errors
    assert error.code == "HG101"
    assert error.nodes == ("step/a", "step/b")


def test_compile_refuses_what_check_calls_an_error() -> None:
    g = hg.Graph("wave")
    a, b = g.empty(name="a"), g.empty(name="b", after=["a"])
    g.order(b, a)
    with pytest.raises(hg.CheckError, match="a -> b -> a") as caught:
        g.compile(runtime="recorder")
    assert caught.value.report.codes == ("HG101",)


# -- races -------------------------------------------------------------------------------------------------------------


def test_race_names_both_nodes_the_array_the_bytes_and_the_missing_edge() -> None:
    g = hg.Graph("demo", infer=False)
    y, out = g.device_array("y", shape=1024, dtype="float32"), g.host_array("out", shape=1024, dtype="float32")
    g.memset(y, 0, name="scale")
    g.memcpy(out, y, name="copy_out")
    (error,) = g.check().errors
    assert error.message == "'scale' writes and 'copy_out' reads 'y' bytes 0..4096, and no path orders them"
    assert error.hint == "add after=['scale'] to 'copy_out'"
    assert (error.code, error.nodes, error.arrays) == ("HG201", ("scale", "copy_out"), ("y",))
    assert error.sources[0][0] == __file__


def test_strided_views_race_only_where_bytes_meet() -> None:
    g = hg.Graph("demo", infer=False)
    u = g.device_array("u", shape=(16, 16), dtype="float32")
    g.memset(u[::2], 1, name="even")
    g.memset(u[1::2], 2, name="odd")
    g.memset(u[:, 3], 3, name="column")
    assert pairs(g.check()) == {frozenset({"even", "column"}), frozenset({"odd", "column"})}


def test_race_through_a_child_names_the_node_inside() -> None:
    child = hg.Graph("child")
    v, w = child.device_array("v", shape=64, dtype="float32"), child.device_array("w", shape=64, dtype="float32")
    child.memset(w, 1, name="first")
    child.memset(v, 0, name="clear")
    g = hg.Graph("demo", infer=False)
    x, y = (g.device_array(name, shape=128, dtype="float32") for name in "xy")
    out = g.host_array("out", shape=128, dtype="float32")
    g.child(child, bind={"v": x[64:], "w": y[:64]}, name="step")
    g.memcpy(out, x, name="copy_out")
    (error,) = g.check().errors
    assert error.message == "'step/clear' writes and 'copy_out' reads 'x' bytes 256..512, and no path orders them"
    assert error.hint == "add after=['step'] to 'copy_out'"


def test_race_inside_a_child_is_reported_once_for_all_its_uses() -> None:
    child = hg.Graph("child", infer=False)
    v = child.device_array("v", shape=64, dtype="float32")
    child.memset(v, 0, name="a")
    child.memset(v, 1, name="b")
    g = hg.Graph("demo")
    x = g.device_array("x", shape=64, dtype="float32")
    for i in range(3):
        g.child(child.workflow(), bind={"v": x}, name=f"step_{i}")
    (error,) = g.check().errors
    assert error.nodes == ("step_0/a", "step_0/b")
    assert "the same in 2 more nodes with this graph" in error.message


def test_uses_of_a_child_count_at_all_depths() -> None:
    leaf = hg.Graph("leaf", infer=False)
    v = leaf.device_array("v", shape=64, dtype="float32")
    leaf.memset(v, 0, name="a")
    leaf.memset(v, 1, name="b")
    middle = hg.Graph("middle")
    for name in ("one", "two"):
        middle.child(leaf, name=name)
    outer = hg.Graph("outer")
    held = middle.workflow()
    outer.child(held, name="inside")
    g = hg.Graph("demo")
    g.child(held, name="direct")  # which is looked at before what `outer` holds is known
    for name in ("first", "second"):
        g.child(outer, name=name)
    (error,) = g.check().errors
    assert error.nodes == ("direct/one/a", "direct/one/b")
    assert "the same in 5 more nodes with this graph" in error.message


def test_arrays_of_a_child_bound_to_one_array_race() -> None:
    child = hg.Graph("child")
    v, w = child.device_array("v", shape=64, dtype="float32"), child.device_array("w", shape=64, dtype="float32")
    child.memset(v, 0, name="a")
    child.memset(w, 1, name="b")
    g = hg.Graph("demo")
    x = g.device_array("x", shape=96, dtype="float32")
    g.child(child, bind={"v": x[:64], "w": x[32:]}, name="step")
    (error,) = g.check().errors
    assert error.code == "HG203"
    assert error.message == (
        "'step/a' writes 'v' bytes 128..256 and 'step/b' writes 'w' bytes 0..128, which are the same memory, and no"
        " path orders"
        " them"
    )


def test_pinned_memory_read_by_a_host_node_races() -> None:
    g = hg.Graph("demo", infer=False)
    x, out = g.device_array("x", np.zeros(64, "float32")), g.host_array("out", shape=64, dtype="float32")
    g.memcpy(out, x, name="copy_out")
    g.host(report_values, args=(out,), reads=[out], name="report")
    assert pairs(g.check()) == {frozenset({"copy_out", "report"})}


def test_external_arrays_that_overlap_race_by_address() -> None:
    memory = np.zeros(64, "float32")
    g = hg.Graph("demo", infer=False)
    a, b, c = (g.external_array(n, m) for n, m in (("a", memory[:40]), ("b", memory[32:]), ("c", memory[:16])))
    g.host(report_values, args=(a,), writes=[a[16:]], name="write")
    g.host(report_values, args=(b,), reads=[b], name="read")
    g.host(report_values, args=(c,), reads=[c], name="apart")
    (error,) = g.check().errors
    assert error.code == "HG203"
    assert error.nodes == ("write", "read")
    assert "'a' bytes 128..160" in error.message
    assert "'b' bytes 0..32" in error.message


def test_parameters_that_default_to_one_array_race() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", shape=64, dtype="float32")
    p, q = (g.param(name, dtype="float32", shape=64, default=x) for name in "pq")
    g.memset(p, 0, name="a")
    g.memset(q, 1, name="b")
    assert pairs(g.check()) == {frozenset({"a", "b"})}


def test_one_pair_is_reported_once_however_many_arrays_it_races_for() -> None:
    g = hg.Graph("demo", infer=False)
    x, y = (g.device_array(name, shape=64, dtype="float32") for name in "xy")
    g.kernel(MODULE["add"], 1, 64, (x, y), name="a")
    g.kernel(MODULE["add"], 1, 64, (y, x), name="b")
    (error,) = g.check().errors
    assert error.arrays == ("x", "y")


def test_tutorial_code_with_one_of_two_dependencies_is_found() -> None:
    g = hg.Graph("tutorial", infer=False)
    a, b, c = (g.device_array(name, np.zeros(64, "float32")) for name in "abc")
    g.memset(a, 1, name="kernel_a")
    g.memset(b, 2, name="kernel_b")
    g.kernel(MODULE["add"], 1, 64, (a, c), name="first", after=["kernel_a"])
    g.kernel(MODULE["add"], 1, 64, (b, c), name="kernel_c", after=["first"])
    assert pairs(g.check()) == {frozenset({"kernel_b", "kernel_c"})}


def test_inferred_graph_has_no_race() -> None:
    g = hg.Graph("demo")
    x, y = (g.device_array(name, np.zeros(64, "float32")) for name in "xy")
    for i in range(6):
        g.kernel(MODULE["add"], 1, 64, (x, y) if i % 2 else (y, x))
    assert not g.check().errors


def test_edge_removed_from_an_inferred_graph_is_noticed() -> None:
    g = hg.Graph("demo")
    x, y = (g.device_array(name, np.zeros(64, "float32")) for name in "xy")
    g.memset(x, 1, name="a")
    g.memcpy(y, x, name="b")
    assert not g.check().errors
    g.dag.remove_edge("a", "b")
    assert pairs(g.check()) == {frozenset({"a", "b"})}


def test_pairs_beyond_five_thousand_are_counted() -> None:
    g = hg.Graph("demo", infer=False)
    x = g.device_array("x", shape=4, dtype="float32")
    for i in range(120):
        g.memset(x, i)
    report = g.check()
    assert len(pairs(report)) == 5000
    assert "2140 more conflicts over 'x'" in report.errors[-1].message
    assert "4941 more, see .diagnostics" in str(report)


def brute_force(workflow: Workflow) -> set[frozenset[int]]:
    closure = nx.transitive_closure_dag(workflow.dag)
    found = set()
    for i, j in combinations(range(len(workflow.nodes)), 2):
        a, b = workflow.nodes[i], workflow.nodes[j]
        if closure.has_edge(a.name, b.name) or closure.has_edge(b.name, a.name):
            continue
        for x in a.accesses:
            for y in b.accesses:
                if x.view.root is not y.view.root or (x.mode, y.mode) == ("read", "read"):
                    continue
                touched = np.zeros(x.view.root.shape, bool)
                touched[x.view.selection] = True
                if touched[y.view.selection].any():
                    found.add(frozenset((i, j)))
    return found


def random_graph(rng: random.Random, infer: bool = False) -> hg.Graph:
    g = hg.Graph("random", infer=infer)
    arrays = [g.device_array(f"a{i}", shape=(4, 6), dtype="float32") for i in range(rng.randint(1, 3))]

    def view() -> Any:
        array = rng.choice(arrays)
        rows = slice(rng.randrange(4), 4, rng.randint(1, 3))
        columns = slice(rng.randrange(6), 6, rng.randint(1, 3))
        return rng.choice((array, array[rows], array[:, columns], array[rows, columns]))

    names: list[str] = []
    for i in range(rng.randint(2, 14)):
        after = rng.sample(names, min(len(names), rng.randint(0, 2)))
        reads = [view() for _ in range(rng.randint(0, 2))]
        writes = [view() for _ in range(rng.randint(0, 2))]
        g.captured(report_values, reads=reads, writes=writes, name=f"n{i}", after=after)
        names.append(f"n{i}")
    return g


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_racing_pairs_are_exactly_those_of_brute_force(rng: random.Random) -> None:
    workflow = random_graph(rng).workflow()
    found, more = racing_pairs(CheckedLevel(workflow))
    assert {frozenset(pair) for pair in found} == brute_force(workflow)
    assert not more


def covered(workflow: Workflow) -> bool:
    in_order = all(source < i for i, sources in enumerate(workflow.predecessors) for source in sources)
    return in_order and edges_cover(workflow.nodes, workflow.predecessors)


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_inferred_random_graphs_never_race(rng: random.Random) -> None:
    workflow = random_graph(rng, infer=True).workflow()
    assert covered(workflow)
    assert racing_pairs(CheckedLevel(workflow)) == ([], {})


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_short_way_never_hides_a_race(rng: random.Random) -> None:
    g = hg.Graph("parts")
    x = g.device_array("x", shape=32, dtype="float32")
    for i in range(rng.randint(2, 10)):
        start = rng.choice((0, 8, 16, 24))
        part = x[start : start + rng.choice((8, 8, 8, 16)) if start < 24 else 32]
        reading = rng.random() < 0.5
        g.captured(report_values, name=f"n{i}", reads=[part] if reading else [], writes=[] if reading else [part])
    workflow = g.workflow()
    assert covered(workflow)
    edges = [(i, s) for i, sources in enumerate(workflow.predecessors) for s in sources]
    if edges:
        target, source = rng.choice(edges)
        fewer = tuple(tuple(s for s in p if (i, s) != (target, source)) for i, p in enumerate(workflow.predecessors))
        reasons = tuple((Reason("RAW", "x"),) * len(sources) for sources in fewer)
        cut = Workflow("cut", workflow.arrays, {}, workflow.nodes, fewer, reasons)
        assert not covered(cut) or not brute_force(cut)


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_reach_agrees_with_the_transitive_closure(rng: random.Random) -> None:
    n = rng.randint(1, 14)
    predecessors = tuple(tuple(sorted(rng.sample(range(i), min(i, rng.choice((0, 1, 1, 2, i)))))) for i in range(n))
    nodes = tuple(hg.EmptyNode(name=f"n{i}") for i in range(n))
    workflow = Workflow("w", {}, {}, nodes, predecessors, tuple((AFTER,) * len(p) for p in predecessors))
    closure = nx.transitive_closure_dag(workflow.dag)
    reach = Reach(workflow)
    wanted = {(u, v) for u in range(n) for v in range(n) if closure.has_edge(f"n{u}", f"n{v}")}
    assert reach.preceding([(u, v) for u in range(n) for v in range(n)]) == wanted
    for start, stop in reach.segments:
        for before in range(start):
            assert all((before, v) in wanted for v in range(start, stop))
    reduced = nx.transitive_reduction(workflow.dag)
    redundant = {frozenset(d.nodes[:2]) for d in check_workflow(workflow).infos if d.code == "HG701" and len(d.nodes) == 2}
    for d in check_workflow(workflow).infos:
        if d.code == "HG701":
            redundant |= {frozenset((d.nodes[0], s)) for s in d.nodes[1:]}
    assert redundant == {frozenset(edge) for edge in workflow.dag.edges if edge not in reduced.edges}


# -- events ------------------------------------------------------------------------------------------------------------


def test_wait_for_a_shared_event_is_not_judged() -> None:
    g = hg.Graph("demo")
    g.wait(hg.Event("ready", shared=True))
    assert not g.check().diagnostics


# -- lifetimes ---------------------------------------------------------------------------------------------------------


def test_alloc_race_is_one_lifetime_diagnostic_and_no_race() -> None:
    g = hg.Graph("demo", infer=False)
    out = g.host_array("out", shape=64, dtype="float32")
    y = g.alloc("y", shape=64, dtype="float32")
    g.memset(y, 0, name="clear", after=[y])
    g.memcpy(out, y, name="copy", after=["clear"])
    g.free(y, name="drop", after=["clear"])
    assert codes(g.check()) == ["HG303"]


def test_order_that_runs_a_use_before_its_alloc_is_named() -> None:
    g = hg.Graph("demo", infer=False)
    y = g.alloc("y", shape=64, dtype="float32", name="make")
    out = g.host_array("out", shape=64, dtype="float32")
    g.memset(y, 0, name="clear")
    g.memcpy(out, y, name="copy", after=["clear", "make"])
    g.order("clear", "make")
    g.free(y, after=["copy"])
    (error,) = g.check().errors
    assert error.message == "'clear' uses 'y' before 'make' allocates it"


def test_use_after_free_through_a_child_is_found() -> None:
    child = hg.Graph("child")
    v, w = (child.device_array(n, shape=64, dtype="float32") for n in "vw")
    child.memcpy(w, v)
    g = hg.Graph("demo")
    out = g.device_array("out", shape=64, dtype="float32")
    y = g.alloc("y", shape=64, dtype="float32")
    g.memset(y, 0)
    g.free(y, name="drop")
    g.child(child, bind={"v": y, "w": out}, name="step")
    assert [(d.code, d.nodes) for d in g.check().errors] == [("HG302", ("step", "drop"))]


def test_lifetimes_inside_a_child_are_checked() -> None:
    child = hg.Graph("child")
    v = child.device_array("v", shape=64, dtype="float32")
    y = child.alloc("y", shape=64, dtype="float32")
    child.memset(y, 0)
    child.free(y, name="drop")
    child.memcpy(v, y, name="copy")
    g = hg.Graph("demo")
    out = g.device_array("out", shape=64, dtype="float32")
    g.child(child, bind={"v": out}, name="step")
    assert [(d.code, d.nodes) for d in g.check().errors] == [("HG302", ("step/copy", "step/drop"))]


def test_free_of_memory_that_the_graph_does_not_allocate_is_an_error() -> None:
    other = hg.Graph("other")
    y = other.alloc("y", shape=64, dtype="float32")
    free = hg.FreeNode(name="drop", array=y.array)
    workflow = Workflow("demo", {}, {}, (free,), ((),), ((),))
    (error,) = check_workflow(workflow).errors
    assert error.code == "HG305"
    assert "no node of graph 'demo' allocates it" in error.message


# -- data --------------------------------------------------------------------------------------------------------------


def test_kernel_that_may_only_write_does_not_count_as_a_read() -> None:
    g = hg.Graph("demo")
    out = g.host_array("out", shape=64, dtype="float32")
    y = g.alloc("y", shape=64, dtype="float32")
    g.kernel(MODULE["scale"], 1, 64, (y, 2.0))
    g.memcpy(out, y)
    g.free(y)
    assert not g.check().diagnostics


def test_update_that_says_so_counts_as_a_read() -> None:
    g = hg.Graph("demo")
    out = g.host_array("out", shape=64, dtype="float32")
    y = g.alloc("y", shape=64, dtype="float32")
    g.kernel(MODULE["scale"], 1, 64, (hg.updates(y), 2.0))
    g.memcpy(out, y)
    g.free(y)
    assert codes(g.check()) == ["HG401"]


def test_scratch_memory_of_one_kernel_is_no_lost_write() -> None:
    g = hg.Graph("demo")
    y = g.alloc("y", shape=64, dtype="float32")
    g.kernel(MODULE["scale"], 1, 64, (y, 2.0))
    g.free(y)
    assert not g.check().diagnostics


def test_parts_written_one_by_one_cover_the_whole() -> None:
    g = hg.Graph("demo")
    out = g.host_array("out", shape=(8, 8), dtype="float32")
    y = g.alloc("y", shape=(8, 8), dtype="float32")
    for row in (5, 0, 7, 2, 1, 6, 4, 3):
        g.memset(y[row], row)
    g.memcpy(out, y)
    g.memcpy(out[::2], y[1::2])
    g.free(y)
    assert not g.check().warnings


def test_rows_that_were_not_written_are_named() -> None:
    g = hg.Graph("demo")
    out = g.host_array("out", shape=(8, 8), dtype="float32")
    y = g.alloc("y", shape=(8, 8), dtype="float32")
    g.memset(y[::2], 0)
    g.memset(y[1], 0)
    g.memcpy(out[:3], y[5:])
    g.free(y)
    (warning,) = g.check().warnings
    assert "bytes 224..256 of 'y'" in warning.message


def test_copy_between_parts_that_do_not_meet_is_right() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros((8, 8), "float32"))
    g.memcpy(x[::2], x[1::2])
    assert not g.check().diagnostics


def test_copy_onto_itself_through_aliased_memory_is_found() -> None:
    memory = np.zeros(64, "float32")
    g = hg.Graph("demo")
    a, b = g.external_array("a", memory), g.external_array("b", memory)
    g.memcpy(a[:32], b[16:48])
    assert "HG405" in codes(g.check())


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "launch", "code"),
    [
        ("nvidia:sm_90", {"grid": 1, "block": (1, 1, 128)}, "HG501"),
        ("amd:gfx942", {"grid": 1, "block": (1, 1, 128)}, None),
        ("nvidia:sm_90", {"grid": (1, 70_000), "block": 64}, "HG503"),
        ("amd:gfx1100", {"grid": (1, 70_000), "block": 64}, None),
        ("amd:gfx1100", {"grid": (2**23, 1), "block": 512}, "HG504"),
        ("nvidia:sm_90", {"grid": (2**23, 1), "block": 512}, None),
        ("amd:gfx942", {"grid": 1, "block": 64, "shared_bytes": 65_537}, "HG505"),
        ("nvidia:sm_90", {"grid": 1, "block": 64, "shared_bytes": 65_537}, None),
        ("cpu", {"grid": 1, "block": 64, "shared_bytes": 65_536}, None),
        ("nvidia:sm_90", {"grid": 10_000, "block": 256, "cooperative": True}, "HG506"),
    ],
)
def test_limits_follow_the_target(target: str, launch: dict[str, Any], code: str | None) -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(64, "float32"))
    g.kernel(MODULE["scale"], args=(x, 2.0), **launch, ignore={"HG409": "what the device takes is asked"})
    assert [d.code for d in g.check(target).errors] == ([code] if code else [])


def test_static_and_dynamic_shared_memory_count_together() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(64, "float32"))
    g.kernel(MODULE["tiled"], 1, 64, (x,), shared_bytes=50_000)
    (error,) = g.check("amd:gfx942").errors
    assert "16384 static and 50000 dynamic bytes" in error.message


def test_launch_bounds_hold_without_a_target() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(256, "float32"))
    g.kernel(MODULE["narrow"], 1, 256, (x,))
    assert codes(g.check()) == ["HG502"]


@pytest.mark.parametrize("target", [None, "amd:gfx942", "amd:gfx942@7.2"])
@pytest.mark.parametrize("signature", [{}, {"scale": "float*, float"}])
@pytest.mark.parametrize(
    ("built", "block", "said"),
    [
        ({".reqd_workgroup_size": [64, 1, 1]}, 64, ""),
        ({".reqd_workgroup_size": [64, 1, 1]}, 128, "built for blocks of 64 x 1 x 1"),
        ({".reqd_workgroup_size": [8, 8, 1]}, 64, "built for blocks of 8 x 8 x 1"),
        ({".reqd_workgroup_size": [8, 8, 1]}, (8, 8), ""),
        ({".reqd_workgroup_size": [64, 1, 1], ".max_flat_workgroup_size": 64}, 128, "built for blocks of 64 x 1 x 1"),
        ({".max_flat_workgroup_size": 256}, 256, ""),
        ({".max_flat_workgroup_size": 256}, (32, 9), "a block of 288 threads; kernel 'scale' is built for at most 256"),
        ({}, 1024, ""),
    ],
)
def test_a_block_is_compared_with_those_that_a_code_object_is_built_for(
    built: dict[str, Any], block: Any, said: str, signature: dict[str, str], target: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(code_object([kernel(**{".symbol": "other.kd"}), kernel(**built)]))
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(4096, "float32"))
    g.kernel(hg.Module.from_file(path, signature)["scale"], 1, block, (x, np.float32(2)))
    found = [d.message for d in g.check(target) if d.code == "HG502"]
    assert len(found) == bool(said)
    assert all(said in message for message in found)
    again = hg.Graph.from_json(g.to_json())
    assert "HG502" not in codes(again.check(target))  # its file is not read before it is compiled
    if said:
        with pytest.raises(hg.CheckError, match="HG502"):
            again.compile("recorder")


def test_a_block_along_an_axis_that_a_launch_gives_is_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(code_object([kernel(**{".reqd_workgroup_size": [64, 2, 1]})]))
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(4096, "float32"))
    scale = hg.Module.from_file(path)["scale"]
    g.kernel(scale, 1, (g.param("n", "u4"), 2), (x, np.float32(2)))
    assert "HG502" not in codes(g.check())
    g.kernel(scale, 1, (g.parameters["n"], 3), (x, np.float32(2)))
    (found,) = [d for d in g.check() if d.code == "HG502"]
    assert "a block of ? x 3 x 1 threads" in found.message


def test_extents_bound_in_a_child_are_judged_there() -> None:
    child = hg.Graph("child")
    v, n = child.device_array("v", shape=64, dtype="float32"), child.param("n", dtype="int32", default=64)
    child.kernel(MODULE["scale"], 1, n, (v, 2.0), name="scale")
    g = hg.Graph("demo")
    x = g.device_array("x", np.zeros(64, "float32"))
    g.child(child, bind={"v": x, "n": 64}, name="small")
    g.child(child, bind={"v": x, "n": 2048}, name="large")
    assert [d.nodes for d in g.check().errors] == [("large/scale",)]


# -- advice and defects ------------------------------------------------------------------------------------------------


def test_reused_buffer_is_named_once() -> None:
    g = hg.Graph("demo")
    parts, out = (g.host_array(n, np.zeros((4, 64), "float32")) for n in ("parts", "out"))
    x = g.device_array("x", shape=64, dtype="float32")
    for i in range(4):
        g.memcpy(x, parts[i], name=f"in_{i}")
        g.memcpy(out[i], x, name=f"out_{i}")
    (info,) = g.check().diagnostics
    assert (info.code, info.nodes, info.arrays) == ("HG702", ("in_1", "out_0"), ("x",))


def test_a_path_through_an_earlier_node_is_another_reason_than_reuse() -> None:
    g = hg.Graph("demo")
    parts, out = (g.host_array(n, np.zeros((2, 64), "float32")) for n in ("parts", "out"))
    x = g.device_array("x", shape=64, dtype="float32")
    ready = g.empty(name="ready")
    g.memcpy(x, parts[0], name="in_0")
    done = g.memcpy(out[0], x, name="out_0")
    again = g.memcpy(x, parts[1], name="in_1")
    g.memcpy(out[1], x, name="out_1")
    assert codes(g.check()) == ["HG702"]
    g.order(done, ready)
    g.order(ready, again)
    assert codes(g.check()) == []


def test_defects_need_a_version_to_be_warnings() -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", shape=64, dtype="float32")
    ys = g.device_array("ys", shape=(6, 64), dtype="float32")
    g.memset(x, 0, name="source")
    for i in range(6):
        g.memcpy(ys[i], x)
    assert "HG802" in {d.code for d in g.check("amd:gfx942@7.2").warnings}
    assert not g.check("amd:gfx942@7.15").warnings
    assert not g.check("amd:gfx942").warnings
    assert not g.check("cpu").warnings


@pytest.mark.parametrize("target", [None, "nvidia:sm_90", "amd:gfx942@7.2"])
def test_collectives_are_checked_by_what_they_access(target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 512 arrays one holds half a million nodes, which are not made for that."""
    monkeypatch.setattr(collective, "_Recipe", None)
    g = hg.Graph("together", infer=False)
    x = [g.device_array(f"x{d}", shape=4, dtype="float32", device=d) for d in range(512)]
    g.memset(x[7], 1, name="fill")
    g.all_reduce(x, name="sum")
    found = [d for d in g.check(target) if d.code == "HG201"]
    assert [d.nodes for d in found] == [("fill", "sum")], found
    g.order("fill", "sum")
    assert [d for d in g.check(target) if d.code == "HG201"] == []


def test_each_rule_about_a_defect_has_its_defect() -> None:
    assert set(_RULES) <= {defect.id for defect in DEFECTS}
    assert {code for code, _ in _RULES.values()} == {code for code in CATALOGUE if code.startswith("HG8")}


def test_signal_semaphore_without_a_handle_is_named() -> None:
    g = hg.Graph("demo")
    g.signal_semaphore("ready")
    g.signal_semaphore(hg.Semaphore("other", 1))
    (info,) = g.check().diagnostics
    assert (info.code, info.nodes) == ("HG107", ("signal_ready",))


# -- ignore and reports ------------------------------------------------------------------------------------------------


def racing(ignore: dict[str, str] | None = None) -> hg.Graph:
    g = hg.Graph("demo", infer=False)
    y = g.device_array("y", shape=64, dtype="float32")
    g.memset(y, 0, name="a")
    g.memset(y, 0, name="b", ignore=ignore)
    return g


def test_ignored_code_is_kept_with_its_reason() -> None:
    report = racing({"HG202": "both write zeros"}).check()
    assert not report.diagnostics
    ((diagnostic, reason),) = report.ignored
    assert (diagnostic.code, reason) == ("HG202", "both write zeros")
    assert str(report) == "graph 'demo': 1 ignored"


def test_other_codes_are_not_silenced_by_ignore() -> None:
    assert racing({"HG201": "no such read"}).check().codes == ("HG202",)


def test_unknown_code_in_ignore_is_a_warning_that_names_its_neighbours() -> None:
    (warning,) = racing({"HG2O2": "letter O"}).check().warnings
    assert warning.code == "HG102"
    assert "HG202" in warning.hint


def test_report_puts_errors_first_and_keeps_declaration_order() -> None:
    g = hg.Graph("demo", infer=False)
    x, y = (g.device_array(n, shape=64, dtype="float32") for n in "xy")
    spare = g.device_array("spare", shape=64, dtype="float32")
    out = g.host_array("out", shape=64, dtype="float32", pinned=False)
    g.memset(x, 0, name="a")
    g.memcpy(out, x, name="b")
    g.memset(y, 0, name="c")
    g.memset(y, 0, name="d")
    report = g.check()
    assert spare.name in {name for d in report.infos for name in d.arrays}
    assert [d.severity for d in report] == sorted((d.severity for d in report), key=["error", "warning", "info"].index)
    assert [d.nodes for d in report.errors] == [("a", "b"), ("c", "d")]
    assert report.exit_code == 1
    assert not report.ok


def test_report_is_true_and_says_when_nothing_was_found() -> None:
    g = hg.Graph("demo")
    g.memset(g.device_array("x", shape=4, dtype="float32"), 0)
    report = g.check()
    assert report
    assert report.ok
    assert report.exit_code == 0
    assert str(report) == "graph 'demo': nothing found"


def test_report_prints_everywhere() -> None:
    from io import StringIO

    from rich.console import Console

    report = racing().check("cpu")
    console = Console(file=StringIO(), force_terminal=True, color_system="standard", width=200)
    console.print(report)
    assert "\x1b[" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "HG202" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in str(report)
    bundle = report._repr_mimebundle_()
    assert "<b>HG202</b>" in bundle["text/html"]
    assert "<small>at " in bundle["text/html"]
    assert "test_checks.py:" in bundle["text/html"]
    assert bundle["text/plain"] == str(report)


def test_to_json_of_a_report_holds_everything() -> None:
    document = json.loads(racing().check("cpu").to_json())
    assert document["target"] == "cpu"
    assert document["diagnostics"][0]["nodes"] == ["a", "b"]
    assert document["diagnostics"][0]["sources"][0]["line"] > 0


def test_sarif_holds_what_the_standard_requires() -> None:
    g = racing({"HG202": "both write zeros"})
    g.memset(g.arrays["y"], 1, name="c")
    document = json.loads(g.check().to_sarif())
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    suppressed = [r for r in run["results"] if "suppressions" in r]
    assert len(run["results"]) == 3
    assert suppressed[0]["suppressions"][0]["justification"] == "both write zeros"
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["artifactLocation"]["uri"].endswith("test_checks.py")


def wide() -> hg.Graph:
    """Return a graph about which a finding concerns no node."""
    g = hg.Graph("wide")
    for n in range(40):
        g.memset(g.device_array(f"x{n}", shape=8, dtype="f4"), 0)
    return g


def cyclic() -> hg.Graph:
    g = hg.Graph("cyclic")
    g.order(g.empty(name="a"), g.empty(name="b"), "a")
    return g


READ_AGAIN: dict[str, Callable[[hg.Graph], hg.Graph]] = {
    "declared": lambda g: g,
    "json": lambda g: hg.Graph.from_json(g.to_json()),
    "json of a file": lambda g: hg.Graph.from_json(g.to_json(), file="of a file.json"),
    "without lines": lambda g: hg.Graph.from_workflow(hg.Workflow.model_validate(g.workflow().document())),
}


@pytest.mark.parametrize("file", [None, "flows/wave.json"])
@pytest.mark.parametrize("read", READ_AGAIN)
@pytest.mark.parametrize("make", [lambda: hg.Graph("empty"), wide, cyclic, lambda: racing({"HG202": "both write zeros"})])
def test_sarif_holds_what_code_hosts_require_of_each_result(make: Any, read: str, file: str | None) -> None:
    """Rules GH1001 to GH2012 of sarif-multitool: each result has one place in a file, by a URI; the tool has a version."""
    g = READ_AGAIN[read](make())
    report = g.check("nvidia:sm_90")
    (run,) = json.loads(report.to_sarif(file))["runs"]
    assert len(run["results"]) == len(report.diagnostics) + len(report.ignored) >= 1
    assert run["tool"]["driver"]["version"] == hg.__version__
    for result, found in zip(run["results"], [*report, *(found for found, _ in report.ignored)]):
        (place,) = result["locations"]
        uri = place["physicalLocation"]["artifactLocation"]["uri"]
        assert uri
        assert place["physicalLocation"]["region"]["startLine"] >= 1
        if not found.sources and file is not None:
            assert uri == file
        if found.sources and read == "json of a file":
            assert uri == "of%20a%20file.json"


@pytest.mark.parametrize(("file", "wanted"), [("my #1%20.py", "my%20%231%2520.py"), ("<a>.py", "%3Ca%3E.py")])
def test_sarif_quotes_the_names_of_files(file: str, wanted: str) -> None:
    report = Report("g", None, (Diagnostic("HG104", "info", "empty", sources=((file, 3),)),))
    (result,) = json.loads(report.to_sarif())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == wanted


@pytest.mark.parametrize("source", ["<workflow file>", "<stdin>"])
@pytest.mark.parametrize("file", [None, "wave.json"])
def test_sarif_names_no_file_for_places_outside_files(source: str, file: str | None) -> None:
    report = Report("wave", None, (Diagnostic("HG104", "info", "empty", sources=((source, 3),)),))
    (result,) = json.loads(report.to_sarif(file))["runs"][0]["results"]
    (place,) = result["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": file or "wave"}, "region": {"startLine": 1}}


def test_codes_stand_in_their_groups() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    assert all(code.startswith("HG") and len(code) == 5 for code in CATALOGUE)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("before", [False, True])
def test_a_kernel_whose_array_a_parameter_stands_for_is_updated_too(depth: int, before: bool) -> None:
    """HG806, at all depths, and in the second of two child nodes that hold one workflow."""
    kernel = hg.Module('extern "C" __global__ void k(float* x) { x[0] = 1; }')["k"]
    inner = hg.Graph("inner")
    inner.kernel(kernel, 1, 1, (inner.param("x", "f4", shape=4) if depth == 0 else inner.device_array("x", shape=4, dtype="f4"),))
    for n in range(depth):
        g = hg.Graph(f"level{n}")
        last = n == depth - 1
        if before:
            g.child(inner, bind={"x": g.device_array("y", shape=4, dtype="f4")})
        g.child(inner, bind={"x": (g.param("x", "f4", shape=4) if last else g.device_array("x", shape=4, dtype="f4"))})
        assert not last or "HG806" in {d.code for d in g.check("amd:gfx942@7.2").diagnostics}
        assert last or "HG806" not in {d.code for d in g.check("amd:gfx942@7.2").diagnostics}
        inner = g
    assert "HG806" in {d.code for d in inner.check("amd:gfx942@7.2").diagnostics}
