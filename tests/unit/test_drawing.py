"""Drawings: each format renders, no name can break out of one, repetition folds, and the page shows what is clicked."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chromium import CLICK, in_chromium, needs_chromium
from specimens import SOURCE, chain, everything, module, pipeline

from hipgraphdsl.drawing.layout import engine
from hipgraphdsl.drawing.picture import draw
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.export import render
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.nodes.children import ChildGraphNode
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.parts.pages.levels import arrange

HOSTILE = ("<script>alert(1)<!--", '"];evil{label="', "<b>&amp;", "a\\", "%%{init}", "@DATA@", "日本 é")

needs_graphviz = pytest.mark.skipif(engine() is None, reason="no Graphviz: neither the package pygraphviz nor a program dot")
click = CLICK.replace("PLURAL", "nodes")


def hostile() -> Graph:
    scale = Module(SOURCE + "// </script><script>alert(2)</script>")["scale"]
    g = Graph('<script>alert("graph")<!--')
    x = g.device_array("x", shape=64, dtype="float32")
    for name in HOSTILE:
        g.kernel(scale, grid=1, block=64, args=(x, 2.0, 64), name=name)
    return g


def steps(count: int) -> Graph:
    """A step and a copy of its result, again and again, with five fields that take turns."""
    kernels = module()
    g = Graph("steps")
    u = g.device_array("u", shape=(5, 64), dtype="float32")
    out = g.host_array("out", shape=(count, 64), dtype="float32")
    g.memset(u, 0, name="silence")
    for n in range(count):
        a, b, c = (u[(n + k) % 5] for k in range(3))
        g.kernel(kernels["add"], grid=1, block=64, args=(a, b, c), name=f"step_{n}")
        g.memcpy(out[n], a, name=f"out_{n}")
    return g


def page_data(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data


def text(workflow: Workflow, extension: str, **options: Any) -> str:
    result = render(workflow, extension, **options)
    assert isinstance(result, str)
    return result


@pytest.mark.parametrize("extension", [".dot", ".mmd", ".html"])
@pytest.mark.parametrize("make", [pipeline, everything, hostile])
def test_text_formats_name_every_node_of_a_small_graph(extension: str, make: Any) -> None:
    workflow = make().workflow()
    drawn = text(workflow, extension)
    plain = [node.name for node in workflow.nodes if node.name.isidentifier() and not hasattr(node, "bodies")]
    assert [name for name in plain if name not in drawn] == []
    assert len(drawn) > 10 * len(workflow.nodes)


@needs_graphviz
@pytest.mark.parametrize("make", [pipeline, everything, hostile])
def test_an_svg_is_xml_that_holds_each_name_as_text(make: Any) -> None:
    workflow = make().workflow()
    root = ET.fromstring(text(workflow, ".svg", fold=False))
    words = "".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))
    words = words.replace("\xa0", " ")
    assert [node.name for node in workflow.nodes if node.kind == "kernel" and node.name not in words] == []
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


@needs_graphviz
@pytest.mark.parametrize("make", [pipeline, everything, hostile, lambda: Graph('"<&>')])
def test_a_drawing_has_an_alternative_text(make: Any) -> None:
    g = make()
    drawn = text(g.workflow(), ".svg", fold=False) if len(g) == 0 else g._repr_mimebundle_()["image/svg+xml"]
    root = ET.fromstring(drawn)
    assert root.get("role") == "img"
    assert str(root.get("aria-label")).startswith(f"{g.name}: {len(g)} node")


@needs_graphviz
def test_an_svg_shows_backslashes_as_they_are() -> None:
    g = Graph(r"g\L")
    x, y = (g.device_array(name, shape=4, dtype="int32") for name in (r"x\N\\", "y"))
    g.memset(x, 0, name=r"set\G\N")
    inner = Graph(r"inner\G")
    inner.memset(inner.device_array("z", shape=4, dtype="int32"), 1, name="i")
    g.child(inner, name=r"child\N", after=[r"set\G\N"])
    g.memcpy(y, x, name="out\\")
    drawn = ET.fromstring(text(g.workflow(), ".svg", edges="labels"))
    shown = ["".join(element.itertext()).strip() for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for said in (r"g\L", r"set\G\N", r"x\N\\ = 0", r"y ← x\N\\", r"child\N · inner\G", r"RAW x\N\\", "out\\"):
        assert said in [text.replace("\xa0", " ") for text in shown], said
    titles = [value for element in drawn.iter() for key, value in element.attrib.items() if key.endswith("title")]
    assert {r"set\G\N", "i", "out\\"} <= set(titles)


def test_boxes_of_the_page_are_as_wide_as_letters_of_any_script() -> None:
    g = Graph("g")
    g.empty(name="il" * 20)
    g.empty(name="日本" * 20)
    narrow, wide = (node["box"][2] for node in page_data(text(g.workflow(), ".html"))["nodes"])
    assert narrow < 200 < 480 < wide


@needs_graphviz
def test_a_png_is_a_png() -> None:
    drawn = render(pipeline().workflow(), ".png")
    assert isinstance(drawn, bytes)
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")


def test_a_workflow_without_nodes_can_be_drawn() -> None:
    workflow = Graph("nothing").workflow()
    for extension in (".dot", ".mmd", ".html"):
        assert "nothing" in text(workflow, extension)
    assert page_data(text(workflow, ".html"))["nodes"] == []


def test_hostile_names_cannot_end_a_mermaid_label() -> None:
    drawn = text(hostile().workflow(), ".mmd", fold=False)
    assert "<script" not in drawn
    assert '"];evil' not in drawn


@pytest.mark.parametrize(
    ("sources", "targets", "length", "said"),
    [
        (20, 25, 3, ""),  # 500 edges
        (20, 26, 3, "520 edges (500)"),
        (1, 400, 30, ""),
        (0, 900, 100, " characters (50000)"),
        (1, 900, 100, "900 edges (500), "),
    ],
)
def test_mermaid_says_what_it_does_not_draw_by_default(
    sources: int, targets: int, length: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    g = Graph("g")
    first = [g.empty(name=f"s{i}") for i in range(sources)]
    for i in range(targets):
        g.empty(name=f"{i:04d}".ljust(length, "x"), after=first)
    drawn = text(g.workflow(), ".mmd", fold=False)
    chart = "".join(line for line in drawn.splitlines(keepends=True)[3:] if not line.lstrip().startswith("%%"))
    assert (drawn.count("-->") > 500 or len(chart) > 50_000) == bool(said)
    assert said in caplog.text
    assert bool(caplog.text) == bool(said) == ("%% This chart holds more than Mermaid draws by default" in drawn)
    assert bool(said) == ("fold=True" in drawn)


def test_hostile_names_cannot_break_out_of_the_page() -> None:
    page = text(hostile().workflow(), ".html")
    assert page.count("</script>") == text(pipeline().workflow(), ".html").count("</script>")
    assert "<script>alert" not in page
    assert [node["name"] for node in page_data(page)["nodes"]] == list(HOSTILE)


def test_the_page_asks_for_nothing_from_a_network() -> None:
    page = text(everything().workflow(), ".html")
    assert re.findall(r"(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttp", page.split('id="data"')[0]) == []
    assert "default-src 'none'" in page


def test_the_page_holds_every_node_also_those_of_children() -> None:
    def names(workflow: Workflow, prefix: str = "") -> list[str]:
        found = []
        for node in workflow.nodes:
            found.append(prefix + node.name)
            if isinstance(node, ChildGraphNode):
                found += names(node.workflow, f"{prefix}{node.name}/")
            for n, body in enumerate(getattr(node, "bodies", ())):
                found += [f"{prefix}{node.name}/{n}", *names(body, f"{prefix}{node.name}/{n}/")]
        return found

    workflow = everything().workflow()
    data = page_data(text(workflow, ".html"))
    assert [node["name"] for node in data["nodes"]] == names(workflow)
    for node in data["nodes"]:  # what is inside stands inside
        if node["parent"] >= 0:
            (x, y, w, h), (px, py, pw, ph) = node["box"], data["nodes"][node["parent"]]["box"]
            assert px <= x
            assert py <= y
            assert x + w <= px + pw + 1
            assert y + h <= py + ph + 1


def test_the_page_knows_each_edge_and_which_are_implied() -> None:
    workflow = steps(6).workflow()
    data = page_data(text(workflow, ".html", layout="layered"))
    named = {(data["nodes"][s]["name"], data["nodes"][t]["name"]): needed for s, t, _, needed, *_ in data["edges"]}
    assert set(named) == set(workflow.dag.edges)
    assert named["step_0", "step_1"] == 1
    assert named["silence", "step_3"] == 0


def test_640_steps_fold_into_fewer_than_100_boxes() -> None:
    picture = draw(steps(640).workflow())
    assert len(picture.boxes) < 100
    assert sum(len(box.members) for box in picture.boxes) == 1281
    assert max(box.repeats for box in picture.boxes) > 600
    assert len(draw(steps(640).workflow(), fold=False).boxes) == 1281


def test_faults_are_marked_where_they_are() -> None:
    g = Graph("race", infer=False)
    scale = module()["scale"]
    x = g.device_array("x", shape=64, dtype="float32")
    for name in ("one", "two"):
        g.kernel(scale, grid=1, block=64, args=(x, 2.0, 64), name=name)
    picture = draw(g.workflow())
    assert all(box.faults for box in picture.boxes)
    assert any(link.faulty for link in picture.links)
    assert all(node["faults"] for node in page_data(text(g.workflow(), ".html"))["nodes"])


def nested() -> Graph:
    """Two calls of a child that takes two lanes."""
    kernels = module()
    body = Graph("blur")
    x, y, z = (body.device_array(name, shape=64, dtype="float32") for name in "xyz")
    for name, array in (("left", x), ("right", y)):
        body.kernel(kernels["scale"], grid=1, block=64, args=(array, 2.0, 64), name=name)
    body.kernel(kernels["add"], grid=1, block=64, args=(x, y, z), name="sum")
    g = Graph("nested")
    for call in ("first", "second"):
        array = g.device_array(f"{call}_x", shape=64, dtype="float32")
        g.memset(array, 0, name=f"clear_{call}")
        g.child(body, bind={"x": array}, name=call)
    return g


def words(drawn: str, extension: str) -> str:
    """Return what a drawing says, without markup."""
    if extension == ".svg":
        root = ET.fromstring(drawn)
        return "\n".join("".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")).replace("\xa0", " ")
    return drawn


DRAWINGS = [".dot", ".mmd", pytest.param(".svg", marks=needs_graphviz)]


@pytest.mark.parametrize("extension", DRAWINGS)
def test_edges_say_array_and_hazard_on_demand(extension: str) -> None:
    workflow = pipeline().workflow()
    assert "RAW work" not in words(text(workflow, extension), extension)
    assert words(text(workflow, extension, edges="labels"), extension).count("RAW work") == 8


@pytest.mark.parametrize("extension", DRAWINGS)
def test_lanes_are_framed_on_demand_also_those_of_children(extension: str) -> None:
    workflow = nested().workflow()
    assert "lane 0" not in words(text(workflow, extension), extension)
    drawn = words(text(workflow, extension, lanes=True), extension)
    assert drawn.count("lane 0") == drawn.count("lane 1") == 3  # of the graph and of each call of the child


@pytest.mark.parametrize("runtime", ["cpu", "recorder"])
def test_lanes_of_drawings_are_those_that_run(monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    g = Graph("lanes")
    x = g.device_array("x", shape=64, dtype="float32")
    for i in range(40):
        t = g.alloc(f"t{i}", 64, "float32")
        g.memset(t, i, name=f"set{i}")
        g.memcpy(x, t, name=f"get{i}")
        g.free(t)
        g.memset(g.device_array(f"y{i}", shape=64, dtype="float32"), 1, name=f"y{i}")
    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", runtime)
    with g.compile() as exe:
        wanted = {name: step.lane for step in exe.plan.steps for name in step.origin}
        assert len(exe.plan.lanes) > 1
        assert [step.name for step in g.plan().steps] == [step.name for step in exe.plan.steps]
    picture = draw(g.workflow(), lanes=True, fold=False)
    framed = {box.members[0]: int(box.cluster.removeprefix("lane")) for box in picture.boxes if box.cluster}
    assert framed == wanted
    for options in ({}, {"lanes": True}):
        shown = page_data(text(g.workflow(), ".html", **options))["nodes"]
        assert {node["name"]: node["lane"] for node in shown if node["lane"] is not None and node["lane"] >= 0} == wanted


def cut() -> Graph:
    """An eager node between others, and beside it a lane and a loop that the host decides."""
    kernels = module()
    body = Graph("body")
    body.kernel(kernels["scale"], 1, 64, (body.device_array("x", shape=64, dtype="float32"), 2.0, 64), name="inner")
    g = Graph("cut")
    x, y, z = (g.device_array(name, shape=64, dtype="float32") for name in "xyz")
    again = g.device_array("again", shape=1, dtype="int32")
    g.memset(x, 1, name="first")
    g.eager(print, (x,), name="step")
    g.memset(x, 2, name="last")
    g.memset(y, 1, name="beside")
    g.conditional("while", again, body, {"x": z}, decide="host", check_every=8, name="loop")
    g.memset(z, 0, name="after_loop")
    return g


@pytest.mark.parametrize("extension", DRAWINGS)
def test_segments_are_framed_with_the_lanes_and_who_decides_is_said(extension: str) -> None:
    drawn = words(text(cut().workflow(), extension), extension)
    assert "segment" not in drawn
    assert "while again, every 8 passes, by the host: body" in drawn
    drawn = words(text(cut().workflow(), extension, lanes=True), extension)
    assert "4 segments" in drawn
    assert all(f"segment {n}" in drawn for n in (1, 2, 3, 4))


def test_segments_of_drawings_are_those_of_the_plan() -> None:
    g = cut()
    plan = g.plan(target="cpu")
    assert plan.cut is not None
    wanted = {plan.steps[i].name: number for i, number in plan.cut.segment_of.items()}
    frames = {cluster.id: cluster.label for cluster in draw(g.workflow(), lanes=plan).clusters if cluster.kind == "segment"}
    boxes = {box.members[0]: frames.get(box.cluster) for box in draw(g.workflow(), lanes=plan).boxes}
    assert boxes == {**{name: f"segment {number}" for name, number in wanted.items()}, "step": None, "loop/0/inner": None}
    shown = page_data(text(g.workflow(), ".html", lanes=plan))
    assert {node["name"]: node["segment"] for node in shown["nodes"] if "segment" in node} == wanted
    assert shown["lanes"].endswith(", 4 segments")


@pytest.mark.parametrize(("target", "said"), [("cpu", False), ("amd:gfx942", True)])
def test_drawings_with_lanes_say_where_the_host_decides_because_the_device_cannot(target: str, said: bool) -> None:
    g = Graph("loop")
    again = g.device_array("again", shape=1, dtype="int32")
    body = Graph("body")
    body.memset(body.device_array("again", shape=1, dtype="int32"), 0)
    g.conditional("while", again, body, {"again": again}, name="loop")
    assert ("loop · while again: body · by the host" in text(g.workflow(), ".dot", lanes=True, target=target)) is said
    shown = page_data(text(g.workflow(), ".html", target=target))
    assert shown["nodes"][0].get("by_host", False) is said


@needs_graphviz
def test_edges_lead_down_between_lanes_that_wait_for_each_other() -> None:
    scale = module()["scale"]
    g = Graph("crossing")
    x, y = (g.device_array(name, shape=64, dtype="float32") for name in "xy")
    z = g.device_array("z", shape=64, dtype="float32")
    order = (("x0", x, ""), ("z0", z, ""), ("x1", x, "z0"), ("x2", x, ""), ("y0", y, ""), ("y1", y, ""), ("x3", x, "y1"),
             ("y2", y, "x3"), ("x4", x, ""), ("x5", x, ""))  # fmt: skip
    for name, array, after in order:
        g.kernel(scale, grid=1, block=64, args=(array, 2.0, 64), name=name, after=[after] if after else ())
    drawn = text(g.workflow(), ".svg", lanes=True)
    assert drawn.count(">lane ") == 3
    height = {
        name: float(y)
        for name, y in re.findall(r'xlink:title="(\w\d)">\s*<(?:path|polygon)[^>]*>\s*<text[^>]* y="([-\d.]+)"', drawn)
    }
    assert len(height) == len(order)
    assert all(height[source] < height[target] for source, target in g.dag.edges)


@pytest.mark.parametrize("extension", [".dot", ".mmd", ".html"])
@pytest.mark.parametrize(("option", "value"), [("critical", "memset"), ("critical", 5), ("faults", 3), ("faults", "no")])
def test_a_value_that_an_option_does_not_have_is_refused(extension: str, option: str, value: object) -> None:
    with pytest.raises(DeclarationError, match=rf"{option} is True, False.*got {value!r}"):
        render(pipeline().workflow(), extension, **{option: value})


@pytest.mark.parametrize("value", [-1, float("nan"), "1", None])
def test_a_duration_on_the_critical_path_is_a_number_from_0(value: Any) -> None:
    with pytest.raises(DeclarationError, match=rf"critical\['kernel'\] is a time, a finite number from 0 \(got {value!r}\)"):
        draw(pipeline().workflow(), critical={"kernel": value})


@pytest.mark.parametrize("extension", DRAWINGS)
def test_the_critical_path_is_marked_on_demand_also_through_children(extension: str) -> None:
    workflow = nested().workflow()
    mark = {".dot": 'color="#111111"', ".mmd": "stroke:#111111", ".svg": 'stroke="#111111"'}[extension]
    assert mark not in text(workflow, extension)
    assert text(workflow, extension, critical=True).count(mark) >= 2
    timeline = nested().simulate({"kernel": 1, "memset": 1, "second/right": 9})
    picture = draw(workflow, critical=timeline)
    assert [box.members[0] for box in picture.boxes if box.critical] == ["clear_second", "second/right", "second/sum"]
    assert [cluster.label for cluster in picture.clusters if cluster.critical] == ["second · blur"]
    assert sum(link.critical for link in picture.links) == 2  # to the frame, and inside it


@needs_graphviz
@pytest.mark.parametrize("extension", [".dot", ".mmd"])
def test_a_direction_that_is_none_is_refused(extension: str) -> None:
    with pytest.raises(DeclarationError, match=r"direction is 'TB'.* \(got 'UP'\)"):
        render(nested().workflow(), extension, direction="UP")


@pytest.mark.parametrize("options", [{"edges": "labels"}, {"lanes": True}, {"critical": True}])
def test_a_bitmap_changes_with_each_option(options: dict[str, Any]) -> None:
    assert render(nested().workflow(), ".png") != render(nested().workflow(), ".png", **options)


def test_the_page_opens_with_what_is_asked_for() -> None:
    workflow = nested().workflow()
    assert page_data(text(workflow, ".html"))["show"] == {"lanes": False, "critical": False, "edges": "needed"}
    shown = page_data(text(workflow, ".html", lanes=True, critical=True, edges="labels"))
    assert shown["show"] == {"lanes": True, "critical": True, "edges": "labels"}
    lanes = {node["name"]: node["lane"] for node in shown["nodes"]}
    assert lanes["first/left"] != lanes["first/right"]
    with pytest.raises(DeclarationError, match="'needed', 'all' or 'labels'"):
        text(workflow, ".html", edges="some")


@needs_graphviz
def test_copies_are_hardly_wider_than_what_they_say() -> None:
    g = Graph("names")
    x, h = g.device_array("x", shape=(9, 64, 64), dtype="float32"), g.host_array("h", shape=(9, 64, 64), dtype="float32")
    names = ("in", "a copy with a long name that says what it is for", "MMMMMMMMWWWWWW", "illilliilliil")
    for name in names:
        g.memcpy(x[3], h[3], name=name)
    picture = ET.fromstring(text(g.workflow(), ".svg"))
    svg = "{http://www.w3.org/2000/svg}"
    nodes = [node for node in picture.iter(f"{svg}g") if node.get("class") == "node"]
    for name, node in zip(names, nodes):
        outline = node.find(f".//{svg}polygon")
        assert outline is not None
        points = [tuple(map(float, point.split(","))) for point in outline.attrib["points"].split()]
        width, height = (max(p[k] for p in points) - min(p[k] for p in points) for k in (0, 1))
        assert 3 * len(name) < width < 70 + 11.5 * len(name)
        assert height < 60
        said = "".join(node.itertext()).replace("\xa0", " ")
        assert name in said
        assert "x[3] ← h[3]" in said


def test_layered_layout_keeps_nodes_apart_and_edges_downwards() -> None:
    workflow = steps(60).workflow()
    sizes = [(80.0 + i % 3 * 30, 40.0) for i in range(len(workflow.nodes))]
    placement = arrange(sizes, workflow.predecessors, workflow.order)
    rows: dict[float, list[tuple[float, float]]] = {}
    for (x, y), (w, _) in zip(placement.places, sizes):
        rows.setdefault(y, []).append((x, x + w))
    for row in rows.values():
        row.sort()
        assert all(right < left for (_, right), (left, _) in pairwise(row))
    for target, sources in enumerate(workflow.predecessors):
        assert all(placement.places[source][1] < placement.places[target][1] for source in sources)
    assert max(x + w for (x, _), (w, _) in zip(placement.places, sizes)) <= placement.width + 1e-6


def test_layered_layout_takes_cycles_and_many_starts() -> None:
    rows = [y for _, y in arrange([(50.0, 30.0)] * 3, [(2,), (0,), (1,)], ()).places]
    assert rows == sorted(set(rows))  # the edge against the order of declaration does not count
    placement = arrange([(50.0, 30.0)] * 3000, [()] * 3000, range(3000))
    assert placement.width < 20_000


def test_large_graphs_are_laid_out_without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> bytes:
        raise AssertionError("Graphviz was started")

    monkeypatch.setattr("hipgraphdsl.parts.pages.html.lay_out", fail)
    assert len(page_data(text(chain(5000).workflow(), ".html"))["nodes"]) == 5000


@needs_chromium
def test_a_click_in_chromium_shows_the_fields_of_that_node(tmp_path: Path) -> None:
    seen = in_chromium(text(steps(300).workflow(), ".html"), click.replace("NAME", "step_123"), tmp_path)
    panel = seen[seen.index('id="panel"') :].split("</aside>")[0]
    assert "<h2>step_123</h2>" in panel
    assert "args: out" in panel
    assert "u[0" in panel  # (123 + 2) % 5
    assert "step_122" in panel
    assert "__global__ void add" in panel.replace("&gt;", ">")
    assert "test_drawing.py:" in panel


@needs_chromium
def test_chromium_draws_only_what_is_in_sight_and_runs_no_hostile_name(tmp_path: Path) -> None:
    report = "document.title = `drawn ${page.drawn} of ${page.nodes.length}`;"
    seen = in_chromium(text(chain(5000).workflow(), ".html"), report, tmp_path)
    found = re.search(r"<title>drawn (\d+) of 5000</title>", seen)
    assert found
    assert 0 < int(found[1]) < 100
    seen = in_chromium(text(hostile().workflow(), ".html"), click.replace("NAME", "<b>&amp;"), tmp_path)
    assert "<h2>&lt;b&gt;&amp;amp;</h2>" in seen


@needs_chromium
def test_chromium_writes_edge_labels_on_demand(tmp_path: Path) -> None:
    script = """
    const said = [], write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { said.push(text); write.call(this, text, ...at); };
    page.draw(); const before = said.filter((t) => t.startsWith("RAW")).length;
    document.getElementById("labels").click(); said.length = 0; page.draw();
    document.title = before + " then " + said.filter((t) => t === "RAW work").length;
    """
    assert "<title>0 then 8</title>" in in_chromium(text(pipeline().workflow(), ".html"), script, tmp_path)


@needs_chromium
@pytest.mark.parametrize("size", [(400, 800), (1300, 900)], ids="{0[0]},{0[1]}".format)
def test_in_chromium_the_drawing_fits_and_stays_fitted_until_it_is_moved(size: tuple[int, int], tmp_path: Path) -> None:
    script = """
    const stage = document.getElementById("stage"), panel = document.getElementById("panel"), said = [];
    const inside = () => page.nodes.every((_, i) => { const [x, y] = page.screen(i), r = stage.getBoundingClientRect();
      return x > r.left && x < r.right && y > r.top && y < r.bottom; });
    said.push(panel.getBoundingClientRect().left >= stage.getBoundingClientRect().right ? "beside" : "below");
    said.push(inside());
    stage.style.maxWidth = "280px"; stage.style.maxHeight = "300px"; tell();
    said.push(inside());
    for (let n = 0; n < 3; n++) document.getElementById("in").click();
    stage.style.maxHeight = "290px"; tell();
    said.push(inside());
    document.title = said.join();
    """
    # A browser that is read out at once may draw no frame, and its observers are told before frames only.
    told = "<head><script>let tell; ResizeObserver = class { constructor(f) { tell = f; } observe() {} };</script>"
    page = text(pipeline(2).workflow(), ".html").replace("<head>", told)
    seen = in_chromium(page, script, tmp_path, size)
    where = "below" if size == (400, 800) else "beside"
    assert f"<title>{where},true,true,false</title>" in seen


def test_edges_of_a_child_begin_at_its_last_node_and_end_at_its_first() -> None:
    inner = Graph("inner")
    x = inner.device_array("x", shape=4, dtype="f4")
    for name in ("begin", "end"):
        inner.memset(x, 0, name=name)
    g = Graph("outer")
    y = g.device_array("y", shape=4, dtype="f4")
    g.memset(y, 0, name="before")
    g.child(inner, {"x": y}, name="child")
    g.memset(y, 1, name="after")
    picture = draw(g.workflow())
    box, (cluster,) = {b.name: b.id for b in picture.boxes}, picture.clusters
    dot = text(g.workflow(), ".dot")
    assert f"{box['before']} -> {box['begin']} [lhead=cluster_{cluster.id}, minlen=2];" in dot
    assert f"{box['end']} -> {box['after']} [ltail=cluster_{cluster.id}, minlen=2];" in dot


def written_with_two_lines(x: Any) -> None:
    if x.size:
        x[0] = 1


def test_page_shows_the_source_of_a_callback_with_its_indentation(tmp_path: Path) -> None:
    g = Graph("calls")
    g.host(written_with_two_lines, args=(g.host_array("x", shape=4, dtype="f4"),))
    g.export(tmp_path / "calls.html")
    assert "    if x.size:\\n        x[0] = 1" in (tmp_path / "calls.html").read_text()
