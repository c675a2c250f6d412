"""Turn preprocessed kernel source into C++ that a host compiler accepts.

Interpreting C++ is left to the compiler. This module reads only words that the language or HIP reserves and the brackets
around them, in text without macros, comments and conditionals:

- ``__global__``, ``__shared__`` and ``__noinline__``, which device.h does not define as macros: ``__shared__`` becomes a
  thread-local static (each worker runs one block at a time), ``extern __shared__`` the block's dynamic shared memory;
- if warp operations without a mask are used, functions, statements and loops that may lead to one are numbered, so that the
  runtime can tell which lanes are at the same point of the program (see docs/cpu_kernels.md).

Insertions add no lines, so the compiler's messages have the user's own line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ...errors import DeclarationError
from ...source import OPENING, Token, closing_angle
from ...source.declarations import Item, name_at, parameters_at, qualified_at, record_name, scan
from ...source.tokens import without_attributes
from ...source.unit import without_digraphs
from .tokens import closings, place_behind, read_tokens

_MASKLESS: Final = frozenset(
    f"__{name}" for name in ("shfl", "shfl_up", "shfl_down", "shfl_xor", "ballot", "any", "all", "match_any", "activemask")
)
_REDUCTIONS: Final = frozenset(f"__reduce_{what}_sync" for what in ("add", "min", "max", "and", "or", "xor"))
_MASKED: Final = frozenset({*(f"{name}_sync" for name in _MASKLESS if name != "__activemask"), "__syncwarp"}) | _REDUCTIONS
_OPERATIONS: Final = _MASKLESS | _MASKED
_BARRIER: Final = "__syncthreads"
_WAITS: Final = _OPERATIONS | {_BARRIER, "__syncthreads_count", "__syncthreads_or", "__syncthreads_and"}
_CLASS_KEYS: Final = frozenset({"struct", "class", "union"})
_ATTRIBUTES: Final = frozenset({"__attribute__", "__attribute", "alignas", "_Alignas", "decltype", "noexcept", "__declspec"})
_GUARD_BYTES: Final = 512
_SHORT_NAMES: Final = (
    ("uchar", "unsigned char"), ("ushort", "unsigned short"), ("uint", "unsigned int"), ("ulong", "unsigned long"),
    ("clock_t", "long"), ("time_t", "long"),
)  # fmt: skip
"""Types that device compilers know without a header, as the system's headers define them."""
_OWN: Final = "hgcpu_own_"  # prefix of a kernel whose name functions may have too
_NOT_CALLED: Final = _ATTRIBUTES | set(
    """if for while switch return sizeof alignof catch static_assert int float double char bool short long unsigned signed
    void auto const_cast static_cast reinterpret_cast dynamic_cast new delete operator else do case and or not""".split()  # noqa: SIM905
)


@dataclass(slots=True)
class _Unit:
    """A function with its body: token indices of its head, and of the braces."""

    name: str
    at: int  # token index of its name
    space: str
    head: tuple[int, int]
    body: tuple[int, int]
    owner: str = ""  # the class that it is a member of
    callee: bool = False  # operator, constructor, destructor: called without being named


@dataclass(slots=True)
class Woven:
    """Result of `weave`: `text` is C++ with line markers.

    Threads of the kernels `synced` wait only in their own bodies and in functions that can be inlined; ``/*hgcpu_split_k*/``
    follows the k-th of them in the text. `marked` is the text without the numbers for warp operations, in which the name of the
    k-th kernel has the prefix ``hgcpu_synced_k_``, and the names of such functions have the prefix ``hgcpu_synced_f_``.
    """

    text: str
    kernels: dict[str, str]  # qualified name of each kernel with a body -> its name in `text`
    dynamic: bool  # dynamic shared memory is declared
    prints: bool  # printf is mentioned
    calm: set[str]  # kernels whose threads never wait
    synced: list[str]
    leading: set[str]  # names that wait, besides ``__syncthreads()``: warp operations and functions
    broken: bool  # its declarations cannot be parsed, e.g. after an unclosed bracket: the compiler reports where
    marked: str = ""


def weave(text: str, *, guards: bool = False) -> Woven:
    """Insert the code that the CPU runtime needs into preprocessed kernel source.

    With `guards`, insert unused bytes between shared variables, which the sanitizer needs.

    Raises
    ------
    DeclarationError
        If the lanes that take part in a warp operation cannot be determined, or a declaration of dynamic shared memory is not
        that of one array; the message has the file and the line.
    """
    return _Weaver(without_digraphs(text), guards).run()


class _Weaver:
    def __init__(self, text: str, guards: bool) -> None:
        self.text = text
        self.guards = guards
        self.tokens = read_tokens(text)
        self.edits: list[tuple[int, int, int, str]] = []
        self.units: list[_Unit] = []
        self.classes: set[str] = set()
        self.place = {token.start: n for n, token in enumerate(self.tokens)}
        self.closing = closings(self.tokens)
        self.leading: set[str] = set()  # names that may lead to a warp operation
        self.variables: set[str] = set()  # those of them that hold functions; they count only where they are called
        self.number = 0
        self.extents: dict[int, int] = {}
        self.dynamic = False
        self.broken = False
        self.plain_kernels: list[int] = []  # token indices of the names of non-template kernels

    def run(self) -> Woven:
        tokens = self.tokens
        self.scope(0, len(tokens), "", "")
        words = {t.text for t in tokens if t.kind == "name"}
        taken = self.taken()
        for n, token in enumerate(tokens):
            before = tokens[n - 1].text if n else ""
            if token.text == "__global__":
                self.edit(token.start, token.end, "__attribute__((unused))")
            elif token.text == "__noinline__" and before not in ("(", ","):  # alone, not in __attribute__((__noinline__))
                self.edit(token.start, token.end, "__attribute__((noinline))")
            elif token.text == "__shared__":
                self.shared(n)
        for n in self.plain_kernels:
            if tokens[n].text in taken:  # else its address would be ambiguous
                self.edit(tokens[n].start, tokens[n].start, _OWN)
        kernels = {}
        for unit in self.units:
            head = {t.text for t in tokens[slice(*unit.head)]}
            if "__global__" in head and ("template" not in head or unit.space + unit.name not in kernels):
                renamed = unit.name in taken and "template" not in head
                kernels[unit.space + unit.name] = f"{unit.space}{_OWN * renamed}{unit.name}"
        unplaced = len(self.edits)
        if words & _MASKLESS:
            self.structure()
        places = range(unplaced, len(self.edits))
        for name, meaning in _SHORT_NAMES:
            if name in words - self.types():
                self.edit(0, 0, f"typedef {meaning} {name};\n")  # the text begins with a line marker
        calm, synced, functions, waiting = self.waits(kernels, taken)
        for k, unit in enumerate(synced):
            self.edit(tokens[unit.body[1]].end, tokens[unit.body[1]].end, f"/*hgcpu_split_{k}*/")
        prints = bool(words & {"printf", "puts", "putchar"})
        split = [kernels[unit.space + unit.name] for unit in synced]
        woven = Woven(self.apply(), kernels, self.dynamic, prints, calm, split, waiting - {_BARRIER}, self.broken)
        self.edits = [edit for edit in self.edits if edit[2] not in places]
        for k, unit in enumerate(synced):
            self.edit(tokens[unit.at].start, tokens[unit.at].start, f"hgcpu_synced_{k}_")
        for token in tokens:
            if token.text in functions:
                self.edits.append((token.start, token.start, -1, "hgcpu_synced_f_"))
        woven.marked = self.apply()
        return woven

    # -- text ----------------------------------------------------------------------------------------------------------

    def edit(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, len(self.edits), text))

    def before(self, n: int, text: str) -> None:
        """Insert before a token; before a pragma, which needs a line of its own, insert after the token before it."""
        if self.tokens[n].kind == "directive":
            at, text = self.tokens[n - 1].end, f" {text}"
        else:
            at = self.tokens[n].start
        self.edit(at, at, text)

    def apply(self) -> str:
        out, at = [], 0
        for start, end, _, text in sorted(self.edits):
            out += [self.text[at:start], text]
            at = max(at, end)
        return "".join([*out, self.text[at:]])

    def types(self) -> set[str]:
        """Return the names of types that the source itself declares, and of its template parameters."""
        tokens = self.tokens
        found = {after.text for token, after in pairwise(tokens) if token.text in _CLASS_KEYS | {"typename", "using"}}
        for n, token in enumerate(tokens):
            if token.text == "typedef":
                end = next((m for m in self.level(n, len(tokens)) if tokens[m].text == ";"), n)
                found.add(tokens[end - 1].text)
        return found

    def refuse(self, at: int, what: str) -> DeclarationError:
        file, line = place_behind(self.text[: self.tokens[at].start])
        return DeclarationError(f"{file}:{line}: runtime 'cpu' {what}")

    # -- kernels -------------------------------------------------------------------------------------------------------

    def taken(self) -> set[str]:
        """Return the names that kernels and functions may share: names in headers, and names of several user functions."""
        names = [unit.name for unit in self.units]
        taken = {name for name in names if names.count(name) > 1}
        at = 0
        for token in self.tokens:
            if token.start - at > 80:  # more than blanks and a line marker
                taken.update(re.findall(r"[^\W\d]\w*", self.text[at : token.start]))
            at = token.end
        return taken

    def waits(self, kernels: Mapping[str, str], taken: set[str]) -> tuple[set[str], list[_Unit], set[str], set[str]]:
        """Return the kernels that never wait, those that may be split, functions to inline, and all names that wait."""
        tokens = self.tokens
        bodies = [(u, {t.text for t in tokens[slice(*u.body)] if t.kind == "name"}) for u in self.units]
        heads = [{t.text for t in tokens[slice(*u.head)]} for u in self.units]
        own = [u for u, head in zip(self.units, heads) if "__global__" in head]
        single = [u for u, head in zip(self.units, heads) if "__global__" in head and "template" not in head]
        inside = {n for u in self.units for n in range(*u.body)}
        if any(t.text in _WAITS for n, t in enumerate(tokens) if n not in inside):
            return set(), [], set(), set()
        waits = set(_WAITS)
        while more := {u.name for u, names in bodies if names & waits and u not in own} - waits:
            if any(u.name in more and (u.callee or u.owner or u.name == "operator()") for u in self.units):
                return set(), [], set(), set()
            # A call through a function's address does not name the function.
            if any(t.text in more and tokens[self.behind_arguments(n)].text != "(" for n, t in enumerate(tokens[:-1])):
                return set(), [], set(), set()
            waits |= more
        spelled = [u.space + u.name for u in own]
        waiting = {u.space + u.name for u, names in bodies if u in own and names & waits}
        # Only functions whose names refer to the same function inside a kernel.
        functions = waits - _WAITS - taken - {u.name for u, head in zip(self.units, heads) if u.space or "template" in head}
        known = {_BARRIER} | (_OPERATIONS - {u.name for u in self.units})
        single = [u for u in single if not u.owner and tokens[u.at - 1].text != "::"]  # a function beside it has its scope
        synced = [u for u, names in bodies if u in single and spelled.count(u.space + u.name) == 1 and names & waits]
        synced = [u for u, names in bodies if u in synced and names & waits <= (known if u.space else known | functions)]
        return {kernels[name] for name in spelled if name not in waiting}, synced, functions, waits

    def behind_arguments(self, n: int) -> int:
        """Return the index of the token after a function's name and its template arguments."""
        tokens = self.tokens
        return min(closing_angle(tokens, n + 1) + 1, len(tokens) - 1) if tokens[n + 1].text == "<" else n + 1

    # -- shared memory -------------------------------------------------------------------------------------------------

    def shared(self, n: int) -> None:
        tokens = self.tokens
        start = n
        while start and tokens[start - 1].text not in (";", "{", "}", ")"):
            if tokens[start - 1].kind in ("directive", "string"):  # a pragma, or extern "C"
                break
            start -= 1
        end = next(m for m in range(n, len(tokens)) if tokens[m].text == ";")
        words = {t.text: m for m, t in enumerate(tokens[start:end], start)}
        if "extern" not in words:
            if "static" in words:
                self.edit(tokens[words["static"]].start, tokens[words["static"]].end, "")
            # Compilers assume that a variable without writes is 0 and remove its loads, which the sanitizer must see.
            used = " __attribute__((used))" * self.guards
            self.edit(tokens[n].start, tokens[n].end, f"static thread_local{used}")
            if self.guards:
                self.guard(start)
            return
        self.dynamic = True
        self.edit(tokens[n].start, tokens[n].end, "")
        self.dynamic_array(n, start, end, tokens[words["extern"]])

    def dynamic_array(self, n: int, start: int, end: int, extern: Token) -> None:
        """Map the array that the tokens from `start` to `end` declare to the block's dynamic shared memory."""
        tokens = self.tokens
        opening = next((m for m in self.level(start, end) if tokens[m].text == "[" and tokens[m + 1].text != "["), end)
        behind = self.closing.get(opening, end) + 1
        while behind < end and tokens[behind].text == "[" and tokens[behind + 1].text != "[":  # more dimensions
            behind = self.closing[behind] + 1
        if opening == end or any(tokens[m].text == "," for m in self.level(behind, end)):
            raise self.refuse(
                n, "takes one array from a declaration of dynamic shared memory; write extern __shared__ type name[];"
            )
        last = tokens[behind - 1].end
        if not any(unit.body[0] < n < unit.body[1] for unit in self.units):
            self.edit(extern.end, extern.end, " __thread")
            self.edit(last, last, ' __asm__("hgcpu_dynamic")')
            return
        # In a function it becomes a pointer, because two functions may declare it with different types.
        name, close = tokens[opening - 1], tokens[self.closing[opening]]
        kind = " ".join(self.type_words(start, opening - 1))
        bounds = self.text[close.end : last]
        star, shut = ("(*", f"){bounds}") if bounds.strip() else ("*", "")
        self.edit(extern.start, extern.end, "")
        self.edit(name.start, close.end, f"{star}{name.text}{shut} = reinterpret_cast<{kind}{star}{shut}>(hgcpu_dynamic)")
        self.edit(close.end, tokens[end].start, "")

    def type_words(self, i: int, end: int) -> Iterator[str]:
        """Yield the words of a declaration's type, without attributes and storage specifiers."""
        tokens = self.tokens
        while i < end:
            text, following = tokens[i].text, tokens[i + 1].text
            if text in _ATTRIBUTES - {"decltype"} and following == "(":
                i = self.closing[i + 1]
            elif text == following == "[":
                i = self.closing[i]
            elif text not in ("extern", "__shared__"):
                yield text
            i += 1

    def guard(self, start: int) -> None:
        """Declare guard bytes, which kernels must not access, before a declaration of shared memory."""
        tokens = self.tokens
        opening = {close: begin for begin, close in self.closing.items()}
        while start and tokens[start - 1].text == ")":  # attributes at the beginning of the declaration
            begin = opening[start - 1]
            if not begin or tokens[begin - 1].text not in _ATTRIBUTES:
                return
            start = begin - 1
        self.number += 1
        name = f"hgcpu_guard_{self.number}"
        self.before(start, f"static thread_local __attribute__((used, aligned(16))) char {name}[{_GUARD_BYTES}]; ")

    # -- declarations --------------------------------------------------------------------------------------------------

    def scope(self, i: int, end: int, space: str, owner: str) -> None:
        """Find the functions of a namespace or a class, and of the classes inside."""
        tokens = [token for token in self.tokens[i:end] if token.kind != "directive"]
        try:
            for item in scan(tokens, ""):
                begin = self.place[item.tokens[0].start]
                if item.kind == "typedef":
                    self.inner(begin, self.place[item.tokens[-1].start])
                elif item.head:
                    self.declaration(item, begin, space + item.space, owner)
        except DeclarationError:
            self.broken = True

    def declaration(self, item: Item, begin: int, space: str, owner: str) -> None:
        """Read a declaration; `begin` is the index of its first token."""
        opening = self.place[item.head[-1].start] + 1
        while opening < len(self.tokens) and self.tokens[opening].kind == "directive":
            opening += 1
        close = self.closing.get(opening, opening)
        if item.kind in ("kernel", "function"):
            self.function(item, (begin, opening), (opening, close), space, owner)
        elif item.body is not None and item.record in _CLASS_KEYS:
            name = record_name(item.head, item.record)
            self.classes.add(name)
            self.scope(opening + 1, close, f"{space}{name}::", name)
        elif item.body is not None:
            self.inner(opening, close)

    def function(self, item: Item, head: tuple[int, int], body: tuple[int, int], space: str, owner: str) -> None:
        plain = without_attributes(item.head)
        texts = [token.text for token in plain]
        n = texts.index("operator") if "operator" in texts else name_at(plain, parameters_at(plain))
        if n < 0 or plain[n].kind != "name":
            self.broken = True
            return
        name, at = texts[n], self.place[plain[n].start]
        callee = name == owner or "~" in texts[:n]
        if name == "operator":
            name = "operator()" if texts[n + 1 : n + 2] == ["("] else "".join(texts[n : parameters_at(plain)])
            callee = name != "operator()"
        if item.kind == "kernel" and item.templates is None:
            self.plain_kernels.append(at)
        names = "".join(texts[qualified_at(plain, n) : n])  # declared before, in a namespace or a class
        if item.body is not None:
            self.units.append(_Unit(name, at, space + names, head, body, owner, callee))
            self.inner(*body)

    def inner(self, opening: int, close: int) -> None:
        """Find classes inside of a function."""
        tokens = self.tokens
        i = opening + 1
        while i < close:
            if tokens[i].text in _CLASS_KEYS and tokens[i - 1].text in (";", "{", "}", "typedef"):
                brace = next((n for n in range(i, close) if tokens[n].text in ("{", ";", "(", "=")), close)
                if brace < close and tokens[brace].text == "{":
                    self.scope(i, self.closing[brace] + 1, "", "")
                    i = self.closing[brace]
            i += 1

    # -- the structure of control flow -----------------------------------------------------------------------------------

    def structure(self) -> None:
        """Mark the functions, statements and loops that may lead to a warp operation."""
        tokens = self.tokens
        leading = self.leading = set(_OPERATIONS)
        names = {u.name for u in self.units} | self.classes
        passed = False
        while True:
            before = len(leading), passed
            for unit in self.units:
                at = next((n for n in range(*unit.body) if self.leads(n)), None)
                if at is not None:
                    if unit.callee:
                        raise self.refuse(
                            at,
                            f"does not know when {unit.name!r} is called, and so not which lanes take part in "
                            f"{tokens[at].text}; use a function that is called by its name",
                        )
                    leading |= {unit.name, unit.owner} - {""}
                    passed = passed or unit.name == "operator()"
            # Lambdas and functions may be passed as values: then any called name that is not a known function may hold one.
            passed = passed or self.passes_on(leading)
            if passed and not self.variables:
                named = [n for n, token in enumerate(tokens[:-1]) if token.kind == "name"]
                called = {tokens[n].text for n in named if self.is_called(n)}
                plain = {tokens[n].text for n in named if tokens[n + 1].text != "("}
                self.variables = (called & plain) - names - self.types() - _NOT_CALLED - _OPERATIONS
                leading |= self.variables
            if before == (len(leading), passed):
                break
        for unit in self.units:
            if self.mentions(*unit.body) and not any(t.text == "constexpr" for t in tokens[slice(*unit.head)]):
                self.body(*unit.body)

    def is_called(self, n: int) -> bool:
        """Return whether a name is followed by the parenthesis of a call: ``f(1)``, ``(*f)(1)``, ``f[2](1)``."""
        tokens = self.tokens
        if tokens[n + 1].text == "[":
            n = self.closing[n + 1]
        elif tokens[n + 1].text == ")" and tokens[n - 1].text in ("(", "*"):
            n += 1
        return n + 1 < len(tokens) and tokens[n + 1].text == "("

    def leads(self, n: int) -> bool:
        """Return whether a token may lead to a warp operation."""
        text = self.tokens[n].text
        return text in self.leading and (text not in self.variables or self.is_called(n))

    def passes_on(self, leading: set[str]) -> bool:
        tokens = self.tokens
        functions = {u.name for u in self.units}
        for n, token in enumerate(tokens[:-1]):
            if token.text in leading & functions and tokens[n + 1].text not in ("(", "<"):
                return True
            if token.text == "[" and self.closing[n] + 1 < len(tokens):
                after = self.closing[n] + 1
                opening = self.closing[after] + 1 if tokens[after].text == "(" else after
                while opening < len(tokens) and tokens[opening].text not in ("{", ";", ")", ",", "=", "[", "("):
                    opening += 1
                if opening < len(tokens) and tokens[opening].text == "{":
                    inside = tokens[opening : self.closing[opening]]
                    if any(t.text in leading for t in inside):
                        return True
        return False

    def mentions(self, i: int, end: int) -> bool:
        return any(self.leads(n) for n in range(i, end))

    def body(self, opening: int, close: int) -> None:
        """Mark the statements of a function's body."""
        labels = {}
        tokens = self.tokens
        for n in range(opening, close):
            if tokens[n].kind == "name" and tokens[n + 1].text == ":" and tokens[n - 1].text in (";", "{", "}"):
                labels[tokens[n].text] = n
            if tokens[n].text == "goto" and labels.get(tokens[n + 1].text, close if tokens[n + 1].kind != "name" else -1) >= 0:
                raise self.refuse(n, "does not know which lanes take part in warp operations beside a goto backwards; use a loop")
            if tokens[n].text in ("setjmp", "longjmp", "_setjmp"):
                raise self.refuse(n, "does not know which lanes take part in warp operations beside longjmp")
        self.edit(tokens[opening].end, tokens[opening].end, "hgcpu_frame hgcpu_here;")
        self.block(opening, close)

    def block(self, opening: int, close: int) -> None:
        i = opening + 1
        while i < close:
            i = self.statement(i, close, alone=False)

    def mark(self, start: int, i: int, end: int, alone: bool) -> bool:
        """Mark a statement that may lead to a warp operation; return whether a closing brace must follow it."""
        if not self.mentions(i, end):
            return False
        self.number += 1
        self.before(start, f"{'{' * alone}hgcpu_at({self.number});")
        self.conditional(i, end)
        return alone

    def conditional(self, i: int, end: int) -> None:
        """Assign a number to each operation of a statement with ``?:``, ``&&`` or ``||``, as lanes may skip some of them."""
        flat = list(self.flat(i, end))
        if not any(self.tokens[n].text in ("?", "&&", "||", "and", "or") for n in flat):
            return
        found = [n for n in flat if self.leads(n) and self.tokens[n + 1].text != "::"]
        operations = [n for n in found if self.tokens[n].text in _OPERATIONS]
        if len(found) > len(operations) and len(found) > 1:
            raise self.refuse(
                found[1],
                f"does not know which lanes take part in the warp operations of {self.tokens[found[0]].text!r} and "
                f"{self.tokens[found[1]].text!r} in one statement with ?:, && or ||; write them as statements of their own",
            )
        for n in operations:
            self.number += 1
            self.edit(self.tokens[n].start, self.tokens[n].start, f"hgcpu_at_site<{self.number}>::")

    def flat(self, i: int, end: int) -> Iterator[int]:
        """Yield the indices of a statement's tokens, except those of code in braces inside of it."""
        n = i
        while n < end:
            if self.tokens[n].text == "{" and self.is_code(n):
                n = self.closing[n] + 1
                continue
            yield n
            n += 1

    def is_code(self, opening: int) -> bool:
        inside = self.tokens[opening + 1 : self.closing[opening]]
        return any(t.text in (";", "{") for t in inside) and any(t.text == ";" for t in inside)

    def code(self, i: int, end: int) -> None:
        """Mark lambdas and statement expressions inside of a statement; member functions of classes are marked as functions."""
        tokens = self.tokens
        while i < end:
            if tokens[i].text == "{" and self.is_code(i):
                known = any(u.body[0] == i or i < u.body[0] < self.closing[i] for u in self.units)
                if not known and self.mentions(i, self.closing[i]):
                    self.body(i, self.closing[i])
                i = self.closing[i]
            i += 1

    def statement(self, i: int, end: int, *, alone: bool) -> int:
        """Process a statement and return the index after it; `alone` if the grammar allows only one statement there."""
        tokens = self.tokens
        start = i
        while i < end and (tokens[i].kind == "directive" or tokens[i].text == tokens[i + 1].text == "["):  # [[attributes]]
            i = i + 1 if tokens[i].kind == "directive" else self.closing[i] + 1
        if i >= end:
            return end
        text = tokens[i].text
        following = tokens[i + 1].text if i + 1 < end else ""
        if text == "{":
            self.block(i, self.closing[i])
            return self.closing[i] + 1
        if text in ("case", "default") or (tokens[i].kind == "name" and following == ":"):
            questions = 0
            while tokens[i].text != ":" or questions:
                questions += {"?": 1, ":": -1}.get(tokens[i].text, 0)
                i = self.closing[i] + 1 if tokens[i].text in OPENING else i + 1
            return self.statement(i + 1, end, alone=alone) if i + 1 < end else end
        if text in ("if", "switch"):
            opening = i + 1 if following == "(" else i + 2
            close = self.closing[opening]
            shut = self.mark(start, opening, close, alone)
            self.code(opening, close)
            after = self.statement(close + 1, end, alone=True)
            if text == "if" and after < end and tokens[after].text == "else":
                after = self.statement(after + 1, end, alone=True)
            return self.shut(shut, after)
        if text in ("for", "while", "do"):
            return self.loop(start, i, end)
        if text == "try":
            after = self.statement(i + 1, end, alone=False)
            while after < end and tokens[after].text == "catch":
                after = self.statement(self.closing[after + 1] + 1, end, alone=False)
            return after
        after = i
        while after < end and tokens[after].text != ";":
            after = self.closing[after] + 1 if tokens[after].text in OPENING else after + 1
        shut = self.mark(start, i, after, alone)
        self.code(i, after)
        return self.shut(shut, min(after + 1, end))

    def shut(self, shut: bool, after: int) -> int:
        if shut:
            self.edit(self.tokens[after - 1].end, self.tokens[after - 1].end, "}")
        return after

    def loop(self, start: int, i: int, end: int) -> int:
        tokens = self.tokens
        word = tokens[i].text
        opening = i + 1
        close = self.closing[opening] if word != "do" else i
        behind = self.extent(close + 1, end)
        header = (opening, close) if word != "do" else (behind, self.closing[behind + 1] + 1)
        stop = max(behind, header[1])
        if self.mentions(i, stop):
            self.number += 1
            self.before(start, f"if(hgcpu_loop hgcpu_in({self.number});false){{}}else ")
            self.conditional(*header)
            self.code(*header)
            if word == "for":
                semicolons = [n for n in self.level(opening + 1, close) if tokens[n].text == ";"]
                if len(semicolons) == 2 and semicolons[1] + 1 < close:
                    self.edit(tokens[close].start, tokens[close].start, ",hgcpu_in.turn()")
            self.edit(tokens[close].end, tokens[close].end, " if(hgcpu_turn hgcpu_now(hgcpu_in);false){}else ")
            self.statement(close + 1, end, alone=True)
        return stop + (word == "do")

    def level(self, i: int, end: int) -> Iterator[int]:
        while i < end:
            yield i
            i = self.closing[i] + 1 if self.tokens[i].text in OPENING else i + 1

    def extent(self, i: int, end: int) -> int:
        """Return the index after a statement, without marking it."""
        if i not in self.extents:
            edits, number = len(self.edits), self.number
            self.extents[i] = self.statement(i, end, alone=False)
            del self.edits[edits:]
            self.number = number
        return self.extents[i]
