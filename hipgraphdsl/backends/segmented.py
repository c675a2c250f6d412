"""Plans that no single graph can hold: one graph per segment, and host steps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..arrays import AllocArray
from ..plan.steps import Plan, Step
from ..plan.suited import with_one_root
from ..runtimes.data import LAUNCH_STREAM, LaunchCall
from .environment import Environment
from .host_steps import HostSteps
from .lanes import LaneStreams
from .launch_calls import LaunchCalls
from .marks import Fault, Marking, marked
from .operations import CallEager, Nothing, Operation, RunConditional
from .program import GraphProgram, Program

Build = Callable[[Plan, Environment, frozenset[int]], Program]


class SegmentedProgram(Program):
    """Segments as graphs, made by `build`, and host steps, arranged in lanes; each graph is launched on the stream of its lane.

    `build_body` makes the program of a conditional body, which may be cut as well. `device` is the device of the launch stream:
    for a body, that of the conditional node; else that of the plan.
    """

    in_turn = False

    def __init__(
        self,
        plan: Plan,
        scope: Environment,
        disabled: frozenset[int],
        build: Build,
        build_body: Callable[..., Program],
        device: int | None = None,
    ) -> None:
        super().__init__(plan, scope, disabled)
        assert plan.cut is not None
        self._outer, self._members = plan.cut
        self._graphs: list[Program | None] = []
        """The graph of each step of the outer plan; None for a host step."""
        self._places: list[tuple[Program | None, int]] = [(None, i) for i in range(len(plan.steps))]
        """Per step, the graph of its segment and its index in it; a host step has no graph."""
        self._host = HostSteps(scope, build_body)
        self._lanes: LaneStreams | None = None
        self._launched = False
        self._calls: LaunchCalls | None = None
        """Recorded calls for every launch but the first; None after a change of a host step."""
        self.operations = [Nothing()] * len(plan.steps)
        self._kept: dict[int, int] = {}
        """By allocating step, memory of arrays used in several segments, as graphs cannot share memory that they allocate."""
        self._left: frozenset[int] = frozenset()
        """Steps that allocate or free such memory; they are no-ops."""
        try:
            if plan.has_allocs:
                self._keep_across()
            for step, members in zip(self._outer.steps, self._members):
                self._graphs.append(None if step.child is None else self._graph(step.child, members, build))
                if step.child is None and members[0] not in disabled:
                    with self.naming(step):
                        operation = self.operations[members[0]] = self.resolve(plan.steps[members[0]])
                        if isinstance(operation, RunConditional):
                            self._host.build(operation, self.place_of(step))
            self._lanes = LaneStreams(self._outer, self.runtime, device)  # leaves the device of the launch current
            self.streams = tuple(self._lanes.streams.values())
        except BaseException:
            self.close()
            raise

    def _keep_across(self) -> None:
        """Allocate the memory of arrays whose alloc node is in another segment than a node that uses them."""
        used: dict[tuple[Environment, Any], set[int]] = {}
        about: dict[tuple[Environment, Any], list[int]] = {}
        for segment, members in enumerate(self._members):
            for i in members:
                step = self.plan.steps[i]
                makes_or_frees = step.node.made is not None or step.node.freed is not None
                views = (*(access.view for access in step.node.accesses), *step.node.addresses)
                for where, array, _ in map(self.scope_of(step).resolve, {view.root for view in views}):
                    if isinstance(array, AllocArray):
                        used.setdefault((where, array), set()).add(segment)
                        if makes_or_frees:
                            about.setdefault((where, array), []).append(i)
        left: list[int] = []
        for (where, array), steps in about.items():
            if len(used[where, array]) > 1:
                left += steps
                with self.on_device_of(steps[0]):
                    pointer = self.runtime.malloc(array.nbytes)
                self._kept[steps[0]] = where.addresses[array] = pointer
                if where.shared.sanitize:
                    self.runtime.name_array(pointer, array.nbytes, where.prefix + array.name)
        self._left = frozenset(left)

    def _graph(self, plan: Plan, members: tuple[int, ...], build: Build) -> Program:
        plan = with_one_root(plan, self.runtime.target)
        first = len(plan.steps) - len(members)
        off = self.disabled | self._left
        graph = build(plan, self.scope, frozenset(first + k for k, i in enumerate(members) if i in off))
        for k, i in enumerate(members, first):
            self._places[i] = graph, k
            self.operations[i] = graph.operations[k]
        return graph

    def graph_of(self, index: int) -> tuple[GraphProgram | None, int]:
        graph, place = self._places[index]
        return (None, index) if graph is None else graph.graph_of(place)

    def operation(self, index: int) -> Operation:
        outdated = index in self.outdated
        operation = super().operation(index)
        graph, place = self._places[index]
        if outdated and graph is not None:
            graph.operations[place] = operation
        return operation

    @property
    def graphs(self) -> tuple[Program, ...]:
        """The programs of the segments, in launch order."""
        return tuple(graph for graph in self._graphs if graph is not None)

    def parts(self) -> Iterator[tuple[Step, Program | Operation, tuple[Program, ...]]]:
        """Yield each outer step with its segment's program or host operation, and the programs of bodies the host may run."""
        for step, graph, members in zip(self._outer.steps, self._graphs, self._members):
            done = self.operations[members[0]] if graph is None else graph
            yield step, done, self._host.programs(done) if isinstance(done, RunConditional) else ()

    @property
    def handles(self) -> tuple[int, ...]:
        return tuple(graph.handle for graph in self.graphs)

    def launch(self, stream: int) -> None:
        calls, lanes = self._calls, self._lanes
        assert lanes is not None
        if calls is None:
            calls = self._take_down(lanes)
            self._calls = calls if self._launched else None
        self._launched = True
        try:
            calls.run(stream)
        except BaseException:
            lanes.join(stream)
            raise

    def entry(self) -> tuple[int, int] | None:
        if self._lanes is None or not self._launched:
            return None
        self._calls = self._calls or self._take_down(self._lanes)
        return None if self._calls.compiled is None else self._calls.compiled.entry

    def entry_failed(self, code: int, stream: int) -> None:
        assert self._calls is not None
        assert self._lanes is not None
        assert self._calls.compiled is not None
        try:
            self._calls.compiled.failed(code)
        finally:
            self._lanes.join(stream)

    def _take_down(self, lanes: LaneStreams) -> LaunchCalls:
        hosts = self.scope.shared.calls
        calls = LaunchCalls(self.runtime)
        # Prepared calls of other libraries do not check whether a callback has raised: use them only if there are no callbacks.
        by_library = self._launched and not hosts.names()

        def take_down(step: Step, stream: int) -> None:
            graph = self._graphs[step.index]
            if graph is not None:
                calls.graph_launch(graph.handle, stream)
                return
            operation = self.operations[self._members[step.index][0]]
            if isinstance(operation, CallEager) and not operation.waits:
                prepared = operation.prepared(stream) if operation.prepared is not None and by_library else None
                call = marked(operation.call, self.runtime, self.marks.of(self._members[step.index][0]))
                for each in [LaunchCall(call, (stream,))] if prepared is None else prepared:
                    calls.add(each)
            elif isinstance(operation, (CallEager, RunConditional)):
                calls.add(LaunchCall(partial(self._do, step, operation), (stream,)))

        lanes.run(LAUNCH_STREAM, take_down, calls=calls)
        return calls

    def _do(self, step: Step, operation: CallEager | RunConditional, stream: int) -> None:
        """Run a host step that may wait."""
        with self.naming(step), Marking(self.runtime) as words:
            if words is not None:
                words[0] = self.marks.of(self._members[step.index][0])
            self._host.do(operation, stream, self, step)

    def follow(self, plan: Plan, disabled: frozenset[int]) -> None:
        nodes: dict[Program, dict[int, Step]] = {}
        off: dict[Program, set[int]] = {}
        for i, ((graph, place), before, after) in enumerate(zip(self._places, self.plan.steps, plan.steps)):
            if graph is None:
                continue
            if before is not after:
                nodes.setdefault(graph, {})[place] = graph.plan.steps[place]._replace(node=after.node, path=after.path)
            if i in disabled or i in self._left:
                off.setdefault(graph, set()).add(place)
        for graph in self.graphs:
            graph.follow(graph.plan.with_steps(nodes.get(graph, {})), frozenset(off.get(graph, ())))
        super().follow(plan, disabled)

    def change(self, index: int, operation: Operation) -> bool:
        graph, place = self._places[index]
        if index in self._left:
            return True
        if graph is None:
            changed = not isinstance(operation, RunConditional) or self._host.refresh(operation)
        else:
            changed = graph.change(place, operation)
        if changed:
            self.operations[index] = operation
            if graph is None:
                self._calls = None
        return changed

    def enable(self, index: int, enabled: bool) -> bool:
        graph, place = self._places[index]
        if graph is not None and index not in self._left:
            return graph.enable(place, enabled)
        return enabled or self.change(index, Nothing())  # the caller sets the operation of an enabled step next

    def complete(self) -> None:
        for graph in self.graphs:
            graph.complete()

    def unfinished(self) -> tuple[str, ...]:
        inside = (name for graph in self.graphs for name in graph.unfinished())
        return tuple(dict.fromkeys((*inside, *self._host.unfinished(), *super().unfinished())))

    def failed(self) -> Fault | None:
        # Ask all: what is not asked now, a later failure would be told.
        return Fault.first([*(graph.failed() for graph in self._all()), super().failed()])

    def abort(self) -> bool:
        ended = [graph.abort() for graph in self._all()]
        return any(ended)

    def _all(self) -> tuple[Program, ...]:
        return (*self.graphs, *self._host.bodies())

    def all_streams(self) -> tuple[int, ...]:
        return (*self.streams, *(stream for program in self._all() for stream in program.all_streams()))

    def _free(self, index: int, pointer: int) -> None:
        with self.on_device_of(index):
            self.runtime.free(pointer)

    def close(self) -> None:
        with ExitStack() as returned:  # release all of them, even if one call fails
            for index, pointer in self._kept.items():
                returned.callback(self._free, index, pointer)
            for graph in self.graphs:
                returned.callback(graph.close)
            if self._lanes is not None:
                returned.callback(self._lanes.close)
            returned.callback(self._host.close)
            self._graphs, self._kept = [], {}
            self._lanes = self._calls = None
