"""HIP's graph calls: building, reading back, executables."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from ..errors import HipError
from .data import LAUNCH_ATTRIBUTES, Copy3D, Dim3, Fill2D, HostParams, KernelParams, MemcpyKind, MemOp, NodeType
from .hip_calls import (
    ALLOCATION_PINNED,
    BATCH_MEM_OP_NODE_PARAMS,
    ERROR_NOT_SUPPORTED,
    HOST_NODE_PARAMS,
    KERNEL_NODE_PARAMS,
    LOCATION_DEVICE,
    MEM_ALLOC_NODE_PARAMS,
    MEM_CONDITIONS,
    MEM_OPERATIONS,
    MEMCPY_3D_PARMS,
    MEMSET_PARAMS,
    PACK_HANDLES,
    PACK_KERNEL,
    SEMAPHORE_NODE_PARAMS,
    SEMAPHORE_PARAMS,
    STREAM_BATCH_MEM_OP_PARAMS,
    HipCore,
    access_descs,
    adds,
    does,
    handles,
    no_attribute,
    pack_copy,
    pack_fill,
    pack_mem_ops,
    tells,
)


class HipGraphs(HipCore):
    """The part of `HipAbiRuntime` that builds, reads, changes and launches graphs."""

    def __init__(self, library: ctypes.CDLL, label: str) -> None:
        super().__init__(library, label)
        self._mem_op_arrays: dict[bytes, ctypes.Array[ctypes.c_char]] = {}

    # -- graphs ----------------------------------------------------------------------------------------------------
    graph_destroy = does("hipGraphDestroy")
    graph_add_mem_free_node = adds("hipGraphAddMemFreeNode")
    graph_add_empty_node = adds("hipGraphAddEmptyNode")
    graph_add_child_graph_node = adds("hipGraphAddChildGraphNode")
    graph_add_event_record_node = adds("hipGraphAddEventRecordNode")
    graph_add_event_wait_node = adds("hipGraphAddEventWaitNode")

    def graph_create(self) -> int:
        return self._new("hipGraphCreate", 0)

    def graph_add_kernel_node(
        self, graph: int, deps: Sequence[int], function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> int:
        # Named extents: unpacking them in the call would build a list and a tuple first (0.1 us).
        block_x, block_y, block_z = block
        grid_x, grid_y, grid_z = grid
        out = c_void_p()
        count = len(deps)
        code = self._hip.hipGraphAddKernelNode(
            byref(out),
            graph,
            PACK_HANDLES[count](*deps) if count else None,
            count,
            PACK_KERNEL(block_x, block_y, block_z, 0, function, grid_x, grid_y, grid_z, args, shared_bytes),
        )
        if code:
            self._fail("hipGraphAddKernelNode", code)
        return out.value or 0

    def graph_kernel_node_set_attributes(self, node: int, **attributes: Any) -> None:
        api = "hipGraphKernelNodeSetAttribute"
        for name, value in attributes.items():
            if name not in self.launch_attributes:
                raise HipError(api, ERROR_NOT_SUPPORTED, "hipErrorNotSupported", no_attribute(name))
            attribute = LAUNCH_ATTRIBUTES[name]
            self._call(api, node, attribute.number, attribute.packed(value))

    def graph_add_memcpy_node_1d(self, graph: int, deps: Sequence[int], dst: int, src: int, nbytes: int, kind: MemcpyKind) -> int:
        return self._add("hipGraphAddMemcpyNode1D", graph, deps, dst, src, nbytes, kind)

    def graph_add_memcpy_node(self, graph: int, deps: Sequence[int], copy: Copy3D) -> int:
        return self._add("hipGraphAddMemcpyNode", graph, deps, pack_copy(copy))

    def graph_add_memset_node(self, graph: int, deps: Sequence[int], fill: Fill2D) -> int:
        return self._add("hipGraphAddMemsetNode", graph, deps, pack_fill(fill))

    def graph_add_host_node(self, graph: int, deps: Sequence[int], fn: int, user_data: int) -> int:
        return self._add("hipGraphAddHostNode", graph, deps, HOST_NODE_PARAMS.pack(fn, user_data))

    def graph_add_mem_alloc_node(
        self, graph: int, deps: Sequence[int], nbytes: int, device: int, access: Sequence[int] = ()
    ) -> tuple[int, int]:
        # HIP writes the pointer into the structure, so it cannot be `bytes`.
        params = ctypes.create_string_buffer(MEM_ALLOC_NODE_PARAMS.size)
        descs = access_descs(access)
        address = ctypes.addressof(descs) if access else 0
        MEM_ALLOC_NODE_PARAMS.pack_into(
            params, 0, ALLOCATION_PINNED, 0, LOCATION_DEVICE, device, 0, 0, address, len(access), nbytes, 0
        )
        node = self._add("hipGraphAddMemAllocNode", graph, deps, params)
        return node, int(MEM_ALLOC_NODE_PARAMS.unpack(params)[-1])

    def graph_add_external_semaphores_signal_node(self, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int:
        return self._add_semaphore("hipGraphAddExternalSemaphoresSignalNode", graph, deps, semaphore, value)

    def graph_add_external_semaphores_wait_node(self, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int:
        return self._add_semaphore("hipGraphAddExternalSemaphoresWaitNode", graph, deps, semaphore, value)

    def _add_semaphore(self, api: str, graph: int, deps: Sequence[int], semaphore: int, value: int) -> int:
        handle = c_void_p(semaphore)
        params = ctypes.create_string_buffer(SEMAPHORE_PARAMS.pack(value, 0), SEMAPHORE_PARAMS.size)
        return self._add(
            api,
            graph,
            deps,
            SEMAPHORE_NODE_PARAMS.pack(ctypes.addressof(handle), ctypes.addressof(params), 1),
        )

    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[MemOp]) -> int:
        # AMD's node keeps the address of the array, not a copy, and so does every executable that is made of it. Arrays
        # of equal content are shared, so that they can be kept for good.
        packed = pack_mem_ops(ops)
        array = self._mem_op_arrays.setdefault(packed, ctypes.create_string_buffer(packed, len(packed)))
        # AMD refuses a null context. The primary one lives as long as the process, so it is released at once.
        device = self.get_device()
        context = self._new("hipDevicePrimaryCtxRetain", device)
        self._call("hipDevicePrimaryCtxRelease", device)
        params = BATCH_MEM_OP_NODE_PARAMS.pack(context, len(ops), ctypes.addressof(array), 0)
        return self._add("hipGraphAddBatchMemOpNode", graph, deps, params)

    def graph_add_dependencies(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._call("hipGraphAddDependencies", graph, handles(sources), handles(targets), len(sources))

    # -- what a graph holds ------------------------------------------------------------------------------------------
    graph_mem_free_node_get_params = tells("hipGraphMemFreeNodeGetParams")
    graph_event_record_node_get_event = tells("hipGraphEventRecordNodeGetEvent")
    graph_event_wait_node_get_event = tells("hipGraphEventWaitNodeGetEvent")
    graph_child_graph_node_get_graph = tells("hipGraphChildGraphNodeGetGraph")

    def graph_get_nodes(self, graph: int) -> tuple[int, ...]:
        return self._two_calls("hipGraphGetNodes", graph)[0]

    def graph_get_edges(self, graph: int) -> tuple[tuple[int, int], ...]:
        sources, targets = self._two_calls("hipGraphGetEdges", graph, arrays=2)
        return tuple(zip(sources, targets, strict=True))

    def graph_node_get_type(self, node: int) -> NodeType:
        out = c_int()
        self._call("hipGraphNodeGetType", node, byref(out))
        try:
            return NodeType(out.value)
        except ValueError:
            raise HipError(
                "hipGraphNodeGetType",
                ERROR_NOT_SUPPORTED,
                "hipErrorNotSupported",
                f"node type {out.value} is not known here",
            ) from None

    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        """Return what a kernel node would launch; `args` stays valid until the node is changed or destroyed."""
        params = ctypes.create_string_buffer(KERNEL_NODE_PARAMS.size)
        self._call("hipGraphKernelNodeGetParams", node, params)
        bx, by, bz, extra, function, gx, gy, gz, args, shared_bytes = KERNEL_NODE_PARAMS.unpack(params)
        return KernelParams(function, (gx, gy, gz), (bx, by, bz), shared_bytes, args, extra)

    def graph_memcpy_node_get_params(self, node: int) -> Copy3D:
        """Return the copy of a memcpy node; one added as 1-D may be refused (hipErrorInvalidValue) by AMD."""
        params = ctypes.create_string_buffer(MEMCPY_3D_PARMS.size)
        self._call("hipGraphMemcpyNodeGetParams", node, params)
        value = MEMCPY_3D_PARMS.unpack(params)
        src_pos, (src, src_pitch_bytes, _, src_rows) = value[1:4], value[4:8]
        dst_pos, (dst, dst_pitch_bytes, _, dst_rows) = value[9:12], value[12:16]
        width_bytes, height, depth = value[16:19]
        return Copy3D(
            dst, dst_pitch_bytes, dst_rows, src, src_pitch_bytes, src_rows, width_bytes, height, depth,
            MemcpyKind(value[19]), dst_pos, src_pos,
        )  # fmt: skip

    def graph_memset_node_get_params(self, node: int) -> Fill2D:
        """Return the fill of a memset node."""
        params = ctypes.create_string_buffer(MEMSET_PARAMS.size)
        self._call("hipGraphMemsetNodeGetParams", node, params)
        dst, element_size, height, pitch_bytes, value, width = MEMSET_PARAMS.unpack(params)
        return Fill2D(dst, element_size, value, width, height, pitch_bytes)

    def graph_host_node_get_params(self, node: int) -> HostParams:
        """Return the function and argument of a host node."""
        params = ctypes.create_string_buffer(HOST_NODE_PARAMS.size)
        self._call("hipGraphHostNodeGetParams", node, params)
        return HostParams(*HOST_NODE_PARAMS.unpack(params))

    def graph_mem_alloc_node_get_params(self, node: int) -> tuple[int, int]:
        """Return (pointer, bytes) of an alloc node."""
        params = ctypes.create_string_buffer(MEM_ALLOC_NODE_PARAMS.size)
        self._call("hipGraphMemAllocNodeGetParams", node, params)
        nbytes, pointer = MEM_ALLOC_NODE_PARAMS.unpack(params)[-2:]
        return pointer, nbytes

    def graph_kernel_node_get_attributes(self, node: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.launch_attributes:
            number, form, _ = LAUNCH_ATTRIBUTES[name]
            packed = ctypes.create_string_buffer(form.size)
            if self._hip.hipGraphKernelNodeGetAttribute(node, number, packed):  # AMD knows only what has been set
                self._clear_last_error()
            elif any(value := form.unpack(packed)):
                found[name] = value if len(value) > 1 else value[0]
        return found

    def graph_external_semaphores_signal_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        return self._semaphores("hipGraphExternalSemaphoresSignalNodeGetParams", node)

    def graph_external_semaphores_wait_node_get_params(self, node: int) -> tuple[tuple[int, int], ...]:
        return self._semaphores("hipGraphExternalSemaphoresWaitNodeGetParams", node)

    def _semaphores(self, api: str, node: int) -> tuple[tuple[int, int], ...]:
        params = ctypes.create_string_buffer(SEMAPHORE_NODE_PARAMS.size)
        self._call(api, node, params)
        semaphores, fences, count = SEMAPHORE_NODE_PARAMS.unpack(params)
        handles = (c_uint64 * count).from_address(semaphores)
        size = SEMAPHORE_PARAMS.size
        values = SEMAPHORE_PARAMS.iter_unpack(ctypes.string_at(fences, count * size))
        return tuple((handle, value) for handle, (value, _) in zip(handles, values, strict=True))

    def graph_batch_mem_op_node_get_params(self, node: int) -> tuple[MemOp, ...]:
        params = ctypes.create_string_buffer(BATCH_MEM_OP_NODE_PARAMS.size)
        self._call("hipGraphBatchMemOpNodeGetParams", node, params)
        _, count, array, _ = BATCH_MEM_OP_NODE_PARAMS.unpack(params)
        operations = {number: key for key, number in MEM_OPERATIONS.items()}
        conditions = {number: name for name, number in MEM_CONDITIONS.items()}
        found = []
        packed = ctypes.string_at(array, count * STREAM_BATCH_MEM_OP_PARAMS.size)
        for operation, address, value, flags, _ in STREAM_BATCH_MEM_OP_PARAMS.iter_unpack(packed):
            if operation not in operations:
                raise HipError(
                    "hipGraphBatchMemOpNodeGetParams", ERROR_NOT_SUPPORTED, "hipErrorNotSupported",
                    f"memory operation {operation} is not known here",
                )  # fmt: skip
            op, size = operations[operation]
            condition = conditions[flags & 3] if op == "wait" else "eq"
            found.append(MemOp(op, address, value if size == 8 else value & 0xFFFFFFFF, size, condition))
        return tuple(found)

    # -- executables -------------------------------------------------------------------------------------------------
    graph_exec_destroy = does("hipGraphExecDestroy")
    graph_exec_child_graph_node_set_params = does("hipGraphExecChildGraphNodeSetParams")
    graph_exec_event_record_node_set_event = does("hipGraphExecEventRecordNodeSetEvent")
    graph_exec_event_wait_node_set_event = does("hipGraphExecEventWaitNodeSetEvent")

    def graph_instantiate(self, graph: int, flags: int = 0) -> int:
        return self._new("hipGraphInstantiateWithFlags", graph, flags)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        code = self._hip.hipGraphLaunch(graph_exec, stream)
        if code:
            self._fail("hipGraphLaunch", code)

    def graph_exec_kernel_node_set_params(
        self, graph_exec: int, node: int, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int
    ) -> None:
        block_x, block_y, block_z = block
        grid_x, grid_y, grid_z = grid
        code = self._hip.hipGraphExecKernelNodeSetParams(
            graph_exec,
            node,
            PACK_KERNEL(block_x, block_y, block_z, 0, function, grid_x, grid_y, grid_z, args, shared_bytes),
        )
        if code:
            self._fail("hipGraphExecKernelNodeSetParams", code)

    def graph_exec_memcpy_node_set_params_1d(
        self, graph_exec: int, node: int, dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> None:
        code = self._hip.hipGraphExecMemcpyNodeSetParams1D(graph_exec, node, dst, src, nbytes, kind)
        if code:
            self._fail("hipGraphExecMemcpyNodeSetParams1D", code)

    def graph_exec_memcpy_node_set_params(self, graph_exec: int, node: int, copy: Copy3D) -> None:
        self._call("hipGraphExecMemcpyNodeSetParams", graph_exec, node, pack_copy(copy))

    def graph_exec_memset_node_set_params(self, graph_exec: int, node: int, fill: Fill2D) -> None:
        self._call("hipGraphExecMemsetNodeSetParams", graph_exec, node, pack_fill(fill))

    def graph_exec_host_node_set_params(self, graph_exec: int, node: int, fn: int, user_data: int) -> None:
        self._call("hipGraphExecHostNodeSetParams", graph_exec, node, HOST_NODE_PARAMS.pack(fn, user_data))

    def graph_node_set_enabled(self, graph_exec: int, node: int, enabled: bool) -> None:
        code = self._hip.hipGraphNodeSetEnabled(graph_exec, node, enabled)
        if code:
            self._fail("hipGraphNodeSetEnabled", code)
