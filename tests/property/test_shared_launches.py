"""A launch like an earlier one, whose shared fields are not validated again, is what a first one would be: node or error."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.nodes import same
from hipgraphdsl.nodes.values import Names

MODULE = hg.Module(
    """
    __constant__ int bound;
    extern "C" __global__ void one(const int* x, float4* y, short n, double a) { y[0].x = x[n] * a * bound; }
    extern "C" __global__ void two(float* x, void* p, float b, unsigned char c, bool d) { x[c] = b; }
    """,
    name="shared",
)
g = hg.Graph("g")
X = g.device_array("x", shape=(8, 8), dtype="int32")
Y = g.device_array("y", shape=(8, 8), dtype="float32")
PAGEABLE = g.host_array("pageable", shape=8, dtype="int32", pinned=False)
FIXED = g.external_array("fixed", np.broadcast_to(np.int32(3), (1,)))
SHAPED = g.param("shaped", "int32", shape=8)
SIZE, REAL = g.param("size", "int16", default=1), g.param("real", "float64", default=1.0)
OTHER = hg.Graph("other").device_array("x", shape=(8, 8), dtype="int32")
ALLOC = g.alloc("made", 16, "float32")

ARRAYS = (
    X,
    Y,
    X[1],
    X[:, 1],
    Y[2],
    Y[3, 1:],
    Y[::2, :4],
    PAGEABLE,
    FIXED,
    SHAPED,
    SHAPED[2:],
    OTHER,
    ALLOC,
    MODULE.symbol("bound"),
)
ACCESSES = tuple(mode(array) for mode in (hg.reads, hg.writes, hg.updates) for array in ARRAYS)
NUMBERS = (
    *(0, 1, True, -1, 255, 256, 2**15 - 1, 2**15, 2**80, 1.0, 0.5, 1e39, float("nan"), float("inf"), 1j, "1", b"1", (1, 2)),
    *(
        np.int16(3),
        np.int64(-3),
        np.float32(0.1),
        np.float64(1e300),
        np.bool_(True),
        np.array(2),
        np.array([2]),
        SIZE,
        REAL,
        None,
    ),
)
ARGUMENTS = st.sampled_from((*ARRAYS, *ACCESSES, *NUMBERS))
RIGHT = {
    "one": st.tuples(
        st.sampled_from((X, X[1], hg.reads(X[:, 1]), SHAPED)),
        st.sampled_from((Y, Y[2])),
        st.sampled_from((3, SIZE)),
        st.just(0.5),
    ),
    "two": st.tuples(st.just(Y), st.sampled_from((X, None, Y[2])), st.just(0.1), st.just(7), st.just(True)),
}
EXTENTS = st.sampled_from(
    (1, 2, (1,), (2, 1), (2, 1, 1), [2], True, 1.0, 2.0, (2.0, 1, 1), (2, True, 1), np.int64(2), 0, -1, 2048, SIZE, "1")
)
ARGS = st.one_of(*RIGHT.values(), st.lists(ARGUMENTS, max_size=5), st.just({"x": X, "y": Y, "n": 3, "a": 0.5}), st.just(X))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(("a", "b c", "", "a/b", " a", "x" * 201, 3, None)),
    "source": st.sampled_from((None, ("f.py", 1), ["f.py", 1], ("f.py", True), ("f.py",), (1, 2), "f.py")),
    "after": st.sampled_from(((), ("n",), ["n"], (1,), "n", None)),
    "ignore": st.sampled_from((None, {}, {"HG101": "known"}, "HG101")),
    "shared_bytes": st.sampled_from((0, 16, True, 16.0, -1, np.int32(16), "16")),
    "cooperative": st.sampled_from((False, True, 0, 1, "yes", None)),
    "priority": st.sampled_from((None, 0, -1, True, 1.0, 2**40)),
    "cluster": st.sampled_from((None, 1, (1, 1, 1), 2, 9)),
    "device": st.sampled_from((None, 0, 1, True, 1.0, -1)),
    "kernel": st.sampled_from((MODULE["two"], "one", None)),
    "plain": st.just(True),
    "accesses": st.just(()),
}


def made(data: dict[str, Any]) -> Any:
    """Return what a node is made of, or what the error says."""
    try:
        node = hg.KernelNode(**data)
    except hg.DeclarationError as error:
        return type(error), str(error), error.node, error.array, error.field
    stored = [node.__dict__[name] for name in hg.KernelNode.model_fields]
    follows = [getattr(node, n) for n in ("accesses", "addresses", "parameters", "plain", "alike", "least_threads", "signature")]
    pydantic = [node.model_fields_set, node.__pydantic_extra__, node.__pydantic_private__, node.model_dump()]
    return [*stored, *follows, *pydantic, [*node.__dict__][: len(stored)]]


@st.composite
def launches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return the fields of a launch that is right, and of others that differ from it in one or two fields."""
    kernel = draw(st.sampled_from(sorted(RIGHT)))
    args = draw(RIGHT[kernel])
    right = {"name": "a", "kernel": MODULE[kernel], "grid": (2, 1, 1), "block": 1, "args": args, "shared_bytes": 16, "device": 1}
    right |= {"cooperative": draw(st.booleans()), "priority": draw(st.sampled_from((None, 1))), "cluster": None}
    found = [right]
    for _ in range(3):
        data = dict(right)
        for field in draw(st.lists(st.sampled_from(("grid", "block", "args", *sorted(FIELDS))), min_size=1, max_size=2)):
            data[field] = draw(ARGS if field == "args" else EXTENTS if field in ("grid", "block") else FIELDS[field])
            if field == "args" and draw(st.booleans()):  # one argument is another one
                at = draw(st.integers(0, len(args) - 1))
                data["args"] = (*args[:at], draw(ARGUMENTS), *args[at + 1 :])
        if draw(st.integers(0, 4)) == 0:
            del data[draw(st.sampled_from(sorted(data)))]
        found.append(data)
    return found


def _first(data: dict[str, Any]) -> Any:
    """Return what is made of these fields if nothing is known of earlier launches."""
    for kernel in ("one", "two"):
        MODULE[kernel].launches.clear()
    return made(data)


@settings(max_examples=500, deadline=None)
@given(launches())
@example([{"name": "a", "kernel": MODULE["one"], "grid": grid, "block": 1, "args": (X, Y, 3, 0.5)} for grid in (1, True, 1.0)])
@example(
    [{"name": "a", "kernel": MODULE["one"], "grid": 1, "block": 1, "args": (X, y, 3, 0.5)} for y in (Y, Y[3, 1:], hg.reads(Y))]
)
def test_a_launch_like_an_earlier_one_is_what_a_first_one_would_be(launches: list[dict[str, Any]]) -> None:
    alone = [_first(data) for data in launches]
    after = [made(data) for data in (*launches, *launches)][len(launches) :]
    assert len(alone) == len(after)
    for data, one, other in zip(launches, alone, after):
        assert same(one, other) or repr(one) == repr(other), data


STORED: dict[str, Any] = {
    "name": "a",
    "kernel": "shared:one",
    "grid": [2, 1],
    "block": 1,
    "args": ["x", "y[2]", {"param": "size"}, 0.5],
    "shared_bytes": 16,
    "after": ["n"],
}
"""A launch as a file holds it."""
DATA = st.sampled_from(
    (
        *(None, True, 0, 1, 2, -1, 2**70, 1.0, 0.1, "", "a", "x", "y", "z", "x[1]", "y[3, 1:8]"),
        *("shared:two", "no:one", "shared:", "one", [], [1], [2, True], ["n"], ["x", "y", 3, 1], [{"param": "size"}]),
        *({"param": "real"}, {"reads": "x[0:8, 1]"}, {"writes": "x"}, {"str": "x"}, {"complex": [1, 0]}),
        *({"no": 1}, {}, {"HG203": "known"}),
    )
)


def stored(data: dict[str, Any]) -> Any:
    """Return what a node of a file is made of, or what the error says."""
    names = Names({"x": X, "y": Y}, {"size": SIZE, "real": REAL}, {"shared": MODULE})
    try:
        node = hg.KernelNode.from_data(deepcopy(data), names, ("f.json", 3))
    except hg.DeclarationError as error:
        return type(error), str(error), error.node, error.array, error.field
    return [node, node.source, node.accesses, node.addresses, node.parameters, node.model_fields_set, node.to_data(names)]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("args", *FIELDS, "grid", "block", 0, 1, 2, 3)), DATA), max_size=2), st.booleans())
def test_a_launch_of_a_file_like_an_earlier_one_is_what_a_first_one_would_be(
    changes: list[tuple[str | int, Any]], lacks: bool
) -> None:
    data = deepcopy(STORED)
    for where, value in changes:
        if isinstance(where, str):
            data[where] = value
        elif isinstance(data["args"], list) and where < len(data["args"]):
            data["args"][where] = value
    if lacks and changes:
        data.pop(str(changes[0][0]), None)
    MODULE["one"].launches.clear()
    MODULE["two"].launches.clear()
    alone = stored(data)
    stored(STORED)
    kept = len(MODULE["one"].launches)
    after = [stored(data) for _ in range(2)]
    assert kept
    for again in after:
        assert same(alone, again) or repr(alone) == repr(again)


def test_launches_are_shared_by_kernel_extents_and_attributes() -> None:
    kernel = MODULE["two"]
    kernel.launches.clear()
    data: dict[str, Any] = {"name": "a", "kernel": kernel, "args": (Y, X, 0.1, 7, True)}
    for grid, block in ((1, 2), (1, 2), ((1, 1, 1), 2), (2, 2)):
        hg.KernelNode(grid=grid, block=block, **data)
    first, second = (hg.KernelNode(grid=2, block=2, **data) for _ in range(2))
    assert len(kernel.launches) == 3
    assert first.alike is second.alike
    assert first.grid is second.grid


def test_launches_that_are_kept_are_limited() -> None:
    kernel = MODULE["two"]
    for grid in range(1, 1100):
        hg.KernelNode(name="a", kernel=kernel, grid=grid, block=1, args=(Y, X, 0.1, 7, True))
    assert len(kernel.launches) < 1025


SOURCES = ("x", "y", "z", "tile", "row", "reads", "again", "made", "given", "foreign")
LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from(("pair", "scaled", "opaque")),
        st.sampled_from((1, 2, (1, 1), True)),
        st.tuples(st.sampled_from(SOURCES), st.sampled_from(SOURCES), st.sampled_from((1, 300, True, 2**40, SIZE.name, 1.0))),
        st.sampled_from(({}, {}, {}, {"after": ["first"]}, {"name": "a/b"}, {"name": "own"}, {"ignore": {"HG203": "known"}})),
        st.sampled_from(("", "", "", "check", "list")),
    ),
    min_size=2,
    max_size=12,
)
REPEATED = hg.Module(
    """
    extern "C" __global__ void pair(const float* a, float* b, int n) { b[n] = a[n]; }
    extern "C" __global__ void scaled(float* a, float* b, short n) { b[n] = a[n]; }
    extern "C" __global__ void opaque(void* a, const float4* b, int n) { }
    """,
    name="repeated",
)


def _declared(launches: list[Any], forget: bool) -> tuple[list[Any], list[Any]]:
    """Return what a graph of these launches holds, and the errors; with `forget` it knows no earlier launch."""
    g = hg.Graph("g")
    made: dict[str, Any] = {name: g.device_array(name, shape=(8, 8), dtype="float32") for name in "xyz"}
    size = g.param("size", "int16", default=1)
    made |= {"tile": made["x"][2:4, 1:3], "row": made["y"][3], "reads": hg.reads(made["x"]), "again": made["x"][3:4]}
    made |= {"made": g.alloc("m", (8, 8), "float32"), "given": g.param("given", "float32", shape=(8, 8)), "foreign": FOREIGN}
    g.empty(name="first")
    errors: list[Any] = []
    for kernel, grid, (one, other, n), options, more in [*launches, *launches, *launches]:
        args: Any = made[one], made[other], size if n == "size" else n
        if forget:
            g._draft.launches = type(g._draft.launches)()
        try:
            g.kernel(REPEATED[kernel], grid, 1, [*args] if more == "list" else args, **options)
        except hg.DeclarationError as error:
            errors.append((str(error), error.node, error.array, error.field))
        if more == "check":
            g.check()
    draft = g._draft
    held = [
        [node.__dict__[name] for name in hg.KernelNode.model_fields if name != "source"]
        + [node.accesses, node.addresses, node.parameters, node.needs, sorted(node.model_fields_set)]
        for node in g
        if isinstance(node, hg.KernelNode)
    ]
    return [repr(held), draft.predecessors, [[*map(str, each)] for each in draft.reasons], g.to_json()], errors


FOREIGN = hg.Graph("foreign").device_array("x", shape=(8, 8), dtype="float32")


@settings(max_examples=150, deadline=None)
@given(LAUNCHES)
def test_a_launch_that_repeats_one_of_its_graph_is_what_it_would_be_without_it(launches: list[Any]) -> None:
    graph, errors = _declared(launches, False)
    assert (graph, errors) == _declared(launches, True)
    again = hg.Graph.from_json(graph[-1])
    assert again.to_json() == graph[-1]
    assert again._draft.predecessors == graph[1]


def test_launches_that_repeat_one_share_their_arguments_and_accesses() -> None:
    g = hg.Graph("g")
    x, y = (g.device_array(name, shape=8, dtype="float32") for name in "xy")
    nodes = [g.kernel(REPEATED["pair"], 1, 1, args) for args in ((x, y, 3), (y, x, 3)) for _ in range(3)]
    assert nodes[2].args is nodes[1].args
    assert nodes[5].accesses is nodes[4].accesses
    assert [node.name for node in nodes] == ["pair", "pair_2", "pair_3", "pair_4", "pair_5", "pair_6"]
    again = hg.Graph.from_json(g.to_json())
    assert again["pair_3"].accesses is again["pair_2"].accesses
    lines = [node.source[1] for node in again if node.source is not None]
    assert lines == [*range(lines[0], lines[0] + 6)]
