"""Inferred edges: each is needed, and no conflict is left without an order; compared with sets of bytes."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from property.programs import Step, built, declared, programs, touched

import hipgraphdsl as hg


def conflict(a: Step, b: Step) -> bool:
    (a_reads, a_writes), (b_reads, b_writes) = touched(a), touched(b)
    return bool(a_writes & (b_reads | b_writes) or a_reads & b_writes)


@settings(max_examples=150)
@given(programs(20))
def test_every_conflict_is_ordered_and_every_edge_is_a_conflict(program: list[Step]) -> None:
    g = built(program)
    order = nx.transitive_closure_dag(g.dag)
    for j, later in enumerate(program):
        for i, earlier in enumerate(program[:j]):
            if conflict(earlier, later):
                assert order.has_edge(f"n{i}", f"n{j}"), f"n{i} and n{j} conflict and are not ordered"
            if g.dag.has_edge(f"n{i}", f"n{j}"):
                assert conflict(earlier, later), f"n{j} waits for n{i} and nothing asks for it"


@settings(max_examples=100)
@given(programs(16))
def test_no_edge_of_the_plan_can_be_left_out(program: list[Step]) -> None:
    plan = built(program).plan(target="cpu", lanes=None)
    dag = nx.DiGraph()
    dag.add_nodes_from(range(len(plan.steps)))
    dag.add_edges_from((d, step.index) for step in plan.steps for d in step.deps)
    for edge in list(dag.edges):
        dag.remove_edge(*edge)
        i, j = (int(plan.steps[k].name[1:]) for k in edge)
        assert not nx.has_path(dag, *edge)
        assert conflict(program[i], program[j])
        dag.add_edge(*edge)


@settings(max_examples=100)
@given(programs(16))
def test_the_checks_find_no_race_in_inferred_edges(program: list[Step]) -> None:
    assert not built(program).check().errors


@settings(max_examples=100)
@given(programs(10))
def test_the_checks_find_each_race_when_nothing_is_inferred(program: list[Step]) -> None:
    g = declared()
    bare = hg.Graph("bare", infer=False)
    bare.arrays.update(g.arrays)
    for i, step in enumerate(program):
        step.declare(bare, f"n{i}")
    pairs = {frozenset(d.nodes) for d in bare.check().errors}
    wanted = {frozenset((f"n{i}", f"n{j}")) for j in range(len(program)) for i in range(j) if conflict(program[i], program[j])}
    assert pairs == wanted


@settings(max_examples=100)
@given(programs(12))
def test_reasons_name_the_array_and_the_kind_of_dependency(program: list[Step]) -> None:
    g = built(program)
    for source, target, reason in g.dag.edges(data="reason"):
        kind, array = reason.split()
        (reads, writes), (later_reads, later_writes) = touched(program[int(source[1:])]), touched(program[int(target[1:])])
        first, second = {"RAW": (writes, later_reads), "WAR": (reads, later_writes), "WAW": (writes, later_writes)}[kind]
        assert {name for name, _ in first & second} >= {array}


def test_external_arrays_that_share_memory_are_ordered_by_their_bytes() -> None:
    memory = np.zeros(16, "i4")
    g = hg.Graph("shared")
    x, y, z = g.external_array("x", memory), g.external_array("y", memory[8:]), g.external_array("z", np.zeros(16, "i4"))
    d = g.device_array("d", shape=16, dtype="i4")
    g.memcpy(x, d, name="all")
    g.memcpy(d[:8], y, name="half")
    g.memcpy(d[8:], z[:8], name="other")
    assert g.dag.edges["all", "half"]["reason"] == "RAW y"
    assert not g.dag.has_edge("half", "other")
    assert g.dag.edges["all", "other"]["reason"] == "WAR d"
