"""What passes ask of a node, as protocols: a kernel launch, a call of the user's code, a branch, a collective.

A node answers with itself, or with None where it does nothing of the kind; so a pass needs no list of kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from ..arrays import Access, ArrayView, Parameter
from ..kernels import Kernel, Signature

Moment = Literal["host", "capture", "between", ""]
"""When the user's code is called: by a node on the host, while the graph is captured, or between graphs; empty: never."""


class Asked(Protocol):
    """What every node has."""

    @property
    def name(self) -> str:
        """Its name in its graph."""

    @property
    def kind(self) -> str:
        """Its kind, as in files."""

    @property
    def source(self) -> tuple[str, int] | None:
        """File and line that declared it."""

    @property
    def ignore(self) -> dict[str, str] | None:
        """Ignored diagnostic codes, with reasons."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The memory that it accesses."""

    @property
    def addresses(self) -> tuple[ArrayView, ...]:
        """Views whose addresses it receives."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that its fields mention."""


class KernelLaunch(Asked, Protocol):
    """One kernel launch; the fields are those of `KernelNode`."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""

    @property
    def grid(self) -> Any:
        """Blocks along x, y, z: numbers or parameters."""

    @property
    def block(self) -> Any:
        """Threads of a block along x, y, z: numbers or parameters."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes."""

    @property
    def cooperative(self) -> bool:
        """Whether all blocks are resident at once."""

    @property
    def priority(self) -> int | None:
        """Its launch priority, or None."""

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        """Blocks of a cluster along x, y, z, or None."""

    @property
    def signature(self) -> Signature:
        """The types of its arguments."""

    @property
    def plain(self) -> bool:
        """Whether it has no launch attributes."""

    @property
    def alike(self) -> tuple[Any, ...] | None:
        """The key of launches that can be merged into one; None if this one cannot be merged."""

    @property
    def least_threads(self) -> int:
        """Threads of the whole launch; an extent that is bound at launch counts as 1."""


class UserCall(Asked, Protocol):
    """A call of the user's code: ``fn(*args)``, or ``fn(stream, *args)`` unless a node on the host calls it."""

    @property
    def fn(self) -> Any:
        """The Python callable."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments."""

    @property
    def access(self) -> tuple[Access, ...]:
        """The accesses of the code."""

    @property
    def calls(self) -> Moment:
        """When it is called."""


class Branch(Asked, Protocol):
    """A choice among the workflows that a node holds, by a word in memory; the fields are those of `ConditionalNode`."""

    @property
    def mode(self) -> Literal["if", "while", "switch"]:
        """How the word selects a workflow."""

    @property
    def condition(self) -> ArrayView:
        """The word: one 32-bit integer."""

    @property
    def bind(self) -> Mapping[str, Any]:
        """What the workflows' arrays and parameters are bound to, by name."""

    @property
    def decide(self) -> Literal["auto", "device", "host"]:
        """What reads the word."""

    @property
    def check_every(self) -> int:
        """How many times a loop runs its body before the word is read again."""


class Collective(Asked, Protocol):
    """A collective operation over arrays of several devices; the fields are those of `CollectiveNode`."""

    @property
    def does(self) -> str:
        """The operation, such as ``"all_reduce"``."""

    @property
    def op(self) -> str:
        """How it folds."""

    @property
    def targets(self) -> tuple[ArrayView, ...]:
        """What it writes, one view per participant."""

    @property
    def sources(self) -> tuple[ArrayView, ...]:
        """What it reads, one view per participant."""

    @property
    def root(self) -> int:
        """The participant that has or gets the values."""

    @property
    def exact(self) -> bool:
        """Whether it folds in the order of the arrays even between ranks."""

    @property
    def part_bytes(self) -> int:
        """Bytes that one participant sends, or receives if it folds and scatters."""

    def unfold(self, draft: Any, /) -> None:
        """Add the copies and kernels that do the same to a `Draft`."""

    def views_of(self, participant: int, /) -> tuple[ArrayView | None, ArrayView | None]:
        """Return the views that a participant writes and reads; None if it has none."""
