"""Comparison of what captured functions record with what their nodes declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...arrays import Access, Region
from ...backends import Environment
from ...backends.explicit import captured_graph
from ...errors import HipGraphError
from ...executable import Executable
from ...kernels import Symbol
from ...nodes import Node
from ...nodes.facets import UserCall
from ...printed import counted
from ...runtimes.base import Runtime
from ...runtimes.data import Copy3D, Fill2D, MemOp, NodeType
from ..imports.memory import filled, sides
from ..imports.raw import RawGraph, RawKernel, RawNode
from .laboratory import Found, addressed

_WORD = 8
_IDLE = frozenset({NodeType.EMPTY, NodeType.WAIT_EVENT, NodeType.EVENT_RECORD, NodeType.MEM_ALLOC, NodeType.MEM_FREE})
_BEYOND = range(1 << 64)
"""All addresses: the range that a node of unknown effect may access."""


def compare_recorded(executable: Executable, top: Environment, named: str, found: Found) -> None:
    """Record each captured function of an Executable once more, and find declared writes that no recorded node can make."""
    count = 0
    for scope, level in top.levels(executable.workflow):
        for node in level.workflow.nodes:
            call = node.called
            if call is not None and call.calls == "capture" and any(access.is_write for access in node.accesses):
                name = level.name(node)
                try:
                    with executable.runtime.using_device(scope.device_of(node)), _recorded(call, name, scope) as raw:
                        _compare(name, node, scope, raw, found)
                    count += 1
                except (HipGraphError, KeyError) as error:
                    found.left_out.append(f"what {name!r} records ({named}): {error}")
    if count:
        found.done.append(f"what {counted(count, 'captured node')} recorded, {named}")


@contextmanager
def _recorded(node: UserCall, name: str, scope: Environment) -> Iterator[RawGraph]:
    """Capture the work of a node's function, and read the graph back; pointers in it are valid inside the block."""
    runtime = scope.runtime
    graph = captured_graph(runtime, scope.shared.calls.captured(name, node, scope))
    try:
        yield RawGraph.read(graph, runtime, name)
    finally:
        runtime.graph_destroy(graph)


def _compare(name: str, node: Node, scope: Environment, raw: RawGraph, found: Found) -> None:
    nodes = [recorded for recorded in raw.everywhere() if recorded.type is not NodeType.GRAPH]
    busy = [recorded for recorded in nodes if recorded.type not in _IDLE]
    device = scope.device_of(node)
    declared = [(access, addressed(access, scope, device)) for access in node.accesses]
    written = [region for recorded in busy for region in _written(recorded, [region for _, region in declared], scope.runtime)]
    missing: dict[str, Access] = {}
    for access, region in declared:
        # An update may leave values unchanged, so it is reported only if nothing at all is recorded.
        certain = access.mode == "write" and not isinstance(access.view.root, Symbol)  # kernels need no pointer for symbols
        if access.is_write and (certain or not busy) and not any(_meets(region, other) for other in written):
            missing.setdefault(access.view.root.name, access)
    for array, access in missing.items():
        what = ", ".join(sorted({recorded.type.name.lower() for recorded in busy}))
        recorded = f"its function recorded {what}, which cannot write there" if busy else "its function recorded nothing"
        if any(known.kind == "missing write" and (known.nodes, known.arrays) == ((name,), (array,)) for known in found.findings):
            continue
        found.add(
            "missing write",
            f"{name!r} declares that it writes {array!r} bytes {access.bytes.start}..{access.bytes.stop}, and {recorded}",
            (name,),
            (array,),
            hint="issue all work on the stream that the function is given, and check what libraries return",
        )


def _written(node: RawNode, declared: Sequence[Region], runtime: Runtime) -> Iterator[Region | range]:
    """Yield the regions of addresses that a recorded node may write.

    A kernel may write any allocation that its arguments point into, and any memory if such an allocation is not declared.
    """
    match node.params:
        case Copy3D() as copy:
            yield sides(copy)[0].region(0)
        case Fill2D() as fill:
            yield filled(fill).region(0)
        case (MemOp(), *_) as ops:
            for op in ops:
                yield range(op.address, op.address + op.size)
        case RawKernel(arguments=list() as arguments):
            for argument in arguments:
                for at in range(0, len(argument) - _WORD + 1, _WORD):
                    value = int.from_bytes(argument[at : at + _WORD], "little")
                    memory = runtime.mem_get_address_range(value) if value else None
                    if memory is not None:
                        reached = range(memory.pointer, memory.pointer + memory.nbytes)
                        yield reached if any(_meets(region, reached) for region in declared) else _BEYOND
        case _:
            yield _BEYOND


def _meets(declared: Region, other: Region | range) -> bool:
    if isinstance(other, range):
        return declared.start < other.stop and other.start < declared.stop
    return declared.overlaps(other)
