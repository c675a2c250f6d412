"""The resources of one Executable: created, changed, launched and released together."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final

from ..arrays import Array, Parameter
from ..backends import Environment, Program, SharedHandles, backend_named
from ..backends.callbacks import HostCalls, Stopped
from ..backends.lent import memory_view
from ..backends.operations import CallHost, Operation, RunChild, equal
from ..backends.program import GraphProgram, blamed, blamed_on
from ..checks import require_sound
from ..errors import CallbackError, HipError, HipGraphError, WaitTimeout
from ..nodes import same
from ..nodes.workflow import Workflow
from ..runtimes.base import Runtime
from ..waiting import Deadline, require_room, unfinished_text
from .call_path import CallPath
from .devices import Home
from .in_flight import InFlight
from .memory import Block, Memory, Sharing
from .page_locking import page_lock
from .parameters import Parameters
from .scopes import fill, modules_of
from .state import Change, Name, Planned, State, put, within
from .stats import Stats
from .uses import Uses

if TYPE_CHECKING:
    from ..plan.temporaries import Packing
    from .changes import Changes
    from .elapsed import Switched

_log = logging.getLogger("hipgraphdsl")

UPDATES_BEFORE_AFRESH: Final = 4096
"""Node updates after which the graph is instantiated again if the runtime's updates leak (about 24 MiB at 6 KiB each)."""

_WITH_HOST_CALLS: Final = (CallHost, RunChild)
"""Operations that call host nodes' functions."""


class Recorded:
    """What keeps the resources of an Instance alive after its close: the graphs into which its launches were captured."""

    def __init__(self) -> None:
        self.calls: set[Any] = set()
        """The callbacks of launches that were recorded."""
        self.memory: set[int] = set()
        """The addresses of external memory that they use."""


class Instance:
    """The resources of one Executable, and the program that implements its state.

    A change applies the differences to the program and then makes the next state current. If it fails before it touches the
    program, state and program are unchanged. If it fails later, the state is unchanged but the program matches neither state: it
    is torn, and the next launch rebuilds it. Nothing here locks: the caller lets only one thread at a time change or launch.

    None of the objects that own the data refers to the Executable, and each refers only to those created before it.
    """

    def __init__(
        self,
        workflow: Workflow,
        runtime: Runtime,
        made: Planned,
        guard: int,
        call_path: Callable[[Home], CallPath],
        sharing: Sharing,
        *,
        sanitize: bool,
    ) -> None:
        plan, backend, options = made
        self.arena = sharing.arena
        """What the Executable shares with others, if anything."""
        self.stats = Stats(len(plan.nodes), plan.edges, len(plan.lanes))
        self.home = Home(runtime, plan.device, sanitize=sanitize)
        self.memory = Memory(workflow, self.home, guard, self.stats, sharing)
        self.parameters = Parameters(workflow.name, self.home, self.memory)
        self.compiled = call_path(self.home)
        self.hosts = HostCalls(runtime, self.parameters.lend, self.compiled.launcher)
        self.shared = SharedHandles(runtime, self.hosts, plan.device, plan.devices, sanitize=sanitize)
        self.shared.graph = workflow.name
        self.scope = Environment(self.shared)
        self.in_flight = InFlight(workflow.name, self.home, self.compiled, sharing.arena)
        self.state = State(workflow, plan, frozenset(), options, Uses(workflow, plan, self.scope))
        self.kept: Mapping[str, Any] = {}
        """Arguments of `Executable.build` besides the plan's options; see `options`."""
        self.program: Program | None = None
        """None until all required parameters have values, and after the release."""
        self.torn = False
        """Whether the program may differ from the state."""
        self.launch: Callable[[int], None] = _not_built
        """Enqueues one run on a stream."""
        self._cut: WaitTimeout | None = None
        """The error of a `close` that ended what is in flight and left the Executable open; None when a wait has told of it."""
        self._recorded: weakref.ref[Recorded] | None = None
        self._described: tuple[Workflow, Mapping[str, Any], Workflow] | None = None
        """The last result of `workflow`, after what it was made of."""
        self._build_program = backend_named(backend)
        self._runtime = runtime
        self._since = 0
        """Node updates since the last instantiation."""
        self._leaks = "update_leaks" in runtime.target.quirks

    @cached_property
    def changes(self) -> Changes:
        """Computes the changes that are asked for."""
        from .changes import Changes

        return Changes(self._runtime.target, self.scope)

    @cached_property
    def switched(self) -> Switched:
        """Which nodes were enabled or disabled."""
        from .elapsed import Switched

        return Switched()

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Executable.build` for a clone and for a rebuilt graph."""
        return {"options": self.state.options, **self.kept}

    def require_sound(self, workflow: Workflow, backend: str) -> None:
        """Raise CheckError if a workflow to rebuild has faults, unless it was compiled with ``check=False``."""
        if self.kept.get("check"):
            require_sound(workflow, self._runtime.target, self.home.device, backend)

    def open(self, report: Callable[[str], None]) -> None:
        """Create streams, load, allocate, lower and instantiate on the current device; `report` is called with each stage."""
        workflow, plan = self.state.workflow, self.state.plan
        self.home.require(plan.devices, workflow.name)
        if len(plan.devices) > 1:
            from .peers import grant_access

            self.shared.peers = grant_access(workflow, self.home)
        self.in_flight.open()
        times = [time.perf_counter()]
        modules = modules_of(workflow)
        if plan.watch is not None:
            from ..plan.watch import MODULE

            modules[MODULE] = (list(MODULE.kernels), [])
        self.shared.load(modules, report)
        times.append(time.perf_counter())
        report("allocate")
        fill(self.scope, workflow, self.memory, self.parameters)
        times.append(time.perf_counter())
        report("lower and instantiate")
        self.become(Change(self.state))
        times.append(time.perf_counter())
        loaded, allocated, built = map(float.__sub__, times[1:], times)
        _log.debug(
            "graph %r: %d modules loaded in %.3f s, memory allocated in %.3f s, graph built in %.3f s",
            workflow.name, len(modules), loaded, allocated, built,
        )  # fmt: skip

    def return_into(self, stack: ExitStack) -> None:
        """Register the release of everything with an exit stack, and release nothing yet; no launch may be in flight."""
        self.in_flight.return_into(stack)
        self.memory.return_into(stack)
        self.parameters.return_into(stack)
        self.shared.return_into(stack)
        stack.callback(self.hosts.close)
        if self.program is not None:
            stack.callback(self.program.close)
        stack.callback(self._forget_program)
        for scope in self.scope.all_inside():
            stack.callback(scope.children.clear)  # which refer to their parent

    def release(self, stack: ExitStack, recorded: Recorded | None) -> None:
        """Release what `return_into` has registered: now, or when nobody has what captures have recorded any more."""
        if recorded is None:
            stack.close()
        elif self._recorded is not None:
            what = f"graph {self.state.workflow.name!r}: what other graphs have captured"
            self.home.release_after(recorded, stack.close, what)
            self._recorded = None

    def _forget_program(self) -> None:
        self.program, self.launch = None, _not_built

    # -- launches that captures have recorded ----------------------------------------------------------------------------

    def record(self) -> Recorded:
        """Return what keeps everything alive that a launch now uses, for the owner of a capture that records it."""
        recorded = self.recorded or Recorded()
        self._recorded = weakref.ref(recorded)
        recorded.calls.update(self.hosts.current())
        recorded.memory.update(block.pointer for block in self.parameters.kept_blocks())
        return recorded

    @property
    def recorded(self) -> Recorded | None:
        """What `record` has returned, if somebody still has it."""
        return None if self._recorded is None else self._recorded()

    def stale(self) -> tuple[Any, ...]:
        """Return the replaced callbacks that can be forgotten when nothing is in flight."""
        replaced = tuple(self.hosts.replaced)
        recorded = self.recorded if replaced else None
        return replaced if recorded is None else tuple(call for call in replaced if call not in recorded.calls)

    def forget_replaced(self) -> None:
        """Release the memory that array parameters were previously bound to; no launch may be in flight."""
        recorded = self.recorded
        self.parameters.forget_replaced(() if recorded is None else recorded.memory)

    # -- changes -------------------------------------------------------------------------------------------------------

    def give(self, params: Mapping[str, Any], *, defaults: bool = False) -> None:
        """Set parameters to a launch's values, or an update's `defaults`, and build if needed; roll back on failure."""
        if self.arena is not None and self.memory.moves:
            self.torn = self.program is not None
        if not params and (defaults or (self.program is not None and not self.torn)):
            return
        parameters = self.parameters
        missing, standing = parameters.missing, parameters.standing
        try:
            values = parameters.checked(params, self.state.uses, all_given=not defaults)
            copied, changed, steps = dict[str, Any](), dict[str, Any](), dict[int, None]()
            names, arrays = list[Name](), list[str]()
            for name, value in values.items():
                if name in parameters.own:
                    copied[name] = value
                    continue
                if parameters.table[name][1].shape:
                    arrays.append(name)
                entry = table, key, _ = parameters.name(name, value)
                if not same(table.get(key), value):
                    changed[name] = value
                    names.append(entry)
                    by_compiled = self.compiled.steps_of(name)
                    steps.update(dict.fromkeys(filterfalse(by_compiled.__contains__, self._steps_of(name))))
            if copied:
                self._let_launches_end()  # they still read the memory that is overwritten below
            parameters.missing = missing - values.keys()
            self.become(Change(self.state, tuple(steps), tuple(names), changed), arrays)
        except BaseException:
            parameters.missing, parameters.standing = missing, standing
            if parameters.kept:
                parameters.keeps_replaced = True  # what was refused
                if not self.in_flight.any:
                    self.forget_replaced()
            raise
        if copied:
            parameters.copy(copied)
        if len(values) < len(params):
            parameters.lose(name for name in params if name in parameters.table and name not in values)
        if not defaults:
            parameters.chosen.update(params)

    def adopt(self, change: Change, workflow: Workflow) -> None:
        """Apply the change to another workflow, and take its defaults; if they are refused, change back."""
        before = self.state
        names = tuple((table, key, table.get(key)) for table, key, _ in change.names)
        self.become(change)
        try:
            self._take_defaults(workflow)
        except BaseException:
            self.become(Change(before, change.steps, names))
            raise

    def _take_defaults(self, workflow: Workflow) -> None:
        """Take the defaults of a workflow, and set parameters that no launch has given to them."""
        given: dict[str, Any] = {}
        changed: dict[str, Any] = {}
        arrays, defaults = self.state.workflow.arrays, self.state.defaults
        for name, new in workflow.parameters.items():
            old = self.state.workflow.parameters.get(name)
            if old is None or (old.dtype, old.shape, old.copy) != (new.dtype, new.shape, new.copy):
                continue
            default = arrays.get(new.default.name, new.default) if isinstance(new.default, Array) else new.default
            if not same(default, defaults.get(name, old.default)):
                changed[name] = default
            if default is not None and name not in self.parameters.chosen:
                given[name] = default
        self.give(given, defaults=True)
        if changed:
            self.state = self.state._replace(defaults={**defaults, **changed})

    def take_over(self, other: Instance, *, same_graph: bool) -> None:
        """Copy the parameter values and the disabled nodes of another instance where names match.

        With `same_graph` both were built from one workflow, and defaults that updates of the other have changed hold here too.
        """
        given = other.parameters.as_given_to(self.parameters, defaults=same_graph)
        self.give(given, defaults=True)
        self.parameters.chosen |= other.parameters.chosen & given.keys()
        state, off = self.state, other.state.names_off
        children = [step.name for step in state.plan.steps if step.child is not None]
        if any(name != child and within(name, child) for name in off for child in children):
            inlined = replace(state.options, inline=True)  # gives each node inside a child its own step
            state = state.replanned(self._runtime.target, inlined)
        state = state.without(off)
        if same_graph:
            state = state._replace(defaults=other.state.defaults)
        self.become(Change(state, tuple(sorted(state.disabled.union(state.steps_since(self.state))))))

    @property
    def workflow(self) -> Workflow:
        """The workflow with all changes since it was compiled; `state.workflow` has the parameters of then, by identity."""
        state, known = self.state, self._described
        if not state.defaults:
            return state.workflow
        if known is None or known[0] is not state.workflow or known[1] is not state.defaults:
            from .changes import with_defaults

            known = self._described = state.workflow, state.defaults, with_defaults(state.workflow, state.defaults)
        return known[2]

    def become(self, change: Change, arrays: Collection[str] = ()) -> None:
        """Apply a change to the program and make its state current; on failure the state is unchanged.

        `arrays` are the array parameters that may be bound to other memory.
        """
        state, parameters = change.state, self.parameters
        afresh = state.replans != self.state.replans
        if state is not self.state:
            self.compiled.invalidate()
        before = [(table, key, table.get(key)) for table, key, _ in change.names] if change.names else []
        try:
            if before:
                put(change.names)
            for kernel in change.kernels:
                self.shared.load({kernel.module: ([kernel.name], list(kernel.module.symbols))})
            first_use = self.program is None or state.uses is not self.state.uses
            given = dict.fromkeys((*arrays, *parameters.given())) if first_use else arrays
            if first_use or arrays:
                parameters.require_usable(parameters.table if first_use else arrays, state.uses)
            if given:
                parameters.require_safe(given, state.uses)
            if given or first_use:
                page_lock(state.uses, self.memory, parameters, self.home)
            waits = bool(parameters.missing and parameters.required(state.uses))
            if waits:
                self.torn = self.program is not None  # the launch that gives the missing values builds
            elif self.program is None or self.torn or afresh or not self._apply(change):
                self._build(state)
        except BaseException:
            put(before)
            self.hosts.undo()
            self.compiled.invalidate()  # the values that it has set are not valid any more
            raise
        self.hosts.keep()
        if self.hosts.replaced and not self.in_flight.any:
            self.hosts.forget(self.stale())
        if state.disabled or self.state.disabled:
            self.switched.note(self.state.names_off, state.names_off, self.counted().launches)
        self.state = state
        if self.program is not None and not waits:
            self.program.follow(state.plan, state.disabled)
        if afresh:
            stats, plan = self.stats, state.plan
            stats.nodes, stats.edges, stats.lanes = len(plan.nodes), plan.edges, len(plan.lanes)
        self.torn = waits and self.program is not None

    def _apply(self, change: Change) -> bool:
        """Update the program in place, torn until the caller updates the state; return False if it must be rebuilt."""
        program, state, before = self.program, change.state, self.state.disabled
        assert program is not None
        plan, off = state.plan, state.disabled
        made: list[tuple[int, Operation | None]] = []
        for i in change.steps:  # resolve all before setting any
            made.append((i, None if i in off else program.resolve(plan.step(i))))
        for i in self._left_by_compiled(change.values) if change.values and self.compiled.bound else ():
            made.append((i, program.resolve(plan.step(i))))
        self.torn = True
        for i, operation in made:
            if (i in off) != (i in before):
                if isinstance(program.operation(i), _WITH_HOST_CALLS):
                    self._let_host_calls_finish()
                if not program.enable(i, operation is not None):
                    return False
            if operation is not None and not self._set(i, operation):
                return False
        program.complete()
        return True

    def _set(self, index: int, operation: Operation) -> bool:
        """Update a step in place; return False if the program must be rebuilt instead."""
        program = self.program
        assert program is not None
        if index not in program.outdated and equal(program.operations[index], operation):
            return True
        if self._leaks and self._since >= UPDATES_BEFORE_AFRESH:
            return False
        if isinstance(operation, _WITH_HOST_CALLS):
            self._let_host_calls_finish()
        if not program.change(index, operation):
            return False
        program.outdated.discard(index)
        self.compiled.note_step(index, operation)
        self.stats.updates += 1
        self._since += 1
        return True

    def _let_host_calls_finish(self) -> None:
        """Wait for launches in flight if the platform would make them call a host node's new function."""
        if "host_update_in_flight" in self._runtime.target.quirks:
            self._let_launches_end()

    def _let_launches_end(self) -> None:
        """Wait for launches in flight before a change that they must not see, no longer than the launch that asks for it may."""
        deadline = self.shared.deadline
        try:
            self.wait(None if deadline is None else deadline.left())
        except WaitTimeout as error:
            raise WaitTimeout(
                f"the launch of graph {self.state.workflow.name!r} has not begun: its new values wait for earlier launches to"
                f" end{unfinished_text(error.unfinished)}",
                error.unfinished,
            ) from None

    def counted(self) -> Stats:
        """Return the counts, including those of the compiled call path."""
        launches, updates = self.compiled.counts()
        self.stats.launches += launches
        self.stats.updates += updates
        return self.stats

    # -- building ------------------------------------------------------------------------------------------------------

    def _build(self, state: State) -> None:
        """Build and instantiate a program on the current device; release the previous one only after that has succeeded."""
        started = time.perf_counter()
        plan, scope, before = state.plan, self.scope, self.program
        if before is not None:
            self._let_launches_end()
        restore = scope.snapshot() if before is not None else None
        if plan.watch is not None:
            words = self.memory.words(plan.watch.words)
            for inner in scope.all_inside():
                inner.addresses[plan.watch.words] = words
        blocks = {} if plan.packing is None else self.memory.make_packed(plan.packing)
        try:
            if plan.packing is not None:
                self._place_packed(plan.packing, blocks)
            program = self._build_program(plan, scope, state.disabled)
        except BaseException:
            if restore is not None:
                restore()  # the previous program stays, and its memory is at these addresses
            self.memory.drop_packed(blocks)
            raise
        self.program, self.torn, self._since = program, True, 0
        self.stats.instantiations += 1
        self.stats.build_us = (time.perf_counter() - started) * 1e6
        # A graph may be launched on a stream of any device; an event belongs to the device of the stream that records it.
        anywhere = isinstance(program, GraphProgram) and "other_device_crash" not in self._runtime.target.quirks
        in_turn = program.in_turn and "launches_overlap" not in self._runtime.target.quirks
        here = program.launch if in_turn else partial(self.in_flight.in_turn, program.launch)
        here = here if anywhere or not self.home.several else partial(self.in_flight.on_home, here)
        self.launch = here if self.arena is None else partial(self.arena.launch, self, here)
        self.compiled.bind(program, self.in_flight.stream)
        if self.arena is not None:
            self.arena.note_bound(self)
        with ExitStack() as returned:  # calls all, even if one fails
            if blocks or before is not None:
                returned.callback(self.memory.use_packed, blocks)
            if before is not None:
                returned.callback(self.forget_replaced)  # nothing is in flight
                returned.callback(before.close)
        if self.arena is not None:
            self.arena.move_others(self)

    def leave_area(self) -> None:
        """Give back memory of the arena that is not the newest; the next launch builds again, the next wait tells of failures."""
        if self.memory.moves:
            try:
                self.in_flight.wait(None, self.unfinished)
            except HipError as error:
                self.in_flight.keep_failed(error)
            self.torn = self.program is not None
            self.memory.leave()

    def _place_packed(self, packing: Packing, blocks: Mapping[int, Block]) -> None:
        for packed in packing.arrays:
            scope = self.scope.inside(packed.path)
            scope.addresses[packed.array] = blocks[packed.device].pointer + packed.offset

    # -- running -------------------------------------------------------------------------------------------------------

    def wait_for_room(self, stream: int, deadline: Deadline | None) -> None:
        """Wait until the streams of a launch take more work; Ctrl-C and the deadline end the wait."""
        streams = () if self.program is None else self.program.streams
        if not self._runtime.wait_for_room(stream, streams, 0):
            said = f"the launch of graph {self.state.workflow.name!r} has not begun"
            require_room(partial(self._runtime.wait_for_room, stream, streams), deadline, said)

    def launch_failed(self, error: BaseException, stream: int) -> None:
        """Wait for what a launch has enqueued, and raise its error; return if a callback has ended it."""
        if isinstance(error, Stopped):
            return
        if not isinstance(error, (CallbackError, HipError)):
            raise error
        if isinstance(error, CallbackError) or self.state.plan.cut is not None:
            self.in_flight.drain(stream)  # an eager function may have raised either
        told = self.told(error) if isinstance(error, HipError) else error
        raise told from told.__cause__

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is in flight; an error names the nodes that have not finished, or the one that failed."""
        try:
            self.in_flight.wait(timeout_s, self.unfinished)
        except HipError as error:
            told = self.told(error)
            if self.program is not None:
                self.in_flight.drop_failures(self.program.all_streams())
            raise told from told.__cause__
        self._cut = None
        if self.in_flight.was_shared() and self._runtime.knows_failures() and self.program is not None:
            self._raise_untold(self.program)
        if self.hosts.failures and self.program is not None:
            self.program.failed()  # whoever waited for the callback has taken its error: a later one must not name its node

    def _raise_untold(self, program: Program) -> None:
        """Raise the error of a failure on a stream of others, whom the runtime has told of it."""
        fault = program.failed()
        if fault is not None:
            try:
                self._runtime.call_failed("hipStreamSynchronize", fault.code)
            except HipError as error:
                found = blamed_on(fault, error, program)
                found.graph = self.state.workflow.name
                raise found from None

    def told(self, error: HipError) -> HipGraphError:
        """Return the error of a launch for one of the runtime, with the node at fault, if the runtime can tell.

        It is that of the callback, or of the `close`, that ended the launch, if one did.
        """
        blamed = self.blamed(error)
        cut, self._cut = self._cut, None
        taken = self.hosts.taken
        if taken is not None and blamed.node in (None, taken.node):  # another thread has been told
            return taken
        if blamed.node is None and cut is not None:
            said = f"close has ended what graph {self.state.workflow.name!r} had in flight, and the Executable is still open"
            ended = WaitTimeout(said + unfinished_text(cut.unfinished), cut.unfinished)
            ended.__cause__ = error
            return ended
        blamed.__cause__ = error.__cause__
        return blamed

    def blamed(self, error: HipError) -> HipError:
        """Return the error of a launch with the node at fault, if the runtime can tell."""
        found = error if self.program is None else blamed(error, self.program)
        found.graph = self.state.workflow.name
        return found

    def wait_to_close(self, timeout_s: float | None, warning_s: float, abort_s: float) -> WaitTimeout | None:
        """Wait until nothing runs, or abort the work; return the WaitTimeout if it was aborted, raise it if the work goes on.

        Without a time limit, a warning is logged after each `warning_s`; aborted work may take `abort_s` to end.
        """
        began, cut = time.monotonic(), self._cut
        self._cut = None
        while True:
            slice_s = warning_s if timeout_s is None else timeout_s
            try:
                self.wait(slice_s)
                return None
            except WaitTimeout as error:
                if timeout_s is None:
                    waited, said = time.monotonic() - began, unfinished_text(error.unfinished)
                    _log.warning(
                        "graph %r: close() has waited %.0f s for what it launched%s", self.state.workflow.name, waited, said
                    )
                    continue
                if self.program is not None and self.program.abort():
                    with suppress(WaitTimeout, HipError):  # the error only says that the work was aborted
                        self.wait(abort_s)
                    if not self.in_flight.any:
                        return WaitTimeout(f"{error}; it was ended, and everything has been returned", error.unfinished)
                    self._cut = error
                raise WaitTimeout(
                    f"{error}; the Executable is still open, with {self.stats.device_bytes} bytes of device memory and"
                    f" {self.stats.host_bytes} of host memory: let the work end and close it again",
                    error.unfinished,
                ) from None
            except HipError as error:  # a failed launch has finished; only synchronize raises its error
                if cut is None:  # else an earlier `close` has ended it, and said so
                    _log.warning("graph %r: nobody has waited for a launch that failed: %s", self.state.workflow.name, error)
                self.in_flight.forget()
                return None

    def rest(self, changing: threading.RLock) -> None:
        """Clean up after a wait, unless another thread is changing something.

        Release the memory that array parameters were previously bound to, and let compiled code wait from now on if only the own
        stream has to be waited for.
        """
        if self.compiled.can_wait and not self.parameters.keeps_replaced and self.hosts.taken is None:
            return
        held: list[bool] = []
        try:
            held += map(changing.acquire, (False,))  # atomic: Ctrl-C cannot come between taking the lock and noting it
            if False in held or self.in_flight.any:  # another thread changes something, or has launched since the wait
                return
            if self.parameters.keeps_replaced:
                self.forget_replaced()
            hosts = self.hosts
            hosts.taken = None
            self.compiled.allow_wait(allowed=not (hosts.names() or hosts.failures or hosts.replaced))
        finally:
            if True in held:
                changing.release()

    def unfinished(self) -> tuple[str, ...]:
        """Return the names of nodes that a launch in flight has not finished, if known."""
        program, watch = self.program, self.state.plan.watch
        if program is None or watch is None:
            return () if program is None else program.unfinished()
        marks = watch.words
        words = memory_view(self.scope.addresses[marks], marks.nbytes, marks.shape, marks.dtype)
        # A launch that has not begun yet has no progress mark.
        return watch.unfinished(words.tolist()) or (() if self.in_flight.done() else watch.all())

    # -- the compiled call path ------------------------------------------------------------------------------------------

    def read_compiled(self) -> None:
        """Read back the launches and parameter values of the compiled call path since the last call."""
        self._count_compiled()
        for name, value in self.compiled.values().items():
            self.parameters.chosen.add(name)
            if not same(self.parameters.current(name), value):
                put([self.parameters.name(name, value)])
                assert self.program is not None
                self.program.outdated.update(self.compiled.steps_of(name))

    def _count_compiled(self) -> None:
        launcher = self.compiled.launcher
        if launcher.pending:  # checked here, because a call would add a fortieth to each launch's time
            self.in_flight.note_compiled()
        if launcher.torn:
            launcher.torn = False
            self.torn = True
        if launcher.left >= 0:
            self._since = UPDATES_BEFORE_AFRESH - launcher.left

    def _left_by_compiled(self, values: Mapping[str, Any]) -> list[int]:
        """Set values in kernel launches through the compiled call path, all or none; return the steps that are left to set."""
        compiled, program = self.compiled, self.program
        given = {name: value for name, value in values.items() if compiled.steps_of(name)}
        if not given:
            return []
        assert program is not None
        self._limit()
        left = sorted(frozenset[int]().union(*map(compiled.steps_of, given)))
        program.outdated.update(left)
        self.torn = True  # while something may be set
        if compiled.launcher.set(given):
            left = []
        else:
            self.torn = False
            compiled.refused()
        self._count_compiled()
        return left

    def resume_compiled(self) -> None:
        """Enable the compiled call path again, with what it may set."""
        if self.compiled.bound and not self.torn and self.program is not None and not self.memory.moves:
            self._limit()
            self.compiled.resume(self.program.refreshed, self._settable)

    def _limit(self) -> None:
        """Limit how many nodes the compiled call path may set."""
        if self._leaks and self.compiled.launcher is not None:
            self.compiled.launcher.left = max(0, UPDATES_BEFORE_AFRESH - self._since)

    def _settable(self) -> dict[str, tuple[Environment, Parameter, list[int]]]:
        """Return the parameters that the compiled call path can set, each with the steps that use it."""
        if self.home.several and "update_device" in self._runtime.target.quirks:
            return {}
        found = {}
        for name, (scope, parameter) in self.parameters.table.items():
            indices = self._steps_of(name)
            if indices and not parameter.shape:
                found[name] = (scope, parameter, indices)
        return found

    def _steps_of(self, name: str) -> list[int]:
        found = self.state.uses.steps_by_parameter.get(self.parameters.table[name], [])
        return [i for i in found if i not in self.state.disabled] if self.state.disabled else found


def _not_built(stream: int) -> None:
    raise AssertionError("launched before it was built")
