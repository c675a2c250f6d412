"""Reports that print as plain text, with rich's styles and in notebooks; human-readable sizes and counts, aligned rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any


class Printed(ABC):
    """Base of reports: a subclass yields its text in pieces, each with a style of rich."""

    __slots__ = ()

    @abstractmethod
    def _pieces(self) -> Iterator[tuple[str, str]]: ...

    def __str__(self) -> str:
        return "".join(text for text, _ in self._pieces())

    def __rich__(self) -> Any:
        from rich.text import Text  # imported only if rich prints the report

        return Text.assemble(*self._pieces())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self)}


def human_bytes(nbytes: int) -> str:
    """Return a size in binary units: ``"512 B"``, ``"4 MiB"``, ``"1.5 GiB"``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1023.95 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}" if unit != "B" else f"{nbytes} B"


def counted(n: int, what: str) -> str:
    """Return a number with its noun: ``"1 node"``, ``"2000 nodes"``."""
    return f"{n} {what}{'s' * (n != 1)}"


def human_count(n: int, what: str) -> str:
    """Return a number, with groups of three digits, and its noun: ``"2 000 nodes"``."""
    return f"{n:,} {what}{'s' * (n != 1)}".replace(",", " ")


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns; the columns `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [[cell.rjust(n) if i in right else cell.ljust(n) for i, (cell, n) in enumerate(zip(row, widths))] for row in rows]
    return ["  ".join(line).rstrip() for line in lines]


def short(value: Any, most: int = 40) -> str:
    """Return a value as text of at most `most` characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
