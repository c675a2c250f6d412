"""Every type of elements, NumPy's and those of ml_dtypes, through every door of the package."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from places import DTYPES, EXTRA_DTYPES

import hipgraphdsl as hg
from hipgraphdsl.arrays import EXTRAS, NAMES, as_dtype, kind_of
from hipgraphdsl.cli import main
from hipgraphdsl.kernels import ArgumentPacker, Signature, check_argument
from hipgraphdsl.nodes import reading
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.parts.verify.laboratory import apart

# Values that a type holds exactly, and values that it does not hold.
HELD: dict[str, tuple[Any, ...]] = {"b": (True, False), "i": (0, -1), "u": (0, 1), "f": (1.0, 2.0), "c": (1 - 2j, 0.5j)}


def held(name: str, count: int = 2) -> np.ndarray[Any, Any]:
    dtype = as_dtype(name)
    return np.resize(np.array(HELD[kind_of(dtype)]).astype(dtype), count)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def graph_of(name: str) -> hg.Graph:
    """Return a graph that takes a type through initial values, temporaries, a fill, a scalar and an array parameter."""
    g = hg.Graph("doors")
    values = held(name, 6).reshape(2, 3)
    x, y = g.device_array("x", values), g.host_array("y", shape=(2, 3), dtype=name)
    filled, given = g.host_array("filled", shape=4, dtype=name), g.host_array("given", shape=4, dtype=name)
    copied = g.host_array("copied", shape=4, dtype=name)
    t = g.alloc("t", (2, 3), name)
    g.memcpy(t, x)
    g.memcpy(y, t)
    g.free(t)
    scalar = g.param("scalar", name, held(name)[0])
    g.memset(filled[:2], held(name)[1])
    g.memset(filled[2:], scalar)
    g.memcpy(given, g.param("array", name, shape=4))
    g.memcpy(copied, g.param("copies", name, held(name, 4), shape=4, copy=True))
    return g


def require_run(g: hg.Graph, name: str) -> None:
    values, other = held(name, 6).reshape(2, 3), held(name, 5)[1:].copy()
    with g.compile("cpu") as exe:
        exe.run(array=other, copies=other)
        assert same(exe.read("y"), values)
        assert same(exe.read("given"), other)
        assert same(exe.read("copied"), other)
        assert same(exe.read("filled"), held(name, 4)[[1, 1, 0, 0]])
        exe.run(scalar=held(name)[1].item(), array=other)
        assert same(exe.read("filled"), held(name, 4)[[1, 1, 1, 1]])
        exe.write("x", values[::-1].tolist())
        exe.run(array=other)
        assert same(exe.read("y"), np.ascontiguousarray(values[::-1]))


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_runs_is_stored_and_loads(name: str, tmp_path: Path) -> None:
    g = graph_of(name)
    require_run(g, name)
    assert hg.Graph.from_json(g.to_json()).to_json() == g.to_json()
    require_run(hg.Graph.from_json(g.to_json()), name)
    require_run(program_of(g, tmp_path), name)


def program_of(g: hg.Graph, folder: Path) -> hg.Graph:
    """Return the graph that the exported Python program builds."""
    path = folder / f"{g.name}.py"
    g.export(path)
    scope: dict[str, Any] = {"__name__": "program", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    made: hg.Graph = scope["build"]()
    return made


@pytest.mark.parametrize("name", DTYPES)
def test_values_beyond_4096_are_in_files_beside(name: str, tmp_path: Path) -> None:
    values = held(name, 5000)
    g = hg.Graph("large")
    g.memcpy(g.host_array("y", shape=5000, dtype=name), g.device_array("x", values))
    built = program_of(g, tmp_path)
    (tmp_path / "large.json").write_text(g.to_json())
    (stored,) = tmp_path.glob("*.npy")
    by_array = hg.Graph.from_json(g.to_json(), arrays={"x": values})
    by_file = hg.Graph.from_json(g.to_json(), arrays={"x": np.load(stored)})
    for again in (built, by_array, by_file):
        with again.compile("cpu") as exe:
            exe.run()
            assert same(exe.read("y"), values)
    out = tmp_path / "y.npy"
    assert not main(["run", str(tmp_path / "large.json"), "--runtime", "cpu", "--array", f"x={stored}", "--save", f"y={out}"])
    assert np.load(out).tobytes() == values.tobytes()


@pytest.mark.parametrize("name", EXTRA_DTYPES)
def test_struct_with_field_is_stored_and_loads(name: str, tmp_path: Path) -> None:
    layout = np.dtype([("n", "i4"), ("v", as_dtype(name)), ("w", as_dtype(name), (3,))], align=True)
    values = np.zeros(2, layout)
    values["v"], values["w"] = held(name), held(name, 6).reshape(2, 3)
    g = hg.Graph("struct")
    g.memcpy(g.host_array("y", shape=2, dtype=layout), g.device_array("x", values))
    for again in (g, hg.Graph.from_json(g.to_json()), program_of(g, tmp_path)):
        with again.compile("cpu") as exe:
            exe.run()
            assert exe.read("y").dtype == layout
            assert exe.read("y")["w"].tobytes() == values["w"].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_schema_names_dtype(name: str) -> None:
    dtypes = Workflow.model_json_schema()["$defs"]["dtype"]["oneOf"]
    assert name in dtypes[0]["enum"]


@pytest.mark.parametrize("name", ["float33", "int3", "float8", "float8_e9m9", "str", "S4", "object", "float128", "", "<f1"])
def test_unknown_dtype_of_a_file_is_refused(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = hg.Graph("g")
    text.device_array("x", shape=4, dtype="f4")
    data = json.loads(text.to_json())
    jsonschema.validate(data, Workflow.model_json_schema())
    data["arrays"][0]["dtype"] = name
    with pytest.raises(hg.DeclarationError, match="there is no dtype"):
        hg.Graph.from_json(json.dumps(data))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, Workflow.model_json_schema())


def one_field(name: str) -> hg.Kernel:
    """Return a kernel that takes a struct of one field by value."""
    layout = np.dtype([("v", as_dtype(name))])
    return hg.Module('extern "C" __global__ void f(V v) {}', structs={"V": layout})["f"]


# -- values that a type does not hold --------------------------------------------------------------------------------------


def unheld(name: str) -> list[Any]:
    """Return values that a type cannot represent, of which a conversion would make others."""
    dtype = as_dtype(name)
    kind = kind_of(dtype)
    if kind == "b":
        return [2, 0.5, 1j]
    if kind in "iu":
        bits = EXTRAS[name].bits if name in EXTRAS else 8 * dtype.itemsize
        least = 0 if kind == "u" else -(2 ** (bits - 1))
        return [least - 1, least + 2**bits, 0.5, math.nan, 1j, np.complex64(1j)]
    special = [each for each in (math.inf, math.nan) if not same_special(dtype, each)]
    if kind == "c":
        return special
    most = float(ml_dtypes.finfo(dtype).max) if name in EXTRAS else float(np.finfo(dtype).max)
    negative = [-1.0] if name == "float8_e8m0fnu" else []
    beyond = [most * 1.5] if most < 1e300 else []
    return [*special, *beyond, *negative, 1j, np.complex64(1j)]


def same_special(dtype: np.dtype[Any], value: float) -> bool:
    got = float(np.array([value]).astype(dtype).astype("c16")[0].real)
    return got == value or (math.isnan(got) and math.isnan(value))


@pytest.mark.parametrize("name", EXTRA_DTYPES)
def test_value_that_a_dtype_lacks_is_refused_at_every_door(name: str) -> None:
    values = unheld(name)
    assert values or name in ("complex32", "bcomplex32")
    for value in values:
        g = hg.Graph("refused")
        x = g.device_array("x", shape=2, dtype=name)
        g.memset(x[:1], g.param("p", name, held(name)[0]))
        doors: list[Any] = [
            lambda g=g, value=value: g.device_array("bad", [value], dtype=name),
            lambda g=g, value=value: g.host_array("bad", np.array([value]), dtype=name),
            lambda g=g, value=value, x=x: g.memset(x, value),
            lambda g=g, value=value: g.param("bad", name, value),
            lambda g=g, value=value: g.kernel(one_field(name), 1, 1, ((value,),)),
        ]
        for door in doors:
            with pytest.raises(hg.DeclarationError):
                door()
        assert list(g.arrays) == ["x"]
        with g.compile("cpu") as exe:
            with pytest.raises(hg.DeclarationError):
                exe.write("x", [value, value])
            with pytest.raises(hg.DeclarationError):
                exe.run(p=value)
            exe.run()
            assert same(exe.read("x")[:1], held(name)[:1])


@pytest.mark.parametrize("field", ["S8", "U2", "M8[s]", "O", np.dtype("longdouble")])
def test_field_that_a_file_cannot_name_is_refused(field: Any) -> None:
    """What runs can be stored, so a struct has only fields of known types."""
    if np.dtype(field) == np.dtype("float64"):
        pytest.skip("long double is float64 here")
    g = hg.Graph("field")
    for layout in (np.dtype([("n", "i4"), ("s", field)]), np.dtype([("inner", [("s", field, (2,))])])):
        with pytest.raises(hg.DeclarationError, match=r"field '(?:inner\.)?s', .* cannot live on a device"):
            g.device_array("x", shape=4, dtype=layout)
        with pytest.raises(hg.DeclarationError, match=r"field '(?:inner\.)?s', .* cannot live on a device"):
            hg.Module('extern "C" __global__ void f(P* p) {}', structs={"P": layout})


def test_dtype_that_ml_dtypes_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    g = hg.Graph("g")
    g.device_array("x", shape=4, dtype="float8_e5m2")
    text = g.to_json()
    reading._named.cache_clear()  # of dtypes that files have named before
    monkeypatch.delattr(ml_dtypes, "float8_e5m2")
    for make in (lambda: g.device_array("y", shape=4, dtype="float8_e5m2"), lambda: hg.Graph.from_json(text)):
        with pytest.raises(hg.DeclarationError, match=r"'float8_e5m2' is not in this ml_dtypes .*: pip install -U ml_dtypes"):
            make()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for make in (lambda: g.device_array("y", shape=4, dtype="float8_e5m2"), lambda: hg.Graph.from_json(text)):
        with pytest.raises(hg.DeclarationError, match=r"'float8_e5m2' needs the package ml_dtypes: pip install ml_dtypes"):
            make()


@pytest.mark.parametrize("name", EXTRA_DTYPES)
def test_scalar_of_ml_dtypes_is_stored_in_a_callbacks_arguments(name: str) -> None:
    g = hg.Graph("scalar")
    values = held(name)
    g.host(json.dumps, (values[1], values))
    (node,) = hg.Graph.from_json(g.to_json(), callbacks={"json:dumps": json.dumps}).nodes
    assert isinstance(node, hg.HostNode)
    assert (node.args[0], node.args[0].dtype) == (values[1], values.dtype)
    assert same(node.args[1], values)


@pytest.mark.parametrize("name", ["complex64", "complex128", *(name for name in EXTRA_DTYPES if EXTRAS[name].kind == "c")])
def test_complex_is_not_cut(name: str) -> None:
    one = np.array([1 + 2j]).astype(as_dtype(name))
    for real in ("bool", "int32", "float32", "bfloat16", "float8_e4m3fn", "int4"):
        g = hg.Graph("cut")
        x = g.device_array("x", shape=1, dtype=real)
        for value in (one[0], one.reshape(())):
            with pytest.raises(hg.DeclarationError, match="complex"):
                g.memset(x, value)
            with pytest.raises(hg.DeclarationError, match="complex"):
                g.param("p", real, value)
        with pytest.raises(hg.DeclarationError, match="complex"):
            g.device_array("y", one, dtype=real)
        with g.compile("cpu") as exe, pytest.raises(hg.DeclarationError, match="complex"):
            exe.write("x", one)


@pytest.mark.parametrize("name", DTYPES)
def test_scalar_is_passed_by_value(name: str) -> None:
    """A kernel without a signature takes NumPy scalars, so also those of ml_dtypes."""
    dtype = as_dtype(name)
    signature = Signature.of_values("k", [np.dtype("u1"), dtype])
    packer = ArgumentPacker(signature)
    for given in held(name):
        values = [check_argument(p, v, "node 'k'") for p, v in zip(signature.parameters, (np.uint8(3), given), strict=True)]
        data = packer.pack(values)
        assert data[signature.offsets[1] :] == given.tobytes()
        assert len(data) == signature.offsets[1] + dtype.itemsize


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "float4_e2m1fn", "int4", "bfloat16"])
def test_verify_takes_arrays_of_the_dtype(name: str) -> None:
    g = hg.Graph("verified")
    x, y = g.device_array("x", held(name, 8)), g.host_array("y", shape=8, dtype=name)
    g.memcpy(y, x)
    g.memset(y[:2], held(name)[1])
    assert hg.verify(g, "cpu", tolerance=0.1).ok
    values = held(name, 8)
    assert not apart(values, values.copy(), 0.1).any()
    assert apart(values, np.roll(values, 1), 0.1).all()
