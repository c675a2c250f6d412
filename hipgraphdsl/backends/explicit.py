"""explicit: one hipGraphAdd*Node call per step, with the plan's edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ..arrays import Access, ArrayView, Parameter
from ..errors import HipError
from ..kernels import ArgumentPacker
from ..nodes.facets import KernelLaunch
from ..plan.steps import Step
from ..runtimes.base import KernelAdder, Runtime
from ..runtimes.data import LAUNCH_ATTRIBUTES
from .capturing import captured
from .operations import CallCaptured, CallEager, Launch, Nothing, Operation, RunChild, RunConditional
from .program import GraphProgram
from .resolve import PLAIN_LAUNCH, resolve

# For the compiled adder: default launch attributes, and the positions of node, predecessors and enclosing children in a step.
_NO_ATTRIBUTES: Final = tuple(Launch._field_defaults.values())
_STEP_FIELDS: Final = tuple(map(Step._fields.index, ("node", "deps", "path")))
UNJOINED: Final = "join every stream that the function forks: record an event on it and let the stream wait"


class ExplicitProgram(GraphProgram):
    """A graph to which each step is added by a separate call."""

    def fill(self) -> None:
        self.graph = self.runtime.graph_create()
        add_steps(self.graph, self)

    def change_child(self, node: int, operation: RunChild) -> bool:
        graph = _child_graph(operation)
        try:
            self.runtime.graph_exec_child_graph_node_set_params(self.handle, node, graph)
        finally:
            self.runtime.graph_destroy(graph)
        return True


def add_steps(graph: int, program: GraphProgram) -> None:
    """Add a program's steps to a graph, and store the node and operation of each."""
    steps, nodes, operations, disabled = program.plan.steps, program.nodes, program.operations, program.disabled
    runtime, shared = program.runtime, program.scope.shared
    several = len(shared.devices) > 1  # with several devices, the device of each step must be current
    places = [program.place_of(step) for step in steps] if several else [shared.device] * len(steps)
    adders: dict[int, KernelAdder | None] = {}
    current = -1 if several else shared.device
    apart: frozenset[int] = frozenset()
    count = len(steps)
    index = 0
    while index < count:
        device = places[index]
        if device not in adders:
            left = disabled.union(i for i, place in enumerate(places) if place != device) if several else disabled
            left = left.union(step.index for step in steps if step.batch >= 0) if program.plan.batches else left
            adders[device] = _kernel_adder(graph, program, device, left)
        adder = adders[device]
        try:
            if device != current:
                runtime.set_device(device)
                current = device
            if adder is not None:
                index = adder(index)
                if index == count:
                    break
                if adder.code:
                    runtime.call_failed("hipGraphAddKernelNode", adder.code)
                if places[index] != device:
                    continue
            if steps[index].batch >= 0 and index not in apart:
                run = program.plan.runs[index]
                batch = program.batch(run, device)
                if batch is not None:
                    deps = dict.fromkeys(nodes[d] for i in run for d in steps[i].deps if d not in run)
                    nodes += [batch.add(runtime, graph, list(deps))] * len(run)
                    index = run.stop
                    continue
                apart = apart.union(run)
            scope = program.scope_of(steps[index])
            operation = Nothing() if index in disabled else resolve(steps[index], scope)
            node = add_node(graph, list(dict.fromkeys([nodes[d] for d in steps[index].deps])), operation, runtime)
        except HipError as error:
            failed = steps[index]
            raise error.at(program.scope_of(failed).prefix + failed.node.name) from error.__cause__
        if several and isinstance(operation, (CallCaptured, RunChild, RunConditional)):
            current = -1  # the user's functions may have made another device current
        nodes.append(node)
        operations.append(operation)
        index += 1
    if several:
        runtime.set_device(shared.device)
    program.make_programmatic(graph)


def _kernel_adder(graph: int, program: GraphProgram, device: int, left: frozenset[int]) -> KernelAdder | None:
    """Return the compiled adder of a device's plain kernel launches, which excludes the steps `left`; None if unavailable."""
    scope = program.scope

    def describe(node: KernelLaunch) -> tuple[int, ArgumentPacker, int, int, int, bytes] | None:
        if node.kernel.signature is None or node.kernel.dynamic_shared:  # `resolve` checks these
            return None
        function, packer = scope.shared.function(node.kernel, node, device)
        return function, packer, packer.memory, packer.address, packer.signature.nbytes, packer.signature.places

    return program.runtime.kernel_adder(
        graph, program.plan.steps, program.nodes, program.operations, scope.addresses, scope.values,
        left, describe, Launch, _NO_ATTRIBUTES, tuple(LAUNCH_ATTRIBUTES),
        (PLAIN_LAUNCH, ArrayView, Access, Parameter), _STEP_FIELDS,
    )  # fmt: skip


def add_node(graph: int, deps: list[int], operation: Operation, runtime: Runtime) -> int:
    """Add one operation to a graph."""
    match operation:
        case CallCaptured():
            return _add_captured(graph, deps, partial(operation.record, runtime), runtime)
        case RunChild():
            child = _child_graph(operation)
            try:
                return runtime.graph_add_child_graph_node(graph, deps, child)
            finally:
                runtime.graph_destroy(child)
        case RunConditional(mode, condition, bodies, times):
            fill = [partial(_fill, body, times) for body in bodies]
            return runtime.graph_add_conditional_node(graph, deps, mode, condition, fill)
        case Launch() if operation.is_stand_in(runtime):
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


def _fill(body: RunChild, times: int, graph: int) -> None:
    """Add the steps of a conditional node's body to the body's graph `times` times, in sequence."""
    before: list[int] = []
    for _ in range(times):
        program = GraphProgram(body.plan, body.scope)
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


def _child_graph(operation: RunChild) -> int:
    program = ExplicitProgram(operation.plan, operation.scope)
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
