"""Many launches with changing parameters: they take no more memory than the bare calls do."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import runtime_or_skip

import hipgraphdsl as hg
from hipgraphdsl.runtimes.base import Runtime

LAUNCHES = 100_000
TOGETHER = 100  # launches between two waits
NOISE_BYTES = 512 * 1024  # by which the resident memory of a process that does nothing new still moves
SOURCE = r"""
extern "C" __global__ void add(int* y, int a) { if (threadIdx.x < 4) y[threadIdx.x] += a; }
"""


@pytest.fixture(params=["cpu", "amd", "nvidia"])
def device(request: pytest.FixtureRequest) -> Runtime:
    return runtime_or_skip(request.param)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def growth(loop: Callable[[int], None]) -> int:
    """Return by how many bytes the process grows in a loop, after a warm-up."""
    loop(LAUNCHES // 10)
    gc.collect()
    before = resident_bytes()
    loop(LAUNCHES)
    gc.collect()
    return resident_bytes() - before


def bare_loop(runtime: Runtime) -> Callable[[int], None]:
    code = runtime.rtc_compile(SOURCE, ["add"])
    function = runtime.module_get_function(runtime.module_load_data(code.image), code.lowered["add"])
    memory, stream, graph = runtime.malloc(16), runtime.stream_create(), runtime.graph_create()
    pointer, number = ctypes.c_void_p(memory), ctypes.c_int(0)
    table = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(number))
    args = ctypes.addressof(table)
    node = runtime.graph_add_kernel_node(graph, (), function, (1, 1, 1), (4, 1, 1), 0, args)
    graph_exec = runtime.graph_instantiate(graph)

    def loop(count: int) -> None:
        for i in range(count):
            number.value = i
            runtime.graph_exec_kernel_node_set_params(graph_exec, node, function, (1, 1, 1), (4, 1, 1), 0, args)
            runtime.graph_launch(graph_exec, stream)
            if i % TOGETHER == 0:
                runtime.stream_synchronize(stream)
        runtime.stream_synchronize(stream)
        assert (pointer.value, len(table)) == (memory, 2)  # both are kept as long as the loop

    return loop


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell a process its resident memory")
@pytest.mark.parametrize("backend", ["explicit", "capture", "streams"])
def test_launches_with_changing_parameters_take_no_more_memory_than_bare_calls(backend: Any, device: Runtime) -> None:
    bare = growth(bare_loop(device))
    g = hg.Graph("soak")
    a = g.param("a", "int32", 0)
    y = g.device_array("y", np.zeros(4, "i4"))
    g.kernel(hg.Module(SOURCE)["add"], 1, 4, (y, a))
    with g.compile(device, backend) as exe:

        def loop(count: int) -> None:
            for i in range(count):
                exe.launch(a=i)
                if i % TOGETHER == 0:
                    exe.synchronize()
            exe.synchronize()

        ours = growth(loop)
        total = sum(range(LAUNCHES // 10)) + sum(range(LAUNCHES))
        assert exe.read("y").tolist() == [(total + 2**31) % 2**32 - 2**31] * 4
    assert ours <= max(bare, 0) + NOISE_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell a process its resident memory")
def test_compiling_and_closing_again_and_again_takes_no_more_memory(device: Runtime) -> None:
    module = hg.Module(SOURCE)

    def loop(count: int) -> None:
        for _ in range(count // 200):
            g = hg.Graph("again")
            y, t = g.device_array("y", np.zeros(4, "i4")), g.alloc("t", 4, "i4")
            g.memset(t, 1)
            g.memcpy(y, t)
            g.free(t)
            g.kernel(module["add"], 1, 4, (y, 1))
            with g.compile(device) as exe:
                exe.run()

    assert growth(loop) <= 4 * NOISE_BYTES


def test_graph_memory_tells_and_gives_back(device: Runtime) -> None:
    memory = hg.graph_memory(device)
    nbytes = 1 << 20
    g = hg.Graph("g")
    out = g.host_array("out", shape=4, dtype="u1")
    t = g.alloc("t", nbytes, "u1")
    g.memset(t, 7)
    g.memcpy(out, t[:4])
    g.free(t)
    with g.compile(device) as exe:
        memory.trim()
        memory.reset_high()
        before = memory.used  # what graphs of other tests have left
        exe.run()
        assert exe.read("out").tolist() == [7] * 4
        assert memory.used == exe.graph_memory.used >= before
        assert memory.reserved_high >= memory.used_high >= nbytes
        assert memory.reserved_high >= memory.reserved >= memory.used
        assert f"{memory.used_high} at most" in repr(memory)
    memory.trim()
    assert memory.used <= memory.reserved <= memory.reserved_high
    memory.reset_high()
    assert memory.used_high == memory.used
