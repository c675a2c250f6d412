"""Nodes of two workflows, paired by name: what changed between them, and whether an Executable can apply it in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from .arrays import ArrayView, ExternalArray
from .errors import DeclarationError
from .kernels import Kernel, Symbol
from .nodes import Node, same
from .nodes.workflow import Workflow
from .placement import device_of
from .printed import short

_COMMON = frozenset(Node.model_fields)


class Pair(NamedTuple):
    """The nodes of one name in two workflows.

    Attributes
    ----------
    name : str
    old, new : Node or None
        None where only the other workflow has it.
    lost, come : mapping of str to str
        Predecessors that the node has lost and gained, each with the reason of its edge; empty unless both workflows have it.
    """

    name: str
    old: Node | None
    new: Node | None
    lost: Mapping[str, str] = {}  # never changed
    come: Mapping[str, str] = {}  # never changed


def paired(old: Workflow, new: Workflow) -> Iterator[Pair]:
    """Yield the nodes in the order of the new workflow, then those that only the old one has."""
    aligned = old.index == new.index
    if aligned and old.predecessors == new.predecessors:
        nothing = repeat(Pair._field_defaults["lost"])
        yield from map(tuple.__new__, repeat(Pair), zip(new.index, old.nodes, new.nodes, nothing, nothing))  # in compiled code
        return
    for i, node in enumerate(new.nodes):
        at = old.index.get(node.name)
        if at is None:
            yield Pair(node.name, None, node)
            continue
        if aligned and old.predecessors[at] == new.predecessors[i]:
            yield Pair(node.name, old.nodes[at], node)
            continue
        before, after = _waits(old, at), _waits(new, i)
        lost = {source: reason for source, reason in before.items() if source not in after}
        come = {source: reason for source, reason in after.items() if source not in before}
        yield Pair(node.name, old.nodes[at], node, lost, come)
    for node in old.nodes:
        if node.name not in new.index:
            yield Pair(node.name, node, None)


def _waits(workflow: Workflow, node: int) -> dict[str, str]:
    """Return the nodes that a node waits for, with the reasons."""
    nodes = workflow.nodes
    return {nodes[source].name: str(why) for source, why in zip(workflow.predecessors[node], workflow.reasons[node])}


class HasWorkflow(Protocol):
    """A Graph or a Workflow."""

    def workflow(self) -> Workflow:
        """Return the frozen form."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes
    ----------
    node : str or None
        Name of the node; None for what belongs to the whole graph.
    field : str or None
        Field of the node; None where the node itself was added, removed or rewired.
    old, new : object
    in_place : bool
        Whether an Executable can apply it without being instantiated again.
    reason : str
        Why it cannot be applied in place, or what it is.
    """

    node: str | None
    field: str | None
    old: Any
    new: Any
    in_place: bool
    reason: str

    @property
    def what(self) -> str:
        """What differs, as a clause."""
        where = f"node {self.node!r}" if self.node else "graph"
        if not self.field:
            return f"{where} {self.reason}"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{where}.{self.field}: {_short(self.old)} -> {_short(self.new)}{reason}"

    def __str__(self) -> str:
        return f"{'in place' if self.in_place else 'afresh  '}  {self.what}"


@dataclass(frozen=True)
class UpdatePlan:
    """All differences between two workflows.

    Attributes
    ----------
    changes : tuple of Change
    """

    old: str
    new: str
    changes: tuple[Change, ...] = field(default=())

    @property
    def in_place(self) -> bool:
        """Whether every change can be applied without instantiating again."""
        return all(change.in_place for change in self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return f"{self.old!r} and {self.new!r} are alike"
        head = f"{self.old!r} -> {self.new!r}: {len(self.changes)} change{'s' * (len(self.changes) != 1)}"
        return "\n".join([head, *(f"  {change}" for change in self.changes)])


def explain_update(old: HasWorkflow, new: HasWorkflow) -> UpdatePlan:
    """Report, by node and field, what would change and whether it can be changed in place.

    Nodes are matched by name. Topology, node kinds and memory that the graph itself allocates cannot change in place; what a
    kernel, memcpy, memset, host or event node does can.

    Raises
    ------
    DeclarationError
        If one of them is no Graph or Workflow.
    """
    for graph in (old, new):
        if not callable(getattr(graph, "workflow", None)):
            raise DeclarationError(f"explain_update takes two Graphs or Workflows (got {graph!r})")
    before, after = old.workflow(), new.workflow()
    changes: list[Change] = []
    gone: list[Change] = []
    comparison = _Comparison()
    devices = before.devices or after.devices
    moved = any(array.device != after.arrays.get(name, array).device for name, array in before.arrays.items())
    for name, known, node, lost, come in paired(before, after):
        if node is None:
            gone.append(Change(name, None, known, None, in_place=False, reason="is only in the old graph"))
        elif known is None:
            changes.append(Change(name, None, None, node, in_place=False, reason="is only in the new graph"))
        elif type(known) is not type(node):
            changes.append(Change(name, "kind", known.kind, node.kind, in_place=False, reason="kinds of nodes cannot change"))
        else:
            if lost or come:
                sources, wanted = _sources(before, name), _sources(after, name)
                changes.append(Change(name, "predecessors", sources, wanted, in_place=False, reason="edges cannot change"))
            fields: list[Change] = []
            if known is not node and (differing := comparison.differing(known, node)):
                fields = _fields(known, node, before, differing)
                changes += fields
            if devices and (fields or moved):
                changes += _moves(known, node)
    changes = gone + changes
    for name, array in before.arrays.items():
        other = after.arrays.get(name, array)
        for what in ("device", "access"):
            a, b = getattr(array, what), getattr(other, what)
            if a != b:
                changes.append(
                    Change(None, f"arrays.{name}.{what}", a, b, in_place=False, reason="memory stays where it was made")
                )
        if isinstance(array, ExternalArray) and isinstance(other, ExternalArray):
            a, b = array.pointer, other.pointer
            if a and b and a != b:
                reason = "an external array keeps its memory; a parameter with a shape takes other memory at each launch"
                changes.append(Change(None, f"arrays.{name}.pointer", a, b, in_place=False, reason=reason))
    for name, parameter in before.parameters.items():
        a, b = parameter.default, after.parameters.get(name, parameter).default
        if not same(a, b, _same_root):
            changes.append(Change(None, f"parameters.{name}.default", a, b, in_place=True, reason=""))
        for what in ("min", "max"):
            a, b = getattr(parameter, what), getattr(after.parameters.get(name, parameter), what)
            if a != b:
                reason = "what orders the nodes follows from the bounds"
                changes.append(Change(None, f"parameters.{name}.{what}", a, b, in_place=False, reason=reason))
    return UpdatePlan(before.name, after.name, tuple(changes))


def _sources(workflow: Workflow, name: str) -> list[str]:
    return sorted(workflow.nodes[source].name for source in workflow.predecessors[workflow.index[name]])


def _moves(old: Node, new: Node) -> list[Change]:
    """Return a change if a node would run on another device because of its new arrays, else nothing."""
    before, after = _placed(old), _placed(new)
    if before == after or getattr(old, "device", None) != getattr(new, "device", None):
        return []  # `_fields` reports a change of the node's own `device`
    return [Change(old.name, "device", before, after, in_place=False, reason="the device of a node is fixed when it is added")]


def _placed(node: Node) -> Any:
    """Return the device of a node, None for that of compile; for a child graph, the devices of the arrays bound in it."""
    if node.held and not node.placed:
        return [view.root.device for view in node.addresses if not view.root.on_host]
    found = device_of(node, -1)
    return None if found == -1 else found


def _fields(old: Node, new: Node, workflow: Workflow, differing: Sequence[str]) -> list[Change]:
    changes = []
    foreign = _foreign(new, workflow)
    for name, _, _, _, _, rule in old.fields:
        if name not in differing:
            continue
        a, b = getattr(old, name), getattr(new, name)
        reason = old.fixed or rule.fixed or foreign
        if isinstance(a, Workflow):
            if not (parts := _named(explain_update(a, b), old)):
                continue
            reason = f"what a child holds is fixed when it is built: {'; '.join(parts)}"
        elif name == "bodies" and len(a) == len(b):
            parts = [f"body {n}, {c}" for n, pair in enumerate(zip(a, b)) for c in _named(explain_update(*pair), old)]
            if not parts:
                continue
            reason = f"what a body holds is fixed when it is built: {'; '.join(parts)}"
        elif isinstance(a, dict) and not old.fixed and a.keys() != b.keys():
            reason = "which names of a child are bound is fixed when it is built"
        elif not reason and isinstance(b, Kernel) and b.module.symbols and b not in _kernels(workflow):
            reason = f"{b.name!r} was not compiled with the graph, and a second copy of its module would have its own variables"
        elif not reason and isinstance(b, ArrayView) and isinstance(b.root, Symbol) and b.root.module not in workflow.modules:
            reason = f"the module of {b.name!r} was not compiled with the graph, and a copy of it would have its own variables"
        changes.append(Change(old.name, name, a, b, not reason, reason))
    return changes


def _foreign(node: Node, workflow: Workflow) -> str:
    """Return why a node cannot refer to a workflow's arrays and parameters instead of its own; empty if it can."""
    try:
        node.translated(workflow.arrays, workflow.parameters)
    except DeclarationError as error:
        return str(error).partition(": ")[2]
    return ""


def _kernels(workflow: Workflow) -> set[Any]:
    """Return the kernels of a workflow and its children."""
    return {kernel for document in workflow.documents for node in document.nodes for kernel in node.kernels}


def _named(plan: UpdatePlan, node: Node) -> list[str]:
    """Return the first changes of a workflow that a node holds; the default of what it binds means nothing."""
    bound = {f"parameters.{name}.default" for _, _, bind in node.held for name in bind}
    changes = [change for change in plan.changes if change.node is not None or change.field not in bound]
    return [".".join(filter(None, (change.node, change.field))) for change in changes[:3]]


class _Comparison:
    """Compares nodes of two workflows by field: arrays and parameters by class, name, shape and dtype, symbols by module too.

    Results are kept by the identity of the values, which the workflows keep alive: many nodes use the same views.
    """

    def __init__(self) -> None:
        self._same: dict[tuple[int, int], bool] = {}

    def differing(self, old: Node, new: Node) -> list[str]:
        """Return the names of the kind's own fields that differ between two nodes of one kind."""
        names, values = _own_fields(type(old))
        fields = zip(names, values(old.__dict__), values(new.__dict__))
        return [name for name, a, b in fields if a is not b and not self._alike(a, b)]

    def _alike(self, a: Any, b: Any) -> bool:
        key = (id(a), id(b))
        alike = self._same.get(key)
        if alike is None:
            if type(a) is type(b) is tuple:
                alike = len(a) == len(b) and all(x is y or self._alike(x, y) for x, y in zip(a, b))
            else:
                alike = same(a, b, _same_root)
            self._same[key] = alike
        return alike


@cache
def _own_fields(kind: type[Node]) -> tuple[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Return the names of the fields that a kind has of its own, and a function that returns their values."""
    names = tuple(name for name, *_ in kind.fields if name not in _COMMON)
    return names, itemgetter(*names) if len(names) > 1 else lambda values: tuple(map(values.__getitem__, names))


def _same_root(a: Any, b: Any) -> bool:
    return all(getattr(a, what, None) == getattr(b, what, None) for what in ("__class__", "name", "shape", "dtype", "module"))


def _short(value: Any) -> str:
    text = value.describe() if isinstance(value, Node) else getattr(value, "name", None) or repr(value)
    return short(str(text), 60)
