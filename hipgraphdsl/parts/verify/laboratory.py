"""The laboratory, which runs a workflow's steps one at a time, in any order, and can read and set all memory between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ...arrays import Access, AllocArray, Array, ExternalArray, Mode, Parameter, Region, Viewable, kind_of
from ...backends import Environment, SharedHandles
from ...backends.callbacks import Stopped
from ...backends.lent import bytes_at
from ...backends.serial import SerialProgram
from ...errors import DeclarationError, HipError, HipGraphError
from ...executable import Executable
from ...kernels import Symbol
from ...nodes.workflow import Workflow
from ...plan.options import PlanOptions
from ...plan.steps import Step
from ...progress import no_progress
from ...runtimes.base import Runtime
from ...runtimes.data import MemcpyKind
from .report import Finding, Kind

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
State = dict[str, Bytes]
Tolerance = None | float | Mapping[str, float]

AS_DECLARED: Final = PlanOptions(lanes=None, join=False, pack=False)
WAIT_S = 120.0  # a launch that has not finished by then is a finding
POISONS = (0xA5, 0x3C)  # fill bytes of fresh graph memory
_GUARD_BYTES = 4096  # on each side of an array; every write there is a fault
_MOST_FINDINGS = 20  # of one kind


class Found:
    """Findings, and how values are compared."""

    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.unstable: Callable[[], Mapping[str, Set[str]]] = dict
        """Returns the nondeterministic steps, each with the arrays that depend on it; called when results differ."""
        self.advance: Callable[[str], None] = no_progress
        """Progress callback, which takes the name of the next run."""
        self.findings: list[Finding] = []
        self.done: list[str] = []
        self.left_out: list[str] = []

    def add(
        self,
        kind: Kind,
        message: str,
        nodes: tuple[str, ...] = (),
        arrays: tuple[str, ...] = (),
        *,
        backend: str = "",
        seed: int | None = None,
        hint: str = "",
    ) -> None:
        """Record a finding, unless the limit of its kind is reached."""
        if not self.has_many(kind):
            self.findings.append(Finding(kind, message, nodes, arrays, backend, seed, hint))

    def has_many(self, kind: Kind) -> bool:
        """Whether the limit of findings of a kind is reached."""
        return sum(known.kind == kind for known in self.findings) >= _MOST_FINDINGS

    def differing(self, cells: Mapping[str, Cell], ours: State, reference: State) -> list[str]:
        """Return the names of the arrays that differ by more than the tolerance, and not because a step is unstable."""
        names = [
            name
            for name, wanted in reference.items()
            if not np.array_equal(ours[name], wanted) and not self._close(cells[name], ours[name], wanted)
        ]
        for step, arrays in self.unstable().items() if names else ():
            shaken = [name for name in names if name in arrays]
            if shaken and not any(known.kind == "unstable" and known.nodes == (step,) for known in self.findings):
                said = self.described(cells[shaken[0]], ours[shaken[0]], reference[shaken[0]])
                self.add(
                    "unstable",
                    f"{step!r} writes other values each time, from the same memory: {said}",
                    (step,),
                    tuple(shaken),
                    hint="where it adds floats in any order, say how far results may differ: tolerance=1e-6",
                )
            names = [name for name in names if name not in arrays]
        return names

    def tolerance_of(self, array: str) -> float | None:
        """Return how far the values of an array may differ."""
        return self.tolerance.get(array) if isinstance(self.tolerance, Mapping) else self.tolerance

    def _close(self, cell: Cell, ours: Bytes, wanted: Bytes) -> bool:
        tolerance = self.tolerance_of(cell.name)
        return tolerance is not None and not apart(cell.values(ours), cell.values(wanted), tolerance).any()

    def described(self, cell: Cell, ours: Bytes, wanted: Bytes) -> str:
        """Return text on an array that differs: its first wrong element, and how many are wrong."""
        return _described(cell, ours, wanted, self.tolerance_of(cell.name))


def apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float) -> np.ndarray[Any, Any]:
    """Return which elements of two arrays differ by more than the tolerance; only floating-point types may differ at all."""
    if a.dtype.names is not None:
        fields = [apart(a[name], b[name], tolerance).reshape(*a.shape, -1).any(axis=-1) for name in a.dtype.names]
        return np.asarray(np.logical_or.reduce(fields))
    if kind_of(a.dtype) not in "fc":
        return np.asarray(a != b)
    wide = np.complex128 if kind_of(a.dtype) == "c" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        scale = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
        return np.asarray(~(same | (np.abs(left - right) <= tolerance * scale)))


def _described(cell: Cell, ours: Bytes, wanted: Bytes, tolerance: float | None) -> str:
    """Return text on the first element of an array that differs by more than the tolerance, and the number of such elements."""
    a, b = cell.values(ours).reshape(-1), cell.values(wanted).reshape(-1)
    size = cell.dtype.itemsize
    if tolerance is None:
        rows = (ours.reshape(-1, size) != wanted.reshape(-1, size)).any(axis=1)
    else:
        rows = apart(a, b, tolerance)
    first = int(np.flatnonzero(rows)[0])
    index = ", ".join(str(i) for i in np.unravel_index(first, cell.shape))
    return f"{cell.name}[{index}] is {a[first]} instead of {b[first]} ({int(rows.sum())} of {rows.size} elements differ)"


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
    visible: bool  # whether users can read it by name
    guard: int  # bytes of the guard zones before and after it
    given: bool = False  # whether it is memory that an array parameter is given

    def values(self, data: Bytes) -> np.ndarray[Any, Any]:
        """Return bytes of this cell as an array."""
        return data.view(self.dtype).reshape(self.shape)

    def inside(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array's part of a block that includes guards."""
        return data[self.guard : self.guard + self.nbytes] if self.guard else data

    def meets(self, region: Region) -> bool:
        """Whether a region of addresses may share bytes with the array."""
        return region.start < self.pointer + self.nbytes and region.stop > self.pointer

    @property
    def parts(self) -> dict[str, slice]:
        """Slices of a block with guards: the array is ``"inside"``, the guards, if any, are ``"before"`` and ``"behind"`` it."""
        first, stop = self.guard, self.guard + self.nbytes
        guards = {"before": slice(0, first), "behind": slice(stop, stop + self.guard)} if self.guard else {}
        return {"inside": slice(first, stop), **guards}


class Laboratory:
    """Runs a workflow's steps one at a time, in any order; the constructor runs them in serial order for `reference`."""

    def __init__(self, workflow: Workflow, runtime: Runtime, device: int, params: Mapping[str, Any]) -> None:
        self.workflow = workflow
        self.runtime = runtime
        self.executable = Executable.build(workflow, runtime, "serial", options=AS_DECLARED, device=device, guard=_GUARD_BYTES)
        self.steps = self.executable.plan.steps
        """The plan's steps, children inlined."""
        self.poison = POISONS[0]
        self.cells: dict[str, Cell] = {}
        self.fresh: dict[str, Cell] = {}
        """Memory that alloc steps have allocated in the current run."""
        try:
            program = self.executable.prepared(**params)
            assert isinstance(program, SerialProgram)
            self.program: SerialProgram = program
            self._look(program.scope, params)
            self._start = {name: self.get(cell, guards=True) for name, cell in self.cells.items()}
            """Values of all memory before a run, including guards, which are zeros."""
            self.reference = self.run()
            """Values of all memory after the serial run."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free everything."""
        try:
            self.end()
        finally:
            self.executable.close()

    @property
    def start(self) -> State:
        """Values before a run of all memory that outlives it."""
        return {name: self.cells[name].inside(data) for name, data in self._start.items()}

    def _look(self, top: Environment, params: Mapping[str, Any]) -> None:
        """Record the addresses of all memory."""
        for scope, level in top.levels(self.workflow):
            for name, array in level.own_arrays():
                if not isinstance(array, AllocArray):
                    guard = 0 if isinstance(array, ExternalArray) else _GUARD_BYTES
                    self.cells[name] = _cell(name, array, scope.addresses[array], guard, visible=True)
            for name, parameter in level.own_parameters():
                if parameter.copy:
                    self.cells[f"parameter {name}"] = _cell(name, parameter, scope.addresses[parameter], _GUARD_BYTES)
                elif (memory := given_memory(name, parameter, params)) is not None:
                    self.cells[f"parameter {name}"] = replace(_cell(name, memory, memory.pointer, 0), given=True)
        for name, (root, pointer) in variables(self.workflow, top.shared).items():
            self.cells[name] = replace(_cell(name, root, pointer, 0), writeable=True)

    # -- memory --

    def get(self, cell: Cell, *, guards: bool = False) -> Bytes:
        """Return a copy of a cell's bytes, optionally with its guards."""
        guard = cell.guard * guards
        return copied(self.runtime, cell.pointer - guard, cell.nbytes + 2 * guard, on_host=cell.on_host)

    def put(self, cell: Cell, data: Bytes, *, guards: bool = False) -> None:
        """Set a cell's bytes, optionally with its guards."""
        overwrite(self.runtime, cell.pointer - cell.guard * guards, data, on_host=cell.on_host)

    def state(self) -> State:
        """Return the values of all memory that outlives a run."""
        return {name: self.get(cell) for name, cell in self.cells.items()}

    # -- running --

    def run(self, order: Sequence[int] | None = None) -> State:
        """Run all steps in an order, from the start values; return the resulting memory."""
        self.begin()
        for index in range(len(self.steps)) if order is None else order:
            self.do(self.program, self.steps[index])
        self.end()
        return self.state()

    def begin(self) -> None:
        """Reset all writeable memory to the start values, and forget graph memory."""
        for name, data in self._start.items():
            cell = self.cells[name]
            if cell.writeable:
                self.put(cell, data, guards=True)
        self.fresh.clear()
        for step in self.steps:
            if step.node.made is not None:
                self.program.scope_of(step).addresses.pop(step.node.made, None)

    def end(self) -> None:
        """Free the graph memory that no free step has freed."""
        left, self.fresh = self.fresh, {}
        for cell in left.values():
            self._free(cell)

    def do(self, program: SerialProgram, step: Step) -> None:
        """Run one step of a program and wait; raise HipGraphError if it fails."""
        node = step.node
        scope = program.scope_of(step)
        name = program.full_name(step)
        prefix = name[: len(name) - len(node.name)]
        if node.made is not None:
            array = prefix + node.made.name
            if program is not self.program and array in self.fresh:  # free what the previous loop pass has left allocated
                self._free(self.fresh.pop(array))
            self._alloc(array, node.made, step, scope)
        elif node.freed is not None:
            array = prefix + node.freed.name
            cell = self.fresh.pop(array, None)
            if cell is None:
                raise DeclarationError(f"{name!r} frees {array!r}, which is not allocated then", node=name, array=array)
            # The memory may be allocated again: overwrite it, so that later reads of it do not look right.
            self.put(cell, np.full(cell.nbytes, self.poison, np.uint8))
            del scope.addresses[node.freed]
            self._free(cell)
        else:
            try:
                finished = issued(self.executable, program, step)
            except HipError as error:
                self.executable.synchronize()  # raises the error of a callback, if there is one
                raise (error if error.node else error.of(name)) from error.__cause__
            if not finished:
                raise HipGraphError(f"{name!r} alone has not finished after {WAIT_S:g} s")
            self.executable.synchronize()

    def _alloc(self, name: str, array: AllocArray, step: Step, scope: Environment) -> None:
        """Execute an alloc step, with guards around its memory."""
        if name in self.fresh:
            raise DeclarationError(f"{step.name!r} allocates {name!r} a second time", node=step.name, array=name)
        with self.runtime.using_device(scope.place_of(step)):
            block = self.runtime.malloc(array.nbytes + 2 * _GUARD_BYTES)
        scope.addresses[array] = block + _GUARD_BYTES
        cell = self.fresh[name] = _cell(name, array, block + _GUARD_BYTES, _GUARD_BYTES)
        values = np.zeros(array.nbytes + 2 * _GUARD_BYTES, np.uint8)
        cell.inside(values)[...] = self.poison
        self.put(cell, values, guards=True)

    def _free(self, cell: Cell) -> None:
        self.runtime.free(cell.pointer - cell.guard)

    def walk(self, program: SerialProgram) -> Iterator[tuple[SerialProgram, Step]]:
        """Yield the steps of a program in order, and in place of a conditional step those of the bodies that it selects.

        The caller must run each step before it requests the next one, because conditions depend on it.
        """
        for step in program.plan.steps:
            if step.bodies:
                with self.runtime.using_device(self.executable.device):
                    stream = program.stream_of(step, self.executable.stream)
                for body in program.bodies(step, stream):
                    assert isinstance(body, SerialProgram)
                    yield from self.walk(body)
            else:
                yield program, step

    # -- what a step declares --

    def reached(self, program: SerialProgram, step: Step) -> list[tuple[Mode, Region]]:
        """Return the mode and address region of each access of a step."""
        scope = program.scope_of(step)
        device = scope.device_of(step.node)
        return [
            (access.mode, addressed(access, scope, device))
            for access in step.node.accesses
            if not getattr(access.view.root, "hidden", False)
        ]


def copied(runtime: Runtime, pointer: int, nbytes: int, *, on_host: bool) -> Bytes:
    """Return a copy of bytes of memory."""
    if on_host:
        return bytes_at(pointer, nbytes).copy()
    data = np.empty(nbytes, np.uint8)
    runtime.memcpy(data.ctypes.data, pointer, nbytes, MemcpyKind.DEVICE_TO_HOST)
    return data


def overwrite(runtime: Runtime, pointer: int, data: Bytes, *, on_host: bool) -> None:
    """Set bytes of memory."""
    if on_host:
        bytes_at(pointer, data.size)[...] = data
    else:
        runtime.memcpy(pointer, np.ascontiguousarray(data).ctypes.data, data.size, MemcpyKind.HOST_TO_DEVICE)


def given_memory(name: str, parameter: Parameter, params: Mapping[str, Any]) -> ExternalArray | None:
    """Return the memory that an array parameter uses in place; None if it copies values or stands for an array of the graph."""
    value = params.get(name, parameter.default)
    if not parameter.shape or parameter.copy or value is None or isinstance(value, str):
        return None
    if isinstance(value, Viewable):
        return value if isinstance(value, ExternalArray) else None
    return ExternalArray.wrap(name, value, what="parameter")


def variables(workflow: Workflow, shared: SharedHandles) -> dict[str, tuple[Symbol, int]]:
    """Return the variables of modules that nodes access, by name, each with its address in the copy that was loaded."""
    roots = {access.view.root for _, node in workflow.walk() for access in node.accesses}
    return {
        f"{root.module.name}:{root.name}" + f" on device {device}" * (copy > 0): (root, shared.symbol(root, device))
        for root in roots
        if isinstance(root, Symbol) and not root.hidden
        for copy, device in enumerate(shared.devices)
    }


def issued(executable: Executable, program: SerialProgram, step: Step) -> bool:
    """Run one step on a stream of its device; return whether it has finished in time."""
    with executable.runtime.using_device(executable.device):
        stream = program.stream_of(step, executable.stream)
        with suppress(Stopped):  # the caller synchronizes, which raises the callback's error
            program.issue(step, stream)
        return executable.runtime.stream_wait(stream, WAIT_S)


def addressed(access: Access, scope: Environment, device: int | None) -> Region:
    """Return the region of addresses that an access covers."""
    return access.bytes.shifted(scope.address(access.view.root.as_view(), device))


def _cell(name: str, array: Array | Parameter, pointer: int, guard: int, visible: bool = False) -> Cell:
    writeable = bool(getattr(array, "writeable", True))
    return Cell(name, pointer, array.nbytes, array.shape, array.dtype, array.on_host, writeable, visible, guard)
