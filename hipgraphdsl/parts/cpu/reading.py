"""Read kernels into trees of the form of clang's (syntax.py), for compilers that print none.

The core's reader parses declarations (`source.declarations.scan`) and expressions; this module adds statements, and what trees of
clang's form need: positions, types, conversions.

A small part of C++ is read: statements, expressions and declarations of numbers, pointers to numbers and arrays of numbers,
and calls of the source's own functions and of those of device.h that are sure to take their arguments by value. Everything else
raises ValueError, and the function has no tree: a kernel without one is compiled as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from ...errors import DeclarationError
from ...source import closing_index
from ...source.declarations import Item, name_at, parameters_at, scan
from ...source.tokens import without_attributes
from .expressions import NUMBERS, Expressions
from .syntax import Node
from .tokens import read_tokens

_UNREAD: Final = frozenset({"struct", "class", "union", "enum", "using", "operator"})


def read_trees(text: str, word: str) -> list[Node]:
    """Return the trees of the functions whose names contain a word, except of those that cannot be read."""
    reader = _Reader(read_tokens(text.encode().decode("latin-1")))  # a letter for each byte, so that positions are those of clang
    found = [(node, reader.called) for node in reader.trees(word)]
    # A function that is inlined behind a further overload of what it calls might call that one.
    every = {name: len(known) for name, known in reader.functions.items()}
    return [node for node, called in found if all(every.get(name, 0) == count for name, count in called.items())]


class _Reader(Expressions):
    # -- the source -----------------------------------------------------------------------------------------------------------

    def trees(self, word: str) -> Iterator[Node]:
        """Yield the trees; what the source declares is known behind it."""
        place = {token.start: n for n, token in enumerate(self.tokens)}
        with suppress(DeclarationError):  # a bracket that is not closed: the compiler reports it
            for item in scan([token for token in self.tokens if token.kind != "directive"], ""):
                found = self.declared(item, place, word)
                if found:
                    yield found

    def declared(self, item: Item, place: dict[int, int], word: str) -> Node | None:
        """Take in what an item declares; return its tree if that is of a function that is asked for."""
        head = item.head or item.tokens[: next((n for n, t in enumerate(item.tokens) if t.text in (";", "{")), None)]
        if _UNREAD & {token.text for token in head}:
            self.records |= {token.text for token in head if token.kind == "name"}
        elif item.kind == "typedef":
            name = item.tokens[-2].text
            self.types.pop(name, None)
            kind = self.named_type(item.tokens[1:-2])
            if kind and name not in self.functions:
                self.types[name] = kind.spelling
        elif item.kind == "function":
            return self.function(item, place, "" if item.templates is not None else word)
        elif item.kind == "variable" and item.templates is None:
            plain = [t for t in without_attributes(item.tokens) if t.text not in ("extern", "inline") and t.kind != "string"]
            with suppress(ValueError):
                self.within(plain, self.declaration)
        return None

    def function(self, item: Item, place: dict[int, int], word: str) -> Node | None:
        """Take in a function's name; return its tree if its name contains a word."""
        plain = without_attributes(item.head)
        opening = parameters_at(plain)
        at = name_at(plain, opening)
        if at < 0 or item.body is None:
            return None
        name = plain[at]
        inside = {token.text for token in plain[opening : closing_index(plain, opening)]}
        named = self.named_type([t for t in plain[:at] if t.text not in ("extern", "inline") and t.kind != "string"])
        kind = named.spelling if named else ""
        self.functions.setdefault(name.text, []).append((kind, not inside & {"&", "&&"}))
        if not word or word not in name.text or not kind:
            return None
        known, self.called, self.depth = self.scopes, {}, 0
        try:
            self.scopes = [*known, {}]
            self.at = place[plain[opening].start]
            inner = list(self.listed("(", self.parameter, ")"))
            self.at = place[item.head[-1].start] + 1
            inner.append(self.compound())
            return self.node(
                "FunctionDecl", place[name.start], inner, id=f"f:{name.text}", name=name.text, type={"qualType": kind},
                loc={"offset": name.start, "tokLen": len(name.text)},
            )  # fmt: skip
        except (ValueError, LookupError, RecursionError):
            return None
        finally:
            self.scopes = known

    def parameter(self) -> Node:
        start, kind = self.at, self.specifiers()
        if kind == "void" and self.text() == ")":
            raise ValueError("no parameter")
        return self.variable(start, kind, "ParmVarDecl")

    def variable(self, start: int, kind: str, what: str = "VarDecl", facts: dict[str, Any] | None = None) -> Node:
        """Read a declarator and its initial value."""
        name = self.take()
        if name.kind != "name" or name.text in self.types:
            raise ValueError("a declarator")
        if len(self.scopes) == 1 and name.text in self.scopes[0]:  # in two namespaces
            self.scopes[0].pop(name.text)
            raise ValueError("two declarations")
        dims = ""
        while self.text() == "[":
            inside = self.inside(closing_index(self.tokens, self.at))
            if what != "VarDecl" or not inside or any(t.kind not in ("number", "punct") for t in inside):
                raise ValueError("an array")
            dims += f"[{' '.join(t.text for t in inside)}]"
        made: Node = {
            "kind": what, "id": f"{name.text}@{name.start}", "name": name.text, "type": {"qualType": kind + dims},
            "loc": {"offset": name.start, "tokLen": len(name.text)}, **(facts or {}),
        }  # fmt: skip
        if kind.split("[")[0].removeprefix("const ") == "auto" and not (self.text() == "=" and not dims):
            raise ValueError("a type")
        inner: list[Node] = []
        if "auto" not in kind:
            self.scopes[-1][name.text] = made
        if self.takes("="):
            if what != "VarDecl":
                raise ValueError("a parameter that may be left out")
            inner.append(self.initial())
            made["init"] = "c"
        if "auto" in kind:
            found = inner[0]["type"]["qualType"] if inner else ""
            if "*" in kind or (found not in NUMBERS and "*" not in found):
                raise ValueError("a type")
            made["type"] = {"qualType": ("const " if kind.startswith("const") and "*" not in found else "") + found}
            self.scopes[-1][name.text] = made
        made |= self.node(what, start, inner)
        return made

    def initial(self) -> Node:
        start = self.at
        if self.text() != "{":
            return self.value(self.single())
        return self.node("InitListExpr", start, self.listed("{", self.initial, "}"), type={"qualType": ""})

    def declaration(self) -> Node:
        start = self.at
        facts: dict[str, Any] = {}
        kind = self.specifiers(facts)
        base = kind.partition(" *")[0]
        found = [self.variable(start, kind, facts=facts)]
        while self.takes(","):
            found.append(self.variable(start, self.pointer(base), facts=facts))
        self.take(";")
        return self.node("DeclStmt", start, found)

    # -- statements -----------------------------------------------------------------------------------------------------------

    def compound(self) -> Node:
        start = self.at
        self.take("{")
        self.scopes = [*self.scopes, {}]
        inner = []
        while self.text() != "}":
            inner.append(self.statement())
        self.take()
        self.scopes = self.scopes[:-1]
        return self.node("CompoundStmt", start, inner)

    def body(self) -> Node:
        """Read the statement of an `if` or a loop, which has a scope of its own."""
        self.scopes = [*self.scopes, {}]
        found = self.statement()
        self.scopes = self.scopes[:-1]
        return found

    def statement(self) -> Node:
        start, word = self.at, self.text()
        if self.kind() == "directive":
            self.take()
            if self.text() not in ("for", "while", "do"):
                raise ValueError("a pragma")
            return self.ending("AttributedStmt", start, [self.statement()])
        if word == "{":
            return self.compound()
        if self.takes(";"):
            return self.node("NullStmt", start, [])
        if self.takes("if"):
            inner = [self.value(self.parenthesis()), self.body()]
            otherwise = self.takes("else")
            if otherwise:
                inner.append(self.body())
            return self.ending("IfStmt", start, inner, **({"hasElse": True} if otherwise else {}))
        if self.takes("while"):
            return self.ending("WhileStmt", start, [self.value(self.parenthesis()), self.body()])
        if word == "do":
            return self.do()
        if word == "for":
            return self.loop()
        if word in ("return", "break", "continue"):
            self.take()
            inner = [self.value(self.expression())] if word == "return" and self.text() != ";" else []
            found = self.node(f"{word.capitalize()}Stmt", start, inner)
        elif self.is_type() and self.text(1) != "(":
            return self.declaration()
        else:
            found = self.expression()
        self.take(";")
        return found

    def ending(self, kind: str, start: int, inner: list[Node], **more: Any) -> Node:
        """Make the node of a statement that ends where its last child does, before any semicolon."""
        made = self.node(kind, start, inner, **more)
        made["range"]["end"] = inner[-1]["range"]["end"]
        return made

    def do(self) -> Node:
        start = self.at
        self.take("do")
        body = self.body()
        self.take("while")
        made = self.node("DoStmt", start, [body, self.value(self.parenthesis())])
        self.take(";")
        return made

    def loop(self) -> Node:
        start = self.at
        self.take("for")
        self.take("(")
        self.scopes = [*self.scopes, {}]
        first: Node = {}
        if self.is_type():
            first = self.declaration()
        else:
            first = {} if self.text() == ";" else self.expression()
            self.take(";")
        condition = {} if self.text() == ";" else self.value(self.expression())
        self.take(";")
        step = {} if self.text() == ")" else self.expression()
        self.take(")")
        body = self.body()
        self.scopes = self.scopes[:-1]
        return self.ending("ForStmt", start, [first, {}, condition, step, body])
