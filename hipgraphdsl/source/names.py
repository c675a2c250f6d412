"""Names of kernels: ``a::k``, ``R<int>::k``, ``k<float>``, and of overloads ``k(const float*)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .scope import Scope
from .tokens import Token, closing_angle, closing_index, spell, split_commas, tokenize, without_attributes
from .types import BUILTIN_WORDS, IGNORED_WORDS, KNOWN_TYPES, builtin_name


class KernelName(NamedTuple):
    """The name of a kernel, in parts.

    Attributes
    ----------
    stem : str
        Its qualified name without template arguments: ``a::R::k``.
    written : str
        The name with template arguments, without parameters: ``a::R<int>::k<float>``.
    arguments : dict of int to list
        The template arguments, by the component of the qualified name that they follow, counted from the last: 0 for ``k``.
    parameters : list or None
        The types of its parameters; None unless they are written.
    """

    stem: str
    written: str
    arguments: Mapping[int, list[list[Token]]]
    parameters: list[list[Token]] | None

    @staticmethod
    def of(text: str, where: str = "kernel name") -> KernelName:
        """Parse a name, or the `expression` of one; raises ValueError if a bracket is not closed."""
        tokens = tokenize(text, where)
        given: list[Token] | None = None
        if [t.text for t in tokens[:7]] == ["*", "(", "void", "(", "*", ")", "("]:
            close = closing_index(tokens, 6)
            given, tokens = tokens[7:close], tokens[close + 3 :]  # behind ``)&``
        stem: list[Token] = []
        found: dict[int, list[list[Token]]] = {}
        component, i = 0, 1 if tokens and tokens[0].text == "::" else 0
        begin = i
        while i < len(tokens):
            text = tokens[i].text
            if text == "(":
                close = closing_index(tokens, i)
                if close != len(tokens) - 1:
                    raise ValueError(
                        "'(' is not closed" if close == len(tokens) else f"{tokens[close + 1].text!r} is not understood"
                    )
                given, tokens = tokens[i + 1 : close], tokens[:i]
            elif text == "<":
                close = closing_angle(tokens, i)
                if close == len(tokens):
                    raise ValueError("'<' is not closed")
                found[component] = split_commas(tokens[i + 1 : close])
                i = close
            else:
                component += text == "::"
                stem.append(tokens[i])
            i += 1
        if given is not None and [t.text for t in given] == ["void"]:
            given = []
        parameters = None if given is None else split_commas(given)
        by_last = {component - n: values for n, values in found.items()}
        return KernelName(spell(stem), spell(tokens[begin:]), by_last, parameters)

    def at(self, stem: str) -> str:
        """Return the name with its template arguments where its qualified name is `stem`."""
        components = stem.split("::")
        for n, values in self.arguments.items():
            components[-1 - n] += f"<{', '.join(map(spell, values))}>"
        return "::".join(components)

    def address(self, written: str, of_types: str = "") -> str:
        """Return the C++ expression of the kernel where its name is `written`; `of_types` precedes names of its own types."""
        if self.parameters is None:
            return written
        types = ", ".join(spell(_placed(part, of_types)) for part in self.parameters)
        return f"*(void (*)({types}))&{written}"

    @property
    def expression(self) -> str:
        """The C++ expression of the kernel at the end of its source."""
        return self.address(self.written)


def _placed(part: Sequence[Token], space: str) -> list[Token | str]:
    """Return the tokens of a type with a namespace before each name that only a source can declare."""
    out: list[Token | str] = []
    for n, token in enumerate(part):
        own = token.kind == "name" and token.text not in KNOWN_TYPES.keys() | BUILTIN_WORDS | IGNORED_WORDS | {"const"}
        if own and space and (not n or part[n - 1].text != "::"):
            out.append(space)
        out.append(token)
    return out


def spelled_parameters(
    scope: Scope, parts: Sequence[Sequence[Token]], values: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the types of parameters as they are spelled at the end of the source, without the parameters' names.

    `values` holds template arguments by the parameter's name.
    """
    return tuple(_spelled_parameter(scope, part, values or {}) for part in parts)


def _spelled_parameter(scope: Scope, part: Sequence[Token], values: Mapping[str, str]) -> str:
    plain = without_attributes(part)
    plain = plain[: next((n for n, t in enumerate(plain) if t.text == "="), len(plain))]
    tokens = [t for t in plain if t.text not in IGNORED_WORDS]
    name = _name_of(scope, tokens)
    if name is not None:
        del tokens[name]
    head = next((n for n, t in enumerate(tokens) if t.text in ("*", "&", "&&", "[", "(")), len(tokens))
    for n, token in enumerate(
        tokens
    ):  # const stands before a base type or behind it, and its template arguments may have pointers
        if token.text == "<" and n < head:
            close = closing_angle(tokens, n)
            head = next((m for m in range(close, len(tokens)) if tokens[m].text in ("*", "&", "&&", "[", "(")), len(tokens))
    words = [t for t in tokens[:head] if t.text not in ("const", "struct", "class", "union", "enum")]
    texts = [t.text for t in words]
    try:
        base = builtin_name(texts) if texts and all(text in BUILTIN_WORDS for text in texts) else _resolved(scope, words, values)
    except ValueError:
        base = spell(words)
    levels: list[str] = []
    for n, token in enumerate(tokens[head:], head):
        if token.text == "[":
            first = not any(t.text == "[" for t in tokens[head:n])
            levels.append("*" if first else spell(tokens[n : closing_index(tokens, n) + 1]))
        elif token.text == "const" and levels:
            levels[-1] += " const"
        elif token.text in ("*", "&", "&&", "...") or not levels:
            levels.append(token.text)
    if levels:
        levels[-1] = levels[-1].removesuffix(" const")  # of the parameter itself, which its function's type does not have
    const = "const " if levels and any(t.text == "const" for t in tokens[:head]) else ""
    return const + base + "".join(levels)


def _name_of(scope: Scope, tokens: list[Token]) -> int | None:
    """Return the index of a parameter's name; None if it has none."""
    try:
        name = scope.declarators(tokens)[0].name
    except ValueError:  # a type that is not known: the name is the last of several
        closed = {m for n, t in enumerate(tokens) if t.text == "<" for m in range(n, min(closing_angle(tokens, n), len(tokens)))}
        names = [n for n, t in enumerate(tokens) if n not in closed and t.kind == "name" and t.text != "const"]
        names = [n for n in names if not n or tokens[n - 1].text != "::"]
        plain = [n for n in names if tokens[n].text not in BUILTIN_WORDS]
        return plain[-1] if len(names) > 1 and plain else None
    return max((n for n, t in enumerate(tokens) if t.text == name), default=None) if name else None


def _resolved(scope: Scope, words: Sequence[Token], values: Mapping[str, str]) -> str:
    """Return a base type with the full names of what the source declares, and with the values of template parameters."""
    out: list[Token | str] = []
    i = 0
    while i < len(words):
        end = i + 1
        while end + 1 < len(words) and words[end].text == "::":
            end += 2
        chain = words[i:end]
        if words[i].kind != "name":
            out.append(words[i].text)
            end = i + 1
        elif chain[0].text in values and len(chain) == 1:
            out.append(values[chain[0].text])
        else:
            out.append(scope.full(spell(chain)))
        i = end
    return spell(out)
