"""Parameters and streams that a launch refuses, and what stands after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime

SOURCE = 'extern "C" __global__ void f(float* x, float a, int n) { x[threadIdx.x] = a * n; }'


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("launch")
    x = g.device_array("x", shape=8, dtype="float32")
    g.alloc("t", 8, "float32")
    g.free(g.arrays["t"])
    g.host_array("small", shape=4, dtype="float32")
    a, n = g.param("a", "float32"), g.param("n", "int32", 1)
    blocks, threads = g.param("blocks", "int64", 1), g.param("threads", "int32", 8)
    p = g.param("p", "float32", "x", shape=8)
    g.kernel(hg.Module(SOURCE)["f"], blocks, (threads, 2), (p, a, n), name="f")
    g.memset(x[:4], a, name="set", after=["f"])
    return g


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def exe(request: pytest.FixtureRequest, g: hg.Graph) -> Any:
    runtime = RecorderRuntime()
    with g.compile(runtime=runtime, backend=request.param) as exe:
        yield exe
    assert runtime.live == {}


def refused(exe: hg.Executable, params: dict[str, Any], *texts: str) -> None:
    before = exe.parameters
    launches = exe.stats.launches
    with pytest.raises(hg.DeclarationError) as caught:
        exe.launch(**params)
    for text in texts:
        assert text in str(caught.value)
    assert exe.parameters == before
    assert exe.stats.launches == launches


def test_a_parameter_without_default_is_asked_for_by_name(exe: hg.Executable) -> None:
    refused(exe, {}, "the first launch must give 'a', which has no default")
    refused(exe, {"n": 3}, "must give 'a'")
    assert exe.parameters["n"] == 1
    exe.run(a=2.0)
    exe.run()


@pytest.mark.parametrize("name", ["b", "A", "x", "f", "name", "params"])
def test_an_unknown_parameter_names_those_that_are_there(exe: hg.Executable, name: str) -> None:
    refused(exe, {"a": 1.0, name: 1}, f"'launch' has no parameter {name!r}")
    refused(exe, {"a": 1.0, name: 1}, "; its parameters are 'a', 'n', 'blocks', 'threads', 'p'")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("n", 2**31, "is no value of dtype int32"),
        ("n", 1.5, "it is no integer"),
        ("n", "1", "is no value of dtype int32: it is no number"),
        ("n", None, "is no value of dtype int32: it is no number"),
        ("n", True, "it is no integer"),
        ("a", 1e39, "1e+39 is no value of dtype float32: overflow: the range of float32 is ±3.40282e+38"),
        ("a", True, "is no value of dtype float32: it is no number"),
        ("a", 1j, "it is complex"),
        ("a", "1", "dtype float32"),
        ("a", [1.0], "is no value of dtype float32: it holds several"),
        ("a", np.zeros(3), "is no value of dtype float32: it holds several"),
        ("blocks", -2, "must be at least 0 (got -2)"),
        ("threads", 0, "must be at least 1 (got 0)"),
        ("blocks", 2**32, "must be less than 2**32 (got 4294967296)"),
        ("threads", 1000, "at most 1024 threads"),
        ("a", {"x": 1}, "is no value of dtype float32: it is no number"),
        ("p", 3.0, "parameter 'p': float offers no memory that can be shared"),
        ("p", "small", "takes float32[8] (got float32[4])"),
        ("p", "gone", "no array 'gone'"),
        ("p", "t", "lives only while the graph runs"),
        ("p", np.zeros(8), "takes float32[8] (got float64[8])"),
        ("p", None, "memory"),
    ],
)
def test_values_are_of_the_parameters_kind(exe: hg.Executable, name: str, value: Any, text: str) -> None:
    exe.run(a=1.0)
    refused(exe, {name: value}, name, text)
    refused(exe, {"n": 7, name: value} if name != "n" else {name: value}, text)
    assert exe.parameters["n"] == 1
    exe.run(n=2)


def test_a_refused_first_launch_may_be_repeated(exe: hg.Executable) -> None:
    refused(exe, {"a": 1.0, "blocks": -1}, "blocks")
    exe.run(a=1.0)
    assert exe.parameters["a"] == 1.0


@pytest.mark.needs("timeline")
def test_self_is_a_parameters_name_like_any_other() -> None:
    g = hg.Graph("names")
    h = g.host_array("h", shape=1, dtype="int32")
    g.memset(h, g.param("self", "int32", 1))
    with g.compile(runtime="recorder") as exe:
        exe.run(self=4)
        assert exe.parameters == {"self": 4}
        exe.profile(self=5)
        assert exe.parameters == {"self": 5}


@pytest.mark.parametrize("stream", ["mine", 1.5, object(), [3]])
def test_streams_are_handles_or_stream_objects(exe: hg.Executable, stream: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="stream is a raw handle or a stream object"):
        exe.launch(stream, a=1.0)
    with pytest.raises(hg.DeclarationError, match="must give 'a'"):  # the refused launch has bound nothing
        exe.run()
    exe.run(a=1.0)


def test_elapsed_us_refuses_events_that_no_node_records(exe: hg.Executable) -> None:
    with pytest.raises(hg.DeclarationError, match="'launch' records no event 'e'"):
        exe.elapsed_us("e", "f")


@pytest.mark.parametrize("call", ["disable", "enable", "set"])
def test_unknown_nodes_are_named_with_those_that_are_there(exe: hg.Executable, call: str) -> None:
    with pytest.raises(
        hg.UpdateError, match=f"{call}: graph 'launch' has no node 'z'; its nodes are 'alloc_t', 'free_t', 'f'"
    ) as caught:
        getattr(exe, call)("z")
    assert caught.value.node == "z"


def test_disable_refuses_allocs_and_frees(exe: hg.Executable) -> None:
    for name in ("alloc_t", "free_t"):
        with pytest.raises(hg.UpdateError, match="cannot be disabled, because others use the memory") as caught:
            exe.disable(name)
        assert caught.value.node == name
        with pytest.raises(hg.UpdateError, match="are always enabled, because others use the memory"):
            exe.enable(name)


@pytest.mark.needs("verify")
@pytest.mark.parametrize("runtime", [None, 3, hg.Graph("g")])
def test_a_runtime_is_a_name_or_an_open_one(runtime: Any) -> None:
    for call in (hg.Graph("g").compile, lambda r: hg.verify(hg.Graph("g"), r), hg.graph_memory):
        with pytest.raises(hg.DeclarationError, match="runtime is a name such as 'auto', or what"):
            call(runtime)


@pytest.mark.needs("verify")
def test_verify_names_what_it_cannot_run() -> None:
    with pytest.raises(hg.DeclarationError, match="there is no backend 'eager'; backends are 'explicit'"):
        hg.verify(hg.Graph("g"), "recorder", ("eager",))
    g = hg.Graph("g")
    with g.compile("recorder") as exe:
        wrong: tuple[Any, ...] = ("g", exe)
        for what in wrong:
            with pytest.raises(hg.DeclarationError, match=rf"verify takes a Graph or a Workflow \(got {type(what).__name__}\)"):
                hg.verify(what)
            for pair in ((what, g), (g, what)):
                with pytest.raises(hg.DeclarationError, match="explain_update takes two Graphs or Workflows"):
                    hg.explain_update(*pair)


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_a_value_that_a_node_inside_a_child_refuses_names_the_node_with_its_child(backend: Any) -> None:
    inner = hg.Graph("inner")
    y, blocks = inner.device_array("y", shape=8, dtype="float32"), inner.param("blocks", "int32", 1)
    inner.kernel(hg.Module(SOURCE)["f"], blocks, 8, (y, 1.0, 2), name="f")
    outer = hg.Graph("outer")
    outer.child(inner, bind={"blocks": outer.param("b", "int32", 1)}, name="child")
    with outer.compile(runtime=RecorderRuntime(), backend=backend) as exe:
        with pytest.raises(hg.DeclarationError, match=r"^node 'child/f': grid\.0 is parameter 'blocks'") as caught:
            exe.launch(b=-1)
        assert caught.value.node == "child/f"


@pytest.mark.needs("verify")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"orders": -1}, r"orders is how many orders are tried, an int from 0 \(got -1\)"),
        ({"repeats": 1.5}, r"repeats is how many launches, an int from 0 \(got 1\.5\)"),
        ({"seed": None}, r"seed is the first seed of orders and schedules, an int \(got None\)"),
        ({"params": [1]}, r"params is a dict \(got \[1\]\)"),
        ({"tolerance": "1e-6"}, r"tolerance is a number from 0, or a dict of them by array \(got '1e-6'\)"),
        ({"tolerance": {"x": -1.0}}, r"tolerance is a number from 0, or a dict of them by array \(got \{'x': -1\.0\}\)"),
        ({"tolerance": {"y": 1e-6}}, "tolerance has 'y', and graph 'g' has no such array; its arrays are 'x'"),
    ],
)
def test_verify_refuses_what_cannot_be_meant(given: dict[str, Any], said: str) -> None:
    g = hg.Graph("g")
    g.memset(g.device_array("x", shape=4, dtype="float32"), 0)
    with pytest.raises(hg.DeclarationError, match=f"verify: {said}"):
        hg.verify(g, "recorder", **given)
