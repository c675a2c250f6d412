"""Read types and expressions of C++ into trees of the form of clang's (syntax.py), for reading.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...source import Token
from ...source.expressions import ASSIGNMENTS, LEVELS
from .syntax import Node, bare, start_of
from .tokens import closings, read_tokens
from .uniform import Unknown
from .warps import OPERANDS, OPERATION

_QUALIFIERS: Final = frozenset({"const", "static", "thread_local", "__thread", "constexpr", "inline", "__inline__", "auto"})
_WORDS: Final = frozenset({"unsigned", "signed", "char", "short", "int", "long", "float", "double", "bool", "void"})
_RESTRICT: Final = frozenset({"__restrict__", "__restrict", "restrict"})
_TYPES: Final = {
    "size_t": "unsigned long", "ptrdiff_t": "long", "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int",
    "ulong": "unsigned long", "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
}  # fmt: skip
#: Types of numbers, from the lowest rank upwards; those before ``int`` are promoted to it.
NUMBERS: Final = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long", "unsigned long",
    "long long", "unsigned long long", "float", "double",
)  # fmt: skip
_SOME: Final = "a number"  # the type of what functions of device.h return
_INDICES: Final = ("threadIdx", "blockIdx", "blockDim", "gridDim")
#: Functions of device.h and builtins that take their arguments by value.
_BY_VALUE: Final = re.compile(
    r"__(?!half|hip|nv|typeof|attribute|asm|shfl)\w+|__shfl\w*|atomic\w+|min|max|abs|"
    r"(sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|exp|exp2|expm1|log|log2|log10|log1p|sqrt|rsqrt|cbrt|ceil|floor|trunc|round|rint|"
    r"fabs|erf|erfc|pow|atan2|fmod|hypot|fmax|fmin|fdim|copysign|fma)f?"
)
_RETURNS: Final = {
    **dict.fromkeys(("__any", "__all", "__any_sync", "__all_sync"), "int"), "__syncthreads": "void", "__syncwarp": "void",
    **dict.fromkeys(("__ballot", "__ballot_sync", "__activemask"), "unsigned long long"),
}  # fmt: skip


class Expressions:
    """Reads expressions at the current token, with the names that are declared there."""

    def __init__(self, text: str) -> None:
        # A letter for each byte, so that positions are those of clang.
        self.tokens = list(_joined(read_tokens(text.encode().decode("latin-1"))))
        self.closing = closings(self.tokens)
        self.i = 0
        self.types = dict(_TYPES)
        self.functions: dict[str, list[tuple[str, bool]]] = {}  # what they return, and whether they take values alone
        self.called: dict[str, int] = {}  # by the function that is read -> how many of its name there are
        self.records: set[str] = set()  # names of types, and all else that their declarations name
        self.scopes: list[dict[str, Node]] = [{}]
        for name, kind in (("warpSize", "const int"), ("hgcpu_dynamic", "char[1]"), *((name, "dim3") for name in _INDICES)):
            self.scopes[0][name] = {"kind": "VarDecl", "name": name, "id": name, "type": {"qualType": kind}}

    # -- tokens ---------------------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def at(self, *texts: str) -> bool:
        return self.tokens[self.i].text in texts

    def take(self) -> Token:
        self.i += 1
        return self.tokens[self.i - 1]

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unknown(f"something but {text}")

    def node(self, kind: str, start: int | Node, inner: Sequence[Node], **more: Any) -> Node:
        """Make a node from a token, or from where another begins, to the token before the current one."""
        first = self.tokens[start].start if isinstance(start, int) else start_of(start)
        last = self.tokens[self.i - 1]
        end = {"offset": last.start, "tokLen": last.end - last.start}
        return {"kind": kind, "range": {"begin": {"offset": first}, "end": end}, "inner": list(inner), **more}

    # -- types and declarations -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Node | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def is_type(self) -> bool:
        text = self.token.text
        return text in _QUALIFIERS | _WORDS or (text in self.types and text not in self.records and self.find(text) is None)

    def kind(self, facts: dict[str, Any] | None = None) -> str:
        """Read a type without what belongs to one declarator; `facts` takes the storage."""
        words: list[str] = []
        base = ""
        while self.is_type() and not (self.token.text in self.types and (words or base)):
            text = self.take().text
            if text in self.types:
                base = self.types[text]
            elif text in _WORDS:
                words.append(text)
            elif text == "auto":
                base = "auto"
            elif text in ("static", "thread_local", "__thread", "constexpr") and facts is not None:
                facts |= {"storageClass": "static"} if text == "static" else {}
                facts |= {"tls": "dynamic"} if text in ("thread_local", "__thread") else {}
                facts |= {"constexpr": True} if text == "constexpr" else {}
                words += ["const"] * (text == "constexpr")
            elif text == "const":
                words.append(text)
            elif text not in ("inline", "__inline__"):
                raise Unknown("a type")
        const = "const " if "const" in words else ""
        rest = sorted(word for word in words if word not in ("const", "signed", "int"))
        if base and (rest or "int" in words or "signed" in words):
            raise Unknown("a type")
        made = base or {"unsigned": "unsigned int", "": "int"}.get(" ".join(rest), " ".join(reversed(rest)))
        if words.count("signed") and rest == ["char"]:
            made = "signed char"
        made = {"long unsigned": "unsigned long", "long long unsigned": "unsigned long long"}.get(made, made)
        if not base and not (set(words) & _WORDS):
            raise Unknown("no type")
        if not base and made not in NUMBERS and made != "void":
            raise Unknown("a type")
        return self.pointer(made if const and made.startswith("const ") else const + made)

    def pointer(self, kind: str) -> str:
        while self.at("*"):
            self.take()
            kind += "*" if kind.endswith("*") else " *"
            while self.at("const", *_RESTRICT):
                kind += "const" if self.take().text == "const" else "__restrict"
        return kind

    # -- expressions ------------------------------------------------------------------------------------------------------------

    def expression(self, kind: str, start: int | Node, inner: Sequence[Node], of: str, place: bool = False, **more: Any) -> Node:
        category = "lvalue" if place else "prvalue"
        return self.node(kind, start, inner, type={"qualType": of}, valueCategory=category, **more)

    def value(self, node: Node) -> Node:
        """Return the value of an expression: what a place holds, or the address of an array."""
        if node.get("valueCategory") != "lvalue":
            return node
        kind = _type(node)
        if kind == "dim3" or kind == "const dim3":
            raise Unknown("a structure")
        array = "[" in kind
        kind = _pointer_to(kind) if array else re.sub(r"^const (?!.*\*)|(?<=\*)(const|__restrict)+$", "", kind)
        cast = "ArrayToPointerDecay" if array else "LValueToRValue"
        return _implicit(node, cast, kind)

    def comma(self) -> Node:
        found = self.assignment()
        while self.at(","):
            self.take()
            right = self.value(self.assignment())
            found = self.expression("BinaryOperator", found, [found, right], _type(right), opcode=",")
        return found

    def assignment(self) -> Node:
        left = self.conditional()
        if not self.at(*ASSIGNMENTS):
            return left
        sign = self.take().text
        self.must_be_place(left)
        right = self.value(self.assignment())
        if not _is_number(right) and "*" not in _type(right) and not _is_call(right):
            raise Unknown("a value")
        kind = "BinaryOperator" if sign == "=" else "CompoundAssignOperator"
        return self.expression(kind, left, [left, right], _type(left), place=True, opcode=sign)

    def must_be_place(self, node: Node) -> None:
        kind = _type(node)
        if node.get("valueCategory") != "lvalue" or "[" in kind or "dim3" in kind:
            raise Unknown("no place for a value")

    def conditional(self) -> Node:
        asked = self.binary(1)
        if not self.at("?"):
            return asked
        self.take()
        yes = self.value(self.comma())
        self.expect(":")
        no = self.value(self.assignment())
        kind = _type(yes) if "*" in _type(yes) else _common(yes, no)
        return self.expression("ConditionalOperator", asked, [self.value(asked), yes, no], kind, chosen=True)

    def binary(self, least: int) -> Node:
        left = self.unary()
        while (bound := LEVELS.get(self.token.text, 0)) >= least:
            sign = self.take().text
            right = self.value(self.binary(bound + 1))
            given = self.value(left)
            pointers = ["*" in _type(n) for n in (given, right)]
            if sign in ("&&", "||") or bound in (LEVELS["<"], LEVELS["=="]):
                kind = "bool"
                if not all(pointers):
                    _common(given, right)
            elif any(pointers):
                kind = "long" if all(pointers) else _type(given if pointers[0] else right)
                if sign not in "+-" or not (all(pointers) or _is_number(right if pointers[0] else given)):
                    raise Unknown("a pointer")
            else:
                kind = _common(given, given if sign in ("<<", ">>") else right)
            left = self.expression("BinaryOperator", left, [given, right], kind, opcode=sign)
        return left

    def unary(self) -> Node:
        start, sign = self.i, self.token.text
        if sign in ("++", "--", "&", "*", "+", "-", "~", "!"):
            self.take()
            inner = self.unary()
            if sign in ("++", "--"):
                self.must_be_place(inner)
                return self.expression("UnaryOperator", start, [inner], _type(inner), place=True, opcode=sign)
            if sign == "&":
                if inner.get("valueCategory") != "lvalue" or "[" in _type(inner) or "dim3" in _type(inner):
                    raise Unknown("an address")
                return self.expression("UnaryOperator", start, [inner], f"{_type(inner)} *", opcode=sign)
            inner = self.value(inner)
            if sign == "*":
                return self.expression("UnaryOperator", start, [inner], _element(_type(inner)), place=True, opcode=sign)
            kind = "bool" if sign == "!" else _common(inner, inner)
            return self.expression("UnaryOperator", start, [inner], kind, opcode=sign)
        if sign == "sizeof":
            self.take()
            inside = []
            if self.at("(") and self.is_type_behind():
                self.type_in_parentheses()
            else:
                inside = [self.unary()]
            return self.expression("UnaryExprOrTypeTraitExpr", start, inside, "unsigned long")
        if sign == "(" and self.is_type_behind():
            kind = self.type_in_parentheses()
            return self.cast("CStyleCastExpr", start, kind, self.unary())
        return self.postfix()

    def is_type_behind(self) -> bool:
        self.i += 1
        found = self.is_type()
        self.i -= 1
        return found

    def type_in_parentheses(self) -> str:
        self.expect("(")
        kind = self.kind()
        self.expect(")")
        return kind

    def cast(self, how: str, start: int, kind: str, inner: Node) -> Node:
        inner = self.value(inner) if kind != "void" else inner
        plain = "ToVoid" if kind == "void" else "BitCast" if "*" in kind else "IntegralCast"
        return self.expression(how, start, [inner], kind.removeprefix("const ") if "*" not in kind else kind, castKind=plain)

    def postfix(self) -> Node:
        start = self.i
        found = self.primary()
        while True:
            if self.at("["):
                self.take()
                base = self.value(found)
                index = self.value(self.comma())
                self.expect("]")
                if "*" not in _type(base) or not _is_number(index):
                    raise Unknown("an index")
                found = self.expression("ArraySubscriptExpr", start, [base, index], _element(_type(base)), place=True)
            elif self.at("."):
                self.take()
                if "dim3" not in _type(found):
                    raise Unknown("a member")
                name = self.take().text
                found = self.expression(
                    "MemberExpr", start, [found], "unsigned int", place=True, isArrow=False, name=name
                )  # fmt: skip
            elif self.at("++", "--"):
                self.must_be_place(found)
                sign = self.take().text
                found = self.expression("UnaryOperator", start, [found], _type(found), opcode=sign)
            else:
                return found

    def primary(self) -> Node:
        start, token = self.i, self.take()
        if token.kind == "number":
            return self.expression(*_number(token.text, start))
        if token.kind == "char":
            return self.expression("CharacterLiteral", start, [], "char")
        if token.text in ("true", "false"):
            return self.expression("CXXBoolLiteralExpr", start, [], "bool")
        if token.text == "(":
            inner = self.comma()
            self.expect(")")
            place = inner.get("valueCategory") == "lvalue"
            return self.expression("ParenExpr", start, [inner], _type(inner), place=place)
        if token.text in ("static_cast", "reinterpret_cast"):
            self.expect("<")
            kind = self.kind()
            self.expect(">")
            self.expect("(")
            inner = self.comma()
            self.expect(")")
            how = "CXXStaticCastExpr" if token.text == "static_cast" else "CXXReinterpretCastExpr"
            return self.cast(how, start, kind, inner)
        self.i = start
        if self.is_type():  # float(x)
            kind = self.kind()
            self.expect("(")
            inner = self.comma()
            self.expect(")")
            return self.cast("CXXFunctionalCastExpr", start, kind, inner)
        return self.named()

    def named(self) -> Node:
        """Read a name, and the arguments of a call."""
        start = self.i
        outermost = self.at("::")
        if outermost:
            self.take()
        token = self.take()
        while self.at("::") and token.kind == "name":
            self.take()
            token, outermost = self.take(), True
        if token.kind != "name":
            raise Unknown("no name")
        name = token.text
        found = (self.scopes[0].get(name) if self.i - start < 3 else None) if outermost else self.find(name)
        if found is not None:
            kept = {key: found[key] for key in ("id", "kind", "name", "type")}
            return self.expression("DeclRefExpr", start, [], found["type"]["qualType"], place=True, referencedDecl=kept)
        if not self.at("("):
            raise Unknown("a name")
        return self.call(start, name)

    def call(self, start: int, name: str) -> Node:
        own = self.functions.get(name, [])
        self.called[name] = len(own)
        if not (own or name.startswith(OPERATION) or _BY_VALUE.fullmatch(name)) or name in self.types.keys() | self.records:
            raise Unknown("a function")
        reference = {"id": f"f:{name}", "kind": "FunctionDecl", "name": name, "type": {"qualType": own[0][0] if own else ""}}
        callee = self.expression("DeclRefExpr", start, [], "", place=True, referencedDecl=reference)
        callee = _implicit(callee, "FunctionToPointerDecay", "")
        self.expect("(")
        given: list[Node] = []
        while not self.at(")"):
            given.append(self.assignment())
            if not self.at(")"):
                self.expect(",")
        self.take()
        values = all(value for _, value in own)
        first = 1 if name.startswith(OPERATION) and name != f"{OPERATION}__syncwarp" else 0
        if not values and any(bare(n).get("chosen") or bare(n).get("opcode") == "," for n in given):
            raise Unknown("a place that is chosen")
        arguments = [self.value(n) if values and k >= first else n for k, n in enumerate(given)]
        if values and any(not _is_number(n) and "*" not in _type(n) for n in arguments[first:]):
            raise Unknown("an argument")
        kind = own[0][0] if len(own) == 1 else "" if own else _RETURNS.get(name, _SOME)
        operands = OPERANDS.get(name.removesuffix("_sync"))
        if operands is not None and not own:
            kinds = ("unsigned long long",) * name.endswith("_sync") + operands
            arguments = [_implicit(n, "IntegralCast", k) if k and k != _type(n) else n for n, k in zip(arguments, kinds)]
            if "" in kinds and len(arguments) > kinds.index(""):
                kind = _type(arguments[kinds.index("")])
        return self.expression("CallExpr", start, [callee, *arguments], kind)


def _joined(tokens: Sequence[Token]) -> Iterator[Token]:
    """Join ``>`` and ``>`` or ``>=`` beside each other: the lexer keeps them apart, for template arguments."""
    n = 0
    while n < len(tokens):
        token = tokens[n]
        after = tokens[n + 1] if n + 1 < len(tokens) else token
        if token.text == ">" and after.text in (">", ">=") and after.start == token.end and after is not token:
            token = token._replace(text=f">{after.text}", end=after.end)
            n += 1
        n += 1
        yield token


def _implicit(node: Node, cast: str, kind: str) -> Node:
    """Return an expression with an implicit conversion around it."""
    return {
        "kind": "ImplicitCastExpr", "range": node["range"], "inner": [node], "castKind": cast, "type": {"qualType": kind},
        "valueCategory": "prvalue",
    }  # fmt: skip


def _type(node: Node) -> str:
    """Return the type of an expression; empty if it is not known."""
    return str(node["type"]["qualType"])


def _is_number(node: Node) -> bool:
    return _type(node).removeprefix("const ") in (*NUMBERS, _SOME)


def _is_call(node: Node) -> bool:
    return bool(node["kind"] == "CallExpr")


def _common(left: Node, right: Node) -> str:
    """Return the type in which two numbers are combined."""
    kinds = [_type(n).removeprefix("const ") for n in (left, right)]
    if not all(kind in (*NUMBERS, _SOME) for kind in kinds):
        if all("*" in kind or kind in NUMBERS for kind in kinds):
            return "bool"  # a condition
        raise Unknown("no number")
    return _SOME if _SOME in kinds else NUMBERS[max(NUMBERS.index("int"), *map(NUMBERS.index, kinds))]


def _element(kind: str) -> str:
    if "*" not in kind:
        raise Unknown("no pointer")
    if kind.startswith("row of "):
        return kind.removeprefix("row of ").removesuffix("*")
    return re.sub(r" ?\*(const|__restrict)*$", "", kind)


def _pointer_to(array: str) -> str:
    """Return the type of an array's address: a pointer to a number, or to a row."""
    inner = re.sub(r"\[[^\]]*\]", "", array, count=1)
    return f"row of {inner}*" if "[" in inner else f"{inner} *"


def _number(text: str, start: int) -> tuple[str, int, list[Node], str]:
    lower = text.lower()
    is_hex = lower.startswith("0x")
    if not is_hex and re.search(r"[.e]", lower):
        return "FloatingLiteral", start, [], "float" if lower.endswith("f") else "double"
    if "." in lower or "p" in lower:
        raise Unknown("a number")
    suffix = re.sub(r"^(0x[0-9a-f']+|[0-9']+)", "", lower)
    digits = re.sub(r"[ul]*$|'", "", lower)
    value = int(digits, 8 if re.match("0[0-7]", digits) else 0)
    if value >= 1 << 31 and not suffix:
        suffix = "u" if is_hex and value < 1 << 32 else "l"
    kinds = {"": "int", "u": "unsigned int", "l": "long", "ul": "unsigned long", "ll": "long long", "ull": "unsigned long long"}
    suffix = "".join(sorted(suffix, reverse=True))
    if suffix not in kinds:
        raise Unknown("a number")
    return "IntegerLiteral", start, [], kinds[suffix]
