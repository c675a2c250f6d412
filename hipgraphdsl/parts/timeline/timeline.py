"""Timeline: measured or predicted start and stop times of nodes, with their engines.

`simulation.simulate` predicts a timeline, `Executable.profile` measures one. Both can be printed, `render` returns the usual
table of a pipeline (the nodes that start at each time, one column for each lane), and `Timeline.export` draws them.
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ...arrays import int_from
from ...errors import DeclarationError, HipGraphError, listed
from ...order import longest_path, topological_order
from ...printed import aligned, counted, human_bytes, human_count
from ..ranks.links import per_link
from . import files as timelines

By = Literal["engine", "lane", "segment", "node"]

_DRAWN_SPANS = 300  # maximum number of spans for which a notebook shows a drawing
_SHOWN = 16  # maximum number of ranks, and of links between them, that are printed


@dataclass(frozen=True, slots=True)
class Span:
    """The execution of one node on an engine, or of several nodes that share a launch.

    Attributes
    ----------
    name : str
        The node's name; inside a child graph ``<child>/<node>``. For several nodes, ``"batch of 8: fill_0 … fill_7"``.
    start, stop : float
        In the timeline's unit, from the start of the launch.
    engine : str
        ``"H2D"``, ``"D2H"``, ``"D2D"``, ``"H2H"``, ``"kernel"``, ``"host"``, ...; empty if the node needs none.
        If a graph uses several devices, ``"kernel@1"`` is the kernel engine of device 1.
    lane : int
        The plan's lane.
    kind : str
        The node's kind. For several nodes, ``"batch"`` if they run in parallel, ``"chain"`` if one after another.
    nbytes : int
        Bytes that a copy moves; 0 for other nodes.
    segment : int
        Number of the graph that holds the node, if the host runs steps between several graphs; 0 for host steps, and if there
        is one graph.
    ranks : tuple of int
        In a simulation over several processes: the rank that runs it, the sender and the receiver of a message, or all
        participants of a collective. The engine of a message is ``"link@0->1"``, and ``"host@4"`` is the host of the rank whose
        first device is 4.
    members : tuple of str
        Names of the nodes, if several share the launch.
    origin : str
        In a simulation the node's name, if the span's own name contains the pass of a loop: ``"loop/0/x (pass 1)"``.
    """

    name: str
    start: float
    stop: float
    engine: str = "kernel"
    lane: int = 0
    kind: str = "kernel"
    nbytes: int = 0
    segment: int = 0
    ranks: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    origin: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes, one or several."""
        return self.members or (self.origin or self.name,)

    @property
    def crosses(self) -> bool:
        """Whether it is a message between ranks, or a collective."""
        return self.engine.startswith(("link@", "collective"))

    @property
    def duration(self) -> float:
        """``stop - start``."""
        return self.stop - self.start


class Row(NamedTuple):
    """One row of a chart: spans that do not overlap.

    Attributes
    ----------
    label : str
        The engine, the lane or the node.
    number : int
        Number among the rows of one label, from 0: spans that overlap on one engine take several rows.
    spans : tuple of int
        Positions in `Timeline.spans`, in order of time.
    group : str
        ``"rank 0"`` if there are several ranks, else empty.
    """

    label: str
    number: int
    spans: tuple[int, ...]
    group: str = ""

    @property
    def title(self) -> str:
        """The label, prefixed with the group if there is one."""
        return f"{self.group} {self.label}" if self.group else self.label


class RankTimes(NamedTuple):
    """How one rank spends a launch, in the timeline's unit.

    Attributes
    ----------
    busy : float
        Time in which its own nodes run.
    communicating : float
        Time in which messages or collectives that it takes part in are in flight.
    waiting : float
        Time in which neither is the case.
    """

    busy: float
    communicating: float
    waiting: float


@dataclass(frozen=True)
class Timeline:
    """Spans of one launch.

    Attributes
    ----------
    name : str
        The graph's name.
    unit : {"us", "units"}
        Microseconds, or the arbitrary unit of the durations given to `simulate`.
    spans : tuple of Span
        In order of declaration.
    deps : tuple of tuple of int
        For each span the spans that had to finish first; empty if unknown.
    engines : tuple of (str, int)
        Number of units of each engine; engines that are not listed have no limit.
    """

    name: str
    unit: Literal["us", "units"]
    spans: tuple[Span, ...]
    deps: tuple[tuple[int, ...], ...] = ()
    engines: tuple[tuple[str, int], ...] = field(default=())

    def __post_init__(self) -> None:
        if self.deps and len(self.deps) != len(self.spans):
            raise DeclarationError(f"timeline {self.name!r} has {len(self.spans)} spans and dependencies of {len(self.deps)}")

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __getitem__(self, name: str) -> Span:
        at = self._index.get(name)
        if at is None:
            known = listed(name for span in self.spans for name in span.nodes)
            raise DeclarationError(f"timeline {self.name!r} has no node {name!r}; its nodes are {known}", node=name)
        return self.spans[at]

    @cached_property
    def _index(self) -> dict[str, int]:
        first_last = range(len(self.spans) - 1, -1, -1)
        return {name: i for i in first_last for name in (*self.spans[i].nodes, self.spans[i].name)}

    # -- numbers -------------------------------------------------------------------------------------------------------

    @cached_property
    def start(self) -> float:
        """Start of the first span."""
        return min((s.start for s in self.spans), default=0.0)

    @cached_property
    def makespan(self) -> float:
        """Time from the first start to the last stop."""
        return max((s.stop for s in self.spans), default=0.0) - self.start

    @cached_property
    def sequential(self) -> float:
        """Total time of the spans run one after another; nodes that share a launch count as one span."""
        return math.fsum(s.duration for s in self.spans)

    @property
    def speedup(self) -> float:
        """``sequential / makespan``; 1 for an empty timeline."""
        return self.sequential / self.makespan if self.makespan else 1.0

    @cached_property
    def utilisation(self) -> dict[str, float]:
        """For each engine the fraction of the makespan in which it is busy, 0 to 1; for several units of an engine their mean."""
        limits = dict(self.engines)
        groups: dict[str, list[Span]] = {name: [] for name in limits}
        for span in self.spans:
            if span.engine:
                groups.setdefault(span.engine, []).append(span)
        found = {}
        for engine, spans in groups.items():
            limit = limits.get(engine)
            busy = math.fsum(s.duration for s in spans) / limit if limit else _covered(spans)
            found[engine] = busy / self.makespan if self.makespan else 0.0
        return found

    @property
    def utilisation_by_kind(self) -> dict[str, float]:
        """Like `utilisation`; with several ranks, the mean over each kind of engine, such as ``"kernel"`` or ``"link"``."""
        if len(self.ranks) < 2:
            return self.utilisation
        groups: dict[str, list[float]] = {}
        for engine, part in self.utilisation.items():
            groups.setdefault(engine.partition("@")[0], []).append(part)
        return {kind: math.fsum(parts) / len(parts) for kind, parts in groups.items()}

    @cached_property
    def ranks(self) -> tuple[RankTimes, ...]:
        """For each rank how it spends the launch; empty if the timeline is of one process."""
        own: dict[int, list[Span]] = {}
        crossing: dict[int, list[Span]] = {}
        for span in self.spans:
            for rank in span.ranks:
                (crossing if span.crosses else own).setdefault(rank, []).append(span)
        found = []
        for rank in range(1 + max((*own, *crossing), default=-1)):
            mine, theirs = own.get(rank, []), crossing.get(rank, [])
            found.append(RankTimes(_covered(mine), _covered(theirs), self.makespan - _covered([*mine, *theirs])))
        return tuple(found)

    @cached_property
    def links(self) -> dict[tuple[int, int], tuple[int, int]]:
        """For each (sender, receiver) the number of messages per launch and their total bytes, without collectives."""
        crossing = (((span.ranks[0], span.ranks[1]), span.nbytes) for span in self.spans if span.engine.startswith("link@"))
        return dict(sorted(per_link(crossing).items()))

    @cached_property
    def critical_path(self) -> tuple[Span, ...]:
        """The longest chain of dependent spans: a lower bound of the launch's duration with any number of engines."""
        deps = [sorted(before) for before in self.deps or [()] * len(self.spans)]
        path = longest_path(topological_order(deps), deps, [span.duration for span in self.spans])
        return tuple(self.spans[i] for i in path)

    @cached_property
    def _heads_and_tails(self) -> tuple[list[float], list[float]]:
        """For each span the duration of the longest chain before it and of the longest chain after it, both without the span."""
        count = len(self.spans)
        heads, tails = [0.0] * count, [0.0] * count
        if self.deps:
            order = topological_order(self.deps)
            for i in order:
                heads[i] = max((heads[d] + self.spans[d].duration for d in self.deps[i]), default=0.0)
            for i in reversed(order):
                for d in self.deps[i]:
                    tails[d] = max(tails[d], tails[i] + self.spans[i].duration)
        return heads, tails

    @cached_property
    def bound(self) -> float:
        """Lower bound of the makespan for any order: the critical path, or an engine's work plus what must surround it."""
        heads, tails = self._heads_and_tails
        found = math.fsum(s.duration for s in self.critical_path)
        users: dict[str, list[int]] = {}
        for i, span in enumerate(self.spans):
            if span.duration > 0:
                users.setdefault(span.engine, []).append(i)
        for engine, count in self.engines:
            if mine := users.get(engine):
                work = math.fsum(self.spans[i].duration for i in mine) / count
                found = max(found, min(heads[i] for i in mine) + work + min(tails[i] for i in mine))
        return found

    @property
    def overlap_achieved(self) -> float:
        """Time that overlap saved: ``sequential - makespan``; negative where gaps cost more."""
        return self.sequential - self.makespan

    @property
    def overlap_possible(self) -> float:
        """The most that overlap could save: ``sequential - bound``."""
        return self.sequential - self.bound

    def describe_nodes(self) -> str:
        """Return the number of nodes, and how many share a launch, in words: ``"20 nodes (12 in a batch, 6 in 2 chains)"``."""
        said = []
        for kind, several in (("batch", "batches"), ("chain", "chains")):
            if found := [len(span.members) for span in self.spans if span.members and span.kind == kind]:
                said.append(f"{sum(found)} in {f'a {kind}' if len(found) == 1 else f'{len(found)} {several}'}")
        return counted(sum(len(span.nodes) for span in self.spans), "node") + (f" ({', '.join(said)})" if said else "")

    def describe_overlap(self) -> str:
        """Return in words what overlap saved of what it could: ``"overlap saves 6 of 6 time units possible (100%)"``."""
        possible = self.overlap_possible
        if self.overlap_achieved < 0:
            return f"gaps cost {self.amount(-self.overlap_achieved)} more than overlap saves, of {self.amount(possible)} possible"
        part = f" ({self.overlap_achieved / possible:.0%})" if possible > 0 else ""
        return f"overlap saves {_number(self.overlap_achieved)} of {self.amount(possible)} possible{part}"

    def describe_times(self) -> str:
        """Return in words how long its nodes took, beside the time in sequence: ``"9 nodes in 8 us, in sequence 27 us, ..."``.

        The time in sequence has no gaps between nodes, so a measured launch may take longer; that is not called a speedup.
        """
        said, sequential = f"{self.describe_nodes()} in {self.amount(self.makespan)}", self.amount(self.sequential)
        if self._is_slower:
            return f"{said}, in sequence without gaps {sequential}: no speedup"
        return f"{said}, in sequence {sequential}, speedup {self.speedup:.2f}x"

    @property
    def _is_slower(self) -> bool:
        return round(self.speedup, 2) < 1

    # -- rows ------------------------------------------------------------------------------------------------------------

    def rows(self, by: By = "engine") -> list[Row]:
        """Return the rows of a chart.

        Parameters
        ----------
        by : {"engine", "lane", "segment", "node"}
            What a row represents. By engine, a span without an engine is in the row ``"no engine"`` if it takes time, else in no
            row. By segment, a span outside of all segments is in the row ``"between graphs"``.

        Raises
        ------
        DeclarationError
            If `by` is anything else.
        """
        require_by(by)
        groups: dict[str, dict[str, list[int]]] = {}
        for i, span in enumerate(self.spans):
            if by == "engine" and not span.engine and span.duration <= 0:
                continue
            if len(self.ranks) < 2:
                groups.setdefault("", {}).setdefault(self._label(span, by), []).append(i)
                continue
            for rank in span.ranks:
                label = _met(span, rank) if span.crosses and by != "node" else self._label(span, by)
                groups.setdefault(f"rank {rank}", {}).setdefault(label, []).append(i)
        names = [f"rank {rank}" for rank in range(len(self.ranks)) if f"rank {rank}" in groups] or list(groups)
        return [
            Row(label, number, tuple(track), group)
            for group in names
            for label, members in groups[group].items()
            for number, track in enumerate(self._tracks(members))
        ]

    def _label(self, span: Span, by: By) -> str:
        """Return the label of a span's row within its group."""
        if by == "node":
            return span.name
        if by == "lane":
            return f"lane {span.lane}"
        if by == "segment":
            return f"segment {span.segment}" if span.segment else "between graphs"
        alone = len(self.ranks) > 1 and span.engine in self._alone  # then the device number is redundant
        return (span.engine.partition("@")[0] if alone else span.engine) or "no engine"

    @cached_property
    def _alone(self) -> frozenset[str]:
        """Engines of ranks with one device, whose device number is redundant."""
        devices: dict[int, set[str]] = {}
        for span in self.spans:
            if not span.crosses and "@" in span.engine:
                devices.setdefault(span.ranks[0] if span.ranks else 0, set()).add(span.engine.partition("@")[2])
        return frozenset(
            span.engine for span in self.spans if not span.crosses and span.ranks and len(devices.get(span.ranks[0], ())) < 2
        )

    def _tracks(self, members: Sequence[int]) -> list[list[int]]:
        """Distribute spans over the fewest rows without overlap; each span goes to the lowest free row."""
        tracks: list[list[int]] = []
        free: list[int] = []
        busy: list[tuple[float, int]] = []
        for i in sorted(members, key=lambda i: (self.spans[i].start, self.spans[i].stop)):
            while busy and busy[0][0] <= self.spans[i].start:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                free.append(len(tracks))
                tracks.append([])
            at = heapq.heappop(free)
            tracks[at].append(i)
            heapq.heappush(busy, (self.spans[i].stop, at))
        return tracks

    # -- text ----------------------------------------------------------------------------------------------------------

    def render(self, title: str | None = None) -> str:
        """Return a table of the spans that start at each time, one column for each lane, after the same spans in sequence.

        Parameters
        ----------
        title : str, optional
            The heading; by default the timeline's name.
        """
        shown = [s for s in self.spans if s.duration > 0] or list(self.spans)
        lanes = sorted({s.lane for s in shown})
        column = {lane: i for i, lane in enumerate(lanes)}
        widths = [max(len(s.name) for s in shown if s.lane == lane) for lane in lanes]
        durations = {s.duration for s in shown}
        alike = len({tuple(s.engine for s in shown if s.lane == lane) for lane in lanes}) == 1
        head = f"{'Batches' if alike else 'Lanes'}: {len(lanes)}"
        if len(durations) == 1:
            head += f", Each stage: {self.amount(durations.pop())}"
        lines = [
            f"=== {title or self.name} ===",
            head,
            "",
            "Sequential (no overlap):",
            "".join(f"[{s.name}]" for s in shown),
            f"Total: {self.amount(self.sequential)}",
            "",
            "Pipelined (with streams):",
        ]
        rows: dict[float, dict[int, list[str]]] = {}
        for span in shown:
            at = column[span.lane]
            rows.setdefault(span.start - self.start, {}).setdefault(at, []).append(f"[{span.name:<{widths[at]}}]")
        times = [_number(t) for t in sorted(rows)]
        margin = max(map(len, times), default=0)
        for text, time in zip(times, sorted(rows)):
            cells = rows[time]
            row = [" ".join(cells[i]) if i in cells else " " * (width + 2) for i, width in enumerate(widths[: max(cells) + 1])]
            lines.append(f"t={text}:{' ' * (margin - len(text))} " + " ".join(row).rstrip())
        speedup = "none, because of the gaps between nodes" if self._is_slower else f"{self.speedup:.2f}x"
        lines += [f"Total: {self.amount(self.makespan)}", f"Speedup: {speedup}"]
        return "\n".join(lines)

    def gantt(self, width: int = 72, by: By = "node", rows: int = 40) -> str:
        """Return a chart of bars.

        Parameters
        ----------
        width : int
            Characters of the time axis.
        by : {"engine", "lane", "segment", "node"}
            What a row represents. Spans of one engine that overlap take a row each.
        rows : int
            Maximum number of rows; one more line counts the rest.

        Raises
        ------
        DeclarationError
            If `width` or `rows` is not an int from 1, or `by` is anything else.
        """
        width, rows = int_from(1, width, "gantt: width is an int from 1"), int_from(1, rows, "gantt: rows is an int from 1")
        charted = self.rows(by)
        shown = charted[:rows]
        margin = min(max((len(row.title) for row in shown if not row.number), default=0), 30)
        lines = []
        for row in shown:
            text = "" if row.number else row.title if len(row.title) <= margin else row.title[: margin - 1] + "…"
            spans = [self.spans[i] for i in row.spans]
            amount = f" {self.amount(spans[0].duration)}" if by == "node" else ""
            lines.append(f"{text:<{margin}} │{self._bar(spans, width):<{width}}│{amount}".rstrip())
        if len(charted) > rows:
            lines.append(f"... and {len(charted) - rows} more rows")
        end = self.amount(self.makespan)
        lines.append(f"{'':<{margin}}  0{end:>{max(width - 1, len(end) + 1)}}")
        return "\n".join(lines)

    def _bar(self, spans: Sequence[Span], width: int) -> str:
        """Return one row; a span has at least one mark, and its end is drawn in eighths of a character."""
        row = [" "] * width
        scale = width / self.makespan if self.makespan else 0.0
        for span in sorted(spans, key=lambda s: s.start):
            first = min((span.start - self.start) * scale, width - 1)
            last = min((span.stop - self.start) * scale, float(width))
            at = int(first + 1e-9)
            if span.duration <= 0:
                row[at] = "╵"
                continue
            whole = int(last + 1e-9)
            for i in range(at, whole):
                row[i] = "█"
            eighths = round((last - whole) * 8) if whole < width else 0
            if whole < width and (eighths or whole <= at):
                row[whole] = " ▏▎▍▌▋▊▉█"[max(eighths, 1)]
        return "".join(row)

    def amount(self, value: float) -> str:
        """Return a time with its unit: ``"12.5 us"``, ``"1 time unit"``."""
        text = _number(value)
        if self.unit == "us":
            return f"{text} us"
        return f"{text} time unit{'' if text == '1' else 's'}"

    def __str__(self) -> str:
        return self.text()

    def text(self, columns: int | None = None) -> str:
        """Return the printed form: the times, their bounds, and a chart of bars.

        Parameters
        ----------
        columns : int, optional
            Maximum number of characters of a line of the chart, raised to 40 if it is less; by default there is no limit.
        """
        lines = [f"timeline of {self.name!r}: {self.describe_times()}"]
        if self.deps and self.spans:
            lines.append(
                f"  {self.describe_overlap()};"
                f" critical path {self.amount(math.fsum(s.duration for s in self.critical_path))}:"
                f" {_chain([s.name for s in self.critical_path])}"
            )
        lines += self._told_of_ranks()
        used = {engine: part for engine, part in self.utilisation_by_kind.items() if part}
        if used:
            lines.append("  busy: " + ", ".join(f"{engine} {part:.0%}" for engine, part in used.items()))
        if self.spans:
            by: By = "node" if len(self.spans) <= 40 and len(self.ranks) < 2 else "engine"
            width = 72
            if columns is not None:
                columns = int_from(1, columns, "text: columns is an int from 1, or None")
                beside = max(map(len, self.gantt(width, by).splitlines())) - width
                width = max(10, min(width, max(columns, 40) - beside))
            lines.append(self.gantt(width, by))
        return "\n".join(lines)

    def _told_of_ranks(self) -> list[str]:
        """Return lines on how each rank spends the launch, and on messages and collectives between ranks."""
        if len(self.ranks) < 2:
            return []
        heads = ("", "busy", "communicating", "waiting")
        table = [heads, *((f"rank {rank}", *map(self.amount, times)) for rank, times in enumerate(self.ranks[:_SHOWN]))]
        lines = [f"  {line}" for line in aligned(table, right=range(len(heads)))]
        lines += [f"  ... and {len(self.ranks) - _SHOWN} more ranks"] * (len(self.ranks) > _SHOWN)
        links = list(self.links.items())
        lines += [f"  {a} -> {b}: {human_count(n, 'message')}, {human_bytes(size)}" for (a, b), (n, size) in links[:_SHOWN]]
        lines += [f"  ... and {len(links) - _SHOWN} more links"] * (len(links) > _SHOWN)
        if together := [span.nbytes for span in self.spans if span.engine == "collective"]:
            lines.append(f"  {human_count(len(together), 'collective')} of all ranks, {human_bytes(sum(together))} of each")
        return lines

    def __repr__(self) -> str:
        return f"<{str(self).partition(chr(10))[0]}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show short timelines as a drawing in notebooks if the extra `viz` is installed."""
        bundle = {"text/plain": str(self)}
        if 0 < len(self.spans) <= _DRAWN_SPANS:
            with suppress(HipGraphError):  # without matplotlib the text is shown
                bundle["image/svg+xml"] = str(timelines.render(self, ".svg"))
        return bundle

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the timeline as a file; the extension names the format.

        ===================  ===============================================================================================
        ``.png``, ``.svg``   a chart of bars, with the critical path, the utilisation of engines, and what overlap saves
        ``.html``            the same as one interactive page, which needs no network
        ``.trace.json``      a trace for Perfetto and ``chrome://tracing``: a track for each engine (``by="lane"``: each lane)
        ``.json``            the spans and the numbers (`to_json`)
        ``.txt``             the spans that start at each time (`render`)
        ===================  ===============================================================================================

        Parameters
        ----------
        path : path
        **options
            Options of the format: `by` (``"engine"``, ``"lane"``, ``"node"``) selects what a row represents, `critical` whether
            the critical path is marked; `title` is the heading.

        Raises
        ------
        DeclarationError
            If the format or an option is unknown, a package is missing (the message names it), or the file cannot be written.
        """
        timelines.export_timeline(self, path, **options)

    def to_json(self) -> str:
        """Return the timeline as JSON, one span per line."""
        head: dict[str, Any] = {
            "timeline": self.name,
            "unit": self.unit,
            "makespan": self.makespan,
            "sequential": self.sequential,
            "speedup": self.speedup,
            "critical_path": [s.name for s in self.critical_path],
            "utilisation": self.utilisation,
            "engines": dict(self.engines),
        }
        if self.ranks:
            head["ranks"] = [times._asdict() for times in self.ranks]
            head["links"] = [{"from": a, "to": b, "messages": n, "bytes": size} for (a, b), (n, size) in self.links.items()]
        lines = ["{"] + [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()] + [' "spans": [']
        for i, span in enumerate(self.spans):
            data = {"name": span.name, "start": span.start, "stop": span.stop, "engine": span.engine, "lane": span.lane,
                    "kind": span.kind, "nbytes": span.nbytes}  # fmt: skip
            more = {"segment": span.segment, "ranks": span.ranks, "members": span.members, "origin": span.origin}
            data |= {key: value for key, value in more.items() if value}
            if self.deps:
                data["after"] = [self.spans[d].name for d in self.deps[i]]
            lines.append(f"  {json.dumps(data)}" + ("," if i + 1 < len(self.spans) else ""))
        lines.append(" ]\n}")
        return "\n".join(lines) + "\n"


def _met(span: Span, rank: int) -> str:
    """Return the label of the row of a message or a collective on a participating rank."""
    if not span.engine.startswith("link@"):
        return span.engine
    return f"to {span.ranks[1]}" if rank == span.ranks[0] else f"from {span.ranks[0]}"


def require_by(by: str) -> None:
    """Raise a DeclarationError unless `by` names a kind of row."""
    if by not in ("engine", "lane", "segment", "node"):
        raise DeclarationError(f"by is 'engine', 'lane', 'segment' or 'node' (got {by!r})")


def _number(value: float) -> str:
    """Return a number rounded to its significant digits, without trailing zeros."""
    if value and not 0.0005 <= abs(value) < 1e15:
        return f"{value:.3g}"
    return str(int(value)) if value == int(value) else f"{value:.{1 if abs(value) >= 1000 else 3}f}".rstrip("0").rstrip(".")


def _chain(names: Sequence[str]) -> str:
    return " -> ".join(names if len(names) <= 8 else (*names[:4], "...", *names[-3:]))


def _covered(spans: Sequence[Span]) -> float:
    """Return the total time that the spans cover, counting overlaps once."""
    total, end = 0.0, -math.inf
    for span in sorted(spans, key=lambda s: (s.start, s.stop)):
        total += max(0.0, span.stop - max(span.start, end))
        end = max(end, span.stop)
    return total


def engine_on(engine: str, device: int | None, devices: Sequence[int]) -> str:
    """Return the name of a device's own engine: ``"kernel@1"`` if there are several devices, else `engine` itself."""
    return engine if len(devices) == 1 or device is None or engine in ("", "host", "H2H") else f"{engine}@{device}"
