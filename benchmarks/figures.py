"""What benchmarks for developers share: figures with an aim, and graphs that are compiled side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from hipgraphdsl.executable import Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.parts.bench.measure import Column, Row, Sheet, number
from hipgraphdsl.runtimes.base import Runtime


def _aim(row: Row) -> str:
    return f"<= {number(row['limit'])}{'' if row['value'] <= row['limit'] else ', missed'}"


_FIGURE = (
    Column("what", "what"),
    Column("value", "measured", text=lambda row: f"{number(row['value'])} {row['unit']}"),
    Column("limit", "aim", text=_aim),
    Column("note", "note"),
)


@dataclass
class Result(Sheet):
    """A sheet of one figure a row: what it is, its value and unit, at most which value the project aims for, and a note."""

    columns: Sequence[Column] = _FIGURE

    def add(self, what: str, value: float, unit: str, limit: float | None = None, note: str = "") -> None:
        """Append a figure."""
        self.rows.append({"what": what, "value": value, "unit": unit, "limit": limit, "note": note})


@contextmanager
def compiled(runtime: Runtime, ways: Mapping[str, tuple[Graph, Mapping[str, Any]]]) -> Iterator[dict[str, Executable]]:
    """Compile each graph with its options, unchecked; all are closed at the end."""
    with ExitStack() as returned:
        yield {
            name: returned.enter_context(graph.compile(runtime=runtime, check=False, **options))
            for name, (graph, options) in ways.items()
        }
