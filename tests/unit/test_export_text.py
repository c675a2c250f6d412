"""Files: formats by extension, written whole or not at all; GraphML, YAML and Python come back exactly."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specimens import batched, chain, everything, inner, pipeline, report

from hipgraphdsl import export
from hipgraphdsl.errors import DeclarationError
from hipgraphdsl.export import FORMATS, export_graph, formats, need, write_file
from hipgraphdsl.graph import Graph
from hipgraphdsl.nodes import EmptyNode
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.parts.formats import graphml, python
from hipgraphdsl.parts.formats.diff import compare


def text_of(graph: Graph | Workflow) -> str:
    return graph.workflow().model_dump_json()


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [".json", ".graphml", ".py"])
def test_extension_names_the_format(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"g{extension}"
    pipeline().export(path)
    assert path.read_text() == export.render(pipeline().workflow(), extension)
    assert os.listdir(tmp_path) == [path.name]


def test_unknown_extension_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        pipeline().export(tmp_path / "g.docx")
    assert "'.docx'" in str(caught.value)
    assert all(extension in str(caught.value) for extension in formats())
    with pytest.raises(DeclarationError, match="needs an extension"):
        pipeline().export(tmp_path / "g")


def test_unknown_option_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no option 'colour'"):
        pipeline().export(tmp_path / "g.json", colour=1)
    with pytest.raises(DeclarationError, match=r"a \.dot file takes no option 'colour'; .* 'direction', 'fold', 'edges', "):
        pipeline().export(tmp_path / "g.dot", colour=1)
    for name, option in (("g.png", {"dpi": "fine"}), ("g.svg", {"timeout_s": "soon"}), ("g.hip", {"stem": 5})):
        with pytest.raises(DeclarationError, match=rf"{next(iter(option))} is .* \(got "):
            pipeline().export(tmp_path / name, **option)
    for name in ("g.dot", "g.html"):
        with pytest.raises(DeclarationError, match="there is no target 'riva'"):
            pipeline().export(tmp_path / name, target="riva")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("extension", FORMATS)
def test_every_listed_format_is_there(extension: str) -> None:
    entry = FORMATS[extension]
    if extension not in formats():
        pytest.skip(f"hipgraphdsl.export.{entry.module} is not in this build")
    assert callable(entry.rendering())


def test_failed_export_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text("earlier")
    g = Graph("g")
    g.host(lambda: None)
    with pytest.raises(DeclarationError):
        g.export(path)
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == ["g.json"]


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="nowhere"):
        pipeline().export(tmp_path / "nowhere" / "g.json")


def test_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "g.json", "text")
    assert os.listdir(tmp_path) == []


def test_written_file_keeps_mode_and_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    write_file(tmp_path / "g.json", "text")
    assert (tmp_path / "g.json").stat().st_mode == plain.stat().st_mode


def test_device_is_written_to_and_not_replaced() -> None:
    write_file(os.devnull, "text")
    assert not Path(os.devnull).is_file()


def test_missing_package_says_what_to_install() -> None:
    with pytest.raises(DeclarationError, match=r"pip install the-distribution$"):
        need("no_such_package_anywhere", "the-distribution")


def test_formats_load_nothing_before_they_are_asked_for() -> None:
    code = "import sys, hipgraphdsl.export; print([m for m in sys.modules if m in ('matplotlib', 'yaml', 'pygraphviz')])"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- GraphML and networkx ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [everything, pipeline, inner, lambda: Graph("empty")])
def test_graphml_comes_back_exactly(make: object) -> None:
    graph = make()  # type: ignore[operator]  # the functions above
    back = graphml.loads(graphml.render(graph.workflow()))
    assert text_of(back) == text_of(graph)


def test_graphml_that_networkx_read_and_wrote_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    everything().export(path)
    nx.write_graphml(nx.read_graphml(path), tmp_path / "again.graphml")
    back = graphml.from_networkx(nx.read_graphml(tmp_path / "again.graphml"))
    assert text_of(back) == text_of(everything())


@pytest.mark.parametrize("make", [everything, pipeline, batched])
@pytest.mark.parametrize("renamed", ["numbered", "reversed", "others' names"])
def test_a_node_has_the_name_in_its_data_whatever_a_tool_calls_it(
    make: Callable[[], Graph], renamed: str, tmp_path: Path
) -> None:
    """Tools such as igraph number the nodes of a file anew."""
    g = make()
    names = [node.name for node in g]
    g.order(names[0], names[-1])
    keys = {
        "numbered": [f"n{i}" for i in range(len(g))],
        "reversed": [f"n{i}" for i in reversed(range(len(g)))],
        "others' names": [*names[1:], names[0]],
    }[renamed]
    g.export(tmp_path / "g.graphml")
    dag = nx.relabel_nodes(nx.read_graphml(tmp_path / "g.graphml"), dict(zip(names, keys)))
    assert text_of(graphml.from_networkx(dag)) == text_of(g)
    nx.write_graphml(dag, tmp_path / "again.graphml")
    assert text_of(graphml.loads((tmp_path / "again.graphml").read_text())) == text_of(g)
    dag.remove_edge(keys[0], keys[-1])
    dag.add_edge(keys[0], keys[2])
    back = graphml.from_networkx(dag)
    assert names[0] in back.dag.pred[names[2]]


@pytest.mark.parametrize("numbered", ["by kind of element", "for all elements"])
def test_a_key_of_graphml_is_looked_up_for_the_kind_of_its_element(numbered: str) -> None:
    """rustworkx numbers the keys of the graph, of nodes and of edges from d1 each; the schema lets `for` be absent."""
    g = pipeline(2)
    root = ElementTree.fromstring(graphml.render(g.workflow()))
    kinds: dict[str, list[str]] = {}
    for key in root.iterfind("{*}key"):
        kinds.setdefault(key.attrib["for"], []).append(key.attrib["id"])
    assert set(kinds) == {"graph", "node", "edge"}
    again = {key: f"d{i}" for keys in kinds.values() for i, key in enumerate(keys, 1)}
    for key in root.iterfind("{*}key"):
        if numbered == "for all elements":
            del key.attrib["for"]
        else:
            key.set("id", again[key.attrib["id"]])
    if numbered == "by kind of element":
        for data in root.iterfind(".//{*}data"):
            data.set("key", again[data.attrib["key"]])
    assert text_of(graphml.loads(ElementTree.tostring(root, "unicode"))) == text_of(g)


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "gexf": nx.write_gexf,
    "gml": nx.write_gml,
    "graphml": nx.write_graphml,
    "pajek": nx.write_pajek,
    "node-link JSON": lambda dag, path: path.write_text(json.dumps(nx.node_link_data(dag))),
    "cytoscape JSON": lambda dag, path: path.write_text(json.dumps(nx.cytoscape_data(dag))),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_copy_through_graphml_goes_to_every_writer_of_networkx(writer: str, tmp_path: Path) -> None:
    """`g.dag` itself holds models, which writers refuse."""
    g = everything()
    g.export(tmp_path / "g.graphml")
    plain = nx.read_graphml(tmp_path / "g.graphml")
    assert set(plain.edges) == set(g.dag.edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of networkx before 3.6, on the names of keys
        WRITERS[writer](plain, tmp_path / "out")
    text = html.unescape((tmp_path / "out").read_text())
    assert all(node.name in text for node in g)
    assert text_of(Graph.from_networkx(plain).workflow()) == text_of(g)


def test_models_are_kept_by_algorithms_that_copy_and_can_be_put_back() -> None:
    g = pipeline(3)
    g.order("H2D0", "D2H0")
    for kept in (g.dag.copy(), nx.DiGraph(g.dag.subgraph(["H2D0", "K0"])), nx.transitive_closure(g.dag)):
        assert {node.name for node in graphml.from_networkx(kept).nodes} == set(kept)
    reduced = nx.transitive_reduction(g.dag)
    with pytest.raises(DeclarationError, match="'H2D0' of the networkx graph has no model"):
        graphml.from_networkx(reduced)
    reduced.add_nodes_from(g.dag.nodes(data=True))
    assert ("H2D0", "D2H0") not in graphml.from_networkx(reduced).dag.edges


def test_edge_that_a_tool_added_becomes_an_order() -> None:
    dag = nx.parse_graphml(graphml.render(pipeline(2).workflow()))
    dag.add_edge("D2H0", "H2D1")
    back = graphml.from_networkx(dag)
    assert back.dag.edges["D2H0", "H2D1"]["reason"] == "after"


def test_from_networkx_takes_models_with_their_edges() -> None:
    g = pipeline(3)
    g.order("D2H0", "H2D1")
    back = graphml.from_networkx(g.dag)
    assert compare(back, g).same
    assert [n.name for n in back.nodes] == [n.name for n in g.nodes]


def test_from_networkx_refuses_a_graph_without_models() -> None:
    dag: nx.DiGraph[str] = nx.DiGraph()
    dag.add_node("a")
    with pytest.raises(DeclarationError, match="'a' of the networkx graph has no model"):
        graphml.from_networkx(dag)
    dag.add_node("a", node=EmptyNode(name="b"))
    with pytest.raises(DeclarationError, match="holds a model named 'b'"):
        graphml.from_networkx(dag)
    with pytest.raises(DeclarationError, match="DiGraph"):
        graphml.from_networkx(nx.Graph())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml",
        "<graphml/>",
        '<!DOCTYPE x [<!ENTITY a "aaaa">]><graphml/>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected"/></graphml>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed"><node id="a"/></graph></graphml>',
    ],
)
def test_text_that_is_no_graphml_of_a_workflow_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError):
        graphml.loads(text)


def test_hostile_graphml_is_refused_before_it_becomes_a_graph() -> None:
    text = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">' + '<node id="1"/>' * 2**18
    tracemalloc.start()
    try:
        with pytest.raises(DeclarationError, match="node '1' has no attribute 'data'"):
            graphml.loads(text + "</graph></graphml>")
        assert tracemalloc.get_traced_memory()[1] < 30 * 2**20
    finally:
        tracemalloc.stop()


def test_damaged_graphml_is_refused() -> None:
    text = graphml.render(pipeline().workflow())
    for old, new in (
        ("memcpy", "memcopy"),
        ("hipgraphdsl&quot;", "x&quot;"),
        ("name&quot;: &quot;H2D1", "name&quot;: &quot;H2D0"),
        ("{", "["),
    ):
        damaged = text.replace(old, new).replace(old.replace("&quot;", '"'), new.replace("&quot;", '"'))
        with pytest.raises(DeclarationError):
            graphml.loads(damaged)


# -- YAML --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [everything, pipeline, inner, lambda: Graph("empty")])
def test_yaml_comes_back_exactly(make: object) -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    graph = make()  # type: ignore[operator]  # the functions above
    assert text_of(yaml.loads(yaml.render(graph.workflow()))) == text_of(graph)


def test_yaml_text_that_looks_like_something_else_stays_text() -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    g = Graph("no")
    for name in ("yes", "12:30", "0x1f", "1e5", "null", "~", "2024-01-01", "- a", "0o17", "+1e5", ".5e3", "y"):
        g.empty(name=name)
    g.host(report, args=("on", "0o7", "a: b\nc", " lead", "12", ""))
    assert text_of(yaml.loads(yaml.render(g.workflow()))) == text_of(g)


#: What is no text to readers of YAML 1.2 (its core schema, section 10.3.2) and of 1.1 (its types bool, int and float), if plain.
NO_TEXT = re.compile(
    r"~?|null|true|false|y|n|yes|no|on|off|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-f]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?"
    r"|[-+]?\.inf|\.nan|[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?0x[0-9a-f_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?(e[-+][0-9]+)?"
    r"|[-+]?\.[0-9_]+(e[-+][0-9]+)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|<<|=",
    re.IGNORECASE,
)


@given(st.one_of(st.from_regex(NO_TEXT, fullmatch=True), st.text("0123456789.eE+-oOxXbB_:~", min_size=1, max_size=6)))
def test_yaml_quotes_text_that_a_reader_of_any_version_takes_for_something_else(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    g = Graph("numbers")
    g.host(report, args=(text,))
    event = next(e for e in yaml.parse(export.render(g.workflow(), ".yaml")) if getattr(e, "value", None) == text)
    assert event.style in ("'", '"', "|") or not NO_TEXT.fullmatch(text)


def test_yaml_shows_kernel_source_as_text() -> None:
    pytest.importorskip("yaml")
    text = export.render(pipeline().workflow(), ".yaml")
    assert "\n      __device__ int counters[4];\n" in str(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x", "anchors"),
        ("a: !!python/object/apply:os.system ['x']", "tags"),
        ("[" * 100, "nested deeper than 64"),
        ("a: 1\na: 2", "stands twice"),
        ("a: [1", "line"),
        ("", "begins with"),
        ("a: 1\n---\nb: 2", "second document"),
        ("hipgraphdsl: 1\nname: g\nnodes: [{name: a, kind: nothing}]", "no kind 'nothing'"),
    ],
)
def test_yaml_that_is_no_workflow_is_refused(text: str, said: str) -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    with pytest.raises(DeclarationError) as caught:
        yaml.loads(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("extension", [".yaml", ".graphml"])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"grid": 1', '"grid": 0', "nodes[1].grid ('K0')"),
        ('"grid": 1', '"grit": 1', "nodes[1].grid ('K0')"),
        ('"block": 64', '"block": "x"', "nodes[1].block ('K0')"),
        ('"kind": "memcpy"', '"kind": "memcopy"', "nodes[0].kind ('H2D0')"),
        ('"dtype": "float32"', '"dtype": "float33"', "arrays[0]"),
    ],
)
def test_fault_in_a_yaml_or_graphml_file_names_its_line_as_in_json(extension: str, old: str, new: str, place: str) -> None:
    text = str(export.render(pipeline(1).workflow(), extension))
    if extension == ".yaml":
        pytest.importorskip("yaml")
        old, new = old.replace('"', ""), new.replace('"', "")
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if old in line)
    lines[at] = lines[at].replace(old, new)
    with pytest.raises(DeclarationError) as caught:
        formats_of(extension)("\n".join(lines))
    assert f"workflow file, line {at + 1}, {place}" in str(caught.value)


def formats_of(extension: str) -> Callable[[str], Workflow]:
    """Return the function that reads a text of a format."""
    from hipgraphdsl.parts.formats import yaml

    return yaml.loads if extension == ".yaml" else graphml.loads


def test_yaml_beyond_its_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("yaml")
    from hipgraphdsl.parts.formats import yaml

    monkeypatch.setattr(yaml, "_MAX_VALUES", 1000)
    with pytest.raises(DeclarationError, match="at most 1000 values"):
        yaml.loads("a: [" + "[]," * 600 + "]")
    with pytest.raises(DeclarationError, match=r"at most \d+ MB \(got 16\.0 MB\)"):
        yaml.loads("a: " + "x" * 2**24)


# -- Python ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_program(tmp_path: Path) -> Iterator[object]:
    def run(text: str) -> Graph:
        path = tmp_path / "program.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("program", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        graph: Graph = module.build()
        return graph

    yield run
    sys.modules.pop("program", None)


@pytest.mark.parametrize("make", [everything, pipeline, inner, lambda: chain(5), lambda: Graph("empty")])
def test_python_program_declares_the_same_workflow(make: object, run_program: object, tmp_path: Path) -> None:
    graph = make()  # type: ignore[operator]  # the functions above
    graph.export(tmp_path / "program.py")
    assert text_of(run_program(python.render(graph.workflow()))) == text_of(graph)  # type: ignore[operator]  # the fixture


def test_python_program_reads_the_files_that_stand_beside_it(run_program: object, tmp_path: Path) -> None:
    g = Graph("g")
    child = Graph("child")
    for graph, name in ((g, "x-1"), (g, "x 1"), (child, "x-1")):
        graph.host_array(name, np.arange(5000.0) + len(name))
    g.device_array("brain", np.arange(5000).astype(pytest.importorskip("ml_dtypes").bfloat16))
    g.device_array("records", np.zeros((5000, 1), np.dtype({"names": ["a", "b"], "formats": ["u4", "u2"], "offsets": [0, 2]})))
    g.child(child)
    g.export(tmp_path / "program.py")
    assert len(list(tmp_path.glob("program.*.npy"))) == 5
    program = (tmp_path / "program.py").read_text()
    assert text_of(run_program(program)) == text_of(g)  # type: ignore[operator]  # the fixture


def test_names_cannot_become_code(run_program: object) -> None:
    g = Graph('"""; raise SystemExit("graph") #')
    x = g.device_array("'); raise SystemExit('array') #", shape=4, dtype="float32")
    g.device_array("g", shape=1, dtype="int8")
    g.device_array("class", shape=1, dtype="int8")
    g.device_array("1 2", shape=1, dtype="int8")
    g.memset(x, 0, name='a\\"; raise SystemExit("node") #')
    g.host(report, args=('"""\n\'\\',), name="\\")
    assert text_of(run_program(python.render(g.workflow()))) == text_of(g)  # type: ignore[operator]  # the fixture


def test_python_program_takes_external_memory_of_each_graph_by_itself(run_program: object) -> None:
    g = Graph("outer")
    for shape in (4, 2):
        child = Graph(f"child_{shape}")
        child.memcpy(child.device_array("y", shape=shape, dtype="float32"), child.external_array("x", np.zeros(shape, "f4")))
        g.child(child)
    assert text_of(run_program(python.render(g.workflow()))) == text_of(g)  # type: ignore[operator]  # the fixture


def test_names_of_functions_are_not_hidden_by_arrays(run_program: object) -> None:
    child = inner()
    g = Graph("g")
    named = [g.host_array(name, shape=4, dtype="float32") for name in ("report", "build_inner", "float", "complex", "bytes")]
    g.memset(named[0], float("nan"))
    g.host(report, args=(named[0], complex(1, float("inf"))))
    g.child(child, name="first")
    assert text_of(run_program(python.render(g.workflow()))) == text_of(g)  # type: ignore[operator]  # the fixture


def test_python_program_knows_every_dtype(run_program: object) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    g = Graph("g")
    g.device_array("raw", np.zeros(3, "V5"))
    g.device_array("brain", np.arange(3).astype(bfloat16))
    g.device_array("records", shape=2, dtype=np.dtype([("bfloat16", bfloat16), ("it's bfloat16", "i4")]))
    text = python.render(g.workflow())
    assert "import ml_dtypes" in text
    assert text_of(run_program(text)) == text_of(g)  # type: ignore[operator]  # the fixture


def test_python_program_holds_the_values_of_arrays_without_an_axis(run_program: object) -> None:
    g = Graph("g")
    for dtype in ("int32", "uint64", "bool", "float16", "float64", "complex64"):
        g.device_array(dtype, np.array(1, dtype))
    assert text_of(run_program(python.render(g.workflow()))) == text_of(g)  # type: ignore[operator]  # the fixture


def test_python_program_names_the_code_that_it_imports() -> None:
    text = """{"hipgraphdsl": 1, "name": "g", "arrays": [], "parameters": [], "order": [],
        "nodes": [{"name": "n", "kind": "host", "fn": "os:system", "args": ["x"]}]}""".replace('["x"]', '[{"str": "x"}]')
    head = python.render(Graph.from_json(text).workflow()).partition("import hipgraphdsl")[0]
    assert "# Importing this file imports, and so runs" in head
    assert "'os:system'" in head
    assert "Importing" not in python.render(chain(2).workflow())


def test_lambda_cannot_be_written_as_python() -> None:
    g = Graph("g")
    g.host(lambda: None, name="talk")
    with pytest.raises(DeclarationError, match="node 'talk' cannot be written as Python"):
        python.render(g.workflow())


def test_export_graph_takes_a_workflow(tmp_path: Path) -> None:
    export_graph(pipeline().workflow(), str(tmp_path / "g.json"))
    assert (tmp_path / "g.json").exists()


# -- print(graph) ------------------------------------------------------------------------------------------------------


def test_print_of_a_graph_names_some_nodes_and_counts_the_rest() -> None:
    g = chain(60)
    last = g.nodes[-1].name
    g.empty(name="all", after=[node.name for node in g.nodes])
    lines = str(g).splitlines()
    assert lines[0].startswith("chain: 61 nodes, ")
    assert len(lines) == 2 + 40
    assert [line for line in lines if "more ..." in line] == ["  ... 22 more ..."]
    assert lines[-2].split()[0] == last
    assert lines[-1].endswith(" and 54 more")
