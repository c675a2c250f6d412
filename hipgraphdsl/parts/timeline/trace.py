"""Trace events: a timeline for Perfetto (ui.perfetto.dev), ``chrome://tracing`` and tools that read their JSON.

The format is the JSON object form of Google's "Trace Event Format". Times are microseconds from the first start, rounded to
nanoseconds, so that readers that count in nanoseconds see no spurious overlap. For a timeline in arbitrary units, one unit
becomes one microsecond, or ten, a hundred, ... if its spans are shorter; ``otherData.us_per_unit`` gives the factor. Each
event is one line, in order of time. (This module also renders a timeline's own JSON and text files.)

======  =========================================================================================================
``M``   names and order of the tracks: one per row of `Timeline.rows`, so that no two spans of a track overlap; with several
        ranks, each rank is a process of the trace
``X``   a span with a duration; a message between ranks is on the sender, and again (``"again"``) on the receiver. The nodes
        of a merged launch are its ``"members"``
``i``   a node without duration
``s``   the start of an arrow: within the awaited span, at its end
``f``   the end of the arrow, at the start of the waiting span; arrows skip nodes without duration
``C``   counters: how many spans each engine works on, and the copy rate
======  =========================================================================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...order import topological_order
from .timeline import By, Span, Timeline

_PID: Final = 1
_ORDER: Final = {"M": 0, "X": 1, "i": 2, "s": 3, "f": 4, "C": 5}  # at equal times: a reader binds an arrow to an open span


def spans(timeline: Timeline) -> str:
    """Return spans and numbers as JSON, one span per line."""
    return timeline.to_json()


def table(timeline: Timeline, *, title: str | None = None) -> str:
    """Return a table of what starts at each time, under the timeline's name or another heading."""
    return timeline.render(title) + "\n"


def render(timeline: Timeline, *, by: By = "engine") -> str:
    """Return a timeline as trace-event JSON, one event per line; `by` selects what a track is."""
    return text(timeline, events(timeline, by=by), by)


def text(timeline: Timeline, found: Sequence[dict[str, Any]], by: By) -> str:
    """Return the events of a timeline as the text of a file."""
    other = {
        "timeline": timeline.name, "unit": timeline.unit, "us_per_unit": _us_per_unit(timeline), "by": by,
        "makespan": timeline.makespan, "sequential": timeline.sequential, "bound": timeline.bound, "speedup": timeline.speedup,
        "overlap_achieved": timeline.overlap_achieved, "overlap_possible": timeline.overlap_possible,
        "utilisation": timeline.utilisation_by_kind, "engines": dict(timeline.engines),
        "critical_path": [span.name for span in timeline.critical_path],
    }  # fmt: skip
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in found)
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(other)},\n"traceEvents":[\n{lines}\n]}}\n'


def events(timeline: Timeline, *, by: By = "engine") -> list[dict[str, Any]]:
    """Return the trace events of a timeline, in order of time."""
    heads: list[dict[str, Any]] = []
    spans = timeline.spans
    scale = _us_per_unit(timeline) * 1000
    times = [(round((span.start - timeline.start) * scale), round((span.stop - timeline.start) * scale)) for span in spans]
    rows = [(row.group, row.label + (f" ({row.number + 1})" if row.number else ""), row.spans) for row in timeline.rows(by)]
    rowless = set(range(len(spans))).difference(*(members for _, _, members in rows))
    if rowless:
        rows.append(("", "no time", tuple(sorted(rowless))))
    tracks: list[list[tuple[int, int]]] = [[] for _ in spans]
    processes: dict[str, int] = {}
    for group in dict.fromkeys([group for group, _, _ in rows] or [""]):
        pid = processes[group] = len(processes) + _PID
        name = f"{timeline.name}, {group}" if group else timeline.name
        heads.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
        heads.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}})
    for tid, (group, label, members) in enumerate(rows, len(processes) + _PID):  # a pid as tid is the main thread
        pid = processes[group]
        heads.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}})
        heads.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
        for i in members:
            tracks[i].append((pid, tid))
    found = [*_spans(timeline, times, tracks), *_arrows(timeline, times, tracks), *_counters(timeline, times, tracks)]
    found.sort(key=lambda event: (event["ts"], _ORDER[event["ph"]]))
    return [*heads, *found]


Times = Sequence[tuple[int, int]]
"""Start and stop of each span in nanoseconds."""

Tracks = Sequence[Sequence[tuple[int, int]]]
"""Process and thread ids of the rows that contain each span."""


_MOST_DIGITS: Final = 300
"""Exponent of the largest power of ten that times are multiplied by: a float can represent that power."""


def _us_per_unit(timeline: Timeline) -> int:
    if timeline.unit == "us":
        return 1
    shortest = min((span.duration for span in timeline.spans if span.duration > 0), default=1.0)
    room = 9 - math.log10(max(timeline.makespan, shortest))  # beyond 10^9 us, a double cannot resolve a nanosecond
    return int(10 ** max(0, min(math.ceil(-math.log10(shortest)), math.floor(room), _MOST_DIGITS)))


def _spans(timeline: Timeline, times: Times, tracks: Tracks) -> Iterator[dict[str, Any]]:
    path = {span.name for span in timeline.critical_path}
    for i, (span, (start, stop)) in enumerate(zip(timeline.spans, times)):
        known = {
            "segment": span.segment or None,
            "bytes": span.nbytes or None,
            "critical": span.name in path or None,
            "after": [timeline.spans[d].name for d in timeline.deps[i]] if timeline.deps else None,
            "ranks": span.ranks or None,
            "members": span.members or None,
        }
        args = {"kind": span.kind, "engine": span.engine, "lane": span.lane}
        args |= {key: value for key, value in known.items() if value is not None}
        for again, (pid, tid) in enumerate(tracks[i]):
            event = {"name": span.name, "cat": span.kind, "pid": pid, "tid": tid, "ts": start / 1000}
            said = {"again": True, **args} if again else args
            if stop > start:
                yield {"ph": "X", **event, "dur": (stop - start) / 1000, "args": said}
            else:
                yield {"ph": "i", **event, "s": "t", "args": said}


def _arrows(timeline: Timeline, times: Times, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """Yield a pair of events for each dependency between spans with a duration."""
    lasts = [stop > start for start, stop in times]
    waited: dict[int, tuple[int, ...]] = {}  # the spans with a duration that each span waits for, through those without
    for i in topological_order(timeline.deps):
        waited[i] = tuple(dict.fromkeys(s for d in timeline.deps[i] for s in ((d,) if lasts[d] else waited[d])))
    number = 0
    for i in range(len(timeline.deps)):
        for d in waited[i] if lasts[i] else ():
            # The last nanosecond of a span belongs to it, its end to the next span.
            leaves, arrives = min(times[d][1] - 1, times[i][0]), times[i][0]
            if leaves < times[d][0]:  # measured times may contradict an edge within clock resolution: omit arrows that point back
                continue
            number += 1
            both = {"name": "after", "cat": "dependency", "id": number}
            (here, source), (there, target) = tracks[d][0], tracks[i][0]
            yield {"ph": "s", **both, "pid": here, "tid": source, "ts": leaves / 1000}
            yield {"ph": "f", **both, "pid": there, "tid": target, "ts": arrives / 1000, "bp": "e"}


def _counters(timeline: Timeline, times: Times, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """Yield, at each change, how many spans each engine works on, and the copy rate in GB/s."""
    lasting: dict[int, list[tuple[Span, tuple[int, int]]]] = {}
    for span, at, places in zip(timeline.spans, times, tracks):
        for pid in {pid for pid, _ in places} if span.engine and at[1] > at[0] else ():
            lasting.setdefault(pid, []).append((span, at))
    for pid, found in lasting.items():
        yield from _steps("working", pid, [(span.engine, at, 1.0) for span, at in found])
        if timeline.unit == "us":
            copies = [(span.engine, at, span.nbytes / (at[1] - at[0])) for span, at in found if span.nbytes]
            yield from _steps("GB/s copied", pid, copies)


def _steps(name: str, pid: int, shares: Sequence[tuple[str, tuple[int, int], float]]) -> Iterator[dict[str, Any]]:
    changes: dict[int, dict[str, float]] = {}
    for series, (start, stop), value in shares:
        for at, change in ((start, value), (stop, -value)):
            there = changes.setdefault(at, {})
            there[series] = there.get(series, 0.0) + change
    level = dict.fromkeys((series for series, _, _ in shares), 0.0)
    for at in sorted(changes):
        for series, change in changes[at].items():
            level[series] += change
        shown = {series: round(value, 6) + 0.0 for series, value in level.items()}  # sums of fractions rarely end at 0
        yield {"ph": "C", "name": name, "pid": pid, "ts": at / 1000, "args": shown}
