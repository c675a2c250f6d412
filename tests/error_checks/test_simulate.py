"""Simulations that cannot be: what conditions say of conditional nodes, and how much they may run."""

from __future__ import annotations

from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.timeline import tasks


def body(name: str = "body") -> hg.Graph:
    b = hg.Graph(name)
    b.memset(b.device_array("x", shape=1, dtype="int32"), 0, name="fill")
    return b


@pytest.fixture
def g() -> hg.Graph:
    """A loop with a loop in its body, one that looks at each eighth pass, a switch and an if, and a child with a loop."""
    g = hg.Graph("outer")
    x = g.device_array("x", shape=1, dtype="int32")
    looping = body("looping")
    inner = looping.arrays["x"]
    looping.conditional("while", inner, body(), {"x": inner}, name="inner")
    g.memset(x, 1, name="start")
    g.conditional("while", x, looping, {"x": x}, name="loop")
    g.conditional("while", x, body(), {"x": x}, name="eighth", check_every=8)
    g.conditional("switch", x, [body(), body()], {"x": x}, name="choose")
    g.conditional("if", x, body(), {"x": x}, name="maybe")
    g.child(looping, name="child")
    return g


TIMES = {"memset": 1, "conditional": 1}


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (3, r"simulate: conditions is a dict \(got 3\)"),
        (
            {"lop": 3},
            r"'lop', which is no conditional node of graph 'outer'; its conditional nodes are 'loop', 'loop/0/inner', '",
        ),
        ({"start": 3}, "conditions has 'start', which is no conditional node"),
        ({"inner": 3}, "conditions has 'inner', which is no conditional node"),
        ({7: 3}, "conditions has 7, which is no conditional node"),
        ({"loop": -1}, r"conditions\['loop'\] is how often the loop's body runs, an int from 0 \(got -1\)"),
        ({"loop": 1.5}, r"conditions\['loop'\] is how often the loop's body runs, an int from 0 \(got 1.5\)"),
        ({"loop": True}, r"conditions\['loop'\] is how often .* \(got True\)"),
        ({"loop": None}, r"conditions\['loop'\] is how often .* \(got None\)"),
        (
            {"eighth": 9},
            r"conditions\['eighth'\] .* runs 8 times between two looks at the condition, so .* multiple .* \(got 9\)",
        ),
        ({"choose": -1}, r"conditions\['choose'\] is the number of the body that runs, an int from 0; .* \(got -1\)"),
        ({"choose": False}, r"conditions\['choose'\] is the number of the body .* \(got False\)"),
        ({"choose": "1"}, r"conditions\['choose'\] is the number of the body .* \(got '1'\)"),
        ({"maybe": 2}, r"conditions\['maybe'\] is whether the first body runs, True or False \(got 2\)"),
        ({"maybe": "yes"}, r"conditions\['maybe'\] is whether the first body runs, True or False \(got 'yes'\)"),
        ({"loop/0/inner": 2}, r"'loop/0/inner', which is inside 'loop', and that is one span; .* give conditions\['loop'\] too"),
    ],
)
def test_conditions_are_of_conditional_nodes_and_of_their_mode(g: hg.Graph, conditions: Any, said: str) -> None:
    with pytest.raises(hg.DeclarationError, match=said):
        g.simulate(TIMES, conditions=conditions)


def test_conditions_of_a_child_that_has_a_duration_are_refused(g: hg.Graph) -> None:
    with pytest.raises(
        hg.DeclarationError, match="'child/inner', which is inside 'child', and that is one span; leave its duration"
    ):
        g.simulate({**TIMES, "child": 3}, conditions={"child/inner": 2})


def test_a_conditional_node_has_a_duration_or_a_condition(g: hg.Graph) -> None:
    with pytest.raises(hg.DeclarationError, match=r"node 'loop' has a duration and a condition, .*; leave one of the two out"):
        g.simulate({**TIMES, "loop": 3}, conditions={"loop": 2})
    with pytest.raises(hg.DeclarationError, match=r"node 'loop' \(conditional\) has no duration; .*, or conditions\['loop'\]"):
        g.simulate({"memset": 1})


@pytest.mark.parametrize(
    ("durations", "said"),
    [
        ({"condition": -1}, r"durations\['condition'\] is a time, a finite number from 0 \(got -1\)"),
        ({"condition": "2"}, r"durations\['condition'\] is a time, a finite number from 0 \(got '2'\)"),
        ({"loop/0/fil": 1}, "durations has 'loop/0/fil', which is neither a node of graph 'outer' nor a kind or direction"),
        ({"maybe/0/fill": 1}, "durations has 'maybe/0/fill', which is neither"),  # that node is one span
        ({"P2P": 1}, "'P2P', .*; directions are 'H2D', 'D2H', 'D2D', 'H2H', kinds .*'memcpy'"),
        ({"copy": 1}, "durations has 'copy', which is neither"),  # that is an engine
    ],
)
def test_durations_inside_bodies_stand_for_something(g: hg.Graph, durations: Any, said: str) -> None:
    with pytest.raises(hg.DeclarationError, match=said):
        g.simulate({**TIMES, **durations}, conditions={"loop": 0})


@pytest.mark.parametrize("ranks", [None, 1])
@pytest.mark.parametrize("passes", [tasks.MOST_SPANS, 10**30])
def test_passes_that_make_too_many_spans_are_refused(g: hg.Graph, passes: int, ranks: int | None) -> None:
    with pytest.raises(hg.DeclarationError, match=f"{passes} passes of 'loop' make more than 1,000,000 spans; give fewer, or"):
        g.simulate(TIMES, conditions={"loop": passes}, ranks=ranks)


def test_spans_are_limited_over_all_loops_and_ranks(g: hg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = {"loop": 3, "loop/0/inner": 2}
    made = len(g.simulate(TIMES, conditions=conditions))
    assert made == 1 + (1 + 3 * (1 + (1 + 2 * 2) + 1)) + 3 + 2
    monkeypatch.setattr(tasks, "MOST_SPANS", made - 5)  # of those behind the loop nothing is known yet
    g.simulate(TIMES, conditions=conditions)
    monkeypatch.setattr(tasks, "MOST_SPANS", made - 6)
    with pytest.raises(hg.DeclarationError, match="3 passes of 'loop' make more than"):
        g.simulate(TIMES, conditions=conditions)
    with pytest.raises(hg.DeclarationError, match="2 passes of 'child/inner' make more than"):
        g.simulate(TIMES, conditions={"loop": 2, "loop/0/inner": 2, "child/inner": 2})
    two = hg.Graph("two")
    x = [two.device_array(f"x{d}", shape=1, dtype="int32", device=d) for d in range(2)]
    for d in range(2):
        two.conditional("while", x[d], body(), {"x": x[d]}, name=f"loop_{d}")
    monkeypatch.setattr(tasks, "MOST_SPANS", 10)
    two.simulate(TIMES, conditions={"loop_0": 3}, ranks=2, link=hg.Link(latency_us=1, gb_s=1))
    with pytest.raises(hg.DeclarationError, match="3 passes of 'loop_1' make more than 10 spans"):
        two.simulate(TIMES, conditions={"loop_0": 3, "loop_1": 3}, ranks=2, link=hg.Link(latency_us=1, gb_s=1))


def test_launches_of_segments_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    g, outer = hg.Graph("g"), body("outer")
    x, inner = g.device_array("x", shape=1, dtype="int32"), outer.arrays["x"]
    outer.conditional("while", inner, body(), {"x": inner}, name="inner", decide="host")
    g.conditional("while", x, outer, {"x": x}, name="loop", decide="host")
    g.conditional("while", x, body(), {"x": x}, name="last", decide="host")
    conditions = {"loop": 3, "loop/0/inner": 2, "last": 2}
    made = len(g.simulate(TIMES, conditions=conditions))
    monkeypatch.setattr(tasks, "MOST_SPANS", made)
    g.simulate(TIMES, conditions=conditions)
    monkeypatch.setattr(tasks, "MOST_SPANS", made - 1)
    with pytest.raises(hg.DeclarationError, match="2 passes of 'last' make more than"):
        g.simulate(TIMES, conditions=conditions)
