"""``hipgraphdsl bench build``: what declaring, checking, planning, compiling and loading cost a node, against another checkout.

Processor time of processes that take turns, one for each checkout, with Python's garbage collector as users have it. No GPU is
needed: graphs are compiled for the recorder, or the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hipgraphdsl.cli.arguments import positive
from hipgraphdsl.parts.bench.arguments import add_output_arguments, add_repeats, repeats_of
from hipgraphdsl.parts.bench.measure import Column, Sheet, finish, percentile

SHAPES: Final = ("chain", "layers", "halos", "decoder", "independent")
PHASES: Final = ("declare", "check", "plan", "compile", "second", "load")
"""The second compile is that of another graph of the same shape while the first one's Executable is open."""

_OWN: Final = Path(__file__).resolve().parents[1]
_COLUMNS: Final = (
    Column("shape", "shape"),
    Column("nodes", "nodes"),
    Column("phase", "phase"),
    Column("us", "us/node", "processor time, microseconds a node, median over the rounds"),
    Column("base_us", "against\nus/node", "the same of the other checkout"),
    Column("ratio", "ratio", "the one to the other, median over the rounds"),
    Column("ratios", "from, to", "the least and the largest ratio of a round"),
)


Figures = dict[str, dict[str, float]]
"""Microseconds a node, by shape and phase."""


def measured(checkout: Path, **asked: Any) -> Figures:
    """Return what a new process with this checkout's hipgraphdsl measures; `asked` is what `benchmarks.phases` reads."""
    done = subprocess.run(
        [sys.executable, str(_OWN / "benchmarks" / "phases.py"), json.dumps(asked)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def run(
    against: Path | None,
    nodes: int,
    shapes: Sequence[str] = SHAPES,
    phases: Sequence[str] = PHASES,
    rounds: int = 5,
    repeats: int = 5,
    runtime: str = "recorder",
) -> Sheet:
    """Measure every shape and phase, in turns with another checkout if one is given."""
    checkouts = [_OWN] if against is None else [_OWN, against]
    found: list[list[Figures]] = [[] for _ in checkouts]
    for number in range(rounds):
        turns = list(zip(checkouts, found))
        for checkout, kept in turns if number % 2 else turns[::-1]:
            kept.append(measured(checkout, nodes=nodes, shapes=shapes, phases=phases, repeats=repeats, runtime=runtime))
    sheet = Sheet("build", _COLUMNS, section="shape")
    for shape in shapes:
        for phase in phases:
            times = [[each[shape][phase] for each in kept] for kept in found]
            row: dict[str, Any] = {"shape": shape, "group": shape, "nodes": nodes, "phase": phase, "us": percentile(times[0], 50)}
            if against is not None:
                ratios = [own / other for own, other in zip(*times)]
                row["base_us"], row["ratio"] = percentile(times[1], 50), percentile(ratios, 50)
                row["ratios"] = f"{min(ratios):.2f}, {max(ratios):.2f}"
            sheet.rows.append(row)
    return sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="also measure this checkout, in turns")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only this one; may be repeated")
    parser.add_argument("--phase", action="append", choices=PHASES, help="only this one; may be repeated")
    parser.add_argument("--runtime", choices=("recorder", "cpu"), default="recorder", help="what compiles (default: recorder)")
    parser.add_argument("--nodes", type=positive, default=1000, metavar="N", help="nodes of each graph (default: 1000)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="processes of each checkout (default: 5)")
    add_repeats(parser, 5, 2, "each phase in one process, of which the fastest counts", what="times")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    phases = args.phase or PHASES
    finish(run(args.against, args.nodes, args.shape or SHAPES, phases, args.rounds, repeats_of(args), args.runtime), args)
    return 0
