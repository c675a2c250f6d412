"""Copies from pageable memory read what the graph's order says, though drivers may read such memory when a graph is launched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import CaptureMode, MemoryRange
from hipgraphdsl.runtimes.recorder import RecorderRuntime

Array = npt.NDArray[Any]
SHAPES: dict[str, tuple[tuple[int, ...], Any]] = {
    "flat": ((4,), np.s_[:]),
    "large": ((1 << 18,), np.s_[:]),
    "strided": ((256, 256), np.s_[:, 0:128]),
    "boxes": ((2, 3, 6), np.s_[0:1, 0:2, 0:1]),
}
LAUNCHES = 5


def advance(w: Array) -> None:
    w += 1


def declared(g: hg.Graph, kind: str, shape: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """Return pageable memory of zeros, and what each launch is given for it."""
    if kind == "host":
        return g.host_array("w", np.zeros(shape, "i4"), pinned=False), {}
    if kind == "external":
        return g.external_array("w", np.zeros(shape, "i4")), {}
    return g.param("w", "int32", shape=shape), {"w": np.zeros(shape, "i4")}


@pytest.mark.parametrize("order", ["write then copy", "copy then write", "device then back"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["host", "external", "parameter"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
def test_copies_see_what_nodes_of_this_launch_and_of_the_one_before_have_written(
    runtime: Any, backend: Any, kind: str, shape: str, order: str
) -> None:
    extents, part = SHAPES[shape]
    g = hg.Graph("pageable")
    w, given = declared(g, kind, extents)
    a, h = g.device_array("a", shape=extents, dtype="i4"), g.host_array("h", shape=extents, dtype="i4")
    seen: list[tuple[int, int]] = []
    if order == "write then copy":
        g.host(advance, args=(w,), name="advance")
    if order == "device then back":  # w is a's values of before, advanced in page-locked memory
        g.host(advance, args=(h,), name="advance")
        g.memcpy(a, h)
        g.memcpy(w[part], a[part])
        g.memset(a, 0)
    g.memcpy(a[part], w[part], name="copy")
    g.memcpy(h, a)
    g.host(lambda h: seen.append((int(h[part].min()), int(h[part].max()))), args=(h,), reads=[h], name="look")
    if order == "copy then write":
        g.host(advance, args=(w,), name="advance")
    with g.compile(runtime=runtime, backend=backend) as exe:
        for _ in range(LAUNCHES):
            exe.launch(**given)
        exe.synchronize()
    first = 0 if order == "copy then write" else 1
    assert seen == [(n, n) for n in range(first, first + LAUNCHES)]


@pytest.mark.parametrize("backend", ["explicit", "streams"])
@pytest.mark.parametrize("runtime", HERE)
def test_executables_share_page_locked_memory_in_part(runtime: Any, backend: Any) -> None:
    memory = np.zeros(3000, "i4")
    pieces = [memory[:1500], memory[700:2000], memory[1990:], memory]

    def compiled(w: Array) -> hg.Executable:
        g = hg.Graph("sharing")
        x, a = g.external_array("w", w), g.device_array("a", shape=w.size, dtype="i4")
        g.host(advance, args=(x,))
        g.memcpy(a, x)
        return g.compile(runtime=runtime, backend=backend)

    opened = [compiled(w) for w in pieces]
    try:
        for _ in pieces:
            for w, exe in zip(pieces, opened):
                exe.launch()
                assert exe.read("a").tolist() == w.tolist()
            pieces.pop(0)
            opened.pop(0).close()
    finally:
        for exe in opened:
            exe.close()


class Lent:
    """A runtime that reads pageable memory when a graph is launched, and what it is asked to page-lock."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, early: bool = True) -> None:
        quirks = frozenset({"pageable_read_at_launch"}) if early else frozenset[str]()
        monkeypatch.setattr(runtime, "target", replace(runtime.target, quirks=runtime.target.quirks | quirks))
        monkeypatch.setattr(runtime, "host_register", self.register)
        monkeypatch.setattr(runtime, "host_unregister", self.unregister)
        self.runtime = runtime
        self.locked: list[tuple[int, int]] = []
        self.refuses = False

    def register(self, pointer: int, nbytes: int) -> int:
        if self.refuses:
            raise hg.HipError("hipHostRegister", 1, "hipErrorInvalidValue", "invalid argument")
        self.locked.append((pointer, nbytes))
        return pointer

    def unregister(self, registered: int) -> None:
        self.locked = [piece for piece in self.locked if piece[0] != registered]

    def holds(self, exe: hg.Executable, name: str) -> bool:
        pointer = exe.array(name).ptr
        return any(start <= pointer < start + nbytes for start, nbytes in self.locked)


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Lent:
    return Lent(hg.open_runtime("cpu"), monkeypatch)


def by_host(g: hg.Graph, w: Any, a: Any) -> None:
    g.host(advance, args=(w,), name="write")


def by_copy(g: hg.Graph, w: Any, a: Any) -> None:
    g.memcpy(w, a, name="write")


def in_a_child(g: hg.Graph, w: Any, a: Any) -> None:
    inner = hg.Graph("inner")
    inner.host(advance, args=(inner.host_array("v", shape=4, dtype="i4", pinned=False),), name="write")
    g.child(inner, bind={"v": w}, name="child")


@pytest.mark.parametrize("writes", [by_host, by_copy, in_a_child])
@pytest.mark.parametrize("last", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_pageable_memory_is_locked_only_where_a_node_writes_it(
    lent: Lent, backend: Any, writes: Callable[[hg.Graph, Any, Any], None], last: bool
) -> None:
    g = hg.Graph("writers")
    w, left = (g.host_array(name, np.zeros(4, "i4"), pinned=False) for name in ("w", "left"))
    a = g.device_array("a", shape=4, dtype="i4")
    if not last:
        writes(g, w, a)
    g.memcpy(a, left)
    g.memcpy(a, w)
    if last:
        writes(g, w, a)
    with g.compile(runtime=lent.runtime, backend=backend) as exe:
        assert lent.holds(exe, "w")
        assert not lent.holds(exe, "left")
        exe.run()
    assert not lent.locked


def test_set_locks_what_is_copied_from_then_on(lent: Lent) -> None:
    g = hg.Graph("set")
    w, v = (g.host_array(name, np.zeros(4, "i4"), pinned=False) for name in "wv")
    a = g.device_array("a", shape=4, dtype="i4")
    g.host(advance, args=(w,), name="write")
    g.memcpy(a, v, after=["write"], name="copy")
    with g.compile(runtime=lent.runtime) as exe:
        assert not lent.holds(exe, "w")
        exe.set("copy", src=w)
        assert lent.holds(exe, "w")


def test_a_parameter_locks_the_pageable_array_that_it_is_bound_to(lent: Lent) -> None:
    g = hg.Graph("bound")
    w, v = (g.host_array(name, np.zeros(4, "i4"), pinned=False) for name in "wv")
    p, a = g.param("p", "int32", v, shape=4), g.device_array("a", shape=4, dtype="i4")
    g.host(advance, args=(w,), name="write")
    g.memcpy(a, p, after=["write"], name="copy")
    with g.compile(runtime=lent.runtime) as exe:
        assert not lent.locked
        exe.run(p=w)
        assert lent.holds(exe, "w")
        assert not lent.holds(exe, "v")


def test_memory_that_cannot_be_locked_is_refused_where_a_node_writes_it(lent: Lent) -> None:
    lent.refuses = True

    def graph(writes: bool) -> hg.Graph:
        g = hg.Graph("refused")
        w, a = g.external_array("w", np.zeros(4, "i4")), g.device_array("a", shape=4, dtype="i4")
        if writes:
            g.host(advance, args=(w,), name="write")
        g.memcpy(a, w, name="copy")
        return g

    with graph(writes=False).compile(runtime=lent.runtime) as exe:
        exe.run()
    with pytest.raises(hg.DeclarationError, match=r"node 'write' writes it.*use a host_array") as caught:
        graph(writes=True).compile(runtime=lent.runtime)
    assert (caught.value.node, caught.value.array) == ("copy", "w")


def test_bound_memory_that_cannot_be_locked_is_refused_at_launch_and_the_graph_stays(lent: Lent) -> None:
    g = hg.Graph("refused at launch")
    w, a = g.param("w", "int32", shape=4), g.device_array("a", shape=4, dtype="i4")
    g.host(advance, args=(w,), name="write")
    g.memcpy(a, w, name="copy")
    with g.compile(runtime=lent.runtime) as exe:
        exe.run(w=np.zeros(4, "i4"))
        lent.refuses = True
        with pytest.raises(hg.DeclarationError, match="parameter 'w', whose memory cannot be page-locked"):
            exe.launch(w=np.full(4, 7, "i4"))
        exe.run()
        assert exe.read("a").tolist() == [2] * 4


def test_memory_that_kernels_reach_must_be_lockable_on_every_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = Lent(hg.open_runtime("cpu"), monkeypatch, early=False)
    lent.refuses = True
    g = hg.Graph("reached")
    w = g.external_array("w", np.zeros(4, "i4"))
    g.memset(w, 1, name="fill")
    with pytest.raises(hg.DeclarationError, match=r"node 'fill' uses external 'w'.*and the device cannot reach it"):
        g.compile(runtime=lent.runtime)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("mode", list(CaptureMode))
def test_memory_is_page_locked_while_somebody_captures_and_spoils_no_capture(
    monkeypatch: pytest.MonkeyPatch, mode: CaptureMode, elsewhere: bool
) -> None:
    runtime = RecorderRuntime()
    lent = Lent(runtime, monkeypatch)
    register = lent.register

    def unsafe(pointer: int, nbytes: int) -> int:
        runtime.free(runtime.malloc(4))  # captures forbid to page-lock as they forbid this
        return register(pointer, nbytes)

    monkeypatch.setattr(runtime, "host_register", unsafe)
    g = hg.Graph("given")
    w, a = g.param("w", "i4", np.zeros(4, "i4"), shape=4), g.device_array("a", shape=4, dtype="i4")
    g.memcpy(a, w)
    g.memcpy(w, a)
    stream = runtime.stream_create()
    with g.compile(runtime) as exe:
        runtime.stream_begin_capture(stream, mode)
        values = np.zeros(4, "i4")
        thread = threading.Thread(target=exe.run, kwargs={"w": values})
        if elsewhere:
            thread.start()
            thread.join()
        else:
            exe.run(w=values)
        runtime.graph_destroy(runtime.stream_end_capture(stream))
        assert lent.locked == [(values.ctypes.data, values.nbytes)]
    assert not lent.locked
    runtime.stream_destroy(stream)


@pytest.mark.parametrize(("part", "torn"), [(np.s_[:25], False), (np.s_[8:40], True), (np.s_[24:26], True), (np.s_[25:], False)])
@pytest.mark.parametrize("place", ["", "part/"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_copy_that_is_refused_because_it_leaves_page_locked_memory_says_so(
    monkeypatch: pytest.MonkeyPatch, backend: Any, place: str, part: slice, torn: bool
) -> None:
    runtime = RecorderRuntime()
    values = np.zeros(64, "i4")
    pinned = MemoryRange(values.ctypes.data, 100, on_host=True)  # by another library
    monkeypatch.setattr(runtime, "mem_get_address_range", lambda at: pinned if 0 <= at - pinned.pointer < pinned.nbytes else None)

    def refused(*_: Any, **__: Any) -> Any:
        raise hg.HipError("hipMemcpy", 1, "hipErrorInvalidValue", "invalid argument")

    monkeypatch.setattr(runtime, "memcpy_async", refused)
    monkeypatch.setattr(runtime, "graph_add_memcpy_node_1d", refused)
    g = inner = hg.Graph("torn")
    w, a = inner.external_array("w", values), inner.device_array("a", shape=64, dtype="i4")
    inner.memcpy(a[part], w[part], name="copy")
    if place:
        g = hg.Graph("around")
        g.child(inner, name="part")
    with pytest.raises(hg.HipError, match=r"\(1\), invalid argument") as caught, g.compile(runtime, backend) as exe:
        exe.run()
    assert caught.value.node == f"{place}copy"
    said = f"only a part of the memory of array '{place}w' is page-locked, and no copy reaches across the end"
    assert (said in str(caught.value)) == torn
