"""Tokens of preprocessed C++, with the lines that the user wrote them on, and the brackets that belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

OPEN: Final = {"(": ")", "[": "]", "{": "}"}
_DIGRAPHS: Final = {"<%": "{", "%>": "}", "<:": "[", ":>": "]"}


class Token(NamedTuple):
    """A token of preprocessed text: ``name``, ``number``, ``string``, ``punct`` or ``pragma``."""

    kind: str
    text: str
    start: int
    end: int
    file: str  # where the user wrote it
    line: int

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


_TOKEN: Final = re.compile(
    r"""(?P<marker>^[ \t]*\#[^\n]*) | (?P<space>\s+)
    | (?P<string>(?:u8|[uUL])?(?:R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<name>[^\W\d][\w$]*) | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*) | (?P<punct><%|%>|<:(?!:[^:>])|:>|::|&&|\|\||->|.)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_MARKER: Final = re.compile(r'\s*#\s*(?:line\s+)?(\d+)\s+"((?:\\.|[^"\\])*)"([\s\d]*)')
_ENTERED: Final = re.compile(r'^# \d+ "([^"\n]*)" 1 3', re.MULTILINE)
_REGION: Final = re.compile(r'^# \d+ "([^"\n]*)"[^\n]*\n(?:(?!# \d)[^\n]*\n)*', re.MULTILINE)


def read_tokens(text: str) -> list[Token]:
    """Return the tokens of preprocessed text that stand in the user's own files."""
    out: list[Token] = []
    file, line = "", 1
    # System headers are left out without being read. (Macros of theirs that the user uses have their flag, not their name.)
    system = {*_ENTERED.findall(text), *(f"{at}{name}.h" for at in ("", "./") for name in ("device", "fibers", "lanes"))}
    skipped = [(m.start(), m.end()) for m in _REGION.finditer(text) if m[1] in system] + [(len(text), len(text))]
    at = 0
    for begin, stop in skipped:
        while at < begin:
            match = _TOKEN.match(text, at, begin)
            assert match is not None
            kind, spelled = str(match.lastgroup if match.lastgroup != "delimiter" else "string"), match.group()
            if kind == "marker":
                found = _MARKER.match(spelled)
                if found:
                    file, line = found[2], int(found[1]) - 1
                else:
                    out.append(Token("pragma", spelled, match.start(), match.end(), file, line))
            elif kind != "space":
                out.append(Token(kind, _DIGRAPHS.get(spelled, spelled), match.start(), match.end(), file, line))
            line += spelled.count("\n")
            at = match.end()
        at = max(at, stop)
    return out


def closings(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the closing bracket of each opening one; the last token where there is none, which the compiler will say."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for n, token in enumerate(tokens):
        if token.text in OPEN and token.kind == "punct":
            stack.append(n)
        elif token.text in (")", "]", "}") and token.kind == "punct" and stack:
            found[stack.pop()] = n
    return found | dict.fromkeys(stack, max(len(tokens) - 1, 0))
