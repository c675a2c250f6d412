"""Launches on the CPU runtime are held back while many are in flight on their stream; Ctrl-C ends the wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.arrays import Array
from hipgraphdsl.graph import Backend
from hipgraphdsl.runtimes.data import Fill2D

ADD = hg.Module('extern "C" __global__ void add(int* x, int by) { x[0] += by; }')["add"]


class Alarm(Exception):
    pass


@contextmanager
def alarm(ring: Callable[[], None]) -> Iterator[None]:
    """Call a function in this thread, as Ctrl-C is handled, after a while; the launch inside the block waits for it."""
    before = signal.signal(signal.SIGALRM, lambda *_: ring())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def waiting_graph(eager: bool = False) -> hg.Graph:
    g = hg.Graph("waits")
    g.memory_ops([hg.wait_value(g.host_array("go", np.zeros(1, "uint32")), 1)])
    if eager:
        g.eager(lambda stream: None, after=g.nodes[-1:], name="issue")
    return g


def fill_up(exe: hg.Executable) -> int:
    """Launch until another launch would wait; return how many were launched."""
    for count in range(2000):
        if exe.runtime._ext.hgcpuStreamRoom(exe.stream, 0):  # type: ignore[attr-defined]
            return count
        exe.launch()
    raise AssertionError("no launch is held back")


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
@pytest.mark.parametrize("eager", [False, True])
def test_launch_is_held_back_where_a_thousand_are_in_flight(backend: Backend, eager: bool) -> None:
    with waiting_graph(eager).compile("cpu", backend=backend) as exe:
        go = np.asarray(exe.array("go"))
        launched = fill_up(exe)
        assert 100 < launched <= 1024

        def refuse() -> None:
            raise Alarm

        with alarm(refuse), pytest.raises(Alarm):
            exe.launch()
        rung: list[bool] = []

        def let() -> None:
            rung.append(not exe.done())
            go[0] = 1

        with alarm(let):
            exe.launch()
        assert rung == [True]
        exe.synchronize()
        exe.run()


@pytest.mark.parametrize("timeout_s", [0, 0.05])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
@pytest.mark.parametrize("eager", [False, True])
def test_launch_waits_for_room_no_longer_than_its_limit(backend: Backend, eager: bool, timeout_s: float) -> None:
    with waiting_graph(eager).compile("cpu", backend=backend) as exe:
        launched = fill_up(exe)
        for given in ({"timeout_s": timeout_s}, {"stream": exe.stream, "timeout_s": timeout_s}):
            with pytest.raises(hg.WaitTimeout, match="launch of graph 'waits' has not begun: too much work is in flight"):
                exe.launch(**given)
        assert exe.stats.launches == launched
        np.asarray(exe.array("go"))[0] = 1
        exe.launch(timeout_s=60)
        exe.run()


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_launch_that_finds_no_room_within_its_limit_gives_no_value(backend: Backend) -> None:
    g = waiting_graph()
    g.kernel(ADD, 1, 1, (g.device_array("x", np.zeros(1, "int32")), g.param("by", "int32", 1)), after=g.nodes[-1:])
    with g.compile("cpu", backend=backend) as exe:
        launched = fill_up(exe)
        with pytest.raises(hg.WaitTimeout, match="has not begun"):
            exe.launch(by=1000, timeout_s=0.02)
        assert exe.parameters == {"by": 1}
        np.asarray(exe.array("go"))[0] = 1
        exe.run()
        assert exe.read("x")[0] == launched + 1


def copies(g: hg.Graph, x: Array, body: hg.Graph) -> None:
    g.memcpy(x, g.param("by", "int32", [1], shape=1, copy=True))


def captures(g: hg.Graph, x: Array, body: hg.Graph) -> None:
    def fill(stream: Any, x: Any, by: int) -> None:
        stream.runtime.memset_async(Fill2D(x.ptr, 4, by, 1), int(stream))

    g.captured(fill, (x, g.param("by", "int32", 1)))


def decides(g: hg.Graph, x: Array, body: hg.Graph) -> None:
    condition = g.device_array("condition", np.ones(1, "int32"))
    g.conditional("if", condition, body, {"x": x, "by": g.param("by", "int32", 1)}, decide="device")


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("use", [copies, captures, decides])
def test_values_that_wait_for_earlier_launches_do_so_no_longer_than_the_limit(
    use: Callable[[hg.Graph, Array, hg.Graph], None], backend: Backend
) -> None:
    body = hg.Graph("body")
    body.kernel(ADD, 1, 1, (body.device_array("x", shape=1, dtype="int32"), body.param("by", "int32")))
    g = waiting_graph()
    x = g.device_array("x", np.zeros(1, "int32"))
    use(g, x, body)
    with g.compile("cpu", backend=backend) as exe, g.compile("cpu", backend=backend) as same:
        exe.launch()
        with pytest.raises(hg.WaitTimeout, match="launch of graph 'waits' has not begun: its new values wait") as caught:
            exe.launch(by=7, timeout_s=0.02)
        assert caught.value.unfinished
        for each in (exe, same):
            np.asarray(each.array("go"))[0] = 1
        exe.synchronize()
        for each in (exe, same):
            each.write("x", 0)
            each.run()
        np.testing.assert_array_equal(exe.read("x"), same.read("x"))
        exe.run(by=7)
        assert exe.read("x")[0] != same.read("x")[0]


@contextmanager
def another_thread_launches(exe: hg.Executable, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside the block another thread waits for room in `launch`."""
    inside, wait_for_room = threading.Event(), exe.runtime.wait_for_room
    raised: list[BaseException] = []

    def note(*given: Any) -> bool:
        inside.set()
        return wait_for_room(*given)

    def launch() -> None:
        try:
            exe.launch()
        except BaseException as error:
            raised.append(error)

    monkeypatch.setattr(exe.runtime, "wait_for_room", note)
    thread = threading.Thread(target=launch)
    thread.start()
    try:
        inside.wait()
        yield
    finally:
        np.asarray(exe.array("go"))[0] = 1
        thread.join()
    assert not raised


@pytest.mark.parametrize("call", ["launch", "close"])
@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_limit_holds_while_another_thread_waits_in_launch(backend: Backend, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with waiting_graph().compile("cpu", backend=backend) as exe:
        launched = fill_up(exe)
        with another_thread_launches(exe, monkeypatch):
            for given in ((0.02,), (0,)):
                arguments = given if call == "close" else (None, *given)
                with pytest.raises(hg.WaitTimeout, match=f"{call}: another thread, which launches .* has not returned after 0"):
                    getattr(exe, call)(*arguments)
        exe.run()
        assert exe.stats.launches == launched + 2
        exe.close(timeout_s=60)


def long_graph(steps: int, lanes: int = 1) -> hg.Graph:
    """Return a graph whose first node waits, with so many steps on each of several lanes behind it."""
    g = waiting_graph()
    first = g.nodes[-1]
    for lane in range(lanes):
        x = g.host_array(f"x{lane}", shape=1, dtype="uint32")
        for i in range(steps):
            g.memset(x, i, name=f"fill_{lane}_{i}", after=[first])
    return g


@pytest.mark.parametrize("ended_by", ["a signal", "its limit"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_launch_of_many_steps_can_be_ended_in_their_midst(lanes: int, ended_by: str) -> None:
    with long_graph(3000, lanes).compile("cpu", backend="streams") as exe:
        go = np.asarray(exe.array("go"))

        def refuse() -> None:
            raise Alarm

        if ended_by == "a signal":
            with alarm(refuse), pytest.raises(Alarm):
                exe.launch()
        else:
            with pytest.raises(hg.WaitTimeout, match=r"the launch has not come past 'fill_\d_\d+': too much work"):
                exe.launch(timeout_s=0.05)
        assert not exe.done()
        go[0] = 1
        exe.synchronize()
        for lane in range(lanes):
            assert exe.read(f"x{lane}")[0] < 2999
        exe.run()
        for lane in range(lanes):
            assert exe.read(f"x{lane}")[0] == 2999


def test_launches_are_held_back_by_each_lane() -> None:
    with long_graph(200, lanes=4).compile("cpu", backend="streams") as exe:
        assert exe.stats.lanes == 4

        def launch_twenty() -> None:
            for _ in range(20):
                exe.launch(timeout_s=0)

        with pytest.raises(hg.WaitTimeout):
            launch_twenty()
        assert 2 < exe.stats.launches < 10
        np.asarray(exe.array("go"))[0] = 1
        exe.synchronize()
        exe.run()


class _Prepared:
    """The function of an eager node that compiled code can call, and that does nothing."""

    def __call__(self, stream: Any, *_: Any) -> None:
        return

    def prepared(self, stream: int, *_: Any) -> list[Any]:
        return []


def in_segments() -> hg.Graph:
    """Return a graph of two lanes with eager nodes between segments; a launch takes more operations of the second's stream."""
    g = waiting_graph()
    go = g.nodes[-1]
    for name, segments in (("x", 1), ("y", 30)):
        x = g.device_array(name, shape=1, dtype="uint32")
        g.memset(x, 0, after=[go])
        for _ in range(segments):
            g.eager(_Prepared(), reads=[x], writes=[x])
            g.memset(x, 1)
    return g


@pytest.mark.parametrize("alone", [True, False])
def test_launch_in_segments_by_compiled_code_can_be_ended_where_a_lane_is_full(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program's method, and by its recorded calls as where several processes launch together."""
    monkeypatch.setattr(hg.Executable, "_alone", alone)
    with in_segments().compile("cpu", lanes=None) as exe:
        go, own = np.asarray(exe.array("go")), exe._own
        go[0] = 1
        for _ in range(2):
            exe.run()
        go[0] = 0
        assert own.program is not None
        (lane,) = own.program.streams
        assert own.compiled.bind_calls(own.program, exe.stream)
        own.compiled.unblock()
        opener, ended = threading.Timer(20, go.fill, (1,)), []

        def refuse() -> None:
            ended.append(int(go[0]) == 0)
            raise Alarm

        def launch_many() -> None:
            for _ in range(2000):
                exe.launch()

        opener.start()
        with alarm(refuse), pytest.raises(Alarm):
            launch_many()
        opener.cancel()
        assert ended == [True]
        assert own.compiled.counts()[0] > 10
        assert exe.runtime.wait_for_room(exe.stream, (), 0)
        assert not exe.runtime.wait_for_room(lane, (), 0)
        go[0] = 1
        exe.run()


def test_launch_in_a_host_function_is_never_held_back() -> None:
    with waiting_graph().compile("cpu") as inner:
        g = hg.Graph("launches")
        h = g.host_array("h", np.zeros(1, "int32"))

        def launch(h: Any) -> None:
            for _ in range(1500):
                inner.runtime.graph_launch(inner.handle, inner.stream)
            h[0] = 1

        g.host(launch, (h,))
        with g.compile("cpu") as outer:
            outer.run()
            assert outer.read("h")[0] == 1
            np.asarray(inner.array("go"))[0] = 1
            inner.runtime.stream_synchronize(inner.stream)


def test_queue_setting_says_how_many_are_in_flight() -> None:
    program = """
import numpy as np, hipgraphdsl as hg
g = hg.Graph("waits")
g.memory_ops([hg.wait_value(g.host_array("go", np.zeros(1, "uint32")), 1)])
with g.compile("cpu") as exe:
    count = 0
    while not exe.runtime._ext.hgcpuStreamRoom(exe.stream, 0):
        exe.launch()
        count += 1
    np.asarray(exe.array("go"))[0] = 1
print(count)
"""
    environment = {**os.environ, "HIPGRAPHDSL_CPU_QUEUE": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "7\n"
