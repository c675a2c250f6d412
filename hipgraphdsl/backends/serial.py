"""serial: one stream and a wait after each node; the reference that the other backends must equal."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from ..errors import HipError
from ..plan.steps import Plan, Step
from .environment import Environment
from .marks import Marking
from .streams import EagerProgram


class SerialProgram(EagerProgram):
    """Steps one after the other, each on a stream of its device; Ctrl-C and the deadline of the launch end the waits."""

    in_turn = False

    def __init__(self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled, device)
        self._streams: dict[int, int] = {}
        """A stream per device; the graph's own device needs none if the launch stream is on it (a body's may be elsewhere)."""
        self._ends: dict[int, int] = {}
        """Per stream of these the event by which a launch that ends halfway is joined."""
        try:
            for place in scope.shared.devices:
                if place != scope.shared.device or self.device != place:
                    with self.runtime.using_device(place):
                        self._streams[place] = self.runtime.stream_create()
                        self._ends[place] = self.runtime.event_create(timing=False)
        except BaseException:
            self.close()
            raise
        self.streams = tuple(self._streams.values())

    def stream_of(self, step: Step, stream: int) -> int:
        """Make the device of a step current and return its stream; `stream` is the launch stream."""
        if len(self.scope.shared.devices) == 1:
            return stream
        place = self.place_of(step)
        self.runtime.set_device(place)  # the caller restores the thread's own device
        return self._streams.get(place, stream)

    def launch(self, stream: int) -> None:
        try:
            if self._streams and self.plan.steps:  # all steps must follow earlier work on the launch stream
                self.host.wait(stream, self.full_name(self.plan.steps[0]))
            with Marking(self.runtime) as self.words:
                for step in self.plan.steps:
                    place = self.stream_of(step, stream)
                    self.issue(step, place)
                    try:
                        self.host.wait(place, self.full_name(step), itself=True)
                    except HipError as error:
                        raise error.of(self.full_name(step)) from error.__cause__
        except BaseException:
            self._join(stream)
            raise
        finally:
            self.words = None

    def _join(self, stream: int) -> None:
        """Make the launch stream wait for what has been enqueued on the others."""
        for place, other in self._streams.items():
            with suppress(HipError):  # the error of the launch says more
                self.runtime.set_device(place)
                self.runtime.event_record(self._ends[place], other)
                self.runtime.stream_wait_event(stream, self._ends[place])

    def close(self) -> None:
        streams, ends = self._streams, self._ends
        self._streams, self._ends = {}, {}
        with ExitStack() as returned:
            for event in ends.values():
                returned.callback(self.runtime.event_destroy, event)
            for stream in streams.values():
                returned.callback(self.runtime.stream_destroy, stream)
            returned.callback(super().close)
