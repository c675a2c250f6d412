"""Tokens of HIP C++, and the handling of brackets, commas and attributes that needs no knowledge of declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ..errors import DeclarationError

MOST_TOKENS: Final = 250_000
"""Tokens outside of function bodies that one module may have."""


class Doubt(NamedTuple):
    """Why it is undecided whether the compiler sees a token.

    `branch` is the number, from 1, of the conditional branch that contains it; 0 for a token from a macro whose definition
    depends on the conditional.
    """

    reason: str  # "line 3: '#if __has_builtin(f)' depends on ..."
    branch: int


class Token(NamedTuple):
    """A piece of C++ source.

    `kind` is ``name``, ``number``, ``string``, ``char``, ``punct``, ``directive`` (one whole preprocessor line) or ``block``
    (everything between two braces, unread). `start` and `end` are offsets into the source; tokens that a macro made have those
    of its use. `line` counts from 1.
    """

    kind: str
    text: str
    start: int
    end: int
    line: int
    doubt: Doubt | None = None


_TOKEN = re.compile(
    r"""
    [ \t]*(?:(?P<space>[\f\v\r\n][ \t\f\v\r\n]*|\\[ \t]*\r?\n|(?<=[ \t])\Z)
  | (?P<comment>//[^\\\n]*(?:\\(?:[ \t]*\r?\n|.)?[^\\\n]*)*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"[^"\\\n]*(?:\\.[^"\\\n]*)*")
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])[^'\\\n]*(?:\\.[^'\\\n]*)*')
  | (?P<number>\.?[0-9][0-9A-DF-OQ-Za-df-oq-z_.]*(?:(?:[eEpP][+-]?|'[0-9A-Za-z_])[0-9A-DF-OQ-Za-df-oq-z_.]*)*)
  | (?P<name>[^\W\d][\w$]*)
  | (?P<punct><<=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#
    |[{}()\[\];,<>=+\-*/%&|^!~?:.\#@]))
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(
    r"#[^\\\n/\"]*(?:(?:\\[ \t]*\r?\n|/\*.*?\*/|//[^\\\n]*|\"(?:\\.|[^\"\\\n])*\"|[\\/\"])[^\\\n/\"]*)*", re.DOTALL
)


class Lexer:
    """Iterates over the tokens of a text, each directive as one token; `position` and `line` locate the next token."""

    def __init__(self, text: str, where: str, line: int = 1) -> None:
        self.text = text
        self.where = where
        self.position = 0
        self.line = line
        self.line_start = True  # whether only blanks and comments come before it on this line

    def __iter__(self) -> Iterator[Token]:
        text, length, match, new = self.text, len(self.text), _TOKEN.match, tuple.__new__
        while (position := self.position) < length:
            found = match(text, position)
            kind = found.lastgroup if found is not None else None
            if found is None or kind is None or (kind == "punct" and text.startswith("/*", found.start(kind))):
                while text[position] in " \t":
                    position += 1
                raise DeclarationError(f"{self.where}, line {self.line}: {_fault(text, position)}")
            if kind == "punct" and self.line_start and text[found.start(kind)] == "#":
                self.position = found.start(kind)
                yield self.directive()
                continue
            end = self.position = found.end()
            if kind == "space":
                breaks = found.group().count("\n")
                self.line += breaks
                self.line_start = self.line_start or breaks > 0
                continue
            if kind == "comment":
                self.line += found.group().count("\n")
                continue
            line, self.line_start = self.line, False
            if kind == "raw" or kind == "delimiter":
                kind = "string"
                self.line += found.group().count("\n")
                yield Token(kind, found.group("raw"), found.start("raw"), end, line)
                continue
            yield new(Token, (kind, found[kind], found.start(kind), end, line, None))

    def directive(self) -> Token:
        """Take the preprocessor line that starts at `position`."""
        found = _DIRECTIVE.match(self.text, self.position)
        assert found is not None
        start, line = self.position, self.line
        self.position = found.end()
        self.line += found.group().count("\n")
        return Token("directive", found.group(), start, found.end(), line)


def _fault(text: str, position: int) -> str:
    if text.startswith("/*", position):
        return "unterminated comment"
    return "unterminated string or character" if text[position] in "\"'" else f"unexpected {text[position]!r}"


def tokenize(source: str, where: str = "source") -> list[Token]:
    """Split C++ source into tokens; comments and line continuations are dropped, a preprocessor line is one token.

    ``>>`` becomes two tokens, so that template arguments can be matched.

    Raises
    ------
    DeclarationError
        At a character that cannot begin a token, an unterminated comment or string; the message names the line.
    """
    return list(Lexer(source, where))


OPENING: Final = {"(": ")", "[": "]", "{": "}"}
CLOSING: Final = frozenset(OPENING.values())


def closing_index(tokens: Sequence[Token], i: int) -> int:
    """Return the index of the bracket that closes the one at `i`, or the number of tokens if none does."""
    depth = 0
    for j in range(i, len(tokens)):
        text = tokens[j].text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
            if depth == 0:
                return j
    return len(tokens)


def closing_angle(tokens: Sequence[Token], i: int) -> int:
    """Return the index of the `>` that closes the `<` at `i`, or the number of tokens."""
    return _angles(tokens, i, stop=True)[0].get(i, len(tokens))


def opening_angle(tokens: Sequence[Token], i: int) -> int:
    """Return the index of the `<` that the `>` at `i` closes, or 0."""
    return next((begin for begin, end in _angles(tokens, 1)[0].items() if end == i), 0)


def _angles(tokens: Sequence[Token], start: int, *, stop: bool = False) -> tuple[dict[int, int], int]:
    """Pair the angle brackets from `start` to the next semicolon, or with `stop` until the first is closed.

    Other brackets and comparison operators `<` are skipped. Return a dict from the index of each `<` to that of its `>`, and
    the index where the search ended.
    """
    found: dict[int, int] = {}
    begun: list[int] = []
    parameters = tokens[start - 1].text == "template"
    i = start
    while i < len(tokens) and tokens[i].text != ";" and not (stop and start in found):
        text = tokens[i].text
        if text == "<" and (i == start or _opens(tokens[start:i] if parameters else tokens[i - 1 : i])):
            begun.append(i)
        elif text == ">" and begun:
            found[begun.pop()] = i
        elif text in OPENING:
            i = closing_index(tokens, i)
        i += 1
    return found, i


def _opens(before: Sequence[Token]) -> bool:
    """Return whether a `<` after these tokens may open template arguments; after a value, such as ``int A``, it compares."""
    named = zip(before, before[1:], before[2:])
    values = (b.text for a, b, c in named if a.kind == "name" and a.text not in ("class", "typename") and c.text in (",", "="))
    return before[-1].kind == "name" and before[-1].text not in values


def split_commas(tokens: Sequence[Token], *, angles: bool = True) -> list[list[Token]]:
    """Split at commas outside all brackets; with `angles`, template argument brackets count too."""
    parts: list[list[Token]] = [[]]
    pairs: dict[int, int] = {}
    looked = 0  # angle brackets before this index are paired
    i = 0
    while i < len(tokens):
        token = tokens[i]
        end = i
        if token.text in OPENING:
            end = min(closing_index(tokens, i), len(tokens) - 1)
        elif angles and token.text == "<" and i and tokens[i - 1].kind == "name":
            if i >= looked:
                pairs, looked = _angles(tokens, i)
            end = pairs.get(i, i)
        if token.text == "," and token.kind == "punct":
            parts.append([])
        else:
            parts[-1] += tokens[i : end + 1]
        i = end + 1
    return [] if parts == [[]] else parts


def spell(tokens: Iterable[Token | str]) -> str:
    """Join tokens into conventional spelling: ``scale<float, 4>``, ``const unsigned int*``."""
    out: list[str] = []
    last = ""
    for token in tokens:
        text = token if isinstance(token, str) else token.text
        if text == ",":
            text = ", "
        elif last and (last[-1].isalnum() or last[-1] == "_") and (text[:1].isalnum() or text[:1] == "_"):
            text = " " + text
        out.append(text)
        last = text
    return "".join(out)


_PAREN_ATTRIBUTES: Final = frozenset(
    {
        "__attribute__", "__attribute", "__declspec", "alignas", "__align__", "__launch_bounds__", "noexcept", "_Alignas",
        "_Pragma", "__cluster_dims__", "__block_size__", "__maxnreg__",
    }
)  # fmt: skip


def without_attributes(tokens: Sequence[Token]) -> list[Token]:
    """Drop ``[[...]]``, ``__attribute__((...))``, ``__launch_bounds__(...)``, ``alignas(...)`` and similar."""
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        if (text == "[" and i + 1 < len(tokens) and tokens[i + 1].text == "[") or text == "__asm__":
            i = closing_index(tokens, i) + 1
        elif text in _PAREN_ATTRIBUTES:
            i += 1
            if i < len(tokens) and tokens[i].text == "(":
                i = closing_index(tokens, i) + 1
        else:
            out.append(tokens[i])
            i += 1
    return out
