"""Random programs give the same bytes by every backend, in whatever order independent nodes run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from property.programs import Step, Values, built, initial, programs

import hipgraphdsl as hg
from hipgraphdsl.runtimes.cpu import CpuRuntime

BACKENDS: tuple[Any, ...] = ("explicit", "capture", "streams", "serial")


@pytest.fixture(scope="module")
def cpu() -> Iterator[CpuRuntime]:
    try:
        runtime = hg.open_runtime("cpu")
    except hg.RuntimeUnavailable as error:
        pytest.skip(f"runtime 'cpu' lacks its {error.missing}")
    assert isinstance(runtime, CpuRuntime)
    yield runtime
    runtime.set_schedule(0, 0)


def reference(program: list[Step], launches: int) -> Values:
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
def test_all_backends_give_the_bytes_of_numpy(cpu: CpuRuntime, program: list[Step], seed: int, lanes: Any) -> None:
    g, wanted = built(program), reference(program, 3)
    for backend in BACKENDS:
        for mode in (0, 1, 2):
            cpu.set_schedule(seed, mode)
            with g.compile(runtime=cpu, backend=backend, lanes=lanes) as exe:
                for _ in range(3):
                    exe.launch()
                agree(exe, wanted)


@pytest.mark.slow
@settings(max_examples=1000)
@given(program=programs(40), seed=st.integers(0, 2**32), lanes=st.sampled_from(["auto", None, 1, 2, 3]))
def test_long_programs_give_the_bytes_of_numpy(cpu: CpuRuntime, program: list[Step], seed: int, lanes: Any) -> None:
    g, wanted = built(program), reference(program, 2)
    for backend in BACKENDS:
        cpu.set_schedule(seed, 1)
        with g.compile(runtime=cpu, backend=backend, lanes=lanes) as exe:
            exe.launch()
            exe.launch()
            agree(exe, wanted)


@settings(max_examples=30)
@given(first=programs(8), second=programs(8), seed=st.integers(0, 2**32))
def test_a_child_gives_the_bytes_of_its_nodes_in_its_place(
    cpu: CpuRuntime, first: list[Step], second: list[Step], seed: int
) -> None:
    inner, g = built(second), built(first)
    g.child(inner, bind={name: g.arrays[name] for name in inner.arrays}, name="child")
    first[0].declare(g, "last")
    wanted = reference([*first, *second, first[0]], 2)
    for backend in BACKENDS:
        cpu.set_schedule(seed, 1)
        with g.compile(runtime=cpu, backend=backend) as exe:
            exe.launch()
            exe.launch()
            agree(exe, wanted)
