"""The kinds of nodes that graphs, files, checks, plans and drawings know."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, TypeVar

from ..errors import DeclarationError
from .base import Node

N = TypeVar("N", bound=Node)

KINDS: dict[str, type[Node]] = {}
"""Node classes by kind, of the modules that have been imported; `add_kind` adds to them."""

_MODULE_OF: Final = {
    "kernel": "kernel",
    **dict.fromkeys(("memcpy", "memset", "alloc", "free"), "memory"),
    "host": "host",
    **dict.fromkeys(("record", "wait", "empty", "signal", "wait_semaphore", "memory_ops"), "sync"),
    **dict.fromkeys(("captured", "eager"), "host"),
    **dict.fromkeys(("child", "conditional"), "children"),
    "collective": "collective",
}
"""The package's own kinds in the order of the file format's schema, each with the module here that makes it known.

The modules from `host` on are imported by programs that have a node of theirs, and where all kinds must be known.
"""


def _load(kind: str) -> None:
    """Import the module of one of the package's own kinds."""
    import_module(f"{__package__}.{_MODULE_OF[kind]}")


def all_kinds() -> dict[str, type[Node]]:
    """Return the node classes of all kinds by kind, the package's own first; import their modules."""
    for kind in _MODULE_OF:
        if kind not in KINDS:
            _load(kind)
    return {kind: KINDS[kind] for kind in (*_MODULE_OF, *KINDS)}


def add_kind(cls: type[N]) -> type[N]:
    """Make a kind of node known; a decorator of its class, for other packages too.

    Raises
    ------
    DeclarationError
        If another class has the kind.
    """
    if cls.kind in _MODULE_OF and not cls.__module__.startswith(f"{__package__}."):
        _load(cls.kind)  # the package's own class is the first of its kind
    known = KINDS.setdefault(cls.kind, cls)
    if known is not cls:
        raise DeclarationError(f"class {cls.__name__} is of kind {cls.kind!r}, as {known.__name__} is; choose another kind")
    return cls


def node_of(kind: str, **fields: Any) -> Node:
    """Return a new node of a kind, for passes that add nodes of their own."""
    if kind not in KINDS:
        _load(kind)
    return KINDS[kind](**fields)


def is_node(value: object) -> bool:
    """Return whether a value is a node of a known class."""
    return isinstance(value, Node) and KINDS.get(getattr(value, "kind", "")) is type(value)
