"""Syntax trees of kernel bodies: expressions and statements. An integer literal is a `Value`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .types import CType


class Name(NamedTuple):
    """A variable of the kernel, by its number; -1 for a name declared outside the body."""

    text: str
    slot: int = -1


class Unary(NamedTuple):
    """``+ - ! ~``."""

    operator: str
    operand: Any


class AddressOf(NamedTuple):
    """``&x``."""

    operand: Any


class Binary(NamedTuple):
    """Two operands; `operator` may be ``,``."""

    operator: str
    left: Any
    right: Any


class Choice(NamedTuple):
    """``condition ? then : otherwise``."""

    condition: Any
    then: Any
    otherwise: Any


class Assign(NamedTuple):
    """``target = value``, or with an operator ``target += value``; with `before` (``x++``) the result is the old value."""

    operator: str
    target: Any
    value: Any
    before: bool = False


class Index(NamedTuple):
    """``base[index]``; ``*base`` has the index 0."""

    base: Any
    index: Any
    line: int


class Member(NamedTuple):
    """``base.name`` or ``base->name``."""

    base: Any
    name: str
    arrow: bool
    line: int


class Call(NamedTuple):
    """A function call; for a call of an expression, `name` is empty and the expression is the first argument."""

    name: str
    arguments: tuple[Any, ...]
    line: int


class Cast(NamedTuple):
    """A conversion."""

    type: CType
    operand: Any


class Opaque(NamedTuple):
    """A value that is not computed; its parts are still evaluated."""

    parts: tuple[Any, ...] = ()
    why: str = ""  # why it is not a constant


class Declare(NamedTuple):
    """A variable."""

    slot: int
    name: str
    type: CType | None  # None if the layout is unknown, or if `auto` deduces the type from the initializer
    deduced: bool  # declared with `auto`
    bounds: tuple[Any, ...]  # of an array
    initializer: Any
    space: str  # ``local``, ``shared``, ``dynamic`` (extern __shared__) or ``static``


class Block(NamedTuple):
    """Statements in braces; an expression is a statement too."""

    statements: tuple[Any, ...]


class If(NamedTuple):
    """``if``; `otherwise` may be None."""

    condition: Any
    then: Any
    otherwise: Any


class Loop(NamedTuple):
    """``for``, ``while``, or with `late` ``do``; `condition` and `step` may be None."""

    condition: Any
    step: Any
    body: Any
    late: bool = False


class Leave(NamedTuple):
    """``return``, ``break`` or ``continue``."""

    kind: str


class Unread(NamedTuple):
    """A statement that is not understood, and everything after it in the same braces."""

    reason: str


def walk(node: Any) -> Iterator[Any]:
    """Yield the nodes of a tree in preorder."""
    if isinstance(node, tuple):
        if hasattr(node, "_fields"):
            yield node
        for part in node:
            yield from walk(part)


def variables(expression: Any) -> set[int]:
    """Return the variables that an lvalue may refer to."""
    match expression:
        case Name():
            return {expression.slot} - {-1}
        case Choice():
            return variables(expression.then) | variables(expression.otherwise)
        case Binary(operator=","):
            return variables(expression.right)
        case Assign():
            return variables(expression.target)
        case Member(arrow=False):
            return variables(expression.base)
        case _:
            return set()
