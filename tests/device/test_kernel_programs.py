"""Generated kernels (tests/kernel_programs) compute what their trees mean, however they are compiled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from kernel_programs.__main__ import SANITIZED_WAYS, WAYS
from kernel_programs.model import InvalidKernel
from kernel_programs.running import Way, describe, differing, expected, graph_of, is_whole, make_kernels, reports, shrink
from kernel_programs.tree import (
    I32,
    Assign,
    Assigned,
    Binary,
    Comma,
    Declare,
    If,
    Kernel,
    Literal,
    Record,
    Switch,
    Use,
    Warp,
    While,
    walk,
)  # fmt: skip
from kernel_programs.writing import write_source

import hipgraphdsl as hg

COUNT, TOGETHER = 300, 50


@pytest.mark.parametrize("first", range(0, COUNT, TOGETHER))
def test_generated_kernels_compute_what_they_mean(first: int) -> None:
    """Half of each fifty, which are of one sort; the others, and these in the other modes, in the slow tests."""
    way = WAYS[first // TOGETHER % len(WAYS)]
    different = differing(make_kernels(range(first, first + TOGETHER // 2)), way)
    assert not different, f"with {way}:\n" + describe(different[0], way.warp_size)


@pytest.mark.parametrize("way", [SANITIZED_WAYS[0], pytest.param(SANITIZED_WAYS[1], marks=pytest.mark.slow)], ids=str)
def test_sanitize_reports_nothing_of_generated_kernels(way: Way) -> None:
    first = COUNT + way.warp_size
    assert not reports(make_kernels([*range(first, first + 12), *range(first + 100, first + 112)]), way)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, COUNT + 1000, 100))
def test_more_generated_kernels_compute_what_they_mean(first: int) -> None:
    """The first ones in every mode, the others in every second one by turns."""
    kernels = make_kernels(range(first, first + 100))
    ways = WAYS if first < COUNT else WAYS[first // 100 % 2 :: 2]
    with ThreadPoolExecutor(2) as pool:
        for way, different in zip(ways, pool.map(lambda way: differing(kernels, way), ways)):
            assert not different, f"with {way}:\n" + describe(different[0], way.warp_size)


GPU_COUNT = {"cpu": 20, "nvidia": 2000}


@pytest.mark.parametrize("runtime", ["cpu", "nvidia"])
def test_generated_kernels_compute_the_same_on_every_runtime(runtime: Any) -> None:
    """Through graphs: one module and one graph for fifty kernels, whose nodes do not depend on each other."""
    try:
        hg.open_runtime(runtime)
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))
    together = min(TOGETHER, GPU_COUNT[runtime])
    for first in range(0, GPU_COUNT[runtime], together):
        kernels = make_kernels(range(first, first + together), gpu=True)
        graph = graph_of(kernels, ["-w", "-mno-wavefrontsize64"] if runtime == "cpu" else [])
        with graph.compile(runtime=runtime) as executable:
            executable.run()
            for k in kernels:
                for name, wanted in zip(("out", "bins"), expected(k, 32)):
                    got = executable.read(f"{k.name}_{name}")
                    np.testing.assert_array_equal(got, wanted, err_msg=f"on {runtime}: {describe(k, 32)}")


def test_kernels_of_a_seed_are_the_same_and_hold_what_they_are_for() -> None:
    assert write_source(make_kernels([3, 4])) == write_source(make_kernels([3, 4]))
    nodes = [node for k in make_kernels(range(150)) for part in (*k.functions, *k.body) for node in walk(part)]
    for kind in (If, Switch, While):
        assert sum(isinstance(node, kind) for node in nodes) > 30
    assert len({(node.name, node.mask is not None) for node in nodes if isinstance(node, Warp)}) > 14
    for rare in (Assigned, Comma, Record):
        assert any(isinstance(node, rare) for node in nodes)
    declared = [node.decl for node in nodes if isinstance(node, Declare)]
    assert any(d.pointer for d in declared)
    assert any(d.volatile for d in declared)
    assert any(d.name == "warpSize" for d in declared)


def _changed(kernels: list[Kernel]) -> list[Kernel]:
    """Return the kernels in which a variable is doubled somewhere: a mistake to look for."""
    return [k for k in kernels if any(isinstance(node, Assign) and node.op == "+=" for part in k.body for node in walk(part))]


@pytest.mark.slow
def test_a_kernel_that_differs_is_shrunk() -> None:
    kernel = next(iter(_changed(make_kernels(range(50)))))
    small = shrink(kernel, lambda kernels: _changed(list(kernels)), most=30)
    assert is_whole(small)
    assert _changed([small])
    assert len(write_source([small])) < len(write_source([kernel])) / 2


def test_the_model_refuses_what_is_not_defined() -> None:
    def declared(kernel: Kernel) -> dict[str, Declare]:
        return {s.decl.name: s for s in kernel.body if isinstance(s, Declare)}

    kernel = next(k for k in make_kernels(range(50)) if "m0" in declared(k))
    start = declared(kernel)
    kernel.body = [start[name] for name in ("total", "t", "lane", "many", "m0")]
    expected(kernel, 64)
    mask = Binary("^", Use(start["m0"].decl), Literal(1, I32))
    kernel.body.append(If(Warp("ballot", [Literal(1, I32)], mask), [], None))
    with pytest.raises(InvalidKernel, match="other lanes"):
        expected(kernel, 64)
