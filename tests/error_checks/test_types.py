"""Values of wrong Python types, for every parameter of every public method of Graph and Executable."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest

import hipgraphdsl as hg

WRONG: tuple[Any, ...] = (
    None, "word", b"x", 1.5, -1, 10**30, float("nan"), True, [], {}, (1, "a"), {"a": object()}, object(), type, np.zeros(3)
)  # fmt: skip
SCALE = hg.Module('extern "C" __global__ void scale(float* x, float a, size_t n) { if (threadIdx.x < n) x[threadIdx.x] *= a; }')


def body() -> hg.Graph:
    g = hg.Graph("body")
    g.memset(g.device_array("z", shape=8, dtype="float32"), 0)
    return g


def declared() -> hg.Graph:
    g = hg.Graph("g")
    hx, x = g.host_array("hx", np.ones(8, "float32")), g.device_array("x", shape=8, dtype="float32")
    g.device_array("c", [0], dtype="int32")
    g.device_array("w", shape=8, dtype="float32")
    g.param("a", "float32", 2.0)
    g.memcpy(x, hx, name="in")
    g.kernel(SCALE["scale"], 1, 8, (x, g.parameters["a"], 8), name="k")
    g.record("e", name="rec")
    g.alloc("t", 8, "float32")
    g.memset(g.arrays["t"], 0)
    return g


def right(g: hg.Graph) -> dict[str, dict[str, Any]]:
    """Return arguments with which each method does what it says."""
    x, c, t, w = g.arrays["x"], g.arrays["c"], g.arrays["t"], g.arrays["w"]
    return {
        "host_array": {"name": "n", "initial": [1.0]},
        "device_array": {"name": "n", "initial": [1.0]},
        "external_array": {"name": "n", "obj": np.zeros(4)},
        "param": {"name": "n", "dtype": "float32"},
        "kernel": {"kernel": SCALE["scale"], "grid": 1, "block": 8, "args": (x, 2.0, 8)},
        "memcpy": {"dst": x, "src": g.arrays["hx"]},
        "memset": {"dst": x, "value": 0},
        "alloc": {"array": "n", "shape": 8, "dtype": "float32"},
        "free": {"array": t},
        "host": {"fn": len, "args": (g.arrays["hx"],)},
        "captured": {"fn": len, "args": (x,)},
        "eager": {"fn": len, "args": (x,)},
        "record": {"event": "n"},
        "wait": {"event": "e"},
        "empty": {},
        "child": {"graph": body()},
        "signal_semaphore": {"semaphore": "s"},
        "wait_semaphore": {"semaphore": "s"},
        "memory_ops": {"ops": hg.write_value(c, 1)},
        "all_reduce": {"arrays": [x, w]},
        "reduce": {"arrays": [x, w]},
        "broadcast": {"arrays": [x, w]},
        "all_gather": {"targets": [w], "sources": [x]},
        "reduce_scatter": {"targets": [w], "sources": [x]},
        "all_to_all": {"targets": [w], "sources": [x]},
        "conditional": {"mode": "if", "condition": c, "bodies": body()},
        "add": {"node": hg.EmptyNode(name="mine")},
        "order": {},
        "check": {},
        "plan": {},
        "compile": {"runtime": "recorder"},
        "simulate": {"durations": {"kernel": 1.0, "H2D": 1.0, "memset": 1.0}},
        "export": {"path": "/dev/null.dot"},
        "to_json": {},
        "workflow": {},
        "from_workflow": {"workflow": hg.Graph().workflow()},
        "repeat": {"count": 2},
        "from_json": {"text": hg.Graph().to_json()},
        "from_networkx": {"dag": nx.DiGraph()},
        "from_capture": {"fn": lambda stream: None, "runtime": "recorder"},
        "from_handle": {"handle": 0, "runtime": "recorder"},
    }


RUNNING: dict[str, dict[str, Any]] = {
    "launch": {}, "run": {}, "prepared": {}, "synchronize": {}, "done": {}, "read": {"name": "x"},
    "write": {"name": "x", "values": 0.0}, "array": {"name": "x"}, "gather": {}, "known": {}, "set": {},
    "enable": {"node": "k"}, "disable": {"node": "k"},
    "update": {"graph": declared()}, "clone": {}, "profile": {}, "elapsed_us": {"start": "e", "stop": "e"}, "close": {},
}  # fmt: skip
POSITIONAL: dict[str, tuple[Any, ...]] = {"set": ("k",)}
NAMES = {"set": ("kernel", "grid", "block", "args", "shared_bytes", "other")}


def wrong(method: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield arguments, one at a time, of types that are wrong for most parameters."""
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.annotation == "Never":  # takes none, but to say where a keyword belongs
            continue
        keywords = NAMES.get(method.__name__, ("a", "other")) if parameter.kind is parameter.VAR_KEYWORD else (name,)
        # A flag is whatever has a truth value, and an array of three has none.
        for value in WRONG[:-1] if parameter.annotation in ("bool", "bool | None") else WRONG:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                yield (value,), {}
            else:
                yield from (((), {keyword: value}) for keyword in keywords)


def is_refused(method: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """Return whether the library refuses a call; other exceptions pass through."""
    try:
        made = method(*args, **given)
    except hg.HipGraphError:
        return True
    if isinstance(made, hg.Executable):
        made.close()
    return False


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_") and not isinstance(getattr(owner, name), property)}


three: Any = 3


def test_every_public_method_is_tried() -> None:
    assert set(right(declared())) == public(hg.Graph)
    assert set(RUNNING) | {"build"} == public(hg.Executable)


@pytest.mark.parametrize("name", list(right(declared())))
def test_a_graph_answers_wrong_types_with_its_own_errors(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for args, given in wrong(getattr(declared(), name)):
        g = declared()
        before = len(g.dag), len(g.arrays), len(g.parameters)
        if is_refused(getattr(g, name), args, {**right(g)[name], **given}):
            assert (len(g.dag), len(g.arrays), len(g.parameters)) == before


@pytest.mark.parametrize("runtime", ["recorder", "cpu"])
@pytest.mark.parametrize("name", list(RUNNING))
def test_an_executable_answers_wrong_types_with_its_own_errors(name: str, runtime: Any) -> None:
    g = declared()
    g.free(g.arrays["t"])
    executable = g.compile(runtime)
    for args, given in wrong(getattr(executable, name)):
        is_refused(getattr(executable, name), args or POSITIONAL.get(name, ()), {**RUNNING[name], **given})
        if name == "close":
            executable.close()
            executable = g.compile(runtime)
    executable.close()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda g: g.device_array("n", 100, "float32"), r"array 'n': .* \(got 'float32'\); the arguments are name, initial"),
        (lambda g: g.host_array("n", "word"), "array 'n': dtype <U4 cannot live on a device"),
        (lambda g: g.device_array("n", [1.0], access="all"), r"array 'n': access: device is the number .* \(got 'all'\)"),
        (lambda g: g.child(body(), bind=3), r"node 'body': bind is a dict from the child's names \(got 3\)"),
        (lambda g: g.memory_ops(3), "node 'memory_ops': ops is a list of 1 to 256 operations"),
        pytest.param(
            lambda g: g.simulate({}, engines=3), r"simulate: engines is a dict \(got 3\)", marks=pytest.mark.needs("timeline")
        ),
        (lambda g: g.export(3), r"path is a str or a pathlib.Path \(got 3\)"),
        (lambda g: hg.Graph.from_json(g.to_json(), callbacks=three), r"callbacks is a dict \(got 3\)"),
        pytest.param(
            lambda g: hg.Graph.from_capture(three),
            r"from_capture: fn is a callable that takes a stream \(got 3\)",
            marks=pytest.mark.needs("imports"),
        ),
        pytest.param(
            lambda g: hg.Graph.from_handle(three * 0.5),
            "from_handle: handle is a hipGraph_t or CUgraph, as a number or an object",
            marks=pytest.mark.needs("imports"),
        ),
        (lambda g: g.plan(target="cpu", batch="maybe"), r"batch is 'auto', True or False \(got 'maybe'\)"),
        (lambda g: g.plan(target="cpu", options=hg.PlanOptions(join=three)), r"join is True or False \(got 3\)"),
        (lambda g: g.plan(target="cpu", options=hg.PlanOptions(pack=three)), r"pack is True, 'all' or False \(got 3\)"),
        pytest.param(
            lambda g: hg.verify(g, "recorder", backends=three),
            "backend is a name .*; backends are 'explicit', 'capture'",
            marks=pytest.mark.needs("verify"),
        ),
        pytest.param(
            lambda g: hg.Graph.from_capture(print, "recorder", arrays={three: np.zeros(3)}),
            r"name of an array is a string \(got 3\)",
            marks=pytest.mark.needs("imports"),
        ),
        (lambda g: g[0], "graph 'g' has no node 0; its nodes are 'in', 'k'"),
    ],
)
def test_the_error_names_the_argument_and_what_came(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(hg.DeclarationError, match=said):
        call(declared())


def compile_with(**options: Any) -> None:
    declared().compile("recorder", **options)


PLAN, DEBUG = ("PlanOptions", hg.PlanOptions), ("DebugOptions", hg.DebugOptions)


@pytest.mark.parametrize(
    ("argument", "name", "kind", "field"),
    [
        (argument, name, kind, field.name)
        for argument, (name, kind) in (("plan", PLAN), ("debug", DEBUG))
        for field in dataclasses.fields(kind)
        if field.name not in inspect.signature(hg.Graph.compile).parameters  # which takes lanes and batch itself
    ],
)
def test_compile_tells_which_argument_has_a_keyword(argument: str, name: str, kind: Any, field: str) -> None:
    given: dict[str, Any] = {field: False}
    with pytest.raises(TypeError, match=rf"compile\(\) .*{field!r}; say {argument}=hipgraphdsl\.{name}\({field}=False\)"):
        compile_with(**given)
    if kind is hg.PlanOptions:
        with pytest.raises(TypeError, match=rf"plan\(\) .*{field!r}; say options=hipgraphdsl\.PlanOptions\({field}=False\)"):
            declared().plan(target="cpu", **given)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(kind(), field, True)
    with pytest.raises(hg.DeclarationError, match=rf"{field} is True(, 'all')? or False \(got 3\)"):
        kind(**{field: 3})


MISSPELT = {
    "compile": [
        ("lane", "lanes"),
        ("run_time", "runtime"),
        ("watc", "watch"),
        ("programatic", "programmatic"),
        ("chek", "check"),
    ],
    "plan": [("lane", "lanes"), ("target_", "target"), ("option", "options"), ("batches", "batch")],
    "launch": [("A", "a"), ("bb", "b"), ("steam", "stream"), ("timeout", "timeout_s")],
}


@pytest.mark.parametrize(("call", "given", "meant"), [(call, *pair) for call, pairs in MISSPELT.items() for pair in pairs])
def test_a_misspelt_keyword_is_answered_with_the_one_that_was_meant(call: str, given: str, meant: str) -> None:
    g = hg.Graph("g")
    g.memset(g.host_array("x", shape=1, dtype="f4"), g.param("a", "f4", 0.0))
    g.memset(g.host_array("y", shape=1, dtype="f4"), g.param("b", "f4", 0.0))
    with g.compile("recorder") as exe:
        calls: dict[str, Callable[..., Any]] = {"compile": g.compile, "plan": g.plan, "launch": exe.launch}
        with pytest.raises((TypeError, hg.DeclarationError), match=rf"'{given}' \(did you mean '{meant}'\?\)"):
            calls[call](**{given: 1})


def test_compile_refuses_a_keyword_that_nothing_has() -> None:
    with pytest.raises(TypeError, match=r"compile\(\) got an unexpected keyword argument 'nothing'$"):
        compile_with(nothing=3)
    for argument, kind in (("plan", "PlanOptions"), ("debug", "DebugOptions")):
        with pytest.raises(hg.DeclarationError, match=rf"a {kind}, such as {kind}\(.*\(got {{"):
            compile_with(**{argument: {"join": False}})


@pytest.mark.parametrize("batch", ["maybe", 3, None])
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "explicit"},
        {"backend": "capture"},
        {"backend": "streams"},
        {"backend": "serial"},
        {"debug": hg.DebugOptions(watch=True)},
    ],
)
def test_every_way_of_compiling_refuses_what_batch_cannot_be(options: Any, batch: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=rf"batch is 'auto', True or False \(got {batch!r}\)"):
        declared().compile("recorder", batch=batch, **options)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda exe: exe.synchronize("soon"), r"timeout_s is a number of seconds from 0, or None \(got 'soon'\)"),
        (lambda exe: exe.close(timeout_s="soon"), r"timeout_s is a number of seconds from 0, or None \(got 'soon'\)"),
        (lambda exe: exe.set(3, grid=1), r"set: node is the name of a node, or the declared node itself \(got 3\)"),
        (lambda exe: exe.disable(None), r"disable: node is the name of a node, or the declared node itself \(got None\)"),
        (lambda exe: exe.launch(stream=True), r"stream is a raw handle or a stream object \(got True\)"),
    ],
)
def test_an_executables_error_names_the_argument_and_what_came(call: Callable[[Any], Any], said: str) -> None:
    g = declared()
    g.free(g.arrays["t"])
    with g.compile("recorder") as executable, pytest.raises(hg.DeclarationError, match=said):
        call(executable)


def test_a_graph_iterates_over_its_nodes() -> None:
    g = declared()
    assert list(g) == list(g.nodes)
    assert [node.name for node in g] == list(g.dag)
    assert g["in"] in g
    assert "in" in g
    assert declared()["in"] not in g
    assert 0 not in g
