"""What `check` and `verify` find of faults that were put into correct workflows on purpose.

A corpus of correct workflows is generated: the shapes of the specification, pipelines, rotating buffers, graph memory,
child graphs, callbacks, strided views, and random layered graphs. From each, faulty ones are made: an edge that is
needed is removed, the bytes of an access are shifted, a free is moved forward, a write is declared as a read, a kernel
runs more threads than its arrays have elements. A faulty workflow counts when some topological order gives other bytes
(all orders up to 9 nodes, else 2000 seeded ones), or when a kernel leaves its arrays.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np

from hipgraphdsl.arrays import Access, Array, ArrayView, ExternalArray, reads
from hipgraphdsl.checks import check_workflow
from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.errors import HipGraphError
from hipgraphdsl.graph import Graph
from hipgraphdsl.hazards import AFTER, HazardTracker, near_before
from hipgraphdsl.kernels import Module, Symbol
from hipgraphdsl.nodes import AllocNode, CapturedNode, FreeNode, HostNode, KernelNode, MemcpyNode, MemsetNode, Node
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.order import reduced
from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import Column, Sheet, finish
from hipgraphdsl.parts.verify import verify
from hipgraphdsl.parts.verify.laboratory import Laboratory
from hipgraphdsl.parts.verify.orders import topological_order
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

__all__ = ["Mutant", "Result", "add_arguments", "corpus", "judge", "main", "mutants", "run"]

_N = 64  # elements of most arrays
_MOST_ORDERS = 2000
_ALL_ORDERS_UP_TO = 9
_ALWAYS_HARMFUL = ("n + 1", "wrong grid")  # they write where other memory may lie

_SOURCE = r"""
// Integers, and nothing that commutes: whatever is exchanged shows.
extern "C" __global__ void scale(int* x, int a) { int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = x[i] * a + 1; }
extern "C" __global__ void mix(const int* x, int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = 3 * y[i] + x[i] + 7;
}
extern "C" __global__ void join(const int* x, const int* y, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = 5 * x[i] - 2 * y[i] + 11;
}
"""
_module: Module | None = None


def module() -> Module:
    """Return the module of all workflows."""
    global _module
    if _module is None:
        _module = Module(_SOURCE, name="corpus")
    return _module


# -- correct workflows -------------------------------------------------------------------------------------------------


def _inputs(g: Graph, count: int, rows: int = 0) -> list[Any]:
    shape = (rows, _N) if rows else (_N,)
    return [g.device_array(f"x{k}", np.arange(np.prod(shape), dtype="int32").reshape(shape) * (k + 2) + k) for k in range(count)]


def _scale(g: Graph, x: Any, a: int = 3, **options: Any) -> KernelNode:
    return g.kernel(module()["scale"], grid=1, block=x.size, args=(x, a), **options)


def _mix(g: Graph, x: Any, y: Any, **options: Any) -> KernelNode:
    return g.kernel(module()["mix"], grid=1, block=x.size, args=(x, y), **options)


def _join(g: Graph, x: Any, y: Any, out: Any, **options: Any) -> KernelNode:
    return g.kernel(module()["join"], grid=1, block=x.size, args=(x, y, out), **options)


def single() -> Graph:
    """One kernel."""
    g = Graph("single")
    (x,) = _inputs(g, 1)
    _scale(g, x)
    return g


def chain(length: int) -> Graph:
    """Kernels that update one array after the other."""
    g = Graph(f"chain_{length}")
    (x,) = _inputs(g, 1)
    for k in range(length):
        _scale(g, x, k + 2)
    return g


def fan_out(width: int) -> Graph:
    """One writer, many readers."""
    g = Graph(f"fan_out_{width}")
    x, *ys = _inputs(g, width + 1)
    _scale(g, x)
    for y in ys:
        _mix(g, x, y)
    return g


def fan_in(width: int) -> Graph:
    """Many writers, one reader that takes them one after the other."""
    g = Graph(f"fan_in_{width}")
    out, *ys = _inputs(g, width + 1)
    for y in ys:
        _scale(g, y)
    for y in ys:
        _mix(g, y, out)
    return g


def diamond() -> Graph:
    """One, two side by side, one."""
    g = Graph("diamond")
    x, a, b, out = _inputs(g, 4)
    _scale(g, x)
    _mix(g, x, a)
    _mix(g, x, b)
    _join(g, a, b, out)
    return g


def disconnected(parts: int) -> Graph:
    """Chains that have nothing to do with each other."""
    g = Graph(f"disconnected_{parts}")
    for x in _inputs(g, parts):
        _scale(g, x, 2)
        _scale(g, x, 5)
    return g


def by_hand(of: Callable[[], Graph]) -> Graph:
    """Return the same workflow with its edges declared and none inferred."""
    inferred = of().workflow()
    g = Graph(inferred.name + "_by_hand", infer=False)
    g.arrays.update({name: array for name, array in inferred.arrays.items() if array.kind != "alloc"})
    g.parameters.update(inferred.parameters)
    for node, sources in zip(inferred.nodes, inferred.predecessors):
        g.add(node, after=[inferred.nodes[s].name for s in sources])
    return g


def pipeline(batches: int, buffers: int) -> Graph:
    """Copy in, compute, copy out, with buffers in rotation."""
    g = Graph(f"pipeline_{batches}_{buffers}")
    source = g.host_array("source", np.arange(batches * _N, dtype="int32").reshape(batches, _N))
    result = g.host_array("result", shape=(batches, _N), dtype="int32")
    work = [g.device_array(f"work{k}", shape=_N, dtype="int32") for k in range(buffers)]
    for k in range(batches):
        buffer = work[k % buffers]
        g.memcpy(buffer, source[k], name=f"in_{k}")
        _scale(g, buffer, k + 2, name=f"compute_{k}")
        g.memcpy(result[k], buffer, name=f"out_{k}")
    return g


def rotation(steps: int) -> Graph:
    """Make a time loop over three arrays in turn, each state copied to the host."""
    g = Graph(f"rotation_{steps}")
    state = _inputs(g, 3)
    out = g.host_array("out", shape=(steps, _N), dtype="int32")
    for k in range(steps):
        old, now, new = (state[(k + j) % 3] for j in range(3))
        _join(g, old, now, new, name=f"step_{k}")
        g.memcpy(out[k], new, name=f"save_{k}")
    return g


def graph_memory(parts: int) -> Graph:
    """Temporaries that are allocated and freed inside the graph."""
    g = Graph(f"graph_memory_{parts}")
    (x,) = _inputs(g, 1)
    out = g.host_array("out", shape=(parts, _N), dtype="int32")
    for k in range(parts):
        y = g.alloc(f"y{k}", shape=_N, dtype="int32")
        g.memset(y, k + 1, name=f"set_{k}")
        _mix(g, x, y, name=f"mix_{k}")
        g.memcpy(out[k], y, name=f"save_{k}")
        g.free(y, name=f"drop_{k}")
    return g


def strided() -> Graph:
    """Copy and set rows, columns and every other element."""
    g = Graph("strided")
    (u,) = _inputs(g, 1, rows=8)
    v = g.device_array("v", shape=(8, _N), dtype="int32")
    out = g.host_array("out", shape=(8, _N), dtype="int32")
    g.memcpy(v[::2], u[1::2], name="even_rows")
    g.memset(v[1::2, :8], 5, name="corner")
    g.memcpy(v[1::2, 8:], u[::2, 8:], name="odd_rows")
    g.memset(u[:, 3], 9, name="column")
    g.memcpy(out[:, ::2], v[:, ::2], name="even_columns")
    g.memcpy(out[:, 1::2], u[:, 1::2], name="odd_columns")
    return g


def tiles(count: int) -> Graph:
    """Parts of one array, each with its own chain, then one kernel over all."""
    g = Graph(f"tiles_{count}")
    x, y = _inputs(g, 2)
    size = _N // count
    for k in range(count):
        part = x[k * size : (k + 1) * size]
        _scale(g, part, k + 2, name=f"first_{k}")
        _scale(g, part, k + 3, name=f"second_{k}")
    _mix(g, x, y, name="all")
    g.memset(x[:size], 1, name="again")
    return g


def _double(values: Any) -> None:
    values *= 2


def _add_first(values: Any, other: Any) -> None:
    values += other[0]


def callbacks() -> Graph:
    """Host code between copies, on page-locked memory that a kernel writes too."""
    g = Graph("callbacks")
    (x,) = _inputs(g, 1)
    hx, hy = (g.host_array(name, np.arange(_N, dtype="int32")) for name in ("hx", "hy"))
    g.memcpy(hx, x, name="down")
    g.host(_double, args=(hx,), name="double")
    g.host(_add_first, args=(hy, hx), reads=[hx, hy], writes=[hy], name="add_first")
    _scale(g, hy, 3, name="on_pinned")
    g.memcpy(x, hy, name="up")
    g.host(_double, args=(hy,), name="double_again")
    return g


def children(uses: int) -> Graph:
    """Use a child graph on parts of one array, and work before and after it."""
    child = Graph("step")
    v, w = (child.device_array(name, shape=_N, dtype="int32") for name in "vw")
    a = child.param("a", "int32", default=2)
    child.kernel(module()["scale"], grid=1, block=_N, args=(v, a), name="scale")
    _mix(child, v, w, name="mix")
    step = child.workflow()
    g = Graph(f"children_{uses}")
    (u,) = _inputs(g, 1, rows=uses + 1)
    out = g.host_array("out", shape=(uses + 1, _N), dtype="int32")
    g.memset(u[0, :8], 4, name="before")
    for k in range(uses):
        g.child(step, bind={"v": u[k], "w": u[k + 1], "a": k + 3}, name=f"step_{k}")
    g.memcpy(out, u, name="save")
    return g


def parameters() -> Graph:
    """Values bound at launch."""
    g = Graph("parameters")
    x, y = _inputs(g, 2)
    a = g.param("a", "int32", default=3)
    g.kernel(module()["scale"], grid=1, block=_N, args=(x, a), name="first")
    g.memset(y[:16], a, name="fill")
    _mix(g, x, y, name="mix")
    g.kernel(module()["scale"], grid=1, block=_N, args=(y, a), name="last")
    return g


def events() -> Graph:
    """Order by event, beside edges by data."""
    g = Graph("events")
    x, y = _inputs(g, 2)
    g.memcpy(y, x, name="copy")
    g.record("copied", after=["copy"])
    g.wait("copied", name="wait")
    _scale(g, x, name="scale_x", after=["wait"])
    _scale(g, y, name="scale_y")
    return g


def outside() -> Graph:
    """External memory under two names that overlap."""
    g = Graph("outside")
    memory = np.arange(2 * _N, dtype="int32")
    whole, tail = g.external_array("whole", memory), g.external_array("tail", memory[_N:])
    g.host(_double, args=(whole,), name="double_all")
    g.host(_double, args=(tail[:16],), name="double_tail")
    (x,) = _inputs(g, 1)
    g.memcpy(x, tail, name="copy")
    g.host(_double, args=(whole[:_N],), name="double_head")
    return g


def _issue(stream: Any, x: Any, y: Any) -> None:
    stream.runtime.memcpy_async(y.ptr, x.ptr, x.nbytes, 4, int(stream))


def library_call() -> Graph:
    """Capture a function between kernels."""
    g = Graph("library_call")
    x, y = _inputs(g, 2)
    _scale(g, x, name="before")
    g.captured(_issue, args=(x, y), reads=[x], writes=[y], name="copy")
    _scale(g, x, 5, name="after_x")
    _scale(g, y, 7, name="after_y")
    return g


def layered(seed: int, layers: int, width: int) -> Graph:
    """Random reads and writes of a few arrays and of parts of them."""
    draw = random.Random(seed)
    g = Graph(f"layered_{seed}")
    arrays = _inputs(g, draw.randint(2, 4))
    result = g.host_array("result", shape=_N, dtype="int32")

    def part(array: Any) -> Any:
        if draw.random() < 0.5:
            return array
        start = draw.choice((0, 16, 32))
        return array[start : start + 32]

    for layer in range(layers):
        for k in range(draw.randint(1, width)):
            name = f"n{layer}_{k}"
            x, y = draw.sample(arrays, 2)
            match draw.randrange(5):
                case 0:
                    _scale(g, part(x), draw.randint(2, 9), name=name)
                case 1:
                    g.memset(part(x), draw.randint(1, 99), name=name)
                case 2:
                    _mix(g, x, y, name=name)
                case 3:
                    g.memcpy(y[8:40], x[16:48], name=name)
                case _:
                    z = draw.choice(arrays)
                    if z is x or z is y:
                        _mix(g, x[:32], y[32:], name=name)
                    else:
                        _join(g, x, y, z, name=name)
    g.memcpy(result, draw.choice(arrays), name="save")
    return g


def corpus() -> list[Graph]:
    """Return the correct workflows; the same ones each time."""
    shapes: list[Callable[[], Graph]] = [
        single,
        diamond,
        lambda: chain(3),
        lambda: chain(12),
        lambda: fan_out(3),
        lambda: fan_out(6),
        lambda: fan_in(3),
        lambda: fan_in(5),
        lambda: disconnected(4),
        lambda: pipeline(3, 1),
        lambda: pipeline(4, 2),
        lambda: pipeline(3, 3),
        lambda: rotation(3),
        lambda: rotation(6),
        lambda: graph_memory(1),
        lambda: graph_memory(3),
        strided,
        lambda: tiles(2),
        lambda: tiles(4),
        callbacks,
        lambda: children(2),
        lambda: children(4),
        parameters,
        events,
        outside,
        library_call,
    ]
    graphs = [Graph("empty"), *(make() for make in shapes)]
    with_hand = [0, 1, 2, 4, 6, 8, 10, 12, 14, 15, 16, 18, 19, 20, 25]
    graphs += [by_hand(shapes[k]) for k in with_hand]
    graphs += [layered(seed, 2 + seed % 3, 3) for seed in range(26)]
    return graphs


# -- faulty workflows --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mutant:
    """A workflow with one fault.

    Attributes
    ----------
    kind : str
        ``"edge removed"``, ``"range shifted"``, ``"free moved"``, ``"write declared as read"``, ``"n + 1"`` or ``"wrong grid"``.
    what : str
        The fault in words.
    workflow : Workflow
    """

    kind: str
    what: str
    workflow: Workflow


def mutants(workflow: Workflow) -> Iterator[Mutant]:
    """Yield all faulty workflows that are made of a correct one."""
    yield from _edges_removed(workflow)
    yield from _ranges_shifted(workflow)
    yield from _frees_moved(workflow)
    yield from _writes_as_reads(workflow)
    yield from _threads_added(workflow)


def _with(workflow: Workflow, nodes: Sequence[Node], predecessors: Sequence[Sequence[int]], infer: bool = False) -> Workflow:
    return Workflow(
        workflow.name, workflow.arrays, workflow.parameters, tuple(nodes), tuple(map(tuple, predecessors)),
        tuple((AFTER,) * len(sources) for sources in predecessors), infer,
    )  # fmt: skip


def _edges_removed(workflow: Workflow) -> Iterator[Mutant]:
    """Remove each edge that no other path implies."""
    for i, sources in enumerate(reduced(workflow.order, workflow.predecessors)):
        for source in sources:
            predecessors = [list(p) for p in workflow.predecessors]
            predecessors[i].remove(source)
            what = f"{workflow.nodes[source].name} -> {workflow.nodes[i].name}"
            yield Mutant("edge removed", what, _with(workflow, workflow.nodes, predecessors))


def _ranges_shifted(workflow: Workflow) -> Iterator[Mutant]:
    """Move one view of a node along its array, and keep all edges."""
    for i, node in enumerate(workflow.nodes):
        for what, other in _shifted(node):
            nodes = list(workflow.nodes)
            nodes[i] = other
            yield Mutant("range shifted", f"{node.name}: {what}", _with(workflow, nodes, workflow.predecessors))


def _shifted(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node, (MemcpyNode, MemsetNode)):
        for field_name in ("dst", "src"):
            view = getattr(node, field_name, None)
            moved = _moved(view) if isinstance(view, ArrayView) else None
            if moved is not None and view is not None:
                yield f"{view.name} to {moved.name}", node.changed(**{field_name: moved})
    elif isinstance(node, KernelNode):
        for k, arg in enumerate(node.args):
            moved = _moved(arg) if isinstance(arg, ArrayView) else None
            if moved is not None:
                yield f"{arg.name} to {moved.name}", node.changed(args=(*node.args[:k], moved, *node.args[k + 1 :]))


def _moved(view: ArrayView) -> ArrayView | None:
    """Return the view moved along its first sliced or indexed dimension with room, or None."""
    for axis, (selector, extent) in enumerate(zip(view.selection, view.root.shape)):
        if isinstance(selector, int):
            moved: Any = selector + 1 if selector + 1 < extent else selector - 1 if selector else None
        else:
            length = selector.stop - selector.start
            step = max(1, length // 4)
            if selector.stop + step <= extent:
                moved = slice(selector.start + step, selector.stop + step, selector.step)
            elif selector.start - step >= 0:
                moved = slice(selector.start - step, selector.stop - step, selector.step)
            else:
                moved = None
        if moved is not None:
            return ArrayView(view.root, (*view.selection[:axis], moved, *view.selection[axis + 1 :]))
    return None


def _frees_moved(workflow: Workflow) -> Iterator[Mutant]:
    """Let each free follow only an earlier user of its memory, or come before the last one."""
    for i, node in enumerate(workflow.nodes):
        if not isinstance(node, FreeNode):
            continue
        users = [
            k
            for k, other in enumerate(workflow.nodes)
            if k != i and not isinstance(other, AllocNode) and any(a.view.root is node.array for a in other.accesses)
        ]
        for user in users[:-1]:
            predecessors = [list(p) for p in workflow.predecessors]
            predecessors[i] = [user]
            yield Mutant(
                "free moved",
                f"{node.name} after {workflow.nodes[user].name}",
                _with(workflow, workflow.nodes, predecessors),
            )
        if users and workflow.infer:
            last = users[-1]
            nodes = [n for k, n in enumerate(workflow.nodes) if k != i]
            nodes.insert(last, node)
            yield Mutant("free moved", f"{node.name} before {workflow.nodes[last].name}", _inferred(workflow, nodes))


def _writes_as_reads(workflow: Workflow) -> Iterator[Mutant]:
    """Declare each write of user code as a read, and infer the edges anew."""
    if not workflow.infer:
        return
    for i, node in enumerate(workflow.nodes):
        other: Node
        for k, access in enumerate(node.accesses):
            if access.mode == "read":
                continue
            if isinstance(node, KernelNode):
                at = next((j for j, arg in enumerate(node.args) if isinstance(arg, ArrayView) and arg is access.view), None)
                if at is None:
                    continue
                other = node.changed(args=(*node.args[:at], reads(access.view), *node.args[at + 1 :]))
            elif isinstance(node, (HostNode, CapturedNode)):
                changed = (*node.access[:k], Access(access.view, "read", access.region), *node.access[k + 1 :])
                fn = _writing(node.fn) if isinstance(node, HostNode) else node.fn
                other = node.changed(access=changed, fn=fn)
            else:
                continue
            nodes = list(workflow.nodes)
            nodes[i] = other
            yield Mutant("write declared as read", f"{node.name}: {access.view.name}", _inferred(workflow, nodes))


def _writing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback that writes though its views are not writeable, as one that goes through a pointer does."""

    def call(*args: Any) -> None:
        opened = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                view = np.ndarray(arg.shape, arg.dtype, arg.base, 0, arg.strides)
                arg = view if view.flags.writeable else arg
            opened.append(arg)
        fn(*opened)

    return call


def _threads_added(workflow: Workflow) -> Iterator[Mutant]:
    """Let kernels that write up to the end of an array, which guards can surround, go on behind it."""
    for i, node in enumerate(workflow.nodes):
        if not isinstance(node, KernelNode):
            continue
        written = [a.view for a in node.accesses if a.is_write and not isinstance(a.view.root, (ExternalArray, Symbol))]
        if not any(view.region.stop == view.root.nbytes for view in written if isinstance(view.root, Array)):
            continue
        for kind, other in (
            ("n + 1", node.changed(block=(node.block[0] + 1, *node.block[1:]))),
            ("wrong grid", node.changed(grid=(node.grid[0] + 1, *node.grid[1:]))),
        ):
            nodes = list(workflow.nodes)
            nodes[i] = other
            yield Mutant(kind, node.name, _with(workflow, nodes, workflow.predecessors))


def _inferred(workflow: Workflow, nodes: Sequence[Node]) -> Workflow:
    """Return the workflow with other nodes and its edges inferred again; declared edges stay."""
    tracker: HazardTracker[int] = HazardTracker()
    names = {node.name: k for k, node in enumerate(nodes)}
    predecessors: list[list[int]] = []
    for node in nodes:
        edges, pending = tracker.edges(tracker.touched(node.accesses))
        sources = {*edges, *(names[name] for name in node.after)}
        old = workflow.index[node.name]
        for source, reason in zip(workflow.predecessors[old], workflow.reasons[old]):
            if not reason.inferred:
                sources.add(names[workflow.nodes[source].name])
        predecessors.append(sorted(sources))
        near = near_before(predecessors, len(predecessors) - 1)
        tracker.record(len(predecessors) - 1, pending, lambda earlier: [k for k in earlier if k not in near])  # noqa: B023
    return _with(workflow, nodes, predecessors, infer=True)


# -- judging -----------------------------------------------------------------------------------------------------------


def changes_a_result(workflow: Workflow, runtime: Runtime, orders: int = _MOST_ORDERS) -> bool:
    """Return whether some topological order gives other bytes than the order of declaration, or fails.

    Up to 9 nodes all orders are tried, else 2000 seeded ones; `orders` may say fewer for both.
    """
    try:
        laboratory = Laboratory(workflow, runtime, 0, {})
    except HipGraphError:
        return True
    try:
        deps = [step.deps for step in laboratory.steps]
        for order in _orders(deps, orders):
            try:
                ours = laboratory.run(order)
            except HipGraphError:
                return True
            if any(not np.array_equal(ours[name], data) for name, data in laboratory.reference.items()):
                return True
        return False
    finally:
        laboratory.close()


def _orders(deps: Sequence[Sequence[int]], most: int) -> Iterator[tuple[int, ...]]:
    if len(deps) > _ALL_ORDERS_UP_TO:
        for seed in range(most):
            yield topological_order(deps, seed)
        return

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(deps):
            yield order
            return
        for i in reversed(range(len(deps))):
            if i not in order and all(d in order for d in deps[i]):
                yield from extend((*order, i))

    yield from extend(()) if most >= _MOST_ORDERS else islice(extend(()), most)


_COUNTS: Final = (
    ("made", "made", "mutants"),
    ("harmful", "harmful", "mutants that can change a result"),
    ("by_check", "found by check", "harmful mutants that check finds"),
    ("by_verify", "found by verify", "harmful mutants that verify finds"),
    ("missed", "missed", "harmful mutants that neither finds"),
)


@dataclass
class Result:
    """Counts, by kind of fault.

    Attributes
    ----------
    workflows : int
        Correct ones.
    made, harmful : dict
        Mutants, and those of them that can change a result.
    by_check, by_verify, missed : dict
        Harmful mutants that were found, or by neither.
    false_alarms : list of str
        Errors, warnings and findings about correct workflows.
    not_found : list of str
    seconds : float
    """

    workflows: int = 0
    made: dict[str, int] = field(default_factory=dict)
    harmful: dict[str, int] = field(default_factory=dict)
    by_check: dict[str, int] = field(default_factory=dict)
    by_verify: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    false_alarms: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def sheet(self) -> Sheet:
        """Return a table with a row for each kind of fault."""
        sheet = Sheet("checks", (Column("fault", "fault"), *(Column(key, title, meaning) for key, title, meaning in _COUNTS)))
        for kind in self.made:
            sheet.rows.append({"fault": kind, **{key: getattr(self, key).get(kind, 0) for key, _, _ in _COUNTS}})
        sheet.rows.append({"fault": "all", "group": "all", **{key: sum(getattr(self, key).values()) for key, _, _ in _COUNTS}})
        sheet.notes.append(f"{self.workflows} correct workflows, {len(self.false_alarms)} false alarms; {self.seconds:.0f} s")
        sheet.notes += [f"false alarm: {text}" for text in self.false_alarms]
        sheet.notes += [f"missed: {text}" for text in self.not_found]
        return sheet


def run(progress: Callable[[str], None] = lambda _: None, *, runtime: str = "cpu", most: int | None = None) -> Result:
    """Make the corpus and its mutants, and judge them.

    Parameters
    ----------
    progress : callable
        Called with the name of each workflow.
    runtime : str
    most : int, optional
        Mutants of each workflow, drawn with a fixed seed; all without it.
    """
    started = time.perf_counter()
    opened = open_runtime(runtime)
    result = Result()
    draw = random.Random(1)
    for graph in corpus():
        progress(graph.name)
        workflow = graph.workflow()
        result.workflows += 1
        result.false_alarms += [
            f"{graph.name}: {d}"
            for target in (None, opened.target)
            for d in check_workflow(workflow, target)
            if d.severity != "info"
        ]
        result.false_alarms += [f"{graph.name}: {f}" for f in verify(graph, opened, orders=10, repeats=2).findings]
        made = list(mutants(workflow))
        if most is not None and len(made) > most:
            made = draw.sample(made, most)
        for mutant in made:
            judge(mutant, opened, result)
    result.seconds = time.perf_counter() - started
    return result


def judge(mutant: Mutant, runtime: Runtime, result: Result, orders: int = _MOST_ORDERS) -> None:
    """Count a mutant, and what finds it if it can change a result."""
    kind, workflow = mutant.kind, mutant.workflow
    result.made[kind] = result.made.get(kind, 0) + 1
    if kind not in _ALWAYS_HARMFUL and not changes_a_result(workflow, runtime, orders):
        return
    result.harmful[kind] = result.harmful.get(kind, 0) + 1
    report = check_workflow(workflow)
    checked = bool(report.errors or report.warnings)
    try:
        verified = not verify(workflow, runtime, orders=20, repeats=2).ok
    except HipGraphError:
        verified = True
    result.by_check[kind] = result.by_check.get(kind, 0) + checked
    result.by_verify[kind] = result.by_verify.get(kind, 0) + verified
    if not checked and not verified:
        result.missed[kind] = result.missed.get(kind, 0) + 1
        result.not_found.append(f"{workflow.name}: {kind}, {mutant.what}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``hipgraphdsl bench checks``."""
    parser.add_argument("--runtime", default="cpu", help="(default: cpu)")
    parser.add_argument("--most", type=positive, default=None, metavar="N", help="mutants of each workflow (default: all)")
    add_output_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run, print the table, and return 1 if anything was missed or a correct workflow was blamed."""
    from rich.console import Console

    with Console(stderr=True).status("checks") as status:
        result = run(lambda name: status.update(f"checks: {name}"), runtime=arguments.runtime, most=arguments.most)
    finish(result.sheet(), arguments)
    return 1 if result.not_found or result.false_alarms else 0
