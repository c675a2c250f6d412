"""The program that one Executable has built from its plan: launched, changed in place, or built again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from ..backends import Program, Scope
from ..backends.callbacks import memory_view
from ..backends.operations import CallHost, Launch, Operation, RunChild, RunConditional
from ..errors import HipError
from ..plan import Plan
from ..watch import WatchedPlan
from .compiled import CompiledPath
from .devices import Home
from .in_flight import InFlight
from .memory import Block, Memory
from .stats import Stats

__all__ = ["UPDATES_BEFORE_AFRESH", "Built"]

UPDATES_BEFORE_AFRESH: Final = 4096
"""Node updates after which a runtime whose updates keep memory gets a new instance (about 24 MiB at 6 KiB an update)."""


class Built:
    """Builds, launches and changes the program that the declared state asks for.

    Parameters
    ----------
    build : callable
        The backend's: ``build(plan, scope, runtime, disabled) -> Program``.
    scope : Scope
        What the names in plans stand for.

    Attributes
    ----------
    program : Program or None
        None until the first launch has given what is missing, and after the end.
    torn : bool
        Whether the graph may hold neither the old nor the new values, because a change and its undoing have failed.
    launch : callable
        Puts one run on a stream.
    """

    def __init__(
        self,
        build: Callable[..., Program],
        scope: Scope,
        home: Home,
        memory: Memory,
        in_flight: InFlight,
        compiled: CompiledPath,
        stats: Stats,
    ) -> None:
        self.program: Program | None = None
        self.torn = False
        self.launch: Callable[[int], None] = _not_built
        self.scope = scope
        self._build = build
        self._home = home
        self._runtime = home.runtime
        self._memory = memory
        self._in_flight = in_flight
        self._compiled = compiled
        self._stats = stats
        self._since = 0
        """Updates since it was instantiated."""
        self._outdated: set[int] = set()
        """Steps that the compiled call path has set since their operations were resolved."""
        self._leaks = "update_leaks" in home.runtime.target.quirks

    @property
    def sound(self) -> bool:
        """Whether the instantiated program matches the current steps."""
        return self.program is not None and not self.torn

    # -- building ------------------------------------------------------------------------------------------------------

    def build(self, plan: Plan, disabled: frozenset[int]) -> None:
        """Build and instantiate; the program before is returned only after that has succeeded."""
        with self._home.there():
            self._build_here(plan, disabled)

    def _build_here(self, plan: Plan, disabled: frozenset[int]) -> None:
        started = time.perf_counter()
        if self.program is not None:
            self.wait()
        allocates = plan.has_allocs or plan.packing is not None
        made = [(scope, dict(scope.addresses)) for scope in self.scope.all_inside()] if allocates else []
        if isinstance(plan, WatchedPlan):
            words = self._memory.words(plan)
            for scope in self.scope.all_inside():
                scope.addresses[plan.words] = words
        blocks = self._memory.make_packed(plan.packing)
        try:
            self._place_packed(plan, blocks)
            program = self._build(plan, self.scope, self._runtime, disabled)
        except BaseException:
            for scope, addresses in made:  # where the program that stays has its memory
                scope.addresses = addresses
            self._memory.drop_packed(blocks)
            raise
        before, self.program = self.program, program
        self._stats.instantiations += 1
        self._stats.build_us = (time.perf_counter() - started) * 1e6
        self._since = 0
        self._outdated = set()
        self.torn = False
        follows = self._home.several and "other_device_crash" in self._runtime.target.quirks
        self.launch = self._launch_following if follows else program.launch
        self.bind_compiled()
        if before is not None:
            before.close()
        self._place_packed(plan, blocks)  # the program before has put back what it had found
        self._memory.use_packed(blocks)

    def _place_packed(self, plan: Plan, blocks: Mapping[int, Block]) -> None:
        """Set the addresses of a plan's packed arrays."""
        if plan.packing is not None:
            for packed in plan.packing.arrays:
                scope = self.scope.inside(packed.path)
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

    def _launch_following(self, stream: int) -> None:
        """Launch on the own stream, ordered by events after and before the work of a stream of another device."""
        assert self.program is not None
        home, own = self._home.device, self._in_flight.stream
        where = home if stream == own else self._runtime.stream_get_device(stream)
        if where == home:
            self.program.launch(stream)
            return
        self._follow(own, stream, where)
        self.program.launch(own)
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
        program = self.program
        if program is None or not isinstance(program.plan, WatchedPlan):
            return () if program is None else program.unfinished()
        plan = program.plan
        words = memory_view(self.scope.addresses[plan.words], plan.words.nbytes, plan.words.shape, plan.words.dtype)
        # A launch that has not begun yet has no progress mark.
        return plan.unfinished(words.tolist()) or (() if self._in_flight.done() else plan.all())

    # -- changing ------------------------------------------------------------------------------------------------------

    def change(self, index: int, operation: Operation) -> bool:
        """Change a step in place; return False if the program must be built again for it."""
        program = self.program
        assert program is not None
        if index not in self._outdated and _equal(program.operations[index], operation):
            return True
        if self._leaks and self._since >= UPDATES_BEFORE_AFRESH:
            return False
        self._let_host_calls_finish(operation)
        if not program.change(index, operation):
            return False
        self._outdated.discard(index)
        self._compiled.note_step(index, operation)
        self._stats.updates += 1
        self._since += 1
        return True

    def enable(self, index: int, enabled: bool) -> bool:
        """Enable or disable a step in place; return False if the program must be built again for it."""
        assert self.program is not None
        self._let_host_calls_finish(self.program.operations[index])
        return self.program.enable(index, enabled)

    def _let_host_calls_finish(self, operation: Operation) -> None:
        """Wait for launches in flight where the platform would let them call a host node's new function."""
        if isinstance(operation, (CallHost, RunChild)) and "host_update_in_flight" in self._runtime.target.quirks:
            self.wait()

    # -- the compiled call path ------------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Count the launches and node updates of the compiled call path since the last call."""
        launcher = self._compiled.launcher
        if launcher.pending:
            self._in_flight.note_compiled()
        if launcher.torn:
            launcher.torn = False
            self.torn = True
        if launcher.left >= 0:
            self._since = UPDATES_BEFORE_AFRESH - launcher.left

    def set_compiled(self, values: Mapping[str, Any]) -> dict[str, frozenset[int]]:
        """Set new values through the compiled call path where it can; return the steps that it has set, by parameter."""
        compiled = self._compiled
        found = {name: steps for name in values if (steps := compiled.steps_of(name))}
        if not found:
            return found
        self.limit()
        self.outdate(chain(*found.values()))  # before the call, so that an interrupted change can be rolled back
        done = {name: steps for name, steps in found.items() if compiled.launcher.set(name, values[name])}
        self.take_back()
        return done

    def outdate(self, steps: Iterable[int]) -> None:
        """Mark steps that the compiled call path has set; their operations are resolved again when they are asked for."""
        self._outdated.update(steps)

    def refreshed(self, steps: Iterable[int] | None = None) -> Program:
        """Return the program with up-to-date operations: of all steps, or of some."""
        program = self.program
        assert program is not None
        for index in sorted(self._outdated if steps is None else self._outdated.intersection(steps)):
            program.operations[index] = program.resolve(program.steps[index])
            self._outdated.discard(index)
        return program

    def limit(self) -> None:
        """Limit how many nodes the compiled call path may set."""
        if self._leaks and self._compiled.launcher is not None:
            self._compiled.launcher.left = max(0, UPDATES_BEFORE_AFRESH - self._since)


def _not_built(stream: int) -> None:
    raise AssertionError("launched before it was built")


def _equal(a: Operation, b: Operation) -> bool:
    """Return whether two operations are the same call."""
    if isinstance(a, Launch) and isinstance(b, Launch):
        return a._replace(packer=b.packer) == b
    if type(a) is not type(b) or isinstance(a, (RunChild, RunConditional)):
        return False
    return a == b
