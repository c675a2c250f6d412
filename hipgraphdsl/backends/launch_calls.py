"""The calls of a launch of several graphs: recorded once, then replayed in order, by compiled code where available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, partialmethod

from ..runtimes.base import Replay, Runtime
from ..runtimes.data import LAUNCH_STREAM, ForeignCall, LaunchCall


class LaunchCalls:
    """Records calls of a runtime, of other libraries and of host functions, and replays them at each launch, in that order.

    `LAUNCH_STREAM` as an argument is replaced by the stream of the launch.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._calls: list[LaunchCall] = []

    def add(self, call: LaunchCall) -> None:
        """Record a call of a host function, which takes a stream, or of another library."""
        self._calls.append(call)

    def _of_runtime(self, name: str, *args: int) -> None:
        self._calls.append(LaunchCall(name, args))

    graph_launch = partialmethod(_of_runtime, "graph_launch")
    stream_wait_event = partialmethod(_of_runtime, "stream_wait_event")
    event_record = partialmethod(_of_runtime, "event_record")
    set_device = partialmethod(_of_runtime, "set_device")

    @cached_property
    def run(self) -> Callable[[int], None]:
        """Replays all calls for a launch on a stream; the first exception ends the launch."""
        return partial(_replay, self._runtime, self._calls) if self.compiled is None else self.compiled.run

    @cached_property
    def compiled(self) -> Replay | None:
        """The compiled replay of all calls, or None if unavailable; no call may be added after the first access."""
        return self._runtime.launch_calls(self._calls)


def _replay(runtime: Runtime, calls: Sequence[LaunchCall], stream: int) -> None:
    for what, args in calls:
        given = [stream if arg == LAUNCH_STREAM else arg for arg in args]
        if isinstance(what, str):
            getattr(runtime, what)(*given)
        elif isinstance(what, ForeignCall):
            what.make(*given)
        else:
            what(*given)
