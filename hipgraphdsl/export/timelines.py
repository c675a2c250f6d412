"""A timeline as a file. The extension names the format, as for workflows; `FORMATS` says where each is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

from .files import Format, made, write_file

FORMATS: Final[dict[str, Format]] = {
    ".png": Format("gantt", "png", "a chart of bars"),
    ".svg": Format("gantt", "svg", "a chart of bars"),
    ".html": Format("gantt_page", "render", "one page to look around in"),
    ".trace.json": Format("trace", "render", "a trace for Perfetto and chrome://tracing"),
    ".json": Format("timelines", "spans", "spans and numbers"),
    ".txt": Format("timelines", "text", "what starts at each time"),
}
"""Extension -> where it is made; the longest that fits names the format."""

_SAME: Final = {".htm": ".html"}


class Timeline(Protocol):
    """What the formats ask of a `hipgraphdsl.Timeline`, which knows them."""

    @property
    def name(self) -> str:
        """What it is of."""
        ...

    def to_json(self) -> str:
        """Return spans and numbers as JSON, one span a line."""
        ...

    def render(self, title: str | None = None) -> str:
        """Return what starts at each time."""
        ...


def export_timeline(timeline: Timeline, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a timeline to a file, whole or not at all.

    Raises
    ------
    DeclarationError
        If there is no such format or option, a package is missing, or the file cannot be written.
    """
    write_file(path, render(timeline, max(_fitting(path), key=len, default=Path(path).suffix), **options))


def is_known(path: str | os.PathLike[str]) -> bool:
    """Return whether the extension of a path names a format."""
    return bool(_fitting(path))


def _fitting(path: str | os.PathLike[str]) -> list[str]:
    name = Path(path).name.lower()
    return [extension for extension in (*FORMATS, *_SAME) if name.endswith(extension)]


def render(timeline: Timeline, extension: str, **options: Any) -> str | bytes:
    """Return a timeline in the format of an extension.

    Raises
    ------
    DeclarationError
        If there is no such format, it takes no such option, or it needs a package that is not installed.
    """
    return made(FORMATS, _SAME, extension, timeline, f"timeline {timeline.name!r}", options)


def spans(timeline: Timeline) -> str:
    """Return spans and numbers as JSON, one span a line."""
    return timeline.to_json()


def text(timeline: Timeline, *, title: str | None = None) -> str:
    """Return what starts at each time.

    Parameters
    ----------
    title : str, optional
        The heading; by default the timeline's name.
    """
    return timeline.render(title) + "\n"
