"""Macros: their definitions at each point of the source, and their expansion."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from ..errors import DeclarationError
from .tokens import Doubt, Lexer, Token, closing_index, split_commas, tokenize, without_attributes

_MOST_EXPANDED: Final = 100_000
_MOST_TOGETHER: Final = 10 * _MOST_EXPANDED
_MOST_READ: Final = 1_000_000
_LONGEST: Final = 500_000


@dataclass(eq=False)
class Macro:
    """A `#define`."""

    text: str  # the replacement text
    parameters: tuple[str, ...] | None = None  # None if object-like
    variadic: bool = False
    doubt: Doubt | None = None  # set if the definition depends on an undecided condition

    @cached_property
    def body(self) -> tuple[Token, ...]:
        """The tokens of the replacement text."""
        if len(self.text) > _LONGEST:
            raise DeclarationError(f"a macro that is used has {len(self.text)} characters; at most {_LONGEST} are expanded")
        lexer = Lexer(self.text, "macro")
        lexer.line_start = False  # '#' is an operator here and starts no directive
        return tuple(lexer)

    @cached_property
    def words(self) -> frozenset[str]:
        """The names in the text."""
        return frozenset(NAME.findall(self.text))

    def reads_as(self, other: Macro | None) -> bool:
        """Return whether two macros are equivalent for parsing declarations."""
        return (
            other is not None
            and self.doubt is other.doubt is None
            and (self.parameters, self.variadic) == (other.parameters, other.variadic)
            and (self.text.split() == other.text.split() or self._essence == other._essence)
        )

    @property
    def _essence(self) -> list[str]:
        return [t.text for t in without_attributes(self.body) if t.text not in _MEANINGLESS]


NAME: Final = re.compile(r"[^\W\d]\w*")
_MEANINGLESS: Final = frozenset(
    {
        "volatile", "__volatile__", "register", "__restrict__", "__restrict", "restrict", "inline", "__inline__", "__inline",
        "__forceinline__", "__noinline__", "__extension__", "__host__", "__grid_constant__", "typename",
    }
)  # fmt: skip


class MacroTable(dict[str, Macro]):
    """The current macros, and the history of each name.

    `clock` counts the changes; `at(clock)` looks up names as of that time.
    """

    clock: int
    history: dict[str, list[tuple[int, Macro | None]]]
    journal: dict[str, Macro | None] | None
    """Definitions, from before the current branch, of the names that it changes."""

    def __new__(cls) -> MacroTable:  # not in __init__: unpickling sets the items without calling it
        table = super().__new__(cls)
        table.clock, table.history, table.journal = 0, {}, None
        return table

    def _change(self, name: str, macro: Macro | None) -> None:
        if self.journal is not None:
            self.journal.setdefault(name, self.get(name))
        self.clock += 1
        self.history.setdefault(name, []).append((self.clock, macro))

    def __setitem__(self, name: str, macro: Macro) -> None:
        self._change(name, macro)
        super().__setitem__(name, macro)

    def set(self, name: str, macro: Macro | None) -> None:
        """Define a macro, or with None undefine it."""
        if macro is not None:
            self[name] = macro
        elif name in self:
            self._change(name, None)
            del self[name]

    def at(self, clock: int) -> Callable[[str], Macro | None]:
        """Return a function that looks up macros as of a given time."""

        def get(name: str) -> Macro | None:
            changes = self.history.get(name, [])
            n = bisect_right(changes, clock, key=lambda change: change[0])
            return changes[n - 1][1] if n else None

        return get

    def mention(self, word: str) -> bool:
        """Return whether any macro, current or past, has a word in its text."""
        return any(word in macro.text and word in macro.words for name in self.history for macro in self.meanings(name))

    def named_by(self, name: str) -> frozenset[str]:
        """Return a macro's name and the names of all macros, so far, that lead to it."""
        found = frozenset({name})
        while more := {other for other in self.history if any(found & macro.words for macro in self.meanings(other))} - found:
            found |= more
        return found

    def meanings(self, name: str) -> list[Macro]:
        """Return all definitions that a name has had."""
        return [macro for _, macro in self.history.get(name, ()) if macro is not None]


PREDEFINED: Final = {
    "__HIP__": "1",
    "__HIPCC__": "1",
    "__HIPCC_RTC__": "1",
    "__HIP_DEVICE_COMPILE__": "1",
    "__HIP_PLATFORM_AMD__": "1",
    "__cplusplus": "201703L",
}
"""Predefined macros: those of HIP on AMD (warp size 64, its types)."""
PLATFORM_MACROS: Final = frozenset(PREDEFINED) - {"__cplusplus"}
"""Macros whose conditionals may be decided differently by another platform's compiler."""


def option_macros(options: Sequence[str]) -> MacroTable:
    """Return the predefined macros with ``-D`` and ``-U`` applied."""
    macros = MacroTable()
    for name, value in PREDEFINED.items():
        macros[name] = Macro(value)
    for option, following in pairwise([*options, ""]):
        if option.startswith("-D"):
            name, _, value = (option[2:] or following).strip().partition("=")
            macros[name] = Macro(value or "1")
            tokenize(value or "1", f"option {option!r}")
        elif option.startswith("-U"):
            macros.set(option[2:].strip(), None)
    return macros


def strip_comments(text: str) -> str:
    """Return a preprocessor line without comments and joined into one line."""
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m.group(1) or " ", text, flags=re.DOTALL).strip()


def parse_define(text: str) -> tuple[str, Macro] | None:
    """Return the name and definition of a ``#define`` line, or None if it is not one."""
    match = re.match(r"#\s*define\s+([^\W\d]\w*)(\(([^()]*)\))?(.*)", strip_comments(text), re.DOTALL)
    if match is None:
        return None
    body = match.group(4).strip()
    if match.group(2) is None:
        return match.group(1), Macro(body)
    names = [name.strip() for name in match.group(3).split(",") if name.strip()]
    variadic = bool(names) and names[-1].endswith("...")
    if variadic:
        names[-1] = names[-1][:-3].strip() or "__VA_ARGS__"
    return match.group(1), Macro(body, tuple(names), variadic)


def _macro_arguments(tokens: Sequence[Token], i: int) -> tuple[list[list[Token]], int] | None:
    """Parse ``( a, b )`` at `i`; return the arguments and the index after the closing parenthesis."""
    if i >= len(tokens) or tokens[i].text != "(" or (end := closing_index(tokens, i)) == len(tokens):
        return None
    return split_commas(tokens[i + 1 : end], angles=False) or [[]], end + 1


def _substitute(macro: Macro, arguments: list[list[Token]], expand_argument: Callable[[list[Token]], list[Token]]) -> list[Token]:
    parameters = macro.parameters or ()
    if macro.variadic and len(arguments) == len(parameters) - 1:
        arguments = [*arguments, []]
    if macro.variadic and len(arguments) >= len(parameters):
        last = len(parameters) - 1
        comma = Token("punct", ",", 0, 0, 0)
        joined = [token for part in arguments[last:] for token in (comma, *part)][1:]
        arguments = [*arguments[:last], joined]
    bound = dict(zip(parameters, arguments, strict=False))
    out: list[Token] = []
    body = macro.body
    i = 0
    left: list[Token] | None = None  # the left operand of ##, possibly empty
    while i < len(body):
        token = body[i]
        pasted = i + 1 < len(body) and body[i + 1].text == "##"
        if token.text == "#" and i + 1 < len(body) and body[i + 1].text in bound:
            text = _spelled(bound[body[i + 1].text])
            piece = [Token("string", '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"', 0, 0, 0)]
            i += 1
            pasted = i + 1 < len(body) and body[i + 1].text == "##"
        elif token.kind == "name" and token.text in bound:
            raw = left is not None or pasted
            piece = list(bound[token.text]) if raw else expand_argument(bound[token.text])
        else:
            piece = [token]
        if left is not None:
            if [t.text for t in left] == [","] and macro.variadic and token.text == parameters[-1]:
                piece = [*left, *piece] if piece else []  # GNU extension: an empty argument list drops the comma
            elif left and piece:
                piece = [*left[:-1], *tokenize(left[-1].text + piece[0].text), *piece[1:]]
            else:
                piece = left + piece
        left = piece if pasted else None
        if not pasted:
            out += piece
        i += 2 if pasted else 1
    return out + (left or [])


def _spelled(tokens: Sequence[Token]) -> str:
    """Stringify an argument as ``#`` does: any whitespace between tokens becomes one blank."""
    parts = [("" if n and tokens[n - 1].end == t.start else " ") + t.text for n, t in enumerate(tokens)]
    return "".join(parts)[1:]


class Budget:
    """The remaining number of tokens to read outside function bodies, and of tokens that macro expansion may produce.

    Without it, a few nested macros or many modules could exhaust memory.
    """

    def __init__(self, most: int = _MOST_EXPANDED) -> None:
        self.most = most  # of one use of a macro
        self.left = _MOST_TOGETHER  # of all uses
        self.unread = _MOST_READ
        self._begun = self.left  # what was left when the current use began

    def read(self, count: int, where: str) -> None:
        """Count tokens of declarations and conditions."""
        self.unread -= count
        if self.unread < 0:
            raise DeclarationError(
                f"{where}: this source, with those of other modules of the file, has more than {_MOST_READ} tokens outside of"
                " function bodies; split the file"
            )

    def begin(self) -> None:
        """Begin to count a use of a macro, with the macros in what it expands to."""
        self._begun = self.left

    def spend(self, count: int, macro: Token) -> None:
        """Count the tokens that a macro expands to."""
        self.left -= count
        if self._begun - self.left > self.most:
            raise DeclarationError(
                f"line {macro.line}: macro {macro.text!r} becomes more than {self.most} tokens; write it with fewer"
            )
        if self.left < 0:
            raise DeclarationError(
                f"line {macro.line}: the macros of this source, with those of other modules of the file, become more than"
                f" {_MOST_TOGETHER} tokens; write them with fewer, or split the file"
            )


def expand_macros(
    tokens: Sequence[Token],
    macro_of: Callable[[str], Macro | None],
    budget: Budget,
    hidden: frozenset[str] = frozenset(),
    *,
    outermost: bool = True,
) -> list[Token]:
    """Expand object-like and function-like macros; each resulting token carries the position of the macro's use.

    Macros in `hidden` are already being expanded and stay as they are. Tokens that are `outermost` are those of a file.

    Raises
    ------
    DeclarationError
        If the expansion exceeds the budget.
    """
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        macro = macro_of(token.text) if token.kind == "name" and token.text not in hidden else None
        if macro is None:
            out.append(token)
            i += 1
            continue
        if outermost:
            budget.begin()
        inner = hidden | {token.text}
        end, after = token.end, i + 1
        if macro.parameters is None:
            made: list[Token] = list(macro.body)
        else:
            found = _macro_arguments(tokens, i + 1)
            if found is None:
                out.append(token)
                i += 1
                continue
            arguments, after = found
            budget.spend(after - i, token)
            end = max(end, tokens[after - 1].end)
            made = _substitute(macro, arguments, lambda part: expand_macros(part, macro_of, budget, hidden, outermost=False))
        budget.spend(1 + len(made) + sum(len(t.text) for t in made if t.kind == "string") // 8, token)
        doubt = macro.doubt or token.doubt
        # Keep the halves of >> and >>= adjacent.
        ends = [
            token.start if t.text == ">" and next_one.text in (">", ">=") and t.end == next_one.start else end
            for t, next_one in zip(made, [*made[1:], token])
        ]
        made = [
            Token(t.kind, t.text, token.start, ends[n], token.line, t.doubt or doubt) if t.kind != "block" else t
            for n, t in enumerate(made)
        ]
        out += expand_macros(made, macro_of, budget, inner, outermost=False)
        i = after
    return out
