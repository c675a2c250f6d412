"""Program: a lowered plan that can be launched, changed and closed."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, ClassVar

from ..errors import HipError, listed
from ..plan.steps import Plan, Step
from .callbacks import NO_CALL
from .environment import Environment
from .marks import Fault, Marks
from .operations import Alloc, CallHost, Copy, Copy1D, Fill, Free, Launch, Nothing, Operation, RunChild, equal
from .resolve import resolve

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..plan.merged import MergedLaunch

_AUTO_FREE_ON_LAUNCH = 1
_INVALID_VALUE = 1  # hipErrorInvalidValue
_UPDATE_FAILURE = 910  # hipErrorGraphExecUpdateFailure


class Naming:
    """Context that adds a node's name to a HipError raised inside."""

    __slots__ = ("_node",)

    def __init__(self, node: str) -> None:
        self._node = node

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, HipError):
            raise error.at(self._node) from error.__cause__


def blamed(error: HipError, program: Program) -> HipError:
    """Return the error of a launch of a program with the node at fault, if it names none and the runtime can tell."""
    fault = program.failed()  # also if it does: a later error must not name this node
    return error if error.node is not None or fault is None else blamed_on(fault, error, program)


def blamed_on(fault: Fault, error: HipError, program: Program) -> HipError:
    """Return an error with what is known of the failure: the node at fault, or what kept the program from running."""
    names = fault.names
    if not names:
        what = f"graph {program.scope.shared.graph!r} did not run to its end, because {fault.cause} failed before it"
        hint = f"{what} on its stream, or on one that it waits for"
        return error.hinted(f"{error.hint}; {hint}" if error.hint else hint)
    if len(names) == 1:
        return error.of(names[0], f"it launched {fault.cause}, which failed") if fault.cause else error.of(names[0])
    hint = f"it is {names[0]!r} or one of the nodes that share its launch: {listed(names[1:], 20)}"
    return error.of(names[0], f"{error.hint}; {hint}" if error.hint else hint)


class Program(ABC):
    """A plan lowered by a backend."""

    def __init__(
        self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), *, marks: Marks | None = None
    ) -> None:
        self.plan = plan
        """The plan that it runs; `follow` replaces it by one with the same steps and other nodes."""
        self.scope = scope
        self.runtime = scope.runtime
        self.disabled = disabled
        """Disabled steps, which only keep the order."""
        self.marks = marks or Marks(plan, scope)
        self.operations: list[Operation] = []
        """Current operation of each step."""
        self.outdated: set[int] = set()
        """Steps that the compiled call path has changed since; `operation` resolves them again."""

    in_turn: ClassVar[bool] = True
    """Whether the runtime serialises launches on different streams, as it does for launches of one graph."""

    handle: int = 0
    """hipGraphExec_t; 0 for a program that is not a single graph."""

    @property
    def handles(self) -> tuple[int, ...]:
        """The graphs that a launch launches, in order, without the bodies of conditional nodes that the host decides."""
        return (self.handle,) if self.handle else ()

    def follow(self, plan: Plan, disabled: frozenset[int]) -> None:
        """Replace plan and disabled steps; the plan has the same shape, and the operations of its other nodes are set already."""
        self.plan, self.disabled, self.marks.plan = plan, disabled, plan

    streams: tuple[int, ...] = ()
    """Streams of its own that a launch enqueues work on, besides the one that it is launched on."""

    def all_streams(self) -> tuple[int, ...]:
        """Return the same, and those of the bodies of conditional nodes."""
        return self.streams

    @abstractmethod
    def launch(self, stream: int) -> None:
        """Enqueue one run of the plan on a stream."""

    def entry(self) -> tuple[int, int] | None:
        """Return what `Launcher.bind` takes to launch the program: the addresses of a function and of its argument.

        Return None if compiled code cannot launch it. The addresses are valid until any other method is called.
        """
        return None

    def entry_failed(self, code: int, stream: int) -> None:
        """Raise the error for a code that a launch by compiled code has returned."""
        self.runtime.call_failed("hipGraphLaunch", code)

    @abstractmethod
    def change(self, index: int, operation: Operation) -> bool:
        """Replace the operation of a step from the next launch on; return False if the program must be rebuilt for that."""

    @abstractmethod
    def enable(self, index: int, enabled: bool) -> bool:
        """Enable or disable a step; return False if the program must be rebuilt for that."""

    def complete(self) -> None:  # noqa: B027  # a no-op for most programs
        """Make the calls that changes of several steps share; the caller does so after the last change."""

    def unfinished(self) -> tuple[str, ...]:
        """Return the names of nodes that a running launch has not finished, where the runtime can tell."""
        return self.marks.unfinished(self.runtime, self.disabled)

    def failed(self) -> Fault | None:
        """Return what failed a launch, or kept it from running, once; None where nothing did or the runtime cannot tell."""
        return self.marks.failed(self.runtime, self.disabled)

    def abort(self) -> bool:
        """Stop launches in flight from starting further nodes, where the platform can; return whether anything was stopped."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Release every handle; the device must have finished."""

    def scope_of(self, step: Step) -> Environment:
        """Return the scope that a step's names belong to."""
        return self.scope.inside(step.path) if step.path else self.scope

    def place_of(self, step: Step) -> int:
        """Return the device that a step runs on."""
        shared = self.scope.shared
        return shared.device if len(shared.devices) == 1 else self.scope_of(step).place_of(step)

    def on_device_of(self, index: int) -> AbstractContextManager[None]:
        """Return a context in which the device of a step is current; a no-op with a single device."""
        shared = self.scope.shared
        return shared.on(self.place_of(self.plan.step(index))) if len(shared.devices) > 1 else nullcontext()

    def resolve(self, step: Step) -> Operation:
        """Return the operation of an enabled step, with its names resolved to their current addresses and values."""
        return resolve(step, self.scope.inside(step.path) if step.path else self.scope, self.place_of(step))

    def graph_of(self, index: int) -> tuple[GraphProgram | None, int]:
        """Return the program whose graph holds a step, and its index there; None for a step that no graph holds."""
        return None, index

    def operation(self, index: int) -> Operation:
        """Return the current operation of a step; resolve it again if it is outdated."""
        if index in self.outdated:
            self.operations[index] = self.resolve(self.plan.step(index))
            self.outdated.discard(index)
        return self.operations[index]

    def refresh(self) -> bool:
        """Resolve all enabled steps again, after their names have been rebound; return False if the program must be rebuilt."""
        refreshed = all(self._refresh(step) for step in self.plan.steps if step.index not in self.disabled)
        self.complete()
        return refreshed

    def naming(self, step: Step) -> Naming:
        """Return a context that puts the name of a step's node, with its path, into a HipError."""
        return Naming(self.full_name(step))

    def named(self, error: HipError, step: Step) -> HipError:
        """Return the error of a call for a step with its node's name, and what is known of the reason."""
        why = self._page_locked_in_part(step) if error.code == _INVALID_VALUE and step.node.copied else None
        return error.at(self.full_name(step), why)

    def _page_locked_in_part(self, step: Step) -> str | None:
        """Return a hint if a step copies from or to host memory of which a part is page-locked: CUDA refuses such copies."""
        scope, range_of = self.scope_of(step), self.runtime.mem_get_address_range
        for view in itertools.chain(*step.node.copied):
            if view.root.on_host:
                first = scope.address(view)
                ends = [range_of(first), range_of(first + view.region.stop - view.region.start - 1)]
                if ends[0] != ends[1] and any(end is not None and end.on_host for end in ends):
                    return (
                        f"only a part of the memory of array {scope.prefix + view.root.name!r} is page-locked, and no copy"
                        " reaches across the end of that part; page-lock all of it or none"
                    )
        return None

    def full_name(self, step: Step) -> str:
        """Return the name of a step's node with its path, inside bodies too."""
        return self.scope.prefix + step.name

    def _refresh(self, step: Step) -> bool:
        with self.naming(step):
            operation = self.resolve(step)
        return equal(self.operations[step.index], operation) or self.change(step.index, operation)

    def refreshed(self) -> Program:
        """Return the program with up-to-date `operations`."""
        for index in sorted(self.outdated):
            self.operation(index)
        return self


class GraphProgram(Program):
    """An instantiated graph, however it was built."""

    def __init__(
        self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), *, marks: Marks | None = None
    ) -> None:
        super().__init__(plan, scope, disabled, marks=marks)
        self.graph = 0
        """hipGraph_t that was instantiated."""
        self.nodes: list[int] = []
        """hipGraphNode_t of each step; 0 where the backend does not know it. The steps of a batch share one."""
        self.batches: dict[int, MergedLaunch] = {}
        """The batch of each step that is in one."""
        self._apart: frozenset[int] = frozenset()
        """Steps of the plan's batches that cannot share a node now, so that each has its own."""
        self.programmatic: frozenset[int] = frozenset()
        """Steps to which programmatic edges lead."""
        self._idle: dict[int, Operation] = {}
        """Steps that have nothing to do now, whose nodes are disabled for that; with the operations that the nodes hold."""

    @classmethod
    def build(cls, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset()) -> Self:
        """Build a graph of all steps and instantiate it; release everything on failure."""
        program = cls(plan, scope, disabled)
        try:
            program.fill()
            program.instantiate()
        except BaseException:
            program.close()
            raise
        return program

    def fill(self) -> None:
        """Create and fill `graph`; a no-op for a program whose steps are added to a graph that another one owns."""

    def merged(self, step: Step) -> MergedLaunch | None:
        """Resolve the members of the merged launch that a step begins; None if they do not fit one launch now.

        The operations of all members are stored; without a launch none is, here and for the members after it.
        """
        if step.index in self._apart:
            return None
        batches, run = self.plan.batches, self.plan.runs[step.index]
        steps = self.plan.steps[run.start : run.stop]
        operations = [Nothing() if each.index in self.disabled else self.resolve(each) for each in steps]
        made = batches[step.batch].resolve(batches, steps, operations, self.scope.shared, self.place_of(step))
        if made is None:
            self._apart = self._apart.union(run)
        else:
            self.batches |= dict.fromkeys(run, made)
            self.operations += operations
        return made

    def deps_of(self, run: range) -> list[int]:
        """Return the steps that the members of a merged launch wait for."""
        return [d for i in run for d in self.plan.steps[i].deps if d not in run]

    def make_programmatic(self, graph: int) -> None:
        """Make edges of the graph that holds the steps programmatic, where the plan requests it and the added nodes allow it."""
        sources, targets, found = list[int](), list[int](), set[int]()
        steps = self.plan.steps
        for i in self.plan.programmatic:
            deps = set(self.deps_of(self.plan.runs[i]) if i in self.batches else steps[i].deps)
            if all(self._is_plain_launch(d) for d in (i, *deps)) and (i in self.batches or self._waits(self.operations[i])):
                nodes = dict.fromkeys(self.nodes[d] for d in deps)
                sources += nodes
                targets += [self.nodes[i]] * len(nodes)
                found.add(i)
        if found and self.runtime.graph_make_programmatic(graph, sources, targets):
            self.programmatic = frozenset(found)

    def _is_plain_launch(self, index: int) -> bool:
        operation = self.operations[index]
        plain = index in self.batches or (isinstance(operation, Launch) and not operation.attributes)
        return plain and self.nodes[index] != 0

    def _waits(self, operation: Operation) -> bool:
        return isinstance(operation, Launch) and operation.function in self.scope.shared.waiting

    def instantiate(self) -> None:
        """Instantiate `graph`; if it leaves allocations unfreed, the next launch frees them."""
        flags = _AUTO_FREE_ON_LAUNCH if self.plan.has_allocs and self._leaves_memory() else 0
        self.handle = self.runtime.graph_instantiate(self.graph, flags)

    def _leaves_memory(self) -> bool:
        """Return whether a launch allocates memory that it does not free."""
        made = {operation.addresses[operation.array] for operation in self.operations if isinstance(operation, Alloc)}
        return not made <= {operation.pointer for operation in self.operations if isinstance(operation, Free)}

    def launch(self, stream: int) -> None:
        self.runtime.graph_launch(self.handle, stream)

    def graph_of(self, index: int) -> tuple[GraphProgram | None, int]:
        return self, index

    def change(self, index: int, operation: Operation) -> bool:
        node, before = self.nodes[index], self.operations[index]
        batch = self.batches.get(index)
        if batch is not None:
            launch = operation if isinstance(operation, Launch) else None
            if launch is not None and not batch.takes(index, launch):
                return False
            batch.put(index, launch)
            self.operations[index] = operation
            return True
        if index in self._idle or isinstance(operation, Nothing):
            return self._change_idle(index, operation)
        if not node or type(operation) is not type(before) or (index in self.programmatic and not self._waits(operation)):
            return False
        try:
            with self.on_device_of(index):
                if isinstance(operation, RunChild):
                    changed = self.change_child(node, operation)
                else:
                    changed = operation.set(self.runtime, self.handle, node, before)
        except HipError as error:
            fixed = error.code == _INVALID_VALUE and "fixed_memory_devices" in self.runtime.target.quirks
            other = error.code == _UPDATE_FAILURE and isinstance(operation, RunChild)  # a node of the child does nothing now
            if not fixed and not other:
                raise self.named(error, self.plan.step(index)) from error.__cause__
            changed = False  # a new graph either holds it or fails for the same reason
        if changed:
            self.operations[index] = operation
        return changed

    def _change_idle(self, index: int, operation: Operation) -> bool:
        """Let a step do nothing from the next launch on, or something again, by disabling its node; False where that fails."""
        node, held = self.nodes[index], self._idle.get(index, self.operations[index])
        busy = not isinstance(operation, Nothing)
        if not busy:
            if index not in self._idle:
                if not node or not self._can_disable(held):
                    return False
                with self.naming(self.plan.step(index)):
                    self.runtime.graph_node_set_enabled(self.handle, node, busy)
                self._idle[index] = held
        else:
            self.operations[index] = held
            if type(operation) is not type(held):
                return False
            del self._idle[index]
            # Compiled code may have set a launch since it was noted here.
            if (isinstance(operation, Launch) or not equal(held, operation)) and not self.change(index, operation):
                return False
            if index not in self.disabled:
                with self.naming(self.plan.step(index)):
                    self.runtime.graph_node_set_enabled(self.handle, node, busy)
        self.operations[index] = operation
        return True

    def change_child(self, node: int, operation: RunChild) -> bool:
        """Update the child graph of a node; False where the backend cannot."""
        return False

    def enable(self, index: int, enabled: bool) -> bool:
        operation, node = self.operations[index], self.nodes[index]
        if index in self._idle:  # its node is disabled, until `change` gives it something to do
            self.disabled = self.disabled.difference((index,)) if enabled else self.disabled.union((index,))
            return True
        batch = self.batches.get(index)
        if batch is not None:
            launch = operation if enabled and isinstance(operation, Launch) else None
            if launch is not None and not batch.takes(index, launch):
                return False
            batch.put(index, launch)
            return True
        with self.naming(self.plan.step(index)):
            if isinstance(operation, CallHost) and node:
                fn, user_data = (operation.fn, operation.user_data) if enabled else NO_CALL
                self.runtime.graph_exec_host_node_set_params(self.handle, node, fn, user_data)
                return True
            if node and self._can_disable(operation):
                self.runtime.graph_node_set_enabled(self.handle, node, enabled)
                return True
        return False

    def complete(self) -> None:
        for batch in dict.fromkeys(self.batches.values()):
            if batch.changed:
                with self.naming(self.plan.step(batch.first)), self.on_device_of(batch.first):
                    batch.set(self.runtime, self.handle)

    def _can_disable(self, operation: Operation) -> bool:
        """Return whether the runtime can disable a node with this operation in an instantiated graph."""
        quirks = self.runtime.target.quirks
        if "disabled_drops_edges" in quirks:
            return False
        if isinstance(operation, Launch):
            return not operation.is_stand_in(self.runtime)
        return isinstance(operation, (Copy1D, Copy)) or (isinstance(operation, Fill) and "memset_enable_fails" not in quirks)

    def abort(self) -> bool:
        return self.runtime.graph_exec_abort(self.handle)

    def close(self) -> None:
        with ExitStack() as returned:  # release all of them, even if one call fails
            if self.graph:
                returned.callback(self.runtime.graph_destroy, self.graph)
            if self.handle:
                returned.callback(self.runtime.graph_exec_destroy, self.handle)
            self.handle = self.graph = 0
