"""Limits of devices for launches (HG5xx)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..deciding import refused_inside
from ..nodes import Node
from ..target import Target
from .levels import CheckedLevel, launch_key

if TYPE_CHECKING:
    from ..nodes.facets import KernelLaunch

Extents = Sequence[int | None]  # None: set at launch
Fault = tuple[str, str, str]

_AXES = "xyz"
_MAX_THREADS = 1024  # per block, on every device that HIP runs on
_MAX_GRID = 2**32 - 1  # a dim3 holds 32 bits
_RESIDENT_THREADS = 2048  # per multiprocessor: the maximum over all architectures (CDNA, sm_90)
_RESIDENT_ON_CPU = 256  # kCooperativeBlocks of parts/cpu/action.h: an OS thread for each block
_RESIDENT_BLOCKS = 32


def check_limits(scope: CheckedLevel, target: Target | None) -> None:
    """Report launches that the target, or without one every device, refuses. Extents that are set at launch are not checked."""
    judged: dict[Any, list[Fault]] = {}
    for key, launch in scope.launches.items():
        faults = [*launch_faults(launch, target, scope.value)]
        if launch.cluster is not None and target is not None and not target.clusters:
            faults.insert(0, _without_clusters(launch.cluster, target))
        if faults:
            judged[key] = faults
    for _, node in scope.having("launched") if judged else ():
        if (launched := node.launched) is not None:
            for code, message, hint in judged.get(launch_key(launched), ()):
                scope.found(code, f"{scope.name(node)!r}: {message}", node, hint=hint)
    for _, node in scope.having("branch"):
        if (branch := node.branch) is not None and branch.decide == "device":
            _check_branch(scope, node, branch.mode, target)


def _without_clusters(cluster: Extents, target: Target) -> Fault:
    message = f"it asks for clusters of {_text(cluster)} blocks, which {target.name} does not have: it is launched without them"
    return "HG509", message, "leave cluster= out where the kernel does not rely on it, or run on NVIDIA from sm_90"


def _check_branch(scope: CheckedLevel, node: Node, mode: str, target: Target | None) -> None:
    """Report a conditional node for the device to decide that the target does not have, or whose bodies it cannot hold."""
    if target is not None and not target.conditional_nodes:
        scope.found(
            "HG507",
            f"{scope.name(node)!r} is a conditional node ({mode}) for the device to decide, and HIP has none",
            node,
            hint="leave decide= out: the host then reads the condition",
        )
    for body in scope.inner(node):
        for inner, refused, why in refused_inside(body):
            inner.found(
                "HG508",
                f"{inner.name(refused)!r} {why}, which a body that the device decides on cannot hold",
                refused,
                hint=f"leave decide='device' of {scope.name(node)!r} out: the host then reads the condition",
            )


def launch_faults(node: KernelLaunch, target: Target | None, value: Callable[[Any], int | None]) -> Iterator[Fault]:
    """Yield code, message and hint of each limit that a launch exceeds; `value` returns an extent of grid or block."""
    block: Extents = node.block
    grid: Extents = node.grid
    if {*map(type, block), *map(type, grid)} != {int}:
        block, grid = [*map(value, block)], [*map(value, grid)]
    threads = None if None in block else math.prod(block)  # type: ignore[arg-type]  # there is no None then
    yield from _block_faults(node, block, threads, target)
    yield from _grid_faults(grid, block, target)
    yield from _shared_memory_faults(node, target)
    blocks = None if None in grid else math.prod(grid)  # type: ignore[arg-type]
    if node.cooperative and target and (target.multiprocessors or target.on_host) and blocks and threads:
        each = min(_RESIDENT_BLOCKS, _RESIDENT_THREADS // min(threads, _RESIDENT_THREADS))
        resident = _RESIDENT_ON_CPU if target.on_host else each * target.multiprocessors
        if blocks > resident:
            message = (
                f"a cooperative grid of {blocks} blocks of {threads} threads; {target.name} holds at most {resident} at once"
            )
            yield "HG506", message, "use fewer blocks and a loop over the elements"


def _who_takes(target: Target | None) -> str:
    return f"{target.name} takes" if target else "every device takes"


def _block_faults(node: KernelLaunch, block: Extents, threads: int | None, target: Target | None) -> Iterator[Fault]:
    most = target.max_threads if target else _MAX_THREADS
    if threads is not None and threads > most:
        said = f"a block of {_text(block)} = {threads} threads; {_who_takes(target)} at most {most}"
        yield "HG501", said, "use a smaller block"
    elif target:
        for axis, extent, limit in zip(_AXES, block, target.max_block):
            if extent is not None and extent > limit:
                message = f"a block of {extent} threads along {axis}; {_who_takes(target)} at most {limit}"
                yield "HG501", message, "use another shape of block"
    if node.kernel.module.blocks:
        yield from _built_for_faults(node, block, threads)
    bounds = node.kernel.launch_bounds
    if bounds is not None and threads is not None and threads > bounds:
        yield (
            "HG502",
            f"a block of {threads} threads; kernel {node.kernel.name!r} is compiled for at most {bounds}"
            f" (__launch_bounds__({bounds}))",
            "use a smaller block, or raise the launch bounds",
        )


def _built_for_faults(node: KernelLaunch, block: Extents, threads: int | None) -> Iterator[Fault]:
    """Yield what the kernel of a code object does not take."""
    name = node.kernel.name
    built = node.kernel.module.blocks.get(name)
    if built is None:
        return
    if built.required is not None and any(found not in (None, wanted) for found, wanted in zip(block, built.required)):
        yield (
            "HG502",
            f"a block of {_text(block)} threads; kernel {name!r} is built for blocks of {_text(built.required)}"
            " (.reqd_workgroup_size of its code object)",
            f"give block={built.required}",
        )
    elif built.most is not None and threads is not None and threads > built.most:
        yield (
            "HG502",
            f"a block of {threads} threads; kernel {name!r} is built for at most {built.most} (.max_flat_workgroup_size of its"
            " code object)",
            "use a smaller block, or build the code object for a larger one",
        )


def _grid_faults(grid: Extents, block: Extents, target: Target | None) -> Iterator[Fault]:
    hint = "let each thread do more elements, or spread the blocks over another axis"
    for axis, extent, limit in zip(_AXES, grid, target.max_grid if target else (_MAX_GRID,) * 3):
        if extent is not None and extent > limit:
            yield "HG503", f"a grid of {extent} blocks along {axis}; {_who_takes(target)} at most {limit}", hint
    if target and target.max_axis_threads:
        for axis, blocks, extent in zip(_AXES, grid, block):
            if blocks is not None and extent is not None and blocks * extent > target.max_axis_threads:
                yield (
                    "HG504",
                    f"{blocks} blocks of {extent} threads along {axis} are {blocks * extent} threads; HIP on AMD takes at"
                    f" most {target.max_axis_threads}",
                    hint,
                )


def _shared_memory_faults(node: KernelLaunch, target: Target | None) -> Iterator[Fault]:
    static = node.kernel.static_shared_bytes or 0
    if target and static + node.shared_bytes > target.max_shared_bytes:
        yield (
            "HG505",
            f"{static} static and {node.shared_bytes} dynamic bytes of shared memory; {_who_takes(target)} at most"
            f" {target.max_shared_bytes}",
            "use smaller tiles",
        )
    if node.kernel.dynamic_shared and not node.shared_bytes:
        yield (
            "HG510",
            f"kernel {node.kernel.name!r} uses an array of dynamic shared memory (extern __shared__), and the launch gives it"
            " 0 bytes",
            "give kernel(..., shared_bytes=) the bytes that a block needs",
        )


def _text(extents: Extents) -> str:
    return " x ".join("?" if e is None else str(e) for e in extents)
