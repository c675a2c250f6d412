"""capture: the plan issued on one stream per lane while hipStreamBeginCapture .. EndCapture records it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from ..errors import HipError
from ..plan.steps import Step
from .capturing import captured
from .explicit import UNJOINED, add_node
from .lanes import LaneStreams
from .marks import Marking
from .operations import CallCaptured, CallEager, Launch, Nothing, Operation, RunChild, RunConditional, set_attributes
from .program import GraphProgram
from .resolve import prepare

if TYPE_CHECKING:
    from ..plan.merged import MergedLaunch


class CaptureProgram(GraphProgram):
    """A graph captured from the stream calls of the steps, with forks and joins by events.

    The node handle of a step is queried right after the call that recorded it; later updates need it.
    """

    def fill(self) -> None:
        runtime = self.runtime
        for step in self.plan.steps:
            if step.index not in self.disabled:
                prepare(step, self.scope_of(step))
            if step.batch >= 0:
                # A capture forbids to compile and load.
                self.plan.batches[step.batch].prepare(self.plan.batches, self.scope.shared, self.place_of(step))
        origin = runtime.stream_create()
        lanes = None
        self._previous = [-1] * len(self.plan.lanes)
        """Per lane, the step recorded last; -1 before the first."""
        self._ends: list[tuple[int, ...]] = []
        """Per step, the nodes that its successors depend on."""
        try:
            lanes = LaneStreams(self.plan, runtime)
            issue = partial(lanes.run, origin, self._record, by_events=False)
            with Marking(runtime) as self._words:
                self.graph = captured(runtime, origin, issue, join=partial(lanes.join, origin))
            self.make_programmatic(self.graph)
        except HipError as error:
            if error.api == "hipStreamEndCapture" and not error.node:
                raise self._unjoined(error) from error.__cause__
            raise
        finally:
            # Streams that have captured are destroyed: their state after a failed capture is undefined.
            with ExitStack() as returned:
                returned.callback(runtime.stream_destroy, origin)
                if lanes is not None:
                    returned.callback(lanes.close)

    def _unjoined(self, error: HipError) -> HipError:
        """Return the error with the captured nodes that may be at fault; the backend joins every lane that it forks itself."""
        names = [step.name for step, done in zip(self.plan.steps, self.operations) if isinstance(done, CallCaptured)]
        if not names:
            return error
        return error.at(names[0], UNJOINED + (f" (or it is one of {', '.join(map(repr, names[1:]))})" if names[1:] else ""))

    def _record(self, step: Step, stream: int) -> None:
        try:
            if step.index not in self.batches:  # else its node has been added with the first step of its batch
                merged = self.merged(step) if step.batch >= 0 else None
                if self._words is not None:
                    self._words[0] = self.marks.of(step.index, merged=merged is not None)
                if merged is None:
                    self._issue(step, stream)
                else:
                    self._insert(merged, self.deps_of(self.plan.runs[step.index]), stream)
        except HipError as error:  # not `Naming`, which adds 5 % to the time of each step
            raise self.named(error, step) from error.__cause__
        self._previous[step.lane] = step.index
        self._note(step, stream)

    def _issue(self, step: Step, stream: int) -> None:
        operation: Operation = Nothing() if step.index in self.disabled else self.resolve(step)
        previous = self._previous[step.lane]
        if step.deps != ((previous,) if previous >= 0 else ()):
            # Events only fork and join lanes. Dependencies between lanes are set on the capture directly, so the graph gets
            # exactly the plan's edges (the last node of a lane may be an implied predecessor), and streams never wait for
            # each other in a cycle, on which AMD's EndCapture recurses endlessly.
            self.runtime.stream_update_capture_dependencies(stream, self._before(step.deps), replace=True)
        quirks = self.runtime.target.quirks
        if isinstance(operation, (RunChild, RunConditional, CallEager)) or not operation.is_recorded(quirks):
            self._insert(operation, step.deps, stream)
        elif isinstance(operation, CallCaptured):
            operation.record(self.runtime, stream)
        else:
            operation.issue(self.runtime, stream)
        self.operations.append(operation)

    def _insert(self, operation: Operation | MergedLaunch, deps: Sequence[int], stream: int) -> None:
        """Add to the graph under capture a node that no stream call records."""
        runtime = self.runtime
        graph = runtime.stream_get_capture_info(stream).graph
        node = add_node(graph, self._before(deps), operation, runtime, self.marks)
        runtime.stream_update_capture_dependencies(stream, [node], replace=True)

    def _before(self, deps: Sequence[int]) -> list[int]:
        """Return the nodes of steps that another waits for; a captured function may end in several nodes."""
        return list(dict.fromkeys(node for d in deps for node in self._ends[d]))

    def _note(self, step: Step, stream: int) -> None:
        """Store the node that the last stream call recorded."""
        recorded = self.runtime.stream_get_capture_info(stream).dependencies
        self._ends.append(recorded)
        operation = self.operations[step.index]
        if len(recorded) != 1 and not isinstance(operation, CallCaptured):
            raise HipError(
                "hipStreamGetCaptureInfo_v2",
                1,
                "hipErrorInvalidValue",
                f"the call recorded {len(recorded)} nodes where one was expected",
                node=self.scope.prefix + step.name,
            )
        self.nodes.append(recorded[0] if len(recorded) == 1 else 0)
        if isinstance(operation, Launch) and "priority" in operation.attributes:
            with self.naming(step):
                set_attributes(recorded[0], self.runtime, priority=operation.attributes["priority"])
