"""Regions of a kernel with warp operations that is split (split.py): statements between barriers, which run warp by warp.

No warp waits for another one in a region, so the code of a region is that of one warp, and variables whose values do not leave it
are arrays over the lanes of a warp, which compilers keep in registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from .syntax import Node, bare, children, end_of, is_write, named, start_of, walk
from .uniform import Variable, Variables

#: Text of a function, or a callable that returns it once all variables are analyzed.
Piece = str | Callable[[], str]


class Region:
    """Statements that stand side by side, and what has to be declared before them: it is used behind them, too."""

    def __init__(self, kernel: Variables, statements: Sequence[Node]) -> None:
        self.kernel, self.statements = kernel, statements
        self.before: list[Piece] = []
        self.parts = 0
        self.ahead: set[int] = set()  # declarations
        needed: set[str] = set()  # the tree's ids of variables that these declarations refer to
        for node in reversed(statements):
            declared = children(node) if node["kind"] == "DeclStmt" else []
            if any(self.is_used_elsewhere(d) or d["id"] in needed for d in declared):
                self.ahead.add(id(node))
                uniform = [v for d in declared if (v := kernel.variables.get(d["id"])) and v.how == "uniform" and v.initial]
                needed |= {d["id"] for v in uniform if v.initial for d in named(v.initial)}

    def is_used_elsewhere(self, declared: Node) -> bool:
        variable = self.kernel.variables.get(declared["id"])
        if variable is None or variable.how == "fixed":  # a type, or a variable that all threads share
            return True
        return variable.how == "uniform" and not all(map(self.has, variable.uses))

    def is_ahead(self, node: Node) -> bool:
        return id(node) in self.ahead

    def has(self, place: int) -> bool:
        return start_of(self.statements[0]) <= place < end_of(self.statements[-1])

    def begins(self, variable: Variable) -> bool:
        """Return whether a region declares a variable, or sets it for all threads before it does anything else with it."""
        if self.has(start_of(variable.node)):
            return True
        uses = [use for use in variable.uses if self.has(use)]
        statement = next((s for s in self.statements if start_of(s) <= min(uses) < end_of(s)), None)
        if statement is None:
            return False
        node = bare(statement)
        if node["kind"] != "BinaryOperator" or not is_write(node) or sum(start_of(node) <= u < end_of(node) for u in uses) > 1:
            return False
        target = bare(children(node)[0]).get("referencedDecl", {})
        return bool(target.get("id") == variable.node["id"])


def regions(kernel: Variables, statements: list[Node]) -> Iterator[list[Node]]:
    """Yield the statements of each region.

    A region ends behind a `return`, so that the next one knows which threads of a warp are left, and before a declaration for the
    block whose name means something else further up.
    """
    region = Region(kernel, statements)
    for k, node in enumerate(statements):
        names = [str(d.get("name", "")) for d in children(node)] if region.is_ahead(node) else []
        text = kernel.data[start_of(statements[0]) : start_of(node)].decode()
        if k and any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
            yield from regions(kernel, statements[:k])
            yield from regions(kernel, statements[k:])
            return
        if k + 1 < len(statements) and any(n["kind"] == "ReturnStmt" for n in walk(node)):
            yield from regions(kernel, statements[: k + 1])
            yield from regions(kernel, statements[k + 1 :])
            return
    yield statements
