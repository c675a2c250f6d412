"""Kernels near to what clang can split at barriers and warp operations: short, of few kinds of statements, and with what makes
a split wrong if it is not looked at: names that mean something else elsewhere, other names of the same memory, and operations
between a load and a store of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from .chance import BLOCKS, NAMES, OPERATIONS, Maker, Place, Value
from .tree import (
    BOOL,
    I8,
    I32,
    I64,
    TYPES,
    U32,
    U64,
    WIDE,
    Arm,
    Assign,
    Assigned,
    Barrier,
    Binary,
    Block,
    Call,
    Cast,
    Choice,
    Comma,
    Decl,
    Declare,
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
    Record,
    Return,
    Stmt,
    Switch,
    Type,
    Use,
    Warp,
    common,
)  # fmt: skip

#: How many kernels have none of these: most, where a split kernel has none.
_WITHOUT: Final = {
    "itself": 1, "closure": 0.9, "conditional": 0.85, "switching": 0.85, "vote": 0.8, "ordered": 0.7, "looping": 0.7,
    "volatile": 0.9, "reference": 0.7, "bounded": 0.8, "braces": 0.5, "branch": 0.5, "counting": 0.5, "atomic": 0.6,
    "leaving": 0.6, "call_statement": 1, "exchange": 0.5, "shared_bins": 0.7, "tree": 0.7, "meeting": 0.7, "definition": 0.8,
    "array": 0.7, "noise": 0.7, "whole_warps": 0.4, "reduction": 0.3, "overwritten": 0.5, "record": 0.7, "passed": 0.4,
    "block_wide": 0.6, "mixing": 0.2, "switched": 0.7, "handed_on": 0.6, "hidden": 0.6, "helped": 0.6, "guarded": 0.8,
    "shadowed": 0.7, "sized": 0.8, "private": 0.7, "partly": 0.7,
}  # fmt: skip
#: What a kernel is about: it has little else, so that clang can split what is beside it.
_THEMES: Final = (
    "switched", "ordered", "helped", "guarded", "shadowed", "hidden", "conditional", "ordered", "overwritten", "guarded",
    "helped", "sized", "ordered", "whole_warps", "conditional", "hidden", "looping", "guarded", "overwritten", "private",
    "branch", "helped", "reduction", "block_wide", "reference", "private", "partly",
)  # fmt: skip


def make_kernel(seed: int, name: str, *, gpu: bool = False) -> Kernel:
    """Make the kernel of a seed; with `gpu` without what only AMD has: warp operations without a mask.

    Of every 150 kernels the last 100 are of `NearMaker`, as modules of their own, which no other kernel's names touch; in every
    other of the last fifties they wait at barriers alone.
    """
    kind = NearMaker if seed // 50 % 3 else Maker
    return kind(seed, name, gpu).kernel()


class NearMaker(Maker):
    def __init__(self, seed: int, name: str, gpu: bool) -> None:
        super().__init__(seed, name, gpu)
        self.apart, self.gpu = True, gpu
        self.warps = self.chance.choice(("mask",) if gpu else ("maskless", "maskless", "mask"))
        if seed // 50 % 6 == 2:
            self.warps, self.barriers = "none", True
        self.without = {kind for kind, often in _WITHOUT.items() if self.some(often)}
        self.names = (*NAMES, "warpSize", "T", "N", "p0", "p1")
        self.theme = _THEMES[seed % 50 % len(_THEMES)] if self.some(0.8) else ""
        if self.theme:
            self.most_functions, self.fewest = self.chance.choice((0, 0, 1)), 2
            self.block = self.chance.choice([b for b in BLOCKS if b[0] * b[1] * b[2] >= 40])
            if self.theme == "private" and self.some(0.8):  # loops over whole warps
                self.block = self.chance.choice(((64, 1, 1), (128, 1, 1)))
            self.barriers = self.barriers or self.theme in ("overwritten", "block_wide")
            if self.warps == "mask" and not gpu and self.some(0.8):
                self.warps = "maskless"
        self.without -= {self.theme}
        self.taking = self.some(0.08)
        if self.taking:
            results = ("hgcpu_w1", "hgcpu_w2") if self.some(0.2) else ()
            self.names = (*results, "hgcpu_t", "hgcpu_kept_9", "hgcpu_again_5", "hgcpu_n", "a", "b")
        rare = {"match_any": 0.05, "leader": 0.1}
        self.operations = [name for name in OPERATIONS if self.some(rare.get(name, 0.7))] or ["shfl"]
        self.forms = [form for form in ("plain", "plain", "template") for _ in range(3)] + ["overload", "recursive"]
        self.longest = self.chance.choice((1, 1, 2, 3))
        self.deepest = self.chance.choice((0, 0, 0, 1) if self.theme else (0, 1, 1, 1, 2))
        self.flat = self.chance.choice((0.0, 0.0, 0.0, 0.3))
        self.left = self.chance.randint(1, 4) if self.theme else self.chance.randint(3, 14)
        self.wide: list[Function] = []
        # One of each to a kernel: what keeps another from being split hides it.
        # C++17 alone orders a shift.
        self.order = self.chance.choice(("comma", "braces", "index", *["shift"] * (0 if gpu else 3)))
        self.last = self.some(0.5)  # whether an operation is what comes last
        self.help = self.chance.choice(("early", "within", "loop", "letter", "letter", "overloaded", "overloaded", "plain"))

    def kinds(self, place: Place) -> dict[Callable[[Place], list[Stmt]], float]:
        found = super().kinds(place) | {
            self.operation: 6, self.ordered: 2, self.record: 0.5, self.passed: 3, self.volatile: 0.3, self.bounded: 0.5,
        }  # fmt: skip
        if place.depth < 3:
            found |= {self.reduction: 2, self.whole_warps: 2}
        if place.kernel and self.warps == "maskless":
            found |= {self.switched: 1, self.handed_on: 2, self.hidden: 1, self.helped: 2, self.guarded: 1, self.sized: 0.5}
            found |= {self.partly: 1}
        if place.kernel and place.depth < 2:
            found |= {self.shadowed: 1, self.private: 1}
        if place.uniform and self.barriers and place.kernel:
            found |= {self.overwritten: 2, self.block_wide: 2}
        if self.taking and place.kernel:
            found |= {self.taken: 3}
        if self.theme:
            often = {self.theme: 6.0, "operation": 2, "declaration": 1, "mixing": 1, "assignment": 1, "taken": 3}
            often |= {name: 0.5 for name in ("record", "volatile", "bounded") if name not in self.without}
            return {kind: often[kind.__name__] for kind in found if kind.__name__ in often}
        return {kind: often for kind, often in found.items() if kind.__name__ not in self.without}

    def value(self, place: Place, depth: int, style: str = "calm", hidden: str = "") -> Value:
        return super().value(place, min(depth, self.deepest), style, hidden)

    def style(self, place: Place) -> str:
        return "flat" if self.some(self.flat) else "calm"

    def gathered(self) -> list[Stmt]:
        own = [d for d in self.scopes[-1].values() if isinstance(d, Decl) and d.where == "thread"]
        found = [d for d in own if d.name != "h" and not d.fixed]
        out = []
        for d in found[:8]:
            first = Value(Load(d, Literal(1, I32)), d.type, d.type.low, d.type.high) if d.size else self.use(d)
            out += [] if d.volatile else self.mix(first)
        return out

    # -- statements ----------------------------------------------------------------------------------------------------

    def target(self, place: Place, kinds: Sequence[Type]) -> tuple[list[Stmt], Decl]:
        """Return a variable that a thread may change, declared if there is none."""
        found = [d for d in self.targets(place) if d.type in kinds and not d.uniform and d.name != "h"]
        if found and self.some(0.8):
            return [], self.chance.choice(found)
        name, kind = self.fresh(), self.chance.choice(kinds)
        first = self.to(self.leaf(place, name), kind)
        return [Declare(d := self.declare(Decl(name, kind)), first.node)], d

    def operation(self, place: Place) -> list[Stmt]:
        """An operation in a statement of its own, or nearly."""
        name = self.fresh()
        made = self.warp(place, 0, name) if place.ops else None
        if made is None:
            return []
        if self.some(0.3):
            made = self.arithmetic(self.chance.choice("+-^&*"), made, self.leaf(place, name))
        if self.some(0.5):
            return [Declare(self.declare(Decl(name, self.chance.choice((made.type, U32, I32)))), made.node)]
        before, d = self.target(place, TYPES)
        op = "=" if d.type.signed or d.type.bits < 32 else self.chance.choice(("=", "+=", "^="))
        return [*before, Assign(Use(d), op, self.to(made, d.type).node)]

    def reduction(self, place: Place) -> list[Stmt]:
        """A loop of shuffles by distances that are halved."""
        full = place.full or self.warps == "maskless"
        if not (full and place.ops) or (self.warps == "mask" and (place.mask is None or not self.sees(place.mask))):
            return []
        before, d = self.target(place, (U32, U64))
        name = self.fresh()
        if name == d.name.partition(".")[0] or (place.mask and name == place.mask.name):
            return before
        o = Decl(name, I32, fixed=True, changes=True)
        mask = Use(place.mask) if self.warps == "mask" and place.mask else None
        way = self.chance.choice(("shfl_down", "shfl_up", "shfl_xor"))
        by: Expr = Use(o) if way == "shfl_xor" else Cast(U32, Use(o))
        turn: list[Stmt] = [Assign(Use(d), self.chance.choice(("+=", "^=")), Warp(way, [Use(d), by], mask))]
        start = Literal(self.chance.choice((16, 8, 2)), I32)
        return [*before, For(o, start, Literal(0, I32), 0, turn, None, "halve", self.some(0.5))]

    def whole_warps(self, place: Place) -> list[Stmt]:
        """A condition that is the same for each warp, with a division that is one by zero where the condition around it fails."""
        known = self.known("t") if place.kernel else None
        if known is None:
            return []
        number = Binary("/", Use(known[0]), Literal(64, I32))
        alike = self.block[0] * self.block[1] * self.block[2] % 64 == 0 or self.warps != "mask"
        inner = replace(place, uniform=False, leaves=False, depth=place.depth + 1)
        if self.warps == "mask":
            inner = replace(inner, returns=False, mask=place.mask if alike else None, full=place.full and alike)
        if self.some(0.6):
            holds = Binary(self.chance.choice(("==", "<", "!=")), number, Literal(self.chance.choice((0, 1, 1)), I32))
            return [If(holds, self.body(inner, 3), self.body(inner, 2) if self.some(0.3) else None)]
        by = Binary("/", Index("blockDim.x"), Literal(self.chance.choice((64, 128)), U32))
        holds = Binary("==", Binary("%", number, by), Literal(0, U32))
        before, d = self.target(place, (U32, U64))
        made = self.warp(replace(inner, mask=place.mask if alike else None), 0, "") if place.ops else None
        body: list[Stmt] = (
            [Assign(Use(d), "=", self.to(made, d.type).node)] if made else self.body(replace(inner, depth=inner.depth + 1), 3)
        )
        return [*before, If(Binary(">=", Index("blockDim.x"), Literal(128, U32)), [If(holds, body, None)], None)]

    def ordered(self, place: Place) -> list[Stmt]:
        """A change and then a use in one statement, in an order that C++ defines."""
        if place.pure:
            return []
        last = self.last and self.warps == "maskless" and place.ops
        before, d = self.target(place, (U32,) if last else (U32, U64))
        name = self.fresh()
        if name == d.name.partition(".")[0]:
            return before
        flat = "flat" if self.some(0.7) and not last else "calm"
        first, then = (super(NearMaker, self).value(place, 0 if last else 1, flat, name) for _ in range(2))
        others = [x for x in self.scalars(name) if x.reference]
        again = self.use(self.chance.choice(others) if others and self.some(0.5) else d)
        if self.some(0.6) and not last:
            made = self.warp(place, 0, name) if place.ops else None
            first = made or first
        then = self.arithmetic("^", again, then)
        change = Assigned(Use(d), self.to(first, d.type, always=True).node)
        form = self.order
        if last:  # the operation has what was changed
            other = self.lane_of(Use(d), name)
            if form == "comma":
                return [*before, *self.mix(Value(Comma(change, other), d.type, 0, d.type.high))]
            if form == "shift":
                moved = Binary("&", self.lane_of(change, name), Literal(7, I32))
                return [*before, *self.mix(Value(Binary("<<", Use(d), moved), d.type, 0, d.type.high))]
            then = Value(other, U32, 0, U32.high)
        if form == "shift":
            return before + self.mix(Value(Binary("<<", change, self.within(then, 7).node), d.type, 0, d.type.high))
        if form == "comma":
            return before + self.mix(Value(Comma(change, then.node), then.type, then.low, then.high))
        array = Decl(name, self.chance.choice(WIDE), size=4)
        values: list[Expr] = [change, then.node, self.value(place, 1, flat, name).node]
        declared = Declare(self.declare(array), None, values)
        if form == "braces":
            return [*before, declared]
        at = self.within(self.value(place, 1, flat), 3)
        value = self.value(place, 1, flat)
        return [*before, declared, Assign(Load(array, at.node), "=", value.node)]

    def lane_of(self, value: Expr, hidden: str = "") -> Warp:
        """A shuffle of a value, by a lane that all threads name or that each has of its own.

        Beside a value that changes a variable it is a number: C++ does not say which of two arguments is computed first.
        """
        own = self.some(0.3)
        by = self.within(self.leaf(Place(False), hidden), 31) if own else self.literal(self.chance.randint(0, 31))
        if own and isinstance(value, Assigned):
            by = self.literal(self.chance.randint(0, 31))
        way = self.chance.choice(("shfl", "shfl_xor", "shfl_up", "shfl_down"))
        return Warp(way, [value, self.to(by, U32 if way in ("shfl_up", "shfl_down") else I32, always=True).node])

    def switched(self, place: Place) -> list[Stmt]:
        """Operations in the arms of a `switch` that lanes enter in different ones."""
        before, d = self.target(place, (U32, U64))
        value = self.within(self.leaf(place) if self.some(0.3) else Value(Index("threadIdx.x"), U32, 0, 255), 1)
        arms = []
        for label in (0, 1):
            made = self.warp_leaf(place) if self.some(0.4) else self.telling()
            change = Assign(Use(d), "=", self.to(made, d.type).node)
            arms.append(Arm([label], [change, Leave("break")]))
        return [*before, Switch(value.node, arms)]

    def handed_on(self, place: Place) -> list[Stmt]:
        """A variable whose reference or address one function hands on to another, which has variables of the same names."""
        before, d = self.target(place, (U32,))
        if d.volatile:
            return before
        n, name, pointer = len(self.functions), d.name if "." not in d.name else self.fresh(), self.some(0.5)
        inner, own = Decl("b", U32, reference=True, pointer=pointer), Decl(name, U32)
        outer = Decl("a", U32, reference=True, pointer=pointer and self.some(0.7))
        if name in ("a", "b"):
            return before
        by = Literal(self.chance.randint(0, 7), I32)
        first = Binary("+", Literal(3, I32), Cast(I32, Index("threadIdx.x")))
        turn: list[Stmt] = [
            Declare(own, first), Assign(Use(inner), "+=", Warp("shfl_xor", [Use(own), by])), Return(Use(own)),
        ]  # fmt: skip
        f = Function(f"x{n}_{self.name}", [inner], U32, turn, leads=True)
        got = Decl("got", U32)
        most: list[Stmt] = [Declare(got, Call(f, [Use(outer)])), Assign(Use(outer), "^=", Warp("shfl", [Use(got), by]))]
        g = Function(f"y{n}_{self.name}", [outer], U32, [*most, Return(Use(got))], leads=True)
        self.functions += [f, g]
        self.impure |= {f, g}
        result = Decl(self.fresh(), U32)
        if result.name == d.name:
            return before
        made: Expr = Call(g, [Use(d)])
        if outer.pointer and self.order == "shift":
            made = Binary("<<", Use(d), Binary("&", made, Literal(7, I32)))
        return [*before, Declare(self.declare(result), made)]

    def hidden(self, place: Place) -> list[Stmt]:
        """A variable that has the name of a template's parameter, or of a constant, that a function reads."""
        n, name = len(self.functions), self.chance.choice(("N", "LIMIT", "warpSize"))
        if self.uses(name):
            return []
        first = self.to(self.within(self.leaf(place, name), 15), U32).node
        d = self.declare(Decl(name, U32, fixed=self.some(0.5)))
        p = Decl("p", U32, reference=self.some(0.2), fixed=True)
        number = Decl("N", I32, "number", fixed=True, uniform=True, low=1, high=5) if name == "N" else None
        by: Expr = Use(number) if number else Literal(3, I32, "LIMIT" if name == "LIMIT" else "")
        value = Binary("+", Warp("shfl_xor", [Use(p), by]), Cast(U32, by))
        f = Function(f"z{n}_{self.name}", [p], U32, [Return(value)], "template" if number else "plain", number=number, leads=True)
        self.functions.append(f)
        call = Call(f, [Use(d)], {}, 2 if number else None)
        return [Declare(d, first), *self.mix(Value(call, U32, 0, U32.high)), *self.mix(self.warp_leaf(place))]

    def conditional(self, place: Place) -> list[Stmt]:
        if place.pure or not place.ops or self.warps != "maskless" or self.some(0.4):
            return super().conditional(place)
        odd = Binary("!=", Binary("&", Index("threadIdx.x"), Literal(self.chance.choice((1, 2)), U32)), Literal(0, U32))
        if self.some(0.3):
            vote = Warp("any", [Cast(I32, Binary("==", Index("threadIdx.x"), Literal(self.chance.randint(0, 9), U32)))])
            return self.mix(Value(Logic(self.chance.choice(("&&", "||")), odd, vote), BOOL, 0, 1))
        return self.mix(Value(Choice(odd, self.to(self.telling(), U32).node, Literal(3, U32)), U32, 0, U32.high))

    def helped(self, place: Place) -> list[Stmt]:
        """A short function that holds what a call by itself, written in place, may get wrong: returns before its end, names that
        its caller has too, letters that are names of its template, and calls of a function that is overloaded behind it."""
        n, (before, d) = len(self.functions), self.target(place, (U32, I32))
        same = d.name if "." not in d.name and d.name not in ("N", "T") else "own"
        p = Decl(self.chance.choice(("p", "a", "x", same)), U32)
        own = Decl(self.chance.choice([x for x in ("a", "x", "h", same) if x != p.name]), U32)
        form = self.help
        numbered = form == "letter" or self.some(0.3)
        number = Decl("N", I32, "number", fixed=True, uniform=True, low=1, high=5) if numbered else None
        turn: list[Stmt] = [Declare(own, Binary("+", Index("threadIdx.x"), Literal(self.chance.randint(0, 9), U32)))]
        odd = Binary("!=", Binary("&", Use(p), Literal(self.chance.choice((1, 2)), U32)), Literal(0, U32))
        by: Expr = Use(number) if number and self.some(0.5) else Literal(self.chance.randint(1, 9), I32)
        moved = Warp(self.chance.choice(("shfl", "shfl_xor")), [Use(self.chance.choice((p, own))), by])
        if form == "early":
            turn.append(If(odd, [Return(Binary("*", Use(p), Literal(3, U32)))], None, braces=self.some(0.5)))
        if form == "within":
            turn.append(If(odd, [Assign(Use(own), "+=", moved)], [Assign(Use(own), "^=", moved)] if self.some(0.4) else None))
        elif form == "loop":
            o, end = Decl("o", I32, fixed=True, changes=True), Binary("&", Cast(I32, Use(p)), Literal(3, I32))
            turn.append(For(o, Literal(0, I32), end if self.some(0.5) else Literal(2, I32), 0, [Assign(Use(own), "+=", moved)]))
        else:
            turn.append(Assign(Use(own), self.chance.choice(("=", "+=")), moved))
        result: Expr = Binary("+", Use(own), Use(p))
        if form == "letter":
            result = Binary("^", result, Literal(ord(self.chance.choice("NNpax")), I8, "char"))
        behind = []
        if form == "overloaded":
            q, r = Decl("q", I64), Decl("q", U32)
            first = Function(f"o{n}_{self.name}", [q], I64, [Return(Binary("+", Use(q), Literal(5, I64)))])
            behind = [Function(f"o{n}_{self.name}", [r], U32, [Return(Binary("*", Use(r), Literal(7, U32)))])]
            self.functions.append(first)
            # The only one where it is called, so its argument is converted.
            result = Cast(U32, Call(first, [result]))
        f = Function(
            f"u{n}_{self.name}", [p], U32, [*turn, Return(result)], "template" if number else "plain", number=number, leads=True
        )
        self.functions += [f, *behind]
        call = Call(f, [Cast(U32, Use(d))], {}, self.chance.randint(1, 5) if number else None)
        got = Decl(self.fresh(), U32)
        return [*before, Declare(self.declare(got), call)] if got.name != d.name.partition(".")[0] else before

    def telling(self) -> Value:
        """An operation whose value says which lanes are in it."""
        x = Index("threadIdx.x")
        if self.some(0.4):
            return Value(Warp("activemask", []), U64, 0, U64.high)
        if self.some(0.4):
            return Value(Warp("ballot", [Cast(I32, Binary("&", x, Literal(1, U32)))]), U64, 0, U64.high)
        return Value(self.lane_of(Binary("*", x, Literal(7, U32))), U32, 0, U32.high)

    def guarded(self, place: Place) -> list[Stmt]:
        """Operations behind a `return` of some threads, or in a branch whose condition divides by what another asks for."""
        saved = self.store()
        if place.returns and place.kernel and saved and self.some(0.5):
            some = Binary("==", Binary("&", Index("threadIdx.x"), Literal(3, U32)), Literal(self.chance.randint(0, 3), U32))
            return [If(some, [*saved, Return()], None), *self.mix(self.telling())]
        before, d = self.target(place, (U32,))
        by = Decl(self.fresh(), I32, fixed=True)
        if by.name == d.name.partition(".")[0]:
            return before
        divided = Declare(
            self.declare(by), Binary("&", Cast(I32, Index("threadIdx.x")), Literal(self.chance.choice((1, 3)), I32))
        )
        holds = Binary("<", Binary("%", Literal(self.chance.randint(5, 99), I32), Use(by)), Literal(2, I32))
        change: list[Stmt] = [Assign(Use(d), self.chance.choice(("=", "+=")), self.to(self.telling(), U32).node)]
        few: list[Stmt] = [Assign(Use(d), "=", Literal(self.chance.randint(0, 9), U32))] if self.some(0.3) else []
        return [*before, divided, If(Binary(">", Use(by), Literal(0, I32)), [If(holds, change, None), *few], None)]

    def partly(self, place: Place) -> list[Stmt]:
        """A variable that begins with the same value in all threads, and that some of them change beside an operation."""
        odd = Binary("!=", Binary("&", Index("threadIdx.x"), Literal(self.chance.choice((1, 4)), U32)), Literal(0, U32))
        d = self.declare(Decl(self.fresh(), U32, fixed=True, changes=True))
        alike = Binary("+", Index("blockDim.x"), Literal(self.chance.randint(1, 9), U32))
        body: list[Stmt] = [Assign(Use(d), self.chance.choice(("=", "+=", "^=")), alike)]
        body = [*body, *self.mix(self.telling())] if self.some(0.5) else [*self.mix(self.telling()), *body]
        if self.some(0.3):
            o = Decl("o", I32, fixed=True, changes=True)
            body = [For(o, Literal(0, I32), Literal(2, I32), 0, body)]
        elif self.some(0.3):
            body = [If(Binary(">", Index("gridDim.x"), Literal(0, U32)), body, None)]
        return [Declare(d, Literal(self.chance.randint(0, 99), U32)), If(odd, body, None), *self.mix(self.use(d))]

    def shadowed(self, place: Place) -> list[Stmt]:
        """A variable that is computed from another, and read behind a wait where that one's name means something else."""
        known, first, then = self.known("t"), self.fresh(), self.fresh()
        if known is None or first == then or self.warps == "mask" or "t" in (first, then):
            return []
        uniform = self.some(0.5)
        given = self.uniform_value(0) if uniform and not self.uses(first) else self.within(self.use(known[0]), 15)
        a = Decl(first, I32, fixed=self.some(0.7))
        b = Decl(then, I32, fixed=True)
        out: list[Stmt] = [Declare(a, self.to(self.within(given, 15), I32).node)]
        self.declare(a)
        out.append(Declare(b, Binary("+", Binary("*", Use(known[0]), Literal(3, I32)), Use(a))))
        self.declare(b)
        self.scopes.append({})
        inner = self.declare(Decl(first, I32, fixed=self.some(0.5)))
        body: list[Stmt] = [Declare(inner, Literal(self.chance.randint(16, 99), I32))]
        wait: list[Stmt] = [Barrier()] if place.uniform and self.barriers else []
        body += self.mix(self.warp_leaf(place)) if self.warps == "maskless" and place.ops else wait
        body += self.mix(Value(Binary("+", Use(b), Use(inner)), I32, 0, 1000))
        self.scopes.pop()
        return [*out, Block(body)]

    def private(self, place: Place) -> list[Stmt]:
        """An array of a thread's own, written and read where other threads do not write and read theirs.

        Mostly in a block of its own, so that it does not live across a wait.
        """
        name, x = self.fresh(), Index("threadIdx.x")
        if place.pure or self.uses(name):
            return []
        alone = self.some(0.7)
        if alone:
            self.scopes.append({})

        # A place that is loaded is no constant where a loop over the threads is written out.
        loaded = [Load(d, Binary("&", x, Literal(63, U32))) for d in self.visible() if d.name == "src"]

        def at(by: int, less: int) -> Expr:
            of = Cast(U32, loaded[0]) if loaded and self.some(0.8) else x
            return Binary("&", Binary(">>", Binary("*", of, Literal(by, U32)), Literal(less, I32)), Literal(3, U32))

        array = self.declare(Decl(name, self.chance.choice((U32, I32, I64)), size=4))
        count = self.chance.choice((2, 4, 4, 4))
        values: list[Expr] = [Binary("*", x, Literal(self.chance.randint(1, 99), U32)) for _ in range(count)]
        change = Assign(Load(array, at(self.chance.choice((3, 5, 7)), 0)), "=", Binary("+", x, Literal(100, U32)))
        read = Value(Load(array, at(1, self.chance.choice((0, 1, 2)))), array.type, array.type.low, array.type.high)
        changes: list[Stmt] = [change] if self.some(0.7) else []
        out: list[Stmt] = [Declare(array, None, values), *changes, *self.mix(read)]
        if alone:
            self.scopes.pop()
            out = [Block(out)]
        return [*out, *(self.mix(self.warp_leaf(place)) if self.warps == "maskless" and place.ops else [])]

    def taken(self, place: Place) -> list[Stmt]:
        """A variable that is called as one of those that a split kernel has."""
        name = self.chance.choice(("hgcpu_t", "hgcpu_t", "hgcpu_n"))
        if place.pure or self.uses(name):
            return []
        first = self.to(self.within(self.leaf(place, name), 15), I32).node
        self.scopes.append({})
        d = self.declare(Decl(name, I32, fixed=self.some(0.5), low=0, high=15))
        out: list[Stmt] = [Declare(d, first), *self.mix(self.use(d))]
        self.scopes.pop()
        return [Block(out), *(self.mix(self.warp_leaf(place)) if self.warps == "maskless" and place.ops else [])]

    def sized(self, place: Place) -> list[Stmt]:
        """A variable that is called as what operations take by default."""
        if self.uses("warpSize") or place.depth:
            return []
        d = self.declare(Decl("warpSize", I32, fixed=True, low=0, high=15))
        first = Declare(d, self.within(self.leaf(place, "warpSize"), 15).node)
        return [first, *self.mix(Value(self.lane_of(self.to(self.leaf(place), U32, always=True).node), U32, 0, U32.high))]

    def record(self, place: Place) -> list[Stmt]:
        """A structure, whose members have other variables' names."""
        self.count += 1
        name = f"r{self.count}"
        members = [Decl(f"{name}.a", I32), Decl(f"{name}.x", U32)]
        values = [self.value(place, 1).node for _ in members]
        for d in members:
            self.declare(d)
        return [Record(name, members, values)]

    def passed(self, place: Place) -> list[Stmt]:
        """The result of a function, or what it does to its arguments."""
        return self.call_statement(place)

    def volatile(self, place: Place) -> list[Stmt]:
        name = self.fresh()
        first = self.leaf(place, name)
        return [Declare(self.declare(Decl(name, self.chance.choice(WIDE), volatile=True)), first.node)]

    def bounded(self, place: Place) -> list[Stmt]:
        """An array whose extent says what nothing else may."""
        sized = [d for d in self.scalars() if d.type.bits == 32 and not d.name.startswith("r")]
        if not sized:
            return []
        name, of = self.fresh(), self.chance.choice(sized)
        if name == of.name:
            return []
        values = [self.value(place, 1, "calm", name).node for _ in range(2)]
        spelled = f"sizeof({'*' * of.pointer}{of.name})"
        return [Declare(self.declare(Decl(name, self.chance.choice(TYPES), size=4)), None, values, spelled)]

    # -- shared memory -------------------------------------------------------------------------------------------------

    def overwritten(self, place: Place) -> list[Stmt]:
        """Shared memory that is read by the lanes of a warp, before an operation, and overwritten behind it."""
        s, known = self.shared_array(), self.known("t")
        if s is None or known is None or self.warps != "maskless":
            return []
        t, name, later = known[0], self.fresh(), self.value(place, 1)
        if name in (s.name, "t"):
            return []
        first = Binary("*", Binary("/", Use(t), Literal(32, I32)), Literal(32, I32))
        read = Cast(U32, Load(s, first))
        fill = Assign(Load(s, Use(t)), "=", self.value(place, 1, "calm", name).node)
        made = self.warp_leaf(place)
        if not self.mix(made):  # without the operation the threads would race
            return []
        form = self.chance.choice(("apart", "shift", "shift", "comma", "braces"))
        taken = self.declare(Decl(name, U32, size=4 * (form == "braces")))
        take: list[Stmt]
        if form == "apart":
            take = [Declare(taken, read), *self.mix(made)]
        elif form == "shift":
            take = [Declare(taken, Binary("<<", read, self.within(made, 7).node))]
        elif form == "comma":
            both = Comma(Assigned(Use(taken), read), self.to(made, U32).node)
            take = [Declare(taken, Literal(0, U32)), *self.mix(Value(both, U32, 0, U32.high))]
        else:
            take = [Declare(taken, None, [read, made.node])]
        return [fill, Barrier(), *take, Assign(Load(s, Use(t)), "=", later.node), Barrier()]

    def block_wide(self, place: Place) -> list[Stmt]:
        """A call of a function with shared memory and barriers of its own."""
        known = self.known("t", "total")
        if known is None:
            return []
        if not self.wide or self.some(0.3):
            self.wide.append(self.wide_function(len(self.wide)))
            self.functions.append(self.wide[-1])
        f, name = self.chance.choice(self.wide), self.fresh()
        given = self.to(self.value(place, 1, "flat", name), f.parameters[0].type, always=True).node
        if name in ("t", "total"):
            return []
        args: list[Expr] = [given, *map(Use, known)]
        return [Declare(self.declare(Decl(name, U64)), Call(f, args))]

    def wide_function(self, number: int) -> Function:
        v, t, total = Decl("v", self.chance.choice(TYPES)), Decl("t", I32, fixed=True), Decl("total", I32, fixed=True)
        s, got = Decl(self.chance.choice(("s", "s0", "x")), self.chance.choice(WIDE), "shared", 128), Decl("got", U64)
        away = Binary("%", Binary("+", Use(t), Literal(self.chance.randint(1, 40), I32)), Use(total))
        body: list[Stmt] = [
            Declare(s, None), Assign(Load(s, Use(t)), "=", Use(v)), Barrier(), Declare(got, Load(s, away)), Barrier(),
        ]  # fmt: skip
        leads = self.warps == "maskless" and self.some(0.6)
        if leads:
            made = Warp(self.chance.choice(("shfl_xor", "shfl")), [Use(got), Literal(self.chance.randint(0, 9), I32)])
            body.append(Assign(Use(got), "+=", made))
        if leads and self.some(0.4):
            body.append(If(Binary("==", Binary("/", Use(t), Literal(64, I32)), Literal(0, I32)), [body.pop()], None))
        body.append(Return(Use(got)))
        return Function(f"b{number}_{self.name}", [v, t, total], common(U64, U32), body, "barrier", leads=leads)
