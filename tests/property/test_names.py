"""Files give back a workflow whatever its arrays, nodes, events and parameters are called, and whatever values stand in it."""

from __future__ import annotations

import keyword
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.parts.formats import graphml, python

MODULE = hg.Module('extern "C" __global__ void mix(int* y, const int* x, double a) { y[0] += x[0] * (int)a; }', name="names")
WORDS = (
    *keyword.kwlist, "g", "hg", "np", "build", "build_inner", "called", "float", "complex", "stored", "self", "null", "~",
    "yes", "12", "1e5", "0x1f", "- a", "a: b", "a.b", "a_b", "'", '"', '"""', "\\", "\\n", "]]>", "<!--", "&lt;", "<b>", "%s",
    "{x}", "#", "ﬁ", "日本", "x" * 200,
)  # fmt: skip


def called(*args: Any) -> None:
    """Be a callback that a file can name."""


def names(count: int) -> st.SearchStrategy[list[str]]:
    printable = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="[/"), min_size=1, max_size=8)
    good = printable.filter(lambda name: name.isprintable() and name == name.strip())
    return st.lists(st.one_of(st.sampled_from(WORDS), good), min_size=count, max_size=count, unique=True)


FLOATS = st.sampled_from([0.0, -0.0, 0.1, 1e-310, float("nan"), float("inf"), -float("inf")])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), FLOATS, st.complex_numbers(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner), st.tuples(inner), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)


@st.composite
def workflows(draw: Any) -> hg.Graph:
    arrays, nodes, events, graphs = draw(names(4)), draw(names(8)), draw(names(2)), draw(names(2))
    words = [w for w in WORDS if w.isidentifier() and w != arrays[0]]  # in a child a name that is bound means one thing
    parameters = draw(st.lists(st.sampled_from(words), min_size=2, max_size=2, unique=True))
    inner, g = hg.Graph(graphs[0]), hg.Graph(graphs[1])
    x = inner.device_array(arrays[0], shape=4, dtype="int32")
    inner.memset(x, inner.param(parameters[0], "int32", 1), name=nodes[0])
    a = g.device_array(arrays[1], draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4)), dtype="int32")
    b = g.host_array(arrays[2], shape=(2, 2), dtype="int32")
    h = g.device_array(arrays[3], draw(st.lists(FLOATS, min_size=1, max_size=3)), dtype=draw(st.sampled_from(["f2", "f4", "f8"])))
    p = g.param(parameters[1], "float64", draw(FLOATS))
    g.kernel(MODULE["mix"], 1, 1, (a, b, draw(st.one_of(FLOATS, st.just(p)))), name=nodes[1])
    g.memset(h, draw(FLOATS), name=nodes[2], ignore={"HG203": draw(st.text())})
    g.record(events[0], name=nodes[3], after=[nodes[1]])
    g.wait(events[draw(st.integers(0, 1))], name=nodes[4])
    g.host(called, args=(b, draw(VALUES)), name=nodes[5], after=[nodes[4]])
    g.child(inner, bind={arrays[0]: a}, name=nodes[6])
    g.empty(name=nodes[7], after=[nodes[6]])
    return g


def from_python(g: hg.Graph) -> hg.Graph:
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(python.render(g.workflow()), "program.py", "exec"), space)
    graph: hg.Graph = space["build"]()
    return graph


@settings(max_examples=60)
@given(g=workflows())
def test_to_json_and_from_json_give_back_every_name_and_value(g: hg.Graph) -> None:
    text = g.to_json()
    assert hg.Graph.from_json(text).to_json() == text
    assert graphml.loads(graphml.render(g.workflow())).model_dump_json() == text
    assert from_python(g).to_json() == text


@settings(max_examples=60)
@given(g=workflows())
def test_yaml_gives_back_every_name_and_value(g: hg.Graph) -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    assert yaml.loads(yaml.render(g.workflow())).model_dump_json() == g.to_json()


@pytest.mark.parametrize("text", ["\x85", "a\u2028b\n", "\u2029 ", "\r\n\x85"])
def test_yaml_gives_back_every_line_break(text: str) -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    g = hg.Graph("g")
    g.host(called, args=({text: text},), name="call")
    assert yaml.loads(yaml.render(g.workflow())).model_dump_json() == g.to_json()
