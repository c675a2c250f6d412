"""Expressions, parsed into syntax trees; an integer literal has its C++ type."""

from __future__ import annotations

import operator as op
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from . import trees as syntax
from .tokens import Token, closing_angle, closing_index
from .types import CType, Value

_T = TypeVar("_T")
TypeNamed = Callable[[Sequence[Token]], CType | None]
"""The type that a sequence of tokens names, or None."""


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
ASSIGNMENTS: Final = {"=": "", **{f"{op}=": op for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")}}
_CASTS: Final = ("static_cast", "reinterpret_cast", "const_cast")
_ESCAPES: Final = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)([uU]?(?:ll|LL|[lLzZ])?|(?:ll|LL|[lLzZ])[uU])")


class Reader:
    """Recursive-descent parser from tokens to syntax trees; raises ValueError at unsupported syntax.

    With `condition`, the expressions are those of `#if`: names have no type, and a call's arguments are skipped. A subclass whose
    trees have another form overrides `made`, `literal` and `size`.
    """

    deepest = 100

    def __init__(self, tokens: Sequence[Token], type_named: TypeNamed, *, condition: bool = False) -> None:
        self.tokens = list(tokens)
        self.type_named = type_named
        self.condition = condition
        self.at = 0
        self.depth = 0
        self.names: list[dict[str, int]] = []  # variable numbers by name, innermost scope last
        self.escaped: set[int] = set()  # variables whose address is taken

    def slot(self, name: str) -> int:
        """Return the number of a variable, or -1 for a name that is declared outside the body."""
        return next((names[name] for names in reversed(self.names) if name in names), -1)

    # -- tokens --------------------------------------------------------------------------------------------------------

    def text(self, ahead: int = 0) -> str:
        """Return the text of the token `ahead` of the next one; ``and``, ``or`` etc. are returned as symbols."""
        at = self.at + ahead
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        return WORDS.get(token.text, token.text) if token.kind == "name" else token.text

    def kind(self, ahead: int = 0) -> str:
        """Return the kind of the token `ahead` of the next one."""
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> Token:
        """Take the next token, whose text must be `wanted` if that is given."""
        if self.at >= len(self.tokens):
            raise ValueError("the expression ends too early")
        token = self.tokens[self.at]
        if wanted and token.text != wanted:
            raise ValueError(f"{token.text!r} stands where {wanted!r} is expected")
        self.at += 1
        return token

    def takes(self, text: str) -> bool:
        """Take the next token if it has this text; return whether it was taken."""
        found = self.text() == text
        if found:
            self.take()
        return found

    def pass_to(self, stop: int) -> None:
        """Take all tokens before `stop`."""
        while self.at < stop:
            self.take()

    @property
    def line(self) -> int:
        """Line of the next token."""
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 0

    def inside(self, closing: int) -> list[Token]:
        """Take a bracket and everything up to its closing one at `closing`; return the tokens between them."""
        found = self.tokens[self.at + 1 : closing]
        self.pass_to(closing + 1)
        return found

    def within(self, tokens: Sequence[Token], read: Callable[[], _T]) -> _T:
        """Call `read` on these tokens alone; it must take all of them."""
        kept, self.tokens, self.at = (self.tokens, self.at), list(tokens), 0
        try:
            found = read()
            if self.at != len(self.tokens):
                raise ValueError(f"{self.text()!r} is not understood")
        finally:
            self.tokens, self.at = kept
        return found

    # -- expressions ---------------------------------------------------------------------------------------------------

    def made(self, node: Any, start: int) -> Any:
        """Return the node to use for one that was parsed from the tokens from `start` to before the next one."""
        return node

    def expression(self) -> Any:
        """Parse an expression."""
        start = self.at
        found = self.single()
        while self.takes(","):
            found = self.made(syntax.Binary(",", found, self.single()), start)
        return found

    def single(self) -> Any:
        """Parse an expression without top-level commas."""
        self.depth += 1
        if self.depth > self.deepest:
            raise ValueError("it is nested too deeply")
        start = self.at
        found = self.binary(1)
        if self.takes("?"):
            then = self.expression()
            self.take(":")
            found = self.made(syntax.Choice(found, then, self.single()), start)
        elif (assigned := self.operator()) in ASSIGNMENTS:
            self.skip_operator(assigned)
            found = self.made(syntax.Assign(ASSIGNMENTS[assigned], found, self.single()), start)
        self.depth -= 1
        return found

    def operator(self) -> str:
        """Return the next operator; a right shift is two adjacent tokens."""
        text, at = self.text(), self.at
        if text == ">" and self.text(1) in (">", ">=") and self.tokens[at].end == self.tokens[at + 1].start:
            return text + self.text(1)
        return text

    def skip_operator(self, operator: str) -> None:
        """Take the tokens of an operator."""
        self.take()
        if operator in (">>", ">>="):
            self.take()

    def binary(self, level: int) -> Any:
        """Parse operands joined by binary operators of this precedence or higher."""
        start = self.at
        left = self.unary()
        while (known := LEVELS.get(operator := self.operator())) is not None and known >= level:
            self.skip_operator(operator)
            left = self.made(syntax.Binary(operator, left, self.binary(known + 1)), start)
        return left

    def unary(self) -> Any:
        """Parse an operand with its prefix and postfix operators."""
        start, line, text = self.at, self.line, self.text()
        if self.kind() == "punct" or text in ("!", "~"):
            if text in ("+", "-", "!", "~"):
                self.take()
                return self.made(syntax.Unary(text, self.unary()), start)
            if text == "*":
                self.take()
                return self.made(syntax.Index(self.unary(), Value(0), line), start)
            if text == "&":
                self.take()
                operand = self.unary()
                self.escaped.update(syntax.variables(operand))
                return self.made(syntax.AddressOf(operand), start)
            if text in ("++", "--"):
                self.take()
                return self.made(syntax.Assign(text[0], self.unary(), Value(1)), start)
            if text == "(" and (cast := self.cast()) is not None:
                return cast
        if text in ("sizeof", "alignof"):
            return self.size()
        return self.postfix(self.primary(), start)

    def cast(self) -> Any:
        """Parse ``(type) operand``; None if the parentheses hold no type."""
        start, closing = self.at, closing_index(self.tokens, self.at)
        words = self.tokens[start + 1 : closing]
        if self.condition or not words or words[0].kind != "name" or self.slot(words[0].text) >= 0:
            return None
        found = self.type_named(words)
        if found is not None:
            self.pass_to(closing + 1)
            return self.made(syntax.Cast(found, self.unary()), start)
        follows = self.tokens[closing + 1] if closing + 1 < len(self.tokens) else None
        operand = follows is not None and follows.kind in ("name", "number") and follows.text not in WORDS
        if operand and all(t.kind == "name" or t.text in ("::", "*", "<", ">") for t in words):
            raise ValueError("a cast to a type that is not known")
        return None

    def size(self) -> Any:
        """Parse ``sizeof(type)``."""
        operator = self.take().text
        if self.text() != "(":
            raise ValueError(f"{operator} without parentheses")
        words = self.inside(closing_index(self.tokens, self.at))
        found = self.type_named(words)
        if found is None or not found.nbytes or operator == "alignof":
            return syntax.Opaque((), f"{operator}({' '.join(word.text for word in words)}) is not known")
        return Value(found.nbytes, 64, unsigned=True)

    def primary(self) -> Any:
        """Parse a literal, a name, a call, or an expression in parentheses."""
        if self.text() == "(":
            return self.parenthesis()
        start, line, token = self.at, self.line, self.take()
        if token.kind == "number" or token.kind == "char":
            return self.literal(token)
        if token.kind == "string":
            return self.made(syntax.Opaque(), start)
        if token.kind != "name":
            if token.text != "::":
                raise ValueError(f"{token.text!r} is not read")
            self.at -= 1
            token = token._replace(text="")
        name = token.text
        if name in ("true", "false"):
            value = Value(int(name == "true"))
            return self.made(value if self.condition else value.converted(1, unsigned=True), start)
        if name in _CASTS:
            return self.made(self.named_cast(name), start)
        slot = self.slot(name)
        if slot >= 0:
            return self.made(syntax.Name(name, slot), start)
        name = self.qualified(name)
        if self.text() != "(":
            return self.made(syntax.Name(name), start)
        if self.condition:
            self.pass_to(closing_index(self.tokens, self.at) + 1)
            return syntax.Call(name, (), line)
        kind = None if "::" in name else self.type_named([token])
        arguments = self.arguments()
        if kind is None:
            return self.made(syntax.Call(name, arguments, line), start)
        return self.made(syntax.Cast(kind, arguments[0]) if len(arguments) == 1 else syntax.Opaque(arguments), start)

    def literal(self, token: Token) -> Any:
        """Return the value of a number or a character."""
        try:
            return number(token.text, widest=self.condition) if token.kind == "number" else _character(token.text)
        except ValueError as error:
            return syntax.Opaque((), str(error))  # a floating-point number

    def qualified(self, name: str) -> str:
        """Parse the rest of an outside name: ``::member``, and template arguments that are followed by a call or ``::``."""
        while True:
            if self.text() == "::":
                self.take()
                name += "::" + self.take().text
            elif self.text() == "<" and (closing := closing_angle(self.tokens, self.at)) + 1 < len(self.tokens):
                inside = self.tokens[self.at + 1 : closing]
                plain = all(t.kind in ("name", "number") or t.text in ("::", ",", "*", "<", ">") for t in inside)
                if not plain or self.tokens[closing + 1].text not in ("(", "::"):
                    return name
                self.at = closing + 1
                name += "<>"
            else:
                return name

    def named_cast(self, operator: str) -> syntax.Cast:
        """Parse ``<type>(operand)``."""
        words = self.inside(closing_angle(self.tokens, self.at))
        found = self.type_named(words)
        if found is None:
            raise ValueError(f"{operator} to a reference, or to a type that is not known")
        return syntax.Cast(found, self.parenthesis())

    def parenthesis(self) -> Any:
        """Parse an expression in parentheses; conditions that declare a variable are not supported."""
        self.take("(")
        found = self.expression()
        self.take(")")
        return found

    def arguments(self) -> tuple[Any, ...]:
        """Parse the arguments of a call."""
        return self.listed("(", self.single, ")")

    def listed(self, opening: str, read: Callable[[], Any], closing: str) -> tuple[Any, ...]:
        """Parse a comma-separated list between brackets."""
        self.take(opening)
        found = []
        while self.text() != closing:
            found.append(read())
            if not self.takes(","):
                break
        self.take(closing)
        return tuple(found)

    def postfix(self, found: Any, start: int) -> Any:
        """Parse the postfix operators of an operand that begins at the token `start`."""
        while True:
            line, text = self.line, self.text()
            if text == "[":
                self.take()
                index = self.expression()
                self.take("]")
                found = self.made(syntax.Index(found, index, line), start)
            elif text in (".", "->"):
                self.take()
                if self.kind() != "name":
                    raise ValueError("what follows a point")
                found = self.made(syntax.Member(found, self.take().text, text == "->", line), start)
                if self.text() == "<" and closing_angle(self.tokens, self.at) < len(self.tokens):
                    closing = closing_angle(self.tokens, self.at)
                    if self.tokens[min(closing + 1, len(self.tokens) - 1)].text == "(":
                        self.at = closing + 1
            elif text == "(":
                found = self.made(syntax.Call("", (found, *self.arguments()), line), start)
            elif text in ("++", "--"):
                self.take()
                found = self.made(syntax.Assign(text[0], found, Value(1), before=True), start)
            else:
                return found


def number(text: str, *, widest: bool = False) -> Value:
    """Return the value of an integer literal, of 64 bits with `widest`; raises ValueError if it is none."""
    match = _INTEGER.fullmatch(text.replace("'", ""))
    if match is None:
        raise ValueError(f"{text!r} is no integer")
    sign, digits, suffix = match.groups()
    decimal = digits[0] != "0" or len(digits) == 1
    found = int(digits, 8 if not decimal and digits[1] not in "xXbB" else 0)
    unsigned = "u" in suffix.lower()
    wide = widest or len(suffix) > unsigned
    for bits in (64,) if wide else (32, 64):
        for kind in (True,) if unsigned else (False,) if decimal and not widest else (False, True):
            if Value(found, bits, kind).fits:
                return Value(-found if sign else found, bits, kind)
    raise ValueError(f"{text} is beyond 64 bits")


def _character(text: str) -> Value:
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
    value = Value(units[0], bits, unsigned).wrapped()
    return value if bits == 32 else Value(value.number)
