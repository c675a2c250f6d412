"""Bodies of the functions and structs of a module's source, which its declarations leave unread."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...errors import DeclarationError
from ...kernels import Module
from ...source import Headers, TemplateParameter, Token, split_commas
from ...source.declarations import Item, parameters_of, record_name, scan
from ...source.tokens import closing_index, without_attributes
from ...source.unit import Unit


class Function(NamedTuple):
    """A function that the source defines: its parameters, and the macro-expanded tokens of its body."""

    parameters: list[list[Token]]
    body: list[Token]
    space: str  # enclosing namespaces: "a::b::"
    templates: tuple[TemplateParameter, ...] = ()


class Definitions:
    """The definitions of one source, by their names without namespaces; several of one name are left out."""

    def __init__(self, module: Module) -> None:
        self.scope = module.declared.scope
        headers = Headers(module.options, module.declared.unit.headers.texts)
        self._unit = Unit(module.source, f"module {module.name!r}", module.options, headers)
        self._functions: dict[str, list[Item]] = {}
        self._records: dict[str, list[list[Token]]] = {}
        self._addresses: dict[str, bool] = {}
        try:
            for item in scan(self._unit, self._unit.where):
                self._read(item)
        except (DeclarationError, RecursionError):
            self._functions, self._records = {}, {}

    def _read(self, item: Item) -> None:
        plain = without_attributes(item.head)
        if item.kind == "function" and item.body is not None:
            at = next((n for n, t in enumerate(plain) if t.text == "("), 0)
            if at and plain[at - 1].kind == "name":
                self._functions.setdefault(plain[at - 1].text, []).append(item)
        elif item.kind == "record" and item.record in ("struct", "class", "union"):
            self._record({record_name(item.head, item.record)}, item.body)
        elif item.kind == "typedef":
            inside = item.tokens[1:-1]
            brace = next((n for n, t in enumerate(inside) if t.text == "{"), None)
            word = next((t.text for t in inside if t.text in ("struct", "class", "union")), "")
            if brace is not None and word:
                end = closing_index(inside, brace)
                names = {part[-1].text for part in split_commas(inside[end + 1 :]) if len(part) == 1}
                self._record({record_name(inside[:brace], word), *names}, inside[brace + 1 : end])

    def _record(self, names: set[str], body: list[Token] | None) -> None:
        for name in names - {""} if body is not None else ():
            self._records.setdefault(name, []).append(body or [])

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

    def holds_addresses(self, name: str) -> bool:
        """Return whether a struct of the source has a pointer among its members, or a member that has."""
        name = name.partition("<")[0].rpartition("::")[2].strip()
        if name not in self._addresses:
            self._addresses[name] = False  # of a struct inside itself
            self._addresses[name] = any(self._pointers(body) for body in self._records.get(name, ()))
        return self._addresses[name]

    def _pointers(self, body: list[Token]) -> bool:
        try:
            tokens = self._unit.tokens_of(body)
        except DeclarationError:
            return False
        statement: list[Token] = []
        i = 0
        while i < len(tokens):
            text = tokens[i].text
            if text == ";" or (text == ":" and len(statement) == 1):  # private:
                if self._is_pointer(statement):
                    return True
                statement = []
            elif text in ("(", "{"):  # a function; what follows its body is another member
                end = closing_index(tokens, i)
                statement = [] if text == "{" else [*statement, *tokens[i : end + 1]]
                i = end
            else:
                statement.append(tokens[i])
            i += 1
        return False

    def _is_pointer(self, statement: list[Token]) -> bool:
        texts = [t.text for t in without_attributes(statement)]
        if not texts or "(" in texts or texts[0] in ("static", "typedef", "using", "friend", "template", "constexpr"):
            return False
        ends = [n for n, text in enumerate(texts) if text in ("=", "[", "{")]
        head = texts[: min(ends)] if ends else texts
        if "*" in head:
            return True
        try:
            declared = self.scope.declarators([t for t in statement if t.text != "mutable"])
        except ValueError:
            return False
        return any(each.type.pointers or self.holds_addresses(each.type.spelling) for each in declared)


@lru_cache(maxsize=64)
def definitions_of(module: Module) -> Definitions:
    """Return the definitions of a module's source."""
    return Definitions(module)
