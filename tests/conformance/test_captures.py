"""What dies while a stream captures does not spoil the capture, and what a capture has recorded lives as long as its graph."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.executable import memory as memory_module
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import CaptureMode, Fill2D
from hipgraphdsl.runtimes.recorder import RecorderRuntime

BACKENDS = ("explicit", "capture", "streams", "serial")
SOURCE = r"""
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
    monkeypatch.setattr(
        memory_module, "_thread", SimpleNamespace(start_new_thread=lambda call, args: in_a_thread(lambda: call(*args)))
    )


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
    assert f"array {kind!r}: its memory could not be freed: hip" in caplog.text
