"""What the recorder knows of a graph: its nodes and edges, and a capture that makes one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...order import find_cycle
from ...runtimes.data import CaptureMode, NodeType


@dataclass
class Node:
    """One node of a graph."""

    handle: int
    kind: NodeType
    params: Any
    graphs: tuple[int, ...] = ()  # a child node's graph, or a conditional node's bodies


@dataclass
class Graph:
    """Nodes by handle, and the edges between them."""

    handle: int
    nodes: dict[int, Node] = field(default_factory=dict)
    edges: dict[tuple[int, int], None] = field(default_factory=dict)
    joined: bool = False  # whether an edge was added after its target: else there is no cycle

    def sources(self) -> dict[int, list[int]]:
        """Return for each node the nodes that it waits for."""
        found: dict[int, list[int]] = {node: [] for node in self.nodes}
        for source, target in self.edges:
            found[target].append(source)
        return found

    def ancestors(self, nodes: Iterable[int]) -> set[int]:
        """Return nodes and all that precede them."""
        sources = self.sources()
        found: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += sources[node]
        return found

    def has_cycle(self) -> bool:
        """Return whether nodes wait for each other in a circle."""
        place = {node: i for i, node in enumerate(self.nodes)}
        return bool(find_cycle([[place[source] for source in row] for row in self.sources().values()]))


@dataclass
class Capture:
    """One capture, from its begin to its end."""

    number: int
    origin: int
    mode: CaptureMode
    graph: Graph
    tails: dict[int, tuple[int, ...]]  # stream -> nodes that its next node depends on
    invalidated: bool = False
    thread: int = field(default_factory=threading.get_ident)
