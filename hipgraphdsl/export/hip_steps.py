"""Steps of a plan as statements of a HIP C++ program: one call each, on a graph or on a stream that is being captured."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays import Access, ArrayView, Parameter
from ..backends.handles import BUILT_IN, SharedHandles
from ..backends.operations import Copy1D, Launch, Operation, WriteAndWait
from ..backends.resolve import resolve
from ..backends.scope import Scope as LoweredScope
from ..errors import DeclarationError, HipError
from ..kernels import ArgumentPacker, Kernel, KernelParameter, Symbol
from ..nodes import (
    AllocNode,
    CapturedNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemoryOpsNode,
    MemsetNode,
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    UnboundCallback,
    callable_name,
)
from ..plan import Plan, Step
from ..runtimes.base import Copy3D, Fill2D
from ..runtimes.recorder import RecorderRuntime
from ..source import is_bfloat16
from ..workflow import ChildGraphNode, ConditionalNode
from .hip_text import (
    DECLARED,
    KEYWORDS,
    Hole,
    Names,
    Piece,
    Statement,
    bytes_of,
    comment,
    ctype_of,
    dtype_name,
    is_plain,
    literal_of,
    numbered,
    quoted,
    shape_text,
)

if TYPE_CHECKING:
    from .hip_cpp import Program

__all__ = ["Body", "Function", "Given", "Handles", "Memory", "Scope", "argument_names", "plain_value"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a view's root is in the program: a pointer, elements into it, and the array or parameter that it belongs to."""

    expression: str
    offset: int
    owner: Any

    @property
    def host(self) -> bool | None:
        """Whether the memory is the host's; None where the launch decides."""
        return None if isinstance(self.owner, Parameter) else self.owner.on_host


@dataclass
class Scope:
    """What the names of one workflow stand for.

    Attributes
    ----------
    memory : dict
        Array, symbol or array parameter -> memory.
    values : dict
        Scalar parameter -> expression of its type.
    below : dict
        (names of child nodes, array or parameter) -> the same, for what children have of their own.
    prefix : str
        ``"child/"`` inside a child.
    """

    memory: dict[Any, Memory] = field(default_factory=dict)
    values: dict[Parameter, str] = field(default_factory=dict)
    below: dict[tuple[tuple[str, ...], Any], Any] = field(default_factory=dict)
    prefix: str = ""


_SPAN: Final = 40
"""Bits of an address that say how far inside an array it is; those above number the array."""
_QUIRKS: Final = frozenset({"host_copy_kind", "memset_2d_elements", "memset_2d_whole_rows"})
"""Defects that copies and fills of a program avoid wherever it is compiled."""


class Handles(SharedHandles):
    """Addresses and functions of a program that exist as names only: with them the backends' own `resolve` lowers its steps."""

    def __init__(self, program: Program) -> None:
        super().__init__(RecorderRuntime(target=replace(program.target, quirks=_QUIRKS)))
        self._program = program
        self._places: dict[tuple[str, int], int] = {}
        self._placed: list[tuple[str, int]] = []

    def lowered(self, scope: Scope) -> LoweredScope:
        """Return a scope in which arrays have addresses that stand for their names, and parameters some value."""
        made = LoweredScope(self.runtime, self, scope.prefix, LoweredScope(self.runtime, self))
        for root, memory in scope.memory.items():
            made.addresses[root] = self._address(memory, root.dtype)
            if memory.owner is not root:
                made.bound_from[root] = memory.owner
        for parameter in scope.values:
            # Its bytes do not repeat, as those of most values do not.
            plain = is_plain(parameter.dtype)
            made.values[parameter] = np.ones((), parameter.dtype)[()] if plain else _unlike(parameter.dtype)
        return made

    def _address(self, memory: Memory, dtype: np.dtype[Any]) -> int:
        key = (memory.expression, dtype.itemsize)
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self._placed)
            self._placed.append(key)
        return (number + 1 << _SPAN) + memory.offset * dtype.itemsize

    def pointer(self, address: int) -> list[Piece]:
        """Return an address as the program spells it: a name and a number of elements after it."""
        name, itemsize = self._placed[(address >> _SPAN) - 1]
        return [name, Hole("offset", address % (1 << _SPAN) // itemsize, hint="offset")]

    def symbol(self, symbol: Symbol, device: int) -> int:
        return self._address(self._program.memory(symbol, Scope()), symbol.dtype)

    def function(self, kernel: Kernel, node: KernelNode, device: int) -> tuple[int, ArgumentPacker]:
        packer = self._packers.get(node.signature)
        if packer is None:
            packer = self._packers[node.signature] = ArgumentPacker(node.signature)
        return 0, packer

    def built_in(self, name: str, device: int) -> tuple[int, ArgumentPacker]:
        signature = BUILT_IN[name].signature
        assert signature is not None
        return 0, ArgumentPacker(signature)


def _unlike(dtype: np.dtype[Any]) -> Any:
    """Return an element of which all bytes differ."""
    return np.frombuffer(bytes(k % 255 + 1 for k in range(dtype.itemsize)), dtype)[0]


class Body:
    """The steps of one plan as statements."""

    def __init__(self, program: Program, plan: Plan, scope: Scope, names: Names) -> None:
        self.program = program
        self.plan = plan
        self.names = names
        self.scopes: dict[tuple[int, ...], Scope] = {(): scope}
        self._lowered: dict[int, LoweredScope] = {}
        """By the identity of a scope in `scopes`."""
        self.capture = program.capture
        self.called: dict[int, Any] = {}
        self._name_what_is_called()
        names.used |= program.outer
        lanes = [step.lane for step in plan.steps]
        needed: set[int] = set()
        for step in plan.steps:
            needed.update(d for d in step.deps if not self.capture or lanes[d] != step.lane)
        self.needed = needed
        self.variables: dict[int, tuple[str, int | None]] = {}
        self._declared: list[str] = []
        self._name_variables()

    def _full_name(self, step: Step) -> str:
        return self.scopes[()].prefix + step.name

    def _name_what_is_called(self) -> None:
        """Name functions, events and variables of the device before nodes, which then do not hide them."""
        for step in self.plan.steps:
            node, scope = step.node, self._scope_of(step)
            if isinstance(node, (HostNode, CapturedNode)):
                self.called[step.index] = self.program.function(node, scope, self._full_name(step))
            elif isinstance(node, (EventRecordNode, EventWaitNode)):
                self.called[step.index] = self.program.event(node.event, self._full_name(step))
            elif isinstance(node, ChildGraphNode) and step.child is not None:
                self.called[step.index] = self.program.child_graph(step.child, node, scope)
            elif isinstance(node, MemcpyNode):
                for view in (node.dst, node.src):
                    self.program.memory(view.root, scope)

    def _name_variables(self) -> None:
        """Give a variable to each step that others wait for; those with names of one form share an array."""
        forms: dict[str, list[int]] = {}
        for step in self.plan.steps:
            forms.setdefault(numbered(step.name)[0], []).append(step.index)
        kind = "Mark" if self.capture else "hipGraphNode_t"
        for form, members in forms.items():
            if len(members) < 4:
                for index in members:
                    if index in self.needed:
                        self.variables[index] = (self.names.new(self.plan.steps[index].name, "node"), None)
                continue
            if not any(index in self.needed for index in members):
                continue
            name = self.names.new(re.sub(r"%0?\d*ld", "_", form.replace("%%", "%")), "node")
            numbers = [numbered(self.plan.steps[index].name)[1] for index in members]
            own = len(numbers[0]) == 1 and sorted(n[0] for n in numbers) == list(range(len(members)))
            self._declared.append(f"{kind} {name}[{len(members)}];")
            for k, index in enumerate(members):
                self.variables[index] = (name, numbers[k][0] if own else k)

    def declarations(self, outside: bool) -> list[str]:
        """Return the declarations of arrays of nodes, and of single ones where they stand outside the function."""
        if not outside:
            return self._declared
        kind = "Mark" if self.capture else "hipGraphNode_t"
        singles = [f"{kind} {name};" for name, k in self.variables.values() if k is None]
        return [*self._declared, *singles]

    def _scope_of(self, step: Step) -> Scope:
        key = tuple(map(id, step.path))
        found = self.scopes.get(key)
        if found is None:
            found = self.scopes[()]
            for child in step.path:
                found = self.program.child_scope(child, found)
            self.scopes[key] = found
        return found

    def statements(self) -> list[Statement]:
        """Return one statement for each step."""
        made = []
        for step in self.plan.steps:
            scope = self._scope_of(step)
            name = self._full_name(step)
            try:
                pieces = self._captured(step, scope, name) if self.capture else self._added(step, scope, name)
            except DeclarationError as error:
                if error.node:
                    raise
                raise DeclarationError(f"node {name!r} cannot stand in a program: {error}", node=name) from None
            made.append(Statement(pieces, step.name))
        return made

    # -- node by node ------------------------------------------------------------------------------------------------------

    def _variable(self, index: int) -> list[Piece]:
        name, k = self.variables[index]
        return [name] if k is None else [f"{name}[", Hole("int", k, hint=f"{name}_index"), "]"]

    def _target(self, index: int) -> list[Piece]:
        if index not in self.needed:
            return []
        declared = DECLARED if self.variables[index][1] is None else ""
        return [declared, *self._variable(index), " = "]

    def _listed(self, indices: Iterable[int]) -> list[Piece]:
        pieces: list[Piece] = ["{"]
        for k, index in enumerate(indices):
            pieces += [", "] if k else []
            pieces += self._variable(index)
        return [*pieces, "}"]

    def _added(self, step: Step, scope: Scope, name: str) -> list[Piece]:
        form, numbers = numbered(name)
        head: list[Piece] = ["graph, ", Hole("label", numbers, form), ", ", *self._listed(step.deps)]
        call = self._node(step, scope, name, head, Hole("label", numbers, form))
        return [*self._target(step.index), *call, ";"]

    def _node(self, step: Step, scope: Scope, name: str, head: list[Piece], label: Hole) -> list[Piece]:
        """Return the call of an ``add_...`` function, without what takes its result."""
        node = step.node
        match node:
            case KernelNode():
                add = "add_cooperative(" if node.cooperative else "add_kernel("
                call: list[Piece] = [add, *head, ", ", *self._launched(step, node, scope), ")"]
                if node.priority is not None and not (node.cooperative and "cooperative_ignored" in self.program.quirks):
                    call = ["with_priority(", *call, f", {int(node.priority)}, ", label, ")"]
                if node.cluster is not None:
                    call = ["with_cluster(", *call, ", ", *self._dim3(node.cluster, scope), ", ", label, ")"]
                return call
            case MemcpyNode():
                done = self._resolved(step, scope)
                if isinstance(done, Launch):
                    return ["add_kernel(", *head, ", ", *self._copied_by_kernel(done), ")"]
                assert isinstance(done, (Copy1D, Copy3D))
                flat, arguments = self._copied(node, done)
                return ["add_copy(" if flat else "add_copy_3d(", *head, ", ", *arguments, ")"]
            case MemsetNode():
                done = self._resolved(step, scope)
                if isinstance(done, Launch):
                    return ["add_fill(", *head, ", ", *self._filled_by_kernel(node, done, scope), ")"]
                assert isinstance(done, Fill2D)
                return ["add_memset(", *head, ", ", *self._filled(node, done, scope), ")"]
            case AllocNode():
                memory = scope.memory[node.array]
                return ["add_alloc(", *head, f", &{memory.expression}, {bytes_of(node.array)})"]
            case FreeNode():
                return ["add_free(", *head, f", {scope.memory[node.array].expression})"]
            case HostNode():
                function, arguments_of = self.called[step.index]
                return ["add_host(", *head, ", [=] { ", *_call(function.identifier, arguments_of), "; })"]
            case CapturedNode():
                function, arguments_of = self.called[step.index]
                given: list[list[Piece]] = [["stream"], *arguments_of]
                return ["add_captured(", *head, ", [=](hipStream_t stream) { ", *_call(function.identifier, given), "; })"]
            case EventRecordNode():
                return ["add_record(", *head, f", {self.called[step.index]})"]
            case EventWaitNode():
                return ["add_wait(", *head, f", {self.called[step.index]})"]
            case EmptyNode():
                return ["add_empty(", *head, ")"]
            case MemoryOpsNode():
                done = self._resolved(step, scope)
                assert isinstance(done, WriteAndWait)
                pieces: list[Piece] = ["add_memory_ops(", *head, ", {"]
                for k, op in enumerate(done.ops):
                    condition = -1 if op.op == "write" else ("geq", "eq", "and", "nor").index(op.condition)
                    pieces += [", "] if k else []
                    at = self.program.handles.pointer(op.address)
                    pieces += ["memory_op(", *at, f", {op.size}, {op.value}ULL, {condition})"]
                return [*pieces, "})"]
            case ChildGraphNode():
                return ["add_child(", *head, ", ", self.called[step.index], ")"]
            case SemaphoreSignalNode() | SemaphoreWaitNode():
                raise DeclarationError(
                    f"node {name!r}: semaphore {node.semaphore.name!r} is imported from another program, which an exported one"
                    " cannot do for itself; leave the node out, or order the programs on the host",
                    node=name,
                )
            case ConditionalNode():
                raise DeclarationError(
                    f"node {name!r}: HIP has no conditional nodes (up to 10.0), so no HIP program can hold one; export the bodies"
                    " as graphs of their own and launch them from the host as the condition says",
                    node=name,
                )
        raise DeclarationError(f"node {name!r}: kind {node.kind!r} has no form in a program", node=name)

    # -- recorded ----------------------------------------------------------------------------------------------------------

    def _captured(self, step: Step, scope: Scope, name: str) -> list[Piece]:
        form, numbers = numbered(name)
        label = Hole("label", numbers, form)
        stream: list[Piece] = ["stream[", Hole("int", step.lane, hint="lane"), "]"]
        lane_of = self.plan.steps
        others = [d for d in step.deps if lane_of[d].lane != step.lane]
        pieces: list[Piece] = []
        if others:
            pieces += ["wait(", *stream, ", ", *self._listed(others), ");\n"]
        pieces += self._issued(step, scope, name, stream, label)
        if step.index in self.needed:
            pieces += ["\n", *self._target(step.index), "mark(", *stream, ");"]
        return pieces

    def _issued(self, step: Step, scope: Scope, name: str, stream: list[Piece], label: Hole) -> list[Piece]:
        node = step.node
        on: list[Piece] = [*stream, ", ", label]
        end: list[Piece] = [", ", *stream, "), ", label, ");"]
        match node:
            case KernelNode():
                function = "launch_cooperative(" if node.cooperative else "launch("
                call: list[Piece] = [function, *on, ", ", *self._launched(step, node, scope), ");"]
                if node.priority is not None:
                    call += ["\nwith_priority(captured_nodes(", *on, f")[0], {int(node.priority)}, ", label, ");"]
                if node.cluster is not None:
                    dims = self._dim3(node.cluster, scope)
                    call += ["\nwith_cluster(captured_nodes(", *on, ")[0], ", *dims, ", ", label, ");"]
                return call
            case MemcpyNode():
                done = self._resolved(step, scope)
                if isinstance(done, Launch):
                    return ["launch(", *on, ", ", *self._copied_by_kernel(done), ");"]
                assert isinstance(done, (Copy1D, Copy3D))
                flat, arguments = self._copied(node, done)
                return ["CHECK(hipMemcpyAsync(", *arguments, *end] if flat else ["copy_3d(", *on, ", ", *arguments, ");"]
            case MemsetNode():
                done = self._resolved(step, scope)
                if isinstance(done, Launch):
                    return ["fill_on(", *on, ", ", *self._filled_by_kernel(node, done, scope), ");"]
                assert isinstance(done, Fill2D)
                if done.element_size == 1 and not isinstance(node.value, Parameter):
                    pointer = self.program.handles.pointer(done.dst)
                    if done.height > 1:
                        rows = f", {done.pitch_bytes}, {done.value}, {done.width}, {done.height}"
                        return ["CHECK(hipMemset2DAsync(", *pointer, rows, *end]
                    return ["CHECK(hipMemsetAsync(", *pointer, f", {done.value}, {done.width}", *end]
            case AllocNode():
                memory = scope.memory[node.array]
                return [f"CHECK(hipMallocAsync((void**)&{memory.expression}, {bytes_of(node.array)}", *end]
            case FreeNode():
                return [f"CHECK(hipFreeAsync({scope.memory[node.array].expression}", *end]
            case HostNode():
                made, arguments_of = self.called[step.index]
                return ["call_host(", *on, ", [=] { ", *_call(made.identifier, arguments_of), "; });"]
            case CapturedNode():
                made, arguments_of = self.called[step.index]
                return [*_call(made.identifier, [stream, *arguments_of]), ";"]
            case _:
                pass
        head: list[Piece] = ["graph, ", label, ", {}"]
        return ["insert(", *on, ", [=](hipGraph_t graph) { return ", *self._node(step, scope, name, head, label), "; });"]

    # -- arguments ---------------------------------------------------------------------------------------------------------

    def _launched(self, step: Step, node: KernelNode, scope: Scope) -> list[Piece]:
        kernel = self.program.kernels.kernel(node)
        launch = self._resolved(step, scope)
        assert isinstance(launch, Launch)
        pieces: list[Piece] = [
            f"KERNEL({kernel}), ", *self._dim3(node.grid, scope), ", ", *self._dim3(node.block, scope),
            f", {launch.shared_bytes}",
        ]  # fmt: skip
        for parameter, arg, value in zip(node.signature.parameters, node.args, launch.packer.unpack(launch.packed)):
            pieces += [", ", *self._argument(parameter, arg, value, scope)]
        return pieces

    def _argument(self, parameter: KernelParameter, arg: Any, packed: Any, scope: Scope) -> list[Piece]:
        """Return an argument, of which `packed` is the address or the value."""
        if isinstance(arg, (Access, ArrayView)):
            return self.program.handles.pointer(packed)
        if isinstance(arg, Parameter):
            return [scope.values[arg]]
        dtype = parameter.dtype
        assert dtype is not None
        ctype = ctype_of(dtype)
        if parameter.lanes == 1 and is_plain(dtype):
            return [Hole("value", packed, _spelled(parameter, ctype), parameter.name)]
        data = packed if isinstance(packed, bytes) else np.array(packed, dtype).tobytes()
        if parameter.lanes == 1 and dtype.names is None and not is_bfloat16(dtype) and dtype.kind == "c":
            return [literal_of(data, dtype)]
        self.program.parts.add("Bytes")
        return [f"Bytes<{len(data)}>{{{{{', '.join(map(str, data))}}}}}"]

    def _dim3(self, dim: tuple[Any, ...], scope: Scope) -> list[Piece]:
        axes = list(dim)
        while len(axes) > 1 and axes[-1] == 1:
            axes.pop()
        pieces: list[Piece] = ["dim3("]
        for k, axis in enumerate(axes):
            pieces += [", "] if k else []
            pieces += [scope.values[axis]] if isinstance(axis, Parameter) else [Hole("int", axis, hint="extent")]
        return [*pieces, ")"]

    def _resolved(self, step: Step, scope: Scope) -> Operation:
        """Return what the backends do for a step, with addresses that stand for names."""
        lowered = self._lowered.get(id(scope))
        if lowered is None:
            lowered = self._lowered[id(scope)] = self.program.handles.lowered(scope)
        try:
            return resolve(step, lowered)
        except HipError as error:
            raise DeclarationError(f"node {scope.prefix + step.node.name!r}: {error.text}", node=step.node.name) from None

    def _copied(self, node: MemcpyNode, copy: Copy1D | Copy3D) -> tuple[bool, list[Piece]]:
        """Return whether a copy is one run of bytes, and the arguments that say it."""
        at = self.program.handles.pointer
        a, b = at(copy.dst), at(copy.src)
        kind = f"hipMemcpy{copy.kind.name.title().replace('_', '')}"
        if isinstance(copy, Copy1D):
            item = node.dst.dtype.itemsize
            count = copy.nbytes // item
            size = f"{count} * sizeof({ctype_of(node.dst.dtype)})" if item > 1 and count > 1 else str(copy.nbytes)
            return True, [*a, ", ", *b, f", {size}, {kind}"]
        return False, [
            "box({", *a, f", {copy.dst_pitch_bytes}, {copy.dst_rows}}}, {{",
            *(["(void*)(", *b, ")"] if isinstance(node.src.root, Symbol) else b),
            f", {copy.src_pitch_bytes}, {copy.src_rows}}}, {copy.width_bytes}, {copy.height}, {copy.depth}, {kind})",
        ]  # fmt: skip

    def _copied_by_kernel(self, launch: Launch) -> list[Piece]:
        dst, src, wide, rest = launch.packer.unpack(launch.packed)
        at = self.program.handles.pointer
        return [
            f"KERNEL(hipgraphdsl_copy), dim3({launch.grid[0]}), dim3({launch.block[0]}), 0, (unsigned char*)(", *at(dst),
            "), (const unsigned char*)(", *at(src), f"), uint64_t({wide}), uint64_t({rest})",
        ]  # fmt: skip

    def _filled(self, node: MemsetNode, fill: Fill2D, scope: Scope) -> list[Piece]:
        if isinstance(node.value, Parameter):
            word = f"bits({scope.values[node.value]})"
        elif fill.element_size == node.dst.dtype.itemsize > 1:
            element = fill.value.to_bytes(fill.element_size, "little")
            word = f"bits({self.program.scalar(element, node.dst.dtype)})"
        else:
            word = f"{fill.value:#x}" if fill.value else "0"
        box = f", {fill.height}, {fill.pitch_bytes}" if fill.height > 1 else ""
        return [*self.program.handles.pointer(fill.dst), f", {fill.element_size}, {word}, {fill.width}{box}"]

    def _filled_by_kernel(self, node: MemsetNode, launch: Launch, scope: Scope) -> list[Piece]:
        dst, count, item, *numbers = launch.packer.unpack(launch.packed)
        counts, strides, words = numbers[:3], numbers[3:7], numbers[7:]
        if isinstance(node.value, Parameter):
            value = scope.values[node.value]
        else:
            value = self.program.scalar(np.array(words, "<u8").tobytes()[:item], node.dst.dtype)
        listed = f"{', '.join(map(str, counts))}}}, {{{', '.join(map(str, strides))}"
        return [*self.program.handles.pointer(dst), f", {value}, {item}, Fill{{{count}, {{{listed}}}}}"]


def _spelled(parameter: KernelParameter, ctype: str) -> str:
    """Return the type of an argument as a kernel declares it, where that is one of the usual ones."""
    return "size_t" if parameter.ctype == "size_t" else ctype


def _call(function: str, arguments: Sequence[Sequence[Piece]]) -> list[Piece]:
    pieces: list[Piece] = [f"{function}("]
    for k, argument in enumerate(arguments):
        pieces += [", "] if k else []
        pieces += argument
    return [*pieces, ")"]


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of a function that the user writes."""

    name: str
    ctype: str
    mode: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: np.dtype[Any] | None = None


@dataclass(slots=True)
class Function:
    """A function that the user writes."""

    identifier: str
    fn: Any
    captured: bool
    given: list[Given]
    left: list[str]
    nodes: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        """Return the function, empty but for a line that says so, under its Python source."""
        names = Names(set(KEYWORDS) | {"stream"})
        arguments = ["hipStream_t stream"] if self.captured else []
        about = []
        for given in self.given:
            name = names.new(given.name)
            if given.dtype is None:
                arguments.append(f"{given.ctype} {name}")
                continue
            const = "const " if given.mode == "read" else ""
            arguments.append(f"{const}{given.ctype}* {name}")
            item = given.dtype.itemsize
            dense = given.strides == _dense(given.shape, item)
            strides = "" if dense else f", strides in elements {shape_text(tuple(s // item for s in given.strides))}"
            what = {"read": "only read", "write": "overwritten", "update": "read and written"}[given.mode]
            about.append(f"{name}: {dtype_name(given.dtype)}, shape {shape_text(given.shape)}{strides}; {what}")
        shown = ", ".join(repr(node) for node in self.nodes[:4]) + (", ..." if len(self.nodes) > 4 else "")
        when = "put what you like on the stream: it becomes part of the graph" if self.captured else "runs on the host"
        lines = [f"Of node{'s' * (len(self.nodes) > 1)} {shown}; {when}.", *about, *self.left]
        source = _python(self.fn)
        lines += ["", "In Python:", "", *(f"    {line}" for line in source)]
        return [
            *comment("\n".join(lines)),
            f"static void {self.identifier}({', '.join(arguments)}) {{",
            f"  NOT_WRITTEN({quoted(callable_name(self.fn))});  // your code in place of this line",
            "}",
            "",
        ]


def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def _python(fn: Any) -> list[str]:
    """Return the source of a callback, or what is known of it; nothing is imported for that."""
    if isinstance(fn, UnboundCallback):
        return [f"{fn.path}, whose source the workflow's file does not hold"]
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return [f"{callable_name(fn)}, whose source is not at hand"]
    lines = text.splitlines()
    return lines if len(lines) <= 200 else [*lines[:200], f"... and {len(lines) - 200} lines more"]


def argument_names(node: HostNode | CapturedNode) -> list[str]:
    """Return the names of a callback's arguments, as far as they are known."""
    if isinstance(node.fn, UnboundCallback):
        return []
    try:
        parameters = list(inspect.signature(node.fn).parameters.values())
    except (TypeError, ValueError):
        return []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[1:] if isinstance(node, CapturedNode) else names


def plain_value(value: Any) -> tuple[str, str | None] | None:
    """Return the type of a value, and its text where it cannot differ from node to node of a loop; None for no C++ value."""
    if isinstance(value, (bool, np.bool_)):
        return "bool", None
    if type(value) is int:
        if -(2**31) <= value < 2**31:
            return "int", None
        return ("int64_t", None) if -(2**63) <= value < 2**63 else ("uint64_t", None) if 0 <= value < 2**64 else None
    if type(value) is float:
        return "double", None
    if type(value) is str:
        return "const char*", quoted(value)
    if isinstance(value, np.generic) and is_plain(value.dtype):
        return ctype_of(value.dtype), literal_of(value.tobytes(), value.dtype)
    return None
