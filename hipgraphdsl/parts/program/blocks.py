"""Blocks of calls as functions of a HIP C++ program.

Data flow: lines that a backend wrote -> one `Statement` per step: text with holes for whatever may differ between steps ->
stretches of statements that differ only in their holes become loops -> functions. In a loop, a hole is filled with the common
value of all repetitions, an expression in the loop counter, or a table entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from ...export.fold import find_repeats
from .calls import NAME, Block, Line, Place
from .scopes import Handles
from .text import (
    DECLARED,
    Hole,
    Loop,
    Names,
    Numbering,
    Piece,
    Statement,
    by_number,
    comment,
    function_text,
    joined,
    quoted,
    sized,
    without_double_blanks,
    wrapped,
)

_PART: Final = 400
"""Maximum number of statements per function: compile time grows faster than the length of a function."""


class GraphFunctions:
    """Generates the functions that build a program's graphs."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.tables: list[str] = []
        """Tables of the values that differ between the nodes of a loop."""
        self._children: dict[Any, str] = {}
        self.functions: list[str] = []

    def build(self, block: Block, function: str, head: Sequence[str] = ()) -> None:
        """Generate the function that builds a graph node by node, or records it from streams; `head` is placed at its beginning.

        Forks and joins are not written at the first and the last step of each lane, where the backend makes them: three lines per
        stream would hide repetitions. `begin_capture` and `end_capture`, around all steps, establish the same order.
        """
        lines = self._lines(block, self.handles.names)
        if block.captured:
            count = block.streams
            begin = [f"hipStream_t stream[{count}];", f"begin_capture(stream, {count});", ""]
            end = f"return end_capture(stream, {count});"
        else:
            begin, end = ["hipGraph_t graph;", 'CHECK(hipGraphCreate(&graph, 0), "");', ""], "return graph;"
        self.functions += function_text(f"{function}()", [*head, *begin, *lines, end])

    def loads(self) -> list[str]:
        """Return the statements that load the kernels that captures launch."""
        launched = self.handles.writer.launched
        head = ["// A kernel is loaded when it is first used, which a capture may forbid."] if launched else []
        return [*head, *(f"load(KERNEL({name}));" for name in launched)]

    def _child(self, block: Block) -> list[Piece]:
        """Return the call that builds the graph of a child; children of the same form share one function."""
        names = Names({*self.handles.fixed, *self.handles.outer, *block.given})
        statements, declared = self._statements(block, names)
        pieces = (piece for statement in statements for piece in statement.pieces if isinstance(piece, str))
        used = {word for piece in pieces for word in re.findall(r"\w+", piece)}
        given = {name: value for name, value in block.given.items() if name in used}
        name, prefix, workflow = "", "", 0  # for a child without nodes
        if block.scope is not None:
            level = block.scope.level
            name, prefix, workflow = level.workflow.name, level.prefix[:-1], id(level.workflow)
        signature = ", ".join(declaration for declaration, _ in given.values())
        key = (workflow, signature, tuple(tuple(statement.pieces) for statement in statements))
        function = self._children.get(key)
        if function is None:
            function = self._children[key] = self.handles.new_outer(f"build_{name or 'nothing'}", "graph")
            head = ["hipGraph_t graph;", f"CHECK(hipGraphCreate(&graph, 0), {quoted(prefix)});"]
            lines = without_double_blanks([*head, *declared, *_shortened(self._folded(statements, names), block)])
            self.functions += comment(f"Child graph {name or 'without nodes'}")
            self.functions += function_text(f"{function}({signature})", [*lines, "return graph;"])
        return [f"{function}(", *joined([value for _, value in given.values()]), ")"]

    def _lines(self, block: Block, names: Names) -> list[str]:
        """Return the lines that add the steps of a block; a large number is split into several functions."""
        statements, declared = self._statements(block, names)
        items = self._folded(statements, names)
        if len(items) <= _PART:
            return without_double_blanks([*declared, *_shortened(items, block)])
        single = re.compile(rf"{DECLARED}(\w+)")
        names_of_singles = [name for statement in statements for name in single.findall(statement.plain())]
        variables = [*declared, *(f"{block.node_type} {name};" for name in names_of_singles)]
        self.functions += ["// What later nodes wait for.", *(f"static {line}" for line in variables), ""]
        given = "hipStream_t* stream" if block.captured else "hipGraph_t graph"
        calls = []
        for k in range(0, len(items), _PART):
            name = self.handles.new_outer(f"part_{k // _PART + 1}", "of_graph")
            self.functions += function_text(f"{name}({given})", _shortened(items[k : k + _PART]), "void")
            calls.append(f"{name}({given.rpartition(' ')[2].lstrip('*')});")
        return calls

    # -- statements --------------------------------------------------------------------------------------------------------

    def _statements(self, block: Block, names: Names) -> tuple[list[Statement], list[str]]:
        """Return one statement per step, and the declarations of node arrays."""
        groups: list[list[Line]] = [[] for _ in block.steps]  # the lines of each step, up to the one that adds its node
        nodes = iter(enumerate(block.nodes))
        at, end = next(nodes, (0, 0))
        for line in block.lines:
            line.pieces = [p for piece in line.pieces for p in (self._child(piece.value) if _is(piece, "graph") else [piece])]
            groups[at].append(line)
            if line.node == end:
                at, end = next(nodes, (at, 0))
        needed = {piece.value for line in block.lines for piece in line.pieces if _is(piece, "node")}
        prefix = f"{block.scope.level.workflow.name}/" if block.given else block.prefix
        numbering = Numbering(prefix + step.name for step in block.steps)
        variables, declared = self._variables(block, needed, names)
        made = []
        for step, node, group in zip(block.steps, block.nodes, groups):
            form, numbers = numbering.of(prefix + step.name)
            label = Hole("label", numbers, form)
            parts: list[list[Piece]] = []
            for line in group:
                pieces = [p for piece in line.pieces for p in self._filled(piece, label, variables)]
                parts.append(
                    pieces if line.stream is not None or not line.node else [*_set(variables.get(line.node)), *pieces, ";"]
                )
            if block.captured and node in variables:
                parts.append([*_set(variables[node]), "mark(", *(group[-1].stream or []), ");"])
            made.append(Statement(joined(parts, "\n"), step.name))
        return made, declared

    def _filled(self, piece: Piece, label: Hole, variables: dict[int, list[Piece]]) -> list[Piece]:
        """Fill a hole whose content depends on the whole block."""
        if piece is NAME:
            return [label]
        if _is(piece, "node"):
            return [p for p in variables[piece.value] if p is not DECLARED]
        if _is(piece, "made"):
            pointer, nbytes = piece.value
            place: Place = self.handles.writer.places.at(pointer)
            return [f"{piece.form}&{place.name}, {sized(nbytes, place.dtype)}"]
        return [piece]

    def _variables(self, block: Block, needed: set[int], names: Names) -> tuple[dict[int, list[Piece]], list[str]]:
        """Assign a variable to each node that others wait for; steps whose names have the same form share an array."""
        found: dict[int, list[Piece]] = {}
        declared = []
        numbering = Numbering(step.name for step in block.steps)
        forms: dict[str, list[int]] = {}
        for index, step in enumerate(block.steps):
            forms.setdefault(numbering.of(step.name)[0], []).append(index)
        for form, members in forms.items():
            if len(members) < 4:
                for index in members:
                    if block.nodes[index] in needed:
                        found[block.nodes[index]] = [DECLARED, names.new(block.steps[index].name, "node")]
                continue
            if not any(block.nodes[index] in needed for index in members):
                continue
            name = names.new(re.sub(r"%0?\d*ld", "_", form.replace("%%", "%")), "node")
            numbers = [numbering.of(block.steps[index].name)[1] for index in members]
            own = len(numbers[0]) == 1 and sorted(n[0] for n in numbers) == list(range(len(members)))
            declared.append(f"{block.node_type} {name}[{len(members)}];")
            for k, index in enumerate(members):
                if block.nodes[index] in needed:
                    found[block.nodes[index]] = [f"{name}[", Hole("int", numbers[k][0] if own else k, hint=f"{name}_index"), "]"]
        for node in sorted(needed - found.keys()):  # nodes inside a step of several calls
            found[node] = [DECLARED, names.new("before", "node")]
        return found, declared

    def _folded(self, statements: list[Statement], names: Names) -> list[list[str]]:
        """Return the lines of each single statement and of each loop."""
        repeats = find_repeats([s.template for s in statements], [()] * len(statements), least_saving=4)
        items: list[list[str]] = []
        at = 0
        for repeat in repeats:
            start, count = by_number(statements, repeat)
            stop = start + count * repeat.period
            items += [statement.plain().split("\n") for statement in statements[at:start]]
            rows = [statements[k : k + repeat.period] for k in range(start, stop, repeat.period)]
            self.handles.names.used |= names.used
            loop = Loop(rows, self.handles.names)
            items.append(["", *loop.text(), ""])
            self.tables += loop.tables
            at = stop
        return [*items, *(statement.plain().split("\n") for statement in statements[at:])]


def _is(piece: Piece, kind: str) -> TypeGuard[Hole]:
    return not isinstance(piece, str) and piece.kind == kind


def _set(variable: Sequence[Piece] | None) -> list[Piece]:
    return [] if variable is None else [*variable, " = "]


def _shortened(items: list[list[str]], block: Block | None = None) -> list[str]:
    """Return lines wrapped to the page width; with a `block`, variables are declared in place with its node type."""
    kind = f"const {block.node_type} " if block is not None else ""
    return without_double_blanks(short for item in items for line in item for short in wrapped(line.replace(DECLARED, kind)))
