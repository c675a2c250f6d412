"""Export of a workflow to a file. The extension selects the format; each format is one module.

A format's module has one function that returns the content of the file and does no file I/O::

    def render(workflow: Workflow, **options) -> str | bytes

Options are keyword-only, with defaults; what a drawing takes as ``**options`` are those of `draw` in its module. `FORMATS`
below maps an extension to its module and function. The module is imported on first use, so that `import hipgraphdsl` loads
no drawing library. A function that needs the package of an extra requests it with `need("yaml", "pyyaml")`, whose error tells
what to install.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from ..arrays.coercion import as_path
from ..extensions import offered, others
from ..nodes.workflow import Workflow
from .files import Format, made, need, write_file

__all__ = ["FORMATS", "Format", "export_graph", "formats", "is_known", "need", "render", "write_file"]


FORMATS: dict[str, Format] = {
    ".json": Format("export.json", "render", "the workflow itself, versioned; loads again"),
    ".yaml": Format("parts.formats.yaml", "render", "the same document as YAML; loads again"),
    ".graphml": Format("parts.formats.graphml", "render", "GraphML for graph tools; loads again"),
    ".hip": Format("parts.program.program", "render", "a HIP C++ program that builds and launches the graph"),
    ".py": Format("parts.formats.python", "render", "a Python program that declares the workflow"),
    ".dot": Format("drawing.dot", "render", "Graphviz"),
    ".mmd": Format("drawing.mermaid", "render", "Mermaid"),
    ".svg": Format("drawing.dot", "svg", "a drawing"),
    ".png": Format("drawing.dot", "png", "a drawing"),
    ".html": Format("parts.pages.html", "render", "one page to look around in"),
}
"""Extension -> the module and function that render it."""

_SAME = {".yml": ".yaml", ".mermaid": ".mmd", ".gv": ".dot", ".htm": ".html"}


_PROGRAMS = (".hip", ".py")
"""Formats whose modules also have a function `companions`, which returns the files that the program reads."""


def formats() -> dict[str, str]:
    """Return extension -> title of the available formats."""
    return {extension: entry.title for extension, entry in FORMATS.items()}


def is_known(path: str | os.PathLike[str]) -> bool:
    """Return whether the extension of a path names a format."""
    return bool(_with_others(Path(path).suffix.lower()))


def _with_others(extension: str) -> dict[str, Format]:
    """Return the known formats if an extension is among them, or a part of another package adds it; else nothing."""
    if _SAME.get(extension, extension) in FORMATS:
        return FORMATS
    render = offered("formats", extension) if extension else None
    return {} if render is None else {**FORMATS, extension: Format("", render, "")}


def render(workflow: Workflow, extension: str, **options: Any) -> str | bytes:
    """Return the workflow in the format of an extension; refuse an unknown option or a missing package."""
    known = _with_others(extension.lower()) or FORMATS
    return made(known, _SAME, extension, workflow, f"graph {workflow.name!r}", options, partial(others, "formats"))


def export_graph(workflow: Workflow, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a workflow to a file, atomically; the extension selects the format, which defines the options."""
    target = as_path(path)
    stem = target.stem
    if target.suffix.lower() == ".hip":
        stem = options.setdefault("stem", stem)
    content = render(workflow, target.suffix, **options)
    if target.suffix.lower() in _PROGRAMS:
        module = FORMATS[target.suffix.lower()].opened()
        for name, values in module.companions(workflow, stem=stem).items():
            write_file(target.with_name(name), values)
    write_file(target, content)
