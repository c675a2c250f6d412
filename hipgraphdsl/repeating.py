"""Repeating: a workflow whose single launch does what several consecutive launches of another workflow do.

Each pass has its own nodes, and all passes share arrays and parameters. Dependencies on earlier passes follow from accesses, as
within a pass, so a pass may begin while the previous one still runs. Three kinds of nodes always wait for such nodes of the
previous pass: nodes with effects beyond their accesses, nodes that touch an array which others touch as a parameter's default,
and all nodes of a graph with declared edges only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .arrays import AllocArray, Array, ExternalArray, Parameter, int_from
from .draft import Draft
from .errors import DeclarationError
from .nodes import Node, node_of
from .nodes.values import unused
from .nodes.workflow import Workflow

_MOST_NODES = 1_000_000


def repeated(workflow: Workflow, count: Any, name: str | None = None) -> Workflow:
    """Return a workflow whose single launch does what `count` launches of another do; see `Graph.repeat`.

    Raises
    ------
    DeclarationError
        If `count` is not an integer of at least 1, or there would be more than a million nodes.
    """
    count = int_from(1, count, "repeat: how many launches one launch does is an int from 1")
    if count * len(workflow.nodes) > _MOST_NODES:
        raise DeclarationError(
            f"repeat: {count} passes of {len(workflow.nodes)} nodes are more than {_MOST_NODES:,} nodes; launch a graph of fewer"
            " passes several times"
        )
    return _Passes(_with_arrays_outside(workflow, {}), count, f"{workflow.name} x {count}" if name is None else name).workflow()


class _Passes:
    """Adds the passes to a draft, one after another."""

    def __init__(self, workflow: Workflow, count: int, name: str) -> None:
        self._once = workflow
        self._count = count
        self._draft = draft = Draft(name, workflow.infer)
        self._allocs = [array for array in workflow.arrays.values() if isinstance(array, AllocArray)]
        freed = {node.freed for node in workflow.nodes}
        self._kept = [array for array in self._allocs if array not in freed]
        draft.arrays.update((name, array) for name, array in workflow.arrays.items() if not isinstance(array, AllocArray))
        draft.parameters.update(workflow.parameters)
        aliased = _under_two_names(workflow)
        apart = [node.name for node in workflow.nodes if not workflow.infer or node.name in aliased or _does_more(node)]
        self._apart = frozenset(apart)
        """The nodes that wait for the previous pass, whatever they access."""
        leading: set[int] = set()  # nodes that precede one of `_apart`
        for i in reversed(workflow.order):
            if i in leading or workflow.nodes[i].name in self._apart:
                leading.update(workflow.predecessors[i])
        self._last = [name for name in apart if workflow.index[name] not in leading]
        """The nodes of the previous pass that they wait for: those of `_apart` that precede no other of them."""

    def workflow(self) -> Workflow:
        """Return the workflow of all passes."""
        before = ""
        for number in range(self._count):
            kept = self._add_pass(number)
            if before:
                self._order(number, before)
            if number < self._count - 1:
                before = self._behind(number, kept)
        return Workflow.of(self._draft)

    def _add_pass(self, number: int) -> list[AllocArray]:
        """Add the nodes of a pass; return the arrays that it allocates and does not free."""
        draft, once = self._draft, self._once
        own = {array.name: replace(array, name=unused(f"{array.name}.{number}", draft.arrays)) for array in self._allocs}
        arrays = {**once.arrays, **own}
        for node in once.nodes:
            after = tuple(f"{source}.{number}" for source in node.after)
            made = node.translated(arrays, once.parameters) if own else node
            draft.add(made.changed(name=f"{node.name}.{number}", after=after))
        for source, target in once.plain_edges:
            draft.order(f"{source}.{number}", f"{target}.{number}")
        return [own[array.name] for array in self._kept]

    def _order(self, number: int, before: str) -> None:
        """Add edges from node `before` to the `_apart` nodes of a pass, unless other edges imply them."""
        draft = self._draft
        behind = {draft.index[before]}
        for i in self._once.order:
            node = self._once.nodes[i]
            at = draft.index[f"{node.name}.{number}"]
            if not behind.isdisjoint(draft.predecessors[at]):
                behind.add(at)
            elif node.name in self._apart:
                draft.order(before, f"{node.name}.{number}")
                behind.add(at)

    def _behind(self, number: int, kept: Iterable[AllocArray]) -> str:
        """Return the node that the next pass waits for, empty if none; add nodes that free the arrays `kept` of this pass."""
        last = tuple(f"{name}.{number}" for name in self._last)
        for left in kept:  # as a launch frees what the previous one left
            after = () if self._once.infer else last
            self._draft.add(node_of("free", name=unused(f"free {left.name}", self._draft.index), array=left, after=after))
        if len(last) < 2:
            return "".join(last)
        join = node_of("empty", name=unused(f"end of pass {number}", self._draft.index), after=last)
        self._draft.add(join)
        return join.name


def _does_more(node: Node) -> bool:
    """Return whether a node, or a node inside it, has effects beyond its accesses."""
    return node.apart or any(inner.apart for _, held, _ in node.held for _, inner in held.walk())


def _under_two_names(workflow: Workflow) -> set[str]:
    """Return the nodes that touch an array which nodes touch under several names: its own, and parameters with that default."""
    found: dict[Any, dict[Any, list[str]]] = {}
    for node in workflow.nodes:
        for access in node.accesses:
            root = access.view.root
            default = workflow.default_view(root) if isinstance(root, Parameter) else None
            key = root.hazard_key if default is None else default.root.hazard_key
            found.setdefault(key, {}).setdefault(root, []).append(node.name)
    aliased = [roots for roots in found.values() if len(roots) > 1 and any(isinstance(root, Parameter) for root in roots)]
    return {name for roots in aliased for names in roots.values() for name in names}


# -- arrays of children, which persist between launches


def _with_arrays_outside(workflow: Workflow, done: dict[Workflow, Workflow]) -> Workflow:
    """Return the workflow with the arrays of its children and bodies, at any depth, moved to itself; the nodes bind them.

    An array ``x`` of child ``c`` becomes array ``c: x``, and one of the first body of loop ``l`` becomes ``l: 0: x``.
    """
    if not any(node.held for node in workflow.nodes):
        return workflow
    if workflow not in done:
        arrays = dict(workflow.arrays)
        nodes = tuple(_bound(node, arrays, done) for node in workflow.nodes)
        done[workflow] = replace(workflow, arrays=arrays, nodes=nodes)
    return done[workflow]


def _bound(node: Node, arrays: dict[str, Array], done: dict[Workflow, Workflow]) -> Node:
    """Return a node that binds all arrays inside it; those that were its own are added to `arrays`."""
    if not node.held or node.derives:
        return node
    made: list[Workflow] = []
    bound = {name: value for _, _, bind in node.held for name, value in bind.items()}
    for number, (_, body, bind) in enumerate(node.held):
        inner = _with_arrays_outside(body, done)
        if not node.is_child:  # bodies may have the same names
            inner = _renamed(inner, bind, f"{number}: ")
        made.append(inner)
        bound.update(_outside(inner, bind, node.name, arrays))
    return node.changed(**node.holding(made), bind=bound)


def _own(workflow: Workflow, bind: Mapping[str, Any]) -> Iterable[Array]:
    """Return the arrays that persist between launches and are not bound."""
    return (a for a in workflow.arrays.values() if a.name not in bind and not isinstance(a, (AllocArray, ExternalArray)))


def _outside(inner: Workflow, bind: Mapping[str, Any], node: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """Add an array to `arrays` for each of a node's own; return the binding of the latter to the former."""
    found = {}
    for array in _own(inner, bind):
        name = unused(f"{node}: {array.name}", arrays)
        arrays[name] = replace(array, name=name)
        found[array.name] = arrays[name].as_view()
    return found


def _renamed(inner: Workflow, bind: Mapping[str, Any], prefix: str) -> Workflow:
    """Return a workflow whose own arrays have `prefix` before their names."""
    arrays = dict(inner.arrays)
    for array in list(_own(inner, bind)):
        arrays[array.name] = replace(array, name=unused(prefix + array.name, arrays))
    parameters = {name: _with_default(parameter, arrays) for name, parameter in inner.parameters.items()}
    nodes = tuple(node.translated(arrays, parameters) for node in inner.nodes)
    return replace(inner, arrays={array.name: array for array in arrays.values()}, parameters=parameters, nodes=nodes)


def _with_default(parameter: Parameter, arrays: Mapping[str, Array]) -> Parameter:
    """Return a parameter whose default, if it names an array, is that array's new name."""
    default = arrays.get(parameter.default) if isinstance(parameter.default, str) else None
    return parameter if default is None else replace(parameter, default=default.name)
