"""Integer constant expressions with C++'s types: its usual conversions, and in `#if` only intmax_t and uintmax_t."""

from __future__ import annotations

import operator as op
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from .tokens import Token, closing_index


class Undecided(ValueError):
    """The expression is well-formed, and its value depends on what only the compiler knows."""


class Value(NamedTuple):
    """A number with its C++ type: `bits` of it, `bool` has 1, and whether the type is unsigned."""

    number: int
    bits: int = 32
    unsigned: bool = False

    def wrapped(self) -> Value:
        """Return the number that the type holds: modulo 2**bits."""
        number = self.number & ((1 << self.bits) - 1)
        if not self.unsigned and number >> (self.bits - 1):
            number -= 1 << self.bits
        return self._replace(number=number)

    @property
    def fits(self) -> bool:
        """Whether the number is one of its type."""
        return self.wrapped().number == self.number

    def converted(self, bits: int, unsigned: bool) -> Value:
        """Return what an integer type makes of the number; `bool` has 1 bit."""
        return Value(int(self.number != 0), 1, True) if bits == 1 else Value(self.number, bits, unsigned).wrapped()


Lookup = Callable[[str], Value | int | None]
"""Value of a name, or None."""
Sizes = Callable[[Sequence[Token]], tuple[int, bool, int] | None]
"""For the words of a type its bits, whether it is unsigned, and its size in bytes; bits are 0 where it is no integer type."""


LEVELS: Final = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
WORDS: Final = {
    "and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~", "not_eq": "!=",
}  # fmt: skip
COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge,
}  # fmt: skip
COMPUTED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "|": op.or_, "^": op.xor, "&": op.and_, "+": op.add, "-": op.sub, "*": op.mul,
}  # fmt: skip
_ESCAPES: Final = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)([uU]?(?:ll|LL|[lLzZ])?|(?:ll|LL|[lLzZ])[uU])")


def constant(tokens: Sequence[Token], lookup: Lookup, sizes: Sizes = lambda _: None) -> Value:
    """Evaluate an integer constant expression.

    Raises
    ------
    ValueError
        If it is not one, if it holds a name that `lookup` does not know, or if it overflows a signed type.
    """
    return _Parser(tokens, lookup, sizes, condition=False).whole()


def evaluate_condition(tokens: Sequence[Token], lookup: Lookup) -> bool:
    """Evaluate the expression of an `#if`, in which all numbers are intmax_t or uintmax_t.

    Raises
    ------
    Undecided
        If it needs the value of a name for which `lookup` has None.
    ValueError
        If it is no expression that the preprocessor takes.
    """
    return _Parser(tokens, lookup, lambda _: None, condition=True).whole().number != 0


class _Parser:
    """Recursive descent; what is not evaluated (the other side of `?:`, `&&`, `||`) is parsed, and its errors do not count."""

    def __init__(self, tokens: Sequence[Token], lookup: Lookup, sizes: Sizes, *, condition: bool) -> None:
        self.words: list[Token] = []
        for token in tokens:  # a shift to the right arrives as two tokens
            last = self.words[-1] if self.words else None
            if last is not None and token.text == last.text == ">" and last.end == token.start:
                self.words[-1] = last._replace(text=">>", end=token.end)
            else:
                self.words.append(token)
        self.at = 0
        self.lookup = lookup
        self.sizes = sizes
        self.condition = condition
        self.skipping = 0
        #: Bits and sign of comparisons and logical operators: as an operand, bool is promoted to int.
        self.boolean = (64 if condition else 32), False
        self.unknown = "it"  # what an undecided expression depends on

    def whole(self) -> Value:
        result = self.ternary()
        if self.at != len(self.words):
            raise ValueError(f"{self.words[self.at].text!r} is not part of a constant expression")
        if result is None:
            raise Undecided(self.unknown)
        return result

    def peek(self) -> str:
        if self.at >= len(self.words):
            return ""
        token = self.words[self.at]
        return token.text if token.kind != "name" else WORDS.get(token.text, token.text)

    def take(self) -> Token:
        if self.at >= len(self.words):
            raise ValueError("the expression ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def fault(self, why: str) -> Value:
        """Refuse an operation where it is evaluated."""
        if not self.skipping:
            raise ValueError(why)
        return Value(0)

    def made(self, number: int, bits: int, unsigned: bool) -> Value:
        value = Value(number, bits, unsigned)
        if unsigned or self.condition or value.fits:
            return value.wrapped()
        return self.fault(f"{number} does not fit in a signed integer of {bits} bits")

    def promoted(self, value: Value) -> Value:
        if self.condition:
            return value._replace(bits=64)
        return value if value.bits >= 32 else Value(value.number, 32, False)

    # -- grammar -------------------------------------------------------------------------------------------------------

    def ternary(self) -> Value | None:
        chosen = self.binary(1)
        if self.peek() != "?":
            return chosen
        self.take()
        yes = self.unless(chosen is not None and not chosen.number, self.ternary)
        if self.take().text != ":":
            raise ValueError("a ':' is missing")
        no = self.unless(chosen is not None and chosen.number != 0, self.ternary)
        if chosen is None:
            return None
        picked = yes if chosen.number else no
        other = no if chosen.number else yes
        if picked is None or other is None:
            return picked  # the type of what is not known is taken for the same
        bits, unsigned = self.common(self.promoted(picked), self.promoted(other))
        return Value(picked.number, bits, unsigned).wrapped()

    def unless(self, skipped: bool, parse: Callable[[], Value | None]) -> Value | None:
        self.skipping += skipped
        try:
            return parse()
        finally:
            self.skipping -= skipped

    def common(self, a: Value, b: Value) -> tuple[int, bool]:
        """Return the type of the usual arithmetic conversions, of operands that are promoted."""
        if a.bits == b.bits:
            return a.bits, a.unsigned or b.unsigned
        wide = a if a.bits > b.bits else b
        return wide.bits, wide.unsigned

    def binary(self, level: int) -> Value | None:
        left = self.unary()
        while True:
            operator = self.peek()
            known = LEVELS.get(operator)
            if known is None or known < level:
                return left
            self.take()
            if operator in ("&&", "||"):
                decided = left is not None and bool(left.number) == (operator == "||")
                right = self.unless(decided, lambda known=known: self.binary(known + 1))  # type: ignore[misc]
                left = self.logical(operator, left, right)
            else:
                right = self.binary(known + 1)
                left = None if left is None or right is None else self.operate(operator, left, right)

    def logical(self, operator: str, left: Value | None, right: Value | None) -> Value | None:
        settles = operator == "||"
        for side in (left, right):
            if side is not None and bool(side.number) == settles:
                return Value(int(settles), *self.boolean)
        return None if left is None or right is None else Value(int(not settles), *self.boolean)

    def operate(self, operator: str, left: Value, right: Value) -> Value:
        left, right = self.promoted(left), self.promoted(right)
        a, b = left.number, right.number
        if operator in ("<<", ">>"):
            if not 0 <= b < left.bits:
                return self.fault(f"a shift by {b} bits is not defined")
            shifted = a << b if operator == "<<" else a >> b
            return Value(shifted, left.bits, left.unsigned).wrapped()
        bits, unsigned = self.common(left, right)
        a, b = Value(a, bits, unsigned).wrapped().number, Value(b, bits, unsigned).wrapped().number
        if operator in COMPARED:
            return Value(int(COMPARED[operator](a, b)), *self.boolean)
        if operator in COMPUTED:
            return self.made(COMPUTED[operator](a, b), bits, unsigned)
        if b == 0:
            return self.fault("division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # C++ truncates
        if not Value(quotient, bits, unsigned).fits and self.condition:
            return self.fault("the quotient overflows")
        return self.made(quotient if operator == "/" else a - quotient * b, bits, unsigned)

    def unary(self) -> Value | None:
        operator = self.peek()
        if operator in ("-", "+", "!", "~") and self.words[self.at].kind != "string":
            self.take()
            operand = self.unary()
            if operand is None:
                return None
            if operator == "!":
                return Value(int(not operand.number), *self.boolean)
            operand = self.promoted(operand)
            if operator == "~":
                return Value(~operand.number, operand.bits, operand.unsigned).wrapped()
            return operand if operator == "+" else self.made(-operand.number, operand.bits, operand.unsigned)
        token = self.take()
        text = token.text
        if text == "(":
            return self.parenthesis()
        if token.kind == "number":
            return self.literal(text)
        if token.kind == "char":
            return self.character(text)
        if token.kind != "name":
            raise ValueError(f"{text!r} is not part of a constant expression")
        if text in ("true", "false"):
            return Value(int(text == "true"), *self.boolean) if self.condition else Value(int(text == "true"), 1, True)
        if not self.condition:
            if text in ("sizeof", "alignof") and self.peek() == "(":
                return self.size(text)
            if text == "static_cast" and self.peek() == "<":
                return self.named_cast()
            if self.peek() == "(" and (kind := self.sizes([token])) is not None:
                self.take()
                return self.cast(kind, self.closed(self.ternary()))
        return self.named(text)

    def named(self, text: str) -> Value | None:
        while self.peek() == "::":
            self.take()
            text += f"::{self.take().text}"
        found = self.lookup(text)
        if found is None:
            if not self.condition:
                if self.skipping:
                    return None
                raise ValueError(f"{text!r} has no known value")
            if self.peek() == "(":  # __has_include(<...>) and its like
                self.at = min(closing_index(self.words, self.at) + 1, len(self.words))
            if not self.skipping:
                self.unknown = repr(text)
            return None
        if isinstance(found, Value):
            return found
        bits = 64 if self.condition or not Value(found).fits else 32
        return Value(found, bits, not Value(found, bits).fits)

    def closed(self, value: Value | None) -> Value | None:
        if self.take().text != ")":
            raise ValueError("a parenthesis is not closed")
        return value

    def parenthesis(self) -> Value | None:
        if not self.condition:
            closing = closing_index(self.words, self.at - 1)
            inside = self.words[self.at : closing]
            kind = self.sizes(inside) if inside and inside[0].kind == "name" else None
            if kind is not None and closing + 1 < len(self.words):
                self.at = closing + 1
                return self.cast(kind, self.unary())
        return self.closed(self.ternary())

    def cast(self, kind: tuple[int, bool, int], value: Value | None) -> Value | None:
        bits, unsigned, _ = kind
        if not bits:
            return self.fault("a cast to what is no integer type")
        return None if value is None else value.converted(bits, unsigned)

    def named_cast(self) -> Value | None:
        self.take()
        words = []
        while self.peek() not in (">", ""):
            words.append(self.take())
        self.take()
        kind = self.sizes(words)
        if kind is None or self.take().text != "(":
            raise ValueError("static_cast to a type that is not known")
        return self.cast(kind, self.closed(self.ternary()))

    def size(self, operator: str) -> Value:
        closing = closing_index(self.words, self.at)
        inside = self.words[self.at + 1 : closing]
        kind = self.sizes(inside)
        if kind is None or not kind[2] or operator == "alignof":
            raise ValueError(f"{operator}({' '.join(w.text for w in inside)}) is not known")
        self.at = closing + 1
        return Value(kind[2], 64, True)

    def literal(self, text: str) -> Value:
        match = _INTEGER.fullmatch(text.replace("'", ""))
        if match is None:
            raise ValueError(f"{text!r} is no integer")
        sign, digits, suffix = match.groups()
        decimal = digits[0] != "0" or len(digits) == 1
        number = int(digits, 8 if not decimal and digits[1] not in "xXbB" else 0)
        unsigned = "u" in suffix.lower()
        wide = self.condition or len(suffix) > unsigned
        for bits in (64,) if wide else (32, 64):
            for kind in (True,) if unsigned else (False,) if decimal and not self.condition else (False, True):
                if Value(number, bits, kind).fits:
                    return Value(-number if sign else number, bits, kind)
        raise ValueError(f"{text} is beyond 64 bits")

    def character(self, text: str) -> Value:
        prefix, _, rest = text.partition("'")
        units = []
        for match in re.finditer(r"\\(x[0-9a-fA-F]+|[0-7]{1,3}|.)|(.)", rest[:-1], re.DOTALL):
            escape, plain = match.groups()
            if plain is not None:
                units.append(ord(plain))
            elif escape[0] == "x":
                units.append(int(escape[1:], 16))
            elif escape[0] in "01234567":
                units.append(int(escape, 8))
            elif escape in _ESCAPES:
                units.append(_ESCAPES[escape])
            else:
                raise ValueError(f"the escape in {text} is not known")
        bits, unsigned = {"": (8, False), "u8": (7, True), "u": (16, True), "U": (32, True), "L": (32, False)}[prefix]
        if len(units) != 1 or units[0] >> (bits if plain is None else 7):
            raise ValueError(f"the value of {text} depends on the compiler")
        return self.promoted(Value(units[0], bits, unsigned).wrapped())
