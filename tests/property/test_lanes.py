"""Plans of random DAGs: lanes cover all nodes, few of them are enough, and reduced edges are networkx's."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.strategies import earlier

import hipgraphdsl as hg
from hipgraphdsl.plan import lanes
from hipgraphdsl.plan.steps import Plan


def graph_of(predecessors: list[list[int]]) -> hg.Graph:
    g = hg.Graph("dag")
    for i, sources in enumerate(predecessors):
        g.empty(name=f"n{i}", after=[f"n{s}" for s in sources])
    return g


def as_dag(plan: Plan, added: bool = True) -> Any:
    dag: Any = nx.DiGraph()
    dag.add_nodes_from(range(len(plan.steps)))
    dag.add_edges_from((d, s.index) for s in plan.steps for d in s.deps if added or d not in s.added)
    return dag


def width(dag: Any) -> int:
    """Return the size of the largest set of nodes that may all run at once (Dilworth: by a maximum matching)."""
    closure = nx.transitive_closure_dag(dag)
    both: Any = nx.Graph()
    both.add_nodes_from((("from", n) for n in dag), bipartite=0)
    both.add_nodes_from((("to", n) for n in dag), bipartite=1)
    both.add_edges_from((("from", a), ("to", b)) for a, b in closure.edges)
    matching = nx.bipartite.hopcroft_karp_matching(both, [("from", n) for n in dag])
    return len(dag) - len(matching) // 2


def check_lanes(plan: Plan) -> None:
    assert sorted(i for lane in plan.lanes for i in lane) == list(range(len(plan.steps)))
    closure = nx.transitive_closure_dag(as_dag(plan))
    for number, lane in enumerate(plan.lanes):
        assert all(plan.steps[i].lane == number for i in lane)
        assert all(closure.has_edge(a, b) for a, b in pairwise(lane))
    assert all(d < step.index for step in plan.steps for d in step.deps)


@st.composite
def dags(draw: Any, most: int = 24) -> list[list[int]]:
    count = draw(st.integers(1, most))
    return [draw(earlier(i, 4)) for i in range(count)]


def random_dag(count: int, seed: int) -> list[list[int]]:
    """Return nodes that wait for up to three of the forty before them."""
    chance = random.Random(seed)
    return [sorted({chance.randrange(max(0, i - 40), i) for _ in range(chance.randint(0, 3))}) if i else [] for i in range(count)]


def layered_dag(count: int, seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    across = chance.randint(2, 20)
    found: list[list[int]] = []
    for i in range(count):
        before = range(max(0, (i // across - 1) * across), i // across * across)
        found.append(sorted(chance.sample(before, min(len(before), chance.randint(1, 3)))))
    return found


@settings(max_examples=200)
@given(dags())
def test_lanes_cover_every_node_once_and_each_is_a_sequence(predecessors: list[list[int]]) -> None:
    check_lanes(graph_of(predecessors).plan(target="cpu", lanes=None))


@settings(max_examples=200)
@given(dags(), st.integers(1, 6))
def test_a_bound_on_lanes_holds_and_its_edges_close_no_ring(predecessors: list[list[int]], bound: int) -> None:
    plan = graph_of(predecessors).plan(target="cpu", lanes=bound)
    check_lanes(plan)
    assert len(plan.lanes) <= bound
    assert nx.is_directed_acyclic_graph(as_dag(plan))
    declared = nx.transitive_closure_dag(as_dag(plan, added=False))
    free = nx.transitive_closure_dag(as_dag(graph_of(predecessors).plan(target="cpu", lanes=None)))
    assert set(declared.edges) | set(nx.transitive_closure_dag(as_dag(plan)).edges) >= set(free.edges)
    assert all(not free.has_edge(d, step.index) for step in plan.steps for d in step.added)


@settings(max_examples=200)
@given(dags())
def test_the_reduction_is_that_of_networkx(predecessors: list[list[int]]) -> None:
    g = graph_of(predecessors)
    plan = g.plan(target="cpu", lanes=None)
    reduced = nx.transitive_reduction(g.dag)
    got = {(plan.steps[a].name, plan.steps[b].name) for a, b in as_dag(plan).edges}
    assert got == set(reduced.edges)


@settings(max_examples=100)
@given(dags(), st.randoms(use_true_random=False))
def test_declaring_nodes_in_another_order_gives_a_valid_plan(predecessors: list[list[int]], chance: random.Random) -> None:
    """`order` may ask for edges against the order of declaration."""
    g = hg.Graph("dag")
    names = list(range(len(predecessors)))
    chance.shuffle(names)
    for i in names:
        g.empty(name=f"n{i}")
    for i, sources in enumerate(predecessors):
        for source in sources:
            g.order(f"n{source}", f"n{i}")
    plan = g.plan(target="cpu", lanes=None)
    check_lanes(plan)
    assert {(plan.steps[a].name, plan.steps[b].name) for a, b in as_dag(plan).edges} == set(nx.transitive_reduction(g.dag).edges)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [random_dag, layered_dag])
def test_random_dags_of_200_nodes_need_at_most_half_more_lanes_than_their_width(make: Any, seed: int) -> None:
    plan = graph_of(make(200, seed)).plan(target="cpu", lanes=None)
    check_lanes(plan)
    assert len(plan.lanes) <= 1.5 * width(as_dag(plan))


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_dag, layered_dag])
def test_hundreds_of_random_dags_need_at_most_half_more_lanes_than_their_width(make: Any) -> None:
    for seed in range(100, 300):
        plan = graph_of(make(200, seed)).plan(target="cpu", lanes=None)
        assert len(plan.lanes) <= 1.5 * width(as_dag(plan)), seed


@pytest.mark.parametrize(
    ("predecessors", "lanes"),
    [
        ([[], *([i] for i in range(30))], 1),
        ([[i - 5] if i >= 5 else [] for i in range(50)], 5),
        ([[], *([(i - 1) // 2] for i in range(1, 31))], 16),
        ([[] for _ in range(8)], 8),
        ([*([] for _ in range(8)), *([2 * i, 2 * i + 1] for i in range(7))], 8),
        ([[], [0], [0], [1, 2], [3], [3], [4, 5]], 2),
    ],
    ids=["chain", "parallel_chains", "tree", "apart", "tree_of_joins", "diamonds"],
)
def test_lanes_are_the_fewest_on_chains_trees_and_parallel_chains(predecessors: list[list[int]], lanes: int) -> None:
    plan = graph_of(predecessors).plan(target="cpu", lanes=None)
    assert len(plan.lanes) == lanes == width(as_dag(plan))


@settings(max_examples=100)
@given(st.integers(1, 40), st.data())
def test_lanes_of_any_tree_are_its_leaves(count: int, data: st.DataObject) -> None:
    predecessors = [[data.draw(st.integers(0, i - 1))] if i else [] for i in range(count)]
    plan = graph_of(predecessors).plan(target="cpu", lanes=None)
    assert len(plan.lanes) == count - len({source for sources in predecessors for source in sources})


@settings(max_examples=60)
@given(dags(12), st.integers(1, 3))
def test_a_plan_prints_every_step(predecessors: list[list[int]], bound: int) -> None:
    plan = graph_of(predecessors).plan(target="cpu", lanes=bound)
    text = str(plan)
    assert all(step.name in text for step in plan.steps)


@pytest.mark.parametrize("layers", [40, 400])
def test_clocks_hold_only_what_later_nodes_can_use(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer is eight nodes that follow random nodes of the one before; lanes of earlier layers do not stay in the clocks."""
    sizes = []
    ended_before = lanes._Covering._ended_before

    def noted(self: Any, clock: dict[int, int], device: int | None) -> int:
        sizes.append(len(clock))
        return ended_before(self, clock, device)

    monkeypatch.setattr(lanes._Covering, "_ended_before", noted)
    rng = random.Random(0)
    deps: list[tuple[int, ...]] = [()] * 8
    deps += [(8 * layer + rng.randrange(8),) for layer in range(layers) for _ in range(8)]
    assert len(lanes.covered(range(len(deps)), deps, None).devices) > layers
    assert max(sizes) <= 16
