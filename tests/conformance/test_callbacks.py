"""What a host callback gets, keeps, calls and raises, on every runtime and by every backend."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime


@pytest.fixture(params=HERE)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- views that are kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pinned", "pageable", "external", "parameter", "parameter of the graph's"])
def test_a_view_that_a_callback_keeps_stays_valid(runtime: Runtime, backend: Any, kind: str) -> None:
    n = 1 << 16
    g = hg.Graph("kept")
    given: dict[str, Any] = {}
    x: Any
    if kind == "external":
        x = g.external_array("x", np.zeros(n, "i4"))
    elif kind.startswith("parameter"):
        own = g.host_array("own", np.zeros(n, "i4"))
        x = g.param("x", "i4", shape=n, default=own if kind.endswith("graph's") else None)
        given = {} if kind.endswith("graph's") else {"x": np.zeros(n, "i4")}
    else:
        x = g.host_array("x", np.zeros(n, "i4"), pinned=kind == "pinned")
    saved: list[Any] = []

    def fill(values: Any, tail: Any) -> None:
        values[:] = 7
        saved.append(tail)

    g.host(fill, args=(x, x[n // 2 :]) if kind != "parameter of the graph's" else (x, x))
    with g.compile(runtime, backend) as exe:
        exe.run(**given)
    del g, x, exe, given, fill
    gc.collect()
    others = [np.full(n, 9, "i4") for _ in range(8)]
    assert (saved[0] == 7).all()
    saved[0][:] = 1
    assert (saved[0][::2] == 1).all()
    assert all((other == 9).all() for other in others)


def test_memory_is_returned_with_the_last_view_of_a_callback(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    free, freed = runtime.host_free, threading.Event()

    def host_free(pointer: int) -> None:
        free(pointer)
        freed.set()

    monkeypatch.setattr(runtime, "host_free", host_free)
    saved: list[Any] = []
    g = hg.Graph("returned")
    g.host(saved.append, args=(g.host_array("x", np.arange(8)),))
    with g.compile(runtime) as exe:
        exe.run()
    part = saved.pop()[4:]
    assert not freed.is_set()
    assert part.tolist() == [4, 5, 6, 7]
    del part
    assert freed.wait(10)

    freed.clear()
    with g.compile(runtime) as exe:
        exe.run()
        saved.clear()
    assert freed.is_set()  # by close() itself, where no view is left


def test_the_last_view_may_die_inside_another_callback(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    free, freed = runtime.host_free, threading.Event()
    threads: list[int] = []

    def host_free(pointer: int) -> None:
        threads.append(threading.get_ident())
        free(pointer)
        freed.set()

    monkeypatch.setattr(runtime, "host_free", host_free)
    saved: list[Any] = []
    g = hg.Graph("one")
    g.host(saved.append, args=(g.host_array("x", np.arange(8)),))
    with g.compile(runtime) as exe:
        exe.run()

    def clear() -> None:
        saved.clear()
        threads.append(threading.get_ident())

    other = hg.Graph("other")
    other.host(clear)
    with other.compile(runtime) as exe:
        exe.run()
        assert freed.wait(10)
    assert len(set(threads)) == 2


# -- what a callback may call ------------------------------------------------------------------------------------------------


def _parameters(exe: hg.Executable) -> Any:
    return exe.parameters


_REFUSED: dict[str, Callable[[hg.Executable], Any]] = {
    "launch": lambda exe: exe.launch(),
    "launch with values": lambda exe: exe.launch(k=2),
    "launch on a stream": lambda exe: exe.launch(stream=exe.stream),
    "run": lambda exe: exe.run(),
    "synchronize": lambda exe: exe.synchronize(),
    "read": lambda exe: exe.read("h"),
    "write": lambda exe: exe.write("h", 1),
    "array": lambda exe: exe.array("h"),
    "set": lambda exe: exe.set("call", args=()),
    "enable": lambda exe: exe.enable("call"),
    "disable": lambda exe: exe.disable("call"),
    "update": lambda exe: exe.update(hg.Graph("g")),
    "clone": lambda exe: exe.clone(),
    "profile": lambda exe: exe.profile(),
    "elapsed_us": lambda exe: exe.elapsed_us("a", "b"),
    "parameters": _parameters,
    "known": lambda exe: exe.known(),
    "close": lambda exe: exe.close(),
}


@pytest.mark.parametrize("whose", ["its own", "another's"])
@pytest.mark.timeout(120)
def test_a_callback_calls_nothing_of_an_executable(runtime: Runtime, backend: Any, whose: str) -> None:
    refused: dict[str, BaseException] = {}
    executables: list[hg.Executable] = []
    allowed: list[Any] = []

    def call(*_: Any) -> None:
        exe = executables[-1]
        for name, method in _REFUSED.items():
            try:
                method(exe)
            except hg.HipGraphError as error:
                refused[name] = error
        try:
            hg.Graph("inside").compile(runtime)
        except hg.HipGraphError as error:
            refused["compile"] = error
        allowed.append((exe.stats.launches, len(exe.plan.steps), exe.done(), repr(exe)))

    g = hg.Graph("g")
    k = g.param("k", "i4", 1)
    g.host(call, args=(g.host_array("h", np.zeros(4, "i4")), k), name="call")
    with g.compile(runtime, backend) as exe, g.compile(runtime, backend) as other:
        executables += [exe] if whose == "its own" else [exe, other]
        exe.run()
        assert set(refused) == {*_REFUSED, "compile"}
        for name, error in refused.items():
            action = "launch" if name == "run" else name.partition(" ")[0]
            assert str(error).startswith(f"{action}: the callback of host node 'call' calls it for graph")
            assert f"call {action} in a thread that launches" in str(error)
        assert len(allowed) == 1
        assert allowed[0][1:3] == (1, whose != "its own")
        refused.clear()
        executables.append(other)
        exe.run()  # nothing of it stays refused outside
        other.run()
        assert len(allowed) == 3


def test_an_executable_may_be_dropped_in_a_callback(runtime: Runtime) -> None:
    closed = threading.Event()
    dropped: list[Any] = []

    class Watched:
        def __del__(self) -> None:
            closed.set()

        def __call__(self) -> None:
            """Do nothing."""

    g = hg.Graph("dropped")
    g.host(Watched(), name="watched")
    dropped.append(g.compile(runtime))
    del g
    other = hg.Graph("other")
    other.host(dropped.clear)
    with pytest.warns(ResourceWarning, match="was never closed"), other.compile(runtime) as exe:  # noqa: PT031  # a thread warns
        exe.run()
        for _ in range(100):  # the graph was part of a cycle, and the Executable is closed by another thread
            gc.collect()
            if closed.wait(0.1):
                break
        assert closed.is_set()


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_thread_that_meets_a_failure_which_another_has_taken_is_told_of_the_callback(backend: Any) -> None:
    def wrong(_: Any) -> None:
        raise ValueError("odd")

    g = hg.Graph("two threads")
    g.host(wrong, (g.host_array("h", np.zeros(4, "i4")),), name="wrong")
    with g.compile("cpu", backend) as exe:
        exe.launch()
        hosts = exe._own.hosts
        while not hosts.failures:
            pass
        hosts.take_failure()  # as another thread's `synchronize` does between the two steps of this one's
        with pytest.raises(ValueError, match="host node 'wrong': ValueError: odd"):
            exe.synchronize()
        exe._own.rest(exe._lock)
        assert hosts.taken is None


# -- what nobody has waited for ----------------------------------------------------------------------------------------------


def _failing() -> hg.Graph:
    def fails(*_: Any) -> None:
        raise ValueError("odd")

    g = hg.Graph("failing")
    g.host(fails, args=(g.host_array("h", np.zeros(4, "i4")),), name="wrong")
    return g


@pytest.mark.parametrize("how", ["with", "close", "timeout"])
def test_what_nobody_has_waited_for_is_raised_when_everything_is_returned(runtime: Runtime, backend: Any, how: str) -> None:
    exe = _failing().compile(runtime, backend)
    with pytest.raises(ValueError, match="host node 'wrong': ValueError: odd") as caught:  # noqa: PT012  # one of three
        if how == "with":
            with exe:
                exe.launch()
        exe.launch()
        exe.close(timeout_s=60 if how == "timeout" else None)
    assert isinstance(caught.value, hg.CallbackError)
    assert caught.value.node == "wrong"
    assert "closed" in repr(exe)
    exe.close()


def test_what_has_been_raised_is_not_raised_again(runtime: Runtime, backend: Any) -> None:
    with _failing().compile(runtime, backend) as exe:
        exe.launch()
        with pytest.raises(ValueError, match="odd"):
            exe.synchronize()


def test_beside_another_exception_it_is_logged(runtime: Runtime, backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(KeyError), _failing().compile(runtime, backend) as exe:  # noqa: PT012
        exe.launch()
        raise KeyError("another")
    assert "nobody has waited for the exception of a callback: host node 'wrong': ValueError: odd" in caplog.text


def test_the_finalizer_reports_it(runtime: Runtime, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(str(unraisable.exc_value)))
    exe = _failing().compile(runtime, backend)
    exe.launch()
    dropped = [exe]
    del exe
    with pytest.warns(ResourceWarning, match="was never closed"):
        dropped.clear()
    assert reported == ["host node 'wrong': ValueError: odd"]


def test_a_rebuilding_update_raises_it_and_changes_nothing(runtime: Runtime, backend: Any) -> None:
    g = hg.Graph("failing")
    g.empty()
    exe = _failing().compile(runtime, backend)
    exe.launch()
    with pytest.raises(ValueError, match="odd"):
        exe.update(g, rebuild=True)
    assert exe.workflow.nodes[0].name == "wrong"
    exe.update(g, rebuild=True)
    with exe:
        exe.run()


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("name", HERE)
def test_launch_that_is_refused_leaves_callbacks_as_they_were(name: Any, backend: Any) -> None:
    """The callback had its new value already when another node refused its own."""
    g = hg.Graph("refused")
    x, h = g.device_array("x", np.zeros(4, "i4")), g.host_array("h", np.zeros(1, "i4"))
    a, blocks = g.param("a", "int32", default=1), g.param("blocks", "int32", default=1)
    seen: list[int] = []
    g.host(lambda h, a: seen.append(int(a)), (h, a), name="see")
    g.kernel(hg.Module('extern "C" __global__ void inc(int* x) { x[0] += 1; }')["inc"], blocks, 1, (x,), name="inc")
    with g.compile(runtime=name, backend=backend) as exe:
        exe.run()
        with pytest.raises(hg.DeclarationError, match="must be at least 0"):
            exe.launch(a=2, blocks=-1)
        exe.run()
        exe.run()
        exe.run(a=3)
        with pytest.raises(hg.DeclarationError, match="must be at least 0"):
            exe.launch(a=4, blocks=-1)
        exe.run()
        exe.run(a=5)
        assert seen == [1, 1, 1, 3, 3, 5]


@pytest.mark.parametrize("name", HERE)
def test_synchronize_forgets_no_callback_of_a_launch_that_came_after_it_began(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of its wait and its return, another thread launches and replaces the callback."""
    g = hg.Graph("late")
    h = g.host_array("h", np.zeros(1, "i4"))
    gate = threading.Event()
    seen: list[int] = []

    g.host(lambda h: gate.wait(60), (h,), name="hold")
    g.host(lambda h, a: seen.append(int(a)), (h, g.param("a", "int32", default=1)), name="see")
    with g.compile(runtime=name) as exe:
        gate.set()
        exe.run()
        gate.clear()
        wait = exe._own.wait

        def waited(timeout_s: float | None) -> None:
            wait(timeout_s)
            monkeypatch.undo()
            exe.launch()
            threading.Timer(0.3, gate.set).start()  # some platforms wait for the launch before they change its node
            exe.set("see", args=(h, 7))

        monkeypatch.setattr(exe._own, "wait", waited)
        exe.synchronize()
        exe.run()
        assert seen == [1, 1, 7]
