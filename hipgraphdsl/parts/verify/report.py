"""The findings of `verify`, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ...printed import Printed, counted

Kind = Literal[
    "backend",
    "order",
    "schedule",
    "uninitialised",
    "undeclared write",
    "undeclared read",
    "missing write",
    "out of bounds",
    "race",
    "divergent barrier",
    "reference",
    "failure",
    "unstable",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault that `verify` found.

    Attributes
    ----------
    kind : str
        ``"backend"``: a backend gives other bytes than the serial run. ``"order"``: another topological order does.
        ``"schedule"``: a seeded schedule of the runtime does. ``"uninitialised"``: results depend on the initial values of
        graph memory, or a kernel loads memory that nothing has written.
        ``"undeclared write"``, ``"undeclared read"``: a node accesses bytes that it does not declare. ``"missing write"``: an
        eager or captured node does not write what it declares to write, or no recorded node could.
        ``"out of bounds"``: a node writes before or after an array, or its output depends on memory there.
        ``"race"``: threads of one launch access the same bytes without an order. ``"divergent barrier"``: not all threads of a
        block reach a barrier.
        ``"reference"``: a kernel differs from its NumPy reference. ``"failure"``: a run failed.
        ``"unstable"``: a node is nondeterministic, so that results differ by more than the tolerance in any order.
    message : str
    nodes, arrays : tuple of str
    backend : str
        Empty if none is involved.
    seed : int or None
        Replays an order or a schedule: ``verify(graph, seed=seed, orders=1)``.
    hint : str
    """

    kind: Kind
    message: str
    nodes: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    backend: str = ""
    seed: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" + (f"; {self.hint}" if self.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a dict of plain data."""
        return asdict(self)


@dataclass(frozen=True, repr=False)
class VerifyReport(Printed):
    """What `verify` has run and found.

    Attributes
    ----------
    graph : str
    target : str
        The device that it ran on.
    findings : tuple of Finding
    done : tuple of str
        What was run, as text.
    left_out : tuple of str
        What could not be run, and why.
    seconds : float
    """

    graph: str
    target: str
    findings: tuple[Finding, ...] = ()
    done: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found."""
        return not self.findings

    @property
    def exit_code(self) -> int:
        """0 if nothing was found, else 1."""
        return 0 if self.ok else 1

    def _pieces(self) -> Iterator[tuple[str, str]]:
        said = counted(len(self.findings), "finding") if self.findings else "no difference found"
        yield f"graph {self.graph!r} on {self.target}: {said} ({self.seconds:.1f} s)", "green" if self.ok else "bold red"
        for finding in self.findings:
            yield f"\n  {finding.kind}: {finding.message}", "bold red"
            if finding.hint:
                yield f"\n      {finding.hint}", "green"
        for line in self.done:
            yield f"\n  ran {line}", "dim"
        for line in self.left_out:
            yield f"\n  left out: {line}", "yellow"

    def to_json(self) -> str:
        """Return the report as JSON."""
        head = {"version": 1, "graph": self.graph, "target": self.target, "ok": self.ok}
        return json.dumps({**head, **asdict(self), "seconds": round(self.seconds, 3)}, indent=1)
