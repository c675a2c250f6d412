"""Nodes and edges that cannot be: names, `after`, `order`, cycles, nodes of other graphs."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hipgraphdsl as hg


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("wave")
    x = g.device_array("x", shape=4, dtype="int32")
    g.memset(x, 0, name="a")
    g.memset(x, 1, name="b")
    return g


def refused(g: hg.Graph, call: Any, *texts: str, node: str | None = None) -> None:
    before = (list(g.dag.nodes), list(g.dag.edges), dict(g.arrays), g._draft.ordered.copy())
    with pytest.raises(hg.DeclarationError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value)
    assert caught.value.node == node
    assert (list(g.dag.nodes), list(g.dag.edges), dict(g.arrays), g._draft.ordered) == before
    number = sum(node.name.startswith("memset_x") for node in g.nodes)
    assert g.memset(g.arrays["x"], 2).name == ("memset_x" if not number else f"memset_x_{number + 1}")


def test_a_second_node_of_a_name_is_refused(g: hg.Graph) -> None:
    refused(g, lambda: g.empty(name="a"), "'wave' already has a node 'a'; choose another name", node="a")


@pytest.mark.parametrize("name", ["", "a/b", "a[0]", " a", "a\t", "n" * 201, 7, ["a"]])
def test_impossible_node_names_are_refused(g: hg.Graph, name: Any) -> None:
    refused(g, lambda: g.empty(name=name), "name")


@pytest.mark.parametrize("after", [["c"], "c", [None], [3], [["a"]], ["a", "c"]])
def test_unknown_nodes_in_after_are_named_with_those_that_are_there(g: hg.Graph, after: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=r"'wave' has no node .*; its nodes are 'a', 'b'"):
        g.empty(after=after, name="late")
    assert "late" not in g


def test_after_is_a_list(g: hg.Graph) -> None:
    wrong: Any = 5
    refused(g, lambda: g.empty(after=wrong, name="e"), "after is a list of nodes or of their names (got 5)")


def test_a_node_of_another_graph_is_no_predecessor(g: hg.Graph) -> None:
    other = hg.Graph("other")
    stranger = other.empty(name="stranger")
    refused(g, lambda: g.empty(after=[stranger]), "no node 'stranger'", node="stranger")


def test_a_node_cannot_wait_for_itself(g: hg.Graph) -> None:
    refused(g, lambda: g.order("a", "a"), "node 'a' cannot wait for itself", node="a")
    refused(g, lambda: g.order("a", "c"), "no node 'c'", node="c")


def test_order_adds_all_of_its_edges_or_none(g: hg.Graph) -> None:
    g.empty(name="c")
    refused(g, lambda: g.order("a", "c", "c"), "node 'c' cannot wait for itself", node="c")


def test_nodes_get_names_where_those_of_arrays_and_kernels_are_as_long_as_can_be(g: hg.Graph) -> None:
    kernel = hg.Module(f'extern "C" __global__ void {"k" * 200}(int* x) {{}}')["k" * 200]
    y = g.device_array("y" * 200, shape=4, dtype="int32")
    added = [g.memcpy(y, g.arrays["x"]), g.memset(y), g.memset(y), *(g.kernel(kernel, 1, 1, (y,)) for _ in range(3))]
    assert len({node.name for node in added}) == len(added)


@pytest.mark.parametrize("use", ["check", "plan", "compile", "compile_unchecked", "compile_inlined"])
def test_a_cycle_is_named_node_by_node(g: hg.Graph, use: str) -> None:
    inner = hg.Graph("inner")
    inner.alloc("t", 4, "int32")
    g.child(inner, name="child")
    g.empty(name="c", after=["b"])
    g.order("c", "a")
    ring = "'wave' has a cycle: a -> b -> c -> a"
    if use == "check":
        found = [d for d in g.check().errors if d.code == "HG101"]
        assert "a -> b -> c -> a" in found[0].message
        assert set(found[0].nodes) == {"a", "b", "c"}
    elif use == "plan":
        with pytest.raises(hg.DeclarationError, match=ring):
            g.plan(target="cpu")
    elif use == "compile":
        with pytest.raises(hg.CheckError, match="a -> b -> c -> a"):
            g.compile(runtime="recorder")
    else:
        with pytest.raises(hg.DeclarationError, match=ring):
            g.compile(runtime="recorder", backend="streams" if use == "compile_inlined" else "explicit", check=False)


def test_a_cycle_inside_a_child_is_named_with_the_childs_name() -> None:
    inner = hg.Graph("inner")
    inner.empty(name="p")
    inner.empty(name="q", after=["p"])
    inner.order("q", "p")
    g = hg.Graph("outer")
    g.child(inner, name="child")
    assert [d.code for d in g.check().errors] == ["HG101"]
    backends: tuple[Any, ...] = ("explicit", "streams")
    for backend in backends:
        with pytest.raises(hg.DeclarationError, match=r"'inner' has a cycle: (child/)?p -> (child/)?q -> (child/)?p"):
            g.compile(runtime="recorder", backend=backend, check=False)


def test_unknown_nodes_are_looked_up_with_an_error(g: hg.Graph) -> None:
    with pytest.raises(hg.DeclarationError, match="no node 'z'; its nodes are 'a', 'b'"):
        g["z"]
    assert "z" not in g


@pytest.mark.parametrize("way", ["method", "model", "set"])
@pytest.mark.parametrize(("wrong", "meant"), [("valeu", "value"), ("Device", "device"), ("colour", "")])
def test_a_misspelled_field_is_answered_with_the_one_meant(g: hg.Graph, way: str, wrong: str, meant: str) -> None:
    x: Any = g.arrays["x"]
    given: dict[str, Any] = {wrong: 1}
    with g.compile("recorder") as exe:
        ways: dict[str, Any] = {
            "method": lambda: g.memset(x, name="m", **given),
            "model": lambda: hg.MemsetNode(name="m", dst=x.as_view(), **given),
            "set": lambda: exe.set("a", **given),
        }
        with pytest.raises((TypeError, hg.DeclarationError)) as caught:
            ways[way]()
    assert repr(wrong) in str(caught.value)
    assert re.findall(r" \(did you mean '(\w+)'\?\)", str(caught.value)) == ([meant] if meant else [])


@pytest.mark.parametrize("thing", [None, "a", 3, object()])
def test_only_models_are_added(g: hg.Graph, thing: Any) -> None:
    refused(g, lambda: g.add(thing), "takes node models", type(thing).__name__)


def test_models_made_by_hand_are_checked_as_declared_ones(g: hg.Graph) -> None:
    x: Any = g.arrays["x"]
    memset: Any = hg.MemsetNode
    with pytest.raises(hg.DeclarationError, match="node 'm': there is no field 'colour'"):
        memset(name="m", dst=x, colour=1)
    with pytest.raises(hg.DeclarationError, match="field 'dst' is missing"):
        memset(name="m")
    with pytest.raises(hg.DeclarationError, match="has no node 'gone'"):
        g.add(hg.EmptyNode(name="m", after=("gone",)))
    with pytest.raises(hg.DeclarationError, match=r"belongs to another graph|has no array"):
        g.add(memset(name="m", dst=hg.Graph("o").device_array("x", shape=4, dtype="int32")))
    assert g.add(memset(name="m", dst=x, value=3), after=["a"]).after == ("a",)


def test_an_array_that_is_asked_for_as_a_node_is_said_to_be_one(g: hg.Graph) -> None:
    g.device_array("field", shape=4, dtype="f4")
    g.param("speed", "f4")
    with pytest.raises(hg.DeclarationError, match=r"has no node 'field'; that is g\.arrays\['field'\]"):
        g["field"]
    with pytest.raises(hg.DeclarationError, match=r"has no node 'speed'; that is g\.parameters\['speed'\]"):
        g.empty(after=["speed"])


def test_models_are_frozen(g: hg.Graph) -> None:
    with pytest.raises(hg.DeclarationError, match=r"'a' stays as it was declared.*exe\.set\('a', value=\.\.\.\)"):
        g["a"].value = 5  # that it is refused is the point


def test_ignore_is_a_dict_from_codes_to_reasons(g: hg.Graph) -> None:
    wrong: Any = ["HG201"]
    refused(g, lambda: g.empty(ignore=wrong), "ignore is a dict from codes to reasons")
    g.empty(name="e", ignore={"HG999": "no such code"})
    assert any("HG999" in d.message for d in g.check().warnings)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "magic"}, "no backend 'magic'; backends are 'explicit'"),
        ({"backend": "stream"}, "backend 'stream' is called 'streams' here"),
        ({"backend": "explict"}, "did you mean 'explicit'"),
        ({"backend": None}, r"backend is a name \(got None\)"),
        ({"runtime": "magic"}, "no runtime 'magic'; runtimes are"),
        ({"device": "cpu"}, r"device is the number of a device, from 0 \(got 'cpu'\)"),
        ({"lanes": 0}, "lanes is at least 1"),
        ({"lanes": "some"}, "lanes is 'auto'"),
        ({"lanes": 1.5}, "lanes is 'auto'"),
        ({"lanes": True}, "lanes is 'auto'"),
    ],
)
def test_compile_options_that_do_not_exist_are_named(g: hg.Graph, options: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        g.compile(**{"runtime": "recorder", **options})


@pytest.mark.parametrize(
    "target", ["gpu", "amd:", "amd:x", "nvidia:gfx942", "amd:h100", "", "cpu:", "cpu:cpu", "gfx942@x", "sm_٩٠"]
)
def test_unknown_targets_name_those_that_are_there(g: hg.Graph, target: str) -> None:
    with pytest.raises(hg.DeclarationError, match=r"no target .*; targets are 'cpu'"):
        g.check(target)


@pytest.mark.parametrize("target", ["nvidia:sm_" + "9" * 5000, "amd:gfx942@" + "9" * 5000])
def test_targets_of_any_length_are_refused_as_others_are(g: hg.Graph, target: str) -> None:
    with pytest.raises(hg.DeclarationError, match="no target"):
        g.check(target)
