"""Workflow: the frozen document that a Graph describes, a file holds and a Plan is made from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import networkx as nx

from .arrays import Access, Array, ArrayView, ExternalArray, Parameter, Region, UnboundValues
from .kernels import Module
from .nodes import CapturedNode, HostNode, KernelNode, Node, UnboundCallback, bound, held
from .order import successors, topological_order

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Binding", "Level", "Workflow"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Workflow:
    """A workflow that no longer changes.

    Nodes stand in order of declaration and are referred to by their index.

    Attributes
    ----------
    name : str
    arrays : mapping of str to Array
        Alloc arrays included.
    parameters : mapping of str to Parameter
    nodes : tuple of Node
    predecessors : tuple of tuple of int
        For each node, the nodes that must have finished before it starts.
    reasons : tuple of tuple of str
        For each of those edges, why: ``"RAW x"``, ``"WAR x"``, ``"WAW x"``, ``"after"``, ``"event e"``.
    infer : bool
        Whether edges were inferred from accesses.
    ordered : tuple of (str, str)
        Plain edges that `order` added, by name.
    """

    name: str
    arrays: Mapping[str, Array]
    parameters: Mapping[str, Parameter]
    nodes: tuple[Node, ...]
    predecessors: tuple[tuple[int, ...], ...]
    reasons: tuple[tuple[str, ...], ...]
    infer: bool = True
    ordered: tuple[tuple[str, str], ...] = field(default=())

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.nodes)} nodes, {sum(map(len, self.predecessors))} edges)"

    @cached_property
    def index(self) -> dict[str, int]:
        """Node indices by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes that wait for it."""
        return tuple(map(tuple, successors(self.predecessors)))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """Modules of all kernels and symbols, children's included, in order of first use."""
        found: dict[Module, None] = {}
        for node in self.nodes:
            if isinstance(node, KernelNode):
                found[node.kernel.module] = None
            elif inner := held(node):
                found.update(dict.fromkeys(module for _, document, _ in inner for module in document.modules))
            else:
                for access in node.accesses:
                    module = getattr(access.view.root, "module", None)
                    if module is not None:
                        found[module] = None
        return tuple(found)

    @property
    def documents(self) -> tuple[Workflow, ...]:
        """The workflow itself and all that its nodes hold, at any depth, each once."""
        return (self, *self._inside)

    @cached_property
    def _inside(self) -> tuple[Workflow, ...]:  # without the workflow itself, which would then be in a reference cycle
        found = (document for node in self.nodes for _, inner, _ in held(node) for document in inner.documents)
        return tuple(dict.fromkeys(found))

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """What all nodes touch together, without repeats."""
        found: dict[tuple[Any, str, Region], Access] = {}
        for node in self.nodes:
            for access in node.accesses:
                found.setdefault((access.view.root, access.mode, access.bytes), access)
        return tuple(found.values())

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order, declaration order wherever that is one; empty if there is a cycle."""
        return topological_order(self.predecessors)

    @cached_property
    def dag(self) -> nx.DiGraph[str]:
        """The same as a networkx graph: node attribute `node`, edge attribute `reason`."""
        dag: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for node in self.nodes:
            dag.add_node(node.name, node=node)
        for node, sources, reasons in zip(self.nodes, self.predecessors, self.reasons):
            for source, reason in zip(sources, reasons):
                dag.add_edge(self.nodes[source].name, node.name, reason=reason)
        return dag

    def unbound(self) -> tuple[tuple[str, str], ...]:
        """Return what a file named and nobody has supplied, as (node or array, what is missing); children's included."""
        found: list[tuple[str, str]] = []
        for level in self.levels():
            for name, array in level.own_arrays():
                values = getattr(array, "initial", None)
                if isinstance(values, UnboundValues):
                    what = f"initial values of {array.dtype}{list(array.shape)} (SHA-256 {values.sha256[:12]}...)"
                    found.append((name, what))
                elif isinstance(array, ExternalArray) and array.obj is None:
                    found.append((name, f"external memory of {array.dtype}{list(array.shape)}"))
            for node in level.workflow.nodes:
                if isinstance(node, (HostNode, CapturedNode)) and isinstance(node.fn, UnboundCallback):
                    found.append((level.name(node), f"callback {node.fn.path}"))
        return tuple(found)

    def default_view(self, parameter: Parameter) -> ArrayView | None:
        """Return what an array parameter stands for where nothing binds it, if its default is an array or the name of one."""
        default = self.arrays.get(parameter.default) if isinstance(parameter.default, str) else parameter.default
        return default.as_view() if isinstance(default, (Array, ArrayView)) else None

    def levels(self) -> Iterator[Level]:
        """Yield this workflow and all that its nodes hold, each as often as it is held and before what it holds itself."""
        waiting = [Level(self)]
        while waiting:
            level = waiting.pop()
            yield level
            waiting += reversed([inner for node in level.workflow.nodes for inner in level.inner(node)])

    def walk(self) -> Iterator[tuple[Level, Node]]:
        """Yield every node of every level; ``level.name(node)`` is its full name."""
        for level in self.levels():
            for node in level.workflow.nodes:
                yield level, node

    def node(self, name: str) -> Node | None:
        """Return the node of a name, if there is one."""
        at = self.index.get(name)
        return None if at is None else self.nodes[at]

    def workflow(self) -> Workflow:
        """Return itself, so that a Workflow stands wherever a Graph may."""
        return self


class Binding:
    """Names of a workflow where it stands, the outermost one or inside a node: what they are bound to outside."""

    __slots__ = ("parent", "prefix")

    def __init__(self, prefix: str, parent: Self | None) -> None:
        self.prefix = prefix
        self.parent = parent

    @abstractmethod
    def bound(self, root: Any) -> Any:
        """Return the parent's view, parameter or value that an array or parameter is bound to; None if it is not bound."""

    def resolve(self, root: Any) -> tuple[Self, Any, int]:
        """Return what an array or parameter finally stands for.

        Returns
        -------
        binding, root, offset_bytes
            The array, parameter or value, where it belongs, and the byte of it at which the given one begins.
        """
        at, offset = self, 0
        while at.parent is not None and (outer := at.bound(root)) is not None:
            at, root = at.parent, outer
            if isinstance(outer, ArrayView):
                root = outer.root
                offset += outer.offset_bytes
            elif not isinstance(outer, Parameter):
                break
        return at, root, offset


class Level(Binding):
    """A workflow where it stands: the outermost one, or what a child graph node or a conditional node of a level holds.

    Attributes
    ----------
    workflow : Workflow
    parent : Level or None
    node : Node or None
        The node of `parent` that holds it.
    key : str
        What names inside begin with, seen from `parent`: ``"child"``, or ``"loop/0"`` for the first body of a conditional node.
    bind : mapping
        Its arrays and parameters, by name, to the parent's views, parameters or values.
    prefix : str
        What full names inside begin with: empty, or ``"outer/child/"``.
    """

    __slots__ = ("bind", "key", "node", "workflow")

    def __init__(
        self,
        workflow: Workflow,
        parent: Self | None = None,
        node: Node | None = None,
        key: str = "",
        bind: Mapping[str, Any] = _NOTHING,
    ) -> None:
        super().__init__("" if parent is None else f"{parent.prefix}{key}/", parent)
        self.workflow = workflow
        self.node = node
        self.key = key
        self.bind = bind

    def name(self, node: Node) -> str:
        """Return the full name of one of its nodes."""
        return self.prefix + node.name

    def inner(self, node: Node) -> Iterator[Self]:
        """Yield the levels that a node holds."""
        for key, document, bind in held(node):
            yield type(self)(document, self, node, key, bind)

    def bound(self, root: Any) -> Any:
        return bound(root, self.workflow, self.bind)

    def at(self, name: str) -> tuple[Level, str]:
        """Return the innermost level that a full name such as ``"child/x"`` or ``"loop/0/x"`` leads to, and the name there."""
        rest = name.removeprefix(self.prefix)
        node = self.workflow.node(rest.partition("/")[0])
        for level in () if node is None else self.inner(node):
            if name.startswith(level.prefix):
                return level.at(name)
        return self, rest

    def own_arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays that no parent binds, by full name."""
        return ((self.prefix + name, array) for name, array in self.workflow.arrays.items() if name not in self.bind)

    def own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters that no parent binds, by full name."""
        return ((self.prefix + name, value) for name, value in self.workflow.parameters.items() if name not in self.bind)
