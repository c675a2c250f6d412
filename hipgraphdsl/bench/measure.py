"""Timing, tables and files that all benchmarks share."""

from __future__ import annotations

import csv
import gc
import io
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from rich.console import Console
from rich.table import Table

__all__ = ["Result", "Row", "machine", "median_us", "percentile", "repeat_us", "resident_bytes", "without_gc"]


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes
    ----------
    what : str
    value : float
    unit : str
        ``"us"``, ``"us/node"``, ``"x"`` (a ratio), ``"bytes/node"``, ...
    limit : float or None
        The figure that the project aims for, at most.
    note : str
    """

    what: str
    value: float
    unit: str
    limit: Optional[float] = None
    note: str = ""

    @property
    def reached(self) -> Optional[bool]:
        """Whether the aim is met; None where there is none."""
        return None if self.limit is None else self.value <= self.limit


@dataclass
class Result:
    """The figures of one run and the machine that they were taken on."""

    name: str
    rows: list[Row] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def add(self, what: str, value: float, unit: str, limit: Optional[float] = None, note: str = "") -> None:
        """Append a figure."""
        self.rows.append(Row(what, value, unit, limit, note))

    def print(self, console: Optional[Console] = None) -> None:
        """Print a table."""
        table = Table(title=f"bench {self.name}", title_justify="left", caption=machine_text(self.machine), caption_justify="left")
        for column, justify in (("what", "left"), ("measured", "right"), ("aim", "right"), ("", "left"), ("note", "left")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]  # rich's own literals
        for row in self.rows:
            mark = {True: "[green]ok[/]", False: "[red]missed[/]", None: ""}[row.reached]
            aim = "" if row.limit is None else f"<= {number(row.limit)}"
            table.add_row(row.what, f"{number(row.value)} {row.unit}", aim, mark, row.note)
        (console or Console()).print(table)

    def to_json(self) -> str:
        """Return the figures as JSON."""
        return json.dumps({"bench": self.name, "machine": self.machine, "rows": [asdict(row) for row in self.rows]}, indent=1)

    def to_csv(self) -> str:
        """Return the figures as CSV."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["what", "value", "unit", "limit", "note"])
        writer.writerows([r.what, r.value, r.unit, "" if r.limit is None else r.limit, r.note] for r in self.rows)
        return out.getvalue()

    def write(self, path: str) -> None:
        """Write JSON or CSV, as the extension says."""
        Path(path).write_text(self.to_csv() if path.endswith(".csv") else self.to_json())


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Return what a reader needs to know of this machine."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def machine_text(info: dict[str, Any]) -> str:
    """Return `machine` in a line."""
    return ", ".join(str(value) if key == "cpu" else f"{key} {value}" for key, value in info.items())


def repeat_us(run: Callable[[], Any], repeats: int) -> list[float]:
    """Return the microseconds that each of `repeats` calls took, in order."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(repeats):
        started = clock()
        run()
        times.append((clock() - started) / 1e3)
    return times


def percentile(times: Sequence[float], p: float) -> float:
    """Return the p-th percentile, 0 to 100."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, round(p / 100 * (len(ordered) - 1)))]


def median_us(run: Callable[[], Any], repeats: int) -> float:
    """Return the median microseconds of a call."""
    return percentile(repeat_us(run, repeats), 50)


class without_gc:  # noqa: N801  # reads like a statement
    """Hold the garbage collector off, so that a timing does not contain the sweep of what others left."""

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            gc.enable()


def resident_bytes() -> int:
    """Return the resident size of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
