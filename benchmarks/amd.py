"""``hipgraphdsl bench amd``: what the library adds to AMD's own calls, in time and in memory.

Host costs only, so the stand-in of tests/amd_on_cpu will do; each figure and what it is compared with are taken in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.figures import Result
from benchmarks.turns import in_turns
from hipgraphdsl.backends.explicit import add_steps
from hipgraphdsl.backends.operations import Launch
from hipgraphdsl.backends.program import GraphProgram
from hipgraphdsl.executable import UPDATES_BEFORE_AFRESH, Executable
from hipgraphdsl.graph import Graph
from hipgraphdsl.kernels import Module
from hipgraphdsl.parts.bench.arguments import add_output_arguments
from hipgraphdsl.parts.bench.measure import finish, machine, percentile, repeat_us, resident_bytes
from hipgraphdsl.parts.bench.peers import cpp_library
from hipgraphdsl.plan.options import PlanOptions
from hipgraphdsl.plan.planning import make_plan
from hipgraphdsl.progress import no_progress, progress_bar
from hipgraphdsl.runtimes import open_runtime
from hipgraphdsl.runtimes.amd import AmdRuntime
from hipgraphdsl.runtimes.data import Fill2D, MemcpyKind

__all__ = ["add_arguments", "main", "run"]

_KERNEL: Final = Module(
    r"""
extern "C" __global__ void add(int* y, const int* x, float a, int n) {
  if (threadIdx.x < n) y[threadIdx.x] += x[threadIdx.x] + (int)a;
}
""",
    name="bench_amd",
)

# The bare calls, without Python. Structures are made beforehand.
_BARE: Final = r"""
#include <stddef.h>
typedef int (*add_t)(void** node, void* graph, void* const* deps, size_t count, const void* params);
typedef int (*set_t)(void* exec, void* node, const void* params);
extern "C" __attribute__((visibility("default"))) int add_chain(add_t add, void* graph, const void* params, int n) {
  void* last = nullptr;
  for (int i = 0; i < n; ++i) {
    void* node = nullptr;
    if (int code = add(&node, graph, last ? &last : nullptr, last != nullptr, params)) return code;
    last = node;
  }
  return 0;
}
extern "C" __attribute__((visibility("default"))) int set_many(set_t set, void* exec, void* node, const void* params, int n) {
  for (int i = 0; i < n; ++i)
    if (int code = set(exec, node, params)) return code;
  return 0;
}
extern "C" __attribute__((visibility("default"))) int no_launch(void*, void*) { return 0; }
"""

_BYTES_AN_UPDATE: Final = 6 * 1024  # ROCm/rocm-systems issue 10713: 185 KiB for 32 nodes
_NOISE_BYTES: Final = 1 << 20  # by which the resident memory of a process that does nothing new still moves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--quick", action="store_true", help="a tenth of the repeats")
    add_output_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    with progress_bar("bench amd", None) as report:
        result = run(quick=args.quick, report=report)
    finish(result, args)
    return 0


def run(quick: bool = False, report: Callable[[str], None] = no_progress) -> Result:
    """Measure and return all figures.

    Raises
    ------
    RuntimeUnavailable
        If AMD's runtime is not there.
    """
    runtime = open_runtime("amd")
    assert isinstance(runtime, AmdRuntime)
    result = Result("amd", machine=machine(runtime))
    part = 10 if quick else 1
    report("launching")
    _launching(result, runtime, 400 // part)
    report("adding and setting kernel nodes")
    _nodes(result, runtime, 200 // part)
    report("compiling and closing")
    _cycles(result, runtime, 1000 // part)
    report("relaunching")
    _relaunches(result, runtime, 100_000 // part)
    return result


# -- time --------------------------------------------------------------------------------------------------------------


def _beyond(times: dict[str, list[float]], ours: str, bare: str, calls: int) -> tuple[float, str]:
    """Return what a call costs beyond the bare one, and a note with both; the fastest fifth, which nothing else has disturbed."""
    a, b = (percentile(times[name], 20) / calls for name in (ours, bare))
    return a - b, f"{a:.3g} us against {b:.3g} us, {a / b:.3g} x"


def _bare_calls() -> ctypes.CDLL:
    library = cpp_library(_BARE, "bench_amd", "the bare calls")
    library.add_chain.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.set_many.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.no_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def _compiled_without_launching(runtime: AmdRuntime, g: Graph, library: ctypes.CDLL) -> Executable:
    """Return an Executable whose compiled call path calls an empty function for hipGraphLaunch, whose time would hide its own."""
    set_ = _address(runtime._hip.hipGraphExecKernelNodeSetParams)
    vars(runtime)["launch_addresses"] = lambda: (_address(library.no_launch), set_)
    try:
        return g.compile(runtime=runtime, backend="explicit")
    finally:
        del vars(runtime)["launch_addresses"]


def _launching(result: Result, runtime: AmdRuntime, rounds: int) -> None:
    library = _bare_calls()
    g = Graph("nothing")
    g.empty(name="nothing")
    with _compiled_without_launching(runtime, g, library) as exe:
        exe.launch()
        compiled = exe._own.compiled.launcher is not None
        bare: Any = library.no_launch if compiled else runtime._hip.hipGraphLaunch
        launch, handle, stream, calls = exe.launch, exe.handle, exe.stream, 50

        def ours() -> None:
            for _ in range(calls):
                launch()

        def theirs() -> None:
            for _ in range(calls):
                bare(handle, stream)

        def wait() -> None:
            exe.synchronize()
            runtime.stream_synchronize(stream)  # bare launches, of which the Executable knows nothing

        times = in_turns({"ours": ours, "wait": wait, "bare": theirs, "wait again": wait}, rounds)
        value, note = _beyond(times, "ours", "bare", calls)
        without = "; hipGraphLaunch itself left out of both" if compiled else "; no compiled call path here"
        result.add("Executable.launch() beyond ctypes' hipGraphLaunch", value, "us", 0.3, note + without)


def _nodes(result: Result, runtime: AmdRuntime, rounds: int) -> None:
    count = 500
    g = Graph("chain")
    x, y = (g.device_array(name, np.zeros(16, "i4")) for name in "xy")
    for _ in range(count):
        g.kernel(_KERNEL["add"], 1, 16, (y, x, 1.0, 16))
    library = _bare_calls()
    add_chain, set_many = library.add_chain, library.set_many
    add, set_ = (_address(getattr(runtime._hip, api)) for api in ("hipGraphAddKernelNode", "hipGraphExecKernelNodeSetParams"))
    with g.compile(runtime=runtime, backend="explicit", lanes=1) as exe:
        exe.run()
        program: Any = exe._program
        assert isinstance(program, GraphProgram)
        launches = [operation for operation in program.operations if isinstance(operation, Launch)]
        operation = launches[0]
        args = operation.packer.place(operation.packed)
        params = runtime.kernel_params(operation.function, operation.grid, operation.block, operation.shared_bytes, args)
        made: list[int] = []

        def lowered() -> None:
            fresh = GraphProgram(program.plan, program.scope)
            fresh.graph = runtime.graph_create()
            made.append(fresh.graph)
            add_steps(fresh.graph, fresh)

        prepared = [(op.function, op.grid, op.block, op.shared_bytes, op.packer.place, op.packed) for op in launches]
        add_node = runtime.graph_add_kernel_node

        def packed() -> None:
            graph = runtime.graph_create()
            made.append(graph)
            deps: tuple[int, ...] = ()
            for function, grid, block, shared_bytes, place, arguments in prepared:
                deps = (add_node(graph, deps, function, grid, block, shared_bytes, place(arguments)),)

        def bare() -> None:
            graph = runtime.graph_create()
            made.append(graph)
            _good(add_chain(add, graph, params, count))

        def away() -> None:
            for graph in made:
                runtime.graph_destroy(graph)
            made.clear()

        runs = {"lowered": lowered, "away": away, "packed": packed, "away again": away, "bare": bare, "away at last": away}
        times = in_turns(runs, max(10, rounds // 2))
        value, note = _beyond(times, "lowered", "bare", count)
        result.add("adding a kernel node, its names resolved, beyond the call in C", value, "us", 1.5, note)
        value, note = _beyond(times, "packed", "bare", count)
        result.add("... by the runtime's method, arguments packed", value, "us", None, note)
        plan_us = repeat_us(lambda: make_plan(exe.workflow, runtime.target, PlanOptions(lanes=1, pack=False)), 5)
        result.add("... planning before it", percentile(plan_us, 50) / count, "us/node")

        node, calls = program.nodes[0], 50
        function, grid, block, arguments, packer = (
            operation.function,
            operation.grid,
            operation.block,
            operation.packed,
            operation.packer,
        )
        handle = exe.handle

        def set_ours() -> None:
            for _ in range(calls):
                runtime.graph_exec_kernel_node_set_params(handle, node, function, grid, block, 0, packer.place(arguments))

        # Each update keeps memory until the executable is gone, so there are not many.
        times = in_turns({"ours": set_ours, "bare": lambda: _good(set_many(set_, handle, node, params, calls))}, rounds)
        value, note = _beyond(times, "ours", "bare", calls)
        result.add("setting a kernel node's parameters by the runtime's method, beyond the call in C", value, "us", None, note)
    _by_launch(result, runtime, library, set_, rounds)


def _by_launch(result: Result, runtime: AmdRuntime, library: ctypes.CDLL, set_: int, rounds: int) -> None:
    """Time how the compiled call path sets a parameter; an empty function stands for the launch, whose time would hide it."""
    g = Graph("one")
    x, y = (g.device_array(name, np.zeros(16, "i4")) for name in "xy")
    a = g.param("a", "float32", 0.0)
    g.kernel(_KERNEL["add"], 1, 16, (y, x, a, 16))
    exe = _compiled_without_launching(runtime, g, library)
    with exe:
        program: Any = exe._program
        operation = program.operations[0]
        args = operation.packer.place(operation.packed)
        params = runtime.kernel_params(operation.function, operation.grid, operation.block, operation.shared_bytes, args)
        exe.launch(a=-1.0)
        if exe._own.compiled.launcher is None:
            result.add(
                "setting a parameter by Executable.launch(a=...)", 0.0, "us", None, "not measured: no compiled call path here"
            )
            return
        launch, handle, node, calls = exe.launch, exe.handle, program.nodes[0], 20
        given = itertools.count(1)

        def ours() -> None:
            for _ in range(calls):
                launch(a=next(given))

        times = in_turns({"ours": ours, "bare": lambda: _good(library.set_many(set_, handle, node, params, calls))}, rounds)
        value, note = _beyond(times, "ours", "bare", calls)
        result.add(
            "setting a parameter by Executable.launch(a=...), beyond the call in C",
            value,
            "us",
            0.6,
            note + "; the launch left out",
        )


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _good(code: int) -> None:
    if code:
        raise RuntimeError(f"a bare call failed: hipError {code}")


# -- memory ------------------------------------------------------------------------------------------------------------


def _growth(loop: Callable[[int], None], count: int) -> int:
    """Return by how many bytes the process grows in a loop, after a warm-up."""
    loop(max(1, count // 5))
    gc.collect()
    before = resident_bytes()
    loop(count)
    gc.collect()
    return max(0, resident_bytes() - before)


def _graph() -> Graph:
    g = Graph("cycle")
    x, y = (g.device_array(name, np.zeros(16, "i4")) for name in "xy")
    a = g.param("a", "float32", 0.0)
    g.memset(x, 1)
    g.kernel(_KERNEL["add"], 1, 16, (y, x, a, 16), name="add")
    return g


class _Bare:
    """What an Executable of `_graph` does, as bare calls."""

    def __init__(self, runtime: AmdRuntime) -> None:
        zeros = np.zeros(16, "i4")
        self.runtime = runtime
        self.stream = runtime.stream_create()
        code = runtime.rtc_compile(_KERNEL.source, ["add"], name=_KERNEL.name)
        self.module = runtime.module_load_data(code.image)
        self.function = runtime.module_get_function(self.module, code.lowered["add"])
        self.memory = [runtime.malloc(64), runtime.malloc(64)]
        for pointer in self.memory:
            runtime.memcpy(pointer, zeros.ctypes.data, 64, MemcpyKind.HOST_TO_DEVICE)
        x, y = self.memory
        self.a = ctypes.c_float(0)
        self.values = (ctypes.c_void_p(y), ctypes.c_void_p(x), self.a, ctypes.c_int(16))
        self.table = (ctypes.c_void_p * 4)(*map(ctypes.addressof, self.values))
        self.graph = runtime.graph_create()
        first = runtime.graph_add_memset_node(self.graph, (), Fill2D(x, 4, 1, 16))
        self.node = runtime.graph_add_kernel_node(
            self.graph, (first,), self.function, (1, 1, 1), (16, 1, 1), 0, ctypes.addressof(self.table)
        )
        self.graph_exec = runtime.graph_instantiate(self.graph)

    def launch(self, a: float | None = None) -> None:
        if a is not None:
            self.a.value = a
            self.runtime.graph_exec_kernel_node_set_params(
                self.graph_exec, self.node, self.function, (1, 1, 1), (16, 1, 1), 0, ctypes.addressof(self.table)
            )
        self.runtime.graph_launch(self.graph_exec, self.stream)

    def synchronize(self) -> None:
        self.runtime.stream_synchronize(self.stream)

    def close(self) -> None:
        self.runtime.graph_exec_destroy(self.graph_exec)
        self.runtime.graph_destroy(self.graph)
        for pointer in self.memory:
            self.runtime.free(pointer)
        self.runtime.module_unload(self.module)
        self.runtime.stream_destroy(self.stream)


def _cycles(result: Result, runtime: AmdRuntime, count: int) -> None:
    def bare(times: int) -> None:
        for _ in range(times):
            made = _Bare(runtime)
            made.launch()
            made.synchronize()
            made.close()

    for backend in ("explicit", "capture"):

        def ours(times: int, backend: Any = backend) -> None:
            for _ in range(times):
                with _graph().compile(runtime=runtime, backend=backend) as exe:
                    exe.run()

        theirs = _growth(bare, count)
        _grown(result, f"{count} times compile, launch and close, {backend}", _growth(ours, count), theirs)


def _relaunches(result: Result, runtime: AmdRuntime, count: int) -> None:
    made = _Bare(runtime)
    with _graph().compile(runtime=runtime, backend="explicit") as exe:
        theirs = _growth(lambda times: _launched(made, times), count)
        _grown(result, f"{count} launches", _growth(lambda times: _launched(exe, times), count), theirs)
        theirs = _growth(lambda times: _launched(made, times, changing=True), count)
        ours = _growth(lambda times: _launched(exe, times, changing=True), count)
        bound = UPDATES_BEFORE_AFRESH * _BYTES_AN_UPDATE
        result.add(
            f"{count} launches with another value each: growth", ours / 1024, "KiB", (bound + _NOISE_BYTES) / 1024,
            f"bare calls {theirs / 1024:.0f} KiB; {exe.stats.instantiations} instances of {UPDATES_BEFORE_AFRESH} updates",
        )  # fmt: skip
    made.close()


def _launched(what: _Bare | Executable, times: int, changing: bool = False) -> None:
    launch = what.launch
    for i in range(times):
        if changing:
            launch(a=float(i))
        else:
            launch()
        if i % 100 == 99:
            what.synchronize()
    what.synchronize()


def _grown(result: Result, what: str, ours: int, theirs: int) -> None:
    result.add(
        f"{what}: growth", ours / 1024, "KiB", (theirs + _NOISE_BYTES) / 1024,
        f"bare calls {theirs / 1024:.0f} KiB; the aim is theirs and {_NOISE_BYTES >> 10} KiB by which any process moves",
    )  # fmt: skip
