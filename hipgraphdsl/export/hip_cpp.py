"""A HIP C++ program of its own: kernels, arrays, the graph node by node or captured, options, files and timing.

Data flow: `Workflow` -> `Plan` (the one that the backends lower) -> one `_Statement` a step, text with holes for what may differ
from step to step -> stretches of statements that differ only in their holes become loops -> the program. A hole in a loop is
what it always is, a term of the loop's counter, or an entry of a table.
"""

from __future__ import annotations

import inspect
import io
import itertools
import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Optional, Union

import numpy as np

from ..arrays import Access, AllocArray, Array, ArrayView, ExternalArray, Parameter, UnboundValues
from ..backends.operations import BUILT_IN, copy_kernel_grid, repeated_bytes
from ..errors import DeclarationError
from ..kernels import ForeignModule, KernelParameter, Module, Symbol, check_argument
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
    SemaphoreSignalNode,
    SemaphoreWaitNode,
    UnboundCallback,
    callable_name,
    copy_geometry,
    element_bytes,
)
from ..plan import Lanes, Plan, Step, make_plan
from ..source import is_bfloat16, tokenize
from ..target import Target
from ..workflow import Workflow
from .fold import Repeat, find_repeats
from .hip_parts import FIXED_NAMES, PARTS, cuda_names, needed_parts
from .style import human_bytes

__all__ = ["companions", "render"]

_INLINE: Final = 64
"""Values of an array that stand in the program; more are read from a file."""
_PART: Final = 400
"""Statements of one function: compilers take much longer for longer ones."""
_PERIOD: Final = 64
"""Longest cycle of values that is looked for."""


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
    return _Program(workflow, backend, target, lanes, stem).text()


def companions(workflow: Workflow, *, stem: str, **options: Any) -> dict[str, bytes]:
    """Return the ``.npy`` files that the program reads, by name: the first values of arrays that have no short form."""
    return _Program(workflow, **{"backend": "explicit", "target": "amd:gfx942", "lanes": "auto", **options}, stem=stem).files()


# -- text that cannot become code ------------------------------------------------------------------------------------------


def comment(text: str) -> list[str]:
    """Return text as lines of a comment that no character of it can end or go on behind: no line splice, no trigraph."""
    lines = []
    for line in text.splitlines() or [""]:
        shown = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line).expandtabs(4).rstrip()
        shown = shown.replace("??/", "? ?/").replace("*/", "* /")
        lines.append(f"// {shown}.".rstrip() if shown.endswith("\\") else f"// {shown}".rstrip())
    return lines


def quoted(text: str) -> str:
    """Return text as a C++ string literal."""
    out = []
    for c in text:
        if c in '"\\?':
            out.append(f"\\{c}")
        elif c.isprintable():
            out.append(c)
        else:
            out.append("".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogatepass")))
    return f'"{"".join(out)}"'


_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
        concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
        dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
        noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
        signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
        typename union unsigned using virtual void volatile wchar_t while xor xor_eq linux unix errno stdin stdout stderr assert
        threadIdx blockIdx blockDim gridDim warpSize half""",
    )
)
"""Words that name nothing: C++'s own, and macros and variables that are always there."""


class _Names:
    """C++ names, each given out once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.used = set(taken)

    def new(self, wish: str, suffix: str = "") -> str:
        plain = unicodedata.normalize("NFKD", wish).encode("ascii", "ignore").decode()
        base = re.sub(r"_+", "_", re.sub(r"\W", "_", plain)).strip("_") or "it"
        if base[0].isdigit():
            base = f"n{base}"
        if base in _KEYWORDS or (len(base) > 1 and base.isupper()):
            base += "_"
        found = base
        if found in self.used and suffix:
            found = base = f"{base.rstrip('_')}_{suffix}"
        k = 1
        while found in self.used:
            k += 1
            found = f"{base.rstrip('_')}_{k}"
        self.used.add(found)
        return found


# -- types and values ------------------------------------------------------------------------------------------------------

_CTYPES: Final = {
    ("b", 1): "bool", ("i", 1): "int8_t", ("i", 2): "int16_t", ("i", 4): "int", ("i", 8): "int64_t", ("u", 1): "uint8_t",
    ("u", 2): "uint16_t", ("u", 4): "unsigned", ("u", 8): "uint64_t", ("f", 4): "float", ("f", 8): "double",
    ("c", 8): "std::complex<float>", ("c", 16): "std::complex<double>",
}  # fmt: skip


def _ctype(dtype: np.dtype[Any]) -> str:
    """Return the C++ type of an element; what only kernels know stands as its bits."""
    if is_bfloat16(dtype) or (dtype.kind == "f" and dtype.itemsize == 2):
        return "uint16_t"
    return _CTYPES.get((dtype.kind, dtype.itemsize)) or f"Bytes<{dtype.itemsize}>"


def _integer(value: int, ctype: str) -> str:
    if ctype == "int":
        return str(value) if value != -(2**31) else "(-2147483647 - 1)"
    if ctype == "unsigned":
        return f"{value}u"
    if ctype in ("int64_t", "long", "long long"):
        text = f"{value}LL" if value != -(2**63) else "(-9223372036854775807LL - 1)"
        return f"{ctype}({value})" if abs(value) < 2**31 - 1 else f"{ctype}({text})"
    if ctype in ("uint64_t", "size_t", "unsigned long long", "unsigned long"):
        return f"{_one_word(ctype)}({value})" if value < 2**31 else f"{_one_word(ctype)}({value}ULL)"
    return f"{_one_word(ctype)}({value})"


def _one_word(ctype: str) -> str:
    """Return a type that can stand before parentheses."""
    return {"unsigned long long": "uint64_t", "unsigned long": "uint64_t", "long long": "int64_t"}.get(ctype, ctype)


def _floating(value: float, ctype: str) -> str:
    if math.isnan(value):
        return f"{ctype}(NAN)"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}{ctype}(INFINITY)"
    if ctype == "float":
        text = str(np.float32(value))
        return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"
    text = repr(float(value))
    return text if re.search(r"[.e]", text) else f"{text}.0"


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether C++ itself has such numbers."""
    return dtype.kind in "biuf" and not is_bfloat16(dtype) and (dtype.kind, dtype.itemsize) != ("f", 2)


def _literal(data: bytes, dtype: np.dtype[Any]) -> str:
    """Return one element, given by its bytes, as a C++ value of its type; `_is_exact` says whether it can be."""
    ctype = _ctype(dtype)
    if ctype.startswith("Bytes"):
        return f"{ctype}{{{{{', '.join(map(str, data))}}}}}"
    if ctype == "uint16_t" and dtype.kind != "u":
        return f"uint16_t(0x{int.from_bytes(data, 'little'):04x})"
    value = np.frombuffer(data, dtype)[0].item()
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return _integer(value, ctype)
    if dtype.kind == "c":
        part = "float" if dtype.itemsize == 8 else "double"
        return f"{ctype}({_floating(value.real, part)}, {_floating(value.imag, part)})"
    return _floating(value, ctype)


def _is_exact(values: np.ndarray[Any, Any]) -> bool:
    """Return whether a literal says every value to the bit: of NaNs there are many, and a literal says one."""
    if values.dtype.kind not in "fc" or is_bfloat16(values.dtype) or values.dtype.itemsize == 2:
        return True
    parts = values.reshape(-1).view(f"f{values.dtype.itemsize // (2 if values.dtype.kind == 'c' else 1)}")
    nans = parts[np.isnan(parts)]
    return bool(nans.tobytes() == np.full(nans.shape, np.nan, nans.dtype).tobytes())


# -- statements with holes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Hole:
    """What may differ between steps that are otherwise alike.

    Attributes
    ----------
    kind : {"int", "offset", "value", "label"}
        A number as it is; one that is added to a pointer; an argument of a type; the numbers in a node's name.
    value : object
    form : str
        The type of an argument, the format of a name.
    hint : str
        What a table of it would be called.
    """

    kind: str
    value: Any
    form: str = ""
    hint: str = ""


_Piece = Union[str, _Hole]
_DECLARED: Final = "\1"
"""Stands before a variable where its type would, if it is declared there."""


@dataclass(slots=True)
class _Statement:
    """The text of one step.

    Attributes
    ----------
    pieces : list of str or _Hole
    title : str
        The step's name.
    """

    pieces: list[_Piece]
    title: str

    @property
    def template(self) -> str:
        return "".join(p if isinstance(p, str) else f"\0{p.kind}\0{p.form}\0" for p in self.pieces)

    @property
    def holes(self) -> list[_Hole]:
        return [p for p in self.pieces if not isinstance(p, str)]

    def plain(self) -> str:
        return "".join(p if isinstance(p, str) else _plain(p) for p in self.pieces)


def _plain(hole: _Hole) -> str:
    if hole.kind == "int":
        return str(hole.value)
    if hole.kind == "offset":
        return f" + {hole.value}" if hole.value else ""
    if hole.kind == "value":
        return _argument_literal(hole.value, hole.form)
    return quoted(hole.form % hole.value)


def _argument_literal(value: Any, ctype: str) -> str:
    if ctype == "bool":
        return "true" if value else "false"
    return _floating(value, ctype) if ctype in ("float", "double") else _integer(int(value), ctype)


def _term(values: Sequence[int], first: int) -> Optional[str]:
    """Return an expression in the counter ``n``, which starts at `first`, that takes these values; None where none is short."""
    start = values[0]
    step = values[1] - start
    if all(value == start + k * step for k, value in enumerate(values)):
        return _linear("n", step, start - step * first)
    count = len(values)
    for period in range(2, min(_PERIOD, count // 2) + 1):
        if values[period] != start or any(values[k] != values[k + period] for k in range(count - period)):
            continue
        cycle = values[:period]
        low, step = min(cycle), abs(cycle[1] - cycle[0])
        step = min((abs(a - b) for a, b in itertools.pairwise(sorted(cycle))), default=0)
        shift = (start - low) // step if step else 0
        if step and all(cycle[k] == low + step * ((k + shift) % period) for k in range(period)):
            inside = _linear("n", 1, (shift - first) % period)
            return _linear(f"({inside}) % {period}" if " " in inside else f"n % {period}", step, low, group=True)
        return None
    return None


def _linear(name: str, factor: int, constant: int, group: bool = False) -> str:
    if factor == 0:
        return str(constant)
    product = name if factor == 1 else f"{factor} * ({name})" if group else f"{factor} * {name}"
    if group and factor == 1 and constant:
        product = f"({name})"
    return product if not constant else f"{product} {'+' if constant > 0 else '-'} {abs(constant)}"


def _aligned(statements: list[_Statement], repeat: Repeat) -> tuple[int, int]:
    """Return where the repetitions of a stretch begin, and how many there are, if those of one number stand together."""

    def numbers(start: int) -> list[tuple[int, ...]]:
        row = statements[start : start + repeat.period]
        return [h.value for s in row for h in s.holes[:3] if h.kind == "label"]

    for shift in range(min(repeat.period, _PERIOD) if repeat.count > 3 else 0):
        if len(set(numbers(repeat.start + shift))) == 1:
            return repeat.start + shift, repeat.count - (shift > 0)
    return repeat.start, repeat.count


class _Loop:
    """Repetitions of a stretch of statements, as a loop."""

    def __init__(self, rows: list[list[_Statement]], names: _Names) -> None:
        self.rows = rows
        self.names = names
        self.first = self._first()
        self.tables: list[str] = []
        self.known: dict[tuple[str, tuple[Any, ...]], str] = {}

    def _first(self) -> int:
        """Return where the counter starts: where the numbers in the first node's name do, so that it is that number."""
        for a, b in zip(self.rows[0][0].holes, self.rows[1][0].holes):
            if a.kind == "label":
                for before, after in zip(a.value, b.value):
                    if after == before + 1:
                        return int(before)
        return 0

    def text(self) -> list[str]:
        body: list[str] = []
        for j, statement in enumerate(self.rows[0]):
            columns = list(zip(*(row[j].holes for row in self.rows)))
            filled = iter([self._filled(column) for column in columns])
            body += "".join(p if isinstance(p, str) else next(filled) for p in statement.pieces).split("\n")
        first, last = self.rows[0], self.rows[-1]
        what = f"{first[0].title} to {last[-1].title}" if len(first) > 1 else f"{first[0].title} ... {last[0].title}"
        stop = self.first + len(self.rows)
        return [
            *comment(f"{len(self.rows)} times {len(first)} node{'s' * (len(first) > 1)}: {what}"),
            f"for (long n = {self.first}; n < {stop}; ++n) {{",
            *(f"  {line}" if line else "" for line in body),
            "}",
        ]

    def _filled(self, column: tuple[_Hole, ...]) -> str:
        hole = column[0]
        values = tuple(h.value for h in column)
        if hole.kind == "label":
            if all(value == values[0] for value in values):
                return _plain(hole)
            terms = [self._whole(numbers, "number") for numbers in zip(*values)]
            return f"label({quoted(hole.form)}, {', '.join(terms)})"
        if _same(values):
            return _plain(hole)
        if hole.kind == "value" and hole.form in ("float", "double"):
            return self._table(values, hole.form, hole.hint)
        if hole.kind == "value":
            term = _term([int(value) for value in values], self.first)
            if term is not None:
                return f"{_one_word(hole.form)}({term})"
            return self._table(values, hole.form, hole.hint)
        text = self._whole(values, hole.hint)
        return f" + {text}" if hole.kind == "offset" else text

    def _whole(self, values: Sequence[int], hint: str) -> str:
        if all(value == values[0] for value in values):
            return str(values[0])
        return _term(values, self.first) or self._table(tuple(values), "long", hint)

    def _table(self, values: tuple[Any, ...], ctype: str, hint: str) -> str:
        """Return an entry of a table; a short cycle is written once."""
        period = next(
            (p for p in range(1, min(_PERIOD, len(values) // 2) + 1) if _same_cycle(values, p)), len(values)
        )
        kept = values[:period]
        name = self.known.get((ctype, kept))
        if name is None:
            name = self.known[ctype, kept] = self.names.new(hint or "value")
            entries = [_argument_literal(v, ctype) if ctype in ("float", "double", "bool") else str(v) for v in kept]
            if ctype not in ("float", "double", "bool"):
                entries = [f"{v}ULL" if int(v) >= 2**63 else f"{v}LL" if abs(int(v)) >= 2**31 - 1 else v for v in entries]
            self.tables.append(f"static const {ctype} {name}[] = {{")
            self.tables += textwrap.wrap(", ".join(entries), 112, initial_indent="    ", subsequent_indent="    ")
            self.tables[-1] += "};"
        index = _linear("n", 1, -self.first)
        if period < len(values):
            index = f"({index}) % {period}" if " " in index else f"{index} % {period}"
        return f"{name}[{index}]"


def _same(values: tuple[Any, ...]) -> bool:
    first = values[0]
    return all(v == first or v is first for v in values) and len({str(v) for v in values}) == 1


def _same_cycle(values: tuple[Any, ...], period: int) -> bool:
    return values[period:] == values[:-period]


# -- what names stand for --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a view's root is in the program: a pointer, elements into it, and whether the host owns it (None: unknown)."""

    expression: str
    offset: int
    host: Optional[bool]


@dataclass
class _Scope:
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

    memory: dict[Any, _Memory] = field(default_factory=dict)
    values: dict[Parameter, str] = field(default_factory=dict)
    below: dict[tuple[tuple[str, ...], Any], Any] = field(default_factory=dict)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Storage:
    """An array that the program owns."""

    name: str
    identifier: str
    array: Array


class _Program:
    def __init__(self, workflow: Workflow, backend: str, target: str, lanes: Lanes, stem: str) -> None:
        if backend not in ("explicit", "capture"):
            raise DeclarationError(f"a .hip program's backend is 'explicit' or 'capture' (got {backend!r})")
        self.workflow = workflow
        self.capture = backend == "capture"
        self.target = Target.named(target)
        self.lanes = lanes
        self.stem = re.sub(r"[^\w.-]", "_", stem or workflow.name, flags=re.ASCII)
        self.parts: set[str] = {"CHECK", "fail", "npy", "number"}
        self.kernels = _Kernels(workflow)
        self.fixed = FIXED_NAMES | self.kernels.names | _KEYWORDS
        self.names = _Names(self.fixed)
        self.storage: list[_Storage] = []
        self.aliases: list[tuple[_Storage, str]] = []
        self.temporaries: list[_Storage] = []
        self.parameters: list[tuple[str, str, Parameter]] = []  # option, identifier
        self.symbols: dict[Symbol, str] = {}
        self.events: dict[str, str] = {}
        self.functions: dict[Any, _Function] = {}
        self.children: dict[Any, str] = {}
        self.builders: list[list[str]] = []
        self.tables: list[str] = []
        self.outer: set[str] = set()
        """Functions, events and variables of the device: what the functions that build graphs mention."""
        self.scope = self._own(workflow, ())

    @cached_property
    def plan(self) -> Plan:
        """The steps, which the files beside the program do not need."""
        return make_plan(self.workflow, self.target, lanes=self.lanes, inline=self.capture)

    # -- storage -----------------------------------------------------------------------------------------------------------

    def _own(self, workflow: Workflow, path: tuple[str, ...], node: Optional[ChildGraphNode] = None) -> _Scope:
        """Declare what a workflow and its children own, except for what `node` binds."""
        prefix = "".join(f"{name}/" for name in path)
        scope = _Scope(prefix=prefix)
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
            scope.memory[array] = _Memory(storage.identifier, 0, array.on_host)
        for parameter in workflow.parameters.values():
            if parameter.name in bound:
                continue
            identifier = self.names.new(prefix + parameter.name, "parameter")
            self.parameters.append((prefix + parameter.name, identifier, parameter))
            if parameter.shape:
                scope.memory[parameter] = _Memory(identifier, 0, None)
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
                f"external array {storage.name!r} is {what}, which a program of its own has not; declare it as device_array or"
                " host_array, and the program reads it from a file",
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

    def _child_scope(self, node: ChildGraphNode, outer: _Scope) -> _Scope:
        """Return what the names inside a child stand for, said in the scope around it."""
        inner = _Scope(prefix=f"{outer.prefix}{node.name}/")
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
                inner.values[parameter] = self._scalar(element_bytes(value, parameter.dtype, where), parameter.dtype)
        for (names, root), found in outer.below.items():
            if len(names) > 1 and names[0] == node.name:
                inner.below[names[1:], root] = found
        return inner

    def _bound(self, view: ArrayView, scope: _Scope) -> _Memory:
        found = self._memory(view.root, scope)
        return _Memory(found.expression, found.offset + view.offset_bytes // view.dtype.itemsize, found.host)

    def _memory(self, root: Any, scope: _Scope) -> _Memory:
        if isinstance(root, Symbol):
            name = self.symbols.get(root)
            if name is None:
                name = self.symbols[root] = self._outer(root.name, "symbol")
            return _Memory(name, 0, False)
        return scope.memory[root]

    def _pointer(self, view: ArrayView, scope: _Scope) -> list[_Piece]:
        memory = self._memory(view.root, scope)
        offset = memory.offset + view.offset_bytes // view.dtype.itemsize
        return [memory.expression, _Hole("offset", offset, hint="offset")]

    def _scalar(self, data: bytes, dtype: np.dtype[Any]) -> str:
        text = _literal(data, dtype)
        if text.startswith("Bytes"):
            self.parts.add("Bytes")
        return text

    def _type(self, dtype: np.dtype[Any]) -> str:
        ctype = _ctype(dtype)
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
                np.save(file, values, allow_pickle=False)
                found[self._file(storage)] = file.getvalue()
        return found

    def _file(self, storage: _Storage) -> str:
        return f"{self.stem}.{storage.identifier}.npy"

    def _short_form(self, storage: _Storage, values: np.ndarray[Any, Any]) -> Optional[list[str]]:
        """Return the statement that gives an array these values, or None where a file must."""
        name, dtype = storage.identifier, values.dtype
        flat = np.ascontiguousarray(values).reshape(-1)
        data = flat.view(f"V{dtype.itemsize}")
        if not flat.tobytes().strip(b"\0"):
            return []
        if not _is_exact(flat):
            return None
        count = flat.size

        def element(k: int) -> str:
            return self._scalar(flat[k : k + 1].tobytes(), dtype)

        period = _period(data)
        if period == 1:
            self.parts.add("set")
            return [f"set({name}, {count}, [](size_t) {{ return {element(0)}; }});"]
        line = flat[:period]
        if period > 2 and dtype.kind in "iuf" and not is_bfloat16(dtype) and dtype.itemsize > 2:
            ctype = self._type(dtype)
            first, step = line[0], line[1] - line[0] if dtype.kind != "u" or line[1] > line[0] else None
            if step is not None:
                # What C++ computes there: in the element's own type, from exact integers.
                index = np.arange(period, dtype=dtype)
                with np.errstate(all="ignore"):
                    made = first + index * step
                whole = dtype.kind != "f" or (period < 2**24 if dtype.itemsize == 4 else period < 2**52)
                exact = dtype.kind != "f" or all(float(x).is_integer() and abs(float(x)) < 2**24 for x in (first, step, line[-1]))
                if whole and exact and made.tobytes() == line.tobytes():
                    self.parts.add("set")
                    at = "i" if period == count else f"i % {period}"
                    factor = "" if step == 1 else f" * {self._scalar(np.array(step, dtype).tobytes(), dtype)}"
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

    def _builder(self, plan: Plan, scope: _Scope, names: _Names, head: list[str], parts: Optional[list[list[str]]]) -> list[str]:
        """Return the lines that add a plan's steps; where there are very many, functions of them are put into `parts`."""
        body = _Body(self, plan, scope, names)
        statements = body.statements()
        repeats = find_repeats([s.template for s in statements], [()] * len(statements), least_count=3, least_saving=4)
        items: list[list[str]] = []
        at = 0
        for repeat in (*repeats, None):
            stop = repeat.start if repeat is not None else len(statements)
            items += [statement.plain().split("\n") for statement in statements[at:stop]]
            if repeat is None:
                break
            start, count = _aligned(statements, repeat)
            items += [statement.plain().split("\n") for statement in statements[repeat.start : start]]
            rows = [statements[start + k * repeat.period : start + (k + 1) * repeat.period] for k in range(count)]
            self._use_labels(rows)
            self.names.used |= names.used
            loop = _Loop(rows, self.names)
            items.append(["", *loop.text(), ""])
            self.tables += loop.tables
            at = start + count * repeat.period
        outside = len(items) > _PART and parts is not None
        declared = body.declarations(outside)
        kind = "" if outside else "const Mark " if self.capture else "const hipGraphNode_t "
        items = [[short for line in item for short in _wrapped(line.replace(_DECLARED, kind))] for item in items]
        if not outside or parts is None:
            return _without_double_blanks([*head, *declared, *(line for item in items for line in item)])
        parts.append(["// What later nodes wait for.", *(f"static {line}" for line in declared), ""])
        calls = []
        given = "hipStream_t* stream" if self.capture else "hipGraph_t graph"
        for k in range(0, len(items), _PART):
            name = self._outer(f"part_{k // _PART + 1}", "of_graph")
            lines = [line for item in items[k : k + _PART] for line in item]
            body_lines = (f"  {line}" if line else "" for line in _without_double_blanks(lines))
            parts.append([f"static void {name}({given}) {{", *body_lines, "}", ""])
            calls.append(f"{name}({given.rpartition(' ')[2].lstrip('*')});")
        return [*head, *calls]

    def _use_labels(self, rows: list[list[_Statement]]) -> None:
        if any(a.value != b.value for s, t in zip(rows[0], rows[1]) for a, b in zip(s.holes, t.holes) if a.kind == "label"):
            self.parts.add("label")

    def child_graph(self, plan: Plan, node: ChildGraphNode, outer: _Scope) -> str:
        """Return the call that makes the graph of a child; its function is made once for all children of one form."""
        inner = self._child_scope(node, outer)
        things: list[tuple[str, Any]] = []  # argument, what it is inside
        arguments: list[tuple[Any, Any]] = [
            *inner.memory.items(), *inner.values.items(), *((key, value) for key, value in inner.below.items()),
        ]  # fmt: skip
        sides = tuple(m.host if isinstance(m, _Memory) else None for _, m in arguments)
        key = (id(plan), sides)
        for _, found in arguments:
            if isinstance(found, _Memory):
                things.append((f"{found.expression} + {found.offset}" if found.offset else found.expression, found))
            else:
                things.append((found, found))
        function = self.children.get(key)
        if function is None:
            function = self.children[key] = self._outer(f"build_{plan.workflow.name}", "graph")
            names = _Names(self.fixed)
            scope = _Scope(prefix=f"{plan.workflow.name}/")
            parameters = []
            for thing, found in arguments:
                path, root = thing if isinstance(thing, tuple) else ((), thing)
                name = names.new("_".join((*path, root.name)))
                ctype = self._type(root.dtype)
                value: Any
                if isinstance(found, _Memory):
                    parameters.append(f"{ctype}* {name}")
                    value = _Memory(name, 0, found.host)
                else:
                    parameters.append(f"{ctype} {name}")
                    value = name
                if path:
                    scope.below[path, root] = value
                elif isinstance(value, _Memory):
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

    def function(self, node: Union[HostNode, CapturedNode], scope: _Scope, name: str) -> tuple[_Function, list[list[_Piece]]]:
        """Return the function that the user fills in, and the arguments of one call."""
        given: list[_Given] = []
        arguments: list[list[_Piece]] = []
        left: list[str] = []
        modes = {access.view: access.mode for access in node.access}
        labels = _argument_names(node)
        for k, arg in enumerate(node.args):
            value = arg.view if isinstance(arg, Access) else arg
            label = labels[k] if k < len(labels) else ""
            if isinstance(value, ArrayView):
                mode = arg.mode if isinstance(arg, Access) else modes.get(value, "read")
                root = value.root.name
                given.append(_Given(label or root, self._type(value.dtype), mode, value.shape, value.strides, value.dtype))
                arguments.append(self._pointer(value, scope))
            elif isinstance(value, Parameter):
                given.append(_Given(label or value.name, self._type(value.dtype)))
                arguments.append([scope.values[value]])
            elif (typed := _plain_value(value)) is not None:
                given.append(_Given(label or f"value{k}", typed[0]))
                arguments.append([_Hole("value", value, typed[0], label) if typed[1] is None else typed[1]])
            else:
                left.append(f"{label or f'argument {k}'} was {type(value).__name__} {value!r:.200}")
        fn = node.fn
        shapes = tuple((g.ctype, g.mode, g.shape, g.strides) for g in given)
        key = (type(node), fn.path if isinstance(fn, UnboundCallback) else id(fn), shapes, tuple(left))
        known = self.functions.get(key)
        if known is None:
            identifier = self._outer(callable_name(fn), "function")
            known = self.functions[key] = _Function(identifier, fn, isinstance(node, CapturedNode), given, left)
        known.nodes.append(name)
        return known, arguments

    # -- the program -------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        build = self._capture_function() if self.capture else self._explicit_function()
        prepared, run = self._prepare(), self._run()
        functions = [line for f in self.functions.values() for line in f.text()]
        declarations = self._declarations()
        self._use_parts([*declarations, *functions, *build, *prepared, *run])
        kernels = self.kernels.text(self.symbols)
        parts = needed_parts(self.parts)
        shared = "allow_shared" in parts
        texts = {name: _with_shared(PARTS[name].strip("\n"), shared) for name in parts}
        before = [line for name in parts if name not in _AFTER_ARRAYS for line in (*texts[name].split("\n"), "")]
        after = [line for name in parts if name in _AFTER_ARRAYS for line in (*texts[name].split("\n"), "")]
        inner = "\n".join([*before, *declarations, *after, *functions, *build, *prepared, *run, *kernels])
        shim = cuda_names(inner, "\n".join(kernels), any(f.captured for f in self.functions.values()))
        lines = [
            *self._head(),
            *_includes(shim, "add_memory_ops" in self.parts, self.kernels.headers),
            *kernels,
            "namespace program {",
            "",
            *_section("Errors and helpers"),
            *before,
            "",
            *declarations,
            *(_section("Functions for you to write") if functions else []),
            *functions,
            *_section("The graph"),
            *(["// What differs from node to node in loops.", *self.tables, ""] if self.tables else []),
            *build,
            *_section("Files and options"),
            *after,
            *_section("Before and after"),
            *prepared,
            *run,
            "}  // namespace program",
            "",
            "int main(int argc, char** argv) { return program::run(argc, argv); }",
            "",
        ]
        return "\n".join(line.rstrip() for line in _without_double_blanks(lines)) + "\n"

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
        extra = "".join(f" {option}" for option in self.kernels.flags)
        cuda = " -lcuda" if "add_memory_ops" in self.parts else ""
        lines = [
            name,
            "",
            f"A HIP graph of {steps} node{'s' * (steps != 1)}, {how}, as a program of its own. Written by hipgraphdsl.",
            "",
            f"  AMD GPUs     hipcc -std=c++17 -O2{extra} {stem}.hip -o {stem}",
            f"  NVIDIA GPUs  nvcc -std=c++17 -O2 -arch=native{extra} -x cu {stem}.hip -o {stem}{cuda}",
            f"  any CPU      hipgraphdsl build {stem}.hip -o {stem}",
            "",
            f"./{stem} --help says which options it takes; --repeat 100 measures it.",
        ]
        if self.functions:
            lines += ["", "Its host functions are yours to write: look for NOT_WRITTEN."]
        files = self.files()
        if files:
            lines += ["", f"It reads {', '.join(files)} from the current folder, or from --data-dir."]
        return [*comment("\n".join(lines)), ""]

    def _declarations(self) -> list[str]:
        lines = [*_section("Arrays"), "enum Place { DEVICE, PINNED, PAGEABLE };", ""]
        width = max((len(self._type(s.array.dtype)) + len(s.identifier) for s in (*self.storage, *self.temporaries)), default=0)
        for storage in (*self.storage, *(s for s, _ in self.aliases), *self.temporaries):
            array = storage.array
            ctype = self._type(array.dtype)
            place = "device memory"
            if isinstance(array, AllocArray):
                place = "made and freed inside the graph"
            elif array.on_host:
                place = "page-locked host memory" if getattr(array, "pinned", True) else "host memory"
            named = f"{storage.name}: " if storage.name != storage.identifier else ""
            said = comment(f"{named}{_dtype_name(array.dtype)}{list(array.shape)}, {human_bytes(array.nbytes)}, {place}")[0]
            gap = " " * (width - len(ctype) - len(storage.identifier))
            lines.append(f"static {ctype}* {storage.identifier};{gap}  {said}")
        if self.symbols:
            lines += ["", "// Variables of the device: their addresses."]
            lines += [f"static {self._type(s.dtype)}* {name};" for s, name in self.symbols.items()]
        lines += [
            "",
            "// What is allocated at the beginning, and can be read from files and written to files by its name.",
            "struct Array {",
            "  const char* name;",
            "  void** data;",
            "  size_t bytes;",
            "  Place place;",
            "  int device;",
            "  const char* dtype;  // as the header of a .npy file has it",
            "  const char* shape;",
            "  const char* file;  // of its first values, where they do not stand here",
            "};",
            "static const std::vector<Array> arrays = {",
        ]
        for storage in self.storage:
            array = storage.array
            place = "DEVICE" if not array.on_host else "PINNED" if getattr(array, "pinned", True) else "PAGEABLE"
            file = quoted(self._file(storage)) if self._from_file(storage) else "nullptr"
            lines.append(
                f"    {{{quoted(storage.name)}, (void**)&{storage.identifier}, {_bytes_of(array)}, {place}, {array.device},"
                f" {quoted(_descr(array.dtype))}, {quoted(_shape_text(array.shape))}, {file}}},"
            )
        lines += ["};", ""]
        if self.parameters:
            lines += _section("Parameters, which are options of the program")
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
            lines += _section("Events")
            lines += [f"static hipEvent_t {name};  {comment(event)[0]}" for event, name in self.events.items()] + [""]
        return lines

    def _default(self, option: str, parameter: Parameter) -> str:
        if parameter.default is not None:
            return self._scalar(element_bytes(parameter.default, parameter.dtype, f"parameter {option!r}"), parameter.dtype)
        if not _is_option(parameter):
            raise DeclarationError(
                f"parameter {option!r} of {_dtype_name(parameter.dtype)} has no default, and no option of a program can give such"
                " a value; declare a default",
                array=option,
            )
        return f"{self._type(parameter.dtype)}()"

    def _from_file(self, storage: _Storage) -> bool:
        values = _values(storage.array)
        return isinstance(values, UnboundValues) or (
            isinstance(values, np.ndarray) and self._short_form(storage, values) is None
        )

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
        if "mark(" in text or "wait(" in text:
            self.parts.add("mark_by_node" if _has_ring(self.plan) else "mark_by_event")
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
        if "mark_by_event" in self.parts:
            tidy.append('for (hipEvent_t each : marks) CHECK(hipEventDestroy(each), "");')
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

    def _prepare(self) -> list[str]:
        lines = ["// Allocates all arrays and gives them their first values; an array without any holds zeros."]
        lines += ["static void prepare(const std::map<std::string, std::string>& inputs, const std::string& data_dir) {"]
        body = [
            "for (const Array& array : arrays) {",
            "  if (array.place == DEVICE) {",
            '    CHECK(hipSetDevice(array.device), "");',
            '    CHECK(hipMalloc(array.data, array.bytes), "");',
            '    CHECK(hipMemset(*array.data, 0, array.bytes), "");',
            "  } else if (array.place == PINNED) {",
            '    CHECK(hipHostMalloc(array.data, array.bytes, hipHostMallocDefault), "");',
            "    std::memset(*array.data, 0, array.bytes);",
            "  } else {",
            "    *array.data = std::calloc(array.bytes, 1);",
            '    if (!*array.data) fail("there is no memory for array \'%s\'", array.name);',
            "  }",
            "}",
            'CHECK(hipSetDevice(0), "");',
        ]
        body += [f"{storage.identifier} = {at};" for storage, at in self.aliases]
        if self.symbols:
            body += [f"SYMBOL({self.kernels.reference(s)}, {name});" for s, name in self.symbols.items()]
        for storage in self.storage:
            values = _values(storage.array)
            if isinstance(values, np.ndarray):
                body += self._short_form(storage, values) or []
        body += [f'CHECK(hipEventCreate(&{name}), "");' for name in self.events.values()]
        body += [
            "for (const Array& array : arrays) {",
            "  const auto given = inputs.find(array.name);",
            "  if (given != inputs.end()) read_npy(array, given->second);",
            '  else if (array.file) read_npy(array, data_dir + "/" + array.file);',
            "}",
            'CHECK(hipDeviceSynchronize(), "");',
        ]
        return [*lines, *(f"  {line}" for line in body), "}", ""]

    def _run(self) -> list[str]:
        options = _options(self.parameters)
        usage = [
            "  --in NAME=FILE.npy    first values of an array",
            "  --out NAME=FILE.npy   write an array after the last launch",
            "  --out-dir DIR         write every array there, each as NAME.npy",
            "  --data-dir DIR        where the program's own .npy files are (default: the current folder)",
            "  --repeat N            launches (default: 1); each goes on from what the one before has left",
            "  --warm-up N           launches before those that are measured (default: 0)",
            "  --quiet               print nothing but errors",
        ]
        told = []
        for (option, _, parameter), flag in zip(self.parameters, options):
            if parameter.shape:
                default = getattr(parameter.default, "name", parameter.default)
                told.append(f"  {flag} NAME  the array that stands for parameter {option} (default: {default})")
            elif _is_option(parameter):
                default = "none, so it must be given" if parameter.default is None else f"default: {parameter.default}"
                told.append(f"  {flag} VALUE  {_dtype_name(parameter.dtype)} ({default})")
        names = [f"  {s.name}: {_dtype_name(s.array.dtype)}{list(s.array.shape)}" for s in self.storage]
        text = [f"usage: {self.stem} [options]", "", *told, *usage, "", "arrays:", *names]
        shown = [f"      {quoted(line)[:-1]}\\n\"" for line in text]
        lines = ["static void help() {", "  std::fputs(", *shown[:-1], f"{shown[-1]},", "      stdout);", "}", ""]
        chains = []
        required = []
        pointers = []
        for (_, identifier, parameter), flag in zip(self.parameters, options):
            if parameter.shape:
                chosen = self.names.new(f"{identifier}_name")
                default = getattr(parameter.default, "name", parameter.default)
                pointers.append((chosen, identifier, parameter, flag, default))
                chains.append(f"else if (option == {quoted(flag)}) {chosen} = text;")
            elif _is_option(parameter):
                note = ""
                if parameter.default is None:
                    required.append((flag, self.names.new(f"has_{identifier}")))
                    note = f", {required[-1][1]} = true"
                taken = f"{identifier} = number<{self._type(parameter.dtype)}>(option, text){note};"
                chains.append(f"else if (option == {quoted(flag)}) {taken}")
        body = [
            "int repeat = 1, warm_up = 0;",
            "bool quiet = false;",
            'std::string out_dir, data_dir = ".";',
            "std::map<std::string, std::string> inputs, outputs;  // files by the names of arrays",
            *(f"std::string {chosen} = {quoted(str(default or ''))};" for chosen, _, _, _, default in pointers),
            *(f"bool {name} = false;" for _, name in required),
            "for (int i = 1; i < argc; ++i) {",
            "  const std::string option = argv[i];",
            '  if (option == "--help") return help(), 0;',
            '  if (option == "--quiet") {',
            "    quiet = true;",
            "    continue;",
            "  }",
            '  if (i + 1 == argc) fail("option %s needs a value; see --help", argv[i]);',
            "  const char* text = argv[++i];",
            '  if (option == "--repeat") repeat = number<int>(option, text);',
            '  else if (option == "--warm-up") warm_up = number<int>(option, text);',
            '  else if (option == "--out-dir") out_dir = text;',
            '  else if (option == "--data-dir") data_dir = text;',
            '  else if (option == "--in" || option == "--out") {',
            "    const char* equals = std::strchr(text, '=');",
            '    if (!equals) fail("%s takes NAME=FILE.npy (got \'%s\')", option.c_str(), text);',
            "    const std::string name(text, equals);",
            "    array_named(name);",
            '    (option == "--in" ? inputs : outputs)[name] = equals + 1;',
            "  }",
            *(f"  {line}" for line in chains),
            '  else fail("there is no option %s; see --help", option.c_str());',
            "}",
            'if (repeat < 1 || warm_up < 0) fail("--repeat is at least 1, --warm-up at least 0");',
            *(f'if (!{name}) fail("%s must be given; see --help", {quoted(flag)});' for flag, name in required),
            "",
            "prepare(inputs, data_dir);",
        ]
        for chosen, identifier, parameter, flag, _ in pointers:
            body += [
                f'if ({chosen}.empty()) fail("%s must be given; see --help", {quoted(flag)});',
                f"if (array_named({chosen}).bytes != {parameter.nbytes})",
                f'  fail("%s takes an array of %d bytes", {quoted(flag)}, {parameter.nbytes});',
                f"{identifier} = ({self._type(parameter.dtype)}*)*array_named({chosen}).data;",
            ]
        frees = sum(isinstance(step.node, FreeNode) for step in self.plan.steps)
        allocs = sum(isinstance(step.node, AllocNode) for step in self.plan.steps)
        flags = "hipGraphInstantiateFlagAutoFreeOnLaunch" if allocs > frees else "0"
        body += [
            "hipStream_t stream;",
            'CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "");',
            "const hipGraph_t graph = build_graph();",
            "hipGraphExec_t executable;",
            f'CHECK(hipGraphInstantiateWithFlags(&executable, graph, {flags}), "");',
            "",
            "// Submit: until the call has returned. Done: until the graph has.",
            "double submit_sum = 0, done_sum = 0, submit_least = INFINITY, done_least = INFINITY;",
            "for (int i = -warm_up; i < repeat; ++i) {",
            "  using Clock = std::chrono::steady_clock;",
            "  const Clock::time_point begin = Clock::now();",
            '  CHECK(hipGraphLaunch(executable, stream), "");',
            "  const Clock::time_point submitted = Clock::now();",
            '  CHECK(hipStreamSynchronize(stream), "");',
            "  const Clock::time_point finished = Clock::now();",
            "  if (i < 0) continue;",
            "  const double submit = std::chrono::duration<double, std::micro>(submitted - begin).count();",
            "  const double done = std::chrono::duration<double, std::micro>(finished - begin).count();",
            "  submit_sum += submit, done_sum += done;",
            "  submit_least = std::fmin(submit_least, submit), done_least = std::fmin(done_least, done);",
            "}",
            "if (!quiet)",
            '  std::printf("%d launch%s, us: submit %.1f least, %.1f mean; until done %.1f least, %.1f mean\\n", repeat,',
            '              repeat > 1 ? "es" : "", submit_least, submit_sum / repeat, done_least, done_sum / repeat);',
            "",
            "for (const auto& [name, path] : outputs) write_npy(array_named(name), path);",
            "if (!out_dir.empty())",
            "  for (const Array& array : arrays) {",
            "    std::string name = array.name;",
            "    for (char& c : name)",
            "      if (c == '/') c = '.';",
            '    write_npy(array, out_dir + "/" + name + ".npy");',
            "  }",
            "",
            'CHECK(hipGraphExecDestroy(executable), "");',
            'CHECK(hipGraphDestroy(graph), "");',
            'CHECK(hipStreamDestroy(stream), "");',
            *(f'CHECK(hipEventDestroy({name}), "");' for name in self.events.values()),
            "for (const Array& array : arrays) {",
            '  if (array.place == DEVICE) CHECK(hipFree(*array.data), "");',
            '  else if (array.place == PINNED) CHECK(hipHostFree(*array.data), "");',
            "  else std::free(*array.data);",
            "}",
            "return 0;",
        ]
        named = [
            "static const Array& array_named(const std::string& name) {",
            "  for (const Array& array : arrays)",
            "    if (name == array.name) return array;",
            '  fail("there is no array \'%s\'; see --help", name.c_str());',
            "}",
            "",
        ]
        return [*lines, *named, "static int run(int argc, char** argv) {", *(f"  {x}" if x else "" for x in body), "}", ""]


class _Body:
    """The steps of one plan as statements."""

    def __init__(self, program: _Program, plan: Plan, scope: _Scope, names: _Names) -> None:
        self.program = program
        self.plan = plan
        self.names = names
        self.scopes: dict[tuple[int, ...], _Scope] = {(): scope}
        self.capture = program.capture
        self.called: dict[int, Any] = {}
        self._name_what_is_called()
        names.used |= program.outer
        lanes = [step.lane for step in plan.steps]
        needed: set[int] = set()
        for step in plan.steps:
            needed.update(d for d in step.deps if not self.capture or lanes[d] != step.lane)
        self.needed = needed
        self.variables: dict[int, tuple[str, Optional[int]]] = {}
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
                    self.program._memory(view.root, scope)

    def _name_variables(self) -> None:
        """Give a variable to each step that others wait for; those with names of one form share an array."""
        forms: dict[str, list[int]] = {}
        for step in self.plan.steps:
            forms.setdefault(_numbered(step.name)[0], []).append(step.index)
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
            numbers = [_numbered(self.plan.steps[index].name)[1] for index in members]
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

    def _scope_of(self, step: Step) -> _Scope:
        key = tuple(map(id, step.path))
        found = self.scopes.get(key)
        if found is None:
            found = self.scopes[()]
            for child in step.path:
                found = self.program._child_scope(child, found)
            self.scopes[key] = found
        return found

    def statements(self) -> list[_Statement]:
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
            made.append(_Statement(pieces, step.name))
        return made

    # -- node by node ------------------------------------------------------------------------------------------------------

    def _variable(self, index: int) -> list[_Piece]:
        name, k = self.variables[index]
        return [name] if k is None else [f"{name}[", _Hole("int", k, hint=f"{name}_index"), "]"]

    def _target(self, index: int) -> list[_Piece]:
        if index not in self.needed:
            return []
        declared = _DECLARED if self.variables[index][1] is None else ""
        return [declared, *self._variable(index), " = "]

    def _listed(self, indices: Iterable[int]) -> list[_Piece]:
        pieces: list[_Piece] = ["{"]
        for k, index in enumerate(indices):
            pieces += [", "] if k else []
            pieces += self._variable(index)
        return [*pieces, "}"]

    def _added(self, step: Step, scope: _Scope, name: str) -> list[_Piece]:
        form, numbers = _numbered(name)
        head: list[_Piece] = ["graph, ", _Hole("label", numbers, form), ", ", *self._listed(step.deps)]
        call = self._node(step, scope, name, head, _Hole("label", numbers, form))
        return [*self._target(step.index), *call, ";"]

    def _node(self, step: Step, scope: _Scope, name: str, head: list[_Piece], label: _Hole) -> list[_Piece]:
        """Return the call of an ``add_...`` function, without what takes its result."""
        node = step.node
        match node:
            case KernelNode():
                call: list[_Piece] = ["add_kernel(", *head, ", ", *self._launched(node, scope), ")"]
                if node.cooperative:
                    call = ["cooperative(", *call, ", ", label, ")"]
                if node.priority is not None:
                    call = ["with_priority(", *call, f", {int(node.priority)}, ", label, ")"]
                return call
            case MemcpyNode() if step.by_kernel:
                return ["add_kernel(", *head, ", ", *self._copy_kernel(node, scope), ")"]
            case MemcpyNode():
                flat, arguments = self._copied(node, scope)
                return ["add_copy(" if flat else "add_copy_3d(", *head, ", ", *arguments, ")"]
            case MemsetNode():
                size, arguments = self._filled(node, scope)
                return ["add_memset(" if size else "add_fill(", *head, ", ", *arguments, ")"]
            case AllocNode():
                memory = scope.memory[node.array]
                device = f", {node.array.device}" if node.array.device else ""
                return ["add_alloc(", *head, f", &{memory.expression}, {_bytes_of(node.array)}{device})"]
            case FreeNode():
                return ["add_free(", *head, f", {scope.memory[node.array].expression})"]
            case HostNode():
                function, arguments_of = self.called[step.index]
                return ["add_host(", *head, ", [=] { ", *_call(function.identifier, arguments_of), "; })"]
            case CapturedNode():
                function, arguments_of = self.called[step.index]
                given: list[list[_Piece]] = [["stream"], *arguments_of]
                return ["add_captured(", *head, ", [=](hipStream_t stream) { ", *_call(function.identifier, given), "; })"]
            case EventRecordNode():
                return ["add_record(", *head, f", {self.called[step.index]})"]
            case EventWaitNode():
                return ["add_wait(", *head, f", {self.called[step.index]})"]
            case EmptyNode():
                return ["add_empty(", *head, ")"]
            case MemoryOpsNode():
                pieces: list[_Piece] = ["add_memory_ops(", *head, ", {"]
                for k, op in enumerate(node.ops):
                    condition = -1 if op.op == "write" else ("geq", "eq", "and", "nor").index(op.condition)
                    pieces += [", "] if k else []
                    word = f"{op.view.dtype.itemsize}, {op.value}ULL"
                    pieces += ["memory_op(", *self._pointer(op.view, scope), f", {word}, {condition})"]
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

    def _captured(self, step: Step, scope: _Scope, name: str) -> list[_Piece]:
        form, numbers = _numbered(name)
        label = _Hole("label", numbers, form)
        stream: list[_Piece] = ["stream[", _Hole("int", step.lane, hint="lane"), "]"]
        lane_of = self.plan.steps
        others = [d for d in step.deps if lane_of[d].lane != step.lane]
        pieces: list[_Piece] = []
        if others:
            pieces += ["wait(", *stream, ", ", *self._listed(others), ");\n"]
        pieces += self._issued(step, scope, name, stream, label)
        if step.index in self.needed:
            pieces += ["\n", *self._target(step.index), "mark(", *stream, ");"]
        return pieces

    def _issued(self, step: Step, scope: _Scope, name: str, stream: list[_Piece], label: _Hole) -> list[_Piece]:
        node = step.node
        on: list[_Piece] = [*stream, ", ", label]
        end: list[_Piece] = [", ", *stream, "), ", label, ");"]
        match node:
            case KernelNode():
                function = "launch_cooperative(" if node.cooperative else "launch("
                call: list[_Piece] = [function, *on, ", ", *self._launched(node, scope), ");"]
                if node.priority is not None:
                    call += ["\nwith_priority(captured_nodes(", *on, f")[0], {int(node.priority)}, ", label, ");"]
                return call
            case MemcpyNode() if step.by_kernel:
                return ["launch(", *on, ", ", *self._copy_kernel(node, scope), ");"]
            case MemcpyNode():
                flat, arguments = self._copied(node, scope)
                return ["CHECK(hipMemcpyAsync(", *arguments, *end] if flat else ["copy_3d(", *on, ", ", *arguments, ");"]
            case MemsetNode():
                size, arguments = self._filled(node, scope)
                if not size:
                    return ["fill_on(", *on, ", ", *arguments, ");"]
                if size == 1 and not isinstance(node.value, Parameter):
                    region = node.dst.region
                    value = self._element(node, name)[0]
                    pointer = self._pointer(node.dst, scope)
                    if region.dims:
                        height, pitch = region.dims[0]
                        return ["CHECK(hipMemset2DAsync(", *pointer, f", {pitch}, {value}, {region.run}, {height}", *end]
                    return ["CHECK(hipMemsetAsync(", *pointer, f", {value}, {region.run}", *end]
            case AllocNode():
                memory = scope.memory[node.array]
                return [f"CHECK(hipMallocAsync((void**)&{memory.expression}, {_bytes_of(node.array)}", *end]
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
        head: list[_Piece] = ["graph, ", label, ", {}"]
        return ["insert(", *on, ", [=](hipGraph_t graph) { return ", *self._node(step, scope, name, head, label), "; });"]

    # -- arguments ---------------------------------------------------------------------------------------------------------

    def _pointer(self, view: ArrayView, scope: _Scope) -> list[_Piece]:
        return self.program._pointer(view, scope)

    def _launched(self, node: KernelNode, scope: _Scope) -> list[_Piece]:
        program = self.program
        kernel = program.kernels.kernel(node)
        if node.shared_bytes > 48 * 1024:
            program.parts.add("allow_shared")
        pieces: list[_Piece] = [
            f"KERNEL({kernel}), ", *self._dim3(node.grid, scope), ", ", *self._dim3(node.block, scope),
            f", {node.shared_bytes}",
        ]  # fmt: skip
        for parameter, arg in zip(node.signature.parameters, node.args):
            pieces += [", ", *self._argument(parameter, arg, scope, node)]
        return pieces

    def _argument(self, parameter: KernelParameter, arg: Any, scope: _Scope, node: KernelNode) -> list[_Piece]:
        value = arg.view if isinstance(arg, Access) else arg
        if isinstance(value, ArrayView):
            return self._pointer(value, scope)
        if isinstance(value, Parameter):
            return [scope.values[value]]
        dtype = parameter.dtype
        assert dtype is not None
        ctype = _ctype(dtype)
        if parameter.lanes == 1 and _is_plain(dtype):
            plain = value.item() if isinstance(value, np.generic) else value
            return [_Hole("value", plain, _spelled(parameter, ctype), parameter.name)]
        where = f"node {scope.prefix + node.name!r}: kernel {node.kernel.name!r}"
        packed = check_argument(parameter, value, where)
        data = packed if isinstance(packed, bytes) else np.array(packed, dtype).tobytes()
        if parameter.lanes == 1 and dtype.names is None and not is_bfloat16(dtype) and dtype.kind == "c":
            return [_literal(data, dtype)]
        self.program.parts.add("Bytes")
        return [f"Bytes<{len(data)}>{{{{{', '.join(map(str, data))}}}}}"]

    def _dim3(self, dim: tuple[Any, ...], scope: _Scope) -> list[_Piece]:
        axes = list(dim)
        while len(axes) > 1 and axes[-1] == 1:
            axes.pop()
        pieces: list[_Piece] = ["dim3("]
        for k, axis in enumerate(axes):
            pieces += [", "] if k else []
            pieces += [scope.values[axis]] if isinstance(axis, Parameter) else [_Hole("int", axis, hint="extent")]
        return [*pieces, ")"]

    def _copy_kernel(self, node: MemcpyNode, scope: _Scope) -> list[_Piece]:
        places = [self.program._memory(v.root, scope).offset * v.dtype.itemsize + v.offset_bytes for v in (node.dst, node.src)]
        wide, rest, blocks = copy_kernel_grid(places[0] | places[1], node.nbytes)
        return [
            f"KERNEL(hipgraphdsl_copy), dim3({blocks}), dim3(256), 0, (unsigned char*)(", *self._pointer(node.dst, scope),
            "), (const unsigned char*)(", *self._pointer(node.src, scope), f"), uint64_t({wide}), uint64_t({rest})",
        ]  # fmt: skip

    def _copied(self, node: MemcpyNode, scope: _Scope) -> tuple[bool, list[_Piece]]:
        """Return whether a copy is one run of bytes, and the arguments that say it."""
        dst, src = node.dst, node.src
        to, origin = (self.program._memory(view.root, scope).host for view in (dst, src))
        kind = "hipMemcpyDefault"  # also within host memory: some versions refuse such copies by their own name
        if to is not None and origin is not None and not (to and origin):
            kind = f"hipMemcpy{'Host' if origin else 'Device'}To{'Host' if to else 'Device'}"
        box = copy_geometry(dst, src)
        assert box is not None, "MemcpyNode refuses what no box can copy"
        a, b = self._pointer(dst, scope), self._pointer(src, scope)
        if box.is_flat:
            item = dst.dtype.itemsize
            count = box.width_bytes // item
            size = f"{count} * sizeof({_ctype(dst.dtype)})" if item > 1 and count > 1 else str(box.width_bytes)
            return True, [*a, ", ", *b, f", {size}, {kind}"]
        return False, [
            "box({", *a, f", {box.dst_pitch}, {box.dst_slice // box.dst_pitch}}}, {{",
            *(["(void*)(", *b, ")"] if isinstance(src.root, Symbol) else b),
            f", {box.src_pitch}, {box.src_slice // box.src_pitch}}}, {box.width_bytes}, {box.height}, {box.depth}, {kind})",
        ]  # fmt: skip

    def _element(self, node: MemsetNode, name: str) -> bytes:
        return element_bytes(node.value, node.dst.dtype, f"node {name!r}")

    def _filled(self, node: MemsetNode, scope: _Scope) -> tuple[int, list[_Piece]]:
        """Return the bytes of the elements by which a memset does it, or 0 where a kernel must, and the arguments."""
        view, region, dtype = node.dst, node.dst.region, node.dst.dtype
        item = dtype.itemsize
        pointer = self._pointer(view, scope)
        parameter = isinstance(node.value, Parameter)
        element = b"" if parameter else self._element(node, scope.prefix + node.name)
        size = 0
        if len(region.dims) < 2:
            size = (item if item in (1, 2, 4) else 0) if parameter else repeated_bytes(element)
        # HIP's 2-D memsets of elements of several bytes, and up to the end of an allocation, are faulty or refused.
        if region.dims and (size > 1 or region.dims[0][0] * region.dims[0][1] > view.root.nbytes):
            size = 0
        value = scope.values[node.value] if parameter else self.program._scalar(element, dtype)
        if size:
            if parameter or (size == item and size > 1):
                self.program.parts.add("bits")
                word = f"bits({value})"
            else:
                word = f"{int.from_bytes(element[:size], 'little'):#x}" if any(element) else "0"
            box = f", {region.dims[0][0]}, {region.dims[0][1]}" if region.dims else ""
            return size, [*pointer, f", {size}, {word}, {region.run // size}{box}"]
        counts = [region.run // item, *(count for count, _ in reversed(region.dims))]
        strides = [item, *(stride for _, stride in reversed(region.dims))]
        counts += [1] * (4 - len(counts))
        strides += [0] * (4 - len(strides))
        listed = f"{', '.join(map(str, counts[:3]))}}}, {{{', '.join(map(str, strides))}"
        return 0, [*pointer, f", {value}, {item}, Fill{{{view.size}, {{{listed}}}}}"]


def _spelled(parameter: KernelParameter, ctype: str) -> str:
    """Return the type of an argument as a kernel declares it, where that is one of the usual ones."""
    return "size_t" if parameter.ctype == "size_t" else ctype


def _call(function: str, arguments: Sequence[Sequence[_Piece]]) -> list[_Piece]:
    pieces: list[_Piece] = [f"{function}("]
    for k, argument in enumerate(arguments):
        pieces += [", "] if k else []
        pieces += argument
    return [*pieces, ")"]


_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def _numbered(name: str) -> tuple[str, tuple[int, ...]]:
    """Return a name as a format and the numbers in it; ``"step_%ld", (3,)``."""
    numbers: list[int] = []
    parts: list[str] = []
    at = 0
    for match in _DIGITS.finditer(name):
        digits = match.group()
        parts.append(name[at : match.start()].replace("%", "%%"))
        parts.append(f"%0{len(digits)}ld" if digits[0] == "0" and len(digits) > 1 else "%ld")
        numbers.append(int(digits))
        at = match.end()
    parts.append(name[at:].replace("%", "%%"))
    form = "".join(parts)
    width = max((int(w) for w in re.findall(r"%0(\d+)ld", form)), default=0)
    if width:  # "step_07" and "step_10" have one form
        form = re.sub(r"%ld", f"%0{width}ld", form)
        if form.replace("%%", "%") and _format(form, numbers) != name:
            return name.replace("%", "%%"), ()
    return form, tuple(numbers)


def _format(form: str, numbers: Sequence[int]) -> str:
    return form.replace("ld", "d") % tuple(numbers) if "ld" in form else form % tuple(numbers)


# -- functions of the user -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Given:
    """One argument of a function that the user writes."""

    name: str
    ctype: str
    mode: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: Optional[np.dtype[Any]] = None


@dataclass(slots=True)
class _Function:
    """A function that the user writes."""

    identifier: str
    fn: Any
    captured: bool
    given: list[_Given]
    left: list[str]
    nodes: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        names = _Names(set(_KEYWORDS) | {"stream"})
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
            strides = "" if dense else f", strides in elements {_shape_text(tuple(s // item for s in given.strides))}"
            what = {"read": "only read", "write": "overwritten", "update": "read and written"}[given.mode]
            about.append(f"{name}: {_dtype_name(given.dtype)}, shape {_shape_text(given.shape)}{strides}; {what}")
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


def _argument_names(node: Union[HostNode, CapturedNode]) -> list[str]:
    if isinstance(node.fn, UnboundCallback):
        return []
    try:
        parameters = list(inspect.signature(node.fn).parameters.values())
    except (TypeError, ValueError):
        return []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[1:] if isinstance(node, CapturedNode) else names


def _plain_value(value: Any) -> Optional[tuple[str, Optional[str]]]:
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
    if isinstance(value, np.generic) and _is_plain(value.dtype):
        return _ctype(value.dtype), _literal(value.tobytes(), value.dtype)
    return None


# -- kernels ---------------------------------------------------------------------------------------------------------------

_HEADERS: Final = {
    "hip/hip_fp16.h": ("cuda_fp16.h", re.compile(r"\b(?:__)?half2?\b")),
    "hip/hip_bf16.h": ("cuda_bf16.h", re.compile(r"\b__hip_bfloat16\b")),
    "hip/hip_bfloat16.h": ("cuda_bf16.h", re.compile(r"\bhip_bfloat16\b")),
    "hip/hip_complex.h": ("cuComplex.h", re.compile(r"\bhip(?:Float|Double)?Complex\b")),
    "hip/hip_cooperative_groups.h": ("cooperative_groups.h", re.compile(r"\bcooperative_groups\b")),
}


class _Kernels:
    """The modules of a workflow in one program."""

    def __init__(self, workflow: Workflow) -> None:
        self.modules = [m for m in workflow.modules if not isinstance(m, ForeignModule) and m.path is None]
        self.used: dict[str, None] = {}
        self.built_in: set[str] = set()
        self.names: set[str] = set()
        self.macros: dict[Module, list[str]] = {}
        for module in self.modules:
            self.names |= _outer_names(module)
        space = _Names(FIXED_NAMES | self.names | set(_KEYWORDS))
        self.spaces = {m: space.new(m.name) if len(self.modules) > 1 else "" for m in self.modules}
        self.names |= set(self.spaces.values())
        self.flags = list(dict.fromkeys(o for m in self.modules for o in m.options if not o.startswith("-D")))
        words = "\n".join(m.source for m in self.modules)
        self.headers = [name for name, (_, word) in _HEADERS.items() if word.search(words)]

    def kernel(self, node: KernelNode) -> str:
        """Return a kernel as the program names it."""
        module = node.kernel.module
        if isinstance(module, ForeignModule) or module.path is not None:
            what = "was read from a graph of another program" if isinstance(module, ForeignModule) else "is a code object"
            raise DeclarationError(
                f"node {node.name!r}: kernel {node.kernel.name!r} {what}, of which there is no source to put into a program;"
                " declare the kernel from its source",
                node=node.name,
            )
        text = self._qualified(module, node.kernel.name)
        self.used[text] = None
        return text

    def reference(self, symbol: Symbol) -> str:
        """Return a variable as the program names it."""
        return self._qualified(symbol.module, symbol.name)

    def _qualified(self, module: Module, name: str) -> str:
        space = self.spaces[module]
        name = name.removeprefix("::")
        if space:
            return f"{space}::{name}"
        return f"::{name}" if re.match(r"\w*", name).group() in FIXED_NAMES else name  # type: ignore[union-attr]

    def text(self, symbols: dict[Symbol, str]) -> list[str]:
        """Return the section that holds the kernels."""
        lines: list[str] = []
        several = len(self.modules) > 1
        for module in self.modules:
            source = _without_headers(module.source, several)
            given = []
            for option in module.options:
                if option.startswith("-D"):
                    name, _, value = " ".join(option[2:].split()).partition("=")
                    if re.fullmatch(r"[A-Za-z_]\w*", name):
                        given.append((name, value or "1"))
            lines += comment(f"Module {module.name}") if several else []
            lines += [f"#define {name} {value}" for name, value in given]
            if self.spaces[module]:
                source = _without_c_names(source)
                lines.append(f"namespace {self.spaces[module]} {{")
            lines += source.replace("\r\n", "\n").strip("\n").split("\n")
            if self.spaces[module]:
                lines.append(f"}}  // namespace {self.spaces[module]}")
            defined = re.findall(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", source, re.MULTILINE)
            lines += [f"#undef {name}" for name in dict.fromkeys([*(name for name, _ in given), *defined])]
            lines.append("")
        if self.built_in:
            lines += _built_in(self.built_in)
        macros = [
            "#if defined(HIP_CPU)",
            "#define KERNEL(...) hip_cpu_kernel(#__VA_ARGS__)",
            *(["#define SYMBOL(name, pointer) hip_cpu_symbol(#name, (void**)&pointer)"] if symbols else []),
            "#else",
            "#define KERNEL(...) (__VA_ARGS__)",
            *(
                ['#define SYMBOL(name, pointer) CHECK(hipGetSymbolAddress((void**)&pointer, HIP_SYMBOL(name)), "")']
                if symbols
                else []
            ),
            "#endif",
            "",
        ]
        if not lines:
            return [*macros]
        return [
            *_section("Kernels"),
            "#if !defined(HIP_CPU)  // kernels begin: for a CPU they are compiled apart",
            *lines,
            "#endif  // kernels end",
            *macros,
        ]


def _built_in(names: set[str]) -> list[str]:
    """Return the library's own kernels of these names."""
    found = []
    for part in re.split(r"\n(?=// )", BUILT_IN.source.strip("\n")):
        if any(re.search(rf"\b{name}\b", part) for name in names):
            found += [*part.strip("\n").split("\n"), ""]
    return found


def _outer_names(module: Module) -> set[str]:
    """Return the names that a source declares outside of functions, and its macros; all of them where scopes are nested."""
    names: set[str] = set()
    depth = 0
    tokens = tokenize(module.source, module.name)
    nested = any(t.text == "namespace" or (t.text == '"C"' and tokens[k + 1].text == "{") for k, t in enumerate(tokens[:-1]))
    for token in tokens:
        if token.kind == "directive":
            names |= set(re.findall(r"#\s*define\s+(\w+)", token.text))
        elif token.text in "({[" and token.kind == "punct":
            depth += 1
        elif token.text in ")}]" and token.kind == "punct":
            depth -= 1
        elif token.kind == "name" and (nested or depth == 0):
            names.add(token.text)
    return names - set(_KEYWORDS) - set(_CTYPES.values())


def _without_headers(source: str, every: bool) -> str:
    """Leave out the headers that stand at the top of the program, where HIP's and CUDA's are told apart."""
    pattern = r"^[ \t]*#[ \t]*include[ \t]*<(hip/[^>\n]*)>[^\n]*$"
    text = re.sub(pattern, "", source, flags=re.MULTILINE)
    if every:  # a header must not be read inside a namespace
        text = re.sub(r"^[ \t]*#[ \t]*(?:include[ \t]*<[^>\n]*>|pragma[ \t]+once)[^\n]*$", "", text, flags=re.MULTILINE)
    return text


def _without_c_names(source: str) -> str:
    """Give functions C++ names: of two modules with a kernel of one name, both would otherwise be the same function."""
    out, at = [], 0
    tokens = tokenize(source)
    for before, token in itertools.pairwise(tokens):
        if before.text == "extern" and token.text == '"C"':
            out += [source[at : token.start], '"C++"']
            at = token.end
    return "".join([*out, source[at:]])


_AFTER_ARRAYS: Final = ("npy", "number")


def _with_shared(text: str, shared: bool) -> str:
    """Return a part with, or without, the line that asks for much shared memory."""
    return re.sub(r"//@shared +", "", text) if shared else re.sub(r"\n *//@shared[^\n]*", "", text)


# -- small things ----------------------------------------------------------------------------------------------------------


def _section(title: str) -> list[str]:
    return ["", f"// ---- {title} {'-' * (112 - len(title))}", ""]


def _includes(shim: list[str], driver: bool, headers: list[str]) -> list[str]:
    cuda = ["#include <cuda.h>"] * driver + ["#include <cuda_runtime.h>"]
    cuda += [f"#include <{_HEADERS[name][0]}>" for name in headers]
    standard = (
        "cctype cerrno chrono cmath complex cstdint cstdio cstdlib cstring deque functional initializer_list map memory string"
        " tuple type_traits utility vector"
    )
    return [
        "#if defined(__CUDACC__)  // HIP's names on CUDA: those that stand below",
        *dict.fromkeys(cuda),
        *shim,
        "#else",
        "#include <hip/hip_runtime.h>",
        *(f"#include <{name}>" for name in headers),
        "#endif",
        "",
        *(f"#include <{name}>" for name in standard.split()),
        "",
    ]


_STRINGS: Final = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def _wrapped(line: str, width: int = 116) -> list[str]:
    """Break a long line after commas that stand in no string and no comment."""
    if len(line) <= width or line.lstrip().startswith("//"):
        return [line]
    hidden = _STRINGS.sub(lambda m: "x" * len(m.group()), line)
    depths = list(itertools.accumulate((c in "([{") - (c in ")]}") for c in hidden))
    commas = [(k, depths[k]) for k in range(len(hidden)) if hidden.startswith(", ", k)]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    out, at = [], 0
    while len(line) - at + (len(indent) if at else 0) > width:
        room = at + width - (len(indent) if at else 0)
        fits = [(depth, -k) for k, depth in commas if at < k < room]
        if not fits:
            break
        cut = -min(fits)[1]
        out.append((indent if at else "") + line[at : cut + 1])
        at = cut + 2
    return [*out, (indent if at else "") + line[at:]]


def _without_double_blanks(lines: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


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


def _has_ring(plan: Plan) -> bool:
    """Return whether streams other than the first wait for each other in a ring."""
    lane_of = [step.lane for step in plan.steps]
    waits: dict[int, set[int]] = {}
    for step in plan.steps:
        for d in step.deps:
            if lane_of[d] != step.lane and lane_of[d] and step.lane:
                waits.setdefault(step.lane, set()).add(lane_of[d])
    left = {lane: set(others) for lane, others in waits.items()}
    while True:
        free = {lane for lane, others in left.items() if not others & left.keys()}
        if not free:
            return bool(left)
        left = {lane: others for lane, others in left.items() if lane not in free}


def _is_option(parameter: Parameter) -> bool:
    """Return whether an option can say a value of it."""
    return bool(parameter.shape) or _is_plain(parameter.dtype)


def _options(parameters: Sequence[tuple[str, str, Parameter]]) -> list[str]:
    own = {"--in", "--out", "--out-dir", "--data-dir", "--repeat", "--warm-up", "--quiet", "--help"}
    return [f"--{name}" if f"--{name}" not in own else f"--param-{name}" for name, _, _ in parameters]


def _bytes_of(array: Array) -> str:
    item = array.dtype.itemsize
    return f"{array.size} * sizeof({_ctype(array.dtype)})" if item > 1 and array.size > 1 else str(array.nbytes)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.names is None else f"struct of {dtype.itemsize} bytes"


def _descr(dtype: np.dtype[Any]) -> str:
    """Return the dtype as the header of a .npy file spells it, without spaces."""
    return re.sub(r"\s", "", repr(np.lib.format.dtype_to_descr(dtype)))


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
