"""Kernels that access memory beyond their arrays (HG409), as far as static analysis of their source proves it; see `threads`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...arrays import Access, ArrayView, ExternalArray, MovingView, Parameter, terms_of
from ...checks.levels import CheckedLevel
from .arithmetic import Base
from .programs import Program, program_of
from .threads import Witness, reach_of

if TYPE_CHECKING:
    from ...nodes.facets import KernelLaunch

_MOST_STEPS = 20_000  # interpreter steps for all launches of a workflow; further launches are not analysed
_MOST_THREADS = 1024  # per block


Block = tuple[int, int, int]


class Reached(NamedTuple):
    """What a launch accesses relative to one base: the outermost accesses, and the bytes from the first to the last."""

    base: Base
    first: Witness
    last: Witness
    start: int
    stop: int


class _Analysed(NamedTuple):
    """What launches of a kernel with one grid and block share."""

    program: Program | None  # None: not analysed
    grid: Block
    block: Block
    found: dict[tuple[int | None, ...], tuple[Reached, ...]]  # by the values of the arguments that decide


_NOT_ANALYSED: Final = _Analysed(None, (0, 0, 0), (0, 0, 0), {})

_INDEX_HINT: Final = (
    "let the kernel test the index against the length, as in if (i < n) with the array's own n, or launch fewer threads"
)
_NULL_HINT: Final = "give the node an array, or let the kernel test the pointer, as in if (x)"


class AnalysisCache:
    """A cache of the analysed launches of a workflow, for all its scopes."""

    def __init__(self) -> None:
        self.steps = 0
        self._launches: dict[Any, _Analysed] = {}

    def reached(self, scope: CheckedLevel, node: KernelLaunch) -> tuple[Reached, ...]:
        """Return the outermost accesses of a launch; empty if it cannot be analysed or the steps are used up."""
        shape = (id(node.kernel), node.grid, node.block)
        program, grid, block, known = self._launches.get(shape) or self._analysed(scope, node, shape)
        if program is None:
            return ()
        args = node.args
        deciding = tuple([scope.value(args[n]) for n in program.deciding]) if program.deciding else ()
        found = known.get(deciding)
        if found is None and self.steps < _MOST_STEPS:
            values = dict(zip(program.deciding, deciding))
            reach = reach_of(program, grid, block, tuple(map(values.get, range(len(args)))))
            self.steps += reach.steps
            found = known[deciding] = tuple(
                [
                    Reached(base, first, last, min(first.start, last.start), max(first.stop, last.stop))
                    for (base, last), first in zip(reach.highest.items(), map(reach.lowest.__getitem__, reach.highest))
                ]
            )
        return found or ()

    def _analysed(self, scope: CheckedLevel, node: KernelLaunch, shape: Any) -> _Analysed:
        """Return what launches of one shape share; kept by what the extents are in this scope."""
        program = program_of(node.kernel)
        grid, block = known_extents(scope, node.grid), known_extents(scope, node.block)
        if program is None or grid is None or block is None or block[0] * block[1] * block[2] > _MOST_THREADS:
            found = _NOT_ANALYSED
        else:
            found = self._launches.setdefault((id(node.kernel), grid, block), _Analysed(program, grid, block, {}))
        if Parameter not in map(type, (*node.grid, *node.block)):
            self._launches[shape] = found
        return found


def check_bounds(scope: CheckedLevel, cache: AnalysisCache) -> None:
    """Report accesses beyond the ends of arrays that a thread of a kernel definitely makes.

    A launch is analysed if grid and block are known; addresses that depend on unknown scalar arguments are not judged. A
    parameter with a default counts as known: the first launch has that value, unless it gives another.
    """
    for _, launching in scope.having("launched"):
        node = launching.launched
        reached = () if node is None else cache.reached(scope, node)
        if node is None or not reached:
            continue
        # Each use of a child graph binds other memory; that matters only for accesses beyond the child's own arrays.
        several = bool(scope.others) and _beyond(scope, node, reached, bound=False) is not None
        for use in (scope, *scope.others) if several else (scope,):
            found = _beyond(use, node, reached if use is scope else cache.reached(use, node))
            if found is not None:
                _report(use, node, *found)
                break


def _beyond(
    scope: CheckedLevel, node: KernelLaunch, reached: Iterable[Reached], *, bound: bool = True
) -> tuple[Base, Witness, Any, int] | None:
    """Return the first access outside of an array: the pointer's base, the access, the array, the pointer's byte offset in it.

    With `bound` False, use the arrays that the child graph itself declares instead of those bound to it.
    """
    for base, first, last, start, stop in reached:
        root: Any = None
        nbytes, offset = base.nbytes, 0
        if base.number >= 0:
            arg = node.args[base.number]
            if arg is None:  # a null pointer that a thread definitely accesses
                return base, first, None, 0
            view = arg.view if type(arg) is Access else arg
            region = view.region
            if start >= 0 and region.start + stop <= region.stop:
                continue  # within the view, as in most launches
            placed = _memory(scope, view, bound)
            if placed is None:
                continue
            root, offset = placed
            nbytes = root.nbytes
        elif base.kind == "dynamic":
            nbytes = node.shared_bytes or -1  # HG510 covers 0 bytes
        if nbytes >= 0 and (offset + stop > nbytes or offset + start < 0):
            inside = offset + last.stop <= nbytes and offset + last.start >= 0
            return base, first if inside else last, root, offset
    return None


def shares(launch: KernelLaunch) -> bool:
    """Return whether a kernel has shared memory, as far as its source tells."""
    return launch.kernel.static_shared_bytes != 0 or launch.kernel.dynamic_shared


def known_extents(scope: CheckedLevel, axes: Any) -> tuple[int, int, int] | None:
    """Return a grid or block, a parameter as its default; None if one has none, or is less than 1."""
    x, y, z = axes
    if type(x) is not int or type(y) is not int or type(z) is not int:
        x, y, z = (scope.value(axis) for axis in axes)
    if x is None or y is None or z is None or min(x, y, z) < 1:  # a launch is refused then
        return None
    return x, y, z


def _memory(scope: CheckedLevel, view: ArrayView, bound: bool) -> tuple[Any, int] | None:
    """Return the array that contains a view, and the view's byte offset; None for external memory and unknown parameters.

    Like other parameters an array parameter stands for its default.
    """
    if isinstance(view, MovingView):
        found = view.default_at(scope.default)
        if found is None:
            return None
        view = found
    root, offset = view.root, view.offset_bytes
    if bound:
        owner, root, inner = scope.resolve(root)
        offset += inner
        default = owner.workflow.default_view(root) if isinstance(root, Parameter) else None
        if default is not None:
            root, offset = default.root, offset + default.offset_bytes
    if isinstance(root, ExternalArray) or (isinstance(root, Parameter) and bound):
        return None
    return root, offset


def _report(scope: CheckedLevel, node: KernelLaunch, base: Base, witness: Witness, root: Any, offset: int) -> None:
    name = base.name
    verb = "writes" if witness.writes else "reads"
    if base.kind == "argument":
        what = f"{name}[{witness.start // witness.size}]"
        start, stop = offset + witness.start, offset + witness.stop
        where = f"{name!r} is None, a null pointer"
        if root is not None:
            where = f"bytes {start}..{stop} of {root.name!r}, which has {root.nbytes} ({root.size} elements)"
    elif base.kind == "dynamic":
        what = "dynamic shared memory"
        where = f"bytes {witness.start}..{witness.stop} of {node.shared_bytes}"
    else:
        what = f"{base.kind} array {name!r}" if base.kind != "symbol" else f"variable {name!r}"
        where = f"bytes {witness.start}..{witness.stop} of {base.nbytes}"
    where += _defaults(scope, node)
    arrays = (root.name,) if root is not None else (name,) if base.kind == "symbol" else ()
    scope.found(
        "HG409",
        f"{scope.name(node)!r}: thread {_axes(witness.thread)} of block {_axes(witness.block)} {verb} {what} (kernel"
        f" {node.kernel.name!r}, line {witness.line}): {where}",
        node,
        arrays=arrays,
        hint=_NULL_HINT if base.kind == "argument" and root is None else _INDEX_HINT,
        several=False,
    )


def _defaults(scope: CheckedLevel, node: KernelLaunch) -> str:
    """Return the end of a message that names the defaults on which a finding may depend."""
    program = program_of(node.kernel)
    values = [node.args[n] for n in sorted(program.deciding)] if program is not None else []
    terms = (term for value in (*node.grid, *node.block, *values) for term in terms_of(value))
    found = [root for term in terms for root in terms_of(scope.resolve(term)[1])]
    used = dict.fromkeys(f"{p.name} = {p.default}" for p in found if p.default is not None)
    return f"; with the default{'s' * (len(used) > 1)} {', '.join(used)}" if used else ""


def _axes(index: tuple[int, int, int]) -> str:
    return str(index[0]) if index[1] == index[2] == 0 else str(index)
