"""What is one number, and what is none, at every door that takes one: arguments, fills, parameters, fields and elements."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.cli.status import Misuse
from hipgraphdsl.cli.supplies import parameter_values

FIELDS: dict[str, Any] = {"f4": 0.0, "i4": 0, "?": False}
PAIR = np.dtype([(f"m{n}", dtype) for n, dtype in enumerate(FIELDS)], align=True)
KERNELS = hg.Module(
    "struct Pair { float m0; int m1; bool m2; };"
    'extern "C" __global__ void take(float a, int n, bool b, hipFloatComplex c, float* y) { y[0] = a + n + b + c.x; }'
    'extern "C" __global__ void open(Pair p, float* y) { y[0] = p.m0 + p.m1 + p.m2; }',
    structs={"Pair": PAIR},
)
ZEROS = {**FIELDS, "c8": 0j}
PARAMETERS = dict(zip(ZEROS, "anbc"))
"""The parameters of `take`, and an argument for each, by dtype."""


def held(value: Any) -> np.ndarray[Any, Any]:
    """Return an array of objects, without dimensions, that holds a value."""
    made = np.empty((), object)
    made[()] = value
    return made


NO_NUMBERS: dict[str, Any] = {
    "masked": np.ma.masked,
    "masked float": np.ma.array(1.0, mask=True),
    "masked integer": np.ma.array(1, mask=True),
    **{f"date in {unit}": np.datetime64(5, unit) for unit in ("s", "ns")},
    **{f"time in {unit}": np.timedelta64(5, unit) for unit in ("s", "ns")},
    "date without dimensions": np.array(np.datetime64(5, "ns")),
    "struct": np.array((1.0,), [("a", "f4")]),
    "one struct": np.array((1.0,), [("a", "f4")])[()],
    "bytes of a float": np.void(b"\0\0\x80?"),
    "text": "1",
    "text of NumPy": np.str_("1"),
    "bytes": b"1",
    "complex": 1 + 2j,
    "complex64": np.complex64(1 + 2j),
    "array of a complex": np.array(1 + 2j),
    **{
        f"object: {name}": held(value)
        for name, value in {
            "text": "1",
            "complex": 1 + 2j,
            "complex64": np.complex64(1 + 2j),
            "time": np.timedelta64(5, "ns"),
            "array": held(np.complex64(1 + 2j)),
            "masked": np.ma.masked,
            "list": [1.0],
            "none": None,
        }.items()
    },
}
NUMBERS: dict[str, Any] = {
    "int": 1,
    "int8": np.int8(1),
    "array": np.array(1),
    "object": held(1),
    "object of NumPy's": held(np.uint64(1)),
    "array in an object": held(np.array(1)),
    "not masked": np.ma.array(1, mask=False),
}
"""Each is one."""


def graph(dtype: str) -> tuple[hg.Graph, Any]:
    g = hg.Graph("g")
    y = g.host_array("y", np.zeros(4, dtype))
    g.memset(y, g.param("a", dtype, 0), name="m")
    g.kernel(KERNELS["take"], 1, 1, (*ZEROS.values(), g.device_array("x", shape=1, dtype="f4")), name="k")
    return g, y


def compiled(call: Callable[[hg.Executable, Any], Any]) -> Callable[[Any, str], Any]:
    def door(value: Any, dtype: str) -> Any:
        g, _ = graph(dtype)
        with g.compile("recorder") as exe:
            return call(exe, value)

    return door


def declaring(call: Callable[[hg.Graph, Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, dtype: call(graph(dtype)[0], value, dtype)


def arguments(value: Any, dtype: str) -> tuple[Any, ...]:
    return tuple({**ZEROS, dtype: value}.values())


def fields(value: Any, dtype: str) -> tuple[Any, ...]:
    return tuple({**FIELDS, dtype: value}.values())


def bind(g: hg.Graph, value: Any, dtype: str) -> Any:
    return hg.Graph("outer").child(g, bind={"a": value})


def of_struct(g: hg.Graph, value: Any, dtype: str) -> Any:
    return g.kernel(KERNELS["open"], 1, 1, (fields(value, dtype), g.arrays["x"]))


DOORS: dict[str, Callable[[Any, str], Any]] = {
    "memset": declaring(lambda g, value, dtype: g.memset(g.arrays["y"], value)),
    "argument": declaring(lambda g, value, dtype: g.kernel(KERNELS["take"], 1, 1, (*arguments(value, dtype), g.arrays["x"]))),
    "default": declaring(lambda g, value, dtype: g.param("p", dtype, value)),
    "bind": declaring(bind),
    "field of an argument": declaring(of_struct),
    "field of a default": declaring(lambda g, value, dtype: g.param("p", PAIR, fields(value, dtype))),
    "element": declaring(lambda g, value, dtype: g.host_array("z", [value, 1], dtype=dtype)),
    "element of an array in a list": declaring(lambda g, value, dtype: g.host_array("z", [[0], [value]], dtype=dtype)),
    "object": declaring(lambda g, value, dtype: g.host_array("z", np.array([held(value)[()], None])[:1], dtype=dtype)),
    "field of an element": declaring(lambda g, value, dtype: g.host_array("z", [fields(value, dtype)], dtype=PAIR)),
    "launch": compiled(lambda exe, value: exe.run(a=value)),
    "set argument": lambda value, dtype: compiled(lambda exe, given: exe.set("k", args={PARAMETERS[dtype]: given}))(value, dtype),
    "set": compiled(lambda exe, value: exe.set("m", value=value)),
    "write": compiled(lambda exe, value: exe.write("y", [value, 1, 1, 1])),
}
INTEGERS: dict[str, Callable[[Any, str], Any]] = {
    "grid": declaring(lambda g, value, dtype: g.kernel(KERNELS["take"], value, 1, (*ZEROS.values(), g.arrays["x"]))),
    "set grid": compiled(lambda exe, value: exe.set("k", grid=value)),
    "shape": declaring(lambda g, value, dtype: g.device_array("n", shape=value, dtype="f4")),
    "device": declaring(lambda g, value, dtype: g.device_array("n", shape=1, dtype="f4", device=value)),
}
"""Those of an integer that is no value of a dtype."""
SCALARS = {
    door: DOORS[door]
    for door in (
        *("memset", "argument", "default", "bind", "launch", "set", "set argument"),
        *("field of an argument", "field of a default"),
    )
}
"""Those where the rule of a scalar holds; arrays are converted by value."""


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused_at_every_door(value: str, door: str, dtype: str) -> None:
    with pytest.raises(hg.DeclarationError):
        DOORS[door](NO_NUMBERS[value], dtype)


@pytest.mark.parametrize("door", INTEGERS)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_no_count_either(value: str, door: str) -> None:
    with pytest.raises(hg.DeclarationError):
        INTEGERS[door](NO_NUMBERS[value], "f4")


@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", NUMBERS)
def test_one_number_is_taken_at_every_door(value: str, door: str, dtype: str) -> None:
    DOORS[door](NUMBERS[value], dtype)


TAKEN: dict[str, tuple[Any, ...]] = {
    "?": (True, False, np.True_, 0, 1, np.int64(1), np.array(True)),
    "i4": (1, -1, np.int8(1), np.uint64(1), np.array(1)),
    "f4": (1, 1.5, np.int8(1), np.float64(1.5), np.float16(1.5), Fraction(3, 2), float("inf"), float("nan")),
    "c8": (1, 1.5, 1j, np.complex128(1j), np.float32(1.5)),
}
REFUSED: dict[str, tuple[Any, ...]] = {
    "?": (2, -1, 1.0, np.float32(0), 1j),
    "i4": (True, np.True_, np.array(True), 1.0, np.float64(1), np.float16(1), 1.5, 2**31, np.int64(-(2**31) - 1), Fraction(1)),
    "f4": (True, np.True_, 1j, 1e39, np.float64(-1e39), Decimal("1e400"), 10**400),
    "c8": (True, np.True_, 1e39, 1e39j),
}


def rows(values: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Return each value with its dtype and each door, but for complex fields, which `Pair` has none of."""
    return [
        pytest.param(value, dtype, door, id=f"{door}-{dtype}-{value!r:.20}")
        for dtype, each in values.items()
        for value in each
        for door in SCALARS
        if dtype in FIELDS or "field" not in door
    ]


@pytest.mark.parametrize(("value", "dtype", "door"), rows(TAKEN))
def test_scalar_is_taken_at_every_door(value: Any, dtype: str, door: str) -> None:
    SCALARS[door](value, dtype)


@pytest.mark.parametrize(("value", "dtype", "door"), rows(REFUSED))
def test_scalar_is_refused_at_every_door(value: Any, dtype: str, door: str) -> None:
    with pytest.raises(hg.DeclarationError):
        SCALARS[door](value, dtype)


@pytest.mark.parametrize("dtype", ["?", "i4", "f4", "c8"])
def test_scalars_of_a_command_follow_the_same_rule(dtype: str) -> None:
    def run(value: Any) -> None:
        g, _ = graph(dtype)
        given = parameter_values(g, [f"a={value}"])
        with g.compile("recorder") as exe:
            exe.run(**given)

    for value in TAKEN[dtype]:
        run(float(value) if isinstance(value, Fraction) else value)
    for value in REFUSED[dtype]:
        with pytest.raises((hg.DeclarationError, Misuse)):
            run(float(value) if isinstance(value, Fraction) else value)


@pytest.mark.parametrize(("values", "dtype"), [([1.0, 2.0], "f4"), ([(1.0, 2, True), (3.0, 4, False)], PAIR)])
def test_an_array_that_could_be_masked_and_is_not_is_taken(values: list[Any], dtype: Any) -> None:
    g = hg.Graph("g")
    given = np.ma.array(np.array(values, dtype), mask=np.ma.make_mask_none((2,), np.dtype(dtype)))
    assert g.host_array("y", given, dtype=dtype).initial.tolist() == values  # type: ignore[union-attr]
    assert g.host_array("z", [*given], dtype=dtype).initial.tolist() == values  # type: ignore[union-attr]


def test_integers_of_python_and_of_numpy_beyond_64_bits_are_converted_together() -> None:
    y = hg.Graph("g").host_array("y", np.array([2**64 - 1, np.uint8(5), held(7)], object), dtype="u8")
    assert isinstance(y.initial, np.ndarray)
    assert y.initial.tolist() == [2**64 - 1, 5, 7]
