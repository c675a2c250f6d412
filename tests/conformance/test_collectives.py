"""Collectives give NumPy's values, fold by fold: in one process by every backend, and over ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from places import HERE
from thread_ranks import on_ranks

import hipgraphdsl as hg
from hipgraphdsl.nodes.collective import Does, Fold
from hipgraphdsl.parts.ranks.partition import partition
from hipgraphdsl.parts.ranks.sharing import Between, Layout, Sharing
from hipgraphdsl.runtimes.base import Runtime

DOES: tuple[Does, ...] = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
DTYPES = ("int32", "float32", "uint8", "int64", "float64", "float16", "bfloat16")
FOLDS: dict[Fold, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
Array = npt.NDArray[Any]


def values(does: Does, size: int, count: int, dtype: str) -> list[Array]:
    """Return what each participant begins with: `count` elements, or so many for each of the others."""
    rows = count * size if does in ("reduce_scatter", "all_to_all") else count
    chance = np.random.default_rng(size * 1000 + count)
    return [chance.integers(1, 5, rows).astype(np.dtype(getattr(ml_dtypes, dtype, dtype))) for _ in range(size)]


def expected(does: Does, given: list[Array], op: Fold, root: int) -> list[Array | None]:
    """Return what each participant has in the end; None where it is not written."""
    size = len(given)

    def folded(parts: list[Array]) -> Array:
        wide = parts[0].dtype.itemsize == 2 and parts[0].dtype.kind not in "iu"
        return reduce(FOLDS[op], [part.astype("f4") if wide else part for part in parts]).astype(parts[0].dtype)

    if does == "all_reduce":
        return [folded(given)] * size
    if does == "reduce":
        return [folded(given) if d == root else None for d in range(size)]
    if does == "broadcast":
        return [given[root]] * size
    if does == "all_gather":
        return [np.concatenate(given)] * size
    shares = [np.split(array, size) for array in given]
    if does == "reduce_scatter":
        return [folded([share[d] for share in shares]) for d in range(size)]
    return [np.concatenate([share[d] for share in shares]) for d in range(size)]


def declared(does: Does, given: list[Array], op: Fold, root: int, devices: list[int | None]) -> hg.Graph:
    """Return a graph with the collective, on arrays ``x0``, ``x1``, ... and, where it writes others, ``y0``, ``y1``, ..."""
    g = hg.Graph(does)
    size = len(given)
    x = [g.device_array(f"x{d}", array, device=devices[d]) for d, array in enumerate(given)]
    if does in ("all_reduce", "reduce", "broadcast"):
        options: dict[str, Any] = {"op": op} if does != "broadcast" else {}
        if does != "all_reduce":
            options["root"] = root
        getattr(g, does)(x, name="together", **options)
        return g
    rows = {"all_gather": given[0].size * size, "reduce_scatter": given[0].size // size}.get(does, given[0].size)
    y = [g.device_array(f"y{d}", shape=rows, dtype=given[0].dtype, device=devices[d]) for d in range(size)]
    getattr(g, does)(y, x, name="together", **({"op": op} if does == "reduce_scatter" else {}))
    return g


def result(does: Does) -> str:
    return "x" if does in ("all_reduce", "reduce", "broadcast") else "y"


@pytest.fixture(params=HERE)
def device(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


ROWS = [("all_reduce", dtype) for dtype in DTYPES] + [(does, dtype) for does in DOES[1:] for dtype in ("int32", "float16")]


@pytest.mark.parametrize(("does", "dtype"), ROWS)
def test_collective_in_one_process(device: Runtime, backend: Any, does: Does, dtype: str) -> None:
    if dtype == "bfloat16" and device.name == "amd" and "AMD_ON_CPU_HOME" in os.environ:
        pytest.skip("the kernels of the stand-in device know no bfloat16: tests/amd_on_cpu/README.md")
    cases: list[tuple[int, int, Fold, int]] = [(1, 1, "sum", 0), (2, 7, "max", 1), (3, 40_001, "sum", 2), (4, 64, "min", 0)]
    for size, count, op, root in cases:
        given = values(does, size, count, dtype)
        with declared(does, given, op, root, [None] * size).compile(runtime=device, backend=backend) as exe:
            exe.run()
            for d, wanted in enumerate(expected(does, given, op, root)):
                found = exe.read(f"{result(does)}{d}")
                np.testing.assert_array_equal(found, given[d] if wanted is None else wanted)


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_collective_over_ranks(does: Does, size: int) -> None:
    """The same bits as in one process: each device folds in the order of the arrays."""
    cases: list[tuple[int, Fold, str, int]] = [
        (1, "sum", "int32", 0), (33, "prod", "float32", size - 1), (70_001, "sum", "float32", 1),
    ]  # fmt: skip
    for count, op, dtype, root in cases:
        given = values(does, size, count, dtype)
        given = [array + np.asarray(0.1 if dtype == "float32" else 0, array.dtype) for array in given]
        wanted = expected(does, given, op, root)

        def run(ranks: hg.Ranks, given: Any = given, op: Any = op, root: int = root) -> Array:
            g = declared(does, given, op, root, list(range(size)))
            with g.compile("cpu", ranks=ranks) as exe:
                exe.run()
                return exe.read(f"{result(does)}{ranks.rank}")

        for d, found in enumerate(on_ranks(size, run)):
            end = wanted[d]
            np.testing.assert_array_equal(found, given[d] if end is None else end)


def test_collective_over_ranks_of_two_devices() -> None:
    given = values("all_reduce", 4, 50_000, "int32")
    runtime: Any = hg.open_runtime("cpu")
    before = runtime.get_device_count()
    runtime.set_device_count(2)
    try:

        def run(ranks: hg.Ranks) -> list[Array]:
            with declared("all_reduce", given, "sum", 0, [0, 1, 2, 3]).compile("cpu", ranks=ranks) as exe:
                exe.run()
                return [exe.read(f"x{2 * ranks.rank + k}") for k in range(2)]

        for found in on_ranks(2, run, devices_per_rank=[2, 2]):
            for array in found:
                np.testing.assert_array_equal(array, sum(given))
    finally:
        runtime.set_device_count(before)


def test_work_before_and_behind_a_collective_is_ordered() -> None:
    """On every rank, by what it touches there."""
    module = hg.Module('extern "C" __global__ void add(int* x, int k) { x[threadIdx.x] += k; }')

    def run(ranks: hg.Ranks) -> Any:
        g = hg.Graph("ordered")
        x = [g.device_array(f"x{d}", np.zeros(64, np.int32), device=d) for d in range(3)]
        for step in range(4):
            for d in range(3):
                g.kernel(module["add"], 1, 64, (x[d], d + step), name=f"before_{step}_{d}")
            g.all_reduce(x, name=f"sum_{step}")
        with g.compile("cpu", ranks=ranks) as exe:
            exe.run()
            return exe.read(f"x{ranks.rank}")[[0, 63]].tolist()

    value = [0, 0, 0]
    for step in range(4):
        value = [sum(v + d + step for d, v in enumerate(value))] * 3
    assert on_ranks(3, run) == [[value[0]] * 2] * 3


def test_collective_of_a_file_is_checked_as_one_that_is_declared() -> None:
    g = hg.Graph("wrong")
    x, y = ([g.device_array(f"{name}{d}", shape=6, dtype="float32") for d in range(2)] for name in "xy")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"does": "all_reduce", "targets": x, "sources": y}, "targets are the same views as sources"),
        ({"does": "broadcast", "targets": x, "sources": y[:1]}, "its source is target 0, 'x0'"),
        ({"does": "broadcast", "targets": x, "sources": x[:1], "root": 1}, "its source is target 1, 'x1'"),
        ({"does": "broadcast", "targets": x, "sources": x[:1], "root": 2}, "root is the number of a participant, from 0 to 1"),
        ({"does": "broadcast", "targets": [], "sources": x[:1]}, "at least one source and one target"),
        ({"does": "reduce", "targets": x, "sources": x}, "has 2 sources and 2 targets"),
        ({"does": "reduce", "targets": x[:1], "sources": []}, "at least one source and one target"),
        ({"does": "reduce", "targets": x[:1], "sources": x, "root": -1}, "root is an integer from 0"),
    ]
    for fields, said in wrong:
        with pytest.raises(hg.DeclarationError, match=said):
            hg.CollectiveNode(name="c", **fields)


def test_collective_is_checked_where_it_is_declared() -> None:
    g = hg.Graph("wrong")
    x = [g.device_array(f"x{d}", shape=6, dtype="float32") for d in range(3)]
    y = g.device_array("y", shape=(4, 6), dtype="float32")
    z = g.device_array("z", shape=6, dtype="complex64")
    h = g.host_array("h", shape=6, dtype="float32")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: g.all_reduce([x[0], y]), "does not fit these shapes"),
        (lambda: g.all_reduce([x[0], z]), r"arrays of one dtype .got float32, complex64"),
        (lambda: g.all_reduce([z]), "sum of complex64 is not known"),
        (lambda: g.all_reduce([y[:, 0:3]]), r"takes contiguous arrays .got 'y\[0:4, 0:3\]'"),
        (lambda: g.all_reduce([x[0], h]), "about device arrays"),
        (lambda: g.all_reduce([]), "takes at least one array"),
        (lambda: g.broadcast([]), "arrays is a list of at least one device array or view"),
        (lambda: g.all_reduce(x, op="mean"), "op is 'sum', 'prod', 'max' or 'min'"),  # type: ignore[arg-type]
        (lambda: g.broadcast(x, root=3), "root is the number of an array, from 0 to 2"),
        (lambda: g.all_to_all(x, x), "writes to other memory than it reads"),
        (lambda: g.all_gather([y[0:3]], x), "has 3 sources and 1 targets"),
        (lambda: g.reduce_scatter([x[0], x[1]], [y, y]), "writes to other memory|does not fit"),
    ]
    for call, said in wrong:
        with pytest.raises(hg.DeclarationError, match=said):
            call()
    assert len(g) == 0


def test_collective_in_files_and_texts() -> None:
    g = declared("all_reduce", values("all_reduce", 2, 4, "float32"), "max", 0, [0, 1])
    text = g.to_json()
    assert "fold_max" not in text  # what it holds follows from what it does
    again = hg.Graph.from_json(text)
    assert again.to_json() == text
    assert again.nodes[0].describe() == "all_reduce max of 2: x0, x1"
    assert g.nodes[0].source is not None
    assert g.nodes[0].source[0] == __file__  # not a file of the package
    assert hg.explain_update(g, again).changes == ()


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (3, 5), (4, 20000)])
def test_collective_says_what_the_nodes_in_it_touch(does: Does, size: int, count: int) -> None:
    def bytes_of(accesses: tuple[Any, ...], bind: dict[str, Any]) -> set[tuple[str, str, int, int]]:
        """Return which bytes of whose memory are touched how, neighbouring ones together."""
        found: dict[tuple[str, str], set[tuple[int, int]]] = {}
        for access in accesses:
            if access.view.root.name in bind or not bind:
                found.setdefault((access.view.root.name, access.mode), set()).add((access.bytes.start, access.bytes.stop))
        joined = set()
        for (name, mode), parts in found.items():
            start, stop = min(parts)
            for begin, end in sorted(parts):
                assert begin <= stop
                stop = max(stop, end)
            joined.add((bind[name].root.name if bind else name, mode, start, stop))
        return joined

    g = declared(does, values(does, size, count, "float32"), "sum", size - 1, [None] * size)
    (node,) = g.workflow().nodes
    assert isinstance(node, hg.CollectiveNode)
    said = bytes_of(node.accesses, {})
    assert said == bytes_of(node.workflow.accesses, node.bind)


def test_collective_of_many_makes_no_copies_until_somebody_asks() -> None:
    """There is a copy for each two participants, which a rank that calls a library need not know."""
    g = hg.Graph("many")
    x = [g.device_array(f"x{d}", shape=1 << 20, dtype="float32", device=d) for d in range(512)]
    node = g.all_reduce(x)
    sharing = Sharing(g.workflow(), Layout((1,) * 512), Between(lambda does, dtype: True))
    part = partition(sharing, 7, lambda messages, direct: print)
    assert len(part.workflow.nodes) == 1
    assert g.simulate({}, ranks=512, link=hg.Link(latency_us=1, gb_s=1)).makespan > 0
    assert "workflow" not in vars(node)
    assert node == node.changed()  # whatever has been asked of the one
