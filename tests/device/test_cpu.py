"""What the embedded CPU runtime alone promises: HIP's capture rules, concurrency, fairness, errors, and no leaks."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import itertools
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from hipgraphdsl import compiler as compiler_module
from hipgraphdsl.cache import wanted_folder
from hipgraphdsl.compiler import Compiler, build, find_compiler
from hipgraphdsl.errors import DeclarationError, HipError, RuntimeUnavailable
from hipgraphdsl.parts.cpu.runtime import CpuRuntime
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.data import (
    CaptureMode,
    CaptureStatus,
    ConditionalMode,
    Copy3D,
    Fill2D,
    FunctionInfo,
    GraphMemAttribute,
    MemcpyKind,
    MemOp,
    NodeType,
)

DEFAULT = MemcpyKind.DEFAULT
ONE = (1, 1, 1)
HOSTFN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MARK = 2**63  # above those of programs
CValue: TypeAlias = "ctypes.c_void_p | ctypes.c_uint32"

# A kernel library written by hand, so that these tests need no kernel compiler.
KERNELS = r"""
#include <stdint.h>
#include <time.h>
typedef struct { uint32_t grid[3], block[3], shared_bytes, cooperative; void* (*worker)(void); } hgcpu_launch;
typedef int (*hgcpu_entry)(const hgcpu_launch*, void* const*, uint64_t, uint64_t);
typedef struct { const char* name; hgcpu_entry entry; uint32_t n_params, alignment; const uint32_t (*params)[2];
                 hgcpu_entry direct; } hgcpu_kernel_info;
typedef struct { const char* name; void* address; uint64_t bytes; } hgcpu_symbol_info;
typedef struct { uint32_t abi, n_kernels; const hgcpu_kernel_info* kernels;
                 uint32_t n_symbols; const hgcpu_symbol_info* symbols; } hgcpu_module_info;

static int empty(const hgcpu_launch*, void* const*, uint64_t, uint64_t) { return 0; }
static int broken(const hgcpu_launch*, void* const*, uint64_t, uint64_t) { return 700; }
static int count(const hgcpu_launch*, void* const* args, uint64_t first, uint64_t last) {
  uint32_t* x = *(uint32_t**)args[0];
  for (uint64_t b = first; b < last; ++b) x[b] += 1;
  return 0;
}
static int note(const hgcpu_launch*, void* const* args, uint64_t, uint64_t) {  // list[list[0]++ + 1] = value
  uint32_t* list = *(uint32_t**)args[0];
  list[__atomic_fetch_add(list, 1, __ATOMIC_SEQ_CST) + 1] = *(uint32_t*)args[1];
  return 0;
}
static int await_flag(const hgcpu_launch*, void* const* args, uint64_t, uint64_t) {
  while (!__atomic_load_n(*(uint32_t**)args[0], __ATOMIC_SEQ_CST)) {}
  return 0;
}
static int set_flag(const hgcpu_launch*, void* const* args, uint64_t, uint64_t) {
  __atomic_store_n(*(uint32_t**)args[0], *(uint32_t*)args[1], __ATOMIC_SEQ_CST);
  return 0;
}
static int slow_count(const hgcpu_launch*, void* const* args, uint64_t first, uint64_t last) {
  for (uint64_t b = first; b < last; ++b) {
    (*(uint32_t**)args[0])[b] += 1;
    timespec pause = {0, 20000};
    nanosleep(&pause, 0);
  }
  return 0;
}
static uint32_t table[16];
static const uint32_t pointer[][2] = {{0, 8}}, pointer_and_int[][2] = {{0, 8}, {8, 4}};
static const hgcpu_kernel_info kernels[] = {
  {"empty", empty}, {"broken", broken}, {"count", count, 1, 8, pointer}, {"note", note, 2, 8, pointer_and_int},
  {"await_flag", await_flag, 1, 8, pointer}, {"set_flag", set_flag, 2, 8, pointer_and_int},
  {"slow_count", slow_count, 1, 8, pointer}};
static const hgcpu_symbol_info symbols[] = {{"table", table, sizeof table}};
static const hgcpu_module_info info = {4, sizeof kernels / sizeof *kernels, kernels, 1, symbols};
extern "C" __attribute__((visibility("default"))) const hgcpu_module_info* hgcpu_module(void) { return &info; }
"""


@pytest.fixture(scope="session")
def library() -> Path:
    try:
        return build(find_compiler(), KERNELS, ("-O1",), stem="cpu-test")
    except RuntimeUnavailable as error:
        pytest.skip(f"no C++ compiler: {error}")


@pytest.fixture(scope="session")
def rt(library: Path) -> CpuRuntime:
    runtime = open_runtime("cpu")
    assert isinstance(runtime, CpuRuntime)
    return runtime


def device_synchronize(rt: CpuRuntime) -> None:
    """Wait for all streams by HIP's own call, which programs use and the protocol does not have."""
    if code := rt._ext.hipDeviceSynchronize():
        rt._fail("hipDeviceSynchronize", code)


class Args:
    """Kernel arguments, and the address of the array of pointers to them."""

    def __init__(self, *values: CValue) -> None:
        self.values = values
        self.pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        self.address = ctypes.addressof(self.pointers)


def pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


class Bench:
    """A stream, the test's kernels, and memory that is freed at the end."""

    def __init__(self, rt: CpuRuntime, library: Path) -> None:
        self.rt = rt
        self.module = rt.module_load_data(library.read_bytes())
        self.kernels = {
            name: rt.module_get_function(self.module, name)
            for name in ("empty", "broken", "count", "note", "await_flag", "set_flag", "slow_count")
        }
        self.stream = rt.stream_create()
        self.owned: list[int] = []
        self.words_at = 0
        self.callbacks: list[object] = []

    def words(self, count: int) -> tuple[int, ctypes.Array[ctypes.c_uint32]]:
        """Return the address of zeroed device memory, and the same memory as an array."""
        address = self.rt.malloc(count * 4)
        self.owned.append(address)
        ctypes.memset(address, 0, count * 4)
        return address, (ctypes.c_uint32 * count).from_address(address)

    def add(self, graph: int, deps: list[int], name: str, *values: CValue, blocks: int = 1) -> int:
        args = Args(*values)
        return self.rt.graph_add_kernel_node(graph, deps, self.kernels[name], (blocks, 1, 1), ONE, 0, args.address)

    def body(self, name: str, *values: CValue) -> Callable[[int], None]:
        """Return what fills a body of a conditional node with one kernel."""

        def fill(graph: int) -> None:
            self.add(graph, [], name, *values)

        return fill

    def launch(self, stream: int, name: str, *values: CValue, blocks: int = 1) -> None:
        args = Args(*values)
        self.rt.module_launch_kernel(self.kernels[name], (blocks, 1, 1), ONE, 0, stream, args.address)

    def host(self, fn: Callable[[], None]) -> int:
        """Return the address of a C function that calls `fn`."""
        callback = HOSTFN(lambda _: fn())
        self.callbacks.append(callback)
        return ctypes.cast(callback, ctypes.c_void_p).value or 0

    def run(self, graph: int) -> None:
        """Launch a graph once and wait for it."""
        graph_exec = self.rt.graph_instantiate(graph)
        self.rt.graph_launch(graph_exec, self.stream)
        self.rt.stream_synchronize(self.stream)
        self.rt.graph_exec_destroy(graph_exec)

    def close(self) -> None:
        self.rt.stream_destroy(self.stream)
        device_synchronize(self.rt)
        for address in self.owned:
            self.rt.free(address)
        self.rt.module_unload(self.module)


@pytest.fixture
def bench(rt: CpuRuntime, library: Path) -> Iterator[Bench]:
    made = Bench(rt, library)
    yield made
    made.close()


def code_of(call: Callable[[], object]) -> int:
    """Return the HIP error code of a call, 0 if it made none."""
    try:
        call()
    except HipError as error:
        return error.code
    return 0


# -- device and memory ---------------------------------------------------------------------------------------------


def test_there_is_one_device_with_the_cores_of_this_process(rt: CpuRuntime) -> None:
    assert rt.get_device_count() == 1
    assert rt.target.platform == "cpu"
    assert rt.target.multiprocessors == rt.workers >= 1
    assert rt.runtime_get_version()[0] == 7
    assert rt.get_device_name(0)
    assert code_of(lambda: rt.set_device(1)) == 101


def test_memory_is_aligned_and_too_much_of_it_is_refused(rt: CpuRuntime) -> None:
    for nbytes in (1, 100, 5000):
        address = rt.malloc(nbytes)
        assert address % 64 == 0
        rt.free(address)
    assert code_of(lambda: rt.malloc(1 << 60)) == 2
    assert code_of(lambda: rt.malloc_async(1 << 60, 0)) == 2
    free, total = rt.mem_get_info()
    assert 0 < free <= total


def test_memory_is_freed_once(rt: CpuRuntime) -> None:
    address = rt.malloc(64)
    assert code_of(lambda: rt.host_free(address)) == 1
    rt.free(address)
    assert code_of(lambda: rt.free(address)) == 1
    assert code_of(lambda: rt.free(12345)) == 1
    rt.free(0)


def test_memory_freed_while_a_kernel_uses_it_stays_until_the_kernel_is_done(bench: Bench) -> None:
    flag_at, flag = bench.words(1)
    target = bench.rt.malloc(4)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))
    bench.launch(bench.stream, "count", pointer(target))
    bench.rt.free(target)
    taken = [bench.rt.malloc(4) for _ in range(20)]
    assert target not in taken
    flag[0] = 1
    bench.rt.stream_synchronize(bench.stream)
    for address in taken:
        bench.rt.free(address)


def test_stream_ordered_memory_is_reused(bench: Bench) -> None:
    rt = bench.rt
    first = rt.malloc_async(1000, bench.stream)
    rt.free_async(first, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert rt.malloc_async(1000, bench.stream) == first
    rt.free_async(first, bench.stream)
    assert code_of(lambda: rt.free_async(first, bench.stream)) == 1


@pytest.mark.slow
def test_memory_that_a_stream_freed_may_become_a_graphs_at_once(bench: Bench) -> None:
    rt = bench.rt
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            for pointer in [rt.malloc_async(256, bench.stream) for _ in range(8)]:
                rt.free_async(pointer, bench.stream)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(40_000):
            graph = rt.graph_create()
            for address in [rt.graph_add_mem_alloc_node(graph, [], 256, 0)[1] for _ in range(8)]:
                rt.graph_add_mem_free_node(graph, [], address)
            rt.graph_destroy(graph)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_fills_write_every_element_and_nothing_else(bench: Bench, size: int) -> None:
    address, _ = bench.words(64)
    raw = (ctypes.c_ubyte * 256).from_address(address)
    value = 0x04030201 & (256**size - 1)
    bench.rt.memset_async(Fill2D(address + 8, size, value, 3, 4, 32), bench.stream)
    bench.rt.stream_synchronize(bench.stream)
    expected = bytearray(256)
    for row in range(4):
        expected[8 + 32 * row : 8 + 32 * row + 3 * size] = value.to_bytes(size, "little") * 3
    assert bytes(raw) == bytes(expected)


def test_rows_of_a_fill_stand_where_its_elements_may(bench: Bench) -> None:
    rt = bench.rt
    at, _ = bench.words(8)
    graph = rt.graph_create()
    odd, even = Fill2D(at, 2, 0x0304, 3, 4, 7), Fill2D(at, 2, 0x0304, 3, 4, 6)
    for fill, wanted in ((odd, 1), (even, 0)):
        assert code_of(lambda f=fill: rt.memset_async(f, bench.stream)) == wanted  # type: ignore[misc]
        assert code_of(lambda f=fill: rt.graph_add_memset_node(graph, [], f)) == wanted  # type: ignore[misc]
    rt.stream_synchronize(bench.stream)
    rt.graph_destroy(graph)


def test_a_streams_priority_is_clamped_to_the_range(rt: CpuRuntime) -> None:
    stream, priority = rt.stream_create(-7), ctypes.c_int(-7)
    assert rt._ext.hipStreamGetPriority(ctypes.c_void_p(stream), ctypes.byref(priority)) == 0
    assert priority.value == 0
    rt.stream_destroy(stream)


def test_a_pitched_copy_moves_its_box_only(bench: Bench) -> None:
    src_at, src = bench.words(4 * 5 * 6)
    dst_at, dst = bench.words(8 * 7 * 6)
    src[:] = list(range(120))
    copy = Copy3D(dst_at, 32, 7, src_at, 16, 5, 8, 3, 2, DEFAULT, dst_pos=(4, 1, 2), src_pos=(8, 2, 1))
    bench.rt.memcpy_3d_async(copy, bench.stream)
    bench.rt.stream_synchronize(bench.stream)
    expected = [0] * 336
    for z, y, x in itertools.product(range(2), range(3), range(2)):
        expected[(z + 2) * 56 + (y + 1) * 8 + x + 1] = (z + 1) * 20 + (y + 2) * 4 + x + 2
    assert list(dst) == expected


def test_a_large_copy_is_whole(bench: Bench) -> None:
    count = 3_000_001
    src_at, src = bench.words(count)
    dst_at, dst = bench.words(count)
    bench.rt.memset_async(Fill2D(src_at, 4, 0x12345678, count), bench.stream)
    src_end = count - 1
    bench.rt.memcpy_async(dst_at, src_at, count * 4, DEFAULT, bench.stream)
    bench.rt.stream_synchronize(bench.stream)
    assert src[src_end] == 0x12345678
    assert bytes(dst) == bytes(src)


# -- handles ---------------------------------------------------------------------------------------------------------


def test_stale_and_foreign_handles_are_refused(bench: Bench) -> None:
    rt = bench.rt
    stream, event, graph = rt.stream_create(), rt.event_create(), rt.graph_create()
    node = rt.graph_add_empty_node(graph, [])
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.event_destroy(event)
    rt.stream_destroy(stream)
    assert code_of(lambda: rt.stream_synchronize(stream)) == 400
    assert code_of(lambda: rt.stream_destroy(stream)) == 400
    assert code_of(lambda: rt.event_record(event, 0)) == 400
    assert code_of(lambda: rt.graph_destroy(graph)) == 1
    assert code_of(lambda: rt.graph_destroy(0)) == 1
    assert code_of(lambda: rt.graph_node_get_type(node)) == 1
    assert code_of(lambda: rt.graph_launch(graph_exec, bench.stream)) == 1
    assert code_of(lambda: rt.graph_instantiate(bench.stream)) == 1
    assert code_of(lambda: rt.module_unload(0)) == 400
    assert code_of(lambda: rt.module_get_function(bench.module, "nothing")) == 500
    assert code_of(lambda: rt.module_load_data(b"no library at all" + bytes(64))) == 200


@pytest.mark.parametrize(("grid", "block"), [((0, 1, 1), ONE), (ONE, (0, 1, 1)), (ONE, (1025, 1, 1)), (ONE, (32, 32, 2))])
def test_impossible_launches_are_refused(bench: Bench, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    rt, empty = bench.rt, bench.kernels["empty"]
    graph = rt.graph_create()
    assert code_of(lambda: rt.module_launch_kernel(empty, grid, block, 0, bench.stream, 0)) == 9
    assert code_of(lambda: rt.graph_add_kernel_node(graph, [], empty, grid, block, 0, 0)) == 9
    assert rt.graph_get_nodes(graph) == ()
    rt.graph_destroy(graph)


PACKED = r"""
struct Six { float x[6]; };
struct alignas(64) Wide { double x[4]; };
struct Odd { char x[3]; };
extern "C" __global__ void k(int a, Six six, Odd odd, Wide wide, short b, double* out) {
  out[0] = a;
  for (int i = 0; i < 6; ++i) out[1 + i] = six.x[i];
  for (int i = 0; i < 3; ++i) out[7 + i] = odd.x[i];
  for (int i = 0; i < 4; ++i) out[10 + i] = wide.x[i];
  out[14] = b;
  out[15] = (unsigned long long)&wide % 64;
}
"""


def test_packed_arguments_are_laid_out_like_the_members_of_a_struct(bench: Bench) -> None:
    rt = bench.rt
    module = rt.module_load_data(rt.rtc_compile(PACKED, ["k"]).image)
    kernel = rt.module_get_function(module, "k")
    layout = struct.Struct("=i 6f 3b 33x 4d 32x h 6x Q")
    offsets = ((0, 4), (4, 24), (28, 3), (64, 64), (128, 2), (136, 8))
    assert rt.func_get_info(kernel) == FunctionInfo("k", offsets)
    at, _ = bench.words(32)
    packed = layout.pack(*range(1, 15), 15, at)
    buffer = ctypes.create_string_buffer(b"-" + packed, len(packed) + 1)  # at any address
    for short, wanted in ((0, 0), (1, 1)):
        nbytes = ctypes.c_size_t(len(packed) - short)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer) + 1, 2, ctypes.addressof(nbytes), 3)
        launch = rt._ext.hipModuleLaunchKernel
        assert launch(ctypes.c_void_p(kernel), *[1] * 6, 0, ctypes.c_void_p(bench.stream), None, extra) == wanted
    rt.stream_synchronize(bench.stream)
    assert list((ctypes.c_double * 16).from_address(at)) == [*range(1, 16), 0]
    rt.module_unload(module)


def test_each_module_has_its_own_variables(bench: Bench, library: Path) -> None:
    rt = bench.rt
    images = [library.read_bytes(), library.read_bytes(), b"HGCPU:" + os.fsencode(library) + b"\0"]
    images.append(images[-1])
    modules = [rt.module_load_data(image) for image in images]
    symbols = [rt.module_get_global(module, "table") for module in modules]
    assert len({address for address, _ in symbols}) == 4
    assert {nbytes for _, nbytes in symbols} == {64}
    for module in modules:
        rt.module_unload(module)


def test_a_module_outlives_its_handle_while_a_node_has_its_kernel(bench: Bench, library: Path) -> None:
    rt = bench.rt
    module = rt.module_load_data(library.read_bytes())
    graph = rt.graph_create()
    at, words = bench.words(1)
    args = Args(pointer(at))
    rt.graph_add_kernel_node(graph, [], rt.module_get_function(module, "count"), ONE, ONE, 0, args.address)
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_destroy(graph)
    rt.module_unload(module)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert words[0] == 1
    rt.graph_exec_destroy(graph_exec)


# -- streams and events ----------------------------------------------------------------------------------------------


def test_streams_run_at_the_same_time_and_more_of_them_than_cores(bench: Bench) -> None:
    rt = bench.rt
    count = rt.workers + 3
    flags = [bench.words(1)[0] for _ in range(count)]
    streams = [rt.stream_create() for _ in range(count)]
    # Each waits for the next, and the last is set by a stream that was given its work last.
    for stream, flag, follower in zip(streams, flags, [*flags[1:], 0], strict=True):
        bench.launch(stream, "await_flag", pointer(flag))
        if follower:
            bench.launch(stream, "empty")
    for stream, flag in zip(reversed(streams), reversed(flags), strict=True):
        other = rt.stream_create()
        bench.launch(other, "set_flag", pointer(flag), ctypes.c_uint32(1))
        assert rt.stream_wait(stream, 30.0)
        rt.stream_destroy(other)
    for stream in streams:
        rt.stream_destroy(stream)


def test_a_stream_keeps_its_order(bench: Bench) -> None:
    at, words = bench.words(300)
    for value in range(200):
        bench.launch(bench.stream, "note", pointer(at), ctypes.c_uint32(value))
    bench.rt.stream_synchronize(bench.stream)
    assert list(words[1:201]) == list(range(200))


def test_an_event_orders_two_streams_and_measures_time(bench: Bench) -> None:
    rt = bench.rt
    other = rt.stream_create()
    flag_at, flag = bench.words(1)
    at, words = bench.words(8)
    start, stop = rt.event_create(), rt.event_create()
    rt.event_record(start, bench.stream)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))
    bench.launch(bench.stream, "note", pointer(at), ctypes.c_uint32(1))
    rt.event_record(stop, bench.stream)
    rt.stream_wait_event(other, stop)
    bench.launch(other, "note", pointer(at), ctypes.c_uint32(2))
    assert code_of(lambda: rt.event_elapsed_time(start, stop)) == 600
    rt.event_synchronize(start)  # from here on the clock of the event runs
    time.sleep(0.01)
    flag[0] = 1
    rt.stream_synchronize(other)
    assert list(words[:3]) == [2, 1, 2]
    assert rt.event_elapsed_time(start, stop) >= 10.0
    rt.stream_destroy(other)
    rt.event_destroy(start)
    rt.event_destroy(stop)


def test_a_wait_concerns_the_record_that_was_last_when_it_was_issued(bench: Bench) -> None:
    rt = bench.rt
    other, third = rt.stream_create(), rt.stream_create()
    flag_at, flag = bench.words(1)
    event = rt.event_create()
    assert rt.event_query(event)  # one that was never recorded
    rt.event_record(event, bench.stream)
    rt.stream_wait_event(other, event)
    bench.launch(third, "await_flag", pointer(flag_at))
    rt.event_record(event, third)  # a later record does not hold up the wait above
    assert rt.stream_wait(other, 30.0)
    assert not rt.stream_query(third)
    assert not rt.event_query(event)
    flag[0] = 1
    rt.stream_synchronize(third)
    assert rt.event_query(event)
    for stream in (other, third):
        rt.stream_destroy(stream)
    rt.event_destroy(event)


def test_a_wait_ends_at_its_timeout(bench: Bench) -> None:
    flag_at, flag = bench.words(1)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))
    assert not bench.rt.stream_wait(bench.stream, 0.02)
    assert not bench.rt.stream_query(bench.stream)
    flag[0] = 1
    assert bench.rt.stream_wait(bench.stream, 30.0)


def test_a_wait_is_ended_by_a_signal(bench: Bench) -> None:
    flag_at, flag = bench.words(1)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, stop)
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            bench.rt.stream_synchronize(bench.stream)
    finally:
        signal.signal(signal.SIGUSR1, old)
        flag[0] = 1
    bench.rt.stream_synchronize(bench.stream)


def test_a_destroyed_stream_finishes_its_work(bench: Bench) -> None:
    stream = bench.rt.stream_create()
    flag_at, flag = bench.words(1)
    at, words = bench.words(1)
    bench.launch(stream, "await_flag", pointer(flag_at))
    bench.launch(stream, "count", pointer(at))
    bench.rt.stream_destroy(stream)
    flag[0] = 1
    device_synchronize(bench.rt)
    assert words[0] == 1


def test_memory_operations_write_and_wait(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(8)
    rt.stream_batch_mem_op(
        bench.stream,
        [MemOp("wait", at, 5, 4, "geq"), MemOp("write", at + 8, 2**40 + 1, 8), MemOp("wait", at + 16, 6, 4, "and")],
    )
    assert not rt.stream_wait(bench.stream, 0.02)
    words[0] = 7
    assert not rt.stream_wait(bench.stream, 0.02)
    assert ctypes.c_uint64.from_address(at + 8).value == 2**40 + 1
    words[4] = 4
    assert rt.stream_wait(bench.stream, 30.0)


def test_a_semaphore_is_a_timeline(bench: Bench) -> None:
    rt = bench.rt
    other = rt.stream_create()
    semaphore = rt.semaphore_create(3)
    at, words = bench.words(1)
    rt.wait_external_semaphore_async(semaphore, 5, bench.stream)
    bench.launch(bench.stream, "count", pointer(at))
    rt.signal_external_semaphore_async(semaphore, 4, other)
    rt.stream_synchronize(other)
    assert rt.semaphore_value(semaphore) == 4
    assert not rt.stream_wait(bench.stream, 0.02)
    rt.semaphore_signal(semaphore, 6)
    assert rt.stream_wait(bench.stream, 30.0)
    assert words[0] == 1
    rt.semaphore_signal(semaphore, 2)
    assert rt.semaphore_value(semaphore) == 6
    rt.semaphore_destroy(semaphore)
    rt.stream_destroy(other)


# -- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["count", "slow_count"])
@pytest.mark.parametrize("blocks", [1, 2, 63, 1000])
def test_every_block_runs_once(bench: Bench, kernel: str, blocks: int) -> None:
    at, words = bench.words(blocks)
    bench.launch(bench.stream, kernel, pointer(at), blocks=blocks)
    bench.launch(bench.stream, "count", pointer(at), blocks=blocks)
    bench.rt.stream_synchronize(bench.stream)
    assert list(words) == [2] * blocks


# -- graphs ----------------------------------------------------------------------------------------------------------


def random_dag(rng: random.Random, nodes: int) -> list[list[int]]:
    return [sorted(rng.sample(range(i), min(i, rng.randint(0, 3)))) for i in range(nodes)]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_a_graph_runs_each_node_once_behind_its_dependencies(bench: Bench, seed: int, mode: int) -> None:
    rt = bench.rt
    before = random_dag(random.Random(seed), 60)
    at, words = bench.words(64)
    graph = rt.graph_create()
    nodes: list[int] = []
    for i, deps in enumerate(before):
        nodes.append(bench.add(graph, [nodes[d] for d in deps], "note", pointer(at), ctypes.c_uint32(i)))
    graph_exec = rt.graph_instantiate(graph)
    rt.set_schedule(seed, mode)
    try:
        for _ in range(10):
            words[0] = 0
            rt.graph_launch(graph_exec, bench.stream)
            rt.stream_synchronize(bench.stream)
            order = list(words[1 : words[0] + 1])
            assert sorted(order) == list(range(60))
            place = {node: k for k, node in enumerate(order)}
            assert all(place[d] < place[i] for i, deps in enumerate(before) for d in deps)
    finally:
        rt.set_schedule(0, 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_a_seed_replays_an_order_and_another_seed_gives_another(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(64)
    graph = rt.graph_create()
    for i in range(40):
        bench.add(graph, [], "note", pointer(at), ctypes.c_uint32(i))
    graph_exec = rt.graph_instantiate(graph)

    def orders(seed: int) -> list[list[int]]:
        rt.set_schedule(seed, 1)
        found = []
        for _ in range(3):
            words[0] = 0
            rt.graph_launch(graph_exec, bench.stream)
            rt.stream_synchronize(bench.stream)
            found.append(list(words[1:41]))
        return found

    try:
        first = orders(7)
        assert orders(7) == first
        assert orders(8) != first
        assert first[0] != first[1]
    finally:
        rt.set_schedule(0, 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_independent_nodes_run_at_the_same_time(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    graph = rt.graph_create()
    bench.add(graph, [], "await_flag", pointer(flag_at))
    bench.add(graph, [], "set_flag", pointer(flag_at), ctypes.c_uint32(1))
    graph_exec = rt.graph_instantiate(graph)
    for _ in range(20):
        flag[0] = 0
        rt.graph_launch(graph_exec, bench.stream)
        assert rt.stream_wait(bench.stream, 30.0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_waits_for_another_branch_ends_whichever_way_a_launch_runs(bench: Bench, seed: int) -> None:
    rt, dice = bench.rt, random.Random(seed)
    flag_at, flag = bench.words(1)
    at, words = bench.words(60)
    graph = rt.graph_create()
    nodes: list[int] = []
    branches: list[list[int]] = [[], []]  # a node of one never follows one of the other
    special, waiting = [dice.randrange(25), dice.randrange(25)], seed % 2
    for n in range(60):
        side = branches[n % 2]
        before = dice.sample(side[-6:], min(len(side), dice.randrange(4)))
        if len(side) == special[n % 2]:
            waits = n % 2 == waiting
            values = (pointer(flag_at),) if waits else (pointer(flag_at), ctypes.c_uint32(1))
            node = bench.add(graph, before, "await_flag" if waits else "set_flag", *values)
        else:
            node = bench.add(graph, before, "count", pointer(at + 4 * n))
            nodes.append(n)
        if dice.random() < 0.1:
            node = rt.graph_add_host_node(graph, [node], bench.host(lambda: None), 0)
        side.append(node)
    graph_exec = rt.graph_instantiate(graph)
    for launch in range(1, 16):  # the first twelve try all ways
        flag[0] = 0
        rt.graph_launch(graph_exec, bench.stream)
        assert rt.stream_wait(bench.stream, 30.0)
        assert [words[n] for n in nodes] == [launch] * len(nodes)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_arguments_are_copied_and_the_executable_outlives_its_graph(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(8)
    graph = rt.graph_create()
    value = ctypes.c_uint32(5)
    node = bench.add(graph, [], "note", pointer(at), value)
    value.value = 6
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_destroy(graph)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert list(words[:2]) == [1, 5]
    args = Args(pointer(at), ctypes.c_uint32(9))
    rt.graph_exec_kernel_node_set_params(graph_exec, node, bench.kernels["note"], ONE, ONE, 0, args.address)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert list(words[:3]) == [2, 5, 9]
    rt.graph_exec_destroy(graph_exec)


def test_a_change_concerns_later_launches_only(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    at, words = bench.words(8)
    graph = rt.graph_create()
    first = bench.add(graph, [], "await_flag", pointer(flag_at))
    second = bench.add(graph, [first], "note", pointer(at), ctypes.c_uint32(1))
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    args = Args(pointer(at), ctypes.c_uint32(2))
    rt.graph_exec_kernel_node_set_params(graph_exec, second, bench.kernels["note"], ONE, ONE, 0, args.address)
    rt.graph_launch(graph_exec, bench.stream)
    rt.graph_node_set_enabled(graph_exec, second, False)
    rt.graph_launch(graph_exec, bench.stream)
    rt.graph_exec_destroy(graph_exec)  # the launches go on
    flag[0] = 1
    rt.stream_synchronize(bench.stream)
    assert list(words[:4]) == [2, 1, 2, 0]
    rt.graph_destroy(graph)


def test_a_disabled_node_keeps_its_place_in_the_order(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    at, words = bench.words(8)
    graph = rt.graph_create()
    first = bench.add(graph, [], "await_flag", pointer(flag_at))
    middle = bench.add(graph, [first], "note", pointer(at), ctypes.c_uint32(1))
    bench.add(graph, [middle], "note", pointer(at), ctypes.c_uint32(2))
    empty = rt.graph_add_empty_node(graph, [])
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_node_set_enabled(graph_exec, middle, False)
    assert code_of(lambda: rt.graph_node_set_enabled(graph_exec, empty, False)) == 1
    rt.graph_launch(graph_exec, bench.stream)
    assert not rt.stream_wait(bench.stream, 0.02)
    assert words[0] == 0
    flag[0] = 1
    rt.stream_synchronize(bench.stream)
    assert list(words[:2]) == [1, 2]
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_launches_of_one_executable_never_overlap(bench: Bench) -> None:
    rt = bench.rt
    other = rt.stream_create()
    at, words = bench.words(1000)
    graph = rt.graph_create()
    previous: list[int] = []
    for _ in range(20):
        previous = [bench.add(graph, previous, "count", pointer(at), blocks=100)]  # not atomic
    graph_exec = rt.graph_instantiate(graph)
    for _ in range(50):
        rt.graph_launch(graph_exec, bench.stream)
        rt.graph_launch(graph_exec, other)
    rt.stream_synchronize(bench.stream)
    rt.stream_synchronize(other)
    assert list(words[:100]) == [2000] * 100
    rt.stream_destroy(other)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_several_executables_are_in_flight_at_once(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    streams = [rt.stream_create() for _ in range(2)]
    executables = []
    for kernel, values in (("await_flag", ()), ("set_flag", (ctypes.c_uint32(1),))):
        graph = rt.graph_create()
        bench.add(graph, [], kernel, pointer(flag_at), *values)
        executables.append(rt.graph_instantiate(graph))
        rt.graph_destroy(graph)
    for graph_exec, stream in zip(executables, streams, strict=True):
        rt.graph_launch(graph_exec, stream)
    for graph_exec, stream in zip(executables, streams, strict=True):
        assert rt.stream_wait(stream, 30.0)
        rt.graph_exec_destroy(graph_exec)
        rt.stream_destroy(stream)
    assert flag[0] == 1


def test_a_cycle_is_refused_at_instantiation(bench: Bench) -> None:
    rt = bench.rt
    graph = rt.graph_create()
    a = rt.graph_add_empty_node(graph, [])
    b = rt.graph_add_empty_node(graph, [a])
    rt.graph_add_dependencies(graph, [b], [a])
    assert code_of(lambda: rt.graph_instantiate(graph)) == 1
    rt.graph_destroy(graph)


def test_refused_nodes_and_edges_leave_nothing_behind(bench: Bench) -> None:
    rt = bench.rt
    graph, foreign = rt.graph_create(), rt.graph_create()
    a, b = rt.graph_add_empty_node(graph, []), rt.graph_add_empty_node(graph, [])
    elsewhere = rt.graph_add_empty_node(foreign, [])
    rt.graph_add_dependencies(graph, [a], [b])
    for sources, targets in (([a], [b]), ([a], [a]), ([b, a], [a, b]), ([a], [elsewhere])):
        assert code_of(lambda s=sources, t=targets: rt.graph_add_dependencies(graph, s, t)) == 1  # type: ignore[misc]
        assert rt.graph_get_edges(graph) == ((a, b),)
    assert code_of(lambda: rt.graph_add_empty_node(graph, [a, b, a])) == 1
    assert code_of(lambda: rt.graph_add_empty_node(graph, [elsewhere])) == 1
    assert rt.graph_get_nodes(graph) == (a, b)
    assert rt.graph_get_edges(graph) == ((a, b),)
    rt.graph_destroy(graph)
    rt.graph_destroy(foreign)


def test_a_child_is_copied_when_it_is_added_and_can_be_updated(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(64)

    def child(value: int) -> int:
        made = rt.graph_create()
        nodes = [bench.add(made, [], "note", pointer(at), ctypes.c_uint32(value + i)) for i in range(3)]
        bench.add(made, nodes, "note", pointer(at), ctypes.c_uint32(value + 3))
        return made

    graph, inner = rt.graph_create(), child(10)
    first = bench.add(graph, [], "note", pointer(at), ctypes.c_uint32(1))
    node = rt.graph_add_child_graph_node(graph, [first], inner)
    hollow = rt.graph_create()
    empty = rt.graph_add_child_graph_node(graph, [node], hollow)
    bench.add(graph, [empty], "note", pointer(at), ctypes.c_uint32(2))
    rt.graph_destroy(inner)
    rt.graph_destroy(hollow)
    assert rt.graph_node_get_type(node) == NodeType.GRAPH
    embedded = rt.graph_child_graph_node_get_graph(node)
    assert code_of(lambda: rt.graph_destroy(embedded)) == 1
    inside = rt.graph_get_nodes(embedded)
    graph_exec = rt.graph_instantiate(graph)

    def launch() -> list[int]:
        words[0] = 0
        rt.graph_launch(graph_exec, bench.stream)
        rt.stream_synchronize(bench.stream)
        order = list(words[1 : words[0] + 1])
        return [order[0], *sorted(order[1:4]), *order[4:]]

    assert launch() == [1, 10, 11, 12, 13, 2]
    args = Args(pointer(at), ctypes.c_uint32(99))
    rt.graph_exec_kernel_node_set_params(graph_exec, inside[3], bench.kernels["note"], ONE, ONE, 0, args.address)
    assert launch() == [1, 10, 11, 12, 99, 2]
    other = child(20)
    rt.graph_exec_child_graph_node_set_params(graph_exec, node, other)
    assert launch() == [1, 20, 21, 22, 23, 2]
    rt.graph_destroy(other)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_a_graph_may_be_a_child_of_its_own_child(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(1)
    outer, inner = rt.graph_create(), rt.graph_create()
    bench.add(inner, [], "count", pointer(at))
    child = rt.graph_child_graph_node_get_graph(rt.graph_add_child_graph_node(outer, [], inner))
    rt.graph_add_child_graph_node(child, list(rt.graph_get_nodes(child)), outer)
    copy = rt.graph_child_graph_node_get_graph(rt.graph_get_nodes(child)[1])  # of `outer`, as it was
    (node,) = rt.graph_get_nodes(copy)
    assert len(rt.graph_get_nodes(rt.graph_child_graph_node_get_graph(node))) == 1
    bench.run(outer)
    assert words[0] == 2
    rt.graph_destroy(outer)
    rt.graph_destroy(inner)


def test_host_nodes_run_on_one_thread_and_hold_up_no_other_branch(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(8)
    release = threading.Event()
    threads: list[int] = []

    def wait() -> None:
        threads.append(threading.get_ident())
        release.wait(30)

    fn = bench.host(wait)
    graph = rt.graph_create()
    words_of_marks = rt.mark_words()
    words_of_marks[0] = MARK
    first = rt.graph_add_host_node(graph, [], fn, 0)
    words_of_marks[0] = MARK + 1
    rt.graph_add_host_node(graph, [first], fn, 0)
    words_of_marks[0] = 0
    bench.add(graph, [], "count", pointer(at))
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    deadline = time.monotonic() + 30
    while not words[0] and time.monotonic() < deadline:
        time.sleep(0.001)
    assert words[0] == 1
    assert rt.unfinished_marks(MARK, 2) == {MARK, MARK + 1}
    assert rt.unfinished_marks(MARK + 1, 7) == {MARK + 1}
    release.set()
    rt.stream_synchronize(bench.stream)
    assert rt.unfinished_marks(MARK, 2) == frozenset()
    assert len(threads) == 2
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_events_in_a_graph_order_it_with_streams(bench: Bench) -> None:
    rt = bench.rt
    other = rt.stream_create()
    gate, done = rt.event_create(), rt.event_create()
    flag_at, flag = bench.words(1)
    at, words = bench.words(8)
    bench.launch(other, "await_flag", pointer(flag_at))
    bench.launch(other, "note", pointer(at), ctypes.c_uint32(1))
    rt.event_record(gate, other)
    graph = rt.graph_create()
    wait = rt.graph_add_event_wait_node(graph, [], gate)
    work = bench.add(graph, [wait], "note", pointer(at), ctypes.c_uint32(2))
    rt.graph_add_event_record_node(graph, [work], done)
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_wait_event(other, done)
    bench.launch(other, "note", pointer(at), ctypes.c_uint32(3))
    assert code_of(lambda: rt.event_elapsed_time(gate, done)) == 600
    flag[0] = 1
    rt.stream_synchronize(other)
    assert list(words[:4]) == [3, 1, 2, 3]
    rt.event_synchronize(done)
    assert rt.event_elapsed_time(gate, done) >= 0
    rt.stream_synchronize(bench.stream)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.stream_destroy(other)
    for event in (gate, done):
        rt.event_destroy(event)


@pytest.mark.parametrize("mode", [0, 1])
def test_semaphores_and_memory_operations_in_a_graph(bench: Bench, mode: int) -> None:
    rt = bench.rt
    semaphore = rt.semaphore_create()
    at, words = bench.words(8)
    graph = rt.graph_create()
    rt.mark_words()[0] = MARK
    wait = rt.graph_add_external_semaphores_wait_node(graph, [], semaphore, 1)
    rt.mark_words()[0] = 0
    ops = rt.graph_add_batch_mem_op_node(graph, [wait], [MemOp("write", at, 3, 4), MemOp("wait", at + 4, 8, 4, "eq")])
    bench.add(graph, [ops], "count", pointer(at + 8))
    rt.graph_add_external_semaphores_signal_node(graph, [], semaphore, 1)
    graph_exec = rt.graph_instantiate(graph)
    rt.set_schedule(1, mode)
    try:
        rt.graph_launch(graph_exec, bench.stream)
        assert not rt.stream_wait(bench.stream, 0.02)
        assert list(words[:3]) == [3, 0, 0]
        assert rt.unfinished_marks(MARK, 1) <= {MARK}
        words[1] = 8
        assert rt.stream_wait(bench.stream, 30.0)
        assert words[2] == 1
    finally:
        rt.set_schedule(0, 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.semaphore_destroy(semaphore)


@pytest.mark.parametrize("late", [False, True], ids=["waits", "waits later"])
@pytest.mark.parametrize("waits", ["stream", "graph"])
@pytest.mark.parametrize("signals", ["stream", "graph"])
@pytest.mark.parametrize("kind", ["semaphore", "memory"])
def test_a_wait_ends_when_a_failure_has_skipped_its_signal(bench: Bench, kind: str, signals: str, waits: str, late: bool) -> None:
    rt, origin, other = bench.rt, bench.stream, bench.rt.stream_create()
    semaphore, event = rt.semaphore_create(), rt.event_create(timing=False)
    at, words = bench.words(3)
    made: list[int] = []

    def put(graph: bool, stream: int, value: int, wait: bool) -> None:
        """Put a wait or a signal on a stream."""
        ops = [MemOp("wait" if wait else "write", at, value, 4)]
        if not graph:
            if kind == "memory":
                rt.stream_batch_mem_op(stream, ops)
            else:
                (rt.wait_external_semaphore_async if wait else rt.signal_external_semaphore_async)(semaphore, value, stream)
            return
        nodes = rt.graph_create()
        if kind == "memory":
            rt.graph_add_batch_mem_op_node(nodes, [], ops)
        elif wait:
            rt.graph_add_external_semaphores_wait_node(nodes, [], semaphore, value)
        else:
            rt.graph_add_external_semaphores_signal_node(nodes, [], semaphore, value)
        made.append(rt.graph_instantiate(nodes))
        rt.graph_destroy(nodes)
        rt.graph_launch(made[-1], stream)

    def run(value: int) -> int:
        rt.stream_batch_mem_op(origin, [MemOp("wait", at + 8, 1, 4)])
        put(waits == "graph", origin, value, wait=True)
        bench.launch(origin, "count", pointer(at + 4))
        words[2] |= not late
        put(signals == "graph", other, value, wait=False)
        rt.event_record(event, other)
        rt.stream_wait_event(origin, event)
        if late:
            rt.event_synchronize(event)
            words[2] = 1
        code = code_of(lambda: rt.stream_wait(origin, 10.0))
        rt.semaphore_signal(semaphore, value)  # or the stream would never end where this fails
        words[0] = value
        rt.stream_synchronize(origin)
        rt.stream_synchronize(other)
        return code

    bench.launch(other, "broken")
    assert run(1) == 700
    assert words[1] == 0
    assert run(2) == 0
    assert words[1] == 1
    for graph_exec in made:
        rt.graph_exec_destroy(graph_exec)
    rt.event_destroy(event)
    rt.semaphore_destroy(semaphore)
    rt.stream_destroy(other)


def test_a_semaphore_wait_ends_when_another_node_fails(bench: Bench) -> None:
    rt = bench.rt
    semaphore = rt.semaphore_create()
    at, words = bench.words(2)
    graph = rt.graph_create()
    wait = rt.graph_add_external_semaphores_wait_node(graph, [], semaphore, 1)
    bench.add(graph, [wait], "count", pointer(at + 4))
    gate = rt.graph_add_batch_mem_op_node(graph, [], [MemOp("wait", at, 1, 4, "eq")])
    broken = bench.add(graph, [gate], "broken")
    rt.graph_add_external_semaphores_signal_node(graph, [broken], semaphore, 1)
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    assert not rt.stream_wait(bench.stream, 0.02)
    words[0] = 1
    code, value = code_of(lambda: rt.stream_wait(bench.stream, 10.0)), rt.semaphore_value(semaphore)
    rt.semaphore_signal(semaphore, 1)  # or the stream would never end where this fails
    assert (code, value, words[1]) == (700, 0, 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.semaphore_destroy(semaphore)


def test_alloc_nodes_give_their_address_at_once_and_their_memory_back(bench: Bench) -> None:
    rt = bench.rt
    out_at, out = bench.words(4)
    graph = rt.graph_create()
    alloc, address = rt.graph_add_mem_alloc_node(graph, [], 4096, 0)
    fill = rt.graph_add_memset_node(graph, [alloc], Fill2D(address, 4, 77, 1024))
    copy = rt.graph_add_memcpy_node_1d(graph, [fill], out_at, address + 4000, 16, DEFAULT)
    rt.graph_add_mem_free_node(graph, [copy], address)
    assert code_of(lambda: rt.graph_add_mem_free_node(graph, [], address)) == 1
    graph_exec = rt.graph_instantiate(graph)
    assert code_of(lambda: rt.graph_instantiate(graph)) == 801
    for _ in range(3):
        rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert list(out) == [77] * 4
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_an_allocation_that_is_left_stops_the_next_launch_unless_it_frees_automatically(bench: Bench) -> None:
    rt = bench.rt
    for flags, second in ((0, 1), (1, 0)):
        graph = rt.graph_create()
        _, address = rt.graph_add_mem_alloc_node(graph, [], 256, 0)
        graph_exec = rt.graph_instantiate(graph, flags)
        rt.graph_launch(graph_exec, bench.stream)
        assert code_of(lambda x=graph_exec: rt.graph_launch(x, bench.stream)) == second  # type: ignore[misc]
        rt.stream_synchronize(bench.stream)
        rt.free_async(address, bench.stream)
        rt.stream_synchronize(bench.stream)
        assert code_of(lambda x=graph_exec: rt.graph_launch(x, bench.stream)) == 0  # type: ignore[misc]
        rt.stream_synchronize(bench.stream)
        rt.graph_exec_destroy(graph_exec)
        rt.graph_destroy(graph)


def test_an_allocation_may_be_launched_again_behind_work_that_frees_it(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    graph, freeing = rt.graph_create(), rt.graph_create()
    _, address = rt.graph_add_mem_alloc_node(graph, [], 256, 0)
    rt.graph_add_mem_free_node(freeing, [], address)
    graph_exec, freeing_exec = rt.graph_instantiate(graph), rt.graph_instantiate(freeing)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))  # so that nothing is freed before all calls are made
    calls: list[Callable[[], object]] = [
        lambda: rt.graph_launch(graph_exec, bench.stream),
        lambda: rt.free_async(address, bench.stream),
        lambda: rt.free_async(address, bench.stream),
        lambda: rt.graph_launch(graph_exec, bench.stream),
        lambda: rt.graph_launch(freeing_exec, bench.stream),
        lambda: rt.graph_launch(graph_exec, bench.stream),
        lambda: rt.graph_launch(graph_exec, bench.stream),
    ]
    codes = [code_of(call) for call in calls]
    flag[0] = 1
    rt.stream_synchronize(bench.stream)
    assert codes == [0, 0, 1, 0, 0, 0, 1]
    rt.free(address)
    assert code_of(lambda: rt.free(address)) == 1
    for each in (graph_exec, freeing_exec):
        rt.graph_exec_destroy(each)
    for each in (graph, freeing):
        rt.graph_destroy(each)


def test_graph_memory_freed_while_its_launch_is_under_way_is_counted_when_that_is_done(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    before = rt.device_get_graph_mem_attribute(0, GraphMemAttribute.USED)
    graph = rt.graph_create()
    _, address = rt.graph_add_mem_alloc_node(graph, [], 256, 0)
    graph_exec = rt.graph_instantiate(graph)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))  # so that nothing is allocated before it is freed
    rt.graph_launch(graph_exec, bench.stream)
    rt.free(address)
    assert code_of(lambda: rt.free(address)) == 1
    flag[0] = 1
    rt.stream_synchronize(bench.stream)
    assert rt.device_get_graph_mem_attribute(0, GraphMemAttribute.USED) == before
    flag[0] = 0
    bench.launch(bench.stream, "await_flag", pointer(flag_at))
    rt.graph_launch(graph_exec, bench.stream)
    rt.free(address)
    rt.graph_launch(graph_exec, bench.stream)  # leaves it allocated, whatever was freed before
    flag[0] = 1
    rt.stream_synchronize(bench.stream)
    assert rt.device_get_graph_mem_attribute(0, GraphMemAttribute.USED) == before + 256
    rt.free(address)
    assert rt.device_get_graph_mem_attribute(0, GraphMemAttribute.USED) == before
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_attributes_of_a_kernel_node_belong_to_that_node_alone(bench: Bench) -> None:
    rt = bench.rt
    graph = rt.graph_create()
    node = bench.add(graph, [], "empty")
    outer = rt.graph_create()
    copied = rt.graph_child_graph_node_get_graph(rt.graph_add_child_graph_node(outer, [], graph))
    (copy,) = rt.graph_get_nodes(copied)
    rt.graph_kernel_node_set_attributes(node, cooperative=True, priority=-1)
    value = ctypes.create_string_buffer(64)
    read = ctypes.CDLL(str(rt.path)).hipGraphKernelNodeGetAttribute
    read.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    for handle, expected in ((node, 1), (copy, 0)):
        assert read(handle, 2, value) == 0
        assert int.from_bytes(value.raw[:4], "little") == expected
    rt.graph_destroy(graph)
    rt.graph_destroy(outer)


def test_a_cooperative_node_reaches_no_other_devices_memory(bench: Bench) -> None:
    rt = bench.rt
    rt.set_device_count(2)
    try:
        rt.set_device(1)
        far = rt.malloc(64)
        rt.set_device(0)
        graph = rt.graph_create()
        node = bench.add(graph, [], "count", pointer(far), blocks=2)
        rt.graph_kernel_node_set_attributes(node, cooperative=True)
        graph_exec = rt.graph_instantiate(graph)
        rt.graph_launch(graph_exec, bench.stream)
        assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 700
        rt.graph_exec_destroy(graph_exec)
        rt.graph_destroy(graph)
        rt.free(far)
    finally:
        rt.set_device_count(1)


def test_a_kernel_node_stays_on_its_device(bench: Bench, library: Path) -> None:
    rt = bench.rt
    rt.set_device_count(2)
    try:
        rt.set_device(1)
        module = rt.module_load_data(library.read_bytes())
        far = rt.module_get_function(module, "empty")
        rt.set_device(0)
        graph, elsewhere = rt.graph_create(), rt.graph_create()
        node = bench.add(graph, [], "empty")
        rt.set_device(1)
        rt.graph_add_kernel_node(elsewhere, [], far, ONE, ONE, 0, 0)
        rt.set_device(0)
        parent = rt.graph_create()
        child = rt.graph_add_child_graph_node(parent, [], graph)
        graph_exec, parent_exec = rt.graph_instantiate(graph), rt.graph_instantiate(parent)
        assert code_of(lambda: rt.graph_add_kernel_node(graph, [], far, ONE, ONE, 0, 0)) == 101
        assert code_of(lambda: rt.graph_exec_kernel_node_set_params(graph_exec, node, far, ONE, ONE, 0, 0)) == 101
        assert code_of(lambda: rt.graph_exec_child_graph_node_set_params(parent_exec, child, elsewhere)) == 910
        for each in (graph_exec, parent_exec):
            rt.graph_exec_destroy(each)
        for each in (graph, elsewhere, parent):
            rt.graph_destroy(each)
        rt.module_unload(module)
    finally:
        rt.set_device(0)
        rt.set_device_count(1)


def test_a_kernel_is_cooperative_as_its_node_says(bench: Bench) -> None:
    rt = bench.rt
    at, _ = bench.words(300)
    blocks = 300  # more than can wait for each other
    too_large = 720

    def launched(graph_exec: int) -> int:
        rt.graph_launch(graph_exec, bench.stream)
        return code_of(lambda: rt.stream_synchronize(bench.stream))

    graph, plain, cooperative = (rt.graph_create() for _ in range(3))
    bench.add(plain, [], "count", pointer(at), blocks=blocks)
    node = bench.add(cooperative, [], "count", pointer(at), blocks=blocks)
    rt.graph_kernel_node_set_attributes(node, cooperative=True)
    child = rt.graph_add_child_graph_node(graph, [], plain)
    graph_exec = rt.graph_instantiate(graph)
    codes = [launched(graph_exec)]
    for other in (cooperative, plain):
        rt.graph_exec_child_graph_node_set_params(graph_exec, child, other)
        codes.append(launched(graph_exec))
    assert codes == [0, too_large, 0]
    rt.graph_exec_destroy(graph_exec)

    args = Args(pointer(at))
    rt.stream_begin_capture(bench.stream)
    rt.module_launch_kernel(bench.kernels["count"], (blocks, 1, 1), ONE, 0, bench.stream, args.address, cooperative=True)
    captured = rt.stream_end_capture(bench.stream)
    codes = []
    for wanted in (True, False):
        if not wanted:
            rt.graph_kernel_node_set_attributes(rt.graph_get_nodes(captured)[0], cooperative=False)
        graph_exec = rt.graph_instantiate(captured)
        codes.append(launched(graph_exec))
        rt.graph_exec_destroy(graph_exec)
    assert codes == [too_large, 0]
    for each in (graph, plain, cooperative, captured):
        rt.graph_destroy(each)


def test_a_host_function_that_waits_for_the_device_is_refused_instead_of_hanging(bench: Bench) -> None:
    codes: list[int] = []
    waits = (lambda: device_synchronize(bench.rt), lambda: bench.rt.stream_synchronize(bench.stream))
    bench.rt.launch_host_func(bench.stream, bench.host(lambda: codes.extend(code_of(wait) for wait in waits)), 0)
    bench.rt.stream_synchronize(bench.stream)
    assert codes == [800, 800]


# -- errors ----------------------------------------------------------------------------------------------------------


def test_a_failed_kernel_stops_its_graph_and_is_reported_once(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    graph = rt.graph_create()
    bad = bench.add(graph, [], "broken")
    bench.add(graph, [bad], "count", pointer(at))
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 700
    assert words[0] == 0
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 0
    bench.launch(bench.stream, "count", pointer(at))
    rt.stream_synchronize(bench.stream)
    assert words[0] == 1
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


@pytest.mark.parametrize("mode", [0, 1])
def test_a_failed_host_function_stops_its_graph(bench: Bench, mode: int) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    graph = rt.graph_create()
    bad = rt.graph_add_host_node(graph, [], bench.host(rt.host_func_failed), 0)
    bench.add(graph, [bad], "count", pointer(at))
    graph_exec = rt.graph_instantiate(graph)
    rt.set_schedule(0, mode)
    try:
        for _ in range(2):
            rt.graph_launch(graph_exec, bench.stream)
            assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 719
            assert words[0] == 0
    finally:
        rt.set_schedule(0, 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_an_error_is_carried_across_streams_and_leaves_all_of_them_usable(bench: Bench) -> None:
    rt = bench.rt
    lane = rt.stream_create()
    event = rt.event_create()
    at, words = bench.words(4)
    rt.launch_host_func(lane, bench.host(rt.host_func_failed), 0)
    bench.launch(lane, "count", pointer(at))
    rt.event_record(event, lane)
    rt.stream_wait_event(bench.stream, event)
    bench.launch(bench.stream, "count", pointer(at))
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 719
    assert words[0] == 0
    bench.launch(lane, "count", pointer(at))
    assert code_of(lambda: rt.stream_synchronize(lane)) == 0
    assert words[0] == 1
    rt.stream_destroy(lane)
    rt.event_destroy(event)


def test_an_aborted_launch_ends_although_it_waited(bench: Bench) -> None:
    rt = bench.rt
    semaphore = rt.semaphore_create()
    never, other = rt.event_create(), rt.stream_create()
    flag_at, flag = bench.words(1)
    at, words = bench.words(4)
    bench.launch(other, "await_flag", pointer(flag_at))
    rt.event_record(never, other)
    graph = rt.graph_create()
    waits: list[int] = []
    for add, *args in (
        (rt.graph_add_external_semaphores_wait_node, semaphore, 1),
        (rt.graph_add_event_wait_node, never),
        (rt.graph_add_batch_mem_op_node, [MemOp("wait", at + 4, 1, 4)]),
    ):
        rt.mark_words()[0] = MARK + len(waits)
        waits.append(add(graph, [], *args))
    rt.mark_words()[0] = MARK + len(waits)
    bench.add(graph, waits, "count", pointer(at))
    rt.mark_words()[0] = 0
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    assert not rt.stream_wait(bench.stream, 0.02)
    assert rt.unfinished_marks(MARK, 100) == {MARK, MARK + 1, MARK + 2, MARK + 3}
    rt.graph_exec_abort(graph_exec)
    assert code_of(lambda: rt.stream_wait(bench.stream, 30.0)) == 719
    assert words[0] == 0
    flag[0] = 1
    rt.stream_synchronize(other)
    rt.semaphore_signal(semaphore, 1)
    words[1] = 1
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert words[0] == 1
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.stream_destroy(other)
    rt.event_destroy(never)
    rt.semaphore_destroy(semaphore)


def test_an_abort_concerns_launches_that_their_stream_has_not_begun(bench: Bench) -> None:
    rt = bench.rt
    flag_at, flag = bench.words(1)
    at, words = bench.words(1)
    graph = rt.graph_create()
    bench.add(graph, [], "count", pointer(at))
    graph_exec = rt.graph_instantiate(graph)
    bench.launch(bench.stream, "await_flag", pointer(flag_at))
    rt.graph_launch(graph_exec, bench.stream)
    rt.graph_exec_abort(graph_exec)
    flag[0] = 1
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 719
    assert words[0] == 0
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert words[0] == 1
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_an_abort_ends_waits_in_the_bodies_of_conditional_nodes(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    words[0] = 1

    def wait(body: int) -> None:
        rt.graph_add_batch_mem_op_node(body, [], [MemOp("wait", at + 4, 1, 4)])

    def loop(body: int) -> None:
        rt.graph_add_conditional_node(body, [], ConditionalMode.WHILE, at, [wait])

    marks = rt.mark_words()
    assert marks is not None
    marks[0] = 7
    graph = rt.graph_create()
    outer = rt.graph_add_conditional_node(graph, [], ConditionalMode.IF, at, [loop])
    bench.add(graph, [outer], "count", pointer(at + 8))
    marks[0] = 0
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    assert not rt.stream_wait(bench.stream, 0.02)
    rt.graph_exec_abort(graph_exec)
    assert code_of(lambda: rt.stream_wait(bench.stream, 30.0)) == 719
    assert rt.failed_mark(7, 1).mark == 0
    assert words[2] == 0
    words[1] = 1
    words[0] = 0
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert words[2] == 1
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


# -- conditional nodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_loop_runs_its_body_until_the_word_is_zero(bench: Bench, mode: int) -> None:
    rt = bench.rt
    at, words = bench.words(64)

    def count_down() -> None:
        words[0] -= 1

    def fill(body: int) -> None:
        counts = [bench.add(body, [], "count", pointer(at + 8), blocks=4), rt.graph_add_empty_node(body, [])]
        rt.graph_add_host_node(body, counts, bench.host(count_down), 0)

    graph = rt.graph_create()
    first = bench.add(graph, [], "set_flag", pointer(at), ctypes.c_uint32(20))
    loop = rt.graph_add_conditional_node(graph, [first], ConditionalMode.WHILE, at, [fill])
    bench.add(graph, [loop], "count", pointer(at + 4))
    assert rt.graph_node_get_type(loop) is NodeType.CONDITIONAL
    assert len(rt.graph_get_nodes(graph)) == 3
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_destroy(graph)
    rt.set_schedule(5, mode)
    try:
        for _ in range(3):
            rt.graph_launch(graph_exec, bench.stream)
        rt.graph_exec_destroy(graph_exec)  # what is in flight goes on, bodies and all
        rt.stream_synchronize(bench.stream)
    finally:
        rt.set_schedule(0, 0)
    assert list(words[:7]) == [0, 3, 60, 60, 60, 60, 0]


@pytest.mark.parametrize(
    ("word", "wanted"), [(0, [1, 0, 0]), (1, [0, 0, 0]), (2, [0, 0, 1]), (3, [0, 0, 0]), (2**32 - 1, [0, 0, 0])]
)
def test_a_switch_runs_the_body_of_its_number_or_none(bench: Bench, word: int, wanted: list[int]) -> None:
    rt = bench.rt
    at, words = bench.words(64)
    fill = [bench.body("count", pointer(at + 4)), lambda body: None, bench.body("count", pointer(at + 12))]
    graph = rt.graph_create()
    rt.graph_add_conditional_node(graph, [], ConditionalMode.SWITCH, at, fill)
    graph_exec = rt.graph_instantiate(graph)
    words[0] = word
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert list(words[1:4]) == wanted
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_a_failure_inside_a_body_ends_the_loop_and_the_graph(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    words[0] = 1
    graph = rt.graph_create()
    loop = rt.graph_add_conditional_node(graph, [], ConditionalMode.WHILE, at, [bench.body("broken")])
    bench.add(graph, [loop], "count", pointer(at + 4))
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 700
    assert words[1] == 0
    assert code_of(lambda: rt.stream_synchronize(bench.stream)) == 0
    words[0] = 0
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert words[1] == 1
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_an_endless_loop_ends_by_an_abort_or_by_the_host(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    graph = rt.graph_create()
    rt.graph_add_conditional_node(graph, [], ConditionalMode.WHILE, at, [bench.body("slow_count", pointer(at + 4))])
    graph_exec = rt.graph_instantiate(graph)
    for abort in (True, False):
        words[0] = 1
        rt.graph_launch(graph_exec, bench.stream)
        assert not rt.stream_wait(bench.stream, 0.02)
        if abort:
            rt.graph_exec_abort(graph_exec)
        else:
            words[0] = 0
        assert code_of(lambda: rt.stream_wait(bench.stream, 30.0)) == (719 if abort else 0)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_bodies_belong_to_their_node_and_allocate_nothing(bench: Bench) -> None:
    rt = bench.rt
    at, _ = bench.words(4)
    graph = rt.graph_create()
    bodies: list[int] = []
    mode = ConditionalMode.IF
    assert code_of(lambda: rt.graph_add_conditional_node(graph, [], mode, at, [bodies.append] * 3)) == 1
    assert code_of(lambda: rt.graph_add_conditional_node(graph, [], mode, at + 1, [bodies.append])) == 1
    assert code_of(lambda: rt.graph_add_conditional_node(graph, [], ConditionalMode.WHILE, at, [bodies.append] * 2)) == 1
    assert not bodies
    assert rt.graph_get_nodes(graph) == ()
    rt.graph_add_conditional_node(graph, [], mode, at, [bodies.append])
    assert code_of(lambda: rt.graph_destroy(bodies[0])) == 1
    rt.graph_add_mem_alloc_node(bodies[0], [], 64, 0)
    assert code_of(lambda: rt.graph_instantiate(graph)) == 801
    rt.graph_destroy(graph)
    assert code_of(lambda: rt.graph_get_nodes(bodies[0])) == 1


# -- capture ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(CaptureMode))
def test_capture_records_forks_and_joins(bench: Bench, mode: CaptureMode) -> None:
    rt = bench.rt
    other = rt.stream_create()
    fork, join = rt.event_create(), rt.event_create()
    at, words = bench.words(16)
    rt.stream_begin_capture(bench.stream, mode)
    assert rt.stream_get_capture_info(bench.stream).status == CaptureStatus.ACTIVE
    bench.launch(bench.stream, "note", pointer(at), ctypes.c_uint32(1))
    rt.event_record(fork, bench.stream)
    rt.stream_wait_event(other, fork)
    assert rt.stream_get_capture_info(other).status == CaptureStatus.ACTIVE
    bench.launch(other, "note", pointer(at), ctypes.c_uint32(2))
    rt.memset_async(Fill2D(at + 40, 4, 9, 1), bench.stream)
    rt.event_record(join, other)
    rt.stream_wait_event(bench.stream, join)
    assert len(rt.stream_get_capture_info(bench.stream).dependencies) == 2
    rt.launch_host_func(bench.stream, bench.host(lambda: None), 0)
    graph = rt.stream_end_capture(bench.stream)
    assert rt.stream_get_capture_info(other).status == CaptureStatus.NONE
    kinds = [rt.graph_node_get_type(node) for node in rt.graph_get_nodes(graph)]
    assert kinds == [NodeType.KERNEL, NodeType.KERNEL, NodeType.MEMSET, NodeType.HOST]
    n = rt.graph_get_nodes(graph)
    assert set(rt.graph_get_edges(graph)) == {(n[0], n[1]), (n[0], n[2]), (n[1], n[3]), (n[2], n[3])}
    assert words[0] == 0
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    assert list(words[:3]) == [2, 1, 2]
    assert words[10] == 9
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)
    rt.stream_destroy(other)
    for event in (fork, join):
        rt.event_destroy(event)


def test_a_captured_launch_does_what_the_executable_does_now(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    graph, inner = rt.graph_create(), rt.graph_create()
    bench.add(inner, [], "set_flag", pointer(at), ctypes.c_uint32(1))
    child = rt.graph_add_child_graph_node(graph, [], inner)
    (changed,) = rt.graph_get_nodes(rt.graph_child_graph_node_get_graph(child))
    off = bench.add(graph, [child], "count", pointer(at + 4))
    bench.add(graph, [off], "count", pointer(at + 8))
    graph_exec = rt.graph_instantiate(graph)
    args = Args(pointer(at), ctypes.c_uint32(9))
    rt.graph_exec_kernel_node_set_params(graph_exec, changed, bench.kernels["set_flag"], ONE, ONE, 0, args.address)
    rt.graph_node_set_enabled(graph_exec, off, False)
    rt.stream_begin_capture(bench.stream)
    rt.graph_launch(graph_exec, bench.stream)
    captured = rt.stream_end_capture(bench.stream)
    rt.graph_exec_destroy(graph_exec)
    bench.run(captured)
    assert list(words[:3]) == [9, 0, 1]
    for each in (captured, graph, inner):
        rt.graph_destroy(each)


def sync_memset(rt: CpuRuntime) -> None:
    word = ctypes.c_uint32()
    source = ctypes.c_uint32()
    rt.memcpy(ctypes.addressof(word), ctypes.addressof(source), 4, DEFAULT)


# Call, the code while a global or thread-local capture goes on in this thread, and while a relaxed one does.
CAPTURE_RULES: dict[str, tuple[Callable[[Bench, int, int], object], int, int]] = {
    "malloc": (lambda b, _s, _e: b.owned.append(b.rt.malloc(64)), 900, 0),
    "free": (lambda b, _s, _e: b.rt.free(0), 900, 0),
    "host_malloc": (lambda b, _s, _e: b.rt.host_free(b.rt.host_malloc(64)), 900, 0),
    "memcpy": (lambda b, _s, _e: sync_memset(b.rt), 906, 906),
    "device_synchronize": (lambda b, _s, _e: device_synchronize(b.rt), 900, 900),
    "synchronize_capturing": (lambda b, _s, _e: b.rt.stream_synchronize(b.stream), 900, 900),
    "query_capturing": (lambda b, _s, _e: b.rt.stream_query(b.stream), 900, 900),
    "synchronize_other": (lambda b, s, _e: b.rt.stream_synchronize(s), 900, 0),
    "query_other": (lambda b, s, _e: b.rt.stream_query(s), 900, 0),
    "event_synchronize": (lambda b, _s, e: b.rt.event_synchronize(e), 900, 0),
    "event_query": (lambda b, _s, e: b.rt.event_query(e), 900, 0),
    "memset_async_other": (lambda b, s, _e: b.rt.memset_async(Fill2D(b.words_at, 4, 0, 1), s), 0, 0),
    "memset_async_null": (lambda b, _s, _e: b.rt.memset_async(Fill2D(b.words_at, 4, 0, 1), 0), 0, 0),
    "malloc_async": (lambda b, _s, _e: b.rt.malloc_async(64, b.stream), 0, 0),
    "wait_outside_event": (lambda b, _s, e: b.rt.stream_wait_event(b.stream, e), 0, 0),
    "record_other": (lambda b, s, e: b.rt.event_record(e, s), 0, 0),
    "event_create": (lambda b, _s, _e: b.rt.event_destroy(b.rt.event_create()), 0, 0),
    "stream_create": (lambda b, _s, _e: b.rt.stream_destroy(b.rt.stream_create()), 0, 0),
    "get_device_count": (lambda b, _s, _e: b.rt.get_device_count(), 0, 0),
    "set_device": (lambda b, _s, _e: b.rt.set_device(0), 0, 0),
}


@pytest.mark.parametrize("mode", list(CaptureMode))
@pytest.mark.parametrize("rule", list(CAPTURE_RULES))
def test_calls_while_capturing_answer_as_amd_does_and_the_stream_recovers(bench: Bench, rule: str, mode: CaptureMode) -> None:
    rt = bench.rt
    call, strict, relaxed = CAPTURE_RULES[rule]
    other, event = rt.stream_create(), rt.event_create()
    rt.event_record(event, other)
    rt.stream_synchronize(other)
    bench.words_at = bench.words(1)[0]
    at, words = bench.words(1)
    expected = relaxed if mode is CaptureMode.RELAXED else strict
    rt.stream_begin_capture(bench.stream, mode)
    bench.launch(bench.stream, "count", pointer(at))
    assert code_of(lambda: call(bench, other, event)) == expected
    if expected:
        assert rt.stream_get_capture_info(bench.stream).status == CaptureStatus.INVALIDATED
        assert code_of(lambda: bench.launch(bench.stream, "empty")) == 901
        assert code_of(lambda: rt.stream_end_capture(bench.stream)) == 901
    else:
        rt.graph_destroy(rt.stream_end_capture(bench.stream))
    # The stream is an ordinary one again.
    bench.launch(bench.stream, "count", pointer(at))
    rt.stream_synchronize(bench.stream)
    assert words[0] == 1
    rt.stream_destroy(other)
    rt.event_destroy(event)


def test_unjoined_work_is_refused_and_both_streams_recover(bench: Bench) -> None:
    rt = bench.rt
    other, fork = rt.stream_create(), rt.event_create()
    at, words = bench.words(1)
    rt.stream_begin_capture(bench.stream)
    bench.launch(bench.stream, "empty")
    rt.event_record(fork, bench.stream)
    rt.stream_wait_event(other, fork)
    bench.launch(other, "empty")
    assert code_of(lambda: rt.stream_end_capture(other)) == 903
    assert code_of(lambda: rt.stream_end_capture(bench.stream)) == 904
    for stream in (bench.stream, other):
        assert rt.stream_get_capture_info(stream).status == CaptureStatus.NONE
        bench.launch(stream, "count", pointer(at))
        rt.stream_synchronize(stream)
    assert words[0] == 2
    assert code_of(lambda: rt.stream_end_capture(bench.stream)) == 401
    rt.stream_destroy(other)
    rt.event_destroy(fork)


def test_begin_and_end_of_capture_are_matched(bench: Bench) -> None:
    rt = bench.rt
    assert code_of(lambda: rt.stream_begin_capture(0)) == 900
    assert code_of(lambda: rt.stream_end_capture(bench.stream)) == 401
    rt.stream_begin_capture(bench.stream)
    assert code_of(lambda: rt.stream_begin_capture(bench.stream)) == 401
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(lambda: rt.stream_end_capture(bench.stream))))
    thread.start()
    thread.join()
    assert codes == [908]
    graph = rt.stream_end_capture(bench.stream)
    assert rt.graph_get_nodes(graph) == ()
    graph_exec = rt.graph_instantiate(graph)
    rt.graph_launch(graph_exec, bench.stream)
    rt.stream_synchronize(bench.stream)
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_two_captures_do_not_merge(bench: Bench) -> None:
    rt = bench.rt
    other, event = rt.stream_create(), rt.event_create()
    for stream in (bench.stream, other):
        rt.stream_begin_capture(stream)
        bench.launch(stream, "empty")
    rt.event_record(event, other)
    assert code_of(lambda: rt.stream_wait_event(bench.stream, event)) == 902
    for stream in (bench.stream, other):
        assert code_of(lambda s=stream: rt.stream_end_capture(s)) == 901  # type: ignore[misc]
    rt.stream_destroy(other)
    rt.event_destroy(event)


def test_a_thread_local_capture_is_not_disturbed_by_another_thread(bench: Bench) -> None:
    rt = bench.rt
    for mode, survives in ((CaptureMode.THREAD_LOCAL, True), (CaptureMode.GLOBAL, False)):
        rt.stream_begin_capture(bench.stream, mode)
        codes: list[int] = []
        thread = threading.Thread(target=lambda found=codes: found.append(code_of(lambda: rt.free(rt.malloc(64)))))
        thread.start()
        thread.join()
        assert codes == [0 if survives else 900]
        if survives:
            rt.graph_destroy(rt.stream_end_capture(bench.stream))
        else:
            assert code_of(lambda: rt.stream_end_capture(bench.stream)) == 901


def test_a_stream_destroyed_while_capturing_takes_its_capture_with_it(bench: Bench) -> None:
    rt = bench.rt
    stream = rt.stream_create()
    rt.stream_begin_capture(stream, CaptureMode.GLOBAL)
    bench.launch(stream, "empty")
    rt.stream_destroy(stream)
    rt.free(rt.malloc(64))
    assert code_of(lambda: rt.stream_end_capture(stream)) == 400


def test_a_thread_that_ends_while_its_own_stream_captures_takes_the_capture_with_it(bench: Bench) -> None:
    per_thread = 2  # hipStreamPerThread
    thread = threading.Thread(target=lambda: bench.rt.stream_begin_capture(per_thread, CaptureMode.GLOBAL))
    thread.start()
    thread.join()
    deadline = time.monotonic() + 30
    while code_of(lambda: bench.rt.free(bench.rt.malloc(64))) and time.monotonic() < deadline:
        time.sleep(0.001)  # what a thread leaves behind is returned a moment after it is joined
    bench.rt.free(bench.rt.malloc(64))


def test_captured_dependencies_can_be_replaced(bench: Bench) -> None:
    rt = bench.rt
    rt.stream_begin_capture(bench.stream)
    bench.launch(bench.stream, "empty")
    info = rt.stream_get_capture_info(bench.stream)
    by_hand = rt.graph_add_empty_node(info.graph, list(info.dependencies))
    rt.stream_update_capture_dependencies(bench.stream, [by_hand], replace=True)
    bench.launch(bench.stream, "empty")
    graph = rt.stream_end_capture(bench.stream)
    first, second, third = rt.graph_get_nodes(graph)
    assert second == by_hand
    assert rt.graph_get_edges(graph) == ((first, second), (second, third))
    rt.graph_destroy(graph)


# -- the process -----------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        pytest.skip("no /proc/self/statm to read the resident size from")


def test_freed_memory_of_a_stream_leaves_the_process_with_it(rt: CpuRuntime) -> None:
    stream, nbytes = rt.stream_create(), 8 << 20
    before = resident_bytes()
    blocks = [rt.malloc_async(nbytes, stream) for _ in range(16)]
    for block in blocks:
        rt.memset_async(Fill2D(block, 4, 1, nbytes // 4), stream)
    for block in blocks:
        rt.free_async(block, stream)
    rt.stream_synchronize(stream)
    assert resident_bytes() > before + 15 * nbytes  # kept for the next launch on the stream
    rt.stream_destroy(stream)
    assert resident_bytes() < before + nbytes


def test_nothing_leaks_in_a_thousand_lives_of_a_graph(bench: Bench) -> None:
    rt = bench.rt
    at, _ = bench.words(64)
    fn = bench.host(lambda: None)

    def live() -> None:
        graph, child, event, stream = rt.graph_create(), rt.graph_create(), rt.event_create(), rt.stream_create()
        bench.add(child, [], "empty")
        alloc, address = rt.graph_add_mem_alloc_node(graph, [], 65536, 0)
        a = bench.add(graph, [alloc], "count", pointer(at), blocks=8)
        b = rt.graph_add_memset_node(graph, [alloc], Fill2D(address, 4, 1, 1000))
        c = rt.graph_add_host_node(graph, [a, b], fn, 0)
        d = rt.graph_add_child_graph_node(graph, [c], child)
        n = rt.graph_add_conditional_node(graph, [d], ConditionalMode.IF, at, [bench.body("empty")] * 2)
        e = rt.graph_add_event_record_node(graph, [n], event)
        rt.graph_add_mem_free_node(graph, [e], address)
        graph_exec = rt.graph_instantiate(graph)
        for _ in range(3):
            args = Args(pointer(at))
            rt.graph_exec_kernel_node_set_params(graph_exec, a, bench.kernels["count"], (4, 1, 1), ONE, 0, args.address)
            rt.graph_launch(graph_exec, stream)
        rt.stream_wait_event(bench.stream, event)
        rt.graph_exec_destroy(graph_exec)
        rt.graph_destroy(graph)
        rt.graph_destroy(child)
        rt.event_destroy(event)
        rt.stream_destroy(stream)
        temporary = rt.malloc_async(10_000, bench.stream)
        rt.free_async(temporary, bench.stream)
        rt.stream_synchronize(bench.stream)

    for _ in range(300):
        live()
    gc.collect()
    device_synchronize(rt)
    before = resident_bytes()
    for _ in range(1000):
        live()
    gc.collect()
    device_synchronize(rt)
    assert resident_bytes() - before < 2_000_000


def test_cooperative_launches_take_no_memory(bench: Bench) -> None:
    rt = bench.rt
    args = Args(pointer(bench.words(64)[0]))

    def launch(times: int) -> int:
        for _ in range(times):
            rt.module_launch_kernel(bench.kernels["count"], (64, 1, 1), ONE, 0, bench.stream, args.address, cooperative=True)
        rt.stream_synchronize(bench.stream)
        return resident_bytes()

    before = launch(20)
    assert launch(40) - before < 20_000_000


def test_relaunching_with_changes_takes_no_memory(bench: Bench) -> None:
    rt = bench.rt
    at, words = bench.words(4)
    graph = rt.graph_create()
    previous: list[int] = []
    for _ in range(10):
        previous = [bench.add(graph, previous, "count", pointer(at))]
    graph_exec = rt.graph_instantiate(graph)
    args = Args(pointer(at))

    def turns(count: int) -> None:
        for _ in range(count):
            rt.graph_exec_kernel_node_set_params(graph_exec, previous[0], bench.kernels["count"], ONE, ONE, 0, args.address)
            rt.graph_launch(graph_exec, bench.stream)
        rt.stream_synchronize(bench.stream)

    turns(2000)
    before = resident_bytes()
    for _ in range(10):
        turns(2000)
    assert resident_bytes() - before < 2_000_000
    assert words[0] == 220_000
    rt.graph_exec_destroy(graph_exec)
    rt.graph_destroy(graph)


def test_threads_may_launch_at_once(bench: Bench) -> None:
    rt = bench.rt
    counts = [bench.words(1) for _ in range(6)]

    def work(at: int) -> None:
        stream = rt.stream_create()
        graph = rt.graph_create()
        previous: list[int] = []
        for _ in range(5):
            previous = [bench.add(graph, previous, "count", pointer(at))]
        graph_exec = rt.graph_instantiate(graph)
        for _ in range(200):
            rt.graph_launch(graph_exec, stream)
        rt.stream_synchronize(stream)
        rt.graph_exec_destroy(graph_exec)
        rt.graph_destroy(graph)
        rt.stream_destroy(stream)

    threads = [threading.Thread(target=work, args=(at,)) for at, _ in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [words[0] for _, words in counts] == [1000] * 6


def run_python(text: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environment = dict(os.environ, PYTHONPATH=f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_a_process_ends_while_work_is_running(library: Path) -> None:
    done = run_python(
        f"""
import ctypes
from hipgraphdsl import open_runtime
rt = open_runtime("cpu")
module = rt.module_load_data(open({str(library)!r}, "rb").read())
flag = rt.malloc(4)
ctypes.memset(flag, 0, 4)
value = ctypes.c_void_p(flag)
args = (ctypes.c_void_p * 1)(ctypes.addressof(value))
stream, other = rt.stream_create(), rt.stream_create()
rt.module_launch_kernel(rt.module_get_function(module, "await_flag"), (1, 1, 1), (1, 1, 1), 0, stream,
                        ctypes.addressof(args))
HOSTFN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
callback = HOSTFN(lambda _: None)
for _ in range(10000):
    rt.launch_host_func(other, ctypes.cast(callback, ctypes.c_void_p).value, 0)
print("left")
"""
    )
    assert (done.returncode, done.stdout.strip()) == (0, "left"), done.stderr


def test_a_forked_child_is_refused_clearly(library: Path) -> None:
    done = run_python(
        """
import os, warnings
warnings.simplefilter("ignore")
from hipgraphdsl.errors import HipGraphError
from hipgraphdsl import open_runtime
rt = open_runtime("cpu")
rt.stream_synchronize(rt.stream_create())
child = os.fork()
if child == 0:
    try:
        rt.malloc(64)
    except HipGraphError as error:
        status = 0 if error.code == 3 and "fork" in str(error) else 1
        os._exit(status)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


# -- the compiler ----------------------------------------------------------------------------------------------------


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HIPGRAPHDSL_CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    compiler_module.forget_compiler()
    try:
        with pytest.raises(RuntimeUnavailable) as refused:
            find_compiler()
    finally:
        compiler_module.forget_compiler()
    assert refused.value.missing == "compiler"
    assert "found no C++ compiler: install one, or `pip install ziglang`" in str(refused.value)


def test_a_compiler_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPGRAPHDSL_CXX", "no-such-compiler -x")
    with pytest.raises(RuntimeUnavailable, match="no-such-compiler"):
        find_compiler()


def test_a_compiler_is_asked_for_its_version_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []
    begun, waits = threading.Event(), threading.Event()

    class Lock:
        """Says when a thread waits for it."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if not self.lock.acquire(blocking=False):
                waits.set()
                self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def probe(command: Sequence[str]) -> Compiler:
        asked.append(command)
        begun.set()
        waits.wait(60)  # until the other thread has come, which it does before the answer
        return Compiler(tuple(command), "gcc", "g++ 12.2")

    monkeypatch.setattr(compiler_module, "_probe", probe)
    monkeypatch.setattr(compiler_module, "_FINDING", Lock())
    monkeypatch.setenv("HIPGRAPHDSL_CXX", "g++")
    compiler_module.forget_compiler()
    try:
        other = threading.Thread(target=find_compiler)
        other.start()
        assert begun.wait(60)
        find_compiler()
        other.join()
        assert waits.is_set()
    finally:
        compiler_module.forget_compiler()
    assert asked == [("g++",)]


@pytest.mark.parametrize(
    ("there", "chosen", "kind", "why"),
    [
        (("clang++", "ziglang", "g++"), None, "clang", "taken before all others"),
        (("ziglang", "g++"), None, "zig", "the first build takes some 20 s where g++ takes 3; HIPGRAPHDSL_CXX=g++ takes g++"),
        (("g++",), None, "gcc", "there is no clang++ and no ziglang"),
        (("clang++", "g++"), "g++", "gcc", "HIPGRAPHDSL_CXX names it"),
    ],
)
def test_the_compiler_that_is_taken_says_why(
    there: Sequence[str], chosen: str | None, kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(command: Sequence[str]) -> Compiler:
        name = "zig" if "ziglang" in command else "clang" if command[0] == "clang++" else "gcc"
        return Compiler(tuple(command), name, f"{name} 12.2")  # type: ignore[arg-type]  # one of the three

    monkeypatch.setattr(compiler_module, "_probe", probe)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    monkeypatch.delenv("HIPGRAPHDSL_CXX", raising=False)
    if chosen:
        monkeypatch.setenv("HIPGRAPHDSL_CXX", chosen)
    compiler_module.forget_compiler()
    try:
        found = find_compiler()
        assert found.kind == kind
        assert why in found.why
    finally:
        compiler_module.forget_compiler()


SMALL = 'extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER; }'


@pytest.fixture
def compiler(library: Path) -> Compiler:
    return find_compiler()


def test_a_library_is_built_once_for_each_set_of_options(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(wanted_folder("zig")))
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    one = build(compiler, SMALL, ("-DANSWER=1",))
    two = build(compiler, SMALL, ("-DANSWER=2",))
    written = one.stat().st_mtime_ns
    assert build(compiler, SMALL, ("-DANSWER=1",)) == one != two
    assert one.stat().st_mtime_ns == written
    assert [ctypes.CDLL(str(path)).answer() for path in (one, two)] == [1, 2]
    with pytest.raises(compiler_module.BuildFailed) as refused:
        build(compiler, "int f() { return nothing; }")
    assert "nothing" in refused.value.log


def test_a_library_is_built_again_where_the_linker_is_called_otherwise(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(wanted_folder("zig")))
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    built = {build(compiler, SMALL, ("-DANSWER=6",))}
    fewer = compiler_module._with_fewer_libraries
    monkeypatch.setattr(compiler_module, "_with_fewer_libraries", lambda *given: [*fewer(*given), "-lm"])
    built.add(build(compiler, SMALL, ("-DANSWER=6",)))
    monkeypatch.setattr(compiler_module, "_LIBRARIES", ("-lm",))
    built.add(build(compiler, SMALL, ("-DANSWER=6",)))
    assert len(built) == 3


def test_a_long_build_says_what_is_built_and_by_which_command(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(wanted_folder("zig")))
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler_module, "_SLOW_S", 0.0)
    with caplog.at_level("INFO", logger="hipgraphdsl"):
        build(replace(compiler, command=("env", *compiler.command)), SMALL, ("-DANSWER=5",), what="the answer")
    assert f"building the answer with env {compiler};" in caplog.text


@pytest.mark.parametrize("option", ["--version", "-fsyntax-only"])
def test_an_option_that_stops_the_compiler_from_writing_is_named(rt: CpuRuntime, option: str) -> None:
    with pytest.raises(DeclarationError, match=rf"no library was written.* {option}"):
        rt.rtc_compile('extern "C" __global__ void k(float* x) {}', ["k"], (), [option])


def test_two_processes_may_build_one_library_at_once(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(wanted_folder("zig")))
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path))
    text = f"from hipgraphdsl.compiler import build, find_compiler\nprint(build(find_compiler(), {SMALL!r}, ('-DANSWER=4',)))"
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(run_python(text).stdout.strip())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[0] == answers[1] != ""
    assert ctypes.CDLL(answers[0]).answer() == 4
    assert len(list(tmp_path.glob("*.so"))) == 1


def test_a_cache_that_cannot_be_written_is_replaced_with_a_warning(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(wanted_folder("zig")))
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(blocked / "cache"))
    with caplog.at_level("WARNING", logger="hipgraphdsl"):
        assert ctypes.CDLL(str(build(compiler, SMALL, ("-DANSWER=3",)))).answer() == 3
    assert "cannot be used" in caplog.text
