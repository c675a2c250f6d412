"""Timing, tables and files that all benchmarks share."""

from __future__ import annotations

import argparse
import csv
import gc
import io
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...executable import Executable
from ...runtimes.base import Runtime

_WIDTH_WITHOUT_TERMINAL: Final = 260
_ROUNDS: Final = 10  # turns of each contestant of `race`


Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a `Sheet`: the key of its values in the rows, its title, its meaning, and the formatter of a row's value."""

    key: str
    title: str
    meaning: str = ""
    text: Callable[[Row], str] | None = None

    def of(self, row: Row) -> str:
        """Return the text of a row in this column."""
        value = row.get(self.key)
        if value is None:
            return ""
        if self.text is not None:
            return self.text(row)
        return number(value) if isinstance(value, float) else str(value)


@dataclass
class Sheet:
    """Figures of a benchmark: each row is a mapping; a missing value was not measured.

    The columns are printed; CSV and JSON hold every key of the rows. Notes say what was left out, and why.
    """

    name: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    section: str = ""  # key of a column; Markdown gets a table for each of its values
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def print(self) -> None:
        """Print a table and the notes; in a narrow terminal several tables below each other, so that no cell is cut."""
        console = Console()
        if not console.is_terminal:  # so that lines are not wrapped at 80 columns
            console = Console(width=_WIDTH_WITHOUT_TERMINAL)
        console.print(f"bench {self.name}", style="italic", highlight=False)
        for columns in self._parts(console.width):
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
            for column in columns:
                table.add_column(column.title, justify="right" if self._is_numeric(column) else "left", overflow="fold")
            before = None
            for row in self.rows:
                group = row.get("group", row.get(self.section))
                if before is not None and group != before:
                    table.add_section()
                before = group
                table.add_row(*(Text(column.of(row)) for column in columns))
            console.print(table, "")
        for note in (machine_text(self.machine), *self.notes):
            console.print(note, markup=False, highlight=False)

    def _parts(self, width: int) -> list[list[Column]]:
        """Return the shown columns in parts no wider than `width`; each begins with the columns that say what a row is about."""
        shown = self._shown()
        figures = next((i for i, column in enumerate(shown) if self._is_measured(column)), len(shown))
        keys, left = shown[:figures], 0
        parts: list[list[Column]] = []
        for column in shown[figures:]:
            if not parts or left < self._width(column):
                parts.append([*keys])
                left = width - sum(map(self._width, keys))
            parts[-1].append(column)
            left -= self._width(column)
        return parts or [keys]

    def _width(self, column: Column) -> int:
        """Return the width of a column in a printed table, with the space beside it."""
        return max(map(len, [*column.title.split("\n"), *(column.of(row) for row in self.rows)])) + 2

    def _is_measured(self, column: Column) -> bool:
        return any(isinstance(row.get(column.key), float) for row in self.rows)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _shown(self) -> list[Column]:
        return [column for column in self.columns if any(row.get(column.key) is not None for row in self.rows)]

    def _is_numeric(self, column: Column) -> bool:
        return any(isinstance(row.get(column.key), (int, float)) for row in self.rows)

    def to_json(self) -> str:
        """Return everything as JSON."""
        meanings = {column.key: column.meaning or column.title for column in self.columns}
        data = {"bench": self.name, "machine": self.machine, "columns": meanings, "rows": self.rows, "notes": self.notes}
        return json.dumps(data, indent=1)

    def to_csv(self) -> str:
        """Return the rows as CSV."""
        keys = list(dict.fromkeys(key for row in self.rows for key in row))
        out = io.StringIO()
        writer = csv.DictWriter(out, keys, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """Return the notes as a list, then the rows as one table, or as one collapsible table per section."""
        shown = [column for column in self._shown() if column.key != self.section]
        heads = [column.title.replace("\n", " ") for column in shown]
        rules = ["---:" if self._is_numeric(column) else "---" for column in shown]
        text = "".join([*(f"- {note}\n" for note in self.notes), "\n"] if self.notes else [])
        for name in dict.fromkeys(row.get(self.section) for row in self.rows):
            cells = [[column.of(row) for column in shown] for row in self.rows if row.get(self.section) == name]
            table = "".join(map(_markdown_row, (heads, rules, *cells)))
            text += f"<details><summary>{name}</summary>\n\n{table}\n</details>\n\n" if name else f"{table}\n"
        return text

    def write(self, path: str) -> None:
        """Write CSV or Markdown if the extension is .csv or .md, else JSON."""
        text = self.to_csv() if path.endswith(".csv") else self.to_markdown() if path.endswith(".md") else self.to_json()
        Path(path).write_text(text, encoding="utf-8")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |\n"


def put_section(path: str, figures: Sheet) -> None:
    """Put a table into a Markdown file, in place of that of an earlier run of this benchmark on this device.

    Two comments that name the benchmark and the device enclose it; a new table is appended to the benchmark's section.
    """
    device = figures.machine.get("device") or figures.machine["cpu"]
    key = f"bench {figures.name}: {device}"
    first, last = f"<!-- {key} -->\n", f"<!-- end of {key} -->\n"
    machine = {name: value for name, value in figures.machine.items() if name != "device"}
    body = f"{first}**{device}** ({machine_text(machine)})\n\n{figures.to_markdown()}{last}"
    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    before, found, rest = text.partition(first)
    if found and last in rest:
        file.write_text(before + body + rest.partition(last)[2], encoding="utf-8")
        return
    heading = f"## {figures.name.partition(' ')[0]}\n"
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if not any(section.startswith(heading) for section in sections):
        sections.append(heading)
    made = (f"{section.rstrip()}\n\n{body}" if section.startswith(heading) else section for section in sections if section)
    file.write_text("\n\n".join(section.rstrip("\n") for section in made) + "\n", encoding="utf-8")


def finish(figures: Sheet, args: argparse.Namespace) -> None:
    """Print figures and write them where the options of `add_output_arguments` say."""
    figures.print()
    if args.output:
        figures.write(args.output)
    if args.markdown:
        put_section(args.markdown, figures)


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine(runtime: Runtime | None = None) -> dict[str, Any]:
    """Return a description of this machine, and of a runtime's device."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    found: dict[str, Any] = {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    if runtime is not None:
        name = runtime.get_device_name(runtime.get_device())
        version = ".".join(map(str, runtime.runtime_get_version()))
        found = {
            "device": f"CPU, {model}" if runtime.target.platform == "cpu" else name,
            "runtime": f"{runtime.name} {version}",
            **found,
        }
    return found


def machine_text(info: Mapping[str, Any]) -> str:
    """Return the result of `machine` as one line of text."""
    return ", ".join(str(value) if key in ("cpu", "device") else f"{key} {value}" for key, value in info.items())


def repeat_us(run: Callable[[], Any], repeats: int) -> list[float]:
    """Return the microseconds that each of `repeats` calls took, in order."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(repeats):
        started = clock()
        run()
        times.append((clock() - started) / 1e3)
    return times


class Times(NamedTuple):
    """Microseconds of launches, each from the start of the call: until the call returned, and until the device had finished."""

    submit: list[float]
    total: list[float]

    @property
    def medians(self) -> tuple[float, float]:
        """The medians of `submit` and `total`."""
        return percentile(self.submit, 50), percentile(self.total, 50)


Run = Callable[[int], Times]
"""Launches and waits the given number of times."""


@cache
def clock_us() -> float:
    """Return the microseconds that reading the clock takes, which are part of every interval between two readings."""
    clock = time.perf_counter_ns
    return percentile([(-clock() + clock()) / 1e3 for _ in range(2001)], 50)


def launch_times_us(launch: Callable[[], Any], wait: Callable[[], Any], repeats: int) -> Times:
    """Launch, then wait, `repeats` times; the times exclude the cost of reading the clock."""
    clock = time.perf_counter_ns
    clock_costs_us = clock_us()
    submit, total = [], []
    for _ in range(repeats):
        started = clock()
        launch()
        returned = clock()
        wait()
        done = clock()
        submit.append(max(0.0, (returned - started) / 1e3 - clock_costs_us))
        total.append(max(0.0, (done - started) / 1e3 - clock_costs_us))
    return Times(submit, total)


def launches_of(exe: Executable, launches: int = 1) -> Run:
    """Return a run of an Executable with `launches` launches per wait."""

    def several() -> None:
        for _ in range(launches):
            exe.launch()

    return lambda repeats: launch_times_us(exe.launch if launches == 1 else several, exe.synchronize, repeats)


def race(contestants: Mapping[str, Run | Executable], repeats: int, budget_s: float = 1.0) -> dict[str, Times]:
    """Launch all in turns, `repeats` times each or as often as the budget allows, so that a slow phase affects all of them."""
    runs = {name: launches_of(one) if isinstance(one, Executable) else one for name, one in contestants.items()}
    rounds = min(_ROUNDS, repeats)
    counts = {name: max(1, affordable(budget_s, min(run(2).total), repeats) // rounds) for name, run in runs.items()}
    times = {name: Times([], []) for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            for kept, found in zip(times[name], run(counts[name])):
                kept += found
    return times


def affordable(budget_s: float, each_us: float, most: int) -> int:
    """Return how many calls of `each_us` microseconds fit into the budget, at most `most`."""
    return int(min(most, budget_s * 1e6 / max(each_us, 1.0)))


def percentile(times: Sequence[float], p: float) -> float:
    """Return the p-th percentile, 0 to 100."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, round(p / 100 * (len(ordered) - 1)))]


@contextmanager
def without_gc() -> Iterator[None]:
    """Collect garbage, then disable the collector in the block, so that timings contain no collection."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def resident_bytes() -> int:
    """Return the resident size of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
