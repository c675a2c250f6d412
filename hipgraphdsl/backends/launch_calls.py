"""What a launch of several graphs does, one after another: taken down once, then made by compiled code where there is some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtimes.base import Runtime
from ..runtimes.data import LAUNCH_STREAM, ForeignCall, LaunchCall, MadeCalls


class LaunchCalls:
    """Takes calls of a runtime, of other libraries and of functions of the host, and makes them at each launch, in that order.

    `LAUNCH_STREAM` among the arguments stands for the stream of the launch.

    Parameters
    ----------
    failures : list
        What callbacks have raised; while there is any, functions are passed over that are not called `always`.
    """

    def __init__(self, runtime: Runtime, failures: list[Any]) -> None:
        self._runtime = runtime
        self._failures = failures
        self._calls: list[LaunchCall] = []
        self._compiled: MadeCalls | None = None
        self._complete = False

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        """Call `Runtime.graph_launch`."""
        self._calls.append(LaunchCall("graph_launch", (graph_exec, stream)))

    def stream_wait_event(self, stream: int, event: int) -> None:
        """Call `Runtime.stream_wait_event`."""
        self._calls.append(LaunchCall("stream_wait_event", (stream, event)))

    def event_record(self, event: int, stream: int) -> None:
        """Call `Runtime.event_record`."""
        self._calls.append(LaunchCall("event_record", (event, stream)))

    def set_device(self, device: int) -> None:
        """Call `Runtime.set_device`."""
        self._calls.append(LaunchCall("set_device", (device,)))

    def host(self, function: Callable[[int], None], stream: int, *, always: bool) -> None:
        """Call a function with a stream."""
        self._calls.append(LaunchCall(function, (stream,), always))

    def foreign(self, call: LaunchCall) -> None:
        """Call another library."""
        self._calls.append(call)

    def run(self, stream: int) -> None:
        """Make all calls; what raises ends it."""
        compiled = self.compiled()
        if compiled is not None:
            compiled(stream)
            return
        for what, args, always in self._calls:
            given = [stream if arg == LAUNCH_STREAM else arg for arg in args]
            if isinstance(what, str):
                getattr(self._runtime, what)(*given)
            elif isinstance(what, ForeignCall):
                what.make(*given)
            elif always or not self._failures:
                what(*given)

    def compiled(self) -> MadeCalls | None:
        """Return what makes all calls by compiled code, or None where there is none; no call is added any more."""
        if not self._complete:
            self._complete = True
            self._compiled = self._runtime.launch_calls(self._calls, self._failures)
        return self._compiled
