"""A timeline as a bar chart, SVG or PNG, drawn by matplotlib.

The rows are those of `Timeline.rows`. A dashed line marks the earliest possible end of the launch. Three bars below the chart
compare sequential execution, this launch and that bound.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import Any, Final

from ...drawing.style import BACKGROUND, CRITICAL, EDGE, INK, MUTED, engine_style, shortened, text_width
from ...export.files import fitting, need
from ...printed import human_count
from .timeline import By, Timeline

_WIDTH: Final = 11.0  # total width in inches
_MARGIN: Final = 0.25
_ROW: Final = 0.3
_HEAD: Final = 0.42
_LINE: Final = 0.2
_AXIS: Final = 0.55
_FOOT: Final = 0.75
_MAX_ROWS: Final = 60
_OUTLINED: Final = 0.09  # minimum length of a bar in inches for an outline to be visible
_EM: Final = 9 * 1.12 / 72  # inches per em at 9 points in matplotlib's default font, which is wide


def svg(timeline: Timeline, *, by: By = "engine", critical: bool = True, title: str | None = None) -> str:
    """Return a chart as SVG with names as text.

    Parameters
    ----------
    by : {"engine", "lane", "segment", "node"}
        What a row represents; the first 60 rows are drawn.
    critical : bool
        Whether to outline the critical path.
    title : str, optional
        The heading; by default the timeline's name.
    """
    # A fixed salt makes the output reproducible.
    context = {"svg.fonttype": "none", "svg.hashsalt": "hipgraphdsl"}
    drawn = _drawn(timeline, by, critical, title, context, format="svg", metadata={"Date": None, "Creator": None})
    text = fitting(drawn.decode(), f"{title or timeline.name}: {', '.join(summary(timeline))}")
    # Drop the ids, which would collide between drawings on one page; those of clip paths and markers are hashes and stay.
    return re.sub(r' id="(?!p[0-9a-f]{10}|m[0-9a-f]{10})[^"]*"', "", text)


def png(
    timeline: Timeline, *, by: By = "engine", critical: bool = True, title: str | None = None, dpi: int | None = None
) -> bytes:
    """Return a chart as PNG; `dpi` is 144 dots per inch by default, the rest is as for `svg`."""
    return _drawn(timeline, by, critical, title, {}, format="png", dpi=dpi or 144)


def summary(timeline: Timeline) -> list[str]:
    """Return the key figures of a timeline as text lines."""
    amount = timeline.amount
    lines = [timeline.describe_times()]
    if timeline.deps and timeline.spans:
        path = timeline.critical_path
        count = human_count(len(path), "step" if any(span.members for span in path) else "node")
        lines.append(f"{timeline.describe_overlap()}; critical path {amount(sum(span.duration for span in path))}, {count}")
    return lines


def _drawn(timeline: Timeline, by: By, critical: bool, title: str | None, context: dict[str, str], **saved: Any) -> bytes:
    matplotlib = need("matplotlib", "matplotlib")
    out = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"text.parse_math": False, **context}):
        warnings.filterwarnings("ignore", message="Glyph")  # a character that the font lacks is drawn as a box
        _figure(timeline, by, critical, title).savefig(out, facecolor=BACKGROUND, **saved)
    return out.getvalue()


def _figure(timeline: Timeline, by: By, critical: bool, title: str | None) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    rows = timeline.rows(by)
    left_out = len(rows) - _MAX_ROWS
    rows = rows[:_MAX_ROWS]
    said = summary(timeline)
    legend = _legend(timeline)
    compared = bool(timeline.deps and timeline.spans)
    head = _HEAD + _LINE * (len(said) + len(legend))
    chart, foot = max(len(rows), 1) * _ROW, _FOOT if compared else 0.0
    height = 0.1 + head + chart + _AXIS + foot
    labels = [shortened(row.label, 32) if not row.number else "" for row in rows]
    groups = {row.group: y for y, row in reversed(list(enumerate(rows))) if row.group}  # group -> its first row
    before = max((text_width(group) + 1 for group in groups), default=0) * _EM
    gutter = _MARGIN + max(text_width(label) for label in (*labels, "in sequence" if compared else "")) * _EM + 0.1 + before
    width = _WIDTH - gutter - _MARGIN
    figure = Figure(figsize=(_WIDTH, height), facecolor=BACKGROUND)

    def write(x: float, top: float, text: str, **how: Any) -> None:
        """Write text at a position in inches from the upper left corner."""
        figure.text(x / _WIDTH, 1 - top / height, text, va="center", **{"color": INK, "fontsize": 9, **how})

    write(_MARGIN, _MARGIN, shortened(title or timeline.name, 90), fontsize=12, weight="bold")
    for n, line in enumerate(said):
        write(_MARGIN, _HEAD + _LINE * (n + 0.5), line, color=MUTED)
    for n, entries in enumerate(legend, len(said)):
        top = _HEAD + _LINE * (n + 0.5)
        for x, colour, text in entries:
            corner, size = (x / _WIDTH, 1 - (top + 0.055) / height), (0.11 / _WIDTH, 0.11 / height)
            figure.add_artist(Rectangle(corner, *size, facecolor=colour, edgecolor=EDGE, lw=0.6))
            write(x + 0.18, top, text)

    axes = figure.add_axes((gutter / _WIDTH, (_AXIS - 0.15 + foot) / height, width / _WIDTH, chart / height))
    _bars(axes, timeline, rows, critical, width / (timeline.makespan or 1.0))
    for y, label in enumerate(labels):
        axes.text(
            -0.1 / width, y + 0.5, label, transform=axes.get_yaxis_transform(), fontsize=9, ha="right", va="center", color=INK
        )
    for group, y in groups.items():
        left = -(gutter - _MARGIN) / width
        axes.text(left, y + 0.5, group, transform=axes.get_yaxis_transform(), fontsize=9, weight="bold", va="center", color=INK)
        if y:
            axes.plot([left, 1], [y, y], transform=axes.get_yaxis_transform(), color=EDGE, lw=0.7, clip_on=False, zorder=2)
    if left_out > 0:
        write(_WIDTH - _MARGIN, _MARGIN, f"and {human_count(left_out, 'row')} more", ha="right", color=MUTED)
    if compared:
        _compare(figure.add_axes((gutter / _WIDTH, 0.1 / height, width / _WIDTH, (foot - 0.25) / height)), timeline)
    return figure


def _legend(timeline: Timeline) -> list[list[tuple[float, str, str]]]:
    """Return lines of legend entries for the utilisation of each engine: x position in inches, colour and text."""
    lines: list[list[tuple[float, str, str]]] = []
    x = _WIDTH
    for engine, part in timeline.utilisation_by_kind.items():
        text = f"{engine} {part:.0%} used"
        width = 0.45 + text_width(text) * _EM
        if x + width > _WIDTH - _MARGIN:
            lines.append([])
            x = _MARGIN
        lines[-1].append((x, engine_style(engine), text))
        x += width
    return lines


def _bars(axes: Any, timeline: Timeline, rows: Any, critical: bool, inches: float) -> None:
    """Draw the rows; `inches` is the length of one time unit."""
    path = {span.name for span in timeline.critical_path} if critical and timeline.deps else set()
    spans, start = timeline.spans, timeline.start
    end = timeline.makespan or 1.0
    for y, row in enumerate(rows):
        groups: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
        narrow: list[tuple[float, float]] = []
        marks: list[float] = []
        for i in row.spans:
            span = spans[i]
            if span.duration <= 0:
                marks.append(span.start - start)
                continue
            piece = (span.start - start, span.duration)
            fill = engine_style(span.engine)
            if span.duration * inches < _OUTLINED:  # an outline would cover the bar
                style = (fill, fill, 0.3)
                if span.name in path:
                    narrow.append(piece)
            else:
                style = (fill, CRITICAL, 1.6) if span.name in path else (fill, "#ffffff", 0.5)
            groups.setdefault(style, []).append(piece)
            _name(axes, span.name, span.start - start + span.duration / 2, y, span.duration * inches)
        for (fill, edge, thick), pieces in groups.items():
            over = 4 if edge == CRITICAL else 3
            axes.broken_barh(pieces, (y + 0.12, 0.76), facecolors=fill, edgecolors=edge, linewidth=thick, zorder=over)
        if narrow:
            axes.broken_barh(narrow, (y + 0.78, 0.16), facecolors=CRITICAL, linewidth=0, zorder=5)
        if marks:
            axes.plot(marks, [y + 0.5] * len(marks), "D", color=MUTED, markersize=3, zorder=3, clip_on=False)
    if timeline.deps and 0 < timeline.bound < end * (1 - 1e-9):
        axes.axvline(timeline.bound, color=MUTED, lw=1, ls=(0, (4, 3)), zorder=2)
    axes.set_xlim(0, end)
    axes.set_ylim(max(len(rows), 1), 0)
    axes.set_yticks([])
    axes.set_facecolor("#ffffff")
    axes.grid(axis="x", color="#e3e8ed", lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", colors=MUTED, labelsize=8, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(EDGE)
    unit = "us" if timeline.unit == "us" else "time units"
    axes.annotate(unit, (1, 0), xycoords="axes fraction", xytext=(0, -21), textcoords="offset points", ha="right", va="center",
                  fontsize=8, color=MUTED)  # fmt: skip


def _name(axes: Any, name: str, x: float, y: int, inches: float) -> None:
    """Write a name into its bar; shorten it if enough of it remains readable."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    room = (inches - 0.06) * 72
    if room < 20:
        return
    width = text_to_path.get_text_width_height_descent(name, FontProperties(size=8), ismath=False)[0]
    text = name if width <= room else shortened(name, int(len(name) * room / width))
    if len(text) >= min(len(name), 5):
        axes.text(x, y + 0.52, text, fontsize=8, ha="center", va="center", color=INK, zorder=6, clip_on=True)


def _compare(axes: Any, timeline: Timeline) -> None:
    """Draw three thin bars: sequential execution, this launch, and the lower bound."""
    lengths = {"in sequence": timeline.sequential, "this launch": timeline.makespan, "at best": timeline.bound}
    longest = max(lengths.values()) or 1.0
    for y, (label, value) in enumerate(lengths.items()):
        axes.barh(y, value, height=0.5, color=("#d5dce3", "#1f5f99", "#7fb08f")[y])
        axes.text(-0.006 * longest, y, label, ha="right", va="center", fontsize=8, color=MUTED)
        axes.text(value + 0.006 * longest, y, timeline.amount(value), ha="left", va="center", fontsize=8, color=MUTED)
    axes.set_xlim(0, longest * 1.12)
    axes.set_ylim(2.6, -0.6)
    axes.axis("off")
