"""verify: what it finds by running, how it names it, and that it leaves correct workflows alone."""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conformance import spec
from conformance.spec import NODE_KINDS
from specimens import compile_whole

import hipgraphdsl as hg
from benchmarks import checks as corpus_of_checks
from hipgraphdsl.parts.verify import proof, verify
from hipgraphdsl.parts.verify.laboratory import Laboratory
from hipgraphdsl.parts.verify.launches import Trials
from hipgraphdsl.parts.verify.orders import topological_order
from hipgraphdsl.parts.verify.report import VerifyReport
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import CaptureStatus, Fill2D, MemcpyKind

SOURCE = r"""
extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }
extern "C" __global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
extern "C" __global__ void half(float* y) { if (threadIdx.x < 32) y[threadIdx.x] = 1; }
extern "C" __global__ void beyond(float* y) { y[threadIdx.x + 8] = 1; }
"""
N = 64


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    try:
        return open_runtime("cpu")
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def kernels() -> hg.Module:
    return compile_whole(hg.Module(SOURCE), sanitize=True)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_whole(spec.module(), "scaled<int>", "scaled<double>", fast=False, sanitize=True)
    compile_whole(corpus_of_checks.module(), sanitize=True)


def kinds(report: VerifyReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def steps(kernels: hg.Module, *, edge: bool = True) -> hg.Graph:
    g = hg.Graph("steps", infer=False)
    hx = g.host_array("hx", np.arange(N, dtype="float32"))
    x, y = (g.device_array(name, np.ones(N, "float32")) for name in "xy")
    out = g.host_array("out", shape=N, dtype="float32")
    g.memcpy(x, hx, name="in")
    g.kernel(kernels["scale"], 1, N, (x, 2.0), name="scale", after=["in"])
    g.kernel(kernels["add"], 1, N, (x, y), name="add", after=["scale"] if edge else ["in"])
    g.memcpy(out, y, name="out", after=["add", "scale"])
    return g


# -- correct workflows -------------------------------------------------------------------------------------------------


def test_correct_workflow_has_no_finding(runtime: Runtime, kernels: hg.Module) -> None:
    report = verify(steps(kernels), runtime)
    assert report.ok, str(report)
    assert report.exit_code == 0
    assert not report.left_out
    assert len(report.done) == 7


def test_workflows_that_decide_are_run_in_all_orders(runtime: Runtime) -> None:
    for name in ("conditional_nested", "conditional_while"):
        report = verify(NODE_KINDS[name](hg.Graph("case"), runtime).graph, runtime)
        assert report.ok, str(report)
        assert len(report.done) == 6


def test_where_graphs_cannot_decide_the_other_backends_are_still_compared(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*_: Any) -> Any:
        raise runtime._lacks("hipGraphAddConditionalNode")

    monkeypatch.setattr(runtime, "target", replace(runtime.target, name="amd:gfx942"))
    monkeypatch.setattr(runtime, "graph_add_conditional_node", lacks)
    report = verify(NODE_KINDS["conditional_while"](hg.Graph("case"), runtime).graph, runtime)
    assert report.ok, str(report)
    assert [line.partition(":")[0] for line in report.left_out] == ["backend 'explicit'", "backend 'capture'"]
    assert any("streams" in line for line in report.done)


def test_external_memory_has_its_values_back(runtime: Runtime) -> None:
    memory = np.arange(N, dtype="float32")
    g = hg.Graph("demo")
    x = g.external_array("x", memory)
    g.memset(x[:8], 3.0)
    assert verify(g, runtime).ok
    assert np.array_equal(memory, np.arange(N, dtype="float32"))


@pytest.mark.parametrize("how", ["given", "default", "in a child"])
def test_memory_of_parameters_is_compared_and_has_its_values_back(runtime: Runtime, kernels: hg.Module, how: str) -> None:
    memory, y = np.arange(N, dtype="float32"), np.ones(N, "float32")

    def declare(g: hg.Graph, default: Any = None) -> None:
        x = g.device_array("x", np.ones(N, "float32"))
        p, q = g.param("p", "float32", default, shape=N), g.param("q", "float32", y, shape=N)
        g.kernel(kernels["add"], 1, N, (x, p), name="add")
        g.kernel(kernels["scale"], 1, N, (x, 2.0), name="scale")
        g.kernel(kernels["add"], 1, N, (x, q), name="again")

    g = hg.Graph("demo")
    if how == "in a child":
        child = hg.Graph("child")
        declare(child)
        g.child(child, name="c")
        params = {"c/p": memory}
    else:
        declare(g, memory if how == "default" else None)
        params = {} if how == "default" else {"p": memory}
    report = verify(g, runtime, orders=2, repeats=2, params=params)
    assert report.ok, str(report)
    assert np.array_equal(memory, np.arange(N, dtype="float32"))
    assert np.array_equal(y, np.ones(N))

    g = hg.Graph("wrong", infer=False)
    x, p = g.device_array("x", np.ones(N, "float32")), g.param("p", "float32", shape=N)
    g.kernel(kernels["scale"], 1, N, (x, 2.0), name="scale")
    g.kernel(kernels["add"], 1, N, (x, p), name="add")
    report = verify(g, runtime, ["explicit"], orders=4, params={"p": memory})
    assert {finding.arrays for finding in report.findings} == {("parameter p",)}


def test_device_memory_from_outside_has_its_values_back_and_is_not_given_to_the_cpu(runtime: Runtime, kernels: hg.Module) -> None:
    outside = hg.Graph("outside")
    for name in "yz":
        outside.device_array(name, np.ones(N, "float32"))
    with outside.compile(runtime) as owner:
        g = hg.Graph("demo")
        x, y = g.device_array("x", np.ones(N, "float32")), g.external_array("y", owner.array("y"))
        g.kernel(kernels["add"], 1, N, (x, y), name="add")
        g.kernel(kernels["add"], 1, N, (y, g.param("z", "float32", shape=N)), name="more")
        for where in (runtime, _other()):
            report = verify(g, where, orders=2, repeats=2, params={"z": owner.array("z")})
            assert report.ok, str(report)
            assert any("memory of 'z' is a device's" in line for line in report.left_out) == (where is not runtime)
            assert [owner.read(name).tolist() for name in "yz"] == [[1] * N] * 2


def test_parameters_without_default_are_given(runtime: Runtime, kernels: hg.Module) -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.ones(N, "float32"))
    a = g.param("a", "float32")
    g.kernel(kernels["scale"], 1, N, (x, a))
    g.kernel(kernels["scale"], 1, N, (x, 3.0))
    assert verify(g, runtime, params={"a": 2.0}).ok
    wanted = r"graph 'demo' has parameters without a default, 'a'; give params=\{'a': \.\.\.\}"
    with pytest.raises(hg.DeclarationError, match=wanted):
        verify(g, runtime)


def test_memory_ops_that_wait_for_another_node_leave_orders_out(runtime: Runtime) -> None:
    g = hg.Graph("demo")
    flag = g.device_array("flag", shape=2, dtype="int32")
    g.memory_ops([hg.write_value(flag[0], 1)], name="signal")
    g.memory_ops([hg.wait_value(flag[0], 1)], name="wait")
    report = verify(g, runtime)
    assert report.ok, str(report)
    assert any("'wait' waits" in line for line in report.left_out)


def test_a_child_that_waits_leaves_seeded_schedules_out(runtime: Runtime) -> None:
    g, inner = hg.Graph("demo"), hg.Graph("inner")
    flag, own = (graph.device_array("flag", shape=2, dtype="int32") for graph in (g, inner))
    inner.memory_ops([hg.wait_value(own[0], 1)], name="wait")
    g.memory_ops([hg.write_value(flag[0], 1)], name="signal")
    g.child(inner, {"flag": flag}, name="child")
    report = verify(g, runtime)
    assert report.ok, str(report)
    assert not any("seeded" in line for line in report.done if "'explicit'" in line)


def test_copies_of_a_module_variable_are_named_by_their_devices() -> None:
    module = hg.Module("__device__ int v[4];")
    g = hg.Graph("demo")
    g.memcpy(g.host_array("h", shape=4, dtype="int32"), module.symbol("v"))
    laboratory: Any = object.__new__(Laboratory)
    laboratory.workflow, laboratory.steps, laboratory.cells = g.workflow(), g.plan(target="amd:gfx942").steps, {}
    shared = SimpleNamespace(devices=(0, 2), symbol=lambda root, device: 4096 + device)
    laboratory._look(SimpleNamespace(levels=lambda workflow: (), shared=shared), {})
    cells = {name: cell.pointer for name, cell in laboratory.cells.items()}
    assert cells == {f"{module.name}:v": 4096, f"{module.name}:v on device 2": 4098}


def test_atomic_noise_within_the_tolerance_is_no_finding(runtime: Runtime) -> None:
    calls = iter(range(10**6))

    def noise(values: Any) -> None:
        values[0] = 1000.0 + next(calls) * 1e-9

    g = hg.Graph("demo")
    out, rest = (g.host_array(name, shape=N, dtype="float64") for name in ("out", "rest"))
    g.host(noise, args=(out,), writes=[out])
    g.host(_fill, args=(rest,), writes=[rest])
    assert not verify(g, runtime, audit=False).ok
    assert verify(g, runtime, audit=False, tolerance=1e-6).ok
    assert verify(g, runtime, audit=False, tolerance={"out": 1e-6}).ok
    assert not verify(g, runtime, audit=False, tolerance={"rest": 1e-6}).ok


def test_a_difference_beyond_the_tolerance_is_told_by_the_element_that_has_it(runtime: Runtime) -> None:
    calls = iter(range(10**6))

    def noise(values: Any, raw: Any) -> None:
        number = next(calls)
        values[0], values[5], values[9] = 1 + number * 1e-9, number, np.nan
        raw.view("u4")[:] = number * np.arange(4)

    g = hg.Graph("demo")
    out, raw = g.host_array("out", shape=N, dtype="float64"), g.host_array("raw", shape=4, dtype="V4")
    g.host(noise, args=(out, raw), writes=[out, raw], name="noise")
    (finding,) = verify(g, runtime, audit=False, tolerance=1e-6).findings
    assert set(finding.arrays) == {"out", "raw"}
    assert "out[5] is" in finding.message
    assert "(1 of 64 elements differ)" in finding.message


def _fill(values: Any) -> None:
    values[...] = 1


def test_a_node_that_differs_each_time_is_named_as_the_cause(runtime: Runtime, kernels: hg.Module) -> None:
    calls = iter(range(10**6))

    def noise(values: Any) -> None:
        values[0] = 1000.0 + next(calls) / 1024

    g = steps(kernels, edge=False)  # with a race beside it
    h, out = (g.host_array(name, shape=N, dtype="float32") for name in ("noisy", "copied"))
    d = g.device_array("d", shape=N, dtype="float32")
    g.host(noise, args=(h,), writes=[h], name="noise")
    g.memcpy(d, h, name="up", after=["noise"])
    g.kernel(kernels["scale"], 1, N, (d, 2.0), name="twice", after=["up"])
    g.memcpy(out, d, name="down", after=["twice"])
    for audit in (False, True):
        report = verify(g, runtime, audit=audit)
        (unstable,) = (finding for finding in report.findings if finding.kind == "unstable")
        assert unstable.nodes == ("noise",)
        assert set(unstable.arrays) <= {"noisy", "copied", "d"}
        assert "'noise' writes other values each time" in unstable.message
        assert "tolerance=" in unstable.hint
        others = {finding.kind: finding for finding in report.findings if finding is not unstable}
        assert set(others) <= {"order", "backend", "schedule"}
        assert others["order"].nodes == ("scale", "add")
        assert all(not {"noisy", "copied", "d"}.intersection(finding.arrays) for finding in others.values())


@pytest.mark.timeout(120)
def test_float_atomics_are_named_as_the_cause(runtime: Runtime) -> None:
    source = r"""
    extern "C" __global__ void total(float* sum, const float* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) atomicAdd(sum, x[i]);
    }
    extern "C" __global__ void minus(float* out, const float* sum) { out[threadIdx.x] = 1.0f - sum[0]; }
    """
    module = hg.Module(source)
    n = 1 << 18
    g = hg.Graph("dot")
    x = g.device_array("x", np.random.default_rng(1).random(n, dtype="float32"))
    total, out = g.device_array("total", shape=1, dtype="float32"), g.device_array("out", shape=64, dtype="float32")
    g.kernel(module["total"], n // 256, 256, (total, x, n), name="dot")
    g.kernel(module["minus"], 1, 64, (hg.writes(out), total), name="minus")
    report = verify(g, runtime, orders=3, repeats=3)
    if not any(finding.kind == "unstable" for finding in report.findings):
        pytest.skip("the blocks have nearly always added in the same order")
    assert {(finding.kind, finding.nodes) for finding in report.findings} == {("unstable", ("dot",))}
    assert verify(g, runtime, orders=3, repeats=3, tolerance=1e-2).ok


def test_a_node_that_differs_once_is_not_said_to_read_what_it_does_not() -> None:
    calls = 0

    for odd in range(1, 25):
        calls = 0

        def total(x: Any, out: Any, odd: int = odd) -> None:
            nonlocal calls
            calls += 1
            out[0] = x.sum() + (calls == odd)

        g = hg.Graph("once")
        x, out = g.host_array("x", np.arange(8, dtype="float32")), g.host_array("out", shape=1, dtype="float32")
        g.host_array("other", np.ones(4, "float32"))
        g.host(total, (x, out), reads=[x], writes=[out], name="total")
        report = verify(g, "cpu", orders=1, repeats=1)
        assert "undeclared read" not in {finding.kind for finding in report.findings}, odd


def _other() -> Runtime:
    """The CPU runtime under another name, as if it were a device's."""
    other = copy.copy(open_runtime("cpu"))
    other.name = "other"
    other.target = replace(other.target, on_host=False)
    return other


def test_backends_of_another_runtime_are_compared_with_the_cpu(kernels: hg.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    report = verify(steps(kernels), _other())
    assert report.ok, str(report)
    assert [line for line in report.done if "on other" in line] == [
        f"backend {name} on other 5 times" + (" and 25 seeded schedules" if "explicit" in name else "")
        for name in ("'explicit'", "'explicit' with batches", "'capture'", "'streams'")
    ]

    monkeypatch.setenv("HIPGRAPHDSL_RUNTIME", "recorder")  # computes nothing, so that everything differs from the CPU
    report = verify(steps(kernels), orders=2, repeats=1)
    assert {finding.kind for finding in report.findings} == {"backend"}
    assert all("on recorder" in finding.message and "tolerance=" in finding.hint for finding in report.findings)
    assert report.findings[0].nodes == ("in",)
    assert report.target.startswith("cpu")


FUSED = 'extern "C" __global__ void axpy(float* y, const float* x) { y[threadIdx.x] = 1.1f * x[threadIdx.x] + y[threadIdx.x]; }'


@pytest.mark.parametrize(("constant", "named"), [("1.1f", True), ("1.2f", False)])
def test_fused_operations_are_named_where_results_are_equal_without_them(constant: str, named: bool, runtime: Runtime) -> None:
    """The other runtime's compiler contracts by default, as those of GPUs do, and in one case computes something else too."""
    other: Any = _other()

    def compiled(source: str, names: Any, symbols: Any = (), options: Any = (), *, name: str = "module") -> Any:
        return runtime.rtc_compile(source.replace("1.1f", constant), names, symbols, ("-ffp-contract=fast", *options), name=name)

    other.rtc_compile = compiled
    values = np.random.default_rng(1).standard_normal((2, N)).astype("float32")
    g = hg.Graph("axpy")
    y, x = g.device_array("y", values[0]), g.device_array("x", values[1])
    g.kernel(hg.Module(FUSED)["axpy"], 1, N, (y, x), name="node")
    report = verify(g, other, ("explicit",), orders=1, repeats=1)
    hints = [finding.hint for finding in report.findings if finding.kind == "backend"]
    if not hints and "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU fuses nothing")
    assert hints, str(report)
    assert all(("options=['-ffp-contract=off']" in hint) == named and "tolerance=1e-6" in hint for hint in hints), hints


def test_what_the_cpu_cannot_run_is_proved_on_the_runtime_itself(
    runtime: Runtime, kernels: hg.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    unavailable = hg.RuntimeUnavailable("runtime 'cpu' needs a compiler", runtime="cpu", missing="compiler")

    def opened(name: Any, device: int = 0) -> Any:
        if name == "cpu":
            raise unavailable
        return name

    monkeypatch.setattr(proof, "opened_runtime", opened)
    report = verify(steps(kernels), _other(), orders=2, repeats=1)
    assert report.ok, str(report)
    assert report.left_out == (f"the proof on the CPU, so that it was done on other: {unavailable}",)
    assert any("topological orders" in line for line in report.done)


def test_counts_are_singular_where_there_is_one(runtime: Runtime, kernels: hg.Module) -> None:
    report = verify(steps(kernels), runtime, ("explicit",), orders=1, repeats=1, seed=3)
    assert "1 topological order, one node at a time, seed 3" in report.done
    assert "backend 'explicit' 1 time and 2 seeded schedules" in report.done


# -- missing edges -----------------------------------------------------------------------------------------------------


def test_missing_edge_is_named_with_both_nodes_and_the_seed(runtime: Runtime, kernels: hg.Module) -> None:
    report = verify(steps(kernels, edge=False), runtime, seed=5)
    finding = next(f for f in report.findings if f.kind == "order")
    assert finding.nodes == ("scale", "add")
    assert set(finding.arrays) == {"y", "out"}
    assert finding.hint == "add after=['scale'] to 'add'"
    assert finding.seed is not None
    assert not verify(steps(kernels, edge=False), runtime, (), orders=1, seed=finding.seed).ok


def test_each_missing_edge_is_named(runtime: Runtime, kernels: hg.Module) -> None:
    g = hg.Graph("demo", infer=False)
    arrays = [g.device_array(f"x{i}", np.full(N, i + 1, "float32")) for i in range(4)]
    for i, x in enumerate(arrays):
        g.kernel(kernels["scale"], 1, N, (x, 2.0), name=f"scale_{i}")
        g.kernel(kernels["add"], 1, N, (arrays[0], x), name=f"add_{i}", after=["scale_0"] if i == 1 else [])
    named = {f.nodes for f in verify(g, runtime, ()).findings if f.kind == "order"}
    # Kernel scale_1 and add_1 do not commute, add_2 needs scale_0 and scale_2, and so on.
    assert {("scale_1", "add_1"), ("scale_0", "add_2"), ("scale_2", "add_2"), ("scale_3", "add_3")} <= named


def test_topological_orders_respect_edges_and_differ() -> None:
    deps = [(), (), (0,), (0, 1), (2,), (), (5,)]
    orders = {topological_order(deps, seed) for seed in range(20)}
    for order in orders:
        assert sorted(order) == list(range(len(deps)))
        assert all(order.index(d) < order.index(i) for i, sources in enumerate(deps) for d in sources)
    assert len(orders) > 10
    assert topological_order(deps, 0) == (5, 6, 1, 0, 3, 2, 4)


# -- graph memory ------------------------------------------------------------------------------------------------------


def test_read_of_fresh_memory_names_the_node(runtime: Runtime, kernels: hg.Module) -> None:
    g = hg.Graph("demo")
    x = g.device_array("x", np.ones(N, "float32"))
    y = g.alloc("y", N, "float32")
    g.memset(y[:32], 0.0, name="clear_half")
    g.kernel(kernels["add"], 1, N, (y, x), name="add")
    g.free(y)
    report = verify(g, runtime, sanitize=False)
    finding = next(f for f in report.findings if f.kind == "uninitialised")
    assert finding.nodes == ("add",)
    assert finding.arrays == ("x",)


def test_use_of_memory_outside_its_life_fails_in_some_order(runtime: Runtime, kernels: hg.Module) -> None:
    g = hg.Graph("demo", infer=False)
    out = g.host_array("out", shape=N, dtype="float32")
    y = g.alloc("y", N, "float32")
    g.memset(y, 1.0, name="clear", after=[y])
    g.memcpy(out, y, name="save", after=["clear"])
    g.free(y, name="drop", after=["clear"])
    finding = next(f for f in verify(g, runtime, ()).findings if f.kind == "order")
    assert finding.nodes == ("save", "drop")


def test_graph_memory_that_nothing_frees_is_no_finding(runtime: Runtime) -> None:
    g = hg.Graph("demo")
    y, out = g.alloc("y", N, "float32"), g.host_array("out", shape=N, dtype="float32")
    g.memset(y, 1.0)
    g.memcpy(out, y)
    report = verify(g, runtime)
    assert report.ok, str(report)


# -- the access audit --------------------------------------------------------------------------------------------------


def audit_of(runtime: Runtime, make: Any) -> VerifyReport:
    g = hg.Graph("demo")
    x, y = (g.device_array(name, np.arange(1, N + 1, dtype="float32")) for name in "xy")
    make(g, x, y)
    return verify(g, runtime, (), orders=0)


def test_write_declared_as_read_is_named(runtime: Runtime, kernels: hg.Module) -> None:
    report = audit_of(runtime, lambda g, x, y: g.kernel(kernels["add"], 1, N, (x, hg.reads(y)), name="add"))
    assert [(f.kind, f.nodes, f.arrays) for f in report.findings] == [("undeclared write", ("add",), ("y",))]
    assert report.findings[0].hint == "declare the write: hg.writes(y) or hg.updates(y) in args"


def test_read_declared_as_write_is_named(runtime: Runtime, kernels: hg.Module) -> None:
    report = audit_of(runtime, lambda g, x, y: g.kernel(kernels["add"], 1, N, (x, hg.writes(y)), name="add"))
    assert [(f.kind, f.nodes, f.arrays) for f in report.findings] == [("undeclared read", ("add",), ("y",))]


def test_write_past_the_declared_view_is_named_with_its_bytes(runtime: Runtime, kernels: hg.Module) -> None:
    report = audit_of(runtime, lambda g, x, y: g.kernel(kernels["beyond"], 1, 32, (y[:32],), name="beyond"))
    (finding,) = report.findings
    assert finding.kind == "undeclared write"
    assert "'y' bytes 128..160" in finding.message


def test_declared_write_of_a_part_is_no_read(runtime: Runtime, kernels: hg.Module) -> None:
    assert audit_of(runtime, lambda g, x, y: g.kernel(kernels["half"], 1, N, (hg.writes(y),))).ok


def test_callback_that_reads_more_than_it_says_is_named(runtime: Runtime) -> None:
    def sum_up(total: Any, values: Any) -> None:
        total[0] = values.sum()

    g = hg.Graph("demo")
    values = g.host_array("values", np.arange(N, dtype="float64"))
    total = g.host_array("total", shape=1, dtype="float64")
    g.host(sum_up, args=(total, values), writes=[total], name="sum_up")
    (finding,) = verify(g, runtime, (), orders=0).findings
    assert (finding.kind, finding.nodes, finding.arrays) == ("undeclared read", ("sum_up",), ("values",))
    assert finding.hint == "declare the read: reads=[values]"


def test_captured_function_is_audited(runtime: Runtime) -> None:
    def issue(stream: Any, x: Any, y: Any) -> None:
        stream.runtime.memcpy_async(y.ptr, x.ptr, x.nbytes, 4, int(stream))

    report = audit_of(runtime, lambda g, x, y: (g.memset(x, 7.0), g.captured(issue, args=(x, y), reads=[x], name="copy")))
    assert [(f.kind, f.nodes, f.arrays) for f in report.findings] == [("undeclared write", ("copy",), ("y",))]


def test_eager_node_that_touches_more_than_it_says_is_named(runtime: Runtime) -> None:
    """Through a pointer that it kept, and by an argument that it says it only reads."""
    g = hg.Graph("demo")
    x, y = (g.device_array(name, np.arange(1, N + 1, dtype="int32")) for name in "xy")
    h = g.host_array("h", np.zeros(N, "int32"))
    kept: list[Any] = []

    def keep(stream: Any, y: Any) -> None:
        kept[:] = [y.ptr]
        stream.runtime.memset_async(Fill2D(y.ptr, 4, 5, N), int(stream))

    def stray(stream: Any, x: Any, h: Any) -> None:
        h[:] = 7
        stream.runtime.memcpy_async(kept[0], x.ptr, 16, MemcpyKind.DEFAULT, int(stream))

    g.eager(keep, (y,), writes=[y], name="keep")
    g.eager(stray, (hg.reads(x), h), reads=[x], writes=[h], name="stray", after=["keep"])
    report = verify(g, runtime)
    assert [(f.kind, f.nodes, f.arrays) for f in report.findings] == [("undeclared write", ("stray",), ("y",))]

    g = hg.Graph("demo")
    x, h = g.device_array("x", np.arange(1, N + 1, dtype="int32")), g.host_array("h", np.ones(N, "int32"))

    def change(stream: Any, x: Any) -> None:
        stream.runtime.memcpy_async(x.ptr + 64, x.ptr, 64, MemcpyKind.DEFAULT, int(stream))

    def sum_up(stream: Any, h: Any, total: Any) -> None:
        total[0] = h.sum()

    g.eager(change, (x,), reads=[x], name="change")
    g.eager(sum_up, (h, g.host_array("total", np.zeros(1, "int32"))), writes=[g.arrays["total"]], name="sum_up")
    found = verify(g, runtime, backends=()).findings
    assert {(f.kind, f.nodes, f.arrays) for f in found} == {
        ("undeclared write", ("change",), ("x",)),
        ("undeclared read", ("sum_up",), ("h",)),
    }


def test_eager_node_that_does_not_write_what_it_says_is_named(runtime: Runtime) -> None:
    """What may keep its value is said to be read too, and in a loop one pass that writes is enough."""
    g = hg.Graph("demo")
    h, k, word = (g.host_array(name, np.ones(size, "int32")) for name, size in (("h", N), ("k", N), ("word", 1)))
    body = hg.Graph("body")
    last, n = body.host_array("last", shape=N, dtype="int32"), body.host_array("n", shape=1, dtype="int32")

    def at_the_end(stream: Any, last: Any, n: Any) -> None:
        n -= 1
        if not n[0]:
            last[:] = 3

    body.eager(at_the_end, (last, n), reads=[n], writes=[last, n], name="pass")
    g.eager(lambda stream, h, k: None, (h, k), reads=[k], writes=[h, k], name="idle")
    g.host(lambda word: word.fill(3), (word,), writes=[word], name="given")
    g.conditional("while", word, body, bind={"n": word, "last": g.host_array("last", np.zeros(N, "int32"))}, name="loop")
    (finding,) = verify(g, runtime).findings
    assert (finding.kind, finding.nodes, finding.arrays) == ("missing write", ("idle",), ("h",))
    assert "leaves every byte of it as it was" in finding.message


def test_verify_allocates_anew_in_each_pass_of_a_loop(runtime: Runtime) -> None:
    body = hg.Graph("body")
    n, kept = body.host_array("n", shape=1, dtype="int32"), body.alloc("kept", N, "int32")
    body.memset(kept, 5)
    body.memcpy(body.host_array("last", shape=N, dtype="int32"), kept)
    body.host(lambda n: n.__isub__(1), (n,), name="count")
    g = hg.Graph("demo")
    g.conditional("while", g.host_array("word", np.full(1, 3, "int32")), body, bind={"n": g.arrays["word"]}, name="loop")
    report = verify(g, runtime)
    assert report.ok, str(report)


def test_verify_runs_workflows_that_are_cut_in_every_way(runtime: Runtime) -> None:
    for name in ("eager", "eager_host", "conditional_any_body", "conditional_nested_by_host", "conditional_while_check_every"):
        report = verify(NODE_KINDS[name](hg.Graph("case"), runtime).graph, runtime)
        assert report.ok, str(report)
        assert not report.left_out, str(report)
        assert sum(line.startswith("backend") for line in report.done) == 3


def captured_in(fn: Any, how: str) -> hg.Graph:
    """Return a workflow with a captured node, alone, in a child or in a body that the device or the host decides on."""
    inner = hg.Graph("inner")
    x, y = (inner.device_array(name, np.arange(N, dtype="int32")) for name in "xy")
    inner.captured(fn, (x, y), reads=[x], writes=[y], name="copy")
    if how == "alone":
        return inner
    g = hg.Graph("outer")
    if how == "child":
        g.child(inner, name="in")
    else:
        decide: Any = how
        g.conditional("if", g.device_array("word", np.ones(1, "int32")), inner, decide=decide, name="in")
    return g


def _copied(stream: Any, x: Any, y: Any) -> None:
    stream.runtime.memcpy_async(y.ptr, x.ptr, y.nbytes, MemcpyKind.DEFAULT, int(stream))


@pytest.mark.parametrize("how", ["alone", "child", "device", "host"])
def test_captured_node_that_lost_its_work_is_named(runtime: Runtime, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A library that refuses to work while its stream captures, and tells nobody."""

    def library(stream: Any, x: Any, y: Any) -> None:
        if runtime.stream_get_capture_info(int(stream)).status is CaptureStatus.NONE:
            _copied(stream, x, y)

    name = {"alone": "copy", "child": "in/copy"}.get(how, "in/0/copy")
    report = verify(captured_in(library, how), runtime, orders=1)
    found = [finding for finding in report.findings if finding.kind == "missing write"]
    assert [finding.nodes for finding in found] == [(name,)]
    assert "its function recorded nothing" in found[0].message
    assert f"captured node {name!r} declares that it writes" in caplog.text
    caplog.clear()
    report = verify(captured_in(_copied, how), runtime, orders=1)
    assert report.ok, str(report)
    assert any("what 1 captured node recorded" in line for line in report.done)
    assert not caplog.text


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_captured_node_that_lost_a_part_of_its_work_is_named(runtime: Runtime, backend: str) -> None:
    g = hg.Graph("demo")
    x, y, z = (g.device_array(name, np.arange(N, dtype="int32")) for name in "xyz")

    def library(stream: Any, x: Any, y: Any, z: Any) -> None:
        _copied(stream, x, y)
        if runtime.stream_get_capture_info(int(stream)).status is CaptureStatus.NONE:
            stream.runtime.memset_async(Fill2D(z.ptr, 4, 5, N), int(stream))

    g.captured(library, (x, y, z), reads=[x], writes=[y, z], name="both")
    report = verify(g, runtime, [backend], orders=1)
    (finding,) = [finding for finding in report.findings if finding.kind == "missing write"]
    assert (finding.nodes, finding.arrays) == (("both",), ("z",))
    assert "recorded memcpy, which cannot write there" in finding.message


def test_captured_kernel_may_write_what_its_pointers_lead_to(runtime: Runtime, kernels: hg.Module) -> None:
    def launch(function: int, given: str) -> Any:
        def library(stream: Any, x: Any, y: Any) -> None:
            pointers = [ctypes.c_void_p({"x": x, "y": y}[name].ptr) for name in given]
            table = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
            runtime.module_launch_kernel(function, (1, 1, 1), (N, 1, 1), 0, int(stream), ctypes.addressof(table))

        return library

    with steps(kernels).compile(runtime, "serial") as exe:
        add = next(handle for handle, kernel in exe.known().functions.items() if kernel.name == "add")
        for given, wanted in (("xy", 0), ("xx", 1)):
            report = verify(captured_in(launch(add, given), "alone"), runtime, orders=1, audit=False, sanitize=False)
            assert sum(f.kind == "missing write" for f in report.findings) == wanted, str(report)


# -- references --------------------------------------------------------------------------------------------------------


def test_kernel_is_compared_with_its_reference(runtime: Runtime, kernels: hg.Module) -> None:
    def right(x: Any, y: Any) -> None:
        y += x

    def wrong(x: Any, y: Any) -> None:
        y[:] = y + 2 * x

    good, bad = (kernels["add"].with_reference(fn) for fn in (right, wrong))
    assert audit_of(runtime, lambda g, x, y: g.kernel(good, 1, 32, (x[8:40], y[:32]))).ok
    (finding,) = audit_of(runtime, lambda g, x, y: g.kernel(bad, 1, N, (x, y), name="add")).findings
    assert (finding.kind, finding.nodes) == ("reference", ("add",))
    assert "y[0] = 2.0, the reference of kernel 'add' 3.0" in finding.message

    def differs_late(x: Any, y: Any) -> None:
        y += x
        y[:3], y[7] = np.nan, 9

    late = kernels["add"].with_reference(differs_late)
    y_values = np.full(N, np.nan, "f4")
    y_values[3:] = 1
    g = hg.Graph("demo")
    x, y = g.device_array("x", np.ones(N, "f4")), g.device_array("y", y_values)
    g.kernel(late, 1, N, (x, y), name="add")
    (finding,) = verify(g, runtime, (), orders=0).findings
    assert "y[7] = 2.0, the reference of kernel 'add' 9.0 (1 of 64 elements differ)" in finding.message


# -- backends that are wrong -------------------------------------------------------------------------------------------


def forgetful(runtime: Runtime) -> Runtime:
    """Return a runtime that loses the edges into kernel nodes, as a platform's defect does."""

    class Forgetful(type(runtime)):  # type: ignore[misc]  # whichever class the runtime has
        def graph_add_kernel_node(self, graph: int, deps: Sequence[int], *rest: Any) -> int:
            return int(super().graph_add_kernel_node(graph, (), *rest))

    return Forgetful()


def test_backend_that_loses_edges_is_found_and_bisected(runtime: Runtime, kernels: hg.Module) -> None:
    # Without plain launches only seeded orders of one worker are left, which no machine's load can change.
    report = verify(steps(kernels), forgetful(runtime), ["explicit"], audit=False, repeats=0)
    finding, batched = report.findings
    assert (finding.kind, finding.backend, finding.nodes) == ("schedule", "explicit", ("scale",))
    assert (batched.kind, batched.backend, "and batches" in batched.message) == ("schedule", "explicit", True)
    assert "y" in finding.arrays
    assert f"set_schedule({finding.seed}, 1)" in str(finding.hint)
    again = verify(steps(kernels), forgetful(runtime), ["explicit"], audit=False, repeats=0, orders=1, seed=finding.seed or 0)
    assert (again.findings[0].message, again.findings[0].nodes) == (finding.message, finding.nodes)


def _unjoined(stream: Any, y: Any) -> None:
    runtime = stream.runtime
    runtime.memset_async(Fill2D(y.ptr, 1, 0, 4), int(stream))
    other, event = runtime.stream_create(), runtime.event_create(timing=False)
    runtime.event_record(event, int(stream))
    runtime.stream_wait_event(other, event)
    runtime.memset_async(Fill2D(y.ptr, 1, 0, 4), other)


@pytest.mark.parametrize("backends", [("explicit",), ("explicit", "capture", "streams")])
def test_a_backend_that_fails_to_build_is_a_failure(runtime: Runtime, backends: Any) -> None:
    g = hg.Graph("forks")
    g.captured(_unjoined, (g.device_array("y", shape=4, dtype="i4"),), name="fork")
    report = verify(g, runtime, backends, orders=1, repeats=1, audit=False, sanitize=False)
    assert [(f.kind, f.nodes, f.backend) for f in report.findings] == [
        ("failure", ("fork",), backend) for backend in backends if backend != "streams"
    ]
    assert not report.ok


def test_nothing_proved_is_a_failure(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: Any) -> Any:
        raise runtime._lacks("hipGraphInstantiate")

    g = hg.Graph("demo")
    g.memset(g.device_array("x", shape=4, dtype="i4"), 1)
    monkeypatch.setattr(runtime, "graph_instantiate", lacks)
    for backends, ok in ((("explicit", "capture"), False), (("explicit", "streams"), True), ((), True)):
        report = verify(g, runtime, backends, orders=1, repeats=1)
        assert report.ok is ok
        assert report.exit_code == (not ok)
        assert ["nothing was proved: none of the backends 'explicit', 'capture'" in str(f) for f in report.findings] == [True] * (
            not ok
        )
        assert [line.partition(":")[0] for line in report.left_out] == [f"backend '{b}'" for b in backends if b != "streams"]


def test_variables_have_their_values_back_before_each_launch(runtime: Runtime) -> None:
    module = hg.Module('__device__ int hits = 3;\nextern "C" __global__ void hit() { hits += 1; }', name="hits")
    g = hg.Graph("counts")
    inner = hg.Graph("inner")
    inner.memcpy(inner.param("to", "i4", shape=1), module.symbol("hits"))
    hit = g.kernel(module["hit"], 1, 1, (), name="hit")
    n, m = g.host_array("n", shape=1, dtype="i4"), g.host_array("m", shape=1, dtype="i4")
    read = g.memcpy(n, module.symbol("hits"), after=[hit])
    g.child(inner, bind={"to": m}, after=[read])
    report = verify(g, runtime, repeats=3)
    assert report.ok, str(report)
    assert not report.left_out


def test_a_backend_that_fails_at_the_first_launch_is_left_out(
    runtime: Runtime, kernels: hg.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*_: Any) -> Any:
        raise runtime._lacks("hipGraphInstantiate")

    g = hg.Graph("demo")
    g.kernel(kernels["scale"], 1, N, (g.device_array("x", np.ones(N, "float32")), g.param("a", "float32")), name="scale")
    monkeypatch.setattr(runtime, "graph_instantiate", lacks)
    report = verify(g, runtime, params={"a": 2.0}, orders=1, repeats=1)
    assert [(f.kind, f.backend) for f in report.findings] == []
    assert [line.partition(":")[0] for line in report.left_out] == ["backend 'explicit'", "backend 'capture'"]


def test_a_serial_run_that_fails_leaves_no_graph_memory_behind(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no such file")

    malloc, free = runtime.malloc, runtime.free
    live: dict[int, None] = {}

    def note_malloc(nbytes: int) -> int:
        pointer = malloc(nbytes)
        live[pointer] = None
        return pointer

    def note_free(pointer: int) -> None:
        del live[pointer]
        free(pointer)

    monkeypatch.setattr(runtime, "malloc", note_malloc)
    monkeypatch.setattr(runtime, "free", note_free)
    g = hg.Graph("demo")
    y, h = g.alloc("y", N, "float32"), g.host_array("h", shape=N, dtype="float32")
    g.memset(y, 1.0, name="fill")
    g.memcpy(h, y, name="out")
    g.host(fail, args=(h,), name="load")
    g.free(y, after=["load"])
    with pytest.raises(ValueError, match="load"):
        verify(g, runtime)
    assert not live


def test_the_report_says_how_many_launches_ran_before_one_differed_or_failed(
    runtime: Runtime, kernels: hg.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = verify(steps(kernels), open_runtime("recorder"), ["streams"], audit=False, orders=2, repeats=5)
    assert {finding.kind for finding in report.findings} == {"backend"}
    assert "backend 'streams' on recorder 1 time" in report.done

    launches = iter(range(1, 6))

    def launch(self: Trials, *_: Any) -> Any:
        if next(launches) == 3:
            raise hg.HipGraphError("lost")
        return self.reference

    monkeypatch.setattr(Trials, "_launch", launch)
    report = verify(steps(kernels), runtime, ["streams"], audit=False, orders=2, repeats=5)
    assert [finding.kind for finding in report.findings] == ["failure"]
    assert "backend 'streams' 3 times" in report.done


def test_reports_print_and_serialise(runtime: Runtime, kernels: hg.Module) -> None:
    report = verify(steps(kernels, edge=False), runtime, ())
    document = json.loads(report.to_json())
    assert document["ok"] is False
    assert document["findings"][0]["nodes"] == ["scale", "add"]
    assert "'scale' and 'add' are not ordered" in str(report)
    assert str(report.__rich__()) == str(report)
    assert report._repr_mimebundle_()["text/plain"] == str(report)


# -- what cannot be verified -------------------------------------------------------------------------------------------


def test_cycle_is_refused_with_the_report(runtime: Runtime) -> None:
    g = hg.Graph("demo")
    a, b = g.empty(name="a"), g.empty(name="b", after=["a"])
    g.order(b, a)
    with pytest.raises(hg.CheckError, match="a -> b -> a"):
        verify(g, runtime)


def test_callback_that_raises_is_raised_with_its_node(runtime: Runtime) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no such file")

    g = hg.Graph("demo")
    out = g.host_array("out", shape=N, dtype="float32")
    g.host(fail, args=(out,), name="load")
    with pytest.raises(ValueError, match="load"):
        verify(g, runtime)


def test_schedule_is_as_before_afterwards(runtime: Runtime, kernels: hg.Module) -> None:
    verify(steps(kernels), runtime)
    with steps(kernels).compile(runtime) as exe:
        exe.run()
        assert exe.read("out")[3] == 7.0


# -- the corpus --------------------------------------------------------------------------------------------------------

CORPUS = corpus_of_checks.corpus()


def test_corpus_holds_sixty_workflows_of_different_names() -> None:
    assert len(CORPUS) >= 60
    assert len({graph.name for graph in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("graph", CORPUS, ids=lambda graph: graph.name)
def test_correct_workflow_of_the_corpus_is_not_blamed(graph: hg.Graph, runtime: Runtime) -> None:
    for target in (None, "cpu", "amd:gfx942", "nvidia:sm_90"):
        report = graph.check(target)
        assert not report.errors, str(report)
        assert not report.warnings, str(report)
    found = verify(graph, runtime, orders=5, repeats=1)
    assert found.ok, str(found)


@pytest.mark.parametrize("graph", CORPUS, ids=lambda graph: graph.name)
def test_harmful_mutants_are_found(graph: hg.Graph, runtime: Runtime) -> None:
    require_found((same[0] for same in _by_kind(graph.workflow())), runtime)


@pytest.mark.slow
@pytest.mark.parametrize("graph", CORPUS, ids=lambda graph: graph.name)
def test_more_harmful_mutants_are_found(graph: hg.Graph, runtime: Runtime) -> None:
    require_found((same[len(same) // 2] for same in _by_kind(graph.workflow()) if len(same) > 2), runtime)


def _by_kind(workflow: Any) -> Iterable[list[corpus_of_checks.Mutant]]:
    made: dict[str, list[corpus_of_checks.Mutant]] = {}
    for mutant in corpus_of_checks.mutants(workflow):
        made.setdefault(mutant.kind, []).append(mutant)
    return made.values()


def require_found(mutants: Iterable[corpus_of_checks.Mutant], runtime: Runtime) -> None:
    result = corpus_of_checks.Result()
    for mutant in mutants:
        corpus_of_checks.judge(mutant, runtime, result, orders=200)
    assert not result.not_found


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_not_blamed(path: Path) -> None:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    report = example.build().check()
    assert not report.errors, str(report)
    assert not report.warnings, str(report)


def test_padding_of_structs_in_host_memory_is_no_difference(runtime: Runtime) -> None:
    dtype = np.dtype([("tag", "i1"), ("value", "f8")], align=True)
    module = hg.Module(
        "struct Item { char tag; double value; };\n"
        'extern "C" __global__ void grow(Item* items) { items[threadIdx.x].value += 1; }\n',
        structs={"Item": dtype},
    )
    g = hg.Graph("padded")
    host, out = g.host_array("host", np.zeros(20, dtype)), g.host_array("out", shape=20, dtype=dtype)
    items = g.device_array("items", shape=20, dtype=dtype)
    g.memcpy(items, host)
    g.kernel(module["grow"], 1, 20, (items,))
    g.memcpy(out, items)
    assert verify(g, runtime).findings == ()
