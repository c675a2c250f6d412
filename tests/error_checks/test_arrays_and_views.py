"""Arrays, shapes, dtypes and views that cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("wave")
    g.device_array("u", shape=(6, 8), dtype="float32")
    return g


def refused(call: Any, *texts: str, array: str | None = None) -> hg.DeclarationError:
    with pytest.raises(hg.DeclarationError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value)
    assert caught.value.array == array
    assert isinstance(caught.value, ValueError)
    return caught.value


@pytest.mark.parametrize("kind", ["host_array", "device_array"])
def test_a_second_array_of_a_name_is_refused_and_the_first_stays(g: hg.Graph, kind: str) -> None:
    before = dict(g.arrays)
    refused(lambda: getattr(g, kind)("u", shape=3, dtype="int32"), "'wave' already has an array 'u'", "another name", array="u")
    assert g.arrays == before


def test_an_alloc_of_a_name_that_is_taken_is_refused_and_adds_no_node(g: hg.Graph) -> None:
    refused(lambda: g.alloc("u", 3, "int32"), "already has an array 'u'", array="u")
    assert len(g) == 0


def test_a_second_parameter_of_a_name_is_refused(g: hg.Graph) -> None:
    g.param("a", "float32")
    refused(lambda: g.param("a", "float64"), "already has a parameter 'a'", array="a")
    assert g.parameters["a"].dtype == "float32"


@pytest.mark.parametrize("name", ["", " x", "x[1]", "a/b", "x\n", "x" * 201, 5, None])
def test_impossible_names_are_refused(g: hg.Graph, name: Any) -> None:
    refused(lambda: g.device_array(name, shape=3, dtype="int32"), "name")
    assert list(g.arrays) == ["u"]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (0, "at least 1 (got 0"),
        ((3, -1), "at least 1 (got -1"),
        (1.5, "got 1.5"),
        ("ab", "got 'ab'"),
        ((2, "x"), "integers"),
        (True, "got True"),
        ((1,) * 33, "at most 32 dimensions"),
        ((2**40, 2**40), "more elements than"),
        ((2, (3,)), "integers"),
    ],
)
def test_impossible_shapes_are_refused(g: hg.Graph, shape: Any, text: str) -> None:
    refused(lambda: g.device_array("x", shape=shape, dtype="int32"), text, array="x")
    refused(lambda: g.alloc("x", shape, "int32"), text, array="x")
    refused(lambda: g.host_array("x", shape=shape, dtype="int32"), text, array="x")
    assert list(g.arrays) == ["u"]
    g.device_array("x", shape=3, dtype="int32")


@pytest.mark.parametrize(
    "dtype",
    [
        "object",
        "U5",
        "S3",
        "datetime64[s]",
        "longdouble",
        "nonsense",
        "f4,]",
        {"names": ["a"]},
        [("a", "O")],
        object(),
        ("f4", 3),
    ],
)
def test_dtypes_that_no_device_has_are_refused(g: hg.Graph, dtype: Any) -> None:
    refused(lambda: g.device_array("x", shape=3, dtype=dtype), "dtype", array="x")
    refused(lambda: g.alloc("x", 3, dtype), "dtype", array="x")
    refused(lambda: g.param("x", dtype), "dtype", array="x")
    assert list(g.arrays) == ["u"]
    assert not g.parameters


def test_an_array_needs_values_or_shape_and_dtype(g: hg.Graph) -> None:
    refused(lambda: g.device_array("x"), "'x' needs initial values, or shape= and dtype=", array="x")
    refused(lambda: g.device_array("x", shape=3), "shape=3, dtype=None", array="x")
    refused(lambda: g.host_array("x", dtype="int8"), "shape=None", array="x")


@pytest.mark.parametrize("shape", [16, (16, 16), np.int64(16), (4, np.int32(4))])
@pytest.mark.parametrize("dtype", [None, "f4"])
def test_what_looks_like_a_shape_is_not_taken_for_values(g: hg.Graph, shape: Any, dtype: Any) -> None:
    refused(lambda: g.device_array("x", shape, dtype=dtype), f"say shape={shape!r}", array="x")
    refused(lambda: g.host_array("x", shape, dtype=dtype), f"say shape={shape!r}", array="x")
    assert g.device_array("x", [16, 16], dtype=dtype).shape == (2,)
    assert g.host_array("y", np.array(16), dtype=dtype).shape == ()
    assert g.device_array("z", (0.0, 1.0), dtype=dtype).shape == (2,)


def test_initial_values_are_not_cut_to_whole_numbers(g: hg.Graph) -> None:
    refused(lambda: g.device_array("x", [1.5, 2.0], dtype="int32"), "no whole numbers, and the dtype is int32", array="x")
    refused(lambda: g.host_array("x", [1e300], dtype="float32"), "overflow", array="x")
    refused(lambda: g.host_array("x", np.array([np.nan]), dtype="uint8"), "no whole numbers", array="x")
    assert g.device_array("x", np.ones(3), dtype="int32").initial.tolist() == [1, 1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "dtype", "text"),
    [
        (np.array([300, -1]), "u1", "-1 is out of the range 0..255"),
        ([300], "u1", "300 is out of the range 0..255"),
        (np.array([2**40]), "i4", "out of the range"),
        (np.array([2**63], "u8"), "i8", "out of the range"),
        ([2**70], "i8", "int"),
        (np.array([2.0**64]), "u8", "out of the range"),
        (np.array([1.5]), "i4", "no whole numbers"),
        (np.array([1 + 2j]), "f8", "they are complex"),
        (np.array([2.5, 0.5]), "bool", "neither true nor false"),
        ([2], "bool", "neither true nor false"),
        (np.array([1e300]), "f4", "overflow"),
        ([70000], "f2", "overflow"),
        ([1e300], "bfloat16", "overflow"),
        ([2**70, 10**39], "f4", "overflow"),
        ([10**39], "bfloat16", "overflow"),
        ([2**70], "bool", "neither true nor false"),
        ([1.0, None], "f4", "no numbers"),
        (np.ma.masked, "f4", "masked"),
        (np.ma.array([1, 2], mask=[False, True]), "i4", "masked"),
    ],
)
def test_initial_values_and_written_values_are_refused_alike(values: Any, dtype: str, text: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    g = hg.Graph("wave")
    refused(lambda: g.device_array("x", values, dtype=dtype), text, array="x")
    g.device_array("x", shape=np.shape(values) or 1, dtype=dtype)
    with g.compile(runtime="recorder") as exe:
        refused(lambda: exe.write("x", values), text, array="x")


@pytest.mark.parametrize(
    ("values", "dtype", "held"),
    [([1.0, 2.0], "i4", [1, 2]), ([0.0, 1], "bool", [False, True]), ([1, 2], "c8", [1, 2]), ([True, False], "f4", [1, 0])],
)
def test_written_values_are_taken_as_initial_values_are(values: Any, dtype: str, held: list[Any]) -> None:
    g = hg.Graph("wave")
    assert g.host_array("x", values, dtype=dtype).initial.tolist() == held  # type: ignore[union-attr]
    g.host_array("y", shape=2, dtype=dtype)
    with g.compile(runtime="recorder") as exe:
        exe.write("y", values)
        assert exe.read("y").tolist() == held


def test_numpy_does_not_take_a_declared_array_for_values(g: hg.Graph) -> None:
    u = g.arrays["u"]
    for thing in (u, u[:1], g.param("p", "f4", shape=(3,))):
        refused(lambda thing=thing: np.asarray(thing), f"exe.read({thing.name!r})", array=thing.name)
    with pytest.raises(hg.DeclarationError, match="'u' is declared and holds no values"):
        np.sum(u)  # that it is refused is the point


def test_what_came_instead_of_an_array_is_said_with_the_way_to_one(g: Any) -> None:
    refused(lambda: g.memset("u"), "got str 'u'; a graph has its arrays by name in g.arrays")
    refused(lambda: g.memset(np.zeros((2, 3), "f4")), "got ndarray of shape (2, 3) and dtype float32; declare it: g.device_array")


@pytest.mark.parametrize(
    ("initial", "options", "text"),
    [
        ([[1], [2, 3]], {}, "cannot be taken"),
        ([300], {"dtype": "int8"}, "300 is out of the range -128..127 of int8"),
        ([], {}, "at least 1"),
        ([1, 2], {"shape": 3}, "shape (3,), its initial values (2,)"),
        (["a"], {"dtype": "float32"}, "'a'"),
        (object(), {}, "object"),
        ([2**70], {}, "dtype object cannot live on a device"),
    ],
)
def test_impossible_initial_values_are_refused(g: hg.Graph, initial: Any, options: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError) as caught:
        g.device_array("x", initial, **options)
    assert text in str(caught.value)
    assert "x" not in g.arrays


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (6, "u[6]: index 6 is out of range for an extent of 6"),
        (-7, "index -7"),
        ((0, 8), "u[0, 8]: index 8 is out of range for an extent of 8"),
        (slice(0, 7), "u[0:7]: 7 is out of range for an extent of 6"),
        (slice(-7, 3), "-7 is out of range"),
        (slice(3, 3), "selects no element"),
        (slice(4, 2), "selects no element"),
        (slice(None, None, -1), "steps are positive (got -1)"),
        (slice(0, 4, 0), "steps are positive"),
        ((0, 0, 0), "it has 2 dimensions"),
        (None, "neither an index nor a slice"),
        (1.0, "neither"),
        (True, "neither"),
        ([0, 1], "neither"),
        (np.array([1, 2]), "neither"),
        (slice(0, 1.5), "bounds of a slice are integers"),
        ("x", "neither"),
        ((..., ...), "neither"),
    ],
)
def test_views_out_of_range_name_the_array_and_its_shape(g: hg.Graph, key: Any, text: str) -> None:
    refused(lambda: g.arrays["u"][key], text, "'u' has shape (6, 8)", array="u")


def test_a_view_of_a_view_counts_from_the_view(g: hg.Graph) -> None:
    view = g.arrays["u"][2:5, ::2]
    refused(lambda: view[3], "index 3 is out of range for an extent of 3", array="u")
    refused(lambda: view[0, 4], "extent of 4", array="u")


@pytest.mark.parametrize("obj", [object(), 3, "text", [1, 2], None])
def test_objects_without_memory_are_no_external_arrays(g: hg.Graph, obj: Any) -> None:
    refused(lambda: g.external_array("x", obj), "external array 'x'", "no memory that can be shared", array="x")
    assert "x" not in g.arrays


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"typestr": ">f4"}, "has foreign byte order >f4"),
        ({"typestr": "O"}, "dtype object cannot live on a device"),
        ({"typestr": None}, "None is not a dtype"),
        ({"shape": (0,), "data": (0, False)}, "each extent of a shape is at least 1"),
        ({"shape": "4"}, "a shape is an integer or a tuple of integers"),
        ({"strides": (8,)}, "only C-contiguous memory"),
        ({"mask": object()}, "has a mask"),
        ({"data": (0, False)}, "has address 0x0"),
        ({"data": (2**64, False)}, "where no memory is"),
        ({"data": None}, "its __cuda_array_interface__ is wrong (TypeError"),
        ({"data": ("x", False)}, "its __cuda_array_interface__ is wrong (TypeError"),
    ],
)
def test_external_array_refuses_an_interface_that_tells_something_else(g: hg.Graph, said: dict[str, Any], text: str) -> None:
    told = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, **said}
    memory = SimpleNamespace(__cuda_array_interface__=told)
    refused(lambda: g.external_array("e", memory), "external array 'e'", text, array="e")
    del told["shape"]
    refused(lambda: g.external_array("e", memory), "external array 'e'", array="e")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda g: g.alloc("t", 0, "float32"), "array 't': each extent"),
        (lambda g: g.alloc("t", 4, "float8"), "array 't': 'float8' is not a dtype"),
        (lambda g: g.param("t", "float8"), "parameter 't': 'float8' is not a dtype"),
        (lambda g: g.param("t", "float32", shape=-1), "parameter 't': each extent"),
        (lambda g: g.external_array("t", np.zeros(0)), "external array 't': each extent"),
    ],
)
def test_what_has_an_impossible_shape_or_dtype_is_named(g: hg.Graph, call: Any, what: str) -> None:
    refused(lambda: call(g), what, array="t")
    assert "t" not in g.arrays


def test_memory_with_gaps_is_no_external_array(g: hg.Graph) -> None:
    refused(lambda: g.external_array("x", np.zeros((4, 6))[:, ::2]), "C-contiguous", "take a view", array="x")
    refused(lambda: g.external_array("x", np.zeros((4, 6), order="F")), "C-contiguous", array="x")
    refused(lambda: g.external_array("x", np.zeros(3, ">i4")), "byte order", array="x")


def test_masked_elements_are_not_dropped(g: hg.Graph) -> None:
    values = np.ma.array(np.arange(4.0), mask=[False, True, False, False])
    refused(lambda: g.external_array("x", values), "external array 'x' has 1 masked elements", "x.filled(value)", array="x")
    g.external_array("x", np.ma.array(np.arange(4.0)))


def test_read_only_memory_cannot_be_written(g: hg.Graph) -> None:
    values = np.zeros((6, 8), "float32")
    values.flags.writeable = False
    x = g.external_array("x", values)
    refused(lambda: g.memcpy(x, g.arrays["u"], name="in"), "node 'in'", "'x' is read-only", array="x")
    refused(lambda: g.memset(x, 1), "'x' is read-only", array="x")
    refused(lambda: g.host(print, args=(x,)), "'x' is read-only", "reads=[...]", array="x")
    g.memcpy(g.arrays["u"], x)
    assert len(g) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, "is reserved for an option of launch") for name in ("stream", "after", "timeout_s")),
        ("a b", "is no Python identifier"),
        ("1a", "is no Python identifier"),
        ("", "name"),
    ],
)
def test_parameters_are_launch_keywords(g: hg.Graph, name: str, text: str) -> None:
    with pytest.raises(hg.DeclarationError, match=text):
        g.param(name, "int32")
    assert not g.parameters


@pytest.mark.parametrize(
    ("dtype", "default"),
    [
        ("int8", 128),
        ("int32", 1.5),
        ("uint8", -1),
        ("float32", 1e300),
        ("float32", "1.5"),
        ("bool", 2),
        ("int32", "x"),
        ("float16", 1j),
    ],
)
def test_defaults_fit_the_dtype(g: hg.Graph, dtype: str, default: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=r"parameter 'a': default: .* is no value of dtype"):
        g.param("a", dtype, default)
    assert not g.parameters


def test_the_default_of_an_array_parameter_is_no_number(g: hg.Graph) -> None:
    refused(lambda: g.param("a", "float32", 0.0, shape=4), "'a' stands for an array of float32[4]", "got 0.0", array="a")


def test_a_scalar_parameter_is_no_array(g: hg.Graph) -> None:
    a = g.param("a", "float32", 1.0)
    refused(lambda: g.memcpy(g.arrays["u"], a), "'a' is a scalar", "give it a shape", array="a")
    refused(lambda: a[0], "'a' is a scalar", array="a")
