"""Any-order launches: which kernels of a lane may overlap, the calls that say so, and where they are refused or left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.defects import with_quirks
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.plan.steps import Plan

RDNA = "amd:gfx1100@7.15"
MODULE = hg.Module(
    """
extern "C" __global__ void put(int *x, int v) { x[threadIdx.x] = v; }
extern "C" __global__ void add(const int *x, int *y) { y[threadIdx.x] += x[threadIdx.x]; }
""",
    name="any_order",
)
PUT, ADD = MODULE["put"], MODULE["add"]


def arrays(g: hg.Graph, count: int) -> list[Any]:
    return [g.device_array(f"x{i}", shape=4, dtype="i4") for i in range(count)]


def independent(count: int = 6) -> hg.Graph:
    """Kernels that nothing orders, and one that reads what the first has written."""
    g = hg.Graph("independent")
    xs = arrays(g, count)
    for i, x in enumerate(xs):
        g.kernel(PUT, 1, 4, (x, i), name=f"put{i}")
    g.kernel(ADD, 1, 4, (xs[0], xs[1]), name="add")
    return g


def marked(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps if step.any_order]


def planned(g: hg.Graph, lanes: Any = 1, **options: Any) -> Plan:
    return make_plan(g.workflow(), hg.Target.named(RDNA), lanes=lanes, any_order=True, **options)


def launches(exe: hg.Executable) -> list[str]:
    runtime = exe.runtime
    assert isinstance(runtime, RecorderRuntime)
    names = {"hipModuleLaunchKernel": "in order", "hipExtModuleLaunchKernel": "any order"}
    return [names[call.api] for call in runtime.calls if call.api in names]


def test_kernels_in_the_midst_of_a_lane_begin_in_any_order_until_one_needs_another() -> None:
    plan = planned(independent())
    assert marked(plan) == [f"put{i}" for i in range(1, 6)]
    assert (
        "5 kernels begin without waiting for those before them in the same lane, because no edge requires it (any order)."
        in plan.notes
    )
    assert marked(make_plan(independent().workflow(), hg.Target.named(RDNA), lanes=1)) == []


def test_a_launch_that_keeps_its_barrier_begins_the_next_run() -> None:
    g = hg.Graph("two runs")
    x, *others = arrays(g, 6)
    for i, y in enumerate(others):
        g.kernel(PUT, 1, 4, (y, i), name=f"a{i}")
    g.kernel(PUT, 1, 4, (x, 9), name="b0")
    for i, y in enumerate(others):
        g.kernel(ADD, 1, 4, (x, y), name=f"c{i}")
    assert marked(planned(g)) == ["a1", "a2", "a3", "a4", "b0", "c1", "c2", "c3"]  # c0 keeps it for all, c4 is the last


@pytest.mark.parametrize("what", ["copy", "fill", "host", "empty", "event", "cooperative", "priority"])
def test_what_is_no_plain_launch_parts_a_chain(what: str) -> None:
    g = hg.Graph("parted")
    xs = arrays(g, 8)
    host = g.host_array("host", shape=4, dtype="i4")
    for i, x in enumerate(xs):
        if i == 4 and what == "copy":
            g.memcpy(host, g.device_array("y", shape=4, dtype="i4"))
        elif i == 4 and what == "fill":
            g.memset(g.device_array("y", shape=4, dtype="i4"), 0)
        elif i == 4 and what == "host":
            g.host(lambda values: None, args=(host,))
        elif i == 4 and what == "empty":
            g.empty(name="nothing")
        elif i == 4 and what == "event":
            g.record(hg.Event("e"))
        elif i == 4:
            attributes: dict[str, Any] = {what: True if what == "cooperative" else -1}
            g.kernel(PUT, 1, 4, (g.device_array("y", shape=4, dtype="i4"), 1), **attributes)
        g.kernel(PUT, 1, 4, (x, i), name=f"put{i}")
    assert marked(planned(g)) == ["put1", "put2", "put5", "put6"]


def test_declared_edges_count_as_those_of_hazards_do() -> None:
    g = hg.Graph("declared")
    xs = arrays(g, 6)
    for i, x in enumerate(xs):
        g.kernel(PUT, 1, 4, (x, i), name=f"put{i}", after=["put1"] if i == 3 else [])
    assert marked(planned(g)) == ["put1", "put2", "put4"]  # put3 follows put1, and waits for all before it


def test_an_edge_that_the_lane_implies_counts_though_the_plan_has_left_it_out() -> None:
    g = hg.Graph("implied")
    x, y, *others = arrays(g, 6)
    g.kernel(PUT, 1, 4, (x, 1), name="first")
    for i, other in enumerate(others):
        g.kernel(PUT, 1, 4, (other, i), name=f"between{i}")
    g.kernel(ADD, 1, 4, (x, y), name="reads")
    g.kernel(PUT, 1, 4, (others[0], 5), name="last")
    plan = planned(g)
    assert plan.steps[plan.index["reads"]].deps == (plan.index["between3"],)
    assert "reads" not in marked(plan)
    assert "between1" in marked(plan)


def test_launches_that_another_lane_follows_or_that_follow_one_keep_their_barrier() -> None:
    g = hg.Graph("lanes")
    xs = arrays(g, 12)
    for i, x in enumerate(xs):
        g.kernel(PUT, 1, 4, (x, i), name=f"put{i}")
    for i in range(4):
        g.kernel(ADD, 1, 4, (xs[i], xs[11 - i]), name=f"add{i}")
    for i, x in enumerate(xs):
        g.kernel(PUT, 1, 4, (x, -i), name=f"again{i}")
    plan = planned(g, 3)
    assert len(marked(plan)) > 2
    for step in plan.steps:
        if step.any_order:
            (before,), (behind,) = step.deps, plan.successors[step.index]
            assert {plan.steps[before].lane, plan.steps[behind].lane} == {step.lane}
            assert plan.successors[before] == plan.steps[behind].deps == (step.index,)


def test_a_chain_ends_where_another_device_goes_on() -> None:
    g = hg.Graph("devices")
    for name, device in (("here", 0), ("there", 1)):
        for i in range(4):
            x = g.device_array(f"{name}{i}", shape=4, dtype="i4", device=device)
            g.kernel(PUT, 1, 4, (x, i), name=f"put_{name}{i}", after=["put_here3"] if name == "there" else [])
    assert marked(planned(g)) == ["put_here1", "put_here2", "put_there1", "put_there2"]


def test_nothing_is_batched_beside_any_order_launches() -> None:
    target = hg.Target.named(RDNA)
    saves = replace(target, costs=replace(target.costs, batched_us=1.0, entry_us=0.0))
    assert make_plan(independent(64).workflow(), saves).batches
    assert not make_plan(independent(64).workflow(), saves, any_order=True).batches


def test_as_declared_no_kernel_begins_in_any_order() -> None:
    plan = planned(independent(), None)
    assert marked(plan) == []
    assert "No kernel begins in any order: in each lane all wait for each other (lanes=1 gathers independent ones)." in plan.notes


def test_a_host_in_the_midst_of_a_graph_keeps_all_in_order() -> None:
    g = independent()
    g.eager(lambda stream: None, name="python")
    plan = planned(g)
    assert marked(plan) == []
    assert "No kernel begins in any order: the host has something to do in the midst of the graph." in plan.notes


@pytest.mark.parametrize("backend", ["capture", "streams"])
def test_any_order_launches_are_the_calls_that_the_plan_says(backend: Any) -> None:
    with independent().compile(RecorderRuntime(target=RDNA), backend, lanes=1, any_order=True) as exe:
        exe.launch()
        assert launches(exe) == ["in order", *["any order"] * 5, "in order"]
    with independent().compile(RecorderRuntime(target=RDNA), backend, lanes=1) as exe:
        exe.launch()
        assert launches(exe) == ["in order"] * 7


@pytest.mark.parametrize("backend", ["capture", "streams"])
@pytest.mark.parametrize("node", ["put0", "put3", "add"])
def test_disable_in_a_chain_gives_all_launches_their_barrier(backend: Any, node: str) -> None:
    with independent().compile(RecorderRuntime(target=RDNA), backend, lanes=1, any_order=True) as exe:
        exe.launch()
        before = len(launches(exe))
        exe.disable(node)
        exe.launch()
        assert launches(exe)[before:] == ["in order"] * 6
        exe.enable(node)
        assert marked(exe.plan) == []


@pytest.mark.parametrize("backend", ["capture", "streams"])
def test_disable_beside_chains_leaves_them_alone(backend: Any) -> None:
    g = independent()
    g.memset(g.device_array("y", shape=4, dtype="i4"), 1, name="fill")
    with g.compile(RecorderRuntime(target=RDNA), backend, lanes=1, any_order=True) as exe:
        exe.disable("fill")
        assert len(marked(exe.plan)) == 5


def test_clone_and_rebuild_keep_what_is_in_order() -> None:
    g = independent()
    with g.compile(RecorderRuntime(target=RDNA), "streams", lanes=1, any_order=True) as exe:
        exe.disable("put2")
        with exe.clone() as twin:
            before = len(launches(twin))
            twin.launch()
            assert launches(twin)[before:] == ["in order"] * 6
        g.kernel(PUT, 1, 4, (g.arrays["x5"], 3), name="more")
        exe.update(g, rebuild=True)
        before = len(launches(exe))
        exe.launch()
        assert launches(exe)[before:] == ["in order"] * 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"backend": "explicit"},
            "backend 'explicit' adds nodes to a graph, which have no such flag; compile with backend=",
        ),
        ({"backend": "serial"}, "backend 'serial' waits after each node; compile with backend="),
        ({"batch": True}, "any_order=True and batch=True exclude each other"),
        ({"any_order": 2}, "any_order is True or False (got 2)"),
        (
            {"runtime": RecorderRuntime(target="nvidia:sm_90")},
            "and nvidia:sm_90 has none; leave it out, or",
        ),
        ({"runtime": RecorderRuntime(target="cpu")}, "and cpu has none; leave it out, or compile with runtime='amd'"),
    ],
    ids=lambda given: ", ".join(given) if isinstance(given, dict) else "",
)
def test_any_order_is_refused_where_no_launch_can_have_it(options: dict[str, Any], said: str) -> None:
    runtime = RecorderRuntime(target=RDNA)
    with pytest.raises(hg.DeclarationError) as raised:
        independent().compile(**{"runtime": runtime, "backend": "capture", "any_order": True, **options})
    assert said in str(raised.value)
    assert runtime.live == {}


@pytest.mark.parametrize(
    ("target", "backend", "why"),
    [
        ("amd:gfx1100@7.2", "capture", "amd:gfx1100@7.2 drops the flag where it captures a launch (backend='streams' keeps it)"),
        ("amd:gfx942@7.15", "streams", "amd:gfx942@7.15 runs the kernels of a queue one after another"),
        ("amd:gfx1100@7.2", "streams", ""),
        ("amd:gfx1100@7.15", "capture", ""),
    ],
)
def test_any_order_is_left_out_where_it_has_no_effect(target: str, backend: Any, why: str) -> None:
    runtime = RecorderRuntime(target=with_quirks(hg.Target.named(target)))
    with independent().compile(runtime, backend, lanes=1, any_order=True) as exe:
        exe.launch()
        assert ("any order" in launches(exe)) == (not why)
        assert (f"any_order=True is left out, because {why}" in exe.plan.explain()) == bool(why)


def test_watch_leaves_any_order_out() -> None:
    with independent().compile(RecorderRuntime(target=RDNA), "capture", lanes=1, any_order=True, watch=True) as exe:
        exe.launch()
        assert "any order" not in launches(exe)


def test_set_keeps_what_may_begin_in_any_order() -> None:
    with independent().compile(RecorderRuntime(target=RDNA), "streams", lanes=1, any_order=True) as exe:
        exe.set("put3", args=(exe.workflow.arrays["x3"], 7))
        exe.launch()
        assert launches(exe) == ["in order", *["any order"] * 5, "in order"]


@pytest.mark.parametrize("any_order", [True, False])
def test_an_exported_program_launches_as_the_plan_says(tmp_path: Path, any_order: bool) -> None:
    path = tmp_path / "independent.hip"
    independent().export(path, backend="capture", lanes=1, any_order=any_order)
    text = path.read_text()
    assert text.count('launch_any_order(stream[0], "put') == 5 * any_order
    assert ("hipExtLaunchKernel" in text) == any_order
    with pytest.raises(hg.DeclarationError, match="backend 'explicit' adds nodes"):
        independent().export(path, any_order=True)
