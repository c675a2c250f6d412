"""Launches keep their order when the first and the last nodes of a graph are disabled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg

MODULE = hg.Module(
    r"""
extern "C" __global__ void mix(int* y, const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + 1u);
}
""",
    name="ends",
)
N = 64


def advance(k: Any) -> None:
    k[...] = (13 * k.astype("i8") + 5).astype("u4").view("i4")


def graph() -> hg.Graph:
    """A kernel that reads what the host wrote in the launch before, between two fills that may be left out."""
    g = hg.Graph("ends")
    k, y = g.host_array("k", np.arange(N, dtype="i4")), g.device_array("y", shape=N, dtype="i4")
    first, last = g.device_array("first", shape=N, dtype="i4"), g.device_array("last", shape=N, dtype="i4")
    g.memset(first, 1, name="first")
    g.kernel(MODULE["mix"], 2, 32, (y, k, N), name="mix", after=["first"])
    g.host(advance, args=(k,), reads=[k], writes=[k], name="advance")
    g.memset(last, 1, name="last", after=["advance"])
    return g


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
def test_disable_of_first_and_last_nodes_keeps_launches_in_flight_in_order(runtime: Any, backend: Any) -> None:
    k, y = np.arange(N, dtype="i4"), np.zeros(N, "i4")
    with graph().compile(runtime=runtime, backend=backend) as exe:
        for off in ((), ("first",), ("first", "last"), ("last",)):
            for name in ("first", "last"):
                (exe.disable if name in off else exe.enable)(name)
            for _ in range(20):
                exe.launch()
                y = (31 * y.astype("i8") + 7 * k + 1).astype("u4").view("i4")
                advance(k)
            exe.synchronize()
            assert exe.read("k").tolist() == k.tolist(), off
            assert exe.read("y").tolist() == y.tolist(), off


def test_disable_builds_the_graph_again_where_disabled_nodes_lose_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = hg.open_runtime("cpu")
    lent = replace(runtime.target, quirks=runtime.target.quirks | {"disabled_overlaps_launches"})
    monkeypatch.setattr(runtime, "target", lent)
    with graph().compile(runtime=runtime) as exe:
        exe.disable("first")
        exe.run()
        assert exe.stats.instantiations == 2
        assert exe.read("first").tolist() == [0] * N
    g = hg.Graph("no host nodes")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 1, name="fill")
    with g.compile(runtime=runtime) as exe:
        exe.disable("fill")
        exe.run()
        assert exe.stats.instantiations == 1
