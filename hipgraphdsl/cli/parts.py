"""``hipgraphdsl parts``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.text import Text

from ..errors import PartMissing, PartRefused
from ..export import FORMATS
from ..extensions import Installed, Part, installed
from ..parts import OWN, load
from ..runtimes import RUNTIMES
from .entry import COMMANDS
from .status import GOOD
from .tables import print_part, table

DESCRIPTION = "List the parts of hipgraphdsl and of other packages: what each adds, and why one cannot be used."
EXAMPLES = ("", "--json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Read all parts and print them; those of other packages are imported."""
    own = {name: _own(name) for name in OWN}
    others = [_of_other(part) for part in installed()]
    if options.json:
        print(json.dumps({"own": own, "others": others}, indent=1))
        return GOOD
    rows = [(name, "there" if not facts["why"] else "absent", facts["why"] or _said(facts)) for name, facts in own.items()]
    print_part(table(("part", "is", "what it adds"), rows, sys.maxsize))
    if not others:
        print_part(Text("\nno other package has a part"))
        return GOOD
    rows = [(f["name"], f["package"], f"cannot be used: {f['why']}" if f["why"] else _said(f)) for f in others]
    print_part(table(("part", "of the package", "what it adds"), rows, sys.maxsize))
    return GOOD


def _said(facts: dict[str, Any]) -> str:
    added = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts["adds"].items())
    text = f"{facts['does']} ({added})" if facts["does"] and added else facts["does"] or added or "nothing"
    unused = facts.get("unused")
    return f"{text}; not used: {', '.join(unused)}, which hipgraphdsl has itself" if unused else text


def _own(name: str) -> dict[str, Any]:
    places = {
        "runtimes": {key: place for key, (place, _) in RUNTIMES.items()},
        "formats": {key: entry.module for key, entry in FORMATS.items()},
        "commands": COMMANDS,
    }
    mine = {what: [key for key, place in of.items() if f"{place}.".startswith(f"parts.{name}.")] for what, of in places.items()}
    why = ""
    try:
        load(name)
    except PartMissing as error:
        why = f"hipgraphdsl/parts/{error.part} is not there"
    return {"does": OWN[name].does, "adds": {what: keys for what, keys in mine.items() if keys}, "why": why}


def _of_other(part: Installed) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": part.name, "package": part.package, "does": "", "adds": {}, "unused": [], "why": ""}
    try:
        found = part.read()
    except PartRefused as error:
        return {**facts, "why": error.why}
    return {**facts, "does": found.does, "adds": found.adds(), "unused": _unused(found)}


def _unused(part: Part) -> list[str]:
    """Return the names of a part that this package has itself, and so never asks another one for."""
    known = {"runtimes": ("auto", *RUNTIMES), "formats": FORMATS, "commands": COMMANDS}
    return [name for what, names in known.items() for name in getattr(part, what) if name in names]
