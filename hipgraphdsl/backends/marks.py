"""Marks: numbers that operations carry to the device, so that its runtime can tell whose operation failed or is unfinished."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..plan.steps import Plan
from ..runtimes.base import Runtime

if TYPE_CHECKING:
    from .environment import Environment

_blocks = itertools.count(1)
_launches = itertools.count(1)
_BLOCK = 2**32  # marks of one program: a plan has fewer steps than half of that


class Marking:
    """Context in which a program marks what this thread issues or adds.

    What another program's step launches meanwhile, in the user's function, has the mark of that step besides, and the number of
    that program's launch. `launches`: what is issued is a launch of its own.
    """

    __slots__ = ("_around", "_launches", "_words")

    def __init__(self, runtime: Runtime, *, launches: bool = False) -> None:
        self._words = runtime.mark_words()
        self._launches = launches

    def __enter__(self) -> memoryview | None:
        words = self._words
        if words is not None:
            self._around = (words[0], words[1], words[2])
            words[1] = words[0] or words[1]
            if self._launches and not words[1]:
                words[2] = next(_launches)
        return words

    def __exit__(self, *_: object) -> None:
        if self._words is not None:
            self._words[0], self._words[1], self._words[2] = self._around


def marked(call: Callable[[int], None], runtime: Runtime, mark: int) -> Callable[[int], None]:
    """Return a function that calls `call` as `Marking` does with a mark, in a fraction of its time."""
    if runtime.mark_words() is None:
        return call
    words_of = runtime.mark_words

    def marking(stream: int) -> None:
        words: Any = words_of()  # of this thread
        own, around = words[0], words[1]
        words[0], words[1] = mark, own or around
        try:
            call(stream)
        finally:
            words[0], words[1] = own, around

    return marking


class Fault(NamedTuple):
    """A failure that a program knows of."""

    code: int
    names: tuple[str, ...]
    """The full name of the node that failed; several if they share its launch, none if none of the program has failed."""
    cause: str = ""
    """With a name: the node of another graph that failed, in what the named one launched. Without: what failed before a launch of
    the program, which therefore did not run to its end."""

    @staticmethod
    def first(found: Iterable[Fault | None]) -> Fault | None:
        """Return the first one with a node; the first of the others if none has; None if there is none."""
        known = [fault for fault in found if fault is not None]
        return next((fault for fault in known if fault.names), known[0] if known else None)


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
        _known[self.first] = self
        self._shared = scope.shared
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

    def failed(self, runtime: Runtime, disabled: frozenset[int] = frozenset()) -> Fault | None:
        """Return the last failure of a node, or else the one because of which nodes did not start, once."""
        # Ask all: what is left would be told of a later failure.
        found = [marks.failed(runtime) for marks in self._inside.values()]
        mark, cause, code = runtime.failed_mark(self.first, _BLOCK)
        other = _known.get(cause - cause % _BLOCK)
        is_own = other is not None and other._shared is self._shared
        said = "" if other is None or is_own else other._said(cause)
        if mark:
            found.append(Fault(code, self._names(mark, disabled), said))
        elif code:
            names = other._names(cause) if other is not None and is_own else ()
            found.append(Fault(code, names, said or "an operation of others"))
        return Fault.first(found)

    def _names(self, mark: int, disabled: frozenset[int] = frozenset()) -> tuple[str, ...]:
        """Return the full names of the nodes of the launch that has a mark."""
        return tuple(self._prefix + self.plan.steps[i].name for i in self._run(mark) if i not in disabled)

    def _said(self, mark: int) -> str:
        """Return the nodes of a launch, for messages about another graph."""
        return f"node {' or '.join(map(repr, self._names(mark)))} of graph {self._shared.graph!r}"

    def unfinished(self, runtime: Runtime, disabled: frozenset[int] = frozenset()) -> tuple[str, ...]:
        """Return the full names of the nodes that the first launch in flight has not finished, in the order of the plan.

        Nodes of a child graph or body stand in place of the node that holds them.
        """
        left = {i for mark in runtime.unfinished_marks(self.first, _BLOCK) for i in self._run(mark)} - disabled
        found: dict[int, tuple[str, ...]] = {i: (self._prefix + self.plan.steps[i].name,) for i in left}
        for marks in self._inside.values():
            if names := marks.unfinished(runtime):
                holder = marks._prefix[len(self._prefix) : -1]
                found[self.plan.index.get(holder, self.plan.index.get(holder.rpartition("/")[0], -1))] = names  # a body: "if/0"
        return tuple(name for i in sorted(found) for name in found[i])

    def _run(self, mark: int) -> Sequence[int]:
        """Return the steps of the launch that has a mark."""
        merged, index = divmod(mark - self.first, _BLOCK // 2)
        return self.plan.runs[index] if merged else (index,)


_known: weakref.WeakValueDictionary[int, Marks] = weakref.WeakValueDictionary()
"""The marks of all programs, by the first."""
