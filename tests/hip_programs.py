"""Exported HIP C++ programs: which workflows, how they are built, and that they leave the bytes of the Python run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 through it
import numpy as np
from conformance import spec
from places import DTYPES

import hipgraphdsl as hg
from hipgraphdsl.arrays import as_dtype, kind_of

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {
    "01_hip_graph_tutorial": {"size": 65536},
    "02_concurrent_streams": {"size": 4096},
    "03_overlap_pipeline": {},
    "04_wave2d": {"steps": 40, "side": 64},
    "05_host_work_beside": {"size": 4096, "rounds": 64},
    "06_wave2d_devices": {"devices": 1, "steps": 12, "size": 64},
}


@dataclass
class Written:
    """A workflow to export.

    Attributes
    ----------
    graph : Graph
    functions : dict of str to str
        C++ for the body of each function that the program's user writes, by its name.
    launch : dict
        Parameters of the launch: values, or names of arrays.
    """

    graph: hg.Graph
    functions: Mapping[str, str] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)


def example(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # inspect finds the source of its functions through it
    found.loader.exec_module(module)
    return module


def of_example(name: str, **options: Any) -> Written:
    bodies = {"set_vector": "for (int i = 0; i < 65536; ++i) vector[i] = value;"}
    return Written(example(name).build(**(options or SMALL[name])), bodies if name.startswith("01") else {})


_BODIES = {
    "host": {
        "_tripled": "for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) x[4 * i + 2 * j] = 3 * x[4 * i + 2 * j] + 1;",
        "_added": "for (int i = 0; i < 4; ++i) out[i] += 2 * x[i];",
        "tripled_function": "for (int i = 0; i < 2; ++i) x[i] = by * x[i] + 1;",
    },
    "parameter_scalar": {"_tripled": "for (int i = 0; i < 4; ++i) x[i] = by * x[i] + 1;"},
    "child_with_host_node": {
        "_tripled": "for (int i = 0; i < 4; ++i) x[i] = by * x[i] + 1;",
    },
    "pageable_rewritten": {
        "_advance": "++k[0]; for (int i = 0; i < 32; ++i) w[i] += k[0];",
        "advance_function": "++k[0]; for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) w[6 * i + j] += k[0];",
    },
    "external_arrays": {"_tripled": "for (int i = 0; i < 8; ++i) x[i] = 3 * x[i] + 1;"},
    "captured": {"_issue": 'CHECK(hipMemcpyAsync(dst, src, 64, hipMemcpyDefault, stream), "captured");'},
    "eager": {"_issue": 'CHECK(hipMemcpyAsync(dst, src, 64, hipMemcpyDefault, stream), "eager");'},
    "eager_host": {
        "_scale": "for (int i = 0; i < 16; ++i) values[i] *= by;",
        "_shift": "for (int i = 0; i < 16; ++i) values[i] += by;",
    },
    "conditional_any_body": {
        "_add_1": "for (int i = 0; i < 16; ++i) ++values[i];",
        "_scale": "for (int i = 0; i < 16; ++i) values[i] *= by;",
    },
}

REFUSED = ("semaphores",)
"""Rows that no program of its own can hold; tests/unit/test_export_hip.py has the refusals."""
LEFT_OUT = {
    "captured_forked": "its function uses a stream of the test",
    **{name: "of a program the host always decides" for name in spec.NODE_KINDS if name.endswith("_by_host")},
}


def of_row(name: str) -> Written:
    """Return a row of the table of node kinds, or of shapes."""
    graph = hg.Graph(name)
    if name in spec.SHAPES:
        return Written(spec.SHAPES[name](graph).graph)
    case = spec.NODE_KINDS[name](graph, None)
    launch = {**case.defaults, **(case.launches[0] if case.launches else {})}
    return Written(case.graph, _BODIES.get(name, {}), {k: v for k, v in launch.items() if not isinstance(v, np.void)})


def launches_of_row(name: str) -> list[Mapping[str, Any]]:
    """Return the parameters of all launches of a row."""
    case = spec.NODE_KINDS[name](hg.Graph(name), None)
    return [{**case.defaults, **launch} for launch in case.launches or ({},)]


def cooperative() -> Written:
    g = hg.Graph("cooperative")
    x, y = g.device_array("x", spec.numbers(1)), g.device_array("y", spec.numbers(2))
    g.kernel(spec.module()["mix"], 2, 8, (y, x, 3, 16), cooperative=True, name="together")
    g.kernel(spec.module()["mix"], 2, 8, (x, y, 4, 16), priority=-1, name="first")
    return Written(g)


NARROW = r"""
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
template <typename T, int N> __global__ void scale(T* x, T a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * a * T(float(N));
}"""
COMPLEX = r"""
#include <hip/hip_complex.h>
__global__ void turn(hipFloatComplex* x, hipFloatComplex a) { x[threadIdx.x] = hipCmulf(x[threadIdx.x], a); }
__global__ void widen(hipDoubleComplex* y, const hipFloatComplex* x) {
  y[threadIdx.x] = make_hipDoubleComplex(hipCrealf(x[threadIdx.x]), hipCimagf(x[threadIdx.x]));
}"""


def template_arguments() -> Written:
    """A template of several arguments, for types of two bytes too, which the host knows by their bits."""
    g = hg.Graph("template arguments")
    brain = np.dtype("bfloat16")
    scale = hg.Module(NARROW)
    for name, dtype, element in (("f", np.dtype("f4"), "float"), ("h", np.dtype("f2"), "__half"), ("b", brain, "__hip_bfloat16")):
        x = g.device_array(name, np.arange(24).astype(dtype))
        g.kernel(scale[f"scale<{element}, 4>"], 3, 8, (x, dtype.type(1.5), 24), name=f"scale_{name}")
    return Written(g)


def complex_numbers() -> Written:
    g = hg.Graph("complex numbers")
    module = hg.Module(COMPLEX)
    x, y = g.device_array("x", (np.arange(8) * (1 + 2j)).astype("c8")), g.device_array("y", shape=8, dtype="complex128")
    g.kernel(module["turn"], 1, 8, (x, np.complex64(1.5 - 1j)))
    g.kernel(module["widen"], 1, 8, (y, x))
    return Written(g)


def dtypes() -> Written:
    """Arrays, fills and parameters of every type of elements; the host's C++ knows those of ml_dtypes by their bits."""
    g = hg.Graph("dtypes")
    for name in DTYPES:
        dtype = as_dtype(name)
        values = np.array([1, 0, 1, 1, 0]).astype("i1" if kind_of(dtype) in "biu" else "f4")
        values = -values if name == "int1" else values + (name == "float8_e8m0fnu")
        x, y = g.device_array(name, values.astype(dtype)), g.host_array(f"{name}_out", shape=5, dtype=dtype)
        large = g.host_array(f"{name}_large", np.resize(values[2:], 1000).astype(dtype))
        g.memcpy(y, x)
        g.memset(y[1:2], values[0].item(), after=[g.nodes[-1]])
        g.memset(y[2:3], g.param(f"p_{name}", name, values.astype(dtype)[2]))
        g.memcpy(large[:5], x)
    return Written(g)


def large_values() -> Written:
    """Values that only files hold."""
    g = hg.Graph("large values")
    values = np.random.default_rng(5).standard_normal((50, 20)).astype("f4")
    h, d = g.host_array("h", values), g.device_array("d/2".replace("/", " "), values[::-1].copy())
    g.memcpy(h[:25], d[25:], name="over")
    return Written(g)


def defaults() -> Written:
    """Array parameters that stand for the memory of the user, copied or not, for part of another, and for arrays of a child."""
    g = hg.Graph("defaults")
    memory = np.arange(8, dtype="i4")
    held = g.external_array("held", memory)
    child = hg.Graph("child")
    own, lent = child.device_array("own", shape=8, dtype="i4"), child.device_array("lent", shape=4, dtype="i4")
    child.memset(child.param("standing", "i4", own, 8), 3)
    child.memset(child.param("bound", "i4", lent, 4), 4)
    x = g.device_array("x", shape=8, dtype="i4")
    g.child(child, name="c", bind={"lent": x[4:]})
    y = g.device_array("y", shape=(4, 8), dtype="i4")
    for i, p in enumerate((
        g.param("given", "i4", np.arange(10, 18, dtype="i4"), 8),
        g.param("copied", "i4", np.arange(20, 28, dtype="i4"), 8, copy=True),
        g.param("part", "i4", memory[2:6], 4),
        held,
    )):  # fmt: skip
        g.memcpy(y[i, : p.shape[0]], p)
    return Written(g)


ROWS = [name for name in (*spec.SHAPES, *spec.NODE_KINDS) if name not in REFUSED and name not in LEFT_OUT]
MAKERS: dict[str, Callable[[], Written]] = {
    **{name: (lambda name=name: of_example(name)) for name in SMALL},  # type: ignore[misc]
    **{name: (lambda name=name: of_row(name)) for name in ROWS},  # type: ignore[misc]
    "07_jacobi": lambda: of_example("07_jacobi", side=24, check_every=2),
    "cooperative": cooperative,
    "defaults": defaults,
    "dtypes": dtypes,
    "large_values": large_values,
    "template_arguments": template_arguments,
}
ON_CPU = {**MAKERS, "complex_numbers": complex_numbers}
"""Also what NVRTC, with which runtime nvidia compiles, has no header for."""


def export(written: Written, folder: Path, backend: str) -> Path:
    """Write the program, with the bodies of its functions, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "program.hip"
    written.graph.export(path, backend=backend)
    text = path.read_text()
    for name, body in written.functions.items():
        head, found, tail = text.partition(f"static void {name.strip('_')}(")
        assert found, f"no function {name}"
        before, mark, after = tail.partition("  NOT_WRITTEN(")
        assert mark
        text = head + found + before + f"  {body}\n" + after.partition("\n")[2]
    path.write_text(text)
    return path


def outputs(written: Written, runtime: Any, backend: Any, launches: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Return what each array holds after launches from Python."""
    with written.graph.compile(runtime=runtime, backend=backend) as exe:
        for _ in range(launches):
            exe.run(**written.launch)
        arrays = [own for level in written.graph.workflow().levels() for own in level.own_arrays()]
        parameters = [own for level in written.graph.workflow().levels() for own in level.own_parameters()]
        defaults = {name: p.default for name, p in parameters if p.shape and isinstance(p.default, np.ndarray)}
        return {name: _read(exe, name, array) for name, array in arrays if array.kind != "alloc"} | defaults


def _read(exe: Any, name: str, array: Any) -> np.ndarray[Any, Any]:
    return np.array(array.obj) if isinstance(array, hg.ExternalArray) else exe.read(name)


def run(written: Written, executable: Path, expected: Mapping[str, np.ndarray[Any, Any]], launches: int = 1) -> None:
    """Run a program and compare every array that it writes with the Python run, byte for byte."""
    folder = executable.parent
    results = folder / "results"
    results.mkdir(exist_ok=True)
    options = [text for name, value in written.launch.items() for text in (f"--{name}", str(getattr(value, "name", value)))]
    done = subprocess.run(
        [str(executable), *options, "--out-dir", str(results), "--data-dir", str(folder), "--repeat", str(launches)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{launches} launch{'es' * (launches > 1)}, us: submit" in done.stdout
    compared = 0
    for name, wanted in expected.items():
        file = results / f"{name.replace('/', '.')}.npy"
        if not file.exists():  # external memory that lies inside another array
            continue
        found = np.load(file)
        assert found.shape == wanted.shape, name
        assert found.tobytes() == wanted.tobytes(), f"array {name!r} differs"
        compared += 1
    assert compared == len(list(results.iterdir()))
