"""A HIP C++ program of its own: kernels, arrays, the graph node by node or captured, options, files and timing.

Data flow: `Workflow` -> `Plan` (the one that the backends lower) -> one `_Statement` a step, text with holes for what may differ
from step to step -> stretches of statements that differ only in their holes become loops -> the program. A hole in a loop is
what it always is, a term of the loop's counter, or an entry of a table.
"""

from __future__ import annotations

import io
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..arrays import Access, AllocArray, Array, ArrayView, ExternalArray, Parameter, UnboundValues
from ..defects import with_quirks
from ..errors import DeclarationError
from ..kernels import Symbol
from ..nodes import AllocNode, CapturedNode, Event, FreeNode, HostNode, UnboundCallback, callable_name, element_bytes
from ..placement import devices_of, rewritten
from ..plan import Lanes, Plan, make_plan
from ..source import is_bfloat16
from ..target import Target
from ..workflow import ChildGraphNode, Workflow
from .fold import find_repeats
from .hip_kernels import HEADERS, Kernels
from .hip_parts import FIXED_NAMES, INCLUDES, PARTS, cuda_names, needed_parts
from .hip_steps import Body, Function, Given, Handles, Memory, Scope, argument_names, plain_value
from .hip_text import (
    DECLARED,
    KEYWORDS,
    Hole,
    Loop,
    Names,
    Piece,
    Statement,
    aligned,
    bytes_of,
    comment,
    ctype_of,
    dtype_name,
    is_exact,
    is_plain,
    literal_of,
    quoted,
    section,
    shape_text,
    without_double_blanks,
    wrapped,
)
from .style import human_bytes

__all__ = ["companions", "render"]
_INLINE: Final = 64
"""Values of an array that stand in the program; more are read from a file."""
_PART: Final = 400
"""Statements of one function: compilers take much longer for longer ones."""


def render(
    workflow: Workflow, *, backend: str = "explicit", target: str = "amd:gfx942", lanes: Lanes = "auto", stem: str = ""
) -> str:
    """Return a workflow as a HIP C++ program.

    Parameters
    ----------
    backend : {"explicit", "capture"}
        Whether the program builds the graph node by node, or records it from streams.
    target : str
        The device that is planned for.
    lanes : "auto", int or None
        As for `Graph.compile`.
    stem : str
        Beginning of the names of the files that the program reads; the file's own name where it is exported.

    Raises
    ------
    DeclarationError
        If there is no such backend or target, or a node cannot stand in a program; the message names it and says what to do.
    """
    return Program(workflow, backend, target, lanes, stem).text()


def companions(workflow: Workflow, *, stem: str, **options: Any) -> dict[str, bytes]:
    """Return the ``.npy`` files that the program reads, by name: the first values of arrays that have no short form."""
    return Program(workflow, **{"backend": "explicit", "target": "amd:gfx942", "lanes": "auto", **options}, stem=stem).files()


@dataclass(frozen=True, slots=True)
class _Storage:
    """An array that the program owns."""

    name: str
    identifier: str
    array: Array


class Program:
    """One program: what it owns, what it names, and the text of its parts."""

    def __init__(self, workflow: Workflow, backend: str, target: str, lanes: Lanes, stem: str) -> None:
        if backend not in ("explicit", "capture"):
            raise DeclarationError(f"a .hip program's backend is 'explicit' or 'capture' (got {backend!r})")
        self.workflow = workflow
        self.capture = backend == "capture"
        self.target = Target.named(target)
        self.quirks = with_quirks(self.target).quirks
        self.lanes = lanes
        _require_one_device(workflow)
        self.stem = re.sub(r"[^\w.-]", "_", stem or workflow.name, flags=re.ASCII)
        self.parts: set[str] = {"run"}
        self.kernels = Kernels(workflow)
        self.fixed = FIXED_NAMES | self.kernels.names | KEYWORDS
        self.names = Names(self.fixed)
        self.storage: list[_Storage] = []
        self.aliases: list[tuple[_Storage, str]] = []
        self.temporaries: list[_Storage] = []
        self.parameters: list[tuple[str, str, Parameter]] = []  # option, identifier
        self.symbols: dict[Symbol, str] = {}
        self.events: dict[str, str] = {}
        self.functions: dict[Any, Function] = {}
        self.children: dict[Any, str] = {}
        self.builders: list[list[str]] = []
        self.tables: list[str] = []
        self.outer: set[str] = set()
        """Functions, events and variables of the device: what the functions that build graphs mention."""
        self.scope = self._own(workflow, ())
        self.handles = Handles(self)

    @cached_property
    def plan(self) -> Plan:
        """The steps, which the files beside the program do not need."""
        return make_plan(self.workflow, self.target, lanes=self.lanes, inline=self.capture)

    # -- storage -----------------------------------------------------------------------------------------------------------

    def _own(self, workflow: Workflow, path: tuple[str, ...], node: ChildGraphNode | None = None) -> Scope:
        """Declare what a workflow and its children own, except for what `node` binds."""
        prefix = "".join(f"{name}/" for name in path)
        scope = Scope(prefix=prefix)
        bound = node.bind if node is not None else {}
        for array in workflow.arrays.values():
            if array.name in bound or isinstance(array, Symbol):
                continue
            storage = _Storage(prefix + array.name, self.names.new(prefix + array.name, "array"), array)
            if isinstance(array, AllocArray):
                self.temporaries.append(storage)
            elif isinstance(array, ExternalArray):
                self._external(storage)
            else:
                self.storage.append(storage)
            scope.memory[array] = Memory(storage.identifier, 0, array)
        for parameter in workflow.parameters.values():
            if parameter.name in bound:
                continue
            if parameter.copy:
                raise DeclarationError(
                    f"parameter {prefix + parameter.name!r} copies the values of each launch (copy=True), and no option of a"
                    " program gives values of an array; use a host array",
                    array=parameter.name,
                )
            identifier = self.names.new(prefix + parameter.name, "parameter")
            self.parameters.append((prefix + parameter.name, identifier, parameter))
            if parameter.shape:
                scope.memory[parameter] = Memory(identifier, 0, parameter)
            else:
                scope.values[parameter] = identifier
        for child in workflow.nodes:
            if isinstance(child, ChildGraphNode):
                inner = self._own(child.workflow, (*path, child.name), child)
                for root, memory in inner.memory.items():
                    scope.below[(child.name,), root] = memory
                for parameter, value in inner.values.items():
                    scope.below[(child.name,), parameter] = value
                for (names, root), found in inner.below.items():
                    scope.below[(child.name, *names), root] = found
        return scope

    def _external(self, storage: _Storage) -> None:
        """Take external memory over: as an array with its values as they are now."""
        array = storage.array
        assert isinstance(array, ExternalArray)
        if array.obj is None or array.location != "host":
            what = "device memory" if array.obj is not None else "memory that nobody has supplied"
            raise DeclarationError(
                f"external array {storage.name!r} is {what}, which a standalone program does not have; declare it as"
                " device_array or host_array, and the program reads it from a file",
                array=storage.name,
            )
        first, last = array.pointer, array.pointer + array.nbytes
        for other in self.storage:
            if isinstance(other.array, ExternalArray) and other.array.obj is not None:
                start, stop = other.array.pointer, other.array.pointer + other.array.nbytes
                if first >= stop or last <= start:
                    continue
                offset = first - start
                if last <= stop and offset >= 0 and array.dtype == other.array.dtype and not offset % array.dtype.itemsize:
                    at = f"{other.identifier} + {offset // array.dtype.itemsize}"
                    self.aliases.append((storage, at))
                    return
                raise DeclarationError(
                    f"external arrays {other.name!r} and {storage.name!r} share bytes in a way that a program cannot declare;"
                    " declare the one that holds both first, or one array with views",
                    array=storage.name,
                )
        self.storage.append(storage)

    def child_scope(self, node: ChildGraphNode, outer: Scope) -> Scope:
        """Return what the names inside a child stand for, said in the scope around it."""
        inner = Scope(prefix=f"{outer.prefix}{node.name}/")
        workflow: Workflow = node.workflow
        for array in workflow.arrays.values():
            if array.name in node.bind and not isinstance(array, AllocArray):
                inner.memory[array] = self._bound(node.bind[array.name], outer)
            elif ((node.name,), array) in outer.below:
                inner.memory[array] = outer.below[(node.name,), array]
        for parameter in workflow.parameters.values():
            value = node.bind.get(parameter.name)
            if parameter.name not in node.bind:
                found = outer.below[(node.name,), parameter]
                (inner.memory if parameter.shape else inner.values)[parameter] = found
            elif parameter.shape:
                inner.memory[parameter] = self._bound(node.bind[parameter.name], outer)
            elif isinstance(value, Parameter):
                inner.values[parameter] = outer.values[value]
            else:
                where = f"node {outer.prefix + node.name!r}"
                inner.values[parameter] = self.scalar(element_bytes(value, parameter.dtype, where), parameter.dtype)
        for (names, root), found in outer.below.items():
            if len(names) > 1 and names[0] == node.name:
                inner.below[names[1:], root] = found
        return inner

    def _bound(self, view: ArrayView, scope: Scope) -> Memory:
        found = self.memory(view.root, scope)
        return Memory(found.expression, found.offset + view.offset_bytes // view.dtype.itemsize, found.owner)

    def memory(self, root: Any, scope: Scope) -> Memory:
        """Return what an array, symbol or array parameter is in the program."""
        if isinstance(root, Symbol):
            name = self.symbols.get(root)
            if name is None:
                name = self.symbols[root] = self._outer(root.name, "symbol")
            return Memory(name, 0, root)
        return scope.memory[root]

    def pointer(self, view: ArrayView, scope: Scope) -> list[Piece]:
        """Return the address of a view's first element."""
        memory = self.memory(view.root, scope)
        offset = memory.offset + view.offset_bytes // view.dtype.itemsize
        return [memory.expression, Hole("offset", offset, hint="offset")]

    def scalar(self, data: bytes, dtype: np.dtype[Any]) -> str:
        """Return one value, given by its bytes, as C++; note what it needs."""
        text = literal_of(data, dtype)
        if text.startswith("Bytes"):
            self.parts.add("Bytes")
        return text

    def _type(self, dtype: np.dtype[Any]) -> str:
        ctype = ctype_of(dtype)
        if ctype.startswith("Bytes"):
            self.parts.add("Bytes")
        return ctype

    # -- values of arrays --------------------------------------------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """Return the files that hold the first values of arrays with many."""
        found = {}
        for storage in self.storage:
            values = _values(storage.array)
            if isinstance(values, np.ndarray) and self._short_form(storage, values) is None:
                file = io.BytesIO()
                np.save(file, values.view(_stored(values.dtype)), allow_pickle=False)
                found[self._file(storage)] = file.getvalue()
        return found

    def _file(self, storage: _Storage) -> str:
        return f"{self.stem}.{storage.identifier}.npy"

    def _short_form(self, storage: _Storage, values: np.ndarray[Any, Any]) -> list[str] | None:
        """Return the statement that gives an array these values, or None where a file must."""
        name, dtype = storage.identifier, values.dtype
        flat = np.ascontiguousarray(values).reshape(-1)
        data = flat.view(f"V{dtype.itemsize}")
        if not flat.tobytes().strip(b"\0"):
            return []
        if not is_exact(flat):
            return None
        count = flat.size

        def element(k: int) -> str:
            return self.scalar(flat[k : k + 1].tobytes(), dtype)

        period = _period(data)
        if period == 1:
            self.parts.add("set")
            return [f"set({name}, {count}, [](size_t) {{ return {element(0)}; }});"]
        line = flat[:period]
        if period > 2 and dtype.kind in "iuf" and not is_bfloat16(dtype) and dtype.itemsize > 2:
            ctype = self._type(dtype)
            first, step, last = line[0], line[1].item() - line[0].item(), line[-1].item()
            if dtype.kind == "f":
                most = 2**24 if dtype.itemsize == 4 else 2**52
                exact = period < most and all(float(x).is_integer() and abs(x) < 2**24 for x in (first.item(), step, last))
            else:  # no part of the sum may overflow, which C++ leaves undefined for signed integers
                span = step * (period - 1)
                exact = first.item() + span == last and (dtype.kind == "u" or abs(span) <= np.iinfo(dtype).max)
            if exact and (dtype.kind != "u" or step > 0):
                # What C++ computes there: in the element's own type, from exact integers.
                made = first + np.arange(period, dtype=dtype) * dtype.type(step)
                if made.tobytes() == line.tobytes():
                    self.parts.add("set")
                    at = "i" if period == count else f"i % {period}"
                    factor = "" if step == 1 else f" * {self.scalar(np.array(step, dtype).tobytes(), dtype)}"
                    term = f"{ctype}({at}){factor}"
                    start = "" if first == 0 and not np.signbit(first) else f"{element(0)} + "
                    return [f"set({name}, {count}, [](size_t i) {{ return {ctype}({start}{term}); }});"]
        if period <= _INLINE:
            self.parts.add("set_list")
            listed = ", ".join(element(k) for k in range(period))
            text = f"set_list({name}, {count}, {{{listed}}});"
            return textwrap.wrap(text, 116, subsequent_indent="    ", break_long_words=False)
        return None

    # -- statements --------------------------------------------------------------------------------------------------------

    def _builder(self, plan: Plan, scope: Scope, names: Names, head: list[str], parts: list[list[str]] | None) -> list[str]:
        """Return the lines that add a plan's steps; where there are very many, functions of them are put into `parts`."""
        body = Body(self, plan, scope, names)
        statements = body.statements()
        repeats = find_repeats([s.template for s in statements], [()] * len(statements), least_count=3, least_saving=4)
        items: list[list[str]] = []
        at = 0
        for repeat in (*repeats, None):
            stop = repeat.start if repeat is not None else len(statements)
            items += [statement.plain().split("\n") for statement in statements[at:stop]]
            if repeat is None:
                break
            start, count = aligned(statements, repeat)
            items += [statement.plain().split("\n") for statement in statements[repeat.start : start]]
            rows = [statements[start + k * repeat.period : start + (k + 1) * repeat.period] for k in range(count)]
            self._use_labels(rows)
            self.names.used |= names.used
            loop = Loop(rows, self.names)
            items.append(["", *loop.text(), ""])
            self.tables += loop.tables
            at = start + count * repeat.period
        outside = len(items) > _PART and parts is not None
        declared = body.declarations(outside)
        kind = "" if outside else "const Mark " if self.capture else "const hipGraphNode_t "
        items = [[short for line in item for short in wrapped(line.replace(DECLARED, kind))] for item in items]
        if not outside or parts is None:
            return without_double_blanks([*head, *declared, *(line for item in items for line in item)])
        parts.append(["// What later nodes wait for.", *(f"static {line}" for line in declared), ""])
        calls = []
        given = "hipStream_t* stream" if self.capture else "hipGraph_t graph"
        for k in range(0, len(items), _PART):
            name = self._outer(f"part_{k // _PART + 1}", "of_graph")
            lines = [line for item in items[k : k + _PART] for line in item]
            body_lines = (f"  {line}" if line else "" for line in without_double_blanks(lines))
            parts.append([f"static void {name}({given}) {{", *body_lines, "}", ""])
            calls.append(f"{name}({given.rpartition(' ')[2].lstrip('*')});")
        return [*head, *calls]

    def _use_labels(self, rows: list[list[Statement]]) -> None:
        if any(a.value != b.value for s, t in zip(rows[0], rows[1]) for a, b in zip(s.holes, t.holes) if a.kind == "label"):
            self.parts.add("label")

    def child_graph(self, plan: Plan, node: ChildGraphNode, outer: Scope) -> str:
        """Return the call that makes the graph of a child; its function is made once for all children of one form."""
        inner = self.child_scope(node, outer)
        things: list[tuple[str, Any]] = []  # argument, what it is inside
        arguments: list[tuple[Any, Any]] = [
            *inner.memory.items(), *inner.values.items(), *((key, value) for key, value in inner.below.items()),
        ]  # fmt: skip
        sides = tuple(m.host if isinstance(m, Memory) else None for _, m in arguments)
        key = (id(plan), sides)
        for _, found in arguments:
            if isinstance(found, Memory):
                things.append((f"{found.expression} + {found.offset}" if found.offset else found.expression, found))
            else:
                things.append((found, found))
        function = self.children.get(key)
        if function is None:
            function = self.children[key] = self._outer(f"build_{plan.workflow.name}", "graph")
            names = Names(self.fixed)
            scope = Scope(prefix=f"{plan.workflow.name}/")
            parameters = []
            for thing, found in arguments:
                path, root = thing if isinstance(thing, tuple) else ((), thing)
                name = names.new("_".join((*path, root.name)))
                ctype = self._type(root.dtype)
                value: Any
                if isinstance(found, Memory):
                    parameters.append(f"{ctype}* {name}")
                    value = Memory(name, 0, found.owner)
                else:
                    parameters.append(f"{ctype} {name}")
                    value = name
                if path:
                    scope.below[path, root] = value
                elif isinstance(value, Memory):
                    scope.memory[root] = value
                else:
                    scope.values[root] = value
            head = ["hipGraph_t graph;", f"CHECK(hipGraphCreate(&graph, 0), {quoted(node.name)});"]
            lines = self._builder(plan, scope, names, head, None)
            self.builders.append(
                [
                    *comment(f"Child graph {plan.workflow.name}"),
                    f"static hipGraph_t {function}({', '.join(parameters)}) {{",
                    *(f"  {line}" if line else "" for line in lines),
                    "  return graph;",
                    "}",
                    "",
                ]
            )
        return f"{function}({', '.join(text for text, _ in things)})"

    def _outer(self, wish: str, suffix: str) -> str:
        name = self.names.new(wish, suffix)
        self.outer.add(name)
        return name

    def event(self, event: Event, node: str) -> str:
        """Return the name of an event."""
        if event.handle is not None:
            raise DeclarationError(
                f"node {node!r}: event {event.name!r} is a handle of this process; declare the event by its name", node=node
            )
        known = self.events.get(event.name)
        if known is None:
            known = self.events[event.name] = self._outer(event.name, "event")
        return known

    def function(self, node: HostNode | CapturedNode, scope: Scope, name: str) -> tuple[Function, list[list[Piece]]]:
        """Return the function that the user fills in, and the arguments of one call."""
        given: list[Given] = []
        arguments: list[list[Piece]] = []
        left: list[str] = []
        modes = {access.view: access.mode for access in node.access}
        labels = argument_names(node)
        for k, arg in enumerate(node.args):
            value = arg.view if isinstance(arg, Access) else arg
            label = labels[k] if k < len(labels) else ""
            if isinstance(value, ArrayView):
                mode = arg.mode if isinstance(arg, Access) else modes.get(value, "read")
                root = value.root.name
                given.append(Given(label or root, self._type(value.dtype), mode, value.shape, value.strides, value.dtype))
                arguments.append(self.pointer(value, scope))
            elif isinstance(value, Parameter):
                given.append(Given(label or value.name, self._type(value.dtype)))
                arguments.append([scope.values[value]])
            elif (typed := plain_value(value)) is not None:
                given.append(Given(label or f"value{k}", typed[0]))
                arguments.append([Hole("value", value, typed[0], label) if typed[1] is None else typed[1]])
            else:
                left.append(f"{label or f'argument {k}'} was {type(value).__name__} {value!r:.200}")
        fn = node.fn
        shapes = tuple((g.ctype, g.mode, g.shape, g.strides) for g in given)
        key = (type(node), fn.path if isinstance(fn, UnboundCallback) else id(fn), shapes, tuple(left))
        known = self.functions.get(key)
        if known is None:
            identifier = self._outer(callable_name(fn), "function")
            known = self.functions[key] = Function(identifier, fn, isinstance(node, CapturedNode), given, left)
        known.nodes.append(name)
        return known, arguments

    # -- the program -------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        build = self._capture_function() if self.capture else self._explicit_function()
        own = self._own_things()
        functions = [line for f in self.functions.values() for line in f.text()]
        declarations = self._declarations()
        self._use_parts([*declarations, *functions, *build, *own])
        kernels = self.kernels.text(self.symbols)
        parts: dict[str, list[str]] = {}
        for part in needed_parts(self.parts):
            parts.setdefault(part.section, []).extend((*part.lines, ""))
        helpers, files = parts.values()
        inner = "\n".join([*helpers, *declarations, *files, *functions, *build, *own, *kernels])
        shim = cuda_names(inner, "\n".join(kernels), any(f.captured for f in self.functions.values()))
        lines = [
            *self._head(),
            *_includes(shim, "add_memory_ops" in self.parts, self.kernels.headers),
            *kernels,
            "namespace program {",
            "",
            "static int device = 0;  // that everything runs on: --device N",
            *section("Errors and helpers"),
            *helpers,
            *declarations,
            *(section("Functions for you to write") if functions else []),
            *functions,
            *section("The graph"),
            *(["// What differs from node to node in loops.", *self.tables, ""] if self.tables else []),
            *build,
            *section("Files and options"),
            *files,
            *section("Before and after"),
            *own,
            "}  // namespace program",
            "",
            "int main(int argc, char** argv) { return program::run(program::itself, argc, argv); }",
            "",
        ]
        return "\n".join(line.rstrip() for line in without_double_blanks(lines)) + "\n"

    def _use_parts(self, lines: list[str]) -> None:
        """Note the helpers that the program's own lines mention."""
        text = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
        self.parts |= set(re.findall(r"\b[A-Za-z_]\w*(?=[({<])", text)) & set(PARTS)
        if {"add_fill", "fill_on"} & self.parts:
            self.kernels.built_in.add("hipgraphdsl_fill")
        if "KERNEL(hipgraphdsl_copy)" in text:
            self.kernels.built_in.add("hipgraphdsl_copy")

    def _head(self) -> list[str]:
        name, stem, steps = self.workflow.name, self.stem, len(self.plan.steps)
        how = "recorded from streams" if self.capture else "built node by node"
        extra = "".join(f" {shlex.quote(option)}" for option in self.kernels.flags)
        cuda = " -lcuda" if "add_memory_ops" in self.parts else ""
        own = "".join(f" --cxx-option={shlex.quote(option)}" for option in self.kernels.flags)
        lines = [
            name,
            "",
            f"A HIP graph of {steps} node{'s' * (steps != 1)}, {how}, as a program of its own. Written by hipgraphdsl.",
            "",
            f"  AMD GPUs     hipcc -std=c++17 -O2{extra} {stem}.hip -o {stem}",
            f"  NVIDIA GPUs  nvcc -std=c++17 -O2 -arch=native{extra} -x cu {stem}.hip -o {stem}{cuda}",
            f"  any CPU      hipgraphdsl build {stem}.hip -o {stem}{own}",
            "",
            f"./{stem} --help says which options it takes; --repeat 100 measures it.",
        ]
        if self.functions:
            lines += ["", "Its host functions are yours to write: look for NOT_WRITTEN."]
        files = self.files()
        if files:
            lines += ["", f"It reads {', '.join(files)} from the current folder, or from --data-dir."]
        return [*comment("\n".join(lines)), ""]

    @cached_property
    def _rewritten(self) -> set[Array]:
        return rewritten(self.workflow)

    def _locked(self, array: Array) -> bool:
        """Return whether host memory is page-locked: drivers may read pageable memory before nodes have written it."""
        return getattr(array, "pinned", True) or array in self._rewritten

    def _declarations(self) -> list[str]:
        lines = section("Arrays")
        width = max((len(self._type(s.array.dtype)) + len(s.identifier) for s in (*self.storage, *self.temporaries)), default=0)
        for storage in (*self.storage, *(s for s, _ in self.aliases), *self.temporaries):
            array = storage.array
            ctype = self._type(array.dtype)
            place = "device memory"
            if isinstance(array, AllocArray):
                place = "made and freed inside the graph"
            elif array.on_host:
                place = "page-locked host memory" if self._locked(array) else "host memory"
            named = f"{storage.name}: " if storage.name != storage.identifier else ""
            said = comment(f"{named}{dtype_name(array.dtype)}{list(array.shape)}, {human_bytes(array.nbytes)}, {place}")[0]
            gap = " " * (width - len(ctype) - len(storage.identifier))
            lines.append(f"static {ctype}* {storage.identifier};{gap}  {said}")
        if self.symbols:
            lines += ["", "// Variables of the device: their addresses."]
            lines += [f"static {self._type(s.dtype)}* {name};" for s, name in self.symbols.items()]
        lines += [
            "",
            "static const std::vector<Array> arrays = {",
        ]
        for storage in self.storage:
            array = storage.array
            place = "DEVICE" if not array.on_host else "PINNED" if self._locked(array) else "PAGEABLE"
            file = quoted(self._file(storage)) if self._from_file(storage) else "nullptr"
            lines.append(
                f"    {{{quoted(storage.name)}, (void**)&{storage.identifier}, {bytes_of(array)}, {place},"
                f" {quoted(_descr(array.dtype))}, {quoted(shape_text(array.shape))}, {file}}},"
            )
        lines += ["};", ""]
        if self.parameters:
            lines += section("Parameters, which are options of the program")
            for option, identifier, parameter in self.parameters:
                ctype = self._type(parameter.dtype)
                if parameter.shape:
                    lines.append(f"static {ctype}* {identifier};  {comment(f'--{option}: the name of an array')[0]}")
                    continue
                default = self._default(option, parameter)
                said = "" if _is_option(parameter) else "  // change it here: no option can say such a value"
                lines.append(f"static {ctype} {identifier} = {default};{said}")
            lines.append("")
        if self.events:
            lines += section("Events")
            lines += [f"static hipEvent_t {name};  {comment(event)[0]}" for event, name in self.events.items()] + [""]
        return lines

    def _default(self, option: str, parameter: Parameter) -> str:
        if parameter.default is not None:
            return self.scalar(element_bytes(parameter.default, parameter.dtype, f"parameter {option!r}"), parameter.dtype)
        if not _is_option(parameter):
            raise DeclarationError(
                f"parameter {option!r} of {dtype_name(parameter.dtype)} has no default, and no option of a program can give such"
                " a value; declare a default",
                array=option,
            )
        return f"{self._type(parameter.dtype)}()"

    def _from_file(self, storage: _Storage) -> bool:
        values = _values(storage.array)
        return isinstance(values, UnboundValues) or (isinstance(values, np.ndarray) and self._short_form(storage, values) is None)

    def _explicit_function(self) -> list[str]:
        parts: list[list[str]] = []
        lines = self._builder(self.plan, self.scope, self.names, [], parts)
        return [
            *(line for block in self.builders for line in block),
            *(line for block in parts for line in block),
            "static hipGraph_t build_graph() {",
            "  hipGraph_t graph;",
            '  CHECK(hipGraphCreate(&graph, 0), "");',
            "",
            *(f"  {line}" if line else "" for line in lines),
            "  return graph;",
            "}",
            "",
        ]

    def _capture_function(self) -> list[str]:
        parts: list[list[str]] = []
        lines = self._builder(self.plan, self.scope, self.names, [], parts)
        count = max(len(self.plan.lanes), 1)
        text = "\n".join((*lines, *(line for block in parts for line in block)))
        fork: list[str] = []
        join: list[str] = []
        if count > 1:
            fork = [
                "// The other streams come into the capture by waiting for an event of the first.",
                "hipEvent_t event;",
                'CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming), "");',
                'CHECK(hipEventRecord(event, stream[0]), "");',
                f'for (int i = 1; i < {count}; ++i) CHECK(hipStreamWaitEvent(stream[i], event, 0), "");',
                "",
            ]
            join = [
                "",
                "// The first stream waits for all others, which ends the capture of them all.",
                f"for (int i = 1; i < {count}; ++i) {{",
                '  CHECK(hipEventRecord(event, stream[i]), "");',
                '  CHECK(hipStreamWaitEvent(stream[0], event, 0), "");',
                "}",
            ]
        tidy = ['CHECK(hipEventDestroy(event), "");'] if count > 1 else []
        loads = [f"load(KERNEL({name}));" for name in self._launched_kernels(text)]
        body = [
            *(["// A kernel is loaded when it is first used, which a capture may forbid."] if loads else []),
            *loads,
            f"hipStream_t stream[{count}];",
            'for (hipStream_t& each : stream) CHECK(hipStreamCreateWithFlags(&each, hipStreamNonBlocking), "");',
            'CHECK(hipStreamBeginCapture(stream[0], hipStreamCaptureModeThreadLocal), "");',
            *fork,
            *lines,
            *join,
            "hipGraph_t graph;",
            'CHECK(hipStreamEndCapture(stream[0], &graph), "");',
            *tidy,
            'for (hipStream_t each : stream) CHECK(hipStreamDestroy(each), "");',
            "return graph;",
        ]
        return [
            *(line for block in parts for line in block),
            "static hipGraph_t build_graph() {",
            *(f"  {line}" if line else "" for line in body),
            "}",
            "",
        ]

    def _launched_kernels(self, text: str) -> list[str]:
        names = dict.fromkeys(self.kernels.used)
        if "fill_on(" in text or "add_fill(" in text:
            names["hipgraphdsl_fill"] = None
        if "KERNEL(hipgraphdsl_copy)" in text:
            names["hipgraphdsl_copy"] = None
        return list(names)

    def _own_things(self) -> list[str]:
        """Return what the shared `run` needs of this program: first values, options and their help, events."""
        first = [f"{storage.identifier} = {at};" for storage, at in self.aliases]
        first += [f"SYMBOL({self.kernels.reference(s)}, {name});" for s, name in self.symbols.items()]
        for storage in self.storage:
            values = _values(storage.array)
            if isinstance(values, np.ndarray):
                first += self._short_form(storage, values) or []
        first += [f'CHECK(hipEventCreate(&{name}), "");' for name in self.events.values()]
        options, told = [], []
        for (option, identifier, parameter), flag in zip(self.parameters, _options(self.parameters)):
            default = parameter.default
            if parameter.shape:
                default = getattr(default, "name", default)
                told.append(f"  {flag} NAME  the array that stands for parameter {option} (default: {default})")
                options.append(f"array_option({quoted(flag)}, {identifier}, {parameter.nbytes}, {quoted(str(default or ''))})")
            elif _is_option(parameter):
                said = "none, so it must be given" if default is None else f"default: {default}"
                told.append(f"  {flag} VALUE  {dtype_name(parameter.dtype)} ({said})")
                options.append(f"value_option({quoted(flag)}, {identifier}{', true' if default is None else ''})")
        names = [f"  {s.name}: {dtype_name(s.array.dtype)}{list(s.array.shape)}" for s in self.storage]
        text = [f"usage: {self.stem} [options]", "", *told, *_USAGE, "", "arrays:", *names]
        kinds = [type(step.node) for step in self.plan.steps]
        flags = "hipGraphInstantiateFlagAutoFreeOnLaunch" if kinds.count(AllocNode) > kinds.count(FreeNode) else "0"
        return [
            "// Gives arrays their first values; an array without any holds zeros.",
            "static void initialise() {",
            *(f"  {line}" for line in first),
            "}",
            "",
            "static const Program itself = {",
            *(f'    {quoted(line)[:-1]}\\n"' for line in text[:-1]),
            f'    {quoted(text[-1])[:-1]}\\n",',
            "    arrays, {" + ",\n    ".join(options) + f"}}, initialise, build_graph, {flags}}};",
            "",
        ]


_USAGE: Final = [
    "  --in NAME=FILE.npy    first values of an array",
    "  --out NAME=FILE.npy   write an array after the last launch",
    "  --out-dir DIR         write every array there, each as NAME.npy",
    "  --data-dir DIR        where the program's own .npy files are (default: the current folder)",
    "  --repeat N            launches (default: 1); each goes on from what the one before has left",
    "  --warm-up N           launches before those that are measured (default: 0)",
    "  --device N            the device that it runs on (default: 0)",
    "  --quiet               print nothing but errors",
]


def _includes(shim: list[str], driver: bool, headers: list[str]) -> list[str]:
    cuda = ["#include <cuda.h>"] * driver + ["#include <cuda_runtime.h>"]
    cuda += [f"#include <{HEADERS[name][0]}>" for name in headers]
    return [
        "#if defined(__CUDACC__)  // HIP's names on CUDA: those that stand below",
        *dict.fromkeys(cuda),
        *shim,
        "#else",
        "#include <hip/hip_runtime.h>",
        *(["#if !defined(HIP_CPU)", *(f"#include <{name}>" for name in headers), "#endif"] if headers else []),
        "#endif",
        "",
        *INCLUDES,
        "",
    ]


def _require_one_device(workflow: Workflow) -> None:
    """Refuse a workflow that runs on several devices, or names another than the first; say what does so."""
    devices = devices_of(workflow, 0)
    if len(devices) == 1:
        return
    for name, device in _placed(workflow):
        if device:
            raise DeclarationError(
                f"{name} is on device {device}, and an exported program runs on one, which its option --device chooses; leave"
                " device= out of arrays and nodes"
            )


def _placed(workflow: Workflow) -> Iterator[tuple[str, int]]:
    """Yield what names a device, in words, and the device; children's included."""
    for array in workflow.arrays.values():
        if array.device is not None:
            yield f"array {array.name!r}", array.device
    for node in workflow.nodes:
        own = getattr(node, "device", None)
        if own is not None:
            yield f"node {node.name!r}", own
        inner = (node.workflow,) if isinstance(node, ChildGraphNode) else getattr(node, "bodies", ())
        for child in inner:
            yield from _placed(child)


def _values(array: Array) -> Any:
    """Return the first values of an array: NumPy's, or None."""
    if isinstance(array, ExternalArray):
        return np.asarray(array.obj)
    return getattr(array, "initial", None)


def _period(data: np.ndarray[Any, Any]) -> int:
    """Return after how many elements values begin again, up to a limit; the number of all where they do not."""
    count = data.size
    limit = min(4096, count // 2)
    if limit:
        head = data[: limit + 1]
        for k in np.flatnonzero(head[1:] == head[0])[:64]:
            period = int(k) + 1
            if data[period:].tobytes() == data[:-period].tobytes():
                return period
    return int(count)


def _is_option(parameter: Parameter) -> bool:
    """Return whether an option can say a value of it."""
    return bool(parameter.shape) or is_plain(parameter.dtype)


def _options(parameters: Sequence[tuple[str, str, Parameter]]) -> list[str]:
    own = {"--in", "--out", "--out-dir", "--data-dir", "--repeat", "--warm-up", "--quiet", "--help", "--device"}
    return [f"--{name}" if f"--{name}" not in own else f"--param-{name}" for name, _, _ in parameters]


def _descr(dtype: np.dtype[Any]) -> str:
    """Return the dtype as the header of a .npy file spells it, without spaces."""
    return re.sub(r"\s", "", repr(np.lib.format.dtype_to_descr(_stored(dtype))))


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that a .npy file has; fields that overlap or are out of order have no form there, only their bytes."""
    try:
        np.lib.format.dtype_to_descr(dtype)
    except ValueError:
        return np.dtype(f"V{dtype.itemsize}")
    return dtype
