"""Workflow: order, cycles and ancestors."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.order import ancestors, find_cycle, levels, longest_path, positions, reduced, topological_order


@st.composite
def digraphs(draw: Any) -> list[list[int]]:
    """Predecessors of each node, rings included."""
    count = draw(st.integers(0, 12))
    found = []
    for i in range(count):
        others = [other for other in range(count) if other != i]
        found.append(sorted(draw(st.sets(st.sampled_from(others), max_size=3))) if others else [])
    return found


def as_networkx(predecessors: list[list[int]]) -> Any:
    dag: Any = nx.DiGraph()
    dag.add_nodes_from(range(len(predecessors)))
    dag.add_edges_from((s, t) for t, sources in enumerate(predecessors) for s in sources)
    return dag


@given(digraphs())
def test_orders_are_topological_and_the_smallest_and_cycles_are_found(predecessors: list[list[int]]) -> None:
    dag = as_networkx(predecessors)
    order, cycle = topological_order(predecessors), find_cycle(predecessors)
    if nx.is_directed_acyclic_graph(dag):
        assert list(order) == list(nx.lexicographical_topological_sort(dag))
        assert cycle == ()
    else:
        assert order == ()
        assert len(set(cycle)) == len(cycle) >= 1
        assert all(dag.has_edge(a, b) for a, b in zip(cycle, (*cycle[1:], cycle[0])))
        assert cycle[0] == min(cycle)


@given(digraphs())
def test_ancestors_reduction_levels_and_longest_path_are_those_of_networkx(predecessors: list[list[int]]) -> None:
    order = topological_order(predecessors)
    if len(order) != len(predecessors):
        return
    dag, position = as_networkx(predecessors), positions(order)
    for node, found in ancestors(order, predecessors, position):
        assert {i for i in range(len(order)) if found >> position[i] & 1} == nx.ancestors(dag, node)
    for node, found in ancestors(order, predecessors, position, 2, 7):
        inside = {order[k] for k in range(2, min(7, len(order)))}
        assert {order[2 + k] for k in range(5) if found >> k & 1} == nx.ancestors(dag.subgraph(inside), node)
    kept = nx.transitive_reduction(dag)
    assert [sorted(sources) for sources in reduced(order, predecessors)] == [sorted(kept.predecessors(i)) for i in dag]
    assert dict(enumerate(levels(order, predecessors))) == {
        i: level for level, nodes in enumerate(nx.topological_generations(dag)) for i in nodes
    }
    path = longest_path(order, predecessors, [1.0] * len(order))
    assert len(path) == len(nx.dag_longest_path(dag))
    assert all(dag.has_edge(a, b) for a, b in pairwise(path))


def test_a_workflow_gives_its_graph_back() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="i4")
    g.memset(x, 1)
    g.memset(x, 2)
    w = g.workflow()
    assert nx.utils.graphs_equal(w.dag, g.dag)
    assert w.workflow() is w
    assert w.successors == ((1,), ())
    assert w.index == {"memset_x": 0, "memset_x_2": 1}
    assert repr(w) == "Workflow('g', 2 nodes, 1 edges)"


def test_modules_and_accesses_of_children_count() -> None:
    m = hg.Module('__constant__ int c[4]; extern "C" __global__ void f(int* x) { x[0] = c[0]; }')
    inner = hg.Graph("inner")
    y = inner.device_array("y", shape=4, dtype="i4")
    inner.kernel(m["f"], 1, 1, (y,))
    g = hg.Graph("g")
    g.child(inner)
    assert g.workflow().modules == (m,)
    assert [access.view.name for access in g.workflow().accesses] == ["c"]
    other = hg.Graph("other")
    x = other.device_array("x", shape=4, dtype="i4")
    other.memcpy(x, m.symbol("c"))
    assert other.workflow().modules == (m,)


def nested() -> hg.Workflow:
    """A child that holds a conditional node, used twice: once with half of an array bound, once with its own."""
    body = hg.Graph("body")
    body.memset(body.device_array("b", shape=(4,), dtype="f4"), 1.0, name="fill")
    child = hg.Graph("child")
    c = child.device_array("c", shape=(4,), dtype="f4")
    chosen = child.device_array("chosen", shape=(1,), dtype="i4")
    child.memset(c, 0.0, name="zero")
    child.conditional("if", chosen, body, bind={"b": c}, name="when")
    g = hg.Graph("g")
    x = g.device_array("x", shape=(8,), dtype="f4")
    g.child(child, name="bound", bind={"c": x[4:]})
    g.child(child, name="own")
    g.empty(name="last")
    return g.workflow()


def test_walk_yields_every_node_by_its_full_name_and_documents_each_workflow_once() -> None:
    workflow = nested()
    names = [level.name(node) for level, node in workflow.walk()]
    inside = ["zero", "when", "when/0/fill"]
    assert names == ["bound", "own", "last", *(f"{child}/{name}" for child in ("bound", "own") for name in inside)]
    assert [document.name for document in workflow.documents] == ["g", "child", "body"]
    assert [level.prefix for level in workflow.levels()] == ["", "bound/", "bound/when/0/", "own/", "own/when/0/"]


def test_level_resolves_names_to_what_they_are_bound_to_with_offsets() -> None:
    workflow = nested()
    found = {level.name(node): level.resolve(node.dst.root) for level, node in workflow.walk() if isinstance(node, hg.MemsetNode)}
    places = {name: (level.prefix + root.name, offset) for name, (level, root, offset) in found.items()}
    assert places == {
        "bound/zero": ("x", 16),
        "bound/when/0/fill": ("x", 16),
        "own/zero": ("own/c", 0),
        "own/when/0/fill": ("own/c", 0),
    }


def test_level_at_finds_where_a_full_name_leads_to() -> None:
    top = next(nested().levels())
    for name, prefix, inner in (
        ("last", "", "last"),
        ("own/zero", "own/", "zero"),
        ("own/when/0/fill", "own/when/0/", "fill"),
        ("own/when/7/fill", "own/", "when/7/fill"),
        ("nothing/x", "", "nothing/x"),
        ("last/x", "", "last/x"),
    ):
        level, rest = top.at(name)
        assert (level.prefix, rest) == (prefix, inner)


def test_from_workflow_goes_on_where_the_workflow_ends() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="f4")
    g.memset(x)
    g.record("done")
    workflow = g.workflow()
    again = hg.Graph.from_workflow(workflow)
    assert again.workflow() is workflow
    again.memset(x, 1.0)
    again.wait("done")
    edges = {(source, target, reason) for source, target, reason in again.dag.edges(data="reason")}
    assert edges == {("memset_x", "memset_x_2", "WAW x"), ("record_done", "wait_done", "event done")}
    assert [node.name for node in workflow.nodes] == ["memset_x", "record_done"]  # frozen
    again.dag.remove_edge("memset_x", "memset_x_2")
    assert not hg.Graph.from_workflow(again.workflow()).infer


class Job(pydantic.BaseModel):
    workflow: hg.Workflow
    others: list[hg.Workflow] = []
    device: int = 0


def test_workflow_is_a_field_of_pydantic_models() -> None:
    job = Job(workflow=nested())
    back = Job.model_validate_json(job.model_dump_json())
    assert back.workflow.model_dump_json() == nested().model_dump_json()
    assert Job.model_validate(job.model_dump()) == job
    with pytest.raises(pydantic.ValidationError, match=r"the document of a workflow is a dict \(got text: .x"):
        Job(workflow="x")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("form", ["document", "json", "workflow", "graph", "Json"])
def test_a_workflow_is_taken_in_each_form(form: str) -> None:
    text = nested().model_dump_json()
    graph = hg.Graph.from_json(text)
    given: Any = {"document": json.loads(text), "workflow": graph.workflow(), "graph": graph}
    if form == "Json":
        found = pydantic.TypeAdapter(pydantic.Json[hg.Workflow]).validate_python(text)
    elif form == "json":
        found = pydantic.TypeAdapter(hg.Workflow).validate_json(text)
    else:
        found = Job.model_validate({"workflow": given[form]}).workflow
        assert hg.Workflow.model_validate(given[form]).model_dump_json() == text
    assert found.model_dump_json() == text
    assert pydantic.TypeAdapter(hg.Workflow).dump_python(found, mode="json") == json.loads(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["nodes"][0].update(kind="explode"), "workflow file, nodes[0].kind ('bound'): there is no kind 'explode'"),
        (lambda d: d.update(hipgraphdsl=9), "workflow file, hipgraphdsl: the file has version 9"),
        (lambda d: d.update(itself=d), "this is no workflow: Circular reference"),
        (lambda d: d.update(name=object()), "this is no workflow: Object of type object is not JSON"),
    ],
)
def test_a_document_that_is_no_workflow_is_refused_with_its_place(change: Any, said: str) -> None:
    document = json.loads(nested().model_dump_json())
    change(document)
    with pytest.raises(pydantic.ValidationError) as caught:
        Job.model_validate({"workflow": document})
    assert said in str(caught.value)
    assert caught.value.errors()[0]["loc"] == ("workflow",)
    with pytest.raises(hg.DeclarationError) as alone:
        hg.Workflow.model_validate(document)
    assert str(alone.value).startswith(said)


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_schema_of_a_model_describes_its_workflow(mode: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    job = Job(workflow=nested(), others=[nested()])
    data = json.loads(job.model_dump_json())
    openapi = Job.model_json_schema(ref_template="#/components/schemas/{model}", mode=mode)
    definitions = openapi.pop("$defs")
    served = {**openapi, "components": {"schemas": definitions}}
    for schema in (Job.model_json_schema(mode=mode), served):
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        validator.validate(data)
        for change in ({"kind": "explode"}, {"speed": 3}, {"name": 1}):
            changed = json.loads(job.model_dump_json())
            changed["others"][0]["nodes"][0].update(change)
            assert list(validator.iter_errors(changed))
    alone = pydantic.TypeAdapter(hg.Workflow).json_schema(mode=mode)
    jsonschema.Draft202012Validator(alone).validate(data["workflow"])
    assert {"hipgraphdsl", "nodes", "workflows"} < set(alone["properties"])


def test_model_validate_json_reads_what_model_dump_json_writes() -> None:
    text = nested().model_dump_json()
    assert hg.Workflow.model_validate_json(text).model_dump_json() == text
    assert hg.Graph.from_json(text).to_json() == text
    assert {"hipgraphdsl", "nodes", "workflows"} < set(hg.Workflow.model_json_schema()["properties"])
    with pytest.raises(hg.DeclarationError, match=r"line 1: .*version"):
        hg.Workflow.model_validate_json("{}")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_a_copy_of_a_graph_goes_on_by_itself(copied: Any) -> None:
    g = hg.Graph("first")
    x = g.device_array("x", shape=4, dtype="f4")
    g.kernel(hg.Module('#define N 4\nextern "C" __global__ void fill(float* x) { x[0] = N; }')["fill"], 1, 1, (x,))
    g.child(nested())
    again = copied(g)
    assert again.to_json() == g.to_json()
    again.memset(again.arrays["x"], 0)
    assert ("fill", "memset_x") in again.dag.edges
    assert "memset_x" not in g


@pytest.mark.parametrize("kind", ["host", "device"])
def test_a_copy_of_a_graph_uses_the_same_memory_of_an_executable(kind: str) -> None:
    owner = hg.Graph("owner")
    getattr(owner, f"{kind}_array")("x", np.arange(4.0))
    owner.memset(owner.device_array("z", shape=4, dtype="f8"))
    with owner.compile("recorder") as exe:
        x = exe.array("x")
        g = hg.Graph("outside")
        g.param("p", "f8", x, shape=4)
        assert copy.deepcopy(x) is x
        assert copy.deepcopy(g).parameters["p"].default is g.parameters["p"].default
        for thing in (x, g):
            with pytest.raises(TypeError, match="memory of an Executable belongs to this process and cannot be pickled"):
                pickle.dumps(thing)


def test_a_copy_of_a_graph_uses_the_same_external_memory() -> None:
    g = hg.Graph("outside")
    x = g.external_array("x", np.arange(4.0))
    n = g.memcpy(g.device_array("y", shape=4, dtype="f8"), x)
    assert copy.deepcopy(g).arrays["x"] is copy.copy(x) is x
    assert copy.deepcopy(n) == n
    with pytest.raises(TypeError, match=r"'x' is memory of this process and cannot be pickled; pickle graph\.to_json\(\)"):
        pickle.dumps(g)
