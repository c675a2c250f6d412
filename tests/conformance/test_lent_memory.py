"""Memory that an Executable hands out or is bound to lives as long as somebody uses it, and survives changes."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl import waiting
from hipgraphdsl.executable import devices
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.recorder import RecorderRuntime

Array = npt.NDArray[Any]
BACKENDS = ("explicit", "capture", "streams", "serial")
RAMP = np.arange(64, dtype="i4")


def declared(g: hg.Graph, kind: str, values: Array = RAMP) -> Any:
    if kind == "device":
        return g.device_array("x", values)
    return g.host_array("x", values, pinned=kind == "host")


def compiled(runtime: Any, kind: str, backend: Any = "explicit") -> hg.Executable:
    """Return an Executable with an array that its one node leaves as it is."""
    g = hg.Graph("owner")
    x = declared(g, kind)
    g.memcpy(g.device_array("other", shape=64, dtype="i4"), x)
    return g.compile(runtime=runtime, backend=backend)


def churn(runtime: Any) -> None:
    """Write to memory that has been freed, if it was: what is allocated next has other values."""
    for kind in ("device", "host", "pageable"):
        g = hg.Graph("churn")
        for i in range(8):
            make = g.device_array if kind == "device" else g.host_array
            make(f"a{i}", np.full(64, -1, "i4"))
        g.compile(runtime=runtime).close()


def through_external(runtime: Any, lent: Any) -> Callable[[], Array]:
    g = hg.Graph("user")
    out = g.host_array("out", shape=64, dtype="i4")
    g.memcpy(out, g.external_array("y", lent))

    def values() -> Array:
        with g.compile(runtime=runtime) as exe:
            exe.run()
            return exe.read("out")

    return values


def through_parameter(runtime: Any, lent: Any) -> Callable[[], Array]:
    g = hg.Graph("user")
    out, y = g.host_array("out", shape=64, dtype="i4"), g.param("y", "int32", shape=64)
    g.memcpy(out, y)
    exe = g.compile(runtime=runtime)
    exe.launch(y=lent)

    def values() -> Array:
        with exe:
            exe.run()
            return exe.read("out")

    return values


def through_numpy(runtime: Any, lent: Any) -> Callable[[], Array]:
    made = np.asarray(lent)
    return lambda: made


def through_dlpack(runtime: Any, lent: Any) -> Callable[[], Array]:
    made = np.from_dlpack(lent)
    return lambda: made


WRAPPERS = {
    "external array": through_external,
    "parameter": through_parameter,
    "NumPy": through_numpy,
    "DLPack": through_dlpack,
}


def closed(owner: list[hg.Executable]) -> None:
    owner[0].close()


def collected(owner: list[hg.Executable]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        owner.clear()
        gc.collect()


def rebuilt_without_it(owner: list[hg.Executable]) -> None:
    g = hg.Graph("owner")
    g.memset(g.device_array("else", shape=4, dtype="i4"), 0)
    owner[0].update(g, rebuild=True)


ENDS = {"closed": closed, "collected": collected, "rebuilt without it": rebuilt_without_it}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", ["device", "host", "pageable"])
@pytest.mark.parametrize("runtime", HERE)
def test_array_that_is_wrapped_lives_on(runtime: Any, kind: str, wrapper: str, end: str) -> None:
    owner = [compiled(runtime, kind)]
    lent = owner[0].array("x")
    if wrapper in ("NumPy", "DLPack") and lent.__dlpack_device__()[0] != 1:
        owner[0].close()
        pytest.skip("NumPy cannot reach the device's memory")
    values = WRAPPERS[wrapper](runtime, lent)
    del lent
    ENDS[end](owner)
    churn(runtime)
    assert values().tolist() == RAMP.tolist()
    del values
    for exe in owner:
        exe.close()


@pytest.fixture
def freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is freed in a thread of its own is freed in the thread that lets it go."""
    monkeypatch.setattr(devices, "_thread", SimpleNamespace(start_new_thread=lambda call, args: call(*args)))


@pytest.mark.parametrize("call", ["launch", "synchronize"])
@pytest.mark.parametrize("runtime", HERE)
def test_memory_that_nobody_has_is_freed_behind_a_call_with_a_time_limit(
    runtime: Any, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = hg.open_runtime(runtime)
    free, freed, gate = opened.free, threading.Event(), threading.Event()

    def watched(pointer: int) -> None:
        free(pointer)
        freed.set()

    monkeypatch.setattr(opened, "free", watched)
    owner = compiled(opened, "device")
    lent = owner.array("x")
    owner.close()
    freed.clear()
    g = hg.Graph("held")
    h, x = g.host_array("h", shape=64, dtype="i4"), g.device_array("x", shape=64, dtype="i4")
    g.host(lambda _: gate.wait(60), (h,), name="slow")
    if call == "launch":
        g.eager(lambda stream, _: None, (hg.reads(h),), name="waits")
    g.memcpy(x, h)
    with g.compile(opened) as exe:
        if call == "synchronize":
            exe.launch()
        limited = threading.Thread(target=getattr(exe, call), kwargs={"timeout_s": 60.0})
        limited.start()
        try:
            while not waiting._noted:
                pass
            del lent
            assert not freed.wait(0.2)
        finally:
            gate.set()
            limited.join()
        exe.synchronize()
        assert freed.wait(60)


@pytest.mark.parametrize("runtime", HERE)
def test_memory_that_nobody_has_is_freed_at_once_beside_launches_that_nobody_waits_for(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = hg.open_runtime(runtime)
    g = hg.Graph("ended")
    g.memcpy(g.device_array("x", shape=64, dtype="i4"), g.host_array("h", shape=64, dtype="i4"))
    with g.compile(opened) as exe:
        exe.launch()
        with monkeypatch.context() as patch:
            patch.setattr(waiting, "time", None)  # whoever sleeps fails
            waiting.let_calls_end()


@pytest.fixture
def recorder() -> RecorderRuntime:
    return RecorderRuntime()


@pytest.mark.parametrize("wrapper", ["external array", "parameter"])
@pytest.mark.parametrize("kind", ["device", "host"])
@pytest.mark.usefixtures("freed_at_once")
def test_array_is_freed_with_the_last_that_wraps_it(recorder: RecorderRuntime, kind: str, wrapper: str) -> None:
    before = recorder.live
    exe = compiled(recorder, kind)
    held: list[Any] = [exe.array("x"), exe.array("x")]
    values = WRAPPERS[wrapper](recorder, held[0])
    exe.close()
    what = "memory" if kind == "device" else "host memory"
    held.pop()
    assert recorder.live[what] >= 1
    held.pop()
    assert recorder.live[what] >= 1
    values()
    del values
    gc.collect()
    assert recorder.live == before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["device", "host", "pageable", "child"])
@pytest.mark.parametrize("runtime", HERE)
def test_update_that_rebuilds_keeps_memory_and_what_is_bound_to_it(runtime: Any, kind: str, backend: Any) -> None:
    """A parameter is bound to the whole of an array by name and as an object, and to its middle."""

    def graph(extra: bool) -> hg.Graph:
        g = hg.Graph("rebuilt")
        if kind == "child":
            inner = hg.Graph("inner")
            inner.memcpy(inner.device_array("unused", shape=64, dtype="i4"), inner.host_array("x", RAMP))
            g.child(inner, name="c")
        else:
            declared(g, kind)
        for i, shape in enumerate((64, 64, 16)):
            out, p = g.host_array(f"out{i}", shape=shape, dtype="i4"), g.param(f"p{i}", "int32", shape=shape)
            g.memcpy(out, p)
        if extra:
            g.memset(g.device_array("more", shape=4, dtype="i4"), 0)
        return g

    name = "c/x" if kind == "child" else "x"
    with graph(False).compile(runtime=runtime, backend=backend) as exe:
        lent = exe.array(name)
        part = hg.Graph("part").external_array("part", _Part(lent, 16, 16))
        exe.run(p0=name, p1=lent, p2=part)
        exe.write(name, RAMP + 100)
        with exe.clone() as twin:
            twin.write(name, RAMP - 7)
            twin.run()  # its parameters are bound to its own memory
            assert [twin.read(f"out{i}")[0] for i in range(3)] == [-7, -7, 9]
        exe.update(graph(True), rebuild=True)
        assert exe.array(name).ptr == lent.ptr
        churn(runtime)
        exe.run()
        assert exe.read("out0").tolist() == exe.read("out1").tolist() == (RAMP + 100).tolist()
        assert exe.read("out2").tolist() == (RAMP[16:32] + 100).tolist()
        exe.write(name, RAMP)
        exe.run()
        assert [exe.read(f"out{i}")[0] for i in range(3)] == [0, 0, 16]


class _Part:
    """Elements from the middle of an array of an Executable, as another library describes them."""

    def __init__(self, whole: Any, first: int, count: int) -> None:
        self._whole = whole
        self.__cuda_array_interface__ = whole.__cuda_array_interface__ | {
            "shape": (count,), "data": (whole.ptr + 4 * first, False),
        }  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.property
def test_update_that_cannot_rebuild_has_changed_nothing(recorder: RecorderRuntime, backend: Any, request: Any) -> None:
    """Each call of rebuilding fails once, in turn: memory is neither freed nor lost."""

    def graph(size: int) -> hg.Graph:
        g = hg.Graph("rebuilt")
        x, h = g.device_array("x", RAMP), g.host_array("h", shape=64, dtype="i4")
        g.memcpy(h, x)
        g.memset(g.device_array("more", shape=size, dtype="i4"), 0)
        return g

    failed = 0
    exe = graph(4).compile(runtime=recorder, backend=backend)
    exe.run()
    addresses, live = [exe.array(name).ptr for name in ("x", "h", "more")], recorder.live
    for n in range(1, 500):
        recorder.clear()
        recorder.fail_at(n, code=2)
        try:
            exe.update(graph(8), rebuild=True)
        except hg.HipError:
            if "more" in exe.workflow.arrays and exe.workflow.arrays["more"].size == 8:
                break  # a call that releases what was before has failed
            failed += 1
            assert [exe.array(name).ptr for name in ("x", "h", "more")] == addresses
            assert recorder.live == live
        else:
            break
    assert failed > 3
    recorder.clear()
    assert [exe.array(name).ptr for name in ("x", "h")] == addresses[:2]
    exe.run()
    exe.close()
    assert sum(recorder.live.values()) <= 1  # what the last call that failed should have released


class _Stream:
    """A stream object of another library, which destroys its stream when it is collected."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._handle = runtime, runtime.stream_create()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle

    def __del__(self) -> None:
        self._runtime.stream_destroy(self._handle)


def destroyed(exe: hg.Executable) -> None:
    stream = exe.runtime.stream_create()
    exe.launch(stream=stream)
    exe.runtime.stream_destroy(stream)


def collected_stream(exe: hg.Executable) -> None:
    exe.launch(stream=_Stream(exe.runtime))


def anothers(exe: hg.Executable) -> None:
    with compiled(exe.runtime, "device") as other:
        exe.launch(stream=other.stream)


def captured(exe: hg.Executable) -> None:
    outer = hg.Graph("outer")
    outer.captured(lambda stream, y: exe.launch(stream=int(stream)), (outer.device_array("y", shape=4, dtype="i4"),))
    with suppress(hg.DeclarationError), outer.compile(runtime=exe.runtime) as made:  # refused, unless its calls can be recorded
        made.run()


STREAMS = {"destroyed": destroyed, "collected": collected_stream, "another's": anothers, "captured": captured}


@pytest.mark.parametrize("call", ["run", "read", "done", "close"])
@pytest.mark.parametrize("allocs", [False, True])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_launch_on_a_stream_that_is_gone_lets_later_calls_work(backend: Any, stream: str, allocs: bool, call: str) -> None:
    g = hg.Graph("inner")
    x = g.host_array("x", shape=1 << 16, dtype="i4")
    if allocs:
        t = g.alloc("t", shape=1 << 16, dtype="i4")
        g.memset(t, 3)
        g.memcpy(x, t)
        g.free(t)
    else:
        g.memset(x, 3)
    with g.compile(runtime="cpu", backend=backend) as exe:
        STREAMS[stream](exe)
        getattr(exe, call)(*["x"] * (call == "read"))
        if call != "close":
            exe.run()
            assert (exe.read("x") == 3).all()
            exe.run()


def test_launch_keeps_the_object_of_its_stream_until_it_has_been_waited_for() -> None:
    with compiled("cpu", "device") as exe:
        stream = _Stream(exe.runtime)
        handle = stream._handle
        exe.launch(stream=stream)
        exe.launch(stream=handle)
        del stream
        gc.collect()
        exe.runtime.stream_query(handle)
        exe.synchronize()
        with pytest.raises(hg.HipError):
            exe.runtime.stream_query(handle)


@pytest.mark.parametrize("stream", ["destroyed", "collected", "another's"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_fault_of_a_launch_on_a_stream_that_is_gone_is_raised_with_the_node(backend: Any, stream: str) -> None:
    g = hg.Graph("faults")
    x, by = g.device_array("x", shape=4, dtype="i4"), g.param("by", "int32", default=1)
    divides = hg.Module("__global__ void divides(int* x, int by) { x[threadIdx.x] = 8 / by; }")
    g.kernel(divides["divides"], 1, 4, (x, by), name="worker")
    with g.compile(runtime="cpu", backend=backend) as exe:
        for call in (exe.synchronize, lambda: exe.read("x"), exe.run):
            exe.set("worker", args={"by": 0})
            STREAMS[stream](exe)
            with pytest.raises(hg.HipError, match="divided by zero") as caught:
                call()
            assert caught.value.node == "worker"
            exe.set("worker", args={"by": 2})
            exe.run()
            assert exe.read("x").tolist() == [4] * 4


@pytest.mark.parametrize("stream", ["destroyed", "collected", "another's"])
def test_read_waits_for_work_on_a_stream_that_is_gone(stream: str) -> None:
    began, go = threading.Event(), threading.Event()
    g = hg.Graph("slow")
    x = g.host_array("x", shape=4, dtype="i4")

    def slow(values: Array) -> None:
        began.set()
        go.wait(20)
        values += 1

    g.host(slow, (x,))
    with g.compile(runtime="cpu") as exe:
        opener = threading.Timer(0.2, go.set)
        opener.start()
        STREAMS[stream](exe)
        began.wait(20)
        assert exe.read("x").tolist() == [1] * 4
        opener.join()


@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("wrapper", ["external array", "NumPy", "DLPack"])
def test_array_that_is_handed_on_stays_read_only(wrapper: str, writeable: bool) -> None:
    values = RAMP.copy()
    values.flags.writeable = writeable
    g = hg.Graph("handed")
    g.memcpy(g.host_array("h", shape=64, dtype="i4"), g.external_array("x", values))
    with g.compile(runtime="cpu") as exe:
        lent = exe.array("x")
        if wrapper == "external array":
            assert hg.Graph("to").external_array("y", lent).writeable == writeable
        elif wrapper == "NumPy":
            assert np.asarray(lent).flags.writeable == writeable
        else:
            assert np.from_dlpack(lent).flags.writeable == writeable


# -- released with the last reference, without the collector of cycles ---------------------------------------------------------


@pytest.fixture
def no_collector() -> Iterator[None]:
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    yield
    if was:
        gc.enable()


ADD = hg.Module('extern "C" __global__ void add(const int* x, int* y) { y[threadIdx.x] += x[threadIdx.x]; }')["add"]
"""A kernel that lives on when graphs with it have gone."""


def nothing(*_: object) -> None:
    pass


def used(g: hg.Graph, x: Any) -> hg.Graph:
    """Use an array or an array parameter, and parts of it, as views, as accesses and from two kernels of one shape."""
    y = g.device_array("y", shape=64, dtype="i4")
    for _ in range(2):
        g.kernel(ADD, 1, 32, (x[:32], y))
        g.kernel(ADD, 1, 64, (hg.reads(x), y))
    g.memcpy(y[3:5], x[3:5])
    return g


def through(memory: Array, **options: Any) -> hg.Graph:
    """Return a graph that binds the memory to a child's array, which a parameter of the child stands for by default."""
    child = hg.Graph("child")
    used(child, child.param("p", "i4", child.host_array("a", shape=64, dtype="i4"), shape=64))
    g = hg.Graph("through")
    bind = {"a": g.external_array("x", memory)}
    if options:
        g.conditional("if", g.device_array("word", shape=1, dtype="i4"), [child], bind, **options)
    else:
        g.child(child, bind)
    return g


def called(memory: Array) -> hg.Graph:
    g = hg.Graph("called")
    x = g.external_array("x", memory)
    g.host(nothing, (x,))
    g.captured(nothing, (x,), reads=[x], writes=[])
    g.eager(nothing, (x, x[1:]))
    return g


def by_default(memory: Array) -> hg.Graph:
    g = hg.Graph("default")
    return used(g, g.param("x", "i4", memory, shape=64))


def external(memory: Array) -> hg.Graph:
    g = hg.Graph("external")
    return used(g, g.external_array("x", memory))


HOLDING: dict[str, Callable[[Array], hg.Graph]] = {
    "external": external,
    "default": by_default,
    "called": called,
    "child": through,
    "body": lambda memory: through(memory, decide="host"),
}
"""Graphs that hold the user's memory."""


def stored(g: hg.Graph, folder: Path) -> None:
    for suffix in ("json", "yaml", "graphml"):
        g.export(folder / f"g.{suffix}")


def drawn(g: hg.Graph, folder: Path) -> None:
    for name in ("g.svg", "g.dot", "g.mmd", "g.html"):
        g.export(folder / name)


def look_at(exe: hg.Executable) -> None:
    exe.run()
    exe.clone().close()
    exe.array("y" if "y" in exe.workflow.arrays else "x")
    assert exe.known().arrays


def refuse_changes(exe: hg.Executable) -> None:
    for node in exe.workflow.nodes:
        with pytest.raises(hg.HipGraphError):
            exe.set(node.name, device="many")


def rebuild(exe: hg.Executable, memory: Array, make: Callable[[Array], hg.Graph]) -> None:
    for again in (False, True):
        exe.update(make(memory), rebuild=again)
        exe.run()


def refused(g: hg.Graph, _: Path) -> None:
    for array in g.workflow().arrays.values():
        with suppress(hg.DeclarationError):
            g.memset(array, "many")


USES: dict[str, Callable[[hg.Graph, Path], object]] = {
    "declare": nothing,
    "refuse": refused,
    "check": lambda g, _: g.check(target="cpu"),
    "plan": lambda g, _: g.plan(target="cpu"),
    "simulate": lambda g, _: g.simulate(dict.fromkeys(("kernel", "memcpy", "host", "captured", "eager", "conditional"), 1.0)),
    "draw": drawn,
    "store": stored,
    "look at the dag": lambda g, _: g.dag.nodes,
    "take a workflow": lambda g, _: hg.Graph.from_workflow(g.workflow()),
}
"""What may be done to them."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("holding", HOLDING)
@pytest.mark.usefixtures("no_collector")
def test_graph_releases_memory_with_the_last_reference(holding: str, use: str, tmp_path: Path) -> None:
    memory = np.zeros(64, "i4")
    alive = weakref.ref(memory)
    g = HOLDING[holding](memory)
    with suppress(hg.DeclarationError):  # a simulation that needs a condition
        USES[use](g, tmp_path)
    del g, memory
    assert alive() is None


@pytest.mark.parametrize("end", ["close", "drop"])
@pytest.mark.parametrize("use", ["run", "look at", "refuse", "update"])
@pytest.mark.parametrize("holding", HOLDING)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("no_collector")
def test_executable_releases_memory_with_the_last_reference(backend: Any, holding: str, use: str, end: str) -> None:
    recorder, memory = RecorderRuntime(), np.zeros(64, "i4")
    alive = weakref.ref(memory)
    exe = HOLDING[holding](memory).compile(recorder, backend)
    if use == "run":
        exe.run()
    elif use == "look at":
        look_at(exe)
    elif use == "refuse":
        refuse_changes(exe)
    else:
        rebuild(exe, memory, HOLDING[holding])
    if end == "close":
        exe.close()
    del memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del exe
    assert alive() is None
    assert recorder.live == {}


@pytest.mark.parametrize("holding", [name for name in HOLDING if name != "body"])
@pytest.mark.parametrize("runtime", HERE)
@pytest.mark.usefixtures("no_collector")
def test_verify_releases_memory_with_the_last_reference(runtime: Any, holding: str) -> None:
    memory = np.zeros(64, "i4")
    alive = weakref.ref(memory)
    hg.verify(HOLDING[holding](memory), runtime)
    del memory
    assert alive() is None


class Offered:
    """An object with memory that has some attributes."""

    def __init__(self, memory: Array, **attributes: Any) -> None:
        self.__dict__.update(attributes, memory=memory)


OFFERS: dict[str, Callable[[Array], Any]] = {
    "NumPy": lambda memory: memory,
    "part": lambda memory: memory[:],
    "buffer": lambda memory: memory.data,
    "interface": lambda memory: Offered(memory, __cuda_array_interface__={**memory.__array_interface__, "version": 3}),
    "DLPack": lambda memory: Offered(memory, __dlpack__=memory.__dlpack__, __dlpack_device__=memory.__dlpack_device__),
}
"""Objects that keep the memory alive."""


@pytest.mark.parametrize("how", ["launch", "clone", "inside", "by name", "refused", "refused while launched"])
@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("no_collector")
def test_launch_releases_the_memory_that_it_replaces(backend: Any, offer: str, how: str) -> None:
    recorder, memory = RecorderRuntime(), np.zeros(64, "i4")
    alive = weakref.ref(memory)
    g = hg.Graph("given")
    other = g.device_array("other", shape=64, dtype="i4")
    x, v = g.param("x", "i4", other if "refused" in how else None, shape=64), g.param("v", "i4", 0)
    g.memset(g.device_array("value", shape=64, dtype="i4"), v)
    if how == "inside":
        child = hg.Graph("child")
        used(child, child.param("p", "i4", child.host_array("a", shape=64, dtype="i4"), shape=64))
        g.child(child, {"a": x})
    else:
        used(g, x)
    exe = g.compile(recorder, backend)
    if "refused" in how:
        if "launched" in how:
            exe.launch()
        with pytest.raises(hg.DeclarationError, match="'v'"):
            exe.launch(x=OFFERS[offer](memory), v="no number")
    else:
        exe.run(x=OFFERS[offer](memory))
    exes = [exe, exe.clone()] if how == "clone" else [exe]
    del exe, memory
    if "refused" not in how:
        assert alive() is not None
    for each in exes:
        if how == "by name":
            each.run(x="other")
        elif how == "refused while launched":
            each.synchronize()
        elif how != "refused":
            each.run(x=np.zeros(64, "i4"))
    assert alive() is None
    for each in exes:
        each.close()
