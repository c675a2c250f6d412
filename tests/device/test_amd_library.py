"""The library on AMD's runtime: what graphs hold there, the examples, failures of each call, runtimes that are not there."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.spec import NEEDS, NODE_KINDS, SHAPES, N, mixed, module, numbers
from test_examples import SHORT, SMALL, load

import hipgraphdsl as hg
from hipgraphdsl.backends.handles import BUILT_IN
from hipgraphdsl.backends.operations import (
    Alloc,
    CallHost,
    Copy1D,
    Free,
    Launch,
    Operation,
    RecordEvent,
    WaitEvent,
)
from hipgraphdsl.backends.program import GraphProgram
from hipgraphdsl.backends.segmented import SegmentedProgram
from hipgraphdsl.cli import main
from hipgraphdsl.executable import instance
from hipgraphdsl.executable.scopes import modules_of
from hipgraphdsl.kernels import Module
from hipgraphdsl.runtimes import amd, open_runtime
from hipgraphdsl.runtimes.amd import AmdRuntime, load_hiprtc
from hipgraphdsl.runtimes.code_object import metadata, read_code_object
from hipgraphdsl.runtimes.data import Copy3D, Fill2D, HostParams, MemcpyKind, NodeType

ROOT = Path(__file__).parents[2]
ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")


@pytest.fixture(scope="module")
def runtime() -> AmdRuntime:
    try:
        opened = open_runtime("amd")
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))
    assert isinstance(opened, AmdRuntime)
    return opened


@pytest.fixture(params=["explicit", "capture"])
def graph_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def rows() -> dict[str, Callable[[hg.Graph, Any], Any]]:
    found: dict[str, Callable[[hg.Graph, Any], Any]] = {name: make for name, make in NODE_KINDS.items() if name not in NEEDS}
    for name, build in SHAPES.items():
        found[f"shape_{name}"] = partial(lambda make, g, _: make(g), build)
    return found


def in_a_process(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run what chooses its devices before HIP starts in a process of its own."""
    paths = os.pathsep.join(path for path in (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")) if path)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# -- what a graph holds ------------------------------------------------------------------------------------------------
def arguments(table: int, launch: Launch) -> list[bytes]:
    """Return the bytes of each argument of a table of pointers to them."""
    parameters = launch.packer.signature.parameters
    pointers = (ctypes.c_void_p * len(parameters)).from_address(table)
    return [ctypes.string_at(pointer or 0, p.size) for pointer, p in zip(pointers, parameters)]


def agrees(runtime: AmdRuntime, node: int, operation: Operation, addresses: dict[Any, int]) -> bool:
    """Read a node back and compare it with what the plan says of it; False where HIP cannot tell."""
    match operation:
        case Launch():
            got = runtime.graph_kernel_node_get_params(node)
            assert (got.function, got.grid, got.block, got.shared_bytes) == (
                operation.function, operation.grid, operation.block, operation.shared_bytes
            )  # fmt: skip
            assert arguments(got.args, operation) == arguments(operation.packer.place(operation.packed), operation)
        case Copy1D(dst, src, nbytes, _):
            copy = runtime.graph_memcpy_node_get_params(node)
            assert (copy.dst, copy.src, copy.width_bytes, copy.height, copy.depth) == (dst, src, nbytes, 1, 1)
        case Copy3D():
            assert astuple(runtime.graph_memcpy_node_get_params(node)) == astuple(operation)
        case Fill2D():
            fill = runtime.graph_memset_node_get_params(node)
            flat = operation.height == 1
            value = operation.value & (256**operation.element_size - 1)
            found = replace(fill, value=fill.value & (256**fill.element_size - 1), pitch_bytes=0 if flat else fill.pitch_bytes)
            assert astuple(found) == astuple(replace(operation, value=value, pitch_bytes=0 if flat else operation.pitch_bytes))
        case CallHost(fn, user_data):
            assert runtime.graph_host_node_get_params(node) == HostParams(fn, user_data)
        case Alloc(array, nbytes, _):
            assert runtime.graph_mem_alloc_node_get_params(node) == (addresses[array], nbytes)
        case Free(pointer):
            assert runtime.graph_mem_free_node_get_params(node) == pointer
        case RecordEvent(event):
            assert runtime.graph_event_record_node_get_event(node) == event
        case WaitEvent(event):
            assert runtime.graph_event_wait_node_get_event(node) == event
        case _:
            return False
    return True


@pytest.mark.parametrize("name", sorted(rows()))
def test_parameters_read_back_are_those_of_the_plan(runtime: AmdRuntime, graph_backend: Any, name: str) -> None:
    case = rows()[name](hg.Graph("case"), runtime)
    with case.graph.compile(runtime=runtime, backend=graph_backend) as exe:
        exe.launch(**case.launches[0])
        whole = exe._program
        for program in whole.graphs if isinstance(whole, SegmentedProgram) else [whole]:
            assert isinstance(program, GraphProgram)
            read = [
                agrees(runtime, node, operation, program.scope_of(step).addresses)
                for step, node, operation in zip(program.plan.steps, program.nodes, program.operations)
            ]
            told = ("kernel", "memcpy", "memset", "host", "alloc", "free")
            assert all(done for done, step in zip(read, program.plan.steps) if step.node.kind in told)
    case.finish()


@pytest.mark.parametrize("name", ["child_bound", "child_nested_three_deep", "child_with_host_node"])
def test_a_child_is_a_node_with_a_graph_where_the_target_keeps_their_order(
    runtime: AmdRuntime, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # No launch: whether this version keeps the order inside is another question.
    kept = replace(runtime.target, quirks=runtime.target.quirks - {"child_order", "parallel_roots"})
    monkeypatch.setattr(runtime, "target", kept)
    case = rows()[name](hg.Graph("case"), runtime)
    with case.graph.compile(runtime=runtime, backend="explicit") as exe:
        program = exe._program
        assert isinstance(program, GraphProgram)
        children = [(s, n) for s, n in zip(exe.plan.steps, program.nodes) if s.node.kind == "child"]
        assert children
        for step, node in children:
            assert runtime.graph_node_get_type(node) is NodeType.GRAPH
            inner = runtime.graph_child_graph_node_get_graph(node)
            assert step.child is not None
            assert len(runtime.graph_get_nodes(inner)) == len(step.child.steps)
            assert len(runtime.graph_get_edges(inner)) == step.child.edges


# -- quirks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(name for name in NODE_KINDS if name.startswith(("memcpy", "child"))))
def test_copies_from_the_first_byte_of_page_locked_memory_copy_the_same(
    runtime: AmdRuntime, monkeypatch: pytest.MonkeyPatch, graph_backend: Any, name: str
) -> None:
    # No runtime that is supported today has this quirk, so it is lent to the one that is here.
    lent = replace(runtime.target, quirks=runtime.target.quirks | {"interior_host_pointer"})
    monkeypatch.setattr(runtime, "target", lent)
    case = NODE_KINDS[name](hg.Graph("case"), runtime)
    with case.graph.compile(runtime=runtime, backend=graph_backend) as exe:
        program = exe._program
        assert isinstance(program, GraphProgram)
        locked = {memory.pointer: memory.array for memory in exe._own.memory.arrays.values() if memory.array.kind == "host"}
        for operation in program.operations:
            if isinstance(operation, Copy3D):
                for pointer in (operation.dst, operation.src):
                    inside = [p for p, a in locked.items() if getattr(a, "pinned", False) and p < pointer < p + a.nbytes]
                    assert not inside
        values, parameters = case.initial(), dict(case.defaults)
        for given in case.launches:
            exe.launch(**given)
            parameters |= given
            case.apply(values, parameters)
        for array in values.keys() - case.hidden.keys():
            assert exe.read(array).tobytes() == values[array].tobytes(), array


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams", "serial"])
def test_a_cooperative_kernel_runs_is_set_and_is_disabled(runtime: AmdRuntime, backend: Any) -> None:
    g = hg.Graph("cooperative")
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    k = g.param("k", "int32", 3)
    g.kernel(module()["mix"], 1, N, (y, x, k, N), cooperative=True, name="together")
    g.kernel(module()["mix"], 1, N, (x, y, 5, N), name="after")
    expected = [numbers(1), numbers(2)]
    with g.compile(runtime=runtime, backend=backend) as exe:
        for value, enabled in ((3, True), (7, True), (7, False), (8, True)):
            (exe.enable if enabled else exe.disable)("together")
            exe.launch(k=value)
            if enabled:
                mixed(expected[1], expected[0], value)
            mixed(expected[0], expected[1], 5)
        assert exe.read("x").tolist() == expected[0].tolist()
        assert exe.read("y").tolist() == expected[1].tolist()


def test_an_explicit_cooperative_kernel_is_one_to_hip(runtime: AmdRuntime) -> None:
    # Setting the attribute does not make it one, so the node is a captured cooperative launch.
    g = hg.Graph("cooperative")
    x = g.device_array("x", numbers(1))
    g.kernel(module()["mix"], 1, N, (x, x, 1, N), cooperative=True, name="together")
    with g.compile(runtime=runtime, backend="explicit") as exe:
        program = exe._program
        assert isinstance(program, GraphProgram)
        (node,) = program.nodes
        assert runtime.graph_node_get_type(node) is NodeType.GRAPH
        (inner,) = runtime.graph_get_nodes(runtime.graph_child_graph_node_get_graph(node))
        assert runtime.graph_node_get_type(inner) is NodeType.KERNEL


def test_a_priority_is_left_out_with_a_warning_where_it_is_refused(
    runtime: AmdRuntime, graph_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    g = hg.Graph("urgent")
    x = g.device_array("x", numbers(1))
    g.kernel(module()["mix"], 1, N, (x, x, 1, N), priority=-1, name="soon")
    with g.compile(runtime=runtime, backend=graph_backend) as exe:
        exe.run()
    said = [record.getMessage() for record in caplog.records if "priority=-1" in record.getMessage()]
    assert bool(said) == ("priority_refused" in runtime.target.quirks)


@pytest.mark.parametrize("by_set", [False, True])
def test_a_graph_is_instantiated_afresh_after_a_number_of_updates(
    runtime: AmdRuntime, graph_backend: Any, monkeypatch: pytest.MonkeyPatch, by_set: bool
) -> None:
    monkeypatch.setattr(instance, "UPDATES_BEFORE_AFRESH", 5)
    g = hg.Graph("updated")
    x, y = g.device_array("x", numbers(1)), g.device_array("y", numbers(2))
    k = g.param("k", "int32", 0)
    mix = module()["mix"]
    g.kernel(mix, 1, N, (y, x, k, N), name="mix")
    expected = numbers(2)
    with g.compile(runtime=runtime, backend=graph_backend) as exe:
        for value in range(1, 21):
            if by_set:
                exe.set("mix", args=(y, x, value, N))
                exe.launch()
            else:
                exe.launch(k=value)
            mixed(expected, numbers(1), value)
        assert exe.read("y").tolist() == expected.tolist()
        afresh = "update_leaks" in runtime.target.quirks
        assert exe.stats.instantiations == (4 if afresh else 1)


def test_host_nodes_reach_memory_that_is_not_page_locked(runtime: AmdRuntime, graph_backend: Any) -> None:
    g = hg.Graph("pageable")
    h = g.host_array("h", numbers(1), pinned=False)
    g.host(lambda a: a.fill(3), args=(h,), name="filled")
    with g.compile(runtime=runtime, backend=graph_backend) as exe:
        exe.run()
        assert exe.read("h").tolist() == [3] * N


# -- examples ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SHORT)
def test_example_finds_its_own_numbers_right(
    runtime: AmdRuntime, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "04_wave2d":
        pytest.importorskip("matplotlib", reason="example 04 draws with matplotlib: the extra 'viz' is not installed")
    assert load(name).main(["--runtime", "amd", *SHORT[name]]) == 0, capsys.readouterr().out


EXAMPLE_SIZES = {**SMALL, "01_hip_graph_tutorial": {"size": 4096}, "02_concurrent_streams": {"size": 1024, "iterations": 12},
                 "03_overlap_pipeline": {"batch_size": 512}, "05_host_work_beside": {"size": 1024, "rounds": 4},
                 **{name: {"devices": 1, **SMALL[name]} for name in ("06_wave2d_devices", "09_conjugate_gradient")}}  # fmt: skip


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
@pytest.mark.parametrize("name", SHORT)
def test_example_computes_by_each_backend_what_it_does_serially(runtime: AmdRuntime, name: str, backend: Any) -> None:
    results = []
    for way in ("serial", backend):
        graph = load(name).build(**EXAMPLE_SIZES[name])
        with graph.compile(runtime=runtime, backend=way) as exe:
            for _ in range(3):
                exe.launch()
            results.append({array: exe.read(array).tobytes() for array in exe._own.memory.arrays})
    assert results[0] == results[1]


def sources() -> dict[str, tuple[Module, list[str], list[str]]]:
    """Return every module that an example or a conformance row compiles, with what is asked of it."""
    found: dict[str, tuple[Module, list[str], list[str]]] = {}
    graphs = [load(name).build(**EXAMPLE_SIZES[name]) for name in SHORT]
    graphs += [build(hg.Graph("case"), open_runtime("recorder")).graph for build in rows().values()]
    asked = [
        *(item for graph in graphs for item in modules_of(graph.workflow()).items()),
        (BUILT_IN, (list(BUILT_IN.kernels), [])),
    ]
    for made, (names, symbols) in asked:
        known = found.setdefault(made.source, (made, [], []))
        known[1].extend(name for name in names if name not in known[1])
        known[2].extend(name for name in symbols if name not in known[2])
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_of_examples_and_tests_compiles(architecture: str) -> None:
    try:
        compiler = load_hiprtc((7, 2))
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))
    for made, names, symbols in sources().values():
        code = compiler.compile(made.source, names, symbols, made.options, architecture=architecture, name=made.name)
        assert metadata(code.image)["amdhsa.target"].rpartition("--")[2].partition(":")[0] == architecture
        assert {code.lowered[name] for name in names} <= read_code_object(code.image).keys()


# -- failures ----------------------------------------------------------------------------------------------------------
MAKES = {
    "hipMalloc": "memory",
    "hipHostMalloc": "page-locked memory",
    "hipStreamCreateWithPriority": "stream",
    "hipEventCreateWithFlags": "event",
    "hipModuleLoadData": "module",
    "hipGraphCreate": "graph",
    "hipStreamEndCapture": "graph",
    "hipGraphInstantiateWithFlags": "executable",
    "hipHostRegister": "registration",
}
RETURNS = {
    "hipFree": "memory",
    "hipHostFree": "page-locked memory",
    "hipStreamDestroy": "stream",
    "hipEventDestroy": "event",
    "hipModuleUnload": "module",
    "hipGraphDestroy": "graph",
    "hipGraphExecDestroy": "executable",
    "hipHostUnregister": "registration",
}


class FailingCalls:
    """HIP's functions, of which the n-th call answers hipErrorOutOfMemory; one that returns something does so all the same.

    Questions whether a stream is done are not counted, because nobody knows how many there will be; they fail by `asking_fails`.
    """

    def __init__(self, calls: Any) -> None:
        self._calls = calls
        self.fail_at = 0
        self.asking_fails = False
        self.count = 0
        self.failed = ""
        self.living: Counter[str] = Counter()

    def exports(self, api: str) -> bool:
        return bool(self._calls.exports(api))

    def __getattr__(self, api: str) -> Any:
        function = getattr(self._calls, api)
        if api == "hipGetLastError":  # part of reporting an error
            return function
        if api == "hipStreamQuery" and not self.asking_fails:  # how often is left to chance
            return function

        def call(*args: Any) -> int:
            self.count += 1
            fails = self.count == self.fail_at or api == "hipStreamQuery"
            if fails:
                self.failed = api
            code = 0 if fails and api not in RETURNS else int(function(*args))
            if api in RETURNS:
                self.living[RETURNS[api]] -= 1
            if not fails and not code and api in MAKES:
                self.living[MAKES[api]] += 1
            return 2 if fails else code

        return call


@pytest.fixture
def failing(runtime: AmdRuntime, monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    assert runtime._callbacks.have_run()  # returns the streams of earlier tests that were blocked for long
    calls = FailingCalls(runtime._hip)
    monkeypatch.setattr(runtime, "_hip", calls)
    # Compiled code takes the addresses of the real functions.
    monkeypatch.setattr(runtime, "launcher", lambda slow: None)
    monkeypatch.setattr(runtime, "kernel_adder", lambda *_: None)
    return calls


def everything() -> tuple[hg.Graph, list[int]]:
    """Return a graph with a node of each kind that AMD has, in two branches, and what it calls on the host writes to."""
    seen: list[int] = []
    m = module()
    child = hg.Graph("child")
    cx = child.device_array("cx", numbers(1))
    child.memset(cx[:3], 7, name="set")
    g = hg.Graph("everything")
    h = g.host_array("h", numbers(1))
    x, y = g.device_array("x", numbers(2)), g.device_array("y", numbers(3))
    box = g.device_array("box", numbers(4, (4, 8)))
    flag = g.device_array("flag", np.zeros(2, "u4"))
    k = g.param("k", "int32", 1)
    t = g.alloc("t", N, "i4", name="make")
    g.memcpy(x, h, name="up")
    g.memcpy(t, x, name="keep")
    g.kernel(m["mix"], 1, N, (y, t, k, N), name="mix")
    g.free(t, name="drop")
    g.memset(box[1:3, 2:5], 3, name="box")
    g.memcpy(box[:2, :4], box[2:, 4:], name="move")
    g.child(child, bind={"cx": x}, name="inner")
    g.host(lambda a: seen.append(int(a[0])), args=(h,), reads=[h], name="look")
    g.memory_ops([hg.write_value(flag[0], 5)], name="flag")
    g.captured(
        lambda stream, dst, src: stream.runtime.memcpy_async(dst.ptr, src.ptr, dst.nbytes, MemcpyKind.DEFAULT, int(stream)),
        args=(y[:4], x[4:8]),
        reads=[x[4:8]],
        writes=[y[:4]],
        name="foreign",
    )
    g.record("e", after=["foreign"], name="record")
    g.memcpy(h, y, name="down")
    return g, seen


@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_each_call_fails_once_and_nothing_is_left_behind(runtime: AmdRuntime, failing: FailingCalls, backend: Any) -> None:
    graph, _ = everything()
    names = {node.name for node in graph.nodes} | {"inner/set"}
    with graph.compile(runtime=runtime, backend=backend) as exe:
        exe.run(k=2)
        exe.run(k=3)
        wanted = exe.read("h").tolist()
    assert not +failing.living
    while True:
        failing.fail_at += 1
        failing.count, failing.failed = 0, ""
        opened, raised, closing = None, None, False
        try:
            opened = graph.compile(runtime=runtime, backend=backend)
            opened.run(k=2)
            opened.run(k=3)
            opened.read("h")
            closing = True
            opened.close()
        except hg.HipError as error:
            raised = error
        if not failing.failed:
            assert raised is None
            break
        if raised is None:
            assert failing.failed in RETURNS, f"the failure of call {failing.fail_at}, {failing.failed}, was swallowed"
        else:
            assert (raised.api, raised.code) == (failing.failed, 2)
            of_a_node = "Add" in raised.api or raised.api in ("hipModuleLaunchKernel", "hipLaunchHostFunc", "hipMallocAsync")
            if of_a_node and not closing:  # closing asks with a host function of no node
                assert raised.node in names or str(raised.node).startswith("~"), raised
        if opened is not None:
            with contextlib.suppress(hg.HipError):
                opened.close()
        assert not +failing.living, f"after call {failing.fail_at}, {failing.failed}, failed"
        assert not -failing.living, f"returned twice after call {failing.fail_at}, {failing.failed}, failed"
    assert failing.fail_at > 50
    failing.fail_at, failing.asking_fails = 0, True
    with graph.compile(runtime=runtime, backend=backend) as exe:
        exe.launch(k=2)
        with pytest.raises(hg.HipError, match="hipStreamQuery"):
            exe.synchronize()
    assert not +failing.living
    # The process can go on.
    failing.asking_fails = False
    with graph.compile(runtime=runtime, backend=backend) as exe:
        exe.run(k=2)
        exe.run(k=3)
        assert exe.read("h").tolist() == wanted


# -- devices -----------------------------------------------------------------------------------------------------------
TWO_DEVICES = """
import threading
import hipgraphdsl as hg
from hipgraphdsl.runtimes import open_runtime
from conformance.spec import N, mixed, module, numbers
first, second = open_runtime("amd", 0), open_runtime("amd", 1)
expected = numbers(2)
for backend in ("explicit", "capture", "streams", "serial"):
    g = hg.Graph("second")
    x, y = g.device_array("x", numbers(1), device=1), g.device_array("y", expected.copy(), device=1)
    k = g.param("k", "int32", 1)
    g.kernel(module()["mix"], 1, N, (y, x, k, N))
    with g.compile(runtime="amd", backend=backend, device=1) as exe:
        first.set_device(0)
        for value in (1, 2):
            exe.run(k=value)
            mixed(expected, numbers(1), value)
        thread = threading.Thread(target=lambda: exe.run(k=3))
        thread.start(); thread.join()
        mixed(expected, numbers(1), 3)
        assert exe.read("y").tolist() == expected.tolist(), backend
print("right", first.get_device_count())
"""


def test_a_graph_runs_on_the_second_device_whatever_device_is_current(runtime: AmdRuntime) -> None:
    # On the stand-in the variable makes a second device; a machine with one GPU has none.
    ran = in_a_process(TWO_DEVICES, AMD_ON_CPU_DEVICES="2")
    if "where device 1 is asked for" in ran.stderr:
        pytest.skip("there is no second device")
    assert ran.stdout == "right 2\n", ran.stderr


# -- runtimes that are not there -----------------------------------------------------------------------------------------
def fails_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd, "_library_name", lambda: ("hip-python", "/nowhere/libamdhip64.so"))
    monkeypatch.setattr(amd, "mapped_libraries", lambda library: [])


def lacks_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", nothing)


def test_without_hip_python_the_binding_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        lacks_binding(patched)
        with pytest.raises(hg.RuntimeUnavailable, match="needs hip-python: pip install hip-python") as caught:
            AmdRuntime()
    assert (caught.value.runtime, caught.value.missing) == ("amd", "binding")


def test_without_libamdhip64_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_to_load(monkeypatch)
    with pytest.raises(hg.RuntimeUnavailable, match=r"/nowhere/libamdhip64.so.*install ROCm") as caught:
        AmdRuntime()
    assert (caught.value.runtime, caught.value.missing) == ("amd", "library")


NO_DEVICE = {"AMD_ON_CPU_DEVICES": "0", "HIP_VISIBLE_DEVICES": "-1"}
OPEN = """
import sys
from hipgraphdsl.errors import RuntimeUnavailable
from hipgraphdsl.runtimes.amd import AmdRuntime
try: AmdRuntime()
except RuntimeUnavailable as error: print(error.missing, error)
"""


def test_without_a_gpu_the_device_is_missing(runtime: AmdRuntime) -> None:
    ran = in_a_process(OPEN, **NO_DEVICE)
    assert ran.stdout.startswith("device runtime 'amd' has hip-python and libamdhip64"), ran.stdout + ran.stderr


@pytest.fixture
def workflow_file(tmp_path: Path) -> str:
    g = hg.Graph("small")
    g.memset(g.device_array("x", numbers(1)), 3)
    path = tmp_path / "small.json"
    path.write_text(g.to_json())
    return str(path)


@pytest.mark.parametrize("lacking", [lacks_binding, fails_to_load])
def test_run_on_a_runtime_that_is_not_there_ends_with_status_3(
    monkeypatch: pytest.MonkeyPatch, workflow_file: str, capsys: pytest.CaptureFixture[str],
    lacking: Callable[[pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    from hipgraphdsl import runtimes

    # Only after the command line is loaded, because it imports by name too.
    opened = {key: value for key, value in runtimes._opened.items() if key[0] != "amd"}
    monkeypatch.setattr(runtimes, "_opened", opened)

    def broken(device: int = 0) -> AmdRuntime:
        with monkeypatch.context() as patched:
            lacking(patched)
            return AmdRuntime(device)

    monkeypatch.setitem(runtimes.RUNTIMES, "amd", ("runtimes.amd", "broken"))
    monkeypatch.setattr(amd, "broken", broken, raising=False)
    assert main(["run", workflow_file, "--runtime", "amd"]) == 3
    assert "runtime 'amd'" in capsys.readouterr().err


def test_run_without_a_gpu_ends_with_status_3_and_auto_falls_to_the_cpu(runtime: AmdRuntime, workflow_file: str) -> None:
    run = "import sys; from hipgraphdsl.cli import main; sys.exit(main(sys.argv[1:]))"
    refused = in_a_process(run.replace("sys.argv[1:]", repr(["run", workflow_file, "--runtime", "amd"])), **NO_DEVICE)
    assert refused.returncode == 3, refused.stderr
    assert "runtime 'amd' has hip-python and libamdhip64" in refused.stderr
    info = in_a_process(run.replace("sys.argv[1:]", repr(["info"])), COLUMNS="300", **NO_DEVICE)
    assert info.returncode == 0, info.stderr
    said = " ".join(info.stdout.split())
    assert "but there is no device where device 0 is asked for" in said or "but no device answers" in said
    taken = in_a_process("import hipgraphdsl as hg; print(hg.open_runtime('auto').name)", **NO_DEVICE)
    assert taken.stdout in ("cpu\n", "nvidia\n"), taken.stderr


# -- the checklist -----------------------------------------------------------------------------------------------------
def test_the_checklist_of_hip_tests_names_tests_that_exist() -> None:
    checklist = (ROOT / "docs/hip_tests_checklist.md").read_text()
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    known = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", checklist))
    assert len(named) > 50
    assert named <= known
    for path in re.findall(r"\]\(\.\./(tests/[^)]*)\)", checklist):
        assert (ROOT / path).exists(), path


@pytest.fixture(autouse=True)
def _forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the first device current, whatever a test has done."""
    yield
    if "runtime" in request.fixturenames:
        request.getfixturevalue("runtime").set_device(0)
