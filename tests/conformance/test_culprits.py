"""A kernel that fails on the CPU runtime is named by its full path, wherever it stands, however it was launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg

BACKENDS = ("explicit", "capture", "streams", "serial")
MODULE = hg.Module(
    """
extern "C" __global__ void culprit(int* x, int stop) { if (stop) __trap(); x[threadIdx.x] += 1; }
extern "C" __global__ void add(int* x, int a) { x[threadIdx.x] += a; }
extern "C" __global__ void less(unsigned* n) { *n -= 1; }""",
    name="culprits",
)
OTHERS: list[hg.Executable] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OTHERS:
        OTHERS.pop().close()


def leaf(name: str = "leaf") -> hg.Graph:
    """Return a graph whose node 'culprit' fails if its parameter 'stop' is set."""
    g = hg.Graph(name)
    x = g.param("x", "i4", shape=4)
    g.kernel(MODULE["add"], 1, 4, (x, 1), name="before")
    g.kernel(MODULE["culprit"], 1, 4, (x, g.param("stop", "i4", 0)), name="culprit")
    g.kernel(MODULE["add"], 1, 4, (x, 1), name="behind")
    return g


def twice() -> hg.Graph:
    g = hg.Graph("outer")
    x, stop = g.param("x", "i4", shape=4), g.param("stop", "i4", 0)
    g.child(leaf(), bind={"x": x, "stop": 0}, name="well")
    g.child(leaf(), bind={"x": x, "stop": stop}, name="inner")
    return g


def top(g: hg.Graph, x: Any, stop: Any) -> str:
    g.kernel(MODULE["culprit"], 1, 4, (x, stop), name="culprit")
    return "culprit"


def child(g: hg.Graph, x: Any, stop: Any) -> str:
    g.child(leaf(), bind={"x": x, "stop": stop}, name="part")
    return "part/culprit"


def grandchild(g: hg.Graph, x: Any, stop: Any) -> str:
    g.child(twice(), bind={"x": x, "stop": stop}, name="part")
    return "part/inner/culprit"


def behind_an_eager_step(g: hg.Graph, x: Any, stop: Any) -> str:
    g.eager(lambda stream, _: None, (x,), name="eager")
    return grandchild(g, x, stop)


def conditional(mode: Any, decide: Any, body: Callable[[], hg.Graph], inside: str) -> Callable[[hg.Graph, Any, Any], str]:
    def declare(g: hg.Graph, x: Any, stop: Any) -> str:
        word = g.device_array("word", np.ones(1, "u4"))
        g.memset(word, 2, name="passes")
        inner, bind = body(), {"x": x, "stop": stop}
        if mode == "while":
            inner.kernel(MODULE["less"], 1, 1, (inner.param("n", "u4", shape=1),), name="less")
            bind["n"] = word
        g.conditional(mode, word, inner, bind=bind, name="step", decide=decide)
        return f"step/0/{inside}"

    declare.__name__ = f"{mode} by {decide}: {inside}"
    return declare


def another(backend: Any) -> hg.Executable:
    """Return an Executable that fails, whose nodes those who launch it do not know."""
    inner = hg.Graph("unknown")
    inner.kernel(MODULE["culprit"], 1, 4, (inner.device_array("x", np.zeros(4, "i4")), 1), name="unknown")
    OTHERS.append(inner.compile("cpu", backend))
    return OTHERS[-1]


def captured(g: hg.Graph, x: Any, stop: Any) -> str:
    other = another("streams")
    g.captured(lambda stream, _: other.launch(stream=stream), (x,), name="captured")
    return "captured"


def launched_by_an_eager_step(g: hg.Graph, x: Any, stop: Any) -> str:
    other = another("explicit")
    h = g.host_array("h", np.zeros(4, "i4"))  # so that the step waits for the nodes before it
    g.eager(lambda stream, *_: other.launch(stream=stream), (x, h), name="eager")
    return "eager"


def launched_by_an_eager_step_that_waits_for_nothing(g: hg.Graph, x: Any, stop: Any) -> str:
    other = another("explicit")
    g.eager(lambda stream, _: other.launch(stream=stream), (x,), name="eager")
    return "eager"


def run_by_an_eager_step(g: hg.Graph, x: Any, stop: Any) -> str:
    other = another("explicit")
    g.eager(lambda stream, *_: other.run(), (x,), name="eager")
    return "eager"


def run_by_an_eager_step_in_a_body(g: hg.Graph, x: Any, stop: Any) -> str:
    body = hg.Graph("body")
    run_by_an_eager_step(body, body.param("x", "i4", shape=4), stop)
    g.conditional("if", g.device_array("word", np.ones(1, "u4")), body, bind={"x": x}, name="step", decide="host")
    return "step/0/eager"


RUN = (run_by_an_eager_step, run_by_an_eager_step_in_a_body)
"""Shapes whose culprit is a node of another Executable, which the function of a step runs."""


LAUNCHED = (captured, launched_by_an_eager_step, launched_by_an_eager_step_that_waits_for_nothing)
"""Shapes whose culprit is a node of another Executable, which the function of a step launches."""

ALWAYS = (*LAUNCHED, *RUN)
"""Shapes whose culprit fails in each launch."""


SHAPES: tuple[Callable[[hg.Graph, Any, Any], str], ...] = (
    top, child, grandchild, behind_an_eager_step, *ALWAYS,
    *(conditional(mode, decide, *body) for mode in ("if", "while") for decide in ("host", "device")
      for body in ((leaf, "culprit"), (twice, "inner/culprit"))),
)  # fmt: skip


def launched(g: hg.Graph, exe: hg.Executable) -> None:
    exe.launch(stop=1)
    exe.synchronize()


def asked(g: hg.Graph, exe: hg.Executable) -> None:
    exe.launch(stop=1)
    while not exe.done():
        pass
    exe.synchronize()


def launched_on_a_stream(g: hg.Graph, exe: hg.Executable) -> None:
    stream = exe.runtime.stream_create()
    try:
        exe.launch(stream=stream, stop=1)
        exe.synchronize()
    finally:
        exe.runtime.stream_destroy(stream)


def ran(g: hg.Graph, exe: hg.Executable) -> None:
    exe.run(stop=1)


def ran_after_a_change(g: hg.Graph, exe: hg.Executable) -> None:
    exe.run(stop=0)
    exe.disable("last")
    exe.update(g)
    exe.run(stop=1)


def profiled(g: hg.Graph, exe: hg.Executable) -> None:
    exe.profile(stop=1)


def cloned(g: hg.Graph, exe: hg.Executable) -> None:
    with exe.clone() as other:
        other.run(stop=1)


def met_by_a_clone(g: hg.Graph, exe: hg.Executable) -> None:
    exe.launch(stream=0, stop=1)
    exe.clone().close()


def verified(g: hg.Graph, exe: hg.Executable) -> None:
    hg.verify(g, "cpu", orders=1, repeats=1, params={"stop": 1}, audit=False, sanitize=False)


WAYS: tuple[Callable[[hg.Graph, hg.Executable], None], ...] = (
    launched, asked, launched_on_a_stream, ran, ran_after_a_change, profiled, cloned, met_by_a_clone, verified
)  # fmt: skip


def declared(shape: Callable[[hg.Graph, Any, Any], str]) -> tuple[hg.Graph, str]:
    g = hg.Graph("faulty")
    x, y = (g.device_array(name, np.zeros(4, "i4")) for name in "xy")
    g.kernel(MODULE["add"], 1, 4, (x, 1), name="first")
    name = shape(g, x, g.param("stop", "i4", 0))
    g.kernel(MODULE["add"], 1, 4, (x, 1), name="last")
    g.kernel(MODULE["add"], 1, 4, (y, 1), name="beside")
    return g, name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_fault_names_the_node_by_its_full_path(
    shape: Callable[[hg.Graph, Any, Any], str], backend: Any, way: Callable[[hg.Graph, hg.Executable], None]
) -> None:
    g, name = declared(shape)
    with g.compile("cpu", backend) as exe:
        always = shape in ALWAYS
        if not always:
            for _ in range(3):  # the compiled call path launches from then on
                exe.run(stop=0)
        for _ in range(1 if always else 2):
            with pytest.raises(hg.HipError, match=r"\(719\)") as caught:
                way(g, exe)
            assert caught.value.node == name
            assert f"{name!r}" in str(caught.value)
            if not always:
                exe.run(stop=0)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "serial"])  # which waits itself
@pytest.mark.parametrize("ask", [False, True])
def test_fault_that_nobody_has_waited_for_is_logged(backend: Any, ask: bool, caplog: pytest.LogCaptureFixture) -> None:
    g, name = declared(top)
    with g.compile("cpu", backend) as exe:
        exe.launch(stop=1)
        while ask and not exe.done():
            pass
        assert not caplog.text
    assert "nobody has waited for a launch that failed" in caplog.text
    assert f"{name!r}" in caplog.text


def errors_of_runs(shape: Callable[[hg.Graph, Any, Any], str], backend: Any) -> Iterator[tuple[str, hg.HipError]]:
    """Yield the node at fault and the error of each run of a shape, which names that node."""
    g, name = declared(shape)
    with g.compile("cpu", backend) as exe:
        for _ in range(5):  # compiled code launches from then on
            with pytest.raises(hg.HipError) as caught:
                exe.run()
            assert (caught.value.node, caught.value.graph) == (name, "faulty")
            yield name, caught.value


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", RUN, ids=lambda shape: shape.__name__)
def test_fault_of_another_graph_that_a_step_runs_names_both_nodes(
    shape: Callable[[hg.Graph, Any, Any], str], backend: Any
) -> None:
    for name, error in errors_of_runs(shape, backend):
        assert f"for node {name!r}: " in str(error)
        assert str(error).endswith("; its function met this for node 'unknown' of graph 'unknown'")
        cause = error.__cause__
        assert isinstance(cause, hg.HipError)
        assert (cause.node, cause.graph) == ("unknown", "unknown")


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "serial"])  # which waits inside the step
@pytest.mark.parametrize("shape", LAUNCHED, ids=lambda shape: shape.__name__)
def test_fault_of_another_graph_that_a_step_launches_names_both_nodes(
    shape: Callable[[hg.Graph, Any, Any], str], backend: Any
) -> None:
    for _, error in errors_of_runs(shape, backend):
        assert str(error).endswith("; it launched node 'unknown' of graph 'unknown', which failed")


@pytest.mark.parametrize("first", ["faulty", "behind"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "explicit eager"])
@pytest.mark.parametrize("shape", [top, grandchild], ids=lambda shape: shape.__name__)
def test_launch_behind_a_fault_of_another_graph_on_its_stream_is_told_of_it(
    shape: Callable[[hg.Graph, Any, Any], str], backend: str, first: str
) -> None:
    """Whoever waits first, each hears of its own launch, once; without that, the one that waits later would hear of nothing."""
    g, name = declared(shape)
    behind = hg.Graph("behind")
    x = behind.device_array("x", np.zeros(4, "i4"))
    behind.kernel(MODULE["add"], 1, 4, (x, 1), name="count")
    if "eager" in backend:
        behind.eager(lambda stream, _: None, (x,), name="eager")
    kind: Any = backend.split()[0]
    with g.compile("cpu", kind) as faulty, behind.compile("cpu", kind) as other:
        stream, ended = faulty.runtime.stream_create(), faulty.runtime.event_create()
        for launches in (1, 2):
            faulty.launch(stream=stream, stop=1)
            for _ in range(launches):
                other.launch(stream=stream)
            faulty.runtime.event_record(ended, stream)
            faulty.runtime.event_synchronize(ended)  # what has not started once the failure is told of would run
            for exe in (faulty, other) if first == "faulty" else (other, faulty):
                with pytest.raises(hg.HipError, match=r"\(719\)") as caught:
                    exe.synchronize()
                said = f"; graph 'behind' did not run to its end, because node {name!r} of graph 'faulty' failed before it"
                assert (said in str(caught.value)) == (exe is other)
                assert caught.value.node == (name if exe is faulty else None)
            for exe in (faulty, other):
                exe.synchronize()
            assert other.read("x")[0] == launches - 1
            faulty.run(stop=0)
            other.launch(stream=stream)
            assert other.read("x")[0] == launches
        faulty.launch(stream=stream, stop=1)
        other.launch(stream=stream)
        faulty.runtime.event_record(ended, stream)
        faulty.runtime.event_synchronize(ended)
        faulty.close()
        with pytest.raises(hg.HipError, match=r"because (node|an operation of others).* failed before it"):
            other.synchronize()
        other.runtime.event_destroy(ended)
        other.runtime.stream_destroy(stream)
