"""Export of a timeline to a file. The extension selects the format, as for workflows; `FORMATS` maps it to a module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ...export.files import Format, made, write_file

FORMATS: Final[dict[str, Format]] = {
    ".png": Format("parts.timeline.gantt", "png", "a chart of bars"),
    ".svg": Format("parts.timeline.gantt", "svg", "a chart of bars"),
    ".html": Format("parts.timeline.gantt_page", "render", "one page to look around in"),
    ".trace.json": Format("parts.timeline.trace", "render", "a trace for Perfetto and chrome://tracing"),
    ".json": Format("parts.timeline.trace", "spans", "spans and numbers"),
    ".txt": Format("parts.timeline.trace", "table", "what starts at each time"),
}
"""Extension -> the module and function that render it; the longest match selects the format."""

_SAME: Final = {".htm": ".html"}


def export_timeline(timeline: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a `hipgraphdsl.Timeline` to a file, atomically."""
    write_file(path, render(timeline, max(_fitting(path), key=len, default=Path(path).suffix), **options))


def is_known(path: str | os.PathLike[str]) -> bool:
    """Return whether the extension of a path names a format."""
    return bool(_fitting(path))


def _fitting(path: str | os.PathLike[str]) -> list[str]:
    name = Path(path).name.lower()
    return [extension for extension in (*FORMATS, *_SAME) if name.endswith(extension)]


def render(timeline: Any, extension: str, **options: Any) -> str | bytes:
    """Return a timeline in the format of an extension; refuse an unknown option or a missing package."""
    return made(FORMATS, _SAME, extension, timeline, f"timeline {timeline.name!r}", options)
