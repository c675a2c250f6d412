"""The appearance of every drawing: shapes and colours of node kinds, and shortened names.

Fills are light and strokes dark, so that text has a contrast above 7:1 and kinds differ in lightness as well as in hue: they
are distinct for colour-blind readers, in print and on a dark page, because a drawing has its own light background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from ..nodes import KINDS

INK: Final = "#1c2733"
MUTED: Final = "#55616d"
EDGE: Final = "#7b8794"
BACKGROUND: Final = "#fcfcfb"
FAULT: Final = "#c3181f"
FAULT_FILL: Final = "#fdeaea"
CRITICAL: Final = "#111111"
REPEAT: Final = "#1f5f99"
FONT = "Helvetica,Arial,Liberation Sans,Arimo,Nimbus Sans,DejaVu Sans Condensed,sans-serif"

LANES: Final = ("#eef4fb", "#fdf4e7", "#ecf7f1", "#fbeff6", "#f4f2e4", "#eef0f4", "#f9efe9", "#e9f6f7")
"""Background colours of lanes, used cyclically."""


@dataclass(frozen=True, slots=True)
class Style:
    """The appearance of nodes of one kind."""

    title: str  # the kind as text, for legends
    fill: str  # colours, "#rrggbb"
    stroke: str
    shape: str  # this project's name for it; each format maps it to an equivalent
    dashed: bool = False  # whether the outline is dashed


_OWN: Final[dict[str, Style]] = {
    "kernel": Style("kernel", "#d9e8f7", "#1f5f99", "round"),
    "memcpy": Style("copy", "#fde6c8", "#a85b00", "slanted"),
    "memset": Style("memset", "#fbf3c4", "#7d6c00", "hexagon"),
    "alloc": Style("alloc", "#d4efe3", "#0b6e4f", "cylinder"),
    "free": Style("free", "#eef8f3", "#0b6e4f", "cylinder", dashed=True),
    "host": Style("host function", "#f6dfec", "#8d2f6b", "framed"),
    "eager": Style("eager step", "#f6dfec", "#8d2f6b", "framed", dashed=True),
    "record": Style("event record", "#e4e6ea", "#4b5563", "pill"),
    "wait": Style("event wait", "#f3f4f6", "#4b5563", "pill", dashed=True),
    "empty": Style("empty", "#ffffff", "#6b7280", "pill"),
    "child": Style("child graph", "#f4f6f8", "#52606d", "folder"),
    "signal": Style("semaphore signal", "#e6e0f5", "#5b3fa0", "pill"),
    "wait_semaphore": Style("semaphore wait", "#f3f0fb", "#5b3fa0", "pill", dashed=True),
    "memory_ops": Style("memory operations", "#dff2f6", "#0a6a7d", "hexagon"),
    "captured": Style("captured calls", "#e6eefa", "#1f5f99", "round", dashed=True),
    "conditional": Style("conditional", "#eee5fb", "#5b3fa0", "diamond"),
}
_OF_WORK: Final = {"kernel": "kernel", "copy": "memcpy", "memset": "memset", "host": "host", "": "empty"}


@cache
def style_of(kind: str) -> Style:
    """Return the style of a kind of nodes; one without its own has that of other nodes with the same kind of work."""
    return _OWN.get(kind) or replace(_OWN[_OF_WORK[KINDS[kind].work]], title=kind.replace("_", " "))


_ENGINES: Final = {"H2D": "#f6c667", "D2H": "#f0a06a", "D2D": "#f7dfa8", "copy": "#f6c667", "H2H": "#dccdaa",
                   "kernel": "#8fc1e8", "memset": "#e8dc77", "host": "#dfa6ca",
                   "link": "#9fd3b4", "collective": "#7cc0b8"}  # fmt: skip


def engine_style(engine: str) -> str:
    """Return the bar colour of an engine, on any device; it is light enough for dark text."""
    return _ENGINES.get(engine.partition("@")[0], "#c3ccd5")


def shortened(text: str, limit: int = 40) -> str:
    """Return the text; if it is too long, without its middle, because the ends distinguish names."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 3 // 5
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def text_width(text: str) -> float:
    """Return the approximate width of a text in ems, in Helvetica and its substitutes."""
    return sum(0.31 if c in "iljtfrI.,:;'|!()[] -/" else 1.0 if ord(c) > 0x2E00 else 0.86 if c in "mwMW%@←…—" else
               0.68 if c.isupper() else 0.56 for c in text)  # fmt: skip
