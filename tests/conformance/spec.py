"""What every runtime and backend must do: shapes of graphs and kinds of nodes, each with its NumPy reference.

A row is a function that builds a `Case`: a graph, and for each of its nodes what the node does to plain NumPy arrays, in
order of declaration. A new node kind is one more row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
from copies import CopiesNode
from specimens import compile_whole

import hipgraphdsl as hg
from hipgraphdsl.runtimes.data import MemcpyKind

Values = dict[str, npt.NDArray[Any]]
Op = Callable[[Values, Mapping[str, Any]], None]
N = 16
PARAMS = np.dtype([("a", "i4"), ("b", "f4"), ("c", "i8")], align=True)
TRIPLE = np.dtype([("x", "i4"), ("y", "f4"), ("z", "u4")])

SOURCE = r"""
struct Params { int a; float b; long long c; };
__constant__ int table[4];
__device__ int total[4];
// Of no two of these does the order not matter, so a wrong order shows in the values.
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + (unsigned)k);
}
extern "C" __global__ void fold(int* y, const int* a, const int* b, const int* c, const int* d, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 3u * (unsigned)a[i] + 5u * (unsigned)b[i] + 7u * (unsigned)c[i]
                          + 11u * (unsigned)d[i] + (unsigned)k);
}
extern "C" __global__ void tile(int* y, int pitch, int k) { y[threadIdx.y * pitch + threadIdx.x] += k; }
extern "C" __global__ void place(int* y, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  int i = (z * gridDim.y * blockDim.y + r) * gridDim.x * blockDim.x + x;
  if (i < n) y[i] = 3 * y[i] + 100 * z + 10 * r + x;
}
extern "C" __global__ void typed(double* y, bool flag, signed char a, unsigned short b, long long c, float d, double e) {
  y[threadIdx.x] = 2 * y[threadIdx.x] + (flag ? 1 : 0) + a + b + (double)c + d + e;
}
extern "C" __global__ void structured(float* y, Params p) { y[threadIdx.x] = y[threadIdx.x] * p.b + p.a + (float)p.c; }
extern "C" __global__ void optional(int* y, const int* x, int* copy) {
  if (x) y[threadIdx.x] += x[threadIdx.x];
  if (copy != nullptr) copy[threadIdx.x] = y[threadIdx.x];
}
extern "C" __global__ void looked_up(int* y) { y[threadIdx.x] = 5 * y[threadIdx.x] + table[threadIdx.x % 4]; }
extern "C" __global__ void add_total(const int* x) {
  if (threadIdx.x < 4) total[threadIdx.x] = 3 * total[threadIdx.x] + x[threadIdx.x];
}
extern "C" __global__ void count_down(int* n) { if (threadIdx.x == 0) n[0] -= 1; }
extern "C" __global__ void count_to_0(int* n) { if (threadIdx.x == 0 && n[0] > 0) n[0] -= 1; }
template <typename T> __global__ void scaled(T* y, T a) { y[threadIdx.x] = y[threadIdx.x] * a + (T)1; }
"""

BARRIER_SOURCE = r"""
extern "C" __global__ void shared(int* y) {
  extern __shared__ int s[];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = 3 * s[blockDim.x - 1 - threadIdx.x] + 1;
}
"""


@dataclass
class Case:
    """A graph and its reference.

    Attributes
    ----------
    graph : Graph
    ops : dict of str to callable
        What each node does: ``op(values, parameters)`` on NumPy arrays by name, in order of declaration.
    launches : sequence of dict
        Parameters of each launch.
    sets : sequence of (node, fields, op)
        Changes that `Executable.set` takes, with what the node then does.
    defaults : dict
        Parameters before they are given.
    hidden : dict of str to array
        Values that `read` cannot reach, such as a module's variables.
    toggles : sequence of str or None
        Nodes that may be disabled one by one; None where all may. Others would leave memory of the graph unset.
    expands : sequence of str
        Backends with which a node may become several, so that nodes do not match steps one to one.
    finish : callable
        Returns what the row made, after the Executable has been closed.
    """

    graph: hg.Graph
    ops: dict[str, Op] = field(default_factory=dict)
    launches: Sequence[Mapping[str, Any]] = ({}, {})
    sets: Sequence[tuple[str, Mapping[str, Any], Op]] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    hidden: Values = field(default_factory=dict)
    toggles: Sequence[str] | None = None
    expands: Sequence[str] = ()
    finish: Callable[[], None] = lambda: None

    def initial(self) -> Values:
        """Return the values of all arrays that last, as they are before the first launch."""
        values: Values = {name: array.copy() for name, array in self.hidden.items()}

        def visit(workflow: hg.Workflow, prefix: str, bound: Iterable[str]) -> None:
            for name, array in workflow.arrays.items():
                if name in bound or array.kind == "alloc":
                    continue
                if isinstance(array, hg.ExternalArray):
                    values[prefix + name] = np.array(array.obj)
                else:
                    given = getattr(array, "initial", None)
                    values[prefix + name] = np.zeros(array.shape, array.dtype) if given is None else given.copy()
            for node in workflow.nodes:
                if isinstance(node, hg.ChildGraphNode):
                    visit(node.workflow, f"{prefix}{node.name}/", node.bind)
                elif isinstance(node, hg.ConditionalNode):
                    for n, body in enumerate(node.bodies):
                        visit(body, f"{prefix}{node.name}/{n}/", node.bind)

        visit(self.graph.workflow(), "", ())
        return values

    def apply(
        self, values: Values, parameters: Mapping[str, Any], off: Iterable[str] = (), changed: Mapping[str, Op] | None = None
    ) -> None:
        """Do what one launch does: without the nodes in `off`, with what `changed` says of others."""
        for name, op in self.ops.items():
            if name not in off:
                (changed or {}).get(name, op)(values, parameters)


Build = Callable[[hg.Graph, Any], Case]


@cache
def module() -> hg.Module:
    """Return the module of all rows, which takes longer to read than most rows take to run."""
    made = hg.Module(SOURCE + BARRIER_SOURCE, name="spec", structs={"Params": PARAMS})
    return compile_whole(made, "scaled<int>", "scaled<double>")


def numbers(seed: int, shape: Any = N, dtype: Any = "i4") -> npt.NDArray[Any]:
    """Return values that differ from each other and from those of other seeds."""
    count = int(np.prod(shape))
    return (np.arange(count) * 37 % 101 + 1000 * seed + 1).astype(dtype).reshape(shape)


def wrapped(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value.astype(np.uint64).astype(np.uint32).view(np.int32)


def mixed(y: npt.NDArray[Any], x: npt.NDArray[Any], k: int) -> None:
    """Do what kernel `mix` does."""
    y[...] = wrapped(31 * y.astype(np.int64) + 7 * x.astype(np.int64) + k)


def folded(y: npt.NDArray[Any], inputs: Sequence[npt.NDArray[Any]], k: int) -> None:
    """Do what kernel `fold` does."""
    total = 31 * y.astype(np.int64) + k
    for factor, x in zip((3, 5, 7, 11), inputs):
        total = total + factor * x.astype(np.int64)
    y[...] = wrapped(total)


# -- shapes ----------------------------------------------------------------------------------------------------------------


def dag(g: hg.Graph, predecessors: Sequence[Sequence[int]]) -> Case:
    """Node i updates row i of an array from the rows of up to four predecessors; each fifth node is a copy and a kernel."""
    kernels = module()
    count = len(predecessors)
    u = g.device_array("u", numbers(1, (max(count, 1), N)))
    case = Case(g)

    def kernel_op(i: int, sources: tuple[int, ...]) -> Op:
        def op(v: Values, _: Mapping[str, Any]) -> None:
            folded(v["u"][i], [v["u"][s] for s in sources], i)

        return op

    def copy_op(i: int, source: int) -> Op:
        def op(v: Values, _: Mapping[str, Any]) -> None:
            v["u"][i, : N // 2] = v["u"][source, N // 2 :]

        return op

    for i, given in enumerate(predecessors):
        assert len(given) <= 4
        if i % 5 == 4 and given:
            case.ops[f"copy{i}"] = copy_op(i, given[0])
            g.memcpy(u[i, : N // 2], u[given[0], N // 2 :], name=f"copy{i}")
        padded = tuple(given) + (i,) * (4 - len(given))
        case.ops[f"n{i}"] = kernel_op(i, padded)
        args = [hg.updates(u[i]), *(hg.reads(u[s]) for s in padded), i, N]
        g.kernel(kernels["fold"], grid=2, block=8, args=args, name=f"n{i}")
    return case


def layers(count: int, width: int, seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    found: list[list[int]] = [[] for _ in range(width)]
    for layer in range(1, count):
        before = range((layer - 1) * width, layer * width)
        found += [sorted(chance.sample(before, chance.randint(1, min(3, width)))) for _ in range(width)]
    return found


def side_by_side(count: int, length: int) -> list[list[int]]:
    return [[i - count] if i >= count else [] for i in range(count * length)]


def diamonds(count: int) -> list[list[int]]:
    found: list[list[int]] = [[]]
    for _ in range(count):
        top = len(found) - 1
        found += [[top], [top], [top + 1, top + 2]]
    return found


SHAPES: dict[str, Callable[[hg.Graph], Case]] = {
    "empty": lambda g: Case(g),
    "single": lambda g: dag(g, [[]]),
    "chain": lambda g: dag(g, [[], *([i] for i in range(11))]),
    "fan_out": lambda g: dag(g, [[], *([0] for _ in range(8))]),
    "fan_in": lambda g: dag(g, [[], [], [], [], [0, 1, 2, 3]]),
    "diamond": lambda g: dag(g, diamonds(1)),
    "disconnected": lambda g: dag(g, [[], [0], [], [], [3], [3]]),
    "layered_random": lambda g: dag(g, layers(6, 5, 7)),
    "parallel_chains": lambda g: dag(g, side_by_side(6, 5)),
    "diamond_stack": lambda g: dag(g, diamonds(5)),
}


# -- kinds of nodes --------------------------------------------------------------------------------------------------------

NODE_KINDS: dict[str, Build] = {}
NEEDS: dict[str, str] = {}
"""Rows that need something of the runtime: the name of its method."""
Decide = Literal["auto", "device", "host"]


B = TypeVar("B", bound=Build)


def row(name: str, needs: str = "") -> Callable[[B], B]:
    def add(build: B) -> B:
        NODE_KINDS[name] = build
        if needs:
            NEEDS[name] = needs
        return build

    return add


def copy_into(dst: str, src: str, to: Any = ..., origin: Any = ...) -> Op:
    def op(v: Values, _: Mapping[str, Any]) -> None:
        v[dst][to] = v[src][origin].reshape(v[dst][to].shape)

    return op


@row("kernel")
def kernel(g: hg.Graph, _: Any) -> Case:
    m = module()
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    g.kernel(m["mix"], grid=2, block=8, args=(y, x, -3, N), name="mix")
    g.kernel(m["mix"], grid=1, block=N, args=(x, y, 5, N), name="back")

    def mix(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], -3)

    def back(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["x"], v["y"], 5)

    def half(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"][:8], v["x"][:8], 9)

    return Case(g, {"mix": mix, "back": back}, sets=[("mix", {"grid": 1, "args": (y, x, 9, N)}, half)])


@row("kernel_3d_grid")
def kernel_3d(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, 24))
    g.kernel(module()["place"], grid=(2, 1, 2), block=(1, 3, 2), args=(y, 24), name="place")

    def place(v: Values, _: Mapping[str, Any]) -> None:
        z, r, x = np.indices((4, 3, 2))
        v["y"][...] = 3 * v["y"] + (100 * z + 10 * r + x).reshape(-1).astype("i4")

    return Case(g, {"place": place})


@row("kernel_views_with_gaps")
def kernel_views_with_gaps(g: hg.Graph, _: Any) -> Case:
    """Tiles of a matrix, whose access is said: the first two are independent."""
    y = g.device_array("y", numbers(1, 48).reshape(6, 8))
    parts = {"left": (slice(1, 5), slice(0, 3)), "right": (slice(1, 5), slice(3, 6)), "both": (slice(3, 6), slice(2, 5))}
    for k, (name, part) in enumerate(parts.items()):
        g.kernel(module()["tile"], 1, (3, part[0].stop - part[0].start), args=(hg.updates(y[part]), 8, k + 1), name=name)
    assert set(g.dag.edges) == {("left", "both"), ("right", "both")}

    def op(name: str, k: int) -> Op:
        def add(v: Values, _: Mapping[str, Any]) -> None:
            v["y"][parts[name]] += k

        return add

    return Case(g, {name: op(name, k + 1) for k, name in enumerate(parts)})


@row("kernel_argument_types")
def kernel_types(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, 8, "f8"))
    g.kernel(module()["typed"], 1, 8, (y, True, -5, 60000, 2**40, 0.25, 1e-3), name="typed")

    def typed(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] = 2 * v["y"] + 1 + -5 + 60000 + float(2**40) + np.float32(0.25) + 1e-3

    return Case(g, {"typed": typed})


@row("kernel_cluster")
def kernel_cluster(g: hg.Graph, _: Any) -> Case:
    """In clusters where the device has them; the values are the same everywhere."""
    m = module()
    x, y, blocks = g.device_array("x", numbers(1)), g.device_array("y", numbers(2)), g.param("blocks", "uint32", 4)
    g.kernel(m["mix"], grid=4, block=4, args=(y, x, 3, N), cluster=2, name="fixed")
    g.kernel(m["mix"], grid=(blocks, 1), block=4, args=(x, y, 5, N), cluster=(2, 1, 1), name="given")

    def fixed(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], 3)

    def given(v: Values, p: Mapping[str, Any]) -> None:
        count = 4 * p["blocks"]
        mixed(v["x"][:count], v["y"][:count], 5)

    def four(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], 3)

    return Case(
        g,
        {"fixed": fixed, "given": given},
        ({}, {"blocks": 2}, {"blocks": 4}),
        defaults={"blocks": 4},
        sets=[("fixed", {"cluster": 4}, four), ("fixed", {"cluster": None}, four)],
    )


@row("kernel_struct_argument")
def kernel_struct(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, 8, "f4"))
    g.kernel(module()["structured"], 1, 8, (y, (3, 0.5, -7)), name="structured")

    def structured(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] = v["y"] * np.float32(0.5) + np.float32(3) + np.float32(-7)

    return Case(g, {"structured": structured})


@row("kernel_null_pointers")
def kernel_null_pointers(g: hg.Graph, _: Any) -> Case:
    x, y, copied = (g.device_array(name, numbers(seed)) for seed, name in enumerate(("x", "y", "copied")))
    optional = module()["optional"]
    g.kernel(optional, 1, N, (y, None, hg.writes(copied)), name="copy")
    g.kernel(optional, 1, N, (y, x, None), name="add")
    g.kernel(optional, 1, N, (y, None, None), name="nothing")

    def copy(v: Values, _: Mapping[str, Any]) -> None:
        v["copied"][...] = v["y"]

    def add(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] += v["x"]

    def nothing(_: Values, __: Mapping[str, Any]) -> None:
        pass

    ops: dict[str, Op] = {"copy": copy, "add": add, "nothing": nothing}
    return Case(g, ops, sets=[("add", {"args": (y, None, None)}, nothing), ("nothing", {"args": (y, x, None)}, add)])


@row("kernel_shared_memory")
def kernel_shared(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1))
    g.kernel(module()["shared"], 1, N, (y,), shared_bytes=4 * N, name="shared")
    g.kernel(hg.Module(BARRIER_SOURCE, name="barrier")["shared"], 1, N, (y,), shared_bytes=4 * N, name="of_another_module")

    def shared(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] = 3 * v["y"][::-1] + 1

    return Case(g, {"shared": shared, "of_another_module": shared})


@row("kernel_template")
def kernel_template(g: hg.Graph, _: Any) -> Case:
    m = module()
    x, y = g.device_array("x", numbers(1, 8, "i4")), g.device_array("y", numbers(2, 8, "f8"))
    g.kernel(m["scaled<int>"], 1, 8, (x, 3), name="ints")
    g.kernel(m["scaled<double>"], 1, 8, (y, 0.5), name="doubles")

    def ints(v: Values, _: Mapping[str, Any]) -> None:
        v["x"][...] = v["x"] * 3 + 1

    def doubles(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] = v["y"] * 0.5 + 1

    return Case(g, {"ints": ints, "doubles": doubles})


@row("kernel_variables")
def kernel_variables(g: hg.Graph, _: Any) -> Case:
    m = module()
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    result = g.host_array("result", shape=4, dtype="i4")
    g.memcpy(m.symbol("table"), x[4:8], name="fill_table")
    g.kernel(m["looked_up"], 1, N, (y,), name="looked_up")
    g.memcpy(m.symbol("total"), y[:4], name="reset")
    g.kernel(m["add_total"], 1, N, (x,), name="add_total")
    g.memcpy(result, m.symbol("total"), name="result")
    zero = np.zeros(4, "i4")

    def looked_up(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][...] = 5 * v["y"] + np.tile(v["table"], 4)

    def add_total(v: Values, _: Mapping[str, Any]) -> None:
        v["total"][...] = 3 * v["total"] + v["x"][:4]

    ops = {
        "fill_table": copy_into("table", "x", ..., slice(4, 8)),
        "looked_up": looked_up,
        "reset": copy_into("total", "y", ..., slice(0, 4)),
        "add_total": add_total,
        "result": copy_into("result", "total"),
    }
    return Case(g, ops, hidden={"table": zero, "total": zero})


def two_arrays(g: hg.Graph, to: str, origin: str, shape: Any = N) -> tuple[Any, Any]:
    declare: dict[str, Callable[..., Any]] = {
        "D": g.device_array,
        "H": g.host_array,
        "P": lambda *args: g.host_array(*args, pinned=False),
    }
    return declare[to]("dst", numbers(5, shape)), declare[origin]("src", numbers(6, shape))


def _copies(to: str, origin: str) -> Build:
    def build(g: hg.Graph, _: Any) -> Case:
        dst, src = two_arrays(g, to, origin)
        g.memcpy(dst[2:], src[:-2], name="copy")
        changed = [("copy", {"dst": dst[:4], "src": src[8:12]}, copy_into("dst", "src", slice(0, 4), slice(8, 12)))]
        return Case(g, {"copy": copy_into("dst", "src", slice(2, None), slice(None, -2))}, sets=changed)

    return build


for _to in "DHP":
    for _origin in "DHP":
        NODE_KINDS[f"memcpy_{_origin}2{_to}"] = _copies(_to, _origin)


@row("memcpy_2d")
def memcpy_2d(g: hg.Graph, _: Any) -> Case:
    dst, src = two_arrays(g, "D", "H", (6, 8))
    g.memcpy(dst[1:4, 2:7], src[3:6, :5], name="copy")
    g.memcpy(src[::2, 6:], dst[:3, :2], name="back")
    ops = {
        "copy": copy_into("dst", "src", np.s_[1:4, 2:7], np.s_[3:6, :5]),
        "back": copy_into("src", "dst", np.s_[::2, 6:], np.s_[:3, :2]),
    }
    moved = copy_into("dst", "src", np.s_[1:4, 3:8], np.s_[3:6, :5])
    return Case(g, ops, sets=[("copy", {"dst": dst[1:4, 3:8]}, moved)])


@row("memcpy_strided_elements")
def memcpy_strided(g: hg.Graph, _: Any) -> Case:
    dst, src = two_arrays(g, "H", "D", 24)
    g.memcpy(dst[1::3], src[:8], name="spread")
    g.memcpy(src[::2], dst[12:], name="gather")
    ops = {
        "spread": copy_into("dst", "src", np.s_[1::3], np.s_[:8]),
        "gather": copy_into("src", "dst", np.s_[::2], np.s_[12:]),
    }
    return Case(g, ops)


@row("memcpy_3d")
def memcpy_3d(g: hg.Graph, _: Any) -> Case:
    dst, src = two_arrays(g, "D", "H", (4, 6, 8))
    g.memcpy(dst[1:3, 2:5, 3:7], src[2:4, :3, 4:], name="copy")
    back = g.host_array("back", shape=(2, 3, 4), dtype="i4")
    g.memcpy(back, dst[::2, 1::2, :4], name="out")
    ops = {
        "copy": copy_into("dst", "src", np.s_[1:3, 2:5, 3:7], np.s_[2:4, :3, 4:]),
        "out": copy_into("back", "dst", ..., np.s_[::2, 1::2, :4]),
    }
    return Case(g, ops)


@row("memcpy_reshaped")
def memcpy_reshaped(g: hg.Graph, _: Any) -> Case:
    dst, src = g.device_array("dst", numbers(1, (4, 6))), g.host_array("src", numbers(2, 24))
    g.memcpy(dst, src, name="copy")
    g.memcpy(src[3], dst[2, 1], name="one")
    return Case(g, {"copy": copy_into("dst", "src"), "one": copy_into("src", "dst", 3, (2, 1))})


_VALUES: dict[str, tuple[Any, Any]] = {
    "bool": (True, False),
    "int8": (-3, 7),
    "uint8": (200, 0),
    "int16": (-300, 257),
    "uint16": (65535, 1),
    "float16": (1.5, 0.0),
    "bfloat16": (-2.5, 1.0),
    "int32": (-70000, 16843009),
    "uint32": (2**32 - 1, 5),
    "float32": (0.1, -0.0),
    "int64": (-(2**40) - 1, 0),
    "uint64": (2**64 - 1, 2**63 + 1),
    "float64": (0.1, float("nan")),
    "complex64": (1 - 2j, 0j),
    "complex128": (0.5 + 3j, 1e300 - 1j),
}


def _set_to(name: str, value: Any, where: Any = ...) -> Op:
    def op(v: Values, _: Mapping[str, Any]) -> None:
        v[name][where] = value

    return op


def _memsets(dtype: str) -> Build:
    def build(g: hg.Graph, _: Any) -> Case:
        kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        value, other = _VALUES[dtype]
        x = g.device_array("x", np.ones((3, 8), kind))
        h = g.host_array("h", np.ones(9, kind))
        g.memset(x, value, name="all")
        g.memset(x[1:, 2:5], other, name="box")
        g.memset(h[::2], value, name="strided")
        ops = {
            "all": _set_to("x", value),
            "box": _set_to("x", other, np.s_[1:, 2:5]),
            "strided": _set_to("h", value, np.s_[::2]),
        }
        sets = [("all", {"value": other}, _set_to("x", other)), ("box", {"value": value}, _set_to("x", value, np.s_[1:, 2:5]))]
        return Case(g, ops, sets=sets)

    return build


for _dtype in _VALUES:
    NODE_KINDS[f"memset_{_dtype}"] = _memsets(_dtype)


@row("copies")
def copies(g: hg.Graph, _: Any) -> Case:
    """A kind of another package (tests/copies.py): the second copy reads what the first has written."""
    x, y, z = g.host_array("x", numbers(1)), g.device_array("y", numbers(2)), g.device_array("z", numbers(3, (4, 8)))
    out = g.host_array("out", shape=(2, 3), dtype="i4")
    g.add(CopiesNode(name="in", dst=(y[4:], z[1, :4]), src=(x[:12], y[6:10])))
    g.kernel(module()["mix"], 1, N, (y, y, 3, N), name="mix")
    g.add(CopiesNode(name="out", dst=(out[:], x[::2]), src=(z[1:3, 2:5], y[:8])))

    def into(v: Values, _: Mapping[str, Any]) -> None:
        v["y"][4:] = v["x"][:12]
        v["z"][1, :4] = v["y"][6:10]

    def mix(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["y"].copy(), 3)

    def out_of(v: Values, _: Mapping[str, Any]) -> None:
        v["out"][...] = v["z"][1:3, 2:5]
        v["x"][::2] = v["y"][:8]

    def one(v: Values, _: Mapping[str, Any]) -> None:
        v["x"][1] = v["z"][3, 7]

    ops: dict[str, Op] = {"in": into, "mix": mix, "out": out_of}
    fields = {"dst": [x[1:2]], "src": [z[3, 7:]]}
    return Case(g, ops, sets=[("out", fields, one)], expands=("explicit", "capture"))


@row("memset_struct")
def memset_struct(g: hg.Graph, _: Any) -> Case:
    value = np.array((7, 0.5, 2**31), TRIPLE)[()]
    x = g.device_array("x", shape=5, dtype=TRIPLE)
    g.memset(x[1:4], value, name="struct")
    return Case(g, {"struct": _set_to("x", value, np.s_[1:4])})


@row("memset_many_dimensions")
def memset_nd(g: hg.Graph, _: Any) -> Case:
    x = g.device_array("x", numbers(1, (3, 4, 5, 6)))
    g.memset(x[::2, 1:3, ::2, 1:4], -9, name="nd")
    g.memset(x[1, 2, 3, 4], 77, name="one")
    return Case(g, {"nd": _set_to("x", -9, np.s_[::2, 1:3, ::2, 1:4]), "one": _set_to("x", 77, (1, 2, 3, 4))})


@row("alloc_free")
def alloc_free(g: hg.Graph, _: Any) -> Case:
    m = module()
    x, out = g.device_array("x", numbers(1)), g.host_array("out", shape=N, dtype="i4")
    y = g.alloc("y", N, "i4", name="alloc_y")
    g.memset(y, 3, name="zero")
    g.kernel(m["mix"], 1, N, (y, x, 1, N), name="mix")
    z = g.alloc("z", (2, 8), "i4", name="alloc_z")
    g.memcpy(z, y, name="copy")
    g.free(y, name="free_y")
    g.memcpy(out[:8], z[1], name="out")
    g.memcpy(x[8:], z[0], name="again")
    g.free(z, name="free_z")

    def mix(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], 1)

    ops = {
        "zero": _set_to("y", 3),
        "mix": mix,
        "copy": copy_into("z", "y"),
        "out": copy_into("out", "z", np.s_[:8], 1),
        "again": copy_into("x", "z", np.s_[8:], 0),
    }
    sets = [("zero", {"value": -4}, _set_to("y", -4))]
    hidden = {"y": np.zeros(N, "i4"), "z": np.zeros((2, 8), "i4")}
    return Case(g, ops, sets=sets, hidden=hidden, toggles=("out", "again"))


@row("alloc_left_to_the_next_launch")
def alloc_left(g: hg.Graph, _: Any) -> Case:
    x, y = g.host_array("x", numbers(1)), g.alloc("y", N, "i4")
    g.memcpy(y, x, name="in")
    g.memcpy(x[:4], y[8:12], name="out")
    ops = {"in": copy_into("y", "x"), "out": copy_into("x", "y", np.s_[:4], np.s_[8:12])}
    return Case(g, ops, hidden={"y": np.zeros(N, "i4")}, toggles=("out",))


def _tripled(x: npt.NDArray[Any], by: int = 3) -> None:
    x[...] = by * x + 1


def _added(out: npt.NDArray[Any], x: npt.NDArray[Any]) -> None:
    assert not x.flags.writeable
    out += 2 * x


def _advance(w: npt.NDArray[Any], k: npt.NDArray[Any]) -> None:
    k[0] += 1
    w[...] += k[0]


@row("host")
def host(g: hg.Graph, _: Any) -> Case:
    x, y = g.host_array("x", numbers(1, (4, 4))), g.host_array("y", numbers(2, 4), pinned=False)
    d = g.device_array("d", shape=(4, 4), dtype="i4")
    g.host(_tripled, args=(x[1:3, ::2],), name="triple")
    g.memcpy(d, x, name="to_device")
    g.host(_added, args=(y, x[0]), reads=[x[0], y], writes=[y], name="add")
    g.host(_tripled, args=(y[:2], 5), name="five")

    def triple(v: Values, _: Mapping[str, Any]) -> None:
        _tripled(v["x"][1:3, ::2])

    def add(v: Values, _: Mapping[str, Any]) -> None:
        v["y"] += 2 * v["x"][0]

    def five(v: Values, _: Mapping[str, Any]) -> None:
        _tripled(v["y"][:2], 5)

    def seven(v: Values, _: Mapping[str, Any]) -> None:
        _tripled(v["y"][:2], 7)

    ops = {"triple": triple, "to_device": copy_into("d", "x"), "add": add, "five": five}
    return Case(g, ops, sets=[("five", {"args": (y[:2], 7)}, seven)])


@row("record_wait")
def record_wait(g: hg.Graph, _: Any) -> Case:
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    first = g.memset(x, 5, name="first")
    g.record("e", after=[first], name="record")
    waited = g.wait("e", name="wait")
    g.memcpy(y, x, after=[waited], name="copy")
    g.record("end", after=["copy"], name="record_end")
    return Case(g, {"first": _set_to("x", 5), "copy": copy_into("y", "x")})


@row("empty")
def empty(g: hg.Graph, _: Any) -> Case:
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    g.memset(x, 1, name="a")
    g.memset(y, 2, name="b")
    join = g.empty(after=["a", "b"], name="join")
    g.memset(x[3:], 9, after=[join], name="c")
    g.empty(name="alone")
    return Case(g, {"a": _set_to("x", 1), "b": _set_to("y", 2), "c": _set_to("x", 9, np.s_[3:])})


def _inner(name: str = "inner") -> hg.Graph:
    """A child: `x` is meant to be bound, `own` is its own, `k` has a default."""
    m = module()
    c = hg.Graph(name)
    x, own = c.device_array("x", numbers(3)), c.device_array("own", numbers(4))
    k = c.param("k", "int32", 2)
    c.kernel(m["mix"], 1, N, (own, x, k, N), name="up")
    c.kernel(m["mix"], 1, N, (x, own, 1, N), name="down")
    return c


def _inner_op(x: str, own: str, k: int | str = 2, part: Any = ...) -> Op:
    def op(v: Values, p: Mapping[str, Any]) -> None:
        mixed(v[own], v[x][part], p[k] if isinstance(k, str) else k)
        mixed(v[x][part], v[own], 1)

    return op


@row("child_unbound")
def child_unbound(g: hg.Graph, _: Any) -> Case:
    g.child(_inner(), name="c")
    return Case(g, {"c": _inner_op("c/x", "c/own")})


@row("child_bound")
def child_bound(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, (2, N)))
    k = g.param("k", "int32", 4)
    g.memset(y[0, :3], 8, name="before")
    g.child(_inner(), bind={"x": y[0], "k": k}, name="c")
    g.memcpy(y[1], y[0], name="after")
    ops = {
        "before": _set_to("y", 8, np.s_[0, :3]),
        "c": _inner_op("y", "c/own", "k", 0),
        "after": copy_into("y", "y", 1, 0),
    }
    return Case(
        g,
        ops,
        ({}, {"k": -5}, {}),
        defaults={"k": 4},
        sets=[("c", {"bind": {"x": y[0], "k": 11}}, _inner_op("y", "c/own", 11, 0))],
    )


@row("child_used_twice")
def child_twice(g: hg.Graph, _: Any) -> Case:
    y, z = g.device_array("y", numbers(1)), g.device_array("z", numbers(2))
    inner = _inner()
    g.child(inner, bind={"x": y, "k": 3}, name="c1")
    g.child(inner, bind={"x": z}, name="c2")
    g.child(inner, bind={"x": y, "own": z}, name="c3")
    ops = {"c1": _inner_op("y", "c1/own", 3), "c2": _inner_op("z", "c2/own"), "c3": _inner_op("y", "z")}
    return Case(g, ops)


@row("child_nested_three_deep")
def child_nested(g: hg.Graph, _: Any) -> Case:
    middle = hg.Graph("middle")
    mx = middle.device_array("mx", numbers(5, (2, N)))
    mk = middle.param("mk", "int32", 6)
    middle.memset(mx[1], 1, name="set")
    middle.child(_inner(), bind={"x": mx[1], "k": mk}, name="inner")
    outer = hg.Graph("outer")
    ox = outer.device_array("ox", numbers(6, (2, N)))
    ok = outer.param("ok", "int32", 7)
    outer.child(middle, bind={"mx": ox, "mk": ok}, name="middle")
    outer.memcpy(ox[0, :4], ox[1, :4], name="copy")
    y = g.device_array("y", numbers(7, (3, N)))
    k = g.param("k", "int32", 8)
    g.child(outer, bind={"ox": y[1:], "ok": k}, name="outer")

    def whole(v: Values, p: Mapping[str, Any]) -> None:
        part = v["y"][1:]
        part[1] = 1
        mixed(v["outer/middle/inner/own"], part[1], p["k"])
        mixed(part[1], v["outer/middle/inner/own"], 1)
        part[0, :4] = part[1, :4]

    return Case(g, {"outer": whole}, ({}, {"k": 9}, {"k": 9}, {}), defaults={"k": 8})


@row("child_with_allocs")
def child_with_allocs(g: hg.Graph, _: Any) -> Case:
    c = hg.Graph("packing")
    x = c.device_array("x", numbers(1))
    t = c.alloc("t", N, "i4")
    c.memcpy(t, x, name="save")
    c.memset(x[4:], 1, name="clear")
    c.memcpy(x[:4], t[8:12], name="restore")
    c.free(t)
    y, z = g.device_array("y", numbers(2)), g.device_array("z", numbers(3))
    g.child(c, bind={"x": y}, name="c1")
    g.child(c, bind={"x": z}, name="c2")
    g.memcpy(z[:4], y[:4], name="copy")

    def packing(name: str) -> Op:
        def op(v: Values, _: Mapping[str, Any]) -> None:
            saved = v[name].copy()
            v[name][4:] = 1
            v[name][:4] = saved[8:12]

        return op

    ops = {"c1": packing("y"), "c2": packing("z"), "copy": copy_into("z", "y", np.s_[:4], np.s_[:4])}
    return Case(g, ops, toggles=("copy",))


@row("child_with_host_node")
def child_with_host(g: hg.Graph, _: Any) -> Case:
    c = hg.Graph("callback")
    x = c.host_array("x", numbers(1, 4))
    by = c.param("by", "int32", 3)
    c.host(_tripled, args=(x, by), name="triple")
    y = g.host_array("y", numbers(2))
    b = g.param("b", "int32", 5)
    g.child(c, bind={"x": y[4:8], "by": b}, name="c1")
    g.child(c, name="c2")

    def first(v: Values, p: Mapping[str, Any]) -> None:
        _tripled(v["y"][4:8], p["b"])

    def second(v: Values, _: Mapping[str, Any]) -> None:
        _tripled(v["c2/x"])

    return Case(g, {"c1": first, "c2": second}, ({}, {"b": 2}), defaults={"b": 5})


def _body(name: str, k: int) -> hg.Graph:
    """A body: `x` is meant to be bound, `own` is its own."""
    b = hg.Graph(name)
    x, own = b.device_array("x", numbers(8)), b.device_array("own", numbers(9))
    b.kernel(module()["mix"], 1, N, (own, x, k, N), name="up")
    b.memcpy(x[:4], own[4:8], name="copy")
    b.memset(x[12:], k, name="set")
    return b


def _body_op(v: Values, own: str, k: int, x: str = "x") -> None:
    mixed(v[own], v[x], k)
    v[x][:4] = v[own][4:8]
    v[x][12:] = k


def _given(v: Values, p: Mapping[str, Any]) -> None:
    v["c"][...] = p["c"]


def _condition(g: hg.Graph) -> tuple[Any, Any]:
    """Return an array to work on and a word in device memory, which node `given` sets to parameter `c`."""
    x, c = g.device_array("x", numbers(1)), g.device_array("c", np.zeros(1, "i4"))
    g.memset(c, g.param("c", "int32", 1), name="given")
    return x, c


CONDITIONS: Sequence[Mapping[str, Any]] = ({}, {"c": 0}, {"c": 2}, {"c": -1}, {"c": 1})


@row("conditional_if")
def conditional_if(g: hg.Graph, _: Any, decide: Decide = "auto") -> Case:
    x, c = _condition(g)
    other = g.device_array("other", np.ones(1, "u4"))
    g.conditional("if", c, _body("then", 3), bind={"x": x}, decide=decide, name="maybe")
    g.memcpy(x[8:10], x[:2], name="after")

    def maybe(v: Values, _: Mapping[str, Any], condition: str = "c") -> None:
        if v[condition][0]:
            _body_op(v, "maybe/0/own", 3)

    def always(v: Values, p: Mapping[str, Any]) -> None:
        maybe(v, p, "other")

    ops: dict[str, Callable[..., None]] = {"given": _given, "maybe": maybe, "after": copy_into("x", "x", np.s_[8:10], np.s_[:2])}
    return Case(g, ops, CONDITIONS, defaults={"c": 1}, sets=[("maybe", {"condition": other}, always)])


@row("conditional_if_else")
def conditional_if_else(g: hg.Graph, _: Any, decide: Decide = "auto") -> Case:
    x, c = _condition(g)
    g.conditional("if", c, [_body("then", 3), _body("otherwise", 5)], bind={"x": x}, decide=decide, name="either")

    def either(v: Values, _: Mapping[str, Any]) -> None:
        _body_op(v, *(("either/0/own", 3) if v["c"][0] else ("either/1/own", 5)))

    return Case(g, {"given": _given, "either": either}, CONDITIONS, defaults={"c": 1})


@row("conditional_switch")
def conditional_switch(g: hg.Graph, _: Any, decide: Decide = "auto") -> Case:
    """Its condition is in page-locked memory, and its second body is empty."""
    x, given = _condition(g)
    c = g.host_array("word", shape=(2,), dtype="i4")
    g.memcpy(c[1], given[0], name="copied")
    bodies = [_body("first", 3), hg.Graph("nothing"), _body("third", 7)]
    g.conditional("switch", c[1], bodies, bind={"x": x}, decide=decide, name="one_of")

    def one_of(v: Values, _: Mapping[str, Any]) -> None:
        number = int(v["word"][1])
        if number in (0, 2):
            _body_op(v, f"one_of/{number}/own", 3 + 2 * number)

    ops = {"given": _given, "copied": copy_into("word", "c", 1, 0), "one_of": one_of}
    return Case(g, ops, CONDITIONS, defaults={"c": 1})


def _counting() -> hg.Graph:
    """A body with two roots and two ends, a child graph, and a parameter; it counts its condition down."""
    b = hg.Graph("counting")
    x, y, n = (b.device_array(name, shape=size, dtype="i4") for name, size in (("x", N), ("y", N), ("n", 1)))
    k = b.param("k", "int32", 4)
    b.kernel(module()["mix"], 1, N, (x, x, k, N), name="mix")
    b.child(_inner(), bind={"x": y}, name="inner")
    b.kernel(module()["count_down"], 1, 1, (n,), name="count_down")
    return b


@row("conditional_while")
def conditional_while(g: hg.Graph, _: Any, decide: Decide = "auto") -> Case:
    x, c = _condition(g)
    y, k = g.device_array("y", numbers(2)), g.param("k", "int32", 6)
    g.conditional("while", c, _counting(), bind={"x": x, "y": y, "n": c, "k": k}, decide=decide, name="loop")
    g.memcpy(x[:2], y[3:5], name="after")

    def loop(v: Values, p: Mapping[str, Any]) -> None:
        while v["c"][0]:
            mixed(v["x"], v["x"].copy(), p["k"])
            mixed(v["loop/0/inner/own"], v["y"], 2)
            mixed(v["y"], v["loop/0/inner/own"], 1)
            v["c"] -= 1

    launches: tuple[dict[str, int], ...] = ({}, {"c": 0}, {"c": 5}, {"c": 2, "k": -9}, {"k": 6}, {"c": 300})
    ops = {"given": _given, "loop": loop, "after": copy_into("x", "y", np.s_[:2], np.s_[3:5])}
    return Case(g, ops, launches, defaults={"c": 1, "k": 6})


@row("conditional_nested")
def conditional_nested(g: hg.Graph, _: Any, decide: Decide = "auto", inner: Decide | None = None) -> Case:
    """A child graph with a loop in whose body another child decides."""
    deciding = hg.Graph("deciding")
    dx, dc = deciding.device_array("x", shape=N, dtype="i4"), deciding.device_array("odd", shape=1, dtype="i4")
    deciding.conditional("switch", dc, [_body("even", 3), _body("odd", 5)], bind={"x": dx}, decide=inner or decide, name="which")
    body = hg.Graph("body")
    bx, bn, bodd = (body.device_array(name, shape=size, dtype="i4") for name, size in (("x", N), ("n", 1), ("odd", 1)))
    body.child(deciding, bind={"x": bx, "odd": bodd}, name="decide")
    body.kernel(module()["count_down"], 1, 1, (bn,), name="count_down")
    body.kernel(module()["mix"], 1, 1, (bodd, bn, 1, 1), name="mix_odd")
    body.memset(bodd, 1, name="set_odd")
    looping = hg.Graph("looping")
    lx, ln, lodd = (looping.device_array(name, shape=size, dtype="i4") for name, size in (("x", N), ("n", 1), ("odd", 1)))
    looping.conditional("while", ln, body, bind={"x": lx, "n": ln, "odd": lodd}, decide=decide, name="loop")
    looping.memset(lodd, 0, name="reset")
    x, c = _condition(g)
    odd = g.device_array("odd", np.zeros(1, "i4"))
    g.child(looping, bind={"x": x, "n": c, "odd": odd}, name="child")

    def child(v: Values, _: Mapping[str, Any]) -> None:
        while v["c"][0]:
            number = int(v["odd"][0])
            _body_op(v, f"child/loop/0/decide/which/{number}/own", 5 if number else 3)
            v["c"] -= 1
            v["odd"][...] = 1
        v["odd"][...] = 0

    launches: tuple[dict[str, int], ...] = ({}, {"c": 0}, {"c": 4}, {"c": 1})
    return Case(g, {"given": _given, "child": child}, launches, defaults={"c": 1})


for _conditional in (conditional_if, conditional_if_else, conditional_switch, conditional_while, conditional_nested):
    NODE_KINDS[f"{_conditional.__name__}_by_host"] = partial(_conditional, decide="host")


@row("conditional_nested_inner_by_host")
def conditional_nested_inner_by_host(g: hg.Graph, runtime: Any) -> Case:
    """The outer loop leaves it open who decides, and holds a body for which only the host can."""
    return conditional_nested(g, runtime, decide="auto", inner="host")


@row("conditional_while_check_every")
def conditional_while_check_every(g: hg.Graph, _: Any, decide: Decide = "auto") -> Case:
    """Its body has one root and one end, and stops counting at 0, so that more runs do no harm to the count."""
    x, c = _condition(g)
    b = hg.Graph("thrice")
    bx, bn = b.device_array("x", shape=N, dtype="i4"), b.device_array("n", shape=1, dtype="i4")
    b.kernel(module()["mix"], 1, N, (bx, bx, 3, N), name="mix")
    b.kernel(module()["count_to_0"], 1, 1, (bn,), name="count_to_0")
    g.conditional("while", c, b, bind={"x": x, "n": c}, decide=decide, check_every=3, name="loop")
    g.memcpy(x[:2], x[3:5], name="after")

    def loop(v: Values, _: Mapping[str, Any]) -> None:
        while v["c"][0]:
            for _i in range(3):
                mixed(v["x"], v["x"].copy(), 3)
                v["c"][0] = max(0, v["c"][0] - 1)

    launches: tuple[dict[str, int], ...] = ({}, {"c": 0}, {"c": 7}, {"c": 3}, {"c": 4})
    ops = {"given": _given, "loop": loop, "after": copy_into("x", "x", np.s_[:2], np.s_[3:5])}
    return Case(g, ops, launches, defaults={"c": 1})


NODE_KINDS["conditional_while_check_every_by_host"] = partial(conditional_while_check_every, decide="host")


def _add_1(values: npt.NDArray[Any]) -> None:
    values += 1


def _scale(stream: Any, values: npt.NDArray[Any], by: int) -> None:
    values *= by


def _shift(stream: Any, values: npt.NDArray[Any], by: int) -> None:
    values += by


@row("conditional_any_body")
def conditional_any_body(g: hg.Graph, _: Any) -> Case:
    """Bodies that only the host can decide on: with a callback, an alloc, pageable memory and an eager node."""
    x, c = _condition(g)
    b = hg.Graph("anything")
    bx, bn = b.device_array("x", shape=N, dtype="i4"), b.device_array("n", shape=1, dtype="i4")
    h, page = b.host_array("h", shape=N, dtype="i4"), b.host_array("page", shape=N, dtype="i4", pinned=False)
    t = b.alloc("t", shape=N, dtype="i4", name="make")
    b.memcpy(t, bx, name="into")
    b.kernel(module()["mix"], 1, N, (t, bx, 2, N), name="mix")
    b.memcpy(h, t, name="down")
    b.host(_add_1, (h,), name="add")
    b.eager(_scale, (h, b.param("k", "int32", 2)), name="scale")
    b.memcpy(page, h, name="aside")
    b.memcpy(bx, page, name="up")
    b.free(t, name="drop")
    b.kernel(module()["count_down"], 1, 1, (bn,), name="count_down")
    k = g.param("k", "int32", 3)
    g.conditional("while", c, b, bind={"x": x, "n": c, "k": k}, name="loop")
    g.memcpy(x[:2], x[3:5], name="after")

    def loop(v: Values, p: Mapping[str, Any]) -> None:
        while v["c"][0]:
            made = v["x"].copy()
            mixed(made, v["x"], 2)
            v["loop/0/h"][:] = (made + 1) * p["k"]
            v["loop/0/page"][:] = v["x"][:] = v["loop/0/h"]
            v["c"] -= 1

    launches: tuple[dict[str, int], ...] = ({}, {"c": 0}, {"c": 3}, {"c": 2, "k": -1})
    ops = {"given": _given, "loop": loop, "after": copy_into("x", "x", np.s_[:2], np.s_[3:5])}
    return Case(g, ops, launches, defaults={"c": 1, "k": 3})


@row("eager")
def eager(g: hg.Graph, _: Any) -> Case:
    """Device arrays: what the function puts on the stream is ordered, and nothing waits."""
    x, y, z = (g.device_array(name, numbers(i)) for i, name in enumerate("xyz"))
    g.memset(x[:5], 6, name="before")
    g.memset(z[:5], 7, name="beside")
    g.eager(_issue, (y, x), reads=[x], writes=[y], name="eager")
    g.memcpy(z[8:], y[8:], name="after")

    ops = {
        "before": _set_to("x", 6, np.s_[:5]),
        "beside": _set_to("z", 7, np.s_[:5]),
        "eager": copy_into("y", "x"),
        "after": copy_into("z", "y", np.s_[8:], np.s_[8:]),
    }
    return Case(g, ops, sets=[("eager", {"fn": _issue_swapped, "args": (x, y)}, copy_into("y", "x"))])


@row("eager_host")
def eager_host(g: hg.Graph, _: Any) -> Case:
    """Host arrays and parameters, two eager steps of which each waits only for its own branch, inside a child too."""
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    h, page = g.host_array("h", numbers(3)), g.host_array("page", numbers(4), pinned=False)
    k = g.param("k", "int32", 3)

    child = hg.Graph("child")
    cx, ch, ck = (
        child.device_array("x", shape=N, dtype="i4"),
        child.host_array("h", shape=N, dtype="i4", pinned=False),
        child.param("k", "int32", 1),
    )
    child.memcpy(ch, cx, name="down")
    child.eager(_shift, (ch, ck), name="shift")
    child.memcpy(cx, ch, name="up")
    g.kernel(module()["mix"], 1, N, (x, y, k, N), name="mix")
    g.memcpy(h, x, name="down")
    g.eager(_scale, (h, k), name="scale")
    g.child(child, bind={"x": y, "h": page, "k": k}, name="child")
    g.memcpy(x, h, name="up")
    g.kernel(module()["mix"], 1, N, (y, x, 1, N), name="last")

    def mix(v: Values, p: Mapping[str, Any]) -> None:
        mixed(v["x"], v["y"], p["k"])

    def scaled(v: Values, p: Mapping[str, Any]) -> None:
        v["h"] *= p["k"]

    def shifted(v: Values, p: Mapping[str, Any]) -> None:
        v["page"][:] = v["y"] + p["k"]
        v["y"][:] = v["page"]

    def last(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], 1)

    ops = {
        "mix": mix, "down": copy_into("h", "x"), "scale": scaled, "child": shifted, "up": copy_into("x", "h"), "last": last,
    }  # fmt: skip
    return Case(g, ops, ({}, {"k": 5}, {"k": -2}, {}), defaults={"k": 3}, expands=("explicit",))


@row("semaphores", needs="semaphore_create")
def semaphores(g: hg.Graph, runtime: Any) -> Case:
    semaphore = hg.Semaphore("s", runtime.semaphore_create())
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    g.memset(x, 4, name="set")
    g.signal_semaphore(semaphore, 3, after=["set"], name="signal")
    g.wait_semaphore(semaphore, 2, after=["signal"], name="wait")
    g.memcpy(y, x, after=["wait"], name="copy")
    return Case(g, {"set": _set_to("x", 4), "copy": copy_into("y", "x")})


@row("memory_ops")
def memory_ops(g: hg.Graph, runtime: Any) -> Case:
    x, y = g.device_array("x", numbers(1, 4, "u4")), g.device_array("y", numbers(2, 4, "i8"))
    g.memory_ops([hg.write_value(x[1], 2**31 + 5), hg.write_value(y[2], -7)], name="write")
    g.memory_ops([hg.wait_value(x[1], 2**31, "geq"), hg.wait_value(y[2], -7)], name="wait")
    g.memcpy(x[3], x[1], after=["wait"], name="copy")

    def write(v: Values, _: Mapping[str, Any]) -> None:
        v["x"][1], v["y"][2] = 2**31 + 5, -7

    apart = runtime is not None and "batch_unordered" in runtime.target.quirks
    expands = ("explicit", "capture") if apart else ()
    return Case(g, {"write": write, "copy": copy_into("x", "x", 3, 1)}, expands=expands)


def _issue(stream: Any, dst: Any, src: Any) -> None:
    stream.runtime.memcpy_async(dst.ptr, src.ptr, dst.nbytes, MemcpyKind.DEFAULT, int(stream))


def _issue_swapped(stream: Any, src: Any, dst: Any) -> None:
    _issue(stream, dst, src)


@row("captured")
def captured(g: hg.Graph, _: Any) -> Case:
    return _captures(g, _issue)


@row("captured_forked")
def captured_forked(g: hg.Graph, runtime: Any) -> Case:
    other, forked, joined = runtime.stream_create(), runtime.event_create(), runtime.event_create()

    def issue(stream: Any, dst: Any, src: Any) -> None:
        """Copy two halves on two streams, joined in the end."""
        half = dst.nbytes // 2
        runtime.event_record(forked, int(stream))
        runtime.stream_wait_event(other, forked)
        runtime.memcpy_async(dst.ptr, src.ptr, half, MemcpyKind.DEFAULT, int(stream))
        runtime.memcpy_async(dst.ptr + half, src.ptr + half, half, MemcpyKind.DEFAULT, other)
        runtime.event_record(joined, other)
        runtime.stream_wait_event(int(stream), joined)

    def finish() -> None:
        runtime.event_destroy(forked)
        runtime.event_destroy(joined)
        runtime.stream_destroy(other)

    case = _captures(g, issue)
    case.finish = finish
    return case


def _captures(g: hg.Graph, issue: Callable[..., None]) -> Case:
    x, y, z = (g.device_array(name, numbers(i)) for i, name in enumerate("xyz"))
    g.memset(x[:5], 6, name="before")
    g.captured(issue, args=(y, x), reads=[x], writes=[y], name="captured")
    g.memcpy(z, y, name="after")
    ops = {"before": _set_to("x", 6, np.s_[:5]), "captured": copy_into("y", "x"), "after": copy_into("z", "y")}
    return Case(g, ops, expands=("capture",))


@row("external_arrays")
def external(g: hg.Graph, _: Any) -> Case:
    memory = numbers(1, (2, N))
    x = g.external_array("x", memory)
    y = g.external_array("y", memory[1])
    d = g.device_array("d", numbers(2))
    g.memcpy(d, x[0], name="in")
    g.host(_tripled, args=(x[0, :8],), name="triple")
    g.memcpy(y, d, name="out")
    g.memcpy(d, x[1], name="seen")

    def triple(v: Values, _: Mapping[str, Any]) -> None:
        _tripled(v["x"][0, :8])

    def out(v: Values, _: Mapping[str, Any]) -> None:
        v["x"][1] = v["d"]
        v["y"][...] = v["d"]

    ops = {"in": copy_into("d", "x", ..., 0), "triple": triple, "out": out, "seen": copy_into("d", "x", ..., 1)}
    return Case(g, ops)


@row("pageable_rewritten")
def pageable_rewritten(g: hg.Graph, _: Any) -> Case:
    memory = numbers(4, (4, 6))
    x, e = g.host_array("x", numbers(1, (2, N)), pinned=False), g.external_array("e", memory)
    d, f, k = g.device_array("d", numbers(2, (3, N))), g.device_array("f", numbers(3, (4, 6))), g.host_array("k", numbers(5, 1))
    g.memcpy(d[0], x[0], name="before")
    g.host(_advance, args=(x, k), name="fill")
    g.memcpy(d[1], x[1], name="flat")
    g.host(_advance, args=(e[1:, :3], k), name="fill_external")
    g.memcpy(f[1:3, :2], e[1:3, :2], name="strided")
    g.memcpy(x[0], d[2], name="out")
    g.memcpy(d[2], x[0], name="back")
    g.kernel(module()["mix"], 1, N, (d[2], d[1], 3, N), name="mix")

    def fill(v: Values, _: Mapping[str, Any]) -> None:
        _advance(v["x"], v["k"])

    def fill_external(v: Values, _: Mapping[str, Any]) -> None:
        _advance(v["e"][1:, :3], v["k"])

    def mix(v: Values, _: Mapping[str, Any]) -> None:
        mixed(v["d"][2], v["d"][1], 3)

    part = np.s_[1:3, :2]
    ops = {
        "before": copy_into("d", "x", 0, 0), "fill": fill, "flat": copy_into("d", "x", 1, 1), "fill_external": fill_external,
        "strided": copy_into("f", "e", part, part), "out": copy_into("x", "d", 0, 2), "back": copy_into("d", "x", 2, 0),
        "mix": mix,
    }  # fmt: skip
    return Case(g, ops)


@row("parameter_scalar")
def parameter_scalar(g: hg.Graph, _: Any) -> Case:
    m = module()
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    h = g.host_array("h", numbers(3, 4))
    k, value, by = g.param("k", "int32", 2), g.param("value", "int32"), g.param("by", "int32", 3)
    g.kernel(m["mix"], 1, N, (y, x, k, N), name="mix")
    g.kernel(m["mix"], 1, N, (x, y, k, N), name="back")
    g.memset(y[:4], value, name="set")
    g.host(_tripled, args=(h, by), name="host")

    def mix(v: Values, p: Mapping[str, Any]) -> None:
        mixed(v["y"], v["x"], p["k"])

    def back(v: Values, p: Mapping[str, Any]) -> None:
        mixed(v["x"], v["y"], p["k"])

    def put(v: Values, p: Mapping[str, Any]) -> None:
        v["y"][:4] = p["value"]

    def triple(v: Values, p: Mapping[str, Any]) -> None:
        _tripled(v["h"], p["by"])

    launches: Sequence[Mapping[str, Any]] = (
        {"value": 1},
        {},
        {"k": -9, "by": 4},
        {"value": 16843009},
        {"value": 0x1234567, "k": 2},
    )
    return Case(g, {"mix": mix, "back": back, "set": put, "host": triple}, launches, defaults={"k": 2, "by": 3})


@row("parameter_struct")
def parameter_struct(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, 8, "f4"))
    first, second = np.array((3, 0.5, -7), PARAMS)[()], np.array((-1, 2.0, 5), PARAMS)[()]
    p = g.param("p", PARAMS, first)
    g.kernel(module()["structured"], 1, 8, (y, p), name="structured")

    def structured(v: Values, params: Mapping[str, Any]) -> None:
        p = params["p"]
        v["y"][...] = v["y"] * np.float32(p["b"]) + np.float32(p["a"]) + np.float32(p["c"])

    return Case(g, {"structured": structured}, ({}, {"p": second}, {}, {"p": first}), defaults={"p": first})


@row("parameter_array")
def parameter_array(g: hg.Graph, _: Any) -> Case:
    a, b = g.device_array("a", numbers(1)), g.device_array("b", numbers(2))
    out = g.device_array("out", numbers(3, (2, N)))
    p = g.param("p", "int32", "a", shape=N)
    g.kernel(module()["mix"], 1, N, (out[0], hg.reads(p), 1, N), name="mix")
    g.memcpy(out[1, :4], p[4:8], name="copy")

    def mix(v: Values, params: Mapping[str, Any]) -> None:
        mixed(v["out"][0], v[getattr(params["p"], "name", params["p"])], 1)

    def copy(v: Values, params: Mapping[str, Any]) -> None:
        v["out"][1, :4] = v[getattr(params["p"], "name", params["p"])][4:8]

    return Case(g, {"mix": mix, "copy": copy}, ({}, {"p": "b"}, {}, {"p": a}, {"p": b}), defaults={"p": "a"})


@row("parameter_grid_and_block")
def parameter_grid(g: hg.Graph, _: Any) -> Case:
    y = g.device_array("y", numbers(1, 64))
    blocks, threads = g.param("blocks", "uint32", 2), g.param("threads", "int32", 4)
    g.kernel(module()["mix"], blocks, (threads, 1), (y, y, 3, 64), name="mix")

    def mix(v: Values, p: Mapping[str, Any]) -> None:
        part = v["y"][: p["blocks"] * p["threads"]]
        mixed(part, part.copy(), 3)

    return Case(g, {"mix": mix}, ({}, {"blocks": 5}, {"threads": 12}, {"blocks": 1}), defaults={"blocks": 2, "threads": 4})
