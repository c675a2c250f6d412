"""What a host callback gets, keeps, calls and raises, on every runtime and by every backend."""

from __future__ import annotations

import gc
import threading
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
