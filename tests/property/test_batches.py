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
    grid = (draw(st.integers(1, 3)), 1, 1) if kind == "mix" else (draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
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


def play(data: Any, runtime: str, backend: Any, actions: int) -> None:
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
                program[i] = replace(before, number=draw(st.one_of(st.none(), st.integers(-9, 9))), grid=draw(nodes(before.kind)).grid)
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
def test_batched_launches_do_what_they_do_one_by_one(runtime: str, backend: Any, data: Any) -> None:
    play(data, runtime, backend, 8)


@pytest.mark.parametrize("runtime", HERE)
def test_nodes_that_wait_for_the_same_are_one_launch(runtime: str) -> None:
    with declared([Do("mix", i, ARRAYS - 1) for i in range(ARRAYS - 1)] * 2).compile(runtime=runtime, batch=True) as exe:
        assert [step.batch for step in exe.plan.steps] == [0] * (ARRAYS - 1) + [1] * (ARRAYS - 1)
        assert len(exe.plan.lanes) == 1
        assert "22 kernel nodes become 2 launches" in exe.plan.explain()
