"""Which host memory must be page-locked for one Executable, because of what its nodes do with it.

A driver may read pageable memory when a graph is launched, and not when the copy node runs (quirk ``pageable_read_at_launch``).
The copy then misses what other nodes write: those before it in the same launch and, because a launch may be in flight when the
next one is issued, those after it in the launch before. So all memory that one node copies and any node writes is page-locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays import AllocArray, HostArray
from ..backends import Scope
from ..errors import DeclarationError
from ..nodes import CapturedNode, MemcpyNode
from ..placement import runs_code
from ..workflow import Workflow
from .devices import Home
from .memory import Block, Memory
from .parameters import Parameters

__all__ = ["Locking"]

_Root = tuple[Scope, Any]


class Locking:
    """Page-locks what must be, and refuses what cannot be."""

    def __init__(self, home: Home, memory: Memory, parameters: Parameters) -> None:
        self._home = home
        self._memory = memory
        self._parameters = parameters
        self._early = "pageable_read_at_launch" in home.runtime.target.quirks
        self._of: Workflow | None = None
        self._copied: dict[_Root, str] = {}
        """Host arrays and parameters that are copied, each with the first node that does so."""
        self._written: dict[_Root, str] = {}
        self._reached: dict[_Root, str] = {}
        """Those that code on the device reaches."""

    def require(self, workflow: Workflow, scope: Scope) -> None:
        """Page-lock the memory that a workflow needs so, as its names are bound now.

        Raises
        ------
        DeclarationError
            If some cannot be; names the node and the array.
        """
        blocks = (*self._memory.arrays.values(), *(b for kept in self._parameters.kept.values() for b in kept.values()))
        pageable = [block for block in blocks if block.pageable]
        if not pageable:
            return
        if workflow is not self._of:
            self._look(workflow, scope)
            self._of = workflow
        for root, node in self._reached.items():
            block = _block_at(_address(root), pageable)
            if block is not None and block.refused is not None:
                raise self._refusal(root, node, block, "and the device cannot reach it")
        if not self._early:
            return
        written = [(_address(root), root[1].nbytes, node) for root, node in self._written.items()]
        for root, node in self._copied.items():
            start = _address(root)
            block = _block_at(start, pageable)
            writer = next((by for at, size, by in written if at < start + root[1].nbytes and start < at + size), None)
            if block is None or writer is None:
                continue
            with self._home.there(block.device):
                block.lock(self._home.runtime)
            if block.pageable:
                why = f"and node {writer!r} writes it: {self._home.runtime.target.name} reads pageable memory when the graph is"
                raise self._refusal(root, node, block, f"{why} launched, not when the node runs")

    def _look(self, workflow: Workflow, scope: Scope) -> None:
        self._copied, self._written, self._reached = {}, {}, {}
        for node, inner in ((node, inner) for inner, level in scope.levels(workflow) for node in level.workflow.nodes):
            for access in node.own_accesses:
                root = inner.resolve(access.view.root)[:2]
                if not _may_be_pageable(root[1]):
                    continue
                name = inner.prefix + node.name
                if access.mode != "write" and isinstance(node, (MemcpyNode, CapturedNode)):
                    self._copied.setdefault(root, name)
                if access.mode != "read":
                    self._written.setdefault(root, name)
                if runs_code(node) and not isinstance(node, CapturedNode):
                    self._reached.setdefault(root, name)

    def _refusal(self, root: _Root, node: str, block: Block, why: str) -> DeclarationError:
        scope, array = root
        return DeclarationError(
            f"node {node!r} uses {array.kind} {scope.prefix + array.name!r}, whose memory cannot be page-locked"
            f" ({block.refused}), {why}; use a host_array (page-locked by default), or memory that is writeable and ordinary,"
            " as np.empty returns it",
            node=node,
            array=array.name,
        )


def _may_be_pageable(root: Any) -> bool:
    return bool(root.on_host) and not isinstance(root, AllocArray) and not (isinstance(root, HostArray) and root.pinned)


def _block_at(address: int, blocks: Sequence[Block]) -> Block | None:
    return next((block for block in blocks if block.pointer <= address < block.pointer + block.array.nbytes), None)


def _address(root: _Root) -> int:
    """Return where an array lies, or a parameter's now; -1 if it has not been given yet."""
    return root[0].addresses.get(root[1], -1)
