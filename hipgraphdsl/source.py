"""HIP C++ source, read without compiling it: tokens, a small preprocessor, constant expressions and declarations.

`Declarations` is what `kernels.Module` asks; the CPU runtime, which rewrites kernels, uses the tokens as well.
What is not understood raises ValueError with the reason; the caller knows whose parameter or variable it is.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from .errors import DeclarationError

__all__ = [
    "CType",
    "Conditionals",
    "Declarations",
    "Declarator",
    "Item",
    "KernelDeclaration",
    "Macro",
    "Scope",
    "SymbolDeclaration",
    "TemplateParameter",
    "Token",
    "bfloat16_dtype",
    "closing_angle",
    "closing_index",
    "evaluate",
    "expand_macros",
    "is_bfloat16",
    "natural_alignment",
    "parse_define",
    "preprocess",
    "scan",
    "spell",
    "split_commas",
    "tokenize",
    "without_attributes",
]


# -- C types ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CType:
    """A C++ type as a kernel's parameter or a device variable has it.

    Attributes
    ----------
    spelling : str
        The base type as written, without const and pointers.
    dtype : numpy.dtype or None
        Type of one element; None for void and for types whose layout is unknown.
    lanes : int
        Elements of a vector type (float4: 4), else 1.
    size, align : int
        Bytes of the base type; 0 where the layout is unknown.
    const : bool
        Whether the base type is const.
    pointers : int
        Levels of indirection above the base type.
    opaque : str
        ``"void"``, ``"struct"`` or ``"enum"`` where dtype is None.
    """

    spelling: str
    dtype: np.dtype[Any] | None = None
    lanes: int = 1
    size: int = 0
    align: int = 1
    const: bool = False
    pointers: int = 0
    opaque: str = ""


def _scalar(spelling: str, dtype: str, align: int = 0) -> CType:
    kind = np.dtype(dtype)
    return CType(spelling, kind, 1, kind.itemsize, align or kind.alignment)


def _make_types() -> dict[str, CType]:
    scalars = {
        "bool": "?",
        "char": "i1",  # HIP's char is signed on every device
        "signed char": "i1",
        "unsigned char": "u1",
        "short": "i2",
        "unsigned short": "u2",
        "int": "i4",
        "unsigned int": "u4",
        "long": "i8",
        "unsigned long": "u8",
        "long long": "i8",
        "unsigned long long": "u8",
        "float": "f4",
        "double": "f8",
        "size_t": "u8",
        "ssize_t": "i8",
        "ptrdiff_t": "i8",
        "intptr_t": "i8",
        "uintptr_t": "u8",
        "intmax_t": "i8",
        "uintmax_t": "u8",
        "uchar": "u1",
        "ushort": "u2",
        "uint": "u4",
        "ulong": "u8",
        "longlong": "i8",
        "ulonglong": "u8",
        "half": "f2",
        "__half": "f2",
        "_Float16": "f2",
        "__fp16": "f2",
        "byte": "u1",
    }
    for bits in (8, 16, 32, 64):
        for family in ("int{}_t", "int_least{}_t", "__int{}_t", "__int{}"):
            scalars[family.format(bits)] = f"i{bits // 8}"
        for family in ("uint{}_t", "uint_least{}_t", "__uint{}_t"):
            scalars[family.format(bits)] = f"u{bits // 8}"
    types = {name: _scalar(name, code) for name, code in scalars.items()}
    for name, align in (("hipFloatComplex", 8), ("hipComplex", 8), ("cuFloatComplex", 8), ("cuComplex", 8)):
        types[name] = _scalar(name, "c8", align)
    for name in ("hipDoubleComplex", "cuDoubleComplex"):
        types[name] = _scalar(name, "c16", 16)
    for stem in ("complex", "std::complex", "thrust::complex"):
        types[f"{stem}<float>"] = _scalar(f"{stem}<float>", "c8")
        types[f"{stem}<double>"] = _scalar(f"{stem}<double>", "c16")
    vectors = {
        "char": "i1",
        "uchar": "u1",
        "short": "i2",
        "ushort": "u2",
        "int": "i4",
        "uint": "u4",
        "long": "i8",
        "ulong": "u8",
        "longlong": "i8",
        "ulonglong": "u8",
        "float": "f4",
        "double": "f8",
    }
    for stem, code in vectors.items():
        dtype = np.dtype(code)
        for lanes in (1, 2, 3, 4):
            # HIP aligns vectors of 2 and 4 to their size, and vectors of 3 to their element.
            align = dtype.itemsize * (1 if lanes == 3 else lanes)
            types[f"{stem}{lanes}"] = CType(f"{stem}{lanes}", dtype, lanes, dtype.itemsize * lanes, align)
    for name in ("half2", "__half2"):
        types[name] = CType(name, np.dtype("f2"), 2, 4, 4)
    types["dim3"] = CType("dim3", np.dtype("u4"), 3, 12, 4)
    types["void"] = CType("void", opaque="void")
    types["hipDeviceptr_t"] = CType("void", opaque="void", pointers=1)
    return types


_TYPES: Final = _make_types()
_BFLOAT16: Final = frozenset({"hip_bfloat16", "__hip_bfloat16", "__nv_bfloat16", "__bf16"})
BUILTIN_WORDS: Final = frozenset(
    {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "__int64", "_Bool"}
)
IGNORED_WORDS: Final = frozenset(
    {
        "volatile", "__volatile__", "register", "__restrict__", "__restrict", "restrict", "static", "inline",
        "__inline__", "__inline", "__forceinline__", "__noinline__", "extern", "constexpr", "constinit", "thread_local",
        "mutable", "typename", "__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__",
        "__grid_constant__", "__extension__", "__maybe_unused__",
    }
)  # fmt: skip
_PAREN_ATTRIBUTES: Final = frozenset(
    {"__attribute__", "__attribute", "__declspec", "alignas", "__align__", "__launch_bounds__", "noexcept", "_Alignas"}
)


def bfloat16_dtype() -> np.dtype[Any] | None:
    """Return ml_dtypes' bfloat16, or None where ml_dtypes is not installed."""
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return None
    return found


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether it is ml_dtypes' bfloat16, which NumPy itself does not know."""
    return dtype.type.__name__ == "bfloat16"  # dtype.name is made anew each time it is asked for


def natural_alignment(dtype: np.dtype[Any]) -> int:
    """Return the alignment that C gives a struct with these fields (a NumPy dtype made without align=True says 1)."""
    if dtype.subdtype is not None:
        return natural_alignment(dtype.subdtype[0])
    if dtype.names:
        assert dtype.fields is not None
        return max(natural_alignment(dtype.fields[name][0]) for name in dtype.names)
    return dtype.alignment


# -- tokens ----------------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A piece of C++ source.

    `kind` is ``name``, ``number``, ``string``, ``char``, ``punct`` or ``directive`` (one whole preprocessor line).
    `start` and `end` are offsets into the source; tokens that a macro made have those of its use. `line` counts from 1.
    """

    kind: str
    text: str
    start: int
    end: int
    line: int


_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\f\v\r\n]|\\[ \t]*\r?\n)+)
  | (?P<comment>//(?:\\[ \t]*\r?\n|[^\n])*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)
  | (?P<name>[^\W\d][\w$]*)
  | (?P<punct><<=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#
    |[{}()\[\];,<>=+\-*/%&|^!~?:.\#@])
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"#(?:\\[ \t]*\r?\n|/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|[^\n])*", re.DOTALL)


def tokenize(source: str, where: str = "source") -> list[Token]:
    """Split C++ source into tokens; comments and line continuations are dropped, preprocessor lines stay whole.

    Two closing angle brackets are two tokens, so that template arguments can be matched.

    Raises
    ------
    DeclarationError
        At a character that cannot begin a token, an unterminated comment or string; the line is named.
    """
    tokens: list[Token] = []
    position, line, length = 0, 1, len(source)
    line_start = True  # whether only blanks and comments precede on this line
    while position < length:
        if source[position] == "#" and line_start:
            found = _DIRECTIVE.match(source, position)
            assert found is not None
            text = found.group()
            tokens.append(Token("directive", text, position, found.end(), line))
            line += text.count("\n")
            position = found.end()
            continue
        match = _TOKEN.match(source, position)
        open_comment = source.startswith("/*", position) and (match is None or match.group("comment") is None)
        if match is None or open_comment:
            what = "unterminated comment" if open_comment else f"unexpected {source[position]!r}"
            if source[position] in "\"'":
                what = "unterminated string or character"
            raise DeclarationError(f"{where}, line {line}: {what}")
        kind, text = match.lastgroup or "punct", match.group()
        if kind == "delimiter" or match.group("raw") is not None:
            kind = "string"
        if kind == "space":
            line_start = line_start or "\n" in text
        elif kind != "comment":
            tokens.append(Token(kind, text, position, match.end(), line))
            line_start = False
        line += text.count("\n")
        position = match.end()
    return tokens


# -- the preprocessor ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Macro:
    """A `#define`; `parameters` is None for one without parentheses."""

    body: tuple[Token, ...]
    parameters: tuple[str, ...] | None = None
    variadic: bool = False


PREDEFINED: Final = {
    "__HIP__": "1",
    "__HIPCC__": "1",
    "__HIPCC_RTC__": "1",
    "__HIP_DEVICE_COMPILE__": "1",
    "__HIP_PLATFORM_AMD__": "1",
    "__cplusplus": "201703L",
}
"""Macros that stand before the first line: the CPU runtime keeps AMD's meaning of HIP (warp size 64, its types)."""


def option_macros(options: Sequence[str]) -> dict[str, Macro]:
    macros = {name: Macro(tuple(tokenize(value))) for name, value in PREDEFINED.items()}
    for option in options:
        if option.startswith("-D"):
            name, _, value = option[2:].strip().partition("=")
            macros[name] = Macro(tuple(tokenize(value or "1", f"option {option!r}")))
    return macros


def _strip_comments(text: str) -> str:
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m.group(1) or " ", text, flags=re.DOTALL).strip()


def parse_define(text: str, where: str) -> tuple[str, Macro] | None:
    """Return the name and the meaning of the line ``#define ...``, or None where it is not one."""
    match = re.match(r"#\s*define\s+([^\W\d]\w*)(\(([^()]*)\))?(.*)", _strip_comments(text), re.DOTALL)
    if match is None:
        return None
    body = tuple(tokenize(match.group(4).lstrip(), where))
    if match.group(2) is None:
        return match.group(1), Macro(body)
    names = [name.strip() for name in match.group(3).split(",") if name.strip()]
    variadic = bool(names) and names[-1].endswith("...")
    if variadic:
        names[-1] = names[-1][:-3].strip() or "__VA_ARGS__"
    return match.group(1), Macro(body, tuple(names), variadic)


def _macro_arguments(tokens: Sequence[Token], i: int) -> tuple[list[list[Token]], int] | None:
    """Read ``( a, b )`` at `i`; return the arguments and the index after the closing parenthesis."""
    if i >= len(tokens) or tokens[i].text != "(":
        return None
    arguments: list[list[Token]] = [[]]
    depth = 0
    for j in range(i, len(tokens)):
        text = tokens[j].text
        if text in "([{" and tokens[j].kind == "punct":
            depth += 1
            if depth == 1:
                continue
        elif text in ")]}" and tokens[j].kind == "punct":
            depth -= 1
            if depth == 0:
                return arguments, j + 1
        elif text == "," and depth == 1:
            arguments.append([])
            continue
        arguments[-1].append(tokens[j])
    return None


def _substitute(macro: Macro, arguments: list[list[Token]], expand_argument: Callable[[list[Token]], list[Token]]) -> list[Token]:
    parameters = macro.parameters or ()
    if macro.variadic and len(arguments) >= len(parameters):
        last = len(parameters) - 1
        joined: list[Token] = []
        for n, part in enumerate(arguments[last:]):
            if n:
                joined.append(Token("punct", ",", 0, 0, 0))
            joined += part
        arguments = [*arguments[:last], joined]
    bound = dict(zip(parameters, arguments, strict=False))
    out: list[Token] = []
    body = macro.body
    i = 0
    paste = False
    while i < len(body):
        token = body[i]
        if token.text == "##":
            paste = True
            i += 1
            continue
        if token.text == "#" and i + 1 < len(body) and body[i + 1].text in bound:
            text = " ".join(t.text for t in bound[body[i + 1].text])
            piece = [Token("string", '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"', 0, 0, 0)]
            i += 1
        elif token.text in bound and token.kind == "name":
            raw = paste or (i + 1 < len(body) and body[i + 1].text == "##")
            piece = list(bound[token.text]) if raw else expand_argument(bound[token.text])
        else:
            piece = [token]
        if paste and out and piece:
            left = out.pop()
            glued = tokenize(left.text + piece[0].text)
            piece = [*glued, *piece[1:]]
        paste = False
        out += piece
        i += 1
    return out


_MOST_EXPANDED: Final = 1_000_000


class _Budget:
    """How many more tokens macros may become; a few lines of them could stand for more than any memory holds."""

    def __init__(self) -> None:
        self.left = _MOST_EXPANDED

    def spend(self, count: int, macro: Token) -> None:
        self.left -= count
        if self.left < 0:
            raise DeclarationError(f"line {macro.line}: macro {macro.text!r} becomes more than {_MOST_EXPANDED} tokens")


def expand_macros(
    tokens: Sequence[Token],
    macros: Mapping[str, Macro],
    hidden: frozenset[str] = frozenset(),
    budget: _Budget | None = None,
) -> list[Token]:
    """Expand object-like and function-like macros; every token made carries the position of the macro's use.

    Raises
    ------
    DeclarationError
        If they become more than a million tokens.
    """
    budget = budget or _Budget()
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        macro = macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
        if macro is None:
            out.append(token)
            i += 1
            continue
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
            end = max(end, tokens[after - 1].end)
            made = _substitute(macro, arguments, lambda part: expand_macros(part, macros, hidden, budget))
        budget.spend(len(made), token)
        made = [t._replace(start=token.start, end=end, line=token.line) for t in made]
        out += expand_macros(made, macros, inner, budget)
        i = after
    return out


class Conditionals:
    """Follows `#if`, `#define` and `#undef` through a source.

    Parameters
    ----------
    macros : dict
        Changed to what holds after each line.
    where : str
        What error messages call the source.
    """

    def __init__(self, macros: dict[str, Macro], where: str) -> None:
        self.macros = macros
        self.where = where
        self.budget = _Budget()
        # For each open #if: whether the branch is read, and whether this or an earlier one has been.
        self._branches: list[tuple[bool, bool]] = []

    @property
    def reading(self) -> bool:
        """Whether the lines that follow are compiled."""
        return not self._branches or self._branches[-1][0]  # inside of what is not read, nothing is

    def directive(self, text: str) -> str:
        """Follow one preprocessor line; return its word: ``if``, ``define``; empty for a null directive."""
        match = re.match(r"#\s*(\w+)\s*(.*)", _strip_comments(text), re.DOTALL)
        if match is None:
            return ""
        word, rest = match.groups()
        if word in ("if", "ifdef", "ifndef"):
            now = self.reading
            if now:
                now = self._condition(rest) if word == "if" else self._defined(rest) == (word == "ifdef")
                self._branches.append((now, now))
            else:
                self._branches.append((False, True))
        elif word in ("elif", "else") and self._branches:
            _, taken = self._branches.pop()
            now = self.reading and not taken and (word == "else" or self._condition(rest))
            self._branches.append((now, taken or now))
        elif word == "endif" and self._branches:
            self._branches.pop()
        elif word == "define" and self.reading:
            defined = parse_define(text, self.where)
            if defined is not None:
                self.macros[defined[0]] = defined[1]
        elif word == "undef" and self.reading:
            self.macros.pop(rest.strip(), None)
        return word

    def _defined(self, rest: str) -> bool:
        return bool(rest) and rest.split(None, 1)[0] in self.macros

    def _condition(self, text: str) -> bool:
        words = tokenize(text, self.where)
        resolved: list[Token] = []
        i = 0
        while i < len(words):
            if words[i].text == "defined":
                bracket = i + 1 < len(words) and words[i + 1].text == "("
                at = i + 2 if bracket else i + 1
                name = words[at].text if at < len(words) else ""
                resolved.append(words[i]._replace(kind="number", text="1" if name in self.macros else "0"))
                i = at + (2 if bracket else 1)
            else:
                resolved.append(words[i])
                i += 1
        expanded = expand_macros(resolved, self.macros, budget=self.budget)
        try:
            return evaluate(expanded, lambda _: 0) != 0
        except ValueError:
            return False


def preprocess(tokens: Sequence[Token], macros: dict[str, Macro], where: str) -> list[Token]:
    """Follow `#if`, `#define` and `#undef`, and expand macros; `macros` is changed to what holds at the end.

    `#include` lines are passed over: types that a header of the user defines are named through `Module(structs=)`.
    """
    out: list[Token] = []
    pending: list[Token] = []
    conditionals = Conditionals(macros, where)
    for token in tokens:
        if token.kind == "directive":
            out += expand_macros(pending, macros, budget=conditionals.budget)
            pending.clear()
            conditionals.directive(token.text)
        elif conditionals.reading:
            pending.append(token)
    return out + expand_macros(pending, macros, budget=conditionals.budget)


# -- constant expressions --------------------------------------------------------------------------------------------

_BINARY: Final[dict[str, tuple[int, Callable[[int, int], int]]]] = {
    "||": (1, lambda a, b: int(bool(a) or bool(b))),
    "&&": (2, lambda a, b: int(bool(a) and bool(b))),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">": (7, lambda a, b: int(a > b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << min(b, 64) if b >= 0 else 0),
    ">>": (8, lambda a, b: a >> b if b >= 0 else 0),
    "+": (9, lambda a, b: a + b),
    "-": (9, lambda a, b: a - b),
    "*": (10, lambda a, b: a * b),
    "/": (10, lambda a, b: int(a / b) if abs(a) < 2**52 else a // b),
    "%": (10, lambda a, b: int(math.fmod(a, b))),
}


def evaluate(tokens: Sequence[Token], lookup: Callable[[str], int | None]) -> int:
    """Evaluate an integer constant expression; `lookup` gives the value of a name.

    Raises
    ------
    ValueError
        If the expression is not one, or holds a name that `lookup` does not know.
    """
    # Shift right arrives as two tokens.
    words: list[Token] = []
    for token in tokens:
        if token.text == ">" and words and words[-1].text == ">" and words[-1].end == token.start:
            words[-1] = words[-1]._replace(text=">>", end=token.end)
        else:
            words.append(token)
    at = 0

    def peek() -> str:
        return words[at].text if at < len(words) else ""

    def take() -> Token:
        nonlocal at
        if at >= len(words):
            raise ValueError("the expression ends too early")
        at += 1
        return words[at - 1]

    def primary() -> int:
        token = take()
        text = token.text
        if text == "(":
            closing = at
            while closing < len(words) and words[closing].text != ")":
                closing += 1
            cast = " ".join(w.text for w in words[at:closing])
            if cast in _TYPES or cast == "unsigned":
                del words[at : closing + 1]
                return primary()
            value = ternary()
            if take().text != ")":
                raise ValueError("a parenthesis is not closed")
            return value
        if text == "-":
            return -primary()
        if text == "+":
            return primary()
        if text == "!":
            return int(not primary())
        if text == "~":
            return ~primary()
        if token.kind == "number":
            digits = text.replace("'", "").rstrip("uUlLzZ")
            if re.fullmatch(r"0[0-7]+", digits):
                return int(digits, 8)
            return int(digits, 0)
        if token.kind == "char" and len(text) == 3:
            return ord(text[1])
        if text in ("true", "false"):
            return int(text == "true")
        if text == "sizeof" and peek() == "(":
            take()
            inside = []
            while peek() not in (")", ""):
                inside.append(take().text)
            take()
            known = _TYPES.get(" ".join(inside))
            if known is None or not known.size:
                raise ValueError(f"sizeof({' '.join(inside)}) is not known")
            return known.size
        if token.kind == "name":
            while peek() == "::":
                take()
                text = take().text
            found = lookup(text)
            if found is None:
                raise ValueError(f"{text!r} has no known value")
            return found
        raise ValueError(f"{text!r} is not part of a constant expression")

    def binary(level: int) -> int:
        left = primary()
        while True:
            known = _BINARY.get(peek())
            if known is None or known[0] < level:
                return left
            operator = take().text
            right = binary(known[0] + 1)
            if operator in "/%" and right == 0:
                raise ValueError("division by zero")
            left = known[1](left, right)

    def ternary() -> int:
        chosen = binary(1)
        if peek() != "?":
            return chosen
        take()
        yes = ternary()
        if take().text != ":":
            raise ValueError("a ':' is missing")
        no = ternary()
        return yes if chosen else no

    result = ternary()
    if at != len(words):
        raise ValueError(f"{words[at].text!r} is not part of a constant expression")
    return result


# -- declarations ----------------------------------------------------------------------------------------------------

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
    depth = 0
    j = i
    while j < len(tokens):
        text = tokens[j].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return j
        elif text in OPENING:
            j = closing_index(tokens, j)
        elif text in (";", "{"):
            break
        j += 1
    return len(tokens)


def split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at the commas outside of all brackets, angle brackets of template arguments among them."""
    parts: list[list[Token]] = [[]]
    i = 0
    while i < len(tokens):
        token = tokens[i]
        end = i
        if token.text in OPENING:
            end = min(closing_index(tokens, i), len(tokens) - 1)
        elif token.text == "<" and i and tokens[i - 1].kind == "name":
            closed = closing_angle(tokens, i)
            end = closed if closed < len(tokens) else i
        if token.text == "," and token.kind == "punct":
            parts.append([])
        else:
            parts[-1] += tokens[i : end + 1]
        i = end + 1
    return [] if parts == [[]] else parts


def spell(tokens: Iterable[Token | str]) -> str:
    """Write tokens as one would: ``scale<float, 4>``, ``const unsigned int*``."""
    out = ""
    for token in tokens:
        text = token if isinstance(token, str) else token.text
        if text == ",":
            out = out.rstrip() + ", "
        elif out and (out[-1].isalnum() or out[-1] == "_") and (text[0].isalnum() or text[0] == "_"):
            out += " " + text
        else:
            out += text
    return out


def without_attributes(tokens: Sequence[Token]) -> list[Token]:
    """Drop ``[[...]]``, ``__attribute__((...))``, ``__launch_bounds__(...)``, ``alignas(...)`` and their like."""
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


@dataclass(frozen=True, slots=True)
class Declarator:
    """What a declaration says of one name: its type, the name and the tokens of each array bound."""

    type: CType
    name: str
    bounds: tuple[tuple[Token, ...], ...] = ()
    reference: bool = False
    initializer: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """A parameter of a kernel template; `type` says whether it stands for a type or a number."""

    name: str
    type: bool
    spelling: str
    default: tuple[Token, ...] = ()


class Scope:
    """What names mean where a declaration stands: aliases, constants, structs and template arguments."""

    def __init__(self, structs: Mapping[str, np.dtype[Any]]) -> None:
        self.aliases: dict[str, list[Token]] = {}
        self.constants: dict[str, list[Token]] = {}
        self.opaque: dict[str, str] = {}
        self.structs = dict(structs)

    def inner(self) -> Scope:
        """Return a copy to which template arguments or local names can be added."""
        copy = Scope(self.structs)
        copy.aliases = dict(self.aliases)
        copy.constants = dict(self.constants)
        copy.opaque = dict(self.opaque)
        return copy

    def constant(self, name: str, busy: frozenset[str] = frozenset()) -> int | None:
        """Return the value of a named integer constant, or None."""
        tokens = self.constants.get(name)
        if tokens is None or name in busy:
            return None
        try:
            return evaluate(tokens, lambda inner: self.constant(inner, busy | {name}))
        except ValueError:
            return None

    def evaluate(self, tokens: Sequence[Token]) -> int:
        """Evaluate an integer constant expression; raises ValueError."""
        return evaluate(tokens, self.constant)

    def named_type(self, words: Sequence[Token], busy: frozenset[str] = frozenset()) -> CType:
        """Return what the words of a base type mean, ``unsigned long``, ``std::complex<float>``; raises ValueError."""
        spelling = spell(words)
        texts = [w.text for w in words]
        if texts and all(text in BUILTIN_WORDS for text in texts):
            return replace(_TYPES[_builtin_name(texts)], spelling=spelling)
        short = spelling
        for prefix in ("::", "std::", "hip::", "cuda::std::"):
            if short.startswith(prefix) and "complex" not in short:
                short = short[len(prefix) :]
        simple = short.rpartition("::")[2] if "<" not in short else short
        for name in (short, simple):
            if name in self.structs:
                dtype = self.structs[name]
                return CType(spelling, dtype, 1, dtype.itemsize, natural_alignment(dtype))
            if name in self.aliases and name not in busy:
                inner, _ = self.specifiers(self.aliases[name], busy | {name})
                return inner if inner.pointers else replace(inner, spelling=spelling)
            if name in self.opaque:
                return CType(spelling, opaque=self.opaque[name])
            if name in _BFLOAT16:
                dtype_or_none = bfloat16_dtype()
                if dtype_or_none is None:
                    raise ValueError(f"type {spelling!r} needs the package ml_dtypes: pip install ml_dtypes")
                return CType(spelling, dtype_or_none, 1, 2, 2)
            if name in _TYPES:
                return replace(_TYPES[name], spelling=spelling)
        raise ValueError(
            f"type {spelling!r} is not known; define it in the source with typedef, using or #define, or give its "
            f"layout with Module(structs={{{simple!r}: numpy dtype}})"
        )

    def specifiers(self, tokens: Sequence[Token], busy: frozenset[str] = frozenset()) -> tuple[CType, list[Token]]:
        """Read the type at the head of a declaration; return it, pointers included, and what follows.

        Raises ValueError.
        """
        tokens = without_attributes(tokens)
        words: list[Token] = []
        elaborated = ""
        const = False
        i = 0
        while i < len(tokens):
            token = tokens[i]
            text = token.text
            if text in ("const", "__const"):
                const = True
                i += 1
            elif text in IGNORED_WORDS:
                i += 1
                if text == "extern" and i < len(tokens) and tokens[i].kind == "string":
                    i += 1
            elif text in ("struct", "class", "union", "enum") and not words:
                elaborated = text
                i += 1
            elif token.kind == "name" and text in BUILTIN_WORDS and all(w.text in BUILTIN_WORDS for w in words):
                words.append(token)
                i += 1
            elif (token.kind == "name" or text == "::") and not words:
                words.append(token)
                i += 1
                while i < len(tokens):
                    if tokens[i].text == "::" or (tokens[i].kind == "name" and words[-1].text == "::"):
                        words.append(tokens[i])
                        i += 1
                    elif tokens[i].text == "<":
                        closed = closing_angle(tokens, i)
                        if closed == len(tokens):
                            raise ValueError("a template argument list is not closed")
                        words += tokens[i : closed + 1]
                        i = closed + 1
                    else:
                        break
            else:
                break
        if not words:
            raise ValueError("no type stands there")
        # Template arguments may be names that stand for other types: complex<T>.
        words = [
            part
            for n, w in enumerate(words)
            for part in (self.aliases[w.text] if n and w.text in self.aliases and words[n - 1].text != "::" else [w])
        ]
        try:
            base = self.named_type(words, busy)
        except ValueError:
            if not elaborated:
                raise
            base = CType(spell(words), opaque="enum" if elaborated == "enum" else "struct")
        if base.pointers == 0:
            base = replace(base, const=base.const or const)
        pointers = base.pointers
        while i < len(tokens) and (tokens[i].text == "*" or tokens[i].text in IGNORED_WORDS or tokens[i].text == "const"):
            pointers += tokens[i].text == "*"
            i += 1
        return replace(base, pointers=pointers), list(tokens[i:])

    def declarators(self, tokens: Sequence[Token]) -> list[Declarator]:
        """Read ``type a, *b[4] = {...}``; raises ValueError."""
        base, rest = self.specifiers(tokens)
        found = []
        for n, part in enumerate(split_commas(rest)):
            kind = base if n == 0 else replace(base, pointers=0)
            found.append(self._declarator(kind, part))
        return found or [Declarator(base, "")]

    def _declarator(self, kind: CType, tokens: list[Token]) -> Declarator:
        initializer: list[Token] = []
        for n, token in enumerate(tokens):
            if token.text == "=" or token.text == "{":
                initializer = tokens[n + 1 :] if token.text == "=" else tokens[n:]
                tokens = tokens[:n]
                break
            if token.text == ":":  # a bit field
                tokens = tokens[:n]
                break
        pointers, name, reference = kind.pointers, "", False
        bounds: list[tuple[Token, ...]] = []
        i = 0
        while i < len(tokens):
            text = tokens[i].text
            if text == "*":
                pointers += 1
            elif text in ("&", "&&"):
                reference = True
            elif text == "...":
                raise ValueError("parameter packs are not supported; write the parameters out")
            elif text == "[":
                end = closing_index(tokens, i)
                bounds.append(tuple(tokens[i + 1 : end]))
                i = end
            elif text == "(":
                end = closing_index(tokens, i)
                inside = tokens[i + 1 : end]
                if name or (end + 1 < len(tokens) and tokens[end + 1].text == "("):
                    raise ValueError("functions and pointers to functions cannot be kernel parameters")
                nested = self._declarator(replace(kind, pointers=0), list(inside))
                name = nested.name
                pointers += nested.type.pointers
                reference = reference or nested.reference
                if nested.type.pointers:  # T (*p)[4]: the bound belongs to what p points at
                    return Declarator(replace(kind, pointers=pointers), name, nested.bounds, reference)
                bounds += nested.bounds
                i = end
            elif tokens[i].kind == "name" and text != "const" and text not in IGNORED_WORDS:
                if name:
                    raise ValueError(f"{text!r} is not understood after {name!r}")
                name = text
            elif text != "const" and text not in IGNORED_WORDS:
                raise ValueError(f"{text!r} is not understood")
            i += 1
        return Declarator(replace(kind, pointers=pointers), name, tuple(bounds), reference, tuple(initializer))


def _builtin_name(words: Sequence[str]) -> str:
    counted = sorted(words)
    if "_Bool" in counted:
        return "bool"
    if "__int64" in counted:
        counted = [w for w in counted if w != "__int64"] + ["long", "long"]
    unsigned = "unsigned" in counted
    for base in ("void", "bool", "float", "double"):
        if base in counted:
            if base == "double" and "long" in counted:
                raise ValueError("type 'long double' has no meaning on a device; use double")
            return base
    if "char" in counted:
        return "unsigned char" if unsigned else "signed char" if "signed" in counted else "char"
    if "short" in counted:
        size = "short"
    else:
        size = {0: "int", 1: "long", 2: "long long"}.get(counted.count("long"), "int")
    return f"unsigned {size}" if unsigned else size


@dataclass(frozen=True, slots=True)
class KernelDeclaration:
    """A `__global__` function as it stands in the source."""

    name: str
    parameters: tuple[Token, ...]
    body: tuple[Token, ...]
    defined: bool
    line: int
    templates: tuple[TemplateParameter, ...] | None
    bounds: tuple[Token, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SymbolDeclaration:
    """A `__device__`, `__constant__` or `__managed__` variable as it stands in the source."""

    name: str
    tokens: tuple[Token, ...]
    space: str
    line: int


VARIABLE_SPACES: Final = frozenset({"__constant__", "__device__", "__managed__"})


@dataclass(slots=True)
class Item:
    """One declaration at namespace scope.

    Attributes
    ----------
    kind : str
        ``kernel``, ``function``, ``variable``, ``record``, ``typedef``, ``using``, ``instantiation`` (of a template),
        or ``open`` and ``close``: the two ends of ``extern "C" { }``; namespaces are passed through, see `space`.
    tokens : list of Token
        All of it, from ``template`` or the first specifier to the brace or semicolon that ends it.
    head : list of Token
        From after the template parameters to before the body.
    body : list of Token or None
        Between the braces.
    trailing : list of Token
        Between a record's brace and its semicolon.
    templates : tuple of TemplateParameter or None
        None where it is no template.
    record : str
        ``struct``, ``class``, ``union``, ``enum``.
    space : str
        Namespaces around it: ``"a::b::"``.
    """

    kind: str
    tokens: list[Token]
    space: str
    head: list[Token] = field(default_factory=list)
    body: list[Token] | None = None
    trailing: list[Token] = field(default_factory=list)
    templates: tuple[TemplateParameter, ...] | None = None
    record: str = ""


def _balanced(tokens: Sequence[Token], i: int, where: str) -> int:
    end = closing_index(tokens, i)
    if end == len(tokens):
        raise DeclarationError(f"{where}, line {tokens[i].line}: {tokens[i].text!r} is not closed")
    return end


def _past_semicolon(tokens: Sequence[Token], i: int, where: str) -> int:
    while i < len(tokens) and tokens[i].text != ";":
        i = _balanced(tokens, i, where) if tokens[i].text in OPENING else i
        i += 1
    return min(i + 1, len(tokens))


def scan(tokens: Sequence[Token], where: str) -> Iterator[Item]:
    """Split preprocessed source into its declarations.

    Raises
    ------
    DeclarationError
        If a bracket is not closed; the line is named.
    """
    # Each open brace of a namespace or a linkage: the index that closes it, and the namespaces outside.
    outer: list[tuple[int, str, bool]] = []
    space = ""
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        if outer and i == outer[-1][0]:
            _, space, linkage = outer.pop()
            if linkage:
                yield Item("close", [tokens[i]], space)
            i += 1
        elif text in (";", "}") or (text == "inline" and following == "namespace"):
            i += 1
        elif text == "namespace":
            j = i + 1
            names = []
            while j < len(tokens) and tokens[j].text not in ("{", ";", "="):
                if tokens[j].kind == "name" and tokens[j].text != "inline":
                    names.append(tokens[j].text)
                j += 1
            if j < len(tokens) and tokens[j].text == "{":
                outer.append((_balanced(tokens, j, where), space, False))
                space += "".join(f"{name}::" for name in names)
                i = j + 1
            else:
                i = _past_semicolon(tokens, j, where)
        elif text == "extern" and i + 2 < len(tokens) and tokens[i + 1].kind == "string" and tokens[i + 2].text == "{":
            outer.append((_balanced(tokens, i + 2, where), space, True))
            yield Item("open", list(tokens[i : i + 3]), space)
            i += 3
        elif text in ("typedef", "using"):
            end = _past_semicolon(tokens, i, where)
            yield Item(text, list(tokens[i:end]), space)
            i = end
        else:
            found = _item(tokens, i, space, where)
            yield found
            i += len(found.tokens)


def _item(tokens: Sequence[Token], start: int, space: str, where: str) -> Item:
    """Read the function, variable or record at `start`."""
    templates: tuple[TemplateParameter, ...] | None = None
    i = start
    while i < len(tokens) and tokens[i].text == "template":
        if i + 1 >= len(tokens) or tokens[i + 1].text != "<":
            return Item("instantiation", list(tokens[start : _past_semicolon(tokens, i, where)]), space)
        end = closing_angle(tokens, i + 1)
        if end == len(tokens):
            raise DeclarationError(f"{where}, line {tokens[i].line}: this template's '<' is not closed")
        templates = (templates or ()) + _template_parameters(list(tokens[i + 2 : end]))
        i = end + 1
    if i < len(tokens) and tokens[i].text == "using":
        return Item("using", list(tokens[start : _past_semicolon(tokens, i, where)]), space, templates=templates)
    # The head reaches to the body, or to the end of the declaration.
    j = i
    assigned = False
    while j < len(tokens) and tokens[j].text not in (";", "{"):
        if tokens[j].text in ("(", "["):
            j = _balanced(tokens, j, where)
        assigned = assigned or tokens[j].text == "="
        j += 1
    head = list(tokens[i:j])
    words = {t.text for t in head}
    body: list[Token] | None = None
    close = j
    if j < len(tokens) and tokens[j].text == "{":
        close = _balanced(tokens, j, where)
        body = list(tokens[j + 1 : close])
    record = next((t.text for t in head if t.text in ("struct", "class", "union", "enum")), "")
    plain = {t.text for t in without_attributes(head)}
    if "__global__" in words:
        kind = "kernel"
    elif record and not assigned and "(" not in plain:
        kind = "record"
    elif "(" in plain and (not assigned or "operator" in words):
        kind = "function"
    else:
        kind = "variable"
    end = min(close + 1, len(tokens)) if kind in ("kernel", "function") else _past_semicolon(tokens, close, where)
    found = Item(kind, list(tokens[start:end]), space, head, body, templates=templates)
    if kind == "record":
        found.record = record
        found.trailing = list(tokens[close + 1 : end - 1]) if body is not None else []
    return found


def _template_parameters(tokens: list[Token]) -> tuple[TemplateParameter, ...]:
    found = []
    for part in split_commas(tokens):
        default: tuple[Token, ...] = ()
        for n, token in enumerate(part):
            if token.text == "=":
                default = tuple(part[n + 1 :])
                part = part[:n]
                break
        is_type = bool(part) and part[0].text in ("typename", "class")
        named = len(part) > 1 and part[-1].kind == "name"
        found.append(TemplateParameter(part[-1].text if named else "", is_type, spell(part), default))
    return tuple(found)


class Declarations:
    """Everything that a translation unit declares and a Module needs to know.

    Parameters
    ----------
    source : str
        HIP C++.
    where : str
        What error messages call it.
    options : sequence of str
        Compiler options; ``-D`` is followed.
    structs : mapping
        Layouts of struct types by name.
    """

    def __init__(
        self, source: str, where: str, options: Sequence[str] = (), structs: Mapping[str, np.dtype[Any]] | None = None
    ) -> None:
        self.where = where
        self.scope = Scope(structs or {})
        self.kernels: dict[str, list[KernelDeclaration]] = {}
        self.symbols: dict[str, SymbolDeclaration] = {}
        tokens = preprocess(tokenize(source, where), option_macros(options), where)
        for item in scan(tokens, where):
            self._read(item)

    def _read(self, item: Item) -> None:
        tokens = item.tokens
        words = {t.text for t in item.head}
        match item.kind:
            case "typedef":
                self._typedef(tokens)
            case "using":
                if len(tokens) > 3 and tokens[2].text == "=":
                    self.scope.aliases[tokens[1].text] = tokens[3:-1] if tokens[-1].text == ";" else tokens[3:]
            case "kernel":
                self._kernel(item)
            case "record":
                self._record(item.head, item.body or [], item.record)
                if item.trailing and words & VARIABLE_SPACES:
                    self._symbols([*item.head, *item.trailing], item.space)
            case "variable" if item.templates is None:
                whole = tokens[:-1] if tokens[-1].text == ";" else tokens
                if words & VARIABLE_SPACES:
                    self._symbols(whole, item.space)
                elif words & {"const", "constexpr"}:
                    self._constants(whole)

    def _typedef(self, tokens: list[Token]) -> None:
        inside = tokens[1:-1]
        record = next((t.text for t in inside if t.text in ("struct", "class", "union", "enum")), "")
        brace = next((n for n, t in enumerate(inside) if t.text == "{"), None)
        if brace is not None:
            close = closing_index(inside, brace)
            self._record(inside[:brace], inside[brace + 1 : close], record)
            for name in (t.text for t in inside[close + 1 :] if t.kind == "name"):
                self.scope.opaque.setdefault(name, "enum" if record == "enum" else "struct")
            return
        names = [n for n, t in enumerate(inside) if t.kind == "name"]
        if names and "(" not in {t.text for t in inside} and "[" not in {t.text for t in inside}:
            last = names[-1]
            if inside[last].text not in BUILTIN_WORDS and inside[last].text != record:
                self.scope.aliases[inside[last].text] = inside[:last]

    def _record(self, head: list[Token], body: list[Token], record: str) -> None:
        plain = without_attributes(head)
        at = next(n for n, t in enumerate(plain) if t.text == record)
        name = next((t.text for t in plain[at + 1 :] if t.kind == "name" and t.text not in ("class", "struct", "final")), "")
        if name:
            self.scope.opaque[name] = "enum" if record == "enum" else "struct"
        if record == "enum":
            previous: list[Token] = []
            for n, part in enumerate(split_commas(body)):
                if not part:
                    continue
                zero = part[0]._replace(kind="number", text="0")
                if len(part) > 2 and part[1].text == "=":
                    value = part[2:]
                elif n == 0:
                    value = [zero]
                else:
                    value = [zero._replace(kind="punct", text="("), *previous, zero._replace(kind="punct", text=")")]
                    value += [zero._replace(kind="punct", text="+"), zero._replace(text="1")]
                self.scope.constants[part[0].text] = value
                previous = [part[0]]

    def _constants(self, tokens: list[Token]) -> None:
        for n, token in enumerate(tokens):
            if token.text in ("=", "{") and n and tokens[n - 1].kind == "name":
                value = tokens[n + 1 :] if token.text == "=" else tokens[n + 1 : closing_index(tokens, n)]
                self.scope.constants[tokens[n - 1].text] = value
                return

    def _kernel(self, item: Item) -> None:
        head, space, templates = item.head, item.space, item.templates
        body, defined = item.body or [], item.body is not None
        bounds: tuple[Token, ...] = ()
        for n, token in enumerate(head):
            if token.text in ("__launch_bounds__", "amdgpu_flat_work_group_size") and n + 1 < len(head):
                parts = split_commas(head[n + 2 : closing_index(head, n + 1)])
                if parts:
                    bounds = tuple(parts[0] if token.text == "__launch_bounds__" else parts[-1])
        plain = without_attributes(head)
        at = next(
            (
                n
                for n, t in enumerate(plain)
                if t.kind == "name"
                and n + 1 < len(plain)
                and (plain[n + 1].text == "(" or (plain[n + 1].text == "<" and templates == ()))
            ),
            None,
        )
        line = head[0].line
        if at is None:
            raise DeclarationError(f"{self.where}, line {line}: '__global__' stands before no function")
        name = space + plain[at].text
        fault = ""
        returned = [t.text for t in plain[:at] if t.kind == "name" and t.text not in IGNORED_WORDS]
        if returned not in (["void"], ["auto"]):
            fault = f"it returns {spell(returned) or 'nothing named'}; a kernel returns void"
        opening = at + 1
        if plain[opening].text == "<":  # template <> void k<float>(...)
            closed = closing_angle(plain, opening)
            name += spell(plain[opening : closed + 1])
            opening = closed + 1
            templates = None
        closed = closing_index(plain, opening)
        parameters = tuple(plain[opening + 1 : closed])
        if [t.text for t in parameters] == ["void"]:
            parameters = ()
        made = KernelDeclaration(name, parameters, tuple(body), defined, line, templates, bounds, fault)
        known = self.kernels.setdefault(name, [])
        same = [n for n, other in enumerate(known) if _types_of(other) == _types_of(made)]
        if not same:
            known.append(made)
        elif defined:
            known[same[0]] = made

    def _symbols(self, tokens: list[Token], space: str) -> None:
        words = [t.text for t in tokens]
        if "extern" in words and "=" not in words:
            return
        kind = next(word for word in ("__constant__", "__managed__", "__device__") if word in words)
        try:
            names = [d.name for d in self.scope.declarators(tokens)]
        except ValueError:
            # The name alone; the type is explained when the symbol is asked for.
            names = [
                t.text
                for n, t in enumerate(tokens)
                if t.kind == "name" and (n + 1 == len(tokens) or tokens[n + 1].text in ("[", "=", "{", ","))
            ][:1]
        for name in names:
            if name:
                self.symbols[space + name] = SymbolDeclaration(space + name, tuple(tokens), kind, tokens[0].line)


def _types_of(kernel: KernelDeclaration) -> list[tuple[str, ...]]:
    """Return the parameters' tokens without names and defaults, to tell a prototype from an overload."""
    out = []
    for part in split_commas(kernel.parameters):
        texts = [t.text for t in part]
        if "=" in texts:
            texts = texts[: texts.index("=")]
        names = [n for n, text in enumerate(texts) if re.match(r"[^\W\d]", text) and text not in IGNORED_WORDS]
        if len(names) > 1 and texts[names[-1]] not in BUILTIN_WORDS and texts[names[-1]] != "const":
            del texts[names[-1]]
        out.append(tuple(text for text in texts if text not in IGNORED_WORDS))
    return out
