"""Workflow: order, cycles and ancestors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
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
