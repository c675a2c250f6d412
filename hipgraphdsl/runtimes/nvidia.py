"""nvidia: HIP's calls on CUDA, one to one, as HIP's own NVIDIA platform maps them.

Most of HIP's graph API has CUDA's signatures, so `HipAbiRuntime` serves both: `cuda_driver` maps HIP's names to driver functions.
This module has the differences: the structures of kernel, memcpy and memset nodes, devices and contexts, and modules. The
driver (libcuda) is called through ctypes, which costs half of what cuda-bindings' wrappers do; the binding loads and calls
NVRTC (`nvrtc`), and CUDA counts as installed if the binding is.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

from ..errors import HipError, RuntimeUnavailable, lacks
from ..target import Target
from .base import ERROR_NOT_SUPPORTED, not_supported
from .cuda_driver import Driver
from .data import (
    LAUNCH_ATTRIBUTES,
    CodeObject,
    ConditionalMode,
    Copy3D,
    Dim3,
    Fill2D,
    FunctionInfo,
    KernelParams,
    MemcpyKind,
    MemoryRange,
    NodeType,
)
from .hip_abi import HipAbiRuntime
from .hip_calls import BATCH_MEM_OP_NODE_PARAMS, KERNEL_NODE_LAYOUT, address_of, handles, makes, pack_mem_ops
from .nvrtc import Nvrtc

_INVALID_CONTEXT: Final = 201
_PEER_ACCESS_ALREADY_ENABLED: Final = 704
_RESIDENT_THREADS: Final = 39  # CUdevice_attribute: maximum resident threads per multiprocessor

# CUDA's reference for cudaGraphExecMemcpyNodeSetParams and ...MemsetNodeSetParams: only 1-D operations can change, and their
# memory stays on the same devices ("fixed_memory_devices"). A disabled 2-D memset node does not run again after it is enabled
# (observed on driver 580, tests/conformance).
# In a graph with host nodes, disabling a first or last node breaks the order between two launches: the second starts before
# host nodes of the first have run (observed on driver 580, CUDA 13.0, tests/property/test_changes.py; 15 of 15 times).
# A memset node that cuGraphNodeSetEnabled has disabled makes launches fail, including those in flight: error 719 (observed on
# driver 580.159, CUDA 13.0; tests/device/enable_memset_in_flight.cu shows it in one process). Kernel and memcpy nodes do not.
# A launch may never end if the body of a conditional node holds two conditional nodes that no path orders (observed on driver
# 580.159, CUDA 13.0; tests/device/parallel_conditionals.cu shows it). Two in the top-level graph were not seen to hang.
_QUIRKS: Final = frozenset({"only_flat_updates", "memset_enable_fails", "pageable_read_at_launch", "conditionals_in_order"})

# CUdevice_attribute
_COMPUTE_MAJOR, _COMPUTE_MINOR, _MULTIPROCESSORS, _SHARED_OPTIN, _COPY_ENGINES = 75, 76, 16, 97, 40
_MAX_DYNAMIC_SHARED: Final = 8  # CUfunction_attribute
_ORDINARY_SHARED_BYTES: Final = 49152  # a kernel must opt in to more

_KERNEL_NODE_PARAMS: Final = struct.Struct("=Q7I4xQQQQ")  # func, grid, block, sharedMemBytes, kernelParams, extra, kern, ctx
# CUgraphNodeParams: type, then from byte 16 on handle, type, size, phGraph_out, ctx; 256 bytes in all
_CONDITIONAL_NODE_PARAMS: Final = struct.Struct("=i12xQIIQQ208x")
_CONDITIONAL, _BODIES_AT = 13, 32
_PROGRAMMATIC_EDGE: Final = struct.pack("=BBB5x", 1, 0, 1)  # CUgraphEdgeData: from_port, to_port, type
_ATTRIBUTE_ID: Final = struct.Struct("=i4x")  # before the value of a CUlaunchAttribute
_LAUNCH_CONFIG: Final = struct.Struct("=7I4xQQI4x")  # grid, block, sharedMemBytes, stream, attrs, numAttrs
_MEMSET_NODE_PARAMS: Final = struct.Struct("=QQIIQQ")  # dst, pitch, value, elementSize, width, height
_SIDE: Final = "4Qi4xQQQQQQ"  # x, y, z, LOD, type, host, device, array, reserved, pitch, height
_MEMCPY_3D: Final = struct.Struct("=" + _SIDE + _SIDE + "3Q")  # source, destination, extent
_HOST, _DEVICE, _UNIFIED = 1, 2, 4  # CUmemorytype
_MEMORY_TYPE, _RANGE_START, _RANGE_SIZE = 2, 11, 12  # CUpointer_attribute

_NODE_TYPES: Final = {12: NodeType.BATCH_MEM_OP, 13: NodeType.CONDITIONAL}  # CUgraphNodeType where it differs from HIP's

# A PTX kernel that passes a word in memory to a conditional node: cudaGraphSetConditional is part of the driver, which
# resolves it when it loads the module, so that neither NVRTC's headers nor libcudadevrt are needed. PTX 6.4 and sm_50 are the
# oldest versions that drivers with conditional nodes accept, so one text works for all.
_SET_CONDITION: Final = b"""
.version 6.4
.target sm_50
.address_size 64
.extern .func cudaGraphSetConditional
(
    .param .b64 handle,
    .param .b32 value
)
;
.visible .entry hipgraphdsl_set_condition(
    .param .u64 to,
    .param .u64 from
)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    cvta.to.global.u64 %rd3, %rd2;
    ld.volatile.global.u32 %r1, [%rd3];
    {
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    .param .b32 param1;
    st.param.b32 [param1+0], %r1;
    call.uni cudaGraphSetConditional, (param0, param1);
    }
    ret;
}
\0"""
_ALL_MODES: Final = (12, 8)  # first CUDA version in which `if` may have an else, and which has `switch`


_SIDES: Final = {
    MemcpyKind.HOST_TO_HOST: (_HOST, _HOST),
    MemcpyKind.HOST_TO_DEVICE: (_HOST, _DEVICE),
    MemcpyKind.DEVICE_TO_HOST: (_DEVICE, _HOST),
    MemcpyKind.DEVICE_TO_DEVICE: (_DEVICE, _DEVICE),
    MemcpyKind.DEFAULT: (_UNIFIED, _UNIFIED),
}


def _side(kind: int, pointer: int) -> tuple[int, int, int]:
    """Return memory type, host and device address."""
    return (kind, pointer, 0) if kind == _HOST else (kind, 0, pointer)


def _pack_run(dst: int, src: int, nbytes: int, kind: MemcpyKind) -> bytes:
    from_kind, to_kind = _SIDES[kind]
    return _MEMCPY_3D.pack(
        0, 0, 0, 0, *_side(from_kind, src), 0, 0, nbytes, 1,
        0, 0, 0, 0, *_side(to_kind, dst), 0, 0, nbytes, 1,
        nbytes, 1, 1,
    )  # fmt: skip


def _pack_copy(copy: Copy3D) -> bytes:
    from_kind, to_kind = _SIDES[copy.kind]
    return _MEMCPY_3D.pack(
        *copy.src_pos, 0, *_side(from_kind, copy.src), 0, 0, copy.src_pitch_bytes, copy.src_rows,
        *copy.dst_pos, 0, *_side(to_kind, copy.dst), 0, 0, copy.dst_pitch_bytes, copy.dst_rows,
        copy.width_bytes, copy.height, copy.depth,
    )  # fmt: skip


def _pack_fill(fill: Fill2D) -> bytes:
    return _MEMSET_NODE_PARAMS.pack(fill.dst, fill.pitch_bytes, fill.value, fill.element_size, fill.width, fill.height)


def _adds_in_context(api: str, pack: Callable[..., bytes]) -> Callable[..., int]:
    """Return a method that packs its parameters and adds a node in the thread's current context."""
    return lambda self, graph, deps, *params: self._add(api, graph, deps, pack(*params), self._context)


def _sets_in_context(api: str, pack: Callable[..., bytes]) -> Callable[..., None]:
    """Return a method that packs its parameters and sets them for a node of an executable graph, in the same context."""
    return lambda self, graph_exec, node, params: self._call(api, graph_exec, node, pack(params), self._context)


class NvidiaRuntime(HipAbiRuntime):
    """One NVIDIA GPU through the CUDA driver.

    Raises
    ------
    RuntimeUnavailable
        If cuda-bindings, the driver's library or the device is missing.
    """

    needs_context = True
    uncontracted = "--fmad=false"
    calls = Driver
    pack_copy = staticmethod(_pack_copy)

    def __init__(self, device: int = 0) -> None:
        self.name = "nvidia"
        try:
            from cuda.bindings import nvrtc
        except ImportError:
            raise lacks("nvidia", "binding", "needs cuda-bindings: pip install cuda-bindings") from None
        if getattr(nvrtc, "HIP_PYTHON", False):  # AMD's own mark; the two packages write the same files
            why = (
                "needs cuda-bindings, and finds the modules for HIP of hip-python-interop in their place: pip uninstall"
                " hip-python-interop; pip install --force-reinstall cuda-bindings"
            )
            raise lacks("nvidia", "binding", why)
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise lacks("nvidia", "library", f"needs the NVIDIA driver's libcuda.so.1: {error}") from None
        super().__init__(library, "this driver")
        code = self._hip.cuInit(0)
        count = c_int()
        if not code:
            code = self._hip.hipGetDeviceCount(byref(count))
        if code or not 0 <= device < count.value:
            why = f"cuInit says {self._names(code)[0]} ({code})" if code else f"there are {count.value}"
            raise lacks("nvidia", "device", f"finds no device {device}: {why}")
        self._several = count.value > 1
        self._contexts: dict[int, int] = {}
        self._device = device
        if not self._current_context():  # HIP's threads have a current device from the start
            self.set_device(device)
        self.target = self._describe_target(device)
        self._rtc = Nvrtc(nvrtc, self.architecture)
        self._wide: set[int] = set()
        self._setters: dict[int, int] = {}
        """Device number -> the function handle of `_SET_CONDITION`."""

    def _describe_target(self, device: int) -> Target:
        major, minor = (self._attribute(a, device) for a in (_COMPUTE_MAJOR, _COMPUTE_MINOR))
        self.architecture = f"sm_{major}{minor}"
        version = self.runtime_get_version()
        return replace(
            Target.named(f"nvidia:{self.architecture}"),
            name=f"nvidia:{self.architecture}",
            multiprocessors=self._attribute(_MULTIPROCESSORS, device),
            max_shared_bytes=self._attribute(_SHARED_OPTIN, device),
            copy_engines=self._attribute(_COPY_ENGINES, device),
            resident_threads=self._attribute(_MULTIPROCESSORS, device) * self._attribute(_RESIDENT_THREADS, device),
            version=version,
            quirks=_QUIRKS | ({"fixed_memory_devices"} if self._several else set()),
        )

    def kernel_params(self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, args: int) -> bytes:
        if shared_bytes > _ORDINARY_SHARED_BYTES:
            self._allow_shared(function)
        return _KERNEL_NODE_PARAMS.pack(function, *grid, *block, shared_bytes, args, 0, 0, 0)

    def _kernel_node_layout(self) -> bytes:
        add = address_of(self._hip.hipGraphAddKernelNode)
        return KERNEL_NODE_LAYOUT.pack(add, _KERNEL_NODE_PARAMS.size, 0, 8, 20, 32, 40, _ORDINARY_SHARED_BYTES)

    def current_addresses(self, device: int) -> tuple[int, int, int]:
        return address_of(self._hip.cuCtxGetCurrent), address_of(self._hip.cuCtxSetCurrent), self._context_of(device)

    def between_devices(self) -> tuple[str, Sequence[str]]:
        found = find_spec("nvidia")
        wheels = found.submodule_search_locations or () if found is not None else ()
        files = (path for folder in wheels for path in sorted(Path(folder, "nccl", "lib").glob("libnccl.so*")))
        return "NCCL", ("libnccl.so.2", *map(str, files))

    # -- errors ----------------------------------------------------------------------------------------------------
    def _names(self, code: int) -> tuple[str, str]:
        found = []
        for api in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            failed = getattr(self._hip, api)(code, byref(text))
            found.append("" if failed or not text.value else text.value.decode())
        return found[0] or f"CUDA error {code}", found[1]

    def _fail(self, api: str, code: int, detail: str = "") -> NoReturn:
        name, said = self._names(code)
        raise HipError(api, code, name, "; ".join(filter(None, (said, detail))))

    def _call(self, api: str, *args: Any) -> None:
        code = getattr(self._hip, api)(*args)
        if code == _INVALID_CONTEXT:  # the thread has no context; HIP's threads start with a current device
            self.set_device(self._device)
            code = getattr(self._hip, api)(*args)
        if code:
            self._fail(api, code)

    # -- device ----------------------------------------------------------------------------------------------------
    def runtime_get_version(self) -> tuple[int, ...]:
        number = self._integer("cuDriverGetVersion")
        return (number // 1000, number % 1000 // 10)

    def get_device_count(self) -> int:
        return self._integer("hipGetDeviceCount")

    def _attribute(self, attribute: int, device: int) -> int:
        return self._integer("cuDeviceGetAttribute", attribute, self._integer("cuDeviceGet", device))

    def _context_of(self, device: int) -> int:
        """Return a device's primary context, which is retained at the first call and cached."""
        context = self._contexts.get(device)
        if context is None:
            context = self._contexts[device] = self._new("cuDevicePrimaryCtxRetain", self._integer("cuDeviceGet", device))
        return context

    def _current_context(self) -> int:
        """Return the thread's current context, 0 if it has none; other libraries of the thread change it too."""
        context = c_void_p()
        code = self._hip.cuCtxGetCurrent(byref(context))
        if code:
            self._fail("hipGetDevice", code)
        return context.value or 0

    def _set_context(self, context: int) -> None:
        code = self._hip.cuCtxSetCurrent(context)
        if code:
            self._fail("hipSetDevice", code)

    def set_device(self, device: int) -> None:
        self._set_context(self._context_of(device))

    def get_device(self) -> int:
        device = c_int()
        # Query the driver, because other libraries in this thread change the device too; a thread without a context has none yet.
        if self._hip.cuCtxGetDevice(byref(device)):
            return self._device
        return device.value

    def using_device(self, device: int) -> AbstractContextManager[None]:
        return _UsingContext(self, self._context_of(device))

    @property
    def _context(self) -> int:
        """The context in which nodes without one of their own run: the thread's current one."""
        return self._current_context() or self._context_of(self._device)

    def stream_get_device(self, stream: int) -> int:
        context = c_void_p()
        self._call("cuStreamGetCtx", stream, byref(context))
        with _UsingContext(self, context.value or 0):
            return self.get_device()

    def get_device_name(self, device: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", buffer, len(buffer), self._integer("cuDeviceGet", device))
        return buffer.value.decode(errors="replace")

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return bool(
            self._integer("cuDeviceCanAccessPeer", self._integer("cuDeviceGet", device), self._integer("cuDeviceGet", peer))
        )

    def device_enable_peer_access(self, peer: int) -> None:
        code = self._hip.cuCtxEnablePeerAccess(self._context_of(peer), 0)
        if code and code != _PEER_ACCESS_ALREADY_ENABLED:
            self._fail("hipDeviceEnablePeerAccess", code)

    def describe(self) -> dict[str, Any]:
        """Return device, driver and compiler versions."""
        try:
            compiler = ".".join(map(str, self._rtc.version()))
        except RuntimeUnavailable:
            compiler = "not there"
        return {
            "runtime": "nvidia",
            "device": self.get_device_name(self._device),
            "architecture": self.architecture,
            "driver": ".".join(map(str, self.runtime_get_version())),
            "nvrtc": compiler,
            "multiprocessors": self.target.multiprocessors,
        }

    # -- memory ----------------------------------------------------------------------------------------------------
    host_malloc = makes("hipHostMalloc", 1 | 2)  # portable to every context, mapped for kernels

    def memcpy(self, dst: int, src: int, nbytes: int, kind: MemcpyKind) -> None:
        # From pageable memory the call returns once the bytes are staged, and this library's streams do not wait for the null
        # stream, so wait for the null stream here.
        self._call("cuMemcpy", dst, src, nbytes)
        self._call("hipStreamSynchronize", 0)

    def memcpy_async(self, dst: int, src: int, nbytes: int, kind: MemcpyKind, stream: int) -> None:
        code = self._hip.cuMemcpyAsync(dst, src, nbytes, stream)
        if code:
            self._fail("hipMemcpyAsync", code)

    def memset_async(self, fill: Fill2D, stream: int) -> None:
        size, value = fill.element_size, fill.value
        if fill.height > 1:
            api = {1: "cuMemsetD2D8Async", 2: "cuMemsetD2D16Async", 4: "cuMemsetD2D32Async"}[size]
            self._call(api, fill.dst, fill.pitch_bytes, value, fill.width, fill.height, stream)
        else:
            api = {1: "cuMemsetD8Async", 2: "hipMemsetD16Async", 4: "hipMemsetD32Async"}[size]
            self._call(api, fill.dst, value, fill.width, stream)

    def mem_get_address_range(self, pointer: int) -> MemoryRange | None:
        values = []
        for attribute in (_RANGE_START, _RANGE_SIZE, _MEMORY_TYPE):
            value = c_uint64()
            if self._hip.cuPointerGetAttribute(byref(value), attribute, pointer):
                return None
            values.append(value.value)
        start, nbytes, kind = values
        return MemoryRange(start, nbytes, kind == _HOST) if nbytes else None

    # -- modules ---------------------------------------------------------------------------------------------------
    def func_get_info(self, function: int) -> FunctionInfo:
        name, text = "", c_char_p()
        exports = self._hip.exports
        if exports("cuFuncGetName") and not self._hip.cuFuncGetName(byref(text), function) and text.value:
            name = text.value.decode(errors="replace")
        if not exports("cuFuncGetParamInfo"):  # before CUDA 12.4
            return FunctionInfo(name, None)
        parameters: list[tuple[int, int]] = []
        offset, size = c_size_t(), c_size_t()
        # The call fails for the first index beyond the last parameter.
        while not self._hip.cuFuncGetParamInfo(function, len(parameters), byref(offset), byref(size)):
            parameters.append((offset.value, size.value))
        return FunctionInfo(name, tuple(parameters))

    def rtc_compile(
        self, source: str, names: Sequence[str], symbols: Sequence[str] = (), options: Sequence[str] = (), *, name: str = "module"
    ) -> CodeObject:
        return self._rtc.compile(source, names, symbols, options, name=name)

    module_load_data = makes("hipModuleLoadData")

    def _allow_shared(self, function: int) -> None:
        """Opt a kernel in to more dynamic shared memory than the default limit."""
        if function not in self._wide:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, self.target.max_shared_bytes)
            self._wide.add(function)

    def module_launch_kernel(
        self, function: int, grid: Dim3, block: Dim3, shared_bytes: int, stream: int, args: int, **attributes: Any
    ) -> None:
        if shared_bytes > _ORDINARY_SHARED_BYTES:
            self._allow_shared(function)
        if not attributes or attributes.keys() == {"cooperative"}:
            super().module_launch_kernel(function, grid, block, shared_bytes, stream, args, **attributes)
            return
        known = ((LAUNCH_ATTRIBUTES[name], value) for name, value in attributes.items())
        words = b"".join(_ATTRIBUTE_ID.pack(attribute.number) + attribute.packed(value) for attribute, value in known)
        packed = ctypes.create_string_buffer(words)
        config = _LAUNCH_CONFIG.pack(*grid, *block, shared_bytes, stream, ctypes.addressof(packed), len(attributes))
        self._call("cuLaunchKernelEx", config, function, args, None)

    # -- graphs ----------------------------------------------------------------------------------------------------
    def graph_kernel_node_get_params(self, node: int) -> KernelParams:
        function, gx, gy, gz, bx, by, bz, shared_bytes, args, extra, kernel, _ = self._structure(
            "hipGraphKernelNodeGetParams", node, _KERNEL_NODE_PARAMS
        )
        if not function:  # CUDA's runtime launches kernels of a library, which have one function per context
            function = self._new("cuKernelGetFunction", kernel)
        return KernelParams(function, (gx, gy, gz), (bx, by, bz), shared_bytes, args, extra)

    def graph_add_memcpy_node_1d(self, graph: int, deps: Sequence[int], dst: int, src: int, nbytes: int, kind: MemcpyKind) -> int:
        return self._add("cuGraphAddMemcpyNode", graph, deps, _pack_run(dst, src, nbytes, kind), self._context)

    graph_add_memcpy_node = _adds_in_context("cuGraphAddMemcpyNode", _pack_copy)
    graph_add_memset_node = _adds_in_context("cuGraphAddMemsetNode", _pack_fill)
    graph_exec_memcpy_node_set_params = _sets_in_context("cuGraphExecMemcpyNodeSetParams", _pack_copy)
    graph_exec_memset_node_set_params = _sets_in_context("cuGraphExecMemsetNodeSetParams", _pack_fill)

    def graph_memcpy_node_get_params(self, node: int) -> Copy3D:
        v = self._structure("hipGraphMemcpyNodeGetParams", node, _MEMCPY_3D)
        src, dst, (width_bytes, height, depth) = v[:11], v[11:22], v[22:]
        return Copy3D(
            dst[5] or dst[6], dst[9], dst[10], src[5] or src[6], src[9], src[10], width_bytes, height, depth,
            MemcpyKind(2 * (src[4] != _HOST) + (dst[4] != _HOST)), dst[:3], src[:3],
        )  # fmt: skip

    def graph_memset_node_get_params(self, node: int) -> Fill2D:
        dst, pitch_bytes, value, element_size, width, height = self._structure(
            "hipGraphMemsetNodeGetParams", node, _MEMSET_NODE_PARAMS
        )
        return Fill2D(dst, element_size, value, width, height, pitch_bytes)

    def graph_add_batch_mem_op_node(self, graph: int, deps: Sequence[int], ops: Sequence[Any]) -> int:
        packed = pack_mem_ops(ops)
        array = ctypes.create_string_buffer(packed, len(packed))
        params = BATCH_MEM_OP_NODE_PARAMS.pack(self._context, len(ops), ctypes.addressof(array), 0)
        return self._add("hipGraphAddBatchMemOpNode", graph, deps, params)

    def graph_add_conditional_node(
        self, graph: int, deps: Sequence[int], mode: ConditionalMode, condition: int, fill: Sequence[Callable[[int], None]]
    ) -> int:
        version = self.runtime_get_version()
        if version < _ALL_MODES and (mode is ConditionalMode.SWITCH or len(fill) > 1):
            raise not_supported(
                "cuGraphAddNode",
                f"switch, and if with an else, need a driver of CUDA 12.8 (this one is of {'.'.join(map(str, version))})",
            )
        handle, context = c_uint64(), self._context
        self._call("cuGraphConditionalHandleCreate", byref(handle), graph, context, 0, 0)
        before = self._add_setter(graph, deps, handle.value, condition)
        params = ctypes.create_string_buffer(
            _CONDITIONAL_NODE_PARAMS.pack(_CONDITIONAL, handle.value, mode, len(fill), 0, context), 256
        )
        node = self._new("cuGraphAddNode_v2", graph, struct.pack("=Q", before), None, 1, params)
        bodies = (c_uint64 * len(fill)).from_address(struct.unpack_from("=Q", params, _BODIES_AT)[0])
        for add, body in zip(fill, tuple(bodies)):
            add(body)
            if mode is ConditionalMode.WHILE:
                followed = {source for source, _ in self.graph_get_edges(body)}
                ends = [inner for inner in self.graph_get_nodes(body) if inner not in followed]
                self._add_setter(body, ends, handle.value, condition)
        return node

    def _add_setter(self, graph: int, deps: Sequence[int], handle: int, condition: int) -> int:
        """Add a kernel node that passes the word at `condition` to a conditional node."""
        device = self.get_device()
        if device not in self._setters:
            with self.relaxed():  # a capture in this thread forbids loading modules; it records nothing of this one
                module = self._new("hipModuleLoadData", _SET_CONDITION)
                self._setters[device] = self._new("hipModuleGetFunction", module, b"hipgraphdsl_set_condition")
        values = (c_uint64 * 2)(handle, condition)
        args = (c_uint64 * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
        one = (1, 1, 1)
        return self.graph_add_kernel_node(graph, deps, self._setters[device], one, one, 0, ctypes.addressof(args))

    def graph_make_programmatic(self, graph: int, sources: Sequence[int], targets: Sequence[int]) -> bool:
        edges = handles(sources), handles(targets)
        code = self._hip.cuGraphRemoveDependencies(graph, *edges, len(sources))
        if code == ERROR_NOT_SUPPORTED:
            return False
        if code:
            self._fail("cuGraphRemoveDependencies", code)
        self._call("cuGraphAddDependencies_v2", graph, *edges, _PROGRAMMATIC_EDGE * len(sources), len(sources))
        return True

    def graph_get_edges(self, graph: int) -> tuple[tuple[int, int], ...]:
        if not self.target.programmatic_launch:
            return super().graph_get_edges(graph)
        # The older call fails for graphs with edges that carry edge data (programmatic ones).
        sources, targets, _ = self._two_calls("cuGraphGetEdges_v2", graph, arrays=3)
        return tuple(zip(sources, targets, strict=True))

    def graph_node_get_type(self, node: int) -> NodeType:
        out = c_int()
        self._call("hipGraphNodeGetType", node, byref(out))
        return _NODE_TYPES.get(out.value) or NodeType(out.value)

    # -- executables -------------------------------------------------------------------------------------------------
    def graph_exec_memcpy_node_set_params_1d(
        self, graph_exec: int, node: int, dst: int, src: int, nbytes: int, kind: MemcpyKind
    ) -> None:
        # The memory types must match the node's: those of `kind`, or "unified" if a capture recorded the node.
        context = self._context
        if self._hip.cuGraphExecMemcpyNodeSetParams(graph_exec, node, _pack_run(dst, src, nbytes, kind), context):
            unified = _pack_run(dst, src, nbytes, MemcpyKind.DEFAULT)
            self._call("cuGraphExecMemcpyNodeSetParams", graph_exec, node, unified, context)


class _UsingContext:
    """Makes a context the thread's current one, and restores the previous one, or none, on exit."""

    __slots__ = ("_before", "_context", "_runtime")

    def __init__(self, runtime: NvidiaRuntime, context: int) -> None:
        self._runtime = runtime
        self._context = context

    def __enter__(self) -> None:
        self._before = self._runtime._current_context()
        if self._before != self._context:
            try:
                self._runtime._set_context(self._context)
            except KeyboardInterrupt:  # it may be raised after the call has succeeded
                self._runtime._set_context(self._before)
                raise

    def __exit__(self, *_: object) -> None:
        if self._before != self._context or self._runtime._several:  # the body may have changed the device
            self._runtime._set_context(self._before)
