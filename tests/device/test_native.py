"""Compiled code does as Python does: it adds the same kernel nodes, waits, and launches in the right context."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.arrays import Access
from hipgraphdsl.backends.environment import Environment
from hipgraphdsl.backends.launch_calls import LaunchCalls
from hipgraphdsl.backends.operations import Launch
from hipgraphdsl.parts.fast.extension import native
from hipgraphdsl.parts.fast.formulas import Formula
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import GraphSteps, KernelAdder, Runtime
from hipgraphdsl.runtimes.data import LAUNCH_STREAM, ForeignCall, LaunchCall, NodeType

pytestmark = pytest.mark.skipif(native() is None, reason="no Python headers or no compiler: the extension module cannot be built")

SOURCE = r"""
struct Pair { int a; double b; };
extern "C" __global__ void scale(float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
extern "C" __global__ void mixed(const float* x, bool b, signed char c, short s, long long q, double d, __half h, float2 v,
                                 Pair p, unsigned char* out) { if (!b) out[0] = c + s + q + d + v.x + p.a + x[0]; }
"""


@pytest.fixture(name="runtime")
def cpu() -> Runtime:
    return open_runtime("cpu")


@pytest.fixture(scope="module")
def module() -> hg.Module:
    return hg.Module(SOURCE, structs={"Pair": np.dtype([("a", "i4"), ("b", "f8")], align=True)})


def workflow(module: hg.Module) -> hg.Graph:
    g = hg.Graph("all")
    x = g.device_array("x", np.arange(64, dtype="f4"))
    y, host = g.device_array("y", shape=64, dtype="f4"), g.host_array("h", shape=64, dtype="f4", pinned=True)
    out = g.device_array("out", shape=8, dtype="u1")
    a, n = g.param("a", "float32", 2.5), g.param("n", "int32", 8)
    blocks = g.param("blocks", "int32", 2)
    scale, mixed = module["scale"], module["mixed"]
    g.kernel(scale, 2, 32, (x, 2.0, 64), name="plain")
    g.kernel(scale, 2, 32, (x, a, n), name="by_parameter")
    g.kernel(scale, (blocks, 1, 1), 32, (x, a, 64), name="by_grid")
    g.kernel(scale, 1, (8, 4, 1), (x[8:40], 3, 32), name="interior", shared_bytes=1024)
    g.kernel(scale, 1, 32, (hg.updates(y[4:36]), a, 32), name="declared")
    g.kernel(mixed, 1, 1, (x, True, -3, 400, 2**40, 0.1, 0.5, (1.0, 2.0), (7, 0.25), out), name="mixed")
    g.memcpy(host, y, name="back")
    inner = hg.Graph("inner")
    z, b = inner.device_array("z", shape=64, dtype="f4"), inner.param("b", "float32", 1.5)
    inner.kernel(scale, 2, 32, (z, b, 64), name="inside")
    g.child(inner, bind={"z": y, "b": a}, name="child")
    g.kernel(scale, 2, 32, (y, 0.5, 64), name="last", cooperative=True)
    return g


def contents(exe: hg.Executable, runtime: Runtime) -> tuple[list[Any], list[Any]]:
    """Return what each node of a graph is, read back, and its edges by position."""
    nodes = exe._program.nodes  # type: ignore[union-attr]
    place = {node: i for i, node in enumerate(nodes)}
    found: list[Any] = []
    for node, operation in zip(nodes, exe._program.operations):  # type: ignore[union-attr]
        kind = runtime.graph_node_get_type(node)
        nothing: Any = None
        found.append((kind, operation._replace(packer=nothing, function=0) if isinstance(operation, Launch) else type(operation)))
        if kind is NodeType.KERNEL:
            params = runtime.graph_kernel_node_get_params(node)
            found.append((params.grid, params.block, params.shared_bytes))
    edges = sorted((place[a], place[b]) for a, b in runtime.graph_get_edges(exe.graph_handle))
    return found, edges


def build_again(exe: hg.Executable) -> None:
    exe._own.torn = True
    exe.prepared()


def test_compiled_code_and_python_build_the_same_graph(
    runtime: Runtime, module: hg.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    original = runtime.kernel_adder

    def watched(steps: GraphSteps) -> KernelAdder:
        made = original(steps)
        assert made is not None
        adder: KernelAdder = made

        class Watched:
            def add(self, first: int) -> int:
                index = adder.add(first)
                left.extend(step.name for step in steps.steps[index : index + 1])
                return index

        return Watched()

    monkeypatch.setattr(runtime, "kernel_adder", watched)
    with workflow(module).compile(runtime=runtime, backend="explicit", lanes=1) as exe:
        first = {name: exe.read(name) for name in ("x", "y", "h", "out")}

        def results() -> dict[str, bytes]:
            for name, values in first.items():
                exe.write(name, values)
            exe.run(a=0.5, n=8)
            exe.run(n=16)
            return {name: exe.read(name).tobytes() for name in first}

        # What needs a check, an attribute or another call is Python's; nothing else is.
        assert left == ["by_grid", "mixed", "back", "child", "inside", "last"]
        ours, values = contents(exe, runtime), results()
        monkeypatch.setattr(runtime, "kernel_adder", lambda *_: None)
        exe.launch(a=2.5, n=8)
        build_again(exe)
        assert contents(exe, runtime) == ours
        assert results() == values


def test_disabled_steps_are_left_to_python(runtime: Runtime, module: hg.Module) -> None:
    with workflow(module).compile(runtime=runtime, backend="explicit", lanes=1) as exe:
        exe.disable("back")
        exe.disable("plain")
        build_again(exe)
        exe.run()
        assert exe.read("x")[40:].tolist() == (np.arange(40, 64, dtype="f4") * 2.5).tolist()


def test_failing_call_names_the_node_and_the_error(runtime: Any, module: hg.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def add(out: int, graph: int, deps: int, count: int, params: int) -> int:
        called.append(count)
        return 801 if len(called) == 3 else int(runtime._hip.hipGraphAddKernelNode(out, graph, deps, count or 0, params))

    layout = runtime._kernel_node_layout()
    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(add)
    address = ctypes.cast(call, ctypes.c_void_p).value or 0
    monkeypatch.setattr(runtime, "_kernel_node_layout", lambda: address.to_bytes(8, sys.byteorder) + layout[8:])
    with pytest.raises(hg.HipError) as caught:
        workflow(module).compile(runtime=runtime, backend="explicit", lanes=1)
    assert (caught.value.api, caught.value.code, caught.value.node) == ("hipGraphAddKernelNode", 801, "interior")
    assert called == [None, 1, 1]


def test_replaced_method_sees_every_node(runtime: Runtime, module: hg.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = runtime.graph_add_kernel_node

    def seeing(*args: Any) -> int:
        seen.append(args)
        return original(*args)

    monkeypatch.setattr(runtime, "graph_add_kernel_node", seeing)
    with workflow(module).compile(runtime=runtime, backend="explicit"):
        assert len(seen) == 8


def test_building_again_and_again_keeps_nothing(runtime: Runtime, module: hg.Module) -> None:
    graph = workflow(module)
    kernel, array = module["scale"], graph.arrays["x"]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (kernel, array, array.as_view(), Launch, Access, ())]

    graph.compile(runtime=runtime).close()
    before = counts()
    for _ in range(20):
        graph.compile(runtime=runtime).close()
    after = counts()
    assert all(b <= a for a, b in zip(before[:-1], after[:-1])), (before, after)


@pytest.mark.parametrize(("answers", "last"), [((600, 600, 600, 0), 0), ((0,), 0), ((600, 719), 719)])
def test_waiting_asks_until_the_answer_is_another(answers: tuple[int, ...], last: int) -> None:
    left = list(answers)
    streams = []

    def answer(stream: int) -> int:
        streams.append(stream)
        return left.pop(0)

    query = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(answer)
    module: Any = native()
    assert module.wait(ctypes.cast(query, ctypes.c_void_p).value, 600, 0x1234, 60.0) == last
    assert left == []
    assert streams == [0x1234] * len(answers)


def test_waiting_ends_when_its_time_is_up_and_other_threads_run_meanwhile() -> None:
    def answer(_: int) -> int:
        return 600 if not ran else 0

    query = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(answer)
    ran: list[int] = []
    module: Any = native()
    address = ctypes.cast(query, ctypes.c_void_p).value
    assert module.wait(address, 600, 0, 0.0) == 600
    assert module.wait(address, 600, 0, 0.01) == 600
    threading.Timer(0.02, lambda: ran.append(1)).start()
    assert module.wait(address, 600, 0, 60.0) == 0


# -- what a launch of several graphs does ------------------------------------------------------------------------------


@pytest.fixture(params=["compiled", "python"])
def taken(request: pytest.FixtureRequest, runtime: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[LaunchCalls, Any]:
    """What compiled code does, or Python, and what it has called."""
    called: list[Any] = []

    def noting(name: str, count: int) -> Any:
        def note(*args: int) -> int:
            called.append((name, *args))
            return 719 if args[:1] == (0xBAD,) else 0

        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 2, *[ctypes.c_uint] * (count - 2))(note)

    for name, count in (("hipGraphLaunch", 2), ("hipEventRecord", 2), ("hipStreamWaitEvent", 3)):
        monkeypatch.setattr(runtime._hip, name, noting(name, count))
    if request.param == "python":
        monkeypatch.setattr(runtime, "launch_calls", lambda *_: None)
    return LaunchCalls(runtime), called


def test_launch_calls_are_made_in_order_on_the_stream_of_the_launch(taken: tuple[LaunchCalls, Any]) -> None:
    calls, called = taken
    calls.stream_wait_event(LAUNCH_STREAM, 0xE1)
    calls.graph_launch(0xA1, LAUNCH_STREAM)
    calls.add(LaunchCall(lambda stream: called.append(("function", stream)), (LAUNCH_STREAM,)))
    calls.graph_launch(0xA2, 0x51)
    calls.add(LaunchCall(lambda stream: called.append(("other", stream)), (0x51,)))
    calls.event_record(0xE1, LAUNCH_STREAM)
    for stream in (0x50, 2**63 + 8):
        called.clear()
        calls.run(stream)
        assert called == [
            ("hipStreamWaitEvent", stream, 0xE1, 0),
            ("hipGraphLaunch", 0xA1, stream),
            ("function", stream),
            ("hipGraphLaunch", 0xA2, 0x51),
            ("other", 0x51),
            ("hipEventRecord", 0xE1, stream),
        ]


def test_launch_calls_end_with_the_first_that_fails(taken: tuple[LaunchCalls, Any]) -> None:
    calls, called = taken
    fails = [True]

    def fail(stream: int) -> None:
        if fails:
            raise KeyError(stream)

    calls.graph_launch(0xA1, LAUNCH_STREAM)
    calls.add(LaunchCall(fail, (LAUNCH_STREAM,)))
    calls.graph_launch(0xA2, LAUNCH_STREAM)
    calls.event_record(0xBAD, LAUNCH_STREAM)
    calls.graph_launch(0xA3, LAUNCH_STREAM)
    with pytest.raises(KeyError, match=str(0x50)):
        calls.run(0x50)
    assert called == [("hipGraphLaunch", 0xA1, 0x50)]
    fails.clear()
    called.clear()
    with pytest.raises(hg.HipError) as caught:
        calls.run(0x50)
    assert (caught.value.api, caught.value.code) == ("hipEventRecord", 719)
    assert [call[:2] for call in called] == [("hipGraphLaunch", 0xA1), ("hipGraphLaunch", 0xA2), ("hipEventRecord", 0xBAD)]


def test_calls_of_other_libraries_are_made_among_them(taken: tuple[LaunchCalls, Any]) -> None:
    calls, called = taken

    def many(*args: int) -> int:
        called.append(args)
        return 7 if args[1] == 0xBAD else 0

    word, address = ctypes.c_uint64, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int, address, ctypes.c_size_t, *[ctypes.c_int] * 4, address, address)(many)
    none = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: called.append("none") or 0)
    stop, codes = ctypes.c_int32(), [0]
    failed = codes.append
    calls.graph_launch(0xA1, LAUNCH_STREAM)
    calls.add(LaunchCall(ForeignCall(none, failed, ctypes.addressof(stop)), ()))
    calls.add(LaunchCall(ForeignCall(function, failed), (2**63 + 8, 2**40, 1, 2, 3, -4 % 2**32, 0x7000, LAUNCH_STREAM)))
    calls.event_record(0xE1, LAUNCH_STREAM)
    calls.run(0x50)
    whole = [
        ("hipGraphLaunch", 0xA1, 0x50),
        "none",
        (2**63 + 8, 2**40, 1, 2, 3, -4, 0x7000, 0x50),
        ("hipEventRecord", 0xE1, 0x50),
    ]
    assert (called, codes) == (whole, [0])
    stop.value = 1
    called.clear()
    compiled = calls.compiled
    if compiled is None:
        calls.run(0x50)
        assert codes == [0, -1]
        return
    calls.run(0x50)
    assert (called, codes) == (whole[:1], [0, -1])
    called.clear()
    assert compiled.entry is not None
    run, given = compiled.entry
    entry = ctypes.CFUNCTYPE(ctypes.c_int, word, word)(run)
    assert entry(given, 0x51) == -1
    compiled.failed(-1)
    assert codes == [0, -1, -1]
    stop.value = 0
    assert entry(given, 0x51) == 0
    assert called[1:] == [("hipGraphLaunch", 0xA1, 0x51), "none", (*whole[2][:-1], 0x51), ("hipEventRecord", 0xE1, 0x51)]


def test_calls_with_functions_of_the_host_have_no_entry(taken: tuple[LaunchCalls, Any]) -> None:
    calls, _ = taken
    calls.add(LaunchCall(print, (LAUNCH_STREAM,)))
    compiled = calls.compiled
    assert compiled is None or compiled.entry is None


def test_launch_calls_are_left_to_a_method_that_was_replaced(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []
    monkeypatch.setattr(runtime, "graph_launch", lambda graph, stream: launched.append(graph))
    calls = LaunchCalls(runtime)
    calls.graph_launch(0xA1, LAUNCH_STREAM)
    calls.run(0x50)
    assert launched == [0xA1]


# -- the launcher, and what is current -------------------------------------------------------------------------------------


class Driver:
    """A driver of C functions, which says what was called; `codes` are what calls answer, by name, one after the other."""

    def __init__(self, current: int, wide: bool = True) -> None:
        self.current = current
        self.calls: list[Any] = []
        self.codes: dict[str, list[int]] = {}
        word = ctypes.c_uint64 if wide else ctypes.c_int

        def get(address: int) -> int:
            word.from_address(address).value = self.current
            return self._answer("get", "get")

        def set_(wanted: int) -> int:
            code = self._answer("set", ("set", wanted))
            self.current = self.current if code else wanted
            return code

        def there(name: str) -> Any:
            return lambda *_: self._answer(name, (name, self.current))

        code, pointer = ctypes.c_int, ctypes.c_void_p
        self.functions = {
            "launch": ctypes.CFUNCTYPE(code, pointer, pointer)(there("launch")),
            "give": ctypes.CFUNCTYPE(code, pointer, pointer, pointer)(there("give")),
            "get": ctypes.CFUNCTYPE(code, pointer)(get),
            "set": ctypes.CFUNCTYPE(code, word)(set_),
            "query": ctypes.CFUNCTYPE(code, pointer)(there("query")),
            "clear": ctypes.CFUNCTYPE(code)(there("clear")),
        }

    def _answer(self, name: str, call: Any) -> int:
        self.calls.append(call)
        waiting = self.codes.get(name, [])
        return waiting.pop(0) if waiting else 0

    def launcher(self, home: int, asks: bool = True) -> Any:
        """Return a launcher of an executable whose context is `home`, with a parameter ``k``."""

        class Slow:
            def __call__(_, *args: Any, **kwargs: Any) -> None:  # noqa: N805
                self.calls.append("slow")

            def synchronize(_, *args: Any, **kwargs: Any) -> None:  # noqa: N805
                self.calls.append(("synchronize", *args, *kwargs))

            def wait_failed(_, code: int) -> None:  # noqa: N805
                self.calls.append(("wait_failed", code))

            def run(_, *args: Any) -> None:  # noqa: N805
                self.calls.append(("run", *args))

            def failed(_, code: int) -> None:  # noqa: N805
                raise ValueError(code)

        module: Any = native()
        made = module.Launcher(Slow())
        address = {name: ctypes.cast(function, ctypes.c_void_p).value for name, function in self.functions.items()}
        current = (address["get"], address["set"], home) if asks else (0, 0, 0)
        made.bind(address["launch"], address["give"], 16, 32, *current, address["query"], address["clear"])
        self.value = ctypes.create_string_buffer(4)
        made.slots([("k", "i", 4, bytes(4), [(ctypes.addressof(self.value), 48, 64, 16)], True, ())], self.value)
        made.ready = made.can_wait = True
        return made


def test_launch_changes_nothing_where_its_context_is_current() -> None:
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    launcher.launch()
    launcher.launch(k=5)
    assert driver.calls == ["get", ("launch", 7), "get", ("give", 7), ("launch", 7)]
    assert (launcher.launches, launcher.updates, driver.value.raw) == (2, 1, (5).to_bytes(4, sys.byteorder))


@pytest.mark.parametrize("before", [0, 9, 2**63 + 8])
def test_launch_makes_its_context_current_and_then_what_was_current(before: int) -> None:
    driver = Driver(current=before)
    launcher = driver.launcher(home=7)
    launcher.launch(k=5)
    assert driver.calls == ["get", ("set", 7), ("give", 7), ("launch", 7), ("set", before)]
    assert (driver.current, launcher.inside, launcher.launches) == (before, 0, 1)


def test_launch_goes_to_its_device_where_the_driver_counts_devices() -> None:
    driver = Driver(current=2, wide=False)
    driver.launcher(home=1).launch()
    assert driver.calls == ["get", ("set", 1), ("launch", 1), ("set", 2)]


def test_launch_asks_nothing_where_nothing_depends_on_it() -> None:
    driver = Driver(current=9)
    driver.launcher(home=7, asks=False).launch()
    assert driver.calls == [("launch", 9)]


@pytest.mark.parametrize("name", ["get", "set"])
def test_launch_takes_the_slow_path_where_its_context_cannot_be_made_current(name: str) -> None:
    driver = Driver(current=9)
    launcher = driver.launcher(home=7)
    driver.codes[name] = [709]
    launcher.launch()
    assert driver.calls[-1] == "slow"
    assert not any(call[0] == "launch" for call in driver.calls)
    assert (driver.current, launcher.launches) == (9, 0)


def test_launch_restores_what_was_current_where_a_call_fails() -> None:
    driver = Driver(current=9)
    launcher = driver.launcher(home=7)
    driver.codes["launch"] = [719]
    with pytest.raises(ValueError, match="719"):
        launcher.launch()
    assert driver.current == 9
    driver.codes["give"] = [1]
    launcher.launch(k=5)  # the slow path meets the same failure, and reports it
    assert driver.calls[-2:] == [("set", 9), "slow"]
    assert driver.current == 9


def test_launch_leaves_a_torn_graph_to_python() -> None:
    """A value that could be neither set nor set back: no thread launches the graph before Python has built another one."""
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    driver.codes["give"] = [1, 1]
    launcher.launch(k=5)
    assert (launcher.torn, launcher.ready, driver.calls[-1]) == (True, False, "slow")


@pytest.mark.parametrize("values", [{}, {"k": "no number"}])
def test_launch_says_where_what_was_current_cannot_be_restored(values: dict[str, Any]) -> None:
    driver = Driver(current=9)
    launcher = driver.launcher(home=7)
    driver.codes["set"] = [0, 709]
    with pytest.raises(ValueError, match="709"):
        launcher.launch(**values)


# -- programs that a Python function launches ------------------------------------------------------------------------------


def computing(driver: Driver) -> tuple[Any, Any]:
    """Return a launcher of ``a`` and ``b``, with a node of both and ``10 // a + b`` and one of ``b * b``, and its memory."""
    launcher = driver.launcher(home=7)
    memory = (ctypes.c_int * 4)(2, 3, 8, 9)
    a, b, both, square = (ctypes.addressof(memory) + 4 * k for k in range(4))
    graph, scope = hg.Graph("g"), Environment(cast("Any", SimpleNamespace(runtime=None)))
    parameters = [graph.param(name, "int32") for name in "ab"]
    formulas = []
    for expression in (10 // parameters[0] + parameters[1], parameters[1] * parameters[1]):
        made = Formula({(scope, parameter): number for number, parameter in enumerate(parameters)})
        made.push(expression, scope)
        formulas.append(("i", 4, made.packed()))
    first, second = (48, 64, 16), (49, 64, 16)
    of_both = both, *first, *formulas[0]
    uses = [[(a, *first), of_both], [(b, *first), of_both, (square, *second, *formulas[1])]]
    values = [value.to_bytes(4, sys.byteorder) for value in memory]
    launcher.slots([(name, "i", 4, value, used, True, ()) for name, value, used in zip("ab", values, uses)], memory)
    return launcher, memory


@pytest.mark.parametrize(
    ("values", "codes", "left", "gives"),
    [
        ({"a": 5}, [], [5, 3, 5, 9], 1),
        ({"a": 5, "b": 4}, [], [5, 4, 6, 16], 3),
        ({"b": 4}, [], [2, 4, 9, 16], 2),
        ({"b": 3}, [], [2, 3, 8, 9], 0),
        ({"a": 0}, [], None, 0),
        ({"b": 5, "a": 0}, [], None, 0),
        ({"a": 5, "b": 2**16}, [], None, 0),
        ({"a": 5, "b": 4}, [1], None, 2),
        ({"a": 5, "b": 4}, [0, 1], None, 4),
        ({"a": 5, "b": 4}, [0, 0, 1], None, 6),
        ({"b": 4}, [0, 1], None, 4),
    ],
)
@pytest.mark.parametrize("launches", [True, False])
def test_all_formulas_are_computed_before_anything_is_set(
    values: dict[str, int], codes: list[int], left: list[int] | None, gives: int, launches: bool
) -> None:
    driver = Driver(current=7)
    launcher, memory = computing(driver)
    driver.codes["give"] = [*codes]
    good = launcher.launch(**values) if launches else launcher.set(values)
    assert [*memory] == (left or [2, 3, 8, 9])
    assert sum(call[0] == "give" for call in driver.calls) == gives
    assert good is (None if launches else left is not None)
    assert not launches or ("slow" in driver.calls) is (left is None)
    assert not launcher.torn
    driver.calls.clear()
    launcher.launch(a=10, b=1)  # what was refused has left nothing behind
    assert ([*memory], "slow" in driver.calls) == ([10, 1, 2, 1], False)


def by_python(driver: Driver, function: Any, home: int = 7) -> tuple[Any, Any, Any]:
    """Return a launcher that launches by a function, and its two locks."""
    launcher, lock, outermost = driver.launcher(home), threading.RLock(), threading.Lock()
    launcher.python = (function, 32, lock.acquire, outermost.acquire, lock.release, outermost.release)
    return launcher, lock, outermost


@pytest.mark.parametrize("before", [0, 7, 9])
@pytest.mark.parametrize("leaves", [0, 7, 8])
@pytest.mark.parametrize("raises", [False, True])
def test_launch_by_python_is_in_its_context_and_restores_what_was_current(before: int, leaves: int, raises: bool) -> None:
    driver, found = Driver(current=before), []

    def function(stream: int) -> None:
        found.append((stream, driver.current, lock._is_owned(), outermost.locked()))
        driver.current = leaves
        if raises:
            raise KeyError(stream)

    launcher, lock, outermost = by_python(driver, function)
    for _ in range(2):
        with pytest.raises(KeyError, match="32") if raises else nullcontext():
            launcher.launch()
        assert (driver.current, lock._is_owned(), outermost.locked()) == (before, False, False)
    assert found == [(32, 7, True, True)] * 2
    assert (launcher.launches, launcher.pending, launcher.inside) == (0 if raises else 2, True, 0)
    assert not any(call[0] in ("launch", "slow") for call in driver.calls)


@pytest.mark.parametrize("taken", ["lock", "outermost", "both"])
def test_launch_by_python_takes_the_slow_path_where_it_would_have_to_wait(taken: str) -> None:
    driver = Driver(current=7)
    launcher, lock, outermost = by_python(driver, lambda stream: driver.calls.append("function"))
    ready, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock if taken != "outermost" else nullcontext(), outermost if taken != "lock" else nullcontext():
            ready.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(60)
    launcher.launch()
    assert driver.calls == ["slow"]
    over.set()
    thread.join()
    launcher.launch()
    assert [call for call in driver.calls if call != "get"] == ["slow", "function", ("set", 7)]


def test_launch_by_python_sets_values_first_and_leaves_other_arguments_to_the_slow_path() -> None:
    driver = Driver(current=7)
    launcher, _, _ = by_python(driver, lambda stream: driver.calls.append("function"))
    launcher.launch(k=5)
    assert driver.calls == ["get", ("give", 7), "function", ("set", 7)]
    assert (launcher.updates, driver.value.raw) == (1, (5).to_bytes(4, sys.byteorder))
    driver.calls.clear()
    launcher.launch(5)
    launcher.launch(timeout_s=1)
    driver.codes["give"] = [1]
    launcher.launch(k=6)
    launcher.slots([], None)
    launcher.launch(k=7)
    assert [call for call in driver.calls if call == "slow" or call[0] in ("launch", "function")] == ["slow"] * 4
    assert driver.value.raw == (5).to_bytes(4, sys.byteorder)


def test_launch_by_python_says_where_what_was_current_cannot_be_restored() -> None:
    driver = Driver(current=9)
    launcher, lock, outermost = by_python(driver, lambda stream: None)
    driver.codes["set"] = [0, 709]
    with pytest.raises(ValueError, match="709"):
        launcher.launch()
    assert (lock._is_owned(), outermost.locked()) == (False, False)


# -- the launcher's own waits ----------------------------------------------------------------------------------------------


def test_run_launches_and_asks_until_the_stream_has_finished() -> None:
    driver = Driver(current=9)
    launcher = driver.launcher(home=7)
    driver.codes["query"] = [600, 600]
    launcher.run(k=5)
    there = [("give", 7), ("launch", 7), ("set", 9), "get", ("set", 7), ("query", 7), ("query", 7), ("query", 7), ("clear", 7)]
    assert driver.calls == ["get", ("set", 7), *there, ("set", 9)]
    assert (launcher.pending, launcher.inside, launcher.launches) == (False, 0, 1)


def test_synchronize_asks_until_the_stream_has_finished() -> None:
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    launcher.launch()
    assert launcher.pending
    launcher.synchronize()
    assert driver.calls == ["get", ("launch", 7), "get", ("query", 7), ("clear", 7)]
    assert not launcher.pending


@pytest.mark.parametrize("code", [600, 719])
@pytest.mark.parametrize("call", ["run", "synchronize"])
def test_waits_that_take_long_or_fail_are_left_to_python(call: str, code: int) -> None:
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    driver.codes["query"] = [code] * 1_000_000
    getattr(launcher, call)()
    assert driver.calls[-2:] == [("clear", 7), ("synchronize",) if code == 600 else ("wait_failed", code)]
    assert launcher.pending == (call == "run")


@pytest.mark.parametrize("name", ["can_wait", "ready"])
def test_waits_are_left_to_python_where_there_is_more_to_wait_for(name: str) -> None:
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    setattr(launcher, name, False)
    launcher.synchronize()
    launcher.run()
    assert [call for call in driver.calls if call != "get"] == [
        ("synchronize",), "slow" if name == "ready" else ("launch", 7), ("synchronize",),
    ]  # fmt: skip


def test_arguments_of_waits_are_judged_by_python() -> None:
    driver = Driver(current=7)
    launcher = driver.launcher(home=7)
    launcher.synchronize(1.5)
    launcher.synchronize(timeout_s=1.5)
    launcher.run(3)
    assert driver.calls == [("synchronize", 1.5), ("synchronize", "timeout_s"), ("run", 3)]


def test_methods_that_were_looked_up_before_the_first_launch_are_compiled_codes_from_the_second_on(
    runtime: Runtime, module: hg.Module
) -> None:
    g = hg.Graph("early")
    x = g.device_array("x", np.ones(64, dtype="f4"))
    g.kernel(module["scale"], 2, 32, (x, g.param("a", "float32", 2.0), 64))
    with g.compile(runtime=runtime) as exe:
        launch, synchronize, run = exe.launch, exe.synchronize, exe.run
        launch(a=2.0)
        launcher = exe._own.compiled.launcher
        for made, (call, given) in enumerate(((launch, {}), (launch, {"a": 3.0}), (run, {}), (run, {"a": 0.5})), 1):
            call(**given)
            synchronize()
            assert launcher.launches == made
            assert launcher.can_wait
        launch(timeout_s=60)
        synchronize(60)
        assert launcher.launches == 4
        assert exe.read("x")[:2].tolist() == [9.0, 9.0]
