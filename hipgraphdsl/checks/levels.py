"""The scope of a check: one workflow of the hierarchy, and the diagnostics that the check adds to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ..arrays import Access, AllocArray, Expression, ExternalArray, Parameter, Region
from ..nodes import Node
from ..nodes.workflow import Level, Workflow
from ..printed import counted
from .catalogue import CATALOGUE, Severity
from .report import Diagnostic

if TYPE_CHECKING:
    from ..nodes.facets import Asked, KernelLaunch
    from .reach import Reach

Place = tuple[Any, int]


class CheckedLevel(Level):
    """A level of the checked workflow; all levels share the lists of reported and of ignored diagnostics."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.holders: list[CheckedLevel] = []  # levels with child nodes that use it in the same way; it is checked once
        self.others: list[CheckedLevel] = []  # the levels of those child nodes other than this one
        self.diagnostics: list[Diagnostic] = [] if self.parent is None else self.parent.diagnostics
        self.ignored: list[tuple[Diagnostic, str]] = [] if self.parent is None else self.parent.ignored
        self._places: dict[Any, Place] = {}

    def place(self, root: Any) -> Place:
        """Return the address space of an array and the byte offset of the array in it."""
        found = self._places.get(root)
        if found is None:
            found = self._places[root] = self._place(root)
        return found

    def _place(self, root: Any) -> Place:
        scope, root, offset = self.resolve(root)
        if isinstance(root, Parameter):
            # The array bound at launch is unknown; a default array is known.
            default = scope.workflow.default_view(root)
            if default is not None:
                key, more = scope.place(default.root)
                return key, offset + more + default.offset_bytes
        return root.hazard_key, root.hazard_offset + offset

    def placed(self, access: Access) -> tuple[Any, Region]:
        """Return the address space and the exact bytes that an access touches."""
        key, offset = self.place(access.view.root)
        return key, access.bytes.shifted(offset)

    def having(self, *facts: str) -> list[tuple[int, Node]]:
        """Return the nodes of kinds that say something of at least one of these properties of `Node`, with their indices.

        All other nodes have the default of the property; most checks concern few kinds, and so need not ask every node.
        """
        able = _saying(self.workflow.kinds, facts)
        return [(i, node) for i, node in enumerate(self.workflow.nodes) if type(node) in able] if able else []

    @cached_property
    def launches(self) -> dict[Any, KernelLaunch]:
        """By their keys one of the launches for each combination of the fields that limits and hidden addresses depend on."""
        found: dict[Any, KernelLaunch] = {}
        for _, node in self.having("launched"):
            if (launch := node.launched) is not None:
                found.setdefault(launch_key(launch), launch)
        return found

    @cached_property
    def reach(self) -> Reach:
        """Which of its nodes its edges order; it has no cycle."""
        from .reach import Reach  # only searches need it

        return Reach(self.workflow)

    @property
    def allocates(self) -> bool:
        """Whether its nodes allocate or free memory, or it declares arrays for them."""
        arrays = self.workflow.arrays.values()
        return AllocArray in map(type, arrays) or bool(_saying(self.workflow.kinds, ("made", "freed")))

    @cached_property
    def aliased(self) -> bool:
        """Whether two arrays of this workflow share bytes because a binding or default puts them into one address space."""
        arrays = self.workflow.arrays.values()
        parameters = [parameter for parameter in self.workflow.parameters.values() if parameter.shape]
        bound: tuple[Any, ...] = (*arrays, *parameters) if self.bind else tuple(parameters)
        if not bound or all(self.place(root)[0] == root.hazard_key for root in bound):
            return False  # arrays that share an address space did so already when edges were inferred
        spans: dict[Any, list[tuple[int, int]]] = {}
        for root in (*arrays, *parameters):
            key, offset = self.place(root)
            spans.setdefault(key, []).append((offset, offset + root.nbytes))
        return any(a[1] > b[0] for intervals in spans.values() for a, b in pairwise(sorted(intervals)))

    @cached_property
    def uses(self) -> int:
        """Number of child nodes that hold this workflow, counted for every use of their own workflows."""
        return sum(holder.uses for holder in self.holders) or 1

    def value(self, value: Any) -> int | None:
        """Return an argument or extent as an int, a parameter as its value here; None if it has none, or is no integer."""
        if type(value) is int:
            return value
        if isinstance(value, Parameter):
            value = self.default(value)
        try:
            return int(value.__index__())
        except (AttributeError, TypeError):
            return None

    def default(self, parameter: Parameter) -> Any:
        """Return the value of a scalar parameter or an expression here, as far as bindings and defaults tell; else None."""
        if isinstance(parameter, Expression):
            return parameter.default_at(self.default)
        scope, root, _ = self.resolve(parameter)
        if isinstance(root, Expression):
            return scope.default(root)
        return root.default if isinstance(root, Parameter) else root

    def leaves(self, node: Node) -> Iterator[tuple[CheckedLevel, Node, Access]]:
        """Yield each access of a node as (scope, node, access); for a child graph, those of its innermost nodes."""
        for scope in () if node.derives else self.inner(node):
            for child in scope.workflow.nodes:
                yield from scope.leaves(child)
        for access in node.accesses if node.derives else node.own_accesses:
            yield self, node, access

    def found(
        self,
        code: str,
        message: str,
        *nodes: Asked,
        names: Sequence[str] = (),
        arrays: Iterable[str] = (),
        hint: str = "",
        severity: Severity | None = None,
        several: bool = True,
    ) -> None:
        """Add a diagnostic; if one of the nodes involved ignores its code, add it to `ignored` instead.

        `names` are the nodes' full names, if they are not in this scope; with `several` the message counts the other nodes that
        hold the graph.
        """
        shown = tuple(names) or tuple(self.name(node) for node in nodes)
        sources = tuple(dict.fromkeys(node.source for node in nodes if node.source is not None and node.source[1] > 0))
        if several and self.uses > 1:
            message += f" (and the same in {counted(self.uses - 1, 'more node')} with this graph)"
        severity = severity or CATALOGUE[code].severity
        diagnostic = Diagnostic(code, severity, message, shown, tuple(dict.fromkeys(arrays)), hint, sources)
        reason = next((node.ignore[code] for node in nodes if node.ignore and code in node.ignore), None)
        if reason is None:
            self.diagnostics.append(diagnostic)
        else:
            self.ignored.append((diagnostic, reason))


@lru_cache(256)
def _saying(kinds: frozenset[type[Node]], facts: tuple[str, ...]) -> frozenset[type[Node]]:
    """Return the classes of nodes that override one of these properties of `Node`."""
    return frozenset(kind for kind in kinds if any(getattr(kind, fact) is not getattr(Node, fact) for fact in facts))


launch_key: Final = attrgetter("kernel", "grid", "block", "shared_bytes", "cooperative", "cluster")
"""Returns a key of the fields of a `KernelLaunch` that limits depend on."""


def levels_of(workflow: Workflow) -> list[CheckedLevel]:
    """Return the workflow's scope and one for each different way in which a child workflow is used.

    Graphs derived from a node's fields are skipped: they are sound if the fields are, and a collective of 1024 arrays holds a
    million copies.
    """
    top = CheckedLevel(workflow)
    found: dict[Any, CheckedLevel] = {id(workflow): top}
    waiting = [top]
    for scope in waiting:
        for node in scope.workflow.holding:
            for child in () if node.derives else scope.inner(node):
                signature = _signature(child)
                known = found.setdefault(signature, child)
                known.holders.append(scope)
                if known is child:
                    waiting.append(child)
                else:
                    known.others.append(child)
    return waiting


def _signature(scope: CheckedLevel) -> Any:
    """Return a key that determines the findings inside a child.

    That is its workflow, its extents, which of its arrays parameters stand for, and the aliasing of its memory.
    """
    values = tuple(
        (name, scope.value(p))
        for name, p in scope.workflow.parameters.items()
        if not p.shape and p.dtype.kind in "iu" and name in scope.bind
    )
    arrays = scope.workflow.arrays
    given = tuple(name for name in scope.bind if name in arrays and isinstance(scope.resolve(arrays[name])[1], Parameter))
    if not scope.aliased:
        return (id(scope.workflow), values, given)
    roots = (*scope.workflow.arrays.values(), *(p for p in scope.workflow.parameters.values() if p.shape))
    places = tuple(
        (root.name, *scope.place(root))
        for root in roots
        if isinstance(root, (ExternalArray, Parameter)) or root.name in scope.bind
    )
    return (id(scope.workflow), values, given, places)
