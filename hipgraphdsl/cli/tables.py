"""Text and tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..printed import aligned


class _PipedConsole(Console):
    def on_broken_pipe(self) -> None:
        """Let `main` end the program; rich would end it with status 1."""
        raise BrokenPipeError


def columns() -> int | None:
    """Return the width of the terminal; None if there is no terminal."""
    return Console().width if sys.stdout.isatty() else None


def plain_console() -> Console:
    """Return a console that prints text as it is, without wrapping lines."""
    return _PipedConsole(file=sys.stdout, highlight=False, soft_wrap=True)


def print_part(part: Any) -> None:
    """Print text as it is, and a table so that it fits the terminal."""
    if isinstance(part, Table):
        print()
        _PipedConsole(file=sys.stdout, highlight=False).print(part)
    else:
        plain_console().print(part)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], limit: int, right: Sequence[int] = ()) -> Any:
    """Return a table: drawn by rich in a terminal, as aligned text elsewhere, so that no name is ever cut."""
    left_out = len(rows) - limit
    rows = rows[:limit]
    tail = f"... {left_out} more rows (--rows 0 shows all)" if left_out > 0 else ""
    if not sys.stdout.isatty():
        lines = aligned((heads, *rows), right)
        return Text("\n" + "\n".join([*lines, *([tail] if tail else [])]))
    table = Table(box=None, header_style="bold", pad_edge=False, caption=tail or None, caption_justify="left")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i in right else "left", overflow="fold", style="cyan" if i == 0 else None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
