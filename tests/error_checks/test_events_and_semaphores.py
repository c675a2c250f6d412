"""Events, semaphores and memory operations that cannot be."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes.base import Runtime


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("signals")
    g.device_array("x", shape=4, dtype="uint32")
    g.device_array("b", shape=4, dtype="int8")
    g.device_array("f", shape=4, dtype="float32")
    return g


@pytest.mark.parametrize("event", [None, 3, "", "a/b", object()])
@pytest.mark.parametrize("method", ["record", "wait"])
def test_events_have_names(g: hg.Graph, method: str, event: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="event"):
        getattr(g, method)(event, name="n")
    assert len(g) == 0


def test_a_wait_for_nothing_and_a_wait_before_the_record_are_warned_of(g: hg.Graph) -> None:
    g.wait("never", name="w1")
    g.wait("late", name="w2")
    g.record("late", after=["w2"], name="r")
    codes = {(d.code, d.nodes[0]) for d in g.check().warnings}
    assert ("HG204", "w1") in codes
    assert ("HG205", "w2") in codes


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "1", True, None])
@pytest.mark.parametrize("method", ["signal_semaphore", "wait_semaphore"])
def test_signal_semaphore_and_wait_semaphore_take_unsigned_64_bit_integers(g: hg.Graph, method: str, value: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="value is an unsigned 64-bit integer") as caught:
        getattr(g, method)(hg.Semaphore("s", 1), value, name="n")
    assert caught.value.node == "n"


@pytest.mark.parametrize("semaphore", [None, 3, "", object()])
def test_signal_semaphore_takes_a_name(g: hg.Graph, semaphore: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="semaphore"):
        g.signal_semaphore(semaphore, name="n")


@pytest.mark.parametrize("kind", [hg.Event, hg.Semaphore])
@pytest.mark.parametrize("name", ["", "a[0]", " a", "n" * 201, 5])
def test_an_event_and_a_semaphore_have_names_that_files_can_hold(kind: Any, name: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="name"):
        kind(name)


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_signal_semaphore_without_a_handle_is_refused_at_compile_by_name(g: hg.Graph, backend: Any) -> None:
    g.signal_semaphore("s", name="n")
    with pytest.raises(hg.DeclarationError, match=r"semaphore 's' has no handle; give hg\.Semaphore\(name, handle\)") as caught:
        g.compile(runtime="recorder", backend=backend)
    assert caught.value.node == "n"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda g: hg.write_value(g.arrays["x"], 1), "takes one 4- or 8-byte integer; 'x' has 4 of uint32; index it"),
        (lambda g: hg.write_value(g.arrays["b"][0], 1), "'b.0.' has 1 of int8"),
        (lambda g: hg.wait_value(g.arrays["f"][0], 1), "float32"),
        (lambda g: hg.write_value(g.arrays["x"][0], 2**32), "integer of 32 bits"),
        (lambda g: hg.write_value(g.arrays["x"][0], _half()), "integer of 32 bits"),
        (lambda g: hg.wait_value(g.arrays["x"][0], 1, condition="lt"), "condition is one of 'eq', 'geq', 'and', 'nor'"),
        (lambda g: hg.write_value(3, 1), "an element of an array"),
    ],
)
def test_memory_ops_are_on_one_integer(g: hg.Graph, make: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        make(g)


@pytest.mark.parametrize("count", [0, 257])
def test_memory_ops_come_1_to_256_at_a_time(g: hg.Graph, count: int) -> None:
    ops = [hg.write_value(g.arrays["x"][0], 1)] * count
    with pytest.raises(hg.DeclarationError, match="1 to 256 operations"):
        g.memory_ops(ops, name="n")
    with pytest.raises(hg.DeclarationError, match="operations made by"):
        g.memory_ops(["write"], name="n")  # type: ignore[list-item]  # that it is refused is the point


@pytest.fixture
def without_conditionals(monkeypatch: pytest.MonkeyPatch) -> RecorderRuntime:
    monkeypatch.setattr(RecorderRuntime, "graph_add_conditional_node", Runtime.graph_add_conditional_node)
    return RecorderRuntime()


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_conditionals_are_refused_where_the_runtime_has_none(
    g: hg.Graph, backend: Any, without_conditionals: RecorderRuntime
) -> None:
    body = hg.Graph("body")
    body.empty()
    g.conditional("if", g.arrays["x"][0], body, decide="device", name="maybe")
    with pytest.raises(hg.CheckError, match=r"'maybe'.*for the device to decide, and HIP has none"):
        g.compile(runtime=without_conditionals, backend=backend)
    before = without_conditionals.live
    with pytest.raises(hg.HipError, match=r"'maybe'.*no such call"):
        g.compile(runtime=without_conditionals, backend=backend, check=False)
    assert without_conditionals.live == before


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_the_host_decides_conditionals_where_the_runtime_has_none(
    g: hg.Graph, backend: Any, without_conditionals: RecorderRuntime
) -> None:
    bodies = [hg.Graph(name) for name in ("then", "otherwise")]
    for body in bodies:
        body.memset(body.device_array("u", shape=4, dtype="uint32"), 1)
    g.conditional("if", g.arrays["x"][0], bodies, name="maybe")
    with g.compile(runtime=without_conditionals, backend=backend) as exe:
        without_conditionals.clear()
        exe.run()
        apis = without_conditionals.apis()
        decided = apis.index("hipMemcpyAsync")
        assert apis[decided + 1 :].count("hipGraphLaunch" if backend in ("explicit", "capture") else "hipMemsetD32Async") == 1


def test_nodes_inside_a_conditional_are_refused_by_name(g: hg.Graph) -> None:
    body = hg.Graph("body")
    u = body.host_array("u", shape=4, dtype="uint32")
    body.host(print, args=(u,), name="shout")
    inner = hg.Graph("inner")
    inner.record("e", name="mark")
    body.child(inner, name="child")
    pageable = body.host_array("pageable", shape=4, dtype="uint32", pinned=False)
    body.memcpy(u, pageable, name="slow")
    g.conditional("while", g.arrays["x"][0], body, decide="device", name="loop")
    report = g.check("nvidia:sm_90")
    assert [d.nodes[0] for d in report.errors] == ["loop/0/shout", "loop/0/child/mark", "loop/0/slow"]
    assert {d.code for d in report.errors} == {"HG508"}
    with pytest.raises(hg.CheckError, match="'loop/0/shout'"):
        g.compile(runtime="recorder", backend="explicit")
    g.compile(runtime="recorder", backend="streams").close()


def test_the_nodes_of_a_body_are_fixed_and_that_is_said(g: hg.Graph) -> None:
    body = hg.Graph("body")
    body.memset(body.device_array("u", shape=4, dtype="uint32"), 1, name="set")
    g.conditional("while", g.arrays["x"][0], body, name="loop")
    with g.compile(runtime=RecorderRuntime(target="nvidia:sm_90")) as exe:
        for change in (partial(exe.set, "loop/0/set", value=2), partial(exe.disable, "loop/0/set")):
            with pytest.raises(hg.UpdateError, match="'loop/0/set' is in a body of conditional node 'loop'"):
                change()
        with pytest.raises(hg.UpdateError, match="bodies of a conditional node is fixed"):
            exe.set("loop", bodies=[hg.Graph("other")])
        assert exe.read("loop/0/u").shape == (4,)


def test_the_device_reads_conditions_so_pageable_memory_is_refused() -> None:
    g = hg.Graph("g")
    word = g.host_array("word", shape=1, dtype="int32", pinned=False)
    with pytest.raises(hg.DeclarationError, match="'maybe': 'word' is pageable host memory, which the device"):
        g.conditional("if", word, hg.Graph("body"), name="maybe")


@pytest.mark.parametrize(
    ("mode", "bodies", "text"),
    [
        ("if", 0, "takes one or two bodies"),
        ("if", 3, "takes one or two bodies"),
        ("while", 2, "takes one body"),
        ("switch", 0, "one or more"),
        ("until", 1, "mode is .if., .while. or .switch. .got .until.."),
    ],
)
def test_conditionals_have_the_bodies_of_their_mode(g: hg.Graph, mode: Any, bodies: int, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        g.conditional(mode, g.arrays["x"][0], [hg.Graph(f"b{i}") for i in range(bodies)], name="c")
    with pytest.raises(hg.DeclarationError, match="condition is one 32-bit integer"):
        g.conditional("if", g.arrays["b"][0], hg.Graph("body"), name="c")


def _half() -> Any:
    return 0.5
