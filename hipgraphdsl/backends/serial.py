"""serial: one stream and a synchronise after each node; the reference that the other backends must equal."""

from __future__ import annotations

from contextlib import ExitStack

from ..errors import HipError
from ..plan.steps import Plan, Step
from .environment import Environment
from .streams import EagerProgram


class SerialProgram(EagerProgram):
    """Steps one after the other, each on a stream of its device."""

    def __init__(self, plan: Plan, scope: Environment, disabled: frozenset[int] = frozenset(), device: int | None = None) -> None:
        super().__init__(plan, scope, disabled, device)
        self._streams: dict[int, int] = {}
        """A stream per device; the graph's own device needs none if the launch stream is on it (a body's may be elsewhere)."""
        try:
            for place in scope.shared.devices:
                if place != scope.shared.device or self.device != place:
                    with self.runtime.using_device(place):
                        self._streams[place] = self.runtime.stream_create()
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
        if self._streams:  # all steps must follow earlier work on the launch stream
            self.runtime.stream_synchronize(stream)
        for step in self.plan.steps:
            place = self.stream_of(step, stream)
            self.issue(step, place)
            try:
                self.runtime.stream_synchronize(place)
            except HipError as error:
                if not self.host.failed():
                    raise error.of(self.scope.prefix + step.name) from error.__cause__
            if self.host.failed():
                return

    def close(self) -> None:
        streams, self._streams = self._streams, {}
        with ExitStack() as returned:
            for stream in streams.values():
                returned.callback(self.runtime.stream_destroy, stream)
            returned.callback(super().close)
