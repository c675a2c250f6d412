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
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def source(self) -> tuple[str, int] | None: ...
    @property
    def ignore(self) -> dict[str, str] | None: ...
    @property
    def accesses(self) -> tuple[Access, ...]: ...
    @property
    def addresses(self) -> tuple[ArrayView, ...]: ...
    @property
    def parameters(self) -> tuple[Parameter, ...]: ...


class KernelLaunch(Asked, Protocol):
    """One kernel launch; the fields are those of `KernelNode`."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def grid(self) -> Any: ...
    @property
    def block(self) -> Any: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def cluster(self) -> tuple[int, int, int] | None: ...
    @property
    def signature(self) -> Signature: ...
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
    def fn(self) -> Any: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def access(self) -> tuple[Access, ...]: ...
    @property
    def calls(self) -> Moment: ...


class Branch(Asked, Protocol):
    """A choice among the workflows that a node holds, by a word in memory; the fields are those of `ConditionalNode`."""

    @property
    def mode(self) -> Literal["if", "while", "switch"]: ...
    @property
    def condition(self) -> ArrayView: ...
    @property
    def bind(self) -> Mapping[str, Any]: ...
    @property
    def decide(self) -> Literal["auto", "device", "host"]: ...
    @property
    def check_every(self) -> int: ...


class Collective(Asked, Protocol):
    """A collective operation over arrays of several devices; the fields are those of `CollectiveNode`."""

    @property
    def does(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def targets(self) -> tuple[ArrayView, ...]: ...
    @property
    def sources(self) -> tuple[ArrayView, ...]: ...
    @property
    def root(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def part_bytes(self) -> int: ...
    def views_of(self, participant: int, /) -> tuple[ArrayView | None, ArrayView | None]:
        """Return the views that a participant writes and reads; None if it has none."""
