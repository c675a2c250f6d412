"""Name lookup for declarations, and the declarators that give names to types."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from .tokens import Token, closing_angle, closing_index, spell, split_commas, tokenize, without_attributes
from .types import BUILTIN_WORDS, IGNORED_WORDS, KNOWN_TYPES, CType, Value, builtin_name, known_type, natural_alignment

_VALUES: Final = frozenset({"-", "+", "!", "~", "{", "&", "true", "false", "nullptr", "sizeof", "NULL"})


def are_values(inside: Sequence[Token]) -> bool:
    """Return whether parentheses after a name hold values and thus declare a variable, rather than a function's parameters.

    Names alone are ambiguous and count as types.
    """
    return bool(inside) and (inside[0].kind in ("number", "string", "char") or inside[0].text in _VALUES)


@dataclass(frozen=True, slots=True)
class Declarator:
    """What a declaration specifies for one name: its type, the name and the tokens of each array bound."""

    type: CType
    name: str
    bounds: tuple[tuple[Token, ...], ...] = ()
    reference: bool = False
    initializer: tuple[Token, ...] = ()


class Constant(NamedTuple):
    """A named integer constant: its expression, and the bits and signedness of its type if that is written."""

    tokens: Sequence[Token]
    bits: int = 0
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """A template parameter; `type` tells whether it is a type or a number."""

    name: str
    type: bool
    spelling: str
    default: tuple[Token, ...] = ()


class AliasTemplate(NamedTuple):
    """``template<class T> using V = T*;``: its parameters, its meaning, the scope to resolve the meaning in, and any doubt."""

    parameters: Sequence[TemplateParameter]
    meaning: Sequence[Token]
    where: Scope
    doubt: str


class Scope:
    """The names visible to a declaration: aliases, constants, structs and template arguments, each by its full name.

    `space` holds the enclosing namespaces, ``"a::b::"``. An alias or a constant is stored with the scope in which its own tokens
    are resolved. `doubts` maps each name whose meaning depends on an undecided condition to the reason.
    """

    def __init__(self, structs: Mapping[str, np.dtype[Any]]) -> None:
        self.space = ""
        self.aliases: MutableMapping[str, tuple[Sequence[Token], Scope]] = {}
        self.constants: MutableMapping[str, tuple[Constant, Scope]] = {}
        self.opaque: MutableMapping[str, str] = {}
        self.doubts: MutableMapping[str, str] = {}
        self.ambiguous: set[str] = set()  # constants that are defined more than once
        self.templates: dict[str, AliasTemplate] = {}  # by full name; `opaque` has these names too
        self.structs = structs
        self._named: dict[str, list[str]] = {}  # full names by their last component
        self._local = False

    def at(self, space: str) -> Scope:
        """Return the scope of a declaration in other namespaces."""
        other = copy(self)
        other.space = space
        return other

    def inner(self) -> Scope:
        """Return a scope inside this one, to which template arguments or local names can be added."""
        inside = copy(self)
        inside.aliases = ChainMap({}, self.aliases)
        inside.constants = ChainMap({}, self.constants)
        inside.ambiguous = set(self.ambiguous)
        inside._local = True
        return inside

    def full(self, name: str) -> str:
        """Resolve a name to its full name.

        Look in the enclosing namespaces, then in all others (for `using`, inline namespaces and namespace aliases). An unknown
        name is returned unchanged. Raises ValueError if several namespaces declare it with different meanings.
        """
        around = [] if name.startswith("::") else self.space.split("::")[:-1]
        name = name.removeprefix("::")
        for n in range(len(around), -1, -1):
            key = "".join(f"{part}::" for part in around[:n]) + name
            if key in self.aliases or key in self.constants or key in self.opaque:
                return key
        qualifier, _, last = name.rpartition("::")
        if last in KNOWN_TYPES or "<" in name or (qualifier and self._is_class(qualifier)):
            return name
        known = [key for key in self._named.get(last, []) if "::" in key]
        found = [key for key in known if key.endswith(f"::{name}")] or known
        if len({self._meaning(key) for key in found}) > 1:
            raise ValueError(f"{name!r} may be {' or '.join(map(repr, found))}; write it with its namespace")
        return found[0] if found else name

    def _is_class(self, name: str) -> bool:
        """Return whether a name is a type with members, whose declarations are not parsed."""
        key = self.full(name)
        return key in self.aliases or self.opaque.get(key) == "struct"

    def _meaning(self, key: str) -> str:
        if key in self.aliases:
            return spell(self.aliases[key][0])
        return spell(self.constants[key][0].tokens) if key in self.constants else self.opaque[key]

    def bind(self, name: str, meaning: Sequence[Token] | Constant | str, where: Scope | None = None) -> None:
        """Bind a name in this scope; the tokens of its meaning are resolved in the scope `where`, by default this one."""
        key = self.space + name
        if isinstance(meaning, str):
            self.opaque[key] = meaning
        elif isinstance(meaning, Constant):
            self.constants[key] = meaning, where or self
        else:
            self.aliases[key] = meaning, where or self
        if not self._local and key not in self._named.setdefault(name, []):
            self._named[name].append(key)

    def bind_parameter(self, parameter: TemplateParameter, value: Sequence[Token], where: Scope) -> None:
        """Bind a template parameter to an argument, whose tokens are resolved in the scope `where`; raises ValueError."""
        if parameter.type:
            where.specifiers(value)
            self.bind(parameter.name, value, where)
        else:
            number = value[0]._replace(kind="number", text=str(where.evaluate(value)))
            words = tokenize(parameter.spelling)[:-1]
            self.define_constants([*words, value[0]._replace(kind="name", text=parameter.name),
                                   number._replace(kind="punct", text="="), number])  # fmt: skip

    def _alias_of(self, template: AliasTemplate, words: Sequence[Token]) -> CType:
        """Return the type that an alias template resolves to with the arguments of ``name<...>``; raises ValueError."""
        if template.doubt:
            raise ValueError(template.doubt)
        scope, given = template.where.inner(), split_commas(words[1 + [w.text for w in words].index("<") : -1])
        values: dict[str, Sequence[Token]] = {}
        for n, parameter in enumerate(template.parameters):
            value, where = (given[n], self) if n < len(given) else (parameter.default, scope)
            if not value or "..." in parameter.spelling:
                raise ValueError(f"type {spell(words)!r} has no argument for ({parameter.spelling}), or that takes several")
            if parameter.name:
                scope.bind_parameter(parameter, value, where)
                values[parameter.name] = [token for token in value if token.text != "const"]
        found, _ = scope.specifiers(template.meaning)
        return replace(found, spelling=spell(values.get(found.spelling, [found.spelling])))

    def define(self, name: str, meaning: Sequence[Token] | Constant | str, doubt: str = "") -> None:
        """Define a name from a declaration: the tokens of a type, a constant, or ``"struct"`` or ``"enum"``.

        With `doubt`, the declaration may not be compiled; if the name also has another meaning, its use raises ValueError.
        """
        key = self.space + name
        if not isinstance(meaning, str):
            tokens = meaning.tokens if isinstance(meaning, Constant) else meaning
            own = next((t.doubt.reason for t in tokens if t.doubt is not None and not t.doubt.branch), "")
            if own or (doubt and (key in self.aliases or key in self.constants or name in KNOWN_TYPES)):
                self.doubts[key] = own or doubt
            elif not doubt:
                self.doubts.pop(key, None)
            if isinstance(meaning, Constant) and key in self.constants and self._meaning(key) != spell(tokens):
                self.ambiguous.add(key)
        self.bind(name, meaning)

    def define_constants(self, tokens: Sequence[Token], doubt: str = "") -> None:
        """Define the constants declared by ``const int n = 4, m = n;``."""
        try:
            for found in self.declarators(tokens):
                bits, unsigned = found.type.integer
                if bits and found.initializer and not found.bounds:
                    value = found.initializer
                    if value[0].text == "{":
                        value = value[1 : closing_index(value, 0)]
                    self.define(found.name, Constant(value, bits, unsigned), doubt)
        except ValueError:  # auto, or a type that is not known
            for n, token in enumerate(tokens):
                if token.text == "=" and n and tokens[n - 1].kind == "name":
                    self.define(tokens[n - 1].text, Constant(tokens[n + 1 :]), doubt)
                    return

    def _value(self, name: str, busy: frozenset[int] = frozenset()) -> Value | int | None:
        """Return the value of a name, or None for a name in `busy`, whose value is being computed already (a cycle)."""
        key = self.full(name)
        if key in self.doubts:
            raise ValueError(self.doubts[key])
        found = self.constants.get(key)
        if found is None or not found[0].tokens or id(found) in busy:
            return None
        from .constants import constant

        known, where = found
        value = constant(known.tokens, lambda inner: where._value(inner, busy | {id(found)}), where.type_named)
        return value.converted(known.bits, known.unsigned) if known.bits else value.number

    def constant(self, name: str) -> Value | None:
        """Return the value of a named constant with a written type; None if there is none, or if it is ambiguous."""
        try:
            value = None if self.full(name) in self.ambiguous else self._value(name)
        except ValueError:
            return None
        return value if isinstance(value, Value) else None

    def evaluate(self, tokens: Sequence[Token]) -> int:
        """Evaluate an integer constant expression; raises ValueError."""
        doubt = next((t.doubt for t in tokens if t.doubt is not None), None)
        if doubt is not None:
            raise ValueError(doubt.reason)
        from .constants import constant

        return constant(tokens, self._value, self.type_named).number

    def initializes(self, inside: Sequence[Token]) -> bool:
        """Return whether parentheses after a name hold exactly one value and thus declare a variable, not a function."""
        try:
            self.evaluate(inside)
        except ValueError:
            return are_values(inside) and len(split_commas(inside)) == 1
        return True

    def type_named(self, words: Sequence[Token]) -> CType | None:
        """Return the type that the tokens name, pointers included; None if it is unknown, or if tokens are left over."""
        try:
            kind, rest = self.specifiers(words)
        except ValueError:
            return None
        return None if rest else kind

    def named_type(self, words: Sequence[Token], busy: frozenset[int] = frozenset()) -> CType:
        """Resolve the tokens of a base type, ``unsigned long``, ``std::complex<float>``; raises ValueError."""
        spelling = spell(words)
        texts = [w.text for w in words]
        if texts and all(text in BUILTIN_WORDS for text in texts):
            return replace(KNOWN_TYPES[builtin_name(texts)], spelling=spelling)
        short = spelling
        for prefix in ("::", "std::", "hip::", "cuda::std::"):
            if short.startswith(prefix) and "complex" not in short:
                short = short[len(prefix) :]
        simple = short.rpartition("::")[2] if "<" not in short else short
        key = short if "<" in short else self.full(short)
        if key in self.doubts:
            raise ValueError(self.doubts[key])
        known = next((self.structs[name] for name in (short, simple) if name in self.structs), None)
        if known is not None:
            return CType(spelling, known, 1, known.itemsize, natural_alignment(known))
        template = self.templates.get(self.full(spelling.partition("<")[0])) if texts[-1:] == [">"] else None
        if template is not None:
            try:
                return self._alias_of(template, words)
            except RecursionError:
                raise ValueError(f"type {spelling!r} stands for itself") from None
        alias = self.aliases.get(key)
        if alias is not None and id(alias) not in busy:
            inner, _ = alias[1].specifiers(alias[0], busy | {id(alias)})
            return inner if inner.pointers or inner.opaque else replace(inner, spelling=spelling)
        if key in self.opaque:
            return CType(spelling, opaque=self.opaque[key])
        for name in (short, simple):
            builtin = known_type(name)
            if builtin is not None:
                return replace(builtin, spelling=spelling)
        raise ValueError(
            f"type {spelling!r} is not known; define it in the source with typedef, using or #define, or give its "
            f"layout with Module(structs={{{simple!r}: numpy dtype}})"
        )

    def specifiers(self, tokens: Sequence[Token], busy: frozenset[int] = frozenset()) -> tuple[CType, list[Token]]:
        """Parse the type at the head of a declaration; return it, pointers included, and the remaining tokens.

        Raises ValueError.
        """
        base, rest = self._base(without_attributes(tokens), busy)
        n = next((n for n, t in enumerate(rest) if t.text not in ("*", "const") and t.text not in IGNORED_WORDS), len(rest))
        return self._declarator(base, rest[:n]).type, rest[n:]

    def _base(self, tokens: list[Token], busy: frozenset[int] = frozenset()) -> tuple[CType, list[Token]]:
        """Parse a type without the pointers after it, each of which belongs to one declarator."""
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
        # Template arguments may be aliases of other types: complex<T>.
        words = [part for n, w in enumerate(words) for part in self._argument(w, words[n - 1].text if n else "::")]
        try:
            base = self.named_type(words, busy)
        except ValueError:
            if not elaborated:
                raise
            base = CType(spell(words), opaque="enum" if elaborated == "enum" else "struct")
        if base.pointers == 0:
            base = replace(base, const=base.const or const)
        elif const:
            base = replace(base, const_pointers=base.const_pointers | {base.pointers})
        return base, tokens[i:]

    def _argument(self, word: Token, before: str) -> Sequence[Token]:
        """Return the tokens that one token of a type's name resolves to; `before` is the token before it."""
        alias = self.aliases.get(self.full(word.text)) if before != "::" and word.kind == "name" else None
        return [word] if alias is None else alias[0]

    def declarators(self, tokens: Sequence[Token]) -> list[Declarator]:
        """Parse ``type a, *b[4] = {...}``; raises ValueError."""
        base, rest = self._base(without_attributes(tokens))
        return [self._declarator(base, part) for part in split_commas(rest)] or [Declarator(base, "")]

    def _declarator(self, kind: CType, tokens: list[Token]) -> Declarator:
        initializer: list[Token] = []
        depth = 0
        for n, token in enumerate(tokens):
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if depth:
                continue
            if token.text == "=" or token.text == "{":
                initializer = tokens[n + 1 :] if token.text == "=" else tokens[n:]
                tokens = tokens[:n]
                break
            if token.text == ":":  # a bit field
                tokens = tokens[:n]
                break
        pointers, name, reference = kind.pointers, "", False
        bounds: list[tuple[Token, ...]] = []
        levels = set(kind.const_pointers)
        i = 0
        while i < len(tokens):
            text = tokens[i].text
            if text == "*":
                pointers += 1
            elif text == "const" and not name:
                levels.add(pointers)
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
                if name and end + 1 == len(tokens) and self.initializes(inside):
                    initializer = inside
                    break
                if name or (end + 1 < len(tokens) and tokens[end + 1].text == "("):
                    raise ValueError("functions and pointers to functions can be neither kernel parameters nor symbols")
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
        kind = replace(kind, pointers=pointers, const_pointers=frozenset(levels & set(range(1, pointers))))
        return Declarator(kind, name, tuple(bounds), reference, tuple(initializer))
