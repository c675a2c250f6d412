"""Executable: what it keeps alive, what it gives back, and how waiting, failing and stopping go."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip
from specimens import batched

import hipgraphdsl as hg
from hipgraphdsl.backends import callbacks
from hipgraphdsl.backends.program import GraphProgram
from hipgraphdsl.backends.segmented import SegmentedProgram
from hipgraphdsl.executable import executable
from hipgraphdsl.nodes.children import ChildGraphNode
from hipgraphdsl.parts import fast as native
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes.data import MemcpyKind

SOURCE = r"""
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 31 * y[i] + 7 * x[i] + k;
}
"""


@pytest.fixture(scope="module")
def cpu() -> CpuRuntime:
    runtime = runtime_or_skip("cpu")
    assert isinstance(runtime, CpuRuntime)
    return runtime


@pytest.fixture
def recorder() -> RecorderRuntime:
    return RecorderRuntime()


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["explicit", "capture", "streams"])
def concurrent(request: pytest.FixtureRequest) -> Any:
    """A backend whose launch returns at once."""
    return request.param


def copies(n: int = 4) -> hg.Graph:
    g = hg.Graph("copies")
    x, y = g.host_array("x", np.arange(n, dtype="i4")), g.device_array("y", shape=n, dtype="i4")
    g.memcpy(y, x, name="copy")
    return g


class Gate:
    """A callback that waits until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> None:
        self.entered.set()
        assert self.opened.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


# -- data ------------------------------------------------------------------------------------------------------------------------


def test_arrays_are_read_and_written_by_name_or_as_declared(cpu: CpuRuntime) -> None:
    g, other = hg.Graph("g"), hg.Graph("other")
    x, same_name = (graph.device_array("x", np.arange(4, dtype="i4")) for graph in (g, other))
    with g.compile(runtime=cpu) as exe:
        exe.write(x, [4, 3, 2, 1])
        assert exe.read(x).tolist() == exe.read("x").tolist() == [4, 3, 2, 1]
        assert exe.array(x).ptr == exe.array("x").ptr
        with pytest.raises(hg.DeclarationError, match=r"read: graph 'g' does not declare this array 'x'; .* as 'child/x'"):
            exe.read(same_name)
        with pytest.raises(hg.DeclarationError, match=r"write: the name of an array is expected, .* \(got 3\)"):
            exe.write(3, 0)  # type: ignore[arg-type]
        with pytest.raises(hg.DeclarationError, match=r"update takes a Graph or a Workflow \(got 'g'\)"):
            exe.update("g")  # type: ignore[arg-type]


def test_elapsed_us_needs_a_launch(cpu: CpuRuntime) -> None:
    g = hg.Graph("timed")
    start = g.record("start")
    fill = g.memset(g.device_array("x", shape=4, dtype="i4"), 1, after=[start])
    g.record("stop", after=[fill])
    with g.compile(runtime=cpu) as exe:
        with pytest.raises(hg.HipGraphError, match="'timed' has not recorded both events yet; launch it first"):
            exe.elapsed_us("start", "stop")
        exe.run()
        assert exe.elapsed_us("start", "stop") >= 0


def timed() -> hg.Graph:
    """Two events around a fill; the first is recorded in a child."""
    inner = hg.Graph("inner")
    inner.record(hg.Event("start"), name="start")
    g = hg.Graph("timed")
    g.child(inner, name="child")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 1, name="fill", after=["child"])
    g.record(hg.Event("stop"), name="stop", after=["fill"])
    return g


SWITCHES: dict[str, tuple[str, bool]] = {
    "launch": ("launch", True),
    "off": ("launch off launch", False),
    "off and no launch": ("launch off", True),
    "on again, not launched": ("launch off launch on", False),
    "on again": ("launch off launch on launch", True),
    "on and off": ("launch off launch on off launch on", False),
    "off and on": ("launch off on", True),
    "off, on and off": ("launch off on off", True),
}
"""What happens to a record, and whether the last launch has recorded its event."""


@pytest.mark.parametrize("node", ["child", "child/start", "stop"])
@pytest.mark.parametrize(("actions", "recorded"), SWITCHES.values(), ids=SWITCHES)
@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_elapsed_us_is_of_the_last_launch(cpu: CpuRuntime, node: str, actions: str, recorded: bool, backend: Any) -> None:
    with timed().compile(cpu, backend) as exe:
        do: dict[str, Callable[[], None]] = {
            "launch": exe.launch, "off": lambda: exe.disable(node), "on": lambda: exe.enable(node)
        }  # fmt: skip
        for action in actions.split():
            do[action]()
        if recorded:
            assert exe.elapsed_us("start", "stop") >= 0
        else:
            event, by = ("stop", "stop") if node == "stop" else ("start", "child/start")
            with pytest.raises(hg.HipGraphError, match=f"did not record event '{event}', because '{by}' was disabled"):
                exe.elapsed_us("start", "stop")


@pytest.mark.parametrize("backend", ["explicit", "streams", "serial"])
def test_elapsed_us_lets_no_other_thread_launch_meanwhile(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    with timed().compile(cpu, backend) as exe:
        exe.run()
        real, counts = cpu.event_elapsed_time, []

        def elapsed(start: int, stop: int) -> float:
            launching = threading.Thread(target=exe.launch)
            launching.start()
            counts.append(exe._own.counted().launches)
            launching.join(0.05)
            counts.append(exe._own.counted().launches)
            threads.append(launching)
            return real(start, stop)

        threads: list[threading.Thread] = []
        monkeypatch.setattr(cpu, "event_elapsed_time", elapsed)
        assert exe.elapsed_us("start", "stop") >= 0
        threads[0].join()
        assert counts == [1, 1]
        assert exe.stats.launches == 2


def test_elapsed_us_says_that_another_graph_records_a_shared_event(cpu: CpuRuntime, gate: Gate) -> None:
    event = hg.Event("elapsed_us of two", shared=True)
    first, second = hg.Graph("first"), hg.Graph("second")
    first.record(event)
    second.host(gate, name="gate")
    second.record(event, after=["gate"])
    with first.compile(cpu) as a, second.compile(cpu) as b:
        a.run()
        b.launch()
        assert gate.entered.wait(60)
        with pytest.raises(hg.HipGraphError, match="another graph records an event that graph 'first' shares") as raised:
            a.elapsed_us(event, event)
        assert not isinstance(raised.value, hg.HipError)
        gate.opened.set()
        b.synchronize()
        assert a.elapsed_us(event, event) == 0


def test_memory_that_is_not_there_is_said_with_the_array(cpu: CpuRuntime) -> None:
    g = hg.Graph("huge")
    g.device_array("large", shape=10**14, dtype="f8")
    with pytest.raises(MemoryError, match="array 'large': "):
        g.compile(runtime=cpu)


@pytest.mark.parametrize("kind", ["device", "host"])
def test_compile_names_an_array_that_no_address_space_holds(kind: str) -> None:
    data = json.loads(hg.Graph("t").to_json())
    data["arrays"] = [{"name": "x", "kind": kind, "dtype": "float64", "shape": [2**31, 2**31]}]
    g = hg.Graph.from_json(json.dumps(data))
    with pytest.raises(hg.DeclarationError, match=f"'x' of float64.* takes {2**65} bytes") as caught:
        g.compile("recorder")
    assert caught.value.array == "x"


# -- lifetimes -----------------------------------------------------------------------------------------------------------------


def test_executable_outlives_its_graph_and_everything_in_it(cpu: CpuRuntime, backend: Any) -> None:
    memory = np.arange(4, dtype="i4")
    calls: list[int] = []

    def build() -> tuple[hg.Executable, weakref.ref[Any], weakref.ref[Any]]:
        class Callback:
            def __call__(self, x: Any, by: int) -> None:
                calls.append(int(x[0]))
                x += by

        callback = Callback()
        g = hg.Graph("short")
        g.host(callback, args=(g.external_array("x", memory.view()), 2), name="call")
        return g.compile(runtime=cpu, backend=backend), weakref.ref(g), weakref.ref(callback)

    exe, graph, callback = build()
    gc.collect()
    assert graph() is None
    assert callback() is not None
    exe.run()
    exe.run()
    exe.close()
    assert calls == [0, 2]
    assert memory.tolist() == [4, 5, 6, 7]
    del exe
    gc.collect()
    assert callback() is None


def test_array_parameters_keep_their_memory_alive_until_it_is_replaced_and_used(cpu: CpuRuntime) -> None:
    g = hg.Graph("parameter")
    p, out = g.param("p", "int32", shape=4), g.host_array("out", shape=4, dtype="i4")
    g.memcpy(out, p)

    class Memory:
        def __init__(self, value: int) -> None:
            self.values = np.full(4, value, "i4")
            self.__array_interface__ = self.values.__array_interface__

    with g.compile(runtime=cpu) as exe:
        first: Any = Memory(1)
        known = weakref.ref(first)
        exe.launch(p=first)
        del first
        gc.collect()
        assert known() is not None
        exe.launch()
        assert exe.read("out").tolist() == [1] * 4
        exe.run(p=Memory(2))
        gc.collect()
        assert known() is None
        assert exe.read("out").tolist() == [2] * 4


def test_many_launches_with_other_memory_keep_one_of_it(cpu: CpuRuntime) -> None:
    g = hg.Graph("parameter")
    g.memcpy(g.host_array("out", shape=4, dtype="i4"), g.param("p", "int32", shape=4))
    with g.compile(runtime=cpu) as exe:
        for i in range(50):
            exe.run(p=np.full(4, i, "i4"))
        assert exe.read("out").tolist() == [49] * 4
        assert [len(kept) for kept in exe._own.parameters.kept.values()] == [1]


def test_closing_twice_is_fine_and_gives_everything_back_once(recorder: RecorderRuntime, backend: Any) -> None:
    exe = copies().compile(runtime=recorder, backend=backend)
    exe.run()
    exe.close()
    assert recorder.live == {}
    calls = len(recorder.calls)
    exe.close()
    assert len(recorder.calls) == calls


def test_everything_is_refused_after_close(cpu: CpuRuntime, backend: Any) -> None:
    exe = copies().compile(runtime=cpu, backend=backend)
    exe.close()
    calls: list[Callable[[], Any]] = [
        exe.launch,
        exe.run,
        exe.synchronize,
        exe.done,
        exe.clone,
        exe.profile,
        lambda: exe.read("x"),
        lambda: exe.write("x", 0),
        lambda: exe.set("copy", src="x"),
        lambda: exe.enable("copy"),
        lambda: exe.disable("copy"),
        lambda: exe.update(copies()),
        lambda: exe.elapsed_us("a", "b"),
    ]
    for call in calls:
        with pytest.raises(hg.HipGraphError, match="the Executable of graph 'copies' is closed; compile it again"):
            call()
    assert "closed" in repr(exe)


def test_an_executable_that_is_forgotten_warns_and_gives_everything_back(recorder: RecorderRuntime) -> None:
    kept = [copies().compile(runtime=recorder)]
    with pytest.warns(ResourceWarning, match="never closed"):
        kept.clear()
    assert recorder.live == {}


HOLDERS = {
    "global": "",
    "early module": "early.kept = exe",
    "system": "sys.kept = exe",
    "hook": "class Hook: kept = exe\nsys.displayhook = Hook()",
    "numpy": "np.kept = exe",
    "cycle": "class Held: pass\nheld = Held(); held.kept, held.own = exe, held; early.kept = held",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_executable_that_is_left_open_ends_with_the_process_in_silence(holder: str, tmp_path: Path) -> None:
    """Modules are cleared in another order, whoever has it."""
    (tmp_path / "early.py").write_text("kept = None\n")
    made = [
        "import sys, early", "import numpy as np", "import hipgraphdsl as hg", 'g = hg.Graph("left")',
        'x, h = g.device_array("x", np.ones(4)), g.host_array("h", np.zeros(4))', "g.memcpy(h, x)",
        "g.host(lambda h: None, (h,))",
        'exe = g.compile("cpu")', "exe.launch()", HOLDERS[holder], "del exe" if HOLDERS[holder] else "",
    ]  # fmt: skip
    path = os.pathsep.join((str(tmp_path), str(Path(hg.__file__).parents[1])))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", "\n".join(made)], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_executable_in_a_cycle_gives_everything_back_when_it_is_collected(
    recorder: RecorderRuntime, cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", missed.append)
    for runtime in (recorder, cpu):
        cycle: list[Any] = [copies().compile(runtime=runtime)]
        cycle[0].run()
        cycle.append(cycle)
        closed = weakref.ref(cycle[0]._own.shared)
        del cycle
        with pytest.warns(ResourceWarning, match="never closed"):
            gc.collect()
        assert closed() is None
    assert missed == []
    assert recorder.live == {}


def test_closing_waits_for_what_runs(cpu: CpuRuntime, concurrent: Any) -> None:
    done: list[int] = []

    def slow() -> None:
        time.sleep(0.05)
        done.append(1)

    g = hg.Graph("slow")
    g.host(slow)
    exe = g.compile(runtime=cpu, backend=concurrent)
    exe.launch()
    exe.close()
    assert done == [1]


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
def test_executables_cannot_be_pickled_or_copied(recorder: RecorderRuntime, make: Any) -> None:
    with copies().compile(runtime=recorder) as exe:
        with pytest.raises(TypeError, match=r"cannot be pickled; pickle graph\.to_json\(\) and compile again"):
            make(exe)
        exe.run()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.parametrize("pending", [False, True])
def test_a_forked_process_gets_a_clear_error_at_every_use(cpu: CpuRuntime, gate: Gate, pending: bool) -> None:
    g = copies()
    g.host(gate, name="gate")
    exe = g.compile(runtime=cpu)
    if pending:
        exe.launch()
        assert gate.entered.wait(60)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads, which this is about
        child = os.fork()
    if child == 0:
        said = []
        signal.alarm(30)  # a child that hangs is ended
        for call in (
            exe.launch,
            exe.synchronize,
            exe.run,
            exe.done,
            lambda: exe.read("x"),
            lambda: exe.disable("copy"),
            copies().compile,
        ):
            try:
                call()
                said.append("nothing")
            except hg.HipGraphError as error:
                said.append(str(error))
            except BaseException as error:
                said.append(repr(error))
        exe.close()
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    assert len(said) == 7
    assert all("fork" in text for text in said)
    gate.opened.set()
    exe.run()
    assert exe.read("y").tolist() == [0, 1, 2, 3]
    exe.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_process_that_is_forked_while_another_thread_launches_does_not_wait_for_it(cpu: CpuRuntime, gate: Gate) -> None:
    g = copies()
    g.eager(lambda _: gate(), name="gate")
    exe = g.compile(runtime=cpu)
    thread = threading.Thread(target=exe.launch)
    thread.start()
    assert gate.entered.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        code = 1
        try:
            exe.launch()
        except hg.HipGraphError as error:
            code = 0 if "fork" in str(error) else 2
        exe.close()
        os._exit(code)
    gate.opened.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    exe.close()


# -- callbacks -----------------------------------------------------------------------------------------------------------------


class _Special(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyError("k"), _Special(1, 2), KeyboardInterrupt(), OSError(2, "gone"), SystemExit(3)]
)
def test_an_exception_in_a_callback_is_raised_at_synchronize_with_the_nodes_name(
    cpu: CpuRuntime, backend: Any, error: BaseException
) -> None:
    ran: list[str] = []
    fail = [True]

    def bad() -> None:
        if fail[0]:
            raise error

    g = hg.Graph("callbacks")
    x = g.device_array("x", np.zeros(2, "i4"))
    first = g.host(lambda: ran.append("first"), name="first")
    failing = g.host(bad, name="bad", after=[first])
    g.memset(x, 1, name="set", after=[failing])
    g.host(lambda: ran.append("last"), name="last", after=["set"])
    with g.compile(runtime=cpu, backend=backend) as exe:
        exe.launch()
        with pytest.raises(hg.CallbackError) as caught:
            exe.synchronize()
        assert caught.value.node == "bad"
        assert "'bad'" in str(caught.value)
        assert caught.value.__cause__ is error
        assert isinstance(caught.value, type(error))
        assert ran == ["first"]
        exe.synchronize()
        assert exe.read("x").tolist() == [0, 0]
        fail[0] = False
        exe.run()
        assert ran == ["first", "first", "last"]
        assert exe.read("x").tolist() == [1, 1]


def test_a_failure_inside_a_child_has_the_childs_name(cpu: CpuRuntime, backend: Any) -> None:
    c = hg.Graph("inner")
    c.host(lambda: 1 / 0, name="bad")
    g = hg.Graph("outer")
    g.child(c, name="one")
    with g.compile(runtime=cpu, backend=backend) as exe:
        exe.launch()
        with pytest.raises(ZeroDivisionError) as caught:
            exe.synchronize()
        assert isinstance(caught.value, hg.CallbackError)
        assert caught.value.node == "one/bad"


def test_each_of_several_children_calls_its_own_callback(cpu: CpuRuntime, backend: Any) -> None:
    c = hg.Graph("inner")
    x = c.host_array("x", shape=1, dtype="i4")
    c.host(lambda x: x.__iadd__(1), args=(x,), name="add")
    g = hg.Graph("outer")
    for name in ("one", "two", "three"):
        g.child(c, name=name)
    with g.compile(runtime=cpu, backend=backend) as exe:
        exe.run()
        exe.run()
        assert [exe.read(f"{name}/x").item() for name in ("one", "two", "three")] == [2, 2, 2]


def test_callbacks_run_beside_a_thread_that_waits(cpu: CpuRuntime, concurrent: Any) -> None:
    """The waiter must not hold what a callback needs."""
    lock = threading.Lock()
    order: list[str] = []

    def call() -> None:
        with lock:
            order.append("callback")

    g = hg.Graph("callbacks")
    g.host(call)
    with g.compile(runtime=cpu, backend=concurrent) as exe:
        lock.acquire()
        exe.launch()

        def release() -> None:
            order.append("release")
            lock.release()

        timer = threading.Timer(0.05, release)
        timer.start()
        exe.synchronize()
        timer.join()
    assert order == ["release", "callback"]


def test_launch_builds_a_new_graph_where_a_copy_keeps_its_devices(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    g = hg.Graph("copy")
    for name in "ab":
        g.device_array(name, np.full(4, ord(name), "float32"))
    g.memcpy(g.host_array("out", shape=4, dtype="float32"), g.param("p", "float32", shape=4), name="fetch")

    def refuse(*_: Any) -> None:
        raise hg.HipError("hipGraphExecMemcpyNodeSetParams1D", 1, "hipErrorInvalidValue")

    monkeypatch.setattr(cpu, "graph_exec_memcpy_node_set_params_1d", refuse)
    with g.compile(cpu) as exe:
        exe.run(p="a")
        with pytest.raises(hg.HipError, match="for node 'fetch'"):
            exe.run(p="b")
        monkeypatch.setattr(cpu, "target", replace(cpu.target, quirks=cpu.target.quirks | {"fixed_memory_devices"}))
        exe.run(p="a")
        before = exe.stats.instantiations
        exe.run(p="b")
        assert exe.read("out").tolist() == [ord("b")] * 4
        assert exe.stats.instantiations == before + 1


# -- memory operations ---------------------------------------------------------------------------------------------------------


def memory_operations(g: hg.Graph, count: int) -> list[Any]:
    flags = g.arrays["flags"]
    return [op for n in range(count) for op in (hg.write_value(flags[n], n + 1), hg.wait_value(flags[n], n + 1))]


def test_memory_ops_follow_the_array_that_a_launch_binds(cpu: CpuRuntime, backend: Any) -> None:
    g = hg.Graph("operations")
    flags = g.param("flags", dtype="u4", shape=4)
    for name in "xy":
        g.device_array(name, np.zeros(4, "u4"))
    node = g.memory_ops([hg.write_value(flags[1], 7), hg.wait_value(flags[1], 7)])
    assert node.parameters == (flags,)
    with g.compile(runtime=cpu, backend=backend) as exe:
        for name in "xy":
            exe.run(flags=exe.array(name))
            assert exe.read(name).tolist() == [0, 7, 0, 0]


def test_memory_ops_are_apart_where_batches_are_unordered(cpu: CpuRuntime, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "target", replace(cpu.target, quirks=cpu.target.quirks | {"batch_unordered"}))
    calls: list[tuple[str, ...]] = []
    batch = cpu.stream_batch_mem_op

    def record(stream: int, ops: Any) -> None:
        calls.append(tuple(op.op for op in ops))
        batch(stream, ops)

    monkeypatch.setattr(cpu, "stream_batch_mem_op", record)
    g = hg.Graph("operations")
    flags, seen = g.device_array("flags", shape=4, dtype="u4"), g.host_array("seen", shape=4, dtype="u4")
    g.memset(flags, 9, name="set")
    g.memory_ops(memory_operations(g, 2), name="operate")
    g.memcpy(seen, flags, name="copy")
    with g.compile(runtime=cpu, backend=backend) as exe:
        for count, off in ((2, False), (3, False), (3, True)):
            exe.set("operate", ops=memory_operations(g, count))
            (exe.disable if off else exe.enable)("operate")
            del calls[:]
            exe.run()
            assert exe.read("seen").tolist() == ([9] * 4 if off else [*range(1, count + 1), *[9] * (4 - count)])
            program = exe._program
            if isinstance(program, GraphProgram):
                nodes, edges = cpu.graph_get_nodes(program.graph), cpu.graph_get_edges(program.graph)
                assert len(nodes) == len(edges) + 1 == 2 + (1 if off else 2 * count)
                assert max(Counter(source for source, _ in edges).values()) == 1, "the nodes are a chain"
            else:
                assert calls == ([] if off else [("write",), ("wait",)] * count)


# -- waiting -------------------------------------------------------------------------------------------------------------------


def gated(gate: Gate, where: str) -> tuple[hg.Graph, tuple[str, ...]]:
    """A graph with a callback that waits at the gate, in a child or not, and the nodes that have not finished meanwhile."""
    g = copies()
    x, y = g.arrays["x"], g.arrays["y"]
    if where == "node":
        g.host(gate, name="gate", after=["copy"])
        g.memset(y, 9, name="late", after=["gate"])
        g.memset(x, 3, name="beside", after=["copy"])  # on a lane of its own, where it finishes
        return g, ("gate", "late")
    child = hg.Graph("child")
    z = child.device_array("z", shape=4, dtype="uint8")
    child.memset(z, 1, name="early")
    child.host(gate, name="gate", after=["early"])
    child.memset(z, 2, name="later", after=["gate"])
    if where == "deep":
        middle = hg.Graph("middle")
        middle.child(child, name="inner")
        child = middle
    g.child(child, name="ch", after=["copy"])
    g.memset(y, 9, name="late", after=["ch"])
    prefix = "ch/inner/" if where == "deep" else "ch/"
    return g, (f"{prefix}gate", f"{prefix}later", "late")


@pytest.mark.parametrize("where", ["node", "child", "deep"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "explicit eager", "watched"])
def test_a_timeout_names_the_unfinished_nodes_and_the_work_goes_on(cpu: CpuRuntime, gate: Gate, backend: str, where: str) -> None:
    g, names = gated(gate, where)
    if "eager" in backend:  # between two graphs
        g.eager(lambda stream: None, name="first")
        g.order("first", "copy")
    options: dict[str, Any] = {"debug": hg.DebugOptions(watch=True)} if backend == "watched" else {}
    with g.compile(cpu, "explicit" if options else backend.split()[0], **options) as exe:  # type: ignore[arg-type]
        for _ in range(3):
            exe.launch()  # those behind the first do not begin
        assert gate.entered.wait(60)
        assert not exe.done()
        error = timed_out(exe, names)
        assert isinstance(error, TimeoutError)
        assert error.unfinished == names
        assert f"{names[0]!r}" in str(error)
        assert "0.02 s" in str(error)
        gate.opened.set()
        exe.synchronize(timeout_s=60)
        assert exe._own.unfinished() == ()
        assert exe.done()
        assert exe.read("y").tolist() == [9] * 4


def timed_out(exe: hg.Executable, names: tuple[str, ...]) -> hg.WaitTimeout:
    """Return the error of a wait in vain; of a later one where other threads still run what else has been launched."""
    end = time.monotonic() + 30
    while True:
        with pytest.raises(hg.WaitTimeout) as caught:
            exe.synchronize(timeout_s=0.02)
        if caught.value.unfinished == names or time.monotonic() > end:
            return caught.value


def test_a_timeout_of_streams_lets_the_work_go_on(cpu: CpuRuntime, gate: Gate) -> None:
    g = copies()
    g.host(gate, name="gate")
    with g.compile(runtime=cpu, backend="streams") as exe:
        exe.launch()
        with pytest.raises(hg.WaitTimeout, match="'copies' has not finished after 0 s"):
            exe.synchronize(timeout_s=0)
        gate.opened.set()
        exe.synchronize()


def waiting(semaphore: hg.Semaphore) -> hg.Graph:
    """A graph that ends when the semaphore has been signalled."""
    g = copies()
    g.wait_semaphore(semaphore, 1, name="never", after=["copy"])
    g.memset(g.arrays["y"], 9, name="late", after=["never"])
    return g


@pytest.fixture
def semaphore(cpu: CpuRuntime) -> Iterator[hg.Semaphore]:
    made = hg.Semaphore("s", cpu.semaphore_create())
    yield made
    assert made.handle is not None
    cpu.semaphore_destroy(made.handle)


@pytest.mark.parametrize("graph_backend", ["explicit", "capture"])
def test_closing_with_a_timeout_ends_work_that_would_never_end(
    cpu: CpuRuntime, semaphore: hg.Semaphore, graph_backend: Any
) -> None:
    exe = waiting(semaphore).compile(runtime=cpu, backend=graph_backend)
    exe.launch()
    with pytest.raises(hg.WaitTimeout, match=r"'copies' has not finished after 0.05 s; .*'never'.*it was ended") as caught:
        exe.close(timeout_s=0.05)
    assert set(caught.value.unfinished) == {"never", "late"}
    exe.close()
    with pytest.raises(hg.HipGraphError, match="is closed"):
        exe.launch()


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "explicit eager"])
def test_a_semaphore_wait_ends_when_a_failed_lane_does_not_signal(cpu: CpuRuntime, semaphore: hg.Semaphore, backend: str) -> None:
    fails = [True]

    def call() -> None:
        if fails.pop():
            raise ValueError("odd")

    g = waiting(semaphore)
    g.host(call, name="call")
    g.signal_semaphore(semaphore, 1, after=["call"])
    if "eager" in backend:
        g.eager(lambda stream: None, name="e", after=["call"])
    with g.compile(runtime=cpu, backend=backend.split()[0]) as exe:  # type: ignore[arg-type]
        exe.launch()
        with pytest.raises(ValueError, match="odd"):
            exe.synchronize(timeout_s=60)
        fails[:] = [False]
        exe.launch()
        exe.synchronize(timeout_s=60)
        assert exe.read("y").tolist() == [9] * 4


@pytest.mark.parametrize("again", ["synchronize", "read", "close", "launch"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "explicit eager", "explicit waits", "explicit if"])
def test_wait_after_a_close_that_left_the_executable_open_names_what_it_ended(
    cpu: CpuRuntime, gate: Gate, backend: str, again: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executable, "_ABORT_S", 0.05)
    g, names = gated(gate, "child")
    if "eager" in backend:
        g.eager(lambda stream: None, name="first")
        g.order("first", "copy")
    elif "waits" in backend:  # the next launch waits inside, and meets what was ended
        g.eager(lambda stream, _: None, (hg.reads(g.host_array("other", np.zeros(4, "i4"))),), name="first")
        g.order("first", "copy")
    elif "if" in backend:
        body = hg.Graph("body")
        body.memset(body.device_array("other", shape=4, dtype="i4"), 0)
        g.conditional("if", g.device_array("word", np.ones(1, "u4")), [body], name="first", decide="host")
        g.order("first", "copy")
    inside = again == "launch" and backend in ("explicit waits", "explicit if")
    with g.compile(cpu, backend.split()[0]) as exe:  # type: ignore[arg-type]
        exe.launch()
        assert gate.entered.wait(60)
        with pytest.raises(hg.WaitTimeout, match="the Executable is still open, with"):
            exe.close(timeout_s=0.05)
        gate.opened.set()
        if again == "launch" and not inside:
            exe.launch()
        if again == "close":
            exe.close()
            assert "nobody has waited" not in caplog.text
            with pytest.raises(hg.HipGraphError, match="is closed"):
                exe.synchronize()
            return
        with pytest.raises(
            hg.WaitTimeout, match="close has ended what graph 'copies' had in flight, and the Executable is still"
        ) as caught:
            exe.launch() if inside else exe.read("y") if again == "read" else exe.synchronize()
        assert set(caught.value.unfinished) >= set(names)
        assert isinstance(caught.value.__cause__, hg.HipError)
        exe.run()
        assert exe.read("y").tolist() == [9] * 4


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_closing_what_cannot_be_ended_says_what_stays_and_may_be_repeated(
    cpu: CpuRuntime, gate: Gate, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "_ABORT_S", 0.05)
    g = copies()
    g.host(gate, name="gate")
    exe = g.compile(runtime=cpu, backend=backend)
    exe.launch()
    assert gate.entered.wait(60)
    with pytest.raises(hg.WaitTimeout, match=r"still open, with 16 bytes of device memory and 16 of host memory"):
        exe.close(timeout_s=0.05)
    gate.opened.set()
    if backend == "streams":
        assert exe.read("y").tolist() == [0, 1, 2, 3]
    exe.close(timeout_s=60)
    exe.close()


def spinning(seen: np.ndarray[Any, Any]) -> hg.Graph:
    """A kernel of 4096 blocks that counts them in `seen[2]`; the first sets `seen[0]` and waits for `seen[1]`."""
    module = hg.Module(
        """extern "C" __global__ void count(volatile int* seen) {
          if (!blockIdx.x) { seen[0] = 1; while (!seen[1]) {} }
          atomicAdd((int*)seen + 2, 1);
        }""",
        name="spinning",
    )
    g = hg.Graph("spinning")
    g.kernel(module["count"], 4096, 1, (hg.updates(g.external_array("seen", seen)),), name="count")
    return g


def let_go_at_abort(exe: hg.Executable, seen: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    program = exe._program
    assert program is not None
    abort = program.abort

    def ended() -> bool:
        done = abort()
        seen[1] = 1
        return done

    monkeypatch.setattr(program, "abort", ended)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_closing_with_a_timeout_starts_no_further_block(cpu: CpuRuntime, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_ABORT_S", 60)
    seen = np.zeros(3, "i4")
    exe = spinning(seen).compile(cpu, backend)
    let_go_at_abort(exe, seen, monkeypatch)
    exe.launch()
    with pytest.raises(hg.WaitTimeout, match=r"'spinning' has not finished after 0.05 s; .*'count'.*it was ended"):
        exe.close(timeout_s=0.05)
    assert seen[2] <= 1  # 0 if the launch had not begun


@pytest.mark.parametrize("lacks", [0, 1])
def test_closing_with_a_timeout_ends_the_segments_that_can_be_ended(
    cpu: CpuRuntime, lacks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "_ABORT_S", 60)
    seen = np.zeros(3, "i4")
    g = spinning(seen)
    g.eager(lambda stream, _: None, (g.device_array("x", np.zeros(4, "i4")),), name="eager", after=["count"])
    g.memset(g.device_array("y", np.zeros(4, "i4")), 1, after=["eager"])
    exe = g.compile(cpu)
    assert isinstance(exe._program, SegmentedProgram)
    monkeypatch.setattr(exe._program.graphs[1], "abort", lambda: not lacks)
    let_go_at_abort(exe, seen, monkeypatch)
    exe.launch()
    with pytest.raises(hg.WaitTimeout, match=r"'spinning' has not finished after 0.05 s; .*'count'.*it was ended"):
        exe.close(timeout_s=0.05)


def test_closing_with_a_timeout_says_that_it_ended_nothing_where_no_segment_is(cpu: CpuRuntime) -> None:
    g = hg.Graph("steps")
    g.eager(lambda stream, _: None, (g.device_array("x", np.zeros(4, "i4")),))
    with g.compile(cpu) as exe:
        assert exe._program is not None
        assert not exe._program.abort()


@pytest.mark.parametrize("where", ["inside", "at the end"])
def test_ctrl_c_leaves_a_block_without_waiting_for_what_can_be_ended(
    cpu: CpuRuntime, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "_LEAVE_S", 1e6)
    monkeypatch.setattr(executable, "_ABORT_S", 60)
    left: list[hg.Executable] = []
    monkeypatch.setattr(executable, "left_running", left)
    seen = np.zeros(3, "i4")
    exe = spinning(seen).compile(cpu)
    let_go_at_abort(exe, seen, monkeypatch)

    def interrupted(*_: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(executable, "_ABORT_S", 60)
        monkeypatch.setattr(executable, "_LEAVE_S", 1e6)
        let_go_at_abort(exe, seen, monkeypatch)
        raise KeyboardInterrupt

    def block() -> None:
        with exe:
            exe.launch()
            if where == "inside":
                raise KeyboardInterrupt
            monkeypatch.setattr(exe._own, "wait", interrupted)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert seen[2] <= 1  # 0 if the launch had not begun
    assert left == []
    with pytest.raises(hg.HipGraphError, match="is closed"):
        exe.launch()


def test_ctrl_c_waits_shortly_for_what_cannot_be_ended(
    cpu: CpuRuntime, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executable, "_LEAVE_S", 1e6)
    monkeypatch.setattr(executable, "_ABORT_S", 0.05)
    left: list[hg.Executable] = []
    monkeypatch.setattr(executable, "left_running", left)
    g = copies()
    g.host(gate, name="gate")
    exe = g.compile(cpu, "streams")

    def block() -> None:
        with exe:
            exe.launch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()
    assert left == [exe]
    assert "'copies' has not finished after 0.05 s; not finished: 'gate'; the Executable is still open" in caplog.text
    gate.opened.set()
    cpu._ext.hipDeviceSynchronize()


def fail_inside(exe: hg.Executable, until: Callable[[float], bool] = lambda _: True) -> None:
    with exe:
        exe.launch()
        assert until(60)
        raise ZeroDivisionError


def test_an_exception_leaves_a_block_whose_work_never_ends(
    cpu: CpuRuntime, gate: Gate, concurrent: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executable, "_LEAVE_S", 0.05)
    monkeypatch.setattr(executable, "_ABORT_S", 0.05)
    left: list[hg.Executable] = []
    monkeypatch.setattr(executable, "left_running", left)
    g = copies()
    g.host(gate, name="gate")
    exe = g.compile(runtime=cpu, backend=concurrent)
    with pytest.raises(ZeroDivisionError):
        fail_inside(exe, gate.entered.wait)
    assert left == [exe]
    assert "'copies' has not finished after 0.05 s" in caplog.text
    with pytest.raises(hg.HipGraphError, match="is closed"):
        exe.synchronize()
    with pytest.raises(hg.HipGraphError, match="is closed"):
        exe.launch()
    gate.opened.set()
    cpu._ext.hipDeviceSynchronize()  # what a launch that was given up leaves would be said to the next who waits for the device


def test_an_exception_ends_what_the_cpu_can_end(
    cpu: CpuRuntime, semaphore: hg.Semaphore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[hg.Executable] = []
    monkeypatch.setattr(executable, "_LEAVE_S", 0.05)
    monkeypatch.setattr(executable, "left_running", left)
    with pytest.raises(ZeroDivisionError):
        fail_inside(waiting(semaphore).compile(runtime=cpu))
    assert "everything has been returned" in caplog.text
    assert left == []


def test_a_failure_is_raised_although_a_wait_was_given_up(cpu: CpuRuntime, gate: Gate) -> None:
    g = hg.Graph("two")
    g.host(gate, name="call")
    other = cpu.stream_create()
    with g.compile(runtime=cpu) as exe:
        exe.launch(stream=other)
        assert gate.entered.wait(60)
        exe._own.in_flight.failed(700)  # as a compiled wait keeps it
        with pytest.raises(hg.WaitTimeout):
            exe.synchronize(timeout_s=0.01)
        gate.opened.set()
        with pytest.raises(hg.HipError, match="hipErrorIllegalAddress"):
            exe.synchronize()
        exe.synchronize()
    cpu.stream_destroy(other)


def test_closing_says_what_it_waits_for(
    cpu: CpuRuntime, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executable, "_CLOSE_WARNING_S", 0.02)
    g = copies()
    g.host(gate, name="gate")
    exe = g.compile(runtime=cpu)
    exe.launch()
    assert gate.entered.wait(60)
    thread = threading.Thread(target=exe.close)
    thread.start()
    while "close() has waited" not in caplog.text:
        time.sleep(0.01)
    assert "not finished: 'gate'" in caplog.text
    gate.opened.set()
    thread.join()


_INTERRUPTED = """
import json, signal, threading
import hipgraphdsl as hg

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with SIGINT ignored
main = threading.main_thread().ident
found = {}
for backend in ("explicit", "capture", "streams", "serial"):
    opened = threading.Event()
    g = hg.Graph("slow")
    ended = []
    g.host(lambda: ended.append(opened.wait(100)), name="gate")
    with g.compile(runtime="cpu", backend=backend) as exe:
        if backend == "serial":
            work = exe.launch
        else:
            exe.launch()
            work = exe.synchronize
        threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        try:
            work()
        except KeyboardInterrupt as error:
            found[backend] = [not ended, str(error)]
        opened.set()
        exe.synchronize()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def interrupted(cpu: CpuRuntime) -> dict[str, tuple[bool, str]]:
    """What Ctrl-C did to a wait, by backend: whether it ended before the work, and what the KeyboardInterrupt says."""
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_ctrl_c_interrupts_a_wait(interrupted: dict[str, tuple[bool, str]], backend: str) -> None:
    at_once, said = interrupted[backend]
    assert at_once
    assert "'gate'" in said


_INTERRUPTED_EVERYWHERE = """
import ctypes, gc, itertools, signal, sys, threading, warnings
import numpy as np
import hipgraphdsl as hg

ARGUMENTS = (ctypes.py_object, ctypes.py_object, ctypes.py_object)
press = ctypes.PYFUNCTYPE(None, *ARGUMENTS)(("PyErr_SetInterrupt", ctypes.pythonapi))  # in C, so that only traced code meets it
backend, eager = sys.argv[1], sys.argv[2] == "eager"

def once(*_):
    sys.settrace(None)
    raise KeyboardInterrupt

def interrupted(call, n):
    "Call, and press Ctrl-C at the n-th bytecode of the package; return whether there are so many."
    left = n
    def local(frame, event, arg):
        nonlocal left
        left -= event == "opcode"
        return local if left else press
    def trace(frame, event, arg):
        frame.f_trace_opcodes = "hipgraphdsl" in frame.f_code.co_filename and left > 0
        return local if frame.f_trace_opcodes else None
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return left <= 0

def goes_on(call, n):
    try:
        return interrupted(call, n)
    except KeyboardInterrupt:  # it came behind the call
        return True

def elsewhere(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        sys.exit("another thread waits for ever")

def used():
    exe.set("k", b=0.0)
    exe.enable("k")
    exe.write("x", 0)
    exe.launch(a=2.0)
    exe.launch(a=3.0)
    exe.launch()
    values.append(exe.read("x").tolist())

signal.signal(signal.SIGINT, once)
module = hg.Module('extern "C" __global__ void add(float* x, float a, float b) { x[0] += a + b; }')

def graph(more):
    g = hg.Graph("g")
    x, a, _ = g.device_array("x", np.zeros(1, "f4")), g.param("a", "float32", 1.0), g.device_array("y", np.zeros(1, "f4"))
    if eager:
        g.eager(lambda stream: None, name="e")
    g.kernel(module["add"], 1, 1, (x, a, 0.0), name="k")
    if more:
        g.empty(name="more")
    return g

g = graph(False)
x = g.arrays["x"]
graphs = itertools.cycle([graph(True), g])
exe, numbers, values = g.compile(runtime="cpu", backend=backend), itertools.count(5), []
exe.profile()  # imports what it needs: Python 3.11 turns Ctrl-C while it makes a class into a RuntimeError
calls = [  # each with how many bytecodes lie between two interruptions
    (3, lambda: exe.launch(exe.stream, a=float(next(numbers)))),
    (2, lambda: (exe.launch(), exe.synchronize(timeout_s=60))),
    (5, lambda: exe.launch(timeout_s=60, a=float(next(numbers)))),
    (2, lambda: exe.write("x", 1)),
    (31, lambda: exe.set("k", b=float(next(numbers)))),
    (7, lambda: (exe.disable("k"), exe.enable("k"))),
    (97, exe.profile),
    (397, lambda: exe.update(next(graphs), rebuild=True)),
    (397, lambda: exe.clone().close()),
]
warnings.simplefilter("ignore", ResourceWarning)  # an interrupted clone is closed when it is collected

def free():
    return exe.runtime.mem_get_info()[0]

def require_returned(what, n, before):
    if free() < before:
        gc.collect()
    if free() < before - x.nbytes:  # what the interrupted function itself has made, or was to return, may be left
        sys.exit(f"{what}, interrupted at bytecode {n}: {before - free()} bytes of memory are left")
for number, (step, call) in enumerate(calls):
    for n in itertools.count(1, step):
        before = free()
        if not goes_on(call, n):
            break
        elsewhere(used)
        used()
        if values != [[8.0], [8.0]]:
            sys.exit(f"call {number}, interrupted at bytecode {n}: {values}")
        values.clear()
        require_returned(f"call {number}", n, before)
exe.close()
for n in itertools.count(1, 31):
    before = free()
    exe = g.compile(runtime="cpu", backend=backend)
    exe.run()
    again = goes_on(exe.close, n)
    elsewhere(exe.close)
    require_returned("close", n, before)
    if not again:
        break
"""


@pytest.mark.parametrize(
    ("backend", "native"),
    [
        ("explicit", "1"),
        pytest.param("explicit", "0", marks=pytest.mark.slow),
        pytest.param("explicit eager", "1", marks=pytest.mark.slow),
        pytest.param("streams", "1", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_at_any_bytecode_leaves_an_executable_usable(cpu: CpuRuntime, backend: str, native: str) -> None:
    """The signal comes in C between two bytecodes, as the interpreter delivers it."""
    name, _, eager = backend.partition(" ")
    environment = {**os.environ, "HIPGRAPHDSL_NATIVE": native}
    command = [sys.executable, "-c", _INTERRUPTED_EVERYWHERE, name, eager]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_serial_names_a_node_of_a_body_that_fails_by_its_path(cpu: CpuRuntime) -> None:
    body, g = hg.Graph("body"), hg.Graph("g")
    trap = hg.Module('extern "C" __global__ void trap(int* x) { __builtin_trap(); }')["trap"]
    body.kernel(trap, 1, 1, (body.device_array("x", shape=1, dtype="i4"),), name="bad")
    g.conditional("if", g.host_array("word", np.ones(1, "u4")), body, name="cond")
    with g.compile(runtime=cpu, backend="serial") as exe, pytest.raises(hg.HipError, match="failed for node 'cond/0/bad'"):
        exe.run()


def test_ctrl_c_right_behind_the_change_of_device_restores_the_device(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[int] = []

    def interrupted(device: int) -> None:
        went.append(device)
        if device == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(cpu, "set_device", interrupted)
    with pytest.raises(KeyboardInterrupt), cpu.using_device(1):
        pass
    assert went == [1, 0]


DEFAULTS = hg.Module(
    """extern "C" __global__ void add(float* x, const float* copied, const float* part, float a, float b) {
         x[0] = a + 10 * b + 100 * copied[0] + 1000 * part[0];
    }""",
    name="defaults",
)


def with_defaults(a: float, b: float | None, copied: int, part: str) -> hg.Graph:
    g = hg.Graph("defaults")
    x = g.device_array("x", np.zeros(1, "f4"))
    g.device_array("one", np.ones(1, "f4"))
    g.device_array("two", np.full(1, 2, "f4"))
    copies = g.param("copied", "float32", np.full(1, copied, "f4"), shape=1, copy=True)
    stands_for = g.param("part", "float32", part, shape=1)
    g.kernel(DEFAULTS["add"], 1, 1, (x, copies, stands_for, g.param("a", "float32", a), g.param("b", "float32", b)), name="add")
    return g


@pytest.mark.parametrize("rebuild", [False, True])
def test_update_takes_the_defaults_of_parameters_that_no_launch_has_given(cpu: CpuRuntime, backend: Any, rebuild: bool) -> None:
    with with_defaults(1, None, 1, "one").compile(runtime=cpu, backend=backend) as exe:

        def updated(*defaults: Any, **given: float) -> float:
            g = with_defaults(*defaults)
            if rebuild:
                g.empty(name=f"mark_{len(exe.workflow.nodes)}")  # what cannot be applied in place
            exe.update(g, rebuild=rebuild)
            exe.run(**given)
            return float(exe.read("x")[0])

        assert updated(2, None, 2, "two", b=3.0) == 2232
        assert updated(4, 5, 1, "one") == 1134
        assert updated(4, 5, 1, "one", a=7.0) == 1137
        assert updated(9, 9, 3, "two") == 2337


# -- several at once -----------------------------------------------------------------------------------------------------------


def chain(k: int = 1) -> hg.Graph:
    m = hg.Module(SOURCE, name="chain")
    g = hg.Graph("chain")
    x, y = g.device_array("x", np.arange(8, dtype="i4")), g.device_array("y", np.zeros(8, "i4"))
    p = g.param("k", "int32", k)
    g.kernel(m["mix"], 1, 8, (y, x, p, 8), name="up")
    g.kernel(m["mix"], 1, 8, (x, y, 1, 8), name="down")
    return g


def chained(ks: list[int]) -> tuple[list[int], list[int]]:
    x, y = np.arange(8, dtype=np.uint32), np.zeros(8, np.uint32)
    for k in ks:
        y = (31 * y + 7 * x + np.uint32(k % 2**32)).astype(np.uint32)
        x = (31 * x + 7 * y + np.uint32(1)).astype(np.uint32)
    return x.view(np.int32).tolist(), y.view(np.int32).tolist()


def test_several_executables_run_at_once(cpu: CpuRuntime, backend: Any) -> None:
    g = chain()
    executables = [g.compile(runtime=cpu, backend=backend) for _ in range(5)]
    for i in range(10):
        for j, exe in enumerate(executables):
            exe.launch(k=i * j)
    for j, exe in enumerate(executables):
        assert (exe.read("x").tolist(), exe.read("y").tolist()) == chained([i * j for i in range(10)])
        exe.close()


def test_launches_from_several_threads_are_all_done_and_each_with_its_own_values(cpu: CpuRuntime, backend: Any) -> None:
    g = hg.Graph("threads")
    seen = g.host_array("seen", np.zeros(64, "i4"))
    k = g.param("k", "int32", 0)

    def call(seen: Any, k: int) -> None:
        seen[k] += 1

    g.host(call, args=(seen, k))
    errors: list[BaseException] = []
    with g.compile(runtime=cpu, backend=backend) as exe:

        def work(first: int) -> None:
            try:
                for i in range(first, first + 16):
                    exe.launch(k=i)
                    if i % 5 == 0:
                        exe.synchronize()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(16 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert exe.read("seen").tolist() == [1] * 64
        assert exe.stats.launches == 64


def test_a_wait_of_one_thread_covers_what_it_launched(cpu: CpuRuntime, concurrent: Any) -> None:
    """Another thread that waits for earlier launches must not make this one forget its own."""
    g = hg.Graph("waits")
    count = [0]

    def call() -> None:
        time.sleep(0.0005)
        count[0] += 1

    g.host(call)
    with g.compile(runtime=cpu, backend=concurrent) as exe:
        stop = threading.Event()

        def others() -> None:
            while not stop.is_set():
                exe.synchronize()

        thread = threading.Thread(target=others)
        thread.start()
        try:
            for i in range(1, 101):
                exe.launch()
                exe.synchronize()
                assert count[0] == i
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("action", ["read", "write", "synchronize"])
@pytest.mark.parametrize("end", ["close", "update"])
def test_close_waits_until_other_threads_have_left(
    cpu: CpuRuntime, gate: Gate, action: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def graph(*more: str) -> hg.Graph:
        g = copies()
        g.record(hg.Event("e"), name="e")
        for name in more:
            g.empty(name=name)
        return g

    exe = graph().compile(runtime=cpu)
    exe.launch(stream=0)  # compiled code waits for the own stream alone
    own = exe._own
    wait = own.wait

    def held(timeout_s: float | None = None) -> None:
        wait(timeout_s)
        if threading.current_thread() is thread:
            gate()

    monkeypatch.setattr(own, "wait", held)
    arguments = {"read": ("y",), "write": ("y", 1)}.get(action, ())
    found: list[Any] = []

    def use() -> None:
        try:
            found.append(getattr(exe, action)(*arguments))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    assert gate.entered.wait(60)
    ending = threading.Thread(target=exe.close if end == "close" else lambda: exe.update(graph("more"), rebuild=True))
    ending.start()
    while not exe._closed:
        time.sleep(1e-3)
    assert own.memory.arrays
    gate.opened.set()
    thread.join()
    ending.join()
    if action == "read":
        assert found[0].tolist() == [0, 1, 2, 3]
    else:
        assert not isinstance(found[0], BaseException)
    exe.close()


def test_update_that_rebuilds_lets_other_threads_wait_for_it(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it replaces what the Executable owns, nobody is told that the Executable is closed."""
    found: list[Any] = []
    g = copies()
    exe = g.compile(runtime=cpu)
    register = exe._own.return_into

    def use() -> None:
        calls: list[Callable[[], object]] = [exe.synchronize, exe.done, lambda: exe.read("x").tolist()]
        for call in calls:
            try:
                found.append(call())
            except BaseException as error:
                found.append(error)

    thread = threading.Thread(target=use)

    def closing(stack: ExitStack) -> None:
        thread.start()
        thread.join(0.05)
        register(stack)

    monkeypatch.setattr(exe._own, "return_into", closing)
    g.empty(name="more")
    exe.update(g, rebuild=True)
    thread.join()
    assert found == [None, True, [0, 1, 2, 3]]
    exe.close()


def test_synchronize_keeps_the_memory_of_a_launch_that_came_after_it_began(
    cpu: CpuRuntime, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of its wait and its return, another thread launches with other memory, and then with other memory again."""
    g = hg.Graph("late")
    y = g.host_array("y", np.zeros(4, "i4"))
    p = g.param("p", "i4", shape=4)
    g.host(lambda: gate() if first else None, name="gate")
    g.memcpy(y, p, name="copy", after=["gate"])
    first: list[int] = []
    memory = [np.full(4, i, "i4") for i in range(4)]
    kept = [weakref.ref(m.base if m.base is not None else m) for m in memory]
    with g.compile(runtime=cpu, lanes=1) as exe:
        exe.run(p=memory[0])
        exe.launch(p=memory[1])
        wait = exe._own.wait

        def waited(timeout_s: float | None = None) -> None:
            wait(timeout_s)
            monkeypatch.undo()
            first.append(1)
            exe.launch(p=memory[2])
            exe._own.give({"p": memory[3]})
            del memory[:]

        monkeypatch.setattr(exe._own, "wait", waited)
        exe.synchronize()
        gc.collect()
        assert kept[2]() is not None
        gate.opened.set()
        exe.synchronize()
        assert exe.read("y").tolist() == [2] * 4
        gc.collect()
        assert kept[2]() is None


def test_a_stream_that_there_is_not_is_told_once(cpu: CpuRuntime, backend: Any) -> None:
    with copies().compile(runtime=cpu, backend=backend) as exe:
        for _ in range(2):
            with pytest.raises(hg.HipError, match="hipErrorInvalidHandle"):
                exe.launch(stream=12345678)
            exe.synchronize()
        exe.run()
        assert exe.read("y").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("action", ["launch", "run"])
def test_a_graph_is_compiled_and_launched_in_one_expression(cpu: CpuRuntime, backend: Any, action: str) -> None:
    g, seen = hg.Graph("seen"), []
    h = g.host_array("h", np.ones(4, "i4"))
    g.host(lambda h: seen.append(h.tolist()), (h,), writes=[])
    with pytest.warns(ResourceWarning, match="never closed"):
        getattr(g.compile(runtime=cpu, backend=backend), action)()
    assert seen == [[1, 1, 1, 1]]


@pytest.mark.skipif(native.native() is None, reason="without compiled code a method keeps its Executable")
@pytest.mark.parametrize("action", ["launch", "synchronize", "run"])
def test_a_method_that_outlives_its_executable_is_refused(cpu: CpuRuntime, action: str) -> None:
    exe = [copies().compile(runtime=cpu)]
    exe[0].run()
    method = getattr(exe[0], action)
    with pytest.warns(ResourceWarning, match="never closed"):
        exe.clear()
    with pytest.raises(hg.HipGraphError, match="the Executable of graph 'copies' was deleted"):
        method()


def test_set_of_a_callback_keeps_none_that_no_launch_can_call(cpu: CpuRuntime, backend: Any) -> None:
    g = hg.Graph("callbacks")
    g.host(lambda _: None, ("first",), name="call")
    with g.compile(runtime=cpu, backend=backend) as exe:
        known = len(callbacks._table)
        for i in range(10):
            exe.set("call", args=(i,))
        assert len(callbacks._table) == known
        exe.run()
        exe.set("call", args=("last",))
        assert len(callbacks._table) == known


def test_launches_go_to_a_users_own_stream(cpu: CpuRuntime, backend: Any) -> None:
    class Torch:
        def __init__(self, handle: int) -> None:
            self.cuda_stream = handle

    class Cupy:
        def __init__(self, handle: int) -> None:
            self.ptr = handle

    class Standard:
        def __init__(self, handle: int) -> None:
            self.handle_of = handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, self.handle_of)

    stream = cpu.stream_create()
    try:
        with chain().compile(runtime=cpu, backend=backend) as exe:
            for made in (stream, Torch(stream), Cupy(stream), Standard(stream)):
                exe.launch(stream=made)
            out = np.zeros(8, "i4")
            cpu.memcpy_async(out.ctypes.data, exe._own.memory.arrays["x"].pointer, 32, MemcpyKind.DEVICE_TO_HOST, stream)
            cpu.stream_synchronize(stream)
            assert out.tolist() == chained([1] * 4)[0]
            with pytest.raises(hg.DeclarationError, match="stream is a raw handle or a stream object"):
                exe.launch(stream="mine")
            assert exe.read("x").tolist() == chained([1] * 4)[0]
    finally:
        cpu.stream_destroy(stream)


def test_launches_of_one_executable_on_two_streams_do_not_run_into_each_other(cpu: CpuRuntime) -> None:
    streams = [cpu.stream_create() for _ in range(2)]
    try:
        with chain().compile(runtime=cpu) as exe:
            for i in range(20):
                exe.launch(stream=streams[i % 2])
            exe.synchronize()
            assert exe.read("x").tolist() == chained([1] * 20)[0]
    finally:
        for stream in streams:
            cpu.stream_destroy(stream)


def test_changing_again_and_again_looks_through_the_graph_once(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.native() is None:
        pytest.skip("no compiled call path: no Python headers or no compiler")
    g = hg.Graph("many")
    y, z = g.device_array("y", shape=10, dtype="i4"), g.device_array("z", shape=4, dtype="i4")
    p, fill = g.param("p", "int32", 0), g.param("fill", "int32", 0)
    for i in range(10):
        g.kernel(hg.Module(SOURCE)["mix"], 1, 1, (hg.writes(y[i]), y[i], p, 1), name=f"k{i}")
    g.memset(z, fill, name="fill")
    with g.compile(runtime=cpu) as exe:
        compiled: Any = exe._own.compiled
        registered: list[Any] = []
        original = compiled.register

        def register(*args: Any) -> None:
            registered.append(args)
            original(*args)

        monkeypatch.setattr(compiled, "register", register)
        for i in range(5):
            exe.set("k3", args=(hg.writes(y[3]), y[3], p, 1 + i))
            exe.launch()
        assert not registered
        for i in range(5):
            exe.launch(fill=i + 1)  # a memset is set on the slow path, which nothing else depends on
            exe.launch(p=i)
        exe.synchronize()
        assert len(registered) == 1
        assert exe.read("z").tolist() == [5] * 4
        wanted = np.zeros(10, "i4")
        for by in (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4):
            wanted = 38 * wanted + np.int32(by)
        assert exe.read("y").tolist()[:3] == wanted.tolist()[:3]


def test_parameters_of_inlined_children_are_set_by_the_compiled_path(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.native() is None:
        pytest.skip("no compiled call path: no Python headers or no compiler")
    mix = hg.Module(SOURCE)["mix"]
    inner = hg.Graph("inner")
    w, v, own = inner.device_array("w", shape=8, dtype="i4"), inner.param("v", "int32", 1), inner.param("own", "int32", 1)
    for i in range(8):
        inner.kernel(mix, 1, 1, (hg.writes(w[i]), w[i], v if i % 2 else own, 1), name=f"k{i}")
    outer = hg.Graph("outer")
    x = outer.device_array("x", np.zeros(8, "i4"))
    y, a = outer.device_array("y", np.zeros(8, "i4")), outer.param("a", "int32", 1)
    outer.child(inner, bind={"w": x, "v": a}, name="first")
    outer.child(inner, bind={"w": y, "v": 7}, name="second")
    resolved: list[str] = []
    resolve = GraphProgram.resolve

    def noted(self: GraphProgram, step: Any) -> Any:
        resolved.append(step.name)
        return resolve(self, step)

    monkeypatch.setattr(GraphProgram, "resolve", noted)
    with outer.compile(runtime=cpu, backend="capture") as exe, outer.compile(runtime=cpu, backend="serial") as wanted:
        for n in range(4):
            for one in (exe, wanted):
                if n == 1:
                    resolved.clear()
                one.run(**{"a": n, "first/own": n + 1, "second/own": n + 2})
            assert exe.read("x").tolist() == wanted.read("x").tolist()
            assert exe.read("y").tolist() == wanted.read("y").tolist()
        assert resolved == []
        assert exe.stats.updates == 8 + 3 * 12  # not what has the value already, nor what is bound to a constant


def test_values_of_several_kinds_cost_together_what_they_cost_alone(cpu: CpuRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many nodes Python resolves and sets only those that the compiled call path cannot, whatever is given beside."""
    if native.native() is None:
        pytest.skip("no compiled call path: no Python headers or no compiler")
    g = hg.Graph("many")
    y, z = g.device_array("y", np.zeros(40, "i4")), g.device_array("z", shape=8, dtype="i4")
    a, b, fill, blocks = (g.param(name, "uint32" if name == "blocks" else "int32", 1) for name in ("a", "b", "fill", "blocks"))
    mix = hg.Module(SOURCE)["mix"]
    for i in range(40):
        g.kernel(mix, blocks if i < 2 else 1, 1, (hg.writes(y[i]), y[i], a if i % 2 else b, 1), name=f"k{i}")
    g.memset(z[:4], fill, name="fill")
    g.memset(z[4:], b, name="with b")
    by_python: list[str] = []
    resolve = GraphProgram.resolve

    def noted(self: GraphProgram, step: Any) -> Any:
        by_python.append(step.name)
        return resolve(self, step)

    monkeypatch.setattr(GraphProgram, "resolve", noted)
    with g.compile(runtime=cpu) as exe:
        exe.run(a=2, b=2, fill=2, blocks=2)  # the first launch with values takes the slow path

        def costs(**values: int) -> tuple[list[str], int]:
            """Return the nodes that Python looked at, and how many were set."""
            updates = exe.stats.updates
            by_python.clear()
            exe.run(**values)
            return sorted(by_python), exe.stats.updates - updates

        assert costs(a=3) == ([], 20)
        assert costs(fill=3) == (["fill"], 1)
        assert costs(a=4, fill=4) == (["fill"], 21)
        assert costs(b=4) == (["with b"], 21)
        assert costs(a=5, b=5, fill=5) == (["fill", "with b"], 42)
        assert costs(a=5, fill=6) == (["fill"], 1)
        assert costs(a=6, blocks=1) == ([], 22)
        assert costs(a=7, blocks=2, fill=7) == (["fill"], 23)
        assert costs(a=7, blocks=0, fill=6)[1] == 3  # looks at all nodes, because two have nothing to do
        assert costs(a=7, blocks=2) == (["k0", "k1"], 2)
        assert costs(a=6, blocks=1) == ([], 22)
        assert costs(a=7, blocks=2) == ([], 22)
        assert costs(a=7, b=5, fill=6, blocks=2) == ([], 0)
        assert costs(stream=exe.stream, a=8) == ([], 20)
        exe.disable("k3")
        assert costs(a=9, fill=9)[1] == 20  # looks at all nodes, because another is off
        assert costs(a=10, fill=10) == (["fill"], 20)
        exe.enable("k3")
        exe.launch(a=10)  # looks at all nodes again
        assert exe.parameters == {"a": 10, "b": 5, "fill": 10, "blocks": 2}
        exe.write("y", np.zeros(40, "i4"))
        exe.run()
        assert exe.read("y").tolist() == [5, 10] * 20
        assert exe.read("z").tolist() == [10] * 4 + [5] * 4


def test_enable_of_a_node_that_was_off_while_a_parameter_changed_gives_it_its_value(cpu: CpuRuntime, backend: Any) -> None:
    g = hg.Graph("off")
    y = g.device_array("y", np.zeros(2, "i4"))
    a = g.param("a", "int32", 1)
    for i in range(2):
        g.kernel(hg.Module(SOURCE)["mix"], 1, 1, (hg.writes(y[i]), y[i], a, 1), name=f"k{i}")
    with g.compile(runtime=cpu, backend=backend) as exe:
        for value in (2, 3):  # the slow path, and the fast one where there is one
            exe.run(a=value)
        exe.disable("k0")
        exe.run(a=4)
        exe.enable("k0")
        exe.write("y", np.zeros(2, "i4"))
        exe.run()
        assert exe.read("y").tolist() == [4, 4]


def test_a_value_that_one_of_its_nodes_refuses_is_taken_from_all(cpu: CpuRuntime) -> None:
    g = hg.Graph("sized")
    y = g.device_array("y", np.zeros(4, "i4"))
    blocks = g.param("blocks", "int32", 1)
    g.kernel(hg.Module(SOURCE)["mix"], 1, 1, (y, y, blocks, 1), name="argument")
    g.kernel(hg.Module(SOURCE)["mix"], blocks, 1, (y, y, 0, 1), name="grid")
    with g.compile(runtime=cpu) as exe:
        for value in (2, 3):  # the slow path, and by the compiled call path as far as it can
            exe.run(blocks=value)
        with pytest.raises(hg.DeclarationError, match="'grid'"):
            exe.launch(blocks=-1)
        assert exe.parameters == {"blocks": 3}
        exe.write("y", np.zeros(4, "i4"))
        exe.run()
        assert exe.read("y").tolist()[0] == 38 * 3


def test_the_compiled_call_path_takes_keywords_of_any_mapping_and_many(cpu: CpuRuntime) -> None:
    if native.native() is None:
        pytest.skip("no compiled call path: no Python headers or no compiler")
    g = hg.Graph("many")
    y = g.device_array("y", shape=10, dtype="i4")
    mix = hg.Module(SOURCE)["mix"]
    for i in range(10):
        g.kernel(mix, 1, 1, (hg.writes(y[i]), y[i], g.param(f"p{i}", "int32", 0), 1), name=f"k{i}")
    with g.compile(runtime=cpu) as exe:
        exe.run(p0=1)  # the first launch with values takes the slow path
        exe.write("y", 0)
        before = exe._own.compiled.launcher.launches
        exe.launch(**{"p" + str(i): i for i in range(10)})  # strings that nothing has interned
        assert exe._own.compiled.launcher.launches == before + 1
        assert exe.read("y").tolist() == list(range(10))


def waits_compiled(exe: hg.Executable) -> bool:
    """Return whether short waits are compiled code's."""
    return bool(exe._own.compiled.launcher.can_wait)


@pytest.mark.skipif(native.native() is None, reason="no compiled call path: no Python headers or no compiler")
def test_short_waits_are_compiled_codes_as_long_as_the_own_stream_is_all(cpu: CpuRuntime) -> None:
    g = chain()
    with g.compile(runtime=cpu) as exe:
        exe.run(k=1)
        exe.run(k=2)
        assert waits_compiled(exe)
        stream = cpu.stream_create()
        exe.launch(stream=stream)
        assert not waits_compiled(exe)
        exe.synchronize()
        assert cpu.stream_query(stream)
        assert waits_compiled(exe)
        exe.disable("up")
        assert not waits_compiled(exe)
        exe.run()
        assert waits_compiled(exe)
        exe.launch(k=3)
        exe.synchronize()
        assert waits_compiled(exe)
        assert exe.done()
        cpu.stream_destroy(stream)
    with pytest.raises(hg.HipGraphError, match="closed"):
        exe.run()
    with pytest.raises(hg.HipGraphError, match="closed"):
        exe.synchronize()


def test_short_waits_are_pythons_where_a_host_node_may_fail(cpu: CpuRuntime) -> None:
    g, seen = hg.Graph("host"), []

    def call() -> None:
        seen.append(1)
        if len(seen) == 3:
            raise KeyError("third")

    g.host(call)
    with g.compile(runtime=cpu) as exe:
        exe.run()
        exe.run()
        with pytest.raises(KeyError, match="third"):
            exe.run()
        exe.run()
    assert len(seen) == 4


def test_a_failure_that_a_short_wait_meets_is_raised_once(cpu: CpuRuntime) -> None:
    g = hg.Graph("fails")
    module = hg.Module('extern "C" __global__ void stop(int* y, int n) { if (n) __trap(); y[0] += 1; }')
    y = g.device_array("y", shape=1, dtype="i4")
    g.kernel(module["stop"], 1, 1, (hg.updates(y), g.param("n", "int32", 0)), name="stop")
    with g.compile(runtime=cpu) as exe:
        exe.run(n=0)
        exe.run(n=0)
        with pytest.raises(hg.HipError, match=r"failed.*\(719\).*'stop'"):
            exe.run(n=1)
        exe.run(n=0)
        exe.launch(n=1)
        with pytest.raises(hg.HipError, match=r"failed.*\(719\).*'stop'"):
            exe.synchronize()
        exe.run(n=0)
        assert exe.read("y").tolist() == [4]


# -- failures ------------------------------------------------------------------------------------------------------------------


def test_a_failed_launch_parameter_leaves_the_graph_as_it_was(recorder: RecorderRuntime) -> None:
    with chain().compile(runtime=recorder) as exe:
        exe.run(k=3)
        recorder.fail_at(1, api="hipGraphExecKernelNodeSetParams")
        with pytest.raises(hg.HipError, match="hipGraphExecKernelNodeSetParams failed for node 'up'"):
            exe.launch(k=4)
        assert exe.parameters == {"k": 3}
        recorder.clear()
        exe.run()
        assert "hipGraphLaunch" in recorder.apis()
        exe.run(k=4)
        assert exe.parameters == {"k": 4}


def test_a_failed_set_leaves_the_graph_as_it_was(cpu: CpuRuntime, backend: Any) -> None:
    with chain().compile(runtime=cpu, backend=backend) as exe:
        for fields in ({"grid": 0}, {"args": (1, 2)}, {"colour": 3}, {"block": 2000}):
            with pytest.raises(hg.DeclarationError, match="'up'"):
                exe.set("up", **fields)
        with pytest.raises(hg.UpdateError, match="name is fixed") as caught:
            exe.set("up", name="down")
        assert (caught.value.node, caught.value.field) == ("up", "name")
        with pytest.raises(hg.UpdateError, match="no node 'side'; its nodes are 'up', 'down'"):
            exe.set("side", grid=1)
        exe.run()
        assert exe.read("x").tolist() == chained([1])[0]


def test_a_parameter_of_another_graph_is_refused(cpu: CpuRuntime, backend: Any) -> None:
    other = chain().parameters["k"]
    with chain().compile(runtime=cpu, backend=backend) as exe, parent().compile(runtime=cpu, backend=backend) as outer:
        x, y = exe.workflow.arrays["x"], exe.workflow.arrays["y"]
        with pytest.raises(hg.UpdateError, match="'up': parameter 'k' is not of the graph that was compiled") as caught:
            exe.set("up", args=(y, x, other, 8))
        assert (caught.value.node, caught.value.field) == ("up", "args")
        with pytest.raises(hg.UpdateError, match="'two/tail': parameter 'w' is not of the graph"):
            outer.set("two/tail", value=outer.workflow.parameters["w"])
        with pytest.raises(hg.UpdateError, match="'one': parameter 'k' is not of the graph"):
            outer.set("one", bind={**parent_bind(outer), "v": other})
        exe.run()
        assert exe.read("x").tolist() == chained([1])[0]


def parent_bind(exe: hg.Executable) -> Any:
    return next(node.bind for node in exe.workflow.nodes if isinstance(node, ChildGraphNode) and node.name == "one")


def test_a_failed_update_leaves_the_graph_as_it_was(cpu: CpuRuntime, backend: Any) -> None:
    other = chain()
    other.memset(other.arrays["x"], 0, name="more")
    with chain().compile(runtime=cpu, backend=backend) as exe:
        with pytest.raises(hg.UpdateError, match=r"in place: node 'more' is only in the new graph; .*rebuild=True") as caught:
            exe.update(other)
        assert caught.value.node == "more"
        exe.run()
        assert exe.read("x").tolist() == chained([1])[0]
        exe.update(other, rebuild=True)
        exe.run()
        assert exe.read("x").tolist() == [0] * 8
        assert exe.stats.launches == 2


def test_update_that_builds_again_keeps_values_parameters_and_what_is_disabled(cpu: CpuRuntime, backend: Any) -> None:
    g = chain()
    g.param("unused", "int32")
    g.memset(g.arrays["y"], g.parameters["unused"], name="reset")
    new = chain()
    new.param("unused", "int32")
    new.memset(new.arrays["y"], new.parameters["unused"], name="reset")
    new.empty(name="more")
    with g.compile(runtime=cpu, backend=backend) as exe:
        exe.disable("reset")
        exe.run(k=5, unused=7)
        exe.update(new, rebuild=True)
        exe.run()
        assert exe.parameters == {"k": 5, "unused": 7}
        assert exe.read("y").tolist() == chained([5, 5])[1]
        exe.enable("reset")
        exe.run()
        assert exe.read("y").tolist() == [7] * 8


@pytest.mark.parametrize("check", [True, False])
def test_update_checks_what_it_builds_afresh_where_compile_does(cpu: CpuRuntime, check: bool) -> None:
    racing = hg.Graph("copies", infer=False)
    x, y = racing.host_array("x", np.arange(4, dtype="i4")), racing.device_array("y", shape=4, dtype="i4")
    racing.memcpy(y, x, name="copy")
    racing.memset(y, 7, name="clear")
    with copies().compile(runtime=cpu, check=check) as exe:
        if check:
            with pytest.raises(hg.CheckError, match="'copy' and 'clear' both write 'y'"):
                exe.update(racing, rebuild=True)
            assert exe.workflow.nodes[-1].name != "clear"
        else:
            exe.update(racing, rebuild=True)
        exe.run()


def test_an_update_whose_default_is_refused_changes_nothing(cpu: CpuRuntime, backend: Any) -> None:
    def declared(memory: Any, value: int) -> hg.Graph:
        g, inner = hg.Graph("g"), hg.Graph("inner")
        y, z = (g.device_array(name, shape=4, dtype="int32") for name in "yz")
        p, bound = g.param("p", "int32", memory, shape=4), inner.device_array("bound", shape=4, dtype="int32")
        inner.memset(bound, 7)
        g.memset(p, value, name="fill")
        g.memset(y, value, name="other")
        g.child(inner, bind={"bound": z if value == 1 else g.device_array("v", shape=4, dtype="int32")}, name="c")
        g.external_array("frozen", frozen)  # declared behind the nodes, so that no declaration finds the fault
        return g

    memory, frozen = np.zeros(4, "i4"), np.zeros(4, "i4")
    frozen.flags.writeable = False
    g = declared(memory, 1)
    g.device_array("v", shape=4, dtype="int32")
    with g.compile(cpu, backend) as exe:
        workflow = exe.workflow
        with pytest.raises(hg.DeclarationError, match="'fill' cannot use: external array 'frozen' is read-only"):
            exe.update(declared("frozen", 2))
        assert exe.workflow is workflow
        exe.run()
        assert [memory[0], *(exe.read(name)[0] for name in "yzv")] == [1, 1, 7, 0]


def test_an_array_that_is_new_asks_for_building_afresh(cpu: CpuRuntime) -> None:
    new = copies()
    other = hg.Graph("copies")
    z, y = other.host_array("z", np.full(4, 5, "i4")), other.device_array("y", shape=4, dtype="i4")
    other.memcpy(y, z, name="copy")
    with new.compile(runtime=cpu) as exe:
        with pytest.raises(hg.UpdateError, match="'z'") as caught:
            exe.update(other)
        assert (caught.value.node, caught.value.field) == ("copy", "src")
        exe.update(other, rebuild=True)
        exe.run()
        assert exe.read("y").tolist() == [5] * 4


@pytest.mark.parametrize("first", range(1, 30))
@pytest.mark.parametrize("second", [1, 2, 3])
def test_two_failures_in_a_row_leave_nothing_behind(recorder: RecorderRuntime, backend: Any, first: int, second: int) -> None:
    g = copies()
    g.host(print, args=(), name="host")
    y = g.alloc("t", 4, "i4")
    g.memcpy(y, g.arrays["y"])
    g.free(y)
    recorder.fail_at(first, code=2)
    recorder.fail_at(first + second, code=3)
    exe = None
    try:
        exe = g.compile(runtime=recorder, backend=backend)
        exe.run()
        exe.close()
    except hg.HipError:
        if exe is not None:
            with suppress(hg.HipError):  # the second of the failures that were ordered
                exe.close()
    recorder._failures.clear()
    assert recorder.live == {}
    assert not recorder._captures


def test_the_process_goes_on_after_a_failed_compile(recorder: RecorderRuntime, backend: Any) -> None:
    g = chain()
    for n in range(1, 40):
        recorder.fail_at(n)
        with suppress(hg.HipError):
            g.compile(runtime=recorder, backend=backend).close()
        recorder._failures.clear()
    with g.compile(runtime=recorder, backend=backend) as exe:
        exe.run(k=2)
    assert recorder.live == {}


SHARING = hg.Module("""
extern "C" __global__ void sharing(int* y) { extern __shared__ int s[]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x]; }
""")


def sharing(grid: Any = 1, shared_bytes: int = 32) -> hg.Graph:
    g = hg.Graph("limits")
    y = g.device_array("y", shape=8, dtype="i4")
    g.kernel(SHARING["sharing"], grid, 8, (y,), shared_bytes=shared_bytes, name="k")
    return g


@pytest.mark.parametrize(
    ("fields", "code"), [({"shared_bytes": 2**20}, "HG505"), ({"shared_bytes": 0}, "HG510"), ({"grid": 2**31}, "HG503")]
)
def test_set_and_update_refuse_launches_that_compile_refuses(cpu: CpuRuntime, backend: Any, fields: Any, code: str) -> None:
    with sharing().compile(runtime=cpu, backend=backend) as exe:
        with pytest.raises(hg.DeclarationError, match=f"^node 'k': .*{code}") as caught:
            exe.set("k", **fields)
        assert caught.value.node == "k"
        with pytest.raises(hg.DeclarationError, match=f"^node 'k': .*{code}"):
            exe.update(sharing(**fields))
        exe.run()
        assert exe.read("y").tolist() == [1] * 8


def test_set_leaves_what_was_compiled_beyond_a_limit(recorder: RecorderRuntime) -> None:
    with sharing(grid=2**31).compile(runtime=recorder, check=False) as exe:
        exe.set("k", grid=2**31 + 1)


def test_an_update_that_rebuilds_is_made_or_not_whichever_call_fails(recorder: RecorderRuntime, backend: Any) -> None:
    def graph(value: int) -> hg.Graph:
        g = copies()
        g.memset(g.arrays["y"], value, name=f"set_{value}")
        return g

    for n in range(1, 400):
        exe = graph(1).compile(runtime=recorder, backend=backend)
        exe.run()
        recorder.fail_at(n)
        try:
            exe.update(graph(2), rebuild=True)
            failed = False
        except hg.HipError:
            failed = True
        recorder._failures.clear()
        assert failed or exe.plan.steps[-1].name == "set_2"
        exe.run()
        exe.close()
        assert recorder.live == {}, f"call {n} failed"
        if not failed:
            break
    assert 10 <= n < 399


def test_a_profile_whose_calls_fail_leaves_nothing_behind(recorder: RecorderRuntime, backend: Any) -> None:
    g = chain()
    for n in range(1, 200):
        exe = g.compile(runtime=recorder, backend=backend)
        exe.run(k=2)
        recorder.fail_at(n)
        try:
            exe.profile()
        except hg.HipError:
            exe.run(k=3)
        else:
            recorder._failures.clear()
            exe.close()
            break
        exe.close()
        assert recorder.live == {}, f"after call {n} of the profile"
    assert 10 < n < 199


GRAPHS = pytest.mark.parametrize("graphs", ["explicit", "capture"])


def launched(exe: hg.Executable, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[str, str, int]], int]:
    """Return name, kind and number of nodes of each span of a profile, and how many kernels it launched."""
    runtime: Any = exe.runtime
    launch, launches = runtime.module_launch_kernel, []
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "module_launch_kernel", lambda *args, **given: launches.append(launch(*args, **given)))
        spans = exe.profile().spans
    return [(span.name, span.kind, len(span.nodes)) for span in spans], len(launches)


@GRAPHS
def test_a_profile_launches_nodes_together_as_the_graph_does(
    cpu: CpuRuntime, graphs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with batched().compile(cpu, graphs, batch=True) as exe:
        spans, launches = launched(exe, monkeypatch)
        assert spans == [
            ("batch of 8: set_0 … set_7", "batch", 8),
            ("out", "memcpy", 1),
            ("chain of 3: step_0 … step_2", "chain", 3),
        ]
        assert launches == 2
        assert [exe.read(f"x{i}")[0] for i in range(8)] == [3, *range(1, 8)]
        exe.disable("set_5")
        exe.disable("step_1")
        exe.set("set_6", value=60)
        exe.write("x5", 50)
        assert launched(exe, monkeypatch) == (spans, 2)
        assert [exe.read(f"x{i}")[0] for i in range(8)] == [2, 1, 2, 3, 4, 50, 60, 7]
        for i in range(3):
            exe.disable(f"step_{i}")
        assert launched(exe, monkeypatch)[1] == 1
        exe.set("set_4", block=16)  # no launch can do it together with the others any more
        spans, launches = launched(exe, monkeypatch)
        assert [name for name, kind, _ in spans if kind == "kernel"] == [f"set_{i}" for i in range(8)] + [
            f"step_{i}" for i in range(3)
        ]
        assert launches == 7


@pytest.mark.parametrize(("block", "blocks"), [(1, 2**29), (1024, 2**20)])  # in all 2^31 blocks, and 2^32 threads
@GRAPHS
def test_launches_that_one_grid_cannot_hold_are_apart(recorder: RecorderRuntime, graphs: Any, block: int, blocks: int) -> None:
    set_to = batched().workflow().nodes[0].kernels[0]
    g = hg.Graph("large")
    n = g.param("n", "uint32")
    for i in range(4):
        g.kernel(set_to, (n, 1, 1), block, (hg.writes(g.device_array(f"x{i}", np.zeros(1024, "i4"))), i), name=f"set_{i}")

    def kernels(**params: Any) -> int:
        exe.launch(**params)
        program = exe._own.program
        assert isinstance(program, GraphProgram)
        return len(set(program.nodes))

    with g.compile(recorder, graphs, batch=True) as exe:
        assert kernels(n=blocks - 1) == 1
        assert kernels(n=blocks) == 4
        assert kernels(n=2**31 - 1) == 4
    with g.compile(recorder, graphs, batch=True) as exe:
        assert kernels(n=4) == 1
        exe.disable("set_2")
        assert kernels(n=blocks) == 1
        exe.enable("set_2")
        assert kernels() == 4


@GRAPHS
def test_a_profile_knows_the_segment_of_what_follows_a_batch(cpu: CpuRuntime, graphs: Any) -> None:
    g = batched(8, 0)
    g.eager(lambda stream, array: None, (g.arrays["x0"],), writes=[g.arrays["x0"]], name="between")
    g.memset(g.arrays["x0"], 0, name="cleared")
    with g.compile(cpu, graphs, batch=True) as exe:
        timeline = exe.profile()
        assert exe.plan.cut is not None
        segments = {step.name: exe.plan.cut.segment_of.get(step.index, 0) for step in exe.plan.steps}
        assert segments["cleared"] > segments["set_0"]
        assert any(span.members for span in timeline.spans)
        assert {name: span.segment for span in timeline.spans for name in span.nodes} == segments


@pytest.mark.parametrize("batch", [False, "auto"])
def test_a_profile_launches_nodes_apart_where_the_graph_does(cpu: CpuRuntime, backend: Any, batch: Any) -> None:
    with batched().compile(cpu, backend, batch=batch) as exe:
        assert [span.name for span in exe.profile()] == [node.name for node in exe.workflow.nodes]


@pytest.mark.parametrize("packs", [False, True])
@GRAPHS
def test_a_profile_launches_together_what_uses_temporaries(
    cpu: CpuRuntime, graphs: Any, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = batched().workflow().nodes[0].kernels[0]
    g = hg.Graph("temporaries")
    out = g.device_array("out", np.zeros((4, 32), "i4"))
    for k in range(1 + packs):  # the second has the memory of the first
        t = g.alloc(f"t{k}", shape=(4, 32), dtype="int32")
        g.memset(t, 0, after=["copy_0"] if k else ())
        for i in range(4):
            g.kernel(kernel, 1, 32, (t[i], 7 + k + i), name=f"t{k}_{i}")
        g.memcpy(out, t, name=f"copy_{k}")
        g.free(t)
    with g.compile(cpu, graphs, batch=True) as exe:
        assert (exe.plan.packing is not None) == packs
        spans, launches = launched(exe, monkeypatch)
        assert [name for name, kind, _ in spans if kind == "batch"] == [f"batch of 4: t{k}_0 … t{k}_3" for k in range(1 + packs)]
        assert launches == 1 + packs
        assert exe.read("out")[:, 0].tolist() == [7 + packs + i for i in range(4)]


@GRAPHS
def test_a_profile_launches_the_nodes_of_children_as_the_graph_does(cpu: CpuRuntime, graphs: Any) -> None:
    g, inside = batched(), batched(4, 0)
    g.child(inside, bind={f"x{i}": g.device_array(f"y{i}", np.zeros(32, "i4")) for i in range(4)}, name="c")
    with g.compile(cpu, graphs, batch=True) as exe:
        together = exe.plan.index["set_0"], [step.name for step in exe.plan.steps if step.batch == 0]
        timeline = exe.profile()
        if "c/set_0" in together[1]:  # it stands in the place of the child
            assert {*timeline["c/set_3"].members} == {*together[1]}
        else:
            assert [timeline[name].members for name in ("c/set_0", "set_0")] == [(), ()]
        assert [exe.read(f"y{i}")[0] for i in range(4)] == [0, 1, 2, 3]


@GRAPHS
def test_a_profile_of_launches_whose_calls_fail_leaves_nothing_behind(graphs: Any) -> None:
    for n in range(1, 200):
        recorder = RecorderRuntime()
        exe = batched().compile(recorder, graphs, batch=True)
        exe.run()
        recorder.fail_at(n)
        try:
            assert len(exe.profile()) == 3
        except hg.HipError:
            exe.close()
            assert recorder.live == {}, f"after call {n} of the profile"
        else:
            recorder._failures.clear()
            exe.close()
            break
    assert 10 < n < 199


# -- changing inside children --------------------------------------------------------------------------------------------------


def parent() -> hg.Graph:
    c = hg.Graph("inner")
    x = c.device_array("x", np.zeros(4, "i4"))
    v = c.param("v", "int32", 3)
    c.memset(x, v, name="set")
    c.memset(x[2:], 8, name="tail")
    g = hg.Graph("outer")
    y = g.device_array("y", np.zeros((2, 4), "i4"))
    w = g.param("w", "int32", 4)
    g.child(c, bind={"x": y[0], "v": w}, name="one")
    g.child(c, bind={"x": y[1]}, name="two")
    return g


def test_set_and_disable_nodes_inside_children_by_their_full_names(cpu: CpuRuntime, backend: Any) -> None:
    with parent().compile(runtime=cpu, backend=backend) as exe:
        exe.run()
        assert exe.read("y").tolist() == [[4, 4, 8, 8], [3, 3, 8, 8]]
        exe.set("two/tail", value=6)
        exe.run(w=5)
        assert exe.read("y").tolist() == [[5, 5, 8, 8], [3, 3, 6, 6]]
        exe.disable("one/tail")
        exe.run(w=7)
        assert exe.read("y").tolist() == [[7, 7, 7, 7], [3, 3, 6, 6]]
        exe.enable("one/tail")
        exe.disable("two")
        exe.write("y", 0)
        exe.run()
        assert exe.read("y").tolist() == [[7, 7, 8, 8], [0, 0, 0, 0]]
        with exe.clone() as twin:
            twin.run(w=1)
            assert twin.read("y").tolist() == [[1, 1, 8, 8], [0, 0, 0, 0]]
            twin.enable("two")
            twin.run()
            assert twin.read("y").tolist() == [[1, 1, 8, 8], [3, 3, 6, 6]]
        exe.enable("two")
        exe.set("one", bind={"x": exe.workflow.arrays["y"][0], "v": 9})
        exe.run(w=2)
        assert exe.read("y").tolist() == [[9, 9, 8, 8], [3, 3, 6, 6]]


def test_profile_runs_what_was_set_and_not_what_was_disabled_inside_children(cpu: CpuRuntime, backend: Any) -> None:
    with parent().compile(runtime=cpu, backend=backend) as exe:
        exe.disable("one")
        exe.set("two/tail", value=6)
        exe.profile()
        assert exe.read("y").tolist() == [[0, 0, 0, 0], [3, 3, 6, 6]]


def test_disabled_children_do_nothing_in_a_profile(cpu: CpuRuntime, backend: Any) -> None:
    with parent().compile(runtime=cpu, backend=backend) as exe:
        exe.disable("one")
        assert {span.name for span in exe.profile().spans} >= {"two/set", "two/tail"}
        assert exe.read("y").tolist() == [[0, 0, 0, 0], [3, 3, 8, 8]]


def test_an_update_knows_what_was_set_inside_children(cpu: CpuRuntime, backend: Any) -> None:
    with parent().compile(runtime=cpu, backend=backend) as exe:
        exe.set("two/tail", value=6)
        (change,) = hg.explain_update(exe.workflow, parent()).changes
        assert (change.node, change.field, change.in_place) == ("two", "workflow", False)
        with pytest.raises(hg.UpdateError, match=r"'two'.*tail"):
            exe.update(parent())
        exe.update(parent(), rebuild=True)
        exe.run()
        assert exe.read("y").tolist() == [[4, 4, 8, 8], [3, 3, 8, 8]]


def test_set_refuses_nodes_that_follow_from_a_collective(recorder: RecorderRuntime) -> None:
    g = hg.Graph("g")
    g.all_reduce([g.device_array(name, np.zeros(4, "f4")) for name in "xy"], name="sum")
    with g.compile(recorder) as exe:
        before = exe.plan
        wanted = "node 'sum/fold_0': it follows from the fields of 'sum', and what a collective node does is fixed when the graph"
        with pytest.raises(hg.UpdateError, match=wanted) as caught:
            exe.set("sum/fold_0", block=128)
        assert (caught.value.node, caught.value.field) == ("sum/fold_0", "block")
        assert exe.plan.steps == before.steps
        exe.disable("sum/fold_0")


def test_set_takes_a_kernel_of_another_module_before_the_first_launch(cpu: CpuRuntime, backend: Any) -> None:
    g = hg.Graph("early")
    y, count = g.device_array("y", np.ones(4, "i4")), g.param("count", "int32")
    g.kernel(hg.Module(SOURCE)["mix"], 1, 1, (y, y, count, 1), name="k")
    with g.compile(runtime=cpu, backend=backend) as exe:
        exe.set("k", kernel=hg.Module(SOURCE, options=("-DOTHER",), name="other")["mix"], grid=1, block=1)
        exe.run(count=2)
        assert exe.read("y").tolist()[0] != 1


def values_of(workflow: hg.Workflow) -> list[int]:
    return [node.value for node in workflow.nodes if isinstance(node, hg.MemsetNode)]


def test_set_copies_none_of_the_other_nodes(recorder: RecorderRuntime) -> None:
    g = hg.Graph("many")
    x = g.device_array("x", shape=80, dtype="i4")
    for i in range(80):
        g.memset(x[i : i + 1], 0, name=f"n{i}")

    def values(workflow: hg.Workflow) -> list[object]:
        return [vars(node)["value"] for node in workflow.nodes]

    with g.compile(runtime=recorder) as exe:
        exe.set("n3", value=-1)
        plan, workflow = exe.plan, exe.workflow
        assert "steps" not in vars(plan)
        assert "nodes" not in vars(workflow)
        for i in range(80):
            exe.set(f"n{i}", value=i)
            if i % 30 == 7:
                assert values_of(exe.workflow) == [*range(i + 1), *[0] * (79 - i)]
        with pytest.raises(hg.DeclarationError):
            exe.set("n4", value="many")
        assert values_of(exe.workflow) == list(range(80))
        assert [step.node for step in exe.plan.steps] == list(exe.workflow.nodes)
        assert values_of(workflow) == [-1 if i == 3 else 0 for i in range(80)]
        assert [step.node for step in plan.steps] == list(workflow.nodes)


def test_plan_shows_what_set_has_changed(cpu: CpuRuntime, backend: Any) -> None:
    g = copies()
    with g.compile(runtime=cpu, backend=backend, plan=hg.PlanOptions(pack=False)) as exe:
        name = next(iter(exe.plan.index))
        node = exe.plan.steps[exe.plan.index[name]].node
        assert isinstance(node, hg.MemcpyNode)
        exe.set(name, src=node.src)  # the same values, and another model
        changed = exe.plan.steps[exe.plan.index[name]].node
        assert changed is not node
        assert changed is exe.workflow.nodes[exe.workflow.index[name]]


def test_a_kernel_beside_variables_that_was_not_compiled_asks_for_building_afresh(cpu: CpuRuntime, backend: Any) -> None:
    source = "__device__ int last; " + SOURCE + SOURCE.replace("mix", "other").replace("31", "5")

    def make(kernel: str) -> hg.Graph:
        g = hg.Graph("variables")
        x = g.device_array("x", np.ones(4, "i4"))
        g.kernel(hg.Module(source)[kernel], 1, 4, (hg.updates(x), hg.reads(x), 0, 4), name="k")
        return g

    with make("mix").compile(runtime=cpu, backend=backend) as exe:
        (change,) = hg.explain_update(exe.workflow, make("other")).changes
        assert (change.field, change.in_place) == ("kernel", False)
        with pytest.raises(hg.UpdateError, match=r"'other' was not compiled.*rebuild=True"):
            exe.update(make("other"))
        exe.update(make("other"), rebuild=True)
        exe.run()
        assert exe.read("x").tolist() == [12] * 4


def test_what_a_child_holds_cannot_be_set_by_the_parent(cpu: CpuRuntime, backend: Any) -> None:
    g = parent()
    with g.compile(runtime=cpu, backend=backend) as exe:
        y = exe.workflow.arrays["y"]
        for fields, text in (
            ({"workflow": g}, "workflow is fixed"),
            ({"bind": {"x": y[0]}}, "which of the child's names are bound is fixed"),
            ({"bind": {"x": y[1], "v": 3}}, "the graph's edges do not order"),
        ):
            with pytest.raises(hg.UpdateError, match=text) as caught:
                exe.set("one", **fields)
            assert caught.value.node == "one"
        with pytest.raises(hg.UpdateError, match="no node 'one/gone'"):
            exe.disable("one/gone")
        exe.run()
        assert exe.read("y").tolist() == [[4, 4, 8, 8], [3, 3, 8, 8]]


def test_updating_a_childs_binding_is_done_in_place_and_its_contents_afresh(cpu: CpuRuntime, backend: Any) -> None:
    new = parent()
    with new.compile(runtime=cpu, backend=backend) as exe:
        exe.run()
        other = parent()
        changed = other["one"].changed(bind={"x": other.arrays["y"][0], "v": 2})
        assert isinstance(changed, hg.ChildGraphNode)
        again = hg.Graph("outer")
        again.arrays.update(other.arrays)
        again.parameters.update(other.parameters)
        again.add(changed)
        again.add(other["two"])
        exe.update(again)
        exe.run()
        assert exe.read("y").tolist() == [[2, 2, 8, 8], [3, 3, 8, 8]]
        inner = hg.Graph("inner")
        x = inner.device_array("x", np.zeros(4, "i4"))
        inner.param("v", "int32", 3)
        inner.memset(x, 1, name="set")
        inner.memset(x[2:], 0, name="tail")
        last = hg.Graph("outer")
        y = last.device_array("y", np.zeros((2, 4), "i4"))
        w = last.param("w", "int32", 4)
        last.child(inner, bind={"x": y[0], "v": w}, name="one")
        last.child(inner, bind={"x": y[1]}, name="two")
        with pytest.raises(hg.UpdateError, match="what a child holds is fixed"):
            exe.update(last)
        exe.update(last, rebuild=True)
        exe.run()
        assert exe.read("y").tolist() == [[1, 1, 0, 0]] * 2


# -- many launches -------------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the platform does not tell a process's memory in /proc")
def test_ten_thousand_launches_take_no_more_memory(cpu: CpuRuntime, backend: Any) -> None:
    g = chain()
    count = [0]

    def call() -> None:
        count[0] += 1

    g.host(call)
    with g.compile(runtime=cpu, backend=backend) as exe:

        def launches(n: int) -> None:
            for i in range(n):
                exe.launch(k=i % 7)
                if i % 100 == 99:
                    exe.synchronize()
            exe.synchronize()

        launches(2000)
        before = resident_bytes()
        launches(10_000)
        assert resident_bytes() - before < 4 << 20
        assert count[0] == 12_000


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the platform does not tell a process's memory in /proc")
def test_compiling_again_and_again_takes_no_more_memory(cpu: CpuRuntime, backend: Any) -> None:
    g = chain()

    def compiles(n: int) -> None:
        for _ in range(n):
            with g.compile(runtime=cpu, backend=backend) as exe:
                exe.run()

    compiles(100)
    before = resident_bytes()
    compiles(500)
    assert resident_bytes() - before < 8 << 20


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_launch_before_another_is_waited_for_may_be_given_overlapping_memory(backend: Any) -> None:
    seen: list[list[int]] = []
    g = hg.Graph("slices")
    p = g.param("p", "i4", shape=4)
    g.host(lambda values: seen.append(values.tolist()), (hg.reads(p),))
    memory = np.arange(8, dtype="i4")
    with g.compile("cpu", backend) as exe:
        for first in (0, 2, 1, 4):
            exe.launch(p=memory[first : first + 4])
        exe.synchronize()
    assert seen == [[0, 1, 2, 3], [2, 3, 4, 5], [1, 2, 3, 4], [4, 5, 6, 7]]


def test_set_of_an_invalid_value_in_a_child_names_the_node_in_full(recorder: RecorderRuntime) -> None:
    inner, g = hg.Graph("inner"), hg.Graph("outer")
    inner.memset(inner.device_array("x", shape=4, dtype="i4"), 0, name="n")
    g.child(inner, name="c")
    with g.compile(runtime=recorder) as exe, pytest.raises(hg.DeclarationError, match=r"^node 'c/n': .*'many'") as caught:
        exe.set("c/n", value="many")
    assert caught.value.node == "c/n"
