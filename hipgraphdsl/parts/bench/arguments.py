"""Options that benchmarks share."""

from __future__ import annotations

import argparse

from ...cli.arguments import positive


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
