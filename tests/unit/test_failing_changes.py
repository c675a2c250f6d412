"""Calls of HIP that fail while an Executable is changed: it is then as before, and goes on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

SOURCE = r"""
extern "C" __global__ void mix(int* y, const int* x, int a, int b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 8) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + 100u * a + b);
}
"""
CHANGING = ("graph_exec_", "graph_add_", "graph_node_set", "graph_instantiate", "graph_create", "stream_begin", "stream_end")
FIRST: dict[str, Any] = {"a": 1, "b": 2, "blocks": 1, "q": "x"}
SECOND: dict[str, Any] = {"a": 3, "b": -4, "blocks": 2, "q": "y"}


class Faults:
    """Which of the calls that change a graph fail: those in `wanted`, counted from 1 since `arm`."""

    def __init__(self) -> None:
        self.wanted: Callable[[int], bool] | None = None
        self.count = 0
        self.failed = 0

    def arm(self, wanted: Callable[[int], bool]) -> None:
        self.wanted, self.count, self.failed = wanted, 0, 0

    def disarm(self) -> int:
        """Return how many calls have failed."""
        self.wanted = None
        return self.failed

    def now(self) -> bool:
        self.count += 1
        fails = self.wanted is not None and self.wanted(self.count)
        self.failed += fails
        return fails


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def runtime(faults: Faults) -> Runtime:
    """A CPU runtime whose calls fail where `faults` says."""
    opened = runtime_or_skip("cpu")
    set_ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    launch, real = opened.launch_addresses()
    call = set_(real)
    failing_set = set_(lambda *args: 1 if faults.now() else call(*args))

    class Failing(type(opened)):  # type: ignore[misc]  # whichever class the runtime has
        def launch_addresses(self) -> tuple[int, int]:
            return launch, ctypes.cast(failing_set, ctypes.c_void_p).value or 0

    def fails(name: str, method: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if faults.now():
                raise hg.HipError("hip" + name.title().replace("_", ""), 1, "hipErrorInvalidValue", "made to fail")
            return method(self, *args, **kwargs)

        return call

    for name in dir(Failing):
        if name.startswith(CHANGING) and not name.endswith(("destroy", "unfinished", "abort", "profile", "times")):
            setattr(Failing, name, fails(name, getattr(Failing, name)))
    return Failing()


def graph(parameters: Any = FIRST) -> hg.Graph:
    """Each parameter is used by several nodes of several kinds."""
    mix = hg.Module(SOURCE, name="failing")["mix"]
    g = hg.Graph("changing")
    x, y, z = (g.device_array(name, np.arange(8, dtype="i4") + i) for i, name in enumerate("xyz"))
    h = g.host_array("h", np.zeros(8, "i4"))
    a, b = g.param("a", "int32", parameters["a"]), g.param("b", "int32", parameters["b"])
    blocks, q = g.param("blocks", "uint32", parameters["blocks"]), g.param("q", "int32", parameters["q"], shape=8)
    g.kernel(mix, 2, 4, (z, x, a, b), name="both")
    g.kernel(mix, blocks, 4, (z, hg.reads(q), 0, 1), name="sized")
    g.kernel(mix, 2, 4, (z, y, b, a), name="crossed")
    g.memset(z[:2], b, name="fill")
    g.memcpy(h, z, name="out")
    g.host(added, args=(h, a), name="call")
    g.memcpy(z[4:], q[4:], name="in")
    return g


def added(h: Any, a: int) -> None:
    h += a


def launcher_graph() -> hg.Graph:
    """Parameters that only kernel arguments use, so that the compiled call path sets them."""
    mix = hg.Module(SOURCE, name="failing")["mix"]
    g = hg.Graph("changing")
    x, y, z = (g.device_array(name, np.arange(8, dtype="i4") + i) for i, name in enumerate("xyz"))
    a, b = g.param("a", "int32", 1), g.param("b", "int32", 2)
    for i, source in enumerate((x, y, x)):
        g.kernel(mix, 2, 4, (z, source, a, b), name=f"k{i}")
    return g


def mixed_graph() -> hg.Graph:
    """The same, with a parameter that only a memset uses, which the compiled call path does not set."""
    g = launcher_graph()
    g.memset(g.arrays["z"][:2], g.param("c", "int32", 3), name="fill")
    return g


def values(exe: hg.Executable) -> dict[str, list[int]]:
    return {name: exe.read(name).tolist() for name in exe.workflow.arrays}


def expected(make: Callable[[], hg.Graph], start: dict[str, list[int]], change: Callable[[Any], None], given: Any) -> Any:
    """Return what one launch does of a new graph that is changed like that."""
    with make().compile(runtime="cpu", backend="serial") as exe:
        change(exe)
        for name, known in start.items():
            exe.write(name, known)
        exe.run(**given)
        return values(exe)


WAYS: dict[str, Callable[[int], Callable[[int], bool]]] = {
    "one call": lambda n: lambda k: k == n,
    "the call and the next": lambda n: lambda k: k in (n, n + 1),
    "the call and the next but one": lambda n: lambda k: k in (n, n + 2),
    "all calls from then on": lambda n: lambda k: k >= n,
}


def nothing(exe: hg.Executable) -> None:
    pass


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_update_rebuilds_where_the_kth_call_in_place_fails(runtime: Runtime, faults: Faults, backend: Any) -> None:
    failed = rebuilt = 0
    for n in range(1, 100):
        with graph().compile(runtime=runtime, backend=backend) as exe:
            exe.run()
            start = values(exe)
            faults.arm(WAYS["one call"](n))
            exe.update(graph(SECOND), rebuild=True)
            failed = faults.disarm()
            rebuilt += exe.stats.instantiations > 1
            exe.run()
            assert values(exe) == expected(lambda: graph(SECOND), start, nothing, {}), f"call {n} failed"
        if not failed:
            break
    assert not failed
    assert rebuilt == n - 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_a_launch_whose_kth_set_fails_leaves_the_graph_as_it_was(
    runtime: Runtime, faults: Faults, backend: Any, way: str
) -> None:
    failed = 0
    with graph().compile(runtime=runtime, backend=backend) as exe:
        exe.run(**FIRST)
        for n in range(1, 100):
            start = values(exe)
            faults.arm(WAYS[way](n))
            try:
                exe.launch(**SECOND)
                raised = False
            except hg.HipError:
                raised = True
            failed = faults.disarm()
            if not failed:
                break
            now = FIRST if raised else SECOND
            exe.synchronize()
            assert exe.parameters == {name: value for name, value in now.items() if name != "q"}
            if raised:
                assert values(exe) == start
                exe.run()
            assert values(exe) == expected(graph, start, nothing, now), f"call {n} failed"
            start = values(exe)
            exe.run(**SECOND)
            assert values(exe) == expected(graph, start, nothing, SECOND), f"call {n} had failed"
            exe.run(**FIRST)
    assert not failed
    assert n > 5


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_a_launch_that_fails_again_while_it_builds_leaves_parameters_as_they_were(
    runtime: Runtime, faults: Faults, backend: Any, pack: bool
) -> None:
    def make() -> hg.Graph:
        g = graph()
        t = g.alloc("t", shape=8, dtype="i4")
        g.memset(t, 3, name="set_t")
        g.kernel(hg.Module(SOURCE, name="failing")["mix"], 2, 4, (g.arrays["z"], t, 1, 0), name="last")
        g.free(t)
        return g

    def values(exe: hg.Executable) -> dict[str, list[int]]:
        return {name: exe.read(name).tolist() for name in "xyzh"}

    with (
        make().compile(runtime=runtime, backend=backend, plan=hg.PlanOptions(pack=pack)) as exe,
        make().compile(runtime="cpu", backend="serial") as right,
    ):
        exe.run(**FIRST)
        for _ in range(2):  # the first leaves a graph that must be built again
            faults.arm(lambda _: True)
            with pytest.raises(hg.HipError):
                exe.launch(**SECOND)
            assert faults.disarm()
        for name, known in values(exe).items():
            right.write(name, known)
        exe.run()
        right.run()
        assert values(exe) == values(right)


def change(exe: hg.Executable) -> None:
    arrays, parameters = exe.workflow.arrays, exe.workflow.parameters
    exe.set("both", args=(arrays["z"], arrays["x"], 9, parameters["b"]), grid=1)
    exe.set("fill", value=5)
    exe.disable("crossed")
    exe.set("out", src=arrays["x"])
    exe.disable("in")
    exe.set("call", args=(arrays["h"], 7))
    exe.enable("crossed")


def change_back(exe: hg.Executable) -> None:
    arrays, parameters = exe.workflow.arrays, exe.workflow.parameters
    exe.set("both", args=(arrays["z"], arrays["x"], parameters["a"], parameters["b"]), grid=2)
    exe.set("fill", value=parameters["b"])
    exe.set("out", src=arrays["z"])
    exe.enable("in")
    exe.set("call", args=(arrays["h"], parameters["a"]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_changes_that_fail_half_way_can_be_made_again(runtime: Runtime, faults: Faults, backend: Any, way: str) -> None:
    with graph().compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        for n in range(1, 200):
            faults.arm(WAYS[way](n))
            try:
                change(exe)
            except hg.HipError:
                faults.disarm()
                change_back(exe)
                exe.enable("crossed")
                start = values(exe)
                exe.run()
                assert values(exe) == expected(graph, start, nothing, FIRST), f"call {n} failed"
                change(exe)
            failed = faults.disarm()
            start = values(exe)
            exe.run()
            assert values(exe) == expected(graph, start, change, FIRST), f"call {n} had failed"
            change_back(exe)
            if not failed:
                break
    assert not failed
    assert n > 5


@pytest.mark.needs("fast")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [launcher_graph, mixed_graph])
def test_the_compiled_path_sets_back_what_it_had_set(
    runtime: Runtime, faults: Faults, make: Callable[[], hg.Graph], way: str
) -> None:
    from hipgraphdsl.parts import fast as native

    if native.native() is None:
        pytest.skip("no compiled call path: no Python headers or no compiler")
    with make().compile(runtime=runtime) as exe:
        old = exe.parameters
        new = {name: value + 4 for name, value in old.items()}
        exe.run(**new)
        exe.run(**old)
        for n in range(1, 40):
            start = values(exe)
            faults.arm(WAYS[way](n))
            try:
                exe.launch(**new)
                now = new
            except hg.HipError:
                now = old
            failed = faults.disarm()
            assert exe.parameters == now
            exe.synchronize()
            if now is old:
                assert values(exe) == start
                exe.run()
            assert values(exe) == expected(make, start, nothing, now), f"call {n} failed"
            start = values(exe)
            exe.run(b=new["b"])
            assert values(exe) == expected(make, start, nothing, {**now, "b": new["b"]}), f"call {n} had failed"
            exe.run(**old)
            if not failed:
                break
    assert not failed
    assert n > 5
