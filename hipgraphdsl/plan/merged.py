"""What plans and backends know of launches that run several steps; the part `merge` makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..kernels import Kernel


class Merged(ABC):
    """How one launch runs the steps of a plan that have its index in `Step.batch`."""

    @property
    @abstractmethod
    def kind(self) -> Literal["batch", "chain"]:
        """Whether it runs its members in parallel (batch) or one after another (chain)."""

    @abstractmethod
    def prepare(self, others: Sequence[Merged], shared: Any, device: int) -> int:
        """Compile and load its entry point, with those of the plan's `others`; return it, or 0 if the compiler refuses it."""

    @abstractmethod
    def resolve(
        self, others: Sequence[Merged], steps: Sequence[Any], operations: Sequence[Any], shared: Any, device: int
    ) -> MergedLaunch | None:
        """Return the operation that does `operations`, those of `steps`; None if they no longer fit one launch."""


class MergedLaunch(ABC):
    """An operation with members: one kernel node that performs the launches of several steps, `first` and those after it.

    A disabled member has no launch. A change takes effect with the next `set`.
    """

    first: int
    """The first step."""
    node: int = 0
    """hipGraphNode_t; 0 until the node is added to a graph."""
    changed: bool = False
    """Whether a member has changed since the last `set`."""

    @abstractmethod
    def takes(self, step: int, operation: Any) -> bool:
        """Return whether it can do an operation as that of a step."""

    @abstractmethod
    def put(self, step: int, launch: Any) -> None:
        """Replace the launch of a step, or disable the step with None."""

    @abstractmethod
    def arguments_of(self, step: int) -> int:
        """Return the address of a step's arguments, as its packer lays them out."""

    @abstractmethod
    def params(self, runtime: Any) -> int:
        """Return the address of the node's parameters in the platform's format; `set` updates them in place."""

    @abstractmethod
    def add(self, runtime: Any, graph: int, deps: Sequence[int]) -> int:
        """Add the node to a graph, after the nodes `deps`; return its handle."""

    @abstractmethod
    def issue(self, runtime: Any, stream: int) -> None:
        """Launch it on a stream."""

    @abstractmethod
    def set(self, runtime: Any, graph_exec: int) -> None:
        """Pass all changes to the node in an instantiated graph."""


class Grouping(NamedTuple):
    """Nodes in a topological order in which the nodes of a launch are adjacent."""

    order: list[int]
    group_of: list[int]  # for each node the number of its group; numbers ascend in `order`
    batches: tuple[Merged, ...]
    batch_of: list[int]  # for each group the index of its launch; -1 for a single node
    refused: dict[Kernel, str]  # why launches of a kernel cannot be merged
