"""A timeline as one HTML page, to pan, zoom and search; it needs no network and no library.

The page, `gantt.html`, holds the trace of `trace.py` as it is and draws that.
"""

from __future__ import annotations

import json

from ..timeline import By, Timeline, require_by
from .html import filled
from .style import engine_style
from .trace import render as render_trace


def render(timeline: Timeline, *, by: By = "engine", critical: bool = True) -> str:
    """Return a page that shows a timeline.

    Parameters
    ----------
    by : {"engine", "lane", "segment", "node"}
        What a row is at first; the page has a choice.
    critical : bool
        Outline the critical path from the start.
    """
    require_by(by)
    colours = {engine: engine_style(engine) for engine in dict.fromkeys(span.engine for span in timeline.spans)}
    said = timeline.describe_overlap()
    colours |= {kind: engine_style(kind) for kind in timeline.utilisation_by_kind}
    labels = {engine: timeline.label_of(engine) for engine in colours}
    show = json.dumps(
        {"by": by, "critical": critical, "colours": colours, "labels": labels, "overlap": f"{said[0].upper()}{said[1:]}."}
    )
    return filled("gantt.html", timeline.name, f'{{"show":{show},"trace":{render_trace(timeline)}}}')
