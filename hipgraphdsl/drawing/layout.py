"""Graphviz as a layout engine: takes DOT text, returns a drawing.

The pygraphviz wheel contains Graphviz as a library. It runs in a separate process: a crash does not end the user's process, a
time limit can be enforced, and memory that it keeps does not add up in a notebook. A ``dot`` executable works as well.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import Final

from ..errors import DeclarationError, HipGraphError

_RUN: Final = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot", args=" ".join(sys.argv[2:])))
"""


def engine() -> list[str] | None:
    """Return the layout command, without the output format; None if Graphviz is not installed."""
    if importlib.util.find_spec("pygraphviz") is not None and sys.executable:
        return [sys.executable, "-c", _RUN]
    found = shutil.which("dot")
    return [found] if found else None


def lay_out(text: str, form: str, *, what: str, timeout_s: float = 120.0, dpi: int | None = None) -> bytes:
    """Lay out DOT text, and return the drawing in a Graphviz output format; messages call it `what`.

    Raises DeclarationError with an install hint if Graphviz is missing, HipGraphError if it fails or exceeds `timeout_s` seconds.
    """
    command = engine()
    if command is None:
        raise DeclarationError(f"{what} needs Graphviz for the layout: pip install pygraphviz; .dot, .mmd and .html need nothing")
    command += [f"-T{form}" if len(command) == 1 else form, *([f"-Gdpi={dpi}"] if dpi else [])]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise HipGraphError(
            f"{what}: Graphviz found no layout in {timeout_s:.0f} s; fold the drawing (fold=True), or export .html, whose layout"
            " is made for large graphs"
        ) from None
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise HipGraphError(f"{what}: Graphviz failed: {said[0]}")
    return done.stdout
