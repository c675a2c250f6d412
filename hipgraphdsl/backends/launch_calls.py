"""What a launch of several graphs does, one after another: taken down once, then made by compiled code where there is some."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partialmethod
from typing import Any

from ..runtimes.base import Runtime
from ..runtimes.compiled_calls import CompiledCalls
from ..runtimes.data import LAUNCH_STREAM, ForeignCall, LaunchCall


class LaunchCalls:
    """Takes calls of a runtime, of other libraries and of functions of the host, and makes them at each launch, in that order.

    `LAUNCH_STREAM` among the arguments stands for the stream of the launch. While there are `failures`, of callbacks, functions
    are passed over that are not called `always`.
    """

    def __init__(self, runtime: Runtime, failures: list[Any]) -> None:
        self._runtime = runtime
        self._failures = failures
        self._calls: list[LaunchCall] = []

    def add(self, call: LaunchCall) -> None:
        """Take a call of a function of the host, with a stream, or of another library."""
        self._calls.append(call)

    def _of_runtime(self, name: str, *args: int) -> None:
        self._calls.append(LaunchCall(name, args))

    graph_launch = partialmethod(_of_runtime, "graph_launch")
    stream_wait_event = partialmethod(_of_runtime, "stream_wait_event")
    event_record = partialmethod(_of_runtime, "event_record")
    set_device = partialmethod(_of_runtime, "set_device")

    @cached_property
    def run(self) -> Callable[[int], None]:
        """Makes all calls, for a launch on a stream; what raises ends it."""
        return self._run if self.compiled is None else self.compiled

    def _run(self, stream: int) -> None:
        for what, args, always in self._calls:
            given = [stream if arg == LAUNCH_STREAM else arg for arg in args]
            if isinstance(what, str):
                getattr(self._runtime, what)(*given)
            elif isinstance(what, ForeignCall):
                what.make(*given)
            elif always or not self._failures:
                what(*given)

    @cached_property
    def compiled(self) -> CompiledCalls | None:
        """What makes all calls by compiled code, or None where there is none; no call is added any more."""
        return self._runtime.launch_calls(self._calls, self._failures)
