"""PNG, laid out and rendered by Graphviz."""

from __future__ import annotations

from typing import Any

from ..workflow import Workflow
from .dot import dot_text
from .layout import lay_out
from .picture import draw

__all__ = ["render"]

_MAX_BOXES_FINE = 150  # a bitmap of more boxes at 144 dots per inch is larger than viewers like


def render(
    workflow: Workflow, *, direction: str = "TB", dpi: int | None = None, timeout_s: float = 120.0, **options: Any
) -> bytes:
    """Return a drawing as PNG.

    Parameters
    ----------
    direction : {"TB", "LR"}
    dpi : int, optional
        Dots per inch; by default 144, less for large drawings.
    timeout_s : float
    **options
        Those of `picture.draw`: fold, edges, lanes, critical, faults, target.

    Raises
    ------
    DeclarationError
        If there is no Graphviz: says what to install.
    """
    picture = draw(workflow, **options)
    dpi = dpi or (144 if len(picture.boxes) <= _MAX_BOXES_FINE else 72)
    return lay_out(dot_text(picture, direction=direction), "png", what="a .png file", timeout_s=timeout_s, dpi=dpi)
