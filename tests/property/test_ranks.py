"""Random programs over several ranks give the bytes of one process, whatever crosses between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from property.programs import MODULE, NAMES, Step, initial, programs
from property.programs import declared as any_ranks
from thread_ranks import on_ranks

import hipgraphdsl as hg

BACKENDS = ("explicit", "capture", "streams", "serial")


@st.composite
def layouts(draw: Any) -> tuple[int, dict[str, int]]:
    """Return how many ranks there are, and which of them has each array."""
    size = draw(st.integers(2, 4))
    return size, {name: draw(st.integers(0, size - 1)) for name in NAMES}


def possible(program: list[Step], owners: dict[str, int]) -> list[Step]:
    """Return a program in which only copies reach arrays of two ranks."""
    return [step if owners[step.to[0]] == owners[step.origin[0]] else _crossing(step) for step in program]


def _crossing(step: Step) -> Step:
    """Return a copy in the place of a step, or a memset where no copy can do it."""
    try:
        replace(step, kind="copy").declare(any_ranks(), "trial")
    except hg.DeclarationError:
        return replace(step, kind="set")
    return replace(step, kind="copy")


@dataclass(frozen=True)
class Held:
    """Steps from `first` to before `end` that a child holds, or a conditional node that runs them `times` times."""

    first: int
    end: int
    kind: str
    times: int


@st.composite
def held_steps(draw: Any) -> list[Held]:
    """Return which steps of a program are held, one after the other."""
    found, first = [], 0
    for _ in range(draw(st.integers(0, 3))):
        first += draw(st.integers(0, 3))
        end = first + draw(st.integers(1, 5))
        kind = draw(st.sampled_from(("child", "while", "if", "switch")))
        times = 1 if kind == "child" else draw(st.integers(0, 3 if kind == "while" else 1))
        found.append(Held(first, end, kind, times))
        first = end
    return found


def hold(g: hg.Graph, held: Held, program: list[Step], owners: dict[str, int]) -> None:
    """Declare the steps that a node holds, with arrays of their own names, and the node."""
    inner = hg.Graph("inner")
    for name, values in initial().items():
        if name in ("h", "k"):
            inner.host_array(name, shape=values.shape, dtype=values.dtype)
        else:
            inner.device_array(name, shape=values.shape, dtype=values.dtype)
    for i in range(held.first, min(held.end, len(program))):
        program[i].declare(inner, f"n{i}")
    bind: dict[str, Any] = {name: g.arrays[name] for name in NAMES}
    if held.kind == "child":
        g.child(inner, bind=bind, name=f"held_{held.first}")
        return
    word = g.device_array(f"word_{held.first}", shape=1, dtype="int32", device=owners[NAMES[held.first % len(NAMES)]])
    g.memset(word, held.times if held.kind != "switch" else 1 - held.times, name=f"start_{held.first}")
    if held.kind == "while":
        left = inner.device_array("left", shape=1, dtype="int32")
        inner.kernel(MODULE["less"], 1, 1, (left,), name="less")
        bind["left"] = word
    g.conditional(held.kind, word, inner, bind=bind, name=f"held_{held.first}")  # type: ignore[arg-type]


def declared(program: list[Step], owners: dict[str, int], order: list[tuple[int, int]], held: Sequence[Held] = ()) -> hg.Graph:
    """Declare the program on arrays of several ranks, with plain edges from some nodes to later ones, and joins on the way."""
    g = hg.Graph("ranked")
    for name, values in initial().items():
        if name in ("h", "k"):
            g.host_array(name, values, rank=owners[name])
        else:
            g.device_array(name, values, device=owners[name])
    inside = {i: node for node in held for i in range(node.first, min(node.end, len(program)))}
    for i, step in enumerate(program):
        if i in inside:
            if i == inside[i].first:
                hold(g, inside[i], program, owners)
            continue
        step.declare(g, f"n{i}")
        for before, behind in order:
            if behind % len(program) == i and before % len(program) < i and before % len(program) not in inside:
                if (before + behind) % 2:
                    g.order(f"n{before % len(program)}", f"n{i}")
                else:
                    g.empty(name=f"join_{before}_{behind}_{i}", after=[f"n{before % len(program)}", f"n{i}"])
    return g


@given(
    layout=layouts(),
    program=programs(),
    order=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4, unique=True),
    backend=st.sampled_from(BACKENDS),
    held=held_steps(),
    lanes=st.sampled_from(["auto", 1, None]),
    off=st.sets(st.integers(0, 20), max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_ranks_give_the_bytes_of_one_process(
    layout: tuple[int, dict[str, int]],
    program: list[Step],
    order: list[tuple[int, int]],
    backend: Any,
    held: list[Held],
    lanes: Any,
    off: set[int],
) -> None:
    """Once as it is declared, and once with some nodes disabled."""
    size, owners = layout
    program = possible(program, owners)
    values = initial()
    times = {i: node for node in held for i in range(node.first, node.end)}
    disabled = {
        i for i, step in enumerate(program) if i in off and i not in times and owners[step.to[0]] == owners[step.origin[0]]
    }
    for skipped in (set[int](), disabled):
        for i, step in enumerate(program):
            if i not in times:
                if i not in skipped:
                    step.apply(values)
            elif i == times[i].first:
                for _ in range(times[i].times):
                    for inner in program[i : times[i].end]:
                        inner.apply(values)

    def run(ranks: hg.Ranks) -> Any:
        with declared(program, owners, order, held).compile("cpu", backend, lanes=lanes, ranks=ranks) as exe:
            exe.run()
            for i in sorted(disabled):
                exe.disable(f"n{i}")
            exe.run()
            own = {name: exe.read(name) for name in NAMES if owners[name] == ranks.rank}
            return own, exe.gather(*NAMES, root=size - 1)

    found = on_ranks(size, run)
    for rank, (own, gathered) in enumerate(found):
        for name, array in own.items():
            np.testing.assert_array_equal(array, values[name], err_msg=name)
        assert (gathered is None) == (rank < size - 1)
    for name, array in zip(NAMES, found[-1][1]):
        np.testing.assert_array_equal(array, values[name], err_msg=name)
