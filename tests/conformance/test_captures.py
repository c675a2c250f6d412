"""What dies while a stream captures does not spoil the capture, and what a capture has recorded lives as long as its graph."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.executable import devices
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import CaptureMode, Fill2D
from hipgraphdsl.runtimes.recorder import RecorderRuntime

BACKENDS = ("explicit", "capture", "streams", "serial")
SOURCE = r"""
extern "C" __global__ void add(int* x, int v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += v; }
extern "C" __global__ void put(int* x, int v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = v; }
"""


@pytest.fixture(params=("recorder", *HERE))
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return RecorderRuntime() if request.param == "recorder" else hg.open_runtime(request.param)


# -- what dies while a stream captures -------------------------------------------------------------------------------------


def in_a_thread(call: Callable[[], object]) -> None:
    """Call in a new thread, wait until it has ended, and raise what it raised."""
    raised: list[BaseException] = []

    def keep() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=keep)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


HERE_OR_THERE: dict[str, Callable[[Callable[[], object]], object]] = {
    "here": lambda call: call(), "in another thread": in_a_thread,
}  # fmt: skip


def owner_of_everything(runtime: Runtime, backend: Any) -> hg.Executable:
    """Return an Executable that has memory of each kind, a module, streams, events and a graph, and has been launched."""
    g = hg.Graph("owner")
    x, h = g.device_array("x", shape=64, dtype="i4"), g.host_array("h", shape=64, dtype="i4")
    module = hg.Module(SOURCE)
    g.kernel(module["put"], 1, 64, (x, 3, 64), name="put")
    g.memset(g.device_array("y", shape=64, dtype="i4"), 0)
    g.memcpy(h, x)
    g.record(hg.Event("e"))
    exe = g.compile(runtime, backend)
    exe.launch(stream=runtime.stream_create())
    exe.run()
    return exe


def closed(owner: list[Any]) -> None:
    owner.pop().close()


def collected(owner: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        owner.clear()
        gc.collect()


def lent(name: str) -> Callable[[list[Any]], None]:
    """Return a death of memory that was lent and whose Executable has been closed before."""

    def die(owner: list[Any]) -> None:
        owner.clear()
        gc.collect()

    die.of = name  # type: ignore[attr-defined]
    return die


DEATHS = {"closed": closed, "collected": collected, "device memory": lent("x"), "host memory": lent("h")}


def owner_for(death: Any, runtime: Runtime, backend: Any) -> list[Any]:
    owner: list[Any] = [owner_of_everything(runtime, backend)]
    if hasattr(death, "of"):
        exe = owner.pop()
        owner.append(exe.array(death.of))
        exe.close()
    return owner


@pytest.fixture
def freed_before_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that frees lent memory has ended when the code that let the memory go continues."""
    monkeypatch.setattr(devices, "_thread", SimpleNamespace(start_new_thread=lambda call, args: in_a_thread(lambda: call(*args))))


@contextmanager
def capture_of_others(runtime: Runtime, mode: CaptureMode) -> Iterator[None]:
    """Capture as another library does, in this thread; the capture must end with the node that was recorded."""
    stream = runtime.stream_create()
    memory = runtime.malloc(64)
    runtime.stream_begin_capture(stream, mode)
    try:
        yield
        runtime.memset_async(Fill2D(memory, 1, 0, 64), stream)
    finally:
        graph = runtime.stream_end_capture(stream)
    assert len(runtime.graph_get_nodes(graph)) == 1
    runtime.graph_destroy(graph)
    runtime.stream_destroy(stream)
    runtime.free(memory)


@pytest.mark.parametrize("where", ["here", "in another thread"])
@pytest.mark.parametrize("thread", list(CaptureMode))
@pytest.mark.parametrize("mode", list(CaptureMode))
def test_unsafe_calls_follow_the_modes_of_capture_and_thread(
    runtime: Runtime, mode: CaptureMode, thread: CaptureMode, where: str
) -> None:
    forbidden = thread is not CaptureMode.RELAXED and (
        mode is not CaptureMode.RELAXED if where == "here" else mode is thread is CaptureMode.GLOBAL
    )
    codes: list[int] = []

    def call() -> None:
        before = runtime.thread_exchange_stream_capture_mode(thread)
        assert before is CaptureMode.GLOBAL
        try:
            runtime.free(runtime.malloc(64))
        except hg.HipError as error:
            codes.append(error.code)
        finally:
            assert runtime.thread_exchange_stream_capture_mode(before) is thread

    stream = runtime.stream_create()
    runtime.stream_begin_capture(stream, mode)
    HERE_OR_THERE[where](call)
    try:
        runtime.graph_destroy(runtime.stream_end_capture(stream))
    except hg.HipError as error:
        codes.append(error.code)
    finally:
        runtime.stream_destroy(stream)
    assert codes == ([900, 901] if forbidden else [])


@pytest.mark.parametrize("where", ["here", "in another thread"])
@pytest.mark.parametrize("mode", list(CaptureMode))
@pytest.mark.parametrize("backend", ["explicit", "streams"])
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.usefixtures("freed_before_it_goes_on")
def test_what_dies_while_another_library_captures_spoils_no_capture(
    runtime: Runtime, death: str, backend: Any, mode: CaptureMode, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    live = runtime.live if isinstance(runtime, RecorderRuntime) else {}
    streams = live.get("stream", 0)
    owner = owner_for(DEATHS[death], runtime, backend)
    with capture_of_others(runtime, mode):
        HERE_OR_THERE[where](lambda: DEATHS[death](owner))
    assert not owner
    assert not caplog.records
    if isinstance(runtime, RecorderRuntime):
        assert {**runtime.live, "stream": runtime.live["stream"] - 1} == {**live, "stream": streams}  # one is the test's own


@pytest.mark.parametrize("how", ["explicit", "capture", "from_capture"])
@pytest.mark.parametrize("backend", ["explicit", "streams"])
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.usefixtures("freed_before_it_goes_on")
def test_what_dies_in_a_captured_function_spoils_no_capture(
    runtime: Runtime, death: str, backend: Any, how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "from_capture" and isinstance(runtime, RecorderRuntime):
        pytest.skip("the recorder reads no memset nodes back")
    owner = owner_for(DEATHS[death], runtime, backend)
    memory = runtime.malloc(64)

    def record(stream: Any, *_: Any) -> None:
        DEATHS[death](owner)
        stream.runtime.memset_async(Fill2D(memory, 1, 7, 64), int(stream))

    if how == "from_capture":
        made = hg.Graph.from_capture(record, runtime=runtime)
        assert [node.kind for node in made.nodes] == ["memset"]
    else:
        g = hg.Graph("outer")
        g.captured(record, (g.device_array("y", shape=64, dtype="u1"),))
        with g.compile(runtime, how) as exe:
            exe.run()
    runtime.free(memory)
    assert not owner
    assert not caplog.records


@pytest.mark.parametrize("kind", ["x", "h"])
@pytest.mark.usefixtures("freed_before_it_goes_on")
def test_memory_that_cannot_be_freed_is_named_in_the_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    runtime = RecorderRuntime()
    owner = owner_for(lent(kind), runtime, "explicit")
    runtime.fail_at(1, api="hipFree" if kind == "x" else "hipHostFree")
    owner.clear()
    assert f"the memory of array {kind!r} could not be freed: hip" in caplog.text


# -- what a capture has recorded ---------------------------------------------------------------------------------------------


class Inner:
    """An Executable whose launch uses memory of each kind, a kernel and callbacks, and what its launches have done."""

    def __init__(self, runtime: Runtime) -> None:
        self.seen: list[int] = []
        g = hg.Graph("inner")
        x, h = g.device_array("x", shape=64, dtype="i4"), g.host_array("h", shape=64, dtype="i4")
        step, out = g.param("step", "int32", shape=64, copy=True), g.param("out", "int32", shape=64)
        lower = hg.Graph("lower")
        y = lower.device_array("y", shape=64, dtype="i4")
        lower.kernel(hg.Module(SOURCE)["add"], 1, 64, (y, 1, 64))
        lower.memcpy(lower.host_array("z", shape=64, dtype="i4"), y)
        g.kernel(hg.Module(SOURCE)["add"], 1, 64, (x, 1, 64), name="add")
        g.memcpy(h, x)
        g.host(lambda h: self.seen.append(int(h[0])), (h,), reads=[h], writes=[], name="see")
        g.memcpy(out, h)
        g.memcpy(g.host_array("copied", shape=64, dtype="i4"), step)
        g.child(lower, name="lower")
        self.exe = [g.compile(runtime, "streams")]
        self.out = [np.zeros(64, "i4")]
        self.gone: weakref.ref[Any] = weakref.ref(self.out[0])

    def launch(self, stream: Any, *_: Any) -> None:
        self.exe[0].launch(stream=int(stream), out=self.out[0], step=np.arange(64, dtype="i4"))

    def end(self, end: str) -> None:
        exe, _ = self.exe[0], self.out.pop()
        if end == "closed":
            exe.close()
        elif end == "rebuilt without its arrays":
            g = hg.Graph("inner")
            g.memset(g.device_array("else", shape=4, dtype="i4"), 0)
            exe.update(g, rebuild=True)
        elif end == "given others":
            exe.set("see", fn=print)
            exe.run(out=np.zeros(64, "i4"))
            exe.set("see", fn=id)
            exe.run(out=np.zeros(64, "i4"))
        elif end == "collected":
            del exe
            collected(self.exe)
        gc.collect()

    def close(self) -> None:
        for exe in self.exe:
            exe.close()


def recorded_by_node(runtime: Runtime, inner: Inner, backend: Any) -> hg.Executable:
    g = hg.Graph("outer")
    g.captured(inner.launch, (g.device_array("mine", shape=4, dtype="i4"),))
    return g.compile(runtime, backend)


def recorded_in_a_child(runtime: Runtime, inner: Inner) -> hg.Executable:
    lower, g = hg.Graph("lower"), hg.Graph("outer")
    lower.captured(inner.launch, (lower.device_array("mine", shape=4, dtype="i4"),))
    g.child(lower)
    return g.compile(runtime)


def recorded_through_another(runtime: Runtime, inner: Inner) -> hg.Executable:
    """Return an Executable that has captured a launch of one which is closed, whose node launches the inner one."""
    with recorded_by_node(runtime, inner, "streams") as middle:
        g = hg.Graph("outer")
        g.captured(lambda stream, _: middle.launch(stream=stream), (g.device_array("mine", shape=4, dtype="i4"),))
        return g.compile(runtime)


def recorded_and_read_back(runtime: Runtime, inner: Inner) -> hg.Executable:
    return hg.Graph.from_capture(inner.launch, runtime=runtime).compile(runtime)


OUTERS: dict[str, Callable[[Runtime, Inner], hg.Executable]] = {
    "explicit": lambda runtime, inner: recorded_by_node(runtime, inner, "explicit"),
    "capture": lambda runtime, inner: recorded_by_node(runtime, inner, "capture"),
    "child": recorded_in_a_child,
    "through another": recorded_through_another,
    "from_capture": recorded_and_read_back,
}


@pytest.mark.parametrize("end", ["closed", "collected", "rebuilt without its arrays", "given others"])
@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.usefixtures("freed_before_it_goes_on")
def test_what_a_capture_has_recorded_lives_until_its_graph_is_closed(runtime: Runtime, outer: str, end: str) -> None:
    computes = not isinstance(runtime, RecorderRuntime)
    if outer == "from_capture" and not computes:
        pytest.skip("the recorder reads no memory nodes back")
    if outer == "from_capture" and runtime.name == "amd":
        pytest.skip("a copy to memory of NumPy cannot be read back from AMD's runtime (7.2), and is refused by name")
    live = {} if computes else runtime.live  # type: ignore[attr-defined]
    inner = Inner(runtime)
    exe = OUTERS[outer](runtime, inner)
    exe.run()
    first = len(inner.seen)
    inner.end(end)
    g = hg.Graph("victims")
    for i in range(16):
        g.device_array(f"d{i}", np.full(64, -7, "i4"))
        g.host_array(f"h{i}", np.full(64, -7, "i4"))
    with g.compile(runtime) as victims:
        if computes:
            exe.run()
            exe.run()
            assert all((victims.read(name) == -7).all() for name in victims.workflow.arrays)
            more = 2 if end == "given others" else 0  # launches of the inner one, whose callback is another then
            assert inner.seen == [*range(1, first + 1), *(first + more + 1 + i for i in range(2))]
            kept = inner.gone()
            assert kept is not None
            assert (kept == inner.seen[-1]).all()
            del kept
    exe.close()
    del exe
    gc.collect()  # graphs that were read back
    gc.collect()  # what they have kept
    if end != "given others":
        assert inner.gone() is None
    inner.close()
    if not computes:
        assert runtime.live == live  # type: ignore[attr-defined]


@pytest.mark.usefixtures("freed_before_it_goes_on")
def test_what_nobody_has_recorded_is_released_at_once() -> None:
    runtime = RecorderRuntime()
    live = runtime.live
    inner = Inner(runtime)
    stream = runtime.stream_create()
    runtime.stream_begin_capture(stream)
    inner.launch(stream)  # by another library, which is not known
    runtime.graph_destroy(runtime.stream_end_capture(stream))
    runtime.stream_destroy(stream)
    inner.close()
    assert runtime.live == live
