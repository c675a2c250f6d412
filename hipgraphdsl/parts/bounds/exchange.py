"""Exchange between threads of a block through shared memory without a barrier (HG207), by interpreting the kernel's source.

The first block of a launch is interpreted as `threads` does it: every access that is recorded is one that the thread makes.
Between two barriers each byte of shared memory has a thread that wrote it and threads that read it. Where exactly one thread
writes a byte and another one reads it, nothing orders the two; where they belong to one wave, the kernel is right on hardware
that runs the lanes of a wave in lockstep. Whatever may be a barrier counts as one: warp operations, functions that are not read,
and loops that wait for a value in memory. Short functions of the source are followed into.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...checks.levels import CheckedLevel
from ...errors import DeclarationError
from ...kernels import body_of
from ...printed import counted
from ...source import Scope, Token, closing_angle, spell, split_commas
from ...source import trees as syntax
from .arithmetic import Base, Lanes, Pointer, as_pointer, cast, type_of
from .bodies import parse_body
from .bounds import known_extents, shares
from .definitions import Function, definitions_of
from .programs import ATOMICS, Program, known_function, program_of
from .threads import Axes, Mask, Run

if TYPE_CHECKING:
    from ...nodes.facets import KernelLaunch

_WAVE: Final = 64  # lanes of the widest wave
_MOST_THREADS: Final = 1024
_MOST_BYTES: Final = 65536  # of one array
_MOST_INSIDE: Final = 4  # functions inside each other
_MOST_TOKENS: Final = 2000  # of a function
_MAY_WAIT: Final = re.compile(r"sync|shfl|ballot|any|all|barrier|match|reduce|activemask")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One thread writes shared memory that another reads, and no barrier stands between."""

    array: str
    writer: int
    writes: int  # line
    reader: int
    reads: int  # line


class _Bytes:
    """Who has touched the bytes of one array since the last barrier; -1 is nobody."""

    def __init__(self) -> None:
        self.writer = np.full(0, -1)
        self.first, self.last = self.writer, self.writer  # the readers with the lowest and the highest number
        self.writes, self.reads_first, self.reads_last = self.writer, self.writer, self.writer  # lines
        self.several = np.zeros(0, bool)  # more than one thread writes it

    def grow(self, nbytes: int) -> None:
        """Take in the bytes below `nbytes`."""
        more = -(-nbytes // 1024) * 1024 - len(self.writer)
        if more > 0:
            for name in ("writer", "first", "last", "writes", "reads_first", "reads_last"):
                setattr(self, name, np.concatenate([getattr(self, name), np.full(more, -1)]))
            self.several = np.concatenate([self.several, np.zeros(more, bool)])

    def exchange(self, array: str) -> Exchange | None:
        """Return what a byte tells that one thread alone writes and another reads, if possible inside one wave."""
        found: Exchange | None = None
        for reader, reads in ((self.first, self.reads_first), (self.last, self.reads_last)):
            met = (self.writer >= 0) & ~self.several & (reader >= 0) & (reader != self.writer)
            near = met & (self.writer // _WAVE == reader // _WAVE)
            if near.any() or (met.any() and found is None):
                at = int(np.flatnonzero(near if near.any() else met)[0])
                found = Exchange(array, *(int(values[at]) for values in (self.writer, self.writes, reader, reads)))
            if near.any():
                break
        return found


def check_exchange(scope: CheckedLevel) -> None:
    """Report kernels whose threads exchange data through shared memory without a barrier, once for each block size."""
    alike: dict[tuple[Program, Axes], list[KernelLaunch]] = {}
    for node in (found.launched for _, found in scope.having("launched")):
        if node is not None and shares(node):
            program, block = program_of(node.kernel), known_extents(scope, node.block)
            if program is not None and block is not None and block[0] * block[1] * block[2] <= _MOST_THREADS:
                alike.setdefault((program, block), []).append(node)
    for (program, block), nodes in alike.items():
        node = nodes[0]
        grid = known_extents(scope, node.grid)
        values = tuple([scope.value(arg) if n in program.deciding else None for n, arg in enumerate(node.args)])
        found = exchange_of(program, grid, block, values) if grid is not None else None
        if found is not None:
            _report(scope, nodes, found)


def _report(scope: CheckedLevel, nodes: Sequence[KernelLaunch], found: Exchange) -> None:
    node, more = nodes[0], len(nodes) - 1
    same = found.writer // _WAVE == found.reader // _WAVE
    others = f" (and {counted(more, 'more node')} of it)" if more else ""
    scope.found(
        "HG207",
        f"{scope.name(node)!r}: kernel {node.kernel.name!r}{others} exchanges data without a barrier: thread {found.writer} of a"
        f" block writes shared memory {found.array} ({node.kernel.module.name}:{found.writes}), and thread {found.reader}"
        f"{' of its wave' if same else ''} reads it (line {found.reads})"
        + ("; that is right only where the lanes of a wave run in lockstep" if same else ""),
        node,
        hint="put __syncthreads() between, or inside a wave __syncwarp() or a shuffle like __shfl_down; volatile orders nothing",
    )


@lru_cache(maxsize=1024)
def exchange_of(program: Program, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> Exchange | None:
    """Return an exchange without a barrier in the first block of a launch, if possible inside one wave; None if none is seen."""
    run = _FirstBlock(program, grid, block, values)
    run.barrier()
    return run.found


class _FirstBlock(Run):
    """The interpreter, for all threads of one block."""

    def __init__(self, program: Program, grid: Axes, block: Axes, values: tuple[int | None, ...]) -> None:
        self.memory: dict[Base, _Bytes] = {}
        self.found: Exchange | None = None
        self.inside: list[str] = []
        self.atomic = False
        self._waiting: dict[int, bool] = {}
        self._bodies: dict[str, tuple[Program, list[Any]] | None] = {}
        super().__init__(program, grid, block, values)

    def chosen(self, grid: Axes, block: Axes, values: Iterable[int | None]) -> tuple[Any, Any]:
        within, (x, y, z) = np.arange(block[0] * block[1] * block[2]), block
        axes = [within % x, within // x % y, within // (x * y)]
        return [axis if extent > 1 else 0 for axis, extent in zip(axes, (x, y, z), strict=True)], [0, 0, 0]

    # -- barriers ------------------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Forget who has touched which byte, after looking for exchanges."""
        for base, seen in self.memory.items():
            self.found = self.found or seen.exchange(repr(base.name) if base.name else "of dynamic size")
        self.memory.clear()

    def waits(self, node: Any) -> bool:
        """Return whether a part of the body may hold a barrier."""
        known = self._waiting.get(id(node))
        if known is None:
            calls = (part for part in syntax.walk(node) if isinstance(part, syntax.Call))
            known = self._waiting[id(node)] = any(
                _MAY_WAIT.search(call.name) or not known_function(self.kernel, call.name) for call in calls
            )
        return known

    def passed(self, nodes: Iterable[Any], mask: Mask) -> Mask:
        nodes = list(nodes)
        if mask.any() and any(self.waits(node) for node in nodes):
            self.barrier()
        return super().passed(nodes, mask)

    def loop(self, node: syntax.Loop, mask: Mask) -> Mask:
        waits = any(
            isinstance(part, syntax.Index | syntax.Member) and not _is_index(part) for part in syntax.walk(node.condition)
        )
        if waits:  # for a value in memory
            self.barrier()
        found = super().loop(node, mask)
        if waits or self.waits(node):  # lanes that are dropped may have waited again
            self.barrier()
        return found

    def count(self, node: syntax.Loop, mask: Mask) -> Mask | None:
        return None if self.waits(node) else super().count(node, mask)

    # -- accesses ------------------------------------------------------------------------------------------------------

    def touch(self, pointer: Lanes | None, mask: Mask, line: int, *, writes: bool) -> None:
        if pointer is None or not isinstance(pointer.type, Pointer) or pointer.type.extents or not pointer.type.size:
            return
        base, size = pointer.type.base, pointer.type.size
        lanes = np.flatnonzero(mask & pointer.known)
        if base.kind not in ("shared", "dynamic") or not lanes.size:
            return
        starts = np.broadcast_to(pointer.number, self.lanes)[lanes]
        if starts.min() < 0 or starts.max() + size > _MOST_BYTES:
            return
        seen = self.memory.setdefault(base, _Bytes())
        seen.grow(int(starts.max()) + size)
        at = (starts[:, None] + np.arange(size)).reshape(-1)
        who = np.repeat(lanes, size)
        if self.atomic:
            seen.several[at] = True
        elif writes:
            first = seen.writer[at]
            seen.several[at[(first >= 0) & (first != who)]] = True
            seen.writer[at], seen.writes[at] = who, line
            seen.several[at[seen.writer[at] != who]] = True  # several threads in this statement
        else:
            at, who = at[::-1], who[::-1]  # of several threads the first one stays
            lower = (seen.first[at] < 0) | (who < seen.first[at])
            seen.first[at[lower]], seen.reads_first[at[lower]] = who[lower], line
            at, who = at[::-1], who[::-1]
            higher = who > seen.last[at]
            seen.last[at[higher]], seen.reads_last[at[higher]] = who[higher], line

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(self, node: syntax.Call, mask: Mask) -> Lanes | None:
        name = node.name.removeprefix("std::")
        if not known_function(self.kernel, node.name) and self.follow(node, mask):
            return None
        self.atomic = name in ATOMICS
        found = super().call(node, mask)
        self.atomic = False
        if self.waits(node):
            self.barrier()
        return found

    def follow(self, node: syntax.Call, mask: Mask) -> bool:
        """Interpret a function of the source that returns nothing; return whether that is possible."""
        function = definitions_of(self.kernel.module).function(node.name)
        if function is None or node.name in self.inside or len(self.inside) >= _MOST_INSIDE:
            return False
        if node.name not in self._bodies:  # kept, because parts of it are known by their id
            self._bodies[node.name] = _parsed(self.program, function, node.name)
        parsed = self._bodies[node.name]
        if parsed is None or len(function.parameters) != len(node.arguments):
            return False
        program, kinds = parsed
        values = [self.evaluate(argument, mask) for argument in node.arguments]
        kept = self.program, self.values, self.arrays
        self.program, self.values, self.arrays = program, {}, set()
        self.inside.append(node.name)
        for n, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            if n not in program.escaped:
                self.values[n] = value if as_pointer(value) else None if kind is None else cast(value, kind)
        try:
            self.execute(program.body, mask)
        finally:
            self.inside.pop()
            self.program, self.values, self.arrays = kept
        return True


def _is_index(part: Any) -> bool:
    """Return whether a member is a coordinate, ``threadIdx.x``."""
    return isinstance(part, syntax.Member) and isinstance(part.base, syntax.Name) and part.base.slot < 0


def _bound(program: Program, function: Function, name: str) -> Scope:
    """Return the scope of a function, with template arguments bound if all calls in the kernel's body spell the same ones."""
    scope, given = program.scope.at(function.space).inner(), dict[str, list[list[Token]]]()
    body = body_of(program.kernel)
    tokens = body.tokens if body is not None and function.templates else []
    for n, (token, following) in enumerate(pairwise(tokens)):
        if token.text == name.removesuffix("<>").rpartition("::")[2] and following.text == "<":
            inside = tokens[n + 2 : closing_angle(tokens, n + 1)]
            given[spell(inside)] = split_commas(inside)
    if len(given) == 1:
        for parameter, value in zip(function.templates, *given.values(), strict=False):
            if parameter.name and "..." not in parameter.spelling:
                scope.bind_parameter(parameter, value, program.scope)
    return scope


def _parsed(program: Program, function: Function, name: str) -> tuple[Program, list[Any]] | None:
    """Return a function as a program, and the types of its parameters; None if it returns early or is not understood."""
    if len(function.body) > _MOST_TOKENS:
        return None
    names: list[str] = []
    kinds: list[Any] = []
    try:
        scope = _bound(program, function, name)
        for tokens in function.parameters:
            try:
                declared = scope.declarators(tokens)[0]
            except ValueError:  # of a template parameter's type
                if any(t.text in ("&", "&&", "...", "(") for t in tokens) or tokens[-1].kind != "name":
                    return None
                names.append(tokens[-1].text)
                kinds.append(None)
                continue
            if declared.reference:
                return None
            names.append(declared.name)
            kinds.append(None if declared.bounds else type_of(declared.type))
        body, escaped = parse_body(function.body, names, scope)
    except (DeclarationError, ValueError, RecursionError):
        return None
    if any(isinstance(part, syntax.Unread) or part == syntax.Leave("return") for part in syntax.walk(body)):
        return None
    return Program(program.kernel, body, escaped, scope, frozenset(), frozenset(), program.returning), kinds
