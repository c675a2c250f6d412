"""verify: kernels that write or read beyond their arrays, on every runtime that is here."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import HERE
from specimens import compile_whole

import hipgraphdsl as hg
from benchmarks import checks as corpus_of_checks
from hipgraphdsl.executable import Executable
from hipgraphdsl.parts.verify import verify
from hipgraphdsl.parts.verify.report import Finding, VerifyReport
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime

SOURCE = r"""
struct Point { float x, y, z; };
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) { INDEX; if (i < n) y[i] += a * x[i]; }
extern "C" __global__ void copy(const int* x, int* y, int n) { INDEX; if (i < n) y[i] = x[i]; }
extern "C" __global__ void zero(double* y, int n) { INDEX; if (i < n) y[i] = 0; }
extern "C" __global__ void move(Point* p, int n) { INDEX; if (i < n) p[i].x += 1; }
extern "C" __global__ void from(int* y, int first, int n) { INDEX; if (i < n) y[i + first] = 7; }
extern "C" __global__ void neighbours(const int* x, int* y, int left, int right, int n) {
  INDEX; if (i < n) y[i] = (left ? x[i - 1] : 0) + (right ? x[i + 1] : 0);
}
extern "C" __global__ void loads_first(const int* x, int* y, int n) { INDEX; int v = x[i]; if (i < n) y[i] = v; }
extern "C" __global__ void gather(const int* x, const int* at, int* y, int n) { INDEX; if (i < n) y[i] = x[at[i + 1]]; }
extern "C" __global__ void count_down(int* n) { if (threadIdx.x == 0) n[0] -= 1; }
"""
N = 100


@pytest.fixture(scope="module", params=HERE)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


@pytest.fixture(scope="module")
def kernels() -> hg.Module:
    return compile_whole(hg.Module(SOURCE, name="beyond"))


def beyond(runtime: Runtime, declare: Callable[[hg.Graph], Any]) -> list[Finding]:
    return list(report_of(runtime, declare).findings)


def report_of(runtime: Runtime, declare: Callable[[hg.Graph], Any], **options: Any) -> VerifyReport:
    g = hg.Graph("demo")
    declare(g)
    # What the sanitizer finds, nothing else is run after.
    return verify(g, runtime, **{"backends": (), "orders": 3, "sanitize": False, **options})


def ints(g: hg.Graph, name: str) -> Any:
    return g.device_array(name, np.arange(1, N + 1, dtype="int32"))


# -- writes ------------------------------------------------------------------------------------------------------------


def test_write_beyond_the_end_is_named_with_its_bytes_and_elements(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        x, y = (g.device_array(name, np.ones(N, "float32")) for name in "xy")
        g.kernel(kernels["axpy"], 1, 128, (1.0, x, y, 2 * N), name="k")

    (finding,) = beyond(runtime, declare)
    assert (finding.kind, finding.nodes, finding.arrays) == ("out of bounds", ("k",), ("y",))
    assert finding.message == (
        "'k' writes 112 bytes beyond the end of 'y' (bytes 400..512 of an array of 400 bytes, elements 100..128 of 100)"
    )
    assert "kernel 'axpy'" in finding.hint
    assert "the 100 elements of 'y'" in finding.hint


def test_write_before_the_begin_is_named(runtime: Runtime, kernels: hg.Module) -> None:
    (finding,) = beyond(runtime, lambda g: g.kernel(kernels["from"], 1, 32, (ints(g, "y"), -2, 32), name="k"))
    assert finding.kind == "out of bounds"
    assert "8 bytes before the start of 'y' (bytes -8..0" in finding.message


def test_write_on_both_sides_is_two_findings(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        y = ints(g, "y")
        g.kernel(kernels["from"], 1, 128, (y, -1, N + 2), name="k")

    assert [f.message.split(" of ")[0] for f in beyond(runtime, declare)] == [
        "'k' writes 4 bytes before the start",
        "'k' writes 4 bytes beyond the end",
    ]


def test_write_that_goes_on_behind_the_guard_is_at_least_so_long(runtime: Runtime, kernels: hg.Module) -> None:
    (finding,) = beyond(runtime, lambda g: g.kernel(kernels["from"], 9, 128, (ints(g, "y"), 0, 100 + 1024), name="k"))
    assert "writes at least 4096 bytes beyond the end of 'y'" in finding.message


def test_zeros_that_are_written_beyond_the_end_are_found(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        g.kernel(kernels["zero"], 1, 128, (hg.writes(g.device_array("y", shape=N, dtype="float64")), N + 1), name="k")

    (finding,) = beyond(runtime, declare)
    assert "8 bytes beyond the end of 'y'" in finding.message


def test_copy_from_behind_one_array_to_behind_another_is_found(runtime: Runtime, kernels: hg.Module) -> None:
    (finding,) = beyond(runtime, lambda g: g.kernel(kernels["copy"], 1, 128, (ints(g, "x"), ints(g, "y"), N + 3), name="k"))
    assert "12 bytes beyond the end of 'y'" in finding.message


def test_elements_of_a_structure_are_counted_whole(runtime: Runtime, kernels: hg.Module) -> None:
    point = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
    (finding,) = beyond(
        runtime, lambda g: g.kernel(kernels["move"], 1, 64, (g.device_array("p", shape=21, dtype=point), 22), name="k")
    )
    assert "(bytes 252..264 of an array of 252 bytes, elements 21..22 of 21)" in finding.message


def test_write_behind_pinned_memory_is_found(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        g.kernel(kernels["from"], 1, 128, (g.host_array("y", shape=N, dtype="int32"), 1, N), name="k")

    (finding,) = beyond(runtime, declare)
    assert "'k' writes 4 bytes beyond the end of 'y'" in finding.message


def test_callback_that_writes_through_a_pointer_is_found(runtime: Runtime) -> None:
    def fill(values: Any) -> None:
        ctypes.memset(values.ctypes.data, 1, values.nbytes + 6)

    def declare(g: hg.Graph) -> None:
        y = g.host_array("y", shape=N, dtype="int32", pinned=False)
        g.host(fill, args=(y,), writes=[y], name="fill")

    (finding,) = beyond(runtime, declare)
    assert "'fill' writes 8 bytes beyond the end of 'y'" in finding.message
    assert finding.hint == "compare what it computes with the 100 elements of 'y'"


def test_write_behind_graph_memory_is_found(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        y, out = g.alloc("y", N, "int32"), g.host_array("out", shape=N, dtype="int32")
        g.kernel(kernels["copy"], 1, 128, (ints(g, "x"), hg.writes(y), N + 1), name="k")
        g.memcpy(out, y)
        g.free(y)

    (finding,) = beyond(runtime, declare)
    assert (finding.kind, finding.nodes, finding.arrays) == ("out of bounds", ("k",), ("y",))


def test_write_behind_the_array_of_a_child_has_its_full_name(runtime: Runtime, kernels: hg.Module) -> None:
    child = hg.Graph("child")
    child.kernel(kernels["from"], 1, 128, (ints(child, "own"), 0, N + 1), name="k")
    (finding,) = beyond(runtime, lambda g: g.child(child, name="step"))
    assert (finding.nodes, finding.arrays) == (("step/k",), ("step/own",))


def test_node_in_the_body_of_a_loop_is_named(runtime: Runtime, kernels: hg.Module) -> None:
    if runtime.target.platform == "amd":
        pytest.skip("HIP has no conditional nodes")
    body = hg.Graph("body")
    n = body.device_array("n", shape=1, dtype="int32")
    body.kernel(kernels["copy"], 1, 128, (ints(body, "own"), ints(body, "u"), N + 1), name="k")
    body.kernel(kernels["count_down"], 1, 1, (n,), name="count_down")

    def declare(g: hg.Graph) -> None:
        left = g.device_array("left", np.full(1, 5, "int32"))
        g.conditional("while", left, body, bind={"n": left}, name="loop")

    report = report_of(runtime, declare)
    (finding,) = report.findings
    assert (finding.kind, finding.nodes, finding.arrays) == ("out of bounds", ("loop/0/k",), ("loop/0/u",))
    assert "an access audit of 2 nodes alone" in report.done


def test_each_node_is_blamed_for_what_it_does_itself(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        y = ints(g, "y")
        g.kernel(kernels["from"], 1, 128, (y, 0, N), name="right")
        for name in ("first", "second"):
            g.kernel(kernels["from"], 1, 128, (y, 0, N + 1), name=name)
        g.memset(y, 0, name="clear")

    assert [f.nodes for f in beyond(runtime, declare)] == [("first",), ("second",)]


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right", "where"), [(1, 0, "before the start"), (0, 1, "beyond the end")])
def test_read_that_matters_is_found(runtime: Runtime, kernels: hg.Module, left: int, right: int, where: str) -> None:
    def declare(g: hg.Graph) -> None:
        g.kernel(kernels["neighbours"], 1, 128, (ints(g, "x"), hg.writes(ints(g, "y")), left, right, N), name="k")

    (finding,) = beyond(runtime, declare)
    assert (finding.kind, finding.nodes, finding.arrays) == ("out of bounds", ("k",), ("x",))
    assert finding.message == f"'k' reads {where} of 'x', and what it writes depends on that"


def test_index_that_is_read_beyond_the_end_does_no_harm_and_is_found(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        at = g.device_array("at", np.zeros(N, "int32"))
        g.kernel(kernels["gather"], 1, 128, (ints(g, "x"), at, hg.writes(ints(g, "y")), N), name="k")

    (finding,) = beyond(runtime, declare)
    assert (finding.kind, finding.arrays) == ("out of bounds", ("at",))


def test_read_that_does_not_matter_is_no_finding(runtime: Runtime, kernels: hg.Module) -> None:
    report = report_of(
        runtime, lambda g: g.kernel(kernels["loads_first"], 1, 128, (ints(g, "x"), hg.writes(ints(g, "y")), N), name="k")
    )
    assert report.ok, str(report)


def test_callback_with_other_results_each_time_is_no_reader(runtime: Runtime) -> None:
    calls = iter(range(10**6))

    def count(values: Any) -> None:
        values[0] = next(calls)

    def declare(g: hg.Graph) -> None:
        y = g.host_array("y", shape=N, dtype="int32")
        g.host(count, args=(y,), writes=[y], name="count")

    report = report_of(runtime, declare, orders=0)
    assert report.ok, str(report)
    assert "what 'count' reads: it writes other values each time, from the same memory" in report.left_out


# -- what is right, and what follows -----------------------------------------------------------------------------------


def test_bounds_check_that_is_right_is_no_finding(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        x, y = (g.device_array(name, np.ones(N, "float32")) for name in "xy")
        z = g.alloc("z", N, "float32")
        out = g.host_array("out", shape=N, dtype="float32", pinned=False)
        g.memcpy(z, x)
        g.kernel(kernels["axpy"], 2, 128, (2.0, z, y, N))
        g.memset(x[N // 2 :], 3.0)
        g.memcpy(out[::2], y[::2])
        g.free(z)

    report = report_of(runtime, declare, backends=("explicit", "capture", "streams"))
    assert report.ok, str(report)


def test_backends_are_left_out_with_the_reason(runtime: Runtime, kernels: hg.Module) -> None:
    def declare(g: hg.Graph) -> None:
        g.kernel(kernels["from"], 1, 128, (ints(g, "y"), 0, N + 1), name="k")

    report = report_of(runtime, declare, backends=("explicit",))
    assert report.left_out == ("backends: 'k' reaches beyond its arrays, where other data may lie",)
    assert json.loads(report.to_json())["findings"][0]["kind"] == "out of bounds"
    assert "out of bounds: 'k' writes 4 bytes" in str(report)


def test_guards_keep_alignment_and_hold_zeros(runtime: Runtime) -> None:
    g = hg.Graph("demo")
    g.device_array("x", np.ones(3, "int8"))
    g.host_array("p", np.ones(3, "int8"))
    g.host_array("q", np.ones(3, "int8"), pinned=False)
    exe = Executable.build(g.workflow(), runtime, "serial", guard=512)
    with exe:
        for name, alignment in (("x", 256), ("p", 64), ("q", 64)):
            assert exe.array(name).ptr % alignment == 0
            assert exe.read(name).tolist() == [1, 1, 1]
        around = np.ctypeslib.as_array((ctypes.c_uint8 * 1027).from_address(exe.array("p").ptr - 512))
        assert around.sum() == 3


@pytest.mark.parametrize("graph", corpus_of_checks.corpus(), ids=lambda graph: graph.name)
def test_kernels_with_too_many_threads_are_named(graph: hg.Graph, runtime: Runtime) -> None:
    for mutant in corpus_of_checks.mutants(graph.workflow()):
        if mutant.kind in ("n + 1", "wrong grid"):
            found = verify(mutant.workflow, runtime, (), orders=0).findings
            assert mutant.what in {node for f in found if f.kind == "out of bounds" for node in f.nodes}
