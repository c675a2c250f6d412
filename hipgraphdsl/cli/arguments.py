"""Arguments that several commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import HipGraphError
from ..extensions import others
from ..parts import module_of
from ..runtimes import RUNTIMES, is_known
from ..target import Target
from .status import Misuse
from .workflows import WORKFLOW_HELP

if TYPE_CHECKING:
    from ..plan.options import Lanes


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, with line breaks kept in descriptions and examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(110, max(60, Console(stderr=True).width)))


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


def add_workflow(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument that names the workflow."""
    parser.add_argument("workflow", metavar="WORKFLOW", help=WORKFLOW_HELP)
    add_enable(parser)


def add_enable(parser: argparse.ArgumentParser) -> None:
    """Add ``--enable``, which `main` reads."""
    add_repeated(parser, "--enable", "PART", "enable a part of another package that you trust (hipgraphdsl parts lists them)")


def add_device(parser: argparse.ArgumentParser, whose: str = "") -> None:
    """Add ``--device``."""
    parser.add_argument("--device", type=int, default=0, metavar="N", help=f"number of the {whose}device (default: 0)")


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Add ``--batch`` and ``--no-batch``."""
    parser.add_argument(
        "--batch",
        action=argparse.BooleanOptionalAction,
        default="auto",
        help="combine launches that wait for the same nodes into one launch, or never (default: where that pays)",
    )


def add_repeated(parser: argparse.ArgumentParser, option: str, metavar: str, what: str) -> None:
    """Add an option that may be repeated; `pairs` parses values of the form NAME=VALUE."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=what)


def add_options(parser: argparse.ArgumentParser, example: str) -> None:
    """Add ``--option`` for the options of a file format."""
    add_repeated(parser, "--option", "NAME=VALUE", f"option of that format, e.g. {example}")


def add_param(parser: argparse.ArgumentParser, arrays: str = "; of an array parameter @FILE.npy") -> None:
    """Add ``--param``."""
    add_repeated(parser, "--param", "NAME=VALUE", f"value of a parameter{arrays}")


def add_target(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--target``, which takes the name of a known target."""
    parser.add_argument("--target", type=_target_name, metavar="NAME", help=what)


def add_runtime(parser: argparse.ArgumentParser, what: str = "(default: auto)") -> None:
    """Add ``--runtime``."""
    parser.add_argument("--runtime", type=_runtime_name, default="auto", metavar="NAME", help=f"auto, amd, nvidia or cpu {what}")


def add_lanes(parser: argparse.ArgumentParser, what: str = "auto, measure, declared or a number (default: auto)") -> None:
    """Add ``--lanes``."""
    parser.add_argument("--lanes", type=as_lanes, default="auto", metavar="N", help=what)


def add_ranks(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--ranks`` and ``--devices-per-rank``, which `layout` reads."""
    parser.add_argument("--ranks", type=int, metavar="N", help=what)
    parser.add_argument("--devices-per-rank", type=int, default=1, metavar="K", help="devices of each process (default: 1)")


def layout(options: argparse.Namespace) -> Any:
    """Return the layout of devices over ranks; None without ``--ranks``."""
    if options.ranks is None:
        if options.devices_per_rank != 1:
            raise Misuse("--devices-per-rank needs --ranks: give --ranks N")
        return None
    sharing = module_of("parts.ranks.sharing")
    if not 1 <= options.ranks <= sharing.MOST_RANKS or options.devices_per_rank < 1:
        raise Misuse(
            f"--ranks is a number from 1 to {sharing.MOST_RANKS} (got {options.ranks}), and --devices-per-rank one from 1"
            f" (got {options.devices_per_rank})"
        )
    return sharing.as_layout([options.devices_per_rank] * options.ranks)


def _runtime_name(text: str) -> str:
    """Return `text` if it names a runtime that computes; else raise ArgumentTypeError."""
    own = ("auto", "amd", "nvidia", "cpu")
    if text not in own and (text in RUNTIMES or not is_known(text)):
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(own)}{others('runtimes')})")
    return text


def _target_name(text: str) -> str:
    """Return `text` if it names a known target; else raise ArgumentTypeError."""
    try:
        Target.named(text)
    except HipGraphError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def pairs(items: Sequence[str], option: str, read: Callable[[str], Any] = str) -> dict[str, Any]:
    """Parse the NAME=VALUE items of a repeatable option into a dict."""
    found: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise Misuse(f"{option} takes NAME=VALUE (got {item!r})")
        if name in found:
            raise Misuse(f"{option} gives {name!r} twice")
        try:
            found[name] = read(value)
        except ValueError:
            raise Misuse(f"{option} {name} takes a number (got {value!r})") from None
    return found


def option_value(text: str) -> Any:
    """Return an option's value: true, false, a number, or text."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
