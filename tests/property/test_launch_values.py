"""Random launches with values that kernel arguments, grids, memsets and callbacks take, each alone or shared by several."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from places import HERE

import hipgraphdsl as hg

MIX = hg.Module(
    r"""
extern "C" __global__ void mix(int* y, const int* x, int a, int b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 8) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + 100u * a + b);
}
extern "C" __global__ void given(int* n, int times) { n[0] = times & 3; }
extern "C" __global__ void less(int* n) { if (n[0] > 0) n[0] -= 1; }
extern "C" __global__ void wide(int* y, float f, double d) { y[0] += (int)(1000 * f) + (int)(d * 1e9) % 1000; }
""",
    name="values",
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(-9, 9),
    "b": st.integers(-9, 9),
    "e": st.integers(0, 255),
    "f": st.sampled_from([0.1, 0.25, -3.0, 2]),
    "g": st.sampled_from([0.1, 1e-3, 7]),
    "blocks": st.integers(1, 2),
    "unused": st.integers(-9, 9),
}
NODES = ("args", "again", "sized", "fill", "only fill", "call", "wide", "in child")
CUT = ("between", "times", "loop", "beside")
"""Nodes of a graph that is cut into segments."""


def graph(decide: Any = "") -> hg.Graph:
    g = hg.Graph("values")
    x, y, z = (g.device_array(name, np.arange(8, dtype="i4") + i) for i, name in enumerate("xyz"))
    h = g.host_array("h", np.zeros(8, "i4"))
    a, b, e = g.param("a", "int32", 1), g.param("b", "int32", 2), g.param("e", "uint8", 3)
    f, d = g.param("f", "float32", 0.5), g.param("g", "float64", 0.5)
    blocks = g.param("blocks", "uint32", 1)
    g.param("unused", "int32", 0)
    child = hg.Graph("child")
    w = child.device_array("w", shape=8, dtype="i4")
    v = child.param("v", "int32", 0)
    child.kernel(MIX["mix"], 2, 4, (w, w, v, 1), name="inner")
    g.kernel(MIX["mix"], 2, 4, (z, x, a, b), name="args")
    g.kernel(MIX["mix"], 2, 4, (z, y, b, b), name="again")
    g.kernel(MIX["mix"], blocks, 4, (z, x, a, 3), name="sized")
    g.memset(z[:2], b, name="fill")
    g.memset(g.device_array("bytes", shape=5, dtype="u1"), e, name="only fill")
    g.memcpy(h, z, name="out")
    g.host(added, args=(h, a), name="call")
    g.kernel(MIX["wide"], 1, 1, (y, f, d), name="wide")
    g.child(child, bind={"w": x, "v": a}, name="in child")
    if not decide:
        return g
    g.eager(added_between, (h, b), name="between")
    g.memcpy(y, h, name="back")
    body = hg.Graph("body")
    w, v = body.device_array("w", shape=8, dtype="i4"), body.param("v", "int32", 0)
    n = body.device_array("n", shape=1, dtype="i4")
    body.kernel(MIX["mix"], 1, 8, (w, w, v, 2), name="mix")
    body.kernel(MIX["less"], 1, 1, (n,), name="less")
    word = g.device_array("word", np.zeros(1, "i4"))
    g.kernel(MIX["given"], 1, 1, (word, b), name="times")
    g.conditional("while", word, body, bind={"w": y, "v": a, "n": word}, decide=decide, name="loop")
    g.eager(added_between, (g.host_array("other", np.zeros(8, "i4")), f), name="beside")
    return g


def added(h: Any, a: int) -> None:
    h += a


def added_between(stream: Any, h: Any, a: float) -> None:
    h += int(10 * a)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=60)
@given(data=st.data(), decide=st.sampled_from(["", "", "auto", "host"]))
def test_any_launches_with_values_do_what_they_do_one_by_one(runtime: Any, backend: Any, data: Any, decide: Any) -> None:
    draw = data.draw
    with (
        graph(decide).compile(runtime=runtime, backend=backend) as exe,
        graph(decide).compile(runtime=runtime, backend="serial") as wanted,
    ):
        for _ in range(12):
            action = draw(st.sampled_from(["launch"] * 6 + ["enable", "disable", "set", "look"]))
            if action == "launch":
                names = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=4))
                values = {name: draw(VALUES[name]) for name in sorted(names)}
                updates = exe.stats.updates
                exe.launch(**values)
                if not values:
                    assert exe.stats.updates == updates
                wanted.launch(**values)
            elif action == "set":
                numbers = [draw(st.sampled_from([4, "a", "b"])) for _ in range(2)]
                for one in (exe, wanted):
                    names = {**one.workflow.arrays, **one.workflow.parameters, 4: 4}
                    one.set("again", args=[names[name] for name in ("z", "y", *numbers)])
            elif action == "look":
                assert exe.parameters == pytest.approx(wanted.parameters)
            else:
                node = draw(st.sampled_from(NODES + CUT * bool(decide)))
                getattr(exe, action)(node)
                getattr(wanted, action)(node)
        for name in exe.workflow.arrays:
            assert exe.read(name).tobytes() == wanted.read(name).tobytes(), name
