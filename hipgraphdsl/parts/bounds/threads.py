"""Memory accesses of selected threads of a kernel, found by interpreting its source for one launch.

Nothing is compiled or run. The interpreter tracks known integers: indices of blocks and threads, extents of grid and block,
scalar arguments, constants, and what C++ computes from them. Everything else is unknown: floating-point numbers, contents of
memory, return values of functions, results that overflow their signed type. The selected threads (all of a small launch, else
those of blocks at the ends of the grid and where the index reaches an argument's value) are the lanes of NumPy arrays. If a
condition is unknown for a lane, the lane skips the branches: variables that they assign become unknown, and if they may leave the
kernel, the lane is dropped. Every recorded access is therefore one that the thread makes, at the recorded address; no bound is
guessed.

A long counting loop is interpreted for its first and last turn; other loops for a limited number of turns, after which lanes that
have not left the loop are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np

from ...errors import DeclarationError
from ...kernels import Module
from ...source import CType, Value
from ...source import trees as syntax
from .arithmetic import (
    FAR,
    Base,
    Integer,
    Lanes,
    Pointer,
    as_integer,
    as_pointer,
    cast,
    common,
    fit,
    fits,
    member_of,
    moved,
    operate,
    promoted,
    settled,
    type_of,
)
from .programs import ATOMICS, Program, counting, known_function

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Axes = tuple[int, int, int]

_MOST_LANES: Final = 16_384  # launches of at most this many threads are interpreted completely
_MOST_COORDINATES: Final = 12  # selected block indices along an axis, in a larger launch
_MOST_CHOSEN: Final = 65_536
_MOST_TURNS: Final = 64
_WHOLE_TURNS: Final = 16  # a counting loop with more is interpreted for its first and last turn only
_MOST_WORK: Final = 20_000_000  # steps times (lanes + 500)

_COORDINATE: Final = Integer(32, unsigned=True)
_COORDINATES: Final = {"threadIdx": 0, "blockIdx": 1, "blockDim": 2, "gridDim": 3}
_OLD_COORDINATES: Final = {
    f"{name}_{axis}": (n, "xyz".index(axis))
    for n, name in enumerate(("hipThreadIdx", "hipBlockIdx", "hipBlockDim", "hipGridDim"))
    for axis in "xyz"
}


@dataclass(frozen=True, slots=True)
class Witness:
    """An access that a thread makes."""

    start: int  # bytes from the pointer's value, or from the array's first byte
    stop: int
    size: int  # of the element, or of the whole struct or vector if a member is accessed
    line: int  # in the source
    writes: bool
    block: Axes
    thread: Axes


@dataclass(slots=True)
class Reach:
    """The accesses with the lowest and the highest address in each base; `steps` is the number of interpreter steps spent."""

    lowest: dict[Base, Witness]
    highest: dict[Base, Witness]
    steps: int = 0


class _Enough(Exception):
    """The work limit is reached."""


@lru_cache(maxsize=4096)
def reach_of(program: Program, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> Reach:
    """Return the outermost accesses of the selected threads of a launch; `values` has None for unknown arguments."""
    return Run(program, grid, block, values).reach


def chosen_threads(grid: Axes, block: Axes, values: Iterable[int | None]) -> tuple[Any, Any]:
    """Return the selected threads: for each axis their thread indices, and for each axis their block indices."""
    threads = math.prod(block)
    coordinates = [range(extent) for extent in grid]
    if math.prod(grid) * threads > _MOST_LANES:
        limits = [value for value in values if value is not None and value > 0]
        coordinates = []
        for extent, width in zip(grid, block):
            ends = [0, extent - 1, 1, extent - 2, extent // 2]
            reached = [(limit - over) // width for limit in limits for over in (0, 1)]
            wanted = dict.fromkeys(c for c in (*ends, *reached) if 0 <= c < extent)
            coordinates.append(sorted([*wanted][:_MOST_COORDINATES]))  # type: ignore[arg-type]
        if math.prod(len(c) for c in coordinates) * threads > _MOST_CHOSEN:
            coordinates = [sorted({0, extent - 1}) for extent in grid]  # type: ignore[misc]
    blocks = np.array([*product(*reversed(coordinates))], np.int64)[:, ::-1]
    lanes = np.arange(len(blocks) * threads)
    within, of = lanes % threads, lanes // threads
    x, y, _ = block
    thread = [_uniform(t) for t in (within % x, within // x % y, within // (x * y))]
    return thread, [_uniform(blocks[of, axis]) for axis in range(3)]


def _uniform(numbers: Any) -> Any:
    """Return a single int if all numbers are equal, else the array."""
    return int(numbers[0]) if (numbers == numbers[0]).all() else numbers


class Run:
    """The interpreter's state for one launch of one program."""

    def __init__(self, program: Program, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> None:
        self.program = program
        self.kernel = program.kernel
        self.axes = (*self.chosen(grid, block, values), list(block), list(grid))
        self.lanes = next((len(a) for axes in self.axes[:2] for a in axes if not isinstance(a, int)), 1)
        self.reach = Reach({}, {})
        self.arrays: set[int] = set()
        self.breaks: list[Mask] = []
        self.continues: list[Mask] = []
        self.values: dict[int, Lanes | None] = {}
        signature = self.kernel.signature
        assert signature is not None
        for n, (parameter, value) in enumerate(zip(signature.parameters, values)):
            dtype, escaped = parameter.dtype, n in program.escaped
            if parameter.pointer:
                size = dtype.itemsize * parameter.lanes if dtype is not None else 0
                if n in program.plain and not escaped:
                    element = CType("", dtype, parameter.lanes, size)
                    self.values[n] = Lanes(0, known=True, type=Pointer(Base("argument", parameter.name, number=n), element))
            elif kind := type_of(CType("", dtype, parameter.lanes, parameter.size)):
                self.values[n] = cast(Lanes(int(value or 0), value is not None and not escaped), kind)
        with np.errstate(all="ignore"), suppress(_Enough, RecursionError):  # accesses recorded so far stay valid
            self.execute(program.body, np.ones(self.lanes, bool))

    def chosen(self, grid: Axes, block: Axes, values: Iterable[int | None]) -> tuple[Any, Any]:
        """Return the threads to interpret: see `chosen_threads`."""
        return chosen_threads(grid, block, values)

    # -- statements ----------------------------------------------------------------------------------------------------

    def execute(self, node: Any, mask: Mask) -> Mask:
        """Execute a statement for some lanes; return those that continue with the next statement."""
        if not mask.any():
            return mask
        match node:
            case syntax.Block():
                for statement in node.statements:
                    mask = self.execute(statement, mask)
                    if not mask.any():
                        break
                return mask
            case syntax.Declare():
                self.declare(node, mask)
                return self.left(node, mask)
            case syntax.If():
                return self.branch(node, mask)
            case syntax.Loop():
                counted = self.count(node, mask)
                return self.loop(node, mask) if counted is None else counted
            case syntax.Leave("break"):
                self.breaks[-1] |= mask
            case syntax.Leave("continue"):
                self.continues[-1] |= mask
            case syntax.Call("assert", (condition,)):
                return self.decide(condition, mask)[0]
            case syntax.Leave() | syntax.Unread():
                pass
            case _:
                self.evaluate(node, mask)
                return self.left(node, mask)
        return np.zeros_like(mask)

    def left(self, node: Any, mask: Mask) -> Mask:
        """Return the lanes that definitely return from all functions that an expression calls."""
        return np.zeros_like(mask) if self.program.ends(node) else mask

    def branch(self, node: syntax.If, mask: Mask) -> Mask:
        """Execute an `if`; where the condition is unknown, skip both branches."""
        yes, no, unknown = self.decide(node.condition, mask)
        if self.program.ends(node.condition):
            return np.zeros_like(mask)
        after = self.execute(node.then, yes)
        after = after | (no if node.otherwise is None else self.execute(node.otherwise, no))
        return after | self.passed([node.then, node.otherwise], unknown)

    def passed(self, nodes: Iterable[Any], mask: Mask) -> Mask:
        """Skip nodes that lanes may or may not execute; return the lanes that definitely continue."""
        if mask.any():
            for node in nodes:
                self.forget(self.program.assigned(node), mask)
                mask = self.left(node, mask)
        return mask

    def decide(self, condition: Any, mask: Mask) -> tuple[Mask, Mask, Mask]:
        """Return three masks: the lanes in which a condition is true, false, and unknown."""
        value = self.evaluate(condition, mask)
        if value is None or not isinstance(value.type, Integer):
            return np.zeros_like(mask), np.zeros_like(mask), mask
        known = mask & value.known
        yes = known & (value.number != 0)
        return yes, known & ~yes, mask & ~known

    def loop(self, node: syntax.Loop, mask: Mask) -> Mask:
        """Interpret a loop turn by turn; lanes that are still in it after `_MOST_TURNS` turns are dropped."""
        done = np.zeros_like(mask)
        if self.program.ends((node.condition, node.step)):
            return done
        for turn in range(_MOST_TURNS):
            if node.condition is not None and not (node.late and turn == 0):
                mask, no, unknown = self.decide(node.condition, mask)
                done |= no | self.passed([node.condition, node.body, node.step], unknown)
            if not mask.any():
                break
            self.breaks.append(np.zeros_like(mask))
            self.continues.append(np.zeros_like(mask))
            mask = self.execute(node.body, mask)
            mask = mask | self.continues.pop()
            if node.step is not None and mask.any():
                self.evaluate(node.step, mask)
            done |= self.breaks.pop()
        return done

    def count(self, node: syntax.Loop, mask: Mask) -> Mask | None:
        """Interpret a counting loop for its first and last turn; None for other loops and for short ones."""
        changed = self.program.assigned(node.body)
        counter = counting(node, changed)
        if counter is None or node.late or self.program.ends(node.body) or counter.slot in self.program.escaped:
            return None
        slot = counter.slot
        ends = self.values.get(slot), self.evaluate(counter.limit, mask), self.evaluate(counter.step, mask)
        first, last, by = map(as_integer, ends)
        if first is None or last is None or by is None:
            return None
        (start, known_start, kind), (end, known_end, kind_of_end) = first, last
        width = by.number * counter.sign
        known = mask & known_start & known_end & by.known
        if kind.unsigned != kind_of_end.unsigned:
            known = known & (start >= 0) & (end >= 0)
        up = counter.comparison in ("<", "<=")
        known = known & ((width > 0) if up else (width < 0))
        width = np.where(known, width, 1 if up else -1)
        turns = (end - start + (width if counter.comparison in ("<=", ">=") else width - (1 if up else -1))) // width
        turns = np.where(known, np.maximum(turns, 0), 0)
        after = start + turns * width
        known = known & (np.abs(after) < FAR) & fits(after, kind)
        if not known.any() or (turns * known).max() <= _WHOLE_TURNS or not (mask == known).all():
            return None
        live = known & (turns > 0)
        done = known & ~live
        for at, least in ((start, 1), (after - width, 2)):
            going = live & (turns >= least)
            stopped = live & ~going
            self.store(slot, Lanes(at, known=True, type=kind), going)
            going = self.execute(node.body, going)
            self.forget(changed - {slot}, going)
            live = stopped | going
        self.store(slot, Lanes(after, known=True, type=kind), live)
        return np.asarray(done | live)

    def declare(self, node: syntax.Declare, mask: Mask) -> None:
        """Declare a variable, and set its value in some lanes."""
        value = self.evaluate(node.initializer, mask)
        if node.bounds:
            self.values[node.slot] = self.array(node, mask)
            self.arrays.add(node.slot)
            return
        if not node.deduced:
            kind = type_of(node.type) if node.type is not None else None
            value = None if kind is None else cast(value, kind)
        self.values.pop(node.slot, None)  # a new variable in each turn of a loop
        self.store(node.slot, value if node.space == "local" else None, mask)

    def array(self, node: syntax.Declare, mask: Mask) -> Lanes | None:
        """Return the address of an array of known extents; None for others."""
        kind = node.type
        if node.space == "static" or kind is None or kind.pointers or not kind.size:
            return None
        extents = []
        for n, bound in enumerate(node.bounds):
            value = self.evaluate(bound, mask)
            if n == 0 and node.space == "dynamic":
                extents.append(0)
            elif value and as_integer(value) and isinstance(value.number, int) and np.all(value.known) and value.number > 0:
                extents.append(value.number)
            else:
                return None
        dynamic = node.space == "dynamic"
        base = Base(node.space, "" if dynamic else node.name, -1 if dynamic else kind.size * math.prod(extents))
        return Lanes(0, known=True, type=Pointer(base, kind, tuple(extents[1:])))

    # -- variables -----------------------------------------------------------------------------------------------------

    def store(self, slot: int, value: Lanes | None, mask: Mask) -> None:
        """Set a variable in some lanes."""
        old = self.values.get(slot)
        if slot in self.program.escaped:
            value = None
        if mask.all():
            self.values[slot] = value
        elif value is None:
            self.forget({slot}, mask)
        elif old is not None and old.type == value.type:
            number, known = np.where(mask, value.number, old.number), np.where(mask, value.known, old.known)
            self.values[slot] = Lanes(number, known, value.type)
        else:
            self.values[slot] = value._replace(known=mask & value.known)

    def forget(self, slots: Iterable[int], mask: Mask) -> None:
        """Mark variables as unknown in some lanes."""
        for slot in slots:
            value = None if slot in self.arrays else self.values.get(slot)
            if value is not None:
                self.values[slot] = value._replace(known=value.known & ~mask)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def evaluate(self, node: Any, mask: Mask) -> Lanes | None:
        """Return the value of an expression, an integer, a pointer or None, and record the accesses of its evaluation."""
        self.reach.steps += 1
        if self.reach.steps * (self.lanes + 500) > _MOST_WORK:
            raise _Enough
        match node:
            case Value():
                return fit(node.number, known=True, kind=Integer(node.bits, node.unsigned))
            case syntax.Name():
                return self.values.get(node.slot) if node.slot >= 0 else self.outside(node.text)
            case syntax.Member(syntax.Name(text, -1), "x" | "y" | "z" as axis, False) if text in _COORDINATES:
                return Lanes(self.axes[_COORDINATES[text]]["xyz".index(axis)], known=True, type=_COORDINATE)
            case syntax.Member() | syntax.Index():
                return self.load(self.place(node, mask), mask, node.line)
            case syntax.Binary():
                return self.binary(node, mask)
            case syntax.Unary():
                return self.unary(node, mask)
            case syntax.Assign():
                return self.assign(node, mask)
            case syntax.Cast():
                value, kind = self.evaluate(node.operand, mask), type_of(node.type)
                return None if kind is None else cast(value, kind)
            case syntax.Choice():
                return self.choose(node, mask)
            case syntax.Call():
                return self.call(node, mask)
            case syntax.AddressOf():
                return self.place(node.operand, mask)
            case syntax.Opaque():
                for part in node.parts:
                    self.evaluate(part, mask)
        return None

    def outside(self, name: str) -> Lanes | None:
        """Return the value of a coordinate or constant, or the address of a module's array; None if the name is unknown."""
        if name in _OLD_COORDINATES:
            which, axis = _OLD_COORDINATES[name]
            return Lanes(self.axes[which][axis], known=True, type=_COORDINATE)
        constant = self.program.scope.constant(name)
        variables = [symbol for symbol in self.kernel.module.symbols if symbol.rpartition("::")[2] == name]
        if variables:
            return _symbol(self.kernel.module, name) if variables == [name] and constant is None else None
        return None if constant is None else fit(constant.number, known=True, kind=Integer(constant.bits, constant.unsigned))

    def place(self, node: Any, mask: Mask) -> Lanes | None:
        """Return the address of an lvalue without accessing it; None if unknown."""
        match node:
            case syntax.Index():
                base = self.evaluate(node.base, mask)
                return moved(base, self.evaluate(node.index, mask), 1)
            case syntax.Member():
                return member_of(self.evaluate(node.base, mask) if node.arrow else self.place(node.base, mask), node.name)
            case syntax.Choice():
                yes, no, _ = self.decide(node.condition, mask)
                self.place(node.then, yes)
                self.place(node.otherwise, no)
            case syntax.Name():
                pass
            case _:
                self.evaluate(node, mask)
        return None

    def load(self, pointer: Lanes | None, mask: Mask, line: int) -> Lanes | None:
        """Record the read of an element and return None, as its value is unknown; return the address of a nested array."""
        if pointer is not None and pointer.type.extents:
            return pointer._replace(type=replace(pointer.type, extents=pointer.type.extents[1:]))
        self.touch(pointer, mask, line, writes=False)
        return None

    def touch(self, pointer: Lanes | None, mask: Mask, line: int, *, writes: bool) -> None:
        """Record an access of one element."""
        if pointer is None or not isinstance(pointer.type, Pointer) or not pointer.type.size or pointer.type.extents:
            return
        base, size = pointer.type.base, pointer.type.size
        live = np.flatnonzero(mask & pointer.known)
        if not live.size:
            return
        starts = np.broadcast_to(pointer.number, self.lanes)[live]
        for furthest, at in ((self.reach.lowest, starts.argmin()), (self.reach.highest, starts.argmax())):
            start, known = int(starts[at]), furthest.get(base)
            if known is None:
                further = 1
            else:
                further = known.start - start if furthest is self.reach.lowest else start + size - known.stop
            if further > 0 or (further == 0 and writes):
                thread, block = (self.index(axes, int(live[at])) for axes in self.axes[:2])
                furthest[base] = Witness(start, start + size, pointer.type.whole or size, line, writes, block, thread)

    def index(self, axes: Sequence[Any], lane: int) -> Axes:
        """Return the index of a lane's thread or block."""
        x, y, z = (axis if isinstance(axis, int) else int(axis[lane]) for axis in axes)
        return x, y, z

    def binary(self, node: syntax.Binary, mask: Mask) -> Lanes | None:
        """Return the value of an operation; lanes evaluate the right operand of ``&&`` and ``||`` only where they need it."""
        operator = node.operator
        if operator in ("&&", "||"):
            yes, no, unknown = self.decide(node.left, mask)
            settled, open_ = (no, yes) if operator == "&&" else (yes, no)
            right = self.evaluate(node.right, open_) if open_.any() else None
            known = settled.copy()
            holds = settled if operator == "||" else np.zeros_like(mask)
            if right is not None and isinstance(right.type, Integer):
                known |= open_ & right.known
                holds = holds | (open_ & right.known & (right.number != 0))
            self.passed([node.right], unknown)
            return Lanes(holds.astype(np.int64), known)
        left, right = self.evaluate(node.left, mask), self.evaluate(node.right, mask)
        if operator == ",":
            return right
        if left is None and operator == ">>":  # of a class whose operator may change its right operand
            self.forget(syntax.variables(node.right), mask)
        return operate(operator, left, right)

    def unary(self, node: syntax.Unary, mask: Mask) -> Lanes | None:
        """Return the value of an operation on an integer."""
        value = as_integer(self.evaluate(node.operand, mask))
        if value is None:
            return None
        if node.operator == "!":
            return Lanes(settled(value.number == 0), value.known)
        value = promoted(value)
        if node.operator == "+":
            return value
        return fit(-value.number if node.operator == "-" else ~value.number, value.known, value.type)

    def assign(self, node: syntax.Assign, mask: Mask) -> Lanes | None:
        """Store a value, and return that of the assignment."""
        value = self.evaluate(node.value, mask)
        match node.target:
            case syntax.Name(slot=slot):
                old = self.values.get(slot)
                if node.operator:
                    value = operate(node.operator, old, value)
                value = None if old is None else cast(value, old.type)  # None: a variable of unknown type
                if slot >= 0:
                    self.store(slot, value, mask)
                return old if node.before else value
            case target:
                if isinstance(target, syntax.Index | syntax.Member):
                    self.touch(self.place(target, mask), mask, target.line, writes=True)
                else:
                    self.evaluate(target, mask)
                self.forget(syntax.variables(target), mask)
        return None

    def choose(self, node: syntax.Choice, mask: Mask) -> Lanes | None:
        """Return the value of ``condition ? then : otherwise``."""
        yes, no, unknown = self.decide(node.condition, mask)
        then, otherwise = self.evaluate(node.then, yes), self.evaluate(node.otherwise, no)
        self.passed([node.then, node.otherwise], unknown)
        if then and otherwise and as_integer(then) and as_integer(otherwise):
            left, right, kind = common(then, otherwise)
            return Lanes(np.where(yes, left.number, right.number), (yes & left.known) | (no & right.known), kind)
        for value, others in ((then, no | unknown), (otherwise, yes | unknown)):
            if as_pointer(value) and not others.any():
                return value
        return None

    def call(self, node: syntax.Call, mask: Mask) -> Lanes | None:
        """Evaluate a call: atomic operations access memory, `min` and `max` have a value, that of others is unknown."""
        name = node.name.removeprefix("std::")
        values = [self.evaluate(argument, mask) for argument in node.arguments]
        if not known_function(self.kernel, node.name):
            return None
        if name in ATOMICS or name == "__ldg":
            self.touch(values[0] if values else None, mask, node.line, writes=name != "__ldg")
        elif name in ("min", "max") and len(values) == 2:
            left, right = map(as_integer, values)
            if left and right and left.type == right.type:  # for two different types the result depends on the headers
                number = (np.minimum if name == "min" else np.maximum)(left.number, right.number)
                return Lanes(settled(number), left.known & right.known, left.type)
        return None


def _symbol(module: Module, name: str) -> Lanes | None:
    try:
        symbol = module.symbol(name)
    except DeclarationError:
        return None
    lanes = symbol.lanes
    bounds = symbol.shape[:-1] if lanes > 1 else symbol.shape
    if not bounds or symbol.hidden:
        return None
    element = CType("", symbol.dtype, lanes, symbol.dtype.itemsize * lanes)
    return Lanes(0, known=True, type=Pointer(Base("symbol", symbol.name, symbol.nbytes), element, bounds[1:]))
