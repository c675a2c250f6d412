"""Packing: memory of alloc nodes planned by lifetime, so that arrays share bytes.

Data flow: steps in topological order -> for each array that one step allocates and one frees, the steps that use it -> pairs
that may share bytes, because they are on one device and every use of one precedes every use of the other -> first fit by size ->
offsets in one block for each device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..arrays import AllocArray
from ..nodes import Node
from ..nodes.workflow import Level
from ..order import ancestors
from ..printed import counted
from .inlining import FlatNode

_Place = tuple[Level, Any]  # the level that owns an array, and the array

_ALIGN: Final = 256  # bytes: the minimum alignment of hipMalloc
_MOST: Final = 4096  # maximum number of arrays, which are compared pairwise


@dataclass(frozen=True, slots=True)
class PackedArray:
    """One array in a block."""

    name: str  # ``"t"``, or ``"child/t"`` inside an inlined child
    array: AllocArray
    path: tuple[Node, ...]  # the children that contain it, outermost first
    device: int  # the device of its block
    offset: int  # bytes from the start of that block


class _Candidate(NamedTuple):
    """An array that may share memory, at no offset yet, with the index and the name of its alloc node and of its free node."""

    place: PackedArray
    nodes: tuple[tuple[int, str], tuple[int, str]]

    @property
    def rank(self) -> tuple[int, int]:
        """What candidates are sorted by: the largest first."""
        return -self.place.array.nbytes, self.nodes[0][0]


@dataclass(frozen=True)
class Packing:
    """Offsets of arrays of alloc nodes in one block of memory per device; the Executable keeps the blocks until it closes."""

    arrays: tuple[PackedArray, ...]
    nodes: tuple[str, ...]  # names of their alloc and free nodes, which become no-ops
    blocks: tuple[tuple[int, int], ...]  # device and bytes of each block
    apart_nbytes: int  # bytes of the same arrays without sharing
    every: bool  # whether arrays that share memory with no other have a place too
    candidates: tuple[_Candidate, ...] = field(compare=False, repr=False)
    """These arrays and those that share no memory, in the order that they were placed in."""
    conflicts: np.ndarray[Any, np.dtype[np.uint8]] = field(compare=False, repr=False)
    """For each pair of candidates, in bits, whether they must lie apart."""

    def of(self, arrays: Mapping[str, Any]) -> Packing | None:
        """Return the packing of arrays of other sizes, by name, with the same lives; None if other arrays share memory then."""
        found = [each._replace(place=replace(each.place, array=arrays[each.place.name])) for each in self.candidates]
        order = sorted(range(len(found)), key=lambda i: found[i].rank)
        apart = np.unpackbits(self.conflicts, axis=1, count=len(found)).view(bool)[np.ix_(order, order)]
        made = _packed([found[i] for i in order], apart, every=self.every)
        return made if made is not None and made.nodes == self.nodes else None

    def __str__(self) -> str:
        count = len(self.arrays)
        return (
            f"{counted(count, 'array')} of alloc nodes {'lies in' if count == 1 else 'share'} {self.nbytes} bytes,"
            f" {self.saved_nbytes} fewer than apart; they are held from compile to close, and their {len(self.nodes)} alloc and"
            " free nodes are left out."
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
    """One array: its steps, and the steps that precede all of its uses (`uses` and `before` are bit sets)."""

    nbytes: int
    device: int
    allocs: list[int]
    frees: list[int]
    uses: int = 0
    before: int = -1
    fixed: bool = False


def pack_temporaries(steps: Sequence[FlatNode], device: int = 0, *, every: bool = False) -> Packing | None:
    """Return a packing of arrays of alloc nodes; None if it saves nothing, or with `every` if no array qualifies.

    An array qualifies if one step allocates it, one step frees it, and every use lies between the two. Two arrays may share
    bytes if every use of one precedes every use of the other, so that no order is added. The order of the alloc and free steps
    themselves does not matter: they are no-ops because the block exists throughout. The steps are in topological order, and
    only their `deps` order them; `device` is the device of arrays that name none.
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
    if len(lives) < (1 if every else 2) or len(lives) > _MOST:
        return None
    _note_uses(steps, lives)
    found = [life for life in lives.values() if len(life.allocs) == len(life.frees) == 1 and not life.fixed and life.uses]
    found.sort(key=lambda life: (-life.nbytes, life.allocs[0]))
    return _packed([_candidate(steps, life) for life in found], _conflicts(found, len(steps)), every=every)


def _candidate(steps: Sequence[FlatNode], life: _Life) -> _Candidate:
    """Return an array that may share memory."""
    step, made = steps[life.allocs[0]], steps[life.allocs[0]].node.made
    assert made is not None
    (alloc, free) = ((at, steps[at].name) for at in (life.allocs[0], life.frees[0]))
    return _Candidate(PackedArray(step.level.prefix + made.name, made, step.path, life.device, 0), (alloc, free))


def _packed(found: Sequence[_Candidate], apart: np.ndarray[Any, np.dtype[np.bool_]], *, every: bool) -> Packing | None:
    """Return the packing of candidates in the order of their ranks: of `every` one, or of those that share bytes."""
    sizes, devices = [each.place.array.nbytes for each in found], [each.place.device for each in found]
    kept = list(range(len(found)))
    while kept:
        offsets = _first_fit(sizes, kept, apart)
        shared = kept if every else _sharing(sizes, devices, kept, offsets)
        if len(shared) == len(kept):
            break
        kept = [i for i in kept if i in shared]  # the others keep their alloc and free nodes
    if not kept:
        return None
    ends: Counter[int] = Counter()
    for i in kept:
        ends[devices[i]] = max(ends[devices[i]], offsets[i] + sizes[i])
    arrays = tuple(replace(found[i].place, offset=offsets[i]) for i in kept)
    nodes = tuple(name for _, name in sorted(node for i in kept for node in found[i].nodes))
    blocks = tuple((owner, _rounded(end)) for owner, end in sorted(ends.items()))
    alone = sum(_rounded(sizes[i]) for i in kept)
    return Packing(arrays, nodes, blocks, alone, every, tuple(found), np.packbits(apart, axis=1))


def _note_uses(steps: Sequence[FlatNode], lives: dict[_Place, _Life]) -> None:
    """Record the uses of each array and the steps that precede all of them; mark arrays not used between alloc and free only."""
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
    """Resolve the arrays that a step names through its enclosing child graphs; return each with the level that owns it."""
    views = (*(access.view for access in step.node.accesses), *step.node.addresses)
    return [step.level.resolve(view.root)[:2] for view in views]


def _conflicts(lives: Sequence[_Life], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each pair of arrays whether they must lie apart; `count` is the number of steps.

    Pairs are compared a row at a time: row i of `after` says of each array whether all uses of array i precede all of its uses.
    """
    nbytes = -(-count // 8)
    mask = (1 << count) - 1
    before = np.frombuffer(b"".join((life.before & mask).to_bytes(nbytes, "little") for life in lives), np.uint8)
    columns = np.ascontiguousarray(before.reshape(len(lives), nbytes).T)  # by step: which arrays are used after it alone
    after = np.ones((len(lives), len(lives)), bool)
    for row, life in zip(after, lives):
        uses = life.uses
        while uses:
            step = (uses & -uses).bit_length() - 1
            row &= columns[step >> 3] & np.uint8(1 << (step & 7)) != 0
            uses &= uses - 1
    devices = np.array([life.device for life in lives])
    conflicts: np.ndarray[Any, np.dtype[np.bool_]] = ~(after | after.T) & (devices[:, None] == devices)
    return conflicts


def _first_fit(sizes: Sequence[int], kept: Sequence[int], apart: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[int, int]:
    """Place arrays by first fit, largest first: return for each the lowest offset free of arrays that it must lie apart from."""
    offsets: dict[int, int] = {}
    for i in kept:
        taken = sorted(
            (offsets[j], offsets[j] + _rounded(sizes[j])) for j in np.flatnonzero(apart[i, :i]).tolist() if j in offsets
        )
        at = 0
        for start, stop in taken:
            if at + sizes[i] <= start:
                break
            at = max(at, stop)
        offsets[i] = at
    return offsets


def _sharing(sizes: Sequence[int], devices: Sequence[int], kept: Sequence[int], offsets: Mapping[int, int]) -> set[int]:
    """Return the arrays that share bytes with another."""
    shared: set[int] = set()
    last, device, end = -1, -1, 0  # the array that reaches furthest so far on a device
    for i in sorted(kept, key=lambda i: (devices[i], offsets[i])):
        if devices[i] == device and offsets[i] < end:
            shared.update((last, i))
        if devices[i] != device or offsets[i] + sizes[i] > end:
            last, device, end = i, devices[i], offsets[i] + sizes[i]
    return shared


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


def alloc_roots(node: Node) -> frozenset[Any]:
    """Return the arrays of alloc nodes that a node names."""
    roots = {access.view.root for access in node.accesses}
    roots.update(view.root for view in node.addresses)
    return frozenset(root for root in roots if isinstance(root, AllocArray))
