"""Several devices in one graph: on as many as the CPU runtime is told to have, and on real ones where there are at least two."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg
from benchmarks import devices as bench_devices
from hipgraphdsl.arrays import ExternalArray
from hipgraphdsl.backends import explicit
from hipgraphdsl.defects import with_quirks
from hipgraphdsl.executable import devices as executable_devices
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.parts.fast.extension import native
from hipgraphdsl.parts.recorder.recorder import RecorderRuntime
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import Fill2D, MemcpyKind
from hipgraphdsl.target import Target

Backend = Literal["explicit", "capture", "streams", "serial"]
BACKENDS: tuple[Backend, ...] = ("explicit", "capture", "streams", "serial")
EXAMPLES = Path(__file__).parents[2] / "examples"
N = 1024
SOURCE = r"""
__device__ float factor;
extern "C" __global__ void scale(float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
extern "C" __global__ void add(const float* x, const float* y, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void by_factor(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}
"""
MODULE = hg.Module(SOURCE, name="devices")
RAMP = np.arange(N, dtype="float32")


@pytest.fixture(scope="module", params=["cpu", "nvidia", "amd"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    found = runtime_or_skip(request.param)
    before = found.get_device_count()
    if isinstance(found, CpuRuntime):
        found.set_device_count(max(4, before))
    elif before < 2:
        pytest.skip(f"runtime {request.param!r} has {before} device, and two are needed")
    yield found
    if isinstance(found, CpuRuntime):
        found.set_device_count(before)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param  # type: ignore[no-any-return]


def scale(g: hg.Graph, x: Any, a: Any, **options: Any) -> hg.KernelNode:
    return g.kernel(MODULE["scale"], N // 256, 256, (x, a, N), **options)


def add(g: hg.Graph, x: Any, y: Any, out: Any, **options: Any) -> hg.KernelNode:
    return g.kernel(MODULE["add"], N // 256, 256, (x, y, out, N), **options)


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- what runs where ---------------------------------------------------------------------------------------------------


def test_each_kernel_runs_where_its_array_is(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("apart")
    arrays = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d, x in enumerate(arrays):
        scale(g, x, 2.0 + d)
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        exe.run()
        for d in (0, 1):
            assert np.array_equal(exe.read(f"x{d}"), RAMP * (2 + d) ** 2)


def test_memcpy_between_devices_moves_every_byte(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("peer")
    values = np.arange(24 * 32 * 16, dtype="float32").reshape(24, 32, 16)
    a = g.device_array("a", values, device=0)
    b = g.device_array("b", shape=values.shape, dtype="float32", device=1)
    c = g.device_array("c", shape=values.shape, dtype="float32", device=0)
    g.memcpy(b[:12], a[:12])  # one run of bytes
    g.memcpy(b[12:18, 4:20, 0], a[12:18, 4:20, 0])  # rows and slices
    g.memcpy(b[20], a[20], device=0)  # pushed by the source
    g.memcpy(c[:, 1:9], b[:, 1:9])
    expected_b = np.zeros_like(values)
    expected_b[:12] = values[:12]
    expected_b[12:18, 4:20, 0] = values[12:18, 4:20, 0]
    expected_b[20] = values[20]
    expected_c = np.zeros_like(values)
    expected_c[:, 1:9] = expected_b[:, 1:9]
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        assert np.array_equal(exe.read("b"), expected_b)
        assert np.array_equal(exe.read("c"), expected_c)


def test_memsets_of_every_kind_fill_the_device_of_their_array(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("fills")
    for d in (0, 1):
        g.memset(g.device_array(f"bytes{d}", shape=100, dtype="uint8", device=d), 7 + d)
        g.memset(g.device_array(f"rows{d}", shape=(8, 64), dtype="int32", device=d)[2:5, 3:9], 5 + d)
        g.memset(g.device_array(f"wide{d}", shape=33, dtype="float64", device=d), 0.1 + d)  # by the fill kernel
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        for d in (0, 1):
            assert (exe.read(f"bytes{d}") == 7 + d).all()
            rows = np.zeros((8, 64), "int32")
            rows[2:5, 3:9] = 5 + d
            assert np.array_equal(exe.read(f"rows{d}"), rows)
            assert (exe.read(f"wide{d}") == 0.1 + d).all()


def test_kernel_reaches_another_device_that_grants_access(runtime: Runtime, backend: Backend) -> None:
    if not runtime.device_can_access_peer(0, 1):
        pytest.skip("devices 0 and 1 have no peer access")
    g = hg.Graph("reach")
    near = g.device_array("near", RAMP, device=0)
    far = g.device_array("far", RAMP * 3, device=1, access=[0])
    out = g.device_array("out", shape=N, dtype="float32", device=0)
    scale(g, far, 2.0)
    node = add(g, near, far, out)
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        assert np.array_equal(exe.read("out"), 7 * RAMP)
        assert exe.plan.steps[exe.plan.index[node.name]].device == 0


@pytest.mark.parametrize("pack", [True, False])
def test_allocs_of_each_device_live_and_share_memory_there(runtime: Runtime, backend: Backend, pack: bool) -> None:
    g = hg.Graph("temporaries")
    out = [g.host_array(f"out{d}", shape=N, dtype="float32") for d in (0, 1)]
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d in (0, 1):
        for k in range(2):  # one after the other, so the two can lie in the same bytes
            t = g.alloc(f"t{d}{k}", N, "float32", device=d)
            g.memcpy(t, x[d] if k else x[1 - d])
            scale(g, t, 2.0 + k)
            g.memcpy(x[d], t, name=f"back{d}{k}")
            g.free(t)
    for d in (0, 1):
        g.memcpy(out[d], x[d])
    with g.compile(runtime=runtime, backend=backend, plan=hg.PlanOptions(pack=pack)) as exe:
        exe.run()
        assert np.array_equal(exe.read("out0"), 6 * RAMP)
        assert np.array_equal(exe.read("out1"), 36 * RAMP)
        packing = exe.plan.packing
        if pack and exe.backend != "streams":
            assert packing is not None
            assert [device for device, _ in packing.blocks] == [0, 1]
            assert packing.nbytes == 2 * RAMP.nbytes


def test_alloc_grants_access_to_another_device(runtime: Runtime, backend: Backend) -> None:
    if not runtime.device_can_access_peer(0, 1):
        pytest.skip("devices 0 and 1 have no peer access")
    g = hg.Graph("shared_alloc")
    x = g.device_array("x", RAMP, device=0)
    t = g.alloc("t", N, "float32", device=1, access=[0])
    g.memcpy(t, x)
    scale(g, t, 3.0)
    add(g, x, t, x)
    g.free(t)
    with g.compile(runtime=runtime, backend=backend, plan=hg.PlanOptions(pack=False)) as exe:
        exe.run()
        assert np.array_equal(exe.read("x"), 4 * RAMP)
        exe.run()
        assert np.array_equal(exe.read("x"), 16 * RAMP)


def test_variables_of_a_module_are_each_device_s_own(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("variables")
    for d in (0, 1):
        x = g.device_array(f"x{d}", RAMP, device=d)
        g.memcpy(MODULE.symbol("factor"), g.host_array(f"f{d}", [2.0 + d], dtype="float32"), device=d)
        g.kernel(MODULE["by_factor"], N // 256, 256, (x, N))
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        for d in (0, 1):
            assert np.array_equal(exe.read(f"x{d}"), RAMP * (2 + d))


def test_host_nodes_and_events_order_what_devices_do(runtime: Runtime, backend: Backend) -> None:
    seen: list[float] = []
    g = hg.Graph("between")
    x = g.device_array("x", RAMP, device=1)
    h = g.host_array("h", shape=N, dtype="float32")
    y = g.device_array("y", shape=N, dtype="float32", device=0)
    g.record("begin")
    last = scale(g, x, 2.0, after=["record_begin"])
    g.record("end", after=[last])
    g.memcpy(h, x)

    def look(values: np.ndarray) -> None:
        seen.append(float(values[1]))
        values += 1

    g.host(look, args=(h,))
    g.memcpy(y, h)
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        assert seen == [2.0]
        assert np.array_equal(exe.read("y"), 2 * RAMP + 1)
        assert exe.elapsed_us("begin", "end") >= 0


def test_captured_code_finds_its_device_current(runtime: Runtime, backend: Backend) -> None:
    found: list[int] = []

    def copy(stream: Any, dst: Any, src: Any) -> None:
        found.append(stream.runtime.get_device())
        assert dst.__dlpack_device__()[0] == 1 or dst.__dlpack_device__()[1] == 1
        stream.runtime.memcpy_async(int(dst), int(src), dst.nbytes, MemcpyKind.DEVICE_TO_DEVICE, int(stream))

    g = hg.Graph("captured")
    a = g.device_array("a", RAMP, device=1)
    b = g.device_array("b", shape=N, dtype="float32", device=1)
    scale(g, a, 5.0)
    g.captured(copy, args=(b, a), reads=[a], writes=[b])
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        assert set(found) == {1}
        assert np.array_equal(exe.read("b"), 5 * RAMP)


@pytest.mark.parametrize("watch", [False, True])
def test_one_child_runs_on_two_devices(runtime: Runtime, backend: Backend, watch: bool) -> None:
    child = hg.Graph("child")
    c = child.device_array("c", shape=N, dtype="float32")
    a = child.param("a", "float32", 2.0)
    scale(child, c, a)
    g = hg.Graph("parent")
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d in (0, 1):
        g.child(child, bind={"c": x[d], "a": 2.0 + d})
    with g.compile(runtime=runtime, backend=backend, debug=hg.DebugOptions(watch=watch)) as exe:
        exe.run()
        for d in (0, 1):
            assert np.array_equal(exe.read(f"x{d}"), RAMP * (2 + d))
        assert exe._own.unfinished() == ()


def test_workflow_that_names_no_device_moves_as_a_whole(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("moves")
    x = g.device_array("x", RAMP)
    t = g.alloc("t", N, "float32")
    g.memcpy(t, x)
    scale(g, t, 3.0)
    add(g, x, t, x)
    g.free(t)
    with g.compile(runtime=runtime, backend=backend, device=1) as exe:
        exe.run()
        assert np.array_equal(exe.read("x"), 4 * RAMP)
        assert exe.plan.devices == (1,)


# -- changes and looking -------------------------------------------------------------------------------------------------


def test_parameters_set_enable_and_disable_reach_every_device(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("changes")
    a = g.param("a", "float32", 1.0)
    x = [g.device_array(f"x{d}", shape=N, dtype="float32", device=d) for d in (0, 1)]
    fills = [g.memset(x[d], 1.0) for d in (0, 1)]
    scales = [scale(g, x[d], a) for d in (0, 1)]
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run(a=3.0)
        assert [exe.read(f"x{d}")[5] for d in (0, 1)] == [3.0, 3.0]
        exe.set(fills[1], value=2.0)
        exe.set(scales[1], args=(x[1], 7.0, N))
        exe.run()
        assert [exe.read(f"x{d}")[5] for d in (0, 1)] == [3.0, 14.0]
        exe.disable(scales[1])
        exe.run(a=5.0)
        assert [exe.read(f"x{d}")[5] for d in (0, 1)] == [5.0, 2.0]
        exe.enable(scales[1])
        exe.run()
        assert [exe.read(f"x{d}")[5] for d in (0, 1)] == [5.0, 14.0]
        with pytest.raises(hg.UpdateError, match="from device 1 to device 0"):
            exe.set(scales[1], args=(x[0], 7.0, N))


def test_update_and_bind_cannot_move_nodes_to_another_device(runtime: Runtime) -> None:
    def build(order: tuple[int, int]) -> hg.Graph:
        g = hg.Graph("fixed")
        child = hg.Graph("child")
        scale(child, child.device_array("c", shape=N, dtype="float32"), 2.0)
        x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
        g.memset(x[order[0]], 1.0, name="fill")
        g.child(child, bind={"c": x[order[1]]}, name="inside")
        return g

    with build((0, 1)).compile(runtime=runtime) as exe:
        exe.run()
        x0 = exe.workflow.arrays["x0"]
        with pytest.raises(hg.UpdateError, match=r"'inside': what it is given for 'c' would move it from device 1 to device 0"):
            exe.set("inside", bind={"c": x0})
        with pytest.raises(hg.UpdateError):
            exe.update(build((1, 1)))
        exe.run()
        assert np.array_equal(exe.read("x1"), 4 * RAMP)
        exe.update(build((1, 0)), rebuild=True)
        exe.run()
        assert (exe.read("x1") == 1).all()


@pytest.fixture
def freed_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Free what outlives its Executable before the test ends: afterwards there may be fewer devices."""
    monkeypatch.setattr(executable_devices, "_thread", SimpleNamespace(start_new_thread=lambda call, args: call(*args)))
    yield
    gc.collect()


@pytest.mark.parametrize("way", ["parameter", "external array"])
@pytest.mark.parametrize("access", [False, True])
@pytest.mark.parametrize(("owner_moves", "user_moves"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("theirs", "mine"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_array_of_another_executable_knows_its_device(
    runtime: Runtime, theirs: int, mine: int, owner_moves: bool, user_moves: bool, access: bool, way: str, freed_here: None
) -> None:
    """Each of the two Executables has its device by `compile(device=)` or by its array."""
    g = hg.Graph("owner")
    g.device_array("x", RAMP, device=None if owner_moves else theirs, access=(1 - theirs,) if access else ())
    with g.compile(runtime=runtime, device=theirs if owner_moves else 0) as owner:
        lent = owner.array("x")
        assert (lent.device, lent.on_host) == (theirs, False)
        u = hg.Graph("user")
        out = u.device_array("out", shape=N, dtype="float32", device=None if user_moves else mine)
        x: Any = u.param("x", "float32", shape=N) if way == "parameter" else u.external_array("x", lent)
        assert way == "parameter" or x.device == theirs
        u.kernel(MODULE["add"], grid=N // 256, block=256, args=(x, x, out, N), device=None if user_moves else mine)
        given = {"x": lent} if way == "parameter" else {}
        if theirs != mine and not access:
            what = f"memory of device {theirs}" if way == "parameter" else f"device {theirs}"
            device = mine if user_moves else 0
            with pytest.raises(hg.HipGraphError, match=what), u.compile(runtime=runtime, device=device) as user:
                user.run(**given)
            return
        if theirs != mine and not owner.runtime.device_can_access_peer(mine, theirs):
            pytest.skip("between these devices there is no peer access")
        with u.compile(runtime=runtime, device=mine if user_moves else 0) as user:
            user.run(**given)
            assert (user.read("out") == 2 * RAMP).all()


def test_external_array_refuses_another_device_than_that_of_its_memory(runtime: Runtime, freed_here: None) -> None:
    g = hg.Graph("owner")
    g.device_array("x", RAMP, device=1)
    refused = pytest.raises(hg.DeclarationError, match=r"memory of device 1 \(got device=0\)")
    with g.compile(runtime=runtime) as owner, refused:
        hg.Graph("user").external_array("x", owner.array("x"), device=0)


@pytest.mark.parametrize("runtime", ["cpu", "nvidia"], indirect=True)  # where graphs span devices
def test_from_handle_finds_the_devices(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("there")
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d in (0, 1):
        scale(g, x[d], 2.0 + d)
    g.memcpy(x[0], x[1])
    g.memset(x[1], 7.0)
    with g.compile(runtime=runtime) as exe:
        again = hg.Graph.from_handle(exe.graph_handle, runtime=runtime, arrays=exe)
        assert {name: array.device for name, array in again.arrays.items()} == {"x0": 0, "x1": 1}
        with again.compile(runtime=runtime, backend=backend, check=False) as copy:
            copy.run()
            assert np.array_equal(exe.read("x0"), 3 * RAMP)
            assert (exe.read("x1") == 7).all()


def test_clone_holds_the_values_of_every_device(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("twins")
    for d in (0, 1):
        scale(g, g.device_array(f"x{d}", RAMP, device=d), 2.0)
    with g.compile(runtime=runtime, backend=backend) as exe:
        exe.run()
        exe.write("x1", RAMP + 1)
        with exe.clone() as twin:
            twin.run()
            assert np.array_equal(twin.read("x0"), 4 * RAMP)
            assert np.array_equal(twin.read("x1"), 2 * RAMP + 2)
        assert np.array_equal(exe.read("x1"), RAMP + 1)


def test_profile_has_a_track_for_each_device(runtime: Runtime) -> None:
    g = hg.Graph("profiled")
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d in (0, 1):
        scale(g, x[d], 2.0)
    g.memcpy(x[1], x[0])
    with g.compile(runtime=runtime) as exe:
        timeline = exe.profile()
        assert np.array_equal(exe.read("x1"), 2 * RAMP)
    assert [span.engine for span in timeline if span.engine] == ["kernel@0", "kernel@1", "D2D@1"]
    assert all(span.duration >= 0 for span in timeline)


def test_profile_counts_from_when_all_devices_have_begun(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    g = hg.Graph("late")
    for d in (0, 1):
        scale(g, g.device_array(f"x{d}", RAMP, device=d), 2.0)
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.1))
    record = runtime.event_record
    seen: list[int] = []

    def late(event: int, stream: int) -> None:
        seen.append(stream)
        if len(seen) == 2:  # that of the second device, from which its times count
            runtime.launch_host_func(stream, ctypes.cast(wait, ctypes.c_void_p).value or 0, 0)
        record(event, stream)

    with g.compile(runtime=runtime) as exe:
        monkeypatch.setattr(runtime, "event_record", late)
        timeline = exe.profile()
    assert all(span.start >= 0 for span in timeline)


@pytest.mark.skipif(native() is None, reason="no Python headers or no compiler: the extension module cannot be built")
@pytest.mark.parametrize("each", [1, 3])
def test_compiled_code_adds_the_kernels_of_every_device(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, each: int) -> None:
    if "several_devices_crash" in runtime.target.quirks:
        pytest.skip(f"{runtime.target.name} takes no graph over several devices")
    g = hg.Graph("many")
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for i in range(12):
        scale(g, x[i // each % 2], 2.0)
    g.memcpy(x[0], x[1])
    by_python: list[Any] = []
    add_node = explicit.add_node

    def watched(graph: int, deps: list[int], operation: Any, *rest: Any) -> int:
        by_python.append(type(operation).__name__)
        return add_node(graph, deps, operation, *rest)

    monkeypatch.setattr(explicit, "add_node", watched)
    with g.compile(runtime=runtime, backend="explicit", lanes=None) as exe:
        exe.run()
        assert [exe.read(name)[1] for name in ("x0", "x1")] == [64, 64]
    assert "Launch" not in by_python
    assert len(by_python) == 1  # the copy


def test_thread_keeps_its_device(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("keeps")
    a = g.param("a", "float32", 2.0)
    for d in (0, 1):
        scale(g, g.device_array(f"x{d}", RAMP, device=d), a)
    before = runtime.get_device()
    try:
        for current in (1, 0):
            runtime.set_device(current)
            with g.compile(runtime=runtime, backend=backend) as exe:
                assert runtime.get_device() == current
                exe.run()
                exe.run(a=3.0)
                exe.disable("scale_2")
                exe.run()
                exe.profile()
                exe.read("x1")
                exe.write("x1", 0)
                exe.clone().close()
                assert runtime.get_device() == current
            assert runtime.get_device() == current
    finally:
        runtime.set_device(before)


def test_thread_that_is_new_uses_an_executable_of_another_device(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("new")
    scale(g, g.device_array("x", RAMP), g.param("a", "float32", 2.0), name="scale")
    found: list[Any] = []

    def use() -> None:
        before = runtime.get_device()
        exe = g.compile(runtime=runtime, backend=backend, device=1)
        exe.launch()
        exe.launch(a=4.0)
        exe.launch(a=0.5)
        found.append(exe.read("x"))
        exe.set("scale", args=(g.arrays["x"], 1.0, N))
        exe.write("x", RAMP)
        exe.profile()
        with exe.clone() as twin:
            found.append(twin.read("x"))
        exe.close()
        found.append((before, runtime.get_device()))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert np.array_equal(found[0], 4 * RAMP)
    assert np.array_equal(found[1], RAMP)
    assert found[2] == (0, 0)


def test_launches_follow_the_user_s_stream(runtime: Runtime, backend: Backend) -> None:
    g = hg.Graph("theirs")
    x = g.device_array("x", RAMP, device=1)
    y = g.device_array("y", shape=N, dtype="float32", device=0)
    scale(g, x, 2.0)
    g.memcpy(y, x)
    with g.compile(runtime=runtime, backend=backend) as exe:
        with runtime.using_device(0):
            stream = runtime.stream_create()
        for _ in range(5):
            exe.launch(stream=stream)
        runtime.stream_synchronize(stream)
        assert np.array_equal(exe.read("y"), 32 * RAMP)
        exe.synchronize()
        runtime.stream_destroy(stream)


@pytest.mark.parametrize("what", ["one device", "two devices", "segments"])
def test_launches_follow_a_stream_of_another_device(runtime: Runtime, backend: Backend, what: str) -> None:
    g = hg.Graph("elsewhere")
    x = g.device_array("x", RAMP)
    scale(g, x, 2.0)
    if what != "one device":
        scale(g, g.device_array("y", RAMP, device=1), 2.0)
    if what == "segments":
        g.eager(lambda stream: None, writes=[x])
        scale(g, x, 1.0)
    with runtime.using_device(1):
        stream, seen = runtime.stream_create(), runtime.host_malloc(RAMP.nbytes)
    with g.compile(runtime=runtime, backend=backend, device=0) as exe, runtime.using_device(1):
        exe.launch()
        exe.synchronize()
        for times in (4, 8, 16):
            exe.launch(stream=stream)
            runtime.memcpy_async(seen, exe.array("x").ptr, RAMP.nbytes, MemcpyKind.DEVICE_TO_HOST, stream)
            runtime.stream_synchronize(stream)
            assert np.array_equal(np.frombuffer(memoryview((ctypes.c_char * RAMP.nbytes).from_address(seen)), "f4"), times * RAMP)
        assert exe.done()
    runtime.stream_destroy(stream)
    runtime.host_free(seen)


def test_a_stream_of_another_device_waits_for_a_launch_that_failed_half_way(runtime: Runtime, backend: Backend) -> None:
    gate = threading.Event()

    def wait(_: Any) -> None:
        gate.wait(30)

    held = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)

    def fail(stream: Any, x: Any) -> None:
        runtime.launch_host_func(int(stream), ctypes.cast(held, ctypes.c_void_p).value or 0, 0)
        raise hg.HipError("hipLaunchHostFunc", 1, "hipErrorInvalidValue", "half way")

    g = hg.Graph("failing")
    x = g.device_array("x", RAMP)
    scale(g, x, 2.0)
    g.eager(fail, (x,))
    scale(g, x, 2.0)
    with runtime.using_device(1):
        stream = runtime.stream_create()
    opener = threading.Timer(0.3, gate.set)
    with g.compile(runtime=runtime, backend=backend) as exe:
        opener.start()
        with pytest.raises(hg.HipError, match="half way"):
            exe.launch(stream=stream)
        runtime.stream_synchronize(stream)
        assert gate.is_set()
    opener.join()
    runtime.stream_destroy(stream)


def test_read_waits_for_a_launch_on_a_stream_of_another_device_that_is_gone(runtime: Runtime, backend: Backend) -> None:
    gate = threading.Event()
    g = hg.Graph("elsewhere")
    h = g.host_array("h", np.zeros(1, "i4"))

    def slow(h: Any) -> None:
        gate.wait(30)
        h[0] += 1

    g.host(slow, (h,))
    with runtime.using_device(1):
        stream = runtime.stream_create()
    opener = threading.Timer(0.2, gate.set)
    with g.compile(runtime=runtime, backend=backend, device=0) as exe:
        opener.start()
        exe.launch(stream=stream)
        runtime.stream_destroy(stream)
        assert exe.read("h")[0] == 1
    opener.join()


def test_launch_that_its_limit_has_ended_is_waited_for_on_every_device(runtime: Runtime, backend: Backend) -> None:
    gate = threading.Event()
    waits = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(30) and None)

    def hold(stream: Any, _: Any) -> None:
        runtime.launch_host_func(int(stream), ctypes.cast(waits, ctypes.c_void_p).value or 0, 0)

    g = hg.Graph("ended")
    x, y, h = g.device_array("x", RAMP), g.device_array("y", RAMP, device=1), g.host_array("h", shape=N, dtype="float32")
    g.captured(hold, (y,), name="held")  # on device 1
    g.memcpy(h, y)
    g.eager(lambda stream, h: None, (h,), name="look")
    scale(g, x, 2.0, after=["look"])
    with g.compile(runtime=runtime, backend=backend) as exe:
        with pytest.raises(hg.WaitTimeout):
            exe.launch(timeout_s=0.05)
        assert not exe.done()
        opener = threading.Timer(0.1, gate.set)
        opener.start()
        exe.synchronize()
        assert gate.is_set()
        exe.run()
        assert np.array_equal(exe.read("x"), 2 * RAMP)
        opener.join()


# -- conditional nodes ---------------------------------------------------------------------------------------------------

LESS = hg.Module('extern "C" __global__ void less(int* n) { if (n[0] > 0) n[0] -= 1; }', name="less")


def decided(mode: Literal["if", "while"], at: int, inside: str) -> hg.Graph:
    """Return a graph whose host decides, by a condition of device `at`, on a body that one graph cannot hold, or that one can."""
    g, body = hg.Graph("decided"), hg.Graph("body")
    count = g.device_array("count", np.full(1, 3, "int32"), device=at)
    x = [g.device_array(f"x{d}", np.ones(N, "float32"), device=d) for d in (0, 1)]
    n = body.device_array("n", shape=1, dtype="int32", device=at)
    y = [body.device_array(f"y{d}", shape=N, dtype="float32", device=d) for d in (0, 1)]
    body.kernel(LESS["less"], 1, 1, (n,))
    for d in (0, 1):
        scale(body, y[d], 2.0)
    if inside == "eager":
        body.eager(lambda stream: None, writes=[y[0]])
    elif inside == "conditional":
        held, child = hg.Graph("held"), hg.Graph("child")
        names = [f"z{d}" for d in (0, 1)]
        child.all_reduce([child.device_array(z, shape=N, dtype="float32", device=d) for d, z in enumerate(names)], "max")
        z = [held.device_array(z, shape=N, dtype="float32", device=d) for d, z in enumerate(names)]
        held.child(child, bind=dict(zip(names, z)))
        on = body.device_array("on", np.ones(1, "int32"), device=1 - at)
        body.conditional("if", on, held, dict(zip(names, y)), decide="host")
    for d in (0, 1):
        scale(body, y[d], 2.0)
    g.conditional(mode, count, body, {"n": count, "y0": x[0], "y1": x[1]}, decide="host", name="loop")
    for d in (0, 1):
        scale(g, x[d], 0.5)
    return g


@pytest.mark.parametrize("inside", ["eager", "conditional"])
@pytest.mark.parametrize("mode", ["while", "if"])
@pytest.mark.parametrize(("home", "at"), [(0, 0), (0, 1), (1, 0)])
def test_a_body_in_segments_runs_on_streams_of_the_condition_s_device(
    runtime: Runtime, backend: Backend, home: int, at: int, mode: Any, inside: str
) -> None:
    values = np.ones(N, "float32")
    with decided(mode, at, inside).compile(runtime=runtime, backend=backend, device=home) as exe:
        for _ in range(3):  # the second takes down what the others do
            exe.write("count", np.full(1, 3, "int32"))
            exe.run()
            values *= 4 ** (3 if mode == "while" else 1) / 2
            for d in (0, 1):
                np.testing.assert_array_equal(exe.read(f"x{d}"), values)


@pytest.mark.parametrize("inside", ["eager", "conditional", ""])
@pytest.mark.parametrize("home", [0, 1])
def test_a_body_is_built_when_its_node_is_enabled(runtime: Runtime, backend: Backend, home: int, inside: str) -> None:
    g = decided("while", 1, inside)
    fill = g.device_array("fill", RAMP, device=0)
    g.captured(lambda stream, x: stream.runtime.memset_async(Fill2D(int(x), 4, 0, N), int(stream)), (fill,), name="other")
    with g.compile(runtime=runtime, backend=backend, device=home) as exe:
        exe.disable("loop")
        exe.disable("other")  # no graph can do without it, so it is built again
        exe.run()
        exe.enable("loop")
        exe.run()
        for d in (0, 1):
            np.testing.assert_array_equal(exe.read(f"x{d}"), np.full(N, 16, "float32"))


@pytest.mark.parametrize("inside", ["eager", "conditional", ""])
@pytest.mark.parametrize(("home", "at"), [(0, 0), (0, 1), (1, 0)])
def test_profile_runs_bodies_where_their_arrays_are(runtime: Runtime, home: int, at: int, inside: str) -> None:
    with decided("while", at, inside).compile(runtime=runtime, device=home) as exe:
        timeline = exe.profile()
        for d in (0, 1):
            np.testing.assert_array_equal(exe.read(f"x{d}"), np.full(N, 32, "float32"))
    assert next(iter(timeline)).name == "loop"
    assert all(span.duration >= 0 for span in timeline)


class _Strict(RecorderRuntime):
    """Wants what it is asked to do on a stream to be asked while the stream's device is current."""

    def module_launch_kernel(
        self, function: int, grid: Any, block: Any, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        here, there = self.device, self.stream_get_device(stream)
        assert here == there
        super().module_launch_kernel(function, grid, block, shared_bytes, stream, args, **attributes)


def test_a_capture_goes_on_where_it_was_behind_a_conditional_node() -> None:
    g = hg.Graph("captured")
    on, x = g.device_array("on", np.ones(1, "uint32"), device=1), g.device_array("x", RAMP, device=1)
    body = hg.Graph("body")
    scale(body, body.device_array("x", shape=N, dtype="float32", device=1), 2.0)
    scale(g, x, 2.0)
    g.conditional("if", on, body, {"x": x}, decide="device")
    scale(g, x, 2.0)
    recorder = _Strict(target="nvidia:sm_90", devices=2)
    with g.compile(runtime=recorder, backend="capture") as exe:
        assert len(exe.plan.lanes) == 1
        exe.run()


@pytest.mark.parametrize("kind", ["eager", "captured"])
def test_a_launch_goes_on_where_it_was_behind_the_user_s_code(kind: Literal["eager", "captured"]) -> None:
    recorder = _Strict(target="nvidia:sm_90", devices=2)

    def elsewhere(stream: Any, x: Any) -> None:
        recorder.set_device(0)
        recorder.memset_async(Fill2D(int(x.ptr) if kind == "eager" else int(x), 4, 0, 1), int(stream))

    g = hg.Graph("users")
    x = g.device_array("x", RAMP, device=1)
    scale(g, x, 2.0)
    getattr(g, kind)(elsewhere, (x,))
    scale(g, x, 2.0)
    with g.compile(runtime=recorder, backend="streams") as exe:
        exe.run()


# -- the wave ------------------------------------------------------------------------------------------------------------


def test_wave_gives_the_same_bits_on_any_number_of_devices(runtime: Runtime, backend: Backend) -> None:
    wave = load("06_wave2d_devices")
    fields = []
    for devices in range(1, min(4, runtime.get_device_count()) + 1):
        with wave.build(devices, steps=40, size=(70, 96)).compile(runtime=runtime, backend=backend) as exe:
            exe.run()
            exe.run()
            fields.append(exe.read("out"))
    assert np.abs(fields[0]).max() > 0.1
    assert len({field.tobytes() for field in fields}) == 1


def test_wave_is_that_of_the_example_for_one_device(runtime: Runtime) -> None:
    with load("04_wave2d").build(steps=42, side=64).compile(runtime=runtime) as exe:
        exe.run()
        alone = exe.read("out")[-1]  # a step's own field comes out two steps later
    with load("06_wave2d_devices").build(2, steps=40, size=64).compile(runtime=runtime) as exe:
        exe.run()
        assert exe.read("out").tobytes() == alone.tobytes()


def test_bench_has_a_row_for_each_way_and_the_same_bits(runtime: Runtime) -> None:
    sheet = bench_devices.run(runtime, [1, 2], [(64, 96)], steps=12, rounds=2)
    assert sheet.notes == []
    assert {(row["devices"], row["backend"]) for row in sheet.rows} == {(d, b) for d in (1, 2) for b in ("explicit", "streams")}
    assert all(row["bits"] == "same" and row["step_us"] > 0 for row in sheet.rows)


# -- without a device ----------------------------------------------------------------------------------------------------


def wave_plan(devices: int = 3, **options: Any) -> Any:
    return load("06_wave2d_devices").build(devices, steps=8, size=64).plan(target="nvidia:sm_90", **options)


@pytest.mark.parametrize("lanes", ["auto", None, 1, 2])
def test_no_lane_mixes_devices(lanes: Any) -> None:
    plan = wave_plan(lanes=lanes)
    for lane, owner in zip(plan.lanes, plan.lane_devices):
        assert {plan.steps[i].device for i in lane} <= {owner, None}
    if isinstance(lanes, int):
        assert all(plan.lane_devices.count(d) <= lanes for d in range(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_recorded_calls_stand_on_their_devices(backend: Backend) -> None:
    recorder = RecorderRuntime(target="nvidia:sm_90", devices=2)
    g = hg.Graph("recorded")
    for d in (0, 1):
        scale(g, g.device_array(f"x{d}", RAMP, device=d), 2.0)
    with g.compile(runtime=recorder, backend=backend) as exe:
        exe.run()
    current, launches, loads = 0, [], []
    for call in recorder.calls:
        if call.api == "hipSetDevice":
            current = call.args[0]
        elif call.api in ("hipGraphAddKernelNode", "hipModuleLaunchKernel"):
            launches.append(current)
        elif call.api == "hipModuleLoadData":
            loads.append(current)
    assert sorted(set(launches)) == [0, 1]
    assert loads == [0, 1]
    assert recorder.live == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_failure_of_any_call_leaves_nothing_behind_on_any_device(backend: Backend) -> None:
    g = hg.Graph("failing")
    x = [g.device_array(f"x{d}", RAMP, device=d) for d in (0, 1)]
    for d in (0, 1):
        t = g.alloc(f"t{d}", N, "float32", device=d)
        g.memcpy(t, x[1 - d])
        scale(g, t, 2.0)
        g.memcpy(x[d], t)
        g.free(t)
    recorder = RecorderRuntime(target="nvidia:sm_90", devices=2)
    for n in range(1, 1000):
        recorder.clear()
        recorder.fail_at(n)
        exe = None
        try:
            exe = g.compile(runtime=recorder, backend=backend, plan=hg.PlanOptions(pack=False))
            exe.run()
            exe.close()
        except hg.HipError:
            if exe is not None:
                with suppress(hg.HipError):
                    exe.close()
        else:
            if len(recorder.calls) < n:
                break
        assert recorder.live == {}, (n, recorder.calls[n - 1])
        recorder._failures.clear()
    else:
        pytest.fail("it never ran through")


def test_compile_names_a_device_that_is_not_there() -> None:
    g = hg.Graph("elsewhere")
    scale(g, g.device_array("x", RAMP, device=5), 2.0)
    recorder = RecorderRuntime(devices=2)
    with pytest.raises(hg.DeclarationError, match="uses device 5; runtime 'recorder' has 2 devices"):
        g.compile(runtime=recorder)
    assert recorder.live == {}


def test_graph_that_would_crash_is_issued_on_streams(caplog: pytest.LogCaptureFixture) -> None:
    g = hg.Graph("crashing")
    for d in (0, 1):
        scale(g, g.device_array(f"x{d}", RAMP, device=d), 2.0)
    target = Target.named("amd:gfx942@7.2")
    assert any("over several devices dispatches kernels" in d.message for d in g.check("amd:gfx942@7.2").warnings)
    recorder = RecorderRuntime(target=with_quirks(target), devices=2)
    with g.compile(runtime=recorder, backend="capture") as exe:
        exe.run()
        assert exe.backend == "streams"
        assert 'backend="capture" became "streams"' in exe.plan.explain()
    assert "crashing" in caplog.text
    assert "hipGraphLaunch" not in recorder.apis()


@pytest.mark.parametrize(("count", "backend"), [(15, "explicit"), (16, "capture")])
def test_graph_of_many_captured_nodes_that_would_crash_is_captured(count: int, backend: str) -> None:
    g = hg.Graph("many")
    x = g.device_array("x", RAMP)
    for _ in range(count):
        g.captured(lambda stream, x: stream.runtime.memset_async(Fill2D(int(x), 4, 0, 1), int(stream)), (x,), writes=[x])
    recorder = RecorderRuntime(target=with_quirks(Target.named("amd:gfx942@7.2")))
    with g.compile(runtime=recorder) as exe:
        assert exe.backend == backend
        assert ('backend="explicit" became "capture"' in exe.plan.explain()) == (backend == "capture")


def test_launch_that_would_crash_goes_to_the_own_stream() -> None:
    g = hg.Graph("elsewhere")
    scale(g, g.device_array("x", RAMP), 2.0)
    recorder = RecorderRuntime(target=with_quirks(Target.named("amd:gfx942@7.2")), devices=2)
    with recorder.using_device(1):
        other = recorder.stream_create()
    with g.compile(runtime=recorder) as exe:
        same = recorder.stream_create()
        recorder.clear()
        exe.launch(stream=other)
        exe.launch(stream=same)
        launches = [(call.api, call.args[-1]) for call in recorder.calls if call.api == "hipGraphLaunch"]
        assert launches == [("hipGraphLaunch", exe.stream), ("hipGraphLaunch", same)]
        # `other` and the own stream for each other, `same` for the launch before, and the own stream for each launch.
        assert recorder.apis().count("hipStreamWaitEvent") == 5
        for stream in (other, same):
            recorder.stream_destroy(stream)
    assert recorder.live == {}


class _Strangers(RecorderRuntime):
    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return False


def test_compile_says_where_the_hardware_has_no_peer_access() -> None:
    g = hg.Graph("strangers")
    x = g.device_array("x", RAMP, device=1, access=[0])
    y = g.device_array("y", RAMP, device=0)
    add(g, y, x, y)
    with pytest.raises(hg.DeclarationError, match=r"'add' on device 0 reaches 'x' on device 1.*no peer access; copy"):
        g.compile(runtime=_Strangers(devices=2))


@pytest.mark.parametrize("default", ["x", None])
def test_devices_that_arrays_let_in_reach_them_by_parameters(default: str | None) -> None:
    recorder = RecorderRuntime(devices=3)
    g = hg.Graph("named")
    g.device_array("x", RAMP, device=2, access=[0, 1, 2])
    y = g.device_array("y", RAMP, device=1)
    add(g, y, g.param("p", "float32", default, shape=N), y)
    with g.compile(runtime=recorder) as exe:
        exe.run(p="x")
    assert [call.args[0] for call in recorder.calls if call.api == "hipDeviceEnablePeerAccess"] == [2]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("home", [0, 1, 2])
def test_check_names_the_default_that_a_node_does_not_reach(home: int, inside: bool) -> None:
    g = hg.Graph("default")
    g.device_array("x", RAMP, device=1)
    y = g.device_array("y", RAMP, device=0)
    p = g.param("p", "float32", "x", shape=N)
    if inside:
        child = hg.Graph("child")
        x, z = child.param("x", "float32", shape=N), child.device_array("z", shape=N, dtype="float32")
        add(child, x, z, z)
        g.child(child, bind={"x": p, "z": y})
    else:
        add(g, p, y, y)
    with pytest.raises(hg.CheckError) as failure:
        g.compile(runtime=RecorderRuntime(devices=3), device=home)
    assert [(d.code, d.nodes, d.arrays) for d in failure.value.report.errors] == [
        ("HG406", ("child/add" if inside else "add",), ("x",))
    ]
    assert "runs on device 0 and reaches 'x' on device 1, the default of parameter 'p'" in str(failure.value)
    assert "declare 'x' with access=[0], give 'add' device=1, or let 'p' stand for memory of device 0" in str(failure.value)


@pytest.mark.parametrize("home", [0, 1, 2])
def test_launch_refuses_memory_that_the_node_s_device_does_not_reach(runtime: Runtime, backend: Backend, home: int) -> None:
    if home >= runtime.get_device_count() or not runtime.device_can_access_peer(1, 0):
        pytest.skip("needs more devices, with peer access")
    g = hg.Graph("bound")
    g.device_array("x", RAMP, device=0)
    g.device_array("open", RAMP * 3, device=0, access=[1])
    y = g.device_array("y", RAMP * 2, device=1)
    out = g.device_array("out", shape=N, dtype="float32", device=1)
    add(g, g.param("p", "float32", "y", shape=N), y, hg.writes(out))
    with g.compile(runtime=runtime, backend=backend, device=home) as exe:
        exe.run()
        assert np.array_equal(exe.read("out"), RAMP * 4)
        with pytest.raises(hg.DeclarationError) as failure:
            exe.run(p="x")
        assert str(failure.value) == (
            "parameter 'p' is bound to array 'x' of device 0, which 'add' reaches from device 1; declare 'x' with access=[1], or"
            " bind memory of device 1"
        )
        assert (failure.value.node, failure.value.array) == ("add", "p")
        exe.run()
        assert np.array_equal(exe.read("out"), RAMP * 4)
        exe.run(p="open")
        assert np.array_equal(exe.read("out"), RAMP * 5)


@pytest.mark.parametrize("home", [0, 1])
def test_copies_take_memory_of_any_device_by_parameters(runtime: Runtime, backend: Backend, home: int) -> None:
    g = hg.Graph("copies")
    for device in (0, 1):
        g.device_array(f"x{device}", RAMP * (device + 2), device=device)
        g.memcpy(g.device_array(f"y{device}", shape=N, dtype="float32", device=device), g.param(f"p{device}", "float32", shape=N))
    with g.compile(runtime=runtime, backend=backend, device=home) as exe:
        for first, second in (("x0", "x1"), ("x1", "x0")):
            exe.run(p0=first, p1=second)
            assert np.array_equal(exe.read("y0"), exe.read(first))
            assert np.array_equal(exe.read("y1"), exe.read(second))


def test_fills_and_children_take_memory_of_any_device_by_parameters(runtime: Runtime, backend: Backend) -> None:
    inner = hg.Graph("inner")
    inner.memcpy(inner.device_array("copied", shape=N, dtype="float32", device=0), inner.param("q", "float32", shape=N))
    g = hg.Graph("fills")
    for device in (0, 1):
        g.device_array(f"x{device}", RAMP, device=device, access=[1 - device])
        g.device_array(f"y{device}", RAMP * (device + 2), device=device)
    g.memset(g.param("p", "float32", shape=N), 7)
    g.child(inner, bind={"q": g.param("q", "float32", shape=N)}, name="child")
    with g.compile(runtime=runtime, backend=backend) as exe:
        for device in (0, 1, 1, 0):
            exe.run(p=f"x{device}", q=f"y{device}")
            assert np.array_equal(exe.read("child/copied"), RAMP * (device + 2))
            assert np.array_equal(exe.read(f"x{device}"), np.full(N, 7, "float32"))
            exe.write(f"x{device}", RAMP)
            assert np.array_equal(exe.read(f"x{1 - device}"), RAMP)


def test_set_refuses_a_node_that_does_not_reach_what_a_parameter_is_bound_to() -> None:
    g = hg.Graph("set")
    g.device_array("x", RAMP, device=0)
    y = [g.device_array(f"y{device}", RAMP, device=device) for device in (0, 1)]
    p = g.param("p", "float32", shape=N)
    add(g, p, y[0], y[0], name="here")
    add(g, y[1], y[1], y[1], name="there")
    with g.compile(runtime=RecorderRuntime(devices=2)) as exe:
        exe.run(p="x")
        with pytest.raises(hg.DeclarationError, match="array 'x' of device 0, which 'there' reaches from device 1"):
            exe.set("there", args=(p, y[1], y[1], N))
        exe.run()


def test_launch_says_where_the_hardware_has_no_peer_access() -> None:
    g = hg.Graph("strangers")
    g.device_array("x", RAMP, device=1, access=[0])
    y = g.device_array("y", RAMP, device=0)
    add(g, g.param("p", "float32", shape=N), y, y)
    with g.compile(runtime=_Strangers(devices=2)) as exe:
        with pytest.raises(hg.DeclarationError, match="these two devices there is no peer access; bind memory of"):
            exe.run(p="x")
        exe.run(p="y")


def test_launch_lets_a_device_reach_the_array_of_a_child() -> None:
    recorder = RecorderRuntime(devices=2)
    g, child = hg.Graph("outer"), hg.Graph("child")
    child.memset(child.device_array("x", RAMP, device=1, access=[0]), 1.0)
    g.child(child)
    y = g.device_array("y", RAMP, device=0)
    add(g, g.param("p", "float32", shape=N), y, y, after=["child"])
    with g.compile(runtime=recorder) as exe:
        exe.run(p="child/x")
    assert [call.args[0] for call in recorder.calls if call.api == "hipDeviceEnablePeerAccess"] == [1]


def test_memcpy_needs_no_peer_access() -> None:
    g = hg.Graph("strangers")
    g.memcpy(g.device_array("y", RAMP, device=0), g.device_array("x", RAMP, device=1))
    with g.compile(runtime=_Strangers(devices=2)) as exe:
        exe.run()


@pytest.mark.parametrize("device", [-1, 2**16, 1.5, "0", True])
def test_impossible_devices_are_refused_where_they_are_given(device: Any) -> None:
    g = hg.Graph("impossible")
    with pytest.raises(hg.DeclarationError, match="device is the number of a device"):
        g.device_array("x", RAMP, device=device)
    assert not g.arrays
    x = g.device_array("x", RAMP)
    with pytest.raises(hg.DeclarationError, match="device is the number of a device"):
        scale(g, x, 2.0, device=device)


def test_external_memory_tells_its_device() -> None:
    class Tensor:
        __cuda_array_interface__: ClassVar[dict[str, Any]] = {"shape": (8,), "typestr": "<f4", "data": (4096, False)}

        def __init__(self, kind: int) -> None:
            self.kind = kind

        def __dlpack_device__(self) -> tuple[int, int]:
            return (self.kind, 3)

    g = hg.Graph("told")
    assert g.external_array("cuda", Tensor(2)).device == 3
    assert g.external_array("rocm", Tensor(10)).device == 3
    assert g.external_array("other", Tensor(1)).device is None
    assert g.external_array("said", Tensor(2), device=1).device == 1
    shared = g.external_array("shared", Tensor(2), access=[1])
    assert shared.access == (1,)
    loaded = hg.Graph.from_json(g.to_json(), arrays={name: Tensor(2) for name in g.arrays})
    assert loaded.arrays["shared"].access == (1,)
    for access in (1, [0, 1]):
        with pytest.raises(
            hg.DeclarationError, match=r"external array 'host': access lists .*, and this is host memory; leave it out"
        ):
            g.external_array("host", RAMP.copy(), access=access)
    assert "host" not in g.arrays


def test_to_json_and_every_other_format_keep_devices(tmp_path: Path) -> None:
    g = hg.Graph("files")
    x = g.device_array("x", RAMP[:8], device=0)
    y = g.device_array("y", RAMP[:8], device=1, access=[0, 2])
    t = g.alloc("t", 8, "float32", device=2, access=1)
    g.memcpy(x, y, device=0)
    g.memset(y, 1, device=1)
    g.kernel(MODULE["scale"], 1, 8, (y, 1.0, 8), device=2)
    g.memcpy(t, x)
    g.free(t)
    text = g.to_json()
    assert hg.Graph.from_json(text).to_json() == text
    g.export(tmp_path / "w.py")
    names: dict[str, Any] = {"__name__": "workflow"}
    exec((tmp_path / "w.py").read_text(), names)
    assert names["build"]().to_json() == text


def test_simulation_gives_each_device_its_own_engines() -> None:
    g = hg.Graph("simulated")
    for d in (0, 1):
        for k in range(2):
            scale(g, g.device_array(f"x{d}{k}", RAMP, device=d), 2.0)
    assert g.simulate({"kernel": 1.0}).makespan == 2.0


def test_explain_update_says_that_memory_stays_on_its_device() -> None:
    def build(device: int) -> hg.Graph:
        g = hg.Graph("moved")
        scale(g, g.device_array("x", RAMP, device=device), 2.0)
        return g

    changes = hg.explain_update(build(0), build(1)).changes
    assert {(change.field, change.in_place) for change in changes} == {("device", False), ("arrays.x.device", False)}


# -- the CPU's own rules ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cpu() -> Iterator[CpuRuntime]:
    try:
        found = open_runtime("cpu")
    except hg.RuntimeUnavailable as error:
        pytest.skip(str(error))
    assert isinstance(found, CpuRuntime)
    before = found.get_device_count()
    found.set_device_count(4)
    yield found
    found.set_device(0)
    found.set_device_count(before)


def test_cpu_kernel_without_access_fails_as_on_a_gpu(cpu: CpuRuntime) -> None:
    g = hg.Graph("fault")
    scale(g, g.device_array("x", RAMP, device=3), 2.0, device=2)
    assert g.check().codes == ("HG406",)
    with pytest.raises(hg.CheckError):
        g.compile(runtime=cpu)
    with g.compile(runtime=cpu, check=False) as exe, pytest.raises(hg.HipError, match=r"\(700\), .* device without peer access"):
        exe.run()
    cpu.set_device(2)
    x = cpu.malloc(N)
    cpu.set_device(1)
    stream = cpu.stream_create()
    cpu.memset_async(Fill2D(x, 1, 7, N), stream)
    with pytest.raises(hg.HipError, match=r"hipErrorIllegalAddress \(700\)"):
        cpu.stream_synchronize(stream)
    cpu.stream_destroy(stream)
    cpu.free(x)


def test_cpu_events_and_functions_belong_to_one_device(cpu: CpuRuntime) -> None:
    cpu.set_device(1)
    event, module = cpu.event_create(), cpu.module_load_data(cpu.rtc_compile(SOURCE, ["scale"]).image)
    function = cpu.module_get_function(module, "scale")
    cpu.set_device(0)
    stream, other = cpu.stream_create(), cpu.event_create()
    with pytest.raises(hg.HipError, match=r"hipErrorInvalidHandle \(400\)"):
        cpu.event_record(event, stream)
    with pytest.raises(hg.HipError, match=r"hipErrorInvalidHandle \(400\)"):
        cpu.event_elapsed_time(event, other)
    values = [ctypes.c_uint64(0) for _ in range(3)]
    table = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    with pytest.raises(hg.HipError, match=r"hipErrorInvalidDevice \(101\)"):
        cpu.module_launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream, ctypes.addressof(table))
    cpu.stream_wait_event(stream, event)  # waiting crosses devices
    cpu.stream_destroy(stream)
    cpu.event_destroy(event)
    cpu.event_destroy(other)
    cpu.module_unload(module)


def test_cpu_answers_peer_calls_as_hip_does(cpu: CpuRuntime) -> None:
    assert cpu.device_can_access_peer(0, 1)
    assert not cpu.device_can_access_peer(1, 1)
    with pytest.raises(hg.HipError, match=r"hipErrorInvalidDevice \(101\)"):
        cpu.device_enable_peer_access(0)  # itself
    cpu.device_enable_peer_access(3)
    cpu.device_enable_peer_access(3)  # already enabled is no error here
    with pytest.raises(hg.HipError, match=r"hipErrorInvalidDevice \(101\)"):
        cpu.set_device(4)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_example_finds_its_own_bits_right(cpu: CpuRuntime, devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    wave = load("06_wave2d_devices")
    assert wave.main(["--runtime", "cpu", "--devices", str(devices), "--size", "64", "--steps", "40"]) == 0
    assert (f"The same bits from {devices} devices as from one" in capsys.readouterr().out) == (devices > 1)


def test_cpu_memory_knows_its_device(cpu: CpuRuntime) -> None:
    before = [hg.graph_memory("cpu", d).used for d in (0, 1)]
    g = hg.Graph("graphs")
    t = g.alloc("t", N, "float32", device=1)
    g.memset(t, 0)
    with g.compile(runtime=cpu, plan=hg.PlanOptions(pack=False)) as exe:
        exe.run()
        used = [hg.graph_memory("cpu", d).used for d in (0, 1)]
        assert used == [before[0], before[1] + 4 * N]


def test_verify_runs_on_several_devices(cpu: CpuRuntime) -> None:
    wave = load("06_wave2d_devices").build(2, steps=3, size=32)
    report = hg.verify(wave, runtime="cpu", orders=20, repeats=2)
    assert report.findings == ()


def test_verify_finds_what_lies_beyond_an_array_of_another_device(runtime: Runtime) -> None:
    g = hg.Graph("beyond")
    x, y = g.device_array("x", RAMP), g.device_array("y", RAMP, device=1)
    z = g.alloc("z", N, "float32", device=1)
    scale(g, x, 2.0)
    g.memcpy(z, x)
    for array in (y, z):
        g.kernel(MODULE["scale"], N // 256 + 1, 256, (array, 3.0, N + 1), name=f"beyond_{array.as_view().root.name}")
    g.memcpy(x, z)
    g.free(z)
    wanted = [("out of bounds", ("beyond_y",), ("y",)), ("out of bounds", ("beyond_z",), ("z",))]
    found = hg.verify(g, runtime=runtime, backends=(), sanitize=False).findings
    assert [(f.kind, f.nodes, f.arrays) for f in found] == wanted
    if runtime.sanitizes:
        found = hg.verify(g, runtime=runtime, backends=()).findings
        assert [(f.kind, f.nodes, f.arrays) for f in found] == wanted


def test_external_memory_belongs_to_the_device_that_is_named(cpu: CpuRuntime) -> None:
    cpu.set_device(1)
    pointer = cpu.malloc(RAMP.nbytes)
    cpu.set_device(0)
    g = hg.Graph("foreign")
    x = ExternalArray("x", (N,), np.dtype("float32"), device=1, obj=cpu, pointer=pointer, location="device")
    g.arrays["x"] = x
    g.memset(x, 2.0)
    node = scale(g, x, 3.0)
    with g.compile(runtime=cpu) as exe:
        exe.run()
        assert exe.plan.steps[exe.plan.index[node.name]].device == 1
        assert (exe.read("x") == 6).all()
    cpu.free(pointer)


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("home", [0, 1, 2])
def test_body_of_a_conditional_node_runs_on_several_devices(cpu: CpuRuntime, backend: Backend, home: int, watch: bool) -> None:
    source = 'extern "C" __global__ void count_down(int* n) { if (n[0] > 0) n[0] -= 1; }'
    g = hg.Graph("loops")
    count = g.device_array("count", np.full(1, 3, "int32"), device=0)
    x, y = g.device_array("x", RAMP, device=1), g.device_array("y", RAMP, device=2)
    body = hg.Graph("body")
    n = body.device_array("n", shape=1, dtype="int32", device=0)
    inner_x = body.device_array("x", shape=N, dtype="float32", device=1)
    inner_y = body.device_array("y", shape=N, dtype="float32", device=2)
    scale(body, inner_x, 2.0)
    scale(body, inner_y, 3.0)
    body.kernel(hg.Module(source, name="count")["count_down"], 1, 1, (n,), device=0)
    g.conditional("while", count, body, {"n": count, "x": x, "y": y}, name="loop")
    for array, name in ((x, "last_x"), (y, "last_y")):
        scale(g, array, 0.5, name=name)
    with g.compile(runtime=cpu, backend=backend, device=home, debug=hg.DebugOptions(watch=watch)) as exe:
        exe.run()
        np.testing.assert_array_equal(exe.read("x"), RAMP * 4)
        np.testing.assert_array_equal(exe.read("y"), RAMP * 27 / 2)
        assert exe._own.unfinished() == ()
    assert hg.verify(g, runtime=cpu, backends=(backend,)).findings == ()


@pytest.mark.parametrize("home", [0, 1, 2])
def test_body_of_a_conditional_node_reaches_memory_that_grants_it(cpu: CpuRuntime, backend: Backend, home: int) -> None:
    g = hg.Graph("granted")
    on = g.device_array("on", np.full(1, 1, "uint32"), device=0)
    x = g.device_array("x", RAMP, device=3, access=[2])
    body = hg.Graph("body")
    scale(body, body.device_array("y", shape=N, dtype="float32", device=3, access=[2]), 2.0, device=2)
    g.conditional("if", on, body, {"y": x}, name="choice")
    with g.compile(runtime=cpu, backend=backend, device=home) as exe:
        exe.run()
        np.testing.assert_array_equal(exe.read("x"), RAMP * 2)
