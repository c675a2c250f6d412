"""The access audit: each node runs alone; what it touches is compared with what it declares, and with its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays import Access, ArrayView, Parameter
from ..errors import HipGraphError
from ..nodes import CapturedNode, HostNode, KernelNode, MemcpyNode, MemoryOpsNode, MemsetNode
from ..plan import Step
from .laboratory import Bytes, Cell, Found, Laboratory, near
from .orders import waits_inside
from .report import Finding

__all__ = ["audit_accesses"]

_AUDITS_ALIKE = 3  # nodes of the same kernel or callback and the same arrays that are audited in a large workflow
_LARGE_BYTES = 1 << 30  # what auditing every node would have to move for a workflow to be large
_AUDIT_BYTES = 4 << 30  # bytes that an audit may move altogether; what is left out is noted
_AUDITED = (KernelNode, MemcpyNode, MemsetNode, HostNode, CapturedNode, MemoryOpsNode)


def audit_accesses(laboratory: Laboratory, found: Found, advance: Callable[[str], None]) -> None:
    """Run the serial order once more, and each node alone several times on the way."""
    steps = laboratory.steps
    total = sum(cell.nbytes for cell in laboratory.cells.values())
    large = 8 * total * len(steps) > _LARGE_BYTES
    alike: dict[Any, int] = {}
    moved = audited = left = 0
    laboratory.begin()
    for index, step in enumerate(steps):
        node = step.node
        if not isinstance(node, _AUDITED) or waits_inside(node):
            laboratory.do(index)
            continue
        key = _likeness(step)
        alike[key] = alike.get(key, 0) + 1
        if (large and alike[key] > _AUDITS_ALIKE) or moved > _AUDIT_BYTES:
            left += 1
            laboratory.do(index)
            continue
        advance(f"audit of {step.name}")
        audited += 1
        moved += 8 * total
        _audit_step(laboratory, index, found)
    laboratory.end()
    found.done.append(f"an access audit of {audited} nodes alone" + (f" ({left} alike were left out)" if left else ""))


def _likeness(step: Step) -> Any:
    node = step.node
    what = getattr(node, "kernel", None) or getattr(node, "fn", None) or node.kind
    return (node.kind, what, tuple((id(a.view.root), a.mode) for a in node.accesses))


def _audit_step(laboratory: Laboratory, index: int, found: Found) -> None:
    step = laboratory.steps[index]
    cells = {**laboratory.cells, **laboratory.fresh}
    before = {name: laboratory.get(cell) for name, cell in cells.items()}
    laboratory.do(index)
    after = {name: laboratory.get(cell) for name, cell in cells.items()}
    read = {name: laboratory.declared(index, cell, lambda a: a.mode != "write") for name, cell in cells.items()}
    written = {name: laboratory.declared(index, cell, lambda a: a.mode != "read") for name, cell in cells.items()}
    _compare_with_reference(laboratory, index, before, after, found)

    def again(poisoned: Iterable[str]) -> tuple[dict[str, Bytes], dict[str, Bytes]]:
        """Run from `before` with what the step does not declare to read poisoned in some cells."""
        start = {}
        for name, cell in cells.items():
            data = before[name].copy()
            if name in poisoned and cell.writeable:
                other = _poisoned(cell, data)
                data[~read[name]] = other[~read[name]]
            laboratory.put(cell, data) if cell.writeable else None
            start[name] = data
        laboratory.do(index)
        return start, {name: laboratory.get(cell) for name, cell in cells.items()}

    undeclared: dict[str, np.ndarray[Any, Any]] = {
        name: (after[name] != before[name]) & ~written[name] for name in cells
    }
    try:
        start, end = again(cells)
    except HipGraphError as error:
        found.add(
            Finding(
                "undeclared read",
                f"{step.name!r} fails when arrays that it does not declare to read hold other values:"
                f" {error}", (step.name,),
                hint="declare what it reads",
            )
        )  # fmt: skip
        _settle(laboratory, cells, after)
        return
    for name in cells:
        undeclared[name] |= (end[name] != start[name]) & ~written[name]
    for name, mask in undeclared.items():
        if mask.any():
            extent = _extent(mask, cells[name].dtype.itemsize)
            found.add(
                Finding(
                    "undeclared write",
                    f"{step.name!r} writes {name!r} {extent} and does not declare it",
                    (step.name,),
                    (name,),
                    hint=f"declare the write: hg.writes({name}) or hg.updates({name}), or writes=[{name}]",
                )
            )
    if _depends(cells, before, after, start, end, written):
        guilty = []
        for name, cell in cells.items():
            if cell.writeable and not read[name].all():
                start, end = again([name])
                if _depends(cells, before, after, start, end, written):
                    guilty.append(name)
        shown = ", ".join(map(repr, guilty)) or "memory"
        found.add(
            Finding(
                "undeclared read", f"{step.name!r} reads {shown} and does not declare it", (step.name,), tuple(guilty),
                hint="declare the read: hg.reads or hg.updates, const in the kernel's signature, or reads=[...]",
            )
        )  # fmt: skip
    _settle(laboratory, cells, after)


def _settle(laboratory: Laboratory, cells: Mapping[str, Cell], state: Mapping[str, Bytes]) -> None:
    for name, cell in cells.items():
        if cell.writeable:
            laboratory.put(cell, state[name])


def _depends(
    cells: Mapping[str, Cell],
    before: Mapping[str, Bytes],
    after: Mapping[str, Bytes],
    start: Mapping[str, Bytes],
    end: Mapping[str, Bytes],
    written: Mapping[str, np.ndarray[Any, Any]],
) -> bool:
    """Whether what the step wrote depends on what was poisoned.

    A byte that it left alone in both runs proves nothing, also where a write was declared.
    """
    for name in cells:
        changed = (after[name] != before[name]) | (end[name] != start[name])
        if (changed & written[name] & (after[name] != end[name])).any():
            # Where the poisoned run shows the poison, the step may have left the byte alone in both runs and only
            # written the value that was there.
            kept = end[name] == start[name]
            if (changed & written[name] & (after[name] != end[name]) & ~kept).any():
                return True
            if ((after[name] != before[name]) & written[name] & kept & (after[name] != end[name])).any():
                return True
    return False


def _poisoned(cell: Cell, data: Bytes) -> Bytes:
    """Return other values of the same dtype, harmless where they are taken for indices."""
    values = data.view(cell.dtype) if cell.dtype.names is None else data
    if values.dtype.kind == "f" or values.dtype.kind == "c":
        other = np.where(values == -12345.0, 54321.0, -12345.0).astype(values.dtype)
    elif values.dtype.kind == "b":
        other = ~values
    elif values.dtype.kind in "iu":
        other = (values == 0).astype(values.dtype)
    else:
        other = np.where(data == 0, 1, 0).astype(np.uint8)
    return np.ascontiguousarray(other).view(np.uint8)


def _extent(mask: np.ndarray[Any, Any], itemsize: int) -> str:
    """Return the bytes of the elements of which a byte has changed."""
    at = np.flatnonzero(mask) // itemsize
    return f"bytes {int(at[0]) * itemsize}..{(int(at[-1]) + 1) * itemsize}"


# -- NumPy references ----------------------------------------------------------------------------------------------

_REFERENCE_TOLERANCE = {"f2": 1e-2, "f4": 1e-5, "f8": 1e-12, "c8": 1e-5, "c16": 1e-12}


def _compare_with_reference(
    laboratory: Laboratory, index: int, before: Mapping[str, Bytes], after: Mapping[str, Bytes], found: Found
) -> None:
    """Compare a kernel node with the NumPy function of its kernel, if it has one."""
    step = laboratory.steps[index]
    node = step.node
    if not isinstance(node, KernelNode) or node.kernel.reference is None:
        return
    cells = {**laboratory.cells, **laboratory.fresh}
    scope = laboratory.program.scope_of(step)
    args: list[Any] = []
    arrays: list[tuple[str, ArrayView, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for arg in node.args:
        view = arg.view if isinstance(arg, Access) else arg
        if isinstance(view, ArrayView):
            address = scope.address(view)
            name = next((n for n, c in cells.items() if c.pointer <= address < c.pointer + c.nbytes), None)
            if name is None:
                return
            offset = address - cells[name].pointer
            span = view.region.stop - view.region.start
            ours = np.ndarray(view.shape, view.dtype, after[name][offset : offset + span].tobytes(), 0, view.strides)
            copy = np.ndarray(
                view.shape, view.dtype, before[name][offset : offset + span].tobytes(), 0, view.strides
            ).copy()
            args.append(copy)
            arrays.append((name, view, copy, ours))
        else:
            args.append(scope.value(arg) if isinstance(arg, Parameter) else arg)
    try:
        node.kernel.reference(*args)
    except Exception as error:
        found.add(
            Finding(
                "reference",
                f"the reference of kernel {node.kernel.name!r} raises for {step.name!r}: {error!r}",
                (step.name,),
            )
        )
        return
    for name, view, wanted, ours in arrays:
        tolerance = found.tolerance.get(name) if isinstance(found.tolerance, Mapping) else found.tolerance
        if tolerance is None:
            tolerance = _REFERENCE_TOLERANCE.get(f"{view.dtype.kind}{view.dtype.itemsize}", 1e-2)
        if not near(ours, wanted, tolerance):
            different = np.flatnonzero((ours != wanted).reshape(-1))
            at = int(different[0])
            position = ", ".join(str(i) for i in np.unravel_index(at, view.shape))
            found.add(
                Finding(
                    "reference",
                    f"{step.name!r} gives {view.name}[{position}] = {ours.reshape(-1)[at]}, the reference of kernel"
                    f" {node.kernel.name!r} {wanted.reshape(-1)[at]} ({different.size} of {ours.size} elements differ)",
                    (step.name,), (name,),
                )
            )  # fmt: skip
