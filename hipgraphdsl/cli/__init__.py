"""The command line. Each command is one module: what it says of itself, its arguments, and what it does.

A command has ``DESCRIPTION``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(options)``, which returns the exit status:
0 good, 1 the workflow is faulty, 2 used wrongly, 3 the runtime is not there.
"""

from __future__ import annotations

from .entry import main
from .workflows import load_graph

__all__ = ["load_graph", "main"]
