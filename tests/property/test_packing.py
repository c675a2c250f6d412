"""Arrays of alloc nodes that share memory: never two that may live at once, and the same results as apart."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.runtimes import open_runtime

SOURCE = r"""
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)x[i] + (unsigned)k);
}
"""
MODULE = hg.Module(SOURCE, name="packing")
N = 8
BACKENDS = ("explicit", "capture", "streams", "serial")


@st.composite
def programs(draw: Any) -> list[tuple[int, int, int]]:
    """Return (array written, array read, number) of each kernel; arrays below 0 last, the others are temporaries."""
    count = draw(st.integers(1, 14))
    temporaries = draw(st.integers(2, 6))
    return [
        (draw(st.integers(-2, temporaries - 1)), draw(st.integers(-2, temporaries - 1)), draw(st.integers(0, 9)))
        for _ in range(count)
    ]


def declared(program: list[tuple[int, int, int]], sizes: list[int]) -> hg.Graph:
    """Return a graph in which each temporary is made before its first use and freed after its last."""
    g = hg.Graph("random")
    arrays: dict[int, Any] = {i: g.device_array(f"x{-i}", np.arange(N, dtype="i4") + 100 * i) for i in (-1, -2)}
    last = {i: n for n, (to, origin, _) in enumerate(program) for i in (to, origin)}
    for n, (to, origin, k) in enumerate(program):
        for i in dict.fromkeys((origin, to)):
            if i not in arrays:
                arrays[i] = g.alloc(f"t{i}", sizes[i % len(sizes)], "i4")
                g.memset(arrays[i], i)
        if to != origin:
            g.kernel(MODULE["mix"], 1, N, (hg.writes(arrays[to][:N]), arrays[origin][:N], k, N), name=f"k{n}")
        for i in dict.fromkeys((to, origin)):
            if i >= 0 and last[i] == n:
                g.free(arrays[i])
    return g


def results(exe: hg.Executable) -> list[bytes]:
    return [exe.read(name).tobytes() for name in ("x1", "x2")]


def uses(plan: hg.Plan, array: Any) -> set[int]:
    return {step.index for step in plan.steps if any(access.view.root is array for access in step.node.accesses)}


def check_sound(plan: hg.Plan) -> None:
    """Any two arrays whose bytes meet must have uses that the plan orders, one array's before all of the other's."""
    packing = plan.packing
    if packing is None:
        return
    dag: nx.DiGraph[int] = nx.DiGraph()
    dag.add_nodes_from(range(len(plan.steps)))
    dag.add_edges_from((source, step.index) for step in plan.steps for source in step.deps)
    after = {i: nx.descendants(dag, i) for i in dag}
    assert packing.saved_nbytes > 0
    for n, one in enumerate(packing.arrays):
        assert one.offset % 256 == 0
        assert one.offset + one.array.nbytes <= packing.nbytes
        for other in packing.arrays[:n]:
            if one.offset < other.offset + other.array.nbytes and other.offset < one.offset + one.array.nbytes:
                a, b = uses(plan, one.array), uses(plan, other.array)
                assert all(after[s] >= b for s in a) or all(after[s] >= a for s in b)
    packed = {one.array for one in packing.arrays}
    assert not packed & {getattr(step.node, "array", None) for step in plan.steps}, "their nodes are left out"
    assert len(packing.nodes) == 2 * len(packed)


SIZES = st.lists(st.sampled_from([N, 64, 65, 300, 1000]), min_size=1, max_size=4)


@settings(max_examples=150)
@given(program=programs(), sizes=SIZES, lanes=st.sampled_from(["auto", None, 1, 2]))
def test_arrays_that_meet_are_never_alive_at_once(program: list[tuple[int, int, int]], sizes: list[int], lanes: Any) -> None:
    check_sound(declared(program, sizes).plan(target="cpu", lanes=lanes))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(program=programs(), sizes=SIZES)
def test_results_are_those_without_sharing(backend: Any, program: list[tuple[int, int, int]], sizes: list[int]) -> None:
    g = declared(program, sizes)
    runtime = open_runtime("cpu")
    with g.compile(runtime, backend) as packed, g.compile(runtime, backend, plan=hg.PlanOptions(pack=False)) as apart:
        assert apart.plan.packing is None
        for _ in range(2):
            packed.run()
            apart.run()
            assert results(packed) == results(apart)
        packed.profile()
        apart.run()
        with packed.clone() as twin:
            twin.run()
            apart.run()
            assert results(twin) == results(apart)


@settings(max_examples=40)
@given(program=programs(), sizes=SIZES, seed=st.integers(0, 2**32))
def test_any_order_that_the_plan_allows_gives_the_same(program: list[tuple[int, int, int]], sizes: list[int], seed: int) -> None:
    g = declared(program, sizes)
    runtime: Any = open_runtime("cpu")
    with g.compile(runtime) as packed, g.compile(runtime, plan=hg.PlanOptions(pack=False)) as apart:
        apart.run()
        try:
            runtime.set_schedule(seed, 1)
            packed.run()
        finally:
            runtime.set_schedule(0, 0)
        assert results(packed) == results(apart)


def chain(length: int, n: int = 64) -> hg.Graph:
    g = hg.Graph("chain")
    x, out = g.device_array("x", np.arange(N, dtype="i4")), g.host_array("out", shape=N, dtype="i4")
    before: Any = x
    for i in range(length):
        made = g.alloc(f"t{i}", n, "i4")
        g.kernel(MODULE["mix"], 1, N, (hg.writes(made[:N]), before[:N], i, N), name=f"k{i}")
        if i:
            g.free(before)
        before = made
    g.memcpy(out, before[:N], name="out")
    g.free(before)
    return g


def test_a_chain_of_temporaries_takes_two_of_them() -> None:
    plan = chain(10, 256).plan(target="cpu")
    assert plan.packing is not None
    assert (plan.packing.nbytes, plan.packing.apart_nbytes, plan.packing.saved_nbytes) == (2048, 10240, 8192)
    assert "10 arrays of alloc nodes share 2048 bytes, 8192 fewer than apart" in plan.explain()
    assert chain(10).plan(target="cpu", options=hg.PlanOptions(pack=False)).packing is None


def test_what_saves_nothing_stays_memory_of_the_graph() -> None:
    g = hg.Graph("g")
    a, b = g.alloc("a", N, "i4"), g.alloc("b", N, "i4")
    g.memset(a, 1)
    g.memcpy(b, a)
    g.free(a)
    g.free(b)
    plan = g.plan(target="cpu")
    assert plan.packing is None
    assert len(plan.steps) == len(g)


@pytest.mark.parametrize("left", ["freed by nobody", "used after its free"])
def test_an_array_without_an_end_shares_with_none(left: str) -> None:
    g = hg.Graph("g", infer=False)
    before: tuple[hg.Node, ...] = ()
    for i in range(2):
        array = g.alloc(f"t{i}", 64, "i4", after=before)
        use = g.memset(array, i, after=[array])
        before = (use,)
        if left == "used after its free":
            before = (g.memset(array, 5, after=[g.free(array, after=[use])]),)
    assert g.plan(target="cpu").packing is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_node_that_is_set_to_use_another_temporary_packs_them_anew(backend: Any) -> None:
    g = chain(6)
    with g.compile("cpu", backend) as exe:
        exe.run()
        wanted = exe.read("out")
        # k5 now reads t3, which therefore lives longer, beside t4.
        t3, t5 = (exe.workflow.arrays[name].as_view() for name in ("t3", "t5"))
        free_t3 = exe.workflow.nodes[exe.workflow.index["free_t3"]]
        with pytest.raises(hg.UpdateError, match="no path orders them"):
            exe.set("k5", args=(hg.writes(t5[:N]), t3[:N], 5, N))
        assert isinstance(free_t3, hg.FreeNode)
        exe.set("k4", args=(hg.writes(exe.workflow.arrays["t4"].as_view()[:N]), t3[:N], 40, N))
        exe.run()
        assert exe.read("out").tolist() != wanted.tolist()
        check_sound(exe.plan)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_set_that_lengthens_a_life_moves_what_shared_with_it(backend: Any) -> None:
    """`look` reads `a` at first and then `b`, beside which `c` had lain."""
    g = hg.Graph("g")
    out = g.host_array("out", shape=N, dtype="i4")
    a, b, c = (g.alloc(name, N, "i4") for name in "abc")
    g.memset(a, 1, name="one")
    g.memset(b, 2, name="two", after=["one"])
    g.memset(c, 3, name="three", after=["two"])
    g.memcpy(out, a, name="look", after=["three"])
    for array in (a, b, c):
        g.free(array, after=["look"])
    with g.compile("cpu", backend) as exe:
        for name, value in (("a", 1), ("b", 2), ("c", 3), ("a", 1)):
            exe.set("look", src=exe.workflow.arrays[name].as_view())
            exe.run()
            assert exe.read("out").tolist() == [value] * N, name
            check_sound(exe.plan)


def test_nodes_of_planned_memory_cannot_be_changed() -> None:
    with chain(4).compile("cpu") as exe:
        for name in ("alloc_t1", "free_t1"):
            for change in (exe.disable, exe.enable, exe.set):
                with pytest.raises(hg.UpdateError, match=f"node '{name}' makes or returns memory that others use"):
                    change(name)


def test_order_through_a_node_that_is_left_out_stays() -> None:
    g = hg.Graph("g", infer=False)
    out = g.device_array("out", shape=N, dtype="i4")
    last: Any = g.memset(out, 1, name="first")
    for i in range(2):
        array = g.alloc(f"t{i}", N, "i4", after=[last])
        last = g.free(array, after=[g.memset(array, i, after=[array])])
    g.memset(out, 2, name="second", after=[last])
    plan = g.plan(target="cpu")
    assert [(step.name, step.deps) for step in plan.steps] == [
        ("first", ()),
        ("memset_t0", (0,)),
        ("memset_t1", (1,)),
        ("second", (2,)),
    ]


def test_launches_on_streams_have_memory_of_their_own() -> None:
    with chain(4).compile("cpu", "streams") as exe:
        assert exe.plan.packing is None


def test_children_that_allocate_share_among_themselves() -> None:
    child = hg.Graph("child")
    x = child.device_array("x", shape=N, dtype="i4")
    t = child.alloc("t", 64, "i4")
    child.kernel(MODULE["mix"], 1, N, (hg.writes(t[:N]), x, 1, N))
    child.memcpy(x, t[:N])
    child.free(t)
    g = hg.Graph("parent")
    y = g.device_array("y", np.arange(N, dtype="i4"))
    for i in range(3):
        g.child(child, bind={"x": y}, name=f"c{i}")
    plan = g.plan(target="cpu")
    assert plan.packing is not None
    assert ([array.name for array in plan.packing.arrays], plan.packing.nbytes) == (["c0/t", "c1/t", "c2/t"], 256)
    values = np.arange(N, dtype="i8")
    for _ in range(3):
        values = 31 * values + 1
    for backend in BACKENDS:
        with g.compile("cpu", backend) as exe:  # type: ignore[arg-type]  # each of them is one
            exe.run()
            assert exe.read("y").tolist() == values.tolist()


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_uses_a_temporary_can_be_changed_before_the_first_launch(backend: Any, pack: bool) -> None:
    g = hg.Graph("g")
    p = g.param("p", "int32", 1)
    out, x = g.host_array("out", shape=N, dtype="i4"), g.device_array("x", np.full(N, 9, "i4"))
    y = g.alloc("y", N, "i4")
    g.memset(y, p, name="fill")
    g.memcpy(out, y, name="look")
    g.free(y)
    with g.compile("cpu", backend, plan=hg.PlanOptions(pack=pack)) as exe:
        exe.disable("look")
        exe.set("look", src=exe.workflow.arrays["x"])
        exe.enable("look")
        exe.run(p=5)
        assert exe.read("out").tolist() == np.asarray(x.initial).tolist()
        exe.set("look", src=exe.workflow.arrays["y"].as_view())
        exe.run(p=6)
        assert exe.read("out").tolist() == [6] * N
        exe.disable("look")
        exe.run(p=7)
        assert exe.read("out").tolist() == [6] * N
        exe.enable("look")
        exe.run()
        assert exe.read("out").tolist() == [7] * N


def test_the_block_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = open_runtime("cpu")
    before = runtime.mem_get_info()[0]
    n = 1 << 20
    g = chain(4, n)
    with g.compile(runtime) as exe:
        assert exe.stats.device_bytes >= 2 * 4 * n
        exe.run()
    assert runtime.mem_get_info()[0] >= before - math.ceil(4 * n / 2)
