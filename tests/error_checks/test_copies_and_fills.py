"""Copies, memsets, allocs and frees that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("copies")
    g.device_array("x", shape=(4, 6), dtype="int32")
    g.host_array("h", shape=(4, 6), dtype="int32")
    g.host_array("pageable", shape=24, dtype="int32", pinned=False)
    g.device_array("f", shape=(4, 6), dtype="float32")
    return g


def refused(g: hg.Graph, call: Any, *texts: str, node: str | None = None) -> None:
    """The call is refused with these texts, and the graph is as it was."""
    nodes, arrays, edges = list(g.dag), dict(g.arrays), list(g.dag.edges)
    with pytest.raises(hg.DeclarationError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value)
    assert caught.value.node == node
    assert (list(g.dag), dict(g.arrays), list(g.dag.edges)) == (nodes, arrays, edges)


def test_memcpy_keeps_the_dtype(g: hg.Graph) -> None:
    refused(
        g,
        lambda: g.memcpy(g.arrays["f"], g.arrays["x"], name="c"),
        "node 'c': a copy keeps the dtype",
        "int32",
        "float32",
        node="c",
    )


def test_memcpy_keeps_the_size(g: hg.Graph) -> None:
    x, h = g.arrays["x"], g.arrays["h"]
    refused(
        g, lambda: g.memcpy(x, h[:3], name="c"), "'h[0:3, 0:6]' has shape (3, 6) (72 bytes)", "(96 bytes)", "slice one", node="c"
    )
    refused(g, lambda: g.memcpy(x[:, :3], h[:2].root[:2], name="c"), "slice one", node="c")


@pytest.mark.needs("cpu")
@pytest.mark.parametrize(
    ("to", "origin", "taken"),
    [
        ((4, 6), (4, 6), True),
        ((4, 6), (4, 1, 6), True),
        ((4, 6), (24,), True),
        ((24,), (4, 6), True),
        ((1, 24), (2, 3, 4), True),
        ((4, 6), (6, 4), False),
        ((2, 3), (3, 2), False),
        ((2, 3, 4), (6, 4), False),
        ((2, 12), (4, 1, 6), False),
    ],
)
def test_memcpy_is_between_equal_shapes_or_with_a_single_axis(to: Any, origin: Any, taken: bool) -> None:
    g = hg.Graph("shapes")
    y = g.device_array("y", shape=to, dtype="int32")
    x = g.device_array("x", np.arange(np.prod(origin), dtype="int32").reshape(origin))
    if taken:
        g.memcpy(y, x)
        with g.compile("cpu") as exe:
            exe.run()
            assert exe.read("y").tolist() == np.arange(np.prod(origin)).reshape(to).tolist()
    else:
        refused(g, lambda: g.memcpy(y, x, name="c"), f"'x' has shape {origin}", f"'y' has shape {to}", node="c")
    many = hg.Graph("collective")
    arrays = [many.device_array(name, shape=shape, dtype="int32") for name, shape in (("a", to), ("b", origin))]
    if taken:
        many.broadcast(arrays, name="c")
    else:
        refused(many, lambda: many.broadcast(arrays, name="c"), "broadcast copies 'a'", node="c")


COMPLEX = (1 + 2j, 1 + 0j, np.complex64(1 + 2j), np.complex64(1), np.complex128(1 + 2j), np.array(1 + 2j, "c8"))


def one(dtype: Any) -> tuple[hg.Graph, hg.DeviceArray]:
    g = hg.Graph("scalar")
    return g, g.device_array("x", shape=4, dtype=dtype)


def by_memset(dtype: Any, value: Any) -> None:
    g, x = one(dtype)
    g.memset(x, value)


def by_default(dtype: Any, value: Any) -> None:
    hg.Graph("scalar").param("p", dtype, value)


def by_bind(dtype: Any, value: Any) -> None:
    g, x = one(dtype)
    g.memset(x, g.param("p", dtype))
    hg.Graph("outer").child(g, bind={"p": value})


def by_launch(dtype: Any, value: Any) -> None:
    g, x = one(dtype)
    g.memset(x, g.param("p", dtype))
    with g.compile("recorder") as exe:
        exe.launch(p=value)


def by_set(dtype: Any, value: Any) -> None:
    g, x = one(dtype)
    g.memset(x, 0, name="fill")
    with g.compile("recorder") as exe:
        exe.set("fill", value=value)


def by_write(dtype: Any, value: Any) -> None:
    g, x = one(dtype)
    g.memset(x[:2], 0)
    with g.compile("recorder") as exe:
        exe.write("x", value)


def by_argument(dtype: Any, value: Any) -> None:
    ctype = {"float32": "float", "int32": "int", "bool": "bool", "float16": "__half", "bfloat16": "__hip_bfloat16"}[dtype]
    headers = "#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n"
    module = hg.Module(headers + f'extern "C" __global__ void k({ctype} v) {{}}')
    hg.Graph("scalar").kernel(module["k"], 1, 1, (value,))


def by_field(dtype: Any, value: Any) -> None:
    if dtype == "bfloat16":
        dtype = "float32"
    hg.Graph("scalar").param("p", np.dtype([("f", dtype)]), (value,))


def by_record(dtype: Any, value: Any) -> None:
    """A record whose field is complex, for a struct whose field is not."""
    if dtype == "bfloat16":
        dtype = "float32"
    record = np.array((value,), np.dtype([("f", np.asarray(value).dtype)]))[()]
    hg.Graph("scalar").param("p", np.dtype([("f", dtype)]), record)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "float16", "bfloat16"])
@pytest.mark.parametrize("door", [by_memset, by_default, by_bind, by_launch, by_set, by_write, by_argument, by_field, by_record])
def test_complex_numbers_are_refused_where_real_ones_are_asked(door: Any, dtype: str) -> None:
    for value in COMPLEX:
        with pytest.raises(hg.DeclarationError):
            door(dtype, value)


def test_memcpy_that_no_pitched_copy_expresses_is_refused(g: hg.Graph) -> None:
    refused(
        g,
        lambda: g.memcpy(g.arrays["x"][:, ::4], g.arrays["h"][:, :2], name="c"),
        "no single 3-D pitched copy",
        "split it",
        node="c",
    )
    big = g.device_array("big", shape=(3, 3, 3, 3), dtype="int32")
    small = g.device_array("small", shape=(2, 2, 2, 2), dtype="int32")
    refused(g, lambda: g.memcpy(small, big[:2, :2, :2, :2], name="c"), "no single 3-D pitched copy", node="c")


@pytest.mark.parametrize("thing", [None, 3, "x", np.zeros(3), object(), print])
def test_memcpy_takes_only_arrays(g: hg.Graph, thing: Any) -> None:
    refused(g, lambda: g.memcpy(g.arrays["x"], thing, name="c"), "node 'c': src: an array is expected", type(thing).__name__)
    refused(g, lambda: g.memcpy(thing, g.arrays["x"], name="c"), "node 'c': dst: an array is expected")
    refused(g, lambda: g.memset(thing, 0, name="c"), "node 'c': dst: an array is expected")


def test_memcpy_refuses_arrays_of_another_graph(g: hg.Graph) -> None:
    other = hg.Graph("other")
    x, y = other.device_array("x", shape=(4, 6), dtype="int32"), other.device_array("y", shape=(4, 6), dtype="int32")
    refused(g, lambda: g.memcpy(x, g.arrays["h"], name="c"), "array 'x' belongs to another graph", node="c")
    refused(g, lambda: g.memcpy(g.arrays["h"], y, name="c"), "graph 'copies' has no array 'y'; its arrays are 'x'", node="c")
    k = other.param("k", "int32")
    refused(g, lambda: g.memset(g.arrays["x"], k, name="c"), "has no parameter 'k'", node="c")


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 0.5, "1", None, 1j, True, float("nan"), float("inf"), [1], np.arange(3)])
def test_memset_values_fit_the_dtype(g: hg.Graph, value: Any) -> None:
    refused(g, lambda: g.memset(g.arrays["x"], value, name="m"), "node 'm'", "is no value of dtype int32")


@pytest.mark.parametrize("value", [1e39, 1j, "x", None])
def test_memset_values_fit_a_float(g: hg.Graph, value: Any) -> None:
    refused(g, lambda: g.memset(g.arrays["f"], value, name="m"), "node 'm'", "is no value of dtype float32")
    pytest.importorskip("ml_dtypes")
    half = g.device_array("half", shape=4, dtype="bfloat16")
    refused(g, lambda: g.memset(half, value, name="m"), "node 'm'", "is no value of dtype bfloat16")


@pytest.mark.parametrize("value", [b"abcd", np.void(b"abcd"), 5])
def test_values_of_bytes_are_not_cut(g: hg.Graph, value: Any) -> None:
    three = g.device_array("three", shape=4, dtype="V3")
    refused(g, lambda: g.memset(three, value, name="m"), "is no value of dtype |V3: ", "bytes do not fit an element of 3")
    with pytest.raises(hg.DeclarationError, match="do not fit an element of 3"):
        g.host_array("four", [value], dtype="V3")
    assert g.memset(three, b"abc", name="m").value == b"abc"


def test_memset_parameters_have_the_dtype_of_the_array(g: hg.Graph) -> None:
    k = g.param("k", "int64", 1)
    refused(g, lambda: g.memset(g.arrays["x"], k, name="m"), "has dtype int32", "'k'", node="m")


def test_memset_does_not_reach_pageable_memory(g: hg.Graph) -> None:
    refused(g, lambda: g.memset(g.arrays["pageable"], 0, name="m"), "pageable host memory", "pinned=True", node="m")


def test_memsets_of_too_many_dimensions_or_bytes_are_refused_when_declared(g: hg.Graph) -> None:
    five = g.device_array("five", shape=(4,) * 5, dtype="float32")
    refused(g, lambda: g.memset(five[::2, ::2, ::2, ::2, ::2], 1.5, name="m"), "strided dimensions", "set parts of it", node="m")
    wide = g.device_array("wide", shape=3, dtype=np.dtype([("a", "f8", 9)]))
    refused(g, lambda: g.memset(wide, np.zeros((), wide.dtype)[()], name="m"), "72 bytes", "at most 64", node="m")


def test_free_takes_only_allocs(g: hg.Graph) -> None:
    for name, kind in (("x", "device"), ("h", "host")):
        refused(g, lambda name=name: g.free(g.arrays[name], name="f1"), f"{kind} array {name!r}", "returned when", node="f1")
    y = g.alloc("y", 4, "int32")
    refused(g, lambda: g.free(y[:2], name="f1"), "only what an alloc node made", node="f1")
    nothing: Any = None
    refused(g, lambda: g.free(nothing, name="f1"), "got None", node="f1")
    g.free(y)


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda g, y: [g.free(y), g.memset(y, 1)], "HG302"),
        (lambda g, y: [g.free(y), g.free(y)], "HG304"),
        (lambda g, y: [g.memset(g.arrays["x"][0], 1), g.memset(y, 1), g.free(y, after=[])], None),
    ],
    ids=["use_after_free", "double_free", "good"],
)
def test_lifetimes_are_found_by_the_check_with_the_nodes_names(g: hg.Graph, declare: Any, code: str | None) -> None:
    y = g.alloc("y", 6, "int32", name="make")
    nodes = declare(g, y)
    errors = g.check().errors
    if code is None:
        assert not errors
        return
    assert code in {d.code for d in errors}
    assert any(nodes[-1].name in d.message and "y" in d.arrays for d in errors)
    with pytest.raises(hg.CheckError) as caught:
        g.compile(runtime="recorder")
    assert caught.value.report.errors
    assert code in str(caught.value)


def test_use_before_alloc_is_found_by_the_check() -> None:
    g = hg.Graph("early", infer=False)
    y = g.alloc("y", 6, "int32", name="make")
    g.memset(y, 1, name="use")
    assert "HG301" in {d.code for d in g.check().errors}


def test_memory_of_a_graph_cannot_be_read_or_written_from_outside(g: hg.Graph) -> None:
    y = g.alloc("y", 24, "int32")
    g.memset(y, 1)
    g.free(y)
    with g.compile(runtime="recorder") as exe:
        for call in (lambda: exe.read("y"), lambda: exe.write("y", 0)):
            with pytest.raises(
                hg.DeclarationError, match="'y' is made by an alloc node and lives only while the graph runs"
            ) as caught:
                call()
            assert caught.value.array == "y"
        with pytest.raises(hg.DeclarationError, match="no array 'q'; its arrays are 'x', 'h'"):
            exe.read("q")
        with pytest.raises(hg.DeclarationError, match=r"takes values of shape \(4, 6\) and dtype int32"):
            exe.write("x", np.zeros((5, 6), "int32"))
        with pytest.raises(hg.DeclarationError, match="out of the range"):
            exe.write("x", 2**31)
        with pytest.raises(hg.DeclarationError, match="dtype int32"):
            exe.write("x", 1.5)
        exe.write("h", 7)
        assert (exe.read("h") == 7).all()
