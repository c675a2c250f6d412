"""What check says that kernels reach, compared with what they reach when they run: random control flow and integer types."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hipgraphdsl as hg
from hipgraphdsl.parts.bounds.arithmetic import Base
from hipgraphdsl.parts.bounds.programs import program_of
from hipgraphdsl.parts.bounds.threads import reach_of

MOST = 1 << 15  # accesses of a kernel that are written down
GRID, BLOCK, N, M, HIDDEN = (2, 1, 1), (6, 2, 1), 11, 17, 7
RUN = rf"{{ int at = atomicAdd(count, 1); if (at < {MOST}) places[at] = (long long)(\1); }}"
CHECK = r"x[\1] = 1;"
ACCESS = re.compile(r"^ACCESS\((.*)\)$", re.MULTILINE)
TYPES = ("int", "unsigned", "size_t", "long long", "short", "unsigned char")


class Writer:
    """Writes a kernel; all numbers stay small, so that no signed type overflows."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names: list[list[str]] = [["n", "m"]]
        self.count = 0

    def atom(self) -> str:
        special = ("threadIdx.x", "threadIdx.y", "blockIdx.x", "blockDim.x", "gridDim.x", str(self.draw.randint(0, 9)))
        if self.draw.random() < 0.04:
            return "d[0]"
        return self.draw.choice([*special, *(name for names in self.names for name in names)])

    def expression(self, depth: int = 3) -> str:
        if depth == 0 or self.draw.random() < 0.2:
            return self.atom()
        a, b = (self.expression(depth - 1) for _ in range(2))
        match self.draw.randrange(9):
            case 0 | 1:
                return f"({a} + {b})"
            case 2:
                return f"({a} - {b})"
            case 3:
                return f"({a} * {self.draw.randint(1, 3)})"
            case 4:
                return f"({a} {self.draw.choice(('/', '%', '>>'))} {self.draw.randint(2, 5)})"
            case 5:
                return f"({self.condition(1)} ? {a} : {b})"
            case 6:
                return f"(({self.draw.choice(TYPES)})({a}))"
            case 7:
                return f"({a} {self.draw.choice('&|^')} {b})"
            case _:
                return f"min((int)({a}), (int)({b}))"

    def condition(self, depth: int = 2) -> str:
        compared = f"{self.expression(depth)} {self.draw.choice(('<', '<=', '>', '>=', '==', '!='))} {self.expression(depth)}"
        if depth and self.draw.random() < 0.3:
            return f"({compared} {self.draw.choice(('&&', '||'))} {self.condition(depth - 1)})"
        return f"!({compared})" if self.draw.random() < 0.1 else f"({compared})"

    def name(self, declared: bool = True) -> str:
        self.count += 1
        if declared:
            self.names[-1].append(f"v{self.count}")
        return f"v{self.count}"

    def block(self, depth: int, loops: int) -> str:
        self.names.append([])
        text = "".join(self.statement(depth, loops) for _ in range(self.draw.randint(1, 4)))
        self.names.pop()
        return f"{{\n{text}}}\n"

    def statement(self, depth: int, loops: int) -> str:
        kind = self.draw.randrange(10 if depth else 5)
        if kind < 2:
            return f"ACCESS({self.expression()})\n"
        if kind == 2:
            value = self.expression()
            return f"{self.draw.choice(TYPES)} {self.name()} = {value};\n"
        if kind == 3:
            own = [name for names in self.names[1:] for name in names]
            if not own:
                return f"ACCESS({self.expression(1)})\n"
            operator = self.draw.choice(("=", "=", "+=", "^="))
            target = self.draw.choice(own)
            return f"{target} {operator} ({self.expression(2)}) % 53; {target} %= 101;\n"
        if kind == 4:
            leave = self.draw.choice(("return", "break", "continue") if loops else ("return",))
            return f"if ({self.condition()}) {leave};\n" if self.draw.random() < 0.5 else f"ACCESS({self.expression()})\n"
        if kind < 8 or loops > 1:
            other = f"else {self.block(depth - 1, loops)}" if self.draw.random() < 0.5 else ""
            return f"if ({self.condition()}) {self.block(depth - 1, loops)}{other}"
        # What a loop counts is not assigned in it, so that it ends.
        first, last = (f"(int)(({self.expression(1)}) % 30)" for _ in range(2))
        counter, step = self.name(declared=False), self.draw.randint(1, 3)
        kind_of = self.draw.choice(("int", "unsigned", "long long"))
        body = self.block(depth - 1, loops + 1).replace("{\n", f"{{\nACCESS({counter} + {self.atom()})\n", 1)
        if kind_of == "unsigned":
            return f"for (unsigned {counter} = (unsigned)({first}) % 40; {counter} < {last} % 40u; {counter} += {step}) {body}"
        if self.draw.random() < 0.4:
            return f"for ({kind_of} {counter} = {first}; {counter} >= {last}; {counter} -= {step}) {body}"
        return f"for ({kind_of} {counter} = {first}; {counter} <= {last}; {counter} += {step}) {body}"

    def kernel(self, name: str) -> str:
        body = "".join(self.statement(3, 0) for _ in range(6))
        return (
            f'extern "C" __global__ void {name}(int* x, const int* d, int n, unsigned m, long long* places, int* count) {{\n'
            f"{body}}}\n"
        )


def compare(seeds: Sequence[int]) -> tuple[int, int]:
    """Run a kernel of each seed; return how many furthest accesses there are, and how many of them are noted."""
    source = "".join(Writer(seed).kernel(f"k{seed}") for seed in seeds)
    # What an optimizer does is not the point here, and -O3 takes twice as long.
    run, check = (hg.Module(ACCESS.sub(access, source), options=["-O1"]) for access in (RUN, CHECK))
    g = hg.Graph("run")
    x, d = g.device_array("x", shape=1, dtype="int32"), g.device_array("d", np.array([HIDDEN], "int32"))
    for seed in seeds:
        places = g.device_array(f"places{seed}", np.zeros(MOST, "int64"))
        count = g.device_array(f"count{seed}", np.zeros(1, "int32"))
        g.kernel(run[f"k{seed}"], GRID, BLOCK, (x, hg.reads(d), N, M, places, count))
    noted = furthest = 0
    with g.compile(runtime="cpu", backend="serial", check=False) as exe:
        exe.launch()
        for seed in seeds:
            program = program_of(check[f"k{seed}"])
            if program is None:  # longer than what is read
                continue
            reach = reach_of(program, GRID, BLOCK, (None, None, N, M, None, None))
            made = int(exe.read(f"count{seed}")[0])
            if made > MOST:
                continue
            indices = {int(i) for i in exe.read(f"places{seed}")[:made]}
            base = Base("argument", "x")
            if not indices:
                assert base not in reach.highest, f"k{seed}"
                continue
            for witnesses, end in ((reach.lowest, min(indices)), (reach.highest, max(indices))):
                noted += 1
                if base in witnesses:
                    index = witnesses[base].start // 4
                    assert index in indices, f"k{seed}: x[{index}] is noted and not reached"
                    furthest += index == end
    return noted, furthest


@pytest.mark.parametrize("kernels", [10, pytest.param(30, marks=pytest.mark.slow)])
def test_noted_accesses_are_made_and_often_the_furthest(kernels: int) -> None:
    noted, furthest = compare(range(kernels))
    assert noted > kernels
    assert furthest > 0.3 * noted, f"{furthest} of {noted}"  # many depend on what memory holds


def places(kernel: hg.Kernel, door: str) -> list[str]:
    """Return the threads and accesses that are reported where a launch has its values from literals, defaults or a parent."""

    def add(g: hg.Graph, grid: Any, n: Any, m: Any) -> None:
        x, d = g.device_array("x", shape=4, dtype="int32"), g.device_array("d", np.array([HIDDEN], "int32"))
        g.kernel(kernel, (grid, *GRID[1:]), BLOCK, (x, hg.reads(d), n, m, None, None), name="k")

    def parameters(g: hg.Graph, defaults: tuple[int | None, ...]) -> tuple[Any, ...]:
        types = ("int32", "int32", "uint32")
        return tuple(g.param(name, dtype, default) for name, dtype, default in zip(("grid", "n", "m"), types, defaults))

    g, values = hg.Graph("bounds"), (GRID[0], N, M)
    if door == "literals":
        add(g, *values)
    elif door == "defaults":
        add(g, *parameters(g, values))
    else:
        child = hg.Graph("inner")
        own = parameters(child, (1, None, None))
        add(child, *own)
        g.child(child, bind={p.name: given for p, given in zip(own, parameters(g, values))}, name="child")
    found = [d.message for d in g.check().diagnostics if d.code == "HG409"]
    return [message.partition(": ")[2].partition("; with the default")[0] for message in found]


def test_defaults_of_parameters_are_judged_as_literals_are() -> None:
    source = "".join(Writer(seed).kernel(f"k{seed}") for seed in range(30))
    module = hg.Module(ACCESS.sub(CHECK, source))
    reported = 0
    for seed in range(30):
        expected = places(module[f"k{seed}"], "literals")
        reported += len(expected)
        for door in ("defaults", "parent"):
            assert places(module[f"k{seed}"], door) == expected, f"k{seed}, {door}"
    assert reported > 15
