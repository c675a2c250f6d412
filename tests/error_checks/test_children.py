"""Child graphs that cannot be: what they are bound to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg


@pytest.fixture
def inner() -> hg.Graph:
    c = hg.Graph("inner")
    x = c.device_array("x", shape=4, dtype="int32")
    c.host_array("h", shape=4, dtype="int32")
    t = c.alloc("t", 4, "int32")
    c.memcpy(t, x)
    c.free(t)
    c.param("k", "int32", 1)
    c.param("p", "int32", "x", shape=4)
    return c


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("outer")
    g.device_array("y", shape=(4, 4), dtype="int32")
    g.device_array("f", shape=4, dtype="float32")
    g.host_array("page", shape=4, dtype="int32", pinned=False)
    g.param("w", "int32", 1)
    g.param("v", "float32", 1.0)
    return g


@pytest.mark.parametrize(
    ("bind", "text"),
    [
        (lambda g: {"z": g.arrays["y"][0]}, "'inner' has no array or parameter 'z'; it has 'x', 'h', 't', 'k', 'p'"),
        (lambda g: {"x": g.arrays["y"]}, r"'x' of the child is int32\[4\] and takes a contiguous array"),
        (lambda g: {"x": g.arrays["f"]}, "'f' is float32"),
        (lambda g: {"x": g.arrays["y"][:, 0]}, "not contiguous"),
        (lambda g: {"x": 3}, "an array for 'x' of the child is expected"),
        (lambda g: {"x": np.zeros(4, "i4")}, "an array for 'x' of the child is expected"),
        (lambda g: {"x": g.arrays["page"]}, "'page' is pageable host memory"),
        (lambda g: {"h": g.arrays["y"][0]}, "'h' of the child is a host array; .* is device memory"),
        (lambda g: {"t": g.arrays["y"][0]}, "'t' is made by an alloc node of the child"),
        (lambda g: {"k": 1.5}, "parameter 'k': 1.5 is no value of dtype int32"),
        (lambda g: {"k": 2**31}, "is no value of dtype int32"),
        (lambda g: {"k": g.parameters["v"]}, "parameter 'k' of the child is int32"),
        (lambda g: {"k": g.arrays["y"]}, "parameter 'k'"),
        (lambda g: {"p": 3}, "an array for 'p' of the child is expected"),
        (lambda g: {"p": g.arrays["f"]}, "'f' is float32"),
    ],
)
def test_bindings_are_of_the_childs_kind(g: hg.Graph, inner: hg.Graph, bind: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text) as caught:
        g.child(inner, bind=bind(g), name="c")
    assert "'c'" in str(caught.value)
    assert len(g) == 0
    g.child(inner, bind={"x": g.arrays["y"][1], "k": g.parameters["w"]}, name="c")
    assert not g.check().errors


def test_bindings_are_to_the_parents_own_arrays_also_where_the_child_does_not_use_them(g: hg.Graph) -> None:
    idle, foreign = hg.Graph("idle"), hg.Graph("other").device_array("z", shape=4, dtype="int32")
    idle.device_array("x", shape=4, dtype="int32")
    with pytest.raises(hg.DeclarationError, match=r"node 'c': graph '\w+' has no array 'z'"):
        g.child(idle, bind={"x": foreign}, name="c")
    with pytest.raises(hg.DeclarationError, match=r"node 'c': graph '\w+' has no array 'z'"):
        g.conditional("if", g.arrays["y"][0, 0], idle, bind={"x": foreign}, name="c")
    assert len(g) == 0


@pytest.mark.needs("cpu")
def test_a_name_of_an_array_and_a_parameter_of_the_child_is_not_bound(g: hg.Graph) -> None:
    both = hg.Graph("both")
    both.memset(both.device_array("a", shape=4, dtype="int32"), both.param("a", "int32", 3))
    with pytest.raises(hg.DeclarationError, match="'both' has an array and a parameter 'a', and bind cannot tell") as caught:
        g.child(both, {"a": g.arrays["y"][0]}, name="c")
    assert caught.value.node == "c"
    g.child(both, name="c")
    with g.compile(runtime="cpu") as exe:
        exe.run()
        assert exe.read("c/a").tolist() == [3] * 4


@pytest.mark.parametrize("thing", [None, 3, "inner", object()])
def test_only_graphs_are_children(g: hg.Graph, thing: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=f"workflow is a Graph or a Workflow .got {type(thing).__name__}."):
        g.child(thing, name="c")


@pytest.mark.parametrize("thing", [None, 3, "inner", object(), [object()]])
def test_only_graphs_are_bodies(g: hg.Graph, thing: Any) -> None:
    given = thing[0] if isinstance(thing, list) else thing
    condition = g.device_array("condition", shape=1, dtype="int32")
    with pytest.raises(
        hg.DeclarationError, match=f"'c': each of bodies is a Graph or a Workflow .got {type(given).__name__}."
    ) as caught:
        g.conditional("if", condition, thing, name="c")
    assert caught.value.field == "bodies"


def test_a_child_is_a_snapshot(g: hg.Graph, inner: hg.Graph) -> None:
    node = g.child(inner, name="c")
    inner.empty(name="later")
    assert "later" not in node.workflow.index
    assert g.plan(target="cpu").index.keys().isdisjoint({"c/later"})


def test_arrays_inside_children_are_read_by_their_full_names(g: hg.Graph, inner: hg.Graph) -> None:
    g.child(inner, name="c")
    with g.compile(runtime="recorder") as exe:
        assert exe.read("c/h").tolist() == [0] * 4
        for name, text in (
            ("c/t", "lives only while the graph runs"),
            ("c/z", "no array 'c/z'"),
            ("z/x", "no array"),
            ("c", "no array"),
        ):
            with pytest.raises(hg.DeclarationError, match=text):
                exe.read(name)


def test_parameters_inside_children_are_given_by_their_full_names(g: hg.Graph, inner: hg.Graph) -> None:
    g.child(inner, name="c")
    with g.compile(runtime="recorder") as exe:
        exe.run(**{"c/k": 5})
        assert exe.parameters["c/k"] == 5
        with pytest.raises(hg.DeclarationError, match="no parameter 'c/z'"):
            exe.launch(**{"c/z": 1})


def test_bound_parameters_are_no_launch_keywords(g: hg.Graph, inner: hg.Graph) -> None:
    g.child(inner, bind={"k": 4}, name="c")
    with g.compile(runtime="recorder") as exe, pytest.raises(hg.DeclarationError, match="no parameter 'c/k'"):
        exe.launch(**{"c/k": 1})


@pytest.mark.needs("cpu")
def test_the_default_of_a_childs_array_parameter_is_the_childs_array() -> None:
    c = hg.Graph("inner")
    c.host_array("x", np.full(4, 3, "i4"))
    out = c.host_array("out", shape=4, dtype="i4")
    c.memcpy(out, c.param("p", "int32", "x", shape=4))
    g = hg.Graph("outer")
    y = g.host_array("y", np.full(4, 5, "i4"))
    g.host_array("x", np.full(4, 7, "i4"))
    g.child(c, name="own")
    g.child(c, bind={"x": y}, name="bound")
    with g.compile(runtime="cpu") as exe:
        exe.run()
        assert exe.read("own/out").tolist() == [3] * 4
        assert exe.read("bound/out").tolist() == [5] * 4
