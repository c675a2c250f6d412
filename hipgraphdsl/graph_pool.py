"""The memory that a device reserves for the alloc nodes of graphs: query and release it."""

from __future__ import annotations

from .runtimes.base import Runtime
from .runtimes.data import GraphMemAttribute


class GraphMemory:
    """The memory that all graphs of one device use and reserve; what a launch frees stays reserved for the next launch.

    Parameters
    ----------
    runtime : Runtime
    device : int
    """

    def __init__(self, runtime: Runtime, device: int = 0) -> None:
        self._runtime = runtime
        self.device = device

    @property
    def used(self) -> int:
        """Bytes that alloc nodes have allocated and that are not freed yet; CUDA adds what executables keep between launches."""
        return self._ask(GraphMemAttribute.USED)

    @property
    def used_high(self) -> int:
        """The highest `used` since the start or the last `reset_high`, in bytes."""
        # On AMD a reset sets the mark to 0, not to the current use.
        return max(self.used, self._ask(GraphMemAttribute.USED_HIGH))

    @property
    def reserved(self) -> int:
        """Bytes that are reserved for graphs, used or not."""
        return self._ask(GraphMemAttribute.RESERVED)

    @property
    def reserved_high(self) -> int:
        """The highest `reserved` since the start or the last `reset_high`, in bytes."""
        return max(self.reserved, self._ask(GraphMemAttribute.RESERVED_HIGH))

    def reset_high(self) -> None:
        """Reset `used_high` and `reserved_high` to what is used and reserved now."""
        with self._runtime.using_device(self.device):
            for attribute in (GraphMemAttribute.USED_HIGH, GraphMemAttribute.RESERVED_HIGH):
                self._runtime.device_set_graph_mem_attribute(self.device, attribute)

    def trim(self) -> None:
        """Release memory that is reserved and not used; the next launch of a graph that allocates reserves it again."""
        with self._runtime.using_device(self.device):
            self._runtime.device_graph_mem_trim(self.device)

    def _ask(self, attribute: GraphMemAttribute) -> int:
        with self._runtime.using_device(self.device):
            return self._runtime.device_get_graph_mem_attribute(self.device, attribute)

    def __repr__(self) -> str:
        return (
            f"GraphMemory({self._runtime.name!r}, device {self.device}: {self.used} bytes used ({self.used_high} at most),"
            f" {self.reserved} reserved ({self.reserved_high} at most))"
        )
