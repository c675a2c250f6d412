"""explicit: one hipGraphAdd*Node call per step, with the plan's edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import addressof, c_uint64
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import HipError
from ..kernels import ArgumentPacker
from ..runtimes.base import GraphSteps, Runtime
from .capturing import captured
from .marks import Marking, Marks
from .operations import CallCaptured, CallEager, Launch, Nothing, Operation, RunChild, RunConditional
from .program import GraphProgram
from .resolve import resolve

if TYPE_CHECKING:
    from ..nodes.facets import KernelLaunch
    from ..plan.merged import MergedLaunch

UNJOINED: Final = "join every stream that the function forks: record an event on it and let the stream wait"


class ExplicitProgram(GraphProgram):
    """A graph to which each step is added by a separate call."""

    def fill(self) -> None:
        self.graph = self.runtime.graph_create()
        add_steps(self.graph, self)

    def change_child(self, node: int, operation: RunChild) -> bool:
        graph = _child_graph(operation, self.marks)
        try:
            self.runtime.graph_exec_child_graph_node_set_params(self.handle, node, graph)
        finally:
            self.runtime.graph_destroy(graph)
        return True


def add_steps(graph: int, program: GraphProgram) -> None:
    """Add a program's operations to a graph, and store the node of each step."""
    nodes, shared, marks = program.nodes, program.scope.shared, program.marks
    try:
        with Marking(program.runtime) as words:
            for operation, deps, count in _operations(graph, program, words):
                if words is not None:
                    words[0] = marks.of(len(nodes), merged=count > 1)
                before = list(dict.fromkeys(map(nodes.__getitem__, deps)))
                nodes += [add_node(graph, before, operation, program.runtime, marks)] * count
    except HipError as error:
        raise program.named(error, program.plan.step(len(nodes))) from error.__cause__
    if len(shared.devices) > 1:
        program.runtime.set_device(shared.device)
    if program.plan.programmatic:
        program.make_programmatic(graph)


def _operations(
    graph: int, program: GraphProgram, words: memoryview | None
) -> Iterator[tuple[Operation | MergedLaunch, Sequence[int], int]]:
    """Yield each operation of a program, the steps that it waits for, and how many it runs; its device is then current.

    An operation is resolved after those before it have been added, which gives memory that the graph allocates its address.
    Plain kernel launches are left out where compiled code can add them to the graph itself.
    """
    plan, nodes, operations, disabled = program.plan, program.nodes, program.operations, program.disabled
    runtime, scope, shared = program.runtime, program.scope, program.scope.shared
    several = len(shared.devices) > 1
    count = len(plan.nodes)
    devices = [program.place_of(step) for step in plan.steps] if several else [shared.device] * count
    adders = {
        device: runtime.kernel_adder(_own_steps(graph, program, device, devices, words)) for device in dict.fromkeys(devices)
    }
    current = -1 if several else shared.device
    while (index := len(nodes)) < count:
        device = devices[index]
        if device != current:
            runtime.set_device(device)
            current = device
        adder = adders[device]
        if adder is not None:
            index = adder.add(index)
            if index == count or devices[index] != device:
                continue
        step = plan.steps[index]
        merged = program.merged(step) if step.batch >= 0 else None
        if merged is not None:
            yield merged, program.deps_of(plan.runs[index]), len(plan.runs[index])
            continue
        place = program.scope_of(step) if step.path else scope
        operation = Nothing() if index in disabled else resolve(step, place, device)
        operations.append(operation)
        yield operation, step.deps, 1
        if several and isinstance(operation, (CallCaptured, RunChild, RunConditional)):
            current = -1  # the user's functions may have made another device current


def _own_steps(graph: int, program: GraphProgram, device: int, devices: Sequence[int], words: memoryview | None) -> GraphSteps:
    """Return the steps of a program from which compiled code may add the kernel launches of one device; `devices` is by step.

    `words` are those that marks are written to.
    """
    scope, plan, left = program.scope, program.plan, program.disabled
    marks = (0 if words is None else addressof(c_uint64.from_buffer(words)), program.marks.first)
    if len(scope.shared.devices) > 1:
        left = left.union(i for i, other in enumerate(devices) if other != device)
    if plan.batches:
        left = left.union(step.index for step in plan.places if step.batch >= 0)

    def function(node: KernelLaunch) -> tuple[int, ArgumentPacker] | None:
        if node.kernel.signature is None or node.kernel.dynamic_shared:  # `resolve` checks these
            return None
        return scope.shared.function(node.kernel, node, device)

    return GraphSteps(
        graph, plan.places, plan.nodes, program.nodes, program.operations, scope.addresses, scope.values, marks, left, function
    )


def add_node(graph: int, deps: list[int], operation: Operation | MergedLaunch, runtime: Runtime, marks: Marks) -> int:
    """Add one operation of the program that has these marks to a graph."""
    match operation:
        case CallCaptured():
            return _add_captured(graph, deps, partial(operation.record, runtime), runtime)
        case RunChild():
            child = _child_graph(operation, marks)
            try:
                return runtime.graph_add_child_graph_node(graph, deps, child)
            finally:
                runtime.graph_destroy(child)
        case RunConditional(mode, condition, bodies, times):
            fill = [partial(_fill, body, times, marks.within(body.plan, body.scope)) for body in bodies]
            return runtime.graph_add_conditional_node(graph, deps, mode, condition, fill)
        case Launch(attributes=attributes) if attributes and operation.is_stand_in(runtime):
            return _add_captured(graph, deps, partial(operation.issue, runtime), runtime)
        case CallEager():
            raise AssertionError("the host calls it between graphs")
        case _:
            return operation.add(runtime, graph, deps)


def _add_captured(graph: int, deps: list[int], call: Callable[[int], None], runtime: Runtime) -> int:
    """Capture what a function issues on a stream, and add it as a child graph."""
    child = captured_graph(runtime, call)
    try:
        if "child_order" in runtime.target.quirks:
            _close_ends(child, runtime)
        return runtime.graph_add_child_graph_node(graph, deps, child)
    finally:
        runtime.graph_destroy(child)


def _close_ends(graph: int, runtime: Runtime) -> None:
    """Give a graph a single root and a single leaf, for a runtime that ignores the others when it runs the graph as a child."""
    nodes, edges = runtime.graph_get_nodes(graph), runtime.graph_get_edges(graph)
    followed, following = {source for source, _ in edges}, {target for _, target in edges}
    roots = [node for node in nodes if node not in following]
    ends = [node for node in nodes if node not in followed]
    if len(roots) > 1:
        first = runtime.graph_add_empty_node(graph, ())
        runtime.graph_add_dependencies(graph, [first] * len(roots), roots)
    if len(ends) > 1:
        runtime.graph_add_empty_node(graph, ends)


def _fill(body: RunChild, times: int, marks: Marks, graph: int) -> None:
    """Add the steps of a conditional node's body to the body's graph `times` times, in sequence."""
    before: list[int] = []
    for _ in range(times):
        program = GraphProgram(body.plan, body.scope, marks=marks)
        add_steps(graph, program)
        if not program.nodes:
            return
        if times > 1:
            first = [node for node, step in zip(program.nodes, body.plan.steps) if not step.deps]
            followed = {d for step in body.plan.steps for d in step.deps}
            last = [node for i, node in enumerate(program.nodes) if i not in followed]
            for end in before:
                program.runtime.graph_add_dependencies(graph, [end] * len(first), first)
            before = last if len(last) == 1 else [program.runtime.graph_add_empty_node(graph, last)]


def _child_graph(operation: RunChild, marks: Marks) -> int:
    program = ExplicitProgram(operation.plan, operation.scope, marks=marks.within(operation.plan, operation.scope))
    try:
        program.fill()
    except BaseException:
        program.close()
        raise
    return program.graph


def captured_graph(runtime: Runtime, call: Callable[[int], None]) -> int:
    """Capture what the user's function issues on a stream and return the new graph."""
    stream = runtime.stream_create()
    graph = 0
    try:
        graph = captured(runtime, stream, partial(call, stream))
    except HipError as error:
        if error.api == "hipStreamEndCapture":
            raise HipError(error.api, error.code, error.name, error.text, hint=UNJOINED) from None
        raise
    finally:
        try:
            runtime.stream_destroy(stream)
        except BaseException:
            if graph:
                runtime.graph_destroy(graph)
            raise
    return graph
