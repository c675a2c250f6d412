"""A kind of node as another package would add it: several copies as one node. Nothing in hipgraphdsl names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import hipgraphdsl as hg
from hipgraphdsl.arrays import Access
from hipgraphdsl.backends import operations, resolve
from hipgraphdsl.lazy import lazy
from hipgraphdsl.nodes import Node, add_kind
from hipgraphdsl.nodes.base import parameters_of
from hipgraphdsl.nodes.fields import Device, Views
from hipgraphdsl.runtimes.base import Runtime


@dataclass(frozen=True, slots=True)
class Copies(operations.Call):
    """Copies, one after another."""

    recorded = False  # as one node: its calls would be recorded as several

    copies: tuple[operations.Copy1D | operations.Copy, ...]

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        for copy in self.copies:
            deps = [copy.add(runtime, graph, deps)]
        return deps[0]

    def issue(self, runtime: Runtime, stream: int) -> None:
        for copy in self.copies:
            copy.issue(runtime, stream)


@add_kind
class CopiesNode(Node):
    """Copy each of `src` to the view of `dst` at the same place, one after another."""

    kind: ClassVar[str] = "copies"
    work = "copy"
    reach = "copy"
    placed = "memory"
    in_body = True
    copies = True

    dst: Views
    src: Views
    device: Device = None

    def model_post_init(self, _: Any) -> None:
        if len(self.dst) != len(self.src):
            raise hg.DeclarationError(f"node {self.name!r}: there are {len(self.dst)} dst and {len(self.src)} src")
        for dst, src in zip(self.dst, self.src):
            hg.MemcpyNode(name=self.name, dst=dst, src=src)  # refuses what no copy can do

    @property
    def copied(self) -> tuple[tuple[hg.ArrayView, hg.ArrayView], ...]:
        return tuple(zip(self.dst, self.src))

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        return (*(Access(view, "read") for view in self.src), *(Access(view, "write") for view in self.dst))

    @property
    def parameters(self) -> tuple[hg.Parameter, ...]:
        return parameters_of((*self.dst, *self.src))

    @property
    def method(self) -> str:
        return ""

    def operation(self, scope: Any, device: int) -> Copies:
        return Copies(tuple(resolve.copy(dst, src, scope, device) for dst, src in self.copied))

    def describe(self) -> str:
        return ", ".join(f"{dst.name} <- {src.name}" for dst, src in self.copied)
