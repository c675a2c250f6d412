"""Launches keep their order when the first and the last nodes of a graph are disabled."""

from __future__ import annotations

from typing import Any, Literal

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


def graph(kind: Literal["memset", "memcpy", "kernel"]) -> hg.Graph:
    """A kernel that reads what the host wrote in the launch before, between two nodes that may be left out."""
    g = hg.Graph("ends")
    k, y = g.host_array("k", np.arange(N, dtype="i4")), g.device_array("y", shape=N, dtype="i4")

    def end(name: str, after: list[str]) -> None:
        x, source = g.device_array(name, shape=N, dtype="i4"), g.device_array(f"before_{name}", shape=N, dtype="i4")
        match kind:
            case "memset":
                g.memset(x, 1, name=name, after=after)
            case "memcpy":
                g.memcpy(x, source, name=name, after=after)
            case "kernel":
                g.kernel(MODULE["mix"], 2, 32, (x, source, N), name=name, after=after)

    end("first", [])
    g.kernel(MODULE["mix"], 2, 32, (y, k, N), name="mix", after=["first"])
    g.host(advance, args=(k,), reads=[k], writes=[k], name="advance")
    end("last", ["advance"])
    return g


@pytest.mark.parametrize("kind", ["memset", "memcpy", "kernel"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
def test_disable_of_first_and_last_nodes_keeps_launches_in_flight_in_order(runtime: Any, backend: Any, kind: Any) -> None:
    k, y = np.arange(N, dtype="i4"), np.zeros(N, "i4")
    with graph(kind).compile(runtime=runtime, backend=backend) as exe:
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
