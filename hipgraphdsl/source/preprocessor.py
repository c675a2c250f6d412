"""Conditionals: which lines of a source are compiled.

Not every macro that compilers define is known when a module is declared, so a condition may be undecided. `Conditionals` then
reads every branch and marks the tokens with a `Doubt`; the declarations decide whether anything depends on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ..errors import DeclarationError
from .constants import Undecided, evaluate_condition
from .macros import Budget, Macro, MacroTable, expand_macros, parse_define, strip_comments
from .tokens import Doubt, Token, tokenize
from .types import Value

_LIMITS: Final = {
    "CHAR_BIT": 8, "SCHAR_MIN": -128, "SCHAR_MAX": 127, "UCHAR_MAX": 255, "CHAR_MIN": -128, "CHAR_MAX": 127,
    "SHRT_MIN": -(2**15), "SHRT_MAX": 2**15 - 1, "USHRT_MAX": 2**16 - 1, "INT_MIN": -(2**31), "INT_MAX": 2**31 - 1,
    "LONG_MIN": -(2**63), "LONG_MAX": 2**63 - 1, "LLONG_MIN": -(2**63), "LLONG_MAX": 2**63 - 1, "SIZE_MAX": 2**64 - 1,
    "UINT_MAX": 2**32 - 1, "ULONG_MAX": 2**64 - 1, "ULLONG_MAX": 2**64 - 1,
    "INTPTR_MAX": 2**63 - 1, "UINTPTR_MAX": 2**64 - 1, "PTRDIFF_MAX": 2**63 - 1, "INTMAX_MAX": 2**63 - 1,
    **{f"INT{n}_MAX": 2 ** (n - 1) - 1 for n in (8, 16, 32, 64)}, **{f"INT{n}_MIN": -(2 ** (n - 1)) for n in (8, 16, 32, 64)},
    **{f"UINT{n}_MAX": 2**n - 1 for n in (8, 16, 32, 64)},
}  # fmt: skip
_COMPILERS: Final = {
    "__CHAR_BIT__": 8, "__SCHAR_MAX__": 127, "__SHRT_MAX__": 2**15 - 1, "__INT_MAX__": 2**31 - 1, "__LONG_MAX__": 2**63 - 1,
    "__LONG_LONG_MAX__": 2**63 - 1, "__SIZEOF_SHORT__": 2, "__SIZEOF_INT__": 4, "__SIZEOF_LONG__": 8,
    "__SIZEOF_LONG_LONG__": 8, "__SIZEOF_FLOAT__": 4, "__SIZEOF_DOUBLE__": 8, "__SIZEOF_POINTER__": 8, "__SIZEOF_SIZE_T__": 8,
}  # fmt: skip
#: Names that headers of C, HIP, CUDA or the CPU runtime may define.
_OF_HEADERS: Final = re.compile(
    r"(HIP|CUDA|CUDART)_VERSION\w*|(FLT|DBL|LDBL|DECIMAL|FP|MATH|HIPRT|CUDART)_\w+|M_\w+|NULL|NAN|INFINITY|HUGE_VAL\w*|HGCPU_CPU"
    r"|(U?INT(\d+|_LEAST\d+|_FAST\d+|MAX|PTR)|PTRDIFF|SIZE|WCHAR|WINT|SIG_ATOMIC)_\w+|assert|offsetof|EOF|RAND_MAX|linux|unix"
)
_LONGEST: Final = 2**16  # characters of a condition; C++ recommends this minimum for a logical source line
_HINT: Final = " (options=['-D...'] may say what holds)"
_RESERVED: Final = re.compile(r"_[_A-Z].*")


@dataclass(slots=True)
class _Branch:
    """An open `#if`: whether its lines are read now, whether a branch was taken, and the state of an undecided one."""

    reading: bool
    taken: bool
    doubt: Doubt | None = None
    outside: Doubt | None = None
    journal: dict[str, Macro | None] | None = None
    ends: list[dict[str, Macro | None]] = field(default_factory=list)
    whole: bool = False  # whether it has an #else


class Conditionals:
    """Processes `#if`, `#define` and `#undef` of a source; `macros` is updated after each line."""

    def __init__(self, macros: MacroTable, where: str, budget: Budget) -> None:
        self.macros = macros
        self.where = where
        self.budget = budget
        self.doubt: Doubt | None = None
        self.headers = False  # whether a system header was included
        self.unread = False  # whether a header was included that cannot be read
        self._open: list[_Branch] = []
        self._numbered = 0

    @property
    def reading(self) -> bool:
        """Whether the following lines are, or may be, compiled."""
        return not self._open or self._open[-1].reading  # a branch nested in a skipped one is never read

    @property
    def doubtful(self) -> bool:
        """Whether the innermost conditional is undecided."""
        return bool(self._open) and self._open[-1].doubt is not None

    @property
    def depth(self) -> int:
        """The number of open conditionals."""
        return len(self._open)

    def alternative(self, depth: int) -> bool:
        """Return whether a branch that may be compiled comes before this one, in a conditional inside of `depth` others."""
        return any(branch.ends for branch in self._open[depth:])

    def directive(self, text: str, line: int = 0, guard: str = "") -> str:
        """Process one preprocessor line; return its directive, such as ``if`` or ``define``; empty for a null directive.

        `guard` is the name of an include guard that begins here: only the header itself defines it.
        """
        match = re.match(r"#\s*(\w+)\s*(.*)", strip_comments(text), re.DOTALL)
        if match is None:
            return ""
        word, rest = match.groups()
        if word in ("if", "ifdef", "ifndef"):
            outside = self.reading
            self._open.append(_Branch(reading=False, taken=not outside, outside=self.doubt))
            if outside:
                self._branch(True if guard and guard not in self.macros else self._holds(word, rest, line), text, line)
        elif word in ("elif", "elifdef", "elifndef", "else") and self._open:
            self._leave_branch()
            branch = self._open[-1]
            branch.whole = branch.whole or word == "else"
            if not branch.taken:
                self._branch(True if word == "else" else self._holds(word[2:], rest, line), text, line)
        elif word == "endif" and self._open:
            self._leave_branch()
            self._merge(self._open.pop())
        elif word == "define" and self.reading:
            defined = parse_define(text)
            if defined is not None:
                self.macros[defined[0]] = defined[1]
        elif word == "undef" and self.reading:
            self.macros.set(rest.strip(), None)
        return word

    def _branch(self, holds: bool | str, text: str, line: int) -> None:
        """Begin a branch; if its condition is undecided, `holds` is the reason."""
        branch = self._open[-1]
        if isinstance(holds, bool):
            branch.reading, branch.taken = holds, holds
            if branch.doubt is None:
                return
            holds = branch.doubt.reason
            if not branch.reading:
                return
        else:
            written = " ".join(strip_comments(text).split())
            holds = f"line {line}: {written if len(written) <= 80 else written[:77] + '...'!r} depends on {holds}"
            hint = "" if holds.endswith(_HINT) else _HINT  # the reason may be that of another condition
            holds = branch.doubt.reason if branch.doubt else f"{holds}{hint}"
            branch.reading = True
        self._numbered += 1
        self.doubt = branch.doubt = Doubt(holds, self._numbered)
        branch.journal, self.macros.journal = self.macros.journal, {}

    def _leave_branch(self) -> None:
        """End a branch: restore the macros from before it, and keep their definitions at its end for `_merge`."""
        branch = self._open[-1]
        if branch.reading and branch.doubt is not None:
            macros = self.macros
            before, macros.journal = macros.journal or {}, branch.journal
            branch.ends.append({name: macros.get(name) for name in before})
            for name, macro in before.items():
                macros.set(name, macro)
        self.doubt = branch.outside
        branch.reading = False

    def _merge(self, branch: _Branch) -> None:
        """Set macros that an undecided conditional changes to their common definition, or mark them as doubtful."""
        if branch.doubt is None:
            return
        ends = branch.ends if branch.whole or branch.taken else [*branch.ends, {}]
        doubt = Doubt(branch.doubt.reason, 0)
        for name in dict.fromkeys(name for end in ends for name in end):
            found = [end.get(name, self.macros.get(name)) if name in end else self.macros.get(name) for end in ends]
            defined = [macro for macro in found if macro is not None]
            self.budget.read(sum(len(macro.text) for macro in defined) // 2, self.where)
            if not defined:
                self.macros.set(name, None)
            elif len(defined) == len(found) and all(macro.reads_as(defined[0]) for macro in defined[1:]):
                self.macros.set(name, defined[0])
            else:
                first = defined[0]
                self.macros.set(name, Macro(first.text, first.parameters, first.variadic, first.doubt or doubt))

    # -- conditions ------------------------------------------------------------------------------------------------

    def _holds(self, word: str, rest: str, line: int) -> bool | str:
        if word in ("ifdef", "ifndef"):
            known = self._defined(rest.split(None, 1)[0] if rest else "")
            return known if isinstance(known, str) else known == (word == "ifdef")
        try:
            return evaluate_condition(self._resolved(rest, line), lambda name: self._value(name, line))
        except Undecided as error:
            return f"{error}, which only the compiler knows"
        except DeclarationError:
            raise
        except ValueError as error:
            return f"what is not understood ({error})"

    def _resolved(self, text: str, line: int) -> list[Token]:
        """Return the tokens of a condition, with macros expanded and `defined` evaluated."""
        where = f"{self.where}, line {line}"
        if len(text) > _LONGEST:
            raise DeclarationError(f"{where}: a condition has {len(text)} characters, at most {_LONGEST} are read; use macros")
        words = tokenize(text, where)
        self.budget.read(2 * len(words), where)  # twice, because each token is evaluated too
        resolved: list[Token] = []
        i = 0
        while i < len(words):
            if words[i].text == "defined":
                bracket = i + 1 < len(words) and words[i + 1].text == "("
                at = i + 2 if bracket else i + 1
                known = self._defined(words[at].text if at < len(words) else "")
                answer = ("name", f"defined {words[at].text}") if isinstance(known, str) else ("number", str(int(known)))
                resolved.append(words[i]._replace(kind=answer[0], text=answer[1]))
                i = at + (2 if bracket else 1)
            else:
                resolved.append(words[i])
                i += 1
        return [
            t._replace(kind="name", text=f"macro {t.text}") if t.doubt is not None else t
            for t in expand_macros(resolved, self.macros.get, self.budget)
        ]

    def _defined(self, name: str) -> bool | str:
        """Return whether a macro is defined, or the reason why that is undecided."""
        macro = self.macros.get(name)
        if macro is not None:
            return True if macro.doubt is None else macro.doubt.reason
        if self._value(name, 0) is None:
            return f"{name!r}, which only the compiler knows"
        return name in _LIMITS or name in _COMPILERS

    def _value(self, name: str, line: int) -> Value | int | None:
        """Return the value of a name that is not a macro: 0, or None if a header or the compiler may define it."""
        if name == "__LINE__" and line:
            return line
        if " " in name or name.startswith("__has_") or name in ("__LINE__", "__COUNTER__", "__FILE__", "__DATE__", "__TIME__"):
            return None
        if name in _LIMITS:
            number = _LIMITS[name]
            return Value(number, 64, name[0] in "US" and number >= 2**32 - 1) if self.headers else None
        if name in _COMPILERS:
            return _COMPILERS[name]
        return None if self.unread or _RESERVED.match(name) or _OF_HEADERS.fullmatch(name) else 0
