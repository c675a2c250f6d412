"""Graphs that somebody else has built or captured -> models: nodes, edges and parameters read back from the runtime.

Data flow: hipGraph_t -> raw nodes (what each GetParams call answers) -> memory (which address belongs to which array) -> models
in a Workflow without inferred edges. What a kernel reads and writes no runtime tells, so its array arguments are addresses only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from .arrays import AllocArray, Array, ArrayView, DeviceArray, ExternalArray, Region, as_handle
from .backends.callbacks import CapturedStream
from .backends.capturing import capturing
from .draft import Draft
from .errors import DeclarationError, HipError
from .executable import Executable, Known
from .kernels import ForeignModule, Kernel, KernelParameter
from .nodes import (
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
from .order import positions, topological_order
from .runtimes import opened_runtime
from .runtimes.base import Copy3D, Fill2D, FunctionInfo, KernelParams, MemcpyKind, MemOp, NodeType, Runtime
from .workflow import ChildGraphNode, Workflow

__all__ = ["Arrays", "import_capture", "import_handle"]

Arrays = Executable | Mapping[str, Any] | None
"""What is known of memory: an Executable, or names with arrays, objects that share memory, or the Executables that hold them."""

_BYTE: Final = np.dtype("u1")
_MOST_NAME: Final = 120
_EXTRA_BUFFER, _EXTRA_SIZE, _EXTRA_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
_EXTRA_END_CUDA: Final = 0
_UNREADABLE: Final = {
    NodeType.MEMCPY_FROM_SYMBOL: "which variable it copies; a copy from the variable's address can be read",
    NodeType.MEMCPY_TO_SYMBOL: "which variable it copies; a copy to the variable's address can be read",
    NodeType.CONDITIONAL: "what its bodies hold and what decides",
}


def import_capture(
    fn: Callable[..., Any], runtime: str | Runtime, name: str, arrays: Arrays, source: tuple[str, int] | None
) -> Workflow:
    """Return what a function issues on a stream; see `Graph.from_capture`."""
    if not callable(fn):
        raise DeclarationError(f"from_capture: fn is a callable that takes a stream (got {fn!r})")
    opened = opened_runtime(runtime)
    with opened.using_device(opened.get_device()):  # the runtime's, where the thread has none yet
        stream = opened.stream_create()
        try:
            with capturing(opened, stream, join=lambda: None) as capture:
                fn(CapturedStream(stream, opened))
        finally:
            opened.stream_destroy(stream)
        try:
            return import_handle(capture.graph, opened, name, arrays, source)
        finally:
            opened.graph_destroy(capture.graph)


def import_handle(handle: Any, runtime: str | Runtime, name: str, arrays: Arrays, source: tuple[str, int] | None) -> Workflow:
    """Return a graph that exists in a runtime as a workflow; see `Graph.from_handle`."""
    number = as_handle(handle)
    if number is None:
        raise DeclarationError(f"from_handle: handle is a hipGraph_t or CUgraph, as a number or an object (got {handle!r})")
    opened = opened_runtime(runtime)
    known = _known(arrays)
    with opened.using_device(opened.get_device()):  # functions are told for it
        raw = _RawGraph.read(number, opened, name)
        return _Builder(raw, _Memory(opened, known, raw), known, opened, name, source).build()


def _known(arrays: Arrays) -> Known:
    """Return the memory, kernels and events that the caller knows."""
    if arrays is None:
        return Known()
    if isinstance(arrays, Executable):
        return arrays.known()
    if not isinstance(arrays, Mapping):
        raise DeclarationError(f"arrays is an Executable or a dict from names (got {type(arrays).__name__})")
    found = Known()
    for name, given in arrays.items():
        if isinstance(given, Executable):
            of = given.known()
            if name not in of.arrays:
                names = ", ".join(map(repr, of.arrays)) or "none"
                raise DeclarationError(f"arrays: {given!r} has no array {name!r}; it has {names}", array=name)
            found.arrays[name] = of.arrays[name]
            found.functions.update(of.functions)
            found.events.update(of.events)
            found.calls.update(of.calls)
        elif isinstance(given, ExternalArray):
            found.arrays[name] = given
        else:
            found.arrays[name] = ExternalArray.wrap(name, given)
    return found


# -- what the runtime answers ----------------------------------------------------------------------------------------------


@dataclass
class _RawNode:
    """One node as its GetParams call answers; `params` is what the type has."""

    type: NodeType
    params: Any
    before: list[int] = field(default_factory=list)


@dataclass
class _RawKernel:
    launch: KernelParams
    info: FunctionInfo
    arguments: list[bytes] | None
    """Bytes of each argument; None where their sizes are not known."""
    attributes: dict[str, Any]


@dataclass
class _RawGraph:
    """A graph's nodes in a topological order that stays as near to the runtime's own as edges allow."""

    nodes: list[_RawNode]

    @staticmethod
    def read(handle: int, runtime: Runtime, name: str) -> _RawGraph:
        handles = runtime.graph_get_nodes(handle)
        place = {node: i for i, node in enumerate(handles)}
        sources: list[list[int]] = [[] for _ in handles]
        for source, target in runtime.graph_get_edges(handle):
            sources[place[target]].append(place[source])
        order = topological_order(sources)
        if len(order) != len(handles):
            raise DeclarationError(f"graph {name!r}: the graph of handle {handle:#x} has a cycle")
        position = positions(order)
        nodes = []
        for i in order:
            type_ = runtime.graph_node_get_type(handles[i])
            try:
                params = _params(type_, handles[i], runtime, name, i)
            except HipError as error:
                raise error.at(f"{name}: node {i} ({type_.name.lower()})") from error.__cause__
            nodes.append(_RawNode(type_, params, sorted(position[s] for s in sources[i])))
        return _RawGraph(nodes)

    def everywhere(self) -> Iterator[_RawNode]:
        """Yield all nodes, those of child graphs included."""
        for node in self.nodes:
            yield node
            if node.type is NodeType.GRAPH:
                yield from node.params.everywhere()


def _params(type_: NodeType, node: int, runtime: Runtime, name: str, index: int) -> Any:
    match type_:
        case NodeType.KERNEL:
            launch = runtime.graph_kernel_node_get_params(node)
            info = runtime.func_get_info(launch.function)
            return _RawKernel(launch, info, _arguments(launch, info), runtime.graph_kernel_node_get_attributes(node))
        case NodeType.MEMCPY:
            return runtime.graph_memcpy_node_get_params(node)
        case NodeType.MEMSET:
            return runtime.graph_memset_node_get_params(node)
        case NodeType.HOST:
            return runtime.graph_host_node_get_params(node)
        case NodeType.GRAPH:
            return _RawGraph.read(runtime.graph_child_graph_node_get_graph(node), runtime, name)
        case NodeType.EMPTY:
            return None
        case NodeType.WAIT_EVENT:
            return runtime.graph_event_wait_node_get_event(node)
        case NodeType.EVENT_RECORD:
            return runtime.graph_event_record_node_get_event(node)
        case NodeType.EXT_SEMAPHORE_SIGNAL:
            return runtime.graph_external_semaphores_signal_node_get_params(node)
        case NodeType.EXT_SEMAPHORE_WAIT:
            return runtime.graph_external_semaphores_wait_node_get_params(node)
        case NodeType.MEM_ALLOC:
            return runtime.graph_mem_alloc_node_get_params(node)
        case NodeType.MEM_FREE:
            return runtime.graph_mem_free_node_get_params(node)
        case NodeType.BATCH_MEM_OP:
            return runtime.graph_batch_mem_op_node_get_params(node)
        case _:
            raise DeclarationError(
                f"graph {name!r}: node {index} ({type_.name.lower()}) cannot be read back, because no call of runtime"
                f" {runtime.name!r} tells {_UNREADABLE.get(type_, 'its parameters')}"
            )


def _arguments(launch: KernelParams, info: FunctionInfo) -> list[bytes] | None:
    """Return the bytes of each argument, copied from the node's own memory."""
    if info.parameters is None:
        return None
    if not info.parameters:
        return []
    if launch.args:
        table = (ctypes.c_void_p * len(info.parameters)).from_address(launch.args)
        return [ctypes.string_at(address or 0, size) for address, (_, size) in zip(table, info.parameters)]
    if not launch.extra:
        return None
    buffer, at = 0, launch.extra
    while (key := ctypes.c_size_t.from_address(at).value) not in (_EXTRA_END, _EXTRA_END_CUDA):
        value = ctypes.c_void_p.from_address(at + 8).value
        if key == _EXTRA_BUFFER:
            buffer = value or 0
        elif key != _EXTRA_SIZE:
            return None
        at += 16
    return [ctypes.string_at(buffer + offset, size) for offset, size in info.parameters] if buffer else None


# -- memory ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Span:
    """Bytes from a pointer on: `run` contiguous ones, repeated by `dims`, (count, stride) outermost first."""

    pointer: int
    run: int
    dims: tuple[tuple[int, int], ...] = ()

    @property
    def stop(self) -> int:
        return self.pointer + self.run + sum((count - 1) * stride for count, stride in self.dims)

    def region(self, base: int) -> Region:
        """Return the same bytes relative to an address, in normal form."""
        counts, strides = [count for count, _ in self.dims], [stride for _, stride in self.dims]
        return Region.strided(self.pointer - base, (*counts, self.run), (*strides, 1), 1)


def _sides(copy: Copy3D) -> tuple[_Span, _Span]:
    """Return the bytes that a copy writes and reads."""

    def side(pointer: int, pitch: int, rows: int, pos: tuple[int, int, int]) -> _Span:
        first = pointer + pos[0] + pitch * (pos[1] + rows * pos[2])
        dims = ((copy.depth, pitch * rows), (copy.height, pitch))
        return _Span(first, copy.width_bytes, tuple((count, stride) for count, stride in dims if count > 1))

    return (
        side(copy.dst, copy.dst_pitch_bytes, copy.dst_rows, copy.dst_pos),
        side(copy.src, copy.src_pitch_bytes, copy.src_rows, copy.src_pos),
    )


def _filled(fill: Fill2D) -> _Span:
    dims = ((fill.height, fill.pitch_bytes),) if fill.height > 1 else ()
    return _Span(fill.dst, fill.width * fill.element_size, dims)


def _view_of(array: Array, base: int, span: _Span) -> ArrayView | None:
    """Return the view of an array at `base` that holds exactly the bytes of a span, in its order; None if none does."""
    itemsize, shape = array.dtype.itemsize, array.shape
    if span.run % itemsize or not base <= span.pointer or span.stop > base + array.nbytes:
        return None
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    starts, rest = [], span.pointer - base
    for stride in strides:
        start, rest = divmod(rest, stride)
        starts.append(start)
    if rest:
        return None
    counts, steps = [1] * len(shape), [1] * len(shape)
    free = len(shape)  # axes before it have no extent yet
    for count, stride in ((span.run // itemsize, itemsize), *reversed(span.dims)):
        axis = free - 1
        while count > 1 and axis >= 0:
            if stride % strides[axis] == 0:
                step = stride // strides[axis]
                room = (shape[axis] - starts[axis] - 1) // step + 1
                if count <= room:
                    counts[axis], steps[axis], free, count = count, step, axis, 1
                elif not starts[axis] and shape[axis] % step == 0 and count % room == 0:
                    # All of this axis, and of the next outer one as many as there are left.
                    counts[axis], steps[axis], free = room, step, axis
                    count, stride = count // room, strides[axis] * shape[axis]
            axis -= 1
        if count > 1:
            return None
    view = ArrayView(array, tuple(slice(a, a + (n - 1) * s + 1, s if n > 1 else 1) for a, n, s in zip(starts, counts, steps)))
    return view if view.region == span.region(base) else None


def _from(array: Array, offset: int) -> ArrayView | None:
    """Return a contiguous view that begins at a byte of an array and goes on as far as a view can."""
    view = array.as_view()
    if not offset:
        return view
    stride = array.nbytes
    selection: list[int | slice] = []
    for extent in array.shape:
        stride //= extent
        start, offset = divmod(offset, stride)
        if not offset:
            return view[(*selection, slice(start, None))]
        selection.append(start)
    return None


class _Memory:
    """Which array an address belongs to: what the caller knows, what the graph allocates, what its nodes and the runtime tell."""

    def __init__(self, runtime: Runtime, known: Known, raw: _RawGraph) -> None:
        self._runtime = runtime
        self._taken: set[str] = set()
        self._places: list[tuple[int, Array]] = []
        self._aliases: dict[tuple[int, tuple[int, ...], Any], ExternalArray] = {}
        for name, array in known.arrays.items():
            if isinstance(array, ExternalArray):
                name = self.unused(_plain(name))
                self._places.append((array.pointer, array if array.name == name else _renamed(array, name)))
        nodes = list(raw.everywhere())
        self.allocs = self._find_allocs(nodes, known)
        self._places = [*((pointer, array) for pointer, array in self.allocs.items()), *self._places]
        self._find_others(nodes)

    def unused(self, name: str) -> str:
        """Return a name that no array has."""
        found, n = name, 1
        while found in self._taken:
            n += 1
            found = f"{name}_{n}"
        self._taken.add(found)
        return found

    def _find_allocs(self, nodes: Sequence[_RawNode], known: Known) -> dict[int, AllocArray]:
        """Choose for each allocation the shape and dtype in which its copies and fills can be said."""
        made = {node.params[0]: node.params[1] for node in nodes if node.type is NodeType.MEM_ALLOC}
        spans: dict[int, list[tuple[_Span, int]]] = {pointer: [] for pointer in made}
        for node in nodes if made else ():
            for span, itemsize in _touched(node):
                for pointer, nbytes in made.items():
                    if pointer <= span.pointer < pointer + nbytes:
                        spans[pointer].append((span, itemsize))
        found = {}
        for n, (pointer, nbytes) in enumerate(made.items(), 1):
            array = known.allocs.get(pointer)
            name = self.unused(array.name if array is not None else f"alloc_{n}")
            if array is not None and array.nbytes == nbytes:
                found[pointer] = AllocArray(name, array.shape, array.dtype, device=array.device)
                continue
            found[pointer] = next(
                (a for a in _shapes(name, nbytes, spans[pointer]) if all(_sayable(a, pointer, *span) for span in spans[pointer])),
                AllocArray(name, (nbytes,), _BYTE),
            )
        return found

    def _find_others(self, nodes: Sequence[_RawNode]) -> None:
        """Make an array of each piece of memory that nodes name and nobody has declared."""
        unknown: list[tuple[int, int, bool]] = []
        first: dict[int, int] = {}
        ranges: dict[int, bool] = {}
        for node in nodes:
            for pointer, stop, on_host in _pointers(node, self._runtime):
                if self.at(pointer) is not None:
                    continue
                found = self._runtime.mem_get_address_range(pointer)
                if found is not None:
                    if found.pointer not in ranges:
                        ranges[found.pointer] = True
                        self._declare(found.pointer, found.nbytes, found.on_host)
                elif stop:
                    first.setdefault(pointer, len(unknown))
                    unknown.append((pointer, stop, on_host))
        merged: list[list[Any]] = []
        for pointer, stop, on_host in sorted(unknown):
            if merged and pointer < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], stop)
                merged[-1][3] = min(merged[-1][3], first[pointer])
            else:
                merged.append([pointer, stop, on_host, first[pointer]])
        for pointer, stop, on_host, _ in sorted(merged, key=lambda piece: piece[3]):  # in the order of the nodes
            self._declare(pointer, stop - pointer, on_host)

    def _declare(self, pointer: int, nbytes: int, on_host: bool) -> None:
        name = self.unused("host_memory" if on_host else "memory")
        array = ExternalArray(
            name, (nbytes,), _BYTE, pointer=pointer, location="host" if on_host else "device", lock=False, obj=self._runtime
        )
        self._places.append((pointer, array))

    def at(self, pointer: int) -> tuple[int, Array] | None:
        """Return address and array of the smallest array that a pointer leads into."""
        found: tuple[int, Array] | None = None
        for base, array in self._places:
            if base <= pointer < base + array.nbytes and (found is None or array.nbytes < found[1].nbytes):
                found = (base, array)
        return found

    def view(self, span: _Span) -> ArrayView | None:
        """Return the view of a declared array with exactly these bytes."""
        found = self.at(span.pointer)
        return None if found is None else _view_of(found[1], found[0], span)

    def alias(self, span: _Span, dtype: np.dtype[Any]) -> ArrayView | None:
        """Return a view of these bytes in a dtype, by an array of its own over the same memory; None for graph memory."""
        found = self.at(span.pointer)
        if found is None or not isinstance(found[1], ExternalArray):
            return None
        root, itemsize = found[1], dtype.itemsize
        inner = span.dims[-1][1] if span.dims else span.run
        if span.run % itemsize or inner % itemsize:
            return None
        shape: tuple[int, ...] = (inner // itemsize,)
        if span.dims:
            shape = (span.dims[-1][0], *shape)
        if len(span.dims) > 1:
            count, stride = span.dims[0]
            if stride % inner or stride < inner * span.dims[-1][0]:
                return None
            shape = (count, stride // inner, inner // itemsize)
        key = (span.pointer, shape, dtype)
        array = self._aliases.get(key)
        if array is None:
            array = self._aliases[key] = ExternalArray(
                self.unused(f"{root.name}_{dtype.name}"),
                shape,
                dtype,
                device=root.device,
                obj=root.obj,
                pointer=span.pointer,
                location=root.location,
                writeable=root.writeable,
                lock=False,
            )
        return _view_of(array, span.pointer, span)

    def rest(self, pointer: int, dtype: np.dtype[Any] | None = None) -> ArrayView | None:
        """Return a contiguous view that begins at a pointer, in a dtype if one is given; None where no array is."""
        found = self.at(pointer)
        if found is None:
            return None
        base, array = found
        view = _from(array, pointer - base)
        if view is None or (dtype is not None and view.dtype != dtype):
            nbytes = base + array.nbytes - pointer
            wanted = dtype or _BYTE
            return self.alias(_Span(pointer, nbytes - nbytes % wanted.itemsize), wanted) if nbytes >= wanted.itemsize else None
        return view


def _renamed(array: ExternalArray, name: str) -> ExternalArray:
    return ExternalArray(
        name,
        array.shape,
        array.dtype,
        device=array.device,
        obj=array.obj,
        pointer=array.pointer,
        location=array.location,
        writeable=array.writeable,
        lock=array.lock,
    )


def _plain(name: str) -> str:
    """Return a name without the characters that names cannot have."""
    text = "".join(c if c.isprintable() and c not in "[/" else "." for c in name).strip()
    return text[:_MOST_NAME] or "x"


def _touched(node: _RawNode) -> Iterator[tuple[_Span, int]]:
    """Yield the bytes that a node is known to touch, each with the size of element that it must be said in (0: any)."""
    match node.params:
        case Copy3D() as copy:
            for span in _sides(copy):
                yield span, 0
        case Fill2D() as fill:
            yield _filled(fill), fill.element_size
        case (MemOp(), *_) as ops:
            for op in ops:
                yield _Span(op.address, op.size), op.size


def _pointers(node: _RawNode, runtime: Runtime) -> Iterator[tuple[int, int, bool]]:
    """Yield (pointer, stop, on host) of all memory that a node names; stop is 0 where only a value may be a pointer."""
    if isinstance(node.params, Copy3D):
        kind = node.params.kind
        dst, src = _sides(node.params)
        host = (MemcpyKind.HOST_TO_HOST, MemcpyKind.DEFAULT)  # what the runtime knows nothing of is the host's
        yield dst.pointer, dst.stop, kind in (*host, MemcpyKind.DEVICE_TO_HOST)
        yield src.pointer, src.stop, kind in (*host, MemcpyKind.HOST_TO_DEVICE)
        return
    for span, _ in _touched(node):
        yield span.pointer, span.stop, False
    if isinstance(node.params, _RawKernel):
        for argument in node.params.arguments or ():
            if len(argument) == 8 and (value := int.from_bytes(argument, "little")):
                yield value, 0, False


def _shapes(name: str, nbytes: int, spans: Sequence[tuple[_Span, int]]) -> Iterator[AllocArray]:
    """Yield arrays in which the uses of an allocation might be said, plain ones first."""
    sizes = sorted({size for _, size in spans if size} | {1}, reverse=True)
    sizes.sort(key=lambda size: all(span.run % size for span, _ in spans))
    pitches = sorted({stride for span, _ in spans for _, stride in span.dims})
    for size in sizes:
        dtype = np.dtype(f"u{size}")
        if nbytes % size == 0:
            yield AllocArray(name, (nbytes // size,), dtype)
        for pitch in pitches:
            if nbytes % pitch == 0 and pitch % size == 0:
                yield AllocArray(name, (nbytes // pitch, pitch // size), dtype)
        for inner in pitches:
            for outer in pitches:
                if nbytes % outer == 0 and outer % inner == 0 and inner < outer and inner % size == 0:
                    yield AllocArray(name, (nbytes // outer, outer // inner, inner // size), dtype)


def _sayable(array: AllocArray, base: int, span: _Span, size: int) -> bool:
    return (not size or array.dtype.itemsize == size) and _view_of(array, base, span) is not None


# -- models ----------------------------------------------------------------------------------------------------------------


class _Builder:
    """Turns the raw nodes of one graph into models."""

    def __init__(
        self,
        raw: _RawGraph,
        memory: _Memory,
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
        self.outer = outer
        self.draft = Draft(name, infer=False)
        self._own = {node.params[0] for node in raw.nodes if node.type is NodeType.MEM_ALLOC}
        self._stand_ins: dict[AllocArray, DeviceArray] = {}
        """Memory of an enclosing graph that this one uses, and what stands for it here."""
        if outer is None:
            self._events: dict[int, Event] = dict(known.events)
            self._semaphores: dict[int, Semaphore] = {}
            self._modules: dict[int, ForeignModule] = {}
        else:
            self._events, self._semaphores, self._modules = outer._events, outer._semaphores, outer._modules

    def build(self) -> Workflow:
        ends: list[tuple[str, ...]] = []  # for each raw node the models that finish it
        for index, raw in enumerate(self.raw.nodes):
            after = tuple(dict.fromkeys(end for source in raw.before for end in ends[source]))
            made: list[str] = []
            for kind, base, fields in self._models(raw, index):
                name = self.draft.default_name(_plain(base))
                node = kind(name=name, after=after, source=self.source, **fields)
                self.draft.declare_used(node)
                self.draft.add(node)
                made.append(name)
            ends.append(tuple(made))
        return Workflow.of(self.draft)

    def _refuse(self, index: int, raw: _RawNode, why: str) -> NoReturn:
        raise DeclarationError(f"graph {self.draft.name!r}: node {index} ({raw.type.name.lower()}) {why}")

    def _models(self, raw: _RawNode, index: int) -> list[tuple[type[Node], str, dict[str, Any]]]:
        """Return class, base of the name, and fields of what a raw node becomes; several semaphores become several nodes."""
        params = raw.params
        match raw.type:
            case NodeType.KERNEL:
                return [self._kernel(params)]
            case NodeType.MEMCPY:
                dst, src = self._copy(params, index, raw)
                return [(MemcpyNode, f"memcpy_{dst.root.name}", {"dst": dst, "src": src})]
            case NodeType.MEMSET:
                view, value = self._fill(params, index, raw)
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
            case NodeType.EXT_SEMAPHORE_SIGNAL:
                return [
                    (SemaphoreSignalNode, f"signal_{s.name}", {"semaphore": s, "value": value})
                    for s, value in ((self._semaphore(handle), value) for handle, value in params)
                ]
            case NodeType.EXT_SEMAPHORE_WAIT:
                return [
                    (SemaphoreWaitNode, f"wait_{s.name}", {"semaphore": s, "value": value})
                    for s, value in ((self._semaphore(handle), value) for handle, value in params)
                ]
            case NodeType.MEM_ALLOC:
                array = self.memory.allocs[params[0]]
                return [(AllocNode, f"alloc_{array.name}", {"array": array})]
            case NodeType.MEM_FREE:
                if params not in self._own:
                    self._refuse(index, raw, f"frees memory at {params:#x} that another graph allocates; read both as one")
                array = self.memory.allocs[params]
                return [(FreeNode, f"free_{array.name}", {"array": array})]
            case NodeType.BATCH_MEM_OP:
                return [(MemoryOpsNode, "memory_ops", {"ops": tuple(self._memory_op(op, index, raw) for op in params)})]
            case _:
                return [(EmptyNode, "empty", {})]

    # -- arrays --

    def _rooted(self, view: ArrayView) -> ArrayView:
        """Return the same view here: memory that an enclosing graph allocates gets a stand-in, which is bound to it."""
        root = view.root
        if not isinstance(root, AllocArray) or any(self.memory.allocs[pointer] is root for pointer in self._own):
            return view
        stand_in = self._stand_ins.get(root)
        if stand_in is None:
            stand_in = self._stand_ins[root] = DeviceArray(root.name, root.shape, root.dtype, device=root.device)
        return ArrayView(stand_in, view.selection)

    def _copy(self, copy: Copy3D, index: int, raw: _RawNode) -> tuple[ArrayView, ArrayView]:
        to, origin = _sides(copy)
        if _contiguous(to) and _contiguous(origin):
            to, origin = (_Span(span.pointer, span.stop - span.pointer) for span in (to, origin))
        dst, src = self.memory.view(to), self.memory.view(origin)
        dtypes = dict.fromkeys(view.dtype for view in (dst, src) if view is not None)
        for dtype in (*sorted(dtypes, key=_BYTE.__eq__), *(np.dtype(f"u{size}") for size in (8, 4, 2, 1))):
            one = dst if dst is not None and dst.dtype == dtype else self.memory.alias(to, dtype)
            other = src if src is not None and src.dtype == dtype else self.memory.alias(origin, dtype)
            if one is None or other is None or one.size != other.size:
                continue
            alike = [n for n in one.shape if n > 1] == [n for n in other.shape if n > 1] or (one.contiguous and other.contiguous)
            if alike and copy_geometry(one, other) is not None:
                return self._rooted(one), self._rooted(other)
        box = f"{copy.width_bytes} x {copy.height} x {copy.depth}"
        return self._refuse(index, raw, f"copies {box} bytes in a way that no view can say")

    def _fill(self, fill: Fill2D, index: int, raw: _RawNode) -> tuple[ArrayView, Any]:
        span, size = _filled(fill), fill.element_size
        if _contiguous(span):
            span = _Span(span.pointer, span.stop - span.pointer)
        pattern = (fill.value & (256**size - 1)).to_bytes(size, "little")
        view = self.memory.view(span)
        known = () if view is None else (view,)
        for found in (*known, self.memory.alias(span, np.dtype(f"u{size}"))):
            if found is None:
                continue
            value = _value_of(pattern, found.dtype)
            if value is not None:
                return self._rooted(found), value
        return self._refuse(index, raw, f"fills {fill.width} x {fill.height} elements in a way that no view can say")

    def _memory_op(self, op: MemOp, index: int, raw: _RawNode) -> MemoryOp:
        span = _Span(op.address, op.size)
        view = self.memory.view(span)
        if view is None or view.dtype.kind not in "iu" or view.dtype.itemsize != op.size:
            view = self.memory.alias(span, np.dtype(f"u{op.size}"))
        if view is None:
            self._refuse(index, raw, f"reaches memory at {op.address:#x} in a way that no view can say")
        return MemoryOp("write" if op.op == "write" else "wait", self._rooted(view), op.value, op.condition)  # type: ignore[arg-type]

    # -- kernels --

    def _kernel(self, raw: _RawKernel) -> tuple[type[Node], str, dict[str, Any]]:
        launch, info = raw.launch, raw.info
        known = self.known.functions.get(launch.function)
        name = known.name if known is not None else info.name or f"function_{len(self._modules) + 1}"
        sizes = None if info.parameters is None else tuple(size for _, size in info.parameters)
        module = self._modules.get(launch.function)
        if module is None:
            signature = known.signature if known is not None else None
            if signature is not None and tuple(p.size for p in signature.parameters) != sizes:
                signature = None
            module = self._modules[launch.function] = ForeignModule(name, launch.function, self.runtime, sizes, signature)
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
        """Return the arguments as the kernel's own types have them, or None if one of them cannot be."""
        if kernel.signature is None or arguments is None:
            return None
        found = []
        for parameter, data in zip(kernel.signature.parameters, arguments):
            value = self._address(data, parameter.dtype) if parameter.pointer else _decoded(parameter, data)
            if value is None:
                return None
            found.append(value)
        return tuple(found)

    def _address(self, data: bytes, dtype: np.dtype[Any] | None) -> ArrayView | None:
        view = self.memory.rest(int.from_bytes(data, "little"), dtype)
        return None if view is None or not view.root.on_device else self._rooted(view)

    def _opaque(self, data: bytes, kernel: str) -> Any:
        """Return an argument of unknown type: an array if it is an address of one, else an unsigned number or bytes."""
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
        event = self._events.get(handle)
        if event is None:
            event = self._events[handle] = Event(f"event_{len(self._events) + 1}", handle=handle)
        return event

    def _semaphore(self, handle: int) -> Semaphore:
        found = self._semaphores.get(handle)
        if found is None:
            found = self._semaphores[handle] = Semaphore(f"semaphore_{len(self._semaphores) + 1}", handle)
        return found

    def _child(self, raw: _RawGraph, index: int) -> tuple[type[Node], str, dict[str, Any]]:
        inner = _Builder(raw, self.memory, self.known, self.runtime, f"{self.draft.name}.{index}", self.source, self)
        workflow = inner.build()
        bind = {stand_in.name: self._rooted(array.as_view()) for array, stand_in in inner._stand_ins.items()}
        return ChildGraphNode, "child", {"workflow": workflow, "bind": bind}


def _contiguous(span: _Span) -> bool:
    return not span.region(span.pointer).dims


def _value_of(pattern: bytes, dtype: np.dtype[Any]) -> Any:
    """Return the value of a dtype whose bytes a repeated pattern makes, or None if there is none."""
    itemsize = dtype.itemsize
    if itemsize % len(pattern):
        pattern = pattern[:itemsize] if pattern == pattern[:itemsize] * (len(pattern) // max(itemsize, 1)) else b""
        if not pattern:
            return None
    data = pattern * (itemsize // len(pattern))
    value = np.frombuffer(data, dtype)[0]
    if not isinstance(value, np.void) and dtype.kind in "biufc":
        value = value.item()
    try:
        return value if element_bytes(value, dtype, "") == data else None
    except DeclarationError:
        return None


def _decoded(parameter: KernelParameter, data: bytes) -> Any:
    dtype = parameter.dtype
    assert dtype is not None
    if parameter.lanes > 1:
        return tuple(np.frombuffer(data, dtype)[: parameter.lanes].tolist())
    value = np.frombuffer(data, dtype)[0]
    return value if isinstance(value, np.void) or dtype.kind not in "biufc" else value.item()
