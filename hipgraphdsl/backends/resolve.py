"""Steps -> operations: a node's meaning with every name replaced by an address, a handle or a value.

Data flow: `Plan` (names) + `Environment` (the addresses and values of names in one Executable) -> one `Operation` per step, plain
integers -> the backends, which turn operations into graph nodes or stream calls and know nothing of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from ..arrays import Access, ArrayView, Expression, HostArray, MovingView, Parameter, range_of
from ..errors import HipError, node_error
from ..kernels import KernelParameter, check_argument
from ..nodes import (
    AllocNode,
    FreeNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    Node,
    copy_geometry,
    copyable,
    element_bytes,
    require_clusters,
)
from ..plan.steps import Step
from ..runtimes.data import LAUNCH_ATTRIBUTES, ConditionalMode, Dim3, MemcpyKind
from . import operations as op
from .environment import Environment

_FILL_BLOCK: Final = 256
_COPY_BLOCK: Final = 256
PLAIN_LAUNCH: Final = KernelNode
"""The class of nodes that compiled code may add in place of `resolve`: it compares a node's type and reads its fields."""
_PLAIN: Final = frozenset({int, float, bool})
_COPY_GRID: Final = 16  # blocks of a copy kernel: enough to fill a link, few enough to leave the device to others


def resolve(step: Step, scope: Environment, device: int) -> op.Operation:
    """Return the operation of a step on its device, with every name resolved.

    Raise for arrays without memory and values that do not fit.
    """
    node: Node = step.node
    match node:
        case KernelNode():
            return _launch(node, scope, device)
        case _ if step.by_kernel:
            dst, src = _sides(node, *node.copied[0], scope)
            return _copy_by_kernel(dst, src, scope, device) if dst.size else op.Nothing()
        case MemcpyNode():
            dst, src = _sides(node, node.dst, node.src, scope)
            return copy(dst, src, scope, device) if dst.size else op.Nothing()
        case MemsetNode():
            return _fill(node, scope, device)
        case AllocNode():
            access = tuple(scope.shared.peers.get(device, ()))
            label = scope.prefix + node.array.name if scope.shared.sanitize else ""
            return op.Alloc(node.array, node.array.nbytes, device, access, scope.addresses, label)
        case FreeNode():
            return op.Free(scope.address(node.array.as_view()))
        case _ if node.is_child:
            return _held(step, scope)[0]
        case _ if (branch := node.branch) is not None:
            mode, condition = ConditionalMode[branch.mode.upper()], scope.address(branch.condition)
            return op.RunConditional(mode, condition, _held(step, scope), branch.check_every)
        case _:
            return _rare()(node, scope, device)


@cache
def _rare() -> Callable[[Node, Environment, int], op.Operation]:
    from .resolve_rare import operation_of

    return operation_of


def _sides(node: Node, dst: ArrayView, src: ArrayView, scope: Environment) -> tuple[ArrayView, ArrayView]:
    """Return the two sides of a copy as they are now; refuse those that a launch has made different."""
    to, origin = scope.here(dst), scope.here(src)
    if (to is dst and origin is src) or (copyable(to, origin) and (not to.size or copy_geometry(to, origin) is not None)):
        return to, origin
    raise node_error(
        scope.prefix + node.name,
        f"{src.name!r} is now {origin.name!r} of shape {origin.shape}, and {dst.name!r} is {to.name!r} of shape {to.shape}; both"
        " sides of a copy have the same shape",
        array=dst.root.name,
    )


def _held(step: Step, scope: Environment) -> tuple[op.RunChild, ...]:
    plans = step.bodies if step.child is None else (step.child,)
    return tuple(op.RunChild(plan, scope.children[name]) for plan, (name, _, _) in zip(plans, step.node.held))


def _axis(axis: Any, scope: Environment, node: KernelNode, field: str) -> int:
    if not isinstance(axis, Parameter):
        return axis  # type: ignore[no-any-return]  # a checked int
    value, least = int(scope.value(axis)), 0 if field.startswith("grid") else 1
    if not least <= value < 2**32:
        limit = f"at least {least}" if value < least else "less than 2**32"
        what = f"{axis.told(scope.value)}, and" if isinstance(axis, Expression) else f"parameter {axis.name!r}, which"
        raise node_error(scope.prefix + node.name, f"{field} is {what} must be {limit} (got {value})")
    return value


def _aligned(address: int, parameter: KernelParameter, view: ArrayView, scope: Environment, node: KernelNode) -> int:
    """Return the address of a view; refuse one that moves to where elements of a vector type cannot lie."""
    if isinstance(view, MovingView) and parameter.lanes > 1 and address % parameter.target_align:
        raise node_error(
            scope.prefix + node.name,
            f"{view.name!r} is now {scope.here(view).name!r}, which does not begin at a multiple of {parameter.target_align}"
            f" bytes, as a {parameter.ctype} of argument {parameter.name!r} does",
            array=view.root.name,
        )
    return address


def _fitting(arg: Expression, value: int, parameter: KernelParameter, scope: Environment, node: KernelNode) -> int:
    """Return the value of an expression that a kernel's argument takes; refuse one that its type does not hold."""
    least, most = range_of(parameter.dtype)  # type: ignore[arg-type]  # an integer's, as the declaration holds
    if not least <= value <= most:
        raise node_error(
            scope.prefix + node.name,
            f"argument {parameter.name!r} of kernel {node.kernel.name!r} is {arg.told(scope.value)}, and {parameter.ctype} holds"
            f" {least} to {most}",
            array=arg.terms[0].name,
        )
    return value


def _launch(node: KernelNode, scope: Environment, device: int) -> op.Launch | op.Nothing:
    function, packer = scope.shared.function(node.kernel, node, device, scope.prefix)
    values = []
    for parameter, arg in zip(packer.signature.parameters, node.args):
        kind = type(arg)
        if kind is ArrayView:
            root = arg.root
            found = scope.addresses.get(root)
            values.append(scope.address(arg, device) if found is None else found + arg.offset_bytes)
        elif kind in _PLAIN:
            values.append(arg)
        elif kind is Access:
            values.append(_aligned(scope.address(arg.view, device), parameter, arg.view, scope, node))
        elif kind is MovingView:
            values.append(_aligned(scope.address(arg, device), parameter, arg, scope, node))
        else:
            value, dtype = scope.value(arg) if isinstance(arg, Parameter) else arg, parameter.dtype
            if kind is Expression:
                value = _fitting(arg, value, parameter, scope, node)
            if type(value) not in _PLAIN or dtype is None or dtype.isbuiltin != 1:  # else a parameter's, which is converted
                value = check_argument(parameter, value, f"node {scope.prefix + node.name!r}: kernel {node.kernel.name!r}")
            values.append(value)
    grid, block = node.grid, node.block
    if type(grid[0]) is not int or type(grid[1]) is not int or type(grid[2]) is not int:
        grid = tuple(_axis(axis, scope, node, f"grid.{i}") for i, axis in enumerate(grid))
    if type(block[0]) is not int or type(block[1]) is not int or type(block[2]) is not int:
        block = tuple(_axis(axis, scope, node, f"block.{i}") for i, axis in enumerate(block))
        if block[0] * block[1] * block[2] > 1024:
            raise node_error(scope.prefix + node.name, f"a block has at most 1024 threads (got {block})")
    if not grid[0] or not grid[1] or not grid[2]:
        return op.Nothing()
    if node.kernel.dynamic_shared and not node.shared_bytes:
        raise HipError(
            f"launch of kernel {node.kernel.name!r}", 1, "hipErrorInvalidValue",
            "it uses dynamic shared memory (extern __shared__) and gets 0 bytes of it",
            node=scope.prefix + node.name, hint="give kernel(..., shared_bytes=)",
        )  # fmt: skip
    packed = packer.pack(values)
    attributes = op.NO_ATTRIBUTES if node.plain else _attributes(node, grid, scope)
    return op.Launch(function, grid, block, node.shared_bytes, packer, packed, attributes)


def _attributes(node: KernelNode, grid: Dim3, scope: Environment) -> Mapping[str, Any]:
    """Return the non-default launch attributes of a kernel node, without those that the runtime does not know."""
    fields = node.__dict__
    given = [name for name in LAUNCH_ATTRIBUTES if fields[name] is not None and fields[name] is not False]
    known = scope.runtime.launch_attributes
    if "cluster" in given and "cluster" in known:
        require_clusters(grid, fields["cluster"], scope.prefix + node.name)
    return {name: fields[name] for name in given if name in known}


_KINDS: Final = {
    (True, True): MemcpyKind.HOST_TO_HOST,
    (True, False): MemcpyKind.HOST_TO_DEVICE,
    (False, True): MemcpyKind.DEVICE_TO_HOST,
    (False, False): MemcpyKind.DEVICE_TO_DEVICE,
}


def copy(dst: ArrayView, src: ArrayView, scope: Environment, device: int) -> op.Copy1D | op.Copy:
    """Return the operation that copies one view to another, which `copy_geometry` accepts."""
    to, source = scope.address(dst, device), scope.address(src, device)
    if scope.is_given(dst) or scope.is_given(src):
        kind = MemcpyKind.DEFAULT  # host or device memory, as bound at launch
    else:
        kind = _KINDS[scope.is_host(src), scope.is_host(dst)]
        if kind is MemcpyKind.HOST_TO_HOST and "host_copy_kind" in scope.runtime.target.quirks:
            kind = MemcpyKind.DEFAULT
        elif kind is MemcpyKind.DEVICE_TO_DEVICE and len(scope.shared.devices) > 1 and scope.owner(dst) != scope.owner(src):
            kind = MemcpyKind.DEFAULT  # the addresses determine the devices
    box = copy_geometry(dst, src)
    assert box is not None, "nodes refuse what no box can copy"
    inside = "interior_host_pointer" in scope.runtime.target.quirks and (_interior(dst, scope), _interior(src, scope))
    if box.is_flat and not (inside and any(inside)):
        return op.Copy1D(to, source, box.width_bytes, kind)
    dst_rows, src_rows = box.dst_slice // box.dst_pitch, box.src_slice // box.src_pitch
    extent = box.width_bytes, box.height, box.depth
    made = op.Copy(to, box.dst_pitch, dst_rows, source, box.src_pitch, src_rows, *extent, kind)
    return _from_first_bytes(made, *inside) if inside else made


def _interior(view: ArrayView, scope: Environment) -> int:
    """Return the byte offset of a view inside its page-locked array; 0 for other memory."""
    _, root, offset = scope.resolve(view.root)
    return offset + view.offset_bytes if isinstance(root, HostArray) and root.pinned else 0


def _from_first_bytes(copy: op.Copy, dst_bytes: int, src_bytes: int) -> op.Copy:
    """Return the copy with pointers to the first byte of page-locked memory, and positions inside it."""
    if dst_bytes:
        pitch, rows, pos = _position(dst_bytes, copy.dst_pitch_bytes, copy.dst_rows, copy)
        copy = replace(copy, dst=copy.dst - dst_bytes, dst_pitch_bytes=pitch, dst_rows=rows, dst_pos=pos)
    if src_bytes:
        pitch, rows, pos = _position(src_bytes, copy.src_pitch_bytes, copy.src_rows, copy)
        copy = replace(copy, src=copy.src - src_bytes, src_pitch_bytes=pitch, src_rows=rows, src_pos=pos)
    return copy


def _position(offset: int, pitch_bytes: int, rows: int, copy: op.Copy) -> tuple[int, int, Dim3]:
    """Return the pitch and rows of an allocation, and the position in it of a box that begins at byte `offset`."""
    if copy.height == copy.depth == 1:  # one run of bytes: a row that begins with the allocation
        return offset + copy.width_bytes, 1, (offset, 0, 0)
    rows += copy.depth == 1 and offset // pitch_bytes  # a single slice must include the rows before the box
    row, x = divmod(offset, pitch_bytes)
    return pitch_bytes, rows, (x, row % rows, row // rows)


def _copy_by_kernel(to: ArrayView, origin: ArrayView, scope: Environment, device: int) -> op.Launch:
    dst, src = scope.address(to, device), scope.address(origin, device)
    wide = 0 if (dst | src) % 16 else to.nbytes // 16  # 16-byte words; the bytes after them are the rest
    rest = to.nbytes - 16 * wide
    blocks = min(_COPY_GRID, -(-max(wide, rest) // _COPY_BLOCK))
    function, packer = scope.shared.built_in("hipgraphdsl_copy", device)
    return op.Launch(function, (blocks, 1, 1), (_COPY_BLOCK, 1, 1), 0, packer, packer.pack((dst, src, wide, rest)))


def _repeated_bytes(element: bytes) -> int:
    """Return the shortest of 1, 2, 4 bytes whose repetition is the element, or 0."""
    return next((size for size in (1, 2, 4) if element == element[:size] * (len(element) // size)), 0)


def prepare(step: Step, scope: Environment) -> None:
    """Load the built-in kernels that a step needs, because a capture forbids loading modules."""
    node, device = step.node, scope.place_of(step)
    if step.by_kernel:
        scope.shared.built_in("hipgraphdsl_copy", device)
    elif isinstance(node, MemsetNode) and (
        isinstance(node.dst, MovingView) or not _memset_size(node.dst, _element(node, scope), scope)
    ):
        scope.shared.built_in("hipgraphdsl_fill", device)
    for inner in _held(step, scope) if step.child is not None or step.bodies else ():
        for own in inner.plan.steps:
            prepare(own, inner.scope.inside(own.path))


def _element(node: MemsetNode, scope: Environment) -> bytes:
    value = scope.value(node.value) if isinstance(node.value, Parameter) else node.value
    return element_bytes(value, node.dst.dtype, f"node {scope.prefix + node.name!r}")


def _memset_size(view: ArrayView, element: bytes, scope: Environment) -> int:
    """Return the element size of the memset that does the fill (1, 2 or 4 bytes), or 0 if the fill kernel must do it."""
    dims = view.region.dims
    size = _repeated_bytes(element) if len(dims) < 2 else 0
    quirks = scope.runtime.target.quirks
    if size > 1 and dims and "memset_2d_elements" in quirks:
        return 0
    if dims and dims[0][0] * dims[0][1] > view.root.nbytes and "memset_2d_whole_rows" in quirks:
        return 0
    return size


def _fill(node: MemsetNode, scope: Environment, device: int) -> op.Fill | op.Launch | op.Nothing:
    view = scope.here(node.dst)
    region, element = view.region, _element(node, scope)
    if not view.size:
        return op.Nothing()
    address = scope.address(view, device)
    size = _memset_size(view, element, scope)
    if size:
        height, pitch = region.dims[0] if region.dims else (1, 0)
        return op.Fill(address, size, int.from_bytes(element[:size], "little"), region.run // size, height, pitch)
    itemsize = len(element)
    dims = [(region.run // itemsize, itemsize), *reversed(region.dims)]
    counts, strides = zip(*dims, *[(1, 0)] * (4 - len(dims)))
    words = np.frombuffer(element + bytes(64 - itemsize), "<u8")
    function, packer = scope.shared.built_in("hipgraphdsl_fill", device)
    total = view.size
    return op.Launch(
        function,
        (-(-total // _FILL_BLOCK), 1, 1),
        (_FILL_BLOCK, 1, 1),
        0,
        packer,
        packer.pack((address, total, itemsize, *counts[:3], *strides, *map(int, words))),
    )
