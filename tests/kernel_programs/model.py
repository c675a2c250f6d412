"""What a kernel's tree means: an interpreter that runs all threads of a launch in lockstep, by NumPy.

A value is an array with an element for each thread of the grid; its dtype is its C++ type. Control flow is a mask of threads,
which shrinks where a region is entered and grows again where it ends. Whoever is in it takes part in a warp operation without a
mask; an operation with a mask must name just these lanes, else the kernel is invalid.

Reading another lane is as HIP's headers have it (`__shfl_up` of the first lanes, `width`). What a lane that does not take part
gives is undefined on GPUs, and on the CPU runtime the reader's own value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .tree import (
    PARAMETER,
    Assign,
    Assigned,
    Atomic,
    Barrier,
    Binary,
    Block,
    Builtin,
    Call,
    Cast,
    Choice,
    Closure,
    Comma,
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
    Record,
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
)  # fmt: skip

Array = Any  # np.ndarray, of whose operators NumPy's own hints say no more
MOST_TURNS = 400
ATOMICS: dict[str, Any] = {
    "atomicAdd": np.add, "atomicSub": np.subtract, "atomicAnd": np.bitwise_and, "atomicOr": np.bitwise_or,
    "atomicXor": np.bitwise_xor, "atomicMin": np.minimum, "atomicMax": np.maximum,
}  # fmt: skip


class InvalidKernel(Exception):
    """The kernel does what HIP leaves undefined."""


@dataclass(eq=False)
class _Frame:
    cells: dict[Decl, Array]
    types: dict[str, Type]
    result: Array | None = None
    returned: Array | None = None
    outer: _Frame | None = None
    closures: dict[Function, _Frame] = field(default_factory=dict)

    def cell(self, decl: Decl) -> Array:
        frame: _Frame | None = self
        while frame is not None:
            if decl in frame.cells:
                return frame.cells[decl]
            frame = frame.outer
        raise InvalidKernel(f"{decl.name} is not there")

    def copies(self) -> dict[Decl, Array]:
        """Return what a lambda that captures by value sees."""
        seen = self.outer.copies() if self.outer is not None else {}
        return seen | {d: c.copy() if d.where == "thread" and not d.pointer else c for d, c in self.cells.items()}

    def closure(self, function: Function) -> _Frame:
        frame: _Frame | None = self
        while frame is not None:
            if function in frame.closures:
                return frame.closures[function]
            frame = frame.outer
        raise InvalidKernel(f"{function.name} is not there")


@dataclass(eq=False)
class _Loop:
    left: Array
    again: Array


def dtype(kind: Type, frame: _Frame) -> np.dtype[Any]:
    return frame.types["T"].dtype if kind is PARAMETER else kind.dtype


def promote(a: Array) -> Array:
    return a.astype(np.int32) if a.dtype.itemsize < 4 else a


def convert(a: Array, b: Array) -> tuple[Array, Array]:
    """The usual arithmetic conversions."""
    a, b = promote(a), promote(b)
    if a.dtype == b.dtype:
        return a, b
    if a.dtype.itemsize != b.dtype.itemsize:
        kind = a.dtype if a.dtype.itemsize > b.dtype.itemsize else b.dtype
    else:
        kind = a.dtype if a.dtype.kind == "u" else b.dtype
    return a.astype(kind), b.astype(kind)


def run(kernel: Kernel, arrays: dict[str, Array], scalars: dict[str, int], warp_size: int) -> None:
    """Compute a launch: `arrays` by the names of the parameters are changed as the kernel does.

    Raises
    ------
    InvalidKernel
        If the kernel does what is not defined, or does not end.
    """
    with np.errstate(all="ignore"):
        _Machine(kernel, warp_size).launch(arrays, scalars)


class _Machine:
    def __init__(self, kernel: Kernel, warp_size: int) -> None:
        self.kernel = kernel
        self.warp = warp_size
        threads, blocks = kernel.threads, kernel.blocks
        self.n = threads * blocks
        every = np.arange(self.n)
        self.block, self.thread = every // threads, every % threads
        (bx, by, _), (gx, gy, _) = kernel.block, kernel.grid
        t, b = self.thread.astype("u4"), self.block.astype("u4")
        self.indices: dict[str, Array] = {
            "threadIdx.x": t % bx, "threadIdx.y": t // bx % by, "threadIdx.z": t // bx // by,
            "blockIdx.x": b % gx, "blockIdx.y": b // gx % gy, "blockIdx.z": b // gx // gy,
        }  # fmt: skip
        for name, values in (("blockDim", kernel.block), ("gridDim", kernel.grid)):
            for axis, value in zip("xyz", values):
                self.indices[f"{name}.{axis}"] = np.full(self.n, value, "u4")
        self.indices = {name: value.astype("u4") for name, value in self.indices.items()}
        self.indices["warpSize"] = np.full(self.n, warp_size, "i4")
        self.lane = self.thread % warp_size
        self.warps = (threads + warp_size - 1) // warp_size
        self.first = (self.block * self.warps + self.thread // warp_size) * warp_size  # of the warp, in `padded` order
        self.padded = self.first + self.lane
        self.slots = blocks * self.warps * warp_size
        self.depth = 0

    def launch(self, arrays: dict[str, Array], scalars: dict[str, int]) -> None:
        frame = _Frame({}, {})
        for d in self.kernel.constants:
            if d.size:
                frame.cells[d] = np.array(d.values, d.type.dtype)
            else:
                frame.cells[d] = np.full(self.n, d.values[0], d.type.dtype)
        for d in self.kernel.parameters:
            frame.cells[d] = arrays[d.name] if d.size else np.full(self.n, scalars[d.name], d.type.dtype)
        self.constants = _Frame(dict(frame.cells), {})
        frame.returned = np.zeros(self.n, bool)
        self.body(self.kernel.body, np.ones(self.n, bool), frame, None)

    # -- statements ----------------------------------------------------------------------------------------------------

    def body(self, body: list[Stmt], mask: Array, frame: _Frame, loop: _Loop | None) -> Array:
        for stmt in body:
            if not mask.any():
                return mask
            mask = self.statement(stmt, mask, frame, loop)
        return mask

    def statement(self, s: Stmt, mask: Array, frame: _Frame, loop: _Loop | None) -> Array:
        match s:
            case Declare():
                self.declare(s, mask, frame)
            case Record():
                for d, value in zip(s.members, s.values):
                    self.declare(Declare(d, value), mask, frame)
            case Assign():
                self.assign(s, mask, frame)
            case Step():
                cell = frame.cell(s.target.decl)
                cell[mask] = (cell + np.array(1 if s.op == "++" else -1).astype(cell.dtype))[mask]
            case If():
                if s.first:
                    self.declare(s.first, mask, frame)
                holds = self.truth(s.condition, mask, frame)
                then = self.body(s.then, mask & holds, frame, loop)
                return then | self.body(s.other or [], mask & ~holds, frame, loop)
            case For():
                return self.loop_for(s, mask, frame)
            case While():
                return self.loop_while(s, mask, frame)
            case Leave():
                assert loop is not None
                (loop.left if s.word == "break" else loop.again)[mask] = True
                return np.zeros(self.n, bool)
            case Return():
                if s.value is not None:
                    value = self.value(s.value, mask, frame)
                    assert frame.result is not None
                    frame.result[mask] = value.astype(frame.result.dtype)[mask]
                return np.zeros(self.n, bool)
            case Switch():
                return self.switch(s, mask, frame, loop)
            case Block():
                return self.body(s.body, mask, frame, loop)
            case Barrier():
                if s.warp is not None:
                    self.members(self.value(s.warp, mask, frame), mask)
                elif (np.bincount(self.block, mask) % self.kernel.threads).any():
                    raise InvalidKernel("a barrier where threads of a block have parted")
            case Atomic():
                index = self.value(s.target.index, mask, frame)
                cell = frame.cell(s.target.array)
                value = self.value(s.value, mask, frame).astype(cell.dtype)
                at: Any = index[mask].astype(np.int64)
                self.inside(at, s.target.array)
                ATOMICS[s.name].at(cell, (self.block[mask], at) if cell.ndim == 2 else at, value[mask])
            case Closure():
                cells = frame.copies() if s.copies else frame.cells
                frame.closures[s.function] = _Frame(cells, frame.types, outer=frame)
            case Define() | Text():
                pass
            case _:
                raise AssertionError(s)
        return mask

    def declare(self, s: Declare, mask: Array, frame: _Frame) -> None:
        d = s.decl
        if d.where in ("shared", "dynamic"):
            if d not in frame.cells:
                frame.cells[d] = np.zeros((self.kernel.blocks, d.size), d.type.dtype)
        elif d.size:
            cell = frame.cells.setdefault(d, np.zeros((self.n, d.size), d.type.dtype))
            for n in range(d.size):
                value = self.value(s.values[n], mask, frame) if n < len(s.values) else np.zeros(self.n)
                cell[mask, n] = value.astype(cell.dtype)[mask]
        elif d.reference:
            assert isinstance(s.value, (Use, Load))
            if isinstance(s.value, Use):
                frame.cells[d] = frame.cell(s.value.decl)
            else:
                assert isinstance(s.value.index, Literal)
                frame.cells[d] = frame.cell(s.value.array)[:, s.value.index.value]
        else:
            assert s.value is not None
            value = self.value(s.value, mask, frame).astype(dtype(d.type, frame))
            cell = frame.cells.setdefault(d, np.zeros(self.n, value.dtype))
            cell[mask] = value[mask]

    def assign(self, s: Assign, mask: Array, frame: _Frame) -> None:
        value = self.value(s.value, mask, frame)
        if s.op != "=":
            value = self.binary(s.op[:-1], self.value(s.target, mask, frame), value)
        if isinstance(s.target, Use):
            cell = frame.cell(s.target.decl)
            cell[mask] = value.astype(cell.dtype)[mask]
        else:
            cell = frame.cell(s.target.array)
            at = self.value(s.target.index, mask, frame)[mask].astype(np.int64)
            self.inside(at, s.target.array)
            new = value.astype(cell.dtype)[mask]
            if s.target.array.where != "thread":
                place = at + self.block[mask] * s.target.array.size if cell.ndim == 2 else at
                if len(np.unique(place)) < len(place):
                    raise InvalidKernel("two threads store to one place")
            if s.target.array.where == "thread":
                cell[np.flatnonzero(mask), at] = new
            elif cell.ndim == 2:
                cell[self.block[mask], at] = new
            else:
                cell[at] = new

    def loop_for(self, s: For, mask: Array, frame: _Frame) -> Array:
        start = self.value(s.start, mask, frame).astype(s.decl.type.dtype)
        cell = frame.cells.setdefault(s.decl, np.zeros(self.n, start.dtype))
        cell[mask] = start[mask]
        gone = np.zeros(self.n, bool)
        for _ in range(MOST_TURNS):
            more = self.binary(">" if s.style == "halve" else "<", cell, self.value(s.end, mask, frame)) & mask
            if s.also is not None and more.any():
                more &= self.truth(s.also, more, frame)
            gone |= mask & ~more
            mask = more
            if not mask.any():
                return gone
            loop = _Loop(np.zeros(self.n, bool), np.zeros(self.n, bool))
            mask = self.body(s.body, mask, frame, loop) | loop.again
            gone |= loop.left
            step = cell // 2 if s.style == "halve" else cell + np.array(s.step or 1).astype(cell.dtype)
            cell[mask] = step.astype(cell.dtype)[mask]
        raise InvalidKernel("a loop does not end")

    def loop_while(self, s: While, mask: Array, frame: _Frame) -> Array:
        gone = np.zeros(self.n, bool)
        for turn in range(MOST_TURNS):
            if mask.any() and (turn or not s.last):
                more = mask & self.more(s, mask, frame)
                gone |= mask & ~more
                mask = more
            if not mask.any():
                return gone
            loop = _Loop(np.zeros(self.n, bool), np.zeros(self.n, bool))
            mask = self.body(s.body, mask, frame, loop) | loop.again
            gone |= loop.left
        raise InvalidKernel("a loop does not end")

    def more(self, s: While, mask: Array, frame: _Frame) -> Array:
        if s.counter is not None:
            cell = frame.cell(s.counter)
            more = cell > 0
            cell[mask] = (cell - 1)[mask]
            return more
        return np.ones(self.n, bool) if s.condition is None else self.truth(s.condition, mask, frame)

    def switch(self, s: Switch, mask: Array, frame: _Frame, loop: _Loop | None) -> Array:
        value = promote(self.value(s.value, mask, frame))
        labels = [label for arm in s.arms for label in arm.labels]
        named = np.isin(value.astype(object), [label for label in labels if label is not None])
        inside = np.zeros(self.n, bool)
        own = _Loop(np.zeros(self.n, bool), loop.again if loop else np.zeros(self.n, bool))
        for arm in s.arms:
            for label in arm.labels:
                inside |= mask & (~named if label is None else value == label)
            inside = self.body(arm.body, inside, frame, own)
        return inside | own.left | (mask & ~named if None not in labels else np.zeros(self.n, bool))

    # -- expressions ----------------------------------------------------------------------------------------------------

    def truth(self, e: Expr, mask: Array, frame: _Frame) -> Array:
        return self.value(e, mask, frame) != 0

    def inside(self, at: Array, array: Decl) -> None:
        if at.size and (at.min() < 0 or at.max() >= array.size):
            raise InvalidKernel(f"{array.name} is indexed outside")

    def value(self, e: Expr, mask: Array, frame: _Frame) -> Array:
        match e:
            case Literal():
                return np.full(self.n, e.value, e.type.dtype)
            case Use():
                return frame.cell(e.decl).copy()
            case Index():
                return self.indices[e.name]
            case Load():
                at = np.where(mask, self.value(e.index, mask, frame), 0).astype(np.int64)
                self.inside(at, e.array)
                cell = frame.cell(e.array)
                if e.array.where == "thread":
                    return cell[np.arange(self.n), at]
                return cell[self.block, at] if cell.ndim == 2 else cell[at]
            case Unary():
                a = self.value(e.a, mask, frame)
                if e.op == "!":
                    return a == 0
                a = promote(a)
                return -a if e.op == "-" else ~a if e.op == "~" else a
            case Binary():
                a, b = self.value(e.a, mask, frame), self.value(e.b, mask, frame)
                if e.op in ("/", "%") and (b == 0)[mask].any():
                    raise InvalidKernel("a division by zero")
                return self.binary(e.op, a, b)
            case Logic():
                a = self.truth(e.a, mask, frame)
                rest = mask & (a if e.op == "&&" else ~a)
                b = self.truth(e.b, rest, frame) if rest.any() else np.zeros(self.n, bool)
                return (a & b) if e.op == "&&" else (a | b)
            case Choice():
                c = self.truth(e.condition, mask, frame)
                a, b = self.value(e.a, mask & c, frame), self.value(e.b, mask & ~c, frame)
                if a.dtype != b.dtype:
                    a, b = convert(a, b)
                return np.where(c, a, b)
            case Assigned():
                self.assign(Assign(e.target, "=", e.value), mask, frame)
                return frame.cell(e.target.decl).copy()
            case Comma():
                self.value(e.a, mask, frame)
                return self.value(e.b, mask, frame)
            case Cast():
                value, kind = self.value(e.a, mask, frame), dtype(e.type, frame)
                return value != 0 if kind.kind == "b" else value.astype(kind)
            case Builtin():
                return self.builtin(e.name, [self.value(a, mask, frame) for a in e.args])
            case Spelled():
                return np.full(self.n, len(e.word) + 1 if e.at < 0 else ord(e.word[e.at]), "i4")
            case Warp():
                return self.warp_operation(e, mask, frame)
            case Vote():
                holds = np.bincount(self.block, mask & self.truth(e.a, mask, frame), self.kernel.blocks)[self.block]
                if (np.bincount(self.block, mask) % self.kernel.threads).any():
                    raise InvalidKernel("a barrier where threads of a block have parted")
                test = {"count": holds, "or": holds > 0, "and": holds == self.kernel.threads}[e.name]
                return test.astype("i4")
            case Call():
                return self.call(e, mask, frame)
            case Expand():
                inner = _Frame({}, frame.types, outer=frame, returned=frame.returned)
                text = e.macro.body
                return self.value(_replace(text, dict(zip(e.macro.parameters or (), e.args))), mask, inner)
        raise AssertionError(e)

    def binary(self, op: str, a: Array, b: Array) -> Array:
        if op in ("<<", ">>"):
            a = promote(a)
            return (np.left_shift if op == "<<" else np.right_shift)(a, b.astype(a.dtype))
        a, b = convert(a, b)
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/" | "%":
                b = np.where(b == 0, np.ones_like(b), b)
                rest = np.fmod(a, b)
                return rest if op == "%" else (a - rest) // b
            case "&":
                return a & b
            case "|":
                return a | b
            case "^":
                return a ^ b
            case "<":
                return a < b
            case ">":
                return a > b
            case "<=":
                return a <= b
            case ">=":
                return a >= b
            case "==":
                return a == b
            case "!=":
                return a != b
        raise AssertionError(op)

    def builtin(self, name: str, args: list[Array]) -> Array:
        a = args[0]
        if name in ("min", "max"):
            return (np.minimum if name == "min" else np.maximum)(a, args[1])
        if name == "abs":
            return np.abs(a)
        if name in ("__umulhi", "__mulhi"):
            wide = "u8" if name == "__umulhi" else "i8"
            return ((a.astype(wide) * args[1].astype(wide)) >> np.array(32, wide)).astype(wide.replace("8", "4"))
        bits = a.dtype.itemsize * 8
        unsigned = a.view(f"u{bits // 8}")
        one = unsigned.dtype.type(1)
        digits = [(unsigned >> unsigned.dtype.type(n)) & one for n in range(bits)]
        if name in ("__popc", "__popcll"):
            return np.sum(digits, axis=0).astype("i4")
        if name == "__brev":
            return np.sum([digit << unsigned.dtype.type(bits - 1 - n) for n, digit in enumerate(digits)], axis=0).astype("u4")
        order = range(bits) if name in ("__ffs", "__ffsll") else range(bits - 1, -1, -1)
        steps = np.array([digits[n] for n in order])
        found = steps.argmax(axis=0)
        nothing = ~steps.any(axis=0)
        return np.where(nothing, 0, found + 1).astype("i4") if "ffs" in name else np.where(nothing, bits, found).astype("i4")

    def call(self, e: Call, mask: Array, frame: _Frame) -> Array:
        f = e.function
        self.depth += 1
        if self.depth > 30:
            raise InvalidKernel("calls are too deep")
        outer = frame.closure(f) if f.form == "lambda" else self.constants
        types = e.types if f.form == "template" else outer.types
        inner = _Frame({}, types, outer=outer)
        for d, given in zip(f.parameters, e.args):
            if d.size or (d.reference and isinstance(given, Use)):
                assert isinstance(given, Use)
                inner.cells[d] = frame.cell(given.decl)
            else:
                inner.cells[d] = self.value(given, mask, frame).astype(dtype(d.type, inner))
        if f.number is not None:
            inner.cells[f.number] = np.full(self.n, e.number, "i4")
        inner.result = np.zeros(self.n, dtype(f.result, inner))
        fell = self.body(f.body, mask.copy(), inner, None)
        if fell.any():
            raise InvalidKernel(f"{f.name} ends without a value")
        self.depth -= 1
        return inner.result

    # -- warps -----------------------------------------------------------------------------------------------------------

    def spread(self, values: Array) -> Array:
        """Return the values by warp and lane, those of lanes that a block has not as zeros."""
        out = np.zeros(self.slots, values.dtype)
        out[self.padded] = values
        return out

    def ballot(self, holds: Array) -> Array:
        bits = self.spread(holds).reshape(-1, self.warp).astype("u8") << np.arange(self.warp, dtype="u8")
        return np.bitwise_or.reduce(bits, axis=1).astype("u8")[self.first // self.warp]

    def members(self, given: Array, mask: Array) -> None:
        """Check that a mask names the lanes that are here."""
        every = np.uint64((1 << self.warp) - 1)
        if ((given.astype("u8") & every) != self.ballot(mask))[mask].any():
            raise InvalidKernel("a mask names other lanes than those that are here")

    def warp_operation(self, e: Warp, mask: Array, frame: _Frame) -> Array:
        if e.mask is not None:
            self.members(self.value(e.mask, mask, frame), mask)
        args = [self.value(a, mask, frame) for a in e.args]
        if e.name == "activemask":
            return self.ballot(mask)
        if e.name in ("ballot", "any", "all"):
            votes = self.ballot(mask & (args[0] != 0))
            if e.name == "ballot":
                return votes
            return (votes != 0 if e.name == "any" else votes == self.ballot(mask)).astype("i4")
        if e.name == "match_any":
            out = np.zeros(self.n, "u8")
            for value in np.unique(args[0][mask]):
                same = mask & (args[0] == value)
                out[same] = self.ballot(same)[same]
            return out
        width = e.width or self.warp
        lane = self.lane.astype(np.int64)
        which = args[1].astype(np.int64)
        begin = lane // width * width
        match e.name:
            case "shfl":
                source = begin + which % width
            case "shfl_up":
                source = np.where(lane - begin < which, lane, lane - which)
            case "shfl_down":
                source = np.where(lane - begin + which >= width, lane, lane + which)
            case _:
                source = lane ^ which
                source = np.where(source >= begin + width, lane, source)
        source = np.clip(source, 0, self.warp - 1)
        there = self.spread(mask)[self.first + source]
        return np.where(there, self.spread(args[0])[self.first + source], args[0])


def _replace(e: Expr, given: dict[Decl, Expr]) -> Expr:
    """Return a macro's body with its arguments."""
    if isinstance(e, Use):
        return given.get(e.decl, e)
    made: dict[str, Any] = {}
    for name, value in vars(e).items():
        if isinstance(value, Expr):
            made[name] = _replace(value, given)
        elif isinstance(value, list):
            made[name] = [_replace(x, given) if isinstance(x, Expr) else x for x in value]
        else:
            made[name] = value
    return type(e)(**made)


def arguments(kernel: Kernel) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the arrays and scalars that a kernel is launched with."""
    chance = np.random.default_rng(kernel.seed)
    arrays: dict[str, Array] = {}
    scalars: dict[str, int] = {}
    for d in kernel.parameters:
        if not d.size:
            assert d.low is not None
            scalars[d.name] = int(chance.integers(d.low, (d.high or 0) + 1))
        elif d.fixed:
            arrays[d.name] = chance.integers(d.type.low, d.type.high, d.size, d.type.dtype, endpoint=True)
        else:
            arrays[d.name] = np.zeros(d.size, d.type.dtype)
    return arrays, scalars
