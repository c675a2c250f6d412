"""Expressions of parameters have the values of each launch, wherever they stand, on every runtime and backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import HERE

import hipgraphdsl as hg

MODULE = hg.Module(r"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void put(long long* out, int at, long long value) {
  if (threadIdx.x == 0 && blockIdx.x == 0) { out[at] = value; out[7] = gridDim.x; }
}
extern "C" __global__ void narrow(long long* out, int at, int value) {
  if (threadIdx.x == 0 && blockIdx.x == 0) { out[at] = value; out[7] = gridDim.x; }
}
extern "C" __global__ void add(const int* from, int* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] += from[i];
}
""")
N, ROWS, COLUMNS = 256, 8, 24
BACKENDS = ["explicit", "capture", "streams", "serial"]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def bounded(g: hg.Graph) -> dict[str, hg.Parameter]:
    return {"i": g.param("i", "int32", 0, min=0, max=ROWS - 1), "n": g.param("n", "int32", 5, min=0, max=COLUMNS // 2)}


def all_places() -> hg.Graph:
    """Return a graph with an expression at every place that takes one, in a child too."""
    g = hg.Graph("places")
    n, k = g.param("n", "int32", default=100, min=0, max=N), g.param("k", "int32", default=0)
    x, y = g.device_array("x", np.ones(N, "f4")), g.device_array("y", np.zeros(N, "f4"))
    out, kid = g.device_array("out", shape=8, dtype="int64"), g.device_array("kid", shape=8, dtype="int64")
    filled = g.host_array("filled", shape=1, dtype="int32")
    g.kernel(MODULE["axpy"], over=n, block=64, args=(2.0, x, y, n), name="add")
    g.kernel(MODULE["put"], -(-n // 64) + 1, 64, (out, k % 4, n * n - k), name="put")
    g.memset(filled, n + 1)
    inner = hg.Graph("inner")
    own, m = inner.device_array("own", shape=8, dtype="int64"), inner.param("m", "int32", default=3)
    inner.kernel(MODULE["put"], m + 1, 32, (own, 0, m * 10))
    inner.memset(own[6:7], m - 2)
    g.child(inner, bind={"m": n // 2, "own": kid}, name="child")
    return g


def require_right(exe: hg.Executable, n: int, k: int, total: Any) -> None:
    total[:n] += 2
    assert exe.read("y").tolist() == total.tolist()
    out, kid = exe.read("out"), exe.read("kid")
    assert (out[k % 4], out[7]) == (n * n - k, ceil_div(n, 64) + 1)
    assert exe.read("filled").tolist() == [n + 1]
    assert (kid[0], kid[7], kid[6]) == (10 * (n // 2), n // 2 + 1, n // 2 - 2)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["declared", "from JSON", "cloned", "updated", "of an export"])
def test_expressions_have_the_values_of_each_launch(name: Any, backend: Any, way: str, tmp_path: Any) -> None:
    g = all_places()
    assert not g.check().diagnostics
    if way == "from JSON":
        text = g.to_json()
        g = hg.Graph.from_json(text)
        assert g.to_json() == text
    if way == "of an export":
        g.export(tmp_path / "program.py")
        space: dict[str, Any] = {"__name__": "program"}
        exec((tmp_path / "program.py").read_text(), space)
        again = space["build"]()
        assert again.to_json().split('"parameters"')[1] == g.to_json().split('"parameters"')[1]
        g = again
    with g.compile(runtime=name, backend=backend) as first:
        exe = first.clone() if way == "cloned" else first
        if way == "updated":
            exe.update(all_places())
        total = np.zeros(N, "f4")
        exe.run()
        require_right(exe, 100, 0, total)
        for n, k in ((256, 3), (0, 1), (1, 2), (130, 5), (0, 0), (0, 6), (130, 7)):
            exe.run(n=n, k=k)
            require_right(exe, n, k, total)
        for wrong in (-1, N + 1):
            with pytest.raises(hg.DeclarationError, match=rf"parameter 'n' is from 0 to 256 \(got {wrong}\)"):
                exe.run(n=wrong)
        exe.run(k=1)
        require_right(exe, 130, 1, total)
        exe.set("put", grid=g.parameters["n"] // 2)
        exe.run()
        assert exe.read("out")[7] == 65
        if way == "cloned":
            exe.close()


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_launch_that_comes_to_nothing_leaves_its_neighbours_and_what_users_disable(name: Any, backend: Any) -> None:
    g = hg.Graph("zero")
    n = g.param("n", "int32", default=0, min=0, max=N)
    x, y = g.device_array("x", np.ones(N, "f4")), g.device_array("y", np.zeros(N, "f4"))
    g.kernel(MODULE["axpy"], over=n, block=64, args=(2.0, x, y, n), name="first")
    g.kernel(MODULE["axpy"], over=N - n, block=64, args=(1.0, x, y, N - n), name="rest")
    wanted = np.zeros(N)
    with g.compile(runtime=name, backend=backend) as exe:
        for step, n_now in enumerate((0, 10, 0, N, 100, N, 0, 7)):
            if step == 4:
                exe.disable("first")
            if step == 6:
                exe.enable("first")
            exe.run(n=n_now)
            wanted[:n_now] += 0 if step in (4, 5) else 2
            wanted[: N - n_now] += 1
            assert exe.read("y").tolist() == wanted.tolist(), step
        if name == "cpu" and backend in ("explicit", "capture"):
            assert exe.stats.instantiations == 2, "only a graph that began with nothing is built again"


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "copy", "fill", "host", "child"]), st.integers(0, 6), st.integers(0, 6)),
    min_size=1,
    max_size=7,
)
KEYS: list[Callable[[Any, Any], Any]] = [
    lambda i, n: (i, slice(None, n)),
    lambda i, n: (7 - i, slice(n, n * 2)),
    lambda i, n: (i // 2 * 2, slice(24 - n, 24)),
    lambda i, n: (3, slice(12 - n, 12)),
    lambda i, n: ((i + 5) % 8, slice(i, i + n)),
    lambda i, n: (slice(None), slice(n, n + 8, 2)),
    lambda i, n: (hg.minimum(i, 4), slice(hg.maximum(i, n), hg.maximum(i, n) + n)),
]

GAPS = 5
"""The key of a view with gaps, which fills take."""


def declared(steps: list[Step]) -> hg.Graph:
    """Return a graph of steps on views that its two parameters move."""
    g = hg.Graph("moving")
    i, n = bounded(g).values()
    x, y = (
        g.device_array(name, np.arange(ROWS * COLUMNS, dtype="i4").reshape(ROWS, COLUMNS) * k) for k, name in ((1, "x"), (7, "y"))
    )
    h = g.host_array("h", np.zeros((ROWS, COLUMNS), "i4"))
    for at, (kind, to, source) in enumerate(steps):
        a, b = x[KEYS[to](i, n)], y[KEYS[source](i, n)]
        if kind == "add" and GAPS not in (to, source):
            g.kernel(MODULE["add"], over=n, block=4, args=(b, a, n))
        elif kind == "copy" and GAPS not in (to, source):
            g.memcpy(b if at % 2 else h[KEYS[to](i, n)], a)
        elif kind in ("fill", "add", "copy"):
            g.memset(b, i * 3 - n)
        elif kind == "host" and to != GAPS:
            g.host(doubled, args=(hg.updates(h[KEYS[to](i, n)]), n))
        elif kind == "child":
            inner = hg.Graph("inner")
            own = inner.device_array("own", shape=(ROWS, COLUMNS), dtype="int32")
            j, m = inner.param("j", "int32", 0, min=0, max=7), inner.param("m", "int32", 0, min=0, max=12)
            inner.memset(own[KEYS[to](j, m)], m + 1)
            g.child(inner, bind={"own": y, "j": 7 - i, "m": n})
    return g


def beginning() -> dict[str, Any]:
    values = np.arange(ROWS * COLUMNS, dtype="i4").reshape(ROWS, COLUMNS)
    return {"x": values * 1, "y": values * 7, "h": values * 0}


def doubled(values: Any, n: int) -> None:
    assert values.shape == (n,)
    values *= 2


def model(steps: list[Step], state: dict[str, Any], i: int, n: int) -> None:
    """Do the steps by NumPy."""
    x, y, h = state["x"], state["y"], state["h"]
    for at, (kind, to, source) in enumerate(steps):
        if kind == "add" and GAPS not in (to, source):
            x[KEYS[to](i, n)] += y[KEYS[source](i, n)]
        elif kind == "copy" and GAPS not in (to, source):
            (y[KEYS[source](i, n)] if at % 2 else h[KEYS[to](i, n)])[...] = x[KEYS[to](i, n)]
        elif kind in ("fill", "add", "copy"):
            y[KEYS[source](i, n)] = i * 3 - n
        elif kind == "host" and to != GAPS:
            h[KEYS[to](i, n)] *= 2
        elif kind == "child":
            y[KEYS[to](7 - i, n)] = n + 1


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@given(STEPS, st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS // 2)), min_size=1, max_size=5), st.booleans())
def test_graphs_of_moving_views_do_as_numpy_does(name: Any, backend: Any, steps: list[Step], launches: Any, stored: bool) -> None:
    g = declared(steps)
    if stored:
        text = g.to_json()
        calls = any(isinstance(node, hg.HostNode) for node in g)
        g = hg.Graph.from_json(text, callbacks={f"{__name__}:doubled": doubled} if calls else None)
        assert g.to_json() == text
    state = beginning()
    with g.compile(runtime=name, backend=backend) as exe:
        for i, n in launches:
            exe.run(i=i, n=n)
            model(steps, state, i, n)
            for array, values in state.items():
                assert exe.read(array).tolist() == values.tolist(), (array, i, n)


ACTIONS = st.one_of(st.integers(0, 3), st.sampled_from(["disable", "enable"]))


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(ACTIONS, min_size=1, max_size=8), st.booleans())
def test_nodes_that_come_to_nothing_and_are_disabled_run_when_neither_holds(
    name: Any, backend: Any, actions: list[Any], held: bool
) -> None:
    inner = hg.Graph("inner")
    n, x = inner.param("n", "int32", 0, min=0, max=3), inner.device_array("x", np.zeros(4, "i4"))
    ones = inner.device_array("ones", np.ones(4, "i4"))
    inner.kernel(MODULE["add"], over=n, block=4, args=(ones, x, n), name="node")
    g, node = inner, "node"
    if held:
        g, node = hg.Graph("outer"), "child/node"
        g.child(inner, bind={"n": g.param("n", "int32", 0, min=0, max=3)}, name="child")
    wanted, now, enabled = np.zeros(4, "i4"), 0, True
    with g.compile(runtime=name, backend=backend) as exe:
        for action in actions:
            if action == "disable":
                exe.disable(node)
                enabled = False
            elif action == "enable":
                exe.enable(node)
                enabled = True
            else:
                now = action
            exe.run(n=now)
            wanted[:now] += enabled
            assert exe.read("child/x" if held else "x").tolist() == wanted.tolist(), (action, now, enabled)


@pytest.mark.parametrize("name", HERE)
def test_a_function_may_write_what_it_writes_now_and_nothing_else(name: Any) -> None:
    g = hg.Graph("writes")
    n, h = g.param("n", "int32", 0, min=0, max=6), g.host_array("h", np.zeros(12, "i4"))
    seen: list[tuple[bool, bool]] = []
    views = hg.updates(h[n : n + 3]), hg.reads(h[n + 3 : n + 6])
    g.host(lambda a, b: seen.append((a.flags.writeable, b.flags.writeable)), views)
    with g.compile(runtime=name) as exe:
        exe.run()
        exe.run(n=4)
    assert seen == [(True, False)] * 2


def test_update_asks_for_a_rebuild_where_bounds_differ() -> None:
    def bounded_by(most: int) -> hg.Graph:
        g = hg.Graph("bounds")
        n = g.param("n", "int32", 2, min=0, max=most)
        x, y = (g.device_array(array, shape=64, dtype="i4") for array in "xy")
        g.memcpy(y[:n], x[64 - n :], name="copy")
        return g

    with bounded_by(4).compile(runtime="recorder") as exe:
        with pytest.raises(hg.UpdateError, match=r"parameters\.n\.max"):
            exe.update(bounded_by(8))
        exe.update(bounded_by(8), rebuild=True)
        exe.run(n=8)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["grid", "grid of a child", "argument of a child"])
@pytest.mark.parametrize("limits", [{}, {"min": 0, "max": 7}])
@pytest.mark.parametrize("cut", [False, True])
def test_a_value_that_a_kernel_takes_also_reaches_what_is_computed_from_it(
    name: Any, backend: Any, place: str, limits: dict[str, Any], cut: bool
) -> None:
    """Also from the second launch with values on, where compiled code sets arguments."""
    g = hg.Graph("both")
    out, n = g.device_array("out", shape=8, dtype="int64"), g.param("n", "int32", 4, **limits)
    if cut:
        g.eager(lambda stream, _: None, (hg.writes(out),))
    if place == "grid":
        g.kernel(MODULE["narrow"], n + 1, 32, (out, n, 5))
    else:
        inner = hg.Graph("inner")
        own, m, q = inner.device_array("own", shape=8, dtype="int64"), inner.param("m", "int32", 1), inner.param("q", "int32", 1)
        if place == "grid of a child":
            inner.kernel(MODULE["narrow"], m, 32, (own, q, 5))
        else:
            inner.kernel(MODULE["narrow"], 2, 32, (own, q, m))
        g.child(inner, bind={"own": out, "m": n + 1, "q": n})
    with g.compile(name, backend) as exe:
        for value in (1, 2, 3, 6, 0, 5):
            exe.run(n=value)
            found = exe.read("out")
            wanted = {"argument of a child": (value + 1, 2)}.get(place, (5, value + 1))
            assert (found[value], found[7]) == wanted


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cut", [False, True])
def test_a_value_beyond_its_limits_is_refused_by_each_launch(name: Any, backend: Any, cut: bool) -> None:
    g = hg.Graph("limited")
    out, n = g.device_array("out", shape=8, dtype="int64"), g.param("n", "int32", 4, min=-1, max=6)
    if cut:
        g.eager(lambda stream, _: None, (hg.writes(out),))
    g.kernel(MODULE["narrow"], 1, 32, (out, 0, n))
    with g.compile(name, backend) as exe:
        for value in (5, -1, 6):
            exe.run(n=value)
            assert exe.read("out")[0] == value
            for beyond in (-2, 7, 2**40):
                with pytest.raises(hg.DeclarationError, match="parameter 'n'"):
                    exe.launch(n=beyond)
            exe.run()
            assert exe.read("out")[0] == value
        launcher = exe._own.compiled.launcher
        assert launcher is None or backend not in ("explicit", "capture") or launcher.updates >= 2
