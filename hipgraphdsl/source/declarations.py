"""Declarations of a translation unit: kernels, variables, types and constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..errors import DeclarationError
from .macros import Budget
from .names import spelled_parameters
from .scope import AliasTemplate, Constant, Scope, TemplateParameter, are_values
from .tokens import (
    CLOSING,
    OPENING,
    Token,
    closing_angle,
    closing_index,
    opening_angle,
    spell,
    split_commas,
    tokenize,
    without_attributes,
)
from .types import BUILTIN_WORDS, IGNORED_WORDS, KNOWN_TYPES
from .unit import UNDECIDED_TEXT, Headers, Unit, names_in


@dataclass(frozen=True, slots=True)
class KernelDeclaration:
    """A `__global__` function as declared in the source."""

    name: str
    parameters: tuple[Token, ...]
    body: tuple[Token, ...]
    defined: bool
    line: int
    templates: tuple[TemplateParameter, ...] | None
    bounds: tuple[Token, ...] = ()
    fault: str = ""
    doubt: str = ""
    braces: tuple[int, int] | None = None  # source offsets of its body: of the opening brace, and one past the closing brace
    of_class: tuple[TemplateParameter, ...] = ()  # of the class template that it is a static member of


@dataclass(frozen=True, slots=True)
class SymbolDeclaration:
    """A `__device__`, `__constant__` or `__managed__` variable as declared in the source."""

    name: str
    tokens: tuple[Token, ...]
    space: str
    line: int


VARIABLE_SPACES: Final = frozenset({"__constant__", "__device__", "__managed__"})
UNNAMED: Final = "an unnamed struct"


@dataclass(slots=True)
class Item:
    """One declaration at namespace scope.

    `kind` is ``kernel``, ``function``, ``variable``, ``record``, ``typedef``, ``using`` or ``instantiation`` (of a template).
    """

    kind: str
    tokens: list[Token]  # all, from ``template`` or the first specifier to the brace or semicolon that ends the declaration
    space: str  # enclosing namespaces: "a::b::"
    head: list[Token] = field(default_factory=list)  # from after the template parameters to before the body
    body: list[Token] | None = None  # between the braces
    trailing: list[Token] = field(default_factory=list)  # between a record's brace and its semicolon
    templates: tuple[TemplateParameter, ...] | None = None  # None if it is not a template
    record: str = ""  # ``struct``, ``class``, ``union``, ``enum``


class _Source:
    """A token stream with lookahead."""

    def __init__(self, tokens: Iterable[Token], where: str) -> None:
        self._rest = iter(tokens)
        self._ahead: list[Token] = []
        self.where = where

    def peek(self, n: int = 0) -> Token | None:
        while len(self._ahead) <= n:
            token = next(self._rest, None)
            if token is None:
                return None
            self._ahead.append(token)
        return self._ahead[n]

    def text(self, n: int = 0) -> str:
        token = self.peek(n)
        return "" if token is None else token.text

    def take(self) -> Token:
        token = self.peek()
        assert token is not None
        self._ahead.pop(0)
        return token

    def until(self, stops: tuple[str, ...]) -> list[Token]:
        """Take all tokens before the next one outside brackets whose text is in `stops`."""
        found: list[Token] = []
        open_: list[Token] = []
        ahead = self._ahead
        while True:
            token = ahead.pop(0) if ahead else next(self._rest, None)
            if token is None:
                break
            text = token.text
            if not open_ and text in stops:
                ahead.insert(0, token)
                break
            if text in OPENING:
                open_.append(token)
            elif text in CLOSING and open_:
                open_.pop()
            found.append(token)
        if open_:
            raise DeclarationError(f"{self.where}, line {open_[-1].line}: {open_[-1].text!r} is not closed")
        return found

    def braces(self) -> list[Token]:
        """Take a pair of braces and everything between them."""
        opening = self.take()
        inside = self.until(("}",))
        if self.peek() is None:
            raise DeclarationError(f"{self.where}, line {opening.line}: {opening.text!r} is not closed")
        return [opening, *inside, self.take()]

    def statement(self) -> list[Token]:
        """Take all tokens up to and including the next semicolon."""
        found = self.until((";",))
        return [*found, self.take()] if self.peek() is not None else found


_ACCESS: Final = frozenset({"public", "protected", "private"})
_MOST_NAMESPACES: Final = 256  # clang's limit


def scan(tokens: Iterable[Token], where: str) -> Iterator[Item]:
    """Split preprocessed source into its declarations.

    Raises
    ------
    DeclarationError
        If a bracket is not closed, or namespaces are nested more than 256 deep; the message names the line.
    """
    source = _Source(tokens, where)
    outer: list[tuple[str, Token]] = []  # for each open brace, the namespaces around it
    space = ""
    while (token := source.peek()) is not None:
        text = token.text
        following = source.text(1)
        if text == "}":
            source.take()
            if outer:
                space, _ = outer.pop()
        elif text == ";" or (text == "inline" and following == "namespace"):
            source.take()
        elif text in _ACCESS and following == ":":
            source.take()
            source.take()
        elif text == "namespace":
            head = source.until(("{", ";", "="))
            if source.text() != "{":
                source.statement()
                continue
            outer.append((space, source.take()))
            names = [t.text for t in without_attributes(head) if t.kind == "name" and t.text not in ("inline", "namespace")]
            space += "".join(f"{name}::" for name in names)
        elif text == "extern" and (second := source.peek(1)) and second.kind == "string" and source.text(2) == "{":
            source.take()
            source.take()
            outer.append((space, source.take()))
        elif text == "typedef":
            yield Item(text, source.statement(), space)
        else:
            yield _item(source, space)
        if len(outer) > _MOST_NAMESPACES:
            raise DeclarationError(f"{where}, line {token.line}: namespaces are nested more than {_MOST_NAMESPACES} deep")
    if outer:
        raise DeclarationError(f"{where}, line {outer[-1][1].line}: '{{' is not closed")


def _item(source: _Source, space: str) -> Item:
    """Parse the next function, variable or record."""
    templates: tuple[TemplateParameter, ...] | None = None
    taken: list[Token] = []
    while source.text() == "template":
        taken.append(source.take())
        if source.text() != "<":
            return Item("instantiation", [*taken, *source.statement()], space)
        listed = [taken[-1], source.take()]
        while closing_angle(listed, 1) == len(listed):
            listed += source.until((">", ";"))
            if source.text() in ("", ";"):
                raise DeclarationError(f"{source.where}, line {taken[-1].line}: this template's '<' is not closed")
            listed.append(source.take())
        taken += listed[1:]
        templates = (templates or ()) + _template_parameters(listed[2:-1])
    if source.text() == "using":
        head = source.statement()
        return Item("using", [*taken, *head], space, head, templates=templates)
    # The head extends to the body, or to the end of the declaration.
    head = source.until((";", "{"))
    while source.text() == "{" and _initializes_member(head):
        head += [*source.braces(), *source.until((";", "{"))]
    if source.text() == ";" and (late := [t for t in head if t.text == "typedef"]):  # float typedef real;
        return Item("typedef", [*late, *(t for t in head if t not in late), source.take()], space)
    taken += head
    words = {t.text for t in head}
    record = next((t.text for t in head if t.text in ("struct", "class", "union", "enum")), "")
    body: list[Token] | None = None
    if source.text() == "{":
        braces = source.braces()
        taken += braces
        body = braces[1:-1]
    if "__global__" in words:
        kind = "kernel"
    elif _is_function(head):
        kind = "function"
    elif record and all(t.text not in ("=", "(") for t in without_attributes(head)):
        kind = "record"
    else:
        kind = "variable"
    trailing: list[Token] = []
    if kind not in ("kernel", "function"):
        trailing = source.statement()
    elif body is None and source.peek() is not None:
        trailing = [source.take()]
    taken += trailing
    found = Item(kind, taken, space, head, body, templates=templates)
    if kind == "record":
        found.record = record
        found.trailing = trailing[:-1] if body is not None else []
    return found


def _initializes_member(head: Sequence[Token]) -> bool:
    """Return whether the braces after a head initialize a member in a constructor's list, ``X(int a) : x{a} {}``."""
    if not head or (head[-1].kind != "name" and head[-1].text != ">"):
        return False
    plain = without_attributes(head)
    parameters = next((n for n, t in enumerate(plain) if t.text == ")"), len(plain))
    return any(t.text == ":" for t in plain[parameters:])


def record_name(head: Sequence[Token], record: str) -> str:
    """Return the name after ``struct``; empty if there is none."""
    plain = without_attributes(head)
    at = next((n for n, t in enumerate(plain) if t.text == record), len(plain))
    return next((t.text for t in plain[at + 1 :] if t.kind == "name" and t.text not in ("class", "struct", "final")), "")


_TYPE_OPERATORS: Final = frozenset({"decltype", "typeof", "__typeof__", "__typeof", "__decltype"})
_AFTER_PARAMETERS: Final = frozenset({"const", "volatile", "throw", "override", "final", "try", "requires", "and", "or", "asm"})


def parameters_at(plain: Sequence[Token]) -> int:
    """Return the index of the parenthesis after the declared name, or the length if there is none; attributes must be removed.

    Parentheses of values before another name, or before a type, are those of a macro of attributes that is not known:
    ``BOUNDS(256) void k(int* x)``, ``void BOUNDS(256) k(int* x)``.
    """
    i, first = 0, len(plain)
    while i < len(plain) and plain[i].text not in ("=", "{"):
        end = closing_index(plain, i) if plain[i].text in OPENING else i
        if plain[i].text == "(" and plain[i - 1].text not in _TYPE_OPERATORS:
            named = end + 1 < len(plain) and plain[end + 1].kind == "name" and plain[end + 1].text not in _AFTER_PARAMETERS
            typed = any(t.kind == "name" and t.text not in IGNORED_WORDS for t in plain[: max(i - 1, 0)])
            if not named or (typed and not are_values(plain[i + 1 : end])):
                return i
            first = min(first, i)
        i = end + 1
    return first


def name_at(plain: Sequence[Token], opening: int) -> int:
    """Return the index of a function's name, given that of its parameters: ``k(``, ``k<float>(``; -1 if there is none."""
    return opening_angle(plain, opening - 1) - 1 if plain[opening - 1].text == ">" else opening - 1


def qualified_at(plain: Sequence[Token], at: int) -> int:
    """Return the index where the qualified name that ends with the name at `at` begins: that of ``a`` in ``void a::k(``."""
    while at > 1 and plain[at - 1].text == "::" and plain[at - 2].kind == "name" and plain[at - 2].text not in BUILTIN_WORDS:
        at -= 2
    return at


def parameters_of(plain: list[Token]) -> list[Token]:
    """Return the tokens between the parentheses that `parameters_at` finds."""
    at = parameters_at(plain)
    return plain[at + 1 : closing_index(plain, at)]


def _has_values(head: Sequence[Token]) -> bool:
    """Return whether a static declaration without a body, ``static int c(x)``, may declare a variable."""
    parts = split_commas(parameters_of(without_attributes(head)))
    typed = (part[0].text in KNOWN_TYPES or any(a.kind == b.kind == "name" for a, b in pairwise(part)) for part in parts)
    return bool(parts) and not any(typed)


def _is_function(head: Sequence[Token]) -> bool:
    """Return whether a declaration declares a function: parameters follow its name, before any ``=``."""
    plain = without_attributes(head)
    if any(t.text == "operator" for t in plain):
        return True
    at = parameters_at(plain)
    inside = plain[at + 1 : closing_index(plain, at)]
    if inside and inside[0].text in ("*", "&"):  # int (*p)[4], and the function int (*f(int))[4]
        return _is_function(inside)
    return at < len(plain) and not are_values(inside)


def _declared_name(tokens: Sequence[Token]) -> str:
    """Return the name of the first variable that a declaration declares, of any type; empty if there is none."""
    plain = without_attributes(tokens)
    name = ""
    i = 0
    while i < len(plain):
        text, before = plain[i].text, plain[i - 1].text if i else ""
        if text in ("=", ";", ",", "{", "["):
            break
        if text == "(" and before not in _TYPE_OPERATORS:
            inside = plain[i + 1 : closing_index(plain, i)]
            return _declared_name(inside) if inside and inside[0].text in ("*", "&") else name
        name = text if plain[i].kind == "name" else name
        if text == "(":
            i = closing_index(plain, i)
        elif text == "<" and closing_angle(plain, i) < len(plain):
            i = closing_angle(plain, i)
        i += 1
    return name


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
    """The declarations of a translation unit that a Module needs.

    Error messages call the source `where`. The compiler options ``-D``, ``-U`` and ``-I`` are honoured. `structs` maps names of
    struct types to their layouts. `headers` finds the project's own headers, by default in the folders of ``-I``.
    """

    def __init__(
        self,
        source: str,
        where: str,
        options: Sequence[str] = (),
        structs: Mapping[str, np.dtype[Any]] | None = None,
        headers: Headers | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.where = where
        self.scope = self._here = Scope(structs or {})
        self._inside: dict[str, Scope] = {}  # of the classes that have kernels, by "a::R::"
        self.kernels: dict[str, list[KernelDeclaration]] = {}
        self.symbols: dict[str, SymbolDeclaration] = {}
        #: Variable templates: they are in device memory, but have no name to copy them by. Each maps to the word by which a
        #: kernel refers to it.
        self.hidden: dict[str, str] = {}
        self.dynamic: set[str] = set()  # arrays of dynamic shared memory that are declared outside functions
        self.functions: dict[str, list[list[Token]]] = {}  # parameters of each function, by name; kernels are excluded
        self._types: dict[tuple[str, tuple[str, ...]], int] = {}
        self._outside: list[Token] = []  # blocks outside kernels
        self._names: set[str] = set()  # names outside kernels and blocks, except those of declared variables
        self.unit = Unit(source, where, options, headers, budget)
        self.unread = self.unit.unread  # project headers that were not found
        for item in scan(self.unit, where):
            self._read(item)

    def _read(self, item: Item, of: tuple[tuple[TemplateParameter, ...], ...] = ()) -> None:
        """Read a declaration; `of` holds the template parameters of the classes around it."""
        tokens = item.tokens
        self._here = self.scope_of(item.space)
        words = {t.text for t in item.head}
        doubt = _doubt(tokens)
        own: set[str] = set()
        declares = item.kind == "function" and item.body is None and bool(words & VARIABLE_SPACES)
        if declares and self._here.initializes(parameters_of(without_attributes(item.head))):  # __device__ int x(N);
            item.kind = "variable"
        match item.kind:
            case "typedef":
                self._typedef(tokens, doubt)
            case "using":
                said = [t for t in item.head if t.text != ";"]
                if len(said) > 3 and said[2].text == "=":
                    self._here.define(said[1].text, said[3:] if item.templates is None else spell(tokens), doubt)
                    if item.templates is not None:
                        name = self._here.space + said[1].text
                        self.scope.templates[name] = AliasTemplate(item.templates, said[3:], self._here, doubt)
            case "kernel":
                self._kernel(item, of)
                return
            case "function":
                plain = without_attributes(item.head)
                if 0 < (at := parameters_at(plain)) < len(plain):
                    self.functions.setdefault(plain[at - 1].text, []).append(parameters_of(plain))
            case "record":
                name = self._record(item.head, item.body or [], item.record, doubt)
                if name and item.record != "enum" and "__global__" in self.unit.reach(names_in(item.body or []))[0]:
                    self._members(item, name, of)
                if item.trailing and words & VARIABLE_SPACES:
                    words_of_space = [t for t in item.head if t.text in VARIABLE_SPACES]
                    kind = item.head[-1]._replace(kind="name", text=name or UNNAMED)
                    own = self._symbols([*words_of_space, kind._replace(text=item.record), kind, *item.trailing], item.space)
            case "variable":
                whole = tokens[:-1] if tokens[-1].text == ";" else tokens
                if {"extern", "__shared__"} <= words:
                    self.dynamic.update(self._declared(item.head))
                elif item.templates is not None:
                    if words & VARIABLE_SPACES and not words & {"const", "constexpr"}:
                        own = self._declared(item.head)
                        self.hidden.update({name: name for name in own})
                elif words & VARIABLE_SPACES:
                    own = self._symbols(whole, item.space)
                elif words & {"const", "constexpr"}:
                    self._here.define_constants(self.unit.tokens_of(whole), doubt)
        self._outside += [t for t in tokens if t.kind == "block"]
        self._names.update(t.text for t in tokens if t.kind == "name" and t.text not in own)

    def _members(self, item: Item, name: str, of: tuple[tuple[TemplateParameter, ...], ...]) -> None:
        """Read what a class declares that has kernels: static member functions."""
        outside, space = self._here, f"{item.space}{name}::"
        self.unit.budget.read(sum(len(t.text) for t in item.body or ()) // 8, self.where)
        self._inside[space] = outside.at(space).inner()  # these names have a meaning in the class alone
        for member in scan(self.unit.tokens_of(item.body or ()), self.where):
            member.space = space
            if all(t.text != "friend" for t in member.head):
                self._read(member, (*of, item.templates or ()))
        self._here = outside

    def scope_of(self, name: str) -> Scope:
        """Return the scope in which a kernel or a variable is declared."""
        space = re.sub(r"[^:<]*(<.*)?$", "", name)
        return self._inside[space] if space in self._inside else self.scope.at(space)

    def functions_reach(self) -> tuple[set[str], bool]:
        """Return every name outside kernels, also through macros, and whether one of these macros pastes names (##)."""
        return self.unit.reach(self._names | names_in(self._outside))

    def declares(self, name: str) -> bool:
        """Return whether a name occurs outside kernels and all bodies, as the name of a function or variable does."""
        return name in self._names or name in self.symbols

    def kernel_reaches(self, kernel: KernelDeclaration, name: str = "") -> tuple[set[str], bool]:
        """Return the same as `functions_reach` for a kernel's body and template arguments: those in `name`, and the defaults."""
        arguments = tokenize(name) + [token for parameter in kernel.templates or () for token in parameter.default]
        return self.unit.reach(names_in([*kernel.body, *arguments]))

    def static_locals(self, body: Sequence[Token] | None = None) -> list[str]:
        """Return the non-constant static variables of a body, the first of each declaration; by default those outside kernels."""
        found: list[str] = []
        tokens = self._outside if body is None else body
        if any(token.text == "static" for token in tokens):  # a member's body is split into tokens already
            found += _static_variables([token for token in tokens if token.kind != "block"])
        for token in tokens:
            by_macro = token.kind == "block" and self._reaches_static(token)
            if not by_macro and (token.kind != "block" or not _STATIC.search(token.text)):
                continue
            try:  # expand macros only if needed, to save the budget
                found += _static_variables(self.unit.tokens_of([token], expand=by_macro))
            except DeclarationError:  # a body that cannot be parsed may have some
                found.append(f"variables at line {token.line}")
        return found

    @cached_property
    def _macros_say_static(self) -> bool:
        return self.unit.macros.mention("static")

    def _reaches_static(self, block: Token) -> bool:
        return self._macros_say_static and "static" in self.unit.reach(names_in([block]))[0]

    def _typedef(self, tokens: list[Token], doubt: str) -> None:
        inside = tokens[1:-1]
        record = next((t.text for t in inside if t.text in ("struct", "class", "union", "enum")), "")
        brace = next((n for n, t in enumerate(inside) if t.text == "{"), None)
        if brace is not None:
            close = closing_index(inside, brace)
            own = self._record(inside[:brace], inside[brace + 1 : close], record, doubt)
            for part in split_commas(without_attributes(inside[close + 1 :])):
                if own and part[0].text == "*":
                    self._here.define(part[-1].text, [part[-1]._replace(text=own), *part[:-1]])
                else:
                    own = own or part[-1].text
                    self._here.define(part[-1].text, "enum" if record == "enum" else "struct")
        elif "(" not in {t.text for t in inside}:
            first, *others = split_commas(inside) or [[]]
            closed = max((n for n, t in enumerate(first) if t.text == ">"), default=0)  # vec<T*>
            begins = (n for n in range(closed, len(first) - 1) if first[n].text == "*" or first[n + 1].text == "[")
            base = first[: next(begins, len(first) - 1)]
            for part in (first[len(base) :], *others):
                if part and part[-1].kind == "name" and part[-1].text not in BUILTIN_WORDS | {record}:
                    self._here.define(part[-1].text, [*base, *part[:-1]], doubt)

    def _record(self, head: list[Token], body: list[Token], record: str, doubt: str) -> str:
        """Define a struct or an enum, and return its name."""
        name = record_name(head, record)
        if name:
            self._here.define(name, "enum" if record == "enum" else "struct")
        if record == "enum":
            before: list[Token] = []  # the last explicit value, in parentheses
            steps = 0
            for part in split_commas(self.unit.tokens_of(body)):
                if len(part) > 2 and part[1].text == "=":
                    bracket = part[0]._replace(kind="punct", text="(")
                    before, steps = [bracket, *part[2:], bracket._replace(text=")")], 0
                if not part:
                    continue
                plus = [part[0]._replace(kind="punct", text="+"), part[0]._replace(kind="number", text=str(steps))]
                doubted = doubt or next((t.doubt.reason for t in part if t.doubt is not None), "")
                self._here.define(part[0].text, Constant([*before, *plus]), doubted)
                if doubted and not doubt:
                    doubt = doubted  # the enumerators that follow count on from this one
                    self.scope.doubts[self._here.space + part[0].text] = doubted
                elif doubt and body and UNDECIDED_TEXT.search(body[0].text):
                    self.scope.doubts[self._here.space + part[0].text] = doubt
                steps += 1
        return name

    def _kernel(self, item: Item, of: tuple[tuple[TemplateParameter, ...], ...]) -> None:
        head, space, templates = item.head, item.space, item.templates
        bounds, fault = _launch_bounds(head)
        plain = without_attributes(head)
        opening = parameters_at(plain)
        at = name_at(plain, opening) if opening < len(plain) else -1
        line = head[0].line
        if at < 0 or plain[at].kind != "name":
            raise DeclarationError(f"{self.where}, line {line}: '__global__' stands before no function")
        begin = qualified_at(plain, at)
        name = space + spell(plain[begin:opening])
        if at + 1 < opening:  # template <> void k<float>(...)
            templates = None
        typed = [t for t, after in pairwise(plain[: begin + 1]) if t.kind == "name" and after.text != "("]
        returned = [t.text for t in typed if t.text not in IGNORED_WORDS]
        if returned not in (["void"], ["auto"]):
            fault = f"it returns {spell(returned) or 'nothing named'}; a kernel returns void"
        closed = closing_index(plain, opening)
        parameters = tuple(plain[opening + 1 : closed])
        if [t.text for t in parameters] == ["void"]:
            parameters = ()
        decisive = [t for t in plain[: closed + 1] if t.text not in IGNORED_WORDS and t.kind != "string"]
        if _doubt(decisive) == _MIXED:
            reason = next(t.doubt.reason for t in decisive if t.doubt is not None)
            fault = f"what its parameters are cannot be told: {reason}"
        if of and all(t.text != "static" for t in plain):
            fault = "it is a member function that is not static; a kernel is a static one, or stands outside of a class"
        if any(of[:-1]):
            fault = "it is a member of a class inside a class template, which is not supported; take the class out"
        made = KernelDeclaration(
            name, parameters, tuple(item.body or ()), item.body is not None, line, templates, bounds, fault, _doubt(decisive),
            None if of else self._braces(item), of[-1] if of else (),
        )  # fmt: skip
        known = self.kernels.setdefault(name, [])
        key = (name, spelled_parameters(self.scope_of(name), split_commas(parameters)))
        same = self._types.get(key)
        if same is None:
            self._types[key] = len(known)
            known.append(made)
        elif made.defined:
            if known[same].defined and made.doubt:  # either definition may be the compiled one
                made = replace(made, body=(*known[same].body, *made.body), bounds=())
            known[same] = made

    def _braces(self, item: Item) -> tuple[int, int] | None:
        """Return a body's offsets in the source; None if there is none, if headers were read, or if it is undecided."""
        braces = [t for t in item.tokens if t.text in ("{", "}")] if item.body is not None and not self.unit.headers.texts else []
        if len(braces) < 2 or any(brace.doubt is not None for brace in braces[-2:]):
            return None
        start, stop = braces[-2].start, braces[-1].end
        source = self.unit.source
        return (start, stop) if source[start] == "{" and source[stop - 1] == "}" else None

    def _declared(self, tokens: Sequence[Token]) -> set[str]:
        """Return the names that a declaration defines."""
        try:
            return {d.name for d in self._here.declarators(tokens) if d.name}
        except ValueError:
            # Take the name alone; the error about the type is raised when the symbol is looked up.
            return {name for name in (_declared_name(tokens),) if name}

    def _symbols(self, tokens: list[Token], space: str) -> set[str]:
        words = [t.text for t in tokens]
        names = self._declared(tokens)
        if "extern" not in words or "=" in words:
            kind = next(word for word in ("__constant__", "__managed__", "__device__") if word in words)
            doubt = _doubt(tokens)
            for name in sorted(names, key=lambda name: words.index(name) if name in words else 0):
                if doubt and space + name in self.symbols:
                    self.scope.doubts[f"variable {space + name}"] = tokens[0].doubt.reason if tokens[0].doubt else doubt
                self.symbols[space + name] = SymbolDeclaration(space + name, tuple(tokens), kind, tokens[0].line)
        return names


def _launch_bounds(head: Sequence[Token]) -> tuple[tuple[Token, ...], str]:
    """Return the maximum threads per block of a kernel's attributes, and why it cannot be launched as other kernels are."""
    bounds: Sequence[Token] = ()
    fault = ""
    for n, token in enumerate(head[:-1]):
        parts = split_commas(head[n + 2 : closing_index(head, n + 1)]) if head[n + 1].text == "(" else []
        if not parts:
            continue
        if token.text in ("__launch_bounds__", "amdgpu_flat_work_group_size"):
            bounds = parts[0] if token.text == "__launch_bounds__" else parts[-1]
        elif token.text == "__block_size__":
            star = token._replace(kind="punct", text="*")
            axes = split_commas(parts[0][1:-1]) if parts[0][0].text == "(" else [parts[0]]
            bounds = [t for axis in axes for t in (star, star._replace(text="("), *axis, star._replace(text=")"))][1:]
            if len(parts) > 1:
                fault = (
                    f"{spell([token, *head[n + 1 : closing_index(head, n + 1) + 1]])} makes its grid count clusters, where those"
                    " of other kernels count blocks; write __cluster_dims__ and __launch_bounds__ instead"
                )
    return tuple(bounds), fault


_MIXED: Final = "a conditional that is not decided"
_STATIC: Final = re.compile(r"\bstatic\b")


def _static_variables(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the first name of each static declaration in a body, except constants, functions and shared memory."""
    for n, token in enumerate(tokens):
        if token.text != "static":
            continue
        begin = n
        while begin and tokens[begin - 1].text not in (";", "{", "}", ")", ":"):
            begin -= 1
        head = [*tokens[begin:n]]
        i = n + 1
        while i < len(tokens) and tokens[i].text not in (";", "="):
            end = closing_index(tokens, i) if tokens[i].text in OPENING else i
            if tokens[i].text != "{":
                head += tokens[i : end + 1]
            elif all(t.text not in ("struct", "class", "union", "enum") for t in head):
                break
            i = end + 1
        texts = [t.text for t in without_attributes(head)]
        name = _declared_name(head)
        function = _is_function(head) and not (i < len(tokens) and tokens[i].text == ";" and _has_values(head))
        if function or not name or {"constexpr", "__shared__", "__constant__"} & {*texts}:
            continue
        before = texts[: texts.index(name)]
        pointee = len(before) - before[::-1].index("*") if "*" in before else 0
        if "const" not in before[pointee:]:
            yield name


def _doubt(tokens: Sequence[Token]) -> str:
    """Return why it is undecided whether a declaration is compiled; `_MIXED` if this applies to only some of its tokens."""
    if all(t.doubt is None for t in tokens):
        return ""
    doubts = {t.doubt for t in tokens if t.kind != "block"}
    if len(doubts) > 1 or any(doubt is not None and not doubt.branch for doubt in doubts):
        return _MIXED
    return next((doubt.reason for doubt in doubts if doubt is not None), "")
