"""SVG, laid out by Graphviz."""

from __future__ import annotations

import re
from typing import Any

from ..workflow import Workflow
from . import fitting
from .dot import dot_text
from .layout import lay_out
from .picture import draw

__all__ = ["render", "svg_text"]


def render(workflow: Workflow, *, direction: str = "TB", timeout_s: float = 120.0, **options: Any) -> str:
    """Return a drawing as SVG.

    Parameters
    ----------
    direction : {"TB", "LR"}
    timeout_s : float
        After this many seconds the layout is given up.
    **options
        Those of `picture.draw`: fold, edges, lanes, critical, faults, target.

    Raises
    ------
    DeclarationError
        If there is no Graphviz: says what to install.
    """
    return svg_text(dot_text(draw(workflow, **options), direction=direction), timeout_s=timeout_s)


def svg_text(dot: str, *, timeout_s: float = 120.0) -> str:
    """Return DOT text laid out, as SVG without the document type, so that it can stand inside a page."""
    text = lay_out(dot, "svg", what="an .svg file", timeout_s=timeout_s).decode()
    text = fitting(text)
    # One drawing inside a page must not answer to the ids of another.
    return re.sub(r' id="(?:graph|node|edge|clust)\d+"', "", text)
