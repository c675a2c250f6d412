"""C++ arithmetic of integers and pointers with one value per lane, any of which may be unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ...source import CType
from ...source.expressions import COMPARED, COMPUTED

_LEAST: Final = -(2**63)
FAR: Final = 2**52
"""Offsets and loop counters from this magnitude on count as unknown; for offsets this prevents overflow of int64."""

Known = Any  # bool, or an array of one per lane


@dataclass(frozen=True, slots=True)
class Base:
    """What a pointer points into: an ``argument``, a ``symbol``, ``shared`` or ``local`` memory, or ``dynamic`` shared memory.

    `nbytes` is -1 if the kernel's source does not tell; `number` is the index of an argument, else -1.
    """

    kind: str
    name: str
    nbytes: int = -1
    number: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer type; bool has 1 bit."""

    bits: int = 32
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Pointer:
    """The type of a pointer into `base`, to elements of some type or to arrays of them with `extents`.

    If it points to a member of a struct or vector, `whole` is the size of that struct or vector in bytes, else 0.
    """

    base: Base
    element: CType
    extents: tuple[int, ...] = ()
    whole: int = 0

    @property
    def size(self) -> int:
        """Bytes of an element; 0 if unknown."""
        return self.element.size

    @property
    def stride(self) -> int:
        """Bytes by which the pointer advances when incremented."""
        return self.size * math.prod(self.extents)


class Lanes(NamedTuple):
    """A value in each lane: an integer, or a pointer as bytes from its base."""

    number: Any  # int, or an array of one per lane
    known: Known  # where it is False, the number is meaningless
    type: Any = Integer()  # or a Pointer


def as_integer(value: Lanes | None) -> Lanes | None:
    """Return the value if it is an integer, else None."""
    return value if value is not None and isinstance(value.type, Integer) else None


def as_pointer(value: Lanes | None) -> Lanes | None:
    """Return the value if it is a pointer, else None."""
    return value if value is not None and isinstance(value.type, Pointer) else None


def type_of(kind: CType) -> Integer | Pointer | None:
    """Return the `Integer` or `Pointer` of a C++ type; None for types other than integers and single pointers."""
    if kind.pointers == 1:
        return Pointer(Base("none", ""), replace(kind, pointers=0))
    return Integer(*kind.integer) if kind.integer[0] else None


def settled(number: Any) -> Any:
    """Return an array as int64, and a scalar or 0-d array as int."""
    return number.astype(np.int64, copy=False) if isinstance(number, np.ndarray) and number.ndim else int(number)


def fits(number: Any, kind: Integer) -> Known:
    """Return whether a type can represent a number; numbers beyond 63 bits count as not representable."""
    if kind.bits == 1:
        return (number >= 0) & (number <= 1)
    low, high = (0, 2**kind.bits - 1) if kind.unsigned else (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
    return (number >= low) & (number <= min(high, 2**63 - 1))


def fit(number: Any, known: Known, kind: Integer) -> Lanes:
    """Convert a result to its type: unsigned types of less than 64 bits wrap around, others are unknown where they overflow."""
    if kind.bits == 1:
        return Lanes(settled(number != 0), known, Integer(1, unsigned=True))
    if kind.unsigned and kind.bits < 64:
        return Lanes(number & (2**kind.bits - 1), known, kind)
    inside = fits(number, kind)
    if isinstance(number, int) and not inside:
        number = 0
    return Lanes(number, known & inside, kind)


def cast(value: Lanes | None, kind: Integer | Pointer) -> Lanes:
    """Convert a value to a type, unknown if that is not possible; a pointer keeps its base."""
    if isinstance(kind, Integer) and (integer := as_integer(value)):
        return fit(integer.number, integer.known, kind)
    if isinstance(kind, Pointer) and (pointer := as_pointer(value)):
        return pointer._replace(type=replace(kind, base=pointer.type.base))
    return Lanes(0, known=False, type=kind)


def promoted(value: Lanes) -> Lanes:
    """Return an integer after C++'s integral promotion."""
    return value if value.type.bits >= 32 else Lanes(value.number, value.known)


def common(left: Lanes, right: Lanes) -> tuple[Lanes, Lanes, Integer]:
    """Return two integers after the usual arithmetic conversions, and their type."""
    left, right = promoted(left), promoted(right)
    bits = max(left.type.bits, right.type.bits)
    kind = Integer(bits, any(value.type.unsigned for value in (left, right) if value.type.bits == bits))
    return cast(left, kind), cast(right, kind), kind


def operate(sign: str, left: Lanes | None, right: Lanes | None) -> Lanes | None:
    """Return the result of a binary operator; None if its type is unknown."""
    if as_pointer(left) or as_pointer(right):
        if sign == "+":
            return moved(left, right, 1)
        return moved(left, right, -1) if sign == "-" and as_pointer(left) else None
    if left is None or right is None:
        return None
    if sign in ("<<", ">>"):
        return _shift(sign, promoted(left), promoted(right))
    (x, x_known, _), (y, y_known, _), kind = common(left, right)
    known = x_known & y_known
    if sign in COMPARED:
        return Lanes(settled(COMPARED[sign](x, y)), known)
    if sign in ("/", "%"):
        known = known & (y != 0) & (x > _LEAST) & (y > _LEAST)  # abs() of the least int64 overflows
        dividend, divisor = np.where(x > _LEAST, x, 0), np.where((y != 0) & (y > _LEAST), y, 1)
        quotients = np.where((dividend < 0) == (divisor < 0), 1, -1) * (abs(dividend) // abs(divisor))
        return fit(settled(quotients if sign == "/" else dividend - quotients * divisor), known, kind)
    if sign not in COMPUTED:
        return None
    if sign in ("+", "-") and kind.bits == 64:
        known = known & (_magnitude(x) < 2.0**62) & (_magnitude(y) < 2.0**62)
    elif sign == "*" and (kind.bits == 64 or kind.unsigned):
        known = known & (_magnitude(x) * _magnitude(y) < 2.0**62)
    return fit(settled(COMPUTED[sign](x, y)), known, kind)


def _shift(sign: str, left: Lanes, right: Lanes) -> Lanes:
    known = left.known & right.known & (right.number >= 0) & (right.number < left.type.bits)
    by = right.number if isinstance(right.number, int) and known is True else np.where(known, right.number, 0)
    if sign == ">>":
        return Lanes(settled(left.number >> by), known, left.type)
    known = known & (left.number >= 0) & (_magnitude(left.number) * 2.0 ** _magnitude(by) < 2.0**62)
    return fit(settled(left.number << by), known, left.type)


def _magnitude(number: Any) -> Any:
    """Return |number| as a floating-point number, which unlike int64 can represent the magnitude of the least int64."""
    return abs(float(number) if isinstance(number, int) else number.astype(float))


def moved(pointer: Lanes | None, index: Lanes | None, sign: int) -> Lanes | None:
    """Return a pointer advanced by some elements; None if the element size is unknown or the index is not an integer."""
    if as_pointer(index):
        pointer, index = index, pointer
    if pointer is None or not isinstance(pointer.type, Pointer) or as_integer(index) is None or not pointer.type.stride:
        return None
    assert index is not None
    stride = pointer.type.stride
    by, at = _near(index.number, FAR // stride), _near(pointer.number, FAR)
    known = pointer.known & index.known & (by == index.number) & (at == pointer.number)
    return pointer._replace(number=at + sign * by * stride, known=known)


def member_of(pointer: Lanes | None, name: str) -> Lanes | None:
    """Return the address of a member of the struct or vector that a pointer points to; None if its offset is unknown."""
    if pointer is None or not isinstance(pointer.type, Pointer) or pointer.type.extents:
        return None
    of = pointer.type
    dtype = of.element.dtype
    extents: tuple[int, ...] = ()
    if dtype is None:
        return None
    if dtype.fields is not None:
        if name not in dtype.fields:
            return None
        kind, offset = dtype.fields[name][:2]
        kind, extents = kind.subdtype or (kind, ())
    else:
        parts = 2 if dtype.kind == "c" else of.element.lanes
        if parts == 1 or name not in list("xyzw"[:parts]):
            return None
        kind = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
        offset = "xyzw".index(name) * kind.itemsize
    member = Pointer(of.base, CType("", kind, size=kind.itemsize), extents, of.whole or of.size)
    return Lanes(pointer.number + offset, pointer.known, member)


def _near(number: Any, limit: int) -> Any:
    """Return the number where its magnitude is below a limit, and 0 elsewhere."""
    if isinstance(number, int):
        return number if abs(number) < limit else 0
    return np.where((number > -limit) & (number < limit), number, 0)
