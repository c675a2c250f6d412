"""Changes of an Executable while a launch of it is in flight: that launch runs as it was launched."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes.data import CaptureMode

MODULE = hg.Module(
    r"""
extern "C" __global__ void delay(unsigned int* state, int rounds) {
  unsigned int s = state[0];
  for (int k = 0; k < rounds; ++k) s = s * 1664525u + 1013904223u;
  state[0] = s;
}
extern "C" __global__ void add(int* x, int by) { x[threadIdx.x] += by; }
""",
    name="in_flight",
)
N = 16
ROUNDS = {"cpu": 20_000, "amd": 20_000, "nvidia": 100_000}  # about a tenth of a millisecond
BACKENDS = ["explicit", "capture", "streams", "serial"]


def graph(rounds: int) -> hg.Graph:
    """A kernel that takes its time, then one node of each kind that is disabled in place."""
    g = hg.Graph("in_flight")
    state = g.device_array("state", np.ones(1, "u4"))
    x, y = (g.device_array(name, shape=N, dtype="i4") for name in "xy")
    g.kernel(MODULE["delay"], 1, 1, (state, rounds), name="delay")
    g.memset(x, 7, name="memset", after=["delay"])
    g.kernel(MODULE["add"], 1, N, (x, 3), name="kernel")
    g.memcpy(y, x, name="memcpy")
    return g


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("runtime", HERE)
@pytest.mark.parametrize("node", ["memset", "kernel", "memcpy"])
def test_disable_and_enable_leave_a_launch_in_flight_as_it_was(node: str, runtime: Any, backend: Any) -> None:
    with graph(ROUNDS[runtime]).compile(runtime=runtime, backend=backend, lanes=1) as exe:
        for _ in range(60 if runtime == "nvidia" else 3):
            exe.launch()
            exe.disable(node)
            exe.launch()
            exe.enable(node)
            exe.launch()
            exe.synchronize()
        assert exe.read("y").tolist() == [10] * N
        exe.launch()
        exe.disable(node)
        assert exe.read("y").tolist() == [10] * N  # of the launch before
        exe.launch()
        assert exe.read("x").tolist() == [{"memset": 13, "kernel": 7, "memcpy": 10}[node]] * N


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("runtime", HERE)
def test_launch_waits_for_an_earlier_one_whose_stream_is_busy(runtime: Any, backend: Any) -> None:
    opened = hg.open_runtime(runtime)
    go = threading.Event()
    busy = hg.Graph("busy")
    busy.host(lambda _: go.wait(20), args=(busy.host_array("word", shape=1, dtype="i4"),))
    g = hg.Graph("adds")
    x = g.device_array("x", shape=N, dtype="i4")
    g.memset(x, 0)
    g.kernel(MODULE["add"], 1, N, (x, g.param("by", "int32", default=1)), name="add")
    with busy.compile(opened) as first, g.compile(opened, backend) as exe:
        exe.run()
        stream = opened.stream_create()
        first.launch(stream=stream)
        later = threading.Timer(0.1, go.set)  # serial waits in its first launch
        later.start()
        exe.launch(stream=stream, by=2)
        exe.launch(by=3)
        exe.synchronize()
        assert exe.read("x").tolist() == [3] * N
        later.join()
        first.synchronize()
    opened.stream_destroy(stream)


def adding(g: hg.Graph) -> Any:
    """Declare a kernel that adds the parameter `by` to `x`, and return `x`."""
    x = g.device_array("x", shape=N, dtype="i4")
    g.kernel(MODULE["add"], 1, N, (x, g.param("by", "int32", default=1)), name="add")
    return x


def adds() -> hg.Graph:
    g = hg.Graph("adds")
    adding(g)
    return g


def adds_and_allocates() -> hg.Graph:
    g = hg.Graph("adds_and_allocates")
    x = adding(g)
    y = g.alloc("y", shape=N, dtype="i4")
    g.memcpy(y, x)
    g.memset(x, 0)
    g.memcpy(x, y)
    g.free(y)
    return g


def adds_eagerly() -> hg.Graph:
    g = hg.Graph("adds_eagerly")
    g.eager(lambda stream: None, name="host")
    adding(g)
    return g


REFUSED: dict[Any, tuple[str, ...]] = {
    adds: ("explicit", "capture", "serial"),
    adds_and_allocates: ("explicit", "capture", "streams", "serial"),
    adds_eagerly: ("explicit", "capture", "streams", "serial"),
}
"""Graphs, and the backends whose launches no capture records."""


@pytest.mark.parametrize("whose", ["given", "own", "unknown"])
@pytest.mark.parametrize(("make", "backend"), [(make, backend) for make, backends in REFUSED.items() for backend in backends])
@pytest.mark.parametrize("runtime", HERE)
def test_launch_into_a_capture_is_refused_before_any_call(runtime: Any, make: Any, backend: Any, whose: Any) -> None:
    opened = hg.open_runtime(runtime)
    with make().compile(opened, backend) as exe:
        if whose != "unknown":  # launched before: by compiled code, if there is any
            exe.run()
        stream = exe.stream if whose == "own" else opened.stream_create()
        opened.stream_begin_capture(stream)
        for values in ({}, {"by": 5}):
            with pytest.raises(hg.DeclarationError, match=f"stream {stream:#x} captures.*backend '{backend}' cannot be recorded"):
                exe.launch(**({} if whose == "own" else {"stream": stream}), **values)
        captured = opened.stream_end_capture(stream)
        assert opened.graph_get_nodes(captured) == ()
        exe.run()
        exe.launch(stream=stream)
        assert exe.read("x").tolist() == [2 if whose == "unknown" else 3] * N
        opened.graph_destroy(captured)
        if whose != "own":
            opened.stream_destroy(stream)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("runtime", HERE)
def test_launch_inside_a_captured_node_is_refused_with_the_node(runtime: Any, backend: Any) -> None:
    opened = hg.open_runtime(runtime)
    with adds().compile(opened) as inner:
        outer = hg.Graph("outer")
        y = outer.device_array("y", shape=N, dtype="i4")
        outer.captured(lambda stream, _: inner.launch(stream=stream), (y,), name="launches")
        with pytest.raises(hg.CallbackError, match=r"node 'launches'.* captures") as raised:
            outer.compile(opened, backend)
        assert isinstance(raised.value, hg.DeclarationError)
        inner.run()
        assert inner.read("x").tolist() == [1] * N


@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_launch_on_the_null_stream_while_a_blocking_stream_captures_is_refused(backend: Any) -> None:
    opened = hg.open_runtime("cpu")
    create = opened._hip._library.hipStreamCreate  # type: ignore[attr-defined]  # the protocol makes none that blocks
    blocking = ctypes.c_void_p()
    assert create(ctypes.byref(blocking)) == 0
    stream = blocking.value or 0
    with adds().compile(opened, backend) as exe:
        exe.launch(stream=0)
        opened.stream_begin_capture(stream)
        with pytest.raises(hg.DeclarationError, match="stream 0x0 captures, or must wait for a stream that does"):
            exe.launch(stream=0)
        opened.graph_destroy(opened.stream_end_capture(stream))
        exe.launch(stream=0)
        assert exe.read("x").tolist() == [2] * N
    opened.stream_destroy(stream)


@pytest.mark.parametrize("target", ["amd:gfx942", "nvidia:sm_90"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "serial"])
def test_launch_into_a_capture_makes_no_call_but_the_question(backend: Any, target: str) -> None:
    recorder = RecorderRuntime(target=target)
    with adds().compile(recorder, backend) as exe:
        stream = recorder.stream_create()
        recorder.stream_begin_capture(stream)
        recorder.clear()
        with pytest.raises(hg.DeclarationError, match="captures"):
            exe.launch(stream=stream, by=3)
        assert set(recorder.apis()) <= {"hipStreamIsCapturing", "hipGetDevice", "hipSetDevice"}
        recorder.graph_destroy(recorder.stream_end_capture(stream))


@pytest.mark.parametrize("runtime", HERE)
def test_waiting_leaves_a_capture_of_launches_alone(runtime: Any) -> None:
    opened = hg.open_runtime(runtime)
    with adds().compile(opened, "streams") as exe:
        exe.run()
        stream = opened.stream_create()
        opened.stream_begin_capture(stream, CaptureMode.RELAXED)
        exe.launch(stream=stream)
        assert exe.done()
        exe.synchronize()
        captured = opened.stream_end_capture(stream)
        handle = opened.graph_instantiate(captured, 0)
        opened.graph_launch(handle, stream)
        opened.stream_synchronize(stream)
        assert exe.read("x").tolist() == [2] * N
        opened.graph_exec_destroy(handle)
        opened.graph_destroy(captured)
        opened.stream_destroy(stream)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_launches_are_ordered_where_the_platform_does_not_order_them(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = RecorderRuntime()
    recorder.target = replace(recorder.target, quirks=recorder.target.quirks | {"launches_overlap"})
    with graph(1000).compile(recorder, backend) as exe:
        exe.run()
        exe.launch()
        stream, own, start = recorder.stream_create(), exe.stream, len(recorder.calls)
        exe.launch(stream=stream)
        exe.launch(stream=stream)
        exe.launch()
        wanted = ["hipGraphLaunch", "hipEventRecord", "hipStreamWaitEvent"]
        called = [(call.api, call.args) for call in recorder.calls[start:] if call.api in wanted]
        record, wait, launch = wanted[1], wanted[2], wanted[0]
        on = [(api, stream if stream in args else own if own in args else None) for api, args in called]
        followed = [(launch, stream), (record, stream), (wait, own)]
        assert on == [(record, own), (wait, stream), *followed, *followed, (launch, own)]


def test_where_enabling_a_memset_node_fails_launches_the_graph_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = hg.open_runtime("cpu")
    monkeypatch.setattr(runtime, "target", replace(runtime.target, quirks=runtime.target.quirks | {"memset_enable_fails"}))
    with graph(1000).compile(runtime=runtime) as exe:
        exe.launch()
        exe.disable("kernel")
        assert exe.stats.instantiations == 1
        exe.disable("memset")
        assert exe.stats.instantiations == 2
        exe.enable("kernel")
        exe.run()
        assert exe.read("x").tolist() == [13] * N


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stream", ["no stream", "destroyed"])
def test_launch_on_what_is_no_stream_names_the_argument_and_the_handle(stream: str, backend: Any) -> None:
    with graph(1).compile("cpu", backend) as exe:
        exe.run()
        handle = 12345
        if stream == "destroyed":
            handle = exe.runtime.stream_create()
            exe.launch(stream=handle)
            exe.runtime.stream_destroy(handle)
        with pytest.raises(hg.HipError, match=f"launch of graph 'in_flight': no stream has the handle of stream={handle:#x}, or"):
            exe.launch(stream=handle)
        exe.run()
        assert exe.read("y").tolist() == [10] * N
