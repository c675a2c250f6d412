"""Bodies of kernels as syntax trees, in a subset of C++.

Understood are declarations of scalars, pointers and arrays, expressions of C without aggregates, `if`, `for`, `while`, `do`,
`return`, `break`, `continue`, casts, templates' arguments and calls. A statement outside of the subset (`switch`, `goto`, a
lambda, a reference to a variable, a doubtful branch of the preprocessor) becomes `Unread`, together with the rest of the braces
around it: what stands before it keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from . import trees as syntax
from .expressions import LEVELS, WORDS, Value, constant
from .tokens import CLOSING, Token, closing_angle, closing_index, split_commas
from .types import BUILTIN_WORDS, IGNORED_WORDS, CType, Scope


def parse_body(tokens: Sequence[Token], parameters: Sequence[str], scope: Scope) -> tuple[syntax.Block, frozenset[int]]:
    """Read the body of a kernel from the tokens between its braces, macros expanded; its parameters are the variables 0, 1, ...

    `scope` has types, and arguments of the template. Returns also the variables whose address is taken, so that their values may
    change anywhere.
    """
    parser = _Parser(tokens, parameters, scope)
    return syntax.Block(tuple(parser.statements(len(parser.tokens)))), frozenset(parser.escaped)


class _NotUnderstood(ValueError):
    pass


_ASSIGNMENTS: Final = {"=": "", **{f"{op}=": op for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")}}
_CASTS: Final = ("static_cast", "reinterpret_cast", "const_cast")
_ATTRIBUTES: Final = frozenset({"alignas", "__align__", "__attribute__"})
_DECLARING: Final = frozenset({"const", "auto", "__const"}) | _ATTRIBUTES | IGNORED_WORDS | BUILTIN_WORDS
_REFUSED: Final = frozenset(
    {
        "switch", "goto", "case", "default", "try", "throw", "catch", "using", "typedef", "struct", "class", "union", "enum",
        "namespace", "template", "new", "delete", "this", "operator", "asm", "__asm__", "__asm", "else", "typename", "decltype",
        "static_assert", "typeid",
    }
)  # fmt: skip
_DEEPEST: Final = 60


class _Parser:
    def __init__(self, tokens: Sequence[Token], parameters: Sequence[str], scope: Scope) -> None:
        self.tokens = list(tokens)
        self.scope = scope
        self.at = 0
        self.names: list[dict[str, int]] = [{name: n for n, name in enumerate(parameters)}]
        self.count = len(parameters)
        self.escaped: set[int] = set()
        self.depth = 0

    # -- tokens --------------------------------------------------------------------------------------------------------

    def text(self, ahead: int = 0) -> str:
        at = self.at + ahead
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        return WORDS.get(token.text, token.text) if token.kind == "name" else token.text

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> Token:
        if self.at >= len(self.tokens):
            raise _NotUnderstood("the body ends too early")
        token = self.tokens[self.at]
        if token.doubt is not None:
            raise _NotUnderstood(token.doubt.reason)
        if wanted and token.text != wanted:
            raise _NotUnderstood(f"{token.text!r} stands where {wanted!r} is expected")
        self.at += 1
        return token

    def takes(self, text: str) -> bool:
        found = self.text() == text
        if found:
            self.take()
        return found

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 0

    def slot(self, name: str) -> int:
        return next((names[name] for names in reversed(self.names) if name in names), -1)

    def declare(self, name: str) -> int:
        self.names[-1][name] = self.count
        self.count += 1
        return self.count - 1

    # -- statements ----------------------------------------------------------------------------------------------------

    def statements(self, stop: int) -> list[Any]:
        """Read up to the token at `stop`; what is not understood ends the list."""
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
        """Read something with a scope of its own."""
        self.names.append({})
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotUnderstood("it is nested too deeply")
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
            raise _NotUnderstood(f"{word!r} is not read")
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

    def parenthesis(self) -> Any:
        """Read a condition in parentheses; one that declares is not read."""
        self.take("(")
        found = self.expression()
        self.take(")")
        return found

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
        """Read a declaration or an expression, and its semicolon."""
        if self.declares():
            return self.declaration()
        points = self.text(1) == "(" and self.text(2) in ("*", "&")
        if points and self.slot(self.text()) < 0 and self.value_type(self.tokens[self.at]) is not None:
            raise _NotUnderstood("a pointer to an array or to a function")
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
                raise _NotUnderstood("a declaration does not end")
            end = closing_index(self.tokens, end) + 1 if self.tokens[end].text in ("(", "[", "{") else end + 1
        tokens = self.tokens[self.at : end]
        doubt = next((t.doubt for t in tokens if t.doubt is not None), None)
        if doubt is not None or end >= len(self.tokens):
            raise _NotUnderstood(doubt.reason if doubt else "a declaration does not end")
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
                raise _NotUnderstood("a reference to a variable")
            bounds = tuple(self.within(list(bound), self.single) if bound else syntax.Opaque() for bound in each.bounds)
            if each.bounds and each.type.pointers:
                bounds = (*bounds, syntax.Opaque())  # of pointers, or a pointer to an array
            # C++ declares the name before its initializer, which may not use it.
            outside = self.within(list(each.initializer), self.initial) if each.initializer else None
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
        """Read one variable of a type that is not known, ``type name(arguments)``: its value is not known either."""
        at = next((n for n, t in enumerate(tokens) if t.text in ("=", "(", "{")), len(tokens))
        name = tokens[at - 1]
        if not at or name.kind != "name" or any(t.text in ("&", "&&", "[", ",") for t in tokens[:at]) or name.text in _DECLARING:
            raise _NotUnderstood(f"the declaration of {name.text!r}")
        parts: tuple[Any, ...] = ()
        if at < len(tokens):
            inside = tokens[at + 1 :] if tokens[at].text == "=" else tokens[at + 1 : closing_index(tokens, at)]
            if tokens[at].text != "=" and closing_index(tokens, at) != len(tokens) - 1:
                raise _NotUnderstood(f"the declaration of {name.text!r}")
            parts = tuple(self.within(part, self.single) for part in split_commas(inside))
        self.at = end
        self.take(";")
        return syntax.Declare(self.declare(name.text), name.text, None, False, (), syntax.Call("", parts, name.line), "local")

    def within(self, tokens: list[Token], read: Callable[[], Any]) -> Any:
        """Read all of some tokens."""
        kept, self.tokens, self.at = (self.tokens, self.at), tokens, 0
        try:
            found = read()
            if self.at != len(self.tokens):
                raise _NotUnderstood(f"{self.text()!r} is not understood")
        finally:
            self.tokens, self.at = kept
        return found

    def initial(self) -> Any:
        """Read an initializer: an expression, or values in braces."""
        if self.text() != "{":
            return self.single()
        parts = self.listed("{", self.initial, "}")
        return parts[0] if len(parts) == 1 else syntax.Opaque(parts)

    def listed(self, opening: str, read: Callable[[], Any], closing: str) -> tuple[Any, ...]:
        """Read what commas separate between brackets."""
        self.take(opening)
        found = []
        while self.text() != closing:
            found.append(read())
            if not self.takes(","):
                break
        self.take(closing)
        return tuple(found)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def expression(self) -> Any:
        found = self.single()
        while self.takes(","):
            found = syntax.Binary(",", found, self.single())
        return found

    def single(self) -> Any:
        """Read an expression without commas."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotUnderstood("it is nested too deeply")
        found = self.binary(1)
        if self.takes("?"):
            then = self.expression()
            self.take(":")
            found = syntax.Choice(found, then, self.single())
        elif (assigned := self.operator()) in _ASSIGNMENTS:
            self.skip_operator(assigned)
            found = syntax.Assign(_ASSIGNMENTS[assigned], found, self.single())
        self.depth -= 1
        return found

    def operator(self) -> str:
        """Return the operator that comes next; a shift to the right is several tokens."""
        text = self.text()
        if text == ">" and self.text(1) in (">", ">="):
            return text + self.text(1)
        return text

    def skip_operator(self, operator: str) -> None:
        self.take()
        if operator in (">>", ">>="):
            self.take()

    def binary(self, level: int) -> Any:
        left = self.unary()
        while (known := LEVELS.get(operator := self.operator())) is not None and known >= level:
            self.skip_operator(operator)
            left = syntax.Binary(operator, left, self.binary(known + 1))
        return left

    def unary(self) -> Any:
        line, text = self.line, self.text()
        if self.kind() == "punct" or text in ("!", "~"):
            if text in ("+", "-", "!", "~"):
                self.take()
                return syntax.Unary(text, self.unary())
            if text == "*":
                self.take()
                return syntax.Index(self.unary(), Value(0), line)
            if text == "&":
                self.take()
                operand = self.unary()
                self.escaped.update(syntax.variables(operand))
                return syntax.AddressOf(operand)
            if text in ("++", "--"):
                self.take()
                return syntax.Assign(text[0], self.unary(), Value(1))
            if text == "(" and (cast := self.cast()) is not None:
                return cast
        if text in ("sizeof", "alignof"):
            return self.size()
        return self.postfix(self.primary())

    def cast(self) -> Any:
        """Read ``(type) operand``; None where the parentheses hold no type."""
        closing = closing_index(self.tokens, self.at)
        inside = self.tokens[self.at + 1 : closing]
        if not inside or inside[0].kind != "name" or self.slot(inside[0].text) >= 0:
            return None
        try:
            found, rest = self.scope.specifiers(inside)
        except ValueError:
            follows = self.tokens[closing + 1].kind if closing + 1 < len(self.tokens) else ""
            if follows in ("name", "number") and all(t.kind == "name" or t.text in ("::", "*", "<", ">") for t in inside):
                raise _NotUnderstood("a cast to a type that is not known") from None
            return None
        if rest:
            return None
        self.pass_to(closing + 1)
        return syntax.Cast(found, self.unary())

    def pass_to(self, stop: int) -> None:
        """Take all tokens before `stop`."""
        while self.at < stop:
            self.take()

    def size(self) -> Any:
        begun = self.at
        self.take()
        if self.text() != "(":
            raise _NotUnderstood("sizeof without parentheses")
        self.pass_to(closing_index(self.tokens, self.at) + 1)
        try:
            return constant(self.tokens[begun : self.at], lambda _: None, self.scope.size_of)
        except ValueError:
            return syntax.Opaque()

    def primary(self) -> Any:
        line, token = self.line, self.take()
        if token.kind == "number" or token.kind == "char":
            try:
                return constant([token], lambda _: None)
            except ValueError:
                return syntax.Opaque()  # a floating-point number
        if token.kind == "string":
            return syntax.Opaque()
        if token.text == "(":
            found = self.expression()
            self.take(")")
            return found
        if token.kind != "name" or token.text in _REFUSED:
            if token.text != "::":
                raise _NotUnderstood(f"{token.text!r} is not read")
            self.at -= 1
            token = token._replace(text="")
        name = token.text
        if name in ("true", "false"):
            return Value(int(name == "true"), 1, True)
        if name in _CASTS:
            return self.named_cast()
        slot = self.slot(name)
        if slot >= 0:
            return syntax.Name(name, slot)
        name = self.qualified(name)
        if self.text() == "(" and "::" not in name and (kind := self.value_type(token)) is not None:
            arguments = self.arguments()
            return syntax.Cast(kind, arguments[0]) if len(arguments) == 1 else syntax.Opaque(arguments)
        if self.text() == "(":
            return syntax.Call(name, self.arguments(), line)
        return syntax.Name(name)

    def qualified(self, name: str) -> str:
        """Read on behind a name from outside: ``::member``, and template arguments that a call follows."""
        while True:
            if self.text() == "::":
                self.take()
                name += "::" + self.take().text
            elif self.text() == "<" and (closing := closing_angle(self.tokens, self.at)) + 1 < len(self.tokens):
                inside = self.tokens[self.at + 1 : closing]
                plain = all(t.kind in ("name", "number") or t.text in ("::", ",", "*", "<", ">") for t in inside)
                if not plain or self.tokens[closing + 1].text not in ("(", "::"):
                    return name
                self.at = closing + 1
                name += "<>"
            else:
                return name

    def value_type(self, token: Token) -> CType | None:
        try:
            found, rest = self.scope.specifiers([token])
        except ValueError:
            return None
        return None if rest else found

    def named_cast(self) -> syntax.Cast:
        closing = closing_angle(self.tokens, self.at)
        inside = self.tokens[self.at + 1 : closing]
        found, rest = self.scope.specifiers(inside)
        if rest:
            raise _NotUnderstood("a cast to a reference")
        self.pass_to(closing + 1)
        return syntax.Cast(found, self.parenthesis())

    def arguments(self) -> tuple[Any, ...]:
        return self.listed("(", self.single, ")")

    def postfix(self, found: Any) -> Any:
        while True:
            line, text = self.line, self.text()
            if text == "[":
                self.take()
                found = syntax.Index(found, self.expression(), line)
                self.take("]")
            elif text in (".", "->"):
                self.take()
                if self.kind() != "name":
                    raise _NotUnderstood("what follows a point")
                found = syntax.Member(found, self.take().text, text == "->", line)
                if self.text() == "<" and closing_angle(self.tokens, self.at) < len(self.tokens):
                    closing = closing_angle(self.tokens, self.at)
                    if self.tokens[min(closing + 1, len(self.tokens) - 1)].text == "(":
                        self.at = closing + 1
            elif text == "(":
                found = syntax.Call("", (found, *self.arguments()), line)
            elif text in ("++", "--"):
                self.take()
                found = syntax.Assign(text[0], found, Value(1), before=True)
            else:
                return found


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(inner for part in value.parts for inner in _parts(part)) if isinstance(value, syntax.Opaque) else (value,)
