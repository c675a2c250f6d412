"""Parts: what the core works without. Each is one folder here with one door, its `__init__`, and may be deleted.

The core names a part of the package as text, and `load` imports its door when it is asked for. Where the part is not there,
`load` says so by name, and `find` returns None for what the core can do without.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn

from ..errors import PartMissing
from ..settings import setting


class Own(NamedTuple):
    """A part of this package."""

    does: str
    uses: tuple[str, ...] = ()
    """The parts that it imports, and is not there without."""


OWN: Final = {
    "bench": Own("how fast hipgraphdsl is, beside other libraries"),
    "bounds": Own("what kernels do beyond what their arguments say (HG207, HG409, HG606)"),
    "cpu": Own("the CPU runtime, its compiler of kernels and its sanitizer"),
    "family": Own("graphs for several sizes, behind the methods of one"),
    "fast": Own("graphs built and launched by compiled code"),
    "formats": Own("GraphML, YAML and Python files, and the difference of two workflows"),
    "imports": Own("graphs that other code has built or captured"),
    "merge": Own("launches of several nodes as one, and launches that begin while those before them end"),
    "pages": Own("interactive pages", ("ranks",)),
    "program": Own("HIP C++ programs", ("recorder",)),
    "ranks": Own("one graph over several processes"),
    "recorder": Own("the runtime that records its calls"),
    "timeline": Own("when nodes run, predicted and measured", ("ranks",)),
    "verify": Own("proof by running", ("imports",)),
}
"""The parts of this package."""

ENABLED: Final[dict[str, Any]] = {}
"""The parts of other packages that the program has enabled, each a `hipgraphdsl.Part`, by name."""


def load(name: str) -> ModuleType:
    """Import and return the door of a part.

    Raises
    ------
    PartMissing
        If the part, or one that it uses, is not there.
    """
    place = f"{__name__}.{name}"
    try:
        door = importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = (error.name or "").removeprefix(f"{__name__}.").partition(".")[0]
        if not error.name or missing not in (name, *OWN) or not error.name.startswith(f"{__name__}."):
            raise
        raise _missing(missing) from None
    if door.__file__ is None:  # a folder that only compiled files are left in
        raise _missing(name)
    for used in OWN[name].uses if name in OWN else ():  # looked for only: their own call imports them
        spec = importlib.util.find_spec(f"{__name__}.{used}")
        if spec is None or spec.origin is None:
            raise _missing(used)
    return door


def _missing(name: str) -> PartMissing:
    return PartMissing(name, OWN[name].does if name in OWN else "")


def module_of(place: str) -> ModuleType:
    """Import and return a module of the package by its dotted name; PartMissing if it is of a part that is not there."""
    if place.startswith("parts."):
        load(place.split(".")[1])
    return importlib.import_module(f"{__package__.partition('.')[0]}.{place}")


class Absent:
    """What stands for a name of a part that is not there: it can be looked at, and its first use raises PartMissing.

    Nothing is an instance of it. Names that begin with an underscore it has as every object has, because Python asks for them.
    """

    def __init__(self, name: str, part: str) -> None:
        self._name, self._part = name, part

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _missing(self._part)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _missing(self._part)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise _missing(self._part)

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._name}, of the part {self._part!r} of hipgraphdsl, which is not there>"


def lazily(door: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a door, which imports the module of each of `names` when it is first asked for.

    No name is that of a module of the part, which would take its place once it is imported.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{door}.{names[name]}"), name)
        setattr(sys.modules[door], name, value)
        return value

    return get


_SWITCHES: Final = {"fast": "HIPGRAPHDSL_NATIVE"}
"""Parts that an environment variable disables by the value 0."""


def find(name: str) -> ModuleType | None:
    """Import and return the door of a part, or None if the part is not there or is disabled."""
    if name in _SWITCHES and setting(_SWITCHES[name]) == "0":
        return None
    try:
        return load(name)
    except PartMissing:
        return None
