"""A runtime that writes C++: a backend runs on it, and each of the backend's calls becomes a line of a HIP C++ program.

Addresses represent names of the program (`Places`). Each graph that is built or captured becomes a `Block` of lines. Content that
depends on the whole block, such as which nodes need a variable, is left as a hole in the line, which `blocks` fills.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, cast

import numpy as np

from ...arrays import Parameter
from ...errors import HipError
from ...kernels import KernelParameter
from ...nodes.facets import KernelLaunch
from ...plan.steps import Step
from ...runtimes.base import GraphSteps
from ...runtimes.data import (
    LAUNCH_ATTRIBUTES,
    CaptureInfo,
    CaptureMode,
    Copy3D,
    Dim3,
    Fill2D,
    KernelParams,
    MemcpyKind,
    MemOp,
    NodeType,
)
from ...target import Target
from ..recorder.recorder import RecorderRuntime
from .text import Hole, Piece, ctype_of, is_plain, joined, literal_of, narrowed, sized

NAME: Final = Hole("label", None)
"""Placeholder for the step's name, which is known once the backend has recorded the step's node."""

_SPAN: Final = 40
"""Address bits below the place number. A place starts in the middle of its range, so that lower addresses keep the number."""
_MIDDLE: Final = 1 << (_SPAN - 1)


@dataclass(eq=False, slots=True)
class Place:
    """Memory that a pointer of the program refers to."""

    name: str  # name of the pointer
    dtype: np.dtype[Any]
    phase: int = 0  # its address modulo 64, in bytes


Asked = tuple[str | None, Parameter | None]
"""The C++ text of a scalar parameter's variable, or of an expression of them, with it; None for what is a literal."""
_NOTHING: Final[Asked] = None, None


class Places:
    """Maps addresses to pointers of the program."""

    def __init__(self) -> None:
        self._found: list[Place] = []

    def new(self, place: Place) -> int:
        """Assign an address to a place, and return it."""
        self._found.append(place)
        return (len(self._found) << _SPAN) + _MIDDLE + place.phase

    def at(self, address: int) -> Place:
        """Return the place that contains an address."""
        return self._found[(address >> _SPAN) - 1]

    def merge(self, address: int, other: int) -> None:
        """Replace the place at `address` by the one at `other`."""
        self._found[(address >> _SPAN) - 1] = self.at(other)

    def pointer(self, address: int) -> list[Piece]:
        """Return an address as C++: a pointer name plus an offset in elements."""
        place = self.at(address)
        offset = address % (1 << _SPAN) - _MIDDLE - place.phase
        return [place.name, Hole("offset", offset // place.dtype.itemsize, hint="offset")]


@dataclass(eq=False, slots=True)
class Line:
    """One call as C++: an expression if it adds a node to a graph that is built, else a statement."""

    pieces: list[Piece]
    node: int = 0
    stream: list[Piece] | None = None


@dataclass(eq=False)
class Block:
    """The calls that build one graph."""

    captured: bool  # recorded from streams
    streams: int = 0  # the number of streams
    lines: list[Line] = field(default_factory=list)
    steps: Sequence[Step] = ()  # the steps that the backend has lowered to it
    nodes: Sequence[int] = ()  # the last node of each step
    scope: Any = None  # a NamedScope
    prefix: str = ""  # name prefix of its steps, if it is the graph of a body
    given: dict[str, tuple[str, list[Piece]]] = field(default_factory=dict)
    """For a child graph: the parameters of the function that builds it, each with its declaration and the caller's argument."""
    flags: int = 0  # instantiation flags

    @property
    def node_type(self) -> str:
        """The C++ type of a node variable."""
        return "Mark" if self.captured else "hipGraphNode_t"

    @property
    def instantiation(self) -> str:
        """The instantiation flags as C++; only one flag is used."""
        return "hipGraphInstantiateFlagAutoFreeOnLaunch" if self.flags else "0"


_ADDS: Final = {
    "hipGraphAddKernelNode": "add_kernel",
    "hipGraphAddMemcpyNode1D": "add_copy",
    "hipGraphAddMemcpyNode": "add_copy_3d",
    "hipGraphAddMemsetNode": "add_memset",
    "hipGraphAddHostNode": "add_host",
    "hipGraphAddMemAllocNode": "add_alloc",
    "hipGraphAddMemFreeNode": "add_free",
    "hipGraphAddEmptyNode": "add_empty",
    "hipGraphAddEventRecordNode": "add_record",
    "hipGraphAddEventWaitNode": "add_wait",
    "hipGraphAddBatchMemOpNode": "add_memory_ops",
    "hipGraphAddChildGraphNode": "add_child",
}
"""HIP call -> the function of parts/program/program.h that wraps it for a graph: ``add_empty(graph, name, after, ...)``."""
_ISSUES: Final = {
    "hipModuleLaunchKernel": "launch",
    "hipModuleLaunchCooperativeKernel": "launch_cooperative",
    "hipMemcpy3DAsync": "copy_3d",
    "hipMemsetD16Async": "fill_words",
    "hipMemsetD32Async": "fill_words",
    "hipLaunchHostFunc": "call_host",
}
"""The same for a stream: ``launch(stream, name, ...)``. Other calls need no wrapper and are written directly."""
_AS_THEY_ARE: Final = ("hipMemcpyAsync", "hipMemsetAsync", "hipMemset2DAsync", "hipMallocAsync", "hipFreeAsync")


class WritingRuntime(RecorderRuntime):
    """A recorder that also writes each call that adds a node or is captured.

    `captures` tells whether streams record the whole graph of the program, rather than the content of single nodes.
    """

    def __init__(self, target: Target, captures: bool) -> None:
        super().__init__(target=target)
        self.captures = captures
        self.places = Places()
        self.texts: dict[int, list[Piece]] = {}
        """The C++ text of kernels, events and user function calls, by handle."""
        self.node: KernelLaunch | None = None
        self.placed: tuple[tuple[KernelParameter, Any], ...] = ()
        """Arguments of the next launch; `node` is the node that launches it, if it is a user kernel."""
        self.asked: list[Asked] = []
        """Per scalar parameter queried since the last call: its variable, or None if it is bound to a value."""
        self.blocks: dict[int, Block] = {}
        """Blocks by graph."""
        self.lines: dict[int, Line] = {}
        """Lines by node."""
        self.streams: dict[int, int] = {}
        """The number of each stream, in order of creation."""
        self.launched: dict[str, None] = {}
        """Kernels that are launched on streams, which must be loaded beforehand."""
        self.kept: dict[int, int] = {}
        """Memory shared by several graphs: pointer -> bytes."""
        self.between: list[list[Piece]] = []
        """User function calls that the host makes between graphs; the caller that triggers the writing of one pops it."""
        self._origin = 0
        """Number of the stream on which the capture began; the numbers of the other streams are relative to it."""
        self._asked_stream = 0

    def refused(self, text: str) -> HipError:
        """Return the error for a call that no program can make; the backend adds the name of the node."""
        return HipError("", 801, "hipErrorNotSupported", text)

    def keep(self, pieces: list[Piece], handle: int = 0) -> int:
        """Store a text under a handle, by default a new one, and return the handle."""
        handle = handle or next(self._numbers)
        self.texts[handle] = pieces
        return handle

    def kernel(self, name: str) -> int:
        """Return the handle of a kernel that has this name in the program."""
        return self.keep([name], self._make("function", module=0))

    def _address(self, nbytes: int) -> int:
        return self.places.new(Place("", np.dtype("u1")))

    def malloc(self, nbytes: int) -> int:
        """Allocate memory that outlives a graph."""
        pointer: int = super().malloc(nbytes)
        self.kept[pointer] = nbytes
        return pointer

    # -- graphs ------------------------------------------------------------------------------------------------------------
    def graph_create(self) -> int:
        graph = super().graph_create()
        self.blocks[graph] = Block(captured=False)
        return int(graph)

    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        self.blocks[graph].flags = flags
        return super().graph_instantiate(graph, flags)

    def kernel_adder(self, steps: GraphSteps) -> None:
        """Record which steps are lowered to a graph, and where their nodes are stored; the call itself writes no code."""
        block = self.blocks[steps.graph]
        block.steps, block.nodes, block.scope = steps.steps, steps.nodes, cast(Any, steps.addresses).scope
        holder = block.scope.level.node
        if holder is not None and holder.is_child:
            block.scope.shared.enter(block, block.scope)

    def _add(self, api: str, graph: int, deps: Sequence[int], kind: NodeType, params: Any, *graphs: int) -> int:
        node = super()._add(api, graph, deps, kind, params, *graphs)
        block = self.blocks[graph]
        after: list[Piece] = ["{}"] if block.captured else _listed(deps)
        function, arguments = self._written(kind, params, _ADDS.get(api, ""))
        call: list[Piece] = [f"{function}(graph, ", NAME, ", ", *after, *arguments, ")"]
        if not block.captured:
            line = Line(call, node)
        else:  # insert the node after the recorded tail of the stream, as the backend requests
            stream = self._asked_stream
            on = self.on(stream)
            line = Line(["insert(", *on, ", ", NAME, ", [=](hipGraph_t graph) { return ", *call, "; });"], node, on)
            self._captures[stream].tails[stream] = (node,)
        self._write(block, line)
        return node

    def graph_add_conditional_node(self, graph: int, *_: Any) -> NoReturn:
        """Refuse: HIP has no conditional nodes."""
        raise self.refused("in a program the host reads conditions; leave decide='device' out")

    @property
    def launch_attributes(self) -> tuple[str, ...]:
        """All attributes: the program itself skips those that its device does not support."""
        return tuple(LAUNCH_ATTRIBUTES)

    def graph_kernel_node_set_attributes(self, node: int, **attributes: Any) -> None:
        super().graph_kernel_node_set_attributes(node, **attributes)
        for name, value in attributes.items():
            self._wrap(node, f"with_{name}", _attribute(value))

    def _wrap(self, node: int, function: str, value: list[Piece]) -> None:
        """Set an attribute of a node: wrap the call that adds it, or append to the call that a stream records."""
        line = self.lines[node]
        if line.stream is None:
            line.pieces = [f"{function}(", *line.pieces, *value, ", ", NAME, ")"]
        else:
            recorded = [f"\n{function}(captured_nodes(", *line.stream, ", ", NAME, ")[0]"]
            line.pieces += [*recorded, *value, ", ", NAME, ");"]

    # -- streams -----------------------------------------------------------------------------------------------------------
    def stream_create(self, priority: int = 0) -> int:
        stream = super().stream_create(priority)
        self.streams[stream] = len(self.streams)
        self.asked.clear()  # nothing will pack the parameters queried before
        return int(stream)

    def stream_begin_capture(self, stream: int, mode: CaptureMode = CaptureMode.THREAD_LOCAL) -> None:
        """Begin a capture, which becomes a block."""
        super().stream_begin_capture(stream, mode)
        self._origin = self.streams[stream]
        streams = len(self.streams) - self._origin
        self.blocks[self._captures[stream].graph.handle] = Block(captured=True, streams=streams)

    def stream_get_capture_info(self, stream: int) -> CaptureInfo:
        self._asked_stream = stream
        found: CaptureInfo = super().stream_get_capture_info(stream)
        return found

    def stream_update_capture_dependencies(self, stream: int, nodes: Sequence[int], replace: bool) -> None:
        """Write the dependencies of the next call on a stream, if they differ from the implicit ones."""
        before = self._captures[stream].tails[stream]
        super().stream_update_capture_dependencies(stream, nodes, replace)
        capture = self._captures[stream]
        if capture.tails[stream] != before:
            line = Line(["follow(", *self.on(stream), ", ", *_listed(capture.tails[stream]), ");"])
            self.blocks[capture.graph.handle].lines.append(line)

    def on(self, stream: int) -> list[Piece]:
        """Return a stream as C++."""
        number = self.streams[stream] - self._origin
        return ["stream[", Hole("int", number, hint="lane"), "]"] if self.captures else ["stream"]

    def _issue(self, api: str, stream: int, kind: NodeType, params: Any) -> None:
        super()._issue(api, stream, kind, params)
        on = self.on(stream)
        if api in _AS_THEY_ARE:
            arguments = self._plain(api, params)
            call: list[Piece] = [f"CHECK({api}(", *arguments, ", ", *on, "), ", NAME, ");"]
        else:
            function, arguments = self._written(kind, params, _ISSUES.get(api, ""))
            call = [f"{function}(", *on, ", ", NAME, *arguments, ");"]
        self._put(stream, call)

    def module_launch_kernel(
        self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        super().module_launch_kernel(function, grid, block, shared_bytes, stream, args, **attributes)
        for name, value in attributes.items():
            if name in LAUNCH_ATTRIBUTES and name != "cooperative":  # cooperative is part of the call
                self._wrap(self._captures[stream].tails[stream][0], f"with_{name}", _attribute(value))

    def call_user(self, stream: int, call: list[Piece]) -> None:
        """Write a call of a user function, and record one node in place of whatever the function records."""
        super()._issue("", stream, NodeType.GRAPH, ())
        self._put(stream, [*call, ";"])

    def _put(self, stream: int, call: list[Piece]) -> None:
        capture = self._captures[stream]
        node = capture.tails[stream][0]
        self._write(self.blocks[capture.graph.handle], Line(call, node, self.on(stream)))

    def _write(self, block: Block, line: Line) -> None:
        if self.asked:
            raise self.refused("a value that a parameter gives has no form in this call")
        self.lines[line.node] = line
        block.lines.append(line)

    # -- arguments ---------------------------------------------------------------------------------------------------------
    def _plain(self, api: str, params: Any) -> list[Piece]:
        """Return the arguments of a call without a wrapper, except the stream."""
        at = self.places.pointer
        match params:
            case Fill2D():
                word, count = self._word(params), f", {params.width}"
                rows = f", {params.height}" if params.height > 1 else ""
                pitch = f", {params.pitch_bytes}" if params.height > 1 else ""
                return [*at(params.dst), f"{pitch}, ", *word, f"{count}{rows}"]
            case (int() as pointer, int() as nbytes):
                return [Hole("made", (pointer, nbytes), "(void**)")]
            case int():
                return at(params)
        return self._copied(params)

    def _written(self, kind: NodeType, params: Any, function: str) -> tuple[str, list[Piece]]:
        """Return the wrapper function of a call and its arguments after the fixed ones, each preceded by a comma."""
        at, texts = self.places.pointer, self.texts
        match kind, params:
            case NodeType.KERNEL, KernelParams():
                return self._launched(params, function)
            case NodeType.MEMCPY, Copy3D():
                return function, [", ", *self._box(params)]
            case NodeType.MEMCPY, _ if function:
                return function, [", ", *self._copied(params)]
            case NodeType.MEMSET, Fill2D(dst, size, _, width, height, pitch):
                box = f", {height}, {pitch}" if height > 1 else ""
                return function, [", ", *at(dst), f", {size}, ", *self._word(params), f", {width}{box}"]
            case NodeType.HOST, _:
                return function, [", [=] { ", *texts[params.user_data], "; }"]
            case NodeType.MEM_ALLOC, (int(), int()):
                return function, [", ", Hole("made", params)]
            case NodeType.MEM_FREE, int():
                return function, [", ", *at(params)]
            case ((NodeType.EVENT_RECORD | NodeType.WAIT_EVENT), int()):
                return function, [", ", *texts[params]]
            case NodeType.EMPTY, _:
                return function, []
            case NodeType.BATCH_MEM_OP, _ if function:
                return function, [", {", *joined([self._memory_op(op) for op in params]), "}"]
            case NodeType.GRAPH, int() if function:
                inner = self.blocks[params]
                if not inner.captured:
                    return function, [", ", Hole("graph", inner)]
                body = joined([line.pieces for line in inner.lines], " ")
                return "add_captured", [", [=](hipStream_t stream) { ", *body, " }"]
        raise self.refused(f"a {kind.name.lower().replace('_', ' ')} node has no form in a program")

    def _launched(self, params: KernelParams, function: str) -> tuple[str, list[Piece]]:
        [kernel] = self.texts[params.function]
        assert isinstance(kernel, str)
        asked = iter(self._asked())
        node, placed = self.node, self.placed
        if not function.startswith("add_"):
            self.launched[kernel] = None
        if kernel == "hipgraphdsl_fill":
            return "add_fill" if function == "add_kernel" else "fill_on", self._filled(
                [value for _, value in placed], next(asked, _NOTHING)
            )
        given = node.args if node is not None else ()
        arguments: list[Piece] = []
        for k, (parameter, value) in enumerate(placed):
            variable = _text(next(asked), parameter.ctype) if k < len(given) and isinstance(given[k], Parameter) else None
            arguments += [", ", *([variable] if variable else self._argument(parameter, value))]
        grid, block = (
            _dim3(extents, [_text(next(asked), "unsigned", 1) if isinstance(axis, Parameter) else None for axis in axes])
            for extents, axes in ((params.grid, node.grid if node else ()), (params.block, node.block if node else ()))
        )
        return function, [f", KERNEL({kernel}), ", *grid, ", ", *block, f", {params.shared_bytes}", *arguments]

    def _asked(self) -> list[Asked]:
        """Return the variables behind the values of a call, in the order of the queries, and clear the list."""
        asked, self.asked = self.asked, []
        return asked

    def _argument(self, parameter: KernelParameter, value: Any) -> list[Piece]:
        """Return an argument as C++, given its packed value."""
        if parameter.pointer:
            return self.places.pointer(value) if value else ["nullptr"]
        dtype = parameter.dtype
        assert dtype is not None
        if parameter.lanes == 1 and is_plain(dtype):
            ctype = "size_t" if parameter.ctype == "size_t" else ctype_of(dtype)
            return [Hole("value", value, ctype, parameter.name)]
        data = value if isinstance(value, bytes) else np.array(value, dtype).tobytes()
        if parameter.lanes == 1 and dtype.names is None and dtype.kind == "c":
            return [literal_of(data, dtype)]
        return [f"Bytes<{len(data)}>{{{{{', '.join(map(str, data))}}}}}"]

    def _filled(self, values: Sequence[Any], asked: Asked) -> list[Piece]:
        """Return the arguments of a memset that is done by a kernel."""
        dst, count, item, *numbers = values
        counts, strides, words = numbers[:3], numbers[3:7], numbers[7:]
        dtype = self.places.at(dst).dtype
        value = _text(asked, ctype_of(dtype)) or literal_of(np.array(words, "<u8").tobytes()[:item], dtype)
        listed = f"{', '.join(map(str, counts))}}}, {{{', '.join(map(str, strides))}"
        return [", ", *self.places.pointer(dst), ", ", value, f", {item}, Fill{{{count}, {{{listed}}}}}"]

    def _word(self, fill: Fill2D) -> list[Piece]:
        """Return the element of a memset as an integer in C++."""
        [asked] = self._asked() or [_NOTHING]
        dtype = self.places.at(fill.dst).dtype
        variable = _text(asked, ctype_of(dtype))
        if variable:
            return ["bits(", variable, ")"]
        if fill.element_size == dtype.itemsize > 1:
            return [f"bits({literal_of(fill.value.to_bytes(fill.element_size, 'little'), dtype)})"]
        return [f"{fill.value:#x}" if fill.value else "0"]

    def _copied(self, params: tuple[int, int, int, MemcpyKind]) -> list[Piece]:
        dst, src, nbytes, kind = params
        at = self.places
        return [*at.pointer(dst), ", ", *at.pointer(src), f", {sized(nbytes, at.at(dst).dtype)}, {_kind(kind)}"]

    def _box(self, copy: Copy3D) -> list[Piece]:
        at = self.places.pointer
        to, source = (", ".join(map(str, ("", *pos))) if any(pos) else "" for pos in (copy.dst_pos, copy.src_pos))
        extent = f"{copy.width_bytes}, {copy.height}, {copy.depth}"
        return [
            "box({", *at(copy.dst), f", {copy.dst_pitch_bytes}, {copy.dst_rows}{to}}}, {{",
            *at(copy.src), f", {copy.src_pitch_bytes}, {copy.src_rows}{source}}}, {extent}, {_kind(copy.kind)})",
        ]  # fmt: skip

    def _memory_op(self, op: MemOp) -> list[Piece]:
        condition = -1 if op.op == "write" else ("geq", "eq", "and", "nor").index(op.condition)
        return ["memory_op(", *self.places.pointer(op.address), f", {op.size}, {op.value}ULL, {condition})"]


def _kind(kind: MemcpyKind) -> str:
    return f"hipMemcpy{kind.name.title().replace('_', '')}"


def _attribute(value: Any) -> list[Piece]:
    """Return the value of a launch attribute as an argument; empty for a flag."""
    if value is True:
        return []
    return [", ", *_dim3(value)] if isinstance(value, tuple) else [f", {value}"]


def _text(asked: Asked, ctype: str, least: int | None = None) -> str | None:
    """Return the C++ text behind a value as a value of a type, which the program checks of an expression; None if it has none."""
    text, parameter = asked
    return None if text is None or parameter is None else narrowed(text, parameter, ctype, least)


def _dim3(extents: Dim3, variables: Sequence[str | None] = ()) -> list[Piece]:
    """Return extents along x, y, z as C++, without trailing ones; entries of `variables` replace the numbers."""
    axes: list[Piece] = [
        variable or Hole("int", extent, hint="extent") for extent, variable in itertools.zip_longest(extents, variables)
    ]
    while len(axes) > 1 and isinstance(axes[-1], Hole) and axes[-1].value == 1:
        axes.pop()
    return ["dim3(", *joined([[axis] for axis in axes]), ")"]


def _listed(nodes: Sequence[int]) -> list[Piece]:
    return ["{", *joined([[Hole("node", node)] for node in nodes]), "}"]
