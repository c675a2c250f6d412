"""Values of structs: fields are matched by name, and each is converted as an array of its dtype is, at every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg

INNER = np.dtype([("c", "f4"), ("b", "?")])
POINT = np.dtype([("x", "f4"), ("n", "i2"), ("v", "i4", (2,)), ("in", INNER)], align=True)
ORDERED = ("in", "n", "x", "v")
MIXED = np.dtype([("in", [("b", "u1"), ("c", "f8")]), ("n", "i8"), ("x", "f8"), ("v", "i8", (2,))])
"""The same fields in another order, each wide enough for values that `POINT` cannot hold."""
ONE = (1.5, 300, (7, -8), (2.5, True))
WANTED = np.zeros(1, POINT)  # the padding too
WANTED[0] = ONE
MODULE = hg.Module('extern "C" __global__ void take(P p) {}', structs={"P": POINT})


def mixed(x: Any = 1.5, n: Any = 300, v: Any = (7, -8), inner: Any = (1, 2.5)) -> np.ndarray[Any, Any]:
    """Return one struct of `MIXED`, without dimensions."""
    return np.array((inner, n, x, v), MIXED)


def with_field(dtype: Any, name: str, field: Any) -> np.ndarray[Any, Any]:
    """Return a struct of `MIXED` in which a field has another dtype."""
    made = np.zeros((), [(known, field if known == name else MIXED[known]) for known in MIXED.names or ()])
    made["n"] = 300
    return made


def renamed(**names: str) -> np.ndarray[Any, Any]:
    return np.zeros((), [(names.get(name, name), MIXED[name]) for name in MIXED.names or ()])


Door = Callable[[Any], Any]


def by_graph(declare: Callable[[hg.Graph], object], read: str = "y", **params: Any) -> Any:
    """Return what a graph leaves in an array."""
    g = hg.Graph("g")
    declare(g)
    with g.compile("cpu") as exe:
        exe.run(**params)
        return exe.read(read)


def declared(make: str, values: Any) -> Any:
    def declare(g: hg.Graph) -> None:
        x = getattr(g, make)("x", values, dtype=POINT)
        g.memcpy(g.host_array("y", shape=x.shape, dtype=POINT), x)

    return by_graph(declare)


def copied_by_default(values: Any) -> Any:
    return by_graph(lambda g: g.memcpy(g.host_array("y", shape=2, dtype=POINT), g.param("p", POINT, values, shape=2, copy=True)))


def copied_at_launch(values: Any) -> Any:
    return by_graph(
        lambda g: g.memcpy(g.host_array("y", shape=2, dtype=POINT), g.param("p", POINT, shape=2, copy=True)), p=values
    )


def written(values: Any) -> Any:
    g = hg.Graph("g")
    x = g.device_array("x", shape=2, dtype=POINT)
    g.memset(x[:1], g.param("p", POINT, ONE))
    with g.compile("cpu") as exe:
        exe.write(x, values)
        return exe.read(x)


def supplied(values: Any) -> Any:
    g = hg.Graph("g")
    g.memcpy(g.host_array("y", shape=2, dtype=POINT), g.device_array("x", shape=2, dtype=POINT))
    given = [*values] if isinstance(values, np.ndarray) else values  # an array must have the dtype
    with hg.Graph.from_json(g.to_json(), arrays={"x": given}).compile("cpu") as exe:
        exe.run()
        return exe.read("y")


ARRAYS: dict[str, Door] = {
    "device_array": lambda values: declared("device_array", values),
    "host_array": lambda values: declared("host_array", values),
    "param": copied_by_default,
    "launch": copied_at_launch,
    "write": written,
    "from_json": supplied,
}
"""Doors that take two structs."""


def filled(g: hg.Graph, value: Any) -> None:
    g.memset(g.host_array("y", shape=1, dtype=POINT), value)


def set_later(value: Any) -> Any:
    g = hg.Graph("g")
    g.memset(g.host_array("y", shape=1, dtype=POINT), ONE, name="fill")
    with g.compile("cpu") as exe:
        exe.set("fill", value=value)
        exe.run()
        return exe.read("y")


def bound(value: Any) -> Any:
    child = hg.Graph("child")
    filled(child, child.param("p", POINT))
    return by_graph(lambda g: g.child(child, {"p": value}, name="c"), "c/y")


SCALARS: dict[str, Door] = {
    "memset": lambda value: by_graph(lambda g: filled(g, value)),
    "set": set_later,
    "default": lambda value: by_graph(lambda g: filled(g, g.param("p", POINT, value))),
    "launch": lambda value: by_graph(lambda g: filled(g, g.param("p", POINT)), p=value),
    "bind": bound,
}
"""Doors that take one struct."""
DOORS: dict[str, Door] = {
    **{f"{name} of values": door for name, door in ARRAYS.items()},
    **{f"{name} of one": door for name, door in SCALARS.items()},
    "argument": lambda value: hg.Graph("g").kernel(MODULE["take"], 1, 1, (value,)),
}
ON_CPU = ("launch of values", "write of values", "set of one", "launch of one")
"""Those that compile first, for the CPU."""


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("door", ARRAYS)
@pytest.mark.parametrize(
    "values",
    [
        [ONE, ONE], np.array([ONE, ONE], POINT), np.array([mixed(), mixed()]), [mixed()[()], mixed()[()]], [mixed(), ONE],
        [dict(zip(POINT.names or (), ONE)), {"in": {"b": 1, "c": 2.5}, "n": 300, "x": np.float64(1.5), "v": np.array([7, -8])}],
        [(1.5, np.int64(300), [7, -8], mixed()["in"][()])] * 2,
    ],
    ids=["tuples", "same", "mixed", "list", "both", "dicts", "inner"],
)  # fmt: skip
def test_structs_are_assigned_by_name(door: str, values: Any) -> None:
    found = ARRAYS[door](values)
    assert found.dtype == POINT
    assert found.tobytes() == WANTED.tobytes() * 2


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("door", SCALARS)
@pytest.mark.parametrize(
    "value",
    [
        ONE, np.array(ONE, POINT)[()], mixed(), mixed()[()], (1.5, 300, (7, -8), mixed()["in"][()]),
        {"in": mixed()["in"][()], "n": 300, "x": 1.5, "v": [7, -8]},
    ],
    ids=["tuple", "same", "array", "scalar", "inner", "dict"],
)  # fmt: skip
def test_one_struct_is_assigned_by_name(door: str, value: Any) -> None:
    assert SCALARS[door](value).tobytes() == WANTED.tobytes()


@pytest.mark.parametrize(
    "door",
    [pytest.param(door, marks=pytest.mark.needs("cpu") if door in ON_CPU else ()) for door in DOORS],
)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (renamed(x="z"), "field"),
        (np.zeros((), [(name, MIXED[name]) for name in ORDERED[1:]]), "field"),
        (np.zeros((), [*MIXED.descr, ("more", "i4")]), "field"),
        (mixed(n=70000), "'n'"),
        (mixed(v=(7, 2**40)), "'v'"),
        (mixed(x=1e300), "'x'"),
        (mixed(inner=(2, 0.0)), "'b'|'in.b'"),
        (with_field(MIXED, "x", "c8"), "'x'"),
        (with_field(MIXED, "n", "c16"), "'n'"),
        (with_field(MIXED, "v", ("i4", (3,))), "'v'|shape"),
        (with_field(MIXED, "in", "i4"), "'in'"),
        (with_field(MIXED, "x", [("c", "f4")]), "'x'"),
        (np.zeros((), f"V{POINT.itemsize}"), "x|bytes"),
        ((1.5, 70000, (7, -8), (2.5, True)), "'n'"),
        ((1.5, 300, (7, -8), np.array((0.0, 0.0, 1), [("b", "f4"), ("c", "f4"), ("d", "i4")])[()]), "'in'"),
    ],
)
def test_struct_that_a_dtype_cannot_hold_is_refused(door: str, value: Any, said: str) -> None:
    """NumPy swaps fields by position, wraps integers, and drops imaginary parts."""
    if door.endswith("values"):
        value = np.array([value, value]) if isinstance(value, np.ndarray) else [value, value]
    with pytest.raises(hg.DeclarationError, match=said):
        DOORS[door](value)


PLACED: Any = {"names": ["h", "f", "z"], "formats": ["f2", "f4", "c16"], "offsets": [0, 4, 16], "itemsize": 32}


@pytest.mark.needs("cpu")
@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (np.dtype([("h", "f2"), ("f", "f4"), ("z", "c16")]), "and 22 by structs=; list all fields, and give align=True"),
        (np.dtype([("h", "f2"), ("f", "f4"), ("z", "c16")], align=True), r"and 24 by .*\(double2, .*'itemsize': 32}\)$"),
        (np.dtype(PLACED), ""),
    ],
)
def test_layout_that_differs_from_the_compiled_one_says_what_may_differ(dtype: np.dtype[Any], said: str) -> None:
    source = """
        struct S { short h; float f; double2 z; };
        extern "C" __global__ void take(S s, double* out) { out[0] = s.f; out[1] = s.z.y; }
    """

    def found() -> Any:
        g = hg.Graph("layouts")
        out = g.device_array("out", shape=2, dtype="f8")
        g.kernel(hg.Module(source, structs={"S": dtype})["take"], 1, 1, (np.array((0, 2.5, 1 + 3j), dtype), out))
        with g.compile("cpu") as exe:
            exe.run()
            return exe.read("out").tolist()

    if said:
        with pytest.raises(hg.DeclarationError, match=f"'S s' has 32 bytes where it is compiled, {said}"):
            found()
    else:
        assert found() == [2.5, 3.0]
