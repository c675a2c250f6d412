"""Host and captured functions that cannot be, and captures that go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import MemcpyKind
from hipgraphdsl.runtimes.recorder import RecorderRuntime


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("user")
    g.device_array("d", shape=4, dtype="int32")
    g.host_array("h", shape=4, dtype="int32")
    return g


def call(*args: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize("method", ["host", "captured"])
@pytest.mark.parametrize("fn", [None, 3, "call", [call]])
def test_only_callables_are_called(g: hg.Graph, method: str, fn: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="node 'n': fn is a Python callable"):
        getattr(g, method)(fn, name="n")
    assert len(g) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"args": 5}, r"args is a tuple \(got 5\)"),
        ({"args": "h"}, "args is a tuple"),
        ({"reads": 5}, "reads is a list of arrays"),
        ({"reads": [5]}, r"an array in reads= is expected"),
        ({"writes": ["h"]}, r"an array in writes= is expected"),
        ({"reads": [None]}, "is expected"),
    ],
)
@pytest.mark.parametrize("method", ["host", "captured"])
def test_what_is_accessed_is_a_list_of_arrays(g: hg.Graph, method: str, options: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        getattr(g, method)(call, name="n", **options)
    assert len(g) == 0


@pytest.mark.parametrize("options", [{"args": "d"}, {"reads": "d"}, {"writes": "d"}, {"args": "view"}])
def test_callbacks_do_not_reach_device_memory(g: hg.Graph, options: dict[str, str]) -> None:
    d = g.arrays["d"]
    given = {key: [d[1:] if value == "view" else d] for key, value in options.items()}
    with pytest.raises(hg.DeclarationError, match="cannot reach device array 'd'; copy it to a host array first") as caught:
        g.host(call, name="n", **given)  # type: ignore[arg-type]  # the keywords differ from row to row
    assert (caught.value.node, caught.value.array) == ("n", "d")


@pytest.fixture(params=["explicit", "capture"])
def graph_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def _raises(stream: Any) -> None:
    raise RuntimeError("no library")


def _synchronises(stream: Any) -> None:
    stream.runtime.stream_synchronize(int(stream))


def _forks(stream: Any) -> None:
    runtime = stream.runtime
    other, event = runtime.stream_create(), runtime.event_create()
    runtime.left = (other, event)
    runtime.event_record(event, int(stream))
    runtime.stream_wait_event(other, event)
    memory = np.zeros(4, "i4")
    runtime.memcpy_async(memory.ctypes.data, memory.ctypes.data, 8, MemcpyKind.HOST_TO_HOST, other)


def _ends(stream: Any) -> None:
    stream.runtime.graph_destroy(stream.runtime.stream_end_capture(int(stream)))


@pytest.mark.parametrize("fn", [_raises, _synchronises, _forks, _ends])
@pytest.mark.parametrize("runtime_name", ["recorder", "cpu"])
def test_a_capture_that_goes_wrong_is_ended_and_the_process_goes_on(
    g: hg.Graph, graph_backend: Any, fn: Any, runtime_name: str
) -> None:
    runtime: Any = RecorderRuntime() if runtime_name == "recorder" else hg.open_runtime("cpu")
    g.memset(g.arrays["d"], 1, name="before")
    g.captured(fn, name="wrong", after=["before"])
    runtime.left = ()
    if fn is _raises:
        with pytest.raises(RuntimeError, match="captured node 'wrong': RuntimeError: no library") as raised:
            g.compile(runtime=runtime, backend=graph_backend)
        assert isinstance(raised.value, hg.CallbackError)
        assert raised.value.node == "wrong"
        assert type(raised.value.__cause__) is RuntimeError
    else:
        with pytest.raises(hg.HipError) as caught:
            g.compile(runtime=runtime, backend=graph_backend)
        assert caught.value.node == "wrong"
        assert caught.value.name.startswith(("hipErrorStreamCapture", "hipErrorIllegalState"))
    for handle, destroy in zip(runtime.left, (runtime.stream_destroy, runtime.event_destroy)):
        destroy(handle)
    if isinstance(runtime, RecorderRuntime):
        assert runtime.live == {}
        assert not runtime._captures
    again = hg.Graph("again")
    x = again.device_array("x", shape=4, dtype="int32")
    again.memset(x, 3)
    with again.compile(runtime=runtime, backend="capture") as exe:
        exe.run()


@pytest.mark.parametrize("backend", ["streams", "serial"])
def test_a_function_that_fails_at_launch_leaves_the_executable_usable(g: hg.Graph, backend: Any) -> None:
    fail = [True]

    def issue(stream: Any) -> None:
        if fail[0]:
            raise RuntimeError("no library")

    g.captured(issue, name="wrong")
    g.memset(g.arrays["d"], 4, after=["wrong"])
    with g.compile(runtime="cpu", backend=backend) as exe:
        with pytest.raises(RuntimeError, match="captured node 'wrong': RuntimeError: no library"):
            exe.launch()
        exe.synchronize()
        fail[0] = False
        exe.run()
        assert exe.read("d").tolist() == [4] * 4
