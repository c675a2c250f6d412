"""Tokens of preprocessed C++, and the lines that the user wrote them on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...source.tokens import CLOSING, OPENING, Lexer, Token

_MARKER: Final = re.compile(r'^# (\d+) "((?:\\.|[^"\\\n])*)"[^\n]*', re.MULTILINE)
_ENTERED: Final = re.compile(r'\n# \d+ "([^"\n]*)" 1 3')
_NEXT_MARKER: Final = re.compile(r"\n(?=# \d)")


def read_tokens(text: str) -> list[Token]:
    """Return the tokens of preprocessed text that stand in the user's own files; a ``directive`` among them is a pragma.

    Raises DeclarationError at what cannot begin a token.
    """
    # System headers are left out without being read. (Macros of theirs that the user uses have their flag, not their name.)
    system = {*_ENTERED.findall(text), *(f"{at}{name}.h" for at in ("", "./") for name in ("device", "fibers", "lanes"))}
    found: list[Token] = []
    lexer = Lexer(text, "kernel source")
    for token in lexer:
        marker = _MARKER.match(token.text) if token.kind == "directive" else None
        if marker is None:
            found.append(token)
            continue
        lexer.where, lexer.line = f"kernel source {marker[2]!r}", int(marker[1]) - 1  # the marker's own line break follows
        if marker[2] in system:
            following = _NEXT_MARKER.search(text, lexer.position)
            lexer.position = following.start() if following else len(text)
    return found


def place_behind(text: str) -> tuple[str, int]:
    """Return the file and the line of what follows some preprocessed text, as its last marker tells."""
    file, line, at = "", 1, 0
    for marker in _MARKER.finditer(text):
        file, line, at = marker[2], int(marker[1]) - 1, marker.end()
    return file, line + text.count("\n", at)


def closings(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the closing bracket of each opening one; the last token where there is none, which the compiler will say."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for n, token in enumerate(tokens):
        if token.text in OPENING:
            stack.append(n)
        elif token.text in CLOSING and stack:
            found[stack.pop()] = n
    return found | dict.fromkeys(stack, max(len(tokens) - 1, 0))
