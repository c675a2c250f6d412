"""Programs that are not one graph: compiled code launches them as Python's methods do, whatever happens in between."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.parts.fast.extension import native
from hipgraphdsl.runtimes.data import CaptureMode

pytestmark = pytest.mark.skipif(native() is None, reason="no Python headers or no compiler: the extension module cannot be built")

BACKENDS = ["explicit", "capture", "streams", "serial"]
MODULE = hg.Module(r"""
extern "C" __global__ void add(int* x, int a) { x[threadIdx.x] = 3 * x[threadIdx.x] + a; }
extern "C" __global__ void culprit(int* stop) { if (*stop) __trap(); }
""")
INNER = hg.Graph("inner")
INNER.kernel(MODULE["add"], 1, 4, (INNER.device_array("x", np.zeros(4, "i4")), 1))


class World:
    """An Executable of two lanes with steps of the host between its kernels, and what they do next."""

    def __init__(self, backend: Any, *, host: bool, compiled: bool) -> None:
        self.log: list[Any] = []
        self.armed: list[Callable[[], object]] = []
        """What the next call of the eager step 'step' does."""
        self.fails: list[BaseException] = []
        """What the next call of the host node raises."""
        self.launching = 0
        self.number = 1
        self.by_compiled_code = 0
        self.host = host
        self.runtime = hg.open_runtime("cpu")
        self.graph = self.made("step")
        self.patched = pytest.MonkeyPatch()
        if not compiled:
            self.patched.setattr(self.runtime, "launcher", lambda slow: None)
            self.patched.setattr(self.runtime, "launch_calls", lambda calls: None)
        self.other = INNER.compile(self.runtime)
        self.exe = self.graph.compile(self.runtime, backend, lanes=None)

    def made(self, said: str, *, more: bool = False) -> hg.Graph:
        """Return the graph; its eager step logs what it gets, and `said`."""
        g = hg.Graph("cut")
        x, y, stop = (g.device_array(name, np.zeros(4, "i4")) for name in ("x", "y", "stop"))
        h, word = g.host_array("h", np.zeros(4, "i4")), g.device_array("word", np.ones(1, "u4"))
        k, r = g.param("k", "i4", 1), g.param("r", "i4", 2)
        g.kernel(MODULE["add"], 1, 4, (x, k), name="first")
        g.kernel(MODULE["culprit"], 1, 1, (stop,), name="culprit", after=["first"])
        g.eager(self.step, (hg.updates(x), said), name="step", after=["culprit"])
        g.kernel(MODULE["add"], 1, 4, (x, r), name="second")
        g.kernel(MODULE["add"], 1, 4, (y, r), name="beside")
        g.memcpy(h, x, name="down")
        if self.host:
            g.host(self.call, (h,), name="call")
        g.eager(lambda stream, h, k: self.log.append((int(h[0]), int(k))), (hg.reads(h), k), name="waits")
        body = hg.Graph("body")
        body.kernel(MODULE["add"], 1, 4, (body.param("z", "i4", shape=4), 7))
        g.kernel(MODULE["add"], 1, 4, (x, r), name="third", after=["waits"])
        g.conditional("if", word, body, bind={"z": y}, name="decided", decide="host")
        if more:
            g.kernel(MODULE["add"], 1, 4, (y, 11), name="more")
        return g

    def step(self, stream: Any, x: Any, said: str) -> None:
        here = threading.get_ident() == self.launching
        self.log.append((said, here, int(stream) != 0, x.ptr != 0, isinstance(self.exe.done(), bool)))
        while self.armed:
            self.armed.pop()()

    def call(self, h: Any) -> None:
        self.log.append(int(h[0]))
        if self.fails:
            raise self.fails.pop()

    def arm(self, action: Callable[[], object]) -> None:
        self.armed.append(action)
        self.exe.launch()

    def tell(self, call: Callable[[], object]) -> None:
        """Log how a call ends."""
        try:
            call()
        except BaseException as error:  # of every kind, Ctrl-C's too
            said = re.sub("0x[0-9a-f]+", "", str(error).partition(";")[0])  # what has not finished when a wait ends is chance
            self.log.append((type(error).__name__, said, getattr(error, "node", None), type(error.__cause__)))

    def do(self, action: str) -> None:
        self.launching = threading.get_ident()
        self.tell(lambda: ACTIONS[action](self))
        self.armed.clear()
        with suppress(hg.HipGraphError):
            self.exe.synchronize()
        stats = self.exe.stats
        self.log.append((action, stats.launches, stats.updates, *(self.exe.read(name).tolist() for name in ("x", "y", "h"))))

    def count(self) -> None:
        """Count the launches of compiled code before the Executable is replaced."""
        launcher = self.exe._own.compiled.launcher
        self.by_compiled_code += 0 if launcher is None else launcher.launches

    def close(self) -> None:
        self.exe.close()
        self.other.close()
        self.patched.undo()


def _raise(error: BaseException) -> None:
    raise error


def _value(world: World) -> None:
    world.number += 1
    world.exe.launch(k=world.number)


def _values(world: World) -> None:
    """Give values to kernels of several segments, one of them again; what waits sees both kinds."""
    for r in (world.number, world.number, world.number + 5):
        world.exe.launch(r=r)
    world.exe.launch(k=world.number + 1, r=world.number)


def _several(world: World) -> None:
    for _ in range(5):
        world.exe.launch()


def _on_a_stream(world: World) -> None:
    stream = world.runtime.stream_create()
    world.exe.launch(stream)
    world.exe.launch()
    world.exe.synchronize()
    world.runtime.stream_destroy(stream)


def _in_another_thread(world: World) -> None:
    """A thread cannot launch meanwhile, and one that may wait launches next."""
    done: list[threading.Thread] = []

    def ask() -> None:
        waits = threading.Thread(target=lambda: world.tell(lambda: world.exe.launch(timeout_s=0.01)))
        waits.start()
        waits.join()
        done.append(threading.Thread(target=world.exe.launch))
        done[0].start()

    world.arm(ask)
    done[0].join()


def _captured(world: World) -> None:
    stream = world.exe.stream
    world.runtime.stream_begin_capture(stream, CaptureMode.THREAD_LOCAL)
    try:
        world.tell(world.exe.launch)
        world.tell(world.exe.run)
    finally:
        world.runtime.graph_destroy(world.runtime.stream_end_capture(stream))


def _faulty(world: World) -> None:
    world.exe.write("stop", 1)
    for _ in range(2):
        world.tell(world.exe.run)
        world.tell(world.exe.synchronize)
    world.exe.write("stop", 0)


def _fails_on_the_host(world: World) -> None:
    world.fails.append(LookupError("no bread"))
    world.tell(world.exe.launch)
    world.tell(world.exe.synchronize)
    world.fails.clear()


def _replaced(world: World) -> None:
    clone = world.exe.clone()
    world.count()
    world.exe.close()
    world.exe = clone


def _refused(world: World, call: Callable[[], object]) -> None:
    world.arm(lambda: world.tell(call))


ACTIONS: dict[str, Callable[[World], object]] = {
    "launch": lambda world: world.exe.launch(),
    "run": lambda world: world.exe.run(),
    "several": _several,
    "value": _value,
    "values of kernels": _values,
    "the same value": lambda world: world.exe.launch(k=world.number),
    "on a stream": _on_a_stream,
    "launched in the step": lambda world: _refused(world, world.exe.launch),
    "run in the step": lambda world: _refused(world, world.exe.run),
    "read in the step": lambda world: _refused(world, lambda: world.exe.read("x")),
    "changed in the step": lambda world: _refused(world, lambda: world.exe.disable("second")),
    "closed in the step": lambda world: _refused(world, world.exe.close),
    "waited for in the step": lambda world: _refused(world, lambda: world.exe.synchronize(1)),
    "another in the step": lambda world: world.arm(world.other.run),
    "by another thread": _in_another_thread,
    "raises": lambda world: world.arm(lambda: _raise(ValueError("bad"))),
    "fails": lambda world: world.arm(lambda: _raise(hg.HipError("hipMalloc", 2, "hipErrorOutOfMemory", "no memory"))),
    "refuses": lambda world: world.arm(lambda: _raise(hg.DeclarationError("mine"))),
    "is interrupted": lambda world: world.arm(lambda: _raise(KeyboardInterrupt("now"))),
    "ends the process": lambda world: world.arm(lambda: _raise(SystemExit(3))),
    "captured": _captured,
    "faulty": _faulty,
    "fails on the host": _fails_on_the_host,
    "disabled": lambda world: world.exe.disable("step"),
    "enabled": lambda world: world.exe.enable("step"),
    "kernel set": lambda world: world.exe.set("second", a=world.number),
    "step set": lambda world: world.exe.set("step", args=(hg.updates(world.graph.arrays["x"]), "set")),
    "updated": lambda world: world.exe.update(world.made("updated")),
    "rebuilt": lambda world: world.exe.update(world.made("rebuilt", more=True), rebuild=True),
    "replaced": _replaced,
    "profiled": lambda world: world.exe.profile(),
    "parameters": lambda world: world.log.append(world.exe.parameters),
    "a bad keyword": lambda world: world.exe.launch(none=1),
    "a bad limit": lambda world: world.exe.launch(timeout_s=-1),
}


def story(backend: Any, actions: Sequence[str], *, host: bool, compiled: bool) -> tuple[list[Any], int]:
    """Do these actions; return the log, and how many launches were compiled code's."""
    world = World(backend, host=host, compiled=compiled)
    try:
        for action in actions:
            world.do(action)
        world.count()
        return world.log, world.by_compiled_code
    finally:
        world.close()


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("action", ACTIONS)
def test_program_that_is_not_one_graph_is_launched_by_compiled_code_as_by_python(backend: Any, action: str, host: bool) -> None:
    actions = ("run", "run", action, "run", "several", action, "run", "run")
    found, launches = story(backend, actions, host=host, compiled=True)
    wanted, none = story(backend, actions, host=host, compiled=False)
    assert found == wanted
    assert launches >= 4
    assert none == 0


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15)
@given(actions=st.lists(st.sampled_from(list(ACTIONS)), min_size=2, max_size=10), host=st.booleans())
def test_any_life_of_a_program_that_is_not_one_graph_is_the_same_by_compiled_code(
    backend: Any, actions: list[str], host: bool
) -> None:
    made = [story(backend, actions, host=host, compiled=compiled)[0] for compiled in (True, False)]
    assert made[0] == made[1]
