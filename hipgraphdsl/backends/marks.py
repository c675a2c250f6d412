"""Marks: numbers that operations carry to the device, so that its runtime can tell whose operation has failed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ..plan.steps import Plan
from ..runtimes.base import Runtime

if TYPE_CHECKING:
    from .environment import Environment

_blocks = itertools.count(1)
_BLOCK = 2**32  # marks of one program: a plan has fewer steps than half of that


class Marking:
    """Context in which a program marks what this thread issues or adds.

    What another program's step launches meanwhile, in the user's function, has the mark of that step besides.
    """

    __slots__ = ("_around", "_words")

    def __init__(self, runtime: Runtime) -> None:
        self._words = runtime.mark_words()

    def __enter__(self) -> memoryview | None:
        words = self._words
        if words is not None:
            self._around = (words[0], words[1])
            words[1] = words[0] or words[1]
        return words

    def __exit__(self, *_: object) -> None:
        if self._words is not None:
            self._words[0], self._words[1] = self._around


class Marks:
    """The marks of one program: a number for each step, and one for each launch that runs several steps.

    A backend writes the mark of a step to `Runtime.mark_words` before it issues the step or adds it to a graph. No other program
    of the process has the same numbers.
    """

    def __init__(self, plan: Plan, scope: Environment) -> None:
        self.plan = plan
        """The plan whose steps are named; `Program.follow` replaces it."""
        self.first = next(_blocks) * _BLOCK
        """Mark of the first step; those of the others follow."""
        self._prefix = scope.prefix
        self._inside: dict[Environment, Marks] = {}
        """Of the child graphs and bodies in the program's graph, by scope."""

    def of(self, index: int, *, merged: bool = False) -> int:
        """Return the mark of a step, or of the merged launch that it begins."""
        return self.first + index + _BLOCK // 2 * merged

    def within(self, plan: Plan, scope: Environment) -> Marks:
        """Return the marks of a child graph or body, the same each time that its graph is built."""
        marks = self._inside.setdefault(scope, Marks(plan, scope))
        marks.plan = plan
        return marks

    def failed(self, runtime: Runtime, disabled: frozenset[int] = frozenset()) -> tuple[str, ...]:
        """Return the full name of the node that failed last, once; several if they share its launch, none if no node is known."""
        # Ask all: what is left would be told of a later failure.
        found = [marks.failed(runtime) for marks in self._inside.values()]
        mark = runtime.failed_mark(self.first, _BLOCK)
        if mark:
            merged, index = divmod(mark - self.first, _BLOCK // 2)
            run = self.plan.runs[index] if merged else (index,)
            found.append(tuple(self._prefix + self.plan.steps[i].name for i in run if i not in disabled))
        return next(filter(None, found), ())
