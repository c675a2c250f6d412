"""Integer expressions of parameters: their values, bounds and texts are Python's, and they stand where an integer does."""

from __future__ import annotations

import copy
import operator
import pickle
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.arrays import Expression, MovingView, read_expression

SOURCE = r"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void put(long long* out, int at, long long value) {
  if (threadIdx.x == 0 && blockIdx.x == 0) { out[at] = value; out[7] = gridDim.x; }
}
extern "C" __global__ void narrow(signed char a, unsigned short b, bool c, unsigned char* out) { out[0] = a; }
extern "C" __global__ void real(float a, float* out) { out[0] = a; }
"""
MODULE = hg.Module(SOURCE)
N = 256


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


PYTHON: dict[str, Any] = {"ceil_div": ceil_div, "minimum": min, "maximum": max}
SIGNS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "ceil_div": hg.ceil_div, "minimum": hg.minimum, "maximum": hg.maximum,
}  # fmt: skip


def parameters() -> dict[str, hg.Parameter]:
    g = hg.Graph("g")
    return {
        "n": g.param("n", "int32", default=7, min=-20, max=50),
        "m": g.param("m", "uint8"),
        "k": g.param("k", "int64", min=1, max=9),
    }


KNOWN = parameters()


@st.composite
def expressions(draw: st.DrawFn) -> Any:
    leaf = st.one_of(st.integers(-9, 9), st.sampled_from(list(KNOWN.values())))
    value = draw(leaf)
    for _ in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from([*SIGNS, "neg"]))
        other = draw(leaf)
        try:
            if op == "neg":
                value = -value
            elif draw(st.booleans()):
                value = SIGNS[op](value, other)
            else:
                value = SIGNS[op](other, value)
        except (ZeroDivisionError, hg.DeclarationError):
            pass
        value = value if isinstance(value, hg.Parameter) else int(value)
    return value if isinstance(value, Expression) else KNOWN["n"] + value


@given(expressions(), st.integers(-20, 50), st.integers(0, 255), st.integers(1, 9))
def test_values_bounds_and_texts_are_those_of_python(expression: Any, n: int, m: int, k: int) -> None:
    values = {"n": n, "m": m, "k": k}
    try:
        wanted = int(eval(expression.name, {"__builtins__": {}}, {**PYTHON, **values}))
    except ZeroDivisionError:
        with pytest.raises(hg.DeclarationError, match="divides by zero"):
            expression.at(lambda parameter: values[parameter.name])
    else:
        assert expression.at(lambda parameter: values[parameter.name]) == wanted
        least, most = expression.bounds
        assert least <= wanted <= most
    again = read_expression(expression.name, KNOWN.__getitem__)
    assert again.name == expression.name
    assert (again.terms, again.bounds, again.default) == (expression.terms, expression.bounds, expression.default)


def test_bounds_are_as_narrow_as_intervals_allow() -> None:
    n, m, k = KNOWN.values()
    found = {
        str(e.name): e.bounds for e in (n + 1, n * k, -n // k, n % 8, hg.ceil_div(n, 256), n % -3, m // 16, hg.minimum(m, n))
    }
    assert found == {
        "n + 1": (-19, 51),
        "n * k": (-180, 450),
        "-n // k": (-50, 20),
        "n % 8": (0, 7),
        "ceil_div(n, 256)": (0, 1),
        "n % -3": (-2, 0),
        "m // 16": (0, 15),
        "minimum(m, n)": (-20, 50),
    }


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda n, m, k: n / 2, "write //"),
        (lambda n, m, k: 2 / n, "write //"),
        (lambda n, m, k: n + 1.5, "got 1.5"),
        (lambda n, m, k: n + "a", "got 'a'"),
        (lambda n, m, k: n // 0, "n // 0 divides by zero"),
        (lambda n, m, k: hg.ceil_div(n, 0), r"ceil_div\(n, 0\) divides by zero"),
        (lambda n, m, k: bool(n < m), "n < m is known when the graph is launched"),
        (lambda n, m, k: n < m < k, "n < m is known"),
        (lambda n, m, k: hg.Graph("f").param("f", "float32") + 1, "scalar integer"),
        (lambda n, m, k: hg.Graph("f").param("f", "int32", shape=3) + 1, "scalar integer"),
        (lambda n, m, k: sum([n] * 80), "operations inside each other"),
    ],
)
def test_what_is_no_expression_is_refused(make: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        make(*KNOWN.values())


@pytest.mark.parametrize(
    "text",
    [
        "n +", "n + q", "(n", "n)", "1 2", "n ** 2", "n.real", "f(n)", "minimum(n)", "minimum(n, m, k)", "n < m < k", "n & m",
        "__import__('os')",
        "n if m else k", "n +" * 800 + "n", "(" * 300 + "n" + ")" * 300, "-" * 300 + "n", "", "1.5 + n", "n//0",
    ],
)  # fmt: skip
def test_texts_of_files_that_are_no_expressions_are_refused(text: str) -> None:
    def find(name: str) -> hg.Parameter:
        if name not in KNOWN:
            raise hg.DeclarationError(f"there is no parameter {name!r}")
        return KNOWN[name]

    with pytest.raises(hg.DeclarationError):
        read_expression(text, find)


def test_numpys_integers_take_part() -> None:
    n = KNOWN["n"]
    assert (np.int64(3) * n).name == "3 * n"
    assert (n - np.uint8(2)).name == "n - 2"
    assert [hg.ceil_div(7, 2), hg.minimum(3, 4), hg.maximum(3, 4)] == [4, 3, 4]


def test_expressions_are_copied_and_pickled() -> None:
    expression = (KNOWN["n"] + 1) * KNOWN["k"]
    for again in (copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert (again.name, again.bounds, [term.name for term in again.terms]) == ("(n + 1) * k", (-171, 459), ["n", "k"])


# -- bounds of parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        ("float32", {"min": 1}, "scalar integers, and it is float32"),
        ("int32", {"min": 1, "shape": 3}, "scalar integers"),
        ("int32", {"min": 1.5}, "min is an integer that int32 holds"),
        ("uint8", {"max": 256}, "max is an integer that uint8 holds"),
        ("int32", {"min": 3, "max": 2}, "no value is within"),
        ("int32", {"default": 5, "max": 4}, "default is from -2147483648 to 4"),
    ],
)
def test_bounds_that_no_value_can_have_are_refused(dtype: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        hg.Graph("g").param("p", dtype, **given)


# -- in graphs -------------------------------------------------------------------------------------------------------------


Made = Callable[[hg.Parameter], Any]


@pytest.mark.parametrize(
    ("grid", "block", "args", "value", "text"),
    [
        (1, 1, lambda p: (p, 1, True), 127, ""),
        (1, 1, lambda p: (p + 1, 1, True), 127, r"p + 1 = 128 (p = 127), and signed char holds -128 to 127"),
        (1, 1, lambda p: (0, p - 2, True), 1, r"p - 2 = -1 (p = 1), and unsigned short holds 0 to 65535"),
        (1, 1, lambda p: (0, 1, p - 4), 6, r"p - 4 = 2 (p = 6), and bool holds 0 to 1"),
        (lambda p: 5 - p, 1, lambda p: (0, 1, True), 6, "grid.0 is 5 - p = -1 (p = 6), and must be at least 0"),
        (1, lambda p: p - 3, lambda p: (0, 1, True), 3, "block.0 is p - 3 = 0 (p = 3), and must be at least 1"),
        (1, lambda p: p * 11, lambda p: (0, 1, True), 127, "at most 1024 threads (got (1397, 1, 1))"),
        (lambda p: 7 // p, 1, lambda p: (0, 1, True), 0, "expression 7 // p divides by zero: p = 0"),
    ],
)
@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_values_that_a_launch_cannot_take_are_refused_with_nothing_changed(
    backend: Any, grid: Any, block: Any, args: Made, value: int, text: str
) -> None:
    g = hg.Graph("refused")
    p, out = g.param("p", "int8", default=4), g.device_array("out", shape=4, dtype="uint8")
    extents: list[Any] = [each(p) if callable(each) else each for each in (grid, block)]
    g.kernel(MODULE["narrow"], extents[0], extents[1], (*args(p), out), name="node")
    with g.compile(runtime="recorder", backend=backend) as exe:
        exe.run()
        with pytest.raises(hg.DeclarationError, match=re.escape(text)) if text else nullcontext():
            exe.run(p=value)
        assert exe.stats.launches == 1 + (not text)
        exe.run()
        assert exe.stats.launches == 2 + (not text)


@pytest.mark.parametrize("backend", ["explicit", "streams"])
def test_a_fill_takes_what_its_dtype_holds(backend: Any) -> None:
    g = hg.Graph("fill")
    p, out = g.param("p", "int16", default=4), g.device_array("out", shape=4, dtype="uint8")
    g.memset(out, p * 2)
    with g.compile(runtime="recorder", backend=backend) as exe:
        exe.run(p=127)
        with pytest.raises(hg.DeclarationError, match="256"):
            exe.run(p=128)
        exe.run()


@pytest.mark.parametrize(
    ("kernel", "args", "text"),
    [
        ("real", lambda n, out: (n + 1, out), "integer expression; compute it in the kernel"),
        ("axpy", lambda n, out: (1.0, n + 1, out, 3), "expression .n . 1. is a scalar"),
    ],
)
def test_arguments_that_take_no_integer_refuse_expressions(kernel: str, args: Any, text: str) -> None:
    g = hg.Graph("kinds")
    n, out = g.param("n", "int32"), g.device_array("out", shape=4, dtype="float32")
    with pytest.raises(hg.DeclarationError, match=text):
        g.kernel(MODULE[kernel], 1, 1, args(n, out))


def test_parameters_of_another_graph_are_refused_inside_expressions_too() -> None:
    g, other = hg.Graph("g"), hg.Graph("other")
    n, out = other.param("n", "int32"), g.device_array("out", shape=8, dtype="int64")
    with pytest.raises(hg.DeclarationError, match="graph 'g' has no parameter 'n'"):
        g.kernel(MODULE["put"], n + 1, 1, (out, 0, 0))
    g.param("n", "int32")
    with pytest.raises(hg.DeclarationError, match="belongs to another graph"):
        g.kernel(MODULE["put"], 1, 1, (out, 0, n * 2))


@pytest.mark.needs("bounds")
def test_a_launch_beyond_an_array_is_found_for_the_defaults_of_an_expression() -> None:
    g = hg.Graph("beyond")
    n = g.param("n", "int32", default=200)
    x, y = g.device_array("x", shape=N, dtype="f4"), g.device_array("y", shape=N, dtype="f4")
    g.kernel(MODULE["axpy"], over=n * 2, block=64, args=(1.0, x, y, n * 2))
    [found] = [each for each in g.check().diagnostics if each.code == "HG409"]
    assert "with the default n = 200" in found.message


# -- views -----------------------------------------------------------------------------------------------------------------

COPY = hg.Module(r"""
extern "C" __global__ void add(const int* from, int* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] += from[i];
}
extern "C" __global__ void quads(const int4* from, int* to) { to[threadIdx.x] += from[0].x; }
""")
ROWS, COLUMNS = 8, 24


def bounded(g: hg.Graph) -> dict[str, hg.Parameter]:
    return {"i": g.param("i", "int32", 0, min=0, max=ROWS - 1), "n": g.param("n", "int32", 5, min=0, max=COLUMNS // 2)}


@pytest.mark.parametrize(
    ("key", "name", "shape", "strides", "span", "contiguous"),
    [
        (lambda i, n: i, "x[i, 0:24]", (24,), (4,), (0, 768), True),
        (lambda i, n: (i, n), "x[i, n]", (), (), (0, 724), True),
        (lambda i, n: (7 - i, slice(n, n + 4)), "x[7 - i, n : n + 4]", (4,), (4,), (0, 736), True),
        (lambda i, n: (3, slice(None, n)), "x[3, 0:n]", (12,), (4,), (288, 336), True),
        (lambda i, n: slice(i, None), "x[i:8, 0:24]", (8, 24), (96, 4), (0, 768), True),
        (lambda i, n: (slice(None), slice(n, None)), "x[0:8, n:24]", (8, 24), (96, 4), (0, 768), False),
        (lambda i, n: (slice(0, 8, 2), n + 1), "x[0:7:2, n + 1]", (4,), (192,), (4, 632), False),
        (lambda i, n: (slice(n // 2, None, 2), 0), "x[n // 2 : 8 : 2, 0]", (4,), (192,), (0, 676), False),
        (lambda i, n: (..., n), "x[0:8, n]", (8,), (96,), (0, 724), False),
        (lambda i, n: (slice(None, i // 4), slice(None, n)), "x[0 : i // 4, 0:n]", (1, 12), (96, 4), (0, 48), True),
        (lambda i, n: (slice(None, i // 3), slice(None, n + 12)), "x[0 : i // 3, 0 : n + 12]", (2, 24), (96, 4), (0, 192), False),
        (lambda i, n: (-1, slice(n, 12 + n)), "x[7, n : n + 12]", (12,), (4,), (672, 768), True),
    ],
)  # fmt: skip
def test_a_view_whose_place_a_launch_decides(key: Any, name: str, shape: Any, strides: Any, span: Any, contiguous: bool) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=(ROWS, COLUMNS), dtype="int32")
    i, n = bounded(g).values()
    view = x[key(i, n)]
    assert isinstance(view, MovingView)
    assert (view.name, view.shape, view.strides, view.contiguous) == (name, shape, strides, contiguous)
    assert (view.region.start, view.region.stop) == span
    values = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    for i_now in range(ROWS):
        for n_now in range(COLUMNS // 2 + 1):
            now = {"i": i_now, "n": n_now}
            here = view.at(lambda parameter, now=now: now[parameter.name])  # type: ignore[misc]  # bound for the loop
            wanted = values[key(i_now, n_now)]
            assert here.shape == np.shape(wanted)
            if here.size:
                assert here.offset_bytes == 4 * np.ravel(wanted)[0]
                assert view.region.start <= here.region.start <= here.region.stop <= view.region.stop
                assert here.contiguous or not view.contiguous


def test_views_of_moving_views() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=(ROWS, COLUMNS), dtype="int32")
    i, n = bounded(g).values()
    assert x[i][4:9].name == "x[i, 4:9]"
    assert x[i][n].name == "x[i, n]"
    assert x[2:, n : n + 6][i // 2, 1:3].name == "x[2 + i // 2, n + 1 : n + 3]"
    assert x[0, :n][:].name == "x[0, 0:n]"
    with pytest.raises(hg.DeclarationError, match="slice the array itself"):
        x[0, :n][2:]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (lambda g: g.param("k", "int32"), "k can be -2147483648 to 2147483647, and here it is 0 to 7; give 'k' bounds"),
        (lambda g: g.param("k", "int32", min=0, max=8), "k can be 0 to 8, and here it is 0 to 7"),
        (lambda g: slice(None, g.param("k", "int32", min=0, max=9)), "k can be 0 to 9, and here it is 0 to 8"),
        (lambda g: (0, g.param("k", "int32", min=0, max=23) + 1), "k + 1 can be 1 to 24, and here it is 0 to 23"),
        (lambda g: g.param("k", "float32"), "an index is a scalar integer parameter"),
        (lambda g: slice(0, 8, g.param("k", "int32", min=1, max=2)), "steps are positive integers"),
        (lambda g: (0, 0, g.param("k", "int32", min=0, max=2)), "it has 2 dimensions"),
        (lambda g: (lambda k: slice(k + 3, k))(g.param("k", "int32", min=0, max=2)), "it selects no element"),
    ],
)  # fmt: skip
def test_views_that_may_lie_outside_are_refused_when_they_are_declared(key: Any, text: str) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=(ROWS, COLUMNS), dtype="int32")
    with pytest.raises(hg.DeclarationError, match=re.escape(text)):
        x[key(g)]


def test_what_a_launch_has_made_different_is_refused_with_nothing_changed() -> None:
    g = hg.Graph("g")
    i, n = g.param("i", "int32", 0, min=0, max=3), g.param("n", "int32", 6, min=0, max=12)
    x, y = (g.device_array(name, shape=COLUMNS, dtype="int32") for name in "xy")
    g.memcpy(y[:n], x[: 12 - n], name="copy")
    g.kernel(COPY["quads"], 1, 1, (x[i * 2 : i * 2 + 4], y), name="quads")
    with g.compile(runtime="recorder") as exe:
        with pytest.raises(hg.DeclarationError, match=r"node 'copy': 'x\[0 : 12 - n\]' is now 'x\[0:7\]' of shape \(7,\)"):
            exe.run(n=5)
        with pytest.raises(hg.DeclarationError, match=r"is now 'x\[2:6\]', which does not begin at a multiple of 16 bytes"):
            exe.run(i=1)
        exe.run(n=6, i=2)
        assert exe.stats.launches == 1


@pytest.mark.parametrize(
    "declare",
    [
        lambda g, x, i: g.conditional("if", x[i], hg.Graph("body")),
        lambda g, x, i: g.memory_ops([hg.write_value(x[i], 3)]),
        lambda g, x, i: g.child(holding(), bind={"a": x[i : i + 1]}),
    ],
)  # fmt: skip
def test_kinds_whose_memory_is_fixed_refuse_views_that_move(declare: Any) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=ROWS, dtype="int32")
    with pytest.raises(hg.DeclarationError, match="a launch decides"):
        declare(g, x, bounded(g)["i"])
    assert not len(g)


def holding() -> hg.Graph:
    g = hg.Graph("holding")
    g.memset(g.device_array("a", shape=1, dtype="int32"), 1)
    return g


@pytest.mark.needs("program")
def test_programs_refuse_views_that_move(tmp_path: Any) -> None:
    g = hg.Graph("g")
    x = g.device_array("x", shape=ROWS, dtype="int32")
    g.memset(x[bounded(g)["i"]], 1, name="fill")
    with pytest.raises(hg.DeclarationError, match=r"node 'fill': where 'x\[i\]' lies, a launch decides"):
        g.export(tmp_path / "program.hip")


@pytest.mark.parametrize(
    ("bind", "text"),
    [
        (lambda q: q, "parameter 'p' of the child is from 0 to 7, and q can be -2147483648 to 2147483647"),
        (lambda q: q % 8 + 1, "q % 8 + 1 can be 1 to 8"),
        (lambda q: 9, "it is bound to 9"),
        (lambda q: q % 8, ""),
        (lambda q: 7, ""),
    ],
)
def test_what_a_childs_parameter_is_bound_to_stays_within_its_bounds(bind: Any, text: str) -> None:
    inner, g = hg.Graph("inner"), hg.Graph("outer")
    inner.memset(inner.device_array("a", shape=8, dtype="i4")[inner.param("p", "int32", 0, min=0, max=7)], 3)
    q = g.param("q", "int32", 0)
    with pytest.raises(hg.DeclarationError, match=re.escape(text)) if text else nullcontext():
        g.child(inner, bind={"p": bind(q)})
    with pytest.raises(hg.DeclarationError, match=re.escape(text)) if text else nullcontext():
        g.conditional("if", g.device_array("go", shape=1, dtype="i4"), inner, bind={"p": bind(q)})


def test_what_a_childs_parameter_does_not_hold_names_the_expression() -> None:
    inner, g = hg.Graph("inner"), hg.Graph("outer")
    inner.kernel(MODULE["put"], 1, 1, (inner.device_array("a", shape=8, dtype="int64"), 0, inner.param("p", "uint8", 0) + 1))
    g.child(inner, bind={"p": g.param("n", "int32", 1) * 2}, name="in")
    with (
        g.compile(runtime="recorder") as exe,
        pytest.raises(hg.DeclarationError, match=r"'in/p' is n \* 2 = 256 \(n = 128\), and: 256 is no"),
    ):
        exe.run(n=128)


def test_long_constants_are_read_again() -> None:
    g = hg.Graph("long")
    g.kernel(MODULE["put"], 1, 1, (g.device_array("a", shape=8, dtype="int64"), 0, g.param("n", "int32", 1) * 10**35 // 10**35))
    assert hg.Graph.from_json(g.to_json()).to_json() == g.to_json()


@pytest.mark.needs("program")
def test_programs_refuse_expressions_beyond_64_bits(tmp_path: Any) -> None:
    g = hg.Graph("wide")
    a, n = g.param("a", "int64", 1), g.param("n", "int32", 1)
    out = g.device_array("out", shape=8, dtype="int64")
    g.kernel(MODULE["put"], 1, 1, (out, 0, n * n + 1))
    g.export(tmp_path / "right.hip")
    g.kernel(MODULE["put"], 1, 1, (out, 1, a * a % 1000003))
    with pytest.raises(hg.DeclarationError, match="a program computes with 64 bits; give its parameters bounds"):
        g.export(tmp_path / "wide.hip")
