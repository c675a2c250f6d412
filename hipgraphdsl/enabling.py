"""Parts of other packages become part of this process: their checks, passes and kinds of node apply."""

from __future__ import annotations

from .checks.catalogue import CATALOGUE, Entry
from .extensions import Installed, named
from .nodes import Node, add_kind, all_kinds
from .parts import ENABLED


def enable(*names: str) -> None:
    """Enable parts of other packages, by the names of their entry points, for the rest of the process.

    Their checks run in `check` and `compile`, their passes change each plan that is made afterwards, and graphs and files may
    hold their kinds of node. Runtimes, formats and commands of other packages need no enabling. Enabling a part again does
    nothing.

    Raises
    ------
    DeclarationError
        If no installed package has such a part.
    PartRefused
        If a part cannot be imported, is written for another protocol, or adds what cannot be taken. None is enabled then.
    """
    found = {name: named(name) for name in names}
    codes = dict(CATALOGUE)
    for there in found.values():
        _require_fit(there, codes)
        codes.update(there.read().checks)
    CATALOGUE.update(codes)
    for name, there in found.items():
        ENABLED[name] = there.read()
        for cls in ENABLED[name].kinds.values():
            add_kind(cls)


def _require_fit(there: Installed, codes: dict[str, Entry]) -> None:
    """Refuse kinds and checks that cannot be taken beside those that are known."""
    for kind, cls in there.read().kinds.items():
        if not (isinstance(cls, type) and issubclass(cls, Node) and getattr(cls, "kind", None) == kind):
            raise there.refused(
                f"{kind!r} is to be a class of nodes of this kind, which derives from hipgraphdsl.Node (got {cls!r})"
            )
        if (known := all_kinds().get(kind, cls)) is not cls:
            raise there.refused(f"class {known.__name__} is of kind {kind!r} already")
    for code, entry in there.read().checks.items():
        if not isinstance(entry, Entry) or not callable(entry.check):
            raise there.refused(f"{code!r} is to be a hipgraphdsl.checks.Entry with a function as its check (got {entry!r})")
        if codes.get(code, entry) is not entry:
            raise there.refused(f"another part has the code {code!r}")
