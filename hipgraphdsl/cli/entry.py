"""Reads a command line, runs its command, and turns errors into messages and exit statuses."""

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from ..errors import HipGraphError, PartMissing, RuntimeUnavailable
from ..extensions import offered, others
from ..parts import module_of
from .arguments import Help
from .status import FAULTY, INTERRUPTED, MISUSED, PIPE, UNAVAILABLE, Misuse, UserCodeFailed

COMMANDS: Final = {
    "info": "cli.info",
    "parts": "cli.parts",
    "check": "cli.check",
    "show": "cli.show",
    "run": "cli.run",
    "timeline": "parts.timeline.command",
    "verify": "parts.verify.command",
    "bench": "parts.bench.command",
    "diff": "parts.formats.command",
    "build": "parts.cpu.command",
    "schema": "cli.schema",
}
"""Commands, each with its module."""

_log = logging.getLogger("hipgraphdsl")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = False
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the rest of the process
    try:
        with _logging():
            options = _parse(arguments)
            verbose = options.verbose
            if verbose:
                _log.setLevel(logging.DEBUG)
            if getattr(options, "enable", ()):
                module_of("enabling").enable(*options.enable)
            status: int = options.command(options)
        sys.stdout.flush()
        return status
    except Misuse as error:
        return _complain(str(error), MISUSED)
    except RuntimeUnavailable as error:
        return _complain(str(error), UNAVAILABLE, verbose)
    except (HipGraphError, UserCodeFailed) as error:
        return _complain(str(error), FAULTY, verbose)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of the output has closed the pipe
        _drop_output()
        return PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        return _complain(f"the output cannot be written: {error.strerror}", FAULTY, verbose)


def _drop_output() -> None:
    """Redirect stdout to the null device, so that the interpreter's flush at exit does not fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, status: int, verbose: bool = False) -> int:
    if verbose:
        traceback.print_exc()
    with suppress(BrokenPipeError):
        print(f"hipgraphdsl: {message}", file=sys.stderr)
    return status


@contextmanager
def _logging() -> Iterator[None]:
    """Show the package's messages on stderr while a command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("hipgraphdsl: %(levelname)s: %(message)s"))
    level = _log.level
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; if `command` is known, only its arguments are added, which is faster."""
    found = argparse.ArgumentParser(
        prog="hipgraphdsl",
        description="Check, show, run and compare GPU workflows, on AMD, NVIDIA or any CPU.",
        epilog="examples:\n"
        "  hipgraphdsl info\n"
        "  hipgraphdsl check examples/04_wave2d.py --target amd:gfx942\n"
        "  hipgraphdsl show examples/04_wave2d.py -o wave.svg\n"
        "  hipgraphdsl run wave.json --runtime cpu --param dt=0.01 --repeat 100\n"
        "  hipgraphdsl timeline examples/03_overlap_pipeline.py --runtime cpu -o pipeline.html\n"
        "  hipgraphdsl diff old.json new.json\n"
        "\nexit status: 0 good, 1 the workflow is faulty, 2 wrong usage, 3 the runtime is not available",
        formatter_class=Help,
    )
    version = importlib.import_module("hipgraphdsl").__version__
    found.add_argument("--version", action="version", version=f"hipgraphdsl {version}")
    found.add_argument("-v", "--verbose", action="store_true", help="show tracebacks and debug messages")
    commands = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    of_others = {}
    if command and command not in COMMANDS and (other := offered("commands", command)) is not None:
        of_others[command] = other
    for name in (*COMMANDS, *of_others):
        try:
            module: Any = of_others.get(name) or module_of(COMMANDS[name])
        except PartMissing:
            if command == name:
                raise
            continue
        text: str = module.DESCRIPTION
        sub = commands.add_parser(
            name,
            help=re.split(r"[.:](?:\s|$)", text[0].lower() + text[1:])[0],
            description=text,
            epilog="examples:\n" + "\n".join(f"  hipgraphdsl {name} {example}".rstrip() for example in module.EXAMPLES),
            formatter_class=Help,
        )
        sub.set_defaults(command=module.run)
        if command in (None, name):
            module.add_arguments(sub)
    return found


def _parse(arguments: list[str]) -> argparse.Namespace:
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    commands = parser(command)
    if command and command not in COMMANDS and offered("commands", command) is None and (said := others("commands")):
        commands.error(f"there is no command {command!r}; commands are {', '.join(COMMANDS)}{said}")
    if not arguments:
        commands.print_help(sys.stderr)
        sys.exit(MISUSED)
    return commands.parse_args(arguments)
