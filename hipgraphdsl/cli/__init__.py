"""The command line. Each command is one module.

A command has ``DESCRIPTION``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(options)``, which returns the exit status:
0 success, 1 the workflow is faulty, 2 wrong usage, 3 the runtime is unavailable.
"""

from __future__ import annotations

from .entry import main
from .workflows import load_graph

__all__ = ["load_graph", "main"]
