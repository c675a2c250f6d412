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

from hipgraphdsl.export import render
from hipgraphdsl.export.layout import engine
from hipgraphdsl.export.levels import arrange, levels
from hipgraphdsl.export.picture import draw
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.workflow import Workflow

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


def test_hostile_names_cannot_break_out_of_the_page() -> None:
    page = text(hostile().workflow(), ".html")
    assert page.count("</script>") == text(pipeline().workflow(), ".html").count("</script>")
    assert "<script>alert" not in page
    assert [node["name"] for node in page_data(page)["nodes"]] == list(HOSTILE)


def test_the_page_asks_for_nothing_from_a_network() -> None:
    page = text(everything().workflow(), ".html")
    assert re.findall(r'(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttp', page.split('id="data"')[0]) == []
    assert "default-src 'none'" in page


def test_the_page_holds_every_node_also_those_of_children() -> None:
    def names(workflow: Workflow, prefix: str = "") -> list[str]:
        found = []
        for node in workflow.nodes:
            found.append(prefix + node.name)
            if node.kind == "child":
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
    assert levels([(2,), (0,), (1,)], ()) == [0, 1, 2]
    placement = arrange([(50.0, 30.0)] * 3000, [()] * 3000, range(3000))
    assert placement.width < 20_000


def test_large_graphs_are_laid_out_without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> bytes:
        raise AssertionError("Graphviz was started")

    monkeypatch.setattr("hipgraphdsl.export.html.lay_out", fail)
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
