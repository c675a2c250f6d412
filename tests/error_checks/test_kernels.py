"""Kernel launches that cannot be: arguments, grids and blocks, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg

SOURCE = r"""
struct P { int a; float b; };
extern "C" __global__ void scale(float* x, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] *= a; }
extern "C" __global__ void typed(const float* x, bool b, signed char c, unsigned char d, short e, unsigned int f, long long g,
                                 unsigned long long h, double i, float4 j, P k, void* any) {}
extern "C" __global__ void quads(float4* x) {}
extern "C" __global__ void pairs(const float2* x, double2* y) { y[threadIdx.x] = {x[threadIdx.x].y, x[threadIdx.x].x}; }
__launch_bounds__(64) __global__ void small(float* x) { x[threadIdx.x] = 0; }
extern "C" __global__ void big(float* x) { __shared__ float s[4096]; s[threadIdx.x] = x[threadIdx.x]; x[0] = s[1]; }
"""
P = np.dtype([("a", "i4"), ("b", "f4")])
m = hg.Module(SOURCE, structs={"P": P}, name="errors")


BROKEN = r"""
extern "C" __global__ void broken(int* x) {
  x[0] = nothing_here;
}
"""


@pytest.mark.parametrize("name", [None, "given"])
@pytest.mark.parametrize("kind", ["text", "file", "made"])
def test_compile_errors_name_the_users_file_and_line(kind: str, name: str | None, tmp_path: Path) -> None:
    runtime_or_skip("cpu")
    own = Path(__file__)
    line = next(n for n, text in enumerate(own.read_text().splitlines(), 1) if "nothing_here;" in text)
    if kind == "text":
        module, said = hg.Module(BROKEN, name=name), [f"{own}:{line}:", f"{line} |   x[0] = nothing_here;"]
    elif kind == "file":
        path = tmp_path / "broken.hip"
        path.write_text(BROKEN)
        module, said = hg.Module.from_file(path, name=name), [f"{path}:3:", "3 |   x[0] = nothing_here;"]
    else:
        module = hg.Module(BROKEN.replace("broken", "others"), name=name)
        said = [f"{module.name}:3:", f"(the source is declared at {own}:"]
    g = hg.Graph("broken")
    g.kernel(module[module.kernels[0]], grid=1, block=1, args=(g.device_array("x", shape=1, dtype="int32"),))
    with pytest.raises(hg.DeclarationError) as caught:
        g.compile("cpu")
    for text in said:
        assert text in str(caught.value)


@pytest.fixture
def g() -> hg.Graph:
    g = hg.Graph("kernels")
    g.device_array("x", shape=64, dtype="float32")
    g.device_array("i", shape=64, dtype="int32")
    g.host_array("page", shape=64, dtype="float32", pinned=False)
    g.param("a", "float32", 1.0)
    g.param("n", "int32", 4)
    return g


def refused(g: hg.Graph, call: Any, *texts: str, node: str | None = "k") -> None:
    before = (list(g.dag), dict(g.arrays))
    with pytest.raises(hg.DeclarationError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value), str(caught.value)
    assert caught.value.node == node
    assert (list(g.dag), dict(g.arrays)) == before
    good = g.kernel(m["scale"], 1, 64, (g.arrays["x"], 1.0, 64))
    assert good.name == "scale"


@pytest.mark.parametrize(
    ("grid", "block", "text"),
    [
        (0, 1, "grid.0 must be at least 1 (got 0)"),
        (1, 0, "block.0 must be at least 1 (got 0)"),
        ((1, 0), 1, "grid.1 must be at least 1"),
        (1, (1, 1, -2), "block.2 must be at least 1 (got -2)"),
        (1, 1025, "at most 1024 threads (got 1025"),
        (1, (32, 33), "32 x 33 x 1 = 1056"),
        (2**32, 1, "less than 2**32"),
        (1.5, 1, "grid.0 is an integer (got 1.5)"),
        ("1", 1, "grid.0 is an integer"),
        (True, 1, "got True"),
        ((), 1, "one to three axes (got 0)"),
        ((1, 1, 1, 1), 1, "one to three axes (got 4)"),
        (None, 1, "grid is missing; give grid= and block=, or over= and block="),
    ],
)
def test_extents_are_from_one_up(g: hg.Graph, grid: Any, block: Any, text: str) -> None:
    refused(g, lambda: g.kernel(m["scale"], grid, block, (g.arrays["x"], 1.0, 64), name="k"), "node 'k'", text)


def test_extents_may_be_integer_scalars_only(g: hg.Graph) -> None:
    args = (g.arrays["x"], 1.0, 64)
    refused(g, lambda: g.kernel(m["scale"], g.parameters["a"], 1, args, name="k"), "grid.0", "scalar integer parameter", "'a'")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "takes 3 arguments (float* x, float a, int n), got 0"),
        (("x", 1.0), "got 2"),
        (("x", 1.0, 4, 5), "got 4"),
        ((3, 1.0, 4), "argument 'x' of kernel 'scale' is float*"),
        (((), 1.0, 4), "or None for a null pointer"),
        (("i", 1.0, 4), "has dtype int32"),
        (("page", 1.0, 4), "pageable host memory"),
        (("x", 1.0, "i"), "a value; got the array 'i'"),
        (("x", "n", 4), "is float, parameter 'n' is int32"),
        (("x", 1.0, "a"), "dtype='int32'"),
    ],
)
def test_arguments_have_the_count_and_kind_of_the_signature(g: hg.Graph, args: tuple[Any, ...], text: str) -> None:
    known = {**g.arrays, **g.parameters}
    given = tuple(known.get(a, a) if isinstance(a, str) else a for a in args)
    refused(g, lambda: g.kernel(m["scale"], 1, 64, given, name="k"), "node 'k'", text)


@pytest.mark.parametrize("declared", [False, True], ids=["kernel", "set"])
@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"x": "x", "factor": 1.0}, ["has no parameter 'factor'", "are 'x', 'a', 'n'"]),
        ({"aa": 1.0}, ["has no parameter 'aa' (did you mean 'a'?)"]),
        ({"n": 1.5}, ["parameter 'int n' takes an int (got 1.5 "]),
    ],
)
def test_arguments_by_name_are_checked_alike_in_kernel_and_set(
    g: hg.Graph, declared: bool, given: dict[str, Any], texts: list[str]
) -> None:
    args = {name: g.arrays.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    whole: dict[str, Any] = {"x": g.arrays["x"], "a": 1.0, "n": 2}
    if not declared:
        refused(g, lambda: g.kernel(m["scale"], 1, 64, whole | args, name="k"), "node 'k'", *texts)
        return
    g.kernel(m["scale"], 1, 64, whole, name="k")
    with g.compile("recorder") as exe, pytest.raises(hg.DeclarationError) as caught:
        exe.set("k", args=args)
    assert not [text for text in ("node 'k'", *texts) if text not in str(caught.value)]


def test_arguments_by_name_are_put_in_order_and_all_needed(g: hg.Graph) -> None:
    whole = {"n": 2, "x": g.arrays["x"], "a": 1.0}
    in_order = g.kernel(m["scale"], 1, 64, (g.arrays["x"], 1.0, 2), name="in_order")
    assert g.kernel(m["scale"], 1, 64, whole, name="by_name").args == in_order.args
    del whole["n"]
    refused(g, lambda: g.kernel(m["scale"], 1, 64, whole, name="k"), "node 'k'", "args of kernel 'scale' lacks 'n'")


@pytest.mark.parametrize(
    ("a", "n", "text"),
    [
        ("1", 4, "takes a float (got '1'"),
        (1j, 4, "takes a float"),
        (None, 4, "takes a float"),
        (True, 4, "takes a float (got True"),
        (1e39, 4, "a number that float32 can hold"),
        (1.0, 4.0, "takes an int (got 4.0"),
        (1.0, 2**31, "from -2147483648 to 2147483647"),
        (1.0, -(2**31) - 1, "an int from"),
        (1.0, "4", "takes an int"),
        (1.0, np.int64(2**40), "an int from"),
    ],
)
def test_values_have_the_kind_and_range_of_the_signature(g: hg.Graph, a: Any, n: Any, text: str) -> None:
    with pytest.raises(hg.DeclarationError) as caught:
        g.kernel(m["scale"], 1, 64, (g.arrays["x"], a, n), name="k")
    assert "node 'k'" in str(caught.value)
    assert text in str(caught.value)
    assert len(g) == 0


def test_strided_views_are_no_kernel_arguments(g: hg.Graph) -> None:
    refused(
        g,
        lambda: g.kernel(m["scale"], 1, 8, (g.arrays["x"][::2], 1.0, 8), name="k"),
        "'x[0:63:2]' is not contiguous",
        "copy the view",
    )


def test_vectors_have_whole_and_aligned_arrays(g: hg.Graph) -> None:
    x = g.arrays["x"]
    refused(g, lambda: g.kernel(m["quads"], 1, 8, (x[:6],), name="k"), "has 6 elements, not a multiple of 4")
    g2 = hg.Graph("again")
    y = g2.device_array("y", shape=64, dtype="float32")
    with pytest.raises(hg.DeclarationError, match="begins at byte 4, not at a multiple of"):
        g2.kernel(m["quads"], 1, 8, (y[1:5],))


@pytest.mark.needs("cpu")
def test_pairs_of_floats_are_complex_numbers_too() -> None:
    g = hg.Graph("complex")
    values = (np.arange(8) * (1 + 2j)).astype("complex64")
    x, y = g.device_array("x", values), g.device_array("y", shape=8, dtype="complex128")
    g.kernel(m["pairs"], 1, 8, (x, hg.writes(y)), name="swap")
    assert not g.check().diagnostics
    with g.compile("cpu") as exe:
        exe.run()
        assert np.array_equal(exe.read("y"), values.imag + 1j * values.real)
    with pytest.raises(hg.DeclarationError, match="takes dtype float32; 'y' has dtype complex128"):
        g.kernel(m["pairs"], 1, 8, (y, y))
    ints = g.device_array("ints", shape=8, dtype="int32")
    with pytest.raises(hg.DeclarationError, match="takes dtype float64; 'ints' has dtype int32"):
        g.kernel(m["pairs"], 1, 4, (x, ints))
    with pytest.raises(hg.DeclarationError, match="takes dtype float32; 'x' has dtype complex64"):
        g.kernel(m["quads"], 1, 8, (x,))


def test_a_const_argument_is_not_written(g: hg.Graph) -> None:
    x = g.arrays["x"]
    args = (hg.writes(x), True, 1, 2, 3, 4, 5, 6, 7.0, (1, 2, 3, 4), (1, 2.0), x)
    refused(g, lambda: g.kernel(m["typed"], 1, 1, args, name="k"), "const float*", "cannot be written")


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, 2),
        (1, "x"),
        (2, 128),
        (2, -129),
        (3, 256),
        (3, -1),
        (4, 2**15),
        (5, 2**32),
        (5, -1),
        (6, 2**63),
        (7, -1),
        (7, 2**64),
        (8, "x"),
        (9, (1, 2, 3)),
        (9, 1.0),
        (9, "abcd"),
        (10, (1,)),
        (10, 5),
        (10, {"a": 1}),
    ],
)
def test_values_fit_their_parameter(g: hg.Graph, position: int, value: Any) -> None:
    x = g.arrays["x"]
    args: list[Any] = [x, True, 1, 2, 3, 4, 5, 6, 7.0, (1, 2, 3, 4), (1, 2.0), x]
    args[position] = value
    with pytest.raises(hg.DeclarationError, match="node 'k': kernel 'typed'"):
        g.kernel(m["typed"], 1, 1, args, name="k")
    assert len(g) == 0


@pytest.mark.parametrize("shared", [-1, 2**31, 1.5, "x", True])
def test_shared_memory_is_a_number_of_bytes(g: hg.Graph, shared: Any) -> None:
    args = (g.arrays["x"], 1.0, 64)
    refused(g, lambda: g.kernel(m["scale"], 1, 64, args, shared_bytes=shared, name="k"), "shared_bytes is a number of bytes")


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 1.5, "high", True])
def test_priority_is_an_integer_of_32_bits(g: hg.Graph, priority: Any) -> None:
    args = (g.arrays["x"], 1.0, 64)
    said = "priority is an integer from -2147483648 to 2147483647"
    refused(g, lambda: g.kernel(m["scale"], 1, 64, args, priority=priority, name="k"), said)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "n" * 1001, 5])
def test_the_name_of_a_module_is_printable(name: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="the name of a module is a str of at most 1000 printable characters"):
        hg.Module(SOURCE, name=name)


@pytest.mark.parametrize("kernel", [None, "scale", print, m])
def test_only_kernels_are_launched(g: hg.Graph, kernel: Any) -> None:
    refused(g, lambda: g.kernel(kernel, 1, 1, (), name="k"), "module['scale']", type(kernel).__name__)


def test_an_unknown_kernel_names_those_that_are_there() -> None:
    with pytest.raises(hg.DeclarationError, match="no kernel 'scal'; its kernels are 'scale', 'typed'"):
        m["scal"]


def codes(g: hg.Graph, target: str) -> set[str]:
    return {d.code for d in g.check(target).errors}


def test_the_name_of_a_file_is_no_source() -> None:
    with pytest.raises(hg.DeclarationError, match=r"no __global__ function.*; to read a file, Module\.from_file\('wave\.hip'\)"):
        hg.Module("wave.hip")
    with pytest.raises(hg.DeclarationError) as caught:
        hg.Module("int f(int x) { return x; }")
    assert "from_file" not in str(caught.value)


def test_limits_of_the_device_are_found_by_the_check(g: hg.Graph) -> None:
    x = g.arrays["x"]
    g.kernel(m["small"], 1, 128, (x,), name="bounds")
    assert "HG502" in codes(g, "amd:gfx942")
    g.kernel(m["scale"], (1, 70000), 1, (x, 1.0, 1), name="grid")
    assert "HG503" in codes(g, "nvidia:sm_90")
    g.kernel(m["big"], 1, 64, (x,), shared_bytes=60000, name="shared")
    assert "HG505" in codes(g, "amd:gfx942")
    g.kernel(m["scale"], 1, (1, 1, 128), (x, 1.0, 1), name="block")
    assert "HG501" in codes(g, "nvidia:sm_90")
    g.kernel(m["scale"], 2**30, 1024, (x, 1.0, 1), name="threads")
    assert "HG504" in codes(g, "amd:gfx942")
    with pytest.raises(hg.CheckError, match="'bounds'"):
        g.compile(runtime="recorder")


def test_source_that_does_not_compile_says_where() -> None:
    broken = hg.Module('extern "C" __global__ void f(float* x) {\n  x[0] = undeclared_name;\n}\n', name="broken")
    g = hg.Graph("g")
    g.kernel(broken["f"], 1, 1, (g.device_array("x", shape=4, dtype="float32"),))
    runtime = runtime_or_skip("cpu")
    with pytest.raises(hg.DeclarationError) as caught:
        g.compile(runtime=runtime)
    assert "undeclared_name" in str(caught.value)
    assert ":2:" in str(caught.value)
    assert "broken" in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"source": SOURCE + "// \ud800"},
        {"source": SOURCE, "options": ["-DA=\udfff"]},
        {"source": SOURCE, "structs": {"P": P, "\ud800": P}},
    ],
)
def test_a_lone_surrogate_in_a_module_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(hg.DeclarationError, match="is no character of any text"):
        hg.Module(**given)


@pytest.mark.parametrize("fields", [["n", "f"], ["n", "d"], ["n", "d", "f"]])
def test_a_struct_of_another_size_than_it_is_compiled_with_is_refused(fields: list[str]) -> None:
    kinds = {"n": "i4", "f": "f4", "d": "f8"}
    dtype = np.dtype([(name, kinds[name]) for name in fields], align="f" not in fields)
    source = "struct Q { int n; double d; float f; }; __global__ void k(float* x, Q q) { x[0] = q.f; }"
    g = hg.Graph("g")
    x = g.device_array("x", shape=4, dtype="float32")
    g.kernel(hg.Module(source, structs={"Q": dtype}, name="layouts")["k"], 1, 1, (x, np.zeros((), dtype)[()]))
    runtime = runtime_or_skip("cpu")
    with pytest.raises(hg.DeclarationError, match=rf"'k' .* 'layouts': parameter 'Q q' has 24 bytes .* {dtype.itemsize} by"):
        g.compile(runtime=runtime)


def test_a_struct_is_asked_for_by_its_fields(g: hg.Graph) -> None:
    p = g.param("p", P)
    text = r"'q': default is a struct \(a, b\): give a tuple .* \(got \{'a': 1\}\); field 'b' is missing"
    with pytest.raises(hg.DeclarationError, match=text):
        g.param("q", P, default={"a": 1})
    with pytest.raises(hg.DeclarationError, match=r"'r': default is a struct \(a, b\): give a tuple .* \(got 3\)"):
        g.param("r", P, default=3)
    with pytest.raises(hg.DeclarationError, match=r"default is a struct \(a, b\): .*; field 'b' is missing"):
        g.param("s", P, default={"a": 1})
    other = g.param("other", [("c", "f4")])
    one = hg.Module("struct P { int a; float b; }; __global__ void one(P k) {}", structs={"P": P})["one"]
    with pytest.raises(hg.DeclarationError, match=r"declare it with dtype=module\.structs\['P'\]"):
        g.kernel(one, 1, 1, (other,))
    with pytest.raises(hg.DeclarationError, match=r"'k': kernel 'one': parameter 'P k' is a struct .*; there is no field 'c'"):
        g.kernel(one, 1, 1, ({"a": 1, "b": 2.0, "c": 3},), name="k")
    with pytest.raises(hg.DeclarationError, match=r"node 'm': the value is a struct \(a, b\): .*; field 'a' is missing"):
        g.memset(g.device_array("records", shape=2, dtype=P), {"b": 1.0}, name="m")
    g.kernel(one, 1, 1, (p,))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((1.5, 2), r"field 'a' takes an int \(got 1\.5 of type float\); convert it with int\(\)"),
        ({"a": 2**31, "b": 0}, "field 'a' takes an int from -2147483648 to 2147483647"),
        ((1, 1e300), "field 'b' takes a number that float32 can hold"),
        (("1", 2), "field 'a' takes an int .got '1' of type str"),
    ],
)
def test_numbers_that_a_field_of_a_struct_cannot_hold_are_refused(g: hg.Graph, value: Any, why: str) -> None:
    """As for parameters that are numbers: NumPy would cut them off."""
    one = hg.Module("struct P { int a; float b; }; __global__ void one(P p) {}", structs={"P": P})["one"]
    with pytest.raises(hg.DeclarationError, match=f"parameter 'P p': {why}"):
        g.kernel(one, 1, 1, (value,))
    with pytest.raises(hg.DeclarationError, match=why):
        g.param("q", P, value)
    with pytest.raises(hg.DeclarationError, match=why):
        g.memset(g.device_array("points", shape=4, dtype=P), value)


def test_fields_inside_a_struct_are_named_by_their_path(g: hg.Graph) -> None:
    inner = np.dtype([("x", "i2"), ("y", "f8")], align=True)
    outer = np.dtype([("v", "i4", (2,)), ("one", inner), ("two", inner, (2,))], align=True)
    points = g.device_array("points", shape=4, dtype=outer)
    good = ([1, 2], (3, 4.5), [(1, 2.0), {"x": 3, "y": 4.0}])
    g.memset(points, good)
    g.memset(points, (np.array([1, 2]), np.array((3, 4.5), inner), np.zeros(2, inner)))
    for n, (part, name) in enumerate([([1, 2.5], "v"), ((70000, 1), "one.x"), ([(1, 2), (3.5, 4)], "two.x")]):
        with pytest.raises(hg.DeclarationError, match=f"field '{name}' takes an int"):
            g.memset(points, (*good[:n], part, *good[n + 1 :]))
    with pytest.raises(hg.DeclarationError, match=r"field 'one' is a struct \(x, y\): .*; there is no field 'z'"):
        g.memset(points, (good[0], {"x": 1, "y": 2.0, "z": 3}, good[2]))


def test_the_dtype_of_a_struct_is_one() -> None:
    with pytest.raises(hg.DeclarationError, match="'nonsense' is not a dtype"):
        hg.Module("__global__ void f(float* x) {}", structs={"P": "nonsense"})
