"""Random kernels that are valid HIP: nothing in them is undefined, whatever the warp size.

Each value is made with the range that it can have, so that signed arithmetic does not overflow; barriers stand where a block is
together; a warp operation with a mask has that of the region that it stands in, a ballot taken before the region begins.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .tree import (
    BOOL,
    I8,
    I16,
    I32,
    I64,
    PARAMETER,
    TYPES,
    U8,
    U16,
    U32,
    U64,
    WIDE,
    Arm,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Builtin,
    Call,
    Cast,
    Choice,
    Closure,
    Decl,
    Declare,
    Define,
    Expand,
    Expr,
    For,
    Function,
    If,
    Index,
    Kernel,
    Leave,
    Literal,
    Load,
    Logic,
    Macro,
    Return,
    Spelled,
    Step,
    Stmt,
    Switch,
    Text,
    Type,
    Unary,
    Use,
    Vote,
    Warp,
    While,
    common,
    promoted,
    walk,
)  # fmt: skip

BLOCKS = ((64, 1, 1), (96, 1, 1), (128, 1, 1), (32, 1, 1), (8, 4, 2), (16, 6, 1), (40, 1, 1), (7, 5, 3), (1, 1, 1))
GRIDS = ((2, 1, 1), (1, 1, 1), (3, 1, 1), (1, 2, 1), (2, 1, 2))
NAMES = ("a", "b", "c", "d", "e", "f", "i", "j", "k", "x", "y", "z", "n", "m", "tmp", "val", "if_", "for1", "sum")
OPERATIONS = ("ballot", "any", "all", "match_any", "leader", "shfl", "shfl_up", "shfl_down", "shfl_xor", "activemask")
MACROS = ("ALPHA", "BETA", "GAMMA", "SCALE", "STEP")
SOURCES, BINS = 64, 8
NOISE = (
    "// } ) ] a comment __ballot( {", "/* { __syncthreads(); */", "#if 0\n} else {\n#endif", ";",
    "#if defined(NOWHERE) && NOWHERE > 3\nreturn 1 +;\n#elif 1 + 1 == 2 && 'a' < 'b'\n#else\n#error never\n#endif",
    "#ifndef NOWHERE\n;\n#endif", "; /* for (;;) { */ ;", "{}", "do {} while (0);", "static_assert(sizeof(int) == 4, \"}{\");",
)  # fmt: skip


class Value(NamedTuple):
    node: Expr
    type: Type
    low: int
    high: int


@dataclass
class Place:
    """What may stand somewhere. `mask` names the lanes that are here; `full` says that it is the warp as it was started."""

    uniform: bool
    depth: int = 0
    mask: Decl | None = None
    full: bool = False
    leaves: bool = False
    returns: bool = False
    kernel: bool = True
    result: Type = U32
    pure: bool = False  # no assignment of what is declared outside: the lowest scope that may be assigned is `floor`
    floor: int = 0
    atomics: bool = True
    ops: bool = True  # warp operations, and what may lead to them


class Maker:
    """Makes the kernel of a seed; with `gpu` without what only AMD has: warp operations without a mask."""

    names: Sequence[str] = NAMES
    operations: Sequence[str] = OPERATIONS

    def __init__(self, seed: int, name: str, gpu: bool) -> None:
        self.chance = random.Random(seed * 2 + gpu)
        self.name = name
        self.seed = seed
        self.warps = self.chance.choice(("mask", "mask", "none") if gpu else ("maskless", "maskless", "mask", "none"))
        self.barriers = self.chance.random() < 0.5
        self.forms = ["plain", "plain", "plain", "template", "functor", "static", "overload", "recursive"]
        self.longest = 4  # statements of a function
        self.most_functions = 4
        self.fewest = 6  # statements of the kernel
        self.apart = False  # whether nothing is called by a variable
        self.reserved: tuple[str, ...] = ()  # a template's parameters
        self.block = self.chance.choice(BLOCKS)
        self.left = self.chance.randint(6, 22)
        self.scopes: list[dict[str, Decl | Function]] = []
        self.functions: list[Function] = []
        self.impure: set[Function] = set()
        self.macros: dict[str, Macro] = {}
        self.count = 0
        self.bin_op = self.chance.choice(
            ("atomicAdd", "atomicXor", "atomicOr", "atomicAnd", "atomicMin", "atomicMax", "atomicSub")
        )

    # -- names ---------------------------------------------------------------------------------------------------------

    def some(self, probability: float) -> bool:
        return self.chance.random() < probability

    def fresh(self) -> str:
        """Return a name that is not declared in the innermost scope; it may hide another."""
        own = self.scopes[-1]
        free = [name for name in self.names if name not in own and name not in self.reserved]
        if free and self.some(0.85):
            return self.chance.choice(free)
        self.count += 1
        return f"v{self.count}"

    def declare(self, decl: Decl) -> Decl:
        self.scopes[-1][decl.name] = decl
        return decl

    def visible(self, hidden: str = "") -> list[Decl]:
        found: dict[str, Decl | Function] = {}
        for scope in self.scopes:
            found.update(scope)
        return [d for name, d in found.items() if isinstance(d, Decl) and name != hidden]

    def sees(self, decl: Decl | Function) -> bool:
        for scope in reversed(self.scopes):
            if decl.name in scope:
                return scope[decl.name] is decl
        return False

    def scalars(self, hidden: str = "", uniform: bool = False) -> list[Decl]:
        return [d for d in self.visible(hidden) if not d.size and (d.uniform or not uniform)]

    def named(self, kind: Type, hidden: str) -> list[Decl]:
        """Return the variables that a reference to a constant of a type may stand for."""
        return [d for d in self.scalars(hidden) if d.type == kind and not d.volatile]

    # -- values --------------------------------------------------------------------------------------------------------

    def use(self, d: Decl) -> Value:
        style = "paste" if len(d.name) > 1 and d.where == "thread" and "." not in d.name and self.some(0.1) else ""
        low = d.type.low if d.low is None else d.low
        return Value(Use(d, style), d.type, low, d.type.high if d.high is None else d.high)

    def literal(self, value: int, kind: Type = I32, style: str = "") -> Value:
        return Value(Literal(value, kind, style), kind, value, value)

    def any_literal(self) -> Value:
        kind = self.chance.choice((I32, I32, I32, U32, I64, U64, I8, U16))
        if self.some(0.06):
            return self.literal(self.chance.choice((123, 125, 59, 40, 78, 84, 97)), I8, "char")
        edge = self.chance.choice((0, 1, 2, 3, 5, 7, 10, 31, 100, 1000, 65535, kind.high, kind.low, -1, -7, -128))
        edge = max(kind.low, min(kind.high, edge))
        return self.literal(edge, kind, self.chance.choice(("", "", "hex", "'")) if kind.bits > 16 else "")

    def to(self, v: Value, kind: Type, always: bool = False) -> Value:
        """Return the value as another type."""
        if v.type == kind and not always:
            return v
        low, high = (v.low, v.high) if kind.low <= v.low and v.high <= kind.high else (kind.low, kind.high)
        if kind == BOOL:
            low, high = 0, 1
        return Value(Cast(kind, v.node, self.chance.choice(("c", "static", "function"))), kind, low, high)

    def within(self, v: Value, mask: int) -> Value:
        """Return ``v & mask``."""
        kind = common(v.type, I32)
        return Value(Binary("&", v.node, Literal(mask, I32)), kind, 0, mask)

    def reach(self, v: Value, kind: Type) -> tuple[int, int]:
        return (v.low, v.high) if kind.low <= v.low and v.high <= kind.high else (kind.low, kind.high)

    def arithmetic(self, op: str, a: Value, b: Value) -> Value:
        kind = common(a.type, b.type)
        if op in ("&", "|", "^"):
            ranges = self.reach(a, kind), self.reach(b, kind)
            if min(ranges[0][0], ranges[1][0]) >= 0:
                high = min(ranges[0][1], ranges[1][1]) if op == "&" else (1 << max(r[1] for r in ranges).bit_length()) - 1
                return Value(Binary(op, a.node, b.node), kind, 0, high)
            return Value(Binary(op, a.node, b.node), kind, kind.low, kind.high)
        if op in ("/", "%"):
            return self.divided(op, a, b)
        if op in ("<<", ">>"):
            return self.shifted(op, a, b)
        (p, q), (r, s) = self.reach(a, kind), self.reach(b, kind)
        ends = [p + r, q + s] if op == "+" else [p - s, q - r] if op == "-" else [p * r, p * s, q * r, q * s]
        low, high = min(ends), max(ends)
        if low < kind.low or high > kind.high:
            if kind.signed:
                other = U32 if kind.bits == 32 else U64
                return self.arithmetic(op, self.to(a, other), b)
            low, high = kind.low, kind.high
        return Value(Binary(op, a.node, b.node), kind, low, high)

    def divided(self, op: str, a: Value, b: Value) -> Value:
        if self.some(0.5):
            b = self.literal(self.chance.choice((1, 2, 3, 7, 10, 64)), self.chance.choice((I32, U32, I64)))
        else:
            b = self.arithmetic("+", self.within(b, 7), self.literal(1))
        kind = common(a.type, b.type)
        low, high = self.reach(a, kind)
        most = b.high - 1
        if op == "%":
            return Value(Binary(op, a.node, b.node), kind, -most if low < 0 else 0, most)
        return Value(Binary(op, a.node, b.node), kind, min(low, 0), max(high, 0))

    def shifted(self, op: str, a: Value, b: Value) -> Value:
        kind = promoted(a.type)
        amount = self.literal(self.chance.randint(0, kind.bits - 1)) if self.some(0.6) else self.within(b, kind.bits - 1)
        if op == "<<":
            if kind.signed:
                a = self.to(a, U32 if kind.bits == 32 else U64)
                kind = a.type
            return Value(Binary(op, a.node, amount.node), kind, 0, kind.high)
        return Value(Binary(op, a.node, amount.node), kind, min(a.low, 0), max(a.high, 0))

    def leaf(self, place: Place, hidden: str = "") -> Value:
        roll = self.chance.random()
        known = self.scalars(hidden)
        if known and roll < 0.55:
            return self.use(self.chance.choice(known))
        if roll < 0.75:
            return self.any_literal()
        if roll < 0.85:
            return self.index()
        arrays = [d for d in self.visible(hidden) if (d.size and d.where in ("thread", "constant")) or d.name == "src"]
        arrays = [d for d in arrays if d.name != hidden]
        if arrays and roll < 0.97:
            array = self.chance.choice(arrays)
            at = self.within(self.use(self.chance.choice(known)) if known else self.index(), array.size - 1)
            return Value(Load(array, at.node), array.type, array.type.low, array.type.high)
        word = self.chance.choice(("abc", "x9", "__ballot", "for"))
        return Value(Spelled(word, self.chance.choice((-1, 0, 1))), I32, 0, 127)

    def index(self) -> Value:
        name = self.chance.choice(
            ("threadIdx.x", "threadIdx.x", "threadIdx.y", "blockIdx.x", "blockDim.x", "gridDim.x", "threadIdx.z")
        )
        return Value(Index(name), U32, 0, 255)

    def uniform_value(self, depth: int = 1) -> Value:
        known = self.scalars(uniform=True)
        if depth == 0 or self.some(0.4):
            if known and self.some(0.7):
                return self.use(self.chance.choice(known))
            if self.some(0.4):
                return Value(Index(self.chance.choice(("blockIdx.x", "blockDim.x", "gridDim.x", "blockIdx.y"))), U32, 0, 255)
            return self.any_literal()
        op = self.chance.choice(("+", "-", "*", "&", "^", "%", ">>"))
        return self.arithmetic(op, self.uniform_value(depth - 1), self.uniform_value(depth - 1))

    def value(self, place: Place, depth: int, style: str = "calm", hidden: str = "") -> Value:
        """Make a value: `calm` may leave something out (?:, &&, ||), `flat` may hold warp operations."""
        if depth <= 0:
            return self.leaf(place, hidden)

        def sub(less: int = 1) -> Value:
            return self.value(place, depth - less, style, hidden)

        roll = self.chance.random()
        if style == "flat" and roll < 0.3:
            made = self.called(place, depth, style, hidden, flat=True) if self.some(0.35) else self.warp(place, depth, hidden)
            if made is not None:
                return made
        if roll < 0.4:
            op = self.chance.choice(("+", "-", "*", "&", "|", "^", "/", "%", "<<", ">>"))
            return self.arithmetic(op, sub(), sub())
        if roll < 0.48:
            return self.condition(place, depth, style, hidden)
        if roll < 0.58:
            return self.to(sub(), self.chance.choice(TYPES))
        if roll < 0.66 and style == "calm":
            c, a, b = self.condition(place, depth - 1, style, hidden), sub(), sub()
            kind = a.type if a.type == b.type else common(a.type, b.type)
            ranges = self.reach(a, kind), self.reach(b, kind)
            return Value(Choice(c.node, a.node, b.node), kind, min(r[0] for r in ranges), max(r[1] for r in ranges))
        if roll < 0.74:
            return self.builtin(sub)
        if roll < 0.8:
            a = sub()
            kind = promoted(a.type)
            if self.some(0.5):
                return Value(Unary("~", a.node), kind, kind.low, kind.high)
            if kind.signed and self.reach(a, kind)[0] == kind.low:
                a = self.to(a, U32 if kind.bits == 32 else U64)
                kind = a.type
            low, high = (-a.high, -a.low) if kind.signed else (kind.low, kind.high)
            return Value(Unary("-", a.node), kind, low, high)
        if roll < 0.9:
            made = self.called(place, depth, style, hidden, flat=False)
            if made is not None:
                return made
        if roll < 0.95 and (usable := [m for m in self.macros.values() if style == "calm" or _is_flat(m.body)]):
            return self.expanded(self.chance.choice(usable), place, depth, style, hidden)
        return self.leaf(place, hidden)

    def condition(self, place: Place, depth: int, style: str = "calm", hidden: str = "") -> Value:
        if style == "calm" and depth > 0 and self.some(0.25):
            a, b = self.condition(place, depth - 1, style, hidden), self.condition(place, depth - 1, style, hidden)
            return Value(Logic(self.chance.choice(("&&", "||")), a.node, b.node), BOOL, 0, 1)
        if self.some(0.1):
            return Value(Unary("!", self.value(place, depth - 1, style, hidden).node), BOOL, 0, 1)
        a = self.value(place, depth - 1, style, hidden)
        if self.some(0.5):
            op, b = self.chance.choice((">", "<", "==", "!=")), self.literal(self.chance.randint(0, 3))
            return Value(Binary(op, self.within(a, 3).node, b.node), BOOL, 0, 1)
        b = self.value(place, depth - 1, style, hidden)
        return Value(Binary(self.chance.choice(("<", ">", "<=", ">=", "==", "!=")), a.node, b.node), BOOL, 0, 1)

    def uniform_condition(self) -> Value:
        a = self.within(self.uniform_value(), 3)
        return Value(Binary(self.chance.choice(("<", ">", "!=")), a.node, Literal(self.chance.randint(0, 2), I32)), BOOL, 0, 1)

    def builtin(self, sub: Callable[[], Value]) -> Value:
        name = self.chance.choice(
            ("min", "max", "__popc", "__popcll", "__clz", "__ffs", "__brev", "__umulhi", "__mulhi", "abs", "__ffsll")
        )
        a = sub()
        if name in ("min", "max"):
            kind = self.chance.choice(WIDE)
            a, b = self.to(a, kind), self.to(sub(), kind)
            pick = min if name == "min" else max
            return Value(Builtin(name, [a.node, b.node]), kind, pick(a.low, b.low), pick(a.high, b.high))
        if name == "abs":
            a = self.to(a, I32) if a.low > I32.low and a.high <= I32.high else self.to(self.within(a, 0xFFFF), I32)
            return Value(Builtin(name, [a.node]), I32, 0, max(abs(a.low), abs(a.high)))
        kind = {"__clz": I32, "__mulhi": I32, "__popcll": U64, "__ffsll": I64}.get(name, U32)
        if name == "__ffs":
            kind = I32
        args = [self.to(a, kind)] + ([self.to(sub(), kind)] if "mulhi" in name else [])
        result = kind if "mulhi" in name or name == "__brev" else I32
        low, high = (result.low, result.high) if result == kind and name != "__clz" and "ffs" not in name else (0, 64)
        return Value(Builtin(name, [v.node for v in args]), result, low, high)

    def warp(self, place: Place, depth: int, hidden: str) -> Value | None:
        """Make a warp operation where one may stand."""
        if not place.ops or self.warps == "none" or (self.warps == "mask" and (place.mask is None or not self.sees(place.mask))):
            return None
        mask: Expr | None = Use(place.mask) if self.warps == "mask" and place.mask else None
        inner = self.chance.choice(("calm_leaf", "flat"))
        small = 0 if inner == "calm_leaf" else depth - 1

        def operand() -> Value:
            return self.value(place, small, "flat", hidden)

        free = place.full or mask is None
        name = self.chance.choice(self.operations)
        if name == "activemask" and mask is not None:
            name = "ballot"
        if name.startswith("shfl") and not free:
            name = "leader"
        if name == "activemask":
            return Value(Warp(name, []), U64, 0, U64.high)
        if name in ("ballot", "any", "all"):
            p = self.condition(place, small, "flat", hidden) if self.some(0.8) else self.to(operand(), I32)
            kind = U64 if name == "ballot" else I32
            return Value(Warp(name, [self.to(p, I32).node], mask), kind, 0, U64.high if name == "ballot" else 1)
        kind = self.chance.choice(WIDE)
        a = self.to(operand(), kind, always=True)
        if name == "match_any":
            a = self.to(self.within(a, 3), kind, always=True) if self.some(0.8) else a
            return Value(Warp(name, [a.node], mask), U64, 0, U64.high)
        if name == "leader":
            lanes = Use(place.mask) if mask is not None and place.mask else Warp("activemask", [])
            first = Binary("-", Builtin("__ffsll", [Cast(I64, lanes)]), Literal(1, I32))
            return Value(Warp("shfl", [a.node, first], mask), kind, kind.low, kind.high)
        width = self.chance.choice((0, 0, 0, 8, 16, 32))
        which: Value = self.literal(self.chance.choice((0, 1, 2, 3, 5, 7, 8, 16, 31)))
        if name in ("shfl", "shfl_xor") and self.some(0.4):
            which = self.to(self.within(self.leaf(place, hidden), 7 if width else 31), I32)
        if name in ("shfl_up", "shfl_down"):
            which = self.to(which, U32)
        return Value(Warp(name, [a.node, which.node], mask, width), kind, kind.low, kind.high)

    def called(self, place: Place, depth: int, style: str, hidden: str, *, flat: bool) -> Value | None:
        found = [f for f in self.callable(place, flat) if f not in self.impure and f.name != hidden]
        return self.call(self.chance.choice(found), place, depth - 1, style, hidden) if found else None

    def callable(self, place: Place, flat: bool) -> list[Function]:
        local = [d for scope in self.scopes for d in scope.values() if isinstance(d, Function) and self.sees(d)]
        found = []
        for f in [*self.functions, *local]:
            if not flat and (f.leads or f.form in ("lambda", "functor")):
                continue
            if not place.ops and (f.leads or f.form in ("lambda", "functor")):  # what is called by a variable may lead anywhere
                continue
            if f.leads and self.warps == "mask" and (place.mask is None or not self.sees(place.mask)):
                continue
            if f.form != "barrier":  # which stands where all of a block are
                found.append(f)
        return found

    def call(self, f: Function, place: Place, depth: int, style: str, hidden: str = "") -> Value:
        args: list[Expr] = []
        types = {"T": self.chance.choice(TYPES)} if any(d.type is PARAMETER for d in f.parameters) else {}
        last = f.parameters[-1] if f.parameters else None
        for d in f.parameters:
            if d.name == "lanes":
                assert place.mask is not None
                args.append(Use(place.mask))
            elif d.name == "level":
                args.append(self.within(self.value(place, 0, style, hidden), 3).node)
            elif d.reference and not d.fixed:
                args.append(Use(self.chance.choice([x for x in self.targets(place, d.type) if x.name != "h"])))
            elif d.reference and (found := self.named(types["T"] if d.type is PARAMETER else d.type, hidden)):
                args.append(Use(self.chance.choice(found)))
            elif d is last and d.default is not None and self.some(0.6):
                args.append(Literal(d.default, d.type, "default"))
            else:
                kind = types["T"] if d.type is PARAMETER else d.type
                args.append(self.to(self.value(place, depth, style, hidden), kind, always=True).node)
        number = self.chance.randint(1, 5) if f.number else None
        kind = types["T"] if f.result is PARAMETER else f.result
        return Value(Call(f, args, types, number), kind, kind.low, kind.high)

    def expanded(self, macro: Macro, place: Place, depth: int, style: str, hidden: str) -> Value:
        args = [self.to(self.value(place, depth - 2, style, hidden), d.type, always=True).node for d in macro.parameters or ()]
        kind = self.macro_types[id(macro)]
        return Value(Expand(macro, args), kind, kind.low, kind.high)

    macro_types: dict[int, Type]

    def macro(self) -> Macro:
        """Make a macro; its parameters have the types that its uses give them."""
        name = self.chance.choice(MACROS)
        outer, self.scopes = self.scopes, [{}]
        macros, self.macros = self.macros, {}
        place = Place(False)
        parameters = None
        if self.some(0.7):
            count = self.chance.randint(1, 3)
            parameters = [self.declare(Decl("pqr"[n], self.chance.choice(WIDE), "macro")) for n in range(count)]
        made = self.value(place, 2)
        self.scopes, self.macros = outer, macros
        macro = Macro(name, parameters, made.node)
        self.macro_types[id(macro)] = made.type
        self.macros[name] = macro
        return macro

    # -- statements ----------------------------------------------------------------------------------------------------

    def style(self, place: Place) -> str:
        return "flat" if self.some(0.5) else "calm"

    def targets(self, place: Place, kind: Type | None = None) -> list[Decl]:
        """Return the variables that may be assigned; with a type, those that a reference may stand for."""
        inner = [d for scope in self.scopes[place.floor :] for d in scope.values() if isinstance(d, Decl)]
        return [
            d for d in self.scalars()
            if not d.fixed and d.where == "thread" and (place.uniform or not d.uniform) and (kind is None or d.type == kind)
            and (not place.pure or any(d is other for other in inner)) and not (kind and d.volatile)
        ]  # fmt: skip

    def mix(self, v: Value) -> list[Stmt]:
        h = next((d for d in self.visible() if d.name == "h"), None)
        if h is None:
            return []
        value = Binary("+", Binary("*", Use(h), Literal(31, U32)), self.to(v, U32, always=True).node)
        return [Assign(Use(h), "=", value)]

    def body(self, place: Place, most: int, before: Sequence[Decl | Function] = ()) -> list[Stmt]:
        self.scopes.append({d.name: d for d in before})
        out: list[Stmt] = []
        for _ in range(self.chance.randint(1, most)):
            if self.left <= 0 and out:
                break
            self.left -= 1
            out += self.statement(place)
        self.scopes.pop()
        return out

    def inside(self, place: Place, most: int = 4, before: Sequence[Decl | Function] = (), **changes: Any) -> list[Stmt]:
        return self.body(replace(place, depth=place.depth + 1, **changes), most, before)

    def kinds(self, place: Place) -> dict[Callable[[Place], list[Stmt]], float]:
        """Return what may stand somewhere, and how often."""
        deep = place.depth >= 3
        kinds: dict[Callable[[Place], list[Stmt]], float] = {
            self.declaration: 5, self.assignment: 5, self.mixing: 4, self.noise: 0.5, self.definition: 0.6, self.reference: 0.5,
            self.array: 0.6, self.atomic: 0.8, self.leaving: 1.5, self.call_statement: 0.8, self.itself: 0.2,
            self.conditional: 1.0,
        }  # fmt: skip
        if not deep:
            kinds |= {
                self.branch: 4,
                self.counting: 2,
                self.looping: 1.8,
                self.switching: 1.5,
                self.braces: 0.7,
                self.closure: 0.8,
            }
        if place.uniform and self.barriers and place.kernel:
            kinds |= {self.exchange: 4, self.shared_bins: 0.8, self.vote: 0.8 * (not self.apart), self.tree: 0.4}
        if self.warps == "mask" and place.mask is not None and self.sees(place.mask):
            kinds[self.meeting] = 0.4
        return kinds

    def statement(self, place: Place) -> list[Stmt]:
        kinds = self.kinds(place)
        for _ in range(20):
            chosen = self.chance.choices(list(kinds), list(kinds.values()))[0]
            made: list[Stmt] = chosen(place)
            if made:
                return made
        return [Text(";")]

    def noise(self, place: Place) -> list[Stmt]:
        return [Text(self.chance.choice(NOISE))]

    def definition(self, place: Place) -> list[Stmt]:
        return [Define(self.macro())]

    def itself(self, place: Place) -> list[Stmt]:
        """A macro of a variable's own name, which is not expanded again."""
        found = [d for d in self.scalars() if d.type.bits >= 32 and not d.type.signed and d.where == "thread" and d.name != "h"]
        found = [d for d in found if not d.pointer and "." not in d.name]
        if not found or place.pure:
            return []
        d = self.chance.choice(found)
        macro = Macro(d.name, None, Binary("+", Use(d), Literal(1, I32)))
        mixed = self.mix(Value(Expand(macro, []), d.type, d.type.low, d.type.high))
        return [Text(f"#define {d.name} ({d.name} + 1)"), *mixed, Text(f"#undef {d.name}")] if mixed else []

    def meeting(self, place: Place) -> list[Stmt]:
        assert place.mask is not None
        return [Barrier(Use(place.mask))]

    def mixing(self, place: Place) -> list[Stmt]:
        return [] if place.pure else self.mix(self.value(place, 3, self.style(place)))

    def declaration(self, place: Place) -> list[Stmt]:
        name, kind = self.fresh(), self.chance.choice(TYPES)
        uniform = place.uniform and self.some(0.4)
        v = self.uniform_value() if uniform and not self.uses(name) else self.value(place, 3, self.style(place), name)
        uniform = uniform and not self.uses(name)
        fixed = self.some(0.25)
        return [
            Declare(
                self.declare(Decl(name, kind, fixed=fixed, uniform=uniform)),
                v.node,
                style=self.chance.choice(("", "", "brace", "auto")),
            )
        ]

    def uses(self, name: str) -> bool:
        """Return whether a name that is being declared is that of something visible, which its own value could not mean."""
        return any(name in scope for scope in self.scopes)

    def array(self, place: Place) -> list[Stmt]:
        name = self.fresh()
        values = [self.value(place, 1, "calm", name).node for _ in range(self.chance.choice((2, 4)))]
        d = Decl(name, self.chance.choice(TYPES), size=4)
        return [Declare(self.declare(d), None, values)]

    def reference(self, place: Place) -> list[Stmt]:
        found: list[Decl] = [d for d in self.targets(place) if d.name not in ("h", "t", "g") and not d.volatile]
        if not place.pure:
            found += [d for d in self.visible() if d.size and d.where == "thread"]
        if not found:
            return []
        d, name, pointer = self.chance.choice(found), self.fresh(), self.some(0.4)
        if name == d.name.partition(".")[0]:
            return []
        of = Load(d, Literal(self.chance.randrange(d.size), I32)) if d.size else Use(d)
        return [Declare(self.declare(Decl(name, d.type, reference=True, pointer=pointer, uniform=d.uniform)), of)]

    def assignment(self, place: Place) -> list[Stmt]:
        arrays = [d for d in self.visible() if d.size and d.where == "thread" and not place.pure]
        if arrays and self.some(0.4):
            array = self.chance.choice(arrays)
            at = self.within(self.leaf(place), array.size - 1)
            target: Use | Load = Load(array, at.node)
            kind = array.type
            d = array
        else:
            found = [d for d in self.targets(place) if d.name != "h"]
            if not found:
                return []
            d = self.chance.choice(found)
            target, kind = Use(d), d.type
        v = self.uniform_value() if d.uniform else self.value(place, 3, self.style(place))
        if self.some(0.15) and isinstance(target, Use) and (not kind.signed or kind.bits < 32):
            return [Step(target, self.chance.choice(("++", "--")), self.some(0.5))]
        if self.some(0.5):
            return [Assign(target, "=", v.node)]
        if kind.signed or kind.bits < 32:
            if self.some(0.4) and kind.bits < 32:
                return [Assign(target, self.chance.choice(("+=", "-=", "*=")), self.to(self.within(v, 255), I32).node)]
            if self.some(0.3):
                return [Assign(target, ">>=", self.within(v, 7).node)]
            return [Assign(target, self.chance.choice(("^=", "&=", "|=")), v.node)]
        if self.some(0.25):
            return [Assign(target, self.chance.choice(("<<=", ">>=")), self.within(v, kind.bits - 1).node)]
        return [Assign(target, self.chance.choice(("+=", "-=", "*=", "^=", "|=", "&=")), self.to(v, kind).node)]

    def conditional(self, place: Place) -> list[Stmt]:
        """Operations that some lanes leave out: each is a place of its own."""
        if self.warps != "maskless" or place.pure or not place.ops:
            return []
        c = self.condition(place, 1)
        leading = [f for f in self.callable(place, True) if f not in self.impure]
        if leading and self.some(0.4):
            one = self.call(self.chance.choice(leading), place, 0, "calm")
            made = Choice(c.node, self.to(one, U32).node, Literal(3, U32))
        elif self.some(0.5):
            a, b = self.warp_leaf(place), self.warp_leaf(place) if self.some(0.5) else self.leaf(place)
            made = Choice(c.node, self.to(a, U32).node, self.to(b, U32).node)
        else:
            vote = Warp(self.chance.choice(("any", "all")), [self.to(self.leaf(place), I32).node])
            made = Logic(self.chance.choice(("&&", "||")), c.node, vote)  # type: ignore[assignment]
        return self.mix(Value(made, U32 if isinstance(made, Choice) else BOOL, 0, U32.high))

    def warp_leaf(self, place: Place) -> Value:
        made = self.warp(place, 0, "")
        assert made is not None
        return made

    def call_statement(self, place: Place) -> list[Stmt]:
        """A call that may change its arguments, by itself."""
        found = self.callable(place, True)
        if not found:
            return []
        f, before = self.chance.choice(found), list[Stmt]()
        for d in f.parameters:
            if d.reference and not d.fixed and not [x for x in self.targets(place, d.type) if x.name != "h"]:
                of = self.literal(self.chance.randint(0, 9), d.type).node
                before.append(Declare(self.declare(Decl(self.fresh(), d.type)), of))
        v = self.call(f, place, 1, "flat")
        name = self.fresh()
        if name in names_in(v.node):  # which its own value could not mean
            return before
        return [*before, Declare(self.declare(Decl(name, U64)), v.node)]

    def leaving(self, place: Place) -> list[Stmt]:
        if place.returns and self.some(0.3):
            c = self.condition(place, 1)
            if place.kernel:
                saved = self.store()
                return [If(c.node, [*saved, Return()], None)] if saved else []
            return [If(c.node, [Return(self.value(place, 1).node)], None, braces=False)]
        if place.leaves:
            c = self.uniform_condition() if place.uniform else self.condition(place, 1)
            leave: list[Stmt] = [Leave(self.chance.choice(("break", "continue")))]
            return [If(c.node, leave, None, braces=self.some(0.5))]
        return []

    def store(self) -> list[Stmt]:
        known = {d.name: d for d in self.visible()}
        if not all(name in known and known[name] is self.fixed[name] for name in ("out", "g", "h")):
            return []
        target = Load(self.fixed["out"], Use(self.fixed["g"]))
        return [Assign(target, "=", Binary("+", Binary("*", target, Literal(31, U32)), Use(self.fixed["h"])))]

    fixed: dict[str, Decl]

    def branch(self, place: Place) -> list[Stmt]:
        if place.uniform and self.some(0.5):
            c = self.uniform_condition()
            then = self.inside(place)
            return [If(c.node, then, self.inside(place) if self.some(0.5) else None)]
        changes: dict[str, Any] = {"uniform": False, "leaves": place.leaves and not place.uniform}
        if place.mask is not None and self.sees(place.mask) and self.some(0.7):
            return self.masked_branch(place)
        first = None
        self.scopes.append({})
        if self.some(0.15):
            name = self.fresh()
            value = self.value(place, 1, "calm", name)
            first = Declare(self.declare(Decl(name, I32, fixed=True)), self.to(value, I32).node)
        c = self.condition(place, 2, self.style(place))
        quiet: dict[str, Any] = {**changes, "mask": None, "full": False}
        kept = [first.decl] if first else []
        then = self.inside(place, 4, kept, **quiet)
        chained = self.condition(place, 1)  # made in the order of the text, because macros change in it
        other = self.inside(place, 4, kept, **quiet) if self.some(0.5) else None
        if other and not first and self.some(0.3):
            other = [If(chained.node, other, self.inside(place, 2, kept, **quiet))]
        self.scopes.pop()
        return [If(c.node, then, other, first, braces=self.some(0.6))]

    def lanes(self, mask: Decl, name: str, holds: Expr) -> Declare:
        return Declare(self.declare(Decl(name, U64, fixed=True)), Warp("ballot", [holds], Use(mask)))

    def masked_branch(self, place: Place) -> list[Stmt]:
        """The mask of each side is a ballot taken before they part."""
        assert place.mask is not None
        self.count += 1
        c = Decl(f"c{self.count}", BOOL, fixed=True)
        holds = Declare(c, self.condition(place, 2).node)
        self.declare(c)
        taken = self.lanes(place.mask, f"in{self.count}", Cast(I32, Use(c)))
        rest = Decl(f"not{self.count}", U64, fixed=True)
        changes: dict[str, Any] = {"uniform": False, "leaves": False, "returns": False, "full": False}
        then = self.inside(place, **changes, mask=taken.decl)
        other = None
        if self.some(0.6):
            value = Binary("&", Use(place.mask), Unary("~", Use(taken.decl)))
            other = [Declare(rest, value), *self.inside(place, 3, [rest], **changes, mask=rest)]
        return [holds, taken, If(Use(c), then, other)]

    def counting(self, place: Place) -> list[Stmt]:
        """A loop with a counter."""
        uniform = place.uniform and self.some(0.6)
        alike = uniform or self.some(0.3)  # all lanes that are here have the same turns
        keeps = place.mask is not None and alike and (uniform or not place.uniform or self.some(0.5))
        self.scopes.append({})
        name = self.fresh()
        kind = self.chance.choice((I32, I32, U32, I16, I64, U8))
        if alike:
            end = self.within(self.uniform_value() if place.uniform and not self.uses(name) else self.any_literal(), 3)
        else:
            end = self.within(self.value(place, 2, "calm", name), 3)
        counter = Decl(name, kind, fixed=True, uniform=alike and place.uniform and uniform, low=0, high=9)
        step = self.chance.choice((0, 0, 0, 1, 2))
        style = self.chance.choice(("", "", "macro", "unroll"))
        start = 0 if style == "macro" else self.chance.choice((0, 0, 0, 1))
        if kind.signed is False and kind.bits < 32:
            style = ""
        also = None
        if not alike and self.some(0.2):
            also = self.condition(place, 1, "calm", name).node
        self.declare(counter)
        changes: dict[str, Any] = {"uniform": uniform, "leaves": True}
        if self.warps == "mask":
            changes |= {"mask": None, "full": False}
            if keeps:
                changes |= {"mask": place.mask, "full": place.full, "leaves": False, "returns": False}
        if place.uniform and not uniform:
            changes["returns"] = place.returns and not keeps
        body = self.in_scope(place, changes)
        self.scopes.pop()
        return [For(counter, Literal(start, I32), end.node, step, body, also, style, self.some(0.6))]

    def in_scope(self, place: Place, changes: dict[str, Any]) -> list[Stmt]:
        """Make a loop's body, which may not declare the counter's name again."""
        counter = next(iter(self.scopes[-1].values()), None)
        return self.inside(place, 4, [counter] if counter is not None else [], **changes)

    def looping(self, place: Place) -> list[Stmt]:
        """A loop with a condition: its turns end because a counter falls."""
        self.count += 1
        counter = Decl(f"left{self.count}", self.chance.choice((I32, I32, I16, I64)), fixed=True, changes=True)
        outer: list[Stmt] = [Declare(counter, self.within(self.value(place, 1), 3).node)]
        self.declare(counter)
        changes: dict[str, Any] = {"uniform": False, "leaves": True}
        if self.warps == "mask":
            changes |= {"mask": None, "full": False}
            if place.mask is not None and self.sees(place.mask) and self.some(0.6):
                return [*outer, *self.masked_loop(place, counter)]
        if self.warps == "maskless" and place.ops and self.some(0.25):
            down: list[Stmt] = [If(Binary(">", Use(counter), Literal(0, I32)), [Step(Use(counter), "--", True)], None)]
            body = self.inside(place, 3, **{**changes, "leaves": False})
            vote = Warp("any", [Cast(I32, Binary(">", Use(counter), Literal(0, I32)))])
            return [*outer, While(vote, [*down, *body], last=self.some(0.3))]
        if self.some(0.5):
            return [*outer, While(None, self.inside(place, **changes), counter, last=self.some(0.3))]
        step: list[Stmt] = [Assign(Use(counter), "=", Cast(counter.type, Binary("-", Use(counter), Literal(1, I32))))]
        test: Expr = Binary(">", Use(counter), Literal(0, I32))
        last, more = self.some(0.4), self.some(0.3)
        if more and not last:
            test = Logic("&&", test, self.condition(place, 1).node)
        body = [*step, *self.inside(place, **changes)]
        if more and last:
            test = Logic("&&", test, self.condition(place, 1).node)
        return [*outer, While(test, body, last=last)]

    def masked_loop(self, place: Place, counter: Decl) -> list[Stmt]:
        assert place.mask is not None
        lanes = Decl(f"on{self.count}", U64, fixed=True, changes=True)
        self.declare(lanes)
        more = Binary(">", Use(counter), Literal(0, I32))
        changes: dict[str, Any] = {"uniform": False, "leaves": False, "returns": False, "full": False, "mask": lanes}
        head: list[Stmt] = [
            Assign(Use(lanes), "=", Warp("ballot", [Cast(I32, more)], Use(lanes))),
            If(Unary("!", more), [Leave("break")], None),
            Step(Use(counter), "--", False),
        ]
        return [Declare(lanes, Use(place.mask)), While(None, [*head, *self.inside(place, 3, **changes)])]

    def switching(self, place: Place) -> list[Stmt]:
        uniform = place.uniform and self.some(0.4)
        value = self.within(self.uniform_value() if uniform else self.value(place, 2, self.style(place)), 7)
        labels: list[int | None] = [*self.chance.sample(range(8), self.chance.randint(1, 5)), *([None] if self.some(0.7) else [])]
        self.chance.shuffle(labels)
        arms = []
        changes: dict[str, Any] = {"uniform": uniform, "leaves": place.leaves and (uniform or not place.uniform)}
        if self.warps == "mask" and not uniform:
            changes |= {"mask": None, "full": False}
        elif self.warps == "mask":
            changes |= {"leaves": False}
        while labels:
            count = min(len(labels), self.chance.choice((1, 1, 2)))
            body = self.inside(place, 2, **changes)
            if self.some(0.6):
                body.append(Leave("break"))
            arms.append(Arm(labels[:count], body))
            labels = labels[count:]
        return [Switch(value.node, arms)]

    def braces(self, place: Place) -> list[Stmt]:
        return [Block(self.inside(place, 3), self.chance.choice(("", "line")))]

    def atomic(self, place: Place) -> list[Stmt]:
        bins = next((d for d in self.visible() if d.name == "bins" and d.where == "global"), None)
        if bins is None or place.pure or not place.atomics:
            return []
        at, style = self.within(self.value(place, 1), BINS - 1), self.style(place)
        v = self.value(place, 2, style if _is_flat(at.node) else "calm")  # both stand in one statement
        return [Atomic(self.bin_op, Load(bins, at.node), self.to(v, U32).node)]

    def closure(self, place: Place) -> list[Stmt]:
        """A lambda."""
        name, copies = self.fresh(), self.some(0.4)
        if self.uses(name):
            return []
        pure = place.pure or copies or self.some(0.5)
        parameters = [Decl(f"p{n}", self.chance.choice(TYPES)) for n in range(self.chance.randint(0, 2))]
        leads = place.ops and (self.warps == "maskless" or (self.warps == "mask" and self.some(0.5)))
        mask = Decl("lanes", U64, fixed=True) if self.warps == "mask" and leads else None
        parameters += [mask] if mask else []
        result = self.chance.choice(TYPES)
        inner = Place(
            False, depth=2, mask=mask, kernel=False, result=result, pure=True, floor=len(self.scopes), returns=mask is None,
            ops=leads,
        )  # fmt: skip
        if not pure:
            inner = replace(inner, pure=False)
        body = self.function_body(inner, parameters, 3)
        f = Function(name, parameters, result, body, "lambda", leads=leads)
        if not pure:
            self.impure.add(f)
        self.scopes[-1][name] = f
        return [Closure(f, copies)]

    def function_body(self, place: Place, parameters: Sequence[Decl], most: int) -> list[Stmt]:
        self.scopes.append({d.name: d for d in parameters})
        out: list[Stmt] = []
        for _ in range(self.chance.randint(1, most)):
            self.left -= 1
            out += self.statement(place)
        out.append(Return(self.value(place, 2, self.style(place)).node))
        self.scopes.pop()
        return out

    # -- shared memory -------------------------------------------------------------------------------------------------

    def known(self, *names: str) -> list[Decl] | None:
        found = [self.fixed[name] for name in names]
        return found if all(self.sees(d) for d in found) else None

    def other_thread(self, t: Decl, total: Decl) -> Expr:
        away = Binary("+", Use(t), Literal(self.chance.randint(1, 40), I32))
        if self.some(0.3):
            away = Binary("-", Binary("-", Use(total), Literal(1, I32)), Use(t))
        return Binary("%", away, Use(total))

    def shared_array(self) -> Decl | None:
        found = [d for d in self.visible() if d.where in ("shared", "dynamic") and d.size >= 128]
        return self.chance.choice(found) if found else None

    def exchange(self, place: Place) -> list[Stmt]:
        s, known = self.shared_array(), self.known("t", "total")
        if s is None or known is None:
            return []
        t, total = known
        name = self.fresh()
        fill = Assign(Load(s, Use(t)), "=", self.value(place, 2, self.style(place), name).node)
        take = Declare(Decl(name, self.chance.choice((s.type, U32, I64))), Load(s, self.other_thread(t, total)))
        if name in (s.name, "t", "total"):
            return []
        self.declare(take.decl)
        return [fill, Barrier(), take, Barrier()]

    def tree(self, place: Place) -> list[Stmt]:
        """A sum over the block, by halves."""
        s, known = self.shared_array(), self.known("t", "total")
        if s is None or known is None or s.type.signed:
            return []
        t, total = known
        o = Decl(f"o{self.count}", I32)
        far = Binary("+", Use(t), Use(o))
        holds = Logic("&&", Binary("<", Use(t), Use(o)), Binary("<", far, Use(total)))
        add = Assign(Load(s, Use(t)), "+=", Load(s, far))
        turn: list[Stmt] = [If(holds, [add], None), Barrier(), Assign(Use(o), ">>=", Literal(1, I32))]
        self.count += 1
        return [
            Assign(Load(s, Use(t)), "=", self.value(place, 2, self.style(place)).node), Barrier(),
            Block([Declare(o, Literal(64, I32)), While(Binary(">", Use(o), Literal(0, I32)), turn)]),
            *self.mix(Value(Load(s, Literal(0, I32)), s.type, 0, s.type.high)), Barrier(),
        ]  # fmt: skip

    def shared_bins(self, place: Place) -> list[Stmt]:
        known = self.known("t")
        if known is None:
            return []
        self.count += 1
        d = Decl(f"bin{self.count}", self.chance.choice((U32, I32, U64)), "shared", BINS)
        op = self.chance.choice(("atomicAdd", "atomicMax", "atomicMin", "atomicOr", "atomicXor"))
        turn = Decl(f"q{self.count}", I32, fixed=True)
        clear = For(turn, Literal(0, I32), Literal(BINS, I32), 0, [Assign(Load(d, Use(turn)), "=", Literal(0, I32))])
        zero: list[Stmt] = [If(Binary("==", Use(known[0]), Literal(0, I32)), [clear], None)]
        at, v = self.within(self.value(place, 1), BINS - 1), self.value(place, 2)
        if d.type == I32:
            v = self.within(v, 0xFFFF)
        change: Stmt = Atomic(op, Load(d, at.node), self.to(v, d.type).node)
        if self.some(0.5):
            change = If(self.condition(place, 1).node, [change], None)
        mixed = self.mix(Value(Load(d, self.within(self.leaf(place), BINS - 1).node), d.type, d.type.low, d.type.high))
        return [Declare(self.declare(d), None), *zero, Barrier(), change, Barrier(), *mixed, Barrier()]

    def vote(self, place: Place) -> list[Stmt]:
        return self.mix(Value(Vote(self.chance.choice(("count", "or", "and")), self.condition(place, 1).node), I32, 0, 1024))

    # -- functions -----------------------------------------------------------------------------------------------------

    def function(self, number: int) -> Function:
        form = self.chance.choice(self.forms)
        form = "plain" if form in ("functor", "static") and self.apart else form
        leads = self.warps != "none" and self.some(0.6)
        named = [f.name for f in self.functions]
        if form == "overload" and (not named or self.functions[-1].form != "plain" or named.count(named[-1]) > 1):
            form = "plain"
        mask = Decl("lanes", U64, fixed=True) if leads and self.warps == "mask" else None
        space = "" if self.apart else self.chance.choice(("", f"s_{self.name}"))
        prefix = "w" if leads else "f"
        name = f"{prefix}{number}_{self.name}" if not space or form in ("functor", "static") else f"{prefix}{number}"
        parameters = [Decl(f"p{n}", self.chance.choice(TYPES)) for n in range(self.chance.randint(1, 3))]
        result = self.chance.choice(TYPES)
        constant = None
        place = Place(False, depth=1, mask=mask, kernel=False, returns=mask is None, atomics=False, pure=True, floor=1, ops=leads)
        impure = False
        if form == "overload":
            last = self.functions[-1]
            if (
                last.leads == leads
                and [d.name for d in last.parameters if d.name != "lanes"]
                and "level" not in [d.name for d in last.parameters]
                and all(d.default is None for d in last.parameters)
            ):
                name, space = last.name, last.space
                types = [d.type for d in last.parameters if d.name != "lanes"]
                other = self.chance.choice([kind for kind in TYPES if kind != types[0]])
                parameters = [Decl(f"p{n}", other if n == 0 else kind) for n, kind in enumerate(types)]
                if any(d.reference for d in last.parameters):
                    form = "plain"
                    name, space = f"{prefix}{number}_{self.name}", ""
            form = "plain"
        elif form == "template":
            for d in parameters:
                d.type = self.chance.choice((PARAMETER, d.type))
            result = PARAMETER if any(d.type is PARAMETER for d in parameters) else result
            constant = (
                Decl("N", I32, "number", fixed=True, uniform=True, low=1, high=5)
                if self.some(0.6) or result is not PARAMETER
                else None
            )
        elif form == "recursive":
            parameters.insert(0, Decl("level", I32, fixed=True))
        elif form == "plain" and self.some(0.25):
            parameters[0].reference = True
            parameters[0].pointer = self.some(0.4)
            parameters[0].type = self.chance.choice((parameters[0].type, U32))
            impure = True
        if form in ("plain", "template") and not named.count(name):
            for d in parameters:
                if not d.reference and self.some(0.2):
                    d.reference = d.fixed = True
            if form == "plain" and mask is None and len(parameters) > 1 and not parameters[-1].reference and self.some(0.3):
                parameters[-1].default = self.chance.randint(0, 100)
        parameters += [mask] if mask else []
        place.result = result
        inline = self.chance.choice(("", "", "inline ", "__forceinline__ ", "__noinline__ ", "static "))
        if form in ("functor", "static", "template", "recursive"):
            inline = ""
        f = Function(name, parameters, result, [], "plain" if form == "recursive" else form, space, constant, leads, inline)
        if form == "template":
            f.body = self.template_body(f, place)
        else:
            f.body = self.function_body(place, parameters, self.longest)
            if form == "recursive":
                level = parameters[0]
                end = If(Binary("<=", Use(level), Literal(0, I32)), [Return(Use(parameters[1]))], None)
                args: list[Expr] = [Binary("-", Use(level), Literal(1, I32))]
                for d in parameters[1:]:
                    args.append(Use(d) if d.name == "lanes" else Cast(d.type, Binary("^", Use(d), Literal(3, I32))))
                again = Decl("again", result)
                if mask is None:
                    f.body = [end, Declare(again, Call(f, args)), *f.body[:-1], Return(Binary("^", Use(again), Literal(1, I32)))]
        if impure:
            self.impure.add(f)
        return f

    def template_body(self, f: Function, place: Place) -> list[Stmt]:
        """Values of the template's type are widened before they are computed with."""
        self.scopes.append({})
        self.reserved = ("T", "N", *(d.name for d in f.parameters))
        for d in [*f.parameters, *([f.number] if f.number else [])]:
            if d.type is not PARAMETER:
                self.declare(d)
        out: list[Stmt] = []
        for n, d in enumerate(f.parameters):
            if d.type is PARAMETER:
                wide = self.declare(Decl(f"wide{n}", U64))
                out.append(Declare(wide, Cast(U64, Use(d))))
        for _ in range(self.chance.randint(1, 3)):
            out += self.statement(replace(place))
        if f.number is not None:
            total = self.declare(Decl("total_", U64))
            turn = Assign(Use(total), "+=", self.to(self.value(place, 1), U64).node)
            count = Decl("turn", I32, fixed=True)
            out += [Declare(total, Literal(1, U64)), For(count, Literal(0, I32), Use(f.number), 0, [turn], None, "unroll")]
        out.append(Return(Cast(f.result, self.value(place, 2, "flat").node)))
        self.reserved = ()
        self.scopes.pop()
        return out

    # -- the kernel ----------------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        self.macro_types = {}
        self.fixed = {}
        grid = self.chance.choice(GRIDS)
        threads = self.block[0] * self.block[1] * self.block[2]
        table = Decl(f"table_{self.name}", self.chance.choice((I32, U8, U64)), "constant", 8, fixed=True)
        table.values = tuple(self.chance.randint(table.type.low // 2, table.type.high // 2) for _ in range(8))
        number = self.chance.randint(-9, 9)
        named = Decl(f"named_{self.name}", I32, "constant", fixed=True, uniform=True, low=number, high=number, values=(number,))
        constants = [table, named]
        self.scopes = [{d.name: d for d in constants}]
        before: list[Stmt] = [Define(self.macro()) for _ in range(self.chance.randint(0, 2))]
        for n in range(self.chance.randint(0, self.most_functions)):
            self.functions.append(self.function(n))
        parameters = [
            Decl("out", U32, "global", threads * grid[0] * grid[1] * grid[2]), Decl("bins", U32, "global", BINS),
            Decl("src", I32, "global", SOURCES, fixed=True), Decl("n", I32, fixed=True, uniform=True, low=0, high=9),
            Decl("m", U32, fixed=True, uniform=True, low=0, high=U32.high),
        ]  # fmt: skip
        self.scopes.append({d.name: d for d in parameters})
        start = self.start(parameters, grid)
        shared_bytes = 0
        if self.barriers:
            start.append(
                Declare(
                    self.declare(Decl("s0", self.chance.choice((U32, I32, U8, I64)), "shared", 128)),
                    None,
                    style=self.chance.choice(("", "x")),
                )
            )
            if self.some(0.3):
                kind = self.chance.choice((U32, U16, U64))
                shared_bytes = 128 * kind.bits // 8
                start.append(Declare(self.declare(Decl(f"s1_{self.name}", kind, "dynamic", 128)), None))
        mask = self.fixed.get("m0")
        place = Place(
            True, mask=mask, full=mask is not None and threads % 32 == 0, returns=not self.barriers and self.warps != "mask"
        )
        self.left = max(self.left, self.fewest)
        body = start
        while self.left > 0:
            self.left -= 1
            body += self.statement(place)
        body += self.gathered()
        body += self.mix(self.value(place, 2, self.style(place)))
        out, g, h = (self.fixed[name] for name in ("out", "g", "h"))
        target = Load(out, Use(g))
        body.append(Assign(target, "=", Binary("+", Binary("*", target, Literal(31, U32)), Use(h))))
        return Kernel(
            self.name, self.seed, self.functions, constants, parameters, body, grid, self.block, before, shared_bytes,
            self.warps == "maskless", self.bin_op,
        )  # fmt: skip

    def gathered(self) -> list[Stmt]:
        """Return what makes the variables' values count that nothing else reads."""
        return []

    def start(self, parameters: list[Decl], grid: tuple[int, int, int]) -> list[Stmt]:
        """Who a thread is: `t` in its block of `total`, `g` in the grid, `lane`; `h` gathers what it computes."""

        def index(name: str) -> Expr:
            return Index(name)

        def linear(of: str, extent: str) -> Expr:
            rows = Binary("+", Binary("*", index(f"{of}.z"), index(f"{extent}.y")), index(f"{of}.y"))
            return Cast(I32, Binary("+", Binary("*", rows, index(f"{extent}.x")), index(f"{of}.x")))

        threads = self.block[0] * self.block[1] * self.block[2]
        total = Decl("total", I32, fixed=True, uniform=True, low=1, high=128)
        t = Decl("t", I32, fixed=True, low=0, high=threads - 1)
        g = Decl("g", I32, fixed=True, low=0, high=threads * grid[0] * grid[1] * grid[2] - 1)
        lane = Decl("lane", I32, fixed=True, low=0, high=63)
        h = Decl("h", U32)
        count = Binary("*", Binary("*", index("blockDim.x"), index("blockDim.y")), index("blockDim.z"))
        out: list[Stmt] = [
            Declare(total, Cast(I32, count)), Declare(t, linear("threadIdx", "blockDim")),
            Declare(g, Binary("+", Binary("*", linear("blockIdx", "gridDim"), Use(total)), Use(t))), Declare(h, Literal(1, U32)),
        ]  # fmt: skip
        for d in (total, t, g, h):
            self.fixed[d.name] = self.declare(d)
        self.fixed["out"] = parameters[0]
        if self.warps != "none":
            out.append(Declare(lane, Binary("%", Use(t), Index("warpSize"))))
            self.fixed["lane"] = self.declare(lane)
        if self.warps == "mask":
            many = Decl("many", I32, fixed=True, low=1, high=64)
            rest = Binary("-", Use(total), Binary("-", Use(t), Use(lane)))
            some = Binary("-", Binary("<<", Literal(1, U64), Binary("&", Use(many), Literal(63, I32))), Literal(1, U64))
            every = Choice(Binary("==", Use(many), Literal(64, I32)), Unary("~", Literal(0, U64)), some)
            m0 = Decl("m0", U64, fixed=True, uniform=self.apart and threads % 64 == 0 and self.some(0.8))
            out += [Declare(many, Builtin("min", [rest, Index("warpSize")]))]
            out += [Declare(m0, Unary("~", Literal(0, U64)) if m0.uniform else every)]
            self.fixed["m0"] = self.declare(m0)
            self.declare(many)
        return out


def names_in(e: Expr) -> set[str]:
    """Return the names of variables and functions in an expression."""
    given = (getattr(node, kind, None) for node in walk(e) for kind in ("decl", "array", "function"))
    return {named.name for named in given if named is not None}


def _is_flat(e: Expr) -> bool:
    """Return whether an expression leaves nothing out."""
    return not any(isinstance(node, (Choice, Logic)) for node in walk(e))
