"""Timelines: list scheduling, the numbers derived from spans, and the text forms."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specimens import batched, everything, inner, module, pipeline

from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.timeline.gantt import summary
from hipgraphdsl.parts.timeline.gantt_page import render as page_of
from hipgraphdsl.parts.timeline.simulation import simulate
from hipgraphdsl.parts.timeline.timeline import Span, Timeline

UNIT = {"H2D": 1, "D2H": 1, "kernel": 1}

PRINTED = """
=== Overlapping Compute & Transfer Pipeline ===
Batches: 4, Each stage: 1 time unit

Sequential (no overlap):
[H2D0][K0][D2H0][H2D1][K1][D2H1][H2D2][K2][D2H2][H2D3][K3][D2H3]
Total: 12 time units

Pipelined (with streams):
t=0: [H2D0]
t=1: [K0  ] [H2D1]
t=2: [D2H0] [K1  ] [H2D2]
t=3:        [D2H1] [K2  ] [H2D3]
t=4:               [D2H2] [K3  ]
t=5:                      [D2H3]
Total: 6 time units
Speedup: 2.00x
"""


def test_pipeline_prints_as_its_source_shows_it() -> None:
    timeline = pipeline(4).simulate(UNIT)
    assert timeline.render("Overlapping Compute & Transfer Pipeline") == PRINTED.strip()


def test_lanes_of_unlike_work_are_not_called_batches() -> None:
    g = pipeline(2)
    g.memset(g.arrays["work"][0], 0, name="clear")
    assert "\nBatches: 2," in pipeline(2).simulate(UNIT).render()
    assert "\nLanes: 2," in g.simulate({**UNIT, "memset": 1}).render()


def test_text_refuses_columns_that_are_no_number() -> None:
    g = Graph("g")
    g.memset(g.device_array("x", shape=4, dtype="f4"), 0)
    with pytest.raises(DeclarationError, match=r"text: columns is an int from 1, or None \(got 'a'\)"):
        g.simulate({"memset": 1}).text(columns="a")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_chart_fits_its_columns(columns: int) -> None:
    timeline = pipeline(4).simulate({"H2D": 1, "kernel": 1.25, "D2H": 1})
    chart = timeline.text(columns).splitlines()[3:]
    assert max(map(len, chart)) <= columns
    assert len(chart) == 13
    assert timeline.text(500) == timeline.text() == str(timeline)


@given(batches=st.integers(1, 12))
def test_pipeline_takes_batches_plus_stages_minus_one(batches: int) -> None:
    timeline = pipeline(batches).simulate(UNIT)
    assert timeline.makespan == batches + 3 - 1
    assert timeline.sequential == 3 * batches
    assert timeline.overlap_achieved == timeline.overlap_possible


def test_one_copy_engine_serves_both_directions() -> None:
    timeline = pipeline(4).simulate(UNIT, {"copy": 1})
    assert {span.engine for span in timeline} == {"copy", "kernel"}
    assert timeline.makespan == 8  # eight copies, one after the other, hide every kernel


def test_more_engines_shorten_nothing_beyond_the_critical_path() -> None:
    timeline = pipeline(4).simulate({"H2D": 2, "kernel": 3.5, "D2H": 1}, {"H2D": 9, "D2H": 9, "kernel": 9})
    assert timeline.makespan == 6.5
    assert [span.name for span in timeline.critical_path] == ["H2D0", "K0", "D2H0"]


def test_utilisation_is_the_busy_part_of_each_engine() -> None:
    assert pipeline(4).simulate(UNIT).utilisation == {"H2D": 4 / 6, "D2H": 4 / 6, "kernel": 4 / 6}
    assert pipeline(4).simulate(UNIT, {"kernel": 2}).utilisation["kernel"] == 2 / 6


def test_duration_is_looked_up_by_name_then_direction_then_kind() -> None:
    timeline = pipeline(1).simulate({"K0": 5, "kernel": 9, "memcpy": 2, "D2H": 3})
    assert [span.duration for span in timeline] == [2, 5, 3]


def test_duration_may_be_a_function_of_the_node() -> None:
    timeline = pipeline(2).simulate(lambda node: 4 if node.kind == "kernel" else 1)
    assert timeline["K1"].duration == 4
    assert timeline["H2D1"].nbytes == 256


def test_events_and_allocations_take_no_time() -> None:
    g = Graph("g")
    x = g.alloc("x", shape=4, dtype="float32")
    g.memset(x, 0)
    g.record("e")
    g.free(x)
    timeline = g.simulate({"memset": 2.5})
    assert timeline.makespan == 2.5
    assert timeline["memset_x"].engine == "kernel"
    assert timeline["record_e"].engine == ""


def test_child_graph_is_expanded_unless_it_is_named() -> None:
    g = Graph("g")
    x = g.device_array("x", shape=16, dtype="float32")
    g.child(inner(), bind={"x": x}, name="c")
    g.memset(x, 0, name="last")
    assert [s.name for s in g.simulate({"kernel": 2, "memset": 1})] == ["c/scale", "last"]
    assert g.simulate({"c": 7, "memset": 1}).makespan == 8
    assert g.simulate({"child": 7, "memset": 1}).makespan == 8
    assert g.simulate({"c/scale": 3, "memset": 1}).makespan == 4


def test_host_nodes_overlap_without_limit_unless_one_is_given() -> None:
    g = Graph("g")
    for _ in range(3):
        g.host(print)
    assert g.simulate({"host": 2}).makespan == 2
    one: Any = np.int64(1)
    assert g.simulate({"host": 2}, {"host": 1}).makespan == g.simulate({"host": 2}, {"host": one}).makespan == 6


@pytest.mark.parametrize(
    ("durations", "engines", "said"),
    [
        ({"H2D": 1, "kernel": 1}, None, "node 'D2H0' (memcpy) has no duration"),
        ({**UNIT, "K9": 1}, None, "'K9'"),
        ({**UNIT, "K0": -1}, None, "durations['K0']"),
        ({**UNIT, "K0": float("nan")}, None, "durations['K0']"),
        ({**UNIT, "K0": "1"}, None, "durations['K0']"),
        ({**UNIT, "K0": b"1"}, None, "durations['K0']"),
        (UNIT, {"gpu": 1}, "no engine 'gpu'"),
        (UNIT, {"kernel": 0}, "engines['kernel']"),
        (UNIT, {"kernel": True}, "engines['kernel']"),
        (3, None, "mapping or a function"),
    ],
)
def test_simulate_names_what_it_cannot_use(durations: object, engines: object, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        simulate(pipeline(1).workflow(), durations, engines)  # type: ignore[arg-type]  # the mistakes under test
    assert said in str(caught.value)


def test_simulate_names_the_cycle() -> None:
    g = pipeline(1)
    g.order("D2H0", "H2D0")
    with pytest.raises(DeclarationError, match="H2D0 -> K0 -> D2H0 -> H2D0"):
        g.simulate(UNIT)


@given(st.data())
def test_schedule_respects_edges_and_engines(data: st.DataObject) -> None:
    scale = module()["scale"]
    g = Graph("random", infer=False)
    x = g.device_array("x", shape=4, dtype="float32")
    h = g.host_array("h", shape=4, dtype="float32")
    names: list[str] = []
    for i in range(data.draw(st.integers(1, 25))):
        after = data.draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
        kind = data.draw(st.sampled_from(["kernel", "H2D", "D2H", "empty"]))
        name = f"n{i}"
        if kind == "kernel":
            g.kernel(scale, 1, 4, args=(x, 1.0, 4), name=name, after=after)
        elif kind == "empty":
            g.empty(name=name, after=after)
        else:
            g.memcpy(*((x, h) if kind == "H2D" else (h, x)), name=name, after=after)
        names.append(name)
    durations = {name: data.draw(st.integers(0, 5)) for name in names}
    limits = {"kernel": data.draw(st.integers(1, 3))}
    timeline = g.simulate(durations, limits)
    assert timeline == g.simulate(durations, limits)
    for span, deps in zip(timeline.spans, timeline.deps):
        assert span.duration == durations[span.name]
        assert all(timeline.spans[d].stop <= span.start for d in deps)
    for engine, count in {"H2D": 1, "D2H": 1, **limits}.items():
        busy = [s for s in timeline if s.engine == engine and s.duration]
        for moment in {s.start for s in busy}:
            assert sum(s.start <= moment < s.stop for s in busy) <= count
    assert timeline.bound <= timeline.makespan <= timeline.sequential


def test_measured_timeline_without_dependencies_still_has_numbers() -> None:
    spans = (Span("a", 10.0, 14.0, "H2D"), Span("b", 12.0, 20.0, "kernel"), Span("c", 13.0, 15.0, "kernel"))
    timeline = Timeline("measured", "us", spans)
    assert timeline.makespan == 10
    assert timeline.sequential == 14
    assert timeline.utilisation == {"H2D": 0.4, "kernel": 0.8}
    assert "14 us" in str(timeline)
    assert timeline.gantt(by="engine").count("\n") == 3  # the two kernels overlap and take a row each


def test_gaps_that_cost_more_than_overlap_saves_are_called_so() -> None:
    timeline = Timeline("gaps", "us", (Span("a", 0.0, 1.0), Span("b", 5.0, 7.0)), ((), (0,)))
    assert "gaps cost 4 us more than overlap saves, of 0 us possible" in str(timeline)
    said = "2 nodes in 7 us, in sequence without gaps 3 us: no speedup"
    assert str(timeline).startswith(f"timeline of 'gaps': {said}\n")
    assert summary(timeline)[0] == said
    assert f'"times":"{said}"' in page_of(timeline)
    assert timeline.render().endswith("Total: 7 us\nSpeedup: none, because of the gaps between nodes")


def test_empty_timeline_prints() -> None:
    timeline = Graph("nothing").simulate({})
    assert timeline.speedup == 1.0
    assert "0 nodes" in str(timeline)
    assert timeline.render().startswith("=== nothing ===")
    assert timeline.critical_path == ()


def test_render_shows_durations_that_are_not_whole() -> None:
    text = pipeline(2).simulate({"H2D": 1.25, "kernel": 2, "D2H": 0.5}).render()
    assert "t=1.25: [K0  ] [H2D1]" in text
    assert "Total: 7.5 time units" in text


def test_gantt_bars_are_as_wide_as_time_is_long() -> None:
    rows = pipeline(4).simulate(UNIT).gantt(width=60).splitlines()
    bars = [re.search("│(.*)│", row) for row in rows[:-1]]
    assert [bar.group(1).count("█") for bar in bars if bar] == [10] * 12
    assert bars[0] is not None
    assert bars[0].group(1).startswith("█")


@pytest.mark.parametrize("wrong", [{"width": -5}, {"width": 2.5}, {"width": 0}, {"rows": 0}, {"rows": True}])
def test_gantt_refuses_what_is_no_number_of_characters_or_rows(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(DeclarationError, match=f"gantt: {name} is an int from 1"):
        pipeline(2).simulate(UNIT).gantt(**wrong)


@pytest.mark.parametrize(("each", "shown"), [(1e-6, "3e-06"), (0.0005, "0.002"), (1e300, "3e+300"), (1e6, "3000000"), (0, "0")])
def test_very_short_and_very_long_times_are_printed_with_their_exponent(each: float, shown: str) -> None:
    g = Graph("line")
    for i in range(3):
        g.host(print, args=(), name=f"n{i}", after=[f"n{k}" for k in range(i)])
    assert f": 3 nodes in {shown} time units" in str(g.simulate({"host": each}))


def test_gantt_counts_the_rows_that_it_leaves_out() -> None:
    text = pipeline(20).simulate(UNIT).gantt(rows=10)
    assert "... and 50 more rows" in text


def test_to_json_of_a_timeline_has_one_span_a_line() -> None:
    timeline = pipeline(2).simulate(UNIT)
    text = timeline.to_json()
    data = json.loads(text)
    assert data["makespan"] == 4
    assert data["spans"][1]["after"] == ["H2D0"]
    assert sum('"name"' in line for line in text.splitlines()) == 6


def test_unknown_span_is_named() -> None:
    with pytest.raises(DeclarationError, match="no node 'K7'"):
        pipeline(1).simulate(UNIT)["K7"]


def test_every_kind_of_node_can_be_simulated() -> None:
    kinds = dict.fromkeys(["kernel", "memcpy", "memset", "host", "captured", "eager", "conditional", "collective"], 1.0)
    timeline = everything().simulate(kinds)
    assert len(timeline) == len(everything().nodes)
    assert np.isfinite(timeline.makespan)


# -- segments ----------------------------------------------------------------------------------------------------------


def nothing(*_: object) -> None:
    pass


def two_steps(kind: str = "array") -> Graph:
    """Two chains, each a fill, a step that waits, and a fill; and a fill beside them.

    The steps wait because they are given a host array, or a parameter that stands for host memory: its default is an array's
    ``"name"``, the array as ``"declared"`` or ``"numpy"``'s, or it is ``"copied"``.
    """
    g = Graph("two_steps")
    for name in "ab":
        x = g.device_array(f"x_{name}", shape=64, dtype="float32")
        h: Any = g.host_array(f"h_{name}", shape=64, dtype="float32")
        if kind != "array":
            default = {"name": h.name, "declared": h, "numpy": np.zeros(64, "float32"), "copied": None}[kind]
            h = g.param(f"p_{name}", "float32", default, shape=64, copy=kind == "copied")
        g.memset(x, 1, name=f"first_{name}")
        g.eager(nothing, (h,), reads=[x], writes=[x], name=f"step_{name}")
        g.memset(x, 2, name=f"last_{name}")
    g.memset(g.device_array("y", shape=64, dtype="float32"), 0, name="beside")
    return g


@pytest.mark.parametrize("kind", ["array", "name", "declared", "numpy", "copied"])
def test_steps_of_the_host_follow_each_other_and_graphs_behind_them_are_launched_later(kind: str) -> None:
    t = two_steps(kind).simulate({"memset": 1, "eager": 5}, {"memset": 4})
    steps = sorted((t["step_a"], t["step_b"]), key=lambda span: span.start)
    assert [span.engine for span in steps] == ["host", "host"]
    assert [(span.start, span.stop) for span in steps] == [(1, 6), (6, 11)]
    assert t["beside"].start == 0  # waits for no step
    for name in "ab":
        assert t[f"last_{name}"].start == t[f"step_{name}"].stop
    assert t.makespan == 12


def test_steps_that_are_given_no_host_memory_do_not_hold_the_thread_up() -> None:
    g = Graph("device_steps")
    for name in "ab":
        x = g.device_array(f"x_{name}", shape=64, dtype="float32")
        g.memset(x, 1, name=f"first_{name}")
        g.eager(nothing, (x,), name=f"step_{name}")
    t = g.simulate({"memset": 1, "eager": 5}, {"memset": 4})
    assert [(t[f"step_{name}"].start, t[f"step_{name}"].stop) for name in "ab"] == [(1, 6), (1, 6)]


def test_a_loop_that_the_host_decides_holds_up_what_is_launched_behind_it() -> None:
    body = Graph("body")
    body.memset(body.device_array("again", shape=1, dtype="int32"), 0)
    g = Graph("loop")
    again = g.device_array("again", shape=1, dtype="int32")
    x = g.device_array("x", shape=64, dtype="float32")
    g.memset(again, 1, name="begin")
    g.conditional("while", again, body, {"again": again}, decide="host", name="loop")
    h = g.host_array("h", shape=64, dtype="float32")
    g.eager(nothing, (h,), reads=[x], writes=[x], name="step")
    t = g.simulate({"memset": 1, "conditional": 7, "eager": 5})
    assert t["loop"].engine == t["step"].engine == "host"
    spans = sorted((t["loop"], t["step"]), key=lambda span: span.start)
    assert spans[1].start == spans[0].stop


def test_a_graph_begins_when_the_graphs_before_it_have_ended() -> None:
    g = Graph("barrier")
    x, y = (g.device_array(name, shape=64, dtype="float32") for name in "xy")
    h = g.host_array("h", shape=64, dtype="float32")
    g.memset(x, 1, name="short")
    g.memset(x[:32], 2, name="long")
    g.memcpy(y, x, name="beside")  # of a segment of its own: the step does not follow it
    g.eager(nothing, (h,), reads=[x[32:]], writes=[x[32:]], name="step", after=["long"])
    t = g.simulate({"short": 1, "long": 8, "D2D": 1, "eager": 2}, {"memset": 4, "D2D": 2})
    assert t["short"].segment == t["long"].segment == 1
    assert t["step"].start >= 9
    assert all(t.spans[d].stop <= span.start for span, sources in zip(t.spans, t.deps) for d in sources)


@given(data=st.data())
def test_simulated_segments_keep_their_order_and_the_thread_does_one_thing(data: st.DataObject) -> None:
    g = Graph("random")
    x = [g.device_array(f"x{i}", shape=4, dtype="float32") for i in range(3)]
    h = g.host_array("h", shape=4, dtype="float32")
    for n in range(data.draw(st.integers(1, 10))):
        read, write = data.draw(st.sampled_from(x)), data.draw(st.sampled_from(x))
        if data.draw(st.booleans()):
            g.eager(nothing, (h,), reads=[read], writes=[write], name=f"n{n}")
        elif read is write:
            g.memset(write, 0, name=f"n{n}")
        else:
            g.memcpy(write, read, name=f"n{n}")
    lengths = {f"n{n}": data.draw(st.integers(1, 5)) for n in range(len(g))}
    t = g.simulate(lengths, {"memset": 3, "D2D": 3})
    workflow = g.workflow()
    for node, sources in zip(workflow.nodes, workflow.predecessors):
        assert all(t[workflow.nodes[d].name].stop <= t[node.name].start for d in sources)
    steps = sorted((s for s in t if s.kind == "eager"), key=lambda s: s.start)
    assert all(a.stop <= b.start for a, b in pairwise(steps))
    assert t.makespan >= t.bound


def test_rows_by_segment_are_graphs_and_what_the_host_does_between_them() -> None:
    t = two_steps().simulate({"memset": 1, "eager": 5}, {"memset": 4})
    labels = {row.label for row in t.rows("segment")}
    plan = two_steps().plan(target="cpu")
    assert plan.cut is not None
    numbers = {plan.steps[i].name: number for i, number in plan.cut.segment_of.items()}
    assert {span.name: span.segment for span in t if span.segment} == numbers
    assert labels == {*(f"segment {n}" for n in numbers.values()), "between graphs"}
    data = {span["name"]: span for span in json.loads(t.to_json())["spans"]}
    assert data["first_a"]["segment"] == numbers["first_a"]
    assert "segment" not in data["step_a"]
    assert "segment" in t.gantt(by="segment")


def test_a_child_with_a_duration_of_its_own_is_one_span_though_the_host_cuts_it() -> None:
    g = Graph("outer")
    g.child(two_steps(), name="both")
    assert [(span.name, span.duration) for span in g.simulate({"both": 3})] == [("both", 3)]
    assert {span.segment > 0 for span in g.simulate({"memset": 1, "eager": 5}) if span.kind == "memset"} == {True}


# -- several nodes in one launch --------------------------------------------------------------------------------------------

BATCH, CHAIN = "batch of 8: set_0 … set_7", "chain of 3: step_0 … step_2"


def test_nodes_that_share_a_launch_have_one_span() -> None:
    timeline = batched().simulate({"kernel": 2, "D2H": 1}, batch=True)
    assert [(s.name, s.kind, s.start, s.stop) for s in timeline] == [
        (BATCH, "batch", 0, 2),
        ("out", "memcpy", 2, 3),
        (CHAIN, "chain", 2, 8),
    ]
    assert timeline.deps == ((), (0,), (0,))
    assert timeline["set_5"] is timeline[BATCH]
    assert timeline["set_5"].members == timeline["set_5"].nodes == tuple(f"set_{i}" for i in range(8))
    assert timeline["step_2"] is timeline[CHAIN]
    assert (timeline["out"].members, timeline["out"].nodes) == ((), ("out",))
    with pytest.raises(DeclarationError, match=r"its nodes are 'set_0', 'set_1', .* and 2 more$"):
        timeline["set_8"]


def test_nodes_that_share_a_launch_are_counted_and_printed_once() -> None:
    timeline = batched().simulate({"kernel": 2, "D2H": 1}, batch=True)
    assert timeline.describe_nodes() == "12 nodes (8 in a batch, 3 in a chain)"
    lines = str(timeline).splitlines()
    assert lines[0].startswith("timeline of 'batched': 12 nodes (8 in a batch, 3 in a chain) in 8 time units,")
    assert f"{BATCH} -> {CHAIN}" in lines[1]
    assert [line.partition(" │")[0].rstrip() for line in lines[3:-1]] == [BATCH, "out", CHAIN]
    assert f"t=2: [{CHAIN}" in timeline.render()
    two = batched(9, 2)
    two.kernel(module()["fill<int>"], 1, 32, (two.arrays["x8"], 1), name="last")
    assert two.simulate({"kernel": 1, "D2H": 1}, batch=True)["step_1"].name == "chain of 2: step_0, step_1"


def test_the_time_of_a_launch_comes_from_its_nodes_or_is_given_by_its_name() -> None:
    times = {"kernel": 2, "set_3": 5, "step_1": 7, "D2H": 1}
    timeline = batched().simulate(times, batch=True)
    assert (timeline[BATCH].duration, timeline[CHAIN].duration) == (5, 11)
    timeline = batched().simulate({BATCH: 3, CHAIN: 4, "D2H": 1}, batch=True)  # which no node needs a time for then
    assert (timeline[BATCH].duration, timeline[CHAIN].duration, timeline.makespan) == (3, 4, 7)
    with pytest.raises(DeclarationError, match="neither a node"):
        batched().simulate({BATCH: 3, "kernel": 4, "D2H": 1})


def test_nodes_share_a_launch_where_they_do_on_the_target() -> None:
    times = {"kernel": 1, "D2H": 1}
    assert {span.kind for span in batched().simulate(times)} == {"kernel", "memcpy"}
    many = batched(512).simulate(times, target="nvidia:sm_90")
    assert len(many["set_0"].members) == 512
    assert {span.kind for span in batched(512).simulate(times, target="nvidia:sm_90", batch=False)} == {"kernel", "memcpy"}
    assert {span.kind for span in batched(512).simulate(times, target="amd:gfx942")} == {"kernel", "memcpy"}
    with pytest.raises(DeclarationError, match="batch is 'auto', True or False"):
        batched().simulate(times, batch="yes")  # type: ignore[arg-type]  # the mistake under test


def test_a_child_that_takes_a_time_of_its_own_has_no_part_in_launches() -> None:
    g = Graph("outer")
    x = [g.device_array(f"y{i}", shape=32, dtype="int32") for i in range(4)]
    inside = Graph("inside")
    (y,) = (inside.device_array("y", shape=32, dtype="int32"),)
    t = inside.alloc("t", shape=32, dtype="int32")  # its nodes are put in its place
    inside.memset(t, 0)
    inside.free(t)
    fill = module()["fill<int>"]
    inside.kernel(fill, 1, 32, (y, 1), name="fill")
    g.child(inside, bind={"y": x[3]}, name="c")
    for i in range(3):
        g.kernel(fill, 1, 32, (x[i], i), name=f"fill_{i}")
    names = {"fill_0", "fill_1", "fill_2", "c/fill"}
    assert names == {*g.simulate({"kernel": 1, "memset": 1}, batch=True)["fill_0"].members}
    assert {span.name for span in g.simulate({"kernel": 1, "c": 4}, batch=True)} == {"fill_0", "fill_1", "fill_2", "c"}


def test_launches_do_not_reach_across_what_the_host_does_between_graphs() -> None:
    g = Graph("cut")
    x = [g.device_array(f"x{i}", shape=32, dtype="int32") for i in range(10)]
    fill = module()["fill<int>"]
    for i in range(5):
        g.kernel(fill, 1, 32, (x[i], i), name=f"before_{i}")
    g.eager(print, (*x[:5],), name="step")
    for i in range(5):
        g.kernel(fill, 1, 32, (x[i], i), name=f"behind_{i}")
    timeline = g.simulate({"kernel": 2, "eager": 1}, batch=True)
    assert [(s.name, s.start, s.segment) for s in timeline] == [
        ("batch of 5: before_0 … before_4", 0, 1),
        ("step", 2, 0),
        ("batch of 5: behind_0 … behind_4", 3, 2),
    ]
