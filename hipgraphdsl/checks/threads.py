"""What chosen threads of a kernel reach, by interpreting its source for one launch.

Nothing is compiled and nothing runs. The interpreter follows the integers that it knows: indices of blocks and threads,
extents of grid and block, scalar arguments, constants, and what C++ computes from them. All else has no known value:
floating-point numbers, what memory holds, what functions return, a result that its signed type cannot hold. The chosen threads
(all of a small launch, else those of blocks at the ends of the grid and where an argument's value is reached) are the lanes of
NumPy arrays. Where a condition is not known for a lane, the lane passes over the branches: what they assign has no known value
then, and if they may leave the kernel, the lane is dropped. So every access that is noted is one that the thread makes, at the
noted address, and no bound is guessed.

A loop that counts is followed in its first and last turn; other loops for some turns, and lanes that still turn then are
dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np

from ..errors import DeclarationError
from ..kernels import Kernel, Module
from ..source import CType, Scope, Value
from ..source import bodies as syntax

__all__ = ["Program", "Reach", "Witness", "program_of"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Known = Any  # bool, or one for each lane
Axes = tuple[int, int, int]

_MOST_TOKENS: Final = 5000  # of a body
_MOST_LANES: Final = 16_384  # of which all are followed
_MOST_COORDINATES: Final = 12  # of blocks along an axis, in a larger grid
_MOST_CHOSEN: Final = 65_536
_MOST_TURNS: Final = 64
_WHOLE_TURNS: Final = 16  # a counting loop with more is followed in its first and last turn
_MOST_WORK: Final = 20_000_000  # lanes and operations
_FAR: Final = 2**52


@dataclass(frozen=True, slots=True)
class Witness:
    """An access that a thread makes.

    Attributes
    ----------
    start, stop : int
        Bytes from the pointer's value, or from the array's first byte.
    line : int
        Of the source.
    writes : bool
    block, thread : tuple of 3 int
    """

    start: int
    stop: int
    line: int
    writes: bool
    block: Axes
    thread: Axes


@dataclass(frozen=True, slots=True)
class Base:
    """What a pointer points into: an ``argument``, a ``symbol``, ``shared`` or ``local`` memory, or ``dynamic`` shared memory.

    `nbytes` is -1 where the kernel's source does not tell.
    """

    kind: str
    name: str
    nbytes: int = -1


@dataclass(slots=True)
class Reach:
    """The accesses that go furthest back and furthest on, by what they reach into; `steps` is what finding them has cost."""

    lowest: dict[Base, Witness]
    highest: dict[Base, Witness]
    steps: int = 0


@dataclass(slots=True)
class _Integer:
    """An integer of each lane, with its C++ type; where `known` is False the number means nothing."""

    number: Any
    known: Known
    bits: int = 32
    unsigned: bool = False


@dataclass(slots=True)
class _Pointer:
    """An address in each lane.

    Attributes
    ----------
    base : Base
    offset : int or array
        Bytes.
    size : int
        Bytes of an element; 0 where it is not known.
    extents : tuple of int
        Of the array that it points at: empty for one element.
    known : bool or array
    """

    base: Base
    offset: Any
    size: int
    extents: tuple[int, ...]
    known: Known

    @property
    def stride(self) -> int:
        return self.size * math.prod(self.extents)


class _Enough(Exception):
    """The work that may be spent is."""


#: Functions that return and change nothing but what a pointer among their arguments points at.
_HARMLESS: Final = frozenset(
    {
        "__syncthreads", "__threadfence", "__threadfence_block", "__threadfence_system", "__syncwarp", "__ballot",
        "__ballot_sync", "__popc", "__popcll", "__clz", "__clzll", "__ffs", "__ffsll", "__brev", "__all", "__any", "__all_sync",
        "__any_sync", "__activemask", "__mul24", "__umul24", "__mulhi", "__umulhi", "__float2int_rn", "__float2int_rz",
        "__int2float_rn", "__float2half", "__half2float", "__float_as_int", "__int_as_float", "__fdividef", "__fmaf_rn", "__expf",
        "__logf", "__sinf", "__cosf", "__powf", "__saturatef", "printf", "clock", "clock64", "wall_clock64",
        *(f"__shfl{kind}{sync}" for kind in ("", "_up", "_down", "_xor") for sync in ("", "_sync")),
        *(
            f"{name}{suffix}"
            for name in (
                "sqrt", "rsqrt", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
                "acos", "atan", "atan2", "sinh", "cosh", "tanh", "pow", "fabs", "floor", "ceil", "round", "trunc", "rint", "fmin",
                "fmax", "fma", "fmod", "hypot", "erf", "erfc", "cbrt", "copysign", "isnan", "isinf", "tgamma", "lgamma",
            )
            for suffix in ("", "f")
        ),
        *(f"make_{stem}{n}" for stem in ("float", "double", "int", "uint", "short", "char", "uchar") for n in (1, 2, 3, 4)),
    }
)  # fmt: skip
_ATOMICS: Final = frozenset(
    f"atomic{name}{scope}"
    for name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
    for scope in ("", "_system", "_block")
)
#: Words of functions that may not return.
ENDING: Final = frozenset({"asm", "__asm", "__asm__", "__trap", "__builtin_trap", "abort", "exit", "__builtin_unreachable"})
_COORDINATES: Final = {"threadIdx": 0, "blockIdx": 1, "blockDim": 2, "gridDim": 3}
_OLD_COORDINATES: Final = {
    f"{name}_{axis}": (n, "xyz".index(axis))
    for n, name in enumerate(("hipThreadIdx", "hipBlockIdx", "hipBlockDim", "hipGridDim"))
    for axis in "xyz"
}


# -- programs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel that has been read.

    Attributes
    ----------
    kernel : Kernel
    body : syntax.Block
    escaped : frozenset of int
    scope : Scope
    deciding : frozenset of int
        The arguments on which addresses or conditions depend.
    plain : frozenset of int
        The arguments that are no pointers to arrays.
    returning : bool
        Whether all functions that it may call return.
    """

    kernel: Kernel
    body: syntax.Block
    escaped: frozenset[int]
    scope: Scope
    deciding: frozenset[int]
    plain: frozenset[int]
    returning: bool
    ending: dict[int, bool] = field(default_factory=dict)
    """What is known of parts of the body, by their identity: whether a thread may not go on behind them."""
    changing: dict[int, set[int]] = field(default_factory=dict)
    """The variables that they may change."""

    @lru_cache(maxsize=4096)  # noqa: B019  # programs are cached themselves, and few
    def reach(self, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> Reach:
        """Return what the chosen threads of a launch reach; `values` has None for arguments that are not known."""
        return _Run(self, grid, block, values).reach


def program_of(kernel: Kernel) -> Program | None:
    """Read a kernel; None where its source does not tell what is compiled."""
    return _read(kernel) if kernel.module.source else None


@lru_cache(maxsize=512)
def _read(kernel: Kernel) -> Program | None:
    signature = kernel.signature
    assert signature is not None
    try:
        found = kernel.module.body(kernel)
        if found is None or len(found.tokens) > _MOST_TOKENS:
            return None
        names = [parameter.name for parameter in signature.parameters]
        body, escaped = syntax.parse_body(found.tokens, names, found.scope)
        deciding = _deciding(body)
    except (DeclarationError, RecursionError):
        return None
    for node in syntax.walk(body):  # a function that takes a reference may keep it
        if isinstance(node, syntax.Call) and not known_function(kernel, node.name) and not kernel.module.takes_values(node.name):
            escaped |= {slot for argument in node.arguments for slot in syntax.variables(argument)}
    deciding &= {n for n, p in enumerate(signature.parameters) if not p.pointer}
    plain = frozenset(n for n, part in enumerate(found.parameters) if not {"[", "("} & {token.text for token in part})
    return Program(kernel, body, escaped, found.scope, frozenset(deciding), plain, not kernel.module.mentions(ENDING))


def known_function(kernel: Kernel, name: str) -> bool:
    """Return whether a name is that of a function of C++ or HIP which returns and keeps no reference."""
    name = name.removeprefix("std::")
    known = name in _HARMLESS or name in _ATOMICS or name in ("min", "max", "abs", "__ldg")
    return known and not kernel.module.declares(name)


def _deciding(body: Any) -> set[int]:
    """Return the variables on which an address or a condition may depend."""
    found: set[int] = set()
    uses: dict[int, set[int]] = {}
    for node in syntax.walk(body):
        match node:
            case syntax.Index():
                found |= _slots(node.base) | _slots(node.index)
            case syntax.Deref():
                found |= _slots(node.operand)
            case syntax.Member():
                found |= _slots(node.base)
            case syntax.If() | syntax.Choice() | syntax.Loop() if node.condition is not None:
                found |= _slots(node.condition)
            case syntax.Binary(operator="&&" | "||"):
                found |= _slots(node.left)
            case syntax.Call():
                found |= {slot for argument in node.arguments for slot in _slots(argument)}
            case syntax.Declare():
                found |= {slot for bound in node.bounds for slot in _slots(bound)}
                if node.initializer is not None:
                    uses.setdefault(node.slot, set()).update(_slots(node.initializer))
            case syntax.Assign():
                for slot in syntax.variables(node.target):
                    uses.setdefault(slot, set()).update(_slots(node.value))
    waiting = list(found)
    while waiting:
        more = uses.get(waiting.pop(), set()) - found
        found |= more
        waiting += more
    return found


def _slots(node: Any) -> set[int]:
    return {part.slot for part in syntax.walk(node) if isinstance(part, syntax.Name)} - {-1}


# -- lanes -------------------------------------------------------------------------------------------------------------


def _chosen(grid: Axes, block: Axes, values: Iterable[int | None]) -> tuple[Any, Any]:
    """Return the chosen threads: for each axis the indices of blocks, and of threads in them."""
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
    thread = [_plain(t) for t in (within % x, within // x % y, within // (x * y))]
    return thread, [_plain(blocks[of, axis]) for axis in range(3)]


def _plain(numbers: Any) -> Any:
    """Return one number for an axis that has only that, else the array."""
    return int(numbers[0]) if (numbers == numbers[0]).all() else numbers


class _Run:
    """One launch of one program."""

    def __init__(self, program: Program, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> None:
        self.program = program
        self.kernel = program.kernel
        self.axes = (*_chosen(grid, block, values), list(block), list(grid))
        self.lanes = next((len(a) for axes in self.axes[:2] for a in axes if not isinstance(a, int)), 1)
        self.reach = Reach({}, {})
        self.arrays: set[int] = set()
        self.breaks: list[Mask] = []
        self.continues: list[Mask] = []
        self.values: dict[int, Any] = {}
        signature = self.kernel.signature
        assert signature is not None
        for n, (parameter, value) in enumerate(zip(signature.parameters, values)):
            dtype = parameter.dtype
            if parameter.pointer:
                size = dtype.itemsize * parameter.lanes if dtype is not None else 0
                if n in program.plain and n not in program.escaped:
                    self.values[n] = _Pointer(Base("argument", parameter.name), 0, size, (), True)
            elif dtype is not None and dtype.kind in "biu" and parameter.lanes == 1:
                bits = 1 if dtype.kind == "b" else 8 * dtype.itemsize
                known = value is not None and n not in program.escaped
                self.values[n] = _fit(int(value or 0), known, bits, dtype.kind != "i")
        with np.errstate(all="ignore"), suppress(_Enough, RecursionError):  # what has been noted by then holds
            self.execute(program.body, np.ones(self.lanes, bool))

    # -- statements ----------------------------------------------------------------------------------------------------

    def execute(self, node: Any, mask: Mask) -> Mask:
        """Execute a statement for some lanes; return those that go on to the next."""
        if not mask.any():
            return mask
        match node:
            case syntax.Block():
                for statement in node.statements:
                    mask = self.execute(statement, mask)
                    if not mask.any():
                        break
                return mask
            case syntax.Evaluate(expression=syntax.Call(name="assert", arguments=(condition,))):
                return self.decide(condition, mask)[0]
            case syntax.Evaluate():
                self.evaluate(node.expression, mask)
                return self.left(node, mask)
            case syntax.Declare():
                self.declare(node, mask)
                return self.left(node, mask)
            case syntax.If():
                return self.branch(node, mask)
            case syntax.Loop():
                return self.loop(node, mask)
            case syntax.Leave():
                if node.kind == "break":
                    self.breaks[-1] |= mask
                elif node.kind == "continue":
                    self.continues[-1] |= mask
        return np.zeros_like(mask)

    def left(self, node: Any, mask: Mask) -> Mask:
        """Return the lanes that surely come back from the functions that an expression calls."""
        return np.zeros_like(mask) if self.ends(node) else mask

    def ends(self, node: Any) -> bool:
        """Whether a lane that executes it may not go on to what follows."""
        ending = self.program.ending
        found = ending.get(id(node))
        if found is None:
            found = ending[id(node)] = any(
                isinstance(part, (syntax.Leave, syntax.Unread)) or (isinstance(part, syntax.Call) and not self.returns(part))
                for part in syntax.walk(node)
            )
        return found

    def assigned(self, node: Any) -> set[int]:
        found = self.program.changing.get(id(node))
        if found is None:
            found = self.program.changing[id(node)] = _assigned(node)
        return found

    def returns(self, call: syntax.Call) -> bool:
        ending = not self.program.returning or call.name in ("assert", "__builtin_assume")
        return not ending or known_function(self.kernel, call.name)

    def branch(self, node: syntax.If, mask: Mask) -> Mask:
        yes, no, unknown = self.decide(node.condition, mask)
        if self.ends(node.condition):
            return np.zeros_like(mask)
        after = self.execute(node.then, yes)
        after = after | (no if node.otherwise is None else self.execute(node.otherwise, no))
        return after | self.passed([node.then, *([node.otherwise] if node.otherwise is not None else [])], unknown)

    def passed(self, nodes: Iterable[Any], mask: Mask) -> Mask:
        """Let lanes pass over what they may or may not execute; return those that surely go on."""
        if mask.any():
            for node in nodes:
                self.forget(self.assigned(node), mask)
                if self.ends(node):
                    mask = np.zeros_like(mask)
        return mask

    def decide(self, condition: Any, mask: Mask) -> tuple[Mask, Mask, Mask]:
        """Return the lanes in which a condition holds, those in which it does not, and those in which it is not known."""
        value = self.evaluate(condition, mask)
        if not isinstance(value, _Integer):
            return np.zeros_like(mask), np.zeros_like(mask), mask
        known = mask & value.known
        yes = known & (value.number != 0)
        return yes, known & ~yes, mask & ~known

    def loop(self, node: syntax.Loop, mask: Mask) -> Mask:
        counted = self.count(node, mask)
        if counted is not None:
            return counted
        done = np.zeros_like(mask)
        if any(self.ends(part) for part in (node.condition, node.step) if part is not None):
            return done
        parts = [part for part in (node.condition, node.body, node.step) if part is not None]
        for turn in range(_MOST_TURNS):
            if node.condition is not None and not (node.late and turn == 0):
                mask, no, unknown = self.decide(node.condition, mask)
                done |= no | self.passed(parts, unknown)
            if not mask.any():
                break
            mask, broken = self.turn(node, mask)
            done |= broken
        return done

    def turn(self, node: syntax.Loop, mask: Mask) -> tuple[Mask, Mask]:
        """Execute a loop's body and step; return the lanes that go on with the next turn, and those that have left it."""
        self.breaks.append(np.zeros_like(mask))
        self.continues.append(np.zeros_like(mask))
        mask = self.execute(node.body, mask)
        mask = mask | self.continues.pop()
        if node.step is not None and mask.any():
            self.evaluate(node.step, mask)
        return mask, self.breaks.pop()

    def count(self, node: syntax.Loop, mask: Mask) -> Mask | None:
        """Follow a loop that counts in its first and last turn; None where it is no such loop, or a short one."""
        found = _counting(node, self.assigned(node.body))
        if found is None or node.late or self.ends(node.body) or found[0] in self.program.escaped:
            return None
        slot, operator, limit, step, sign = found
        first, last = self.values.get(slot), self.evaluate(limit, mask)
        by = _Integer(1, True) if step is None else self.evaluate(step, mask)
        if not (isinstance(first, _Integer) and isinstance(last, _Integer) and isinstance(by, _Integer)):
            return None
        known = mask & first.known & last.known & by.known
        start, end, width = first.number, last.number, by.number * sign
        if first.unsigned != last.unsigned:
            known = known & (start >= 0) & (end >= 0)
        up = operator in ("<", "<=")
        known = known & ((width > 0) if up else (width < 0))
        width = np.where(known, width, 1 if up else -1)
        turns = (end - start + (width if operator in ("<=", ">=") else width - (1 if up else -1))) // width
        turns = np.where(known, np.maximum(turns, 0), 0)
        after = start + turns * width
        known = known & (np.abs(after) < _FAR) & _fits(after, first.bits, first.unsigned)
        if not known.any() or (turns * known).max() <= _WHOLE_TURNS or not (mask == known).all():
            return None
        changed = self.assigned(node.body) - {slot}
        live = known & (turns > 0)
        done = known & ~live
        for at, least in ((start, 1), (after - width, 2)):
            going = live & (turns >= least)
            stopped = live & ~going
            self.store(slot, _Integer(at, True, first.bits, first.unsigned), going)
            self.continues.append(np.zeros_like(mask))
            self.breaks.append(np.zeros_like(mask))
            going = self.execute(node.body, going) | self.continues[-1]
            self.continues.pop()
            self.breaks.pop()
            self.forget(changed, going)
            live = stopped | going
        self.store(slot, _Integer(after, True, first.bits, first.unsigned), live)
        return np.asarray(done | live)

    def declare(self, node: syntax.Declare, mask: Mask) -> None:
        value: Any = None
        kind = node.type
        if node.initializer is not None:
            value = self.evaluate(node.initializer, mask)
        if node.bounds:
            self.values[node.slot] = self.array(node, mask)
            self.arrays.add(node.slot)
            return
        if node.space != "local":
            value = None
        elif kind is not None:
            value = _converted(value, kind)
        elif not node.deduced:
            value = None  # of a type whose layout is not known
        self.values.pop(node.slot, None)  # a new one in each turn of a loop
        self.store(node.slot, value, mask)

    def array(self, node: syntax.Declare, mask: Mask) -> _Pointer | None:
        kind = node.type
        if node.space == "static" or kind is None or kind.pointers or not kind.size:
            return None
        extents = []
        for n, bound in enumerate(node.bounds):
            value = self.evaluate(bound, mask)
            if n == 0 and node.space == "dynamic":
                extents.append(0)
            elif isinstance(value, _Integer) and isinstance(value.number, int) and np.all(value.known) and value.number > 0:
                extents.append(value.number)
            else:
                return None
        nbytes = -1 if node.space == "dynamic" else kind.size * math.prod(extents)
        name = "" if node.space == "dynamic" else node.name
        return _Pointer(Base(node.space, name, nbytes), 0, kind.size, tuple(extents[1:]), True)

    # -- variables -----------------------------------------------------------------------------------------------------

    def store(self, slot: int, value: Any, mask: Mask) -> None:
        """Give a variable a value in some lanes."""
        old = self.values.get(slot)
        if slot in self.program.escaped:
            value = None
        if mask.all():
            self.values[slot] = value
        elif isinstance(value, _Integer):
            if isinstance(old, _Integer) and (old.bits, old.unsigned) == (value.bits, value.unsigned):
                known = np.where(mask, value.known, old.known)
                self.values[slot] = _Integer(np.where(mask, value.number, old.number), known, value.bits, value.unsigned)
            else:
                self.values[slot] = _Integer(value.number, mask & value.known, value.bits, value.unsigned)
        elif isinstance(value, _Pointer):
            if isinstance(old, _Pointer) and (old.base, old.size, old.extents) == (value.base, value.size, value.extents):
                offset, known = np.where(mask, value.offset, old.offset), np.where(mask, value.known, old.known)
                self.values[slot] = _Pointer(value.base, offset, value.size, value.extents, known)
            else:
                self.values[slot] = _Pointer(value.base, value.offset, value.size, value.extents, mask & value.known)
        else:
            self.forget({slot}, mask)

    def forget(self, slots: Iterable[int], mask: Mask) -> None:
        """Take variables for unknown in some lanes."""
        for slot in slots:
            value = None if slot in self.arrays else self.values.get(slot)
            if isinstance(value, _Integer):
                self.values[slot] = _Integer(value.number, value.known & ~mask, value.bits, value.unsigned)
            elif isinstance(value, _Pointer):
                self.values[slot] = _Pointer(value.base, value.offset, value.size, value.extents, value.known & ~mask)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def evaluate(self, node: Any, mask: Mask) -> Any:
        """Return the value of an expression, an integer, a pointer or None, and note what its evaluation reaches."""
        self.reach.steps += 1
        if self.reach.steps * (self.lanes + 500) > _MOST_WORK:
            raise _Enough
        match node:
            case syntax.Number():
                return _fit(node.value.number, True, node.value.bits, node.value.unsigned)
            case syntax.Name():
                return self.values.get(node.slot) if node.slot >= 0 else self.outside(node.text)
            case syntax.Member():
                return self.member(node, mask)
            case syntax.Index() | syntax.Deref():
                return self.load(self.place(node, mask), mask, node.line)
            case syntax.Binary():
                return self.binary(node, mask)
            case syntax.Unary():
                return self.unary(node, mask)
            case syntax.Assign():
                return self.assign(node, mask)
            case syntax.Step():
                one = syntax.Assign("+" if node.by > 0 else "-", node.target, syntax.Number(Value(1)))
                before = self.values.get(node.target.slot) if isinstance(node.target, syntax.Name) else None
                after = self.assign(one, mask)
                return after if node.before else before
            case syntax.Cast():
                value = self.evaluate(node.operand, mask)
                return None if node.type is None else _converted(value, node.type)
            case syntax.Choice():
                return self.choose(node, mask)
            case syntax.Call():
                return self.call(node, mask)
            case syntax.AddressOf():
                return self.address(node.operand, mask)
            case syntax.Opaque():
                for part in node.parts:
                    self.evaluate(part, mask)
        return None

    def outside(self, name: str) -> Any:
        """Return the value of a constant, or the address of a module's array."""
        if name in _OLD_COORDINATES:
            which, axis = _OLD_COORDINATES[name]
            return _Integer(self.axes[which][axis], True, 32, True)
        constant = self.program.scope.constant(name)
        variables = [symbol for symbol in self.kernel.module.symbols if symbol.rpartition("::")[2] == name]
        if variables:
            return _symbol(self.kernel.module, name) if variables == [name] and constant is None else None
        return None if constant is None else _fit(constant.number, True, constant.bits, constant.unsigned)

    def member(self, node: syntax.Member, mask: Mask) -> Any:
        if isinstance(node.base, syntax.Name) and node.base.slot < 0:
            which = _COORDINATES.get(node.base.text)
            if which is not None and node.name in ("x", "y", "z") and not node.arrow:
                return _Integer(self.axes[which]["xyz".index(node.name)], True, 32, True)
        if node.arrow:
            self.touch(self.evaluate(node.base, mask), mask, node.line, writes=False)
        else:
            self.evaluate(node.base, mask)
        return None

    def place(self, node: Any, mask: Mask) -> Any:
        """Return the address of the element that `p[i]` or `*p` is."""
        if isinstance(node, syntax.Deref):
            return self.evaluate(node.operand, mask)
        base, index = self.evaluate(node.base, mask), self.evaluate(node.index, mask)
        return _moved(base, index, 1)

    def load(self, pointer: Any, mask: Mask, line: int) -> Any:
        """Return the value of an element, which is unknown; an array inside an array is its address."""
        if isinstance(pointer, _Pointer) and pointer.extents:
            return _Pointer(pointer.base, pointer.offset, pointer.size, pointer.extents[1:], pointer.known)
        self.touch(pointer, mask, line, writes=False)
        return None

    def address(self, operand: Any, mask: Mask) -> Any:
        """Return the address of an object, which is not accessed."""
        if isinstance(operand, (syntax.Index, syntax.Deref)):
            return self.place(operand, mask)
        if isinstance(operand, syntax.Member):
            if operand.arrow:
                self.evaluate(operand.base, mask)
            else:
                self.address(operand.base, mask)
        elif isinstance(operand, syntax.Choice):
            yes, no, _ = self.decide(operand.condition, mask)
            self.address(operand.then, yes)
            self.address(operand.otherwise, no)
        elif not isinstance(operand, syntax.Name):
            self.evaluate(operand, mask)
        return None

    def touch(self, pointer: Any, mask: Mask, line: int, *, writes: bool) -> None:
        """Note an access of one element."""
        if not isinstance(pointer, _Pointer) or not pointer.size or pointer.extents:
            return
        live = np.flatnonzero(mask & pointer.known)
        if not live.size:
            return
        uniform = isinstance(pointer.offset, int)
        starts = pointer.offset if uniform else pointer.offset[live]
        for furthest, beyond, at in (
            (self.reach.lowest, int.__lt__, 0 if uniform else int(starts.argmin())),
            (self.reach.highest, int.__gt__, 0 if uniform else int(starts.argmax())),
        ):
            start = int(starts if uniform else starts[at])
            known = furthest.get(pointer.base)
            if known is None or beyond(start, known.start) or (writes and start == known.start):
                lane = int(live[at])
                thread, block = (self.index(axes, lane) for axes in self.axes[:2])
                furthest[pointer.base] = Witness(start, start + pointer.size, line, writes, block, thread)

    def index(self, axes: Sequence[Any], lane: int) -> Axes:
        x, y, z = (axis if isinstance(axis, int) else int(axis[lane]) for axis in axes)
        return x, y, z

    def binary(self, node: syntax.Binary, mask: Mask) -> Any:
        operator = node.operator
        if operator in ("&&", "||"):
            yes, no, unknown = self.decide(node.left, mask)
            settled, open_ = (no, yes) if operator == "&&" else (yes, no)
            right = self.evaluate(node.right, open_) if open_.any() else None
            known = settled.copy()
            holds = settled if operator == "||" else np.zeros_like(mask)
            if isinstance(right, _Integer):
                known |= open_ & right.known
                holds = holds | (open_ & right.known & (right.number != 0))
            self.passed([node.right], unknown)
            return _Integer(holds.astype(np.int64), known)
        left, right = self.evaluate(node.left, mask), self.evaluate(node.right, mask)
        if operator == ",":
            return right
        if left is None and operator == ">>":  # of a class, whose operator may change what is on the right
            self.forget(syntax.variables(node.right), mask)
        return _operate(operator, left, right)

    def unary(self, node: syntax.Unary, mask: Mask) -> Any:
        value = self.evaluate(node.operand, mask)
        if not isinstance(value, _Integer):
            return None
        if node.operator == "!":
            return _Integer(_number(value.number == 0), value.known)
        value = _promoted(value)
        if node.operator == "+":
            return value
        number = -value.number if node.operator == "-" else ~value.number
        return _fit(number, value.known, value.bits, value.unsigned)

    def assign(self, node: syntax.Assign, mask: Mask) -> Any:
        target = node.target
        value = self.evaluate(node.value, mask)
        if isinstance(target, syntax.Name):
            old = self.values.get(target.slot)
            if node.operator:
                value = _operate(node.operator, old, value)
            if isinstance(old, _Integer):
                value = _cast(value, old.bits, old.unsigned)
            elif isinstance(old, _Pointer):
                value = _as_pointer(value, old.size, old.extents) or _Pointer(old.base, 0, old.size, old.extents, False)
            else:
                value = None  # of a type that is not known here
            if target.slot >= 0:
                self.store(target.slot, value, mask)
            return value
        if isinstance(target, (syntax.Index, syntax.Deref)):
            self.touch(self.place(target, mask), mask, target.line, writes=True)
        elif isinstance(target, syntax.Member):
            if target.arrow:
                self.touch(self.evaluate(target.base, mask), mask, target.line, writes=True)
            elif isinstance(target.base, (syntax.Index, syntax.Deref)):
                self.touch(self.place(target.base, mask), mask, target.line, writes=True)
            else:
                self.evaluate(target.base, mask)
        else:
            self.evaluate(target, mask)
            self.forget(syntax.variables(target), mask)
        return None

    def choose(self, node: syntax.Choice, mask: Mask) -> Any:
        yes, no, unknown = self.decide(node.condition, mask)
        then, otherwise = self.evaluate(node.then, yes), self.evaluate(node.otherwise, no)
        self.passed([node.then, node.otherwise], unknown)
        if isinstance(then, _Integer) and isinstance(otherwise, _Integer):
            left, right, bits, unsigned = _common(then, otherwise)
            known = (yes & left.known) | (no & right.known)
            return _Integer(np.where(yes, left.number, right.number), known, bits, unsigned)
        if isinstance(then, _Pointer) and not (no | unknown).any():
            return then
        return otherwise if isinstance(otherwise, _Pointer) and not (yes | unknown).any() else None

    def call(self, node: syntax.Call, mask: Mask) -> Any:
        name = node.name.removeprefix("std::")
        values = [self.evaluate(argument, mask) for argument in node.arguments]
        if not known_function(self.kernel, node.name):
            return None
        if name in _ATOMICS or name == "__ldg":
            self.touch(values[0] if values else None, mask, node.line, writes=name != "__ldg")
        elif name in ("min", "max") and len(values) == 2 and all(isinstance(value, _Integer) for value in values):
            left, right = values
            if (left.bits, left.unsigned) == (right.bits, right.unsigned):  # of two types, its result depends on the headers
                number = (np.minimum if name == "min" else np.maximum)(left.number, right.number)
                return _Integer(_number(number), left.known & right.known, left.bits, left.unsigned)
        return None


def _assigned(node: Any) -> set[int]:
    """Return the variables that may change in a part of a program."""
    found: set[int] = set()
    for part in syntax.walk(node):
        if isinstance(part, (syntax.Assign, syntax.Step)):
            found |= syntax.variables(part.target)
        elif isinstance(part, syntax.Declare):
            found.add(part.slot)
        elif isinstance(part, syntax.Binary) and part.operator == ">>":
            found |= syntax.variables(part.right)
    return found


def _counting(node: syntax.Loop, changed: set[int]) -> tuple[int, str, Any, Any, int] | None:
    """Return variable, comparison, limit, step (None for 1) and its sign of a loop that counts."""
    condition = node.condition
    if not (isinstance(condition, syntax.Binary) and condition.operator in ("<", "<=", ">", ">=")):
        return None
    if not isinstance(condition.left, syntax.Name) or condition.left.slot < 0:
        return None
    slot = condition.left.slot
    match node.step:
        case syntax.Step(target=syntax.Name(slot=other), by=by) if other == slot:
            step, sign = None, by
        case syntax.Assign(operator="+" | "-" as way, target=syntax.Name(slot=other), value=value) if other == slot:
            step, sign = value, 1 if way == "+" else -1
        case _:
            return None
    for part in (condition.right, step):
        if part is None:
            continue
        if any(not isinstance(p, (syntax.Name, syntax.Number, syntax.Binary, syntax.Unary, syntax.Member, syntax.Cast)) for p in
               syntax.walk(part)) or _slots(part) & (changed | {slot}):  # fmt: skip
            return None
    return None if slot in changed else (slot, condition.operator, condition.right, step, sign)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    """Return truth values and NumPy's numbers as integers."""
    return value.astype(np.int64) if isinstance(value, np.ndarray) and value.ndim else int(value)


def _fits(number: Any, bits: int, unsigned: bool) -> Known:
    if bits == 1:
        return (number >= 0) & (number <= 1)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (number >= low) & (number <= min(high, 2**63 - 1))


def _fit(number: Any, known: Known, bits: int, unsigned: bool) -> _Integer:
    """Return a result in its type: unsigned ones of up to 32 bits wrap around, others are unknown where they do not fit."""
    if bits == 1:
        return _Integer(_number(number != 0), known, 1, True)
    if unsigned and bits < 64:
        return _Integer(number & (2**bits - 1), known, bits, unsigned)
    inside = _fits(number, bits, unsigned)
    if isinstance(number, int) and not inside:
        number = 0
    return _Integer(number, known & inside, bits, unsigned)


def _cast(value: Any, bits: int, unsigned: bool) -> _Integer:
    if not isinstance(value, _Integer):
        return _Integer(0, False, bits, unsigned)
    return _fit(value.number, value.known, bits, unsigned)


def _promoted(value: _Integer) -> _Integer:
    return value if value.bits >= 32 else _Integer(value.number, value.known)


def _common(left: _Integer, right: _Integer) -> tuple[_Integer, _Integer, int, bool]:
    """Return both after the usual arithmetic conversions, and their type."""
    left, right = _promoted(left), _promoted(right)
    bits = max(left.bits, right.bits)
    unsigned = any(value.unsigned for value in (left, right) if value.bits == bits)
    return _cast(left, bits, unsigned), _cast(right, bits, unsigned), bits, unsigned


_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def _operate(operator: str, left: Any, right: Any) -> Any:
    if isinstance(left, _Pointer) or isinstance(right, _Pointer):
        if operator == "+":
            return _moved(left, right, 1)
        return _moved(left, right, -1) if operator == "-" and isinstance(left, _Pointer) else None
    if not (isinstance(left, _Integer) and isinstance(right, _Integer)):
        return None
    if operator in ("<<", ">>"):
        left, right = _promoted(left), _promoted(right)
        known = left.known & right.known & (right.number >= 0) & (right.number < left.bits)
        by = right.number if isinstance(right.number, int) and known is True else np.where(known, right.number, 0)
        if operator == ">>":
            return _Integer(_settled(left.number >> by), known, left.bits, left.unsigned)
        known = known & _small(left.number, by)
        return _fit(_settled(left.number << by), known & (left.number >= 0), left.bits, left.unsigned)
    a, b, bits, unsigned = _common(left, right)
    known = a.known & b.known
    x, y = a.number, b.number
    if operator in _COMPARED:
        return _Integer(_number(_COMPARED[operator](x, y)), known)
    match operator:
        case "+" | "-":
            if bits == 64:
                known = known & (abs(x) < 2**62) & (abs(y) < 2**62)
            number = x + y if operator == "+" else x - y
        case "*":
            if bits == 64 or unsigned:
                known = known & (_float(abs(x)) * _float(abs(y)) < 2.0**62)
            number = x * y
        case "/" | "%":
            known = known & (y != 0)
            divisor = y if isinstance(y, int) and y else np.where(y == 0, 1, y)
            quotient = abs(x) // abs(divisor)
            quotient = _settled(np.where((x < 0) == (divisor < 0), quotient, -quotient))
            number = quotient if operator == "/" else x - quotient * divisor
        case "&":
            number = x & y
        case "|":
            number = x | y
        case "^":
            number = x ^ y
        case _:
            return None
    return _fit(_settled(number), known, bits, unsigned)


def _settled(number: Any) -> Any:
    """Return a number without dimensions as a Python int."""
    return number if isinstance(number, int) or (isinstance(number, np.ndarray) and number.ndim) else int(number)


def _float(number: Any) -> Any:
    return float(number) if isinstance(number, int) else number.astype(float)


def _small(number: Any, by: Any) -> Known:
    """Return whether a shift to the left stays within 62 bits."""
    return _float(abs(number)) * 2.0 ** (_float(by)) < 2.0**62


def _moved(pointer: Any, index: Any, sign: int) -> Any:
    """Return a pointer some elements further on; unknown where either is."""
    if isinstance(index, _Pointer):
        pointer, index = index, pointer
    if not isinstance(pointer, _Pointer) or not isinstance(index, _Integer) or not pointer.stride:
        return None
    known = pointer.known & index.known & (abs(index.number) < _FAR // pointer.stride) & (abs(pointer.offset) < _FAR)
    return _Pointer(pointer.base, pointer.offset + sign * index.number * pointer.stride, pointer.size, pointer.extents, known)


def _as_pointer(value: Any, size: int, extents: tuple[int, ...]) -> Any:
    if not isinstance(value, _Pointer):
        return None
    return _Pointer(value.base, value.offset, size, extents, value.known)


def _converted(value: Any, kind: CType) -> Any:
    """Return a value in a type; None for what is neither an integer nor a pointer to objects of known size."""
    if kind.pointers == 1:
        return _as_pointer(value, kind.size, ()) or _Pointer(Base("none", ""), 0, kind.size, (), False)
    if kind.pointers or kind.dtype is None or kind.lanes > 1 or kind.dtype.kind not in "biu":
        return None
    return _cast(value, 1 if kind.dtype.kind == "b" else 8 * kind.size, kind.dtype.kind != "i")


def _symbol(module: Module, name: str) -> _Pointer | None:
    try:
        symbol = module.symbol(name)
    except DeclarationError:
        return None
    if not symbol.shape or symbol.hidden:
        return None
    return _Pointer(Base("symbol", symbol.name, symbol.nbytes), 0, symbol.dtype.itemsize, symbol.shape[1:], True)
