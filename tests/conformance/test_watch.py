"""DebugOptions(watch=True): what waits, or has failed, has a name, on every runtime and with every backend."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

SOURCE = r"""
extern "C" __global__ void next(int* c) { *c -= 1; }
extern "C" __global__ void wait(const int* c, const int* until) {
  while (*c < *(const volatile int*)until) {}
}
"""

WAITING = ("gate", "child/fill", "back")


@pytest.fixture(params=HERE)
def device(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def unfinished(exe: hg.Executable, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that a timeout names, once they are those that are wanted: a busy machine takes its time."""
    end = time.monotonic() + 30
    while True:
        with pytest.raises(hg.WaitTimeout) as caught:
            exe.synchronize(timeout_s=0.05)
        if caught.value.unfinished == wanted or time.monotonic() > end:
            assert not wanted or repr(wanted[0]) in str(caught.value)
            return caught.value.unfinished


def gated(gate: threading.Event) -> hg.Graph:
    """Two branches, one of which waits; a child; and nodes behind them."""
    inner = hg.Graph("inner")
    inner.memset(inner.device_array("z", shape=4, dtype="i4"), 3, name="fill")
    g = hg.Graph("gated")
    x, y = g.host_array("x", np.arange(4, dtype="i4")), g.device_array("y", shape=4, dtype="i4")
    other = g.device_array("other", shape=4, dtype="i4")
    g.memcpy(y, x, name="copy")
    g.host(lambda: gate.wait(60), name="gate", after=["copy"])
    g.memset(other, 2, name="beside")
    g.child(inner, bind={"z": y}, name="child", after=["gate"])
    g.memcpy(x, y, name="back")
    return g


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_timeout_names_what_has_not_finished(device: Runtime, backend: Any, before: int) -> None:
    gate = threading.Event()
    gate.set()
    with gated(gate).compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe:
        for _ in range(before):
            exe.launch()
        exe.synchronize()
        gate.clear()
        try:
            exe.launch()
            exe.launch()
            assert unfinished(exe, WAITING) == WAITING
        finally:
            gate.set()
        exe.run()
        assert exe._own.unfinished() == ()
        assert exe.read("x").tolist() == [3] * 4


def test_a_launch_that_has_not_begun_names_all_nodes(device: Runtime, backend: Any) -> None:
    gate, done = threading.Event(), threading.Event()
    done.set()
    with (
        gated(gate).compile(runtime=device, backend="explicit") as first,
        gated(done).compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe,
    ):
        exe.run()
        try:
            first.launch()
            exe.launch(first.stream)
            with pytest.raises(hg.WaitTimeout) as caught:
                exe.synchronize(timeout_s=0.1)
            assert set(caught.value.unfinished) == {"copy", "gate", "beside", "child/fill", "back"}
        finally:
            gate.set()


def test_a_fault_names_what_has_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    device, gate = hg.open_runtime("cpu"), threading.Event()
    with gated(gate).compile(runtime=device, backend="explicit", debug=hg.DebugOptions(watch=True)) as exe:
        exe.launch()
        assert unfinished(exe, WAITING) == WAITING

        def fails(stream: int, *_: Any) -> bool:
            raise hg.HipError("hipStreamQuery", 719, "hipErrorLaunchFailure", "unspecified launch failure")

        with monkeypatch.context() as patch:
            patch.setattr(device, "stream_wait", fails)
            patch.setattr(device, "stream_synchronize", fails)
            with pytest.raises(hg.HipError, match=r"\(719\), .*; not finished: 'gate', 'child/fill', 'back'$"):
                exe.synchronize()
        gate.set()
        device.stream_synchronize(exe.stream)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_a_loop_names_what_this_iteration_has_not_finished(device: Runtime, backend: Any) -> None:
    if device.target.platform == "amd":
        pytest.skip("HIP has no conditional nodes")
    kernels = hg.Module(SOURCE)
    body = hg.Graph("body")
    n, until = body.device_array("n", shape=1, dtype="i4"), body.host_array("until", shape=1, dtype="i4")
    body.kernel(kernels["next"], 1, 1, (n,), name="next")
    body.kernel(kernels["wait"], 1, 1, (hg.reads(n), hg.reads(until)), name="wait")
    g = hg.Graph("loop")
    c, stop = g.device_array("c", shape=1, dtype="i4"), g.host_array("stop", np.array([2], "i4"))
    start = g.host_array("start", np.array([3], "i4"))
    g.memcpy(c, start, name="begin")
    g.conditional("while", c, body, bind={"n": c, "until": stop}, name="loop")
    g.memset(c, 0, name="after")
    with g.compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe:
        word = np.asarray(exe.array("stop"))
        try:
            exe.launch()  # the first iteration passes, the second waits
            assert unfinished(exe, ("loop", "after", "loop/0/wait")) == ("loop", "after", "loop/0/wait")
        finally:
            word[0] = -1
        exe.synchronize()
        assert exe._own.unfinished() == ()


def test_nodes_are_set_disabled_and_updated_by_name_while_watched(device: Runtime, backend: Any) -> None:
    def graph(value: int) -> hg.Graph:
        g = hg.Graph("changed")
        x, p = g.device_array("x", shape=4, dtype="i4"), g.param("p", "int32", 5)
        g.memset(x[:2], value, name="left")
        g.memset(x[2:], p, name="right")
        return g

    with graph(1).compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe:
        exe.run(p=6)
        exe.set("left", value=2)
        exe.run()
        assert exe.read("x").tolist() == [2, 2, 6, 6]
        exe.update(graph(3))
        exe.disable("right")
        exe.run(p=7)
        assert exe.read("x").tolist() == [3, 3, 6, 6]
        assert exe._own.unfinished() == ()
        twin = exe.clone()
        twin.enable("right")
        twin.run()
        assert twin.read("x").tolist() == [3, 3, 7, 7]
        assert [span.name for span in twin.profile().spans if span.name[0] != "~"] == ["left", "right"]
        assert "~watch" in str(twin.plan)
        twin.close()


def test_a_child_that_is_called_as_a_mark_is_updated(device: Runtime, backend: Any) -> None:
    def declared(to: int) -> hg.Graph:
        inner = hg.Graph("inner")
        inner.memset(inner.device_array("z", shape=4, dtype="i4"), 3, name="fill")
        g = hg.Graph("outer")
        arrays = [g.device_array(name, np.zeros(4, "i4")) for name in ("x", "y")]
        g.child(inner, bind={"z": arrays[to]}, name="watch")
        return g

    with declared(0).compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe:
        exe.update(declared(1))
        exe.run()
        assert exe.read("x").tolist() == [0] * 4
        assert exe.read("y").tolist() == [3] * 4
