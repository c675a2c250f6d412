"""Events that several graphs share: one records, another waits, by every backend."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

BACKENDS = ("explicit", "capture", "streams", "serial")


@pytest.fixture(params=["cpu", "amd", "nvidia"])
def device(request: pytest.FixtureRequest) -> Runtime:
    return runtime_or_skip(request.param)


@pytest.mark.parametrize("reader", BACKENDS)
@pytest.mark.parametrize("writer", ["explicit", "capture", "streams"])
def test_a_graph_waits_for_the_event_that_another_has_recorded(writer: Any, reader: Any, device: Runtime) -> None:
    """`serial` cannot be the writer: its launch waits for each node itself, so it has finished when another is launched."""
    event = hg.Event(f"ready_{writer}_{reader}", shared=True)
    memory = np.zeros(8, "i4")
    gate = threading.Event()
    seen: list[int] = []
    first = hg.Graph("first")
    x = first.external_array("x", memory)

    def write(x: Any) -> None:
        gate.wait(30)
        x[...] += 1

    made = first.host(write, args=(x,), name="write")
    first.record(event, after=[made])
    second = hg.Graph("second")
    y = second.external_array("y", memory)
    waited = second.wait(event, name="wait")
    second.host(lambda y: seen.append(int(y[0])), args=(y,), reads=[y], writes=[], after=[waited], name="look")
    with first.compile(device, writer) as a, second.compile(device, reader) as b:
        for n in range(1, 4):
            gate.clear()
            a.launch()
            # A launch of `serial` returns only when it is through, so it is made beside the one that lets it through.
            launching = threading.Thread(target=b.launch)
            launching.start()
            assert not seen[n - 1 :], "the second graph waits"
            gate.set()
            launching.join(30)
            b.synchronize()
            a.synchronize()
            assert seen == list(range(1, n + 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_elapsed_us_between_events_of_two_graphs_names_them(backend: Any, device: Runtime) -> None:
    start, stop = hg.Event(f"start_{backend}", shared=True), hg.Event(f"stop_{backend}", shared=True)
    first, second = hg.Graph("first"), hg.Graph("second")
    first.record(start)
    waited = second.wait(start)
    x = second.device_array("x", shape=1 << 16, dtype="f4")
    work = second.memset(x, 1.0, after=[waited])
    second.record(stop, after=[work])
    with first.compile(device, backend) as a, second.compile(device, backend) as b:
        a.run()
        b.run()
        assert 0 < b.elapsed_us(start, stop) < 60e6
        assert b.elapsed_us(start.name, stop.name) == b.elapsed_us(start, stop)
        with pytest.raises(hg.DeclarationError, match=f"records no event 'stop_{backend}'"):
            a.elapsed_us(start, stop)


def test_shared_event_outlives_the_graphs_that_use_it(device: Runtime) -> None:
    event = hg.Event("survivor", shared=True)
    for _ in range(2):
        g = hg.Graph("g")
        g.record(event)
        g.wait(event)
        with g.compile(device) as exe:
            exe.run()


def test_events_of_one_name_are_two_unless_they_are_shared(device: Runtime) -> None:
    graphs = []
    for _ in range(2):
        g = hg.Graph("g")
        g.record("mine")
        graphs.append(g)
    with graphs[0].compile(device) as a, graphs[1].compile(device) as b:
        assert not set(a.known().events) & set(b.known().events)
