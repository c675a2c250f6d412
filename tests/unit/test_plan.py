"""Plan: what is lowered, and how it prints."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.plan.steps import Plan
from hipgraphdsl.plan.suited import FAN_OUT, with_one_root
from hipgraphdsl.plan.watch import watched
from hipgraphdsl.target import CostModel, Target

if TYPE_CHECKING:
    from hipgraphdsl.parts.merge.batches import Batched


def dag(predecessors: list[list[int]]) -> hg.Graph:
    g = hg.Graph("dag")
    for i, sources in enumerate(predecessors):
        g.empty(name=f"n{i}", after=[f"n{s}" for s in sources])
    return g


def batched(batch: object) -> Batched:
    from hipgraphdsl.parts.merge.batches import Batched

    assert isinstance(batch, Batched)
    return batch


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
    assert "instead of" not in make_plan(g.workflow(), target, hg.PlanOptions(lanes=4)).explain()


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
    from hipgraphdsl.plan.planning import make_plan

    g = hg.Graph("outer")
    g.empty(name="first")
    g.child(hg.Graph("nothing"), name="gap", after=["first"])
    g.empty(name="last", after=["gap"])
    plan = make_plan(g.workflow(), hg.Target.named("cpu"), hg.PlanOptions(inline=True))
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


@pytest.mark.needs("timeline")
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


def gated(width: int, *, gates: int = 2) -> hg.Graph:
    """Return levels of so many kernels, with an empty node between each and the next."""
    from hipgraphdsl.parts.bench.shapes import KERNELS

    g = hg.Graph("gated")
    x = g.device_array("x", shape=32, dtype="float32")
    own = [g.device_array(f"y{i}", shape=32, dtype="float32") for i in range(width)]
    after: list[str] = []
    for level in range(gates + 1):
        row = [g.kernel(KERNELS["axpy"], 1, 32, (x, y, 32), name=f"n{level}_{i}", after=after) for i, y in enumerate(own)]
        if level < gates:
            after = [g.empty(name=f"gate_{level}", after=row).name]
    return g


@pytest.mark.needs("bench")
def test_few_edges_take_the_place_of_an_empty_node() -> None:
    """On an H200 a level of four empty kernels takes 6.3 us with empty nodes between, and 1.7 us with 16 edges."""
    plan = gated(3).plan(target="nvidia:sm_90", batch=False)
    assert len(plan.steps) == 9
    assert not any(name.startswith("gate") for name in plan.index)
    assert [len(step.deps) for step in plan.steps] == [0, 0, 0, 3, 3, 3, 3, 3, 3]
    assert "2 empty nodes left out" in plan.explain()


@pytest.mark.needs("bench")
def test_lanes_and_batch_are_short_for_fields_of_the_plan_options() -> None:
    of = hg.PlanOptions.of
    given = hg.PlanOptions(lanes=4, batch=False, join=False)
    assert of(None) == hg.PlanOptions()
    assert of(given) is given or of(given) == given
    assert of(given, None, True) == hg.PlanOptions(lanes=None, batch=True, join=False)
    assert gated(3).plan(target="cpu", lanes=2).lanes == gated(3).plan(target="cpu", options=hg.PlanOptions(lanes=2)).lanes


def test_inline_replaces_children_by_their_nodes_on_every_backend() -> None:
    inner, g = hg.Graph("inner"), hg.Graph("outer")
    inner.empty(name="x")
    g.child(inner, name="c")
    assert list(g.plan(target="cpu").index) == ["c"]
    with g.compile("recorder", plan=hg.PlanOptions(inline=True)) as exe, exe.clone() as clone:
        assert list(exe.plan.index) == list(clone.plan.index) == ["c/x"]


@pytest.mark.needs("bench")
@pytest.mark.parametrize(
    "options",
    [
        {"lanes": None},
        {"options": hg.PlanOptions(join=False)},
        {"target": "amd:gfx942"},
        {"target": "nvidia:sm_70"},
        {"target": "cpu"},
    ],
)
def test_empty_nodes_stay_where_the_shape_does_or_nothing_was_measured(options: Any) -> None:
    plan = gated(3).plan(**{"target": "nvidia:sm_90", "batch": False, **options})
    assert {"gate_0", "gate_1"} <= plan.index.keys()
    assert "empty node" not in plan.explain()


@pytest.mark.needs("bench")
def test_a_plan_for_an_nvidia_device_that_nobody_measured_rests_on_no_figures_of_an_h200() -> None:
    from hipgraphdsl.parts.bench.shapes import parallel

    unmeasured = Target.named("nvidia:sm_70")
    known = ("copy_kernel_bytes", "bypass_edges", "resident_threads", "multiprocessors")
    assert {name: getattr(unmeasured, name) for name in known} == dict.fromkeys(known, 0)
    assert unmeasured.costs == CostModel()
    g = parallel(1024)
    source, out = g.device_array("source", shape=64, dtype="float32"), g.host_array("out", shape=(32, 64), dtype="float32")
    for i in range(32):
        g.memcpy(out[i], source)
    plan = g.plan(target=unmeasured)
    assert not any(step.by_kernel for step in plan.steps)
    assert "Nothing is batched: that is not known to save time on nvidia:sm_70 (batch=True does it)." in plan.explain()
    assert Target.named("sm_90a") == Target.named("sm_90")  # the same devices


@pytest.mark.needs("bench")
def test_an_empty_node_of_many_edges_stays_and_its_batch_does_it() -> None:
    g = gated(40)
    plan = g.plan(target="nvidia:sm_90", batch=False)
    assert {"gate_0", "gate_1"} <= plan.index.keys()
    plan = g.plan(target="nvidia:sm_90")
    assert [step.batch for step in plan.steps] == [0] * 41 + [1] * 41 + [2] * 40
    assert len(plan.programmatic) == 2  # each batch begins while the one before ends: nothing is between
    assert "120 kernel nodes become 3 launches" in plan.explain()


def test_a_graph_of_empty_nodes_alone_keeps_them() -> None:
    assert [step.name for step in dag([[], [0], [0], [1, 2]]).plan(target="nvidia:sm_90").steps] == ["n0", "n1", "n2", "n3"]


@pytest.mark.needs("bench")
def test_an_empty_node_without_followers_or_predecessors_is_left_out() -> None:
    from hipgraphdsl.parts.bench.shapes import KERNELS

    g = hg.Graph("ends")
    x = g.device_array("x", shape=32, dtype="float32")
    g.empty(name="first")
    g.kernel(KERNELS["axpy"], 1, 32, (x, x, 32), name="k", after=["first"])
    g.empty(name="last", after=["k"])
    plan = g.plan(target="nvidia:sm_90")
    assert [(step.name, step.deps) for step in plan.steps] == [("k", ())]


COMPONENTS = hg.Module(
    "\n".join(
        f'extern "C" __global__ void {name}(const int *a, const int *b, int *c) {{'
        f" const int i = threadIdx.x; c[i] = {k} * c[i] + a[i] - b[i]; }}"
        for k, name in enumerate(["ex", "ey", "ez", "hx", "hy", "hz"])
    ),
    name="components",
)


def fields(steps: int, kernels: hg.Module = COMPONENTS) -> hg.Graph:
    """Return steps of two fields, each component of which follows two of the other's."""
    g = hg.Graph("fields")
    e, h = ([g.device_array(f"{what}{c}", np.arange(32, dtype="i4") + k) for k, c in enumerate("xyz")] for what in "eh")
    for _ in range(steps):
        for own, other, what in ((e, h, "e"), (h, e, "h")):
            for i, c in enumerate("xyz"):
                g.kernel(kernels[f"{what}{c}"], 1, 32, (other[(i + 1) % 3], other[(i + 2) % 3], own[i]))
    return g


@pytest.mark.needs("merge")
def test_launches_of_different_kernels_are_one_where_they_wait_for_the_same() -> None:
    """No two of the components follow the same ones, but all that are one launch do."""
    plan = fields(4).plan(target="nvidia:sm_90")
    assert [step.batch for step in plan.steps] == [n for n in range(8) for _ in range(3)]
    assert {len(batched(batch).batching.kernels) for batch in plan.batches} == {6}
    assert len(fields(4).plan(target="nvidia:sm_90", batch=False).batches) == 0


@pytest.mark.needs("cpu")
def test_launches_of_different_kernels_do_what_they_do_one_by_one() -> None:
    found = []
    for batch in (False, True):
        g = fields(3)
        with g.compile(runtime="cpu", batch=batch) as exe:
            exe.run()
            nodes = len(exe.runtime.graph_get_nodes(exe.graph_handle))
            exe.disable("ey")
            exe.run()
            exe.enable("ey")
            exe.set("hz_2", args=(g.arrays["ex"], g.arrays["ex"], g.arrays["hz"]))
            exe.run()
            found.append([exe.read(name).tolist() for name in g.arrays])
        assert nodes == (6 if batch else 18)
    assert found[0] == found[1]


def test_a_kernel_that_ends_sooner_is_not_kept_from_what_follows_it_alone() -> None:
    g = fields(1)
    x = g.device_array("x", np.zeros(32, "i4"))
    g.kernel(COMPONENTS["ey"], 1, 32, (x, x, g.arrays["ex"]))
    apart = g.kernel(COMPONENTS["ez"], 1, 32, (g.arrays["ex"], x, x), after=[])
    plan = g.plan(target="nvidia:sm_90")
    assert plan.steps[plan.index[apart.name]].batch < 0


@pytest.mark.needs("merge")
def test_launches_of_different_kernels_stay_apart_where_they_fill_the_device() -> None:
    g = hg.Graph("large")
    for i, name in enumerate(("ex", "ey", "ez", "hx")):
        x = g.device_array(f"x{i}", np.zeros(32, "i4"))
        g.kernel(COMPONENTS[name], 40, 32, (x, x, x))
    assert not g.plan(target="nvidia:sm_90").batches
    assert g.plan(target="nvidia:sm_90", batch=True).batches


@pytest.mark.needs("bench")
@pytest.mark.parametrize("length", [3, 40])
def test_long_chains_beside_each_other_stay_chains(length: int) -> None:
    """Eight chains of one-block kernels: on an H200 a level in chains takes 0.1 us, one in batches 0.8 us."""
    from hipgraphdsl.parts.bench.shapes import parallel

    plan = parallel(8 * length, width=8, what="axpy", n=32).plan(target="nvidia:sm_90")
    sizes = [sum(step.batch == n for step in plan.steps) for n in range(len(plan.batches))]
    assert sizes == ([40] * 8 if length == 40 else [8] * 3)


@pytest.mark.needs("bench")
@pytest.mark.parametrize("length", [16, 600])
def test_a_long_chain_is_cut_where_its_nodes_read_another_parameter(length: int) -> None:
    """So a launch with another value of one writes a small table, not one of 16 KB."""
    from hipgraphdsl.parts.bench.launch import with_parameters
    from hipgraphdsl.parts.bench.shapes import chain

    plan = with_parameters(chain(length, "axpy")).plan(target="nvidia:sm_90")
    middle, rest = length // 2, length - length // 2 - 1
    sizes = [len([*steps]) for _, steps in groupby(plan.steps, lambda step: step.batch)]
    assert sizes == ([16] if length == 16 else [middle, 1, rest])
    assert plan.steps[middle].batch == (0 if length == 16 else -1)


@pytest.mark.needs("merge")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_long_chain_is_cut_where_another_parameter_stands_for_the_array_of_its_nodes(depth: int) -> None:
    """In inlined children as in a graph of its own."""
    g = hg.Graph("inner")
    x, y = (g.device_array(name, shape=4, dtype="f4") if depth else g.param(name, "f4", shape=4) for name in "xy")
    kernel = hg.Module('extern "C" __global__ void k(float* x) { x[0] += 1; }')["k"]
    last: list[Any] = []
    for n in range(600):
        last = [g.kernel(kernel, 1, 1, (x if n < 300 else y,), after=last)]
    for level in range(depth):
        outer = hg.Graph(f"level{level}")
        given: dict[str, Any] = {
            name: outer.device_array(name, shape=4, dtype="f4") if level < depth - 1 else outer.param(name, "f4", shape=4)
            for name in "xy"
        }
        outer.child(g, bind=given, name="c")
        g = outer
    plan = g.plan(target="nvidia:sm_90", options=hg.PlanOptions(inline=True, batch=True))
    assert [len([*steps]) for _, steps in groupby(plan.steps, lambda step: step.batch)] == [300, 300]


@pytest.mark.needs("bench")
@pytest.mark.parametrize(("links", "size"), [(2, 32), (32, 32), (33, 64), (100, 128), (300, 320), (1000, 1024), (1363, 1364)])
def test_tables_of_chains_are_little_larger_than_what_they_hold(links: int, size: int) -> None:
    from hipgraphdsl.parts.bench.shapes import chain

    plan = chain(links, "axpy").plan(target="nvidia:sm_90", batch=True)
    assert [batched(batch).capacity for batch in plan.batches] == [size]


@pytest.mark.needs("merge")
def test_an_entry_point_is_compiled_without_the_bodies_of_other_kernels() -> None:
    from hipgraphdsl.parts.merge.batching import Batching, batching

    module = hg.Module(
        """
extern "C" __global__ void one(int *x) { x[0] = 111; }
extern "C" __global__ void two(int *x) {
#pragma unroll
  for (int i = 0; i < 2; ++i) x[i] = 222;
}
extern "C" __global__ void three(int *x) {
#define LATER 333
  x[0] = LATER;
}
extern "C" __global__ void four(int *x) { x[0] = LATER; }
""",
        name="bodies",
    )
    how = batching(module["one"])
    assert isinstance(how, Batching)
    source = how.source([4])
    assert [source.count(said) for said in ("111", "222", "#define LATER 333", "x[0] = LATER")] == [1, 0, 1, 1]
    g = hg.Graph("bodies")
    arrays = [g.device_array(f"x{i}", np.zeros(4, "i4")) for i in range(8)]
    for i, x in enumerate(arrays):
        g.kernel(module["four" if i % 2 else "one"], 1, 1, (x,))
    with g.compile(runtime="cpu", batch=True) as exe:
        exe.run()
        assert [int(exe.read(x.name)[0]) for x in arrays] == [111, 333] * 4


# -- steps that a target's quirks put between ---------------------------------------------------------------------------


def lossy(*quirks: str) -> Target:
    target = Target.named("amd:gfx942")
    return replace(target, quirks=target.quirks | {*quirks})


def most_followers(plan: Plan) -> int:
    return max(map(len, plan.successors))


@pytest.mark.parametrize("name", ["child", "n" * 199])
def test_a_step_of_a_child_with_many_followers_gets_empty_nodes_behind_it(name: str) -> None:
    """The step's full name is none that a node may have: it has a slash, or no room for more."""
    inner = dag([[], *[[0]] * 9])
    g = hg.Graph("outer")
    g.child(inner, name=name)
    plan = make_plan(g.workflow(), lossy("fan_out_4"), hg.PlanOptions(inline=True))
    assert most_followers(plan) <= FAN_OUT
    assert {step.origin for step in plan.steps} == {(), *((f"{name}/n{i}",) for i in range(10))}
    assert f"{name}/n0~1" in {step.name for step in plan.steps}


def test_the_root_of_a_segment_has_few_followers_too() -> None:
    g = dag([[]] * 30)
    g.eager(print, args=(), name="between", after=["n0"])
    g.empty(name="last", after=["between"])
    target = lossy("parallel_roots", "fan_out_4")
    plan = make_plan(g.workflow(), target)
    assert plan.cut is not None
    largest = max((step.child for step in plan.cut.plan.steps if step.child), key=lambda part: len(part.steps))
    made = with_one_root(largest, target)
    assert [step.name for step in made.steps if not step.deps] == ["~start"]
    assert most_followers(made) <= FAN_OUT
    added = len(made.steps) - len(largest.steps)
    assert [step.name for step in made.steps[added:]] == [step.name for step in largest.steps]
    assert sorted(i for lane in made.lanes for i in lane) == list(range(len(made.steps)))


@pytest.mark.needs("bench")
def test_launches_of_one_batch_are_in_one_segment() -> None:
    from hipgraphdsl.parts.bench.shapes import KERNELS

    g = hg.Graph("segments")
    for i in range(5):
        x = g.device_array(f"x{i}", shape=32, dtype="float32")
        g.kernel(KERNELS["axpy"], 1, 32, (x, x, 32), name=f"k{i}")
    g.eager(print, args=(), name="between", after=["k0"])
    plan = g.plan(target="nvidia:sm_90", batch=True)
    assert plan.cut is not None
    assert [plan.steps[plan.index[f"k{i}"]].batch for i in range(5)] == [-1, 0, 0, 0, 0]
    assert "4 kernel nodes become one launch" in plan.explain()


def test_marks_of_a_watched_plan_have_names_of_their_own() -> None:
    g = hg.Graph("tilde")
    for name in ("a", "a~", "~watch", "a~~"):
        g.empty(name=name)
    target = Target.named("cpu")
    plan = watched(make_plan(g.workflow(), target), target)
    names = [step.name for step in plan.steps]
    assert len(set(names)) == len(names) == 9


@pytest.mark.needs("bench")
def test_plan_with_other_steps_keeps_no_answer_that_depends_on_them() -> None:
    from hipgraphdsl.parts.bench.shapes import KERNELS

    g = hg.Graph("kept")
    for i in range(5):
        x = g.device_array(f"x{i}", shape=32, dtype="float32")
        g.kernel(KERNELS["axpy"], 1, 32, (x, x, 32), name=f"k{i}")
    g.eager(print, args=(), name="between", after=["k0"])
    plan = g.plan(target="nvidia:sm_90", batch=True)
    answers = [name for name, value in vars(Plan).items() if isinstance(value, cached_property)]
    assert len(answers) > 5
    for name in answers:
        getattr(plan, name)
    alone = {step.index: step.in_batch(-1)._replace(by_host=False) for step in plan.steps}
    assert [alone[i] for i in alone] == [step._replace(batch=-1, by_host=False) for step in plan.steps]
    changed, afresh = plan.with_steps(alone), replace(plan, steps=tuple(alone.values()))
    for name in answers:
        assert getattr(changed, name) == getattr(afresh, name), name
    assert (changed.cut, len(changed.runs[1])) == (None, 1)


def test_plan_with_steps_replaces_any_number_of_them_one_by_one_and_copies_none_before_they_are_read() -> None:
    g = hg.Graph("edited")
    for i in range(7):
        g.empty(name=f"e{i}")
    plan = g.plan(target="amd:gfx942")
    wanted, kept, drawn = list(plan.steps), [(plan, plan.steps)], random.Random(7)
    for number in range(300):
        edits = {i: wanted[i]._replace(origin=(f"{number}",)) for i in drawn.sample(range(7), drawn.randint(1, 3))}
        plan = plan.with_steps(edits)
        assert "steps" not in vars(plan)
        for i, step in edits.items():
            wanted[i] = step
        assert [plan.step(i) for i in range(7)] == wanted
        if drawn.random() < 0.1:
            assert plan.steps == tuple(wanted)
            assert plan == replace(plan, steps=tuple(wanted))
            assert pickle.loads(pickle.dumps(plan)).steps == plan.steps
        kept.append((plan, tuple(wanted)))
    for known, steps in kept:  # no plan changes with those that were made of it
        assert (known.steps, known.edges) == (steps, kept[0][0].edges)
