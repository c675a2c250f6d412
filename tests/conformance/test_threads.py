"""Clones in flight at once, launches from several threads and into users' own streams, and every call from any thread."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from places import HERE, other_library

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime
from hipgraphdsl.runtimes.data import Fill2D

SOURCE = r"""
extern "C" __global__ void mix(int* y, const int* x, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (int)(31u * (unsigned)y[i] + 7u * (unsigned)x[i] + (unsigned)k);
}
extern "C" __global__ void count(int* seen, int k) { seen[k] += 1; }
extern "C" __global__ void count_again(int* seen, int k) { seen[k] += 1; }
"""
N = 32
MODULE = hg.Module(SOURCE, name="threads")


@pytest.fixture(params=HERE)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return hg.open_runtime(request.param)


@pytest.fixture(params=["explicit", "capture", "streams", "serial"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def chain() -> hg.Graph:
    """Every launch depends on all before it, in both arrays and with its own k."""
    g = hg.Graph("chain")
    x, y = g.device_array("x", np.arange(N, dtype="i4")), g.device_array("y", np.zeros(N, "i4"))
    h, k = g.host_array("h", np.zeros(N, "i4")), g.param("k", "int32", 1)
    g.kernel(MODULE["mix"], 1, N, (y, x, k, N), name="up")
    g.memcpy(h, y, name="out")
    g.kernel(MODULE["mix"], 1, N, (x, h, k, N), name="down")
    return g


def chained(ks: list[int], x: Any, y: Any) -> tuple[Any, Any]:
    x, y = x.view(np.uint32), y.view(np.uint32)
    for k in ks:
        y = 31 * y + 7 * x + np.uint32(k)
        x = 31 * x + 7 * y + np.uint32(k)
    return x.view(np.int32), y.view(np.int32)


def at_once(*work: Callable[[], None]) -> None:
    """Run functions in threads of their own; raise what the first of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(work))

    def run(one: Callable[[], None]) -> None:
        try:
            start.wait(60)
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_clone_in_threads_and_streams_of_their_own_keeps_values_apart(runtime: Runtime, backend: Any) -> None:
    """The clones of a launched Executable, each in its own thread, on a user's stream and on its own by turns."""
    first = chain().compile(runtime=runtime, backend=backend)
    ks = [3, 4, 5]
    for k in ks:
        first.launch(k=k)
    executables = [first, *(first.clone() for _ in range(3))]
    start = chained(ks, np.arange(N, dtype="i4"), np.zeros(N, "i4"))
    streams = [runtime.stream_create() for _ in executables]

    def work(number: int) -> Callable[[], None]:
        def launches() -> None:
            exe = executables[number]
            for turn in range(6):
                given = [1000 * number + 10 * turn + i for i in range(8)]
                stream = streams[number] if turn % 2 else None
                for k in given:
                    exe.launch(stream, k=k)
                if turn % 2:
                    with runtime.using_device(0):  # a call of the runtime itself, in a thread that may have no context
                        runtime.stream_synchronize(streams[number])
                else:
                    exe.synchronize()

        return launches

    try:
        at_once(*(work(number) for number in range(len(executables))))
        for number, exe in enumerate(executables):
            wanted = chained([1000 * number + 10 * turn + i for turn in range(6) for i in range(8)], *start)
            assert exe.read("x").tolist() == wanted[0].tolist()
            assert exe.read("y").tolist() == wanted[1].tolist()
    finally:
        for exe in executables:
            exe.close()
        for stream in streams:
            runtime.stream_destroy(stream)


def test_each_of_many_launches_from_threads_has_the_values_that_it_was_given(runtime: Runtime, backend: Any) -> None:
    """Threads launch one Executable with values of their own, which two nodes must see, while others wait and look."""
    g = hg.Graph("shared")
    each, threads = 300, 4
    seen, again = (g.device_array(name, np.zeros(each * threads, "i4")) for name in ("seen", "again"))
    k = g.param("k", "int32", 0)
    g.kernel(MODULE["count"], 1, 1, (seen, k))
    g.kernel(MODULE["count_again"], 1, 1, (again, k))
    with g.compile(runtime=runtime, backend=backend) as exe:

        def launches(number: int) -> Callable[[], None]:
            def work() -> None:
                for i in range(each):
                    exe.launch(k=each * number + i)

            return work

        def looks() -> None:
            for _ in range(50):
                exe.synchronize()
                assert 0 <= exe.parameters["k"] < each * threads

        at_once(looks, *(launches(number) for number in range(threads)))
        assert exe.read("seen").tolist() == [1] * (each * threads)
        assert exe.read("again").tolist() == [1] * (each * threads)
        assert exe.stats.launches == each * threads


def test_clones_run_at_the_same_time(runtime: Runtime) -> None:
    """The first waits on the device for what the second writes; were they run one after the other, it would wait for ever."""
    g = hg.Graph("writes")
    flag = g.device_array("flag", np.zeros(1, "u4"))
    g.memory_ops([hg.write_value(flag[0], 1)], name="write")
    with g.compile(runtime=runtime) as writes:
        other = hg.Graph("waits")
        there = other.external_array("there", writes.array("flag"))
        other.memory_ops([hg.wait_value(there[0], 1)], name="wait")
        with other.compile(runtime=runtime) as waits, waits.clone() as twin:
            waits.launch()
            twin.launch()
            writes.launch()
            writes.synchronize(timeout_s=60)
            waits.synchronize(timeout_s=60)
            twin.synchronize(timeout_s=60)
            assert writes.read("flag").tolist() == [1]


# -- every call from any thread, whatever its current device or context is -------------------------------------------------

Call = Callable[[Callable[[], Any]], Any]


def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread of its own and return what it returns."""
    results: list[Any] = []
    at_once(lambda: results.append(work()))
    return results[0]


@pytest.fixture(params=["thread", "pool", "asyncio"])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Call]:
    """What calls a function in another thread: a new one each time, one of a pool, or one of asyncio's."""
    if request.param == "thread":
        yield in_thread
    elif request.param == "pool":
        with ThreadPoolExecutor(2) as pool:
            yield lambda work: pool.submit(work).result()
    else:
        yield lambda work: asyncio.run(asyncio.to_thread(work))


class Chain:
    """What `chain` computes, with the values that its nodes have now."""

    def __init__(self) -> None:
        self.x, self.y = np.arange(N, dtype="i4"), np.zeros(N, "i4")
        self.down = True

    def step(self, up: int, down: int | None = None) -> None:
        x, y = self.x.view(np.uint32), self.y.view(np.uint32)
        y[:] = 31 * y + 7 * x + np.uint32(up)
        if self.down:
            x[:] = 31 * x + 7 * y + np.uint32(up if down is None else down)


def test_every_call_works_in_another_thread(runtime: Runtime, backend: Any, elsewhere: Call) -> None:
    g, wanted, heard = chain(), Chain(), []
    g.host(lambda h: heard.append(int(h[0])), args=(g.arrays["h"],), name="hear")
    start, stop = hg.Event("start"), hg.Event("stop")
    g.record(start, name="begin")
    g.record(stop, name="end", after=["begin"])
    seen = np.zeros(N, "i4")

    def equal(exe: hg.Executable) -> None:
        assert elsewhere(lambda: exe.read("y")).tolist() == wanted.y.tolist()
        assert elsewhere(lambda: exe.read("x")).tolist() == wanted.x.tolist()

    exe = elsewhere(lambda: g.compile(runtime=runtime, backend=backend))
    for k in (3, 3, 4):
        elsewhere(partial(exe.launch, k=k))
        wanted.step(k)
    elsewhere(exe.launch)
    wanted.step(4)
    elsewhere(exe.synchronize)
    assert elsewhere(exe.done)
    equal(exe)
    assert elsewhere(lambda: exe.elapsed_us("start", "stop")) >= 0
    elsewhere(lambda: exe.set("up", args=(g.arrays["y"], g.arrays["x"], 11, N)))
    elsewhere(lambda: exe.run(k=5))
    wanted.step(11, 5)
    elsewhere(lambda: exe.disable("down"))
    elsewhere(lambda: exe.run(k=6))
    wanted.down = False
    wanted.step(11, 6)
    elsewhere(lambda: exe.enable("down"))
    wanted.down = True
    elsewhere(lambda: exe.write("y", seen))
    wanted.y[:] = 0
    spans = elsewhere(lambda: exe.profile(k=7)).spans
    assert {span.name for span in spans if not span.name.startswith("~")} == {node.name for node in g.nodes}
    wanted.step(11, 7)
    equal(exe)
    twin = elsewhere(exe.clone)
    elsewhere(lambda: twin.run(k=8))
    wanted.step(11, 8)
    equal(twin)
    elsewhere(twin.close)
    assert elsewhere(lambda: exe.graph_memory.used) >= 0
    if exe.graph_handle:
        assert len(elsewhere(lambda: hg.Graph.from_handle(exe.graph_handle, runtime, arrays=exe)).nodes) >= 4
    other = chain()
    elsewhere(lambda: exe.update(other, rebuild=True))
    elsewhere(lambda: exe.run(k=9))
    assert len(heard) == 8
    elsewhere(exe.close)


def test_verify_works_in_another_thread(runtime: Runtime) -> None:
    assert in_thread(lambda: hg.verify(chain(), runtime=runtime, orders=2, repeats=1)).ok


def test_from_capture_works_in_another_thread(runtime: Runtime) -> None:
    with chain().compile(runtime=runtime) as exe:
        memory = exe.array("y").ptr

        def fill(stream: Any) -> None:
            runtime.memset_async(Fill2D(memory, 4, 7, N), int(stream))

        g = in_thread(lambda: hg.Graph.from_capture(fill, runtime, arrays=exe))
        with in_thread(lambda: g.compile(runtime=runtime)) as filling:
            in_thread(filling.run)
        assert exe.read("y").tolist() == [7] * N


@pytest.mark.filterwarnings("ignore:.*was never closed:ResourceWarning")
def test_finalizer_runs_in_another_thread(runtime: Runtime, backend: Any) -> None:
    left = [chain().compile(runtime=runtime, backend=backend)]
    left[0].launch(k=2)

    def drop() -> None:
        left.clear()
        gc.collect()

    in_thread(drop)
    with chain().compile(runtime=runtime, backend=backend) as exe:
        exe.run(k=2)


def test_host_callbacks_run_while_threads_launch(runtime: Runtime, backend: Any) -> None:
    g, heard = chain(), []
    g.host(lambda h: heard.append(int(h[0])), args=(g.arrays["h"],), name="hear")
    with g.compile(runtime=runtime, backend=backend) as exe:

        def launch() -> None:
            for _ in range(10):
                exe.run(k=1)

        at_once(*[launch] * 4)
        exe.synchronize()
    wanted, firsts = Chain(), []
    for _ in range(40):
        wanted.step(1)
        firsts.append(int(wanted.y[0]))
    assert heard == firsts


# -- contexts that other libraries change, which are CUDA's -----------------------------------------------------------------


@pytest.fixture
def cuda(runtime: Runtime) -> Any:
    if runtime.name != "nvidia":
        pytest.skip(f"runtime {runtime.name!r} has no contexts")
    return ctypes.CDLL("libcuda.so.1")


def current(cuda: Any) -> int:
    """Return the thread's current context."""
    context = ctypes.c_void_p()
    assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value or 0


def used_with(exe: hg.Executable, disturb: Callable[[], None]) -> None:
    """Use an Executable, with something that changes what is current before each call."""
    wanted = Chain()
    for k in (1, 2, 2):
        disturb()
        exe.launch(k=k)
        wanted.step(k)
    disturb()
    exe.launch()
    wanted.step(2)
    disturb()
    exe.set("down", block=N)
    disturb()
    exe.run(k=4)
    wanted.step(4)
    disturb()
    exe.disable("down")
    disturb()
    exe.enable("down")
    disturb()
    assert exe.read("y").tolist() == wanted.y.tolist()
    disturb()
    exe.write("y", 0)
    disturb()
    assert exe.profile(k=1).spans
    disturb()
    exe.clone().close()
    disturb()
    exe.close()


def test_context_may_be_popped_before_each_call(runtime: Runtime, backend: Any, cuda: Any) -> None:
    def pop() -> None:
        assert cuda.cuCtxSetCurrent(None) == 0

    def work() -> None:
        used_with(chain().compile(runtime=runtime, backend=backend), pop)
        assert current(cuda) == 0

    in_thread(work)
    before = ctypes.c_void_p(current(cuda))
    try:
        work()
    finally:
        cuda.cuCtxSetCurrent(before)


def test_context_of_somebody_else_stays_current(runtime: Runtime, backend: Any, cuda: Any) -> None:
    theirs = ctypes.c_void_p()

    def work() -> None:
        assert cuda.cuCtxCreate_v2(ctypes.byref(theirs), 0, 0) == 0
        exe = chain().compile(runtime=runtime, backend=backend)
        assert current(cuda) == theirs.value
        used_with(exe, lambda: None)
        assert current(cuda) == theirs.value
        assert cuda.cuCtxDestroy_v2(theirs) == 0

    in_thread(work)


def test_torch_works_between_launches(runtime: Runtime, backend: Any, cuda: Any) -> None:
    torch = other_library("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    last = torch.cuda.device_count() - 1

    def disturb() -> None:
        torch.cuda.set_device(last)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            assert float(torch.ones(100, device="cuda").sum()) == 100
        stream.synchronize()

    def work() -> None:
        used_with(chain().compile(runtime=runtime, backend=backend), disturb)
        assert torch.cuda.current_device() == last
        torch.cuda.set_device(0)

    in_thread(work)
    work()


def test_cupy_works_between_launches(runtime: Runtime, backend: Any, cuda: Any) -> None:
    cupy = other_library("cupy")
    last = cupy.cuda.runtime.getDeviceCount() - 1

    def disturb() -> None:
        cupy.cuda.runtime.setDevice(last)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            assert int(cupy.arange(100).sum()) == 4950
        stream.synchronize()

    def work() -> None:
        used_with(chain().compile(runtime=runtime, backend=backend), disturb)
        assert cupy.cuda.runtime.getDevice() == last
        cupy.cuda.runtime.setDevice(0)

    in_thread(work)
    work()
