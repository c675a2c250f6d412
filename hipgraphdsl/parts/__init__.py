"""Parts: what the core works without. Each is one folder here with one door, its `__init__`, and may be deleted.

The core names a part of the package as text, and `load` imports its door when it is asked for. Where the part is not there,
`load` says so by name, and `find` returns None for what the core can do without.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Final

from ..errors import PartMissing

OWN: Final = {
    "bounds": "accesses of kernels beyond their arrays (HG409)",
    "cpu": "the CPU runtime, its compiler of kernels and its sanitizer",
    "fast": "graphs built and launched by compiled code",
    "formats": "GraphML, YAML and Python files, and the difference of two workflows",
    "imports": "graphs that other code has built or captured",
    "merge": "launches of several nodes as one, and launches that begin while those before them end",
    "pages": "interactive pages",
    "program": "HIP C++ programs",
    "ranks": "one graph over several processes",
    "recorder": "the runtime that records its calls",
    "timeline": "when nodes run, predicted and measured",
    "verify": "proof by running",
}
"""The parts of this package, each with what it does."""


def load(name: str) -> ModuleType:
    """Import and return the door of a part.

    Raises
    ------
    PartMissing
        If the part is not there.
    """
    place = f"{__name__}.{name}"
    try:
        door = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise
        raise PartMissing(name, OWN.get(name, "")) from None
    if door.__file__ is None:  # a folder that only compiled files are left in
        raise PartMissing(name, OWN.get(name, ""))
    return door


def module_of(place: str) -> ModuleType:
    """Import and return a module of the package by its dotted name; PartMissing if it is of a part that is not there."""
    if place.startswith("parts."):
        load(place.split(".")[1])
    return importlib.import_module(f"{__package__.partition('.')[0]}.{place}")


_SWITCHES: Final = {"fast": "HIPGRAPHDSL_NATIVE"}
"""Parts that an environment variable disables by the value 0."""


def find(name: str) -> ModuleType | None:
    """Import and return the door of a part, or None if the part is not there or is disabled."""
    if name in _SWITCHES and os.environ.get(_SWITCHES[name]) == "0":
        return None
    try:
        return load(name)
    except PartMissing:
        return None
