"""Workflows that no single graph can hold: eager nodes, and conditional nodes that the host decides."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import HERE
from property.programs import blocks, declared
from property.strategies import earlier, sampled_from

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.plan.segments import segments
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import MemcpyKind
from hipgraphdsl.target import Target

N = 64
SOURCE = r"""
extern "C" __global__ void add(int* x, int a) { x[blockIdx.x * blockDim.x + threadIdx.x] += a; }
extern "C" __global__ void less(int* n) { if (*n > 0) *n -= 1; }
"""
MODULE = hg.Module(SOURCE)
BACKENDS = ["explicit", "capture", "streams", "serial"]


@pytest.fixture(params=HERE)
def device(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def added(g: hg.Graph, x: Any, a: Any = 1, name: str = "add") -> None:
    g.kernel(MODULE["add"], 1, N, (x, a), name=name)


def numbers(g: hg.Graph, name: str, **more: Any) -> Any:
    return g.device_array(name, np.zeros(N, "i4"), **more)


# -- eager nodes -------------------------------------------------------------------------------------------------------


def test_eager_is_called_with_what_the_launch_has_bound(device: Runtime, backend: Any) -> None:
    g = hg.Graph("values")
    x, h, k = numbers(g, "x"), g.host_array("h", shape=N, dtype="i4"), g.param("k", "int32", 2)
    seen: list[Any] = []

    def look(stream: Any, x: Any, h: Any, k: Any, word: str) -> None:
        seen.append((int(h[0]), int(k), word, threading.get_ident(), int(stream) != 0, x.ptr != 0, x.shape))
        h += 1

    added(g, x, k)
    g.memcpy(h, x)
    g.eager(look, (hg.reads(x), h, k, "said"), name="look")
    with g.compile(runtime=device, backend=backend) as exe:
        exe.run()
        exe.run(k=5)
        me = threading.get_ident()
        assert seen == [(2, 2, "said", me, True, True, (N,)), (7, 5, "said", me, True, True, (N,))]
        assert exe.read("h")[0] == 8


@pytest.mark.parametrize("inside", [False, True])
def test_eager_takes_what_a_parameter_stands_for_as_if_it_were_given_that(device: Runtime, backend: Any, inside: bool) -> None:
    g = hg.Graph("standing")
    h, _ = g.host_array("h", np.zeros(N, "i4")), numbers(g, "x")
    p, c = g.param("p", "i4", h, shape=N), g.param("c", "i4", np.zeros(N, "i4"), shape=N, copy=True)
    held = hg.Graph("held") if inside else g
    q, d = (held.param(name, "i4", shape=N) for name in "qd") if inside else (p, c)
    came: list[str] = []

    def hold() -> None:
        time.sleep(0.02)
        came.append("held")

    def look(stream: Any, of: str, *arrays: Any) -> None:
        came.append(f"{of} {' '.join(type(array).__name__ for array in arrays)}")

    held.host(hold, name="hold")
    held.eager(look, ("p", q), reads=[q], writes=[], name="look", after=["hold"])
    held.host(hold, name="hold again", after=["look"])
    held.eager(look, ("c", d), reads=[d], writes=[], name="look at copy", after=["hold again"])
    if inside:
        g.child(held, {"q": p, "d": c})
    with g.compile(runtime=device, backend=backend) as exe:
        # What the step waits for changes with each launch.
        for kind, given in (
            ("ndarray", {}),
            ("CapturedArray", {"p": "x"}),
            ("ndarray", {"p": np.zeros(N, "i4")}),
            ("CapturedArray", {"p": "x"}),
            ("ndarray", {"p": "h", "c": 3}),
        ):
            came.clear()
            exe.run(**given)
            if kind == "CapturedArray":
                assert sorted(came) == ["c ndarray", "held", "held", "p CapturedArray"]
                assert came[-1] == "c ndarray"
            else:
                assert came == ["held", "p ndarray", "held", "c ndarray"]


def test_eager_exception_is_raised_by_launch_and_nothing_after_it_starts(device: Runtime, backend: Any) -> None:
    g = hg.Graph("fails")
    x, y, h = numbers(g, "x"), numbers(g, "y"), g.host_array("h", np.zeros(N, "i4"))
    fails = [True]

    class Missing(ValueError):
        pass

    def look(stream: Any, h: Any) -> None:
        if fails[0]:
            raise Missing("no bread")

    added(g, x, name="first")
    g.memcpy(h, x, name="down")
    g.eager(look, (h,), name="look")
    g.memcpy(y, h, name="up")
    added(g, y, name="last")
    with g.compile(runtime=device, backend=backend) as exe:
        with pytest.raises(hg.CallbackError, match="eager node 'look': Missing: no bread") as caught:
            exe.launch()
        assert isinstance(caught.value, Missing)
        assert caught.value.node == "look"
        assert exe.done()
        assert exe.read("x")[0] == 1
        assert exe.read("y")[0] == 0
        fails[0] = False
        exe.run()
        assert exe.read("y")[0] == 3


def test_eager_interrupted_leaves_the_executable_usable(device: Runtime, backend: Any) -> None:
    g = hg.Graph("interrupted")
    x = numbers(g, "x")
    interrupts = [True]

    def look(stream: Any) -> None:
        if interrupts.pop() if interrupts else False:
            raise KeyboardInterrupt

    added(g, x, name="first")
    g.eager(look, name="look", after=["first"])
    g.kernel(MODULE["add"], 1, N, (x, 10), name="last", after=["look"])
    with g.compile(runtime=device, backend=backend) as exe:
        with pytest.raises(KeyboardInterrupt):
            exe.launch()
        assert exe.read("x")[0] == 1
        exe.run()
        assert exe.read("x")[0] == 12


def test_eager_refuses_methods_of_the_executable_that_calls_it(device: Runtime, backend: Any) -> None:
    other = hg.Graph("other")
    added(other, numbers(other, "x"))
    g = hg.Graph("own")
    refused: list[str] = []

    def look(stream: Any) -> None:
        inner.run()  # another one may be used
        for call in (exe.launch, exe.synchronize, lambda: exe.read("x"), exe.close, lambda: exe.disable("look")):
            with pytest.raises(hg.HipGraphError, match="eager node 'look' calls it for graph 'own'") as caught:
                call()
            refused.append(str(caught.value).partition(":")[0])

    numbers(g, "x")
    g.eager(look, name="look")
    with other.compile(runtime=device) as inner, g.compile(runtime=device, backend=backend) as exe:
        exe.run()
        assert inner.read("x")[0] == 1
    assert refused == ["launch", "synchronize", "read", "close", "disable"]


def test_eager_waits_only_for_what_it_needs(device: Runtime) -> None:
    """A branch that is held up until the eager step has run holds up neither the step nor what the step needs."""
    g = hg.Graph("beside")
    x, h, other = numbers(g, "x"), g.host_array("h", shape=N, dtype="i4"), g.host_array("other", np.zeros(1, "i4"))
    gate = threading.Event()
    came: list[int] = []

    def look(stream: Any, h: Any) -> None:
        came.append(int(h[0]))
        gate.set()

    g.host(lambda other: came.append(-1) if gate.wait(30) else came.append(-2), (other,), name="held")
    added(g, x)
    g.memcpy(h, x, name="down")
    g.eager(look, (h,), name="look")
    g.memcpy(x, h, name="up")
    for backend in ("explicit", "capture", "streams"):
        came.clear()
        gate.clear()
        with g.compile(runtime=device, backend=backend) as exe:
            exe.run()
        assert came == [1, -1]


def test_eager_without_host_memory_waits_for_nothing(device: Runtime) -> None:
    """It is called while the nodes before it have not finished, and what it puts on the stream follows them."""
    g = hg.Graph("ahead")
    x, h = numbers(g, "x"), g.host_array("h", np.zeros(1, "i4"))
    gate = threading.Event()

    def double(stream: Any, x: Any) -> None:
        stream.runtime.memcpy_async(y_pointer[0], x.ptr, x.nbytes, 4, int(stream))
        gate.set()

    y = numbers(g, "y")
    g.host(lambda h: gate.wait(30), (h,), name="held")
    g.kernel(MODULE["add"], 1, N, (x, 4), name="add", after=["held"])
    g.eager(double, (x,), reads=[x], writes=[y], name="double")
    g.kernel(MODULE["add"], 1, N, (y, 1), name="last")
    y_pointer = [0]
    for backend in ("explicit", "capture", "streams"):
        gate.clear()
        with g.compile(runtime=device, backend=backend) as exe:
            y_pointer[0] = exe.array("y").ptr
            exe.run()
            assert exe.read("y")[0] == 5


def test_launch_timeout_names_the_node_that_waits(device: Runtime, backend: Any) -> None:
    g = hg.Graph("held")
    x, h = numbers(g, "x"), g.host_array("h", np.zeros(N, "i4"))
    gate = threading.Event()
    g.host(lambda h: gate.wait(30), (h,), name="gate")
    g.eager(lambda stream, h: None, (h,), name="look")
    g.memcpy(x, h, name="up")
    with g.compile(runtime=device, backend=backend) as exe:
        with pytest.raises(hg.WaitTimeout) as caught:
            exe.launch(timeout_s=0.05)
        waited_for = "gate" if backend == "serial" else "look"  # serial waits for each node
        assert waited_for in caught.value.unfinished
        assert f"has not come past '{waited_for}'" in str(caught.value)
        if device.name == "cpu" and backend in ("explicit", "capture"):  # which know what has not finished without watch=True
            assert caught.value.unfinished == ("look", "gate")
            assert "not finished: 'gate'" in str(caught.value)
        gate.set()
        exe.synchronize()
        exe.run()


def test_launch_waits_only_by_calls_that_ctrl_c_and_a_limit_can_end(backend: Any) -> None:
    recorder, g = RecorderRuntime(), hg.Graph("waits")
    x, h = numbers(g, "x"), g.host_array("h", np.zeros(N, "i4"))
    added(g, x)
    g.memcpy(h, x)
    g.eager(lambda stream, h: None, (h,))
    added(g, x, name="again")
    with g.compile(runtime=recorder, backend=backend) as exe:
        for _ in range(3):
            recorder.clear()
            exe.launch(timeout_s=30)
            assert "hipStreamQuery" in recorder.apis()
            assert not {"hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize"} & set(recorder.apis())


def test_failed_callback_keeps_eager_nodes_behind_it_from_being_called(device: Runtime, backend: Any) -> None:
    g = hg.Graph("callback")
    h = g.host_array("h", np.zeros(N, "i4"))
    called: list[str] = []
    fails = [True]

    def check(h: Any) -> None:
        if fails[0]:
            raise ValueError("bad")

    g.host(check, (h,), name="check")
    g.eager(lambda stream, h: called.append("eager"), (h,), name="look")
    with g.compile(runtime=device, backend=backend) as exe:
        exe.launch()
        with pytest.raises(ValueError, match="host node 'check'"):
            exe.synchronize()
        assert called == []
        fails[0] = False
        exe.run()
        assert called == ["eager"]


def test_failed_callback_keeps_the_next_launch_from_calling_eager_nodes_that_do_not_wait(device: Runtime, backend: Any) -> None:
    g = hg.Graph("callback")
    x, h = numbers(g, "x"), g.host_array("h", np.zeros(N, "i4"))
    called: list[str] = []
    fails = [False]

    def check(h: Any) -> None:
        if fails[0]:
            raise ValueError("bad")

    g.host(check, (h,), name="check")
    g.memcpy(x, h, name="up")
    g.eager(lambda stream, x: called.append("eager"), (x,), name="look")
    with g.compile(runtime=device, backend=backend) as exe:
        for _ in range(2):  # from the second launch on the calls of the first are repeated
            exe.run()
        fails[0] = True
        exe.launch()
        while not exe.done():
            time.sleep(1e-3)
        before = len(called)
        exe.launch()
        assert len(called) == before
        with pytest.raises(ValueError, match="host node 'check'"):
            exe.synchronize()


def held(gate: threading.Event, came: list[str], *, eager: bool) -> hg.Graph:
    """Return a graph that adds to numbers and says what came, and whose end waits for a gate."""
    g = hg.Graph("held")
    x, h = numbers(g, "x"), g.host_array("h", shape=N, dtype="i4")
    added(g, x)
    g.memcpy(h, x, name="down")
    if eager:
        g.eager(lambda stream, h: came.append(f"eager {h[0]}"), (h,), name="look")
    g.host(lambda h: gate.wait(30), (h,), name="held")
    g.host(lambda h: came.append(f"end {h[0]}"), (h,), name="end")
    return g


def test_launches_on_different_streams_follow_each_other(device: Runtime, backend: Any) -> None:
    """As those of one graph do: the second does not begin while the last segment of the first runs."""
    gate = threading.Event()
    came: list[str] = []
    with held(gate, came, eager=True).compile(runtime=device, backend=backend) as exe:
        streams = [device.stream_create() for _ in range(2)]
        threading.Timer(0.3, gate.set).start()
        for stream in (*streams, streams[0], None, 0, None, 0, streams[1]):
            exe.launch(stream=stream)
        exe.synchronize()
        for stream in streams:
            device.stream_destroy(stream)
    assert came == [f"{what} {n}" for n in range(1, 9) for what in ("eager", "end")]


def test_launches_before_and_after_the_null_stream_follow_each_other(device: Runtime) -> None:
    gate = threading.Event()
    came: list[str] = []
    with held(gate, came, eager=False).compile(runtime=device, backend="streams") as exe:
        threading.Timer(0.3, gate.set).start()
        for stream in (0, None, 0, None):
            exe.launch(stream=stream)
        exe.synchronize()
    assert came == [f"end {n}" for n in range(1, 5)]


def test_child_that_is_disabled_stays_so_when_update_builds_it_afresh(device: Runtime, backend: Any) -> None:
    """Also where its nodes stand in its place, and the new one has others."""

    def outer(cut: bool) -> hg.Graph:
        child = hg.Graph("child")
        x = child.device_array("x", shape=N, dtype="i4")
        added(child, x, name="first")
        if cut:
            child.eager(lambda stream: None, name="look", after=["first"])
            child.kernel(MODULE["add"], 1, N, (x, 10), name="second", after=["look"])
        g = hg.Graph("outer")
        g.child(child, bind={"x": numbers(g, "x")}, name="child")
        return g

    with outer(False).compile(runtime=device, backend=backend) as exe:
        exe.disable("child")
        exe.update(outer(True), rebuild=True)
        exe.run()
        assert exe.read("x")[0] == 0
        exe.enable("child")
        exe.run()
        assert exe.read("x")[0] == 11
        exe.disable("child")
        exe.enable("child/second")
        exe.update(outer(True), rebuild=True)
        exe.run()
        assert exe.read("x")[0] == 21
        exe.update(outer(False), rebuild=True)  # by a child that one graph can hold
        exe.run()
        assert exe.read("x")[0] == 21  # "child/first" is still disabled


def test_eager_set_and_disabled_between_launches_takes_effect_at_the_next(device: Runtime, backend: Any) -> None:
    g = hg.Graph("changed")
    x, y = numbers(g, "x"), numbers(g, "y")
    came: list[str] = []
    added(g, x, name="first")
    g.eager(lambda stream, word: came.append(word), ("a",), name="look", after=["first"])
    g.kernel(MODULE["add"], 1, N, (x, 10), name="last", after=["look"])
    added(g, y, name="beside")
    with g.compile(runtime=device, backend=backend, lanes=None) as exe:
        for _ in range(3):
            exe.run()
        exe.set("look", args=("b",))
        exe.run()
        exe.disable("look")
        exe.run()
        exe.set("look", args=("c",))
        exe.run()
        exe.enable("look")
        exe.set("last", args=(x, 100))
        exe.run()
        assert came == ["a", "a", "a", "b", "c"]
        assert exe.read("x")[0] == 7 + 6 * 10 + 100
        assert exe.read("y")[0] == 7


def test_handle_refuses_where_a_launch_is_several_graphs(device: Runtime) -> None:
    g = hg.Graph("several")
    x, h = numbers(g, "x"), g.host_array("h", shape=N, dtype="i4")
    added(g, x)
    g.memcpy(h, x)
    g.eager(lambda stream, h: None, (h,), name="look")
    g.memcpy(x, h)
    with g.compile(runtime=device) as exe:
        assert len(exe.handles) == 2
        assert len(set(exe.handles)) == 2
        with pytest.raises(hg.HipGraphError, match=r"launches 2 graphs; `handles`"):
            _ = exe.handle
    plain = hg.Graph("one")
    added(plain, numbers(plain, "x"))
    with plain.compile(runtime=device) as exe:
        assert exe.handles == (exe.handle,)


def test_alloc_that_lives_across_an_eager_node(device: Runtime, backend: Any) -> None:
    g = hg.Graph("across")
    out, h = numbers(g, "out"), g.host_array("h", shape=N, dtype="i4")
    t = g.alloc("t", shape=N, dtype="i4")
    g.memset(t, 3)
    g.memcpy(h, t, name="down")

    def change(stream: Any, h: Any) -> None:
        h += 1

    g.eager(change, (h,), name="change")
    g.memcpy(t, h, name="up")
    added(g, t, 10)
    g.memcpy(out, t, name="keep")
    g.free(t)
    with g.compile(runtime=device, backend=backend) as exe:
        for _ in range(3):
            exe.run()
            assert (exe.read("out") == 14).all()


def test_alloc_of_a_segment_that_frees_what_another_made_can_be_launched_again_in_flight(device: Runtime, backend: Any) -> None:
    """The middle segment makes as much memory as it frees, and leaves its own to the last one, which is held up."""
    g = hg.Graph("handed_on")
    out, h = numbers(g, "out"), g.host_array("h", np.zeros(1, "i4"))
    gate = threading.Event()
    a = g.alloc("a", shape=N, dtype="i4")
    g.memset(a, 3, name="set_a")
    g.eager(lambda stream: None, name="first", after=["set_a"])
    b = g.alloc("b", shape=N, dtype="i4", after=["first"])
    g.memcpy(out, a, name="keep_a", after=["first"])
    g.free(a, name="free_a")
    g.memset(b, 4, name="set_b")
    g.eager(lambda stream: None, name="second", after=["free_a", "set_b"])
    g.host(lambda h: gate.wait(30), (h,), name="gate", after=["second"])
    added(g, b, name="add_b")
    g.memcpy(out, b, name="keep_b", after=["gate"])
    g.free(b)
    with g.compile(runtime=device, backend=backend) as exe:
        if backend == "serial":
            gate.set()
        exe.launch()
        exe.launch()
        gate.set()
        exe.synchronize()
        assert (exe.read("out") == 5).all()


# -- conditional nodes -------------------------------------------------------------------------------------------------


def counted(decide: Any, every: int = 1, *, within: Callable[[hg.Graph, Any], None] | None = None) -> hg.Graph:
    g = hg.Graph("counted")
    x, n = numbers(g, "x"), g.device_array("n", np.zeros(1, "i4"))
    g.memset(n, g.param("times", "int32", 3), name="given")
    body = hg.Graph("body")
    bx, bn = body.device_array("x", shape=N, dtype="i4"), body.device_array("n", shape=1, dtype="i4")
    added(body, bx)
    if within is not None:
        within(body, bx)
    body.kernel(MODULE["less"], 1, 1, (bn,), name="less")
    g.conditional("while", n, body, bind={"x": x, "n": n}, decide=decide, check_every=every, name="loop")
    return g


@pytest.mark.parametrize("decide", ["auto", "host"])
def test_while_runs_the_same_multiple_of_check_every_everywhere(device: Runtime, backend: Any, decide: Any) -> None:
    with counted(decide, 4).compile(runtime=device, backend=backend) as exe:
        for times, wanted in ((0, 0), (1, 4), (4, 8), (5, 16)):
            exe.run(times=times)
            assert exe.read("x")[0] == wanted


def test_bodies_that_the_host_decides_on_are_built_by_compile() -> None:
    runtime = RecorderRuntime()
    with counted("host").compile(runtime=runtime) as exe:
        built = sum("Instantiate" in api for api in runtime.apis())
        exe.launch()
        assert sum("Instantiate" in api for api in runtime.apis()) == built == 2


def test_loop_interrupted_by_its_eager_node_can_be_launched_again(device: Runtime, backend: Any) -> None:
    runs = itertools.count(1)

    def within(body: hg.Graph, x: Any) -> None:
        def look(stream: Any) -> None:
            if next(runs) == 2:
                raise RuntimeError("second")

        body.eager(look, name="look", after=["add"])

    with counted("auto", within=within).compile(runtime=device, backend=backend) as exe:
        with pytest.raises(RuntimeError, match="eager node 'loop/0/look': RuntimeError: second"):
            exe.launch()
        assert exe.read("x")[0] == 2
        exe.run()
        assert exe.read("x")[0] == 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lanes", ["auto", None, 1, 2])
@pytest.mark.parametrize("mode", ["if", "switch"])
@pytest.mark.parametrize("fills", [False, True])
def test_loop_ends_whose_body_holds_independent_conditionals(
    device: Runtime, backend: Any, lanes: Any, mode: Any, fills: bool
) -> None:
    def within(body: hg.Graph, x: Any) -> None:
        word, times = (body.device_array(name, np.zeros(1, "i4")) for name in ("word", "times"))
        chosen, again = hg.Graph("chosen"), hg.Graph("again")
        if fills:
            chosen.memset(chosen.device_array("y", np.zeros(N, "i4")), 1, name="set")
        body.conditional(mode, word, chosen, name="chosen")
        again.kernel(MODULE["less"], 1, 1, (again.device_array("n", shape=1, dtype="i4"),), name="less")
        body.conditional("while", times, again, bind={"n": times}, name="again")

    with counted("auto", within=within).compile(runtime=device, backend=backend, lanes=lanes) as exe:
        for _ in range(10):
            exe.run(timeout_s=30)
        assert exe.read("x")[0] == 30


def conditionals_are_ordered(plan: hg.Plan) -> bool:
    """Whether a path leads from each conditional node that the device decides to the next, here and in each body."""
    before: list[set[int]] = []
    for step in plan.steps:
        before.append(set(step.deps).union(*(before[d] for d in step.deps)))
    found = [step for step in plan.steps if step.bodies and not step.by_host]
    return all(a.index in before[b.index] for a, b in itertools.pairwise(found)) and all(
        conditionals_are_ordered(body) for step in plan.steps for body in (*step.bodies, *filter(None, [step.child]))
    )


@settings(max_examples=60)
@given(parts=st.lists(blocks(2), min_size=1, max_size=5), lanes=st.sampled_from(["auto", None, 1, 2]))
def test_conditionals_run_one_by_one_where_a_platform_needs_it(parts: list[Any], lanes: Any) -> None:
    g = declared()
    for i, part in enumerate(parts):
        part.declare(g, f"n{i}")
    target = Target.named("nvidia:sm_90")
    assert conditionals_are_ordered(
        make_plan(g.workflow(), replace(target, quirks=frozenset({"conditionals_in_order"})), hg.PlanOptions(lanes=lanes))
    )


def test_plan_says_where_conditionals_are_put_in_order() -> None:
    g = hg.Graph("beside")
    for name in ("a", "b", "c"):
        body = hg.Graph("body")
        added(body, body.device_array("x", shape=N, dtype="i4"))
        x, word = numbers(g, name), g.device_array(f"{name}_word", np.zeros(1, "i4"))
        g.conditional("if", word, body, bind={"x": x}, decide="host" if name == "b" else "auto", name=name)
    target = Target.named("nvidia:sm_90")
    free, ordered = (
        make_plan(g.workflow(), replace(target, quirks=q)) for q in (frozenset(), frozenset({"conditionals_in_order"}))
    )
    assert [step.deps for step in free.steps] == [(), (), ()]
    assert [(step.deps, step.added) for step in ordered.steps] == [
        ((), ()),
        ((), ()),
        ((0,), (0,)),
    ]  # the host's own is left alone
    assert "1 ordering edge (marked *) for conditional nodes to run one by one" in ordered.explain()


def test_device_decides_only_where_it_can() -> None:
    g = counted("device")
    assert not g.check("cpu").errors
    assert not g.plan(target="cpu").cut
    assert {d.code for d in g.check("amd:gfx942").errors} == {"HG507"}

    def within(body: hg.Graph, x: Any) -> None:
        body.host(lambda: None, name="call")

    assert {d.code for d in counted("device", within=within).check("cpu").errors} == {"HG508"}
    assert not counted("auto", within=within).check("cpu").errors
    assert not counted("auto").check("amd:gfx942").errors


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"decide": "gpu"}, r"decide is 'auto', 'device' or 'host' \(got 'gpu'\)"),
        ({"check_every": 0}, r"check_every is an integer from 1 to 4096 \(got 0\)"),
        ({"check_every": "x"}, r"check_every is an integer from 1 to 4096 \(got 'x'\)"),
        ({"mode": "if", "check_every": 2}, "check_every is for mode 'while'"),
    ],
)
def test_conditional_says_what_is_wrong_with_how_it_is_decided(fields: dict[str, Any], said: str) -> None:
    g = hg.Graph("wrong")
    n = g.device_array("n", np.zeros(1, "i4"))
    with pytest.raises(hg.DeclarationError, match=said):
        g.conditional(**{"mode": "while", "condition": n, "bodies": hg.Graph("body"), **fields})


# -- the cut -----------------------------------------------------------------------------------------------------------


@st.composite
def cuts(draw: Any, most: int = 7) -> tuple[list[tuple[int, ...]], list[bool]]:
    count = draw(st.integers(1, most))
    deps = [tuple(draw(earlier(i, 3))) for i in range(count)]
    return deps, [draw(sampled_from((False, False, True))) for _ in range(count)]


def _ancestors(deps: list[tuple[int, ...]]) -> list[set[int]]:
    found: list[set[int]] = []
    for sources in deps:
        found.append(set(sources).union(*(found[d] for d in sources)))
    return found


def _waits_for_no_stranger(groups: list[tuple[int, ...]], deps: list[tuple[int, ...]], on_host: list[bool]) -> bool:
    """Whether launching groups as wholes makes no step follow a host's step that does not precede it, nor the other way round."""
    before = _ancestors(deps)
    group_of = {i: g for g, group in enumerate(groups) for i in group}
    follows = [sorted({group_of[d] for i in group for d in deps[i]} - {g}) for g, group in enumerate(groups)]
    reached: list[set[int]] = [set() for _ in groups]
    for _ in groups:
        for g, sources in enumerate(follows):
            reached[g] |= set(sources).union(*(reached[s] for s in sources))
    if any(g in found for g, found in enumerate(reached)):
        return False  # in a circle
    for g, group in enumerate(groups):
        for other in reached[g]:
            pairs = itertools.product(group, groups[other])
            if any((on_host[i] or on_host[j]) and j not in before[i] for i, j in pairs):
                return False
    return all(not on_host[i] or len(group) == 1 for group in groups for i in group)


def _partitions(items: list[int]) -> Iterator[list[tuple[int, ...]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        yield [(first,), *partition]
        for k, group in enumerate(partition):
            yield [*partition[:k], (first, *group), *partition[k + 1 :]]


@given(cuts())
@settings(max_examples=150)
def test_segments_are_the_fewest_that_make_nothing_wait_for_a_stranger(drawn: tuple[list[tuple[int, ...]], list[bool]]) -> None:
    deps, on_host = drawn
    found = segments(deps, on_host)
    assert sorted(i for group in found for i in group) == list(range(len(deps)))
    assert _waits_for_no_stranger(found, deps, on_host)
    done: set[int] = set()
    for group in found:  # in the order of launches
        assert all(d in done or d in group for i in group for d in deps[i])
        done.update(group)
    fewest = min(len(p) for p in _partitions(list(range(len(deps)))) if _waits_for_no_stranger(p, deps, on_host))
    assert len(found) == fewest


@given(cuts(most=40))
def test_the_host_does_nothing_while_a_graph_can_be_launched(drawn: tuple[list[tuple[int, ...]], list[bool]]) -> None:
    deps, on_host = drawn
    found = segments(deps, on_host)
    done: set[int] = set()
    for k, group in enumerate(found):
        if on_host[group[0]]:
            ready = [g for g in found[k:] if not on_host[g[0]] and all(d in done or d in g for i in g for d in deps[i])]
            assert not ready
        done.update(group)


@given(cuts(most=40))
def test_of_graphs_that_can_be_launched_the_one_goes_first_that_the_host_waits_for_soonest(
    drawn: tuple[list[tuple[int, ...]], list[bool]],
) -> None:
    deps, on_host = drawn
    found = segments(deps, on_host)
    behind: list[set[int]] = [set() for _ in deps]  # the host's steps that wait for each step
    for i in reversed(range(len(deps))):
        for d in deps[i]:
            behind[d] |= behind[i] | ({i} if on_host[i] else set())
    done: set[int] = set()
    for k, group in enumerate(found):
        if not on_host[group[0]]:
            ready = [g for g in found[k:] if not on_host[g[0]] and all(d in done or d in g for i in g for d in deps[i])]
            soonest = [min(behind[g[0]], default=len(deps)) for g in ready]
            assert min(behind[group[0]], default=len(deps)) == min(soonest)
        done.update(group)


def test_what_is_sent_is_launched_before_what_is_not() -> None:
    g = hg.Graph("halo")
    x, y = numbers(g, "x"), numbers(g, "y")
    added(g, x, name="inside")
    added(g, y, name="border")
    g.eager(lambda stream, y: None, (y,), name="send")
    g.memcpy(x, y, name="back")
    cut = g.plan(target="cpu").cut
    assert cut is not None
    assert [step.origin for step in cut.plan.steps] == [("border",), ("inside",), ("send",), ("back",)]


def test_a_plan_says_where_it_is_cut() -> None:
    g = hg.Graph("said")
    x, h = numbers(g, "x"), g.host_array("h", shape=N, dtype="i4")
    added(g, x)
    g.memcpy(h, x, name="down")
    g.eager(lambda stream, h: None, (h,), name="look")
    g.memcpy(x, h, name="up")
    plan = g.plan(target="cpu")
    assert "2 segments" in plan.explain()
    assert "calls 'look'" in plan.explain()
    rows = {line.split()[3]: line for line in str(plan).splitlines() if line.strip()[:1].isdigit()}
    assert ["segment 1" in rows["add"], "host" in rows["look"], "segment 2" in rows["up"]] == [True] * 3


def test_time_that_other_lanes_take_while_an_eager_node_sleeps(device: Runtime) -> None:
    """Host nodes in another branch run while the launching thread sleeps in an eager node that waits for nothing."""
    g = hg.Graph("lanes")
    h = g.host_array("h", np.zeros(1, "i4"))
    ran = threading.Semaphore(0)
    seen: list[bool] = []
    g.host(lambda h: ran.release(), (h,), name="beside")
    g.eager(lambda stream: seen.append(ran.acquire(timeout=60)), name="sleep")
    with g.compile(runtime=device) as exe:
        exe.run()
        exe.run()
    assert seen == [True, True]


def test_profile_knows_segments_and_what_the_host_does_between_them(device: Runtime, backend: Any) -> None:
    g = hg.Graph("profiled")
    x, y, h = numbers(g, "x"), numbers(g, "y"), g.host_array("h", np.zeros(N, "i4"))
    again, body = g.device_array("again", np.ones(1, "i4")), hg.Graph("body")
    body.kernel(MODULE["less"], 1, 1, (body.device_array("again", shape=1, dtype="i4"),))
    added(g, x, name="first")
    g.memcpy(h, x, name="down")
    g.eager(lambda stream, h: time.sleep(0.01), (h,), name="step")
    g.memcpy(x, h, name="up")
    added(g, y, name="beside")
    g.conditional("while", again, body, {"again": again}, decide="host", name="loop")
    with g.compile(runtime=device, backend=backend) as exe:
        exe.run()
        exe.write("again", np.ones(1, "i4"))
        timeline = exe.profile()
        assert exe.plan.cut is not None
        segments = {exe.plan.steps[i].name: number for i, number in exe.plan.cut.segment_of.items()}
    assert {span.name: span.segment for span in timeline if span.segment} == segments
    assert timeline["step"].engine == timeline["loop"].engine == "host"
    if device.name != "recorder":  # whose events know no time
        assert timeline["step"].duration >= 9_000
        assert timeline["beside"].start < timeline["step"].stop  # the host does not hold it up
        assert timeline["up"].start >= timeline["step"].stop - 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_eager_is_called_with_memory_of_its_graph_after_profiles(device: Runtime, backend: Any) -> None:
    g = hg.Graph("profiles")
    source, out = g.device_array("source", np.zeros(4, "i4")), g.host_array("out", np.zeros(4, "i4"))
    made = g.alloc("made", 4, "i4")
    value = g.param("value", "int32", 3)

    def copy(stream: Any, array: Any, source: Any, value: int) -> None:
        stream.runtime.memcpy_async(array.ptr, source.ptr, array.nbytes, MemcpyKind.DEFAULT, int(stream))
        values.append(value)

    g.memset(source, value)
    g.eager(copy, (made, source, value), reads=[source], writes=[made])
    g.memcpy(out, made)
    g.free(made)
    values: list[int] = []
    with g.compile(device, backend) as exe:
        for expected in (1, 2, 3):
            exe.profile(value=expected)
            exe.profile()
            exe.run()
            assert (exe.read("out") == expected).all()
    assert values == [1] * 3 + [2] * 3 + [3] * 3
