"""What names stand for: arrays bound to children, memory bound to array parameters at launch, and views given to kernels."""

from __future__ import annotations

import json
import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.parts.verify import verify
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


# -- values of parameters --------------------------------------------------------------------------------------------------

STRUCT = np.dtype([("n", "i4"), ("step", "f4")], align=True)


@pytest.mark.parametrize("launched", [False, True])
def test_values_are_of_the_parameter_s_dtype_for_every_consumer(runtime: Runtime, backend: Any, launched: bool) -> None:
    seen: dict[str, Any] = {}
    g, inner = hg.Graph("values"), hg.Graph("inner")
    a, s = g.param("a", "float32", None if launched else 7), g.param("s", STRUCT, None if launched else (1, 0.1))
    b = inner.param("b", "float32", 1)
    inner.host(lambda value: seen.update({"inner": value}), args=(b,))
    g.host(lambda value, struct: seen.update(host=value, host_struct=struct), args=(a, s))
    g.eager(lambda stream, value, struct: seen.update(eager=value, struct=struct), args=(a, s))
    g.child(inner, bind={"b": a}, name="bound")
    with g.compile(runtime, backend) as exe:
        exe.run(**({"a": 7, "s": {"n": 1, "step": 0.1}} if launched else {}))
        assert {name: type(seen[name]) for name in ("host", "eager", "inner")} == dict.fromkeys(("host", "eager", "inner"), float)
        assert seen["struct"].dtype == seen["host_struct"].dtype == STRUCT
        assert seen["struct"].item() == seen["host_struct"].item() == (1, float(np.float32(0.1)))
        exe.run(a=np.int8(-3))
        assert (seen["host"], seen["eager"], seen["inner"], exe.parameters["a"]) == (-3.0,) * 4
        exe.run(a=0.1)
        assert (seen["host"], seen["eager"], seen["inner"], exe.parameters["a"]) == (float(np.float32(0.1)),) * 4


def test_values_that_a_child_is_given_are_of_the_parameter_s_dtype(runtime: Runtime, backend: Any) -> None:
    seen: list[Any] = []
    g, inner = hg.Graph("values"), hg.Graph("inner")
    inner.host(seen.append, args=(inner.param("b", "float32", 1),))
    g.child(inner, bind={"b": 3})
    with g.compile(runtime, backend) as exe:
        exe.run()
    assert list(map(repr, seen)) == ["3.0"]


def test_launch_tells_zero_from_negative_zero(runtime: Runtime, backend: Any) -> None:
    source = 'extern "C" __global__ void inverse(float* y, float a) { y[0] = 1.0f / a; }'
    seen: list[str] = []
    g = hg.Graph("zeros")
    a = g.param("a", "float32", 1.0)
    g.kernel(hg.Module(source)["inverse"], 1, 1, (g.device_array("y", shape=1, dtype="float32"), a))
    g.host(lambda value: seen.append(str(value)), args=(a,))
    with g.compile(runtime, backend) as exe:
        for value in (0.0, -0.0, 0.0, -0.0):
            exe.run(a=value)
            assert exe.read("y")[0] == math.copysign(math.inf, value)
    assert seen == ["0.0", "-0.0", "0.0", "-0.0"]


def test_launch_sees_that_a_struct_has_been_written(runtime: Runtime, backend: Any) -> None:
    seen: list[Any] = []
    g = hg.Graph("struct")
    g.host(lambda value: seen.append(value.item()), args=(g.param("s", STRUCT),))
    given = {"n": 1, "step": 2.0}
    with g.compile(runtime, backend) as exe:
        exe.run(s=given)
        given["n"] = 5
        exe.run(s=given)
    assert seen == [(1, 2.0), (5, 2.0)]


def test_clone_keeps_the_default_that_a_parent_binds_to_a_part_of_an_array(
    runtime: Runtime, backend: Any, kernels: hg.Module
) -> None:
    inner = hg.Graph("inner")
    inner.device_array("a", shape=4, dtype="int32")
    y = inner.device_array("y", shape=4, dtype="int32")
    inner.kernel(kernels["next"], 1, 4, (inner.param("p", "int32", "a", shape=4), y, 4))
    g = hg.Graph("outer")
    g.child(inner, bind={"a": g.device_array("x", np.arange(16), dtype="int32")[8:12]}, name="c")
    with g.compile(runtime, backend) as exe:
        exe.run()
        with exe.clone() as twin:
            twin.run()
            assert twin.read("c/y").tolist() == [9, 10, 11, 12]
        exe.update(g, rebuild=True)
        exe.run()
        assert exe.read("c/y").tolist() == [9, 10, 11, 12]


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
        node = exe.workflow.nodes[1]
        assert isinstance(node, hg.KernelNode)
        assert node.block == (16, 1, 1)
        with pytest.raises(hg.DeclarationError, match=r"no field 'b' and no argument of that name; its fields are name, "):
            exe.set("k", b=1)
        with pytest.raises(hg.DeclarationError, match=r"'axpy' has no parameter 'b'; its parameters are 'a', 'x', 'y', 'block'"):
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


def test_vector_argument_takes_a_parameter_of_its_components(runtime: Runtime, backend: Any) -> None:
    pair = np.dtype([("x", "f4"), ("y", "f4")])
    module = hg.Module('extern "C" __global__ void total(float2 p, float* y) { y[0] = p.x + 10 * p.y; }')
    g = hg.Graph("demo")
    y = g.device_array("y", shape=1, dtype="f4")
    z = g.device_array("z", shape=1, dtype="f4")
    p = g.param("p", pair, default=(1, 2))
    g.kernel(module["total"], 1, 1, (p, hg.writes(y)))
    k = g.kernel(module["total"], 1, 1, ({"y": 5, "x": 6}, hg.writes(z)))
    with hg.Graph.from_json(g.to_json()).compile(runtime, backend) as exe:
        for value, total in ((None, 21), ({"y": 4.0, "x": 3.0}, 43), (np.array((1, 1), pair), 11), ((5, 6), 65)):
            exe.run(**({} if value is None else {"p": value}))
            assert exe.read("y").tolist() == [total]
        assert exe.read("z").tolist() == [56]
        for literal, total in ((np.void((2, 1), pair), 12), ([3, 1], 13), (np.array([4, 1]), 14)):
            exe.set(k.name, args=(literal, exe.workflow.arrays["z"]))
            exe.run()
            assert exe.read("z").tolist() == [total]
    for dtype in ("f4", "c8", [("x", "f4"), ("z", "f4")]):
        with pytest.raises(hg.DeclarationError, match=r"declare it with dtype=\[\('x', '<f4'\), \('y', '<f4'\)\]"):
            g.kernel(module["total"], 1, 1, (g.param(f"q{len(g.workflow().parameters)}", dtype), y))


def test_variables_of_modules_keep_their_values_in_a_clone_and_a_rebuild(runtime: Runtime, backend: Any) -> None:
    module = hg.Module(
        """__constant__ int table[4]; __device__ int hits = 3;
        extern "C" __global__ void hit(int* y) { hits += 1; for (int i = 0; i < 4; ++i) y[i] = table[i] + 100 * hits; }
        extern "C" __global__ void more(int* y) { y[threadIdx.x] += 10 * table[0]; }"""
    )

    def declared(*, more: bool) -> hg.Graph:
        g = hg.Graph("demo")
        y = g.device_array("y", shape=4, dtype="i4")
        given = g.host_array("given", np.arange(1, 5, dtype="i4"))
        g.memcpy(module.symbol("table"), given, name="upload")
        g.kernel(module["hit"], 1, 1, (hg.writes(y),))
        if more:
            g.kernel(module["more"], 1, 4, (y,))
        return g

    with declared(more=False).compile(runtime, backend) as exe:
        exe.run()
        exe.disable("upload")
        with exe.clone() as twin:
            for each in (exe, twin):
                each.run()
                assert each.read("y").tolist() == [501, 502, 503, 504]
        exe.update(declared(more=True), rebuild=True)
        exe.disable("upload")
        exe.run()
        assert exe.read("y").tolist() == [611, 612, 613, 614]


def test_struct_with_an_array_inside_is_refused_by_the_field() -> None:
    block = np.dtype([("p", "u8"), ("n", "i4")], align=True)
    module = hg.Module('struct Block { float* p; int n; }; extern "C" __global__ void k(Block b) {}', structs={"Block": block})
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
            with pytest.raises(hg.DeclarationError, match=r"'row' takes a whole array .*; got .*, a view of") as caught:
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


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("has_default", [False, True])
@pytest.mark.parametrize("inner", ["array", "parameter", "default"])
@pytest.mark.parametrize("eager", [False, True])
def test_a_launch_gives_the_memory_of_a_child_s_arrays(
    runtime: Runtime, backend: Any, depth: int, has_default: bool, inner: str, eager: bool
) -> None:
    g = hg.Graph("child")
    h: Any = g.param("h", "i4", shape=4) if inner == "parameter" else g.host_array("h", shape=4, dtype="i4")
    g.memset(g.param("to", "i4", h, shape=4) if inner == "default" else h, 1, name="put")
    if eager:  # inlines the child in every backend
        g.eager(lambda stream: None)
    for _ in range(depth - 1):
        held, g = g, hg.Graph("middle")
        g.child(held, {"h": g.host_array("h", shape=4, dtype="i4")}, name="held")
    held, g = g, hg.Graph("outer")
    for name in ("default", "first", "second", "third"):
        g.host_array(name, np.zeros(8, "i4"))
    p = g.param("p", "i4", "default" if has_default else None, shape=8)
    g.child(held, {"h": p[4:]}, name="held")
    with g.compile(runtime, backend) as exe:
        exe.run(p="first")
        exe.run(p="second")
        with exe.clone() as twin:
            twin.run()
            twin.run(p="third")
            assert [twin.read(name)[4] for name in ("default", "first", "second", "third")] == [0, 1, 1, 1]
        assert [exe.read(name)[4] for name in ("default", "first", "second", "third")] == [0, 1, 1, 0]


@pytest.mark.parametrize("by_default", [False, True])
def test_a_child_s_array_may_stand_for_a_parameter_later(runtime: Runtime, backend: Any, by_default: bool) -> None:
    child = hg.Graph("child")
    a = child.device_array("a", shape=4, dtype="i4")
    child.memset(child.param("to", "i4", a, shape=4) if by_default else a, 1)
    g = hg.Graph("outer")
    first, *_ = (g.device_array(name, np.zeros(4, "i4")) for name in ("first", "default", "given"))
    p = g.param("p", "i4", "default", shape=4)
    g.child(child, {"a": first}, name="held")
    with g.compile(runtime, backend) as exe:
        exe.run(p="given")
        assert exe.read("given").tolist() == [0] * 4
        exe.set("held", bind={"a": p})
        exe.run()
        assert exe.read("given").tolist() == [1] * 4
        exe.run(p="default")
        assert exe.read("default").tolist() == [1] * 4
        exe.set("held", bind={"a": first})
        exe.write("default", 0)
        exe.write("first", 0)
        exe.run(p="given")
        assert exe.read("default").tolist() == [0] * 4
        assert exe.read("first").tolist() == [1] * 4


def test_what_a_launch_gives_goes_before_a_default_that_the_parent_binds(
    runtime: Runtime, backend: Any, kernels: hg.Module
) -> None:
    inner = hg.Graph("inner")
    a = inner.device_array("a", shape=4, dtype="int32")
    p = inner.param("p", "int32", a, shape=4)
    inner.kernel(kernels["put"], 1, 4, (hg.writes(p), 1, 4), name="put")
    g = hg.Graph("outer")
    names = ("x", "y", "z")
    for name in names:
        g.device_array(name, np.zeros(4, "i4"))
    q = g.param("q", "i4", "x", shape=4)
    g.child(inner, {"a": q}, name="c")
    g.kernel(kernels["put"], 1, 4, (hg.writes(g.arrays["z"]), 5, 4), name="side")

    def written(exe: hg.Executable, **given: Any) -> str:
        for name in names:
            exe.write(name, 0)
        exe.run(**given)
        return "".join(name for name in names if exe.read(name)[0] == 1)

    with g.compile(runtime, backend) as exe:
        assert written(exe) == "x"
        assert written(exe, q="y") == "y"
        with pytest.raises(hg.DeclarationError, match=r"'q' is bound to memory that is array 'z' too: .*'c/put' writes 'q'"):
            exe.run(q="z")
        with pytest.raises(hg.DeclarationError, match=r"'c/p' is bound to memory that is array 'z' too: .*'c/put' writes 'c/p'"):
            exe.run(**{"c/p": "z"})
        assert written(exe) == "y"
        assert written(exe, q="z", **{"c/p": "x"}) == "x"  # no node uses `q` any more
        with exe.clone() as twin:
            assert written(twin) == "x"


def test_memory_of_alloc_nodes_is_refused_behind_a_default(backend: Any) -> None:
    inner = hg.Graph("inner")
    a = inner.device_array("a", shape=4, dtype="i4")
    inner.memset(inner.param("p", "i4", a, shape=4), 1)
    g = hg.Graph("outer")
    y = g.alloc("y", 4, "i4")
    g.child(inner, {"a": y}, name="c")
    g.free(y)
    text = "'c/p' cannot stand for array 'y', which is made by an alloc node"
    with pytest.raises(hg.CheckError, match=f"HG410 parameter {text}"):
        g.compile("recorder", backend)
    with pytest.raises(hg.DeclarationError, match=text):
        g.compile("recorder", backend, check=False)


def test_alloc_bound_to_a_child_in_a_body_has_memory_where_it_is_used(backend: Any) -> None:
    inner = hg.Graph("inner")
    inner.memset(inner.device_array("a", shape=8, dtype="i4"), 7)
    body = hg.Graph("body")
    m = body.device_array("m", shape=8, dtype="i4")
    body.child(inner, bind={"a": m}, name="inner")
    g = hg.Graph("outer")
    flag = g.device_array("flag", np.ones(1, "u4"))
    y = g.alloc("y", 8, "i4")
    g.memset(y, 0)
    out = g.host_array("out", shape=8, dtype="i4")
    g.conditional("if", flag, body, bind={"m": y}, name="maybe")
    g.memcpy(out, y)
    g.free(y)
    with g.compile("cpu", backend) as exe:
        for _ in range(2):
            exe.run()
            assert exe.read("out").tolist() == [7] * 8
            exe.write("out", 0)


# -- views with gaps -------------------------------------------------------------------------------------------------------

TILES = r"""
// Tiles of b x b elements, rows ld apart; one block of b threads, thread j has row or column j.
extern "C" __global__ void factor(double* a, int ld, int b) {
  if (threadIdx.x) return;
  for (int k = 0; k < b; ++k) {
    a[k * ld + k] = sqrt(a[k * ld + k]);
    for (int i = k + 1; i < b; ++i) a[i * ld + k] /= a[k * ld + k];
    for (int j = k + 1; j < b; ++j)
      for (int i = j; i < b; ++i) a[i * ld + j] -= a[i * ld + k] * a[j * ld + k];
  }
}
extern "C" __global__ void solve(const double* l, double* a, int ld, int b) {
  double* row = a + threadIdx.x * ld;
  for (int k = 0; k < b; ++k) {
    for (int j = 0; j < k; ++j) row[k] -= row[j] * l[k * ld + j];
    row[k] /= l[k * ld + k];
  }
}
extern "C" __global__ void subtract(const double* l, const double* r, double* a, int ld, int b) {
  for (int j = 0; j < b; ++j)
    for (int k = 0; k < b; ++k) a[threadIdx.x * ld + j] -= l[threadIdx.x * ld + k] * r[j * ld + k];
}
extern "C" __global__ void beside(double* a, int ld, int b) { a[threadIdx.x * ld + b] = 1; }
"""
B, T = 4, 5  # elements along a tile, tiles along the matrix


@pytest.fixture(scope="module")
def tiles() -> hg.Module:
    return hg.Module(TILES, name="tiles")


def cholesky(g: hg.Graph, module: hg.Module, tile: dict[tuple[int, int], Any], ld: int) -> None:
    def add(name: str, *args: Any, at: tuple[int, ...]) -> None:
        g.kernel(module[name], 1, B, (*args, ld, B), name=f"{name} {at}")

    for k in range(T):
        add("factor", hg.updates(tile[k, k]), at=(k,))
        for i in range(k + 1, T):
            add("solve", hg.reads(tile[k, k]), hg.updates(tile[i, k]), at=(i, k))
        for j in range(k + 1, T):
            for i in range(j, T):
                add("subtract", hg.reads(tile[i, k]), hg.reads(tile[j, k]), hg.updates(tile[i, j]), at=(i, j, k))


def tiled(module: hg.Module) -> tuple[hg.Graph, Any]:
    root = np.tril(np.random.default_rng(7).random((B * T, B * T))) + B * T * np.eye(B * T)
    g = hg.Graph("cholesky")
    a = g.device_array("a", root @ root.T)
    places = [(i, j) for i in range(T) for j in range(i + 1)]
    cholesky(g, module, {(i, j): a[i * B : i * B + B, j * B : j * B + B] for i, j in places}, B * T)
    return g, root


def test_tiles_of_a_matrix_have_the_edges_of_tiles_stored_apart(tiles: hg.Module) -> None:
    g, _ = tiled(tiles)
    apart = hg.Graph("apart")
    places = [(i, j) for i in range(T) for j in range(i + 1)]
    cholesky(apart, tiles, {p: apart.device_array(f"a {p}", shape=(B, B), dtype="f8") for p in places}, B)
    edges = [{(u, v, reason.split()[0]) for u, v, reason in graph.dag.edges(data="reason")} for graph in (g, apart)]
    assert edges[0] == edges[1]
    assert not g.check().errors


def test_kernels_take_tiles_of_a_matrix(runtime: Runtime, backend: Any, tiles: hg.Module) -> None:
    g, root = tiled(tiles)
    for made in (g, hg.Graph.from_json(g.to_json())):
        with made.compile(runtime, backend) as exe:
            exe.run()
            np.testing.assert_allclose(np.tril(exe.read("a")), root, rtol=1e-12)


def test_tiles_are_written_in_python_again(tiles: hg.Module, tmp_path: Path) -> None:
    g, _ = tiled(tiles)
    g.export(tmp_path / "tiles.py")
    known: dict[str, Any] = {"__name__": "tiles"}
    exec((tmp_path / "tiles.py").read_text(), known)
    assert known["build"]().to_json() == g.to_json()


def test_verify_judges_a_view_with_gaps_by_its_footprint(runtime: Runtime, tiles: hg.Module) -> None:
    g, _ = tiled(tiles)
    assert not verify(g, runtime, backends=(), orders=3).findings
    g = hg.Graph("beside")
    a = g.device_array("a", 1 + np.arange(64.0).reshape(8, 8))
    g.kernel(tiles["beside"], 1, 4, (hg.updates(a[2:6, 0:4]), 8, 4), name="k")
    g.kernel(tiles["solve"], 1, 4, (hg.reads(a[0:4, 4:8]), hg.updates(a[4:8, 4:8]), 8, 3), name="s")
    g.kernel(tiles["solve"], 1, 4, (hg.reads(a[0:2, 4:8]), hg.updates(a[4:8, 4:8]), 8, 4), name="r")
    found = [(finding.kind, finding.nodes, finding.arrays) for finding in verify(g, runtime, backends=(), orders=1).findings]
    assert ("undeclared write", ("k",), ("a",)) in found
    assert ("undeclared read", ("r",), ("a",)) in found
    assert not [kind for kind, nodes, _ in found if nodes == ("s",)]


def test_view_with_gaps_is_refused_without_a_word_and_names_the_way_out(tiles: hg.Module) -> None:
    g = hg.Graph("demo")
    a = g.device_array("a", np.zeros((8, 8)))
    with pytest.raises(hg.DeclarationError, match=r"not contiguous.* hg.reads\(a\[0:4, 0:4\]\), hg.writes or hg.updates"):
        g.kernel(tiles["factor"], 1, 4, (a[0:4, 0:4], 8, 4))
    wide = hg.Module('extern "C" __global__ void k(double2* a) {}')
    with pytest.raises(hg.DeclarationError, match=r"'a\[0:4, 0:3\]' has 3 elements in a row, not a multiple of 2"):
        g.kernel(wide["k"], 1, 4, (hg.updates(a[0:4, 0:3]),))


# -- memory bound at launch ------------------------------------------------------------------------------------------------


def reader(kernels: hg.Module) -> hg.Graph:
    """`put` writes x; `next` reads p and writes y; nothing orders the two."""
    g = hg.Graph("demo")
    x, y, z = (g.device_array(name, np.zeros(64, "i4")) for name in "xyz")
    g.kernel(kernels["put"], 1, 64, (hg.writes(x), 7, 64), name="put")
    g.kernel(kernels["next"], 1, 64, (g.param("p", "i4", default=z, shape=64), hg.writes(y), 64), name="next")
    return g


def test_launch_refuses_memory_that_the_graph_touches_in_no_order(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    with reader(kernels).compile(runtime, backend) as exe:
        for _ in range(2):
            with pytest.raises(hg.DeclarationError, match="parameter 'p' is bound to memory that is array 'x' too") as caught:
                exe.run(p="x")
            assert "'put' writes 'x' bytes 0..256 and 'next' reads 'p' bytes 0..256" in str(caught.value)
            assert (caught.value.node, caught.value.array) == ("next", "p")
            exe.run()
            assert exe.read("y").tolist() == [1] * 64  # p is still z
        exe.run(p="z")
        exe.run(p=np.full(64, 5, "i4"))
        assert exe.read("y").tolist() == [6] * 64


def test_launch_takes_memory_that_edges_order(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    g = reader(kernels)
    g.order("put", "next")
    with g.compile(runtime, backend) as exe:
        exe.run(p="x")
        assert exe.read("y").tolist() == [8] * 64
        exe.run(p="y")  # a node may be given one array twice
        assert exe.read("y").tolist() == [9] * 64


def test_race_that_nodes_ignore_is_launched(kernels: hg.Module) -> None:
    g = hg.Graph("demo")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 1, ignore={"HG203": "both write the same"})
    g.memset(g.param("p", "i4", shape=4), 1)
    with g.compile("recorder") as exe:
        exe.run(p="x")


def test_set_of_reasons_to_ignore_a_race_counts_at_the_next_launch(kernels: hg.Module) -> None:
    g = hg.Graph("demo")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 1, name="fixed")
    g.memset(g.param("p", "i4", shape=4), 1, name="bound")
    with g.compile("recorder") as exe:
        for ignore, refused in ((None, True), ({"HG203": "both write the same"}, False), (None, True)):
            exe.set("fixed", ignore=ignore)
            with pytest.raises(hg.DeclarationError, match="no path orders them") if refused else nullcontext():
                exe.run(p="x")
            exe.run(p=np.zeros(4, "i4"))


def test_child_uses_external_memory_of_its_own(runtime: Runtime, backend: Any) -> None:
    memory = np.arange(4, dtype="i4")
    inner = hg.Graph("inner")
    x, y = inner.external_array("x", memory), inner.device_array("y", shape=4, dtype="i4")
    inner.memcpy(y, x)
    inner.memset(y[0], 9)
    inner.memcpy(x, y)
    g = hg.Graph("outer")
    other = g.external_array("x", np.zeros(4, "i4"))  # a name of both
    g.memcpy(other, g.device_array("z", shape=4, dtype="i4"), name="apart")
    same = g.external_array("same", memory[2:])
    g.child(inner, name="first")
    g.memcpy(same, g.host_array("seven", [7, 7], dtype="i4"), name="between")
    g.child(inner, name="second")
    assert list(g.dag.edges) == [("first", "between"), ("first", "second"), ("between", "second")]
    assert not g.check().errors
    with g.compile(runtime, backend) as exe:
        exe.run()
        assert exe.read("second/y").tolist() == [9, 1, 7, 7]
    assert memory.tolist() == [9, 1, 7, 7]
    loaded = hg.Graph.from_json(g.to_json(), arrays={"inner/x": memory, "x": np.zeros(4, "i4"), "same": memory[2:]})
    assert list(loaded.dag.edges) == list(g.dag.edges)


def test_launch_compares_memory_by_the_bytes_that_nodes_touch() -> None:
    memory = np.zeros(48, "i4")
    g = hg.Graph("demo")
    x = g.external_array("x", memory[8:24])
    p, q = (g.param(name, "i4", shape=8) for name in "pq")
    g.memset(x[:4], 1, name="first")
    g.memset(p[4:], 2, name="p_end")
    g.memset(q[:4], 3, name="q_begin")
    with g.compile("cpu") as exe:
        exe.run(p=memory[8:16], q=memory[16:24])  # the ranges meet, the bytes do not
        assert memory[8:24].tolist() == [1] * 4 + [2] * 4 + [3] * 4 + [0] * 4
        with pytest.raises(hg.DeclarationError, match=r"'p' .* array 'x' too: 'first' writes 'x' bytes 0..16 and 'p_end' writes"):
            exe.run(p=memory[6:14])
        with pytest.raises(hg.DeclarationError, match=r"parameter '(p|q)' is bound to memory that is parameter '(p|q)' too"):
            exe.run(p=memory[24:32], q=memory[30:38])
        exe.run(p=memory[24:32], q=memory[32:40])
        assert memory[28:36].tolist() == [2] * 4 + [3] * 4


def test_launch_compares_memory_inside_children_and_bodies(runtime: Runtime, backend: Any) -> None:
    inner = hg.Graph("inner")
    a = inner.device_array("a", shape=4, dtype="i4")
    inner.memset(a, 1, name="set_a")
    inner.memset(inner.param("p", "i4", shape=4), 2, name="set_p")
    g = hg.Graph("outer")
    x = g.device_array("x", shape=4, dtype="i4")
    g.child(inner, bind={"a": x}, name="one")
    g.child(inner, name="two")
    names = [("one/p", "one"), ("two/p", "two")]
    own = {"one/p": np.zeros(4, "i4"), "two/p": np.zeros(4, "i4")}
    if runtime.target.name.startswith("cpu") or backend in ("streams", "serial"):
        flag = g.device_array("flag", np.ones(1, "u4"))
        g.conditional("if", flag, inner, name="maybe")
        names.append(("maybe/0/p", "maybe/0"))
        own["maybe/0/p"] = np.zeros(4, "i4")
    with g.compile(runtime, backend) as exe:
        for name, node in names:
            array = "x" if name == "one/p" else f"{node}/a"
            with pytest.raises(hg.DeclarationError, match=f"{name!r} is .* {array!r} too: '{node}/set_a' .* '{node}/set_p'"):
                exe.run(**{**own, name: array})
        with pytest.raises(hg.DeclarationError, match=r"'two/a' too: 'one/set_p' .* 'two/set_a' .* after=\['one'\]"):
            exe.run(**{**own, "one/p": "two/a"})
        exe.run(**own)
        assert all(values.tolist() == [2] * 4 for values in own.values())


def test_read_only_memory_is_taken_where_nodes_only_read_it(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    text = bytes(range(64)) * 4
    frozen = np.frombuffer(text, "i4")
    same = np.arange(64, dtype="i4")
    view = same.view()
    view.flags.writeable = False
    g = hg.Graph("demo")
    p = g.param("p", "i4", shape=64)
    g.kernel(kernels["put"], 1, 64, (hg.writes(p), 7, 64), name="put")
    with g.compile(runtime, backend) as exe:
        exe.run(p=same)
        for memory in (frozen, view):
            with pytest.raises(hg.DeclarationError, match="'put' cannot use: external array 'p' is read-only") as caught:
                exe.run(p=memory)
            assert (caught.value.node, caught.value.array) == ("put", "p")
        assert text == bytes(range(64)) * 4
    with reader(kernels).compile(runtime, backend) as exe:
        exe.run(p=frozen)
        assert exe.read("y").tolist() == (frozen + 1).tolist()


def test_a_refused_launch_leaves_memory_as_writeable_as_it_was(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    memory = np.zeros(8, "i4")
    frozen = memory.view()
    frozen.flags.writeable = False
    g = hg.Graph("demo")
    p = g.param("p", "int32", shape=8)
    g.kernel(kernels["put"], 1, 64, (hg.writes(p), 3, 8), name="put")
    with g.compile(runtime, backend) as exe:
        exe.run(p=memory)
        with pytest.raises(hg.DeclarationError, match="read-only"):
            exe.run(p=frozen)
        exe.set("put", args=(hg.writes(p), 4, 8))  # what the nodes use is judged again
        exe.run()
    assert memory.tolist() == [4] * 8


def test_read_only_default_is_refused_where_a_node_is_to_write_it() -> None:
    g = hg.Graph("demo")
    p = g.param("p", "i4", default=np.frombuffer(bytes(16), "i4"), shape=4)
    with pytest.raises(hg.DeclarationError, match=r"node 'set': parameter 'p' stands for .* by default, .* is read-only"):
        g.memset(p, 1, name="set")


def test_set_compares_with_what_parameters_are_bound_to(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    g = reader(kernels)
    v = g.device_array("v", np.zeros(64, "i4"))
    with g.compile(runtime, backend) as exe:
        exe.run(p="v")
        with pytest.raises(hg.DeclarationError, match=r"'p' is .* array 'v' too: 'put' writes 'v' .* 'next' reads 'p'"):
            exe.set("put", x=hg.writes(v))
        exe.run()
        assert exe.read("y").tolist() == [1] * 64
        exe.run(p="z")
        exe.set("put", x=hg.writes(v))
        exe.run()
        assert exe.read("v").tolist() == [7] * 64
        with pytest.raises(hg.DeclarationError, match=r"'p' is .* array 'v' too"):
            exe.run(p="v")
        exe.run(p="x")  # which no node writes any more


# -- parameters that copy their values -------------------------------------------------------------------------------------


def copying(kernels: hg.Module, **options: Any) -> hg.Graph:
    """y = p + 1."""
    g = hg.Graph("demo")
    p = g.param("p", "i4", shape=64, copy=True, **options)
    y = g.host_array("y", np.zeros(64, "i4"))
    d = g.device_array("d", shape=64, dtype="i4")
    g.kernel(kernels["next"], 1, 64, (p, hg.writes(d), 64), name="next")
    g.memcpy(y, d)
    return g


def test_launch_copies_the_values_of_a_parameter(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    g = copying(kernels)
    seen: list[int] = []

    def look(y: Any) -> None:
        time.sleep(0.01)
        seen.append(int(y[0]))

    g.host(look, args=(g.arrays["y"],), reads=[g.arrays["y"]])
    values = np.zeros(64, "i4")
    with g.compile(runtime, backend) as exe:
        with pytest.raises(hg.DeclarationError, match="the first launch must give 'p'"):
            exe.run()
        for k in range(4):
            values[:] = k
            exe.launch(p=values)
            values[:] = -1
            exe.launch()  # with the values of the launch before
        exe.synchronize()
        assert seen == [1, 1, 2, 2, 3, 3, 4, 4]
        exe.run(p=7)  # broadcast
        exe.run(p=list(range(64)))
        assert exe.read("y").tolist() == list(range(1, 65))
        assert exe.stats.instantiations <= 1
        for bad, text in ((np.zeros(3), "takes values of shape"), ([1.5] * 64, "no whole numbers"), ("y", "copies values")):
            with pytest.raises(hg.DeclarationError, match=text):
                exe.run(p=bad)
        exe.run()
        with exe.clone() as twin:
            twin.run()
            assert twin.read("y").tolist() == list(range(1, 65))


def test_copied_parameter_keeps_its_default_and_what_nodes_write(runtime: Runtime, backend: Any, kernels: hg.Module) -> None:
    default = np.arange(64, dtype="i4")
    g = copying(kernels, default=default)
    g.memset(g.parameters["p"], 5)
    default[:] = 0
    for made in (g, hg.Graph.from_json(g.to_json())):
        assert made.parameters["p"].copy
        with made.compile(runtime, backend) as exe:
            exe.run()
            assert exe.read("y").tolist() == list(range(1, 65))
            exe.run()
            assert exe.read("y").tolist() == [6] * 64
        assert not verify(made, runtime, backends=(backend,), orders=2).findings


def test_to_json_keeps_a_copied_parameter(kernels: hg.Module, tmp_path: Path) -> None:
    g = copying(kernels, default=np.arange(64, dtype="i4"))
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(g.to_json()), hg.Workflow.model_json_schema())
    g.export(tmp_path / "copied.py")
    known: dict[str, Any] = {"__name__": "copied"}
    exec((tmp_path / "copied.py").read_text(), known)
    assert known["build"]().to_json() == g.to_json()
    with pytest.raises(hg.DeclarationError, match=r"'p' copies the values of each launch .*; declare a default"):
        copying(kernels).export(tmp_path / "copied.hip")
    with pytest.raises(hg.DeclarationError, match="copy=True is for parameters with a shape"):
        g.param("a", "i4", copy=True)
    with pytest.raises(hg.DeclarationError, match="'q': default takes values of shape"):
        g.param("q", "i4", shape=3, copy=True, default=[1, 2])
