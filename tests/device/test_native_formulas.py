"""Compiled code computes arguments, extents and views from parameters as Python does, and leaves to Python what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.parts.fast.call_path import CompiledPath
from hipgraphdsl.parts.fast.extension import native

pytestmark = pytest.mark.skipif(native() is None, reason="no Python headers or no compiler: the extension module cannot be built")

BACKENDS = ["explicit", "capture", "streams", "serial"]
TYPES = {"signed char": "i1", "unsigned char": "u1", "short": "i2", "unsigned short": "u2", "int": "i4", "unsigned int": "u4",
         "long long": "i8", "unsigned long long": "u8"}  # fmt: skip
MODULE = hg.Module(
    r"""
extern "C" __global__ void grow(int* x, const int* by, int n) { x[threadIdx.x] += by[threadIdx.x] + n; }
extern "C" __global__ void extent(int* x) { if (!threadIdx.x) atomicAdd(x, blockDim.x + 100 * blockDim.y); }
extern "C" __global__ void wide(int* x, const float4* by) { x[threadIdx.x] += (int)by->x; }
"""
    + "\n".join(
        f'extern "C" __global__ void put_{code}({name} value, unsigned long long* out) {{ *out += value; }}'
        for name, code in TYPES.items()
    )
)


def outcomes(
    graph: hg.Graph, backend: Any, launches: Sequence[Mapping[str, Any]], *, compiled: bool
) -> tuple[list[Any], list[bool], int]:
    """Launch with these values; return what came of each launch, which of them compiled code did, and how often it was built."""
    runtime = hg.open_runtime("cpu")
    with pytest.MonkeyPatch.context() as patched:
        if not compiled:
            patched.setattr(runtime, "launcher", lambda slow: None)
        try:
            merges = graph.name == "batch" and backend in ("explicit", "capture")
            exe = graph.compile(runtime, backend, batch=True if merges else "auto")
            program: Any = exe._own.program
            assert not merges or len(program.batches) > 2
        except hg.DeclarationError as error:  # of the defaults
            return [str(error)], [], 0
        with exe:
            log, fast = list[Any](), list[bool]()
            for values in launches:
                launcher = exe._own.compiled.launcher
                before = 0 if launcher is None else launcher.launches
                try:
                    exe.launch(**values)
                except hg.HipGraphError as error:
                    log.append(re.sub("0x[0-9a-f]+", "", str(error)))
                exe.synchronize()
                fast.append(launcher is not None and launcher.launches > before)
                log.append([exe.read(name).tolist() for name in graph.arrays])
            return log, fast, exe.stats.instantiations


def require_same(graph: hg.Graph, backend: Any, launches: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Require that compiled code and Python do the same; return which launches compiled code did."""
    log, fast, built = outcomes(graph, backend, launches, compiled=True)
    wanted, slow, instantiations = outcomes(graph, backend, launches, compiled=False)
    assert (log, built) == (wanted, instantiations)
    assert not any(slow)
    return fast


def started(name: str) -> tuple[hg.Graph, Any, Any, Any, Any]:
    """Return a graph with two arrays and two parameters."""
    g = hg.Graph(name)
    x, rows = g.device_array("x", np.zeros(4, "i4")), g.device_array("rows", np.arange(64, dtype="i4").reshape(4, 4, 4))
    return g, x, rows, g.param("i", "int32", 1, min=0, max=3), g.param("n", "int32", 2, min=-9, max=40)


def argument() -> hg.Graph:
    g, x, rows, i, n = started("argument")
    g.kernel(MODULE["grow"], 1, 4, (x, rows[0, 0], hg.maximum(n // 3, -n) % 5 - i * 2))
    g.kernel(MODULE["put_u1"], 1, 1, (n + 200 + i * 10, g.device_array("out", np.zeros(1, "u8"))))
    return g


def view() -> hg.Graph:
    g, x, rows, i, n = started("view")
    for k in range(3):
        g.kernel(MODULE["grow"], 1, 4, (hg.updates(x), hg.reads(rows[i, 3 - i]), k))
        g.kernel(MODULE["grow"], 1, 4, (x, rows[k, i], n))
    return g


def moved_vector() -> hg.Graph:
    g, x, _, i, n = started("moved_vector")
    floats = g.device_array("floats", np.arange(64, dtype="f4"))
    g.kernel(MODULE["wide"], 1, 4, (x, hg.reads(floats[i * 4 : i * 4 + 4])))
    g.kernel(MODULE["wide"], 1, 1, (x, hg.reads(floats[hg.minimum(n % 8, 6) * 2 : hg.minimum(n % 8, 6) * 2 + 4])))
    g.kernel(MODULE["grow"], 1, 4, (x, x, n))
    return g


def extents() -> hg.Graph:
    g, x, rows, i, n = started("extents")
    g.kernel(MODULE["extent"], (hg.ceil_div(n, 8), 1, i + 1), 8, (x[:1],))
    g.kernel(MODULE["extent"], 2, (i + 1, hg.maximum(n, 1) * 20, 1), (x[1:2],))
    g.kernel(MODULE["grow"], 1, 4, (x, rows[1, 1], 1))
    return g


def child() -> hg.Graph:
    g, x, rows, i, n = started("child")
    inner = hg.Graph("inner")
    to, by = inner.param("to", "i4", shape=4), inner.device_array("by", np.arange(16, dtype="i4").reshape(4, 4))
    j, m = inner.param("j", "int32", 0, min=0, max=3), inner.param("m", "uint8", 0)
    inner.kernel(MODULE["grow"], 1, 4, (to, by[j], 5 - j))
    inner.kernel(MODULE["put_u1"], 1, 1, (m // 3, inner.device_array("third", np.zeros(1, "u8"))))
    g.child(inner, bind={"to": x, "j": 3 - i, "m": n * 9}, name="child")
    g.kernel(MODULE["grow"], 1, 4, (x, rows[2, 2], i))
    return g


def batch() -> hg.Graph:
    g, x, rows, i, n = started("batch")
    for k in range(6):
        y = g.device_array(f"y{k}", np.zeros(4, "i4"))
        g.kernel(MODULE["grow"], 1, 4, (y, rows[i, k % 4], n * k - i))
    for k in range(3):
        g.kernel(MODULE["extent"], i + 1 if k else 2, 4, (g.device_array(f"z{k}", np.zeros(1, "i4")),))
    g.kernel(MODULE["grow"], 1, 4, (x, rows[i, 0], i))
    return g


def segments() -> hg.Graph:
    g, x, rows, i, n = started("segments")
    g.kernel(MODULE["grow"], 1, 4, (x, rows[i, 1], n + i))
    g.eager(lambda stream, x: None, (hg.updates(x),), name="step")
    g.kernel(MODULE["grow"], 1, 4, (x, rows[1, i], n - i))
    return g


def with_a_copy() -> hg.Graph:
    g, x, rows, i, n = started("with_a_copy")
    g.kernel(MODULE["grow"], 1, 4, (x, rows[i, 1], n + i))
    g.memcpy(rows[3, i], x)
    g.kernel(MODULE["grow"], 1, 4, (x, rows[3, i], n * 2))
    return g


GRAPHS: dict[Callable[[], hg.Graph], int] = {
    argument: 14, view: 16, moved_vector: 11, extents: 5, child: 11, batch: 10, segments: 16, with_a_copy: 10,
}  # fmt: skip
"""Graphs, each with the number of the launches below that compiled code does: those that give nothing new, or what it may set."""
LAUNCHES: list[dict[str, Any]] = [
    {}, {"i": 2}, {"i": 3, "n": 7}, {"n": 7}, {"n": 20}, {"i": 0, "n": 5}, {"i": 4}, {}, {"n": 41}, {"n": 40}, {"i": 3},
    {"n": 39, "i": 1}, {"n": -9}, {}, {"n": 0}, {"n": 8}, {"i": 2, "n": 3}, {"n": 2.5}, {"z": 1}, {"i": 1}, {"n": 4}, {"n": 5},
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("declared", GRAPHS)
def test_launches_that_compute_are_the_same_by_compiled_code(declared: Callable[[], hg.Graph], backend: Any) -> None:
    fast = require_same(declared(), backend, LAUNCHES)
    if backend == "capture" or (backend == "explicit" and declared is not child):
        assert sum(fast) == GRAPHS[declared], fast


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15)
@given(
    declared=st.sampled_from(list(GRAPHS)),
    launches=st.lists(
        st.fixed_dictionaries({}, optional={"i": st.integers(0, 3), "n": st.integers(-9, 40) | st.sampled_from([0, 8, 16])}),
        min_size=3,
        max_size=12,
    ),
)
def test_any_launches_that_compute_are_the_same_by_compiled_code(
    declared: Callable[[], hg.Graph], launches: list[dict[str, int]], backend: Any
) -> None:
    require_same(declared(), backend, launches)


NUMBERS = st.integers(-3, 3) | st.integers(-(2**65), 2**65) | st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 64])
OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a < b,
    lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: -a, hg.ceil_div, hg.minimum, hg.maximum,
]  # fmt: skip
DRAWN = {"a": "i4", "b": "u1", "c": "i8", "d": "u8", "e": "?"}
FORMULAS = st.recursive(
    NUMBERS | st.sampled_from(list(DRAWN)), lambda inner: st.tuples(st.sampled_from(OPERATIONS), inner, inner), max_leaves=9
)


def expression(drawn: Any, parameters: Mapping[str, hg.Parameter]) -> Any:
    if isinstance(drawn, tuple):
        operation, *operands = drawn
        return operation(*(expression(each, parameters) for each in operands))
    return parameters[drawn] if isinstance(drawn, str) else drawn


@settings(max_examples=150)
@given(
    drawn=FORMULAS,
    code=st.sampled_from(list(TYPES.values())),
    launches=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "a": NUMBERS.filter(lambda a: -(2**31) <= a < 2**31), "b": st.integers(0, 255) | st.integers(0, 3),
                "c": NUMBERS.filter(lambda c: -(2**63) <= c < 2**63), "d": NUMBERS.filter(lambda d: 0 <= d < 2**64),
                "e": st.booleans(),
            },
        ),
        min_size=3,
        max_size=8,
    ),
)  # fmt: skip
def test_any_expression_has_python_s_value_or_error(drawn: Any, code: str, launches: list[dict[str, Any]]) -> None:
    g = hg.Graph("drawn")
    out = g.device_array("out", np.zeros(1, "u8"))
    parameters = {name: g.param(name, dtype, 1) for name, dtype in DRAWN.items()}
    try:
        value = expression(drawn, parameters)
        if not isinstance(value, hg.Expression):
            reject()
        g.kernel(MODULE[f"put_{code}"], 1, 1, (value, out))
    except (hg.DeclarationError, ZeroDivisionError):  # a constant divides by zero, or is no value of the type
        reject()
    require_same(g, "explicit", [{}, *used(launches, value)])


def used(launches: list[dict[str, Any]], value: hg.Expression) -> list[dict[str, Any]]:
    """Return the launches without values that nothing depends on, which are Python's."""
    names = {term.name for term in value.terms}
    return [{name: given for name, given in values.items() if name in names} for values in launches]


@pytest.mark.parametrize(
    ("code", "made", "launches"),
    [
        ("i8", lambda p: p["c"] * p["c"] % 7, [{"c": 2**33}, {"c": -(2**62)}, {"c": 5}]),
        ("i8", lambda p: -p["c"] // 4, [{"c": -(2**63)}, {"c": 2**63 - 1}, {"c": 5}]),
        ("i8", lambda p: p["c"] // p["a"] // 4, [{"c": -(2**63), "a": -1}, {"a": 0}, {"c": 7, "a": -2}]),
        ("i8", lambda p: p["c"] % p["a"], [{"c": -(2**63), "a": -1}, {"a": 0}, {"c": 7, "a": -2}, {"c": -7, "a": 2}]),
        ("i8", lambda p: hg.ceil_div(p["c"], p["a"]) // 4, [{"c": -(2**63), "a": -1}, {"a": 0}, {"c": 7, "a": -2}]),
        ("i8", lambda p: (p["c"] + p["c"]) // 4, [{"c": 2**62}, {"c": -(2**62) - 1}, {"c": 6}]),
        ("i8", lambda p: (p["c"] - p["a"]) // 4, [{"c": -(2**63), "a": 1}, {"c": 2**63 - 1, "a": -1}, {"c": 6}]),
        ("i8", lambda p: p["d"] // 2, [{"d": 2**64 - 2}, {"d": 2**63}, {"d": 8}]),
        ("u8", lambda p: p["d"] + 1, [{"d": 2**64 - 2}, {"d": 2**64 - 1}, {"d": 8}]),
        ("u8", lambda p: p["c"] - 1, [{"c": 0}, {"c": 2}, {"c": -(2**63)}]),
        ("u4", lambda p: p["c"] - 1, [{"c": 0}, {"c": 2**32}, {"c": 2**32 + 1}]),
    ],
)
def test_what_64_bits_do_not_hold_is_python_s(code: str, made: Callable[[Any], Any], launches: list[dict[str, int]]) -> None:
    g = hg.Graph("extreme")
    parameters = {name: g.param(name, dtype, 1) for name, dtype in DRAWN.items()}
    value = made(parameters)
    g.kernel(MODULE[f"put_{code}"], 1, 1, (value, g.device_array("out", np.zeros(1, "u8"))))
    launches = [{}, {"a": 2, "c": 9, "d": 4}, {"a": 3, "c": 10, "d": 7}, *launches, {"a": 1, "c": 5, "d": 1}]
    fast = require_same(g, "explicit", used(launches, value))
    assert fast[2]


def test_a_view_that_moves_follows_the_array_that_a_launch_gives() -> None:
    g = hg.Graph("given")
    i, table = g.param("i", "int32", 0, min=0, max=3), g.param("table", "int32", shape=(4, 4))
    x = g.device_array("x", np.zeros(4, "i4"))
    g.kernel(MODULE["grow"], 1, 4, (x, table[i], 1))
    runtime = hg.open_runtime("cpu")
    others = hg.Graph("others")
    for k in range(2):
        others.device_array(f"t{k}", np.arange(16, dtype="i4").reshape(4, 4) * (1 + 9 * k))
    with others.compile(runtime) as owner, g.compile(runtime) as exe:
        wanted, number, row = np.zeros(4, "i4"), 0, 0
        launches: list[dict[str, int]] = [
            {"table": 0, "i": 1}, {"table": 0, "i": 2}, {"table": 1, "i": 2}, {"i": 3}, {"i": 0}, {"table": 0},
            {"table": 0, "i": 1}, {"table": 1, "i": 1},
        ]  # fmt: skip
        for values in launches:
            number, row = values.get("table", number), values.get("i", row)
            exe.run(**values | ({"table": owner.array(f"t{number}")} if "table" in values else {}))
            wanted += (np.arange(4, dtype="i4") + 4 * row) * (1 + 9 * number) + 1
            assert exe.read("x").tolist() == wanted.tolist()


@pytest.mark.parametrize("begins", [0, 9])
@pytest.mark.parametrize(("apart", "least"), [(1, 0), (2, 1), (40, 100)])
def test_launches_of_nothing_let_compiled_code_serve_again_and_do_not_register_each_time(
    begins: int, apart: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[Any] = []
    register = CompiledPath.register
    monkeypatch.setattr(CompiledPath, "register", lambda *given: registered.append(register(*given)))
    g = hg.Graph("zero")
    n, k = g.param("n", "int32", begins, min=0, max=99), g.param("k", "int32", 1)
    x, rows = g.device_array("x", np.zeros(4, "i4")), g.device_array("rows", np.zeros(4, "i4"))
    g.kernel(MODULE["grow"], hg.ceil_div(n, 50), 4, (x, rows, k), name="some")
    g.kernel(MODULE["grow"], 1, 4, (x, rows, k * 2), name="other")
    launches = [{"n": 0 if at % (apart + 1) == apart else 10 + at % 50, "k": at // 2} for at in range(120)]
    fast = require_same(g, "explicit", [{}, *launches])
    assert sum(fast) >= least, fast
    assert 2 <= len(registered) <= 12
