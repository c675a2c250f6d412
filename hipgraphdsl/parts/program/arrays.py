"""Arrays and parameters of a HIP C++ program: their variables, initial values, files and options."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ...arrays import AllocArray, Array, ExternalArray, HostArray, Parameter, UnboundValues
from ...errors import DeclarationError
from ...export.files import npy_dtype, npy_file
from ...nodes import element_bytes
from ...nodes.workflow import Workflow
from ...placement import rewritten
from ...printed import human_bytes
from .text import Names, comment, ctype_of, dtype_name, is_exact, is_plain, literal_of, quoted, section, shape_text, sized

_INLINE: Final = 64
"""Maximum number of values written in the program itself; more are read from a file."""
_OWN_OPTIONS: Final = frozenset({"in", "out", "out-dir", "data-dir", "repeat", "warm-up", "quiet", "help", "device"})


@dataclass(frozen=True)
class _Storage:
    """An array that the program owns."""

    name: str
    identifier: str
    array: Array

    @cached_property
    def values(self) -> Any:
        """The initial values: a NumPy array, a reference to a file, or None."""
        return np.asarray(self.array.obj) if isinstance(self.array, ExternalArray) else getattr(self.array, "initial", None)

    @cached_property
    def assigned(self) -> list[str] | None:
        """The statements that assign the initial values, or None if they must be read from a file."""
        if isinstance(self.values, UnboundValues):
            return None
        return [] if self.values is None else _short_form(self.identifier, self.values)


class Arrays:
    """The arrays and parameters of a workflow and its children, in one program.

    `names` provides the variable names; file names start with `stem`.
    """

    def __init__(self, workflow: Workflow, names: Names, stem: str) -> None:
        self.workflow = workflow
        self.names = names
        self.stem = stem
        self._storage: list[_Storage] = []
        self._aliases: list[tuple[_Storage, str]] = []
        self._temporaries: list[_Storage] = []
        self.kept: set[str] = set()
        """Variables of temporary arrays that are shared by several graphs."""
        self._parameters: list[tuple[str, str, Parameter, str | None]] = []  # option, identifier, and the default array's name
        self._defaults: list[str] = []
        """The statements that let parameters stand for memory that their graph declares as no array."""

    def declare(self, name: str, array: Array) -> str:
        """Declare an array by its full name, and return its variable."""
        storage = _Storage(name, self.names.new(name, "array"), array)
        if isinstance(array, AllocArray):
            self._temporaries.append(storage)
        elif not isinstance(array, ExternalArray) or not self._is_inside(storage, array):
            self._storage.append(storage)
        return storage.identifier

    def declare_parameter(self, name: str, parameter: Parameter, array: str) -> str:
        """Declare a parameter by its full name, with the full name of the array that is its default, and return its variable."""
        default: str | None = array
        if parameter.copy and parameter.default is None:
            raise DeclarationError(
                f"parameter {name!r} copies the values of each launch (copy=True), and no option of a program gives values of an"
                " array; declare a default, or use a host array",
                array=parameter.name,
            )
        if parameter.copy:
            return self.declare(name, HostArray(name, parameter.shape, parameter.dtype, initial=parameter.default))
        identifier = self.names.new(name, "parameter")
        if parameter.shape and parameter.default is not None and not array:
            memory = self.declare(name, ExternalArray.wrap(name, parameter.default, what="parameter"))
            self._defaults.append(f"if (!{identifier}) {identifier} = {memory};")
            default = None
        self._parameters.append((name, identifier, parameter, default))
        return identifier

    def _is_inside(self, storage: _Storage, array: ExternalArray) -> bool:
        """Return whether external memory lies within an earlier external array; if so, record it as an alias of that array."""
        if array.obj is None or array.location != "host":
            what = "device memory" if array.obj is not None else "memory that nobody has supplied"
            raise DeclarationError(
                f"external array {storage.name!r} is {what}, which a standalone program does not have; declare it as"
                " device_array or host_array, and the program reads it from a file",
                array=storage.name,
            )
        for other in self._storage:
            known = other.array
            if not isinstance(known, ExternalArray):
                continue
            offset = array.pointer - known.pointer
            if offset >= known.nbytes or offset + array.nbytes <= 0:
                continue
            whole = offset >= 0 and offset + array.nbytes <= known.nbytes and not offset % array.dtype.itemsize
            if not whole or array.dtype != known.dtype:
                raise DeclarationError(
                    f"external arrays {other.name!r} and {storage.name!r} share bytes in a way that a program cannot declare;"
                    " declare the one that holds both first, or one array with views",
                    array=storage.name,
                )
            self._aliases.append((storage, f"{other.identifier} + {offset // array.dtype.itemsize}"))
            return True
        return False

    # -- initial values ----------------------------------------------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """Return the files with the initial values of large arrays."""
        found = {}
        for storage in self._storage:
            if storage.assigned is None and isinstance(values := storage.values, np.ndarray):
                found[self._file(storage)] = npy_file(values)
        return found

    def _file(self, storage: _Storage) -> str:
        return f"{self.stem}.{storage.identifier}.npy"

    def first_values(self) -> list[str]:
        """Return the statements that set aliases, and those that assign initial values with a short form."""
        aliases = [f"{storage.identifier} = {at};" for storage, at in self._aliases]
        return aliases + self._defaults + [line for storage in self._storage for line in storage.assigned or ()]

    # -- declarations ------------------------------------------------------------------------------------------------------

    @cached_property
    def _rewritten(self) -> set[Array]:
        return rewritten(self.workflow)

    def _place(self, array: Array) -> tuple[str, str]:
        """Return memory kind and description of an array; rewritten ones are pinned: drivers may read pageable memory early."""
        if isinstance(array, AllocArray):
            return "", "made and freed inside the graph"
        if not array.on_host:
            return "DEVICE", "device memory"
        locked = getattr(array, "pinned", True) or array in self._rewritten
        return ("PINNED", "page-locked host memory") if locked else ("PAGEABLE", "host memory")

    def declarations(self, more: list[str]) -> list[str]:
        """Return the variables of arrays, then `more`, then the table of the arrays that the program allocates."""
        lines = section("Arrays")
        shown = [*self._storage, *(storage for storage, _ in self._aliases), *self._temporaries]
        heads = [f"static {ctype_of(s.array.dtype)}* {s.identifier};" for s in shown]
        width = max((len(head) for head in heads), default=0)
        for storage, head in zip(shown, heads):
            array = storage.array
            named = f"{storage.name}: " if storage.name != storage.identifier else ""
            where = "device memory of several graphs" if storage.identifier in self.kept else self._place(array)[1]
            what = f"{named}{dtype_name(array.dtype)}{list(array.shape)}, {human_bytes(array.nbytes)}, {where}"
            lines.append(f"{head:{width}}  {comment(what)[0]}")
        lines += [*more, "", "static const std::vector<Array> arrays = {"]
        for storage in self._storage:
            array = storage.array
            descr = re.sub(r"\s", "", repr(np.lib.format.dtype_to_descr(npy_dtype(array.dtype))))  # as in .npy headers
            lines.append(
                f"    {{{quoted(storage.name)}, (void**)&{storage.identifier}, {sized(array.nbytes, array.dtype)},"
                f" {self._place(array)[0]}, {quoted(descr)}, {quoted(shape_text(array.shape))},"
                f" {quoted(self._file(storage)) if storage.assigned is None else 'nullptr'}}},"
            )
        return [*lines, "};", ""]

    def parameters(self) -> list[str]:
        """Return the variables of the parameters."""
        lines = section("Parameters, which are options of the program") if self._parameters else []
        for option, identifier, parameter, _ in self._parameters:
            ctype = ctype_of(parameter.dtype)
            if parameter.shape:
                lines.append(f"static {ctype}* {identifier};  {comment(f'--{option}: the name of an array')[0]}")
                continue
            said = "" if is_plain(parameter.dtype) else "  // change it here: no option can say such a value"
            lines.append(f"static {ctype} {identifier} = {_default(option, parameter)};{said}")
        return [*lines, ""]

    def options(self) -> tuple[list[str], list[str], list[str]]:
        """Return the options that set parameters, the lines of their help, and those of the arrays."""
        options, told = [], []
        for name, identifier, parameter, array in self._parameters:
            flag = f"--{name}" if name not in _OWN_OPTIONS else f"--param-{name}"
            default = parameter.default
            if parameter.shape:
                said = "none, so it must be given" if array == "" else f"default: {array or name}"
                told.append(f"  {flag} NAME  the array that stands for parameter {name} ({said})")
                named = "nullptr" if array is None else quoted(array)
                options.append(f"array_option({quoted(flag)}, {identifier}, {parameter.nbytes}, {named})")
            elif is_plain(parameter.dtype):
                said = "none, so it must be given" if default is None else f"default: {default}"
                told.append(f"  {flag} VALUE  {dtype_name(parameter.dtype)} ({said})")
                options.append(f"value_option({quoted(flag)}, {identifier}{', true' if default is None else ''})")
        return options, told, [f"  {s.name}: {dtype_name(s.array.dtype)}{list(s.array.shape)}" for s in self._storage]


def _default(option: str, parameter: Parameter) -> str:
    if parameter.default is not None:
        return literal_of(element_bytes(parameter.default, parameter.dtype, f"parameter {option!r}"), parameter.dtype)
    if not is_plain(parameter.dtype):
        raise DeclarationError(
            f"parameter {option!r} of {dtype_name(parameter.dtype)} has no default, and no option of a program can give such a"
            " value; declare a default",
            array=option,
        )
    return f"{ctype_of(parameter.dtype)}()"


def _short_form(name: str, values: np.ndarray[Any, Any]) -> list[str] | None:
    """Return the statement that assigns these values to an array, or None if they must be read from a file."""
    dtype = values.dtype
    flat = np.ascontiguousarray(values).reshape(-1)
    if not flat.tobytes().strip(b"\0"):
        return []
    if not is_exact(flat):
        return None
    count = flat.size
    period = _period(flat.view(f"V{dtype.itemsize}"))
    if period == 1:
        return [f"set({name}, {count}, [](size_t) {{ return {_literal(flat[0])}; }});"]
    if term := _progression(flat[:period], "i" if period == count else f"i % {period}"):
        return [f"set({name}, {count}, [](size_t i) {{ return {term}; }});"]
    if period <= _INLINE:
        text = f"set_list({name}, {count}, {{{', '.join(map(_literal, flat[:period]))}}});"
        return textwrap.wrap(text, 116, subsequent_indent="    ", break_long_words=False)
    return None


def _literal(element: Any) -> str:
    value = np.asarray(element)
    return literal_of(value.tobytes(), value.dtype)


def _progression(line: np.ndarray[Any, Any], index: str) -> str | None:
    """Return a term that computes an arithmetic progression bit-exactly in the element type; None for other values."""
    dtype, count = line.dtype, line.size
    if count <= 2 or dtype.kind not in "iuf" or dtype.itemsize <= 2:
        return None
    first, step, last = line[0], line[1].item() - line[0].item(), line[-1].item()
    if dtype.kind == "f":
        most = 2**24 if dtype.itemsize == 4 else 2**52
        exact = count < most and all(float(x).is_integer() and abs(x) < 2**24 for x in (first.item(), step, last))
    else:  # no part of the sum may overflow: for signed integers that is undefined behaviour in C++
        span = step * (count - 1)
        exact = first.item() + span == last and (step > 0 if dtype.kind == "u" else abs(span) <= np.iinfo(dtype).max)
    if not exact or (first + np.arange(count, dtype=dtype) * dtype.type(step)).tobytes() != line.tobytes():
        return None
    ctype = ctype_of(dtype)
    start = "" if first == 0 and not np.signbit(first) else f"{_literal(first)} + "
    return f"{ctype}({start}{ctype}({index}){'' if step == 1 else f' * {_literal(dtype.type(step))}'})"


def _period(data: np.ndarray[Any, Any]) -> int:
    """Return the period of the values in elements, up to a limit; the number of elements if they do not repeat."""
    count = data.size
    limit = min(4096, count // 2)
    if limit:
        head = data[: limit + 1]
        for k in np.flatnonzero(head[1:] == head[0])[:64]:
            period = int(k) + 1
            if data[period:].tobytes() == data[:-period].tobytes():
                return period
    return int(count)
