"""Plans taken over from a living plan of the same shape equal plans made afresh."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipgraphdsl as hg
from hipgraphdsl.arrays import AllocArray
from hipgraphdsl.backends.operations import Alloc, Free, Launch, RunChild
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.plan import reuse
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.plan.steps import Plan

KERNELS = hg.Module(
    r"""
extern "C" __global__ void one(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void two(const float* x, float* y, float a) { y[threadIdx.x] += a * x[threadIdx.x]; }
"""
)
TARGETS = ("cpu", "nvidia:sm_90", "nvidia:sm_80", "amd:gfx90a", "amd:gfx942")
CHANGES = (
    "nothing",
    "numbers",
    "arrays",
    "grid",
    "grids",
    "large",
    "block",
    "kernel",
    "edge",
    "shared",
    "attribute",
    "copy",
    "name",
    "device",
    "argument",
    "alloc",
    "child",
)


def graph_of(seed: int, change: str = "nothing") -> hg.Graph:
    """Return a random graph; the same seed gives the same graph but for one change of one or of all nodes."""
    rng, at = random.Random(seed), random.Random(seed + 1)
    count = rng.randint(1, 24)
    changed = at.randrange(count)
    g = hg.Graph("g")
    size = 1024 if change == "arrays" else 512
    x = [
        g.device_array(f"x{i}", shape=size, dtype="float32", device=1 if change == "device" and i == 0 else None)
        for i in range(5)
    ]
    out = g.host_array("out", shape=1024, dtype="float32")
    scale = g.param("scale", "float32", default=2.0)
    blocks = rng.choice((1, 1, 4, 9000))
    blocks *= {"grids": 3, "large": 3000}.get(change, 1)
    for i in range(count):
        here = i == changed
        name = f"n{i}{'_' * (here and change == 'name')}"
        after = [f"n{i - 1}"] if here and i and change == "edge" else []
        match rng.choice(("one", "one", "two", "fill", "copy", "empty")):
            case "one" | "two" as what:
                source: Any
                source, target = rng.sample(x, 2)
                grid = blocks + (here and change == "grid")
                block = 64 if here and change == "block" else 32
                if here and change == "kernel":
                    what = "two" if what == "one" else "one"
                number: Any = (i + 10 if change == "numbers" else i + 1) if what == "one" else rng.choice((0.5, scale))
                number = 1.5 if change == "numbers" and what == "two" and number == 0.5 else number
                options: dict[str, Any] = {"shared_bytes": 64} if here and change == "shared" else {}
                options |= {"priority": 1} if here and change == "attribute" else {}
                if here and change == "argument":
                    source, number = hg.reads(source), scale if what == "two" else number
                g.kernel(KERNELS[what], grid, block, (source, target, number), name=name, after=after, **options)
            case "fill":
                g.memset(rng.choice(x), i + (change == "numbers"), name=name, after=after)
            case "copy":
                length = 512 if here and change == "copy" else 4
                source = rng.choice(x)
                g.memcpy(out[i * 4 : i * 4 + length] if length == 4 else out[:512], source[:length], name=name, after=after)
            case _:
                g.empty(name=name, after=[*after, *(f"n{k}" for k in range(max(0, i - 2), i) if change != "name")])
        if here and change == "alloc":
            t = g.alloc(f"t{i}", shape=512, dtype="float32", name=f"a{i}", after=[name])
            g.memset(t, 0, name=f"u{i}")
            g.free(t, name=f"f{i}")
        if here and change == "child":
            inner = hg.Graph("inner")
            inner.memset(inner.device_array("z", shape=8, dtype="float32"), 1, name="within")
            g.child(inner, name=f"c{i}", after=[name])
    return g


def shown(plan: Plan, workflow: Any) -> list[Any]:
    """Return all fields of a plan; nodes of the workflow by position, others by name."""
    place = {id(node): i for i, node in enumerate(workflow.nodes)}
    steps = [step._replace(node=place.get(id(step.node), step.node.name)) for step in plan.steps]  # type: ignore[arg-type]
    others = [getattr(plan, field.name) for field in fields(plan) if field.name not in ("workflow", "steps", "shape")]
    derived = [plan.lanes, plan.index, plan.successors, plan.edges, plan.depth, plan.has_allocs, plan.runs, str(plan)]
    return [plan.workflow is workflow, steps, others, derived]


@given(
    seed=st.integers(0, 10_000),
    change=st.sampled_from(CHANGES),
    target=st.sampled_from(TARGETS),
    options=st.sampled_from((hg.PlanOptions(), hg.PlanOptions(batch=True), hg.PlanOptions(lanes=2), hg.PlanOptions(join=False))),
)
@settings(max_examples=300, deadline=None)
def test_a_plan_that_is_taken_over_equals_a_fresh_one(seed: int, change: str, target: str, options: Any) -> None:
    old, new = graph_of(seed), graph_of(seed, change)
    reuse._planned.clear()
    fresh = shown(new.plan(target=target, options=options), new.workflow())
    reuse._planned.clear()
    living = old.plan(target=target, options=options)
    _ = living.lanes, living.index, living.successors, living.edges, living.depth, living.has_allocs, living.runs
    assert shown(new.plan(target=target, options=options), new.workflow()) == fresh


def lowered(exe: hg.Executable) -> list[Any]:
    """Return the operations of a program with their edges; memory by its array and offset, functions by their order."""
    own, program = exe._own, exe._program
    assert program is not None
    functions: dict[int, int] = {}
    made_by_graph = {own.scope.addresses[a]: a.name for a in exe.workflow.arrays.values() if isinstance(a, AllocArray)}

    def place(value: Any) -> Any:
        if value in made_by_graph:
            return made_by_graph[value]
        found = own.memory.holding(value) if type(value) is int and value > 1 << 20 else None
        return value if found is None else (found[0], value - found[1].pointer)

    rows: list[Any] = []
    for operation, step in zip(program.operations, program.plan.steps):
        if isinstance(operation, Launch):
            function, *dims, packer, packed, attributes = operation
            values = [place(value) for value in packer.unpack(packed)]
            row: list[Any] = [functions.setdefault(function, len(functions)), dims, values, dict(attributes)]
        elif isinstance(operation, (Alloc, Free, RunChild)):
            row = []  # memory that the graph makes, and another program
        else:
            assert is_dataclass(operation)
            row = [place(getattr(operation, field.name)) for field in fields(operation)]
        rows.append((type(operation).__name__, step.name, step.deps, row))
    return rows


def temporaries(structure: int, sizes: int) -> hg.Graph:
    """Return a graph of random temporaries; the same structure has the same uses of them, whatever their sizes."""
    rng, of_size = random.Random(structure), random.Random(sizes)
    g = hg.Graph("g")
    x = g.device_array("x", shape=512, dtype="float32")
    live: list[Any] = []
    for i in range(rng.randint(3, 24)):
        if rng.random() < 0.6:
            live.append(g.alloc(f"t{i}", shape=of_size.choice((1, 8, 64, 65, 512, 4096)), dtype="float32"))
        used = rng.sample(live, min(len(live), rng.randint(0, 2)))
        g.kernel(KERNELS["one"], 1, 32, (used[0] if used else x, used[-1] if len(used) > 1 else x, 1), name=f"k{i}")
        if live and rng.random() < 0.5:
            g.free(live.pop(rng.randrange(len(live))), name=f"f{i}")
    return g


@given(structure=st.integers(0, 10_000), sizes=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), pack=st.booleans())
@settings(max_examples=200, deadline=None)
def test_memory_of_other_sizes_is_packed_as_if_there_were_no_other_plan(
    structure: int, sizes: tuple[int, int], pack: bool
) -> None:
    old, new = (temporaries(structure, each) for each in sizes)
    options = hg.PlanOptions(pack=pack)
    reuse._planned.clear()
    fresh = shown(new.plan(target="cpu", options=options), new.workflow())
    reuse._planned.clear()
    living = old.plan(target="cpu", options=options)
    made = new.plan(target="cpu", options=options)
    assert shown(made, new.workflow()) == fresh
    shares = [None if plan.packing is None else plan.packing.nodes for plan in (living, made)]
    packs = pack and any(node.kind == "alloc" for node in made.workflow.nodes)
    assert (made.shape is not None) is (not packs or shares[0] == shares[1] is not None), "the same arrays share memory"


@pytest.mark.parametrize("runtime", ["amd:gfx942", "nvidia:sm_90", "cpu"])
@given(seed=st.integers(0, 10_000), change=st.sampled_from(CHANGES))
@settings(max_examples=60, deadline=None)
def test_a_graph_like_one_that_was_compiled_is_lowered_as_if_there_were_none(runtime: str, seed: int, change: str) -> None:
    def made(graph: hg.Graph) -> hg.Executable:
        opened: Any = runtime if runtime == "cpu" else RecorderRuntime(target=runtime)
        return graph.compile(opened, check=False)

    if runtime == "cpu" and change == "device":
        return  # it has one
    old, new = graph_of(seed), graph_of(seed, change)
    reuse._planned.clear()
    with made(new) as exe:
        fresh = lowered(exe)
    reuse._planned.clear()
    with made(old), made(new) as exe:
        assert lowered(exe) == fresh


def test_the_steps_of_a_plan_that_is_taken_over_are_made_when_they_are_read() -> None:
    with graph_of(3).compile("cpu", check=False), graph_of(3, "numbers").compile("cpu", check=False) as exe:
        assert exe.plan.shape is not None
        node = next(node for node in exe.workflow.nodes if isinstance(node, hg.KernelNode))
        exe.set(node, grid=2)
        changed = exe.plan.step(exe.plan.index[node.name]).node
        assert isinstance(changed, hg.KernelNode)
        assert changed.grid == (2, 1, 1)
        assert [step.node for step in exe.plan.steps] == [*exe.plan.nodes]
        exe.run()


@pytest.mark.parametrize("change", ["nothing", "numbers", "arrays", "grid"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_living_plan_is_taken_over(change: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = reuse.taken_over

    def noted(*args: Any) -> Plan | None:
        taken.append(take(*args))
        return taken[-1]

    monkeypatch.setattr(reuse, "taken_over", noted)
    old, new = graph_of(7), graph_of(7, change)
    living = old.plan(target=target)
    made = new.plan(target=target)
    other = change == "grid" and hg.Target.named(target).costs.batched_us > 0  # where grids decide what is merged
    assert (made is taken[-1]) is not other
    del living
    assert new.plan(target=target) is made, "the plan that was made of it lives"
    again = graph_of(7, change).plan(target=target)
    assert again is taken[-1]
    del made, again
    taken.clear()
    assert new.plan(target=target) is not None
    assert taken == [None], "nobody has a plan of the shape any more"


def test_arrays_of_a_graph_are_not_kept_by_its_plan() -> None:
    g = hg.Graph("g")
    x = g.device_array("x", np.zeros(8, "float32"))
    g.memset(x, 0)
    living = g.plan(target="cpu")
    assert reuse._planned
    del living
    assert not any(plan.workflow is g.workflow() for plan in reuse._planned.values())


def launches_beside(changed: bool) -> hg.Graph:
    """Return independent launches: of one kernel, which are batched, or of two kernels with the same accesses."""
    g = hg.Graph("g")
    x = g.device_array("x", shape=32, dtype="float32")
    for i in range(64):
        g.kernel(
            FILLS["b" if changed and i % 2 else "a"], 1, 32, (x, g.device_array(f"y{i}", shape=32, dtype="float32")), name=f"n{i}"
        )
    return g


@functools.cache
def beside(*grids: int) -> hg.Graph:
    """Return layers of launches beside each other, with these grids in turn."""
    g = hg.Graph("g")
    x = g.device_array("x", shape=32, dtype="float32")
    ys = [g.device_array(f"y{i}", shape=32, dtype="float32") for i in range(24)]
    for layer in range(20):
        for i, y in enumerate(ys):
            g.kernel(FILLS["a"], grids[i % len(grids)], 32, (x, y), name=f"n{layer}_{i}")
        for i in range(0, 24, 6):
            g.kernel(FILLS["b"], 1, 64, (ys[i + 1], ys[i]), name=f"m{layer}_{i}")
    return g


GRIDS = (
    (1,),
    (2,),
    (1, 2),
    (2, 3),
    (1, 1, 2),
    (100,),
    (101, 200),
    (4000,),
    (8447,),
    (8448,),
    (8449,),
    (20_000,),
    (1, 20_000),
    (2, 30_000),
)


def plan_of_beside(grids: tuple[int, ...]) -> Plan:
    target = hg.Target.named("nvidia:sm_90")
    target = replace(target, costs=replace(target.costs, entry_us=1000.0))  # so that few launches are merged
    return make_plan(beside(*grids).workflow(), target, hg.PlanOptions())


@functools.cache
def fresh_plan_of_beside(grids: tuple[int, ...]) -> Any:
    reuse._planned.clear()
    return shown(plan_of_beside(grids), beside(*grids).workflow())


@pytest.mark.parametrize(("old", "new"), [*itertools.permutations(GRIDS, 2)])
def test_plans_of_launches_beside_each_other_depend_on_grids_that_do_not_fill_the_device(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    fresh = fresh_plan_of_beside(new)
    reuse._planned.clear()
    living = plan_of_beside(old)
    made = plan_of_beside(new)
    assert living.shape is None
    assert shown(made, beside(*new).workflow()) == fresh
    assert (made.shape is not None) is ({old, new} == {(20_000,), (8449,)}), "each launch fills the device"


@pytest.mark.parametrize(("old", "new"), [*itertools.permutations((1, 2, 3, 1000, 1_000_000), 2)])
def test_the_plan_of_a_chain_depends_only_on_which_grids_are_of_one_block(old: int, new: int) -> None:
    def chain(grid: int) -> hg.Graph:
        g = hg.Graph("g")
        x, y = (g.device_array(name, shape=32, dtype="float32") for name in "xy")
        for i in range(100):
            g.kernel(FILLS["a"], grid, 32, (x, y), name=f"n{i}")
            x, y = y, x
        return g

    reuse._planned.clear()
    graph = chain(new)
    fresh = shown(graph.plan(target="nvidia:sm_90"), graph.workflow())
    reuse._planned.clear()
    living = chain(old).plan(target="nvidia:sm_90")
    made = graph.plan(target="nvidia:sm_90")
    assert living.shape is None
    assert shown(made, graph.workflow()) == fresh
    assert (made.shape is not None) is (1 not in (old, new))


def small_copies(changed: bool) -> hg.Graph:
    """Return copies to the host, small enough for a kernel but for one."""
    g = hg.Graph("g")
    for i in range(20):
        size = 1 << 21 if changed and i == 3 else 4
        source = g.device_array(f"x{i}", shape=1 << 21, dtype="float32")
        g.memcpy(g.host_array(f"y{i}", shape=size, dtype="float32"), source[:size], name=f"n{i}")
    return g


def long_chain(changed: bool) -> hg.Graph:
    """Return a chain that is cut where its kernels read other parameters."""
    g = hg.Graph("g")
    x, y = (g.device_array(name, shape=32, dtype="float32") for name in "xy")
    a, b = g.param("a", "float32", default=1.0), g.param("b", "float32", default=1.0)
    for i in range(400):
        g.kernel(KERNELS["two"], 1, 32, (x, y, b if changed and i >= 200 else a), name=f"n{i}")
        x, y = y, x
    return g


FILLS = hg.Module(
    'extern "C" __global__ void a(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }\n'
    'extern "C" __global__ void b(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
)


@pytest.mark.parametrize("build", [launches_beside, small_copies, long_chain])
def test_a_plan_of_another_shape_is_not_taken_over(build: Any) -> None:
    target, options = "nvidia:sm_90", hg.PlanOptions(batch=True)
    new = build(True)
    fresh = shown(new.plan(target=target, options=options), new.workflow())
    living = build(False).plan(target=target, options=options)
    assert shown(living, living.workflow) != fresh, "the two graphs tell shapes apart"
    assert shown(new.plan(target=target, options=options), new.workflow()) == fresh
