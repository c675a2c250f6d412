"""Workflow: the frozen document that a Graph describes, a file holds and a Plan is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional

import networkx as nx

from .arrays import Access, Array, ArrayView, ExternalArray, Parameter, Region, UnboundValues
from .kernels import Module
from .nodes import (
    CapturedNode,
    ChildGraphNode,
    ConditionalNode,
    HostNode,
    KernelNode,
    Node,
    UnboundCallback,
)
from .order import successors, topological_order

__all__ = ["Workflow"]


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
            elif isinstance(node, ChildGraphNode):
                found.update(dict.fromkeys(node.workflow.modules))
            elif isinstance(node, ConditionalNode):
                for body in node.bodies:
                    found.update(dict.fromkeys(body.modules))
            else:
                for access in node.accesses:
                    module = getattr(access.view.root, "module", None)
                    if module is not None:
                        found[module] = None
        return tuple(found)

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
        for array in self.arrays.values():
            values = getattr(array, "initial", None)
            if isinstance(values, UnboundValues):
                found.append(
                    (array.name, f"initial values of {array.dtype}{list(array.shape)} (SHA-256 {values.sha256[:12]}...)")
                )
            elif isinstance(array, ExternalArray) and array.obj is None:
                found.append((array.name, f"external memory of {array.dtype}{list(array.shape)}"))
        for node in self.nodes:
            match node:
                case HostNode() | CapturedNode() if isinstance(node.fn, UnboundCallback):
                    found.append((node.name, f"callback {node.fn.path}"))
                case ChildGraphNode():
                    inner = [(name, what) for name, what in node.workflow.unbound() if name not in node.bind]
                    found += [(f"{node.name}/{name}", what) for name, what in inner]
                case ConditionalNode():
                    for n, body in enumerate(node.bodies):
                        found += [(f"{node.name}/{n}/{name}", what) for name, what in body.unbound() if name not in node.bind]
        return tuple(found)

    def default_view(self, parameter: Parameter) -> Optional[ArrayView]:
        """Return what an array parameter stands for where nothing binds it, if its default is an array or the name of one."""
        default = self.arrays.get(parameter.default) if isinstance(parameter.default, str) else parameter.default
        return default.as_view() if isinstance(default, (Array, ArrayView)) else None

    def workflow(self) -> Workflow:
        """Return itself, so that a Workflow stands wherever a Graph may."""
        return self
