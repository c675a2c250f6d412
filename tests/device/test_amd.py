"""What AMD's runtime does with the protocol's calls: explicit graphs, capture, read-back, errors, compilation."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_runtime import Raw, raw
from struct_layouts import STRUCT_LAYOUTS

from hipgraphdsl import Graph
from hipgraphdsl.defects import defects_for
from hipgraphdsl.errors import DeclarationError, HipError, RuntimeUnavailable
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.amd import AmdRuntime, load_hiprtc
from hipgraphdsl.runtimes.code_object import metadata, read_code_object
from hipgraphdsl.runtimes.data import (
    CaptureMode,
    CaptureStatus,
    Copy3D,
    Fill2D,
    HostParams,
    KernelParams,
    MemcpyKind,
    MemOp,
    NodeType,
)

ROOT = Path(__file__).parents[2]
H2D, D2H, D2D = MemcpyKind.HOST_TO_DEVICE, MemcpyKind.DEVICE_TO_HOST, MemcpyKind.DEVICE_TO_DEVICE

SCALE = """
extern "C" __global__ void scale(float* x, float a, size_t n) {
  size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * a + 1;
}"""
N = 1000


@pytest.fixture(scope="module")
def runtime() -> AmdRuntime:
    try:
        opened = open_runtime("amd")
    except RuntimeUnavailable as error:
        pytest.skip(str(error))
    assert isinstance(opened, AmdRuntime)
    return opened


@pytest.fixture
def device(runtime: AmdRuntime) -> Iterator[Raw]:
    with raw(runtime) as made:
        yield made


def amd(device: Raw) -> AmdRuntime:
    assert isinstance(device.runtime, AmdRuntime)
    return device.runtime


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    """Run what may leave the runtime unusable in a process of its own."""
    begin = "import ctypes\nfrom raw_runtime import Raw\nfrom hipgraphdsl.errors import *\n"
    begin += "from hipgraphdsl.runtimes.amd import AmdRuntime\nfrom hipgraphdsl.runtimes.data import *\n"
    begin += "r = AmdRuntime(); d = Raw(r)\n"
    paths = os.pathsep.join(path for path in (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")) if path)
    return subprocess.run(
        [sys.executable, "-c", begin + code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# -- opening -----------------------------------------------------------------------------------------------------------
def test_it_uses_the_library_of_hip_python_and_no_other(runtime: AmdRuntime) -> None:
    mapped = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "libamdhip64" in line}
    assert mapped == {runtime.describe()["library"]}


def test_handles_are_those_of_hip_python(device: Raw) -> None:
    # The same library is loaded, so its integer handles are what hip-python's functions take.
    hip = pytest.importorskip("hip.hip" if "hip.chip" in sys.modules else "rocm.bindings.hip")
    error = hip.hipStreamSynchronize(device.stream)[0]
    assert int(error) == 0


def test_it_names_its_device_version_and_defects(runtime: AmdRuntime) -> None:
    said = runtime.describe()
    assert re.fullmatch(r"amd:gfx[0-9a-f]+@\d+\.\d+", runtime.target.name)
    assert said["version"] == ".".join(map(str, runtime.runtime_get_version()))
    assert said["architecture"].partition(":")[0] == runtime.target.architecture
    assert {defect["id"] for defect in said["defects"]} == {defect.id for defect in defects_for(runtime.target)}
    assert {"update-leaks", "alloc-instantiates-once"} <= {defect["id"] for defect in said["defects"]}
    assert runtime.target.warp_size in (32, 64)
    assert runtime.target.multiprocessors > 0


def test_auto_takes_amd_where_its_device_answers(runtime: AmdRuntime) -> None:
    assert open_runtime("auto") is open_runtime("amd")


def test_a_device_that_is_not_there_is_refused_by_number(runtime: AmdRuntime) -> None:
    with pytest.raises(RuntimeUnavailable, match="device 63 is asked for") as caught:
        AmdRuntime(63)
    assert caught.value.missing == "device"


# -- structures --------------------------------------------------------------------------------------------------------
def test_struct_layouts_and_numbers_are_those_of_amds_header(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    header = next((p for p in ("/usr/include", "/opt/rocm/include") if Path(p, "hip/hip_runtime_api.h").exists()), None)
    if compiler is None or header is None:
        pytest.skip("AMD's header (libamdhip64-dev) or a C++ compiler is not there")
    version = Path(header, "hip/hip_version.h").read_text()
    major = int(re.search(r"HIP_VERSION_MAJOR (\d+)", version).group(1))  # type: ignore[union-attr]
    if major < 6:
        pytest.skip(f"the header is of HIP {major}, and runtime 'amd' needs 6.4 or newer")
    lines = ["#define __HIP_PLATFORM_AMD__", "#include <hip/hip_runtime_api.h>", "#include <cstddef>"]
    for name, (layout, fields) in STRUCT_LAYOUTS.items():
        lines.append(f'static_assert(sizeof({name}) == {layout.size}, "{name}");')
        lines += [f'static_assert(offsetof({name}, {at}) == {n}, "{name}.{at}");' for at, n in fields.items()]
    numbers = {
        "hipGraphNodeTypeKernel": NodeType.KERNEL, "hipGraphNodeTypeWaitEvent": NodeType.WAIT_EVENT,
        "hipGraphNodeTypeEventRecord": NodeType.EVENT_RECORD, "hipGraphNodeTypeGraph": NodeType.GRAPH,
        "hipGraphNodeTypeExtSemaphoreSignal": NodeType.EXT_SEMAPHORE_SIGNAL,
        "hipGraphNodeTypeExtSemaphoreWait": NodeType.EXT_SEMAPHORE_WAIT,
        "hipGraphNodeTypeMemAlloc": NodeType.MEM_ALLOC, "hipGraphNodeTypeMemFree": NodeType.MEM_FREE,
        "hipGraphNodeTypeBatchMemOp": NodeType.BATCH_MEM_OP, "hipMemcpyDefault": MemcpyKind.DEFAULT,
        "hipMemcpyDeviceToDevice": D2D, "hipStreamCaptureModeRelaxed": CaptureMode.RELAXED,
        "hipStreamCaptureStatusInvalidated": CaptureStatus.INVALIDATED, "hipErrorNotReady": 600,
        "hipErrorPeerAccessAlreadyEnabled": 704, "hipErrorNotSupported": 801, "hipErrorGraphExecUpdateFailure": 910,
        "hipStreamNonBlocking": 1, "hipEventDisableTiming": 2, "hipMemAllocationTypePinned": 1,
        "hipMemLocationTypeDevice": 1, "hipLaunchAttributeCooperative": 2, "hipLaunchAttributePriority": 8,
        "hipStreamMemOpWaitValue32": 1, "hipStreamMemOpWriteValue32": 2, "hipStreamMemOpWaitValue64": 4,
        "hipStreamMemOpWriteValue64": 5, "hipGraphExecUpdateErrorTopologyChanged": 2,
        "hipDeviceAttributeWarpSize": 87, "hipDeviceAttributeMultiprocessorCount": 63,
        "hipDeviceAttributeMaxSharedMemoryPerBlock": 74, "hipDeviceAttributeMaxThreadsPerBlock": 56,
        "hipDeviceAttributeMaxBlockDimX": 26, "hipDeviceAttributeMaxGridDimX": 29,
        "hipDeviceAttributeAsyncEngineCount": 2,
    }  # fmt: skip
    lines += [f'static_assert(int({name}) == {int(value)}, "{name}");' for name, value in numbers.items()]
    lines.append('static_assert(offsetof(hipDeviceProp_t, gcnArchName) == 1160, "gcnArchName");')
    lines.append("static_assert(hipStreamWaitValueGte == 0 && hipStreamWaitValueEq == 1);")
    lines.append("static_assert(hipStreamWaitValueAnd == 2 && hipStreamWaitValueNor == 3);")
    source = tmp_path / "layouts.cpp"
    source.write_text("\n".join(lines))
    ran = subprocess.run(
        [compiler, "-std=c++17", "-w", "-fsyntax-only", f"-I{header}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


# -- explicit graphs ---------------------------------------------------------------------------------------------------
def test_an_explicit_graph_of_every_plain_node_runs_in_order(device: Raw) -> None:
    runtime = amd(device)
    function = device.kernel(SCALE, "scale")
    seen: list[tuple[int, float]] = []
    host = device.host(np.arange(N, dtype="f4"))
    x, y = device.upload(np.zeros(N, "f4")), device.upload(np.zeros(N, "f4"))
    event = runtime.event_create()
    callback = device.callback(lambda token: seen.append((token, float(host[N - 1]))))
    child = runtime.graph_create()
    runtime.graph_add_kernel_node(
        child, (), function, (8, 1, 1), (128, 1, 1), 0, device.args(y, ctypes.c_float(2), ctypes.c_size_t(N))
    )
    graph = runtime.graph_create()
    up = runtime.graph_add_memcpy_node_1d(graph, (), x, host.ctypes.data, 4 * N, H2D)
    clear = runtime.graph_add_memset_node(graph, (), Fill2D(y, 4, 0, N))
    scale = runtime.graph_add_kernel_node(
        graph, (up,), function, (8, 1, 1), (128, 1, 1), 0, device.args(x, ctypes.c_float(3), ctypes.c_size_t(N))
    )
    join = runtime.graph_add_empty_node(graph, (scale, clear))
    copy = runtime.graph_add_memcpy_node_1d(graph, (join,), y, x, 4 * N, D2D)
    inner = runtime.graph_add_child_graph_node(graph, (copy,), child)
    down = runtime.graph_add_memcpy_node_1d(graph, (inner,), host.ctypes.data, y, 4 * N, D2H)
    record = runtime.graph_add_event_record_node(graph, (down,), event)
    wait = runtime.graph_add_event_wait_node(graph, (record,), event)
    call = runtime.graph_add_host_node(graph, (wait,), callback, 42)
    nodes = (up, clear, scale, join, copy, inner, down, record, wait, call)

    assert runtime.graph_get_nodes(graph) == nodes
    assert set(runtime.graph_get_edges(graph)) == {
        (up, scale), (scale, join), (clear, join), (join, copy), (copy, inner), (inner, down), (down, record),
        (record, wait), (wait, call),
    }  # fmt: skip
    assert [runtime.graph_node_get_type(node).name for node in nodes] == [
        "MEMCPY", "MEMSET", "KERNEL", "EMPTY", "MEMCPY", "GRAPH", "MEMCPY", "EVENT_RECORD", "WAIT_EVENT", "HOST",
    ]  # fmt: skip
    params = runtime.graph_kernel_node_get_params(scale)
    assert params == KernelParams(function, (8, 1, 1), (128, 1, 1), 0, params.args)
    copied = (ctypes.c_void_p * 3).from_address(params.args)
    assert ctypes.c_void_p.from_address(copied[0] or 0).value == x
    assert ctypes.c_float.from_address(copied[1] or 0).value == 3
    assert runtime.graph_memset_node_get_params(clear) == Fill2D(y, 4, 0, N, 1, 4 * N)
    assert runtime.graph_host_node_get_params(call) == HostParams(callback, 42)
    assert runtime.graph_event_record_node_get_event(record) == event
    assert runtime.graph_event_wait_node_get_event(wait) == event
    assert len(runtime.graph_get_nodes(runtime.graph_child_graph_node_get_graph(inner))) == 1

    device.run(graph)
    assert host.tolist() == ((np.arange(N, dtype="f4") * 3 + 1) * 2 + 1).tolist()
    assert seen == [(42, float((N - 1) * 3 + 1) * 2 + 1)]
    runtime.graph_destroy(child)
    runtime.event_destroy(event)


def test_pitched_copies_and_fills_reach_exactly_their_boxes(device: Raw) -> None:
    runtime = amd(device)
    source = np.arange(4 * 6 * 8, dtype="u1").reshape(4, 6, 8)
    target = np.zeros((5, 7, 16), "u1")
    src, dst = device.upload(source), device.upload(target)
    box = Copy3D(dst, 16, 7, src, 8, 6, 3, 2, 2, D2D, dst_pos=(4, 1, 2), src_pos=(2, 3, 1))
    graph = runtime.graph_create()
    copy = runtime.graph_add_memcpy_node(graph, (), box)
    fill = runtime.graph_add_memset_node(graph, (copy,), Fill2D(dst + 2, 1, 3, 5, 3, 16))
    assert runtime.graph_memcpy_node_get_params(copy) == box
    assert runtime.graph_memset_node_get_params(fill) == Fill2D(dst + 2, 1, 3, 5, 3, 16)
    device.run(graph)
    expected = target.copy()
    expected[2:4, 1:3, 4:7] = source[1:3, 3:5, 2:5]
    expected[0, :3, 2:7] = 3
    assert device.download(dst, target).tolist() == expected.tolist()

    runtime.memcpy_3d_async(box, device.stream)
    for size, value in ((1, 7), (2, 0x0304), (4, 0x05060708)):
        runtime.memset_async(Fill2D(dst, size, value, 2), device.stream)
        runtime.memset_async(Fill2D(dst + 16, size, value, 2, 2, 16), device.stream)
        runtime.stream_synchronize(device.stream)
        row = np.frombuffer(value.to_bytes(size, "little") * 2, "u1")
        got = device.download(dst, target)[0]
        assert [got[y, : 2 * size].tolist() for y in range(3)] == [row.tolist()] * 3


@pytest.mark.parametrize("size", [2, 4])
def test_a_fill_of_wide_elements_stays_in_its_rows_or_the_target_has_a_quirk(device: Raw, size: int) -> None:
    runtime = amd(device)
    target = np.zeros((3, 32), "u1")
    dst = device.upload(target)
    graph = runtime.graph_create()
    runtime.graph_add_memset_node(graph, (), Fill2D(dst, size, 1, 2, 3, 32))
    device.run(graph)
    row = np.zeros(32, "u1")
    row[[0, size]] = 1
    got = device.download(dst, target)
    assert got[:, 0].tolist() == [1, 1, 1]
    assert got.tolist() == [row.tolist()] * 3 or "memset_2d_elements" in runtime.target.quirks


def test_every_root_waits_for_the_launch_before_or_the_target_has_a_quirk(device: Raw) -> None:
    runtime = amd(device)
    gate = threading.Event()
    x = device.upload(np.zeros(4, "u4"))
    graph = runtime.graph_create()
    roots = [runtime.graph_add_memset_node(graph, (), Fill2D(x + 4 * i, 4, i + 1, 1)) for i in range(3)]
    runtime.graph_add_memset_node(graph, roots, Fill2D(x + 12, 4, 4, 1))
    graph_exec = runtime.graph_instantiate(graph)
    out = device.host(np.zeros(4, "u4"))
    other = runtime.stream_create()
    runtime.launch_host_func(device.stream, device.callback(lambda _: gate.wait(10)), 0)
    runtime.graph_launch(graph_exec, device.stream)
    time.sleep(0.05)
    runtime.memcpy_async(out.ctypes.data, x, 16, D2H, other)
    runtime.stream_synchronize(other)
    early = out.tolist()
    gate.set()
    runtime.stream_synchronize(device.stream)
    assert device.download(x, out).tolist() == [1, 2, 3, 4]
    assert early == [0, 0, 0, 0] or "parallel_roots" in runtime.target.quirks
    runtime.graph_exec_destroy(graph_exec)
    runtime.graph_destroy(graph)
    runtime.stream_destroy(other)


def test_a_host_node_that_is_set_leaves_launches_in_flight_alone_or_the_target_has_a_quirk(device: Raw) -> None:
    runtime = amd(device)
    gate = threading.Event()
    seen: list[int] = []
    wait, note = device.callback(lambda _: gate.wait(10)), device.callback(seen.append)
    graph = runtime.graph_create()
    first = runtime.graph_add_host_node(graph, (), wait, 0)
    second = runtime.graph_add_host_node(graph, (first,), note, 1)
    graph_exec = runtime.graph_instantiate(graph)
    runtime.graph_launch(graph_exec, device.stream)
    runtime.graph_exec_host_node_set_params(graph_exec, second, note, 2)
    gate.set()
    runtime.stream_synchronize(device.stream)
    runtime.graph_launch(graph_exec, device.stream)
    runtime.stream_synchronize(device.stream)
    assert seen == [1, 2] or (seen == [2, 2] and "host_update_in_flight" in runtime.target.quirks)
    runtime.graph_exec_destroy(graph_exec)
    runtime.graph_destroy(graph)


def test_a_fill_may_end_with_the_allocation_or_the_target_has_a_quirk(device: Raw) -> None:
    runtime = amd(device)
    dst = device.upload(np.zeros(9, "u1"))
    graph = runtime.graph_create()
    try:
        runtime.graph_add_memset_node(graph, (), Fill2D(dst, 1, 3, 1, 5, 2))
    except HipError:
        if "memset_2d_whole_rows" not in runtime.target.quirks:
            raise
    device.run(graph)


def test_a_pitched_copy_may_end_with_the_allocation(device: Raw) -> None:
    runtime = amd(device)
    source = np.arange(9, dtype="u1")
    src, dst = device.upload(source), device.upload(np.zeros(9, "u1"))
    graph = runtime.graph_create()
    runtime.graph_add_memcpy_node(graph, (), Copy3D(dst, 2, 5, src, 2, 5, 1, 5, 1, D2D))
    device.run(graph)
    assert device.download(dst, source).tolist() == [0, 0, 2, 0, 4, 0, 6, 0, 8]
    runtime.memcpy_3d_async(Copy3D(dst, 2, 5, src, 2, 5, 1, 5, 1, D2D), device.stream)
    runtime.stream_synchronize(device.stream)


@pytest.mark.parametrize("to_locked", [False, True])
def test_host_memory_of_both_kinds_can_be_copied_or_the_target_has_a_quirk(device: Raw, to_locked: bool) -> None:
    runtime = amd(device)
    locked, paged = device.host(np.arange(8, dtype="u1")), np.arange(8, 16, dtype="u1")
    dst, src = (locked, paged) if to_locked else (paged, locked)
    graph = runtime.graph_create()
    try:
        runtime.graph_add_memcpy_node_1d(graph, (), dst.ctypes.data, src.ctypes.data, 8, MemcpyKind.HOST_TO_HOST)
    except HipError:
        if "host_copy_kind" not in runtime.target.quirks:
            raise
    runtime.graph_add_memcpy_node_1d(graph, (), dst.ctypes.data, src.ctypes.data, 8, MemcpyKind.DEFAULT)
    device.run(graph)
    assert dst.tolist() == src.tolist()


def test_freed_memory_is_not_given_to_a_stream_that_does_not_wait_for_its_use_or_the_target_has_a_quirk(device: Raw) -> None:
    runtime = amd(device)
    a, b, c = (runtime.stream_create() for _ in range(3))
    before = runtime.event_create(timing=False)
    done = runtime.event_create(timing=False)
    gate = threading.Event()
    runtime.event_record(before, a)  # nothing of what follows
    pointer = runtime.malloc_async(1 << 16, a)
    runtime.event_record(done, a)
    runtime.stream_wait_event(b, done)
    runtime.launch_host_func(b, device.callback(lambda _: gate.wait(10)), 0)
    runtime.memset_async(Fill2D(pointer, 1, 1, 1 << 16), b)
    runtime.free_async(pointer, b)
    runtime.stream_wait_event(c, before)
    again = runtime.malloc_async(1 << 16, c)  # b still uses the first one
    gate.set()
    for stream in (a, b, c):
        runtime.stream_synchronize(stream)
    assert again != pointer or "pool_reuse_early" in runtime.target.quirks
    runtime.free_async(again, c)
    runtime.stream_synchronize(c)
    for stream in (a, b, c):
        runtime.stream_destroy(stream)
    for event in (before, done):
        runtime.event_destroy(event)


def test_an_allocation_of_the_graph_has_its_address_when_it_is_added(device: Raw) -> None:
    runtime = amd(device)
    function = device.kernel(SCALE, "scale")
    host = device.host(np.arange(N, dtype="f4"))
    graph = runtime.graph_create()
    alloc, pointer = runtime.graph_add_mem_alloc_node(graph, (), 4 * N, 0)
    assert pointer
    up = runtime.graph_add_memcpy_node_1d(graph, (alloc,), pointer, host.ctypes.data, 4 * N, H2D)
    args = device.args(pointer, ctypes.c_float(2), ctypes.c_size_t(N))
    scale = runtime.graph_add_kernel_node(graph, (up,), function, (8, 1, 1), (128, 1, 1), 0, args)
    down = runtime.graph_add_memcpy_node_1d(graph, (scale,), host.ctypes.data, pointer, 4 * N, D2H)
    free = runtime.graph_add_mem_free_node(graph, (down,), pointer)
    assert runtime.graph_mem_alloc_node_get_params(alloc) == (pointer, 4 * N)
    assert runtime.graph_mem_free_node_get_params(free) == pointer
    graph_exec = runtime.graph_instantiate(graph)
    with pytest.raises(HipError) as caught:
        runtime.graph_instantiate(graph)
    assert (caught.value.api, caught.value.name) == ("hipGraphInstantiateWithFlags", "hipErrorNotSupported")
    for _ in range(3):
        runtime.graph_launch(graph_exec, device.stream)
    runtime.stream_synchronize(device.stream)
    x = np.arange(N, dtype="f4")
    for _ in range(3):
        x = x * 2 + 1
    assert host.tolist() == x.tolist()
    runtime.graph_exec_destroy(graph_exec)
    runtime.graph_destroy(graph)


def test_memory_operations_are_nodes(device: Raw) -> None:
    runtime = amd(device)
    words = device.upload(np.zeros(4, "u4"))
    graph = runtime.graph_create()
    write = runtime.graph_add_batch_mem_op_node(graph, (), [MemOp("write", words, 7, 4), MemOp("write", words + 8, 1 << 40, 8)])
    runtime.graph_add_batch_mem_op_node(graph, (write,), [MemOp("wait", words, 7, 4, "eq")])
    assert runtime.graph_node_get_type(write) is NodeType.BATCH_MEM_OP
    device.run(graph)
    assert device.download(words, np.zeros(4, "u4")).tolist() == [7, 0, 0, 256]
    runtime.stream_batch_mem_op(device.stream, [MemOp("write", words + 4, 9, 4), MemOp("wait", words + 4, 8, 4, "geq")])
    runtime.stream_synchronize(device.stream)
    assert device.download(words, np.zeros(4, "u4"))[1] == 9


def test_symbols_are_copied_through_their_addresses(device: Raw) -> None:
    runtime = amd(device)
    source = """
    __constant__ float table[4];
    extern "C" __global__ void use(float* x) { x[threadIdx.x] += table[threadIdx.x]; }"""
    module = device.compile(source, "use", symbols=("table",))
    table, nbytes = runtime.module_get_global(module, "table")
    host = device.host(np.array([1, 2, 3, 4], "f4"))
    x = device.upload(np.zeros(4, "f4"))
    graph = runtime.graph_create()
    up = runtime.graph_add_memcpy_node_1d(graph, (), table, host.ctypes.data, nbytes, H2D)
    function = runtime.module_get_function(module, "use")
    runtime.graph_add_kernel_node(graph, (up,), function, (1, 1, 1), (4, 1, 1), 0, device.args(x))
    device.run(graph, launches=2)
    assert device.download(x, host).tolist() == [2, 4, 6, 8]


# -- executables -------------------------------------------------------------------------------------------------------
def test_nodes_of_an_executable_are_set_and_disabled(device: Raw) -> None:
    runtime = amd(device)
    function = device.kernel(SCALE, "scale")
    a, b = device.upload(np.ones(N, "f4")), device.upload(np.full(N, 5, "f4"))
    out = device.host(np.zeros(N, "f4"))
    seen: list[int] = []
    callback = device.callback(seen.append)
    graph = runtime.graph_create()
    fill = runtime.graph_add_memset_node(graph, (), Fill2D(a, 4, 0, N))
    scale = runtime.graph_add_kernel_node(
        graph, (fill,), function, (8, 1, 1), (128, 1, 1), 0, device.args(a, ctypes.c_float(2), ctypes.c_size_t(N))
    )
    down = runtime.graph_add_memcpy_node_1d(graph, (scale,), out.ctypes.data, a, 4 * N, D2H)
    host = runtime.graph_add_host_node(graph, (down,), callback, 1)
    graph_exec = runtime.graph_instantiate(graph)

    def launched() -> float:
        runtime.graph_launch(graph_exec, device.stream)
        runtime.stream_synchronize(device.stream)
        assert (out == out[0]).all()
        return float(out[0])

    assert launched() == 1
    runtime.graph_exec_memset_node_set_params(graph_exec, fill, Fill2D(a, 4, 0x40000000, N))
    assert launched() == 5
    runtime.graph_exec_kernel_node_set_params(
        graph_exec, scale, function, (8, 1, 1), (128, 1, 1), 0, device.args(a, ctypes.c_float(4), ctypes.c_size_t(N))
    )
    assert launched() == 9
    runtime.graph_node_set_enabled(graph_exec, scale, False)
    assert launched() == 2
    runtime.graph_node_set_enabled(graph_exec, scale, True)
    assert launched() == 9
    runtime.graph_exec_memcpy_node_set_params_1d(graph_exec, down, out.ctypes.data, b, 4 * N, D2H)
    runtime.graph_exec_host_node_set_params(graph_exec, host, callback, 2)
    assert launched() == 5
    assert seen == [1, 1, 1, 1, 1, 2]
    with pytest.raises(HipError):
        runtime.graph_node_set_enabled(graph_exec, host, False)
    runtime.graph_exec_destroy(graph_exec)
    runtime.graph_destroy(graph)


def test_other_python_threads_run_while_one_waits(device: Raw) -> None:
    # With the GIL held in hipStreamSynchronize this would be a deadlock, not a failure.
    runtime = amd(device)
    names: list[str] = []
    done = threading.Event()

    def report(_: int) -> None:
        time.sleep(0.05)
        names.append(threading.current_thread().name)
        done.set()

    runtime.launch_host_func(device.stream, device.callback(report), 0)
    assert not runtime.stream_query(device.stream) or done.is_set()
    runtime.stream_synchronize(device.stream)
    assert done.is_set()
    assert names != [threading.current_thread().name]
    assert runtime.stream_wait(device.stream, 1.0)


# -- capture -----------------------------------------------------------------------------------------------------------
def test_a_forked_and_joined_capture_becomes_the_graph_that_was_meant(device: Raw) -> None:
    runtime = amd(device)
    function = device.kernel(SCALE, "scale")
    a, b = device.upload(np.ones(N, "f4")), device.upload(np.ones(N, "f4"))
    out = device.host(np.zeros(N, "f4"))
    side = runtime.stream_create()
    fork, join = runtime.event_create(timing=False), runtime.event_create(timing=False)
    handles: list[int] = []

    def recorded(stream: int) -> None:
        info = runtime.stream_get_capture_info(stream)
        assert info.status is CaptureStatus.ACTIVE
        handles.extend(info.dependencies)

    runtime.stream_begin_capture(device.stream)
    runtime.memset_async(Fill2D(a, 4, 0, N), device.stream)
    recorded(device.stream)
    runtime.event_record(fork, device.stream)
    runtime.stream_wait_event(side, fork)
    args = device.args(b, ctypes.c_float(2), ctypes.c_size_t(N))
    runtime.module_launch_kernel(function, (8, 1, 1), (128, 1, 1), 0, side, args)
    recorded(side)
    args = device.args(a, ctypes.c_float(2), ctypes.c_size_t(N))
    runtime.module_launch_kernel(function, (8, 1, 1), (128, 1, 1), 0, device.stream, args)
    recorded(device.stream)
    runtime.event_record(join, side)
    runtime.stream_wait_event(device.stream, join)
    runtime.memcpy_async(out.ctypes.data, b, 4 * N, D2H, device.stream)
    recorded(device.stream)
    graph = runtime.stream_end_capture(device.stream)

    fill, on_side, on_main, copy = handles
    assert set(runtime.graph_get_nodes(graph)) == set(handles)
    assert set(runtime.graph_get_edges(graph)) == {(fill, on_side), (fill, on_main), (on_side, copy), (on_main, copy)}
    assert [runtime.graph_node_get_type(node).name for node in handles] == ["MEMSET", "KERNEL", "KERNEL", "MEMCPY"]
    graph_exec = runtime.graph_instantiate(graph)
    runtime.graph_exec_kernel_node_set_params(
        graph_exec, on_side, function, (8, 1, 1), (128, 1, 1), 0,
        device.args(b, ctypes.c_float(6), ctypes.c_size_t(N)),
    )  # fmt: skip
    runtime.graph_launch(graph_exec, device.stream)
    runtime.stream_synchronize(device.stream)
    assert out.tolist() == [7] * N
    assert runtime.stream_get_capture_info(device.stream).status is CaptureStatus.NONE
    runtime.graph_exec_destroy(graph_exec)
    runtime.graph_destroy(graph)
    runtime.stream_destroy(side)
    for event in (fork, join):
        runtime.event_destroy(event)


def test_dependencies_of_a_capture_can_be_replaced(device: Raw) -> None:
    runtime = amd(device)
    x = device.upload(np.zeros(8, "u4"))
    runtime.stream_begin_capture(device.stream)
    runtime.memset_async(Fill2D(x, 4, 1, 4), device.stream)
    info = runtime.stream_get_capture_info(device.stream)
    added = runtime.graph_add_memset_node(info.graph, info.dependencies, Fill2D(x + 16, 4, 2, 4))
    runtime.stream_update_capture_dependencies(device.stream, (added,), replace=True)
    assert runtime.stream_get_capture_info(device.stream).dependencies == (added,)
    graph = runtime.stream_end_capture(device.stream)
    assert runtime.graph_get_edges(graph) == ((info.dependencies[0], added),)
    device.run(graph)
    assert device.download(x, np.zeros(8, "u4")).tolist() == [1] * 4 + [2] * 4


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("r.malloc(64)", 900),
        ("r.stream_synchronize(s)", 900),
        ("r.stream_query(s)", 900),
        ("(code := r._hip._library.hipDeviceSynchronize()) and r._fail('', code)", 900),
        ("r.memcpy(p, p + 64, 64, MemcpyKind.DEVICE_TO_DEVICE)", 906),
    ],
)
def test_a_forbidden_call_spoils_the_capture_and_says_so(runtime: AmdRuntime, call: str, code: int) -> None:
    ran = in_a_process(f"""
p = r.malloc(256); s = r.stream_create(); codes = []
r.stream_begin_capture(s)
for act in (lambda: {call}, lambda: r.stream_end_capture(s)):
    try: act()
    except HipError as error: codes.append(error.code)
print(codes)
""")
    assert ran.stdout == f"[{code}, 901]\n", ran.stderr


def test_an_unjoined_fork_is_error_904(runtime: AmdRuntime) -> None:
    ran = in_a_process("""
p = r.malloc(256); s, t = r.stream_create(), r.stream_create(); e = r.event_create(False)
r.stream_begin_capture(s); r.event_record(e, s); r.stream_wait_event(t, e)
r.memset_async(Fill2D(p, 1, 0, 64), t)
try: r.stream_end_capture(s)
except HipError as error: print(error.api, error.code, error.name, flush=True)
import os; os._exit(0)
""")
    assert ran.stdout == "hipStreamEndCapture 904 hipErrorStreamCaptureUnjoined\n", ran.stderr


RING = """
import os
by_events = {by_events}
p = r.malloc(4096); origin = r.stream_create(); lanes = [r.stream_create() for _ in range(3)]
def wait(stream, source):
    event = r.event_create(timing=False); r.event_record(event, source); r.stream_wait_event(stream, event)
def after(stream, source):
    if by_events: wait(stream, source)
    else: r.stream_update_capture_dependencies(stream, r.stream_get_capture_info(source).dependencies, replace=False)
r.stream_begin_capture(origin); r.memset_async(Fill2D(p, 1, 0, 64), origin)
for lane in lanes: wait(lane, origin)
for lane in lanes: r.memset_async(Fill2D(p, 1, 0, 64), lane)
for lane, source in zip(lanes, lanes[-1:] + lanes): after(lane, source)
for lane in lanes: r.memset_async(Fill2D(p, 1, 0, 64), lane)
for lane in lanes: wait(origin, lane)
r.memset_async(Fill2D(p, 1, 0, 64), origin)
print(len(r.graph_get_nodes(r.stream_end_capture(origin))), flush=True)
os._exit(0)
"""


def test_forked_streams_are_ordered_by_dependencies_in_any_pattern(runtime: AmdRuntime) -> None:
    ran = in_a_process(RING.format(by_events=False))
    assert ran.stdout == "8\n", ran.stderr


def test_a_ring_of_waits_is_captured_or_the_target_has_a_quirk(runtime: AmdRuntime) -> None:
    ran = in_a_process(RING.format(by_events=True))
    assert ran.stdout == "8\n" or "capture-wait-ring" in {defect.id for defect in defects_for(runtime.target)}


CHILDREN = """
p = r.malloc(64); s = r.stream_create(); graph, deps = r.graph_create(), []
for k in range({count}):
    r.stream_begin_capture(s); r.memset_async(Fill2D(p, 1, k, 64), s); child = r.stream_end_capture(s)
    deps = [r.graph_add_child_graph_node(graph, deps, child)]
exe = r.graph_instantiate(graph); r.graph_launch(exe, s); r.stream_synchronize(s); print("done", flush=True)
import os; os._exit(0)
"""


def test_a_chain_of_fifteen_child_graphs_runs(runtime: AmdRuntime) -> None:
    ran = in_a_process(CHILDREN.format(count=15))
    assert ran.stdout == "done\n", ran.stderr


def test_a_chain_of_many_child_graphs_runs_or_the_target_has_a_quirk(runtime: AmdRuntime) -> None:
    ran = in_a_process(CHILDREN.format(count=32))
    assert ran.stdout == "done\n" or "child_fallback_crash" in runtime.target.quirks


def test_many_captured_nodes_run_in_their_order(runtime: AmdRuntime) -> None:
    g = Graph("many")
    x = g.device_array("x", shape=64, dtype="uint8")

    def fill(value: int) -> Callable[[Any, Any], None]:
        return lambda stream, x: runtime.memset_async(Fill2D(int(x), 1, value, 64), int(stream))

    for k in range(32):
        g.captured(fill(k), (x,), writes=[x], name=f"set_{k}")
    with g.compile(runtime) as exe:
        exe.run()
        assert (exe.read("x") == 31).all()
        assert ('became "capture"' in exe.plan.explain()) == ("child_fallback_crash" in runtime.target.quirks)


DESTROYED = """
import os, threading, time
p = r.malloc(64); called = []
call = d.callback(lambda _: called.append(1))
def branches():
    graph = r.graph_create()
    for _ in range(3):
        before = ()
        for _ in range(2):
            before = (r.graph_add_host_node(graph, before, call, 0),)
            before = (r.graph_add_memset_node(graph, before, Fill2D(p, 1, 0, 64)),)
    return r.graph_instantiate(graph)
def launch(exe):
    r.graph_launch(exe, d.stream)
    end = time.monotonic() + 10
    while not r.stream_query(d.stream):
        if time.monotonic() > end: print("hangs", flush=True); os._exit(0)
exe = branches()
"""


def test_executables_are_destroyed_between_launches_with_host_functions(runtime: AmdRuntime) -> None:
    # Without waiting for callbacks one of 300 such launches hangs in half of the runs.
    ran = in_a_process(f"""{DESTROYED}
for _ in range(600):
    launch(exe); old, exe = exe, branches(); r.graph_exec_destroy(old)
print(len(called), len(r._retired), flush=True); os._exit(0)
""")
    assert ran.stdout == "3600 0\n", ran.stderr


def test_an_executable_is_destroyed_later_where_a_host_function_runs_for_long(runtime: AmdRuntime) -> None:
    ran = in_a_process(f"""{DESTROYED}
launch(exe)
busy, begun, go = r.stream_create(), threading.Event(), threading.Event()
r.launch_host_func(busy, d.callback(lambda _: (begun.set(), go.wait(20))), 0); begun.wait(20)
r.graph_exec_destroy(exe); print(len(r._retired), flush=True)
go.set(); r.stream_synchronize(busy)
exe = branches(); launch(exe); r.graph_exec_destroy(exe); print(len(r._retired), flush=True); os._exit(0)
""")
    assert ran.stdout == "1\n0\n", ran.stderr


# -- errors ------------------------------------------------------------------------------------------------------------
def test_an_error_names_its_call_and_leaves_none_behind(device: Raw) -> None:
    runtime = amd(device)
    graph = runtime.graph_create()
    with pytest.raises(HipError) as caught:
        runtime.graph_add_memcpy_node_1d(graph, (), 0, 0, 4, D2H)
    error = caught.value
    assert (error.api, error.code, error.name) == ("hipGraphAddMemcpyNode1D", 1, "hipErrorInvalidValue")
    assert "invalid argument" in str(error)
    assert runtime._hip.hipGetLastError() == 0
    runtime.graph_destroy(graph)


def test_cycles_and_duplicate_edges_are_refused(device: Raw) -> None:
    runtime = amd(device)
    graph = runtime.graph_create()
    a = runtime.graph_add_empty_node(graph, ())
    b = runtime.graph_add_empty_node(graph, (a,))
    with pytest.raises(HipError) as caught:
        runtime.graph_add_dependencies(graph, (a,), (b,))
    assert caught.value.code == 1
    runtime.graph_add_dependencies(graph, (b,), (a,))
    with pytest.raises(HipError) as caught:
        runtime.graph_instantiate(graph)
    assert (caught.value.api, caught.value.code) == ("hipGraphInstantiateWithFlags", 1)
    runtime.graph_destroy(graph)


@pytest.mark.parametrize("flags", [0, 1, 8])
def test_single_flags_instantiate(device: Raw, flags: int) -> None:
    runtime = amd(device)
    graph = runtime.graph_create()
    runtime.graph_add_empty_node(graph, ())
    runtime.graph_exec_destroy(runtime.graph_instantiate(graph, flags))
    for refused in (2, 4, 16):
        with pytest.raises(HipError):
            runtime.graph_instantiate(graph, refused)
    runtime.graph_destroy(graph)


def test_events_time_what_lies_between_them(device: Raw) -> None:
    runtime = amd(device)
    start, stop = runtime.event_create(), runtime.event_create()
    runtime.event_record(start, device.stream)
    runtime.launch_host_func(device.stream, device.callback(lambda _: time.sleep(0.02)), 0)
    runtime.event_record(stop, device.stream)
    runtime.event_synchronize(stop)
    assert runtime.event_elapsed_time(start, stop) > 10
    for event in (start, stop):
        runtime.event_destroy(event)


def test_stream_ordered_memory_is_allocated_and_freed(device: Raw) -> None:
    runtime = amd(device)
    pointer = runtime.malloc_async(4096, device.stream)
    runtime.memset_async(Fill2D(pointer, 1, 5, 4096), device.stream)
    out = device.host(np.zeros(4096, "u1"))
    runtime.memcpy_async(out.ctypes.data, pointer, 4096, D2H, device.stream)
    runtime.free_async(pointer, device.stream)
    runtime.stream_synchronize(device.stream)
    assert (out == 5).all()
    free, total = runtime.mem_get_info()
    assert 0 < free <= total


# -- compilation -------------------------------------------------------------------------------------------------------
def hiprtc_version() -> tuple[int, ...]:
    """Return the version of the HIP runtime that hip-python finds; a device is not needed."""
    from hipgraphdsl.runtimes.amd import _load_library
    from hipgraphdsl.runtimes.hip_calls import HipCalls

    out = ctypes.c_int()
    HipCalls(_load_library()[1], "libamdhip64").hipRuntimeGetVersion(ctypes.byref(out))
    return (out.value // 10_000_000, out.value // 100_000 % 100)


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_kernels_compile_for_an_architecture_without_its_device(architecture: str) -> None:
    try:
        compiler = load_hiprtc(hiprtc_version())
    except RuntimeUnavailable as error:
        pytest.skip(str(error))
    code = compiler.compile(SCALE, ["scale"], architecture=architecture)
    assert read_code_object(code.image)["scale"] == ((0, 8), (8, 4), (16, 8))
    told = metadata(code.image)
    assert told["amdhsa.target"].rpartition("--")[2].partition(":")[0] == architecture
    (kernel,) = told["amdhsa.kernels"]
    assert [argument[".value_kind"] == "global_buffer" for argument in kernel[".args"][:3]] == [True, False, False]
    assert kernel[".wavefront_size"] == (64 if architecture.startswith("gfx9") else 32)


def test_a_compiler_error_has_the_users_line(runtime: AmdRuntime) -> None:
    source = 'extern "C" __global__ void wrong(float* x) {\n  int fine = 1;\n  x[0] = missing;\n}'
    with pytest.raises(DeclarationError, match=r"line 3, use of undeclared identifier 'missing': x\[0\] = missing;"):
        runtime.rtc_compile(source, ["wrong"])


def test_a_kernel_that_the_source_lacks_is_named(runtime: AmdRuntime) -> None:
    with pytest.raises(DeclarationError, match=r"module 'wave' lacks what is asked of it .*'other'"):
        runtime.rtc_compile(SCALE, ["other"], name="wave")


def test_an_architecture_among_the_options_is_refused(runtime: AmdRuntime) -> None:
    with pytest.raises(DeclarationError, match="names an architecture"):
        runtime.rtc_compile(SCALE, ["scale"], options=["--offload-arch=gfx90a"])


def test_a_compilation_is_kept_on_disk_and_a_damaged_file_is_made_again(
    runtime: AmdRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    first = runtime.rtc_compile(SCALE, ["scale"], options=["-DKEPT=1"])
    (kept,) = (tmp_path / "hiprtc").iterdir()
    stamp = kept.stat().st_mtime_ns
    assert runtime.rtc_compile(SCALE, ["scale"], options=["-DKEPT=1"]) == first
    assert kept.stat().st_mtime_ns == stamp
    runtime.rtc_compile(SCALE, ["scale"], options=["-DKEPT=2"])
    assert len(list((tmp_path / "hiprtc").iterdir())) == 2
    kept.write_bytes(kept.read_bytes()[:-100])
    assert runtime.rtc_compile(SCALE, ["scale"], options=["-DKEPT=1"]).lowered == first.lowered
    assert kept.stat().st_mtime_ns != stamp


def test_a_code_object_tells_what_its_kernels_take(runtime: AmdRuntime) -> None:
    arguments = read_code_object(runtime.rtc_compile(SCALE, ["scale"]).image)["scale"]
    assert [nbytes for _, nbytes in arguments] == [8, 4, 8]
