"""streams: the plan issued eagerly on one stream per lane, with events where lanes meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, cast

from ..arrays import AllocArray
from ..errors import HipError
from ..plan.steps import Plan, Step
from ..runtimes.data import CaptureStatus
from ..waiting import require_room
from .environment import Environment
from .host_steps import HostSteps
from .lanes import LaneStreams
from .marks import Fault, Marking
from .operations import Alloc, CallEager, Free, Launch, Nothing, Operation, RunChild, RunConditional
from .program import Program

_AT_LAUNCH: Final = Free(0)
"""Marks a step whose operation is resolved at each launch."""


class EagerProgram(Program):
    """Operations resolved once, but at each launch if they touch memory that a launch allocates."""

    def __init__(self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled)
        self.device = plan.device if device is None else device
        """Device of the launch stream: for a body, that of the conditional node."""
        self.host = HostSteps(scope, type(self))
        self._made: dict[tuple[Environment, Any], int] = {}
        """Memory that a launch has allocated and not freed, by scope and array, without what a capture has recorded."""
        self._keeps = "pool_reuse_early" in self.runtime.target.quirks
        """Whether memory is kept between launches, because the pool might reuse it in a lane concurrent with its users."""
        self.words: memoryview | None = None
        """Where the launching thread marks what it issues, while a launch is issued."""
        self._marks = tuple(map(self.marks.of, range(len(plan.steps))))
        self.operations = [Nothing() if step.index in disabled else self._named(step) for step in plan.steps]

    def _named(self, step: Step) -> Operation:
        with self.naming(step):
            return self.resolve(step)

    def _is_late(self, step: Step) -> bool:
        """Return whether a step is resolved at each launch: it is captured user code, or uses memory that a launch allocates."""
        if step.node.calls == "capture":
            return True
        resolve = self.scope_of(step).resolve
        for view in [*[access.view for access in step.node.accesses], *step.node.addresses]:  # arguments of foreign kernels too
            if isinstance(resolve(view.root)[1], AllocArray):
                return True
        return False

    def resolve(self, step: Step) -> Operation:
        """Return the current operation of a step, or `_AT_LAUNCH` if only a launch can resolve it (it allocates the memory)."""
        return _AT_LAUNCH if self._is_late(step) else super().resolve(step)

    def issue(self, step: Step, stream: int) -> None:
        """Issue one step of the plan on a stream."""
        index = step.index
        words = self.words
        if words is not None:
            words[0] = self._marks[index]
        try:
            operation = self.operations[index]
            if type(operation) is Launch:  # the most common case
                operation.issue(self.runtime, stream)
                return
            current = self.plan.steps[index]
            late = operation is _AT_LAUNCH
            if late:
                operation = super().resolve(current)
            if isinstance(operation, (CallEager, RunConditional)):
                self.host.do(operation, stream, self, current, refresh=late)
            elif isinstance(operation, Alloc):
                self._alloc(operation, stream, self.scope_of(current))
            elif isinstance(operation, Free):
                if not (self._keeps and operation.pointer in self._made.values()):
                    # forget it first: a failed free is not retried
                    self._made = {key: pointer for key, pointer in self._made.items() if pointer != operation.pointer}
                    operation.issue(self.runtime, stream)
            else:
                assert not isinstance(operation, RunChild), "children are inlined for streams"
                operation.issue(self.runtime, stream)
        except HipError as error:
            raise self.named(error, step) from error.__cause__

    def bodies(self, step: Step, stream: int) -> Iterator[EagerProgram]:
        """Yield the program of each body that a conditional step runs, in order; the caller issues it."""
        operation = super().resolve(step)
        if not isinstance(operation, RunConditional):
            return iter(())
        chosen = self.host.chosen(operation, stream, self.full_name(step), self.place_of(step), refresh=True)
        return cast("Iterator[EagerProgram]", chosen)

    def all_streams(self) -> tuple[int, ...]:
        return (*self.streams, *(stream for body in self.host.bodies() for stream in body.all_streams()))

    def unfinished(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.host.unfinished(), *super().unfinished())))

    def failed(self) -> Fault | None:
        return Fault.first([*(body.failed() for body in self.host.bodies()), super().failed()])  # ask all, as for segments

    def _alloc(self, operation: Alloc, stream: int, scope: Environment) -> None:
        """Allocate memory, after freeing what the previous launch allocated and did not free.

        While a stream captures, the captured graph owns what it allocates.
        """
        key = (scope, operation.array)
        if self.runtime.stream_get_capture_info(stream).status is CaptureStatus.ACTIVE:
            operation.issue(self.runtime, stream)
            return
        if self._keeps and key in self._made:
            scope.addresses[operation.array] = self._made[key]
            return
        left = self._made.pop(key, None)
        if left is not None:
            self.runtime.free_async(left, stream)
        operation.issue(self.runtime, stream)
        self._made[key] = scope.addresses[operation.array]

    def close(self) -> None:
        """Free what the last launch allocated and did not free."""
        made, self._made = self._made, {}
        with ExitStack() as returned:
            returned.callback(self.host.close)
            for (scope, array), pointer in made.items():
                returned.callback(self._return, scope, array, pointer)

    def _return(self, scope: Environment, array: AllocArray, pointer: int) -> None:
        """Free memory on the null stream of its device."""
        with scope.shared.returning_on(scope.owner(array.as_view())):
            self.runtime.free_async(pointer, 0)

    def change(self, index: int, operation: Operation) -> bool:
        self.operations[index] = operation
        return not isinstance(operation, RunConditional) or self.host.refresh(operation)

    def enable(self, index: int, enabled: bool) -> bool:
        return enabled or self.change(index, Nothing())  # the caller sets the operation of an enabled step next


class StreamsProgram(EagerProgram):
    """Operations issued on one stream per lane."""

    in_turn = False

    def __init__(self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled, device)
        self._lanes = LaneStreams(self.laned(), self.runtime, device)
        self.streams = tuple(self._lanes.streams.values())

    def _pause(self, step: Step, stream: int) -> None:
        """Wait until the stream of a step takes more work; Ctrl-C and the deadline of the launch end the wait."""
        said = f"the launch has not come past {self.full_name(step)!r}"
        require_room(partial(self.runtime.wait_for_room, stream, ()), self.scope.shared.deadline, said)

    def laned(self) -> Plan:
        """Return the plan whose steps are issued, each in its lane."""
        return self.plan

    def launch(self, stream: int) -> None:
        self.launch_by(self.issue, stream)

    def launch_by(self, issue: Callable[[Step, int], None], stream: int) -> None:
        """Enqueue one run; `issue` is called with each step and its stream."""
        try:
            with Marking(self.runtime, launches=True) as self.words:
                self._lanes.run(stream, issue, pause=self._pause, words=self.words)
        except BaseException:
            self._lanes.join(stream)
            raise
        finally:
            self.words = None

    def close(self) -> None:
        with ExitStack() as returned:
            returned.callback(self._lanes.close)
            returned.callback(super().close)
