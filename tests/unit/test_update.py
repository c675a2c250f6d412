"""explain_update: what a change would take, node and field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from specimens import everything, module

import hipgraphdsl as hg

M = hg.Module('extern "C" __global__ void f(float* x, float a) {} extern "C" __global__ void h(float* x, float a) {}')


def build(**other: Any) -> hg.Graph:
    """A graph of several kinds; `other` changes what its nodes do."""
    say: dict[str, Any] = {
        "grid": 1,
        "a": 1.0,
        "kernel": "f",
        "value": 0,
        "part": slice(0, 4),
        "fn": print,
        "args": (1,),
        "after": [],
        "kind": "empty",
        "shape": 4,
        "child_value": 1,
        "bind": True,
        "cooperative": False,
        "values": np.arange(3),
        **other,
    }
    g = hg.Graph("g")
    x, z = g.device_array("x", shape=8, dtype="float32"), g.device_array("z", shape=8, dtype="float32")
    t = g.alloc("t", say["shape"], "float32", name="make")
    g.free(t, name="give")
    g.kernel(M[say["kernel"]], say["grid"], 4, (x, say["a"]), cooperative=say["cooperative"], name="kernel")
    g.memset(x[say["part"]], say["value"], name="memset")
    g.memcpy(z[:4], x[say["part"]], name="copy")
    g.host(say["fn"], args=(say["values"], *say["args"]), name="host", after=say["after"])
    inner = hg.Graph("inner")
    y = inner.device_array("y", shape=8, dtype="float32")
    inner.memset(y, say["child_value"], name="set")
    g.child(inner, bind={"y": z} if say["bind"] else {}, name="child")
    (g.empty if say["kind"] == "empty" else lambda name: g.record("e", name=name))(name="mark")
    return g


def test_explain_update_finds_a_graph_like_one_declared_in_the_same_way() -> None:
    assert not hg.explain_update(build(), build())
    assert str(hg.explain_update(build(), build())) == "'g' and 'g' are alike"
    kernels = module()
    first = everything(kernels)
    assert not hg.explain_update(first, first)


@pytest.mark.parametrize(
    ("other", "node", "field"),
    [
        ({"grid": 2}, "kernel", "grid"),
        ({"a": 2.0}, "kernel", "args"),
        ({"kernel": "h"}, "kernel", "kernel"),
        ({"value": 1}, "memset", "value"),
        ({"fn": repr}, "host", "fn"),
        ({"args": (2,)}, "host", "args"),
        ({"args": (1.0,)}, "host", "args"),
        ({"args": (True,)}, "host", "args"),
        ({"args": (np.int64(1),)}, "host", "args"),
        ({"values": np.arange(4)}, "host", "args"),
    ],
)
def test_explain_update_changes_what_nodes_do_in_place(other: dict[str, Any], node: str, field: str) -> None:
    found = hg.explain_update(build(), build(**other))
    assert [(c.node, c.field, c.in_place) for c in found.changes] == [(node, field, True)]
    assert found.in_place
    assert f"in place  node '{node}'.{field}" in str(found)


@pytest.mark.parametrize(
    ("other", "node", "field"),
    [
        ({"after": ["copy"]}, "host", "predecessors"),
        ({"kind": "record"}, "mark", "kind"),
        ({"shape": 5}, "make", "array"),
        ({"child_value": 2}, "child", "workflow"),
        ({"bind": False}, "child", "bind"),
        ({"cooperative": True}, "kernel", "cooperative"),
    ],
)
def test_explain_update_builds_again_for_another_shape(other: dict[str, Any], node: str, field: str) -> None:
    found = hg.explain_update(build(), build(**other))
    assert not found.in_place
    assert (node, field) in [(c.node, c.field) for c in found.changes if not c.in_place]
    assert "afresh" in str(found)
    with build().compile(runtime="recorder") as exe:
        with pytest.raises(hg.UpdateError, match="cannot take 'g' in place") as caught:
            exe.update(build(**other))
        assert caught.value.node is not None
        exe.update(build(**other), rebuild=True)
        exe.run()


def test_explain_update_names_nodes_that_come_and_go() -> None:
    more = build()
    more.empty(name="more")
    assert [(c.node, c.reason) for c in hg.explain_update(build(), more).changes] == [("more", "it is new")]
    assert [(c.node, c.reason) for c in hg.explain_update(more, build()).changes] == [("more", "it is gone")]


def test_update_tells_zero_from_negative_zero() -> None:
    inverse = hg.Module('extern "C" __global__ void inverse(float* y, float a) { y[0] = 1.0f / a; }')["inverse"]

    def declared(zero: Any) -> hg.Graph:
        g = hg.Graph("zeros")
        y, z = (g.device_array(name, shape=1, dtype="float32") for name in "yz")
        g.kernel(inverse, 1, 1, (y, zero), name="inverse")
        g.memset(z, zero, name="set")
        return g

    for zero, negative in ((0.0, -0.0), (np.float32(0.0), np.float32(-0.0))):
        assert not hg.explain_update(declared(zero), declared(zero))
        with declared(zero).compile(runtime="cpu") as exe:
            exe.run()
            exe.update(declared(negative))
            exe.run()
            assert (exe.read("y")[0], bool(np.signbit(exe.read("z")[0]))) == (-np.inf, True)


def test_explain_update_finds_nans_alike() -> None:
    def nan() -> hg.Graph:
        g = hg.Graph("g")
        g.memset(g.device_array("x", shape=4, dtype="float64"), float("nan"))
        return g

    assert not hg.explain_update(nan(), nan())


def test_stats_count_updates_that_do_not_instantiate() -> None:
    with build().compile(runtime="recorder") as exe:
        exe.update(build(a=2.0, value=3, grid=4))
        assert (exe.stats.instantiations, exe.stats.updates) == (1, 2)
        exe.update(build(a=2.0, value=3, grid=4))
        assert (exe.stats.instantiations, exe.stats.updates) == (1, 2)
        exe.update(build(child_value=5), rebuild=True)
        assert exe.stats.instantiations == 2
