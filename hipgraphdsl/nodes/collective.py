"""Collective operations over arrays of several devices: nodes that contain the required copies and kernels.

A collective is a child graph node whose workflow is derived from its fields, so checks, plans, drawings and backends treat it
as any child graph. Each device folds the parts that it receives in the order of the arrays, so a sum is bitwise the same on
every device and runtime, and for every distribution of the devices among processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import numpy as np

from ..arrays import COLLECTIVE, Access, AllocArray, ArrayView, DeviceArray, Need, is_extra, reads, writes
from ..draft import Draft
from ..errors import node_error
from ..kernels import Kernel, Module
from ..lazy import lazy
from .base import require_met
from .children import ChildGraphNode
from .fields import Integer, Views
from .kernel import KernelNode
from .kinds import add_kind
from .memory import AllocNode, FreeNode, MemcpyNode, copyable
from .values import fitting
from .workflow import Workflow

if TYPE_CHECKING:
    from typing_extensions import Self

Does = Literal["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
Fold = Literal["sum", "prod", "max", "min"]

_SMALL: Final = 1 << 16  # bytes up to which each device folds everything itself: fewer steps, more bytes
_BLOCK: Final = 256
_OPS: Final = {"sum": "a + b", "prod": "a * b", "max": "a > b ? a : b", "min": "a < b ? a : b"}
_TYPES: Final = {
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip
_HALVES: Final = {"float16": ("hip/hip_fp16.h", "__half"), "bfloat16": ("hip/hip_bf16.h", "__hip_bfloat16")}


@lru_cache(maxsize=64)
def _kernel(dtype: str, op: str) -> Kernel:
    """Return the kernel that folds parts, element by element; 16-bit floats are folded as float32 and rounded once."""
    header, element = _HALVES.get(dtype, ("", _TYPES.get(dtype, "")))
    held = "float" if header else element
    source = f"""{f"#include <{header}>" if header else ""}
extern "C" __global__ void fold_{op}({element}* out, const {element}* parts, unsigned long long count, int ranks) {{
    const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    {held} a = ({held})parts[i];
    for (int k = 1; k < ranks; ++k) {{
        const {held} b = ({held})parts[k * count + i];
        a = {_OPS[op]};
    }}
    out[i] = ({element})a;
}}
"""
    return Module(source, name=f"fold_{dtype}")[f"fold_{op}"]


@add_kind
class CollectiveNode(ChildGraphNode):
    """A collective operation over several arrays, by copies between their devices and kernels on each.

    Attributes
    ----------
    does : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"}
    targets : tuple of ArrayView
        What it writes, one per participant; for ``"reduce"``, that of the root only.
    sources : tuple of ArrayView
        What it reads, one per participant; for ``"broadcast"``, that of the root only.
    op : {"sum", "prod", "max", "min"}
        How ``all_reduce``, ``reduce`` and ``reduce_scatter`` fold.
    root : int
        The participant to which ``reduce`` folds, or from which ``broadcast`` copies.
    exact : bool
        Fold in the order of the arrays even between ranks, where a communication library may use another order.
    workflow, bind
        Derived from the others on first access, because there may be a copy for each pair of participants.
    """

    kind: ClassVar[str] = "collective"
    derives = True
    fixed = "what a collective node does is fixed when the graph is compiled"

    does: Does
    targets: Views
    sources: Views
    op: Fold = "sum"
    root: Annotated[int, Integer(0, 2**31 - 1)] = 0
    exact: bool = False
    workflow: ClassVar[Any]  # type: ignore[misc]  # no field here
    bind: ClassVar[Any]  # type: ignore[misc]

    def model_post_init(self, _: Any) -> None:
        name, targets, sources = self.name, self.targets, self.sources
        for view in {view.root: view for view in (*targets, *sources)}.values():
            require_met(name, view, COLLECTIVE)
        _require_fitting(name, self.does, targets, sources, self.op)
        _require_roles(name, self.does, targets, sources, self.root)

    @lazy  # type: ignore[no-redef]
    def bind(self) -> dict[str, ArrayView]:
        """The view that each array of `workflow` is bound to, by name."""
        views = {_place(view): view for view in (*self.targets, *self.sources)}  # one array where target and source are one
        return {f"x{n}": view for n, view in enumerate(views.values())}

    @lazy  # type: ignore[no-redef]
    def workflow(self) -> Workflow:
        """The copies and kernels."""
        draft = Draft(self.name if self.name.isidentifier() else self.does)
        inner = {
            _place(view): draft.add_array(DeviceArray(name, view.shape, view.dtype, device=view.root.device))
            for name, view in self.bind.items()
        }
        targets, sources = (tuple(inner[_place(view)].as_view() for view in views) for views in (self.targets, self.sources))
        _Recipe(draft, "", self).add(targets, sources)
        return Workflow.of(draft)

    @lazy
    def needs(self) -> tuple[tuple[ArrayView, Need, str], ...]:
        return tuple((view, COLLECTIVE, self.name) for view in (*self.targets, *self.sources))

    @lazy
    def accesses(self) -> tuple[Access, ...]:
        """The accesses of all nodes of `workflow`, without building it."""
        targets = self.targets
        if self.does == "broadcast":  # the root already has the values
            targets = tuple(view for number, view in enumerate(targets) if number != self.root)
        return tuple(dict.fromkeys((*map(reads, self.sources if targets else ()), *map(writes, targets))))

    def holding(self, workflows: Sequence[Workflow]) -> dict[str, Any]:
        return {}

    @property
    def collective(self) -> Self:
        return self

    @property
    def part_bytes(self) -> int:
        """Bytes that one participant sends; for reduce_scatter, that it receives; for all_to_all, that it sends to each."""
        if self.does == "all_to_all":
            return self.sources[0].nbytes // len(self.sources)
        return (self.targets if self.does == "reduce_scatter" else self.sources)[0].nbytes

    def views_of(self, participant: int) -> tuple[ArrayView | None, ArrayView | None]:
        """Return the views that a participant writes and reads; None if it has none."""
        one = participant == self.root
        target = (self.targets[0] if one else None) if self.does == "reduce" else self.targets[participant]
        source = (self.sources[0] if one else None) if self.does == "broadcast" else self.sources[participant]
        return target, source

    def unfold(self, draft: Draft) -> None:
        """Add the copies and kernels to a draft, applied to `targets` and `sources` directly."""
        _Recipe(draft, f"{self.name}: ", self).add(self.targets, self.sources)

    def describe(self) -> str:
        return f"{self.details[0]}: {', '.join(view.name for view in self.targets)}"

    @property
    def details(self) -> tuple[str, ...]:  # a child's would build its nodes, to count them
        folds = self.does in ("all_reduce", "reduce", "reduce_scatter")
        return (f"{self.does}{f' {self.op}' * folds} of {len(self.sources)}",)

    @property
    def method(self) -> str:
        return ""


def _place(view: ArrayView) -> tuple[Any, ...]:
    """Return a key that is equal for views of the same memory with the same layout."""
    return view.root, view.offset_bytes, view.shape, view.strides


def _require_fitting(name: str, does: str, targets: Sequence[ArrayView], sources: Sequence[ArrayView], op: str) -> None:
    """Raise if the arrays do not fit together."""
    views = (*targets, *sources)
    if not views:
        raise node_error(name, f"{does} takes at least one array (got none)")
    if not targets or not sources:
        took = f"{len(sources)} and {len(targets)}"
        raise node_error(name, f"{does} takes at least one source and one target (got {took})")
    if len(dtypes := dict.fromkeys(dtype_name(view.dtype) for view in views)) > 1:
        raise node_error(name, f"{does} takes arrays of one dtype (got {', '.join(dtypes)})")
    for view in views:
        if not view.contiguous:
            raise node_error(
                name, f"{does} takes contiguous arrays (got {view.name!r}); copy it to an array of its own", array=view.root.name
            )
    counts = {"reduce": (1, len(sources)), "broadcast": (len(targets), 1)}.get(does, (len(sources), len(sources)))
    if (len(targets), len(sources)) != counts:
        raise node_error(name, f"{does} has {len(sources)} sources and {len(targets)} targets")
    many = max(len(targets), len(sources))
    parts = {"all_gather": (many, 1), "reduce_scatter": (1, many)}.get(does, (1, 1))
    sizes = {view.size * parts[1] for view in targets} | {view.size * parts[0] for view in sources}
    if len(sizes) > 1:
        shapes = ", ".join(f"{view.name!r} {list(view.shape)}" for view in views[:8])
        raise node_error(name, f"{does} of {many} does not fit these shapes: {shapes}")
    rows = {"all_gather": targets, "reduce_scatter": sources, "all_to_all": views}.get(does, ())
    for view in rows:
        if not view.shape or view.shape[0] % many:
            raise node_error(
                name,
                f"{does} divides {view.name!r} {list(view.shape)} into {many} equal parts along its first axis",
                array=view.root.name,
            )
    _require_copyable(name, does, targets, sources)
    read: dict[Any, list[ArrayView]] = {}
    for view in sources:
        read.setdefault(view.root, []).append(view)
    if does in ("all_gather", "reduce_scatter", "all_to_all") and any(
        a.region.overlaps(b.region) for a in targets for b in read.get(a.root, ())
    ):
        raise node_error(name, f"{does} writes to other memory than it reads")
    if does in ("all_reduce", "reduce", "reduce_scatter"):
        dtype = dtype_name(sources[0].dtype)
        if dtype not in _TYPES and dtype not in _HALVES:
            raise node_error(name, f"{op} of {dtype} is not known; fold it by a kernel of your own")


def _require_copyable(name: str, does: str, targets: Sequence[ArrayView], sources: Sequence[ArrayView]) -> None:
    """Raise if a collective that only copies would copy between shapes that `Graph.memcpy` refuses."""
    if does not in ("broadcast", "all_gather", "all_to_all"):
        return  # the others copy to rows with a single axis
    parts = {"all_gather": (len(sources), 1), "all_to_all": (len(sources), len(targets))}.get(does, (1, 1))
    takes, gives = (
        {part.shape: part for part in (_share(view, 0, count) if count > 1 else view for view in views)}
        for views, count in zip((targets, sources), parts)
    )
    for to, origin in product(takes.values(), gives.values()):
        if not copyable(to, origin):
            raise node_error(
                name,
                f"{does} copies {origin.name!r} {list(origin.shape)} to {to.name!r} {list(to.shape)}; give arrays of one shape,"
                " or with a single axis",
                array=to.root.name,
            )


def _require_roles(name: str, does: str, targets: Sequence[ArrayView], sources: Sequence[ArrayView], root: int) -> None:
    """Raise if the root is not a participant, or if targets and sources do not match as the collective requires."""
    if does in ("reduce", "broadcast") and root >= max(len(targets), len(sources)):
        last = max(len(targets), len(sources)) - 1
        raise node_error(name, f"root is the number of a participant, from 0 to {last} (got {root})")
    if does == "all_reduce" and list(map(_place, targets)) != list(map(_place, sources)):
        raise node_error(name, "all_reduce overwrites the arrays that it reads: targets are the same views as sources")
    if does == "broadcast" and _place(targets[root]) != _place(sources[0]):
        raise node_error(name, f"broadcast reads the root's own array: its source is target {root}, {targets[root].name!r}")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type of elements."""
    return dtype.name if is_extra(dtype) else str(dtype)


class _Recipe:
    """Adds the copies and kernels of a collective to a draft; node and array names begin with `prefix`."""

    def __init__(self, draft: Draft, prefix: str, node: CollectiveNode) -> None:
        self._draft = draft
        self._prefix = prefix
        self._node = node

    def _named(self, name: str) -> str:
        return fitting(f"{self._prefix}{name}")

    def add(self, targets: Sequence[ArrayView], sources: Sequence[ArrayView]) -> None:
        """Add all nodes."""
        does, root = self._node.does, self._node.root
        if does == "all_reduce":
            self._all_reduce(targets)
        elif does == "reduce":
            self._folded(f"{root}", targets[0], self._gather(f"{root}", targets[0], sources))
        elif does == "reduce_scatter":
            for d, target in enumerate(targets):
                shares = [_share(source, d, len(targets)) for source in sources]
                self._folded(f"{d}", target, self._gather(f"{d}", target, shares))
        elif does == "broadcast":
            for d, target in enumerate(targets):
                if d != root:
                    self._copy(f"copy_{d}", target, sources[0])
        else:
            for d, target in enumerate(targets):
                for s, source in enumerate(sources):
                    taken = source if does == "all_gather" else _share(source, d, len(targets))
                    self._copy(f"copy_{s}_{d}", _share(target, s, len(sources)), taken)

    def _all_reduce(self, arrays: Sequence[ArrayView]) -> None:
        """Let each device fold its own rows of large arrays and copy them to the others, and fold small arrays completely."""
        count, first = len(arrays), arrays[0]
        shared = first.nbytes > _SMALL and bool(first.shape) and first.shape[0] >= count

        def part(array: ArrayView, owner: int) -> ArrayView:
            return _share(array, owner, count) if shared else array

        gathered = [self._gather(f"{owner}", near, [part(array, owner) for array in arrays]) for owner, near in enumerate(arrays)]
        for owner, held in enumerate(gathered):
            self._folded(f"{owner}", part(arrays[owner], owner), held)
        for owner, folded in enumerate(arrays if shared else ()):
            for d, array in enumerate(arrays):
                if d != owner:
                    self._copy(f"hand_{owner}_{d}", part(array, owner), part(folded, owner))

    def _gather(self, label: str, near: ArrayView, sources: Sequence[ArrayView]) -> AllocNode:
        """Copy the sources to the rows of a new array on the device of `near`."""
        shape = (len(sources), sources[0].size)
        array = AllocArray(self._named(f"parts_{label}"), shape, sources[0].dtype, device=near.root.device)
        held = AllocNode(name=self._named(f"alloc_{label}"), array=array)
        self._draft.add(held)
        for s, source in enumerate(sources):
            self._copy(f"copy_{s}_{label}", array[s], source)
        return held

    def _folded(self, label: str, target: ArrayView, held: AllocNode) -> None:
        parts = held.array
        count = target.size
        kernel = _kernel(dtype_name(target.dtype), self._node.op)
        args = (writes(target), reads(parts), count, parts.shape[0])
        grid = -(-count // _BLOCK)
        self._draft.add(KernelNode(name=self._named(f"fold_{label}"), kernel=kernel, grid=grid, block=_BLOCK, args=args))
        self._draft.add(FreeNode(name=self._named(f"free_{label}"), array=parts))

    def _copy(self, label: str, dst: ArrayView, src: ArrayView) -> None:
        self._draft.add(MemcpyNode(name=self._named(label), dst=dst, src=src))


def _share(view: ArrayView, number: int, count: int) -> ArrayView:
    """Return part `number` of `count` parts along the first axis, whose sizes differ by at most one row."""
    rows = view.shape[0]
    return view[rows * number // count : rows * (number + 1) // count]
