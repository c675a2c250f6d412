"""Parts of other packages, which name them as entry points of the group ``hipgraphdsl.parts``.

Reading a part imports its package. That happens when a runtime, format or command is asked for that this package does not
have, when ``hipgraphdsl parts`` lists what is there, and when a part is enabled; never at import, and never because a file was
loaded.
Runtimes, formats and commands are had by their names; checks, passes and kinds of node apply after `hipgraphdsl.enable`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .errors import DeclarationError, HipGraphError, PartRefused, listed, shown, suggested
from .parts import ENABLED, OWN

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from typing_extensions import Self

    from .checks.catalogue import Entry

GROUP: Final = "hipgraphdsl.parts"
PROTOCOL: Final = 1
"""Version of `Part` and of the protocols of what it holds."""

_FORMS: Final = {
    "runtimes": (r"[a-z][a-z0-9_]*", "tpu"),
    "formats": (r"\.[a-z0-9]+", ".csv"),
    "commands": (r"[a-z][a-z0-9-]*", "review"),
    "checks": (r"(?!HG\d)[A-Z]{2,8}\d{3}", "REV101"),
    "passes": (r"[a-z][a-z0-9_]*", "spread"),
    "kinds": (r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*", "review.mark"),
}
"""For each mapping of a part the form of its names, and an example."""

_CALLED: Final = {"runtimes": "runtime(device)", "formats": "render(workflow)", "passes": "change(plan, target)"}
_COMMAND: Final = ("DESCRIPTION", "EXAMPLES", "add_arguments", "run")


@dataclass(frozen=True, kw_only=True)
class Part:
    """What another package adds: the object that its entry point names.

    Attributes
    ----------
    protocol : int
        The version of this protocol that the package is written for: 1.
    does : str
        What the part does, in a few words.
    runtimes : mapping of str to callable
        By name: ``runtime(device)`` returns the opened `hipgraphdsl.runtimes.base.Runtime`, or raises RuntimeUnavailable.
    formats : mapping of str to callable
        By extension: ``render(workflow, *, option=default)`` returns the content of the file as str or bytes.
    commands : mapping of str to module
        By name: ``DESCRIPTION``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(options)``, which returns the exit status.
    checks : mapping of str to Entry
        By code: an `hipgraphdsl.checks.Entry` whose `check` is called for each level of a workflow and reports what it finds.
    passes : mapping of str to callable
        By name: ``change(plan, target)`` returns the plan to take in its place. They run last, in this order.
    kinds : mapping of str to type
        By kind, ``<part>.<word>``: a class of nodes that derives from `Node`, and that `enable` hands to `nodes.add_kind`.

    Raises
    ------
    DeclarationError
        If the protocol is another one, a name does not have the form of its mapping, or what it names is not what the mapping
        holds.
    """

    protocol: int
    does: str = ""
    runtimes: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    formats: Mapping[str, Callable[..., str | bytes]] = field(default_factory=dict)
    commands: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Entry] = field(default_factory=dict)
    passes: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    kinds: Mapping[str, type[Any]] = field(default_factory=dict)

    def __new__(cls, *, protocol: int, **_: Any) -> Self:
        """Refuse another protocol first, since it may have fields that this one does not know."""
        if protocol != PROTOCOL:
            raise DeclarationError(
                f"the part is written for protocol {protocol!r} of hipgraphdsl.parts, and this hipgraphdsl has protocol"
                f" {PROTOCOL}: install versions of both that agree"
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for what, (form, example) in _FORMS.items():
            for name, value in getattr(self, what).items():
                if not isinstance(name, str) or not re.fullmatch(form, name):
                    raise DeclarationError(f"{what} of a part have names such as {example!r} (got {name!r})")
                if what in _CALLED and not callable(value):
                    raise DeclarationError(f"{what} of a part are functions, called as {_CALLED[what]}; {name!r} is {value!r}")
                if what == "commands" and (lacks := [member for member in _COMMAND if not hasattr(value, member)]):
                    members = ", ".join(_COMMAND)
                    raise DeclarationError(f"command {name!r} of a part is a module with {members}; it has no {listed(lacks)}")

    def adds(self) -> dict[str, tuple[str, ...]]:
        """Return the names of what it adds, by mapping."""
        return {what: tuple(getattr(self, what)) for what in _FORMS if getattr(self, what)}


_read: Final[dict[str, Part]] = {}
_offered: Final[dict[tuple[str, str], Any]] = {}
"""What `offered` has found, by mapping and name."""


@dataclass(frozen=True)
class Installed:
    """An entry point of the group: what is known of a part without importing its package."""

    name: str
    package: str
    """Name and version of the distribution."""
    entry: EntryPoint

    def read(self) -> Part:
        """Import the package and return the part.

        Raises
        ------
        PartRefused
            If the part cannot be taken.
        """
        if self.name not in _read:
            rivals = [other.package for other in installed() if other.name == self.name and other.package != self.package]
            if rivals:
                raise self.refused(f"{listed(rivals)} has a part of this name too: uninstall one of them")
            if self.name in OWN or not self.name.isidentifier():
                raise self.refused("its name is that of a part of hipgraphdsl itself, or no identifier")
            try:
                part = self.entry.load()
            except Exception as error:  # whatever the code of another package raises
                said = str(error) if isinstance(error, HipGraphError) else f"{type(error).__name__}: {error}"
                raise self.refused(said) from error
            if not isinstance(part, Part):
                raise self.refused(f"{self.entry.value} is no hipgraphdsl.Part (got {type(part).__name__})")
            if wrong := [kind for kind in part.kinds if kind.partition(".")[0] != self.name]:
                raise self.refused(f"its kinds begin with {self.name + '.'!r}, the name of the part (got {listed(wrong)})")
            _read[self.name] = part
        return _read[self.name]

    def refused(self, why: str) -> PartRefused:
        """Return the error for a part that cannot be taken."""
        return PartRefused(self.name, self.package, why)


def installed() -> list[Installed]:
    """Return the parts that installed packages name, sorted, without importing any."""
    from importlib.metadata import entry_points  # takes longer to import than this module

    found = [
        Installed(entry.name, "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}", entry)
        for entry in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda part: (part.name, part.package))


def named(name: str) -> Installed:
    """Return the part of a name; raise DeclarationError if no installed package names such a part."""
    if not isinstance(name, str):
        raise DeclarationError(f"a part is named by the str of its entry point (got {shown(name)})")
    there = {part.name: part for part in installed()}
    if name in there:
        return there[name]
    if name in OWN:
        raise DeclarationError(f"part {name!r} is of hipgraphdsl itself and needs no enabling")
    close = suggested(name, there)
    raise DeclarationError(f"no installed package has a part {name!r}{close}; parts of other packages are {listed(there)}")


def offered(what: str, name: str) -> Any:
    """Return what a part of another package adds under a name, or None; the first time, all parts are read.

    Parameters
    ----------
    what : str
        The mapping of `Part`.
    name : str

    Raises
    ------
    DeclarationError
        If several parts have the name.
    """
    if (what, name) not in _offered:
        for part in installed():
            with suppress(PartRefused):  # `others` tells of those that cannot be read
                part.read()
        found = {key: getattr(part, what)[name] for key, part in _read.items() if name in getattr(part, what)}
        if len(found) > 1:
            raise DeclarationError(f"{name!r} is among the {what} of the parts {listed(found)}: uninstall all but one")
        if not found:
            return None
        _offered[what, name] = next(iter(found.values()))
    return _offered[what, name]


def others(what: str) -> str:
    """Return what error messages say after the package's own names: names of other packages, and parts that cannot be read."""
    text = ""
    for part in installed():
        try:
            names = getattr(part.read(), what)
        except PartRefused as error:
            text += f"; {error}"
        else:
            text += f"; part {part.name!r} of {part.package} adds {listed(names)}" if names else ""
    return text


def who_knows(kind: str) -> str:
    """Return for the error message of a file how to have a kind of node of another package. Imports nothing.

    The text is empty for a kind whose name is not of the form of those of other packages.
    """
    name, dot, _ = kind.partition(".")
    if not dot:
        return ""
    there = next((part for part in installed() if part.name == name), None)
    if there is None:
        return f"it is of the part {name!r} of another package, which is not installed"
    if name in ENABLED:
        return f"the part {name!r} of {there.package} has none: its kinds are {listed(ENABLED[name].kinds)}"
    return (
        f"it is of the part {name!r} of {there.package}, which is not enabled: call hipgraphdsl.enable({name!r}), or give a"
        f" command --enable {name}, if you trust that package; a file enables nothing"
    )
