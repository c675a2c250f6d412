"""Batches: one kernel node performs the launches of several steps; its launch table is rewritten when one of them changes."""

from __future__ import annotations

import ctypes
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ...backends.handles import SharedHandles
from ...backends.operations import Launch, Operation
from ...plan.merged import MergedLaunch
from ...plan.steps import Step
from ...runtimes.base import Runtime
from ...runtimes.data import Dim3
from .batching import BATCH_HEAD_BYTES, Batching
from .switching import Chaining, Switching

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
        memory = bytearray(BATCH_HEAD_BYTES + count * how.launch.itemsize)
        self._memory = ctypes.c_char.from_buffer(memory)
        self._head = np.frombuffer(memory, np.dtype("<u4"), 4)
        self._launches = np.frombuffer(memory, how.launch, count, BATCH_HEAD_BYTES)
        first_arguments = ctypes.addressof(self._memory) + BATCH_HEAD_BYTES + how.arguments_at
        self._arguments = [first_arguments + k * how.launch.itemsize for k in range(len(launches))]
        self._table = (ctypes.c_void_p * 1)(ctypes.addressof(self._memory))
        self._params: ctypes.Array[ctypes.c_char] | None = None
        """The node's parameters for the compiled call path; None until `params` is first called."""
        self._head[0] = len(launches)
        self._kinds = kinds
        self._switches = isinstance(how, Switching)
        self._blocks = np.zeros(len(launches), np.int64)
        """Number of blocks of each launch of a `Beside` batch; 0 for a disabled step."""
        self._total = 0
        """Their sum."""
        for k, launch in enumerate(launches):
            self._put(k, launch)

    def takes(self, step: int, launch: Operation) -> bool:
        """Return whether the batch can hold an operation as the launch of a step."""
        like = self._like
        return (
            isinstance(launch, Launch)
            and (launch.block, launch.shared_bytes) == (like.block, like.shared_bytes)
            and not launch.attributes
            and launch.function in self._kinds
        )

    def put(self, step: int, launch: Launch | None) -> None:
        """Replace the launch of a step, or disable the step with None; the change takes effect with the next `set`."""
        self._put(step - self.first, launch)
        self.changed = True

    def _put(self, k: int, launch: Launch | None) -> None:
        if self._switches:
            self._launches["kind"][k] = 0 if launch is None else self._kinds[launch.function]
        if launch is not None:
            ctypes.memmove(self._arguments[k], launch.packed, len(launch.packed))

    def arguments_of(self, step: int) -> int:
        """Return the address of a step's arguments in the table, as its packer lays them out."""
        return self._arguments[step - self.first]

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
        return self.function, grid, self._like.block, self._like.shared_bytes, ctypes.addressof(self._table)

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

    def takes(self, step: int, launch: Operation) -> bool:
        if not super().takes(step, launch):
            return False
        assert isinstance(launch, Launch)
        return _fits(self._total - int(self._blocks[step - self.first]) + math.prod(launch.grid), launch)

    def _put(self, k: int, launch: Launch | None) -> None:
        super()._put(k, launch)
        blocks = 0 if launch is None else math.prod(launch.grid)
        self._total += blocks - int(self._blocks[k])
        self._blocks[k] = blocks
        if launch is not None:
            self._launches["x"][k], self._launches["y"][k], self._launches["z"][k] = launch.grid

    def _blocks_of_all(self) -> int:
        ends = np.cumsum(self._blocks)
        self._launches["end"][: len(ends)] = ends
        some = np.trim_zeros(self._blocks, "b")
        self._head[1] = some[0] if len(some) and (some == some[0]).all() else 0
        return int(ends[-1])


class Chain(Batch):
    """Single-block launches that run one after another."""

    def takes(self, step: int, launch: Operation) -> bool:
        return super().takes(step, launch) and isinstance(launch, Launch) and launch.grid == (1, 1, 1)

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
    nodes = {node.kernel: node for node in (step.node.launched for step in steps) if node is not None}
    enabled = [launch for launch in launches if launch is not None]
    if not enabled or not nodes.keys() <= {*how.kernels} or not _fits(sum(math.prod(e.grid) for e in enabled), enabled[0]):
        return None
    widest = max(math.prod(launch.block) for launch in enabled)
    function = 0 if 0 < how.threads < widest else entry()
    if not function:
        return None
    kinds = {shared.function(kernel, node, device)[0]: 1 + how.kernels.index(kernel) for kernel, node in nodes.items()}
    if any(launch.function not in kinds for launch in enabled):
        return None
    batch = (Chain if isinstance(how, Chaining) else Beside)(how, function, size, steps[0].index, launches, kinds)
    return batch if all(launch is None or batch.takes(step.index, launch) for step, launch in zip(steps, launches)) else None
