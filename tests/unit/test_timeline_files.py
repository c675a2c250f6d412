"""Timelines as files: charts, the page, and traces that hold to the trace-event format."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chromium import CLICK, in_chromium, needs_chromium
from hypothesis import given
from hypothesis import strategies as st
from specimens import batched, everything, pipeline

from hipgraphdsl.drawing.picture import critical_path
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.timeline import files as timelines
from hipgraphdsl.parts.timeline.timeline import By, Span, Timeline
from hipgraphdsl.parts.timeline.trace import events

UNIT = {"H2D": 1, "D2H": 1, "kernel": 1}
HOSTILE = ("</script><script>alert(1)", "$x_{", "<b>&amp;", "@DATA@", "日本", 'a"b\\')
ROWS: tuple[By, ...] = ("engine", "lane", "node")
SVG = "{http://www.w3.org/2000/svg}"

needs_matplotlib = pytest.mark.usefixtures("matplotlib")


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'viz')")


def hostile() -> Timeline:
    spans = tuple(Span(name, float(i), i + 1.5, "kernel", i % 2) for i, name in enumerate(HOSTILE))
    return Timeline('</title>"graph"', "us", spans, ((), *((i,) for i in range(len(HOSTILE) - 1))))


def all_kinds() -> Timeline:
    return everything().simulate(dict.fromkeys(["kernel", "memcpy", "memset", "host", "captured", "eager", "conditional"], 1.3))


def text(timeline: Timeline, extension: str, **options: Any) -> str:
    found = timelines.render(timeline, extension, **options)
    assert isinstance(found, str)
    return found


def trace_of(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    trace: dict[str, Any] = json.loads(found[0])["trace"]
    return trace


# -- rows ----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_rows_hold_every_span_once_and_none_overlap(times: list[tuple[int, int]]) -> None:
    spans = tuple(Span(f"n{i}", float(start), float(start + length)) for i, (start, length) in enumerate(times))
    timeline = Timeline("t", "us", spans)
    rows = timeline.rows("engine")
    assert sorted(i for row in rows for i in row.spans) == list(range(len(spans)))
    for row in rows:
        assert all(spans[a].stop <= spans[b].start for a, b in pairwise(row.spans))
    busiest = max((sum(s.start <= t.start < s.stop for s in spans) for t in spans), default=0)
    assert len(rows) <= max(busiest, 1) + sum(s.duration == 0 for s in spans)


def test_rows_name_what_they_take() -> None:
    with pytest.raises(DeclarationError, match="'engine', 'lane', 'segment' or 'node'"):
        pipeline(1).simulate(UNIT).rows("stream")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("extension", [".html", ".trace.json"])
def test_files_know_segments_and_the_steps_between_them(extension: str) -> None:
    g = Graph("cut")
    x = g.device_array("x", shape=64, dtype="float32")
    g.memset(x, 1, name="first")
    g.eager(print, (x,), name="step")
    g.memset(x, 2, name="last")
    text = timelines.render(g.simulate({"memset": 1, "eager": 2}), extension, by="segment")
    assert isinstance(text, str)
    if extension == ".html":  # which holds the rows of every kind
        assert '"by":"segment"' in text
        assert all(f'["","{name}",0,[' in text for name in ("segment 1", "segment 2", "between graphs", "lane 0"))
    else:
        assert all(f'"args":{{"name":"{name}"}}' in text for name in ("segment 1", "segment 2", "between graphs"))
    assert '"segment":1' in text
    assert '"segment":2' in text


def test_files_name_the_nodes_of_each_launch() -> None:
    times = {"kernel": 2, "D2H": 1}
    timeline = batched(300).simulate(times, batch=True)
    names, title = [f"set_{i}" for i in range(300)], "batch of 300: set_0 … set_299"
    spans = {span["name"]: span for span in json.loads(text(timeline, ".json"))["spans"]}
    assert (spans[title]["kind"], spans[title]["members"], spans["out"]["after"]) == ("batch", names, [title])
    assert "members" not in spans["out"]
    trace = json.loads(text(timeline, ".trace.json"))
    validate(trace)
    said = {event["name"]: event["args"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert (said[title]["kind"], said[title]["members"]) == ("batch", names)
    assert said["chain of 3: step_0 … step_2"]["members"] == ["step_0", "step_1", "step_2"]
    assert "members" not in said["out"]
    page = text(timeline, ".html")
    assert trace_of(page) == json.loads(text(timeline, ".trace.json"))
    assert '"times":"304 nodes (300 in a batch, 3 in a chain) in ' in page
    assert f"[{title}]" in text(timeline, ".txt")
    none = text(batched().simulate(times), ".json") + text(batched().simulate(times), ".trace.json")
    assert "members" not in none


@needs_matplotlib
def test_charts_name_launches_and_count_their_nodes() -> None:
    chart = text(batched().simulate({"kernel": 2, "D2H": 1}, batch=True), ".svg", by="node")
    assert "12 nodes (8 in a batch, 3 in a chain) in 8 time units" in chart
    assert "critical path 8 time units, 2 steps" in chart
    assert chart.count("batch of 8: set_0 … set_7") >= 1
    assert "set_3" not in chart


def test_a_drawing_marks_the_nodes_of_launches_on_the_critical_path() -> None:
    g = batched()
    timeline = g.simulate({"kernel": 2, "D2H": 1}, batch=True)
    assert critical_path(g.workflow(), timeline) == ["set_0", "step_0", "step_1", "step_2"]
    timeline = g.simulate({"kernel": 2, "D2H": 9}, batch=True)
    assert critical_path(g.workflow(), timeline) == ["set_1", "out"]
    assert critical_path(g.workflow(), g.simulate({"kernel": 0, "set_5": 1, "D2H": 0}, batch=True))[0].startswith("set_")


# -- trace ---------------------------------------------------------------------------------------------------------------

# The fields that each phase must have, and may have, by the trace-event format; a field's type is part of it.
NUMBER = (int, float)
FIELDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "M": ({"ph": str, "name": str, "pid": int, "tid": int, "args": dict}, set()),
    "X": ({"ph": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER}, {"args"}),
    "i": ({"ph": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "s": str}, {"args"}),
    "s": ({"ph": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int}, set()),
    "f": ({"ph": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int, "bp": str}, set()),
    "C": ({"ph": str, "name": str, "pid": int, "ts": NUMBER, "args": dict}, set()),
}


def ns(us: float) -> int:
    """Return whole nanoseconds, as readers store times; a time that is none is a fault."""
    found = round(us * 1000)
    assert abs(found - us * 1000) < 1e-3
    return found


def validate(trace: dict[str, Any]) -> None:
    """Assert that every event holds to the format and that they fit together."""
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    found = trace["traceEvents"]
    for event in found:
        needed, allowed = FIELDS[event["ph"]]
        assert needed.keys() <= event.keys() <= needed.keys() | allowed
        for key, kind in needed.items():
            assert isinstance(event[key], kind), (key, event)
            assert not isinstance(event[key], bool)
        if event["ph"] != "M":
            assert event["ts"] >= 0
            ns(event["ts"])
    named = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    sorts = [e["args"]["sort_index"] for e in found if e["name"] == "thread_sort_index"]
    assert len(set(named.values())) == len(named) == len(sorts) == len(set(sorts))
    assert [e["name"] for e in found if e["ph"] == "M"].count("process_name") == 1
    timed = [e for e in found if e["ph"] != "M"]
    assert found[len(found) - len(timed) :] == timed  # names first
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed)
    assert {e["tid"] for e in timed if "tid" in e} <= named.keys()
    slices: dict[int, list[tuple[int, int]]] = {}
    for event in timed:
        if event["ph"] == "X":
            assert ns(event["dur"]) > 0
            slices.setdefault(event["tid"], []).append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
        if event["ph"] == "i":
            assert event["s"] == "t"
    for track in slices.values():  # spans of one track follow each other: none partly covers another
        assert all(stop <= start for (_, stop), (start, _) in pairwise(track))
    starts = {e["id"]: e for e in timed if e["ph"] == "s"}
    ends = {e["id"]: e for e in timed if e["ph"] == "f"}
    assert len(starts) + len(ends) == sum(e["ph"] in "sf" for e in timed)
    assert starts.keys() == ends.keys()
    for number, source in starts.items():
        target = ends[number]
        assert (source["name"], source["cat"]) == (target["name"], target["cat"])
        assert timed.index(source) < timed.index(target)
        assert target["bp"] == "e"
        for end in (source, target):
            assert any(start <= ns(end["ts"]) < stop for start, stop in slices[end["tid"]])
    for event in timed:
        if event["ph"] == "C":
            assert all(isinstance(value, NUMBER) and value >= 0 for value in event["args"].values())
    for name in {e["name"] for e in timed if e["ph"] == "C"}:
        counts = [e for e in timed if e["ph"] == "C" and e["name"] == name]
        assert len({e["ts"] for e in counts}) == len(counts)
        assert set(counts[-1]["args"].values()) == {0}


@pytest.mark.parametrize("by", ROWS)
@pytest.mark.parametrize("make", [lambda: pipeline(4).simulate(UNIT), all_kinds, hostile, lambda: Graph("none").simulate({})])
def test_every_event_of_a_trace_holds_to_the_format(make: Any, by: By) -> None:
    validate(json.loads(text(make(), ".trace.json", by=by)))


times = st.floats(0, 1000, allow_nan=False)


@given(st.lists(st.tuples(times, times, st.sampled_from(["H2D", "kernel", ""]), st.integers(0, 3)), max_size=25), st.data())
def test_any_timeline_is_a_valid_trace(parts: list[tuple[float, float, str, int]], data: st.DataObject) -> None:
    spans = tuple(Span(f"n{i}", start, start + length, engine, lane) for i, (start, length, engine, lane) in enumerate(parts))
    deps = tuple(tuple(sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else () for i in range(len(spans)))
    timeline = Timeline("any", data.draw(st.sampled_from(["us", "units"])), spans, deps)
    for by in ROWS:
        validate({"displayTimeUnit": "ns", "otherData": {}, "traceEvents": events(timeline, by=by)})


def test_a_trace_has_a_track_for_each_engine_and_one_for_each_lane_on_demand() -> None:
    timeline = pipeline(4).simulate(UNIT, {"kernel": 2})

    def names(by: By) -> list[str]:
        return [e["args"]["name"] for e in events(timeline, by=by) if e["name"] == "thread_name"]

    assert names("engine") == ["H2D", "kernel", "D2H"]
    assert names("lane") == ["lane 0", "lane 1", "lane 2", "lane 3"]


def test_a_trace_holds_each_node_with_its_time_in_microseconds() -> None:
    copy = Span("a", 5.0, 7.5, "H2D", 0, "memcpy", 5000)
    spans = (copy, Span("b", 7.5, 7.5, "", 1, "record"), Span("c", 7.5, 9.0, "kernel", 1))
    timeline = Timeline("t", "us", spans, ((), (0,), (1,)))
    found = {e["name"]: e for e in events(timeline) if e["ph"] in "Xi"}
    assert (found["a"]["ts"], found["a"]["dur"]) == (0, 2.5)
    assert found["b"]["ph"] == "i"
    assert found["c"]["args"]["after"] == ["b"]
    arrows = [e for e in events(timeline) if e["ph"] in "sf"]
    assert [(e["ph"], e["tid"] == found["a"]["tid"]) for e in arrows] == [("s", True), ("f", False)]  # past b, to c
    rates = [e["args"]["H2D"] for e in events(timeline) if e["ph"] == "C" and e["name"] == "GB/s copied"]
    assert rates == [2.0, 0.0]


def test_units_below_a_nanosecond_are_stretched() -> None:
    trace = json.loads(text(pipeline(2).simulate({"H2D": 2e-6, "D2H": 1e-6, "kernel": 3e-6}), ".trace.json"))
    assert trace["otherData"]["us_per_unit"] == 10**6
    assert sorted({e["dur"] for e in trace["traceEvents"] if e["ph"] == "X"}) == [1, 2, 3]


@pytest.mark.parametrize("least", [5e-324, 1e-300, 1e300])
def test_times_of_any_size_have_a_trace_and_a_page(least: float) -> None:
    timeline = pipeline(2).simulate({"H2D": least, "D2H": least, "kernel": least})
    for extension in (".trace.json", ".json", ".html"):
        assert "H2D" in text(timeline, extension)


def test_spans_that_touch_after_rounding_share_a_track() -> None:
    timeline = pipeline(40).simulate({"H2D": 0.1, "D2H": 0.3, "kernel": 0.7})
    assert Counter(e["name"] for e in events(timeline) if e["ph"] == "M")["thread_name"] == 3
    validate({"displayTimeUnit": "ns", "otherData": {}, "traceEvents": events(timeline)})


# -- charts --------------------------------------------------------------------------------------------------------------


@needs_matplotlib
@pytest.mark.parametrize("by", ROWS)
@pytest.mark.parametrize("make", [lambda: pipeline(4).simulate(UNIT), all_kinds, hostile, lambda: Graph("none").simulate({})])
def test_charts_are_drawn_of_every_timeline(make: Any, by: By) -> None:
    timeline = make()
    root = ET.fromstring(text(timeline, ".svg", by=by, critical=False))
    assert root.tag == f"{SVG}svg"
    found = timelines.render(timeline, ".png", by=by, dpi=50)
    assert isinstance(found, bytes)
    assert found.startswith(b"\x89PNG\r\n\x1a\n")


def words(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text")]


@needs_matplotlib
def test_a_chart_says_names_use_and_overlap() -> None:
    timeline = pipeline(4).simulate({"H2D": 1, "kernel": 2, "D2H": 1}, {"copy": 1})
    said = words(text(timeline, ".svg"))
    assert {span.name for span in timeline} <= set(said)
    assert {"copy 80% used", "kernel 80% used", "10 time units"} <= set(said)
    assert any(line.startswith("overlap saves 6 of 6 time units possible (100%); critical path 4 time units") for line in said)
    assert {"in sequence", "this launch", "at best"} <= set(said)


@needs_matplotlib
def test_a_chart_says_how_much_each_of_many_engines_is_used() -> None:
    spans = tuple(Span(f"n{i}", 0.0, 1.0, f"kernel@{i}") for i in range(40))
    picture = ET.fromstring(text(Timeline("many", "us", spans), ".svg"))
    said = [e for e in picture.iter(f"{SVG}text") if "used" in "".join(e.itertext())]
    assert ["".join(e.itertext()) for e in said] == [f"kernel@{i} 100% used" for i in range(40)]
    at = [re.findall(r"translate\(([\d.]+) ([\d.]+)\)", e.get("transform", "")) or [(e.get("x"), e.get("y"))] for e in said]
    assert len({y for [(_, y)] in at}) > 3
    assert max(float(x) for [(x, _)] in at) < 792 - 90  # points of the whole, less a text


@needs_matplotlib
def test_a_chart_outlines_the_critical_path_on_demand() -> None:
    timeline = pipeline(4).simulate(UNIT)
    assert len(re.findall("<use[^>]*stroke: #111111", text(timeline, ".svg"))) == len(timeline.critical_path) == 3
    assert "stroke: #111111" not in text(timeline, ".svg", critical=False)


@needs_matplotlib
def test_a_chart_is_the_same_each_time() -> None:
    assert text(all_kinds(), ".svg") == text(all_kinds(), ".svg")


@needs_matplotlib
def test_names_are_never_formulas_in_a_chart() -> None:
    assert "$x_{" in words(text(hostile(), ".svg"))


@needs_matplotlib
def test_a_notebook_shows_short_timelines_as_a_drawing() -> None:
    bundle = pipeline(4).simulate(UNIT)._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    root = ET.fromstring(bundle["image/svg+xml"])
    assert root.get("role") == "img"
    assert "speedup 2.00x" in str(root.get("aria-label"))
    assert "speedup 2.00x" in bundle["text/plain"]
    assert "image/svg+xml" not in pipeline(200).simulate(UNIT)._repr_mimebundle_()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    timeline = pipeline(1).simulate(UNIT)
    for extension in (".svg", ".png"):
        with pytest.raises(DeclarationError, match="pip install matplotlib"):
            timeline.export(tmp_path / f"t{extension}")
    assert list(timeline._repr_mimebundle_()) == ["text/plain"]
    timeline.export(tmp_path / "t.html")
    assert [path.name for path in tmp_path.iterdir()] == ["t.html"]


# -- files ---------------------------------------------------------------------------------------------------------------


def test_the_longest_extension_names_the_format(tmp_path: Path) -> None:
    timeline = pipeline(2).simulate(UNIT)
    for name, key in (("t.json", "spans"), ("t.trace.json", "traceEvents"), ("T.TRACE.JSON", "traceEvents")):
        timeline.export(tmp_path / name)
        assert key in json.loads((tmp_path / name).read_text())
    timeline.export(tmp_path / "t.txt", title="Two batches")
    assert (tmp_path / "t.txt").read_text() == timeline.render("Two batches") + "\n"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("t.pdf", {}, "cannot be written as '.pdf'"),
        ("t", {}, "needs an extension"),
        ("t.html", {"dpi": 3}, "no option 'dpi'"),
        ("t.png", {"dpi": 0}, r"dpi is a number from 1 to 1000 \(got 0\)"),
        ("t.png", {"dpi": "fine"}, r"dpi is a number from 1 to 1000 \(got 'fine'\)"),
        ("t.svg", {"title": 5}, r"title is text \(got 5\)"),
        ("t.svg", {"critical": 5}, r"critical is True or False \(got 5\)"),
        ("t.html", {"by": "stream"}, "by is 'engine', 'lane', 'segment' or 'node'"),
        ("t.trace.json", {"by": "stream"}, "by is 'engine', 'lane', 'segment' or 'node'"),
    ],
)
def test_export_says_what_it_cannot_write(name: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=said):
        pipeline(1).simulate(UNIT).export(tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


# -- page ----------------------------------------------------------------------------------------------------------------


def test_the_page_holds_the_trace_and_asks_for_nothing_from_a_network() -> None:
    page = text(all_kinds(), ".html")
    validate(trace_of(page))
    assert re.findall(r"(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttp", page.split('id="data"')[0]) == []
    assert "default-src 'none'" in page


def test_hostile_names_cannot_break_out_of_the_page() -> None:
    page = text(hostile(), ".html")
    assert page.count("</script>") == text(all_kinds(), ".html").count("</script>")
    assert "<script>alert" not in page
    assert [e["name"] for e in trace_of(page)["traceEvents"] if e["ph"] == "X"] == list(HOSTILE)


LOOK = """
const canvas = document.getElementById("canvas");
const ratio = canvas.width / canvas.getBoundingClientRect().width, box = canvas.getBoundingClientRect();
page.draw();
const seen = page.spans.map((s, i) => {
  const [x, y] = page.screen(i);
  const at = [x - box.left - 12, y - box.top - 7].map((v) => Math.round(v * ratio));  // beside the name
  return [...canvas.getContext("2d").getImageData(...at, 1, 1).data].slice(0, 3);
});
const colours = Object.fromEntries(page.spans.map((s, i) => [s.name, seen[i]]));
document.title = JSON.stringify({drawn: page.drawn, colours, rows: page.rows().map((r) => r.label)});
"""


@needs_chromium
def test_chromium_draws_the_trace(tmp_path: Path) -> None:
    seen = in_chromium(text(pipeline(4).simulate(UNIT), ".html", critical=False), LOOK, tmp_path)
    found = re.search(r"<title>(.*?)</title>", seen)
    assert found
    data = json.loads(found[1])
    assert data["drawn"] == 12
    assert data["rows"] == ["H2D", "kernel", "D2H"]
    engines = {"H2D": "#f6c667", "K": "#8fc1e8", "D2H": "#f0a06a"}
    found_at = {name: "#" + bytes(colour).hex() for name, colour in data["colours"].items()}
    assert found_at == {f"{stage}{i}": colour for i in range(4) for stage, colour in engines.items()}


@needs_chromium
def test_a_click_in_chromium_shows_the_node(tmp_path: Path) -> None:
    click = CLICK.replace("PLURAL", "spans").replace("NAME", "K137")
    seen = in_chromium(text(pipeline(300).simulate(UNIT), ".html"), click, tmp_path)
    panel = seen[seen.index('id="panel"') :].split("</aside>")[0]
    assert "<h2>K137</h2>" in panel
    assert "<td>start</td><td>138 time units</td>" in panel
    assert "H2D137" in panel
    assert "D2H137" in panel


@needs_chromium
def test_the_page_finds_nodes_in_launches_and_names_them(tmp_path: Path) -> None:
    script = """
const search = document.getElementById("search");
search.value = "set_5"; search.dispatchEvent(new Event("input"));
document.title = document.getElementById("hits").textContent;
search.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
"""
    seen = in_chromium(text(batched().simulate({"kernel": 2, "D2H": 1}, batch=True), ".html"), script, tmp_path)
    assert "<title>set_5 in batch of 8: set_0 … set_7</title>" in seen
    panel = seen[seen.index('id="panel"') :].split("</aside>")[0]
    assert "<h2>batch of 8: set_0 … set_7</h2>" in panel
    assert "<h3>Nodes in it (8)</h3>" in panel
    assert "<li>set_5</li>" in panel


@needs_chromium
def test_chromium_draws_no_more_than_can_be_seen(tmp_path: Path) -> None:
    script = "page.draw(); document.title = `drawn ${page.drawn} of ${page.spans.length}`;"
    seen = in_chromium(text(pipeline(5000).simulate(UNIT), ".html"), script, tmp_path)
    found = re.search(r"<title>drawn (\d+) of 15000</title>", seen)
    assert found
    assert 0 < int(found[1]) < 4000
