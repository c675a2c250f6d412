"""Graph: what declaring does, and what a refused call leaves behind."""

from __future__ import annotations

import inspect
from typing import Any

import networkx as nx
import numpy as np
import pytest

import hipgraphdsl as hg


def test_default_names_are_deterministic_and_avoid_names_that_are_taken() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    g.empty(name="memset_x_2")
    assert [g.memset(x, i).name for i in range(3)] == ["memset_x", "memset_x_3", "memset_x_4"]
    assert [g.empty().name for _ in range(2)] == ["empty", "empty_2"]
    assert g.host(lambda: None).name == "lambda"
    assert g.memcpy(x[:2], x[2:]).name == "memcpy_x"


def test_a_refused_call_takes_no_name() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    for _ in range(3):
        with pytest.raises(hg.DeclarationError):
            g.memset(x, 1.5)
    assert g.memset(x, 1).name == "memset_x"
    assert g.memset(x, 1).name == "memset_x_2"


def test_default_names_of_template_kernels_are_names() -> None:
    m = hg.Module("template <int N> __global__ void f(int* x) { x[0] = N; }")
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    g.kernel(m["f<8/2>"], 1, 1, (x,))
    assert len(g) == 1
    assert "/" not in g.nodes[0].name


def test_methods_show_the_options_of_every_node_and_refuse_others() -> None:
    for name in ("memcpy", "kernel", "empty", "all_reduce"):
        parameters = inspect.signature(getattr(hg.Graph, name)).parameters
        assert [*parameters][-3:] == ["name", "after", "ignore"]
        assert parameters["after"].default == ()
    unknown: dict[str, Any] = {"nmae": "x"}
    g = hg.Graph("g")
    with pytest.raises(TypeError, match="EmptyNode: unexpected keyword argument 'nmae'"):
        g.empty(**unknown)
    assert len(g) == 0


def test_the_dag_is_a_networkx_graph_of_models() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    a, b = g.memset(x, 1, name="a"), g.memset(x, 2, name="b")
    assert isinstance(g.dag, nx.DiGraph)
    assert g.dag.nodes["a"]["node"] is a
    assert g.dag.edges["a", "b"]["reason"] == "WAW x"
    assert g.nodes == (a, b)
    assert g["b"] is b
    assert "a" in g
    assert len(g) == 2
    assert repr(g) == "Graph('g', 2 nodes, 1 edges)"


def test_order_adds_plain_edges_once_and_keeps_inferred_reasons() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    a, b = g.memset(x, 1, name="a"), g.memset(x, 2, name="b")
    c = g.empty(name="c")
    g.order(a, b, c)
    g.order("a", "c")
    g.order(a)
    assert dict(g.dag.edges) == {
        ("a", "b"): {"reason": "WAW x"},
        ("b", "c"): {"reason": "after"},
        ("a", "c"): {"reason": "after"},
    }
    assert g.workflow().ordered == (("a", "b"), ("b", "c"), ("a", "c"))


def test_a_snapshot_does_not_see_later_changes_and_is_kept_until_there_are_some() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    g.memset(x, 1)
    before = g.workflow()
    assert g.workflow() is before
    g.memset(x, 2)
    assert len(before.nodes) == 1
    assert len(g.workflow().nodes) == 2
    again = g.workflow()
    g.param("a", "i4")
    assert g.workflow() is not again
    assert "a" not in again.parameters


@pytest.mark.needs("cpu")
def test_an_executable_does_not_see_later_changes() -> None:
    g = hg.Graph("g")
    x = g.host_array("x", np.zeros(2, "i4"))
    g.memset(x, 1)
    with g.compile(runtime="cpu") as exe:
        g.memset(x, 2)
        exe.run()
        assert exe.read("x").tolist() == [1, 1]


@pytest.mark.needs("cpu")
def test_alloc_nodes_stand_where_arrays_may() -> None:
    g = hg.Graph("g")
    x, t = g.host_array("x", np.arange(6, dtype="i4").reshape(2, 3)), g.alloc("t", (2, 3), "i4")
    g.memcpy(t, x)
    g.memcpy(x[0], t[1])
    g.free(t)
    assert (t.shape, t.dtype, t.nbytes) == ((2, 3), np.dtype("i4"), 24)
    with g.compile(runtime="cpu") as exe:
        exe.run()
        assert exe.read("x").tolist() == [[3, 4, 5], [3, 4, 5]]


@pytest.mark.needs("cpu")
def test_names_of_arrays_nodes_and_parameters_are_separate() -> None:
    g = hg.Graph("g")
    x = g.host_array("x", shape=2, dtype="i4")
    a = g.param("x", "i4", 3)
    g.memset(x, a, name="x")
    with g.compile(runtime="cpu") as exe:
        exe.run(x=4)
        assert exe.read("x").tolist() == [4, 4]


@pytest.mark.needs("cpu")
def test_a_graph_with_nothing_in_it_compiles_and_runs() -> None:
    g = hg.Graph("nothing")
    backends: tuple[Any, ...] = ("explicit", "capture", "streams", "serial")
    for backend in backends:
        with g.compile(runtime="cpu", backend=backend) as exe:
            exe.run()
            exe.run()
            assert exe.done()
            assert exe.profile().spans == ()


@pytest.mark.needs("cpu")
def test_zero_dimensional_arrays_work_like_others() -> None:
    g = hg.Graph("g")
    x, y = g.host_array("x", np.float32(2.5)), g.device_array("y", shape=(), dtype="f4")
    g.memcpy(y, x)
    g.memset(x, 1.5)
    with g.compile(runtime="cpu") as exe:
        exe.run()
        assert exe.read("y").item() == 2.5
        assert exe.read("x").shape == ()
        assert exe.read("x").item() == 1.5


# -- edits of the DAG by hand --------------------------------------------------------------------------------------------------


def _by_hand() -> hg.Graph:
    g = hg.Graph("hand")
    x, y = (g.device_array(name, shape=4, dtype="i4") for name in "xy")
    g.memset(x, 1, name="a")
    g.memcpy(y, x, name="b")
    g.memset(y, 2, name="c", after=["a"])
    g.empty(name="d")
    assert not g.check().errors
    assert g.workflow() is g.workflow()
    return g


def _edges(workflow: Any) -> set[tuple[str, str]]:
    return set(workflow.dag.edges)


def test_dag_edges_put_in_by_hand_count_at_once() -> None:
    g = _by_hand()
    g.plan(target="cpu")
    g.dag.add_edge("c", "d")
    assert ("c", "d") in _edges(g.workflow())
    plan = g.plan(target="cpu", options=hg.PlanOptions(join=False))
    assert plan.steps[plan.index["d"]].deps == (plan.index["c"],)
    assert _edges(hg.Graph.from_json(g.to_json()).workflow()) == _edges(g.workflow())
    with g.compile("recorder") as exe:
        assert _edges(exe.workflow) == _edges(g.workflow())
    g.dag.add_edge("d", "a")
    assert [d.code for d in g.check().errors] == ["HG101"]


@pytest.mark.parametrize("edge", [("a", "b"), ("a", "c"), ("b", "c")])
def test_dag_edges_taken_out_by_hand_count_at_once(edge: tuple[str, str]) -> None:
    g = _by_hand()
    g.dag.remove_edge(*edge)
    workflow = g.workflow()
    assert edge not in _edges(workflow)
    assert workflow is g.workflow()
    assert any(d.code in ("HG201", "HG202", "HG203") for d in g.check().errors) == (edge != ("a", "c"))
    assert _edges(hg.Graph.from_json(g.to_json()).workflow()) == _edges(workflow)


@pytest.mark.parametrize("reason", [None, 5, "", "RAW x", "event e", " mine "])
def test_dag_edges_put_in_by_hand_have_any_reason(reason: Any) -> None:
    g = hg.Graph("g")
    g.empty(name="a")
    g.empty(name="b")
    g.dag.add_edge("a", "b", reason=reason)
    workflow = g.workflow()
    assert [str(told) for told in workflow.reasons[1]] == [str(reason or "after")]
    assert not any(told.inferred for told in workflow.reasons[1])
    assert g.workflow() is workflow
    assert hg.Graph.from_json(g.to_json()).workflow().predecessors == ((), (0,))


def test_to_json_says_which_dag_edges_were_taken_out_whatever_reasons_others_have() -> None:
    g = _by_hand()
    inferred = g.dag.edges["a", "b"]
    g.dag.remove_edge("a", "b")
    g.dag.add_edge("a", "d", reason="RAW x")
    assert not g.workflow().infer
    assert _edges(hg.Graph.from_json(g.to_json()).workflow()) == _edges(g.workflow())
    g.dag.add_edge("a", "b", **inferred)
    assert g.workflow().infer
    assert [str(reason) for reason in g.workflow().reasons[1]] == ["RAW x"]


def test_to_json_leaves_out_dag_edges_of_order_taken_out_by_hand() -> None:
    g = _by_hand()
    g.order("c", "d")
    g.dag.remove_edge("c", "d")
    assert _edges(hg.Graph.from_json(g.to_json()).workflow()) == _edges(g.workflow())


@pytest.mark.parametrize("edit", [lambda dag: dag.add_node("typo"), lambda dag: dag.add_edge("a", "typo")])
@pytest.mark.parametrize("call", ["check", "plan", "compile", "to_json", "workflow"])
def test_dag_nodes_put_in_by_hand_are_refused(edit: Any, call: str) -> None:
    g = _by_hand()
    edit(g.dag)
    with pytest.raises(hg.DeclarationError, match=r"graph 'hand': node 'typo' was put into g\.dag by hand") as caught:
        getattr(g, call)()
    assert caught.value.node == "typo"
    assert "typo" not in g
    with pytest.raises(hg.DeclarationError, match="has no node 'typo'"):
        g.empty(after=["typo"])


def test_dag_models_replaced_by_hand_are_refused() -> None:
    g = _by_hand()
    node = g.dag.nodes["b"]["node"]
    g.dag.nodes["b"]["node"] = node.changed(src=node.dst, dst=node.src)
    with pytest.raises(hg.DeclarationError, match=r"the model of node 'b' was replaced in g\.dag by hand"):
        g.workflow()


def test_dag_nodes_taken_out_by_hand_are_refused() -> None:
    g = _by_hand()
    g.dag.remove_node("b")
    with pytest.raises(hg.DeclarationError, match=r"node 'b' was taken out of g\.dag by hand"):
        g.check()
