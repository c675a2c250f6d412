"""Programmatic edges: which kernels may be launched while those before them end, and the calls that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.backends.program import GraphProgram
from hipgraphdsl.parts.merge.waiting import waiting_source, waits
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime

H200 = "nvidia:sm_90@13.0"
SOURCE = r"""
template <typename T> __global__ void scale(T *x, T k) { x[threadIdx.x] *= k; }
namespace part {
extern "C" __global__ void __launch_bounds__(64) shift(float *x, const float *y)
{ // adds
  if (y[0] == 0) return;
  x[threadIdx.x] += y[threadIdx.x];
}
}
__device__ float helper(float x) { return x; }
"""
WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'


def chain(length: int = 4) -> hg.Graph:
    """Kernels that wait for each other, behind a memset and before a copy."""
    module = hg.Module(SOURCE, name="programmatic")
    g = hg.Graph("chain")
    x, y = g.device_array("x", shape=64, dtype="float32"), g.device_array("y", np.ones(64, "f4"))
    out = g.host_array("out", shape=64, dtype="float32")
    g.memset(x, 0, name="clear")
    for k in range(length):
        g.kernel(module["shift"] if k % 2 else module["scale<float>"], 1, 64, (x, y if k % 2 else 2.0), name=f"k{k}")
    g.memcpy(out, x, name="back")
    return g


def calls(exe: hg.Executable, api: str) -> list[Any]:
    runtime = exe.runtime
    assert isinstance(runtime, RecorderRuntime)
    return [call.args for call in runtime.calls if call.api == api]


def program(exe: hg.Executable) -> GraphProgram:
    made = exe._own.program
    assert isinstance(made, GraphProgram)
    return made


def test_the_wait_is_the_first_statement_of_each_kernel_and_lines_stay() -> None:
    module = hg.Module(SOURCE, name="programmatic")
    made = waiting_source(module)
    assert made.count(WAIT) == 2
    assert made.replace(f" {WAIT}", "") == SOURCE
    assert f"void scale(T *x, T k) {{ {WAIT} x[threadIdx.x]" in made
    assert f"\n{{ {WAIT} // adds\n" in made
    assert waits(module["shift"])
    assert waits(module["scale<float>"])


@pytest.mark.parametrize(
    "source",
    [
        "#define BODY { x[0] = 1; }\n__global__ void k(float *x) BODY\n",
        "#define volatile\n__global__ void k(float *x) { x[0] = 1; }\n",
        "__global__ void k(float *x)\n#if __CUDA_ARCH__ >= 900\n{ x[0] = 1; }\n#else\n{ x[0] = 2; }\n#endif\n",
    ],
    ids=["a body in a macro", "a macro", "two bodies"],
)
def test_a_kernel_whose_body_is_in_doubt_does_not_count_as_waiting(source: str) -> None:
    assert not waits(hg.Module(source, name="doubt")["k"])


def test_kernels_behind_kernels_are_early_on_targets_that_can() -> None:
    plan = chain().plan(target=H200)
    assert [plan.steps[i].name for i in plan.programmatic] == ["k1", "k2", "k3"]
    assert "3 kernels are launched while what is before ends, and wait by themselves (programmatic edges)." in plan.explain()
    for other in ("nvidia:sm_80", "nvidia:sm_90@12.2", "amd:gfx942", "cpu"):
        assert chain().plan(target=other).programmatic == ()


@pytest.mark.parametrize(
    "change", [{"cooperative": True}, {"priority": -1}, {"cluster": (1, 1, 1)}], ids=lambda change: next(iter(change))
)
@pytest.mark.parametrize("end", ["before", "behind"])
def test_launches_with_attributes_keep_plain_edges(change: dict[str, Any], end: str) -> None:
    module = hg.Module(SOURCE, name="programmatic")
    g = hg.Graph("attributes")
    x = g.device_array("x", shape=64, dtype="float32")
    for name in ("before", "behind"):
        g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name=name, **(change if name == end else {}))
    assert g.plan(target=H200).programmatic == ()


def test_one_follower_of_a_kernel_is_early() -> None:
    kernel = hg.Module(SOURCE, name="programmatic")["shift"]
    g = hg.Graph("diamond")
    x, y, z = (g.device_array(name, shape=64, dtype="float32") for name in "xyz")
    g.kernel(kernel, 1, 64, (x, x), name="fork")
    for name, array in (("left", y), ("right", z)):
        g.kernel(kernel, 1, 64, (array, x), name=name)
    g.kernel(kernel, 1, 64, (y, z), name="join")
    plan = g.plan(target=H200, lanes=None)
    early = {plan.steps[i].name for i in plan.programmatic}
    assert early == {"join", next(s.name for s in plan.steps if s.name in ("left", "right") and s.lane == plan.steps[0].lane)}


def test_a_kernel_behind_a_copy_keeps_plain_edges_to_all_before() -> None:
    module = hg.Module(SOURCE, name="programmatic")
    g = hg.Graph("mixed")
    x, y = (g.device_array(name, shape=64, dtype="float32") for name in "xy")
    g.memset(y, 0, name="clear")
    g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name="scale")
    g.kernel(module["shift"], 1, 64, (x, y), name="both")
    assert g.plan(target=H200).programmatic == ()


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_one_call_makes_the_edges_of_a_graph_programmatic(backend: Any) -> None:
    runtime = RecorderRuntime(target=H200)
    with chain().compile(runtime, backend) as exe:
        nodes = dict(zip((step.name for step in exe.plan.steps), program(exe).nodes))
        ((graph, sources, targets),) = calls(exe, "cuGraphAddDependencies_v2")
        assert graph == program(exe).graph
        assert list(zip(sources, targets)) == [(nodes[f"k{k}"], nodes[f"k{k + 1}"]) for k in range(3)]
        assert all(WAIT in source for source, *_ in calls(exe, "hiprtcCompileProgram") if "scale" in source)


@pytest.mark.parametrize(
    "options",
    [
        {"plan": hg.PlanOptions(programmatic=False)},
        {"debug": hg.DebugOptions(watch=True)},
        {"backend": "streams"},
        {"backend": "serial"},
    ],
    ids=str,
)
def test_no_edge_is_programmatic_where_that_is_not_asked_for(options: dict[str, Any]) -> None:
    with chain().compile(RecorderRuntime(target=H200), **options) as exe:
        exe.launch()
        assert exe.plan.programmatic == ()
        assert not calls(exe, "cuGraphAddDependencies_v2")


def test_a_node_that_is_built_disabled_has_plain_edges() -> None:
    runtime = RecorderRuntime(target=H200)
    runtime.target = replace(runtime.target, quirks=frozenset({"memset_enable_fails"}))
    with chain().compile(runtime) as exe:
        exe.disable("k1")
        assert len(program(exe).programmatic) == 3
        exe.disable("clear")  # for which the graph is built anew
        made = program(exe)
        assert [made.plan.steps[i].name for i in made.programmatic] == ["k3"]


def scaled(last: str) -> hg.Graph:
    """Two launches, the second of this kernel, whose second body is in doubt."""
    source = "__global__ void sure(float *x, float k) { x[0] = k; }\n"
    source += "__global__ void doubt(float *x, float k)\n#if __CUDA_ARCH__ >= 900\n{ x[0] = k; }\n#else\n{ x[1] = k; }\n#endif\n"
    module = hg.Module(source, name="scaled")
    g = hg.Graph("scaled")
    x = g.device_array("x", shape=64, dtype="float32")
    g.kernel(module["sure"], 1, 64, (hg.updates(x), 2.0), name="first")
    g.kernel(module[last], 1, 64, (hg.updates(x), 2.0), name="second")
    return g


def test_a_kernel_that_does_not_wait_gets_a_new_graph_with_plain_edges() -> None:
    with scaled("sure").compile(RecorderRuntime(target=H200)) as exe:
        assert program(exe).programmatic == {1}
        exe.update(scaled("sure"))
        assert len(calls(exe, "hipGraphInstantiateWithFlags")) == 1
        exe.update(scaled("doubt"))
        assert len(calls(exe, "hipGraphInstantiateWithFlags")) == 2
        assert program(exe).programmatic == frozenset()
        assert len(calls(exe, "cuGraphAddDependencies_v2")) == 1


def segments(declare: Callable[[hg.Graph, Any, hg.Module], None]) -> hg.Graph:
    g = hg.Graph("cut")
    module = hg.Module(SOURCE, name="programmatic")
    x = g.device_array("x", shape=64, dtype="float32")
    declare(g, x, module)
    return g


def test_an_eager_step_between_two_kernels_parts_them() -> None:
    def declare(g: hg.Graph, x: Any, module: hg.Module) -> None:
        g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name="a")
        g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name="b")
        g.eager(lambda stream, x: None, [hg.updates(x)], name="step")
        g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name="c")
        g.kernel(module["scale<float>"], 1, 64, (x, 2.0), name="d")

    plan = segments(declare).plan(target=H200)
    assert [plan.steps[i].name for i in plan.programmatic] == ["b", "d"]
    assert plan.cut is not None
    assert plan.cut.plan.programmatic == ()
    parts = [step.child for step in plan.cut.plan.steps if step.child is not None]
    assert [[part.steps[i].name for i in part.programmatic] for part in parts] == [["b"], ["d"]]
    runtime = RecorderRuntime(target=H200)
    with segments(declare).compile(runtime) as exe:
        assert len(calls(exe, "cuGraphAddDependencies_v2")) == 2


def allocating() -> hg.Graph:
    kernel = hg.Module(SOURCE, name="programmatic")["shift"]
    g = hg.Graph("allocating")
    x, t = g.device_array("x", shape=64, dtype="float32"), g.alloc("t", 64, "float32")
    for name in ("a", "b"):
        g.kernel(kernel, 1, 64, (t, x), name=name)
    g.free(t)
    return g


def test_graphs_with_alloc_nodes_keep_plain_edges() -> None:
    """CUDA removes no edge from such a graph."""
    with allocating().compile(RecorderRuntime(target=H200), batch=False) as exe:
        assert exe.plan.programmatic == ()
        assert not calls(exe, "cuGraphAddDependencies_v2")


def test_edges_stay_plain_where_the_driver_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a function records may hold nodes that no plan knows of."""
    runtime = RecorderRuntime(target=H200)
    monkeypatch.setattr(runtime, "graph_make_programmatic", lambda *_: False, raising=False)
    with chain().compile(runtime, batch=False) as exe:
        assert program(exe).programmatic == frozenset()
        exe.launch()
