"""Kernels as trees: what `chance` makes, `writing` writes as HIP C++ and `model` computes.

Names are resolved when a tree is made: a `Use` holds the `Decl` that it means, whatever other declarations have its name. Macros,
templates, lambdas and functors are nodes, so the tree says what the text has to mean without a reading of C++.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Type:
    """An integer type; a template's parameter has no bits."""

    name: str
    bits: int
    signed: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("?" if self.bits == 1 else f"{'iu'[not self.signed]}{self.bits // 8}")

    def __deepcopy__(self, memo: object) -> Type:
        return self  # so that a copied kernel's types are those of this module

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - self.signed)) - 1


BOOL = Type("bool", 1, False)
I8, U8 = Type("signed char", 8, True), Type("unsigned char", 8, False)
I16, U16 = Type("short", 16, True), Type("unsigned short", 16, False)
I32, U32 = Type("int", 32, True), Type("unsigned", 32, False)
I64, U64 = Type("long long", 64, True), Type("unsigned long long", 64, False)
TYPES = (I8, U8, I16, U16, I32, U32, I64, U64)
WIDE = (I32, U32, I64, U64)
PARAMETER = Type("T", 0, False)


def promoted(kind: Type) -> Type:
    return I32 if kind.bits < 32 else kind


def common(a: Type, b: Type) -> Type:
    """The usual arithmetic conversions."""
    a, b = promoted(a), promoted(b)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return b if a.signed else a


@dataclass(eq=False)
class Decl:
    """A variable, parameter or array.

    `where` is "thread", "shared", "dynamic", "global", "constant", "macro" or "number"; `size` is 0 for a scalar. `fixed` says
    that chance may not assign it, though with `changes` the loop that it belongs to does; `uniform` that all threads of a block
    that stand together have the same value. `values` are those of a constant. A `pointer` is a reference that is written
    as one; a parameter may have a `default`.
    """

    name: str
    type: Type
    where: str = "thread"
    size: int = 0
    fixed: bool = False
    uniform: bool = False
    reference: bool = False
    pointer: bool = False
    volatile: bool = False
    default: int | None = None
    changes: bool = False
    low: int | None = None
    high: int | None = None
    values: tuple[int, ...] = ()


# -- expressions -------------------------------------------------------------------------------------------------------


class Expr:
    pass


@dataclass(eq=False)
class Literal(Expr):
    value: int
    type: Type
    style: str = ""


@dataclass(eq=False)
class Use(Expr):
    decl: Decl
    style: str = ""  # "paste": by ##


@dataclass(eq=False)
class Index(Expr):
    """`threadIdx.x` and its kin; `warpSize`."""

    name: str


@dataclass(eq=False)
class Load(Expr):
    array: Decl
    index: Expr


@dataclass(eq=False)
class Unary(Expr):
    op: str
    a: Expr


@dataclass(eq=False)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr


@dataclass(eq=False)
class Logic(Expr):
    op: str  # && or ||
    a: Expr
    b: Expr


@dataclass(eq=False)
class Choice(Expr):
    condition: Expr
    a: Expr
    b: Expr


@dataclass(eq=False)
class Cast(Expr):
    type: Type
    a: Expr
    style: str = "c"


@dataclass(eq=False)
class Assigned(Expr):
    """An assignment within an expression."""

    target: Use
    value: Expr


@dataclass(eq=False)
class Comma(Expr):
    a: Expr
    b: Expr


@dataclass(eq=False)
class Builtin(Expr):
    """`__popc`, `min` and so on."""

    name: str
    args: list[Expr]


@dataclass(eq=False)
class Spelled(Expr):
    """A character of what ``#`` makes of a word, or the size of that string (`at` is -1)."""

    word: str
    at: int


@dataclass(eq=False)
class Warp(Expr):
    """A warp operation; `args` are without the mask."""

    name: str  # shfl, shfl_up, shfl_down, shfl_xor, ballot, any, all, match_any, activemask
    args: list[Expr]
    mask: Expr | None = None
    width: int = 0


@dataclass(eq=False)
class Vote(Expr):
    """`__syncthreads_count`, `_or`, `_and`."""

    name: str
    a: Expr


@dataclass(eq=False)
class Call(Expr):
    function: Function
    args: list[Expr]
    types: dict[str, Type] = field(default_factory=dict)
    number: int | None = None  # the template's N


@dataclass(eq=False)
class Expand(Expr):
    """Use of a function-like or object-like macro."""

    macro: Macro
    args: list[Expr]


@dataclass(eq=False)
class Macro:
    """`body` holds `Use` of the parameters; what is written is its text with parameters in parentheses.

    `itself` is a variable of the macro's own name, which the body mentions: it is expanded once only.
    """

    name: str
    parameters: list[Decl] | None
    body: Expr
    variadic: bool = False


# -- statements ----------------------------------------------------------------------------------------------------------


class Stmt:
    pass


@dataclass(eq=False)
class Declare(Stmt):
    decl: Decl
    value: Expr | None
    values: list[Expr] = field(default_factory=list)
    style: str = ""


@dataclass(eq=False)
class Record(Stmt):
    """A structure, whose members are variables."""

    name: str
    members: list[Decl]
    values: list[Expr]


@dataclass(eq=False)
class Assign(Stmt):
    target: Use | Load
    op: str
    value: Expr


@dataclass(eq=False)
class Step(Stmt):
    """`++x`, `x--`."""

    target: Use
    op: str
    prefix: bool


@dataclass(eq=False)
class If(Stmt):
    condition: Expr
    then: list[Stmt]
    other: list[Stmt] | None
    first: Declare | None = None
    braces: bool = True


@dataclass(eq=False)
class For(Stmt):
    """`for (decl = start; decl < end; decl += step)`; `step` 0 is written ++. `also` is a further condition.

    With style "halve" it is `for (decl = start; decl > end; decl /= 2)`.
    """

    decl: Decl
    start: Expr
    end: Expr
    step: int
    body: list[Stmt]
    also: Expr | None = None
    style: str = ""
    braces: bool = True


@dataclass(eq=False)
class While(Stmt):
    """`while (condition)`, or with `counter` ``while (counter-- > 0)``; `last` makes it a do."""

    condition: Expr | None
    body: list[Stmt]
    counter: Decl | None = None
    last: bool = False


@dataclass(eq=False)
class Leave(Stmt):
    word: str  # break, continue


@dataclass(eq=False)
class Return(Stmt):
    value: Expr | None = None


@dataclass(eq=False)
class Arm:
    labels: list[int | None]
    body: list[Stmt]


@dataclass(eq=False)
class Switch(Stmt):
    value: Expr
    arms: list[Arm]


@dataclass(eq=False)
class Block(Stmt):
    body: list[Stmt]
    style: str = ""  # "line": by a macro, on one line


@dataclass(eq=False)
class Barrier(Stmt):
    warp: Expr | None = None  # the mask of a __syncwarp


@dataclass(eq=False)
class Atomic(Stmt):
    name: str
    target: Load
    value: Expr


@dataclass(eq=False)
class Define(Stmt):
    macro: Macro


@dataclass(eq=False)
class Text(Stmt):
    """What means nothing: comments, branches of conditionals that are left out."""

    text: str


@dataclass(eq=False)
class Closure(Stmt):
    """A lambda that is kept in a variable."""

    function: Function
    copies: bool


@dataclass(eq=False)
class Function:
    """`form` is "plain", "template", "lambda", "functor", "static" (a member) or "barrier" (which all of a block call)."""

    name: str
    parameters: list[Decl]
    result: Type
    body: list[Stmt]
    form: str = "plain"
    space: str = ""
    number: Decl | None = None  # the template's N
    leads: bool = False  # whether it may lead to a warp operation
    inline: str = ""


@dataclass(eq=False)
class Kernel:
    name: str
    seed: int
    functions: list[Function]
    constants: list[Decl]  # arrays and numbers at namespace scope
    parameters: list[Decl]
    body: list[Stmt]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    before: list[Stmt] = field(default_factory=list)  # macros
    shared_bytes: int = 0
    maskless: bool = False
    bins: str = "atomicAdd"

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(given.name for given in fields(kind))


def children(node: Any) -> Iterator[Any]:
    """Yield the nodes that a node holds, in the order of the text; not what it refers to."""
    for name in _field_names(node.__class__):
        value = getattr(node, name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, (Expr, Stmt, Arm)) or (isinstance(item, Function) and not isinstance(node, Call)):
                yield item


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from walk(child)
