"""Workflows and modules that several tests use: `everything` holds each kind of node and each form of argument once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from hipgraphdsl.arrays import reads, updates, writes
from hipgraphdsl.errors import RuntimeUnavailable
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.nodes import Event, all_kinds, wait_value, write_value
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.data import SANITIZE

SOURCE = r"""
struct Params { float a; int n; };
__constant__ float table[16];
__device__ int counters[4];
template <typename T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }
extern "C" __global__ void scale(float* x, float a, size_t n) { if (threadIdx.x < n) x[threadIdx.x] *= a * table[0]; }
extern "C" __global__ void add(const float* x, const float* y, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x];
}
extern "C" __global__ void shift(float4* x, float4 by, Params p) { x[threadIdx.x].x += by.x * p.a; }
"""
PARAMS = np.dtype([("a", "f4"), ("n", "i4")], align=True)

OWN_KINDS = {kind: cls for kind, cls in all_kinds().items() if cls.__module__.startswith("hipgraphdsl.")}
"""Node classes by kind, without those that tests add as another package would."""

_OF_PARTS = {".html": "pages", ".graphml": "formats", ".yaml": "formats", ".py": "formats", ".hip": "program"}
EXTENSIONS = [
    *(".dot", ".mmd", ".json"),
    *(pytest.param(extension, marks=pytest.mark.needs(part)) for extension, part in _OF_PARTS.items()),
]
"""Extensions of exports as text, with the parts that they need."""


def report(*args: Any) -> None:
    """Take part in a workflow as a callback that a file can name."""


def issue(stream: Any, *args: Any) -> None:
    """Take part in a workflow as a function that is given a stream."""


def module() -> Module:
    return Module(SOURCE, structs={"Params": PARAMS}, options=["-DTILE=16"])


def compile_whole(module: Module, *instances: str, fast: bool = True, sanitize: bool = False) -> Module:
    """Compile all kernels of a module for the CPU and return the module: no graph of some of them then starts a compiler.

    Of templates the `instances` are compiled. `fast` is the code that is run, `sanitize` that of the sanitizer.
    """
    templates = {name.partition("<")[0] for name in instances}
    names = [*(name for name in module.kernels if name not in templates), *instances]
    with suppress(RuntimeUnavailable):
        runtime = open_runtime("cpu")
        for options in [()] * fast + [(SANITIZE,)] * sanitize:
            runtime.rtc_compile(module.source, names, module.symbols, (*module.options, *options), name=module.name)
    return module


def pipeline(batches: int = 4) -> Graph:
    """Batches through host-to-device, kernel and device-to-host."""
    kernels = module()
    g = Graph("pipeline")
    source, result = (g.host_array(name, shape=(batches, 64), dtype="float32") for name in ("source", "result"))
    work = g.device_array("work", shape=(batches, 64), dtype="float32")
    for i in range(batches):
        g.memcpy(work[i], source[i], name=f"H2D{i}")
        g.kernel(kernels["scale"], grid=1, block=64, args=(work[i], 2.0, 64), name=f"K{i}")
        g.memcpy(result[i], work[i], name=f"D2H{i}")
    return g


def batched(count: int = 8, links: int = 3) -> Graph:
    """Kernels that may be one launch, a copy, and kernels of one block that follow each other."""
    kernels = Module(
        """
        extern "C" __global__ void set(int* x, int value) { x[threadIdx.x] = value; }
        extern "C" __global__ void step(int* x) { x[threadIdx.x] += 1; }
        """
    )
    g = Graph("batched")
    x = [g.device_array(f"x{i}", np.zeros(32, "i4")) for i in range(count)]
    h = g.host_array("h", shape=32, dtype="int32")
    for i in range(count):
        g.kernel(kernels["set"], 1, 32, (x[i], i), name=f"set_{i}")
    g.memcpy(h, x[1], name="out")
    for i in range(links):
        g.kernel(kernels["step"], 1, 32, (x[0],), name=f"step_{i}")
    return g


def chain(nodes: int) -> Graph:
    """Kernels one after the other."""
    scale = module()["scale"]
    g = Graph("chain")
    x = g.device_array("x", shape=256, dtype="float32")
    for _ in range(nodes):
        g.kernel(scale, grid=1, block=256, args=(x, 0.5, 256))
    return g


def inner() -> Graph:
    """A child with a parameter and an array of its own."""
    g = Graph("inner")
    x = g.device_array("x", shape=16, dtype="float32")
    g.device_array("own", np.arange(4, dtype="i8"))
    a = g.param("a", "float32", 0.25)
    g.kernel(module()["scale"], grid=1, block=16, args=(x, a, 16))
    return g


def everything(kernels: Module | None = None) -> Graph:
    kernels = kernels or module()
    g = Graph("everything")
    hx = g.host_array("hx", np.linspace(0, 1, 64, dtype="float32").reshape(4, 16))
    page = g.host_array("page", np.array([1, 2, 3], "i2"), pinned=False)
    x = g.device_array("x", shape=(4, 16), dtype="float32", device=0)
    u = g.device_array("u", shape=(4, 260, 12), dtype="float64")
    g.device_array("odd", np.array([np.nan, -0.0, np.inf], "f8"))
    g.device_array("z", np.array([1 + 2j], "c8"))
    g.device_array("flags", np.array([True, False]))
    g.device_array("records", np.array([(1.5, 7)], PARAMS))
    g.device_array("half", np.array([0.1, -2.5], "f2"))
    g.host_array("large", np.arange(5000, dtype="u4"))
    ints = g.device_array("ints", shape=8, dtype="int32")
    longs = g.device_array("longs", shape=8, dtype="uint64")
    outside = g.external_array("outside", np.zeros(16, "f4"))
    frozen = np.zeros(3, "u1")
    frozen.flags.writeable = False
    seen = g.external_array("seen", frozen)
    a = g.param("a", dtype="float32", default=2.0)
    n = g.param("n", dtype="int32")
    field = g.param("field", dtype="float32", shape=(4, 16))

    y = g.alloc("y", shape=(4, 16), dtype="float32")
    up = g.memcpy(x, hx, name="copy_in")
    g.memcpy(kernels.symbol("table")[0:4], hx[0, 0:4], name="to_symbol")
    g.memcpy(u[3, 8:248, 0:10:2], u[2, 10:250, 0:10:2], name="strided")
    g.memset(y, 0)
    g.memset(u[0], float("nan"), name="poison")
    g.memset(g.arrays["z"], 1 - 2j)
    g.memset(g.arrays["records"], np.array((0.5, 3), PARAMS)[()])
    g.memset(x[1], a, name="by_parameter")
    g.kernel(kernels["scale"], grid=(n, 2), block=(8, 2, 2), args=(x, a, 64), name="scale_x", shared_bytes=64)
    g.kernel(kernels["scale"], grid=1, block=64, args=(field, 0.1, 64), after=[up], ignore={"HG203": "on purpose"})
    g.kernel(kernels["add"], grid=1, block=64, args=(reads(x), y, writes(outside)), cooperative=True, priority=-1, cluster=1)
    g.kernel(kernels["fill<int>"], grid=1, block=8, args=(ints, -3))
    g.kernel(kernels["shift"], grid=1, block=4, args=(x, (1, 2, 3, 4.5), np.array((1, 2), PARAMS)[()]))
    g.host(report, args=(hx, 3, "text", 2.5, None, True, float("inf"), [1, (2, 3)], {"k": b"\x00\xff"}, a, 1j), reads=[hx])
    g.host(report, args=(np.float32(0.1), np.int8(4), np.arange(3)), reads=[page, seen], writes=[page])
    g.captured(issue, args=(updates(ints), reads(longs[0:4])))
    g.eager(issue, args=(ints, hx, a), reads=[ints], writes=[hx])
    g.record("e")
    g.wait("e", name="after_e")
    g.record(Event("both", shared=True))
    join = g.empty(name="join", after=["scale_x"])
    child = inner()
    g.child(child, bind={"x": x[2], "a": a}, name="first")
    g.child(child, bind={"x": x[3], "a": 0.5}, name="second")
    g.signal_semaphore("s", 5)
    g.wait_semaphore("s", 5)
    g.memory_ops([write_value(ints[0], -1), wait_value(longs[3], 2**63, "geq")])
    g.conditional("if", ints[1:2], [child, inner()], bind={"x": x[0]})
    g.all_reduce([x[2], x[3]], "max")
    g.memcpy(hx[1], outside, name="back")
    g.free(y)
    g.order("first", join)
    return g
