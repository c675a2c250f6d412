"""What has been built for one Executable, and the state of the graph that it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final

from ..arrays import Parameter
from ..backends import Program, Scope
from ..backends.callbacks import memory_view
from ..backends.operations import CallHost, Operation, RunChild, equal
from ..backends.program import GraphProgram
from ..errors import HipError
from ..nodes import same_value
from ..plan import Plan
from ..watch import WatchedPlan
from .compiled import CompiledPath
from .devices import Home
from .in_flight import InFlight
from .locking import lock
from .memory import Block, Memory
from .parameters import Parameters
from .state import Change, State, put, within
from .stats import Stats

UPDATES_BEFORE_AFRESH: Final = 4096
"""Node updates after which a runtime whose updates keep memory gets a new instance (about 24 MiB at 6 KiB an update)."""


class Instance:
    """A program, and the state that it does: a change applies what differs to the program, and then the next state is the state.

    A change that fails before it has touched the program leaves both as they were. One that fails later leaves the state, and a
    program that does neither: it is torn, and the next launch builds another one. Nothing here locks: the caller sees to it that
    one thread changes or launches at a time.

    Parameters
    ----------
    build : callable
        The backend's: ``build(plan, scope, runtime, disabled) -> Program``.
    scope : Scope
        What the names in plans stand for.

    Attributes
    ----------
    state : State
    program : Program or None
        None until the first launch has given what is missing, and after the end.
    torn : bool
        Whether the program may do something else than the state says.
    launch : callable
        Puts one run on a stream.
    """

    def __init__(
        self,
        state: State,
        build: Callable[..., Program],
        scope: Scope,
        home: Home,
        memory: Memory,
        parameters: Parameters,
        in_flight: InFlight,
        compiled: CompiledPath,
        stats: Stats,
    ) -> None:
        self.state = state
        self.program: Program | None = None
        self.torn = False
        self.launch: Callable[[int], None] = _not_built
        self._build_program = build
        self._scope = scope
        self._home = home
        self._runtime = home.runtime
        self._memory = memory
        self._parameters = parameters
        self._in_flight = in_flight
        self._compiled = compiled
        self._stats = stats
        self._since = 0
        """Updates since it was instantiated."""
        self._leaks = "update_leaks" in home.runtime.target.quirks

    @property
    def sound(self) -> bool:
        """Whether there is a program that does what the state says."""
        return self.program is not None and not self.torn

    # -- changes -------------------------------------------------------------------------------------------------------

    def give(self, params: Mapping[str, Any]) -> None:
        """Give parameters a launch's values, and build what it needs; on failure all is as before."""
        parameters = self._parameters
        values = parameters.checked(params)
        copied = {name: values.pop(name) for name in [*values] if name in parameters.own}
        if copied:
            self.wait()  # launches in flight still read the memory that they were given
        changed = {name: value for name, value in values.items() if not same_value(parameters.current(name), value)}
        steps: dict[int, None] = {}
        for name in changed:
            by_compiled = self._compiled.steps_of(name)
            steps.update((i, None) for i in self._steps_of(name) if i not in by_compiled)
        names = tuple(parameters.name(name, value) for name, value in changed.items())
        missing, parameters.missing = parameters.missing, set()
        try:
            self.become(Change(self.state, tuple(steps), names, changed), [n for n in values if parameters.table[n][1].shape])
        except BaseException:
            parameters.missing = missing
            raise
        parameters.copy(copied)

    def take_over(self, other: Instance) -> None:
        """Take over the values of parameters and the disabled nodes of another instance, wherever names are alike."""
        given = other._parameters.give_to(self._parameters)
        state, off = self.state, other.state.names_off
        children = [step.name for step in state.plan.steps if step.child is not None]
        if any(name != child and within(name, child) for name in off for child in children):
            state = state.replanned(self._runtime.target, inline=True)  # a node inside a child is a step of its own
        state = state.without(off)
        steps = state.disabled.union(*map(self._steps_of, given), state.steps_since(self.state))
        self.become(Change(state, tuple(sorted(steps))), [name for name in given if self._parameters.table[name][1].shape])

    def become(self, change: Change, arrays: Collection[str] = ()) -> None:
        """Do what the next state says.

        Parameters
        ----------
        change : Change
        arrays : collection of str
            The array parameters that may have been given other memory.

        Raises
        ------
        DeclarationError, HipError
            The state is then as before.
        """
        state, parameters, calls = change.state, self._parameters, self._scope.shared.calls
        afresh = state.plan.lanes is not self.state.plan.lanes
        if state is not self.state:
            self._compiled.withdraw()
        before = [(table, key, table.get(key)) for table, key, _ in change.names]
        try:
            put(change.names)
            for kernel in change.kernels:
                self._scope.shared.load({kernel.module: ([kernel.name], list(kernel.module.symbols))})
            first_use = self.program is None or state.uses is not self.state.uses
            given = dict.fromkeys((*arrays, *parameters.given())) if first_use else arrays
            if given:
                parameters.require_safe(given, state.uses)
            if given or first_use:
                lock(state.uses, self._memory, parameters, self._home)
            if self.program is None:
                if not parameters.missing:
                    self._build(state)
            elif self.torn or afresh or not self._apply(change):
                self._build(state)
        except BaseException:
            put(before)
            if calls is not None:
                calls.undo()
            self._compiled.withdraw()  # what it has set stands no longer
            raise
        if calls is not None:
            calls.keep()
        self.state = state
        if self.program is not None:
            self.program.follow(state.plan, state.disabled)
        if afresh:
            stats, plan = self._stats, state.plan
            stats.nodes, stats.edges, stats.lanes = len(plan.steps), plan.edges, len(plan.lanes)

    def _apply(self, change: Change) -> bool:
        """Change the program in place; False if it must be built again."""
        program, state, before = self.program, change.state, self.state.disabled
        assert program is not None
        steps, off = state.plan.steps, state.disabled
        made = [(i, None if i in off else program.resolve(steps[i])) for i in change.steps]  # all of them before any is set
        self.torn = True  # until all of it is done
        if change.values:
            made += [(i, program.resolve(steps[i])) for i in self._left_by_compiled(change.values)]
        for i, operation in made:
            if (i in off) != (i in before):
                self._let_host_calls_finish(program.operation(i))
                if not program.enable(i, operation is not None):
                    return False
            if operation is not None and not self._set(i, operation):
                return False
        program.complete()
        self.torn = False
        return True

    def _set(self, index: int, operation: Operation) -> bool:
        """Change a step in place; return False if the program must be built again for it."""
        program = self.program
        assert program is not None
        if index not in program.outdated and equal(program.operations[index], operation):
            return True
        if self._leaks and self._since >= UPDATES_BEFORE_AFRESH:
            return False
        self._let_host_calls_finish(operation)
        if not program.change(index, operation):
            return False
        program.outdated.discard(index)
        self._compiled.note_step(index, operation)
        self._stats.updates += 1
        self._since += 1
        return True

    def _let_host_calls_finish(self, operation: Operation) -> None:
        """Wait for launches in flight where the platform would let them call a host node's new function."""
        if isinstance(operation, (CallHost, RunChild)) and "host_update_in_flight" in self._runtime.target.quirks:
            self.wait()

    # -- building ------------------------------------------------------------------------------------------------------

    def _build(self, state: State) -> None:
        """Build and instantiate; the program before is returned only after that has succeeded."""
        started = time.perf_counter()
        plan, scope, before = state.plan, self._scope, self.program
        with self._home.there():
            if before is not None:
                self.wait()
            allocates = plan.has_allocs or plan.packing is not None
            places = [(inner.addresses, dict(inner.addresses)) for inner in scope.all_inside()] if allocates else []
            if isinstance(plan, WatchedPlan):
                words = self._memory.words(plan)
                for inner in scope.all_inside():
                    inner.addresses[plan.words] = words
            blocks = self._memory.make_packed(plan.packing)
            try:
                self._place_packed(plan, blocks)
                program = self._build_program(plan, scope, self._runtime, state.disabled)
            except BaseException:
                for table, addresses in places:  # where the program that stays has its memory
                    table.clear()
                    table.update(addresses)
                self._memory.drop_packed(blocks)
                raise
            self.program, self.torn, self._since = program, True, 0
            self._stats.instantiations += 1
            self._stats.build_us = (time.perf_counter() - started) * 1e6
            # A graph may be launched on a stream of any device; an event belongs to the device of the stream that records it.
            anywhere = isinstance(program, GraphProgram) and "other_device_crash" not in self._runtime.target.quirks
            here = program.launch if program.in_turn else self._launch_in_turn
            self.launch = here if anywhere or not self._home.several else self._launch_following
            self.bind_compiled()
            with ExitStack() as returned:  # all of it, even if one call fails
                returned.callback(self._memory.use_packed, blocks)
                returned.callback(self._place_packed, plan, blocks)  # the program before puts back what it had found
                if before is not None:
                    returned.callback(self._parameters.forget_replaced)  # nothing is in flight
                    returned.callback(before.close)
            self.torn = False

    def _place_packed(self, plan: Plan, blocks: Mapping[int, Block]) -> None:
        """Set the addresses of a plan's packed arrays."""
        if plan.packing is not None:
            for packed in plan.packing.arrays:
                scope = self._scope.inside(packed.path)
                scope.addresses[packed.array] = blocks[packed.device].pointer + packed.offset

    def bind_compiled(self) -> None:
        """Bind the compiled call path to the current program."""
        self._compiled.bind(self.program, self._in_flight.stream)

    def take_out(self) -> Program | None:
        """Detach and return the program; the caller closes it."""
        program, self.program = self.program, None
        self.launch = _not_built
        return program

    # -- running -------------------------------------------------------------------------------------------------------

    def _launch_in_turn(self, stream: int) -> None:
        """Launch behind the launch before, whatever stream that was on."""
        assert self.program is not None
        if self.program.in_turn:
            self.program.launch(stream)
        else:
            self._in_flight.in_turn(stream, self.program.launch)

    def _launch_following(self, stream: int) -> None:
        """Launch on the own stream, ordered by events after and before the work of a stream of another device."""
        home, own = self._home.device, self._in_flight.stream
        where = home if stream == own else self._runtime.stream_get_device(stream)
        if where == home:
            self._launch_in_turn(stream)
            return
        self._follow(own, stream, where)
        try:
            self._launch_in_turn(own)
        except BaseException:
            with suppress(HipError):
                self._follow(stream, own, home)
            raise
        self._follow(stream, own, home)

    def _follow(self, stream: int, other: int, device: int) -> None:
        """Make a stream wait for the work on a stream of another device."""
        with self._runtime.using_device(device):
            event = self._runtime.event_create(timing=False)
        try:
            self._runtime.event_record(event, other)
            self._runtime.stream_wait_event(stream, event)
        finally:
            self._runtime.event_destroy(event)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is in flight; an error names the nodes that have not finished, or the one that failed."""
        try:
            self._in_flight.wait(timeout_s, self.unfinished)
        except HipError as error:
            name = self.program.failed() if self.program is not None and error.node is None else ""
            if not name:
                raise
            raise error.at(name) from error.__cause__

    def unfinished(self) -> tuple[str, ...]:
        """Return the names of nodes that a launch in flight has not finished, where that is known."""
        program, plan = self.program, self.state.plan
        if program is None or not isinstance(plan, WatchedPlan):
            return () if program is None else program.unfinished()
        words = memory_view(self._scope.addresses[plan.words], plan.words.nbytes, plan.words.shape, plan.words.dtype)
        # A launch that has not begun yet has no progress mark.
        return plan.unfinished(words.tolist()) or (() if self._in_flight.done() else plan.all())

    # -- the compiled call path ------------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Take over the launches and values of the compiled call path since the last call."""
        self._count_compiled()
        for name, value in self._compiled.take_back().items():
            if not same_value(self._parameters.current(name), value):
                table, parameter, _ = self._parameters.name(name, value)
                table[parameter] = value
                assert self.program is not None
                self.program.outdated.update(self._compiled.steps_of(name))

    def _count_compiled(self) -> None:
        launcher = self._compiled.launcher
        if launcher.pending:
            self._in_flight.note_compiled()
        if launcher.torn:
            launcher.torn = False
            self.torn = True
        if launcher.left >= 0:
            self._since = UPDATES_BEFORE_AFRESH - launcher.left

    def _left_by_compiled(self, values: Mapping[str, Any]) -> list[int]:
        """Set values of kernel arguments through the compiled call path; return the steps that it was to set and could not."""
        compiled, program = self._compiled, self.program
        names = [name for name in values if compiled.steps_of(name)]
        if not names:
            return []
        assert program is not None
        self._limit()
        for name in names:
            program.outdated.update(compiled.steps_of(name))
        left: list[int] = []
        for name in names:
            if not compiled.launcher.set(name, values[name]):
                left += compiled.steps_of(name)
        if left:
            compiled.withdraw()
        self._count_compiled()
        return left

    def offer(self) -> None:
        """Tell the compiled call path which parameters it may set."""
        if self._compiled.bound and not self.torn and self.program is not None:
            self._limit()
            self._compiled.resume(self.program.refreshed, self._settable)

    def _limit(self) -> None:
        """Limit how many nodes the compiled call path may set."""
        if self._leaks and self._compiled.launcher is not None:
            self._compiled.launcher.left = max(0, UPDATES_BEFORE_AFRESH - self._since)

    def _settable(self) -> dict[str, tuple[Scope, Parameter, list[int]]]:
        """Return the parameters that the compiled call path can set, each with the steps that use it."""
        if self._home.several and "update_device" in self._runtime.target.quirks:
            return {}
        found = {}
        for name, (scope, parameter) in self._parameters.table.items():
            indices = self._steps_of(name)
            if indices and not parameter.shape:
                found[name] = (scope, parameter, indices)
        return found

    def _steps_of(self, name: str) -> list[int]:
        """Return the enabled steps that a parameter reaches."""
        found = self.state.uses.steps_by_parameter.get(self._parameters.table[name], [])
        return [i for i in found if i not in self.state.disabled] if self.state.disabled else found


def _not_built(stream: int) -> None:
    raise AssertionError("launched before it was built")
