"""Text of a C++ program: safe names and strings, exact literals, and statements that fold into loops."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...arrays import Expression, Parameter, is_extra
from ...errors import DeclarationError
from ...export.fold import Repeat

_PERIOD: Final = 64
"""Maximum period to search for in a list of values."""


def comment(text: str) -> list[str]:
    """Return text as comment lines; no character in it can end the comment or continue it (line splice, trigraph)."""
    lines = []
    for line in text.splitlines() or [""]:
        shown = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line).expandtabs(4).rstrip()
        shown = shown.replace("??/", "? ?/").replace("*/", "* /")
        lines.append(f"// {shown}.".rstrip() if shown.endswith("\\") else f"// {shown}".rstrip())
    return lines


def quoted(text: str) -> str:
    """Return text as a C++ string literal."""

    def shown(c: str) -> str:
        if c.isprintable():
            return f"\\{c}" if c in '"\\?' else c
        return "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogatepass"))

    return f'"{"".join(map(shown, text))}"'


KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
        compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield
        decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
        goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
        protected public register reinterpret_cast requires return short signed sizeof static static_assert
        static_cast struct switch template this thread_local throw true try typedef typeid typename union
        unsigned using virtual void volatile wchar_t while xor xor_eq linux unix errno stdin stdout stderr
        assert threadIdx blockIdx blockDim gridDim warpSize half""",
    )
)
"""Reserved words: C++ keywords, and macros and variables of headers that every program includes."""

_LONGEST: Final = 100
"""Maximum length of a name before a disambiguating suffix: file names are derived from array names too."""

_OF_HEADERS: Final = re.compile(r"hip|cuda|cu[A-Z]|\w+_t$")
"""Prefixes or suffixes of names in HIP's, CUDA's and C's headers, which a name of the program must not shadow."""


class Names:
    """Allocates unique C++ names."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.used = set(taken)

    def new(self, wish: str, suffix: str = "") -> str:
        """Return a new name that resembles `wish`; `suffix` is added if that name is taken."""
        plain = unicodedata.normalize("NFKD", wish).encode("ascii", "ignore").decode()
        base = re.sub(r"_+", "_", re.sub(r"\W", "_", plain))[:_LONGEST].strip("_") or "it"
        if base[0].isdigit():
            base = f"n{base}"
        if base in KEYWORDS or (len(base) > 1 and base.isupper()) or _OF_HEADERS.match(base):
            base += "_"
        found = base
        if found in self.used and suffix:
            found = base = f"{base.rstrip('_')}_{suffix}"
        k = 1
        while found in self.used:
            k += 1
            found = f"{base.rstrip('_')}_{k}"
        self.used.add(found)
        return found


CTYPES: Final = {
    ("b", 1): "bool", ("i", 1): "int8_t", ("i", 2): "int16_t", ("i", 4): "int", ("i", 8): "int64_t", ("u", 1): "uint8_t",
    ("u", 2): "uint16_t", ("u", 4): "unsigned", ("u", 8): "uint64_t", ("f", 4): "float", ("f", 8): "double",
    ("c", 8): "std::complex<float>", ("c", 16): "std::complex<double>",
}  # fmt: skip


def _as_bits(dtype: np.dtype[Any]) -> bool:
    """Return whether only device code has such numbers, as a host's C++ has no float16 and none of the types of ml_dtypes."""
    return is_extra(dtype) or (dtype.kind == "f" and dtype.itemsize == 2)


def ctype_of(dtype: np.dtype[Any]) -> str:
    """Return the C++ type of an element; types that only device code has are represented by their bits."""
    if _as_bits(dtype):
        return CTYPES["u", dtype.itemsize]
    return CTYPES.get((dtype.kind, dtype.itemsize)) or f"Bytes<{dtype.itemsize}>"


def _integer(value: int, ctype: str) -> str:
    if ctype == "int":
        return str(value) if value != -(2**31) else "(-2147483647 - 1)"
    if ctype == "unsigned":
        return f"{value}u"
    if ctype == "int64_t":
        text = f"{value}LL" if value != -(2**63) else "(-9223372036854775807LL - 1)"
        return f"{ctype}({value if abs(value) < 2**31 - 1 else text})"
    return f"{ctype}({value}ULL)" if value >= 2**31 else f"{ctype}({value})"


def _floating(value: float, ctype: str) -> str:
    if math.isnan(value):
        dtype = np.dtype(np.float32 if ctype == "float" else np.float64)
        return _from_bits(np.array(value, dtype).tobytes(), dtype)
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}{ctype}(INFINITY)"
    if ctype == "float":
        text = str(np.float32(value))
        return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"
    text = repr(float(value))
    return text if re.search(r"[.e]", text) else f"{text}.0"


def _from_bits(data: bytes, dtype: np.dtype[Any]) -> str:
    """Return a NaN, given by its bytes, as C++: the literal NAN if it has the same bytes."""
    ctype = ctype_of(dtype)
    plain = data == np.array(np.nan, dtype).tobytes()
    return f"{ctype}(NAN)" if plain else f"from_bits<{ctype}>(0x{int.from_bytes(data, 'little'):x})"


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether C++ has a built-in type for such numbers."""
    return dtype.kind in "biuf" and not _as_bits(dtype)


def literal_of(data: bytes, dtype: np.dtype[Any]) -> str:
    """Return one element, given by its bytes, as a bit-exact C++ value of its type."""
    ctype = ctype_of(dtype)
    if ctype.startswith("Bytes"):
        return f"{ctype}{{{{{', '.join(map(str, data))}}}}}"
    if _as_bits(dtype):
        return f"{ctype}(0x{int.from_bytes(data, 'little'):0{2 * len(data)}x})"
    if dtype.kind == "f" and not is_exact(np.frombuffer(data, dtype)):
        return _from_bits(data, dtype)
    value = np.frombuffer(data, dtype)[0].item()
    if dtype.kind == "c":
        part = "float" if dtype.itemsize == 8 else "double"
        return f"{ctype}({_floating(value.real, part)}, {_floating(value.imag, part)})"
    return _argument_literal(value, ctype)


def is_exact(values: np.ndarray[Any, Any]) -> bool:
    """Return whether literals represent every value bit-exactly: sign and payload of a NaN cannot be written as a literal."""
    if values.dtype.kind not in "fc" or _as_bits(values.dtype):
        return True
    parts = values.reshape(-1).view(f"f{values.dtype.itemsize // (2 if values.dtype.kind == 'c' else 1)}")
    nans = parts[np.isnan(parts)]
    return bool(nans.tobytes() == np.full(nans.shape, np.nan, nans.dtype).tobytes())


@dataclass(frozen=True, slots=True)
class Hole:
    """A part that may differ between otherwise equal steps.

    The kind "int" is a plain number, "offset" a number of elements added to a pointer, "value" an argument, and "label" the
    numbers in a node's name. `blocks` fills holes of other kinds before loops are formed.
    """

    kind: str
    value: Any
    form: str = ""  # the type of an argument, or the format of a name
    hint: str = ""  # name for a table of its values


Piece = str | Hole


def joined(parts: Iterable[Sequence[Piece]], between: str = ", ") -> list[Piece]:
    """Join several texts with `between`, by default a comma."""
    pieces: list[Piece] = []
    for k, part in enumerate(parts):
        pieces += [between, *part] if k else part
    return pieces


DECLARED: Final = "\1"
"""Placeholder for the type of a variable, before its name, if it is declared there."""


@dataclass(slots=True)
class Statement:
    """The text of one step."""

    pieces: list[Piece]
    title: str  # the step's name

    @property
    def template(self) -> str:
        """The text with placeholders for holes; statements with equal templates may become one loop."""
        return "".join(p if isinstance(p, str) else f"\0{p.kind}\0{p.form}\0" for p in self.pieces)

    @property
    def holes(self) -> list[Hole]:
        """The parts that may differ."""
        return [p for p in self.pieces if not isinstance(p, str)]

    def plain(self) -> str:
        """Return the statement with its holes filled with their own values."""
        return "".join(p if isinstance(p, str) else _plain(p) for p in self.pieces)


def _plain(hole: Hole) -> str:
    if hole.kind == "int":
        return str(hole.value)
    if hole.kind == "offset":
        return f" + {hole.value}" if hole.value else ""
    if hole.kind == "value":
        return _argument_literal(hole.value, hole.form)
    return quoted(hole.form % hole.value)


def _argument_literal(value: Any, ctype: str) -> str:
    if ctype == "bool":
        return "true" if value else "false"
    return _floating(value, ctype) if ctype in ("float", "double") else _integer(int(value), ctype)


def _term(values: Sequence[int], first: int) -> str | None:
    """Return an expression in the counter ``n``, starting at `first`, that yields these values; None if there is no short one.

    No part of it overflows ``long``, the counter's type.
    """
    start, count = values[0], len(values)
    step = values[1] - start
    if all(value == start + k * step for k, value in enumerate(values)):
        constant = start - step * first
        return _linear("n", step, constant) if _fit_long(step * (first + count), constant) else None
    for period in range(2, min(_PERIOD, count // 2) + 1):
        if values[period] != start or any(values[k] != values[k + period] for k in range(count - period)):
            continue
        cycle = values[:period]
        low = min(cycle)
        step = min((abs(a - b) for a, b in itertools.pairwise(sorted(cycle))), default=0)
        shift = (start - low) // step if step else 0
        if step and _fit_long(step * period, low) and all(cycle[k] == low + step * ((k + shift) % period) for k in range(period)):
            inside = _linear("n", 1, (shift - first) % period)
            return _linear(f"({inside}) % {period}" if " " in inside else f"n % {period}", step, low, group=True)
        return None
    return None


def _fit_long(*numbers: int) -> bool:
    return all(abs(number) < 2**62 for number in numbers)


def _linear(name: str, factor: int, constant: int, group: bool = False) -> str:
    """Return ``factor * name + constant`` as C++; with `group`, the name is put in parentheses where the operators need it."""
    if factor == 0:
        return str(constant)
    grouped = f"({name})" if group and (constant or abs(factor) != 1) else name
    product = grouped if abs(factor) == 1 else f"{abs(factor)} * {grouped}"
    if factor > 0:
        return product if not constant else f"{product} {'+' if constant > 0 else '-'} {abs(constant)}"
    return f"{constant} - {product}" if constant else f"-{product}"


def by_number(statements: list[Statement], repeat: Repeat) -> tuple[int, int]:
    """Return start and count of the repetitions, shifted so that all nodes of each have the same number if possible."""

    def numbers(start: int) -> list[tuple[int, ...]]:
        row = statements[start : start + repeat.period]
        return [h.value for s in row for h in s.holes[:3] if h.kind == "label"]

    for shift in range(min(repeat.period, _PERIOD) if repeat.count > 3 else 0):
        if len(set(numbers(repeat.start + shift))) == 1:
            return repeat.start + shift, repeat.count - (shift > 0)
    return repeat.start, repeat.count


class Loop:
    """Repetitions of a stretch of statements as a loop."""

    def __init__(self, rows: list[list[Statement]], names: Names) -> None:
        self.rows = rows
        self.names = names
        self.first = self._first()
        self.tables: list[str] = []
        self.known: dict[tuple[str, tuple[str, ...]], str] = {}

    def _first(self) -> int:
        """Return the counter's start: the number in the first node's name if it increments, so that the two agree; else 0."""
        for a, b in zip(self.rows[0][0].holes, self.rows[1][0].holes):
            if a.kind == "label":
                for before, after in zip(a.value, b.value):
                    if after == before + 1:
                        return int(before)
        return 0

    def text(self) -> list[str]:
        """Return the loop; afterwards, `tables` holds the declarations that must precede it."""
        body: list[str] = []
        for j, statement in enumerate(self.rows[0]):
            columns = list(zip(*(row[j].holes for row in self.rows)))
            filled = iter([self._filled(column) for column in columns])
            body += "".join(p if isinstance(p, str) else next(filled) for p in statement.pieces).split("\n")
        first, last = self.rows[0], self.rows[-1]
        what = f"{first[0].title} to {last[-1].title}" if len(first) > 1 else f"{first[0].title} ... {last[0].title}"
        stop = self.first + len(self.rows)
        return [
            *comment(f"{len(self.rows)} times {len(first)} node{'s' * (len(first) > 1)}: {what}"),
            f"for (long n = {self.first}; n < {stop}; ++n) {{",
            *(f"  {line}" if line else "" for line in body),
            "}",
        ]

    def _filled(self, column: tuple[Hole, ...]) -> str:
        """Return the content of a hole: the common text of all repetitions, an expression in the counter, or a table entry."""
        texts = tuple(map(_plain, column))
        if len(set(texts)) == 1:
            return texts[0]
        hole, values = column[0], [hole.value for hole in column]
        if hole.kind == "label":
            terms = [self._whole(numbers, "number") for numbers in zip(*values)]
            return f"label({quoted(hole.form)}, {', '.join(terms)})"
        if hole.kind == "value":
            term = None if hole.form in ("float", "double") else _term([int(value) for value in values], self.first)
            return self._table(texts, hole.form, hole.hint) if term is None else f"{hole.form}({term})"
        text = self._whole(values, hole.hint)
        return f" + {text}" if hole.kind == "offset" else text

    def _whole(self, values: Sequence[int], hint: str) -> str:
        return _term(values, self.first) or self._table(tuple(map(str, values)), "long", hint)

    def _table(self, entries: tuple[str, ...], ctype: str, hint: str) -> str:
        """Return an access to a table of the entries; a short cycle is stored once."""
        shortest = min(_PERIOD, len(entries) // 2)
        period = next((p for p in range(1, shortest + 1) if entries[p:] == entries[:-p]), len(entries))
        kept = entries[:period]
        name = self.known.get((ctype, kept))
        if name is None:
            name = self.known[ctype, kept] = self.names.new(hint or "value")
            self.tables.append(f"static const {ctype} {name}[] = {{")
            plain = [re.sub(rf"^{ctype}\((.*)\)$", r"\1", entry) for entry in kept]
            self.tables += textwrap.wrap(", ".join(plain), 112, initial_indent="    ", subsequent_indent="    ")
            self.tables[-1] += "};"
        index = _linear("n", 1, -self.first)
        if period < len(entries):
            index = f"({index}) % {period}" if " " in index else f"{index} % {period}"
        return f"{name}[{index}]"


_DIGITS: Final = re.compile(r"[0-9]{1,9}")


class Numbering:
    """Formats of names that differ only in numbers: ``"step_7"`` is ``"step_%ld"`` with 7.

    A number with leading zeros in one of several such names is zero-padded in all: ``"step_07"`` and ``"step_10"`` are
    both ``"step_%02ld"``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._widths: dict[str, list[int]] = {}
        """Name without its numbers -> the width of each number that has leading zeros, 0 for the others."""
        for name in names:
            digits = _DIGITS.findall(name)
            widths = [len(number) if len(number) > 1 and number[0] == "0" else 0 for number in digits]
            stem = _DIGITS.sub("0", name)
            self._widths[stem] = list(map(max, widths, self._widths.get(stem, widths)))

    def of(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the format of a name, for ``printf`` and Python, and its numbers; no numbers if no format reproduces it."""
        numbers = tuple(map(int, _DIGITS.findall(name)))
        texts = _DIGITS.split(name.replace("%", "%%"))
        unpadded = [0] * len(numbers)
        for widths in (self._widths.get(_DIGITS.sub("0", name), unpadded), unpadded):
            places = [f"%0{width}ld" if width else "%ld" for width in widths]
            form = "".join(map("".join, itertools.zip_longest(texts, places, fillvalue="")))
            if form % numbers == name:
                return form, numbers
        return name.replace("%", "%%"), ()


def section(title: str) -> list[str]:
    """Return the heading of a section."""
    return ["", f"// ---- {title} {'-' * (112 - len(title))}", ""]


_STRINGS: Final = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def wrapped(line: str, width: int = 116) -> list[str]:
    """Break a long line after commas outside strings and comments."""
    if len(line) <= width or line.lstrip().startswith("//"):
        return [line]
    hidden = _STRINGS.sub(lambda m: "x" * len(m.group()), line)
    depths = list(itertools.accumulate((c in "([{") - (c in ")]}") for c in hidden))
    commas = [(k, depths[k]) for k in range(len(hidden)) if hidden.startswith(", ", k)]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    out, at = [], 0
    while len(line) - at + (len(indent) if at else 0) > width:
        room = at + width - (len(indent) if at else 0)
        fits = [(depth, -k) for k, depth in commas if at < k < room]
        if not fits:
            break
        cut = -min(fits)[1]
        out.append((indent if at else "") + line[at : cut + 1])
        at = cut + 2
    return [*out, (indent if at else "") + line[at:]]


def function_text(head: str, body: list[str], returned: str = "hipGraph_t") -> list[str]:
    """Return the text of a function of the program."""
    return [f"static {returned} {head} {{", *(f"  {line}" if line else "" for line in body), "}", ""]


def without_double_blanks(lines: Iterable[str]) -> list[str]:
    """Return lines with runs of blank lines reduced to one, and none at the end."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def sized(nbytes: int, dtype: np.dtype[Any]) -> str:
    """Return a number of bytes as C++: as element count times element size if it is a multiple."""
    count, rest = divmod(nbytes, dtype.itemsize)
    return f"{count} * sizeof({ctype_of(dtype)})" if count > 1 and dtype.itemsize > 1 and not rest else str(nbytes)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return a human-readable name of a dtype."""
    return dtype.name if dtype.names is None else f"struct of {dtype.itemsize} bytes"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape in Python notation without spaces."""
    return str(shape).replace(" ", "")


# -- expressions of parameters ---------------------------------------------------------------------------------------------


def arithmetic_text(expression: Expression, text_of: Callable[[Parameter], str]) -> str:
    """Return an expression as C++ of type long long; `text_of` returns a parameter's."""
    for part in (expression, *expression.operands):
        low, high = part.bounds if isinstance(part, Parameter) else (part, part)
        if low <= -(2**63) or high >= 2**63:
            raise DeclarationError(
                f"expression {expression.name}: {getattr(part, 'name', part)} can be {low} to {high}, and a program computes with"
                " 64 bits; give its parameters bounds by g.param(..., min=, max=)",
                array=expression.terms[0].name,
            )

    def text(operand: int | Parameter) -> str:
        if isinstance(operand, Expression):
            return arithmetic_text(operand, text_of)
        return f"(long long){text_of(operand)}" if isinstance(operand, Parameter) else f"{operand}LL"

    operands = [text(operand) for operand in expression.operands]
    function = _FUNCTIONS.get(expression.op)
    if function is not None:
        return f"{function}({', '.join(operands)})"
    return f"(-{operands[0]})" if len(operands) == 1 else f"({operands[0]} {expression.op} {operands[1]})"


_FUNCTIONS: Final = {
    "//": "floor_div",
    "%": "floor_mod",
    "ceil_div": "ceil_div",
    "minimum": "std::min<long long>",
    "maximum": "std::max<long long>",
}


def narrowed(text: str, parameter: Parameter, ctype: str, least: int | None = None) -> str:
    """Return the C++ text of a parameter as a value of a type; an expression's is checked when the program runs."""
    if not isinstance(parameter, Expression):
        return text
    limit = f", {least}" if least is not None else ""
    return f"narrowed<{ctype}>({text}, {quoted(parameter.name)}{limit})"
