"""Random programs over several ranks give the bytes of one process, whatever crosses between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from property.programs import NAMES, Step, initial, programs
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


def declared(program: list[Step], owners: dict[str, int], order: list[tuple[int, int]]) -> hg.Graph:
    """Declare the program on arrays of several ranks, with plain edges from some nodes to later ones, and joins on the way."""
    g = hg.Graph("ranked")
    for name, values in initial().items():
        if name in ("h", "k"):
            g.host_array(name, values, rank=owners[name])
        else:
            g.device_array(name, values, device=owners[name])
    for i, step in enumerate(program):
        step.declare(g, f"n{i}")
        for before, behind in order:
            if behind % len(program) == i and before % len(program) < i:
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
    lanes=st.sampled_from(["auto", 1, None]),
)
@settings(max_examples=60, deadline=None)
def test_ranks_give_the_bytes_of_one_process(
    layout: tuple[int, dict[str, int]], program: list[Step], order: list[tuple[int, int]], backend: Any, lanes: Any
) -> None:
    size, owners = layout
    program = possible(program, owners)
    values = initial()
    for _ in range(2):
        for step in program:
            step.apply(values)

    def run(ranks: hg.Ranks) -> Any:
        with declared(program, owners, order).compile("cpu", backend, lanes=lanes, ranks=ranks) as exe:
            exe.run()
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
