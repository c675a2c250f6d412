"""Eager functions that raise, launch, wait for threads that launch, and are interrupted at any moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

MODULE = hg.Module('extern "C" __global__ void add(int* x, int a) { x[threadIdx.x] += a; }')


@pytest.fixture(params=HERE)
def device(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class _Special(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


class _Mute(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Base(BaseException):
    pass


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: KeyError("k"), lambda: _Special(1, 2), lambda: _Mute("x"), lambda: OSError(2, "gone"), lambda: StopIteration(3),
    lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), lambda: hg.DeclarationError("mine", node="other"),
    lambda: hg.HipError("hipMalloc", 2, "hipErrorOutOfMemory", "out of memory"), lambda: SystemExit(3),
    lambda: KeyboardInterrupt(), lambda: GeneratorExit(), lambda: _Base("b"),
)  # fmt: skip


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
def test_eager_function_may_raise_anything(device: Runtime, backend: Any, waits: bool, make: Callable[[], BaseException]) -> None:
    """Errors get the node's name; what ends a thread or a program passes as it is, and nothing waits then."""
    g = hg.Graph("raises")
    x, z, h = (*(g.device_array(name, np.zeros(4, "i4")) for name in "xz"), g.host_array("h", np.zeros(4, "i4")))
    errors = [make()]
    error = errors[0]

    def bad(stream: Any, _: Any) -> None:
        if errors:
            raise errors.pop()

    g.kernel(MODULE["add"], 1, 4, (x, 1), name="first")
    g.kernel(MODULE["add"], 1, 4, (z, 1), name="beside")
    g.memcpy(h, x, name="down")
    g.eager(bad, (h if waits else x,), name="bad", after=["down"])
    g.kernel(MODULE["add"], 1, 4, (x, 10), name="last", after=["bad"])
    with g.compile(device, backend) as exe:
        with pytest.raises(type(error)) as caught:
            exe.launch()
        if isinstance(error, Exception):
            raised: Any = caught.value
            assert raised.node == "bad"
            assert isinstance(raised, hg.HipError) or raised.__cause__ is error
            assert "'bad'" in str(raised)
            assert exe.done()
        else:
            assert caught.value is error
        assert exe.read("x")[0] == 1
        exe.run()
        assert exe.read("x")[0] == 12


def test_eager_functions_of_threads_that_launch_get_the_values_of_their_launch(device: Runtime, backend: Any) -> None:
    g = hg.Graph("shared")
    x, h, k = g.device_array("x", np.zeros(4, "i4")), g.host_array("h", np.zeros(4, "i4")), g.param("k", "int32", 1)
    seen: list[tuple[int, int]] = []

    def look(stream: Any, h: Any, k: int) -> None:
        seen.append((threading.get_ident(), int(k)))
        h += k

    g.eager(look, (h, k), name="look")
    g.memcpy(x, h)
    g.kernel(MODULE["add"], 1, 4, (x, k))
    g.memcpy(h, x)
    launched: list[tuple[int, int]] = []
    with g.compile(device, backend) as exe:

        def work(first: int) -> None:
            for number in range(first, first + 20):
                launched.append((threading.get_ident(), number))
                exe.launch(k=number)

        threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == sorted(launched)
        assert exe.read("h")[0] == 2 * sum(number for _, number in seen)


@pytest.mark.timeout(120)
def test_eager_function_launches_others_and_waits_for_threads_that_do(device: Runtime, backend: Any) -> None:
    inner, g = hg.Graph("inner"), hg.Graph("outer")
    inner.kernel(MODULE["add"], 1, 4, (inner.device_array("x", np.zeros(4, "i4")), 1))
    x = g.device_array("x", np.zeros(4, "i4"))
    with inner.compile(device, backend) as other:

        def several() -> None:
            for _ in range(5):
                other.run()

        def both(stream: Any, x: Any) -> None:
            thread = threading.Thread(target=several)
            thread.start()
            thread.join()
            other.run()

        g.kernel(MODULE["add"], 1, 4, (x, 1), name="first")
        g.eager(both, (x,), name="both")
        g.kernel(MODULE["add"], 1, 4, (x, 1), name="last")
        with g.compile(device, backend) as exe:
            exe.run()
            exe.run()
            assert exe.read("x")[0] == 4
        assert other.read("x")[0] == 12


_INTERRUPTED = """
import random, signal, sys, threading, time
import numpy as np
import hipgraphdsl as hg

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with SIGINT ignored
draw = random.Random(7)
module = hg.Module('''
extern "C" __global__ void add(int* x, int a) { x[threadIdx.x] += a; }
extern "C" __global__ void less(int* n) { if (*n > 0) *n -= 1; }''')
body = hg.Graph("body")
bx, n = body.device_array("x", shape=4, dtype="i4"), body.device_array("n", shape=1, dtype="i4")
body.kernel(module["add"], 1, 4, (bx, 1), name="add")
body.kernel(module["less"], 1, 1, (n,), name="less")
g = hg.Graph("g")
x, y, w = (g.device_array(name, np.zeros(4, "i4")) for name in "xyw")
h = g.host_array("h", np.zeros(4, "i4"))

def given(stream, h):
    time.sleep(0.0005)
    h[:] = 1

g.memset(x, 0, name="zero")
g.memset(w, 40, name="times")
g.host(lambda h: time.sleep(0.0005), (h,), name="call")
g.eager(given, (h,), name="eager")
g.memcpy(y, h, name="up")
g.conditional("while", w[0], body, bind={"x": x, "n": w[:1]}, decide="host", name="loop")

def fire(delay, fired):
    time.sleep(delay)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    fired.set()

with g.compile("cpu", sys.argv[1]) as exe:
    for _ in range(40):
        fired = threading.Event()
        thread = threading.Thread(target=fire, args=(draw.random() * 0.006, fired))
        try:
            thread.start()
            exe.launch()
            while not fired.is_set():
                time.sleep(0.0001)
            thread.join()
        except KeyboardInterrupt:
            pass
        thread.join()
        exe.run()
        assert exe.read("x").tolist() == [40] * 4, exe.read("x")
        assert exe.read("y").tolist() == [1] * 4, exe.read("y")
print("fine")
"""


@pytest.mark.skipif("cpu" not in HERE, reason="the CPU runtime is not there")
@pytest.mark.parametrize(
    "backend",
    ["explicit", pytest.param("capture", marks=pytest.mark.slow), "streams", pytest.param("serial", marks=pytest.mark.slow)],
)
def test_ctrl_c_at_any_moment_of_a_launch_in_segments_leaves_the_executable_usable(backend: str) -> None:
    command = [sys.executable, "-c", _INTERRUPTED, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "fine\n", done.stdout + done.stderr


# -- who is at fault, and what starts behind it --------------------------------------------------------------------------------

FAULTY = hg.Module(
    'extern "C" __global__ void culprit(int* x, int stop) { if (stop) __trap(); x[threadIdx.x] += 1; }', name="faulty"
)


def _body(x: Any) -> hg.Graph:
    body = hg.Graph("body")
    body.kernel(MODULE["add"], 1, 4, (body.param("y", "i4", shape=4), 5))
    return body


def _eager(g: hg.Graph, x: Any, h: Any) -> None:
    g.eager(lambda stream, _: None, (hg.reads(x),), name="step")


def _waits(g: hg.Graph, x: Any, h: Any) -> None:
    g.eager(lambda stream, _: None, (hg.reads(h),), name="step", after=["down"])


def _decides(g: hg.Graph, x: Any, h: Any) -> None:
    word = g.device_array("word", np.ones(1, "u4"))
    g.conditional("if", word, _body(x), bind={"y": x}, name="step", after=["down"], decide="host")


STEPS: tuple[Callable[[hg.Graph, Any, Any], None], ...] = (_eager, _waits, _decides)
"""Steps of the host, each named 'step', that follow a copy 'down' of x to h."""


@pytest.mark.parametrize("step", STEPS)
def test_fault_before_a_step_of_the_host_names_the_node_at_fault(backend: Any, step: Any) -> None:
    opened = hg.open_runtime("cpu")
    g = hg.Graph("faulty")
    x, y, h = (*(g.device_array(name, np.zeros(4, "i4")) for name in "xy"), g.host_array("h", np.zeros(4, "i4")))
    g.kernel(FAULTY["culprit"], 1, 4, (x, g.param("stop", "int32", 1)), name="culprit")
    g.memcpy(h, x, name="down")
    step(g, x, h)
    g.kernel(MODULE["add"], 1, 4, (y, 100), name="behind", after=["step"])
    with g.compile(opened, backend) as exe:
        for _ in range(2):
            with pytest.raises(hg.HipError, match=r"\(719\).*'culprit'") as caught:
                exe.run()
            assert caught.value.node == "culprit"
        assert exe.read("y").tolist() == [0] * 4
        exe.run(stop=0)
        assert exe.read("y").tolist() == [100] * 4


@pytest.mark.parametrize("mode", ["if", "while"])
def test_fault_in_a_body_that_the_host_decides_names_the_node_by_its_path(backend: Any, mode: Any) -> None:
    body = hg.Graph("body")
    body.kernel(FAULTY["culprit"], 1, 4, (body.param("y", "i4", shape=4), 1), name="culprit")
    g = hg.Graph("faulty")
    x, word = g.device_array("x", np.zeros(4, "i4")), g.device_array("word", np.ones(1, "u4"))
    g.conditional(mode, word, body, bind={"y": x}, name="step", decide="host")
    with g.compile("cpu", backend) as exe, pytest.raises(hg.HipError, match=r"\(719\)") as caught:
        exe.run()
    assert caught.value.node == "step/0/culprit"


@pytest.mark.parametrize("step", STEPS)
def test_fault_after_a_callback_has_raised_in_an_earlier_launch_names_the_node_at_fault(backend: Any, step: Any) -> None:
    g = hg.Graph("twice")
    x, h = g.device_array("x", np.zeros(4, "i4")), g.host_array("h", np.zeros(4, "i4"))
    raising = [True]

    def raises(_: Any) -> None:
        if raising[0]:
            raise ValueError

    g.host(raises, (h,), name="raises")
    g.memcpy(h, x, name="down")
    step(g, x, h)
    g.kernel(FAULTY["culprit"], 1, 4, (x, g.param("stop", "int32", 0)), name="culprit", after=["step"])
    with g.compile("cpu", backend) as exe:
        with pytest.raises(hg.CallbackError):
            exe.run()
        raising[0] = False
        exe.run()
        with pytest.raises(hg.HipError, match=r"\(719\)") as caught:
            exe.run(stop=1)
        assert caught.value.node == "culprit"


@pytest.mark.parametrize("place", ["", "part/"])
@pytest.mark.parametrize("profiles", [False, True])
@pytest.mark.parametrize("batched", ["explicit", "capture"])
def test_fault_of_one_of_several_nodes_that_share_a_launch_names_all_that_are_enabled(
    batched: Any, profiles: bool, place: str
) -> None:
    g = inner = hg.Graph("shared")
    for name in ("first", "second", "third", "fourth"):
        x = g.device_array(f"x_{name}", np.zeros(4, "i4"))
        g.kernel(FAULTY["culprit"], 1, 4, (x, g.param(f"stop_{name}", "int32", 0)), name=name)
    if place:
        g = hg.Graph("around")
        names = [f"stop_{name}" for name in ("first", "second", "third", "fourth")]
        g.child(inner, bind={name: g.param(name, "int32", 0) for name in names}, name="part")
    with g.compile("cpu", batched, batch=True) as exe:
        exe.disable(f"{place}first")
        names = [f"{place}{name}" for name in ("second", "third", "fourth")]
        said = rf"'{names[0]}' or one of .* share its launch: '{names[1]}', '{names[2]}'"
        with pytest.raises(hg.HipError, match=said) as caught:
            (exe.profile if profiles else exe.run)(stop_third=1)
        assert caught.value.node == names[0]


@pytest.mark.parametrize("step", STEPS)
def test_callback_that_raises_before_a_step_of_the_host_ends_the_launch(device: Runtime, backend: Any, step: Any) -> None:
    g = hg.Graph("stopped")
    x, y, h = (*(g.device_array(name, np.zeros(4, "i4")) for name in "xy"), g.host_array("h", np.zeros(4, "i4")))
    raising = [True]

    def check(values: Any) -> None:
        if raising:
            raise LookupError("bad values")

    g.memcpy(h, x, name="down")
    g.host(check, (h,), name="check")
    g.eager(lambda stream, _: None, (hg.reads(h),), name="waits")
    step(g, x, h)
    g.order("waits", "step")
    g.kernel(MODULE["add"], 1, 4, (y, 100), name="behind", after=["step"])
    with g.compile(device, backend) as exe:
        for _ in range(3):  # later launches are of recorded calls
            exe.launch()
            with pytest.raises(hg.CallbackError, match="host node 'check': LookupError: bad values"):
                exe.synchronize()
        assert exe.read("y").tolist() == [0] * 4
        raising.clear()
        exe.run()
        assert exe.read("y").tolist() == [100] * 4


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("step", [_waits, _decides])
def test_launch_that_times_out_names_the_step_that_waits_by_its_full_path(
    device: Runtime, backend: Any, step: Any, depth: int
) -> None:
    gate = threading.Event()
    g = hg.Graph("waits")
    x, h = g.device_array("x", np.zeros(4, "i4")), g.host_array("h", np.zeros(4, "i4"))
    g.host(lambda _: gate.wait(60), (h,), name="slow")
    g.memcpy(h, x, name="down")
    step(g, x, h)
    for level in range(depth):
        outer = hg.Graph(f"outer{level}")
        word = outer.device_array("word", np.ones(1, "u4"))
        outer.conditional("if", word, g, name="loop", decide="host")
        g = outer
    name = "loop/0/" * depth + ("slow" if backend == "serial" else "step")
    with g.compile(device, backend) as exe:
        try:
            with pytest.raises(hg.WaitTimeout, match=rf"not come past {name!r}") as caught:
                exe.launch(timeout_s=0.05)
        finally:
            gate.set()
        assert caught.value.unfinished[0] == name
        exe.synchronize()
