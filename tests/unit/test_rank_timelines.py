"""Simulations over several ranks: numbers by hand, what holds for any graph, and how the timelines are shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.programs import NAMES, Step, programs
from property.test_ranks import declared, held_steps, possible

import hipgraphdsl as hg
from hipgraphdsl import export
from hipgraphdsl.drawing.picture import draw
from hipgraphdsl.nodes import collective
from hipgraphdsl.nodes.children import ConditionalNode
from hipgraphdsl.parts.ranks.sharing import Between, Layout, Sharing
from hipgraphdsl.parts.ranks.transports.nccl import does
from hipgraphdsl.parts.timeline import files as timelines
from hipgraphdsl.parts.timeline.timeline import RankTimes, Timeline

SOURCE = 'extern "C" __global__ void add(float* x, float a) { x[threadIdx.x] += a; }'
ADD = hg.Module(SOURCE, name="rank_timelines")["add"]
LINK = hg.Link(latency_us=2, gb_s=1)
N = 250  # floats, 1000 bytes: 3 us on the link
TIMES = {"kernel": 5, "D2D": 1, "D2H": 1, "H2D": 1, "H2H": 1, "memset": 1, "host": 1, "eager": 1, "captured": 1}


def handed(size: int = 2) -> hg.Graph:
    """Each device adds, and hands its values to the next one."""
    g = hg.Graph("handed")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(size)]
    for d in range(size):
        g.kernel(ADD, 1, N, (x[d], 1.0), name=f"add_{d}")
        if d + 1 < size:
            g.memcpy(x[d + 1], x[d], name=f"hand_{d}")
    return g


def spans_of(timeline: Timeline) -> dict[str, tuple[float, float]]:
    return {span.name: (span.start, span.stop) for span in timeline}


def test_simulate_of_ranks_sends_between_them() -> None:
    timeline = handed().simulate({"add_0": 5, "add_1": 4}, ranks=2, link=LINK)
    assert spans_of(timeline) == {"add_0": (0, 5), "hand_0": (5, 8), "add_1": (8, 12)}
    assert (timeline.unit, timeline.makespan, timeline.bound) == ("us", 12, 12)
    assert timeline.ranks == (RankTimes(busy=5, communicating=3, waiting=4), RankTimes(busy=4, communicating=3, waiting=5))
    assert timeline.links == {(0, 1): (1, 1000)}
    assert [(span.engine, span.ranks) for span in timeline] == [("kernel@0", (0,)), ("kernel@1", (1,)), ("link@0->1", (0, 1))]


def test_simulated_messages_of_one_direction_follow_each_other() -> None:
    g = hg.Graph("both ways")
    x = [[g.device_array(f"x{k}{d}", shape=N, dtype="float32", device=d) for d in range(2)] for k in range(3)]
    g.memcpy(x[0][1], x[0][0], name="down")
    g.memcpy(x[1][1], x[1][0], name="down again")
    g.memcpy(x[2][0], x[2][1], name="up")
    timeline = g.simulate(TIMES, ranks=2, link=LINK)
    assert spans_of(timeline) == {"down": (0, 3), "down again": (3, 6), "up": (0, 3)}
    assert timeline.links == {(0, 1): (2, 2000), (1, 0): (1, 1000)}


def test_simulated_message_waits_for_the_receiver_too() -> None:
    g = hg.Graph("late")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    g.kernel(ADD, 1, N, (x[1], 1.0), name="late")
    g.memcpy(x[1], x[0], name="hand")
    g.kernel(ADD, 1, N, (x[0], 1.0), name="behind")  # writes what was sent
    assert spans_of(g.simulate(TIMES, ranks=2, link=LINK)) == {"late": (0, 5), "hand": (5, 8), "behind": (8, 13)}


def test_simulated_ranks_do_several_nodes_by_one_launch_each() -> None:
    g = hg.Graph("many")
    x = [g.device_array(f"x{d}", shape=(4, N), dtype="float32", device=d) for d in range(2)]
    for d in range(2):
        for k in range(4):
            g.kernel(ADD, 1, N, (x[d][k], 1.0), name=f"add_{d}{k}")
    g.memcpy(x[1], x[0], name="hand")
    timeline = g.simulate({"kernel": 5}, ranks=2, link=LINK, batch=True)
    assert spans_of(timeline) == {"batch of 4: add_00 … add_03": (0, 5), "batch of 4: add_10 … add_13": (0, 5), "hand": (5, 11)}
    assert [(timeline[f"add_{d}2"].ranks, timeline[f"add_{d}2"].engine) for d in range(2)] == [
        ((0,), "kernel@0"),
        ((1,), "kernel@1"),
    ]


def test_simulated_edge_between_ranks_is_a_message_without_bytes() -> None:
    g = hg.Graph("told")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    g.kernel(ADD, 1, N, (x[0], 1.0), name="first")
    g.kernel(ADD, 1, N, (x[1], 1.0), name="second", after=["first"])
    timeline = g.simulate(TIMES, ranks=2, link=LINK)
    assert spans_of(timeline) == {"first": (0, 5), "first -> second": (5, 7), "second": (7, 12)}
    assert timeline.links == {(0, 1): (1, 0)}


def test_simulate_packs_views_with_gaps_as_compile_does() -> None:
    g = hg.Graph("columns")
    x = [g.device_array(f"x{d}", shape=(N, 2), dtype="float32", device=d) for d in range(2)]
    g.memcpy(x[1][:, :1], x[0][:, 1:], name="column")
    timeline = g.simulate({"D2D": 1}, ranks=2, link=LINK)
    assert spans_of(timeline) == {"column (pack)": (0, 1), "column": (1, 4), "column (unpack)": (4, 5)}


def test_simulate_names_what_each_rank_does_for_itself() -> None:
    g = hg.Graph("own")
    own = g.host_array("own", shape=N, dtype="float32", rank="all")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    g.host(print, args=(own,), name="fill")
    g.memcpy(x[0], own, name="bring_0")
    timeline = g.simulate({"host": 2, "H2D": 1}, {"host": 1}, ranks=2, link=LINK)
    assert spans_of(timeline) == {"fill (rank 0)": (0, 2), "fill (rank 1)": (0, 2), "bring_0": (2, 3)}


def test_simulate_of_ranks_with_several_devices_has_engines_for_each() -> None:
    timeline = handed(4).simulate(TIMES, ranks=[1, 3], link=LINK)
    assert {span.engine for span in timeline} == {"kernel@0", "kernel@1", "kernel@2", "kernel@3", "link@0->1"}
    assert timeline.makespan == 4 * 5 + 3 + 2 * 1  # one message, and two copies inside rank 1
    assert [row.title for row in timeline.rows()] == [
        "rank 0 kernel", "rank 0 to 1", "rank 1 kernel@1", "rank 1 kernel@2", "rank 1 kernel@3", "rank 1 from 0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("does", "nbytes", "size", "wanted"),
    [
        ("all_reduce", 1000, 2, 2 * (2 + 0.5)),  # a ring of two, and a tree would take 2 * 2 + 2
        ("all_reduce", 1000, 8, 2 * 3 * 2 + 2 * 1),  # a tree: three levels up and down
        ("all_reduce", 8_000_000, 8, 2 * 7 * (2 + 1000)),  # a ring
        ("all_reduce", 1000, 9, 2 * 4 * 2 + 2 * 1),
        ("all_gather", 1000, 4, 3 * 3),
        ("reduce_scatter", 1000, 4, 3 * 3),
        ("all_to_all", 1000, 4, 3 * 3),
        ("broadcast", 4000, 4, 3 * 2 + 4),
        ("reduce", 4000, 4, 3 * 2 + 4),
        ("all_reduce", 1000, 1, 0),
    ],
)
def test_link_costs_of_collectives(does: str, nbytes: int, size: int, wanted: float) -> None:
    assert LINK.collective_us(does, nbytes, size) == pytest.approx(wanted)


def test_simulated_collective_begins_when_all_ranks_have_come() -> None:
    g = hg.Graph("step")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(4)]
    for d in range(4):
        g.kernel(ADD, 1, N, (x[d], 1.0), name=f"backward_{d}")
    g.all_reduce(x, "sum", name="gradients")
    for d in range(4):
        g.kernel(ADD, 1, N, (x[d], 1.0), name=f"update_{d}")
    times = {"kernel": 5, "backward_2": 9}
    timeline = g.simulate(times, ranks=4, link=LINK)
    cost = LINK.collective_us("all_reduce", 1000, 4)
    assert cost == 2 * 2 * 2 + 2  # a tree
    assert spans_of(timeline)["gradients"] == (9, 9 + cost)
    assert timeline.makespan == 9 + cost + 5
    assert timeline.ranks[0] == RankTimes(busy=10, communicating=cost, waiting=4)
    assert timeline["gradients"].nbytes == 1000
    assert "1 collective of all ranks, 1000 B of each" in str(timeline)
    assert g.simulate({**times, "gradients": 1}, ranks=4, link=LINK).makespan == 15  # its own name says more than the link
    two = g.simulate({**times, "D2D": 1}, ranks=[2, 2], link=LINK)  # no library between processes of several devices
    assert not any(span.engine == "collective" for span in two)
    assert sum(count for count, _ in two.links.values()) > 0


@st.composite
def ranked(draw: Any) -> tuple[int, hg.Graph]:
    """Return a random graph over so many ranks."""
    size = draw(st.integers(1, 4))
    owners = {name: draw(st.integers(0, size - 1)) for name in NAMES}
    program: list[Step] = possible(draw(programs()), owners)
    order = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4, unique=True))
    return size, declared(program, owners, order)


@given(made=ranked(), seed=st.integers(0, 9))
@settings(deadline=None)
def test_simulated_ranks_take_no_less_than_the_critical_path_and_the_busiest(made: tuple[int, hg.Graph], seed: int) -> None:
    size, g = made
    times = {key: 1 + (seed * 7 + n) % 5 for n, key in enumerate(TIMES)}
    link = hg.Link(latency_us=2, gb_s=1.024)  # 1024 bytes a microsecond: sums of times are exact
    timeline = g.simulate(times, ranks=size, link=link)
    assert len({span.name for span in timeline}) == len(timeline)
    for span, deps in zip(timeline.spans, timeline.deps):
        assert all(timeline.spans[d].stop <= span.start for d in deps)
    assert sum(span.duration for span in timeline.critical_path) <= timeline.bound <= timeline.makespan
    assert all(max(busy, sent) + waiting <= timeline.makespan for busy, sent, waiting in timeline.ranks)
    for ends in timeline.links:
        there = sorted((span.start, span.stop) for span in timeline if span.engine == f"link@{ends[0]}->{ends[1]}")
        assert all(a[1] <= b[0] for a, b in pairwise(there))
    if size == 1:
        alone = g.simulate(times)
        assert [replace(span, ranks=()) for span in timeline] == list(alone)
        assert list(map(set, timeline.deps)) == list(map(set, alone.deps))
        assert timeline.engines == alone.engines


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ranks": 2}, "'hand_0' crosses between ranks; say what joins them"),
        ({"link": LINK}, "say how many there are"),
        ({"ranks": 0, "link": LINK}, "ranks is how many processes there are"),
        ({"ranks": 1 << 70, "link": LINK}, "ranks is how many processes there are"),
        ({"ranks": [2, "1"], "link": LINK}, "ranks is how many processes there are"),
        ({"ranks": 1, "link": LINK}, "the ranks have 1 device together"),
        ({"ranks": 2, "link": 5}, "link is a hipgraphdsl.Link"),
    ],
)
def test_simulate_of_ranks_names_what_it_cannot_use(given: dict[str, Any], said: str) -> None:
    with pytest.raises(hg.DeclarationError, match=said):
        handed().simulate(TIMES, **given)


@pytest.mark.parametrize(
    ("latency_us", "gb_s"), [(-1, 1), (0, 0), (float("nan"), 1), (1, float("inf")), ("1", 1), (True, 1), (10**400, 1)]
)
def test_link_refuses_what_is_no_time_or_rate(latency_us: Any, gb_s: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=r"Link: (latency_us|gb_s) is a finite number"):
        hg.Link(latency_us=latency_us, gb_s=gb_s)


@pytest.mark.parametrize("kind", [np.float32, np.int64, Fraction])
def test_link_takes_real_numbers_of_any_kind(kind: Any) -> None:
    link = hg.Link(latency_us=kind(2), gb_s=kind(4))
    assert link == hg.Link(latency_us=2, gb_s=4)
    assert {type(link.latency_us), type(link.gb_s)} == {float}


def test_link_without_latency_is_possible() -> None:
    assert hg.Link(latency_us=0, gb_s=2.0).message_us(2000) == 1


def turning(mode: Any = "while", inner: hg.Graph | None = None) -> hg.Graph:
    """Rank 0 adds, hands its values to rank 1, which adds too, and judges how it goes on."""
    body, g = hg.Graph("body"), hg.Graph("turning")
    y = [body.device_array(f"y{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    n = body.device_array("n", shape=1, dtype="int32")
    body.kernel(ADD, 1, N, (y[0], 1.0), name="add_0")
    body.memcpy(y[1], y[0], name="hand")
    body.kernel(ADD, 1, N, (y[1], 1.0), name="add_1")
    if inner is not None:
        body.conditional("while", n, inner, bind={"y0": y[0], "y1": y[1], "n": n}, name="inner")
    body.memset(n, 1, name="judge")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    word = g.device_array("word", shape=1, dtype="int32")
    g.conditional(mode, word, body, bind={"y0": x[0], "y1": x[1], "n": word}, name="node")
    g.memcpy(x[0], x[1], name="back")
    return g


TOLD = "node (condition to rank 1)"


def test_simulated_loop_over_ranks_is_expanded_with_what_crosses_in_each_pass() -> None:
    times = {"kernel": 5, "node/0/add_1": 4, "memset": 1, TOLD: 2, f"node/0/{TOLD}": 2}
    timeline = turning().simulate(times, ranks=2, link=LINK, conditions={"node": 2})
    assert spans_of(timeline) == {
        TOLD: (0, 2),
        **{f"node (look 0) (rank {rank})": (2, 2) for rank in range(2)},
        "node/0/add_0 (pass 0)": (2, 7),
        "node/0/hand (pass 0)": (7, 10),
        "node/0/judge (pass 0)": (7, 8),
        f"node/0/{TOLD} (pass 0)": (10, 12),  # behind the other message on this link
        "node/0/add_1 (pass 0)": (10, 14),
        "node (look 1) (rank 0)": (12, 12),
        "node (look 1) (rank 1)": (14, 14),
        "node/0/add_0 (pass 1)": (12, 17),
        "node/0/hand (pass 1)": (17, 20),
        "node/0/judge (pass 1)": (17, 18),
        f"node/0/{TOLD} (pass 1)": (20, 22),
        "node/0/add_1 (pass 1)": (20, 24),
        "node (look 2) (rank 0)": (22, 22),
        "node (look 2) (rank 1)": (24, 24),
        "back": (24, 27),
    }
    assert timeline.links == {(0, 1): (5, 2 * 1000 + 3 * 4), (1, 0): (1, 1000)}
    assert timeline.ranks == (RankTimes(busy=12, communicating=15, waiting=2), RankTimes(busy=8, communicating=15, waiting=8))
    assert [timeline[f"node/0/hand (pass {n})"].nodes for n in (0, 1)] == [("node/0/hand",)] * 2
    none = turning().simulate(times, ranks=2, link=LINK, conditions={"node": 0})
    assert spans_of(none) == {TOLD: (0, 2), **{f"node (look 0) (rank {rank})": (2, 2) for rank in range(2)}, "back": (2, 5)}


def test_simulated_branch_over_ranks_tells_the_condition_once() -> None:
    times = {"kernel": 5, "memset": 1, TOLD: 2, "node/0/hand": 4}
    timeline = turning("if").simulate(times, ranks=2, link=LINK, conditions={"node": True})
    assert spans_of(timeline) == {
        TOLD: (0, 2), "node (rank 0)": (2, 2), "node (rank 1)": (2, 2), "node/0/add_0": (2, 7), "node/0/judge": (7, 8),
        "node/0/hand": (7, 11), "node/0/add_1": (11, 16), "back": (16, 19),
    }  # fmt: skip
    turning("if").simulate(
        times, ranks=2, link=LINK, conditions={"node": False}
    )  # a message that is not sent may have a duration
    one = turning("if").simulate({**TIMES, "node": 7}, ranks=2, link=LINK)
    assert spans_of(one)["node (rank 0)"][1] - spans_of(one)["node (rank 0)"][0] == 7
    assert one.links[0, 1] == (1, 4)


def test_simulated_messages_of_a_loop_in_a_loop_have_both_passes() -> None:
    inner = hg.Graph("inner")
    y = [inner.device_array(f"y{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    inner.memset(inner.device_array("n", shape=1, dtype="int32"), 1, name="judge")
    inner.memcpy(y[0], y[1], name="return")
    conditions = {"node": 2, "node/0/inner": 3}
    timeline = turning(inner=inner).simulate(TIMES, ranks=2, link=LINK, conditions=conditions)
    returned = [span for span in timeline if span.nodes == ("node/0/inner/0/return",)]
    assert [span.name.removeprefix("node/0/inner/0/return ") for span in returned] == [
        f"(pass {n}.{m})" for n in (0, 1) for m in (0, 1, 2)
    ]
    assert all(a.stop <= b.start for a, b in pairwise(returned))
    assert timeline.links[1, 0] == (2 * 3 + 1, 7 * 1000)
    assert timeline.links[0, 1][0] == 1 + 2 * (1 + 1 + 1 + 3)  # the conditions too: before each loop and in each of its passes


@st.composite
def held_ranked(draw: Any) -> tuple[int, hg.Graph, dict[str, int]]:
    """Return a random graph with loops and branches over so many ranks, and what these do."""
    size = draw(st.integers(1, 4))
    owners = {name: draw(st.integers(0, size - 1)) for name in NAMES}
    program: list[Step] = possible(draw(programs()), owners)
    held = draw(held_steps())
    declares = [one for one in held if one.kind != "child" and one.first < len(program)]
    conditions = {f"held_{one.first}": 1 - one.times if one.kind == "switch" else one.times for one in declares}
    return size, declared(program, owners, [], held), conditions


@given(made=held_ranked(), seed=st.integers(0, 9))
@settings(deadline=None)
def test_simulated_loops_over_ranks_send_in_each_pass_what_crosses(made: tuple[int, hg.Graph, dict[str, int]], seed: int) -> None:
    size, g, conditions = made
    times = {key: 1 + (seed * 7 + n) % 5 for n, key in enumerate(TIMES)}
    link = hg.Link(latency_us=2, gb_s=1.024)
    timeline = g.simulate(times, ranks=size, link=link, conditions=conditions)
    assert len({span.name for span in timeline}) == len(timeline)
    for span, deps in zip(timeline.spans, timeline.deps):
        assert all(timeline.spans[d].stop <= span.start for d in deps)
    assert sum(span.duration for span in timeline.critical_path) <= timeline.bound <= timeline.makespan
    sharing = Sharing(g.workflow(), Layout((1,) * size, imagined=True), Between(does) if size > 1 else None)
    sent = Counter((m.source, m.target) for m in sharing.outer_messages if m.together is None)
    for i, bodies in sharing.bodies.items():
        node = sharing.workflow.nodes[i]
        assert isinstance(node, ConditionalNode)
        value = conditions[node.name]
        passes = value if node.mode == "while" else int((value == 0) == (node.mode == "switch"))
        for message in bodies[0].all_messages:
            sent[message.source, message.target] += passes if message.together is None else 0
    assert {ends: count for ends, (count, _) in timeline.links.items()} == +sent
    if size == 1:
        alone = g.simulate(times, conditions=conditions)
        assert [replace(span, ranks=()) for span in timeline] == list(alone)
        assert list(map(set, timeline.deps)) == list(map(set, alone.deps))


def test_drawing_of_ranks_frames_what_each_does() -> None:
    g = hg.Graph("drawn")
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in range(2)]
    for d in range(2):
        g.kernel(ADD, 1, N, (x[d], 1.0), name=f"add_{d}")
    g.memcpy(x[1], x[0], name="hand")
    g.all_reduce(x, name="sum")
    picture = draw(g.workflow(), ranks=2)
    assert {box.name: box.cluster for box in picture.boxes} == {"add_0": "rank0", "add_1": "rank1", "hand": "", "sum": ""}
    assert [cluster.label for cluster in picture.clusters] == ["rank 0 · device 0", "rank 1 · device 1"]
    assert picture.subtitle.endswith("2 ranks, 2 messages")
    for step in range(40):
        g.kernel(ADD, 1, N, (x[step % 2], 1.0), name=f"more_{step}")
    folded = draw(g.workflow(), ranks=[1, 1])
    assert len(folded.boxes) < 20
    assert all(box.cluster == f"rank{int(box.members[0][-1]) % 2}" for box in folded.boxes if box.kind == "kernel")
    with pytest.raises(hg.DeclarationError, match="ranks or lanes"):
        draw(g.workflow(), ranks=2, lanes=True)


def test_timeline_of_ranks_prints_each_rank_and_link() -> None:
    text = str(handed(3).simulate(TIMES, ranks=3, link=LINK))
    assert "  rank 1  5 us           6 us    10 us" in text.splitlines()
    assert "  0 -> 1: 1 message, 1000 B" in text.splitlines()
    assert "  busy: kernel 24%, link 14%" in text.splitlines()
    many = str(handed(20).simulate(TIMES, ranks=20, link=LINK))
    assert "  ... and 4 more ranks" in many
    assert "  ... and 3 more links" in many


def test_timeline_files_of_ranks_have_a_group_for_each() -> None:
    timeline = handed(2).simulate(TIMES, ranks=2, link=LINK)
    data = json.loads(timelines.render(timeline, ".json"))
    assert data["ranks"] == [{"busy": 5.0, "communicating": 3.0, "waiting": 5.0}] * 2
    assert data["links"] == [{"from": 0, "to": 1, "messages": 1, "bytes": 1000}]
    assert [span["ranks"] for span in data["spans"]] == [[0], [1], [0, 1]]
    trace = json.loads(timelines.render(timeline, ".trace.json"))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert list(processes.values()) == ["handed, rank 0", "handed, rank 1"]
    sent = [(e["pid"], e["args"].get("again", False)) for e in trace if e["name"] == "hand_0"]
    assert sent == [(1, False), (2, True)]
    pytest.importorskip("matplotlib")
    svg = str(timelines.render(timeline, ".svg"))
    assert all(f">{text}</text>" in svg for text in ("rank 0", "rank 1", "kernel", "to 1", "from 0"))
    assert svg.count(">hand_0</text>") == 2


def page_data(page: str) -> Any:
    """Return what a page is made from."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


@pytest.mark.parametrize("by", ["engine", "lane", "segment", "node"])
def test_page_has_the_rows_of_the_timeline(by: Any) -> None:
    g = hg.Graph("rows")
    x = [g.device_array(f"x{d}", shape=8, dtype="float32", device=d) for d in range(2)]
    for n in range(3):
        for d in range(2):
            g.memset(x[d], n, name=f"set_{n}_{d}")
        g.memcpy(x[1], x[0], name=f"hand_{n}")
        g.all_reduce(x, name=f"sum_{n}")
    timeline = g.simulate({"memset": 1}, ranks=2, link=hg.Link(latency_us=1, gb_s=1))
    page = timelines.render(timeline, ".html", by=by)
    assert isinstance(page, str)
    data = page_data(page)
    spans = [e["name"] for e in data["trace"]["traceEvents"] if e["ph"] in "Xi" and "again" not in e["args"]]
    rows = [(group, label, number, [spans[i] for i in list_]) for group, label, number, list_ in data["show"]["rows"][by]]
    wanted = timeline.rows(by)
    assert rows == [(row.group, row.label, row.number, [timeline.spans[i].name for i in row.spans]) for row in wanted]
    assert {row.group for row in wanted} == {"rank 0", "rank 1"}
    assert data["show"]["by"] == by


@pytest.mark.parametrize("layout", ["layered", "auto"])
def test_page_of_a_graph_frames_what_each_rank_does(layout: Any) -> None:
    g = hg.Graph("framed")
    x = [g.device_array(f"x{d}", shape=8, dtype="float32", device=d) for d in range(4)]
    for d in range(4):
        g.memset(x[d], d, name=f"set_{d}")
    g.memcpy(x[1], x[0], name="near")  # on one rank
    g.memcpy(x[2], x[1], name="over")
    for d in range(4):
        g.memset(x[d], d, name=f"again_{d}")
    page = export.render(g.workflow(), ".html", ranks=[2, 2], layout=layout)
    assert isinstance(page, str)
    data = page_data(page)
    nodes = {node["name"]: node for node in data["nodes"]}
    frames = {name: node for name, node in nodes.items() if node.get("frame")}
    assert {name: frame["label"] for name, frame in frames.items()} == {
        "rank 0": "rank 0 · devices 0 to 1", "rank 1": "rank 1 · devices 2 to 3"
    }  # fmt: skip
    names = list(nodes)
    inside = {name: names[node["parent"]] for name, node in nodes.items() if node["parent"] >= 0}
    on_first = ["set_0", "set_1", "near", "again_0", "again_1"]
    on_second = ["set_2", "set_3", "again_2", "again_3"]
    assert inside == dict.fromkeys(on_first, "rank 0") | dict.fromkeys(on_second, "rank 1")
    for name, around in inside.items():
        x0, y0, width, height = nodes[name]["box"]
        left, top, wide, high = nodes[around]["box"]
        assert left <= x0
        assert x0 + width <= left + wide
        assert top < y0
        assert y0 + height <= top + high
    first, over, second = (nodes[name]["box"] for name in ("rank 0", "over", "rank 1"))
    assert first[0] + first[2] < over[0]
    assert over[0] + over[2] < second[0]
    boxes = [node["box"] for name, node in nodes.items() if name not in frames]
    for n, (ax, ay, aw, ah) in enumerate(boxes):
        assert not any(ax < bx + bw and bx < ax + aw and ay < by + bh and by < ay + ah for bx, by, bw, bh in boxes[:n])
    assert data["subtitle"].endswith(", 2 ranks, 1 message")
    assert max(box[0] + box[2] for box in (first, second)) <= data["width"]
    with pytest.raises(hg.DeclarationError, match="a drawing frames ranks or lanes"):
        export.render(g.workflow(), ".html", ranks=2, lanes=True)


@pytest.mark.parametrize("extension", [".html", ".mmd"])
def test_drawings_show_a_collective_of_all_ranks_as_one_node(extension: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "_Recipe", None)
    g = hg.Graph("together")
    g.all_reduce([g.device_array(f"x{d}", shape=8, dtype="float32", device=d) for d in range(64)], name="sum")
    assert "sum" in str(export.render(g.workflow(), extension, ranks=64))
