"""Types and expressions of C++ as trees of the form of clang's (syntax.py), for reading.py: the core's reader, with types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...source import CType, Token, Value, closing_index
from ...source import trees as syntax
from ...source.expressions import LEVELS, Reader, number
from ...source.types import BUILTIN_WORDS, builtin_name
from .syntax import Node, bare
from .warps import OPERANDS, OPERATION

_QUALIFIERS: Final = frozenset({"const", "static", "thread_local", "__thread", "constexpr", "inline", "__inline__"})
_RESTRICT: Final = frozenset({"__restrict__", "__restrict", "restrict"})
_TYPES: Final = {
    "size_t": "unsigned long", "ptrdiff_t": "long", "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int",
    "ulong": "unsigned long", "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
    "auto": "auto",
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


class Expressions(Reader):
    """Reads expressions at the current token, with the names that are declared there; raises ValueError for all else."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens, self.named_type)
        self.types = dict(_TYPES)
        self.functions: dict[str, list[tuple[str, bool]]] = {}  # what they return, and whether they take values alone
        self.called: dict[str, int] = {}  # by the function that is read -> how many of its name there are
        self.records: set[str] = set()  # names of types, and all else that their declarations name
        self.scopes: list[dict[str, Node]] = [{}]
        for name, kind in (("warpSize", "const int"), ("hgcpu_dynamic", "char[1]"), *((name, "dim3") for name in _INDICES)):
            self.scopes[0][name] = {"kind": "VarDecl", "name": name, "id": name, "type": {"qualType": kind}}

    def find(self, name: str) -> Node | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def slot(self, name: str) -> int:
        return -1 if self.find(name) is None else 0

    def node(self, kind: str, start: int, inner: Iterable[Node], stop: int | None = None, **more: Any) -> Node:
        """Make a node from a token to the one before `stop`, which is the next one by default."""
        last = self.tokens[(self.at if stop is None else stop) - 1]
        end = {"offset": last.start, "tokLen": last.end - last.start}
        return {"kind": kind, "range": {"begin": {"offset": self.tokens[start].start}, "end": end}, "inner": list(inner), **more}

    # -- types ------------------------------------------------------------------------------------------------------------------

    def is_type(self) -> bool:
        text = self.text()
        named = text in self.types and text not in self.records and self.find(text) is None
        return text in _QUALIFIERS or text in BUILTIN_WORDS or named

    def specifiers(self, facts: dict[str, Any] | None = None) -> str:
        """Read a type without what belongs to one declarator; `facts` takes the storage."""
        words: list[str] = []
        while self.is_type() and not (self.text() in self.types and any(word not in _QUALIFIERS for word in words)):
            words.append(self.take().text)
        if facts is not None:
            facts |= {"storageClass": "static"} if "static" in words else {}
            facts |= {"tls": "dynamic"} if {"thread_local", "__thread"} & {*words} else {}
            facts |= {"constexpr": True} if "constexpr" in words else {}
        named = [self.types[word] for word in words if word in self.types]
        built_in = [word for word in words if word in BUILTIN_WORDS]
        if len(named) + bool(built_in) != 1:
            raise ValueError("no type")
        made = named[0] if named else builtin_name(built_in)
        const = "const " * ("const" in words or "constexpr" in words) * (not made.startswith("const "))
        return self.pointer(const + made)

    def pointer(self, kind: str) -> str:
        while self.takes("*"):
            kind += "*" if kind.endswith("*") else " *"
            while self.text() in ("const", *_RESTRICT):
                kind += "const" if self.take().text == "const" else "__restrict"
        return kind

    def named_type(self, words: Sequence[Token]) -> CType | None:
        """Return the type that the tokens name, spelled as clang does; None if it is not read, or if tokens are left over."""
        try:
            return CType(self.within(words, self.specifiers))
        except ValueError:
            return None

    # -- expressions ------------------------------------------------------------------------------------------------------------

    def typed(self, kind: str, start: int, inner: Sequence[Node], of: str, place: bool = False, **more: Any) -> Node:
        category = "lvalue" if place else "prvalue"
        return self.node(kind, start, inner, type={"qualType": of}, valueCategory=category, **more)

    def value(self, node: Node) -> Node:
        """Return the value of an expression: what a place holds, or the address of an array."""
        if node.get("valueCategory") != "lvalue":
            return node
        kind = _type(node)
        if kind == "dim3" or kind == "const dim3":
            raise ValueError("a structure")
        array = "[" in kind
        kind = _pointer_to(kind) if array else re.sub(r"^const (?!.*\*)|(?<=\*)(const|__restrict)+$", "", kind)
        cast = "ArrayToPointerDecay" if array else "LValueToRValue"
        return _implicit(node, cast, kind)

    def must_be_place(self, node: Node) -> None:
        kind = _type(node)
        if node.get("valueCategory") != "lvalue" or "[" in kind or "dim3" in kind:
            raise ValueError("no place for a value")

    def made(self, node: Any, start: int) -> Node:
        match node:
            case Value():
                return self.typed("CXXBoolLiteralExpr", start, [], "bool")
            case syntax.Name(text=name):
                return self.reference(name, start)
            case syntax.Unary(sign, operand):
                inner = self.value(operand)
                return self.typed("UnaryOperator", start, [inner], "bool" if sign == "!" else _common(inner, inner), opcode=sign)
            case syntax.AddressOf(operand):
                self.must_be_place(operand)
                return self.typed("UnaryOperator", start, [operand], f"{_type(operand)} *", opcode="&")
            case syntax.Binary():
                return self.binary_operator(node.operator, node.left, self.value(node.right), start)
            case syntax.Choice():
                yes, no = self.value(node.then), self.value(node.otherwise)
                kind = _type(yes) if "*" in _type(yes) else _common(yes, no)
                return self.typed("ConditionalOperator", start, [self.value(node.condition), yes, no], kind, chosen=True)
            case syntax.Assign():
                return self.assignment(node, start)
            case syntax.Index(base, index):
                inner = self.value(base)
                if isinstance(index, Value):
                    return self.typed("UnaryOperator", start, [inner], _element(_type(inner)), place=True, opcode="*")
                index = self.value(index)
                if not _is_number(index):
                    raise ValueError("an index")
                return self.typed("ArraySubscriptExpr", start, [inner, index], _element(_type(inner)), place=True)
            case syntax.Member(base, name, arrow=False) if "dim3" in _type(base):
                return self.typed("MemberExpr", start, [base], "unsigned int", place=True, isArrow=False, name=name)
            case syntax.Cast(CType(spelling=kind), operand):
                inner = operand if kind == "void" else self.value(operand)
                how = "ToVoid" if kind == "void" else "BitCast" if "*" in kind else "IntegralCast"
                kind = kind if "*" in kind else kind.removeprefix("const ")
                return self.typed("CStyleCastExpr", start, [inner], kind, castKind=how)
            case syntax.Call(name, arguments) if name:
                return self.call(name.rpartition("::")[2], arguments, start)
        raise ValueError("an expression")

    def primary(self) -> Node:
        start = self.at
        if self.text() != "(":
            found: Node = super().primary()
            return found
        inner = self.parenthesis()
        return self.typed("ParenExpr", start, [inner], _type(inner), place=inner.get("valueCategory") == "lvalue")

    def literal(self, token: Token) -> Node:
        start, lower = self.at - 1, token.text.lower()
        if token.kind == "char":
            return self.typed("CharacterLiteral", start, [], "char")
        if not lower.startswith("0x") and re.search(r"[.e]", lower):
            return self.typed("FloatingLiteral", start, [], "float" if lower.endswith("f") else "double")
        value = number(token.text)
        kind = "int" if value.bits == 32 else "long long" if "ll" in lower else "long"
        return self.typed("IntegerLiteral", start, [], "unsigned " * value.unsigned + kind)

    def size(self) -> Node:
        start = self.at
        if self.take().text != "sizeof":
            raise ValueError("an alignment")
        closing = closing_index(self.tokens, self.at)
        inside = []
        if self.text() == "(" and self.named_type(self.tokens[self.at + 1 : closing]):
            self.pass_to(closing + 1)
        else:
            inside = [self.unary()]
        return self.typed("UnaryExprOrTypeTraitExpr", start, inside, "unsigned long")

    def binary_operator(self, sign: str, left: Node, right: Node, start: int) -> Node:
        if sign == ",":
            return self.typed("BinaryOperator", start, [left, right], _type(right), opcode=",")
        given = self.value(left)
        pointers = ["*" in _type(n) for n in (given, right)]
        if sign in ("&&", "||") or LEVELS[sign] in (LEVELS["<"], LEVELS["=="]):
            kind = "bool"
            if not all(pointers):
                _common(given, right)
        elif any(pointers):
            kind = "long" if all(pointers) else _type(given if pointers[0] else right)
            if sign not in "+-" or not (all(pointers) or _is_number(right if pointers[0] else given)):
                raise ValueError("a pointer")
        else:
            kind = _common(given, given if sign in ("<<", ">>") else right)
        return self.typed("BinaryOperator", start, [given, right], kind, opcode=sign)

    def assignment(self, node: syntax.Assign, start: int) -> Node:
        target = node.target
        self.must_be_place(target)
        if isinstance(node.value, Value):
            return self.typed(
                "UnaryOperator", start, [target], _type(target), place=not node.before, opcode=2 * node.operator
            )  # fmt: skip
        right = self.value(node.value)
        if not _is_number(right) and "*" not in _type(right) and right["kind"] != "CallExpr":
            raise ValueError("a value")
        kind = "CompoundAssignOperator" if node.operator else "BinaryOperator"
        return self.typed(kind, start, [target, right], _type(target), place=True, opcode=f"{node.operator}=")

    def reference(self, name: str, start: int) -> Node:
        found = self.scopes[0].get(name[2:]) if name.startswith("::") else self.find(name)
        if found is None:
            raise ValueError("a name")
        kept = {key: found[key] for key in ("id", "kind", "name", "type")}
        return self.typed("DeclRefExpr", start, [], found["type"]["qualType"], place=True, referencedDecl=kept)

    def call(self, name: str, given: Sequence[Node], start: int) -> Node:
        own = self.functions.get(name, [])
        self.called[name] = len(own)
        if not (own or name.startswith(OPERATION) or _BY_VALUE.fullmatch(name)) or name in self.types.keys() | self.records:
            raise ValueError("a function")
        reference = {"id": f"f:{name}", "kind": "FunctionDecl", "name": name, "type": {"qualType": own[0][0] if own else ""}}
        opening = next(n for n in range(start, self.at) if self.tokens[n].text == "(")
        callee = self.typed("DeclRefExpr", start, [], "", place=True, stop=opening, referencedDecl=reference)
        callee = _implicit(callee, "FunctionToPointerDecay", "")
        values = all(value for _, value in own)
        first = 1 if name.startswith(OPERATION) and name != f"{OPERATION}__syncwarp" else 0
        if not values and any(bare(n).get("chosen") or bare(n).get("opcode") == "," for n in given):
            raise ValueError("a place that is chosen")
        arguments = [self.value(n) if values and k >= first else n for k, n in enumerate(given)]
        if values and any(not _is_number(n) and "*" not in _type(n) for n in arguments[first:]):
            raise ValueError("an argument")
        kind = own[0][0] if len(own) == 1 else "" if own else _RETURNS.get(name, _SOME)
        operands = OPERANDS.get(name.removesuffix("_sync"))
        if operands is not None and not own:
            kinds = ("unsigned long long",) * name.endswith("_sync") + operands
            arguments = [_implicit(n, "IntegralCast", k) if k and k != _type(n) else n for n, k in zip(arguments, kinds)]
            if "" in kinds and len(arguments) > kinds.index(""):
                kind = _type(arguments[kinds.index("")])
        return self.typed("CallExpr", start, [callee, *arguments], kind)


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


def _common(left: Node, right: Node) -> str:
    """Return the type in which two numbers are combined."""
    kinds = [_type(n).removeprefix("const ") for n in (left, right)]
    if not all(kind in (*NUMBERS, _SOME) for kind in kinds):
        if all("*" in kind or kind in NUMBERS for kind in kinds):
            return "bool"  # a condition
        raise ValueError("no number")
    return _SOME if _SOME in kinds else NUMBERS[max(NUMBERS.index("int"), *map(NUMBERS.index, kinds))]


def _element(kind: str) -> str:
    if "*" not in kind:
        raise ValueError("no pointer")
    if kind.startswith("row of "):
        return kind.removeprefix("row of ").removesuffix("*")
    return re.sub(r" ?\*(const|__restrict)*$", "", kind)


def _pointer_to(array: str) -> str:
    """Return the type of an array's address: a pointer to a number, or to a row."""
    inner = re.sub(r"\[[^\]]*\]", "", array, count=1)
    return f"row of {inner}*" if "[" in inner else f"{inner} *"
