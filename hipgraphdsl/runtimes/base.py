"""The runtime protocol: HIP's calls in snake case, implemented once per platform.

Handles (streams, events, modules, functions, graphs, nodes, executables, pointers) are plain integers. Every method
raises `HipError` where HIP returns an error code; none returns a code. A runtime knows nothing of workflows or plans.
Methods without a HIP counterpart say so. Type checkers reject a platform that lacks a method whose body is empty here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from ..errors import HipError
from ..target import Target
from .data import (
    LAUNCH_ATTRIBUTES,
    CaptureInfo,
    CaptureMode,
    CodeObject,
    ConditionalMode,
    Copy3D,
    Dim3,
    FailedMark,
    Fill2D,
    FunctionInfo,
    GraphMemAttribute,
    HostParams,
    KernelParams,
    LaunchCall,
    MemcpyKind,
    MemOp,
    MemoryRange,
    NodeType,
)

ERROR_NOT_SUPPORTED = 801
_SPIN_S = 300e-6


def not_supported(api: str, text: str) -> HipError:
    """Return the error for a call that a platform lacks, or does not support with the given arguments."""
    return HipError(api, ERROR_NOT_SUPPORTED, "hipErrorNotSupported", text)


class GraphSteps(NamedTuple):
    """A graph, and the steps of a plan that a backend adds to it, in order."""

    graph: int
    steps: Sequence[Any]
    """`Step` of `plan.places`."""
    models: tuple[Any, ...]
    """The `Node` of each."""
    nodes: list[int]
    """The graph's nodes of the steps that have been added."""
    operations: list[Any]
    """The operations of these."""
    addresses: Mapping[Any, int]
    """Addresses by array."""
    values: Mapping[Any, Any]
    """Values by parameter."""
    marks: tuple[int, int]
    """Address of `Runtime.mark_words` of this thread, 0 for none, and the mark of the first step; those of the others follow."""
    left: frozenset[int]
    """Steps that a `KernelAdder` must leave to the backend: disabled, merged with others, or of another device."""
    function: Callable[[Any], tuple[int, Any] | None]
    """Returns the function and the `ArgumentPacker` of a kernel node; None if the backend must check its launch."""


class KernelAdder(Protocol):
    """Adds plain kernel launches of `GraphSteps` to the graph by compiled code."""

    def add(self, first: int, /) -> int:
        """Add the steps from `first` on, with their nodes and operations; return the first that is left to the backend.

        Raises
        ------
        HipError
            If the platform does not add a step.
        """


class Replay(Protocol):
    """Makes a list of calls by compiled code."""

    @property
    def entry(self) -> tuple[int, int] | None:
        """What `Launcher.bind` takes in place of hipGraphLaunch and a graph; None if host functions are among the calls."""

    @property
    def run(self) -> Callable[[int], None]:
        """What makes the calls for a launch on a stream."""

    def failed(self, code: int, /) -> None:
        """Raise the error for a code that running the entry returned."""


class Runtime(Protocol):
    """One platform's HIP calls. Obtain one from `hipgraphdsl.runtimes.open_runtime`."""

    name: str
    target: Target
    needs_context: ClassVar[bool] = False
    """Whether a new thread has no current context and needs one for calls (CUDA); in HIP a new thread uses device 0."""
    uncontracted: ClassVar[str] = "-ffp-contract=off"
    """The compiler's option by which it fuses no multiplication with an addition."""

    @property
    def launch_attributes(self) -> tuple[str, ...]:
        """Names of the `LAUNCH_ATTRIBUTES` that the target's kernels can have (not a HIP call)."""
        target = self.target
        known = (name for name, attribute in LAUNCH_ATTRIBUTES.items() if target.platform in attribute.platforms)
        return tuple(name for name in known if name != "cluster" or target.clusters)

    # -- device ----------------------------------------------------------------------------------------------------
    def runtime_get_version(self) -> tuple[int, ...]: ...
    def get_device_count(self) -> int: ...
    def set_device(self, device: int) -> None: ...
    def get_device(self) -> int: ...
    def using_device(self, device: int) -> AbstractContextManager[None]:
        """Make a device the thread's current one, and restore the previous one on exit (not a HIP call)."""
        return self._using_device(device)

    @contextmanager
    def _using_device(self, device: int) -> Iterator[None]:
        before = self.get_device()
        try:  # includes the call, because KeyboardInterrupt may be raised right after it
            self.set_device(device)
            yield
        finally:
            self.set_device(before)

    @contextmanager
    def returning_on(self, device: int | None) -> Iterator[None]:
        """Do the same for code that releases handles, also while a stream captures; None leaves the current device.

        The code runs even if the device cannot be made current or the thread's mode cannot be changed; that error is raised then.
        """
        failed: list[HipError] = []
        with ExitStack() as stack:
            for context in (*([] if device is None else [self.using_device(device)]), self.relaxed()):
                try:
                    stack.enter_context(context)
                except HipError as error:
                    failed.append(error)
            yield
        if failed:
            raise failed[0]

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Permit this thread the calls that captures forbid, such as to free memory, and do not spoil the captures (no HIP call).

        They are forbidden to a thread that captures itself, and to all threads while anybody captures in global mode.
        """
        before = CaptureMode.GLOBAL  # what a thread begins with
        try:  # includes the call, because KeyboardInterrupt may be raised right after it
            before = self.thread_exchange_stream_capture_mode(CaptureMode.RELAXED)
            yield
        finally:
            self.thread_exchange_stream_capture_mode(before)

    def get_device_name(self, device: int) -> str: ...
    def mem_get_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of the current device's memory."""

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return False

    def device_enable_peer_access(self, peer: int) -> None:
        """Let the current device access `peer`'s memory; already enabled is not an error."""

    def more_devices(self) -> str:
        """Return the end of an error message that says how to get more devices, empty if there is no way (not a HIP call)."""
        return ""

    def between_devices(self) -> tuple[str, Sequence[str]]:
        """Return name and candidate paths of the NCCL-compatible library for transfers between processes (not a HIP call)."""
        return "NCCL", ()

    def describe(self) -> dict[str, Any]:
        """Return what `hipgraphdsl info` prints: versions, paths, switches (not a HIP call)."""
        return {}

    # -- memory ----------------------------------------------------------------------------------------------------
    def malloc(self, nbytes: int) -> int: ...
    def free(self, pointer: int) -> None: ...
    def host_malloc(self, nbytes: int) -> int:
        """Allocate page-locked host memory that kernels can reach at the same address."""

    def host_free(self, pointer: int) -> None: ...
    def host_register(self, pointer: int, nbytes: int) -> int:
        """Page-lock existing memory, so that kernels and asynchronous copies can access it.

        Returns the argument of `host_unregister`; 0 if others have registered the memory, or the device can access it anyway.
        Memory inside a region that this method has registered, for any device, shares that reference-counted registration.

        Raises
        ------
        HipError
            If the memory cannot be page-locked, or lies only partly in a region that this method has registered: CUDA refuses
            copies from memory that consists of several registrations.
        """
        return 0

    def host_unregister(self, registered: int) -> None:
        """Undo a `host_register`."""
        return

    def memcpy(self, dst: int, src: int, nbytes: int, kind: MemcpyKind) -> None: ...
    def memcpy_async(self, dst: int, src: int, nbytes: int, kind: MemcpyKind, stream: int) -> None: ...
    def memcpy_3d_async(self, copy: Copy3D, stream: int) -> None: ...
    def memset_async(self, fill: Fill2D, stream: int) -> None:
        """Call hipMemsetAsync, hipMemsetD16Async, hipMemsetD32Async or hipMemset2DAsync, depending on `fill`."""

    def mem_pool_set_access(self, device: int, access: Sequence[int]) -> None:
        """Let other devices access `malloc_async` allocations from a device's own pool, from now on (hipMemPoolSetAccess)."""
        raise self._lacks("hipMemPoolSetAccess")

    def malloc_async(self, nbytes: int, stream: int) -> int: ...
    def free_async(self, pointer: int, stream: int) -> None: ...
    def stream_batch_mem_op(self, stream: int, ops: Sequence[MemOp]) -> None: ...

    def device_get_graph_mem_attribute(self, device: int, attribute: GraphMemAttribute) -> int:
        """Return how many bytes the device's graphs use or reserve: the current value or the high-water mark."""
        raise self._lacks("hipDeviceGetGraphMemAttribute")

    def device_set_graph_mem_attribute(self, device: int, attribute: GraphMemAttribute, value: int = 0) -> None:
        """Reset a high-water mark; only `USED_HIGH` and `RESERVED_HIGH`, and only to 0."""
        raise self._lacks("hipDeviceSetGraphMemAttribute")

    def device_graph_mem_trim(self, device: int) -> None:
        """Release the memory that graphs reserve and do not use."""
        raise self._lacks("hipDeviceGraphMemTrim")

    def mem_get_address_range(self, pointer: int) -> MemoryRange | None:
        """Return the allocation that contains an address (hipMemGetAddressRange), or None if the runtime knows none."""
        return None

    # -- streams and events ------------------------------------------------------------------------------------------
    def stream_create(self, priority: int = 0) -> int:
        """Call hipStreamCreateWithPriority with hipStreamNonBlocking."""

    def stream_destroy(self, stream: int) -> None: ...
    def stream_synchronize(self, stream: int) -> None: ...
    def device_synchronize(self) -> None:
        """Wait for all work of the current device, also of streams that have been destroyed."""

    def stream_query(self, stream: int) -> bool:
        """Return whether all work of the stream is done."""

    def stream_get_device(self, stream: int) -> int:
        """Return the device of a stream; for the default stream, the thread's current device."""
        raise self._lacks("hipStreamGetDevice")

    def stream_wait_event(self, stream: int, event: int) -> None: ...
    def launch_host_func(self, stream: int, fn: int, user_data: int) -> None: ...
    def event_create(self, timing: bool = True) -> int: ...
    def event_destroy(self, event: int) -> None: ...
    def event_record(self, event: int, stream: int) -> None: ...
    def event_synchronize(self, event: int) -> None: ...
    def event_query(self, event: int) -> bool:
        """Return whether the work before the event's last record is done."""

    def event_elapsed_time(self, start: int, stop: int) -> float:
        """Return milliseconds between two recorded events."""

    def stream_wait(self, stream: int, timeout_s: float) -> bool:
        """Wait for the stream's work for at most `timeout_s` seconds; return whether it is done (not a HIP call).

        Signals are handled between calls, so a caller who loops over short waits can be interrupted.
        """
        started = time.monotonic()
        pause = 0.0
        while not self.stream_query(stream):
            waited = time.monotonic() - started
            if waited >= timeout_s:
                return False
            # A query costs a microsecond and a sleep at least 50, so short work is polled without sleeping.
            if waited > _SPIN_S:
                time.sleep(min(pause, timeout_s - waited))
                pause = min(1e-3, pause + 1e-5)
        return True

    # -- the sanitizer ---------------------------------------------------------------------------------------------
    sanitizes: bool = False
    """Whether modules that are compiled with `SANITIZE` check their kernels at run time."""

    def name_array(self, pointer: int, nbytes: int, name: str | None) -> None:
        """Tell the sanitizer the name of an array; None undoes one earlier call for that memory. A no-op without a sanitizer."""
        return

    # -- modules ---------------------------------------------------------------------------------------------------
    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        """Compile HIP C++ for this device, or load the result of an earlier compilation from the disk cache.

        Parameters
        ----------
        source : str
            HIP C++ with `__global__` functions.
        names : sequence of str
            Kernels, and template instantiations such as ``"scale<float>"``, that will be looked up.
        symbols : sequence of str
            `__device__` and `__constant__` variables that will be looked up.
        options : sequence of str
            Compiler options, e.g. ``"-DN=4"``.
        name : str
            Name of the source in the compiler's messages.

        Raises
        ------
        DeclarationError
            If the source does not compile: the compiler's message with the user's line numbers.
        """

    def module_load_data(self, image: bytes) -> int: ...
    def module_unload(self, module: int) -> None: ...
    def module_get_function(self, module: int, name: str) -> int: ...
    def module_get_global(self, module: int, name: str) -> tuple[int, int]:
        """Return (pointer, bytes) of a `__device__` or `__constant__` variable."""

    def func_get_info(self, function: int) -> FunctionInfo:
        """Return a function's name and parameters, as far as the platform reports them.

        The calls are hipKernelNameRef and hipKernelGetParamInfo, cuFuncGetName and cuFuncGetParamInfo.
        """
        return FunctionInfo("", None)

    def module_launch_kernel(
        self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        """Launch a kernel; `args` is the address of an array of pointers to the arguments, which are read before it returns.

        HIP has a call for ``cooperative=True``; CUDA's cuLaunchKernelEx takes all attributes.
        """

    # -- capture ---------------------------------------------------------------------------------------------------
    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None: ...
    def stream_end_capture(self, stream: int) -> int: ...
    def stream_is_capturing(self, stream: int) -> bool:
        """Return whether work on a stream goes to a capture, failed ones included.

        The null stream cannot capture, but waits for every blocking stream: a capture of one refuses work on it, and this call
        returns True where the platform reports that.
        """

    def stream_get_capture_info(self, stream: int) -> CaptureInfo: ...
    def stream_update_capture_dependencies(self, stream: int, nodes: Sequence[int], replace: bool) -> None: ...
    def thread_exchange_stream_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        """Set which captures forbid this thread unsafe calls, and return what was set before."""

    # -- graphs ----------------------------------------------------------------------------------------------------
    def graph_create(self) -> int: ...
    def graph_destroy(self, graph: int) -> None: ...
    def graph_add_kernel_node(
        self, graph: int, deps: Sequence[int], function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> int:
        """Add a kernel node; `args` is the address of an array of pointers to the arguments, copied before it returns."""

    def graph_kernel_node_set_attributes(self, node: int, **attributes: Any) -> None:
        """Call hipGraphKernelNodeSetAttribute for each attribute given, by the names of `LAUNCH_ATTRIBUTES`."""
        if attributes:
            raise self._lacks("hipGraphKernelNodeSetAttribute")

    def graph_add_memcpy_node_1d(
        self, graph: int, deps: Sequence[int], dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> int: ...
    def graph_add_memcpy_node(self, graph: int, deps: Sequence[int], copy: Copy3D) -> int: ...
    def graph_add_memset_node(self, graph: int, deps: Sequence[int], fill: Fill2D) -> int: ...
    def graph_add_host_node(self, graph: int, deps: Sequence[int], fn: int, user_data: int) -> int: ...
    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        """Add an allocation; return (node, pointer). The pointer is known now and valid while the graph runs.

        `access` lists the other devices that may access it.
        """

    def graph_add_mem_free_node(self, graph: int, deps: Sequence[int], pointer: int) -> int: ...
    def graph_add_empty_node(self, graph: int, deps: Sequence[int]) -> int: ...
    def graph_add_child_graph_node(self, graph: int, deps: Sequence[int], child: int) -> int:
        """Add a copy of `child`; its nodes keep their order in `graph_get_nodes(graph_child_graph_node_get_graph(node))`."""

    def graph_add_event_record_node(self, graph: int, deps: Sequence[int], event: int) -> int: ...
    def graph_add_event_wait_node(self, graph: int, deps: Sequence[int], event: int) -> int: ...
    def graph_add_external_semaphores_signal_node(self, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int: ...
    def graph_add_external_semaphores_wait_node(self, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int: ...
    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[MemOp]) -> int: ...
    def graph_add_conditional_node(
        self, graph: int, deps: Sequence[int], mode: ConditionalMode, condition: int, fill: Sequence[Callable[[int], None]]
    ) -> int:
        """Add a conditional node: the 32-bit word at `condition`, read when the node is reached, selects the body to run, if any.

        HIP has no such call up to 10.0; CUDA's are cuGraphConditionalHandleCreate and cuGraphAddNode. The word is read on the
        device, in a loop again after each run of the body; it may lie in any memory that a kernel can access.

        Parameters
        ----------
        fill : sequence of callable
            For each body, the function that adds its nodes: ``fill[n](graph)`` is called once, before this method returns. One
            for WHILE, one or two (then, else) for IF, one or more for SWITCH.
        """
        raise self._lacks("hipGraphAddConditionalNode")

    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None: ...
    def graph_make_programmatic(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> bool:
        """Make edges between kernel nodes programmatic: the target starts while the source is ending, and its kernel waits.

        Return False, with the graph unchanged, if it cannot be changed: CUDA removes no edge of graphs with alloc or free nodes.
        """
        raise self._lacks("hipGraphAddDependencies")

    def graph_get_nodes(self, graph: int) -> tuple[int, ...]: ...
    def graph_get_edges(self, graph: int) -> tuple[tuple[int, int], ...]: ...
    def graph_node_get_type(self, node: int) -> NodeType: ...
    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        """Return the launch parameters of a kernel node; addresses in them are valid until the node is changed or destroyed."""
        raise self._lacks("hipGraphKernelNodeGetParams")

    def graph_kernel_node_get_attributes(self, node: int) -> dict[str, Any]:
        """Return the attributes of a kernel node that are not zero, by the names of `LAUNCH_ATTRIBUTES`."""
        return {}

    def graph_memcpy_node_get_params(self, node: int) -> Copy3D:
        """Return the copy of a memcpy node."""
        raise self._lacks("hipGraphMemcpyNodeGetParams")

    def graph_memset_node_get_params(self, node: int) -> Fill2D:
        """Return the fill of a memset node."""
        raise self._lacks("hipGraphMemsetNodeGetParams")

    def graph_host_node_get_params(self, node: int) -> HostParams:
        """Return the function and argument of a host node."""
        raise self._lacks("hipGraphHostNodeGetParams")

    def graph_mem_alloc_node_get_params(self, node: int) -> tuple[int, int]:
        """Return (pointer, bytes) of an alloc node."""
        raise self._lacks("hipGraphMemAllocNodeGetParams")

    def graph_mem_free_node_get_params(self, node: int) -> int:
        """Return the pointer that a free node frees."""
        raise self._lacks("hipGraphMemFreeNodeGetParams")

    def graph_event_record_node_get_event(self, node: int) -> int:
        """Return the event of a record node."""
        raise self._lacks("hipGraphEventRecordNodeGetEvent")

    def graph_event_wait_node_get_event(self, node: int) -> int:
        """Return the event of a wait node."""
        raise self._lacks("hipGraphEventWaitNodeGetEvent")

    def graph_external_semaphores_signal_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        """Return (semaphore, value) of each semaphore that a node signals."""
        raise self._lacks("hipGraphExternalSemaphoresSignalNodeGetParams")

    def graph_external_semaphores_wait_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        """Return (semaphore, value) of each semaphore that a node waits for."""
        raise self._lacks("hipGraphExternalSemaphoresWaitNodeGetParams")

    def graph_batch_mem_op_node_get_params(self, node: int) -> tuple[MemOp, ...]:
        """Return the operations of a batch memory operation node."""
        raise self._lacks("hipGraphBatchMemOpNodeGetParams")

    def graph_child_graph_node_get_graph(self, node: int) -> int: ...

    # -- executables -------------------------------------------------------------------------------------------------
    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        """Call hipGraphInstantiateWithFlags; flag 1 makes a launch free what the previous one allocated and did not free."""

    def graph_exec_destroy(self, graph_exec: int) -> None: ...
    def graph_launch(self, graph_exec: int, stream: int) -> None: ...
    def graph_exec_kernel_node_set_params(
        self, graph_exec: int, node: int, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> None: ...
    def graph_exec_memcpy_node_set_params_1d(
        self, graph_exec: int, node: int, dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> None: ...
    def graph_exec_memcpy_node_set_params(self, graph_exec: int, node: int, copy: Copy3D) -> None: ...
    def graph_exec_memset_node_set_params(self, graph_exec: int, node: int, fill: Fill2D) -> None: ...
    def graph_exec_host_node_set_params(self, graph_exec: int, node: int, fn: int, user_data: int) -> None: ...
    def graph_exec_child_graph_node_set_params(self, graph_exec: int, node: int, child: int) -> None: ...
    def graph_exec_event_record_node_set_event(self, graph_exec: int, node: int, event: int) -> None: ...
    def graph_exec_event_wait_node_set_event(self, graph_exec: int, node: int, event: int) -> None: ...
    def graph_node_set_enabled(self, graph_exec: int, node: int, enabled: bool) -> None: ...

    def signal_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        """Call hipSignalExternalSemaphoresAsync with one timeline semaphore."""
        raise self._lacks("hipSignalExternalSemaphoresAsync")

    def wait_external_semaphore_async(self, semaphore: int, value: int, stream: int) -> None:
        """Call hipWaitExternalSemaphoresAsync with one timeline semaphore."""
        raise self._lacks("hipWaitExternalSemaphoresAsync")

    def _lacks(self, api: str) -> HipError:
        return not_supported(api, f"runtime {self.name!r} has no such call")

    # -- without a HIP counterpart -----------------------------------------------------------------------------------
    def launcher(self, slow: Any) -> Any:
        """Return a compiled caller of `graph_launch` (`Launcher` of parts/fast/launcher.h), or None if it is unavailable.

        Parameters
        ----------
        slow : callable
            The slow path, called for launches that the launcher cannot make itself. ``slow.failed(code)`` raises for a launch's
            error code, ``slow.wait_failed(code)`` for a wait's; ``slow.run`` and ``slow.synchronize`` are the other slow paths.
        """
        return None

    def launch_calls(self, calls: Sequence[LaunchCall]) -> Replay | None:
        """Return an object that makes these calls on a stream by compiled code, or None if it cannot make all of them."""
        return None

    def kernel_adder(self, steps: GraphSteps) -> KernelAdder | None:
        """Return a compiled `KernelAdder` for the steps of a graph, or None if it is unavailable."""
        return None

    def call_failed(self, api: str, code: int) -> NoReturn:
        """Raise HipError for an error code that a HIP call returned to compiled code."""
        raise HipError(api, code, f"hipError {code}")

    def launch_addresses(self) -> tuple[int, int]:
        """Return the addresses of hipGraphLaunch and hipGraphExecKernelNodeSetParams, for `launcher`."""
        return (0, 0)

    def current_addresses(self, device: int) -> tuple[int, int, int]:
        """Return, for `launcher`, the addresses of the getter and setter of a thread's current device, and the value to set.

        For CUDA they are those of the current context. Zeros if the thread's current device makes no difference.
        """
        return (0, 0, 0)

    def wait_addresses(self) -> tuple[int, int]:
        """Return, for `launcher`, the addresses of hipStreamQuery and, if a query sets the last error, hipGetLastError (else 0).

        The first may also be a function that waits, at most the number of microseconds in its second argument.
        Zeros if compiled code may not wait.
        """
        return (0, 0)

    def capture_address(self) -> int:
        """Return, for `launcher`, the address of hipStreamIsCapturing; 0 if compiled code may not ask."""
        return 0

    def room_address(self) -> int:
        """Return, for `launcher`, the address of `wait_for_room` for one stream, which returns 0 if there is room; or 0."""
        return 0

    def wait_for_room(self, stream: int, others: Sequence[int], timeout_s: float) -> bool:
        """Wait while too many operations of a stream are in flight, where Ctrl-C and a limit end no wait of a platform's launch.

        Return False if that has taken `timeout_s` seconds. Otherwise the thread's next operations, some thousands, do not wait.
        """
        return True

    def kernel_params(self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int) -> bytes:
        """Return the platform's structure of a kernel node's parameters, for `launcher`."""
        return b""

    def kernel_extents(self) -> tuple[int, int]:
        """Return where grid and block, of three 32-bit integers each, stand in the structure that `kernel_params` returns."""
        return 0, 0

    def shared_event(self, name: str) -> int:
        """Return the event of that name that all graphs of this process and device share."""
        events: dict[str, int] = self.__dict__.setdefault("_shared_events", {})
        if name not in events:
            events[name] = self.event_create(timing=True)
        return events[name]

    def host_func_failed(self) -> None:
        """Report, inside a host function, that it failed, so that no later work starts; a no-op if the platform cannot."""
        return

    def mark_words(self) -> memoryview | None:
        """Return where this thread writes the marks of the operations that it issues, or adds to graphs, next; None if it cannot.

        They are that of the operation itself, that of the one for which user code makes it, and a number of the launch that
        issues it, which grows from launch to launch; 0 for none.
        """
        return None

    def unfinished_marks(self, first: int, count: int) -> frozenset[int]:
        """Return the marks, of `count` from `first` on, of what the first launch in flight has not finished, if known."""
        return frozenset()

    def knows_failures(self) -> bool:
        """Return whether `failed_mark` would tell of a failure for some marks."""
        return False

    def failed_mark(self, first: int, count: int) -> FailedMark:
        """Return what is known of failures of operations with `count` marks from `first` on, and forget them."""
        return FailedMark()

    def graph_exec_abort(self, graph_exec: int) -> bool:
        """Stop launches in flight from starting more nodes; return False if the platform cannot."""
        return False
