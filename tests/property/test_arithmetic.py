"""The arithmetic that checks do for all lanes at once, compared with C++'s, done exactly for one lane at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given, settings

from hipgraphdsl.parts.bounds.arithmetic import FAR, Base, Integer, Lanes, Pointer, cast, moved, operate
from hipgraphdsl.source import CType

INTEGERS = st.sampled_from([Integer(bits, unsigned) for bits in (8, 16, 32, 64) for unsigned in (False, True)])
COMPUTED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
LANES = 3


def limits(kind: Integer) -> tuple[int, int]:
    """Return the least and the greatest number of a type that lanes can hold."""
    low = 0 if kind.unsigned else -(2 ** (kind.bits - 1))
    return low, min(2 ** (kind.bits - (not kind.unsigned)) - 1, 2**63 - 1)


@st.composite
def values(draw: Any) -> Lanes:
    """Draw one number for all lanes, or one for each."""
    kind = draw(INTEGERS)
    low, high = limits(kind)
    ends = st.sampled_from([low, high, low + 1, high - 1, 0, 1])
    numbers = st.one_of(ends, st.integers(max(low, -70), 70), st.integers(low, high))
    if draw(st.booleans()):
        return Lanes(draw(numbers), draw(st.booleans()), kind)
    known = np.array(draw(st.lists(st.booleans(), min_size=LANES, max_size=LANES)))
    return Lanes(np.array(draw(st.lists(numbers, min_size=LANES, max_size=LANES)), np.int64), known, kind)


def lanes(value: Any) -> list[int]:
    return [int(number) for number in np.broadcast_to(np.asarray(value), (LANES,))]


def converted(number: int, kind: Integer) -> int:
    """Return a number in another type."""
    number &= 2**kind.bits - 1
    return number if kind.unsigned or number < 2 ** (kind.bits - 1) else number - 2**kind.bits


def exact(sign: str, x: int, y: int, left: Integer, right: Integer) -> int | None:
    """Return what C++ computes; None where it says nothing."""
    ours, theirs = (kind if kind.bits >= 32 else Integer() for kind in (left, right))
    if sign in ("<<", ">>"):
        if not 0 <= y < ours.bits:
            return None
        return converted(x << y, ours) if sign == "<<" else x >> y
    bits = max(ours.bits, theirs.bits)
    kind = Integer(bits, any(one.unsigned for one in (ours, theirs) if one.bits == bits))
    x, y = converted(x, kind), converted(y, kind)
    if sign in ("/", "%"):
        if y == 0:
            return None
        result = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        result = result if sign == "/" else x - result * y
    else:
        result = int(COMPUTED[sign](x, y))
    if sign in ("==", "!=", "<", "<=", ">", ">="):
        return result
    return converted(result, kind) if kind.unsigned or result == converted(result, kind) else None


@settings(max_examples=300)
@given(sign=st.sampled_from(list(COMPUTED)), left=values(), right=values())
@example("%", Lanes(-(2**63), False, Integer(64)), Lanes(1, False, Integer(32)))
@example("%", Lanes(-(2**63), True, Integer(64)), Lanes(-1, True, Integer(64)))
def test_what_checks_know_of_a_result_is_what_cpp_computes(sign: str, left: Lanes, right: Lanes) -> None:
    result = operate(sign, left, right)
    assert result is not None
    for known, number, x, y in zip(lanes(result.known), lanes(result.number), lanes(left.number), lanes(right.number)):
        wanted = exact(sign, x, y, left.type, right.type)
        assert not known or number == wanted, f"{x} {sign} {y} = {wanted}, and checks say {number}"


@settings(max_examples=100)
@given(index=values(), at=st.integers(-FAR * 2, FAR * 2), sign=st.sampled_from([1, -1]), size=st.sampled_from([1, 4, 24]))
def test_a_pointer_far_away_is_not_known(index: Lanes, at: int, sign: int, size: int) -> None:
    pointer = Lanes(np.full(LANES, at), True, Pointer(Base("none", ""), CType("", size=size)))
    for one in (pointer, pointer._replace(number=at)):
        result = moved(one, index, sign)
        assert result is not None
        for known, number, by in zip(lanes(result.known), lanes(result.number), lanes(index.number)):
            assert not known or number == at + sign * by * size


@settings(max_examples=100)
@given(value=values(), kind=INTEGERS)
def test_a_number_keeps_its_value_in_a_type_that_has_it(value: Lanes, kind: Integer) -> None:
    result = cast(value, kind)
    for known, number, before in zip(lanes(result.known), lanes(result.number), lanes(value.number)):
        assert not known or number == converted(before, kind)
