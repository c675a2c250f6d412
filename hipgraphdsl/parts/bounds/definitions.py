"""Bodies of the functions, and what the types of a module's source are made of, which its declarations leave unread."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...errors import DeclarationError
from ...kernels import Module
from ...source import Headers, TemplateParameter, Token, split_commas, tokenize
from ...source.declarations import Item, parameters_of, record_name, scan
from ...source.tokens import closing_index, without_attributes
from ...source.types import IGNORED_WORDS
from ...source.unit import Unit


class Function(NamedTuple):
    """A function that the source defines: its parameters, and the macro-expanded tokens of its body."""

    parameters: list[list[Token]]
    body: list[Token]
    space: str  # enclosing namespaces: "a::b::"
    templates: tuple[TemplateParameter, ...] = ()


class Type(NamedTuple):
    """What a type of the source is made of: an alias of its meaning, a record of its bases and the tokens between its braces."""

    tokens: list[Token]
    body: list[Token] = []  # noqa: RUF012  # never changed


class Definitions:
    """The definitions of one source, by their names without namespaces; several functions of one name are left out."""

    def __init__(self, module: Module) -> None:
        self.scope = module.declared.scope
        headers = Headers(module.options, module.declared.unit.headers.texts)
        self._unit = Unit(module.source, f"module {module.name!r}", module.options, headers)
        self._functions: dict[str, list[Item]] = {}
        self._types: dict[str, list[Type]] = {}
        self._addresses: dict[str, bool] = {}
        try:
            for item in scan(self._unit, self._unit.where):
                self._read(item)
        except (DeclarationError, RecursionError):
            self._functions, self._types = {}, {}

    def _read(self, item: Item) -> None:
        plain = without_attributes(item.head)
        if item.kind == "function" and item.body is not None:
            at = next((n for n, t in enumerate(plain) if t.text == "("), 0)
            if at and plain[at - 1].kind == "name":
                self._functions.setdefault(plain[at - 1].text, []).append(item)
        else:
            self._type(item)

    def _type(self, item: Item) -> None:
        """Note the types that a declaration defines: a record, and aliases."""
        if item.kind == "record" and item.record != "enum" and item.body is not None:
            self._note(record_name(item.head, item.record), Type(_bases(item.head), item.body))
        elif item.kind == "using" and len(item.head) > 3 and item.head[2].text == "=":
            self._note(item.head[1].text, Type(item.head[3:-1]))
        elif item.kind == "typedef":
            inside = item.tokens[1:-1]
            brace = next((n for n, t in enumerate(inside) if t.text == "{"), None)
            if brace is None:
                for name, tokens in _declared(inside):
                    self._note(name, Type(tokens))
                return
            end, head = closing_index(inside, brace), inside[:brace]
            record = next((t.text for t in head if t.text in ("struct", "class", "union")), "")
            made = Type(_bases(head), inside[brace + 1 : end]) if record else Type([])
            self._note(record_name(head, record), made)
            for name, tokens in _declared([head[0], *inside[end + 1 :]]):
                self._note(name, Type([*tokens, *made.tokens], made.body))

    def _note(self, name: str, made: Type) -> None:
        if name:
            self._types.setdefault(name, []).append(made)

    def function(self, name: str) -> Function | None:
        """Return the one function of a name; None if there is none, several, or one that the compiler may read otherwise."""
        found = self._functions.get(name.removesuffix("<>").rpartition("::")[2], [])
        if len(found) != 1:
            return None
        item = found[0]
        if any(t.doubt is not None or (t.kind == "block" and t.start in self._unit.redefining) for t in item.tokens):
            return None
        try:
            body = self._unit.tokens_of(item.body or [])
        except DeclarationError:
            return None
        parameters = split_commas(parameters_of(without_attributes(item.head)))
        if [[t.text for t in part] for part in parameters] == [["void"]]:
            parameters = []
        return Function(parameters, body, item.space, item.templates or ())

    def holds_addresses(self, spelling: str) -> bool:
        """Return whether a value of a type has an address in it: a pointer or a reference, in a member, a base or an argument."""
        return self._hold(tokenize(spelling))

    def _hold(self, tokens: list[Token]) -> bool:
        """Return whether a value of the type that tokens spell has an address in it."""
        words = [t for t in without_attributes(tokens) if t.text not in IGNORED_WORDS and t.text != "const"]
        found = False
        for n, token in enumerate(words):
            following = words[n + 1] if n + 1 < len(words) else None
            if token.text in ("*", "&", "&&"):  # not of an expression: Vec<2 * N>
                found = found or following is None or (following.kind not in ("name", "number") and following.text != "(")
            elif token.kind == "name":
                within = self._named(token.text)  # which notes the types that are defined in this one
                found = found or (within and (following is None or following.text != "::"))
        return found

    def _named(self, name: str) -> bool:
        if name not in self._addresses:
            self._addresses[name] = False  # of a struct inside itself
            found = [self._hold(made.tokens) or self._members(made.body) for made in self._types.get(name, ())]
            self._addresses[name] = any(found)
        return self._addresses[name]

    def _members(self, body: list[Token]) -> bool:
        """Return whether a data member of a record has an address in it; note the types that the record defines."""
        try:
            items = [*scan(self._unit.tokens_of(body), self._unit.where)] if body else []
        except DeclarationError:
            return False
        for item in items:
            self._type(item)
        return any(self._member(item) for item in items)

    def _member(self, item: Item) -> bool:
        texts = {t.text for t in item.head}
        if item.kind not in ("variable", "record") or texts & {"static", "constexpr", "friend"} or item.templates is not None:
            return False
        if item.kind == "record" and item.body is not None and item.record != "enum":
            name = record_name(item.head, item.record)
            within = self._hold(_bases(item.head)) or self._members(item.body)
            declared = _declared([item.head[0], *item.trailing])
            is_member = not name or bool(item.trailing)
            return (within and is_member) or any(self._hold(tokens) for _, tokens in declared)
        return any(self._hold(tokens) for _, tokens in _declared([t for t in item.tokens if t.text != ";"]))


def _bases(head: list[Token]) -> list[Token]:
    """Return the tokens that name the bases of a record."""
    at = next((n for n, t in enumerate(head) if t.text == ":"), len(head))
    return head[at + 1 :]


def _declared(tokens: list[Token]) -> list[tuple[str, list[Token]]]:
    """Return the names that ``T a, *b[4] = {...}`` declares, each with the tokens of its type, array bounds left out."""
    found: list[tuple[str, list[Token]]] = []
    base: list[Token] = []
    for part in split_commas(without_attributes(tokens)):
        end = next((n for n, t in enumerate(part) if t.text in ("=", "[", "{", "(", ":")), len(part))
        closed = closing_index(part, end)
        if [t.text for t in (*part[end : end + 1], *part[closed + 1 : closed + 2])] == ["(", "["]:  # T (*p)[4]
            part = [*part[:end], *part[end + 1 : closed]]
            end = len(part)
        named = end > (not found) and part[end - 1].kind == "name"
        kind = [*base, *part[: end - named]]
        if not found:
            base = [t for n, t in enumerate(kind) if any(later.kind == "name" for later in kind[n:])]
        found.append((part[end - 1].text if named else "", kind))
    return found


@lru_cache(maxsize=64)
def definitions_of(module: Module) -> Definitions:
    """Return the definitions of a module's source."""
    return Definitions(module)
