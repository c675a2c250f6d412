"""From which parameters of a kernel the addresses and the integers of its body derive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...kernels import KernelParameter
from ...source import trees as syntax

Layout = np.dtype[Any] | None
"""Of what a pointer points to; None if it is not known."""


class Origin(NamedTuple):
    """What a value derives from: parameters into whose memory it points, and parameters whose integers it is computed from."""

    points: Mapping[int, Layout]
    made: frozenset[int] = frozenset()

    def __or__(self, other: Origin) -> Origin:
        return Origin({**other.points, **self.points}, self.made | other.made)


_NONE = Origin({})


class Origins:
    """The origins of the values of a body whose parameters are its variables 0, 1, ..."""

    def __init__(self, body: syntax.Block, parameters: tuple[KernelParameter, ...]) -> None:
        self._parameters = parameters
        self._known: dict[int, Origin] = {}
        self._casts: list[syntax.Cast] = []
        assigned: list[tuple[int, Any]] = []
        for node in syntax.walk(body):
            match node:
                case syntax.Cast() if node.type.pointers:
                    self._casts.append(node)
                case syntax.Declare(slot=slot, initializer=value) if value is not None and not node.bounds:
                    assigned.append((slot, value))
                case syntax.Assign(target=syntax.Name(slot=slot), value=value) if slot >= len(parameters):
                    assigned.append((slot, value))
        grown = bool(self._casts)
        while grown:
            grown = False
            for slot, value in assigned:
                grown = self._assign(slot, value) or grown

    def _assign(self, slot: int, value: Any) -> bool:
        """Add the origin of a value to that of a variable; return whether it has grown."""
        before = self._known.get(slot, _NONE)
        after = before | self.of(value)
        self._known[slot] = after
        return (len(after.points), len(after.made)) != (len(before.points), len(before.made))

    def pointers(self) -> Iterator[tuple[syntax.Cast, Origin]]:
        """Yield each conversion to a pointer, with the origin of what is converted."""
        for cast in self._casts:
            yield cast, self.of(cast.operand)

    def of(self, value: Any) -> Origin:
        """Return the origin of the value of an expression."""
        match value:
            case syntax.Name(slot=slot) if 0 <= slot < len(self._parameters) and self._parameters[slot].pointer:
                return Origin({slot: self._parameters[slot].dtype})
            case syntax.Name(slot=slot) if slot >= len(self._parameters):
                known = self._known.get(slot, _NONE)
                return Origin(known.points) if known.points else known
            case syntax.Name() | syntax.Index() | syntax.Member():
                return Origin({}, frozenset(n for n, dtype in self._places(value).items() if _is_wide(dtype)))
            case syntax.AddressOf(operand):
                return Origin(self._places(operand))
            case syntax.Cast(kind, operand):
                found = self.of(operand)
                if kind.pointers:
                    return Origin(dict.fromkeys(found.points, kind.dtype if kind.pointers == 1 else None), found.made)
                return found if kind.nbytes == 8 else _NONE
            case syntax.Binary("+" | "-" | "*" | "/" | "%" | "&" | "|" | "^" | "<<" | ">>", left, right):
                both = self.of(left) | self.of(right)
                return Origin(both.points) if both.points else both  # an integer added to a pointer is an offset
            case syntax.Binary(",", _, right):
                return self.of(right)
            case syntax.Unary("+" | "-" | "~", operand) | syntax.Assign(value=operand):
                return self.of(operand)
            case syntax.Choice(_, then, otherwise):
                return self.of(then) | self.of(otherwise)
            case syntax.Call("__ldg", (pointer,)):
                return self.of(syntax.Index(pointer, None, 0))
        return _NONE

    def _places(self, value: Any) -> Mapping[int, Layout]:
        """Return the parameters in whose data an lvalue lies, with its layout there."""
        match value:
            case syntax.Name(slot=slot) if 0 <= slot < len(self._parameters) and not self._parameters[slot].pointer:
                return {slot: self._parameters[slot].dtype}
            case syntax.Index(base, _, _):
                return self.of(base).points or self._places(base)
            case syntax.Member(base, name, arrow, _):
                within = self.of(base).points if arrow else self._places(base)
                return {n: _member(dtype, name) for n, dtype in within.items()}
        return {}


def _member(dtype: Layout, name: str) -> Layout:
    """Return the layout of a member: of a struct, or of a vector, whose members are its elements."""
    while dtype is not None and dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    if dtype is None or dtype.names is None:
        return dtype
    return dtype[name] if name in dtype.names else None


def _is_wide(dtype: Layout) -> bool:
    """Return whether these are integers that hold an address."""
    base = None if dtype is None else dtype.base
    return base is not None and base.kind in "iu" and base.itemsize == 8
