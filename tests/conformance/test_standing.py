"""What stands at a place follows the rules of what is put there directly: places x what stands there x how it came there.

Each node is given an array directly; then the same array stands there for a parameter, or for an array of a child, by each way
there is. What is refused directly is refused each way for the same reason, and what is taken directly is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

MODULE = hg.Module(
    """__device__ int table[4];
    extern "C" __global__ void look(const int* p) { int i = threadIdx.x; if (p[i] == 77) __threadfence(); }
    extern "C" __global__ void put(int* p) { p[threadIdx.x] = 7; }
    extern "C" __global__ void wide(const int4* p) { if (p[0].x == 77) __threadfence(); }""",
    name="standing",
)


@pytest.fixture(scope="module", params=["recorder", "cpu"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


class Place(NamedTuple):
    """A node that is given an array `p` of four int32; `settable` has the fields by which `set` gives it."""

    add: Callable[[hg.Graph, Any], Any]
    settable: Callable[[Any], dict[str, Any]] | None = None


def nothing(*_: Any) -> None:
    pass


def _branch(g: hg.Graph, p: Any) -> None:
    body = hg.Graph("body")
    body.memset(body.device_array("y", shape=1, dtype="int32"), 1)
    g.conditional("if", p[0], body, name="n")


def _copy(g: hg.Graph, p: Any, *, to: bool) -> None:
    other = g.host_array("other", shape=4, dtype="int32")
    g.memcpy(*((p, other) if to else (other, p)), name="n")


PLACES: dict[str, Place] = {
    "host": Place(lambda g, p: g.host(nothing, (p,), name="n"), lambda p: {"args": (p,)}),
    "host reads": Place(
        lambda g, p: g.host(nothing, (p,), reads=[p], writes=[], name="n"), lambda p: {"args": (p,), "access": (hg.reads(p),)}
    ),
    "eager": Place(lambda g, p: g.eager(nothing, (p,), name="n"), lambda p: {"args": (p,)}),
    "eager reads": Place(
        lambda g, p: g.eager(nothing, (p,), reads=[p], writes=[], name="n"), lambda p: {"args": (p,), "access": (hg.reads(p),)}
    ),
    "captured": Place(lambda g, p: g.captured(nothing, (p,), name="n")),
    "kernel reads": Place(lambda g, p: g.kernel(MODULE["look"], 1, 4, (p,), name="n"), lambda p: {"args": (p,)}),
    "kernel writes": Place(lambda g, p: g.kernel(MODULE["put"], 1, 4, (p,), name="n"), lambda p: {"args": (p,)}),
    "kernel of vectors": Place(lambda g, p: g.kernel(MODULE["wide"], 1, 1, (p,), name="n"), lambda p: {"args": (p,)}),
    "memset": Place(lambda g, p: g.memset(p, 0, name="n"), lambda p: {"dst": p}),
    "memcpy to": Place(lambda g, p: _copy(g, p, to=True), lambda p: {"dst": p}),
    "memcpy from": Place(lambda g, p: _copy(g, p, to=False), lambda p: {"src": p}),
    "memory_ops": Place(lambda g, p: g.memory_ops([hg.write_value(p[0], 1)], name="n")),
    "condition": Place(_branch),
    "child": Place(lambda g, p: _in_child(g, PLACES["host"], p, "n")),
    "body": Place(lambda g, p: _in_body(g, PLACES["memset"], p, "n")),
}


def _inner(place: Place) -> hg.Graph:
    inner = hg.Graph("inner")
    place.add(inner, inner.param("q", "int32", shape=4))
    return inner


def _in_child(g: hg.Graph, place: Place, p: Any, name: str) -> None:
    g.child(_inner(place), bind={"q": p}, name=name)


def _in_body(g: hg.Graph, place: Place, p: Any, name: str) -> None:
    g.conditional("if", g.host_array("flag", np.zeros(1, "int32")), _inner(place), bind={"q": p}, name=name)


def _memory(*, shift: int = 0, writeable: bool = True) -> Any:
    """Sixteen bytes of NumPy's, `shift` bytes behind an address that is a multiple of 16."""
    raw = np.zeros(64, "u1")
    start = -raw.ctypes.data % 16 + shift
    found = raw[start : start + 16].view("int32")
    found.flags.writeable = writeable
    return found


OBJECTS = {
    "object": _memory(),
    "read-only object": _memory(writeable=False),
    "object at an odd address": _memory(shift=1),
    "object at an address of four": _memory(shift=4),
}


def _external(known: Any) -> Callable[[hg.Graph], Any]:
    return lambda g: g.external_array("p", known)


THINGS: dict[str, Callable[[hg.Graph], Any]] = {
    "device array": lambda g: g.device_array("p", np.zeros(4, "int32")),
    "host array": lambda g: g.host_array("p", np.zeros(4, "int32")),
    "pageable array": lambda g: g.host_array("p", np.zeros(4, "int32"), pinned=False),
    "part": lambda g: g.device_array("p", np.zeros(12, "int32"))[4:8],
    "part at an address of four": lambda g: g.device_array("p", np.zeros(12, "int32"))[1:5],
    "part of a host array": lambda g: g.host_array("p", np.zeros(12, "int32"))[4:8],
    "alloc": lambda g: g.alloc("p", 4, "int32").array.as_view(),
    "symbol": lambda g: MODULE.symbol("table"),
    **{name: _external(known) for name, known in OBJECTS.items()},
}
WHOLE = ("device array", "host array", "pageable array", *OBJECTS)
"""What an array parameter takes by its default or by a launch."""


def refusal(act: Callable[[], Any]) -> str:
    """Return the text with which the library refuses something; empty if it does not."""
    try:
        act()
    except hg.DeclarationError as error:
        return str(error)
    return ""


def directly(runtime: Runtime, place: Place, thing: str) -> str:
    """Return why a node refuses an array that it is given directly, without what says which argument is meant."""
    g = hg.Graph("direct")
    given = THINGS[thing](g)
    text = refusal(lambda: place.add(g, given))
    if not text:
        with g.compile(runtime) as exe:
            exe.run()
    found = re.sub(r"^node 'n': (argument '\w+' of kernel '\w+'(:| is [^:]*:) )?(.* cannot use: )?", "", text)
    return found.removesuffix("; list it in reads=[...]")


def by_default(runtime: Runtime, place: Place, thing: str) -> None:
    g = hg.Graph("default")
    place.add(g, g.param("p", "int32", OBJECTS.get(thing) if thing in OBJECTS else THINGS[thing](g), shape=4))
    _run(runtime, g)


def by_name(runtime: Runtime, place: Place, thing: str) -> None:
    """The array is declared behind the nodes, where no declaration sees both."""
    g = hg.Graph("named")
    place.add(g, g.param("p", "int32", "p", shape=4))
    THINGS[thing](g)
    found = [d.message for d in g.check().errors]
    text = refusal(lambda: _run(runtime, g, check=False))
    assert [re.sub(".*cannot use: ", "", text)] * bool(text) == [re.sub(".*cannot use: ", "", message) for message in found]
    if text:
        raise hg.DeclarationError(text)


def by_launch(runtime: Runtime, place: Place, thing: str) -> None:
    g = hg.Graph("launched")
    place.add(g, g.param("p", "int32", g.host_array("good", shape=4, dtype="int32"), shape=4))
    given = OBJECTS.get(thing) if thing in OBJECTS else THINGS[thing](g)
    with g.compile(runtime) as exe:
        exe.run()
        before = exe.parameters
        text = refusal(lambda: exe.run(p=given))
        if text:
            assert exe.parameters == before
        exe.run()  # with what it had, or again with what it has
        if isinstance(given, hg.DeviceArray | hg.HostArray):
            assert refusal(lambda: exe.run(p="p")) == text
            if given.on_device:  # other memory is page-locked when it is given as an object
                assert bool(refusal(lambda: exe.run(p=exe.array("p")))) == bool(text)
    if text:
        raise hg.DeclarationError(text)


def by_update(runtime: Runtime, place: Place, thing: str) -> None:
    def made(default: str) -> hg.Graph:
        g = hg.Graph("updated")
        place.add(g, g.param("p", "int32", default, shape=4))
        g.host_array("good", shape=4, dtype="int32")
        THINGS[thing](g)
        return g

    with made("good").compile(runtime) as exe:
        exe.run()
        exe.update(made("p"))
        exe.run()


def by_set(runtime: Runtime, place: Place, thing: str) -> None:
    settable = place.settable
    assert settable is not None
    g = hg.Graph("set")
    place.add(g, g.host_array("good", shape=4, dtype="int32"))
    p = g.param("p", "int32", THINGS[thing](g), shape=4)
    with g.compile(runtime) as exe:
        exe.run()
        text = refusal(lambda: exe.set("n", **settable(p)))
        exe.run()
    if text:
        raise hg.DeclarationError(text)


def by_bind(runtime: Runtime, place: Place, thing: str) -> None:
    g = hg.Graph("bound")
    _in_child(g, place, THINGS[thing](g), "c")
    _run(runtime, g)


def by_bind_twice(runtime: Runtime, place: Place, thing: str) -> None:
    middle = hg.Graph("middle")
    _in_child(middle, place, middle.param("m", "int32", shape=4), "c")
    g = hg.Graph("bound")
    g.child(middle, bind={"m": THINGS[thing](g)}, name="d")
    _run(runtime, g)


def by_body(runtime: Runtime, place: Place, thing: str) -> None:
    g = hg.Graph("branch")
    _in_body(g, place, THINGS[thing](g), "c")
    _run(runtime, g)


def _run(runtime: Runtime, g: hg.Graph, *, check: bool = True) -> None:
    with g.compile(runtime, check=check) as exe:
        exe.run()


DOORS = {
    by_default: WHOLE,
    by_name: WHOLE,
    by_launch: WHOLE,
    by_update: WHOLE,
    by_set: WHOLE,
    by_bind: tuple(THINGS),
    by_bind_twice: tuple(THINGS),
    by_body: tuple(THINGS),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PLACES)
def test_what_stands_at_a_place_follows_the_rules_of_what_is_put_there(name: str, door: Any, runtime: Runtime) -> None:
    place = PLACES[name]
    if door is by_set and place.settable is None:
        pytest.skip("no field of the node can be set")
    for thing in DOORS[door]:
        why = directly(runtime, place, thing)
        text = refusal(lambda: door(runtime, place, thing))  # noqa: B023  # called at once
        assert bool(text) == bool(why), (thing, why, text)
        assert why in text, (thing, why, text)


@pytest.mark.parametrize("door", [by_default, by_launch])
@pytest.mark.parametrize("thing", sorted(THINGS.keys() - set(WHOLE)))
def test_parameters_stand_for_whole_arrays_that_outlive_a_launch(thing: str, door: Any, runtime: Runtime) -> None:
    text = refusal(lambda: door(runtime, PLACES["memcpy to"], thing))
    assert re.search("'p' takes a whole array of the graph|'p',? (which )?is made by an alloc node", text)


# -- shapes ----------------------------------------------------------------------------------------------------------------


def _shaped(shape: Any, dtype: str = "int32") -> tuple[hg.Graph, hg.Parameter]:
    g = hg.Graph("shapes")
    p = g.param("p", "int32", shape=(2, 3))
    g.memset(p, 1)
    g.device_array("x", shape=shape, dtype=dtype)
    return g, p


def shape_by_launch(shape: Any, dtype: str, given: Callable[[hg.Executable], Any]) -> None:
    with _shaped(shape, dtype)[0].compile("recorder") as exe:
        exe.launch(p=given(exe))


def shape_by_default(shape: Any, dtype: str, given: Callable[[hg.Graph], Any], *, late: bool = False) -> None:
    g = hg.Graph("shapes")
    if late:
        g.memset(g.param("p", "int32", "x", shape=(2, 3)), 1)
    g.device_array("x", shape=shape, dtype=dtype)
    if not late:
        g.memset(g.param("p", "int32", given(g), shape=(2, 3)), 1)
    found = [d.message for d in g.check().errors]
    text = refusal(lambda: g.compile("recorder", check=False).close())
    assert [text] * bool(text) == found
    if text:
        raise hg.DeclarationError(text)


def shape_by_bind(shape: Any, dtype: str, name: str) -> None:
    inner = _shaped((2, 3))[0]
    g = _shaped(shape, dtype)[0]
    g.child(inner, bind={name: g.arrays["x"]})


SHAPE_DOORS: dict[str, Callable[[Any, str], None]] = {
    "launch by name": lambda shape, dtype: shape_by_launch(shape, dtype, lambda exe: "x"),
    "launch by array": lambda shape, dtype: shape_by_launch(shape, dtype, lambda exe: exe.workflow.arrays["x"]),
    "launch by memory": lambda shape, dtype: shape_by_launch(shape, dtype, lambda exe: exe.array("x")),
    "launch by object": lambda shape, dtype: shape_by_launch(shape, dtype, lambda exe: np.zeros(shape, dtype)),
    "default by name": lambda shape, dtype: shape_by_default(shape, dtype, lambda g: "x"),
    "default by later name": lambda shape, dtype: shape_by_default(shape, dtype, lambda g: None, late=True),
    "default by array": lambda shape, dtype: shape_by_default(shape, dtype, lambda g: g.arrays["x"]),
    "default by view": lambda shape, dtype: shape_by_default(shape, dtype, lambda g: g.arrays["x"].as_view()),
    "default by object": lambda shape, dtype: shape_by_default(shape, dtype, lambda g: np.zeros(shape, dtype)),
    "bind of a parameter": lambda shape, dtype: shape_by_bind(shape, dtype, "p"),
    "bind of an array": lambda shape, dtype: shape_by_bind(shape, dtype, "x"),
}


@pytest.mark.parametrize("door", SHAPE_DOORS)
def test_what_stands_for_a_parameter_has_its_shape_and_dtype(door: str) -> None:
    SHAPE_DOORS[door]((2, 3), "int32")
    for shape, dtype in (((3, 2), "int32"), ((6,), "int32"), ((2, 3, 1), "int32"), ((2, 3), "float32"), ((2, 3), "uint32")):
        text = refusal(lambda: SHAPE_DOORS[door](shape, dtype))  # noqa: B023  # called at once
        assert f"{dtype}[{', '.join(map(str, shape))}]" in text, (shape, dtype, text)
        assert "int32[2, 3]" in text


# -- overlap ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_launch_makes_no_copy_onto_itself(runtime: Runtime, inside: bool, ignored: bool) -> None:
    def declared() -> hg.Graph:
        g = hg.Graph("copies")
        x = g.device_array("x", np.arange(8, dtype="int32"))
        y = g.device_array("y", np.arange(8, dtype="int32"))
        p = g.param("p", "int32", y, shape=8)
        g.memcpy(x[1:], p[:-1], name="shift", ignore={"HG405": "the driver copies forward"} if ignored else None)
        g.memcpy(y[:4], p[4:], name="halves", after=["shift"])
        return g

    g, where = declared(), ""
    if inside:
        g, where = hg.Graph("outer"), "c/"
        g.child(declared(), name="c")
    with g.compile(runtime, check=False) as exe:
        exe.run()
        text = refusal(lambda: exe.run(**{f"{where}p": f"{where}x"}))
        assert bool(text) != ignored
        if text:
            assert f"'{where}p' is bound to memory that is array '{where}x' too: '{where}shift' copies between" in text
            assert "bytes 4..32" in text
        assert not refusal(lambda: exe.run(**{f"{where}p": f"{where}y"}))


# -- defaults that are arrays ------------------------------------------------------------------------------------------------


def _with_default(given: Callable[[hg.Graph], Any]) -> hg.Graph:
    g = hg.Graph("default")
    g.device_array("z", np.arange(4, dtype="u4"))
    out = g.host_array("out", shape=4, dtype="u4")
    g.memcpy(out, g.param("ap", "u4", given(g), shape=4))
    return g


@pytest.mark.parametrize(
    "given", [lambda g: "z", lambda g: g.arrays["z"], lambda g: g.arrays["z"].as_view(), lambda g: g.arrays["z"][:]]
)
def test_a_default_that_is_an_array_is_kept_on_every_way(runtime: Runtime, given: Any) -> None:
    g = _with_default(given)
    again = hg.Graph.from_json(g.to_json())
    assert again.to_json() == g.to_json()
    for made in (g, again, hg.Graph.from_networkx(g.dag), hg.Graph.from_workflow(g.workflow())):
        with made.compile(runtime) as exe, g.compile(runtime) as other:
            other.update(made)
            for each in (exe, other):
                each.run()
                if runtime.name == "cpu":
                    assert each.read("out").tolist() == [0, 1, 2, 3]


def test_a_default_that_is_a_part_of_an_array_is_refused_where_it_is_declared() -> None:
    for given in (lambda g: g.arrays["out"][:2], lambda g: hg.Graph("h").device_array("z", shape=4, dtype="u4")):
        with pytest.raises(hg.DeclarationError, match="parameter 'ap'"):
            _with_default(given)


# -- memory of the parameter's own, and of modules -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("where", ["top", "child", "body"])
def test_host_nodes_take_parameters_that_copy(backend: Any, where: str) -> None:
    seen: list[Any] = []
    g = hg.Graph("copies")
    p = g.param("p", "int32", shape=4, default=np.arange(4, dtype="int32"), copy=True)
    g.host(lambda p: seen.append(p.tolist()), (p,), reads=[p], writes=[])
    name = "p"
    if where == "child":
        outer = hg.Graph("outer")
        outer.child(g, name="c")
        g, name = outer, "c/p"
    elif where == "body":
        outer = hg.Graph("outer")
        outer.conditional("if", outer.host_array("flag", np.ones(1, "int32")), g, name="c")
        g, name = outer, "c/0/p"
    with g.compile("cpu", backend) as exe:
        exe.run()
        exe.run(**{name: np.full(4, 7, "int32")})
    assert seen == [[0, 1, 2, 3], [7, 7, 7, 7]]


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_variable_of_a_module_stands_for_a_child_s_parameter(backend: Any, depth: int) -> None:
    g = hg.Graph("inner")
    symbol = MODULE.symbol("table")
    if not depth:
        g.kernel(MODULE["put"], 1, 4, (symbol,))
    else:
        g.kernel(MODULE["put"], 1, 4, (g.param("p", "int32", shape=4),))
    for level in range(1, depth + 1):
        outer = hg.Graph(f"outer_{level}")
        outer.child(g, bind={"p": symbol if level == depth else outer.param("p", "int32", shape=4)})
        g = outer
    out = g.host_array("out", shape=4, dtype="int32")
    assert MODULE in g.workflow().modules
    with g.compile("cpu", backend) as exe:
        exe.run()
    g.memcpy(out, symbol)
    with hg.Graph.from_json(g.to_json()).compile("cpu", backend) as exe:
        exe.run()
        assert exe.read("out").tolist() == [7] * 4
