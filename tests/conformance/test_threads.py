"""Clones in flight at once, launches from several threads and into users' own streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import HERE

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

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


def test_clones_in_threads_and_streams_of_their_own_keep_their_values_apart(runtime: Runtime, backend: Any) -> None:
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
