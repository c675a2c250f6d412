"""A workflow whose steps are run one at a time, in any order, with all memory read and set between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import numpy as np

from ..arrays import Access, AllocArray, Array, Region
from ..backends import Scope
from ..backends.callbacks import memory_view
from ..backends.serial import SerialProgram
from ..errors import DeclarationError, HipError, HipGraphError
from ..executable import Executable
from ..kernels import Symbol
from ..nodes import AllocNode, ChildGraphNode, FreeNode
from ..plan import Step
from ..runtimes.base import MemcpyKind, Runtime
from ..workflow import Workflow
from .report import Finding

__all__ = ["WAIT_S", "Bytes", "Cell", "Found", "Laboratory", "State", "Tolerance", "cell_of", "describe", "near"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
State = dict[str, Bytes]
Tolerance = Union[None, float, Mapping[str, float]]

WAIT_S = 120.0  # a launch that has not finished by then is a finding
POISONS = (0xA5, 0x3C)  # what fresh graph memory is filled with
_MOST_FINDINGS = 20  # of one kind


class Found:
    """Findings, and how values are compared."""

    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.findings: list[Finding] = []
        self.done: list[str] = []
        self.left_out: list[str] = []

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless there are many of its kind."""
        if sum(known.kind == finding.kind for known in self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)

    def differing(self, cells: Mapping[str, Cell], ours: State, reference: State) -> list[str]:
        """Return the names of the arrays that differ by more than the tolerance."""
        return [
            name
            for name, wanted in reference.items()
            if not np.array_equal(ours[name], wanted) and not self._close(cells[name], ours[name], wanted)
        ]

    def _close(self, cell: Cell, ours: Bytes, wanted: Bytes) -> bool:
        tolerance = self.tolerance.get(cell.name) if isinstance(self.tolerance, Mapping) else self.tolerance
        return tolerance is not None and near(cell.values(ours), cell.values(wanted), tolerance)


def near(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float) -> bool:
    """Return whether two arrays differ nowhere by more than the tolerance; what has no fraction must be equal."""
    if a.dtype.names is not None:
        return all(near(a[name], b[name], tolerance) for name in a.dtype.names)
    if a.dtype.kind not in "fc" and a.dtype.kind != "V":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        scale = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
        return bool(np.all(same | (np.abs(left - right) <= tolerance * scale)))


def describe(cell: Cell, ours: Bytes, wanted: Bytes) -> str:
    """Return the first element of an array that differs and how many do."""
    a, b = cell.values(ours).reshape(-1), cell.values(wanted).reshape(-1)
    size = cell.dtype.itemsize
    rows = (ours.reshape(-1, size) != wanted.reshape(-1, size)).any(axis=1)
    first = int(np.flatnonzero(rows)[0])
    index = ", ".join(str(i) for i in np.unravel_index(first, cell.shape))
    return (
        f"{cell.name}[{index}] is {a[first]} instead of {b[first]} ({int(rows.sum())} of {rows.size} elements differ)"
    )


@dataclass(slots=True)
class Cell:
    """One block of memory."""

    name: str
    pointer: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    on_host: bool
    writeable: bool
    visible: bool
    """Whether users can read it by name."""

    def values(self, data: Bytes) -> np.ndarray[Any, Any]:
        """Return bytes of this cell as an array."""
        return data.view(self.dtype).reshape(self.shape)


class Laboratory:
    """A workflow whose steps are run one at a time, in any order."""

    def __init__(self, workflow: Workflow, runtime: Runtime, device: int) -> None:
        self.workflow = workflow
        self.runtime = runtime
        self.executable = Executable.build(workflow, runtime, "serial", lanes=None, join=False, device=device)
        self.poison = POISONS[0]
        self.cells: dict[str, Cell] = {}
        self.fresh: dict[str, Cell] = {}
        """Memory that alloc steps have made in this run."""
        self.start: State = {}

    def close(self) -> None:
        """Return everything."""
        self.executable.close()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The plan's steps, children inlined."""
        return self.executable.plan.steps

    def name(self, index: int) -> str:
        """Return a step's name."""
        return self.steps[index].name

    def reference(self, params: dict[str, Any]) -> State:
        """Run once by the serial backend, with its parameters, and return the values of all visible memory."""
        executable = self.executable
        self._look(executable._scope)
        self.start = self.state()
        executable.run(**params)
        program = executable._program
        assert isinstance(program, SerialProgram)
        self.program: SerialProgram = program
        return self.run()

    def _look(self, top: Scope) -> None:
        """Note where all memory is."""

        def visit(workflow: Workflow, scope: Scope, prefix: str, bind: Mapping[str, Any]) -> None:
            for name, array in workflow.arrays.items():
                if name in bind or isinstance(array, AllocArray):
                    continue
                self.cells[prefix + name] = cell_of(prefix + name, array, scope.addresses[array])
            for node in workflow.nodes:
                if isinstance(node, ChildGraphNode):
                    visit(node.workflow, scope.children[node.name], f"{prefix}{node.name}/", node.bind)

        visit(self.workflow, top, "", {})
        for step in self.steps:
            for access in step.node.accesses:
                root = access.view.root
                if isinstance(root, Symbol):
                    name = f"{root.module.name}:{root.name}"
                    if name not in self.cells:
                        for device in top.shared.devices:
                            cell = cell_of(name, root, top.shared.symbol(root, device))
                            self.cells[name] = replace(cell, visible=False, writeable=True)
                            name = f"{root.module.name}:{root.name} on device {device + 1}"

    # -- memory --

    def get(self, cell: Cell) -> Bytes:
        """Return a copy of a cell's bytes."""
        if cell.on_host:
            return memory_view(cell.pointer, cell.nbytes, (cell.nbytes,), np.dtype(np.uint8)).copy()
        data = np.empty(cell.nbytes, np.uint8)
        self.runtime.memcpy(data.ctypes.data, cell.pointer, cell.nbytes, MemcpyKind.DEVICE_TO_HOST)
        return data

    def put(self, cell: Cell, data: Bytes) -> None:
        """Set a cell's bytes."""
        if cell.on_host:
            memory_view(cell.pointer, cell.nbytes, (cell.nbytes,), np.dtype(np.uint8))[...] = data
        else:
            self.runtime.memcpy(
                cell.pointer, np.ascontiguousarray(data).ctypes.data, cell.nbytes, MemcpyKind.HOST_TO_DEVICE
            )

    def state(self) -> State:
        """Return the values of all memory that outlives a run."""
        return {name: self.get(cell) for name, cell in self.cells.items()}

    def visible(self, state: State) -> State:
        """Return what users can read by name."""
        return {name: data for name, data in state.items() if self.cells[name].visible}

    def set(self, state: State) -> None:
        """Set memory to earlier values; what is read-only stays."""
        for name, data in state.items():
            cell = self.cells[name]
            if cell.writeable:
                self.put(cell, data)

    # -- running --

    def run(self, order: Optional[Sequence[int]] = None) -> State:
        """Run all steps in an order, from the values of the start; return what is in memory then."""
        self.begin()
        for index in range(len(self.steps)) if order is None else order:
            self.do(index)
        self.end()
        return self.state()

    def begin(self) -> None:
        """Set memory to the values of the start, without graph memory."""
        self.set(self.start)
        self.fresh.clear()
        for step in self.steps:
            if isinstance(step.node, AllocNode):
                self.program.scope_of(step).addresses.pop(step.node.array, None)

    def end(self) -> None:
        """Return what no free step has returned."""
        left, self.fresh = self.fresh, {}
        for cell in left.values():
            self.runtime.free(cell.pointer)

    def do(self, index: int) -> None:
        """Run one step and wait.

        Raises
        ------
        HipGraphError
            If it fails: a callback raised, the device refused, or memory is used that is not there.
        """
        step = self.steps[index]
        node = step.node
        scope = self.program.scope_of(step)
        prefix = step.name[: len(step.name) - len(node.name)]
        if isinstance(node, FreeNode):
            name = prefix + node.array.name
            cell = self.fresh.get(name)
            if cell is None:
                raise DeclarationError(
                    f"{step.name!r} frees {name!r}, which is not allocated then", node=step.name, array=name
                )
            # Others may get this memory now: what is still read from it must not look right.
            self.put(cell, np.full(cell.nbytes, self.poison, np.uint8))
        try:
            finished = self._issue(step)
        except HipError:
            self.executable.synchronize()  # raises what a callback raised, if one did
            raise
        if not finished:
            raise HipGraphError(f"{step.name!r} alone has not finished after {WAIT_S:g} s")
        self.executable.synchronize()
        if isinstance(node, AllocNode):
            name = prefix + node.array.name
            if name in self.fresh:
                raise DeclarationError(f"{step.name!r} allocates {name!r} a second time", node=step.name, array=name)
            cell = self.fresh[name] = cell_of(name, node.array, scope.addresses[node.array])
            self.put(cell, np.full(cell.nbytes, self.poison, np.uint8))
        elif isinstance(node, FreeNode):
            scope.addresses.pop(node.array, None)
            self.fresh.pop(prefix + node.array.name)

    def _issue(self, step: Step) -> bool:
        """Run one step on a stream of its device; return whether it has finished in time."""
        with self.runtime.using_device(self.executable.device):
            stream = self.program.stream_of(step, self.executable.stream)
            self.program.issue(step, stream)
            return self.runtime.stream_wait(stream, WAIT_S)

    # -- what a step declares --

    def declared(self, index: int, cell: Cell, wanted: Callable[[Access], bool]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which bytes of a cell a step's accesses cover."""
        step = self.steps[index]
        scope = self.program.scope_of(step)
        mask = np.zeros(cell.nbytes, bool)
        for access in step.node.accesses:
            if not wanted(access):
                continue
            view = access.view
            region = access.bytes.shifted(scope.address(view, scope.device_of(step.node)) - view.offset_bytes - cell.pointer)
            start, stop = max(region.start, 0), min(region.stop, cell.nbytes)
            if start < stop:
                mask[start:stop] |= byte_mask(region)[start - region.start : stop - region.start]
        return mask


def cell_of(name: str, array: Array, pointer: int) -> Cell:
    """Return the cell of an array."""
    writeable = bool(getattr(array, "writeable", True))
    visible = not isinstance(array, AllocArray)
    return Cell(name, pointer, array.nbytes, array.shape, array.dtype, array.on_host, writeable, visible)


def byte_mask(region: Region) -> np.ndarray[Any, np.dtype[np.bool_]]:
    mask = np.zeros(region.stop - region.start, bool)
    shape = (*(count for count, _ in region.dims), region.run)
    strides = (*(stride for _, stride in region.dims), 1)
    np.lib.stride_tricks.as_strided(mask, shape, strides)[...] = True
    return mask
