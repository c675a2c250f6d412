"""streams: the plan issued eagerly on one stream per lane, with events where lanes meet; also what capture records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, cast

from ..arrays import AllocArray
from ..errors import HipError
from ..plan.steps import Plan, Step
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureStatus
from ..waiting import require_room
from .host_steps import HostSteps
from .launch_calls import LaunchCalls
from .operations import Alloc, CallEager, Free, Launch, Nothing, Operation, RunChild, RunConditional
from .program import Program
from .scope import Scope

_STEPS_AT_ONCE: Final = 256  # steps that a launch issues before it asks again whether their stream takes more
_AT_LAUNCH: Final = Free(0)
"""Marks a step whose operation is resolved at each launch."""


class LaneStreams:
    """One stream per lane and the events by which lanes wait for each other.

    The first lane of the device that the plan was made for is the stream that the work is launched on; every other lane has a
    stream of its own, on its device. A step whose result another lane needs is followed by an event record; the other lane
    waits for it right before its own step. An event belongs to the device of the stream that it is recorded on.
    """

    def __init__(self, plan: Plan, runtime: Runtime, device: int | None = None) -> None:
        self.plan = plan
        self.runtime = runtime
        self.device = plan.device if device is None else device
        """Device of the launch stream."""
        self.streams: dict[int, int] = {}
        """Streams by lane, without that of the launch stream."""
        self.events: dict[int, int] = {}
        self.start = 0
        """Event that the other lanes wait for before their first step."""
        self._waits: list[tuple[int, ...]] = []
        """For each step, the steps of other lanes that it waits for."""
        self._order = plan.steps if plan.cut is None else tuple(plan.steps[i] for members in plan.cut.members for i in members)
        """Steps in issue order; work that the host waits for comes as late as possible."""
        lane_of = [step.lane for step in plan.steps]
        recorded: set[int] = set()
        for step in plan.steps:
            waits = tuple(d for d in step.deps if lane_of[d] != step.lane)
            self._waits.append(waits)
            recorded.update(waits)
        self._several = len(plan.devices) > 1
        owners = plan.lane_devices
        self._first = owners.index(self.device) if self.device in owners else -1
        others = [lane for lane in range(len(plan.lanes)) if lane != self._first]
        self._ends = tuple(plan.lanes[lane][-1] for lane in others)
        self._pauses = frozenset(step.index for step in self._order[_STEPS_AT_ONCE::_STEPS_AT_ONCE])
        self._joins: dict[int, int] = {}
        """Per other device, the event by which a run that failed halfway is joined."""
        self._returned = ExitStack()  # release all of them, even if one call fails
        with ExitStack() as failed:
            failed.callback(self.close)
            for lane in others:
                self._go_to(owners[lane])
                self.streams[lane] = runtime.stream_create()
                self._returned.callback(runtime.stream_destroy, self.streams[lane])
            for index in sorted(recorded | set(self._ends)):
                self.events[index] = self._event(owners[lane_of[index]])
            if self.streams:
                self.start = self._event(self.device)
            for device in plan.devices:
                if device != self.device:
                    self._joins[device] = self._event(device)
            self._go_to(self.device)
            failed.pop_all()

    def _event(self, device: int) -> int:
        self._go_to(device)
        event = self.runtime.event_create(timing=False)
        self._returned.callback(self.runtime.event_destroy, event)
        return event

    def _go_to(self, device: int, calls: Runtime | LaunchCalls | None = None) -> None:
        """Make a device current if there are several; the caller of the run or build restores the thread's own."""
        if self._several:
            (calls or self.runtime).set_device(device)

    def run(
        self,
        origin: int,
        do: Callable[[Step, int], None],
        *,
        by_events: bool = True,
        calls: LaunchCalls | None = None,
        pause: Callable[[Step, int], None] | None = None,
    ) -> None:
        """Visit all steps in topological order: wait for events, call `do(step, stream)`, record an event.

        The work is launched on the stream `origin`. If `by_events` is false, `do` must order lanes among themselves; they are
        still forked from `origin` and joined to it. If given, `calls` records the runtime's calls instead of making them, and
        `pause` is called before a step and its stream now and then, where a run has many steps.
        """
        runtime, events, plan, several = calls or self.runtime, self.events, self.plan, self._several
        streams = [self.streams.get(lane, origin) for lane in range(len(plan.lanes))]
        current, pauses = -1, self._pauses if pause is not None else ()
        joined = [lane == self._first for lane in range(len(plan.lanes))]
        if self.streams:
            self._go_to(self.device, runtime)
            runtime.event_record(self.start, origin)
        for step in self._order:
            stream = streams[step.lane]
            if pauses and step.index in pauses:
                assert pause is not None
                pause(step, stream)
            if several and (device := plan.lane_devices[step.lane]) != current:
                runtime.set_device(device)
                current = device
            if not joined[step.lane]:
                runtime.stream_wait_event(stream, self.start)
                joined[step.lane] = True
            if by_events:
                for source in self._waits[step.index]:
                    runtime.stream_wait_event(stream, events[source])
            do(step, stream)
            if step.node.calls in ("capture", "between") or step.bodies:
                current = -1  # user code may have made another device current, and so does building or running a body
            if step.index in events and (by_events or step.index in self._ends):
                runtime.event_record(events[step.index], stream)
        self._go_to(self.device, runtime)
        for end in self._ends:
            runtime.stream_wait_event(origin, events[end])

    def join(self, origin: int) -> None:
        """Make `origin` wait for all work on the other streams; for a run that failed halfway."""
        runtime = self.runtime
        capturing = runtime.stream_get_capture_info(origin).status is CaptureStatus.ACTIVE
        for lane, stream in self.streams.items():
            if capturing and runtime.stream_get_capture_info(stream).status is not CaptureStatus.ACTIVE:
                continue
            owner = self.plan.lane_devices[lane]
            event = self._joins.get(owner, self.start)
            self._go_to(owner)
            runtime.event_record(event, stream)
            runtime.stream_wait_event(origin, event)

    def close(self) -> None:
        """Destroy streams and events."""
        self._returned.close()


class EagerProgram(Program):
    """Operations resolved once, but at each launch if they touch memory that a launch allocates."""

    def __init__(self, plan: Plan, scope: Scope, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled)
        self.device = plan.device if device is None else device
        """Device of the launch stream: for a body, that of the conditional node."""
        self.host = HostSteps(scope, type(self))
        self._made: dict[tuple[Scope, Any], int] = {}
        """Memory that a launch has allocated and not freed, by scope and array, without what a capture has recorded."""
        self._keeps = "pool_reuse_early" in self.runtime.target.quirks
        """Whether memory is kept between launches, because the pool might reuse it in a lane concurrent with its users."""
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
            raise error.at(self.scope.prefix + step.name) from error.__cause__

    def bodies(self, step: Step, stream: int) -> Iterator[EagerProgram]:
        """Yield the program of each body that a conditional step runs, in order; the caller issues it."""
        operation = super().resolve(step)
        if not isinstance(operation, RunConditional):
            return iter(())
        chosen = self.host.chosen(operation, stream, step.name, self.place_of(step), refresh=True)
        return cast("Iterator[EagerProgram]", chosen)

    def all_streams(self) -> tuple[int, ...]:
        return (*self.streams, *(stream for body in self.host.bodies() for stream in body.all_streams()))

    def _alloc(self, operation: Alloc, stream: int, scope: Scope) -> None:
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

    def _return(self, scope: Scope, array: AllocArray, pointer: int) -> None:
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

    def __init__(self, plan: Plan, scope: Scope, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled, device)
        self._lanes = LaneStreams(self.laned(), self.runtime, device)
        self.streams = tuple(self._lanes.streams.values())

    def _pause(self, step: Step, stream: int) -> None:
        """Wait until the stream of a step takes more work; Ctrl-C and the deadline of the launch end the wait."""
        said = f"the launch has not come past {self._said(step)!r}"
        require_room(partial(self.runtime.wait_for_room, stream, ()), self.scope.shared.deadline, said)

    def laned(self) -> Plan:
        """Return the plan whose steps are issued, each in its lane."""
        return self.plan

    def launch(self, stream: int) -> None:
        self.launch_by(self.issue, stream)

    def launch_by(self, issue: Callable[[Step, int], None], stream: int) -> None:
        """Enqueue one run; `issue` is called with each step and its stream."""
        try:
            self._lanes.run(stream, issue, pause=self._pause)
        except BaseException:
            self._lanes.join(stream)
            raise

    def close(self) -> None:
        with ExitStack() as returned:
            returned.callback(self._lanes.close)
            returned.callback(super().close)
