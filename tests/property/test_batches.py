"""Batched launches do what the launches do one by one, whatever is set, enabled, disabled, updated and launched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.kernels import batching
from hipgraphdsl.plan import make_plan

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


@dataclass(frozen=True)
class Do:
    """One node: its kernel, the array that it changes, and what the kernel takes."""

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
        y, x = values[self.to], values[self.origin]
        with np.errstate(over="ignore"):
            if self.kind == "mix":
                y[...] = y * np.int32(3) + np.int32(param if self.number is None else self.number) + x
            elif self.kind == "place":
                gx, gy, gz = self.grid
                y[: min(N, gx * gy * gz)] += np.int32(100 * gx + 10 * gy + gz)
            else:
                y[...] = y.reshape(-1, BLOCK)[:, ::-1].ravel() + np.int32(7)


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
        g.kernel(KERNELS[do.kind], name=f"n{i}", **do.fields(g.arrays, param))
    return g


def layers(draw: Any) -> list[Do]:
    """Draw nodes of which many wait for the same."""
    program: list[Do] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(list(KERNELS)))
        like = draw(nodes(kind))
        targets = draw(st.lists(st.integers(0, ARRAYS - 2), min_size=4, max_size=ARRAYS - 1, unique=True))
        program += [replace(draw(nodes(kind)) if draw(st.booleans()) else like, to=to, origin=ARRAYS - 1) for to in targets]
        program += draw(st.lists(nodes(), max_size=2))
    return program


def play(data: Any, runtime: Any, backend: Any, actions: int) -> None:
    draw = data.draw
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

    with declared(program).compile(runtime=runtime, backend=backend, batch=True) as exe:
        exe.run()
        run()
        agree(exe)
        for _ in range(actions):
            action = draw(st.sampled_from(["set", "enable", "disable", "launch", "launch", "value", "update", "clone"]))
            i = draw(st.integers(0, len(program) - 1))
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
    play(data, runtime, backend, 8)


@pytest.mark.parametrize("runtime", HERE)
def test_nodes_that_wait_for_the_same_are_one_launch(runtime: Any) -> None:
    with declared([Do("mix", i, ARRAYS - 1) for i in range(ARRAYS - 1)] * 2).compile(runtime=runtime, batch=True) as exe:
        assert [step.batch for step in exe.plan.steps if step.origin] == [0] * (ARRAYS - 1) + [1] * (ARRAYS - 1)
        assert len(exe.plan.lanes) == 1
        assert "22 kernel nodes become 2 launches" in exe.plan.explain()


# -- which launches become one ------------------------------------------------------------------------------------------


@st.composite
def ordered(draw: Any) -> list[tuple[int, int, tuple[int, ...]]]:
    """Draw nodes that launch one of a few kernels on an array, behind some that stand before them."""
    count = draw(st.integers(4, 40))
    return [
        (
            draw(st.sampled_from([0, 0, 0, 1, 2])),
            draw(st.integers(0, 5)),
            tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else (),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("target", ["nvidia:sm_90", "amd:gfx942", "cpu"])
@settings(max_examples=150)
@given(drawn=ordered(), few=st.booleans())
def test_no_batch_holds_nodes_that_a_path_orders_or_that_race(
    target: str, drawn: list[tuple[int, int, tuple[int, ...]]], few: bool
) -> None:
    """Any pair of nodes that touch the same bytes stays in its order, whatever is batched."""
    g = hg.Graph("ordered")
    arrays = [g.device_array(f"a{i}", shape=BLOCK, dtype="int32") for i in range(6)]
    source = g.device_array("x", shape=BLOCK, dtype="int32")
    for i, (kind, to, after) in enumerate(drawn):
        args: dict[str, Any] = {"after": [f"n{k}" for k in (after if few else after[:1])], "name": f"n{i}"}
        if kind == 0:
            g.kernel(MIX, 1, BLOCK, (1, source, arrays[to], BLOCK), **args)
        elif kind == 1:
            g.kernel(MIX, 1, BLOCK, (1, arrays[to], arrays[(to + 1) % 6], BLOCK), **args)
        else:
            g.kernel(PLACE, 1, BLOCK, (arrays[to], BLOCK), **args)
    workflow = g.workflow()
    plan = make_plan(workflow, hg.Target.named(target), batch=True)
    place: dict[str, int] = {}  # of each node's launch, in the order of the plan
    members: dict[int, list[str]] = {}
    launches = 0
    for step in plan.steps:
        if step.batch < 0 or step.batch not in members:
            launches += 1
        if step.batch >= 0:
            assert not members.get(step.batch) or place[members[step.batch][0]] == launches - 1, "a batch is not contiguous"
            members.setdefault(step.batch, []).append(step.name)
        place[step.name] = launches - 1
    for i, before in enumerate(workflow.predecessors):
        assert all(place[workflow.nodes[k].name] < place[workflow.nodes[i].name] for k in before)
    reached = [set[int]() for _ in plan.steps]
    for step in plan.steps:
        sources = {*step.deps} | {d for other in plan.steps if step.batch >= 0 and other.batch == step.batch for d in other.deps}
        together = {
            k for s in sources for k in range(len(plan.steps)) if k == s or plan.steps[s].batch == plan.steps[k].batch >= 0
        }
        reached[step.index] = together.union(*(reached[s] for s in together))
    for i, before in enumerate(workflow.predecessors):  # also where lanes order nothing
        at = plan.index[workflow.nodes[i].name]
        assert all(plan.index[workflow.nodes[k].name] in reached[at] for k in before)


REFUSED = {
    "a function of its module reads blockIdx": "__device__ int f() {return blockIdx.x;} __global__ void k(int *y) { *y = f(); }",
    "it touches variable 'c'": "__constant__ int c; __global__ void k(int *y) { y[0] = c; }",
    "its module speaks of the whole grid": '__global__ void k(int *y) { asm volatile("" ::: "memory"); y[0] = 1; }',
    "a parameter is no plain value": "__global__ void k(int y[]) { y[0] = 1; }",
    "macro 'own' replaces": "#define own y\n__global__ void k(int *y) { own[0] = 1; }",
    "it names itself": "__global__ void k(int *y) { int k = 1; y[0] = k; }",
    "puts names together": "#define J(a, b) a##b\n__global__ void k(int *y) { J(y, )[0] = 1; }",
    "its names are those": "__global__ void k(int *hg_y) { hg_y[0] = 1; }",
    "cannot be told": "__global__ void k(int *y) {\n#define V 1\n y[0] = V;\n#undef V\n}",
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
    program = [Do("mix", i, ARRAYS - 1) for i in range(3)] + [Do("mix", 3 + i, i % 3) for i in range(6)]
    with declared(program).compile(runtime=runtime, backend=backend, batch=True) as exe:
        assert [step.batch for step in exe.plan.steps if step.origin] == [-1] * 3 + [0] * 6
        edges = exe.runtime.graph_get_edges(exe.graph_handle)
        ends = {target for _, target in edges} - {source for source, _ in edges}
        assert len(ends) == 1, "the batch is not one node"
        assert len([source for source, target in edges if target in ends]) == 3


def test_nothing_is_batched_where_a_platform_would_lose_edges() -> None:
    g = declared([Do("mix", i, ARRAYS - 1) for i in range(ARRAYS - 1)])
    target = hg.Target.named("amd:gfx942")
    lossy = replace(target, quirks=target.quirks | {"fan_out_4"})
    assert make_plan(g.workflow(), lossy, batch=True).batches  # one root
    for i in range(5):
        g.kernel(PLACE, 1, BLOCK + i, (g.arrays[f"a{i}"], N))
    plan = make_plan(g.workflow(), lossy, batch=True)
    assert not plan.batches
    assert "Nothing is batched" in plan.explain()
