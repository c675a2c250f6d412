"""User functions in a HIP C++ program: stubs that only report that they are not written yet, below their Python source."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...arrays import Access, ArrayView, Parameter
from ...nodes import UnboundCallback, callable_name
from ...nodes.facets import Moment, UserCall
from .text import KEYWORDS, Hole, Names, Piece, comment, ctype_of, dtype_name, is_plain, literal_of, quoted, shape_text


@dataclass(frozen=True, slots=True)
class _Given:
    """One argument: a value, or with a `view` a pointer to its first element."""

    name: str
    ctype: str
    mode: str = ""
    view: ArrayView | None = None


_WHEN: Final[dict[Moment, str]] = {
    "host": "runs on the host",
    "capture": "put what you like on the stream: it becomes part of the graph",
    "between": "runs on the host between graphs, and may put work on the stream",
}


@dataclass(slots=True)
class _Function:
    identifier: str
    node: UserCall
    given: list[_Given]
    left: list[str]
    nodes: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        """Return the text of the function."""
        names = Names({*KEYWORDS, "stream"})
        arguments = [] if self.node.calls == "host" else ["hipStream_t stream"]
        about = []
        for given in self.given:
            name = names.new(given.name)
            if given.view is None:
                arguments.append(f"{given.ctype} {name}")
                continue
            view, item = given.view, given.view.dtype.itemsize
            arguments.append(f"{'const ' if given.mode == 'read' else ''}{given.ctype}* {name}")
            gaps = "" if view.contiguous else f", strides in elements {shape_text(tuple(s // item for s in view.strides))}"
            what = {"read": "only read", "write": "overwritten", "update": "read and written"}[given.mode]
            about.append(f"{name}: {dtype_name(view.dtype)}, shape {shape_text(view.shape)}{gaps}; {what}")
        shown = ", ".join(repr(node) for node in self.nodes[:4]) + (", ..." if len(self.nodes) > 4 else "")
        lines = [
            f"Of node{'s' * (len(self.nodes) > 1)} {shown}; {_WHEN[self.node.calls]}.",
            *about,
            *self.left,
            "",
            "In Python:",
            "",
        ]
        return [
            *comment("\n".join([*lines, *(f"    {line}" for line in _python(self.node.fn))])),
            f"static void {self.identifier}({', '.join(arguments)}) {{",
            f"  NOT_WRITTEN({quoted(callable_name(self.node.fn))});  // your code in place of this line",
            "}",
            "",
        ]


class Functions:
    """The functions that the user must implement, one for all nodes whose arguments have the same form."""

    def __init__(self, name: Callable[[str, str], str]) -> None:
        self._name = name
        self._found: dict[Any, _Function] = {}

    def call(
        self,
        name: str,
        node: UserCall,
        pointer: Callable[[ArrayView], list[Piece]],
        value_of: Callable[[Parameter], str],
    ) -> tuple[str, list[list[Piece]]]:
        """Return the function that the node with this full name calls, and its arguments.

        `pointer` and `value_of` return the C++ text of a view and of a scalar parameter in the node's scope.
        """
        given: list[_Given] = []
        arguments: list[list[Piece]] = []
        left: list[str] = []
        modes = {access.view: access.mode for access in node.access}
        labels = _argument_names(node)
        for k, arg in enumerate(node.args):
            value = arg.view if isinstance(arg, Access) else arg
            label = labels[k] if k < len(labels) else ""
            if isinstance(value, ArrayView):
                mode = arg.mode if isinstance(arg, Access) else modes.get(value, "read")
                given.append(_Given(label or value.root.name, ctype_of(value.dtype), mode, value))
                arguments.append(pointer(value))
            elif isinstance(value, Parameter):
                given.append(_Given(label or value.name, ctype_of(value.dtype)))
                arguments.append([value_of(value)])
            elif (typed := _typed(value, label)) is not None:
                given.append(_Given(label or f"value{k}", typed[0]))
                arguments.append([typed[1]])
            else:
                left.append(f"{label or f'argument {k}'} was {type(value).__name__} {value!r:.200}")
        fn = node.fn
        forms = tuple((g.ctype, g.mode, g.view and (g.view.shape, g.view.strides)) for g in given)
        key = (node.calls, fn.path if isinstance(fn, UnboundCallback) else id(fn), forms, tuple(left))
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = _Function(self._name(callable_name(fn), "function"), node, given, left)
        if name not in known.nodes:
            known.nodes.append(name)
        return known.identifier, arguments

    @property
    def any_on_stream(self) -> bool:
        """Whether one of them puts work on a stream."""
        return any(function.node.calls != "host" for function in self._found.values())

    def text(self) -> list[str]:
        """Return the text of all functions."""
        return [line for function in self._found.values() for line in function.text()]


def _python(fn: Any) -> list[str]:
    """Return the source of a callback, or else a description; nothing is imported for this."""
    if isinstance(fn, UnboundCallback):
        return [f"{fn.path}, whose source the workflow's file does not hold"]
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return [f"{callable_name(fn)}, whose source is not at hand"]
    lines = text.splitlines()
    return lines if len(lines) <= 200 else [*lines[:200], f"... and {len(lines) - 200} lines more"]


def _argument_names(node: UserCall) -> list[str]:
    """Return the known names of a callback's arguments."""
    if isinstance(node.fn, UnboundCallback):
        return []
    try:
        parameters = list(inspect.signature(node.fn).parameters.values())
    except (TypeError, ValueError):
        return []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names if node.calls == "host" else names[1:]


def _typed(value: Any, label: str) -> tuple[str, Piece] | None:
    """Return a value's type and text, as a hole if it may differ between nodes of a loop; None without a C++ equivalent."""
    ctype = None
    if isinstance(value, (bool, np.bool_)):
        ctype = "bool"
    elif type(value) is int:
        kinds = {"int": -(2**31) <= value < 2**31, "int64_t": -(2**63) <= value < 2**63, "uint64_t": 0 <= value < 2**64}
        ctype = next((name for name, fits in kinds.items() if fits), None)
    elif type(value) is float:
        ctype = "double"
    elif type(value) is str:
        return "const char*", quoted(value)
    elif isinstance(value, np.generic) and is_plain(value.dtype):
        return ctype_of(value.dtype), literal_of(value.tobytes(), value.dtype)
    return None if ctype is None else (ctype, Hole("value", value, ctype, label))
