"""Peers: the same kernels in the same shape through other libraries and C++, timed in the same run.

Each peer is optional: one that is not installed or cannot do the work is left out, with the reason. All peers use the memory,
the device context and a stream of the measured runtime.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import itertools
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...backends.operations import Launch, Operation
from ...compiler import BuildFailed, build, find_compiler
from ...errors import HipError, RuntimeUnavailable
from ...executable import Executable
from ...kernels import ArgumentPacker, Signature
from ...plan.options import PlanOptions
from ...plan.planning import make_plan
from ...runtimes.base import Runtime
from ...runtimes.data import Dim3
from .measure import Run, Times, launch_times_us

_MOST_STREAMS: Final = 128  # a capturing peer needs one stream per concurrent chain


class Skipped(Exception):
    """A peer cannot take part; the message says why."""


@dataclass(frozen=True)
class Task:
    """One kernel launch as peers see it; `deps` are the tasks that it waits for, without redundant ones."""

    kernel: str
    function: int
    grid: Dim3
    block: Dim3
    values: tuple[int, ...]
    signature: Signature
    deps: tuple[int, ...]
    lane: int

    @classmethod
    def of(cls, launch: Launch, kernel: str = "", deps: tuple[int, ...] = (), lane: int = 0) -> Task:
        """Return the task of an Executable's launch."""
        packer = launch.packer
        return cls(kernel, launch.function, launch.grid, launch.block, packer.unpack(launch.packed), packer.signature, deps, lane)

    def changed(self) -> Task:
        """Return the same launch with a different last argument, unless it is a pointer."""
        if not self.signature.parameters or self.signature.parameters[-1].pointer:
            return self
        return replace(self, values=(*self.values[:-1], self.values[-1] - 1))

    def converted(self, pointer: Callable[[int], Any], number: Callable[[int], Any]) -> tuple[Any, ...]:
        """Return the arguments as another library takes them."""
        return tuple((pointer if p.pointer else number)(v) for v, p in zip(self.values, self.signature.parameters))


def operations_of(exe: Executable) -> dict[str, Operation]:
    """Return the operation of each node of an Executable, by name."""
    program = exe._program
    assert program is not None
    return {step.name: operation for step, operation in zip(program.plan.steps, program.operations)}


@dataclass
class Work:
    """The work of every peer: kernels of one source, in the declared shape, on one runtime's memory."""

    runtime: Runtime
    source: str
    tasks: tuple[Task, ...]
    lanes: int
    arrays: dict[int, int]  # bytes by address
    _streams: list[int] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)

    @staticmethod
    def of(exe: Executable) -> Work:
        """Return an explicit Executable's operations in the declared shape; refuse anything but kernels of one source."""
        operations = operations_of(exe)
        declared = make_plan(exe.workflow, exe.runtime.target, PlanOptions(lanes=None, join=False, pack=False))
        sources, tasks = set(), []
        for step in declared.steps:
            operation = operations.get(step.name)
            if not isinstance(operation, Launch) or not step.node.kernels:
                raise Skipped("peers run kernels only")
            kernel = step.node.kernels[0]
            sources.add(kernel.module.source)
            tasks.append(Task.of(operation, kernel.name, step.deps, step.lane))
        if len(sources) != 1:
            raise Skipped("peers run the kernels of one source")
        arrays = {memory.pointer: memory.array.nbytes for memory in exe._own.memory.arrays.values()}
        return Work(exe.runtime, str(sources.pop()).strip(), tuple(tasks), len(declared.lanes), arrays)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, each once."""
        return tuple(dict.fromkeys(task.kernel for task in self.tasks))

    def array_at(self, address: int) -> tuple[int, int]:
        """Return the base address of the array that contains an address, and the offset in bytes."""
        bases = self._bases = self._bases or sorted(self.arrays)
        base = bases[bisect.bisect_right(bases, address) - 1]
        return base, address - base

    @property
    def first_uses(self) -> list[int]:
        """The first task of each kernel, to launch before a capture, because drivers load kernels on first use."""
        return list({task.kernel: i for i, task in reversed(list(enumerate(self.tasks)))}.values())

    def streams(self, count: int) -> list[int]:
        """Return `count` streams of the runtime, which live until `close`."""
        if count > _MOST_STREAMS:
            raise Skipped(f"a capture of this shape needs {count} streams (at most {_MOST_STREAMS} are tried)")
        while len(self._streams) < count:
            self._streams.append(self.runtime.stream_create())
        return self._streams[:count]

    def close(self) -> None:
        """Destroy the streams."""
        while self._streams:
            self.runtime.stream_destroy(self._streams.pop())


class Peer(ABC):
    """A graph that another library built, and the microseconds of building and of instantiating it."""

    name: str
    lower_us = 0.0
    instantiate_us = 0.0

    @abstractmethod
    def __init__(self, work: Work) -> None: ...

    @abstractmethod
    def run(self, repeats: int) -> Times:
        """Launch and wait `repeats` times."""

    def updating(self, chosen: range) -> Run | None:
        """Return a run that changes an argument of some nodes before each launch; None if the peer cannot."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Destroy the graph, which must not be running."""


class Arguments:
    """Tables of pointers to the arguments of every task, which live as long as this object."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._packers = [ArgumentPacker(task.signature) for task in tasks]
        self.tables = [packer.place(packer.pack(task.values)) for packer, task in zip(self._packers, tasks)]

    @classmethod
    def of(cls, work: Work) -> tuple[Arguments, Arguments]:
        """Return the arguments of all tasks, and of the changed tasks."""
        return cls(work.tasks), cls([task.changed() for task in work.tasks])


# -- C++ ---------------------------------------------------------------------------------------------------------------


def cpp_library(source: str, stem: str, what: str, options: Sequence[str] = ("-O2",)) -> ctypes.CDLL:
    """Return the library of a C++ source, built on first use."""
    return ctypes.CDLL(str(build(find_compiler(), source, options, stem=stem, what=what)))


@functools.cache
def peer_library() -> ctypes.CDLL:
    """Return the C++ peer, built on first use; Skipped without a compiler."""
    source = (Path(__file__).parent / "peer.cpp").read_text(encoding="utf-8")
    try:
        library = cpp_library(source, "peer", "the C++ peer")
    except (RuntimeUnavailable, BuildFailed, OSError) as error:
        raise Skipped(f"C++ needs a compiler: {error}") from None
    at, size = ctypes.c_void_p, ctypes.c_size_t
    library.peer_clock_us.restype = ctypes.c_double
    library.peer_build.argtypes = [at, at, at, size, at, size, *[at] * 8]
    library.peer_launch.argtypes = [at, at, at, at, size, at, at, size, size, at, at, size, size, at, at]
    return library


def address_of(runtime: Runtime, api: str) -> int:
    """Return the address of a C function of the runtime's library, by HIP's name or the platform's."""
    library = getattr(runtime, "_hip", None)
    if library is None:
        raise Skipped(f"runtime {runtime.name!r} has no C functions")
    return ctypes.cast(getattr(library, api), ctypes.c_void_p).value or 0


def require_good(code: int) -> None:
    """Raise for the error code of a C++ peer function, unless it is success."""
    if code:
        raise HipError("the C++ peer", code, f"error {code}")


class CppLaunches:
    """Launches graphs one after another from C++, which also takes the times."""

    def __init__(self, runtime: Runtime, graphs: Sequence[int], stream: int) -> None:
        self._library = peer_library()
        apis = ("hipGraphLaunch", "hipStreamSynchronize", "hipGraphExecKernelNodeSetParams")
        self._calls = [address_of(runtime, api) for api in apis]
        self._graphs = (ctypes.c_void_p * len(graphs))(*graphs)
        self._stream = stream
        self._clock_costs_us = self._library.peer_clock_us()

    def run(
        self, repeats: int, nodes: Any = None, chosen: range = range(0), params: tuple[bytes, bytes] = (b"", b""), stride: int = 0
    ) -> Times:
        """Launch and wait `repeats` times; before each, nodes of the first graph get the two of `params` alternately."""
        submit, total = np.zeros(repeats), np.zeros(repeats)
        graphs = self._graphs, len(self._graphs), self._stream
        changes = nodes, chosen.start, chosen.stop, *params, stride
        times = submit.ctypes.data, total.ctypes.data
        require_good(self._library.peer_launch(*self._calls, *graphs, *changes, repeats, *times))
        return Times(*(np.maximum(0.0, found - self._clock_costs_us).tolist() for found in (submit, total)))


class Cpp(Peer):
    """The platform's graph API, called from compiled code, which also takes the times."""

    name = "C++"

    def __init__(self, work: Work) -> None:
        library, runtime, count = peer_library(), work.runtime, len(work.tasks)
        calls = [address_of(runtime, f"hipGraph{what}") for what in ("Create", "AddKernelNode", "InstantiateWithFlags")]
        self._runtime = runtime
        self._arguments = Arguments.of(work)
        params, others = (
            [runtime.kernel_params(t.function, t.grid, t.block, 0, table) for t, table in zip(work.tasks, arguments.tables)]
            for arguments in self._arguments
        )
        if not params[0]:
            raise Skipped(f"runtime {runtime.name!r} does not say how it lays out a kernel's parameters")
        self._stride = len(params[0])
        self._params = b"".join(params), b"".join(others)
        counts = [len(task.deps) for task in work.tasks]
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uintp)
        deps = np.array([d for task in work.tasks for d in task.deps] or [0], dtype=np.uintp)
        self._nodes = (ctypes.c_void_p * count)()
        scratch = (ctypes.c_void_p * (max(counts) + 1))()
        graph, handle, add_us, instantiate_us = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_double(), ctypes.c_double()
        given = count, self._params[0], self._stride, first.ctypes.data, deps.ctypes.data
        graphs, times = map(ctypes.byref, (graph, handle)), map(ctypes.byref, (add_us, instantiate_us))
        require_good(library.peer_build(*calls, *given, *graphs, self._nodes, scratch, *times))
        self._graph, self._exec = graph.value or 0, handle.value or 0
        self.lower_us, self.instantiate_us = add_us.value, instantiate_us.value
        self._launches = CppLaunches(runtime, [self._exec], *work.streams(1))

    def run(self, repeats: int) -> Times:
        return self._launches.run(repeats)

    def updating(self, chosen: range) -> Run:
        return functools.partial(self._launches.run, nodes=self._nodes, chosen=chosen, params=self._params, stride=self._stride)

    def close(self) -> None:
        self._runtime.graph_exec_destroy(self._exec)
        self._runtime.graph_destroy(self._graph)


# -- Python ------------------------------------------------------------------------------------------------------------


class PythonPeer(Peer):
    """A peer that is launched from Python: `launch` is the call that a user of the library would make."""

    launch: Callable[[], Any]

    def __init__(self, work: Work) -> None:
        if work.runtime.target.platform != "nvidia":
            raise Skipped(f"it runs on NVIDIA GPUs only (this is {work.runtime.target.name})")
        self._work = work
        self._wait = functools.partial(work.runtime.stream_synchronize, work.streams(1)[0])
        self.build(work)

    @abstractmethod
    def build(self, work: Work) -> None:
        """Build the graph, and set `lower_us`, `instantiate_us` and `launch`."""

    def run(self, repeats: int) -> Times:
        return launch_times_us(self.launch, self._wait, repeats)

    @contextlib.contextmanager
    def timed(self) -> Iterator[Callable[[], None]]:
        """Time the block; a call of the yielded function separates building from instantiating."""
        marks = [time.perf_counter()]
        yield lambda: marks.append(time.perf_counter())
        end = time.perf_counter()
        split = marks[1] if len(marks) > 1 else end
        self.lower_us, self.instantiate_us = (split - marks[0]) * 1e6, (end - split) * 1e6


class CudaBindings(PythonPeer):
    """The driver API through NVIDIA's own binding, in a Python loop."""

    name = "cuda-bindings"

    def build(self, work: Work) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._arguments = Arguments.of(work)
        self._nodes: list[Any] = []
        with self.timed() as built:
            self._graph = self._ok(driver.cuGraphCreate(0))
            for task, table in zip(work.tasks, self._arguments[0].tables):
                deps = [self._nodes[d] for d in task.deps]
                self._nodes.append(self._ok(driver.cuGraphAddKernelNode(self._graph, deps, len(deps), self._params(task, table))))
            built()
            self._exec = self._ok(driver.cuGraphInstantiate(self._graph, 0))
        self.launch = functools.partial(driver.cuGraphLaunch, self._exec, driver.CUstream(work.streams(1)[0]))

    def _params(self, task: Task, table: int) -> Any:
        params = self._driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = task.function
        params.gridDimX, params.gridDimY, params.gridDimZ = task.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = task.block
        params.kernelParams = table
        return params

    @staticmethod
    def _ok(returned: tuple[Any, ...]) -> Any:
        if int(returned[0]):
            raise HipError("cuda-bindings", int(returned[0]), str(returned[0]))
        return returned[1] if len(returned) > 1 else None

    def updating(self, chosen: range) -> Run:
        given, others = (
            [(self._nodes[i], self._params(self._work.tasks[i], arguments.tables[i])) for i in chosen]
            for arguments in self._arguments
        )
        turns = itertools.cycle((others, given))
        set_params, handle = self._driver.cuGraphExecKernelNodeSetParams, self._exec

        def launch() -> None:
            for node, params in next(turns):
                set_params(handle, node, params)
            self.launch()

        return functools.partial(launch_times_us, launch, self._wait)

    def close(self) -> None:
        self._ok(self._driver.cuGraphExecDestroy(self._exec))
        self._ok(self._driver.cuGraphDestroy(self._graph))


class CapturingPeer(PythonPeer):
    """A peer that captures its work from one stream per chain, with events between them."""

    streams: list[Any]
    new_event: Callable[[], Any]

    def record(self, lane: int) -> Any:
        """Return an event after the work of a lane so far."""
        event = self.new_event()
        event.record(self.streams[lane])
        return event

    def capture(self, launch: Callable[[int, int], None]) -> None:
        """Issue every task by `launch(task, lane)`."""
        tasks, streams = self._work.tasks, self.streams
        crossing = {d for task in tasks for d in task.deps if tasks[d].lane != task.lane}
        events: dict[int, Any] = {}
        begun = {0}
        fork = self.record(0) if self._work.lanes > 1 else None
        for i, task in enumerate(tasks):
            lane = task.lane
            if lane not in begun:
                begun.add(lane)
                streams[lane].wait_event(fork)
            for d in task.deps:
                if tasks[d].lane != lane:
                    streams[lane].wait_event(events[d])
            launch(i, lane)
            if i in crossing:
                events[i] = self.record(lane)
        for lane in sorted(begun - {0}):
            streams[0].wait_event(self.record(lane))


class Cupy(CapturingPeer):
    """CuPy's RawModule under stream capture."""

    name = "cupy"

    def build(self, work: Work) -> None:
        import cupy

        cupy.cuda.Device(work.runtime.get_device()).use()
        module = cupy.RawModule(code=work.source)
        functions = {name: module.get_function(name) for name in work.kernels}
        calls = [
            (functools.partial(functions[task.kernel], task.grid, task.block), task.converted(np.uint64, np.int32))
            for task in work.tasks
        ]
        streams = self.streams = [cupy.cuda.ExternalStream(handle) for handle in work.streams(work.lanes)]
        self.new_event = functools.partial(cupy.cuda.Event, disable_timing=True)
        several = work.lanes > 1

        def launch(i: int, lane: int) -> None:
            if several:
                streams[lane].use()
            call, args = calls[i]
            call(args)

        before = cupy.cuda.get_current_stream()
        streams[0].use()
        try:
            for i in work.first_uses:
                launch(i, 0)
            streams[0].synchronize()
            with self.timed() as built:
                streams[0].begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
                try:
                    self.capture(launch)
                    built()
                finally:
                    self._graph = streams[0].end_capture()
        finally:
            before.use()
        self.launch = functools.partial(self._graph.launch, streams[0])
        self._keep = (module, calls)

    def close(self) -> None:
        # Unload modules while their context exists, not when the process ends.
        del self.launch, self._graph, self._keep, self.streams


class Torch(CapturingPeer):
    """PyTorch's CUDAGraph around kernels that it compiled."""

    name = "torch"

    def build(self, work: Work) -> None:
        import torch

        if not torch.cuda.is_available():
            raise Skipped("this torch finds no GPU")
        compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
        if compile_kernel is None:
            raise Skipped("this torch has no torch.cuda._compile_kernel, so it cannot run the same kernels")
        device = torch.device("cuda", work.runtime.get_device())
        kernels = {name: compile_kernel(work.source, name) for name in work.kernels}
        tensors = {address: torch.zeros(max(1, nbytes // 4), device=device) for address, nbytes in work.arrays.items()}

        def tensor_at(address: int) -> Any:
            base, offset = work.array_at(address)
            return tensors[base][offset // 4 :]

        calls = [(kernels[task.kernel], task.grid, task.block, list(task.converted(tensor_at, int))) for task in work.tasks]
        streams = self.streams = [torch.cuda.ExternalStream(handle, device=device) for handle in work.streams(work.lanes)]
        self.new_event = torch.cuda.Event
        torch.cuda.synchronize(device)

        def launch(i: int, lane: int) -> None:
            kernel, grid, block, args = calls[i]
            kernel(grid, block, args, 0, streams[lane])

        for i in work.first_uses:
            launch(i, 0)
        torch.cuda.synchronize(device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(streams[0]), self.timed() as built:
            self._graph.capture_begin(capture_error_mode="relaxed")
            try:
                self.capture(launch)
                built()
            finally:
                self._graph.capture_end()
        self._before = torch.cuda.current_stream(device)
        self._set_stream = torch.cuda.set_stream
        self.launch = self._graph.replay
        self._keep = (kernels, tensors, calls)

    def run(self, repeats: int) -> Times:
        self._set_stream(self.streams[0])  # a replay goes to torch's current stream
        try:
            return super().run(repeats)
        finally:
            self._set_stream(self._before)

    def close(self) -> None:
        del self.launch
        self._graph.reset()
        del self._graph, self._before, self._set_stream, self._keep, self.streams


class CudaCore(PythonPeer):
    """cuda.core: its graph builder for one chain, its graph definition for other shapes."""

    name = "cuda.core"

    def build(self, work: Work) -> None:
        from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch

        device = Device(work.runtime.get_device())
        device.set_current()
        code = work.runtime.rtc_compile(work.source, work.kernels, name="peers")
        module = ObjectCode.from_cubin(code.image)
        kernels = {name: module.get_kernel(code.lowered.get(name, name)) for name in work.kernels}
        calls = [
            (LaunchConfig(grid=task.grid, block=task.block), kernels[task.kernel], task.converted(int, np.int32))
            for task in work.tasks
        ]
        stream = Stream.from_handle(work.streams(1)[0])
        for i in work.first_uses:
            config, kernel, args = calls[i]
            launch(stream, config, kernel, *args)
        stream.sync()
        if work.lanes == 1:
            with self.timed() as built:
                builder = device.create_graph_builder().begin_building()
                for config, kernel, args in calls:
                    launch(builder, config, kernel, *args)
                builder.end_building()
                built()
                self._graph = builder.complete()
            self._keep: Any = (module, kernels, builder, stream)
        else:
            try:
                from cuda.core.graph import GraphDefinition
            except ImportError:
                raise Skipped("this cuda.core has no GraphDefinition, which shapes other than a chain need") from None
            nodes: list[Any] = []
            with self.timed() as built:
                definition = GraphDefinition()
                for task, (config, kernel, args) in zip(work.tasks, calls):
                    at: Any = definition
                    if task.deps:
                        at, *others = (nodes[d] for d in task.deps)
                        if others:
                            at = at.join(*others)
                    nodes.append(at.launch(config, kernel, *args))
                built()
                self._graph = definition.instantiate()
            self._keep = (module, kernels, definition, nodes, stream)
        self.launch = functools.partial(self._graph.launch, stream)

    def close(self) -> None:
        del self.launch
        self._graph.close()
        del self._graph, self._keep


PEERS: Final[tuple[type[Peer], ...]] = (Cpp, CudaBindings, Cupy, Torch, CudaCore)


def open_peer(kind: type[Peer], work: Work) -> Peer:
    """Build a peer's graph and launch it once; raise Skipped if the library is missing or fails."""
    peer: Peer | None = None
    try:
        peer = kind(work)
        peer.run(1)
        return peer
    except Skipped:
        raise
    except ImportError as error:
        why = f"not installed: {error}"
    except Exception as error:  # a failure inside a peer ends only that peer's part of the benchmark
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        # The traceback's frames hold graphs, events and modules of the library, which must be freed now: when the process
        # ends, the driver ends too. For the same reason Skipped is raised below, where it does not refer to this exception.
        traceback.clear_frames(error.__traceback__)
    if peer is not None:
        with contextlib.suppress(Exception):
            peer.close()
        peer = None  # else the traceback of the exception below keeps it alive
    raise Skipped(why)


def load_torch_first() -> None:
    """Import torch, if it is installed, before a runtime loads NVRTC: a later import may fail half way.

    The state that a half-finished import leaves behind may crash the process.
    """
    with contextlib.suppress(Exception):  # the peer of torch reports the failure
        import_module("torch")
