"""The memory that an Executable of a plan takes, known before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING

from ..arrays import AllocArray, ExternalArray
from ..printed import Printed, human_bytes

if TYPE_CHECKING:
    from ..nodes.workflow import Workflow
    from .temporaries import Packing


@dataclass(frozen=True, slots=True, repr=False)
class MemoryUse(Printed):
    """Bytes of memory, by what they are for.

    Attributes
    ----------
    arrays : int
        Device arrays, on all devices.
    temporaries : int
        Blocks in which arrays of alloc nodes lie from compile to close; of Executables with one arena those of the arena, which
        they have together.
    unpacked : int
        Arrays that alloc nodes allocate at each launch.
    staging : int
        Host memory: host arrays, parameters with ``copy=True``, and the marks of a watched plan.
    graph : int
        The instantiated graph on the device, by the number of its nodes: 2.3 KB a node on an H100; 0 where that has not been
        measured.
    """

    arrays: int = 0
    temporaries: int = 0
    unpacked: int = 0
    staging: int = 0
    graph: int = 0

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(astuple(self))

    def to_dict(self) -> dict[str, int]:
        """Return the bytes by name, with the `total`."""
        return {**asdict(self), "total": self.total}

    def _pieces(self) -> Iterator[tuple[str, str]]:
        yield f"{human_bytes(self.total)} of memory", "bold"
        parts = [f"{field.name} {human_bytes(getattr(self, field.name))}" for field in fields(self) if getattr(self, field.name)]
        yield f": {', '.join(parts)}" if parts else "", ""


def memory_of(workflow: Workflow, packing: Packing | None, marks: int, graph: int) -> MemoryUse:
    """Return what compiling a workflow takes, with the bytes of marks and of the graph; external memory is the user's."""
    arrays = unpacked = temporaries = 0
    staging = marks
    for level in workflow.levels():
        for _, array in level.own_arrays():
            if isinstance(array, AllocArray):
                unpacked += array.nbytes
            elif array.on_host and not isinstance(array, ExternalArray):
                staging += array.nbytes
            elif not isinstance(array, ExternalArray):
                arrays += array.nbytes
        staging += sum(parameter.nbytes for _, parameter in level.own_parameters() if parameter.copy)
    if packing is not None:
        temporaries = packing.nbytes
        unpacked -= sum(packed.array.nbytes for packed in packing.arrays)
    return MemoryUse(arrays, temporaries, unpacked, staging, graph)
