"""Options that benchmarks and commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.options import Lanes


def count_from(least: int) -> Callable[[str], int]:
    """Return a parser of integers of at least `least`; argparse reports what is wrong with any other text."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"it is a number from {least} (got {text!r})")
        return int(text)

    return parse


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    return count_from(1)(text)


def from_zero(text: str) -> float:
    """Parse a number of at least 0."""
    with suppress(ValueError):
        if (number := float(text)) >= 0:
            return number
    raise argparse.ArgumentTypeError(f"it is a number from 0 (got {text!r})")


def as_lanes(text: str) -> Lanes:
    """Parse the value of ``--lanes``."""
    if text in ("auto", "measure"):
        return text  # type: ignore[return-value]  # just compared with the literals
    if text in ("declared", "none"):
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"lanes is auto, measure, declared or a number from 1 (got {text!r})")


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the runtime and device."""
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: auto)")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the device (default: 0)")


def add_repeats(
    parser: argparse.ArgumentParser, default: int, quick: int, of: str, also: str = "", what: str = "launches"
) -> None:
    """Add ``--repeats`` and ``--quick``, which `repeats_of` reads; `also` says what else ``--quick`` reduces."""
    parser.add_argument("--repeats", type=positive, default=default, metavar="N", help=f"{what} of {of} (default: {default})")
    parser.add_argument("--quick", action="store_true", help=f"at most {quick} {what} of {of}{also}")
    parser.set_defaults(quick_repeats=quick)


def repeats_of(args: argparse.Namespace) -> int:
    """Return the number of repeats, limited by ``--quick``."""
    return min(args.repeats, args.quick_repeats) if args.quick else int(args.repeats)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for output files."""
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the figures as .json, .csv or .md")
    parser.add_argument(
        "--markdown", metavar="FILE", help="put the table into a Markdown file, in the place of this device's last one"
    )
