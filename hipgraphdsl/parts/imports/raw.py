"""A graph as the runtime reports it: its nodes with their parameters, and its edges."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import DeclarationError, HipError
from ...order import positions, topological_order
from ...runtimes.base import Runtime
from ...runtimes.data import FunctionInfo, KernelParams, NodeType

_EXTRA_BUFFER, _EXTRA_SIZE, _EXTRA_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
_EXTRA_END_CUDA: Final = 0
_TELLS: Final[dict[NodeType, Callable[..., Any] | None]] = {
    NodeType.MEMCPY: Runtime.graph_memcpy_node_get_params,
    NodeType.MEMSET: Runtime.graph_memset_node_get_params,
    NodeType.HOST: Runtime.graph_host_node_get_params,
    NodeType.EMPTY: None,
    NodeType.WAIT_EVENT: Runtime.graph_event_wait_node_get_event,
    NodeType.EVENT_RECORD: Runtime.graph_event_record_node_get_event,
    NodeType.EXT_SEMAPHORE_SIGNAL: Runtime.graph_external_semaphores_signal_node_get_params,
    NodeType.EXT_SEMAPHORE_WAIT: Runtime.graph_external_semaphores_wait_node_get_params,
    NodeType.MEM_ALLOC: Runtime.graph_mem_alloc_node_get_params,
    NodeType.MEM_FREE: Runtime.graph_mem_free_node_get_params,
    NodeType.BATCH_MEM_OP: Runtime.graph_batch_mem_op_node_get_params,
}
"""The call that returns a node's parameters; None for a type without parameters."""
_UNREADABLE: Final = {
    NodeType.MEMCPY_FROM_SYMBOL: "which variable it copies; a copy from the variable's address can be read",
    NodeType.MEMCPY_TO_SYMBOL: "which variable it copies; a copy to the variable's address can be read",
    NodeType.CONDITIONAL: "what its bodies hold and what decides",
}


@dataclass
class RawNode:
    """One node as its GetParams call reports it; the class of `params` depends on the node type."""

    type: NodeType
    params: Any
    before: list[int] = field(default_factory=list)


@dataclass
class RawKernel:
    """What a kernel node launches."""

    launch: KernelParams
    info: FunctionInfo
    arguments: list[bytes] | None
    """Bytes of each argument; None if they cannot be read, as where their sizes are unknown."""
    attributes: dict[str, Any]


@dataclass
class RawGraph:
    """A graph's nodes in topological order, as close to the runtime's node order as edges allow."""

    nodes: list[RawNode]

    @staticmethod
    def read(handle: int, runtime: Runtime, name: str) -> RawGraph:
        handles = runtime.graph_get_nodes(handle)
        place = {node: i for i, node in enumerate(handles)}
        sources: list[list[int]] = [[] for _ in handles]
        for source, target in runtime.graph_get_edges(handle):
            sources[place[target]].append(place[source])
        order = topological_order(sources)
        if len(order) != len(handles):
            raise DeclarationError(f"graph {name!r}: the graph of handle {handle:#x} has a cycle")
        position = positions(order)
        nodes = []
        for i in order:
            type_ = runtime.graph_node_get_type(handles[i])
            try:
                params = _params(type_, handles[i], runtime, name, i)
            except HipError as error:
                raise error.at(f"{name}: node {i} ({type_.name.lower()})") from error.__cause__
            nodes.append(RawNode(type_, params, sorted(position[s] for s in sources[i])))
        return RawGraph(nodes)

    def everywhere(self) -> Iterator[RawNode]:
        """Yield all nodes, including those of child graphs."""
        for node in self.nodes:
            yield node
            if node.type is NodeType.GRAPH:
                yield from node.params.everywhere()


def _params(type_: NodeType, node: int, runtime: Runtime, name: str, index: int) -> Any:
    if type_ is NodeType.KERNEL:
        launch = runtime.graph_kernel_node_get_params(node)
        info = runtime.func_get_info(launch.function)
        return RawKernel(launch, info, _arguments(launch, info), runtime.graph_kernel_node_get_attributes(node))
    if type_ is NodeType.GRAPH:
        return RawGraph.read(runtime.graph_child_graph_node_get_graph(node), runtime, name)
    if type_ not in _TELLS:
        raise DeclarationError(
            f"graph {name!r}: node {index} ({type_.name.lower()}) cannot be read back, because no call of runtime"
            f" {runtime.name!r} tells {_UNREADABLE.get(type_, 'its parameters')}"
        )
    tells = _TELLS[type_]
    return tells and getattr(runtime, tells.__name__)(node)


def _arguments(launch: KernelParams, info: FunctionInfo) -> list[bytes] | None:
    """Return the bytes of each argument, copied from the node's own memory."""
    if info.parameters is None:
        return None
    if not info.parameters:
        return []
    if launch.args:
        table = (ctypes.c_void_p * len(info.parameters)).from_address(launch.args)
        return [ctypes.string_at(address or 0, size) for address, (_, size) in zip(table, info.parameters)]
    if not launch.extra:
        return None
    buffer, at = 0, launch.extra
    while (key := ctypes.c_size_t.from_address(at).value) not in (_EXTRA_END, _EXTRA_END_CUDA):
        value = ctypes.c_void_p.from_address(at + 8).value
        if key == _EXTRA_BUFFER:
            buffer = value or 0
        elif key != _EXTRA_SIZE:
            return None
        at += 16
    return [ctypes.string_at(buffer + offset, size) for offset, size in info.parameters] if buffer else None
