"""Measure when nodes run: issue a plan once on streams, with an event before and after each launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ...backends import Environment
from ...backends.operations import Nothing, Operation
from ...backends.program import Program, blamed
from ...backends.streams import StreamsProgram
from ...errors import HipError
from ...executable.devices import Home
from ...plan.launches import kind_of, launches, names_of, together
from ...plan.merged import MergedLaunch
from ...plan.steps import Plan, Step
from .timeline import Span, Timeline, engine_on


def profile(executable: Any, own: Any) -> Timeline:
    """Launch what an idle Executable is made of, `own`, with an event around each node, and return when each node ran."""
    state, hosts, in_flight = own.state.on_streams(executable.runtime.target), own.hosts, own.in_flight
    found: list[Timeline] = []

    def finish() -> None:
        in_flight.launched(in_flight.stream)
        executable.synchronize()

    def launch(stream: int) -> None:
        found.append(_profiled(state.plan, own.scope, state.disabled, own.home, stream, finish))

    hosts.keep()
    try:
        in_flight.launched(in_flight.stream)  # Ctrl-C may come before `finish` has noted it
        if own.arena is None:
            launch(in_flight.stream)
        else:
            own.arena.launch(own, launch, in_flight.stream, by_calls=True)
        return found[0]
    finally:
        hosts.undo()  # restore the graph's own host calls, made for its own memory


def _profiled(
    plan: Plan, scope: Environment, disabled: frozenset[int], home: Home, stream: int, finish: Callable[[], None]
) -> Timeline:
    """Issue a plan on an idle stream of the current device, and return when each node ran.

    `finish` waits for the stream's work and raises its errors.
    """
    runtime = home.runtime
    with ExitStack() as returned:
        returned.callback(scope.snapshot())  # restores the addresses of the graph's own allocations
        program = _Launcher(plan, scope, disabled)
        returned.callback(program.close)
        plan, members = program.launches

        def timed_event() -> int:
            event = runtime.event_create(timing=True)
            returned.callback(runtime.event_destroy, event)
            return event

        # Elapsed time needs two events of one device, so each device has its own zero event; all devices are idle now.
        streams = {home.device: stream}
        zeros: dict[int, int] = {}
        for device in plan.devices:
            with home.there(device):
                if device not in streams:
                    streams[device] = runtime.stream_create()
                    returned.callback(runtime.stream_destroy, streams[device])
                zeros[device] = timed_event()
        for device, zero in zeros.items():
            with home.there(device):
                runtime.event_record(zero, streams[device])
        for zero in zeros.values():
            runtime.event_synchronize(zero)
        marks: dict[int, tuple[int, int]] = {}

        def issue(step: Step, stream: int) -> None:
            before, after = timed_event(), timed_event()
            runtime.event_record(before, stream)
            program.issue(step, stream)
            runtime.event_record(after, stream)
            marks[step.index] = before, after

        try:
            try:
                program.launch_by(issue, stream)
            finally:
                finish()
        except HipError as error:
            raise blamed(error, program) from error.__cause__
        spans = []
        segment_of = {} if program.plan.cut is None else program.plan.cut.segment_of
        for step in plan.steps:
            before, after = marks[step.index]
            device = plan.lane_devices[step.lane]
            start = runtime.event_elapsed_time(zeros[device], before) * 1e3
            stop = start + runtime.event_elapsed_time(before, after) * 1e3
            nbytes = step.node.copied_bytes if step.node.made is None else step.node.made.nbytes
            engine = "host" if step.by_host else engine_on(step.node.engine, step.device, plan.devices)
            own = members[step.index]
            segment = segment_of.get(own[0], 0)
            shared = names_of(program.plan, own) if len(own) > 1 else ()
            kind = kind_of(program.plan, own[0]) if shared else step.node.kind
            spans.append(Span(step.name, start, stop, engine, step.lane, kind, nbytes, segment, members=shared))
        return Timeline(plan.workflow.name, "us", tuple(spans), tuple(step.deps for step in plan.steps))


class _Launcher(StreamsProgram):
    """Streams program that may issue a batch or chain as one launch, as backends that build graphs do."""

    def laned(self) -> Plan:
        self.launches = launches(self.plan, [run for run in together(self.plan) if self._shares(run)])
        return self.launches.plan

    def issue(self, step: Step, stream: int) -> None:
        """Issue a step of `launches` on a stream."""
        members = self.launches.members[step.index]
        if len(members) > 1:
            with self.naming(self.plan.steps[members[0]]):
                operations = [Nothing() if i in self.disabled else Program.resolve(self, self.plan.steps[i]) for i in members]
                batch = self._batch(members, operations)
                if batch is not None:
                    if self.words is not None:
                        self.words[0] = self.marks.of(members[0], merged=True)
                    batch.issue(self.runtime, stream)
                    return
        for i in members:
            super().issue(self.plan.steps[i], stream)

    def _shares(self, run: Sequence[int]) -> bool:
        """Return whether these steps share a launch; those that only the launch can resolve are assumed to, as planned."""
        steps = self.plan.steps
        return any(self._is_late(steps[i]) for i in run) or self._batch(run, [self.operations[i] for i in run]) is not None

    def _batch(self, run: Sequence[int], operations: Sequence[Operation]) -> MergedLaunch | None:
        first = self.plan.steps[run[0]]
        batches, steps = self.plan.batches, [self.plan.steps[i] for i in run]
        return batches[first.batch].resolve(batches, steps, operations, self.scope.shared, self.place_of(first))
