"""What names stand for: arrays bound to children, memory bound to array parameters at launch, and views given to kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime


@pytest.fixture(scope="module", params=HERE)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


SOURCE = r"""
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void axpy(float a, const float* x, float* y, int block) { INDEX; if (i < block) y[i] += a * x[i]; }
extern "C" __global__ void put(int* x, int v, int n) { INDEX; if (i < n) x[i] = v; }
extern "C" __global__ void next(const int* p, int* y, int n) { INDEX; if (i < n) y[i] = p[i] + 1; }
"""


@pytest.fixture(scope="module")
def kernels() -> hg.Module:
    return hg.Module(SOURCE, name="bindings")


# -- arguments by name -----------------------------------------------------------------------------------------------------


def test_set_takes_single_arguments_by_their_names(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    g = hg.Graph("demo")
    x, z = (g.device_array(name, np.full(64, k, "f4")) for name, k in (("x", 1), ("z", 10)))
    y = g.device_array("y", shape=64, dtype="f4")
    g.memset(y, 0)
    g.kernel(kernels["axpy"], 1, 64, (2.0, x, y, 64), name="k")
    with g.compile(runtime, backend) as exe:
        for change, value in (({"a": 3.0}, 3), ({"args": {"a": 4.0, "x": z}}, 40), ({"args": {"x": x}, "a": 5.0}, 5)):
            exe.set("k", **change)
            exe.run()
            assert exe.read("y").tolist() == [value] * 64
        exe.set("k", args={"block": 32})
        exe.run()
        assert exe.read("y").tolist() == [5] * 32 + [0] * 32
        exe.set("k", block=(16,))  # the field, not the argument of that name
        assert exe.workflow.nodes[1].block == (16, 1, 1)
        with pytest.raises(hg.DeclarationError, match=r"no field 'b' and no argument of that name; its fields are name, "):
            exe.set("k", b=1)
        with pytest.raises(hg.DeclarationError, match=r"of kernel 'axpy' are a, x, y, block"):
            exe.set("k", args={"b": 1})
        with pytest.raises(hg.DeclarationError, match=r"args= gives all arguments, so a= cannot be given too"):
            exe.set("k", a=1.0, args=(1.0, x, y, 64))
        with pytest.raises(hg.DeclarationError, match=r"no field 'colour'; its fields are name, after, .*dst, value"):
            exe.set("memset_y", colour=1)


# -- values ----------------------------------------------------------------------------------------------------------------


def test_struct_parameter_takes_the_dict_that_an_argument_takes(runtime: Runtime, backend: Any) -> None:
    pair = np.dtype([("a", "f4"), ("b", [("c", "i4"), ("d", "i4")])])
    module = hg.Module(
        """struct In { int c, d; }; struct Pair { float a; In b; };
        extern "C" __global__ void total(Pair p, float* y) { y[0] = p.a + p.b.c * p.b.d; }""",
        structs={"Pair": pair},
    )
    g = hg.Graph("demo")
    y = g.device_array("y", shape=1, dtype="f4")
    p = g.param("p", pair, default={"a": 1.0, "b": {"c": 2, "d": 3}})
    g.kernel(module["total"], 1, 1, (p, hg.writes(y)))
    with hg.Graph.from_json(g.to_json()).compile(runtime, backend) as exe:
        for value, total in ((None, 7), ({"a": 4.0, "b": {"d": 2, "c": 1}}, 6), ((4.0, {"c": 3, "d": 1}), 7)):
            exe.run(**({} if value is None else {"p": value}))
            assert exe.read("y").tolist() == [total]
        with pytest.raises(hg.DeclarationError, match=r"'p' is a struct \(a, b\): give a tuple or dict of its fields"):
            exe.run(p={"a": 1.0})


def test_struct_with_an_array_inside_is_refused_by_the_field() -> None:
    block = np.dtype([("p", "u8"), ("n", "i4")], align=True)
    module = hg.Module(
        'struct Block { float* p; int n; }; extern "C" __global__ void k(Block b) {}', structs={"Block": block}
    )
    g = hg.Graph("demo")
    y = g.device_array("y", shape=4, dtype="f4")
    for value in ((y, 4), {"p": y[1:], "n": 3}):
        with pytest.raises(hg.DeclarationError, match="'Block b': field 'p' is an array, and a struct with pointers takes none"):
            g.kernel(module["k"], 1, 1, (value,))
    with pytest.raises(hg.DeclarationError, match="'b': default: field 'p' is an array"):
        g.param("b", block, default=(y, 4))


def test_only_whole_arrays_stand_for_a_parameter() -> None:
    g = hg.Graph("demo")
    table = g.device_array("table", shape=(4, 4), dtype="f4")
    row = g.param("row", "f4", shape=4)
    g.memset(row, 1)
    with g.compile("recorder") as exe:
        for given in (table[2], row):
            with pytest.raises(hg.DeclarationError, match=r"'row' stands for a whole array .*; got .*, a view of") as caught:
                exe.run(row=given)
            assert caught.value.array == "row"


# -- children ------------------------------------------------------------------------------------------------------------


def test_alloc_bound_to_a_child_of_a_child_has_memory_where_it_is_used(runtime: Runtime, backend: Any) -> None:
    inner = hg.Graph("inner")
    a, b = (inner.device_array(name, shape=8, dtype="i4") for name in "ab")
    inner.memset(a, 7)
    inner.memcpy(b, a)
    middle = hg.Graph("middle")
    m = middle.device_array("m", shape=8, dtype="i4")
    middle.child(inner, bind={"a": m}, name="inner")
    g = hg.Graph("outer")
    y = g.alloc("y", 8, "i4")
    out = g.host_array("out", shape=8, dtype="i4")
    g.child(middle, bind={"m": y}, name="middle")
    g.memcpy(out, y)
    g.free(y)
    with g.compile(runtime, backend) as exe:
        for _ in range(2):
            exe.run()
            assert exe.read("out").tolist() == [7] * 8
            assert exe.read("middle/inner/b").tolist() == [7] * 8
            exe.write("out", 0)
