"""Graphs over several ranks: who does what, what crosses, and what happens when a rank fails."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from thread_ranks import on_ranks

import hipgraphdsl as hg
from hipgraphdsl.nodes.children import ConditionalNode
from hipgraphdsl.parts.ranks import ranked
from hipgraphdsl.parts.ranks.partition import Part, partition
from hipgraphdsl.parts.ranks.sharing import Between, Layout, Sharing, crossing
from hipgraphdsl.parts.ranks.transports.nccl import does

SOURCE = r"""
extern "C" __global__ void add(int* x, int k) { x[threadIdx.x] += k; }
extern "C" __global__ void sum(int* y, const int* x) { y[threadIdx.x] += x[threadIdx.x]; }
"""
MODULE = hg.Module(SOURCE, name="ranks")
N = 8


def ring(size: int = 2, rounds: int = 2) -> hg.Graph:
    """Every device adds its number and hands the values on."""
    g = hg.Graph("ring")
    x = [g.device_array(f"x{d}", np.zeros(N, np.int32), device=d) for d in range(size)]
    a = g.param("a", "int32", default=1)
    out = g.host_array("out", shape=N, dtype="int32")
    for r in range(rounds):
        for d in range(size):
            g.kernel(MODULE["add"], 1, N, (x[d], a), name=f"add_{r}_{d}")
            if size > 1:
                g.memcpy(x[(d + 1) % size], x[d], name=f"hand_{r}_{d}")
    g.memcpy(out, x[0], name="out")
    return g


def parts_of(g: hg.Graph, *counts: int) -> list[Part]:
    sharing = Sharing(g.workflow(), Layout(counts))
    return [partition(sharing, rank, lambda messages, direct: print) for rank in range(len(counts))]


def names(part: Part) -> list[str]:
    return [node.name for node in part.workflow.nodes]


@pytest.mark.parametrize(("size", "passes"), [(1, 1), (2, 1), (3, 1), (4, 1), (3, 2)])
def test_ring_gives_the_values_of_one_process(size: int, passes: int) -> None:
    def run(ranks: hg.Ranks) -> Any:
        graph = ring(size) if passes == 1 else ring(size).repeat(passes)
        with graph.compile("cpu", ranks=ranks) as exe:
            exe.run(a=3)
            exe.run(a=4)
            return exe.read("out").tolist() if ranks.rank == 0 else exe.stats.launches

    found = on_ranks(size, run)
    assert found == [[(3 + 4) * 2 * size * passes] * N] + [2] * (size - 1)


def test_each_rank_holds_its_own_nodes_and_arrays() -> None:
    first, second = parts_of(ring(), 1, 1)
    assert names(first) == ["add_0_0", "hand_0_0", "hand_0_1", "add_1_0", "hand_1_0", "hand_1_1", "out"]
    assert names(second) == ["hand_0_0", "add_0_1", "hand_0_1", "hand_1_0", "add_1_1", "hand_1_1"]
    assert set(first.workflow.arrays) == {"x0", "out"}
    assert set(second.workflow.arrays) == {"x1"}
    assert all(array.device in (None, 0) for part in (first, second) for array in part.workflow.arrays.values())
    exchanges = [i for i, node in enumerate(first.workflow.nodes) if node.kind == "eager"]
    assert all(before in first.workflow.predecessors[i] for before, i in pairwise(exchanges))  # in one order on all ranks
    assert crossing(first.messages) == {(0, 1): (2, 64), (1, 0): (2, 64)}
    assert first.messages == second.messages


def test_several_devices_of_a_rank_keep_their_copies() -> None:
    first, second = parts_of(ring(4, 1), 2, 2)
    kinds = [{node.name: node.kind for node in part.workflow.nodes} for part in (first, second)]
    assert [kind["hand_0_0"] for kind in kinds[:1]] == ["memcpy"]
    assert (kinds[0]["hand_0_1"], kinds[1]["hand_0_1"]) == ("eager", "eager")
    assert [array.device for array in second.workflow.arrays.values()] == [0, 1]


def test_neighbouring_messages_go_together() -> None:
    """Those that do not depend on each other, and have no other work between them."""
    g = hg.Graph("halo")
    x = [g.device_array(f"x{d}", shape=(4, N), dtype="int32", device=d) for d in range(3)]
    for d in range(2):
        g.memcpy(x[d + 1][0], x[d][2], name=f"down_{d}")
        g.memcpy(x[d][3], x[d + 1][1], name=f"up_{d}")
    _, middle, _ = parts_of(g, 1, 1, 1)
    assert names(middle) == ["down_0 and 3 more"]
    node = middle.workflow.nodes[0]
    assert [view.name for view in node.reads] == ["x1[1, 0:8]", "x1[2, 0:8]"]
    assert sorted(view.name for view in node.writes) == ["x1[0, 0:8]", "x1[3, 0:8]"]


def test_stages_of_a_pipeline_are_not_held_together() -> None:
    g = hg.Graph("pipeline")
    for batch in range(3):
        x = [g.device_array(f"x{batch}_{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        g.kernel(MODULE["add"], 1, N, (x[0], batch), name=f"first_{batch}")
        g.memcpy(x[1], x[0], name=f"hand_{batch}")
        g.kernel(MODULE["add"], 1, N, (x[1], batch), name=f"second_{batch}")
    first, second = parts_of(g, 1, 1)
    assert names(first) == [name for b in range(3) for name in (f"first_{b}", f"hand_{b}")]
    assert names(second) == [name for b in range(3) for name in (f"hand_{b}", f"second_{b}")]


def test_views_with_gaps_are_packed() -> None:
    g = hg.Graph("columns")
    x = [g.device_array(f"x{d}", np.arange(24).reshape(4, 6), dtype="int32", device=d) for d in range(2)]
    g.memcpy(x[1][:, 0:2], x[0][:, 4:6], name="columns")
    first, second = parts_of(g, 1, 1)
    assert names(first) == ["columns (pack)", "columns"]
    assert names(second) == ["columns", "columns (unpack)"]
    assert first.workflow.predecessors == ((), (0,))
    longer = hg.Graph.from_workflow(g.workflow())
    longer.kernel(MODULE["add"], 1, N, (x[1][0:2], 1), name="behind")
    assert parts_of(longer, 1, 1)[1].workflow.predecessors == ((), (0,), (1,))

    def run(ranks: hg.Ranks) -> Any:
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x1", root=0)

    ((found,), _) = on_ranks(2, run)
    np.testing.assert_array_equal(found[:, 0:2], np.arange(24).reshape(4, 6)[:, 4:6])


def test_transport_that_reaches_no_device_goes_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def through_host(*args: Any, **options: Any) -> Part:
        return partition(*args, **{**options, "through_host": True})

    monkeypatch.setattr(ranked, "partition", through_host)

    def run(ranks: hg.Ranks) -> Any:
        with ring().compile("cpu", ranks=ranks) as exe:
            exe.run()
            staged = [name for name, array in exe.workflow.arrays.items() if array.kind == "host" and name != "out"]
            return exe.gather("out"), staged

    (((found,), staged), _) = on_ranks(2, run)
    assert found.tolist() == [4] * N
    assert staged == [f"hand_{r}_{d} (packed)" for r in range(2) for d in range(2)]


def test_declared_edges_order_ranks() -> None:
    """By messages without bytes; the first node takes its time."""
    came: list[str] = []

    def slow(h: Any) -> None:
        time.sleep(0.05)
        came.append("slow")

    def graph() -> hg.Graph:
        g = hg.Graph("order")
        a, b = (g.host_array(f"h{rank}", shape=1, dtype="int32", rank=rank) for rank in range(2))
        g.host(slow, (a,), name="slow")
        g.host(lambda h: came.append("behind"), (b,), name="behind", after=["slow"])
        return g

    def run(ranks: hg.Ranks) -> None:
        with graph().compile("cpu", ranks=ranks) as exe:
            exe.run()

    for _ in range(3):
        on_ranks(2, run)
    assert came == ["slow", "behind"] * 3
    assert [message.name for message in parts_of(graph(), 1, 1)[0].messages] == ["slow -> behind"]


@pytest.mark.parametrize("by_order", [True, False])
def test_declared_edges_order_ranks_whose_nodes_use_memory_of_their_own(by_order: bool) -> None:
    g = hg.Graph("both")
    common = g.host_array("common", np.zeros(1, np.int32), rank="all")
    own = [g.host_array(f"own_{rank}", np.zeros(1, np.int32), rank=rank) for rank in range(2)]
    g.host(print, (own[0], common), name="first")
    g.host(print, (own[1], common), name="second", after=() if by_order else ["first"])
    g.host(print, (own[0], common), name="third")  # waits for what its own rank does to `common`, which nobody declared
    if by_order:
        g.order("first", "second")
    first, second = parts_of(g, 1, 1)
    assert [message.name for message in first.messages] == ["first -> second"]
    assert names(first) == ["first", "first -> second", "third"]
    assert names(second) == ["first -> second", "second"]
    assert second.workflow.predecessors == ((), (0,))
    assert first.workflow.predecessors[:2] == ((), (0,))


@pytest.mark.parametrize("depth", [1, 2])
def test_declared_edges_in_children_order_ranks_whose_nodes_use_memory_of_their_own(depth: int) -> None:
    g = hg.Graph("both")
    common = g.host_array("common", np.zeros(1, np.int32), rank="all")
    own = [g.host_array(f"own_{rank}", np.zeros(1, np.int32), rank=rank) for rank in range(2)]
    g.host(print, (own[0], common), name="first")
    g.host(print, (own[1], common), name="second", after=["first"])
    for level in range(depth):
        outer = hg.Graph(f"outer_{level}")
        outer.child(g, name=f"held_{level}")
        g = outer
    before = "".join(f"held_{level}: " for level in reversed(range(depth)))
    assert [message.name for message in parts_of(g, 1, 1)[0].messages] == [f"{before}first -> {before}second"]


def test_declared_edges_order_ranks_whose_nodes_use_one_parameter() -> None:
    g, x = pair()
    p = g.param("p", "int32", shape=N)
    g.memcpy(p, x[0], name="first", device=0)
    g.memcpy(x[1], p, name="second", device=1, after=["first"])
    assert [message.name for message in parts_of(g, 1, 1)[0].messages] == ["first -> second"]


def test_joins_order_every_rank_that_waits_for_them() -> None:
    came: list[str] = []
    lock = threading.Lock()

    def note(what: str, pause_s: float, h: Any) -> None:
        time.sleep(pause_s)
        with lock:
            came.append(what)

    def run(ranks: hg.Ranks) -> None:
        g = hg.Graph("joins")
        h = [g.host_array(f"h{rank}", shape=1, dtype="int32", rank=rank) for rank in range(3)]
        first = [g.host(partial(note, "first", 0.03 * d), (h[d],), name=f"first_{d}") for d in range(3)]
        g.empty(name="join", after=first)
        for d in range(3):
            g.host(partial(note, "second", 0), (h[d],), name=f"second_{d}", after=["join"])
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()

    on_ranks(3, run)
    assert came == ["first"] * 3 + ["second"] * 3


def test_arrays_of_all_ranks() -> None:
    """Each has its own, and nodes that touch nothing else are done by each."""

    def run(ranks: hg.Ranks) -> Any:
        g = hg.Graph("own")
        h = g.host_array("h", np.arange(N), dtype="int32", rank="all")
        x = [g.device_array(f"x{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        seen: list[int] = []
        for d in range(2):
            g.memcpy(x[d], h, name=f"up_{d}")
            g.kernel(MODULE["add"], 1, N, (x[d], 10 * (d + 1)), name=f"add_{d}")
            g.memcpy(h, x[d], name=f"down_{d}")
        g.host(lambda h: seen.append(int(h[1])), (h,), name="look")
        g.eager(lambda stream, h: seen.append(int(h[1])), (h,), name="look again")
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.read("h").tolist(), seen, cast(hg.RankExecutable, exe).part.messages

    assert on_ranks(2, run) == [
        (list(range(10, 10 + N)), [11, 11], ()),
        (list(range(20, 20 + N)), [21, 21], ()),
    ]


def test_one_rank_alone_is_the_graph_as_it_is() -> None:
    ranks = hg.ranks()
    assert (ranks.rank, ranks.size, repr(ranks)) == (0, 1, "Ranks(0 of 1, by none)")
    with ring(1).compile("cpu", ranks=ranks) as exe:
        exe.run()
        assert exe.read("out").tolist() == [2] * N


def test_what_an_executable_says_of_itself_bears_the_rank() -> None:
    def run(ranks: hg.Ranks) -> str:
        with ring().compile("cpu", ranks=ranks) as exe:
            return exe.workflow.name

    assert on_ranks(2, run) == ["ring (rank 0 of 2)", "ring (rank 1 of 2)"]


# -- what is refused


def test_kernels_reach_no_other_rank() -> None:
    g = hg.Graph("across")
    x = [g.device_array(f"x{d}", shape=N, dtype="int32", device=d, access=[0, 1]) for d in range(2)]
    g.kernel(MODULE["sum"], 1, N, (x[0], hg.reads(x[1])), name="both")
    with pytest.raises(
        hg.DeclarationError, match=r"'both' touches 'x0' \(rank 0\), 'x1' \(rank 1\).*copy what it needs"
    ) as caught:
        parts_of(g, 1, 1)
    assert caught.value.node == "both"
    assert names(parts_of(g, 2)[0]) == ["both"]


def test_fault_of_one_rank_is_told_to_the_others() -> None:
    g = hg.Graph("faulty", infer=False)
    x = [g.device_array(f"x{d}", np.zeros(N, np.int32), device=d) for d in range(2)]
    y = g.device_array("y", np.zeros(N, np.int32), device=1)
    g.memcpy(x[1], x[0], name="hand")
    g.kernel(MODULE["sum"], 1, N, (y, hg.reads(x[1])), name="early")
    assert [d.code for d in g.check().errors] == ["HG201"]

    def run(ranks: hg.Ranks) -> Any:
        try:
            with g.compile("cpu", ranks=ranks) as exe:
                while True:
                    exe.run()
        except hg.HipGraphError as error:
            return error

    first, second = on_ranks(2, run)
    assert isinstance(second, hg.CheckError)
    assert "'early'" in str(second)
    assert isinstance(first, hg.RankError)
    assert "it cannot compile its part" in str(first)


@pytest.mark.parametrize(
    ("wrong", "refusing"),
    [({"backend": "bogus"}, (0, 1, 2)), ({"batch": "bogus"}, (0, 1, 2)), ({"batch": "bogus"}, (1,)), ({"lanes": 0}, (0, 2))],
)
def test_compile_that_ranks_refuse_leaves_them_together(wrong: dict[str, Any], refusing: tuple[int, ...]) -> None:
    def run(ranks: hg.Ranks) -> Any:
        with pytest.raises(hg.HipGraphError) as caught:
            ring(3).compile("cpu", ranks=ranks, **(wrong if ranks.rank in refusing else {}))
        with ring(3).compile("cpu", ranks=ranks) as exe:
            exe.run()
            return caught.value, exe.gather("x0")

    found = on_ranks(3, run)
    assert found[0][1][0].any()
    why = next(error for error, _ in found if isinstance(error, hg.DeclarationError))
    for rank, (error, _) in enumerate(found):
        if rank in refusing:
            assert str(error) == str(why)
        else:
            assert error.rank == refusing[0]
            said = f"rank {refusing[0]} has refused compile of 'ring': DeclarationError: {why}"
            assert str(error) == said


@pytest.mark.parametrize("refusing", [(1,), (0, 1, 2)])
def test_compile_and_update_that_ranks_refuse_before_they_compare_graphs_leave_them_together(refusing: tuple[int, ...]) -> None:
    def run(ranks: hg.Ranks) -> Any:
        errors = []
        runtime = "no such runtime" if ranks.rank in refusing else "cpu"
        with pytest.raises(hg.HipGraphError) as caught:
            ring(3).compile(runtime, ranks=ranks)  # type: ignore[arg-type]
        errors.append(str(caught.value))
        with ring(3).compile("cpu", ranks=ranks) as exe:
            with pytest.raises(hg.HipGraphError) as caught:
                exe.update("no graph" if ranks.rank in refusing else ring(3))  # type: ignore[arg-type]
            errors.append(str(caught.value))
            exe.run()
            return errors, exe.gather("x0")

    found = on_ranks(3, run)
    assert found[0][1][0].any()
    compiled, updated = found[1][0]
    for rank, (errors, _) in enumerate(found):
        if rank in refusing:
            assert errors == [compiled, updated]
        else:
            assert errors[0].startswith("rank 1 has refused compile of 'ring': ")
            assert errors[0].endswith(compiled)
            assert errors[1].startswith("rank 1 has refused update of 'ring': ")
            assert errors[1].endswith(updated)


def pair(shape: int | tuple[int, ...] = N) -> tuple[hg.Graph, list[hg.DeviceArray]]:
    """Return a graph with an array on each of two devices."""
    g = hg.Graph("outer")
    return g, [g.device_array(f"x{d}", np.full(shape, d, "int32"), device=d) for d in range(2)]


def test_child_of_one_rank_stays_a_child() -> None:
    child = hg.Graph("child")
    a, b = (child.device_array(name, shape=N, dtype="int32") for name in "ab")
    child.kernel(MODULE["sum"], 1, N, (a, hg.reads(b)), name="sum")
    g, x = pair()
    g.child(child, bind={"a": x[0]}, name="first")  # what is not bound is on the device that is compiled for
    g.child(child, bind={"a": x[1], "b": x[1]}, name="second")
    first, second = parts_of(g, 1, 1)
    assert (names(first), names(second)) == (["first"], ["second"])
    assert first.owners["first/b"] == 0
    assert [array.device for array in second.workflow.nodes[0].workflow.arrays.values()] == [0, 0]  # type: ignore[attr-defined]
    g.child(child, bind={"a": x[1], "b": x[0]}, name="two")
    with pytest.raises(hg.DeclarationError, match=r"node 'two: sum' touches 'x1' .rank 1., 'x0' .rank 0., and no code reaches"):
        parts_of(g, 1, 1)


def handing() -> hg.Graph:
    """Return a graph that adds on one device, hands over and adds on the other."""
    g = hg.Graph("handing")
    a, b = (g.device_array(name, shape=N, dtype="int32") for name in "ab")
    kept = g.device_array("kept", shape=N, dtype="int32", device=1)
    k = g.param("k", "int32", 3)
    g.kernel(MODULE["add"], 1, N, (a, k), name="one")
    g.memcpy(b, a, name="over")
    g.kernel(MODULE["add"], 1, N, (b, 5), name="two")
    g.memcpy(kept, b, name="keep")
    return g


def test_nodes_of_a_child_that_several_ranks_do_take_its_place() -> None:
    outer = hg.Graph("child of a child")
    u, v = (outer.device_array(name, shape=N, dtype="int32", device=d) for d, name in enumerate("uv"))
    outer.child(handing(), bind={"a": u, "b": v, "k": 4}, name="inner")
    g, x = pair((2, N))
    g.child(handing(), bind={"a": x[0][1], "b": x[1][0]}, name="first")
    g.child(outer, bind={"u": x[0][1], "v": x[1][1]}, name="deep")
    first, second = parts_of(g, 1, 1)
    assert names(first) == ["first: one", "first: over", "deep: inner: one", "deep: inner: over"]
    assert names(second) == ["first: over", "first: two", "first: keep", *(f"deep: inner: {n}" for n in ("over", "two", "keep"))]

    def run(ranks: hg.Ranks) -> Any:
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            exe.disable("deep/inner/two")
            exe.set("first/two", args=(x[1][0], 100))
            exe.run()
            for name, message in (
                ("first", "several ranks do child graph"),
                ("deep/inner/over", "copies from one rank to another"),
            ):
                with pytest.raises(hg.UpdateError, match=message):
                    exe.disable(name)
            with pytest.raises(hg.HipGraphError, match="has no node 'first: unknown'"):
                exe.disable("first/unknown")
            kept = exe.gather("first/kept", "deep/inner/kept")
            return kept if ranks.rank == 0 else exe.read("first/kept")

    (first_kept, deep_kept), own = on_ranks(2, run)
    assert (first_kept == 3 + 4 + 3 + 100).all()
    assert (own == first_kept).all()
    assert (deep_kept == 3 + 4 + 3 + 4).all()


def test_names_that_nodes_of_a_child_need_must_be_free() -> None:
    def declared(**more: Any) -> hg.Graph:
        g, x = pair()
        g.child(handing(), bind={"a": x[0], "b": x[1]}, name="child")
        g.all_reduce(x, name="sum")
        g.memset(x[0], 0, name=more.get("node", "free"))
        g.device_array(more.get("array", "free"), shape=N, dtype="int32")
        return g

    parts_of(declared(), 1, 1)
    for taken in ("child: over", "sum: copy_0_1"):
        with pytest.raises(hg.DeclarationError, match=f"'{taken}': what takes the place of a node that several ranks do needs"):
            parts_of(declared(node=taken), 1, 1)
    with pytest.raises(
        hg.DeclarationError, match="node 'child': several ranks do it, which needs the name of array 'child: kept'"
    ):
        parts_of(declared(array="child: kept"), 1, 1)


def test_packed_memory_has_a_name_of_its_own() -> None:
    def run(ranks: hg.Ranks) -> Any:
        g = hg.Graph("columns")
        x = [g.device_array(f"x{d}", np.full((4, 6), d + 1, np.int32), device=d) for d in range(2)]
        taken = g.device_array("columns (packed)", np.full(2, 7, np.int32))
        g.memcpy(x[1][:, 0:2], x[0][:, 4:6], name="columns")
        g.kernel(MODULE["add"], 1, 2, (taken, 1))
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x1", "columns (packed)")

    x, taken = on_ranks(2, run)[0]
    assert (x[:, 0:2] == 1).all()
    assert taken.tolist() == [8, 8]


def test_child_takes_arrays_of_the_same_shape_so_that_its_nodes_may_take_its_place() -> None:
    g, x = pair((1, N))
    with pytest.raises(hg.DeclarationError, match=r"node 'child': 'a' of the child is int32\[8\] .*; 'x0' is int32\[1, 8\]"):
        g.child(handing(), bind={"a": x[0], "b": x[1][0]}, name="child")
    g.child(handing(), bind={"a": x[0][0], "b": x[1][0]}, name="child")
    parts_of(g, 1, 1)


def test_conditional_node_of_one_rank_is_decided_by_its_device() -> None:
    def declared() -> hg.Graph:
        g, x = pair()
        left = g.device_array("left", np.full(1, 3, "int32"), device=1)
        body = hg.Graph("body")
        a, n = body.device_array("a", shape=N, dtype="int32"), body.device_array("n", shape=1, dtype="int32")
        body.kernel(MODULE["add"], 1, N, (a, 10), name="more")
        body.kernel(MODULE["add"], 1, 1, (n, -1), name="less")
        g.memcpy(x[1], x[0], name="in")
        g.conditional("while", left, body, bind={"a": x[1], "n": left}, name="loop", decide="device")
        g.memcpy(x[0], x[1], name="out")
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x0")

    first, second = parts_of(declared(), 1, 1)
    assert (names(first), names(second)) == (["in", "out"], ["in", "loop", "out"])
    assert (on_ranks(2, run)[0][0] == 30).all()


def looping(mode: str, condition: int, *, bodies: int = 1, decide: str = "auto") -> hg.Graph:
    """Return a graph whose conditional node hands values over between two devices, and sums them up."""
    g, x = pair()
    word = g.device_array("word", np.full(1, condition, "int32"), device=1)
    made = []
    for number in range(bodies):
        body = hg.Graph(f"body_{number}")
        y = [body.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        n, passes = body.device_array("n", shape=1, dtype="int32"), body.device_array("passes", np.zeros(1, "int32"), device=0)
        body.kernel(MODULE["add"], 1, 1, (n, -1), name="less")
        body.kernel(MODULE["add"], 1, N, (y[0], number + 1), name="more")
        body.memcpy(y[1], y[0], name="hand")
        body.all_reduce(y, "sum", name="sum")
        body.kernel(MODULE["add"], 1, 1, (passes, 1), name="count")
        made.append(body)
    bind = {"y0": x[0], "y1": x[1], "n": word}
    g.conditional(mode, word, made, bind=bind, name="until", decide=decide)  # type: ignore[arg-type]
    g.memcpy(x[0], x[1], name="behind")
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize(
    ("mode", "condition", "bodies", "gives", "passes"),
    [("while", 3, 1, 14, [3]), ("while", 0, 1, 1, [0]), ("if", 1, 2, 2, [1, 0]), ("if", 0, 2, 4, [0, 1]),
     ("switch", 2, 3, 6, [0, 0, 1]), ("switch", 7, 3, 1, [0, 0, 0])],
)  # fmt: skip
def test_bodies_that_several_ranks_do(
    mode: str, condition: int, bodies: int, gives: int, passes: list[int], backend: Any
) -> None:
    def run(ranks: hg.Ranks) -> Any:
        with looping(mode, condition, bodies=bodies).compile("cpu", backend, ranks=ranks) as exe:
            exe.run()
            return exe.gather("x0", *(f"until/{number}/passes" for number in range(bodies)))

    found = on_ranks(3, run)[0]  # the third has nothing to do but to decide alike
    assert (found[0] == gives).all(), found
    assert [int(count[0]) for count in found[1:]] == passes


@pytest.mark.parametrize("mode", ["while", "if"])
def test_update_by_an_equal_graph_is_in_place_where_messages_are_in_bodies(mode: str) -> None:
    """The functions that send them are made anew for each graph, and equal those of an equal one only."""

    def declared(elements: int = N) -> hg.Graph:
        g, x = pair()
        word = g.device_array("word", np.full(1, 1, "int32"), device=1)
        body = hg.Graph("body")
        y = [body.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        n = body.device_array("n", shape=1, dtype="int32", device=1)
        body.kernel(MODULE["add"], 1, 1, (n, -1), name="less")
        body.kernel(MODULE["add"], 1, N, (y[0], 1), name="more")
        body.memcpy(y[1][:elements], y[0][:elements], name="hand")
        body.all_reduce(y, "sum", name="sum")
        g.conditional(mode, word, body, bind={"y0": x[0], "y1": x[1], "n": word}, name="until")  # type: ignore[arg-type]
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            exe.run()
            exe.update(declared())
            exe.write("word", np.full(1, 1, "int32"))
            exe.run()
            with pytest.raises(hg.UpdateError, match="what crosses between ranks is fixed"):
                exe.update(declared(N - 1))
            return exe.gather("x0", "x1")

    for array in on_ranks(2, run)[0]:
        assert array.tolist() == [6] * N


def test_children_in_bodies_that_several_ranks_do() -> None:
    """Their arrays bear the names that they have in one process, and so does what is said of their nodes."""

    def declared() -> hg.Graph:
        g, x = pair()
        word = g.device_array("word", np.full(1, 2, np.int32), device=1)
        body = hg.Graph("body")
        y = [body.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        left = body.device_array("left", shape=1, dtype="int32")
        body.kernel(MODULE["add"], 1, 1, (left, -1))
        body.child(handing(), bind={"a": y[0], "b": y[1]}, name="child")
        g.conditional("while", word, body, bind={"y0": x[0], "y1": x[1], "left": word}, name="loop")
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            exe.run()
            for name in ("loop/0/child", "loop/0/child/one", "loop/0/child/over"):
                with pytest.raises(hg.UpdateError, match="is in a body of conditional node 'loop'"):
                    exe.disable(name)
            assert isinstance(exe, hg.RankExecutable)
            assert [name for name in exe.part.owners if name.endswith("kept")] == ["loop/0/child: kept"]
            if ranks.rank == 1:
                assert exe.read("loop/0/child/kept").tolist() == [11] * N
            return exe.gather("loop/0/child/kept", "x0")

    assert [array[0] for array in on_ranks(2, run)[0]] == [11, 6]


def test_what_tells_ranks_the_condition_crosses_before_and_in_a_loop() -> None:
    first, second = parts_of(looping("while", 3), 1, 1)
    assert [m[1:4] for m in first.messages][:2] == [("until (condition to rank 0)", 1, 0), ("hand", 0, 1)]
    assert [m.name for m in first.messages].count("until (condition to rank 0)") == 2
    assert [m.number for m in first.messages] == list(range(len(first.messages)))
    assert first.owners["until/0/passes"] == 0
    for part in (first, second):
        (node,) = (node for node in part.workflow.nodes if isinstance(node, ConditionalNode))
        at = part.workflow.index["until"]
        exchanges = [i for i, other in enumerate(part.workflow.nodes) if other.kind == "eager"]
        assert part.workflow.predecessors[at] == (exchanges[0],)
        assert at in part.workflow.predecessors[exchanges[1]]  # in one order on all ranks
        assert node.decide == "host"
    assert first.workflow.nodes[1].condition.name == "until (condition of rank 0)"  # type: ignore[attr-defined]


def test_loop_and_a_node_in_it_may_have_one_name() -> None:
    def run(ranks: hg.Ranks) -> Any:
        body = hg.Graph("body")
        y = [body.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        left, more = (body.device_array(name, shape=1, dtype="int32", device=d) for d, name in enumerate(("left", "more")))
        body.memset(more, 2, name="again")
        body.child(handing(), bind={"a": y[0], "b": y[1]}, name="part")
        deep = hg.Graph("deep")
        a, b = (deep.device_array(name, shape=N, dtype="int32", device=d) for d, name in enumerate("ab"))
        n = deep.device_array("n", shape=1, dtype="int32", device=1)
        deep.child(handing(), bind={"a": a, "b": b}, name="part")
        deep.kernel(MODULE["add"], 1, 1, (n, -1))
        body.conditional("while", more, deep, bind={"a": y[0], "b": y[1], "n": more}, name="until")
        body.kernel(MODULE["add"], 1, 1, (left, -1))
        g, x = pair()
        word = g.device_array("word", np.full(1, 2, "int32"))
        g.conditional("while", word, body, bind={"y0": x[0], "y1": x[1], "left": word}, name="until")
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x0", "x1")

    x0, x1 = on_ranks(2, run)[0]
    assert (x0[0], x1[0]) == (2 * 3 * 3, 2 * 3 * 3 + 5)


@pytest.mark.parametrize("name", ["until (condition)", "until (condition of rank 0)", "until (condition to rank 0)"])
def test_array_and_node_in_a_loop_may_be_called_like_those_that_tell_ranks_the_condition(name: str) -> None:
    def run(ranks: hg.Ranks) -> Any:
        body = hg.Graph("body")
        y = [body.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        left = body.device_array("left", shape=1, dtype="int32", device=1)
        seven = body.device_array(name, np.full(N, 7, "int32"), device=0)
        body.kernel(MODULE["sum"], 1, N, (y[0], seven), name=name)
        body.memcpy(y[1], y[0], name="hand")
        body.kernel(MODULE["add"], 1, 1, (left, -1))
        g, x = pair()
        word = g.device_array("word", np.full(1, 2, "int32"), device=1)
        g.conditional("while", word, body, bind={"y0": x[0], "y1": x[1], "left": word}, name="until")
        with g.compile("cpu", ranks=ranks) as exe:
            before = exe.gather("x0")
            exe.run()
            return before, exe.gather("x0", "x1")

    before, after = on_ranks(2, run)[0]
    assert (after[0] == before[0] + 14).all()
    assert (after[1] == after[0]).all()


@pytest.mark.parametrize("between", [None, Between(does), Between(does, captured=True)])
def test_device_does_not_decide_about_several_ranks(between: Between | None) -> None:
    g = looping("while", 1, decide="device")
    with pytest.raises(hg.DeclarationError, match="'until': its bodies do work of several ranks, whose messages the host sends"):
        Sharing(g.workflow(), Layout((1, 1)), between)


def test_condition_that_each_rank_has_for_itself_is_refused() -> None:
    g, x = pair()
    word = g.host_array("word", np.zeros(1, "int32"), rank="all")
    g.conditional("if", word, handing(), bind={"a": x[0], "b": x[1]}, name="each")
    with pytest.raises(hg.DeclarationError, match=r"node 'each': .* must decide alike, and each has 'word' for itself"):
        parts_of(g, 1, 1)


@pytest.mark.parametrize("inside", [False, True])
def test_graph_with_a_cycle_is_refused(inside: bool) -> None:
    outer, x = pair()
    g = hg.Graph("ringed") if inside else outer
    x = [g.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
    for d in range(2):
        g.memset(x[d], d, name=f"fill_{d}")
    g.order("fill_0", "fill_1")
    g.order("fill_1", "fill_0")
    if inside:
        outer.child(g, name="child")
    with pytest.raises(hg.DeclarationError, match=r"graph 'outer' has a cycle: .*fill_0 -> .*fill_1 -> .*fill_0"):
        parts_of(outer, 1, 1)


def test_devices_of_ranks_on_one_machine_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of devices each has."""
    runtime = hg.open_runtime("recorder")
    monkeypatch.setattr(runtime, "get_device_count", lambda: 6)

    def first(ranks: hg.Ranks) -> int:
        ranks.transport.before_here = tuple(range(ranks.rank))
        return ranks.layout(runtime).first_local

    assert on_ranks(3, first, devices_per_rank=[2, 1, 3]) == [0, 2, 3]
    assert on_ranks(3, first, devices_per_rank=[3, 2, 2]) == [0, 3, 0]  # the last one has devices of its own, as it sees them


def test_devices_and_ranks_that_are_not_there() -> None:
    with pytest.raises(hg.DeclarationError, match=r"array 'x2' is on device 2, and the ranks have 2 devices together"):
        parts_of(ring(3), 1, 1)
    g = hg.Graph("far")
    g.host_array("h", shape=N, dtype="int32", rank=5)
    with pytest.raises(hg.DeclarationError, match="array 'h' belongs to rank 5, and there is one rank"):
        parts_of(g, 1)
    with pytest.raises(hg.DeclarationError, match="array 'h' belongs to rank 5, and there are 2 ranks"):
        parts_of(g, 1, 1)
    for wrong in (-1, "each", 1.5, True, None):
        with pytest.raises(hg.DeclarationError, match="rank is the number of a rank, from 0, or 'all'"):
            g.host_array("k", shape=N, dtype="int32", rank=wrong)  # type: ignore[arg-type]
    for count in (0, "2", [1, 1], 1.5):
        with pytest.raises(hg.DeclarationError, match="devices_per_rank"):
            hg.ranks(devices_per_rank=count)  # type: ignore[arg-type]
    for seconds in (0, -1.0, float("nan"), float("inf"), 1e300, 10**400, True, "5", None):
        with pytest.raises(hg.DeclarationError, match=r"timeout_s is a number of seconds above 0 and up to 1e\+09 \(got "):
            hg.ranks(timeout_s=seconds)  # type: ignore[arg-type]
    for options in ({"device": 1}, {"lanes": "measure"}):
        with pytest.raises(hg.DeclarationError, match="ranks= does not go with"):
            ring(1).compile("cpu", ranks=hg.ranks(), **options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("value", "node 'add_0_1' of rank 0 is not that of rank 1"),
        ("missing", "rank 0 has node 'out' where rank 1 has node 'add_2_0'"),
        ("dtype", "array 'x1' of rank 0 is not that of rank 1"),
        ("backend", r"rank 0 has option backend='explicit' where rank 1 has option backend='streams'"),
        ("edge", "rank 0 has nothing more where rank 1 has edge 'add_0_0' -> 'out'"),
        ("name", "rank 0 has graph 'ring' where rank 1 has graph 'other'"),
        ("child", "node 'deep' in child graph 'child' of rank 0 is not that of rank 1"),
    ],
)
def test_ranks_that_declare_different_graphs_stop_with_the_first_difference(change: str, said: str) -> None:
    def run(ranks: hg.Ranks) -> str:
        other = ranks.rank == 1
        g = ring(2, 3 if other and change == "missing" else 2)
        if other and change == "value":
            g = hg.Graph.from_json(
                g.to_json().replace('"name": "add_0_1", "kind": "kernel"', '"name": "add_0_1", "kind": "kernel", "priority": -1')
            )
        if other and change == "dtype":
            g = hg.Graph.from_json(
                g.to_json().replace('"name": "x1", "kind": "device"', '"name": "x1", "kind": "device", "access": [3]')
            )
        if other and change == "edge":
            g.order("add_0_0", "out")
        if change == "name":
            g = hg.Graph("other" if other else "ring")
        if change == "child":
            child = hg.Graph("child")
            child.memset(child.device_array("y", shape=N, dtype="int32"), ranks.rank, name="deep")
            g.child(child)
        with pytest.raises(hg.DeclarationError, match="is not the same on all ranks") as caught:
            g.compile("cpu", "streams" if other and change == "backend" else "explicit", ranks=ranks)
        return str(caught.value)

    first, second = on_ranks(2, run)
    assert change == "name" or first == second
    assert said in first


def test_difference_names_the_node_whatever_it_is_called() -> None:
    def run(ranks: hg.Ranks) -> Any:
        g, x = pair()
        g.memset(x[0], ranks.rank, name="rank's own")
        with pytest.raises(hg.DeclarationError) as caught:
            g.compile("cpu", ranks=ranks)
        return caught.value.node

    assert on_ranks(2, run) == ["rank's own"] * 2


def test_values_of_arrays_may_differ() -> None:
    def run(ranks: hg.Ranks) -> Any:
        g = hg.Graph("values")
        x = g.device_array("x", np.full(N, ranks.rank), dtype="int32", device=1)
        g.kernel(MODULE["add"], 1, N, (x, 1))
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x")

    assert on_ranks(2, run)[0][0].tolist() == [2] * N


# -- data and changes


def test_data_of_other_ranks() -> None:
    def run(ranks: hg.Ranks) -> Any:
        with ring().compile("cpu", ranks=ranks) as exe:
            exe.write("x1", np.full(N, 5, np.int32))
            exe.write("x0", np.full(N, 7, np.int32))
            if ranks.rank == 1:
                with pytest.raises(hg.DeclarationError, match="'x0' belongs to rank 0, and this is rank 1; call read there"):
                    exe.read("x0")
                with pytest.raises(hg.DeclarationError, match="'x0' belongs to rank 0, and this is rank 1; call array there"):
                    exe.array("x0")
                assert exe.read("x1").tolist() == [5] * N
            for name in ("y", "x0/y"):
                with pytest.raises(hg.DeclarationError, match=f"no array '{name}'; its arrays are 'x0', 'x1', 'out'"):
                    exe.gather(name)
            with pytest.raises(hg.DeclarationError, match="root is the number of a rank"):
                exe.gather("x0", root=2)
            return exe.gather("x1", "x0", root=1)

    nothing, (x1, x0) = on_ranks(2, run)
    assert nothing is None
    assert (x1[0], x0[0]) == (5, 7)


@pytest.mark.parametrize("rank", [1, "all"])
def test_array_of_another_rank_is_no_default_of_a_parameter(rank: Any) -> None:
    g, x = pair()
    p = g.param("p", "int32", x[0], shape=N)
    g.memcpy(g.host_array("h", shape=N, dtype="int32", rank=rank), p, name="bring")
    whose = "each rank" if rank == "all" else "rank 1"
    said = f"node 'bring': it belongs to {whose}, and its parameter 'p' stands for array 'x0' of rank 0 by default; leave the"
    with pytest.raises(hg.DeclarationError, match=said):
        parts_of(g, 1, 1)
    if rank == "all":
        assert names(parts_of(g, 2)[0]) == ["bring"]


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("rebuild", [True, False])
def test_array_parameters_are_given_where_a_node_uses_them(default: bool, rebuild: bool) -> None:
    def declared() -> hg.Graph:
        g = hg.Graph("bound")
        for rank in range(2):
            x = g.device_array(f"x{rank}", np.full(N, rank + 1, np.int32), device=rank)
            p = g.param(f"p{rank}", "int32", x.name if default else None, shape=N)
            g.memcpy(g.device_array(f"y{rank}", shape=N, dtype="int32", device=rank), p, device=rank)
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            if rebuild:
                exe.update(declared(), rebuild=True)
            if default:
                exe.run()
            exe.run(p0="x0", p1="x1")
            with pytest.raises(hg.DeclarationError, match="no parameter 'p2'"):
                exe.prepared(p2="x1")
            return exe.gather("y0", "y1")

    (y0, y1), _ = on_ranks(2, run)
    assert (y0.tolist(), y1.tolist()) == ([1] * N, [2] * N)


def test_nodes_that_are_called_as_messages_are_can_change() -> None:
    """What crosses is known by its node, at any depth, and not by what its message is called."""
    g = looping("while", 2)
    x = [g.arrays[f"x{d}"] for d in range(2)]
    for name in ("hand", "less -> behind", "part"):
        g.memset(x[0], 1, name=name)
    g.memcpy(x[1], x[0], name="part: two")
    g.all_reduce(x, name="total")

    def run(ranks: hg.Ranks) -> Any:
        with g.compile("cpu", ranks=ranks) as exe:
            for name in ("hand", "less -> behind", "part"):
                exe.set(name, value=0)
            exe.disable("until")
            for name in ("part: two", "total"):
                with pytest.raises(hg.UpdateError, match=f"{name!r} copies from one rank to another"):
                    exe.disable(name)
            exe.run()
            return exe.gather("x0")

    assert on_ranks(2, run)[0][0].tolist() == [0] * N


def test_set_takes_what_the_rank_of_the_node_has() -> None:
    def declared(bound: bool) -> hg.Graph:
        g = hg.Graph("bound")
        x = [g.device_array(f"x{d}", np.full(N, d + 1, np.int32), device=d) for d in range(2)]
        y = [g.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        p = g.param("p", "int32", shape=N)
        g.memcpy(y[0], p, name="copy_0", device=0)
        g.memcpy(y[1], p if bound else x[1], name="copy_1", device=1)
        return g

    def run(ranks: hg.Ranks) -> Any:
        g = declared(False)
        with g.compile("cpu", ranks=ranks) as exe:
            said = "set: node 'copy_1' runs on rank 1, and array 'x0' belongs to rank 0"
            with pytest.raises(hg.UpdateError, match=said) if ranks.rank == 1 else nullcontext():
                exe.set("copy_1", src=g.arrays["x0"])
            exe.update(declared(True), rebuild=True)
            exe.run(p=np.full(N, 9, np.int32))
            return exe.gather("y1")

    assert on_ranks(2, run)[0][0].tolist() == [9] * N


@pytest.mark.parametrize("default", [None, "x0", [5] * N])
@pytest.mark.parametrize("before", [None, "x0", [9] * N])
def test_set_brings_in_a_parameter_that_its_rank_has_not_used(default: Any, before: Any) -> None:
    """It stands for what launches have given it here, or for its default, and otherwise a launch must give it."""

    def value(given: Any) -> Any:
        return np.array(given, np.int32) if isinstance(given, list) else given

    def run(ranks: hg.Ranks) -> Any:
        g, x = pair()
        y = [g.device_array(f"y{d}", shape=N, dtype="int32", device=d) for d in range(2)]
        p = g.param("p", "int32", value(default), shape=N)
        g.memcpy(y[0], p, name="copy_0", device=0)
        g.memcpy(y[1], x[1], name="copy_1", device=1)
        with g.compile("cpu", ranks=ranks) as exe:
            if before is not None:
                exe.run(p=value(before))
            exe.set("copy_1", src=p)
            given = default if before is None else before
            if ranks.rank == 1:
                with pytest.raises(hg.DeclarationError, match="'p' is given array 'x0', which belongs to rank 0"):
                    exe.prepared(p="x0")
                with nullcontext() if isinstance(given, list) else pytest.raises(hg.DeclarationError, match="must give 'p'"):
                    exe.prepared()
            if isinstance(given, list):
                exe.run()
                assert ranks.rank == 0 or exe.read("y1").tolist() == given
            exe.run(p=np.full(N, 20 + ranks.rank, np.int32))
            return exe.gather("y0", "y1")

    (y0, y1), _ = on_ranks(2, run)
    assert (y0[0], y1[0]) == (20, 21)


def test_parameters_of_children_of_other_ranks_are_taken_by_all() -> None:
    def run(ranks: hg.Ranks) -> Any:
        g, x = pair()
        child = hg.Graph("child")
        y, k = child.device_array("y", shape=N, dtype="int32"), child.param("k", "int32", 1)
        values = child.param("values", "int32", shape=N)
        child.memcpy(y, values)
        child.kernel(MODULE["add"], 1, N, (y, k))
        g.child(child, bind={"y": x[1]}, name="held")
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run(**{"held/k": 3, "held/values": np.full(N, 7, np.int32)})
            with pytest.raises(hg.DeclarationError, match="no parameter 'held/y'"):
                exe.prepared(**{"held/y": 3})
            return exe.gather("x1")

    assert on_ranks(2, run)[0][0].tolist() == [10] * N


def test_update_is_taken_by_all_ranks_or_by_none() -> None:
    def declared(*more: str) -> hg.Graph:
        g = ring(2, 1)
        for name in more:
            g.memset(g.arrays["x1"], 5, name=name)
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            with pytest.raises(hg.UpdateError) as refused:
                exe.update(declared("more"))
            exe.run()
            assert len(exe.gather("x0", "x1", root=ranks.size - 1) or "12") == 2  # they have not come apart
            exe.update(declared("more"), rebuild=True)
            exe.run()
            return str(refused.value), exe.gather("x1", root=1)

    (first, _), (second, values) = on_ranks(2, run)
    assert "cannot take 'ring' in place on rank 1, so no rank takes it; let every rank call update(graph, rebuild=True)" in first
    assert "node 'more' is only in the new graph" in second
    assert values[0].tolist() == [5] * N


@pytest.mark.parametrize("fails", ["kernel", "check", "device"])
def test_update_that_one_rank_cannot_build_is_refused_by_all(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go on with the graph that they had, or close it where another rank has the new one already."""
    take = ranked.RankExecutable._take

    def fail(self: hg.RankExecutable, *args: Any) -> None:
        if self.ranks.rank:
            raise hg.HipError("hipGraphExecDestroy", 1, "no more")
        take(self, *args)

    def declared(infer: bool = True) -> hg.Graph:
        g, x = hg.Graph("changed", infer=infer), []
        x += [g.device_array(f"x{d}", np.full(N, d, "int32"), device=d) for d in range(2)]
        g.memcpy(x[1], x[0], name="hand")
        return g

    def run(ranks: hg.Ranks) -> Any:
        with declared().compile("cpu", ranks=ranks) as exe:
            exe.run()
            other = declared(fails != "check")
            source = "nonsense;" if fails == "kernel" else "x[threadIdx.x] = 7;"
            kernel = hg.Module(f'extern "C" __global__ void k(int* x) {{ {source} }}', name="other")["k"]
            other.kernel(kernel, 1, N, (hg.writes(other.arrays["x1"]),), name="bad")
            if fails == "device":
                monkeypatch.setattr(ranked.RankExecutable, "_take", fail)
            with pytest.raises(hg.HipGraphError) as caught:
                exe.update(other, rebuild=True)
            if fails == "device":
                with pytest.raises(hg.HipGraphError, match="is closed"):
                    exe.run()
            else:
                exe.run()
                assert exe.gather("x1", root=1) is None or ranks.rank
        with declared().compile("cpu", ranks=ranks) as exe:  # they have not come apart
            exe.run()
            assert (exe.gather("x1") is None) == bool(ranks.rank)
        return str(caught.value)

    first, second = on_ranks(2, run)
    assert second.startswith({"kernel": "kernel source 'other' does not", "check": "graph 'changed (", "device": "hipG"}[fails])
    kind = {"kernel": "DeclarationError", "check": "CheckError", "device": "HipError"}[fails]
    what = "and is closed on all ranks; compile it again" if fails == "device" else "so no rank takes it"
    assert first.startswith(f"graph 'changed' cannot take 'changed' on rank 1, {what}: {kind}: {second[:100]}")


def test_changes_are_made_where_the_node_is() -> None:
    def run(ranks: hg.Ranks) -> Any:
        g = ring(2, 1)
        with g.compile("cpu", ranks=ranks) as exe:
            exe.set("add_0_1", args={"k": 100})
            exe.disable("add_0_0")
            exe.run()
            first = exe.gather("out")
            exe.enable("add_0_0")
            exe.update(g)
            exe.write("x0", np.zeros(N, np.int32))
            exe.run()
            second = exe.gather("out")
            for change in (lambda: exe.disable("hand_0_0"), lambda: exe.set("hand_0_0", src=g.arrays["x0"]), exe.clone):
                with pytest.raises(hg.UpdateError):
                    change()
            with pytest.raises(hg.UpdateError, match="no node 'nobody'"):
                exe.disable("nobody")
            with pytest.raises(hg.UpdateError, match="what crosses between ranks is fixed"):
                exe.update(ring(2, 2))
            return first, second

    (((first,), (second,)), _) = on_ranks(2, run)
    assert first.tolist() == [100] * N
    assert second.tolist() == [2] * N


def test_root_of_a_broadcast_only_reads_its_array() -> None:
    """As the collective itself does: what reads the array before and behind it is not ordered by it."""
    g, x = pair()
    y = g.device_array("y", shape=N, dtype="int32", device=1)
    g.kernel(MODULE["sum"], 1, N, (y, hg.reads(x[1])), name="before")
    g.broadcast(x, root=1, name="all")
    sharing = Sharing(g.workflow(), Layout((1, 1)), Between(does))
    parts = [partition(sharing, rank, lambda messages, direct: print).workflow for rank in range(2)]
    assert [[view.name for view in part.node("all").writes] for part in parts] == [["x0"], []]  # type: ignore[union-attr]
    for part in parts:
        assert not hg.Graph.from_workflow(part).check().errors


def test_changes_that_no_node_can_take_are_refused_on_every_rank() -> None:
    def run(ranks: hg.Ranks) -> list[str]:
        g = ring(2, 1)
        g.free(g.alloc("scratch", shape=N, dtype="int32", device=1))
        name = next(node.name for node in g.workflow().nodes if node.kind == "alloc")
        said = []
        with g.compile("cpu", ranks=ranks) as exe:
            for fields in ({"gird": 1}, {"grid": 0}, {"args": {"l": 1}}, {"args": {"k": "x"}}, {"name": "other"}, {"device": 0}):
                for node in ("add_0_0", "add_0_1"):
                    with pytest.raises(hg.HipGraphError) as caught:
                        exe.set(node, **fields)
                    said.append(str(caught.value))
            with pytest.raises(hg.UpdateError, match="nodes of kind alloc cannot be disabled"):
                exe.disable(name)
            exe.run()
        return said

    first, second = on_ranks(2, run)
    assert first == second


# -- failing


def test_failure_of_one_rank_is_an_error_of_all() -> None:
    def fail(h: Any) -> None:
        raise ValueError("no more")

    errors: dict[int, BaseException] = {}

    def run(ranks: hg.Ranks) -> None:
        g = ring()
        h = g.host_array("h", shape=1, dtype="int32", rank=1)
        g.host(fail, (h,), name="fails")
        g.order("fails", "hand_0_1")
        try:
            with g.compile("cpu", ranks=ranks) as exe:
                exe.run()
        except (hg.HipGraphError, ValueError) as error:
            errors[ranks.rank] = error

    on_ranks(2, run, in_time=True)
    assert isinstance(errors[0], hg.RankError)
    assert "no more" in str(errors[0])
    assert isinstance(errors[1], ValueError)


@pytest.mark.parametrize("profiles", [False, True])
def test_launch_that_one_rank_refuses_is_an_error_of_those_that_make_it(profiles: bool) -> None:
    def run(ranks: hg.Ranks) -> str:
        with ring().compile("cpu", ranks=ranks) as exe:
            launch = exe.profile if profiles else exe.run
            launch(a=1)
            for wrong in ({"b": 1}, {"a": "x"}):  # all refuse it, and go on
                with pytest.raises(hg.DeclarationError):
                    launch(**wrong)
            launch(a=2)
            with pytest.raises(hg.HipGraphError) as caught:
                launch(a=[3, "three"][ranks.rank])
            if ranks.rank:
                with pytest.raises(hg.RankError, match="rank 1 has refused a launch"):
                    exe.gather("x0", root=1)
            return str(caught.value)

    first, second = on_ranks(2, run, in_time=True)
    assert "rank 1 has refused a launch of graph 'ring': parameter 'a'" in first
    assert second.startswith("parameter 'a'")


@pytest.mark.parametrize("wrong", [{"timeout_s": -1}, {"stream": "none"}, {}])
def test_launch_that_one_rank_refuses_without_looking_at_parameters_is_an_error_of_the_others(wrong: dict[str, Any]) -> None:
    """An Executable that is closed on one rank refuses it too."""

    def run(ranks: hg.Ranks) -> str:
        with ring().compile("cpu", ranks=ranks) as exe:
            exe.run()
            refused: list[dict[str, Any]] = [{"timeout_s": "long"}, {"stream": "none"}]
            for given in refused:  # all refuse it, and go on
                with pytest.raises(hg.DeclarationError):
                    exe.launch(**given)
            exe.run()
            if ranks.rank and not wrong:
                exe.close()
            with pytest.raises(hg.HipGraphError) as caught:
                exe.launch(**(wrong if ranks.rank else {}))
            return str(caught.value)

    first, second = on_ranks(2, run, in_time=True)
    assert f"rank 1 has refused a launch of graph 'ring': {second}" in first


@pytest.mark.parametrize("call", ["gather", "update"])
def test_call_of_an_executable_that_one_rank_has_closed_is_an_error_of_the_others(call: str) -> None:
    """Also of a graph without messages, beside another one."""

    def run(ranks: hg.Ranks) -> str:
        g, _ = pair()
        exe, other = (g.compile("cpu", ranks=ranks) for _ in range(2))
        if ranks.rank:
            exe.close()
        with pytest.raises(hg.HipGraphError) as caught:
            exe.gather("x1") if call == "gather" else exe.update(g)
        if call == "update":
            other.gather("x1")  # they have not come apart
        other.close()
        exe.close()
        return str(caught.value)

    first, second = on_ranks(2, run, in_time=True)
    assert second.startswith(f"{call}: the Executable of graph 'outer (rank 1 of 2)' is closed")
    refused = (
        "rank 1 has refused a gather of graph 'outer'" if call == "gather" else "on rank 1, so no rank takes it: HipGraphError"
    )
    assert f"{refused}: {second}" in first


def test_calls_after_close_leave_the_ranks_together() -> None:
    def run(ranks: hg.Ranks) -> Any:
        exe = ring().compile("cpu", ranks=ranks)
        exe.close()
        for call in (exe.launch, exe.run, exe.synchronize, exe.profile, partial(exe.gather, "x0", "x1")):
            with pytest.raises(hg.HipGraphError, match="is closed"):
                call()
        for rank in range(2):  # also where another rank has the node and the array
            node = f"add_0_{rank}"
            changes = (partial(exe.set, node, grid=1), partial(exe.enable, node), partial(exe.write, f"x{rank}", 0))
            for call in (*changes, partial(exe.disable, node)):
                with pytest.raises(hg.HipGraphError, match="is closed"):
                    call()
        with ring().compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.gather("x0")

    assert on_ranks(2, run)[0][0].any()


@pytest.mark.parametrize("kind", [hg.DeclarationError, hg.WaitTimeout])
def test_failure_of_a_function_is_told_whatever_it_raises(kind: type[hg.HipGraphError]) -> None:
    def fail(stream: Any, h: Any) -> None:
        raise kind("no more")

    def run(ranks: hg.Ranks) -> str:
        g = ring()
        g.eager(fail, (g.host_array("h", shape=1, dtype="int32"),), name="fails")
        g.order("fails", "hand_0_0")
        with g.compile("cpu", ranks=ranks) as exe:
            with pytest.raises((kind, hg.RankError)) as caught:
                exe.run()
            return str(caught.value)

    assert all("no more" in said for said in on_ranks(2, run, in_time=True))


def test_failure_while_one_rank_profiles_is_an_error_of_all() -> None:
    failed = threading.Event()

    def fail(stream: Any, h: Any) -> None:
        raise ValueError("no more")

    def run(ranks: hg.Ranks) -> str:
        g = ring()
        g.eager(fail, (g.host_array("h", shape=1, dtype="int32"),), name="fails")
        g.order("fails", "hand_0_0")
        with g.compile("cpu", ranks=ranks) as exe:
            with pytest.raises((ValueError, hg.RankError)) as caught:
                exe.profile()
            failed.set() if ranks.rank else failed.wait(15)
            return str(caught.value)

    assert all("eager node 'fails': ValueError: no more" in said for said in on_ranks(2, run))


def test_rank_that_leaves_the_block_by_an_exception_tells_the_others() -> None:
    errors: dict[int, BaseException] = {}

    def run(ranks: hg.Ranks) -> None:
        try:
            with ring().compile("cpu", ranks=ranks) as exe:
                exe.run()
                if ranks.rank == 1:
                    raise KeyError("elsewhere")
                exe.run()
        except (hg.RankError, KeyError) as error:
            errors[ranks.rank] = error

    on_ranks(2, run)
    assert isinstance(errors[0], hg.RankError)
    assert "elsewhere" in str(errors[0])


def test_rank_that_leaves_the_block_by_sys_exit_has_not_failed() -> None:
    def run(ranks: hg.Ranks) -> str:
        exe = ring().compile("cpu", ranks=ranks)
        exe.run()
        with pytest.raises(SystemExit), exe:
            sys.exit()
        return ranks.transport.broken

    assert on_ranks(2, run) == ["", ""]


def test_rank_that_does_not_come_is_named() -> None:
    def run(ranks: hg.Ranks) -> str:
        with ring().compile("cpu", ranks=ranks) as exe:
            if ranks.rank == 1:
                return ""
            with pytest.raises(hg.RankError, match="hand_0_0") as caught:
                exe.run()
            assert isinstance(caught.value, hg.CallbackError)
            assert caught.value.node == "hand_0_0"
            with pytest.raises(hg.RankError):  # the ranks have come apart
                exe.run()
            assert exe.read("x0").shape == (N,)  # what this one has stays usable
            return str(caught.value)

    assert on_ranks(2, run, timeout_s=0.3)[0]


def test_update_that_another_rank_does_not_make_is_named() -> None:
    def run(ranks: hg.Ranks) -> str:
        with ring().compile("cpu", ranks=ranks) as exe:
            if ranks.rank == 1:
                return ""
            with pytest.raises(hg.RankError) as caught:
                exe.update(ring())
            return str(caught.value)

    assert "update of 'ring'" in on_ranks(2, run, timeout_s=0.3)[0]


def test_partition_of_messages_is_the_same_on_all_ranks() -> None:
    g = ring(4, 3)
    sharing = Sharing(g.workflow(), Layout((1, 1, 1, 1)))
    assert [message.number for message in sharing.all_messages] == list(range(12))
    assert all(part.messages == parts_of(g, 1, 1, 1, 1)[0].messages for part in parts_of(g, 1, 1, 1, 1))
