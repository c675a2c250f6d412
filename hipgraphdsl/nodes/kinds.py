"""The kinds of nodes that graphs, files, checks, plans and drawings know."""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import DeclarationError
from .base import Node

N = TypeVar("N", bound=Node)

KINDS: dict[str, type[Node]] = {}
"""Node classes by kind; `add_kind` adds to them."""


def add_kind(cls: type[N]) -> type[N]:
    """Make a kind of node known; a decorator of its class, for other packages too.

    Raises
    ------
    DeclarationError
        If another class has the kind.
    """
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
