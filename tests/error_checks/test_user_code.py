"""Host and captured functions that cannot be, and captures that go wrong."""

from __future__ import annotations

import builtins
import functools
import subprocess
import sys
import urllib.error
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes.data import MemcpyKind


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


def _generator(*args: Any) -> Iterator[None]:
    yield


async def _coroutine(*args: Any) -> None:
    """Never run."""


async def _stream(*args: Any) -> AsyncIterator[None]:
    yield


class _Suspended:
    async def __call__(self, *args: Any) -> None:
        """Never run."""

    def method(self, *args: Any) -> Iterator[None]:
        yield


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("method", ["host", "captured"])
@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (_generator, "a generator"), (_coroutine, "a coroutine"), (_stream, "an asynchronous generator"),
        (functools.partial(_coroutine, 1), "a coroutine"), (_Suspended(), "a coroutine"),
        (functools.partial(_Suspended(), 1), "a coroutine"), (_Suspended().method, "a generator"),
    ],
)  # fmt: skip
def test_functions_whose_call_runs_nothing_are_refused(g: hg.Graph, method: str, fn: Any, kind: str) -> None:
    with pytest.raises(hg.DeclarationError, match=f"node 'n': fn is {kind} function, and calling it runs nothing") as caught:
        getattr(g, method)(fn, name="n")
    assert caught.value.node == "n"
    assert len(g) == 0
    g.host(call, name="plain")
    with g.compile("cpu") as exe, pytest.raises(hg.DeclarationError, match=kind):
        exe.set("plain", fn=fn)


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


@pytest.mark.parametrize("access", [5, None, "h", ["h"], [1]])
def test_access_is_a_list_of_accesses(access: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=r"node 'n': access is a list of hg\.reads\(view\), hg\.writes"):
        hg.HostNode(name="n", fn=call, access=access)


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


@pytest.mark.needs("cpu")
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


class _Texts(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class _Frozen(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError("frozen")


class _Keywords(Exception):
    def __new__(cls, *, code: int) -> _Keywords:
        return super().__new__(cls)

    def __init__(self, *, code: int) -> None:
        self.code = code


class _Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("final")


def _raised(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


_EXCEPTIONS: list[tuple[BaseException, str]] = [
    (_raised(lambda: np.zeros((2, 2)).sum(axis=7)), "AxisError: axis 7 is out of bounds"),
    (subprocess.CalledProcessError(3, "false"), "CalledProcessError: Command 'false' returned non-zero exit status 3"),
    (subprocess.TimeoutExpired("cmd", 3), "TimeoutExpired: Command 'cmd' timed out after 3 seconds"),
    (urllib.error.HTTPError("http://u", 404, "not found", {}, None), "HTTPError: HTTP Error 404: not found"),  # type: ignore[arg-type]  # a dict serves
    (_raised(lambda: b"\xff".decode()), "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0"),
    (_raised(lambda: "\udc80".encode()), "UnicodeEncodeError: 'utf-8' codec can't encode character"),
    (_raised(lambda: compile("1+", "f", "exec")), "SyntaxError: invalid syntax"),
    (_raised(lambda: open("/no/such/file")), "FileNotFoundError: [Errno 2]"),  # noqa: SIM115  # it is not opened
    (MemoryError("no memory"), "MemoryError: no memory"),
    (StopIteration(4), "StopIteration: 4"),
    (hg.DeclarationError("declared", array="a"), "DeclarationError: declared"),
    (hg.CallbackError.of("inner", ValueError("v")), "ValueError: host node 'inner': ValueError: v"),
    (_Texts(), "_Texts: (its text cannot be had: __str__ raises KeyError)"),
    (_Frozen("f"), "_Frozen: f"),
    (_Keywords(code=5), "_Keywords: "),
    (_Final("f"), "_Final: f"),
]
if sys.version_info >= (3, 11):
    _EXCEPTIONS.append((builtins.ExceptionGroup("several", [ValueError("v")]), "ExceptionGroup: several (1 sub-exception)"))


@pytest.mark.needs("cpu")
@pytest.mark.parametrize(("error", "text"), _EXCEPTIONS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("kind", ["host", "captured"])
def test_whatever_a_function_raises_arrives_with_the_node(g: hg.Graph, kind: str, error: BaseException, text: str) -> None:
    def fails(*_: Any) -> None:
        raise error

    getattr(g, kind)(fails, name="wrong")
    with pytest.raises(hg.CallbackError) as caught, g.compile("cpu", backend="serial") as exe:
        exe.run()
    assert str(caught.value).startswith(f"{kind} node 'wrong': {text}")
    assert caught.value.node == "wrong"
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, type(error)) or isinstance(error, _Final)
    for field in ("errno", "filename", "returncode", "code", "lineno", "start", "value", "array"):
        assert getattr(caught.value, field, None) == getattr(error, field, None)


@pytest.mark.parametrize("method", ["host", "captured", "eager"])
def test_an_argument_of_another_graph_is_refused_also_where_nothing_is_read_or_written(g: hg.Graph, method: str) -> None:
    foreign = hg.Graph("other").host_array("x", shape=4, dtype="f4")
    with pytest.raises(hg.DeclarationError, match="node 'n': graph 'user' has no array 'x'"):
        getattr(g, method)(call, (foreign,), reads=[], writes=[], name="n")
    assert len(g) == 0
