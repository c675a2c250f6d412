"""Launches on the CPU runtime are held back while many are in flight on their stream; Ctrl-C ends the wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.graph import Backend


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
