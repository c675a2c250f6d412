"""Batches: one kernel node performs the launches of several steps; its launch table is rewritten when one of them changes."""

from __future__ import annotations

import ctypes
import math
import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from ...backends.handles import SharedHandles
from ...backends.operations import Launch, Operation
from ...plan.merged import MergedLaunch
from ...plan.steps import Step
from ...runtimes.base import Runtime
from ...runtimes.data import Dim3
from .batching import BATCH_HEAD_BYTES, Batching
from .switching import Chaining, Switching

_U2: Final = struct.Struct("<H")
_U4: Final = struct.Struct("<I")
_GRID: Final = struct.Struct("<3I")
_MOST_BLOCKS: Final = 2**31 - 1
_MOST_THREADS: Final = 2**32 - 1
"""Largest grid of a batch on every platform; AMD limits the threads along an axis. Larger launches gain nothing from a batch."""


class Batch(MergedLaunch):
    """One kernel node that performs the launches of consecutive steps, `first` and those after it; a disabled step has None.

    `function` is the entry point, `count` the capacity of the launch table. `kinds` maps the function handles of the kernels that
    the batch can run to their kind numbers in the table.
    """

    def __init__(
        self,
        how: Batching | Switching,
        function: int,
        count: int,
        first: int,
        launches: Sequence[Launch | None],
        kinds: Mapping[int, int],
    ) -> None:
        self.function = function
        self.first = first
        self.node = 0
        """hipGraphNode_t; 0 until the node is added to a graph."""
        self.changed = False
        """Whether the table has changed since it was last passed to the node."""
        self._like = next(launch for launch in launches if launch is not None)
        self._row = row = how.row
        self._table = bytearray(BATCH_HEAD_BYTES + count * row.nbytes)
        self._memory = ctypes.c_char.from_buffer(self._table)
        self._address = ctypes.addressof(self._memory)
        self._pointer = (ctypes.c_void_p * 1)(self._address)
        self._params: ctypes.Array[ctypes.c_char] | None = None
        """The node's parameters for the compiled call path; None until `params` is first called."""
        self._kinds = kinds
        self._switches = isinstance(how, Switching)
        self._blocks = [0] * len(launches)
        """Number of blocks of each launch of a `Beside` batch; 0 for a disabled step."""
        self._total = 0
        """Their sum."""
        self._counted = False
        """Whether the table says where the blocks of each launch end."""
        _U4.pack_into(self._table, 0, len(launches))
        for k, launch in enumerate(launches):
            self._put(k, launch)

    def takes(self, step: int, launch: Operation) -> bool:
        """Return whether the batch can hold an operation as the launch of a step."""
        like = self._like
        return (
            isinstance(launch, Launch)
            and launch.function in self._kinds
            and (launch.block, launch.shared_bytes) == (like.block, like.shared_bytes)
            and not launch.attributes
            and self._has_room(step - self.first, launch)
        )

    @abstractmethod
    def _has_room(self, k: int, launch: Launch) -> bool:
        """Return whether the batch can run the grid of a launch as that of its k-th."""

    def put(self, step: int, launch: Launch | None) -> None:
        """Replace the launch of a step, or disable the step with None; the change takes effect with the next `set`."""
        self._put(step - self.first, launch)
        self.changed = True

    def _put(self, k: int, launch: Launch | None) -> None:
        row, at = self._row, BATCH_HEAD_BYTES + k * self._row.nbytes
        if self._switches:
            _U2.pack_into(self._table, at + row.kind_at, 0 if launch is None else self._kinds[launch.function])
        if launch is not None:
            at += row.arguments_at
            self._table[at : at + len(launch.packed)] = launch.packed

    def arguments_of(self, step: int) -> int:
        """Return the address of a step's arguments in the table, as its packer lays them out."""
        return self._address + BATCH_HEAD_BYTES + (step - self.first) * self._row.nbytes + self._row.arguments_at

    def params(self, runtime: Runtime) -> int:
        """Return the address of the node's parameters in the platform's format; `set` updates them in place."""
        if self._params is None:
            self._params = ctypes.create_string_buffer(runtime.kernel_params(*self._call()))
        return ctypes.addressof(self._params)

    @abstractmethod
    def _blocks_of_all(self) -> int:
        """Complete the table; return the number of blocks that its launches need."""

    def _call(self) -> tuple[int, Dim3, Dim3, int, int]:
        """Complete the table; return function, grid, block, shared bytes and the address of the table of parameters."""
        grid = (max(1, self._blocks_of_all()), 1, 1)
        self.changed = False
        return self.function, grid, self._like.block, self._like.shared_bytes, ctypes.addressof(self._pointer)

    def add(self, runtime: Runtime, graph: int, deps: Sequence[int]) -> int:
        """Add the node to a graph, after the nodes `deps`; return its handle."""
        self.node = runtime.graph_add_kernel_node(graph, deps, *self._call())
        return self.node

    def issue(self, runtime: Runtime, stream: int) -> None:
        """Launch the batch on a stream."""
        function, grid, block, shared_bytes, table = self._call()
        runtime.module_launch_kernel(function, grid, block, shared_bytes, stream, table)

    def set(self, runtime: Runtime, graph_exec: int) -> None:
        """Pass the table to the batch's node in an instantiated graph."""
        call = self._call()
        runtime.graph_exec_kernel_node_set_params(graph_exec, self.node, *call)
        if self._params is not None:
            packed = runtime.kernel_params(*call)
            ctypes.memmove(self._params, packed, len(packed))


class Beside(Batch):
    """Independent launches, which run concurrently."""

    def _has_room(self, k: int, launch: Launch) -> bool:
        return _fits(self._total - self._blocks[k] + math.prod(launch.grid), launch)

    def _put(self, k: int, launch: Launch | None) -> None:
        super()._put(k, launch)
        blocks = 0
        if launch is not None:
            blocks = math.prod(launch.grid)
            _GRID.pack_into(self._table, BATCH_HEAD_BYTES + k * self._row.nbytes + _U4.size, *launch.grid)
        if blocks != self._blocks[k]:
            self._total += blocks - self._blocks[k]
            self._blocks[k] = blocks
            self._counted = False

    def _blocks_of_all(self) -> int:
        if not self._counted:
            blocks, each = self._blocks, self._blocks[0]
            for k, end in enumerate(accumulate(blocks)):
                _U4.pack_into(self._table, BATCH_HEAD_BYTES + k * self._row.nbytes, end)
            alike = blocks.count(each)  # all that have any blocks have equally many if they come first, and the others have none
            same = self._total == alike * each and 0 not in blocks[:alike]
            _U4.pack_into(self._table, _U4.size, each if same else 0)
            self._counted = True
        return self._total


class Chain(Batch):
    """Single-block launches that run one after another."""

    def _has_room(self, k: int, launch: Launch) -> bool:
        return launch.grid == (1, 1, 1)

    def _blocks_of_all(self) -> int:
        return 1


def _fits(blocks: int, like: Launch) -> bool:
    """Return whether one grid can have this many blocks of the shape of a launch's."""
    return blocks <= _MOST_BLOCKS and blocks * like.block[0] <= _MOST_THREADS


def batch_of(
    how: Batching | Switching,
    size: int,
    steps: Sequence[Step],
    operations: Sequence[Operation],
    shared: SharedHandles,
    device: int,
    entry: Callable[[], int],
) -> Batch | None:
    """Return a batch of these operations for steps of one graph; None if the steps no longer fit one batch.

    `size` is the capacity of the table of the entry point, which `entry` compiles and returns.
    """
    launches = [operation if isinstance(operation, Launch) else None for operation in operations]
    nodes = {node.kernel: node for node in [step.node.launched for step in steps] if node is not None}
    enabled = [launch for launch in launches if launch is not None]
    numbers = {kernel: number for number, kernel in enumerate(how.kernels, 1)}
    if not enabled or not nodes.keys() <= numbers.keys():
        return None
    function = 0 if 0 < how.threads < max([math.prod(launch.block) for launch in enabled]) else entry()
    kinds = {shared.function(kernel, node, device)[0]: numbers[kernel] for kernel, node in nodes.items()}
    if not function or any(launch.function not in kinds for launch in enabled):
        return None
    batch = (Chain if isinstance(how, Chaining) else Beside)(how, function, size, steps[0].index, launches, kinds)
    return batch if all(launch is None or batch.takes(step.index, launch) for step, launch in zip(steps, launches)) else None
