"""What a launch was given and what a graph says hold after every change, whichever path the launches took."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg

BACKENDS = ("explicit", "capture", "streams", "serial")
SOURCE = 'extern "C" __global__ void put(int* y, int p, int q) { y[0] = p; y[1] = q; }'
MODULE = hg.Module(SOURCE)
N = 4


def scalar(g: hg.Graph, n: int) -> None:
    """`p` is a scalar with the default `n`; `q` goes with it on the compiled path."""
    y = g.device_array("y", shape=2, dtype="i4")
    p, q = g.param("p", "int32", default=n), g.param("q", "int32", default=9)
    g.kernel(MODULE["put"], grid=1, block=1, args=(y, p, q))
    g.memcpy(g.host_array("out", shape=1, dtype="i4"), y[:1])


def _of_array(g: hg.Graph, **options: Any) -> None:
    p = g.param("p", "int32", shape=N, **options)
    g.memcpy(g.host_array("out", shape=N, dtype="i4"), p)


def copied(g: hg.Graph, n: int) -> None:
    _of_array(g, default=np.full(N, n, "i4"), copy=True)


def foreign(g: hg.Graph, n: int) -> None:
    _of_array(g, default=np.full(N, n, "i4"))


def _arrays(g: hg.Graph) -> dict[int, Any]:
    return {n: g.device_array(f"a{n}", np.full(N, n, "i4")) for n in (1, 2, 3, 5)}


def named(g: hg.Graph, n: int) -> None:
    _arrays(g)
    _of_array(g, default=f"a{n}")


def declared(g: hg.Graph, n: int) -> None:
    _of_array(g, default=_arrays(g)[n])


FORMS: dict[str, tuple[Callable[[hg.Graph, int], None], Callable[[int], Any]]] = {
    "scalar": (scalar, lambda n: n),
    "copied": (copied, lambda n: np.full(N, n, "i4")),
    "foreign": (foreign, lambda n: np.full(N, n, "i4")),
    "named": (named, lambda n: f"a{n}"),
    "declared": (declared, lambda n: f"a{n}"),
}


def graph(form: str, n: int, more: bool = False) -> hg.Graph:
    g = hg.Graph("said")
    FORMS[form][0](g, n)
    if more:
        g.memset(g.device_array("more", shape=4, dtype="i4"), 0)
    return g


CHANGES = (
    "update", "rebuild", "update, clone", "update, clone, clone", "clone, update", "rebuild, clone", "update, rebuild, clone",
    "update, workflow",
)  # fmt: skip


def changed(exe: hg.Executable, change: str, form: str, n: int, opened: ExitStack) -> hg.Executable:
    """Make changes one after the other; a graph that they take has the default `n`."""
    for step in change.split(", "):
        if step == "clone":
            exe = opened.enter_context(exe.clone())
        elif step == "workflow":
            g = hg.Graph.from_workflow(exe.workflow)
            exe = opened.enter_context(g.compile(runtime=exe.runtime, backend=exe.backend))  # type: ignore[arg-type]
        else:
            exe.update(graph(form, n, more="rebuild" in change), rebuild=True)
    return exe


def value(exe: hg.Executable) -> int:
    exe.run()
    found = exe.read("out")
    assert (found == found[0]).all()
    return int(found[0])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("runtime", HERE)
def test_update_changes_a_default_that_no_launch_has_given_and_no_value_that_one_has(
    runtime: Any, backend: Any, form: str, change: str
) -> None:
    """The default becomes 5, from 1; a launch gives 1, as it is, or 3, or nothing; then 2 becomes the default in place."""
    for given in (None, 1, 3):
        with graph(form, 1).compile(runtime=runtime, backend=backend) as exe, ExitStack() as opened:
            if given is not None:
                exe.run(p=FORMS[form][1](given))
                exe.run(p=FORMS[form][1](given))  # on the compiled path, where there is one
            made = changed(exe, change, form, 5, opened)
            held = given is not None and "workflow" not in change
            assert value(made) == (given if held else 5)
            with pickle.loads(pickle.dumps(hg.Graph.from_workflow(made.workflow))).compile(
                runtime=runtime, backend=backend
            ) as again:
                assert value(again) == 5
            made.update(graph(form, 2, more="rebuild" in change))
            assert value(made) == (given if held else 2)


@pytest.mark.parametrize("values", list(product((3, 7), (9, 2))), ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_value_that_a_launch_gives_counts_as_given_though_it_is_the_current_one(backend: Any, values: tuple[int, int]) -> None:
    """`q` is given last by a call that the compiled path takes where it is there: the value that it has, or another."""
    with graph("scalar", 1).compile(runtime="cpu", backend=backend) as exe:
        exe.run(p=3)
        exe.run(p=3, q=9)
        exe.run(p=values[0])
        g = hg.Graph("said")
        y = g.device_array("y", shape=2, dtype="i4")
        args = (y, g.param("p", "int32", default=40), g.param("q", "int32", default=values[1]))
        g.kernel(MODULE["put"], grid=1, block=1, args=args)
        g.memcpy(g.host_array("out", shape=1, dtype="i4"), y[:1])
        exe.update(g)
        exe.run()
        assert exe.read("y").tolist() == [values[0], 9]
        assert exe.parameters == {"p": values[0], "q": 9}


STORED = [
    pair
    for pair in product(("scalar", "copied", "named", "declared"), ("JSON", "networkx", "pickle", "workflow"))
    if pair != ("named", "networkx")
]  # a networkx graph has the arrays of its nodes and parameters; a name is none


@pytest.mark.parametrize(("form", "way"), STORED)
def test_graph_that_was_stored_says_the_same_defaults(form: str, way: str) -> None:
    g = graph(form, 5)
    g.check()
    made: dict[str, Callable[[], hg.Graph]] = {
        "JSON": lambda: hg.Graph.from_json(g.to_json()),
        "networkx": lambda: hg.Graph.from_networkx(g.dag),
        "pickle": lambda: pickle.loads(pickle.dumps(g)),
        "workflow": lambda: hg.Graph.from_workflow(g.workflow()),
    }
    with made[way]().compile(runtime="cpu") as exe, graph(form, 1).compile(runtime="cpu") as other:
        assert value(exe) == 5
        other.update(made[way]())
        assert value(other) == 5


def test_pickle_takes_a_graph_after_whatever_has_been_asked_of_it() -> None:
    g = graph("scalar", 1)
    asked: dict[str, Callable[[], Any]] = {
        "check": g.check,
        "limits": lambda: g.check("nvidia:sm_90"),
        "plan": g.plan,
        "compile": lambda: g.compile(runtime="cpu").close(),
        "simulate": lambda: g.simulate({"kernel": 1.0, "memcpy": 1.0}),
        "verify": lambda: hg.verify(g, runtime="cpu"),
        "export": g.to_json,
    }
    for name, ask in asked.items():
        ask()
        new = hg.Graph(f"after {name}")
        new.kernel(MODULE["put"], grid=1, block=1, args=(new.device_array("y", shape=2, dtype="i4"), 1, 2))
        for made in (g, new):
            assert pickle.loads(pickle.dumps(made)).to_json() == made.to_json(), name
