"""Timelines: list scheduling, the numbers derived from spans, and the text forms."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specimens import everything, inner, module, pipeline

from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.graph import Graph
from hipgraphdsl.timeline import Span, Timeline, simulate

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
    assert g.simulate({"host": 2}, {"host": 1}).makespan == 6


@pytest.mark.parametrize(
    ("durations", "engines", "said"),
    [
        ({"H2D": 1, "kernel": 1}, None, "node 'D2H0' (memcpy) has no duration"),
        ({**UNIT, "K9": 1}, None, "'K9'"),
        ({**UNIT, "K0": -1}, None, "durations['K0']"),
        ({**UNIT, "K0": float("nan")}, None, "durations['K0']"),
        ({**UNIT, "K0": "1"}, None, "durations['K0']"),
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
    spans = (Span("a", 0.0, 1.0), Span("b", 5.0, 7.0))
    assert "gaps cost 4 us more than overlap saves, of 0 us possible" in str(Timeline("gaps", "us", spans, ((), (0,))))


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
    kinds = dict.fromkeys(["kernel", "memcpy", "memset", "host", "captured", "eager", "conditional"], 1.0)
    timeline = everything().simulate(kinds)
    assert len(timeline) == len(everything().nodes)
    assert np.isfinite(timeline.makespan)
