"""``hipgraphdsl build``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...cli.arguments import add_repeated
from ...cli.files import require_place, say_written
from ...cli.status import GOOD, Misuse

DESCRIPTION = "Compile a .hip program that `show` has written for this machine's CPU. For GPUs, hipcc or nvcc compile it."
EXAMPLES = ("wave.hip -o wave",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("program", metavar="FILE", help="the program")
    parser.add_argument("-o", "--output", metavar="FILE", help="the executable (default: FILE without its extension)")
    add_repeated(parser, "--cxx-option", "OPTION", "for the C++ compiler, e.g. --cxx-option=-g")


def run(options: argparse.Namespace) -> int:
    """Compile the program."""
    source = Path(options.program)
    if not source.is_file():
        raise Misuse(f"there is no file {options.program!r}")
    output = Path(options.output) if options.output else source.with_suffix("")
    if output.resolve() == source.resolve():
        raise Misuse(f"{options.program!r} has no extension, so the executable needs a name: -o FILE")
    require_place(str(output))
    from .program import build_program

    build_program(source, output, options.cxx_option)
    say_written(str(output))
    return GOOD
