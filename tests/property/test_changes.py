"""Random sequences of set, enable, disable, update and launch, compared with what a new graph would do."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from places import HERE
from property.programs import Step, Values, declared, initial, programs, step_of, with_number
from property.strategies import booleans, integers, sampled_from

import hipgraphdsl as hg

NUMBERED = ("mix", "set", "call", "eager")
ACTIONS = ("set", "enable", "disable", "update", "launch", "launch", "clone", "profile")


class Model:
    """What the Executable should do, and the graph that says the same afresh."""

    def __init__(self, program: list[Step], numbers: list[bool]) -> None:
        self.steps = list(program)
        self.numbers = [use and step.kind in NUMBERED for use, step in zip(numbers, program)]
        self.off: set[int] = set()
        self.values: Values = initial()
        self.number = 5

    def graph(self) -> hg.Graph:
        g: hg.Graph = declared()
        p = g.param("p", "int32", 5)
        for i, step in enumerate(self.steps):
            step.declare(g, f"n{i}", p if self.numbers[i] else None)
        return g

    def run(self) -> None:
        for i, step in enumerate(self.steps):
            if i not in self.off:
                step.apply(self.values, self.number if self.numbers[i] else None)


def same_shape(draw: Any, step: Step) -> Step:
    """Return a step of the same kind, elsewhere or with another number."""
    if draw(booleans()):
        return with_number(step, draw(integers(-9, 9)))
    other: Step = draw(step_of(step.kind))
    return other


def check(exe: hg.Executable, model: Model) -> None:
    for name, wanted in model.values.items():
        assert exe.read(name).tobytes() == wanted.tobytes(), name


def play(data: Any, program: list[Step], runtime: Any, backend: Any, actions: int) -> None:
    draw = data.draw
    model = Model(program, draw(st.lists(booleans(), min_size=len(program), max_size=len(program))))
    with model.graph().compile(runtime=runtime, backend=backend) as exe:
        for _ in range(actions):
            action = draw(sampled_from(ACTIONS))
            i = draw(integers(0, len(program) - 1))
            if action == "set":
                before = model.steps[i]
                model.steps[i] = same_shape(draw, before)
                arrays = exe.workflow.arrays
                number = exe.workflow.parameters["p"] if model.numbers[i] else None
                try:
                    exe.set(f"n{i}", **model.steps[i].fields(dict(arrays), number))
                except hg.UpdateError:  # what it touches is not ordered by the graph's edges
                    model.steps[i] = before
            elif action == "enable":
                exe.enable(f"n{i}")
                model.off.discard(i)
            elif action == "disable":
                exe.disable(f"n{i}")
                model.off.add(i)
            elif action == "update":
                before = model.steps[i]
                model.steps[i] = same_shape(draw, before)
                new = model.graph()
                in_place = hg.explain_update(exe.workflow, new).in_place
                try:
                    exe.update(new, rebuild=draw(booleans()))
                except hg.UpdateError:
                    assert not in_place
                    model.steps[i] = before
            elif action == "clone":
                values = {name: array.copy() for name, array in model.values.items()}
                with exe.clone() as twin:
                    twin.run()
                    model.run()
                    check(twin, model)
                model.values = values
            else:
                given = {}
                if draw(booleans()):
                    given["p"] = model.number = draw(integers(-9, 9))
                if action == "launch":
                    exe.launch(**given)
                else:
                    exe.profile(**given)
                model.run()
        check(exe, model)


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=80)
@given(data=st.data(), program=programs(8))
def test_any_sequence_of_changes_does_what_a_new_graph_does(runtime: str, backend: Any, data: Any, program: list[Step]) -> None:
    play(data, program, runtime, backend, 10)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
@pytest.mark.parametrize("runtime", HERE)
@settings(max_examples=1000)
@given(data=st.data(), program=programs(12))
def test_any_long_sequence_of_changes_does_what_a_new_graph_does(
    runtime: str, backend: Any, data: Any, program: list[Step]
) -> None:
    play(data, program, runtime, backend, 30)
