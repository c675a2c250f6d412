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
    """Return the tokens of preprocessed text that come from the user's own files; a ``directive`` among them is a pragma.

    Raises DeclarationError for text that cannot begin a token.
    """
    # System headers are skipped unread. (The user's uses of their macros have the system flag, but not the header's name.)
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
    """Return the file and the line of the position after some preprocessed text, according to its last line marker."""
    file, line, at = "", 1, 0
    for marker in _MARKER.finditer(text):
        file, line, at = marker[2], int(marker[1]) - 1, marker.end()
    return file, line + text.count("\n", at)


def closings(tokens: Sequence[Token]) -> dict[int, int]:
    """Map the index of each opening bracket to its closing one, or to the last token if that is missing (a compile error)."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for n, token in enumerate(tokens):
        if token.text in OPENING:
            stack.append(n)
        elif token.text in CLOSING and stack:
            found[stack.pop()] = n
    return found | dict.fromkeys(stack, max(len(tokens) - 1, 0))
