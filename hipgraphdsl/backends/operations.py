"""Steps -> operations: a node's meaning with every name replaced by an address, a handle or a value.

Data flow: `Plan` (names) + `Scope` (the addresses and values of names in one Executable) -> one `Operation` a step, plain
integers -> the backends, which turn operations into graph nodes or stream calls and know nothing of arrays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..arrays import Access, Array, ArrayView, ExternalArray, HostArray, Parameter
from ..errors import DeclarationError, HipError, UpdateError
from ..kernels import ArgumentPacker, ForeignModule, Kernel, KernelParameter, Module, Symbol, check_argument
from ..nodes import (
    AllocNode,
    CapturedNode,
    ChildGraphNode,
    ConditionalNode,
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    Node,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    copy_geometry,
    element_bytes,
    require_clusters,
)
from ..placement import device_of
from ..plan import Plan, Step
from ..progress import no_progress
from ..runtimes.base import ConditionalMode, Copy3D, Dim3, Fill2D, MemcpyKind, MemOp, Runtime
from ..workflow import Binding, Level, Workflow

__all__ = [
    "BUILT_IN",
    "Alloc",
    "CallCaptured",
    "CallHost",
    "Copy1D",
    "Free",
    "Launch",
    "Nothing",
    "Operation",
    "RecordEvent",
    "RunChild",
    "RunConditional",
    "Scope",
    "SignalSemaphore",
    "WaitEvent",
    "WaitSemaphore",
    "WriteAndWait",
    "prepare",
    "resolve",
]

_log = logging.getLogger(__name__)


class Launch(NamedTuple):
    """A kernel launch; `packer` places the `packed` arguments right before the call."""

    function: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    packer: ArgumentPacker
    packed: bytes
    cooperative: bool = False
    priority: int | None = None
    cluster: Dim3 | None = None

    def place(self) -> int:
        """Write the arguments to memory and return the address of the table of pointers to them."""
        return self.packer.place(self.packed)


@dataclass(frozen=True, slots=True)
class Copy1D:
    """A contiguous copy."""

    dst: int
    src: int
    nbytes: int
    kind: MemcpyKind


@dataclass(frozen=True, slots=True)
class Alloc:
    """Allocate memory for an array; its address is known once this has been lowered or issued."""

    array: Array
    nbytes: int
    device: int
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Free:
    """Free memory."""

    pointer: int


@dataclass(frozen=True, slots=True)
class CallHost:
    """Call a C function on the host: `fn(user_data)`."""

    fn: int
    user_data: int


@dataclass(frozen=True, slots=True)
class CallCaptured:
    """Let the user's function issue work on a stream."""

    issue: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an event."""

    event: int


@dataclass(frozen=True, slots=True)
class WaitEvent:
    """Wait for an event."""

    event: int


@dataclass(frozen=True, slots=True)
class SignalSemaphore:
    """Signal an external semaphore."""

    semaphore: int
    value: int


@dataclass(frozen=True, slots=True)
class WaitSemaphore:
    """Wait for an external semaphore."""

    semaphore: int
    value: int


@dataclass(frozen=True, slots=True)
class WriteAndWait:
    """Batch memory operations, done in order."""

    ops: tuple[MemOp, ...]

    def batches(self, quirks: frozenset[str]) -> Sequence[tuple[MemOp, ...]]:
        """Return what each node or call does, one after the other."""
        return [(op,) for op in self.ops] if "batch_unordered" in quirks else [self.ops]


@dataclass(frozen=True, slots=True)
class RunChild:
    """A child graph with its own scope."""

    plan: Plan
    scope: Scope


@dataclass(frozen=True, slots=True)
class RunConditional:
    """Bodies chosen by the 32-bit word at an address."""

    mode: ConditionalMode
    condition: int
    bodies: tuple[RunChild, ...]

    def chosen(self, word: int) -> RunChild | None:
        """Return the body that runs if the word has this value."""
        index = word if self.mode is ConditionalMode.SWITCH else int(word == 0)
        return self.bodies[index] if index < len(self.bodies) else None


@dataclass(frozen=True, slots=True)
class Nothing:
    """Do nothing; keep the order of nodes before and after."""


Operation = (
    Launch
    | Copy1D
    | Copy3D
    | Fill2D
    | Alloc
    | Free
    | CallHost
    | CallCaptured
    | RecordEvent
    | WaitEvent
    | SignalSemaphore
    | WaitSemaphore
    | WriteAndWait
    | RunChild
    | RunConditional
    | Nothing
)

BUILT_IN: Final = Module(
    r"""
// Fills what no memset can: elements of 1 to 64 bytes in up to four strided dimensions, innermost first.
extern "C" __global__ void hipgraphdsl_fill(
    unsigned char* dst, unsigned long long count, unsigned int itemsize,
    unsigned long long n0, unsigned long long n1, unsigned long long n2,
    unsigned long long s0, unsigned long long s1, unsigned long long s2, unsigned long long s3,
    unsigned long long w0, unsigned long long w1, unsigned long long w2, unsigned long long w3,
    unsigned long long w4, unsigned long long w5, unsigned long long w6, unsigned long long w7) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned long long words[8] = {w0, w1, w2, w3, w4, w5, w6, w7};
  unsigned char* p = dst + (i % n0) * s0 + (i / n0 % n1) * s1 + (i / n0 / n1 % n2) * s2 + (i / n0 / n1 / n2) * s3;
  for (unsigned int b = 0; b < itemsize; ++b) p[b] = (unsigned char)(words[b >> 3] >> (8 * (b & 7)));
}

// Copies `wide` 16-byte words and `rest` bytes after them; both pointers are 16-byte aligned unless `wide` is 0.
extern "C" __global__ void hipgraphdsl_copy(
    unsigned char* dst, const unsigned char* src, unsigned long long wide, unsigned long long rest) {
  unsigned long long first = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
  uint4* to = (uint4*)dst;
  const uint4* from = (const uint4*)src;
  for (unsigned long long i = first; i < wide; i += step) to[i] = from[i];
  for (unsigned long long i = 16 * wide + first; i < 16 * wide + rest; i += step) dst[i] = src[i];
}
""",
    name="built_in",
)
_FILL_BLOCK: Final = 256
_COPY_BLOCK: Final = 256
_COPY_GRID: Final = 16  # blocks of a copy kernel: enough to fill a link, few enough to leave the device to others


class Scope(Binding):
    """What the names of one workflow stand for in one Executable.

    Parameters
    ----------
    runtime : Runtime
    shared : SharedHandles
        Modules, functions, events and callbacks, common to a workflow and its children.
    prefix : str
        ``"child/"`` inside a child graph.
    """

    __slots__ = ("addresses", "bound_from", "children", "runtime", "shared", "values")

    def __init__(self, runtime: Runtime, shared: SharedHandles, prefix: str = "", parent: Scope | None = None) -> None:
        super().__init__(prefix, parent)
        self.runtime = runtime
        self.shared = shared
        self.addresses: dict[Any, int] = {}
        """Address of each array, symbol and bound array parameter."""
        self.bound_from: dict[Any, Any] = {}
        """Inside a child: its arrays and parameters -> the parent's views, parameters or values."""
        self.values: dict[Parameter, Any] = {}
        """Current value of each scalar parameter that belongs to this scope."""
        self.children: dict[str, Scope] = {}

    def inside(self, path: Sequence[ChildGraphNode]) -> Scope:
        """Return the scope inside child graphs, outermost first."""
        scope = self
        for child in path:
            scope = scope.children[child.name]
        return scope

    def levels(self, workflow: Workflow) -> Iterator[tuple[Scope, Level]]:
        """Yield the levels of a workflow, each with its scope, which is made where there is none yet."""
        scopes: dict[Level, Scope] = {}
        for level in workflow.levels():
            scope = self
            if level.parent is not None:
                outer = scopes[level.parent]
                inner = outer.children.get(level.key)
                if inner is None:
                    inner = outer.children[level.key] = Scope(outer.runtime, outer.shared, f"{outer.prefix}{level.key}/", outer)
                scope = inner
            scopes[level] = scope
            yield scope, level

    def all_inside(self) -> Iterator[Scope]:
        """Yield this scope and all inside it, outermost first."""
        waiting = [self]
        for found in waiting:
            waiting += found.children.values()
            yield found

    def bodies(self, node: ConditionalNode) -> tuple[Scope, ...]:
        """Return the scopes of a conditional node's bodies."""
        return tuple(self.children[f"{node.name}/{n}"] for n in range(len(node.bodies)))

    def address(self, view: ArrayView, device: int | None = None) -> int:
        """Return the address of the first element of a view; a module's variable has one on each `device`."""
        root = view.root
        found = self.addresses.get(root)
        offset = view.offset_bytes
        if found is None:
            scope, root, inner = self.resolve(root)
            offset += inner
            found = scope.addresses.get(root)
        if found is not None:
            return found + offset
        if isinstance(root, Symbol):
            return self.shared.symbol(root, self.shared.device if device is None else device) + offset
        if isinstance(root, Parameter):
            raise DeclarationError(
                f"parameter {scope.prefix + root.name!r} stands for an array and has not been given; pass it to launch",
                array=root.name,
            )
        raise DeclarationError(f"array {scope.prefix + root.name!r} has no memory where it is used", array=root.name)

    def value(self, parameter: Parameter) -> Any:
        """Return the current value of a scalar parameter."""
        scope, root, _ = self.resolve(parameter)
        return scope.values[root] if isinstance(root, Parameter) else root

    def device_of(self, node: Node) -> int:
        """Return the device that a node runs on; for one that needs none the device that the graph was compiled for."""
        shared = self.shared
        if len(shared.devices) == 1:
            return shared.device
        found = device_of(node, shared.device, self)
        return shared.device if found is None else found

    def place_of(self, step: Step) -> int:
        """Return the same of a step, which knows it unless it stands in a child that was planned for any binding."""
        return self.device_of(step.node) if step.device is None else step.device

    def owner(self, view: ArrayView) -> int:
        """Return the device that owns what a view leads to, or that the graph was compiled for where no device does."""
        device = self.resolve(view.root)[1].device
        return self.shared.device if device is None else int(device)

    def bound(self, root: Any) -> Any:
        return self.bound_from.get(root)


class SharedHandles:
    """Handles that a workflow and all of its children share; returned together when the Executable is closed.

    Each device has modules of its own, so functions and the addresses of variables are asked for by device.

    Parameters
    ----------
    runtime : Runtime
    device : int
        The device that the graph is compiled for.
    devices : tuple of int
        All devices that it uses.
    peers : mapping
        For each device those that reach its memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        device: int = 0,
        devices: tuple[int, ...] = (0,),
        peers: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.runtime = runtime
        self.device = device
        self.devices = devices
        self.peers = peers or {}
        self._modules: dict[tuple[Module, int], tuple[int, Mapping[str, str]]] = {}
        self._names: dict[Module, set[str]] = {}
        """The kernels that each module was compiled for."""
        self._added: dict[tuple[Module, str, int], tuple[int, Mapping[str, str]]] = {}
        """Kernels that were compiled later, with where they are."""
        self._functions: dict[tuple[Kernel, int], tuple[int, ArgumentPacker]] = {}
        self._packers: dict[Any, ArgumentPacker] = {}
        self._symbols: dict[tuple[Symbol, int], int] = {}
        self._events: dict[Event, int] = {}
        self.register_host: Callable[[str, HostNode, Scope], tuple[int, int]]
        self.register_captured: Callable[[str, CapturedNode, Scope], Callable[[int], None]]
        self.host_failed: Callable[[], bool]

    def load(self, kernels: Mapping[Module, tuple[list[str], list[str]]], report: Callable[[str], None] = no_progress) -> None:
        """Compile and load modules, each with the kernels and symbols that will be asked for; report each one first."""
        for number, (module, (names, symbols)) in enumerate(kernels.items(), 1):
            report(f"kernels, module {number} of {len(kernels)}")
            if isinstance(module, ForeignModule):
                continue
            if (module, self.device) in self._modules:
                self._load_more(module, names)
                continue
            image, lowered = module.image, {}
            if image is None:
                started = time.perf_counter()
                code = self.runtime.rtc_compile(module.source, names, symbols, module.options, name=module.name)
                took_s = time.perf_counter() - started
                _log.debug("module %r: compiled %s in %.3f s", module.name, ", ".join(names), took_s)
                image, lowered = code.image, dict(code.lowered)
                self._names.setdefault(module, set()).update(names)
            for device, handle in self._loaded(image):
                self._modules[module, device] = (handle, lowered)

    def _loaded(self, image: bytes) -> Iterator[tuple[int, int]]:
        """Load code on every device; yield device and module, to be noted at once."""
        for device in self.devices:
            with self.runtime.using_device(device) if len(self.devices) > 1 else nullcontext():
                yield device, self.runtime.module_load_data(image)

    def _load_more(self, module: Module, names: Sequence[str]) -> None:
        """Compile kernels of a module that were not asked for when it was loaded."""
        more = [name for name in names if name not in self._names.get(module, names)]
        if not more:
            return
        if module.symbols:
            raise UpdateError(
                f"kernel {more[0]!r} was not compiled with the graph, and module {module.name!r} has variables"
                f" ({', '.join(module.symbols)}) that a second copy would not share; compile the graph again"
            )
        code = self.runtime.rtc_compile(module.source, more, (), module.options, name=module.name)
        for device, handle in self._loaded(code.image):
            for name in more:
                self._added[module, name, device] = (handle, code.lowered)
        self._names[module].update(more)

    def function(self, kernel: Kernel, node: KernelNode, device: int) -> tuple[int, ArgumentPacker]:
        """Return the function handle of a kernel on a device and what packs its arguments."""
        found = self._functions.get((kernel, device))
        if found is None and isinstance(kernel.module, ForeignModule):
            return self._foreign(kernel.module, node)
        if found is None:
            handle, lowered = self._added.get((kernel.module, kernel.name, device)) or self._modules[kernel.module, device]
            function = self.runtime.module_get_function(handle, lowered.get(kernel.name, kernel.name))
            self._require_layouts(kernel, function)
            found = (function, ArgumentPacker(node.signature))
            if kernel.signature is None:  # the dtypes of arguments may differ from node to node
                return found
            self._functions[kernel, device] = found
        return found

    def _require_layouts(self, kernel: Kernel, function: int) -> None:
        """Refuse a struct whose dtype has another size than the compiled kernel reads, where the platform tells."""
        parameters = kernel.signature.parameters if kernel.signature is not None else ()
        if not any(p.dtype is not None and p.dtype.names and not p.pointer for p in parameters):
            return
        for parameter, (_, size) in zip(parameters, self.runtime.func_get_info(function).parameters or ()):
            if parameter.size != size:
                raise DeclarationError(
                    f"kernel {kernel.name!r} of module {kernel.module.name!r}: parameter '{parameter}' has {size} bytes where it"
                    f" is compiled, and {parameter.size} by structs=; list all fields, and give align=True for padding as in C++",
                    array=kernel.name,
                )

    def _foreign(self, module: ForeignModule, node: KernelNode) -> tuple[int, ArgumentPacker]:
        if module.owner is not self.runtime:
            raise DeclarationError(
                f"node {node.name!r}: kernel {module.name!r} is loaded in runtime {module.owner.name!r} and in no other; compile"
                " for that runtime, in the process that it was read in",
                node=node.name,
            )
        packer = ArgumentPacker(node.signature)
        sizes = tuple(parameter.size for parameter in packer.signature.parameters)
        if sizes != module.sizes:
            wanted = "unknown, because the platform does not tell" if module.sizes is None else str(list(module.sizes))
            raise DeclarationError(
                f"node {node.name!r}: the bytes of each argument of kernel {module.name!r} are {wanted} (got {list(sizes)})",
                node=node.name,
            )
        return module.function, packer

    def symbol(self, symbol: Symbol, device: int) -> int:
        """Return the address of a module's variable on a device."""
        known = self._symbols.get((symbol, device))
        if known is not None:
            return known
        handle, lowered = self._modules[symbol.module, device]
        pointer, nbytes = self.runtime.module_get_global(handle, lowered.get(symbol.name, symbol.name))
        if nbytes < symbol.nbytes:
            raise DeclarationError(
                f"variable {symbol.name!r} has {nbytes} bytes on the device, {symbol.nbytes} by its declaration",
                array=symbol.name,
            )
        self._symbols[symbol, device] = pointer
        return pointer

    def built_in(self, name: str, device: int) -> tuple[int, ArgumentPacker]:
        """Return a kernel of the library's own, compiled when it is first needed."""
        if (BUILT_IN, device) not in self._modules:
            self.load({BUILT_IN: (list(BUILT_IN.kernels), [])})
        kernel = BUILT_IN[name]
        found = self._functions.get((kernel, device))
        if found is None:
            handle, lowered = self._modules[BUILT_IN, device]
            function = self.runtime.module_get_function(handle, lowered.get(kernel.name, kernel.name))
            assert kernel.signature is not None
            found = self._functions[kernel, device] = (function, ArgumentPacker(kernel.signature))
        return found

    def event(self, event: Event) -> int:
        """Return the handle of an event; all belong to the device that the graph was compiled for."""
        handle = self._events.get(event)
        if handle is None:
            with self.runtime.using_device(self.device) if len(self.devices) > 1 else nullcontext():
                handle = event.handle
                if handle is None:
                    handle = self.runtime.shared_event(event.name) if event.shared else self.runtime.event_create(timing=True)
                self._events[event] = handle
        return handle

    def events(self) -> dict[int, Event]:
        """Return all events by their handles."""
        return {handle: event for event, handle in self._events.items()}

    def kernels(self) -> dict[int, Kernel]:
        """Return the kernels that have been asked for, by the handles of their functions."""
        return {function: kernel for (kernel, _), (function, _) in self._functions.items()}

    def event_named(self, name: str) -> int | None:
        """Return the handle of an event by its name, if a node of the Executable uses it."""
        return next((handle for event, handle in self._events.items() if event.name == name), None)

    def close(self) -> None:
        """Return events and modules."""
        events, self._events = self._events, {}
        loaded = ((key[-1], handle) for table in (self._modules, self._added) for key, (handle, _) in table.items())
        modules = dict.fromkeys(loaded)
        self._modules, self._added, self._names = {}, {}, {}
        self._functions.clear()
        self._symbols.clear()
        with ExitStack() as returned:  # all of them, even if one call fails
            for device, handle in modules:
                returned.callback(self._unload, device, handle)
            for event, handle in events.items():
                if not event.shared and event.handle is None:
                    returned.callback(self.runtime.event_destroy, handle)

    def _unload(self, device: int, module: int) -> None:
        with self.runtime.returning_on(device) if len(self.devices) > 1 else nullcontext():
            self.runtime.module_unload(module)


def resolve(step: Step, scope: Scope) -> Operation:
    """Return the operation of a step, with every name resolved.

    Raises
    ------
    DeclarationError
        If an array has no memory at this place, or a value does not fit; the node is named.
    """
    node = step.node
    match node:
        case KernelNode():
            return _launch(node, scope, scope.place_of(step))
        case MemcpyNode():
            device = scope.place_of(step)
            return _copy_by_kernel(node, scope, device) if step.by_kernel else _copy(node, scope, device)
        case MemsetNode():
            return _fill(node, scope, scope.place_of(step))
        case AllocNode():
            device = scope.place_of(step)
            return Alloc(node.array, node.array.nbytes, device, tuple(scope.shared.peers.get(device, ())))
        case FreeNode():
            return Free(scope.address(node.array.as_view()))
        case HostNode():
            return CallHost(*scope.shared.register_host(scope.prefix + node.name, node, scope))
        case CapturedNode():
            return CallCaptured(scope.shared.register_captured(scope.prefix + node.name, node, scope))
        case EventRecordNode():
            return RecordEvent(scope.shared.event(node.event))
        case EventWaitNode():
            return WaitEvent(scope.shared.event(node.event))
        case EmptyNode():
            return Nothing()
        case SemaphoreSignalNode():
            return SignalSemaphore(_semaphore(node), node.value)
        case SemaphoreWaitNode():
            return WaitSemaphore(_semaphore(node), node.value)
        case MemoryOpsNode():
            return WriteAndWait(
                tuple(MemOp(op.op, scope.address(op.view), op.value, op.view.dtype.itemsize, op.condition) for op in node.ops)
            )
        case ChildGraphNode():
            assert step.child is not None
            return RunChild(step.child, scope.children[node.name])
        case ConditionalNode():
            bodies = tuple(RunChild(plan, inner) for plan, inner in zip(step.bodies, scope.bodies(node)))
            return RunConditional(ConditionalMode[node.mode.upper()], scope.address(node.condition), bodies)
    raise DeclarationError(f"node {step.name!r}: no backend knows nodes of kind {node.kind!r}", node=step.name)


def _semaphore(node: SemaphoreSignalNode | SemaphoreWaitNode) -> int:
    handle: int | None = node.semaphore.handle
    if handle is None:
        raise DeclarationError(
            f"node {node.name!r}: semaphore {node.semaphore.name!r} has no handle; give hg.Semaphore(name, handle)",
            node=node.name,
        )
    return handle


def _axis(axis: Any, scope: Scope, node: str, field: str) -> int:
    if not isinstance(axis, Parameter):
        return axis  # type: ignore[no-any-return]  # a checked int
    value = int(scope.value(axis))
    if not 1 <= value < 2**32:
        raise DeclarationError(
            f"node {node!r}: {field} is parameter {axis.name!r}, which must be at least 1 (got {value})", node=node
        )
    return value


def _launch(node: KernelNode, scope: Scope, device: int) -> Launch:
    function, packer = scope.shared.function(node.kernel, node, device)
    values = []
    for parameter, arg in zip(packer.signature.parameters, node.args):
        kind = type(arg)
        if kind is ArrayView:
            root = arg.root
            found = scope.addresses.get(root)
            values.append(scope.address(arg, device) if found is None else found + arg.offset_bytes)
        elif kind is int or kind is float or kind is bool:
            values.append(arg)
        elif kind is Access:
            values.append(scope.address(arg.view, device))
        else:
            values.append(_packed(parameter, scope.value(arg) if kind is Parameter else arg, node))
    grid, block = node.grid, node.block
    if type(grid[0]) is not int or type(grid[1]) is not int or type(grid[2]) is not int:
        grid = tuple(_axis(axis, scope, node.name, f"grid.{i}") for i, axis in enumerate(grid))
    if type(block[0]) is not int or type(block[1]) is not int or type(block[2]) is not int:
        block = tuple(_axis(axis, scope, node.name, f"block.{i}") for i, axis in enumerate(block))
        if block[0] * block[1] * block[2] > 1024:
            raise DeclarationError(f"node {node.name!r}: a block has at most 1024 threads (got {block})", node=node.name)
    if node.kernel.dynamic_shared and not node.shared_bytes:
        raise HipError(
            f"launch of kernel {node.kernel.name!r}", 1, "hipErrorInvalidValue",
            "it uses dynamic shared memory (extern __shared__) and gets 0 bytes of it",
            node=node.name, hint="give kernel(..., shared_bytes=)",
        )  # fmt: skip
    cluster = node.cluster if scope.runtime.target.clusters else None
    if cluster is not None:
        require_clusters(grid, cluster, node.name)
    packed = packer.pack(values)
    return Launch(function, grid, block, node.shared_bytes, packer, packed, node.cooperative, node.priority, cluster)


def _packed(parameter: KernelParameter, value: Any, node: KernelNode) -> Any:
    return check_argument(parameter, value, f"node {node.name!r}: kernel {node.kernel.name!r}")


def _is_host(view: ArrayView, scope: Scope) -> bool:
    root = scope.resolve(view.root)[1]
    return isinstance(root, Array) and root.on_host


_KINDS: Final = {
    (True, True): MemcpyKind.HOST_TO_HOST,
    (True, False): MemcpyKind.HOST_TO_DEVICE,
    (False, True): MemcpyKind.DEVICE_TO_HOST,
    (False, False): MemcpyKind.DEVICE_TO_DEVICE,
}


def _copy(node: MemcpyNode, scope: Scope, device: int) -> Copy1D | Copy3D:
    dst, src = node.dst, node.src
    to, source = scope.address(dst, device), scope.address(src, device)
    if any(isinstance(scope.resolve(view.root)[1], Parameter) for view in (dst, src)):
        kind = MemcpyKind.DEFAULT  # where the memory is, only the launch says
    else:
        kind = _KINDS[_is_host(src, scope), _is_host(dst, scope)]
        if kind is MemcpyKind.HOST_TO_HOST and "host_copy_kind" in scope.runtime.target.quirks:
            kind = MemcpyKind.DEFAULT
        elif kind is MemcpyKind.DEVICE_TO_DEVICE and len(scope.shared.devices) > 1 and scope.owner(dst) != scope.owner(src):
            kind = MemcpyKind.DEFAULT  # the addresses determine the devices
    box = copy_geometry(dst, src)
    assert box is not None, "MemcpyNode refuses what no box can copy"
    inside = "interior_host_pointer" in scope.runtime.target.quirks and (_interior(dst, scope), _interior(src, scope))
    if box.is_flat and not (inside and any(inside)):
        return Copy1D(to, source, box.width_bytes, kind)
    made = Copy3D(
        to,
        box.dst_pitch,
        box.dst_slice // box.dst_pitch,
        source,
        box.src_pitch,
        box.src_slice // box.src_pitch,
        box.width_bytes,
        box.height,
        box.depth,
        kind,
    )
    return _from_first_bytes(made, *inside) if inside else made


def _interior(view: ArrayView, scope: Scope) -> int:
    """Return how far inside a page-locked array a view begins, in bytes; 0 for all others."""
    _, root, offset = scope.resolve(view.root)
    return offset + view.offset_bytes if isinstance(root, HostArray) and root.pinned else 0


def _from_first_bytes(copy: Copy3D, dst_bytes: int, src_bytes: int) -> Copy3D:
    """Return the copy with pointers to the first byte of page-locked memory, and positions inside it."""
    if dst_bytes:
        pitch, rows, pos = _position(dst_bytes, copy.dst_pitch_bytes, copy.dst_rows, copy)
        copy = replace(copy, dst=copy.dst - dst_bytes, dst_pitch_bytes=pitch, dst_rows=rows, dst_pos=pos)
    if src_bytes:
        pitch, rows, pos = _position(src_bytes, copy.src_pitch_bytes, copy.src_rows, copy)
        copy = replace(copy, src=copy.src - src_bytes, src_pitch_bytes=pitch, src_rows=rows, src_pos=pos)
    return copy


def _position(offset: int, pitch_bytes: int, rows: int, copy: Copy3D) -> tuple[int, int, Dim3]:
    """Return pitch and rows of an allocation, and where in it a box lies that begins so many bytes inside."""
    if copy.height == copy.depth == 1:  # one run of bytes: a row that begins with the allocation
        return offset + copy.width_bytes, 1, (offset, 0, 0)
    rows += copy.depth == 1 and offset // pitch_bytes  # one slice may have as many rows as stand before the box
    row, x = divmod(offset, pitch_bytes)
    return pitch_bytes, rows, (x, row % rows, row // rows)


def _copy_by_kernel(node: MemcpyNode, scope: Scope, device: int) -> Launch:
    dst, src = scope.address(node.dst, device), scope.address(node.src, device)
    wide, rest, blocks = _copy_kernel_grid(dst | src, node.nbytes)
    function, packer = scope.shared.built_in("hipgraphdsl_copy", device)
    return Launch(function, (blocks, 1, 1), (_COPY_BLOCK, 1, 1), 0, packer, packer.pack((dst, src, wide, rest)))


def _copy_kernel_grid(addresses: int, nbytes: int) -> tuple[int, int, int]:
    """Return 16-byte words, bytes after them, and blocks of the kernel that copies; `addresses` are both, joined by or."""
    wide = 0 if addresses % 16 else nbytes // 16
    rest = nbytes - 16 * wide
    return wide, rest, min(_COPY_GRID, -(-max(wide, rest) // _COPY_BLOCK))


def _repeated_bytes(element: bytes) -> int:
    """Return the shortest of 1, 2, 4 bytes whose repetition is the element, or 0."""
    for size in (1, 2, 4):
        if len(element) % size == 0 and element == element[:size] * (len(element) // size):
            return size
    return 0


def prepare(step: Step, scope: Scope) -> None:
    """Load the library's own kernels that a step needs, because a capture forbids to load any."""
    device = scope.place_of(step)
    if step.by_kernel:
        scope.shared.built_in("hipgraphdsl_copy", device)
    elif isinstance(step.node, ConditionalNode):
        for plan, inner in zip(step.bodies, scope.bodies(step.node)):
            _prepare_all(plan, inner)
    elif isinstance(step.node, ChildGraphNode) and step.child is not None:
        _prepare_all(step.child, scope.children[step.node.name])
    elif isinstance(step.node, MemsetNode) and not _memset_size(step.node, _element(step.node, scope), scope):
        scope.shared.built_in("hipgraphdsl_fill", device)


def _prepare_all(plan: Plan, scope: Scope) -> None:
    for step in plan.steps:
        prepare(step, scope.inside(step.path))


def _element(node: MemsetNode, scope: Scope) -> bytes:
    value = scope.value(node.value) if isinstance(node.value, Parameter) else node.value
    return element_bytes(value, node.dst.dtype, f"node {node.name!r}")


def _memset_size(node: MemsetNode, element: bytes, scope: Scope) -> int:
    """Return the size of the elements by which a memset does it, or 0 where the fill kernel must."""
    dims = node.dst.region.dims
    size = _repeated_bytes(element) if len(dims) < 2 else 0
    quirks = scope.runtime.target.quirks
    if size > 1 and dims and "memset_2d_elements" in quirks:
        return 0
    if dims and dims[0][0] * dims[0][1] > node.dst.root.nbytes and "memset_2d_whole_rows" in quirks:
        return 0
    return size


def _fill(node: MemsetNode, scope: Scope, device: int) -> Fill2D | Launch:
    view, region = node.dst, node.dst.region
    element = _element(node, scope)
    address = scope.address(view, device)
    size = _memset_size(node, element, scope)
    if size:
        height, pitch = region.dims[0] if region.dims else (1, 0)
        return Fill2D(address, size, int.from_bytes(element[:size], "little"), region.run // size, height, pitch)
    itemsize = len(element)
    counts = [region.run // itemsize, *(count for count, _ in reversed(region.dims))]
    strides = [itemsize, *(stride for _, stride in reversed(region.dims))]
    counts += [1] * (4 - len(counts))
    strides += [0] * (4 - len(strides))
    words = np.frombuffer(element + bytes(64 - itemsize), "<u8")
    function, packer = scope.shared.built_in("hipgraphdsl_fill", device)
    total = view.size
    return Launch(
        function,
        (-(-total // _FILL_BLOCK), 1, 1),
        (_FILL_BLOCK, 1, 1),
        0,
        packer,
        packer.pack((address, total, itemsize, *counts[:3], *strides, *map(int, words))),
    )


def bind_external(array: ExternalArray, prefix: str) -> int:
    """Return the address of an external array.

    Raises
    ------
    DeclarationError
        If it was loaded from a file and nobody has supplied its memory.
    """
    if not array.pointer:
        raise DeclarationError(
            f"external array {prefix + array.name!r} has no memory; supply it by from_json(text, arrays={{{array.name!r}: ...}})",
            array=array.name,
        )
    return array.pointer


def at_node(error: HipError, node: str) -> HipError:
    """Return the error with the node's name in it, unless it names one already."""
    return error if error.node else error.at(node)
