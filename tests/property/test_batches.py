"""Batched launches do what the launches do one by one, whatever is set, enabled, disabled, updated and launched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from places import HERE
from property.strategies import earlier, integers, sampled_from
from specimens import compile_whole

import hipgraphdsl as hg
from benchmarks.shapes import cholesky
from hipgraphdsl import measuring
from hipgraphdsl.nodes.workflow import Workflow
from hipgraphdsl.parts.merge.batches import Batched
from hipgraphdsl.parts.merge.batching import batching
from hipgraphdsl.parts.merge.switching import Chaining, unchained
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.parts.timeline.simulation import simulate
from hipgraphdsl.plan.launches import launches, names_of
from hipgraphdsl.plan.launches import together as launched_together
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.plan.steps import Plan
from hipgraphdsl.runtimes import open_runtime

N, ARRAYS, BLOCK = 24, 12, 8
MODULE = hg.Module(
    """
#define AT (blockIdx.x * blockDim.x + threadIdx.x)
__global__ void mix(int a, const int *x, int *y, int n) {
  for (unsigned int i = AT; i < n; i += gridDim.x * blockDim.x) y[i] = 3 * y[i] + a + x[i];
}
extern "C" __global__ void place(int *y, int n) {
  const int at = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0 && at < n) y[at] += 100 * gridDim.x + 10 * gridDim.y + gridDim.z;
}
namespace inner {
template <typename T, int K>
__global__ __launch_bounds__(64) void turn(T *y) {
  __shared__ T block[64];
  block[threadIdx.x] = y[AT];
  __syncthreads();
  y[AT] = block[blockDim.x - 1 - threadIdx.x] + K;
}
}
""",
    name="batched",
)
MIX, PLACE, TURN = MODULE["mix"], MODULE["place"], MODULE["inner::turn<int, 7>"]
Values = list[np.ndarray[Any, np.dtype[np.int32]]]


def planned(batch: object) -> Batched:
    assert isinstance(batch, Batched)
    return batch


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_whole(MODULE, "inner::turn<int, 7>")


@dataclass(frozen=True)
class Do:
    """One node: its kernel, the array that it changes, and what the kernel takes; or an empty node, ``"gate"``."""

    kind: str
    to: int
    origin: int = 0
    number: int | None = 1  # None: the parameter
    grid: tuple[int, int, int] = (1, 1, 1)

    def fields(self, arrays: Any, param: Any) -> dict[str, Any]:
        y, x = arrays[f"a{self.to}"], arrays[f"a{self.origin}"]
        if self.kind == "mix":
            return {"grid": self.grid, "block": BLOCK, "args": (param if self.number is None else self.number, x, y, N)}
        if self.kind == "place":
            return {"grid": self.grid, "block": BLOCK, "args": (y, N)}
        return {"grid": (N // BLOCK, 1, 1), "block": BLOCK, "args": (y,)}

    def apply(self, values: Values, param: int) -> None:
        if self.kind == "gate":
            return
        y, x = values[self.to], values[self.origin]
        with np.errstate(over="ignore"):
            if self.kind == "mix":
                y[...] = y * np.int32(3) + np.int32(param if self.number is None else self.number) + x
            elif self.kind == "place":
                gx, gy, gz = self.grid
                y[: min(N, gx * gy * gz)] += np.int32(100 * gx + 10 * gy + gz)
            else:
                y[...] = y.reshape(-1, BLOCK)[:, ::-1].ravel() + np.int32(7)


def free_to_batch(target: str | hg.Target) -> hg.Target:
    """Return a target for which batches save time and their entry points cost nothing."""
    named = hg.Target.named(target)
    return replace(named, costs=replace(named.costs, batched_us=1.0, entry_us=0.0))


KERNELS = {"mix": MIX, "place": PLACE, "turn": TURN}


@st.composite
def nodes(draw: Any, kind: str | None = None) -> Do:
    kind = kind or draw(st.sampled_from(["mix", "mix", "place", "turn"]))
    to = draw(st.integers(0, ARRAYS - 1))
    origin = draw(st.integers(0, ARRAYS - 2))
    grid = (
        (draw(st.integers(1, 3)), 1, 1)
        if kind == "mix"
        else (draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    )
    number = draw(st.one_of(st.none(), st.integers(-9, 9)))
    return Do(kind, to, origin + (origin >= to), number, grid)


def declared(program: list[Do]) -> hg.Graph:
    g = hg.Graph("batches")
    for i in range(ARRAYS):
        g.device_array(f"a{i}", np.arange(N, dtype="i4") * (i + 1))
    param = g.param("p", "int32", 5)
    for i, do in enumerate(program):
        if do.kind == "gate":
            g.empty(name=f"n{i}", after=[f"n{k}" for k in range(max(0, i - 6), i)])
            continue
        gates = [f"n{k}" for k in range(max(0, i - 6), i) if program[k].kind == "gate"]
        g.kernel(KERNELS[do.kind], name=f"n{i}", after=gates, **do.fields(g.arrays, param))
    return g


def layers(draw: Any) -> list[Do]:
    """Draw nodes of which many wait for the same."""
    program: list[Do] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(list(KERNELS)))
        like = draw(nodes(kind))
        targets = draw(st.lists(st.integers(0, ARRAYS - 2), min_size=4, max_size=ARRAYS - 1, unique=True))
        program += [replace(draw(nodes(kind)) if draw(st.booleans()) else like, to=to, origin=ARRAYS - 1) for to in targets]
        program += draw(st.lists(st.one_of(nodes(), st.just(Do("gate", 0))), max_size=2))
    return program


def play(data: Any, runtime: Any, backend: Any, actions: int) -> None:
    draw = data.draw
    batch = draw(st.sampled_from([True, "auto"]))
    program = layers(draw)
    values: Values = [np.arange(N, dtype="i4") * np.int32(i + 1) for i in range(ARRAYS)]
    off: set[int] = set()
    param = 5

    def run() -> None:
        for i, do in enumerate(program):
            if i not in off:
                do.apply(values, param)

    def agree(exe: hg.Executable) -> None:
        for i, wanted in enumerate(values):
            np.testing.assert_array_equal(exe.read(f"a{i}"), wanted, err_msg=f"a{i}")

    with declared(program).compile(runtime=runtime, backend=backend, batch=batch) as exe:
        exe.run()
        run()
        agree(exe)
        for _ in range(actions):
            action = draw(
                st.sampled_from(["set", "enable", "disable", "launch", "launch", "value", "update", "clone", "profile"])
            )
            i = draw(st.sampled_from([k for k, do in enumerate(program) if do.kind != "gate" or action in ("enable", "disable")]))
            if action in ("set", "update"):
                before = program[i]
                program[i] = replace(
                    before, number=draw(st.one_of(st.none(), st.integers(-9, 9))), grid=draw(nodes(before.kind)).grid
                )
                if action == "set":
                    exe.set(f"n{i}", **program[i].fields(exe.workflow.arrays, exe.workflow.parameters["p"]))
                else:
                    exe.update(declared(program))
            elif action == "enable":
                exe.enable(f"n{i}")
                off.discard(i)
            elif action == "disable":
                exe.disable(f"n{i}")
                off.add(i)
            elif action == "profile":
                names = {name for span in exe.profile() for name in span.nodes if "~" not in name}
                assert names == {name for name in exe.plan.index if "~" not in name}
                assert names >= {f"n{k}" for k, do in enumerate(program) if do.kind != "gate"}
                run()
            elif action == "clone":
                with exe.clone() as twin:
                    kept = [array.copy() for array in values]
                    twin.run()
                    run()
                    agree(twin)
                    values[:] = kept
            else:
                if action == "value":
                    param = draw(st.integers(-9, 9))
                exe.launch(p=param)
                run()
        agree(exe)


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=40)
@given(data=st.data())
def test_batched_launches_do_what_they_do_one_by_one(runtime: Any, backend: Any, data: Any) -> None:
    opened = hg.open_runtime(runtime)
    known = opened.target
    opened.target = replace(free_to_batch(known), bypass_edges=data.draw(st.sampled_from([0, 8, 1024])))
    try:
        play(data, opened, backend, 8)
    finally:
        opened.target = known


@pytest.mark.parametrize("runtime", HERE)
def test_nodes_that_wait_for_the_same_are_one_launch(runtime: Any) -> None:
    with declared([Do("mix", i, ARRAYS - 1) for i in range(ARRAYS - 1)] * 2).compile(runtime=runtime, batch=True) as exe:
        assert [step.batch for step in exe.plan.steps if step.origin] == [0] * (ARRAYS - 1) + [1] * (ARRAYS - 1)
        assert len(exe.plan.lanes) == 1
        assert "22 kernel nodes become 2 launches" in exe.plan.explain()


# -- which launches become one ------------------------------------------------------------------------------------------


@st.composite
def ordered(draw: Any) -> list[tuple[int, int, tuple[int, ...]]]:
    """Draw nodes that launch one of a few kernels on an array, or are empty, behind some that stand before them."""
    count = draw(st.integers(4, 40))
    return [
        (
            draw(sampled_from((0, 0, 0, 1, 2, 3))),
            draw(integers(0, 5)),
            tuple(draw(earlier(i, 3))),
        )
        for i in range(count)
    ]


def of_order(drawn: list[tuple[int, int, tuple[int, ...]]], few: bool = True, grids: int = 1) -> Workflow:
    """Return nodes that are drawn, whose grids are of a few sizes."""
    g = hg.Graph("ordered")
    arrays = [g.device_array(f"a{i}", shape=BLOCK, dtype="int32") for i in range(6)]
    source = g.device_array("x", shape=BLOCK, dtype="int32")
    for i, (kind, to, after) in enumerate(drawn):
        args: dict[str, Any] = {"after": [f"n{k}" for k in (after if few else after[:1])], "name": f"n{i}"}
        if kind == 0:
            g.kernel(MIX, 1 + (i + to) % grids, BLOCK, (1, source, arrays[to], BLOCK), **args)
        elif kind == 1:
            g.kernel(MIX, 1, BLOCK, (1, arrays[to], arrays[(to + 1) % 6], BLOCK), **args)
        elif kind == 3:
            g.empty(**args)
        else:
            g.kernel(PLACE, 1 + i % grids, BLOCK, (arrays[to], BLOCK), **args)
    return g.workflow()


class Schedule(NamedTuple):
    """The nodes of each launch, and the launches that it waits for; what a chain does one behind the other counts as launches."""

    launches: list[list[int]]
    waits: list[set[int]]

    @classmethod
    def of(cls, workflow: Workflow, plan: Plan) -> Schedule:
        found = cls([], [])
        launch_of: dict[int, int] = {}
        for step in plan.steps:
            how = planned(plan.batches[step.batch]).batching if step.batch >= 0 else None
            beside = how is not None and not isinstance(how, Chaining)
            if not beside or not step.index or plan.steps[step.index - 1].batch != step.batch:
                found.launches.append([])
                found.waits.append(set())
            found.launches[-1].append(workflow.index[step.name])
            own = launch_of[step.index] = len(found.launches) - 1
            found.waits[-1].update({launch_of[d] for d in step.deps} - {own})
        return found

    def copied(self) -> Schedule:
        return Schedule([list(inside) for inside in self.launches], [set(sources) for sources in self.waits])

    def run(self, chance: random.Random) -> list[int] | None:
        """Return nodes in an order that the launches allow, those of a launch in any; None where launches wait in a cycle."""
        done: list[int] = []
        over: set[int] = set()
        weight = [chance.random() for _ in self.launches]
        while len(over) < len(self.launches):
            ready = [k for k, sources in enumerate(self.waits) if k not in over and sources <= over]
            if not ready:
                return None
            k = max(ready, key=weight.__getitem__)
            over.add(k)
            done += chance.sample(self.launches[k], len(self.launches[k]))
        return done


class Touch(NamedTuple):
    """What a node reads and what it writes, by the names of arrays."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @classmethod
    def of(cls, workflow: Workflow) -> list[Touch]:
        found = []
        for node in workflow.nodes:
            modes = [(access.view.root.name, access.mode) for access in node.accesses]
            reads, writes = ([name for name, mode in modes if mode != other] for other in ("write", "read"))
            found.append(cls(tuple(reads), tuple(writes)))
        return found


def results(touches: Sequence[Touch], order: Sequence[int]) -> dict[str, int]:
    """Return what nodes leave in arrays, as a number for all that a value depends on."""
    values: dict[str, int] = {}
    for i in order:
        reads, writes = touches[i]
        came = hash((i, *[values.get(name, 0) for name in reads]))
        for name in writes:
            values[name] = hash((came, name))
    return values


def unordered(workflow: Workflow, schedule: Schedule) -> list[tuple[str, str]]:
    """Return kernels that touch the same array, one of them writing, or that declared edges order, where no launches do."""
    reached: list[set[int]] = []
    for sources in schedule.waits:
        if any(source >= len(reached) for source in sources):
            return [("a launch", "a later one")]
        reached.append(sources.union(*(reached[source] for source in sources)))
    at = {i: number for number, inside in enumerate(schedule.launches) for i in inside}
    touches = Touch.of(workflow)
    kernels = [i for i, node in enumerate(workflow.nodes) if isinstance(node, hg.KernelNode)]
    before: list[set[int]] = []
    for after in workflow.predecessors:
        before.append({*after}.union(*(before[source] for source in after)))
    found = []
    for i in kernels:
        reads, writes = touches[i]
        for k in {k for k in kernels if k < i and at[k] not in reached[at[i]]}:
            race = set(writes) & {*touches[k].reads, *touches[k].writes} or set(reads) & set(touches[k].writes)
            if race or k in before[i]:
                found.append((workflow.nodes[k].name, workflow.nodes[i].name))
    return found


@pytest.mark.parametrize("batch", [True, "auto"])
@pytest.mark.parametrize("target", ["nvidia:sm_90", "amd:gfx942", "cpu"])
@settings(max_examples=100)
@given(drawn=ordered(), few=st.booleans(), grids=st.integers(1, 3))
def test_no_batch_holds_nodes_that_a_path_orders_or_that_race(
    batch: Any, target: str, drawn: list[tuple[int, int, tuple[int, ...]]], few: bool, grids: int
) -> None:
    """Any pair of nodes that touch the same bytes stays in its order, whatever is batched."""
    workflow = of_order(drawn, few, grids)
    plan = make_plan(workflow, free_to_batch(target), hg.PlanOptions(batch=batch, pack=False))
    schedule = Schedule.of(workflow, plan)
    runs = [batch for batch, _ in groupby(step.batch for step in plan.steps) if batch >= 0]
    assert sorted(runs) == list(range(len(plan.batches))), "a batch is not contiguous"
    assert unordered(workflow, schedule) == []


@settings(max_examples=100)
@given(drawn=ordered(), few=st.booleans(), grids=st.integers(1, 3), target=st.sampled_from(["nvidia:sm_90", "amd:gfx942"]))
@example(drawn=[(0, 1, ()), (0, 0, ()), (3, 0, (0,)), (0, 0, ()), (0, 1, (0, 2))], few=True, grids=1, target="nvidia:sm_90")
def test_simulated_launches_hold_each_node_once_behind_all_that_it_waits_for(
    drawn: list[tuple[int, int, tuple[int, ...]]], few: bool, grids: int, target: str
) -> None:
    workflow = of_order(drawn, few, grids)
    plan = make_plan(workflow, hg.Target.named(target), hg.PlanOptions(batch=True))
    timeline = simulate(workflow, {"kernel": 2}, target=hg.Target.named(target), batch=True)
    names = [node.name for node in workflow.nodes]
    empty = {node.name for node in workflow.nodes if isinstance(node, hg.EmptyNode)}
    assert sorted(name for span in timeline for name in span.nodes) == sorted(names)
    together = {names_of(plan, run) for run in launched_together(plan)}
    assert {span.members for span in timeline if span.members} == together
    for name, sources in zip(names, workflow.predecessors):
        span = timeline[name]
        launched = len({*span.members} - empty) if span.kind == "chain" else span.kind != "empty"
        assert span.duration == 2 * launched
        for source in sources:
            before = timeline[names[source]]
            between = names[source] in empty and any(
                timeline[other] is span for other in nx.ancestors(workflow.dag, names[source])
            )
            assert before.stop <= span.start or between or (before is span and (span.kind == "chain" or name in empty))


def overlooked(schedule: Schedule, chance: random.Random) -> Schedule:
    """Return the schedule with one order overlooked: an edge is lost, two launches are one, or a node is in an earlier launch."""
    made = schedule.copied()
    follower = chance.choice([k for k, sources in enumerate(made.waits) if sources])
    source = chance.choice(sorted(made.waits[follower]))
    what = chance.choice(["edge", "merge", "move"])
    if what == "edge":
        made.waits[follower].discard(source)
    elif what == "merge":
        made.launches[source] += made.launches[follower]
        made.launches[follower] = []
        made.waits[source] |= made.waits[follower] - {source}
        made.waits[follower] = {source}
    else:
        node = chance.choice(made.launches[follower])
        made.launches[follower].remove(node)
        made.launches[source].append(node)
    return made


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("batch", [True, "auto"])
def test_schedules_that_overlook_a_hazard_are_told_from_right_ones(batch: Any, count: int) -> None:
    """Thousands of schedules that leave other values than the program: none is taken for right. Those of plans leave the same."""
    chance = random.Random(7)
    target = free_to_batch("nvidia:sm_90")
    wrong = accepted = 0
    while wrong < count:
        drawn = []
        for i in range(chance.randint(8, 24)):
            after = tuple(chance.sample(range(i), min(i, chance.randint(0, 1))))
            drawn.append((chance.choice([0, 0, 0, 1, 2, 3]), chance.randrange(6), after))
        workflow = of_order(drawn, grids=chance.randint(1, 2))
        touches = Touch.of(workflow)
        schedule = Schedule.of(workflow, make_plan(workflow, target, hg.PlanOptions(batch=batch, pack=False)))
        wanted = results(touches, range(len(touches)))
        for _ in range(5):
            order = schedule.run(chance)
            assert order is not None
            assert results(touches, order) == wanted
        if not any(len(inside) > 1 for inside in schedule.launches):
            continue
        for _ in range(10):
            mutant = overlooked(schedule, chance)
            orders = (mutant.run(chance) for _ in range(10))
            if any(order is None or results(touches, order) != wanted for order in orders):
                wrong += 1
                accepted += unordered(workflow, mutant) == []
    assert accepted == 0


@pytest.mark.parametrize("join", [True, False])
@settings(max_examples=100)
@given(drawn=ordered(), grids=st.integers(1, 3), data=st.data())
def test_auto_starts_no_node_later_than_as_declared(
    join: bool, drawn: list[tuple[int, int, tuple[int, ...]]], grids: int, data: Any
) -> None:
    """Where launches of one kernel and grid last equally long, a node in a batch starts when those that it follows end."""
    workflow = of_order(drawn, grids=grids)
    plan = make_plan(workflow, free_to_batch("nvidia:sm_90"), hg.PlanOptions(join=join, pack=False))
    assert join or not plan.batches
    lasts: dict[Any, int] = {}
    for node in workflow.nodes:
        if isinstance(node, hg.KernelNode):
            lasts.setdefault((node.kernel, node.grid), data.draw(st.integers(1, 9)))
    own = [lasts[node.kernel, node.grid] if isinstance(node, hg.KernelNode) else 0 for node in workflow.nodes]
    starts = [0] * len(own)
    for i in workflow.order:
        starts[i] = max([starts[k] + own[k] for k in workflow.predecessors[i]], default=0)
    ends: list[int] = []
    for inside, sources in zip(*Schedule.of(workflow, plan)):
        start = max([ends[source] for source in sources], default=0)
        assert {starts[i] for i in inside if own[i]} <= {start}
        ends.append(start + max(own[i] for i in inside))


def independent(count: int, grid: Any = 1, block: int = BLOCK, after: Any = ()) -> hg.Graph:
    g = hg.Graph("independent")
    for i in range(count):
        y = g.device_array(f"y{i}", shape=N, dtype="int32")
        g.kernel(PLACE, grid(i) if callable(grid) else grid, block, (y, N), name=f"n{i}", after=after)
    return g


def batches_of(g: hg.Graph, target: str | hg.Target = "nvidia:sm_90", **options: Any) -> list[int]:
    """Return how many nodes each batch of a plan has."""
    launches = Schedule.of(g.workflow(), g.plan(target=target, **options)).launches
    return sorted(len(inside) for inside in launches if len(inside) > 1)


def test_auto_batches_where_that_pays() -> None:
    assert batches_of(independent(64)) == [64]
    assert batches_of(independent(4)) == [4]
    assert batches_of(independent(2)) == []
    assert batches_of(independent(8), batch=True) == [8]
    for options in ({"batch": False}, {"options": hg.PlanOptions(join=False)}, {"lanes": 8}):
        assert batches_of(independent(64), **options) == []
    assert "batched" not in independent(1).plan(target="nvidia:sm_90").explain()
    chains = independent(2)  # of nodes that are many, and never many beside each other
    for i in range(64):
        chains.kernel(PLACE, 1, BLOCK, (chains.arrays[f"y{i % 2}"], N))
    assert batches_of(chains) == []


def test_auto_says_what_too_few_batches_would_save() -> None:
    """Levels of five launches replace four branches, and four launches each."""
    g = independent(5)
    for k in range(15):
        gate = g.empty(name=f"gate_{k}", after=list(g.dag))
        for i in range(5):
            g.kernel(PLACE, 1, BLOCK, (g.arrays[f"y{i}"], N), after=[gate])
    target = hg.Target.named("nvidia:sm_90")
    assert batches_of(g, target) == [5] * 16
    dear = replace(target, costs=replace(target.costs, entry_us=2_000_000.0))
    said = (
        "Launches of kernel 'place' are not batched: that would save 14 us a launch, and compiling it takes about 2000 ms once."
    )
    assert said in g.plan(target=dear).explain()
    assert batches_of(g, dear) == []


@pytest.mark.parametrize("target", ["amd:gfx942", "cpu"])
def test_auto_batches_nothing_where_that_was_not_measured_and_says_so(target: str) -> None:
    g = independent(64)
    assert batches_of(g, target) == []
    assert f"Nothing is batched: that is not known to save time on {target}" in g.plan(target=target).explain()
    assert "batched" not in independent(1).plan(target=target).explain()
    assert batches_of(g, free_to_batch(target)) == [64]


def test_auto_keeps_grids_apart_where_nodes_follow() -> None:
    """A short launch with a follower does not wait for a long one; where nothing follows, launches of all sizes are one."""
    sizes = independent(128, grid=lambda i: 1 + i % 2)
    assert batches_of(sizes) == [128]
    for i in range(128):
        sizes.host(print, args=(i,), after=[f"n{i}"])
    assert batches_of(sizes) == [64, 64]
    assert batches_of(sizes, batch=True) == [128]


def test_auto_makes_no_batch_with_followers_larger_than_the_device() -> None:
    g = independent(600, grid=64, block=64)
    assert batches_of(g) == [600]
    g.host(print, name="gate", after=list(g.dag))
    assert max(batches_of(g)) == 132 * 2048 // (64 * 64)
    assert sum(batches_of(g)) == 600


@pytest.mark.parametrize("batch", ["yes", None, 1])
def test_batch_is_auto_true_or_false(batch: Any) -> None:
    with pytest.raises(hg.DeclarationError, match="batch is 'auto', True or False"):
        independent(4).plan(target="cpu", batch=batch)


def test_verify_compares_batches_with_single_launches() -> None:
    report = hg.verify(independent(8), "cpu", backends=["explicit"], orders=2, repeats=1)
    assert not report.findings
    assert any("with batches 1 time" in done for done in report.done)
    alone = hg.verify(independent(3), "cpu", backends=["explicit"], orders=2, repeats=1)
    assert not any("with batches" in done for done in alone.done)


@pytest.mark.parametrize("runtime", HERE)
def test_verify_compares_edges_with_the_empty_nodes_in_whose_place_they_are(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last level reads what the first wrote: without the edges past the gate it would come too soon."""
    device = open_runtime(runtime)
    monkeypatch.setattr(device, "target", replace(device.target, bypass_edges=1024))
    g = hg.Graph("gated", infer=False)
    arrays = [g.device_array(f"y{i}", shape=N, dtype="int32") for i in range(4)]
    first = [g.kernel(PLACE, 1, BLOCK, (y, N)) for y in arrays[:2]]
    gate = g.empty(after=first)
    for x, y in zip(arrays, arrays[2:]):
        g.kernel(MIX, 1, BLOCK, (1, x, y, N), after=[gate])
    report = hg.verify(g, device, backends=["explicit"], orders=1, repeats=1, audit=False)
    assert not report.findings
    where = "" if runtime == "cpu" else f" on {runtime}"
    assert any(f"with edges for empty nodes{where} 1 time" in done for done in report.done)


def test_measured_lanes_are_tried_with_the_batches_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def times(_workflow: Any, _runtime: Any, _backend: str, options: hg.PlanOptions, _device: int) -> float:
        tried.append((options.lanes, options.batch))
        return 1.0 if options.lanes == "auto" else 2.0

    monkeypatch.setattr(measuring, "_trial_us", times)
    for batch in (True, False):
        with independent(40).compile("cpu", lanes="measure", batch=batch) as exe:
            assert len(exe.plan.batches) == batch
    assert {("auto", True), ("auto", False)} <= set(tried)


def test_entry_points_of_a_kernel_are_compiled_together() -> None:
    """However many sizes of batches there are, a kernel costs one compilation more."""
    recorder = RecorderRuntime(target="nvidia:sm_90")
    with cholesky(24).compile(runtime=recorder) as exe:
        assert {planned(batch).batching.kernels[0].name for batch in exe.plan.batches} == {"gemm", "trsm"}
        assert len({planned(batch).capacity for batch in exe.plan.batches}) > 3
        compiled = [call for call in recorder.calls if call.api == "hiprtcCompileProgram"]
        assert len(compiled) == 3


REFUSED = {
    "a function of its module reads blockIdx": "__device__ int f() {return blockIdx.x;} __global__ void k(int *y) { *y = f(); }",
    "it touches variable 'c'": "__constant__ int c; __global__ void k(int *y) { y[0] = c; }",
    "its module speaks of the whole grid": '__global__ void k(int *y) { asm volatile("" ::: "memory"); y[0] = 1; }',
    "a parameter is no plain value": "__global__ void k(int y[]) { y[0] = 1; }",
    "macro 'own' replaces": "#define own y\n__global__ void k(int *y) { own[0] = 1; }",
    "it names itself": "__global__ void k(int *y) { int k = 1; y[0] = k; }",
    "__LINE__ asks where text stands": "__global__ void k(int *y) { y[0] = __LINE__; }",
    "puts names together": "#define J(a, b) a##b\n__global__ void k(int *y) { J(y, )[0] = 1; }",
    "its names are those": "__global__ void k(int *hg_y) { hg_y[0] = 1; }",
    "cannot be told": "__global__ void k(int *y) {\n#define V 1\n y[0] = V;\n#undef V\n}",
    "what a compiler reads as its body": (
        "__global__ void k(int *y)\n#if __CUDA_ARCH__ >= 900\n{ y[0] = 1; }\n#else\n{ y[0] = 2; }\n#endif"
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_kernels_that_cannot_be_batched_stay_alone_and_the_plan_says_why(why: str) -> None:
    kernel = hg.Module(REFUSED[why])["k"]
    found = batching(kernel)
    assert isinstance(found, str)
    assert why in found
    g = hg.Graph("refused")
    for i in range(4):
        g.kernel(kernel, 1, 1, (g.device_array(f"y{i}", shape=1, dtype="int32"),))
    with g.compile("cpu", batch=True) as exe:
        assert not exe.plan.batches
        assert f"Launches of kernel 'k' are not batched: {found}." in exe.plan.explain()
        exe.run()
        assert all(exe.read(f"y{i}").any() or "blockIdx" in why or "'c'" in why for i in range(4))


AT_HAND = {
    "gridDim is a variable": "dim3 gridDim(3); y[0] = gridDim.x;",
    "gridDim is one of several": "const int three = 3, gridDim = three; y[0] = gridDim;",
    "a struct reads it": "struct Of { __device__ int grid() { return gridDim.x; } }; y[0] = 3 * Of().grid();",
    "a lambda reads it": "auto of = [] { return gridDim.x; }; y[0] = 3 * of();",
    "a lambda with a variable reads it": "int k = 3; auto of = [k] { return k * gridDim.x; }; y[0] = of();",
    "a count": "y[0] = 3 + __COUNTER__;",
    "a name of what is added": "struct table { int x; }; y[0] = 3;",
}


@pytest.mark.parametrize("what", AT_HAND)
@pytest.mark.parametrize("beside", [True, False])
def test_kernels_whose_text_means_something_else_elsewhere_run(what: str, beside: bool) -> None:
    """Side by side, and one behind the other."""
    kernel = hg.Module(f"__global__ void k(int *y) {{ {AT_HAND[what]} }}")["k"]
    g = hg.Graph("elsewhere")
    arrays = [g.device_array(f"y{i}", shape=1, dtype="int32") for i in range(4)]
    for i in range(4):
        g.kernel(kernel, 1, 1, (hg.updates(arrays[i if beside else 0]),))
    with g.compile("cpu", batch=True) as exe:
        exe.run()
        assert [exe.read(f"y{i}")[0] for i in range(4)] == [3, *[3 * beside] * 3]


@pytest.mark.parametrize("name", ["k<int>", "k<int, 2>", "k<int, 2, long>"])
def test_template_arguments_that_a_name_leaves_out_are_the_defaults(name: str) -> None:
    kernel = hg.Module("template <typename T, int N = 2, typename U = T> __global__ void k(T *y) { y[0] += (U)N; }")[name]
    g = hg.Graph("defaults")
    for i in range(4):
        g.kernel(kernel, 1, 1, (hg.updates(g.device_array(f"y{i}", np.full(1, i, "int32"))),))
    with g.compile("cpu", batch=True) as exe:
        assert len({step.batch for step in exe.plan.steps if step.batch >= 0}) == 1
        exe.run()
        assert [exe.read(f"y{i}")[0] for i in range(4)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "declared", ["struct alignas(16) P { int a, b, c, d; }", "struct P { int4 of; }", "struct P { int a[4]; }"]
)
@pytest.mark.parametrize("beside", [True, False])
def test_structs_that_are_aligned_otherwise_than_their_dtype_arrive_whole(
    declared: str, beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    dtype = np.dtype([("of", "i4", 4)])
    source = f"{declared}; __global__ void k(int *y, P p, int n) {{ for (int i = 0; i < n; ++i) y[i] += ((int *)&p)[i]; }}"
    kernel = hg.Module(source, structs={"P": dtype})["k"]
    g = hg.Graph("aligned")
    arrays = [g.device_array(f"y{i}", shape=4, dtype="int32") for i in range(4)]
    for i in range(4):
        given = np.array(([i + 1] * 4,), dtype)
        g.kernel(kernel, 1, 1, (hg.updates(arrays[i if beside else 0]), given, 4))
    with g.compile("cpu", batch=True) as exe:
        exe.run()
        assert [exe.read(f"y{i}").tolist() for i in range(4)] == [[n] * 4 for n in ([1, 2, 3, 4] if beside else [10, 0, 0, 0])]
    assert ("launches of k stay alone" in caplog.text) == ("a[4]" not in declared)


def test_a_kernel_whose_batch_does_not_compile_is_launched_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is changed, and in profiles."""
    kernel = hg.Module("struct count { int of; }; __global__ void k(int *y, count n) { y[0] += n.of; }",
                       structs={"count": np.dtype([("of", "i4")])})["k"]  # fmt: skip
    g = hg.Graph("alone")
    for i in range(4):
        given = np.array((i,), [("of", "i4")])
        g.kernel(kernel, 1, 1, (hg.updates(g.device_array(f"y{i}", shape=1, dtype="int32")), given), name=f"n{i}")
    for backend in ("explicit", "capture"):
        with g.compile("cpu", backend, batch=True) as exe:
            exe.run()
            exe.disable("n1")
            exe.profile()
            exe.enable("n1")
            exe.run()
            assert [exe.read(f"y{i}")[0] for i in range(4)] == [0, 2, 6, 9]
    assert "launches of k stay alone, because their batch is refused" in caplog.text


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("runtime", HERE)
def test_a_member_that_becomes_another_launch_is_a_node_of_its_own(runtime: Any, backend: Any) -> None:
    program = [Do("mix", i, ARRAYS - 1) for i in range(6)]
    with declared(program).compile(runtime=runtime, backend=backend, batch=True) as exe:
        exe.run()
        exe.set("n2", kernel=PLACE, grid=(2, 3, 1), args=(exe.workflow.arrays["a2"], N))
        exe.set("n3", block=4)
        exe.run()
        start = np.arange(N, dtype="i4")
        once = start * 3 * 3 + 1 + start * ARRAYS
        assert exe.read("a2")[:6].tolist() == (once[:6] + 231).tolist()
        assert exe.read("a3").tolist() == (3 * (start * 4 * 3 + 1 + start * ARRAYS) + 1 + start * ARRAYS).tolist()
        assert exe.read("a0").tolist() == (3 * (start * 3 + 1 + start * ARRAYS) + 1 + start * ARRAYS).tolist()


@pytest.mark.parametrize("backend", ["explicit", "capture"])
@pytest.mark.parametrize("runtime", HERE)
def test_a_batch_waits_for_what_any_of_its_nodes_waits_for(runtime: Any, backend: Any) -> None:
    wide = (400, 1, 1)  # blocks of three that fill every device's multiprocessors, so that they are no batch
    program = [Do("mix", i, ARRAYS - 1, grid=wide) for i in range(3)] + [Do("mix", 3 + i, i % 3) for i in range(6)]
    with declared(program).compile(runtime=runtime, backend=backend, batch=True) as exe:
        assert [step.batch for step in exe.plan.steps if step.origin] == [-1] * 3 + [0] * 6
        edges = exe.runtime.graph_get_edges(exe.graph_handle)
        ends = {target for _, target in edges} - {source for source, _ in edges}
        assert len(ends) == 1, "the batch is not one node"
        assert len([source for source, target in edges if target in ends]) == 3


PAIRED = hg.Module(
    """
extern "C" __global__ void one(int *y, const int *x) { y[threadIdx.x] += x[threadIdx.x]; }
extern "C" __global__ void both(int *y, const int *x, const int *z) { y[threadIdx.x] = x[threadIdx.x] + z[threadIdx.x]; }
extern "C" __global__ void __launch_bounds__(64, 2) bounded(int *y, const int *x) { y[threadIdx.x] += x[threadIdx.x]; }
""",
    name="paired",
)


def paired(levels: int, grid: int = 1, block: int = 32, kernel: str = "one") -> hg.Graph:
    """Return levels of two launches of a kernel, and of one that waits for both."""
    g = hg.Graph("paired")
    x, y, z = (g.device_array(name, np.arange(4 * block, dtype="i4")) for name in "xyz")
    for _ in range(levels):
        g.kernel(PAIRED[kernel], grid, block, (y, x))
        g.kernel(PAIRED[kernel], grid, block, (z, x))
        g.kernel(PAIRED["both"], 1, block, (x, y, z))
    return g


def test_two_launches_are_a_batch_where_no_chain_could_take_them() -> None:
    plan = paired(3).plan(target="nvidia:sm_90", batch=True)
    assert [step.batch >= 0 for step in plan.steps] == [True, True, False] * 3
    chains = hg.Graph("chains")
    for i in range(6):  # two chains beside each other
        chains.kernel(PAIRED["one"], 1, 32, (chains.device_array(f"y{i}", shape=32, dtype="i4"), chains.arrays.get(f"y{i - 2}") or
            chains.device_array(f"x{i}", shape=32, dtype="i4")))  # fmt: skip
    plan = chains.plan(target="nvidia:sm_90", batch=True)
    assert [len(names_of(plan, run)) for run in launched_together(plan)] == [3, 3]


@pytest.mark.parametrize("backend", ["explicit", "capture"])
def test_profile_and_simulation_share_the_launches_of_segments(backend: Any) -> None:
    g = hg.Graph("every other")
    x = g.device_array("x", shape=N, dtype="i4")
    for i in range(8):
        g.kernel(MIX, 1, BLOCK, (1, x, g.device_array(f"a{i}", shape=N, dtype="i4"), N), name=f"n{i}")
    g.eager(lambda stream: None, name="between", after=["n0", "n2", "n4", "n6"])
    wanted = [("n0", "n2", "n4", "n6"), ("n1", "n3", "n5", "n7"), ()]
    with g.compile(runtime="cpu", backend=backend, batch=True) as exe:
        exe.run()
        assert [names_of(exe.plan, run) for run in launched_together(exe.plan)] == wanted[:2]
        assert sorted(span.members for span in exe.profile()) == sorted(wanted)
    assert [span.members for span in g.simulate({"kernel": 1, "eager": 1}, target="cpu", batch=True)] == wanted


@settings(max_examples=60)
@given(drawn=st.one_of(ordered(), st.integers(4, 30).map(lambda count: [(0, i % 6, ()) for i in range(count)])), data=st.data())
def test_launches_of_segments_stand_behind_all_that_they_wait_for(
    drawn: list[tuple[int, int, tuple[int, ...]]], data: Any
) -> None:
    g = hg.Graph.from_workflow(of_order(drawn))
    names = [node.name for node in g.nodes]
    for k in range(data.draw(st.integers(1, 3))):
        behind = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=4))
        g.eager(lambda stream: None, name=f"between{k}", after=sorted(behind))
    plan = make_plan(g.workflow(), free_to_batch("nvidia:sm_90"), hg.PlanOptions(batch=True, pack=False))
    assert plan.cut is not None
    graphs = [step.child for step in plan.cut.plan.steps if step.child is not None]
    built = {names_of(graph, run) for graph in graphs for run in graph.runs if len(run) > 1}
    assert {names_of(plan, run) for run in launched_together(plan)} == built
    made = launches(plan, launched_together(plan))
    assert sorted(i for own in made.members for i in own) == list(range(len(plan.steps)))
    assert all(d < step.index for step in made.plan.steps for d in step.deps)


@pytest.mark.parametrize(("grid", "batched"), [(66, True), (67, False)])
def test_two_launches_are_a_batch_where_they_leave_multiprocessors_free(grid: int, batched: bool) -> None:
    target = hg.Target.named("nvidia:sm_90")
    assert target.multiprocessors == 132
    plan = paired(3, grid, 1).plan(target=target, batch=True)
    assert (plan.steps[0].batch >= 0) == batched


def test_few_blocks_may_take_all_registers() -> None:
    def entry(g: hg.Graph) -> str:
        batching = planned(g.plan(target="nvidia:sm_90", batch=True).batches[0]).batching
        return batching.source([8]).replace(" ", "")

    assert "__global__void__launch_bounds__(32,1)hg_batch_8_one" in entry(paired(3))
    assert "__global__void__launch_bounds__(64)hg_batch_8_bounded" in entry(paired(3, kernel="bounded"))
    many = paired(1)
    x = many.arrays["x"]
    for i in range(4):  # behind each other batch, of more blocks than there are multiprocessors
        many.kernel(PAIRED["one"], 40, 32, (many.device_array(f"w{i}", shape=32, dtype="i4"), x))
    assert "__global__voidhg_batch_8_one" in entry(many)


@pytest.mark.parametrize("what", ["batch", "chain"])
def test_members_with_larger_blocks_than_their_entry_point_allows_are_launched_alone(what: str) -> None:
    g = hg.Graph("blocks")
    x = g.device_array("x", np.ones(256, "i4"))
    arrays = [g.device_array(f"y{i}", np.zeros(256, "i4")) for i in range(4 if what == "batch" else 1)]
    for i in range(4):
        g.kernel(PAIRED["one"], 1, 32, (arrays[i % len(arrays)], x), name=f"k{i}")
    with g.compile(runtime="cpu", batch=True) as exe:
        exe.run()
        count = len(exe.runtime.graph_get_nodes(exe.graph_handle))
        for i in range(4):
            exe.set(f"k{i}", block=64)
        exe.run()
        assert (count, len(exe.runtime.graph_get_nodes(exe.graph_handle))) == (1, 4)
        for array in arrays:
            times = 4 // len(arrays)
            assert exe.read(array.name).tolist() == [2 * times] * 32 + [times] * 32 + [0] * 192


def test_nothing_is_batched_where_a_platform_would_lose_edges() -> None:
    g = declared([Do("mix", i, ARRAYS - 1) for i in range(ARRAYS - 1)])
    target = hg.Target.named("amd:gfx942")
    lossy = replace(target, quirks=target.quirks | {"fan_out_4"})
    assert make_plan(g.workflow(), lossy, hg.PlanOptions(batch=True, pack=False)).batches  # one root
    for i in range(5):
        g.kernel(PLACE, 1, BLOCK + i, (g.arrays[f"a{i}"], N))
    plan = make_plan(g.workflow(), lossy, hg.PlanOptions(batch=True, pack=False))
    assert not plan.batches
    assert "Nothing is batched" in plan.explain()


CHAINED = hg.Module(
    """
#define AT (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void shift(const int *__restrict__ x, int *__restrict__ y, int n) {
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) y[i] = x[(i + 5) % n] + gridDim.x;
}
extern "C" __global__ void turn(int *y, short by, int n) {
  __shared__ int kept[64];
  const int i = threadIdx.x;
  if (i < n) kept[i] = y[i];
  __syncthreads();
  if (i < n) y[i] = kept[n - 1 - i] + by;
}
extern "C" __global__ void some(int *y, double by) {
  if (threadIdx.x > 3) return;
  y[threadIdx.x] += (int)by;
}
""",
    name="chained",
)
LONG = 24


@dataclass(frozen=True)
class Link:
    """One launch of a chain over three arrays; what it does to them in NumPy."""

    kind: str
    to: int
    number: int

    def declare(self, g: hg.Graph, name: str, param: Any) -> None:
        x, y = g.arrays[f"a{(self.to + 1) % 3}"], g.arrays[f"a{self.to}"]
        by = param if self.number == 0 else self.number
        args = {"shift": (x, y, LONG), "turn": (y, by, LONG), "some": (hg.updates(y), float(self.number))}[self.kind]
        g.kernel(CHAINED[self.kind], 1, 32, args, name=name, after=[f"n{int(name[1:]) - 1}"] if name != "n0" else ())

    def apply(self, values: Values, param: int) -> None:
        y = values[self.to]
        if self.kind == "shift":
            y[...] = np.roll(values[(self.to + 1) % 3], -5) + 1
        elif self.kind == "turn":
            y[...] = y[::-1] + (self.number or param)
        else:
            y[:4] += self.number


links = st.builds(Link, st.sampled_from(["shift", "turn", "some"]), st.integers(0, 2), st.integers(-9, 9))


@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=40)
@given(drawn=st.lists(links, min_size=2, max_size=40), backend=st.sampled_from(["explicit", "capture"]), data=st.data())
def test_a_chain_does_what_its_launches_do(runtime: Any, drawn: list[Link], backend: Any, data: Any) -> None:
    """Whatever is set, bound, disabled and enabled."""
    g = hg.Graph("chain")
    values = [np.arange(LONG, dtype="i4") * (i + 1) for i in range(3)]
    for i, initial in enumerate(values):
        g.device_array(f"a{i}", initial)
    param = g.param("p", "int16", 5)
    for i, link in enumerate(drawn):
        link.declare(g, f"n{i}", param)
    with g.compile(runtime, backend, batch=True) as exe:
        assert len(exe.plan.batches) == 1
        off: set[int] = set()
        for launch in range(4):
            given_p = data.draw(st.integers(-9, 9), label="p")
            for i in data.draw(st.sets(st.integers(0, len(drawn) - 1), max_size=5), label="switched"):
                (exe.enable if i in off else exe.disable)(f"n{i}")
                off ^= {i}
            if data.draw(st.booleans(), label="profiled"):
                exe.profile(p=given_p)
            else:
                exe.run(p=given_p)
            for i, link in enumerate(drawn):
                if i not in off:
                    link.apply(values, given_p)
            for i, wanted in enumerate(values):
                assert (exe.read(f"a{i}") == wanted).all(), (launch, i)


def test_links_have_one_follower_and_one_before() -> None:
    """What others wait for ends a chain, and what waits for others begins one."""
    g = hg.Graph("links")
    x, y, z = (g.device_array(name, shape=LONG, dtype="int32") for name in "xyz")
    turn = CHAINED["turn"]
    for name, array in [("a", x), ("b", x), ("c", x), ("d", y), ("e", y), ("f", z)]:
        g.kernel(turn, 1, 32, (array, 1, LONG), name=name, after=["c"] if name in "df" else ())
    g.kernel(CHAINED["shift"], 1, 32, (y, z, LONG), name="join")
    g.kernel(turn, 1, 32, (z, 1, LONG), name="g")
    g.kernel(turn, 2, 32, (z, 1, LONG), name="wide")
    plan = g.plan(target=free_to_batch("nvidia:sm_90"))
    chains: dict[int, list[str]] = {}
    for step in plan.steps:
        if step.batch >= 0:
            chains.setdefault(step.batch, []).append(step.name)
    assert sorted(chains.values()) == [["a", "b", "c"], ["d", "e"], ["join", "g"]]


UNCHAINED = {
    "a parameter is aligned to 32 bytes": "__global__ void k(int *y, double4 v) { y[0] = (int)v.w; }",
    "in a namespace": "namespace n { __global__ void k(int *y) { y[0] = 1; } }",
    "it is a template": "template <typename T> __global__ void k(T *y) { y[0] = 1; }",
    "said at launch": "__global__ void k(int *y) { extern __shared__ int s[]; s[0] = 1; y[0] = s[0]; }",
    "as read-only": "__global__ void k(const int *x, int *y) { y[0] = __ldg(x); }",
    "apart from each other": (
        "__device__ void f(const int *__restrict__ x, int *y) { y[0] = x[0]; } __global__ void k(int *x, int *y) { f(x, y); }"
    ),
    "it touches variable": "__device__ int c; __global__ void k(int *y) { y[0] = c; }",
}


@pytest.mark.parametrize("why", UNCHAINED)
def test_kernels_that_are_not_chained(why: str) -> None:
    module = hg.Module(UNCHAINED[why], name="unchained")
    assert why in unchained(module[module.kernels[0] + ("<int>" if "template" in why else "")])


def test_kernels_of_wide_arguments_get_them_whole() -> None:
    """Those of 16 bytes in a chain, those of 32 by themselves."""
    kinds = ["double4", "double2", "float4", "longlong2"]
    source = "\n".join(
        f"__global__ void {kind}_k(char c, {kind} v, double *y) {{ y[0] = 3 * y[0] + c + v.y; }}" for kind in kinds
    )
    module = hg.Module(source)
    g = hg.Graph("wide")
    y = g.device_array("y", shape=1, dtype="float64")
    wanted = 0.0
    for i in range(4):
        for kind in kinds:
            lanes = np.arange(4 if kind.endswith("4") else 2)
            value = (lanes + i).astype({"f": "f4", "d": "f8", "l": "i8"}[kind[0]])
            g.kernel(module[f"{kind}_k"], 1, 1, (7, value, hg.updates(y)))
            wanted = 3 * wanted + 7 + i + 1
    with g.compile("cpu", batch=True) as exe:
        assert {step.name.partition("_")[0] for step in exe.plan.steps if step.batch < 0} == {"double4"}
        exe.run()
        assert exe.read("y")[0] == wanted


def test_planning_reads_each_kernel_once() -> None:
    """Reading one spends what macros of its module may become, and a program may plan as often as it likes."""
    g = independent(8)
    budget = MODULE.declared.unit.budget
    g.plan(target="h200", batch=True)
    left = budget.left
    g.plan(target="h200", batch=True)
    assert budget.left == left
