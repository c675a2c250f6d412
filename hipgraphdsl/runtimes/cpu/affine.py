"""Find indices that are lines in the thread's number, so that many threads run as one loop over consecutive elements.

Two things hide from the compiler that neighbouring threads read neighbouring elements: a clamp, ``i = min(i, n - 3)``, after
which it gathers element by element, and the end of each block, where ``blockIdx.x * blockDim.x + threadIdx.x`` goes on in
another loop. So the first statements of a kernel, those without side effects, are read here. An index made of
``blockIdx.x * blockDim.x + threadIdx.x``, of what is the same for all threads of a row, and of minima and maxima after that,
takes steps of 0 or 1 from thread to thread, never another. If it grows by ``hi - lo`` from thread lo to thread hi it is a line
between them. That is measured at run time by running these statements at both ends; between them the kernel runs with
``from + thread`` in place of the index, through all blocks of a row of the grid.

Why two ends suffice: before it is clamped the index can wrap at most once (32 or 64 bits, fewer threads), from the largest
number to the smallest. Minima and maxima keep that order, so that it would end below where it began, and then the threads
between are not taken for a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...source import Token, closing_angle, closing_index, spell, split_commas
from .body import Declared, Hazards, NotUnderstood, Statement, changes, for_header, is_plain, read_statements, split_declaration

__all__ = ["Lines", "Stride", "find_lines", "is_wide_integer"]

_WIDE_INTEGERS: Final = frozenset(
    {
        "int", "unsigned", "long", "signed", "size_t", "ptrdiff_t", "ssize_t", "int32_t", "uint32_t", "int64_t",
        "uint64_t", "uint", "ulong", "intptr_t", "uintptr_t", "std", "::",
    }
)  # fmt: skip
_CLAMPS: Final = frozenset({"min", "max", "umin", "umax", "llmin", "llmax", "ullmin", "ullmax"})
_PRODUCTS: Final = frozenset({"__mul24", "__umul24"})
_AXES: Final = {
    **{f"hip{name}_{axis}": (name[0].lower() + name[1:], axis)
       for name in ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim") for axis in "xyz"},
}  # fmt: skip
_INDICES: Final = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_BINARY: Final = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, "+": 9, "-": 9,
    "*": 10, "/": 10, "%": 10,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Class:
    """What is known of an integer.

    Attributes
    ----------
    kind : str
        ``same`` for all threads of a row in a block, ``line`` (grows by 1 from thread to thread), ``clamped`` (by 0 or 1),
        or ``other``.
    blocks : int
        How often ``blockIdx.x * blockDim.x`` was added; 2 where blockIdx.x is used in another way.
    extent : bool
        Whether it is blockDim.x itself.
    """

    kind: str
    blocks: int = 0
    extent: bool = False
    index: bool = False


_SAME: Final = _Class("same")
_OTHER: Final = _Class("other", 2)


@dataclass(frozen=True, slots=True)
class Stride:
    """A loop that is all the rest of a kernel: ``for (i = line; i < bound; i += step) body``.

    It is turned inside out: each round of it runs for all threads before the next, so that they read memory in order.

    Attributes
    ----------
    start : int
        Offset of ``for``.
    init, condition, step, body : tuple of int
        Offsets of the parts in the source; `init` is empty where the variable was declared before.
    """

    start: int
    init: tuple[int, int]
    condition: tuple[int, int]
    step: tuple[int, int]
    body: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lines:
    """What `find_lines` found.

    Attributes
    ----------
    names : tuple of str
        Variables that are lines, possibly clamped.
    type : str
        Type of the first of them.
    places : tuple of int
        For each the offset in the source after the statement that last assigns it.
    end : int
        Offset after the first statements that are run to measure.
    consts : tuple of Token
        ``const`` tokens that forbid assigning to `names`.
    per_row : bool
        Whether they differ between rows of a block, because they depend on threadIdx.y or z.
    across : bool
        Whether they go on through the blocks of a row of the grid and nothing else asks for threadIdx.x or blockIdx.x.
    stride : Stride or None
        The loop over the one index in `names`, where that is the rest of the kernel.
    """

    names: tuple[str, ...]
    type: str
    places: tuple[int, ...]
    end: int
    consts: tuple[Token, ...]
    per_row: bool
    across: bool
    stride: Stride | None = None


def is_wide_integer(kind: Sequence[Token]) -> bool:
    """Return whether the words of a type name an integer of 32 or 64 bits."""
    return bool(kind) and all(t.text in _WIDE_INTEGERS for t in kind)


@dataclass(slots=True)
class _Assignment:
    """One variable that a statement of the prefix sets, from `values` and, for ``+=``, from itself."""

    name: str
    values: tuple[Token, ...]
    type: str
    operator: str
    end: int
    consts: tuple[Token, ...]


def find_lines(
    body: Sequence[Token],
    integers: Iterable[str],
    context: Iterable[str],
    parameters: Mapping[str, Declared],
    *,
    hazards: Hazards,
) -> Lines | None:
    """Look for lines in the first statements of a kernel's body; None if there are none.

    Parameters
    ----------
    body : sequence of Token
        Between the braces.
    integers : iterable of str
        Names of integers of 32 or 64 bits that are the same for all threads: parameters and constants.
    context : iterable of str
        Names of functions that ask for threadIdx or blockIdx themselves.
    parameters : mapping of str to Declared
        The kernel's parameters.
    hazards : Hazards
        Through what the source may change a variable without an assignment.
    """
    try:
        statements = read_statements(body)
    except NotUnderstood:
        return None
    known = dict.fromkeys(integers, _SAME)
    asked = frozenset({*_INDICES, *_AXES, *context})
    found = _find(body, statements, dict(known), asked, loop=True)
    if found is not None and found.stride is not None and _carries(statements, parameters, hazards):
        found = None
    if found is None or found.stride is None:
        found = _find(body, statements, dict(known), asked, loop=False)
    return found


def _find(
    body: Sequence[Token], statements: Sequence[Statement], classes: dict[str, _Class], asked: frozenset[str], loop: bool
) -> Lines | None:
    """Find lines; with `loop`, only where a loop over one is all that follows."""
    types: dict[str, str] = {}
    assignments: list[_Assignment] = []
    stride: Stride | None = None

    def follow(found: Sequence[_Assignment]) -> None:
        for item in found:
            kind = _class_of(item.values, classes) if item.values else _OTHER
            if item.operator:
                kind = _sum(classes.get(item.name, _OTHER), kind, item.operator)
            classes[item.name] = replace(kind, extent=False, index=False) if item.type else _OTHER
            types.setdefault(item.name, item.type)
        assignments.extend(found)

    looped = ""
    for n, statement in enumerate(statements):
        try:
            found = _assignments(statement, classes)
            if found is None:
                if loop and statement.kind == "for" and n == len(statements) - 1:
                    follow(_loop_declares(statement, classes))
                    looped, stride = _stride(statement, classes)
                break
        except NotUnderstood:
            break
        follow(found)
    if loop and stride is None:
        return None
    last = {item.name: n for n, item in enumerate(assignments)}
    wanted = [name for name in last if classes[name].kind in ("line", "clamped") and classes[name].blocks == 1]
    across = bool(wanted) and _nothing_else(body, assignments, last, frozenset(wanted), asked)
    if loop and (not across or wanted != [looped]):
        return None
    if not across:
        wanted = [name for name in last if classes[name].kind == "clamped"]
    end_of = {name: assignments[last[name]].end for name in wanted}
    used = {name for name in wanted if any(t.text == name and t.start >= end_of[name] for t in body)}
    wanted = [name for name in wanted if name in used]
    if not wanted:
        return None
    rows: set[str] = set()
    for item in assignments:
        if any(t.text in rows for t in item.values) or _axes(item.values) & {("threadIdx", "y"), ("threadIdx", "z")}:
            rows.add(item.name)
    return Lines(
        tuple(wanted),
        types[wanted[0]],
        tuple(end_of[name] for name in wanted),
        max(end_of.values()),
        tuple(t for item in assignments if item.name in used for t in item.consts),
        bool(rows & used),
        across,
        stride,
    )


def _loop_declares(statement: Statement, classes: dict[str, _Class]) -> list[_Assignment]:
    """Return the variable that the head of a loop declares, as an assignment of the prefix."""
    init, _, _ = for_header(statement)
    if not init:
        return []
    declared = split_declaration(init)
    if declared is None or len(declared) != 1:
        raise NotUnderstood
    found = _assignments(Statement("simple", [*init, init[-1]]), classes)
    if found is None:
        raise NotUnderstood
    return found


def _stride(statement: Statement, classes: dict[str, _Class]) -> tuple[str, Stride]:
    """Read ``for (i = line; i < bound; i += step) body``; raises NotUnderstood where it is another loop."""
    declared, condition, step = for_header(statement)
    texts = [t.text for t in step]
    if len(texts) < 3 or texts[1] != "+=" or len(condition) < 3 or condition[0].text != texts[0]:
        raise NotUnderstood
    name = texts[0]
    alike = [_class_of(tuple(part), classes) for part in (condition[2:], step[2:])]
    if condition[1].text not in ("<", "<=") or any(c.kind != "same" or c.blocks for c in alike):
        raise NotUnderstood
    if name not in classes or classes[name].kind != "line":
        raise NotUnderstood
    body = statement.children[0]
    for inner in body.walk():
        if inner.kind in ("return", "other") or any(t.text in ("return", "goto") for t in inner.tokens):
            raise NotUnderstood
    if _breaks(body) or changes(body.tokens, name, Hazards(references=True), False):
        raise NotUnderstood

    def span(tokens: Sequence[Token]) -> tuple[int, int]:
        return (tokens[0].start, tokens[-1].end) if tokens else (0, 0)

    found = Stride(statement.tokens[0].start, span(declared), span(condition), span(step), span(body.tokens))
    return name, found


def _carries(statements: Sequence[Statement], parameters: Mapping[str, Declared], hazards: Hazards) -> bool:
    """Return whether a thread takes something from one round of the loop at the end to the next, beside the index."""
    *ahead, loop = statements
    own = dict(parameters)
    for statement in ahead:
        for item in split_declaration(statement.tokens[:-1]) or []:
            if item.bounds or "&" in item.pointers:
                return True
            own[item.name.text] = item
    tokens = loop.children[0].tokens
    return any(changes(tokens, name, hazards, bool(d.pointers or d.bounds), is_plain(d)) for name, d in own.items())


def _breaks(statement: Statement) -> bool:
    """Return whether the statement breaks out of the loop around it."""
    if statement.kind in ("for", "while", "do"):
        return False
    if statement.kind == "jump" and statement.tokens[0].text == "break":
        return True
    return any(_breaks(child) for child in statement.children)


def _axes(tokens: Sequence[Token]) -> set[tuple[str, str]]:
    """Return which of threadIdx.x and its kin are asked for; with an empty axis where one is used as a whole."""
    out = set()
    for n, token in enumerate(tokens):
        if token.text in _AXES:
            out.add(_AXES[token.text])
        elif token.text in _INDICES:
            dotted = n + 2 < len(tokens) and tokens[n + 1].text == "."
            out.add((token.text, tokens[n + 2].text if dotted else ""))
    return out


def _nothing_else(
    body: Sequence[Token],
    assignments: Sequence[_Assignment],
    last: dict[str, int],
    wanted: frozenset[str],
    asked: frozenset[str],
) -> bool:
    """Return whether threadIdx.x and blockIdx.x reach the rest of the kernel through `wanted` alone."""
    mine = {("threadIdx", "x"), ("blockIdx", "x"), ("threadIdx", ""), ("blockIdx", "")}
    tainted: set[str] = set()
    for n, item in enumerate(assignments):
        dirty = bool(_axes(item.values) & mine) or any(t.text in tainted for t in item.values)
        if item.operator:
            dirty = dirty or item.name in tainted
        if dirty and not (item.name in wanted and last[item.name] == n):
            tainted.add(item.name)
        else:
            tainted.discard(item.name)
    end = max(assignments[last[name]].end for name in wanted)
    rest = [t for t in body if t.start >= end]
    return not (
        _axes(rest) & mine
        or any(t.text in tainted for t in rest)
        or any(t.text in asked and t.text not in _INDICES and t.text not in _AXES for t in rest)
    )


def _assignments(statement: Statement, classes: dict[str, _Class]) -> list[_Assignment] | None:
    """Read one declaration or assignment; None where the prefix ends."""
    if statement.kind != "simple":
        return None
    tokens = statement.tokens[:-1]
    end = statement.tokens[-1].end
    declared = split_declaration(tokens)
    if declared is not None:
        out = []
        for item in declared:
            if item.qualifiers & {"static", "__shared__", "extern", "volatile", "thread_local"}:
                return None
            if not _pure(item.initializer):
                return None
            plain = not item.pointers and not item.bounds
            automatic = [t.text for t in item.type] == ["auto"]
            wide = "long long" if automatic else spell(item.type) if is_wide_integer(item.type) else ""
            consts = tuple(t for t in tokens if t.text == "const")
            values = item.initializer
            if values and values[0].text in ("{", "(") and closing_index(values, 0) == len(values) - 1:
                values = values[1:-1]
            out.append(_Assignment(item.name.text, values, wide if plain else "", "", end, consts))
        return out
    if len(tokens) > 2 and tokens[0].kind == "name" and tokens[1].text in ("=", "+=", "-="):
        if tokens[0].text not in classes or not _pure(tokens[2:]):
            return None
        operator = "" if tokens[1].text == "=" else tokens[1].text[0]
        kept = "int" if classes[tokens[0].text].kind != "other" else ""
        return [_Assignment(tokens[0].text, tuple(tokens[2:]), kept, operator, end, ())]
    return None


def _pure(tokens: Sequence[Token]) -> bool:
    """Return whether evaluating it again changes nothing: no memory, no calls but minima and casts, no assignment."""
    for n, token in enumerate(tokens):
        following = tokens[n + 1].text if n + 1 < len(tokens) else ""
        if token.text in ("[", "->", "=", "++", "--", "/", "%"):
            return False
        if token.text.endswith("=") and token.text not in _BINARY:
            return False
        if token.text in ("*", "&") and (n == 0 or (tokens[n - 1].kind == "punct" and tokens[n - 1].text not in (")", "]"))):
            return False
        called = token.kind == "name" and following in ("(", "{")
        if called and token.text not in _CLAMPS | _PRODUCTS | _WIDE_INTEGERS | {"float", "double", "sizeof"}:
            return False
    return True


def _class_of(tokens: Sequence[Token], classes: dict[str, _Class]) -> _Class:
    try:
        kind, end = _expression(tokens, 0, 1, classes)
    except (IndexError, NotUnderstood):
        return _OTHER
    return kind if end == len(tokens) else _OTHER


def _sum(left: _Class, right: _Class, operator: str) -> _Class:
    blocks = min(2, left.blocks + right.blocks) if operator == "+" or not right.blocks else 2
    if left.kind == right.kind == "same":
        return _Class("same", blocks)
    if left.kind == "line" and right.kind == "same":
        return _Class("line", blocks)
    if operator == "+" and left.kind == "same" and right.kind == "line":
        return _Class("line", blocks)
    return _OTHER


def _product(left: _Class, right: _Class) -> _Class:
    if left.kind != "same" or right.kind != "same":
        return _OTHER
    if (left.index and right.extent) or (left.extent and right.index):
        return _Class("same", 1)
    return _Class("same", 2 if left.blocks or right.blocks else 0)


def _expression(tokens: Sequence[Token], i: int, level: int, classes: dict[str, _Class]) -> tuple[_Class, int]:
    left, i = _operand(tokens, i, classes)
    while i < len(tokens) and _BINARY.get(tokens[i].text, 0) >= level:
        operator = tokens[i].text
        right, i = _expression(tokens, i + 1, _BINARY[operator] + 1, classes)
        if operator in ("+", "-"):
            left = _sum(left, right, operator)
        elif operator == "*":
            left = _product(left, right)
        elif left.kind == right.kind == "same":
            left = _Class("same", 2 if left.blocks or right.blocks else 0)
        else:
            left = _OTHER
    return left, i


def _operand(tokens: Sequence[Token], i: int, classes: dict[str, _Class]) -> tuple[_Class, int]:
    token = tokens[i]
    if token.kind == "number":
        whole = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9']+)[uUlL]*", token.text)
        return (_SAME if whole else _OTHER), i + 1
    if token.text in ("+", "-", "!", "~"):
        kind, end = _operand(tokens, i + 1, classes)
        if token.text != "+" and (kind.kind != "same" or kind.blocks):
            return _OTHER, end
        return kind, end
    if token.text == "(":
        close = closing_index(tokens, i)
        inside = tokens[i + 1 : close]
        if is_wide_integer(inside):
            return _operand(tokens, close + 1, classes)
        kind, end = _expression(inside, 0, 1, classes)
        if end != len(inside):
            raise NotUnderstood
        return kind, close + 1
    if token.kind != "name":
        raise NotUnderstood
    name = token.text
    following = tokens[i + 1].text if i + 1 < len(tokens) else ""
    if name in _AXES:
        return _axis(*_AXES[name]), i + 1
    if name in _INDICES and following == ".":
        return _axis(name, tokens[i + 2].text), i + 3
    if name == "std" and following == "::":
        return _operand(tokens, i + 2, classes)
    if name == "static_cast" and following == "<":
        close = closing_angle(tokens, i + 1)
        kind, end = _operand(tokens, close + 1, classes)
        return (kind if is_wide_integer(tokens[i + 2 : close]) else _OTHER), end
    if following == "(":
        close = closing_index(tokens, i + 1)
        return _call(name, [_class_of(part, classes) for part in split_commas(tokens[i + 2 : close])]), close + 1
    if following in (".", "->", "[", "::"):
        raise NotUnderstood
    return classes.get(name, _OTHER), i + 1


def _axis(index: str, axis: str) -> _Class:
    if index == "threadIdx" and axis == "x":
        return _Class("line")
    if index == "blockIdx" and axis == "x":
        return _Class("same", 2, index=True)
    return _Class("same", extent=index == "blockDim" and axis == "x")


def _call(name: str, kinds: list[_Class]) -> _Class:
    if name in _PRODUCTS and len(kinds) == 2:
        return _product(*kinds)
    if name in _WIDE_INTEGERS and len(kinds) == 1:
        return kinds[0]
    if name in _CLAMPS and len(kinds) == 2:
        first, second = kinds
        if first.kind == second.kind == "same":
            return _Class("same", 2 if first.blocks or second.blocks else 0)
        if first.kind == "same":
            first, second = second, first
        if first.kind in ("line", "clamped") and second.kind == "same":
            return _Class("clamped", 2 if second.blocks else first.blocks)
    return _OTHER
