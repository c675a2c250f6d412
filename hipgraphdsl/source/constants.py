"""Integer constant expressions, evaluated from their syntax trees.

Constants have C++ types and follow the usual arithmetic conversions; `#if` has only intmax_t and uintmax_t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import trees as syntax
from .expressions import COMPARED, COMPUTED, Reader, TypeNamed
from .tokens import Token
from .types import Value

Lookup = Callable[[str], Value | int | None]
"""Value of a name, or None."""


class Undecided(ValueError):
    """The expression is well-formed, but its value depends on something only the compiler knows."""


def constant(tokens: Sequence[Token], lookup: Lookup, type_named: TypeNamed = lambda _: None) -> Value:
    """Evaluate an integer constant expression.

    Raises
    ------
    ValueError
        If it is not one, if it uses a name that `lookup` does not know, or if it overflows a signed type.
    """
    try:
        return _Evaluator(lookup, condition=False).whole(Reader(tokens, type_named))
    except RecursionError:  # constants refer to each other in a long chain
        raise ValueError("it is nested too deeply") from None


def evaluate_condition(tokens: Sequence[Token], lookup: Lookup) -> bool:
    """Evaluate the expression of an `#if`, whose numbers are all intmax_t or uintmax_t.

    Raises
    ------
    Undecided
        If it needs the value of a name for which `lookup` returns None.
    ValueError
        If it is not a valid preprocessor expression.
    """
    return _Evaluator(lookup, condition=True).whole(Reader(tokens, lambda _: None, condition=True)).number != 0


class _Evaluator:
    """Evaluates a tree; None if only the compiler knows the value. Operands that C++ does not evaluate may contain errors."""

    def __init__(self, lookup: Lookup, *, condition: bool) -> None:
        self.lookup = lookup
        self.condition = condition
        #: Bits and signedness of comparisons and logical operators: as an operand, bool is promoted to int.
        self.boolean = (64 if condition else 32), False
        self.unknown = "it"  # what an undecided expression depends on

    def whole(self, reader: Reader) -> Value:
        tree = reader.single()
        if reader.at != len(reader.tokens):
            raise ValueError(f"{reader.tokens[reader.at].text!r} is not part of a constant expression")
        result = self.value(tree)
        if result is None:
            raise Undecided(self.unknown)
        return result

    def value(self, node: Any) -> Value | None:
        match node:
            case Value():
                return node
            case syntax.Name(text=name):
                return self.named(name)
            case syntax.Call(name=name) if name:
                if self.condition and self.named(name) is None:  # __has_include(<...>) and similar
                    return None
                raise ValueError(f"{name!r} has no known value")
            case syntax.Unary():
                operand = self.value(node.operand)
                return None if operand is None else self.unary(node.operator, operand)
            case syntax.Binary():
                return self.binary(node)
            case syntax.Choice():
                return self.choice(node)
            case syntax.Cast():
                bits, unsigned = node.type.integer
                if not bits:
                    raise ValueError("a cast to what is no integer type")
                operand = self.value(node.operand)
                return None if operand is None else operand.converted(bits, unsigned)
            case syntax.Opaque(why=why) if why:
                raise ValueError(why)
        raise ValueError("it is no constant expression")

    def named(self, name: str) -> Value | None:
        found = self.lookup(name)
        if found is None:
            if not self.condition:
                raise ValueError(f"{name!r} has no known value")
            self.unknown = repr(name)
            return None
        if isinstance(found, Value):
            return found
        bits = 64 if self.condition or not Value(found).fits else 32
        return Value(found, bits, not Value(found, bits).fits)

    def choice(self, node: syntax.Choice) -> Value | None:
        chosen = self.value(node.condition)
        if chosen is None:
            return None
        taken, left_out = (node.then, node.otherwise) if chosen.number else (node.otherwise, node.then)
        try:
            other = self.value(left_out)  # for its type
        except ValueError:
            other = None
        picked = self.value(taken)
        if picked is None or other is None:
            return picked  # an operand of unknown type is assumed to have the same type
        bits, unsigned = self.common(self.promoted(picked), self.promoted(other))
        return Value(picked.number, bits, unsigned).wrapped()

    def binary(self, node: syntax.Binary) -> Value | None:
        pending = [node]
        while isinstance(node.left, syntax.Binary):  # iterate: a long sum is a deep tree
            node = node.left
            pending.append(node)
        left = self.value(node.left)
        for each in reversed(pending):
            if each.operator in ("&&", "||"):
                left = self.logical(each.operator == "||", left, each.right)
            else:
                right = self.value(each.right)
                left = None if left is None or right is None else self.operate(each.operator, left, right)
        return left

    def logical(self, settles: bool, left: Value | None, right: Any) -> Value | None:
        """Evaluate ``||`` or ``&&``; `settles` is the truth value of an operand that decides the result on its own."""
        sides = [left]
        if left is None or bool(left.number) != settles:
            sides.append(self.value(right))
        if any(side is not None and bool(side.number) == settles for side in sides):
            return Value(int(settles), *self.boolean)
        return None if None in sides else Value(int(not settles), *self.boolean)

    def unary(self, operator: str, operand: Value) -> Value:
        if operator == "!":
            return Value(int(not operand.number), *self.boolean)
        operand = self.promoted(operand)
        if operator == "~":
            return Value(~operand.number, operand.bits, operand.unsigned).wrapped()
        return operand if operator == "+" else self.made(-operand.number, operand.bits, operand.unsigned)

    def made(self, number: int, bits: int, unsigned: bool) -> Value:
        value = Value(number, bits, unsigned)
        if not unsigned and not self.condition and not value.fits:
            raise ValueError(f"{number} does not fit in a signed integer of {bits} bits")
        return value.wrapped()

    def promoted(self, value: Value) -> Value:
        if self.condition:
            return value._replace(bits=64)
        return value if value.bits >= 32 else Value(value.number, 32, unsigned=False)

    @staticmethod
    def common(a: Value, b: Value) -> tuple[int, bool]:
        """Return bits and signedness after the usual arithmetic conversions of two promoted operands."""
        if a.bits == b.bits:
            return a.bits, a.unsigned or b.unsigned
        wide = a if a.bits > b.bits else b
        return wide.bits, wide.unsigned

    def operate(self, operator: str, left: Value, right: Value) -> Value:
        left, right = self.promoted(left), self.promoted(right)
        a, b = left.number, right.number
        if operator in ("<<", ">>"):
            if not 0 <= b < left.bits:
                raise ValueError(f"a shift by {b} bits is not defined")
            shifted = a << b if operator == "<<" else a >> b
            return Value(shifted, left.bits, left.unsigned).wrapped()
        bits, unsigned = self.common(left, right)
        a, b = Value(a, bits, unsigned).wrapped().number, Value(b, bits, unsigned).wrapped().number
        if operator in COMPARED:
            return Value(int(COMPARED[operator](a, b)), *self.boolean)
        if operator in COMPUTED:
            return self.made(COMPUTED[operator](a, b), bits, unsigned)
        if operator == ",":
            raise ValueError("',' is not part of a constant expression")
        if b == 0:
            raise ValueError("division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # C++ truncates toward zero
        if not Value(quotient, bits, unsigned).fits and self.condition:
            raise ValueError("the quotient overflows")
        return self.made(quotient if operator == "/" else a - quotient * b, bits, unsigned)
