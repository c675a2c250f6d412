"""HG606: kernels that reach memory by addresses inside of their data, and what is none of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg

pytestmark = pytest.mark.needs("bounds")

PAIR = np.dtype([("from", "u8"), ("to", "u8"), ("n", "i4")], align=True)
SOURCE = r"""
typedef float* address;
struct Pair { const float* from; float* to; int n; };
struct Holder { int n; Pair pair; };
typedef struct { address first; } Named;
struct Plain { int n; float half(float* x) const { return *x / 2; } };
__device__ float* target;
__constant__ Pair pairs[2];
__constant__ float factors[2];
#define K extern "C" __global__ void
K plain(float* x) { x[threadIdx.x] = 1; }
K by_value(Pair p) { p.to[threadIdx.x] = p.from[threadIdx.x]; }
K by_alias(Named p) { p.first[threadIdx.x] = 1; }
K nested(const Holder* h) { h->pair.to[threadIdx.x] = 1; }
K table(void* t) { float** rows = (float**)t; rows[0][threadIdx.x] = 1; }
K const_table(const void* t, float* x) { x[0] = static_cast<const float* const*>(t)[1][0]; }
K numbers(const unsigned long long* t) { float* row = reinterpret_cast<float*>(t[1]); row[0] = 1; }
K number(unsigned long long t) { ((float*)t)[0] = 1; }
K variable(float v) { target[0] = v; }
K variables(float v) { pairs[1].to[0] = v; }
K no_pointer(Plain p, float* x) { x[0] = p.n; }
K cast(void* t) { float* x = (float*)t; x[0] = 1; }
K wider(float* t) { float4* x = (float4*)t; x[0].x = 1; }
K factor(float* x) { x[0] = factors[1]; }
K index(const unsigned long long* t, float* x) { x[t[0]] = (float)t[1]; }
"""
STRUCTS = {
    "Pair": PAIR,
    "Named": np.dtype([("first", "u8")]),
    "Holder": np.dtype([("n", "i4"), ("pair", PAIR)], align=True),
    "Plain": np.dtype([("n", "i4")]),
}
MODULE = hg.Module(SOURCE, structs=STRUCTS)

HIDDEN: dict[str, list[Any]] = {
    "by_value": [np.array((8, 8, 1), PAIR)[()]],
    "by_alias": [np.array((8,), STRUCTS["Named"])[()]],
    "nested": [STRUCTS["Holder"]],
    "table": ["u8"],
    "const_table": ["u8", "f4"],
    "numbers": ["u8"],
    "number": [12345],
    "variable": [1.0],
    "variables": [1.0],
}
VISIBLE: dict[str, list[Any]] = {
    "no_pointer": [np.array((8,), STRUCTS["Plain"])[()], "f4"],
    "cast": ["f4"],
    "wider": ["f4"],
    "factor": ["f4"],
    "index": ["u8", "f4"],
    "by_value": [np.zeros((), PAIR)[()]],
    "number": [0],
    "table": [None],
}
"""Arguments by kernel; a dtype stands for an array of it."""


def declared(g: hg.Graph, kernel: str, args: list[Any], **more: Any) -> Any:
    given = [g.device_array(f"a{n}", shape=8, dtype=a) if isinstance(a, str | np.dtype) else a for n, a in enumerate(args)]
    return g.kernel(MODULE[kernel], 1, 8, given, name="k", **more)


def found(g: hg.Graph) -> list[Any]:
    return [d for d in g.check().warnings if d.code == "HG606"]


def beside() -> tuple[hg.Graph, Any]:
    g = hg.Graph("g")
    return g, g.kernel(MODULE["plain"], 1, 8, (g.device_array("x", np.zeros(8, "f4")),), name="other")


@pytest.mark.parametrize(("kernel", "args"), HIDDEN.items(), ids=HIDDEN)
def test_addresses_in_data_are_said_until_the_nodes_are_ordered(kernel: str, args: list[Any]) -> None:
    g, other = beside()
    declared(g, kernel, args)
    (said,) = found(g)
    assert said.nodes == ("k",)
    assert "'other'" in said.message
    assert "after=['other']" in said.hint
    g, other = beside()
    declared(g, kernel, args, after=[other])
    assert not found(g)
    g, other = beside()
    g.order(declared(g, kernel, args), other)
    assert not found(g)
    g = hg.Graph("alone")
    declared(g, kernel, args)
    assert not found(g)


@pytest.mark.parametrize(("kernel", "args"), VISIBLE.items(), ids=VISIBLE)
def test_data_without_addresses_is_no_case(kernel: str, args: list[Any]) -> None:
    g, _ = beside()
    declared(g, kernel, args)
    assert not found(g)


def test_a_value_given_at_launch_may_hold_addresses() -> None:
    g, _ = beside()
    g.kernel(MODULE["by_value"], 1, 8, (g.param("p", PAIR),), name="k")
    assert found(g)


def test_an_order_through_other_nodes_is_enough() -> None:
    g, other = beside()
    middle = g.empty(after=[other])
    declared(g, "table", ["u8"], after=[middle])
    assert not found(g)


def test_inside_a_child_graph_the_child_is_beside_others_too() -> None:
    inner = hg.Graph("inner")
    declared(inner, "table", ["u8"])
    g, other = beside()
    g.child(inner, name="c")
    assert [d.nodes for d in found(g)] == [("c",)]
    g, other = beside()
    g.child(inner, name="c", after=[other])
    assert not found(g)


def test_each_of_two_tables_is_said_and_may_be_ignored() -> None:
    g = hg.Graph("g")
    table = g.device_array("t", shape=8, dtype="u8")
    for n in range(2):
        g.kernel(MODULE["table"], 1, 8, (hg.reads(table),), name=f"k{n}", ignore={"HG606": "rows of its own"} if n else None)
    report = g.check()
    assert [d.nodes for d in report.warnings if d.code == "HG606"] == [("k0",)]
    assert [d.nodes for d, _ in report.ignored if d.code == "HG606"] == [("k1",)]
