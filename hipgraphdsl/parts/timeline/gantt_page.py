"""A timeline as one HTML page with pan, zoom and search; it needs no network and no library.

The page, `gantt.html`, contains the trace of `trace.py` unchanged and draws it in the rows of `Timeline.rows`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from ...drawing.style import engine_style
from .. import load
from .timeline import By, Timeline, require_by
from .trace import events, text


def render(timeline: Timeline, *, by: By = "engine", critical: bool = True) -> str:
    """Return a page that shows a timeline.

    Parameters
    ----------
    by : {"engine", "lane", "segment", "node"}
        What a row represents initially; the page offers a choice.
    critical : bool
        Whether the critical path is outlined initially.
    """
    require_by(by)
    colours = {engine: engine_style(engine) for engine in dict.fromkeys(span.engine for span in timeline.spans)}
    said = timeline.describe_overlap()
    colours |= {kind: engine_style(kind) for kind in timeline.utilisation_by_kind}
    found = events(timeline)
    names = [event["name"] for event in found if event["ph"] in "Xi" and "again" not in event["args"]]  # in the order of the page
    number = {name: at for at, name in enumerate(names)}
    at = [number[span.name] for span in timeline.spans]
    rows = {
        kind: [(row.group, row.label, row.number, [at[i] for i in row.spans]) for row in timeline.rows(kind)]
        for kind in get_args(By)
    }
    show = json.dumps(
        {
            "by": by,
            "critical": critical,
            "colours": colours,
            "rows": rows,
            "times": timeline.describe_times(),
            "overlap": f"{said[0].upper()}{said[1:]}.",
        },
        separators=(",", ":"),
    )
    page: str = load("pages").filled(
        Path(__file__).with_name("gantt.html"), timeline.name, f'{{"show":{show},"trace":{text(timeline, found, "engine")}}}'
    )
    return page
