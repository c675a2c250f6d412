"""explain_update: what a change would take, node and field by field."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from specimens import everything, module

import hipgraphdsl as hg

M = hg.Module('extern "C" __global__ void f(float* x, float a) {} extern "C" __global__ void h(float* x, float a) {}')


class Pair(NamedTuple):
    """Something that a callback is given."""

    a: int
    b: int


def build(**other: Any) -> hg.Graph:
    """A graph of several kinds; `other` changes what its nodes do."""
    say: dict[str, Any] = {
        "grid": 1,
        "a": 1.0,
        "kernel": "f",
        "value": 0,
        "part": slice(0, 4),
        "fn": print,
        "args": (1,),
        "after": [],
        "kind": "empty",
        "shape": 4,
        "child_value": 1,
        "bind": True,
        "cooperative": False,
        "values": np.arange(3),
        **other,
    }
    g = hg.Graph("g")
    x, z = g.device_array("x", shape=8, dtype="float32"), g.device_array("z", shape=8, dtype="float32")
    t = g.alloc("t", say["shape"], "float32", name="make")
    g.free(t, name="give")
    g.kernel(M[say["kernel"]], say["grid"], 4, (x, say["a"]), cooperative=say["cooperative"], name="kernel")
    g.memset(x[say["part"]], say["value"], name="memset")
    g.memcpy(z[:4], x[say["part"]], name="copy")
    g.host(say["fn"], args=(say["values"], *say["args"]), name="host", after=say["after"])
    inner = hg.Graph("inner")
    y = inner.device_array("y", shape=8, dtype="float32")
    inner.memset(y, say["child_value"], name="set")
    g.child(inner, bind={"y": z} if say["bind"] else {}, name="child")
    (g.empty if say["kind"] == "empty" else lambda name: g.record("e", name=name))(name="mark")
    return g


def test_explain_update_finds_a_graph_like_one_declared_in_the_same_way() -> None:
    assert not hg.explain_update(build(), build())
    assert str(hg.explain_update(build(), build())) == "'g' and 'g' are alike"
    kernels = module()
    first = everything(kernels)
    assert not hg.explain_update(first, first)


@pytest.mark.parametrize(
    ("other", "node", "field"),
    [
        ({"grid": 2}, "kernel", "grid"),
        ({"a": 2.0}, "kernel", "args"),
        ({"kernel": "h"}, "kernel", "kernel"),
        ({"value": 1}, "memset", "value"),
        ({"fn": repr}, "host", "fn"),
        ({"args": (2,)}, "host", "args"),
        ({"args": (1.0,)}, "host", "args"),
        ({"args": (True,)}, "host", "args"),
        ({"args": (np.int64(1),)}, "host", "args"),
        ({"values": np.arange(4)}, "host", "args"),
    ],
)
def test_explain_update_changes_what_nodes_do_in_place(other: dict[str, Any], node: str, field: str) -> None:
    found = hg.explain_update(build(), build(**other))
    assert [(c.node, c.field, c.in_place) for c in found.changes] == [(node, field, True)]
    assert found.in_place
    assert f"in place  node '{node}'.{field}" in str(found)


@pytest.mark.parametrize(
    ("other", "node", "field"),
    [
        ({"after": ["copy"]}, "host", "predecessors"),
        ({"kind": "record"}, "mark", "kind"),
        ({"shape": 5}, "make", "array"),
        ({"child_value": 2}, "child", "workflow"),
        ({"bind": False}, "child", "bind"),
        ({"cooperative": True}, "kernel", "cooperative"),
    ],
)
def test_explain_update_builds_again_for_another_shape(other: dict[str, Any], node: str, field: str) -> None:
    found = hg.explain_update(build(), build(**other))
    assert not found.in_place
    assert (node, field) in [(c.node, c.field) for c in found.changes if not c.in_place]
    assert "afresh" in str(found)
    with build().compile(runtime="recorder") as exe:
        with pytest.raises(hg.UpdateError, match="graph 'g' cannot be updated in place: node") as caught:
            exe.update(build(**other))
        assert caught.value.node is not None
        exe.update(build(**other), rebuild=True)
        exe.run()


def test_other_memory_of_an_external_array_asks_for_building_afresh() -> None:
    def declared(memory: Any, value: int) -> hg.Graph:
        g, child = hg.Graph("g"), hg.Graph("child")
        g.memset(g.external_array("x", memory), value, name="set")
        child.memset(child.external_array("y", memory), value, name="set")
        g.child(child, name="c", after=["set"])
        return g

    first, second = np.zeros(4, "i4"), np.zeros(4, "i4")
    assert hg.explain_update(declared(first, 1), declared(first[:], 1)).in_place
    found = hg.explain_update(declared(first, 1), declared(second, 1))
    assert [(c.node, c.field, c.in_place) for c in found.changes] == [("c", "workflow", False), (None, "arrays.x.pointer", False)]
    with declared(first, 1).compile("recorder") as exe:
        with pytest.raises(hg.UpdateError, match=r"arrays\.[xy]\.pointer"):
            exe.update(declared(second, 2))
        assert exe.array("x").ptr == first.ctypes.data
        exe.update(declared(second, 2), rebuild=True)
        assert exe.array("x").ptr == exe.array("c/y").ptr == second.ctypes.data


def test_explain_update_names_nodes_that_come_and_go() -> None:
    more = build()
    more.empty(name="more")
    assert [(c.node, c.reason) for c in hg.explain_update(build(), more).changes] == [("more", "is only in the new graph")]
    assert [(c.node, c.reason) for c in hg.explain_update(more, build()).changes] == [("more", "is only in the old graph")]


@pytest.mark.needs("cpu")
def test_update_tells_zero_from_negative_zero() -> None:
    inverse = hg.Module('extern "C" __global__ void inverse(float* y, float a) { y[0] = 1.0f / a; }')["inverse"]

    def declared(zero: Any) -> hg.Graph:
        g = hg.Graph("zeros")
        y, z = (g.device_array(name, shape=1, dtype="float32") for name in "yz")
        g.kernel(inverse, 1, 1, (y, zero), name="inverse")
        g.memset(z, zero, name="set")
        return g

    for zero, negative in ((0.0, -0.0), (np.float32(0.0), np.float32(-0.0))):
        assert not hg.explain_update(declared(zero), declared(zero))
        with declared(zero).compile(runtime="cpu") as exe:
            exe.run()
            exe.update(declared(negative))
            exe.run()
            assert (exe.read("y")[0], bool(np.signbit(exe.read("z")[0]))) == (-np.inf, True)


def test_explain_update_finds_nans_alike() -> None:
    def nan() -> hg.Graph:
        g = hg.Graph("g")
        g.memset(g.device_array("x", shape=4, dtype="float64"), float("nan"))
        return g

    assert not hg.explain_update(nan(), nan())


def test_stats_count_updates_that_do_not_instantiate() -> None:
    with build().compile(runtime="recorder") as exe:
        exe.update(build(a=2.0, value=3, grid=4))
        assert (exe.stats.instantiations, exe.stats.updates) == (1, 2)
        exe.update(build(a=2.0, value=3, grid=4))
        assert (exe.stats.instantiations, exe.stats.updates) == (1, 2)
        exe.update(build(child_value=5), rebuild=True)
        assert exe.stats.instantiations == 2


class Elementwise:
    """Compares as arrays of other libraries do, and has what they have."""

    name = None

    def __init__(self, *values: int) -> None:
        self.values = np.array(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __eq__(self, other: object) -> Any:
        return self.values == other.values if isinstance(other, Elementwise) else NotImplemented

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("a", "b"),
    [(Elementwise(1, 2), Elementwise(1, 3)), ({1: "a", "b": 2}, {1: "a", "b": 3}), ([1, 2], (1, 2)), ({1, 2}, {1, 3})],
)
def test_explain_update_compares_whatever_a_callback_is_given(a: Any, b: Any) -> None:
    assert not hg.explain_update(build(args=(a,)), build(args=(a,)))
    (change,) = hg.explain_update(build(args=(a,)), build(args=(b,))).changes
    assert (change.node, change.field, change.in_place) == ("host", "args", True)


def test_explain_update_finds_a_variable_of_another_module() -> None:
    def upload(source: str) -> hg.Graph:
        g = hg.Graph("upload")
        g.memcpy(hg.Module(source).symbol("table"), g.host_array("h", [1.0, 2.0]), name="up")
        return g

    source = "__constant__ double table[2];"
    assert not hg.explain_update(upload(source), upload(source))
    (change,) = hg.explain_update(upload(source), upload(f"{source} // another")).changes
    assert (change.node, change.field, change.in_place) == ("up", "dst", False)
    assert "the module of 'table' was not compiled with the graph" in change.reason


def test_explain_update_says_where_arrays_of_a_child_lie() -> None:
    def outer(device: int | None) -> hg.Graph:
        inner = hg.Graph("inner")
        inner.device_array("y", shape=8, dtype="float32", device=device)
        g = hg.Graph("g")
        g.child(inner, name="child")
        return g

    (change,) = hg.explain_update(outer(None), outer(0)).changes
    assert change.reason == "what a child holds is fixed when it is built: arrays.y.device"


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("value", [[1, 2], Pair(1, 2), {"a": [1, 2]}])
def test_update_hands_callbacks_what_they_are_given(value: Any) -> None:
    given: list[Any] = []

    def graph(*values: Any) -> hg.Graph:
        g = hg.Graph("g")
        g.host(given.append, values, reads=[], name="host")
        return g

    with graph(None).compile(runtime="cpu") as exe:
        exe.update(graph(value))
        exe.run()
    assert given == [value]
    assert type(given[0]) is type(value)


def test_explain_update_names_a_parameter_whose_default_is_another() -> None:
    old, new = hg.Graph("old"), hg.Graph("new")
    old.param("a", "float32", 1.0)
    new.param("a", "float32", 2.0)
    assert str(hg.explain_update(old, new)).endswith("in place  graph.parameters.a.default: 1.0 -> 2.0")


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("holder", ["child", "conditional"])
def test_update_passes_over_the_default_of_what_a_node_binds(holder: str) -> None:
    def graph(default: int, bound: bool) -> hg.Graph:
        inner, g = hg.Graph("inner"), hg.Graph("outer")
        inner.memset(inner.device_array("x", shape=4, dtype="i4"), inner.param("v", "i4", default))
        bind = {"x": g.device_array("y", shape=4, dtype="i4")} | ({"v": 5} if bound else {})
        if holder == "child":
            g.child(inner, bind, name="holder")
        else:
            g.conditional("if", g.device_array("word", np.ones(1, "u4")), inner, bind=bind, name="holder")
        return g

    assert hg.explain_update(graph(1, True), graph(2, True)).in_place
    assert not hg.explain_update(graph(1, False), graph(2, False)).in_place
    with graph(1, True).compile("cpu") as exe:
        exe.update(graph(2, True))
        exe.run()
        assert exe.read("y").tolist() == [5] * 4


PAIR, SWAPPED, OTHER = (
    np.dtype(fields) for fields in ([("a", "f4"), ("n", "i4")], [("n", "i8"), ("a", "f8")], [("b", "f4"), ("n", "i4")])
)
GIVEN: list[tuple[Any, Any, Any, str]] = [
    ("f4", "f8", 2.5, ""),
    ("f4", "i4", 2.0, "it is no integer"),
    ("i8", "i4", 7, ""),
    ("i4", "c8", 7, ""),
    ("f4", "i4", 2.5, "it is no integer"),
    ("i8", "i4", 2**40, "the range is"),
    ("c8", "f4", 1j, "it is complex"),
    (PAIR, SWAPPED, (1.5, 2), ""),
    (PAIR, OTHER, (1.5, 2), "field 'b' is missing"),
    ("f4", PAIR, 1.0, "is a struct"),
]


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize(("old", "new", "value", "refused"), GIVEN)
def test_update_rebuild_keeps_what_a_launch_gave_to_a_parameter_of_another_dtype_or_changes_nothing(
    old: Any, new: Any, value: Any, refused: str, backend: Any
) -> None:
    def graph(dtype: Any) -> hg.Graph:
        g = hg.Graph("g")
        g.memset(g.host_array("y", shape=1, dtype=dtype), g.param("a", dtype, np.zeros(1, dtype)[0]))
        return g

    with graph(old).compile("cpu", backend) as exe:
        exe.run(a=value)
        before = exe.read("y")
        if refused:
            with pytest.raises(hg.DeclarationError, match=f"parameter 'a'.*{refused}"):
                exe.update(graph(new), rebuild=True)
        else:
            exe.update(graph(new), rebuild=True)
        exe.write("y", np.zeros(1, exe.read("y").dtype))
        exe.run()
        after = exe.read("y")
        assert after.dtype == (old if refused else new)
        assert all((after[name] == before[name]).all() for name in before.dtype.names or [...])


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(("shape", "dtype"), [(8, "f4"), (4, "f8")])
def test_update_rebuild_does_not_drop_the_memory_that_a_launch_gave(shape: int, dtype: str, copy: bool) -> None:
    def graph(shape: int, dtype: str) -> hg.Graph:
        g = hg.Graph("g")
        g.memcpy(g.host_array("y", shape=shape, dtype=dtype), g.param("v", dtype, np.zeros(shape, dtype), shape=shape, copy=copy))
        return g

    with graph(4, "f4").compile("cpu") as exe:
        exe.update(graph(shape, dtype), rebuild=True)  # no launch has given anything
    with graph(4, "f4").compile("cpu") as exe:
        exe.run(v=np.ones(4, "f4"))
        with pytest.raises(hg.DeclarationError, match=r"parameter 'v' has shape .*, where a launch has given it") as caught:
            exe.update(graph(shape, dtype), rebuild=True)
        assert caught.value.array == "v"
        exe.write("y", np.zeros(4, "f4"))
        exe.run()
        assert (exe.read("y") == 1).all()


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("place", ["", "c/", "d/c/"])
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_set_to_another_parameter_follows_that_one_from_then_on(backend: Any, place: str, inline: bool) -> None:
    g = hg.Graph("inner")
    x = g.host_array("x", shape=1, dtype="i4")
    named = {name: g.param(name, "i4", n) for n, name in enumerate("abc")}
    g.memset(x, named["a"], name="m")
    for name in reversed(place.split("/")[:-1]):
        outer = hg.Graph(f"of_{name}")
        array = outer.host_array("x", shape=1, dtype="i4")
        outer.child(g, name=name, bind={"x": array, **{each: outer.param(each, "i4", n) for n, each in enumerate("abc")}})
        g = outer
    with g.compile("cpu", backend, plan=hg.PlanOptions(inline=inline)) as exe:

        def ran(**given: int) -> int:
            exe.run(**given)
            return int(exe.read("x")[0])

        assert ran() == 0
        assert ran(a=5) == 5
        for name, other in (("b", "a"), ("c", "b"), ("a", "c")):
            exe.set(f"{place}m", value=named[name])
            now = ran()
            assert ran(**{other: 50}) == now, f"it still follows {other}"
            assert ran(**{name: 60}) == 60, f"it does not follow {name}"
        exe.set(f"{place}m", value=3)
        assert ran(a=70, b=70, c=70) == 3
        exe.set(f"{place}m", value=named["b"])
        assert ran() == 70
        assert ran(b=80) == 80
