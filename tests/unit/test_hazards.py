"""Edges from accesses: read after write, write after read, write after write, byte for byte."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import hipgraphdsl as hg

STEP = hg.Module('extern "C" __global__ void step(const int* source, int* tile, int n) { tile[0] = source[n]; }')["step"]


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("g")
    for name in "xyz":
        g.device_array(name, shape=(4, 8), dtype="int32")
    return g


def edges(g: hg.Graph) -> set[tuple[str, str, str]]:
    return set(g.dag.edges(data="reason"))


def test_a_read_waits_for_the_write_and_the_next_write_for_all_reads(g: hg.Graph) -> None:
    x, y, z = (g.arrays[n] for n in "xyz")
    g.memset(x, 1, name="w1")
    g.memcpy(y, x, name="r1")
    g.memcpy(z, x, name="r2")
    g.memset(x, 2, name="w2")
    assert edges(g) == {
        ("w1", "r1", "RAW x"),
        ("w1", "r2", "RAW x"),
        ("w1", "w2", "WAW x"),
        ("r1", "w2", "WAR x"),
        ("r2", "w2", "WAR x"),
    }
    assert g.plan(target="cpu").edges == 4


def test_reads_do_not_wait_for_reads(g: hg.Graph) -> None:
    g.memcpy(g.arrays["y"], g.arrays["x"])
    g.memcpy(g.arrays["z"], g.arrays["x"])
    assert not edges(g)


def test_views_that_interleave_do_not_wait_for_each_other(g: hg.Graph) -> None:
    x = g.arrays["x"]
    g.memset(x[:, ::2], 1, name="even")
    g.memset(x[:, 1::2], 2, name="odd")
    g.memset(x[:2, :4], 3, name="corner")
    g.memset(x[2:, 4:], 4, name="other")
    assert edges(g) == {
        ("even", "corner", "WAW x"),
        ("odd", "corner", "WAW x"),
        ("even", "other", "WAW x"),
        ("odd", "other", "WAW x"),
    }


def test_a_write_that_covers_hides_what_was_before_it(g: hg.Graph) -> None:
    x, y = g.arrays["x"], g.arrays["y"]
    for row in range(4):
        g.memset(x[row], row, name=f"row{row}")
    g.memset(x, 9, name="all")
    g.memcpy(y, x, name="read")
    assert [source for source, target, _ in edges(g) if target == "read"] == ["all"]


def test_a_write_in_the_middle_leaves_both_ends_to_their_writer(g: hg.Graph) -> None:
    x, y = g.arrays["x"], g.arrays["y"]
    g.memset(x, 0, name="all")
    g.memset(x[1:3], 1, name="middle")
    g.memcpy(y[0], x[0], name="first")
    g.memcpy(y[3], x[3], name="last")
    g.memcpy(y[1], x[1], name="inner")
    g.memcpy(y[2:], x[2:], name="both")
    found = edges(g)
    assert {s for s, t, _ in found if t == "first"} == {"all"}
    assert {s for s, t, _ in found if t == "last"} == {"all"}
    assert {s for s, t, _ in found if t == "inner"} == {"middle"}
    assert {s for s, t, _ in found if t == "both"} == {"all", "middle", "last"}


def test_an_update_reads_and_writes(g: hg.Graph) -> None:
    h = g.host_array("h", shape=4, dtype="int32")
    g.host(print, args=(h,), name="a")
    g.host(print, args=(h,), name="b")
    g.host(print, args=(h,), reads=[h], name="c")
    g.host(print, args=(h,), reads=[h], name="d")
    g.host(print, args=(), writes=[h[:2]], name="e")
    assert edges(g) == {
        ("a", "b", "RAW h"),
        ("b", "c", "RAW h"),
        ("b", "d", "RAW h"),
        ("c", "e", "WAR h"),
        ("d", "e", "WAR h"),
        ("b", "e", "WAW h"),
    }


def test_modes_that_an_argument_says_override_its_signature(g: hg.Graph) -> None:
    source = 'extern "C" __global__ void f(int* a, int* b) {} extern "C" __global__ void r(const int* a) {}'
    m = hg.Module(source)
    x, y = g.arrays["x"], g.arrays["y"]
    g.kernel(m["f"], 1, 1, (hg.reads(x), hg.writes(y)), name="first")
    g.kernel(m["r"], 1, 1, (x,), name="second")
    g.kernel(m["f"], 1, 1, (hg.reads(x), hg.writes(y)), name="third")
    assert edges(g) == {("first", "third", "WAW y")}
    assert [view.name for view in g["first"].reads] == ["x"]
    assert [view.name for view in g["first"].writes] == ["y"]


def test_variables_of_a_module_order_the_kernels_that_name_them(g: hg.Graph) -> None:
    m = hg.Module(
        '__constant__ int c[4]; __device__ int d[4]; extern "C" __global__ void reads(int* x) { x[0] = c[0]; }'
        ' extern "C" __global__ void writes(const int* x) { d[0] = x[0]; }'
    )
    x, y = g.arrays["x"], g.arrays["y"]
    g.memcpy(m.symbol("c"), x[0, :4], name="set")
    g.kernel(m["reads"], 1, 1, (y,), name="use")
    g.kernel(m["writes"], 1, 1, (x,), name="store")
    g.memcpy(y[0, :4], m.symbol("d"), name="get")
    assert ("set", "use", "RAW c") in edges(g)
    assert ("store", "get", "RAW d") in edges(g)


def test_events_and_after_are_reasons_where_no_access_is(g: hg.Graph) -> None:
    a = g.memset(g.arrays["x"], 1, name="a")
    g.record("e", after=[a], name="record")
    g.wait("e", name="wait")
    g.memset(g.arrays["x"], 2, after=["wait", "a"], name="b")
    assert edges(g) == {("a", "record", "after"), ("record", "wait", "event e"), ("wait", "b", "after"), ("a", "b", "WAW x")}


def test_only_declared_edges_are_there_when_nothing_is_inferred() -> None:
    g = hg.Graph("bare", infer=False)
    x = g.device_array("x", shape=4, dtype="int32")
    g.memset(x, 1, name="a")
    g.memset(x, 2, name="b")
    g.memset(x, 3, name="c", after=["b"])
    assert edges(g) == {("b", "c", "after")}
    assert {frozenset(d.nodes) for d in g.check().errors} == {frozenset("ab"), frozenset("ac")}


def test_children_wait_byte_for_byte_for_what_they_are_bound_to(g: hg.Graph) -> None:
    c = hg.Graph("inner")
    a = c.device_array("a", shape=8, dtype="int32")
    c.memset(a[:4], 1)
    x = g.arrays["x"]
    g.memset(x[1, 4:], 0, name="right")
    g.memset(x[1, :4], 0, name="left")
    node: Any = g.child(c, bind={"a": x[1]}, name="child")
    g.memset(x[1, 4:], 5, name="later")
    assert edges(g) == {("left", "child", "WAW x"), ("right", "later", "WAW x")}
    assert node.accesses[0].bytes.nbytes == 16


def test_many_disjoint_parts_of_one_array_are_found_fast(g: hg.Graph) -> None:
    big = g.device_array("big", shape=20_000, dtype="int32")
    for i in range(4000):
        g.memset(big[5 * i : 5 * i + 5], i, name=f"a{i}")
    for i in range(4000):
        g.memset(big[5 * i + 1 : 5 * i + 4], i, name=f"b{i}")
    assert g.dag.number_of_edges() == 4000


@pytest.mark.parametrize("in_place", [False, True])
def test_edges_of_tiles_that_read_their_neighbours_do_not_grow_with_the_sweeps(in_place: bool) -> None:
    side, size = 4, 4

    def edges_of_a_tile(sweeps: int) -> float:
        g = hg.Graph("tiles")
        arrays = [g.device_array(name, shape=(side * size, side * size), dtype="int32") for name in "xy"]
        for sweep in range(sweeps):
            source, target = arrays[sweep % 2 and not in_place], arrays[sweep % 2 == 0 and not in_place]
            for i, j in product(range(side), repeat=2):
                rows, columns = (slice(max(at * size - 1, 0), min((at + 1) * size + 1, side * size)) for at in (i, j))
                tile = target[i * size : (i + 1) * size, j * size : (j + 1) * size]
                g.kernel(STEP, 1, 16, (hg.reads(source[rows, columns]), hg.writes(tile), 0), name=f"{sweep}_{i}_{j}")
        return int(g.dag.number_of_edges()) / (sweeps * side * side)

    assert edges_of_a_tile(32) < edges_of_a_tile(8) + 1


def test_reader_stands_for_the_readers_that_it_follows_until_that_is_unknown(g: hg.Graph) -> None:
    x = g.arrays["x"][:, :4]
    for i in range(3):
        g.memcpy(g.device_array(f"y{i}", shape=(4, 4), dtype="int32"), x, name=f"read{i}", after=[f"read{i - 1}"] if i else [])
    g.memset(x, 1, name="write")
    assert {source for source, target, _ in edges(g) if target == "write"} == {"read2"}
    g.dag.remove_edge("read1", "read2")
    assert {frozenset(d.nodes) for d in g.check().errors} == {frozenset({"read0", "write"}), frozenset({"read1", "write"})}
