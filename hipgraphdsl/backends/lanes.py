"""One stream per lane of a plan, with events where lanes meet: what streams, captures and segments are issued on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ..plan.steps import Plan, Step
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureStatus

if TYPE_CHECKING:
    from .launch_calls import LaunchCalls

_STEPS_AT_ONCE: Final = 256  # steps that a launch issues before it asks again whether their stream takes more


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
        words: memoryview | None = None,
    ) -> None:
        """Visit all steps in topological order: wait for events, call `do(step, stream)`, record an event.

        The work is launched on the stream `origin`. If `by_events` is false, `do` must order lanes among themselves; they are
        still forked from `origin` and joined to it. If given, `calls` records the runtime's calls instead of making them, and
        `pause` is called before a step and its stream now and then, where a run has many steps. `do` writes the mark of its step
        to `words`, if given; waits for events have none.
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
                if words is not None:
                    words[0] = 0
                runtime.stream_wait_event(stream, self.start)
                joined[step.lane] = True
            if by_events:
                for source in self._waits[step.index]:
                    if words is not None:
                        words[0] = 0
                    runtime.stream_wait_event(stream, events[source])
            do(step, stream)
            if step.node.calls in ("capture", "between") or step.bodies:
                current = -1  # user code may have made another device current, and so does building or running a body
            if step.index in events and (by_events or step.index in self._ends):
                runtime.event_record(events[step.index], stream)
        self._go_to(self.device, runtime)
        if words is not None:
            words[0] = 0
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
