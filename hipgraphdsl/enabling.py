"""Parts of other packages become part of this process: their checks, passes and kinds of node apply."""

from __future__ import annotations

from .checks.catalogue import CATALOGUE
from .errors import HipGraphError
from .extensions import Part, enabled, named
from .nodes import KINDS
from .workflow import ChildGraphNode


def enable(*names: str) -> None:
    """Enable parts of other packages, by the names of their entry points, for the rest of the process.

    Their checks run in `check` and `compile`, their passes change each plan that is made afterwards, and graphs and files may hold their
    kinds of node. Runtimes, formats and commands of other packages need no enabling. Enabling a part again does nothing.

    Raises
    ------
    DeclarationError
        If no installed package has such a part.
    HipGraphError
        If a part cannot be imported, is written for another protocol, or adds what cannot be taken. None is enabled then.
    """
    found = {name: named(name) for name in names}
    for name, part in found.items():
        _require_fit(name, part)
    for name, part in found.items():
        CATALOGUE.update(part.checks)
        KINDS.update(part.kinds)
        enabled[name] = part


def _require_fit(name: str, part: Part) -> None:
    for kind, cls in part.kinds.items():
        if not (isinstance(cls, type) and issubclass(cls, ChildGraphNode) and cls.kind == kind):
            raise HipGraphError(
                f"part {name!r} cannot be enabled: its kind {kind!r} is a class of this kind that derives from ChildGraphNode (got {cls!r})"
            )
    taken = [code for code, entry in part.checks.items() if CATALOGUE.get(code, entry) is not entry]
    if taken:
        raise HipGraphError(f"part {name!r} cannot be enabled: another part has the codes {', '.join(taken)}")
