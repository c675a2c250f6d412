"""The statements of a kernel's body, as far as splitting its loop over threads has to understand them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...source import Token, closing_angle, closing_index, split_commas

__all__ = [
    "Declared",
    "Hazards",
    "NotUnderstood",
    "Statement",
    "changes",
    "for_header",
    "holds_no_address",
    "is_member_address",
    "is_plain",
    "read_statements",
    "referred_to",
    "split_declaration",
    "takes_address",
]

_NOT_TYPES: Final = frozenset(
    {
        "return", "delete", "new", "goto", "throw", "else", "case", "default", "break", "continue", "sizeof", "co_return",
        "this", "true", "false", "nullptr", "operator",
    }
)  # fmt: skip
_QUALIFIERS: Final = frozenset(
    {
        "const", "constexpr", "volatile", "static", "thread_local", "register", "__restrict__", "__restrict", "restrict",
        "__shared__", "extern", "typename", "inline", "mutable",
    }
)  # fmt: skip
BUILTIN: Final = frozenset({"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto"})
ASSIGNMENTS: Final = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="})


class NotUnderstood(Exception):
    """The body has a statement whose meaning cannot be told from its tokens."""


@dataclass(slots=True)
class Statement:
    """One statement.

    Attributes
    ----------
    kind : str
        ``simple`` (an expression or a declaration), ``block``, ``if``, ``for``, ``while``, ``do``, ``return``, ``jump``
        (break, continue), ``other`` (switch, goto, labels).
    tokens : list of Token
        All of it, the semicolon included.
    head : list of Token
        Between the parentheses of ``if``, ``for``, ``while``, ``do``.
    children : list of Statement
        Statements of a block; the body of a loop; the branches of an ``if``.
    """

    kind: str
    tokens: list[Token]
    head: list[Token] = field(default_factory=list)
    children: list[Statement] = field(default_factory=list)

    def mentions(self, words: frozenset[str]) -> bool:
        """Return whether one of the words stands in it."""
        return any(t.text in words for t in self.tokens)

    def walk(self) -> Iterator[Statement]:
        """Yield it and all statements inside."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_statements(tokens: Sequence[Token]) -> list[Statement]:
    """Split the tokens between a body's braces into statements.

    Raises
    ------
    NotUnderstood
        If a bracket or a semicolon is missing.
    """
    out = []
    i = 0
    while i < len(tokens):
        statement, i = _statement(tokens, i)
        if statement is not None:
            out.append(statement)
    return out


def _closing(tokens: Sequence[Token], i: int) -> int:
    if i >= len(tokens) or tokens[i].text not in "([{":
        raise NotUnderstood
    end = closing_index(tokens, i)
    if end == len(tokens):
        raise NotUnderstood
    return end


def _statement(tokens: Sequence[Token], i: int) -> tuple[Statement | None, int]:
    text = tokens[i].text
    following = tokens[i + 1].text if i + 1 < len(tokens) else ""
    if text == ";":
        return None, i + 1
    if text == "{":
        end = _closing(tokens, i)
        return Statement("block", list(tokens[i : end + 1]), [], read_statements(tokens[i + 1 : end])), end + 1
    if text in ("for", "while", "if") or (text == "if" and following == "constexpr"):
        opening = i + 2 if following == "constexpr" else i + 1
        end = _closing(tokens, opening)
        head = list(tokens[opening + 1 : end])
        inner, after = _needed(tokens, end + 1)
        children = [inner]
        if text == "if" and after < len(tokens) and tokens[after].text == "else":
            other, after = _needed(tokens, after + 1)
            children.append(other)
        return Statement(text, list(tokens[i:after]), head, children), after
    if text == "do":
        inner, after = _needed(tokens, i + 1)
        if after >= len(tokens) or tokens[after].text != "while":
            raise NotUnderstood
        end = _closing(tokens, after + 1)
        return Statement("do", list(tokens[i : end + 2]), list(tokens[after + 2 : end]), [inner]), end + 2
    if text == "HIP_DYNAMIC_SHARED" and following == "(":
        end = _closing(tokens, i + 1)  # its own text has a semicolon, so that none need follow
        return Statement("simple", list(tokens[i : end + 1])), end + 1
    if text in ("switch", "goto", "try", "asm", "case", "default") or (following == ":" and tokens[i].kind == "name"):
        end = i
        while end < len(tokens) and tokens[end].text not in (";", "{", ":"):
            end = _closing(tokens, end) if tokens[end].text in ("(", "[") else end
            end += 1
        if end < len(tokens) and tokens[end].text == "{":
            end = _closing(tokens, end)
        return Statement("other", list(tokens[i : end + 1])), end + 1
    end = i
    while end < len(tokens) and tokens[end].text != ";":
        if tokens[end].text in ("(", "[", "{"):
            end = _closing(tokens, end)
        end += 1
    if end >= len(tokens):
        raise NotUnderstood
    kind = "return" if text == "return" else "jump" if text in ("break", "continue") else "simple"
    return Statement(kind, list(tokens[i : end + 1])), end + 1


def _needed(tokens: Sequence[Token], i: int) -> tuple[Statement, int]:
    if i >= len(tokens):
        raise NotUnderstood
    statement, after = _statement(tokens, i)
    return statement or Statement("block", [tokens[i]]), after


@dataclass(frozen=True, slots=True)
class Declared:
    """One name of a declaration.

    Attributes
    ----------
    type : tuple of Token
        Its type without qualifiers, e.g. ``unsigned long``, ``std::complex<float>``.
    qualifiers : frozenset of str
        ``const``, ``static``, ``__shared__`` ...
    pointers : str
        ``"*"``, ``"&"``, ``"* const"``; empty for a value.
    name : Token
        The name.
    bounds : tuple of Token
        Array bounds with their brackets.
    initializer : tuple of Token
        After ``=``, or the braces or parentheses.
    """

    type: tuple[Token, ...]
    qualifiers: frozenset[str]
    pointers: str
    name: Token
    bounds: tuple[Token, ...]
    initializer: tuple[Token, ...]


def split_declaration(tokens: Sequence[Token]) -> list[Declared] | None:
    """Read a statement as a declaration of variables; None if it is none.

    Raises
    ------
    NotUnderstood
        If it is a declaration of another kind (typedef, struct, using).
    """
    tokens = [t for t in tokens if t.text != ";"]
    if not tokens or (tokens[0].kind != "name" and tokens[0].text != "::"):
        return None
    if tokens[0].text in ("typedef", "using", "struct", "class", "union", "enum", "static_assert", "template"):
        raise NotUnderstood
    if tokens[0].text in _NOT_TYPES:
        return None
    qualifiers: set[str] = set()
    kind: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.text in _QUALIFIERS:
            qualifiers.add(token.text)
            i += 1
        elif token.text in BUILTIN and all(t.text in BUILTIN for t in kind):
            kind.append(token)
            i += 1
        elif (token.kind == "name" or token.text == "::") and not kind:
            while i < len(tokens):
                if tokens[i].text == "::" or (tokens[i].kind == "name" and (not kind or kind[-1].text == "::")):
                    kind.append(tokens[i])
                    i += 1
                elif tokens[i].text == "<" and kind:
                    close = closing_angle(tokens, i)
                    if close == len(tokens):
                        return None
                    kind += tokens[i : close + 1]
                    i = close + 1
                else:
                    break
        else:
            break
    if not kind:
        return None
    out = []
    for part in split_commas(tokens[i:]):
        found = _declarator(tuple(kind), frozenset(qualifiers), part)
        if found is None:
            return None
        out.append(found)
    return out or None


def _declarator(kind: tuple[Token, ...], qualifiers: frozenset[str], part: list[Token]) -> Declared | None:
    i = 0
    pointers: list[str] = []
    while i < len(part) and (part[i].text in ("*", "&", "&&", "const") or part[i].text in _QUALIFIERS):
        if part[i].text in ("*", "&", "&&", "const"):
            pointers.append(part[i].text)
        i += 1
    if i >= len(part) or part[i].kind != "name":
        return None
    name = part[i]
    i += 1
    bounds: list[Token] = []
    while i < len(part) and part[i].text == "[":
        end = closing_index(part, i)
        bounds += part[i : end + 1]
        i = end + 1
    initializer: list[Token] = []
    if i < len(part):
        if part[i].text == "=":
            initializer = part[i + 1 :]
        elif part[i].text in ("(", "{"):
            initializer = part[i:]
        else:
            return None
    return Declared(kind, qualifiers, " ".join(pointers), name, tuple(bounds), tuple(initializer))


def for_header(statement: Statement) -> tuple[list[Token], list[Token], list[Token]]:
    """Return the three parts between the parentheses of a ``for``; raises NotUnderstood if it has others."""
    parts: list[list[Token]] = [[]]
    i = 0
    while i < len(statement.head):
        token = statement.head[i]
        if token.text in ("(", "[", "{"):
            end = closing_index(statement.head, i)
            parts[-1] += statement.head[i : end + 1]
            i = end + 1
            continue
        if token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
        i += 1
    if len(parts) != 3:
        raise NotUnderstood
    return parts[0], parts[1], parts[2]


@dataclass(frozen=True, slots=True)
class Hazards:
    """Through what a source may change a variable without an assignment.

    Attributes
    ----------
    references : bool
        Some function, lambda or member function takes a reference.
    operators : bool
        Some operator that is no assignment may change what it is used on.
    members : mapping of str to int
        Members of structs that are arrays, and their dimensions: alone they are addresses.
    values : frozenset of str
        Structs of numbers alone, which can hold no address.
    """

    references: bool = False
    operators: bool = False
    members: Mapping[str, int] = field(default_factory=dict)
    values: frozenset[str] = frozenset()


_PLAIN_NAMES: Final = re.compile(
    r"(u?int(_fast|_least)?(8|16|32|64)|size|ssize|ptrdiff)_t|uchar|ushort|uint|ulong|u?longlong|half|__half"
)

_VECTORS: Final = re.compile(r"(u?(char|short|int|long|longlong)|float|double)[1-4]|dim3|(__)?half2|hip(Float|Double)?Complex")


def is_plain(declared: Declared) -> bool:
    """Return whether it is a number, or an array of numbers: neither an address nor an object with operators of its own."""
    words = [t.text for t in declared.type if t.text not in ("std", "::")]
    return not declared.pointers and (
        all(word in BUILTIN - {"auto"} for word in words) or (len(words) == 1 and bool(_PLAIN_NAMES.fullmatch(words[0])))
    )


def holds_no_address(kind: Sequence[Token], values: frozenset[str]) -> bool:
    """Return whether a type without pointers is a number, a vector of numbers or one of `values`."""
    words = [t.text for t in kind if t.text not in ("std", "::")]
    if all(word in BUILTIN - {"auto"} for word in words):
        return True
    return len(words) == 1 and (words[0] in values or bool(_PLAIN_NAMES.fullmatch(words[0]) or _VECTORS.fullmatch(words[0])))


def changes(tokens: Sequence[Token], name: str, hazards: Hazards, pointer: bool, plain: bool = True) -> bool:
    """Return whether the tokens may change a variable; writing to what a pointer points at does not."""
    bound = referred_to(tokens)
    for n, token in enumerate(tokens):
        if token.text != name or token.kind != "name":
            continue
        before = tokens[n - 1].text if n else ""
        if before in (".", "->", "::"):
            continue
        if n in bound or (hazards.operators and not plain and not pointer):
            return True
        if pointer and n + 1 < len(tokens) and tokens[n + 1].text == "[":
            continue
        first, last = n, _members_end(tokens, n)
        if last + 1 < len(tokens) and tokens[last + 1].text == "(" and (last > n or not plain):
            return True  # a member function may change its object
        if not pointer and is_member_address(tokens, n, hazards):
            return True
        while True:
            if _is_target(tokens, first, last):
                return True
            group = _group(tokens, first, last)
            if group is None:
                break
            if group[2]:
                if hazards.references:
                    return True
                break
            first, last = group[0], _members_end(tokens, group[1])
    return False


def _members_end(tokens: Sequence[Token], n: int) -> int:
    """Return the last token of ``v.x[3]``, which begins with v or ends at a bracket there."""
    while n + 1 < len(tokens) and tokens[n + 1].text in (".", "["):
        n = n + 2 if tokens[n + 1].text == "." else closing_index(tokens, n + 1)
    return n


def is_member_address(tokens: Sequence[Token], n: int, hazards: Hazards) -> bool:
    """Return whether what begins there is an array inside of a struct, ``v.m``, which stands for its address."""
    last = _members_end(tokens, n)
    while n < last:
        dimensions = hazards.members.get(tokens[n + 2].text, 0) if tokens[n + 1].text == "." else 0
        n = n + 2 if tokens[n + 1].text == "." else closing_index(tokens, n + 1)
        while dimensions and n + 1 < len(tokens) and tokens[n + 1].text == "[":
            dimensions -= 1
            n = closing_index(tokens, n + 1)
        if dimensions:
            return True
    return False


def takes_address(tokens: Sequence[Token], n: int) -> bool:
    """Return whether the ``&`` that stands there may take an address: it follows no value."""
    if tokens[n].text != "&" or not n:
        return tokens[n].text == "&"
    before = tokens[n - 1]
    if before.text != ")":
        return before.text in _NOT_TYPES - {"this"} if before.kind != "punct" else before.text != "]"
    # A cast, or else a value in parentheses: (int*)&v, (pointer)&v.
    depth, opening = 1, n - 2
    while opening >= 0:
        depth += {")": 1, "(": -1}.get(tokens[opening].text, 0)
        if not depth:
            break
        opening -= 1
    inside = tokens[opening + 1 : n - 1]
    ahead = tokens[opening - 1] if opening > 0 else None
    if ahead is not None and (ahead.text == "]" or (ahead.kind == "name" and ahead.text not in _NOT_TYPES)):
        return False  # a call
    return bool(inside) and (inside[-1].text == "*" or all(t.kind == "name" or t.text in ("::", "*", "<", ">") for t in inside))


def _is_target(tokens: Sequence[Token], first: int, last: int) -> bool:
    """Return whether what stands there is assigned to, counted up or down, or its address is taken."""
    before = tokens[first - 1].text if first else ""
    if before in ("++", "--") or (first and takes_address(tokens, first - 1)):
        return True
    following = [t.text for t in tokens[last + 1 : last + 3]]
    if following == [">", ">="]:  # the tokenizer splits >>=
        return True
    return bool(following) and (following[0] in ASSIGNMENTS or following[0] in ("++", "--"))


def _group(tokens: Sequence[Token], first: int, last: int) -> tuple[int, int, bool] | None:
    """Return the brackets around it whose value may be it, ``(v)``, ``(c ? v : w)``, and whether they are arguments."""
    before = tokens[first - 1].text if first else ""
    following = tokens[last + 1].text if last + 1 < len(tokens) else ""
    if before not in ("(", "{", "?", ":", ",") or following not in (")", "}", ":", ","):
        return None
    depth, opening = 0, first - 1
    while opening >= 0 and depth >= 0:
        depth += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1, ";": -99}.get(tokens[opening].text, 0)
        opening -= depth >= 0
    if opening < 0 or tokens[opening].text not in ("(", "{"):
        return None
    closing = closing_index(tokens, opening)
    if closing >= len(tokens):
        return None
    ahead = tokens[opening - 1] if opening else None
    if tokens[opening].text == "{":
        # {v} of an array or a struct copies; of a struct that holds a reference it does not.
        return (opening, closing, True) if ahead is not None and (ahead.kind == "name" or ahead.text in (">", "=")) else None
    if ahead is not None and ahead.text in ("if", "while", "for", "switch", "sizeof"):
        return None
    called = ahead is not None and ((ahead.kind == "name" and ahead.text not in _NOT_TYPES) or ahead.text in (">", "]", ")"))
    return opening, closing, called


def referred_to(tokens: Sequence[Token]) -> frozenset[int]:
    """Return where names stand that a reference which can write is bound to: ``int& r = v``, ``for (auto& r : v)``."""
    found: set[int] = set()
    for n, token in enumerate(tokens):
        if token.text not in ("&", "&&") or not 0 < n < len(tokens) - 2:
            continue
        kind, following = tokens[n - 1], tokens[n + 1]
        unpacks = kind.text == "auto" and following.text == "["
        casts = following.text in (")", ">")
        if (following.kind != "name" and not unpacks and not casts) or (kind.kind != "name" and kind.text not in (">", "*")):
            continue
        bound = tokens[n + 2].text
        if unpacks or casts:
            declares = True
        elif bound == "(":
            declares = kind.text in BUILTIN or n < 2 or tokens[n - 2].text in (";", "{", "}", "const")
        elif bound == ":":
            opening = max((k for k in range(n) if tokens[k].text == "("), default=0)
            declares = opening > 0 and tokens[opening - 1].text == "for"
        else:
            declares = bound in ("=", "{")
        words = n - 1
        while words >= 0 and (tokens[words].text == "::" or (tokens[words].kind == "name" and tokens[words].text != "const")):
            words -= 1
        if not declares or (words >= 0 and tokens[words].text == "const"):
            continue
        at = n + (1 if casts else 2 if bound == "(" or unpacks else 3)
        if unpacks:
            at = closing_index(tokens, n + 1) + 1
        while at < len(tokens) and tokens[at].text not in (";", ","):
            if tokens[at].text == "[":  # what an index is made of is only read
                at = closing_index(tokens, at)
            elif tokens[at].kind == "name":
                found.add(at)
            at += 1
    return frozenset(found)
