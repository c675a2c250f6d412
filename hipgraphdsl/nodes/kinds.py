"""The kinds of nodes that graphs, files, checks, plans and drawings know."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, TypeVar

from ..errors import DeclarationError
from .base import Node

N = TypeVar("N", bound=Node)

KINDS: dict[str, type[Node]] = {}
"""Node classes by kind, of the modules that have been imported; `add_kind` adds to them."""

_HOLDING: Final = {kind: f"{__package__}.{name}" for kind, name in (
    ("child", "children"), ("conditional", "children"), ("collective", "collective"),
)}  # fmt: skip
"""Kinds of this package that hold workflows, as few graphs have any, each with its module, which makes it known."""


def all_kinds() -> dict[str, type[Node]]:
    """Return the node classes of all kinds by kind; import those of the package that have not been."""
    for module in _HOLDING.values():
        import_module(module)
    return KINDS


def add_kind(cls: type[N]) -> type[N]:
    """Make a kind of node known; a decorator of its class, for other packages too.

    Raises
    ------
    DeclarationError
        If another class has the kind.
    """
    if (module := _HOLDING.get(cls.kind, cls.__module__)) != cls.__module__:
        import_module(module)
    known = KINDS.setdefault(cls.kind, cls)
    if known is not cls:
        raise DeclarationError(f"class {cls.__name__} is of kind {cls.kind!r}, as {known.__name__} is; choose another kind")
    return cls


def node_of(kind: str, **fields: Any) -> Node:
    """Return a new node of a kind, for passes that add nodes of their own."""
    return KINDS[kind](**fields)


def is_node(value: object) -> bool:
    """Return whether a value is a node of a known class."""
    return isinstance(value, Node) and KINDS.get(getattr(value, "kind", "")) is type(value)
