"""Every row of the tables, on every runtime that opens here, by every backend: the same bytes as NumPy."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from conformance.spec import NEEDS, NODE_KINDS, SHAPES, Case, Op, Values
from places import COMPUTING, HERE, runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.backends.operations import (
    Alloc,
    CallCaptured,
    CallHost,
    Copy,
    Copy1D,
    Fill,
    Free,
    Launch,
    Nothing,
    RecordEvent,
    RunChild,
    RunConditional,
    SignalSemaphore,
    WaitEvent,
    WaitSemaphore,
    WriteAndWait,
)
from hipgraphdsl.backends.program import GraphProgram, Program
from hipgraphdsl.backends.segmented import SegmentedProgram
from hipgraphdsl.executable.state import Planned, plan_for
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import NodeType


def _shape(build: Callable[[hg.Graph], Case], g: hg.Graph, runtime: Any) -> Case:
    return build(g)


ROWS: dict[str, Callable[[hg.Graph, Any], Case]] = {
    **{f"shape_{name}": partial(_shape, build) for name, build in SHAPES.items()},
    **NODE_KINDS,
}
NODE_TYPES = {
    Launch: NodeType.KERNEL,
    Copy1D: NodeType.MEMCPY,
    Copy: NodeType.MEMCPY,
    Fill: NodeType.MEMSET,
    Alloc: NodeType.MEM_ALLOC,
    Free: NodeType.MEM_FREE,
    CallHost: NodeType.HOST,
    CallCaptured: NodeType.GRAPH,
    RecordEvent: NodeType.EVENT_RECORD,
    WaitEvent: NodeType.WAIT_EVENT,
    SignalSemaphore: NodeType.EXT_SEMAPHORE_SIGNAL,
    WaitSemaphore: NodeType.EXT_SEMAPHORE_WAIT,
    WriteAndWait: NodeType.BATCH_MEM_OP,
    RunChild: NodeType.GRAPH,
    RunConditional: NodeType.CONDITIONAL,
    Nothing: NodeType.EMPTY,
}


class Recorder(RecorderRuntime):
    """A recorder that stands in for what rows need."""

    def semaphore_create(self, value: int = 0) -> int:
        return 7


@pytest.mark.parametrize("name", COMPUTING)
def test_the_tables_are_run_on_every_runtime_that_opens(name: str) -> None:
    """Says once, by a skip, which runtime is left out and why."""
    assert runtime_or_skip(name).name == name
    assert name in HERE


@pytest.fixture(params=HERE)
def device(request: pytest.FixtureRequest) -> Runtime:
    """A runtime that computes."""
    return open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["explicit", "capture"])
def graph_backend(request: pytest.FixtureRequest) -> Any:
    """A backend that makes a graph, whose nodes can be read back."""
    return request.param


@pytest.fixture(params=sorted(ROWS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build(name: str, runtime: Any) -> Case:
    needed = NEEDS.get(name)
    if needed and not hasattr(runtime, needed):
        pytest.skip(f"runtime {runtime.name!r} has no {needed}")
    return ROWS[name](hg.Graph("case"), runtime)


@pytest.fixture
def case(name: str, device: Runtime) -> Iterator[Case]:
    case = build(name, device)
    yield case
    case.finish()


class Run:
    """An Executable beside its reference."""

    def __init__(self, case: Case, exe: hg.Executable) -> None:
        self.case = case
        self.exe = exe
        self.values: Values = case.initial()
        self.parameters: dict[str, Any] = dict(case.defaults)
        self.readable = [name for name in self.values if name not in case.hidden]
        self.finish: list[Callable[[], None]] = []

    def launch(self, given: Mapping[str, Any], off: tuple[str, ...] = (), changed: Mapping[str, Op] | None = None) -> None:
        self.parameters |= given
        self.exe.launch(**given)
        self.case.apply(self.values, self.parameters, off, changed)

    def agree(self) -> None:
        for name in self.readable:
            wanted, got = self.values[name], self.exe.read(name)
            if got.tobytes() != wanted.tobytes():
                raise AssertionError(f"array {name!r} is\n{got}\nand should be\n{wanted}")


@pytest.fixture
def run(case: Case, name: str, device: Runtime, backend: Any) -> Iterator[Run]:
    with case.graph.compile(runtime=device, backend=backend) as exe:
        run = Run(case, exe)
        yield run
    for finish in run.finish:
        finish()


def test_every_launch_gives_the_bytes_of_numpy(run: Run) -> None:
    run.agree()
    for given in run.case.launches:
        run.launch(given)
        run.agree()


def test_watching_changes_no_result(case: Case, name: str, device: Runtime, backend: Any) -> None:
    with case.graph.compile(runtime=device, backend=backend, debug=hg.DebugOptions(watch=True)) as exe:
        run = Run(case, exe)
        for given in case.launches:
            run.launch(given)
        run.agree()
        assert exe._own.unfinished() == ()
        for node in tuple(case.ops if case.toggles is None else case.toggles)[:1]:
            exe.disable(node)
            run.launch({}, off=(node,))
            exe.enable(node)
            run.launch({})
            run.agree()


def test_launches_in_a_row_follow_each_other(run: Run) -> None:
    for given in (*run.case.launches, {}, {}):
        run.launch(given)
    run.agree()


def test_disable_leaves_a_node_out_until_enable(run: Run) -> None:
    for given in run.case.launches:
        run.launch(given)
    for node in run.case.ops if run.case.toggles is None else run.case.toggles:
        run.exe.disable(node)
        run.launch({}, off=(node,))
        run.agree()
        run.exe.enable(node)
        run.launch({})
        run.agree()


def test_disable_and_enable_all_nodes_at_once(run: Run) -> None:
    names = tuple(run.case.ops if run.case.toggles is None else run.case.toggles)
    for given in run.case.launches:
        run.launch(given)
    for node in names:
        run.exe.disable(node)
    run.launch({}, off=names)
    run.agree()
    for node in names:
        run.exe.enable(node)
    run.launch({})
    run.agree()


def test_set_changes_a_node_and_changes_it_back(run: Run) -> None:
    for given in run.case.launches:
        run.launch(given)
    for node, fields, op in run.case.sets:
        before = {name: getattr(run.case.graph[node], name) for name in fields}
        run.exe.set(node, **fields)
        run.launch({}, changed={node: op})
        run.agree()
        run.exe.set(node, **before)
        run.launch({})
        run.agree()


def test_profile_is_one_launch_and_leaves_the_graph_as_it_was(run: Run) -> None:
    case = run.case
    for given in case.launches:
        run.parameters |= given
        timeline = run.exe.profile(**given)
        case.apply(run.values, run.parameters)
        run.agree()
        run.launch({})
        run.agree()
    assert all(span.stop >= span.start for span in timeline.spans)
    changed = {}
    for node, fields, op in case.sets:
        run.exe.set(node, **fields)
        changed[node] = op
    run.launch({}, changed=changed)
    run.agree()


def test_clone_goes_on_where_the_original_is(run: Run) -> None:
    for given in run.case.launches:
        run.launch(given)
    external = any(isinstance(array, hg.ExternalArray) for array in run.case.graph.arrays.values())
    if external or run.case.hidden:
        pytest.skip("a clone shares external memory with the original and does not take over what cannot be read")
    values = {name: array.copy() for name, array in run.values.items()}
    with run.exe.clone() as twin:
        twin.run()
        run.case.apply(values, run.parameters)
        for name in run.readable:
            assert twin.read(name).tobytes() == values[name].tobytes(), name
    run.agree()


def test_update_to_the_same_graph_changes_nothing(run: Run, name: str, device: Runtime) -> None:
    for given in run.case.launches:
        run.launch(given)
    twin_case = build(name, device)
    run.finish.append(twin_case.finish)
    twin = twin_case.graph
    if any(isinstance(array, hg.ExternalArray) for array in twin.arrays.values()):
        pytest.skip("other external memory is another graph")
    made_anew = ("fn", "semaphore")  # functions and handles that the row makes each time
    assert not [c for c in hg.explain_update(run.case.graph, twin).changes if c.field not in made_anew]
    run.exe.update(twin, rebuild=True)
    run.exe.run()
    run.case.apply(run.values, run.parameters)
    if not run.case.hidden:
        run.agree()


# -- structure -----------------------------------------------------------------------------------------------------------------


def setters_of(program: GraphProgram, runtime: Runtime) -> set[int]:
    """Return the kernel nodes that CUDA needs before its conditional nodes, to hand them their words."""
    if runtime.target.platform != "nvidia" or isinstance(runtime, RecorderRuntime):
        return set()
    conditional = {n for n, op in zip(program.nodes, program.operations) if isinstance(op, RunConditional)}
    return {source for source, target in runtime.graph_get_edges(program.graph) if target in conditional}


def check_structure(exe: hg.Executable, runtime: Runtime) -> None:
    program = exe._program
    if isinstance(program, SegmentedProgram):
        assert exe.plan.cut is not None
        assert exe.handles == tuple(graph.handle for graph in program.graphs)
        members = [members for step, members in zip(exe.plan.cut.plan.steps, exe.plan.cut.members) if step.child is not None]
        assert sum(map(len, members)) == sum(not step.by_host for step in exe.plan.steps)
        for graph, inside in zip(program.graphs, members):
            assert {exe.plan.steps[i].name for i in inside} <= {step.name for step in graph.plan.steps}
            check_graph(graph, runtime)
    else:
        assert program is not None
        assert program.plan is exe.plan
        check_graph(program, runtime)


def check_graph(program: Program, runtime: Runtime) -> None:
    assert isinstance(program, GraphProgram)
    steps, nodes = program.plan.steps, program.nodes
    assert len(nodes) == len(steps)
    assert len(set(nodes)) == len({(step.batch, 0 if step.batch >= 0 else step.index) for step in steps})
    setters = setters_of(program, runtime)
    assert set(runtime.graph_get_nodes(program.graph)) - setters == set(nodes)
    wanted = {(nodes[source], nodes[step.index]) for step in steps for source in step.deps}
    wanted -= {(node, node) for node in nodes}  # the links of a chain, which is one node
    got = runtime.graph_get_edges(program.graph)
    assert len(got) == len(set(got))
    through = {(a, c) for a, b in got if b in setters for d, c in got if d == b}
    assert {edge for edge in got if not setters.intersection(edge)} | through == wanted
    for node, operation in zip(nodes, program.operations):
        assert runtime.graph_node_get_type(node) is NODE_TYPES[type(operation)]


@pytest.mark.parametrize("batch", [False, True])
def test_the_graph_on_the_device_has_the_nodes_and_edges_of_the_plan(
    case: Case, name: str, device: Runtime, graph_backend: Any, batch: bool
) -> None:
    if graph_backend in case.expands:
        pytest.skip("a step becomes several nodes")
    with case.graph.compile(runtime=device, backend=graph_backend, batch=batch) as exe:
        exe.launch(**case.launches[0])
        check_structure(exe, device)


@pytest.fixture
def recorder(name: str) -> Recorder:
    return Recorder(target="nvidia:sm_90") if name.startswith("conditional") else Recorder()


@pytest.mark.parametrize("batch", [False, True])
def test_the_recorded_graph_has_the_nodes_and_edges_of_the_plan(
    name: str, recorder: Recorder, graph_backend: Any, batch: bool
) -> None:
    case = build(name, recorder)
    if graph_backend in case.expands:
        pytest.skip("a step becomes several nodes")
    with case.graph.compile(runtime=recorder, backend=graph_backend, batch=batch) as exe:
        exe.launch(**case.launches[0])
        check_structure(exe, recorder)


def test_closing_returns_everything(name: str, recorder: Recorder, backend: Any) -> None:
    case = build(name, recorder)
    exe = case.graph.compile(runtime=recorder, backend=backend)
    for given in case.launches:
        exe.launch(**given)
    for node, fields, _ in case.sets:
        exe.set(node, **fields)
    exe.profile()
    exe.clone().close()
    exe.close()
    case.finish()
    assert recorder.live == {}
    exe.close()


@pytest.mark.property
def test_every_call_that_fails_leaves_nothing_behind(
    name: str, recorder: Recorder, backend: Any, request: pytest.FixtureRequest
) -> None:
    """Each call of compiling, launching, changing and closing fails once, in turn; of a part (`--part`), every so many."""
    apart = round(1 / request.config.getoption("--part"))
    case = build(name, recorder)
    with case.graph.compile(runtime=recorder, backend=backend):  # checks it, too
        pass
    workflow = case.graph.workflow()
    made = plan_for(workflow, recorder.target, backend, 0, "", hg.PlanOptions())  # makes no call that could fail
    before = recorder.live
    for n in itertools.count(1 + zlib.crc32(f"{name} {backend}".encode()) % apart, apart):
        recorder.clear()
        recorder.fail_at(n, code=2)
        raised = use_until_it_fails(case, workflow, recorder, made)
        if raised is None:
            assert recorder._failures, "a failure was swallowed"
            break
        assert raised.code == 2
        assert raised.api.startswith(("hip", "cuGraphAddDependencies"))  # HIP has no programmatic edges
        adds_a_node = "Add" in raised.api and "Node" in raised.api
        assert not adds_a_node or raised.node in names_in(case)
        assert recorder.live == before, f"after call {n} failed: {recorder.calls[-1]}"
        assert not recorder._captures
    assert n > 3


def use_until_it_fails(case: Case, workflow: hg.Workflow, runtime: Runtime, made: Planned) -> hg.HipError | None:
    """Build what is planned, launch and close; return what was raised, after the Executable has been closed."""
    exe = None
    try:
        exe = hg.Executable.build(workflow, runtime, made[1], made=made)
        for given in case.launches:
            exe.run(**given)
        exe.close()
    except hg.HipError as error:
        if exe is not None:
            exe.close()
        return error
    return None


def names_in(case: Case) -> set[str]:
    """Return the names of all nodes, those inside children included."""
    found: set[str] = set()

    def visit(workflow: hg.Workflow, prefix: str) -> None:
        for node in workflow.nodes:
            found.update((prefix + node.name, node.name))
            if isinstance(node, hg.ChildGraphNode):
                visit(node.workflow, f"{prefix}{node.name}/")
            elif isinstance(node, hg.ConditionalNode):
                for n, body in enumerate(node.bodies):
                    visit(body, f"{prefix}{node.name}/{n}/")

    visit(case.graph.workflow(), "")
    return found
