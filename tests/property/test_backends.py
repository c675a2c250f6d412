"""Random programs give the same bytes by every backend, in whatever order independent nodes run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, reject, settings
from places import HERE
from property.programs import Block, Part, Step, Values, blocks, built, declared, initial, programs, steps

import hipgraphdsl as hg
from hipgraphdsl.parts.cpu.runtime import CpuRuntime

BACKENDS: tuple[Any, ...] = ("explicit", "capture", "streams", "serial")


class Place:
    """A runtime, and the schedules that it can be made to follow."""

    def __init__(self, name: str) -> None:
        self.runtime = hg.open_runtime(name)
        self.schedules = (0, 1, 2) if isinstance(self.runtime, CpuRuntime) else (0,)

    def schedule(self, seed: int, mode: int) -> None:
        """Mode 1 runs nodes in a random order that the edges allow, mode 2 with random delays."""
        if isinstance(self.runtime, CpuRuntime):
            self.runtime.set_schedule(seed, mode)


@pytest.fixture(scope="module", params=HERE)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(request.param)
    yield place
    place.schedule(0, 0)


def reference(program: Sequence[Part], launches: int) -> Values:
    values = initial()
    for _ in range(launches):
        for step in program:
            step.apply(values)
    return values


def agree(exe: hg.Executable, values: Values) -> None:
    for name, wanted in values.items():
        assert exe.read(name).tobytes() == wanted.tobytes(), name


@settings(max_examples=60)
@given(program=programs(), seed=st.integers(0, 2**32), lanes=st.sampled_from(["auto", None, 1, 2, 3]))
def test_all_backends_give_the_bytes_of_numpy(place: Place, program: list[Step], seed: int, lanes: Any) -> None:
    g, wanted = built(program), reference(program, 3)
    for backend in BACKENDS:
        for mode in place.schedules:
            place.schedule(seed, mode)
            with g.compile(runtime=place.runtime, backend=backend, lanes=lanes) as exe:
                for _ in range(3):
                    exe.launch()
                agree(exe, wanted)


@settings(max_examples=40)
@given(
    program=programs(),
    seed=st.integers(0, 2**32),
    lanes=st.sampled_from(["auto", None, 1, 2]),
    devices=st.tuples(*[st.integers(0, 2)] * 3),
)
def test_devices_share_a_program_and_give_the_bytes_of_numpy(
    place: Place, program: list[Step], seed: int, lanes: Any, devices: tuple[int, int, int]
) -> None:
    runtime = place.runtime
    before = runtime.get_device_count()
    if isinstance(runtime, CpuRuntime):
        runtime.set_device_count(3)
    elif before < 2:
        pytest.skip(f"runtime {runtime.name!r} has {before} device, and two are needed")
    count = runtime.get_device_count()
    g = built(program, devices=tuple(d % count for d in devices))
    wanted = reference(program, 3)
    try:
        for backend in BACKENDS:
            place.schedule(seed, 1)
            with g.compile(runtime=runtime, backend=backend, lanes=lanes) as exe:
                for _ in range(3):
                    exe.launch()
                agree(exe, wanted)
    finally:
        if isinstance(runtime, CpuRuntime):
            runtime.set_device_count(before)


@pytest.mark.slow
@settings(max_examples=1000)
@given(program=programs(40), seed=st.integers(0, 2**32), lanes=st.sampled_from(["auto", None, 1, 2, 3]))
def test_long_programs_give_the_bytes_of_numpy(place: Place, program: list[Step], seed: int, lanes: Any) -> None:
    g, wanted = built(program), reference(program, 2)
    for backend in BACKENDS:
        place.schedule(seed, 1)
        with g.compile(runtime=place.runtime, backend=backend, lanes=lanes) as exe:
            exe.launch()
            exe.launch()
            agree(exe, wanted)


@settings(max_examples=30)
@given(first=programs(8), second=programs(8), seed=st.integers(0, 2**32))
def test_a_child_gives_the_bytes_of_its_nodes_in_its_place(
    place: Place, first: list[Step], second: list[Step], seed: int
) -> None:
    inner, g = built(second), built(first)
    g.child(inner, bind={name: g.arrays[name] for name in inner.arrays}, name="child")
    first[0].declare(g, "last")
    wanted = reference([*first, *second, first[0]], 2)
    for backend in BACKENDS:
        place.schedule(seed, 1)
        with g.compile(runtime=place.runtime, backend=backend) as exe:
            exe.launch()
            exe.launch()
            agree(exe, wanted)


def nested(deep: int, most: int) -> st.SearchStrategy[list[Part]]:
    part: st.SearchStrategy[Part] = steps() | blocks(deep)
    return st.lists(part, min_size=1, max_size=most).filter(lambda parts: any(isinstance(p, Block) for p in parts))


def agree_nested(place: Place, backend: Any, program: list[Part], seed: int, lanes: Any) -> None:
    """Launch twice by each schedule, in an order that the seed decides: what is compiled is the same for all of them."""
    g, values = declared(), initial()
    for i, part in enumerate(program):
        part.declare(g, f"n{i}")
    if not place.runtime.target.conditional_nodes and any(d.code == "HG507" for d in g.check(place.runtime.target).errors):
        reject()
    first = seed % len(place.schedules)
    place.schedule(seed, place.schedules[first])
    with g.compile(runtime=place.runtime, backend=backend, lanes=lanes) as exe:
        for mode in (*place.schedules[first:], *place.schedules[:first]):
            place.schedule(seed, mode)
            for _ in range(2):
                exe.launch()
                for part in program:
                    part.apply(values)
            agree(exe, values)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30)
@given(program=nested(2, 5), seed=st.integers(0, 2**32), lanes=st.sampled_from(["auto", None, 1, 2]))
def test_conditional_nodes_give_the_bytes_of_numpy_whoever_decides(
    place: Place, backend: Any, program: list[Part], seed: int, lanes: Any
) -> None:
    agree_nested(place, backend, program, seed, lanes)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu"], indirect=True)  # a GPU's driver takes long to instantiate them; it has those above
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=500)
@given(program=nested(3, 9), seed=st.integers(0, 2**32), lanes=st.sampled_from(["auto", None, 1, 2]))
def test_deep_conditional_nodes_give_the_bytes_of_numpy(
    place: Place, backend: Any, program: list[Part], seed: int, lanes: Any
) -> None:
    agree_nested(place, backend, program, seed, lanes)
