"""Operations: what a step does, with each name replaced by an address, a handle or a value, and the HIP calls for it.

An operation is added to a graph as a node (`add`), issued on a stream (`issue`), or set on a node of an instantiated graph,
where it replaces an operation of the same type (`set`, which returns False if only a new graph can hold it). Children,
conditionals and captured functions have graphs of their own, which the backend builds.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from ..arrays import Array
from ..kernels import ArgumentPacker
from ..plan.steps import Plan
from ..runtimes.base import Runtime
from ..runtimes.data import CaptureStatus, ConditionalMode, Copy3D, Dim3, Fill2D, LaunchCall, MemcpyKind, MemOp
from .environment import Environment

_log = logging.getLogger("hipgraphdsl")


NO_ATTRIBUTES: Final[Mapping[str, Any]] = MappingProxyType({})


class Launch(NamedTuple):
    """A kernel launch; `packer` writes the `packed` arguments to its memory right before the call."""

    function: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    packer: ArgumentPacker
    packed: bytes
    attributes: Mapping[str, Any] = NO_ATTRIBUTES
    """Non-default values by the names of `LAUNCH_ATTRIBUTES`."""

    @property
    def cooperative(self) -> bool:
        """Whether all blocks are resident at once."""
        return "cooperative" in self.attributes

    def is_stand_in(self, runtime: Runtime) -> bool:
        """Whether a graph holds the captured launch as a child graph instead: an explicit kernel node is not cooperative."""
        return "cooperative_ignored" in runtime.target.quirks and self.cooperative

    def is_recorded(self, quirks: frozenset[str]) -> bool:
        """Whether a stream capture records its stream call as a node."""
        return True

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        """Add a kernel node to a graph, after the nodes `deps`; return its handle."""
        args = self.packer.place(self.packed)
        node = runtime.graph_add_kernel_node(graph, deps, self.function, self.grid, self.block, self.shared_bytes, args)
        if self.attributes:
            set_attributes(node, runtime, **self.attributes)
        return node

    def issue(self, runtime: Runtime, stream: int) -> None:
        """Issue the launch on a stream."""
        args = self.packer.place(self.packed)
        if not self.attributes:
            runtime.module_launch_kernel(self.function, self.grid, self.block, self.shared_bytes, stream, args)
            return
        attributes = {name: value for name, value in self.attributes.items() if name != "priority"}  # the stream's counts
        runtime.module_launch_kernel(self.function, self.grid, self.block, self.shared_bytes, stream, args, **attributes)

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        """Replace the launch of a node in an instantiated graph by this one; return False if no call can do that."""
        if before.attributes != self.attributes or (self.attributes and self.is_stand_in(runtime)):
            return False
        args = self.packer.place(self.packed)
        runtime.graph_exec_kernel_node_set_params(graph_exec, node, self.function, self.grid, self.block, self.shared_bytes, args)
        return True


def set_attributes(node: int, runtime: Runtime, **attributes: Any) -> None:
    """Set attributes of a kernel node."""
    if "priority" in attributes and "priority_refused" in runtime.target.quirks:
        priority = attributes.pop("priority")
        _log.warning("priority=%d of a kernel node is left out: %s refuses every priority", priority, runtime.target.name)
    runtime.graph_kernel_node_set_attributes(node, **attributes)


class _Fixed:
    __slots__ = ()
    recorded: ClassVar[bool] = True

    def is_recorded(self, quirks: frozenset[str]) -> bool:
        """Whether a stream capture records its stream call as a node."""
        return self.recorded

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        """Replace `before`, of the same type, in a node of an instantiated graph; return False if no call can do that."""
        return False


class Call(_Fixed):
    """One node of a graph, or one call on a stream."""

    __slots__ = ()

    @abstractmethod
    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        """Add it to a graph as a node, after the nodes `deps`; return the node's handle."""

    @abstractmethod
    def issue(self, runtime: Runtime, stream: int) -> None:
        """Issue it on a stream."""


@dataclass(frozen=True, slots=True)
class Copy1D(Call):
    """A contiguous copy."""

    dst: int
    src: int
    nbytes: int
    kind: MemcpyKind

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_memcpy_node_1d(graph, deps, self.dst, self.src, self.nbytes, self.kind)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.memcpy_async(self.dst, self.src, self.nbytes, self.kind, stream)

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        if self.kind != before.kind:  # HIP fixes the direction of a copy when the node is added
            return False
        runtime.graph_exec_memcpy_node_set_params_1d(graph_exec, node, self.dst, self.src, self.nbytes, self.kind)
        return True


@dataclass(frozen=True, slots=True)
class Copy(Copy3D, Call):
    """A pitched copy."""

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_memcpy_node(graph, deps, self)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.memcpy_3d_async(self, stream)

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        if self.kind != before.kind or "only_flat_updates" in runtime.target.quirks:
            return False
        runtime.graph_exec_memcpy_node_set_params(graph_exec, node, self)
        return True


@dataclass(frozen=True, slots=True)
class Fill(Fill2D, Call):
    """A memset."""

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_memset_node(graph, deps, self)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.memset_async(self, stream)

    def is_recorded(self, quirks: frozenset[str]) -> bool:
        return self.height == 1 or self.element_size == 1  # HIP has 2-D memsets of single bytes only

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        if (self.height > 1) != (before.height > 1):  # a memset node that was captured as 1-D stays 1-D
            return False
        if self.height > 1 and "only_flat_updates" in runtime.target.quirks:
            return False
        runtime.graph_exec_memset_node_set_params(graph_exec, node, self)
        return True


@dataclass(frozen=True, slots=True)
class Alloc(Call):
    """Allocate memory for an array; `add` and `issue` store its address in `addresses`.

    If `label` is not empty, the memory is registered with the sanitizer under that name.
    """

    array: Array
    nbytes: int
    device: int
    access: tuple[int, ...]
    addresses: dict[Any, int] = field(compare=False, repr=False)
    label: str = ""

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        node, pointer = runtime.graph_add_mem_alloc_node(graph, deps, self.nbytes, self.device, self.access)
        self._place(runtime, pointer)
        return node

    def issue(self, runtime: Runtime, stream: int) -> None:
        self._place(runtime, runtime.malloc_async(self.nbytes, stream))

    def _place(self, runtime: Runtime, pointer: int) -> None:
        self.addresses[self.array] = pointer
        if self.label:
            runtime.name_array(pointer, self.nbytes, self.label)


@dataclass(frozen=True, slots=True)
class Free(Call):
    """Free memory."""

    pointer: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_mem_free_node(graph, deps, self.pointer)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.free_async(self.pointer, stream)


@dataclass(frozen=True, slots=True)
class CallHost(Call):
    """Call a C function on the host: `fn(user_data)`."""

    fn: int
    user_data: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_host_node(graph, deps, self.fn, self.user_data)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.launch_host_func(stream, self.fn, self.user_data)

    def is_recorded(self, quirks: frozenset[str]) -> bool:
        return "capture_host_func" not in quirks

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        runtime.graph_exec_host_node_set_params(graph_exec, node, self.fn, self.user_data)
        return True


@dataclass(frozen=True, slots=True)
class RecordEvent(Call):
    """Record an event."""

    recorded = False  # on a capturing stream it only sets dependencies

    event: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_event_record_node(graph, deps, self.event)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.event_record(self.event, stream)

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        runtime.graph_exec_event_record_node_set_event(graph_exec, node, self.event)
        return True


@dataclass(frozen=True, slots=True)
class WaitEvent(Call):
    """Wait for an event."""

    recorded = False  # on a capturing stream it only sets dependencies

    event: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_event_wait_node(graph, deps, self.event)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.stream_wait_event(stream, self.event)

    def set(self, runtime: Runtime, graph_exec: int, node: int, before: Any) -> bool:
        runtime.graph_exec_event_wait_node_set_event(graph_exec, node, self.event)
        return True


@dataclass(frozen=True, slots=True)
class SignalSemaphore(Call):
    """Signal an external semaphore."""

    recorded = False  # some versions capture it, others refuse it or execute it immediately

    semaphore: int
    value: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_external_semaphores_signal_node(graph, deps, self.semaphore, self.value)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.signal_external_semaphore_async(self.semaphore, self.value, stream)


@dataclass(frozen=True, slots=True)
class WaitSemaphore(Call):
    """Wait for an external semaphore."""

    recorded = False  # some versions capture it, others refuse it or execute it immediately

    semaphore: int
    value: int

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_external_semaphores_wait_node(graph, deps, self.semaphore, self.value)

    def issue(self, runtime: Runtime, stream: int) -> None:
        runtime.wait_external_semaphore_async(self.semaphore, self.value, stream)


@dataclass(frozen=True, slots=True)
class WriteAndWait(Call):
    """Batch memory operations, done in order."""

    recorded = False  # some versions capture it, others refuse it or execute it immediately

    ops: tuple[MemOp, ...]

    def batches(self, quirks: frozenset[str]) -> Sequence[tuple[MemOp, ...]]:
        """Return the operations of each node or call, in order."""
        return [(op,) for op in self.ops] if "batch_unordered" in quirks else [self.ops]

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        for ops in self.batches(runtime.target.quirks):
            deps = [runtime.graph_add_batch_mem_op_node(graph, deps, ops)]
        return deps[0]

    def issue(self, runtime: Runtime, stream: int) -> None:
        for ops in self.batches(runtime.target.quirks):
            runtime.stream_batch_mem_op(stream, ops)


@dataclass(frozen=True, slots=True)
class Nothing(Call):
    """Do nothing; keep the order of nodes before and after."""

    recorded = False  # no call records an empty node

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        return runtime.graph_add_empty_node(graph, deps)

    def issue(self, runtime: Runtime, stream: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class CallCaptured(_Fixed):
    """Let the user's function issue work on a stream."""

    call: Callable[[int], None]
    name: str
    """Name of the node."""
    writes: tuple[str, ...]
    """Names of the arrays that the node declares to write."""

    def issue(self, runtime: Runtime, stream: int) -> None:
        """Call the function."""
        self.call(stream)

    def record(self, runtime: Runtime, stream: int) -> None:
        """Call the function with a capturing stream; log a warning if it declares writes but recorded nothing there."""
        before = runtime.stream_get_capture_info(stream).dependencies
        self.call(stream)
        after = runtime.stream_get_capture_info(stream)
        if self.writes and after.status is CaptureStatus.ACTIVE and after.dependencies == before:
            written = ", ".join(map(repr, self.writes))
            _log.warning(
                "captured node %r declares that it writes %s, and its function recorded nothing on its stream: a library call"
                " may have failed, or have issued its work elsewhere",
                self.name, written,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallEager(_Fixed):
    """Call the user's function between graphs, with a stream that it may issue work on.

    If `waits` is true, the work on the stream must finish first, because the function reads host memory. `prepared` returns
    equivalent calls of other libraries for a stream, or None while there are none.
    """

    call: Callable[[int], None]
    waits: bool
    prepared: Callable[[int], Sequence[LaunchCall] | None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RunChild(_Fixed):
    """A child graph with its own scope."""

    plan: Plan
    scope: Environment


@dataclass(frozen=True, slots=True)
class RunConditional(_Fixed):
    """Bodies selected by the 32-bit word at address `condition`; a loop runs its body `times` times between two reads of it."""

    mode: ConditionalMode
    condition: int
    bodies: tuple[RunChild, ...]
    times: int = 1

    def chosen(self, word: int) -> RunChild | None:
        """Return the body that runs if the word has this value, or None."""
        index = word if self.mode is ConditionalMode.SWITCH else int(word == 0)
        return self.bodies[index] if index < len(self.bodies) else None


Operation = Launch | Call | CallCaptured | CallEager | RunChild | RunConditional


def equal(a: Operation, b: Operation) -> bool:
    """Return whether two operations make the same call; False for children and conditionals."""
    if isinstance(a, Launch) and isinstance(b, Launch) and a.packer is not b.packer:
        a = a._replace(packer=b.packer)
    if type(a) is not type(b) or isinstance(a, (RunChild, RunConditional)):
        return False
    return a == b
