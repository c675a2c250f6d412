"""Simulations of loops and branches: numbers by hand, what runs on the CPU, and what holds for any nest of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipgraphdsl import ArrayView, DeviceArray, Graph, Module
from hipgraphdsl.drawing.picture import draw
from hipgraphdsl.parts.timeline.timeline import Timeline


def nothing(*_: object) -> None:
    pass


def stepping(*names: str, also: Callable[[Graph], object] = lambda body: None) -> Graph:
    """Return a body of fills, one behind the other, and what `also` declares behind them."""
    body = Graph("body")
    x = body.device_array("x", shape=1, dtype="int32")
    for name in names:
        body.memset(x, 1, name=name)
    also(body)
    return body


def deciding(mode: str, *bodies: Graph, **given: Any) -> Graph:
    """Return a graph of a fill, a conditional node, and a fill behind it."""
    g = Graph("deciding")
    x = g.device_array("x", shape=1, dtype="int32")
    g.memset(x, 1, name="before")
    g.conditional(mode, x, list(bodies), {"x": x}, name="node", **given)  # type: ignore[arg-type]
    g.memset(x, 0, name="behind")
    return g


def times_of(timeline: Timeline) -> list[tuple[str, float, float]]:
    return [(span.name, span.start, span.stop) for span in timeline]


@pytest.mark.parametrize("decide", ["device", "host"])
def test_a_loop_with_a_condition_is_expanded_pass_by_pass(decide: str) -> None:
    g = deciding("while", stepping("a", "b"), decide=decide)
    t = g.simulate({"memset": 1, "node/0/b": 3, "condition": 0.5}, conditions={"node": 2})
    assert times_of(t) == [
        ("before", 0, 1), ("node (look 0)", 1, 1.5), ("node/0/a (pass 0)", 1.5, 2.5), ("node/0/b (pass 0)", 2.5, 5.5),
        ("node (look 1)", 5.5, 6), ("node/0/a (pass 1)", 6, 7), ("node/0/b (pass 1)", 7, 10), ("node (look 2)", 10, 10.5),
        ("behind", 10.5, 11.5),
    ]  # fmt: skip
    assert t.deps == ((), *((n,) for n in range(8)))
    assert {span.engine for span in t if span.kind == "conditional"} == {"host" if decide == "host" else ""}
    assert t["node/0/b"].name == "node/0/b (pass 0)"
    assert t["node/0/b"].nodes == ("node/0/b",)
    assert t["node"].name == "node (look 0)"
    spans = {span["name"]: span for span in json.loads(t.to_json())["spans"]}
    assert (spans["node/0/b (pass 1)"]["origin"], "origin" in spans["before"]) == ("node/0/b", False)


@pytest.mark.parametrize(
    ("mode", "value", "wanted"),
    [
        ("while", 0, []),
        ("if", True, ["node/0/a"]),
        ("if", 1, ["node/0/a"]),
        ("if", np.bool_(False), ["node/1/b", "node/1/c"]),
        ("switch", 0, ["node/0/a"]),
        ("switch", np.int64(1), ["node/1/b", "node/1/c"]),
        ("switch", 2, []),
        ("switch", 1 << 40, []),
    ],
)
def test_a_condition_says_which_body_runs(mode: str, value: Any, wanted: list[str]) -> None:
    g = deciding(mode, *([stepping("a")] if mode == "while" else [stepping("a"), stepping("b", "c")]))
    t = g.simulate({"memset": 1}, conditions={"node": value})
    assert [span.name for span in t] == ["before", "node (look 0)" if mode == "while" else "node", *wanted, "behind"]
    assert t.makespan == 2 + len(wanted)
    assert t.deps == ((), *((n,) for n in range(len(t) - 1)))


def test_an_if_without_an_else_that_is_false_runs_nothing() -> None:
    t = deciding("if", stepping("a")).simulate({"memset": 1, "node/0/a": 5}, conditions={"node": False})
    assert times_of(t) == [("before", 0, 1), ("node", 1, 1), ("behind", 1, 2)]  # a body that does not run may have durations


def test_conditions_of_nodes_inside_bodies_hold_in_each_pass() -> None:
    def inner(body: Graph) -> None:
        x = body.arrays["x"]
        body.conditional("while", x, stepping("b"), {"x": x}, name="inner")
        body.conditional("switch", x, [stepping("c"), stepping("d")], {"x": x}, name="which")

    g = deciding("while", stepping("a", also=inner))
    conditions = {"node": 2, "node/0/inner": 2, "node/0/which": 1}
    t = g.simulate({"memset": 1}, conditions=conditions)
    assert [span.name for span in t if span.duration] == [
        "before",
        *("node/0/a (pass 0)", "node/0/inner/0/b (pass 0.0)", "node/0/inner/0/b (pass 0.1)", "node/0/which/1/d (pass 0)"),
        *("node/0/a (pass 1)", "node/0/inner/0/b (pass 1.0)", "node/0/inner/0/b (pass 1.1)", "node/0/which/1/d (pass 1)"),
        "behind",
    ]
    assert t.makespan == 10
    assert [span.name for span in t if span.kind == "conditional"][5:] == [
        "node (look 1)", "node/0/inner (pass 1, look 0)", "node/0/inner (pass 1, look 1)", "node/0/inner (pass 1, look 2)",
        "node/0/which (pass 1)", "node (look 2)",
    ]  # fmt: skip
    one = g.simulate({"memset": 1, "conditional": 7}, conditions={"node": 2, "node/0/which": 1})  # one span in each pass
    assert one["node/0/inner (pass 1)"].duration == 7
    assert g.simulate({"memset": 1}, conditions=conditions | {"node": 0}).makespan == 2


def test_a_conditional_node_of_a_child_is_named_by_its_full_name() -> None:
    g = Graph("outer")
    g.child(deciding("while", stepping("a")), name="c")
    t = g.simulate({"memset": 1}, conditions={"c/node": 1})
    assert [span.name for span in t] == [
        "c/before", "c/node (look 0)", "c/node/0/a (pass 0)", "c/node (look 1)", "c/behind",
    ]  # fmt: skip


@pytest.mark.parametrize("decide", ["device", "host"])
def test_a_loop_looks_as_often_as_check_every_says(decide: str) -> None:
    t = deciding("while", stepping("a"), decide=decide, check_every=2).simulate({"memset": 1}, conditions={"node": 4})
    assert [span.name.removeprefix("node") for span in t][1:-1] == [
        " (look 0)", "/0/a (pass 0)", "/0/a (pass 1)", " (look 1)", "/0/a (pass 2)", "/0/a (pass 3)", " (look 2)",
    ]  # fmt: skip
    assert t.deps == ((), *((n,) for n in range(len(t) - 1)))


def test_passes_do_not_overlap_and_nodes_of_one_pass_do() -> None:
    def beside(body: Graph) -> None:
        body.memset(body.device_array("y", shape=64, dtype="int32"), 0, name="beside")

    t = deciding("while", stepping("a", also=beside)).simulate(
        {"memset": 1, "node/0/beside": 3}, {"memset": 2}, conditions={"node": 2}
    )
    assert [(span.start, span.stop) for span in t if span.duration] == [(0, 1), (1, 2), (1, 4), (4, 5), (4, 7), (7, 8)]


@pytest.mark.parametrize("decide", ["device", "host"])
def test_a_pass_without_a_look_waits_for_all_of_the_one_before(decide: str) -> None:
    def beside(body: Graph) -> None:
        for n in range(300):
            body.memset(body.device_array(f"y{n}", shape=64, dtype="int32"), 0, name=f"y{n}")

    g = deciding("while", stepping("a", also=beside), decide=decide, check_every=8)
    t = g.simulate({"memset": 1, "node/0/y7": 3}, {"memset": 301}, conditions={"node": 8})
    assert {span.start for span in t if "(pass 7)" in span.name} == {1 + 7 * 3}
    assert t["behind"].start == 1 + 8 * 3
    assert max(map(len, t.deps)) == 301  # the next look
    assert {t.spans[d].name for d in t.deps[[span.name for span in t].index("node/0/a (pass 1)")]} == {"node/0/y7 (pass 0)"}


def test_a_pass_that_the_host_launches_follows_its_steps() -> None:
    """The body is two graphs with a step of the host between them, and stands in a graph of the host's steps."""

    def step(body: Graph) -> None:
        h = body.host_array("h", shape=1, dtype="int32")
        body.eager(nothing, (h,), reads=[body.arrays["x"]], writes=[body.arrays["x"]], name="step")
        body.memset(body.arrays["x"], 1, name="last")

    g = deciding("while", stepping("a", also=step))
    y, h = g.device_array("y", shape=64, dtype="int32"), g.host_array("h", shape=1, dtype="int32")
    g.eager(nothing, (h,), reads=[y], writes=[y], name="other")
    t = g.simulate({"memset": 1, "eager": 5, "condition": 2}, conditions={"node": 2})
    by_host = sorted((span for span in t if span.engine == "host"), key=lambda span: (span.start, span.stop))
    assert [(span.start, span.stop, span.segment) for span in by_host if span.name != "other"] == [
        (at, at + length, 0) for at, length in zip((1, 4, 10, 13, 19), (2, 5, 2, 5, 2))
    ]
    assert all(a.stop <= b.start for a, b in pairwise(by_host))  # one thread does them, the other step among them
    plan = g.plan(target="cpu")
    assert plan.cut is not None
    outer = len({*plan.cut.segment_of.values()})
    assert [(t[f"node/0/{name} (pass {n})"].segment) - outer for n in (0, 1) for name in ("a", "last")] == [1, 2, 1, 2]


def test_a_body_that_the_host_launches_is_a_graph_of_its_own() -> None:
    g = deciding("switch", stepping("a"), stepping("b"), decide="host")
    t = g.simulate({"memset": 1}, conditions={"node": 1})
    assert [(span.name, span.segment) for span in t] == [("before", 1), ("node", 0), ("node/1/b", 3), ("behind", 2)]
    t = deciding("while", stepping("a"), decide="device").simulate({"memset": 1}, conditions={"node": 1})
    assert {span.segment for span in t} == {0}  # there is one graph


def test_the_host_decides_nothing_inside_a_body_of_the_device() -> None:
    """What the arrays of a body stand for outside says that they are page-locked, so the device decides on all of it."""
    x, inner, body, g = {}, Graph("inner"), Graph("body"), Graph("outer")
    for graph, pinned in ((inner, False), (body, False), (g, True)):
        graph.host_array("h", shape=1, dtype="int32", pinned=pinned)
        x[graph] = graph.device_array("x", shape=1, dtype="int32")
    inner.memcpy(x[inner], inner.arrays["h"], name="in")
    body.conditional("if", x[body], inner, {"x": x[body], "h": body.arrays["h"]}, name="maybe")
    g.conditional("while", x[g], body, {"x": x[g], "h": g.arrays["h"]}, name="loop")
    assert g.plan(target="cpu").cut is None
    t = g.simulate({"H2D": 1}, conditions={"loop": 2, "loop/0/maybe": True})
    assert {(span.engine, span.segment) for span in t} == {("", 0), ("H2D", 0)}


def test_what_follows_a_branch_of_the_host_need_not_wait_for_its_body() -> None:
    g = deciding("if", stepping("a"), decide="host")
    y, h = g.device_array("y", shape=64, dtype="int32"), g.host_array("h", shape=1, dtype="int32")
    g.eager(nothing, (h,), reads=[y], writes=[y], name="other", after=["before"])
    t = g.simulate({"memset": 10, "eager": 1}, conditions={"node": True})
    assert (t["node"].start, t["node/0/a"].start, t["behind"].start) == (t["node"].stop, t["node"].stop, t["node/0/a"].stop)
    assert t["other"].stop <= t["node/0/a"].stop  # the thread goes on when it has launched the body
    one = g.simulate({"memset": 10, "eager": 1, "node": 10})
    assert max(one["other"].stop, one["node"].stop) == 21  # one span holds the thread up


def test_the_critical_path_of_a_loop_is_marked_in_a_drawing() -> None:
    g = deciding("while", stepping("a"))
    g.memset(g.device_array("y", shape=1, dtype="int32"), 0, name="short")
    t = g.simulate({"memset": 1}, {"memset": 4}, conditions={"node": 3})
    boxes = {box.name: box.critical for box in draw(g.workflow(), critical=t).boxes}
    assert boxes == {"before": True, "a": True, "behind": True, "short": False}


@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_simulated_passes_are_those_that_run(backend: Any) -> None:
    """A loop of the host, in it a step, a loop and a branch: calls come in the order of spans, and profile has the outer ones."""
    called: list[str] = []
    less = Module('extern "C" __global__ void less(int* x) { x[0] -= 1; }')["less"]

    def tell(body: Graph, x: DeviceArray | ArrayView, name: str) -> None:
        body.eager(lambda *_: called.append(name), (body.host_array(f"h_{name}", shape=1, dtype="int32"),), writes=[x], name=name)

    inner, other, body, g = (Graph(name) for name in ("inner", "other", "body", "outer"))
    for graph, name in ((inner, "x"), (other, "x")):
        tell(graph, graph.device_array(name, shape=3, dtype="int32"), f"of_{graph.name}")
    inner.kernel(less, 1, 1, (inner.arrays["x"],), name="less")
    x = body.device_array("x", shape=3, dtype="int32")
    tell(body, x[2:], "first")
    body.memset(x[:1], 2, name="twice")
    body.conditional("while", x[:1], inner, {"x": x}, name="again")
    body.conditional("if", x[:1], [inner, other], {"x": x}, name="which")
    body.kernel(less, 1, 1, (x[1:],), name="less")
    z = g.device_array("z", np.array([0, 3, 0], "int32"))
    tell(g, z[2:], "start")
    g.conditional("while", z[1:2], body, {"x": z}, name="loop")
    tell(g, z[2:], "end")
    with g.compile("cpu", backend) as exe:
        exe.run()
        ran = called[:]
        exe.write("z", np.array([0, 3, 0], "int32"))
        measured = exe.profile()
    conditions = {"loop": 3, "loop/0/again": 2, "loop/0/which": False}
    t = g.simulate({"kernel": 1, "memset": 1, "eager": 2, "condition": 1}, conditions=conditions)
    steps = sorted((span for span in t if span.kind == "eager"), key=lambda span: span.start)
    assert [span.nodes[0].rpartition("/")[2] for span in steps] == ran
    assert list(dict.fromkeys(span.nodes[0].partition("/")[0] for span in t)) == [span.name for span in measured]


@st.composite
def nests(draw: Any, depth: int = 3) -> tuple[str, int, list[Any]]:
    """Return a mode, what its condition is, and for each body its parts: fills, and further nests."""
    mode = draw(st.sampled_from(["if", "while", "switch"]))
    bodies = draw(
        st.lists(st.lists(st.integers(0, 1), max_size=2), min_size=1, max_size={"if": 2, "while": 1, "switch": 3}[mode])
    )
    for parts in bodies:
        parts[:] = [None, *(draw(nests(depth - 1)) if part and depth > 1 else None for part in parts)]
    return mode, draw(st.integers(0, {"if": 1, "while": 3, "switch": 3}[mode])), bodies


def declared(g: Graph, parts: list[Any], prefix: str, conditions: dict[str, int], decide: str) -> tuple[Graph, int, int]:
    """Declare parts on one array, all in a row; return the graph, and how many fills and looks a launch does."""
    x, fills, looks = g.device_array("x", shape=1, dtype="int32"), 0, 0
    for n, part in enumerate(parts):
        if part is None:
            g.memset(x, 0, name=f"n{n}")
            fills += 1
            continue
        mode, value, bodies = part
        conditions[f"{prefix}n{n}"] = value
        made = [declared(Graph(f"b{k}"), body, f"{prefix}n{n}/{k}/", conditions, decide) for k, body in enumerate(bodies)]
        g.conditional(mode, x, [body for body, _, _ in made], {"x": x}, name=f"n{n}", decide=decide)  # type: ignore[arg-type]
        which, times = (0, value) if mode == "while" else (value if mode == "switch" else 1 - value, 1)
        looks += 1 + (times if mode == "while" else 0)
        if which < len(made):
            fills, looks = fills + times * made[which][1], looks + times * made[which][2]
    return g, fills, looks


@given(parts=st.lists(nests(), min_size=1, max_size=3), decide=st.sampled_from(["auto", "host"]))
def test_conditions_expand_to_what_would_run(parts: list[Any], decide: str) -> None:
    conditions: dict[str, int] = {}
    g, fills, looks = declared(Graph("g"), parts, "", conditions, decide)
    t = g.simulate({"memset": 1, "condition": 4}, conditions=conditions)
    assert len({span.name for span in t}) == len(t) == fills + looks
    assert t.makespan == t.sequential == fills + 4 * looks  # all of it in a row
    assert sum(span.kind == "conditional" for span in t) == looks
    assert all(t.spans[d].stop <= span.start for span, deps in zip(t.spans, t.deps) for d in deps)
    assert [span.start for span in t] == sorted(span.start for span in t)
