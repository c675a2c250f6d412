"""Shared memory that a kernel's body declares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ..source import OPENING, Scope, Token, closing_index, split_commas


def _statements(body: Sequence[Token], words: frozenset[str]) -> Iterator[list[Token]]:
    """Yield the statements that contain one of the words, from that word or a specifier before it to the semicolon."""
    i = 0
    while i < len(body):
        if body[i].text in words or (body[i].text in ("static", "extern") and i + 1 < len(body)):
            end = i
            while end < len(body) and body[end].text != ";":
                end = closing_index(body, end) if body[end].text in OPENING else end
                end += 1
            yield list(body[i:end])
            i = end
        i += 1


def static_shared_bytes(body: Sequence[Token], scope: Scope) -> int | None:
    """Return the bytes of the ``__shared__`` variables of fixed size in a kernel's own body; None if one is not understood."""
    scope = scope.inner()
    at = 0
    for statement in _statements(body, frozenset({"__shared__", "const", "constexpr"})):
        words = [t.text for t in statement]
        if "__shared__" in words and "extern" not in words:
            try:
                if any(t.doubt is not None for t in statement):
                    return None
                for found in scope.declarators(statement):
                    size = 8 if found.type.pointers else found.type.size
                    align = 8 if found.type.pointers else found.type.align
                    if not size:
                        return None
                    count = math.prod(scope.evaluate(bound) for bound in found.bounds)
                    at = -(-at // align) * align + size * count
            except ValueError:
                return None
        elif "__shared__" not in words:
            scope.define_constants(statement, next((t.doubt.reason for t in statement if t.doubt is not None), ""))
    return at


def uses_dynamic_shared(body: Sequence[Token], outside: set[str]) -> bool:
    """Return whether a body uses an array of dynamic shared memory, declared in the body or outside."""
    uses = Counter(t.text for t in body if t.kind == "name" and t.doubt is None)
    own = set()
    for statement in _statements(body, frozenset({"__shared__"})):
        if {"extern", "__shared__"} <= {t.text for t in statement}:
            bracket = next((n for n, t in enumerate(statement) if t.text == "["), len(statement))
            own.add(statement[bracket - 1].text)
    for n, token in enumerate(body):
        if token.text == "HIP_DYNAMIC_SHARED":
            parts = split_commas(body[n + 2 : closing_index(body, n + 1)])
            own.update(part[-1].text for part in parts[1:2] if part)
    return any(uses[name] > 1 for name in own) or any(uses[name] for name in outside - own)
