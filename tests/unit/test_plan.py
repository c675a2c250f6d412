"""Plan: what is lowered, and how it prints."""

from __future__ import annotations

from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.planning import make_plan
from hipgraphdsl.target import Target


def dag(predecessors: list[list[int]]) -> hg.Graph:
    g = hg.Graph("dag")
    for i, sources in enumerate(predecessors):
        g.empty(name=f"n{i}", after=[f"n{s}" for s in sources])
    return g


def test_steps_keep_the_order_of_declaration_where_edges_allow() -> None:
    g = dag([[], [], [], [0]])
    assert [step.name for step in g.plan(target="cpu").steps] == ["n0", "n1", "n2", "n3"]
    g.order("n3", "n1")
    assert [step.name for step in g.plan(target="cpu").steps] == ["n0", "n2", "n3", "n1"]


def test_implied_edges_are_left_out_and_counted() -> None:
    plan = dag([[], [0], [0, 1], [0, 1, 2]]).plan(target="cpu")
    assert [step.deps for step in plan.steps] == [(), (0,), (1,), (2,)]
    assert (plan.declared_edges, plan.edges, plan.depth, len(plan.lanes)) == (6, 3, 4, 1)
    assert "3 of 6 edges are implied" in plan.explain()


def test_added_edges_of_a_bound_are_marked() -> None:
    plan = dag([[], [], []]).plan(target="cpu", lanes=1)
    assert [step.deps for step in plan.steps] == [(), (0,), (1,)]
    assert [step.added for step in plan.steps] == [(), (0,), (1,)]
    assert "n0*" in str(plan)
    assert "2 ordering edges" in plan.explain()


def test_gathering_says_what_it_should_save() -> None:
    target = Target.named("nvidia:sm_90")
    g = dag([[]] * 1000)
    plan = make_plan(g.workflow(), target)
    lanes, each = len(plan.lanes), target.costs.branch_us
    assert lanes < 1000
    assert f"about {1 + each * (lanes - 1):.0f} us instead of {1 + each * 999:.0f} us, at {each:g} us for each" in plan.explain()
    assert "instead of" not in make_plan(g.workflow(), target, lanes=4).explain()


def test_a_plan_prints_steps_lanes_and_predecessors() -> None:
    text = str(dag([[], [0], [0]]).plan(target="cpu"))
    assert text.splitlines()[0] == "plan of 'dag': 3 steps, 2 edges of 2 declared, 2 lanes, depth 2"
    assert "lane 0" in text
    assert "after n0" in text
    assert dag([[]] * 100).plan(target="cpu").__str__().count("\n") < 45


def test_steps_of_a_plan_stand_in_columns() -> None:
    body = hg.Graph("body")
    body.memset(body.device_array("x", shape=1, dtype="i4"), 0)
    g = hg.Graph("g")
    go = g.device_array("go", shape=1, dtype="i4")
    g.memset(go, 1, name="start")
    g.conditional("while", go, body, {"x": go}, name="loop")
    g.memset(go, 0, name="end")
    _, _, loop, end = str(g.plan(target="cpu")).splitlines()
    assert loop.index(" after start") == end.index(" after loop")


def test_an_empty_plan_has_nothing() -> None:
    plan = hg.Graph("nothing").plan(target="cpu")
    assert (plan.steps, plan.lanes, plan.edges, plan.depth) == ((), (), 0, 0)


def child(allocs: bool) -> hg.Graph:
    c = hg.Graph("inner")
    if allocs:
        c.free(c.alloc("t", 4, "i4", name="make"), name="give")
    c.empty(name="a")
    c.empty(name="b")
    return c


def test_a_child_is_one_step_unless_it_allocates() -> None:
    g = hg.Graph("outer")
    before = g.empty(name="before")
    g.child(child(False), name="whole", after=[before])
    g.child(child(True), name="open", after=["whole"])
    g.empty(name="last", after=["open"])
    plan = g.plan(target="cpu")
    assert [step.name for step in plan.steps] == ["before", "whole", "open/make", "open/give", "open/a", "open/b", "last"]
    assert plan.steps[1].child is not None
    assert [len(step.path) for step in plan.steps] == [0, 0, 1, 1, 1, 1, 0]
    by_name = {step.name: step for step in plan.steps}
    assert {plan.steps[d].name for d in by_name["last"].deps} == {"open/give", "open/a", "open/b"}
    assert [plan.steps[d].name for d in by_name["open/a"].deps] == ["whole"]


def test_an_empty_child_passes_its_order_on() -> None:
    from hipgraphdsl.planning import make_plan

    g = hg.Graph("outer")
    g.empty(name="first")
    g.child(hg.Graph("nothing"), name="gap", after=["first"])
    g.empty(name="last", after=["gap"])
    plan = make_plan(g.workflow(), hg.Target.named("cpu"), inline=True)
    assert [(step.name, step.deps) for step in plan.steps] == [("first", ()), ("last", (0,))]


def test_the_same_child_is_planned_once() -> None:
    g = hg.Graph("outer")
    inner = child(False)
    for i in range(3):
        g.child(inner, name=f"c{i}")
    plans = {id(step.child) for step in g.plan(target="cpu").steps}
    assert len(plans) == 1


@pytest.mark.parametrize("target", ["cpu", "amd:gfx942", "nvidia:sm_90"])
@pytest.mark.parametrize("lanes", ["auto", None, 1, 3, 100])
def test_a_plan_is_the_same_every_time(target: str, lanes: Any) -> None:
    def make() -> Any:
        plan = dag([[i - 7] if i >= 7 else [] for i in range(60)]).plan(target=target, lanes=lanes)
        return [(step.name, step.deps, step.lane, step.added) for step in plan.steps], plan.lanes, plan.notes

    assert make() == make()
    if isinstance(lanes, int):
        assert len(make()[1]) == min(lanes, 7)


def test_a_hundred_thousand_nodes_are_planned_in_linear_time() -> None:
    g = hg.Graph("long")
    x = g.device_array("x", shape=8, dtype="i4")
    for i in range(20_000):
        g.memset(x[i % 8], i)
    plan = g.plan(target="cpu")
    assert len(plan.lanes) == 8
    assert plan.edges == 20_000 - 8


def test_what_is_large_is_one_line_in_a_prompt() -> None:
    g = dag([[], *([n] for n in range(200))])
    assert repr(g.plan(target="cpu")) == "<plan of 'dag': 201 steps, 200 edges of 200 declared, 1 lane, depth 201>"
    assert repr(g.simulate({"empty": 1})).startswith("<timeline of 'dag': 201 nodes in 201 time units, ")
    assert "\n" not in repr(g.simulate({"empty": 1}))
    assert repr(g.check()) == "<Report: graph 'dag': nothing found>"
    assert repr(hg.verify(g, "recorder", (), orders=0, audit=False)).startswith("<VerifyReport: graph 'dag' on ")


@pytest.mark.parametrize("runtime", ["cpu", "recorder"])
def test_plan_is_the_one_that_compile_makes(monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", runtime)
    g = dag([[]] * 200)
    with g.compile() as exe:
        assert str(g.plan()) == str(exe.plan)
    other = g.plan(target="amd:gfx942" if runtime == "cpu" else "cpu")
    assert len(other.lanes) != len(g.plan().lanes)
