"""Kernel bodies as syntax trees, in a subset of C++.

The subset has declarations of scalars, pointers and arrays, C expressions without aggregates, `if`, `for`, `while`, `do`,
`return`, `break`, `continue`, casts, template arguments and calls. A statement outside the subset (`switch`, `goto`, a
lambda, a reference to a variable, an undecided preprocessor branch) becomes `Unread`, together with the rest of the enclosing
braces; the statements before it are parsed as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...source import trees as syntax
from ...source.expressions import Reader
from ...source.scope import Scope
from ...source.tokens import CLOSING, Token, closing_angle, closing_index, split_commas
from ...source.types import BUILTIN_WORDS, IGNORED_WORDS


def parse_body(tokens: Sequence[Token], parameters: Sequence[str], scope: Scope) -> tuple[syntax.Block, frozenset[int]]:
    """Parse the body of a kernel from the macro-expanded tokens between its braces; its parameters are the variables 0, 1, ...

    `scope` resolves types and template arguments. Also return the variables whose address is taken: their values may change at
    any point.
    """
    parser = _Parser(tokens, parameters, scope)
    return syntax.Block(tuple(parser.statements(len(parser.tokens)))), frozenset(parser.escaped)


_ATTRIBUTES: Final = frozenset({"alignas", "__align__", "__attribute__"})
_DECLARING: Final = frozenset({"const", "auto", "__const"}) | _ATTRIBUTES | IGNORED_WORDS | BUILTIN_WORDS
_REFUSED: Final = frozenset(
    {
        "switch", "goto", "case", "default", "try", "throw", "catch", "using", "typedef", "struct", "class", "union", "enum",
        "namespace", "template", "new", "delete", "this", "operator", "asm", "__asm__", "__asm", "else", "typename", "decltype",
        "static_assert", "typeid",
    }
)  # fmt: skip


class _Parser(Reader):
    deepest = 60

    def __init__(self, tokens: Sequence[Token], parameters: Sequence[str], scope: Scope) -> None:
        super().__init__(tokens, scope.type_named)
        self.scope = scope
        self.names = [{name: n for n, name in enumerate(parameters)}]
        self.count = len(parameters)

    def take(self, wanted: str = "") -> Token:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is not None and token.doubt is not None:
            raise ValueError(token.doubt.reason)
        return super().take(wanted)

    def declare(self, name: str) -> int:
        self.names[-1][name] = self.count
        self.count += 1
        return self.count - 1

    # -- statements ----------------------------------------------------------------------------------------------------

    def statements(self, stop: int) -> list[Any]:
        """Parse statements up to the token at `stop`; one that is not understood becomes `Unread` and ends the list."""
        found: list[Any] = []
        scopes, depth = len(self.names), self.depth
        while self.at < stop:
            try:
                found += self.statement()
            except ValueError as error:
                del self.names[scopes:]
                self.depth = depth
                found.append(syntax.Unread(str(error)))
                self.at = stop
        return found

    def inner(self, read: Callable[[], Any]) -> Any:
        """Call `read` in a new nested scope."""
        self.names.append({})
        self.depth += 1
        if self.depth > self.deepest:
            raise ValueError("it is nested too deeply")
        found = read()
        self.names.pop()
        self.depth -= 1
        return found

    def braces(self) -> syntax.Block:
        stop = closing_index(self.tokens, self.at)
        self.take("{")
        found = syntax.Block(tuple(self.inner(lambda: self.statements(stop))))
        self.take("}")
        return found

    def body(self) -> Any:
        return self.braces() if self.text() == "{" else self.inner(lambda: syntax.Block(tuple(self.statement())))

    def statement(self) -> list[Any]:
        word = self.text()
        if word in _REFUSED:
            raise ValueError(f"{word!r} is not read")
        if word == "{":
            return [self.braces()]
        if word == ";":
            self.take()
            return []
        if word == "_Pragma":
            self.take()
            self.at = closing_index(self.tokens, self.at) + 1
            return []
        if word == "if":
            return [self.inner(self.branch)]
        if word in ("for", "while", "do"):
            self.take()
            return [self.inner({"for": self.counting, "while": self.repeating, "do": self.late}[word])]
        if word in ("return", "break", "continue"):
            self.take()
            self.take(";")
            return [syntax.Leave(word)]
        return self.simple()

    def branch(self) -> syntax.If:
        self.take("if")
        self.takes("constexpr")
        condition = self.parenthesis()
        then = self.body()
        return syntax.If(condition, then, self.body() if self.takes("else") else None)

    def counting(self) -> syntax.Block:
        self.take("(")
        first = [] if self.takes(";") else self.simple()
        condition = None if self.text() == ";" else self.expression()
        self.take(";")
        step = None if self.text() == ")" else self.expression()
        self.take(")")
        return syntax.Block((*first, syntax.Loop(condition, step, self.body())))

    def repeating(self) -> syntax.Loop:
        condition = self.parenthesis()
        return syntax.Loop(condition, None, self.body())

    def late(self) -> syntax.Loop:
        body = self.body()
        self.take("while")
        condition = self.parenthesis()
        self.take(";")
        return syntax.Loop(condition, None, body, late=True)

    def simple(self) -> list[Any]:
        """Parse a declaration or an expression, and its semicolon."""
        if self.declares():
            return self.declaration()
        points = self.text(1) == "(" and self.text(2) in ("*", "&")
        if points and self.slot(self.text()) < 0 and self.type_named([self.tokens[self.at]]) is not None:
            raise ValueError("a pointer to an array or to a function")
        found = self.expression()
        self.take(";")
        return [found]

    # -- declarations --------------------------------------------------------------------------------------------------

    def declares(self) -> bool:
        word = self.text()
        if self.kind() != "name" or self.slot(word) >= 0:
            return False
        if word in _DECLARING and not (word in BUILTIN_WORDS and self.text(1) == "("):
            return True
        at = self.at + 1
        while at < len(self.tokens):  # a::b<c>::d
            if self.tokens[at].text == "::":
                at += 2
            elif self.tokens[at].text == "<" and closing_angle(self.tokens, at) < len(self.tokens):
                at = closing_angle(self.tokens, at) + 1
            else:
                break
        while at < len(self.tokens) and self.tokens[at].text in ("*", "&", "const", "__restrict__", "__restrict"):
            at += 1
        if at + 1 >= len(self.tokens) or self.tokens[at].kind != "name":
            return False
        return self.tokens[at + 1].text in ("=", ";", ",", "[", "(", "{")

    def declaration(self) -> list[Any]:
        end = self.at
        while end < len(self.tokens) and self.tokens[end].text != ";":
            if self.tokens[end].text in CLOSING:  # for (auto x : range)
                raise ValueError("a declaration does not end")
            end = closing_index(self.tokens, end) + 1 if self.tokens[end].text in ("(", "[", "{") else end + 1
        tokens = self.tokens[self.at : end]
        doubt = next((t.doubt for t in tokens if t.doubt is not None), None)
        if doubt is not None or end >= len(self.tokens):
            raise ValueError(doubt.reason if doubt else "a declaration does not end")
        words = {t.text for t in tokens}
        deduced = "auto" in words
        if deduced:
            tokens = [t._replace(text="int") if t.text == "auto" else t for t in tokens]
        space = "local"
        if "__shared__" in words:
            space = "dynamic" if "extern" in words else "shared"
        elif "static" in words or "extern" in words:
            space = "static"
        try:
            declared = self.scope.declarators(tokens)
        except ValueError:
            return [self.object(tokens, end)]
        found = []
        for each in declared:
            if not each.name or (each.reference and not (each.type.const and not each.type.pointers)):
                raise ValueError("a reference to a variable")
            bounds = tuple(self.within(bound, self.single) if bound else syntax.Opaque() for bound in each.bounds)
            if each.bounds and each.type.pointers:
                bounds = (*bounds, syntax.Opaque())  # an array of pointers, or a pointer to an array
            # C++ declares the name before its initializer, but a valid initializer does not read it: parse the initializer first.
            outside = self.within(each.initializer, self.initial) if each.initializer else None
            if each.reference and outside is not None:
                outside = syntax.Opaque((syntax.AddressOf(outside),))
            kind = None if deduced else each.type
            plain = deduced or each.type.pointers or (each.type.dtype is not None and each.type.dtype.names is None)
            if not plain and outside is not None:  # a constructor may take references
                outside = syntax.Call("", _parts(outside), tokens[0].line)
            found.append(syntax.Declare(self.declare(each.name), each.name, kind, deduced, bounds, outside, space))
        self.at = end
        self.take(";")
        return found

    def object(self, tokens: list[Token], end: int) -> Any:
        """Parse one variable of unknown type, ``type name(arguments)``; its value is unknown too."""
        at = next((n for n, t in enumerate(tokens) if t.text in ("=", "(", "{")), len(tokens))
        name = tokens[at - 1]
        if not at or name.kind != "name" or any(t.text in ("&", "&&", "[", ",") for t in tokens[:at]) or name.text in _DECLARING:
            raise ValueError(f"the declaration of {name.text!r}")
        parts: tuple[Any, ...] = ()
        if at < len(tokens):
            inside = tokens[at + 1 :] if tokens[at].text == "=" else tokens[at + 1 : closing_index(tokens, at)]
            if tokens[at].text != "=" and closing_index(tokens, at) != len(tokens) - 1:
                raise ValueError(f"the declaration of {name.text!r}")
            parts = tuple(self.within(part, self.single) for part in split_commas(inside))
        self.at = end
        self.take(";")
        return syntax.Declare(
            self.declare(name.text),
            name.text,
            None,
            deduced=False,
            bounds=(),
            initializer=syntax.Call("", parts, name.line),
            space="local",
        )

    def initial(self) -> Any:
        """Parse an initializer: an expression, or values in braces."""
        if self.text() != "{":
            return self.single()
        parts = self.listed("{", self.initial, "}")
        return parts[0] if len(parts) == 1 else syntax.Opaque(parts)

    def primary(self) -> Any:
        if self.kind() == "name" and self.tokens[self.at].text in _REFUSED:
            raise ValueError(f"{self.text()!r} is not read")
        return super().primary()


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(inner for part in value.parts for inner in _parts(part)) if isinstance(value, syntax.Opaque) else (value,)
