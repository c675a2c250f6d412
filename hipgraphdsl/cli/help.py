"""How help is laid out."""

from __future__ import annotations

import argparse

from rich.console import Console


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, with line breaks kept in descriptions and examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(110, max(60, Console(stderr=True).width)))
