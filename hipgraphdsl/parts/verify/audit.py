"""The access audit: each node runs alone; its accesses are compared with its declarations, its results with its reference."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...arrays import Access, ArrayView, Parameter, Region, is_extra
from ...backends.serial import SerialProgram
from ...errors import HipGraphError
from ...plan.steps import Step
from .laboratory import Bytes, Cell, Found, Laboratory, State, apart
from .report import Kind

_AUDITS_ALIKE = 3  # most audits of nodes with the same kernel or callback and the same arrays, in a large workflow
_LARGE_BYTES = 1 << 30  # a workflow is large if an audit of every node would move more bytes
_AUDIT_BYTES = 4 << 30  # bytes that an audit may move in total; the nodes left out are reported
Mask = np.ndarray[Any, np.dtype[np.bool_]]
_SIDES = {"before": "before the start", "behind": "beyond the end"}
_RUNS_ALIKE = 5  # runs of a step from the same memory that must agree for it to be stable


def audit_accesses(laboratory: Laboratory, found: Found) -> None:
    """Run the serial order once more, and audit each node on the way by running it alone several times."""
    total = sum(cell.nbytes for cell in laboratory.cells.values())
    large = 8 * total * len(laboratory.steps) > _LARGE_BYTES
    alike: dict[Any, int] = {}
    again: dict[str, int] = {}
    unwritten: dict[str, set[str]] = {}
    moved = audited = left = 0
    laboratory.begin()
    for program, step in laboratory.walk(laboratory.program):
        node = step.node
        if not node.reach or node.waits:
            laboratory.do(program, step)
            continue
        name = program.full_name(step)
        key = _likeness(step)
        alike[key] = alike.get(key, 0) + 1
        again[name] = again.get(name, 0) + 1  # above 1 in the body of a loop
        if (large and alike[key] > _AUDITS_ALIKE) or again[name] > _AUDITS_ALIKE or moved > _AUDIT_BYTES:
            left += again[name] == 1
            laboratory.do(program, step)
            continue
        found.advance(f"audit of {name}")
        audited += again[name] == 1
        moved += 8 * total
        known = len(found.findings)
        audit = _Audit(laboratory, program, step, found)
        audit.run()
        unwritten[name] = audit.unwritten & unwritten.get(name, audit.unwritten)
        if len(found.findings) > known:
            again[name] = _AUDITS_ALIKE  # do not audit it again
    laboratory.end()
    for name, arrays in unwritten.items():
        for array in sorted(arrays):
            found.add(
                "missing write",
                f"{name!r} declares that it writes {array!r}, and leaves every byte of it as it was",
                (name,),
                (array,),
                hint=f"leave it out of writes, or say that it may keep what is there: reads=[{array}], writes=[{array}]",
            )
    found.done.append(f"an access audit of {audited} nodes alone" + (f" ({left} alike were left out)" if left else ""))


def unstable_steps(laboratory: Laboratory) -> dict[str, set[str]]:
    """Run each step several times from the same memory; return nondeterministic steps with the arrays that depend on them."""
    found: dict[str, set[str]] = {}
    laboratory.begin()
    for program, step in laboratory.walk(laboratory.program):
        if step.node.made is not None or step.node.freed is not None or step.node.waits:
            laboratory.do(program, step)
            continue
        cells = {**laboratory.cells, **laboratory.fresh}
        met = {
            name: {mode for mode, region in laboratory.reached(program, step) if cell.meets(region)}
            for name, cell in cells.items()
        }
        written = [name for name, modes in met.items() if modes - {"read"} and cells[name].writeable]
        read = {name for name, modes in met.items() if modes - {"write"}}
        sources = [source for source, arrays in found.items() if arrays & read]
        before = {name: laboratory.get(cells[name]) for name in written}
        laboratory.do(program, step)
        if step.node.kernels or step.node.callback is not None:
            first = {name: laboratory.get(cells[name]) for name in written}
            for _ in range(_RUNS_ALIKE - 1):
                for name, data in before.items():
                    laboratory.put(cells[name], data)
                laboratory.do(program, step)
                if any(not np.array_equal(laboratory.get(cells[name]), first[name]) for name in written):
                    sources.append(program.full_name(step))
                    break
        for source in sources:
            found.setdefault(source, set()).update(written)
    laboratory.end()
    return found


def _likeness(step: Step) -> Any:
    node = step.node
    return (node.kind, node.kernels, node.callback, tuple((id(a.view.root), a.mode) for a in node.accesses))


class _Audit:
    """Audit of one step, which runs alone several times from the same memory; blocks of bytes include their guards."""

    def __init__(self, laboratory: Laboratory, program: SerialProgram, step: Step, found: Found) -> None:
        self.laboratory, self.program, self.step, self.found = laboratory, program, step, found
        self.name = program.full_name(step)
        self.cells: dict[str, Cell] = {}
        """All memory; with guard zones only around arrays that the step accesses."""
        self.read: dict[str, Mask] = {}
        self.written: dict[str, Mask] = {}
        """Bytes that the step declares to read and to write; never in guards."""
        self.unwritten: set[str] = set()
        """Arrays that an eager or captured node declares as write-only and leaves unchanged, whatever values they hold."""
        reached = laboratory.reached(program, step)
        for name, cell in (*laboratory.cells.items(), *laboratory.fresh.items()):
            met = [(mode, region) for mode, region in reached if cell.meets(region)]
            cell = self.cells[name] = cell if met or not cell.guard else replace(cell, guard=0)
            self.read[name] = _declared(cell, [region for mode, region in met if mode != "write"])
            self.written[name] = _declared(cell, [region for mode, region in met if mode != "read"])
        self.before = self._state()
        laboratory.do(program, step)
        self.after = self._state()

    def _state(self) -> State:
        return {name: self.laboratory.get(cell, guards=True) for name, cell in self.cells.items()}

    def add(self, kind: Kind, message: str, *arrays: str, hint: str = "") -> None:
        """Add a finding about the step."""
        self.found.add(kind, f"{self.name!r} {message}", (self.name,), arrays, hint=hint)

    def run(self) -> None:
        """Add the findings, and set memory to its state after the step."""
        _compare_with_reference(self)
        try:
            self._compare()
        except HipGraphError as error:
            why = f"fails when arrays that it does not declare to read, or memory beyond arrays, hold other values: {error}"
            self.add("undeclared read", why, hint="declare what it reads")
        for name, cell in self.cells.items():
            if cell.writeable:
                state = self.after[name]
                for part, at in cell.parts.items():  # clear guards, so that the next step is not blamed
                    if part != "inside":
                        state[at] = 0
                self.laboratory.put(cell, state, guards=True)

    def _compare(self) -> None:
        parts = [(name, part) for name, cell in self.cells.items() for part in cell.parts]
        start, end = self._again(set(parts))
        for name, cell in self.cells.items():
            changed = (self.after[name] != self.before[name]) | (end[name] != start[name])
            touched, promised = changed & ~self.written[name], self.written[name] & ~self.read[name]
            if self.step.node.calls in ("capture", "between") and promised.any() and not (promised & changed).any():
                self.unwritten.add(name)
            for part, at in cell.parts.items():
                where = np.flatnonzero(touched[at]) + at.start - cell.guard
                if where.size and part == "inside":
                    message = f"writes {name!r} {_extent(where, cell.dtype.itemsize)} and does not declare it"
                    self.add("undeclared write", message, name, hint=f"declare the write: {self._said('writes', name)}")
                elif where.size:
                    self.add("out of bounds", f"writes {_beyond(cell, part, where)}", name, hint=self._bounds_hint(cell))
        if not self._depends(start, end) or self._differs_by_itself() or not self._always_depends(set(parts)):
            return
        guilty = [(name, part) for name, part in parts if self._always_depends({(name, part)})]
        undeclared = tuple(name for name, part in guilty if part == "inside")
        if undeclared or not guilty:
            shown = ", ".join(map(repr, undeclared)) or "memory"
            hint = "declare the read: " + ", ".join(self._said("reads", name) for name in undeclared or ("...",))
            self.add("undeclared read", f"reads {shown} and does not declare it", *undeclared, hint=hint)
        for name, part in guilty:
            if part != "inside":
                message = f"reads {_SIDES[part]} of {name!r}, and what it writes depends on that"
                self.add("out of bounds", message, name, hint=self._bounds_hint(self.cells[name]))

    def _said(self, mode: str, name: str) -> str:
        """Return the source text that declares an access of a node of this kind."""
        if self.step.node.launched is not None:
            return f"hg.{mode}({name}) or hg.updates({name}) in args"
        return f"{mode}=[{name}]"

    def _bounds_hint(self, cell: Cell) -> str:
        launch, length = self.step.node.launched, f"the {cell.nbytes // cell.dtype.itemsize} elements of {cell.name!r}"
        if launch is not None:
            return f"compare grid x block, and the bounds check of kernel {launch.kernel.name!r} and its sizes, with {length}"
        return f"compare what it computes with {length}"

    def _again(self, poisoned: Set[tuple[str, str]]) -> tuple[State, State]:
        """Run from `before` with parts of cells poisoned except in declared reads; return the memory before and after."""
        start = {}
        for number, (name, cell) in enumerate(self.cells.items()):
            data = self.before[name].copy()
            if cell.writeable:
                for part, at in cell.parts.items():
                    if (name, part) in poisoned and not self.read[name][at].all():
                        other = _poisoned(cell, data[at]) if part == "inside" else _guard_poison(cell, part, number)
                        np.copyto(data[at], other, where=~self.read[name][at])
                self.laboratory.put(cell, data, guards=True)
            start[name] = data
        self.laboratory.do(self.program, self.step)
        return start, self._state()

    def _always_depends(self, poisoned: Set[tuple[str, str]]) -> bool:
        """Whether the output depends on the poisoned parts in each of several runs; one difference may be nondeterminism."""
        return all(self._depends(*self._again(poisoned)) for _ in range(_RUNS_ALIKE))

    def _differs_by_itself(self) -> bool:
        """Whether the step is nondeterministic, so that different results say nothing about reads."""
        if not any(self._depends(*self._again(set())) for _ in range(2 * _RUNS_ALIKE)):  # costly, so only if it looks guilty
            return False
        self.found.left_out.append(f"what {self.name!r} reads: it writes other values each time, from the same memory")
        return True

    def _depends(self, start: State, end: State) -> bool:
        """Whether the step's output depends on the poisoned bytes.

        A byte that both runs left unchanged proves nothing, even if the step declares to write it.
        """
        for name in self.cells:
            before, after, written = self.before[name], self.after[name], self.written[name]
            differs = written & (after != end[name])
            if not differs.any():
                continue
            # A byte that still holds its poison may have been left alone in both runs; it counts only if the first
            # run changed it.
            kept = end[name] == start[name]
            if (differs & ~kept).any() or (differs & kept & (after != before)).any():
                return True
        return False


def _declared(cell: Cell, regions: Sequence[Region]) -> Mask:
    """Return a mask of the bytes of a block, guards included, that address regions cover."""
    mask = np.zeros(cell.nbytes + 2 * cell.guard, bool)
    inside = cell.inside(mask)
    for region in regions:
        start, stop = region.start - cell.pointer, region.stop - cell.pointer
        first, last = max(start, 0), min(stop, cell.nbytes)
        if not region.dims:
            inside[first:last] = True
            continue
        covered = np.zeros(stop - start, bool)
        shape = (*(count for count, _ in region.dims), region.run)
        strides = (*(stride for _, stride in region.dims), 1)
        np.lib.stride_tricks.as_strided(covered, shape, strides)[...] = True
        inside[first:last] |= covered[first - start : last - start]
    return mask


def _poisoned(cell: Cell, data: Bytes) -> Bytes:
    """Return different values of the same dtype that are harmless if used as indices."""
    values = data.view(cell.dtype) if cell.dtype.names is None and not is_extra(cell.dtype) else data
    if values.dtype.kind == "f" or values.dtype.kind == "c":
        other = np.where(values == -12345.0, 54321.0, -12345.0).astype(values.dtype)
    elif values.dtype.kind == "b":
        other = ~values
    elif values.dtype.kind in "iu":
        other = (values == 0).astype(values.dtype)
    else:
        other = np.where(data == 0, 1, 0).astype(np.uint8)
    return np.ascontiguousarray(other).view(np.uint8)


@lru_cache(maxsize=256)
def _pattern(dtype: np.dtype[Any], number: int, nbytes: int) -> Bytes:
    """Return bytes of small values of a dtype, different per `number`, so that a copy between guards is detected."""
    values = (np.arange(-(-nbytes // dtype.itemsize)) * 7 + number * 13) % 97 + 1
    kind = "V" if is_extra(dtype) else dtype.kind
    if kind in "fc":
        return (-100.0 - values).astype(dtype).view(np.uint8)
    if kind in "iu":
        return values.astype(dtype).view(np.uint8)
    return np.resize(values & 1 if kind == "b" else values, nbytes).astype(np.uint8)


def _guard_poison(cell: Cell, part: str, number: int) -> Bytes:
    """Return values other than zeros for a guard that are harmless if used as indices."""
    pattern = _pattern(cell.dtype, number % 97, cell.guard)
    return pattern[: cell.guard] if part == "behind" else pattern[pattern.size - cell.guard :]


def _beyond(cell: Cell, part: str, at: np.ndarray[Any, Any]) -> str:
    """Return text on the bytes of a guard that were accessed, in whole elements; `at` has offsets from the array's start."""
    size = cell.dtype.itemsize
    elements = np.unique(at // size)
    first, stop = int(elements[0]), int(elements[-1]) + 1
    least = "at least " * (first * size <= -cell.guard or stop * size >= cell.nbytes + cell.guard)
    return (
        f"{least}{elements.size * size} bytes {_SIDES[part]} of {cell.name!r} (bytes {first * size}..{stop * size} of an"
        f" array of {cell.nbytes} bytes, elements {first}..{stop} of {cell.nbytes // size})"
    )


def _extent(at: np.ndarray[Any, Any], itemsize: int) -> str:
    """Return text on the byte range of the elements that contain changed bytes."""
    return f"bytes {int(at[0]) // itemsize * itemsize}..{(int(at[-1]) // itemsize + 1) * itemsize}"


# -- NumPy references ----------------------------------------------------------------------------------------------

_REFERENCE_TOLERANCE = {"f2": 1e-2, "f4": 1e-5, "f8": 1e-12, "c8": 1e-5, "c16": 1e-12}


def _compare_with_reference(audit: _Audit) -> None:
    """Compare a kernel node with the NumPy function of its kernel, if it has one."""
    cells, node = audit.cells, audit.step.node.launched
    if node is None or node.kernel.reference is None:
        return
    scope = audit.program.scope_of(audit.step)
    args: list[Any] = []
    arrays: list[tuple[str, ArrayView, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for arg in node.args:
        view = arg.view if isinstance(arg, Access) else arg
        if isinstance(view, ArrayView):
            address = scope.address(view)
            name = next((n for n, c in cells.items() if c.pointer <= address < c.pointer + c.nbytes), None)
            if name is None:
                return
            start = address - cells[name].pointer
            stop = start + view.region.stop - view.region.start
            copy, ours = (
                np.ndarray(view.shape, view.dtype, cells[name].inside(state[name])[start:stop].tobytes(), 0, view.strides).copy()
                for state in (audit.before, audit.after)
            )
            args.append(copy)
            arrays.append((name, view, copy, ours))
        else:
            args.append(scope.value(arg) if isinstance(arg, Parameter) else arg)
    try:
        node.kernel.reference(*args)
    except Exception as error:
        message = f"the reference of kernel {node.kernel.name!r} raises for {audit.name!r}: {error!r}"
        audit.found.add("reference", message, (audit.name,))
        return
    for name, view, wanted, ours in arrays:
        tolerance = audit.found.tolerance_of(name)
        if tolerance is None:
            tolerance = _REFERENCE_TOLERANCE.get(f"{view.dtype.kind}{view.dtype.itemsize}", 1e-2)
        different = np.flatnonzero(apart(ours, wanted, tolerance).reshape(-1))
        if different.size:
            at = int(different[0])
            position = ", ".join(str(i) for i in np.unravel_index(at, view.shape))
            audit.add(
                "reference",
                f"gives {view.name}[{position}] = {ours.reshape(-1)[at]}, the reference of kernel {node.kernel.name!r}"
                f" {wanted.reshape(-1)[at]} ({different.size} of {ours.size} elements differ)",
                name,
            )
