"""Read kernels into trees of the form of clang's (syntax.py), for compilers that print none.

A small part of C++ is read: statements, expressions and declarations of numbers, pointers to numbers and arrays of numbers,
and calls of the source's own functions and of those of device.h that are sure to take their arguments by value. Everything else
raises `Unknown`, and the function has no tree: a kernel without one is compiled as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ...source import closing_angle
from .expressions import NUMBERS, Expressions
from .syntax import Node
from .uniform import Unknown


def read_trees(text: str, word: str) -> list[Node]:
    """Return the trees of the functions whose names contain a word, except of those that cannot be read."""
    reader = _Reader(text)
    found = [(node, reader.called) for node in reader.trees(word)]
    # A function that is inlined behind a further overload of what it calls might call that one.
    every = {name: len(known) for name, known in reader.functions.items()}
    return [node for node, called in found if all(every.get(name, 0) == count for name, count in called.items())]


class _Reader(Expressions):
    # -- the source -----------------------------------------------------------------------------------------------------------

    def trees(self, word: str) -> Iterator[Node]:
        """Yield the trees; what the source declares is known behind it."""
        while self.i < len(self.tokens):
            start = self.i
            end = self.item()
            if self.tokens[end].text == "{" and self.is_scope(start, end):
                self.i = end + 1
                continue
            found = self.declared(start, end, word)
            if found:
                yield found
            self.i = end + 1 if self.tokens[end].text != "{" else self.closing[end] + 1

    def item(self) -> int:
        """Return the index of the semicolon or the brace that ends what begins here."""
        n, tokens = self.i, self.tokens
        while n < len(tokens) - 1 and tokens[n].text not in (";", "{", "}") and tokens[n].kind != "directive":
            n = self.closing[n] + 1 if tokens[n].text in ("(", "[") else n + 1
        return min(n, len(tokens) - 1)

    def is_scope(self, start: int, brace: int) -> bool:
        words = [t.text for t in self.tokens[start:brace]]
        return "namespace" in words or (words[:1] == ["extern"] and len(words) == 2)

    def declared(self, start: int, end: int, word: str) -> Node | None:
        """Take in what an item declares; return its tree if that is of a function that is asked for."""
        tokens = self.tokens
        texts = [t.text for t in tokens[start:end]]
        self.i = start
        template = texts[:1] == ["template"]
        if template:
            start = min(closing_angle(tokens, start + 1) + 1, end)
        if {"struct", "class", "union", "enum", "using", "operator"} & {t.text for t in tokens[start:end]}:
            self.records |= {t.text for t in tokens[start:end] if t.kind == "name"}
            return None
        if texts[:1] == ["typedef"]:
            self.i += 1
            kind = ""
            with suppress(Unknown):
                kind = self.kind()
            self.types.pop(texts[-1], None)
            if kind and self.i == end - 1 and texts[-1] not in self.functions:
                self.types[texts[-1]] = kind
            return None
        opening = next((n for n in range(start + 1, end) if self.is_head(n)), None)
        if opening is not None:
            return self.function(opening, end, "" if template else word)
        if tokens[end].text == ";":
            with suppress(Unknown):
                self.attributes()
                self.declaration()
        return None

    def is_head(self, n: int) -> bool:
        before = self.tokens[n - 1]
        return self.tokens[n].text == "(" and before.kind == "name" and before.text not in ("__attribute__", "alignas")

    def attributes(self) -> None:
        while self.at("extern", "__attribute__", "inline", "static") or self.token.kind == "string":
            if self.take().text == "__attribute__":
                self.i = self.closing[self.i] + 1

    def function(self, opening: int, end: int, word: str) -> Node | None:
        """Take in a function's name; return its tree if its name contains a word."""
        tokens = self.tokens
        name = tokens[opening - 1]
        inside = {t.text for t in tokens[opening : self.closing[opening]]}
        kind = ""
        with suppress(Unknown):
            self.attributes()
            kind = self.kind()
            self.attributes()
            kind = kind if self.i == opening - 1 else ""
        if tokens[end].text == "{":
            self.functions.setdefault(name.text, []).append((kind, not inside & {"&", "&&"}))
        if not word or word not in name.text or tokens[end].text != "{" or not kind:
            return None
        known, self.called = self.scopes, {}
        try:
            self.scopes = [*known, {}]
            self.i = opening + 1
            inner = []
            while not self.at(")"):
                inner.append(self.parameter())
                if not self.at(")"):
                    self.expect(",")
            self.i = end
            inner.append(self.compound())
            return self.node(
                "FunctionDecl", opening - 1, inner, id=f"f:{name.text}", name=name.text, type={"qualType": kind},
                loc={"offset": name.start, "tokLen": len(name.text)},
            )  # fmt: skip
        except (Unknown, LookupError, RecursionError):
            return None
        finally:
            self.scopes = known

    def parameter(self) -> Node:
        start = self.i
        kind = self.kind()
        if kind == "void" and self.at(")"):
            raise Unknown("no parameter")
        return self.variable(start, kind, "ParmVarDecl")

    def variable(self, start: int, kind: str, what: str = "VarDecl", facts: dict[str, Any] | None = None) -> Node:
        """Read a declarator and its initial value."""
        name = self.take()
        if name.kind != "name" or name.text in self.types:
            raise Unknown("a declarator")
        if len(self.scopes) == 1 and name.text in self.scopes[0]:  # in two namespaces
            self.scopes[0].pop(name.text)
            raise Unknown("two declarations")
        dims = ""
        while self.at("["):
            inside = self.tokens[self.i + 1 : self.closing[self.i]]
            if what != "VarDecl" or not inside or any(t.kind not in ("number", "punct") for t in inside):
                raise Unknown("an array")
            dims += f"[{' '.join(t.text for t in inside)}]"
            self.i = self.closing[self.i] + 1
        made: Node = {
            "kind": what, "id": f"{name.text}@{name.start}", "name": name.text, "type": {"qualType": kind + dims},
            "loc": {"offset": name.start, "tokLen": len(name.text)}, **(facts or {}),
        }  # fmt: skip
        if kind.split("[")[0].removeprefix("const ") == "auto" and not (self.at("=") and not dims):
            raise Unknown("a type")
        inner: list[Node] = []
        if "auto" not in kind:
            self.scopes[-1][name.text] = made
        if self.at("="):
            if what != "VarDecl":
                raise Unknown("a parameter that may be left out")
            self.take()
            inner.append(self.initial())
            made["init"] = "c"
        if "auto" in kind:
            found = inner[0]["type"]["qualType"] if inner else ""
            if "*" in kind or (found not in NUMBERS and "*" not in found):
                raise Unknown("a type")
            made["type"] = {"qualType": ("const " if kind.startswith("const") and "*" not in found else "") + found}
            self.scopes[-1][name.text] = made
        made |= self.node(what, start, inner)
        return made

    def initial(self) -> Node:
        if not self.at("{"):
            return self.value(self.assignment())
        start = self.i
        self.take()
        inner = []
        while not self.at("}"):
            inner.append(self.initial())
            if not self.at("}"):
                self.expect(",")
        self.take()
        return self.node("InitListExpr", start, inner, type={"qualType": ""})

    def declaration(self) -> Node:
        start = self.i
        facts: dict[str, Any] = {}
        kind = self.kind(facts)
        base = kind.partition(" *")[0]
        found = [self.variable(start, kind, facts=facts)]
        while self.at(","):
            self.take()
            found.append(self.variable(start, self.pointer(base), facts=facts))
        self.expect(";")
        return self.node("DeclStmt", start, found)

    # -- statements -----------------------------------------------------------------------------------------------------------

    def compound(self) -> Node:
        start = self.i
        self.expect("{")
        self.scopes = [*self.scopes, {}]
        inner = []
        while not self.at("}"):
            inner.append(self.statement())
        self.take()
        self.scopes = self.scopes[:-1]
        return self.node("CompoundStmt", start, inner)

    def single(self) -> Node:
        """Read the statement of an `if` or a loop, which has a scope of its own."""
        self.scopes = [*self.scopes, {}]
        found = self.statement()
        self.scopes = self.scopes[:-1]
        return found

    def statement(self) -> Node:
        start, token = self.i, self.token
        if token.kind == "directive":
            self.take()
            if not self.at("for", "while", "do"):
                raise Unknown("a pragma")
            return self.ending("AttributedStmt", start, [self.statement()])
        if self.at("{"):
            return self.compound()
        if self.at(";"):
            self.take()
            return self.node("NullStmt", start, [])
        if self.at("if"):
            self.take()
            inner = [self.condition(), self.single()]
            otherwise = self.at("else")
            if otherwise:
                self.take()
                inner.append(self.single())
            return self.ending("IfStmt", start, inner, **({"hasElse": True} if otherwise else {}))
        if self.at("while"):
            self.take()
            return self.ending("WhileStmt", start, [self.condition(), self.single()])
        if self.at("do"):
            return self.do()
        if self.at("for"):
            return self.loop()
        if self.at("return", "break", "continue"):
            self.take()
            inner = [self.value(self.comma())] if token.text == "return" and not self.at(";") else []
            found = self.node(f"{token.text.capitalize()}Stmt", start, inner)
        elif self.is_type() and self.tokens[self.i + 1].text != "(":
            return self.declaration()
        else:
            found = self.comma()
        self.expect(";")
        return found

    def ending(self, kind: str, start: int, inner: list[Node], **more: Any) -> Node:
        """Make the node of a statement that ends where its last child does, before any semicolon."""
        made = self.node(kind, start, inner, **more)
        made["range"]["end"] = inner[-1]["range"]["end"]
        return made

    def condition(self) -> Node:
        self.expect("(")
        found = self.value(self.comma())
        self.expect(")")
        return found

    def do(self) -> Node:
        start = self.i
        self.take()
        body = self.single()
        self.expect("while")
        asked = self.condition()
        made = self.node("DoStmt", start, [body, asked])
        self.expect(";")
        return made

    def loop(self) -> Node:
        start = self.i
        self.take()
        self.expect("(")
        self.scopes = [*self.scopes, {}]
        first: Node = {}
        if self.is_type():
            first = self.declaration()
        else:
            first = {} if self.at(";") else self.comma()
            self.expect(";")
        condition = {} if self.at(";") else self.value(self.comma())
        self.expect(";")
        step = {} if self.at(")") else self.comma()
        self.expect(")")
        body = self.single()
        self.scopes = self.scopes[:-1]
        return self.ending("ForStmt", start, [first, {}, condition, step, body])
