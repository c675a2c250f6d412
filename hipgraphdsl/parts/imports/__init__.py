"""Import of graphs built or captured elsewhere as models: nodes, edges and parameters are read back from the runtime.

Data flow: hipGraph_t -> raw nodes (results of the GetParams calls) -> memory (which address belongs to which array) -> models
in a Workflow without inferred edges. No runtime reports what a kernel reads and writes, so array arguments are only addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays import AllocArray, ArrayView, DeviceArray, ExternalArray, as_handle
from ...backends.capturing import Kept, captured, recording
from ...backends.interop import CapturedStream
from ...draft import Draft
from ...errors import DeclarationError, listed
from ...executable import Executable
from ...kernels import Kernel, KernelParameter
from ...nodes import (
    AllocNode,
    EmptyNode,
    Event,
    EventRecordNode,
    EventWaitNode,
    ForeignFunction,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOp,
    MemoryOpsNode,
    MemsetNode,
    Node,
    Semaphore,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    copy_geometry,
    element_bytes,
)
from ...nodes.arguments import pointer_fault
from ...nodes.base import check_name
from ...nodes.children import ChildGraphNode
from ...nodes.workflow import Workflow
from ...runtimes import opened_runtime
from ...runtimes.base import Runtime
from ...runtimes.data import Copy3D, Fill2D, MemOp, NodeType
from .foreign import ForeignModule
from .known import Known, known_of
from .memory import BYTE, Memory, Span, filled, plain, sides
from .raw import RawGraph, RawKernel, RawNode

__all__ = ["Arrays", "import_capture", "import_handle", "known_of"]

Arrays = Executable | Mapping[str, Any] | None
"""Memory known to the caller: an Executable, or names with arrays, objects that share memory, or Executables with that array."""


def import_capture(
    fn: Callable[..., Any], runtime: str | Runtime, name: str, arrays: Arrays, source: tuple[str, int] | None
) -> Workflow:
    """Return the work that a function issues on a stream as a workflow; see `Graph.from_capture`."""
    if not callable(fn):
        raise DeclarationError(f"from_capture: fn is a callable that takes a stream (got {fn!r})")
    opened = opened_runtime(runtime)
    with opened.using_device(opened.get_device()):  # selects the runtime's current device if the thread has none yet
        stream = opened.stream_create()
        kept: Kept = {}
        call = partial(recording, opened, stream, kept, partial(fn, CapturedStream(stream, opened)))
        try:
            graph = captured(opened, stream, call)
        finally:
            opened.stream_destroy(stream)
        try:
            return import_handle(graph, opened, name, arrays, source, kept)
        finally:
            opened.graph_destroy(graph)


def import_handle(
    handle: Any,
    runtime: str | Runtime,
    name: str,
    arrays: Arrays,
    source: tuple[str, int] | None,
    kept: Kept | None = None,
) -> Workflow:
    """Return an existing graph of a runtime as a workflow, which keeps `kept` alive; see `Graph.from_handle`."""
    number = as_handle(handle)
    if number is None:
        raise DeclarationError(f"from_handle: handle is a hipGraph_t or CUgraph, as a number or an object (got {handle!r})")
    opened = opened_runtime(runtime)
    known = _known(arrays)
    known.kept = kept or None
    with opened.using_device(opened.get_device()):  # queries of functions refer to the current device
        raw = RawGraph.read(number, opened, name)
        return _Builder(raw, Memory(opened, known, raw), known, opened, name, source).build()


def _known(arrays: Arrays) -> Known:
    """Return the memory, kernels and events that the caller knows."""
    if arrays is None:
        return Known()
    if isinstance(arrays, Executable):
        known: Known = arrays.known()
        return known
    if not isinstance(arrays, Mapping):
        raise DeclarationError(f"arrays is an Executable or a dict from names (got {type(arrays).__name__})")
    found = Known()
    for name, given in arrays.items():
        if isinstance(given, Executable):
            of = given.known()
            if name not in of.arrays:
                raise DeclarationError(f"arrays: {given!r} has no array {name!r}; it has {listed(of.arrays)}", array=name)
            found.arrays[name] = of.arrays[name]
            found.functions.update(of.functions)
            found.events.update(of.events)
            found.calls.update(of.calls)
        else:
            check_name(name, "array")
            found.arrays[name] = given if isinstance(given, ExternalArray) else ExternalArray.wrap(name, given)
    return found


class _Unsayable(Exception):
    """No model can represent a raw node; caught where the node's index is known."""


class _Builder:
    """Turns the raw nodes of one graph into models."""

    def __init__(
        self,
        raw: RawGraph,
        memory: Memory,
        known: Known,
        runtime: Runtime,
        name: str,
        source: tuple[str, int] | None,
        outer: _Builder | None = None,
    ) -> None:
        self.raw = raw
        self.memory = memory
        self.known = known
        self.runtime = runtime
        self.source = source
        self.draft = Draft(name, infer=False)
        self._own = {node.params[0] for node in raw.nodes if node.type is NodeType.MEM_ALLOC}
        self._stand_ins: dict[AllocArray, DeviceArray] = {}
        """Allocations of an enclosing graph that this one uses -> the arrays here that are bound to them."""
        self._events: dict[int, Event] = dict(known.events) if outer is None else outer._events
        self._semaphores: dict[int, Semaphore] = {} if outer is None else outer._semaphores
        self._modules: dict[int, ForeignModule] = {} if outer is None else outer._modules

    def build(self) -> Workflow:
        ends: list[tuple[str, ...]] = []  # for each raw node the names of its models, which successors wait for
        for index, raw in enumerate(self.raw.nodes):
            after = tuple(dict.fromkeys(end for source in raw.before for end in ends[source]))
            made: list[str] = []
            try:
                models = self._models(raw, index)
            except _Unsayable as why:
                raise DeclarationError(f"graph {self.draft.name!r}: node {index} ({raw.type.name.lower()}) {why}") from None
            for kind, base, fields in models:
                name = self.draft.default_name(plain(base))
                node = kind(name=name, after=after, source=self.source, **fields)
                self.draft.declare_used(node, {})
                self.draft.add(node)
                made.append(name)
            ends.append(tuple(made))
        return Workflow.of(self.draft)

    def _models(self, raw: RawNode, index: int) -> list[tuple[type[Node], str, dict[str, Any]]]:
        """Return class, base name and fields of each model for a raw node; several semaphores become several models."""
        params = raw.params
        match raw.type:
            case NodeType.KERNEL:
                return [self._kernel(params)]
            case NodeType.MEMCPY:
                dst, src = self._copy(params)
                return [(MemcpyNode, f"memcpy_{dst.root.name}", {"dst": dst, "src": src})]
            case NodeType.MEMSET:
                view, value = self._fill(params)
                return [(MemsetNode, f"memset_{view.root.name}", {"dst": view, "value": value})]
            case NodeType.HOST:
                label = self.known.calls.get(params.user_data, "") if params.user_data else ""
                fn = ForeignFunction(params.fn, params.user_data, label, self.known)
                return [(HostNode, label.rpartition("/")[2] or "host", {"fn": fn})]
            case NodeType.GRAPH:
                return [self._child(params, index)]
            case NodeType.WAIT_EVENT:
                event = self._event(params)
                return [(EventWaitNode, f"wait_{event.name}", {"event": event})]
            case NodeType.EVENT_RECORD:
                event = self._event(params)
                return [(EventRecordNode, f"record_{event.name}", {"event": event})]
            case NodeType.EXT_SEMAPHORE_SIGNAL | NodeType.EXT_SEMAPHORE_WAIT:
                signals = raw.type is NodeType.EXT_SEMAPHORE_SIGNAL
                kind, verb = (SemaphoreSignalNode, "signal") if signals else (SemaphoreWaitNode, "wait")
                found = [(self._semaphore(handle), value) for handle, value in params]
                return [(kind, f"{verb}_{s.name}", {"semaphore": s, "value": value}) for s, value in found]
            case NodeType.MEM_ALLOC:
                array = self.memory.allocs[params[0]]
                return [(AllocNode, f"alloc_{array.name}", {"array": array})]
            case NodeType.MEM_FREE:
                if params not in self._own:
                    raise _Unsayable(f"frees memory at {params:#x} that another graph allocates; read both as one")
                array = self.memory.allocs[params]
                return [(FreeNode, f"free_{array.name}", {"array": array})]
            case NodeType.BATCH_MEM_OP:
                return [(MemoryOpsNode, "memory_ops", {"ops": tuple(self._memory_op(op) for op in params)})]
            case NodeType.EMPTY:
                return [(EmptyNode, "empty", {})]
            case _:
                raise _Unsayable("is of a type that no kind of node stands for")

    # -- arrays --

    def _rooted(self, view: ArrayView) -> ArrayView:
        """Return the view for use in this graph; an allocation of an enclosing graph is replaced by an array bound to it."""
        root = view.root
        if not isinstance(root, AllocArray) or any(self.memory.allocs[pointer] is root for pointer in self._own):
            return view
        stand_in = self._stand_ins.get(root)
        if stand_in is None:
            stand_in = self._stand_ins[root] = DeviceArray(root.name, root.shape, root.dtype, device=root.device)
        return ArrayView(stand_in, view.selection)

    def _copy(self, copy: Copy3D) -> tuple[ArrayView, ArrayView]:
        to, origin = sides(copy)
        if _contiguous(to) and _contiguous(origin):
            to, origin = (Span(span.pointer, span.stop - span.pointer) for span in (to, origin))
        dst, src = self.memory.view(to), self.memory.view(origin)
        dtypes = dict.fromkeys(view.dtype for view in (dst, src) if view is not None)
        for dtype in (*sorted(dtypes, key=BYTE.__eq__), *(np.dtype(f"u{size}") for size in (8, 4, 2, 1))):
            one = dst if dst is not None and dst.dtype == dtype else self.memory.alias(to, dtype)
            other = src if src is not None and src.dtype == dtype else self.memory.alias(origin, dtype)
            if one is None or other is None or one.size != other.size:
                continue
            alike = [n for n in one.shape if n > 1] == [n for n in other.shape if n > 1] or (one.contiguous and other.contiguous)
            if alike and copy_geometry(one, other) is not None:
                return self._rooted(one), self._rooted(other)
        box = f"{copy.width_bytes} x {copy.height} x {copy.depth}"
        raise _Unsayable(f"copies {box} bytes in a way that no view can say")

    def _fill(self, fill: Fill2D) -> tuple[ArrayView, Any]:
        span, size = filled(fill), fill.element_size
        if _contiguous(span):
            span = Span(span.pointer, span.stop - span.pointer)
        pattern = (fill.value & (256**size - 1)).to_bytes(size, "little")
        for view in (self.memory.view(span), self.memory.alias(span, np.dtype(f"u{size}"))):
            value = None if view is None else _value_of(pattern, view.dtype)
            if view is not None and value is not None:
                return self._rooted(view), value
        raise _Unsayable(f"fills {fill.width} x {fill.height} elements in a way that no view can say")

    def _memory_op(self, op: MemOp) -> MemoryOp:
        span = Span(op.address, op.size)
        view = self.memory.view(span)
        if view is None or view.dtype.kind not in "iu" or view.dtype.itemsize != op.size:
            view = self.memory.alias(span, np.dtype(f"u{op.size}"))
        if view is None:
            raise _Unsayable(f"reaches memory at {op.address:#x} in a way that no view can say")
        return MemoryOp("write" if op.op == "write" else "wait", self._rooted(view), op.value, op.condition)  # type: ignore[arg-type]

    # -- kernels --

    def _kernel(self, raw: RawKernel) -> tuple[type[Node], str, dict[str, Any]]:
        launch, info = raw.launch, raw.info
        known = self.known.functions.get(launch.function)
        name = known.name if known is not None else info.name or f"function_{len(self._modules) + 1}"
        sizes = None if info.parameters is None else tuple(size for _, size in info.parameters)
        module = self._modules.get(launch.function)
        if module is None:
            signature = known.signature if known is not None else None
            if signature is not None and tuple(p.size for p in signature.parameters) != sizes:
                signature = None
            module = self._modules[launch.function] = ForeignModule(
                name, launch.function, self.runtime, sizes, signature, self.known.kept
            )
        kernel = module[name]
        typed = self._typed(kernel, raw.arguments)
        if typed is None:
            kernel = Kernel(module, name, None)
            typed = tuple(self._opaque(argument, name) for argument in raw.arguments or ())
        fields: dict[str, Any] = {
            "kernel": kernel,
            "grid": launch.grid,
            "block": launch.block,
            "args": typed,
            "shared_bytes": launch.shared_bytes,
            **raw.attributes,
        }
        return KernelNode, name, fields

    def _typed(self, kernel: Kernel, arguments: list[bytes] | None) -> tuple[Any, ...] | None:
        """Return the arguments decoded by the kernel's signature; None if there is none or a pointer argument does not fit."""
        if kernel.signature is None or arguments is None:
            return None
        found = []
        for parameter, data in zip(kernel.signature.parameters, arguments):
            if not parameter.pointer:
                found.append(_decoded(parameter, data))
                continue
            view = self._address(data, parameter.dtype)
            if any(data) if view is None else pointer_fault(parameter, view, view):
                return None
            found.append(view)
        return tuple(found)

    def _address(self, data: bytes, dtype: np.dtype[Any] | None) -> ArrayView | None:
        view = self.memory.rest(int.from_bytes(data, "little"), dtype)
        return None if view is None or not view.root.on_device else self._rooted(view)

    def _opaque(self, data: bytes, kernel: str) -> Any:
        """Return an argument of unknown type: a view if it is an address inside an array, else an unsigned number or bytes."""
        if len(data) == 8:
            view = self._address(data, None)
            if view is not None:
                return view
        for at in range(0, len(data) - 7, 8) if len(data) > 8 else ():
            found = self.memory.at(int.from_bytes(data[at : at + 8], "little"))
            if found is not None and isinstance(found[1], AllocArray):
                raise DeclarationError(
                    f"graph {self.draft.name!r}: kernel {kernel!r} takes a struct of {len(data)} bytes that holds an address of"
                    " memory which the graph itself allocates; it would have another address in a graph made of this one"
                )
        return np.frombuffer(data, f"u{len(data)}" if len(data) in (1, 2, 4, 8) else f"V{len(data)}")[0]

    # -- the rest --

    def _event(self, handle: int) -> Event:
        return self._events.setdefault(handle, Event(f"event_{len(self._events) + 1}", handle=handle))

    def _semaphore(self, handle: int) -> Semaphore:
        return self._semaphores.setdefault(handle, Semaphore(f"semaphore_{len(self._semaphores) + 1}", handle))

    def _child(self, raw: RawGraph, index: int) -> tuple[type[Node], str, dict[str, Any]]:
        inner = _Builder(raw, self.memory, self.known, self.runtime, f"{self.draft.name}.{index}", self.source, self)
        workflow = inner.build()
        bind = {stand_in.name: self._rooted(array.as_view()) for array, stand_in in inner._stand_ins.items()}
        return ChildGraphNode, "child", {"workflow": workflow, "bind": bind}


def _contiguous(span: Span) -> bool:
    return not span.region(span.pointer).dims


def _value_of(pattern: bytes, dtype: np.dtype[Any]) -> Any:
    """Return the value of a dtype whose bytes equal a repeated pattern, or None if there is none."""
    itemsize = dtype.itemsize
    if itemsize % len(pattern):
        pattern = pattern[:itemsize] if pattern == pattern[:itemsize] * (len(pattern) // max(itemsize, 1)) else b""
        if not pattern:
            return None
    data = pattern * (itemsize // len(pattern))
    value = _number(data, dtype)
    try:
        return value if element_bytes(value, dtype, "") == data else None
    except DeclarationError:
        return None


def _decoded(parameter: KernelParameter, data: bytes) -> Any:
    dtype = parameter.dtype
    assert dtype is not None
    if parameter.lanes > 1:
        return tuple(np.frombuffer(data, dtype)[: parameter.lanes].tolist())
    return _number(data, dtype)


def _number(data: bytes, dtype: np.dtype[Any]) -> Any:
    """Return the first element, as a Python number if it is numeric."""
    value = np.frombuffer(data, dtype)[0]
    return value.item() if dtype.kind in "biufc" else value
