"""Page-lock the host memory of one Executable that its nodes can only use correctly when it is page-locked.

A driver may read pageable memory when a graph is launched, not when the copy node runs (quirk ``pageable_read_at_launch``). The
copy then misses what other nodes write: nodes before it in the same launch and, because a launch may be in flight when the next
one is issued, nodes after it in the previous launch. So all memory that one node copies and any node writes is page-locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..arrays import AllocArray, HostArray
from ..backends.environment import Owned
from ..errors import DeclarationError
from .devices import Home
from .memory import Block, Memory
from .parameters import Parameters
from .uses import Uses

if TYPE_CHECKING:
    from .aliases import Use


def page_lock(uses: Uses, memory: Memory, parameters: Parameters, home: Home) -> None:
    """Page-lock the memory that a workflow needs page-locked under its current bindings; refuse it if that is impossible."""
    pageable = [block for block in (*memory.arrays.values(), *parameters.kept_blocks()) if block.pageable]
    if not pageable:
        return
    target = home.runtime.target
    touched = [(root, found) for root, found in uses.aliases.by_root() if _may_be_pageable(root[1])]
    for root, found in touched:
        block = _block_at(_address(root), pageable)
        reaching = next((use for use in found if use.node.reach == "device" and not use.node.copies), None)
        if reaching is not None and block is not None and block.refused is not None:
            raise _refusal(root, reaching, block, "and the device cannot reach it")
    if "pageable_read_at_launch" not in target.quirks:
        return
    writes = [(_address(root), root[1].nbytes, use) for root, found in touched for use in found if use.mode != "read"]
    for root, found in touched:
        start = _address(root)
        block = _block_at(start, pageable)
        copying = next((u for u in found if u.mode != "write" and u.node.copies), None)
        writing = next((use for at, size, use in writes if at < start + root[1].nbytes and start < at + size), None)
        if block is None or copying is None or writing is None:
            continue
        with home.there(block.device):
            block.lock(home.runtime)
        if block.pageable:
            why = f"and node {writing.name!r} writes it: {target.name} reads pageable memory when the graph is"
            raise _refusal(root, copying, block, f"{why} launched, not when the node runs")


def _refusal(root: Owned, use: Use, block: Block, why: str) -> DeclarationError:
    scope, array = root
    return DeclarationError(
        f"node {use.name!r} uses {array.kind} {scope.prefix + array.name!r}, whose memory cannot be page-locked"
        f" ({block.refused}), {why}; use a host_array (page-locked by default), or memory that is writeable and ordinary,"
        " as np.empty returns it",
        node=use.name,
        array=array.name,
    )


def _may_be_pageable(root: Any) -> bool:
    return bool(root.on_host) and not isinstance(root, AllocArray) and not (isinstance(root, HostArray) and root.pinned)


def _block_at(address: int, blocks: Sequence[Block]) -> Block | None:
    return next((block for block in blocks if block.holds(address)), None)


def _address(root: Owned) -> int:
    """Return the address of an array, or the current one of a parameter; -1 if it has none yet."""
    return root[0].addresses.get(root[1], -1)
