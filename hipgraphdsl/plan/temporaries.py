"""Which arrays of alloc nodes may lie in the same bytes, and where: memory planned by lifetime.

Data flow: steps in topological order -> for each array that one step allocates and one frees, the steps that use it -> pairs
that may share, because they lie on one device and every use of one precedes every use of the other -> first fit by size ->
offsets in one block for each device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..arrays import Access, AllocArray, ArrayView
from ..order import ancestors
from ..workflow import AnyNode, ChildGraphNode, Level
from .inlining import FlatNode

_Place = tuple[Level, Any]  # where an array belongs, and the array

_ALIGN: Final = 256  # bytes: what hipMalloc gives at least
_MOST: Final = 4096  # arrays that are compared pair by pair


@dataclass(frozen=True, slots=True)
class PackedArray:
    """One array in the block."""

    name: str  # ``"t"``, or ``"child/t"`` inside an inlined child
    array: AllocArray
    path: tuple[ChildGraphNode, ...]  # the children that it stands in, outermost first
    device: int  # whose block it lies in
    offset: int  # bytes, from the begin of that block


@dataclass(frozen=True)
class Packing:
    """Where arrays of alloc nodes lie in one block of memory on each device, held for as long as the Executable."""

    arrays: tuple[PackedArray, ...]
    nodes: tuple[str, ...]  # names of their alloc and free nodes, which have nothing left to do
    blocks: tuple[tuple[int, int], ...]  # device and bytes of each
    apart_nbytes: int  # bytes that the same arrays take if none shares

    def __str__(self) -> str:
        return (
            f"{len(self.arrays)} arrays of alloc nodes share {self.nbytes} bytes, {self.saved_nbytes} fewer than apart; they are"
            f" held from compile to close, and their {len(self.nodes)} alloc and free nodes are left out."
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(nbytes for _, nbytes in self.blocks)

    @property
    def saved_nbytes(self) -> int:
        """Bytes that sharing saves."""
        return self.apart_nbytes - self.nbytes


@dataclass
class _Life:
    """One array: its steps, and the steps that precede all of its uses (a set as bits of an int)."""

    nbytes: int
    device: int
    allocs: list[int]
    frees: list[int]
    uses: int = 0
    before: int = -1
    fixed: bool = False


def pack_temporaries(steps: Sequence[FlatNode], device: int = 0) -> Packing | None:
    """Return where arrays of alloc nodes may lie together; None where that saves nothing.

    An array counts if one step allocates it, one step frees it, and every use lies between the two. Two of them may share bytes
    if every use of one precedes every use of the other, so that no order is added. What the alloc and free steps
    themselves are ordered by does not matter: they do nothing when the block is there throughout. The steps are in topological
    order, and `deps` are all the order that there is; `device` is that of arrays that name none.
    """
    lives: dict[_Place, _Life] = {}
    for index, step in enumerate(steps):
        node = step.node
        if (made := node.made) is not None:
            owner = device if made.device is None else made.device
            life = lives.setdefault(step.level.resolve(made)[:2], _Life(made.nbytes, owner, [], []))
            life.allocs.append(index)
        elif node.freed is not None and (freed := lives.get(step.level.resolve(node.freed)[:2])) is not None:
            freed.frees.append(index)
    if len(lives) < 2 or len(lives) > _MOST:
        return None
    _note_uses(steps, lives)
    found = [life for life in lives.values() if len(life.allocs) == len(life.frees) == 1 and not life.fixed and life.uses]
    found.sort(key=lambda life: (-life.nbytes, life.allocs[0]))
    while found:
        offsets = _first_fit(found)
        shared = [
            any(
                other is not life
                and other.device == life.device
                and start < offsets[j] + other.nbytes
                and offsets[j] < start + life.nbytes
                for j, other in enumerate(found)
            )
            for start, life in zip(offsets, found)
        ]
        if all(shared):
            break
        found = [life for life, shares in zip(found, shared) if shares]  # the others stay memory of the graph
    if not found:
        return None
    ends: Counter[int] = Counter()
    apart = sum(_rounded(life.nbytes) for life in found)
    arrays = []
    for start, life in zip(offsets, found):
        ends[life.device] = max(ends[life.device], start + life.nbytes)
        step = steps[life.allocs[0]]
        made = step.node.made
        assert made is not None
        arrays.append(PackedArray(step.level.prefix + made.name, made, step.path, life.device, start))
    nodes = tuple(steps[index].name for index in sorted(i for life in found for i in (*life.allocs, *life.frees)))
    blocks = tuple((owner, _rounded(end)) for owner, end in sorted(ends.items()))
    return Packing(tuple(arrays), nodes, blocks, apart)


def _note_uses(steps: Sequence[FlatNode], lives: dict[_Place, _Life]) -> None:
    """Find the uses of each array and what precedes all of them; mark arrays whose uses are not between alloc and free."""
    order = range(len(steps))
    for index, before in ancestors(order, [step.deps for step in steps], order):
        for key in dict.fromkeys(_roots(steps[index])):
            life = lives.get(key)
            if life is None or index in life.allocs:
                continue
            follows_alloc = before >> life.allocs[0] & 1
            if index in life.frees:
                life.fixed |= not follows_alloc or bool(life.uses & ~before)
            else:
                life.fixed |= not follows_alloc or (bool(life.frees) and index > life.frees[0])
                life.uses |= 1 << index
                life.before &= before


def _roots(step: FlatNode) -> list[_Place]:
    """Resolve what a step names through its child graphs: arrays, and where they belong."""
    views = (*(access.view for access in step.node.accesses), *step.node.addresses)
    return [step.level.resolve(view.root)[:2] for view in views]


def _first_fit(lives: Sequence[_Life]) -> list[int]:
    """First fit, largest first: return the lowest offset of each array that overlaps no array alive at the same time."""
    offsets: list[int] = []
    for i, life in enumerate(lives):
        taken = sorted(
            (offsets[j], offsets[j] + _rounded(other.nbytes))
            for j, other in enumerate(lives[:i])
            if other.device == life.device and life.uses & ~other.before and other.uses & ~life.before
        )
        at = 0
        for start, stop in taken:
            if at + life.nbytes <= start:
                break
            at = max(at, stop)
        offsets.append(at)
    return offsets


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


def alloc_roots(node: AnyNode) -> frozenset[Any]:
    """Return the arrays of alloc nodes that a node names."""
    roots = {access.view.root for access in node.accesses}
    roots.update(v.as_view().root for v in getattr(node, "args", ()) if isinstance(v, (Access, ArrayView)))
    return frozenset(root for root in roots if isinstance(root, AllocArray))
