"""Measure when nodes run: issue a plan once on streams, with an event before and after each launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from ..backends import Scope, SharedHandles
from ..backends.batches import Batch, batch_of
from ..backends.operations import Nothing, Operation
from ..backends.program import Naming, Program
from ..backends.streams import StreamsProgram
from ..errors import DeclarationError, HipError, HipGraphError
from ..plan.launches import kind_of, launches, names_of, together
from ..plan.steps import Plan, Step
from ..runtimes.base import Runtime
from ..runtimes.data import ERROR_INVALID_HANDLE, ERROR_NOT_READY
from ..timeline.timeline import Span, Timeline, engine_on
from .devices import Home
from .state import State, within


def profile(plan: Plan, scope: Scope, disabled: frozenset[int], home: Home, stream: int, finish: Callable[[], None]) -> Timeline:
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
            program.launch_by(issue, stream)
        finally:
            finish()
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
            with Naming(self.plan.steps[members[0]].name):
                operations = [Nothing() if i in self.disabled else Program.resolve(self, self.plan.steps[i]) for i in members]
                batch = self._batch(members, operations)
                if batch is not None:
                    batch.issue(self.runtime, stream)
                    return
        for i in members:
            super().issue(self.plan.steps[i], stream)

    def _shares(self, run: Sequence[int]) -> bool:
        """Return whether these steps share a launch; those that only the launch can resolve are assumed to, as planned."""
        steps = self.plan.steps
        return any(self._is_late(steps[i]) for i in run) or self._batch(run, [self.operations[i] for i in run]) is not None

    def _batch(self, run: Sequence[int], operations: Sequence[Operation]) -> Batch | None:
        first = self.plan.steps[run[0]]
        return batch_of(self.plan, run, operations, self.scope.shared, self.place_of(first))


class Switched:
    """Which nodes were enabled or disabled, and after how many launches: the last launch may have had another state than now."""

    def __init__(self) -> None:
        self._after: dict[str, int] = {}
        """By the name of a node or child: the number of launches when it was last switched, unless it was switched back since."""

    def note(self, before: Iterable[str], after: Iterable[str], launches: int) -> None:
        """Note a change of the names of the disabled nodes."""
        for name in set(before) ^ set(after):
            if self._after.get(name) == launches:
                del self._after[name]
            else:
                self._after[name] = launches

    def ran(self, name: str, off: Iterable[str], launches: int) -> bool:
        """Return whether a node was enabled in the last launch; `off` are the names of the disabled nodes."""
        switched = max((count for other, count in self._after.items() if within(name, other)), default=-1)
        return switched == launches if any(within(name, other) for other in off) else switched < launches


def elapsed_us(
    state: State, switched: Switched, launches: int, shared: SharedHandles, runtime: Runtime, start: Any, stop: Any
) -> float:
    """Return microseconds between two events that the last of the launches recorded, given by name or as Event.

    Nothing is in flight, and the graph's device is current.
    """
    graph, handles = state.workflow.name, []
    for event in (start, stop):
        name = getattr(event, "name", event)
        handle = shared.event_named(name) if isinstance(name, str) else None
        if handle is None:
            raise DeclarationError(f"graph {graph!r} records no event {name!r}")
        handles.append(handle)
        by = [
            level.name(node) for level, node in state.workflow.walk() if node.recorded is not None and node.recorded.name == name
        ]
        if by and not any(switched.ran(node, state.names_off, launches) for node in by):
            raise HipGraphError(
                f"elapsed_us: the last launch of graph {graph!r} did not record event {name!r}, because {by[0]!r} was disabled;"
                " enable it and launch again"
            )
    try:
        return runtime.event_elapsed_time(*handles) * 1e3
    except HipError as error:
        if error.code == ERROR_NOT_READY:
            raise HipGraphError(
                f"elapsed_us: a launch of another graph records an event that graph {graph!r} shares, and has not finished; wait"
                " for it first"
            ) from error
        if error.code != ERROR_INVALID_HANDLE:  # the code of an event that was never recorded
            raise
        raise HipGraphError(
            f"elapsed_us: graph {graph!r} has not recorded both events yet; launch it first, with the nodes that record them"
            " enabled"
        ) from error
